//! Paths that this router originates, beside those of peers.

use super::*;
use crate::decision::Reason;
use crate::peer::LocalSource;
use ribtide_prefix::V6;
use ribtide_wire::bgp::build;

/// A source of originated paths.
fn source(n: u32, source: LocalSource) -> Arc<PeerInfo> {
    Arc::new(PeerInfo { kind: PeerKind::Local(source), ..(*peer(n, 1)).clone() })
}

/// The attributes of an originated path.
fn own() -> AttrSet {
    AttrSet::new(&[0x40, 1, 1, 0, 0x40, 2, 0], NextHop::V4(Ipv4Addr::UNSPECIFIED))
}

/// A path of a peer that wins over every other one of a peer.
fn strong() -> AttrSet {
    let mut bytes = vec![0x40, 1, 1, 0];
    build::local_pref(&mut bytes, u32::MAX);
    AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(192, 0, 2, 7)))
}

/// A shard with a RIB manager, two peers and a source of each kind that a test needs.
fn bench(options: DecisionOptions, sources: &[&Arc<PeerInfo>]) -> Bench {
    let mut bench = Bench { shard: Shard::tracking(options), out: ShardOut::default() };
    for info in [peer(1, 1), peer(2, 1)].iter().chain(sources.iter().copied()) {
        bench.handle(ShardIn::PeerUp(info.clone()));
    }
    bench
}

fn reachable(bench: &mut Bench, hops: &[&str]) {
    let state = NextHopState::Reachable { cost: 0, partial: false };
    bench.handle(ShardIn::NextHops(hops.iter().map(|hop| (next_hop(hop), state)).collect()));
    while bench.shard.work_left() {
        bench.shard.step(&mut bench.out);
    }
}

#[test]
fn originated_path_wins_needs_no_next_hop_and_is_not_fed() {
    for options in [
        DecisionOptions::default(),
        DecisionOptions { maximum_paths: 4, backup_path: true, ..DecisionOptions::default() },
    ] {
        let (one, network) = (peer(1, 1), source(9, LocalSource::Network));
        let mut bench = bench(options, &[&network]);
        bench.routes(&network, Some(&own()), [0, 1]);
        let effects = bench.finish();
        assert_eq!(sources(&effects), [(None, Some(9)), (None, Some(9))]);
        assert_eq!((fed(&effects.feed), effects.next_hops), (0, vec![]), "its next hop is this router");

        // Of whatever rank the path of a peer is.
        bench.routes(&one, Some(&strong()), [0, 2]);
        reachable(&mut bench, &["192.0.2.7"]);
        let effects = bench.finish();
        assert_eq!((sources(&effects), fed(&effects.feed)), (vec![(None, Some(1))], 1), "of prefix 2 alone");
        let view = bench.shard.lookup(prefix(0)).unwrap();
        assert_eq!(
            view.paths.iter().map(|p| (p.peer.id.0, p.lost)).collect::<Vec<_>>(),
            [(9, None), (1, Some(Reason::Originated))]
        );

        // It comes to a prefix that a peer has, and goes again.
        bench.routes(&network, Some(&own()), [2]);
        let effects = bench.finish();
        assert_eq!(sources(&effects), [(Some(1), Some(9))]);
        assert_eq!(effects.feed.changes.v4, [(prefix(2), NONE)]);
        bench.routes(&network, None, [2]);
        let effects = bench.finish();
        assert_eq!(sources(&effects), [(Some(9), Some(1))]);
        assert_eq!(effects.feed.changes.v4, [(prefix(2), 0)]);

        // The source ends.
        bench.handle(ShardIn::PeerDown { peer: PeerId(9), session: 1, retained: FamilySet::NONE });
        let effects = bench.finish();
        let mut changes = sources(&effects);
        changes.sort();
        assert_eq!(changes, [(Some(9), None), (Some(9), Some(1))]);
        assert_eq!(effects.feed.changes.v4, [(prefix(0), 0)]);
        assert_eq!(effects.purged, [(PeerId(9), 1)]);
    }
}

#[test]
fn first_of_two_sources_is_advertised() {
    // By their order, and not by their numbers.
    let (network, statics) = (source(9, LocalSource::Network), source(8, LocalSource::Static));
    let address = Ipv4Addr::UNSPECIFIED.into();
    let [network, statics] = [network, statics]
        .map(|info| Arc::new(PeerInfo { address, router_id: Ipv4Addr::LOCALHOST, ..(*info).clone() }));
    let mut bench =
        bench(DecisionOptions { prefer_oldest: true, ..DecisionOptions::default() }, &[&network, &statics]);
    bench.routes(&statics, Some(&own()), [0]);
    bench.routes(&network, Some(&own()), [0]);
    assert_eq!(sources(&bench.finish()), [(None, Some(8)), (Some(8), Some(9))]);
    bench.routes(&network, None, [0]);
    assert_eq!(sources(&bench.finish()), [(Some(9), Some(8))]);
}

