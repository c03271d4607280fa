//! Route watches of a run: random sets of them, and what they must come to.

use crate::oracle::Learned;
use ribtide_bgp::peer::{LocalSource, PeerInfo, PeerKind};
use ribtide_bgp::watch::{Presence, Suppression, Watch, WatchId, WatchNews, WatchSet, WatchedRoutes};
use ribtide_policy::{Named, PrefixRange, PrefixSet};
use ribtide_prefix::{AnyPrefix, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The watches of a run, and the news of shards.
#[derive(Default)]
pub(crate) struct Watching {
    set: WatchSet,
    last: u32,
    news: BTreeMap<(usize, WatchId), Presence>,
}

impl Watching {
    /// Another set: some watches stay, and some have another suppression.
    pub(crate) fn change(&mut self, rng: &mut Rng, prefixes: &[AnyPrefix]) -> Arc<WatchSet> {
        self.set.watches.retain(|_| rng.one_in(2));
        for watch in &mut self.set.watches {
            if rng.one_in(3) && matches!(watch.routes, WatchedRoutes::MoreSpecific(_)) {
                watch.suppression = suppression(rng);
            }
        }
        for _ in 0..rng.index(4) {
            let routes = match rng.one_in(3) {
                true => {
                    let some = (0..1 + rng.index(3)).map(|_| PrefixRange::exact(*rng.pick(prefixes)));
                    WatchedRoutes::In(Named::new("some", PrefixSet::new(some.collect::<Vec<_>>())), None)
                }
                false => WatchedRoutes::MoreSpecific(shorter(*rng.pick(prefixes), rng)),
            };
            if self.set.watches.iter().any(|watch| watch.routes == routes) {
                continue;
            }
            self.last += 1;
            let suppression = match routes {
                WatchedRoutes::MoreSpecific(_) => suppression(rng),
                WatchedRoutes::In(..) => None,
            };
            self.set.watches.push(Watch { id: WatchId(self.last), routes, suppression });
        }
        self.set.generation += 1;
        Arc::new(self.set.clone())
    }

    /// Takes the news of a shard.
    pub(crate) fn take(&mut self, shard: usize, news: WatchNews) {
        self.news.extend(news.changed.into_iter().map(|(id, presence)| ((shard, id), presence)));
    }

    /// The advertised prefixes that aggregates suppress.
    pub(crate) fn suppressed(
        &self,
        advertised: &BTreeMap<AnyPrefix, Learned>,
        peers: &[PeerInfo],
    ) -> BTreeSet<AnyPrefix> {
        let suppressing = || self.set.watches.iter().filter(|watch| watch.suppression.is_some());
        let is = |(prefix, path): &(&AnyPrefix, &Learned)| {
            suppressing().any(|watch| is_member(watch, **prefix, peers[path.peer].kind))
        };
        advertised.iter().filter(is).map(|(prefix, _)| *prefix).collect()
    }

    /// Checks the news and the counts of shards against the advertised paths.
    pub(crate) fn compare(
        &self,
        advertised: &BTreeMap<AnyPrefix, Learned>,
        peers: &[PeerInfo],
        counts: &BTreeMap<WatchId, u32>,
    ) {
        for watch in &self.set.watches {
            let members =
                advertised.iter().filter(|(prefix, path)| is_member(watch, **prefix, peers[path.peer].kind));
            let origins: Vec<_> = members.map(|(_, path)| path.with.origin).collect();
            let count = counts.get(&watch.id).copied().unwrap_or(0);
            assert_eq!(count as usize, origins.len(), "members of {watch:?}");
            let news = self.news.iter().filter(|((_, id), _)| *id == watch.id);
            let presence = news.map(|(_, presence)| *presence).max().flatten();
            assert_eq!(presence, origins.into_iter().max(), "presence of {watch:?}");
        }
    }
}

fn suppression(rng: &mut Rng) -> Option<Suppression> {
    rng.one_in(2).then_some(Suppression { policy: None, advertised: true })
}

fn is_member(watch: &Watch, prefix: AnyPrefix, kind: PeerKind) -> bool {
    match &watch.routes {
        WatchedRoutes::MoreSpecific(aggregate) => {
            kind != PeerKind::Local(LocalSource::Aggregate)
                && prefix.afi() == aggregate.afi()
                && prefix.len() > aggregate.len()
                && aggregate.contains(prefix.addr())
        }
        WatchedRoutes::In(set, _) => match prefix {
            AnyPrefix::V4(prefix) => set.set().contains(prefix),
            AnyPrefix::V6(prefix) => set.set().contains(prefix),
        },
    }
}

/// A prefix that covers this one, or it itself.
fn shorter(prefix: AnyPrefix, rng: &mut Rng) -> AnyPrefix {
    let len = rng.index(usize::from(prefix.len()) + 1) as u8;
    match prefix {
        AnyPrefix::V4(prefix) => prefix.truncate(len).any(),
        AnyPrefix::V6(prefix) => prefix.truncate(len).any(),
    }
}
