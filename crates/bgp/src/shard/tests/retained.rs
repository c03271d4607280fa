//! Retained paths of a session that ended: they stay until the next session replaces them, or a sweep.

use super::*;
use ribtide_prefix::V6;

const V4_ONLY: FamilySet = FamilySet::IPV4_UNICAST;

fn down(session: u32, retained: FamilySet) -> ShardIn {
    ShardIn::PeerDown { peer: PeerId(1), session, retained }
}

fn sweep(session: u32, families: FamilySet) -> ShardIn {
    ShardIn::Sweep { peer: PeerId(1), session, families }
}

fn stale(bench: &Bench) -> u32 {
    bench.shard.stale_count::<V4>(PeerId(1))
}

/// A shard with the prefixes 0 to 4 of peer 1, whose session ended and left them.
fn bench() -> Bench {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..5);
    bench.finish();
    bench.handle(down(1, V4_ONLY));
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed), effects.purged), (vec![], 0, vec![]));
    assert_eq!((stale(&bench), bench.shard.counts().families[AfiSafi::Ipv4Unicast].best), (5, 5));
    bench
}

#[test]
fn the_next_session_takes_retained_paths_over_and_a_sweep_removes_the_rest() {
    let (mut bench, one) = (bench(), peer(1, 2));
    let view = bench.shard.lookup(prefix(0)).unwrap();
    assert!(view.paths[0].stale && view.paths[0].best, "it is used as any other");
    bench.routes(&peer(1, 1), None, [0]);
    assert_eq!((bench.shard.counts().late, stale(&bench)), (1, 5), "the session is over");

    bench.handle(ShardIn::PeerUp(one.clone()));
    bench.routes(&one, Some(&set(0, 7)), [0, 1]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0), "what comes unchanged changes nothing");
    bench.routes(&one, Some(&set(0, 8)), [2]);
    bench.routes(&one, None, [3]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(Some(1), Some(1)), (Some(1), None)], 2));
    assert_eq!(stale(&bench), 1);
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(1)), PeerCounts { paths: 3, best: 3 });
    assert!(!bench.shard.lookup(prefix(0)).unwrap().paths[0].stale);

    bench.handle(sweep(1, V4_ONLY));
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(1), None)], vec![(PeerId(1), 1)]));
    assert_eq!((stale(&bench), bench.shard.counts().families[AfiSafi::Ipv4Unicast].paths), (0, 3));
    bench.handle(sweep(1, FamilySet::ALL));
    bench.handle(sweep(2, FamilySet::ALL));
    assert!(!bench.shard.work_left() && bench.out.is_empty(), "the session that lasts is not swept");
}

#[test]
fn without_a_next_session_a_sweep_removes_all() {
    let mut bench = bench();
    bench.handle(sweep(1, FamilySet::IPV6_UNICAST));
    assert_eq!(bench.finish().purged, [], "of the other family");
    bench.handle(sweep(1, FamilySet::ALL));
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(1), None); 5], vec![(PeerId(1), 1)]));
    assert_eq!(bench.shard.counts().families[AfiSafi::Ipv4Unicast].prefixes, 0);
}

#[test]
fn a_family_that_is_not_retained_goes_and_the_other_stays() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..5);
    let mut batches = ShardBatches::new([0; 64]);
    let six: Prefix<V6> = "2001:db8::/32".parse().unwrap();
    batches.extend(&one, Some(&set(0, 7)), [six].into_iter());
    batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
    bench.finish();
    bench.handle(down(1, V4_ONLY));
    assert_eq!(bench.finish().purged, []);
    assert_eq!((bench.shard.lookup(six).is_none(), stale(&bench)), (true, 5));
    bench.handle(sweep(1, V4_ONLY));
    assert_eq!(
        (sources(&bench.finish()).len(), bench.shard.counts().families[AfiSafi::Ipv4Unicast].paths),
        (5, 0)
    );
}

/// RFC 4724 section 4.2: of consecutive restarts, only the last one leaves stale routes.
#[test]
fn the_end_of_the_next_session_sweeps_what_it_has_not_taken_over() {
    let (mut bench, one) = (bench(), peer(1, 2));
    bench.handle(ShardIn::PeerUp(one.clone()));
    bench.routes(&one, Some(&set(0, 7)), [0, 1]);
    bench.handle(down(2, V4_ONLY));
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![(Some(1), None); 3], vec![(PeerId(1), 1)]));
    assert_eq!(stale(&bench), 2);
    // Without retention, all go.
    let (mut bench, one) = (super::retained::bench(), peer(1, 2));
    bench.handle(ShardIn::PeerUp(one.clone()));
    bench.routes(&one, Some(&set(0, 7)), [0, 1]);
    bench.handle(down(2, FamilySet::NONE));
    let mut effects = bench.finish();
    effects.purged.sort_unstable();
    assert_eq!((sources(&effects).len(), effects.purged), (5, vec![(PeerId(1), 1), (PeerId(1), 2)]));
}

