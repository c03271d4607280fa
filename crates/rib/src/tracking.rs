//! Next-hop tracking: which next hops BGP has registered, what it was told of each, and how often that may change.
//!
//! The answers are the resolver's. Of two answers that follow each other quickly BGP hears the bad one at once and the good
//! one after a delay (`docs/adr/0020-next-hop-resolution.md`, section 6), because BGP's own choice among several paths may
//! depend on the answers, and the answers on that choice.

use crate::message::{NextHopState, TrackedNextHop};
use crate::target::{Answer, Outcome, Target};
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::BTreeSet;

/// Changes of one next hop that BGP is told without delay.
pub(crate) const FREE_CHANGES: u32 = 4;
/// A next hop that did not change for so many milliseconds, beyond its last delay, starts from nothing.
pub(crate) const QUIET_MS: u64 = 10_000;
/// The first delay, in milliseconds. Each further one is twice as long.
pub(crate) const FIRST_DELAY_MS: u64 = 1_000;
/// The longest delay, in milliseconds.
pub(crate) const LAST_DELAY_MS: u64 = 64_000;

/// A registered next hop.
#[derive(Debug)]
struct Entry {
    /// The target that answers it.
    node: u32,
    /// How often it is registered.
    registrations: u32,
    /// What BGP was told last.
    told: Option<NextHopState>,
    /// A new registration is to be answered, whatever was told before.
    unanswered: bool,
    /// Changes that BGP was told since it was quiet.
    changes: u32,
    /// When it was told the last one.
    changed_at: u64,
    /// The delay of the last good answer, 0: none.
    delay: u64,
    /// The delay that was reported last, 0: none since it was quiet.
    noted: u64,
    /// When a good answer that is delayed will be told.
    due: Option<u64>,
    /// The prefixes that BGP was told the answer depends on.
    depends: Vec<AnyPrefix>,
}

/// A registered next hop as [`crate::Rib::tracked_next_hops`] shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackedInfo {
    /// Which.
    pub next_hop: TrackedNextHop,
    /// Where it leads now.
    pub outcome: Outcome,
    /// The route that it resolves through, where there is one.
    pub via: Option<AnyPrefix>,
    /// What BGP was told last; nothing before the first batch.
    pub told: Option<NextHopState>,
    /// Changes that BGP was told, until a quiet time begins the count again.
    pub changes: u32,
    /// When a delayed answer will be told, in the time of [`crate::Rib::set_time`].
    pub delayed_until: Option<u64>,
}

/// All registered next hops.
pub(crate) struct Tracking {
    entries: Map<TrackedNextHop, Entry>,
    /// Those that may have another answer.
    stale: Vec<TrackedNextHop>,
    /// When delayed answers are due.
    due: BTreeSet<(u64, TrackedNextHop)>,
    /// Whether answers are delayed at all.
    damping: bool,
}

impl Tracking {
    pub(crate) fn new(damping: bool) -> Tracking {
        Tracking { entries: Map::default(), stale: Vec::new(), due: BTreeSet::new(), damping }
    }

    /// Registers a next hop that `node` answers.
    pub(crate) fn register(&mut self, next_hop: TrackedNextHop, node: u32) {
        let entry = self.entries.entry(next_hop).or_insert(Entry {
            node,
            registrations: 0,
            told: None,
            unanswered: true,
            changes: 0,
            changed_at: 0,
            delay: 0,
            noted: 0,
            due: None,
            depends: Vec::new(),
        });
        entry.registrations += 1;
        entry.unanswered = true;
        self.stale.push(next_hop);
    }

    /// Undoes one [`Tracking::register`]; the node that is no longer asked for it, if it was registered.
    pub(crate) fn unregister(&mut self, next_hop: TrackedNextHop) -> Option<u32> {
        let entry = self.entries.get_mut(&next_hop)?;
        let node = entry.node;
        entry.registrations -= 1;
        if entry.registrations == 0 {
            if let Some(due) = entry.due {
                self.due.remove(&(due, next_hop));
            }
            self.entries.remove(&next_hop);
        }
        Some(node)
    }

    /// A target has an answer, maybe another one.
    pub(crate) fn answered(&mut self, target: &Target) {
        // Both kinds of a gateway that is taken as given have one target.
        let exclude = target.assumed.map(|assumed| assumed.prefix);
        let next_hop =
            |recursive| target.gateway.map(|address| TrackedNextHop { address, recursive, exclude });
        let registered = [false, true].into_iter().filter_map(next_hop);
        self.stale.extend(registered.filter(|next_hop| self.entries.contains_key(next_hop)));
    }

