//! What people and the management API may ask of a shard. Answers are copies; a page is bounded by its limit and
//! by one logical shard's table.

use super::paths::Route;
use super::{Core, Shard, View};
use crate::attr::AttrSet;
use crate::decision::{self, Reason};
use crate::peer::{PeerId, PeerInfo};
use ribtide_prefix::{Families, Family, LOGICAL_SHARDS, LogicalShard, Prefix, logical_shard};
use std::net::IpAddr;
use std::sync::Arc;

/// A path and its standing.
#[derive(Clone, Debug)]
pub struct PathView {
    /// Its attributes.
    pub attrs: AttrSet,
    /// Who sent it.
    pub peer: Arc<PeerInfo>,
    /// Whether it is the best path in force.
    pub best: bool,
    /// By which rule it lost; `None` for the best path, and for one that is about to become it because a next
    /// hop or session has just changed.
    pub lost: Option<Reason>,
    /// Interior cost to its next hop, or why it cannot be used.
    pub cost: Result<u32, Reason>,
}

/// A prefix and its paths.
#[derive(Clone, Debug)]
pub struct RouteView<F: Family> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// The best path first, the others from the oldest to the newest.
    pub paths: Vec<PathView>,
}

/// How many paths of one peer and family a shard has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounts {
    /// Paths accepted.
    pub paths: u32,
    /// Of these, best paths.
    pub best: u32,
}

/// What a shard holds. Numbers of several shards add up, but for attribute sets and next hops, which more than one
/// may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// IPv4 prefixes.
    pub ipv4_prefixes: usize,
    /// IPv6 prefixes.
    pub ipv6_prefixes: usize,
    /// IPv4 paths.
    pub ipv4_paths: usize,
    /// IPv6 paths.
    pub ipv6_paths: usize,
    /// Attribute sets in use.
    pub attribute_sets: usize,
    /// Next hops in use.
    pub next_hops: usize,
    /// Routes that came after the end of their session and were not taken in.
    pub late: u64,
    /// Bytes of memory: tables, paths and attribute sets.
    pub memory: usize,
}

impl Shard {
    /// All paths of exactly this prefix.
    pub fn lookup<F: Family>(&self, prefix: Prefix<F>) -> Option<RouteView<F>> {
        let table = &self.tables.get::<F>()[usize::from(logical_shard(prefix))];
        table.get(&prefix).map(|route| self.core.view(prefix, route))
    }

    /// The most specific prefix of this shard that holds `addr`. Another shard may have a longer one.
    pub fn longest_match<F: Family>(&self, addr: IpAddr) -> Option<Prefix<F>> {
        let host = Prefix::<F>::host(addr)?;
        let tables = self.tables.get::<F>();
        (0..=F::WIDTH)
            .rev()
            .map(|len| host.truncate(len))
            .find(|prefix| tables[usize::from(logical_shard(*prefix))].contains_key(prefix))
    }

    /// The prefixes of one logical shard, in no order.
    pub fn prefixes<F: Family>(&self, shard: LogicalShard) -> Vec<Prefix<F>> {
        self.tables.get::<F>()[usize::from(shard % LOGICAL_SHARDS)].keys().copied().collect()
    }

    /// How many prefixes of a family each logical shard has.
    pub fn loads<F: Family>(&self) -> impl Iterator<Item = (LogicalShard, usize)> + '_ {
        self.tables.get::<F>().iter().enumerate().map(|(shard, table)| (shard as LogicalShard, table.len()))
    }

    /// What a peer contributes: zero for one that is not known.
    pub fn peer_counts<F: Family>(&self, peer: PeerId) -> PeerCounts {
        self.core.peer(peer).map_or_else(PeerCounts::default, |peer| *peer.counts.get::<F>())
    }

    /// Totals.
    pub fn counts(&self) -> Counts {
        let Core { peers, attrs, paths, late, .. } = &self.core;
        let (mut ipv4_paths, mut ipv6_paths) = (0, 0);
        for peer in peers.iter().flatten() {
            let Families { v4, v6 } = &peer.counts;
            ipv4_paths += v4.paths as usize;
            ipv6_paths += v6.paths as usize;
        }
        let tables = self.tables.v4.iter().map(|table| table.allocation_size()).sum::<usize>()
            + self.tables.v6.iter().map(|table| table.allocation_size()).sum::<usize>();
        Counts {
            ipv4_prefixes: self.tables.v4.iter().map(|table| table.len()).sum(),
            ipv6_prefixes: self.tables.v6.iter().map(|table| table.len()).sum(),
            ipv4_paths,
            ipv6_paths,
            attribute_sets: attrs.len(),
            next_hops: attrs.hops.in_use(),
            late: *late,
            memory: tables + attrs.memory() + paths.memory(),
        }
    }
}

impl Core {
    fn view<F: Family>(&self, prefix: Prefix<F>, route: &Route) -> RouteView<F> {
        let paths = self.paths.paths(route);
        let lost = decision::explain(&View { core: self, paths }, &self.options);
        let mut views: Vec<PathView> = paths
            .iter()
            .zip(lost)
            .enumerate()
            .map(|(index, (path, lost))| PathView {
                best: route.best() == Some(index),
                attrs: self.attrs.get(path.attrs).clone(),
                peer: self.peer_of(*path).info.clone(),
                lost,
                cost: self.candidate(*path).cost,
            })
            .collect();
        if let Some(best) = route.best() {
            views[..=best].rotate_right(1);
        }
        RouteView { prefix, paths: views }
    }
}
