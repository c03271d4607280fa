//! Look-ups: where the switch would send a packet, compared with the expected next hop.

use crate::switch::{VirtualSwitch, neighbor_mac};
use crate::target::Action;
use ribtide_prefix::AnyPrefix;
use ribtide_swss::Name;
use ribtide_swss::row::{LabelOp, LabelStack, Mac};
use ribtide_swss::sai::{Attr, ObjectType, Oid, OperStatus, OutsegType, PacketAction};
use std::net::IpAddr;

/// What the switch does with packets to an address.
#[derive(Clone, PartialEq, Debug)]
pub struct Forward {
    /// The route that matches.
    pub prefix: AnyPrefix,
    /// Its action.
    pub action: PacketAction,
    /// The outgoing hops, several with ECMP. Empty when packets are not forwarded.
    pub hops: Vec<ForwardHop>,
}

/// One outgoing hop.
#[derive(Clone, PartialEq, Debug)]
pub struct ForwardHop {
    /// The gateway; `None` on the link itself, or to the CPU.
    pub gateway: Option<IpAddr>,
    /// The port.
    pub port: Name,
    /// The gateway's MAC address; `None` without such a neighbour, and packets are then dropped.
    pub mac: Option<Mac>,
    /// Labels that packets get.
    pub labels: Option<LabelStack>,
    /// The share among several.
    pub weight: u32,
}

impl Forward {
    /// Whether packets leave through `gateway`: the route forwards, and the gateway's MAC address
    /// is known.
    pub fn reaches(&self, gateway: IpAddr) -> bool {
        let through = |hop: &ForwardHop| hop.gateway == Some(gateway) && hop.mac.is_some();
        self.action == PacketAction::Forward && self.hops.iter().any(through)
    }
}

/// The outcome of many look-ups.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checked {
    /// Look-ups made.
    pub lookups: usize,
    /// Look-ups with the expected result.
    pub right: usize,
    /// The first wrong ones: address, expected gateway, and the actual result.
    pub wrong: Vec<(IpAddr, IpAddr, Option<Forward>)>,
}

/// Stored examples of wrong look-ups.
const EXAMPLES: usize = 10;

impl VirtualSwitch {
    /// The switch's default virtual router; `None` before the switch is created.
    pub fn default_router(&self) -> Option<Oid> {
        self.started.as_ref().map(|own| own.default_router)
    }

    /// The forwarding of `addr` in virtual router `vr`; `None` when no route matches.
    pub fn lookup(&self, vr: Oid, addr: IpAddr) -> Option<Forward> {
        let (prefix, target) = self.routers.get(&vr)?.lookup(addr)?;
        Some(self.forward(prefix, target))
    }

    /// The forwarding of the route at exactly `prefix`.
    pub fn route_at(&self, vr: Oid, prefix: AnyPrefix) -> Option<Forward> {
        let target = self.routers.get(&vr)?.get(prefix)?;
        Some(self.forward(prefix, target))
    }

    /// Every route of virtual router `vr`, in any order.
    pub fn routes(&self, vr: Oid) -> impl Iterator<Item = Forward> {
        let router = self.routers.get(&vr);
        router.into_iter().flat_map(|r| r.iter().map(|(prefix, target)| self.forward(prefix, target)))
    }

    /// The prefix of every route of virtual router `vr`, in any order.
    pub fn prefixes(&self, vr: Oid) -> impl Iterator<Item = AnyPrefix> {
        self.routers.get(&vr).into_iter().flat_map(|router| router.iter().map(|(prefix, _)| prefix))
    }

    /// The action and the target object of the route at exactly `prefix`.
    pub fn route_action(&self, vr: Oid, prefix: AnyPrefix) -> Option<(PacketAction, Oid)> {
        let action = self.targets.action(self.routers.get(&vr)?.get(prefix)?);
        Some((action.packet, action.to))
    }

    /// Every route of virtual router `vr` with its action and target object, in any order.
    pub fn route_actions(&self, vr: Oid) -> impl Iterator<Item = (AnyPrefix, PacketAction, Oid)> {
        let routes = self.routers.get(&vr).into_iter().flat_map(|router| router.iter());
        routes.map(|(prefix, target)| {
            let action = self.targets.action(target);
            (prefix, action.packet, action.to)
        })
    }

    /// The members of a group, in the order in which they came.
    pub fn group_members(&self, group: Oid) -> &[Oid] {
        self.members.get(&group).map_or(&[], |members| members)
    }

    /// The first result of `pick` among the attributes of an object.
    pub fn attribute<T>(&self, object: Oid, pick: impl FnMut(&Attr) -> Option<T>) -> Option<T> {
        self.objects.find(object, pick)
    }

    /// The name of a port.
    pub fn port_name(&self, port: Oid) -> Option<&Name> {
        self.port_names.get(&port)
    }

    /// The CPU port; `None` before the switch is created.
    pub fn cpu_port(&self) -> Option<Oid> {
        self.started.as_ref().map(|own| own.cpu_port)
    }

    /// Every neighbour: its router interface, its address and its MAC address, in no order.
    pub fn neighbors(&self) -> impl Iterator<Item = (Oid, IpAddr, Mac)> {
        let all = self.neighbors.iter();
        all.filter_map(|((rif, ip), attrs)| Some((*rif, *ip, neighbor_mac(attrs)?)))
    }

    /// The MAC address of a neighbour.
    pub fn neighbor_mac(&self, rif: Oid, ip: IpAddr) -> Option<Mac> {
        self.neighbors.get(&(rif, ip)).and_then(|attrs| neighbor_mac(attrs))
    }

