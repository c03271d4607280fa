//! Replies of SONiC's `fpmsyncd`: the received route again, with `RTM_F_OFFLOAD`.
//!
//! `sendOffloadReply` of `fpmsyncd/routesync.cpp` (sonic-swss) lets libnl 3.7 parse a route and build it again
//! (`rtnl_route_parse`, `rtnl_route_build_msg`), with SONiC's patch for `RTA_NH_ID`. libnl sends the attributes in its own order, each
//! table as an attribute, and each route of IP with a priority. A route with an encapsulation is sent back as it came.

use super::build::{Builder, TooLong};
use super::numbers::*;
use super::{Attrs, Malformed, Message};
use ribtide_prefix::AnyPrefix;

/// `RT_SCOPE_LINK`: libnl's guess for a unicast route without next hops.
const RT_SCOPE_LINK: u8 = 253;

/// The attributes of a route or of a next hop by number; a later one replaces an earlier one, as in libnl. Small, because each route
/// that a daemon announces is read once more for its reply.
struct ByNumber<'a> {
    bytes: &'a [u8],
    /// Where each value begins, and its length. The header of an attribute comes before it, so no value begins at 0.
    places: [(u16, u16); ByNumber::COUNT],
}

impl<'a> ByNumber<'a> {
    const COUNT: usize = RTA_NH_ID as usize + 1;

    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut found = ByNumber { bytes, places: [(0, 0); Self::COUNT] };
        let mut attrs = Attrs::new(bytes);
        loop {
            let at = bytes.len() - attrs.0.len() + 4;
            let Some(attr) = attrs.next() else { return Ok(found) };
            let attr = attr?;
            if let Some(place) = found.places.get_mut(usize::from(attr.kind)) {
                let long = |_| Malformed("a route message is too long for FPM");
                *place = (u16::try_from(at).map_err(long)?, u16::try_from(attr.value.len()).map_err(long)?);
            }
        }
    }

    fn get(&self, number: u16) -> Option<&'a [u8]> {
        let (at, len) = self.places.get(usize::from(number)).copied().filter(|(at, _)| *at != 0)?;
        self.bytes.get(usize::from(at)..usize::from(at) + usize::from(len))
    }

    /// Writes the attribute of this number, if there is one, with these flags.
    fn write(&self, number: u16, flags: u16, b: &mut Builder<'_>) {
        if let Some(value) = self.get(number) {
            b.attr(number | flags, value);
        }
    }

    /// Writes the attributes of these numbers.
    fn write_all(&self, numbers: &[u16], b: &mut Builder<'_>) {
        numbers.iter().for_each(|number| self.write(*number, 0, b));
    }

    fn write_encap(&self, b: &mut Builder<'_>) {
        self.write(RTA_ENCAP_TYPE, 0, b);
        self.write(RTA_ENCAP, NLA_F_NESTED, b);
    }
}

/// One `rtnexthop` of a list: its flags, its attributes, and what follows it.
struct ListedHop<'a> {
    flags: u8,
    hops: u8,
    ifindex: [u8; 4],
    attrs: ByNumber<'a>,
    rest: &'a [u8],
}

impl<'a> ListedHop<'a> {
    fn read(list: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed("a multipath next hop is cut short");
        let &[l0, l1, flags, hops, i0, i1, i2, i3] = list.first_chunk().ok_or(short)?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let attrs = ByNumber::read(list.get(8..len).ok_or(short)?)?;
        let rest = list.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Ok(ListedHop { flags, hops, ifindex: [i0, i1, i2, i3], attrs, rest })
    }
}

/// Why a reply is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoReply {
    /// The route is malformed.
    Malformed(Malformed),
    /// The reply would be too long for a message.
    TooLong,
}

impl From<Malformed> for NoReply {
    fn from(e: Malformed) -> Self {
        NoReply::Malformed(e)
    }
}

impl From<TooLong> for NoReply {
    fn from(_: TooLong) -> Self {
        NoReply::TooLong
    }
}

