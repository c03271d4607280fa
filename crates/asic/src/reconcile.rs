//! Reconciliation of the chip's routes. syncd keeps no routes here, so orchagent's table has the truth,
//! on another thread. A thread of its own reads a page of each and compares.
//!
//! Requests change routes meanwhile, so a difference is only suspect. Of suspects it asks in three
//! steps:
//!
//! 1. syncd watches them: a request that changes one ends its watch;
//! 2. orchagent says what they should be, unless a request is in flight;
//! 3. syncd repairs those that differ and are still watched.
//!
//! A request that was sent before 2 has its reply, so it was carried out before 1 or has ended the
//! watch; one that was sent later and carried out has ended the watch too.

use super::Error;
use ribtide_runtime::call::{NoReply, StageHandle};
use ribtide_runtime::ring::Closed;
use ribtide_runtime::thread::{self, Stop, StopSignal};
use ribtide_sonicd::orch_stage::OrchStage;
use ribtide_sonicd::reconcile::{RoundLog, chip_table};
use ribtide_sonicd::syncd_stage::SyncdStage;
use ribtide_swss::orch::ExpectedEntry;
use ribtide_swss::sai::{Attrs, Audit, ObjectId, ObjectType, RouteEntry, SWITCH};
use ribtide_swss::syncd::SyncdOut;
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Routes of a page: about a millisecond of each stage.
const PAGE: usize = 4096;
/// Pages of a round through empty tables, about: a walk visits every place of the chip's tables.
const EMPTY_PAGES: usize = 25;
/// The longest and the shortest rest between two pages.
const REST: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

struct Reconciler {
    orchagent: StageHandle<OrchStage>,
    syncd: StageHandle<SyncdStage>,
    log: RoundLog,
    rest: Duration,
    /// [`Audit::changes`] at the start of the last round.
    clean: Option<u64>,
    stop: StopSignal,
}

/// Compares in rounds of `interval`, until `stop`.
pub(super) fn start(
    name: &str,
    orchagent: StageHandle<OrchStage>,
    syncd: StageHandle<SyncdStage>,
    interval: Duration,
    log: RoundLog,
    stop: Stop,
) -> Result<(), Error> {
    let stop = stop.signal();
    let mut reconciler = Reconciler { orchagent, syncd, log, rest: REST.1, clean: None, stop };
    let body = move || -> Result<Infallible, Closed> {
        loop {
            reconciler.stop.pause(interval)?;
            // A stage that has ended stops the process; after a busy one the next round compares.
            if let Some(closed) = reconciler.round(interval).err().and_then(NoReply::closed) {
                return Err(closed);
            }
            reconciler.log.end();
        }
    };
    let spawned = thread::spawn(format!("{name}-reconcile"), body);
    spawned.map(drop).map_err(Error::no_thread("to compare the chip"))
}

impl Reconciler {
    fn round(&mut self, interval: Duration) -> Result<(), NoReply> {
        let (changes, routes) = self.syncd.wait(|stage| {
            let chip = stage.syncd.chip();
            (chip.changes(), chip.route_count())
        })?;
        // A chip that rests is not compared again.
        if self.clean.replace(changes) == Some(changes) {
            return Ok(());
        }
        self.rest = (interval / (EMPTY_PAGES + 2 * routes / PAGE) as u32).clamp(REST.0, REST.1);
        let mut cursor = Some(Default::default());
        while let Some(from) = cursor.take() {
            let (ids, next) = self.syncd.wait(move |stage| {
                let (entries, next) = stage.syncd.chip().entries(from, PAGE);
                let id = |rid: ObjectId| match rid {
                    // An entry of a virtual router that no request made keeps the chip's number.
                    ObjectId::Route(RouteEntry { vr, dest, .. }) => {
                        let vr = stage.syncd.vid(vr).unwrap_or(vr);
                        Some(ObjectId::Route(RouteEntry { switch: SWITCH, vr, dest }))
                    }
                    _ => None,
                };
                (entries.into_iter().filter_map(id).collect::<Vec<_>>(), next)
            })?;
            cursor = next;
            let surplus = self.orchagent.wait(move |stage| {
                let mut ids = ids;
                ids.retain(|id| stage.orch.expected_entry(id) == ExpectedEntry::Absent);
                ids
            })?;
            self.confirm(surplus)?;
            if self.stop.sleep(self.rest) {
                return Ok(());
            }
        }
        let mut next = Some(0);
        while let Some(from) = next.take() {
            let (entries, more) =
                self.orchagent.wait(move |stage| stage.orch.expected_entries(from, PAGE as u32))?;
            next = more;
            self.log.compared(&chip_table(ObjectType::RouteEntry), entries.len() as u64);
            let suspects = self.syncd.wait(move |stage| {
                let differing =
                    entries.into_iter().filter(|(id, attrs)| stage.syncd.differs(*id, Some(attrs)));
                differing.map(|(id, _)| id).collect::<Vec<_>>()
            })?;
            self.confirm(suspects)?;
            if self.stop.sleep(self.rest) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Repairs those of the suspects that differ indeed.
    fn confirm(&mut self, suspects: Vec<ObjectId>) -> Result<(), NoReply> {
        if suspects.is_empty() {
            return Ok(());
        }
        let watched = suspects.clone();
        self.syncd.wait(move |stage| stage.syncd.watch(watched))?;
        let expected: Vec<(ObjectId, Option<Attrs>)> = self.orchagent.wait(move |stage| {
            let expected = suspects.into_iter().map(|id| (id, stage.orch.expected_entry(&id)));
            let known = expected.filter_map(|(id, expected)| match expected {
                ExpectedEntry::Unknown => None,
                ExpectedEntry::Absent => Some((id, None)),
                ExpectedEntry::Entry(attrs) => Some((id, Some(attrs))),
            });
            known.collect()
        })?;
        let result = self.syncd.wait(move |stage| {
            if stage.syncd.chip_mut().stalled(Instant::now()).is_some() {
                return Default::default();
            }
            let mut expected = expected;
            expected.retain(|(id, _)| stage.syncd.is_watched(id));
            stage.syncd.reconcile_entries(expected, &mut SyncdOut::default())
        })?;
        self.log.chip(&result);
        Ok(())
    }
}
