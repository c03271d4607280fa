//! The messages of members, read back with the parser of real peers' messages.

mod add_path;
mod explain;
mod limits;
mod long_lived;
mod refresh;
mod scope;
mod unsuppress;

use super::*;
use crate::attr::AttrSet;
use crate::message::{BestPath, Change, Changes, NONE};
use crate::peer::{FamilySet, NextHopRule, PeerKind};
use proptest::prelude::*;
use ribtide_policy::{
    Actions, Condition, Definition, Match, Med, Named, Policy, PolicyResult, PrefixCondition, PrefixRange,
    PrefixSet, Prepend, SetNextHop, Statement, Then,
};
use ribtide_prefix::{Afi, AnyPrefix, BgpFamilies, Prefix, V4, V6, for_each_bgp_family};
use ribtide_wire::bgp::attribute::{Attributes, Origin, code};
use ribtide_wire::bgp::message::{MessageType, RefreshKind, RouteRefresh, frame};
use ribtide_wire::bgp::update::{self, UpdateContext};
use ribtide_wire::bgp::{AsPath, NextHop, build};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

const LOCAL: u32 = 4_200_000_001;
const OUR_ID: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const BOTH: FamilySet = FamilySet::UNICAST;
const OWN: NextHopRule = NextHopRule::Own {
    v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
    v6: Some(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
};

fn peer(id: u32, kind: PeerKind) -> PeerInfo {
    let external = kind == PeerKind::External;
    PeerInfo {
        id: PeerId(id),
        session: 1,
        address: Ipv4Addr::from(0x0a01_0000 + id).into(),
        asn: if external { 64500 + id } else { LOCAL },
        router_id: Ipv4Addr::from(0x0a02_0000 + id),
        kind,
        multihop: false,
        link: None,
        families: BOTH,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings {
            next_hop: if external { OWN } else { NextHopRule::Keep },
            ..EgressSettings::new(kind, LOCAL, OUR_ID, BOTH, Arc::new(Policy::accept()))
        },
    }
}

/// Attributes of a route as a reader makes them; `n` picks which.
fn attrs(n: u8) -> AttrSet {
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    let path =
        build::prepend(AsPath::default(), if n.is_multiple_of(2) { 70_000 } else { 65_010 }, 1 + n % 3);
    build::as_path(&mut bytes, AsPath::new(&path));
    if n & 4 != 0 {
        build::med(&mut bytes, u32::from(n));
    }
    if n & 8 != 0 {
        build::local_pref(&mut bytes, 200);
    }
    match n % 7 {
        0 => build::list(&mut bytes, 0xc0, code::COMMUNITIES, &[0xff, 0xff, 0xff, 0x01]),
        1 => build::list(&mut bytes, 0xc0, code::COMMUNITIES, &[0xff, 0xff, 0xff, 0x02]),
        2 => build::list(&mut bytes, 0xc0, code::COMMUNITIES, &[0xfd, 0xe8, 0, n]),
        _ => {}
    }
    if n % 5 == 4 {
        build::originator_id(&mut bytes, Ipv4Addr::new(9, 9, 9, n));
        build::cluster_list(&mut bytes, Ipv4Addr::new(8, 8, 8, 8), &[]);
    }
    if n % 3 == 1 {
        build::attribute(&mut bytes, 0xe0, code::PREFIX_SID, &[1, 0, 7, 0, 0, 0, 0, 0, 0, n]);
    }
    // Unknown, optional and transitive, already marked partial by the reader.
    build::attribute(&mut bytes, 0xe0, 200, &[n]);
    AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(198, 51, 100, n)))
}

fn attrs_for(n: u8, family: AfiSafi) -> AttrSet {
    let four = attrs(n);
    match family {
        AfiSafi::Ipv4Unicast => four,
        AfiSafi::Ipv6Unicast => {
            let global = format!("2001:db8:ffff::{n}").parse().unwrap();
            let link_local = Some("fe80::1".parse().unwrap());
            AttrSet::new(four.bytes(), NextHop::V6 { global, link_local })
        }
    }
}

fn p4(text: &str) -> Prefix<V4> {
    text.parse().unwrap()
}

fn best_batch(changes: &[(Prefix<V4>, Option<&BestPath>, Option<&BestPath>)]) -> BestBatch {
    let mut batch = BestBatch::default();
    let mut number = |path: Option<&BestPath>| {
        let Some(path) = path else { return NONE };
        batch.paths.push(path.clone());
        (batch.paths.len() - 1) as u32
    };
    let changes = changes.iter().map(|(p, o, n)| Change { prefix: *p, old: number(*o), new: number(*n) });
    batch.changes.v4 = changes.collect();
    batch
}

/// A member's routes after all of its messages.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
struct Table {
    routes: BTreeMap<AnyPrefix, (Vec<u8>, NextHop)>,
    ends: [u32; 2],
    messages: u64,
    /// Of each marked refresh under way, the prefixes that did not come again.
    unrefreshed: BTreeMap<u16, BTreeSet<AnyPrefix>>,
    /// The marks of refreshes that came.
    marks: Vec<(u16, RefreshKind)>,
}

