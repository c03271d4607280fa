//! The messages between reader, shard, egress worker and RIB manager. Every message is a batch.
//!
//! ```text
//! reader ── ShardIn ──► shard ── BestBatch, RankedBatch ──► egress worker ── Output ──► sessions
//!                         │ ▲                     │
//!                         │ └── ShardIn::Dump ◄───┘
//!                         └──── Feed ──► RIB manager ── ShardIn::NextHops, Confirmed ──►
//! ```

use crate::attr::AttrSet;
use crate::peer::{FamilySet, FeedKind, PeerId, PeerInfo, PrefixLimits};
use crate::presence::Presence;
use crate::watch::WatchSet;
use ribtide_policy::{Named, PrefixSet};
pub use ribtide_prefix::TrackedNextHop;
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamilies, BgpFamily, Families, Prefix, for_each_bgp_family, per_bgp_family,
    per_family,
};
use ribtide_wire::bgp::nlri::PathPrefix;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;

per_bgp_family! {
    /// Prefixes, per family.
    #[derive(Clone, Copy, Debug)]
    pub struct Prefixes<F> = Vec<Prefix<F>>;
}

per_bgp_family! {
    /// Prefixes with path identifiers, per family.
    #[derive(Clone, Copy, Debug)]
    pub struct PathPrefixes<F> = Vec<PathPrefix<F>>;
}

/// The prefixes of each family.
pub fn by_family(prefixes: &[AnyPrefix]) -> BgpFamilies<Prefixes> {
    let mut families: BgpFamilies<Prefixes> = BgpFamilies::default();
    for prefix in prefixes {
        match prefix {
            AnyPrefix::V4(prefix) => families.v4.push(*prefix),
            AnyPrefix::V6(prefix) => families.v6.push(*prefix),
        }
    }
    families
}

/// Input of a shard.
#[derive(Debug)]
pub enum ShardIn {
    /// A session reached Established. Precedes its first batch on the same queue.
    PeerUp(Arc<PeerInfo>),
    /// The session ended: all of its routes are removed, but those of retained families. Retained routes of earlier sessions
    /// stay (RFC 8538 section 4.1).
    PeerDown {
        /// The peer.
        peer: PeerId,
        /// The number of its session; a late message of an earlier one is ignored.
        session: u32,
        /// Families whose routes stay in use until [`ShardIn::Sweep`], or until the next session of the
        /// peer replaces or withdraws them (RFC 4724 section 4.2).
        retained: FamilySet,
    },
    /// Retained routes of an ended session become long-lived stale: least preferred, with the community LLGR_STALE. Those with
    /// NO_LLGR are removed (RFC 9494 section 4.2).
    LongLived {
        /// The peer.
        peer: PeerId,
        /// The number of the ended session.
        session: u32,
        /// The families, retained or not.
        families: FamilySet,
    },
    /// The routes of an ended session that were retained are removed.
    Sweep {
        /// The peer.
        peer: PeerId,
        /// The number of the ended session.
        session: u32,
        /// The families, retained or not.
        families: FamilySet,
    },
    /// The peer begins to send the routes of a family again: those that it has not sent by
    /// [`ShardIn::EndOfRefresh`] are removed then (RFC 7313).
    BeginOfRefresh {
        /// The peer.
        peer: PeerId,
        /// The number of its session.
        session: u32,
        /// The family.
        family: AfiSafi,
    },
    /// It has sent all of them. Without a begin, it changes nothing.
    EndOfRefresh {
        /// The peer.
        peer: PeerId,
        /// The number of its session.
        session: u32,
        /// The family.
        family: AfiSafi,
    },
    /// Routes, in the order received.
    Routes(UpdateBatch),
    /// A worker requests the best paths of a family, for joining members or a route refresh.
    Dump(DumpRequest),
    /// Changed states of next hops that the shard's routes use.
    NextHops(Vec<(TrackedNextHop, NextHopState)>),
    /// Whether workers get best paths only after confirmation by dataplanes. Off at the start.
    Suppress(bool),
    /// Outcomes of fed routes.
    Confirmed(Confirmation),
    /// The routes to watch from now on, in place of the former ones.
    Watch(Arc<WatchSet>),
}

