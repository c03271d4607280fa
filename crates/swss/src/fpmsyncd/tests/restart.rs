//! Random histories of one route through fpmsyncds that are killed and follow each other, and that turn FIB suppression on and off and
//! count answers again, against a model of all that lies between them and the chip: while it is on nothing is confirmed that the chip
//! does not have, or is about to lose, and in the end everything is confirmed, and APPL_DB and the chip have what was announced last.

use super::client::{Client, KEY};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    /// Rows go to orchagent over APPL_DB.
    Redis,
    /// ZeroMQ is, and APPL_DB is write-behind, or, if not `kept`, not written at all.
    Zmq { kept: bool },
}

#[derive(Clone, Debug)]
enum Act {
    Announce(u8),
    Del,
    /// fpmsyncd hands over what changed.
    Take,
    /// So many of the rows that were handed over leave fpmsyncd.
    Send(usize),
    /// So many of those that are recorded do.
    Record(usize),
    /// orchagent takes a row from where its producer left it, into its ring.
    Pop,
    /// Out of the ring, into the machine.
    Add,
    /// orchagent asks the chip.
    Ask,
    /// The chip does what it was asked, and orchagent answers.
    Program,
    /// orchagent sees that a new fpmsyncd is connected.
    Notice,
    /// fpmsyncd hears what was said first.
    Hear,
    /// The connection of answers breaks, with what was said and not heard.
    Break,
    /// fpmsyncd is killed, with what has not left it, and started. The routing daemon, too, if it is to be `fresh`: it remembers no
    /// question.
    Restart {
        fresh: bool,
    },
    /// The routing daemon connects and announces what there is.
    Connect,
    EndOfReplay,
    /// FIB suppression is turned on, or off.
    Suppress(bool),
    /// Where answers are to be counted again, it is done if it can be.
    Count,
    /// It is turned off and on, and what is in the chip is heard, while rows are under way.
    OffAndOn,
    /// Rows under way arrive, and is answered; but APPL_DB stays behind.
    Arrive,
}

/// In which order things arrive.
const ARRIVE: [Act; 9] =
    [Act::Count, Act::Take, Act::Send(9), Act::Pop, Act::Add, Act::Ask, Act::Program, Act::Notice, Act::Hear];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (1..3u8).prop_map(Act::Announce),
        1 => Just(Act::Del),
        5 => Just(Act::Take),
        5 => (1..4usize).prop_map(Act::Send),
        2 => (1..4usize).prop_map(Act::Record),
        5 => Just(Act::Pop),
        5 => Just(Act::Add),
        5 => Just(Act::Ask),
        5 => Just(Act::Program),
        3 => Just(Act::Notice),
        6 => Just(Act::Hear),
        1 => Just(Act::Break),
        2 => any::<bool>().prop_map(|fresh| Act::Restart { fresh }),
        3 => Just(Act::Connect),
        2 => Just(Act::EndOfReplay),
        2 => any::<bool>().prop_map(Act::Suppress),
        3 => Just(Act::Count),
        2 => Just(Act::OffAndOn),
        2 => Just(Act::Arrive),
    ];
    prop::collection::vec(act, 1..80)
}

fn transports() -> impl Strategy<Value = Transport> {
    prop_oneof![
        Just(Transport::Redis),
        Just(Transport::Zmq { kept: true }),
        Just(Transport::Zmq { kept: false })
    ]
}

/// A row under way, by its gateway; `None` for a deletion.
#[derive(Clone, Copy, Debug)]
struct Sent {
    row: Option<u8>,
    /// Which fpmsyncd sent it.
    by: u32,
    /// It is only said again: no client waits for its answer.
    found: bool,
}

#[derive(Clone, Copy, Debug)]
enum Hears {
    Answer,
    InChip,
    SnapshotEnd,
}

struct World {
    transport: Transport,
    bench: Bench,
    /// The number of this fpmsyncd.
    process: u32,
    connected: bool,
    /// FIB suppression is on; and answers are to be counted again, and not heard before that.
    suppress: bool,
    is_uncounted: bool,
    /// Goes with fpmsyncd.
    unsent: VecDeque<Sent>,
    unrecorded: VecDeque<Option<u8>>,
    /// APPL_DB, and whether orchagent is to take it.
    appl_db: Option<u8>,
    noted: bool,
    sockets: VecDeque<Sent>,
    ring: VecDeque<Sent>,
    /// What orchagent has not done: what the chip was asked, if so, and what came later.
    tasks: VecDeque<Sent>,
    is_asked: bool,
    chip: Option<u8>,
    /// Who hears answers is new; of the ring so much is to be taken before he is told anything; he hears answers.
    is_new: bool,
    behind: Option<usize>,
    begun: bool,
    sent: VecDeque<Hears>,
    client: Client,
}

