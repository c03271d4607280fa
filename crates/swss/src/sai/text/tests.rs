use super::super::{NextHopType, PacketAction};
use super::*;

fn route(dest: &str, attrs: Vec<Attr>) -> Item {
    let entry = RouteEntry { switch: SWITCH, vr: Oid(0x3000000000022), dest: dest.parse().unwrap() };
    Item::new(entry, attrs)
}

fn check(request: SaiRequest, key: &str, value: &str, op: &'static str) {
    let message = write_request(&request);
    assert_eq!(message, Message::new(key.into(), value.into(), op));
    assert_eq!(read_request(request.id, key, value, op).unwrap(), request);
    if value != "{}" {
        assert_eq!(read_zmq_request(request.id, &message.to_zmq()).unwrap(), request);
    }
}

#[test]
fn bulk_of_routes_is_formatted_as_by_libsairedis() {
    let items = vec![
        route("10.1.0.0/16", vec![Attr::RouteNextHop(Oid(0x40000000005ef))]),
        route("10.2.0.0/16", vec![Attr::RoutePacketAction(PacketAction::Drop)]),
    ];
    let call = SaiCall::Bulk {
        verb: Verb::Create,
        object: ObjectType::RouteEntry,
        items,
        mode: ErrorMode::IgnoreError,
    };
    check(
        SaiRequest { id: 7, call },
        "SAI_OBJECT_TYPE_ROUTE_ENTRY:2",
        concat!(
            r#"["{\"dest\":\"10.1.0.0/16\",\"switch_id\":\"oid:0x21000000000000\",\"vr\":\"oid:0x3000000000022\"}","#,
            r#""SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x40000000005ef","#,
            r#""{\"dest\":\"10.2.0.0/16\",\"switch_id\":\"oid:0x21000000000000\",\"vr\":\"oid:0x3000000000022\"}","#,
            r#""SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"]"#
        ),
        "Sbulkcreate",
    );
}

#[test]
fn a_bulk_remove_has_empty_values_and_a_bare_create_a_filler() {
    let call = |verb, items| SaiCall::Bulk {
        verb,
        object: ObjectType::NextHopGroup,
        items,
        mode: ErrorMode::IgnoreError,
    };
    let items = vec![Item::bare(Oid(0x5000000000001))];
    let key = "SAI_OBJECT_TYPE_NEXT_HOP_GROUP:1";
    check(
        SaiRequest { id: 1, call: call(Verb::Remove, items.clone()) },
        key,
        r#"["oid:0x5000000000001",""]"#,
        "Sbulkremove",
    );
    check(
        SaiRequest { id: 1, call: call(Verb::Create, items) },
        key,
        r#"["oid:0x5000000000001","NULL=NULL"]"#,
        "Sbulkcreate",
    );
}