/// Appends the reply to the `RTM_NEWROUTE` of `message`, as libnl builds it.
///
/// # Errors
/// The message is malformed, or the reply would be too long. The caller then removes the appended bytes.
pub(crate) fn write_rebuilt(out: &mut Vec<u8>, message: &Message<'_>) -> Result<(), NoReply> {
    let Some((&[family, dst_len, src_len, tos, table, protocol, scope, kind, f0, f1, f2, f3], attrs)) =
        message.body.split_first_chunk()
    else {
        return Err(Malformed("a route message is shorter than its fixed part").into());
    };
    let attrs = ByNumber::read(attrs)?;
    let is_ip = family != AF_MPLS;
    let table = match attrs.get(RTA_TABLE).and_then(|value| value.first_chunk()) {
        Some(table) => u32::from_ne_bytes(*table),
        None => u32::from(table),
    };
    let list = attrs.get(RTA_MULTIPATH);
    let first = list.filter(|list| !list.is_empty()).map(ListedHop::read).transpose()?;
    let only = first.as_ref().filter(|hop| hop.rest.is_empty());
    let hop_flags = only.map_or(0, |hop| u32::from(hop.flags));
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]) | RTM_F_OFFLOAD | hop_flags;
    let [f0, f1, f2, f3] = flags.to_ne_bytes();
    // The byte is the low one of a table that does not fit; readers prefer the attribute.
    let fixed =
        [family, dst_len, src_len, tos, table.to_le_bytes()[0], protocol, scope, kind, f0, f1, f2, f3];
    let mut b = Builder::new(out, RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE, 0, &fixed);
    if is_ip {
        b.attr_u32(RTA_TABLE, table);
    }
    attrs.write(RTA_DST, 0, &mut b);
    match attrs.get(RTA_PRIORITY) {
        None if is_ip => b.attr_u32(RTA_PRIORITY, 0),
        _ => attrs.write(RTA_PRIORITY, 0, &mut b),
    }
    attrs.write_all(&[RTA_SRC, RTA_PREFSRC, RTA_IIF, RTA_TTL_PROPAGATE, RTA_NH_ID], &mut b);
    attrs.write(RTA_METRICS, NLA_F_NESTED, &mut b);
    match (list, only) {
        (None, _) => write_only_hop(&attrs, attrs.get(RTA_OIF), &mut b),
        (Some(_), Some(hop)) => write_only_hop(&hop.attrs, Some(&hop.ifindex), &mut b),
        (Some(list), None) => {
            let at = b.open(RTA_MULTIPATH | NLA_F_NESTED);
            let mut rest = list;
            while !rest.is_empty() {
                let hop = ListedHop::read(rest)?;
                rest = hop.rest;
                let at = b.open_raw();
                b.bytes(&[hop.flags, hop.hops]);
                b.bytes(&hop.ifindex);
                hop.attrs.write_all(&[RTA_GATEWAY, RTA_NEWDST, RTA_VIA, RTA_FLOW], &mut b);
                hop.attrs.write_encap(&mut b);
                b.close(at);
            }
            b.close(at);
        }
    }
    Ok(b.finish()?)
}

fn write_only_hop(attrs: &ByNumber<'_>, ifindex: Option<&[u8]>, b: &mut Builder<'_>) {
    attrs.write(RTA_GATEWAY, 0, b);
    if let Some(ifindex) = ifindex.filter(|index| index.iter().any(|byte| *byte != 0)) {
        b.attr(RTA_OIF, ifindex);
    }
    attrs.write_all(&[RTA_FLOW, RTA_NEWDST, RTA_VIA], b);
    attrs.write_encap(b);
}

/// Appends the reply to a route with an encapsulation: `message` itself, with the two flags.
///
/// # Errors
/// The message is malformed. Nothing was appended.
pub(crate) fn write_echo(out: &mut Vec<u8>, message: &Message<'_>) -> Result<(), NoReply> {
    let Some((&[a, b, c, d, e, f, g, h, f0, f1, f2, f3], attrs)) = message.body.split_first_chunk() else {
        return Err(Malformed("a route message is shorter than its fixed part").into());
    };
    let [f0, f1, f2, f3] = (u32::from_ne_bytes([f0, f1, f2, f3]) | RTM_F_OFFLOAD).to_ne_bytes();
    let fixed = [a, b, c, d, e, f, g, h, f0, f1, f2, f3];
    let echo = Message { flags: message.flags | NLM_F_REQUEST, body: &[], ..*message };
    echo.write(&[&fixed, attrs], out);
    Ok(())
}

/// Appends the reply to a route that orchagent confirmed: a new route of libnl, with nothing but its key.
pub(crate) fn write_confirmation(
    out: &mut Vec<u8>,
    prefix: AnyPrefix,
    table: u32,
    protocol: u8,
) -> Result<(), TooLong> {
    let [f0, f1, f2, f3] = RTM_F_OFFLOAD.to_ne_bytes();
    let fixed = [
        super::route::family(prefix.afi()),
        prefix.len(),
        0,
        0,
        table.to_le_bytes()[0],
        protocol,
        RT_SCOPE_LINK,
        RTN_UNICAST,
        f0,
        f1,
        f2,
        f3,
    ];
    let mut b = Builder::new(out, RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_CREATE, 0, &fixed);
    b.attr_u32(RTA_TABLE, table);
    b.attr_addr(RTA_DST, prefix.addr());
    b.finish()
}
