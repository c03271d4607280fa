//! Route-maps: what an operator makes of routes on their way to the FIB, whichever protocol gave them.
//!
//! A route-map says of a route whether it is installed, and from which address this machine sends over it. Its answer is
//! part of a received group's key, so that it costs nothing where routes are handled: routes with one set of next hops
//! and one treatment are one group, and another treatment is another group. Where no condition looks at the prefix, the
//! answer is the same for all routes of a protocol and family, and is asked for once for each set of next hops; else once
//! for each route.
//!
//! A denied route is selected as any other, and next hops resolve through it: only dataplanes do not get it. So no other
//! protocol's route comes in its place.

use crate::message::Protocol;
use ribtide_prefix::{Afi, AnyPrefix};
use std::fmt;
use std::net::IpAddr;

/// What becomes of a route on its way to the FIB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Treatment {
    /// It is not installed.
    pub deny: bool,
    /// The address that packets of this machine itself have as their source over it, of its family.
    pub source: Option<IpAddr>,
}

impl fmt::Display for Treatment {
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
    /// The treatment of all routes of a protocol and family, unless it depends on their prefixes.
    fn of_all(&self, protocol: Protocol, afi: Afi) -> Option<Treatment>;
    /// The treatment of one.
    fn of(&self, protocol: Protocol, prefix: AnyPrefix) -> Treatment;
}

/// No route-maps: every route is installed as it is.
pub(crate) struct NoRouteMaps;

impl RouteMaps for NoRouteMaps {
    fn of_all(&self, _: Protocol, _: Afi) -> Option<Treatment> {
        Some(Treatment::default())
    }
    fn of(&self, _: Protocol, _: AnyPrefix) -> Treatment {
        Treatment::default()
    }
}
