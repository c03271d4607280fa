//! Route refreshes with marks: what does not come between begin and end is removed.

use super::*;

fn begin(peer: u32, session: u32) -> ShardIn {
    ShardIn::BeginOfRefresh { peer: PeerId(peer), session, family: AfiSafi::Ipv4Unicast }
}

fn end(peer: u32, session: u32) -> ShardIn {
    ShardIn::EndOfRefresh { peer: PeerId(peer), session, family: AfiSafi::Ipv4Unicast }
}

/// A shard with the prefixes 0 to 4 of peers 1 and 2; the paths of peer 1 are best.
fn bench() -> (Bench, PeerInfo, PeerInfo) {
    let (mut bench, one, two) = (Bench::new(), (*peer(1, 1)).clone(), (*peer(2, 1)).clone());
    bench.routes(&one, Some(&set(0, 7)), 0..5);
    bench.routes(&two, Some(&set(1, 8)), 0..5);
    bench.finish();
    (bench, one, two)
}

fn paths(bench: &Bench, id: u32) -> u32 {
    bench.shard.peer_counts::<V4>(PeerId(id)).paths
}

#[test]
fn paths_of_the_session_that_did_not_come_again_go_at_the_end() {
    let (mut bench, one, _) = bench();
    bench.handle(begin(1, 1));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.routes(&one, Some(&set(0, 9)), [1]);
    bench.routes(&one, Some(&set(0, 7)), [2]);
    bench.routes(&one, None, [2]);
    let effects = bench.finish();
    assert_eq!((sources(&effects).len(), paths(&bench, 1)), (2, 4), "another next hop, and a withdrawal");
    bench.handle(end(1, 1));
    // A path that comes while the scan is under way is none to remove.
    bench.routes(&one, Some(&set(0, 7)), [3]);
    assert!(bench.shard.work_left());
    let effects = bench.finish();
    assert_eq!((sources(&effects), paths(&bench, 1)), (vec![(Some(1), Some(2))], 3), "prefix 4");
    assert_eq!(paths(&bench, 2), 5);
    assert!(bench.shard.core.refreshes.is_empty());
}

#[test]
fn an_end_without_begin_or_of_another_session_or_family_changes_nothing() {
    let (mut bench, ..) = bench();
    bench.handle(end(1, 1));
    bench.handle(begin(1, 2));
    bench.handle(end(1, 2));
    bench.handle(ShardIn::BeginOfRefresh { peer: PeerId(1), session: 1, family: AfiSafi::Ipv6Unicast });
    bench.handle(ShardIn::EndOfRefresh { peer: PeerId(1), session: 1, family: AfiSafi::Ipv6Unicast });
    bench.finish();
    assert_eq!(paths(&bench, 1), 5);
    assert!(bench.shard.core.refreshes.is_empty());
}

#[test]
fn another_begin_starts_over_and_the_end_of_the_session_forgets_it() {
    let (mut bench, one, _) = bench();
    bench.handle(begin(1, 1));
    bench.routes(&one, Some(&set(0, 7)), 0..5);
    bench.handle(begin(1, 1));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.handle(end(1, 1));
    // Before the scan, a third one, which has nothing to do with the second.
    bench.handle(begin(1, 1));
    bench.routes(&one, Some(&set(0, 7)), [1]);
    bench.finish();
    assert_eq!(paths(&bench, 1), 2);
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    bench.handle(ShardIn::PeerUp(peer(1, 2)));
    bench.handle(end(1, 2));
    bench.finish();
    assert_eq!(bench.shard.stale_count::<V4>(PeerId(1)), 2);
    assert!(bench.shard.core.refreshes.is_empty());
}

/// With path identifiers each path is its own.
#[test]
fn path_identifiers_are_told_apart() {
    let both = PeerInfo { path_ids: FamilySet::ALL, ..(*peer(1, 1)).clone() };
    let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    bench.handle(ShardIn::PeerUp(Arc::new(both.clone())));
    let announce = |bench: &mut Bench, ids: &[u32]| {
        for path_id in ids {
            let mut prefixes = BgpFamilies::default();
            let list: &mut Vec<Prefix<V4>> = prefixes.get_mut::<V4>();
            list.push(prefix(0));
            let ops = vec![RouteOp {
                attrs: Some(set(0, 7)),
                path_id: *path_id,
                family: AfiSafi::Ipv4Unicast,
                count: 1,
            }];
            bench.handle(ShardIn::Routes(UpdateBatch { peer: PeerId(1), session: 1, ops, prefixes }));
        }
    };
    announce(&mut bench, &[0, 1, 2]);
    bench.handle(begin(1, 1));
    announce(&mut bench, &[0, 2]);
    bench.handle(end(1, 1));
    bench.finish();
    let view = bench.shard.lookup(prefix(0)).unwrap();
    let mut ids: Vec<_> = view.paths.iter().map(|path| path.path_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(0), Some(2)]);
}

/// Notes move with their paths, and a refresh that has ended is finished where the paths were.
#[test]
fn refreshed_paths_move_to_another_shard() {
    for ends_before in [false, true] {
        let (mut bench, one, _) = bench();
        let mut other = Bench::new();
        bench.handle(begin(1, 1));
        other.handle(begin(1, 1));
        bench.routes(&one, Some(&set(0, 7)), [0, 1]);
        if ends_before {
            bench.handle(end(1, 1));
            other.handle(end(1, 1));
        }
        for logical in 0..LOGICAL_SHARDS {
            let moved = bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
            other.shard.adopt(moved, &mut other.out);
        }
        other.routes(&one, Some(&set(0, 7)), [2]);
        if !ends_before {
            bench.handle(end(1, 1));
            other.handle(end(1, 1));
        }
        bench.finish();
        other.finish();
        assert_eq!((paths(&bench, 1), paths(&other, 1), paths(&other, 2)), (0, 3, 5));
        assert!(bench.shard.core.refreshes.is_empty() && other.shard.core.refreshes.is_empty());
    }
}