impl Table {
    fn read(&mut self, mut bytes: &[u8], info: &PeerInfo) {
        let max = usize::from(info.egress.max_message);
        while !bytes.is_empty() {
            let frame = frame(bytes, max).unwrap().expect("chunks hold whole messages");
            if frame.kind == MessageType::RouteRefresh {
                self.mark(RouteRefresh::parse(frame.body).unwrap());
                self.messages += 1;
                bytes = &bytes[frame.total_len..];
                continue;
            }
            assert_eq!(frame.kind, MessageType::Update);
            let context = UpdateContext {
                four_octet_as: info.egress.four_octet_as,
                external: info.kind == PeerKind::External,
                // As the most liberal receiver: the tables are compared.
                prefix_sid: true,
                aigp: true,
                ..UpdateContext::new(true, true)
            };
            let update = update::parse(frame.body, &context).unwrap();
            assert_eq!(update.disposition(), update::Disposition::Normal);
            assert!(update.discarded().is_empty());
            self.messages += 1;
            if let Some(family) = update.end_of_rib() {
                self.ends[usize::from(family == AfiSafi::Ipv6Unicast)] += 1;
            }
            let mut attributes = Vec::new();
            let mut last = 0;
            for a in update.attributes() {
                assert!(a.code > last, "attributes ascend");
                last = a.code;
                build::attribute(&mut attributes, a.flags, a.code, a.value);
            }
            for_each_bgp_family!(F => {
                for prefix in update.withdrawn::<F>() {
                    self.refreshed(prefix.any());
                    self.routes.remove(&prefix.any());
                }
                for prefix in update.announced::<F>() {
                    self.refreshed(prefix.any());
                    self.routes.insert(prefix.any(), (attributes.clone(), update.next_hop::<F>().unwrap()));
                }
            });
            bytes = &bytes[frame.total_len..];
        }
    }
}

impl Table {
    /// The begin or end of a refresh. Between them each route comes again, or is withdrawn: the receiver removes others (RFC 7313
    /// section 4).
    fn mark(&mut self, RouteRefresh { afi, safi, kind }: RouteRefresh) {
        assert_eq!((safi, self.ends[usize::from(afi == 2)]), (1, 1), "a mark follows End-of-RIB");
        self.marks.push((afi, kind));
        if kind == RefreshKind::Begin {
            let of_family = |prefix: &AnyPrefix| prefix.afi() as u16 == afi;
            self.unrefreshed.insert(afi, self.routes.keys().copied().filter(of_family).collect());
            return;
        }
        assert_eq!(kind, RefreshKind::End);
        let left_out = self.unrefreshed.remove(&afi).expect("an end follows a begin");
        assert_eq!(left_out, BTreeSet::new(), "the end follows all routes that were there at the begin");
    }

    fn refreshed(&mut self, prefix: AnyPrefix) {
        if let Some(left) = self.unrefreshed.get_mut(&(prefix.afi() as u16)) {
            left.remove(&prefix);
        }
    }
}

/// Applies a worker's messages to the tables of their receivers.
fn read_all(out: &[Write], infos: &[PeerInfo], tables: &mut BTreeMap<Receiver, Table>) {
    for write in out {
        assert!(write.to.is_sorted());
        for receiver in write.receivers() {
            let info = infos.iter().find(|i| i.id == receiver.peer).unwrap();
            tables.entry(receiver).or_default().read(&write.chunk, info);
        }
    }
}

/// A worker with members that have joined an empty table.
fn joined(infos: &[PeerInfo]) -> Worker {
    let mut worker = Worker::new(0, 1);
    for info in infos {
        worker.handle(EgressIn::MemberUp(Arc::new(info.clone())));
    }
    for request in worker.requests() {
        worker.handle(EgressIn::Dump { token: request.token, batch: BestBatch::default(), last: true });
    }
    assert!(!worker.flush(Flush::All, 1000, &mut Vec::new()));
    worker
}

/// What the page of a member's Adj-RIB-Out with this prefix has.
fn paged(worker: &mut Worker, peer: PeerId, prefix: AnyPrefix, best: &BestPath) -> Option<Advertised> {
    let page = match prefix {
        AnyPrefix::V4(prefix) => worker.adj_rib_out(peer, &[(prefix, best.clone())]),
        AnyPrefix::V6(prefix) => worker.adj_rib_out(peer, &[(prefix, best.clone())]),
    };
    page?.pop()?
}

fn flushed(worker: &mut Worker) -> Vec<Write> {
    let mut out = Vec::new();
    while worker.due() > 0 {
        worker.flush(Flush::All, 1000, &mut out);
    }
    out
}

#[test]
fn members_with_equal_settings_share_every_message_and_one_dump() {
    let infos: Vec<PeerInfo> = (1..=3).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = Worker::new(3, 2);
    for info in &infos {
        worker.handle(EgressIn::MemberUp(Arc::new(info.clone())));
    }
    let requests = worker.requests();
    assert_eq!(
        requests.iter().map(|r| (r.worker, r.family)).collect::<Vec<_>>(),
        [(3, AfiSafi::Ipv4Unicast), (3, AfiSafi::Ipv6Unicast)]
    );
    assert!(worker.requests().is_empty(), "requested once");

    let path = BestPath { attrs: attrs(3), source: PeerId(9), suppressed: false };
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::Client))));
    let dump = |last, prefix: &str| EgressIn::Dump {
        token: requests[0].token,
        batch: best_batch(&[(p4(prefix), None, Some(&path))]),
        last,
    };
    worker.handle(dump(true, "10.0.0.0/8"));
    assert!(worker.member(PeerId(1)).unwrap().joining);
    worker.handle(dump(true, "11.0.0.0/8"));
    let out = flushed(&mut worker);
    assert_eq!(out.len(), 2, "the routes of both shards in one chunk, then End-of-RIB");
    let mut tables = BTreeMap::new();
    read_all(&out, &infos, &mut tables);
    assert_eq!(tables.len(), 3);
    for table in tables.values() {
        assert_eq!((table.routes.len(), table.ends, table.messages), (2, [1, 0], 2));
    }
    assert_eq!(worker.groups().len(), 1);
    assert_eq!(worker.groups()[0].counters.messages, 2);
    assert_eq!(worker.member(PeerId(2)).unwrap().counters.announced, 2);
}

