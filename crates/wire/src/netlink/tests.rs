//! Written messages read back equal; arbitrary bytes never panic; a real acknowledgement is
//! understood.

use super::numbers::*;
use super::*;
use proptest::prelude::*;
use ribtide_prefix::{Afi, AnyPrefix};
use std::net::IpAddr;

fn one(buf: &[u8]) -> Message<'_> {
    let mut all = messages(buf);
    let first = all.next().unwrap().unwrap();
    assert!(all.next().is_none());
    first
}

fn any_addr() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn any_prefix() -> impl Strategy<Value = AnyPrefix> {
    (any_addr(), 0..=128u8).prop_map(|(addr, len)| {
        AnyPrefix::from_addr(addr, if addr.is_ipv4() { len % 33 } else { len }).unwrap()
    })
}

fn any_via() -> impl Strategy<Value = Via> {
    (proptest::option::of(any_addr()), 1..u32::MAX, any::<bool>())
        .prop_map(|(gateway, ifindex, onlink)| Via { gateway, ifindex, onlink })
}

fn any_hops() -> impl Strategy<Value = Vec<Hop>> {
    proptest::collection::vec((any_via(), 1..=256u16).prop_map(|(via, weight)| Hop { via, weight }), 1..20)
        .prop_map(|mut hops| {
            if let [only] = &mut hops[..] {
                only.weight = 1;
            }
            hops
        })
}

fn any_labelled() -> impl Strategy<Value = Vec<(Hop, Vec<u32>)>> {
    let labels = proptest::collection::vec(0..=LABEL_MAX, 0..5);
    (any_hops(), proptest::collection::vec(labels, 20))
        .prop_map(|(hops, labels)| hops.into_iter().zip(labels).collect())
}

