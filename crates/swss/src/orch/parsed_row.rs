//! Parses the fields of a row of ROUTE_TABLE, LABEL_ROUTE_TABLE or NEXTHOP_GROUP_TABLE, without
//! look-ups: the rules of RouteOrch::doTask and NhgOrch::doTask (`orchagent/routeorch.cpp`,
//! `nhgorch.cpp`) for which fields go together.
//!
//! Public, so that `route-check` compares the databases by the rules by which orchagent programs
//! them.

use crate::row::{Field, Hop, Name, Via};
use ribtide_prefix::AnyPrefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The content of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParsedRow {
    /// The fields contradict each other, or need what orchagent does not program: the reason.
    Refused(String),
    /// The next hop is the router itself or its management port: the chip gets no entry.
    Local,
    /// The entry drops.
    Blackhole,
    /// An interface alone.
    Direct(Name),
    /// Next hops: one or more.
    Hops(Vec<Hop>),
    /// An index of NEXTHOP_GROUP_TABLE.
    Index(Name),
}

/// Parses a route's row.
pub fn parse_route(via: &Via) -> ParsedRow {
    let index = via.get(Field::NexthopGroup);
    let names_hops = !via.get(Field::Nexthop).is_empty() || !via.get(Field::Ifname).is_empty();
    if !index.is_empty() && names_hops {
        return ParsedRow::Refused("it names both a next-hop group and next hops".into());
    }
    if let Some(why) = unsupported(via) {
        return ParsedRow::Refused(why);
    }
    if index.is_empty() && via.get(Field::Ifname).is_empty() && !via.is_blackhole() {
        return ParsedRow::Refused("it names no interface, no next-hop group, and is no blackhole".into());
    }
    let hops = match via.parse_hops() {
        Ok(hops) => hops,
        Err(why) => return ParsedRow::Refused(why.what),
    };
    if hops.iter().any(|hop| is_local(&hop.ifname)) {
        return ParsedRow::Local;
    }
    if let Some(why) = without_gateway(&hops) {
        return ParsedRow::Refused(why);
    }
    if via.is_blackhole() {
        return ParsedRow::Blackhole;
    }
    if !index.is_empty() {
        return ParsedRow::Index(index.into());
    }
    match hops.as_slice() {
        [hop] if gateway(hop).is_unspecified() => {
            let name = &*hop.ifname;
            if name == "unknown" || name == "tun0" || name.starts_with("Vrf") {
                return ParsedRow::Refused(format!(
                    "nothing can be forwarded to interface {name} without a gateway"
                ));
            }
            ParsedRow::Direct(hop.ifname.clone())
        }
        _ => ParsedRow::Hops(hops),
    }
}

/// The next hops of a row of NEXTHOP_GROUP_TABLE.
///
/// # Errors
/// A sentence: why orchagent does not program the row.
pub fn parse_group(via: &Via) -> Result<Vec<Hop>, String> {
    if !via.get(Field::NexthopGroup).is_empty() {
        return Err("it is made of other groups, and those are not programmed".into());
    }
    if let Some(why) = unsupported(via) {
        return Err(why);
    }
    let hops = via.parse_hops().map_err(|why| why.what)?;
    match without_gateway(&hops) {
        Some(why) => Err(why),
        None if hops.is_empty() => Err("it names no interface".into()),
        None => Ok(hops),
    }
}

/// How many labels a label's row pops (`mpls_pop`): one without the field.
///
/// # Errors
/// A sentence when the field is not a number from 0 to 255.
pub fn parse_pop(via: &Via) -> Result<u8, String> {
    match via.get(Field::MplsPop) {
        "" => Ok(1),
        text => text.parse().map_err(|_| format!("mpls_pop \"{text}\" is not a number from 0 to 255")),
    }
}

/// Why a next hop with labels and without a gateway is refused. MPLS next hops belong to
/// neighbours.
fn without_gateway(hops: &[Hop]) -> Option<String> {
    let hop = hops.iter().find(|hop| hop.labels.is_some() && gateway(hop).is_unspecified())?;
    Some(format!("labels are put on packets to a gateway, and it names none on {}", hop.ifname))
}