    /// When the next delayed answer is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// What BGP is to be told at `now`, in milliseconds; `state` is the present answer of a node, and `depends` are the prefixes
    /// of BGP's that it depends on. `delayed` gets the next hops whose answers have a longer delay than before.
    pub(crate) fn tell(
        &mut self,
        now: u64,
        state: impl Fn(u32) -> NextHopState,
        depends: impl Fn(u32) -> Vec<AnyPrefix>,
        out: &mut Vec<(TrackedNextHop, NextHopState)>,
        per_prefix: &mut Vec<TrackedNextHop>,
        delayed: &mut Vec<(TrackedNextHop, u64)>,
    ) {
        while let Some((due, next_hop)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, next_hop));
            self.stale.push(next_hop);
        }
        let mut stale = std::mem::take(&mut self.stale);
        for next_hop in stale.drain(..) {
            if next_hop.recursive && next_hop.exclude.is_none() {
                self.tell_prefixes(next_hop, &depends, per_prefix);
            }
            let Some(entry) = self.entries.get_mut(&next_hop) else { continue };
            let state = state(entry.node);
            let before = entry.told;
            let told = match before {
                Some(told) if told == state => {
                    // What was delayed is not so any more, or never came to be.
                    if let Some(due) = entry.due.take() {
                        self.due.remove(&(due, next_hop));
                    }
                    told
                }
                Some(told) if self.damping && entry.delays(now, state) => {
                    let is_new = entry.due.is_some_and(|due| self.due.insert((due, next_hop)));
                    // It may flap any number of times while nothing is told: only a longer delay is worth a line of the log.
                    if is_new && std::mem::replace(&mut entry.noted, entry.delay) != entry.delay {
                        delayed.push((next_hop, entry.delay));
                    }
                    told
                }
                _ => {
                    if let Some(due) = entry.due.take() {
                        self.due.remove(&(due, next_hop));
                    }
                    entry.change(now, state);
                    state
                }
            };
            if std::mem::take(&mut entry.unanswered) || before != Some(told) {
                entry.told = Some(told);
                out.push((next_hop, told));
            }
        }
        self.stale = stale;
    }

    /// Tells which prefixes the answer of a next hop depends on, as far as that is new, so that their paths are registered by
    /// themselves.
    fn tell_prefixes(
        &mut self,
        next_hop: TrackedNextHop,
        depends: impl Fn(u32) -> Vec<AnyPrefix>,
        per_prefix: &mut Vec<TrackedNextHop>,
    ) {
        let Some(entry) = self.entries.get_mut(&next_hop) else { return };
        let now = depends(entry.node);
        let before = std::mem::replace(&mut entry.depends, now.clone());
        let all = entry.unanswered;
        for prefix in now.into_iter().filter(|prefix| all || !before.contains(prefix)) {
            let by_itself = TrackedNextHop { exclude: Some(prefix), ..next_hop };
            if !self.entries.contains_key(&by_itself) {
                per_prefix.push(by_itself);
            }
        }
    }

    /// All of them, in no order; `answer` is the present answer of a node.
    pub(crate) fn iter<'a>(
        &'a self,
        answer: impl Fn(u32) -> &'a Answer + 'a,
    ) -> impl Iterator<Item = TrackedInfo> + 'a {
        self.entries.iter().map(move |(next_hop, entry)| TrackedInfo {
            next_hop: *next_hop,
            outcome: answer(entry.node).outcome.clone(),
            via: answer(entry.node).via,
            told: entry.told,
            changes: entry.changes,
            delayed_until: entry.due,
        })
    }

    /// How many are delayed.
    pub(crate) fn delayed(&self) -> usize {
        self.due.len()
    }
}

impl Entry {
    /// Whether `state`, which BGP was not told, has to wait. Says in `due` until when.
    fn delays(&mut self, now: u64, state: NextHopState) -> bool {
        if state == NextHopState::Unreachable {
            return false;
        }
        if let Some(due) = self.due {
            return now < due;
        }
        if now.saturating_sub(self.changed_at) > QUIET_MS + self.delay {
            (self.changes, self.delay, self.noted) = (0, 0, 0);
        }
        if self.changes < FREE_CHANGES {
            return false;
        }
        self.delay = (self.delay * 2).clamp(FIRST_DELAY_MS, LAST_DELAY_MS);
        self.due = Some(now + self.delay);
        true
    }

