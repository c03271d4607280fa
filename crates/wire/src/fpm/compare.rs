//! The comparison of what a server has with what its client sent: private messages between ribtide's
//! client and ribtide's `fpmsyncd`.
//!
//! The server offers it after the client's [`super::write_start_of_replay`], which other clients never
//! send; the client queries only a server that made the offer. So no other program gets one of these
//! messages. Each is a netlink message of a type that neither Linux, FRR nor SONiC uses.
//!
//! A query is handled in the order of the stream: its reply is about exactly the messages before it.

use crate::netlink::numbers::NLM_F_REQUEST;
use crate::netlink::{Forward, Malformed, Message, NextHops, Route, RouteKind};
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// The version of queries, replies and fingerprints. Two programs compare only with the same one.
pub const VERSION: u32 = 1;
/// Keys in one query at most: their reply fits into a frame.
pub const KEYS_MAX: usize = 500;
/// Bytes of the entries in one reply at most.
pub const PAGE_MAX: usize = 16_000;

const OFFER: u16 = 0x7262;
const QUERY: u16 = 0x7263;
const REPLY: u16 = 0x7264;

const PAGE: u8 = 0;
const KEYS: u8 = 1;

const OBJECT: u8 = 0;
const IPV4: u8 = 1;
const IPV6: u8 = 2;
/// The key has a fingerprint.
const HAS_CONTENT: u8 = 0x80;

/// What identifies an entry of the server's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Key {
    /// A next-hop object, by its id.
    Object(u32),
    /// A route, by its table and prefix.
    Route(u32, AnyPrefix),
}

/// An entry of the server's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What identifies it.
    pub key: Key,
    /// The fingerprint of its content; `None`: the server does not compare the content.
    pub content: Option<u64>,
}

/// What a client queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// The entries from a position on, as many as fit into a reply; 0 is the beginning.
    Page(u64),
    /// These entries, [`KEYS_MAX`] at most.
    Keys(Vec<Key>),
}

/// What a server has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The number of the query.
    pub seq: u32,
    /// Whether the server can be compared now; not while the replay of a session is not over.
    pub ready: bool,
    /// Of a page, the position of the next one, if there is one.
    pub next: Option<u64>,
    /// The entries. Of a query by keys those that the server has, in the order of the query.
    pub entries: Vec<Entry>,
}

/// One of these messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The server compares, with this version.
    Offer(u32),
    /// A query with its number.
    Query(u32, Query),
    /// The reply to one.
    Reply(Reply),
}

impl Key {
    /// Bytes of an entry with this key.
    pub fn entry_len(&self) -> usize {
        self.len() + 8
    }

    fn len(&self) -> usize {
        match self {
            Key::Object(_) => 5,
            Key::Route(_, AnyPrefix::V4(_)) => 10,
            Key::Route(_, AnyPrefix::V6(_)) => 22,
        }
    }

    fn write(&self, flag: u8, out: &mut Vec<u8>) {
        match self {
            Key::Object(id) => {
                out.push(OBJECT | flag);
                out.extend_from_slice(&id.to_be_bytes());
            }
            Key::Route(table, prefix) => {
                out.push(flag | if prefix.addr().is_ipv4() { IPV4 } else { IPV6 });
                out.extend_from_slice(&table.to_be_bytes());
                out.push(prefix.len());
                match prefix.addr() {
                    IpAddr::V4(addr) => out.extend_from_slice(&addr.octets()),
                    IpAddr::V6(addr) => out.extend_from_slice(&addr.octets()),
                }
            }
        }
    }
}

/// The unread rest of a message.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("a comparison is cut off"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A key, and whether a fingerprint follows.
    fn key(&mut self) -> Result<(Key, bool), Malformed> {
        let [tag] = self.take()?;
        let number = u32::from_be_bytes(self.take()?);
        let addr = match tag & !HAS_CONTENT {
            OBJECT => return Ok((Key::Object(number), tag & HAS_CONTENT != 0)),
            IPV4 => None,
            IPV6 => Some(()),
            _ => return Err(Malformed("a comparison has a key of an unknown kind")),
        };
        let [len] = self.take()?;
        let addr = match addr {
            None => IpAddr::from(self.take::<4>()?),
            Some(()) => IpAddr::from(self.take::<16>()?),
        };
        let prefix = AnyPrefix::from_addr(addr, len).ok_or(Malformed("a comparison has no valid prefix"))?;
        Ok((Key::Route(number, prefix), tag & HAS_CONTENT != 0))
    }
}

impl Compare {
    /// Reads a message; `None`: it is not one of these.
    ///
    /// # Errors
    /// It is one, and cannot be read.
    pub fn decode(message: &Message<'_>) -> Result<Option<Compare>, Malformed> {
        let mut rest = Rest(message.body);
        Ok(Some(match message.kind {
            OFFER => Compare::Offer(u32::from_be_bytes(rest.take()?)),
            QUERY => {
                let query = match rest.take()? {
                    [PAGE] => Query::Page(u64::from_be_bytes(rest.take()?)),
                    [KEYS] => {
                        let mut keys = Vec::new();
                        while !rest.0.is_empty() {
                            keys.push(rest.key()?.0);
                        }
                        Query::Keys(keys)
                    }
                    _ => return Err(Malformed("a comparison has a query of an unknown kind")),
                };
                Compare::Query(message.seq, query)
            }
            REPLY => {
                let [ready] = rest.take()?;
                let next = Some(u64::from_be_bytes(rest.take()?)).filter(|next| *next != 0);
                let mut entries = Vec::new();
                while !rest.0.is_empty() {
                    let (key, has_content) = rest.key()?;
                    let content = if has_content { Some(u64::from_be_bytes(rest.take()?)) } else { None };
                    entries.push(Entry { key, content });
                }
                Compare::Reply(Reply { seq: message.seq, ready: ready != 0, next, entries })
            }
            _ => return Ok(None),
        }))
    }
}

