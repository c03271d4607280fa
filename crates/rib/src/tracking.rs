//! Next-hop tracking: registered next hops, the last notification of each, and the damping of
//! notifications.
//!
//! The answers come from the resolver. BGP's choice among paths depends on the answers, and they
//! may depend on its choice. So `docs/adr/0020-next-hop-resolution.md`, section 6, bounds the rate
//! of notifications. Reachability of a flapping next hop is delayed. A loss through a BGP route is
//! held while BGP may choose another path of that route.

use crate::message::{Reachability, TrackedNextHop};
use crate::target::{Outcome, Resolution, Target};
use ribtide_prefix::zone::with_zone;
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

/// Undelayed notifications of one flapping next hop.
pub(crate) const FREE_CHANGES: u32 = 4;
/// A next hop without a change for this time beyond its last delay counts as stable, in
/// milliseconds.
pub(crate) const QUIET_MS: u64 = 10_000;
/// The first delay, in milliseconds. Each further one is twice as long.
pub(crate) const FIRST_DELAY_MS: u64 = 1_000;
/// The longest delay, in milliseconds.
pub(crate) const LAST_DELAY_MS: u64 = 64_000;
/// The hold of a loss, in milliseconds, for each BGP route on the next hop's chain. So next hops
/// with fewer such routes are notified first, and BGP chooses other paths before later holds end.
pub(crate) const HOLD_MS: u64 = 50;
/// Routes that lengthen a hold, at most.
pub(crate) const MAX_HOLDS: usize = 5;

/// A registered next hop.
#[derive(Debug)]
struct Entry {
    /// The target that answers it.
    node: u32,
    /// How often it is registered.
    registrations: u32,
    /// The last notification.
    notified: Option<Reachability>,
    /// A new registration awaits its first notification.
    unanswered: bool,
    /// Notifications since it was last stable.
    changes: u32,
    /// Time of the last notification.
    changed_at: u64,
    /// The delay of the last reachable answer; 0 without one.
    delay: u64,
    /// The last reported delay; 0 without one since it was stable.
    noted: u64,
    /// When a delayed reachable answer is due.
    due: Option<u64>,
    /// When a held loss is due. It persists while the answer flaps, so a next hop that flaps faster
    /// than [`HOLD_MS`] is not held for ever.
    held: Option<u64>,
    /// The BGP prefixes on which the last answer depends.
    depends: Vec<AnyPrefix>,
}

/// A registered next hop as [`crate::Rib::tracked_next_hops`] shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackedInfo {
    /// Which.
    pub next_hop: TrackedNextHop,
    /// What it resolves to now.
    pub outcome: Outcome,
    /// The route that it resolves through, where there is one.
    pub via: Option<AnyPrefix>,
    /// The last notification to BGP; `None` before the first batch.
    pub notified: Option<Reachability>,
    /// Notifications to BGP since it was last stable.
    pub changes: u32,
    /// When the last of them was, in the time of [`crate::Rib::set_time`]; `None` without one.
    pub changed_at: Option<u64>,
    /// When a delayed answer will be notified, in the same time.
    pub delayed_until: Option<u64>,
}

/// All registered next hops.
#[derive(Default)]
pub(crate) struct Tracking {
    entries: Map<TrackedNextHop, Entry>,
    /// Next hops whose answers may have changed.
    stale: Vec<TrackedNextHop>,
    /// When delayed answers are due.
    due: BTreeSet<(u64, TrackedNextHop)>,
    /// When held losses are due.
    held: BTreeSet<(u64, TrackedNextHop)>,
    /// Whether damping is enabled.
    damping: bool,
}

impl Tracking {
    pub(crate) fn new(damping: bool) -> Tracking {
        Tracking { damping, ..Tracking::default() }
    }

    /// Registers a next hop that the target `node` answers.
    pub(crate) fn register(&mut self, next_hop: TrackedNextHop, node: u32) {
        let entry = self.entries.entry(next_hop).or_insert(Entry {
            node,
            registrations: 0,
            notified: None,
            unanswered: true,
            changes: 0,
            changed_at: 0,
            delay: 0,
            noted: 0,
            due: None,
            held: None,
            depends: Vec::new(),
        });
        entry.registrations += 1;
        entry.unanswered = true;
        self.stale.push(next_hop);
    }

