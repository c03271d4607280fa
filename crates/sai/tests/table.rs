//! The table against the headers, as a C compiler and a reader see them.

use ribtide_sai::{Api, Attribute, Default, Enum, Function, ObjectType, ValueType};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// `headers.txt`: what a C compiler made of the headers.
const HEADERS: &str = include_str!("headers.txt");

/// The numbers that the two ends of a range add: 1 to 9, which no header names.
const OF_RANGES: [&str; 2] = ["sai_acl_entry_attr_t", "sai_acl_table_attr_t"];

fn number_of(name: &str) -> Option<i64> {
    match Attribute::from_name(name) {
        Some(attribute) => Some(attribute.number().into()),
        None => Enum::value(name).map(|(_, number)| number.into()),
    }
}

#[test]
fn numbers_are_those_of_the_compiled_headers() {
    let mut checked = 0;
    for line in HEADERS.lines().filter(|line| line.starts_with("SAI_")) {
        let (name, number) = line.split_once(' ').unwrap();
        assert_eq!(number_of(name), Some(number.parse().unwrap()), "{name}");
        checked += 1;
    }
    assert!(checked > 350, "{checked}");
}

#[test]
fn each_object_type_has_as_many_attributes_as_the_headers_describe() {
    let mut types = 0;
    for line in HEADERS.lines().filter(|line| line.starts_with("sai_")) {
        let (name, count) = line.split_once(' ').unwrap();
        let stem = name.strip_prefix("sai_").and_then(|name| name.strip_suffix("_attr_t")).unwrap();
        let object = ObjectType::from_short_name(&stem.to_uppercase()).unwrap();
        let of_ranges = if OF_RANGES.contains(&name) { 9 } else { 0 };
        assert_eq!(object.attributes().len(), count.parse::<usize>().unwrap() + of_ranges, "{object:?}");
        types += 1;
    }
    assert_eq!(types, ObjectType::all().len());
}

#[test]
fn names_resolve_to_numbers_and_back() {
    for object in ObjectType::all() {
        assert_eq!(ObjectType::from_name(object.name()), Some(object));
        assert_eq!(ObjectType::from_number(object.number()), Some(object));
        for attribute in object.attributes() {
            assert_eq!(Attribute::from_name(attribute.name()), Some(attribute));
            assert_eq!(object.attribute(attribute.number()), Some(attribute));
            assert_eq!(attribute.object_type(), object);
            // Each attribute has exactly one kind of access.
            let kinds = [attribute.is_create_only(), attribute.is_create_and_set(), attribute.is_read_only()];
            assert_eq!(kinds.iter().filter(|has| **has).count(), 1, "{attribute:?}");
        }
    }
    for of in Enum::all() {
        assert_eq!(Enum::from_name(of.name()), Some(of));
        for (name, number) in of.values() {
            assert_eq!(Enum::value(name), Some((of, number)));
            assert_eq!(of.number_of(of.name_of(number).unwrap()), Some(number));
        }
    }
    for kind in ValueType::ALL {
        assert!(!kind.name().is_empty());
    }
}

#[test]
fn unknown_names_and_numbers_have_no_answer() {
    let route = ObjectType::from_short_name("ROUTE_ENTRY").unwrap();
    for name in ["", "SAI_", "SAI_ROUTE_ENTRY_ATTR_", "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_IDS", "ROUTE_ENTRY"] {
        assert_eq!((Attribute::from_name(name), Enum::value(name)), (None, None), "{name}");
        assert_eq!(ObjectType::from_name(name), None, "{name}");
    }
    assert_eq!(Attribute::from_name("SAI_OBJECT_TYPE_PORT"), None);
    assert_eq!(ObjectType::from_name("SAI_ROUTE_ENTRY_ATTR_META_DATA"), None);
    assert_eq!(ObjectType::from_name("SAI_OBJECT_TYPE_NULL"), None);
    assert_eq!((ObjectType::from_number(0), ObjectType::from_number(u32::MAX)), (None, None));
    assert_eq!((route.attribute(7), route.attribute(u32::MAX)), (None, None));
    let action = Enum::from_name("sai_packet_action_t").unwrap();
    assert_eq!((action.name_of(-1), action.name_of(99)), (None, None));
    assert_eq!(action.number_of("SAI_OBJECT_TYPE_PORT"), None);
    assert_eq!(ribtide_sai::status_name(-65_537), None);
}

