//! Attributes that do not leave the AS, the SR domain, or the AIGP domain.

use super::*;
use ribtide_wire::bgp::attribute::aigp;

#[test]
fn extended_communities_that_are_not_transitive_stay_in_the_as() {
    let [transitive, other] = [[0, 2, 0xfd, 0xe9, 0, 0, 0, 5], [1, 3, 10, 0, 0, 1, 0, 6]];
    let bandwidth = [0x40, 4, 0xfd, 0xe9, 0x4c, 0xee, 0x6b, 0x28];
    let sent = |kind, list: &[[u8; 8]]| {
        let mut bytes = attrs(5).bytes().to_vec();
        let at = bytes.len() - 4; // Before the unknown attribute.
        let mut extended = Vec::new();
        build::list(&mut extended, 0xc0, code::EXTENDED_COMMUNITIES, list.as_flattened());
        bytes.splice(at..at, extended);
        let (source, to) = (peer(1, PeerKind::External), peer(2, kind));
        let attrs = AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(198, 51, 100, 1)));
        let path = paths::Path::plain(&BestPath { attrs, source: source.id, suppressed: false });
        let mut out = Vec::new();
        export::attributes(&to.egress, &source, &path, &mut out);
        let found = Attributes::new(&out).find(|a| a.code == code::EXTENDED_COMMUNITIES);
        found.map(|a| a.value.to_vec())
    };
    let all = [transitive, bandwidth, other];
    assert_eq!(sent(PeerKind::External, &all), Some([transitive, other].as_flattened().to_vec()));
    assert_eq!(sent(PeerKind::External, &[bandwidth]), None);
    let encapsulation = [3, 12, 0, 0, 0, 0, 0, 8];
    assert_eq!(sent(PeerKind::External, &[encapsulation, other]), Some(other.to_vec()));
    for internal in [PeerKind::Internal, PeerKind::Client] {
        assert_eq!(sent(internal, &all), Some(all.as_flattened().to_vec()));
    }
}

#[test]
fn tunnels_and_ipv6_communities_that_are_not_transitive_stay_in_the_as() {
    let tunnel = [0, 8, 0, 6, 6, 4, 10, 0, 0, 1];
    let [transitive, other] = [0, 0x40].map(|kind| {
        let mut community = [0; 20];
        (community[0], community[1]) = (kind, 2);
        community
    });
    let mut bytes = attrs(5).bytes().to_vec();
    let at = bytes.len() - 4; // Before the unknown attribute.
    let mut more = Vec::new();
    build::attribute(&mut more, 0xe0, code::TUNNEL_ENCAPSULATION, &tunnel);
    build::attribute(&mut more, 0xc0, code::IPV6_EXTENDED_COMMUNITIES, [transitive, other].as_flattened());
    bytes.splice(at..at, more);
    let sent = |kind| {
        let (source, to) = (peer(1, PeerKind::Internal), peer(2, kind));
        let attrs = AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(198, 51, 100, 1)));
        let path = paths::Path::plain(&BestPath { attrs, source: source.id, suppressed: false });
        let mut out = Vec::new();
        export::attributes(&to.egress, &source, &path, &mut out);
        [code::TUNNEL_ENCAPSULATION, code::IPV6_EXTENDED_COMMUNITIES]
            .map(|code| Attributes::new(&out).find(|a| a.code == code).map(|a| a.value.to_vec()))
    };
    let both = [transitive, other].as_flattened().to_vec();
    assert_eq!(sent(PeerKind::Client), [Some(tunnel.to_vec()), Some(both)]);
    assert_eq!(sent(PeerKind::External), [None, Some(transitive.to_vec())]);
}

#[test]
fn prefix_sids_go_to_internal_peers_and_to_external_ones_inside_the_sr_domain() {
    let with_sid = attrs(4);
    let sid = |bytes: &[u8]| {
        let found = Attributes::new(bytes).find(|a| a.code == code::PREFIX_SID);
        found.map(|a| (a.flags, a.value.to_vec()))
    };
    let received = sid(with_sid.bytes());
    assert!(received.is_some());
    let sent = |kind, prefix_sid| {
        let (source, mut to) = (peer(1, PeerKind::Client), peer(2, kind));
        to.egress.prefix_sid = prefix_sid;
        let path =
            paths::Path::plain(&BestPath { attrs: with_sid.clone(), source: source.id, suppressed: false });
        let mut out = Vec::new();
        export::attributes(&to.egress, &source, &path, &mut out);
        let last = Attributes::new(&out).last().map(|a| a.code);
        assert_eq!(last, Some(200), "what follows is sent");
        sid(&out)
    };
    assert_eq!(sent(PeerKind::External, false), None);
    assert_eq!(sent(PeerKind::External, true), received);
    for internal in [PeerKind::Internal, PeerKind::Client] {
        assert_eq!(sent(internal, false), received);
    }
}

