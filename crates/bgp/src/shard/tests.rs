//! What a shard report, message by message. That its results are right whatever the order is the simulator's to show.

mod add_path;
mod age;
mod aigp;
mod long_lived;
mod originated;
mod ranked;
mod refresh;
mod retained;
mod rib_change;
mod watches;

use super::*;
use crate::ingest::ShardBatches;
use crate::message::{Change, Confirmation, DumpRequest, DumpScope, EgressIn, Feed, FeedSet, NONE};
use crate::peer::{EgressSettings, FamilySet, PeerKind};
use ribtide_prefix::{AfiSafi, ByFamily, V4};
use ribtide_wire::bgp::NextHop;
use std::net::Ipv4Addr;

struct Bench {
    shard: Shard,
    out: ShardOut,
}

fn peer(n: u32, session: u32) -> Arc<PeerInfo> {
    let families = FamilySet::UNICAST;
    Arc::new(PeerInfo {
        id: PeerId(n),
        session,
        address: Ipv4Addr::from(n).into(),
        asn: 65000 + n,
        router_id: Ipv4Addr::from(n),
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
            Arc::new(ribtide_policy::Policy::new(vec![], true)),
        ),
    })
}

/// Attributes with this ORIGIN (the lower is preferred) and this last byte of the next hop.
fn set(origin: u8, hop: u8) -> AttrSet {
    let bytes = [0x40, 1, 1, origin];
    AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(192, 0, 2, hop)))
}

/// A next hop of the peers' paths, which need it on link.
fn next_hop(text: &str) -> TrackedNextHop {
    TrackedNextHop { address: text.parse().unwrap(), recursive: false, exclude: None }
}

fn prefix(n: u32) -> Prefix<V4> {
    Prefix::new(n << 14, 24)
}

impl Bench {
    /// A shard with two sessions, of peers 1 and 2.
    fn new() -> Bench {
        let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
        for n in [1, 2] {
            bench.handle(ShardIn::PeerUp(peer(n, 1)));
        }
        bench
    }

    fn handle(&mut self, message: ShardIn) {
        self.shard.handle(message, &mut self.out);
    }

    /// Announces prefixes or withdraws them.
    fn routes(&mut self, from: &PeerInfo, attrs: Option<&AttrSet>, prefixes: impl IntoIterator<Item = u32>) {
        let mut batches = ShardBatches::new([0; 64]);
        batches.extend(from, attrs, prefixes.into_iter().map(prefix));
        let batches: Vec<_> = batches.drain().collect();
        batches.into_iter().for_each(|(_, batch)| self.handle(ShardIn::Routes(batch)));
    }

    fn finish(&mut self) -> Effects {
        while self.shard.work_left() {
            self.shard.step(&mut self.out);
        }
        self.out.take()
    }
}

/// Changes as sources: former and new.
fn sources(effects: &Effects) -> Vec<(Option<u32>, Option<u32>)> {
    let mut sources = Vec::new();
    for effect in &effects.egress {
        let ToEgress::All(batch) = effect else { continue };
        let source = |index: u32| (index != NONE).then(|| batch.paths[index as usize].source.0);
        let row = |change: &Change<V4>| (source(change.old), source(change.new));
        sources.extend(batch.changes.v4.iter().map(row));
    }
    sources
}

fn fed(feed: &Feed) -> usize {
    feed.changes.v4.len()
}

#[test]
fn shard_change_sends_best_paths_and_feeds_only_changed_next_hops() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&two, Some(&set(1, 7)), [0]);
    let effects = bench.out.take();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(None, Some(2))], 1));
    assert_eq!(effects.next_hops, [(next_hop("192.0.2.7"), true)]);

    bench.routes(&two, Some(&set(1, 7)), [0]);
    bench.routes(&one, Some(&set(2, 8)), [0]);
    let effects = bench.out.take();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0), "the same again, and a worse one");

    bench.routes(&one, Some(&set(0, 7)), [0]);
    let effects = bench.out.take();
    assert_eq!(
        (sources(&effects), fed(&effects.feed)),
        (vec![(Some(2), Some(1))], 0),
        "better, same next hop"
    );
    assert_eq!(effects.next_hops, [(next_hop("192.0.2.8"), false)]);

    bench.routes(&one, None, [0]);
    bench.routes(&two, None, [0]);
    let effects = bench.out.take();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(Some(1), Some(2)), (Some(2), None)], 1));
    assert_eq!(
        bench.shard.counts(),
        super::Counts { memory: bench.shard.counts().memory, ..Default::default() }
    );
}

