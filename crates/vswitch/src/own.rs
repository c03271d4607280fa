//! The objects that the switch has from the start: those of SONiC's virtual switch with the profile
//! BCM56850 (sonic-sairedis `vslib/SwitchBCM56850.cpp`), with which SONiC's orchagent starts.
//!
//! Beside ports, the CPU port and the default virtual router: the default VLAN, bridge, STP
//! instance, trap group and hashes, and for each port queues, scheduler groups, priority groups, a
//! serdes, a member of the VLAN and a port of the bridge. They do not keep a port from being
//! removed, and go with it.

use crate::switch::VirtualSwitch;
use ribtide_prefix::Map;
use ribtide_swss::sai::{Attr, Attrs, ObjectType, Oid};
use std::sync::LazyLock;

/// Queues of a port: as many for unicast as for multicast.
const PORT_QUEUES: usize = 20;
/// Queues of the CPU port, all for multicast.
const CPU_QUEUES: usize = 32;
const PRIORITY_GROUPS: usize = 8;
/// Children of the first three scheduler groups; those of the others are two queues each.
const SCHEDULER_CHILDREN: [std::ops::Range<usize>; 3] = [1..3, 3..11, 11..13];
const SCHEDULER_GROUPS: usize = 13;

/// The types beside those of the route path.
pub(crate) struct Types {
    pub(crate) stp: ObjectType,
    pub(crate) trap_group: ObjectType,
    pub(crate) queue: ObjectType,
    pub(crate) scheduler_group: ObjectType,
    pub(crate) priority_group: ObjectType,
    pub(crate) hash: ObjectType,
    pub(crate) vlan: ObjectType,
    pub(crate) vlan_member: ObjectType,
    pub(crate) bridge: ObjectType,
    pub(crate) bridge_port: ObjectType,
    pub(crate) port_serdes: ObjectType,
}

/// They by name. A name that SAI's table lacks would be a port, which a test notices.
pub(crate) static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let of = |name: &str| ObjectType::from_name(name).unwrap_or(ObjectType::Port);
    Types {
        stp: of("SAI_OBJECT_TYPE_STP"),
        trap_group: of("SAI_OBJECT_TYPE_HOSTIF_TRAP_GROUP"),
        queue: of("SAI_OBJECT_TYPE_QUEUE"),
        scheduler_group: of("SAI_OBJECT_TYPE_SCHEDULER_GROUP"),
        priority_group: of("SAI_OBJECT_TYPE_INGRESS_PRIORITY_GROUP"),
        hash: of("SAI_OBJECT_TYPE_HASH"),
        vlan: of("SAI_OBJECT_TYPE_VLAN"),
        vlan_member: of("SAI_OBJECT_TYPE_VLAN_MEMBER"),
        bridge: of("SAI_OBJECT_TYPE_BRIDGE"),
        bridge_port: of("SAI_OBJECT_TYPE_BRIDGE_PORT"),
        port_serdes: of("SAI_OBJECT_TYPE_PORT_SERDES"),
    }
});

/// The default objects of a switch.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) vlan: Oid,
    pub(crate) bridge: Oid,
    pub(crate) stp: Oid,
    pub(crate) trap_group: Oid,
    pub(crate) ecmp_hash: Oid,
    pub(crate) lag_hash: Oid,
}

/// The objects of each port, also of the CPU port.
#[derive(Default)]
pub(crate) struct PortParts {
    pub(crate) of: Map<Oid, Parts>,
}

/// The objects of a port.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) queues: Vec<Oid>,
    pub(crate) scheduler_groups: Vec<Oid>,
    pub(crate) priority_groups: Vec<Oid>,
    pub(crate) serdes: Option<Oid>,
    /// Its member of the default VLAN and its port of the default bridge, which orchagent may remove.
    pub(crate) links: Vec<Oid>,
}

impl Parts {
    pub(crate) fn all(&self) -> impl Iterator<Item = Oid> {
        let groups = self.queues.iter().chain(&self.scheduler_groups).chain(&self.priority_groups);
        groups.chain(&self.serdes).chain(&self.links).copied()
    }
}

/// The text of a list of objects.
pub(crate) fn list(oids: &[Oid]) -> String {
    let texts: Vec<String> = oids.iter().map(Oid::to_string).collect();
    match texts.is_empty() {
        true => "0:null".into(),
        false => format!("{}:{}", oids.len(), texts.join(",")),
    }
}

fn attrs(values: &[(&str, &str)]) -> Attrs {
    values.iter().filter_map(|(name, value)| Attr::read(name, value)).collect()
}

impl VirtualSwitch {
    /// Makes the default objects, and those of the ports.
    pub(crate) fn make_own(&mut self, cpu_port: Oid, ports: &[Oid]) -> Defaults {
        let types = &*TYPES;
        let vlan = self.objects.insert_own(types.vlan, attrs(&[("SAI_VLAN_ATTR_VLAN_ID", "1")]));
        let bridge =
            self.objects.insert_own(types.bridge, attrs(&[("SAI_BRIDGE_ATTR_TYPE", "SAI_BRIDGE_TYPE_1Q")]));
        let [stp, trap_group, ecmp_hash, lag_hash] = [types.stp, types.trap_group, types.hash, types.hash]
            .map(|object| self.objects.insert_own(object, Attrs::new()));
        let defaults = Defaults { vlan, bridge, stp, trap_group, ecmp_hash, lag_hash };
        for port in ports {
            self.make_parts(*port);
            self.make_links(*port, defaults);
        }
        // The queues of the CPU port are the last.
        let queues = (0..CPU_QUEUES).map(|n| self.make_queue(cpu_port, n, "SAI_QUEUE_TYPE_MULTICAST"));
        let parts = Parts { queues: queues.collect(), ..Parts::default() };
        self.parts.of.insert(cpu_port, parts);
        defaults
    }

