//! Next-hop references: what a route's next hops resolve to.

/// The object that a route's entry names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// None: the entry drops.
    Drop,
    /// The CPU port.
    Cpu,
    /// A router interface, by its number.
    Interface(u32),
    /// A next hop, by its number.
    NextHop(u32),
    /// A next-hop group, by its number.
    Group(u32),
}

/// What a route's next hops resolve to, and the index of NEXTHOP_GROUP_TABLE that the route names,
/// if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NextHopRef {
    pub(super) target: Target,
    pub(super) index: Option<u32>,
}
