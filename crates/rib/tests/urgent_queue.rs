//! The urgent queue: what failures change overtakes batches, and a dataplane ends up as if nothing had.

use crate::common::*;
use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::*;
use std::collections::VecDeque;
use std::sync::Arc;

const BGP: Protocol = Protocol::BgpInternal;

/// Without the unresolved groups.
fn somewhere(mut ops: Vec<UrgentOp>) -> Vec<UrgentOp> {
    ops.retain(|op| op.op.content != FibGroup::Unresolved);
    ops
}

/// Two links, and routes by a gateway on each.
fn two_links() -> Bench {
    Bench::with(vec![
        interface(1, true, &["10.0.1.1/24"]),
        interface(2, true, &["10.0.2.1/24"]),
        announce("20.0.0.0/8", BGP, &[gw("10.0.1.2"), gw("10.0.2.2")]),
        announce("21.0.0.0/8", BGP, &[gw("10.0.1.2")]),
    ])
}

#[test]
fn a_failure_changes_groups_at_once_and_routes_later() {
    let mut bench = two_links();
    let seq = bench.rib.seq();
    let urgent = bench.rib.urgent([interface(1, false, &["10.0.1.1/24"])]);
    assert!(urgent.iter().all(|op| op.after == seq && op.made == seq));
    let contents: Vec<&FibGroup> = urgent.iter().map(|op| &op.op.content).collect();
    // The interface's own group and that of the route that lost its only hop are unresolved.
    let shrunk = FibGroup::Hops(vec![hop("10.0.2.2", 2)]);
    assert_eq!(contents.iter().filter(|c| ***c == shrunk).count(), 1);
    assert_eq!(contents.iter().filter(|c| ***c == FibGroup::Unresolved).count(), 2);
    assert_eq!(bench.rib.seq(), seq, "it has no number of its own");
    // What is left: the connected routes and the route that lost its only hop. No group is sent again.
    let rest = bench.rib.handle([]).fib.unwrap();
    assert!(rest.groups.is_empty());
    let gone: Vec<String> = rest.routes.v4.iter().map(|r| r.prefix.to_string()).collect();
    assert!(gone.contains(&"21.0.0.0/8".into()) && !gone.contains(&"20.0.0.0/8".into()));
    assert_eq!(rest.after.len(), 2, "the groups of the interface and of the lost route");
    assert!(bench.rib.urgent([]).is_empty() && bench.rib.handle([]).fib.is_none());
}

/// A gateway that packets do not reach is as good as a link that is down, and touches no less and no more.
#[test]
fn a_gateway_failure_takes_the_urgent_queue() {
    let mut bench = two_links();
    let event =
        |interface, usable| RibIn::Gateway(GatewayEvent { address: ip("10.0.1.2"), interface, usable });
    assert!(bench.rib.urgent([event(Some(2), false)]).is_empty(), "on another link");
    let urgent = somewhere(bench.rib.urgent([event(Some(1), false)]));
    let [UrgentOp { op, .. }] = &urgent[..] else { panic!("{urgent:?}") };
    assert_eq!(op.content, FibGroup::Hops(vec![hop("10.0.2.2", 2)]));
    let rest = bench.rib.handle([]).fib.unwrap();
    let gone: Vec<String> = rest.routes.v4.iter().map(|r| r.prefix.to_string()).collect();
    assert_eq!(gone, ["21.0.0.0/8"], "connected routes stay");
    let why = bench.rib.explain(pfx("21.0.0.0/8")).unwrap().group.hops[0].outcome.clone();
    assert_eq!(why, Outcome::Unresolved(UnresolvedReason::GatewayDown));
    assert!(bench.rib.urgent([event(None, false)]).is_empty(), "nothing is left to lose");
    assert!(bench.rib.urgent([event(Some(1), true)]).is_empty());
    let urgent = bench.rib.urgent([event(None, true)]);
    assert_eq!(urgent[0].op.content, FibGroup::Hops(vec![hop("10.0.1.2", 1), hop("10.0.2.2", 2)]));
}

