//! Capabilities: the supported features of a speaker, advertised in OPEN (RFC 5492).

use ribtide_prefix::AfiSafi;

/// Capability codes (IANA's registry).
mod code {
    /// Multiprotocol extensions (RFC 4760).
    pub(super) const MULTIPROTOCOL: u8 = 1;
    /// Route refresh (RFC 2918).
    pub(super) const ROUTE_REFRESH: u8 = 2;
    /// Extended next hop encoding (RFC 8950).
    pub(super) const EXTENDED_NEXT_HOP: u8 = 5;
    /// Extended message (RFC 8654).
    pub(super) const EXTENDED_MESSAGE: u8 = 6;
    /// BGP role (RFC 9234).
    pub(super) const ROLE: u8 = 9;
    /// Graceful restart (RFC 4724).
    pub(super) const GRACEFUL_RESTART: u8 = 64;
    /// Four-octet AS numbers (RFC 6793).
    pub(super) const FOUR_OCTET_AS: u8 = 65;
    /// Add-path (RFC 7911).
    pub(super) const ADD_PATH: u8 = 69;
    /// Enhanced route refresh (RFC 7313).
    pub(super) const ENHANCED_ROUTE_REFRESH: u8 = 70;
    /// Long-lived graceful restart (RFC 9494).
    pub(super) const LONG_LIVED_RESTART: u8 = 71;
}

