//! `orchagent` as a process: APPL_DB's tables in, requests to syncd through ASIC_DB out, replies back.
//!
//! It runs SONiC's `redis_sync` mode. When Redis goes away while a request is under way, nobody can know whether
//! syncd carried it out: the queue has no numbers. orchagent then ends with a sentence, and its supervisor starts it
//! again, which describes everything anew. At any other time it waits until Redis is back.

use super::orch_stage::{OrchStage, Outlet, SyncdLink, TableFeed};
use super::record::Recording;
use super::{Error, log};
use clap::Args;
use crossbeam_channel::Select;
use ribtide_runtime::thread::Stop;
use ribtide_swss::orch::{Crm, Orch, OrchConfig, OrchOut, VidSource};
use ribtide_swss::row::{
    DefaultRouteRow, IntfRow, Mac, NeighResolveRow, NeighRow, NextHopGroupRow, PortRow,
    ROUTE_RESPONSE_CHANNEL, RouteRow, RouteStateRow, SwitchCapabilityRow, VrfRow,
};
use ribtide_swss::sai::{SaiReply, SaiRequest, text};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::Reply;
use ribtide_tables::queue::{self, Message, QueueReader, QueueWriter};
use ribtide_tables::{
    Connection, ConsumerStateTable, Databases, Pipeline, PlainTable, Producer, ProducerStateTable,
    TableError, Wake, state_table, wake_ups,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const DAEMON: &str = "orchagent";
/// Rows that may wait in the machine while it waits for syncd.
const BACKLOG: usize = 50_000;
/// The counter of object numbers.
const VIDCOUNTER: &str = "VIDCOUNTER";
/// How long syncd may take for one request, as in SONiC.
const PATIENCE: Duration = Duration::from_secs(60);

/// Command line of `orchagent`, as SONiC starts it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Rows that one look at a table takes at most
    #[arg(short = 'b', value_name = "ROWS", default_value_t = 128)]
    pub batch: usize,
    /// Objects in one bulk at most
    #[arg(short = 'k', value_name = "OBJECTS", default_value_t = 1000)]
    pub bulk: usize,
    /// Wait for syncd's reply to each request: the same as -z redis_sync
    #[arg(short = 's')]
    pub synchronous: bool,
    /// How to talk to syncd: redis_sync
    #[arg(short = 'z', value_name = "MODE")]
    pub mode: Option<String>,
    /// The router's MAC address
    #[arg(short = 'm', value_name = "MAC")]
    pub mac: Option<String>,
    /// Answer what became of each route, for FIB suppression
    #[arg(short = 'F')]
    pub responses: bool,
    /// What to record: 1 requests to syncd, 2 rows taken, 3 both, 0 nothing; SONiC's bits 4 and 8 record nothing here
    #[arg(short = 'r', value_name = "MASK", default_value_t = 11)]
    pub record: u32,
    /// Where to record
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    pub directory: PathBuf,
    /// Name of the recording of rows
    #[arg(short = 'f', value_name = "FILE", default_value = "swss.rec")]
    pub rows_file: String,
    /// Name of the recording of requests to syncd
    #[arg(short = 'j', value_name = "FILE", default_value = "sairedis.rec")]
    pub requests_file: String,
    /// SONiC's database_config.json
    #[arg(long, value_name = "FILE")]
    pub database_config: Option<PathBuf>,
    /// SONiC's, refused: rows over ZeroMQ
    #[arg(short = 'q', value_name = "ENDPOINT", hide = true)]
    pub zmq: Option<String>,
    /// SONiC's, refused: a ring thread
    #[arg(short = 'R', hide = true)]
    pub ring: bool,
    /// SONiC's, refused: recording and publishing on a thread of their own
    #[arg(short = 'A', hide = true)]
    pub asynchronous: bool,
}

/// Checks that both sides of ASIC_DB are to run the one mode that there is.
pub(super) fn check_mode(daemon: &str, synchronous: bool, mode: Option<&str>) -> Result<(), Error> {
    match mode {
        Some("redis_sync") => Ok(()),
        None if synchronous => Ok(()),
        None => Err(Error::new(format!(
            "{daemon} without -s or -z is SONiC's redis_async mode, which loses failures and which ribtide does not run; start \
             orchagent and syncd both with -s"
        ))),
        Some(mode) => Err(Error::new(format!(
            "{daemon} -z {mode}: ribtide runs redis_sync only; start orchagent and syncd both with -s"
        ))),
    }
}