/// Outcomes of a shard's fed routes in dataplanes; see [`Shard::fence`](crate::shard::Shard::fence).
/// Without the shard's fences and prefixes, it changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Confirmation {
    /// They have everything that was fed up to this fence, but for blocked prefixes. 0: unchanged.
    pub fence: u64,
    /// Prefixes that became blocked in the FIB (`true`) or unblocked. May name prefixes of other
    /// shards.
    pub blocked: Vec<(AnyPrefix, bool)>,
}

/// The changes of UPDATEs of one session for one shard.
#[derive(Debug)]
pub struct UpdateBatch {
    /// The peer.
    pub peer: PeerId,
    /// The number of its session.
    pub session: u32,
    /// Operations on the prefixes below: each takes the next `count` of its family.
    pub ops: Vec<RouteOp>,
    /// The prefixes.
    pub prefixes: BgpFamilies<Prefixes>,
}

/// The part of one UPDATE for one shard and family.
#[derive(Debug)]
pub struct RouteOp {
    /// The attributes announced, or `None` for a withdrawal.
    pub attrs: Option<AttrSet>,
    /// The path identifier of its prefixes (RFC 7911); 0 where the session has none.
    pub path_id: u32,
    /// The family of its prefixes.
    pub family: AfiSafi,
    /// The number of its prefixes.
    pub count: u32,
}

/// The state of a registered next hop in the RIB manager, or that it must be registered by prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHopState {
    /// With the interior cost of RFC 4271 section 9.1.2.2 e.
    Reachable {
        /// Metric of the resolving route. For a route of BGP, its accumulated IGP metric and the cost of its own next hop
        /// (RFC 7311 section 4.2).
        cost: u32,
        /// Whether a route of BGP without an accumulated IGP metric is on the way, so that the cost is of a part of it.
        partial: bool,
    },
    /// The same, while the route of the path's prefix has no other next hop. Such a path is fed
    /// without multipath members and backup.
    ReachableAlone {
        /// As above.
        cost: u32,
        /// As above.
        partial: bool,
    },
    /// Routes through it cannot be used.
    Unreachable,
    /// For a next hop with an `exclude` that the shard has not registered. Without it, the state
    /// depends on BGP's own route of that prefix, so its paths must register it with the prefix.
    PerPrefix,
}

impl NextHopState {
    /// The interior cost, where paths with it can be used.
    #[inline]
    pub fn cost(self) -> Option<u32> {
        match self {
            NextHopState::Reachable { cost, .. } | NextHopState::ReachableAlone { cost, .. } => Some(cost),
            NextHopState::Unreachable | NextHopState::PerPrefix => None,
        }
    }

    /// Whether selection and forwarding are the same in both states.
    pub(crate) fn is_as_near(self, other: NextHopState) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other) && self.cost() == other.cost()
    }

    /// What an accumulated IGP metric grows by where this router becomes the next hop, or [`UNKNOWN_DISTANCE`].
    pub(crate) fn distance(self) -> Option<u32> {
        match self {
            NextHopState::Reachable { partial: true, .. }
            | NextHopState::ReachableAlone { partial: true, .. } => Some(UNKNOWN_DISTANCE),
            state => Some(state.cost()?.min(UNKNOWN_DISTANCE - 1)),
        }
    }
}

/// The distance over a way of which a part is not known: the accumulated IGP metric ends there (RFC 7311 section 3.4.3).
pub const UNKNOWN_DISTANCE: u32 = u32::MAX;

/// Changes of best paths, from one shard to every worker.
#[derive(Debug, Default)]
pub struct BestBatch {
    /// The paths of the changes, by index. Each is listed once, unless it was removed and added
    /// within the batch.
    pub paths: Vec<BestPath>,
    /// The changes.
    pub changes: BgpFamilies<Changes>,
}

