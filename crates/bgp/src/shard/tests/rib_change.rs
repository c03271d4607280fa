//! A RIB manager that begins or ends while sessions last.

use super::*;
use ribtide_prefix::Families;
use std::collections::BTreeMap;

/// A shard without a RIB manager, with two internal sessions.
fn without_rib(options: DecisionOptions) -> (Bench, [Arc<PeerInfo>; 2]) {
    let mut bench = Bench { shard: Shard::new(options), out: ShardOut::without_feed() };
    let internal = |n| {
        let mut info = (*peer(n, 1)).clone();
        info.kind = PeerKind::Internal;
        Arc::new(info)
    };
    let peers = [internal(1), internal(2)];
    for info in &peers {
        bench.handle(ShardIn::PeerUp(info.clone()));
    }
    (bench, peers)
}

/// What a RIB manager has after these effects: the next hops and the backup of each prefix.
#[derive(Default, PartialEq, Debug)]
struct Rib {
    routes: BTreeMap<AnyPrefix, FeedSet>,
    tracked: BTreeMap<TrackedNextHop, u32>,
}

impl Rib {
    fn take(&mut self, effects: &Effects) {
        let Feed { sets, changes: Families { v4, .. } } = &effects.feed;
        for (prefix, set) in v4 {
            let prefix = prefix.any();
            match sets.get(*set as usize) {
                Some(set) => drop(self.routes.insert(prefix, set.clone())),
                None => drop(self.routes.remove(&prefix)),
            }
        }
        for (next_hop, used) in &effects.next_hops {
            let count = self.tracked.entry(*next_hop).or_default();
            *count = if *used { *count + 1 } else { *count - 1 };
        }
        self.tracked.retain(|_, count| *count > 0);
    }
}

fn internal_hop(text: &str, exclude: Option<Prefix<V4>>) -> TrackedNextHop {
    TrackedNextHop { recursive: true, exclude: exclude.map(Prefix::any), ..next_hop(text) }
}

fn announce(bench: &mut Bench, [one, two]: &[Arc<PeerInfo>; 2]) {
    bench.routes(one, Some(&set(0, 1)), 0..3000);
    bench.routes(two, Some(&set(0, 2)), 1000..4000);
    bench.routes(two, Some(&set(0, 3)), [9]);
    // 192.0.2.4 lies inside the prefix.
    let mut batches = ShardBatches::new([0; 64]);
    batches.extend(one, Some(&set(0, 4)), [inside()].into_iter());
    batches.drain().for_each(|(_, batch)| bench.handle(ShardIn::Routes(batch)));
}

fn inside() -> Prefix<V4> {
    "192.0.2.0/24".parse().unwrap()
}

fn report(bench: &mut Bench, hop: TrackedNextHop, state: NextHopState) {
    bench.handle(ShardIn::NextHops(vec![(hop, state)]));
}

