//! Families whose routes are not installed: IPv4 multicast beside IPv4 unicast.

use super::*;
use ribtide_prefix::V4Multicast;

/// Announces a multicast prefix or withdraws it.
fn multicast(bench: &mut Bench, from: &PeerInfo, attrs: Option<&AttrSet>, n: u32) {
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(from, attrs, std::iter::once(Prefix::<V4Multicast>::from_ip(prefix(n))));
    let batches: Vec<_> = batches.drain().collect();
    batches.into_iter().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
}

/// Changes of multicast as sources: former and new.
fn multicast_sources(effects: &Effects) -> Vec<(Option<u32>, Option<u32>)> {
    let mut sources = Vec::new();
    for effect in &effects.egress {
        let ToEgress::All(batch) = effect else { continue };
        let source = |index: u32| (index != NONE).then(|| batch.paths[index as usize].source.0);
        let changes = &batch.changes.v4_multicast;
        sources.extend(changes.iter().map(|change| (source(change.old), source(change.new))));
    }
    sources
}

#[test]
fn multicast_routes_are_selected_and_advertised_and_not_fed() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    multicast(&mut bench, &two, Some(&set(1, 7)), 0);
    let effects = bench.out.take();
    assert_eq!((multicast_sources(&effects), sources(&effects)), (vec![(None, Some(2))], vec![]));
    assert_eq!((fed(&effects.feed), effects.feed.sets.len()), (0, 0));
    assert_eq!(effects.next_hops, [(next_hop("192.0.2.7"), true)], "the next hop is tracked");

    // The same prefix of unicast is another route.
    bench.routes(&one, Some(&set(0, 8)), [0]);
    let effects = bench.out.take();
    assert_eq!((multicast_sources(&effects), sources(&effects)), (vec![], vec![(None, Some(1))]));
    assert_eq!(fed(&effects.feed), 1);
    let counts = bench.shard.counts().families;
    assert_eq!(counts.iter().map(|(_, of)| of.paths).collect::<Vec<_>>(), [1, 0, 1, 0]);

    multicast(&mut bench, &one, Some(&set(0, 7)), 0);
    assert_eq!(multicast_sources(&bench.out.take()), [(Some(2), Some(1))]);
    multicast(&mut bench, &one, None, 0);
    assert_eq!(multicast_sources(&bench.out.take()), [(Some(1), Some(2))]);
    let retained = FamilySet::IPV4_UNICAST;
    bench.handle(ShardIn::PeerDown { peer: PeerId(2), session: 1, retained });
    let effects = bench.finish();
    assert_eq!((multicast_sources(&effects), fed(&effects.feed)), (vec![(Some(2), None)], 0));
}

/// Nothing is forwarded by them, so that they wait for no dataplane.
#[test]
fn multicast_routes_do_not_wait_for_the_fib() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.handle(ShardIn::Suppress(true));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    multicast(&mut bench, &one, Some(&set(0, 7)), 0);
    let effects = bench.out.take();
    assert_eq!((sources(&effects), multicast_sources(&effects)), (vec![], vec![(None, Some(1))]));
    assert!(bench.shard.fence_due());
    let (prefix, blocked) = (prefix(0).any(), true);
    bench.handle(ShardIn::Confirmed(Confirmation { fence: 0, blocked: vec![(prefix, blocked)] }));
    assert_eq!(multicast_sources(&bench.out.take()), [], "a route that the FIB lacks is one of unicast");
}

#[test]
fn multipath_of_unicast_does_not_follow_from_multicast() {
    let options = DecisionOptions { maximum_paths: 4, ..DecisionOptions::default() };
    let mut bench = Bench { shard: Shard::new(options), out: ShardOut::default() };
    let (one, two) = (peer(1, 1), peer(2, 1));
    for peer in [&one, &two] {
        bench.handle(ShardIn::PeerUp(peer.clone()));
        multicast(&mut bench, peer, Some(&set(0, 7)), 0);
    }
    assert_eq!(fed(&bench.out.take().feed), 0);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(fed(&bench.out.take().feed), 1, "the first feed of the prefix");
}