#[test]
fn changes_of_several_shards_share_messages() {
    let infos = [peer(1, PeerKind::Client), peer(2, PeerKind::Client)];
    let mut worker = joined(&infos);
    // Equal attributes in two allocations, as from two readers.
    for (i, n) in [3, 4, 3, 4].into_iter().enumerate() {
        let path = BestPath { attrs: attrs(n), source: PeerId(1), suppressed: false };
        let batch = best_batch(&[(Prefix::new((i as u32) << 24, 8), None, Some(&path))]);
        worker.handle(EgressIn::Best(Arc::new(batch)));
    }
    assert_eq!((worker.waiting(), worker.waiting_paths()), (4, 2));
    let out = flushed(&mut worker);
    let mut tables = BTreeMap::new();
    read_all(&out, &infos, &mut tables);
    assert_eq!(tables.len(), 1, "not to the source");
    let table = tables.values().next().unwrap();
    assert_eq!((table.routes.len(), table.messages), (4, 2));
    assert_eq!(worker.waiting_paths(), 0);
    assert_eq!(worker.member(PeerId(2)).unwrap().advertised[AfiSafi::Ipv4Unicast], 4);
    assert_eq!(worker.member(PeerId(1)).unwrap().advertised[AfiSafi::Ipv4Unicast], 0);
}

#[test]
fn what_is_gone_before_it_was_sent_is_not_sent() {
    let infos = [peer(1, PeerKind::Client), peer(2, PeerKind::Client)];
    let mut worker = joined(&infos);
    let path = BestPath { attrs: attrs(3), source: PeerId(1), suppressed: false };
    let prefix = p4("10.0.0.0/8");
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, None, Some(&path))]))));
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, Some(&path), None)]))));
    assert!(flushed(&mut worker).is_empty());
    assert_eq!((worker.waiting(), worker.waiting_paths()), (0, 0));
}

#[test]
fn a_new_source_loses_the_path_of_another() {
    let infos = [peer(1, PeerKind::Client), peer(2, PeerKind::Client)];
    let mut worker = joined(&infos);
    let of = |source| BestPath { attrs: attrs(3), source: PeerId(source), suppressed: false };
    let prefix = p4("10.0.0.0/8");
    let mut tables = BTreeMap::new();
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, None, Some(&of(1)))]))));
    read_all(&flushed(&mut worker), &infos, &mut tables);
    let two = Receiver { peer: PeerId(2), session: 1 };
    assert_eq!(tables[&two].routes.len(), 1);
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, Some(&of(1)), Some(&of(2)))]))));
    read_all(&flushed(&mut worker), &infos, &mut tables);
    assert_eq!(tables[&two].routes.len(), 0);
    assert_eq!(tables[&Receiver { peer: PeerId(1), session: 1 }].routes.len(), 1);
    assert_eq!(worker.member(PeerId(2)).unwrap().counters.withdrawn, 1);
    assert_eq!(worker.member(PeerId(1)).unwrap().counters.withdrawn, 0);
}

/// Changes of one prefix, one after the other, from source 9.
fn changes(
    worker: &mut Worker,
    prefix: &str,
    attributes: impl Iterator<Item = u8>,
    before: &mut Option<BestPath>,
) {
    for n in attributes {
        let path = BestPath { attrs: attrs(n), source: PeerId(9), suppressed: false };
        let batch = best_batch(&[(p4(prefix), before.as_ref(), Some(&path))]);
        worker.handle(EgressIn::Best(Arc::new(batch)));
        *before = Some(path);
    }
}

#[test]
fn a_slow_member_lags_and_catches_up() {
    let infos = [peer(1, PeerKind::Client), peer(2, PeerKind::Client)];
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::External))));
    let (mut tables, mut before) = (BTreeMap::new(), None);
    worker.handle(EgressIn::Backlog { peer: PeerId(1), blocked: true });
    for n in 0..50u8 {
        changes(&mut worker, "10.0.0.0/8", std::iter::once(3 + 7 * (n % 30)), &mut before);
        read_all(&flushed(&mut worker), &infos, &mut tables);
    }
    let [one, two] = [1, 2].map(|id| Receiver { peer: PeerId(id), session: 1 });
    assert_eq!(tables[&two].messages, 50, "the other is not held up");
    assert!(!tables.contains_key(&one));
    assert_eq!((worker.waiting(), worker.waiting_paths()), (1, 1), "bounded by prefixes, not by changes");
    let view = worker.groups().remove(0);
    assert_eq!((view.blocked, view.detached, view.cohorts), (vec![PeerId(1)], vec![PeerId(1)], 2));
    let slow = worker.member(PeerId(1)).unwrap();
    assert_eq!(
        (slow.waiting, slow.advertised[AfiSafi::Ipv4Unicast], slow.blocks),
        (1, 0, 1),
        "what waits is not advertised"
    );
    assert_eq!(worker.member(PeerId(2)).unwrap().advertised[AfiSafi::Ipv4Unicast], 1);

    worker.handle(EgressIn::Backlog { peer: PeerId(1), blocked: false });
    read_all(&flushed(&mut worker), &infos, &mut tables);
    assert_eq!((tables[&one].messages, &tables[&one].routes), (1, &tables[&two].routes));
    let view = worker.groups().remove(0);
    assert_eq!((view.blocked, view.detached, view.cohorts), (vec![], vec![], 1));
    changes(&mut worker, "10.0.0.0/8", std::iter::once(5), &mut before);
    assert_eq!(flushed(&mut worker).len(), 1, "packed for both again");
}

