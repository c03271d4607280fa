mod add_path;
mod max_prefixes;
mod validation;

use super::*;
use crate::message::RouteOp;
use crate::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use proptest::prelude::*;
use ribtide_policy::{
    Actions, AsPathSet, Condition, Definition, Match, Named, Numbers, Policy, PrefixCondition, PrefixSet,
    Statement, Then,
};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AnyPrefix, Prefix, V4, V6, logical_shard};
use ribtide_wire::bgp::attribute::{Origin, code};
use ribtide_wire::bgp::build::UpdatePacker;
use ribtide_wire::bgp::update::{AttributeFilter, FaultKind};
use ribtide_wire::bgp::{AsPath, build};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const HEADER: usize = 19;

fn peer(kind: PeerKind, settings: IngestSettings) -> IngestPeer {
    let families = FamilySet::IPV4_UNICAST;
    let info = PeerInfo {
        id: PeerId(3),
        session: 1,
        address: Ipv4Addr::new(192, 0, 2, 3).into(),
        asn: if kind.is_internal() { 65000 } else { 65001 },
        router_id: Ipv4Addr::new(10, 0, 0, 3),
        kind,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings {
            cluster_id: Ipv4Addr::new(10, 0, 0, 99),
            ..EgressSettings::new(
                kind,
                65000,
                Ipv4Addr::new(10, 0, 0, 1),
                families,
                Arc::new(Policy::new(vec![], false)),
            )
        },
    };
    IngestPeer::new(Arc::new(info), settings)
}

fn settings() -> IngestSettings {
    let import = Arc::new(Policy::accept());
    IngestSettings {
        enforce_first_as: true,
        martians: Arc::new(Martians::default_list()),
        ..IngestSettings::new(import)
    }
}

fn path(asns: &[u32]) -> Vec<u8> {
    let mut value = vec![2, asns.len() as u8];
    asns.iter().for_each(|asn| value.extend_from_slice(&asn.to_be_bytes()));
    value
}

/// ORIGIN and AS_PATH, then whatever `more` appends.
fn attributes(asns: &[u32], more: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    build::origin(&mut out, Origin::Igp);
    build::as_path(&mut out, AsPath::new(&path(asns)));
    more(&mut out);
    out
}

fn announce<F: BgpFamily>(attributes: &[u8], next_hop: NextHop, prefixes: &[&str]) -> Vec<u8> {
    let prefixes: Vec<Prefix<F>> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
    let mut out = Vec::new();
    UpdatePacker::new(attributes, next_hop, 4096).announce(prefixes, &mut out).unwrap();
    out.split_off(HEADER)
}

fn announce_v4(attributes: &[u8], prefixes: &[&str]) -> Vec<u8> {
    announce::<V4>(attributes, NextHop::V4(Ipv4Addr::new(192, 0, 2, 3)), prefixes)
}

/// What one thread gets, each operation as the attribute bytes and the number of prefixes.
fn ops(out: &mut ShardBatches) -> Vec<(Option<Vec<u8>>, u32)> {
    let op = |op: RouteOp| (op.attrs.map(|attrs| attrs.bytes().to_vec()), op.count);
    out.drain().flat_map(|(_, batch)| batch.ops).map(op).collect()
}

#[test]
fn equal_attributes_in_a_row_are_one_operation() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let attrs = attributes(&[65001, 9], |_| {});
    for prefixes in [&["10.0.0.0/8", "10.1.0.0/16"][..], &["10.2.0.0/16"]] {
        assert_eq!(ingest.update(&mut peer, &announce_v4(&attrs, prefixes), &mut out), Ok(None));
    }
    assert_eq!((out.len(), ingest.len(), peer.counters.announced), (3, 1, 3));
    assert_eq!(ops(&mut out), [(Some(attrs), 3)], "one operation for both UPDATEs");
}

