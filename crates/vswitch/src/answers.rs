//! What the switch answers about itself: read-only attributes, and queries about capabilities, with
//! the values of SONiC's virtual switch (sonic-sairedis `vslib/SwitchStateBase.cpp`).

use crate::own::{Parts, TYPES, list};
use crate::switch::{Started, VirtualSwitch};
use ribtide_sai::Enum;
use ribtide_swss::sai::{Attr, CountersMode, ObjectType, Oid, Query, QueryReply, Status};
use std::ops::RangeInclusive;

/// The values of attributes of the switch that never change.
const SWITCH_VALUES: &[(&str, &str)] = &[
    ("SAI_SWITCH_ATTR_FDB_AGING_TIME", "0"),
    ("SAI_SWITCH_ATTR_RESTART_WARM", "false"),
    ("SAI_SWITCH_ATTR_WARM_RECOVER", "false"),
    ("SAI_SWITCH_ATTR_TYPE", "SAI_SWITCH_TYPE_NPU"),
    ("SAI_SWITCH_ATTR_MAX_MIRROR_SESSION", "10"),
    ("SAI_SWITCH_ATTR_VXLAN_DEFAULT_ROUTER_MAC", "12:23:34:45:56:67"),
    ("SAI_SWITCH_ATTR_TAM_OBJECT_ID", "0:null"),
    ("SAI_SWITCH_ATTR_SUPPORTED_IPV4_BFD_SESSION_OFFLOAD_TYPE", "1:SAI_BFD_SESSION_OFFLOAD_TYPE_FULL"),
    ("SAI_SWITCH_ATTR_SUPPORTED_IPV6_BFD_SESSION_OFFLOAD_TYPE", "1:SAI_BFD_SESSION_OFFLOAD_TYPE_FULL"),
    ("SAI_SWITCH_ATTR_ACL_ENTRY_MINIMUM_PRIORITY", "1"),
    ("SAI_SWITCH_ATTR_ACL_ENTRY_MAXIMUM_PRIORITY", "16000"),
    ("SAI_SWITCH_ATTR_NUMBER_OF_UNICAST_QUEUES", "10"),
    ("SAI_SWITCH_ATTR_NUMBER_OF_MULTICAST_QUEUES", "10"),
    ("SAI_SWITCH_ATTR_NUMBER_OF_QUEUES", "20"),
    ("SAI_SWITCH_ATTR_QOS_MAX_NUMBER_OF_TRAFFIC_CLASSES", "16"),
    ("SAI_SWITCH_ATTR_QOS_MAX_NUMBER_OF_CHILDS_PER_SCHEDULER_GROUP", "16"),
    (
        "SAI_SWITCH_ATTR_SUPPORTED_OBJECT_TYPE_LIST",
        "8:SAI_OBJECT_TYPE_PORT,SAI_OBJECT_TYPE_LAG,SAI_OBJECT_TYPE_TAM,SAI_OBJECT_TYPE_TAM_COLLECTOR,\
         SAI_OBJECT_TYPE_TAM_REPORT,SAI_OBJECT_TYPE_TAM_TRANSPORT,SAI_OBJECT_TYPE_TAM_TELEMETRY,\
         SAI_OBJECT_TYPE_TAM_EVENT_THRESHOLD",
    ),
];

/// Sizes of tables beside those of the route path, by the attribute with the free entries.
const SIZES: &[(&str, &str, u32)] =
    &[("SAI_SWITCH_ATTR_AVAILABLE_IPMC_ENTRY", "SAI_OBJECT_TYPE_IPMC_ENTRY", 100)];
/// The same for tables of NAT, whose free entries are always all.
const NAT_SIZES: &[(&str, &str)] = &[
    ("SAI_SWITCH_ATTR_AVAILABLE_SNAT_ENTRY", "100"),
    ("SAI_SWITCH_ATTR_AVAILABLE_DNAT_ENTRY", "100"),
    ("SAI_SWITCH_ATTR_AVAILABLE_DOUBLE_NAT_ENTRY", "50"),
];
/// Entries, and counters, of an ACL table.
const ACL_TABLE_SIZE: usize = 1000;