/// What a row needs beside IP forwarding and labels, as a sentence; `None`: nothing. SONiC's
/// orchagent may program it.
pub fn unsupported(via: &Via) -> Option<String> {
    let others = [
        (!via.get(Field::VniLabel).is_empty(), "a VXLAN tunnel"),
        (!via.get(Field::Segment).is_empty() || !via.get(Field::VpnSid).is_empty(), "an SRv6 segment"),
        (!via.get(Field::PicContextId).is_empty(), "a PIC context"),
    ];
    others
        .into_iter()
        .find(|(needed, _)| *needed)
        .map(|(_, what)| format!("it asks for {what}, which is not programmed"))
}

/// The address of a next hop: unspecified when it is the interface alone.
pub fn gateway(hop: &Hop) -> IpAddr {
    match hop.gateway {
        // One value for "none", so that it is one next hop.
        Some(ip) if !ip.is_unspecified() => ip,
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// Whether the chip does not forward to the interface (`RouteOrch::doTask`,
/// `orchagent/routeorch.cpp`).
fn is_local(ifname: &str) -> bool {
    matches!(ifname, "eth0" | "docker0" | "usb0" | "lo") || ifname.starts_with("Loopback")
}

/// Whether the addresses of the prefix are valid beyond one link, loopback or multicast scope.
pub fn is_global(prefix: AnyPrefix) -> bool {
    match prefix.addr() {
        IpAddr::V4(ip) => !(ip.is_link_local() || ip.is_loopback() || ip.is_multicast()),
        IpAddr::V6(ip) => !(ip.is_unicast_link_local() || ip == Ipv6Addr::LOCALHOST || ip.is_multicast()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{RouteRow, Row};

    fn parse(text: &str) -> ParsedRow {
        let mut fields = text.split(' ').filter_map(|pair| pair.split_once('='));
        parse_route(&RouteRow::from_fields(&mut fields).unwrap().via)
    }

    #[test]
    fn what_is_taken_and_what_is_not() {
        for text in [
            "protocol=bgp",
            "nexthop=10.0.0.1",
            "nexthop_group=5 ifname=Ethernet0",
            "nexthop_group=5 nexthop=10.0.0.1",
            "ifname=unknown nexthop=0.0.0.0",
            "ifname=tun0",
            "ifname=Vrf1",
            "ifname=Ethernet0 nexthop=banana",
            "ifname=Ethernet0 nexthop=10.0.0.1 mpls_nh=pull100",
            "ifname=Ethernet0 nexthop=10.0.0.1 mpls_nh=push100,na",
            "ifname=Ethernet0 mpls_nh=push100",
            "ifname=Vlan100 nexthop=10.0.0.1 vni_label=100 router_mac=02:00:00:00:00:01",
            "segment=one seg_src=fc00::1",
        ] {
            assert!(matches!(parse(text), ParsedRow::Refused(_)), "{text}: {:?}", parse(text));
        }
        for text in [
            "ifname=eth0 nexthop=10.0.0.1",
            "ifname=Loopback0",
            "ifname=Ethernet0,lo nexthop=10.0.0.1,10.0.0.2",
        ] {
            assert_eq!(parse(text), ParsedRow::Local, "{text}");
        }
        assert_eq!(parse("blackhole=true"), ParsedRow::Blackhole);
        assert_eq!(parse("nexthop_group=5 nexthop= ifname= blackhole=false"), ParsedRow::Index("5".into()));
        assert_eq!(parse("ifname=Ethernet0 nexthop=::"), ParsedRow::Direct("Ethernet0".into()));
        assert_eq!(parse("ifname=Ethernet0"), ParsedRow::Direct("Ethernet0".into()));
        assert!(
            matches!(parse("ifname=a,b nexthop=10.0.0.1,10.0.0.2 mpls_nh=na,na"), ParsedRow::Hops(hops) if hops.len() == 2)
        );
    }

    #[test]
    fn scopes() {
        for text in ["169.254.1.0/24", "127.0.0.0/8", "224.0.0.0/4", "fe80::/64", "::1/128", "ff00::/8"] {
            assert!(!is_global(text.parse().unwrap()), "{text}");
        }
        for text in ["0.0.0.0/0", "::/0", "10.0.0.0/8", "fc00::/7"] {
            assert!(is_global(text.parse().unwrap()), "{text}");
        }
    }
}
