//! What the policies of `[fib.policy]` and `[vrf.NAME.policy]` are, for the RIB manager that asks them.

use ribtide_policy::Policy;
use ribtide_rib::Protocol;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The lists of policies for routes of a VRF on their way to the FIB, by who announced them. Without one, or where a list
/// does not decide, routes are installed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FibPolicy {
    /// Addresses and subnets of interfaces.
    pub connected: Option<Arc<Policy>>,
    /// Static routes.
    pub statics: Option<Arc<Policy>>,
    /// Others' routes in the kernel.
    pub kernel: Option<Arc<Policy>>,
    /// BGP.
    pub bgp: Option<Arc<Policy>>,
    /// The source address of the IPv4 routes that we install and to which no policy gives one.
    pub source4: Option<Ipv4Addr>,
    /// And of IPv6 routes.
    pub source6: Option<Ipv6Addr>,
}

impl FibPolicy {
    /// The list of policies for routes of a protocol; none installs all of them.
    pub fn of(&self, protocol: Protocol) -> Option<&Arc<Policy>> {
        match protocol {
            Protocol::Connected => self.connected.as_ref(),
            Protocol::Static => self.statics.as_ref(),
            Protocol::Kernel => self.kernel.as_ref(),
            Protocol::BgpExternal | Protocol::BgpInternal => self.bgp.as_ref(),
        }
    }
}