/// A group that loses its last hop: one operation, and withdrawals in turns that end when a hop is back.
#[test]
fn routes_without_next_hop_are_withdrawn_in_turns_and_stay_when_it_comes_back() {
    let config = RibConfig { turn: 10, ..RibConfig::default() };
    let mut rib = Rib::new(config);
    let mut model = Model::new();
    model.repeats = true;
    let link = |up| interface(1, up, &["10.0.1.1/24"]);
    let mut step = |rib: &mut Rib, events: Vec<RibIn>| {
        let (ops, out) = (rib.urgent(events), rib.handle([]));
        for op in &ops {
            model.groups.insert(op.op.id, op.op.content.clone());
        }
        out.fib.iter().for_each(|batch| model.apply(batch));
        let bgp = |prefix: &AnyPrefix| prefix.to_string().starts_with("20.");
        let routes = out.fib.iter().map(|batch| batch.routes.v4.len()).sum::<usize>();
        (ops.len(), routes, model.fib().keys().filter(|p| bgp(p)).count())
    };
    let mut events = vec![link(true), interface(2, true, &["10.0.2.1/24"])];
    events.extend((0..100).map(|n| announce(&format!("20.0.{n}.0/24"), BGP, &[gw("10.0.1.2")])));
    // A floating static route of one of them, which takes over first.
    let mut floating = set(Protocol::Static, &[gw("10.0.2.2")]);
    floating.distance = 250;
    events.push(route(pfx("20.0.50.0/24"), Source::Static, Some(floating)));
    assert_eq!(step(&mut rib, events), (0, 104, 100));
    // Group of the interface and group of the routes; ten of these and the two connected ones.
    assert_eq!(step(&mut rib, vec![link(false)]), (2, 12, 1));
    assert!(rib.has_more());
    assert_eq!(rib.lookup(pfx("20.0.50.0/24")).unwrap().content, FibGroup::Hops(vec![hop("10.0.2.2", 2)]));
    assert_eq!(step(&mut rib, vec![]), (0, 10, 1));
    // 80 never went, 19 come back, and the one of the floating route.
    assert_eq!(step(&mut rib, vec![link(true)]).0, 1);
    let mut routes = 0;
    while rib.has_more() {
        let (urgent, more, _) = step(&mut rib, vec![]);
        routes += more;
        assert!(urgent == 0 && more <= 10);
    }
    assert!(routes <= 20, "{routes}");
    assert_eq!(step(&mut rib, vec![]), (0, 0, 100));
    assert_eq!(rib.lookup(pfx("20.0.50.0/24")).unwrap().content, FibGroup::Hops(vec![hop("10.0.1.2", 1)]));
}

#[test]
fn cache_mode_off_has_no_urgent_operations() {
    for cache in [CacheMode::Off, CacheMode::Epoch] {
        let mut bench = two_links();
        bench.rib.set_cache_mode(cache);
        assert!(bench.rib.urgent([interface(1, false, &["10.0.1.1/24"])]).is_empty());
        let batch = bench.rib.handle([]).fib.unwrap();
        assert_eq!(batch.groups[0].content, FibGroup::Hops(vec![hop("10.0.2.2", 2)]));
    }
}

/// The order of what a dataplane gets: the group, which it has, before the routes that were queued first.
#[test]
fn a_group_overtakes_routes() {
    let mut bench = two_links();
    let start = FibBatch { seq: bench.rib.seq(), start_of_replay: true, ..FibBatch::default() };
    let mut queue = UrgentQueue::default();
    queue.in_order(Arc::new(start));
    let more = bench.rib.handle([announce("22.0.0.0/8", BGP, &[gw("10.0.1.2"), gw("10.0.2.2")])]);
    // This one makes a group, which therefore cannot change before it is taken.
    let fresh = bench.rib.handle([announce("23.0.0.0/8", BGP, &[gw("10.0.1.3"), gw("10.0.2.3")])]);
    let urgent = somewhere(bench.rib.urgent([interface(1, false, &["10.0.1.1/24"])]));
    assert_eq!(urgent.len(), 2);

    let now = queue.urgent(&urgent).unwrap();
    assert_eq!((now.groups.len(), now.route_count(), now.seq), (1, 0, 0));
    assert_eq!(now.groups[0].content, FibGroup::Hops(vec![hop("10.0.2.2", 2)]));
    let more = Arc::new(more.fib.unwrap());
    assert!(Arc::ptr_eq(&queue.in_order(more.clone()), &more), "nothing is copied that need not be");
    let fresh = queue.in_order(Arc::new(fresh.fib.unwrap()));
    assert_eq!(fresh.groups[0].content, FibGroup::Hops(vec![hop("10.0.2.3", 2)]), "made as it is now");
    assert_eq!(fresh.route_count(), 1);
}

#[test]
fn urgent_operation_before_a_replay_changes_nothing() {
    let mut bench = two_links();
    let start = bench.rib.handle([RibIn::DataplaneUp(0)]).replay.remove(0).1;
    let urgent = bench.rib.urgent([interface(1, false, &["10.0.1.1/24"])]);
    let mut queue = UrgentQueue::default();
    assert!(queue.urgent(&urgent).is_none());
    let stale = |batch: &FibBatch| {
        let content = |op: &GroupOp| matches!(&op.content, FibGroup::Hops(hops) if hops.len() == 2);
        batch.groups.iter().any(content)
    };
    assert!(stale(&start) && !stale(&queue.in_order(Arc::new(start.clone()))));
    assert!(queue.urgent(&urgent).is_some());
    queue.restart();
    assert!(queue.urgent(&urgent).is_none());
}

