//! Settings that the configuration file and SONiC's daemons share: how databases are kept, how orchagent talks to syncd,
//! and which settings cannot be combined.
//!
//! This crate lies below the configuration, so that a SONiC daemon that uses it knows nothing of BGP.
#![forbid(unsafe_code)]

mod combinations;

pub use combinations::{RULES, RequestedSettings, Rule, broken};

use clap::ValueEnum;
use std::fmt;

/// The name of the default VRF, for people.
pub const DEFAULT_VRF: &str = "default";

/// The persistence of a database that no route passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Persistence {
    /// Never.
    Off,
    /// From a thread of its own, which coalesces changes of a row (write-behind). A crash loses the rows in
    /// its queue.
    #[value(name = "behind")]
    WriteBehind,
    /// Before the route moves on.
    InLine,
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Persistence::Off => "off",
            Persistence::WriteBehind => "behind",
            Persistence::InLine => "in-line",
        })
    }
}

/// The transport of requests between orchagent and syncd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// Through ASIC_DB, one request at a time.
    #[value(name = "redis_sync")]
    RedisSync,
    /// Through ASIC_DB, several requests in flight.
    #[value(name = "redis_async")]
    RedisAsync,
    /// Over ZeroMQ, one request at a time.
    #[value(name = "zmq_sync")]
    ZmqSync,
    /// Over ZeroMQ, several requests in flight. For syncd the same as zmq_sync.
    #[value(name = "zmq_async")]
    ZmqAsync,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::RedisSync => "redis_sync",
            Mode::RedisAsync => "redis_async",
            Mode::ZmqSync => "zmq_sync",
            Mode::ZmqAsync => "zmq_async",
        })
    }
}

impl Mode {
    /// Whether requests go over ZeroMQ.
    pub fn is_zmq(self) -> bool {
        matches!(self, Mode::ZmqSync | Mode::ZmqAsync)
    }
}