#[test]
fn a_group_whose_members_all_wait_has_one_position() {
    let infos: Vec<PeerInfo> = (1..=3).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::External))));
    infos.iter().for_each(|i| worker.handle(EgressIn::Backlog { peer: i.id, blocked: true }));
    changes(&mut worker, "10.0.0.0/8", 1..20, &mut None);
    assert!(flushed(&mut worker).is_empty());
    assert_eq!((worker.due(), worker.waiting(), worker.groups()[0].cohorts), (0, 1, 1));
}

#[test]
fn many_slow_members_are_at_few_positions_and_lose_nothing() {
    let infos: Vec<PeerInfo> = (11..=50).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::External))));
    let prefixes: Vec<String> = (0..50).map(|i| format!("10.{i}.0.0/16")).collect();
    let mut before: Vec<Option<BestPath>> = vec![None; prefixes.len()];
    let mut tables = BTreeMap::new();
    // Members become blocked one by one, with changes in between.
    for (at, info) in infos.iter().enumerate() {
        worker.handle(EgressIn::Backlog { peer: info.id, blocked: true });
        changes(&mut worker, &prefixes[at], [3, 10].into_iter(), &mut before[at]);
        read_all(&flushed(&mut worker), &infos, &mut tables);
        assert!(worker.groups()[0].cohorts <= group::COHORTS_MAX, "bounded");
    }
    // A route that was announced to some is withdrawn.
    let gone = best_batch(&[(p4(&prefixes[0]), before[0].as_ref(), None)]);
    worker.handle(EgressIn::Best(Arc::new(gone)));
    // Members become unblocked one by one.
    for (at, info) in infos.iter().enumerate() {
        changes(
            &mut worker,
            &prefixes[at % 10 + 40],
            std::iter::once(3 + 7 * (at as u8 % 30)),
            &mut before[at % 10 + 40],
        );
        worker.handle(EgressIn::Backlog { peer: info.id, blocked: false });
        read_all(&flushed(&mut worker), &infos, &mut tables);
    }
    assert_eq!((worker.waiting(), worker.waiting_paths(), worker.groups()[0].cohorts), (0, 0, 1));
    assert_eq!(tables.len(), 40);
    let first = tables.values().next().unwrap();
    assert_eq!(first.routes.len(), 49);
    assert!(tables.values().all(|table| table.routes == first.routes));
    assert!(infos.iter().all(|i| worker.member(i.id).unwrap().advertised[AfiSafi::Ipv4Unicast] == 49));
}

#[test]
fn members_that_join_during_a_dump_share_it_until_a_family_is_complete() {
    let infos: Vec<PeerInfo> = (1..=4).map(|id| peer(id, PeerKind::Client)).collect();
    let mut worker = Worker::new(0, 1);
    let up = |worker: &mut Worker, at: usize| worker.handle(EgressIn::MemberUp(Arc::new(infos[at].clone())));
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::Client))));
    let [path, other] = [3, 4].map(|n| BestPath { attrs: attrs(n), source: PeerId(9), suppressed: false });
    up(&mut worker, 0);
    let first = worker.requests();
    assert_eq!(first.len(), 2, "one for each family");
    let dump = |worker: &mut Worker, at: usize, prefixes: &[&str], last| {
        let rows: Vec<_> = prefixes.iter().map(|prefix| (p4(prefix), None, Some(&path))).collect();
        worker.handle(EgressIn::Dump { token: first[at].token, batch: best_batch(&rows), last });
    };
    dump(&mut worker, 0, &["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"], false);
    let changes = [(p4("10.0.0.0/8"), Some(&path), Some(&other)), (p4("11.0.0.0/8"), Some(&path), None)];
    worker.handle(EgressIn::Best(Arc::new(best_batch(&changes))));
    // Parts and changes are there, and nothing is sent.
    (1..3).for_each(|at| up(&mut worker, at));
    assert!(worker.requests().is_empty() && flushed(&mut worker).is_empty());
    dump(&mut worker, 0, &["13.0.0.0/8"], true);
    let mut out = flushed(&mut worker);
    // Of one family they have all, so this one needs a dump of its own.
    up(&mut worker, 3);
    assert!(worker.requests().is_empty(), "one at a time");
    dump(&mut worker, 1, &[], true);
    out.extend(flushed(&mut worker));
    assert!(out.iter().all(|write| write.receivers().count() == 3), "each message for all three");
    let mut tables = BTreeMap::new();
    read_all(&out, &infos, &mut tables);
    assert_eq!(tables.len(), 3);
    for table in tables.values() {
        let prefixes: Vec<String> = table.routes.keys().map(ToString::to_string).collect();
        assert_eq!(prefixes, ["10.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"]);
    }
    assert!(!worker.dumps_in_flight());
    worker.set_shards(1);
    let second = worker.requests();
    assert_eq!(second.len(), 2);
    let rows = [("10.0.0.0/8", &other), ("12.0.0.0/8", &path), ("13.0.0.0/8", &path)];
    let whole = best_batch(&rows.map(|(prefix, path)| (p4(prefix), None, Some(path))));
    for (request, batch) in second.iter().zip([whole, BestBatch::default()]) {
        worker.handle(EgressIn::Dump { token: request.token, batch, last: true });
    }
    read_all(&flushed(&mut worker), &infos, &mut tables);
    let routes: Vec<_> = tables.values().map(|table| &table.routes).collect();
    assert!(routes.len() == 4 && routes.windows(2).all(|pair| pair[0] == pair[1]));
    assert!(worker.requests().is_empty());
    assert_eq!((worker.groups()[0].cohorts, worker.groups()[0].joining.len()), (1, 0));
}

