//! Route watches: what shards report of them, put together.
//!
//! The session thread gives each watch its number and knows what it is for. A watch that another
//! configuration still has keeps its number and its state, so that a reload changes nothing about it.

use super::Sessions;
use crate::reader::Command;
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::watch::{Presence, Suppression, Watch, WatchId, WatchNews, WatchSet, WatchedRoutes};
use ribtide_policy::{Named, PrefixSet};
use ribtide_prefix::AnyPrefix;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reader that hands watches to shards: that of originated routes, in one order with them.
const READER: usize = 0;

/// What a watch is for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Purpose {
    /// The contributors of an aggregate.
    Contributors(AnyPrefix),
    /// The route for the prefix of an aggregate, before which its contributors stay advertised.
    Aggregate(AnyPrefix),
    /// What export policies and default routes depend on: routes in this set.
    Routes(Arc<Named<PrefixSet>>),
}

/// A watch that is wanted.
pub(super) struct Wanted {
    pub(super) purpose: Purpose,
    pub(super) routes: WatchedRoutes,
    pub(super) suppression: Option<Suppression>,
}

/// The watches of a router.
#[derive(Default)]
pub(super) struct Watches {
    last_id: u32,
    generation: u32,
    entries: Vec<Entry>,
    /// Whether a neighbour may get what an aggregate suppresses.
    unsuppresses: bool,
    /// Shards that got the present set, once their reader reported it.
    informed: Option<usize>,
    /// Shards that have looked at all of their routes for it.
    complete: usize,
    /// What workers know.
    sent: Arc<ribtide_bgp::presence::Presence>,
}

struct Entry {
    id: WatchId,
    wanted: Wanted,
    /// The shards with members.
    shards: BTreeMap<u32, Presence>,
    /// Whether every shard has looked at all of its routes for it.
    is_known: bool,
}

impl Entry {
    fn presence(&self) -> Presence {
        self.shards.values().copied().max().flatten()
    }
}

impl Watches {
    /// Replaces the watches. Returns the set for shards, if it is another one.
    fn set(&mut self, wanted: Vec<Wanted>, unsuppresses: bool) -> Option<Arc<WatchSet>> {
        let mut former = std::mem::take(&mut self.entries);
        let mut other = former.len() != wanted.len() || self.unsuppresses != unsuppresses;
        self.unsuppresses = unsuppresses;
        for wanted in wanted {
            let same = |entry: &Entry| {
                (&entry.wanted.purpose, &entry.wanted.routes) == (&wanted.purpose, &wanted.routes)
            };
            let entry = match former.iter().position(same) {
                Some(at) => {
                    let entry = former.swap_remove(at);
                    other |= entry.wanted.suppression != wanted.suppression;
                    Entry { wanted, ..entry }
                }
                None => {
                    other = true;
                    self.last_id += 1;
                    let id = WatchId(self.last_id);
                    Entry { id, wanted, shards: BTreeMap::new(), is_known: false }
                }
            };
            self.entries.push(entry);
        }
        if !other {
            return None;
        }
        self.generation += 1;
        (self.informed, self.complete) = (None, 0);
        let watch = |Entry { id, wanted, .. }: &Entry| {
            let Wanted { routes, suppression, .. } = wanted;
            Watch { id: *id, routes: routes.clone(), suppression: suppression.clone() }
        };
        let watches = self.entries.iter().map(watch).collect();
        Some(Arc::new(WatchSet { generation: self.generation, unsuppresses, watches }))
    }

    /// Takes the news of a shard. Returns what changed.
    fn take(&mut self, shard: u32, news: WatchNews) -> Vec<(Purpose, Presence)> {
        let mut changed = Vec::new();
        for (id, presence) in news.changed {
            let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) else { continue };
            let before = entry.presence();
            match presence {
                Some(_) => entry.shards.insert(shard, presence),
                None => entry.shards.remove(&shard),
            };
            let after = entry.presence();
            if before != after {
                changed.push((entry.wanted.purpose.clone(), after));
            }
        }
        self.complete += usize::from(news.complete == Some(self.generation));
        self.learn();
        changed
    }

    /// Notes that all watches are known, if all shards have looked at all of their routes.
    fn learn(&mut self) {
        if self.informed.is_some_and(|informed| self.complete >= informed) {
            self.entries.iter_mut().for_each(|entry| entry.is_known = true);
        }
    }

    /// What is known of the routes that export depends on.
    fn presence(&self) -> ribtide_bgp::presence::Presence {
        let known = self.entries.iter().filter(|entry| entry.is_known || entry.presence().is_some());
        let of_set = |entry: &Entry| match &entry.wanted.purpose {
            Purpose::Routes(set) => Some((set.clone(), entry.presence().is_some())),
            _ => None,
        };
        ribtide_bgp::presence::Presence::new(known.filter_map(of_set).collect())
    }

    /// The number and the state of a watch.
    pub(super) fn of(&self, purpose: &Purpose) -> Option<(WatchId, Presence)> {
        let entry = self.entries.iter().find(|entry| entry.wanted.purpose == *purpose)?;
        Some((entry.id, entry.presence()))
    }
}

