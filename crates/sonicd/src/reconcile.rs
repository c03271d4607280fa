//! Continuous reconciliation of SONiC's copies: the chip, ASIC_DB and APPL_DB are compared with what
//! this daemon requested or wrote, and orchagent's routes with APPL_DB, a page at a time, and what
//! differs is repaired.
//! [ADR 24](../../../docs/adr/0024-reconciliation-of-sonics-copies.md) has who holds the truth.
//!
//! [`ChipRounds`] compares the chip in syncd's own stage. [`mirror`] compares a database on a thread
//! of its own.

mod agreed;
pub(super) mod appl_db;
pub(super) mod appl_state_db;
pub(super) mod asic_db;
pub(super) mod mirror;
mod name_balance;
pub(super) mod orchagent;

use clap::Args;
use ribtide_swss::sai::{Audit, ObjectType, text};
use ribtide_swss::syncd::{ChipRound, PageResult, Syncd, SyncdOut};
use ribtide_tables::{Connection, Fields};
use ribtide_vswitch::VirtualSwitch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The table in STATE_DB: keys are daemons, fields are compared tables.
const TABLE: &str = "RIBTIDE_RECONCILE";
/// Repairs of one round that are logged one by one; the rest is counted.
const LOGGED_MAX: usize = 10;
/// Objects of a page of the chip: about a millisecond of the stage.
const CHIP_PAGE: usize = 4096;
/// Pages of a round through empty tables, about: a walk visits every place of the chip's tables.
const EMPTY_PAGES: usize = 25;
/// The longest and the shortest rest between two pages.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How often copies are compared.
#[derive(Args, Clone, Copy, Debug)]
pub struct ReconcileOptions {
    /// The time of one round of reconciliation, which compares the copies of routes (APPL_DB, orchagent's
    /// table, ASIC_DB, the switch) with their source and repairs differences. A round takes longer if it
    /// would need more than 2% of a CPU; 0: never
    #[arg(long = "reconcile-interval", value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
}

impl ReconcileOptions {
    /// The time of a round; `None`: never.
    pub fn interval(self) -> Option<Duration> {
        (self.seconds > 0).then(|| Duration::from_secs(self.seconds))
    }
}

/// What was compared of a table, and repaired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReconcileCount {
    /// Rows or entries compared.
    pub compared: u64,
    /// Of these, repaired.
    pub repaired: u64,
    /// Of these, differing and refused by the chip; the next round tries again.
    pub failed: u64,
}

/// The counts of a daemon by table. Clones share them.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, ReconcileCount>>>);

impl Tally {
    /// The counts so far.
    pub fn counts(&self) -> BTreeMap<String, ReconcileCount> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, counts: &mut BTreeMap<String, ReconcileCount>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (table, count) in std::mem::take(counts) {
            let sum = all.entry(table).or_default();
            sum.compared += count.compared;
            sum.repaired += count.repaired;
            sum.failed += count.failed;
        }
    }

    /// Writes the counts to STATE_DB at each change.
    pub(super) fn publish(&self, daemon: &super::Daemon) {
        let tally = self.clone();
        daemon.bookkeeping.follow(TABLE, daemon.name, move || {
            let text = |count: &ReconcileCount| serde_json::to_string(count).unwrap_or_default();
            tally.counts().iter().map(|(table, count)| (table.clone(), text(count))).collect::<Fields>()
        });
    }
}

/// The counts of a daemon in this STATE_DB by table.
pub(super) fn of(
    daemon: &str,
    state: &mut Connection,
) -> Result<BTreeMap<String, ReconcileCount>, super::Error> {
    let key = state.database().key(TABLE, daemon);
    let fields = state.query(&["HGETALL", &key])?.into_pairs();
    Ok(fields
        .into_iter()
        .filter_map(|(table, text)| Some((table, serde_json::from_str(&text).ok()?)))
        .collect())
}

/// The counts and log lines of a round. Counts without a repair are published at its end, so that a
/// round in which nothing differs writes STATE_DB once.
pub struct RoundLog {
    daemon: &'static str,
    tally: Tally,
    counts: BTreeMap<String, ReconcileCount>,
    logged: usize,
    more: u64,
}

