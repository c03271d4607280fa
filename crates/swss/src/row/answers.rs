//! What orchagent tells an fpmsyncd of our own directly: the layout of a message of answers.
//!
//! [`RouteResponse`](super::RouteResponse)s are texts, one a route, because SONiC's daemons read them. Between two of ours what
//! routes share is said once: a message is a kind, then groups, each of which is a VRF, a protocol, a family, a count and
//! so many prefixes. Of refused routes the group has the reason in the protocol's place, and each prefix the row's digest behind
//! it. Numbers have their least significant byte first, names 16 bits of length before them.

use super::Name;
use ribtide_prefix::{AnyPrefix, Prefix};

/// What a message says of its routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerKind {
    /// The chip has them, and nothing that orchagent has taken changes them: said as a connection begins, with an empty protocol,
    /// and of rows that orchagent found at its start. It is no answer.
    InChip,
    /// It holds no routes: what was in the chip as the connection began is said.
    AllSaid,
    /// The chip has what was asked for; one answer for each row, in order.
    Confirmed,
    /// The chip does not have these rows, and why. It is no answer: one may still come.
    Refused,
}

impl AnswerKind {
    const ALL: [AnswerKind; 4] =
        [AnswerKind::InChip, AnswerKind::AllSaid, AnswerKind::Confirmed, AnswerKind::Refused];

    /// Bytes behind each prefix.
    fn behind(self) -> usize {
        if self == AnswerKind::Refused { size_of::<u32>() } else { 0 }
    }
}

/// What the routes of a group share.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shared {
    vrf: Option<Name>,
    /// The rows' protocol; or, of refused routes, the reason.
    name: Name,
    width: u8,
}

/// A message under construction.
#[derive(Debug)]
pub struct AnswerWriter {
    kind: AnswerKind,
    bytes: Vec<u8>,
    group: Option<Shared>,
    /// Where the group's count stands.
    count_at: usize,
    /// Routes of the group, and of all groups before it.
    count: u32,
    before: usize,
}

impl AnswerWriter {
    /// A message without routes.
    pub fn new(kind: AnswerKind) -> AnswerWriter {
        let number = AnswerKind::ALL.iter().position(|other| *other == kind);
        let bytes = vec![number.unwrap_or_default() as u8];
        AnswerWriter { kind, bytes, group: None, count_at: 0, count: 0, before: 0 }
    }

    /// Adds a route, where the message is of another kind than [`AnswerKind::Refused`]. `vrf`: `None` is the default one. A name
    /// that is longer than 65,535 bytes belongs to no protocol: its route is left out.
    pub fn add(&mut self, vrf: Option<&Name>, protocol: &Name, prefix: AnyPrefix) {
        debug_assert_ne!(self.kind, AnswerKind::Refused);
        self.put(vrf, protocol, prefix);
    }

    /// Adds a refused route to a message of [`AnswerKind::Refused`]: `row` is its row's [`digest`](super::RouteRow::digest). As
    /// [`AnswerWriter::add`] otherwise.
    pub fn add_refused(&mut self, vrf: Option<&Name>, why: &Name, prefix: AnyPrefix, row: u32) {
        debug_assert_eq!(self.kind, AnswerKind::Refused);
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

    /// What it says of its routes.
    pub fn kind(&self) -> AnswerKind {
        self.kind
    }

    /// How many routes it holds.
    pub fn len(&self) -> usize {
        self.before + self.count as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message.
    pub fn finish(mut self) -> Vec<u8> {
        self.end();
        self.bytes
    }
}

/// Whether two names are the same; mostly they are in the same place.
fn is(one: Option<&Name>, other: Option<&Name>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Name::ptr_eq(one, other) || one == other,
        (None, None) => true,
        _ => false,
    }
}

/// The bytes are not in this layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedAnswers;

/// A message's groups, one after the other.
#[derive(Clone, Debug)]
pub struct AnswerReader<'a> {
    /// What is said of them.
    pub kind: AnswerKind,
    rest: &'a [u8],
}

/// Routes of one VRF and one protocol, or of one reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerGroup<'a> {
    /// The VRF; `None` is the default one.
    pub vrf: Option<&'a str>,
    /// The row's protocol, as its field has it; for refused routes the reason, as a sentence.
    pub name: &'a str,
    width: usize,
    behind: usize,
    prefixes: &'a [u8],
}