proptest! {
    #[test]
    fn neighbours_read_back(ip in any_addr(), ifindex: u32, mac: [u8; 6], protocol in 1..=u8::MAX) {
        let neighbor = Neighbor::permanent(ifindex, ip, mac, protocol);
        let mut buf = Vec::new();
        neighbor.write_new(&mut buf, NLM_F_CREATE, 3);
        prop_assert_eq!(Content::decode(&one(&buf)), Ok(Content::NewNeighbor(neighbor)));
        buf.clear();
        neighbor.write_delete(&mut buf, 0, 3);
        let deleted = Neighbor { mac: None, protocol: 0, ..neighbor };
        prop_assert_eq!(Content::decode(&one(&buf)), Ok(Content::DelNeighbor(deleted)));
    }

    #[test]
    fn changes_of_an_interface_read_back(index: u32, up: bool, mtu in 1..u32::MAX) {
        let mut buf = Vec::new();
        write_link_change(&mut buf, 3, index, Some(up), Some(mtu));
        let Ok(Content::NewLink(link)) = Content::decode(&one(&buf)) else { panic!() };
        prop_assert_eq!((link.index, link.flags & IFF_UP != 0, link.mtu), (index, up, mtu));
    }

    #[test]
    fn labels_read_back_in_ip_routes_and_in_routes_of_labels(
        prefix in any_prefix(),
        label in 0..=LABEL_MAX,
        table: u32,
        protocol: u8,
        mut hops in any_labelled(),
    ) {
        if let [(only, _)] = &mut hops[..] {
            // In the route of a label there is no flag for it.
            only.via.onlink = false;
        }
        let hops: Vec<(Hop, &[u32])> = hops.iter().map(|(hop, labels)| (*hop, &labels[..])).collect();
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        let encap = if hops.iter().any(|(_, labels)| !labels.is_empty()) { LWTUNNEL_ENCAP_MPLS } else { 0 };
        let route = Route { encap, ..Route::new(prefix, table, protocol, next_hops) };
        let mut out = Vec::new();
        route.write_new(&mut out, 0, 7).unwrap();
        // The bytes of the encapsulation are only read. They are the labels, which are compared as such.
        let bytes = one(&out);
        match Content::decode(&bytes) {
            Ok(Content::NewRoute(read)) => prop_assert_eq!(Route { encapsulation: &[], ..read }, route),
            other => prop_assert!(false, "{other:?}"),
        }

        out.clear();
        let route = LabelRoute { table, ..LabelRoute::new(label, protocol, next_hops) };
        route.write_new(&mut out, 0, 7).unwrap();
        prop_assert_eq!(Content::decode(&one(&out)), Ok(Content::NewLabelRoute(route)));
        // Cut anywhere it is an error, or has the attributes before the cut; never more.
        for cut in 16..out.len() {
            let body = &one(&out).body[..cut - 16];
            if let Ok(Content::NewLabelRoute(read)) = Content::decode(&Message { body, ..one(&out) }) {
                prop_assert_eq!(read.label, label);
            }
        }
        out.clear();
        route.write_delete(&mut out, 0, 8).unwrap();
        prop_assert!(matches!(Content::decode(&one(&out)), Ok(Content::DelLabelRoute(r)) if r.label == label));
    }

    #[test]
    fn a_route_reads_back(
        prefix in any_prefix(),
        table: u32,
        protocol: u8,
        metric: Option<u32>,
        hops in any_hops(),
        id in proptest::option::of(1..u32::MAX),
    ) {
        let next_hops = id.map_or(NextHops::Inline(Hops::from(&hops[..])), NextHops::Id);
        let route = Route { metric, ..Route::new(prefix, table, protocol, next_hops) };
        let mut out = Vec::new();
        route.write_new(&mut out, NLM_F_CREATE, 7).unwrap();
        let message = one(&out);
        prop_assert_eq!((message.kind, message.flags, message.seq), (RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REQUEST, 7));
        let Content::NewRoute(read) = Content::decode(&message).unwrap() else { panic!("not a route") };
        // An onlink gateway of a single-hop route is a flag of the route.
        prop_assert_eq!(Route { flags: 0, ..read }, route);
        // Reading a list that is known comes to the same.
        prop_assert_eq!(Route::decode_knowing(&message, |_| true), Ok(Some(read)));

        out.clear();
        route.write_delete(&mut out, 0, 8).unwrap();
        prop_assert!(matches!(Content::decode(&one(&out)).unwrap(), Content::DelRoute(r) if r.prefix == prefix));
    }

    #[test]
    fn a_next_hop_object_reads_back(id in 1..u32::MAX, protocol: u8, via in any_via(),
        members in proptest::collection::vec((any::<u32>(), 1..u16::MAX), 1..40), what in 0..3u8) {
        let members: Vec<Member> = members.into_iter().map(|(id, weight)| Member { id, weight }).collect();
        let forward = match what {
            0 => Forward::Blackhole(Afi::Ipv6),
            1 => Forward::via(via),
            _ => Forward::Group(Members::from(&members[..])),
        };
        let object = NextHop { id, protocol, forward };
        let mut out = Vec::new();
        object.write_new(&mut out, 0, 1).unwrap();
        prop_assert_eq!(Content::decode(&one(&out)).unwrap(), Content::NewNextHop(object));
        out.clear();
        write_next_hop_delete(&mut out, id, 0, 1);
        prop_assert_eq!(Content::decode(&one(&out)).unwrap(), Content::DelNextHop(id));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for message in messages(&bytes).flatten() {
            let _ = Content::decode(&message);
        }
    }

    /// Random bodies under each type, so that the readers are reached and not only the header's checks.
    #[test]
    fn no_body_panics(kind in prop_oneof![2..4u16, 16..27u16, 104..107u16], flags: u16, family in prop_oneof![Just(2u8), Just(10), Just(28), Just(0)],
        mut body in proptest::collection::vec(any::<u8>(), 0..120), attrs in proptest::collection::vec((0..34u16, 0..40usize), 0..6)) {
        if let Some(first) = body.first_mut() {
            *first = family;
        }
        for (kind, len) in attrs {
            body.extend_from_slice(&(len as u16 + 4).to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend((0..len.next_multiple_of(4)).map(|i| i as u8));
        }
        let _ = Content::decode(&Message { kind, flags, seq: 0, port: 0, body: &body }).map(|content| format!("{content:?}"));
    }

    #[test]
    fn a_cut_message_is_an_error_or_shows_no_other_route(hops in any_hops(), cut in 0..4096usize) {
        let route = Route::new("10.0.0.0/8".parse().unwrap(), 254, 186, NextHops::Inline(Hops::from(&hops[..])));
        let mut out = Vec::new();
        route.write_new(&mut out, 0, 0).unwrap();
        let cut = cut % out.len();
        prop_assert!(messages(&out[..cut]).all(|m| m.is_err()));
        // The same cut with a header that hides it: an error, or the attributes before the cut.
        if cut >= 16 {
            let body = &one(&out).body[..cut - 16];
            match Content::decode(&Message { body, ..one(&out) }) {
                Err(_) => {}
                Ok(Content::NewRoute(read)) => prop_assert_eq!(read.prefix, route.prefix),
                Ok(other) => prop_assert!(false, "read as {:?}", other),
            }
        }
    }
}

#[test]
fn several_messages_in_a_buffer() {
    let mut out = Vec::new();
    dump_links(&mut out, 1);
    dump_addresses(&mut out, 2);
    dump_routes(&mut out, 3, Afi::Ipv6, 1000, RTPROT_BGP);
    dump_next_hops(&mut out, 4);
    let all: Vec<_> = messages(&out).map(|m| m.unwrap()).map(|m| (m.kind, m.seq, m.body.len())).collect();
    assert_eq!(
        all,
        [(RTM_GETLINK, 1, 16), (RTM_GETADDR, 2, 8), (RTM_GETROUTE, 3, 12 + 8), (RTM_GETNEXTHOP, 4, 8)]
    );
}

#[test]
fn acknowledgements_with_and_without_the_request_and_a_sentence() {
    let header = [16u8 + 12, 0, 0, 0, 24, 0, 5, 5, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut attr = Vec::new();
    attr.extend_from_slice(&(4u16 + 8).to_ne_bytes());
    attr.extend_from_slice(&1u16.to_ne_bytes());
    attr.extend_from_slice(b"too bad\0");
    let errno = (-22i32).to_ne_bytes();
    let capped = [&errno[..], &header, &attr].concat();
    let whole = [&errno[..], &header, &[0; 12], &attr].concat();
    for (flags, body) in [(NLM_F_CAPPED | NLM_F_ACK_TLVS, &capped), (NLM_F_ACK_TLVS, &whole)] {
        let message = Message { kind: NLMSG_ERROR, flags, seq: 9, port: 0, body };
        assert_eq!(Content::decode(&message), Ok(Content::Ack(Ack { errno: 22, text: Some("too bad") })));
    }
    let plain = Message { kind: NLMSG_ERROR, flags: 0, seq: 9, port: 0, body: &whole };
    assert_eq!(Content::decode(&plain), Ok(Content::Ack(Ack { errno: 22, text: None })));
    let done = Message { kind: NLMSG_DONE, flags: NLM_F_MULTI, seq: 9, port: 0, body: &[0; 4] };
    assert_eq!(Content::decode(&done), Ok(Content::Done(Ack { errno: 0, text: None })));
}

#[test]
fn only_a_no_operation_of_several_messages_announces_them() {
    for ack in [false, true] {
        let mut out = Vec::new();
        write_multipart(&mut out, ack);
        assert_eq!(Content::decode(&one(&out)), Ok(Content::Multipart { ack }));
    }
    let alone = Message { kind: NLMSG_NOOP, flags: NLM_F_REQUEST, seq: 0, port: 0, body: &[] };
    assert_eq!(Content::decode(&alone), Ok(Content::Other(NLMSG_NOOP)));
}

#[test]
fn links_and_addresses() {
    let mut out = Vec::new();
    let fixed = [0, 0, 1, 0, 3, 0, 0, 0, 0x41, 0, 1, 0, 0, 0, 0, 0];
    let mut b = super::build::Builder::new(&mut out, RTM_NEWLINK, 0, 0, &fixed);
    b.attr(IFLA_IFNAME, b"Ethernet4\0");
    b.attr_u32(IFLA_MTU, 9100);
    b.attr_u32(IFLA_CARRIER_DOWN_COUNT, 2);
    let info = b.open(IFLA_LINKINFO | 0x8000);
    b.attr(IFLA_INFO_KIND, b"veth\0");
    b.close(info);
    b.finish().unwrap();
    let Ok(Content::NewLink(link)) = Content::decode(&one(&out)) else { panic!("not a link") };
    assert_eq!((link.index, link.name, link.mtu, link.kind), (3, "Ethernet4", 9100, Some("veth")));
    assert_eq!(link.carrier_down_count, Some(2));
    assert!(link.operative());

    out.clear();
    let mut b = super::build::Builder::new(&mut out, RTM_NEWADDR, 0, 0, &[AF_INET, 24, 0x80, 0, 3, 0, 0, 0]);
    b.attr_addr(IFA_ADDRESS, "10.1.2.3".parse().unwrap());
    b.attr_addr(IFA_LOCAL, "10.1.2.3".parse().unwrap());
    b.finish().unwrap();
    let Ok(Content::NewAddress(address)) = Content::decode(&one(&out)) else { panic!("not an address") };
    assert_eq!((address.ifindex, address.network), (3, "10.1.2.0/24".parse().unwrap()));
    assert!(address.usable());
}

#[test]
fn a_kernels_copy_of_the_next_hops_beside_an_id_is_not_shown() {
    let mut out = Vec::new();
    let mut b = super::build::Builder::new(
        &mut out,
        RTM_NEWROUTE,
        0,
        0,
        &[AF_INET, 0, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0],
    );
    b.attr_addr(RTA_GATEWAY, "10.0.0.1".parse().unwrap());
    b.attr_u32(RTA_NH_ID, 5);
    b.finish().unwrap();
    let Ok(Content::NewRoute(route)) = Content::decode(&one(&out)) else { panic!("not a route") };
    assert_eq!((route.prefix, route.next_hops), ("0.0.0.0/0".parse().unwrap(), NextHops::Id(5)));
}

/// As FRR sends `mpls lsp 200 10.0.0.1 201` and `ip route 10.0.0.0/8 10.0.0.1 label 100/101`.
#[test]
fn label_stacks_without_bottom_bit_at_the_end_are_refused() {
    let via = [2, 0, 10, 0, 0, 1];
    let label = |dst: &[u8], new: &[u8]| {
        let mut out = Vec::new();
        let mut b = super::build::Builder::new(
            &mut out,
            RTM_NEWROUTE,
            0,
            0,
            &[AF_MPLS, 20, 0, 0, 0, 11, 0, 1, 0, 0, 0, 0],
        );
        b.attr(RTA_DST, dst);
        b.attr(RTA_NEWDST, new);
        b.attr(RTA_VIA, &via);
        b.attr_u32(RTA_OIF, 7);
        b.finish().unwrap();
        Content::decode(&one(&out)).map(|content| format!("{content:?}"))
    };
    let (last, above) = ([0, 0x0c, 0x91, 0], [0, 0x0c, 0x90, 0]);
    let good = label(&[0, 0x0c, 0x81, 0], &last).unwrap();
    assert!(good.contains("label: 200,") && good.contains("[201]") && good.contains("10.0.0.1"), "{good}");
    assert!(label(&last, &[above, last].concat()).unwrap().contains("[201, 201]"));
    let error = |dst: &[u8], new: &[u8]| label(dst, new).unwrap_err().0;
    assert_eq!(error(&last, &above), "a label stack does not end at its bottom bit");
    assert_eq!(error(&last, &[last, last].concat()), "a label stack does not end at its bottom bit");
    assert_eq!(error(&last, &[0; 5]), "a label stack is not a whole number of entries");
    assert_eq!(error(&last, &[]), "a label stack is not a whole number of entries");
    assert_eq!(error(&[above, last].concat(), &last), "a route is of several labels");

    let ip = |encap: &[u8]| {
        let mut out = Vec::new();
        let mut b = super::build::Builder::new(
            &mut out,
            RTM_NEWROUTE,
            0,
            0,
            &[AF_INET, 8, 0, 0, 0, 11, 0, 1, 0, 0, 0, 0],
        );
        b.attr_addr(RTA_DST, "10.0.0.0".parse().unwrap());
        // The labels before the type of what they are in.
        let at = b.open(RTA_ENCAP | 0x8000);
        b.attr(MPLS_IPTUNNEL_DST, encap);
        b.close(at);
        b.attr(RTA_ENCAP_TYPE, &LWTUNNEL_ENCAP_MPLS.to_ne_bytes());
        b.attr_u32(RTA_OIF, 7);
        b.finish().unwrap();
        Content::decode(&one(&out)).map(|content| format!("{content:?}"))
    };
    assert!(ip(&[above, last].concat()).unwrap().contains("[201, 201]"));
    assert!(ip(&above).is_err());
}

#[test]
fn what_is_too_long_for_its_length_field_is_taken_back() {
    let via = Via { gateway: Some("10.0.0.1".parse().unwrap()), ifindex: 1, onlink: false };
    let hops = vec![Hop { via, weight: 1 }; 5000];
    let mut out = vec![1, 2, 3];
    let route = Route::new("10.0.0.0/8".parse().unwrap(), 0, 186, NextHops::Inline(Hops::from(&hops[..])));
    assert_eq!(route.write_new(&mut out, 0, 0), Err(TooLong));
    assert_eq!(out, [1, 2, 3]);
}
