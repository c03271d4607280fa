//! Several paths of a prefix from one session (RFC 7911).

use super::*;
use crate::decision::Reason;
use ribtide_wire::bgp::nlri::PathPrefix;

/// A peer that sends path identifiers in IPv4.
fn several(n: u32, session: u32) -> Arc<PeerInfo> {
    let path_ids = FamilySet::IPV4_UNICAST;
    Arc::new(PeerInfo { path_ids, ..(*peer(n, session)).clone() })
}

fn bench(options: DecisionOptions, peers: &[&Arc<PeerInfo>]) -> Bench {
    let mut bench = Bench { shard: Shard::new(options), out: ShardOut::default() };
    peers.iter().for_each(|info| bench.handle(ShardIn::PeerUp((*info).clone())));
    bench
}

impl Bench {
    /// Announces paths of prefix 0 with these identifiers, or withdraws them.
    fn paths(&mut self, from: &PeerInfo, attrs: Option<&AttrSet>, ids: impl IntoIterator<Item = u32>) {
        let mut batches = ShardBatches::new([0; 64]);
        let path = |path_id| PathPrefix { prefix: prefix(0), path_id };
        batches.extend(from, attrs, ids.into_iter().map(path));
        let batches: Vec<_> = batches.drain().collect();
        batches.into_iter().for_each(|(_, batch)| self.handle(ShardIn::Routes(batch)));
    }

    /// The paths of prefix 0: peer, identifier, last byte of the next hop, and why it lost.
    fn seen(&self) -> Vec<(u32, Option<u32>, u8, Option<Reason>)> {
        let Some(view) = self.shard.lookup(prefix(0)) else { return Vec::new() };
        let hop = |addr| match addr {
            IpAddr::V4(addr) => Ipv4Addr::octets(&addr)[3],
            IpAddr::V6(_) => 0,
        };
        let row =
            |path: &PathView| (path.peer.id.0, path.path_id, hop(path.attrs.next_hop().addr()), path.lost);
        view.paths.iter().map(row).collect()
    }
}

#[test]
fn path_identifiers_keep_the_paths_of_a_session_apart() {
    let (one, two) = (several(1, 1), peer(2, 1));
    let mut bench = bench(DecisionOptions::default(), &[&one, &two]);
    bench.paths(&one, Some(&set(0, 7)), [5]);
    bench.paths(&one, Some(&set(0, 8)), [0, 9]);
    bench.routes(&two, Some(&set(1, 7)), [0]);
    let lost = |why| Some(why);
    assert_eq!(
        bench.seen(),
        [
            (1, Some(0), 8, None),
            (1, Some(5), 7, lost(Reason::PathId)),
            (1, Some(9), 8, lost(Reason::PathId)),
            (2, None, 7, lost(Reason::Origin)),
        ]
    );
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(1)), PeerCounts { paths: 3, best: 1 });
    // Other attributes replace the path of their identifier alone.
    bench.paths(&one, Some(&set(2, 6)), [0]);
    assert_eq!(bench.seen()[0], (1, Some(5), 7, None));
    assert_eq!(bench.seen().len(), 4);
    // Unknown identifiers withdraw nothing, nor do those of another session.
    bench.paths(&one, None, [4, 6]);
    bench.routes(&two, None, [0]);
    assert_eq!(bench.seen().len(), 3);
    bench.paths(&one, None, [5, 0, 9]);
    assert_eq!(bench.seen(), []);
    let counts = bench.shard.counts();
    assert_eq!(
        (counts.attribute_sets, counts.next_hops, counts.families[AfiSafi::Ipv4Unicast].paths),
        (0, 0, 0)
    );
}

