//! The loop of syncd on the virtual switch, with a transport that a test scripts.

use super::*;
use crate::reconcile::mirror::{Mirror, Reconciler};
use crate::reconcile::{ReconcileCount, RoundLog, Tally, asic_db};
use crate::redis_server::Server;
use crossbeam_channel::{Receiver, after};
use ribtide_runtime::call;
use ribtide_runtime::thread::{self, Ended, cpu_time};
use ribtide_swss::Db;
use ribtide_swss::sai::{Attr, Item, PacketAction, RouteEntry, SWITCH, Sai, Verb, VidCounter, text};
use ribtide_swss::syncd::{AsicChange, Difference};
use ribtide_tables::Connection;
use ribtide_vswitch::{Behavior, PortSetup};
use std::sync::{Arc, Mutex, MutexGuard};

/// What the link gives and got.
#[derive(Default)]
struct Script {
    requests: Vec<SaiRequest>,
    answers: Vec<SyncdOut>,
    wants_all_rows: bool,
    rows: (u64, u64),
    /// Rounds of the loop before it stops.
    rounds: usize,
}

/// A link that always may have requests, so that the loop never sleeps.
struct Link {
    script: Arc<Mutex<Script>>,
    ready: Receiver<Instant>,
    stop: Stop,
}

impl Link {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}

impl OrchLink for Link {
    fn port_states(&mut self, _: &[ribtide_swss::sai::notification::PortState]) {}

    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        requests.append(&mut self.script().requests);
        Ok(())
    }

    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error> {
        self.script().answers.push(std::mem::take(out));
        Ok(())
    }

    fn wants_all_rows(&mut self) -> Result<bool, Error> {
        let mut script = self.script();
        script.rounds -= 1;
        if script.rounds == 0 {
            self.stop.stop();
        }
        Ok(std::mem::take(&mut script.wants_all_rows))
    }

    fn rows(&self) -> (u64, u64) {
        self.script().rows
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.ready);
    }
}

/// The stage with a switch that has one route, and the script of its link.
struct Bench {
    stage: SyncdStage,
    script: Arc<Mutex<Script>>,
    stop: Stop,
    vr: Oid,
}

impl Bench {
    fn new() -> Bench {
        let (script, stop) = (Arc::<Mutex<Script>>::default(), Stop::default());
        // Its one message is never taken.
        let link = Link { script: script.clone(), ready: after(Duration::ZERO), stop: stop.clone() };
        let chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        let mut syncd = Syncd::new(chip, Box::new(VidCounter::default()));
        let mut call = |call| {
            let mut out = SyncdOut::default();
            syncd.handle(SaiRequest { id: 1, call }, &mut out);
            let reply = out.replies.pop().unwrap();
            assert!(reply.status.is_success(), "{reply:?}");
            reply
        };
        call(SaiCall::View(View::Init));
        let switch = Item::new(SWITCH, [Attr::SwitchInit(true)]);
        call(SaiCall::One { verb: Verb::Create, object: ObjectType::Switch, item: switch });
        let attrs = vec![Attr::SwitchDefaultVirtualRouter(Oid::NULL)];
        let reply = call(SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs });
        let [Attr::SwitchDefaultVirtualRouter(vr)] = reply.values[..] else { panic!("{reply:?}") };
        call(one(Verb::Create, vr, "10.1.0.0/16"));
        call(SaiCall::View(View::Apply));
        let stage = SyncdStage::new(syncd, Box::new(link), None, None, &Rings::default());
        Bench { stage, script, stop, vr }
    }

    fn key(&self, dest: &str) -> (ObjectType, ObjectId) {
        (ObjectType::RouteEntry, entry(self.vr, dest).into())
    }

    fn carry_out(&mut self, verb: Verb, dest: &str) {
        let request = SaiRequest { id: 2, call: one(verb, self.vr, dest) };
        self.stage.carry_out(request, Instant::now()).unwrap();
    }

    /// Calls of the chip take a quarter of an hour, so none ends in a test.
    fn slow(mut self) -> Bench {
        self.stage.syncd.chip_mut().behave([("call-us", "900000000")]).unwrap();
        self
    }

    /// Runs the loop for some rounds. Returns what the link was given to send and write.
    fn run(self, requests: Vec<SaiRequest>, wants_all_rows: bool) -> Vec<SyncdOut> {
        *self.script.lock().unwrap() = Script { requests, wants_all_rows, rounds: 20, ..Script::default() };
        self.stage.run(None, &self.stop).unwrap();
        std::mem::take(&mut self.script.lock().unwrap().answers)
    }
}

