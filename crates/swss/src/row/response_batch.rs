//! The binary encoding of direct responses from ribtide's orchagent to ribtide's fpmsyncd
//! (`docs/adr/0013-direct-route-responses-orchagent-fpmsyncd.md`).
//!
//! [`RouteResponse`](super::RouteResponse)s are texts, one a route, because SONiC's daemons read
//! them. This encoding shares what routes have in common. A message is a kind and groups; a group
//! is a VRF, a protocol, a family, a count and prefixes. A group of refused routes has the reason
//! in the place of the protocol, and each prefix is followed by the digest of its row. Integers are
//! little-endian; names have a 16-bit length.

use super::Name;
use ribtide_prefix::{AnyPrefix, Prefix};

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseKind {
    /// The routes are in the chip, and no row in orchagent changes them. Sent as a snapshot at the
    /// start of a connection, with an empty protocol, and for rows that orchagent found at its
    /// start. It is not a response.
    InChip,
    /// The end of the snapshot, without routes.
    SnapshotEnd,
    /// The chip has the rows; one response for each row, in order.
    Confirmed,
    /// The chip does not have these rows, with the reason. It is not a response: one may follow.
    Refused,
}

impl ResponseKind {
    const ALL: [ResponseKind; 4] =
        [ResponseKind::InChip, ResponseKind::SnapshotEnd, ResponseKind::Confirmed, ResponseKind::Refused];

    /// Bytes after each prefix.
    fn behind(self) -> usize {
        if self == ResponseKind::Refused { size_of::<u32>() } else { 0 }
    }
}

/// The common properties of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shared {
    vrf: Option<Name>,
    /// The protocol of the rows; for refused routes, the reason.
    name: Name,
    width: u8,
}

/// A message under construction.
#[derive(Debug)]
pub struct ResponseWriter {
    kind: ResponseKind,
    bytes: Vec<u8>,
    group: Option<Shared>,
    /// The offset of the count of the group.
    count_at: usize,
    /// Routes of the group, and of earlier groups.
    count: u32,
    before: usize,
}

impl ResponseWriter {
    /// A message without routes.
    pub fn new(kind: ResponseKind) -> ResponseWriter {
        let number = ResponseKind::ALL.iter().position(|other| *other == kind);
        let bytes = vec![number.unwrap_or_default() as u8];
        ResponseWriter { kind, bytes, group: None, count_at: 0, count: 0, before: 0 }
    }

    /// Adds a route to a message of any kind but [`ResponseKind::Refused`]. `vrf`: `None` is the
    /// default one. A route with a name of more than 65,535 bytes is left out.
    pub fn add(&mut self, vrf: Option<&Name>, protocol: &Name, prefix: AnyPrefix) {
        debug_assert_ne!(self.kind, ResponseKind::Refused);
        self.put(vrf, protocol, prefix);
    }

    /// Adds a refused route to a message of [`ResponseKind::Refused`]; `row`: the
    /// [`digest`](super::RouteRow::digest) of its row. Otherwise as [`ResponseWriter::add`].
    pub fn add_refused(&mut self, vrf: Option<&Name>, why: &Name, prefix: AnyPrefix, row: u32) {
        debug_assert_eq!(self.kind, ResponseKind::Refused);
        if self.put(vrf, why, prefix) {
            self.bytes.extend_from_slice(&row.to_le_bytes());
        }
    }

    fn put(&mut self, vrf: Option<&Name>, name: &Name, prefix: AnyPrefix) -> bool {
        let width = match prefix {
            AnyPrefix::V4(_) => 4,
            AnyPrefix::V6(_) => 16,
        };
        let same = self.group.as_ref().is_some_and(|group| {
            group.width == width && is(Some(&group.name), Some(name)) && is(group.vrf.as_ref(), vrf)
        });
        if !same && !self.begin(vrf, name, width) {
            return false;
        }
        self.bytes.push(prefix.len());
        match prefix {
            AnyPrefix::V4(prefix) => self.bytes.extend_from_slice(&prefix.bits().to_be_bytes()),
            AnyPrefix::V6(prefix) => self.bytes.extend_from_slice(&prefix.bits()),
        }
        self.count += 1;
        true
    }

