//! Route watches: sets of routes, of which a router wants to know whether any is among the best paths.
//!
//! Aggregates, and what is advertised only while some route exists, depend on routes that belong to
//! different shards. Each shard watches its own prefixes and reports a watch only when its
//! [`Presence`] here changes; the session thread puts the reports together. Without a watch a best
//! path that changes costs one test for all of this.
//!
//! A watch sees the paths that egress workers get: with FIB suppression, those that are forwarded.

use ribtide_policy::{Named, Policy, PrefixSet};
use ribtide_prefix::AnyPrefix;
use ribtide_wire::bgp::attribute::Origin;
use std::sync::Arc;

/// The number of a watch, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u32);

/// All watches of a router. Another set replaces the whole former one; a watch that stays keeps its number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WatchSet {
    /// Rises with each set.
    pub generation: u32,
    /// Whether egress workers get suppressed paths too, marked: a peer may get some of them.
    pub unsuppresses: bool,
    /// The watches.
    pub watches: Vec<Watch>,
}

/// A watch.
#[derive(Clone, PartialEq, Debug)]
pub struct Watch {
    /// Its number.
    pub id: WatchId,
    /// The routes that it watches.
    pub routes: WatchedRoutes,
    /// What becomes of its members.
    pub suppression: Option<Suppression>,
}

/// The routes of a watch.
#[derive(Clone, PartialEq, Debug)]
pub enum WatchedRoutes {
    /// Those inside this prefix, but not its own, and no aggregates of this router: two of them would
    /// keep each other alive.
    MoreSpecific(AnyPrefix),
    /// Those in this set that the policy, where there is one, accepts.
    In(Arc<Named<PrefixSet>>, Option<Arc<Policy>>),
}

/// The members of an aggregate that are not advertised.
#[derive(Clone, PartialEq, Debug)]
pub struct Suppression {
    /// Those that it accepts; `None`: all.
    pub policy: Option<Arc<Policy>>,
    /// Also those that were advertised before the watch was set. They stay until the aggregate itself is
    /// advertised, so that no peer is without a route in between.
    pub advertised: bool,
}

/// Whether a watch has members, as the highest ORIGIN of them (RFC 4271 section 9.2.2.2).
pub type Presence = Option<Origin>;

/// News of the watches of one shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchNews {
    /// Watches whose members in this shard have another [`Presence`] than in its last news.
    pub changed: Vec<(WatchId, Presence)>,
    /// The generation of a set, after the shard has looked at all of its prefixes for it.
    pub complete: Option<u32>,
}

impl WatchNews {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.complete.is_none()
    }
}
