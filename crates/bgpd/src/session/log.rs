//! What the operator is told of neighbours: a line when one comes up, goes down or is refused, and why.
//!
//! Lines go through a ring to a thread of their own, for standard error may be a pipe that is not being read,
//! and the session thread waits for no other thread. A neighbour that flaps may fill neither the log nor the ring: each has an
//! allowance of lines, and what it is not allowed is counted and told with its next line.

use ribtide_bgp::fsm::{Millis, Negotiated};
use ribtide_prefix::Map;
use ribtide_runtime::log::log;
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::thread::JoinHandle;

/// Lines that may wait to be written.
const WAITING: usize = 1024;
/// Lines that a neighbour may cause at once, and how often it earns another.
const NEIGHBOR_BURST_MAX: u32 = 8;
const EARNED: Millis = 15_000;
/// The same of all neighbours together.
const ALL_AT_ONCE: u32 = 2000;
const ALL_EARNED: Millis = 20;
/// Neighbours remembered at most: those whose allowance is not full.
const REMEMBERED: usize = 4096;

/// Takes lines; never waits.
pub(super) struct Log {
    lines: Sender<String>,
    neighbors: Map<IpAddr, Allowance>,
    all: Allowance,
    /// Lines for which there was no room.
    lost: u64,
}

/// The log before its thread runs.
pub(super) struct LogBuilder(Sender<String>, Receiver<String>);

impl LogBuilder {
    pub(super) fn new(rings: &Rings) -> LogBuilder {
        let (tx, rx) = rings.bounded("sessions to log", WAITING);
        LogBuilder(tx, rx)
    }

    /// Starts the thread; it ends when the log is dropped and everything is written.
    pub(super) fn start(self) -> io::Result<(Log, JoinHandle<()>)> {
        let lines = self.1;
        let thread = thread::spawn("log", move || {
            while let Ok(line) = lines.recv() {
                log("bgp", &line);
            }
        })?;
        Ok((Log::new(self.0), thread))
    }
}

/// A neighbour as a line names it.
pub(super) struct Who<'a> {
    pub(super) address: IpAddr,
    pub(super) asn: Option<u32>,
    pub(super) group: &'a str,
}

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.asn {
            Some(asn) => write!(f, "neighbor {} (AS {asn}, group {})", self.address, self.group),
            None => write!(f, "neighbor {} (group {})", self.address, self.group),
        }
    }
}

/// What happened to a neighbour. Displays as the end of a sentence that begins with its name.
pub(super) enum News<'a> {
    Up(&'a Negotiated),
    /// After how long, and why.
    Down(Millis, &'a str),
    /// There was no session yet: why not.
    Refused(&'a str),
}

impl fmt::Display for News<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Up(negotiated) => {
                let families = [ribtide_prefix::Afi::Ipv4, ribtide_prefix::Afi::Ipv6];
                let families = families.into_iter().filter(|afi| negotiated.families.has(*afi));
                let families: Vec<&str> = families.map(ribtide_prefix::Afi::unicast_name).collect();
                write!(f, "is up: {}, hold time {} s", families.join(" "), negotiated.hold_time)
            }
            News::Down(after, why) => write!(f, "is down after {} s: {why}", after / 1000),
            News::Refused(why) => write!(f, "gets no session: {why}"),
        }
    }
}

impl Log {
    fn new(lines: Sender<String>) -> Log {
        Log { lines, neighbors: Map::default(), all: Allowance::full(ALL_AT_ONCE), lost: 0 }
    }

    /// Writes a line about an interface, of what all neighbours together may: such lines come with theirs.
    pub(super) fn interface(&mut self, now: Millis, line: String) {
        if let Some(unsaid) = self.all.take(now, ALL_AT_ONCE, ALL_EARNED) {
            self.write(line, &[(unsaid, "all neighbours")]);
        }
    }

    /// Writes a line, if the neighbour may.
    pub(super) fn tell(&mut self, now: Millis, who: &Who<'_>, news: &News<'_>) {
        if self.neighbors.len() >= REMEMBERED {
            self.neighbors.retain(|_, allowance| !allowance.is_full(now, NEIGHBOR_BURST_MAX, EARNED));
            if self.neighbors.len() >= REMEMBERED {
                self.neighbors.clear();
            }
        }
        let own = self.neighbors.entry(who.address).or_insert_with(|| Allowance::full(NEIGHBOR_BURST_MAX));
        let Some(unsaid) = own.take(now, NEIGHBOR_BURST_MAX, EARNED) else { return };
        let Some(unsaid_of_all) = self.all.take(now, ALL_AT_ONCE, ALL_EARNED) else { return };
        let left_out = [(unsaid, "this neighbour"), (unsaid_of_all, "all neighbours")];
        self.write(format!("{who} {news}"), &left_out);
    }

