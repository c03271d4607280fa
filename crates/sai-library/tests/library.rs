//! A library behind the C ABI: loading, and calls with values of the table.

mod support;

use ribtide_sai::{Attribute, ObjectType, Value};
use ribtide_sai_library::{Attributes, Id, Library, status_text};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// Both tests of a process would share the library's objects: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn object(name: &str) -> ObjectType {
    ObjectType::from_short_name(name).unwrap()
}

fn attribute(name: &str) -> Attribute {
    Attribute::from_name(name).unwrap_or_else(|| panic!("{name}"))
}

fn attrs(pairs: &[(&str, &str)]) -> Attributes {
    let mut attrs = Attributes::default();
    for (name, text) in pairs {
        attrs.push(attribute(name), &attribute(name).read_value(text).unwrap()).unwrap();
    }
    attrs
}

fn open(profile: &[(&str, &str)], run: impl FnOnce(Library)) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    static COMPILED: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = support::compile(folder.path(), "libsai.so", &[])?;
        Some((folder, path))
    });
    let Some((_, path)) = compiled else { return };
    let profile: Vec<_> =
        profile.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    run(Library::open(path, &profile).unwrap());
}

fn text(library: &mut Library, of: ObjectType, id: Id<'_>, name: &str) -> String {
    let value =
        library.read(of, id, attribute(name)).unwrap_or_else(|e| panic!("{name}: {}", status_text(e)));
    let mut text = String::new();
    attribute(name).write_value(&value, &mut text);
    text
}

#[test]
fn library_that_cannot_be_used_is_refused_with_a_sentence() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let error =
        |path: &Path, profile: &[(String, String)]| Library::open(path, profile).unwrap_err().to_string();

    let absent = error(&path("absent.so"), &[]);
    assert!(
        absent.starts_with(&format!("the SAI library {} cannot be loaded: ", path("absent.so").display())),
        "{absent}"
    );
    assert!(absent.contains("No such file") && absent.ends_with("--sai-library names the file"), "{absent}");

    std::fs::write(path("text.so"), "no library").unwrap();
    assert!(error(&path("text.so"), &[]).contains("cannot be loaded: "));

    let Some(old) = support::compile(folder.path(), "old.so", &["-DVERSION=11601"]) else { return };
    assert_eq!(
        error(&old, &[]),
        format!(
            "the SAI library {} implements SAI 1.16.1, and ribtide calls libraries of SAI 1.18 and later minor versions; \
             use one of these",
            old.display()
        )
    );
    let other = support::compile(folder.path(), "other.so", &["-DVERSION=20000"]).unwrap();
    assert!(error(&other, &[]).contains("implements SAI 2.0.0"));

    let less = support::compile(folder.path(), "less.so", &["-DWITHOUT_CAPABILITY"]).unwrap();
    assert!(
        error(&less, &[]).contains("has no function sai_query_attribute_capability, so it is no SAI library")
    );

    let whole = support::compile(folder.path(), "whole.so", &[]).unwrap();
    let refuse = [("MEMORY_REFUSE".to_owned(), "1".to_owned())];
    assert_eq!(
        error(&whole, &refuse),
        format!(
            "the SAI library {} refuses to initialize: sai_api_initialize returns SAI_STATUS_FAILURE; its log, and the \
             profile of -p, may say why",
            whole.display()
        )
    );
    let later = support::compile(folder.path(), "later.so", &["-DVERSION=11900"]).unwrap();
    assert_eq!(Library::open(&later, &[]).unwrap().version(), "1.19.0");
}

