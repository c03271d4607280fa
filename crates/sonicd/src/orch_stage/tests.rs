//! The loop of orchagent with tables, a syncd and outputs that a test scripts.

use super::*;
use crate::redis_server::Server;
use crate::warm::CHECK_TIMEOUT;
use crossbeam_channel::{Receiver, after};
use ribtide_swss::orch::OrchConfig;
use ribtide_swss::row::NextHopGroupRow;
use ribtide_swss::sai::VidCounter;
use ribtide_swss::syncd::{Syncd, SyncdOut};
use ribtide_swss::{Change, Db};
use ribtide_tables::Connection;
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::sync::{Arc, Mutex};

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, event: impl Into<String>) {
    log.lock().unwrap().push(event.into());
}

/// A table with some rows, of which one is taken at a time.
struct Table {
    name: &'static str,
    rows: usize,
    /// Rows before the fence.
    fenced: usize,
    /// Rows whose wake-up has not come.
    unannounced: usize,
    log: Log,
}

impl Feed for Table {
    fn watch<'a>(&'a self, _: &mut Select<'a>) {}

    fn pop(&mut self, _: &mut Orch, _: usize, _: Option<&mut Recording>) -> Result<usize, Error> {
        if self.rows == 0 {
            return Ok(0);
        }
        self.rows -= 1;
        self.fenced = self.fenced.saturating_sub(1);
        note(&self.log, self.name);
        Ok(1)
    }

    fn expect_rows(&mut self) {
        self.rows += std::mem::take(&mut self.unannounced);
        note(&self.log, format!("read {}", self.name));
    }

    fn shrink_to_fit(&mut self) {}

    fn set_fence(&mut self, _: Option<Process>) {
        self.fenced = self.rows;
        note(&self.log, "fence");
    }

    fn is_past_fence(&mut self) -> bool {
        self.fenced == 0
    }

    fn hold(&mut self, held: bool) {
        note(&self.log, if held { "hold" } else { "release" });
    }

    fn is_drained(&self) -> bool {
        true
    }
}

/// A syncd that executes requests at once, and counts as owing some replies.
struct Chip {
    syncd: Syncd<VirtualSwitch>,
    out: SyncdOut,
    under_way: usize,
}

impl SyncdLink for Chip {
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        requests.drain(..).for_each(|request| self.syncd.handle(request, &mut self.out));
        Ok(())
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        replies.append(&mut self.out.replies);
        Ok(())
    }

    fn port_reports(&mut self) -> PortReports {
        PortReports::default()
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn watch<'a>(&'a self, _: &mut Select<'a>) {}
}

/// Outputs that keep the loop awake, and stop it after some rounds.
struct Outputs {
    rounds: usize,
    has_subscriber: bool,
    log: Log,
    stop: Stop,
    ready: Receiver<Instant>,
}

impl OrchOutputs for Outputs {
    fn carry_out(&mut self, _: &mut Orch, _: &mut OrchOut) -> Result<bool, Error> {
        Ok(false)
    }

    fn new_subscriber(&mut self, _: &Orch) -> Option<Subscriber> {
        std::mem::take(&mut self.has_subscriber).then_some(Subscriber { process: None })
    }

    fn begin_subscription(&mut self, _: &mut Orch) {
        note(&self.log, "subscription");
    }

    fn after_round(&mut self, _: &mut Orch, _: bool, _: bool) -> Result<(), Error> {
        self.rounds -= 1;
        if self.rounds == 0 {
            self.stop.stop();
        }
        Ok(())
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.ready);
    }
}

struct Bench {
    stage: OrchStage,
    log: Log,
    stop: Stop,
}

impl Bench {
    /// With these tables of rows, highest priority first, and so many replies that syncd owes.
    fn new(tables: &[(&'static str, usize)], under_way: usize, has_subscriber: bool) -> Bench {
        let (log, stop) = (Log::default(), Stop::default());
        // Its one message is never taken.
        let ready = after(Duration::ZERO);
        let feed = |(name, rows): &(&'static str, usize)| -> Box<dyn Feed> {
            // Groups are written first, but their wake-up is late.
            let unannounced = usize::from(*name == "groups");
            Box::new(Table { name, rows: *rows, fenced: 0, unannounced, log: log.clone() })
        };
        let vids = VidCounter::default();
        let switch = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        let syncd = Syncd::new(switch, Box::new(vids.clone()));
        let outputs = Outputs { rounds: 100, has_subscriber, log: log.clone(), stop: stop.clone(), ready };
        let stage = OrchStage {
            orch: Orch::new(OrchConfig::default(), Box::new(vids)),
            feeds: tables.iter().map(feed).collect(),
            groups: 0,
            compares_only_groups: false,
            syncd: Box::new(Chip { syncd, out: SyncdOut::default(), under_way }),
            outputs: Box::new(outputs),
            batch: 1,
            backlog: 100,
            gauges: OrchGauges::new(100, 1, &Rings::default()),
            rows: None,
            requests: None,
            meter: None,
            drain: None,
            restore: None,
            check: None,
            heartbeat: None,
        };
        Bench { stage, log, stop }
    }

    /// Runs the loop until it stops. Returns what happened.
    fn run(self) -> Vec<String> {
        self.stage.run(None, &self.stop).unwrap();
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

#[test]
fn rows_are_taken_from_the_table_of_the_highest_priority_first() {
    let bench = Bench::new(&[("groups", 2), ("routes", 2)], 0, false);
    assert_eq!(bench.run(), ["groups", "groups", "routes", "routes"]);
}

#[test]
fn rows_of_groups_that_were_written_before_a_route_are_taken_with_it() {
    let mut bench = Bench::new(&[("groups", 0), ("routes", 2)], 0, false);
    let row = NextHopGroupRow { via: Arc::default() };
    bench.stage.orch.nexthop_group(Change::set("1".into(), row));
    assert_eq!(bench.run(), ["routes", "read groups", "groups", "routes", "read groups"]);
}

#[test]
fn subscription_begins_after_the_rows_in_flight_at_the_connection() {
    // One row is taken in the round of the connection, before the fence.
    let bench = Bench::new(&[("routes", 3)], 0, true);
    assert_eq!(bench.run(), ["routes", "fence", "routes", "routes", "subscription"]);
}

#[test]
fn full_backlog_stops_the_tables_only_while_a_reply_is_outstanding() {
    let full = |under_way| {
        let mut bench = Bench::new(&[("routes", 2)], under_way, false);
        bench.stage.backlog = 0;
        bench.run()
    };
    assert_eq!(full(1), [""; 0]);
    assert_eq!(full(0), ["routes", "routes"]);
}

/// Whether the table is held at the end, after a restart check that began at `since`.
fn checked(server: &Server, since: Instant, under_way: usize) -> String {
    let mut bench = Bench::new(&[("routes", 0)], under_way, false);
    let appl = Connection::open(server.databases.get(Db::Appl), &server.stop).unwrap();
    bench.stage.check = Some(RestartCheck::requested(since, appl));
    bench.run().pop().expect("a table that is held")
}

#[test]
fn restart_check_is_not_ready_while_a_reply_is_outstanding() {
    let Some(server) = Server::start() else { return };
    assert_eq!(checked(&server, Instant::now(), 1), "hold");
    assert_eq!(checked(&server, Instant::now(), 0), "release");
}

#[test]
fn restart_check_that_is_refused_releases_the_tables() {
    let Some(server) = Server::start() else { return };
    let since = Instant::now().checked_sub(CHECK_TIMEOUT).expect("the machine has run for longer");
    assert_eq!(checked(&server, since, 1), "release");
}
