//! What goes into the RIB manager and what comes out. Every message is a batch.
//!
//! ```text
//! BGP, static ── RibIn::Routes ──┐                   ┌── Arc<FibBatch> ──► kernel
//! kernel, configuration ─────────┼──► Rib::handle ───┼── Arc<FibBatch> ──► FPM
//!        RibIn::Interface        │                   ├── Arc<FibBatch> ──► virtual ASIC
//! dataplanes ── RibIn::Ack ──────┘                   ├── next hops ──────► BGP
//!                                                    └── confirmed, blocked ► BGP
//! ```

use ribtide_prefix::{AnyPrefix, Families, Family, PerFamily, Prefix};
use std::fmt;
use std::net::IpAddr;

/// The kernel's number of an interface, or one that the configuration made up for the virtual ASIC. Never 0.
pub type IfIndex = u32;

/// Number of a dataplane, given by whoever wires the stages.
pub type DataplaneId = u8;

/// Number of a VRF, given by whoever wires the stages; that of a VRF that is gone should rest before it is another's.
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

/// Who announces routes. A source has at most one candidate for a prefix: its next one replaces the former. Of static
/// routes there is one for each distance, and a withdrawal takes all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// Addresses of interfaces; made by the RIB itself out of [`InterfaceEvent`].
    Connected,
    /// Routes that the kernel has from others.
    Kernel,
    /// Configuration.
    Static,
    /// BGP, whether external or internal.
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
    /// In the kernel from someone else.
    Kernel,
}

impl Protocol {
    /// All of them, in their order.
    pub const ALL: [Protocol; 5] = [
        Protocol::Connected,
        Protocol::Static,
        Protocol::BgpExternal,
        Protocol::BgpInternal,
        Protocol::Kernel,
    ];

    /// The administrative distance that routes of the protocol have when nothing else is configured.
    pub fn default_distance(self) -> u8 {
        match self {
            Protocol::Connected | Protocol::Kernel => 0,
            Protocol::Static => 1,
            Protocol::BgpExternal => 20,
            Protocol::BgpInternal => 200,
        }
    }

    /// Who announces such routes.
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
    /// A gateway of weight 1 that the table resolves.
    pub fn gateway(address: IpAddr) -> ReceivedHop {
        ReceivedHop { gateway: Some(address), interface: None, weight: 1, onlink: false }
    }

    /// The link of `interface` itself.
    pub fn interface(interface: IfIndex) -> ReceivedHop {
        ReceivedHop { gateway: None, interface: Some(interface), weight: 1, onlink: false }
    }
}

/// Where a route leads, as the protocol gave it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NextHops {
    /// Any of these, by weight. In any order: the RIB sorts them and drops repetitions.
    Via(Vec<ReceivedHop>),
    /// Packets are discarded.
    Blackhole,
}

/// What many routes of a batch have in common: everything but the prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteSet {
    /// Where to.
    pub next_hops: NextHops,
    /// Where to while none of `next_hops` resolves: resolved beforehand, so that the loss of the last of them changes
    /// a group and no route. Not a reason for another route of the prefix to take over. In any order.
    pub backup: Vec<ReceivedHop>,
    /// What `allow_recursion` is for those.
    pub backup_recursion: bool,
    /// What must hold; otherwise the routes are unresolved, whatever their next hops do.
    pub track: Option<Track>,
    /// Administrative distance: the lowest wins. 255 is never used.
    pub distance: u8,
    /// Among equal distances the lowest wins.
    pub metric: u32,
    /// Whether gateways may resolve through routes that are not connected: internal BGP, multihop external BGP,
    /// static. A gateway that may not recurse must be on a connected subnet.
    pub allow_recursion: bool,
    /// How the routes were learnt; its [`Protocol::source`] must be the batch's.
    pub protocol: Protocol,
}

/// What a route's use may hang on beside its next hops. Never on the route itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Track {
    /// That this interface is up.
    Interface(IfIndex),
    /// That there is a route for exactly this prefix, and it is resolved, be it a blackhole.
    Prefix(AnyPrefix),
    /// That some route leads to this address, by the rules of next hops that may recurse.
    Address(IpAddr),
}

/// Routes that one source announces and withdraws.
#[derive(Clone, Debug)]
pub struct RouteBatch {
    /// Of which VRF.
    pub vrf: VrfId,
    /// Who.
    pub source: Source,
    /// Distinct sets that the changes name by index.
    pub sets: Vec<RouteSet>,
    /// The changes, in order.
    pub changes: Families<RouteChanges>,
}