impl Sessions {
    /// Watches what the configuration needs.
    pub(super) fn watch_routes(&mut self) {
        let mut wanted = self.watched_for_aggregates();
        let mut sets: Vec<Arc<Named<PrefixSet>>> = Vec::new();
        let of_peers = self.peers.values().map(|peer| &peer.settings);
        let mut unsuppresses = false;
        for settings in of_peers.chain(self.ranges.iter().map(|range| &range.settings)) {
            unsuppresses |= settings.unsuppress.is_some();
            let of_default =
                settings.default_originate.as_ref().and_then(|default| default.condition.clone());
            for set in settings.export.presence_sets().into_iter().chain(of_default) {
                if !sets.contains(&set) {
                    sets.push(set);
                }
            }
        }
        wanted.extend(sets.into_iter().map(|set| Wanted {
            purpose: Purpose::Routes(set.clone()),
            routes: WatchedRoutes::In(set, None),
            suppression: None,
        }));
        // Without an aggregate that suppresses there is nothing to mark.
        let unsuppresses = unsuppresses && wanted.iter().any(|wanted| wanted.suppression.is_some());
        if let Some(set) = self.watches.set(wanted, unsuppresses) {
            self.outbox.send_to_reader(READER, Command::Watch(set));
        }
        self.send_presence();
    }

    /// Informs the workers of the presence of routes, if it is another.
    fn send_presence(&mut self) {
        let presence = self.watches.presence();
        if presence == *self.watches.sent {
            return;
        }
        self.watches.sent = Arc::new(presence);
        for worker in 0..self.outbox.workers() {
            let presence = self.watches.sent.clone();
            self.outbox.send_to_worker(worker, EgressIn::Presence(presence));
        }
    }

    /// Informs a new worker of the presence of routes.
    pub(super) fn send_presence_to(&mut self, worker: usize) {
        let presence = self.watches.sent.clone();
        self.outbox.send_to_worker(worker, EgressIn::Presence(presence));
    }

    /// A reader has handed a set of watches to so many shards.
    pub(super) fn watching(&mut self, generation: u32, shards: usize) {
        if generation == self.watches.generation {
            self.watches.informed = Some(shards);
            self.watches.learn();
            self.send_presence();
        }
    }

    /// A shard has news of its watches.
    pub(super) fn watched(&mut self, shard: u32, news: WatchNews) {
        for (purpose, presence) in self.watches.take(shard, news) {
            match purpose {
                Purpose::Contributors(prefix) => self.contributors_changed(prefix, presence),
                Purpose::Aggregate(prefix) => self.aggregate_advertised(prefix, presence.is_some()),
                Purpose::Routes(_) => {}
            }
        }
        self.send_presence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::attribute::Origin;

    fn wanted(prefix: &str, advertised: bool) -> Wanted {
        let prefix = prefix.parse().unwrap();
        Wanted {
            purpose: Purpose::Contributors(prefix),
            routes: WatchedRoutes::MoreSpecific(prefix),
            suppression: Some(Suppression { policy: None, advertised }),
        }
    }

    fn news(id: WatchId, presence: Presence) -> WatchNews {
        WatchNews { changed: vec![(id, presence)], complete: None }
    }

    #[test]
    fn watches_that_stay_keep_number_and_state() {
        let mut watches = Watches::default();
        let set =
            watches.set(vec![wanted("10.0.0.0/8", false), wanted("2001:db8::/32", false)], false).unwrap();
        let [one, two] = [0, 1].map(|at: usize| set.watches[at].id);
        assert_eq!(watches.take(7, news(one, Some(Origin::Igp))).len(), 1);
        assert!(
            watches.set(vec![wanted("10.0.0.0/8", false), wanted("2001:db8::/32", false)], false).is_none()
        );
        let set =
            watches.set(vec![wanted("192.0.2.0/24", false), wanted("10.0.0.0/8", true)], false).unwrap();
        let ids: Vec<WatchId> = set.watches.iter().map(|watch| watch.id).collect();
        assert!(ids[1] == one && ids[0] != two, "numbers are never used twice");
        let prefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!(watches.of(&Purpose::Contributors(prefix)), Some((one, Some(Origin::Igp))));
        assert!(watches.take(7, news(two, Some(Origin::Igp))).is_empty(), "of a watch that is no more");
    }

    #[test]
    fn presence_is_the_highest_origin_of_any_shard() {
        let mut watches = Watches::default();
        let set = watches.set(vec![wanted("10.0.0.0/8", false)], false).unwrap();
        let id = set.watches[0].id;
        let mut take = |shard, presence| {
            let changed = watches.take(shard, news(id, presence));
            changed.into_iter().map(|(_, presence)| presence).next()
        };
        assert_eq!(take(1, Some(Origin::Igp)), Some(Some(Origin::Igp)));
        assert_eq!(take(2, Some(Origin::Incomplete)), Some(Some(Origin::Incomplete)));
        assert_eq!(take(3, Some(Origin::Egp)), None);
        assert_eq!(take(1, None), None);
        assert_eq!(take(2, None), Some(Some(Origin::Egp)));
        assert_eq!(take(3, None), Some(None));
    }

    #[test]
    fn all_shards_must_have_looked() {
        let mut watches = Watches::default();
        let set = watches.set(vec![wanted("10.0.0.0/8", false)], false).unwrap();
        let complete = |generation| WatchNews { changed: vec![], complete: Some(generation) };
        watches.take(1, complete(set.generation));
        assert!(!watches.entries[0].is_known, "the number of shards is not known yet");
        watches.informed = Some(2);
        watches.take(2, complete(set.generation - 1));
        assert!(!watches.entries[0].is_known);
        watches.take(2, complete(set.generation));
        assert!(watches.entries[0].is_known);
    }
}
