//! Routing tables: TABLE_DUMP (one path a record) and TABLE_DUMP_V2 (all paths of a prefix a record).

use super::cursor::{Cursor, width};
use super::{AttributeForm, Body, Error};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix};
use std::net::{IpAddr, Ipv4Addr};

/// One entry of a TABLE_DUMP file (RFC 6396 section 4.2). AS numbers in its attributes take two bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableDump<'a> {
    /// The view of the collector.
    pub view: u16,
    /// Number of the entry, modulo 65,536.
    pub sequence: u16,
    /// The prefix of the route.
    pub prefix: AnyPrefix,
    /// When the route was received, in seconds since 1970.
    pub originated: u32,
    /// The peer it was received from; its router id is not recorded (0.0.0.0).
    pub peer: Peer,
    /// Path attributes as recorded; see [`TableDump::FORM`].
    pub attributes: &'a [u8],
}

impl<'a> TableDump<'a> {
    /// The form of its attributes.
    pub const FORM: AttributeForm = AttributeForm { four_octet_as: false, short_mp_reach: false };

    pub(super) fn parse(subtype: u16, payload: &'a [u8]) -> Result<Body<'a>, Error> {
        // The subtype is the address family. Two more subtypes that some collectors wrote (IPv6 with 4-octet AS
        // numbers among them) were never specified.
        let Some(afi) = Afi::from_u16(subtype) else { return Ok(Body::Other) };
        let mut c = Cursor(payload);
        let view = c.u16("view number")?;
        let sequence = c.u16("sequence number")?;
        let addr = c.addr(afi, "prefix")?;
        let len = c.u8("prefix length")?;
        let max = width(afi);
        let prefix = AnyPrefix::from_addr(addr, len).ok_or(Error::PrefixLength { len, max })?;
        c.u8("status")?;
        let originated = c.u32("originated time")?;
        let address = c.addr(afi, "peer address")?;
        let asn = c.asn(false, "peer AS")?;
        let len = c.u16("attribute length")?;
        let attributes = c.take(usize::from(len), "attributes")?;
        let peer = Peer { router_id: Ipv4Addr::UNSPECIFIED, address, asn };
        Ok(Body::TableDump(TableDump { view, sequence, prefix, originated, peer, attributes }))
    }
}

/// A peer of the collector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
}

/// The peers of a TABLE_DUMP_V2 file (RFC 6396 section 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerIndexTable<'a> {
    /// The collector's BGP identifier.
    pub collector: Ipv4Addr,
    /// The view's name, usually empty.
    pub view: &'a [u8],
    /// How many peers there should be.
    pub count: u16,
    peers: Cursor<'a>,
}

impl<'a> PeerIndexTable<'a> {
    /// The peers in order: the first has index 0.
    pub fn peers(&self) -> Peers<'a> {
        Peers { left: self.count, bytes: self.peers }
    }
}

/// Iterator over the peers of a [`PeerIndexTable`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct Peers<'a> {
    left: u16,
    bytes: Cursor<'a>,
}

impl Iterator for Peers<'_> {
    type Item = Result<Peer, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let peer = read_peer(&mut self.bytes);
        if peer.is_err() {
            self.left = 0;
        }
        Some(peer)
    }
}

fn read_peer(c: &mut Cursor<'_>) -> Result<Peer, Error> {
    let kind = c.u8("peer type")?;
    let router_id = Ipv4Addr::from(c.u32("peer BGP identifier")?);
    let afi = if kind & 1 == 0 { Afi::Ipv4 } else { Afi::Ipv6 };
    let address = c.addr(afi, "peer address")?;
    let asn = c.asn(kind & 2 != 0, "peer AS")?;
    Ok(Peer { router_id, address, asn })
}

/// One prefix and the paths to it (RFC 6396 section 4.3.2; add-path RFC 8050 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rib<'a> {
    /// Number of the record in its file.
    pub sequence: u32,
    /// The family of the routes.
    pub family: AfiSafi,
    /// The prefix of the routes.
    pub prefix: AnyPrefix,
    /// How many entries there should be.
    pub count: u16,
    add_path: bool,
    entries: Cursor<'a>,
}

