//! MPLS: stacks of labels, and the routes of labels (`AF_MPLS`).
//!
//! The route of a label applies to packets with this outermost label. The label is removed, and
//! each next hop's labels (`RTA_NEWDST`) are added. A next hop of an IP route may add labels too,
//! as an encapsulation.

use super::build::{Builder, TooLong};
use super::numbers::*;
use super::route::{NextHops, RouteKind, table_byte};
use super::{Attr, Attrs, Hops, Malformed, Message, Via};

/// The highest label: it has 20 bits (RFC 3032, section 2.1).
pub const LABEL_MAX: u32 = (1 << 20) - 1;
/// The bottom-of-stack bit of a label stack entry (RFC 3032).
const BOTTOM: u32 = 1 << 8;

/// A stack of labels, outermost first: an iterator over a received one, or over a slice.
#[derive(Clone, Copy)]
pub struct Labels<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    /// Label stack entries, checked by `read`.
    Wire(&'a [[u8; 4]]),
    Slice(&'a [u32]),
}

impl<'a> Labels<'a> {
    /// No label.
    pub const NONE: Labels<'static> = Labels(Form::Slice(&[]));

    /// Whether there is no label left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads label stack entries: at least one, and exactly the last is marked as the bottom.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, Malformed> {
        let (entries, rest) = value.as_chunks::<4>();
        let Some((last, above)) = entries.split_last().filter(|_| rest.is_empty()) else {
            return Err(Malformed("a label stack is not a whole number of entries"));
        };
        let is_bottom = |entry: &[u8; 4]| u32::from_be_bytes(*entry) & BOTTOM != 0;
        if !is_bottom(last) || above.iter().any(is_bottom) {
            return Err(Malformed("a label stack does not end at its bottom bit"));
        }
        Ok(Labels(Form::Wire(entries)))
    }

    /// Writes the stack as an attribute. Of a label the lower 20 bits count.
    pub(super) fn write(self, b: &mut Builder<'_>, kind: u16) {
        let at = b.open(kind);
        let mut left = self;
        while let Some(label) = left.next() {
            let bottom = if left.is_empty() { BOTTOM } else { 0 };
            b.bytes(&((label & LABEL_MAX) << 12 | bottom).to_be_bytes());
        }
        b.close(at);
    }

    /// The labels in `RTA_ENCAP` of a route or a next hop with `LWTUNNEL_ENCAP_MPLS`.
    pub(super) fn in_encap(encap: Option<Attr<'a>>) -> Result<Self, Malformed> {
        let none = Malformed("an MPLS encapsulation has no labels");
        for attr in encap.ok_or(none)?.nested() {
            let attr = attr?;
            if attr.kind == MPLS_IPTUNNEL_DST {
                return Labels::read(attr.value);
            }
        }
        Err(none)
    }

    /// Writes the stack as the encapsulation of a next hop of an IP route.
    pub(super) fn write_encap(self, b: &mut Builder<'_>) {
        b.attr(RTA_ENCAP_TYPE, &LWTUNNEL_ENCAP_MPLS.to_ne_bytes());
        let at = b.open(RTA_ENCAP);
        self.write(b, MPLS_IPTUNNEL_DST);
        b.close(at);
    }
}

impl<'a> From<&'a [u32]> for Labels<'a> {
    fn from(labels: &'a [u32]) -> Self {
        Labels(Form::Slice(labels))
    }
}

impl Iterator for Labels<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            Form::Wire(entries) => {
                let (entry, rest) = entries.split_first()?;
                *entries = rest;
                Some(u32::from_be_bytes(*entry) >> 12)
            }
            Form::Slice(labels) => {
                let (label, rest) = labels.split_first()?;
                *labels = rest;
                Some(*label)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = match self.0 {
            Form::Wire(entries) => entries.len(),
            Form::Slice(labels) => labels.len(),
        };
        (n, Some(n))
    }
}

impl ExactSizeIterator for Labels<'_> {}

impl PartialEq for Labels<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Labels<'_> {}

impl std::fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// The route of a label as a message carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelRoute<'a> {
    /// The label that packets arrive with.
    pub label: u32,
    /// 0, or what a [`Route`](super::Route) would have here. Labels are a table of their own all the same.
    pub table: u32,
    /// Who installed it: `RTPROT_*`.
    pub protocol: u8,
    /// What happens to packets.
    pub kind: RouteKind,
    /// `RTM_F_*`.
    pub flags: u32,
    /// Where packets go; the labels of each next hop replace `label`, and without any it is only taken off.
    pub next_hops: NextHops<'a>,
}

impl<'a> LabelRoute<'a> {
    /// A unicast route of `protocol`.
    pub fn new(label: u32, protocol: u8, next_hops: NextHops<'a>) -> Self {
        LabelRoute { label, table: 0, protocol, kind: RouteKind::Unicast, flags: 0, next_hops }
    }

    /// Reads the body of `RTM_NEWROUTE` or `RTM_DELROUTE`; `None` when the route is not of a label.
    pub(super) fn decode(message: &Message<'a>) -> Result<Option<Self>, Malformed> {
        let Some((&[AF_MPLS, _, _, _, table, protocol, _, kind, f0, f1, f2, f3], attrs)) =
            message.body.split_first_chunk()
        else {
            return Ok(None);
        };
        let mut route = LabelRoute {
            label: 0,
            table: u32::from(table),
            protocol,
            kind: RouteKind::from_u8(kind),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            next_hops: NextHops::None,
        };
        let mut dst = None;
        let mut via = Via { gateway: None, ifindex: 0, onlink: false };
        let (mut labels, mut id, mut list) = (Labels::NONE, None, None);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                RTA_DST => dst = Some(Labels::read(attr.value)?),
                RTA_TABLE => route.table = attr.u32()?,
                RTA_OIF => via.ifindex = attr.u32()?,
                RTA_GATEWAY => via.gateway = Some(attr.addr()?),
                RTA_VIA => via.gateway = Some(attr.via()?),
                RTA_NEWDST => labels = Labels::read(attr.value)?,
                RTA_MULTIPATH => list = Some(Hops::check(attr.value)?.0),
                RTA_NH_ID => id = Some(attr.u32()?),
                _ => {}
            }
        }
        let mut dst = dst.ok_or(Malformed("a label's route does not name its label"))?;
        route.label =
            dst.next().filter(|_| dst.is_empty()).ok_or(Malformed("a route is of several labels"))?;
        route.next_hops = match (id, list) {
            (Some(id), _) if id != 0 => NextHops::Id(id),
            (_, Some(hops)) => NextHops::Inline(hops),
            _ if via.gateway.is_some() || via.ifindex != 0 => NextHops::Inline(Hops::one(via, labels)),
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
        let [f0, f1, f2, f3] = self.flags.to_ne_bytes();
        let (table, long_table) = table_byte(self.table);
        let fixed =
            [AF_MPLS, 20, 0, 0, table, self.protocol, RT_SCOPE_UNIVERSE, self.kind.to_u8(), f0, f1, f2, f3];
        let mut b = Builder::new(out, kind, flags | NLM_F_REQUEST, seq, &fixed);
        Labels::from(&[self.label][..]).write(&mut b, RTA_DST);
        if long_table {
            b.attr_u32(RTA_TABLE, self.table);
        }
        match self.next_hops {
            NextHops::None => {}
            NextHops::Id(id) => b.attr_u32(RTA_NH_ID, id),
            NextHops::Inline(hops) => hops.write(&mut b, None),
        }
        b.finish()
    }
}