impl<'a> AnswerReader<'a> {
    /// Reads what a message is.
    ///
    /// # Errors
    /// [`MalformedAnswers`] when it is no message of answers.
    pub fn new(message: &'a [u8]) -> Result<AnswerReader<'a>, MalformedAnswers> {
        let (kind, rest) = message.split_first().ok_or(MalformedAnswers)?;
        let kind = AnswerKind::ALL.get(usize::from(*kind)).ok_or(MalformedAnswers)?;
        Ok(AnswerReader { kind: *kind, rest })
    }

    /// The next group; `None` after the last.
    ///
    /// # Errors
    /// [`MalformedAnswers`] when what follows is no group.
    pub fn next_group(&mut self) -> Result<Option<AnswerGroup<'a>>, MalformedAnswers> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let vrf = self.name()?;
        let name = self.name()?;
        let (width, rest) = self.rest.split_first().ok_or(MalformedAnswers)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(MalformedAnswers)?;
        let (width, behind) = (usize::from(*width), self.kind.behind());
        if ![4, 16].contains(&width) {
            return Err(MalformedAnswers);
        }
        let len =
            usize::try_from(u32::from_le_bytes(*count)).ok().and_then(|n| n.checked_mul(width + 1 + behind));
        let (prefixes, rest) = len.and_then(|len| rest.split_at_checked(len)).ok_or(MalformedAnswers)?;
        self.rest = rest;
        Ok(Some(AnswerGroup { vrf: Some(vrf).filter(|vrf| !vrf.is_empty()), name, width, behind, prefixes }))
    }

    fn name(&mut self) -> Result<&'a str, MalformedAnswers> {
        let (len, rest) = self.rest.split_first_chunk::<2>().ok_or(MalformedAnswers)?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or(MalformedAnswers)?;
        self.rest = rest;
        std::str::from_utf8(name).map_err(|_| MalformedAnswers)
    }
}

impl<'a> AnswerGroup<'a> {
    /// Its routes. A length that no address has is cut to the address.
    pub fn prefixes(&self) -> impl Iterator<Item = AnyPrefix> + 'a {
        self.entries().map(|(prefix, _)| prefix)
    }

    /// Its refused routes, each with its row's [`digest`](super::RouteRow::digest); none of another kind than
    /// [`AnswerKind::Refused`].
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

    fn read(message: &[u8]) -> Result<(AnswerKind, Vec<Route>), MalformedAnswers> {
        let mut reader = AnswerReader::new(message)?;
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
            let kind = AnswerKind::ALL[kind];
            let mut writer = AnswerWriter::new(kind);
            for ((vrf, name, prefix), row) in routes.iter().zip(0..) {
                match kind {
                    AnswerKind::Refused => writer.add_refused(vrf.as_ref(), name, *prefix, row),
                    _ => writer.add(vrf.as_ref(), name, *prefix),
                }
            }
            prop_assert_eq!((writer.len(), writer.is_empty()), (routes.len(), routes.is_empty()));
            let message = writer.finish();
            let (mut reader, mut rows) = (AnswerReader::new(&message).unwrap(), Vec::new());
            while let Some(group) = reader.next_group().unwrap() {
                rows.extend(group.refused());
            }
            let refused = routes.iter().map(|(_, _, prefix)| *prefix).zip(0..);
            prop_assert_eq!(rows, refused.filter(|_| kind == AnswerKind::Refused).collect::<Vec<_>>());
            prop_assert_eq!(read(&message), Ok((kind, routes)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn a_route_of_the_group_takes_five_bytes_and_a_cut_message_is_refused() {
        let mut writer = AnswerWriter::new(AnswerKind::Confirmed);
        let bgp = Name::from("bgp");
        for n in 0..100u32 {
            writer.add(None, &bgp, AnyPrefix::V4(Prefix::new(n << 8, 24)));
        }
        let message = writer.finish();
        assert_eq!(message.len(), 1 + (2 + 2 + 3 + 1 + 4) + 100 * 5);
        for len in (0..message.len()).filter(|len| *len != 1) {
            assert_eq!(read(&message[..len]), Err(MalformedAnswers), "{len}");
        }
        assert_eq!(read(&[4]), Err(MalformedAnswers));
    }
}