/// Changed routes per family: the prefix and the index of its set, or [`NONE`] to withdraw it.
#[derive(Clone, Copy, Debug)]
pub struct RouteChanges;
impl PerFamily for RouteChanges {
    type Of<F: Family> = Vec<(Prefix<F>, u32)>;
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
    /// The router's own addresses on it and the length of the on-link subnet of each.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Whether packets reach a neighbour, as BFD found out. Until it is said otherwise they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayEvent {
    /// The neighbour.
    pub address: IpAddr,
    /// The interface over which this is said; without one, over all, and over other routes too.
    pub interface: Option<IfIndex>,
    /// Whether next hops may lead to it.
    pub usable: bool,
}

/// Input of the RIB.
#[derive(Clone, Debug)]
pub enum RibIn {
    /// Routes of a source.
    Routes(RouteBatch),
    /// A source has announced everything it had at the start; see [`crate::RibConfig::initial_sources`].
    EndOfInitial(Source),
    /// An interface appeared or changed.
    Interface(InterfaceEvent),
    /// An interface is gone.
    InterfaceRemoved(IfIndex),
    /// A gateway can be used no more, or again.
    Gateway(GatewayEvent),
    /// BGP registers next hops. Each registration is answered, and then every change is, until the next hop was
    /// unregistered as often as it was registered.
    Track(Vec<TrackedNextHop>),
    /// BGP unregisters next hops.
    Untrack(Vec<TrackedNextHop>),
    /// A dataplane is ready and holds an unknown state: it gets everything, in [`RibOut::replay`].
    DataplaneUp(DataplaneId),
    /// A dataplane is gone: nothing is sent to it or expected from it until it is up again.
    DataplaneDown(DataplaneId),
    /// A dataplane takes no more for now, and others are not to wait for it: what changes is noted for it by prefix, and it
    /// gets that when it has acknowledged nearly all that it was sent.
    Lagging(DataplaneId),
    /// A dataplane finished batches.
    Ack(FibAck),
    /// A dataplane is to try some of what failed once more: whatever was wrong may be over.
    Retry(DataplaneId),
    /// The announcer wants to be notified when the routes that it announced before this are where they
    /// should be: [`RibOut::confirmed`]. Without [`RibIn::Suppress`], there is no answer.
    Confirm(FeedMark),
    /// Whether routes are confirmed from now on, and blocked ones told. Not at the start.
    Suppress(bool),
}

/// Ends what an announcer sent so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedMark {
    /// The announcing source: a number that no other has or had.
    pub announcer: u32,
    /// Rises from mark to mark of the announcer.
    pub seq: u64,
}

/// What [`crate::Rib::handle`] gives back.
#[derive(Debug, Default)]
pub struct RibOut {
    /// What changed, for every dataplane that is up but those in `lagging`; sent before `replay`.
    pub fib: Option<FibBatch>,
    /// Dataplanes that do not get `fib`.
    pub lagging: Vec<DataplaneId>,
    /// Pages for one dataplane each, in order: of the whole state, or of its dirty set. Live batches may come between
    /// pages.
    pub replay: Vec<(DataplaneId, FibBatch)>,
    /// Changed states of registered next hops, each next hop at most once.
    pub next_hops: Vec<(TrackedNextHop, Reachability)>,
    /// Next hops with an `exclude` that are not registered: the state of the same one without it depends on BGP's own route of
    /// that prefix. Paths of the prefix are to register it with the prefix, so that BGP's choice does not depend on itself.
    pub per_prefix: Vec<TrackedNextHop>,
    /// Next hops that changed often, and how many milliseconds good news of each is delayed from now on, where that is longer
    /// than before; see
    /// [`crate::RibConfig::damping`].
    pub delayed: Vec<(TrackedNextHop, u64)>,
    /// Prefixes that the FIB does not have as the RIB wants it (`true`), or has again, in order. Before `confirmed`.
    pub blocked: Vec<(AnyPrefix, bool)>,
    /// Announcers whose routes up to this mark every configured dataplane has, but for the blocked ones; each once.
    pub confirmed: Vec<FeedMark>,
}

/// A next hop as BGP registers it: the same address may be reachable for one kind of route and not for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrackedNextHop {
    /// The address in NEXT_HOP.
    pub address: IpAddr,
    /// As [`RouteSet::allow_recursion`]: false for paths of single-hop external sessions, whose next hops must be on
    /// a connected subnet (RFC 4271 section 5.1.3).
    pub recursive: bool,
    /// The prefix of the paths, where the address may recurse, and lies inside it or depends on it: a route does not resolve
    /// through itself (RFC 4271 section 9.1.2.1). The answer takes BGP's route of the prefix to be by this next hop alone.
    pub exclude: Option<AnyPrefix>,
}

