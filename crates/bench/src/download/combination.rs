//! The combinations of transports and modes of the daemons, with their flags.

use crate::options::name_of;
use clap::ValueEnum;

/// A combination of transports and modes of the daemons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// fpmsyncd into APPL_DB, without an orchagent
    ApplDb,
    /// The same, straight to the stable table
    ApplDbStable,
    /// SONiC's defaults: Redis to orchagent and to syncd, synchronous, recorded
    Default,
    /// The same without recordings
    Redis,
    /// Redis to orchagent and to syncd, several requests in flight, ASIC_DB write-behind
    RedisAsync,
    /// The same with orchagent's ring thread
    RedisRing,
    /// The same, and fpmsyncd writes straight to the stable table
    RedisStable,
    /// As redis-ring on several Redis servers
    RedisMulti,
    /// Routes over ZeroMQ, APPL_DB write-behind; Redis to syncd
    ZmqRedis,
    /// ZeroMQ to orchagent and to syncd, both databases written in line
    ZmqInLine,
    /// ZeroMQ to orchagent and to syncd, both databases write-behind
    Zmq,
    /// The same, with low priority whatever the age of the oldest row: rows alone bound how far they are behind
    ZmqUnbounded,
    /// As zmq, but routes wait rather than that a row waits longer than a second
    ZmqWait,
    /// As zmq, but neither may be more than 50,000 rows behind
    ZmqClose,
    /// The same on several Redis servers
    ZmqCloseMulti,
    /// ZeroMQ to orchagent and to syncd, no route in any database
    ZmqOff,
    /// Document 1's table, baseline: Redis, synchronous, recorded, responses published
    #[value(name = "column-0")]
    Column0,
    /// Its first column: without APPL_STATE_DB
    #[value(name = "column-1")]
    Column1,
    /// Its second: asynchronous
    #[value(name = "column-2")]
    Column2,
    /// Its third: several Redis servers
    #[value(name = "column-3")]
    Column3,
    /// Its fourth: everything but asynchronous mode, groups and databases that are off
    #[value(name = "column-4")]
    Column4,
    /// Its fifth: the same without APPL_STATE_DB and the databases
    #[value(name = "column-5")]
    Column5,
    /// Its sixth: asynchronous, several Redis servers, ring, no APPL_STATE_DB
    #[value(name = "column-6")]
    Column6,
    /// Its seventh: everything but groups and databases that are off
    #[value(name = "column-7")]
    Column7,
    /// Its eighth: the same without databases
    #[value(name = "column-8")]
    Column8,
    /// Its ninth: everything
    #[value(name = "column-9")]
    Column9,
}

/// Additional flags, and their consequences for the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Flags {
    pub(super) redis: Vec<&'static str>,
    pub(super) fpmsyncd: Vec<&'static str>,
    pub(super) orchagent: Vec<&'static str>,
    pub(super) syncd: Vec<&'static str>,
    /// orchagent's `-b` and `-k`, if the combination sets them.
    pub(super) sizes: Option<(u32, u32)>,
    /// Routes name next-hop objects.
    pub(super) objects: bool,
    /// orchagent and syncd run.
    pub(super) has_chip: bool,
    /// APPL_DB and ASIC_DB have the routes in the end.
    pub(super) has_rows: bool,
    /// APPL_DB has them all the same, because they pass through it.
    pub(super) has_appl_rows: bool,
    /// FIB suppression and warm restart are on: the FPM client is notified of routes in the chip,
    /// and daemons restart warm.
    pub(super) confirmed: bool,
    /// `ribtide run` is the only process.
    pub(super) one_process: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            redis: vec![],
            fpmsyncd: vec![],
            orchagent: vec![],
            syncd: vec![],
            sizes: None,
            objects: false,
            has_chip: true,
            has_rows: true,
            has_appl_rows: false,
            confirmed: false,
            one_process: false,
        }
    }
}

/// The features of the documents, on SONiC's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Features {
    pub(super) asynchronous: bool,
    pub(super) multi_db: bool,
    /// `-b 10000 -k 10000`.
    pub(super) big_bulks: bool,
    /// The outcomes of routes are published to APPL_STATE_DB.
    pub(super) responses: bool,
    pub(super) ring: bool,
    /// Routes come over ZeroMQ.
    pub(super) zmq: bool,
    pub(super) no_logs: bool,
    /// Next-hop groups, even of a single next hop.
    pub(super) groups: bool,
    /// The routes of a bulk keep their order of arrival.
    pub(super) unsorted: bool,
    /// Bulks are not checked against SAI's schema.
    pub(super) bypass: bool,
    /// No route in APPL_DB and ASIC_DB; needs `zmq`.
    pub(super) no_databases: bool,
}

