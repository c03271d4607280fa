//! The decision process: the best of a prefix's paths (RFC 4271 section 9.1.2.2, RFC 4456 section
//! 9).
//!
//! MED makes this more than a sort: it is compared only between paths from the same neighboring AS.
//! So the order of two paths may depend on a third. The rules before MED fold into one number per
//! path, its class, and the rules after it are a total order. Between them, a path loses to any path
//! of its neighboring AS with a lower MED. [`arrival`] and [`departure`] decide when a change needs
//! no comparison of all paths.

mod ranking;

pub use ranking::{Ranked, ranked};

use crate::attr::AttrSet;
use crate::peer::PeerInfo;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::net::Ipv4Addr;

/// LOCAL_PREF of a path without it, as all external ones (RFC 4271 section 5.1.5 leaves it to the
/// implementation).
pub const DEFAULT_LOCAL_PREF: u32 = 100;

/// Options of the decision process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecisionOptions {
    /// Compares MED between all paths, not only within a neighboring AS.
    pub always_compare_med: bool,
    /// As in RFC 4271, the outcome does not depend on the order of arrival. When false, paths are
    /// compared in pairs from the oldest to the newest, as in some routers.
    pub deterministic_med: bool,
    /// Of external paths that are equal up to the interior cost, prefers the one that came first (RFC 5004).
    pub prefer_oldest: bool,
    /// A missing MED counts as the highest, not as 0.
    pub med_missing_as_worst: bool,
    /// Next hops of a prefix, at most; at least 1: the best path's, and those of equal paths
    /// ([`multipath`]).
    pub maximum_paths: u16,
    /// Whether paths equal to the best one may be from another neighboring AS.
    pub multipath_relax: bool,
    /// Whether equal paths share traffic by their link bandwidths, if each has one
    /// ([`crate::link_bandwidth`]).
    pub link_bandwidth: bool,
    /// Whether the best path with another next hop is the prefix's backup.
    pub backup_path: bool,
}

impl DecisionOptions {
    /// Whether forwarding uses more paths of a prefix than the best one.
    pub fn forwards_by_several(&self) -> bool {
        self.maximum_paths > 1 || self.backup_path
    }
}

impl Default for DecisionOptions {
    fn default() -> Self {
        DecisionOptions {
            always_compare_med: false,
            deterministic_med: true,
            prefer_oldest: false,
            med_missing_as_worst: false,
            maximum_paths: 1,
            multipath_relax: false,
            link_bandwidth: false,
            backup_path: false,
        }
    }
}

/// The rule by which a path lost, in the order in which the rules apply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The session of the path has ended; the path is about to be removed.
    PeerDown,
    /// The next hop cannot be reached.
    NextHopUnreachable,
    /// The RIB manager has not resolved its next hop yet.
    NextHopUnknown,
    /// Another is originated by this router.
    Originated,
    /// It is long-lived stale, and another is not (RFC 9494 section 4.4).
    LongLivedStale,
    /// Another has a higher LOCAL_PREF.
    LocalPref,
    /// Another has a lower accumulated IGP metric with the interior cost to its next hop, or this one has none.
    Aigp,
    /// Another has a shorter AS_PATH.
    AsPathLength,
    /// Another has a lower ORIGIN.
    Origin,
    /// Another from the same neighboring AS has a lower MULTI_EXIT_DISC.
    Med,
    /// Another is external; a path of another member AS of our confederation is not.
    ExternalOverInternal,
    /// Another has a lower interior cost to its next hop.
    IgpCost,
    /// Another came first.
    OldestPath,
    /// Another has a lower BGP identifier; ORIGINATOR_ID stands for it where present.
    RouterId,
    /// Another has a shorter CLUSTER_LIST.
    ClusterListLength,
    /// Another came from a peer with a lower address.
    PeerAddress,
    /// Another of the same peer has a lower path identifier (RFC 7911), or the same one in its present session.
    PathId,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::PeerDown => "session down",
            Reason::NextHopUnreachable => "next hop unreachable",
            Reason::NextHopUnknown => "next hop not resolved yet",
            Reason::Originated => "best is originated here",
            Reason::LongLivedStale => "long-lived stale",
            Reason::LocalPref => "lower local preference",
            Reason::Aigp => "higher AIGP metric, or none",
            Reason::AsPathLength => "longer AS path",
            Reason::Origin => "higher origin",
            Reason::Med => "higher MED",
            Reason::ExternalOverInternal => "internal, best is external",
            Reason::IgpCost => "higher IGP cost to next hop",
            Reason::OldestPath => "newer path",
            Reason::RouterId => "higher router id",
            Reason::ClusterListLength => "longer cluster list",
            Reason::PeerAddress => "higher peer address",
            Reason::PathId => "higher path identifier, or stale",
        })
    }
}

