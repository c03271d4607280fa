//! Next hops, groups and router interfaces as next-hop objects of the kernel.
//!
//! Each that routes can use is a group object ([`Objects`]), whose members are the next hops that the
//! kernel can have now: those whose netdev is up. Without any its member is a blackhole. So its routes
//! stay in the kernel and drop packets, as those of a chip do whose port has no link, and no less
//! specific route gets them. A change of members is one message, whatever the number of routes.

use crate::KernelChip;
use crate::status;
use ribtide_netlink::{CHIP_IDS, Objects, SingleContent};
use ribtide_prefix::{Map, Set};
use ribtide_swss::sai::{Attr, GroupType, NextHopType, ObjectType, Oid, RifType, Status};
use ribtide_wire::netlink::Via;
use std::io;
use std::net::IpAddr;

/// What the kernel has of an object that routes can use.
#[derive(Clone, Copy)]
struct Key {
    /// The number of its group among [`Objects`].
    number: u32,
    /// Whether a gateway is of IPv4, so that no IPv6 route can use it.
    ipv4: bool,
}

/// The next-hop objects.
pub(crate) struct NextHops {
    pub(crate) objects: Objects,
    keys: Map<Oid, Key>,
    by_number: Map<u32, Oid>,
    /// Those that drop packets because the kernel refused their next hops, to be tried again.
    refused: Set<Oid>,
    /// Those that it refused in the last write, and not because of a link.
    pub(crate) unacceptable: Set<Oid>,
    last: u32,
}

impl NextHops {
    /// None so far. Objects that an earlier syncd left are kept until [`Objects::sweep`].
    pub(crate) fn new(protocol: u8) -> NextHops {
        let mut objects = Objects::new(protocol, CHIP_IDS);
        objects.keep = true;
        NextHops {
            objects,
            keys: Map::default(),
            by_number: Map::default(),
            refused: Set::default(),
            unacceptable: Set::default(),
            last: 0,
        }
    }

    /// The number of the object that a route to `target` names; `None` for a target that is none of
    /// these.
    ///
    /// # Errors
    /// The kernel does not have it, or the route's family cannot use it.
    pub(crate) fn id(&self, target: Oid, is_ipv6: bool) -> Option<Result<u32, Status>> {
        let key = self.keys.get(&target)?;
        if is_ipv6 && key.ipv4 {
            return Some(Err(Status::NotSupported));
        }
        Some(self.objects.live_id(key.number).ok_or(Status::Failure))
    }

    fn key(&mut self, oid: Oid) -> &mut Key {
        let NextHops { keys, by_number, last, .. } = self;
        keys.entry(oid).or_insert_with(|| {
            *last += 1;
            by_number.insert(*last, oid);
            Key { number: *last, ipv4: false }
        })
    }

    /// The objects.
    pub(crate) fn oids(&self) -> impl Iterator<Item = Oid> + '_ {
        self.keys.keys().copied()
    }

    /// The object is removed; its group leaves the kernel at the next [`Objects::delete_unused`].
    pub(crate) fn forget(&mut self, oid: Oid) {
        if let Some(key) = self.keys.remove(&oid) {
            self.by_number.remove(&key.number);
            self.refused.remove(&oid);
            self.objects.delete_group(key.number);
        }
    }
}

impl KernelChip {
    /// The netdev under a router interface; `None`: it has none, or that does not exist.
    pub(crate) fn netdev_of(&self, rif: Oid) -> Option<u32> {
        self.netdevs.index(self.port_of(rif)?)
    }

    /// The name of the port under a router interface.
    pub(crate) fn port_of(&self, rif: Oid) -> Option<&str> {
        let port =
            self.model.attribute(rif, |a| if let Attr::RifPort(port) = a { Some(*port) } else { None })?;
        self.model.port_name(port).map(|name| &**name)
    }

    /// The gateway and the router interface of a next hop.
    fn hop(&self, hop: Oid) -> Option<(IpAddr, Oid)> {
        let ip = self.model.attribute(hop, |a| if let Attr::NextHopIp(ip) = a { Some(*ip) } else { None })?;
        let rif =
            self.model.attribute(hop, |a| if let Attr::NextHopRif(rif) = a { Some(*rif) } else { None })?;
        Some((ip, rif))
    }

