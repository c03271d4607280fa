//! SONiC's daemons: the state machines of `ribtide-swss` wired to sockets, databases and the virtual switch.
//!
//! [`fpmsyncd`], [`orchagent`] and [`syncd`] are SONiC's three daemons, each a process of its own over Redis, compatible with
//! SONiC's own on every side. Their stages ([`orch_stage`], [`syncd_stage`]) run in the virtual ASIC too (`ribtide-asic`), on
//! threads of the router.
//!
//! Nothing here knows BGP or the management API.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod appl_transport;
mod asic_db;
mod asic_transport;
mod asic_transport_server;
mod beside;
pub mod chip_state;
pub mod config_db;
mod config_watch;
mod context_config;
pub mod counters;
mod direct_responses;
pub mod events;
pub mod explain;
mod flush;
mod fpm_server;
pub mod fpmsyncd;
pub mod health;
mod ignored_options;
mod kernel_chip;
mod key_watch;
mod links;
pub mod metrics;
mod orch_outputs;
pub mod orch_stage;
pub mod orchagent;
pub mod packets;
pub mod performance;
pub mod pipeline;
pub mod port_reports;
mod previous_ids;
mod query;
pub mod queues;
pub mod reconcile;
mod recorder;
#[cfg(test)]
#[path = "../../tables/tests/common/mod.rs"]
mod redis_server;
pub mod redis_servers;
mod response_publisher;
pub mod route_check;
pub mod route_stages;
mod row_query;
pub mod settings;
mod sole_instance;
pub mod syncd;
pub mod syncd_chip;
mod syncd_generation;
pub mod syncd_stage;
mod transport_check;
pub mod unhandled_tables;
mod verify;
mod vpn_tables;
mod warm;
mod warm_file;

pub use appl_transport::Lag;
use clap::Args;
use ribtide_privileges::{CapabilitySet, Kept, Privileges, Seccomp};
use ribtide_runtime::log::{Format, Levels, LogSettings};
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_settings::RequestedSettings;
use ribtide_swss::{Db, Row};
use ribtide_tables::{Bookkeeping, Connection, Databases, PlainTable, TableError};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Why a daemon ended or did not start. Displays as its sentence, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The command line, CONFIG_DB or a file has what does not work.
    Configuration(String),
    /// The system does not permit to listen on an address or a socket.
    Permission(String),
    /// An address or a socket cannot be listened on for another reason.
    Listen(String),
    /// A database cannot be reached, refuses a command or lost its data.
    Database(String),
    /// The daemon at the other end was started again, does not answer, or sent what it must not.
    Peer(String),
    /// The system gives no thread, or does not list its interfaces.
    System(String),
    /// Anything else.
    Failed(String),
}

impl Error {
    /// An error that is of no kind but [`Error::Failed`].
    pub fn new(sentence: impl Into<String>) -> Error {
        Error::Failed(sentence.into())
    }

