//! Members that get several paths of a prefix (RFC 7911), or a best path of their own (RFC 7947 section 2.3.2).

use super::*;
use crate::message::{RankedBatch, RankedChange, RankedPath};
use crate::peer::{PathSelection, SentPaths};
use ribtide_prefix::ByFamily;
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use std::num::NonZeroU16;

/// A member that gets several paths of an IPv4 prefix.
fn several(id: u32, kind: PeerKind, selection: PathSelection) -> PeerInfo {
    let mut info = peer(id, kind);
    info.egress.add_path.0[AfiSafi::Ipv4Unicast] = Some(selection);
    info
}

fn best(count: u16) -> PathSelection {
    PathSelection::Best(NonZeroU16::new(count).unwrap())
}

/// A path of this source, with an AS path that begins with `asn`, and a community if `tagged`.
fn path(source: u32, asn: u32, tagged: bool) -> BestPath {
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    build::as_path(&mut bytes, AsPath::new(&build::prepend(AsPath::default(), asn, 1)));
    if tagged {
        build::list(&mut bytes, 0xc0, code::COMMUNITIES, &[0xfd, 0xe8, 0, 1]);
    }
    let hop = NextHop::V4(Ipv4Addr::new(198, 51, 100, source as u8));
    BestPath { attrs: AttrSet::new(&bytes, hop), source: PeerId(source), suppressed: false }
}

/// A path with its identifier, and whether it equals the best.
type Row<'a> = (u32, &'a BestPath, bool);

/// A change of the ranked paths of 10.0.0.0/8.
fn ranked(old: &[Row<'_>], new: &[Row<'_>]) -> RankedBatch {
    let mut batch = RankedBatch::default();
    for (id, path, equal) in old.iter().chain(new) {
        batch.ranked.push(RankedPath { path: batch.paths.len() as u32, id: *id, equal: *equal });
        batch.paths.push((*path).clone());
    }
    let (old, new) = (old.len() as u32, new.len() as u32);
    batch.changes.v4.push(RankedChange { prefix: p4("10.0.0.0/8"), start: 0, old, new });
    batch
}

