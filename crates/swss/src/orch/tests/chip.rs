//! A chip that is nothing but its objects, and that notes every request it should not have got.

use crate::sai::{
    Attr, ErrorMode, InsegEntry, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid, OperStatus,
    OutsegType, PacketAction, RouteEntry, Sai, Status, Verb,
};
use ribtide_prefix::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What the chip made of a route: where its packets go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Forwarding {
    Drop,
    Cpu,
    /// The port's first lane.
    Interface(u32),
    Hops(BTreeSet<ChipHop>),
}

/// Gateway, labels put on, the port's first lane, weight.
pub(super) type ChipHop = (IpAddr, String, u32, u32);

#[derive(Default)]
pub(super) struct Chip {
    pub(super) objects: BTreeMap<Oid, (ObjectType, Vec<Attr>)>,
    pub(super) routes: BTreeMap<RouteEntry, Vec<Attr>>,
    pub(super) neighbors: BTreeMap<NeighborEntry, Vec<Attr>>,
    pub(super) labels: BTreeMap<InsegEntry, Vec<Attr>>,
    next: u64,
    /// How many groups it says it holds, and how many routes it really holds.
    pub(super) group_limit: u32,
    pub(super) route_limit: usize,
    /// Statuses to answer before looking at anything, by type of object: one for each entry.
    pub(super) fail: Vec<(ObjectType, Verb, Status)>,
    /// While it is set, the chip refuses one request in so many, for a random reason.
    pub(super) moody: Option<(usize, Rng)>,
    /// The ports without a link, by their first lane.
    pub(super) down: BTreeSet<u32>,
    /// It neither reports link states nor knows them.
    pub(super) hides_links: bool,
    /// Requests that no right orchagent sends.
    pub(super) violations: Vec<String>,
    /// How many entries were requested.
    pub(super) requested: usize,
}

pub(super) const PORTS: u32 = 4;
const SWITCH: Oid = Oid(0xffff_0001);
const VR: Oid = Oid(0xffff_0002);
const CPU: Oid = Oid(0xffff_0003);

impl Chip {
    pub(super) fn new() -> Chip {
        Chip { group_limit: 16, route_limit: 10_000, ..Chip::default() }
    }

    fn power_on(&mut self) {
        self.objects.insert(SWITCH, (ObjectType::Switch, vec![]));
        self.objects.insert(VR, (ObjectType::VirtualRouter, vec![]));
        self.objects.insert(CPU, (ObjectType::Port, vec![]));
        for port in 0..PORTS {
            let lanes = Attr::PortLanes(Box::new([port * 4 + 1, port * 4]));
            self.objects.insert(Oid(0xffff_0100 + u64::from(port)), (ObjectType::Port, vec![lanes]));
        }
    }

    /// Whether anything refers to the object.
    fn used(&self, oid: Oid) -> bool {
        let names = |attrs: &[Attr]| attrs.iter().any(|attr| attr.clone().oids_mut().contains(&oid));
        self.objects.values().any(|(_, attrs)| names(attrs))
            || self.routes.iter().any(|(entry, attrs)| entry.vr == oid || names(attrs))
            || self.neighbors.iter().any(|(entry, attrs)| entry.rif == oid || names(attrs))
            || self.labels.values().any(|attrs| names(attrs))
    }

    fn known(&self, oid: Oid) -> bool {
        oid.is_null() || self.objects.contains_key(&oid)
    }

