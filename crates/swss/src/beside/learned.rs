//! State learned from requests of SONiC's orchagent: names of interfaces, virtual routers, router
//! interfaces, neighbours, next hops and own addresses.
//!
//! A request teaches when syncd has replied with success, so ASIC_DB, which follows later, is not
//! read. SAI has object ids where rows have names: a host interface names a port
//! (`SAI_HOSTIF_ATTR_NAME`), a VLAN has its number, and SONiC's orchagent names LAGs and
//! sub-interfaces in COUNTERS_DB.

use super::message::{self, Fields};
use crate::row::Name;
use crate::sai::text::{Message, read_oid};
use crate::sai::{Oid, Status};
use ribtide_prefix::{AnyPrefix, Map, Set};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// SAI's number of LAGs, in bits 48 to 55 of an id (`saitypes.h`).
const LAG: u64 = 2;

/// A change of the state that passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Lesson {
    /// A router interface is there.
    Interface(Oid),
    /// The router interface of a name is gone.
    InterfaceGone(Name),
    /// A next hop is there.
    NextHop(Oid),
    /// The next hop of an address on the interface of a name is gone.
    NextHopGone(Name, IpAddr),
    /// An address became the router's own, or is no longer.
    OwnAddress(Oid, AnyPrefix, bool),
    /// A port's link is up or down.
    Link(Oid, bool),
    /// A port, LAG or VLAN has a name.
    Named(Oid),
}

/// A router interface.
#[derive(Clone, Debug)]
pub(super) struct RouterInterface {
    pub(super) virtual_router: Oid,
    /// The port, LAG or VLAN below it; null of a loopback.
    pub(super) lower: Oid,
    /// The VLAN of a sub-interface.
    pub(super) outer_vlan: Option<String>,
    /// Every attribute of its creation.
    pub(super) fields: Fields,
    /// ribtide made it, in a view that did not contain it.
    pub(super) carried: bool,
}

/// An IP next hop.
#[derive(Clone, Debug)]
pub(super) struct NextHop {
    pub(super) interface: Oid,
    pub(super) ip: IpAddr,
    pub(super) fields: Fields,
    /// ribtide made it, in a view that did not contain it.
    pub(super) carried: bool,
}

/// The state of the chip, as far as it concerns routes, in the object ids of one view.
#[derive(Clone, Default, Debug)]
pub(super) struct Learned {
    /// The default virtual router and the CPU port of the switch. Objects that the chip has from
    /// its start have the same id in each view.
    pub(super) default_router: Oid,
    pub(super) cpu_port: Oid,
    /// Names of ports, LAGs and VLANs, and those of sub-interfaces by their router interface.
    names: Map<Oid, Name>,
    /// The netdevices of the host, each with its port.
    hostifs: Map<Oid, Oid>,
    /// Virtual routers besides the default one, with the attributes of their creation.
    pub(super) routers: Map<Oid, Fields>,
    /// VRFs of these virtual routers.
    vrfs: Map<Oid, Name>,
    pub(super) interfaces: Map<Oid, RouterInterface>,
    pub(super) neighbors: Map<(Oid, IpAddr), Fields>,
    pub(super) next_hops: Map<Oid, NextHop>,
    own: Set<(Oid, AnyPrefix)>,
    by_name: Map<Name, Oid>,
    by_address: BTreeMap<(Oid, IpAddr), Oid>,
    /// Router interfaces by the port, LAG or VLAN below.
    above: BTreeSet<(Oid, Oid)>,
    /// Ports, LAGs and VLANs by their names, and virtual routers by their VRFs.
    lowers: Map<Name, Oid>,
    by_vrf: Map<Name, Oid>,
}

/// The router and destination of the text of a route's key.
pub(super) fn route_key(text: &str) -> Option<(Oid, AnyPrefix)> {
    let fields = crate::json::read_object(text)?;
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value);
    Some((read_oid(get("vr")?)?, get("dest")?.parse().ok()?))
}