    fn make_queue(&mut self, port: Oid, index: usize, kind: &str) -> Oid {
        let values = [
            ("SAI_QUEUE_ATTR_TYPE", kind),
            ("SAI_QUEUE_ATTR_INDEX", &index.to_string()),
            ("SAI_QUEUE_ATTR_PORT", &port.to_string()),
        ];
        self.objects.insert_own(TYPES.queue, attrs(&values))
    }

    /// Makes the objects of a port.
    pub(crate) fn make_parts(&mut self, port: Oid) {
        let kind = |n: usize| match n < PORT_QUEUES / 2 {
            true => "SAI_QUEUE_TYPE_UNICAST",
            false => "SAI_QUEUE_TYPE_MULTICAST",
        };
        let queues: Vec<Oid> = (0..PORT_QUEUES).map(|n| self.make_queue(port, n, kind(n))).collect();
        let port_text = port.to_string();
        let priority_groups = (0..PRIORITY_GROUPS).map(|n| {
            let values = [
                ("SAI_INGRESS_PRIORITY_GROUP_ATTR_BUFFER_PROFILE", "oid:0x0"),
                ("SAI_INGRESS_PRIORITY_GROUP_ATTR_INDEX", &n.to_string()),
                ("SAI_INGRESS_PRIORITY_GROUP_ATTR_PORT", &port_text),
            ];
            self.objects.insert_own(TYPES.priority_group, attrs(&values))
        });
        let priority_groups = priority_groups.collect();
        let port_id = [("SAI_SCHEDULER_GROUP_ATTR_PORT_ID", port_text.as_str())];
        let groups =
            (0..SCHEDULER_GROUPS).map(|_| self.objects.insert_own(TYPES.scheduler_group, attrs(&port_id)));
        let scheduler_groups: Vec<Oid> = groups.collect();
        for (n, group) in scheduler_groups.iter().enumerate() {
            let children = match SCHEDULER_CHILDREN.get(n) {
                Some(children) => scheduler_groups[children.clone()].to_vec(),
                None => {
                    let first = n - SCHEDULER_CHILDREN.len();
                    vec![queues[first], queues[first + PORT_QUEUES / 2]]
                }
            };
            let count = children.len().to_string();
            let values = attrs(&[
                ("SAI_SCHEDULER_GROUP_ATTR_CHILD_COUNT", &count),
                ("SAI_SCHEDULER_GROUP_ATTR_CHILD_LIST", &list(&children)),
            ]);
            self.objects.extend_own(*group, values);
        }
        let serdes = attrs(&[("SAI_PORT_SERDES_ATTR_PORT_ID", &port_text)]);
        let serdes = Some(self.objects.insert_own(TYPES.port_serdes, serdes));
        self.parts
            .of
            .insert(port, Parts { queues, scheduler_groups, priority_groups, serdes, links: Vec::new() });
    }

    /// Puts a port into the default VLAN and bridge.
    fn make_links(&mut self, port: Oid, defaults: Defaults) {
        let (bridge, vlan, port_text) =
            (defaults.bridge.to_string(), defaults.vlan.to_string(), port.to_string());
        let bridge_port = attrs(&[
            ("SAI_BRIDGE_PORT_ATTR_BRIDGE_ID", &bridge),
            ("SAI_BRIDGE_PORT_ATTR_FDB_LEARNING_MODE", "SAI_BRIDGE_PORT_FDB_LEARNING_MODE_HW"),
            ("SAI_BRIDGE_PORT_ATTR_PORT_ID", &port_text),
            ("SAI_BRIDGE_PORT_ATTR_TYPE", "SAI_BRIDGE_PORT_TYPE_PORT"),
        ]);
        let bridge_port = self.objects.insert_own(TYPES.bridge_port, bridge_port);
        let member = attrs(&[
            ("SAI_VLAN_MEMBER_ATTR_VLAN_ID", &vlan),
            ("SAI_VLAN_MEMBER_ATTR_BRIDGE_PORT_ID", &bridge_port.to_string()),
            ("SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE", "SAI_VLAN_TAGGING_MODE_UNTAGGED"),
        ]);
        let member = self.objects.insert_own(TYPES.vlan_member, member);
        if let Some(parts) = self.parts.of.get_mut(&port) {
            parts.links = vec![member, bridge_port];
        }
    }

    /// Removes the objects of a port that is gone.
    pub(crate) fn remove_parts(&mut self, port: Oid) {
        let parts = self.parts.of.remove(&port);
        parts.iter().flat_map(Parts::all).for_each(|oid| self.objects.remove_own(oid));
    }

    /// Every object that the switch has of its own, by type and number.
    pub(crate) fn all_own(&self) -> Vec<(ObjectType, Oid)> {
        let Some(own) = &self.started else { return Vec::new() };
        let Defaults { vlan, bridge, stp, trap_group, ecmp_hash, lag_hash } = own.defaults;
        let defaults = [vlan, bridge, stp, trap_group, ecmp_hash, lag_hash, own.default_router, own.cpu_port];
        let parts = self.parts.of.values().flat_map(Parts::all);
        let all = defaults.into_iter().chain(own.ports.iter().copied()).chain(parts);
        let mut all: Vec<(ObjectType, Oid)> =
            all.filter_map(|oid| Some((self.objects.get(oid)?.kind, oid))).collect();
        all.sort_unstable();
        all
    }
}