/// One capability. Families are as numbered by IANA, since a peer may name any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Capability<'a> {
    /// Routes of this family may be exchanged.
    Multiprotocol {
        /// Address family.
        afi: u16,
        /// Subsequent address family.
        safi: u8,
    },
    /// ROUTE-REFRESH is understood.
    RouteRefresh,
    /// Next hops of another address family than that of their routes are understood.
    ExtendedNextHop(ExtendedNextHop<'a>),
    /// The begin and end of a route refresh are marked, and understood (RFC 7313).
    EnhancedRouteRefresh,
    /// Messages of up to 65,535 bytes are understood.
    ExtendedMessage,
    /// The sender's role, one of [`Role`](super::role::Role) or unassigned.
    Role(u8),
    /// Graceful restart: what the sender does and wants when its session is lost.
    GracefulRestart(GracefulRestart<'a>),
    /// Long-lived graceful restart: for how long the sender's routes may be retained as a last resort.
    LongLivedRestart(LongLivedFamilies<'a>),
    /// AS numbers have four bytes; the sender's own.
    FourOctetAs(u32),
    /// Several paths of a prefix are understood, or can be sent.
    AddPath(AddPath<'a>),
    /// One that ribtide does not use, or one of the above with an invalid length.
    Unknown {
        /// Capability code.
        code: u8,
        /// Capability value, at most 255 bytes.
        value: &'a [u8],
    },
}

impl<'a> Capability<'a> {
    /// The capability of a family.
    pub fn multiprotocol(family: AfiSafi) -> Self {
        let (afi, safi) = family.codes();
        Capability::Multiprotocol { afi, safi }
    }

    /// The capability of a code and value. A value that does not fit its code becomes
    /// [`Capability::Unknown`]: capabilities are offers, so a malformed one counts as not made.
    fn from_parts(code: u8, value: &'a [u8]) -> Self {
        match (code, value) {
            (code::MULTIPROTOCOL, [a, b, _reserved, safi]) => {
                Capability::Multiprotocol { afi: u16::from_be_bytes([*a, *b]), safi: *safi }
            }
            (code::ROUTE_REFRESH, []) => Capability::RouteRefresh,
            (code::EXTENDED_NEXT_HOP, value) if value.len().is_multiple_of(6) => {
                Capability::ExtendedNextHop(ExtendedNextHop { value })
            }
            (code::ENHANCED_ROUTE_REFRESH, []) => Capability::EnhancedRouteRefresh,
            (code::EXTENDED_MESSAGE, []) => Capability::ExtendedMessage,
            (code::ROLE, [role]) => Capability::Role(*role),
            (code::GRACEFUL_RESTART, value) => match GracefulRestart::parse(value) {
                Some(restart) => Capability::GracefulRestart(restart),
                None => Capability::Unknown { code, value },
            },
            (code::LONG_LIVED_RESTART, bytes) if bytes.len().is_multiple_of(7) => {
                Capability::LongLivedRestart(LongLivedFamilies { bytes })
            }
            (code::FOUR_OCTET_AS, [a, b, c, d]) => {
                Capability::FourOctetAs(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            (code::ADD_PATH, value) if AddPath::is_valid(value) => Capability::AddPath(AddPath { value }),
            (code, value) => Capability::Unknown { code, value },
        }
    }

    /// Appends code, length and value. A value beyond 255 bytes has no encoding and is cut there.
    pub fn write(self, out: &mut Vec<u8>) {
        let mut put = |code: u8, value: &[u8]| {
            let value = value.get(..255).unwrap_or(value);
            out.extend_from_slice(&[code, value.len() as u8]);
            out.extend_from_slice(value);
        };
        match self {
            Capability::Multiprotocol { afi, safi } => {
                let [high, low] = afi.to_be_bytes();
                put(code::MULTIPROTOCOL, &[high, low, 0, safi]);
            }
            Capability::RouteRefresh => put(code::ROUTE_REFRESH, &[]),
            Capability::ExtendedNextHop(ExtendedNextHop { value }) => put(code::EXTENDED_NEXT_HOP, value),
            Capability::EnhancedRouteRefresh => put(code::ENHANCED_ROUTE_REFRESH, &[]),
            Capability::ExtendedMessage => put(code::EXTENDED_MESSAGE, &[]),
            Capability::Role(role) => put(code::ROLE, &[role]),
            Capability::GracefulRestart(GracefulRestart { restarting, notification, time, families }) => {
                let flags = u16::from(restarting) << 15 | u16::from(notification) << 14;
                let [high, low] = (flags | time.min(GracefulRestart::TIME_MAX)).to_be_bytes();
                put(code::GRACEFUL_RESTART, &[&[high, low], families.bytes].concat());
            }
            Capability::LongLivedRestart(LongLivedFamilies { bytes }) => put(code::LONG_LIVED_RESTART, bytes),
            Capability::FourOctetAs(asn) => put(code::FOUR_OCTET_AS, &asn.to_be_bytes()),
            Capability::AddPath(AddPath { value }) => put(code::ADD_PATH, value),
            Capability::Unknown { code, value } => put(code, value),
        }
    }
}

/// The families whose routes may have next hops of another one (RFC 8950 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtendedNextHop<'a> {
    /// AFI, SAFI and AFI of the next hop, two bytes each.
    value: &'a [u8],
}

impl<'a> ExtendedNextHop<'a> {
    /// IPv4 unicast with IPv6 next hops.
    pub const IPV4_UNICAST_OVER_IPV6: ExtendedNextHop<'static> =
        ExtendedNextHop { value: &[0, 1, 0, 1, 0, 2] };

    /// AFI, SAFI and AFI of the next hop of each, in the order received.
    pub fn families(self) -> impl Iterator<Item = (u16, u16, u16)> + use<'a> {
        let number = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
        self.value
            .as_chunks::<6>()
            .0
            .iter()
            .map(move |[a, b, c, d, e, f]| (number(a, b), number(c, d), number(e, f)))
    }
}

/// The graceful restart capability (RFC 4724 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GracefulRestart<'a> {
    /// R: the sender has restarted, and its peer must not wait for its End-of-RIB.
    pub restarting: bool,
    /// N: the sender also keeps routes when a NOTIFICATION other than a Hard Reset ends the session
    /// (RFC 8538 section 2).
    pub notification: bool,
    /// The seconds in which the sender expects to have a session again, at most
    /// [`GracefulRestart::TIME_MAX`].
    pub time: u16,
    /// The families whose forwarding the sender can keep over its restart.
    pub families: RestartFamilies<'a>,
}

/// Families of a graceful restart capability, as received or to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RestartFamilies<'a> {
    /// AFI, SAFI and flags, four bytes each.
    bytes: &'a [u8],
}

/// F of a family's flags: the sender kept its forwarding over the restart.
const FORWARDING: u8 = 0x80;

impl GracefulRestart<'_> {
    /// The longest restart time: it has twelve bits.
    pub const TIME_MAX: u16 = 0x0fff;

    /// Reads the value of the capability; `None` if its length is wrong.
    fn parse(value: &[u8]) -> Option<GracefulRestart<'_>> {
        let ([high, low], bytes) = value.split_first_chunk::<2>()?;
        let head = u16::from_be_bytes([*high, *low]);
        bytes.len().is_multiple_of(4).then_some(GracefulRestart {
            restarting: head & 0x8000 != 0,
            notification: head & 0x4000 != 0,
            time: head & GracefulRestart::TIME_MAX,
            families: RestartFamilies { bytes },
        })
    }
}

/// Families of a long-lived graceful restart capability, as received or to be sent (RFC 9494 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LongLivedFamilies<'a> {
    /// AFI, SAFI, flags and a time of three bytes: seven bytes each.
    bytes: &'a [u8],
}

/// What the sender of the capability says of one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LongLivedFamily {
    /// Address family.
    pub afi: u16,
    /// Subsequent address family.
    pub safi: u8,
    /// F: the routes that it advertised before its last restart were kept in use.
    pub forwarding: bool,
    /// The seconds for which they may be retained after the restart time, at most [`LongLivedFamilies::TIME_MAX`].
    pub time: u32,
}

