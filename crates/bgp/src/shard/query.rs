//! What people and the management API may ask of a shard. Answers are copies; a page is bounded by its limit and
//! by one logical shard's table.

use super::paths::Part;
use super::route::{self, Route};
use super::table::Table;
use super::{Core, Shard, Tables};
use crate::attr::AttrSet;
use crate::decision::{self, Candidate, Reason};
use crate::message::FeedSet;
use crate::peer::{PeerId, PeerInfo};
use ribtide_prefix::{
    AnyPrefix, Families, Family, LOGICAL_SHARDS, LogicalShard, Prefix, V4, V6, logical_shard,
};
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
    /// What it does for forwarding beside the best path.
    pub part: Part,
}

/// A prefix and its paths.
#[derive(Clone, Debug)]
pub struct RouteView<F: Family> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// The best path first, the others from the oldest to the newest.
    pub paths: Vec<PathView>,
    /// Whether egress workers know the best one.
    pub standing: Standing,
}

/// What the RIB manager has been given of a prefix, for whoever compares the two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FedView {
    /// The next hops.
    pub set: FeedSet,
    /// Who sent the selected path.
    pub neighbor: IpAddr,
    /// Whether that is the best path: it is not while no path can be used.
    pub best: bool,
    /// Whether egress workers know the best path.
    pub standing: Standing,
}

/// How far the best path of a prefix is told to the egress workers, where they are told only what is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is, if there is one.
    Told,
    /// Dataplanes have not confirmed it yet.
    Waiting {
        /// Whether the former best path stays advertised meanwhile.
        former: bool,
    },
    /// Not as long as the FIB does not have it: the RIB manager knows why.
    Blocked,
}

/// How many paths of one peer and family a shard has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounts {
    /// Paths accepted.
    pub paths: u32,
    /// Of these, best paths.
    pub best: u32,
}

/// What a shard holds of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyCounts {
    /// Prefixes.
    pub prefixes: usize,
    /// Paths.
    pub paths: usize,
    /// Of these, best paths: as many as there are prefixes with a path that can be used.
    pub best: usize,
    /// Paths that cannot be used because their next hop cannot be reached.
    pub hidden: usize,
}

/// What a shard holds. Numbers of several shards add up, but for attribute sets and next hops, which more than one
/// may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Of IPv4.
    pub ipv4: FamilyCounts,
    /// Of IPv6.
    pub ipv6: FamilyCounts,
    /// Attribute sets in use.
    pub attribute_sets: usize,
    /// Next hops in use.
    pub next_hops: usize,
    /// Routes that came after the end of their session and were not taken in. So would be those of a session that comes
    /// up when 65,535 others are.
    pub late: u64,
    /// Prefixes whose best path dataplanes have not confirmed yet.
    pub waiting: usize,
    /// Prefixes whose best path is not told because the FIB does not have it.
    pub blocked: usize,
    /// Bytes of memory: tables, paths and attribute sets.
    pub memory: usize,
}

impl Shard {
    fn find<F: Family>(&self, prefix: Prefix<F>) -> Option<&Route<F>> {
        let table = &self.tables.get::<F>()[usize::from(logical_shard(prefix))];
        let at = table.find(route::hash(prefix, &self.core.seed), |route| route.is(prefix))?;
        Some(table.get(at))
    }

    /// All paths of exactly this prefix.
    pub fn lookup<F: Family>(&self, prefix: Prefix<F>) -> Option<RouteView<F>> {
        self.find(prefix).map(|route| self.core.view(route))
    }

    /// What the RIB manager has been given of exactly this prefix; `None` when it has no path.
    pub fn fed_of(&self, prefix: AnyPrefix) -> Option<FedView> {
        match prefix {
            AnyPrefix::V4(prefix) => self.core.fed_view(self.find(prefix)?),
            AnyPrefix::V6(prefix) => self.core.fed_view(self.find(prefix)?),
        }
    }

