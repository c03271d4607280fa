//! What orchagent tells an fpmsyncd of our own directly: the layout of a message of answers.
//!
//! [`RouteResponse`](super::RouteResponse)s are texts, one a route, because SONiC's daemons read them. Between two of ours what
//! routes share is said once: a message is a kind, then groups, each of which is a VRF, a protocol, a family, a count and
//! so many prefixes. Numbers have their least significant byte first, names 16 bits of length before them.

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
}

impl AnswerKind {
    const ALL: [AnswerKind; 3] = [AnswerKind::InChip, AnswerKind::AllSaid, AnswerKind::Confirmed];
}

/// What the routes of a group share.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shared {
    vrf: Option<Name>,
    protocol: Name,
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

    /// Adds a route. `vrf`: `None` is the default one. A name that is longer than 65,535 bytes is nobody's: its route is
    /// left out.
    pub fn add(&mut self, vrf: Option<&Name>, protocol: &Name, prefix: AnyPrefix) {
        let width = match prefix {
            AnyPrefix::V4(_) => 4,
            AnyPrefix::V6(_) => 16,
        };
        let same = self.group.as_ref().is_some_and(|group| {
            group.width == width && is(Some(&group.protocol), Some(protocol)) && is(group.vrf.as_ref(), vrf)
        });
        if !same && !self.begin(vrf, protocol, width) {
            return;
        }
        self.bytes.push(prefix.len());
        match prefix {
            AnyPrefix::V4(prefix) => self.bytes.extend_from_slice(&prefix.bits().to_be_bytes()),
            AnyPrefix::V6(prefix) => self.bytes.extend_from_slice(&prefix.bits()),
        }
        self.count += 1;
    }

    fn begin(&mut self, vrf: Option<&Name>, protocol: &Name, width: u8) -> bool {
        let names = [vrf.map_or("", |vrf| vrf), protocol].map(str::as_bytes);
        let [Ok(vrf_len), Ok(protocol_len)] = names.map(|name| u16::try_from(name.len())) else {
            return false;
        };
        self.end();
        for (len, name) in [vrf_len, protocol_len].into_iter().zip(names) {
            self.bytes.extend_from_slice(&len.to_le_bytes());
            self.bytes.extend_from_slice(name);
        }
        self.bytes.push(width);
        self.count_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.group = Some(Shared { vrf: vrf.cloned(), protocol: protocol.clone(), width });
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

/// Routes of one VRF and one protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerGroup<'a> {
    /// The VRF; `None` is the default one.
    pub vrf: Option<&'a str>,
    /// The row's protocol, as it was spelled.
    pub protocol: &'a str,
    width: usize,
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
        let protocol = self.name()?;
        let (width, rest) = self.rest.split_first().ok_or(MalformedAnswers)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(MalformedAnswers)?;
        let width = usize::from(*width);
        if ![4, 16].contains(&width) {
            return Err(MalformedAnswers);
        }
        let len = usize::try_from(u32::from_le_bytes(*count)).ok().and_then(|n| n.checked_mul(width + 1));
        let (prefixes, rest) = len.and_then(|len| rest.split_at_checked(len)).ok_or(MalformedAnswers)?;
        self.rest = rest;
        Ok(Some(AnswerGroup { vrf: Some(vrf).filter(|vrf| !vrf.is_empty()), protocol, width, prefixes }))
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
        let width = self.width;
        self.prefixes.chunks_exact(width + 1).filter_map(move |entry| {
            let (len, addr) = entry.split_first()?;
            match width {
                4 => addr.try_into().ok().map(|b| AnyPrefix::V4(Prefix::new(u32::from_be_bytes(b), *len))),
                _ => addr.try_into().ok().map(|b| AnyPrefix::V6(Prefix::new(b, *len))),
            }
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
            let shared = (group.vrf.map(Name::from), Name::from(group.protocol));
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
        fn what_was_written_is_read(routes in prop::collection::vec(route(), 0..40), kind in 0..3usize) {
            let kind = AnswerKind::ALL[kind];
            let mut writer = AnswerWriter::new(kind);
            for (vrf, protocol, prefix) in &routes {
                writer.add(vrf.as_ref(), protocol, *prefix);
            }
            prop_assert_eq!((writer.len(), writer.is_empty()), (routes.len(), routes.is_empty()));
            prop_assert_eq!(read(&writer.finish()), Ok((kind, routes)));
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
        assert_eq!(read(&[3]), Err(MalformedAnswers));
    }
}