/// Appends a frame of one message.
fn write(out: &mut Vec<u8>, kind: u16, flags: u16, seq: u32, body: &[u8]) {
    super::write_short(out, |out| {
        Message { kind, flags, seq, port: 0, body }.copy(out);
        super::pad(out, body.len());
        Ok(())
    });
}

/// Appends the server's frame with the offer to compare.
pub fn write_offer(out: &mut Vec<u8>) {
    write(out, OFFER, 0, 0, &VERSION.to_be_bytes());
}

/// Appends the client's frame with a query.
pub fn write_query(out: &mut Vec<u8>, seq: u32, query: &Query) {
    let mut body = Vec::new();
    match query {
        Query::Page(from) => {
            body.push(PAGE);
            body.extend_from_slice(&from.to_be_bytes());
        }
        Query::Keys(keys) => {
            body.push(KEYS);
            keys.iter().take(KEYS_MAX).for_each(|key| key.write(0, &mut body));
        }
    }
    write(out, QUERY, NLM_F_REQUEST, seq, &body);
}

/// Appends the server's frame with a reply of [`PAGE_MAX`] bytes of entries at most.
pub fn write_reply(out: &mut Vec<u8>, reply: &Reply) {
    let mut body = vec![u8::from(reply.ready)];
    body.extend_from_slice(&reply.next.unwrap_or(0).to_be_bytes());
    for Entry { key, content } in &reply.entries {
        key.write(if content.is_some() { HAS_CONTENT } else { 0 }, &mut body);
        content.iter().for_each(|content| body.extend_from_slice(&content.to_be_bytes()));
    }
    write(out, REPLY, 0, reply.seq, &body);
}

/// Mixes the bits of a number (the finalizer of SplitMix64), so that sums of results are as good as
/// random.
fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The fingerprint of next hops that drop packets.
pub const BLACKHOLE: u64 = 1;
/// The fingerprint of next hops that no message of this client has.
pub const FOREIGN: u64 = 2;

/// The fingerprint of the next-hop object that a route names.
pub fn named_object(id: u32) -> u64 {
    mix(u64::from(id) | 1 << 32)
}

/// The fingerprint of one next hop.
fn next_hop(gateway: IpAddr, ifindex: u32, weight: u16) -> u64 {
    let (family, addr) = match gateway {
        IpAddr::V4(addr) => (4, u128::from(addr.to_bits())),
        IpAddr::V6(addr) => (6, addr.to_bits()),
    };
    let high = mix((addr >> 64) as u64 ^ family << 56);
    let low = mix(high ^ addr as u64);
    mix(low ^ (u64::from(ifindex) << 16 | u64::from(weight)))
}

/// The fingerprint of next hops in any order: gateway, interface and weight of each.
pub fn next_hops(hops: impl IntoIterator<Item = (IpAddr, u32, u16)>) -> u64 {
    let of_each = hops.into_iter().map(|(gateway, ifindex, weight)| next_hop(gateway, ifindex, weight));
    mix(of_each.fold(3, u64::wrapping_add))
}

/// The fingerprint of a next-hop object with one next hop.
pub fn single(gateway: IpAddr, ifindex: u32) -> u64 {
    next_hop(gateway, ifindex, 0)
}

/// The fingerprint of a group's members in any order: id and weight of each.
pub fn members(members: impl IntoIterator<Item = (u32, u16)>) -> u64 {
    let of_each = members.into_iter().map(|(id, weight)| mix(u64::from(id) << 16 | u64::from(weight)));
    mix(of_each.fold(4, u64::wrapping_add))
}

/// The fingerprint of a route with next hops of this fingerprint.
pub fn route(protocol: u8, next_hops: u64) -> u64 {
    mix(next_hops ^ u64::from(protocol))
}

/// The fingerprint of the next hops of a route. A missing gateway is the unspecified address of the
/// route's family, as `fpmsyncd` has it. What `fpmsyncd` does not keep is left out: whether a next hop
/// is on-link, and the source address.
pub fn next_hops_of(route: &Route<'_>) -> u64 {
    let unspecified = unspecified(route.prefix.addr().is_ipv4());
    match (route.kind, route.next_hops) {
        (RouteKind::Blackhole, _) => BLACKHOLE,
        (_, NextHops::Id(id)) => named_object(id),
        (_, NextHops::Inline(hops)) => next_hops(
            hops.map(|hop| (hop.via.gateway.unwrap_or(unspecified), hop.via.ifindex, hop.weight.max(1))),
        ),
        (_, NextHops::None) => FOREIGN,
    }
}

/// The fingerprint of a next-hop object.
pub fn object(forward: &Forward<'_>) -> u64 {
    match forward {
        Forward::Via(afi, via) => {
            let gateway = via.gateway.unwrap_or(unspecified(*afi == ribtide_prefix::Afi::Ipv4));
            single(gateway, via.ifindex)
        }
        Forward::Blackhole(_) => BLACKHOLE,
        Forward::Group(of) => members(of.map(|member| (member.id, member.weight))),
        Forward::Other => FOREIGN,
    }
}

fn unspecified(ipv4: bool) -> IpAddr {
    if ipv4 { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests;