/// A path for egress workers.
#[derive(Clone, Debug)]
pub struct BestPath {
    /// Its attributes.
    pub attrs: AttrSet,
    /// The peer that sent it.
    pub source: PeerId,
    /// An aggregate suppresses it: only groups whose `unsuppress` policy accepts it get it.
    pub suppressed: bool,
}

per_bgp_family! {
    /// Best-path changes, per family.
    #[derive(Clone, Copy, Debug)]
    pub struct Changes<F> = Vec<Change<F>>;
}

/// A changed best path of one prefix. `old` equals `new` of the previous change (or dump) of this
/// prefix on the same queue; advertised paths are derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Change<F: BgpFamily> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// Index of the former best path in [`BestBatch::paths`], or [`NONE`].
    pub old: u32,
    /// Index of the new one, or [`NONE`].
    pub new: u32,
}

/// Changes of the ranked paths of prefixes, from one shard to the workers that need more than the best
/// path of each.
#[derive(Debug, Default)]
pub struct RankedBatch {
    /// The paths, by index; see [`BestBatch::paths`].
    pub paths: Vec<BestPath>,
    /// The former and the new paths of each change, the former first.
    pub ranked: Vec<RankedPath>,
    /// The changes.
    pub changes: BgpFamilies<RankedChanges>,
}

/// A path among the ranked ones of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankedPath {
    /// Its index in [`RankedBatch::paths`].
    pub path: u32,
    /// Its path identifier for peers (RFC 7911): unique in the prefix, the same as long as the path is there, never 0.
    pub id: u32,
    /// Whether it is the best path or equals it up to the tie-breaking rules.
    pub equal: bool,
}

per_bgp_family! {
    /// Changes of ranked paths, per family.
    #[derive(Clone, Copy, Debug)]
    pub struct RankedChanges<F> = Vec<RankedChange<F>>;
}

/// The ranked paths of one prefix changed. The former ones equal the new ones of the previous change (or
/// dump) of this prefix on the same queue; advertised paths are derived from them.
#[derive(Clone, Copy, Debug)]
pub struct RankedChange<F: BgpFamily> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// Where its former paths begin in [`RankedBatch::ranked`].
    pub start: u32,
    /// How many these are.
    pub old: u32,
    /// How many new ones follow.
    pub new: u32,
}

impl RankedBatch {
    /// Adds the changes of another batch.
    pub fn append(&mut self, other: &RankedBatch) {
        let (paths, ranked) = (self.paths.len() as u32, self.ranked.len() as u32);
        self.paths.extend_from_slice(&other.paths);
        self.ranked.extend(other.ranked.iter().map(|one| RankedPath { path: one.path + paths, ..*one }));
        for_each_bgp_family!(F => {
            let changes = other.changes.get::<F>().iter();
            let changes = changes.map(|change| RankedChange { start: change.start + ranked, ..*change });
            self.changes.get_mut::<F>().extend(changes);
        });
    }

    /// The former and the new paths of one of its changes, each from the best on.
    pub fn of<F: BgpFamily>(&self, change: &RankedChange<F>) -> (&[RankedPath], &[RankedPath]) {
        let start = change.start as usize;
        let middle = start + change.old as usize;
        (&self.ranked[start..middle], &self.ranked[middle..middle + change.new as usize])
    }
}

/// No path.
pub const NONE: u32 = u32::MAX;

/// A worker's request for best paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DumpRequest {
    /// The worker.
    pub worker: u32,
    /// Returned with every part of the reply.
    pub token: u64,
    /// The family.
    pub family: AfiSafi,
    /// The prefixes.
    pub scope: DumpScope,
    /// Whether it needs the ranked paths of each prefix, and changes of these from now on.
    pub ranked: bool,
}

/// The prefixes of a dump: those in one of some prefix sets; by default all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DumpScope(pub Option<Arc<[Arc<Named<PrefixSet>>]>>);

