//! Queries of the management API. Replies are copies. A page is bounded by its limit and by the
//! table of one logical shard.

use super::paths::{Part, Path};
use super::route::{self, Route};
use super::table::Table;
use super::{Core, Shard};
use crate::attr::AttrSet;
use crate::decision::{self, Candidate, Reason};
use crate::message::{BestPath, FeedSet};
use crate::peer::{PeerId, PeerInfo};
use ribtide_policy::PrefixFilter;
use ribtide_prefix::{
    AnyPrefix, BgpFamily, ByFamily, LOGICAL_SHARDS, LogicalShard, Prefix, for_each_bgp_family, logical_shard,
    sum_bgp_families,
};
use std::net::IpAddr;
use std::sync::Arc;

/// A path and its state.
#[derive(Clone, Debug)]
pub struct PathView {
    /// Its attributes.
    pub attrs: AttrSet,
    /// The peer that sent it.
    pub peer: Arc<PeerInfo>,
    /// Whether it is retained: its session ended, and the peer restarts (RFC 4724).
    pub stale: bool,
    /// Its path identifier, in a session that has them (RFC 7911).
    pub path_id: Option<u32>,
    /// Whether it is the best path.
    pub best: bool,
    /// The step of the decision process that rejected it. `None` for the best path, and for one
    /// that becomes best because a next hop or session just changed.
    pub lost: Option<Reason>,
    /// Interior cost to its next hop, or why it is unusable.
    pub cost: Result<u32, Reason>,
    /// Its part in forwarding beside the best path.
    pub part: Part,
    /// The second of the router's clock in which it last changed: exact for three hours, later the first of
    /// its 512 seconds. `None` while it is the only path and waits for confirmation by dataplanes.
    pub changed: Option<u32>,
}

/// A prefix and its paths.
#[derive(Clone, Debug)]
pub struct RouteView<F: BgpFamily> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// The best path first, the others from the oldest to the newest.
    pub paths: Vec<PathView>,
    /// Whether the best path is advertised to egress workers.
    pub standing: Standing,
    /// The aggregates for which it is not.
    pub suppressed_by: Vec<AnyPrefix>,
}

/// What egress workers have of a prefix.
#[derive(Clone, Debug)]
pub struct AdvertisedView {
    /// The path that they have, which is not the best one while that waits for confirmation; or would, if no aggregate
    /// suppressed it.
    pub path: Option<BestPath>,
    /// The best path.
    pub best: Option<BestPath>,
    /// When the best path last changed, as [`PathView::changed`].
    pub changed: Option<u32>,
    /// Why these differ, if FIB suppression is why.
    pub standing: Standing,
    /// The aggregates that suppress the prefix, so that workers have no path, or a marked one.
    pub suppressed_by: Vec<AnyPrefix>,
}

/// The last feed of a prefix, for `route-check`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FedView {
    /// The next hops.
    pub set: FeedSet,
    /// The peer that sent the selected path.
    pub neighbor: IpAddr,
    /// Whether that is the best path; `false` while no path is usable.
    pub best: bool,
    /// Whether the best path is advertised to egress workers.
    pub standing: Standing,
}

/// Whether the best path of a prefix is advertised to egress workers, with FIB suppression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is advertised, if there is one.
    Advertised,
    /// It waits for confirmation by dataplanes.
    Waiting {
        /// Whether the former best path stays advertised in the meantime.
        former: bool,
    },
    /// The FIB does not have it; the RIB manager knows why.
    Blocked,
}

/// Paths of one peer and family in a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounts {
    /// Paths accepted.
    pub paths: u32,
    /// Of these, best paths.
    pub best: u32,
}

/// The contents of a shard in one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyCounts {
    /// Prefixes.
    pub prefixes: usize,
    /// Paths.
    pub paths: usize,
    /// Of these, best paths: the number of prefixes with a usable path.
    pub best: usize,
    /// Paths with an unreachable next hop.
    pub hidden: usize,
}

/// The contents of a shard. Values of several shards add up, except attribute sets and next hops,
/// which several shards may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The routes of each family.
    pub families: ByFamily<FamilyCounts>,
    /// Attribute sets in use.
    pub attribute_sets: usize,
    /// Next hops in use.
    pub next_hops: usize,
    /// Routes that arrived after the end of their session and were dropped. Routes of a session
    /// beyond the 65,535th count here too.
    pub late: u64,
    /// Paths that were dropped because their prefix had too many: 4,096 of one session, or 65,535.
    pub surplus: u64,
    /// Prefixes whose best path waits for confirmation by dataplanes.
    pub waiting: usize,
    /// Prefixes whose best path is not advertised because the FIB does not have it.
    pub blocked: usize,
    /// Bytes of memory: tables, paths, attribute sets, and lists of ranked paths.
    pub memory: usize,
}

impl Shard {
    pub(super) fn find<F: BgpFamily>(&self, prefix: Prefix<F>) -> Option<&Route<F>> {
        let table = &self.tables.get::<F>()[usize::from(logical_shard(prefix))];
        let at = table.find(route::hash(prefix, &self.core.seed), |route| route.is(prefix))?;
        Some(table.get(at))
    }

    /// All paths of exactly this prefix.
    pub fn lookup<F: BgpFamily>(&self, prefix: Prefix<F>) -> Option<RouteView<F>> {
        self.find(prefix).map(|route| self.core.view(route))
    }

    /// What egress workers have of exactly this prefix; `None` if it has no path.
    pub fn advertised<F: BgpFamily>(&self, prefix: Prefix<F>) -> Option<AdvertisedView> {
        self.find(prefix).map(|route| self.core.advertised_view(route))
    }

