//! Capabilities: the supported features of a speaker, advertised in OPEN (RFC 5492).

use std::fmt;

/// Capability codes (IANA's registry).
pub mod code {
    /// Multiprotocol extensions (RFC 4760).
    pub const MULTIPROTOCOL: u8 = 1;
    /// Route refresh (RFC 2918).
    pub const ROUTE_REFRESH: u8 = 2;
    /// Extended next hop encoding (RFC 8950).
    pub const EXTENDED_NEXT_HOP: u8 = 5;
    /// Extended message (RFC 8654).
    pub const EXTENDED_MESSAGE: u8 = 6;
    /// Graceful restart (RFC 4724).
    pub const GRACEFUL_RESTART: u8 = 64;
    /// Four-octet AS numbers (RFC 6793).
    pub const FOUR_OCTET_AS: u8 = 65;
    /// ADD-PATH (RFC 7911).
    pub const ADD_PATH: u8 = 69;
    /// Enhanced route refresh (RFC 7313).
    pub const ENHANCED_ROUTE_REFRESH: u8 = 70;
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
    /// Routes of one family may have next hops of another.
    ExtendedNextHop(ExtendedNextHops<'a>),
    /// Messages of up to 65,535 bytes are understood.
    ExtendedMessage,
    /// Forwarding state may survive a restart.
    GracefulRestart(GracefulRestart<'a>),
    /// AS numbers have four bytes; the sender's own.
    FourOctetAs(u32),
    /// Several paths for one prefix.
    AddPath(AddPaths<'a>),
    /// Begin and end of a route refresh are marked.
    EnhancedRouteRefresh,
    /// An unknown capability, or a known one with an invalid length.
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
    pub fn from_parts(code: u8, value: &'a [u8]) -> Self {
        match (code, value) {
            (code::MULTIPROTOCOL, [a, b, _reserved, safi]) => {
                Capability::Multiprotocol { afi: u16::from_be_bytes([*a, *b]), safi: *safi }
            }
            (code::ROUTE_REFRESH, []) => Capability::RouteRefresh,
            (code::EXTENDED_NEXT_HOP, v) if v.len() % 6 == 0 => {
                Capability::ExtendedNextHop(ExtendedNextHops(v))
            }
            (code::EXTENDED_MESSAGE, []) => Capability::ExtendedMessage,
            (code::GRACEFUL_RESTART, [a, b, families @ ..]) if families.len() % 4 == 0 => {
                let word = u16::from_be_bytes([*a, *b]);
                Capability::GracefulRestart(GracefulRestart {
                    restarting: word & 0x8000 != 0,
                    notification: word & 0x4000 != 0,
                    restart_time: word & 0x0fff,
                    families,
                })
            }
            (code::FOUR_OCTET_AS, [a, b, c, d]) => {
                Capability::FourOctetAs(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            (code::ADD_PATH, v) if v.len() % 4 == 0 => Capability::AddPath(AddPaths(v)),
            (code::ENHANCED_ROUTE_REFRESH, []) => Capability::EnhancedRouteRefresh,
            (code, value) => Capability::Unknown { code, value },
        }
    }

    /// The capability code.
    pub fn code(self) -> u8 {
        match self {
            Capability::Multiprotocol { .. } => code::MULTIPROTOCOL,
            Capability::RouteRefresh => code::ROUTE_REFRESH,
            Capability::ExtendedNextHop(_) => code::EXTENDED_NEXT_HOP,
            Capability::ExtendedMessage => code::EXTENDED_MESSAGE,
            Capability::GracefulRestart(_) => code::GRACEFUL_RESTART,
            Capability::FourOctetAs(_) => code::FOUR_OCTET_AS,
            Capability::AddPath(_) => code::ADD_PATH,
            Capability::EnhancedRouteRefresh => code::ENHANCED_ROUTE_REFRESH,
            Capability::Unknown { code, .. } => code,
        }
    }

    /// Appends code, length and value. A value beyond 255 bytes has no encoding and is cut there.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.push(self.code());
        let at = out.len();
        out.push(0);
        match self {
            Capability::Multiprotocol { afi, safi } => {
                out.extend_from_slice(&afi.to_be_bytes());
                out.extend_from_slice(&[0, safi]);
            }
            Capability::RouteRefresh | Capability::ExtendedMessage | Capability::EnhancedRouteRefresh => {}
            Capability::ExtendedNextHop(ExtendedNextHops(v)) | Capability::AddPath(AddPaths(v)) => {
                out.extend_from_slice(v);
            }
            Capability::GracefulRestart(gr) => {
                let word = u16::from(gr.restarting) << 15
                    | u16::from(gr.notification) << 14
                    | gr.restart_time & 0x0fff;
                out.extend_from_slice(&word.to_be_bytes());
                out.extend_from_slice(gr.families);
            }
            Capability::FourOctetAs(asn) => out.extend_from_slice(&asn.to_be_bytes()),
            Capability::Unknown { value, .. } => out.extend_from_slice(value),
        }
        out.truncate(at + 1 + 255);
        let len = out.len() - at - 1;
        if let Some(field) = out.get_mut(at) {
            *field = len as u8;
        }
    }
}

impl fmt::Display for Capability<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capability::Multiprotocol { afi: 1, safi: 1 } => f.write_str("ipv4-unicast"),
            Capability::Multiprotocol { afi: 2, safi: 1 } => f.write_str("ipv6-unicast"),
            Capability::Multiprotocol { afi, safi } => write!(f, "family {afi}/{safi}"),
            Capability::RouteRefresh => f.write_str("route-refresh"),
            Capability::ExtendedNextHop(_) => f.write_str("extended-next-hop"),
            Capability::ExtendedMessage => f.write_str("extended-message"),
            Capability::GracefulRestart(_) => f.write_str("graceful-restart"),
            Capability::FourOctetAs(asn) => write!(f, "four-octet-as {asn}"),
            Capability::AddPath(_) => f.write_str("add-path"),
            Capability::EnhancedRouteRefresh => f.write_str("enhanced-route-refresh"),
            Capability::Unknown { code, .. } => write!(f, "capability {code}"),
        }
    }
}

/// The (AFI, SAFI, next hop AFI) triples of an extended next hop capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtendedNextHops<'a>(&'a [u8]);

impl<'a> ExtendedNextHops<'a> {
    /// IPv4 unicast routes with IPv6 next hops: the one that ribtide offers.
    pub const IPV4_OVER_IPV6: ExtendedNextHops<'static> = ExtendedNextHops(&[0, 1, 0, 1, 0, 2]);

