//! What a station gets of each message of the stages, read with the reader of BMP.

use super::{Router, encode};
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::message::{BestBatch, BestPath, Change, NONE, RouteOp, UpdateBatch};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_bgpd::monitor::{DownCause, Received, SessionUp};
use ribtide_policy::Policy;
use ribtide_prefix::{AfiSafi, BgpFamilies, BgpFamily, Prefix, V4, V6, for_each_bgp_family};
use ribtide_wire::bgp::attribute::Origin;
use ribtide_wire::bgp::build::{self, UpdatePacker};
use ribtide_wire::bgp::message::{MAX_EXTENDED_LEN, MessageType, frame, write, write_keepalive};
use ribtide_wire::bgp::open::{Open, OpenBuilder};
use ribtide_wire::bgp::update::{UpdateContext, parse};
use ribtide_wire::bgp::{AsPath, NextHop};
use ribtide_wire::bmp::{Message, PeerHeader, PeerType, Reason, Timestamp, flags, information, read_message};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const ROUTER: Router = Router { asn: 65_001, router_id: std::net::Ipv4Addr::new(10, 0, 0, 1) };
const TIME: Timestamp = Timestamp { seconds: 7, microseconds: 9 };

fn info(four_octet_as: bool, path_ids: FamilySet) -> Arc<PeerInfo> {
    let router_id = [10, 0, 0, 2].into();
    let export = Arc::new(Policy::accept());
    let egress = EgressSettings::new(PeerKind::External, 65_001, router_id, FamilySet::ALL, export);
    Arc::new(PeerInfo {
        id: PeerId(3),
        session: 1,
        address: "192.0.2.2".parse().unwrap(),
        asn: 65_002,
        router_id,
        kind: PeerKind::External,
        multihop: false,
        link: None,
        families: FamilySet::ALL,
        path_ids,
        long_lived: false,
        egress: EgressSettings { four_octet_as, ..egress },
    })
}

fn plain() -> Arc<PeerInfo> {
    info(true, FamilySet::NONE)
}

fn attrs(med: u32) -> AttrSet {
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    build::as_path(&mut bytes, AsPath::new(&[2, 1, 0, 0, 0xfd, 0xea]));
    build::med(&mut bytes, med);
    AttrSet::new(&bytes, NextHop::V4([192, 0, 2, 9].into()))
}

fn v4(text: &str) -> Prefix<V4> {
    text.parse().unwrap()
}

fn v6(text: &str) -> Prefix<V6> {
    text.parse().unwrap()
}

/// All messages.
fn messages(mut bytes: &[u8]) -> Vec<Message<'_>> {
    let mut all = Vec::new();
    while let Some((message, taken)) = read_message(bytes).unwrap() {
        all.push(message);
        bytes = &bytes[taken..];
    }
    assert!(bytes.is_empty());
    all
}

/// The headers, and what the UPDATEs leave of prefixes: MED by prefix and path identifier.
fn routes(bytes: &[u8], path_ids: FamilySet) -> (Vec<PeerHeader>, BTreeMap<String, u32>) {
    let context = UpdateContext {
        four_octet_as: true,
        external: false,
        prefix_sid: false,
        aigp: false,
        confederation: false,
        path_ids,
    };
    let (mut headers, mut table) = (Vec::new(), BTreeMap::new());
    for message in messages(bytes) {
        let Message::RouteMonitoring(header, update) = message else { panic!("{message:?}") };
        headers.push(header);
        let message = frame(update, MAX_EXTENDED_LEN).unwrap().unwrap();
        assert_eq!((message.kind, message.total_len), (MessageType::Update, update.len()));
        let update = parse(message.body, &context).unwrap();
        let med = update
            .attributes()
            .find(|a| a.code == 4)
            .map_or(0, |a| u32::from_be_bytes(a.value.try_into().unwrap()));
        for_each_bgp_family!(F => match path_ids.has(F::ID) {
            false => {
                update.withdrawn_nlri::<Prefix<F>>().for_each(|p| { _ = table.remove(&p.to_string()); });
                update.announced_nlri::<Prefix<F>>().for_each(|p| { _ = table.insert(p.to_string(), med); });
            }
            true => {
                use ribtide_wire::bgp::nlri::PathPrefix;
                let name = |p: PathPrefix<F>| format!("{} {}", p.prefix, p.path_id);
                update.withdrawn_nlri::<PathPrefix<F>>().for_each(|p| { _ = table.remove(&name(p)); });
                update.announced_nlri::<PathPrefix<F>>().for_each(|p| { _ = table.insert(name(p), med); });
            }
        });
    }
    (headers, table)
}

