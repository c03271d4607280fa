//! What one next hop asks of the table, and the answer.

use crate::message::{FibHop, IfIndex, ReceivedHop, Track, TrackedNextHop};
use ribtide_prefix::AnyPrefix;
use std::fmt;
use std::net::IpAddr;

/// The most recursive look-ups that one answer may rest on, one through the other. A longer chain is unresolved.
pub const MAX_LEVEL: u8 = 16;

/// In an outcome: the weight is that of the next hop that asks.
pub(crate) const OWN_WEIGHT: u16 = 0;

/// What a next hop asks: everything that its resolution depends on beside the table and the interfaces, so that
/// equal queries have one answer for every caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Target {
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) interface: Option<IfIndex>,
    /// Whether only the interface matters and the gateway is taken on trust.
    pub(crate) onlink: bool,
    /// Whether routes that are not connected may answer.
    pub(crate) recursion: bool,
    /// The route that asks when the gateway lies inside it: it cannot be its own answer.
    pub(crate) exclude: Option<AnyPrefix>,
    /// Whether there is a route for exactly this prefix is all that it asks; the gateway is the prefix's address.
    pub(crate) exactly: Option<AnyPrefix>,
    /// What it takes for given.
    pub(crate) assumed: Option<Assumed>,
}

/// BGP's route of a prefix is taken to have this next hop alone, whichever it has: BGP's choice among the paths of a prefix
/// is not to depend on itself (`docs/adr/0020-next-hop-resolution.md`, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Assumed {
    pub(crate) prefix: AnyPrefix,
    pub(crate) next_hop: IpAddr,
}

impl Target {
    /// What `hop` asks for a route of `exclude`, where that is given.
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

    /// What something tracked asks for a route of `exclude`, where that is given.
    pub(crate) fn tracking(track: Track, exclude: Option<AnyPrefix>) -> Target {
        match track {
            Track::Interface(interface) => Target::new(&ReceivedHop::interface(interface), true, exclude),
            Track::Address(address) => Target::new(&ReceivedHop::gateway(address), true, exclude),
            Track::Prefix(prefix) => Target {
                exactly: Some(prefix),
                onlink: false,
                recursion: true,
                // The route itself is no answer; which other prefix asks makes no difference.
                exclude: exclude.filter(|p| *p == prefix),
                ..Target::new(&ReceivedHop::gateway(prefix.addr()), false, None)
            },
        }
    }

    /// What BGP asks of a next hop.
    pub(crate) fn of_path(next_hop: TrackedNextHop) -> Target {
        let TrackedNextHop { address, recursive, exclude } = next_hop;
        let target = Target::new(&ReceivedHop::gateway(address), recursive, exclude);
        target.assuming(exclude.map(|prefix| Assumed { prefix, next_hop: address }))
    }

    /// The same, with something taken for given. That makes no difference to one that looks into no route.
    pub(crate) fn assuming(self, assumed: Option<Assumed>) -> Target {
        Target { assumed: assumed.filter(|_| self.recursion), ..self }
    }

    /// The gateway, be it looked up or taken on trust.
    pub(crate) fn neighbor(&self) -> Option<IpAddr> {
        self.gateway.map(|a| a.to_canonical())
    }

    /// The address to look up; `None` when only the interface decides. An IPv4-mapped address is IPv4's.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        if self.onlink { None } else { self.neighbor() }
    }
}

/// Whether `address` means something on its link only.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}

/// The answer to a [`Target`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// The route that answered; nothing less specific was looked at.
    pub(crate) via: Option<AnyPrefix>,
    /// That route's metric.
    pub(crate) cost: u32,
    /// How many look-ups deep the longest chain is that the answer rests on: 1 to [`MAX_LEVEL`].
    pub(crate) level: u8,
}

impl Answer {
    pub(crate) fn unresolved(why: Why, via: Option<AnyPrefix>) -> Answer {
        Answer { outcome: Outcome::Unresolved(why), via, cost: 0, level: 1 }
    }
}

/// What resolution found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Ways out. A weight of 0 stands for that of the next hop that asks.
    Hops(Vec<FibHop>),
    /// The route to the gateway discards packets.
    Blackhole,
    /// No way out.
    Unresolved(Why),
}

impl Outcome {
    /// Whether it is resolved.
    pub fn is_resolved(&self) -> bool {
        !matches!(self, Outcome::Unresolved(_))
    }
}

/// Why a next hop is unresolved. Displays as the end of a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// No route holds the gateway.
    NoRoute,
    /// Only the default route holds it, and the configuration says not to use that.
    OnlyDefault,
    /// Routes hold it, but none of them resolves itself.
    NoneResolves,
    /// Routes hold it, but it may only use a connected one and there is none.
    NotConnected,
    /// It is tied to an interface, and no route to it leaves there.
    OtherInterface,
    /// It is this router's own address.
    OwnAddress,
    /// Its interface is down.
    InterfaceDown,
    /// Its interface does not exist.
    NoInterface,
    /// Packets do not reach it: [`crate::GatewayEvent`].
    GatewayDown,
    /// Neither gateway nor interface is given, or an interface is needed and missing.
    InterfaceMissing,
    /// The routes that hold it lead back to themselves, and nothing outside of that circle resolves them.
    Circle,
    /// The chain of routes is longer than [`MAX_LEVEL`].
    TooDeep,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoRoute => f.write_str("no route leads to it"),
            Why::OnlyDefault => {
                f.write_str("only the default route leads to it, which next hops may not use")
            }
            Why::NoneResolves => f.write_str("the routes that lead to it are unresolved themselves"),
            Why::NotConnected => f.write_str("it is on no connected subnet and may not use other routes"),
            Why::OtherInterface => f.write_str("no route leads to it by the interface it is tied to"),
            Why::OwnAddress => f.write_str("it is an address of this router"),
            Why::InterfaceDown => f.write_str("its interface is down"),
            Why::GatewayDown => f.write_str("packets do not reach it, says BFD"),
            Why::NoInterface => f.write_str("its interface does not exist"),
            Why::InterfaceMissing => f.write_str("it needs an interface and names none"),
            Why::Circle => f.write_str("the routes that lead to it lead back to themselves"),
            Why::TooDeep => write!(f, "the routes that lead to it form a chain of more than {MAX_LEVEL}"),
        }
    }
}
