//! Starts and connects the stages of the router, reloads the configuration, and stops.
//!
//! [`router`] builds and runs it, [`reload`] applies another configuration. The stages are in the
//! crates below.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bgp;
mod dataplanes;
mod effects;
mod fib;
mod kernel_note;
mod monitors;
pub mod reload;
pub mod router;
mod run_state;
mod vrf_numbers;

// For the references of the documentation.
pub use effects::{Effect, SETTINGS, Setting};
pub use ribtide_api::metrics;
pub use ribtide_api::openapi;
pub use ribtide_runtime::registry;

#[cfg(test)]
mod tests;