#[test]
fn attributes_that_fit_no_message_withdraw_the_route() {
    let mut infos = [peer(1, PeerKind::Client), peer(2, PeerKind::Client)];
    infos[1].egress.max_message = 65535;
    let mut worker = joined(&infos);
    worker.handle(EgressIn::SourceUp(Arc::new(peer(9, PeerKind::Client))));
    let short = BestPath { attrs: attrs(3), source: PeerId(9), suppressed: false };
    let mut bytes = short.attrs.bytes().to_vec();
    build::attribute(&mut bytes, 0xc0, 201, &[0; 4090]);
    let long = AttrSet::new(&bytes, short.attrs.next_hop());
    let long = BestPath { attrs: long, source: PeerId(9), suppressed: false };
    let prefix = p4("10.0.0.0/8");
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, None, Some(&short))]))));
    let mut tables = BTreeMap::new();
    read_all(&flushed(&mut worker), &infos, &mut tables);
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, Some(&short), Some(&long))]))));
    read_all(&flushed(&mut worker), &infos, &mut tables);
    let routes: Vec<usize> = tables.values().map(|t| t.routes.len()).collect();
    assert_eq!(routes, [0, 1]);
    assert_eq!(worker.member(PeerId(1)).unwrap().counters.too_long, 1);
}

#[test]
fn a_group_ends_with_its_last_member_and_sources_are_remembered() {
    let infos = [peer(1, PeerKind::Client), peer(2, PeerKind::External)];
    let mut worker = joined(&infos);
    let path = BestPath { attrs: attrs(3), source: PeerId(1), suppressed: false };
    worker.handle(EgressIn::MemberDown(PeerId(1)));
    assert_eq!(worker.groups().len(), 1);
    assert_eq!(worker.member(PeerId(1)), None);
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(p4("10.0.0.0/8"), None, Some(&path))]))));
    assert_eq!(
        worker.advertised(PeerId(2), p4("10.0.0.0/8"), &path).0.unwrap().next_hop.to_string(),
        "192.0.2.1"
    );
    worker.handle(EgressIn::MemberDown(PeerId(2)));
    assert_eq!((worker.groups().len(), worker.waiting_paths()), (0, 0));
}

/// The attributes of a route at a member, by a slow implementation of the RFCs.
fn expected(
    member: &PeerInfo,
    source: &PeerInfo,
    attrs: &AttrSet,
    prefix: AnyPrefix,
) -> Option<(BTreeMap<u8, Vec<u8>>, NextHop)> {
    use PeerKind::{External, Internal};
    let family = AfiSafi::unicast(prefix.afi());
    let mut map: BTreeMap<u8, Vec<u8>> =
        Attributes::new(attrs.bytes()).map(|a| (a.code, a.value.to_vec())).collect();
    let communities =
        map.get(&code::COMMUNITIES).map_or(0, |c| u32::from_be_bytes(c[..4].try_into().unwrap()));
    if source.id == member.id
        || member.egress.export.constant() == Some(PolicyResult::Reject)
        || !member.families.has(family)
        || (source.kind == Internal && member.kind == Internal)
        || communities == 0xffff_ff02
        || (communities == 0xffff_ff01 && member.kind == External)
    {
        return None;
    }
    let mut next_hop = match attrs.next_hop() {
        NextHop::V6 { global, .. } => NextHop::V6 { global, link_local: None },
        v4 => v4,
    };
    // The policy of `divided` as plain code.
    let divided = member.egress.export.constant().is_none();
    let changed = divided && place(prefix).is_multiple_of(2);
    if changed {
        let path = map.get_mut(&code::AS_PATH).unwrap();
        path[1] += 1;
        path.splice(2..2, 65_009u32.to_be_bytes());
        map.insert(code::MED, vec![0, 0, 0, 7]);
    }
    if divided && (communities >> 16 == 65_000 || (place(prefix) >= 4 && member.kind == External)) {
        return None;
    }
    if member.kind == External {
        if !changed {
            map.remove(&code::MED);
        }
        for gone in [code::LOCAL_PREF, code::ORIGINATOR_ID, code::CLUSTER_LIST] {
            map.remove(&gone);
        }
        if !member.egress.prefix_sid {
            map.remove(&code::PREFIX_SID);
        }
        let path = map.get_mut(&code::AS_PATH).unwrap();
        path[1] += 1;
        path.splice(2..2, LOCAL.to_be_bytes());
        let NextHopRule::Own { v4, v6 } = member.egress.next_hop else { unreachable!() };
        next_hop = match family.afi() {
            Afi::Ipv4 => NextHop::V4(v4?),
            Afi::Ipv6 => NextHop::V6 { global: v6?, link_local: None },
        };
    } else {
        map.entry(code::LOCAL_PREF).or_insert(vec![0, 0, 0, 100]);
        if source.kind == External {
            map.remove(&code::ORIGINATOR_ID);
            map.remove(&code::CLUSTER_LIST);
        } else {
            map.entry(code::ORIGINATOR_ID).or_insert(source.router_id.octets().to_vec());
            let clusters = map.entry(code::CLUSTER_LIST).or_default();
            clusters.splice(0..0, OUR_ID.octets());
        }
        if let NextHopRule::KeepUnlessOwn { v4, v6 } = member.egress.next_hop
            && changed
        {
            next_hop = match family.afi() {
                Afi::Ipv4 => NextHop::V4(v4?),
                Afi::Ipv6 => NextHop::V6 { global: v6?, link_local: None },
            };
        }
    }
    Some((map, next_hop))
}