#[test]
fn lowest_path_identifier_wins_in_any_order_of_arrival() {
    let one = several(1, 1);
    for ids in [[3, 4, 5], [5, 4, 3], [4, 3, 5], [5, 3, 4]] {
        let mut bench = bench(DecisionOptions::default(), &[&one]);
        ids.into_iter().for_each(|id| bench.paths(&one, Some(&set(0, id as u8)), [id]));
        assert_eq!(bench.seen()[0], (1, Some(3), 3, None), "{ids:?}");
        bench.paths(&one, None, [3]);
        assert_eq!(bench.seen()[0], (1, Some(4), 4, None), "{ids:?}");
    }
}

#[test]
fn equal_paths_are_no_change_for_workers() {
    let one = several(1, 1);
    let mut bench = bench(DecisionOptions::default(), &[&one]);
    bench.paths(&one, Some(&set(0, 7)), [5]);
    bench.out.take();
    bench.paths(&one, Some(&set(0, 7)), [3]);
    bench.paths(&one, None, [3]);
    bench.paths(&one, Some(&set(0, 7)), [9]);
    bench.paths(&one, None, [5]);
    let effects = bench.out.take();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0));
    assert_eq!(bench.seen(), [(1, Some(9), 7, None)]);
    // Nor in the next session of the peer, whatever it calls the path.
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::NONE });
    let next = several(1, 2);
    bench.handle(ShardIn::PeerUp(next.clone()));
    bench.paths(&next, Some(&set(0, 7)), [4]);
    let effects = bench.finish();
    assert_eq!((sources(&effects), fed(&effects.feed)), (vec![], 0));
    assert_eq!(bench.seen(), [(1, Some(4), 7, None)]);
}

