//! The RIB manager as a pure state machine: selection across protocols, next-hop groups, recursive resolution,
//! and the operations that every dataplane carries out.
//!
//! Nothing here has a thread, a socket or a clock. Start with [`message`]: it shows what goes in and comes out;
//! then [`Rib`], which is one VRF's, and [`Vrfs`], which has
//! them all.
#![forbid(unsafe_code)]

mod cache;
mod circle;
mod confirm;
mod dataplane;
mod fib_policy;
mod group;
mod interface;
mod lagging;
pub mod message;
mod query;
mod reselection_scan;
mod resolve;
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
pub use rib::Rib;
pub use target::{MAX_LEVEL, Outcome, Why};
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
    /// The most hops a group has in the FIB; more are cut off.
    pub max_ecmp: u16,
    /// Whether a way out through another route has that route's weight for it, and not the next hop's own.
    pub underlay_weights: bool,
    /// Whether good news of a next hop that changes often reaches BGP with a delay, and bad news through a route of BGP's after
    /// a hold, as ADR 20 says.
    pub damping: bool,
    /// How the resolution cache works; see [`Rib::set_cache_mode`].
    pub cache: CacheMode,
    /// The most routes that are selected again in one turn because their group lost its last way or has its first again; see
    /// [`Rib::has_more`].
    pub turn: usize,
    /// Sources whose [`RibIn::EndOfInitial`] must have come before a replay ends. A dataplane removes what it
    /// holds from before only then, so routes survive a restart.
    pub initial_sources: Vec<Source>,
    /// The dataplanes that must finish a change before it is confirmed, up or not. Without any, all is confirmed at
    /// once.
    pub dataplanes: Vec<DataplaneId>,
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