fn entry(vr: Oid, dest: &str) -> RouteEntry {
    RouteEntry { switch: SWITCH, vr, dest: dest.parse().unwrap() }
}

/// A route that drops.
fn one(verb: Verb, vr: Oid, dest: &str) -> SaiCall {
    let attrs = (verb == Verb::Create).then_some(Attr::RoutePacketAction(PacketAction::Drop));
    SaiCall::One { verb, object: ObjectType::RouteEntry, item: Item::new(entry(vr, dest), attrs) }
}

#[test]
fn reply_waits_until_the_chip_has_done_the_request() {
    let requests =
        |bench: &Bench| vec![SaiRequest { id: 3, call: one(Verb::Create, bench.vr, "10.2.0.0/16") }];
    let fast = Bench::new();
    let sent = requests(&fast);
    let answers = fast.run(sent, false);
    assert_eq!(answers.iter().flat_map(|out| &out.replies).map(|reply| reply.id).collect::<Vec<_>>(), [3]);
    let slow = Bench::new().slow();
    let sent = requests(&slow);
    assert!(slow.run(sent, false).is_empty());
}

#[test]
fn rows_of_requests_at_the_chip_count_as_not_written() {
    let mut bench = Bench::new();
    bench.script.lock().unwrap().rows = (3, 2);
    assert_eq!(bench.stage.rows(), (3, 2));
    bench = bench.slow();
    bench.carry_out(Verb::Create, "10.2.0.0/16");
    assert_eq!(bench.stage.rows(), (4, 2));
}

#[test]
fn all_rows_are_written_again_after_a_loss_of_redis() {
    let bench = Bench::new();
    let (object, id) = bench.key("10.1.0.0/16");
    let answers = bench.run(Vec::new(), true);
    let rows: Vec<AsicChange> = answers.into_iter().flat_map(|out| out.rows.unpack()).collect();
    assert!(rows.contains(&AsicChange::Wipe));
    let is_route =
        |row: &AsicChange| matches!(row, AsicChange::Set(of, key, _) if *of == object && *key == id);
    assert_eq!(rows.iter().filter(|row| is_route(row)).count(), 1);
}

#[test]
fn row_that_a_request_changed_since_it_was_watched_is_not_repaired() {
    let mut bench = Bench::new();
    let [changed, same] = ["10.2.0.0/16", "10.1.0.0/16"].map(|dest| bench.key(dest));
    bench.carry_out(Verb::Create, "10.2.0.0/16");
    bench.stage.watch(&mut vec![changed, same]);
    bench.carry_out(Verb::Remove, "10.2.0.0/16");
    bench.carry_out(Verb::Create, "10.2.0.0/16");
    let missing = vec![(changed, Vec::new()), (same, Vec::new())];
    assert_eq!(bench.stage.repair(missing.clone(), true).unwrap(), [(same, Difference::Missing)]);
    bench.stage.watch(&mut vec![changed, same]);
    let repaired = bench.stage.repair(missing, true).unwrap();
    assert_eq!(repaired, [(changed, Difference::Missing), (same, Difference::Missing)]);
}