#[test]
fn a_session_that_ended_leaves_step_by_step_also_when_the_next_has_begun() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..10_000);
    bench.out.take();
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 0, retained: FamilySet::NONE });
    assert!(!bench.shard.work_left(), "an earlier session");
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::NONE });
    bench.shard.step(&mut bench.out);
    let first = bench.out.take();
    assert!((1..5000).contains(&sources(&first).len()), "a part of it: {}", sources(&first).len());
    assert!(first.purged.is_empty());

    bench.routes(&one, Some(&set(0, 7)), [20_000]);
    assert!(bench.out.is_empty(), "too late");
    assert_eq!(bench.shard.counts().late, 1);

    // What the next session brings is better than what is to go, if it is of the same prefix, and no other's business.
    let next = peer(1, 2);
    bench.handle(ShardIn::PeerUp(next.clone()));
    assert!(bench.out.is_empty() && bench.shard.work_left());
    bench.routes(&next, Some(&set(1, 7)), 0..10_000);
    bench.routes(&next, None, 0..5000);
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(1)), PeerCounts { paths: 5000, best: 5000 });
    let rest = bench.finish();
    assert_eq!((rest.purged, bench.shard.work_left()), (vec![(PeerId(1), 1)], false));
    let counts = bench.shard.counts();
    assert_eq!(
        (
            counts.families[AfiSafi::Ipv4Unicast].prefixes,
            counts.families[AfiSafi::Ipv4Unicast].paths,
            counts.families[AfiSafi::Ipv4Unicast].best
        ),
        (5000, 5000, 5000)
    );
    assert_eq!(counts.attribute_sets, 1);
}

#[test]
fn a_session_that_brings_the_same_again_is_no_change_unless_its_peer_is_another() {
    let (mut bench, two) = (Bench::new(), peer(2, 1));
    bench.routes(&two, Some(&set(0, 7)), [0, 1]);
    bench.out.take();
    let same = peer(2, 2);
    bench.handle(ShardIn::PeerUp(same.clone()));
    bench.routes(&same, Some(&set(0, 7)), [0, 1]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0));
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(2)), PeerCounts { paths: 2, best: 2 });
    let other = PeerInfo { router_id: Ipv4Addr::LOCALHOST, ..PeerInfo::clone(&peer(2, 3)) };
    bench.handle(ShardIn::PeerUp(Arc::new(other.clone())));
    bench.routes(&other, Some(&set(0, 7)), [0]);
    assert_eq!(sources(&bench.out.take()), [(Some(2), None), (None, Some(2))], "withdrawn and announced");
    assert_eq!(sources(&bench.finish()), [(Some(2), None)]);
}

#[test]
fn counts_have_used_and_unusable_paths() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..3);
    bench.routes(&two, Some(&set(1, 8)), 0..2);
    let hop = next_hop("192.0.2.7");
    bench.handle(ShardIn::NextHops(vec![(hop, NextHopState::Unreachable)]));
    bench.finish();
    let counts = bench.shard.counts();
    assert_eq!(
        counts.families[AfiSafi::Ipv4Unicast],
        FamilyCounts { prefixes: 3, paths: 5, best: 2, hidden: 3 }
    );
    assert_eq!(counts.families[AfiSafi::Ipv6Unicast], FamilyCounts::default());
    bench.routes(&one, None, [0]);
    bench.routes(&one, Some(&set(0, 8)), [1]);
    assert_eq!(
        bench.shard.counts().families[AfiSafi::Ipv4Unicast],
        FamilyCounts { prefixes: 3, paths: 4, best: 2, hidden: 1 }
    );
    assert_eq!(bench.shard.loads::<V4>().map(|(_, prefixes)| prefixes).sum::<usize>(), 3);
}