    fn begin(&mut self, vrf: Option<&Name>, name: &Name, width: u8) -> bool {
        let names = [vrf.map_or("", |vrf| vrf), name].map(str::as_bytes);
        let [Ok(vrf_len), Ok(name_len)] = names.map(|name| u16::try_from(name.len())) else {
            return false;
        };
        self.end();
        for (len, bytes) in [vrf_len, name_len].into_iter().zip(names) {
            self.bytes.extend_from_slice(&len.to_le_bytes());
            self.bytes.extend_from_slice(bytes);
        }
        self.bytes.push(width);
        self.count_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.group = Some(Shared { vrf: vrf.cloned(), name: name.clone(), width });
        true
    }

    fn end(&mut self) {
        if let Some(place) = self.bytes.get_mut(self.count_at..self.count_at + 4)
            && self.group.is_some()
        {
            place.copy_from_slice(&self.count.to_le_bytes());
        }
        self.before += std::mem::take(&mut self.count) as usize;
    }

    /// Its kind.
    pub fn kind(&self) -> ResponseKind {
        self.kind
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.before + self.count as usize
    }

    /// Whether it has no route.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encoded message.
    pub fn finish(mut self) -> Vec<u8> {
        self.end();
        self.bytes
    }
}

/// Whether two names are equal; usually they share their allocation.
fn is(one: Option<&Name>, other: Option<&Name>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Name::ptr_eq(one, other) || one == other,
        (None, None) => true,
        _ => false,
    }
}

/// The bytes are not in this encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedResponses;

/// A decoder of the groups of a message.
#[derive(Clone, Debug)]
pub struct ResponseReader<'a> {
    /// The kind.
    pub kind: ResponseKind,
    rest: &'a [u8],
}

/// A group: routes of one VRF and one protocol, or of one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseGroup<'a> {
    /// The VRF; `None` is the default one.
    pub vrf: Option<&'a str>,
    /// The protocol of the row; for refused routes the reason, as a sentence.
    pub name: &'a str,
    width: usize,
    behind: usize,
    prefixes: &'a [u8],
}

impl<'a> ResponseReader<'a> {
    /// Decodes the kind of a message.
    ///
    /// # Errors
    /// [`MalformedResponses`] when it is not in this encoding.
    pub fn new(message: &'a [u8]) -> Result<ResponseReader<'a>, MalformedResponses> {
        let (kind, rest) = message.split_first().ok_or(MalformedResponses)?;
        let kind = ResponseKind::ALL.get(usize::from(*kind)).ok_or(MalformedResponses)?;
        Ok(ResponseReader { kind: *kind, rest })
    }

    /// The next group; `None` after the last.
    ///
    /// # Errors
    /// [`MalformedResponses`] when the rest is no group.
    pub fn next_group(&mut self) -> Result<Option<ResponseGroup<'a>>, MalformedResponses> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let vrf = self.name()?;
        let name = self.name()?;
        let (width, rest) = self.rest.split_first().ok_or(MalformedResponses)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(MalformedResponses)?;
        let (width, behind) = (usize::from(*width), self.kind.behind());
        if ![4, 16].contains(&width) {
            return Err(MalformedResponses);
        }
        let len =
            usize::try_from(u32::from_le_bytes(*count)).ok().and_then(|n| n.checked_mul(width + 1 + behind));
        let (prefixes, rest) = len.and_then(|len| rest.split_at_checked(len)).ok_or(MalformedResponses)?;
        self.rest = rest;
        Ok(Some(ResponseGroup {
            vrf: Some(vrf).filter(|vrf| !vrf.is_empty()),
            name,
            width,
            behind,
            prefixes,
        }))
    }

    fn name(&mut self) -> Result<&'a str, MalformedResponses> {
        let (len, rest) = self.rest.split_first_chunk::<2>().ok_or(MalformedResponses)?;
        let (name, rest) =
            rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or(MalformedResponses)?;
        self.rest = rest;
        std::str::from_utf8(name).map_err(|_| MalformedResponses)
    }
}

