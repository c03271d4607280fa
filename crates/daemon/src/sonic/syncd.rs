//! `syncd` as a process: requests from ASIC_DB's queue onto the virtual switch, replies back, rows into ASIC_DB.
//!
//! When syncd alone is started again, the rows of ASIC_DB make the switch anew, and orchagent goes on. When orchagent
//! starts, it describes everything; what the switch had before goes then.

use super::orchagent::{RedisVids, check_mode};
use super::syncd_stage::{OrchLink, SyncdStage};
use super::{Error, log, query};
use clap::Args;
use crossbeam_channel::Select;
use ribtide_runtime::ask;
use ribtide_runtime::thread::Stop;
use ribtide_sai::{Limits, PortSetup, VirtualSwitch};
use ribtide_swss::Db;
use ribtide_swss::sai::{Attr, Attrs, ObjectId, ObjectType, SaiReply, SaiRequest, Status, text};
use ribtide_swss::syncd::{AsicChange, Syncd, SyncdOut};
use ribtide_tables::queue::{self, Message, QueueReader, QueueWriter};
use ribtide_tables::{Connection, Databases, Reply, TableError, wake_ups};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

const DAEMON: &str = "syncd";
/// Requests that one look at the queue takes, as in SONiC.
const POP: usize = 128;
const ASIC_STATE: &str = "ASIC_STATE";
const MAPS: [&str; 2] = ["VIDTORID", "RIDTOVID"];
const HIDDEN: &str = "HIDDEN";

/// Command line of `syncd`, as SONiC starts it on its virtual switch.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Answer each request: the same as -z redis_sync
    #[arg(short = 's')]
    pub synchronous: bool,
    /// How to talk to orchagent: redis_sync
    #[arg(short = 'z', value_name = "MODE")]
    pub mode: Option<String>,
    /// The switch's profile; its SAI_VS_INTERFACE_LANE_MAP_FILE names the ports and their lanes
    #[arg(short = 'p', value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Take orchagent's start as a description of all that shall be, which ribtide always does
    #[arg(short = 'u')]
    pub temp_view: bool,
    /// Carry bulks out as bulks, which ribtide always does
    #[arg(short = 'l')]
    pub bulk: bool,
    /// SONiC's switch for a vendor's shell, of which a virtual switch has none; --query-socket is its stand-in
    #[arg(short = 'd', long = "diag")]
    pub diag: bool,
    /// Answer questions about the switch on this Unix socket: `lookup ADDRESS`, `route PREFIX`, `counts`
    #[arg(long, value_name = "PATH")]
    pub query_socket: Option<PathBuf>,
    /// SONiC's database_config.json
    #[arg(long, value_name = "FILE")]
    pub database_config: Option<PathBuf>,
}

/// Runs for ever.
///
/// # Errors
/// One sentence for the operator: an option that does not work, a database that is not there.
pub fn run(options: Options) -> Result<(), Error> {
    run_until(&options, &Stop::default())
}

/// [`run`], until `stop`.
///
/// # Errors
/// As [`run`].
pub fn run_until(options: &Options, stop: &Stop) -> Result<(), Error> {
    check_mode(DAEMON, options.synchronous, options.mode.as_deref())?;
    let ports = match &options.profile {
        None => PortSetup::usual(),
        Some(profile) => ports_of(profile)?,
    };
    let databases = Databases::load(options.database_config.as_deref())?;
    let vids = Box::new(RedisVids::open(&databases, stop)?);
    let mut syncd = Syncd::new(VirtualSwitch::new(ports, Limits::default()), vids);
    let mut link = RedisLink::open(&databases, stop)?;
    link.recreate(&mut syncd)?;
    let stage = SyncdStage { syncd, link: Box::new(link), meter: None };
    let (asker, asked) = ask::pair("syncd");
    if let Some(path) = &options.query_socket {
        query::start(DAEMON, path, asker, |stage: &SyncdStage| stage.syncd.chip())?;
    }
    log(DAEMON, "started");
    stage.run(Some(&asked), stop)
}