impl World {
    fn new(transport: Transport) -> World {
        World {
            transport,
            bench: start(true),
            process: 1,
            connected: false,
            suppress: true,
            is_uncounted: false,
            unsent: VecDeque::new(),
            unrecorded: VecDeque::new(),
            appl_db: None,
            noted: false,
            sockets: VecDeque::new(),
            ring: VecDeque::new(),
            tasks: VecDeque::new(),
            is_asked: false,
            chip: None,
            is_new: true,
            behind: None,
            begun: false,
            sent: VecDeque::new(),
            client: Client::default(),
        }
    }

    fn announce(&mut self, gateway: Option<u8>) {
        self.client.announce(gateway, self.connected, &mut self.bench);
        self.replies();
    }

    /// A new session, in which all that there is is announced.
    fn connect(&mut self) {
        self.connected = true;
        self.bench.reconnect();
        if self.transport == Transport::Redis && self.begun && self.bench.machine.is_unanswered() {
            self.recount();
        }
        if self.client.last.is_some() {
            self.announce(self.client.last);
        }
    }

    fn turn(&mut self, on: bool) {
        if on == self.suppress {
            return;
        }
        self.suppress = on;
        self.bench.machine.suppress(on, &mut self.bench.out);
        self.replies();
        match on {
            true => self.recount(),
            false => {
                self.is_uncounted = false;
                self.deaf();
            }
        }
    }

    /// Answers are to be counted again: no thread reads them until they are.
    fn recount(&mut self) {
        self.is_uncounted = true;
        self.deaf();
    }

    fn count(&mut self) {
        if !self.is_uncounted {
            return;
        }
        let is_taken = match self.transport {
            Transport::Redis => {
                self.send(usize::MAX);
                true
            }
            Transport::Zmq { .. } => {
                [&self.unsent, &self.sockets, &self.ring].iter().all(|rows| rows.is_empty())
            }
        };
        if is_taken {
            self.is_uncounted = false;
            let queued = self.noted.then(|| RouteRow::parse_key(KEY).unwrap());
            self.bench.machine.recount(queued);
            self.unheard();
        }
    }

    fn take(&mut self) {
        if self.is_uncounted {
            return;
        }
        self.bench.machine.take(&mut self.bench.out);
        let out = &mut self.bench.out;
        let (written, asked) = (std::mem::take(&mut out.routes), std::mem::take(&mut out.queries));
        let row = |change: &Change<RouteRow>| change.row.as_ref().map(gateway);
        // What is only asked goes into no record.
        self.unrecorded.extend(written.iter().map(row));
        let by = self.process;
        let sent = written.iter().chain(&asked).map(|change| Sent { row: row(change), by, found: false });
        self.unsent.extend(sent);
        self.replies();
    }

    fn send(&mut self, count: usize) {
        for sent in self.unsent.drain(..count.min(self.unsent.len())) {
            match self.transport {
                Transport::Redis => (self.appl_db, self.noted) = (sent.row, true),
                Transport::Zmq { .. } => self.sockets.push_back(sent),
            }
        }
    }

    fn record(&mut self, count: usize) {
        for row in self.unrecorded.drain(..count.min(self.unrecorded.len())) {
            if self.transport == (Transport::Zmq { kept: true }) {
                self.appl_db = row;
            }
        }
    }

    fn pop(&mut self) {
        if std::mem::take(&mut self.noted) {
            self.ring.push_back(Sent { row: self.appl_db, by: self.process, found: false });
        }
        self.ring.extend(self.sockets.pop_front());
    }

    fn add(&mut self) {
        let Some(sent) = self.ring.pop_front() else { return };
        self.behind = self.behind.map(|count| count.saturating_sub(1));
        if sent.found && sent.row == self.tasks.back().map_or(self.chip, |task| task.row) {
            return;
        }
        // What the chip was not asked yet coalesces with what comes.
        if self.tasks.len() > usize::from(self.is_asked) {
            let task = self.tasks.back_mut().expect("there is one more");
            (task.row, task.found) = (sent.row, task.found && sent.found);
        } else {
            self.tasks.push_back(sent);
        }
    }