/// The router interface and the address of the text of a neighbour's key.
pub(super) fn neighbor_key(text: &str) -> Option<(Oid, IpAddr)> {
    let fields = crate::json::read_object(text)?;
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value);
    Some((read_oid(get("rif")?)?, get("ip")?.parse().ok()?))
}

impl Learned {
    /// The state of a view that begins: nothing but what has the same id and name in each view.
    pub(super) fn next_view(&self) -> Learned {
        let ports = self.names.iter().filter(|(oid, _)| is_port(**oid));
        Learned {
            default_router: self.default_router,
            cpu_port: self.cpu_port,
            lowers: ports.clone().map(|(oid, name)| (name.clone(), *oid)).collect(),
            names: ports.map(|(oid, name)| (*oid, name.clone())).collect(),
            ..Learned::default()
        }
    }

    /// Whether the reply to this request may teach anything.
    pub(super) fn concerns(message: &Message) -> bool {
        let Some((object, _)) = message::object_of(message) else { return false };
        let verb = verb(message);
        match object {
            "SWITCH" | "PORT" => message::operation(message) == "get",
            "HOSTIF" | "VLAN" | "LAG" | "VIRTUAL_ROUTER" | "ROUTER_INTERFACE" | "NEIGHBOR_ENTRY"
            | "NEXT_HOP" => matches!(verb, Some("create" | "remove")),
            "ROUTE_ENTRY" => matches!(message::operation(message), "create" | "remove"),
            _ => false,
        }
    }

    /// Takes in a request with its reply.
    pub(super) fn learn(&mut self, request: &Message, reply: &Message, lessons: &mut Vec<Lesson>) {
        let Some((object, _)) = message::object_of(request) else { return };
        if object == "PORT" {
            // SONiC's orchagent asks for it when it makes the port's host interface.
            let state = message::fields(reply);
            let state = message::value(&state, "SAI_PORT_ATTR_OPER_STATUS");
            let port = message::object_of(request).and_then(|(_, id)| read_oid(id));
            if let (Some(port), Some(state)) = (port, state) {
                lessons.push(Lesson::Link(port, state == "SAI_PORT_OPER_STATUS_UP"));
            }
            return;
        }
        if object == "SWITCH" {
            let fields = message::fields(reply);
            let read = |name: &str| message::oid(&fields, name);
            if let Some(oid) = read("SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID") {
                self.default_router = oid;
            }
            if let Some(oid) = read("SAI_SWITCH_ATTR_CPU_PORT") {
                self.cpu_port = oid;
            }
            return;
        }
        let object = object.to_owned();
        let creates = verb(request) == Some("create");
        let objects = message::objects(request);
        let statuses = message::statuses(reply, objects.len());
        for ((id, fields), status) in objects.into_iter().zip(statuses) {
            match (creates, status) {
                (true, Status::Success) => self.created(&object, &id, fields, lessons),
                (false, Status::Success) => self.removed(&object, &id, lessons),
                _ => {}
            }
        }
    }