#[test]
fn older_names_give_the_name_of_the_metadata() {
    let ports = Attribute::from_name("SAI_SWITCH_ATTR_PORT_NUMBER").unwrap();
    assert_eq!(ports.name(), "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS");
    let shutdown = Attribute::from_name("SAI_SWITCH_ATTR_SHUTDOWN_REQUEST_NOTIFY").unwrap();
    assert_eq!(shutdown.name(), "SAI_SWITCH_ATTR_SWITCH_SHUTDOWN_REQUEST_NOTIFY");
    let size = Attribute::from_name("SAI_BUFFER_PROFILE_ATTR_BUFFER_SIZE").unwrap();
    assert_eq!(size.name(), "SAI_BUFFER_PROFILE_ATTR_RESERVED_BUFFER_SIZE");
    let (kind, ecmp) = Enum::value("SAI_NEXT_HOP_GROUP_TYPE_ECMP").unwrap();
    assert_eq!(kind.name_of(ecmp), Some("SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP"));
    assert!(kind.values().all(|(name, _)| name != "SAI_NEXT_HOP_GROUP_TYPE_ECMP"));
}

/// Read in `sairoute.h`, `sainexthop.h`, `sairouterinterface.h`, `saivlan.h`, `saiacl.h`, `saiport.h`, `saiswitch.h`.
#[test]
fn attributes_have_the_rules_of_the_headers() {
    let of = |name: &str| Attribute::from_name(name).unwrap();
    let objects = |a: Attribute| a.objects().map(ObjectType::short_name).collect::<Vec<_>>();

    let hop = of("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID");
    assert_eq!((hop.number(), hop.value_type()), (2, ValueType::ObjectId));
    assert!(hop.is_create_and_set() && hop.allows_null() && !hop.is_mandatory() && !hop.is_read_only());
    assert_eq!(objects(hop), ["NEXT_HOP", "NEXT_HOP_GROUP", "ROUTER_INTERFACE", "PORT"]);
    assert_eq!(hop.default_value(), Some(Default::Const("SAI_NULL_OBJECT_ID")));
    assert!(hop.may_name(ObjectType::from_short_name("PORT").unwrap()));
    assert!(!hop.may_name(ObjectType::from_short_name("LAG").unwrap()));

    let action = of("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION");
    assert_eq!(action.enumeration().map(Enum::name), Some("sai_packet_action_t"));
    assert_eq!(action.default_value(), Some(Default::Const("SAI_PACKET_ACTION_FORWARD")));
    let family = of("SAI_ROUTE_ENTRY_ATTR_IP_ADDR_FAMILY");
    assert!(family.is_read_only());

    let ip = of("SAI_NEXT_HOP_ATTR_IP");
    assert!(ip.is_mandatory() && ip.is_create_only());
    let rule = ip.condition().unwrap();
    let kind = of("SAI_NEXT_HOP_ATTR_TYPE");
    let holds = |value: &str| rule.holds(|attribute, is| attribute == kind && is == value);
    assert!(holds("SAI_NEXT_HOP_TYPE_IP") && !holds("SAI_NEXT_HOP_TYPE_TUNNEL_ENCAP_X"));

    let vlan = of("SAI_VLAN_ATTR_VLAN_ID");
    assert_eq!((vlan.value_type(), vlan.number()), (ValueType::Uint16, 0));
    assert!(vlan.is_mandatory() && vlan.is_create_only() && vlan.is_key());
    assert_eq!(
        of("SAI_VLAN_ATTR_STP_INSTANCE").default_value(),
        Some(Default::Attribute(of("SAI_SWITCH_ATTR_DEFAULT_STP_INST_ID")))
    );

    let src = of("SAI_ACL_ENTRY_ATTR_FIELD_SRC_IP");
    assert_eq!(
        (src.value_type(), src.default_value()),
        (ValueType::AclFieldDataIpv4, Some(Default::Const("disabled")))
    );
    let packet = of("SAI_ACL_ENTRY_ATTR_ACTION_PACKET_ACTION");
    assert_eq!(packet.value_type(), ValueType::AclActionDataInt32);
    assert_eq!(packet.enumeration().map(Enum::name), Some("sai_packet_action_t"));
    let group = of("SAI_ACL_TABLE_ATTR_USER_DEFINED_FIELD_GROUP_MIN");
    let third = of("SAI_ACL_TABLE_ATTR_USER_DEFINED_FIELD_GROUP_3");
    assert_eq!(third.number(), group.number() + 3);
    assert_eq!(objects(third), ["UDF_GROUP"]);

    let lanes = of("SAI_PORT_ATTR_HW_LANE_LIST");
    assert!(lanes.is_mandatory() && lanes.is_create_only() && lanes.is_key());
    assert_eq!(lanes.value_type(), ValueType::Uint32List);
    let fec = of("SAI_PORT_ATTR_SUPPORTED_FEC_MODE");
    assert_eq!(
        (fec.value_type(), fec.enumeration().map(Enum::name)),
        (ValueType::Int32List, Some("sai_port_fec_mode_t"))
    );

    let notify = of("SAI_SWITCH_ATTR_FDB_EVENT_NOTIFY");
    assert_eq!(
        (notify.value_type(), notify.function()),
        (ValueType::Pointer, Some("sai_fdb_event_notification_fn"))
    );
    assert_eq!(hop.function(), None);
    assert_eq!(of("SAI_SWITCH_ATTR_DEFAULT_TRAP_GROUP").default_value(), Some(Default::Internal));
    assert_eq!(of("SAI_SWITCH_ATTR_CPU_PORT").default_value(), Some(Default::Internal));
    assert_eq!(of("SAI_PORT_ATTR_OPER_STATUS").default_value(), None);
    assert_eq!(of("SAI_BRIDGE_PORT_ATTR_INGRESS_FILTERING").default_value(), Some(Default::Const("false")));
}

