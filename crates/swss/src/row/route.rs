//! `ROUTE_TABLE`: routes from fpmsyncd to orchagent.

use super::{Db, Field, Name, Row, RowError, RowKey, Via};
use crate::format;
use ribtide_prefix::{AnyPrefix, Prefix};
use std::net::IpAddr;
use std::sync::Arc;

/// A key of the table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RouteKey {
    /// Not a route: the begin (SET) and the end (DEL) of a resync, between which fpmsyncd sends every row. orchagent
    /// removes the other routes at the end.
    Resync,
    /// A resent row (`resync:PREFIX`), to ribtide's orchagent. If orchagent has the row already, it does nothing and sends
    /// no response.
    Resent {
        /// The VRF; `None` is the default one.
        vrf: Option<Name>,
        /// The destination.
        prefix: AnyPrefix,
    },
    /// A route.
    Route {
        /// The VRF; `None` is the default one.
        vrf: Option<Name>,
        /// The destination.
        prefix: AnyPrefix,
        /// The raw key, if its writer formatted it differently from libnl; responses echo it.
        raw_key: Option<Name>,
    },
}

impl RouteKey {
    /// Whether a key is that of a route in a format that is not libnl's.
    pub fn is_other_format(text: &str) -> bool {
        !is_ipv4_text(text) && matches!(RouteKey::parse(text), Ok(RouteKey::Route { raw_key: Some(_), .. }))
    }

    /// The key of a route in the format of libnl.
    pub fn new(vrf: Option<Name>, prefix: AnyPrefix) -> RouteKey {
        RouteKey::Route { vrf, prefix, raw_key: None }
    }
}

/// Offset of IPv6 lengths in a packed key, above those of IPv4.
const PACKED_V6: u8 = 33;

/// The key of a resync, and the prefix of the key of a resent row.
const RESYNC: &str = "resync";

/// Appends a prefix: its length, and the bytes of the address that the length covers.
pub(crate) fn pack_prefix(prefix: AnyPrefix, bytes: &mut Vec<u8>) {
    /// Copies the whole address and then truncates, because a copy of a variable length is slower.
    fn put<const N: usize>(first: u8, address: [u8; N], covered: usize, bytes: &mut Vec<u8>) {
        bytes.push(first);
        let end = bytes.len() + covered;
        bytes.extend_from_slice(&address);
        bytes.truncate(end);
    }
    let covered = usize::from(prefix.len()).div_ceil(8);
    match prefix {
        AnyPrefix::V4(p) => put(p.len(), p.bits().to_be_bytes(), covered, bytes),
        AnyPrefix::V6(p) => put(PACKED_V6 + p.len(), p.bits(), covered, bytes),
    }
}

/// Reads the prefix that [`pack_prefix`] encoded at the start of `bytes`, and moves `bytes` behind
/// it.
pub(crate) fn unpack_prefix(bytes: &mut &[u8]) -> Option<AnyPrefix> {
    fn address<const N: usize>(bytes: &mut &[u8], len: u8) -> Option<[u8; N]> {
        let (covered, rest) = bytes.split_at_checked(usize::from(len).div_ceil(8))?;
        // The bits beyond the length belong to later bytes; `Prefix::new` clears them.
        let whole = bytes.first_chunk().filter(|_| covered.len() <= N).copied();
        *bytes = rest;
        if whole.is_some() {
            return whole;
        }
        let mut address = [0; N];
        address.get_mut(..covered.len())?.copy_from_slice(covered);
        Some(address)
    }
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(match first.checked_sub(PACKED_V6) {
        None => AnyPrefix::V4(Prefix::new(u32::from_be_bytes(address(bytes, first)?), first)),
        Some(len) => AnyPrefix::V6(Prefix::new(address(bytes, len)?, len)),
    })
}

/// Appends a prefix in the format of libnl's `nl_addr2str`: a host address has no length.
fn prefix_text(prefix: AnyPrefix, out: &mut String) {
    if AnyPrefix::host(prefix.addr()) == prefix {
        format::addr(prefix.addr(), out);
    } else {
        format::prefix(prefix, out);
    }
}

/// Whether a text is an IPv4 prefix in the format of [`prefix_text`]. Reads the text once, because a
/// comparison of APPL_DB checks every key.
fn is_ipv4_text(text: &str) -> bool {
    fn number(bytes: &mut &[u8], max: u32) -> Option<u32> {
        let digits = bytes.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        let (text, rest) = bytes.split_at_checked(digits)?;
        *bytes = rest;
        let number = text.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        let is_written_so = digits == 1 || text.first().is_some_and(|first| *first != b'0');
        (is_written_so && number <= max).then_some(number)
    }
    fn eat(bytes: &mut &[u8], byte: u8) -> Option<()> {
        *bytes = bytes.strip_prefix(&[byte])?;
        Some(())
    }
    let read = |mut bytes: &[u8]| {
        let mut address = number(&mut bytes, 255)?;
        for _ in 1..4 {
            eat(&mut bytes, b'.')?;
            address = address << 8 | number(&mut bytes, 255)?;
        }
        if bytes.is_empty() {
            return Some(());
        }
        eat(&mut bytes, b'/')?;
        let len = number(&mut bytes, 31)?;
        (bytes.is_empty() && address << len == 0).then_some(())
    };
    read(text.as_bytes()).is_some()
}