#[test]
fn chip_is_compared_again_only_after_a_change() {
    let mut bench = Bench::new();
    let tally = Tally::default();
    let mut rounds = ChipRounds::new(Duration::from_secs(60), RoundLog::new("syncd", tally.clone()));
    let routes = crate::reconcile::chip_table(ObjectType::RouteEntry);
    let mut round = |bench: &mut Bench| -> ReconcileCount {
        let begun = rounds.due();
        // The next round is due a minute after this one, its pages at most seconds.
        while rounds.due() < begun + Duration::from_secs(50) {
            let now = rounds.due();
            rounds.step(&mut bench.stage.syncd, now, &mut SyncdOut::default());
        }
        tally.counts()[&routes]
    };
    let first = round(&mut bench);
    assert!(first.compared > 0 && first.repaired == 0, "{first:?}");
    assert_eq!(round(&mut bench), first, "nothing has changed");
    // Another program removes the route.
    let route = entry(bench.stage.syncd.rid(bench.vr).unwrap(), "10.1.0.0/16");
    let chip = bench.stage.syncd.chip_mut();
    let status = chip.one(Verb::Remove, ObjectType::RouteEntry, &mut Item::bare(route));
    assert!(status.is_success(), "{status:?}");
    assert_eq!(round(&mut bench).repaired, 1);
}

/// What a round over ASIC_DB costs syncd at rest, for comparisons of two versions: CPU time, or
/// instructions under callgrind.
///
/// ```text
/// cargo test --release -p ribtide-sonicd --lib round_cost -- --ignored --nocapture
/// ```
#[test]
#[ignore = "a measurement"]
fn round_cost() {
    let routes: u32 = std::env::var("ROUTES").map_or(200_000, |text| text.parse().unwrap());
    let Some(server) = Server::start() else { return };
    let mut bench = Bench::new();
    for n in 0..routes {
        let dest = format!("{}.{}.{}.0/24", 20 + (n >> 16), n >> 8 & 255, n & 255);
        bench.carry_out(Verb::Create, &dest);
        bench.script.lock().unwrap().answers.clear();
    }
    let connection = || Connection::open(server.databases.get(Db::Asic), &server.stop).unwrap();
    let mut database = connection();
    let (mut next, mut rows) = (Some(Default::default()), 0);
    while let Some(from) = next.take() {
        let (page, rest) = bench.stage.syncd.rows(from, 1000).unwrap();
        rows += page.len();
        for ((object, id), attrs) in page {
            let mut key = database.database().key("ASIC_STATE", "");
            text::write_row_key(object, &id, &mut key);
            text::row_fields(&attrs, &mut |name, value| database.queue(&["HSET", &key, name, value]));
        }
        database.flush().unwrap();
        next = rest;
    }
    let (handle, calls) = call::pair("test");
    let (stop, tally) = (Stop::default(), Tally::default());
    let (reader, log, its) =
        (asic_db::reader(connection(), connection()), RoundLog::new("syncd", tally.clone()), stop.clone());
    let cost = Arc::new(Mutex::new(Duration::ZERO));
    let its_cost = cost.clone();
    let body = move || {
        let mut rounds = Reconciler::new(handle, reader, Duration::ZERO, log, &its);
        let began = cpu_time();
        let is_done = rounds.round().is_ok();
        rounds.log.end();
        its.stop();
        assert!(is_done);
        *its_cost.lock().unwrap() = cpu_time() - began;
        Ended::done()
    };
    let thread = thread::spawn("round", body).unwrap();
    let (signal, began) = (stop.signal(), cpu_time());
    while !stop.stopped() {
        calls.serve(&mut bench.stage);
        let mut select = Select::new();
        signal.watch(&mut select);
        calls.watch(&mut select);
        select.ready();
    }
    let stage = cpu_time() - began;
    thread.join().unwrap();
    let thread = *cost.lock().unwrap();
    let count = tally.counts()["ASIC_DB ASIC_STATE"];
    assert_eq!(count, ReconcileCount { compared: rows as u64, ..ReconcileCount::default() });
    let each = |time: Duration| time.as_secs_f64() * 1e6 / rows as f64;
    println!(
        "{rows} rows: {:.3} us a row of the comparing thread, {:.3} us of the stage",
        each(thread),
        each(stage)
    );
}

/// orchagent at the other end of a connection, with bulks of routes for a slow chip, on a simulated clock.
struct Feed {
    bench: Bench,
    now: Instant,
    /// How long a message takes.
    delay: Duration,
    /// Bulks on their way to syncd.
    coming: VecDeque<(Instant, SaiRequest)>,
    sent: u32,
    replies: u32,
}