#[test]
fn attributes_that_come_again_are_one_set_until_they_are_forgotten() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let updates = [8, 9].map(|origin| announce_v4(&attributes(&[65001, origin], |_| {}), &["10.0.0.0/8"]));
    let mut rounds = Vec::new();
    for _ in 0..3 {
        for update in &updates {
            ingest.update(&mut peer, update, &mut out).unwrap();
        }
        let ops = out.drain().flat_map(|(_, batch)| batch.ops);
        rounds.push(ops.map(|op| op.attrs.unwrap()).collect::<Vec<_>>());
    }
    assert!(rounds.iter().all(|round| *round == rounds[0]), "equal, whether shared or not");
    assert!(AttrSet::ptr_eq(&rounds[1][0], &rounds[2][0]) && AttrSet::ptr_eq(&rounds[1][1], &rounds[2][1]));
    assert_eq!(ingest.len(), 2);
    ingest.forget();
    assert!(ingest.is_empty());
    assert_eq!(rounds[1][0].handles(), 2, "those of these rounds alone");
}

#[test]
fn attributes_are_kept_in_order_without_what_only_concerns_this_session() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let mut backwards = vec![0, 0, 0, 0];
    build::local_pref(&mut backwards, 200);
    build::med(&mut backwards, 5);
    build::next_hop(&mut backwards, Ipv4Addr::new(192, 0, 2, 3));
    build::as_path(&mut backwards, AsPath::new(&path(&[65001])));
    build::origin(&mut backwards, Origin::Igp);
    let len = (backwards.len() - 4) as u16;
    backwards[2..4].copy_from_slice(&len.to_be_bytes());
    backwards.extend_from_slice(&[8, 10]);
    ingest.update(&mut peer, &backwards, &mut out).unwrap();
    let kept = attributes(&[65001], |out| build::med(out, 5));
    assert_eq!(ops(&mut out), [(Some(kept), 1)]);
    assert_eq!(peer.counters.discarded_attributes, 1, "LOCAL_PREF from an external peer");
}

/// RFC 5065 sections 4 and 5: segments of a confederation are for its members alone, and a path from another member AS begins
/// with one. We are member 65000 of the confederation 100.
#[test]
fn confederation_segments_are_those_of_members() {
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let member =
        IngestSettings { confederation: true, other_own_as: [100, 0], enforce_first_as: false, ..settings() };
    let alone = IngestSettings { enforce_first_as: false, ..settings() };
    let segments = |segments: &[(u8, &[u32])]| {
        let mut value = Vec::new();
        for (kind, asns) in segments {
            value.extend_from_slice(&[*kind, asns.len() as u8]);
            asns.iter().for_each(|asn| value.extend_from_slice(&asn.to_be_bytes()));
        }
        let mut block = Vec::new();
        build::origin(&mut block, Origin::Igp);
        build::as_path(&mut block, AsPath::new(&value));
        announce_v4(&block, &["10.0.0.0/8"])
    };
    use PeerKind::{Confederation, External, Internal};
    // The peer is of AS 65001.
    for (kind, settings, path, refused, malformed) in [
        (Confederation, &member, &[(3, &[65001][..]), (2, &[7])][..], None, false),
        (Confederation, &member, &[(3, &[65001, 65002])], None, false),
        (Confederation, &member, &[(2, &[65001, 7])], Some(Refusal::MemberAs), false),
        (Confederation, &member, &[(3, &[65002, 65001])], Some(Refusal::MemberAs), false),
        (Confederation, &member, &[(4, &[65001])], Some(Refusal::MemberAs), false),
        (Confederation, &member, &[], Some(Refusal::MemberAs), false),
        (Confederation, &member, &[(3, &[65001, 65000])], Some(Refusal::AsLoop), false),
        (Confederation, &member, &[(3, &[65001]), (2, &[7, 100])], Some(Refusal::AsLoop), false),
        (Internal, &member, &[(3, &[65002]), (2, &[7])], None, false),
        (Internal, &member, &[], None, false),
        (External, &member, &[(2, &[65001, 100])], Some(Refusal::AsLoop), false),
        (External, &member, &[(3, &[65001]), (2, &[7])], None, true),
        (Internal, &alone, &[(3, &[65002]), (2, &[7])], None, true),
    ] {
        let mut peer = peer(kind, settings.clone());
        ingest.update(&mut peer, &segments(path), &mut out).unwrap();
        let counters = &peer.counters;
        let (why, faults) = (counters.last_refusal, counters.treated_as_withdraw);
        assert_eq!((why, faults), (refused, u64::from(malformed)), "{kind:?} {path:?}");
        assert_eq!(counters.announced, u64::from(refused.is_none() && !malformed), "{kind:?} {path:?}");
        ops(&mut out);
    }
}