    fn write(&mut self, mut line: String, left_out: &[(u64, &str)]) {
        for (unsaid, of) in left_out.iter().copied().chain([(self.lost, "the full log")]) {
            if unsaid > 0 {
                line.push_str(&format!("; {unsaid} earlier lines of {of} were left out"));
            }
        }
        match self.lines.try_send(line) {
            Ok(()) => self.lost = 0,
            Err(_) => self.lost += 1,
        }
    }
}

/// How many lines may still be written.
struct Allowance {
    left: u32,
    /// When the last one was earned.
    earned: Millis,
    /// Lines that were not allowed since the last that was.
    unsaid: u64,
}

impl Allowance {
    fn full(most: u32) -> Allowance {
        Allowance { left: most, earned: 0, unsaid: 0 }
    }

    fn earn(&mut self, now: Millis, most: u32, every: Millis) {
        let earned = now.saturating_sub(self.earned) / every;
        self.earned += earned * every;
        self.left = self.left.saturating_add(earned.min(Millis::from(most)) as u32).min(most);
    }

    fn is_full(&mut self, now: Millis, most: u32, every: Millis) -> bool {
        self.earn(now, most, every);
        self.left == most && self.unsaid == 0
    }

    /// Takes one line; how many were not allowed before it, or `None` when this one is not either.
    fn take(&mut self, now: Millis, most: u32, every: Millis) -> Option<u64> {
        self.earn(now, most, every);
        if self.left == 0 {
            self.unsaid += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_bgp::peer::FamilySet;

    fn log() -> (Log, Receiver<String>) {
        let LogBuilder(tx, rx) = LogBuilder::new(&Rings::default());
        (Log::new(tx), rx)
    }

    fn who(last: u8) -> Who<'static> {
        Who { address: [192, 0, 2, last].into(), asn: Some(65010), group: "upstream" }
    }

    #[test]
    fn up_down_and_refused_are_sentences() {
        let (mut log, lines) = log();
        let negotiated = Negotiated {
            asn: 65010,
            router_id: [1, 1, 1, 1].into(),
            hold_time: 90,
            families: FamilySet { ipv4: true, ipv6: true },
            four_octet_as: true,
            extended_message: true,
            route_refresh: true,
        };
        let unknown = Who { asn: None, ..who(2) };
        log.tell(0, &who(1), &News::Up(&negotiated));
        log.tell(9, &who(1), &News::Down(61_500, "NOTIFICATION received (cease: administrative reset)"));
        log.tell(9, &unknown, &News::Refused("NOTIFICATION sent (OPEN message error: bad peer AS)"));
        let said: Vec<String> = std::iter::from_fn(|| lines.try_recv()).collect();
        assert_eq!(
            said,
            [
                "neighbor 192.0.2.1 (AS 65010, group upstream) is up: ipv4-unicast ipv6-unicast, hold time 90 s",
                "neighbor 192.0.2.1 (AS 65010, group upstream) is down after 61 s: NOTIFICATION received (cease: \
                 administrative reset)",
                "neighbor 192.0.2.2 (group upstream) gets no session: NOTIFICATION sent (OPEN message error: bad peer AS)",
            ]
        );
    }

    #[test]
    fn a_neighbour_that_flaps_says_less_and_others_are_heard() {
        let (mut log, lines) = log();
        for _ in 0..100 {
            log.tell(1, &who(1), &News::Refused("x"));
        }
        log.tell(1, &who(2), &News::Refused("y"));
        let said: Vec<String> = std::iter::from_fn(|| lines.try_recv()).collect();
        assert_eq!(said.len(), NEIGHBOR_BURST_MAX as usize + 1);
        assert!(said[NEIGHBOR_BURST_MAX as usize].ends_with("no session: y"));
        log.tell(1 + EARNED, &who(1), &News::Refused("x"));
        let left_out =
            format!("; {} earlier lines of this neighbour were left out", 100 - NEIGHBOR_BURST_MAX);
        assert!(lines.try_recv().unwrap().ends_with(&left_out));
        assert!(lines.try_recv().is_none());
    }

    #[test]
    fn full_log_stops_no_session() {
        let (mut log, lines) = log();
        let from = |n: usize| Who { address: [10, 0, (n >> 8) as u8, n as u8].into(), ..who(0) };
        (0..WAITING + 5).for_each(|n| log.tell(0, &from(n), &News::Refused("x")));
        assert_eq!(std::iter::from_fn(|| lines.try_recv()).count(), WAITING);
        log.tell(0, &who(1), &News::Refused("x"));
        assert!(lines.try_recv().unwrap().ends_with("; 5 earlier lines of the full log were left out"));
        // All together have a bound too, and what is remembered of each.
        (0..3 * REMEMBERED).for_each(|n| log.tell(0, &from(n), &News::Refused("x")));
        assert!(log.neighbors.len() <= REMEMBERED && log.all.left == 0);
    }
}