#[test]
fn single_requests_and_view_steps() {
    let one =
        |verb, item| SaiRequest { id: 3, call: SaiCall::One { verb, object: ObjectType::Switch, item } };
    let key = "SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000";
    check(
        one(Verb::Create, Item::new(SWITCH, [Attr::SwitchInit(true)])),
        key,
        r#"["SAI_SWITCH_ATTR_INIT_SWITCH","true"]"#,
        "Screate",
    );
    check(one(Verb::Remove, Item::bare(SWITCH)), key, "{}", "Dremove");
    check(SaiRequest { id: 0, call: SaiCall::View(View::Init) }, "INIT_VIEW", "[]", "Snotify");
    let get = SaiCall::Get {
        object: ObjectType::Switch,
        id: SWITCH.into(),
        attrs: vec![Attr::SwitchCpuPort(Oid::NULL)],
    };
    check(SaiRequest { id: 0, call: get }, key, r#"["SAI_SWITCH_ATTR_CPU_PORT","oid:0x0"]"#, "Sget");
    let mpls = [Attr::NextHopKind(NextHopType::Mpls)].into_iter().collect();
    let available = |object, attrs| SaiRequest { id: 0, call: SaiCall::Available { object, attrs } };
    check(
        available(ObjectType::NextHop, mpls),
        "oid:0x21000000000000",
        r#"["SAI_NEXT_HOP_ATTR_TYPE","SAI_NEXT_HOP_TYPE_MPLS","OBJECT_TYPE","SAI_OBJECT_TYPE_NEXT_HOP"]"#,
        "Sobject_type_get_availability_query",
    );
    check(
        available(ObjectType::InsegEntry, Attrs::new()),
        "oid:0x21000000000000",
        r#"["OBJECT_TYPE","SAI_OBJECT_TYPE_INSEG_ENTRY"]"#,
        "Sobject_type_get_availability_query",
    );
    assert_eq!(
        write_request(&SaiRequest { id: 0, call: SaiCall::View(View::Apply) }).to_zmq(),
        r#"["APPLY_VIEW","notify"]"#
    );
}

#[test]
fn neighbour_key_is_formatted_in_alphabetical_order() {
    let id = ObjectId::Neighbor(NeighborEntry {
        switch: SWITCH,
        rif: Oid(0x6000000000031),
        ip: "fc00::2".parse().unwrap(),
    });
    let mut key = String::new();
    write_row_key(ObjectType::NeighborEntry, &id, &mut key);
    assert_eq!(
        key,
        r#"SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{"ip":"fc00::2","rif":"oid:0x6000000000031","switch_id":"oid:0x21000000000000"}"#
    );
    assert_eq!(read_row_key(&key).unwrap(), (ObjectType::NeighborEntry, id));
}

#[test]
fn bulk_of_labels_is_formatted_as_by_libsairedis() {
    let entry = InsegEntry { switch: SWITCH, label: 200 };
    let call = SaiCall::Bulk {
        verb: Verb::Create,
        object: ObjectType::InsegEntry,
        items: vec![Item::new(entry, [Attr::InsegNextHop(Oid(0x40000000005ef)), Attr::InsegPop(1)])],
        mode: ErrorMode::IgnoreError,
    };
    check(
        SaiRequest { id: 7, call },
        "SAI_OBJECT_TYPE_INSEG_ENTRY:1",
        concat!(
            r#"["{\"label\":\"200\",\"switch_id\":\"oid:0x21000000000000\"}","#,
            r#""SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID=oid:0x40000000005ef|SAI_INSEG_ENTRY_ATTR_NUM_OF_POP=1"]"#
        ),
        "Sbulkcreate",
    );
    assert!(read_row_key(r#"SAI_OBJECT_TYPE_INSEG_ENTRY:{"label":"x","switch_id":"oid:0x0"}"#).is_err());
}

#[test]
fn replies() {
    let bulk = SaiReply::bulk(9, vec![Status::Success, Status::TableFull]);
    let message = write_reply(&bulk, ReplyTo::Request);
    assert_eq!(message.key, "SAI_STATUS_FAILURE");
    assert_eq!(message.value, r#"["SAI_STATUS_SUCCESS","","SAI_STATUS_TABLE_FULL",""]"#);
    assert_eq!(message.op, "Sgetresponse");
    assert_eq!(read_reply(9, &message.key, &message.value, &message.op).unwrap(), bulk);
    assert_eq!(read_zmq_reply(9, &message.to_zmq()).unwrap(), bulk);
    // Every status is read as it was written: of the headers, of an attribute, of a vendor.
    let codes = [-9, -24, -0x10000, -0x50002, -0x5ffff, -0x60000, -999_999, i32::MIN];
    for status in codes.map(Status::from_code) {
        let bulk = SaiReply::bulk(9, vec![Status::Success, status]);
        for reply in [SaiReply::one(9, status), SaiReply { status, ..bulk }] {
            let message = write_reply(&reply, ReplyTo::Request);
            assert_eq!(read_reply(9, &message.key, &message.value, &message.op).unwrap(), reply);
            assert_eq!(read_zmq_reply(9, &message.to_zmq()).unwrap(), reply);
        }
    }
    let named = |code| Status::from_code(code).name();
    assert_eq!(named(-9), "SAI_STATUS_INVALID_PORT_NUMBER");
    assert_eq!(
        (named(-0x50000), named(-0x50001)),
        ("SAI_STATUS_ATTR_NOT_SUPPORTED_0".into(), "-327681".into())
    );
    let places = [-23, -0x10000, -0x2ffff, -0x30003, -0x5ffff, -0x60000]
        .map(|code| Status::from_code(code).attribute());
    assert_eq!(places, [None, Some(0), Some(0xffff), Some(3), Some(0xffff), None]);
    assert_eq!(Status::from_name("SAI_STATUS_OF_NO_HEADER"), Status::Failure);

    let length = Attr::raw("SAI_SWITCH_ATTR_PORT_LIST", "32");
    let overflow = SaiReply { values: vec![length], ..SaiReply::one(4, Status::BufferOverflow) };
    let message = write_reply(&overflow, ReplyTo::Request);
    assert_eq!(message.value, r#"["SAI_SWITCH_ATTR_PORT_LIST","32"]"#);
    assert_eq!(read_reply(4, &message.key, &message.value, &message.op).unwrap(), overflow);
    assert!(read_reply(4, "SAI_STATUS_SUCCESS", &message.value, &message.op).is_err());

    let mut get = SaiReply::one(4, Status::Success);
    get.values = vec![Attr::SwitchPortList(Box::new([Oid(0x1000000000002)]))];
    let message = write_reply(&get, ReplyTo::Request);
    assert_eq!(read_reply(4, &message.key, &message.value, &message.op).unwrap(), get);
    let mut left = SaiReply::one(4, Status::Success);
    left.values = vec![Attr::ObjectCount(1_048_575)];
    let message = write_reply(&left, ReplyTo::Availability);
    let parts = (message.key.as_str(), message.value.as_str(), &*message.op);
    let op = "Sobject_type_get_availability_response";
    assert_eq!(parts, ("SAI_STATUS_SUCCESS", r#"["OBJECT_COUNT","1048575"]"#, op));
    assert_eq!(read_reply(4, &message.key, &message.value, &message.op).unwrap(), left);
    let view = write_reply(&SaiReply::one(4, Status::Success), ReplyTo::View);
    assert_eq!((&*view.key, &*view.value, &*view.op), ("SAI_STATUS_SUCCESS", "[]", "Snotify"));
}

#[test]
fn what_is_not_a_request_is_a_sentence() {
    for (key, value, op) in [
        ("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "[]", "Sbulkcreate"),
        ("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", "[]", "Screate"),
        ("SAI_OBJECT_TYPE_PORT:oid:0x1", "[\"a\"]", "Screate"),
        ("SAI_OBJECT_TYPE_PORT:oid:0x1", "[]", "Sset"),
        ("SAI_OBJECT_TYPE_BANANA:oid:0x1", "[]", "Screate"),
        ("SAI_OBJECT_TYPE_PORT", "[]", "Screate"),
        ("INIT_VIEW", "[]", "Speel"),
        ("PEEL", "[]", "Snotify"),
    ] {
        assert!(read_request(0, key, value, op).is_err(), "{op} {key}");
    }
}