    fn one(&mut self, verb: Verb, object: ObjectType, item: &mut Item) -> Status {
        self.requested += 1;
        if let Some(at) = self.fail.iter().position(|(o, v, _)| (*o, *v) == (object, verb)) {
            return self.fail.remove(at).2;
        }
        if let Some((one_in, rng)) = &mut self.moody
            && rng.one_in(*one_in)
        {
            let reasons = [
                Status::Failure,
                Status::NotSupported,
                Status::InvalidParameter,
                Status::TableFull,
                Status::InsufficientResources,
                Status::NotExecuted,
            ];
            return reasons[rng.index(reasons.len())];
        }
        if object == ObjectType::Switch {
            self.objects.clear();
            self.routes.clear();
            self.neighbors.clear();
            self.labels.clear();
            if verb == Verb::Create {
                self.power_on();
                item.id = SWITCH.into();
            }
            return Status::Success;
        }
        let dangling =
            item.attrs.iter_mut().flat_map(|a| a.oids_mut().to_vec()).find(|oid| !self.known(*oid));
        if let Some(oid) = dangling {
            self.violations.push(format!("{verb:?} {object:?} names {oid}, which is not there"));
            return Status::InvalidParameter;
        }
        match (verb, item.id) {
            (Verb::Create, ObjectId::Oid(_)) => {
                self.next += 1;
                let rid = Oid(self.next);
                self.objects.insert(rid, (object, item.attrs.to_vec()));
                item.id = rid.into();
                Status::Success
            }
            (Verb::Create, ObjectId::Route(entry)) => {
                if self.routes.contains_key(&entry) {
                    return Status::ItemAlreadyExists;
                }
                if self.routes.len() >= self.route_limit {
                    return Status::TableFull;
                }
                self.routes.insert(entry, item.attrs.to_vec());
                Status::Success
            }
            (Verb::Create, ObjectId::Neighbor(entry)) => {
                match self.neighbors.insert(entry, item.attrs.to_vec()) {
                    Some(_) => Status::ItemAlreadyExists,
                    None => Status::Success,
                }
            }
            (Verb::Create, ObjectId::Inseg(entry)) => {
                if self.labels.contains_key(&entry) {
                    return Status::ItemAlreadyExists;
                }
                self.labels.insert(entry, item.attrs.to_vec());
                Status::Success
            }
            (Verb::Set, id) => {
                let attrs = match id {
                    ObjectId::Oid(oid) => self.objects.get_mut(&oid).map(|(_, attrs)| attrs),
                    ObjectId::Route(entry) => self.routes.get_mut(&entry),
                    ObjectId::Neighbor(entry) => self.neighbors.get_mut(&entry),
                    ObjectId::Inseg(entry) => self.labels.get_mut(&entry),
                };
                let Some(attrs) = attrs else { return Status::ItemNotFound };
                for attr in &item.attrs {
                    attrs.retain(|a| !a.same_kind(attr));
                    attrs.push(attr.clone());
                }
                Status::Success
            }
            (Verb::Remove, ObjectId::Oid(oid)) => {
                if self.used(oid) {
                    self.violations.push(format!("removal of {object:?} {oid}, which is in use"));
                    return Status::ObjectInUse;
                }
                match self.objects.remove(&oid) {
                    Some(_) => Status::Success,
                    None => Status::ItemNotFound,
                }
            }
            (Verb::Remove, ObjectId::Route(entry)) => match self.routes.remove(&entry) {
                Some(_) => Status::Success,
                None => Status::ItemNotFound,
            },
            (Verb::Remove, ObjectId::Inseg(entry)) => match self.labels.remove(&entry) {
                Some(_) => Status::Success,
                None => Status::ItemNotFound,
            },
            (Verb::Remove, ObjectId::Neighbor(entry)) => {
                let used = self.objects.values().any(|(_, attrs)| {
                    attrs.contains(&Attr::NextHopIp(entry.ip)) && attrs.contains(&Attr::NextHopRif(entry.rif))
                });
                if used {
                    self.violations
                        .push(format!("removal of neighbour {}, which a next hop needs", entry.ip));
                }
                match self.neighbors.remove(&entry) {
                    Some(_) => Status::Success,
                    None => Status::ItemNotFound,
                }
            }
        }
    }

    fn attrs(&self, oid: Oid) -> (ObjectType, &[Attr]) {
        let (object, attrs) = &self.objects[&oid];
        (*object, attrs)
    }

    /// The port with this first lane, as its own number.
    pub(super) fn port(lane: u32) -> Oid {
        Oid(0xffff_0100 + u64::from(lane / 4))
    }

    fn lane_of_port(&self, port: Oid) -> u32 {
        match &self.attrs(port).1[0] {
            Attr::PortLanes(lanes) => lanes.iter().copied().min().unwrap(),
            other => panic!("{other}"),
        }
    }