/// A 14-bit approximation of the rank: of two usable paths, the one with the lower hint has the
/// higher LOCAL_PREF or the shorter AS_PATH, and is preferred. Equal hints decide nothing. A path with an
/// accumulated IGP metric has the hint of an empty AS_PATH: it precedes all without, and its metric counts
/// before its AS_PATH.
///
/// Paths carry it, so most comparisons read no attributes.
pub fn hint(attrs: &AttrSet) -> u16 {
    // From this LOCAL_PREF on, all hints are equal, and AS_PATH is ignored.
    const HIGH: u16 = 511;
    let local_pref = attrs.local_pref().unwrap_or(DEFAULT_LOCAL_PREF);
    let hops = if attrs.has_aigp() { 0 } else { attrs.as_hops() };
    match u16::try_from(local_pref) {
        Ok(local_pref) if local_pref < HIGH => (HIGH - local_pref) << 5 | hops.min(31),
        _ => 0,
    }
}

/// The rank of an attribute set in the decision process.
#[derive(Clone, Copy, Debug)]
pub struct Rank {
    /// Long-lived stale, LOCAL_PREF (inverted), AS_PATH length and ORIGIN + 1 from the highest bits down: the lower is
    /// preferred. 0 is that of [`Rank::ORIGINATED`] alone.
    class: u64,
    /// The accumulated IGP metric, or [`NO_AIGP`].
    aigp: u64,
    med: u32,
    neighbor_as: u32,
    originator_id: Option<Ipv4Addr>,
    cluster_list_len: u16,
}

/// Of a path without an accumulated IGP metric. No path has this metric: it is malformed (RFC 7311 section 3.2).
const NO_AIGP: u64 = u64::MAX;

/// The [`hint`] of originated paths.
pub const ORIGINATED_HINT: u16 = 0;
/// The [`hint`] of long-lived stale paths: no other is higher.
pub const LONG_LIVED_STALE_HINT: u16 = 0x3fff;
/// The bit of [`Rank::class`] of long-lived stale paths (RFC 9494 section 4.4).
const LONG_LIVED_STALE: u64 = 1 << 63;
/// The bits of [`Rank::class`] that count after the accumulated IGP metric.
const AIGP_PLACE: u32 = 31;

impl Rank {
    /// The rank of every path that this router originates. Such a path stands for a connected or
    /// static route. The RIB manager prefers that route to BGP's, so the router forwards as it
    /// advertises.
    pub const ORIGINATED: Rank =
        Rank { class: 0, aigp: 0, med: 0, neighbor_as: 0, originator_id: None, cluster_list_len: 0 };

    /// The rank of `attrs` of a path from a peer.
    #[inline]
    pub fn new(attrs: &AttrSet, options: &DecisionOptions) -> Rank {
        let local_pref = attrs.local_pref().unwrap_or(DEFAULT_LOCAL_PREF);
        let no_med = if options.med_missing_as_worst { u32::MAX } else { 0 };
        let (hops, origin) = (u64::from(attrs.as_hops()), attrs.origin() as u64 + 1);
        Rank {
            class: u64::from(!local_pref) << 31 | hops << 15 | origin,
            aigp: attrs.aigp().unwrap_or(NO_AIGP),
            med: attrs.med().unwrap_or(no_med),
            neighbor_as: attrs.neighbor_as(),
            originator_id: attrs.originator_id(),
            cluster_list_len: attrs.cluster_list_len(),
        }
    }

    /// The same of a path that is long-lived stale, and so less preferred than any that is not.
    #[must_use]
    pub fn long_lived_stale(self) -> Rank {
        Rank { class: self.class | LONG_LIVED_STALE, ..self }
    }