#[test]
fn received_updates_pass_as_they_are_and_malformed_ones_as_withdrawals() {
    let mut sent = Vec::new();
    let set = attrs(5);
    let packer = UpdatePacker::new(set.bytes(), set.next_hop(), 4096);
    packer.announce([v4("10.0.0.0/8"), v4("10.1.0.0/16")], &mut sent).unwrap();
    write_keepalive(&mut sent);
    let malformed = sent.len();
    packer.announce([v4("10.1.0.0/16")], &mut sent).unwrap();
    // ORIGIN has another length.
    let origin = malformed + 23;
    assert_eq!(sent[origin + 1], 1);
    let mut broken = sent[..origin + 2].to_vec();
    broken.push(2);
    broken.extend([0, 0]);
    broken.extend(&sent[origin + 4..]);
    broken[malformed + 17] += 1;
    broken[malformed + 22] += 1;
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(7_000_009);
    let received = |messages, withdrawn| Received { info: plain(), at, messages, withdrawn, kept: true };
    let mut out = Vec::new();
    encode::received(&received(broken.clone(), vec![malformed]), &mut out);
    let (headers, table) = routes(&out, FamilySet::NONE);
    assert_eq!(headers, [encode::peer(&plain(), 0, TIME); 2]);
    assert_eq!(table, BTreeMap::from([("10.0.0.0/8".into(), 5)]));
    // Without malformed ones, the bytes are those that were received.
    let mut out = Vec::new();
    encode::received(&received(sent[..malformed].to_vec(), vec![]), &mut out);
    let [Message::RouteMonitoring(_, update)] = messages(&out)[..] else { panic!("{out:?}") };
    assert_eq!(*update, sent[..malformed - 19]);
    // A peer without four-octet AS numbers.
    let old = info(false, FamilySet::NONE);
    let received =
        Received { info: old, at, messages: sent[..malformed].to_vec(), withdrawn: vec![], kept: true };
    let mut out = Vec::new();
    encode::received(&received, &mut out);
    let [Message::RouteMonitoring(header, _)] = messages(&out)[..] else { panic!("{out:?}") };
    assert_eq!(header.flags, flags::TWO_OCTET_AS);
}

#[test]
fn accepted_routes_are_in_the_order_of_their_operations() {
    for path_ids in [FamilySet::NONE, FamilySet::ALL] {
        let info = info(true, path_ids);
        let op = |attrs, path_id, family, count| RouteOp { attrs, path_id, family, count };
        let path_id = |n| if path_ids.is_empty() { 0 } else { n };
        let batch = UpdateBatch {
            peer: info.id,
            session: 1,
            ops: vec![
                op(Some(attrs(1)), path_id(7), AfiSafi::Ipv4Unicast, 2),
                op(Some(attrs(2)), path_id(8), AfiSafi::Ipv6Unicast, 1),
                op(None, path_id(7), AfiSafi::Ipv4Unicast, 1),
                op(Some(attrs(3)), path_id(7), AfiSafi::Ipv4Unicast, 1),
            ],
            prefixes: BgpFamilies {
                v4: vec![v4("10.0.0.0/8"), v4("10.1.0.0/16"), v4("10.0.0.0/8"), v4("10.1.0.0/16")],
                v6: vec![v6("2001:db8::/32")],
            },
        };
        let mut out = Vec::new();
        encode::accepted(&info, &batch, TIME, &mut out);
        let (headers, table) = routes(&out, path_ids);
        assert!(headers.iter().all(|header| *header == encode::peer(&info, flags::POST_POLICY, TIME)));
        let name = |prefix: &str, id: u32| match path_ids.is_empty() {
            true => prefix.to_owned(),
            false => format!("{prefix} {id}"),
        };
        let expected = [(name("10.1.0.0/16", 7), 3), (name("2001:db8::/32", 8), 2)];
        assert_eq!(table, BTreeMap::from(expected));
    }
}

#[test]
fn the_last_change_of_a_best_path_counts() {
    let path = |med| BestPath { attrs: attrs(med), source: PeerId(3), suppressed: false };
    let change = |prefix, old, new| Change { prefix: v4(prefix), old, new };
    let mut batch = BestBatch { paths: vec![path(1), path(2)], ..BestBatch::default() };
    batch.changes.v4 = vec![
        change("10.0.0.0/8", NONE, 1),
        change("10.1.0.0/16", NONE, 0),
        change("10.0.0.0/8", 1, 0),
        change("10.1.0.0/16", 0, NONE),
        change("10.2.0.0/16", NONE, 1),
    ];
    batch.changes.v6 = vec![Change { prefix: v6("2001:db8::/32"), old: NONE, new: 0 }];
    let mut out = Vec::new();
    encode::best(ROUTER, &batch, TIME, &mut out);
    let (headers, table) = routes(&out, FamilySet::NONE);
    assert!(headers.iter().all(|header| *header == encode::loc_rib(ROUTER, TIME)));
    let expected = [("10.0.0.0/8", 1), ("10.2.0.0/16", 2), ("2001:db8::/32", 1)];
    assert_eq!(table, expected.map(|(prefix, med)| (prefix.to_owned(), med)).into());
}