impl Feed {
    const ROUTES: u32 = 1000;
    const BULKS: u32 = 60;

    /// A chip of so many routes a second.
    fn new(rate: u32, delay: Duration) -> Feed {
        let mut bench = Bench::new();
        bench.stage.syncd.chip_mut().behave([("rate", rate.to_string().as_str())]).unwrap();
        let now = Instant::now();
        // The start took time of the chip, too.
        let now = bench.stage.syncd.chip_mut().done_at(now).unwrap_or(now);
        Feed { bench, now, delay, coming: VecDeque::new(), sent: 0, replies: 0 }
    }

    fn send(&mut self) {
        let (n, vr) = (self.sent, self.bench.vr);
        let item = |route: u32| {
            let prefix = ribtide_prefix::Prefix::new(0x1400_0000 + ((n * Feed::ROUTES + route) << 8), 24);
            let entry = RouteEntry { switch: SWITCH, vr, dest: AnyPrefix::V4(prefix) };
            Item::new(entry, [Attr::RoutePacketAction(PacketAction::Drop)])
        };
        let (verb, object) = (Verb::Create, ObjectType::RouteEntry);
        let mode = ribtide_swss::sai::ErrorMode::IgnoreError;
        let call = SaiCall::Bulk { verb, object, items: (0..Feed::ROUTES).map(item).collect(), mode };
        self.coming.push_back((self.now + self.delay, SaiRequest { id: n.into(), call }));
        self.sent += 1;
    }

    /// Runs until the last reply, with so many bulks in flight, and returns the share of its time in which the chip was at
    /// work, in thousandths.
    fn run(mut self, window: u32) -> u128 {
        let mut requests = Vec::new();
        // When orchagent sees replies.
        let mut seen: VecDeque<Instant> = VecDeque::new();
        (0..window).for_each(|_| self.send());
        while self.replies < Feed::BULKS {
            while seen.front().is_some_and(|at| *at <= self.now) {
                seen.pop_front();
                self.replies += 1;
                if self.sent < Feed::BULKS {
                    self.send();
                }
            }
            while self.coming.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, request) = self.coming.pop_front().unwrap();
                self.bench.script.lock().unwrap().requests.push(request);
            }
            let idle = self.bench.stage.turn(&mut requests, self.now).unwrap();
            let answers = std::mem::take(&mut self.bench.script.lock().unwrap().answers);
            let replies = answers.iter().flat_map(|out| &out.replies);
            for reply in replies {
                assert!(reply.status.is_success(), "{reply:?}");
                seen.push_back(self.now + self.delay);
            }
            if let Some(idle) = idle {
                let message = self.coming.front().map(|(at, _)| *at);
                let next = idle.until.into_iter().chain(message).chain(seen.front().copied()).min();
                let Some(next) = next else { break };
                self.now = self.now.max(next);
            }
        }
        assert_eq!(self.replies, Feed::BULKS);
        let time = self.bench.stage.syncd.chip().chip_time();
        assert_eq!(time.failed, 0);
        time.busy.as_micros() * 1000 / (time.busy + time.idle).as_micros()
    }
}

/// The chip is never without work while orchagent has some: eight bulks in flight are more than a connection takes time.
#[test]
fn slow_chip_is_always_at_work_while_bulks_wait() {
    for rate in [20_000, 100_000] {
        for delay_ms in [0, 1, 10] {
            let feed = Feed::new(rate, Duration::from_millis(delay_ms));
            assert_eq!(feed.run(AT_WORK as u32), 1000, "{rate} routes/s, {delay_ms} ms");
        }
        // With one request in flight it waits for the connection: 2 ms for each bulk of 50 or 10 ms.
        let share = Feed::new(rate, Duration::from_millis(1)).run(1);
        let work_ms = 1_000_000 / u128::from(rate);
        assert!(share.abs_diff(1000 * work_ms / (work_ms + 2)) < 10, "{share} at {rate} routes/s");
    }
}