/// What is free for the bind points of each stage of an ACL.
const ACL_TABLES: u32 = 3;
const ACL_TABLE_GROUPS: u32 = 200;

const PORT_STATS: [RangeInclusive<i32>; 5] = [0..=41, 62..=70, 103..=118, 135..=158, 201..=225];
const QUEUE_STATS: [i32; 16] = [0, 1, 2, 3, 22, 23, 24, 27, 34, 35, 36, 37, 38, 40, 45, 46];
/// `SAI_SWITCH_STAT_ECC_DROP`, `…_PACKET_INTEGRITY_DROP`, `…_DROPPED_TRIM_PACKETS`, `…_TX_TRIM_PACKETS`.
const SWITCH_STATS: [&str; 4] = [
    "SAI_SWITCH_STAT_ECC_DROP",
    "SAI_SWITCH_STAT_PACKET_INTEGRITY_DROP",
    "SAI_SWITCH_STAT_DROPPED_TRIM_PACKETS",
    "SAI_SWITCH_STAT_TX_TRIM_PACKETS",
];

/// The values that an enumeration of an attribute can have; names, because numbers say nothing.
const ENUM_VALUES: &[(&str, &[&str])] = &[
    ("SAI_TUNNEL_ATTR_PEER_MODE", &["SAI_TUNNEL_PEER_MODE_P2MP", "SAI_TUNNEL_PEER_MODE_P2P"]),
    ("SAI_VLAN_ATTR_UNKNOWN_UNICAST_FLOOD_CONTROL_TYPE", FLOODS),
    ("SAI_VLAN_ATTR_UNKNOWN_MULTICAST_FLOOD_CONTROL_TYPE", FLOODS),
    ("SAI_VLAN_ATTR_BROADCAST_FLOOD_CONTROL_TYPE", FLOODS),
    (
        "SAI_NEXT_HOP_GROUP_ATTR_TYPE",
        &[
            "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP",
            "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_ORDERED_ECMP",
            "SAI_NEXT_HOP_GROUP_TYPE_FINE_GRAIN_ECMP",
            "SAI_NEXT_HOP_GROUP_TYPE_PROTECTION",
            "SAI_NEXT_HOP_GROUP_TYPE_CLASS_BASED",
        ],
    ),
    (
        "SAI_HASH_ATTR_NATIVE_HASH_FIELD_LIST",
        &[
            "SAI_NATIVE_HASH_FIELD_IN_PORT",
            "SAI_NATIVE_HASH_FIELD_DST_MAC",
            "SAI_NATIVE_HASH_FIELD_SRC_MAC",
            "SAI_NATIVE_HASH_FIELD_ETHERTYPE",
            "SAI_NATIVE_HASH_FIELD_VLAN_ID",
            "SAI_NATIVE_HASH_FIELD_IP_PROTOCOL",
            "SAI_NATIVE_HASH_FIELD_DST_IP",
            "SAI_NATIVE_HASH_FIELD_SRC_IP",
            "SAI_NATIVE_HASH_FIELD_L4_DST_PORT",
            "SAI_NATIVE_HASH_FIELD_L4_SRC_PORT",
            "SAI_NATIVE_HASH_FIELD_INNER_DST_MAC",
            "SAI_NATIVE_HASH_FIELD_INNER_SRC_MAC",
            "SAI_NATIVE_HASH_FIELD_INNER_ETHERTYPE",
            "SAI_NATIVE_HASH_FIELD_INNER_IP_PROTOCOL",
            "SAI_NATIVE_HASH_FIELD_INNER_DST_IP",
            "SAI_NATIVE_HASH_FIELD_INNER_SRC_IP",
            "SAI_NATIVE_HASH_FIELD_INNER_L4_DST_PORT",
            "SAI_NATIVE_HASH_FIELD_INNER_L4_SRC_PORT",
            "SAI_NATIVE_HASH_FIELD_IPV6_FLOW_LABEL",
        ],
    ),
    ("SAI_SWITCH_ATTR_ECMP_DEFAULT_HASH_ALGORITHM", HASHES),
    ("SAI_SWITCH_ATTR_LAG_DEFAULT_HASH_ALGORITHM", HASHES),
    (
        "SAI_SWITCH_ATTR_PACKET_TRIM_DSCP_RESOLUTION_MODE",
        &["SAI_PACKET_TRIM_DSCP_RESOLUTION_MODE_DSCP_VALUE", "SAI_PACKET_TRIM_DSCP_RESOLUTION_MODE_FROM_TC"],
    ),
    (
        "SAI_SWITCH_ATTR_PACKET_TRIM_QUEUE_RESOLUTION_MODE",
        &["SAI_PACKET_TRIM_QUEUE_RESOLUTION_MODE_STATIC", "SAI_PACKET_TRIM_QUEUE_RESOLUTION_MODE_DYNAMIC"],
    ),
    (
        "SAI_BUFFER_PROFILE_ATTR_PACKET_ADMISSION_FAIL_ACTION",
        &[
            "SAI_BUFFER_PROFILE_PACKET_ADMISSION_FAIL_ACTION_DROP",
            "SAI_BUFFER_PROFILE_PACKET_ADMISSION_FAIL_ACTION_DROP_AND_TRIM",
        ],
    ),
    ("SAI_TAM_TRANSPORT_ATTR_TRANSPORT_TYPE", &["SAI_TAM_TRANSPORT_TYPE_NONE"]),
    ("SAI_TAM_ATTR_TAM_BIND_POINT_TYPE_LIST", &["SAI_TAM_BIND_POINT_TYPE_SWITCH"]),
    (
        "SAI_ICMP_ECHO_SESSION_ATTR_STATS_COUNT_MODE",
        &["SAI_STATS_COUNT_MODE_PACKET_AND_BYTE", "SAI_STATS_COUNT_MODE_PACKET"],
    ),
    (
        "SAI_DEBUG_COUNTER_ATTR_IN_DROP_REASON_LIST",
        &["SAI_IN_DROP_REASON_L2_ANY", "SAI_IN_DROP_REASON_L3_ANY", "SAI_IN_DROP_REASON_ACL_ANY"],
    ),
    (
        "SAI_DEBUG_COUNTER_ATTR_OUT_DROP_REASON_LIST",
        &["SAI_OUT_DROP_REASON_L2_ANY", "SAI_OUT_DROP_REASON_L3_ANY"],
    ),
    (
        "SAI_DEBUG_COUNTER_ATTR_TYPE",
        &[
            "SAI_DEBUG_COUNTER_TYPE_PORT_IN_DROP_REASONS",
            "SAI_DEBUG_COUNTER_TYPE_PORT_OUT_DROP_REASONS",
            "SAI_DEBUG_COUNTER_TYPE_SWITCH_IN_DROP_REASONS",
            "SAI_DEBUG_COUNTER_TYPE_SWITCH_OUT_DROP_REASONS",
        ],
    ),
];
const FLOODS: &[&str] = &[
    "SAI_VLAN_FLOOD_CONTROL_TYPE_ALL",
    "SAI_VLAN_FLOOD_CONTROL_TYPE_NONE",
    "SAI_VLAN_FLOOD_CONTROL_TYPE_L2MC_GROUP",
];
const HASHES: &[&str] = &[
    "SAI_HASH_ALGORITHM_CRC",
    "SAI_HASH_ALGORITHM_XOR",
    "SAI_HASH_ALGORITHM_RANDOM",
    "SAI_HASH_ALGORITHM_CRC_32LO",
    "SAI_HASH_ALGORITHM_CRC_32HI",
    "SAI_HASH_ALGORITHM_CRC_CCITT",
    "SAI_HASH_ALGORITHM_CRC_XOR",
];
/// The attribute of which every value of SAI's headers can be.
const ALL_VALUES: &str = "SAI_HOSTIF_TRAP_ATTR_TRAP_TYPE";
/// Attributes that can be given at creation and read, and not set.
const NOT_SET: &[&str] = &[
    "SAI_PORT_LLR_PROFILE_ATTR_OUTSTANDING_FRAMES_MAX",
    "SAI_PORT_LLR_PROFILE_ATTR_OUTSTANDING_BYTES_MAX",
    "SAI_PORT_LLR_PROFILE_ATTR_REPLAY_COUNT_MAX",
    "SAI_PORT_LLR_PROFILE_ATTR_PCS_LOST_TIMEOUT",
];
/// Attributes that the switch does not have.
const UNABLE: &[&str] =
    &["SAI_PORT_ATTR_AUTO_NEG_FEC_MODE_OVERRIDE", "SAI_PORT_LLR_PROFILE_ATTR_DATA_AGE_TIMEOUT"];

