//! What can be wrong with an attribute, for logs and counters and for the NOTIFICATION where one is due.

use super::super::attribute::{code, name};
use super::super::notification::{self, Notification, update};
use std::fmt;

/// One fault of one attribute. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fault {
    /// The attribute's type code.
    pub code: u8,
    /// What is wrong with it.
    pub kind: FaultKind,
}

/// What is wrong with an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// Its optional or transitive flag is not what its type demands.
    Flags,
    /// Its length is impossible.
    Length,
    /// Its value is impossible.
    Value,
    /// It is mandatory and not there.
    Missing,
    /// It was there before.
    Duplicate,
    /// It means nothing from a peer of another AS.
    External,
    /// It means nothing from a peer that has four-octet AS numbers.
    FourOctet,
    /// It does not end inside the attributes.
    Overrun,
    /// It is well-known to its sender, but not to us.
    UnknownWellKnown,
    /// An operator does not want it from this neighbour ([`AttributeFilter`](super::AttributeFilter)).
    Unwanted,
    /// It may not be with routes of this family.
    Family,
    /// It gives another next hop for IPv4 than NEXT_HOP does, with prefixes for both.
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
    /// Which one, and why.
    pub fault: Fault,
    /// Where it starts in the attribute block.
    pub(super) start: usize,
}