    /// The first rule before MED that separates the two paths.
    fn class_reason(&self, other: &Rank, [class, of_other]: [Class; 2]) -> Reason {
        match self.class ^ other.class {
            _ if self.class.min(other.class) == Rank::ORIGINATED.class => Reason::Originated,
            diff if diff & LONG_LIVED_STALE != 0 => Reason::LongLivedStale,
            diff if diff >> AIGP_PLACE != 0 => Reason::LocalPref,
            _ if class.aigp() != of_other.aigp() => Reason::Aigp,
            diff if diff >> 15 != 0 => Reason::AsPathLength,
            _ => Reason::Origin,
        }
    }

    /// What the rules before MED compare, with this interior cost.
    #[inline]
    fn class_at(&self, cost: u32) -> Class {
        // RFC 7311 section 4.1: the metric and the interior cost, at most the highest metric there is.
        let aigp = match self.aigp {
            NO_AIGP => NO_AIGP,
            aigp => aigp.saturating_add(cost.into()).min(NO_AIGP - 1),
        };
        let (before, after) = (self.class >> AIGP_PLACE, self.class & ((1 << AIGP_PLACE) - 1));
        Class(u128::from(before) << (AIGP_PLACE + 64) | u128::from(aigp) << AIGP_PLACE | u128::from(after))
    }

    /// Whether their MEDs may be compared.
    fn comparable(&self, other: &Rank, options: &DecisionOptions) -> bool {
        options.always_compare_med || self.neighbor_as == other.neighbor_as
    }

    /// Whether it wins over `other`, of the same class, by MED.
    fn beats_by_med(&self, other: &Rank, options: &DecisionOptions) -> bool {
        self.med < other.med && self.comparable(other, options)
    }
}

/// A path in the decision process.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The rank of its attributes.
    pub rank: Rank,
    /// The peer that sent it.
    pub peer: &'a PeerInfo,
    /// Interior cost to its next hop, or the reason why it cannot be used.
    pub cost: Result<u32, Reason>,
    /// Its path identifier; 0 without one (RFC 7911).
    pub path_id: u32,
}

impl Candidate<'_> {
    #[inline]
    fn class(&self) -> Class {
        self.rank.class_at(self.cost.unwrap_or(0))
    }

    /// Compares their classes. Few paths have an accumulated IGP metric.
    #[inline]
    fn cmp_class(&self, other: &Candidate<'_>) -> Ordering {
        match self.rank.aigp & other.rank.aigp == NO_AIGP {
            true => self.rank.class.cmp(&other.rank.class),
            false => self.class().cmp(&other.class()),
        }
    }
}

/// Long-lived stale, LOCAL_PREF (inverted), accumulated IGP metric, AS_PATH length and ORIGIN + 1 from the highest bits down:
/// the lower is preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class(u128);

impl Class {
    /// The accumulated IGP metric with the interior cost, or [`NO_AIGP`].
    fn aigp(self) -> u64 {
        (self.0 >> AIGP_PLACE) as u64
    }
}

/// The paths of one prefix, from the oldest to the newest.
pub trait Candidates {
    /// The number of paths.
    fn count(&self) -> usize;
    /// The path at `index`, below [`Candidates::count`].
    fn at(&self, index: usize) -> Candidate<'_>;
}

impl Candidates for [Candidate<'_>] {
    fn count(&self) -> usize {
        self.len()
    }
    fn at(&self, index: usize) -> Candidate<'_> {
        self[index]
    }
}