/// RFC 7705 section 3: the AS that the peer knows us by comes before the path, after all checks of the path.
#[test]
fn local_as_is_prepended_to_received_paths() {
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let ours = IngestSettings { prepended_as: Some(65010), other_own_as: [65010, 0], ..settings() };
    let mut external = peer(PeerKind::External, ours);
    let med: fn(&mut Vec<u8>) = |out| build::med(out, 5);
    for (asns, kept) in
        [(&[65001, 9][..], Some(&[65010, 65001, 9][..])), (&[9], None), (&[65001, 65010], None)]
    {
        ingest
            .update(&mut external, &announce_v4(&attributes(asns, med), &["10.0.0.0/8"]), &mut out)
            .unwrap();
        assert_eq!(ops(&mut out), [(kept.map(|kept| attributes(kept, med)), 1)], "{asns:?}");
    }
    let refused = [Refusal::FirstAs, Refusal::AsLoop].map(|why| external.counters.refused(why));
    assert_eq!(refused, [1, 1]);
}

#[test]
fn what_is_refused_goes_as_if_withdrawn() {
    let own = Ipv4Addr::new(10, 0, 0, 1);
    type Case = (&'static [u32], Refusal, fn(&mut Vec<u8>));
    let loops: [Case; 3] = [
        (&[65001, 65000], Refusal::AsLoop, |_| {}),
        (&[65001], Refusal::OriginatorLoop, |out| build::originator_id(out, Ipv4Addr::new(10, 0, 0, 1))),
        (&[65001], Refusal::ClusterLoop, |out| build::cluster_list(out, Ipv4Addr::new(10, 0, 0, 99), &[])),
    ];
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let mut internal = peer(PeerKind::Internal, settings());
    assert_eq!(internal.info().egress.router_id, own);
    for (asns, why, more) in loops {
        ingest
            .update(&mut internal, &announce_v4(&attributes(asns, more), &["10.0.0.0/8"]), &mut out)
            .unwrap();
        assert_eq!(ops(&mut out), [(None, 1)], "{why}");
        assert_eq!((internal.counters.refused(why), internal.counters.last_refusal), (1, Some(why)));
    }
    assert_eq!(internal.counters.announced, 0);

    let foreign = announce_v4(&attributes(&[7], |_| {}), &["10.0.0.0/8"]);
    let mut external = peer(PeerKind::External, settings());
    ingest.update(&mut external, &foreign, &mut out).unwrap();
    assert_eq!(external.counters.refused(Refusal::FirstAs), 1);
    let mut lenient = peer(PeerKind::External, IngestSettings { enforce_first_as: false, ..settings() });
    ingest.update(&mut lenient, &foreign, &mut out).unwrap();
    assert_eq!(lenient.counters.announced, 1, "the same bytes, another context");

    let import = Arc::new(Policy::new(vec![], true));
    let mut closed = peer(PeerKind::External, IngestSettings { import, ..settings() });
    ingest
        .update(&mut closed, &announce_v4(&attributes(&[65001], |_| {}), &["10.0.0.0/8"]), &mut out)
        .unwrap();
    assert_eq!(closed.counters.refused(Refusal::ImportPolicy), 1);

    let looped = announce_v4(&attributes(&[65001, 65000], |_| {}), &["10.0.0.0/8"]);
    // Each AS of ours counts by itself (allowas-in), and none is forgotten.
    for (allow_own_as, asns, loops) in [
        (0, &[65001, 65010][..], true),
        (1, &[65001, 65010, 65000], false),
        (1, &[65001, 65010, 7, 65010], true),
        (1, &[65001, 65020, 65020], true),
        (2, &[65001, 65010, 65010, 65000, 65000], false),
    ] {
        let other_own_as = [65010, 65020];
        let ours = IngestSettings { allow_own_as, other_own_as, ..settings() };
        let mut external = peer(PeerKind::External, ours);
        ingest
            .update(&mut external, &announce_v4(&attributes(asns, |_| {}), &["10.0.0.0/8"]), &mut out)
            .unwrap();
        assert_eq!(external.counters.refused(Refusal::AsLoop), u64::from(loops), "{asns:?}");
        ops(&mut out);
    }
    let mut tolerant = peer(PeerKind::External, IngestSettings { allow_own_as: 1, ..settings() });
    ingest.update(&mut tolerant, &looped, &mut out).unwrap();
    assert_eq!(tolerant.counters.announced, 1);
}

#[test]
fn a_malformed_update_withdraws_and_an_unreadable_one_ends_the_session() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let mut bad = announce_v4(&attributes(&[65001], |_| {}), &["10.0.0.0/8", "10.1.0.0/16"]);
    bad[7] = 9; // ORIGIN
    ingest.update(&mut peer, &bad, &mut out).unwrap();
    assert_eq!(ops(&mut out), [(None, 2)]);
    assert_eq!(peer.counters.treated_as_withdraw, 1);
    assert_eq!(peer.counters.last_fault.unwrap().to_string(), "ORIGIN has an invalid value");
    assert!(ingest.update(&mut peer, &[0, 0], &mut out).is_err());
    assert!(out.is_empty() && ingest.is_empty());
}

