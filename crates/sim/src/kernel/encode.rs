//! Messages of the kernel, as bytes.

use super::routes::{RouteEntry, RouteForward};
use super::{Link, Object, ObjectContent, State};
use ribtide_prefix::AnyPrefix;
use ribtide_wire::netlink::numbers::{
    AF_INET, AF_INET6, AF_UNSPEC, IFA_ADDRESS, IFA_LOCAL, IFLA_CARRIER_DOWN_COUNT, IFLA_IFNAME, IFLA_MTU,
    NLM_F_CAPPED, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, RTM_DELNEXTHOP, RTM_DELROUTE,
};
use ribtide_wire::netlink::{Forward, Hop, Hops, Members, NextHop, NextHops, Route, RouteKind};
use std::net::IpAddr;

/// A message of these parts.
fn message(kind: u16, flags: u16, seq: u32, port: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((16 + body.len() as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(seq.to_ne_bytes());
    out.extend(port.to_ne_bytes());
    out.extend(body);
    out
}

fn attr(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Makes a request that `wire` wrote into a message of the kernel.
fn from_request(bytes: &mut [u8], kind: u16, flags: u16, port: u32) {
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&port.to_ne_bytes());
}

/// The acknowledgement of a request, or its error.
pub(super) fn ack(errno: i32, request: &[u8], seq: u32, port: u32) -> Vec<u8> {
    let mut body = (-errno).to_ne_bytes().to_vec();
    body.extend(&request[..16]);
    message(NLMSG_ERROR, NLM_F_CAPPED, seq, port, &body)
}

/// The end of a dump.
pub(super) fn done(errno: i32, flags: u16, seq: u32, port: u32) -> Vec<u8> {
    message(NLMSG_DONE, NLM_F_MULTI | flags, seq, port, &(-errno).to_ne_bytes())
}

pub(super) fn link(index: u32, link: &Link, kind: u16, flags: u16, seq: u32, port: u32) -> Vec<u8> {
    let mut body = vec![AF_UNSPEC, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(link.flags().to_ne_bytes());
    body.extend([0; 4]);
    attr(&mut body, IFLA_IFNAME, &[link.name.as_bytes(), &[0]].concat());
    attr(&mut body, IFLA_MTU, &1500_u32.to_ne_bytes());
    attr(&mut body, IFLA_CARRIER_DOWN_COUNT, &link.carrier_downs.to_ne_bytes());
    message(kind, flags, seq, port, &body)
}

pub(super) fn address(
    index: u32,
    address: IpAddr,
    len: u8,
    kind: u16,
    flags: u16,
    seq: u32,
    port: u32,
) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut body = vec![family, len, 0, 0];
    body.extend(index.to_ne_bytes());
    attr(&mut body, IFA_ADDRESS, &bytes);
    if family == AF_INET {
        attr(&mut body, IFA_LOCAL, &bytes);
    }
    message(kind, flags, seq, port, &body)
}

pub(super) fn object(id: u32, object: &Object, kind: u16, flags: u16, seq: u32, port: u32) -> Vec<u8> {
    let forward = match &object.content {
        ObjectContent::Blackhole(afi) => Forward::Blackhole(*afi),
        ObjectContent::Via(afi, via) => Forward::Via(*afi, *via),
        ObjectContent::Group(members) => Forward::Group(Members::from(&members[..])),
    };
    let mut out = Vec::new();
    let written = NextHop { id, protocol: object.protocol, forward }.write_new(&mut out, 0, seq);
    debug_assert!(written.is_ok() && kind <= RTM_DELNEXTHOP);
    from_request(&mut out, kind, flags, port);
    out
}

pub(super) fn route(
    state: &State,
    (prefix, table, entry): (AnyPrefix, u32, &RouteEntry),
    kind: u16,
    flags: u16,
    seq: u32,
    port: u32,
) -> Vec<u8> {
    let hop = match entry.forward {
        RouteForward::Via(via) => Some(Hop { via, weight: 1 }),
        _ => None,
    };
    let next_hops = match entry.forward {
        RouteForward::Drop => NextHops::None,
        RouteForward::Object(id) => NextHops::Id(id),
        RouteForward::Via(_) => NextHops::Inline(Hops::from(hop.as_slice())),
    };
    let mut route = Route::new(prefix, table, entry.protocol, next_hops);
    route.kind = entry.kind;
    if matches!(entry.forward, RouteForward::Object(id) if state.drops(id)) {
        route.kind = RouteKind::Blackhole;
    }
    route.scope = entry.scope;
    route.metric = Some(entry.metric).filter(|metric| *metric != 0);
    route.prefsrc = entry.source;
    let mut out = Vec::new();
    let written = route.write_new(&mut out, 0, seq);
    debug_assert!(written.is_ok() && kind <= RTM_DELROUTE);
    from_request(&mut out, kind, flags, port);
    out
}