#[test]
fn a_batch_has_each_path_once() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    let (same, worse) = (set(0, 7), set(1, 7));
    bench.routes(&one, Some(&worse), 0..20);
    for _ in 0..3 {
        bench.routes(&one, Some(&same), 0..10);
        bench.routes(&two, Some(&same), 5..20);
        bench.routes(&one, Some(&worse), 0..10);
        bench.routes(&two, None, 5..15);
    }
    let effects = bench.out.take();
    let [ToEgress::All(batch)] = &effects.egress[..] else { panic!("one batch") };
    let mut paths: Vec<_> = batch.paths.iter().map(|path| (path.source, path.attrs.as_ptr())).collect();
    paths.sort_unstable();
    assert_eq!(paths.len(), 3);
    paths.dedup();
    assert_eq!(paths.len(), 3);
}

#[test]
fn a_router_that_installs_nothing_is_fed_nothing() {
    let mut bench = Bench { out: ShardOut::without_feed(), ..Bench::new() };
    bench.routes(&peer(1, 1), Some(&set(0, 7)), [0]);
    let effects = bench.out.take();
    assert_eq!((sources(&effects).len(), fed(&effects.feed)), (1, 0));
}

#[test]
fn a_dump_shows_all_in_parts_and_changes_between_them_keep_their_place() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..10_000);
    bench.out.take();
    bench.handle(ShardIn::Dump(DumpRequest {
        worker: 3,
        token: 9,
        family: AfiSafi::Ipv4Unicast,
        scope: DumpScope::default(),
        ranked: false,
    }));
    bench.shard.step(&mut bench.out);
    bench.routes(&one, None, 0..10_000);
    let effects = bench.finish();
    let mut dumped = 0;
    let mut kinds = Vec::new();
    for effect in &effects.egress {
        match effect {
            ToEgress::All(batch) => kinds.push(("changes", batch.changes.v4.len())),
            ToEgress::One(3, EgressIn::Dump { token: 9, batch, last }) => {
                dumped += batch.changes.v4.len();
                kinds.push((if *last { "last" } else { "part" }, 0));
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert!((1..5000).contains(&dumped), "the rest was gone when its turn came: {dumped}");
    assert_eq!(kinds, [("part", 0), ("changes", 10_000), ("last", 0)]);
}

#[test]
fn next_hops_decide_who_can_be_best() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.routes(&two, Some(&set(0, 8)), [0]);
    bench.out.take();
    let report = |bench: &mut Bench, hop: &str, state| {
        bench.handle(ShardIn::NextHops(vec![(next_hop(hop), state)]));
        sources(&bench.finish())
    };
    let far = NextHopState::Reachable { cost: 5, partial: false };
    assert_eq!(report(&mut bench, "192.0.2.7", far), [(Some(1), Some(2))]);
    let view = bench.shard.lookup(prefix(0)).unwrap();
    let lost: Vec<_> = view.paths.iter().map(|path| (path.peer.id.0, path.best, path.lost)).collect();
    assert_eq!(lost, [(2, true, None), (1, false, Some(Reason::IgpCost))]);
    assert_eq!(report(&mut bench, "192.0.2.8", NextHopState::Unreachable), [(Some(2), Some(1))]);
    assert_eq!(report(&mut bench, "192.0.2.7", NextHopState::Unreachable), [(Some(1), None)]);
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(1)), PeerCounts { paths: 1, best: 0 });
}