#[derive(Clone, Debug)]
enum Step {
    /// Routes change, in the ordinary way.
    Route(u8, Option<Vec<u8>>),
    /// A link rises or falls.
    Link(IfIndex, bool),
    /// Packets reach a gateway, or do not.
    Gateway(u8, bool),
    /// The RIB manager does what it had left for later.
    Reselect,
    /// The dataplane takes so many messages.
    Take(u8),
    /// The dataplane forgets, and asks for everything.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let hops = prop::option::weighted(0.8, prop::collection::vec(0..6u8, 1..4));
    prop_oneof![
        6 => (0..6u8, hops).prop_map(|(p, h)| Step::Route(p, h)),
        4 => (1..4u32, any::<bool>()).prop_map(|(i, up)| Step::Link(i, up)),
        2 => (0..6u8, any::<bool>()).prop_map(|(g, usable)| Step::Gateway(g, usable)),
        2 => Just(Step::Reselect),
        4 => (1..4u8).prop_map(Step::Take),
        1 => Just(Step::Restart),
    ]
}

/// A dataplane with two rings, as the daemon's are.
struct Lagging {
    urgent_queue: UrgentQueue,
    urgent: VecDeque<UrgentOp>,
    batches: VecDeque<Arc<FibBatch>>,
    model: Model,
}

impl Lagging {
    fn sent(&mut self, out: RibOut) {
        self.batches.extend(out.fib.map(Arc::new));
        self.batches.extend(out.replay.into_iter().map(|(_, page)| Arc::new(page)));
    }

    fn take(&mut self) {
        let ops: Vec<UrgentOp> = self.urgent.drain(..).collect();
        if let Some(now) = self.urgent_queue.urgent(&ops) {
            for op in &now.groups {
                assert!(self.model.groups.contains_key(&op.id), "only groups that it has change");
            }
            self.model.apply(&FibBatch { seq: self.model.seq + 1, ..now });
            self.model.seq -= 1;
        }
        if let Some(batch) = self.batches.pop_front() {
            self.model.apply(&self.urgent_queue.in_order(batch));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever overtakes what, the dataplane never names what is not there, and ends as the RIB manager has it.
    #[test]
    fn overtaking_ends_in_the_same(
        steps in prop::collection::vec(step(), 1..60),
        turn in prop::sample::select(&[1usize, 2048][..]),
    ) {
        let mut rib = Rib::new(RibConfig { turn, ..RibConfig::default() });
        let mut lagging = Lagging {
            urgent_queue: UrgentQueue::default(),
            urgent: VecDeque::new(),
            batches: VecDeque::new(),
            model: Model::default(),
        };
        lagging.model.repeats = true;
        lagging.sent(rib.handle([RibIn::DataplaneUp(0)]));
        let gateway = |n: u8| ip(&format!("10.0.{}.{}", 1 + n % 3, 2 + n / 3));
        let link = |i: u32, up| interface(i, up, &[&format!("10.0.{i}.1/24")]);
        lagging.sent(rib.handle((1..4).map(|i| link(i, true))));
        for step in steps {
            match step {
                Step::Route(prefix, hops) => {
                    let prefix = format!("{}.0.0.0/8", 20 + prefix);
                    let hop = |h: &u8| ReceivedHop::gateway(gateway(*h));
                    let hops: Option<Vec<_>> = hops.map(|hops| hops.iter().map(hop).collect());
                    let event = match hops {
                        Some(hops) => announce(&prefix, BGP, &hops),
                        None => withdraw(&prefix, Source::Bgp),
                    };
                    lagging.sent(rib.handle([event]));
                }
                Step::Link(index, up) => lagging.urgent.extend(rib.urgent([link(index, up)])),
                Step::Gateway(n, usable) => {
                    let event = GatewayEvent { address: gateway(n), interface: None, usable };
                    lagging.urgent.extend(rib.urgent([RibIn::Gateway(event)]));
                }
                Step::Reselect => lagging.sent(rib.handle([])),
                Step::Take(n) => (0..n).for_each(|_| lagging.take()),
                Step::Restart => {
                    lagging.urgent_queue.restart();
                    let seq = lagging.model.seq;
                    lagging.model = Model::leftover();
                    (lagging.model.seq, lagging.model.repeats) = (seq, true);
                    lagging.sent(rib.handle([RibIn::DataplaneUp(0)]));
                }
            }
        }
        lagging.sent(rib.handle([]));
        while rib.has_more() {
            lagging.sent(rib.handle([]));
        }
        while !lagging.batches.is_empty() {
            lagging.take();
            let seq = lagging.model.seq;
            let ack = FibAck { dataplane: 0, seq, failed: Vec::new(), installed: Vec::new() };
            lagging.sent(rib.handle([RibIn::Ack(ack)]));
        }
        lagging.take();
        prop_assert!(lagging.model.finished);
        let mut fresh = Model::default();
        for (_, page) in rib.handle([RibIn::DataplaneUp(9)]).replay {
            fresh.apply(&page);
        }
        let seq = fresh.seq;
        let ack = FibAck { dataplane: 9, seq, failed: Vec::new(), installed: Vec::new() };
        for (_, page) in rib.handle([RibIn::Ack(ack)]).replay {
            fresh.apply(&page);
        }
        prop_assert_eq!(lagging.model.fib(), fresh.fib());
        prop_assert_eq!(lagging.model.groups, fresh.groups);
    }
}