#[test]
fn paths_of_one_session_share_traffic_and_go_with_it() {
    let options = DecisionOptions { maximum_paths: 4, ..DecisionOptions::default() };
    let one = several(1, 1);
    let mut bench = bench(options, &[&one]);
    for (id, hop) in [(1, 7), (2, 8), (3, 7), (4, 9)] {
        bench.paths(&one, Some(&set(0, hop)), [id]);
    }
    let hops = |bench: &Bench| {
        let fed = bench.shard.fed_of(prefix(0).any());
        fed.map(|fed| fed.set.next_hops.iter().map(|(hop, _)| hop.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(hops(&bench).unwrap(), ["192.0.2.7", "192.0.2.8", "192.0.2.9"]);
    bench.paths(&one, None, [1]);
    assert_eq!(hops(&bench).unwrap(), ["192.0.2.7", "192.0.2.8", "192.0.2.9"], "by path 3");
    bench.paths(&one, None, [3]);
    assert_eq!(hops(&bench).unwrap(), ["192.0.2.8", "192.0.2.9"]);
    bench.out.take();
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::NONE });
    let effects = bench.finish();
    assert_eq!((effects.purged, hops(&bench)), (vec![(PeerId(1), 1)], None));
    assert_eq!(sources(&Effects { purged: vec![], ..effects }).last(), Some(&(Some(1), None)));
    assert_eq!(bench.shard.counts().attribute_sets, 0);
}

#[test]
fn paths_beyond_the_most_of_a_session_are_dropped_and_counted() {
    let (one, two) = (several(1, 1), several(2, 1));
    let mut bench = bench(DecisionOptions::default(), &[&one, &two]);
    bench.paths(&one, Some(&set(1, 7)), 0..20);
    let counts = bench.shard.counts();
    assert_eq!(
        (counts.families[AfiSafi::Ipv4Unicast].paths, counts.surplus, counts.attribute_sets),
        (SESSION_PATHS_MAX, 12, SESSION_PATHS_MAX)
    );
    // Those that are there may change, and others have room.
    bench.paths(&one, Some(&set(0, 8)), [3]);
    bench.paths(&two, Some(&set(0, 8)), [30]);
    bench.paths(&one, None, [0]);
    bench.paths(&one, Some(&set(0, 9)), [19]);
    let counts = bench.shard.counts();
    assert_eq!((counts.families[AfiSafi::Ipv4Unicast].paths, counts.surplus), (SESSION_PATHS_MAX + 1, 12));
    assert!(bench.seen().contains(&(1, Some(19), 9, Some(Reason::PathId))));
    for info in [&one, &two] {
        bench.handle(ShardIn::PeerDown { peer: info.id, session: 1, retained: FamilySet::NONE });
    }
    bench.finish();
    let counts = bench.shard.counts();
    assert_eq!(
        (counts.families[AfiSafi::Ipv4Unicast].paths, counts.attribute_sets, counts.next_hops),
        (0, 0, 0)
    );
}

#[test]
fn identifiers_stay_when_a_next_hop_depends_on_its_prefix_and_when_the_prefix_moves() {
    let far = Arc::new(PeerInfo { multihop: true, ..(*several(3, 1)).clone() });
    let mut bench = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    bench.handle(ShardIn::PeerUp(far.clone()));
    // Prefix 0 is 0.0.0.0/24.
    let inside = AttrSet::new(&[0x40, 1, 1, 0], NextHop::V4(Ipv4Addr::new(0, 0, 0, 9)));
    bench.paths(&far, Some(&inside), [1, 2]);
    bench.paths(&far, Some(&set(0, 7)), [3, 4]);
    let of = |address: &str, exclude: bool| TrackedNextHop {
        address: address.parse().unwrap(),
        recursive: true,
        exclude: exclude.then(|| prefix(0).any()),
    };
    let mut uses = bench.finish().next_hops;
    uses.sort_unstable();
    assert_eq!(uses, [(of("0.0.0.9", true), true), (of("192.0.2.7", false), true)]);
    bench.handle(ShardIn::NextHops(vec![(of("192.0.2.7", true), NextHopState::PerPrefix)]));
    let mut uses = bench.finish().next_hops;
    uses.sort_unstable();
    assert_eq!(uses, [(of("192.0.2.7", false), false), (of("192.0.2.7", true), true)]);
    let reachable = NextHopState::Reachable { cost: 0, partial: false };
    bench.handle(ShardIn::NextHops(vec![
        (of("192.0.2.7", true), reachable),
        (of("0.0.0.9", true), reachable),
    ]));
    assert_eq!(sources(&bench.finish()), [(None, Some(3))]);
    let mut ids: Vec<_> = bench.seen().into_iter().map(|(_, id, hop, _)| (id, hop)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(Some(1), 9), (Some(2), 9), (Some(3), 7), (Some(4), 7)]);
    // Without its identifiers, the new owner would have one path.
    let mut fresh = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    let moved = bench.shard.extract(logical_shard(prefix(0)), Cut::START, usize::MAX, &mut bench.out);
    assert_eq!(moved.paths(), 4);
    fresh.shard.adopt(moved, &mut fresh.out);
    let before = fresh.seen();
    fresh.paths(&far, Some(&inside), [1]);
    fresh.paths(&far, Some(&set(0, 7)), [4]);
    assert_eq!(fresh.seen(), before, "the same again");
    fresh.paths(&far, None, [1, 3]);
    let mut ids: Vec<_> = fresh.seen().into_iter().map(|(_, id, hop, _)| (id, hop)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(Some(2), 9), (Some(4), 7)]);
    assert_eq!(bench.shard.counts().attribute_sets, 0);
}

/// The paths of prefix 0: identifier, last byte of the next hop, and whether it is retained.
fn retained(bench: &Bench) -> Vec<(Option<u32>, u8, bool)> {
    let view = bench.shard.lookup(prefix(0));
    let stale = view.iter().flat_map(|view| view.paths.iter().map(|path| path.stale));
    let mut rows: Vec<_> =
        bench.seen().into_iter().zip(stale).map(|((_, id, hop, _), stale)| (id, hop, stale)).collect();
    rows.sort_unstable();
    rows
}

