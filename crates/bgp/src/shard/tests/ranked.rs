//! The ranked paths of prefixes, for workers that need more than the best of each.

use super::*;

/// The ranked paths of prefix 0 by source and identifier, former and new, of each change; those of a dump
/// have no former ones.
type RankedChanges = Vec<(Vec<(u32, u32)>, Vec<(u32, u32)>)>;

/// The identifier of the only path of a peer without path identifiers.
fn id(peer: u32) -> u32 {
    (peer + 1) << 16
}

fn several(n: u32, session: u32) -> Arc<PeerInfo> {
    Arc::new(PeerInfo { path_ids: FamilySet::ALL, ..(*peer(n, session)).clone() })
}

impl Bench {
    fn request_ranked(&mut self) {
        let scope = DumpScope::default();
        let request = DumpRequest { worker: 0, token: 1, family: AfiSafi::Ipv4Unicast, scope, ranked: true };
        self.handle(ShardIn::Dump(request));
    }

    /// The changes and dumped paths since the last call.
    fn ranked(&mut self) -> RankedChanges {
        while self.shard.work_left() {
            self.shard.step(&mut self.out);
        }
        self.shard.send_ranked(&mut self.out);
        let mut changes = Vec::new();
        for effect in self.out.take().egress {
            let (ToEgress::Ranked(batch) | ToEgress::One(_, EgressIn::RankedDump { batch, .. })) = effect
            else {
                continue;
            };
            for change in batch.changes.get::<V4>() {
                assert_eq!(change.prefix, prefix(0));
                let (old, new) = batch.of(change);
                let row =
                    |path: &crate::message::RankedPath| (batch.paths[path.path as usize].source.0, path.id);
                changes.push((old.iter().map(row).collect(), new.iter().map(row).collect()));
            }
        }
        changes
    }

    fn path(&mut self, from: &PeerInfo, attrs: Option<&AttrSet>, path_id: u32) {
        let mut batches = ShardBatches::new([0; 64]);
        let path = ribtide_wire::bgp::nlri::PathPrefix { prefix: prefix(0), path_id };
        batches.extend(from, attrs, std::iter::once(path));
        let batches: Vec<_> = batches.drain().collect();
        batches.into_iter().for_each(|(_, batch)| self.handle(ShardIn::Routes(batch)));
    }
}

#[test]
fn ranked_paths_are_sent_from_the_first_dump_on_and_as_long_as_a_worker_needs_them() {
    let (mut bench, one, two) = (Bench::new(), peer(1, 1), peer(2, 1));
    let (first, second) = ((1, id(1)), (2, id(2)));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(bench.ranked(), [], "no worker needs them");
    bench.request_ranked();
    assert_eq!(bench.ranked(), [(vec![], vec![first])]);
    // A path that is not the best is a change too.
    bench.routes(&two, Some(&set(1, 8)), [0]);
    assert_eq!(bench.ranked(), [(vec![first], vec![first, second])]);
    // Several changes of a batch are one, or none.
    bench.routes(&two, Some(&set(2, 8)), [0]);
    bench.routes(&two, Some(&set(1, 8)), [0]);
    assert_eq!(bench.ranked(), []);
    bench.routes(&one, Some(&set(2, 7)), [0]);
    bench.routes(&two, Some(&set(0, 8)), [0]);
    assert_eq!(bench.ranked(), [(vec![first, second], vec![second, first])]);
    let hop = next_hop("192.0.2.8");
    bench.handle(ShardIn::NextHops(vec![(hop, NextHopState::Unreachable)]));
    assert_eq!(bench.ranked(), [(vec![second, first], vec![first])]);
    // The next dump has what the changes said.
    bench.request_ranked();
    assert_eq!(bench.ranked(), [(vec![], vec![first])]);
    bench.shard.end_ranked();
    bench.handle(ShardIn::NextHops(vec![(hop, NextHopState::Reachable { cost: 0, partial: false })]));
    assert_eq!(bench.ranked(), []);
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::NONE });
    bench.handle(ShardIn::PeerDown { peer: PeerId(2), session: 1, retained: FamilySet::NONE });
    assert_eq!(bench.finish().purged.len(), 2, "no list holds a session");
    assert_eq!(bench.shard.counts().attribute_sets, 0);
}

#[test]
fn ended_session_is_reported_after_the_withdrawal_of_its_ranked_paths() {
    let (mut bench, one) = (Bench::new(), peer(1, 1));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.request_ranked();
    bench.ranked();
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::NONE });
    while bench.shard.work_left() {
        bench.shard.step(&mut bench.out);
    }
    bench.shard.send_ranked(&mut bench.out);
    let effects = bench.out.take();
    assert_eq!(effects.purged, [(PeerId(1), 1)]);
    let ranked = effects.egress.iter().filter(|effect| matches!(effect, ToEgress::Ranked(_)));
    assert_eq!(ranked.count(), 1);
}