/// The index of a prefix in [`prefixes`].
fn place(prefix: AnyPrefix) -> u8 {
    match prefix.addr() {
        IpAddr::V4(a) => a.octets()[0] >> 4,
        IpAddr::V6(a) => a.octets()[0] - 0x20,
    }
}

/// An export policy that changes routes of every other prefix, rejects those tagged 65000:*, and
/// ends with the first four indices.
fn divided(external: bool) -> Arc<Policy> {
    let condition = |name: &str, wanted: fn(u8) -> bool| {
        let ranges = prefixes().into_iter().filter(|p| wanted(place(*p))).map(PrefixRange::exact);
        vec![PrefixCondition { set: Named::new(name, PrefixSet::new(ranges)), invert: false }]
    };
    let tagged = Named::new("tagged", ["65000:*".parse().unwrap()].into_iter().collect());
    let statements = vec![
        Statement {
            prefix_conditions: condition("even", |place| place.is_multiple_of(2)),
            actions: Actions {
                prepend: Some(Prepend { asn: 65_009, count: 1 }),
                med: Some(Med::Set(7)),
                next_hop: Some(SetNextHop::Own),
                ..Actions::default()
            },
            ..Statement::default()
        },
        Statement {
            conditions: vec![Condition::CommunitySet(tagged, Match::Any)],
            then: Then::Reject,
            ..Statement::default()
        },
        Statement {
            prefix_conditions: condition("first", |place| place < 4),
            then: Then::Accept,
            ..Statement::default()
        },
    ];
    let definition = Definition { name: "divided".into(), statements };
    Arc::new(Policy::new(vec![Arc::new(definition)], external))
}

/// The peers of the random test: all kinds, several in one group, a two-octet one, one whose
/// messages are too short, and some with a policy that tests everything.
fn harness_peers() -> Vec<PeerInfo> {
    use PeerKind::{Client, External, Internal};
    let kinds = [
        Client, Client, Client, Internal, Internal, External, External, External, External, Client, External,
        External,
    ];
    let mut infos: Vec<PeerInfo> = kinds.iter().zip(0..).map(|(kind, id)| peer(id, *kind)).collect();
    infos[2].families.set(AfiSafi::Ipv6Unicast, false);
    infos[2].egress.families.set(AfiSafi::Ipv6Unicast, false);
    infos[6].egress.four_octet_as = false;
    infos[7].egress.export = Arc::new(Policy::reject());
    infos[8].egress.next_hop = NextHopRule::Own { v4: None, v6: Some("2001:db8::8".parse().unwrap()) };
    let NextHopRule::Own { v4, v6 } = OWN else { unreachable!() };
    infos[9].egress.next_hop = NextHopRule::KeepUnlessOwn { v4, v6: v6.filter(|_| false) };
    infos[9].egress.export = divided(false);
    infos[10].egress.export = divided(true);
    infos[11].egress.export = divided(true);
    infos[11].egress.prefix_sid = true;
    infos
}

#[derive(Clone, Debug)]
enum Step {
    /// The best path of a prefix becomes one of these attributes from this source, or none.
    Change {
        prefix: u8,
        attrs: u8,
        source: Option<u8>,
    },
    Up(u8),
    Down(u8),
    Refresh(u8, bool),
    /// A peer's export policy changes.
    Policy(u8, u8),
    /// An external peer gets Prefix-SIDs or gets them no longer.
    PrefixSid(u8, bool),
    Backlog(u8, bool),
    /// The worker handles the next message of a shard.
    Deliver(u8),
    /// The worker handles all messages of its session thread and the shards.
    DeliverAll,
    Flush(Flush, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let peer = 0u8..12;
    let step = prop_oneof![
        8 => (0u8..12, 0u8..40, proptest::option::weighted(0.8, peer.clone()))
            .prop_map(|(prefix, attrs, source)| Step::Change { prefix, attrs, source }),
        3 => peer.clone().prop_map(Step::Up),
        1 => peer.clone().prop_map(Step::Down),
        1 => (peer.clone(), any::<bool>()).prop_map(|(p, six)| Step::Refresh(p, six)),
        1 => (peer.clone(), 0u8..3).prop_map(|(p, policy)| Step::Policy(p, policy)),
        1 => (5u8..9, any::<bool>()).prop_map(|(p, on)| Step::PrefixSid(p, on)),
        1 => (peer, any::<bool>()).prop_map(|(p, b)| Step::Backlog(p, b)),
        8 => any::<u8>().prop_map(Step::Deliver),
        1 => Just(Step::DeliverAll),
        4 => (prop_oneof![Just(Flush::Begun), Just(Flush::Settled), Just(Flush::All)], prop_oneof![Just(1u8), 2u8..20])
            .prop_map(|(what, budget)| Step::Flush(what, budget)),
    ];
    proptest::collection::vec(step, 0..150)
}

/// Shards with a queue each to the worker, as in the threads.
struct Harness {
    infos: Vec<PeerInfo>,
    worker: Worker,
    tables: BTreeMap<Receiver, Table>,
    /// Best paths, by shard.
    shards: Vec<BTreeMap<AnyPrefix, BestPath>>,
    /// Best paths that the worker got.
    delivered: BTreeMap<AnyPrefix, BestPath>,
    queues: Vec<VecDeque<Queued>>,
    up: Vec<bool>,
    out: Vec<Write>,
}

enum Queued {
    Message(EgressIn),
    /// The second half of a dump, read from the table when the first has been delivered.
    RestOfDump(DumpRequest),
}

fn prefixes() -> Vec<AnyPrefix> {
    let four = (0..8u32).map(|i| Prefix::<V4>::new(i << 28, 8).any());
    let six = (0..4u8).map(|i| Prefix::<V6>::new([0x20 + i; 16], 32).any());
    four.chain(six).collect()
}

fn batch_of(changes: &[(AnyPrefix, Option<BestPath>, Option<BestPath>)]) -> BestBatch {
    let mut batch = BestBatch::default();
    let mut families: BgpFamilies<Changes> = BgpFamilies::default();
    for (prefix, old, new) in changes {
        let mut number = |path: &Option<BestPath>| match path {
            None => NONE,
            Some(path) => {
                batch.paths.push(path.clone());
                (batch.paths.len() - 1) as u32
            }
        };
        let (old, new) = (number(old), number(new));
        match prefix {
            AnyPrefix::V4(prefix) => families.v4.push(Change { prefix: *prefix, old, new }),
            AnyPrefix::V6(prefix) => families.v6.push(Change { prefix: *prefix, old, new }),
        }
    }
    batch.changes = families;
    batch
}

impl Harness {
    fn new(shards: usize) -> Harness {
        let infos = harness_peers();
        let mut worker = Worker::new(0, shards as u32);
        for info in &infos {
            worker.handle(EgressIn::SourceUp(Arc::new(info.clone())));
        }
        Harness {
            up: vec![false; infos.len()],
            infos,
            worker,
            tables: BTreeMap::new(),
            shards: vec![BTreeMap::new(); shards],
            delivered: BTreeMap::new(),
            queues: (0..shards).map(|_| VecDeque::new()).collect(),
            out: Vec::new(),
        }
    }

