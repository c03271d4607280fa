//! Maximum prefixes that a member may be sent.

use super::*;
use ribtide_prefix::ByFamily;
use ribtide_prefix::Rng;

const SOURCE: u32 = 9;

fn prefix(n: usize) -> Prefix<V4> {
    p4(&format!("10.{n}.0.0/16"))
}

fn limit(worker: &mut Worker, peer: u32, ipv4: u32) {
    let limits = ByFamily::only(AfiSafi::Ipv4Unicast, Some(ipv4));
    worker.handle(EgressIn::MaxPrefixes(PeerId(peer), limits));
}

/// A worker with three clients, and an external source elsewhere.
fn worker() -> (Worker, Vec<PeerInfo>) {
    let infos: Vec<PeerInfo> = (1..=3).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(SOURCE, PeerKind::External))));
    (worker, infos)
}

fn path(n: u8, source: u32) -> BestPath {
    // Not one with NO_EXPORT or NO_ADVERTISE.
    BestPath { attrs: attrs(7 * n + 3), source: PeerId(source), suppressed: false }
}

#[test]
fn limit_permits_its_number_and_removes_a_member_before_it_gets_more() {
    let (mut worker, infos) = worker();
    let mut tables = BTreeMap::new();
    limit(&mut worker, 2, 3);
    let new = path(0, SOURCE);
    let batch = |from: usize, to: usize| {
        best_batch(&(from..to).map(|n| (prefix(n), None, Some(&new))).collect::<Vec<_>>())
    };
    worker.handle(EgressIn::Best(Arc::new(batch(0, 3))));
    read_all(&flushed(&mut worker), &infos, &mut tables);
    assert_eq!(worker.take_exceeded(), []);
    worker.handle(EgressIn::Best(Arc::new(batch(3, 5))));
    read_all(&flushed(&mut worker), &infos, &mut tables);
    let member = Receiver { peer: PeerId(2), session: 1 };
    let exceeded = LimitExceeded { member, family: AfiSafi::Ipv4Unicast, count: 5, max: 3 };
    assert_eq!((worker.take_exceeded(), worker.take_exceeded()), (vec![exceeded], vec![]));
    let lens: Vec<usize> = tables.values().map(|table| table.routes.len()).collect();
    assert_eq!(lens, [5, 3, 5]);
    assert!(worker.member(PeerId(2)).is_none());
    // What the session thread still sends of the member changes nothing.
    worker.handle(EgressIn::Backlog { peer: PeerId(2), blocked: true });
    worker.handle(EgressIn::MemberDown(PeerId(2)));
    limit(&mut worker, 2, 1);
    assert_eq!((worker.groups()[0].members.len(), worker.take_exceeded()), (2, vec![]));
    // A limit below what was sent acts at once.
    limit(&mut worker, 3, 4);
    assert_eq!(worker.take_exceeded().len(), 1);
}

/// The count is that of the table that the member would have, whatever waits, is being packed, or was
/// blocked: the limit is reached exactly when a member without one has more.
#[test]
fn limit_is_exceeded_exactly_when_the_table_would_be() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut worker, infos) = worker();
        let mut tables = BTreeMap::new();
        let max = 2 + rng.index(8);
        limit(&mut worker, 2, max as u32);
        let mut best: BTreeMap<Prefix<V4>, BestPath> = BTreeMap::new();
        let would_have = |best: &BTreeMap<Prefix<V4>, BestPath>| {
            best.values().filter(|path| path.source != PeerId(2)).count()
        };
        for _ in 0..40 {
            let prefix = prefix(rng.index(14));
            let new = (!rng.one_in(3)).then(|| path(rng.index(3) as u8, [SOURCE, 1, 2][rng.index(3)]));
            let old = best.get(&prefix).cloned();
            worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, old.as_ref(), new.as_ref())]))));
            match new {
                Some(path) => best.insert(prefix, path),
                None => best.remove(&prefix),
            };
            if rng.one_in(6) {
                worker.handle(EgressIn::Backlog { peer: PeerId(2), blocked: rng.one_in(2) });
            }
            if rng.one_in(2) {
                continue;
            }
            let mut out = Vec::new();
            while worker.flush(Flush::All, 1, &mut out) {}
            read_all(&out, &infos, &mut tables);
            let has = tables.get(&Receiver { peer: PeerId(2), session: 1 }).map_or(0, |t| t.routes.len());
            assert!(has <= max, "seed {seed}: {has} routes were sent");
            let exceeded = worker.take_exceeded();
            assert_eq!(!exceeded.is_empty(), would_have(&best) > max, "seed {seed}");
            if let [one] = exceeded.as_slice() {
                assert_eq!(one.count, would_have(&best) as u64);
                break;
            }
        }
    }
}

/// A table that arrives while another cohort's batch is being packed joins that batch.
#[test]
fn table_beyond_the_limit_is_not_sent_with_a_batch_under_way() {
    let (mut worker, mut infos) = worker();
    infos.push(peer(4, PeerKind::External));
    worker.handle(EgressIn::MemberUp(Arc::new(infos[3].clone())));
    limit(&mut worker, 4, 3);
    let new: Vec<BestPath> = (0..9).map(|n| path(n, SOURCE)).collect();
    let routes: Vec<_> = new.iter().enumerate().map(|(n, path)| (prefix(n), None, Some(path))).collect();
    worker.handle(EgressIn::Best(Arc::new(best_batch(&routes))));
    let mut out = Vec::new();
    assert!(worker.flush(Flush::All, 1, &mut out), "a batch of the others is under way");
    for request in worker.requests() {
        let batch =
            if request.family == AfiSafi::Ipv4Unicast { best_batch(&routes) } else { BestBatch::default() };
        worker.handle(EgressIn::Dump { token: request.token, batch, last: true });
    }
    while worker.flush(Flush::Begun, 1, &mut out) {}
    let mut tables = BTreeMap::new();
    read_all(&out, &infos, &mut tables);
    assert!(!tables.keys().any(|receiver| receiver.peer == PeerId(4)));
    assert_eq!(worker.take_exceeded().iter().map(|one| one.count).collect::<Vec<_>>(), [9]);
}