    /// Undoes one [`Tracking::register`]; returns the target after the last one.
    pub(crate) fn unregister(&mut self, next_hop: TrackedNextHop) -> Option<u32> {
        let entry = self.entries.get_mut(&next_hop)?;
        let node = entry.node;
        entry.registrations -= 1;
        if entry.registrations == 0 {
            entry.settle(next_hop, &mut self.due, &mut self.held);
            self.entries.remove(&next_hop);
        }
        Some(node)
    }

    /// Notes that a target was evaluated.
    pub(crate) fn resolved(&mut self, target: &Target) {
        // Both kinds of an assumed gateway share one target.
        let exclude = target.assumed.map(|assumed| assumed.prefix);
        let address = target.gateway.map(|gateway| match (gateway, target.interface) {
            (IpAddr::V6(a), Some(zone)) => with_zone(a, zone).into(),
            _ => gateway,
        });
        let next_hop = |recursive| address.map(|address| TrackedNextHop { address, recursive, exclude });
        let registered = [false, true].into_iter().filter_map(next_hop);
        self.stale.extend(registered.filter(|next_hop| self.entries.contains_key(next_hop)));
    }

    /// When the next delayed or held notification is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        [&self.due, &self.held].into_iter().filter_map(|set| set.first()).map(|(due, _)| *due).min()
    }

    /// Appends the notifications that are due at `now`, in milliseconds. `state` is the answer of a
    /// target, and `depends` are the BGP prefixes on which it depends. `delayed` gets the next hops
    /// whose delay grew.
    pub(crate) fn notify(
        &mut self,
        now: u64,
        state: impl Fn(u32) -> Reachability,
        depends: impl Fn(u32) -> Vec<AnyPrefix>,
        out: &mut Vec<(TrackedNextHop, Reachability)>,
        per_prefix: &mut Vec<TrackedNextHop>,
        delayed: &mut Vec<(TrackedNextHop, u64)>,
    ) {
        for set in [&mut self.due, &mut self.held] {
            while let Some((_, next_hop)) = set.first().copied().filter(|(due, _)| *due <= now) {
                set.pop_first();
                self.stale.push(next_hop);
            }
        }
        let mut stale = std::mem::take(&mut self.stale);
        for next_hop in stale.drain(..) {
            if next_hop.recursive && next_hop.exclude.is_none() {
                self.notify_prefixes(next_hop, &depends, per_prefix);
            }
            let Some(entry) = self.entries.get_mut(&next_hop) else { continue };
            let state = match (state(entry.node), next_hop.exclude) {
                (Reachability::Reachable { cost, partial }, Some(own))
                    if depends(entry.node).contains(&own) =>
                {
                    Reachability::ReachableAlone { cost, partial }
                }
                (state, _) => state,
            };
            let bad = state == Reachability::Unreachable;
            // Prefixes of plain next hops were computed a moment ago. A path's own prefix does not
            // count, because BGP needs the notification to choose.
            let depends_on = |entry: &Entry| match next_hop.exclude {
                None => entry.depends.len(),
                Some(own) => depends(entry.node).iter().filter(|prefix| **prefix != own).count(),
            };
            let before = entry.notified;
            let notified = match before {
                Some(notified) if notified == state => {
                    // The pending notification is obsolete.
                    entry.settle(next_hop, &mut self.due, &mut self.held);
                    notified
                }
                // The last notification was better, so this is a loss.
                Some(notified) if self.damping && bad && entry.holds(now, depends_on) => {
                    self.held.extend(entry.held.map(|until| (until, next_hop)));
                    notified
                }
                Some(notified) if self.damping && !bad && entry.delays(next_hop, now) => {
                    let is_new = entry.due.is_some_and(|due| self.due.insert((due, next_hop)));
                    // The log reports only growing delays, because a next hop may flap often
                    // between notifications.
                    if is_new && std::mem::replace(&mut entry.noted, entry.delay) != entry.delay {
                        delayed.push((next_hop, entry.delay));
                    }
                    notified
                }
                _ => {
                    entry.settle(next_hop, &mut self.due, &mut self.held);
                    entry.change(now, state);
                    state
                }
            };
            if std::mem::take(&mut entry.unanswered) || before != Some(notified) {
                entry.notified = Some(notified);
                out.push((next_hop, notified));
            }
        }
        self.stale = stale;
    }

    /// Reports new prefixes on which the answer depends, so that their paths register by prefix.
    fn notify_prefixes(
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

    /// All registered next hops, in any order; `resolution` gives a target's answer.
    pub(crate) fn iter<'a>(
        &'a self,
        resolution: impl Fn(u32) -> &'a Resolution + 'a,
    ) -> impl Iterator<Item = TrackedInfo> + 'a {
        self.entries.iter().map(move |(next_hop, entry)| TrackedInfo {
            next_hop: *next_hop,
            outcome: resolution(entry.node).outcome.clone(),
            via: resolution(entry.node).via,
            notified: entry.notified,
            changes: entry.changes,
            changed_at: Some(entry.changed_at).filter(|_| entry.changes > 0),
            delayed_until: entry.due,
        })
    }

    /// The number of delayed notifications.
    pub(crate) fn delayed(&self) -> usize {
        self.due.len()
    }
}