/// Each attribute that a rule names is known, and each value that it compares with is one of that attribute.
#[test]
fn rules_name_known_attributes_and_values() {
    let mut rules = 0;
    for attribute in ObjectType::all().flat_map(ObjectType::attributes) {
        if let Some(rule) = attribute.condition() {
            let mut compared = 0;
            rule.holds(|of, value| {
                compared += 1;
                let known = match (of.value_type(), of.enumeration()) {
                    (_, Some(enumeration)) => enumeration.number_of(value).is_some(),
                    (ValueType::Bool, _) => matches!(value, "true" | "false"),
                    (ValueType::ObjectId, _) => value == "SAI_NULL_OBJECT_ID",
                    _ => value.parse::<i64>().is_ok(),
                };
                assert!(known, "{attribute:?}: {rule:?} compares {of:?} with {value}");
                false
            });
            assert_eq!(compared, rule.text().matches("==").count(), "{attribute:?}: {rule:?}");
            rules += 1;
        }
        if let Some(Default::Const(value)) = attribute.default_value()
            && let Some(of) = attribute.enumeration()
            && value.starts_with("SAI_")
        {
            assert!(of.number_of(value).is_some(), "{attribute:?} has the default {value}");
        }
    }
    assert!(rules > 100, "{rules}");
}

/// Read in `sairoute.h`, `saivlan.h`, `sainexthopgroup.h`, `saiswitch.h`, `saifdb.h`.
#[test]
fn functions_have_their_places_in_the_method_tables() {
    let place = |object: &str, function| {
        let object = ObjectType::from_short_name(object).unwrap();
        let place = object.function(function)?;
        object.api()?.functions().nth(place)
    };
    assert_eq!(place("ROUTE_ENTRY", Function::Create), Some("create_route_entry"));
    assert_eq!(place("ROUTE_ENTRY", Function::BulkSet), Some("set_route_entries_attribute"));
    assert_eq!(place("VLAN_MEMBER", Function::BulkRemove), Some("remove_vlan_members"));
    assert_eq!(place("VLAN_MEMBER", Function::BulkSet), None);
    assert_eq!(place("VLAN", Function::ClearStats), Some("clear_vlan_stats"));
    assert_eq!(place("NEXT_HOP_GROUP_MEMBER", Function::BulkCreate), Some("create_next_hop_group_members"));
    assert_eq!(
        place("NEXT_HOP_GROUP_MEMBER", Function::BulkSet),
        Some("set_next_hop_group_members_attribute")
    );
    assert_eq!(place("NEIGHBOR_ENTRY", Function::BulkCreate), Some("create_neighbor_entries"));
    assert_eq!(place("SWITCH", Function::Create), Some("create_switch"));
    assert_eq!(place("SWITCH", Function::Stats), Some("get_switch_stats"));
    assert_eq!(place("FDB_ENTRY", Function::Flush), Some("flush_fdb_entries"));
    assert_eq!(place("PORT", Function::StatsExt), Some("get_port_stats_ext"));
    assert_eq!(place("FDB_FLUSH", Function::Create), None);
    let route = ObjectType::from_short_name("ROUTE_ENTRY").unwrap().function(Function::BulkCreate);
    assert_eq!(route, Some(4));
    let api = Api::all().find(|api| api.name() == "SAI_API_ROUTE").unwrap();
    assert_eq!((api.number(), api.functions().len()), (6, 8));
}

