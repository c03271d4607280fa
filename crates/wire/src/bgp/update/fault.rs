//! Faults of attributes, for logs, counters and NOTIFICATIONs.

use super::super::attribute::{code, name};
use super::super::notification::{self, Notification, update};
use std::fmt;

/// One fault of one attribute. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fault {
    /// The attribute's type code.
    pub code: u8,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// The kind of an attribute's fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// Its optional or transitive flag is wrong for its type.
    Flags,
    /// Its length is impossible.
    Length,
    /// Its value is impossible.
    Value,
    /// It is mandatory and missing.
    Missing,
    /// It is a repetition.
    Duplicate,
    /// It is not permitted from another AS.
    External,
    /// It is not permitted from a peer with four-octet AS numbers.
    FourOctet,
    /// It does not end inside the attributes.
    Overrun,
    /// Its flags say well-known, and its type is unknown.
    UnknownWellKnown,
    /// The configuration filters it ([`AttributeFilter`](super::AttributeFilter)).
    Unwanted,
    /// It is not permitted with routes of this family.
    Family,
    /// Its next hop for IPv4 differs from NEXT_HOP, and both have prefixes.
    Conflict,
}

impl Fault {
    /// The NOTIFICATION for it (RFC 4271 section 6.3). `attribute` is the attribute with its header.
    pub(super) fn notification(self, attribute: &[u8]) -> Notification {
        let subcode = match (self.kind, self.code) {
            (FaultKind::Overrun | FaultKind::Duplicate, _) => {
                return Notification::new(notification::code::UPDATE, update::MALFORMED_ATTRIBUTE_LIST);
            }
            (FaultKind::UnknownWellKnown, _) => update::UNRECOGNIZED_WELL_KNOWN,
            (FaultKind::Flags, _) => update::ATTRIBUTE_FLAGS,
            (_, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) => update::OPTIONAL_ATTRIBUTE,
            (FaultKind::Length, _) => update::ATTRIBUTE_LENGTH,
            (_, code::ORIGIN) => update::INVALID_ORIGIN,
            (_, code::NEXT_HOP) => update::INVALID_NEXT_HOP,
            (_, code::AS_PATH) => update::MALFORMED_AS_PATH,
            _ => update::OPTIONAL_ATTRIBUTE,
        };
        Notification::with_data(notification::code::UPDATE, subcode, attribute.to_vec())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.code) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "attribute {}", self.code)?,
        }
        f.write_str(match self.kind {
            FaultKind::Flags => " has wrong flags",
            FaultKind::Length => " has a wrong length",
            FaultKind::Value => " has an invalid value",
            FaultKind::Missing => " is missing",
            FaultKind::Duplicate => " appears more than once",
            FaultKind::External if self.code == code::PREFIX_SID => {
                " came from an external peer without prefix-sid = true"
            }
            FaultKind::External if self.code == code::AIGP => " came from a peer without aigp = true",
            FaultKind::External => " came from an external peer",
            FaultKind::FourOctet => " came from a peer that has four-octet AS numbers",
            FaultKind::Overrun => " does not end inside the attributes",
            FaultKind::UnknownWellKnown => " claims to be well-known, but is not",
            FaultKind::Unwanted => {
                " is not wanted from this neighbour (discard-attributes, treat-as-withdraw)"
            }
            FaultKind::Family => " may not be with unicast routes",
            FaultKind::Conflict => " and NEXT_HOP give different next hops",
        })
    }
}

/// An attribute that was discarded while the routes were kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discarded {
    /// The fault.
    pub fault: Fault,
    /// Where it starts in the attribute block.
    pub(super) start: usize,
}
