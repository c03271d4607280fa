//! Next-hop objects: `RTM_NEWNEXTHOP` and `RTM_DELNEXTHOP`. Routes refer to them by id, so one
//! message changes the forwarding of all their routes.

use super::build::{Builder, TooLong};
use super::numbers::*;
use super::route::{afi_of, family};
use super::{Attrs, Malformed, Message, Via};
use ribtide_prefix::Afi;

/// A next-hop object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop<'a> {
    /// Its id, never 0. In the kernel ids are shared by all programs of a network namespace.
    pub id: u32,
    /// Its creator: `RTPROT_*`.
    pub protocol: u8,
    /// Its action.
    pub forward: Forward<'a>,
}

/// The action of a next-hop object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward<'a> {
    /// Drops them. IPv6 routes can only use an object of family IPv6; IPv4 routes can use either.
    Blackhole(Afi),
    /// Sends them to one next hop. The family matters only without a gateway; the rule above
    /// applies.
    Via(Afi, Via),
    /// Shares them among other objects.
    Group(Members<'a>),
    /// An unsupported object (for bridges, or an encapsulation).
    Other,
}

impl Forward<'_> {
    /// A single next hop. The family is the gateway's, or IPv6 for an interface alone, which routes
    /// of both families can use.
    pub fn via(via: Via) -> Self {
        Forward::Via(via.gateway.map_or(Afi::Ipv6, afi_of), via)
    }
}

/// A member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    /// The id of a single object.
    pub id: u32,
    /// Share of the traffic, at least 1. Kernels before 6.12 refuse more than 256.
    pub weight: u16,
}

/// The members of a group: an iterator over received ones, or over a slice.
#[derive(Clone, Copy)]
pub struct Members<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Wire(&'a [[u8; 8]]),
    Slice(&'a [Member]),
}

impl<'a> From<&'a [Member]> for Members<'a> {
    fn from(members: &'a [Member]) -> Self {
        Members(Form::Slice(members))
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        match &mut self.0 {
            Form::Wire(entries) => {
                let (&[i0, i1, i2, i3, low, high, _, _], rest) = entries.split_first()?;
                *entries = rest;
                let weight = u16::from_le_bytes([low, high]).saturating_add(1);
                Some(Member { id: u32::from_ne_bytes([i0, i1, i2, i3]), weight })
            }
            Form::Slice(members) => {
                let (member, rest) = members.split_first()?;
                *members = rest;
                Some(*member)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = match self.0 {
            Form::Wire(entries) => entries.len(),
            Form::Slice(members) => members.len(),
        };
        (n, Some(n))
    }
}

impl ExactSizeIterator for Members<'_> {}

impl PartialEq for Members<'_> {
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl Eq for Members<'_> {}

impl std::fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl<'a> NextHop<'a> {
    /// Reads the body of `RTM_NEWNEXTHOP` or `RTM_DELNEXTHOP`.
    pub(super) fn decode(message: &Message<'a>) -> Result<Self, Malformed> {
        let Some((&[fam, _, protocol, _, f0, f1, f2, f3], attrs)) = message.body.split_first_chunk() else {
            return Err(Malformed("a next-hop message is shorter than its fixed part"));
        };
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let afi = match fam {
            AF_INET => Some(Afi::Ipv4),
            AF_INET6 => Some(Afi::Ipv6),
            _ => None,
        };
        let mut id = None;
        let mut group = None;
        let mut blackhole = false;
        let mut via = Via { gateway: None, ifindex: 0, onlink: flags & u32::from(RTNH_F_ONLINK) != 0 };
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                NHA_ID => id = Some(attr.u32()?),
                NHA_GROUP => {
                    let (entries, rest) = attr.value.as_chunks::<8>();
                    if !rest.is_empty() {
                        return Err(Malformed("a next-hop group is not a whole number of members"));
                    }
                    group = Some(Members(Form::Wire(entries)));
                }
                NHA_BLACKHOLE => blackhole = true,
                NHA_OIF => via.ifindex = attr.u32()?,
                NHA_GATEWAY => via.gateway = Some(attr.addr()?),
                _ => {}
            }
        }
        let id = id.filter(|id| *id != 0).ok_or(Malformed("a next-hop object has no id"))?;
        let forward = match (group, afi) {
            (Some(members), _) => Forward::Group(members),
            (None, Some(afi)) if blackhole => Forward::Blackhole(afi),
            (None, Some(afi)) if via.gateway.is_some() || via.ifindex != 0 => Forward::Via(afi, via),
            _ => Forward::Other,
        };
        Ok(NextHop { id, protocol, forward })
    }

    /// Appends `RTM_NEWNEXTHOP` to `out`. `flags` are `NLM_F_*`; `NLM_F_REQUEST` is added. [`Forward::Other`] writes
    /// an object without content, which the kernel refuses.
    pub fn write_new(&self, out: &mut Vec<u8>, flags: u16, seq: u32) -> Result<(), TooLong> {
        let mut nh_flags = 0;
        let fam = match self.forward {
            Forward::Blackhole(afi) => family(afi),
            Forward::Via(afi, via) => {
                if via.onlink {
                    nh_flags = u32::from(RTNH_F_ONLINK);
                }
                family(via.gateway.map_or(afi, afi_of))
            }
            Forward::Group(_) | Forward::Other => AF_UNSPEC,
        };
        let [f0, f1, f2, f3] = nh_flags.to_ne_bytes();
        let fixed = [fam, RT_SCOPE_UNIVERSE, self.protocol, 0, f0, f1, f2, f3];
        let mut b = Builder::new(out, RTM_NEWNEXTHOP, flags | NLM_F_REQUEST, seq, &fixed);
        b.attr_u32(NHA_ID, self.id);
        match self.forward {
            Forward::Blackhole(_) => b.attr(NHA_BLACKHOLE, &[]),
            Forward::Via(_, via) => {
                if let Some(gateway) = via.gateway {
                    b.attr_addr(NHA_GATEWAY, gateway);
                }
                if via.ifindex != 0 {
                    b.attr_u32(NHA_OIF, via.ifindex);
                }
            }
            Forward::Group(members) => {
                let at = b.open(NHA_GROUP);
                for member in members {
                    b.bytes(&member.id.to_ne_bytes());
                    // The low byte comes first on every machine: the kernel has two fields of one
                    // byte.
                    b.bytes(&member.weight.saturating_sub(1).to_le_bytes());
                    b.bytes(&[0; 2]);
                }
                b.close(at);
            }
            Forward::Other => {}
        }
        b.finish()
    }
}

/// Appends `RTM_DELNEXTHOP` of object `id` to `out`.
pub fn write_next_hop_delete(out: &mut Vec<u8>, id: u32, flags: u16, seq: u32) {
    let mut b = Builder::new(out, RTM_DELNEXTHOP, flags | NLM_F_REQUEST, seq, &[0; 8]);
    b.attr_u32(NHA_ID, id);
    b.finish_short();
}
