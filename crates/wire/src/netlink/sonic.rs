//! What FRR's module `dplane_fpm_sonic` adds to netlink: VXLAN and SRv6 encapsulations of routes, local SIDs, routes of SRv6 VPNs, and
//! PIC contexts.
//!
//! Sources: `src/sonic-frr/dplane_fpm_sonic/dplane_fpm_sonic.c` of sonic-buildimage writes the messages, `fpmsyncd/routesync.cpp` and
//! `fpmsyncd/fpmlink.h` of sonic-swss read them. The kernel has none of these numbers.

use super::numbers::*;
use super::{Attr, Attrs, Malformed, Message, NextHop};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The segment routing header in a PIC context's encapsulation: `mode`, the segment's name, the source, and the header's fixed part
/// come before the segments (`seg6_iptunnel_encap_pri`).
const SEG6_SOURCE: usize = 4 + 64;
const SEG6_SEGMENTS: usize = SEG6_SOURCE + 16 + 8;

/// The VXLAN encapsulation of an EVPN next hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vxlan {
    /// The VNI of the VRF at the remote VTEP.
    pub vni: u32,
    /// The MAC address of the remote router.
    pub router_mac: [u8; 6],
}

impl Vxlan {
    /// Reads `RTA_ENCAP` of a route or next hop with this `RTA_ENCAP_TYPE`; `None` for another encapsulation, and where the VNI or the
    /// MAC address is missing.
    ///
    /// # Errors
    /// An attribute does not fit, or is too short.
    pub fn decode(encap: u16, value: &[u8]) -> Result<Option<Vxlan>, Malformed> {
        if ![NH_ENCAP_VXLAN, LWTUNNEL_ENCAP_IP, LWTUNNEL_ENCAP_IP6].contains(&encap) {
            return Ok(None);
        }
        let (mut vni, mut id, mut macs) = (None, None, [None; 2]);
        for attr in Attrs::new(value) {
            let attr = attr?;
            match attr.kind {
                VXLAN_VNI => vni = Some(attr.u32()?),
                // The same number is the MAC address beside VXLAN_VNI, and the id of the tunnel beside none.
                VXLAN_RMAC => (id, macs[0]) = (attr.value.first_chunk::<8>(), attr.value.first_chunk()),
                LWTUNNEL_IP_RMAC => macs[1] = attr.value.first_chunk(),
                _ => {}
            }
        }
        let (vni, mac) = match (vni, id) {
            (Some(vni), _) => (vni, macs[0]),
            (None, Some(&[.., a, b, c, d])) => (u32::from_be_bytes([a, b, c, d]), macs[1]),
            (None, None) => return Ok(None),
        };
        Ok(mac.map(|mac| Vxlan { vni, router_mac: *mac }))
    }
}

/// The SRv6 encapsulation of a route: `RTA_ENCAP` of type 101. The fields depend on the route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Srv6 {
    /// The segment to which packets are steered.
    pub vpn_sid: Option<Ipv6Addr>,
    /// The source of the outer header.
    pub source: Option<Ipv6Addr>,
    /// Of a VPN's route: its PIC context.
    pub pic_context: Option<u32>,
    /// Of a VPN's route: its next-hop object.
    pub next_hop: Option<u32>,
}

impl Srv6 {
    /// Reads the value of `RTA_ENCAP`.
    ///
    /// # Errors
    /// An attribute does not fit, or is too short.
    pub fn decode(value: &[u8]) -> Result<Srv6, Malformed> {
        let mut srv6 = Srv6::default();
        for attr in Attrs::new(value) {
            let attr = attr?;
            match attr.kind {
                ROUTE_ENCAP_SRV6_VPN_SID => srv6.vpn_sid = Some(ipv6(attr)?),
                ROUTE_ENCAP_SRV6_ENCAP_SRC_ADDR => srv6.source = Some(ipv6(attr)?),
                ROUTE_ENCAP_SRV6_PIC_ID => srv6.pic_context = Some(attr.u32()?),
                ROUTE_ENCAP_SRV6_NH_ID => srv6.next_hop = Some(attr.u32()?),
                _ => {}
            }
        }
        Ok(srv6)
    }
}

/// A local SID: `RTM_NEWSRV6LOCALSID`, `RTM_DELSRV6LOCALSID`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalSid<'a> {
    /// The SID.
    pub sid: Ipv6Addr,
    /// The lengths of its locator block, its locator node, its function and its argument, in bits; by default 32, 16, 16 and 0.
    pub format: [u8; 4],
    /// Its behaviour: a number of `srv6_localsid_action` (`fpmsyncd/routesync.cpp`); 0 in a deletion.
    pub action: u32,
    /// The VRF in whose table it continues; empty without.
    pub vrf: &'a str,
    /// The next hop to which it forwards.
    pub adjacency: Option<IpAddr>,
    /// The interface of that next hop; empty without.
    pub ifname: &'a str,
}

