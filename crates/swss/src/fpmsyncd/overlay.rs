//! EVPN type 5: routes whose next hops are remote VTEPs, with the VNI and the MAC address of the router behind each.
//!
//! SONiC's fpmsyncd (`getEvpnNextHop` of `fpmsyncd/routesync.cpp`) drops such a route while an interface has no name, and keeps what the
//! prefix had before. Here it waits for the name. A next hop without a VNI or a MAC address does not get those of the one before it.

use super::source::{OverlayHop, SourceId, State, What};
use super::{Cause, Fpmsyncd};
use crate::row::{Mac, Via};
use ribtide_wire::netlink::numbers::{LWTUNNEL_ENCAP_IP, LWTUNNEL_ENCAP_IP6, NH_ENCAP_VXLAN};
use ribtide_wire::netlink::{Hop, NextHops, Route, Vxlan};
use std::net::IpAddr;
use std::sync::Arc;

/// Whether an encapsulation is one of EVPN.
pub(super) fn is_overlay(encap: u16) -> bool {
    [NH_ENCAP_VXLAN, LWTUNNEL_ENCAP_IP, LWTUNNEL_ENCAP_IP6].contains(&encap)
}

/// A next hop with its encapsulation.
fn overlay_hop(hop: Hop, encap: u16, value: &[u8]) -> Result<OverlayHop, Cause> {
    let vxlan = Vxlan::decode(encap, value).ok().flatten();
    let vxlan = vxlan.filter(|vxlan| vxlan.vni != 0 && vxlan.router_mac != [0; 6]);
    let vxlan = vxlan.ok_or(Cause::Overlay("a next hop has no VNI or no MAC address of its router"))?;
    let gateway = hop.via.gateway.ok_or(Cause::Overlay("a next hop has no address of a VTEP"))?;
    if hop.via.ifindex == 0 {
        return Err(Cause::Overlay("a next hop has no interface"));
    }
    Ok(OverlayHop { gateway: unmapped(gateway), ifindex: hop.via.ifindex, vxlan })
}

/// An IPv4 address that is mapped into IPv6 is one of IPv4.
fn unmapped(gateway: IpAddr) -> IpAddr {
    match gateway {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(gateway, IpAddr::V4),
        IpAddr::V4(_) => gateway,
    }
}

impl Fpmsyncd {
    /// The source of the next hops of a route of EVPN.
    pub(super) fn overlay_source(&mut self, route: &Route<'_>) -> Result<SourceId, Cause> {
        let NextHops::Inline(hops) = route.next_hops else { return Err(Cause::NoNextHops) };
        let hops: Result<Box<[OverlayHop]>, Cause> = match hops.bytes() {
            Some(_) => {
                hops.encapsulated().map(|(hop, encap, value)| overlay_hop(hop, encap, value)).collect()
            }
            None => hops.map(|hop| overlay_hop(hop, route.encap, route.encapsulation)).collect(),
        };
        Ok(self.other_source(What::Overlay(hops?)))
    }

    /// The row of EVPN next hops, once every interface has a name.
    pub(super) fn state_of_overlay(&self, hops: &[OverlayHop]) -> State {
        let mut fields = [const { String::new() }; 4];
        for (n, OverlayHop { gateway, ifindex, vxlan }) in hops.iter().enumerate() {
            let Some(link) = self.links.get(ifindex) else { return State::Waiting };
            let values = [
                gateway.to_string(),
                link.name.to_string(),
                vxlan.vni.to_string(),
                Mac(vxlan.router_mac).to_string().to_lowercase(),
            ];
            for (field, value) in fields.iter_mut().zip(values) {
                if n > 0 {
                    field.push(',');
                }
                field.push_str(&value);
            }
        }
        let [nexthop, ifname, vni, router_mac] = &fields;
        State::Row(Arc::new(Via::overlay(nexthop, ifname, vni, router_mac)))
    }
}
