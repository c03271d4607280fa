//! Input and output of the RIB manager. Every message is a batch.
//!
//! ```text
//! BGP, static ── RibIn::Routes ──┐                   ┌── Arc<FibBatch> ──► kernel
//! kernel, configuration ─────────┼──► Rib::handle ───┼── Arc<FibBatch> ──► FPM
//!        RibIn::Interface        │                   ├── Arc<FibBatch> ──► virtual ASIC
//! dataplanes ── RibIn::Ack ──────┘                   ├── next hops ──────► BGP
//!                                                    └── confirmed, blocked ► BGP
//! ```

pub use ribtide_prefix::TrackedNextHop;
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AnyPrefix, Families, Family, Prefix, per_family};
use std::fmt;
use std::net::IpAddr;

/// The kernel's number of an interface, or a configured one of the virtual ASIC. Never 0.
pub type IfIndex = u32;

/// Number of a dataplane, assigned by the host of the stages.
pub type DataplaneId = u8;

/// Number of a VRF, given by the program that connects the stages. The number of a removed VRF should stay unused for a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct VrfId(pub u8);

impl VrfId {
    /// The default VRF, which is always there.
    pub const DEFAULT: VrfId = VrfId(0);
}

/// A VRF as dataplanes know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Vrf {
    /// Which.
    pub id: VrfId,
    /// The kernel's routing table for it. Of no meaning for the default VRF, whose table the kernel dataplane is given.
    pub table: u32,
    /// The number of the interface that stands for it, which is what SONiC knows it by; 0 for the default VRF.
    pub device: IfIndex,
}

/// A prefix of a VRF. Out of a prefix alone: of the default one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VrfPrefix {
    /// The VRF.
    pub vrf: VrfId,
    /// The prefix.
    pub prefix: AnyPrefix,
}

impl From<AnyPrefix> for VrfPrefix {
    fn from(prefix: AnyPrefix) -> VrfPrefix {
        VrfPrefix { vrf: VrfId::DEFAULT, prefix }
    }
}

impl fmt::Display for VrfPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vrf {
            VrfId::DEFAULT => self.prefix.fmt(f),
            VrfId(n) => write!(f, "{} in VRF {n}", self.prefix),
        }
    }
}

/// No set: a withdrawal in [`RouteChanges`].
pub const NONE: u32 = u32::MAX;

/// The announcer of routes. A source has at most one candidate for a prefix; a new one replaces it.
/// Static routes have one candidate for each distance, and a withdrawal removes all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// Addresses of interfaces; the RIB makes these routes from [`InterfaceEvent`].
    Connected,
    /// Routes that other programs installed in the kernel.
    Kernel,
    /// Configuration.
    Static,
    /// BGP, external and internal.
    Bgp,
}

/// How a route was learnt. The order breaks ties between equal distances and metrics: the lower wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Protocol {
    /// An address or subnet of an interface that is up.
    Connected,
    /// Configured.
    Static,
    /// BGP from another AS.
    BgpExternal,
    /// BGP from the own AS.
    BgpInternal,
    /// Installed in the kernel by another program.
    Kernel,
}

impl Protocol {
    /// All protocols, in their order.
    pub const ALL: [Protocol; 5] = [
        Protocol::Connected,
        Protocol::Static,
        Protocol::BgpExternal,
        Protocol::BgpInternal,
        Protocol::Kernel,
    ];

    /// The administrative distance of the protocol's routes without configuration.
    pub fn default_distance(self) -> u8 {
        match self {
            Protocol::Connected | Protocol::Kernel => 0,
            Protocol::Static => 1,
            Protocol::BgpExternal => 20,
            Protocol::BgpInternal => 200,
        }
    }

    /// The announcer of the protocol's routes.
    pub fn source(self) -> Source {
        match self {
            Protocol::Connected => Source::Connected,
            Protocol::Static => Source::Static,
            Protocol::BgpExternal | Protocol::BgpInternal => Source::Bgp,
            Protocol::Kernel => Source::Kernel,
        }
    }

    /// The name used in output and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Connected => "connected",
            Protocol::Static => "static",
            Protocol::BgpExternal => "ebgp",
            Protocol::BgpInternal => "ibgp",
            Protocol::Kernel => "kernel",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A next hop as the protocol gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReceivedHop {
    /// The address to send to; absent when the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// The interface to leave by; with a gateway, resolution must end on it.
    pub interface: Option<IfIndex>,
    /// Share of the traffic relative to the other hops; 0 counts as 1.
    pub weight: u16,
    /// The gateway is taken to be on `interface`'s link without asking the table.
    pub onlink: bool,
}

impl ReceivedHop {
    /// A gateway of weight 1 that the table resolves. The zone of a link-local address is its interface.
    pub fn gateway(address: IpAddr) -> ReceivedHop {
        let (gateway, interface) = split_zone(address);
        ReceivedHop { gateway: Some(gateway), interface, weight: 1, onlink: false }
    }