impl DumpScope {
    /// Whether it has a prefix.
    #[inline]
    pub fn has<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.0.as_ref().is_none_or(|sets| sets.iter().any(|set| set.set().contains(prefix)))
    }
}

/// A message of a shard or a session to a worker.
#[derive(Debug)]
pub enum EgressIn {
    /// Changes; the same batch goes to every worker.
    Best(Arc<BestBatch>),
    /// A part of a dump: `old` is always [`NONE`]. It is ordered with `Best`, so a member that
    /// follows both from the request on ends with the current paths.
    Dump {
        /// The token of the request.
        token: u64,
        /// The paths.
        batch: BestBatch,
        /// Whether this shard has sent everything.
        last: bool,
    },
    /// Best paths of some prefixes, to be packed for stations and not for members; see
    /// [`Worker::take_mirrored`](crate::egress::Worker::take_mirrored). Ordered with `Best`.
    Mirror {
        /// Returned with the messages.
        token: u64,
        /// The paths: `old` is always [`NONE`].
        batch: Arc<BestBatch>,
        /// Ranked paths of these prefixes, without former ones, while workers need them.
        ranked: Arc<RankedBatch>,
    },
    /// Changes of ranked paths; the same batch goes to every worker that needs them.
    Ranked(Arc<RankedBatch>),
    /// A part of a dump of ranked paths, without former ones; ordered with `Ranked`.
    RankedDump {
        /// The token of the request.
        token: u64,
        /// The paths.
        batch: RankedBatch,
        /// Whether this shard has sent everything.
        last: bool,
    },
    /// A session reached Established: the worker owns its egress from now on, and requests dumps.
    MemberUp(Arc<PeerInfo>),
    /// A member's egress settings changed, but for the families; its session continues.
    MemberChanged(Arc<PeerInfo>),
    /// A session ended.
    MemberDown(PeerId),
    /// How many prefixes a member may be sent.
    MaxPrefixes(PeerId, PrefixLimits),
    /// The peer asked for a family again (RFC 2918), or an operator did. `true`: the peer understands marks of its begin and end
    /// (RFC 7313).
    Refresh(PeerId, AfiSafi, bool),
    /// The presence of routes that export policies and default routes depend on.
    Presence(Arc<Presence>),
    /// A peer came up elsewhere: sources must be known before their paths. A peer whose
    /// [`PeerKind`](crate::peer::PeerKind) changes gets another number.
    SourceUp(Arc<PeerInfo>),
    /// A member's write queue became full, or has room again.
    Backlog {
        /// The member.
        peer: PeerId,
        /// Whether it is full.
        blocked: bool,
    },
}

/// Changed routes from a shard to the RIB manager: only changed next-hop sets, never a changed AS
/// path alone.
#[derive(Debug, Default)]
pub struct Feed {
    /// Distinct next-hop sets that the changes name by index.
    pub sets: Vec<FeedSet>,
    /// Prefix and index of its set, or [`NONE`] when BGP has no route any more. Of the families whose routes are
    /// installed.
    pub changes: Families<FeedChanges>,
}

/// The next hops of a BGP route, as received. Without link-local addresses beside global ones,
/// which need an interface.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FeedSet {
    /// Gateways; the unspecified address discards. And what share of the traffic each has, 1 to [`SHARES`](crate::link_bandwidth::SHARES), each once, in the order of
    /// their addresses: of the best path and of those that share its traffic.
    pub next_hops: SmallVec<[(IpAddr, u16); 4]>,
    /// The kind of peer of these paths.
    pub kind: FeedKind,
    /// The backup while none of them resolves: another gateway, and the kind of its peer.
    pub backup: Option<(IpAddr, FeedKind)>,
}

per_family! {
    /// Feed changes, per address family.
    #[derive(Clone, Copy, Debug)]
    pub struct FeedChanges<F> = Vec<(Prefix<F>, u32)>;
}