/// Index of the best path, or `None` when no path can be used.
pub fn best<C: Candidates + ?Sized>(paths: &C, options: &DecisionOptions) -> Option<usize> {
    let mut usable = (0..paths.count()).map(|i| (i, paths.at(i))).filter(|(_, path)| path.cost.is_ok());
    let mut best = usable.next()?;
    if !options.deterministic_med {
        for newer in usable {
            if pairwise(best.1, newer.1, options).0 == Ordering::Greater {
                best = newer;
            }
        }
        return Some(best.0);
    }
    // The winning class, by its first member and the others.
    let mut alone = true;
    for path in usable {
        match path.1.cmp_class(&best.1) {
            Ordering::Less => (best, alone) = (path, true),
            Ordering::Equal => alone = false,
            Ordering::Greater => {}
        }
    }
    if alone {
        return Some(best.0);
    }
    let winner = best;
    let class = || {
        (winner.0..paths.count())
            .map(|i| (i, paths.at(i)))
            .filter(|(_, path)| path.cost.is_ok() && path.cmp_class(&winner.1) == Ordering::Equal)
    };
    // Most paths have no MED.
    let any_med = class().any(|(_, path)| path.rank.med != winner.1.rank.med);
    let falls = |path: Rank| any_med && class().any(|(_, other)| other.rank.beats_by_med(&path, options));
    let mut best = None;
    for path in class() {
        let nearer = best.is_none_or(|best: (usize, Candidate<'_>)| {
            after_med(best.1, path.1, options).0 == Ordering::Greater
        });
        if nearer && !falls(path.1.rank) {
            best = Some(path);
        }
    }
    best.map(|(index, _)| index)
}

/// Indices of the paths that equal the `best` one up to the tie-breaking rules: it first, then the
/// others in their order of succession.
///
/// Equal paths have its class, its kind of peer and its interior cost. No path has a lower
/// comparable MED, and the neighboring AS is the same unless [`DecisionOptions::multipath_relax`].
pub fn multipath<C: Candidates + ?Sized>(
    paths: &C,
    best: usize,
    options: &DecisionOptions,
) -> SmallVec<[usize; 8]> {
    let winner = paths.at(best);
    let class = || {
        let all = (0..paths.count()).map(|i| (i, paths.at(i)));
        all.filter(|(_, path)| path.cost.is_ok() && path.class() == winner.class())
    };
    let as_good = |path: &Candidate<'_>| {
        let (rank, to_beat) = (&path.rank, &winner.rank);
        path.cost == winner.cost
            && path.peer.feed_kind() == winner.peer.feed_kind()
            && (options.multipath_relax || rank.neighbor_as == to_beat.neighbor_as)
            && (rank.med == to_beat.med || !rank.comparable(to_beat, options))
            && !class().any(|(_, other)| other.rank.beats_by_med(rank, options))
    };
    let mut others: SmallVec<[(usize, Candidate<'_>); 8]> =
        class().filter(|(i, path)| *i != best && as_good(path)).collect();
    others.sort_by(|a, b| match a.0 < b.0 {
        true => after_med(a.1, b.1, options).0,
        false => after_med(b.1, a.1, options).0.reverse(),
    });
    std::iter::once(best).chain(others.iter().map(|(i, _)| *i)).collect()
}

/// For each path, the reason why it is not best; `None` for the best.
pub fn explain<C: Candidates + ?Sized>(paths: &C, options: &DecisionOptions) -> Vec<Option<Reason>> {
    let Some(best) = best(paths, options) else {
        return (0..paths.count()).map(|i| paths.at(i).cost.err()).collect();
    };
    if options.deterministic_med {
        (0..paths.count()).map(|i| (i != best).then(|| lost_to_all(paths, best, i, options))).collect()
    } else {
        lost_in_sequence(paths, options)
    }
}

/// The rule by which `loser` lost when MED is compared among all.
fn lost_to_all<C: Candidates + ?Sized>(
    paths: &C,
    best: usize,
    loser: usize,
    options: &DecisionOptions,
) -> Reason {
    let (winner, path) = (paths.at(best), paths.at(loser));
    if let Err(reason) = path.cost {
        return reason;
    }
    let classes = [path.class(), winner.class()];
    if classes[0] != classes[1] {
        return path.rank.class_reason(&winner.rank, classes);
    }
    let by_med = (0..paths.count()).map(|i| paths.at(i)).any(|other| {
        let same = other.cost.is_ok() && other.class() == classes[0];
        same && other.rank.beats_by_med(&path.rank, options)
    });
    match by_med {
        true => Reason::Med,
        false if best < loser => after_med(winner, path, options).1,
        false => after_med(path, winner, options).1,
    }
}

/// The rule by which each path lost in pairwise comparison.
fn lost_in_sequence<C: Candidates + ?Sized>(paths: &C, options: &DecisionOptions) -> Vec<Option<Reason>> {
    let mut reasons: Vec<Option<Reason>> = (0..paths.count()).map(|i| paths.at(i).cost.err()).collect();
    let mut best: Option<usize> = None;
    for newer in (0..paths.count()).filter(|i| paths.at(*i).cost.is_ok()) {
        let Some(older) = best.replace(newer) else { continue };
        let (order, reason) = pairwise(paths.at(older), paths.at(newer), options);
        if order == Ordering::Greater {
            reasons[older] = Some(reason);
        } else {
            reasons[newer] = Some(reason);
            best = Some(older);
        }
    }
    reasons
}

/// The effect of a changed path on the best path of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The best path stays.
    Keep,
    /// The path that arrived is best.
    Take,
    /// Only [`best`] can decide.
    Rescan,
}

