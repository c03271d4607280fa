//! The effects: stages wired to threads, sockets, databases and the kernel; configuration, API, metrics.
//!
//! [`config`] says what to run, [`router`] builds and runs it, [`api`] lets people look inside while it runs.

pub mod api;
pub mod bgp;
pub mod config;
pub mod dataplane;
pub mod rib;
pub mod router;
pub mod sonic;