impl RoundLog {
    /// The log of the rounds of a daemon.
    pub fn new(daemon: &'static str, tally: Tally) -> RoundLog {
        RoundLog { daemon, tally, counts: BTreeMap::new(), logged: 0, more: 0 }
    }

    /// Counts rows or entries that were compared.
    pub fn compared(&mut self, table: &str, count: u64) {
        if count > 0 {
            self.counts.entry(table.into()).or_default().compared += count;
        }
    }

    /// Notes a repair of a row or an entry, for this reason; `refused`: why the chip did not take it.
    pub fn repaired(&mut self, table: &str, key: &str, reason: &str, refused: Option<&str>) {
        let count = self.counts.entry(table.into()).or_default();
        *(if refused.is_none() { &mut count.repaired } else { &mut count.failed }) += 1;
        self.tally.add(&mut self.counts);
        if self.logged == LOGGED_MAX {
            self.more += 1;
            return;
        }
        self.logged += 1;
        let daemon = self.daemon;
        match refused {
            None => super::events::log!(daemon, warn, table, key, reason, "repaired"),
            Some(status) => {
                super::events::log!(
                    daemon,
                    error,
                    table,
                    key,
                    reason,
                    status,
                    "not repaired: the chip refuses it"
                )
            }
        }
    }

    /// Adds the outcome of a page of the chip.
    pub fn chip(&mut self, result: &PageResult) {
        for (object, count) in &result.compared {
            self.compared(&chip_table(*object), *count);
        }
        for repair in &result.repairs {
            let mut key = String::new();
            text::write_id(&repair.id, &mut key);
            let refused = (!repair.status.is_success()).then(|| repair.status.name());
            self.repaired(&chip_table(repair.object), &key, repair.difference.why(), refused.as_deref());
        }
    }

    /// Ends the round.
    pub fn end(&mut self) {
        self.tally.add(&mut self.counts);
        let (daemon, more) = (self.daemon, std::mem::take(&mut self.more));
        self.logged = 0;
        if more > 0 {
            super::events::log!(daemon, warn, more, "more was repaired in this round");
        }
    }
}

/// The name of a table of the chip among the counts.
pub fn chip_table(object: ObjectType) -> String {
    format!("chip {}", object.name())
}

/// The rounds of syncd's stage through its chip.
pub struct ChipRounds {
    interval: Duration,
    log: RoundLog,
    round: Option<ChipRound<<VirtualSwitch as Audit>::Cursor>>,
    due: Instant,
    /// The rest between two pages of this round.
    rest: Duration,
    began: Instant,
    /// [`Audit::changes`] at the start of the last complete round, and of this one.
    clean: Option<u64>,
    changes: u64,
}

impl ChipRounds {
    /// Rounds of `interval`, the first one after it.
    pub fn new(interval: Duration, log: RoundLog) -> ChipRounds {
        let now = Instant::now();
        ChipRounds {
            interval,
            log,
            round: None,
            due: now + interval,
            rest: REST.0,
            began: now,
            clean: None,
            changes: 0,
        }
    }

    /// When the next page is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Compares the next page, if it is due.
    pub fn step(&mut self, syncd: &mut Syncd<VirtualSwitch>, now: Instant, out: &mut SyncdOut) {
        if now < self.due {
            return;
        }
        let round = match self.round.take() {
            Some(round) => Some(round),
            None => {
                let pages = EMPTY_PAGES + syncd.chip().route_count() / CHIP_PAGE;
                self.rest = (self.interval / pages as u32).clamp(REST.0, REST.1);
                self.began = now;
                self.changes = syncd.chip().changes();
                // A chip that rests is not compared again.
                if self.clean == Some(self.changes) { None } else { syncd.begin_round() }
            }
        };
        if let Some(round) = round {
            let (result, rest) = syncd.reconcile(round, CHIP_PAGE, out);
            self.log.chip(&result);
            self.round = rest;
            if self.round.is_none() {
                self.clean = Some(self.changes);
            }
        }
        self.due = match self.round {
            Some(_) => now + self.rest,
            None => {
                self.log.end();
                (self.began + self.interval).max(now + self.rest)
            }
        };
    }
}

#[cfg(test)]
mod tests;
