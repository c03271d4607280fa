//! Routes: `RTM_NEWROUTE` and `RTM_DELROUTE` of IPv4 and IPv6.

use super::build::{Builder, TooLong};
use super::numbers::*;
use super::{Attrs, Hops, Labels, Malformed, Message, Via};
use ribtide_prefix::{Afi, AnyPrefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A route as a message carries it. To write one, fill the fields; those a message does not carry have their
/// `rtmsg` default ([`Route::new`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route<'a> {
    /// The destination.
    pub prefix: AnyPrefix,
    /// The kernel's table, or in SONiC's FPM the interface index of the VRF (0: the default one).
    pub table: u32,
    /// The type of service of packets that it is for; 0: any. Only decoded.
    pub tos: u8,
    /// Its creator: `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Its action.
    pub kind: RouteKind,
    /// `RTM_F_*`, and for a route with one inline next hop `RTNH_F_*` in the low byte.
    pub flags: u32,
    /// The metric. In a kernel table, routes of one prefix differ in it.
    pub metric: Option<u32>,
    /// The preferred source address of locally created packets.
    pub prefsrc: Option<IpAddr>,
    /// `RTA_ENCAP_TYPE` of the route or of its next hops, preferably another type than MPLS; 0
    /// without. Only decoded: writing emits labels of next hops and no other encapsulation.
    pub encap: u16,
    /// The value of the route's own `RTA_ENCAP`; empty without, and for a list of next hops
    /// ([`Hops::encapsulated`]). Only decoded.
    pub encapsulation: &'a [u8],
    /// The next hops.
    pub next_hops: NextHops<'a>,
    /// The reason of the hardware's refusal, as a sentence: between ribtide and its `fpmsyncd`
    /// ([`RTA_WHY`]).
    pub why: Option<&'a str>,
}

/// A route's next hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHops<'a> {
    /// None: a blackhole, or a deletion.
    None,
    /// The next-hop object with this id. A copy of it that the kernel adds inline is ignored.
    Id(u32),
    /// Inline next hops.
    Inline(Hops<'a>),
}

/// The action of a route (`RTN_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// Forwards them.
    Unicast,
    /// Delivers them locally: an own address.
    Local,
    /// A broadcast address.
    Broadcast,
    /// A multicast group.
    Multicast,
    /// Drops them silently.
    Blackhole,
    /// Drops them with ICMP unreachable.
    Unreachable,
    /// Drops them with ICMP prohibited.
    Prohibit,
    /// Another, by its number.
    Other(u8),
}

impl RouteKind {
    pub(super) fn from_u8(n: u8) -> RouteKind {
        match n {
            RTN_UNICAST => RouteKind::Unicast,
            RTN_LOCAL => RouteKind::Local,
            RTN_BROADCAST => RouteKind::Broadcast,
            RTN_MULTICAST => RouteKind::Multicast,
            RTN_BLACKHOLE => RouteKind::Blackhole,
            RTN_UNREACHABLE => RouteKind::Unreachable,
            RTN_PROHIBIT => RouteKind::Prohibit,
            other => RouteKind::Other(other),
        }
    }

    pub(super) fn to_u8(self) -> u8 {
        match self {
            RouteKind::Unicast => RTN_UNICAST,
            RouteKind::Local => RTN_LOCAL,
            RouteKind::Broadcast => RTN_BROADCAST,
            RouteKind::Multicast => RTN_MULTICAST,
            RouteKind::Blackhole => RTN_BLACKHOLE,
            RouteKind::Unreachable => RTN_UNREACHABLE,
            RouteKind::Prohibit => RTN_PROHIBIT,
            RouteKind::Other(n) => n,
        }
    }
}

/// Where the fixed part has the length of the source prefix.
const SOURCE_LENGTH: usize = 2;

impl<'a> Route<'a> {
    /// A unicast route of `table` and `protocol`; scope universe, no flags, no metric.
    pub fn new(prefix: AnyPrefix, table: u32, protocol: u8, next_hops: NextHops<'a>) -> Self {
        Route {
            prefix,
            table,
            tos: 0,
            protocol,
            scope: RT_SCOPE_UNIVERSE,
            kind: RouteKind::Unicast,
            flags: 0,
            metric: None,
            prefsrc: None,
            encap: 0,
            encapsulation: &[],
            next_hops,
            why: None,
        }
    }

