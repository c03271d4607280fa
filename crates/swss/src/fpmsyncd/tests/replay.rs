//! When a replay is over: not before its client has been heard out.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use ribtide_wire::netlink::Ack;

const DONE: Content<'_> = Content::Done(Ack { errno: 0, text: None });

fn key(n: u64) -> String {
    format!("10.{n}.0.0/16")
}

/// So many routes of a session before, and a new one.
fn replaying(routes: u64) -> Bench {
    let mut bench = Bench::new();
    (0..routes).for_each(|n| bench.announce(n));
    bench.take();
    bench.reconnect();
    bench
}

impl Bench {
    fn announce(&mut self, n: u64) {
        self.route(&key(n), "10.0.0.1", 7);
    }

    /// So much time passes in one piece.
    fn pass(&mut self, span_ms: u64, listened: bool) {
        self.machine.tick(self.machine.now_ms + span_ms, listened);
    }

    fn goes_on(&mut self, waits: bool) -> bool {
        self.machine.look(waits, &mut self.out);
        !self.machine.is_replayed()
    }
}

#[test]
fn a_process_that_was_stopped_did_not_listen() {
    let mut bench = replaying(3);
    bench.announce(0);
    bench.pass(60_000, true);
    // What the client said meanwhile is not there yet, and then only some of it.
    assert!(bench.goes_on(false));
    bench.announce(1);
    assert!(bench.goes_on(true));
    bench.listen(9_500);
    assert!(bench.goes_on(false));
    bench.listen(500);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.2.0.0/16 DEL"]);
}

#[test]
fn a_client_that_is_not_read_is_not_silent() {
    let mut bench = replaying(2);
    bench.announce(0);
    for _ in 0..1000 {
        bench.pass(400, false);
        assert!(bench.goes_on(true));
    }
    bench.announce(1);
    bench.listen(10_000);
    assert!(bench.machine.is_replayed() && bench.take().is_empty());
}

#[test]
fn what_waits_to_be_read_is_read_before_a_silence_counts() {
    let mut bench = replaying(2);
    for _ in 0..30 {
        bench.pass(400, true);
        assert!(bench.goes_on(true));
    }
    assert!(!bench.goes_on(false));
}

#[test]
fn a_replay_may_take_longer_than_the_limit_while_it_renews_what_was_there() {
    let mut bench = replaying(40);
    for n in 0..40 {
        bench.listen(9_000);
        bench.announce(n);
    }
    assert!(bench.goes_on(false) && bench.take().is_empty());
    // What is new is no end of it, but of that there may always be more.
    let mut bench = replaying(1);
    for n in 1..=13 {
        bench.listen(9_000);
        bench.announce(n);
        assert!(bench.goes_on(true));
    }
    bench.take();
    bench.listen(3_000);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.0.0.0/16 DEL"]);
}

#[test]
fn a_client_that_marks_the_end_is_waited_for() {
    let mut bench = replaying(2);
    bench.send(Content::Multipart { ack: false });
    bench.announce(0);
    bench.listen(1_000_000);
    assert!(bench.goes_on(false) && bench.machine.silent_ms().is_none());
    bench.send(DONE);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.1.0.0/16 DEL"]);
    // The next one may be another, which does not say so.
    bench.reconnect();
    bench.listen(10_000);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.0.0.0/16 DEL"]);
}

proptest! {
    #![proptest_config(Config { cases: 500, failure_persistence: None, ..Config::default() })]

    /// Between two routes it looks for more up to 19 times, whatever time passes between.
    #[test]
    fn no_pause_ends_a_replay_that_goes_on(
        spans in prop::collection::vec(prop::collection::vec((0..200_000u64, any::<bool>(), any::<bool>()), 0..20), 1..30),
    ) {
        let mut bench = replaying(spans.len() as u64);
        for (n, spans) in (0..).zip(spans) {
            for (span, listened, waits) in spans {
                bench.pass(span, listened);
                prop_assert!(bench.goes_on(waits));
            }
            bench.announce(n);
        }
        bench.send(DONE);
        prop_assert!(bench.take().is_empty());
    }
}
