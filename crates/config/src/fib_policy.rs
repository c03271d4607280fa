//! The policies of `[fib.policy]` and `[vrf.NAME.policy]`, for the RIB manager.

use ribtide_policy::Policy;
use ribtide_rib::Protocol;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The FIB policy of a VRF: a list of policies for each protocol. Routes are installed without a
/// list, or if the list does not decide.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FibPolicy {
    /// Addresses and subnets of interfaces.
    pub connected: Option<Arc<Policy>>,
    /// Static routes.
    pub statics: Option<Arc<Policy>>,
    /// Imported routes of the kernel.
    pub kernel: Option<Arc<Policy>>,
    /// BGP.
    pub bgp: Option<Arc<Policy>>,
    /// The source address of installed IPv4 routes without one from a policy.
    pub source4: Option<Ipv4Addr>,
    /// The same for IPv6 routes.
    pub source6: Option<Ipv6Addr>,
}

impl FibPolicy {
    /// The list of policies for routes of a protocol; without one all are installed.
    pub fn of(&self, protocol: Protocol) -> Option<&Arc<Policy>> {
        match protocol {
            Protocol::Connected => self.connected.as_ref(),
            Protocol::Static => self.statics.as_ref(),
            Protocol::Kernel => self.kernel.as_ref(),
            Protocol::BgpExternal | Protocol::BgpInternal => self.bgp.as_ref(),
        }
    }
}