/// Whether a tracked next hop resolves, and the cost of the route that resolves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reachability {
    /// With the interior cost of RFC 4271 section 9.1.2.2 e.
    Reachable {
        /// Metric of the resolving route; 0 when it is connected.
        cost: u32,
    },
    /// Nothing leads there.
    Unreachable,
}

/// Identity of a next-hop group. Never 0, so that it can serve as the kernel's nexthop id; the number of a
/// deleted group may be used again by a later batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

/// One way out.
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
    /// Sends them out by one of these: at least one, sorted, no two with equal gateway and interface.
    Hops(Vec<FibHop>),
    /// Discards them.
    Blackhole,
    /// Nothing: its last next hop became unresolved. A route with this group forwards nothing, and a less specific route
    /// forwards in its place; the deletion of the route, or its move to another group, follows. A dataplane whose protocol
    /// has no empty group leaves the group as it is, and waits for the routes.
    Unresolved,
}

/// A group to create or to give new content. Routes that use it stay as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOp {
    /// Which.
    pub id: GroupId,
    /// All of its content.
    pub content: FibGroup,
    /// The address that packets of this machine itself have as their source over its routes, of their family. A group
    /// has it for as long as it is there.
    pub source: Option<IpAddr>,
}

/// New content of one group, to be carried out before any batch that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UrgentOp {
    /// The batch that it was made after: the latest one then.
    pub after: u64,
    /// The batch that made the group. A dataplane that was not up by then learnt of the group later, in its replay.
    pub made: u64,
    /// The group and its content. Routes that use it stay as they are.
    pub op: GroupOp,
}

/// A route to install, replace or delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FibRoute<F: Family> {
    /// Which.
    pub prefix: Prefix<F>,
    /// The group it uses from now on, or `None` to delete it.
    pub group: Option<GroupId>,
    /// How it was learnt; of a deletion, how the deleted route was learnt. The kernel makes
    /// [`Protocol::Connected`] routes itself and has [`Protocol::Kernel`] ones already: its dataplane only
    /// removes what it had installed there under another protocol.
    pub protocol: Protocol,
}

/// FIB routes per family.
#[derive(Clone, Copy, Debug)]
pub struct FibRoutes;
impl PerFamily for FibRoutes {
    type Of<F: Family> = Vec<FibRoute<F>>;
}

/// Changes of the FIB, to be carried out in the order of the fields: whatever is named exists by then, and
/// nothing that is used goes.
///
/// Never changes once made, so that all dataplanes share one copy.
#[derive(Clone, Debug, Default)]
pub struct FibBatch {
    /// Rises from batch to batch; the acknowledgement names it. A dataplane sees gaps: pages of another's replay.
    pub seq: u64,
    /// The VRF that its routes are of. Groups need none: their numbers are of all VRFs.
    pub vrf: Vrf,
    /// The first page of a replay, which is of all VRFs. What a dataplane got before it, it may ignore; what it holds from before it
    /// must keep until the end of the replay, then remove what no batch since this one named.
    pub start_of_replay: bool,
    /// Groups to create or change.
    pub groups: Vec<GroupOp>,
    /// Routes; a prefix occurs once.
    pub routes: Families<FibRoutes>,
    /// Groups to delete, used by no route any more.
    pub after: Vec<GroupId>,
    /// The last page of a replay.
    pub end_of_replay: bool,
    /// Its routes are as they were; the dataplane failed them and is to try once more, from the beginning.
    pub again: bool,
}

impl FibBatch {
    /// Whether there is nothing to do and nothing to mark.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
            && self.route_count() == 0
            && self.after.is_empty()
            && !self.start_of_replay
            && !self.end_of_replay
    }

    /// How many routes it has, of all families.
    pub fn route_count(&self) -> usize {
        self.routes.v4.len() + self.routes.v6.len()
    }
}

/// A dataplane finished every batch up to `seq`. With a `seq` of 0 it finished none and only says what became of
/// prefixes since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FibAck {
    /// Which dataplane.
    pub dataplane: DataplaneId,
    /// The latest batch that is finished.
    pub seq: u64,
    /// Prefixes of the finished batches that could not be installed, and why, as a sentence.
    pub failed: Vec<(VrfPrefix, String)>,
    /// Prefixes that were reported in `failed` before and are now as the RIB manager asked, whatever helped: a
    /// later try, a neighbour that appeared, another answer of the hardware. None of them is in `failed` too.
    pub installed: Vec<VrfPrefix>,
}