/// The effect of a new path, the newest, on the former `best`.
pub fn arrival(best: Candidate<'_>, new: Candidate<'_>, options: &DecisionOptions) -> Effect {
    if best.cost.is_err() {
        return Effect::Rescan;
    }
    if new.cost.is_err() {
        return Effect::Keep;
    }
    let (order, reason) = pairwise(best, new, options);
    match order {
        // A path that loses to the new one by MED was not best before. It lost to the best path by
        // MED, which is no worse than the new one, or by another rule.
        Ordering::Less | Ordering::Equal => Effect::Keep,
        Ordering::Greater if !options.deterministic_med || options.always_compare_med => Effect::Take,
        // A class of its own decides. Otherwise others may lose to the new path, or it may lose to
        // a third.
        Ordering::Greater if reason < Reason::Med => Effect::Take,
        Ordering::Greater => Effect::Rescan,
    }
}

/// The effect of a removed path, which was not the `best` one.
pub fn departure(best: Candidate<'_>, gone: Rank, options: &DecisionOptions) -> Effect {
    // Only by MED can a path prevent another from being best without being best itself. The metric of the removed path
    // is not compared, because the cost that it had is not known.
    let kept_others_down =
        !options.deterministic_med || (!options.always_compare_med && best.rank.class == gone.class);
    if best.cost.is_err() || kept_others_down { Effect::Rescan } else { Effect::Keep }
}

/// Compares two usable paths by all rules: `Less` when the older is preferred, and the rule that decided.
fn pairwise(older: Candidate<'_>, newer: Candidate<'_>, options: &DecisionOptions) -> (Ordering, Reason) {
    let (a, b) = (older.rank, newer.rank);
    match older.cmp_class(&newer) {
        Ordering::Equal if a.med != b.med && a.comparable(&b, options) => (a.med.cmp(&b.med), Reason::Med),
        Ordering::Equal => after_med(older, newer, options),
        order => (order, a.class_reason(&b, [older.class(), newer.class()])),
    }
}