    /// The first lane of the port under a router interface, or 100 and the number of a LAG's ports, or
    /// 1000 and the number of a VLAN; 10,000 for each tag of a sub-interface is added.
    fn lane(&self, rif: Oid) -> u32 {
        let (mut on, mut tag) = (Oid::NULL, 0);
        for attr in self.attrs(rif).1 {
            match attr {
                Attr::RifPort(oid) | Attr::RifVlan(oid) => on = *oid,
                Attr::RifOuterVlan(vlan) => tag = u32::from(*vlan),
                _ => {}
            }
        }
        let (kind, attrs) = self.attrs(on);
        let lane = match kind {
            ObjectType::Port => self.lane_of_port(on),
            ObjectType::Lag => 100 + self.lag_ports(on).len() as u32,
            _ => attrs
                .iter()
                .find_map(|a| if let Attr::VlanId(id) = a { Some(*id) } else { None })
                .unwrap()
                .into(),
        };
        10_000 * tag + if kind == ObjectType::Vlan { 1000 + lane } else { lane }
    }

    /// The first lanes of the ports through which a LAG sends.
    pub(super) fn lag_ports(&self, lag: Oid) -> BTreeSet<u32> {
        let members = self.objects.values().filter(|(kind, attrs)| {
            *kind == ObjectType::LagMember
                && attrs.contains(&Attr::LagMemberLag(lag))
                && !attrs.contains(&Attr::LagMemberEgressDisable(true))
        });
        let port = |(_, attrs): &(ObjectType, Vec<Attr>)| {
            attrs.iter().find_map(|a| if let Attr::LagMemberPort(port) = a { Some(*port) } else { None })
        };
        members.filter_map(port).map(|port| self.lane_of_port(port)).collect()
    }

    fn hop(&self, oid: Oid, weight: u32) -> ChipHop {
        let (mut ip, mut rif, mut how, mut labels) = (None, Oid::NULL, "", String::new());
        for attr in self.attrs(oid).1 {
            match attr {
                Attr::NextHopIp(a) => ip = Some(*a),
                Attr::NextHopRif(r) => rif = *r,
                Attr::NextHopOutseg(OutsegType::Push) => how = "push",
                Attr::NextHopOutseg(OutsegType::Swap) => how = "swap",
                Attr::NextHopLabels(list) => {
                    labels = list.iter().map(u32::to_string).collect::<Vec<_>>().join("/");
                }
                _ => {}
            }
        }
        (ip.unwrap(), format!("{how}{labels}"), self.lane(rif), weight)
    }

    /// Where packets of a route go, followed through all objects.
    pub(super) fn forwarding(&self, entry: &RouteEntry) -> Option<Forwarding> {
        Some(self.follow(self.routes.get(entry)?))
    }

    /// The same for a label, and how many labels are taken off.
    pub(super) fn of_label(&self, label: u32) -> Option<(Forwarding, Option<u8>)> {
        let (_, attrs) = self.labels.iter().find(|(entry, _)| entry.label == label)?;
        let pop = attrs.iter().find_map(|a| if let Attr::InsegPop(pop) = a { Some(*pop) } else { None });
        Some((self.follow(attrs), pop))
    }

    fn follow(&self, attrs: &[Attr]) -> Forwarding {
        let mut oid = Oid::NULL;
        for attr in attrs {
            match attr {
                Attr::RoutePacketAction(PacketAction::Drop) | Attr::InsegPacketAction(PacketAction::Drop) => {
                    return Forwarding::Drop;
                }
                Attr::RouteNextHop(to) | Attr::InsegNextHop(to) => oid = *to,
                _ => {}
            }
        }
        if oid == CPU {
            return Forwarding::Cpu;
        }
        match self.attrs(oid).0 {
            ObjectType::RouterInterface => Forwarding::Interface(self.lane(oid)),
            ObjectType::NextHop => Forwarding::Hops([self.hop(oid, 0)].into()),
            _ => {
                let members =
                    self.objects.values().filter(|(_, attrs)| attrs.contains(&Attr::MemberGroup(oid)));
                let hops = members.map(|(_, attrs)| {
                    let (mut hop, mut weight) = (Oid::NULL, 0);
                    for attr in attrs {
                        match attr {
                            Attr::MemberNextHop(oid) => hop = *oid,
                            Attr::MemberWeight(w) => weight = *w,
                            _ => {}
                        }
                    }
                    self.hop(hop, weight)
                });
                Forwarding::Hops(hops.collect())
            }
        }
    }

