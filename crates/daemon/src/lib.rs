//! The effects: stages wired to threads, sockets, databases and the kernel; configuration, API, metrics.
//!
//! [`config`] says what to run, [`router`] builds and runs it, [`api`] lets people look inside while it runs.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub use ribtide_bfdd as bfd;
pub use ribtide_bgpd as bgp;
pub use ribtide_config as config;
pub use ribtide_dataplane as dataplane;
pub mod reload;
pub use ribtide_ribd as rib;
pub mod router;
/// The SONiC daemons and the virtual ASIC.
pub mod sonic {
    pub use ribtide_asic as inprocess;
    pub use ribtide_sonicd::*;
}
#[cfg(test)]
mod tests;
mod vrf_numbers;
