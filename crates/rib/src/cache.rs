//! The resolution cache: how a route comes by what its next hops resolve to. Three modes, one result.
//!
//! `off` is the baseline: each route that is touched resolves its received set again, hop by hop. `epoch` is the cache
//! proposed for zebra: a received group keeps what it resolved to with the generation of that moment, and any event that
//! next hops may depend on begins another generation and so outdates all of them; the first route of a group that is
//! touched afterwards resolves it, the others take that. `dependency` asks no route anything: an event leads to just the
//! groups that rest on it, and each is put together once.
//!
//! In all of them next hops are tracked the same way ([`crate::resolve`]), as zebra tracks them for protocols that then
//! send their routes again: a route is touched when its candidates changed, or (in the first two modes) when one of its
//! next hops leads elsewhere. That, and not the stamp, is why no route can stay on an old way; see
//! `docs/adr/0009-next-hop-resolution-cache.md`.

use crate::group::Group;
use crate::message::FibGroup;
use crate::resolve::{Asked, Met, Resolver};
use crate::table::RouteTables;
use crate::target::{Outcome, Target, Why};
use ribtide_prefix::for_each_family;
use std::fmt;
use std::str::FromStr;

/// How the resolution cache works.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// There is none: each route resolves its next hops itself.
    Off,
    /// Groups keep what they resolved to until any event outdates all of them.
    Epoch,
    /// An event leads to the groups that depend on it, and no further.
    #[default]
    Dependency,
}

impl CacheMode {
    /// All of them.
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

/// What the cache did since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// How often an event began another generation, and 1.
    pub generation: u64,
    /// Routes that took what their group had resolved to.
    pub hits: u64,
    /// Routes for which a received set had to be resolved first.
    pub misses: u64,
    /// Times that a received set was resolved, all of its hops.
    pub resolutions: u64,
    /// Next hops that were looked up, for routes or groups or because BGP asks.
    pub lookups: u64,
    /// Groups whose cached result an event outdated.
    pub invalidations: u64,
    /// Time spent on resolution, in nanoseconds; 0 without a clock ([`crate::Rib::set_clock`]).
    pub nanoseconds: u64,
}

/// The cache's state beside what each group holds.
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

    /// An event marked a group that depends on it.
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
        // What another mode left is right, but it has no stamp.
        self.invalidate();
    }

    /// Something happened that next hops may depend on: another generation begins.
    pub(crate) fn invalidate(&mut self) {
        self.cache.counters.generation += 1;
        if self.cache.mode == CacheMode::Epoch {
            self.cache.counters.invalidations += self.groups.store.len() as u64;
        }
    }

    /// The resolution step of a batch: next hops that events marked, and all that rests on them. Marks the routes that
    /// must be selected again because of it.
    pub(crate) fn resolve_batch(&mut self, tables: &mut RouteTables) {
        let begin = self.cache.now();
        self.resolve(tables);
        if self.any_wakes_routes() {
            if self.cache.is_per_route() {
                for_each_family!(F => tables.get_mut::<F>().mark_users(|group| self.wakes_routes(group)));
            } else {
                for_each_family!(F => tables.get_mut::<F>().wake(self.waking()));
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

    /// A route that has this group was touched.
    fn resolve_for_route(&mut self, tables: &RouteTables, id: u32) {
        let generation = self.cache.counters.generation;
        let group = &mut self.groups.store[id];
        // A route that could lead to itself is resolved each time, as in the scheme that this mode follows.
        if self.cache.mode == CacheMode::Epoch && group.key.exclude.is_none() {
            if group.stamp == generation {
                self.cache.counters.hits += 1;
                return;
            }
            group.stamp = generation;
        }
        self.cache.counters.misses += 1;
        let content = self.resolve_anew(tables, id);
        self.put_content(id, content);
    }

    /// What a received set resolves to, worked out from the table alone, hop by hop.
    fn resolve_anew(&mut self, tables: &RouteTables, id: u32) -> Option<FibGroup> {
        // The route's own copy: what zebra has in each route, and small beside the look-ups.
        let key = self.groups.store[id].key.clone();
        let mut outcomes = Vec::with_capacity(key.hops().len());
        for (at, target) in key.targets().enumerate() {
            let Group { targets, dropped, .. } = &self.groups.store[id];
            let node = targets[at];
            outcomes.push(match &self.nodes[node] {
                _ if dropped.contains(&node) => Outcome::Unresolved(Why::Circle),
                // What was found in a circle is no function of one look at the table.
                found if found.circular => found.answer.outcome.clone(),
                _ => self.ask_anew(tables, target),
            });
        }
        key.content(outcomes.iter(), self.config.max_ecmp)
    }

    /// Asks the table without remembering anything. The groups of routes that lead to next hops are up to date: tracking
    /// came first.
    fn ask_anew(&mut self, tables: &RouteTables, target: Target) -> Outcome {
        match self.ask(tables, target, |_, _| Met::Known) {
            Asked::Answer(answer) => answer.outcome,
            Asked::Blocked(_) => Outcome::Unresolved(Why::Circle),
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
