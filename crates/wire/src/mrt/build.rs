//! Writes MRT records.

use super::bgp4mp::afi_of;
use super::table_dump::{
    RIB_IPV4_UNICAST, RIB_IPV4_UNICAST_ADDPATH, RIB_IPV6_UNICAST, RIB_IPV6_UNICAST_ADDPATH,
};
use super::{BGP4MP, BGP4MP_ET, Bgp4mp, Peer, TABLE_DUMP_V2};
use crate::bgp::attribute::{code, flags};
use crate::bgp::{AS_TRANS, NextHop, build};
use ribtide_prefix::{Afi, AnyPrefix};
use std::net::{IpAddr, Ipv4Addr};

/// Appends a PEER_INDEX_TABLE record. Peers beyond the 65,535th are left out: an index cannot name them.
pub fn peer_index_table(out: &mut Vec<u8>, seconds: u32, collector: Ipv4Addr, peers: &[Peer]) {
    record(out, seconds, TABLE_DUMP_V2, 1, |out| {
        out.extend(collector.octets());
        out.extend(0u16.to_be_bytes());
        let count = u16::try_from(peers.len()).unwrap_or(u16::MAX);
        out.extend(count.to_be_bytes());
        for peer in peers.iter().take(usize::from(count)) {
            out.push(if peer.address.is_ipv6() { 3 } else { 2 });
            out.extend(peer.router_id.octets());
            push_addr(out, peer.address);
            out.extend(peer.asn.to_be_bytes());
        }
    });
}

/// Appends a RIB record with one entry for each `(peer index, originated, attributes)`. Attributes are in the form
/// [`Rib::FORM`](super::Rib::FORM); what exceeds a count's or a length's 65,535 is left out.
pub fn rib(out: &mut Vec<u8>, seconds: u32, sequence: u32, prefix: AnyPrefix, entries: &[(u16, u32, &[u8])]) {
    let subtype = match prefix.afi() {
        Afi::Ipv4 => RIB_IPV4_UNICAST,
        Afi::Ipv6 => RIB_IPV6_UNICAST,
    };
    record(out, seconds, TABLE_DUMP_V2, subtype, |out| {
        out.extend(sequence.to_be_bytes());
        push_prefix(out, prefix);
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        out.extend(count.to_be_bytes());
        for (peer, originated, attributes) in entries.iter().take(usize::from(count)) {
            out.extend(peer.to_be_bytes());
            out.extend(originated.to_be_bytes());
            push_attributes(out, attributes);
        }
    });
}

/// An entry of [`rib_add_path`]: peer index, originated time, path identifier, attributes.
pub type PathEntry<'a> = (u16, u32, u32, &'a [u8]);

/// As [`rib`] with a path identifier in each entry (RFC 8050 section 4.1).
pub fn rib_add_path(
    out: &mut Vec<u8>,
    seconds: u32,
    sequence: u32,
    prefix: AnyPrefix,
    entries: &[PathEntry<'_>],
) {
    let subtype = match prefix.afi() {
        Afi::Ipv4 => RIB_IPV4_UNICAST_ADDPATH,
        Afi::Ipv6 => RIB_IPV6_UNICAST_ADDPATH,
    };
    record(out, seconds, TABLE_DUMP_V2, subtype, |out| {
        out.extend(sequence.to_be_bytes());
        push_prefix(out, prefix);
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        out.extend(count.to_be_bytes());
        for (peer, originated, path_id, attributes) in entries.iter().take(usize::from(count)) {
            out.extend(peer.to_be_bytes());
            out.extend(originated.to_be_bytes());
            out.extend(path_id.to_be_bytes());
            push_attributes(out, attributes);
        }
    });
}

/// Appends NEXT_HOP, or MP_REACH_NLRI in the short form of table entries (RFC 6396 section 4.3.4), to attributes of
/// a prefix of family `afi`. An IPv6 prefix with an IPv4 next hop gets it as an IPv4-mapped address.
pub fn entry_next_hop(out: &mut Vec<u8>, afi: Afi, next_hop: NextHop) {
    let (global, link_local) = match (afi, next_hop) {
        (Afi::Ipv4, NextHop::V4(address)) => return build::next_hop(out, address),
        (Afi::Ipv6, NextHop::V4(address)) => (address.to_ipv6_mapped(), None),
        (_, NextHop::V6 { global, link_local }) => (global, link_local),
    };
    let mut value = vec![if link_local.is_some() { 32 } else { 16 }];
    value.extend(global.octets());
    value.extend(link_local.into_iter().flat_map(|address| address.octets()));
    build::attribute(out, flags::OPTIONAL, code::MP_REACH_NLRI, &value);
}

/// A time with microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Microseconds after them.
    pub microseconds: u32,
}

