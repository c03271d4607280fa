//! Load and proof: recorded tables from MRT files, generated tables from a seed, senders that play
//! them into BGP sessions, and receivers that count routes.
//!
//! Each tool is a module with its options, a `run` for the command line, and its steps for callers:
//! [`replay`], [`blast`], [`sink`]. [`expected`] is the expected forwarding. [`harness`] has the
//! shared parts of the suites; [`bgp`], [`kernel`] and [`nexthop`] are suites.
// These macros panic when the pipe has no reader.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod bgp;
pub mod blast;
pub mod download;
mod error;
pub mod expected;
pub mod harness;
pub mod kernel;
pub mod mrt_file;
mod negotiation;
pub mod nexthop;
pub mod options;
mod pool;
mod progress;
pub mod recording;
pub mod replay;
pub mod routes;
mod sender;
pub mod session;
pub mod sink;
pub mod table;

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use error::{End, Error};
pub use expected::Expected;
pub use pool::AddressPool;
pub use routes::Routes;
pub use sender::{Sender, Sent};

/// Prints a report: as it displays, or as JSON on one line.
fn print<R: std::fmt::Display + serde::Serialize>(report: &R, json: bool) {
    let text = match serde_json::to_string(report) {
        Ok(text) if json => text,
        _ => report.to_string(),
    };
    // A closed pipe wants no report.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The guarded value. A thread that panicked left nothing half done: the guarded values are replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