/// What a stage of an ACL can do: every action of SAI's headers, and none that must be named.
fn acl_capability() -> String {
    let actions = Enum::from_name("sai_acl_action_type_t");
    let names: Vec<&str> = actions.iter().flat_map(|of| of.values()).map(|(name, _)| name).collect();
    format!("false:{}:{}", names.len(), names.join(","))
}

fn acl_actions() -> usize {
    Enum::from_name("sai_acl_action_type_t").map_or(0, |of| of.values().len())
}

/// Free ACL tables, or groups of them, in the form of sairedis.
fn acl_resources(free: u32) -> String {
    let mut resources = Vec::new();
    for stage in ["INGRESS", "EGRESS"] {
        for point in ["PORT", "LAG", "VLAN", "ROUTER_INTERFACE", "SWITCH"] {
            resources.push(format!(
                "{{\"avail_num\":\"{free}\",\"bind_point\":\"SAI_ACL_BIND_POINT_TYPE_{point}\",\
                 \"stage\":\"SAI_ACL_STAGE_{stage}\"}}"
            ));
        }
    }
    format!("{{\"count\":{},\"list\":[{}]}}", resources.len(), resources.join(","))
}

impl VirtualSwitch {
    /// The text of an attribute of the switch itself that no request gave.
    pub(crate) fn switch_text(&self, own: &Started, name: &str) -> Option<String> {
        let defaults = &own.defaults;
        let size = SIZES.iter().find(|(of, ..)| *of == name);
        Some(match name {
            "SAI_SWITCH_ATTR_DEFAULT_VLAN_ID" => defaults.vlan.to_string(),
            "SAI_SWITCH_ATTR_DEFAULT_1Q_BRIDGE_ID" => defaults.bridge.to_string(),
            "SAI_SWITCH_ATTR_DEFAULT_STP_INST_ID" => defaults.stp.to_string(),
            "SAI_SWITCH_ATTR_DEFAULT_TRAP_GROUP" => defaults.trap_group.to_string(),
            "SAI_SWITCH_ATTR_ECMP_HASH" => defaults.ecmp_hash.to_string(),
            "SAI_SWITCH_ATTR_LAG_HASH" => defaults.lag_hash.to_string(),
            "SAI_SWITCH_ATTR_MAX_ACL_ACTION_COUNT" => acl_actions().to_string(),
            "SAI_SWITCH_ATTR_ACL_STAGE_INGRESS" | "SAI_SWITCH_ATTR_ACL_STAGE_EGRESS" => acl_capability(),
            "SAI_SWITCH_ATTR_AVAILABLE_ACL_TABLE" => acl_resources(ACL_TABLES),
            "SAI_SWITCH_ATTR_AVAILABLE_ACL_TABLE_GROUP" => acl_resources(ACL_TABLE_GROUPS),
            "SAI_SWITCH_ATTR_AVAILABLE_FDB_ENTRY" => self.free_fdb_entries().to_string(),
            _ => match size {
                Some((_, object, size)) => {
                    let used = self.entries.keys().filter(|(of, _)| of.name() == *object).count();
                    size.saturating_sub(used as u32).to_string()
                }
                None => {
                    let values = SWITCH_VALUES.iter().chain(NAT_SIZES);
                    values.into_iter().find(|(of, _)| *of == name)?.1.into()
                }
            },
        })
    }

