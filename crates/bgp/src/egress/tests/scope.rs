//! Attributes that do not leave the AS, or the SR domain.

use super::*;

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
        let path = paths::Path::plain(&BestPath { attrs, source: source.id });
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
        let path = paths::Path::plain(&BestPath { attrs, source: source.id });
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
        let path = paths::Path::plain(&BestPath { attrs: with_sid.clone(), source: source.id });
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
    let path = BestPath { attrs: attrs(4), source: PeerId(1) };
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