impl Features {
    pub(super) fn flags(self) -> Flags {
        let mut flags = Flags { has_rows: !self.no_databases, objects: self.groups, ..Flags::default() };
        flags.sizes = Some(if self.big_bulks { (10_000, 10_000) } else { (1024, 1000) });
        let mode: &[&str] = if self.asynchronous { &["-z", "redis_async"] } else { &["-s"] };
        flags.orchagent.extend(mode);
        flags.syncd.extend(mode);
        let on = |on: bool, to: &mut Vec<&'static str>, words: &[&'static str]| {
            if on {
                to.extend(words);
            }
        };
        on(self.multi_db, &mut flags.redis, &["--multi-db"]);
        on(self.zmq, &mut flags.fpmsyncd, &["-q", "tcp://127.0.0.1"]);
        on(self.zmq, &mut flags.orchagent, &["-q", "tcp://127.0.0.1", "--route-zmq"]);
        on(self.responses, &mut flags.orchagent, &["-F"]);
        on(self.ring, &mut flags.orchagent, &["-R"]);
        on(self.no_logs, &mut flags.orchagent, &["-r", "0"]);
        on(self.groups, &mut flags.orchagent, &["--single-groups"]);
        on(self.unsorted, &mut flags.orchagent, &["--sort-routes", "false"]);
        on(self.bypass, &mut flags.syncd, &["--validation", "single"]);
        on(self.no_databases, &mut flags.fpmsyncd, &["--appl-db", "off"]);
        on(self.no_databases, &mut flags.syncd, &["--asic-db", "off"]);
        flags
    }
}

impl Combination {
    /// The combinations of a run without `--dut`.
    pub const SUITE: [Combination; 16] = [
        Combination::ApplDb,
        Combination::ApplDbStable,
        Combination::Default,
        Combination::Redis,
        Combination::RedisAsync,
        Combination::RedisRing,
        Combination::RedisStable,
        Combination::RedisMulti,
        Combination::ZmqRedis,
        Combination::ZmqInLine,
        Combination::Zmq,
        Combination::ZmqUnbounded,
        Combination::ZmqWait,
        Combination::ZmqClose,
        Combination::ZmqCloseMulti,
        Combination::ZmqOff,
    ];

    /// As on the command line.
    pub fn name(self) -> String {
        name_of(&self)
    }

