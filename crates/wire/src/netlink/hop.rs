//! Next hops written into a route: one, or the list of a multipath route.

use super::build::Builder;
use super::label::Labels;
use super::numbers::{
    LWTUNNEL_ENCAP_MPLS, RTA_ENCAP, RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_MULTIPATH, RTA_NEWDST, RTA_OIF, RTA_VIA,
    RTNH_F_ONLINK,
};
use super::{Attr, Attrs, Malformed};
use ribtide_prefix::Afi;
use std::net::IpAddr;

/// The next hop of a packet: a gateway, an interface or both.
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
    /// The next hop.
    pub via: Via,
    /// Share of the traffic relative to the route's other hops. At least 1; a route without a list of hops has 1.
    /// On the wire it has 8 bits, so writing cuts it to 256.
    pub weight: u16,
}

/// The next hops of one route: an iterator over received ones, or over a slice. [`Hops::labelled`]
/// adds their labels.
#[derive(Clone, Copy)]
pub struct Hops<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    One(Option<Hop>, Labels<'a>),
    /// The value of `RTA_MULTIPATH`, checked by `check`.
    Wire(&'a [u8]),
    Slice(&'a [Hop]),
    Labelled(&'a [(Hop, &'a [u32])]),
}

impl<'a> Hops<'a> {
    pub(super) fn one(via: Via, labels: Labels<'a>) -> Self {
        Hops(Form::One(Some(Hop { via, weight: 1 }), labels))
    }

    /// The hops, each with its labels.
    pub fn labelled(mut self) -> impl Iterator<Item = (Hop, Labels<'a>)> {
        std::iter::from_fn(move || self.next_labelled())
    }

    /// The hops of a received list, each with the type of its encapsulation (0: none) and the value of `RTA_ENCAP`. Of another list,
    /// and of the single next hop of a route, which has these itself, there are none.
    pub fn encapsulated(self) -> impl Iterator<Item = (Hop, u16, &'a [u8])> {
        let mut bytes = self.bytes().unwrap_or_default();
        std::iter::from_fn(move || {
            let Received { hop, encap, encapsulation, rest, .. } = read(bytes).ok()?;
            bytes = rest;
            Some((hop, encap, encapsulation.map_or(&[][..], |attr| attr.value)))
        })
    }

    fn next_labelled(&mut self) -> Option<(Hop, Labels<'a>)> {
        match &mut self.0 {
            Form::One(hop, labels) => hop.take().map(|hop| (hop, *labels)),
            Form::Wire(bytes) => {
                let Received { hop, labels, rest, .. } = read(bytes).ok()?;
                *bytes = rest;
                Some((hop, labels))
            }
            Form::Slice(hops) => {
                let (hop, rest) = hops.split_first()?;
                *hops = rest;
                Some((*hop, Labels::NONE))
            }
            Form::Labelled(hops) => {
                let ((hop, labels), rest) = hops.split_first()?;
                *hops = rest;
                Some((*hop, Labels::from(*labels)))
            }
        }
    }

    /// The hops of an `RTA_MULTIPATH` attribute that was checked before. In another one, the first
    /// malformed hop ends the list.
    pub(super) fn wire(value: &'a [u8]) -> Self {
        Hops(Form::Wire(value))
    }

    /// The list as received, if it was received; equal bytes are equal lists.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self.0 {
            Form::Wire(value) => Some(value),
            Form::One(..) | Form::Slice(_) | Form::Labelled(_) => None,
        }
    }

    /// The hops of an `RTA_MULTIPATH` attribute, and the first encapsulation type in it (0: none).
    /// MPLS, which is supported, is returned only when no other type is present.
    pub(super) fn check(value: &'a [u8]) -> Result<(Self, u16), Malformed> {
        let mut rest = value;
        let mut encap = 0;
        while !rest.is_empty() {
            let hop = read(rest)?;
            if hop.encap != 0 && matches!(encap, 0 | LWTUNNEL_ENCAP_MPLS) {
                encap = hop.encap;
            }
            rest = hop.rest;
        }
        Ok((Hops::wire(value), encap))
    }

    /// Writes the hops into a route of family `afi`, `None` for the route of a label. A list of one
    /// is written as plain attributes, which every consumer supports.
    pub(super) fn write(self, b: &mut Builder<'_>, afi: Option<Afi>) {
        let mut ahead = self;
        let (first, second) = (ahead.next_labelled(), ahead.next_labelled());
        match (first, second) {
            (None, _) => {}
            (Some((hop, labels)), None) => {
                write_hop(b, afi, hop.via.gateway, labels);
                if hop.via.ifindex != 0 {
                    b.attr_u32(RTA_OIF, hop.via.ifindex);
                }
            }
            _ => {
                let list = b.open(RTA_MULTIPATH);
                for (hop, labels) in self.labelled() {
                    let at = b.open_raw();
                    let weight = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
                    b.bytes(&[if hop.via.onlink { RTNH_F_ONLINK } else { 0 }, weight]);
                    b.bytes(&hop.via.ifindex.to_ne_bytes());
                    write_hop(b, afi, hop.via.gateway, labels);
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

/// Next hops of one's own, each with its labels, outermost first.
impl<'a> From<&'a [(Hop, &'a [u32])]> for Hops<'a> {
    fn from(hops: &'a [(Hop, &'a [u32])]) -> Self {
        Hops(Form::Labelled(hops))
    }
}

impl Iterator for Hops<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        self.next_labelled().map(|(hop, _)| hop)
    }
}

impl PartialEq for Hops<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.labelled().eq(other.labelled())
    }
}

impl Eq for Hops<'_> {}

impl std::fmt::Debug for Hops<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.labelled()).finish()
    }
}

/// One `rtnexthop` with its attributes.
struct Received<'a> {
    hop: Hop,
    /// The encapsulation type; 0 without.
    encap: u16,
    /// Its attribute, if there is one.
    encapsulation: Option<Attr<'a>>,
    labels: Labels<'a>,
    /// The bytes after it.
    rest: &'a [u8],
}

fn read(bytes: &[u8]) -> Result<Received<'_>, Malformed> {
    let Some(&[l0, l1, flags, weight, i0, i1, i2, i3]) = bytes.first_chunk() else {
        return Err(Malformed("a multipath next hop is cut short"));
    };
    let len = usize::from(u16::from_ne_bytes([l0, l1]));
    let attrs = bytes.get(8..len).ok_or(Malformed("a multipath next hop's length does not fit the list"))?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    let (mut encap, mut encapsulation, mut labels) = (0, None, Labels::NONE);
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
            RTA_ENCAP => encapsulation = Some(attr),
            RTA_NEWDST => labels = Labels::read(attr.value)?,
            _ => {}
        }
    }
    if encap == LWTUNNEL_ENCAP_MPLS {
        labels = Labels::in_encap(encapsulation)?;
    }
    Ok(Received { hop: Hop { via, weight: u16::from(weight) + 1 }, encap, encapsulation, labels, rest })
}

/// A gateway of the route's own family has an attribute without a family; another one needs the
/// attribute that names the family. Labels are an encapsulation in an IP route, and the new
/// destination in the route of a label.
fn write_hop(b: &mut Builder<'_>, afi: Option<Afi>, gateway: Option<IpAddr>, labels: Labels<'_>) {
    match (labels.is_empty(), afi) {
        (true, _) => {}
        (false, Some(_)) => labels.write_encap(b),
        (false, None) => labels.write(b, RTA_NEWDST),
    }
    let Some(gateway) = gateway else { return };
    if Some(super::route::afi_of(gateway)) == afi {
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