/// The ports of a SONiC virtual switch's profile: a file of `KEY=VALUE`, one of which names a file of `NAME:LANES`.
fn ports_of(profile: &Path) -> Result<Vec<PortSetup>, Error> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))
    };
    let text = read(profile)?;
    let key = "SAI_VS_INTERFACE_LANE_MAP_FILE";
    let map =
        text.lines().filter_map(|line| line.trim().split_once('=')).find(|(name, _)| name.trim() == key);
    let Some((_, map)) = map else { return Ok(PortSetup::usual()) };
    let map = Path::new(map.trim());
    let lines = read(map)?;
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let port = line.split_once(':').and_then(|(name, lanes)| {
                let lanes =
                    lanes.split(',').map(|lane| lane.trim().parse().ok()).collect::<Option<Vec<u32>>>()?;
                Some(PortSetup { name: name.trim().into(), lanes, speed: 40_000 })
            });
            port.ok_or_else(|| {
                Error::new(format!("\"{line}\" in {} is no port; write NAME:LANE,LANE,…", map.display()))
            })
        })
        .collect()
}

/// orchagent through ASIC_DB's queues.
struct RedisLink {
    requests: QueueReader,
    replies: QueueWriter,
    rows: Connection,
    taken: u64,
    /// Requests under way that are views: their replies are spelled otherwise.
    views: VecDeque<u64>,
    generation: u64,
    /// There may be more in the queue than the last look took.
    more: bool,
}

impl RedisLink {
    fn open(databases: &Databases, stop: &Stop) -> Result<RedisLink, Error> {
        let asic = databases.get(Db::Asic);
        let wake = wake_ups(asic, vec![queue::channel(asic, ASIC_STATE)], stop)?.remove(0);
        Ok(RedisLink {
            requests: QueueReader::open(asic, ASIC_STATE, wake, stop)?,
            replies: QueueWriter::open(asic, "GETRESPONSE", stop)?,
            rows: Connection::open(asic, stop)?,
            taken: 0,
            views: VecDeque::new(),
            generation: 0,
            more: false,
        })
    }

