//! What crosses between reader, shard, egress worker and RIB manager. Every message is a batch.
//!
//! ```text
//! reader ── ShardIn ──► shard ── BestBatch ──► egress worker ── Output ──► sessions
//!                         │ ▲                     │
//!                         │ └── ShardIn::Dump ◄───┘
//!                         └──── Feed ──► RIB manager ── ShardIn::NextHops, Confirmed ──►
//! ```

use crate::attr::AttrSet;
use crate::peer::{FeedKind, PeerId, PeerInfo};
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, PerFamily, Prefix};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;

/// Prefixes, per family.
#[derive(Clone, Copy, Debug)]
pub struct Prefixes;
impl PerFamily for Prefixes {
    type Of<F: Family> = Vec<Prefix<F>>;
}

/// Input of a shard.
#[derive(Debug)]
pub enum ShardIn {
    /// A session reached Established. Precedes its first batch on the same queue.
    PeerUp(Arc<PeerInfo>),
    /// The session ended: everything learnt on it goes.
    PeerDown {
        /// Whose.
        peer: PeerId,
        /// Which session of it; a late message about an earlier one changes nothing.
        session: u32,
    },
    /// Routes, in the order received.
    Routes(UpdateBatch),
    /// A worker wants the current best paths of a family, for members that joined or asked for a refresh.
    Dump(DumpRequest),
    /// What became of next hops that the shard's routes use. Sent only when something changed.
    NextHops(Vec<(TrackedNextHop, NextHopState)>),
    /// Whether workers are told best paths only when dataplanes have confirmed them. Not so at the start.
    Suppress(bool),
    /// What became of the routes that were fed.
    Confirmed(Confirmation),
}

/// What dataplanes did with the routes that a shard fed; see [`Shard::mark`](crate::shard::Shard::mark). Of a shard's
/// marks and prefixes, one that says nothing of them changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Confirmation {
    /// They have everything that was fed up to this mark, but for blocked prefixes. 0: nothing new.
    pub mark: u64,
    /// Prefixes that the FIB does not have as it should (`true`), or has again. May name prefixes of other shards.
    pub blocked: Vec<(AnyPrefix, bool)>,
}

/// What one or more UPDATEs of one session say of the prefixes of one shard.
#[derive(Debug)]
pub struct UpdateBatch {
    /// From whom.
    pub peer: PeerId,
    /// Which session of that peer.
    pub session: u32,
    /// What to do with the prefixes below: each operation takes the next `count` of its family.
    pub ops: Vec<RouteOp>,
    /// The prefixes.
    pub prefixes: Families<Prefixes>,
}

/// One UPDATE's worth for one shard and family.
#[derive(Debug)]
pub struct RouteOp {
    /// The attributes announced, or `None` for a withdrawal.
    pub attrs: Option<AttrSet>,
    /// Which family's prefixes.
    pub afi: Afi,
    /// How many.
    pub count: u32,
}

/// A next hop that a shard's paths use: the same address may be reachable for one kind of path and not for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrackedNextHop {
    /// The address in NEXT_HOP.
    pub address: IpAddr,
    /// As [`FeedKind::recursive`]: next hops of single-hop external sessions must be on link (RFC 4271 section 5.1.3).
    pub recursive: bool,
    /// The prefix of the paths, where the address lies inside it or depends on it ([`NextHopState::PerPrefix`]): a route does
    /// not resolve through itself (RFC 4271 section 9.1.2.1).
    pub exclude: Option<AnyPrefix>,
}

/// What the RIB manager says of a registered next hop: its reachability, or that the question needs a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHopState {
    /// With the interior cost of RFC 4271 section 9.1.2.2 e.
    Reachable {
        /// Metric of the resolving route.
        cost: u32,
    },
    /// Routes through it cannot be used.
    Unreachable,
    /// Said of a next hop with an `exclude` that the shard has not registered: without it the answer depends on BGP's own
    /// route of that prefix, so its paths by this next hop are to be registered with it.
    PerPrefix,
}

