//! Validation with the RPKI, pure: sessions with caches as state machines, and the table that
//! routes are validated against.
//!
//! A [`Session`] speaks RTR (RFC 6810, RFC 8210, draft-ietf-sidrops-8210bis) with one cache and has its
//! [`Records`]. [`Vrps`] is the immutable table of all validated ROA payloads and ASPA records in use;
//! [`Vrps::validate`] is RFC 6811, and [`Aspas::verify`] draft-ietf-sidrops-aspa-verification. Local
//! [`Exceptions`] (RFC 8416) remove and add payloads on the way there.
//!
//! Not implemented: Router Keys, which are read and ignored.
#![forbid(unsafe_code)]

mod aspa;
mod exceptions;
mod records;
mod session;
mod vrps;

pub use aspa::{Aspas, Direction, Hop, PathRule, PathState};
pub use exceptions::{Exceptions, PrefixFilter};
pub use records::{Changes, Record, Records, UnfitChange};
pub use session::{Effect, Overrides, Session, State};
pub use vrps::{ChangedPrefixes, Covering, Origin, Validity, Vrp, VrpList, Vrps};
