//! Texts of values and keys, as sairedis writes them.

use proptest::prelude::*;
use ribtide_sai::{Attribute, ObjectType, Value, ValueType};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

fn of(name: &str) -> Attribute {
    Attribute::from_name(name).unwrap_or_else(|| panic!("{name}"))
}

fn again(attribute: Attribute, value: &Value) -> String {
    let mut text = String::new();
    attribute.write_value(value, &mut text);
    text
}

/// The texts of `unittest/meta/TestSaiSerialize.cpp` of sonic-sairedis.
#[test]
fn values_have_the_texts_of_sairedis_own_tests() {
    for (name, text) in [
        ("SAI_SWITCH_ATTR_ON_LINK_ROUTE_SUPPORTED", "true"),
        ("SAI_HOSTIF_ATTR_NAME", "foo"),
        ("SAI_HOSTIF_ATTR_NAME", "f\\\\oo\\x12"),
        ("SAI_HOSTIF_ATTR_NAME", "\\x80\\xFF"),
        ("SAI_SWITCH_ATTR_NV_STORAGE_SIZE", "42"),
        ("SAI_SWITCH_ATTR_SWITCHING_MODE", "SAI_SWITCH_SWITCHING_MODE_STORE_AND_FORWARD"),
        ("SAI_SWITCH_ATTR_SWITCHING_MODE", "-1"),
        ("SAI_SWITCH_ATTR_SWITCHING_MODE", "100"),
        ("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS", "01:22:33:AA:BB:CC"),
        ("SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "10.0.0.21"),
        ("SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "1111:2222:3333:4444:5555:6666:aaaa:bbbb"),
        ("SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "1::ff"),
        ("SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "::1"),
        ("SAI_PORT_ATTR_HW_LANE_LIST", "7:null"),
        ("SAI_PORT_ATTR_HW_LANE_LIST", "7:1,2,3,4,5,6,7"),
        ("SAI_PORT_ATTR_HW_LANE_LIST", "0:null"),
        (
            "SAI_HASH_ATTR_NATIVE_HASH_FIELD_LIST",
            "4:SAI_NATIVE_HASH_FIELD_SRC_IP,SAI_NATIVE_HASH_FIELD_DST_IP,SAI_NATIVE_HASH_FIELD_VLAN_ID,77",
        ),
        ("SAI_VIRTUAL_ROUTER_ATTR_SRC_MAC_ADDRESS", "FF:EE:DD:33:44:55"),
        ("SAI_ACL_ENTRY_ATTR_ACTION_REDIRECT", "oid:0x2"),
        ("SAI_ACL_ENTRY_ATTR_ACTION_REDIRECT", "disabled"),
        ("SAI_ACL_ENTRY_ATTR_ACTION_PACKET_ACTION", "SAI_PACKET_ACTION_TRAP"),
        ("SAI_ACL_ENTRY_ATTR_ACTION_PACKET_ACTION", "77"),
        ("SAI_STP_ATTR_VLAN_LIST", "3:1,2,4094"),
        ("SAI_SWITCH_ATTR_PORT_LIST", "3:oid:0x1,oid:0x42,oid:0x77"),
        ("SAI_SWITCH_ATTR_PORT_LIST", "2"),
        (
            "SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST",
            r#"{"count":1,"list":[{"key":{"color":"SAI_PACKET_COLOR_RED","dot1p":3,"dscp":2,"fc":2,"mpls_exp":0,"pg":5,"prio":4,"qidx":6,"tc":1},"value":{"color":"SAI_PACKET_COLOR_GREEN","dot1p":33,"dscp":22,"fc":22,"mpls_exp":0,"pg":55,"prio":44,"qidx":66,"tc":11}}]}"#,
        ),
        ("SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST", r#"{"count":1,"list":null}"#),
        ("SAI_NEXT_HOP_GROUP_MAP_ATTR_MAP_TO_VALUE_LIST", r#"{"count":1,"list":[{"key":1,"value":11}]}"#),
    ] {
        let value = of(name).read_value(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again(of(name), &value), text, "{name}");
    }
}

/// Forms of `meta/SaiSerialize.cpp` of sonic-sairedis without a test there.
#[test]
fn values_have_the_texts_of_sairedis() {
    let mask = |number| Some(Box::new(Value::Uint(number)));
    let cases = [
        (
            "SAI_ACL_ENTRY_ATTR_FIELD_IP_PROTOCOL",
            "6&mask:0xff",
            Value::Field(Value::Uint(6).into(), mask(255)),
        ),
        (
            "SAI_ACL_ENTRY_ATTR_FIELD_SRC_IP",
            "10.0.0.0&mask:255.0.0.0",
            Value::Field(
                Value::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0))).into(),
                Some(Value::Ip(IpAddr::V4(Ipv4Addr::new(255, 0, 0, 0))).into()),
            ),
        ),
        (
            "SAI_ACL_ENTRY_ATTR_FIELD_ACL_IP_TYPE",
            "SAI_ACL_IP_TYPE_IPV4ANY&mask:0xffffffffffffffff",
            Value::Field(Value::Int(3).into(), Some(Value::Int(-1).into())),
        ),
        (
            "SAI_ACL_ENTRY_ATTR_FIELD_IN_PORTS",
            "2:oid:0x1,oid:0x2",
            Value::Field(Value::Oids(vec![1, 2]).into(), None),
        ),
        (
            "SAI_ACL_ENTRY_ATTR_USER_DEFINED_FIELD_GROUP_MIN",
            "2:1,2&mask:2:0xff,0x0f",
            Value::Field(Value::Uints(vec![1, 2]).into(), Some(Value::Uints(vec![255, 15]).into())),
        ),
        (
            "SAI_SWITCH_ATTR_ACL_STAGE_INGRESS",
            "true:1:SAI_ACL_ACTION_TYPE_REDIRECT",
            Value::Capability(true, vec![0]),
        ),
        ("SAI_SWITCH_ATTR_FDB_EVENT_NOTIFY", "0x5597d5b6c6b1", Value::Uint(0x5597_d5b6_c6b1)),
        ("SAI_PORT_ATTR_RX_SIGNAL_DETECT", r#"{"0":"T","1":"F*","10":"T*"}"#, Value::Latches(vec![])),
        ("SAI_PORT_ATTR_RX_SNR", r#"{"0":20.5,"1":0.0}"#, Value::Snr(vec![(0, 5248), (1, 0)])),
        (
            "SAI_PORT_SERDES_ATTR_TX_FIR_TAPS_LIST",
            r#"{"0":[{"tap0":42},{"tap1":-1}]}"#,
            Value::Taps(vec![vec![42], vec![-1]]),
        ),
        ("SAI_PORT_ATTR_JSON_FORMATTED", "", Value::Bool(true)),
    ];
    for (name, text, value) in cases {
        let Some(attribute) = Attribute::from_name(name) else { continue };
        let read = attribute.read_value(text).unwrap_or_else(|e| panic!("{e}"));
        // The lanes are in the order of the text.
        if !matches!(value, Value::Latches(_)) {
            assert_eq!(read, value, "{name}");
        }
        let text = text.replace("0x0f", "0xf");
        assert_eq!(again(attribute, &read), text, "{name}");
    }
}

#[test]
fn flags_are_joined_names() {
    let attribute = ObjectType::all()
        .flat_map(ObjectType::attributes)
        .find(|a| {
            a.value_type() == ValueType::Int32
                && a.enumeration().is_some_and(|of| of.name() == "sai_stats_mode_t")
        })
        .unwrap();
    for (number, text) in [
        (0, "SAI_STATS_MODE_NONE"),
        (1, "SAI_STATS_MODE_READ"),
        (1 | 8, "SAI_STATS_MODE_READ|SAI_STATS_MODE_BULK_CLEAR"),
        (1 | 8 | 0xff00, "SAI_STATS_MODE_READ|SAI_STATS_MODE_BULK_CLEAR|0xff00"),
    ] {
        assert_eq!(again(attribute, &Value::Int(number)), text);
        assert_eq!(attribute.read_value(text), Ok(Value::Int(number)));
    }
}

#[test]
fn text_that_is_no_value_is_refused_with_a_sentence() {
    for (name, text) in [
        ("SAI_SWITCH_ATTR_ON_LINK_ROUTE_SUPPORTED", "xx"),
        ("SAI_HOSTIF_ATTR_NAME", "\\x2g"),
        ("SAI_HOSTIF_ATTR_NAME", "\\x2"),
        ("SAI_HOSTIF_ATTR_NAME", "\\s45"),
        ("SAI_HOSTIF_ATTR_NAME", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("SAI_SWITCH_ATTR_NV_STORAGE_SIZE", "22345235345345345435"),
        ("SAI_SWITCH_ATTR_NV_STORAGE_SIZE", "2a"),
        ("SAI_SWITCH_ATTR_SWITCHING_MODE", "foo"),
        ("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS", "foo"),
        ("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS", "00:00:00:00:00:00:00"),
        ("SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "foo"),
        ("SAI_SWITCH_ATTR_PORT_LIST", "3:oid:0x1,oid:0x2"),
        ("SAI_SWITCH_ATTR_PORT_LIST", "4294967295:oid:0x1"),
        ("SAI_PORT_ATTR_HW_LANE_LIST", "1:4294967296"),
        ("SAI_ACL_ENTRY_ATTR_FIELD_IP_PROTOCOL", "6"),
        ("SAI_ACL_ENTRY_ATTR_FIELD_IP_PROTOCOL", "6&mask:0x100"),
        ("SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST", r#"{"count":4294967295,"list":[]}"#),
        ("SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST", "{"),
    ] {
        let error = of(name).read_value(text).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains(name), "{error}");
    }
    let error = of("SAI_SWITCH_ATTR_SRC_MAC_ADDRESS").read_value("foo").unwrap_err();
    assert_eq!(error.to_string(), "\"foo\" is no value of SAI_SWITCH_ATTR_SRC_MAC_ADDRESS, which takes MAC");
    let none = of("SAI_PORT_ATTR_EYE_VALUES").read_value("{}").unwrap_err();
    assert_eq!(
        none.to_string(),
        "SAI_PORT_ATTR_EYE_VALUES has values of type PORT_EYE_VALUES_LIST, for which sairedis has no text"
    );
}

#[test]
fn keys_have_the_texts_of_sairedis() {
    for (object, text) in [
        (
            "ROUTE_ENTRY",
            r#"{"dest":"20.0.0.0/24","switch_id":"oid:0x21000000000000","vr":"oid:0x3000000000022"}"#,
        ),
        ("ROUTE_ENTRY", r#"{"dest":"::/0","switch_id":"oid:0x21000000000000","vr":"oid:0x3000000000022"}"#),
        (
            "NEIGHBOR_ENTRY",
            r#"{"ip":"fe80::1","rif":"oid:0x6000000000001","switch_id":"oid:0x21000000000000"}"#,
        ),
        ("INSEG_ENTRY", r#"{"label":"1000","switch_id":"oid:0x21000000000000"}"#),
        (
            "FDB_ENTRY",
            r#"{"bvid":"oid:0x26000000000001","mac":"52:54:00:AD:11:C9","switch_id":"oid:0x21000000000000"}"#,
        ),
        (
            "NAT_ENTRY",
            r#"{"nat_data":{"key":{"dst_ip":"1.2.3.4","l4_dst_port":"80","l4_src_port":"0","proto":"6","src_ip":"0.0.0.0"},"mask":{"dst_ip":"255.255.255.255","l4_dst_port":"65535","l4_src_port":"0","proto":"255","src_ip":"0.0.0.0"}},"nat_type":"SAI_NAT_TYPE_DESTINATION_NAT","switch_id":"oid:0x21000000000000","vr":"oid:0x3000000000022"}"#,
        ),
        (
            "MY_SID_ENTRY",
            r#"{"args_len":"0","function_len":"16","locator_block_len":"32","locator_node_len":"16","sid":"fc00:0:1:1::","switch_id":"oid:0x21000000000000","vr_id":"oid:0x3000000000022"}"#,
        ),
    ] {
        let object = ObjectType::from_short_name(object).unwrap();
        let key = object.read_key(text).unwrap_or_else(|e| panic!("{e}"));
        let mut written = String::new();
        object.write_key(&key, &mut written);
        assert_eq!(written, text);
    }
    let route = ObjectType::from_short_name("ROUTE_ENTRY").unwrap();
    for (text, why) in [
        ("oid:0x1", "the key of a SAI_OBJECT_TYPE_ROUTE_ENTRY is no JSON"),
        (r#"{"dest":"20.0.0.0/24"}"#, "the key of a SAI_OBJECT_TYPE_ROUTE_ENTRY has no member switch_id"),
        (
            r#"{"dest":"20.0.0.0/33","switch_id":"oid:0x1","vr":"oid:0x1"}"#,
            "\"\"20.0.0.0/33\"\" is no value of dest",
        ),
        (r#"{"dest":7,"switch_id":"oid:0x1","vr":"oid:0x1"}"#, "\"7\" is no value of dest"),
    ] {
        let error = route.read_key(text).unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    }
    assert!(ObjectType::from_short_name("PORT").unwrap().read_key("{}").is_err());
}

fn data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("RIBTIDE_DATA").map_or(beside, PathBuf::from).join("sonic");
    data.exists().then_some(data)
}

fn unpacked(file: PathBuf) -> String {
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(&file).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// The lines `NAME=VALUE` of a recording of sairedis: `TIME|op|TYPE:ID|NAME=VALUE|…`.
fn of_recording(text: &str, into: &mut BTreeSet<(Attribute, String)>) {
    // A query for what is supported has no values.
    let lines = text.lines().filter(|line| !matches!(line.split('|').nth(1), Some("q" | "Q")));
    for field in lines.flat_map(|line| line.split('|')) {
        if let Some((name, value)) = field.split_once('=')
            && let Some(attribute) = Attribute::from_name(name)
        {
            into.insert((attribute, value.to_owned()));
        }
    }
}

/// Reads and writes each value again.
fn round_trip(values: &BTreeSet<(Attribute, String)>) {
    for (attribute, text) in values {
        let value = attribute.read_value(text).unwrap_or_else(|e| panic!("{e}"));
        // sairedis writes what the caller's pointer is; both are lists without items.
        let mut text = text.replace(r#""list":[]"#, r#""list":null"#);
        // An older name of a value is written as the present one.
        if let Some(name) = attribute.enumeration().and_then(|of| of.name_of(of.number_of(&text)?)) {
            text = name.to_owned();
        }
        let mut written = again(*attribute, &value);
        // Members that older versions of sairedis do not write.
        for (later, none) in [("\"fc\"", "\"fc\":0,"), ("\"mpls_exp\"", "\"mpls_exp\":0,")] {
            if !text.contains(later) {
                written = written.replace(none, "");
            }
        }
        assert_eq!(written, text, "{attribute:?}");
    }
}

#[test]
fn every_value_of_the_transcripts_is_read_and_written_again() {
    let Some(data) = data() else { return println!("skipped: shared/data/sonic is absent") };
    let mut values = BTreeSet::new();
    for recording in [
        "real-orchagent-start-and-feed/sairedis.rec.gz",
        "orchagent-restart/first.sairedis.rec.gz",
        "orchagent-restart/second.sairedis.rec.gz",
    ] {
        of_recording(&unpacked(data.join(recording)), &mut values);
    }
    // ASIC_DB after each phase: hashes of names and values.
    let dumps: serde_json::Value =
        serde_json::from_str(&unpacked(data.join("all-real-dumps/per-phase-raw.json.gz"))).unwrap();
    let mut keys = 0;
    let mut stack = vec![&dumps];
    while let Some(json) = stack.pop() {
        match json {
            serde_json::Value::Array(items) => stack.extend(items),
            serde_json::Value::Object(members) => {
                for (name, member) in members {
                    if let (Some(attribute), Some(value)) = (Attribute::from_name(name), member.as_str()) {
                        values.insert((attribute, value.to_owned()));
                    }
                    let key = name.strip_prefix("ASIC_STATE:").and_then(|name| name.split_once(':'));
                    if let Some((object, key)) = key
                        && let Some(object) = ObjectType::from_name(object).filter(|object| object.is_entry())
                    {
                        let mut again = String::new();
                        object.write_key(&object.read_key(key).unwrap(), &mut again);
                        assert_eq!(again, key);
                        keys += 1;
                    }
                    stack.push(member);
                }
            }
            _ => {}
        }
    }
    round_trip(&values);
    assert!(values.len() > 700 && keys > 1_000, "{} values, {keys} keys", values.len());
}

/// `SAIREDIS_RECORDINGS=FOLDER cargo test -p ribtide-sai`: recordings (`*.rec`) of other programs, such as those in
/// `tests` of sonic-sairedis.
#[test]
fn every_value_of_other_recordings_is_read_and_written_again() {
    let Some(folder) = std::env::var_os("SAIREDIS_RECORDINGS") else {
        return println!("skipped: no SAIREDIS_RECORDINGS");
    };
    let (mut folders, mut values) = (vec![PathBuf::from(folder)], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rec") {
                of_recording(&String::from_utf8_lossy(&std::fs::read(path).unwrap()), &mut values);
            }
        }
    }
    assert!(values.len() > 1_000, "{}", values.len());
    round_trip(&values);
}

proptest! {
    /// Any text is a value that is written and read as the same value, or a sentence.
    #[test]
    fn any_text_is_a_value_or_a_sentence(which in 0usize..10_000, text in ".{0,40}") {
        let all: Vec<Attribute> = ObjectType::all().flat_map(ObjectType::attributes).collect();
        let attribute = all[which % all.len()];
        if let Ok(value) = attribute.read_value(&text) {
            let written = again(attribute, &value);
            prop_assert_eq!(attribute.read_value(&written).map_err(|e| e.to_string()), Ok(value));
        }
    }

    /// The same for texts that are nearly values.
    #[test]
    fn any_list_is_a_value_or_a_sentence(which in 0usize..10_000, text in "[0-9]{1,3}:[-0-9a-fx:.,&mask]{0,30}") {
        let all: Vec<Attribute> = ObjectType::all().flat_map(ObjectType::attributes).collect();
        let attribute = all[which % all.len()];
        if let Ok(value) = attribute.read_value(&text) {
            let written = again(attribute, &value);
            prop_assert_eq!(attribute.read_value(&written).map_err(|e| e.to_string()), Ok(value));
        }
    }

    #[test]
    fn any_text_is_a_key_or_a_sentence(which in 0u32..200, text in ".{0,60}") {
        if let Some(object) = ObjectType::from_number(which) {
            let _ = object.read_key(&text);
        }
    }
}