    /// The key of a deletion: a route of `table` and `protocol`, whatever it does. The kernel deletes
    /// an IPv4 route only if the kind and the scope of the request match.
    pub fn deletion(prefix: AnyPrefix, table: u32, protocol: u8) -> Self {
        let route = Route::new(prefix, table, protocol, NextHops::None);
        Route { kind: RouteKind::Other(RTN_UNSPEC), scope: RT_SCOPE_NOWHERE, ..route }
    }

    /// Whether the hardware has the route (`RTM_F_OFFLOAD`).
    pub fn offloaded(&self) -> bool {
        self.flags & RTM_F_OFFLOAD != 0
    }

    /// Whether the hardware refused the route (`RTM_F_OFFLOAD_FAILED`).
    pub fn offload_failed(&self) -> bool {
        self.flags & RTM_F_OFFLOAD_FAILED != 0
    }

    /// Reads the body of `RTM_NEWROUTE` or `RTM_DELROUTE`; `None` for a family that is not IP.
    pub(super) fn decode(message: &Message<'a>) -> Result<Option<Self>, Malformed> {
        // A route for packets from some sources is no route of its destination.
        let source_specific = message.body.get(SOURCE_LENGTH).is_some_and(|bits| *bits != 0);
        if source_specific { Ok(None) } else { Self::decode_knowing(message, |_| false) }
    }