    /// Direct delivery on the link of `interface`.
    pub fn interface(interface: IfIndex) -> ReceivedHop {
        ReceivedHop { gateway: None, interface: Some(interface), weight: 1, onlink: false }
    }
}

/// The forwarding of a route, as the protocol gave it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NextHops {
    /// Any of these hops, by weight. In any order: the RIB sorts them and drops repetitions.
    Via(Vec<ReceivedHop>),
    /// Packets are discarded, on purpose: next hops that resolve by such a route discard too.
    Blackhole,
    /// The router does not forward to the prefix: its route refuses packets, or sends the look-up to another table. No
    /// next hop resolves by such a route (RFC 4271 section 9.1.2.1).
    Unreachable,
}

impl NextHops {
    /// The hops; none of a route that does not forward.
    pub fn hops(&self) -> &[ReceivedHop] {
        match self {
            NextHops::Via(hops) => hops,
            NextHops::Blackhole | NextHops::Unreachable => &[],
        }
    }
}

/// Everything that many routes of a batch share: all but the prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteSet {
    /// The next hops.
    pub next_hops: NextHops,
    /// Used while none of `next_hops` resolves. Resolved in advance, so the loss of the last next
    /// hop changes a group and no route. Another route of the prefix does not take over. In any
    /// order.
    pub backup: Vec<ReceivedHop>,
    /// `allow_recursion` of the backup hops.
    pub backup_recursion: bool,
    /// A condition: while it does not hold, the routes are unresolved.
    pub track: Option<Track>,
    /// Administrative distance: the lowest wins. 255 is never used.
    pub distance: u8,
    /// Among equal distances the lowest wins. Of a route of BGP it is the accumulated IGP metric, at least 1; 0: it has none.
    pub metric: u32,
    /// Whether gateways may resolve through routes that are not connected: internal BGP, multihop external BGP,
    /// static. A gateway that may not recurse must be on a connected subnet.
    pub allow_recursion: bool,
    /// How the routes were learnt; its [`Protocol::source`] must be the batch's.
    pub protocol: Protocol,
}

/// A condition of a route's use, beside its next hops. The route itself never fulfils it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Track {
    /// This interface is up.
    Interface(IfIndex),
    /// A resolved route for exactly this prefix exists, a blackhole included.
    Prefix(AnyPrefix),
    /// Some route resolves this address, by the rules of next hops that may recurse.
    Address(IpAddr),
}

/// Routes that one source announces and withdraws.
#[derive(Clone, Debug)]
pub struct RouteBatch {
    /// Their VRF.
    pub vrf: VrfId,
    /// Their announcer.
    pub source: Source,
    /// Distinct sets that the changes name by index.
    pub sets: Vec<RouteSet>,
    /// The changes, in order.
    pub changes: Families<RouteChanges>,
}

per_family! {
    /// Changed routes per family: the prefix and the index of its set, or [`NONE`] to withdraw it.
    #[derive(Clone, Copy, Debug)]
    pub struct RouteChanges<F> = Vec<(Prefix<F>, u32)>;
}

/// The whole present state of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceEvent {
    /// The VRF that it is in.
    pub vrf: VrfId,
    /// Its number.
    pub index: IfIndex,
    /// Its name, for output.
    pub name: String,
    /// Whether it carries packets: administratively up and with carrier.
    pub up: bool,
    /// Whether it leads back to the host. Then every address of its subnets is the router's own.
    pub loopback: bool,
    /// The router's own addresses on it, each with the subnet that the link has: on a point-to-point
    /// link the peer's, which does not hold the own address.
    pub addresses: Vec<(IpAddr, AnyPrefix)>,
}

/// Whether packets reach a neighbour, as BFD detects. Neighbours count as reachable until an event
/// declares them down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayEvent {
    /// The neighbour.
    pub address: IpAddr,
    /// The interface of the session; without one, the event covers all interfaces, and next hops
    /// that resolve through other routes.
    pub interface: Option<IfIndex>,
    /// Whether next hops may resolve to it.
    pub usable: bool,
}