/// Runs for ever.
///
/// # Errors
/// One sentence for the operator: an option that does not work, a database that is not there, a syncd that does not
/// answer.
pub fn run(options: Options) -> Result<(), Error> {
    run_until(&options, &Stop::default())
}

/// [`run`], until `stop`.
///
/// # Errors
/// As [`run`].
pub fn run_until(args: &Options, stop: &Stop) -> Result<(), Error> {
    check_mode(DAEMON, args.synchronous, args.mode.as_deref())?;
    let refused = [
        (args.zmq.is_some(), "-q", "takes rows from Redis only"),
        (args.ring, "-R", "takes rows while requests are under way without a ring thread"),
        (args.asynchronous, "-A", "records and publishes on its main thread"),
    ];
    if let Some((_, flag, why)) = refused.iter().find(|(given, ..)| *given) {
        return Err(Error::new(format!(
            "{flag} has no effect here: ribtide's orchagent {why}; leave {flag} out"
        )));
    }
    for (flag, value) in [("-b", args.batch), ("-k", args.bulk)] {
        if value == 0 {
            return Err(Error::new(format!("{flag} 0 would never take anything; give a number from 1 up")));
        }
    }
    let default = OrchConfig::default();
    let mac = match &args.mac {
        None => default.mac,
        Some(text) => text
            .parse::<Mac>()
            .map_err(|_| Error::new(format!("-m {text} is not a MAC address such as 02:00:00:00:00:01")))?,
    };
    let databases = Databases::load(args.database_config.as_deref())?;
    let config = OrchConfig { bulk_size: args.bulk, window: 1, responses: args.responses, mac, ..default };
    let vids = RedisVids::open(&databases, stop)?;
    let recording = |bit: u32, file: &str| match args.record & bit {
        0 => Ok(None),
        _ => Recording::open(args.directory.join(file)).map(Some),
    };
    let mut stage = OrchStage {
        orch: Orch::new(config, Box::new(vids)),
        feeds: feeds(&databases, stop)?,
        syncd: Box::new(RedisLink::open(&databases, stop)?),
        outlet: Box::new(RedisOutlet::open(&databases, stop)?),
        batch: args.batch,
        backlog: BACKLOG,
        rows: recording(2, &args.rows_file)?,
        requests: recording(1, &args.requests_file)?,
        meter: None,
    };
    refill(&mut stage, &databases, stop)?;
    log(DAEMON, "started");
    stage.run(None, stop)
}

/// The tables of APPL_DB, in the order in which what they hold depends on each other.
fn feeds(databases: &Databases, stop: &Stop) -> Result<Vec<Box<dyn super::orch_stage::Feed>>, Error> {
    let appl = databases.get(Db::Appl);
    let channels = vec![
        state_table::channel::<PortRow>(appl),
        state_table::channel::<VrfRow>(appl),
        state_table::channel::<IntfRow>(appl),
        state_table::channel::<NeighRow>(appl),
        state_table::channel::<NextHopGroupRow>(appl),
        state_table::channel::<RouteRow>(appl),
    ];
    let mut wakes = wake_ups(appl, channels, stop)?.into_iter();
    let mut wake = || wakes.next().expect("a wake-up for each channel");
    Ok(vec![
        Box::new(TableFeed::new(open::<PortRow>(databases, wake(), stop)?, Orch::port)),
        Box::new(TableFeed::new(open::<VrfRow>(databases, wake(), stop)?, Orch::vrf)),
        Box::new(TableFeed::new(open::<IntfRow>(databases, wake(), stop)?, Orch::interface)),
        Box::new(TableFeed::new(open::<NeighRow>(databases, wake(), stop)?, Orch::neighbor)),
        Box::new(TableFeed::new(open::<NextHopGroupRow>(databases, wake(), stop)?, Orch::nexthop_group)),
        Box::new(TableFeed::new(open::<RouteRow>(databases, wake(), stop)?, Orch::route)),
    ])
}