    /// The last feed of exactly this prefix; `None` if it has no path.
    pub fn fed_of(&self, prefix: AnyPrefix) -> Option<FedView> {
        match prefix {
            AnyPrefix::V4(prefix) => self.core.fed_view(self.find(prefix)?),
            AnyPrefix::V6(prefix) => self.core.fed_view(self.find(prefix)?),
        }
    }

    /// The most specific prefix of this shard that contains `addr`. Another shard may have a longer
    /// one.
    pub fn longest_match<F: BgpFamily>(&self, addr: IpAddr) -> Option<Prefix<F>> {
        let host = Prefix::<F>::host(addr)?;
        (0..=F::WIDTH).rev().map(|len| host.truncate(len)).find(|prefix| self.find(*prefix).is_some())
    }

    /// The prefixes of one logical shard, in no order.
    pub fn prefixes<F: BgpFamily>(&self, shard: LogicalShard) -> Vec<Prefix<F>> {
        self.tables.get::<F>()[usize::from(shard % LOGICAL_SHARDS)].iter().map(Route::prefix).collect()
    }

    /// As [`Shard::prefixes`], only those of a set.
    pub fn prefixes_in<F: BgpFamily>(&self, shard: LogicalShard, set: PrefixFilter) -> Vec<Prefix<F>> {
        let all = self.tables.get::<F>()[usize::from(shard % LOGICAL_SHARDS)].iter().map(Route::prefix);
        all.filter(|prefix| set.has(*prefix)).collect()
    }

    /// Prefixes of a family in each logical shard.
    pub fn loads<F: BgpFamily>(&self) -> impl Iterator<Item = (LogicalShard, usize)> + '_ {
        self.tables.get::<F>().iter().enumerate().map(|(shard, table)| (shard as LogicalShard, table.len()))
    }

    /// Counts of a peer; zero if its session is not up.
    pub fn peer_counts<F: BgpFamily>(&self, peer: PeerId) -> PeerCounts {
        self.core.sessions.of(peer).map_or_else(PeerCounts::default, |session| *session.counts.get::<F>())
    }

    /// Retained paths of a peer, of all its ended sessions.
    pub fn stale_count<F: BgpFamily>(&self, peer: PeerId) -> u32 {
        let retained = self.core.sessions.retained_of(peer).filter(|session| session.keeps::<F>());
        retained.map(|session| session.counts.get::<F>().paths).sum()
    }

    /// Totals. O(sessions and next hops), not O(routes).
    pub fn counts(&self) -> Counts {
        let Core { attrs, paths, late, surplus, .. } = &self.core;
        let mut families = ByFamily::default();
        for_each_bgp_family!(F => families[F::ID] = self.family_counts::<F>());
        let (waiting, blocked) = self.core.gates.counts();
        let tables = sum_bgp_families!(F => self.tables.get::<F>().iter().map(Table::memory).sum::<usize>());
        Counts {
            families,
            attribute_sets: attrs.len(),
            next_hops: attrs.hops.in_use(),
            late: *late,
            surplus: *surplus,
            waiting,
            blocked,
            memory: tables
                + attrs.memory()
                + paths.memory()
                + self.core.ranked.memory()
                + self.core.watch_memory(),
        }
    }

    fn family_counts<F: BgpFamily>(&self) -> FamilyCounts {
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
    fn advertised_view<F: BgpFamily>(&self, route: &Route<F>) -> AdvertisedView {
        let suppressed = self.is_suppressed(route.prefix());
        let of = |path: Path| BestPath {
            attrs: self.attrs.get(path.attrs).clone(),
            source: self.sessions.get(path.session).info.id,
            suppressed,
        };
        AdvertisedView {
            path: self.advertised(route).map(of),
            best: self.best_of(route).map(of),
            changed: route.best().and_then(|best| self.second_of(route.stamps(&self.paths).nth(best)?)),
            standing: self.standing(route),
            suppressed_by: self.suppressed_by(route.prefix()),
        }
    }

    fn fed_view<F: BgpFamily>(&self, route: &Route<F>) -> Option<FedView> {
        let selected = self.selected_of(route);
        Some(FedView {
            set: self.fed_set(route)?,
            neighbor: self.sessions.get(selected.path.session).info.address,
            best: selected.usable,
            standing: self.standing(route),
        })
    }

    pub(super) fn view<F: BgpFamily>(&self, route: &Route<F>) -> RouteView<F> {
        let paths = route.paths(&self.paths);
        let candidates: Vec<Candidate<'_>> = paths.iter().map(|path| self.candidate(*path)).collect();
        let lost = decision::explain(&candidates[..], &self.options);
        let mut views: Vec<PathView> = paths
            .iter()
            .zip(lost)
            .zip(route.stamps(&self.paths))
            .enumerate()
            .map(|(index, ((path, lost), stamp))| PathView {
                changed: self.second_of(stamp),
                best: route.best() == Some(index),
                attrs: self.attrs.get(path.attrs).clone(),
                peer: self.sessions.get(path.session).info.clone(),
                stale: self.sessions.get(path.session).is_retained(),
                path_id: self.sessions.path_id::<F>(path.session, self.attrs.path_id(path.attrs)),
                lost,
                cost: self.cost(*path),
                // Without a best path nothing is forwarded. The part of the best path itself has no
                // meaning.
                part: match route.best() {
                    Some(best) if best != index => path.part(),
                    _ => Part::Nothing,
                },
            })
            .collect();
        if let Some(best) = route.best() {
            views[..=best].rotate_right(1);
        }
        let (prefix, standing) = (route.prefix(), self.standing(route));
        RouteView { prefix, paths: views, standing, suppressed_by: self.suppressed_by(prefix) }
    }
}
