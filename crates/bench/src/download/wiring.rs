//! The ways in which the daemons are wired, and their flags for each.

use clap::ValueEnum;

/// A way of wiring the daemons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wiring {
    /// fpmsyncd into APPL_DB, and nobody behind it
    ApplDb,
    /// SONiC's defaults: Redis on both seams, synchronous, recorded
    Default,
    /// The same without recordings
    Redis,
    /// Redis on both seams; several requests to syncd under way, ASIC_DB written behind
    RedisAsync,
    /// The same with orchagent's ring thread
    RedisRing,
    /// The same on several Redis servers
    RedisMulti,
    /// Routes over ZeroMQ, APPL_DB written behind; Redis to syncd
    ZmqNorth,
    /// ZeroMQ on both seams, both databases written in line
    ZmqInLine,
    /// ZeroMQ on both seams, both databases written behind
    Zmq,
    /// ZeroMQ on both seams, no route in any database
    ZmqOff,
}

/// Flags beyond those that every run has.
#[derive(Default)]
pub(super) struct Flags {
    pub(super) redis: &'static [&'static str],
    pub(super) fpmsyncd: &'static [&'static str],
    pub(super) orchagent: &'static [&'static str],
    pub(super) syncd: &'static [&'static str],
}

impl Wiring {
    /// All of them.
    pub const ALL: [Wiring; 10] = [
        Wiring::ApplDb,
        Wiring::Default,
        Wiring::Redis,
        Wiring::RedisAsync,
        Wiring::RedisRing,
        Wiring::RedisMulti,
        Wiring::ZmqNorth,
        Wiring::ZmqInLine,
        Wiring::Zmq,
        Wiring::ZmqOff,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Wiring::ApplDb => "appl-db",
            Wiring::Default => "default",
            Wiring::Redis => "redis",
            Wiring::RedisAsync => "redis-async",
            Wiring::RedisRing => "redis-ring",
            Wiring::RedisMulti => "redis-multi",
            Wiring::ZmqNorth => "zmq-north",
            Wiring::ZmqInLine => "zmq-in-line",
            Wiring::Zmq => "zmq",
            Wiring::ZmqOff => "zmq-off",
        }
    }

    pub(super) fn flags(self) -> Flags {
        const ASYNC: &[&str] = &["-z", "redis_async", "-r", "0"];
        const RING: &[&str] = &["-z", "redis_async", "-r", "0", "-R"];
        const BEHIND: &[&str] = &["-z", "redis_async", "-R"];
        const NORTH: &[&str] = &["-q", "tcp://127.0.0.1"];
        const ZMQ: &[&str] = &["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "zmq_async", "-r", "0"];
        let redis = Flags { orchagent: &["-s", "-r", "0"], syncd: &["-s"], ..Flags::default() };
        match self {
            Wiring::ApplDb => Flags::default(),
            Wiring::Default => Flags { orchagent: &["-s"], syncd: &["-s"], ..Flags::default() },
            Wiring::Redis => redis,
            Wiring::RedisAsync => Flags { orchagent: ASYNC, syncd: BEHIND, ..Flags::default() },
            Wiring::RedisRing => Flags { orchagent: RING, syncd: BEHIND, ..Flags::default() },
            Wiring::RedisMulti => {
                Flags { redis: &["--multi-db"], orchagent: RING, syncd: BEHIND, ..Flags::default() }
            }
            Wiring::ZmqNorth => Flags {
                fpmsyncd: NORTH,
                orchagent: &["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "redis_async", "-r", "0"],
                syncd: BEHIND,
                ..Flags::default()
            },
            Wiring::ZmqInLine => Flags {
                fpmsyncd: &["-q", "tcp://127.0.0.1", "--appl-db", "in-line"],
                orchagent: ZMQ,
                syncd: &["-z", "zmq_sync"],
                ..Flags::default()
            },
            Wiring::Zmq => Flags {
                fpmsyncd: NORTH,
                orchagent: ZMQ,
                syncd: &["-z", "zmq_sync", "-R"],
                ..Flags::default()
            },
            Wiring::ZmqOff => Flags {
                fpmsyncd: &["-q", "tcp://127.0.0.1", "--appl-db", "off"],
                orchagent: ZMQ,
                syncd: &["-z", "zmq_sync", "--asic-db", "off"],
                ..Flags::default()
            },
        }
    }

    /// Whether orchagent and syncd run.
    pub(super) fn has_chip(self) -> bool {
        self != Wiring::ApplDb
    }

    /// Whether APPL_DB and ASIC_DB have the routes in the end.
    pub(super) fn has_rows(self) -> bool {
        self != Wiring::ZmqOff
    }
}