    fn program(&mut self) {
        if !std::mem::take(&mut self.is_asked) {
            return;
        }
        let done = self.tasks.pop_front().expect("the chip was asked for it");
        self.chip = done.row;
        if self.begun && done.row.is_some() {
            match done.found {
                false => self.sent.push_back(Hears::Answer),
                true if self.tasks.is_empty() => self.sent.push_back(Hears::InChip),
                true => {}
            }
        }
    }

    fn notice(&mut self) {
        if std::mem::take(&mut self.is_new) {
            self.behind = Some(self.ring.len());
        }
    }

    /// orchagent begins to answer once it has taken in the rows under way.
    fn begin(&mut self) {
        let others = |sent: &Sent| sent.by != self.process;
        if self.behind != Some(0) || self.sockets.iter().chain(&self.ring).any(others) {
            return;
        }
        (self.behind, self.begun) = (None, true);
        self.sent.clear();
        let is_there = self.chip.is_some() && self.tasks.is_empty();
        self.sent.extend(is_there.then_some(Hears::InChip));
        self.sent.push_back(Hears::SnapshotEnd);
        self.tasks.iter_mut().for_each(|task| task.found = true);
    }

    fn hear(&mut self) -> bool {
        let at = || std::iter::once(prefix(KEY));
        match self.sent.pop_front() {
            Some(Hears::Answer) => self.bench.machine.confirm_all(None, "bgp", at(), &mut self.bench.out),
            Some(Hears::InChip) => self.bench.machine.in_chip(None, at(), self.transport == Transport::Redis),
            Some(Hears::SnapshotEnd) => self.bench.machine.all_said(),
            None => return false,
        }
        self.replies();
        true
    }

    /// Who hears answers is another one.
    fn unheard(&mut self) {
        self.deaf();
        self.is_new = self.suppress && !self.is_uncounted;
    }

    /// No thread reads answers.
    fn deaf(&mut self) {
        self.sent.clear();
        (self.is_new, self.behind, self.begun) = (false, None, false);
    }

    fn restart(&mut self, fresh: bool) {
        self.is_uncounted = false;
        self.unheard();
        self.unsent.clear();
        self.unrecorded.clear();
        self.process += 1;
        self.connected = false;
        self.bench = start(self.suppress);
        if let (Some(gateway), Transport::Redis | Transport::Zmq { kept: true }) =
            (self.appl_db, self.transport)
        {
            let (key, row) = (RouteRow::parse_key(KEY).unwrap(), bgp_row(&format!("10.0.0.{gateway}")));
            self.bench.machine.known_route(key, &row, self.noted);
        }
        self.client.disconnected(fresh);
    }

    /// All is announced: what was not goes, and over ZeroMQ orchagent is told all rows and that there are no others.
    fn end_of_replay(&mut self) {
        if !self.connected || self.bench.machine.is_replayed() {
            return;
        }
        if self.is_uncounted && self.transport != Transport::Redis {
            // What orchagent is told waits, as what changed does.
            return;
        }
        self.bench.machine.end_of_replay(&mut self.bench.out);
        if let Transport::Zmq { .. } = self.transport {
            self.take();
            self.unsent.push_back(Sent { row: self.client.last, by: self.process, found: true });
        }
    }