/// RFC 7911 section 2: an identifier and its prefix name a path.
#[test]
fn identifiers_are_each_once_and_the_same_as_long_as_the_path_is_there() {
    let (one, two) = (several(1, 1), several(2, 1));
    let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    bench.handle(ShardIn::PeerUp(one.clone()));
    bench.handle(ShardIn::PeerUp(two.clone()));
    bench.request_ranked();
    let received = [0, 1, 0xffff, 0x1_0000, u32::MAX];
    for received in received {
        bench.path(&one, Some(&set(0, 7)), received);
        bench.path(&two, Some(&set(1, 7)), received);
    }
    let all = bench.ranked().pop().unwrap().1;
    let mut ids: Vec<u32> = all.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((all.len(), ids.len()), (10, 10), "{all:?}");
    assert!(ids[0] > 0 && ids.contains(&(2 << 16 | 1)) && ids.contains(&(3 << 16 | 0xffff)));
    // Other attributes and another rank change none.
    for received in received {
        bench.path(&one, Some(&set(2, 8)), received);
    }
    let (former, mut again) = bench.ranked().pop().unwrap();
    assert_eq!(former, all);
    again.sort_unstable();
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(again, sorted);
}

#[test]
fn stale_path_keeps_its_identifier_beside_a_path_that_would_have_the_same() {
    let (one, mut bench) = (peer(1, 1), Bench::new());
    bench.request_ranked();
    assert_eq!(bench.ranked(), []);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    assert_eq!(bench.ranked(), [(vec![], vec![(1, id(1))])]);
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    assert_eq!(bench.ranked(), []);
    // The next session has identifiers, so its path does not replace the stale one.
    let next = several(1, 2);
    bench.handle(ShardIn::PeerUp(next.clone()));
    bench.path(&next, Some(&set(0, 8)), 0);
    let both = bench.ranked().pop().unwrap().1;
    let (stale, new): (Vec<_>, Vec<_>) = both.iter().copied().partition(|(_, of)| *of == id(1));
    assert_eq!((stale.len(), new.len()), (1, 1), "{both:?}");
    bench.handle(ShardIn::Sweep { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    assert_eq!(bench.ranked(), [(both, new.clone())], "the new path keeps its identifier");
    bench.path(&next, Some(&set(1, 8)), 0);
    assert_eq!(bench.ranked(), [(new.clone(), new)]);
}

#[test]
fn gate_holds_all_paths_of_a_prefix() {
    let mut bench = Bench { shard: Shard::tracking(DecisionOptions::default()), out: ShardOut::default() };
    let (one, two) = (peer(1, 1), peer(2, 1));
    for info in [&one, &two] {
        bench.handle(ShardIn::PeerUp((*info).clone()));
    }
    bench.handle(ShardIn::Suppress(true));
    bench.request_ranked();
    let hops = ["192.0.2.7", "192.0.2.8"].map(next_hop);
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.routes(&two, Some(&set(1, 8)), [0]);
    bench.handle(ShardIn::NextHops(
        hops.map(|hop| (hop, NextHopState::Reachable { cost: 0, partial: false })).to_vec(),
    ));
    assert_eq!(bench.ranked(), [], "the FIB has no route of the prefix");
    let confirm = |bench: &mut Bench, blocked: &[(AnyPrefix, bool)]| {
        let fence = bench.shard.fence().unwrap_or_default();
        bench.handle(ShardIn::Confirmed(Confirmation { fence, blocked: blocked.to_vec() }));
    };
    let (first, second) = ((1, id(1)), (2, id(2)));
    confirm(&mut bench, &[]);
    assert_eq!(bench.ranked(), [(vec![], vec![first, second])]);
    // The list stays as it was while the new best path waits, though the former one is withdrawn.
    bench.routes(&one, None, [0]);
    assert_eq!(bench.ranked(), []);
    confirm(&mut bench, &[]);
    assert_eq!(bench.ranked(), [(vec![first, second], vec![second])]);
    // A path that forwards nothing needs no confirmation.
    bench.routes(&one, Some(&set(2, 7)), [0]);
    bench.handle(ShardIn::NextHops(vec![(hops[0], NextHopState::Reachable { cost: 0, partial: false })]));
    assert_eq!(bench.ranked(), [(vec![second], vec![second, first])]);
    confirm(&mut bench, &[(prefix(0).any(), true)]);
    assert_eq!(bench.ranked(), [(vec![second, first], vec![])]);
    confirm(&mut bench, &[(prefix(0).any(), false)]);
    assert_eq!(bench.ranked(), [(vec![], vec![second, first])]);
}

/// A path that becomes long-lived stale is the last of the list, though nothing else changes.
#[test]
fn a_long_lived_stale_path_is_ranked_last() {
    let mut bench = Bench { shard: Shard::new(DecisionOptions::default()), out: ShardOut::default() };
    let mut one = (*peer(1, 1)).clone();
    one.long_lived = true;
    let (two, first, second) = (peer(2, 1), (1, id(1)), (2, id(2)));
    bench.handle(ShardIn::PeerUp(Arc::new(one.clone())));
    bench.handle(ShardIn::PeerUp(two.clone()));
    bench.routes(&one, Some(&set(0, 7)), [0]);
    bench.routes(&two, Some(&set(2, 8)), [0]);
    bench.request_ranked();
    assert_eq!(bench.ranked(), [(vec![], vec![first, second])]);
    bench.handle(ShardIn::PeerDown { peer: PeerId(1), session: 1, retained: FamilySet::ALL });
    assert_eq!(bench.ranked(), []);
    bench.handle(ShardIn::LongLived { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    assert_eq!(bench.ranked(), [(vec![first, second], vec![second, first])]);
    bench.handle(ShardIn::Sweep { peer: PeerId(1), session: 1, families: FamilySet::ALL });
    assert_eq!(bench.ranked(), [(vec![second, first], vec![second])]);
}