/// Appends a BGP4MP_ET record of a whole BGP message that was received (RFC 6396 section 4.4, RFC 8050 section 3): of
/// subtype MESSAGE_AS4, or MESSAGE with AS numbers of two octets in the message; with path identifiers, of their
/// ADDPATH variants.
pub fn message_et(
    out: &mut Vec<u8>,
    time: Time,
    session: &Bgp4mp,
    (four_octet_as, add_path): (bool, bool),
    bytes: &[u8],
) {
    let subtype = match (four_octet_as, add_path) {
        (false, false) => 1,
        (true, false) => 4,
        (false, true) => 8,
        (true, true) => 9,
    };
    whole_message_et(out, time, session, (subtype, four_octet_as), bytes);
}

/// The same of a message that the collector sent itself (RFC 6396 sections 4.4.5 and 4.4.6, RFC 8050 section 3).
pub fn local_message_et(
    out: &mut Vec<u8>,
    time: Time,
    session: &Bgp4mp,
    (four_octet_as, add_path): (bool, bool),
    bytes: &[u8],
) {
    let subtype = match (four_octet_as, add_path) {
        (false, false) => 6,
        (true, false) => 7,
        (false, true) => 10,
        (true, true) => 11,
    };
    whole_message_et(out, time, session, (subtype, four_octet_as), bytes);
}

fn whole_message_et(
    out: &mut Vec<u8>,
    time: Time,
    session: &Bgp4mp,
    (subtype, four_octet_as): (u16, bool),
    bytes: &[u8],
) {
    record_et(out, time, subtype, |out| {
        push_session(out, session, four_octet_as);
        out.extend(bytes);
    });
}

/// Appends a BGP4MP_ET record of subtype STATE_CHANGE_AS4: a session went from state `old` to `new`, numbered 1
/// (Idle) to 6 (Established) (RFC 6396 section 4.4.1).
pub fn state_change_et(out: &mut Vec<u8>, time: Time, session: &Bgp4mp, old: u16, new: u16) {
    record_et(out, time, 5, |out| {
        push_session(out, session, true);
        out.extend(old.to_be_bytes());
        out.extend(new.to_be_bytes());
    });
}

fn record_et(out: &mut Vec<u8>, time: Time, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    record(out, time.seconds, BGP4MP_ET, subtype, |out| {
        out.extend(time.microseconds.to_be_bytes());
        body(out);
    });
}

fn push_session(out: &mut Vec<u8>, session: &Bgp4mp, four_octet_as: bool) {
    for asn in [session.peer_asn, session.local_asn] {
        match four_octet_as {
            true => out.extend(asn.to_be_bytes()),
            false => out.extend(u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes()),
        }
    }
    out.extend(session.interface.to_be_bytes());
    out.extend((afi_of(session.peer) as u16).to_be_bytes());
    push_addr(out, session.peer);
    push_addr(out, session.local);
}

/// Appends a BGP4MP_MESSAGE_AS4 record of a whole BGP message, marker included.
pub fn message(out: &mut Vec<u8>, seconds: u32, session: &Bgp4mp, bytes: &[u8]) {
    record(out, seconds, BGP4MP, 4, |out| {
        push_session(out, session, true);
        out.extend(bytes);
    });
}

fn push_prefix(out: &mut Vec<u8>, prefix: AnyPrefix) {
    out.push(prefix.len());
    let end = out.len() + usize::from(prefix.len()).div_ceil(8);
    push_addr(out, prefix.addr());
    out.truncate(end);
}

fn push_attributes(out: &mut Vec<u8>, attributes: &[u8]) {
    let len = u16::try_from(attributes.len()).unwrap_or(u16::MAX);
    out.extend(len.to_be_bytes());
    out.extend(attributes.iter().take(usize::from(len)));
}

fn record(out: &mut Vec<u8>, seconds: u32, kind: u16, subtype: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    body(&mut bytes);
    out.extend(seconds.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(subtype.to_be_bytes());
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

fn push_addr(out: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(a) => out.extend(a.octets()),
        IpAddr::V6(a) => out.extend(a.octets()),
    }
}