#[test]
fn families_that_were_not_negotiated_are_ignored_and_end_of_rib_is_told() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let next_hop = NextHop::from_v6("2001:db8::1".parse().unwrap(), None);
    let update = announce::<V6>(&attributes(&[65001], |_| {}), next_hop, &["2001:db8::/32"]);
    assert_eq!(ingest.update(&mut peer, &update, &mut out), Ok(None));
    assert!(out.is_empty());
    assert_eq!((peer.counters.ignored, peer.counters.announced), (1, 0));
    assert_eq!(ingest.update(&mut peer, &[0, 0, 0, 0], &mut out), Ok(Some(AfiSafi::Ipv4Unicast)));
}

/// A route as it arrives at a thread: whose, which attributes, and the prefix.
type Arrival = (u32, usize, AnyPrefix);

/// Takes 10.0.0.0/8 with lengths up to 24 with LOCAL_PREF 200, everything of AS 9 as it is, and nothing else.
fn two_statements() -> Arc<Policy> {
    let ours = Named::new("ours", PrefixSet::new(["10.0.0.0/8 8..24".parse().unwrap()]));
    let origin = [Numbers::one(9)].into_iter().collect();
    let nine = Named::new("nine", AsPathSet { origin, ..AsPathSet::default() });
    let statements = vec![
        Statement {
            prefix_conditions: vec![PrefixCondition { set: ours, invert: false }],
            actions: Actions { local_pref: Some(200), ..Actions::default() },
            then: Then::Accept,
            ..Statement::default()
        },
        Statement {
            conditions: vec![Condition::AsPathSet(nine, Match::Any)],
            then: Then::Accept,
            ..Statement::default()
        },
    ];
    Arc::new(Policy::new(vec![Arc::new(Definition { name: "two".into(), statements })], true))
}