/// A RIB manager that begins late has what one has that was there from the start; nothing is advertised for that. The
/// reports change what workers have only where a next hop does not resolve.
#[test]
fn rib_that_begins_gets_what_one_has_from_the_start() {
    for options in [
        DecisionOptions::default(),
        DecisionOptions { maximum_paths: 4, backup_path: true, ..DecisionOptions::default() },
    ] {
        let (mut late, peers) = without_rib(options);
        announce(&mut late, &peers);
        late.finish();
        late.shard.begin_feed(&mut late.out);
        // A change while the scan is under way.
        late.shard.step(&mut late.out);
        let mut rib = Rib::default();
        rib.take(&late.out.take());
        late.routes(&peers[1], None, [1, 1500, 3999]);
        late.routes(&peers[0], Some(&set(0, 5)), [2, 7000]);
        let news = late.out.take();
        rib.take(&news);
        assert_eq!(sources(&news).len(), 3, "{:?}", sources(&news));
        let rest = late.finish();
        assert!(rest.egress.is_empty() && !late.shard.is_feeding());
        rib.take(&rest);
        assert_eq!(rib.tracked.len(), 0, "next hops are registered in a second step");
        late.shard.begin_tracking(&mut late.out);
        rib.take(&late.finish());

        let (_, peers) = without_rib(options);
        let mut early = Bench { shard: Shard::tracking(options), out: ShardOut::default() };
        peers.iter().for_each(|info| early.handle(ShardIn::PeerUp(info.clone())));
        announce(&mut early, &peers);
        early.routes(&peers[1], None, [1, 1500, 3999]);
        early.routes(&peers[0], Some(&set(0, 5)), [2, 7000]);
        let mut wanted = Rib::default();
        wanted.take(&early.finish());
        assert!(wanted.tracked.contains_key(&internal_hop("192.0.2.4", Some(inside()))));
        // Where several paths forward, the early one awaits the states before it knows them.
        let hops: Vec<TrackedNextHop> = wanted.tracked.keys().copied().collect();
        for (bench, rib) in [(&mut late, &mut rib), (&mut early, &mut wanted)] {
            for hop in &hops {
                report(bench, *hop, NextHopState::Reachable { cost: 0, partial: false });
            }
            rib.take(&bench.finish());
        }
        assert_eq!(rib, wanted);
        // Now one is unreachable: only its routes change.
        let lost = internal_hop("192.0.2.5", None);
        report(&mut late, lost, NextHopState::Unreachable);
        let effects = late.finish();
        assert_eq!(sources(&effects), [(Some(1), None), (Some(1), None)]);
        report(&mut late, internal_hop("192.0.2.4", Some(inside())), NextHopState::Unreachable);
        assert_eq!(sources(&late.finish()), [(Some(1), None)]);
    }
}

/// At the end of the RIB manager whatever it held back is advertised, and nothing is left of it when another begins.
#[test]
fn rib_that_ends_holds_nothing_back() {
    let options = DecisionOptions { maximum_paths: 4, ..DecisionOptions::default() };
    let (_, peers) = without_rib(options);
    let mut bench = Bench { shard: Shard::tracking(options), out: ShardOut::default() };
    peers.iter().for_each(|info| bench.handle(ShardIn::PeerUp(info.clone())));
    bench.handle(ShardIn::Suppress(true));
    announce(&mut bench, &peers);
    report(&mut bench, internal_hop("192.0.2.1", None), NextHopState::Reachable { cost: 5, partial: false });
    report(&mut bench, internal_hop("192.0.2.2", None), NextHopState::Unreachable);
    bench.finish();
    let fence = bench.shard.fence();
    assert!(fence.is_some());
    assert_eq!(bench.shard.counts().waiting, 3000, "no dataplane has confirmed");
    bench.shard.end_feed(&mut bench.out);
    let effects = bench.finish();
    assert!(effects.feed.changes.v4.is_empty() && effects.next_hops.is_empty());
    assert_eq!(sources(&effects).iter().filter(|change| change.1.is_some()).count(), 4001);
    let counts = bench.shard.counts();
    assert_eq!((counts.waiting, counts.blocked, counts.families[AfiSafi::Ipv4Unicast].hidden), (0, 0, 0));
    let forwarding = |bench: &Bench| bench.shard.lookup(prefix(1500)).unwrap();
    assert!(
        forwarding(&bench)
            .paths
            .iter()
            .all(|path| path.lost.is_none_or(|lost| lost != Reason::NextHopUnknown))
    );
    // A late confirmation of it says nothing to anyone.
    bench.handle(ShardIn::Confirmed(Confirmation { fence: fence.unwrap(), blocked: Vec::new() }));
    assert!(bench.finish().egress.is_empty());
    // The next one gets all, and suppression is on again for later changes alone.
    bench.shard.begin_feed(&mut bench.out);
    bench.handle(ShardIn::Suppress(true));
    let mut rib = Rib::default();
    rib.take(&bench.finish());
    bench.shard.begin_tracking(&mut bench.out);
    rib.take(&bench.finish());
    assert_eq!((rib.routes.len(), rib.tracked.len()), (4001, 4));
    assert_eq!(rib.routes[&prefix(1500).any()].next_hops.len(), 2, "several paths forward");
    assert_eq!(bench.shard.counts().waiting, 0);
    bench.routes(&peers[1], Some(&set(0, 1)), [3500]);
    assert_eq!(bench.shard.counts().waiting, 1);
}