    /// The next hops of an object with their weights: gateways and router interfaces.
    fn hops(&self, oid: Oid) -> Vec<(Option<IpAddr>, Oid, u16)> {
        match self.kind(oid) {
            Some(ObjectType::RouterInterface) => vec![(None, oid, 1)],
            Some(ObjectType::NextHop) => {
                self.hop(oid).into_iter().map(|(ip, rif)| (Some(ip), rif, 1)).collect()
            }
            Some(ObjectType::NextHopGroup) => {
                let of = |member: &Oid| {
                    let hop = |a: &Attr| if let Attr::MemberNextHop(hop) = a { Some(*hop) } else { None };
                    let weight =
                        |a: &Attr| if let Attr::MemberWeight(weight) = a { Some(*weight) } else { None };
                    let (ip, rif) = self.hop(self.model.attribute(*member, hop)?)?;
                    let weight = self.model.attribute(*member, weight).unwrap_or(1);
                    Some((Some(ip), rif, u16::try_from(weight).unwrap_or(u16::MAX).max(1)))
                };
                self.model.group_members(oid).iter().filter_map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Sets the members of the object's group as they shall be now.
    pub(crate) fn refresh(&mut self, oid: Oid) {
        let hops = self.hops(oid);
        let ipv4 = hops.iter().any(|(ip, ..)| ip.is_some_and(|ip| ip.is_ipv4()));
        let usable = |(gateway, rif, weight): &(Option<IpAddr>, Oid, u16)| {
            let ifindex = self.netdev_of(*rif).filter(|index| self.netdevs.is_up(*index))?;
            // SAI has no condition that a gateway is in the network of its interface.
            let via = Via { gateway: *gateway, ifindex, onlink: gateway.is_some() };
            Some((SingleContent::Via(via), *weight))
        };
        let mut members: Vec<(SingleContent, u16)> = hops.iter().filter_map(usable).collect();
        if members.is_empty() {
            members.push((SingleContent::Blackhole, 1));
        }
        let key = self.next_hops.key(oid);
        key.ipv4 = ipv4;
        let number = key.number;
        self.next_hops.refused.remove(&oid);
        self.next_hops.objects.set_group(number, members.into_iter());
    }

    /// Takes in a new object that routes can use.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn add_next_hop(&mut self, oid: Oid) -> Result<(), Status> {
        self.try_next_hop(oid).unwrap_or_else(|e| {
            // The comparison deletes what the kernel may have of it.
            self.next_hops.forget(oid);
            Err(self.lost(&e))
        })
    }

    fn try_next_hop(&mut self, oid: Oid) -> io::Result<Result<(), Status>> {
        self.refresh(oid);
        self.write_next_hops()?;
        let number = self.next_hops.key(oid).number;
        if self.next_hops.objects.live_id(number).is_some() {
            return Ok(Ok(()));
        }
        let refusal = self.next_hops.objects.refusal(number);
        let errno = refusal.as_ref().map_or(0, |refusal| refusal.errno);
        if matches!(errno, libc::ENETDOWN | libc::ENODEV) {
            // Its netdev has just lost its link, and the notification is on its way.
            self.drop_by(number);
            self.write_next_hops()?;
            return Ok(Ok(()));
        }
        if let Some(refusal) = &refusal {
            self.events.push(format!("the kernel refuses the next hop {oid}: {}", refusal.text));
        }
        self.next_hops.forget(oid);
        self.delete_unused()?;
        Ok(Err(refusal.map_or(Status::Failure, |refusal| status::of_refusal(&refusal))))
    }

    /// Whether the next-hop object `id` drops packets, because none of its next hops has a link.
    pub fn drops(&self, id: u32) -> bool {
        self.next_hops.objects.is_blackhole(id)
    }

    /// Sets the members of groups again that the kernel refused.
    pub(crate) fn refresh_refused(&mut self) {
        let refused: Vec<Oid> = self.next_hops.refused.iter().copied().collect();
        refused.into_iter().for_each(|oid| self.refresh(oid));
    }

    /// Sets the members of all groups again.
    pub(crate) fn refresh_all(&mut self) {
        let all: Vec<Oid> = self.next_hops.oids().collect();
        all.into_iter().for_each(|oid| self.refresh(oid));
    }

    /// Makes the group of an object drop packets.
    fn drop_by(&mut self, number: u32) {
        self.next_hops.refused.extend(self.next_hops.by_number.get(&number));
        self.next_hops.objects.set_group(number, std::iter::once((SingleContent::Blackhole, 1)));
    }

    /// Writes the changed groups, and again the routes that the kernel had dropped with one.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn write_next_hops(&mut self) -> io::Result<()> {
        let mut back = self.next_hops.objects.converge(&mut self.socket)?;
        let refused = self.next_hops.objects.take_refused();
        for number in &refused {
            if let Some(refusal) = self.next_hops.objects.refusal(*number) {
                // Where a netdev has just lost its link, the notification is on its way.
                if !matches!(refusal.errno, libc::ENETDOWN | libc::ENODEV) {
                    self.next_hops.unacceptable.extend(self.next_hops.by_number.get(number));
                }
                let text = refusal.text;
                self.events
                    .push(format!("the kernel refuses a next-hop group, which drops packets now: {text}"));
            }
            self.drop_by(*number);
        }
        if !refused.is_empty() {
            back.extend(self.next_hops.objects.converge(&mut self.socket)?);
        }
        let targets: Vec<Oid> =
            back.iter().filter_map(|number| self.next_hops.by_number.get(number).copied()).collect();
        self.write_routes_of(&targets)
    }

    /// Deletes the groups that were forgotten, and next hops that no group uses.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn delete_unused(&mut self) -> io::Result<()> {
        self.next_hops.objects.delete_unused(&mut self.socket)
    }

