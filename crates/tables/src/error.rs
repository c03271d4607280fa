//! Errors of tables. Each is a sentence with the place and the remedy.

use std::fmt;
use std::path::PathBuf;

/// The reason why a table could not be read or written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableError {
    /// The file with the places of the databases cannot be used.
    Config {
        /// The file.
        file: PathBuf,
        /// The problem.
        cause: String,
    },
    /// A database's server refuses connections.
    Unreachable {
        /// The database, for example `APPL_DB`.
        database: String,
        /// Its configured address.
        address: String,
        /// The system's message.
        cause: String,
    },
    /// The connection broke or timed out.
    Lost {
        /// The database.
        database: String,
        /// Its address.
        address: String,
        /// The system's message.
        cause: String,
    },
    /// A ZeroMQ endpoint cannot be used.
    Endpoint {
        /// The endpoint, for example `tcp://127.0.0.1:8100`.
        endpoint: String,
        /// The system's message.
        cause: String,
    },
    /// The server refused a command.
    Refused {
        /// The database.
        database: String,
        /// The server's message.
        message: String,
    },
    /// A row or message violates the format of its table.
    Malformed {
        /// The table or queue.
        table: String,
        /// The content.
        found: String,
    },
    /// The carrier of a request, or its server, went away.
    Interrupted {
        /// What went away.
        what: String,
    },
    /// A server came back with requests, or replies, of before.
    Outdated {
        /// The database.
        database: String,
    },
    /// A server came back without its rows.
    Emptied {
        /// The database.
        database: String,
    },
    /// The stage at the other end of a memory table has stopped.
    Stopped {
        /// The table.
        table: String,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Config { file, cause } => {
                let cure = "name SONiC's database_config.json with --database-config";
                write!(f, "the database configuration {} cannot be used: {cause}; {cure}", file.display())
            }
            TableError::Unreachable { database, address, cause } => write!(
                f,
                "Redis for {database} does not answer at {address} ({cause}); start redis-server, or name the right \
                 place in the database configuration"
            ),
            TableError::Lost { database, address, cause } => {
                write!(f, "the connection to Redis for {database} at {address} broke ({cause})")
            }
            TableError::Endpoint { endpoint, cause } => {
                write!(f, "the ZeroMQ endpoint {endpoint} cannot be used: {cause}; name another one")
            }
            TableError::Refused { database, message } => {
                write!(f, "Redis refused a command on {database}: {message}")
            }
            TableError::Malformed { table, found } => {
                write!(f, "{table} holds something that its contract does not know: {found}")
            }
            TableError::Interrupted { what } => write!(
                f,
                "{what} went away while syncd had a request, and it is not known whether it was carried out; start syncd and \
                 orchagent again"
            ),
            TableError::Outdated { database } => write!(
                f,
                "Redis for {database} came back with requests to syncd of before, which syncd may carry out once more; start \
                 orchagent again, so that it describes the switch again"
            ),
            TableError::Emptied { database } => write!(
                f,
                "Redis for {database} came back without its data; start syncd and orchagent again, so that both describe \
                 the switch again"
            ),
            TableError::Stopped { table } => {
                write!(f, "the stage at the other end of {table} has stopped; its log has the reason")
            }
        }
    }
}

impl std::error::Error for TableError {}
