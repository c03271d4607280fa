//! Effects around the pure state machines: bounded named rings, calls to a stage, threads, time.
//!
//! A stage is a thread that owns one state machine. Batches reach it through a [`ring`]. Calls of
//! other threads reach it through [`call`], between two batches, so a query never holds a lock that
//! routing needs.
// These macros panic when the pipe has no reader.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod activity;
pub mod allocator;
pub mod call;
pub mod clock;
pub mod code_pages;
pub mod connect;
pub mod cpu;
pub mod date;
pub mod gauge;
pub mod handover;
pub mod histogram;
pub mod idle;
pub mod liveness;
pub mod log;
pub mod meter;
#[cfg(all(test, loom))]
mod models;
pub mod oneshot;
pub mod output;
pub mod performance;
pub mod registry;
pub mod ring;
pub mod stop;
mod sync;
pub mod thread;
pub mod unix_socket;
pub mod wait_fd;
pub mod wake_up;
pub mod watchdog;
