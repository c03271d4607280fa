//! Looking: where the switch would send a packet, and whether that is where it should go.

use crate::switch::{VirtualSwitch, neighbor_mac};
use crate::target::Action;
use ribtide_prefix::AnyPrefix;
use ribtide_swss::Name;
use ribtide_swss::row::{LabelOp, LabelStack, Mac};
use ribtide_swss::sai::{Attr, ObjectType, Oid, OutsegType, PacketAction};
use std::net::IpAddr;

/// What the switch does with packets to an address.
#[derive(Clone, PartialEq, Debug)]
pub struct Forward {
    /// The route that matches.
    pub prefix: AnyPrefix,
    /// What it does.
    pub action: PacketAction,
    /// Where packets go; several are spread over. Empty when they go nowhere.
    pub hops: Vec<ForwardHop>,
}

/// One way out of the switch.
#[derive(Clone, PartialEq, Debug)]
pub struct ForwardHop {
    /// The gateway; `None` when the address itself is on the wire, or for the CPU.
    pub gateway: Option<IpAddr>,
    /// The port.
    pub port: Name,
    /// The gateway's MAC address; `None` when the switch has no such neighbour, and so would drop.
    pub mac: Option<Mac>,
    /// The labels that packets get on the way.
    pub labels: Option<LabelStack>,
    /// The share among several.
    pub weight: u32,
}

impl Forward {
    /// Whether a packet really leaves through `gateway`: the route forwards, and the gateway's MAC address is known.
    pub fn reaches(&self, gateway: IpAddr) -> bool {
        let through = |hop: &ForwardHop| hop.gateway == Some(gateway) && hop.mac.is_some();
        self.action == PacketAction::Forward && self.hops.iter().any(through)
    }
}

/// The outcome of many look-ups.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checked {
    /// Look-ups made.
    pub asked: usize,
    /// Those that lead where they should.
    pub right: usize,
    /// The first few that do not: address, expected gateway, and what the switch does instead.
    pub wrong: Vec<(IpAddr, IpAddr, Option<Forward>)>,
}

/// How many wrong look-ups are kept as examples.
const EXAMPLES: usize = 10;

impl VirtualSwitch {
    /// The virtual router that is always there; `None` before the switch is started.
    pub fn default_router(&self) -> Option<Oid> {
        self.started.as_ref().map(|own| own.default_router)
    }

    /// Where packets to `addr` go in virtual router `vr`; `None` when no route matches.
    pub fn lookup(&self, vr: Oid, addr: IpAddr) -> Option<Forward> {
        let (prefix, target) = self.routers.get(&vr)?.lookup(addr)?;
        Some(self.forward(prefix, target))
    }

    /// What the route at exactly `prefix` does.
    pub fn route_at(&self, vr: Oid, prefix: AnyPrefix) -> Option<Forward> {
        let target = self.routers.get(&vr)?.get(prefix)?;
        Some(self.forward(prefix, target))
    }

    /// Every route of virtual router `vr`, in no order.
    pub fn routes(&self, vr: Oid) -> impl Iterator<Item = Forward> {
        let router = self.routers.get(&vr);
        router.into_iter().flat_map(|r| r.iter().map(|(prefix, target)| self.forward(prefix, target)))
    }

    /// The prefix of every route of virtual router `vr`, in no order.
    pub fn prefixes(&self, vr: Oid) -> impl Iterator<Item = AnyPrefix> {
        self.routers.get(&vr).into_iter().flat_map(|router| router.iter().map(|(prefix, _)| prefix))
    }

    /// Looks up each address and compares where it goes with the gateway that it should go through.
    pub fn check(&self, vr: Oid, expected: impl IntoIterator<Item = (IpAddr, IpAddr)>) -> Checked {
        let mut checked = Checked::default();
        for (addr, gateway) in expected {
            checked.asked += 1;
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

    /// Where packets go.
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

    /// The name of the port under a router interface.
    fn rif_name(&self, rif: Oid) -> Name {
        let port = self.objects.find(rif, |a| if let Attr::RifPort(port) = a { Some(*port) } else { None });
        port.and_then(|port| self.port_names.get(&port)).cloned().unwrap_or_else(|| "loopback".into())
    }
}
