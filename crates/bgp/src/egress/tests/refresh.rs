//! The marks of a route refresh.

use super::*;

/// RFC 7313 section 4: the marks stand around the whole table, an empty one too, and only where the member understands them.
#[test]
fn refresh_of_a_member_that_understands_it_has_marks_around_the_table() {
    let infos: Vec<PeerInfo> = (0..2).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    let path = BestPath { attrs: attrs(3), source: PeerId(9) };
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