#[test]
fn prefix_sids_of_a_neighbour_that_joins_or_leaves_the_sr_domain_are_sent_or_taken_back() {
    let mut infos = vec![peer(1, PeerKind::Internal), peer(2, PeerKind::External)];
    let mut worker = joined(&infos);
    let path = BestPath { attrs: attrs(4), source: PeerId(1), suppressed: false };
    let prefix = p4("10.0.0.0/8");
    let mut tables = BTreeMap::new();
    worker.handle(EgressIn::Best(Arc::new(best_batch(&[(prefix, None, Some(&path))]))));
    let mut settle = |worker: &mut Worker, infos: &[PeerInfo]| {
        for request in worker.requests() {
            let changes = [(prefix, None, Some(&path))];
            let batch = if request.family == AfiSafi::Ipv4Unicast {
                best_batch(&changes)
            } else {
                BestBatch::default()
            };
            worker.handle(EgressIn::Dump { token: request.token, batch, last: true });
        }
        read_all(&flushed(worker), infos, &mut tables);
        let (bytes, _) = &tables[&Receiver { peer: PeerId(2), session: 1 }].routes[&prefix.any()];
        Attributes::new(bytes).any(|a| a.code == code::PREFIX_SID)
    };
    assert!(!settle(&mut worker, &infos));
    for on in [true, false] {
        infos[1].egress.prefix_sid = on;
        worker.handle(EgressIn::MemberChanged(Arc::new(infos[1].clone())));
        assert_eq!(settle(&mut worker, &infos), on);
    }
}

/// Attributes with an accumulated IGP metric and other TLVs, as they are sent.
fn sent_aigp(
    settings: impl FnOnce(&mut EgressSettings),
    distance: Option<u32>,
    metric: u64,
    kinds: [PeerKind; 2],
) -> Option<Vec<u8>> {
    let mut bytes = attrs(5).bytes().to_vec();
    let at = bytes.len() - 4; // Before the unknown attribute.
    let mut more = Vec::new();
    build::attribute(&mut more, 0x80, code::AIGP, &[&aigp::value(metric)[..], &[9, 0, 4, 7]].concat());
    bytes.splice(at..at, more);
    let attrs = AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::new(198, 51, 100, 1))).with_distance(distance);
    let [source, mut to] = [peer(1, kinds[0]), peer(2, kinds[1])];
    to.egress.aigp = true;
    settings(&mut to.egress);
    let path = BestPath { attrs, source: source.id, suppressed: false };
    let path = offers::explain(&to.egress, &source, &path, p4("10.0.0.0/8"), &mut Vec::new()).unwrap();
    let mut out = Vec::new();
    export::attributes(&to.egress, &source, &path, &mut out);
    assert_eq!(Attributes::new(&out).last().map(|a| a.code), Some(200), "what follows is sent");
    let found = Attributes::new(&out).find(|a| a.code == code::AIGP)?;
    assert_eq!(found.flags, 0x80);
    Some(found.value.to_vec())
}

/// RFC 7311 sections 3.3 and 3.4.3.
#[test]
fn aigp_grows_by_the_distance_where_we_are_the_next_hop_and_stays_in_its_domain() {
    use PeerKind::{Client, External, Internal};
    let with = |metric: u64| Some([&aigp::value(metric)[..], &[9, 0, 4, 7]].concat());
    let own = |settings: &mut EgressSettings| settings.next_hop = OWN;
    let plain = |_: &mut EgressSettings| {};
    assert_eq!(sent_aigp(plain, Some(30), 5, [External, Internal]), with(5));
    assert_eq!(sent_aigp(own, Some(30), 5, [External, Internal]), with(35));
    assert_eq!(sent_aigp(own, Some(0), 5, [External, Internal]), with(6), "a non-zero amount");
    assert_eq!(sent_aigp(own, Some(30), 5, [Client, Internal]), with(5), "a reflected route");
    assert_eq!(sent_aigp(plain, Some(30), 5, [Internal, External]), with(35));
    assert_eq!(sent_aigp(plain, Some(30), u64::MAX - 9, [Internal, External]), with(u64::MAX - 1));
    let off = |settings: &mut EgressSettings| settings.aigp = false;
    for kind in [Internal, External] {
        assert_eq!(sent_aigp(off, Some(30), 5, [External, kind]), None);
    }
    // A part of the way is not known: it ends with us, and goes on where we change nothing.
    let unknown = Some(crate::message::UNKNOWN_DISTANCE);
    assert_eq!(sent_aigp(own, unknown, 5, [External, Internal]), None);
    assert_eq!(sent_aigp(plain, unknown, 5, [External, Internal]), with(5));
    // Originated here: sent as it is, and only where we are the next hop.
    assert_eq!(sent_aigp(own, None, 5, [External, Internal]), with(5));
    assert_eq!(sent_aigp(plain, None, 5, [External, Internal]), None);
}

/// RFC 7311 section 3.4.1: a router that is not the next hop must not add it.
#[test]
fn aigp_of_an_export_policy_is_sent_as_it_is_where_we_are_the_next_hop() {
    use PeerKind::{External, Internal};
    let policy = |next_hop| {
        let actions = Actions { aigp: Some(77), next_hop, med: Some(Med::Set(3)), ..Actions::default() };
        let statement = Statement { actions, then: Then::Accept, ..Statement::default() };
        let definition = Definition { name: "metric".into(), statements: vec![statement] };
        Arc::new(Policy::new(vec![Arc::new(definition)], false))
    };
    let sent = |next_hop, rule| {
        let settings = |settings: &mut EgressSettings| {
            (settings.export, settings.next_hop) = (policy(next_hop), rule);
        };
        sent_aigp(settings, Some(30), 5, [External, Internal])
    };
    let received = Some([&aigp::value(5)[..], &[9, 0, 4, 7]].concat());
    assert_eq!(sent(None, OWN), Some(aigp::value(77).to_vec()));
    assert_eq!(sent(Some(SetNextHop::Own), OWN), Some(aigp::value(77).to_vec()));
    assert_eq!(sent(None, NextHopRule::Keep), received, "with the distance, which is not added");
}