    /// The system refuses to listen with `e`.
    fn listen(e: &io::Error, sentence: String) -> Error {
        match e.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission(sentence),
            _ => Error::Listen(sentence),
        }
    }

    /// The system gives no thread to do `what`.
    pub fn no_thread(what: &str) -> impl Fn(io::Error) -> Error {
        move |e| {
            let cure = "raise the limit of processes (ulimit -u)";
            Error::System(format!("the system gives no thread {what}: {e}; {cure}"))
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Configuration(sentence)
            | Error::Permission(sentence)
            | Error::Listen(sentence)
            | Error::Database(sentence)
            | Error::Peer(sentence)
            | Error::System(sentence)
            | Error::Failed(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Error {}

impl From<TableError> for Error {
    fn from(e: TableError) -> Error {
        let kind = match e {
            TableError::Config { .. } => Error::Configuration,
            TableError::Endpoint { .. } => Error::Listen,
            TableError::Unreachable { .. }
            | TableError::Lost { .. }
            | TableError::Refused { .. }
            | TableError::Outdated { .. }
            | TableError::Emptied { .. } => Error::Database,
            TableError::Malformed { .. } | TableError::Interrupted { .. } => Error::Peer,
            TableError::Stopped { .. } => Error::Failed,
        };
        kind(e.to_string())
    }
}

/// What the parts of a daemon's process share.
#[derive(Clone)]
struct Daemon {
    name: &'static str,
    databases: Databases,
    /// Rows of STATE_DB.
    bookkeeping: Bookkeeping,
    rings: Rings,
    stop: Stop,
    /// Keeps the daemon's name in the list of Redis's clients until the other connections are there.
    _sole: Arc<Mutex<Connection>>,
}

impl Daemon {
    /// The daemon `name` on the databases of `config`; without one, SONiC's default. `main`: the
    /// database whose queue only one such daemon may read.
    ///
    /// # Errors
    /// Another one runs, or a database cannot be opened.
    fn new(name: &'static str, main: Db, config: Option<&Path>, stop: &Stop) -> Result<Daemon, Error> {
        let databases = Databases::load(config)?.for_client(name);
        let sole = sole_instance::check(name, databases.get(main), stop)?;
        let bookkeeping = Bookkeeping::start(Db::State, &databases, stop)?;
        let (rings, stop) = (Rings::default(), stop.clone());
        Ok(Daemon { name, databases, bookkeeping, rings, stop, _sole: Arc::new(Mutex::new(sole)) })
    }

    /// A connection to a database.
    fn connect(&self, db: Db) -> Result<Connection, Error> {
        Ok(Connection::open(self.databases.get(db), &self.stop)?)
    }

    /// A table that is written and read as it is.
    fn plain<R: Row>(&self) -> Result<PlainTable<R>, Error> {
        Ok(PlainTable::open(&self.databases, &self.stop)?)
    }
}

/// The options of a daemon's log.
#[derive(Args, Clone, Debug, Default)]
pub struct LogOptions {
    /// The lowest level that is logged (off, error, warn, info or debug), and levels of single targets, as
    /// in info,zmq=debug. The environment variable RIBTIDE_LOG takes precedence
    #[arg(long = "log-level", value_name = "LEVELS", default_value_t)]
    pub levels: Levels,
    /// The format of a log line: text or json
    #[arg(long = "log-format", value_name = "FORMAT", default_value_t)]
    pub format: Format,
}

impl From<&LogOptions> for LogSettings {
    fn from(options: &LogOptions) -> LogSettings {
        LogSettings { levels: options.levels.clone(), format: options.format }
    }
}

/// The options of a daemon's privileges.
#[derive(Args, Clone, Debug, Default)]
pub struct PrivilegeOptions {
    /// The filter of system calls that the daemon does not need: on (such a call fails), log (it is written
    /// to the kernel's audit log) or off
    #[arg(long, value_name = "MODE", default_value_t)]
    pub seccomp: Seccomp,
}

impl PrivilegeOptions {
    /// Gives up every capability, for good, before the first thread exists: the daemons change no
    /// route and no interface of the kernel, and listen on ports above 1023.
    ///
    /// # Errors
    /// The first step that fails, as a sentence.
    pub fn reduce(&self) -> Result<Kept, ribtide_privileges::Error> {
        self.keep(CapabilitySet::empty(), false)
    }

    /// The same, but for what packets of the virtual switch need: packet sockets (CAP_NET_RAW) and tap
    /// devices (CAP_NET_ADMIN).
    fn reduce_for_packets(&self) -> Result<Kept, ribtide_privileges::Error> {
        self.keep(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW, true)
    }

    /// The same, but for what changes of the kernel's routes and interfaces need (CAP_NET_ADMIN).
    fn reduce_for_kernel(&self) -> Result<Kept, ribtide_privileges::Error> {
        self.keep(CapabilitySet::NET_ADMIN, false)
    }

    fn keep(
        &self,
        capabilities: CapabilitySet,
        packet_sockets: bool,
    ) -> Result<Kept, ribtide_privileges::Error> {
        ribtide_privileges::reduce(&Privileges {
            capabilities,
            user: None,
            group: None,
            packet_sockets,
            seccomp: self.seccomp,
        })
    }
}

/// Refuses settings that cannot be combined.
fn refuse(requested: &RequestedSettings) -> Result<(), Error> {
    match ribtide_settings::broken(requested).next() {
        Some(rule) => Err(Error::Configuration(rule.message.into())),
        None => Ok(()),
    }
}