    /// The text of a read-only attribute of another object, or of one that a port has from the
    /// start.
    pub(crate) fn object_text(&self, object: ObjectType, oid: Oid, name: &str) -> Option<String> {
        if object == ObjectType::Port {
            return self.port_text(oid, name);
        }
        let count_of = |kind: &str, attr: &str| {
            ObjectType::from_name(kind).map_or(0, |kind| self.objects.users_by(kind, attr, oid).len())
        };
        Some(match name {
            "SAI_VLAN_ATTR_MEMBER_LIST" => {
                list(&self.objects.users_by(TYPES.vlan_member, "SAI_VLAN_MEMBER_ATTR_VLAN_ID", oid))
            }
            "SAI_BRIDGE_ATTR_PORT_LIST" => {
                list(&self.objects.users_by(TYPES.bridge_port, "SAI_BRIDGE_PORT_ATTR_BRIDGE_ID", oid))
            }
            "SAI_LAG_ATTR_PORT_LIST" => {
                let member = ObjectType::from_name("SAI_OBJECT_TYPE_LAG_MEMBER")?;
                list(&self.objects.users_by(member, "SAI_LAG_MEMBER_ATTR_LAG_ID", oid))
            }
            "SAI_ACL_TABLE_ATTR_AVAILABLE_ACL_ENTRY" => {
                let used = count_of("SAI_OBJECT_TYPE_ACL_ENTRY", "SAI_ACL_ENTRY_ATTR_TABLE_ID");
                ACL_TABLE_SIZE.saturating_sub(used).to_string()
            }
            "SAI_ACL_TABLE_ATTR_AVAILABLE_ACL_COUNTER" => {
                let used = count_of("SAI_OBJECT_TYPE_ACL_COUNTER", "SAI_ACL_COUNTER_ATTR_TABLE_ID");
                ACL_TABLE_SIZE.saturating_sub(used).to_string()
            }
            "SAI_QUEUE_ATTR_PAUSE_STATUS" => "false".into(),
            // Its place among the counters, of which each has one.
            "SAI_DEBUG_COUNTER_ATTR_INDEX" => {
                let mut all: Vec<Oid> = self.objects.of_kind(object).collect();
                all.sort_unstable();
                all.iter().position(|of| *of == oid)?.to_string()
            }
            _ => return None,
        })
    }