impl<'a> LongLivedFamilies<'a> {
    /// The longest time: it has 24 bits.
    pub const TIME_MAX: u32 = 0x00ff_ffff;

    /// Families to send, encoded into `buf`.
    pub fn new(families: &[LongLivedFamily], buf: &'a mut Vec<u8>) -> LongLivedFamilies<'a> {
        buf.clear();
        for LongLivedFamily { afi, safi, forwarding, time } in families {
            let [_, time @ ..] = (*time).min(LongLivedFamilies::TIME_MAX).to_be_bytes();
            buf.extend_from_slice(&afi.to_be_bytes());
            buf.extend_from_slice(&[*safi, if *forwarding { FORWARDING } else { 0 }]);
            buf.extend_from_slice(&time);
        }
        LongLivedFamilies { bytes: buf }
    }

    /// The families, in the order received. One may be there more than once.
    pub fn iter(self) -> impl Iterator<Item = LongLivedFamily> + use<'a> {
        let (families, _) = self.bytes.as_chunks::<7>();
        families.iter().map(|[high, low, safi, flags, time @ ..]| LongLivedFamily {
            afi: u16::from_be_bytes([*high, *low]),
            safi: *safi,
            forwarding: flags & FORWARDING != 0,
            time: time.iter().fold(0, |time, byte| time << 8 | u32::from(*byte)),
        })
    }
}

/// The families in which the sender of an OPEN receives or sends several paths of a prefix (RFC 7911
/// section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddPath<'a> {
    /// Four bytes for each family.
    value: &'a [u8],
}

/// What the sender of the capability does with path identifiers in one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddPathFamily {
    /// Address family.
    pub afi: u16,
    /// Subsequent address family.
    pub safi: u8,
    /// Whether it receives them.
    pub receive: bool,
    /// Whether it sends them.
    pub send: bool,
}

impl<'a> AddPath<'a> {
    const RECEIVE: u8 = 1;
    const SEND: u8 = 2;

    /// The capability for families, encoded into `buf`. At most 63 fit; further ones are left out.
    pub fn new(families: &[AddPathFamily], buf: &'a mut Vec<u8>) -> AddPath<'a> {
        buf.clear();
        for AddPathFamily { afi, safi, receive, send } in families.iter().take(63) {
            let [high, low] = afi.to_be_bytes();
            let receive = if *receive { AddPath::RECEIVE } else { 0 };
            let send = if *send { AddPath::SEND } else { 0 };
            if receive | send != 0 {
                buf.extend_from_slice(&[high, low, *safi, receive | send]);
            }
        }
        AddPath { value: buf }
    }

    /// Whether `value` is whole families whose last byte is 1, 2 or 3. With any other the capability is
    /// ignored (RFC 7911 section 4).
    fn is_valid(value: &[u8]) -> bool {
        let (families, rest) = value.as_chunks::<4>();
        rest.is_empty() && families.iter().all(|[_, _, _, both]| matches!(both, 1..=3))
    }

    /// The families, in the order received.
    pub fn families(self) -> impl Iterator<Item = AddPathFamily> + use<'a> {
        self.value.as_chunks::<4>().0.iter().map(|[high, low, safi, both]| AddPathFamily {
            afi: u16::from_be_bytes([*high, *low]),
            safi: *safi,
            receive: both & AddPath::RECEIVE != 0,
            send: both & AddPath::SEND != 0,
        })
    }
}

impl<'a> RestartFamilies<'a> {
    /// Families to send, in wire form: see [`RestartFamilies::push`].
    pub fn new(bytes: &'a [u8]) -> RestartFamilies<'a> {
        RestartFamilies { bytes }
    }

    /// Appends a family in wire form. `forwarding`: its forwarding was kept over the last restart.
    pub fn push(out: &mut Vec<u8>, family: AfiSafi, forwarding: bool) {
        out.extend_from_slice(&family.to_bytes());
        out.push(if forwarding { FORWARDING } else { 0 });
    }

    /// AFI, SAFI and F of each family. One may be there more than once.
    pub fn iter(self) -> impl Iterator<Item = (u16, u8, bool)> + use<'a> {
        let (families, _) = self.bytes.as_chunks::<4>();
        families
            .iter()
            .map(|[a, b, safi, flags]| (u16::from_be_bytes([*a, *b]), *safi, flags & FORWARDING != 0))
    }
}

/// The capabilities in the value of one Capabilities parameter. Ends at the first that is cut short.
#[derive(Clone, Debug)]
pub(super) struct Capabilities<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Capabilities<'a> {
    type Item = Capability<'a>;

    fn next(&mut self) -> Option<Capability<'a>> {
        let [code, len, rest @ ..] = self.rest else { return None };
        let (value, rest) = rest.split_at_checked(usize::from(*len))?;
        self.rest = rest;
        Some(Capability::from_parts(*code, value))
    }
}