#[test]
fn every_value_type_passes_the_c_abi_and_back() {
    open(&[], |mut library| {
        let create = attrs(&[("SAI_SWITCH_ATTR_INIT_SWITCH", "true")]);
        let switch = library.create(object("SWITCH"), Id::Oid(0), 0, &create).unwrap();
        let mut oids = std::collections::BTreeMap::new();
        for (of, name, text) in [
            ("PORT", "SAI_PORT_ATTR_FLOOD_STORM_CONTROL_POLICER_ID", "oid:0x0"),
            ("HOSTIF", "SAI_HOSTIF_ATTR_NAME", "Ethernet0"),
            ("HOSTIF", "SAI_HOSTIF_ATTR_NAME", "a\\\\b\\x07"),
            ("ROUTER_INTERFACE", "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS", "02:AB:00:00:00:01"),
            ("ROUTER_INTERFACE", "SAI_ROUTER_INTERFACE_ATTR_MTU", "9100"),
            ("TUNNEL", "SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "10.0.0.21"),
            ("TUNNEL", "SAI_TUNNEL_ATTR_ENCAP_SRC_IP", "1111:2222:3333:4444:5555:6666:aaaa:bbbb"),
            ("TUNNEL", "SAI_TUNNEL_ATTR_ENCAP_TTL_VAL", "255"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_FIELD_SRC_IP", "10.1.0.0&mask:255.255.0.0"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_FIELD_SRC_IPV6", "fc00::&mask:ffff::"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_FIELD_SRC_MAC", "02:00:00:00:00:01&mask:FF:FF:FF:FF:FF:FF"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_FIELD_L4_SRC_PORT", "1000&mask:0xffff"),
            (
                "ACL_ENTRY",
                "SAI_ACL_ENTRY_ATTR_FIELD_ACL_IP_TYPE",
                "SAI_ACL_IP_TYPE_IPV4ANY&mask:0xffffffffffffffff",
            ),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_FIELD_IP_PROTOCOL", "disabled"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_USER_DEFINED_FIELD_GROUP_MIN", "3:1,2,3&mask:3:0xff,0xff,0x0"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_ACTION_PACKET_ACTION", "SAI_PACKET_ACTION_DROP"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_ACTION_SET_TC", "7"),
            ("ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_ACTION_SET_SRC_IPV6", "fc00::1"),
            (
                "ACL_TABLE",
                "SAI_ACL_TABLE_ATTR_ACL_BIND_POINT_TYPE_LIST",
                "2:SAI_ACL_BIND_POINT_TYPE_PORT,SAI_ACL_BIND_POINT_TYPE_LAG",
            ),
            ("ACL_RANGE", "SAI_ACL_RANGE_ATTR_LIMIT", "1000,2000"),
            (
                "QOS_MAP",
                "SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST",
                r#"{"count":1,"list":[{"key":{"color":"SAI_PACKET_COLOR_RED","dot1p":3,"dscp":2,"fc":8,"mpls_exp":7,"pg":5,"prio":4,"qidx":6,"tc":1},"value":{"color":"SAI_PACKET_COLOR_GREEN","dot1p":33,"dscp":22,"fc":88,"mpls_exp":77,"pg":55,"prio":44,"qidx":66,"tc":11}}]}"#,
            ),
            (
                "NEXT_HOP_GROUP_MAP",
                "SAI_NEXT_HOP_GROUP_MAP_ATTR_MAP_TO_VALUE_LIST",
                r#"{"count":2,"list":[{"key":1,"value":-11},{"key":2,"value":3}]}"#,
            ),
            ("SRV6_SIDLIST", "SAI_SRV6_SIDLIST_ATTR_SEGMENT_LIST", "2:fc00:0:1::,fc00:0:2::"),
            ("PORT", "SAI_PORT_ATTR_ADVERTISED_SPEED", "3:10000,25000,40000"),
            ("PORT", "SAI_PORT_ATTR_SERDES_PREEMPHASIS", "0:null"),
            (
                "SYSTEM_PORT",
                "SAI_SYSTEM_PORT_ATTR_CONFIG_INFO",
                r#"{"attached_core_index":"1","attached_core_port_index":"8","attached_switch_id":"2","num_voq":"8","port_id":"7","speed":"400000"}"#,
            ),
            ("STP", "SAI_STP_ATTR_VLAN_LIST", "2:1,4094"),
            ("MACSEC_SA", "SAI_MACSEC_SA_ATTR_SALT", "000102030405060708090A0B"),
            (
                "MACSEC_SA",
                "SAI_MACSEC_SA_ATTR_SAK",
                "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F",
            ),
            ("COUNTER", "SAI_COUNTER_ATTR_LABEL", "label"),
            ("BFD_SESSION", "SAI_BFD_SESSION_ATTR_MIN_TX", "300000"),
            ("POLICER", "SAI_POLICER_ATTR_CIR", "18446744073709551615"),
        ] {
            let of = object(of);
            let Some(attribute) = Attribute::from_name(name) else { panic!("{name}") };
            let id = *oids.entry(of).or_insert_with(|| {
                // Without the mandatory attributes the library refuses; it takes any value of them.
                let mut attrs = Attributes::default();
                for needed in of.attributes().filter(|a| a.is_mandatory() && a.condition().is_none()) {
                    let zero = zero_of(needed);
                    attrs.push(needed, &zero).unwrap();
                }
                library
                    .create(of, Id::Oid(0), switch, &attrs)
                    .unwrap_or_else(|e| panic!("{of:?} {}", status_text(e)))
            });
            let mut set = Attributes::default();
            set.push(attribute, &attribute.read_value(text).unwrap()).unwrap();
            library.set(of, Id::Oid(id), &set).unwrap();
            assert_eq!(self::text(&mut library, of, Id::Oid(id), name), text, "{name}");
        }
    });
}