#[test]
fn kept_routes_have_the_form_of_their_session() {
    for path_ids in [FamilySet::NONE, FamilySet::ALL] {
        let page = [
            ((AfiSafi::Ipv4Unicast, v4("10.0.0.0/8").any(), 1), attrs(1)),
            ((AfiSafi::Ipv4Unicast, v4("10.0.0.0/8").any(), 2), attrs(1)),
            ((AfiSafi::Ipv4Unicast, v4("10.1.0.0/16").any(), 0), attrs(2)),
            ((AfiSafi::Ipv6Unicast, v6("2001:db8::/32").any(), 0), attrs(2)),
        ];
        let mut out = Vec::new();
        encode::kept(&info(true, path_ids), &page, &mut out);
        let (headers, table) = routes(&out, path_ids);
        assert!(headers.iter().all(|h| (h.flags, h.time) == (0, Timestamp::default())));
        assert_eq!(table.len(), if path_ids.is_empty() { 3 } else { 4 }, "{table:?}");
    }
}

#[test]
fn long_attributes_make_a_long_message() {
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    build::as_path(&mut bytes, AsPath::new(&[2, 1, 0, 0, 0xfd, 0xea]));
    build::list(&mut bytes, 0, 8, &[7; 5000]);
    let set = AttrSet::new(&bytes, NextHop::V4([192, 0, 2, 9].into()));
    let batch = UpdateBatch {
        peer: PeerId(3),
        session: 1,
        ops: vec![RouteOp { attrs: Some(set), path_id: 0, family: AfiSafi::Ipv4Unicast, count: 1 }],
        prefixes: BgpFamilies { v4: vec![v4("10.0.0.0/8")], v6: vec![] },
    };
    let mut out = Vec::new();
    encode::accepted(&plain(), &batch, TIME, &mut out);
    assert_eq!(routes(&out, FamilySet::NONE).1.len(), 1);
}

#[test]
fn sent_messages_have_the_flags_of_the_view() {
    let mut chunk = Vec::new();
    build::withdraw([v4("10.0.0.0/8")], 4096, &mut chunk);
    build::end_of_rib(AfiSafi::Ipv6Unicast, &mut chunk);
    let mut out = Vec::new();
    encode::sent(&info(false, FamilySet::NONE), &chunk, TIME, &mut out);
    let all = messages(&out);
    assert_eq!(all.len(), 2);
    for message in all {
        let Message::RouteMonitoring(header, _) = message else { panic!("{message:?}") };
        assert_eq!(header.flags, flags::POST_POLICY | flags::ADJ_RIB_OUT | flags::TWO_OCTET_AS);
    }
}

#[test]
fn sessions_come_and_go_with_their_messages() {
    let mut open = Vec::new();
    OpenBuilder { asn: 65_002, hold_time: 90, router_id: [10, 0, 0, 2].into(), capabilities: &[] }
        .write(&mut open);
    let open: Arc<[u8]> = open.into();
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(7_000_009);
    let local = "192.0.2.1".parse().unwrap();
    let (sent, received) = (open.clone(), open.clone());
    let up = SessionUp { info: plain(), at, local, ports: (179, 40_000), sent, received };
    let mut out = Vec::new();
    encode::peer_up(&up, &mut out);
    let [Message::PeerUp { peer, local: found, ports, sent, received, information: tlvs }] =
        messages(&out)[..]
    else {
        panic!("{out:?}")
    };
    assert_eq!((peer, found, ports), (encode::peer(&plain(), 0, TIME), local, (179, 40_000)));
    assert_eq!((sent, received, tlvs.count()), (&*open, &*open, 0));

    let mut notification = Vec::new();
    write(&mut notification, MessageType::Notification, &[6, 2]);
    let notification: Arc<[u8]> = notification.into();
    for (cause, reason) in [
        (DownCause::Local(notification.clone()), Reason::LocalNotification(&notification)),
        (DownCause::Remote(notification.clone()), Reason::RemoteNotification(&notification)),
        (DownCause::LocalEvent(29), Reason::LocalEvent(29)),
        (DownCause::RemoteClosed, Reason::RemoteClose),
    ] {
        let mut out = Vec::new();
        encode::peer_down(&plain(), &cause, at, &mut out);
        assert_eq!(messages(&out), [Message::PeerDown(encode::peer(&plain(), 0, TIME), reason)]);
    }
}

#[test]
fn the_loc_rib_comes_with_what_its_messages_need() {
    let mut out = Vec::new();
    encode::loc_rib_up(ROUTER, TIME, &mut out);
    let [Message::PeerUp { peer, ports, sent, received, mut information, .. }] = messages(&out)[..] else {
        panic!("{out:?}")
    };
    assert_eq!((peer.kind, peer.flags, peer.asn, ports), (PeerType::LocRib, 0, 65_001, (0, 0)));
    assert_eq!(information.next(), Some((information::TABLE_NAME, &b"global"[..])));
    assert_eq!(sent, received);
    let open = Open::parse(&sent[19..]).unwrap();
    assert_eq!((open.asn(), open.capabilities().count()), (65_001, 4));
    let mut out = Vec::new();
    encode::end(&peer, FamilySet::ALL, &mut out);
    assert_eq!(messages(&out).len(), 2);
}