#[test]
fn keys_have_the_members_of_their_structures() {
    let members = |object: &str| {
        let object = ObjectType::from_short_name(object).unwrap();
        object.key().map(|member| (member.name(), member.value_type())).collect::<Vec<_>>()
    };
    let (oid, prefix, address) = (ValueType::ObjectId, ValueType::IpPrefix, ValueType::IpAddress);
    assert_eq!(members("ROUTE_ENTRY"), [("switch_id", oid), ("vr_id", oid), ("destination", prefix)]);
    assert_eq!(members("NEIGHBOR_ENTRY"), [("switch_id", oid), ("rif_id", oid), ("ip_address", address)]);
    assert_eq!(members("INSEG_ENTRY"), [("switch_id", oid), ("label", ValueType::Uint32)]);
    assert_eq!(members("FDB_ENTRY"), [("switch_id", oid), ("mac_address", ValueType::Mac), ("bv_id", oid)]);
    assert_eq!(members("ACL_ENTRY"), []);
    let fdb = ObjectType::from_short_name("FDB_ENTRY").unwrap();
    let bv: Vec<_> = fdb.key().nth(2).unwrap().objects().map(ObjectType::short_name).collect();
    assert_eq!(bv, ["BRIDGE", "VLAN"]);
    assert!(fdb.is_entry() && !ObjectType::from_short_name("QOS_MAP").unwrap().is_entry());
}

/// The folder of transcripts of SONiC's programs: `RIBTIDE_DATA`, or `../shared/data` beside the repository.
fn transcripts() -> Option<Vec<PathBuf>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("RIBTIDE_DATA").map_or(beside, PathBuf::from).join("sonic");
    let folders =
        std::fs::read_dir(&data).ok()?.filter_map(|entry| std::fs::read_dir(entry.ok()?.path()).ok());
    let files = folders.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    Some(files.filter(|file| file.extension().is_some_and(|e| e == "gz")).collect())
}

#[test]
fn every_name_of_the_transcripts_is_known() {
    let Some(files) = transcripts() else { return println!("skipped: shared/data/sonic is absent") };
    let mut names = BTreeSet::new();
    for file in files {
        let mut text = String::new();
        let bytes = std::fs::File::open(&file).unwrap();
        flate2::read::MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names.extend(words.filter(|word| word.starts_with("SAI_")).map(str::to_owned));
    }
    // These are of sairedis.
    names.retain(|name| !name.starts_with("SAI_REDIS_") && !name.starts_with("SAI_VS_"));
    // Two messages to the ZeroMQ socket were recorded up to their 20,000th character, which is in a name.
    for cut in ["SAI_ROUTE_ENTRY_ATT", "SAI_ROUTE_ENTRY_ATTR_NEXT"] {
        assert!(names.remove(cut), "{cut}");
    }
    let unknown: Vec<_> = names
        .iter()
        .filter(|name| {
            Attribute::from_name(name).is_none()
                && Enum::value(name).is_none()
                && Api::all().all(|api| api.name() != **name)
        })
        .collect();
    assert!(names.len() > 300, "{}", names.len());
    assert_eq!(unknown, [""; 0], "of {} names", names.len());
}