/// An unchanged path keeps its age, and so its place in the decision, but not if the identifier of its peer is another.
#[test]
fn a_path_taken_over_is_as_old_as_before() {
    let options = DecisionOptions { prefer_oldest: true, ..DecisionOptions::default() };
    for router_id in [1, 9] {
        let mut bench = Bench { shard: Shard::new(options), out: ShardOut::default() };
        let (one, two) = (peer(1, 1), peer(2, 1));
        [&one, &two].into_iter().for_each(|info| bench.handle(ShardIn::PeerUp(info.clone())));
        bench.routes(&one, Some(&set(0, 7)), [0]);
        bench.routes(&two, Some(&set(0, 8)), [0]);
        bench.handle(down(1, V4_ONLY));
        let again = PeerInfo { router_id: Ipv4Addr::from(router_id), ..(*peer(1, 2)).clone() };
        bench.handle(ShardIn::PeerUp(Arc::new(again.clone())));
        bench.finish();
        bench.routes(&again, Some(&set(0, 7)), [0]);
        let expected = if router_id == 1 { vec![] } else { vec![(Some(1), Some(2))] };
        assert_eq!(sources(&bench.finish()), expected);
        bench.handle(sweep(1, FamilySet::ALL));
        assert_eq!(bench.finish().purged, [(PeerId(1), 1)]);
    }
}

#[test]
fn retained_paths_move_to_another_shard_and_are_swept_there() {
    let mut bench = bench();
    let mut other = Bench::new();
    other.handle(down(1, V4_ONLY));
    for logical in 0..LOGICAL_SHARDS {
        let moved = bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
        other.shard.adopt(moved, &mut other.out);
    }
    assert_eq!((stale(&bench), stale(&other)), (0, 5));
    let next = peer(1, 2);
    for bench in [&mut bench, &mut other] {
        assert_eq!(bench.finish().purged, [], "they may come back");
        bench.handle(ShardIn::PeerUp(next.clone()));
    }
    other.routes(&next, Some(&set(0, 7)), [0]);
    assert_eq!((sources(&other.finish()), stale(&other)), (vec![], 4));
    for bench in [&mut bench, &mut other] {
        bench.handle(sweep(1, V4_ONLY));
        assert_eq!(bench.finish().purged, [(PeerId(1), 1)]);
    }
    assert_eq!(other.shard.counts().families[AfiSafi::Ipv4Unicast].paths, 1);
}

/// The former owner gave a part away before the session ended, and the new one takes it afterwards.
#[test]
fn a_part_that_arrives_after_the_end_leaves_the_other_family() {
    let (mut bench, mut other, one) = (Bench::new(), Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..5);
    let six: Prefix<V6> = "2001:db8::/32".parse().unwrap();
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(&one, Some(&set(0, 7)), [six].into_iter());
    batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
    let all: Vec<_> = (0..LOGICAL_SHARDS)
        .map(|logical| bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out))
        .collect();
    other.handle(down(1, V4_ONLY));
    other.finish();
    all.into_iter().for_each(|moved| other.shard.adopt(moved, &mut other.out));
    other.finish();
    assert_eq!((other.shard.lookup(six).is_none(), stale(&other)), (true, 5));
}

/// With suppression, the advertised path of a retained session stays so while another waits for the FIB.
#[test]
fn a_retained_path_may_be_the_advertised_one_of_a_closed_gate() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&one, Some(&set(1, 7)), [0]);
    bench.finish();
    let confirm = |bench: &mut Bench| {
        let fence = bench.shard.fence().unwrap();
        bench.handle(confirmed(fence, &[]));
        sources(&bench.finish())
    };
    assert_eq!(confirm(&mut bench), [(None, Some(1))]);
    bench.handle(down(1, V4_ONLY));
    bench.routes(&two, Some(&set(0, 8)), [0]);
    assert_eq!(sources(&bench.finish()), []);
    bench.handle(sweep(1, V4_ONLY));
    let effects = bench.finish();
    assert_eq!((sources(&effects), effects.purged), (vec![], vec![]), "it is advertised still");
    assert_eq!(confirm(&mut bench), [(Some(1), Some(2))]);
    bench.handle(ShardIn::Suppress(false));
    assert_eq!(bench.shard.counts().families[AfiSafi::Ipv4Unicast].paths, 1);
}

/// A path whose next hop depends on its own prefix gets a next hop of its own, retained or not.
#[test]
fn retained_paths_are_set_apart_as_others_are() {
    let one = Arc::new(PeerInfo { multihop: true, ..(*peer(1, 1)).clone() });
    let mut bench = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    bench.handle(ShardIn::PeerUp(one.clone()));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.handle(down(1, V4_ONLY));
    bench.finish();
    let apart = TrackedNextHop {
        address: "192.0.2.7".parse().unwrap(),
        recursive: true,
        exclude: Some(prefix(0).any()),
    };
    bench.handle(ShardIn::NextHops(vec![(apart, NextHopState::PerPrefix)]));
    assert!(bench.finish().next_hops.contains(&(apart, true)));
    assert_eq!((stale(&bench), bench.shard.counts().late), (1, 0));
}