impl Entry {
    /// Whether a loss must wait, until `held`. `depends_on` counts the BGP routes on the next hop's
    /// chain.
    fn holds(&mut self, now: u64, depends_on: impl Fn(&Entry) -> usize) -> bool {
        let until = match self.held {
            Some(until) => until,
            None => now + HOLD_MS * depends_on(self).min(MAX_HOLDS) as u64,
        };
        self.held = Some(until);
        now < until
    }

    /// Whether a reachable answer must wait, until `due`.
    fn delays(&mut self, next_hop: TrackedNextHop, now: u64) -> bool {
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
        self.due = Some(now + self.delay + spread(next_hop, self.delay));
        true
    }

    /// Cancels a delayed or held notification.
    fn settle(
        &mut self,
        next_hop: TrackedNextHop,
        due: &mut BTreeSet<(u64, TrackedNextHop)>,
        held: &mut BTreeSet<(u64, TrackedNextHop)>,
    ) {
        self.due.take().inspect(|at| {
            due.remove(&(*at, next_hop));
        });
        self.held.take().inspect(|at| {
            held.remove(&(*at, next_hop));
        });
    }

    /// Counts a notification of `state`.
    fn change(&mut self, now: u64, state: Reachability) {
        if self.notified.is_some_and(|notified| notified != state) {
            if now.saturating_sub(self.changed_at) > QUIET_MS + self.delay {
                (self.changes, self.delay, self.noted) = (0, 0, 0);
            }
            self.changes += 1;
            self.changed_at = now;
        }
    }
}