#[test]
fn a_logical_shard_moves_to_a_new_shard_without_a_word() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..1000);
    bench.routes(&two, Some(&set(1, 8)), 0..1000);
    bench.handle(ShardIn::NextHops(vec![(next_hop("192.0.2.7"), NextHopState::Unreachable)]));
    bench.finish();
    let mut fresh = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    for logical in 0..LOGICAL_SHARDS {
        let mut cut = Cut::START;
        while cut != Cut::END {
            let moved = bench.shard.extract(logical, cut, 7, &mut bench.out);
            assert!(moved.paths() <= 7 && moved.prefixes() * 2 == moved.paths());
            cut = moved.end();
            fresh.shard.adopt(moved, &mut fresh.out);
        }
    }
    let (given, taken) = (bench.out.take(), fresh.out.take());
    assert!(given.egress.is_empty() && taken.egress.is_empty() && fed(&taken.feed) == 0);
    let hop = |text: &str, used| (next_hop(text), used);
    let mut uses = taken.next_hops;
    uses.sort_unstable();
    assert_eq!(uses, [hop("192.0.2.7", true), hop("192.0.2.8", true)]);
    assert_eq!(given.next_hops.len(), 2);
    let counts = bench.shard.counts();
    assert_eq!(
        (
            counts.families[AfiSafi::Ipv4Unicast].prefixes,
            counts.families[AfiSafi::Ipv4Unicast].paths,
            counts.attribute_sets
        ),
        (0, 0, 0)
    );
    let counts = fresh.shard.counts();
    assert_eq!(
        (
            counts.families[AfiSafi::Ipv4Unicast].prefixes,
            counts.families[AfiSafi::Ipv4Unicast].paths,
            counts.attribute_sets
        ),
        (1000, 2000, 2)
    );
    assert_eq!(fresh.shard.peer_counts::<V4>(PeerId(2)), PeerCounts { paths: 1000, best: 1000 });
    assert!(!fresh.shard.work_left());

    // It goes on where the former one was: what is advertised now follows from what was advertised then.
    fresh.handle(ShardIn::PeerUp(one.clone()));
    fresh.handle(ShardIn::NextHops(vec![(next_hop("192.0.2.8"), NextHopState::Unreachable)]));
    assert_eq!(sources(&fresh.finish()), [(Some(2), None); 1000]);
    fresh.handle(ShardIn::PeerDown { peer: one.id, session: 1, retained: FamilySet::NONE });
    assert_eq!(fresh.finish().purged, [(one.id, 1)]);
    assert_eq!(fresh.shard.counts().families[AfiSafi::Ipv4Unicast].paths, 1000);
}

/// What the RIB manager report of everything up to a fence, and of one prefix.
fn confirmed(fence: u64, blocked: &[(u32, bool)]) -> ShardIn {
    let blocked = blocked.iter().map(|(n, blocked)| (prefix(*n).any(), *blocked)).collect();
    ShardIn::Confirmed(Confirmation { fence, blocked })
}

#[test]
fn gate_best_path_waits_for_the_fib_and_the_former_stays_advertised() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    let advertised = |bench: &mut Bench| (sources(&bench.finish()), bench.shard.fence());
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&two, Some(&set(1, 7)), [0, 1]);
    assert_eq!(advertised(&mut bench), (vec![], Some(1)));
    assert_eq!(bench.shard.lookup(prefix(0)).unwrap().standing, Standing::Waiting { former: false });
    bench.handle(confirmed(1, &[(1, true)]));
    assert_eq!(advertised(&mut bench), (vec![(None, Some(2))], None));
    assert_eq!(bench.shard.lookup(prefix(1)).unwrap().standing, Standing::Blocked);

    // By the same next hop: nothing to wait for.
    bench.routes(&two, Some(&set(2, 7)), [0]);
    assert_eq!(advertised(&mut bench), (vec![(Some(2), Some(2))], None));
    bench.routes(&one, Some(&set(0, 8)), [0]);
    assert_eq!(advertised(&mut bench), (vec![], Some(2)));
    bench.routes(&one, Some(&set(0, 9)), [0]);
    assert_eq!(advertised(&mut bench), (vec![], Some(3)));
    bench.handle(confirmed(2, &[(1, false)]));
    assert_eq!(
        advertised(&mut bench),
        (vec![(None, Some(2))], None),
        "the mended one, and not the superseded one"
    );
    assert_eq!(bench.shard.lookup(prefix(0)).unwrap().standing, Standing::Waiting { former: true });
    // The former one's session ends, and nothing changes before the new one is forwarded.
    bench.handle(ShardIn::PeerDown { peer: PeerId(2), session: 1, retained: FamilySet::NONE });
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(2), None)], vec![]));
    bench.shard.fence();
    bench.handle(confirmed(3, &[]));
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(2), Some(1))], vec![(PeerId(2), 1)]));

    // It fails later; another waits, and goes.
    bench.handle(confirmed(0, &[(0, true)]));
    assert_eq!(advertised(&mut bench).0, [(Some(1), None)]);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.routes(&one, None, [0]);
    assert!(advertised(&mut bench).0.is_empty());
    let counts = bench.shard.counts();
    assert_eq!((counts.waiting, counts.blocked, counts.attribute_sets), (0, 0, 0));
}