    /// Looks up each address and compares the result with the expected gateway.
    pub fn check(&self, vr: Oid, expected: impl IntoIterator<Item = (IpAddr, IpAddr)>) -> Checked {
        let mut checked = Checked::default();
        for (addr, gateway) in expected {
            checked.lookups += 1;
            let forward = self.lookup(vr, addr);
            if forward.as_ref().is_some_and(|f| f.reaches(gateway)) {
                checked.right += 1;
            } else if checked.wrong.len() < EXAMPLES {
                checked.wrong.push((addr, gateway, forward));
            }
        }
        checked
    }

    fn forward(&self, prefix: AnyPrefix, target: u32) -> Forward {
        let action = self.targets.action(target);
        Forward { prefix, action: action.packet, hops: self.hops(action) }
    }

    /// The outgoing hops of an action.
    pub(crate) fn hops(&self, action: Action) -> Vec<ForwardHop> {
        let straight = |port| ForwardHop { gateway: None, port, mac: None, labels: None, weight: 1 };
        let mut hops = Vec::new();
        match self.objects.get(action.to).map(|object| object.kind) {
            Some(ObjectType::NextHop) => hops.extend(self.through(action.to, 1)),
            Some(ObjectType::NextHopGroup) => {
                for member in self.members.get(&action.to).into_iter().flatten() {
                    let weight = self.objects.find(*member, |a| match a {
                        Attr::MemberWeight(weight) => Some(*weight),
                        _ => None,
                    });
                    let hop = self.objects.find(*member, |a| match a {
                        Attr::MemberNextHop(hop) => Some(*hop),
                        _ => None,
                    });
                    hops.extend(hop.and_then(|hop| self.through(hop, weight.unwrap_or(1))));
                }
            }
            Some(ObjectType::RouterInterface) => {
                hops.push(straight(self.rif_name(action.to)));
            }
            Some(_) => {
                let port = self.port_names.get(&action.to).cloned().unwrap_or_default();
                hops.push(straight(port));
            }
            None => {}
        }
        hops
    }

    fn through(&self, hop: Oid, weight: u32) -> Option<ForwardHop> {
        let gateway =
            self.objects.find(hop, |a| if let Attr::NextHopIp(ip) = a { Some(*ip) } else { None })?;
        let rif =
            self.objects.find(hop, |a| if let Attr::NextHopRif(rif) = a { Some(*rif) } else { None })?;
        let mac = self.neighbors.get(&(rif, gateway)).and_then(|attrs| neighbor_mac(attrs));
        let labels = self.objects.find(hop, |a| match a {
            Attr::NextHopLabels(labels) => Some(labels.iter().copied().collect()),
            _ => None,
        });
        let pushes = |a: &Attr| matches!(a, Attr::NextHopOutseg(OutsegType::Push)).then_some(());
        let labels = labels.map(|labels| LabelStack {
            // SAI's default is to swap.
            op: self.objects.find(hop, pushes).map_or(LabelOp::Swap, |()| LabelOp::Push),
            labels,
        });
        Some(ForwardHop { gateway: Some(gateway), port: self.rif_name(rif), mac, labels, weight })
    }

    /// The name of what lies under a router interface: a port, the ports through which a LAG sends,
    /// as `Ethernet0+Ethernet4`, or `Vlan10`; with the tag of a sub-interface, as `Ethernet0.10`.
    fn rif_name(&self, rif: Oid) -> Name {
        let vlan = self.objects.find(rif, |a| if let Attr::RifVlan(vlan) = a { Some(*vlan) } else { None });
        if let Some(vlan) = vlan {
            let id = self.objects.find(vlan, |a| if let Attr::VlanId(id) = a { Some(*id) } else { None });
            return format!("Vlan{}", id.unwrap_or(0)).into();
        }
        let port = self.objects.find(rif, |a| if let Attr::RifPort(port) = a { Some(*port) } else { None });
        let Some(port) = port else { return "loopback".into() };
        let name = match self.port_names.get(&port) {
            Some(name) => name.clone(),
            None => self.lag_name(port),
        };
        match self.objects.find(rif, |a| if let Attr::RifOuterVlan(tag) = a { Some(*tag) } else { None }) {
            None => name,
            Some(tag) => format!("{name}.{tag}").into(),
        }
    }

    /// The ports through which a LAG sends, whose links are there.
    fn lag_name(&self, lag: Oid) -> Name {
        let members = self.objects.iter().filter(|(_, kind)| *kind == ObjectType::LagMember);
        let sends = |(member, _): (Oid, ObjectType)| {
            let attrs = &self.objects.get(member)?.attrs;
            let port = attrs
                .iter()
                .find_map(|a| if let Attr::LagMemberPort(port) = a { Some(*port) } else { None })?;
            let is_of = attrs.contains(&Attr::LagMemberLag(lag));
            let disabled = attrs.contains(&Attr::LagMemberEgressDisable(true));
            let up = self.oper_status(port) == OperStatus::Up;
            self.port_names.get(&port).filter(|_| is_of && !disabled && up)
        };
        let mut names: Vec<&Name> = members.filter_map(sends).collect();
        names.sort_unstable_by_key(|name| (name.len(), *name));
        if names.is_empty() {
            return "a LAG without a link".into();
        }
        let names: Vec<&str> = names.into_iter().map(|name| &**name).collect();
        names.join("+").into()
    }
}