    /// The link of a netdev came or went: its next hops are used again, or no more.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn link_changed(&mut self, index: u32, name: &str, lost: bool) -> io::Result<()> {
        if lost {
            self.next_hops.objects.lose_interface(index);
        } else {
            // It may have been gone for a moment without a notification.
            self.next_hops.objects.check(&mut self.socket)?;
        }
        let uses = |oid: &Oid| self.hops(*oid).iter().any(|(_, rif, _)| self.port_of(*rif) == Some(name));
        let changed: Vec<Oid> = self.next_hops.keys.keys().copied().filter(|oid| uses(oid)).collect();
        changed.into_iter().for_each(|oid| self.refresh(oid));
        self.write_next_hops()
    }

    /// Whether a new object is one that the kernel can have.
    ///
    /// # Errors
    /// [`Status::NotSupported`], with a sentence among the events.
    pub(crate) fn check_kind(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<(), Status> {
        let given = |name: &str| attrs.iter().find(|attr| attr.name() == name).map(Attr::value);
        let what = match object {
            ObjectType::VirtualRouter => "virtual routers beside the default one",
            ObjectType::InsegEntry => "MPLS labels",
            ObjectType::RouterInterface => {
                let on_port = attrs
                    .iter()
                    .any(|a| matches!(a, Attr::RifPort(port) if self.kind(*port) != Some(ObjectType::Lag)));
                match attrs.iter().find_map(|a| if let Attr::RifKind(kind) = a { Some(*kind) } else { None })
                {
                    Some(RifType::Loopback) | None => return Ok(()),
                    Some(RifType::Port) if on_port => return Ok(()),
                    // The model says what is missing.
                    Some(RifType::Port) if given("SAI_ROUTER_INTERFACE_ATTR_PORT_ID").is_none() => {
                        return Ok(());
                    }
                    Some(_) => "router interfaces on LAGs, VLANs and sub-ports",
                }
            }
            ObjectType::NextHop => {
                let ip = attrs.contains(&Attr::NextHopKind(NextHopType::Ip));
                let rif =
                    attrs.iter().find_map(|a| if let Attr::NextHopRif(rif) = a { Some(*rif) } else { None });
                let typed = given("SAI_NEXT_HOP_ATTR_TYPE").is_some();
                let is_loopback = rif.is_some_and(|rif| {
                    self.kind(rif) == Some(ObjectType::RouterInterface) && self.port_of(rif).is_none()
                });
                match (!typed || ip, is_loopback) {
                    (true, false) => return Ok(()),
                    (true, true) => "next hops on loopback interfaces",
                    (false, _) => "next hops with labels or tunnels",
                }
            }
            ObjectType::NextHopGroup => {
                let equal = |a: &Attr| {
                    matches!(
                        a,
                        Attr::GroupKind(GroupType::DynamicUnorderedEcmp | GroupType::DynamicOrderedEcmp)
                    )
                };
                let typed = given("SAI_NEXT_HOP_GROUP_ATTR_TYPE").is_some();
                match !typed || attrs.iter().any(equal) {
                    true => return Ok(()),
                    false => "groups other than dynamic ECMP",
                }
            }
            _ => return Ok(()),
        };
        self.events.push(format!("the kernel as the chip has no {what}; the request is refused"));
        Err(Status::NotSupported)
    }
}