#[test]
fn gate_stalled_dataplane_costs_memory_by_prefix() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.handle(ShardIn::Suppress(true));
    let mut fences = Vec::new();
    for n in 0..1000 {
        bench.routes(&one, Some(&set(0, n as u8)), [0, 1 + n % 2]);
        assert!(sources(&bench.finish()).is_empty());
        fences.extend(bench.shard.fence());
    }
    // Three in tests.
    assert_eq!((fences, bench.shard.counts().waiting), (vec![1, 2, 3], 3));
    assert!(!bench.shard.fence_due());
    bench.handle(confirmed(2, &[]));
    assert!(sources(&bench.finish()).is_empty(), "all of them changed later");
    assert_eq!(bench.shard.fence(), Some(4));
    bench.handle(confirmed(3, &[]));
    assert!(sources(&bench.finish()).is_empty());
    bench.handle(confirmed(4, &[]));
    assert_eq!(sources(&bench.finish()), [(None, Some(1)); 3]);
    assert_eq!(bench.shard.counts().waiting, 0);
}

#[test]
fn gate_suppression_off_advertises_what_waited() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&one, Some(&set(0, 7)), 0..5000);
    bench.finish();
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(0, &[(4000, true)]));
    bench.handle(ShardIn::Suppress(false));
    bench.shard.step(&mut bench.out);
    bench.handle(ShardIn::Suppress(true));
    assert_eq!(sources(&bench.finish()).len(), 5000);
    bench.routes(&one, Some(&set(0, 8)), [0]);
    assert!(sources(&bench.finish()).is_empty());
    bench.handle(confirmed(fence, &[]));
    assert!(sources(&bench.finish()).is_empty(), "an answer from before");
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[]));
    assert_eq!(sources(&bench.finish()), [(Some(1), Some(1))]);
}

/// A shard whose next hops a RIB manager resolves, with the sessions of peers 1 and 2.
fn tracking() -> Bench {
    let mut bench = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    [1, 2].into_iter().for_each(|n| bench.handle(ShardIn::PeerUp(peer(n, 1))));
    bench
}

fn report(bench: &mut Bench, hop: &str, state: NextHopState) -> Effects {
    bench.handle(ShardIn::NextHops(vec![(next_hop(hop), state)]));
    bench.finish()
}

#[test]
fn unknown_next_hop_is_fed_and_not_advertised_before_it_is_resolved() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..10);
    bench.routes(&one, Some(&set(0, 8)), 10..12);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 12));
    assert_eq!(effects.next_hops, [(next_hop("192.0.2.7"), true), (next_hop("192.0.2.8"), true)]);
    assert_eq!(bench.shard.counts().families[AfiSafi::Ipv4Unicast].hidden, 12);
    let effects = report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 3, partial: false });
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(None, Some(1)); 10], 0), "the others wait");
    let effects = report(&mut bench, "192.0.2.8", NextHopState::Unreachable);
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0));
    let effects = report(&mut bench, "192.0.2.8", NextHopState::Reachable { cost: 0, partial: false });
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(None, Some(1)); 2], 0));
    // A route by a next hop that is known is advertised at once.
    bench.routes(&one, Some(&set(1, 8)), [20]);
    assert_eq!(sources(&bench.finish()), [(None, Some(1))]);
}

#[test]
fn unreachable_next_hop_withdraws_what_is_advertised_and_leaves_the_feed_as_it_is() {
    let (mut bench, one, two) = (tracking(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(0, 7)), [0, 1]);
    bench.routes(&two, Some(&set(1, 8)), [1]);
    bench.finish();
    report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 0, partial: false });
    let effects = report(&mut bench, "192.0.2.8", NextHopState::Reachable { cost: 0, partial: false });
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0), "no best path changes");
    let effects = report(&mut bench, "192.0.2.7", NextHopState::Unreachable);
    let mut advertised = sources(&effects);
    advertised.sort_unstable();
    assert_eq!(advertised, [(Some(1), None), (Some(1), Some(2))]);
    assert_eq!(effects.feed.changes.v4.iter().map(|(prefix, _)| *prefix).collect::<Vec<_>>(), [prefix(1)]);
    let effects = report(&mut bench, "192.0.2.8", NextHopState::Unreachable);
    assert_eq!(sources(&effects), [(Some(2), None)]);
    assert_eq!(effects.feed.changes.v4[0].0, prefix(1), "the better one is selected again");
    // Paths withdrawn and announced while none is eligible are fed, and not advertised.
    bench.routes(&one, None, [1]);
    bench.routes(&two, Some(&set(2, 7)), [0]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 1));
}

