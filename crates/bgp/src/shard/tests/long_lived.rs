//! Long-lived stale paths: retained ones with the community LLGR_STALE, which lose to all others.

use super::*;
use ribtide_wire::bgp::attribute::{Community, code};
use ribtide_wire::bgp::build;

fn long_lived(n: u32, session: u32) -> PeerInfo {
    let mut info = (*peer(n, session)).clone();
    info.long_lived = true;
    info
}

/// A shard with the prefixes 0 to 3 of peer 1, whose session ended; peer 2 has a worse path of prefix 0. Prefix 3 has NO_LLGR.
fn bench() -> Bench {
    let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    let (one, two) = (long_lived(1, 1), peer(2, 1));
    bench.handle(ShardIn::PeerUp(Arc::new(one.clone())));
    bench.handle(ShardIn::PeerUp(two.clone()));
    bench.routes(&one, Some(&set(0, 7)), 0..3);
    let mut bytes = vec![0x40, 1, 1, 0];
    build::list(&mut bytes, 0xc0, code::COMMUNITIES, &Community::NO_LLGR.0.to_be_bytes());
    bench.routes(&one, Some(&AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(192, 0, 2, 7)))), [3]);
    bench.routes(&two, Some(&set(2, 8)), [0]);
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    bench.finish();
    bench
}

fn mark(bench: &mut Bench) -> Effects {
    bench.handle(ShardIn::LongLived { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    bench.finish()
}

#[test]
fn long_lived_stale_paths_have_the_community_and_lose_to_all_others() {
    let mut bench = bench();
    let mut sources = sources(&mark(&mut bench));
    sources.sort_unstable();
    // Prefix 3 goes, 0 is another's now, 1 and 2 have other attributes.
    assert_eq!(sources, [(Some(1), None), (Some(1), Some(1)), (Some(1), Some(1)), (Some(1), Some(2))]);
    let view = bench.shard.lookup(prefix(0)).unwrap();
    assert_eq!((view.paths[0].peer.id, view.paths[1].lost), (PeerId(2), Some(Reason::LongLivedStale)));
    for n in 0..3 {
        let view = bench.shard.lookup(prefix(n)).unwrap();
        let path = view.paths.iter().find(|path| path.peer.id == PeerId(1)).unwrap();
        assert!(path.stale && path.attrs.llgr_stale() && path.attrs.value(code::ORIGIN) == Some(&[0]));
    }
    assert!(bench.shard.lookup(prefix(3)).is_none());
    assert!(sources_again(&mut bench).is_empty(), "marked once");
    // The next session's path replaces it.
    let next = long_lived(1, 2);
    bench.handle(ShardIn::PeerUp(Arc::new(next.clone())));
    bench.routes(&next, Some(&set(0, 7)), [0, 1]);
    let effects = bench.finish();
    assert_eq!(super::sources(&effects), [(Some(2), Some(1)), (Some(1), Some(1))]);
    bench.handle(ShardIn::Sweep { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    assert_eq!(bench.finish().purged, [(PeerId(1), 1)]);
    assert_eq!(bench.shard.counts().families[AfiSafi::Ipv4Unicast].paths, 3);
}

fn sources_again(bench: &mut Bench) -> Vec<(Option<u32>, Option<u32>)> {
    sources(&mark(bench))
}

#[test]
fn only_retained_paths_of_the_session_and_family_are_marked() {
    let mut bench = bench();
    bench.handle(ShardIn::LongLived { peer: PeerId(1), session: 1, families: FamilySet::IPV6_UNICAST });
    bench.handle(ShardIn::LongLived { peer: PeerId(1), session: 2, families: FamilySet::ALL });
    bench.handle(ShardIn::LongLived { peer: PeerId(2), session: 1, families: FamilySet::ALL });
    assert_eq!(sources(&bench.finish()), []);
    assert!(!bench.shard.lookup(prefix(1)).unwrap().paths[0].attrs.llgr_stale());
}

/// The community of a peer to which the capability is not sent is one like any other.
#[test]
fn the_community_counts_only_where_the_capability_is_sent() {
    let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    let (plain, aware) = ((*peer(1, 1)).clone(), long_lived(2, 1));
    [&plain, &aware].into_iter().for_each(|info| bench.handle(ShardIn::PeerUp(Arc::new(info.clone()))));
    let stale = set(0, 7).with_community(Community::LLGR_STALE);
    for (info, best) in [(&plain, 1), (&aware, 1)] {
        bench.routes(info, Some(&stale), [0]);
        bench.finish();
        assert_eq!(bench.shard.lookup(prefix(0)).unwrap().paths[0].peer.id, PeerId(best));
    }
    bench.routes(&plain, Some(&set(2, 7)), [0]);
    bench.finish();
    let view = bench.shard.lookup(prefix(0)).unwrap();
    assert_eq!((view.paths[0].peer.id, view.paths[1].lost), (PeerId(1), Some(Reason::LongLivedStale)));
}

/// What moves while the scan is under way is marked before.
#[test]
fn long_lived_stale_paths_move_to_another_shard() {
    let mut bench = bench();
    let mut other = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    other.handle(ShardIn::PeerUp(Arc::new(long_lived(1, 1))));
    other.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    bench.handle(ShardIn::LongLived { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    other.handle(ShardIn::LongLived { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    for logical in 0..LOGICAL_SHARDS {
        let moved = bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
        other.shard.adopt(moved, &mut other.out);
    }
    other.finish();
    assert_eq!(
        (
            other.shard.stale_count::<V4>(PeerId(1)),
            other.shard.counts().families[AfiSafi::Ipv4Unicast].prefixes
        ),
        (3, 3)
    );
    assert!(other.shard.lookup(prefix(1)).unwrap().paths[0].attrs.llgr_stale());
}

/// The part leaves its shard before that one knows, and arrives after the scan of the other.
#[test]
fn long_lived_stale_paths_that_move_unmarked_are_marked_where_they_arrive() {
    let mut bench = bench();
    let mut other = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    other.handle(ShardIn::PeerUp(Arc::new(long_lived(1, 1))));
    other.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    let extract = |logical| bench.shard.extract(logical, Cut::START, usize::MAX, &mut bench.out);
    let moved: Vec<_> = (0..LOGICAL_SHARDS).map(extract).collect();
    mark(&mut other);
    moved.into_iter().for_each(|moved| other.shard.adopt(moved, &mut other.out));
    other.finish();
    assert!(other.shard.lookup(prefix(1)).unwrap().paths[0].attrs.llgr_stale());
    assert!(other.shard.lookup(prefix(3)).is_none());
}