    pub(super) fn count(&self, object: ObjectType) -> usize {
        self.objects.values().filter(|(o, _)| *o == object).count()
    }
}

impl Sai for Chip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        let mut stopped = false;
        for item in items {
            let status = if stopped { Status::NotExecuted } else { self.one(verb, object, item) };
            stopped |= mode == ErrorMode::StopOnError && !status.is_success();
            statuses.push(status);
        }
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        match (object, attrs) {
            (ObjectType::InsegEntry, []) => Ok(u64::from(u32::MAX) + 1),
            (ObjectType::NextHop, [Attr::NextHopKind(NextHopType::Mpls)]) => Ok(7),
            _ => Err(Status::NotSupported),
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        for attr in attrs {
            let ports = (0..PORTS).map(|port| Oid(0xffff_0100 + u64::from(port)));
            *attr = match (object, &attr) {
                (ObjectType::Switch, Attr::SwitchDefaultVirtualRouter(_)) => {
                    Attr::SwitchDefaultVirtualRouter(VR)
                }
                (ObjectType::Switch, Attr::SwitchCpuPort(_)) => Attr::SwitchCpuPort(CPU),
                (ObjectType::Switch, Attr::SwitchPortNumber(_)) => Attr::SwitchPortNumber(PORTS),
                (ObjectType::Switch, Attr::SwitchEcmpGroups(_)) => Attr::SwitchEcmpGroups(self.group_limit),
                (ObjectType::Switch, Attr::SwitchPortList(room)) if room.len() >= PORTS as usize => {
                    Attr::SwitchPortList(ports.collect())
                }
                (ObjectType::Switch, Attr::SwitchPortList(_)) => return Err(Status::BufferOverflow),
                (ObjectType::Switch, Attr::SwitchAvailableIpv4Route(_)) => {
                    Attr::SwitchAvailableIpv4Route((self.route_limit - self.routes.len()) as u32)
                }
                (ObjectType::Port, Attr::PortOperStatus(_)) if !self.hides_links => {
                    let port = id.oid().unwrap();
                    let (lanes, admin) = (self.lane_of_port(port), self.attrs(port).1);
                    let up = !self.down.contains(&lanes) && !admin.contains(&Attr::PortAdminState(false));
                    Attr::PortOperStatus(if up { OperStatus::Up } else { OperStatus::Down })
                }
                (ObjectType::Port, Attr::PortOperSpeed(_)) if !self.hides_links => {
                    Attr::PortOperSpeed(40_000)
                }
                (ObjectType::Port, Attr::PortLanes(_)) => {
                    self.objects[&id.oid().unwrap()].1.first().cloned().ok_or(Status::NotSupported)?
                }
                (_, wanted) => {
                    let known = match id {
                        ObjectId::Oid(oid) => self.objects.get(oid).map(|(_, attrs)| attrs),
                        ObjectId::Route(entry) => self.routes.get(entry),
                        ObjectId::Neighbor(entry) => self.neighbors.get(entry),
                        ObjectId::Inseg(entry) => self.labels.get(entry),
                    };
                    let known = known.ok_or(Status::ItemNotFound)?.iter().find(|attr| attr.same_kind(wanted));
                    let default = match wanted {
                        Attr::RoutePacketAction(_) => Some(Attr::RoutePacketAction(PacketAction::Forward)),
                        Attr::InsegPacketAction(_) => Some(Attr::InsegPacketAction(PacketAction::Forward)),
                        Attr::RouteNextHop(_) => Some(Attr::RouteNextHop(Oid::NULL)),
                        Attr::InsegNextHop(_) => Some(Attr::InsegNextHop(Oid::NULL)),
                        _ => None,
                    };
                    known.cloned().or(default).ok_or(Status::NotSupported)?
                }
            };
        }
        Ok(())
    }
}
