//! The RIB manager as a pure state machine: selection across protocols, next-hop groups, recursive resolution,
//! and the operations that every dataplane carries out.
//!
//! Nothing here has a thread, a socket or a clock. Start with [`message`], the input and output;
//! then read [`Rib`], one VRF, and [`Vrfs`], all of them.
#![forbid(unsafe_code)]

mod batch_times;
mod cache;
mod circle;
mod confirmations;
mod dataplane;
mod fib_policy;
mod group;
mod interface;
mod lagging;
pub mod message;
mod own_addresses;
mod query;
mod redistribution;
mod reselection_scan;
mod resolver;
mod rib;
mod store;
mod table;
mod target;
mod tracking;
mod urgent_queue;
mod vrfs;

pub use cache::{CacheCounters, CacheMode};
pub use dataplane::{InstallStatus, PAGE};
pub use fib_policy::{FibPolicyResult, RouteMaps};
pub use message::*;
pub use query::{
    Announced, CandidateInfo, Cursor, DataplaneInfo, Explanation, FailedCursor, FailedRoute, GroupInfo,
    HopInfo, RouteInfo, SelectionResult, Total,
};
pub use redistribution::Redistribution;
pub use rib::Rib;
pub use target::{MAX_LEVEL, Outcome, UnresolvedReason};
pub use tracking::TrackedInfo;
pub use urgent_queue::UrgentQueue;
pub use vrfs::Vrfs;

/// Settings of the RIB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RibConfig {
    /// Which VRF it is.
    pub vrf: Vrf,
    /// Whether gateways may resolve through a default route.
    pub resolve_via_default: bool,
    /// Hops of a group in the FIB, at most; the rest is cut off.
    pub max_ecmp: u16,
    /// Whether a hop that resolves through another route has that route's weight, instead of its
    /// own.
    pub underlay_weights: bool,
    /// Whether notifications to BGP are damped: reachability of a flapping next hop is delayed, and
    /// a loss through a BGP route is held (ADR 20).
    pub damping: bool,
    /// The mode of the resolution cache; see [`Rib::set_cache_mode`].
    pub cache: CacheMode,
    /// Routes that one turn selects again, at most, after their group became resolved or
    /// unresolved; see [`Rib::has_more`].
    pub turn: usize,
    /// A replay ends after [`RibIn::EndOfInitial`] of these sources. Only then does a dataplane
    /// remove routes of an earlier run, so routes survive a restart.
    pub initial_sources: Vec<Source>,
    /// The dataplanes that must finish a change before it is confirmed, up or not. Without any,
    /// changes are confirmed at once.
    pub dataplanes: Vec<DataplaneId>,
}

/// The settings of a [`RibConfig`] by which next hops resolve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolutionSettings {
    /// [`RibConfig::resolve_via_default`].
    pub resolve_via_default: bool,
    /// [`RibConfig::max_ecmp`].
    pub max_ecmp: u16,
    /// [`RibConfig::underlay_weights`].
    pub underlay_weights: bool,
}

impl RibConfig {
    pub(crate) fn resolve_by(&mut self, by: ResolutionSettings) {
        let ResolutionSettings { resolve_via_default, max_ecmp, underlay_weights } = by;
        self.resolve_via_default = resolve_via_default;
        self.max_ecmp = max_ecmp;
        self.underlay_weights = underlay_weights;
    }
}

impl Default for RibConfig {
    fn default() -> Self {
        RibConfig {
            vrf: Vrf::default(),
            resolve_via_default: true,
            max_ecmp: 512,
            underlay_weights: false,
            damping: true,
            cache: CacheMode::default(),
            turn: 2048,
            initial_sources: Vec::new(),
            dataplanes: Vec::new(),
        }
    }
}