/// Parses a prefix with or without a length. Clears bits beyond the length.
pub(crate) fn parse_prefix(text: &str) -> Option<AnyPrefix> {
    let (addr, len) = parse_addr_len(text)?;
    AnyPrefix::from_addr(addr, len)
}

/// Parses an address with an optional length; the default is the full width.
pub(crate) fn parse_addr_len(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, len) = match text.split_once('/') {
        Some((addr, len)) => (addr, Some(len)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().ok()?;
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => width,
        Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => len.parse().ok()?,
        Some(_) => return None,
    };
    (len <= width).then_some((addr, len))
}

impl RowKey for RouteKey {
    fn write(&self, out: &mut String) {
        match self {
            RouteKey::Resync => out.push_str(RESYNC),
            RouteKey::Route { raw_key: Some(text), .. } => out.push_str(text),
            RouteKey::Resent { vrf, prefix } | RouteKey::Route { vrf, prefix, raw_key: None } => {
                if matches!(self, RouteKey::Resent { .. }) {
                    out.push_str(RESYNC);
                    out.push(':');
                }
                if let Some(vrf) = vrf {
                    out.push_str(vrf);
                    out.push(':');
                }
                prefix_text(*prefix, out);
            }
        }
    }

    fn parse(text: &str) -> Result<RouteKey, String> {
        if text == RESYNC {
            return Ok(RouteKey::Resync);
        }
        if let Some(again) = text.strip_prefix(RESYNC).and_then(|rest| rest.strip_prefix(':')) {
            return match RouteKey::parse(again)? {
                RouteKey::Route { vrf, prefix, .. } => Ok(RouteKey::Resent { vrf, prefix }),
                _ => Err(format!("key \"{text}\" names no route of a resync")),
            };
        }
        let (vrf, rest) = match text.split_once(':') {
            Some((vrf, rest)) if vrf.starts_with("Vrf") => (Some(Name::from(vrf)), rest),
            _ => (None, text),
        };
        let prefix = parse_prefix(rest)
            .ok_or_else(|| format!("key \"{text}\" is not a prefix, with or without a VRF before it"))?;
        let mut ours = String::with_capacity(text.len());
        prefix_text(prefix, &mut ours);
        let raw_key = (ours != rest).then(|| text.into());
        Ok(RouteKey::Route { vrf, prefix, raw_key })
    }

    /// Of a route of the default VRF.
    fn pack(&self, bytes: &mut Vec<u8>) -> bool {
        let RouteKey::Route { vrf: None, prefix, raw_key: None } = self else { return false };
        pack_prefix(*prefix, bytes);
        true
    }

    fn unpack(bytes: &mut &[u8]) -> Option<RouteKey> {
        Some(RouteKey::new(None, unpack_prefix(bytes)?))
    }
}

/// A row of `ROUTE_TABLE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteRow {
    /// The routing protocol: a name of `rt_protos` or a number, which orchagent only echoes. `None`
    /// if absent.
    pub protocol: Option<Name>,
    /// The next hops.
    pub via: Arc<Via>,
}

impl RouteRow {
    /// A digest of the row (FNV-1a), equal in every process. Empty fields do not count. Daemons
    /// compare digests to find out whether they speak of the same row.
    pub fn digest(&self) -> u32 {
        let mut digest = 0x811c_9dc5_u32;
        let mut add = |byte: u8| digest = (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        self.fields(&mut |field, value| {
            if !value.is_empty() {
                field.bytes().chain([0]).chain(value.bytes()).chain([0]).for_each(&mut add);
            }
        });
        digest
    }
}

impl Row for RouteRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "ROUTE_TABLE";
    type Key = RouteKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        match self.protocol.is_none() && self.via.is_vpn() {
            true => self.via.write_vpn(put),
            false => self.via.write_fields(self.protocol.as_deref(), put),
        }
    }

    fn all_fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("protocol", self.protocol.as_deref().unwrap_or(""));
        for &field in Field::COMPLETE_ROUTE {
            let value = self.via.get(field);
            put(field.name(), if field == Field::Blackhole && value.is_empty() { "false" } else { value });
        }
        // Empty ones too, where the row has them: a consumer may have values of the row before.
        let others = self.via.named().filter(|(field, _)| *field >= Field::VpnSid);
        others.for_each(|(field, value)| put(field.name(), value));
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let (protocol, via) = Via::read_fields(fields, None);
        Ok(RouteRow { protocol, via: Arc::new(via) })
    }

    fn merge(&mut self, newer: Self) {
        self.via = Via::merged(&self.via, newer.via);
        self.protocol = newer.protocol.or(self.protocol.take());
    }
}
