//! The query of one next hop to the table, and its answer; "query" in
//! `docs/adr/0020-next-hop-resolution.md`.

use crate::group::Group;
use crate::message::{FibHop, IfIndex, ReceivedHop, Source, Track, TrackedNextHop};
use crate::table::Candidate;
use ribtide_prefix::AnyPrefix;
use std::fmt;
use std::net::IpAddr;

/// Look-ups in the chain of one answer, at most. A longer chain is unresolved.
pub const MAX_LEVEL: u8 = 16;

/// In an outcome: the weight of the resolving next hop itself.
pub(crate) const OWN_WEIGHT: u16 = 0;

/// Everything that a resolution depends on, beside the table and the interfaces. Equal targets have
/// one answer for all users.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Target {
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) interface: Option<IfIndex>,
    /// Whether only the interface matters, and the gateway counts as on its link.
    pub(crate) onlink: bool,
    /// Whether routes that are not connected may answer.
    pub(crate) recursion: bool,
    /// The user's own prefix when the gateway lies inside it: its route must not answer.
    pub(crate) exclude: Option<AnyPrefix>,
    /// The target is only whether a route for exactly this prefix exists; the gateway is the
    /// prefix's address.
    pub(crate) exactly: Option<AnyPrefix>,
    /// The assumption of the look-up.
    pub(crate) assumed: Option<Assumed>,
}

/// Assumes that BGP's route of a prefix has this next hop alone. BGP's choice among the paths of a
/// prefix must not depend on itself (`docs/adr/0020-next-hop-resolution.md`, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Assumed {
    pub(crate) prefix: AnyPrefix,
    pub(crate) next_hop: IpAddr,
}

impl Target {
    /// The target of `hop`, for a route of `exclude` where that is given.
    pub(crate) fn new(hop: &ReceivedHop, recursion: bool, exclude: Option<AnyPrefix>) -> Target {
        let ReceivedHop { gateway, interface, onlink, .. } = *hop;
        let onlink = gateway.is_some_and(|a| onlink || is_link_local(a));
        let mut target = Target {
            gateway,
            interface,
            onlink,
            recursion: false,
            exclude: None,
            exactly: None,
            assumed: None,
        };
        if let Some(address) = target.address().filter(|_| recursion) {
            target.recursion = true;
            target.exclude = exclude.filter(|p| p.contains(address));
        }
        target
    }

    /// The target of a condition, for a route of `exclude` where that is given.
    pub(crate) fn tracking(track: Track, exclude: Option<AnyPrefix>) -> Target {
        match track {
            Track::Interface(interface) => Target::new(&ReceivedHop::interface(interface), true, exclude),
            Track::Address(address) => Target::new(&ReceivedHop::gateway(address), true, exclude),
            Track::Prefix(prefix) => Target {
                exactly: Some(prefix),
                onlink: false,
                recursion: true,
                // A route never fulfils its own condition; other prefixes share one target.
                exclude: exclude.filter(|p| *p == prefix),
                ..Target::new(&ReceivedHop::gateway(prefix.addr()), false, None)
            },
        }
    }

    /// The target of a next hop that BGP registered.
    pub(crate) fn of_path(next_hop: TrackedNextHop) -> Target {
        let TrackedNextHop { address, recursive, exclude } = next_hop;
        let target = Target::new(&ReceivedHop::gateway(address), recursive, exclude);
        target.assuming(exclude.map(|prefix| Assumed { prefix, next_hop: address }))
    }

    /// The same with an assumption. A target that needs no look-up is unchanged.
    pub(crate) fn assuming(self, assumed: Option<Assumed>) -> Target {
        Target { assumed: assumed.filter(|_| self.recursion), ..self }
    }

    /// The gateway, looked up or on-link.
    pub(crate) fn neighbor(&self) -> Option<IpAddr> {
        self.gateway.map(|a| a.to_canonical())
    }

    /// The address to look up; `None` when the interface decides. An IPv4-mapped address is looked
    /// up as IPv4.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        if self.onlink { None } else { self.neighbor() }
    }
}

/// Whether `address` is valid on its link only.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}

/// The answer to a [`Target`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolution {
    pub(crate) outcome: Outcome,
    /// The route that answered; less specific ones were not visited.
    pub(crate) via: Option<AnyPrefix>,
    /// That route's metric; of a route of BGP, with the cost of its next hops.
    pub(crate) cost: u32,
    /// Whether a route of BGP without an accumulated IGP metric is on the way.
    pub(crate) partial: bool,
    /// Look-ups in the longest chain of the answer: 1 to [`MAX_LEVEL`].
    pub(crate) level: u8,
}