#[test]
fn next_hop_on_link_and_recursive_ones_are_apart() {
    let mut bench = tracking();
    let far = Arc::new(PeerInfo { multihop: true, ..(*peer(3, 1)).clone() });
    bench.handle(ShardIn::PeerUp(far.clone()));
    bench.routes(&peer(1, 1), Some(&set(0, 7)), [0]);
    bench.routes(&far, Some(&set(1, 7)), [0]);
    let mut uses = bench.finish().next_hops;
    uses.sort_unstable();
    let recursive = TrackedNextHop { recursive: true, ..next_hop("192.0.2.7") };
    assert_eq!(uses, [(next_hop("192.0.2.7"), true), (recursive, true)]);
    bench.handle(ShardIn::NextHops(vec![(recursive, NextHopState::Reachable { cost: 0, partial: false })]));
    let effects = report(&mut bench, "192.0.2.7", NextHopState::Unreachable);
    assert_eq!(sources(&effects), [(None, Some(3))], "the better path needs its next hop on link");
}

#[test]
fn next_hop_that_is_reachable_alone_is_fed_without_others() {
    let options = DecisionOptions { maximum_paths: 8, backup_path: true, ..DecisionOptions::default() };
    let mut bench = Bench { shard: Shard::tracking(options), out: ShardOut::default() };
    for n in [1, 2, 3] {
        bench.handle(ShardIn::PeerUp(peer(n, 1)));
        bench.routes(&peer(n, 1), Some(&set(0, n as u8)), [0]);
    }
    let mut fed = |changed: u8, state| {
        report(&mut bench, &format!("192.0.2.{changed}"), state);
        let FeedSet { next_hops, backup, .. } = bench.shard.fed_of(prefix(0).any()).unwrap().set;
        let last = |address: IpAddr| address.to_string().split('.').next_back().unwrap().to_owned();
        let members: Vec<String> = next_hops.iter().map(|(address, _)| last(*address)).collect();
        (members.join(" "), backup.map(|(address, _)| last(address)))
    };
    let (reachable, alone) = (
        NextHopState::Reachable { cost: 0, partial: false },
        NextHopState::ReachableAlone { cost: 0, partial: false },
    );
    fed(1, reachable);
    fed(2, reachable);
    assert_eq!(fed(3, reachable), ("1 2 3".into(), None));
    assert_eq!(fed(1, alone), ("1".into(), None), "no member and no backup beside it");
    assert_eq!(fed(1, reachable), ("1 2 3".into(), None));
    assert_eq!(fed(2, alone), ("1 3".into(), None), "nor is it a member or a backup");
    assert_eq!(fed(3, NextHopState::Unreachable), ("1".into(), None));
    assert_eq!(fed(1, NextHopState::Unreachable), ("2".into(), None), "it is the best path");
}

#[test]
fn shard_too_many_unresolved_prefixes_reselects_all_routes() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..100);
    bench.finish();
    let effects = report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 0, partial: false });
    assert_eq!(sources(&effects).len(), 100);
}

#[test]
fn suppressed_path_that_becomes_usable_waits_for_dataplanes() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(fed(&bench.finish().feed), 1);
    assert_eq!(bench.shard.fence(), None, "nothing waits: no path can be used");
    let effects = report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 0, partial: false });
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 1));
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[]));
    assert_eq!(sources(&bench.finish()), [(None, Some(1))]);
}