    /// Takes in that an object exists.
    pub(super) fn created(&mut self, object: &str, id: &str, fields: Fields, lessons: &mut Vec<Lesson>) {
        let oid = read_oid(id);
        let field = |name: &str| message::oid(&fields, name);
        match (object, oid) {
            ("HOSTIF", Some(oid)) => {
                let port = field("SAI_HOSTIF_ATTR_OBJ_ID");
                if let (Some(port), Some(name)) = (port, message::value(&fields, "SAI_HOSTIF_ATTR_NAME")) {
                    self.hostifs.insert(oid, port);
                    self.set_name(port, name.into());
                    lessons.push(Lesson::Named(port));
                }
            }
            ("VLAN", Some(oid)) => {
                if let Some(id) = message::value(&fields, "SAI_VLAN_ATTR_VLAN_ID") {
                    self.set_name(oid, format!("Vlan{id}").into());
                    lessons.push(Lesson::Named(oid));
                }
            }
            ("VIRTUAL_ROUTER", Some(oid)) => drop(self.routers.insert(oid, fields)),
            ("ROUTER_INTERFACE", Some(oid)) => {
                let interface = RouterInterface {
                    virtual_router: field("SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID").unwrap_or_default(),
                    lower: field("SAI_ROUTER_INTERFACE_ATTR_PORT_ID")
                        .or_else(|| field("SAI_ROUTER_INTERFACE_ATTR_VLAN_ID"))
                        .unwrap_or_default(),
                    outer_vlan: message::value(&fields, "SAI_ROUTER_INTERFACE_ATTR_OUTER_VLAN_ID")
                        .map(str::to_owned),
                    fields,
                    carried: false,
                };
                self.add_interface(oid, interface);
                lessons.push(Lesson::Interface(oid));
            }
            ("NEIGHBOR_ENTRY", _) => {
                if let Some(key) = neighbor_key(id) {
                    self.neighbors.insert(key, fields);
                }
            }
            ("NEXT_HOP", Some(oid)) => {
                let is_ip = message::value(&fields, "SAI_NEXT_HOP_ATTR_TYPE") == Some("SAI_NEXT_HOP_TYPE_IP");
                let ip = message::value(&fields, "SAI_NEXT_HOP_ATTR_IP").and_then(|ip| ip.parse().ok());
                let interface = field("SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID");
                if let (true, Some(ip), Some(interface)) = (is_ip, ip, interface) {
                    self.add_next_hop(oid, NextHop { interface, ip, fields, carried: false });
                    lessons.push(Lesson::NextHop(oid));
                }
            }
            ("ROUTE_ENTRY", _) => {
                let to_cpu = field("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID").is_some_and(|oid| self.is_cpu(oid));
                if let (true, Some((router, prefix))) = (to_cpu, route_key(id)) {
                    self.own.insert((router, prefix));
                    lessons.push(Lesson::OwnAddress(router, prefix, true));
                }
            }
            _ => {}
        }
    }

    /// Takes in that an object does not exist any more.
    pub(super) fn removed(&mut self, object: &str, id: &str, lessons: &mut Vec<Lesson>) {
        match (object, read_oid(id)) {
            ("HOSTIF", Some(oid)) => drop(self.hostifs.remove(&oid)),
            ("VLAN" | "LAG", Some(oid)) => {
                if let Some(name) = self.names.remove(&oid) {
                    self.by_name.remove(&name);
                    self.lowers.remove(&name);
                }
            }
            ("VIRTUAL_ROUTER", Some(oid)) => {
                self.routers.remove(&oid);
                if let Some(vrf) = self.vrfs.remove(&oid) {
                    self.by_vrf.remove(&vrf);
                }
            }
            ("ROUTER_INTERFACE", Some(oid)) => {
                lessons.extend(self.interface_name(oid).map(Lesson::InterfaceGone));
                self.forget_interface(oid);
            }
            ("NEIGHBOR_ENTRY", _) => {
                if let Some(key) = neighbor_key(id) {
                    self.neighbors.remove(&key);
                }
            }
            ("NEXT_HOP", Some(oid)) => {
                lessons.extend(self.next_hop_name(oid).map(|(name, ip)| Lesson::NextHopGone(name, ip)));
                self.forget_next_hop(oid);
            }
            ("ROUTE_ENTRY", _) => {
                if let Some((router, prefix)) = route_key(id)
                    && self.own.remove(&(router, prefix))
                {
                    lessons.push(Lesson::OwnAddress(router, prefix, false));
                }
            }
            _ => {}
        }
    }

    pub(super) fn add_interface(&mut self, oid: Oid, interface: RouterInterface) {
        self.above.insert((interface.lower, oid));
        self.interfaces.insert(oid, interface);
        if let Some(name) = self.interface_name(oid) {
            self.by_name.insert(name, oid);
        }
    }