    fn set(&mut self, prefix: AnyPrefix, path: Option<BestPath>) {
        let shard = prefixes().iter().position(|p| *p == prefix).unwrap() % self.shards.len();
        let old = match path.clone() {
            Some(path) => self.shards[shard].insert(prefix, path),
            None => self.shards[shard].remove(&prefix),
        };
        let batch = batch_of(&[(prefix, old, path)]);
        self.queues[shard].push_back(Queued::Message(EgressIn::Best(Arc::new(batch))));
    }

    fn half_dump(&self, shard: usize, request: DumpRequest, first: bool) -> EgressIn {
        let half: Vec<_> = prefixes()
            .into_iter()
            .enumerate()
            .filter(|(i, prefix)| (i % 4 < 2) == first && AfiSafi::unicast(prefix.afi()) == request.family)
            .filter_map(|(_, prefix)| Some((prefix, None, Some(self.shards[shard].get(&prefix)?.clone()))))
            .collect();
        EgressIn::Dump { token: request.token, batch: batch_of(&half), last: !first }
    }

    fn deliver(&mut self, shard: usize) {
        match self.queues[shard].pop_front() {
            Some(Queued::Message(message)) => {
                if let EgressIn::Best(batch) = &message {
                    for_each_bgp_family!(F => for change in batch.changes.get::<F>() {
                        match batch.paths.get(change.new as usize) {
                            Some(path) => self.delivered.insert(change.prefix.any(), path.clone()),
                            None => self.delivered.remove(&change.prefix.any()),
                        };
                    });
                }
                self.worker.handle(message);
            }
            // After later changes: it is read now, so it follows them.
            Some(Queued::RestOfDump(request)) => {
                let rest = self.half_dump(shard, request, false);
                self.queues[shard].push_back(Queued::Message(rest));
            }
            None => {}
        }
    }

    fn flush(&mut self, what: Flush, budget: usize) -> bool {
        self.worker.flush(what, budget, &mut self.out);
        let more = self.worker.due() > 0;
        read_all(&self.out, &self.infos, &mut self.tables);
        self.out.clear();
        for request in self.worker.requests() {
            for shard in 0..self.shards.len() {
                let first = self.half_dump(shard, request.clone(), true);
                self.queues[shard].push_back(Queued::Message(first));
                self.queues[shard].push_back(Queued::RestOfDump(request.clone()));
            }
        }
        if !more {
            self.no_prefix_is_delayed();
        }
        more
    }

    /// Checks that unblocked members with complete tables have all that the worker knows.
    fn no_prefix_is_delayed(&self) {
        for (at, info) in self.infos.iter().enumerate().filter(|(at, _)| self.up[*at]) {
            let Some(view) = self.worker.member(info.id).filter(|v| !v.blocked && !v.joining) else {
                continue;
            };
            let receiver = Receiver { peer: info.id, session: info.session };
            let routes = self.tables.get(&receiver).map(|table| &table.routes);
            assert_eq!(view.waiting, 0);
            for prefix in prefixes() {
                let best = self.delivered.get(&prefix);
                let expected = best.and_then(|best| {
                    expected(info, &self.infos[best.source.0 as usize], &best.attrs, prefix)
                });
                let held = routes.and_then(|r| r.get(&prefix)).map(|(bytes, next_hop)| {
                    (Attributes::new(bytes).map(|a| (a.code, a.value.to_vec())).collect(), *next_hop)
                });
                assert_eq!(held, expected, "{prefix} at peer {at}, at once");
            }
        }
    }

