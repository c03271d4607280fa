//! Written records read back equal, and cut or hostile ones are errors and never panic.

use super::*;
use crate::bgp::NextHop;
use proptest::prelude::*;
use ribtide_prefix::Afi;
use std::net::{IpAddr, Ipv4Addr};

fn peers() -> Vec<Peer> {
    ["192.0.2.1", "2001:db8::1"]
        .iter()
        .enumerate()
        .map(|(i, a)| Peer {
            router_id: Ipv4Addr::from(i as u32),
            address: a.parse().unwrap(),
            asn: 65_001 + 100_000 * i as u32,
        })
        .collect()
}

fn first(buf: &[u8]) -> (Body<'_>, usize) {
    let (record, taken) = read_record(buf).unwrap().unwrap();
    (record.body().unwrap(), taken)
}

#[test]
fn a_table_reads_back() {
    let mut file = Vec::new();
    peer_index_table(&mut file, 7, Ipv4Addr::LOCALHOST, &peers());
    rib(
        &mut file,
        8,
        3,
        (AfiSafi::Ipv4Unicast, "10.32.0.0/11".parse().unwrap()),
        &[(0, 5, b"abc"), (1, 6, b"")],
    );
    rib(&mut file, 9, 4, (AfiSafi::Ipv6Unicast, "2001:db8::/33".parse().unwrap()), &[]);

    let (Body::PeerIndexTable(table), taken) = first(&file) else { panic!("not a peer table") };
    assert_eq!(table.peers().collect::<Result<Vec<_>, _>>().unwrap(), peers());
    let rest = &file[taken..];
    let (Body::Rib(four), taken) = first(rest) else { panic!("not a RIB record") };
    assert_eq!((four.sequence, four.prefix.to_string().as_str()), (3, "10.32.0.0/11"));
    let entries: Vec<_> = four.entries().map(|e| e.unwrap()).collect();
    let entry = |peer, originated, attributes| Entry { peer, originated, path_id: None, attributes };
    assert_eq!(entries, [entry(0, 5, &b"abc"[..]), entry(1, 6, &[])]);
    let (Body::Rib(six), last) = first(&rest[taken..]) else { panic!("not a RIB record") };
    assert_eq!((six.prefix.to_string().as_str(), six.entries().count()), ("2001:db8::/33", 0));
    assert_eq!(rest.len(), taken + last);
}

#[test]
fn a_message_reads_back_with_and_without_microseconds() {
    let session = Bgp4mp {
        peer_asn: 4_200_000_000,
        local_asn: 65_000,
        interface: 2,
        peer: "2001:db8::1".parse().unwrap(),
        local: "2001:db8::2".parse().unwrap(),
    };
    let mut file = Vec::new();
    message(&mut file, 7, &session, b"message");
    let expected = Message { session, four_octet_as: true, add_path: false, local: false, bytes: b"message" };
    assert_eq!(first(&file).0, Body::Message(expected));

    // The same as an ET record: type 17, four more bytes, counted in the length.
    file[5] = 17;
    file[11] += 4;
    file.splice(12..12, 500_000u32.to_be_bytes());
    let (record, taken) = read_record(&file).unwrap().unwrap();
    assert_eq!((record.seconds, record.microseconds, taken), (7, 500_000, file.len()));
    assert_eq!(record.body().unwrap(), Body::Message(expected));
}

#[test]
fn paths_with_identifiers_read_back() {
    let mut file = Vec::new();
    rib_add_path(
        &mut file,
        8,
        3,
        (AfiSafi::Ipv6Unicast, "2001:db8::/33".parse().unwrap()),
        &[(0, 5, 7, b"abc"), (0, 5, 9, b"")],
    );
    let (Body::Rib(rib), _) = first(&file) else { panic!("not a RIB record") };
    let entry = |path_id, attributes| Entry { peer: 0, originated: 5, path_id: Some(path_id), attributes };
    let entries: Vec<_> = rib.entries().map(|e| e.unwrap()).collect();
    assert_eq!(entries, [entry(7, &b"abc"[..]), entry(9, &[])]);
}

/// RFC 6396 section 4.3.2, RFC 8050 section 4.1.
#[test]
fn tables_of_each_family_have_subtypes_of_their_own() {
    let mut subtypes = Vec::new();
    for family in AfiSafi::ALL {
        let prefix = if family.afi() == Afi::Ipv4 { "10.0.0.0/8" } else { "2001:db8::/32" }.parse().unwrap();
        let mut file = Vec::new();
        rib(&mut file, 8, 3, (family, prefix), &[(0, 5, b"abc")]);
        rib_add_path(&mut file, 8, 4, (family, prefix), &[(0, 5, 7, b"abc")]);
        let (plain, taken) = read_record(&file).unwrap().unwrap();
        let (with_ids, _) = read_record(&file[taken..]).unwrap().unwrap();
        for record in [plain, with_ids] {
            let Ok(Body::Rib(rib)) = record.body() else { panic!("not a RIB record") };
            assert_eq!((rib.family, rib.prefix), (family, prefix));
        }
        subtypes.push((plain.subtype, with_ids.subtype));
    }
    assert_eq!(subtypes, [(2, 8), (4, 10), (3, 9), (5, 11)]);
}