    pub(super) fn flags(self) -> Flags {
        const ASYNC: &[&str] = &["-z", "redis_async", "-r", "0"];
        const RING: &[&str] = &["-z", "redis_async", "-r", "0", "-R"];
        const WRITE_BEHIND: &[&str] = &["-z", "redis_async", "-R"];
        const ZMQ_ROUTES: &[&str] = &["-q", "tcp://127.0.0.1"];
        const ZMQ: &[&str] = &["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "zmq_async", "-r", "0"];
        const BOUNDED_LAG: &[&str] = &["--write-behind-max", "50000"];
        const NO_AGE: &[&str] = &["--write-behind-max-age", "0"];
        const WAIT: &[&str] = &["--write-behind-wait"];
        let wired = |fpmsyncd: &[&'static str], orchagent: &[&'static str], syncd: &[&'static str]| Flags {
            fpmsyncd: fpmsyncd.to_vec(),
            orchagent: orchagent.to_vec(),
            syncd: syncd.to_vec(),
            ..Flags::default()
        };
        match self {
            Combination::ApplDb => Flags { has_chip: false, ..wired(&[], &[], &[]) },
            Combination::ApplDbStable => Flags { has_chip: false, ..wired(&["--stable-table"], &[], &[]) },
            Combination::Default => wired(&[], &["-s"], &["-s"]),
            Combination::Redis => wired(&[], &["-s", "-r", "0"], &["-s"]),
            Combination::RedisAsync => wired(&[], ASYNC, WRITE_BEHIND),
            Combination::RedisRing => wired(&[], RING, WRITE_BEHIND),
            Combination::RedisStable => wired(&["--stable-table"], RING, WRITE_BEHIND),
            Combination::RedisMulti => Flags { redis: vec!["--multi-db"], ..wired(&[], RING, WRITE_BEHIND) },
            Combination::ZmqRedis => wired(
                ZMQ_ROUTES,
                &["-q", "tcp://127.0.0.1", "--route-zmq", "-z", "redis_async", "-r", "0"],
                WRITE_BEHIND,
            ),
            Combination::ZmqInLine => {
                wired(&["-q", "tcp://127.0.0.1", "--appl-db", "in-line"], ZMQ, &["-z", "zmq_sync"])
            }
            Combination::Zmq => wired(ZMQ_ROUTES, ZMQ, &["-z", "zmq_sync", "-R"]),
            Combination::ZmqUnbounded => wired(
                &[ZMQ_ROUTES, NO_AGE].concat(),
                &[ZMQ, NO_AGE].concat(),
                &[&["-z", "zmq_sync", "-R"], NO_AGE].concat(),
            ),
            Combination::ZmqWait => wired(
                &[ZMQ_ROUTES, WAIT].concat(),
                &[ZMQ, WAIT].concat(),
                &[&["-z", "zmq_sync", "-R"], WAIT].concat(),
            ),
            Combination::ZmqClose => wired(
                &[ZMQ_ROUTES, BOUNDED_LAG].concat(),
                &[ZMQ, BOUNDED_LAG].concat(),
                &[&["-z", "zmq_sync", "-R"], BOUNDED_LAG].concat(),
            ),
            Combination::ZmqCloseMulti => {
                Flags { redis: vec!["--multi-db"], ..Combination::ZmqClose.flags() }
            }
            Combination::ZmqOff => Flags {
                has_rows: false,
                ..wired(
                    &["-q", "tcp://127.0.0.1", "--appl-db", "off"],
                    ZMQ,
                    &["-z", "zmq_sync", "--asic-db", "off"],
                )
            },
            column => column.features().flags(),
        }
    }

    /// The columns of document 1's table, by its rows.
    fn features(self) -> Features {
        let none = Features { unsorted: true, ..Features::default() };
        let multi = Features { multi_db: true, ring: true, ..none };
        let all =
            Features { big_bulks: true, zmq: true, no_logs: true, unsorted: false, bypass: true, ..multi };
        match self {
            Combination::Column1 => none,
            Combination::Column2 => Features { asynchronous: true, responses: true, ..none },
            Combination::Column3 => Features { multi_db: true, responses: true, ..none },
            Combination::Column4 => all,
            Combination::Column5 => Features { no_databases: true, ..all },
            Combination::Column6 => Features { asynchronous: true, ..multi },
            Combination::Column7 => Features { asynchronous: true, ..all },
            Combination::Column8 => Features { asynchronous: true, no_databases: true, ..all },
            Combination::Column9 => Features { asynchronous: true, no_databases: true, groups: true, ..all },
            _ => Features { responses: true, ..none },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_turn_on_the_features_of_the_document() {
        let words = |combination: Combination| {
            let flags = combination.flags();
            let all = [flags.redis, flags.fpmsyncd, flags.orchagent, flags.syncd];
            (all.map(|words| words.join(" ")), flags.sizes)
        };
        let small = Some((1024, 1000));
        assert_eq!(
            words(Combination::Column0),
            (["", "", "-s -F --sort-routes false", "-s"].map(String::from), small)
        );
        assert_eq!(
            words(Combination::Column1),
            (["", "", "-s --sort-routes false", "-s"].map(String::from), small)
        );
        let (last, sizes) = words(Combination::Column9);
        assert_eq!(sizes, Some((10_000, 10_000)));
        assert_eq!(last[0], "--multi-db");
        assert_eq!(last[1], "-q tcp://127.0.0.1 --appl-db off");
        assert_eq!(last[2], "-z redis_async -q tcp://127.0.0.1 --route-zmq -R -r 0 --single-groups");
        assert_eq!(last[3], "-z redis_async --validation single --asic-db off");
        assert!(!Combination::Column9.flags().has_rows && Combination::Column7.flags().has_rows);
    }

    /// The rows of the document's table ("Performance Summary"); its first cell is the baseline.
    const DOCUMENT: &str = "
        Async mode                        |  |    | On |    |    |    | On | On | On | On |
        Multi db                          |  |    |    | On | On | On | On | On | On | On |
        Batch / bulk sizes                |  |    |    |    | On | On |    | On | On | On |
        No APPL_STATE_DB population       |  | On |    |    | On | On | On | On | On | On |
        Ring buffer                       |  |    |    |    | On | On | On | On | On | On |
        ZMQ for ConsumerStateTable        |  |    |    |    | On | On |    | On | On | On |
        No logs                           |  |    |    |    | On | On |    | On | On | On |
        Use nexthop groups                |  |    |    |    |    |    |    |    |    | On |
        Sort SAI route bulk               |  |    |    |    | On | On |    | On | On | On |
        Bypass saimeta::Meta              |  |    |    |    | On | On |    | On | On | On |
        No APPL_DB and APPL_ASIC_DB       |  |    |    |    |    | On |    |    | On | On |
    ";

    #[test]
    fn columns_are_those_of_the_documents_table() {
        let columns = [
            Combination::Column0,
            Combination::Column1,
            Combination::Column2,
            Combination::Column3,
            Combination::Column4,
            Combination::Column5,
            Combination::Column6,
            Combination::Column7,
            Combination::Column8,
            Combination::Column9,
        ];
        for row in DOCUMENT.lines().filter(|row| row.contains('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for (n, column) in columns.into_iter().enumerate() {
                let on = column.features();
                let found = match cells[0] {
                    "Async mode" => on.asynchronous,
                    "Multi db" => on.multi_db,
                    "Batch / bulk sizes" => on.big_bulks,
                    "No APPL_STATE_DB population" => !on.responses,
                    "Ring buffer" => on.ring,
                    "ZMQ for ConsumerStateTable" => on.zmq,
                    "No logs" => on.no_logs,
                    "Use nexthop groups" => on.groups,
                    "Sort SAI route bulk" => !on.unsorted,
                    "Bypass saimeta::Meta" => on.bypass,
                    "No APPL_DB and APPL_ASIC_DB" => on.no_databases,
                    other => panic!("{other}"),
                };
                assert_eq!(found, cells[n + 1] == "On", "{} of column {n}", cells[0]);
            }
        }
    }
}
