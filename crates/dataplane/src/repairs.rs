//! Counts what was found wrong in the kernel, or at an FPM server, and was repaired.

use ribtide_prefix::AnyPrefix;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The minimum interval of log messages about repairs.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How the kernel, or an FPM server, differed from the desired state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference {
    /// A route was not there.
    Missing,
    /// A route had other next hops, another source address, or another protocol number.
    OtherNextHops,
    /// A route that ribtide did not request: in the kernel one with ribtide's protocol number.
    Unexpected,
    /// A next-hop object was not there, had other content, or was not requested.
    NextHopObject,
    /// A route of another program was not as ribtide had imported it.
    Imported,
}

impl Difference {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Difference; 5] = [
        Difference::Missing,
        Difference::OtherNextHops,
        Difference::Unexpected,
        Difference::NextHopObject,
        Difference::Imported,
    ];

    /// The label of the metric.
    pub fn label(self) -> &'static str {
        match self {
            Difference::Missing => "missing",
            Difference::OtherNextHops => "other-next-hops",
            Difference::Unexpected => "unexpected",
            Difference::NextHopObject => "next-hop-object",
            Difference::Imported => "imported",
        }
    }
}

/// Counters of the comparison, which other threads read.
#[derive(Debug, Default)]
pub struct RepairCounters {
    repaired: [AtomicU64; 5],
    compared: AtomicU64,
    rounds: AtomicU64,
    round_millis: AtomicU64,
}

impl RepairCounters {
    /// Repaired differences of a kind.
    pub fn repaired(&self, difference: Difference) -> u64 {
        self.repaired[difference as usize].load(Relaxed)
    }

    /// Notes `count` repaired differences.
    pub(super) fn note(&self, difference: Difference, count: usize) {
        self.repaired[difference as usize].fetch_add(count as u64, Relaxed);
    }

    /// Routes compared by rounds.
    pub fn compared(&self) -> u64 {
        self.compared.load(Relaxed)
    }

    /// Complete rounds of the comparison.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    /// The duration of the last complete round.
    pub fn round_time(&self) -> Duration {
        Duration::from_millis(self.round_millis.load(Relaxed))
    }
}

/// The writer's side: counters, and repairs that are not logged yet.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    pub(super) counters: Arc<RepairCounters>,
    unlogged: [u64; 5],
    example: Option<AnyPrefix>,
    logged: Option<Instant>,
}

impl Repairs {
    /// Counts in `counters`.
    pub(super) fn new(counters: Arc<RepairCounters>) -> Repairs {
        Repairs { counters, ..Repairs::default() }
    }

    /// Notes `count` repaired differences; `example` is the prefix of one.
    pub(super) fn note(&mut self, difference: Difference, count: usize, example: Option<AnyPrefix>) {
        if count > 0 {
            self.counters.note(difference, count);
            self.unlogged[difference as usize] += count as u64;
            self.example = example.or(self.example);
        }
    }

    /// All repairs.
    pub(super) fn total(&self) -> u64 {
        self.counters.repaired.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Notes compared routes.
    pub(super) fn compared(&self, routes: usize) {
        self.counters.compared.fetch_add(routes as u64, Relaxed);
    }

    /// Notes a complete round.
    pub(super) fn round(&self, time: Duration) {
        self.counters.round_millis.store(time.as_millis() as u64, Relaxed);
        self.counters.rounds.fetch_add(1, Relaxed);
    }

    /// What was repaired since the last message, by kind, and the prefix of one; at most once in
    /// [`LOG_INTERVAL`].
    pub(super) fn take_unlogged(&mut self) -> Option<([u64; 5], String)> {
        let due = self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if self.unlogged == [0; 5] || !due {
            return None;
        }
        self.logged = Some(Instant::now());
        let example = self.example.take().map(|prefix| prefix.to_string()).unwrap_or_default();
        Some((std::mem::take(&mut self.unlogged), example))
    }
}