impl Resolution {
    pub(crate) fn unresolved(why: UnresolvedReason, via: Option<AnyPrefix>) -> Resolution {
        Resolution { outcome: Outcome::Unresolved(why), via, cost: 0, partial: false, level: 1 }
    }

    /// The answer through a candidate with this group; too deep at [`MAX_LEVEL`].
    ///
    /// The cost of a route of BGP is its accumulated IGP metric and the cost of its own next hops (RFC 7311 section 4.2); of
    /// another route it is the metric.
    pub(crate) fn through(
        outcome: Outcome,
        via: Option<AnyPrefix>,
        candidate: &Candidate,
        group: &Group,
    ) -> Resolution {
        if group.level >= MAX_LEVEL {
            return Resolution::unresolved(UnresolvedReason::TooDeep, via);
        }
        let (cost, partial) = match candidate.protocol.source() {
            Source::Bgp => {
                (candidate.metric.saturating_add(group.cost), candidate.metric == 0 || group.partial)
            }
            _ => (candidate.metric, group.partial),
        };
        Resolution { outcome, via, cost, partial, level: group.level + 1 }
    }
}

/// The outcome of a resolution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Outgoing hops. A weight of 0 stands for that of the resolving next hop.
    Hops(Vec<FibHop>),
    /// The route to the gateway discards packets.
    Blackhole,
    /// No outgoing hop.
    Unresolved(UnresolvedReason),
}

impl Outcome {
    /// Whether it is resolved.
    pub fn is_resolved(&self) -> bool {
        !matches!(self, Outcome::Unresolved(_))
    }
}

/// The reason of an unresolved next hop. Displays as the end of a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnresolvedReason {
    /// No route holds the gateway.
    NoRoute,
    /// Only the default route holds it, and `fib.resolve-via-default` is off.
    OnlyDefault,
    /// The routes that hold it are unresolved.
    NoneResolves,
    /// BGP's own discard holds it: that of an aggregate or of a client of the API.
    Discarded,
    /// A route of another program holds it that refuses packets, or sends the look-up to another table.
    Refused,
    /// Only a connected route may resolve it, and none holds it.
    NotConnected,
    /// It is tied to an interface, and no route to it uses that interface.
    OtherInterface,
    /// It is this router's own address.
    OwnAddress,
    /// It is the broadcast address of a connected subnet.
    Broadcast,
    /// Its interface is down.
    InterfaceDown,
    /// Its interface does not exist.
    NoInterface,
    /// BFD declared it down: [`crate::GatewayEvent`].
    GatewayDown,
    /// Neither gateway nor interface is given, or an interface is needed and missing.
    InterfaceMissing,
    /// The routes that hold it form a circle without support from outside.
    Circle,
    /// The chain of routes is longer than [`MAX_LEVEL`].
    TooDeep,
}

impl fmt::Display for UnresolvedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnresolvedReason::NoRoute => f.write_str("no route holds it"),
            UnresolvedReason::OnlyDefault => {
                f.write_str("only the default route holds it, which next hops may not use")
            }
            UnresolvedReason::NoneResolves => f.write_str("the routes that hold it are unresolved"),
            UnresolvedReason::Discarded => {
                f.write_str("only a discard route that BGP originates holds it, such as an aggregate")
            }
            UnresolvedReason::Refused => f.write_str(
                "the kernel's route that holds it is unreachable, prohibit or throw, and does not forward",
            ),
            UnresolvedReason::NotConnected => {
                f.write_str("it is on no connected subnet and may not use other routes")
            }
            UnresolvedReason::OtherInterface => {
                f.write_str("no route to it uses the interface that it is tied to")
            }
            UnresolvedReason::OwnAddress => f.write_str("it is an address of this router"),
            UnresolvedReason::Broadcast => f.write_str("it is the broadcast address of its subnet"),
            UnresolvedReason::InterfaceDown => f.write_str("its interface is down"),
            UnresolvedReason::GatewayDown => f.write_str("BFD declared it down"),
            UnresolvedReason::NoInterface => f.write_str("its interface does not exist"),
            UnresolvedReason::InterfaceMissing => f.write_str("it needs an interface and names none"),
            UnresolvedReason::Circle => f.write_str("the routes that hold it form a circle"),
            UnresolvedReason::TooDeep => {
                write!(f, "the routes that hold it form a chain of more than {MAX_LEVEL}")
            }
        }
    }
}