/// Input of the RIB.
#[derive(Clone, Debug)]
pub enum RibIn {
    /// Routes of a source.
    Routes(RouteBatch),
    /// A source has announced its initial routes; see [`crate::RibConfig::initial_sources`].
    EndOfInitial(Source),
    /// An interface appeared or changed.
    Interface(InterfaceEvent),
    /// An interface is gone.
    InterfaceRemoved(IfIndex),
    /// BFD declares a gateway down or up.
    Gateway(GatewayEvent),
    /// BGP registers next hops. Each registration is answered once, and then every change is
    /// notified. An unregistration cancels one registration.
    Track(Vec<TrackedNextHop>),
    /// BGP unregisters next hops.
    Untrack(Vec<TrackedNextHop>),
    /// A dataplane is ready and holds unknown state: it gets a replay, in [`RibOut::replay`].
    DataplaneUp(DataplaneId),
    /// A dataplane is down: nothing is sent to it or expected from it until it is up again.
    DataplaneDown(DataplaneId),
    /// A dataplane's queue is full, and other dataplanes do not wait for it. Changes go to its
    /// dirty set, which is sent after it has acknowledged nearly all outstanding batches.
    Lagging(DataplaneId),
    /// A dataplane finished batches.
    Ack(FibAck),
    /// Whether a dataplane holds back routes of its replay, because it found others in their place.
    /// While it does, it confirms nothing. Sent before the acknowledgement of the first such route.
    Holding(DataplaneId, bool),
    /// A dataplane tries some failed routes again, because the cause may have ended.
    Retry(DataplaneId),
    /// The announcer requests [`RibOut::confirmed`] when every route that it announced before is in
    /// place. Ignored without [`RibIn::Suppress`].
    Confirm(FeedFence),
    /// Whether routes are confirmed and blocked ones reported from now on. Off at the start.
    Suppress(bool),
}

/// Ends the routes that an announcer sent so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedFence {
    /// The announcing source: a number that is never reused.
    pub announcer: u32,
    /// Rises from fence to fence of the announcer.
    pub seq: u64,
}

/// The effects of [`crate::Rib::handle`].
#[derive(Debug, Default)]
pub struct RibOut {
    /// Changes for every dataplane that is up but those in `lagging`; sent before `replay`.
    pub fib: Option<FibBatch>,
    /// Dataplanes that do not get `fib`.
    pub lagging: Vec<DataplaneId>,
    /// Pages for one dataplane each, in order: of the whole state, or of its dirty set. Live batches may come between
    /// pages.
    pub replay: Vec<(DataplaneId, FibBatch)>,
    /// Changed states of registered next hops, each next hop at most once.
    pub next_hops: Vec<(TrackedNextHop, Reachability)>,
    /// Next hops with an `exclude` that are not registered. Without it, their state depends on
    /// BGP's own route of that prefix. Paths of the prefix must register with it, so that BGP's
    /// choice does not depend on itself.
    pub per_prefix: Vec<TrackedNextHop>,
    /// Flapping next hops, and the new delay of their reachability in milliseconds, where it is
    /// longer than before; see [`crate::RibConfig::damping`].
    pub delayed: Vec<(TrackedNextHop, u64)>,
    /// Prefixes that became blocked (`true`) or unblocked, in order. Sent before `confirmed`.
    pub blocked: Vec<(AnyPrefix, bool)>,
    /// Fences of announcers, each announcer once: every configured dataplane has all routes before
    /// the fence but the blocked ones.
    pub confirmed: Vec<FeedFence>,
    /// Changes of redistributed routes, in order: the protocol of the route of a prefix, or `None`
    /// when it is no longer redistributed. Sent after `fib`.
    pub redistributed: Vec<(AnyPrefix, Option<Protocol>)>,
}

/// Whether a tracked next hop resolves, and the cost of the route that resolves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reachability {
    /// With the interior cost of RFC 4271 section 9.1.2.2 e.
    Reachable {
        /// Metric of the resolving route; 0 when it is connected. For a route of BGP, its accumulated IGP metric and the
        /// cost of its own next hop (RFC 7311 section 4.2).
        cost: u32,
        /// Whether a route of BGP without an accumulated IGP metric is on the way, so that the cost is of a part of it.
        partial: bool,
    },
    /// The same, for a next hop with an `exclude`, while that prefix's route has no other next hop:
    /// the answer depends on that route, so it may not resolve together with others.
    ReachableAlone {
        /// As above.
        cost: u32,
        /// As above.
        partial: bool,
    },
    /// No usable route resolves it.
    Unreachable,
}