/// The part of a delay that differs by next hop: less than an eighth. Next hops whose answers depend
/// on each other's would otherwise come back all at once, each time, and never find a state that is
/// stable (RFC 4264).
fn spread(next_hop: TrackedNextHop, delay: u64) -> u64 {
    // Its keys are fixed: a history has the same delays in each run.
    let mut hasher = DefaultHasher::new();
    next_hop.hash(&mut hasher);
    hasher.finish() % 64 * delay / (64 * 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ReceivedHop, Track};

    const GOOD: Reachability = Reachability::Reachable { cost: 0, partial: false };
    const BAD: Reachability = Reachability::Unreachable;

    fn next_hop() -> TrackedNextHop {
        TrackedNextHop { address: "192.0.2.1".parse().unwrap(), recursive: true, exclude: None }
    }

    /// Sets the target's answer to `state` at `now`; returns the notifications.
    fn resolution(tracking: &mut Tracking, now: u64, state: Reachability) -> Vec<Reachability> {
        let gateway = ReceivedHop::gateway(next_hop().address);
        tracking.resolved(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
        let mut out = Vec::new();
        tracking.notify(now, |_| state, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        out.into_iter().map(|(_, state)| state).collect()
    }

    #[test]
    fn registration_is_answered_each_time() {
        let mut tracking = Tracking::new(true);
        for _ in 0..3 {
            tracking.register(next_hop(), 1);
            assert_eq!(resolution(&mut tracking, 0, GOOD), [GOOD]);
        }
        assert_eq!(resolution(&mut tracking, 0, GOOD), []);
        assert_eq!([1, 2, 3].map(|_| tracking.unregister(next_hop())), [Some(1); 3]);
        assert_eq!((tracking.unregister(next_hop()), resolution(&mut tracking, 0, BAD)), (None, vec![]));
    }

    #[test]
    fn link_local_next_hop_of_each_link_is_answered_by_itself() {
        let mut tracking = Tracking::new(true);
        let on = |zone| TrackedNextHop {
            address: with_zone("fe80::1".parse().unwrap(), zone).into(),
            recursive: false,
            exclude: None,
        };
        (4..6).for_each(|zone| tracking.register(on(zone), zone));
        let target = Target::of_path(on(5));
        assert_eq!((target.gateway, target.interface), ("fe80::1".parse().ok(), Some(5)));
        tracking.notify(0, |_| GOOD, |_| Vec::new(), &mut Vec::new(), &mut Vec::new(), &mut Vec::new());
        tracking.resolved(&target);
        let mut out = Vec::new();
        tracking.notify(1, |_| BAD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        assert_eq!(out, [(on(5), BAD)]);
    }

    #[test]
    fn flapping_next_hop_is_told_bad_news_at_once_and_good_news_ever_later() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let mut notified_at = Vec::new();
        // The answer changes each millisecond, for five minutes.
        for now in 0..300_000u64 {
            let state = if now % 2 == 0 { GOOD } else { BAD };
            if !resolution(&mut tracking, now, state).is_empty() {
                notified_at.push(now);
            }
        }
        // After the first answer and four changes, each reachable answer is lost before it is due.
        // BGP sees no change until the count restarts: at most six changes in 74 s.
        assert_eq!(notified_at[..5], [0, 1, 2, 3, 4]);
        let most = |span: u64| {
            notified_at
                .iter()
                .map(|at| notified_at.iter().filter(|t| (*at..at + span).contains(*t)).count())
                .max()
        };
        assert!(most(QUIET_MS + LAST_DELAY_MS) <= Some(6), "{notified_at:?}");
        let last = notified_at[notified_at.len() - 1];
        assert!(last > 180_000, "delayed, not silenced: {notified_at:?}");
    }

    #[test]
    fn answer_that_depends_on_the_notified_state_changes_at_the_bounded_rate() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let (mut notified, mut notified_at) = (BAD, Vec::new());
        // The next hop is lost when BGP uses it, and is back when BGP does not.
        for now in 0..600_000u64 {
            let state = if notified == BAD { GOOD } else { BAD };
            if let [state] = resolution(&mut tracking, now, state)[..] {
                notified = state;
                notified_at.push(now);
            }
        }
        // The first answer is not reported as a change.
        let changes = |within: u64| notified_at.iter().filter(|at| **at < within).count() as u64 - 1;
        for seconds in 1..64u64 {
            assert!(
                changes(seconds * 1000) <= 5 + 2 * u64::from((seconds + 1).ilog2()),
                "{seconds} s: {notified_at:?}"
            );
        }
        for at in (127_000..599_000).step_by(1000) {
            assert!(changes(at + 64_000) - changes(at) <= 2, "{at}: {notified_at:?}");
        }
        assert!(changes(600_000) > 20, "it is never silenced: {notified_at:?}");
    }

    /// As [`resolution`], of a next hop that resolved through a route of BGP's.
    fn answer_through_bgp(tracking: &mut Tracking, now: u64, state: Reachability) -> Vec<Reachability> {
        let gateway = ReceivedHop::gateway(next_hop().address);
        tracking.resolved(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
        let (mut out, through) = (Vec::new(), vec!["0.0.0.0/0".parse().unwrap()]);
        tracking.notify(now, |_| state, |_| through.clone(), &mut out, &mut Vec::new(), &mut Vec::new());
        out.into_iter().map(|(_, state)| state).collect()
    }

    #[test]
    fn bad_news_through_a_route_of_bgp_is_held_until_bgp_has_chosen_or_the_hold_ends() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        assert_eq!(answer_through_bgp(&mut tracking, 0, GOOD), [GOOD]);
        // BGP chooses another path of the route in time: no notification.
        assert_eq!(answer_through_bgp(&mut tracking, 1, BAD), []);
        assert_eq!(tracking.next_due(), Some(1 + HOLD_MS));
        assert_eq!(answer_through_bgp(&mut tracking, 2, GOOD), []);
        assert_eq!((tracking.next_due(), tracking.delayed()), (None, 0));
        // BGP has no other path.
        assert_eq!(answer_through_bgp(&mut tracking, 3, BAD), []);
        let mut out = Vec::new();
        let mut notified = |now| {
            tracking.notify(now, |_| BAD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
            out.len()
        };
        assert_eq!((notified(2 + HOLD_MS), notified(3 + HOLD_MS)), (0, 1));
        assert_eq!(tracking.next_due(), None);
    }

    #[test]
    fn bad_news_is_held_longer_the_more_routes_of_bgp_lie_under_it() {
        let through: Vec<AnyPrefix> = (0..9).map(|n| format!("10.{n}.0.0/16").parse().unwrap()).collect();
        for (routes, held) in [(0, 0), (1, HOLD_MS), (2, 2 * HOLD_MS), (5, 5 * HOLD_MS), (9, 5 * HOLD_MS)] {
            let mut tracking = Tracking::new(true);
            tracking.register(next_hop(), 1);
            resolution(&mut tracking, 0, GOOD);
            let gateway = ReceivedHop::gateway(next_hop().address);
            tracking.resolved(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
            let (mut out, depends) = (Vec::new(), |_| through[..routes].to_vec());
            tracking.notify(100, |_| BAD, depends, &mut out, &mut Vec::new(), &mut Vec::new());
            assert_eq!(tracking.next_due(), (held > 0).then_some(100 + held), "{routes} routes");
            assert_eq!(out.is_empty(), held > 0);
        }
    }

    #[test]
    fn bad_news_between_two_costs_is_held_no_longer_than_once() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let mut notified_at = Vec::new();
        for now in 0..1000u64 {
            let state =
                if now % 2 == 0 { Reachability::Reachable { cost: now as u32, partial: false } } else { BAD };
            if answer_through_bgp(&mut tracking, now, state) == [BAD] {
                notified_at.push(now);
            }
        }
        // Good news is delayed after the first changes. The hold that begins then is not renewed by what BGP does not hear.
        let last_good = 2 * u64::from(FREE_CHANGES);
        assert_eq!(notified_at, [last_good + 1 + HOLD_MS]);
    }

    #[test]
    fn flapping_next_hop_is_reported_once_for_each_delay() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        let mut reported = Vec::new();
        let gateway = ReceivedHop::gateway(next_hop().address);
        for now in 0..10_000u64 {
            tracking.resolved(&Target::tracking(Track::Address(gateway.gateway.unwrap()), None));
            let state = if now % 2 == 0 { GOOD } else { BAD };
            tracking.notify(now, |_| state, |_| Vec::new(), &mut Vec::new(), &mut Vec::new(), &mut reported);
        }
        let delays: Vec<u64> = reported.into_iter().map(|(_, delay)| delay).collect();
        assert_eq!(delays, [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]);
    }

    #[test]
    fn delays_of_different_next_hops_differ_by_less_than_an_eighth() {
        let address = |n: u8| TrackedNextHop { address: [192, 0, 2, n].into(), ..next_hop() };
        let spreads: BTreeSet<u64> = (0..100).map(|n| spread(address(n), LAST_DELAY_MS)).collect();
        assert!(spreads.len() > 30 && *spreads.last().unwrap() < LAST_DELAY_MS / 8, "{spreads:?}");
        assert_eq!(spread(next_hop(), LAST_DELAY_MS), spread(next_hop(), LAST_DELAY_MS));
        // A next hop that waits is not taken for one that is stable.
        const { assert!(LAST_DELAY_MS / 8 < QUIET_MS) };
    }

    #[test]
    fn delayed_next_hop_ends_with_the_truth_and_forgets_after_a_quiet_time() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        for (now, state) in [(0, GOOD), (1, BAD), (2, GOOD), (3, BAD), (4, GOOD), (5, BAD)] {
            assert_eq!(resolution(&mut tracking, now, state), [state]);
        }
        assert_eq!(resolution(&mut tracking, 6, GOOD), []);
        let due = 6 + FIRST_DELAY_MS + spread(next_hop(), FIRST_DELAY_MS);
        assert_eq!((tracking.next_due(), tracking.delayed()), (Some(due), 1));
        // A shard that registers it meanwhile hears what the others have heard.
        tracking.register(next_hop(), 1);
        assert_eq!(resolution(&mut tracking, 7, GOOD), [BAD]);
        let mut out = Vec::new();
        tracking.notify(due - 1, |_| GOOD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        assert_eq!(out, []);
        tracking.notify(due, |_| GOOD, |_| Vec::new(), &mut out, &mut Vec::new(), &mut Vec::new());
        assert_eq!((out.len(), tracking.next_due(), tracking.delayed()), (1, None, 0));
        let quiet = due + QUIET_MS + FIRST_DELAY_MS + 1;
        assert_eq!(resolution(&mut tracking, quiet, BAD), [BAD]);
        assert_eq!(resolution(&mut tracking, quiet + 1, GOOD), [GOOD]);
    }

    #[test]
    fn bad_news_while_good_news_is_delayed_leaves_nothing_to_notify() {
        let mut tracking = Tracking::new(true);
        tracking.register(next_hop(), 1);
        for now in 0..6 {
            resolution(&mut tracking, now, if now % 2 == 0 { GOOD } else { BAD });
        }
        assert_eq!(resolution(&mut tracking, 6, GOOD), []);
        assert_eq!(resolution(&mut tracking, 7, BAD), []);
        assert_eq!(tracking.next_due(), None);
    }
}