    pub(super) fn add_next_hop(&mut self, oid: Oid, hop: NextHop) {
        self.by_address.insert((hop.interface, hop.ip), oid);
        self.next_hops.insert(oid, hop);
    }

    pub(super) fn forget_interface(&mut self, oid: Oid) {
        if let Some(name) = self.interface_name(oid)
            && self.by_name.get(&name) == Some(&oid)
        {
            self.by_name.remove(&name);
        }
        if let Some(interface) = self.interfaces.remove(&oid) {
            self.above.remove(&(interface.lower, oid));
        }
    }

    pub(super) fn forget_next_hop(&mut self, oid: Oid) {
        if let Some(hop) = self.next_hops.remove(&oid)
            && self.by_address.get(&(hop.interface, hop.ip)) == Some(&oid)
        {
            self.by_address.remove(&(hop.interface, hop.ip));
        }
    }

    /// Whether an object id is that of the CPU port. The constructor of RouteOrch asks for it with
    /// the switch; its routes to the CPU name it too.
    fn is_cpu(&self, oid: Oid) -> bool {
        !oid.is_null() && (oid == self.cpu_port || (self.cpu_port.is_null() && is_port(oid)))
    }

    /// Whether the prefix is the router's own, so that only SONiC's orchagent programs it.
    pub(super) fn is_own(&self, router: Oid, prefix: AnyPrefix) -> bool {
        self.own.contains(&(router, prefix))
    }