    /// The same for a reader with a cache of next-hop lists by their bytes ([`Hops::bytes`]). A
    /// list that is `known` is not parsed again, which saves time when thousands of routes share
    /// hundreds of next hops. Its encapsulation is not reported, so such lists must not be cached
    /// by a reader that needs it.
    /// # Errors
    /// The fault of the message; a known list is not checked.
    pub fn decode_knowing(
        message: &Message<'a>,
        mut known: impl FnMut(&'a [u8]) -> bool,
    ) -> Result<Option<Self>, Malformed> {
        let Some((&[family, dst_len, _, tos, table, protocol, scope, kind, f0, f1, f2, f3], attrs)) =
            message.body.split_first_chunk()
        else {
            return Err(Malformed("a route message is shorter than its fixed part"));
        };
        let mut dst = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return Ok(None),
        };
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let mut has_dst = false;
        let mut via = Via { gateway: None, ifindex: 0, onlink: flags & u32::from(RTNH_F_ONLINK) != 0 };
        let mut id = None;
        let mut list = None;
        let mut encapsulation = None;
        // The prefix is set below, after the whole message was read.
        let mut route = Route::new(AnyPrefix::host(dst), u32::from(table), protocol, NextHops::None);
        (route.tos, route.scope) = (tos, scope);
        route.kind = RouteKind::from_u8(kind);
        route.flags = flags;
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                RTA_DST => {
                    let given = attr.addr()?;
                    if given.is_ipv4() != dst.is_ipv4() {
                        return Err(Malformed("a route's destination is not of the route's family"));
                    }
                    (dst, has_dst) = (given, true);
                }
                RTA_TABLE => route.table = attr.u32()?,
                RTA_PRIORITY => route.metric = Some(attr.u32()?),
                RTA_PREFSRC => route.prefsrc = Some(attr.addr()?),
                RTA_OIF => via.ifindex = attr.u32()?,
                RTA_GATEWAY => via.gateway = Some(attr.addr()?),
                RTA_VIA => via.gateway = Some(attr.via()?),
                RTA_MULTIPATH => {
                    let (hops, encap) = match known(attr.value) {
                        true => (Hops::wire(attr.value), 0),
                        false => Hops::check(attr.value)?,
                    };
                    list = Some(hops);
                    if route.encap == 0 {
                        route.encap = encap;
                    }
                }
                RTA_ENCAP_TYPE => route.encap = attr.u16()?,
                RTA_ENCAP => (encapsulation, route.encapsulation) = (Some(attr), attr.value),
                RTA_NH_ID => id = Some(attr.u32()?),
                RTA_WHY => route.why = Some(attr.text()),
                _ => {}
            }
        }
        if dst_len > 0 && !has_dst {
            return Err(Malformed("a route has a length but no destination"));
        }
        route.prefix =
            AnyPrefix::from_addr(dst, dst_len).ok_or(Malformed("a route's length exceeds its family's"))?;
        route.next_hops = match (id, list) {
            (Some(id), _) if id != 0 => NextHops::Id(id),
            (_, Some(hops)) => NextHops::Inline(hops),
            _ if via.gateway.is_some() || via.ifindex != 0 => {
                let labels = match route.encap {
                    LWTUNNEL_ENCAP_MPLS => Labels::in_encap(encapsulation)?,
                    _ => Labels::NONE,
                };
                NextHops::Inline(Hops::one(via, labels))
            }
            _ => NextHops::None,
        };
        Ok(Some(route))
    }

    /// Appends `RTM_NEWROUTE` to `out`. `flags` are `NLM_F_*`; `NLM_F_REQUEST` is added.
    pub fn write_new(&self, out: &mut Vec<u8>, flags: u16, seq: u32) -> Result<(), TooLong> {
        self.write(out, RTM_NEWROUTE, flags, seq)
    }

    /// Appends `RTM_DELROUTE` to `out`.
    pub fn write_delete(&self, out: &mut Vec<u8>, flags: u16, seq: u32) -> Result<(), TooLong> {
        self.write(out, RTM_DELROUTE, flags, seq)
    }

    fn write(&self, out: &mut Vec<u8>, kind: u16, flags: u16, seq: u32) -> Result<(), TooLong> {
        let afi = self.prefix.afi();
        let mut flag_bits = self.flags;
        if let NextHops::Inline(hops) = self.next_hops {
            let mut ahead = hops;
            if let (Some(hop), None) = (ahead.next(), ahead.next())
                && hop.via.onlink
            {
                flag_bits |= u32::from(RTNH_F_ONLINK);
            }
        }
        let [f0, f1, f2, f3] = flag_bits.to_ne_bytes();
        let (table, long_table) = table_byte(self.table);
        let fixed = [
            family(afi),
            self.prefix.len(),
            0,
            0,
            table,
            self.protocol,
            self.scope,
            self.kind.to_u8(),
            f0,
            f1,
            f2,
            f3,
        ];
        let mut b = Builder::new(out, kind, flags | NLM_F_REQUEST, seq, &fixed);
        // Also for the default route: consumers with libnl print no route without it.
        b.attr_addr(RTA_DST, self.prefix.addr());
        if let Some(metric) = self.metric {
            b.attr_u32(RTA_PRIORITY, metric);
        }
        if long_table {
            b.attr_u32(RTA_TABLE, self.table);
        }
        if let Some(source) = self.prefsrc {
            b.attr_addr(RTA_PREFSRC, source);
        }
        match self.next_hops {
            NextHops::None => {}
            NextHops::Id(id) => b.attr_u32(RTA_NH_ID, id),
            NextHops::Inline(hops) => hops.write(&mut b, Some(afi)),
        }
        if let Some(why) = self.why {
            b.attr(RTA_WHY, why.as_bytes());
        }
        b.finish()
    }
}

/// The `AF_*` number of a family.
pub(super) fn family(afi: Afi) -> u8 {
    match afi {
        Afi::Ipv4 => AF_INET,
        Afi::Ipv6 => AF_INET6,
    }
}

/// The family of an address.
pub(super) fn afi_of(addr: IpAddr) -> Afi {
    match addr {
        IpAddr::V4(_) => Afi::Ipv4,
        IpAddr::V6(_) => Afi::Ipv6,
    }
}

/// A table's number as the fixed part of a message has it, and whether it needs an attribute of its own.
pub(super) fn table_byte(table: u32) -> (u8, bool) {
    u8::try_from(table).map_or((RT_TABLE_COMPAT, true), |table| (table, false))
}
