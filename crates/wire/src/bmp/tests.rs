//! Written messages read back equal; the layout is that of RFC 7854; cut or hostile ones never panic.

use super::build::Session;
use super::*;
use crate::bgp::message::write_keepalive;
use proptest::prelude::*;

fn peer(address: &str) -> PeerHeader {
    PeerHeader {
        kind: PeerType::Global,
        flags: 0,
        distinguisher: 0,
        address: address.parse().unwrap(),
        asn: 4_200_000_001,
        router_id: "10.0.0.1".parse().unwrap(),
        time: Timestamp { seconds: 1_700_000_000, microseconds: 123_456 },
    }
}

fn only(bytes: &[u8]) -> Message<'_> {
    let (message, taken) = read_message(bytes).unwrap().unwrap();
    assert_eq!(taken, bytes.len());
    for cut in 0..bytes.len() {
        assert_eq!(read_message(&bytes[..cut]), Ok(None));
    }
    message
}

#[test]
fn route_monitoring_has_the_layout_of_the_rfc() {
    let mut bytes = Vec::new();
    build::route_monitoring(
        &mut bytes,
        &PeerHeader { flags: flags::POST_POLICY, ..peer("192.0.2.1") },
        b"update",
    );
    let expected: Vec<u8> = [
        &[3, 0, 0, 0, 54, 0][..],
        &[0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1],
        &4_200_000_001u32.to_be_bytes(),
        &[10, 0, 0, 1],
        &1_700_000_000u32.to_be_bytes(),
        &123_456u32.to_be_bytes(),
        b"update",
    ]
    .concat();
    assert_eq!(bytes, expected);
    let peer = PeerHeader { flags: flags::POST_POLICY, ..peer("192.0.2.1") };
    assert_eq!(only(&bytes), Message::RouteMonitoring(peer, b"update"));
}

#[test]
fn a_peer_goes_up_and_down_with_its_messages() {
    let (mut open, mut bytes) = (Vec::new(), Vec::new());
    // Any BGP message of a known length stands for an OPEN.
    write_keepalive(&mut open);
    let local: IpAddr = "2001:db8::2".parse().unwrap();
    let session = Session { local, local_port: 179, remote_port: 40_000, sent: &open, received: &open };
    build::peer_up(&mut bytes, &peer("2001:db8::1"), &session, &[(information::STRING, b"text")]);
    let up = PeerHeader { flags: flags::IPV6, ..peer("2001:db8::1") };
    let Message::PeerUp { peer: found, local: our, ports, sent, received, information } = only(&bytes) else {
        panic!("no Peer Up")
    };
    assert_eq!((found, our, ports, sent, received), (up, local, (179, 40_000), &open[..], &open[..]));
    assert_eq!(information.collect::<Vec<_>>(), [(0, &b"text"[..])]);
    for reason in [
        Reason::LocalNotification(&open),
        Reason::LocalEvent(18),
        Reason::RemoteNotification(&open),
        Reason::RemoteClose,
        Reason::Unmonitored,
        Reason::LocalClose(&[0, 3, 0, 1, b'x']),
    ] {
        let mut bytes = Vec::new();
        build::peer_down(&mut bytes, &peer("2001:db8::1"), reason);
        assert_eq!(only(&bytes), Message::PeerDown(up, reason));
    }
}

#[test]
fn a_loc_rib_has_no_address_and_no_family_flag() {
    let header =
        PeerHeader { kind: PeerType::LocRib, address: "0.0.0.0".parse().unwrap(), ..peer("192.0.2.1") };
    let mut bytes = Vec::new();
    build::route_monitoring(&mut bytes, &header, b"");
    assert_eq!(only(&bytes), Message::RouteMonitoring(header, b""));
    assert_eq!(bytes[6..8], [3, 0]);
}

#[test]
fn a_session_begins_and_ends_with_information() {
    let mut bytes = Vec::new();
    build::initiation(&mut bytes, &[(information::SYS_DESCR, b"ribtide"), (information::SYS_NAME, b"r1")]);
    let Message::Initiation(tlvs) = only(&bytes) else { panic!("no Initiation") };
    assert_eq!(tlvs.collect::<Vec<_>>(), [(1, &b"ribtide"[..]), (2, &b"r1"[..])]);
    bytes.clear();
    build::termination(&mut bytes, termination::OUT_OF_RESOURCES, "slow");
    let Message::Termination(tlvs) = only(&bytes) else { panic!("no Termination") };
    assert_eq!(tlvs.collect::<Vec<_>>(), [(0, &b"slow"[..]), (1, &[0, 2][..])]);
    bytes.clear();
    build::termination(&mut bytes, termination::ADMINISTRATIVE, "");
    let Message::Termination(tlvs) = only(&bytes) else { panic!("no Termination") };
    assert_eq!(tlvs.collect::<Vec<_>>(), [(1, &[0, 0][..])]);
}

#[test]
fn statistics_keep_their_widths() {
    let all = [
        Statistic::Counter(statistic::REJECTED, 7),
        Statistic::Gauge(statistic::ADJ_RIB_IN, 1 << 40),
        Statistic::FamilyGauge(statistic::FAMILY_ADJ_RIB_IN, (2, 1), 5),
    ];
    let mut bytes = Vec::new();
    build::statistics(&mut bytes, &peer("192.0.2.1"), &all);
    assert_eq!(bytes.len(), HEADER_LEN + PEER_HEADER_LEN + 4 + 8 + 12 + 15);
    let Message::Statistics(found, statistics) = only(&bytes) else { panic!("no statistics") };
    assert_eq!((found, statistics.collect::<Vec<_>>()), (peer("192.0.2.1"), all.to_vec()));
}

#[test]
fn what_cannot_be_read_is_named() {
    assert_eq!(read_message(&[4, 0, 0, 0, 6, 4]), Err(Error::Version(4)));
    assert_eq!(read_message(&[3, 0, 0, 0, 5, 4]), Err(Error::Length(5)));
    assert_eq!(read_message(&[3, 0xff, 0, 0, 0, 4]), Err(Error::Length(0xff00_0000)));
    assert_eq!(read_message(&[3, 0, 0, 0, 7, 0, 0]), Err(Error::Short("per-peer header")));
    let mut bytes = Vec::new();
    build::peer_down(&mut bytes, &peer("192.0.2.1"), Reason::RemoteClose);
    bytes[6] = 9;
    assert_eq!(read_message(&bytes), Err(Error::PeerType(9)));
    (bytes[6], bytes[48]) = (0, 7);
    assert_eq!(read_message(&bytes), Err(Error::Reason(7)));
}

proptest! {
    #[test]
    fn no_bytes_panic(kind in 0u8..8, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let len = (HEADER_LEN + body.len()) as u32;
        let mut bytes = vec![VERSION];
        bytes.extend(len.to_be_bytes());
        bytes.push(kind);
        bytes.extend(&body);
        if let Ok(Some((message, taken))) = read_message(&bytes) {
            prop_assert_eq!(taken, bytes.len());
            match message {
                Message::Statistics(_, statistics) => prop_assert!(statistics.count() <= body.len() / 8),
                Message::Initiation(tlvs) | Message::Termination(tlvs) => prop_assert!(tlvs.count() <= body.len() / 4),
                _ => {}
            }
        }
    }
}