impl<'a> Rib<'a> {
    /// The form of its entries' attributes.
    pub const FORM: AttributeForm = AttributeForm { four_octet_as: true, short_mp_reach: true };

    /// The paths in the file's order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { left: self.count, add_path: self.add_path, bytes: self.entries }
    }
}

/// One path of a [`Rib`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Index into the file's [`PeerIndexTable`].
    pub peer: u16,
    /// When the route was received, in seconds since 1970.
    pub originated: u32,
    /// The path identifier, in records that have one (RFC 8050).
    pub path_id: Option<u32>,
    /// Path attributes as recorded; see [`Rib::FORM`].
    pub attributes: &'a [u8],
}

/// Iterator over the entries of a [`Rib`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    left: u16,
    add_path: bool,
    bytes: Cursor<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = read_entry(&mut self.bytes, self.add_path);
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

fn read_entry<'a>(c: &mut Cursor<'a>, add_path: bool) -> Result<Entry<'a>, Error> {
    let peer = c.u16("peer index")?;
    let originated = c.u32("originated time")?;
    let path_id = if add_path { Some(c.u32("path identifier")?) } else { None };
    let len = c.u16("attribute length")?;
    let attributes = c.take(usize::from(len), "attributes")?;
    Ok(Entry { peer, originated, path_id, attributes })
}

const PEER_INDEX_TABLE: u16 = 1;

/// The subtype of records of a family (RFC 6396 section 4.3.2), with path identifiers or without (RFC 8050 section 4.1).
pub(super) const fn rib_subtype(family: AfiSafi, add_path: bool) -> u16 {
    let plain = match family {
        AfiSafi::Ipv4Unicast => 2,
        AfiSafi::Ipv4Multicast => 3,
        AfiSafi::Ipv6Unicast => 4,
        AfiSafi::Ipv6Multicast => 5,
    };
    if add_path { plain + 6 } else { plain }
}

pub(super) fn parse_v2(subtype: u16, payload: &[u8]) -> Result<Body<'_>, Error> {
    if subtype == PEER_INDEX_TABLE {
        return parse_peer_index_table(payload);
    }
    let found = |add_path| AfiSafi::ALL.into_iter().find(|family| rib_subtype(*family, add_path) == subtype);
    let Some((family, add_path)) = found(false).map(|f| (f, false)).or(found(true).map(|f| (f, true))) else {
        return Ok(Body::Other);
    };
    let mut c = Cursor(payload);
    let sequence = c.u32("sequence number")?;
    let prefix = c.prefix(family.afi())?;
    let count = c.u16("entry count")?;
    Ok(Body::Rib(Rib { sequence, family, prefix, count, add_path, entries: c }))
}

fn parse_peer_index_table(payload: &[u8]) -> Result<Body<'_>, Error> {
    let mut c = Cursor(payload);
    let collector = Ipv4Addr::from(c.u32("collector BGP identifier")?);
    let len = c.u16("view name length")?;
    let view = c.take(usize::from(len), "view name")?;
    let count = c.u16("peer count")?;
    Ok(Body::PeerIndexTable(PeerIndexTable { collector, view, count, peers: c }))
}

/// The global next hop in the MP_REACH_NLRI value of a table entry, or `None` when there is none to read.
///
/// RFC 6396 has only the next hop's length and the next hop there; some collectors write the whole attribute.
/// The first byte tells: an address family's is 0, a next hop's length is not.
pub fn rib_next_hop(value: &[u8]) -> Option<IpAddr> {
    let short = match value.split_first() {
        // Address family (2 bytes), subsequent family (1), then as in the short form.
        Some((0, _)) => value.get(3..)?,
        _ => value,
    };
    let (len, rest) = short.split_first()?;
    // With a link-local address behind it, the length is doubled (RFC 2545 section 3).
    let afi = match len {
        4 => Afi::Ipv4,
        16 | 32 => Afi::Ipv6,
        _ => return None,
    };
    Cursor(rest).addr(afi, "next hop").ok()
}