    fn port_text(&self, port: Oid, name: &str) -> Option<String> {
        let parts = self.parts.of.get(&port);
        let oids = |of: fn(&Parts) -> &Vec<Oid>| parts.map(of);
        let is_cpu = self.started.as_ref().is_some_and(|own| own.cpu_port == port);
        Some(match name {
            "SAI_PORT_ATTR_TYPE" if is_cpu => "SAI_PORT_TYPE_CPU".into(),
            "SAI_PORT_ATTR_QOS_NUMBER_OF_QUEUES" => oids(|parts| &parts.queues)?.len().to_string(),
            "SAI_PORT_ATTR_QOS_QUEUE_LIST" => list(oids(|parts| &parts.queues)?),
            _ if is_cpu => return None,
            "SAI_PORT_ATTR_TYPE" => "SAI_PORT_TYPE_LOGICAL".into(),
            "SAI_PORT_ATTR_NUMBER_OF_INGRESS_PRIORITY_GROUPS" => {
                oids(|parts| &parts.priority_groups)?.len().to_string()
            }
            "SAI_PORT_ATTR_INGRESS_PRIORITY_GROUP_LIST" => list(oids(|parts| &parts.priority_groups)?),
            "SAI_PORT_ATTR_QOS_NUMBER_OF_SCHEDULER_GROUPS" => {
                oids(|parts| &parts.scheduler_groups)?.len().to_string()
            }
            "SAI_PORT_ATTR_QOS_SCHEDULER_GROUP_LIST" => list(oids(|parts| &parts.scheduler_groups)?),
            "SAI_PORT_ATTR_PORT_SERDES_ID" => parts?.serdes?.to_string(),
            "SAI_PORT_ATTR_MTU" => "1514".into(),
            "SAI_PORT_ATTR_PORT_VLAN_ID" => "1".into(),
            "SAI_PORT_ATTR_HOST_TX_READY_STATUS" => "SAI_PORT_HOST_TX_READY_STATUS_READY".into(),
            "SAI_PORT_ATTR_AUTO_NEG_MODE" | "SAI_PORT_ATTR_SUPPORTED_AUTO_NEG_MODE" => "true".into(),
            _ => return None,
        })
    }