#[test]
fn gate_unknown_next_hop_keeps_the_former_advertisement() {
    let attrs = |effects: &Effects| {
        let paths = effects.egress.iter().map(|effect| match effect {
            ToEgress::All(batch) => batch.changes.v4.iter().map(|c| (c.old != NONE, c.new != NONE)).collect(),
            _ => Vec::new(),
        });
        paths.flatten().collect::<Vec<_>>()
    };
    for (state, advertised) in [
        (NextHopState::Reachable { cost: 0, partial: false }, (true, true)),
        (NextHopState::Unreachable, (true, false)),
    ] {
        for suppress in [false, true] {
            let (mut bench, one) = (tracking(), peer(1, 1));
            bench.handle(ShardIn::Suppress(suppress));
            bench.routes(&one, Some(&set(0, 7)), [0]);
            report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 0, partial: false });
            let fence = bench.shard.fence();
            assert_eq!(fence.is_some(), suppress);
            fence.into_iter().for_each(|fence| bench.handle(confirmed(fence, &[])));
            bench.finish();
            bench.routes(&one, Some(&set(0, 8)), [0]);
            let effects = bench.finish();
            assert_eq!((attrs(&effects), fed(&effects.feed)), (vec![], 1), "fed, and no worker hears of it");
            let standing = bench.shard.lookup(prefix(0)).unwrap().standing;
            assert_eq!(standing, Standing::Waiting { former: true });
            let mut effects = report(&mut bench, "192.0.2.8", state);
            if let Some(fence) = bench.shard.fence() {
                assert!(suppress && attrs(&effects).is_empty());
                bench.handle(confirmed(fence, &[]));
                effects = bench.finish();
            }
            assert_eq!(attrs(&effects), [advertised]);
            assert_eq!(bench.shard.counts().waiting, 0);
            bench.routes(&one, None, [0]);
            bench.finish();
            assert_eq!(bench.shard.counts().attribute_sets, 0, "what was held is let go");
        }
    }
}

#[test]
fn held_path_goes_with_its_prefix_its_session_and_its_logical_shard() {
    let moved_to_unknown = || {
        let (mut bench, one) = (tracking(), peer(1, 1));
        bench.routes(&one, Some(&set(0, 7)), [0]);
        report(&mut bench, "192.0.2.7", NextHopState::Reachable { cost: 0, partial: false });
        bench.routes(&one, Some(&set(0, 8)), [0]);
        bench.finish();
        bench
    };
    let one = peer(1, 1);
    let mut bench = moved_to_unknown();
    bench.routes(&one, None, [0]);
    assert_eq!(sources(&bench.finish()), [(Some(1), None)]);
    assert_eq!(bench.shard.counts().attribute_sets, 0);

    let mut bench = moved_to_unknown();
    bench.handle(ShardIn::PeerDown { peer: one.id, session: 1, retained: FamilySet::NONE });
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(1), None)], vec![(one.id, 1)]));
    assert_eq!(bench.shard.counts().attribute_sets, 0);

    let (mut bench, mut fresh) = (moved_to_unknown(), tracking());
    for logical in 0..LOGICAL_SHARDS {
        let moved = bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
        fresh.shard.adopt(moved, &mut fresh.out);
    }
    assert_eq!((sources(&bench.finish()), sources(&fresh.finish())), (vec![], vec![]));
    let effects = report(&mut fresh, "192.0.2.8", NextHopState::Reachable { cost: 0, partial: false });
    assert_eq!(sources(&effects), [(Some(1), Some(1))]);
    assert_eq!(bench.shard.counts().attribute_sets, 0);
}

