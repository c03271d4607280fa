//! `ribtide bench run everything`: FIB suppression, warm restart and both databases, all on against all off, in each combination
//! and in the same run.
//!
//! With everything on, the clock stops when the FPM client was notified that the last route is in
//! the chip; off, when the chip has it. Both kinds of runs alternate, so other load of the machine
//! meets both.

use super::combination::Flags;
use super::load::Load;
use super::run::Case;
use super::suite::{RunOptions, Sizes, measure};
use crate::Error;
use crate::options::name_of;
use clap::ValueEnum;
use ribtide_text::rounded;

/// The transports between the daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Transports {
    /// One process, from BGP on. FIB suppression is the only thing to turn on
    OneProcess,
    /// Redis to orchagent and to syncd, synchronous
    Redis,
    /// Redis to orchagent and to syncd, asynchronous, with orchagent's ring thread
    RedisAsync,
    /// ZeroMQ to orchagent, Redis to syncd, asynchronous: SONiC's own combination with ZeroMQ
    ZmqRedis,
    /// ZeroMQ to orchagent and to syncd
    Zmq,
    /// The same, with databases that are written with low priority while routes come, whatever their age
    ZmqUnbounded,
    /// The same, with routes that wait for the databases rather than that a row waits longer than a second
    ZmqWait,
    /// The same as zmq, but orchagent waits for each reply of syncd
    ZmqSync,
    /// ZeroMQ to orchagent and to syncd, with databases that are written in line
    ZmqInLine,
}

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The combinations of transports
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = Transports::value_variants().to_vec())]
    pub dut: Vec<Transports>,
    /// The number of IPv4 routes
    #[arg(long, value_name = "N", default_value_t = 600_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// The routes per second that the virtual switch accepts, as a chip would. The report has the share of
    /// the time in which it was busy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub chip_rate: Option<u32>,
    /// Send so many routes in a second, not as many as fpmsyncd takes; not for one-process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
    /// Use several Redis servers, as SONiC's multi-database mode does
    #[arg(long)]
    pub multi_db: bool,
    /// orchagent's sizes
    #[command(flatten)]
    pub sizes: Sizes,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

impl Transports {
    /// Whether routes go to orchagent over ZeroMQ.
    fn is_zmq(self) -> bool {
        !matches!(self, Transports::OneProcess | Transports::Redis | Transports::RedisAsync)
    }

    /// The daemons' flags with everything on, or with everything off.
    fn flags(self, on: bool) -> Flags {
        let mut flags = Flags { confirmed: on, has_rows: on, ..Flags::default() };
        let (orchagent, syncd): (&[&str], &[&str]) = match self {
            Transports::OneProcess => {
                return Flags { one_process: true, ..flags };
            }
            Transports::Redis => (&["-s"], &["-s"]),
            Transports::RedisAsync => (&["-z", "redis_async", "-R"], &["-z", "redis_async"]),
            Transports::ZmqRedis => (&["-z", "redis_async"], &["-z", "redis_async"]),
            Transports::Zmq | Transports::ZmqUnbounded | Transports::ZmqWait | Transports::ZmqInLine => {
                (&["-z", "zmq_async"], &["-z", "zmq_sync"])
            }
            Transports::ZmqSync => (&["-z", "zmq_sync"], &["-z", "zmq_sync"]),
        };
        flags.orchagent.extend(["-r", "0"]);
        if self.is_zmq() {
            flags.fpmsyncd.extend(["-q", "tcp://127.0.0.1"]);
            flags.orchagent.extend(["-q", "tcp://127.0.0.1", "--route-zmq"]);
        }
        flags.orchagent.extend(orchagent);
        flags.syncd.extend(syncd);
        match on {
            true => {
                flags.orchagent.push("-F");
                if self == Transports::ZmqInLine {
                    flags.fpmsyncd.extend(["--appl-db", "in-line"]);
                    flags.syncd.extend(["--asic-db", "in-line"]);
                } else {
                    // ASIC_DB is a mirror, as is APPL_DB over ZeroMQ.
                    flags.syncd.push("-R");
                }
                let pace: &[&str] = match self {
                    Transports::ZmqUnbounded => &["--write-behind-max-age", "0"],
                    Transports::ZmqWait => &["--write-behind-wait"],
                    _ => &[],
                };
                for daemon in [&mut flags.fpmsyncd, &mut flags.orchagent, &mut flags.syncd] {
                    daemon.extend(pace);
                }
            }
            false => {
                flags.syncd.extend(["--asic-db", "off"]);
                if self.is_zmq() {
                    flags.fpmsyncd.extend(["--appl-db", "off"]);
                }
                // Elsewhere routes pass through APPL_DB.
                flags.has_appl_rows = !self.is_zmq();
            }
        }
        flags
    }
}

/// Measures, prints tables, and writes JSON where asked to.
///
/// # Errors
/// As [`super::run`].
pub fn run(options: &Options) -> Result<(), Error> {
    if options.rate.is_some() && options.dut.contains(&Transports::OneProcess) {
        return Err(Error::Options("one-process has no --rate: name the others with --dut".into()));
    }
    let load = Load { ipv4: options.routes, ipv6: 0, next_hops: 1 };
    let redis: Vec<&str> = if options.multi_db { vec!["--multi-db"] } else { vec![] };
    let case = |transports: Transports, on: bool| Case {
        chip_rate: options.chip_rate,
        rate: options.rate,
        ..Case::new(
            format!("{}, {}", name_of(&transports), if on { "on" } else { "off" }),
            Flags { redis: redis.clone(), ..transports.flags(on) },
            load,
            options.sizes.pair(),
        )
    };
    let cases: Vec<Case> = options
        .dut
        .iter()
        .flat_map(|transports| [case(*transports, true), case(*transports, false)])
        .collect();
    let routes = rounded(f64::from(options.routes));
    let chip = options.chip_rate.map(|rate| format!(", a chip of {} routes/s", rounded(f64::from(rate))));
    let title = format!(
        "{routes} IPv4 routes; FIB suppression, warm restart and both databases, all on or all off{}",
        chip.unwrap_or_default()
    );
    measure(title, &cases, &options.how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_and_off_differ_in_their_flags() {
        let words = |on| {
            let flags = Transports::Zmq.flags(on);
            [flags.fpmsyncd, flags.orchagent, flags.syncd].map(|words| words.join(" "))
        };
        let wired = "-r 0 -q tcp://127.0.0.1 --route-zmq -z zmq_async";
        assert_eq!(words(true), ["-q tcp://127.0.0.1", &format!("{wired} -F"), "-z zmq_sync -R"]);
        assert_eq!(words(false), ["-q tcp://127.0.0.1 --appl-db off", wired, "-z zmq_sync --asic-db off"]);
        let exact = Transports::ZmqInLine.flags(true);
        assert_eq!(exact.fpmsyncd.join(" "), "-q tcp://127.0.0.1 --appl-db in-line");
        assert_eq!(exact.syncd.join(" "), "-z zmq_sync --asic-db in-line");
        assert_eq!(Transports::ZmqInLine.flags(false).fpmsyncd, Transports::Zmq.flags(false).fpmsyncd);
        let off = Transports::Redis.flags(false);
        assert!(
            !off.confirmed && !off.has_rows && off.has_appl_rows && Transports::Redis.flags(true).confirmed
        );
    }
}