/// Takes in the rows that an earlier orchagent consumed: their place is in the tables, no longer in the queues.
fn refill(stage: &mut OrchStage, databases: &Databases, stop: &Stop) -> Result<(), Error> {
    fn table<R: Row>(
        databases: &Databases,
        stop: &Stop,
        mut take: impl FnMut(Change<R>),
    ) -> Result<(), TableError> {
        PlainTable::<R>::open(databases, stop)?.rows(|key, row| take(Change::set(key, row)))
    }
    let orch = &mut stage.orch;
    table::<PortRow>(databases, stop, |change| orch.port(change))?;
    table::<VrfRow>(databases, stop, |change| orch.vrf(change))?;
    table::<IntfRow>(databases, stop, |change| orch.interface(change))?;
    table::<NeighRow>(databases, stop, |change| orch.neighbor(change))?;
    table::<NextHopGroupRow>(databases, stop, |change| orch.nexthop_group(change))?;
    table::<RouteRow>(databases, stop, |change| orch.route(change))?;
    Ok(())
}

fn open<R: Row>(databases: &Databases, wake: Wake, stop: &Stop) -> Result<ConsumerStateTable<R>, Error> {
    Ok(ConsumerStateTable::open(databases, wake, stop)?)
}

/// Object numbers from the counter that orchagent and syncd share.
pub(super) struct RedisVids {
    counter: Connection,
    /// The highest number that was taken here.
    last: u64,
}

impl RedisVids {
    /// Opens the counter.
    pub(super) fn open(databases: &Databases, stop: &Stop) -> Result<RedisVids, Error> {
        Ok(RedisVids { counter: Connection::open(databases.get(Db::Asic), stop)?, last: 0 })
    }
}

impl VidSource for RedisVids {
    fn take(&mut self, count: u64) -> Result<Range<u64>, String> {
        loop {
            let step = count.to_string();
            let end = self.counter.ask(&["INCRBY", VIDCOUNTER, &step]).map_err(|e| e.to_string())?;
            let end = end.as_integer().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            let first = end.saturating_sub(count) + 1;
            // A server that lost its data counts from the start again: go on until the numbers are new.
            if first > self.last {
                self.last = end;
                return Ok(first..end + 1);
            }
        }
    }
}

/// syncd through ASIC_DB's queues.
struct RedisLink {
    requests: QueueWriter,
    replies: QueueReader,
    /// Requests without a reply, oldest first, and when they were sent: the queue carries no numbers.
    waiting: VecDeque<(u64, Instant)>,
    generation: u64,
}

impl RedisLink {
    fn open(databases: &Databases, stop: &Stop) -> Result<RedisLink, Error> {
        let asic = databases.get(Db::Asic);
        let wake = wake_ups(asic, vec![queue::channel(asic, "GETRESPONSE")], stop)?.remove(0);
        let mut replies = QueueReader::open(asic, "GETRESPONSE", wake, stop)?;
        // Replies to an earlier run answer nothing of ours.
        while !replies.pop(1000)?.is_empty() {}
        let mut requests = QueueWriter::open(asic, "ASIC_STATE", stop)?;
        let generation = requests.connection().generation();
        Ok(RedisLink { requests, replies, waiting: VecDeque::new(), generation })
    }

    /// Fails when Redis was lost while a request was under way, or came back without its data.
    fn check_lost(&mut self) -> Result<(), Error> {
        let generation = self.requests.connection().generation() + self.replies.generation();
        if std::mem::replace(&mut self.generation, generation) == generation {
            return Ok(());
        }
        if !self.waiting.is_empty() {
            return Err(Error::new(
                "Redis for ASIC_DB went away while syncd had a request, and nobody knows whether it was carried out; \
                 start syncd and orchagent again",
            ));
        }
        if self.requests.connection().ask(&["EXISTS", VIDCOUNTER])? == Reply::Integer(0) {
            return Err(Error::new(
                "Redis for ASIC_DB came back without its data; start syncd and orchagent again, so that both describe \
                 the switch anew",
            ));
        }
        Ok(())
    }
}