    /// BGP is told `state`.
    fn change(&mut self, now: u64, state: NextHopState) {
        if self.told.is_some_and(|told| told != state) {
            if now.saturating_sub(self.changed_at) > QUIET_MS + self.delay {
                (self.changes, self.delay, self.noted) = (0, 0, 0);
            }
            self.changes += 1;
            self.changed_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ReceivedHop, Track};

    const GOOD: NextHopState = NextHopState::Reachable { cost: 0 };
    const BAD: NextHopState = NextHopState::Unreachable;

    fn next_hop() -> TrackedNextHop {
        TrackedNextHop { address: "192.0.2.1".parse().unwrap(), recursive: true, exclude: None }
    }

    /// Has the target's answer be `state` at `now`; what BGP is told.
    fn answer(tracking: &mut Tracking, now: u64, state: NextHopState) -> Vec<NextHopState> {
        let gateway = ReceivedHop::gateway(next_hop().address);
        tracking.answered(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
        let mut out = Vec::new();
        tracking.tell(now, |_| state, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        out.into_iter().map(|(_, state)| state).collect()
    }

    #[test]
    fn registration_is_answered_each_time() {
        let mut tracking = Tracking::new(true);
        for _ in 0..3 {
            tracking.register(next_hop(), 1);
            assert_eq!(answer(&mut tracking, 0, GOOD), [GOOD]);
        }
        assert_eq!(answer(&mut tracking, 0, GOOD), []);
        assert_eq!([1, 2, 3].map(|_| tracking.unregister(next_hop())), [Some(1); 3]);
        assert_eq!((tracking.unregister(next_hop()), answer(&mut tracking, 0, BAD)), (None, vec![]));
    }

    #[test]
    fn flapping_next_hop_is_told_bad_news_at_once_and_good_news_ever_later() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let mut told_at = Vec::new();
        // The answer changes each millisecond, for five minutes.
        for now in 0..300_000u64 {
            let state = if now % 2 == 0 { GOOD } else { BAD };
            if !answer(&mut tracking, now, state).is_empty() {
                told_at.push(now);
            }
        }
        // The first answer and four changes. Then good news never lasts until it is due, so nothing changes for BGP until the count
        // begins again: six changes at most in each 74 s.
        assert_eq!(told_at[..5], [0, 1, 2, 3, 4]);
        let most = |span: u64| {
            told_at.iter().map(|at| told_at.iter().filter(|t| (*at..at + span).contains(*t)).count()).max()
        };
        assert!(most(QUIET_MS + LAST_DELAY_MS) <= Some(6), "{told_at:?}");
        let last = told_at[told_at.len() - 1];
        assert!(last > 180_000, "delayed, not silenced: {told_at:?}");
    }

    #[test]
    fn answer_that_depends_on_what_bgp_was_told_changes_at_the_bounded_rate() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let (mut told, mut told_at) = (BAD, Vec::new());
        // As soon as BGP uses the next hop it is lost, and as soon as BGP does not, it is there.
        for now in 0..600_000u64 {
            let state = if told == BAD { GOOD } else { BAD };
            if let [state] = answer(&mut tracking, now, state)[..] {
                told = state;
                told_at.push(now);
            }
        }
        // Of the first answer nobody says that it is a change.
        let changes = |within: u64| told_at.iter().filter(|at| **at < within).count() as u64 - 1;
        for seconds in 1..64u64 {
            assert!(
                changes(seconds * 1000) <= 5 + 2 * u64::from((seconds + 1).ilog2()),
                "{seconds} s: {told_at:?}"
            );
        }
        for at in (127_000..599_000).step_by(1000) {
            assert!(changes(at + 64_000) - changes(at) <= 2, "{at}: {told_at:?}");
        }
        assert!(changes(600_000) > 20, "it is never silenced: {told_at:?}");
    }

    #[test]
    fn flapping_next_hop_is_reported_once_for_each_delay() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let mut reported = Vec::new();
        let gateway = ReceivedHop::gateway(next_hop().address);
        for now in 0..10_000u64 {
            tracking.answered(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
            let state = if now % 2 == 0 { GOOD } else { BAD };
            tracking.tell(now, |_| state, |_| Vec::new(), &mut Vec::new(), &mut Vec::new(), &mut reported);
        }
        let delays: Vec<u64> = reported.into_iter().map(|(_, delay)| delay).collect();
        assert_eq!(delays, [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]);
    }

    #[test]
    fn delayed_next_hop_ends_with_the_truth_and_forgets_after_a_quiet_time() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        for (now, state) in [(0, GOOD), (1, BAD), (2, GOOD), (3, BAD), (4, GOOD), (5, BAD)] {
            assert_eq!(answer(&mut tracking, now, state), [state]);
        }
        assert_eq!(answer(&mut tracking, 6, GOOD), []);
        assert_eq!((tracking.next_due(), tracking.delayed()), (Some(1006), 1));
        // A shard that registers it meanwhile hears what the others have heard.
        tracking.register(next_hop(), 1);
        assert_eq!(answer(&mut tracking, 7, GOOD), [BAD]);
        let mut out = Vec::new();
        tracking.tell(1005, |_| GOOD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        assert_eq!(out, []);
        tracking.tell(1006, |_| GOOD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        assert_eq!((out.len(), tracking.next_due(), tracking.delayed()), (1, None, 0));
        let quiet = 1006 + QUIET_MS + FIRST_DELAY_MS + 1;
        assert_eq!(answer(&mut tracking, quiet, BAD), [BAD]);
        assert_eq!(answer(&mut tracking, quiet + 1, GOOD), [GOOD]);
    }

    #[test]
    fn bad_news_while_good_news_is_delayed_leaves_nothing_to_tell() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        for now in 0..6 {
            answer(&mut tracking, now, if now % 2 == 0 { GOOD } else { BAD });
        }
        assert_eq!(answer(&mut tracking, 6, GOOD), []);
        assert_eq!(answer(&mut tracking, 7, BAD), []);
        assert_eq!(tracking.next_due(), None);
    }
}