    /// Every own address.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = (Oid, AnyPrefix)> + '_ {
        self.own.iter().copied()
    }

    fn set_name(&mut self, oid: Oid, name: Name) {
        self.lowers.insert(name.clone(), oid);
        if let Some(former) = self.names.insert(oid, name.clone())
            && former != name
        {
            self.lowers.remove(&former);
        }
        let interfaces: Vec<Oid> = self.interfaces_on(oid).collect();
        for interface in interfaces {
            if let Some(name) = self.interface_name(interface) {
                self.by_name.insert(name, interface);
            }
        }
    }

    /// The router interfaces on a port, LAG or VLAN.
    pub(super) fn interfaces_on(&self, lower: Oid) -> impl Iterator<Item = Oid> + '_ {
        self.above.range((lower, Oid::NULL)..).take_while(move |(of, _)| *of == lower).map(|(_, oid)| *oid)
    }

    /// The next hops on a router interface.
    pub(super) fn next_hops_on(&self, interface: Oid) -> impl Iterator<Item = Oid> + '_ {
        let first = (interface, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.by_address.range(first..).take_while(move |((of, _), _)| *of == interface).map(|(_, oid)| *oid)
    }

    /// The port, LAG or VLAN of a name.
    pub(super) fn lower_of_name(&self, name: &str) -> Option<Oid> {
        self.lowers.get(name).copied()
    }

    /// Takes in the name of a LAG, or that of a router interface. Returns whether it is new.
    pub(super) fn name(&mut self, oid: Oid, name: &str) -> bool {
        if self.names.get(&oid).is_some_and(|known| **known == *name) {
            return false;
        }
        if self.interfaces.contains_key(&oid) {
            let before = self.interface_name(oid);
            if before.as_deref() == Some(name) {
                return false;
            }
            before.and_then(|before| self.by_name.remove(&before));
            self.names.insert(oid, name.into());
            self.by_name.insert(name.into(), oid);
            return true;
        }
        self.set_name(oid, name.into());
        true
    }

    /// Takes in the VRF of a virtual router. Returns whether it is new.
    pub(super) fn name_router(&mut self, router: Oid, vrf: &str) -> bool {
        let known = self.vrfs.insert(router, vrf.into());
        if known.as_deref() == Some(vrf) {
            return false;
        }
        if let Some(known) = known {
            self.by_vrf.remove(&known);
        }
        self.by_vrf.insert(vrf.into(), router);
        true
    }

    /// The name of a router interface; `None` while it is not known.
    pub(super) fn interface_name(&self, oid: Oid) -> Option<Name> {
        if let Some(name) = self.names.get(&oid) {
            return Some(name.clone());
        }
        let interface = self.interfaces.get(&oid)?;
        let lower = self.names.get(&interface.lower)?;
        Some(match &interface.outer_vlan {
            None => lower.clone(),
            Some(vlan) => format!("{lower}.{vlan}").into(),
        })
    }

    /// The interface and the address of a next hop; `None` while the interface has no name.
    pub(super) fn next_hop_name(&self, oid: Oid) -> Option<(Name, IpAddr)> {
        let hop = self.next_hops.get(&oid)?;
        Some((self.interface_name(hop.interface)?, hop.ip))
    }

    /// The VRF of a virtual router; `None` while it is not known, `Some(None)` is the default one.
    pub(super) fn vrf(&self, router: Oid) -> Option<Option<Name>> {
        if router == self.default_router {
            return Some(None);
        }
        self.vrfs.get(&router).cloned().map(Some)
    }

    /// The virtual router of a VRF.
    pub(super) fn router(&self, vrf: &Option<Name>) -> Option<Oid> {
        match vrf {
            None => Some(self.default_router).filter(|oid| !oid.is_null()),
            Some(name) => self.by_vrf.get(name).copied(),
        }
    }

    /// The router interface of a name.
    pub(super) fn interface(&self, name: &str) -> Option<Oid> {
        self.by_name.get(name).copied()
    }

    /// The next hop of an address on a router interface.
    pub(super) fn next_hop(&self, interface: Oid, ip: IpAddr) -> Option<Oid> {
        self.by_address.get(&(interface, ip)).copied()
    }

    /// Ports below router interfaces, with their names.
    pub(super) fn ports(&self) -> impl Iterator<Item = (Oid, Name)> + '_ {
        let ports = self.interfaces.values().map(|interface| interface.lower).filter(|lower| is_port(*lower));
        ports.filter_map(|port| Some((port, self.names.get(&port)?.clone())))
    }

    /// Names of LAGs below router interfaces.
    pub(super) fn lags(&self) -> impl Iterator<Item = Name> + '_ {
        let lag = |interface: &RouterInterface| {
            let lower = interface.lower;
            (lower.0 >> 48 == LAG).then(|| self.names.get(&lower).cloned()).flatten()
        };
        self.interfaces.values().filter_map(lag)
    }

    /// The name of a port, LAG or VLAN.
    pub(super) fn lower(&self, oid: Oid) -> Option<&Name> {
        self.names.get(&oid)
    }

    /// Router interfaces of LAGs and ports without a name.
    pub(super) fn has_unnamed(&self) -> bool {
        self.interfaces
            .iter()
            .any(|(oid, interface)| !interface.lower.is_null() && self.interface_name(*oid).is_none())
    }

    /// Names of router interfaces in virtual routers whose VRF is not known.
    pub(super) fn interfaces_of_unnamed_routers(&self) -> Vec<Name> {
        let unnamed = |interface: &RouterInterface| self.vrf(interface.virtual_router).is_none();
        let all = self.interfaces.iter().filter(|(_, interface)| unnamed(interface));
        all.filter_map(|(oid, _)| self.interface_name(*oid)).collect()
    }
}

/// The verb of a request about one object, or about many.
pub(super) fn verb(message: &Message) -> Option<&'static str> {
    Some(match message::operation(message) {
        "create" | "bulkcreate" => "create",
        "remove" | "bulkremove" => "remove",
        "set" | "bulkset" => "set",
        _ => return None,
    })
}

/// Whether a virtual object id is that of a port (bits 48 to 55 are the type).
pub(super) fn is_port(oid: Oid) -> bool {
    oid.object_type() == Some(crate::sai::ObjectType::Port)
}