impl Reachability {
    /// The interior cost, where it is reachable.
    pub fn cost(self) -> Option<u32> {
        match self {
            Reachability::Reachable { cost, .. } | Reachability::ReachableAlone { cost, .. } => Some(cost),
            Reachability::Unreachable => None,
        }
    }
}

/// Identity of a next-hop group. Never 0, so that it can serve as the kernel's nexthop id; the number of a
/// deleted group may be used again by a later batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

/// One outgoing hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FibHop {
    /// The neighbour to send to, of either family whatever the route's (RFC 8950); absent when the destination
    /// itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface to leave by.
    pub interface: IfIndex,
    /// Share of the traffic, at least 1.
    pub weight: u16,
    /// The gateway lies in no subnet of the interface: the kernel must not check that it does.
    pub onlink: bool,
}

/// What a group does with packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FibGroup {
    /// Sends them to one of these: at least one, sorted, no two with equal gateway and interface.
    Hops(Vec<FibHop>),
    /// Discards them.
    Blackhole,
    /// Unresolved: forwards nothing, and a less specific route forwards instead. The deletion of
    /// the routes, or their move to another group, follows. A dataplane whose protocol has no empty
    /// group keeps the old content until then.
    Unresolved,
}

/// A group to create or change. Its routes stay as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOp {
    /// Which.
    pub id: GroupId,
    /// The complete content.
    pub content: FibGroup,
    /// The source address of this machine's own packets over its routes, of their family. It never
    /// changes.
    pub source: Option<IpAddr>,
}

/// New content of one group, applied before any waiting batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrgentOp {
    /// The latest batch at its creation.
    pub after: u64,
    /// The batch that created the group. A dataplane that came up later received the group in its
    /// replay.
    pub made: u64,
    /// The group and its content. Its routes stay as they are.
    pub op: GroupOp,
}

/// A route to install, replace or delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FibRoute<F: Family> {
    /// Which.
    pub prefix: Prefix<F>,
    /// The new group, or `None` to delete the route.
    pub group: Option<GroupId>,
    /// The protocol of the route, or of the deleted one. The kernel makes [`Protocol::Connected`]
    /// routes itself and already has [`Protocol::Kernel`] ones: its dataplane only removes its own
    /// route of another protocol there.
    pub protocol: Protocol,
}

per_family! {
    /// FIB routes per family.
    #[derive(Clone, Copy, Debug)]
    pub struct FibRoutes<F> = Vec<FibRoute<F>>;
}

/// Changes of the FIB, to be applied in the order of the fields: every named object then exists,
/// and no used object is deleted.
///
/// Immutable, so that all dataplanes share one copy.
#[derive(Clone, Debug, Default)]
pub struct FibBatch {
    /// Rises from batch to batch; the acknowledgement names it. A dataplane sees gaps: pages of another's replay.
    pub seq: u64,
    /// The VRF of its routes. Group numbers are unique over all VRFs.
    pub vrf: Vrf,
    /// The first page of a replay, which covers all VRFs. The dataplane may ignore earlier batches.
    /// It keeps its older routes until the end of the replay, then removes those that no batch
    /// named since.
    pub start_of_replay: bool,
    /// Groups to create or change.
    pub groups: Vec<GroupOp>,
    /// Routes; a prefix occurs once.
    pub routes: Families<FibRoutes>,
    /// Groups to delete; no route uses them.
    pub after: Vec<GroupId>,
    /// The last page of a replay.
    pub end_of_replay: bool,
    /// Another attempt at routes that the dataplane failed; the routes themselves are unchanged.
    pub again: bool,
}

impl FibBatch {
    /// Whether it changes nothing and bounds no replay.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
            && self.route_count() == 0
            && self.after.is_empty()
            && !self.start_of_replay
            && !self.end_of_replay
    }

    /// The number of routes of all families.
    pub fn route_count(&self) -> usize {
        self.routes.v4.len() + self.routes.v6.len()
    }
}

/// A dataplane finished every batch up to `seq`. A `seq` of 0 finishes none and only reports later
/// outcomes of prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FibAck {
    /// Which dataplane.
    pub dataplane: DataplaneId,
    /// The latest batch that is finished.
    pub seq: u64,
    /// Prefixes of the finished batches that it could not install, each with the reason as a
    /// sentence.
    pub failed: Vec<(VrfPrefix, String)>,
    /// Prefixes that `failed` named before and that are now installed: after a retry, a new
    /// neighbour, or a later success of the hardware. None of them is in `failed` too.
    pub installed: Vec<VrfPrefix>,
}
