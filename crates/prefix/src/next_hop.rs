//! The next hop that BGP and the RIB manager exchange.

use crate::prefix::AnyPrefix;
use std::net::IpAddr;

/// A next hop of BGP's paths, as BGP registers it with the RIB manager: the same address may be
/// reachable for one kind of path and not for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrackedNextHop {
    /// The address in NEXT_HOP.
    pub address: IpAddr,
    /// Whether it may resolve through other routes. False for paths of single-hop external
    /// sessions, whose next hops must be on a connected subnet (RFC 4271 section 5.1.3).
    pub recursive: bool,
    /// The prefix of the paths, where a recursive address lies inside it or depends on it: a route
    /// does not resolve through itself (RFC 4271 section 9.1.2.1). The answer assumes that BGP's
    /// route of the prefix has this next hop alone.
    pub exclude: Option<AnyPrefix>,
}
