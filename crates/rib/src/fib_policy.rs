//! FIB policy: the route-maps that are applied to routes of every protocol before they enter the FIB.
//!
//! A route-map decides whether a route is installed, and which source address this machine uses over it. The result is
//! part of a received group's key: routes with one set of next hops and one result share a group. Where no condition
//! depends on the prefix, the result is the same for all routes of a protocol and family, and is evaluated once for each
//! set of next hops; else once for each route.
//!
//! Selection and resolution ignore denial: a denied route is selected, and next hops resolve
//! through it. Only dataplanes do not get it, and no other protocol's route replaces it.

use crate::message::Protocol;
use ribtide_prefix::{Afi, AnyPrefix};
use std::fmt;
use std::net::IpAddr;

/// The result of FIB policy for a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FibPolicyResult {
    /// The route is not installed.
    pub deny: bool,
    /// The source address of packets that this machine itself sends over the route, of the route's family.
    pub source: Option<IpAddr>,
}

impl fmt::Display for FibPolicyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.deny, self.source) {
            (true, _) => f.write_str("denied"),
            (false, Some(source)) => write!(f, "source {source}"),
            (false, None) => f.write_str("none"),
        }
    }
}

/// The route-maps of all protocols.
pub trait RouteMaps: Send + Sync {
    /// The result for all routes of a protocol and family; `None` when it depends on the prefix.
    fn of_all(&self, protocol: Protocol, afi: Afi) -> Option<FibPolicyResult>;
    /// The result for one route.
    fn of(&self, protocol: Protocol, prefix: AnyPrefix) -> FibPolicyResult;
}

/// No route-maps: every route is installed as it is.
pub(crate) struct NoRouteMaps;

impl RouteMaps for NoRouteMaps {
    fn of_all(&self, _: Protocol, _: Afi) -> Option<FibPolicyResult> {
        Some(FibPolicyResult::default())
    }
    fn of(&self, _: Protocol, _: AnyPrefix) -> FibPolicyResult {
        FibPolicyResult::default()
    }
}
