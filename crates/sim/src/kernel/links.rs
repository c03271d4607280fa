//! Links and their addresses, and what goes with them.

use super::routes::{RouteEntry, RouteForward};
use super::{NO_PORT, State, encode};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_wire::netlink::numbers::{
    IFF_LOWER_UP, IFF_UP, RT_SCOPE_LINK, RTM_DELADDR, RTM_NEWADDR, RTM_NEWLINK, RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK, RTPROT_KERNEL,
};
use ribtide_wire::netlink::{RouteKind, Via};
use std::net::IpAddr;

/// An interface.
#[derive(Clone, Debug, Default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The administrator switched it on.
    pub up: bool,
    /// The other end is there.
    pub carrier: bool,
    /// How often it lost its carrier.
    pub carrier_downs: u32,
    /// Its addresses, each with the length of the subnet.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Link {
    /// Whether it carries packets.
    pub fn is_operative(&self) -> bool {
        self.up && self.carrier
    }

    pub(super) fn flags(&self) -> u32 {
        let carrier = if self.is_operative() { IFF_LOWER_UP } else { 0 };
        if self.up { IFF_UP | carrier } else { 0 }
    }

    /// Whether a neighbour of this address is on the link.
    pub(super) fn reaches(&self, gateway: IpAddr) -> bool {
        let on_subnet = |(own, len): &(IpAddr, u8)| {
            AnyPrefix::from_addr(*own, *len).is_some_and(|subnet| subnet.contains(gateway))
        };
        let link_local = matches!(gateway, IpAddr::V6(address) if address.is_unicast_link_local());
        self.up && (link_local || self.addresses.iter().any(on_subnet))
    }
}

/// Whether a next hop may be used.
pub(super) fn check_via(state: &State, via: &Via, afi: Afi, object: bool) -> Result<(), i32> {
    let Some(link) = state.links.get(&via.ifindex) else {
        return Err(if object { libc::EINVAL } else { libc::ENODEV });
    };
    if object && !link.is_operative() {
        return Err(libc::ENETDOWN);
    }
    // What is on another link cannot be declared to be on this one.
    let elsewhere = |gateway| {
        let others = state.links.iter().filter(|(index, _)| **index != via.ifindex);
        !link.reaches(gateway) && others.map(|(_, other)| other).any(|other| other.reaches(gateway))
    };
    match via.gateway {
        Some(gateway) if via.onlink && gateway.is_ipv6() && elsewhere(gateway) => Err(libc::EINVAL),
        Some(gateway) if via.onlink || link.reaches(gateway) => {
            if link.up {
                Ok(())
            } else {
                Err(libc::ENETDOWN)
            }
        }
        Some(IpAddr::V4(_)) => Err(libc::ENETUNREACH),
        Some(IpAddr::V6(_)) => Err(libc::EHOSTUNREACH),
        None if !link.up => Err(libc::ENETDOWN),
        None => {
            debug_assert!(matches!(afi, Afi::Ipv4 | Afi::Ipv6));
            Ok(())
        }
    }
}

impl State {
    /// Adds a link that is up, or changes one.
    pub fn add_link(&mut self, index: u32, name: &str, addresses: &[(IpAddr, u8)]) {
        let link = Link {
            name: name.into(),
            up: true,
            carrier: true,
            carrier_downs: 0,
            addresses: addresses.to_vec(),
        };
        self.links.insert(index, link);
    }

    /// The administrator switches a link on or off. One that is off has no IPv6 address, and gets none
    /// by itself.
    pub fn switch(&mut self, index: u32, up: bool) {
        let Some(link) = self.links.get_mut(&index).filter(|link| link.up != up) else { return };
        link.up = up;
        if !up {
            link.carrier_downs += 1;
        }
        let lost: Vec<(IpAddr, u8)> = match up {
            true => Vec::new(),
            false => link.addresses.iter().filter(|(address, _)| address.is_ipv6()).copied().collect(),
        };
        if !up {
            self.flush_objects_of(index);
            self.flush_routes_of(index);
        }
        self.notify_link(index);
        for (address, _) in lost {
            self.delete_address(index, address);
        }
    }

    /// The other end of a link comes or goes. A link without carrier keeps its addresses and routes,
    /// and loses its next-hop objects.
    pub fn set_carrier(&mut self, index: u32, carrier: bool) {
        let Some(link) = self.links.get_mut(&index).filter(|link| link.carrier != carrier) else { return };
        link.carrier = carrier;
        if !link.up {
            return;
        }
        if !carrier {
            link.carrier_downs += 1;
            self.flush_objects_of(index);
        }
        self.notify_link(index);
    }

    /// The kernel's own routes to the subnets of links that are up.
    pub(super) fn connected_routes(&self, afi: Afi) -> Vec<(AnyPrefix, RouteEntry)> {
        let up = self.links.iter().filter(|(_, link)| link.up);
        let all = up.flat_map(|(index, link)| link.addresses.iter().map(move |a| (*index, *a)));
        let of_family = all.filter_map(|(ifindex, (address, len))| {
            let subnet = AnyPrefix::from_addr(address, len).filter(|subnet| subnet.afi() == afi)?;
            let entry = RouteEntry {
                metric: 0,
                protocol: RTPROT_KERNEL,
                kind: RouteKind::Unicast,
                scope: RT_SCOPE_LINK,
                source: None,
                forward: RouteForward::Via(Via { gateway: None, ifindex, onlink: false }),
            };
            Some((subnet, entry))
        });
        of_family.collect()
    }

    fn notify_link(&mut self, index: u32) {
        let link = &self.links[&index];
        let bytes = encode::link(index, link, RTM_NEWLINK, 0, 0, NO_PORT);
        self.notify(RTNLGRP_LINK, NO_PORT, &bytes);
    }

    /// Adds an address to a link. One of IPv6 on a link that is off is not added.
    pub fn add_address(&mut self, index: u32, address: IpAddr, len: u8) {
        let Some(link) = self.links.get_mut(&index) else { return };
        if link.addresses.iter().any(|(own, _)| *own == address) || (address.is_ipv6() && !link.up) {
            return;
        }
        link.addresses.push((address, len));
        self.notify_address(RTM_NEWADDR, index, address, len);
    }

    /// Removes an address from a link.
    pub fn delete_address(&mut self, index: u32, address: IpAddr) {
        let Some(link) = self.links.get_mut(&index) else { return };
        let Some(at) = link.addresses.iter().position(|(own, _)| *own == address) else { return };
        let (_, len) = link.addresses.remove(at);
        let last = address.is_ipv4() && !link.addresses.iter().any(|(own, _)| own.is_ipv4());
        self.notify_address(RTM_DELADDR, index, address, len);
        self.forget_source(address);
        if last {
            // The kernel switches IPv4 off on a link without address.
            self.flush_ipv4_routes_of(index);
        }
    }

    fn notify_address(&mut self, kind: u16, index: u32, address: IpAddr, len: u8) {
        let group = if address.is_ipv4() { RTNLGRP_IPV4_IFADDR } else { RTNLGRP_IPV6_IFADDR };
        let bytes = encode::address(index, address, len, kind, 0, 0, NO_PORT);
        self.notify(group, NO_PORT, &bytes);
    }

    /// Whether this is an address of the host.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let has = |link: &super::Link| {
            (link.up || address.is_ipv6()) && link.addresses.iter().any(|(own, _)| *own == address)
        };
        self.links.values().any(has)
    }
}