    /// Makes the switch hold what ASIC_DB says, after syncd alone was started again.
    fn recreate(&mut self, syncd: &mut Syncd<VirtualSwitch>) -> Result<(), Error> {
        let hidden = self.rows.ask(&["HGETALL", HIDDEN])?.into_pairs();
        let hidden: Vec<Attr> = hidden.iter().filter_map(|(name, value)| Attr::read(name, value)).collect();
        let mut rows: Vec<(ObjectType, ObjectId, Attrs)> = Vec::new();
        let prefix = self.rows.database().key(ASIC_STATE, "");
        self.rows.scan(&format!("{prefix}*"), |connection, names| {
            let hashes = connection.ask_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                let Some(Ok((object, id))) = name.strip_prefix(&prefix).map(text::read_row_key) else {
                    continue;
                };
                let pairs = hash.into_pairs();
                let attrs =
                    pairs.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
                rows.push((object, id, attrs.collect()));
            }
            Ok(())
        })?;
        if rows.is_empty() {
            return Ok(());
        }
        log(DAEMON, &format!("making {} objects again that ASIC_DB holds", rows.len()));
        let mut out = SyncdOut::default();
        syncd.recreate(rows, &hidden, &mut out);
        for map in MAPS {
            self.rows.queue(&["DEL", map]);
        }
        out.events.drain(..).for_each(|sentence| log(DAEMON, &sentence));
        self.answer(&mut out)
    }

    /// Answers what is no request of the route path, so that who asked does not wait for ever.
    fn refuse(&mut self, message: &Message, why: &str) {
        log(DAEMON, &format!("refused: {why}"));
        let status = Status::NotSupported.name();
        let objects = match message.key.rsplit_once(':') {
            Some((_, count)) if message.op.contains("bulk") => count.parse().unwrap_or(0),
            _ => 0,
        };
        let fields = vec![format!("\"{status}\",\"\""); objects].join(",");
        let op = if message.op == "Snotify" { "Snotify" } else { "Sgetresponse" };
        self.replies.push(&Message { key: status.into(), value: format!("[{fields}]"), op: op.into() });
    }

    /// Fails when the server came back without the rows: the switch is no longer what ASIC_DB says.
    fn check_lost(&mut self) -> Result<(), Error> {
        let generation = self.rows.generation() + self.requests.generation();
        if std::mem::replace(&mut self.generation, generation) != generation
            && self.rows.ask(&["EXISTS", MAPS[0]])? == Reply::Integer(0)
        {
            return Err(Error::new(
                "Redis for ASIC_DB came back without its data; start syncd and orchagent again, so that both describe the \
                 switch anew",
            ));
        }
        Ok(())
    }

    fn write(&mut self, change: AsicChange) -> Result<(), TableError> {
        let rows = &mut self.rows;
        let place = |object, id: &ObjectId| {
            let mut key = rows.database().key(ASIC_STATE, "");
            text::write_row_key(object, id, &mut key);
            key
        };
        match change {
            AsicChange::Set(object, id, attrs) => {
                let mut args = vec!["HSET".to_owned(), place(object, &id)];
                text::row_fields(&attrs, &mut |field, value| {
                    args.extend([field.to_owned(), value.to_owned()])
                });
                rows.queue(&args.iter().map(String::as_str).collect::<Vec<_>>());
            }
            AsicChange::Remove(object, id) => rows.queue(&["DEL", &place(object, &id)]),
            AsicChange::Map(vid, rid) => {
                let (vid, rid) = (vid.to_string(), rid.to_string());
                rows.queue(&["HSET", MAPS[0], &vid, &rid]);
                rows.queue(&["HSET", MAPS[1], &rid, &vid]);
            }
            AsicChange::Unmap(vid, rid) => {
                rows.queue(&["HDEL", MAPS[0], &vid.to_string()]);
                rows.queue(&["HDEL", MAPS[1], &rid.to_string()]);
            }
            AsicChange::Hidden(attr) => {
                let mut value = String::new();
                attr.write_value(&mut value);
                rows.queue(&["HSET", HIDDEN, attr.name(), &value]);
            }
            AsicChange::Wipe => {
                let pattern = format!("{}*", rows.database().key(ASIC_STATE, ""));
                rows.scan(&pattern, |connection, names| {
                    names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
                    connection.flush()
                })?;
                rows.queue(&["DEL", HIDDEN, MAPS[0], MAPS[1]]);
            }
        }
        Ok(())
    }
}

impl OrchLink for RedisLink {
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        if self.requests.wake().try_recv().is_ok() {
            self.more = true;
        }
        if !self.more {
            return Ok(());
        }
        let messages = self.requests.pop(POP)?;
        self.more = !messages.is_empty();
        self.check_lost()?;
        for message in messages {
            self.taken += 1;
            match text::read_request(self.taken, &message.key, &message.value, &message.op) {
                Ok(request) => {
                    if matches!(request.call, ribtide_swss::sai::SaiCall::View(_)) {
                        self.views.push_back(request.id);
                    }
                    requests.push(request);
                }
                Err(e) => self.refuse(&message, &e.to_string()),
            }
        }
        Ok(self.replies.flush()?)
    }

    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error> {
        for reply in out.replies.drain(..) {
            let view = self.views.front() == Some(&reply.id);
            if view {
                self.views.pop_front();
            }
            self.replies.push(&spell(&reply, view));
        }
        self.replies.flush()?;
        for change in out.rows.drain(..) {
            self.write(change)?;
        }
        self.rows.flush()?;
        self.check_lost()
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(self.requests.wake());
    }
}

fn spell(reply: &SaiReply, view: bool) -> Message {
    let message = text::write_reply(reply, view);
    Message { key: message.key, value: message.value, op: message.op.into() }
}