impl<'a> LocalSid<'a> {
    pub(super) fn decode(message: &Message<'a>) -> Result<Self, Malformed> {
        let Some((&[family, len, ..], _)) = message.body.split_first_chunk::<12>() else {
            return Err(Malformed("a local SID is shorter than its fixed part"));
        };
        if family != AF_INET6 || len > 128 {
            return Err(Malformed("a local SID is not an IPv6 prefix"));
        }
        let mut found = LocalSid {
            sid: Ipv6Addr::UNSPECIFIED,
            format: [32, 16, 16, 0],
            action: 0,
            vrf: "",
            adjacency: None,
            ifname: "",
        };
        let (mut sid, mut v4) = (None, None);
        for attr in Attrs::new(message.body.get(12..).unwrap_or_default()) {
            let attr = attr?;
            match attr.kind {
                SRV6_LOCALSID_SID_VALUE => sid = Some(ipv6(attr)?),
                SRV6_LOCALSID_FORMAT => {
                    for part in attr.nested() {
                        let part = part?;
                        let at = usize::from(part.kind).checked_sub(1);
                        if let Some(len) = at.and_then(|at| found.format.get_mut(at)) {
                            *len = *part
                                .value
                                .first()
                                .ok_or(Malformed("a length of a SID's format is empty"))?;
                        }
                    }
                }
                SRV6_LOCALSID_ACTION => found.action = attr.u32()?,
                SRV6_LOCALSID_VRFNAME => found.vrf = attr.text(),
                SRV6_LOCALSID_NH6 => found.adjacency = Some(ipv6(attr)?.into()),
                SRV6_LOCALSID_NH4 => v4 = Some(IpAddr::V4(ipv4(attr)?)),
                SRV6_LOCALSID_IFNAME => found.ifname = attr.text(),
                _ => {}
            }
        }
        found.sid = sid.ok_or(Malformed("a local SID has no value"))?;
        found.adjacency = v4.or(found.adjacency);
        Ok(found)
    }
}

/// A PIC context: `RTM_NEWPICCONTEXT`. It is a next-hop object, and a single one may have an SRv6 encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PicContext<'a> {
    /// The id, and the next hop or the members.
    pub object: NextHop<'a>,
    /// The segment of a single one, and the source of the outer header.
    pub segment: Option<(Ipv6Addr, Ipv6Addr)>,
}

impl<'a> PicContext<'a> {
    pub(super) fn decode(message: &Message<'a>) -> Result<Self, Malformed> {
        let object = NextHop::decode(message)?;
        let (mut kind, mut encap) = (0, None);
        for attr in Attrs::new(message.body.get(8..).unwrap_or_default()) {
            let attr = attr?;
            match attr.kind {
                NHA_ENCAP_TYPE => kind = attr.u16()?,
                NHA_ENCAP => encap = Some(attr),
                _ => {}
            }
        }
        let Some(encap) = encap.filter(|_| kind == LWTUNNEL_ENCAP_SEG6) else {
            return Ok(PicContext { object, segment: None });
        };
        let mut segment = None;
        for attr in encap.nested() {
            let attr = attr?;
            if attr.kind == SEG6_IPTUNNEL_SRH {
                let address = |at: usize| attr.value.get(at..).and_then(|bytes| bytes.first_chunk::<16>());
                let (Some(source), Some(first)) = (address(SEG6_SOURCE), address(SEG6_SEGMENTS)) else {
                    return Err(Malformed("a segment routing header is cut short"));
                };
                segment = Some((Ipv6Addr::from(*first), Ipv6Addr::from(*source)));
            }
        }
        Ok(PicContext { object, segment })
    }
}

fn ipv6(attr: Attr<'_>) -> Result<Ipv6Addr, Malformed> {
    let bytes = <[u8; 16]>::try_from(attr.value);
    bytes.map(Ipv6Addr::from).map_err(|_| Malformed("an IPv6 address is not 16 bytes long"))
}

fn ipv4(attr: Attr<'_>) -> Result<Ipv4Addr, Malformed> {
    let bytes = <[u8; 4]>::try_from(attr.value);
    bytes.map(Ipv4Addr::from).map_err(|_| Malformed("an IPv4 address is not 4 bytes long"))
}
