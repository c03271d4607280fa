//! The JSON types of the API, which the server fills and `ribtide show` prints.
//!
//! Times are in seconds, sizes in bytes. A field that does not apply is absent.

mod address;
mod advertised;
mod asic;
mod bfd;
mod bgp;
mod change;
mod events;
mod explain;
mod fib;
mod interface;
mod messages;
mod monitoring;
mod nexthop;
mod origination;
mod performance;
mod pipeline;
mod reload_check;
mod route;
mod route_check;
mod rpki;
mod running;
mod tracked;
mod version;
mod vrf;

pub use address::ZonedAddress;
pub use advertised::*;
pub use asic::*;
pub use bfd::*;
pub use bgp::*;
pub use change::*;
pub use events::*;
pub use explain::*;
pub use fib::*;
pub use interface::*;
pub use messages::*;
pub use monitoring::*;
pub use nexthop::*;
pub use origination::*;
pub use performance::*;
pub use pipeline::*;
pub use reload_check::*;
pub use route::*;
pub use route_check::*;
pub use rpki::*;
pub use running::*;
pub use tracked::*;
pub use version::*;
pub use vrf::*;

use ribtide_prefix::AfiSafi;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A count for each family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PerFamilyCount {
    /// IPv4 unicast.
    pub ipv4: u64,
    /// IPv6 unicast.
    pub ipv6: u64,
}

impl PerFamilyCount {
    /// Of each family the count that `of` returns.
    pub fn new(of: impl Fn(AfiSafi) -> u64) -> PerFamilyCount {
        PerFamilyCount { ipv4: of(AfiSafi::Ipv4Unicast), ipv6: of(AfiSafi::Ipv6Unicast) }
    }

    /// The count of one family.
    pub fn of(&self, family: AfiSafi) -> u64 {
        match family {
            AfiSafi::Ipv4Unicast => self.ipv4,
            AfiSafi::Ipv6Unicast => self.ipv6,
        }
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.ipv4 + self.ipv6
    }
}

impl std::ops::AddAssign for PerFamilyCount {
    fn add_assign(&mut self, more: PerFamilyCount) {
        self.ipv4 += more.ipv4;
        self.ipv6 += more.ipv6;
    }
}

/// The error of any endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApiError {
    /// What is wrong, where, and what to do, as a sentence.
    pub error: String,
}