impl SyncdLink for RedisLink {
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        for request in requests.drain(..) {
            let message = text::write_request(&request);
            self.requests.push(&Message { key: message.key, value: message.value, op: message.op.into() });
            self.waiting.push_back((request.id, Instant::now()));
        }
        self.requests.flush()?;
        self.check_lost()
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        if self.replies.wake().try_recv().is_err() {
            return match self.waiting.front() {
                Some((_, since)) if since.elapsed() >= PATIENCE => Err(Error::new(format!(
                    "syncd did not answer within {} s; see whether it runs, with -s, on the same ASIC_DB",
                    PATIENCE.as_secs()
                ))),
                _ => Ok(()),
            };
        }
        loop {
            let messages = self.replies.pop(128)?;
            if messages.is_empty() {
                return self.check_lost();
            }
            for message in messages {
                let Some((id, _)) = self.waiting.pop_front() else {
                    log(DAEMON, &format!("syncd answered {} to nothing that was asked", message.key));
                    continue;
                };
                let reply = text::read_reply(id, &message.key, &message.value, &message.op);
                replies.push(reply.map_err(|e| Error::new(format!("syncd's answer cannot be read: {e}")))?);
            }
        }
    }

    fn waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(self.replies.wake());
    }
}

/// The tables that orchagent writes.
struct RedisOutlet {
    resolve: ProducerStateTable<NeighResolveRow>,
    default_routes: PlainTable<DefaultRouteRow>,
    capability: PlainTable<SwitchCapabilityRow>,
    route_states: PlainTable<RouteStateRow>,
    responses: Connection,
    counters: Connection,
    /// What the counters were last written from.
    crm: Crm,
}

impl RedisOutlet {
    fn open(databases: &Databases, stop: &Stop) -> Result<RedisOutlet, Error> {
        // What an earlier run confirmed is confirmed anew, or is gone.
        let mut responses = Connection::open(databases.get(Db::ApplState), stop)?;
        let rows = responses.database().key(RouteStateRow::TABLE, "");
        responses.scan(&format!("{rows}*"), |connection, names| {
            names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
            connection.flush()
        })?;
        Ok(RedisOutlet {
            resolve: ProducerStateTable::open(databases, Pipeline::default(), stop)?,
            default_routes: PlainTable::open(databases, stop)?,
            capability: PlainTable::open(databases, stop)?,
            route_states: PlainTable::open(databases, stop)?,
            responses,
            counters: Connection::open(databases.get(Db::Counters), stop)?,
            crm: Crm::default(),
        })
    }
}

impl Outlet for RedisOutlet {
    fn carry_out(&mut self, _: &mut Orch, out: &mut OrchOut) -> Result<bool, Error> {
        write(&mut self.resolve, &mut out.resolve)?;
        write(&mut self.default_routes, &mut out.default_routes)?;
        write(&mut self.capability, &mut out.capability)?;
        // SONiC tells successes only.
        out.verdicts.clear();
        if out.responses.is_empty() {
            return Ok(false);
        }
        // The row first: who hears the message may look for it.
        let mut rows = Vec::with_capacity(out.responses.len());
        for response in out.responses.drain(..) {
            self.responses.queue(&["PUBLISH", ROUTE_RESPONSE_CHANNEL, &response.message()]);
            // As in SONiC: the row of a route that was confirmed, no row for one that went, failures leave it as it is.
            if response.is_success() {
                let row = response.protocol.map(|protocol| RouteStateRow { protocol: Some(protocol) });
                rows.push(Change { key: response.key, row, reshaped: false });
            }
        }
        write(&mut self.route_states, &mut rows)?;
        self.responses.flush()?;
        Ok(false)
    }

    fn tick(&mut self, orch: &Orch) -> Result<(), Error> {
        if *orch.crm() == self.crm {
            return Ok(());
        }
        self.crm = orch.crm().clone();
        let mut args = vec!["HSET".to_owned(), "CRM:STATS".to_owned()];
        self.crm.fields(&mut |field, value| args.extend([field.to_owned(), value.to_owned()]));
        self.counters.queue(&args.iter().map(String::as_str).collect::<Vec<_>>());
        Ok(self.counters.flush()?)
    }
}

fn write<R: Row>(table: &mut impl Producer<R>, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
    if !changes.is_empty() {
        table.write(changes)?;
        table.flush()?;
    }
    Ok(())
}
