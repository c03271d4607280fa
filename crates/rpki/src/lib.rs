//! Origin validation with the RPKI, pure: sessions with caches as state machines, and the table that
//! routes are validated against.
//!
//! A [`Session`] speaks RTR (RFC 6810, RFC 8210) with one cache and has its [`Records`]. [`Vrps`] is
//! the immutable table of all validated ROA payloads in use; [`Vrps::validate`] is RFC 6811. Local
//! [`Exceptions`] (RFC 8416) remove and add payloads on the way there.
//!
//! Not implemented: version 2 of RTR with ASPA, and Router Keys, which are read and ignored.
#![forbid(unsafe_code)]

mod exceptions;
mod records;
mod session;
mod vrps;

pub use exceptions::{Exceptions, PrefixFilter};
pub use records::{Changes, Records, UnfitChange};
pub use session::{Effect, Overrides, Session, State};
pub use vrps::{ChangedPrefixes, Covering, Origin, Validity, Vrp, VrpList, Vrps};