    fn replies(&mut self) {
        assert_eq!(self.bench.machine.awaiting(), self.bench.machine.count_awaiting());
        let mut on_the_way = self.unsent.iter().chain(&self.sockets).chain(&self.ring).chain(&self.tasks);
        let is_there = self.chip == self.client.last
            && !(self.noted && self.appl_db != self.client.last)
            && on_the_way.all(|sent| sent.row == self.client.last);
        self.client.hear(is_there || !self.suppress, &mut self.bench);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Announce(gateway) => self.announce(Some(gateway)),
            Act::Del => self.announce(None),
            Act::Take => self.take(),
            Act::Send(count) => self.send(count),
            Act::Record(count) => self.record(count),
            Act::Pop => self.pop(),
            Act::Add => self.add(),
            Act::Ask => self.is_asked |= !self.tasks.is_empty(),
            Act::Program => self.program(),
            Act::Notice => self.notice(),
            Act::Hear => drop(self.hear()),
            Act::Break => self.unheard(),
            Act::Restart { fresh } => self.restart(fresh),
            Act::Connect => self.connect(),
            Act::EndOfReplay => self.end_of_replay(),
            Act::Suppress(on) => self.turn(on),
            Act::Count => self.count(),
            Act::OffAndOn => {
                use Act::{Count, Hear, Notice, Suppress};
                let acts = [Suppress(false), Suppress(true), Count, Notice, Hear, Hear];
                acts.into_iter().for_each(|act| self.act(act));
            }
            Act::Arrive => (0..4).for_each(|_| ARRIVE.into_iter().for_each(|act| self.act(act))),
        }
        self.begin();
    }

    /// Everything is announced, arrives and is answered.
    fn settle(&mut self) {
        if !self.connected {
            self.connect();
        }
        for _ in 0..2000 {
            [Act::EndOfReplay, Act::Record(9)].into_iter().chain(ARRIVE).for_each(|act| self.act(act));
            if self.is_still() {
                if !self.client.unsure {
                    break;
                }
                // The client asks once more.
                self.announce(self.client.last);
            }
        }
    }

    /// Whether nothing moves any more.
    fn is_still(&self) -> bool {
        let on_the_way = [&self.unsent, &self.sockets, &self.ring, &self.tasks];
        self.bench.machine.pending() == 0
            && self.bench.machine.is_replayed()
            && on_the_way.iter().all(|rows| rows.is_empty())
            && self.unrecorded.is_empty()
            && !self.noted
            && !self.is_uncounted
            && self.begun == self.suppress
            && self.sent.is_empty()
    }
}

fn start(suppress: bool) -> Bench {
    let mut bench = Bench::with(FpmConfig { suppress, ..FpmConfig::default() });
    bench.machine.session_down();
    bench
}

/// The last byte of a row's next hop.
fn gateway(row: &RouteRow) -> u8 {
    let mut gateway = None;
    row.fields(&mut |field, value| {
        if field == "nexthop" {
            gateway = value.rsplit('.').next().and_then(|byte| byte.parse().ok());
        }
    });
    gateway.expect("every row has a next hop")
}

#[test]
fn what_appl_db_has_is_asked_about_and_not_written() {
    let mut bench = start(true);
    for (key, gateway) in [("10.1.0.0/16", "10.0.0.1"), ("10.2.0.0/16", "10.0.0.2")] {
        bench.machine.known_route(RouteRow::parse_key(key).unwrap(), &bgp_row(gateway), false);
        bench.machine.in_chip(None, std::iter::once(prefix(key)), false);
    }
    bench.machine.all_said();
    bench.reconnect();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    bench.machine.take(&mut bench.out);
    let keys =
        |changes: &[Change<RouteRow>]| changes.iter().map(|change| change.key.clone()).collect::<Vec<_>>();
    let key = |text| vec![RouteRow::parse_key(text).unwrap()];
    assert_eq!((keys(&bench.out.queries), keys(&bench.out.routes)), (key("10.1.0.0/16"), key("10.2.0.0/16")));
}

proptest! {
    #![proptest_config(Config { cases: 20000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_a_former_fpmsyncd_left_confirms_nothing(transport in transports(), acts in acts()) {
        let mut world = World::new(transport);
        acts.into_iter().for_each(|act| world.act(act));
        world.settle();
        prop_assert!(world.is_still());
        prop_assert!(world.client.has_its_answer(), "never confirmed");
        prop_assert_eq!(world.chip, world.client.last);
        if world.transport != (Transport::Zmq { kept: false }) {
            prop_assert_eq!(world.appl_db, world.client.last);
        }
    }

    #[test]
    fn a_session_that_announces_nothing_new_writes_nothing(acts in acts()) {
        let mut world = World::new(Transport::Redis);
        acts.into_iter().for_each(|act| world.act(act));
        world.turn(true);
        world.settle();
        world.connect();
        // The rest of all acts but to hand over, which waits until that is heard which is in the chip.
        for _ in 0..20 {
            [Act::Count, Act::Notice, Act::Hear].into_iter().for_each(|act| world.act(act));
        }
        prop_assert!(world.begun && world.sent.is_empty());
        world.end_of_replay();
        world.take();
        prop_assert!(world.unsent.is_empty(), "{:?}", world.unsent);
        prop_assert!(world.client.has_its_answer(), "never confirmed");
    }
}
