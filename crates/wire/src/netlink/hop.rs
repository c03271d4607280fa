//! Next hops written into a route: one, or the list of a multipath route.

use super::build::Builder;
use super::numbers::{RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_OIF, RTA_VIA, RTNH_F_ONLINK};
use super::{Attrs, Malformed};
use ribtide_prefix::Afi;
use std::net::IpAddr;

/// Where packets go: a gateway, an interface or both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Via {
    /// The neighbour; absent when the destination is on the interface's own network. May be IPv6 under an IPv4 route.
    pub gateway: Option<IpAddr>,
    /// The interface's index; 0 when the message names none.
    pub ifindex: u32,
    /// The gateway is a neighbour on the interface even when no address of the interface covers it.
    pub onlink: bool,
}

/// One next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// Where to.
    pub via: Via,
    /// Share of the traffic relative to the route's other hops. At least 1; a route without a list of hops has 1.
    /// On the wire it has 8 bits, so writing cuts it to 256.
    pub weight: u16,
}

/// The next hops of one route: an iterator over what was received, or over a slice of one's own.
#[derive(Clone, Copy)]
pub struct Hops<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    One(Option<Hop>),
    /// The value of `RTA_MULTIPATH`; `check` found it in order.
    Wire(&'a [u8]),
    Slice(&'a [Hop]),
}

impl<'a> Hops<'a> {
    pub(super) fn one(via: Via) -> Self {
        Hops(Form::One(Some(Hop { via, weight: 1 })))
    }

    /// The hops in an `RTA_MULTIPATH` attribute that was found in order before. In one that was not, the first malformed hop
    /// ends the list.
    pub(super) fn wire(value: &'a [u8]) -> Self {
        Hops(Form::Wire(value))
    }

    /// The list as it was received, if it was; equal bytes are equal lists.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self.0 {
            Form::Wire(value) => Some(value),
            Form::One(_) | Form::Slice(_) => None,
        }
    }

    /// The hops in an `RTA_MULTIPATH` attribute, and the first encapsulation type that one of them names (0: none).
    pub(super) fn check(value: &'a [u8]) -> Result<(Self, u16), Malformed> {
        let mut rest = value;
        let mut encap = 0;
        while !rest.is_empty() {
            let (_, hop_encap, after) = read(rest)?;
            if encap == 0 {
                encap = hop_encap;
            }
            rest = after;
        }
        Ok((Hops::wire(value), encap))
    }

    /// Writes the hops into a route of family `afi`: a list of one as plain attributes, as every consumer knows it.
    pub(super) fn write(self, b: &mut Builder<'_>, afi: Afi, list: u16) {
        let mut ahead = self;
        let (first, second) = (ahead.next(), ahead.next());
        match (first, second) {
            (None, _) => {}
            (Some(hop), None) => {
                write_gateway(b, afi, hop.via.gateway);
                if hop.via.ifindex != 0 {
                    b.attr_u32(RTA_OIF, hop.via.ifindex);
                }
            }
            _ => {
                let list = b.open(list);
                for hop in self {
                    let at = b.open_raw();
                    let weight = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
                    b.bytes(&[if hop.via.onlink { RTNH_F_ONLINK } else { 0 }, weight]);
                    b.bytes(&hop.via.ifindex.to_ne_bytes());
                    write_gateway(b, afi, hop.via.gateway);
                    b.close(at);
                }
                b.close(list);
            }
        }
    }
}

impl<'a> From<&'a [Hop]> for Hops<'a> {
    fn from(hops: &'a [Hop]) -> Self {
        Hops(Form::Slice(hops))
    }
}

impl Iterator for Hops<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        match &mut self.0 {
            Form::One(hop) => hop.take(),
            Form::Wire(bytes) => {
                let (hop, _, rest) = read(bytes).ok()?;
                *bytes = rest;
                Some(hop)
            }
            Form::Slice(hops) => {
                let (hop, rest) = hops.split_first()?;
                *hops = rest;
                Some(*hop)
            }
        }
    }
}

impl PartialEq for Hops<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Hops<'_> {}

impl std::fmt::Debug for Hops<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Reads one `rtnexthop` with its attributes: the hop, its encapsulation type, and the bytes after it.
fn read(bytes: &[u8]) -> Result<(Hop, u16, &[u8]), Malformed> {
    let Some(&[l0, l1, flags, weight, i0, i1, i2, i3]) = bytes.first_chunk() else {
        return Err(Malformed("a multipath next hop is cut short"));
    };
    let len = usize::from(u16::from_ne_bytes([l0, l1]));
    let attrs = bytes.get(8..len).ok_or(Malformed("a multipath next hop's length does not fit the list"))?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    let mut encap = 0;
    let mut via = Via {
        gateway: None,
        ifindex: u32::from_ne_bytes([i0, i1, i2, i3]),
        onlink: flags & RTNH_F_ONLINK != 0,
    };
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        match attr.kind {
            RTA_GATEWAY => via.gateway = Some(attr.addr()?),
            RTA_VIA => via.gateway = Some(attr.via()?),
            RTA_ENCAP_TYPE => encap = attr.u16()?,
            _ => {}
        }
    }
    Ok((Hop { via, weight: u16::from(weight) + 1 }, encap, rest))
}

/// A gateway of the route's own family has an attribute without a family, another needs the one that names it.
fn write_gateway(b: &mut Builder<'_>, afi: Afi, gateway: Option<IpAddr>) {
    let Some(gateway) = gateway else { return };
    if super::route::afi_of(gateway) == afi {
        b.attr_addr(RTA_GATEWAY, gateway);
    } else {
        let at = b.open(RTA_VIA);
        b.bytes(&u16::from(super::route::family(super::route::afi_of(gateway))).to_ne_bytes());
        match gateway {
            IpAddr::V4(a) => b.bytes(&a.octets()),
            IpAddr::V6(a) => b.bytes(&a.octets()),
        }
        b.close(at);
    }
}
