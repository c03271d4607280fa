//! SONiC's tables as typed rows, and the route logic of fpmsyncd, orchagent and syncd.
//!
//! The three daemons are state machines here: changes and replies go in, changes and requests come out. Whether
//! they travel through Redis, ZeroMQ or memory is the business of the crates around this one, so the same logic
//! runs in one process or in three.
//!
//! Pure: no thread, socket, file, clock or unsafe.
#![forbid(unsafe_code)]

pub mod beside;
mod format;
pub mod fpmsyncd;
pub mod json;
pub mod orch;
pub mod row;
pub mod sai;
mod segmented_vec;
pub mod syncd;

pub use row::{Change, Db, Name, Row, RowError};