    /// The triples.
    pub fn iter(self) -> impl Iterator<Item = (u16, u16, u16)> + 'a {
        self.0.chunks_exact(6).filter_map(|c| match c {
            [a, b, c, d, e, f] => Some((
                u16::from_be_bytes([*a, *b]),
                u16::from_be_bytes([*c, *d]),
                u16::from_be_bytes([*e, *f]),
            )),
            _ => None,
        })
    }

    /// Whether IPv4 unicast routes may have IPv6 next hops.
    pub fn ipv4_over_ipv6(self) -> bool {
        self.iter().any(|triple| triple == (1, 1, 2))
    }
}

/// A graceful restart capability (RFC 4724, RFC 8538).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GracefulRestart<'a> {
    /// The sender has restarted.
    pub restarting: bool,
    /// Graceful restart also follows a NOTIFICATION (RFC 8538).
    pub notification: bool,
    /// How long to wait for the session to come back, in seconds (at most 4095).
    pub restart_time: u16,
    families: &'a [u8],
}

impl<'a> GracefulRestart<'a> {
    /// A capability without families: the sender sends End-of-RIB, and preserves no forwarding
    /// state over its restart.
    pub fn end_of_rib_only(restart_time: u16) -> GracefulRestart<'static> {
        GracefulRestart { restarting: false, notification: false, restart_time, families: &[] }
    }

    /// The families: AFI, SAFI and whether forwarding state was preserved.
    pub fn families(self) -> impl Iterator<Item = (u16, u8, bool)> + 'a {
        self.families.chunks_exact(4).filter_map(|c| match c {
            [a, b, safi, flags] => Some((u16::from_be_bytes([*a, *b]), *safi, flags & 0x80 != 0)),
            _ => None,
        })
    }
}

/// The families of an ADD-PATH capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddPaths<'a>(&'a [u8]);

impl<'a> AddPaths<'a> {
    /// The families: AFI, SAFI, and 1 (can receive), 2 (can send) or 3 (both).
    pub fn iter(self) -> impl Iterator<Item = (u16, u8, u8)> + 'a {
        self.0.chunks_exact(4).filter_map(|c| match c {
            [a, b, safi, mode] => Some((u16::from_be_bytes([*a, *b]), *safi, *mode)),
            _ => None,
        })
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