/// A value for a mandatory attribute.
fn zero_of(attribute: Attribute) -> Value {
    use ribtide_sai::ValueType as T;
    for text in [
        "0",
        "false",
        "oid:0x0",
        "0:null",
        "0.0.0.0",
        "0.0.0.0/0",
        "00:00:00:00:00:00",
        "::",
        "0,0",
        r#"{"count":0,"list":null}"#,
    ] {
        if let Ok(value) = attribute.read_value(text)
            && !matches!(value, Value::Count(_))
        {
            return value;
        }
    }
    match attribute.value_type() {
        T::MacsecSak | T::EncryptKey => Value::Bytes(vec![0; 32]),
        T::SystemPortConfig => Value::SystemPorts(vec![Default::default()]),
        T::MacsecAuthKey | T::AuthKey => Value::Bytes(vec![0; 16]),
        T::MacsecSalt => Value::Bytes(vec![0; 12]),
        other => panic!("{attribute:?} {other:?}"),
    }
}

#[test]
fn every_object_type_is_created_read_and_removed() {
    open(&[], |mut library| {
        assert_eq!(library.missing_apis().count(), 0);
        library.set_log_level(3);
        let create = attrs(&[("SAI_SWITCH_ATTR_INIT_SWITCH", "true")]);
        let switch = library.create(object("SWITCH"), Id::Oid(0), 0, &create).unwrap();
        let mut made = 0;
        for of in ObjectType::all().filter(|of| of.api().is_some() && of.short_name() != "SWITCH") {
            let mut attrs = Attributes::default();
            for needed in of.attributes().filter(|a| a.is_mandatory() && a.condition().is_none()) {
                attrs.push(needed, &zero_of(needed)).unwrap();
            }
            // A route's virtual router must exist.
            let vr = library
                .read(
                    object("SWITCH"),
                    Id::Oid(switch),
                    attribute("SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID"),
                )
                .unwrap();
            let key: ribtide_sai::Key = of.key().map(|member| key_value(member, switch, &vr)).collect();
            let id = if of.is_entry() { Id::Key(&key) } else { Id::Oid(0) };
            let oid = library
                .create(of, id, switch, &attrs)
                .unwrap_or_else(|e| panic!("{of:?} {}", status_text(e)));
            let id = if of.is_entry() { Id::Key(&key) } else { Id::Oid(oid) };
            if of.is_entry() {
                assert_eq!(library.create(of, id, switch, &attrs), Err(-6), "{of:?}");
            } else {
                assert_eq!(library.object_type(oid), Some(of));
            }
            library.remove(of, id).unwrap_or_else(|e| panic!("{of:?} {}", status_text(e)));
            assert_eq!(library.remove(of, id), Err(-7), "{of:?}");
            made += 1;
        }
        assert_eq!(made, 145 - 1);
        library.remove(object("SWITCH"), Id::Oid(switch)).unwrap();
    });
}

fn key_value(member: ribtide_sai::KeyMember, switch: u64, vr: &Value) -> Value {
    use ribtide_sai::ValueType as T;
    match (member.name(), member.value_type()) {
        ("switch_id", _) => Value::Oid(switch),
        ("vr_id", _) => vr.clone(),
        (_, T::ObjectId) => Value::Oid(switch),
        (_, T::Mac) => Value::Mac([2, 0, 0, 0, 0, 1]),
        (_, T::IpAddress) => Value::Ip("10.0.0.1".parse().unwrap()),
        (_, T::Ipv6) => Value::Ip("fc00::1".parse().unwrap()),
        (_, T::IpPrefix) => Value::Prefix("10.0.0.0".parse().unwrap(), 8),
        (_, T::Int32) => Value::Int(0),
        (_, T::Uint32Range) => Value::Range(1, 2),
        (_, T::NatEntryData) => {
            let zero = ribtide_sai::NatKey {
                src_ip: [0, 0, 0, 0].into(),
                dst_ip: [10, 0, 0, 1].into(),
                proto: 6,
                l4_src_port: 0,
                l4_dst_port: 80,
            };
            Value::Nat(zero, zero)
        }
        _ => Value::Uint(7),
    }
}