#[test]
fn messages_and_states_with_microseconds_read_back() {
    let session = Bgp4mp {
        peer_asn: 65_002,
        local_asn: 4_200_000_000,
        interface: 0,
        peer: "192.0.2.1".parse().unwrap(),
        local: "192.0.2.2".parse().unwrap(),
    };
    let time = Time { seconds: 7, microseconds: 999_999 };
    for (four_octet_as, add_path) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut file = Vec::new();
        message_et(&mut file, time, &session, (four_octet_as, add_path), b"message");
        let (record, taken) = read_record(&file).unwrap().unwrap();
        assert_eq!((record.seconds, record.microseconds, taken), (7, 999_999, file.len()));
        let local_asn = if four_octet_as { session.local_asn } else { 23_456 };
        let session = Bgp4mp { local_asn, ..session };
        let message = Message { session, four_octet_as, add_path, local: false, bytes: b"message" };
        assert_eq!(record.body().unwrap(), Body::Message(message));
    }
    let mut file = Vec::new();
    state_change_et(&mut file, time, &session, 5, 6);
    assert_eq!(first(&file).0, Body::StateChange(StateChange { session, old: 5, new: 6 }));
}

#[test]
fn the_next_hop_of_an_entry_has_the_form_of_its_family() {
    let four = NextHop::V4("192.0.2.1".parse().unwrap());
    let six: std::net::Ipv6Addr = "2001:db8::1".parse().unwrap();
    let both = NextHop::V6 { global: six, link_local: Some("fe80::1".parse().unwrap()) };
    for (family, next_hop, code, len, expected) in [
        (AfiSafi::Ipv4Unicast, four, 3, 4, None),
        (AfiSafi::Ipv4Multicast, four, 14, 5, Some("192.0.2.1")),
        (AfiSafi::Ipv6Unicast, four, 14, 17, Some("::ffff:192.0.2.1")),
        (AfiSafi::Ipv4Unicast, both, 14, 33, Some("2001:db8::1")),
        (AfiSafi::Ipv6Multicast, NextHop::V6 { global: six, link_local: None }, 14, 17, Some("2001:db8::1")),
    ] {
        let mut out = Vec::new();
        entry_next_hop(&mut out, family, next_hop);
        assert_eq!((out[1], out[2], out.len()), (code, len, 3 + usize::from(len)));
        if let Some(expected) = expected {
            assert_eq!(rib_next_hop(&out[3..]), Some(expected.parse().unwrap()));
        }
    }
}

#[test]
fn a_record_is_whole_or_not_there_yet() {
    let mut file = Vec::new();
    rib(&mut file, 8, 3, (AfiSafi::Ipv4Unicast, "10.32.0.0/11".parse().unwrap()), &[(0, 5, b"abc")]);
    for cut in 0..file.len() {
        assert_eq!(read_record(&file[..cut]), Ok(None));
    }
    assert!(read_record(&file).unwrap().is_some());
    file[8] = 0xff;
    assert!(matches!(read_record(&file), Err(Error::TooLong { .. })));
}

#[test]
fn fields_that_do_not_fit_are_named() {
    let mut file = Vec::new();
    rib(&mut file, 8, 3, (AfiSafi::Ipv4Unicast, "10.32.0.0/11".parse().unwrap()), &[(0, 5, b"abc")]);
    file[16] = 33;
    let (record, _) = read_record(&file).unwrap().unwrap();
    assert_eq!(record.body(), Err(Error::PrefixLength { len: 33, max: 32 }));
    file[16] = 11;
    let end = file.len() - 4;
    file[end] += 1;
    let (Body::Rib(rib), _) = first(&file) else { panic!("not a RIB record") };
    assert_eq!(rib.entries().collect::<Vec<_>>(), [Err(Error::Short { field: "attributes" })]);
}

#[test]
fn the_next_hop_of_an_entry_is_read_in_both_forms() {
    let six: IpAddr = "2001:db8::1".parse().unwrap();
    let bytes = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let short: Vec<u8> = std::iter::once(16).chain(bytes).collect();
    let full: Vec<u8> = [0, 2, 1, 32].into_iter().chain(bytes).chain([0xfe; 16]).chain([0]).collect();
    assert_eq!(rib_next_hop(&short), Some(six));
    assert_eq!(rib_next_hop(&full), Some(six));
    assert_eq!(rib_next_hop(&[4, 192, 0, 2, 1]), Some("192.0.2.1".parse().unwrap()));
    assert_eq!(rib_next_hop(&short[..9]), None);
    assert_eq!(rib_next_hop(&[]), None);
    assert_eq!(rib_next_hop(&[0, 1]), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(kind in 10u16..19, subtype in 0u16..14, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut file = vec![0; 4];
        file.extend(kind.to_be_bytes());
        file.extend(subtype.to_be_bytes());
        file.extend((body.len() as u32).to_be_bytes());
        file.extend(&body);
        rib_next_hop(&body);
        if let Ok(Some((record, taken))) = read_record(&file) {
            prop_assert_eq!(taken, file.len());
            match record.body() {
                Ok(Body::PeerIndexTable(t)) => prop_assert!(t.peers().count() <= usize::from(t.count)),
                Ok(Body::Rib(r)) => prop_assert!(r.entries().count() <= usize::from(r.count)),
                _ => {}
            }
        }
    }
}