/// What a peer could aim at: most prefixes in one logical shard, and a prefix with thousands of paths.
#[test]
fn extract_skewed_logical_shard_and_wide_prefix_work_is_bounded_by_the_part() {
    const PATHS: usize = 512;
    let peers: Vec<_> = (1..=3000).map(|n| peer(n, 1)).collect();
    // 16,384 prefixes of one block, so of one logical shard; the first has 3,000 paths and the others two.
    let all: Vec<Prefix<V4>> = (0..1 << 14).map(|n| Prefix::new(10 << 24 | n, 32)).collect();
    let logical = logical_shard(all[0]);
    let (mut bench, mut fresh) = (Bench::new(), Bench::new());
    let passer = all[1];
    let withdraw = |bench: &mut Bench, from: &PeerInfo, prefix: Prefix<V4>| {
        let mut batches = ShardBatches::new([0; 64]);
        batches.extend(from, None, [prefix].into_iter());
        batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
    };
    let announce = |bench: &mut Bench, from: &PeerInfo, prefixes: &[Prefix<V4>]| {
        let mut batches = ShardBatches::new([0; 64]);
        batches.extend(from, Some(&set(0, 7)), prefixes.iter().copied());
        batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
    };
    for peer in &peers {
        bench.handle(ShardIn::PeerUp(peer.clone()));
        announce(&mut bench, peer, &all[..1]);
    }
    peers[..2].iter().for_each(|peer| announce(&mut bench, peer, &all));
    bench.finish();

    let table = |bench: &Bench| bench.shard.tables.v4[usize::from(logical)].memory();
    let len = bench.shard.table_len(logical);
    bench.shard.reserve_table(logical, len);
    fresh.shard.reserve_table(logical, len);
    let reserved = [table(&bench), table(&fresh)];
    let (mut cut, mut prefixes, mut parts) = (Cut::START, 0, 0);
    while cut != Cut::END {
        let moved = bench.shard.extract(logical, cut, PATHS, &mut bench.out);
        let wide = moved.prefixes() == 1 && moved.paths() == peers.len();
        assert!(wide || moved.paths() <= PATHS, "{} prefixes, {} paths", moved.prefixes(), moved.paths());
        assert!(
            moved.sessions() <= if moved.paths() > PATHS { peers.len() } else { 2 },
            "sessions without paths"
        );
        (cut, prefixes, parts) = (moved.end(), prefixes + moved.prefixes(), parts + 1);
        fresh.shard.adopt(moved, &mut fresh.out);
        // A prefix goes and comes back: a table that is almost empty stays as large as it is.
        let at_giver = bench.shard.lookup(passer).is_some();
        let has_it = if at_giver { &mut bench } else { &mut fresh };
        peers[..2].iter().for_each(|peer| withdraw(has_it, peer, passer));
        announce(has_it, &peers[0], &[passer]);
        assert_eq!([table(&bench), table(&fresh)], reserved, "a table was made again in part {parts}");
    }
    assert_eq!(prefixes, all.len());
    assert!(parts <= 2 * all.len() / (PATHS - 1) + 3, "{parts} parts");
    [&mut bench, &mut fresh].iter_mut().for_each(|bench| bench.shard.shrink_table(logical));
    assert_eq!(
        (table(&bench), bench.shard.table_len(logical), fresh.shard.table_len(logical)),
        (0, ByFamily::default(), len)
    );
    assert_eq!(
        fresh.shard.counts().families[AfiSafi::Ipv4Unicast].paths,
        2 * (all.len() - 1) + peers.len() - 1
    );
    assert!(all.iter().all(|prefix| fresh.shard.lookup(*prefix).is_some()));
}

#[test]
fn shard_next_hop_inside_its_prefix_is_registered_without_it() {
    let mut bench = tracking();
    let far = Arc::new(PeerInfo { multihop: true, ..(*peer(3, 1)).clone() });
    bench.handle(ShardIn::PeerUp(far.clone()));
    // 192.0.2.0/24 and another prefix, by 192.0.2.7.
    let inside = Prefix::<V4>::new(192 << 24 | 2 << 8, 18);
    let announce = |bench: &mut Bench, attrs: Option<&AttrSet>| {
        let mut batches = ShardBatches::new([0; 64]);
        batches.extend(&far, attrs, [inside, prefix(1)].into_iter());
        batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
    };
    announce(&mut bench, Some(&set(0, 7)));
    let mut uses = bench.finish().next_hops;
    uses.sort_unstable();
    let plain = TrackedNextHop { recursive: true, ..next_hop("192.0.2.7") };
    let without = TrackedNextHop { exclude: Some(inside.any()), ..plain };
    assert_eq!(uses, [(plain, true), (without, true)]);
    let reachable = NextHopState::Reachable { cost: 0, partial: false };
    bench.handle(ShardIn::NextHops(vec![(plain, reachable), (without, NextHopState::Unreachable)]));
    let effects = bench.finish();
    assert_eq!(sources(&effects), [(None, Some(3))], "the other prefix alone");
    assert!(bench.shard.lookup(inside).unwrap().paths.iter().all(|path| !path.best));
    // It moves as it is, and goes.
    let mut fresh = tracking();
    for logical in 0..LOGICAL_SHARDS {
        let moved = bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
        fresh.shard.adopt(moved, &mut fresh.out);
    }
    assert_eq!(bench.shard.counts().attribute_sets, 0);
    fresh.handle(ShardIn::NextHops(vec![(without, reachable)]));
    assert_eq!(sources(&fresh.finish()), [(None, Some(3))]);
    announce(&mut fresh, None);
    assert_eq!((fresh.finish().next_hops.len(), fresh.shard.counts().attribute_sets), (2, 0));
}