#[test]
fn a_policy_that_looks_at_prefixes_divides_an_update() {
    let (mut ingest, mut peer) = (
        Ingest::default(),
        peer(PeerKind::External, IngestSettings { import: two_statements(), ..settings() }),
    );
    let mut out = ShardBatches::new([0; 64]);
    let preferred = |asns: &[u32]| Some(attributes(asns, |out| build::local_pref(out, 200)));
    // More than once: the first time nothing is remembered, then it is made, then found.
    for round in 1..=3 {
        let received = attributes(&[65001, 9], |_| {});
        let prefixes = ["10.1.0.0/16", "10.2.0.0/16", "11.0.0.0/8", "10.0.0.0/25", "10.3.0.0/16"];
        ingest.update(&mut peer, &announce_v4(&received, &prefixes), &mut out).unwrap();
        let accepted = [(preferred(&[65001, 9]), 2), (Some(received), 2), (preferred(&[65001, 9]), 1)];
        assert_eq!(ops(&mut out), accepted);
        let other = attributes(&[65001, 8], |_| {});
        ingest.update(&mut peer, &announce_v4(&other, &["11.0.0.0/8", "10.1.0.0/16"]), &mut out).unwrap();
        assert_eq!(ops(&mut out), [(None, 1), (preferred(&[65001, 8]), 1)]);
        assert_eq!(
            (peer.counters.announced, peer.counters.refused(Refusal::ImportPolicy)),
            (6 * round, round)
        );
    }
    assert_eq!(peer.counters.last_refusal, Some(Refusal::ImportPolicy));
    ingest.forget();
    assert!(ingest.is_empty(), "the judgements are forgotten with what they hold");
}

#[test]
fn another_import_policy_holds_for_what_comes_then() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let received = attributes(&[65001, 8], |_| {});
    let update = announce_v4(&received, &["10.0.0.0/8", "11.0.0.0/8"]);
    ingest.update(&mut peer, &update, &mut out).unwrap();
    assert_eq!(ops(&mut out), [(Some(received), 2)]);
    peer.set(IngestSettings { import: two_statements(), ..settings() });
    ingest.update(&mut peer, &update, &mut out).unwrap();
    let preferred = attributes(&[65001, 8], |out| build::local_pref(out, 200));
    assert_eq!(ops(&mut out), [(Some(preferred), 1), (None, 1)], "what is refused now goes");
}

#[test]
fn judgements_are_each_policys_and_sources_own() {
    let import = two_statements();
    let mut ingest = Ingest::default();
    let mut careful = peer(PeerKind::External, IngestSettings { import: import.clone(), ..settings() });
    let mut open = peer(PeerKind::External, settings());
    let mut internal = peer(PeerKind::Internal, IngestSettings { import, ..settings() });
    let mut out = ShardBatches::new([0; 64]);
    let received = attributes(&[65001, 9], |_| {});
    let update = announce_v4(&received, &["10.0.0.0/8"]);
    let preferred = attributes(&[65001, 9], |out| build::local_pref(out, 200));
    for _ in 0..3 {
        for (peer, expected) in
            [(&mut careful, &preferred), (&mut open, &received), (&mut internal, &preferred)]
        {
            ingest.update(peer, &update, &mut out).unwrap();
            assert_eq!(ops(&mut out), [(Some(expected.clone()), 1)]);
        }
    }
}