    /// The most specific prefix of this shard that holds `addr`. Another shard may have a longer one.
    pub fn longest_match<F: Family>(&self, addr: IpAddr) -> Option<Prefix<F>> {
        let host = Prefix::<F>::host(addr)?;
        (0..=F::WIDTH).rev().map(|len| host.truncate(len)).find(|prefix| self.find(*prefix).is_some())
    }

    /// The prefixes of one logical shard, in no order.
    pub fn prefixes<F: Family>(&self, shard: LogicalShard) -> Vec<Prefix<F>> {
        self.tables.get::<F>()[usize::from(shard % LOGICAL_SHARDS)].iter().map(Route::prefix).collect()
    }

    /// How many prefixes of a family each logical shard has.
    pub fn loads<F: Family>(&self) -> impl Iterator<Item = (LogicalShard, usize)> + '_ {
        self.tables.get::<F>().iter().enumerate().map(|(shard, table)| (shard as LogicalShard, table.len()))
    }

    /// What the session of a peer contributes: zero for one that is not up.
    pub fn peer_counts<F: Family>(&self, peer: PeerId) -> PeerCounts {
        self.core.sessions.of(peer).map_or_else(PeerCounts::default, |session| *session.counts.get::<F>())
    }

    /// Totals. Looks at sessions and next hops, not at routes.
    pub fn counts(&self) -> Counts {
        let Core { attrs, paths, late, .. } = &self.core;
        let (ipv4, ipv6) = (self.family_counts::<V4>(), self.family_counts::<V6>());
        let (waiting, blocked) = self.core.gates.counts();
        let tables = |Families { v4, v6 }: &Families<Tables>| {
            v4.iter().map(Table::memory).sum::<usize>() + v6.iter().map(Table::memory).sum::<usize>()
        };
        Counts {
            ipv4,
            ipv6,
            attribute_sets: attrs.len(),
            next_hops: attrs.hops.in_use(),
            late: *late,
            waiting,
            blocked,
            memory: tables(&self.tables) + attrs.memory() + paths.memory(),
        }
    }

    fn family_counts<F: Family>(&self) -> FamilyCounts {
        let mut counts = FamilyCounts {
            prefixes: self.tables.get::<F>().iter().map(Table::len).sum(),
            hidden: self.core.attrs.hops.hidden::<F>(),
            ..FamilyCounts::default()
        };
        for (_, session) in self.core.sessions.iter() {
            let PeerCounts { paths, best } = *session.counts.get::<F>();
            counts.paths += paths as usize;
            counts.best += best as usize;
        }
        counts
    }
}

impl Core {
    fn fed_view<F: Family>(&self, route: &Route<F>) -> Option<FedView> {
        let selected = self.selected_of(route);
        Some(FedView {
            set: self.fed_set(route)?,
            neighbor: self.sessions.get(selected.path.session).info.address,
            best: selected.usable,
            standing: self.standing(route),
        })
    }

    fn view<F: Family>(&self, route: &Route<F>) -> RouteView<F> {
        let paths = route.paths(&self.paths);
        let candidates: Vec<Candidate<'_>> = paths.iter().map(|path| self.candidate(*path)).collect();
        let lost = decision::explain(&candidates[..], &self.options);
        let mut views: Vec<PathView> = paths
            .iter()
            .zip(lost)
            .enumerate()
            .map(|(index, (path, lost))| PathView {
                best: route.best() == Some(index),
                attrs: self.attrs.get(path.attrs).clone(),
                peer: self.sessions.get(path.session).info.clone(),
                lost,
                cost: self.cost(*path),
                // Without a best path nothing is forwarded, and the best one's own part is no matter.
                part: match route.best() {
                    Some(best) if best != index => path.part(),
                    _ => Part::Nothing,
                },
            })
            .collect();
        if let Some(best) = route.best() {
            views[..=best].rotate_right(1);
        }
        RouteView { prefix: route.prefix(), paths: views, standing: self.standing(route) }
    }
}
