//! Paths that an aggregate suppresses.

use super::*;

/// Three groups: without `unsuppress`, with one that accepts, and with one that rejects.
#[test]
fn suppressed_paths_go_to_groups_that_unsuppress_them() {
    let mut infos = [1, 2, 3].map(|id| peer(id, PeerKind::Client));
    infos[1].egress.unsuppress = Some(Arc::new(Policy::accept()));
    infos[2].egress.unsuppress = Some(Arc::new(Policy::reject()));
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::Client))));
    let (shown, hidden) = (attrs(3), attrs(3));
    let path = |attrs: &AttrSet, suppressed| BestPath { attrs: attrs.clone(), source: PeerId(9), suppressed };
    let (shown, marked) = (path(&shown, false), path(&hidden, true));
    let mut tables = BTreeMap::new();
    let mut step = |old: Option<&BestPath>, new: Option<&BestPath>| -> Vec<usize> {
        let batch = best_batch(&[(p4("10.0.0.0/8"), old, new)]);
        worker.handle(EgressIn::Best(Arc::new(batch)));
        read_all(&flushed(&mut worker), &infos, &mut tables);
        let of = |info: &PeerInfo| tables.iter().find(|(receiver, _)| receiver.peer == info.id);
        infos.iter().map(|info| of(info).map_or(0, |(_, table)| table.routes.len())).collect()
    };
    assert_eq!(step(None, Some(&marked)), [0, 1, 0]);
    assert_eq!(step(Some(&marked), Some(&shown)), [1, 1, 1]);
    assert_eq!(step(Some(&shown), Some(&marked)), [0, 1, 0]);
    assert_eq!(step(Some(&marked), None), [0, 0, 0]);
    // What a member is sent, and why not.
    let mut of = |id: u32| {
        let page = [(p4("10.0.0.0/8"), marked.clone())];
        let sent = worker.adj_rib_out(PeerId(id), &page).unwrap();
        (sent[0].is_some(), worker.advertised(PeerId(id), page[0].0, &marked).1)
    };
    assert!(!of(1).0);
    assert!(of(1).1[0].contains("an aggregate suppresses it"));
    assert!(of(2).0 && !of(3).0);
}
