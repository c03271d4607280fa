//! Capabilities: the supported features of a speaker, advertised in OPEN (RFC 5492).

/// Capability codes (IANA's registry).
mod code {
    /// Multiprotocol extensions (RFC 4760).
    pub(super) const MULTIPROTOCOL: u8 = 1;
    /// Route refresh (RFC 2918).
    pub(super) const ROUTE_REFRESH: u8 = 2;
    /// Extended message (RFC 8654).
    pub(super) const EXTENDED_MESSAGE: u8 = 6;
    /// BGP role (RFC 9234).
    pub(super) const ROLE: u8 = 9;
    /// Four-octet AS numbers (RFC 6793).
    pub(super) const FOUR_OCTET_AS: u8 = 65;
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
    /// Messages of up to 65,535 bytes are understood.
    ExtendedMessage,
    /// The sender's role, one of [`Role`](super::role::Role) or unassigned.
    Role(u8),
    /// AS numbers have four bytes; the sender's own.
    FourOctetAs(u32),
    /// One that ribtide does not use, or one of the above with an invalid length.
    Unknown {
        /// Capability code.
        code: u8,
        /// Capability value, at most 255 bytes.
        value: &'a [u8],
    },
}

impl<'a> Capability<'a> {
    /// The capability of a code and value. A value that does not fit its code becomes
    /// [`Capability::Unknown`]: capabilities are offers, so a malformed one counts as not made.
    fn from_parts(code: u8, value: &'a [u8]) -> Self {
        match (code, value) {
            (code::MULTIPROTOCOL, [a, b, _reserved, safi]) => {
                Capability::Multiprotocol { afi: u16::from_be_bytes([*a, *b]), safi: *safi }
            }
            (code::ROUTE_REFRESH, []) => Capability::RouteRefresh,
            (code::EXTENDED_MESSAGE, []) => Capability::ExtendedMessage,
            (code::ROLE, [role]) => Capability::Role(*role),
            (code::FOUR_OCTET_AS, [a, b, c, d]) => {
                Capability::FourOctetAs(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            (code, value) => Capability::Unknown { code, value },
        }
    }

    /// Appends code, length and value. A value beyond 255 bytes has no encoding and is cut there.
    pub(super) fn write(self, out: &mut Vec<u8>) {
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
            Capability::ExtendedMessage => put(code::EXTENDED_MESSAGE, &[]),
            Capability::Role(role) => put(code::ROLE, &[role]),
            Capability::FourOctetAs(asn) => put(code::FOUR_OCTET_AS, &asn.to_be_bytes()),
            Capability::Unknown { code, value } => put(code, value),
        }
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