proptest! {
    // Every route reaches the thread of its shard, and nothing of one session and family overtakes on the way.
    #[test]
    fn batches_are_the_routes_in_order(
        runs in prop::collection::vec((1..3u32, any::<bool>(), 0..3usize, prop::collection::vec(any::<u32>(), 0..9)), 0..60),
        threads in 1..=64u16,
    ) {
        let set = |n: u8| AttrSet::new(&[0x40, 1, 1, n], NextHop::V4(Ipv4Addr::new(192, 0, 2, 3)));
        let choices = [None, Some(set(0)), Some(set(1))];
        let map: ShardMap = std::array::from_fn(|shard| shard as u16 % threads);
        let mut out = ShardBatches::new(map);
        let sessions = [1, 2].map(|session| {
            let info = peer(PeerKind::Internal, settings()).info().as_ref().clone();
            PeerInfo { session, ..info }
        });
        let mut expected: Vec<Vec<Arrival>> = vec![Vec::new(); usize::from(threads)];
        for (session, six, choice, bits) in &runs {
            let (info, attrs) = (&sessions[*session as usize - 1], choices[*choice].as_ref());
            let mut expect = |shard, prefix| {
                expected[usize::from(map[usize::from(shard)])].push((*session, *choice, prefix));
            };
            if *six {
                let prefix = |bits: &u32| Prefix::<V6>::new(u128::from_be_bytes([0x20; 16]).rotate_left(*bits).to_be_bytes(), 48);
                bits.iter().for_each(|bits| expect(logical_shard(prefix(bits)), prefix(bits).any()));
                out.extend(info, attrs, bits.iter().map(prefix));
            } else {
                let prefix = |bits: &u32| Prefix::<V4>::new(*bits, 24);
                bits.iter().for_each(|bits| expect(logical_shard(prefix(bits)), prefix(bits).any()));
                out.extend(info, attrs, bits.iter().map(prefix));
            }
        }
        prop_assert_eq!(out.len(), expected.iter().map(Vec::len).sum::<usize>());
        let mut seen: Vec<Vec<Arrival>> = vec![Vec::new(); usize::from(threads)];
        for (thread, batch) in out.drain() {
            let (mut v4, mut v6) = (batch.prefixes.v4.into_iter(), batch.prefixes.v6.into_iter());
            for op in batch.ops {
                let choice = choices.iter().position(|attrs| *attrs == op.attrs).unwrap();
                prop_assert!(op.count > 0);
                for _ in 0..op.count {
                    let prefix = match op.family {
                        AfiSafi::Ipv4Unicast => v4.next().map(Prefix::any),
                        AfiSafi::Ipv6Unicast => v6.next().map(Prefix::any),
                    };
                    seen[usize::from(thread)].push((batch.session, choice, prefix.unwrap()));
                }
            }
            prop_assert!(v4.next().is_none() && v6.next().is_none());
        }
        prop_assert_eq!(seen, expected);
        prop_assert!(out.is_empty() && out.drain().next().is_none());
    }
}

#[test]
fn martians_are_refused_and_the_rest_of_the_update_is_kept() {
    let statements = || IngestSettings { import: two_statements(), ..settings() };
    for settings in [settings(), statements()] {
        let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings));
        let mut out = ShardBatches::new([0; 64]);
        let mixed = announce_v4(
            &attributes(&[65001], |_| {}),
            &["127.0.0.0/24", "10.1.0.0/16", "224.0.1.0/24", "239.0.0.0/8", "0.0.0.0/0"],
        );
        ingest.update(&mut peer, &mixed, &mut out).unwrap();
        assert_eq!((peer.counters.refused(Refusal::Martian), out.len()), (3, 5));
        assert_eq!(peer.counters.announced + peer.counters.refused(Refusal::ImportPolicy), 2);
        let kept: u32 = ops(&mut out).iter().filter(|(attrs, _)| attrs.is_some()).map(|(_, n)| n).sum();
        assert_eq!(u64::from(kept), peer.counters.announced);
        // To withdraw one does no harm, and none is counted as refused for it.
        ingest.update(&mut peer, &[0, 4, 24, 127, 0, 0, 0, 0], &mut out).unwrap();
        assert_eq!((peer.counters.refused(Refusal::Martian), peer.counters.withdrawn), (3, 1));
    }
}