#[test]
fn originated_path_waits_for_the_fib_and_is_withdrawn_with_it() {
    let (one, statics) = (peer(1, 1), source(9, LocalSource::Static));
    let mut bench = bench(DecisionOptions::default(), &[&statics]);
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&statics, Some(&own()), [0]);
    assert_eq!(sources(&bench.finish()), []);
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[]));
    assert_eq!(sources(&bench.finish()), [(None, Some(9))]);

    // The path of a peer changes nothing; a refusal of a dataplane does.
    bench.routes(&one, Some(&strong()), [0]);
    reachable(&mut bench, &["192.0.2.7"]);
    assert_eq!(sources(&bench.finish()), []);
    bench.handle(confirmed(0, &[(0, true)]));
    assert_eq!(sources(&bench.finish()), [(Some(9), None)]);
    bench.handle(confirmed(0, &[(0, false)]));
    assert_eq!(sources(&bench.finish()), [(None, Some(9))]);

    // The peer's path stands in once the FIB has it; until then the former one stays.
    bench.routes(&statics, None, [0]);
    assert_eq!(sources(&bench.finish()), []);
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[]));
    assert_eq!(sources(&bench.finish()), [(Some(9), Some(1))]);

    // And the other way.
    bench.routes(&statics, Some(&own()), [0]);
    assert_eq!(sources(&bench.finish()), []);
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[]));
    assert_eq!(sources(&bench.finish()), [(Some(1), Some(9))]);
    assert_eq!(bench.shard.counts().waiting, 0);
}

#[test]
fn originated_path_asks_what_the_fib_has_of_its_prefix() {
    let statics = source(9, LocalSource::Static);
    let mut bench = bench(DecisionOptions::default(), &[&statics]);
    bench.handle(ShardIn::Suppress(true));
    // No route was there, so this changes nothing.
    bench.handle(confirmed(0, &[(0, true)]));
    bench.routes(&statics, Some(&own()), [0]);
    let effects = bench.finish();
    // The RIB manager repeats what it knows of a prefix that it is named, before the fence.
    assert_eq!(effects.feed.changes.v4, [(prefix(0), NONE)]);
    let fence = bench.shard.fence().unwrap();
    bench.handle(confirmed(fence, &[(0, true)]));
    assert_eq!(sources(&bench.finish()), []);
    bench.handle(confirmed(0, &[(0, false)]));
    assert_eq!(sources(&bench.finish()), [(None, Some(9))]);
}

#[test]
fn originated_paths_move_with_their_logical_shard() {
    let network = source(9, LocalSource::Network);
    let seed = HashSeed::random();
    let mut from = Shard::tracking(DecisionOptions::default()).with_seed(&seed);
    let mut to = Shard::tracking(DecisionOptions::default()).with_seed(&seed);
    let mut out = ShardOut::default();
    from.handle(ShardIn::PeerUp(network.clone()), &mut out);
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(&network, Some(&own()), (0..100).map(prefix));
    let all: Vec<_> = batches.drain().collect();
    all.into_iter().for_each(|(_, batch)| from.handle(ShardIn::Routes(batch), &mut out));
    out.take();
    for logical in 0..64 {
        let moved = from.extract(logical, Cut::START, usize::MAX, &mut out);
        to.adopt(moved, &mut out);
    }
    let effects = out.take();
    assert_eq!((sources(&effects), fed(&effects.feed), effects.next_hops.len()), (vec![], 0, 0));
    assert_eq!(
        (from.counts().families[AfiSafi::Ipv4Unicast].paths, to.counts().families[AfiSafi::Ipv4Unicast].best),
        (0, 100)
    );
    assert_eq!(to.peer_counts::<V6>(PeerId(9)).paths, 0);
    // There, too, it wins over the path of a peer.
    to.handle(ShardIn::PeerUp(peer(1, 1)), &mut out);
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(&peer(1, 1), Some(&strong()), (0..1).map(prefix));
    let all: Vec<_> = batches.drain().collect();
    all.into_iter().for_each(|(_, batch)| to.handle(ShardIn::Routes(batch), &mut out));
    to.handle(
        ShardIn::NextHops(vec![(next_hop("192.0.2.7"), NextHopState::Reachable { cost: 0, partial: false })]),
        &mut out,
    );
    while to.work_left() {
        to.step(&mut out);
    }
    assert_eq!(sources(&out.take()), []);
}