/// Sources 10 to 19 and the members, which have joined the table with these paths.
fn with_table(infos: &[PeerInfo], rows: &[Row<'_>]) -> Worker {
    let mut worker = Worker::new(0, 1);
    for id in 10..20 {
        worker.handle(EgressIn::SourceUp(Arc::new(peer(id, PeerKind::External))));
    }
    infos.iter().for_each(|info| worker.handle(EgressIn::MemberUp(Arc::new(info.clone()))));
    dump(&mut worker, rows);
    worker
}

/// Answers requests of dumps.
fn dump(worker: &mut Worker, rows: &[Row<'_>]) {
    loop {
        let requests = worker.requests();
        if requests.is_empty() {
            return;
        }
        for request in requests {
            let token = request.token;
            let ipv4 = request.family == AfiSafi::Ipv4Unicast;
            worker.handle(match request.ranked {
                true if ipv4 => EgressIn::RankedDump { token, batch: ranked(&[], rows), last: true },
                true => EgressIn::RankedDump { token, batch: RankedBatch::default(), last: true },
                false if ipv4 => {
                    let best = rows.first().map(|(_, path, _)| *path);
                    let batch = best_batch(&[(p4("10.0.0.0/8"), None, best)]);
                    EgressIn::Dump { token, batch, last: true }
                }
                false => EgressIn::Dump { token, batch: BestBatch::default(), last: true },
            });
        }
    }
}

/// The paths of each receiver: identifier, 0 without, and the source that the next hop or the AS path tells.
#[derive(Default)]
struct Received(BTreeMap<u32, BTreeMap<u32, u32>>, u64);

impl Received {
    fn read(&mut self, worker: &mut Worker, infos: &[PeerInfo]) {
        for write in flushed(worker) {
            for receiver in write.receivers() {
                let info = infos.iter().find(|info| info.id == receiver.peer).unwrap();
                let path_ids = info.egress.add_path.families();
                let table = self.0.entry(receiver.peer.0).or_default();
                let mut bytes = &write.chunk[..];
                while !bytes.is_empty() {
                    let frame = frame(bytes, 4096).unwrap().unwrap();
                    let context = UpdateContext { path_ids, ..UpdateContext::new(true, false) };
                    let update = update::parse(frame.body, &context).unwrap();
                    assert_eq!(update.disposition(), update::Disposition::Normal);
                    self.1 += 1;
                    match path_ids.has(AfiSafi::Ipv4Unicast) {
                        true => read::<PathPrefix<V4>>(&update, table),
                        false => read::<Prefix<V4>>(&update, table),
                    }
                    bytes = &bytes[frame.total_len..];
                }
            }
        }
    }

    fn of(&self, peer: u32) -> Vec<(u32, u32)> {
        self.0.get(&peer).into_iter().flatten().map(|(id, source)| (*id, *source)).collect()
    }
}

/// What the Adj-RIB-Out of a member has of 10.0.0.0/8, as [`Received::of`].
fn viewed(worker: &mut Worker, peer: u32, rows: &[Row<'_>]) -> Vec<(u32, u32)> {
    // Paths of another prefix go before them.
    let mut page = RankedBatch::default();
    let other = path(19, 9, false);
    page.append(&ranked(&[(4, &other, true)], &[(4, &other, true), (3, &other, true)]));
    page.append(&ranked(&[], rows));
    let sent = worker.ranked_adj_rib_out::<V4>(PeerId(peer), &page).unwrap();
    assert_eq!(sent.len(), 2);
    let row = |path: &AdvertisedPath| {
        let NextHop::V4(hop) = path.form.next_hop else { panic!("an IPv4 next hop") };
        (path.id.unwrap_or(0), u32::from(hop.octets()[3]))
    };
    let viewed: Vec<_> = sent[1].iter().map(row).collect();
    let prefix = p4("10.0.0.0/8");
    let reasons = worker.ranked_reasons(PeerId(peer), prefix, &ranked(&[], rows));
    let said = reasons.iter().filter(|reason| reason.ends_with(": sent")).count();
    assert_eq!(said, viewed.len(), "{reasons:?}");
    viewed
}

fn read<N: Nlri<Family = V4>>(update: &update::Update<'_>, table: &mut BTreeMap<u32, u32>) {
    for nlri in update.withdrawn_nlri::<N>() {
        table.remove(&nlri.path_id());
    }
    for nlri in update.announced_nlri::<N>() {
        let Some(NextHop::V4(hop)) = update.next_hop::<V4>() else { panic!("an IPv4 next hop") };
        table.insert(nlri.path_id(), u32::from(hop.octets()[3]));
    }
}

#[test]
fn each_selection_sends_its_paths_under_their_identifiers() {
    let (a, b, c, d) = (path(11, 1, false), path(12, 2, false), path(13, 1, false), path(14, 3, false));
    let rows = [(5, &a, true), (9, &b, true), (7, &c, false), (8, &d, false)];
    let mut infos = vec![peer(1, PeerKind::Client)];
    let selections = [PathSelection::All, best(1), best(3), PathSelection::Ecmp, PathSelection::PerAs];
    infos.extend((2..).zip(selections).map(|(id, selection)| several(id, PeerKind::Client, selection)));
    let mut worker = with_table(&infos, &rows);
    let mut received = Received::default();
    received.read(&mut worker, &infos);
    assert_eq!(received.of(1), [(0, 11)]);
    assert_eq!(received.of(2), [(5, 11), (7, 13), (8, 14), (9, 12)]);
    assert_eq!(received.of(3), [(5, 11)]);
    assert_eq!(received.of(4), [(5, 11), (7, 13), (9, 12)]);
    assert_eq!(received.of(5), [(5, 11), (9, 12)]);
    assert_eq!(received.of(6), [(5, 11), (8, 14), (9, 12)]);
    for peer in 2..=6 {
        assert_eq!(worker.member_takes_ranked(PeerId(peer), AfiSafi::Ipv4Unicast), Some(true));
        assert_eq!(viewed(&mut worker, peer, &rows), received.of(peer), "member {peer}");
    }
    assert_eq!(worker.member_takes_ranked(PeerId(1), AfiSafi::Ipv4Unicast), Some(false));
    assert_eq!(worker.member_takes_ranked(PeerId(2), AfiSafi::Ipv6Unicast), Some(false));
    assert_eq!(worker.ranked_adj_rib_out::<V4>(PeerId(99), &RankedBatch::default()), None);
    assert_eq!(worker.member(PeerId(2)).unwrap().advertised[AfiSafi::Ipv4Unicast], 4);
    // The best path goes: only the differences are sent.
    let before = received.1;
    let left = [(9, &b, true), (7, &c, false), (8, &d, false)];
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&rows, &left))));
    received.read(&mut worker, &infos);
    assert_eq!(received.of(1), [(0, 11)], "it follows best paths");
    assert_eq!(received.of(2), [(7, 13), (8, 14), (9, 12)]);
    assert_eq!(received.of(3), [(9, 12)]);
    assert_eq!(received.of(4), [(7, 13), (8, 14), (9, 12)]);
    assert_eq!(received.of(5), [(9, 12)]);
    assert_eq!(received.of(6), [(7, 13), (8, 14), (9, 12)]);
    for peer in 2..=6 {
        assert_eq!(viewed(&mut worker, peer, &left), received.of(peer), "member {peer}");
    }
    // A withdrawal for each, and an announcement for those that get another path.
    assert_eq!(received.1 - before, 5 + 3);
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&left, &left))));
    assert_eq!(worker.due(), 0, "nothing changed");
}