/// Changes of best paths, from one shard to every worker.
#[derive(Debug, Default)]
pub struct BestBatch {
    /// The paths that the changes name by index. Each is there once, unless it went and came back within the batch.
    pub paths: Vec<BestPath>,
    /// The changes.
    pub changes: Families<Changes>,
}

/// A path as an egress worker needs it.
#[derive(Clone, Debug)]
pub struct BestPath {
    /// Its attributes.
    pub attrs: AttrSet,
    /// Who sent it.
    pub source: PeerId,
}

/// Best-path changes, per family.
#[derive(Clone, Copy, Debug)]
pub struct Changes;
impl PerFamily for Changes {
    type Of<F: Family> = Vec<Change<F>>;
}

/// The best path of one prefix changed. `old` is what the previous change (or dump) of this prefix on the same
/// queue gave as `new`; what was advertised is derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Change<F: Family> {
    /// The prefix.
    pub prefix: Prefix<F>,
    /// Index of the former best path in [`BestBatch::paths`], or [`NONE`].
    pub old: u32,
    /// Index of the new one, or [`NONE`].
    pub new: u32,
}

/// No path.
pub const NONE: u32 = u32::MAX;

/// A worker asks for best paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpRequest {
    /// The worker.
    pub worker: u32,
    /// Given back with every part of the answer.
    pub token: u64,
    /// Which family.
    pub afi: Afi,
}

/// What goes from a shard to a worker.
#[derive(Debug)]
pub enum EgressIn {
    /// Changes; the same batch goes to every worker.
    Best(Arc<BestBatch>),
    /// Part of a dump: `old` is [`NONE`] throughout. Interleaves with `Best` in the order of events, so a
    /// member that follows both from the moment of the request ends with the truth.
    Dump {
        /// From the request.
        token: u64,
        /// The paths.
        batch: BestBatch,
        /// Whether this shard has sent all.
        last: bool,
    },
    /// A session reached Established: the worker owns its egress from now on. Answered by dump requests.
    MemberUp(Arc<PeerInfo>),
    /// What decides how routes are sent to a member is something else now, but for the families; its session lasts.
    MemberChanged(Arc<PeerInfo>),
    /// A session ended.
    MemberDown(PeerId),
    /// The peer asked for a family again (RFC 2918).
    Refresh(PeerId, Afi),
    /// A peer came up elsewhere: sources must be known before their paths can be judged. A peer whose
    /// [`PeerKind`](crate::peer::PeerKind) changes gets another number.
    SourceUp(Arc<PeerInfo>),
    /// Too many bytes wait to be written to a member, or few enough again.
    Backlog {
        /// The member.
        peer: PeerId,
        /// Whether it cannot take more.
        blocked: bool,
    },
}

/// What goes from a shard to the RIB manager: only changed next-hop sets, never a changed AS path alone.
#[derive(Debug, Default)]
pub struct Feed {
    /// Distinct next-hop sets that the changes name by index.
    pub sets: Vec<FeedSet>,
    /// Prefix and index of its set, or [`NONE`] when BGP has no route any more.
    pub changes: Families<FeedChanges>,
}

/// The next hops of a BGP route, as received. Addresses alone: a link-local one that came beside a global one says
/// nothing without its interface.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FeedSet {
    /// Gateways and what share of the traffic each has, 1 to [`SHARES`](crate::link_bandwidth::SHARES), each once, in the order of
    /// their addresses: of the best path and of those that share its traffic.
    pub next_hops: SmallVec<[(IpAddr, u16); 4]>,
    /// What kind of peer these paths came from.
    pub kind: FeedKind,
    /// What stands in while none of them resolves: none of them, and the kind of peer that it came from.
    pub backup: Option<(IpAddr, FeedKind)>,
}

/// Feed changes, per family.
#[derive(Clone, Copy, Debug)]
pub struct FeedChanges;
impl PerFamily for FeedChanges {
    type Of<F: Family> = Vec<(Prefix<F>, u32)>;
}