    /// Answers a query about capabilities or counters, or flushes the FDB.
    pub(crate) fn answer(&mut self, query: &Query) -> QueryReply {
        match query {
            Query::AttributeCapability { attr, .. } => {
                let Some(known) = ribtide_sai::Attribute::from_name(attr) else {
                    return QueryReply::of(Status::InvalidParameter);
                };
                let able = !UNABLE.contains(&known.name());
                QueryReply::capability(able, able && !NOT_SET.contains(&known.name()), able)
            }
            Query::EnumValues { attr, room, .. } => match enum_values(attr) {
                Some(values) => QueryReply::enum_values(&values, *room),
                None => QueryReply::of(Status::NotSupported),
            },
            Query::Stats { object, room, streamed } => {
                let Some(stats) = stats_of(*object) else { return QueryReply::of(Status::NotSupported) };
                // The recorded virtual switch of SONiC does not implement it.
                if *streamed {
                    return QueryReply::of(Status::NotImplemented);
                }
                QueryReply::stats(&stats, *room)
            }
            Query::Counters { object, id, counters, mode } => {
                if !self.objects.is(*id, &[*object]) {
                    return QueryReply::of(Status::ItemNotFound);
                }
                let mut reply = QueryReply::of(Status::Success);
                if *mode != CountersMode::Clear {
                    let value = |name| self.port_counter(*id, name).to_string();
                    reply.fields = counters.iter().map(|name| Attr::raw(name, &value(name))).collect();
                }
                if *mode != CountersMode::Read {
                    counters.iter().for_each(|name| self.clear_port_counter(*id, name));
                }
                reply
            }
            Query::FlushFdb { attrs } => {
                self.flush_fdb(attrs);
                QueryReply::of(Status::Success)
            }
            Query::Poll { .. } => QueryReply::of(Status::NotSupported),
        }
    }
}

fn number(name: &str) -> Option<i32> {
    Enum::value(name).map(|(_, number)| number)
}

fn enum_values(attr: &str) -> Option<Vec<i32>> {
    let attr = ribtide_sai::Attribute::from_name(attr)?;
    if attr.name() == ALL_VALUES {
        // A number with two names counts once.
        let mut numbers: Vec<i32> = attr.enumeration()?.values().map(|(_, number)| number).collect();
        numbers.dedup();
        return Some(numbers);
    }
    let (_, names) = ENUM_VALUES.iter().find(|(of, _)| *of == attr.name())?;
    names.iter().map(|name| number(name)).collect()
}

fn stats_of(object: ObjectType) -> Option<Vec<i32>> {
    match object {
        ObjectType::Port => Some(PORT_STATS.into_iter().flatten().collect()),
        ObjectType::Switch => SWITCH_STATS.iter().map(|name| number(name)).collect(),
        object if object == TYPES.queue => Some(QUEUE_STATS.into()),
        _ => None,
    }
}