/// Compares two usable paths by the rules after MED, a total order.
fn after_med(older: Candidate<'_>, newer: Candidate<'_>, options: &DecisionOptions) -> (Ordering, Reason) {
    // RFC 5065 section 5.3: a path of another member AS is internal.
    let internal = |path: Candidate<'_>| path.peer.kind.is_inside();
    let router_id = |path: Candidate<'_>| path.rank.originator_id.unwrap_or(path.peer.router_id);
    let (a, b) = (older, newer);
    let order = internal(a).cmp(&internal(b));
    if order.is_ne() {
        return (order, Reason::ExternalOverInternal);
    }
    let order = a.cost.cmp(&b.cost);
    if order.is_ne() {
        return (order, Reason::IgpCost);
    }
    if options.prefer_oldest && a.peer.kind.is_external() {
        return (Ordering::Less, Reason::OldestPath);
    }
    let order = router_id(a).cmp(&router_id(b));
    if order.is_ne() {
        return (order, Reason::RouterId);
    }
    let order = a.rank.cluster_list_len.cmp(&b.rank.cluster_list_len);
    if order.is_ne() {
        return (order, Reason::ClusterListLength);
    }
    // No two peers have one address, and no two sources of originated routes one kind.
    let last = |path: Candidate<'_>| (path.peer.address, path.peer.kind, path.peer.id);
    let order = last(a).cmp(&last(b));
    if order.is_ne() {
        return (order, Reason::PeerAddress);
    }
    // Two paths of one session, so that the order of arrival decides nothing. Or one is retained from a session without path
    // identifiers, and its peer now sends them, or the reverse: of equal ones, that of the later session is first.
    let order = a.path_id.cmp(&b.path_id).then_with(|| b.peer.session.cmp(&a.peer.session));
    (order, Reason::PathId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{EgressSettings, FamilySet, PeerId, PeerKind};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A path as a row of numbers, small so that ties are frequent.
    #[derive(Clone, Debug)]
    pub(super) struct Row {
        class: u64,
        aigp: Option<u64>,
        med: u32,
        neighbor_as: u32,
        originator: Option<u8>,
        clusters: u16,
        cost: Option<u32>,
        external: bool,
        router_id: u8,
    }

    pub(super) fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (
            (0..2u64, prop::option::weighted(0.3, prop_oneof![0..3u64, u64::MAX - 3..u64::MAX])),
            0..3u32,
            0..3u32,
            prop::option::weighted(0.3, 0..3u8),
            0..2u16,
            prop::option::weighted(0.9, 0..2u32),
            any::<bool>(),
            0..3u8,
        );
        let row = row.prop_map(
            |((class, aigp), med, neighbor_as, originator, clusters, cost, external, router_id)| Row {
                class,
                aigp,
                med,
                neighbor_as,
                originator,
                clusters,
                cost,
                external,
                router_id,
            },
        );
        prop::collection::vec(row, 1..8)
    }

    pub(super) fn options() -> impl Strategy<Value = DecisionOptions> {
        any::<[bool; 3]>().prop_map(|[always_compare_med, deterministic_med, prefer_oldest]| {
            DecisionOptions {
                always_compare_med,
                deterministic_med,
                prefer_oldest,
                ..DecisionOptions::default()
            }
        })
    }

    /// The rows as candidates, each from a peer of its own whose address falls with its number.
    pub(super) fn with_candidates<R>(rows: &[Row], f: impl FnOnce(&[Candidate<'_>]) -> R) -> R {
        let id = |n: u8| Ipv4Addr::new(10, 0, 0, n);
        let export = Arc::new(ribtide_policy::Policy::new(vec![], false));
        let peers: Vec<PeerInfo> = rows
            .iter()
            .enumerate()
            .map(|(n, row)| {
                // RFC 5065 section 5.3: another member AS is internal.
                let kind = match (row.external, n % 2) {
                    (true, 0) => PeerKind::External,
                    (true, _) => PeerKind::RouteServerClient,
                    (false, 0) => PeerKind::Internal,
                    (false, _) => PeerKind::Confederation,
                };
                let families = FamilySet::UNICAST;
                PeerInfo {
                    id: PeerId(n as u32),
                    session: 0,
                    address: id(255 - n as u8).into(),
                    asn: 1,
                    router_id: id(row.router_id),
                    kind,
                    multihop: false,
                    link: None,
                    families,
                    path_ids: FamilySet::NONE,
                    long_lived: false,
                    egress: EgressSettings::new(kind, 1, id(1), families, export.clone()),
                }
            })
            .collect();
        let ranks: Vec<Rank> = rows
            .iter()
            .map(|row| Rank {
                class: row.class,
                aigp: row.aigp.unwrap_or(NO_AIGP),
                med: row.med,
                neighbor_as: row.neighbor_as,
                originator_id: row.originator.map(id),
                cluster_list_len: row.clusters,
            })
            .collect();
        let candidates: Vec<Candidate<'_>> = rows
            .iter()
            .zip(&ranks)
            .zip(&peers)
            .map(|((row, rank), peer)| Candidate {
                rank: *rank,
                peer,
                cost: row.cost.ok_or(Reason::NextHopUnreachable),
                path_id: 0,
            })
            .collect();
        f(&candidates)
    }

    /// RFC 4271 section 9.1.2.2 literally: each rule in turn removes paths from consideration.
    fn by_elimination(rows: &[Row], options: &DecisionOptions) -> Option<usize> {
        let mut left: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].cost.is_some()).collect();
        fn keep_lowest<K: Ord>(left: &mut Vec<usize>, key: impl Fn(usize) -> K) {
            if let Some(lowest) = left.iter().map(|i| key(*i)).min() {
                left.retain(|i| key(*i) == lowest);
            }
        }
        // The class of a row is ORIGIN alone, so LOCAL_PREF is equal.
        if left.iter().any(|i| rows[*i].aigp.is_some()) {
            left.retain(|i| rows[*i].aigp.is_some());
            let with_cost = |i: usize| u128::from(rows[i].aigp.unwrap()) + u128::from(rows[i].cost.unwrap());
            keep_lowest(&mut left, |i| with_cost(i).min(u128::from(u64::MAX - 1)));
        }
        keep_lowest(&mut left, |i| rows[i].class);
        let considered = left.clone();
        left.retain(|m| {
            !considered.iter().any(|n| {
                (options.always_compare_med || rows[*n].neighbor_as == rows[*m].neighbor_as)
                    && rows[*n].med < rows[*m].med
            })
        });
        keep_lowest(&mut left, |i| !rows[i].external);
        keep_lowest(&mut left, |i| rows[i].cost);
        if options.prefer_oldest && left.first().is_some_and(|i| rows[*i].external) {
            left.truncate(1);
        }
        keep_lowest(&mut left, |i| rows[i].originator.unwrap_or(rows[i].router_id));
        keep_lowest(&mut left, |i| rows[i].clusters);
        left.last().copied() // the lowest address
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // An equal path becomes best when the paths before it are removed, and no unequal one is.
        #[test]
        fn equal_paths_differ_by_tie_breaks_alone(rows in rows(), options in options(), relax in any::<bool>()) {
            let options = DecisionOptions { deterministic_med: true, multipath_relax: relax, ..options };
            with_candidates(&rows, |paths| {
                let Some(first) = best(paths, &options) else { return Ok(()) };
                let found = multipath(paths, first, &options);
                let lost = explain(paths, &options);
                let equal: Vec<usize> = (0..rows.len()).filter(|i| match lost[*i] {
                    None => true,
                    Some(why) => why > Reason::IgpCost && (relax || rows[*i].neighbor_as == rows[first].neighbor_as),
                }).collect();
                let mut sorted = found.to_vec();
                sorted.sort();
                prop_assert_eq!(sorted, equal);
                for at in 0..found.len() {
                    let left: Vec<usize> = (0..rows.len()).filter(|i| found[at..].contains(i)).collect();
                    let these: Vec<Candidate<'_>> = left.iter().map(|i| paths[*i]).collect();
                    prop_assert_eq!(best(&these[..], &options).map(|i| left[i]), Some(found[at]));
                }
                Ok(())
            })?;
        }

        #[test]
        fn best_is_what_elimination_leaves(rows in rows(), options in options()) {
            let options = DecisionOptions { deterministic_med: true, ..options };
            let found = with_candidates(&rows, |paths| best(paths, &options));
            prop_assert_eq!(found, by_elimination(&rows, &options));
        }

        #[test]
        fn only_the_best_has_no_reason(rows in rows(), options in options()) {
            with_candidates(&rows, |paths| {
                let reasons = explain(paths, &options);
                let without: Vec<usize> = (0..rows.len()).filter(|i| reasons[*i].is_none()).collect();
                prop_assert_eq!(without, best(paths, &options).into_iter().collect::<Vec<_>>());
                for (row, reason) in rows.iter().zip(reasons) {
                    prop_assert_eq!(row.cost.is_none(), reason == Some(Reason::NextHopUnreachable));
                }
                Ok(())
            })?;
        }

        // `arrival` and `departure` agree with a rescan.
        #[test]
        fn effects_agree_with_a_rescan(rows in rows(), options in options(), at in any::<prop::sample::Index>()) {
            let last = rows.len() - 1;
            with_candidates(&rows, |paths| {
                let (before, after) = (best(&paths[..last], &options), best(paths, &options));
                if let Some(before) = before {
                    match arrival(paths[before], paths[last], &options) {
                        Effect::Keep => prop_assert_eq!(after, Some(before)),
                        Effect::Take => prop_assert_eq!(after, Some(last)),
                        Effect::Rescan => {}
                    }
                }
                let at = at.index(rows.len());
                let Some(before) = after.filter(|best| *best != at) else { return Ok(()) };
                let left: Vec<Candidate<'_>> =
                    (0..rows.len()).filter(|i| *i != at).map(|i| paths[i]).collect();
                if departure(paths[before], paths[at].rank, &options) == Effect::Keep {
                    prop_assert_eq!(best(&left[..], &options), Some(before - usize::from(at < before)));
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn missing_med_is_the_lowest_or_if_configured_the_highest() {
        use ribtide_wire::bgp::NextHop;
        let attrs = |med: &[u8]| AttrSet::new(med, NextHop::V4(Ipv4Addr::LOCALHOST));
        let worst = DecisionOptions { med_missing_as_worst: true, ..DecisionOptions::default() };
        let meds = |attrs: &AttrSet| {
            [DecisionOptions::default(), worst].map(|options| Rank::new(attrs, &options).med)
        };
        assert_eq!(meds(&attrs(&[])), [0, u32::MAX]);
        assert_eq!(meds(&attrs(&[0x80, 4, 4, 0, 0, 0, 7])), [7, 7]);
    }

    #[test]
    fn a_third_path_decides_between_two() {
        let row = |med, neighbor_as, router_id| Row {
            class: 0,
            aigp: None,
            med,
            neighbor_as,
            originator: None,
            clusters: 0,
            cost: Some(0),
            external: true,
            router_id,
        };
        // The first wins by router id over the second; with the third, which beats it by MED, it falls, and the
        // second wins over the third.
        let rows = [row(10, 1, 1), row(0, 2, 2), row(5, 1, 3)];
        let options = DecisionOptions::default();
        assert_eq!(with_candidates(&rows[..2], |paths| best(paths, &options)), Some(0));
        assert_eq!(with_candidates(&rows, |paths| best(paths, &options)), Some(1));
        let reasons = with_candidates(&rows, |paths| explain(paths, &options));
        assert_eq!(reasons, [Some(Reason::Med), None, Some(Reason::RouterId)]);
        // In pairs the order of arrival counts.
        let options = DecisionOptions { deterministic_med: false, ..options };
        assert_eq!(with_candidates(&rows, |paths| best(paths, &options)), Some(2));
        let reasons = with_candidates(&rows, |paths| explain(paths, &options));
        assert_eq!(reasons, [Some(Reason::Med), Some(Reason::RouterId), None]);
    }

    proptest! {
        // A lower hint means a better class, whatever the attributes.
        #[test]
        fn a_hint_agrees_with_the_attributes(
            rows in prop::collection::vec(
                (prop::option::of(prop_oneof![0..1100u32, any::<u32>()]), 0..300usize, prop::option::of(0..9u64)),
                2..3,
            ),
            costs in any::<[u32; 2]>(),
        ) {
            use ribtide_wire::bgp::attribute::{AsPath, aigp, code};
            use ribtide_wire::bgp::{NextHop, build};
            let sets: Vec<AttrSet> = rows.iter().map(|(local_pref, hops, metric)| {
                let mut bytes = Vec::new();
                let mut path = Vec::new();
                for part in vec![0u8; *hops].chunks(255) {
                    path.extend([2, part.len() as u8]);
                    part.iter().for_each(|_| path.extend([0, 0, 0, 9]));
                }
                build::as_path(&mut bytes, AsPath::new(&path));
                if let Some(local_pref) = local_pref {
                    build::local_pref(&mut bytes, *local_pref);
                }
                if let Some(metric) = metric {
                    build::attribute(&mut bytes, 0x80, code::AIGP, &aigp::value(*metric));
                }
                AttrSet::new(&bytes, NextHop::V4(Ipv4Addr::LOCALHOST))
            }).collect();
            let class = |n: usize| Rank::new(&sets[n], &DecisionOptions::default()).class_at(costs[n]);
            if hint(&sets[0]) < hint(&sets[1]) {
                prop_assert!(class(0) < class(1));
            }
            if hint(&sets[0]) > hint(&sets[1]) {
                prop_assert!(class(0) > class(1));
            }
        }
    }
}
