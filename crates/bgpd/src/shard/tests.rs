//! From a shard to the RIB manager and back: what a lost next hop costs where a backup path stands in.

use super::*;
use crate::stage;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::ingest::ShardBatches;
use ribtide_bgp::message::{Confirmation, NextHopState};
use ribtide_bgp::peer::{EgressSettings, FamilySet, FeedKind, PeerInfo, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::{Prefix, V4};
use ribtide_rib::{FibGroup, FibHop, InterfaceEvent, Rib, RibConfig, RibOut, UrgentOp};
use ribtide_runtime::thread::Stop;
use ribtide_wire::bgp::NextHop;
use std::net::{IpAddr, Ipv4Addr};

const ROUTES: usize = 1000;

/// A shard and a RIB manager that hear each other, and links 1 to 3 with 10.0.N.1/24 each.
struct Bench {
    shard: Shard,
    out: ShardOut,
    rib: Rib,
}

/// Peer `n`, external and on link `n`.
fn peer(n: u8) -> Arc<PeerInfo> {
    let families = FamilySet::IPV4_UNICAST;
    let address = Ipv4Addr::new(10, 0, n, 2);
    Arc::new(PeerInfo {
        id: PeerId(n.into()),
        session: 1,
        address: address.into(),
        asn: 65001,
        router_id: address,
        kind: PeerKind::External,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings::new(
            PeerKind::External,
            65000,
            Ipv4Addr::LOCALHOST,
            families,
            Arc::new(Policy::new(vec![], true)),
        ),
    })
}

fn link(index: u8, up: bool) -> RibIn {
    let addresses = vec![(IpAddr::from([10, 0, index, 1]), format!("10.0.{index}.0/24").parse().unwrap())];
    RibIn::Interface(InterfaceEvent {
        vrf: ribtide_rib::VrfId::DEFAULT,
        index: index.into(),
        name: format!("eth{index}"),
        up,
        loopback: false,
        addresses,
    })
}

/// The next hop of peer `n`.
fn by(n: u8) -> FibGroup {
    let gateway = Some(IpAddr::from([10, 0, n, 2]));
    FibGroup::Hops(vec![FibHop { gateway, interface: n.into(), weight: 1, onlink: false }])
}

fn announcement(n: u8, origin: u8) -> Vec<ShardIn> {
    batches(n, Some(origin), 0..ROUTES as u32)
}

/// Routes of peer `n` by its own address; a withdrawal without an ORIGIN.
fn batches(n: u8, origin: Option<u8>, numbers: std::ops::Range<u32>) -> Vec<ShardIn> {
    let next_hop = NextHop::V4(Ipv4Addr::new(10, 0, n, 2));
    let attrs = origin.map(|origin| AttrSet::new(&[0x40, 1, 1, origin], next_hop));
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(&peer(n), attrs.as_ref(), numbers.map(|n| Prefix::<V4>::new(n << 12, 24)));
    batches.drain().map(|(_, batch)| ShardIn::Routes(batch)).collect()
}

/// The next hop of peer `n`, as the RIB manager knows it.
fn tracked(n: u8) -> TrackedNextHop {
    TrackedNextHop { address: IpAddr::from([10, 0, n, 2]), recursive: false, exclude: None }
}

impl Bench {
    fn new(options: DecisionOptions) -> Bench {
        let mut bench = Bench {
            shard: Shard::new(options),
            out: ShardOut::default(),
            rib: Rib::new(RibConfig::default()),
        };
        bench.rib.handle([1, 2, 3].map(|n| link(n, true)));
        for n in [1, 2, 3] {
            bench.shard.handle(ShardIn::PeerUp(peer(n)), &mut bench.out);
        }
        bench
    }

    /// All routes of a peer, by its own address; an ORIGIN of 0 is the best.
    fn announce(&mut self, n: u8, origin: u8) {
        announcement(n, origin).into_iter().for_each(|batch| self.shard.handle(batch, &mut self.out));
    }

    /// What the shard has to say goes to the RIB manager; its answers, and how many routes were fed.
    fn feed(&mut self) -> (RibOut, usize) {
        while self.shard.work_left() {
            self.shard.step(&mut self.out);
        }
        let Effects { feed, next_hops, .. } = self.out.take();
        let fed = feed.changes.v4.len();
        (self.rib.handle(to_rib(feed, &next_hops)), fed)
    }

    fn hear(&mut self, said: &RibOut) {
        let state = |state| match state {
            ribtide_rib::Reachability::Reachable { cost, partial } => {
                NextHopState::Reachable { cost, partial }
            }
            ribtide_rib::Reachability::ReachableAlone { cost, partial } => {
                NextHopState::ReachableAlone { cost, partial }
            }
            ribtide_rib::Reachability::Unreachable => NextHopState::Unreachable,
        };
        let news = said.next_hops.iter().map(|(next_hop, s)| (*next_hop, state(*s))).collect();
        self.shard.handle(ShardIn::NextHops(news), &mut self.out);
    }

    /// Routes of BGP and groups that dataplanes are told.
    fn counts_of(out: &RibOut) -> (usize, usize) {
        let Some(fib) = &out.fib else { return (0, 0) };
        let bgp = fib.routes.v4.iter().filter(|route| route.protocol == Protocol::BgpExternal);
        (bgp.count(), fib.groups.len())
    }
}

/// The new contents of groups that changed at once. Groups of the link itself are unresolved now.
fn repaired(urgent: &[UrgentOp]) -> Vec<FibGroup> {
    urgent.iter().map(|op| op.op.content.clone()).filter(|content| *content != FibGroup::Unresolved).collect()
}

#[test]
fn a_lost_next_hop_with_a_backup_is_one_change_of_a_group_and_bgp_follows() {
    let mut bench = Bench::new(DecisionOptions { backup_path: true, ..DecisionOptions::default() });
    for (n, origin) in [(1, 0), (2, 1), (3, 2)] {
        bench.announce(n, origin);
    }
    let (said, _) = bench.feed();
    assert_eq!(Bench::counts_of(&said), (ROUTES, 1), "all routes share a group");
    bench.hear(&said);
    assert_eq!(bench.feed().1, 0, "nothing new");

    // Ahead of everything: the group, and nothing else.
    let urgent = bench.rib.urgent([link(1, false)]);
    assert_eq!(repaired(&urgent), [by(2)]);
    let said = bench.rib.handle([]);
    assert_eq!(Bench::counts_of(&said), (0, 0), "no route and no other group");
    assert_eq!(said.next_hops, [(tracked(1), ribtide_rib::Reachability::Unreachable)]);

    // BGP follows: each route goes over to its new best path, with a backup of its own.
    bench.hear(&said);
    let (said, fed) = bench.feed();
    assert_eq!((fed, Bench::counts_of(&said)), (ROUTES, (ROUTES, 1)));
    assert_eq!(said.fib.unwrap().groups[0].content, by(2));
    let urgent = bench.rib.urgent([link(2, false)]);
    assert_eq!(repaired(&urgent), [by(3)]);
}

#[test]
fn equal_paths_share_one_group_and_a_lost_one_touches_no_route() {
    let mut bench = Bench::new(DecisionOptions { maximum_paths: 2, ..DecisionOptions::default() });
    (1..=3).for_each(|n| bench.announce(n, 0));
    let (said, fed) = bench.feed();
    assert_eq!((fed, Bench::counts_of(&said)), (2 * ROUTES, (ROUTES, 1)), "a third one is one too many");
    let fib = said.fib.unwrap();
    let FibGroup::Hops(hops) = &fib.groups[0].content else { panic!("next hops") };
    assert_eq!(hops.iter().map(|hop| hop.interface).collect::<Vec<_>>(), [1, 2]);
    let urgent = bench.rib.urgent([link(1, false)]);
    assert_eq!(repaired(&urgent), [by(2)]);
}

/// A shard's outputs without update threads.
fn outputs(rib: Sender<RibIn>, news: Sender<ShardNews>, rings: &Rings) -> Outputs {
    Outputs {
        workers: Vec::new(),
        rib: Some(rib),
        news,
        monitor: None,
        events: crate::best_changes::queue(rings).0,
        activity: Activity::default(),
        clock: Clock::default(),
    }
}

#[test]
fn a_shard_that_waits_for_room_answers_questions() {
    let rings = Rings::default();
    let (rib, taken) = rings.bounded("to RIB", 1);
    let (news, _purged) = rings.bounded("purged", 1);
    let outputs = outputs(rib, news, &rings);
    let builder = ShardBuilder::new(0, 0, &rings, None);
    let inbox = builder.inbox();
    let (port, stage) =
        builder.build(DecisionOptions::default(), &HashSeed::random(), outputs, &Meters::default());
    let stop = Stop::default();
    let home = stage::Home::new(false, Arc::new(|| ()));
    stage::spawn(stage::NamedStage::new("shard".into(), &home, stage), None, stop.clone()).unwrap();
    inbox.send(ShardIn::PeerUp(peer(1))).unwrap();
    announcement(1, 0).into_iter().for_each(|batch| inbox.send(batch).unwrap());
    // Next hops, routes, and where that ends: there is room for one of them.
    let is_idle = || port.has_taken_all() && port.call_all_sent().unwrap().wait().unwrap();
    while !is_idle() && rings.read().iter().find(|ring| ring.name == "to RIB").unwrap().full == 0 {
        std::thread::yield_now();
    }
    for _ in 0..3 {
        assert_eq!(port.call(|shard| shard.counts().families[AfiSafi::Ipv4Unicast].prefixes), Ok(ROUTES));
        assert!(!is_idle());
    }
    assert!(matches!(taken.recv(), Ok(RibIn::Track(_))), "in their order");
    assert!(matches!(taken.recv(), Ok(RibIn::Routes(_))));
    stop.stop();
}

#[test]
fn fence_without_a_change_of_the_fib_is_sent_to_the_rib() {
    let rings = Rings::default();
    let (rib, taken) = rings.bounded("to RIB", 64);
    let (news, _purged) = rings.bounded("purged", 1);
    let outputs = outputs(rib, news, &rings);
    let builder = ShardBuilder::new(0, 9, &rings, None);
    let (inbox, feedback) = (builder.inbox(), builder.feedback());
    let (_port, mut stage) =
        builder.build(DecisionOptions::default(), &HashSeed::random(), outputs, &Meters::default());
    // The fences that the RIB manager gets after these messages.
    let mut fences = |to: &Sender<ShardIn>, messages: Vec<ShardIn>| -> Vec<u64> {
        messages.into_iter().for_each(|message| to.send(message).unwrap());
        while stage.turn() != Turn::Idle {}
        let fence = |message| match message {
            RibIn::Confirm(FeedFence { announcer: 9, seq }) => Some(seq),
            _ => None,
        };
        std::iter::from_fn(|| taken.try_recv()).filter_map(fence).collect()
    };
    let confirmed = |fence| vec![ShardIn::Confirmed(Confirmation { fence, blocked: Vec::new() })];
    fences(&feedback, vec![ShardIn::Suppress(true)]);
    fences(&inbox, vec![ShardIn::PeerUp(peer(1)), ShardIn::PeerUp(peer(2))]);
    // The second route keeps the next hop of peer 1 registered.
    fences(&inbox, batches(2, Some(1), 0..1));
    fences(&inbox, batches(1, Some(0), 1..2));
    let reachable = [1, 2].map(|n| (tracked(n), NextHopState::Reachable { cost: 0, partial: false }));
    let first = fences(&feedback, vec![ShardIn::NextHops(reachable.into())]);
    let first = *first.last().expect("a fence of the first routes");
    fences(&feedback, confirmed(first));
    // The first route changes with each message, until no more fences may be unconfirmed.
    let change = |n| if n % 2 == 0 { Some(0) } else { None };
    let sent: Vec<u64> = (0..300).flat_map(|n| fences(&inbox, batches(1, change(n), 0..1))).collect();
    let last = first + sent.len() as u64;
    assert_eq!(sent, (first + 1..=last).collect::<Vec<u64>>());
    assert!(sent.len() < 300, "changes wait for a fence");
    assert_eq!(fences(&feedback, confirmed(last - 1)), [last + 1]);
}

#[test]
fn feed_of_one_family_is_sent_after_its_next_hops_with_the_protocol_of_its_peer() {
    let set = |internal, n| FeedSet {
        next_hops: [(IpAddr::from([10, 0, n, 2]), 1)].into_iter().collect(),
        kind: FeedKind { internal, recursive: internal, aigp: 0 },
        backup: None,
    };
    let mut feed = Feed { sets: vec![set(true, 1), set(false, 2)], ..Feed::default() };
    feed.changes.v6 = vec![("2001:db8::/32".parse().unwrap(), 0)];
    let messages = to_rib(feed, &[(tracked(3), false), (tracked(1), true)]);
    let [RibIn::Track(track), RibIn::Routes(routes), RibIn::Untrack(untrack)] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    assert_eq!((track.as_slice(), untrack.as_slice()), ([tracked(1)].as_slice(), [tracked(3)].as_slice()));
    assert_eq!((routes.changes.v4.len(), routes.changes.v6.len()), (0, 1));
    let of = |set: &RouteSet| (set.protocol, set.distance, set.allow_recursion);
    assert_eq!(
        routes.sets.iter().map(of).collect::<Vec<_>>(),
        [(Protocol::BgpInternal, 200, true), (Protocol::BgpExternal, 20, false)]
    );
}