#[test]
fn paths_are_not_sent_to_their_sources_nor_against_the_policy() {
    let no_tagged = {
        let tagged = ["65000:1".parse().unwrap()].into_iter().collect();
        let statement = Statement {
            conditions: vec![Condition::CommunitySet(Named::new("tagged", tagged), Match::Any)],
            then: Then::Reject,
            ..Statement::default()
        };
        Arc::new(Policy::new(
            vec![Arc::new(Definition { name: "p".into(), statements: vec![statement] })],
            false,
        ))
    };
    let mut infos = vec![several(1, PeerKind::Client, best(2)), several(2, PeerKind::Client, best(2))];
    infos.iter_mut().for_each(|info| info.egress.export = no_tagged.clone());
    let (own, tagged, other, last) =
        (path(1, 1, false), path(11, 1, true), path(12, 2, false), path(13, 3, false));
    let rows = [(5, &own, true), (6, &tagged, true), (7, &other, true), (8, &last, true)];
    let mut worker = with_table(&infos, &rows);
    let mut received = Received::default();
    received.read(&mut worker, &infos);
    // The refused path hides none. That of a member counts, and it does not get it.
    assert_eq!((received.of(1), received.of(2)), (vec![(7, 12)], vec![(5, 1), (7, 12)]));
    let views = [1, 2].map(|peer| viewed(&mut worker, peer, &rows));
    assert_eq!(views, [received.of(1), received.of(2)]);
    let reasons = worker.ranked_reasons(PeerId(1), p4("10.0.0.0/8"), &ranked(&[], &rows));
    assert_eq!(reasons[0], "path from 10.1.0.1, identifier 5: not sent: it came from this peer");
    // The policy now refuses a path that was sent.
    let other_tagged = path(12, 2, true);
    let new = [(5, &own, true), (6, &tagged, true), (7, &other_tagged, true), (8, &last, true)];
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&rows, &new))));
    received.read(&mut worker, &infos);
    assert_eq!((received.of(1), received.of(2)), (vec![(8, 13)], vec![(5, 1), (8, 13)]));
    let why = worker.exports(p4("10.0.0.0/8"), &own, &ranked(&[], &new));
    assert_eq!((why.len(), why[0].members, why[0].sent), (1, 2, true));
    let text = why[0].messages.join("\n");
    for part in ["10.1.0.1, identifier 5: sent", "identifier 6: not sent", "identifier 8: sent"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn another_selection_withdraws_what_it_does_not_have() {
    let (a, b, c) = (path(11, 1, false), path(12, 2, false), path(13, 3, false));
    let rows = [(5, &a, true), (9, &b, true), (7, &c, false)];
    let mut infos = vec![several(1, PeerKind::Client, PathSelection::All)];
    let mut worker = with_table(&infos, &rows);
    let mut received = Received::default();
    received.read(&mut worker, &infos);
    assert_eq!(received.of(1).len(), 3);
    infos[0].egress.add_path.0[AfiSafi::Ipv4Unicast] = Some(best(1));
    worker.handle(EgressIn::MemberChanged(Arc::new(infos[0].clone())));
    // A path goes while the table is on its way.
    let requests = worker.requests();
    let left = [(5, &a, true), (7, &c, false)];
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&rows, &left))));
    for request in requests {
        let batch =
            if request.family == AfiSafi::Ipv4Unicast { ranked(&[], &left) } else { RankedBatch::default() };
        worker.handle(match request.ranked {
            true => EgressIn::RankedDump { token: request.token, batch, last: true },
            false => EgressIn::Dump { token: request.token, batch: BestBatch::default(), last: true },
        });
    }
    received.read(&mut worker, &infos);
    assert_eq!(received.of(1), [(5, 11)]);
    assert_eq!(worker.member(PeerId(1)).unwrap().advertised[AfiSafi::Ipv4Unicast], 1);
}