impl<'a> ResponseGroup<'a> {
    /// Its routes. A too large length is limited to that of the address.
    pub fn prefixes(&self) -> impl Iterator<Item = AnyPrefix> + 'a {
        self.entries().map(|(prefix, _)| prefix)
    }

    /// Its refused routes, each with the [`digest`](super::RouteRow::digest) of its row; none
    /// unless the kind is [`ResponseKind::Refused`].
    pub fn refused(&self) -> impl Iterator<Item = (AnyPrefix, u32)> + 'a {
        self.entries()
            .filter_map(|(prefix, behind)| Some((prefix, u32::from_le_bytes(behind.try_into().ok()?))))
    }

    fn entries(&self) -> impl Iterator<Item = (AnyPrefix, &'a [u8])> + 'a {
        let width = self.width;
        self.prefixes.chunks_exact(width + 1 + self.behind).filter_map(move |entry| {
            let (len, rest) = entry.split_first()?;
            let (addr, behind) = rest.split_at_checked(width)?;
            let prefix = match width {
                4 => AnyPrefix::V4(Prefix::new(u32::from_be_bytes(addr.try_into().ok()?), *len)),
                _ => AnyPrefix::V6(Prefix::new(addr.try_into().ok()?, *len)),
            };
            Some((prefix, behind))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Route = (Option<Name>, Name, AnyPrefix);

    fn read(message: &[u8]) -> Result<(ResponseKind, Vec<Route>), MalformedResponses> {
        let mut reader = ResponseReader::new(message)?;
        let mut routes = Vec::new();
        while let Some(group) = reader.next_group()? {
            let shared = (group.vrf.map(Name::from), Name::from(group.name));
            routes.extend(group.prefixes().map(|prefix| (shared.0.clone(), shared.1.clone(), prefix)));
        }
        Ok((reader.kind, routes))
    }

    fn route() -> impl Strategy<Value = Route> {
        let prefix = prop_oneof![
            (any::<u32>(), 0..=32u8).prop_map(|(bits, len)| AnyPrefix::V4(Prefix::new(bits, len))),
            (any::<[u8; 16]>(), 0..=128u8).prop_map(|(bits, len)| AnyPrefix::V6(Prefix::new(bits, len))),
        ];
        let vrf = prop::sample::select(vec![None, Some("Vrfred"), Some("Vrfblue")]);
        let protocol = prop::sample::select(vec!["bgp", "static", "196", ""]);
        (vrf, protocol, prefix)
            .prop_map(|(vrf, protocol, prefix)| (vrf.map(Name::from), protocol.into(), prefix))
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(routes in prop::collection::vec(route(), 0..40), kind in 0..4usize) {
            let kind = ResponseKind::ALL[kind];
            let mut writer = ResponseWriter::new(kind);
            for ((vrf, name, prefix), row) in routes.iter().zip(0..) {
                match kind {
                    ResponseKind::Refused => writer.add_refused(vrf.as_ref(), name, *prefix, row),
                    _ => writer.add(vrf.as_ref(), name, *prefix),
                }
            }
            prop_assert_eq!((writer.len(), writer.is_empty()), (routes.len(), routes.is_empty()));
            let message = writer.finish();
            let (mut reader, mut rows) = (ResponseReader::new(&message).unwrap(), Vec::new());
            while let Some(group) = reader.next_group().unwrap() {
                rows.extend(group.refused());
            }
            let refused = routes.iter().map(|(_, _, prefix)| *prefix).zip(0..);
            prop_assert_eq!(rows, refused.filter(|_| kind == ResponseKind::Refused).collect::<Vec<_>>());
            prop_assert_eq!(read(&message), Ok((kind, routes)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn a_route_of_the_group_takes_five_bytes_and_a_cut_message_is_refused() {
        let mut writer = ResponseWriter::new(ResponseKind::Confirmed);
        let bgp = Name::from("bgp");
        for n in 0..100u32 {
            writer.add(None, &bgp, AnyPrefix::V4(Prefix::new(n << 8, 24)));
        }
        let message = writer.finish();
        assert_eq!(message.len(), 1 + (2 + 2 + 3 + 1 + 4) + 100 * 5);
        for len in (0..message.len()).filter(|len| *len != 1) {
            assert_eq!(read(&message[..len]), Err(MalformedResponses), "{len}");
        }
        assert_eq!(read(&[4]), Err(MalformedResponses));
    }
}
