//! A vendor's SAI library (`libsai.so`) behind SAI's C ABI.
//!
//! [`Library`] loads it at run time, checks its version, initializes it with syncd's profile, and calls its functions
//! with values of [`ribtide_sai`]'s table. The functions' places in the method tables, the keys' members and the
//! attributes' types come from that table, so no object type has code of its own.
//!
//! This crate has unsafe code: calls of C, unions and lists of C. Each place says why it is sound.

pub mod abi;
mod chip;
mod convert;
mod library;
pub mod notify;
mod profile;

pub use chip::LibraryChip;
pub use convert::{Attributes, RawKeys, key_layout};
pub use library::{Failed, Id, Library, LoadError, Pair, status_text};