/// RFC 7947 section 2.3.2.
#[test]
fn client_gets_the_best_path_that_its_policy_and_its_own_do_not_hide() {
    let client = |id: u32, own: bool| {
        let mut info = peer(id, PeerKind::RouteServerClient);
        info.egress.client = own.then_some(PeerId(id));
        info
    };
    let infos = [client(1, true), client(2, true), client(3, false)];
    let of_one = BestPath { source: PeerId(1), ..path(1, 1, false) };
    let of_other = BestPath { source: PeerId(3), ..path(3, 2, false) };
    let rows = [(5, &of_one, true), (6, &of_other, false)];
    let mut worker = with_table(&infos, &rows);
    let mut received = Received::default();
    received.read(&mut worker, &infos);
    assert_eq!(received.of(1), [(0, 3)], "not its own, but the next");
    assert_eq!((received.of(2), received.of(3)), (vec![(0, 1)], vec![(0, 1)]));
    let views = [1, 2].map(|peer| viewed(&mut worker, peer, &rows));
    assert_eq!(views, [received.of(1), received.of(2)]);
    let page = worker.ranked_adj_rib_out::<V4>(PeerId(2), &ranked(&[], &rows)).unwrap();
    assert_eq!(page[0][0].id, None);
    // Each of the two is alone in its group.
    assert_eq!(worker.groups().len(), 3);
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&rows, &rows[..1]))));
    received.read(&mut worker, &infos);
    assert_eq!((received.of(1), received.of(2)), (vec![], vec![(0, 1)]));
}

#[test]
fn limit_counts_each_path() {
    let (a, b) = (path(11, 1, false), path(12, 2, false));
    let rows = [(5, &a, true), (9, &b, true)];
    let infos = [several(1, PeerKind::Client, PathSelection::All)];
    let mut worker = with_table(&infos, &rows[..1]);
    worker.handle(EgressIn::MaxPrefixes(PeerId(1), ByFamily::only(AfiSafi::Ipv4Unicast, Some(1))));
    let mut received = Received::default();
    received.read(&mut worker, &infos);
    assert_eq!(worker.take_exceeded(), []);
    worker.handle(EgressIn::Ranked(Arc::new(ranked(&rows[..1], &rows))));
    received.read(&mut worker, &infos);
    assert_eq!((worker.take_exceeded().len(), received.of(1).len()), (1, 1));
}

#[test]
fn settings_tell_which_families_have_identifiers() {
    let sent = SentPaths(ByFamily::only(AfiSafi::Ipv4Unicast, Some(best(2))));
    assert_eq!(sent.families(), FamilySet::IPV4_UNICAST);
    assert_eq!(sent.within(FamilySet::IPV6_UNICAST), SentPaths::default());
    let texts =
        [PathSelection::All, best(2), PathSelection::Ecmp, PathSelection::PerAs].map(|s| s.to_string());
    assert_eq!(texts, ["all", "best 2", "ecmp", "per-as"]);
}