    fn deliver_all(&mut self) {
        for shard in 0..self.shards.len() {
            while !self.queues[shard].is_empty() {
                self.deliver(shard);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change { prefix, attrs, source } => {
                let prefix = prefixes()[usize::from(prefix)];
                let path = source.map(|s| BestPath {
                    attrs: attrs_for(attrs, AfiSafi::unicast(prefix.afi())),
                    source: PeerId(u32::from(s)),
                    suppressed: false,
                });
                self.set(prefix, path);
            }
            Step::Up(peer) if !self.up[usize::from(peer)] => {
                let info = &mut self.infos[usize::from(peer)];
                info.session += 1;
                self.up[usize::from(peer)] = true;
                self.worker.handle(EgressIn::MemberUp(Arc::new(info.clone())));
            }
            Step::Down(peer) if self.up[usize::from(peer)] => {
                self.up[usize::from(peer)] = false;
                self.worker.handle(EgressIn::MemberDown(PeerId(u32::from(peer))));
                for prefix in prefixes() {
                    let gone = |p: &BestPath| p.source.0 == u32::from(peer);
                    if self.shards.iter().any(|s| s.get(&prefix).is_some_and(gone)) {
                        self.set(prefix, None);
                    }
                }
            }
            Step::Refresh(peer, six) => {
                let family = if six { AfiSafi::Ipv6Unicast } else { AfiSafi::Ipv4Unicast };
                self.worker.handle(EgressIn::Refresh(
                    PeerId(u32::from(peer)),
                    family,
                    peer.is_multiple_of(2),
                ));
            }
            Step::Policy(peer, policy) => {
                let info = &mut self.infos[usize::from(peer)];
                let NextHopRule::Own { v4, v6 } = OWN else { unreachable!() };
                let egress = &mut info.egress;
                egress.export = match policy {
                    0 => Arc::new(Policy::accept()),
                    1 => Arc::new(Policy::reject()),
                    _ => divided(egress.kind == PeerKind::External),
                };
                if egress.kind.is_internal() {
                    let own = NextHopRule::KeepUnlessOwn { v4, v6 };
                    egress.next_hop = if policy == 2 { own } else { NextHopRule::Keep };
                }
                self.worker.handle(EgressIn::MemberChanged(Arc::new(info.clone())));
            }
            Step::PrefixSid(peer, on) => {
                let info = &mut self.infos[usize::from(peer)];
                info.egress.prefix_sid = on;
                self.worker.handle(EgressIn::MemberChanged(Arc::new(info.clone())));
            }
            Step::Backlog(peer, blocked) => {
                self.worker.handle(EgressIn::Backlog { peer: PeerId(u32::from(peer)), blocked });
            }
            Step::Deliver(shard) => {
                let shard = usize::from(shard) % self.shards.len();
                self.deliver(shard);
            }
            Step::DeliverAll => self.deliver_all(),
            Step::Flush(what, budget) => {
                self.flush(what, usize::from(budget));
            }
            Step::Up(_) | Step::Down(_) => {}
        }
    }

    /// Delivers everything; then every member must hold the expected routes.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for peer in 0..self.infos.len() as u32 {
            self.worker.handle(EgressIn::Backlog { peer: PeerId(peer), blocked: false });
        }
        loop {
            let more = self.flush(Flush::All, 3);
            if !more && self.queues.iter().all(VecDeque::is_empty) {
                break;
            }
            self.deliver_all();
        }
        prop_assert_eq!(self.worker.waiting(), 0);
        prop_assert_eq!(self.worker.waiting_paths(), 0, "every path is let go");
        for (at, info) in self.infos.iter().enumerate().filter(|(at, _)| self.up[*at]) {
            let receiver = Receiver { peer: info.id, session: info.session };
            let table = self.tables.remove(&receiver).unwrap_or_default();
            let view = self.worker.member(info.id).unwrap();
            prop_assert!(!view.joining);
            prop_assert!(table.unrefreshed.is_empty(), "a refresh has no end");
            prop_assert!(
                table.marks.is_empty() || at.is_multiple_of(2),
                "marks that peer {} does not know",
                at
            );
            prop_assert_eq!(table.messages, view.counters.messages);
            prop_assert_eq!(
                table.ends,
                AfiSafi::ALL.map(|family| u32::from(info.families.has(family))),
                "peer {}",
                at
            );
            let mut counts = [0, 0];
            for prefix in prefixes() {
                let best = self.shards.iter().find_map(|s| s.get(&prefix));
                let expected = best.and_then(|best| {
                    expected(info, &self.infos[best.source.0 as usize], &best.attrs, prefix)
                });
                let held = table.routes.get(&prefix).map(|(bytes, next_hop)| {
                    (Attributes::new(bytes).map(|a| (a.code, a.value.to_vec())).collect(), *next_hop)
                });
                counts[usize::from(prefix.afi() == Afi::Ipv6)] += u64::from(expected.is_some());
                prop_assert_eq!(held, expected, "{} at peer {}", prefix, at);
                // Both views of the Adj-RIB-Out are what the member holds.
                let explained = best.and_then(|b| match prefix {
                    AnyPrefix::V4(prefix) => self.worker.advertised(info.id, prefix, b).0,
                    AnyPrefix::V6(prefix) => self.worker.advertised(info.id, prefix, b).0,
                });
                let paged = best.and_then(|b| paged(&mut self.worker, info.id, prefix, b));
                prop_assert_eq!(&explained, &paged);
                let derived = paged.map(|a| (a.attributes, a.next_hop));
                prop_assert_eq!(derived.as_ref(), table.routes.get(&prefix));
            }
            prop_assert_eq!(AfiSafi::ALL.map(|family| view.advertised[family]), counts, "peer {}", at);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn every_member_ends_with_what_the_rules_give_it(steps in steps(), shards in 1usize..4) {
        let mut harness = Harness::new(shards);
        for step in steps {
            harness.step(step);
        }
        harness.settle()?;
    }
}