#[test]
fn other_settings_count_from_the_next_update() {
    let (mut ingest, mut peer) = (Ingest::default(), peer(PeerKind::External, settings()));
    let mut out = ShardBatches::new([0; 64]);
    let update = announce_v4(&attributes(&[7], |_| {}), &["127.0.0.0/24"]);
    ingest.update(&mut peer, &update, &mut out).unwrap();
    assert_eq!(peer.counters.refused(Refusal::FirstAs), 1);
    peer.set(IngestSettings { enforce_first_as: false, ..settings() });
    ingest.update(&mut peer, &update, &mut out).unwrap();
    assert_eq!(peer.counters.refused(Refusal::Martian), 1);
    let martians = Arc::new(Martians::none());
    let open = IngestSettings { enforce_first_as: false, martians, ..settings() };
    peer.set(open.clone());
    ingest.update(&mut peer, &update, &mut out).unwrap();
    assert_eq!(peer.counters.announced, 1);
    let mut attributes = AttributeFilter::default();
    attributes.withdraw.insert(1);
    peer.set(IngestSettings { attributes, ..open });
    ingest.update(&mut peer, &update, &mut out).unwrap();
    assert_eq!(peer.counters.treated_as_withdraw, 1);
    assert_eq!(peer.counters.last_fault.unwrap().kind, FaultKind::Unwanted);
}

#[test]
fn prefix_sid_of_an_external_peer_is_kept_once_it_is_inside_the_sr_domain() {
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let sid = |flags| {
        move |out: &mut Vec<u8>| {
            build::attribute(out, flags, code::PREFIX_SID, &[1, 0, 7, 0, 0, 0, 0, 0, 0, 9])
        }
    };
    let update = announce_v4(&attributes(&[65001], sid(0xc0)), &["10.0.0.0/8"]);
    let (with, without) = (attributes(&[65001], sid(0xe0)), attributes(&[65001], |_| {}));
    let mut external = peer(PeerKind::External, settings());
    // The same bytes, so that a cached result of the other setting would show.
    for (prefix_sid, kept, discarded) in [(false, &without, 1), (true, &with, 1), (false, &without, 2)] {
        external.set(IngestSettings { prefix_sid, ..settings() });
        ingest.update(&mut external, &update, &mut out).unwrap();
        assert_eq!(ops(&mut out), [(Some(kept.clone()), 1)]);
        assert_eq!(external.counters.discarded_attributes, discarded);
    }
    assert_eq!(external.counters.last_discard.unwrap().kind, FaultKind::External);
    let mut internal = peer(PeerKind::Internal, settings());
    ingest.update(&mut internal, &update, &mut out).unwrap();
    assert_eq!((ops(&mut out), internal.counters.discarded_attributes), (vec![(Some(with), 1)], 0));
}

/// The ingress rules of RFC 9234 section 5; the peer is AS 65001.
#[test]
fn otc_marks_routes_from_above_and_shows_leaks() {
    use ribtide_wire::bgp::role::Role::{Customer, Peer, Provider, RouteServer, RouteServerClient};
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let otc = |asn: Option<u32>| {
        attributes(&[65001], |out| {
            if let Some(asn) = asn {
                build::attribute(out, 0xc0, code::OTC, &asn.to_be_bytes());
            }
        })
    };
    let mut external = peer(PeerKind::External, settings());
    let mut leaks = 0;
    for (ours, received, kept) in [
        (None, None, Some(None)),
        (None, Some(7), Some(Some(7))),
        (Some(Provider), None, Some(None)),
        (Some(Provider), Some(65001), None),
        (Some(RouteServer), None, Some(None)),
        (Some(RouteServer), Some(7), None),
        (Some(Peer), None, Some(Some(65001))),
        (Some(Peer), Some(65001), Some(Some(65001))),
        (Some(Peer), Some(7), None),
        (Some(Customer), None, Some(Some(65001))),
        (Some(Customer), Some(7), Some(Some(7))),
        (Some(RouteServerClient), None, Some(Some(65001))),
        (Some(RouteServerClient), Some(7), Some(Some(7))),
    ] {
        external.set(IngestSettings { role: ours, ..settings() });
        ingest.update(&mut external, &announce_v4(&otc(received), &["10.0.0.0/8"]), &mut out).unwrap();
        assert_eq!(ops(&mut out), [(kept.map(otc), 1)], "{ours:?} {received:?}");
        leaks += u64::from(kept.is_none());
        assert_eq!(external.counters.refused(Refusal::RouteLeak), leaks);
    }
}

