//! The SONiC route path: the state machines of `ribtide-swss` wired to sockets, databases and the virtual switch.
//!
//! Two wirings of one implementation. [`fpmsyncd`], [`orchagent`] and [`syncd`] are SONiC's three daemons, each a
//! process of its own over Redis, compatible with SONiC's own on every side. [`inprocess`] runs the same three on
//! threads of this process, over tables in memory, behind a dataplane port.

mod acks;
mod answers;
mod asic_db;
pub mod config_db;
pub mod explain;
mod follow;
mod former;
mod fpm_server;
pub mod fpmsyncd;
pub mod inprocess;
mod links;
mod north;
mod orch_stage;
pub mod orchagent;
mod outlet;
pub mod performance;
pub mod pipeline;
mod publisher;
mod query;
pub mod queues;
mod record;
pub mod route_check;
pub mod servers;
pub mod settings;
mod since;
mod south;
mod south_server;
mod stock;
pub mod syncd;
mod syncd_stage;
mod vrf_names;
mod warm;
mod warm_file;
mod wiring;

use crate::combinations::{self, Asked};
pub use north::{Lag, Persistence};
use ribtide_tables::TableError;
pub use south::Mode;
use std::fmt;

/// Why a daemon ended or did not start: one sentence, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(String);

impl Error {
    fn new(sentence: impl Into<String>) -> Error {
        Error(sentence.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<TableError> for Error {
    fn from(e: TableError) -> Error {
        Error(e.to_string())
    }
}

/// Refuses settings that cannot be combined.
fn refuse(asked: &Asked) -> Result<(), Error> {
    match combinations::broken(asked).next() {
        Some(rule) => Err(Error::new(rule.says)),
        None => Ok(()),
    }
}

use ribtide_runtime::log::log;