#[test]
fn lists_that_need_more_room_are_read_again() {
    open(&[("MEMORY_PORTS", "300")], |mut library| {
        let create = attrs(&[("SAI_SWITCH_ATTR_INIT_SWITCH", "true")]);
        let switch = library.create(object("SWITCH"), Id::Oid(0), 0, &create).unwrap();
        let ports = attribute("SAI_SWITCH_ATTR_PORT_LIST");
        let mut small = Attributes::default();
        small.push_room(ports, &Value::Room(3)).unwrap();
        assert_eq!(library.get(object("SWITCH"), Id::Oid(switch), &mut small), Err(-8));
        assert_eq!(small.count(0, ports), Some(300));
        let Value::Oids(all) = library.read(object("SWITCH"), Id::Oid(switch), ports).unwrap() else {
            panic!()
        };
        assert_eq!(all.len(), 300);
        assert!(all.iter().all(|oid| library.object_type(*oid) == Some(object("PORT"))));
        let lanes = text(&mut library, object("PORT"), Id::Oid(all[2]), "SAI_PORT_ATTR_HW_LANE_LIST");
        assert_eq!(lanes, "4:9,10,11,12");
    });
}

#[test]
fn queries_reach_the_library() {
    open(&[("MEMORY_ROUTES", "10")], |mut library| {
        let create = attrs(&[("SAI_SWITCH_ATTR_INIT_SWITCH", "true")]);
        let switch = library.create(object("SWITCH"), Id::Oid(0), 0, &create).unwrap();
        let none = Attributes::default();
        assert_eq!(library.available(switch, object("ROUTE_ENTRY"), &none), Ok(10));
        assert_eq!(library.available(switch, object("VLAN"), &none), Err(-2));
        assert_eq!(library.capability(switch, attribute("SAI_PORT_ATTR_SPEED")), Ok([true, true, true]));
        let family = attribute("SAI_ROUTE_ENTRY_ATTR_IP_ADDR_FAMILY");
        assert_eq!(library.capability(switch, family), Ok([true, false, true]));
        let action = attribute("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION");
        assert_eq!(library.enum_values(switch, action, 8), Ok(vec![0, 1, 2]));
        assert_eq!(library.enum_values(switch, action, 2), Err((-8, 3)));
        assert_eq!(library.stats_capability(switch, object("PORT"), 9), Ok(vec![(0, 3), (1, 3)]));
        assert_eq!(library.stats_capability(switch, object("PORT"), 1), Err((-8, 2)));
        let cpu =
            library.read(object("SWITCH"), Id::Oid(switch), attribute("SAI_SWITCH_ATTR_CPU_PORT")).unwrap();
        let Value::Oid(cpu) = cpu else { panic!() };
        assert_eq!(library.stats(object("PORT"), cpu, &[1, 5]), Ok(vec![1001, 1005]));
        assert_eq!(library.clear_stats(object("PORT"), cpu, &[1]), Ok(()));
        assert_eq!(library.stats(object("PORT"), cpu, &[1, 5]), Ok(vec![0, 1005]));
        // Both at once; of an object without such a function one after the other.
        assert_eq!(library.take_stats(object("PORT"), cpu, &[5, 6]), Ok(vec![1005, 1006]));
        assert_eq!(library.take_stats(object("PORT"), cpu, &[5, 6, 7]), Ok(vec![0, 0, 1007]));
        assert_eq!(library.take_stats(object("BUFFER_POOL"), cpu, &[8]), Ok(vec![1008]));
        assert_eq!(library.take_stats(object("BUFFER_POOL"), cpu, &[8]), Ok(vec![0]));
        assert_eq!(library.stats(object("VLAN_MEMBER"), cpu, &[1]), Err(-2));
        assert_eq!(library.flush_fdb(switch, &none), Ok(()));
        assert_eq!(library.flush_fdb(77, &none), Err(-19));
    });
}