#[test]
fn loopback_next_hops_are_refused_but_in_a_session_over_the_loopback() {
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let by = |next_hop| announce::<V4>(&attributes(&[65001], |_| {}), next_hop, &["10.1.0.0/16"]);
    let loopback = by(NextHop::V4(Ipv4Addr::new(127, 9, 9, 9)));
    let six = by(NextHop::from_v6(std::net::Ipv6Addr::LOCALHOST, None));
    let mut peer = peer(PeerKind::External, settings());
    ingest.update(&mut peer, &loopback, &mut out).unwrap();
    ingest.update(&mut peer, &six, &mut out).unwrap();
    assert_eq!((peer.counters.refused(Refusal::Martian), peer.counters.announced), (2, 0));
    assert!(ops(&mut out).iter().all(|(attrs, _)| attrs.is_none()), "as if withdrawn");
    let info = PeerInfo { address: Ipv4Addr::LOCALHOST.into(), ..(*peer.info).clone() };
    let mut over_it = IngestPeer::new(Arc::new(info), settings());
    ingest.update(&mut over_it, &loopback, &mut out).unwrap();
    assert_eq!(over_it.counters.announced, 1);
}

/// RFC 2545 section 3: a lone link-local address is on the link that the session shares. One beside a global address is not
/// needed to resolve the route.
#[test]
fn lone_link_local_next_hops_are_on_the_link_of_a_session_over_a_global_address() {
    let mut ingest = Ingest::default();
    let peer = peer(PeerKind::External, settings());
    let (global, local) = ("2001:db8::2".parse().unwrap(), "fe80::2".parse().unwrap());
    let mut resolved_by = |link, next_hop| {
        let info = PeerInfo { families: FamilySet::UNICAST, link, ..PeerInfo::clone(&peer.info) };
        let mut peer = IngestPeer::new(Arc::new(info), settings());
        let mut out = ShardBatches::new([0; 64]);
        let bytes = announce::<V6>(&attributes(&[65001], |_| {}), next_hop, &["2001:db8:a::/48"]);
        ingest.update(&mut peer, &bytes, &mut out).unwrap();
        out.drain().flat_map(|(_, batch)| batch.ops).find_map(|op| Some(op.attrs?.next_hop().addr())).unwrap()
    };
    let alone = NextHop::from_v6(local, None);
    assert_eq!(split_zone(resolved_by(Some(7), alone)), (local.into(), Some(7)));
    assert_eq!(split_zone(resolved_by(None, alone)), (local.into(), None));
    assert_eq!(resolved_by(Some(7), NextHop::from_v6(global, Some(local))), IpAddr::from(global));
}

#[test]
fn ipv6_paths_with_ipv4_mapped_next_hops_are_refused() {
    let mut ingest = Ingest::default();
    let mut out = ShardBatches::new([0; 64]);
    let mapped = NextHop::from_v6(Ipv4Addr::new(10, 0, 1, 2).to_ipv6_mapped(), None);
    let peer = peer(PeerKind::External, settings());
    let info = PeerInfo { families: FamilySet::UNICAST, ..PeerInfo::clone(&peer.info) };
    let mut peer = IngestPeer::new(Arc::new(info), settings());
    let of_v6 = announce::<V6>(&attributes(&[65001], |_| {}), mapped, &["2001:db8:a::/48"]);
    ingest.update(&mut peer, &of_v6, &mut out).unwrap();
    assert_eq!((peer.counters.refused(Refusal::Martian), peer.counters.announced), (1, 0));
    assert!(ops(&mut out).iter().all(|(attrs, _)| attrs.is_none()), "as if withdrawn");
    let native = NextHop::from_v6("2001:db8::2".parse().unwrap(), None);
    let of_v6 = announce::<V6>(&attributes(&[65001], |_| {}), native, &["2001:db8:a::/48"]);
    ingest.update(&mut peer, &of_v6, &mut out).unwrap();
    assert_eq!(peer.counters.announced, 1);
}
