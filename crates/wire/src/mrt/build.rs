//! Writes MRT records, for the decoder's tests and generated table files.

use super::bgp4mp::afi_of;
use super::table_dump::{RIB_IPV4_UNICAST, RIB_IPV6_UNICAST};
use super::{BGP4MP, Bgp4mp, Peer, TABLE_DUMP_V2};
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
        out.push(prefix.len());
        let end = out.len() + usize::from(prefix.len()).div_ceil(8);
        push_addr(out, prefix.addr());
        out.truncate(end);
        let count = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        out.extend(count.to_be_bytes());
        for (peer, originated, attributes) in entries.iter().take(usize::from(count)) {
            out.extend(peer.to_be_bytes());
            out.extend(originated.to_be_bytes());
            let len = u16::try_from(attributes.len()).unwrap_or(u16::MAX);
            out.extend(len.to_be_bytes());
            out.extend(attributes.iter().take(usize::from(len)));
        }
    });
}

/// Appends a BGP4MP_MESSAGE_AS4 record of a whole BGP message, marker included.
pub fn message(out: &mut Vec<u8>, seconds: u32, session: &Bgp4mp, bytes: &[u8]) {
    record(out, seconds, BGP4MP, 4, |out| {
        out.extend(session.peer_asn.to_be_bytes());
        out.extend(session.local_asn.to_be_bytes());
        out.extend(session.interface.to_be_bytes());
        out.extend((afi_of(session.peer) as u16).to_be_bytes());
        push_addr(out, session.peer);
        push_addr(out, session.local);
        out.extend(bytes);
    });
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