/// A shard with paths 1, 2 and 3 of peer 1, whose session ended and left them; and their number.
fn lost(info: &Arc<PeerInfo>, ids: impl IntoIterator<Item = u32>) -> Bench {
    let mut bench = bench(DecisionOptions::default(), &[info]);
    ids.into_iter().for_each(|id| bench.paths(info, Some(&set(0, id as u8)), [id]));
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    bench.finish();
    bench
}

fn sweep(bench: &mut Bench) -> Effects {
    bench.handle(ShardIn::Sweep { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    bench.finish()
}

#[test]
fn retained_paths_are_replaced_by_those_of_their_identifier_alone() {
    let mut bench = lost(&several(1, 1), 1..=3);
    assert_eq!(retained(&bench), [(Some(1), 1, true), (Some(2), 2, true), (Some(3), 3, true)]);
    let next = several(1, 2);
    bench.handle(ShardIn::PeerUp(next.clone()));
    // Unchanged, and with other attributes; 9 is another identifier of what was path 3.
    bench.paths(&next, Some(&set(0, 1)), [1]);
    assert!(sources(&bench.finish()).is_empty());
    bench.paths(&next, Some(&set(0, 8)), [2]);
    bench.paths(&next, Some(&set(0, 3)), [9]);
    assert_eq!(
        retained(&bench),
        [(Some(1), 1, false), (Some(2), 8, false), (Some(3), 3, true), (Some(9), 3, false)]
    );
    assert_eq!(bench.shard.peer_counts::<V4>(PeerId(1)), PeerCounts { paths: 3, best: 1 });
    assert_eq!(bench.shard.stale_count::<V4>(PeerId(1)), 1);
    // A withdrawal takes the path of its identifier, retained or not.
    bench.paths(&next, None, [1]);
    bench.paths(&next, None, [2]);
    bench.finish();
    assert_eq!(retained(&bench), [(Some(3), 3, true), (Some(9), 3, false)]);
    // What is not announced again goes at End-of-RIB. Workers had an equal path, and see no change.
    let effects = sweep(&mut bench);
    assert_eq!((sources(&effects), effects.purged), (vec![], vec![(PeerId(1), 1)]));
    assert_eq!(retained(&bench), [(Some(9), 3, false)]);
    let mut bench = lost(&several(1, 1), 1..=3);
    bench.handle(ShardIn::PeerUp(next.clone()));
    bench.paths(&next, None, [2]);
    assert_eq!(retained(&bench), [(Some(1), 1, true), (Some(3), 3, true)]);
    sweep(&mut bench);
    assert_eq!((retained(&bench), bench.shard.counts().attribute_sets), (vec![], 0));
}

#[test]
fn retained_paths_wait_for_their_sweep_when_the_next_session_has_identifiers_and_theirs_had_none() {
    for (former, next, ids) in
        [(peer(1, 1), several(1, 2), [None, Some(0)]), (several(1, 1), peer(1, 2), [Some(0), None])]
    {
        // The identifier 0 of a session that has them is not that of a session without.
        let mut bench = lost(&former, [0]);
        bench.handle(ShardIn::PeerUp(next.clone()));
        bench.paths(&next, None, [0]);
        assert_eq!(retained(&bench), [(ids[0], 0, true)], "its withdrawal is not about that path");
        for hop in [0, 9, 0] {
            bench.paths(&next, Some(&set(0, hop)), [0]);
        }
        let mut expected = [(ids[0], 0, true), (ids[1], 0, false)];
        expected.sort_unstable();
        assert_eq!(retained(&bench), expected);
        let best = bench.shard.lookup(prefix(0)).unwrap().paths[0].clone();
        assert!(best.best && !best.stale, "of two equal ones, that of the later session");
        bench.finish();
        let effects = sweep(&mut bench);
        assert_eq!((sources(&effects), effects.purged), (vec![], vec![(PeerId(1), 1)]));
        assert_eq!(retained(&bench), [(ids[1], 0, false)]);
    }
}
