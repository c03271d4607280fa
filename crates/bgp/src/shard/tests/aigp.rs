//! Paths with an accumulated IGP metric (RFC 7311).

use super::*;
use crate::message::UNKNOWN_DISTANCE;
use ribtide_wire::bgp::attribute::{aigp, code};
use ribtide_wire::bgp::{AsPath, build};

/// Attributes with so many ASes in the path, this metric, and this last byte of the next hop.
fn set(hops: u8, metric: Option<u64>, hop: u8) -> AttrSet {
    let mut bytes = vec![0x40, 1, 1, 0];
    build::as_path(&mut bytes, AsPath::new(&build::prepend(AsPath::default(), 65_100, hops)));
    if let Some(metric) = metric {
        build::attribute(&mut bytes, 0x80, code::AIGP, &aigp::value(metric));
    }
    AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(192, 0, 2, hop)))
}

/// What workers learn: the source, its metric, and the distance to its next hop.
fn news(effects: &Effects) -> Vec<(u32, Option<u64>, Option<u32>)> {
    let mut news = Vec::new();
    for effect in &effects.egress {
        let ToEgress::All(batch) = effect else { continue };
        for change in batch.changes.v4.iter().filter(|change| change.new != NONE) {
            let path = &batch.paths[change.new as usize];
            news.push((path.source.0, path.attrs.aigp(), path.attrs.distance()));
        }
    }
    news
}

fn tracking() -> Bench {
    let mut bench = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    for n in [1, 2] {
        bench.handle(ShardIn::PeerUp(peer(n, 1)));
    }
    bench
}

fn far(bench: &mut Bench, hop: &str, cost: u32) {
    bench.handle(ShardIn::NextHops(vec![(next_hop(hop), NextHopState::Reachable { cost, partial: false })]));
}

#[test]
fn metric_with_the_interior_cost_counts_before_the_length_of_the_path() {
    let (mut bench, one, two) = (tracking(), peer(1, 1), peer(2, 1));
    bench.routes(&one, Some(&set(1, None, 1)), [0]);
    far(&mut bench, "192.0.2.1", 0);
    assert_eq!(news(&bench.finish()), [(1, None, None)]);
    // RFC 7311 section 4.1: a path with the metric before all without.
    bench.routes(&two, Some(&set(9, Some(100), 2)), [0]);
    far(&mut bench, "192.0.2.2", 20);
    assert_eq!(news(&bench.finish()), [(2, Some(100), Some(20))]);
    bench.routes(&one, Some(&set(1, Some(121), 1)), [0]);
    assert_eq!(news(&bench.finish()), [], "121 + 0 is more than 100 + 20");
    let lost = |bench: &Bench| -> Vec<Option<Reason>> {
        bench.shard.lookup(prefix(0)).unwrap().paths.iter().map(|path| path.lost).collect()
    };
    assert_eq!(lost(&bench), [None, Some(Reason::Aigp)]);
    // The way to the first next hop is longer now.
    far(&mut bench, "192.0.2.2", 22);
    assert_eq!(news(&bench.finish()), [(1, Some(121), Some(0))]);
    // Equal sums: the length of the path decides.
    far(&mut bench, "192.0.2.2", 21);
    bench.finish();
    assert_eq!(lost(&bench), [None, Some(Reason::AsPathLength)]);
}

/// RFC 7311 section 3.4.3: "Any change … MUST trigger a new AIGP computation for that route."
#[test]
fn another_distance_is_told_and_paths_without_the_metric_are_not_told_again() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    bench.routes(&one, Some(&set(1, Some(5), 1)), [0, 1]);
    bench.routes(&one, Some(&set(1, None, 1)), [2]);
    assert_eq!(news(&bench.finish()), [], "the next hop is unknown");
    far(&mut bench, "192.0.2.1", 30);
    let mut first = news(&bench.finish());
    first.sort();
    assert_eq!(first, [(1, None, None), (1, Some(5), Some(30)), (1, Some(5), Some(30))]);
    far(&mut bench, "192.0.2.1", 40);
    let effects = bench.finish();
    assert_eq!(news(&effects), [(1, Some(5), Some(40)); 2]);
    assert_eq!(fed(&effects.feed), 0, "the next hops are the same");
    // What comes again is the same, and what comes later has the present distance.
    bench.routes(&one, Some(&set(1, Some(5), 1)), [0, 3]);
    assert_eq!(news(&bench.finish()), [(1, Some(5), Some(40))]);
    let counts = bench.shard.counts();
    assert_eq!((counts.attribute_sets, counts.families[AfiSafi::Ipv4Unicast].best), (2, 4));
    // An unreachable next hop has none, and nothing is left in the end.
    bench.handle(ShardIn::NextHops(vec![(next_hop("192.0.2.1"), NextHopState::Unreachable)]));
    bench.finish();
    far(&mut bench, "192.0.2.1", 7);
    assert_eq!(news(&bench.finish()).len(), 4);
    bench.routes(&one, None, 0..4);
    bench.finish();
    assert_eq!(bench.shard.counts().attribute_sets, 0);
    assert!(!bench.shard.core.attrs.has_aigp());
}

/// RFC 7311 section 4.2: what resolves next hops through a route has its metric.
#[test]
fn feed_has_the_metric_and_changes_with_it() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    let kinds = |bench: &mut Bench, metric: Option<u64>| -> Vec<u32> {
        bench.routes(&one, Some(&set(1, metric, 1)), [0]);
        bench.finish().feed.sets.iter().map(|set| set.kind.aigp).collect()
    };
    assert_eq!(kinds(&mut bench, None), [0]);
    assert_eq!(kinds(&mut bench, Some(5)), [5]);
    assert_eq!(kinds(&mut bench, Some(5)), [0; 0]);
    assert_eq!(kinds(&mut bench, Some(0)), [1], "0 stands for none");
    assert_eq!(kinds(&mut bench, Some(1 << 40)), [u32::MAX]);
    assert_eq!(kinds(&mut bench, None), [0]);
}

/// RFC 7311 section 3.4.3: where a part of the way is not known, no metric is passed on.
#[test]
fn partial_way_has_no_distance() {
    let (mut bench, one) = (tracking(), peer(1, 1));
    bench.routes(&one, Some(&set(1, Some(5), 1)), [0]);
    let report = |bench: &mut Bench, partial| {
        let state = NextHopState::Reachable { cost: 3, partial };
        bench.handle(ShardIn::NextHops(vec![(next_hop("192.0.2.1"), state)]));
        news(&bench.finish())
    };
    assert_eq!(report(&mut bench, true), [(1, Some(5), Some(UNKNOWN_DISTANCE))]);
    assert_eq!(report(&mut bench, false), [(1, Some(5), Some(3))]);
    assert_eq!(report(&mut bench, true), [(1, Some(5), Some(UNKNOWN_DISTANCE))]);
    far(&mut bench, "192.0.2.1", u32::MAX);
    assert_eq!(news(&bench.finish()), [(1, Some(5), Some(UNKNOWN_DISTANCE - 1))]);
}
