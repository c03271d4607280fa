//! The resolution cache: three modes that resolve the next hops of a route, with one result.
//!
//! - `off` is the baseline: each touched route resolves its received set again, hop by hop.
//! - `epoch` is the cache that was proposed for zebra. A received group keeps its result with a
//!   generation. Any event that next hops may depend on begins a new generation. The first touched
//!   route of a group resolves it again; the other routes take that result.
//! - `dependency`: an event marks only the groups that depend on it, and each of them is resolved
//!   once.
//!
//! All modes track next hops in the same way ([`crate::resolver`]), as zebra does. A route is
//! touched when its candidates change. In the first two modes, a changed next hop touches it too.
//! Tracking, and not the generation, keeps routes off stale next hops; see
//! `docs/adr/0009-next-hop-resolution-cache.md`.
//! `docs/adr/0009-next-hop-resolution-cache.md`.

use crate::group::Group;
use crate::message::FibGroup;
use crate::resolver::{GroupStatus, LookupResult, Resolver};
use crate::table::RouteTables;
use crate::target::{Outcome, Target, UnresolvedReason};
use ribtide_prefix::for_each_family;
use std::fmt;
use std::str::FromStr;

/// The mode of the resolution cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// No cache: each route resolves its next hops itself.
    Off,
    /// Groups keep their result until any event outdates all of them.
    Epoch,
    /// An event outdates only the groups that depend on it.
    #[default]
    Dependency,
}

impl CacheMode {
    /// All modes.
    pub const ALL: [CacheMode; 3] = [CacheMode::Off, CacheMode::Epoch, CacheMode::Dependency];

    /// The name in configuration, commands and output.
    pub fn name(self) -> &'static str {
        match self {
            CacheMode::Off => "off",
            CacheMode::Epoch => "epoch",
            CacheMode::Dependency => "dependency",
        }
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheMode {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheMode, String> {
        CacheMode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            format!("\"{text}\" is no mode of the next-hop cache; write \"dependency\", \"epoch\" or \"off\"")
        })
    }
}

/// Counters of the cache since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Number of generations that began.
    pub generation: u64,
    /// Routes that took the cached result of their group.
    pub hits: u64,
    /// Routes whose received set had to be resolved first.
    pub misses: u64,
    /// Resolutions of a received set with all of its hops.
    pub resolutions: u64,
    /// Next hops that were looked up, for routes, groups or registrations of BGP.
    pub lookups: u64,
    /// Groups whose cached result an event outdated.
    pub invalidations: u64,
    /// Time spent on resolution, in nanoseconds; 0 without a clock ([`crate::Rib::set_clock`]).
    pub nanoseconds: u64,
}

/// The cache's state, without the results, which each group holds.
#[derive(Default)]
pub(crate) struct Cache {
    mode: CacheMode,
    pub(crate) counters: CacheCounters,
    pub(crate) clock: Option<fn() -> u64>,
}

impl Cache {
    pub(crate) fn new(mode: CacheMode) -> Cache {
        let counters = CacheCounters { generation: 1, ..CacheCounters::default() };
        Cache { mode, counters, clock: None }
    }

    pub(crate) fn mode(&self) -> CacheMode {
        self.mode
    }

    /// Whether routes are resolved one by one, with or without a cache, and not just groups.
    pub(crate) fn is_per_route(&self) -> bool {
        self.mode != CacheMode::Dependency
    }

    /// Counts a group that an event marked as outdated.
    pub(crate) fn count_marked(&mut self) {
        if self.mode == CacheMode::Dependency {
            self.counters.invalidations += 1;
        }
    }

    fn now(&self) -> u64 {
        self.clock.map_or(0, |clock| clock())
    }
}

impl Resolver {
    pub(crate) fn set_cache_mode(&mut self, mode: CacheMode) {
        self.cache.mode = mode;
        // Results of another mode are right, but have no generation.
        self.invalidate();
    }

    /// Begins a new generation, after an event that next hops may depend on.
    pub(crate) fn invalidate(&mut self) {
        self.cache.counters.generation += 1;
        if self.cache.mode == CacheMode::Epoch {
            self.cache.counters.invalidations += self.groups.store.len() as u64;
        }
    }

    /// The resolution step of a batch: resolves the marked next hops and everything that depends on
    /// them. Marks the routes that must be selected again.
    pub(crate) fn resolve_batch(&mut self, tables: &mut RouteTables) {
        let begin = self.cache.now();
        self.resolve(tables);
        if self.any_reselects_routes() {
            if self.cache.is_per_route() {
                for_each_family!(F => tables.get_mut::<F>().mark_users(|group| self.reselects_routes(group)));
            } else {
                for_each_family!(F => tables.get_mut::<F>().wake(self.reselected()));
            }
        }
        let mut left = self.config.turn;
        for_each_family!(F => left -= tables.get_mut::<F>().scan(self, left));
        let tables = &*tables;
        if self.cache.is_per_route() {
            for_each_family!(F => for group in tables.get::<F>().marked_groups() {
                self.resolve_for_route(tables, group);
            });
        } else {
            let (routes, misses) = (tables.v4.marked() + tables.v6.marked(), self.fresh_groups());
            self.cache.counters.misses += misses;
            self.cache.counters.hits += (routes as u64).saturating_sub(misses);
        }
        self.cache.counters.nanoseconds += self.cache.now() - begin;
    }

    /// Resolves the group of a touched route, unless its cached result is current.
    fn resolve_for_route(&mut self, tables: &RouteTables, id: u32) {
        let generation = self.cache.counters.generation;
        let group = &mut self.groups.store[id];
        // A route that could resolve through itself is resolved each time, as in the proposal for
        // zebra.
        if self.cache.mode == CacheMode::Epoch && group.key.exclude.is_none() {
            if group.stamp == generation {
                self.cache.counters.hits += 1;
                return;
            }
            group.stamp = generation;
        }
        self.cache.counters.misses += 1;
        let content = self.resolve_uncached(tables, id);
        self.put_content(id, content);
    }

    /// Resolves a received set from the table alone, hop by hop.
    fn resolve_uncached(&mut self, tables: &RouteTables, id: u32) -> Option<FibGroup> {
        // zebra keeps this copy in each route; it costs little beside the look-ups.
        let key = self.groups.store[id].key.clone();
        let mut outcomes = Vec::with_capacity(key.hops().len());
        for (at, target) in key.targets().enumerate() {
            let Group { targets, dropped, .. } = &self.groups.store[id];
            let node = targets[at];
            outcomes.push(match &self.nodes[node] {
                _ if dropped.contains(&node) => Outcome::Unresolved(UnresolvedReason::Circle),
                // An answer that was found in a circle depends on more than one look-up.
                found if found.circular => found.resolution.outcome.clone(),
                _ => self.lookup_uncached(tables, target),
            });
        }
        key.content(outcomes.iter(), self.config.max_ecmp)
    }

    /// Looks up a target and stores nothing. Tracking has already resolved the groups on its walk.
    fn lookup_uncached(&mut self, tables: &RouteTables, target: Target) -> Outcome {
        match self.lookup(tables, target, |_, _| GroupStatus::Settled) {
            LookupResult::Resolution(resolution) => resolution.outcome,
            LookupResult::Blocked(_) => Outcome::Unresolved(UnresolvedReason::Circle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_go_by_their_names() {
        for mode in CacheMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("on".parse::<CacheMode>().unwrap_err().contains("\"epoch\""));
    }
}
