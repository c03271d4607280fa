//! The marks of a route refresh.

use super::*;

/// RFC 7313 section 4: the marks stand around the whole table, an empty one too, and only where the member understands them.
#[test]
fn refresh_of_a_member_that_understands_it_has_marks_around_the_table() {
    let infos: Vec<PeerInfo> = (0..2).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    let path = BestPath { attrs: attrs(3), source: PeerId(9), suppressed: false };
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::External))));
    let change = |old: Option<&BestPath>, new: Option<&BestPath>| best_batch(&[(p4("10.0.0.0/8"), old, new)]);
    worker.handle(EgressIn::Best(Arc::new(change(None, Some(&path)))));
    let mut tables = BTreeMap::new();
    for infos in &infos {
        let receiver = Receiver { peer: infos.id, session: infos.session };
        tables.insert(receiver, Table { ends: [1, 1], ..Table::default() });
    }
    read_all(&flushed(&mut worker), &infos, &mut tables);
    for (marked, family) in
        [(true, AfiSafi::Ipv4Unicast), (true, AfiSafi::Ipv6Unicast), (false, AfiSafi::Ipv4Unicast)]
    {
        worker.handle(EgressIn::Refresh(PeerId(0), family, marked));
        for request in worker.requests() {
            let batch =
                if family == AfiSafi::Ipv4Unicast { change(None, Some(&path)) } else { BestBatch::default() };
            worker.handle(EgressIn::Dump { token: request.token, batch, last: true });
        }
        let before = tables.clone();
        read_all(&flushed(&mut worker), &infos, &mut tables);
        let family = family.codes().0;
        let expected =
            if marked { vec![(family, RefreshKind::Begin), (family, RefreshKind::End)] } else { vec![] };
        let [first, second] = &mut tables.values_mut().collect::<Vec<_>>()[..] else { panic!("two members") };
        assert_eq!((std::mem::take(&mut first.marks), first.routes.len()), (expected, 1));
        assert_eq!(Some(&**second), before.values().nth(1), "the other one is sent nothing");
    }
}

/// RFC 7313 section 4: the end follows "the re-advertisement of the entire Adj-RIB-Out". Two members that become blocked
/// while their last routes are packed share a queue afterwards, from which these are sent again.
#[test]
fn end_of_a_refresh_follows_the_routes_of_a_batch_that_was_put_back() {
    let infos: Vec<PeerInfo> = (0..5).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::External))));
    let mut tables = BTreeMap::new();
    for info in &infos {
        let receiver = Receiver { peer: info.id, session: info.session };
        tables.insert(receiver, Table { ends: [1, 1], ..Table::default() });
    }
    let prefixes: Vec<Prefix<V4>> = (0..6).map(|n| p4(&format!("10.{n}.0.0/16"))).collect();
    // Two paths of each prefix, of which none has a well-known community.
    let of = |n: usize, version: usize| BestPath {
        suppressed: false,
        attrs: attrs([2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 16, 17][n + 6 * version]),
        source: PeerId(9),
    };
    let mut versions = [None; 6];
    let mut change = |worker: &mut Worker, which: std::ops::Range<usize>| {
        for n in which {
            let old = versions[n].map(|version| of(n, version));
            let version = versions[n].map_or(0, |version: usize| 1 - version);
            versions[n] = Some(version);
            let batch = best_batch(&[(prefixes[n], old.as_ref(), Some(&of(n, version)))]);
            worker.handle(EgressIn::Best(Arc::new(batch)));
        }
        versions.map(|version| version.unwrap_or_default())
    };
    let mut packed = |worker: &mut Worker, what, times| {
        let mut out = Vec::new();
        (0..times).for_each(|_| {
            worker.flush(what, 1, &mut out);
        });
        read_all(&out, &infos, &mut tables);
        tables.values().map(|table| table.marks.len()).collect::<Vec<_>>()
    };
    let blocked = |worker: &mut Worker, peer, blocked| {
        worker.handle(EgressIn::Backlog { peer: PeerId(peer), blocked });
    };
    change(&mut worker, 0..6);
    packed(&mut worker, Flush::All, 6);
    for member in 0..2 {
        worker.handle(EgressIn::Refresh(PeerId(member), AfiSafi::Ipv4Unicast, true));
        let requests = worker.requests();
        // These are not in the table any more that the shards send, and come after it.
        let versions = change(&mut worker, 0..3);
        for request in requests {
            let paths: Vec<BestPath> = (0..6).map(|n| of(n, versions[n])).collect();
            let rows: Vec<_> = prefixes.iter().zip(&paths).map(|(p, path)| (*p, None, Some(path))).collect();
            worker.handle(EgressIn::Dump { token: request.token, batch: best_batch(&rows), last: true });
        }
        assert_eq!(packed(&mut worker, Flush::All, 4)[member as usize], 1, "the begin, and not the end");
        blocked(&mut worker, member, true);
    }
    // One cohort more is one too many, so those of the two are merged.
    blocked(&mut worker, 2, true);
    change(&mut worker, 0..6);
    packed(&mut worker, Flush::All, 1);
    assert_eq!(worker.groups()[0].cohorts, 3);
    blocked(&mut worker, 0, false);
    blocked(&mut worker, 1, false);
    // The rest of what others are being sent.
    assert_eq!(packed(&mut worker, Flush::Begun, 1)[..2], [1, 1]);
    blocked(&mut worker, 2, false);
    assert_eq!(packed(&mut worker, Flush::All, 20), [2, 2, 0, 0, 0]);
    let routes: Vec<_> = tables.values().map(|table| &table.routes).collect();
    assert!(routes.iter().all(|table| *table == routes[4] && table.len() == 6));
}
