//! Route-maps of the RIB manager out of the policies of `[fib.policy]`.

use ribtide_policy::{Memo, Policy, Route, Source};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_rib::{Protocol, RouteMaps, Treatment};
use ribtide_wire::bgp::NextHop;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The lists of policies for routes on their way to the FIB, by who announced them. Without one, or where a list does not
/// decide, routes are installed.
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
}

/// The policies as the RIB manager asks them.
pub(super) struct Treatments {
    policy: FibPolicy,
    /// By protocol and family: the answer, where it is the same for every prefix.
    settled: [[Option<Treatment>; 2]; Protocol::ALL.len()],
}

impl FibPolicy {
    fn of(&self, protocol: Protocol) -> Option<&Arc<Policy>> {
        match protocol {
            Protocol::Connected => self.connected.as_ref(),
            Protocol::Static => self.statics.as_ref(),
            Protocol::Kernel => self.kernel.as_ref(),
            Protocol::BgpExternal | Protocol::BgpInternal => self.bgp.as_ref(),
        }
    }
}

impl Treatments {
    /// Asks each policy as far as prefixes do not matter.
    pub(super) fn new(policy: FibPolicy) -> Treatments {
        let settled = Protocol::ALL.map(|protocol| {
            [Afi::Ipv4, Afi::Ipv6].map(|afi| {
                let Some(policy) = policy.of(protocol) else { return Some(Treatment::default()) };
                let memo = Memo::new(policy, &route(protocol, afi), |changes| changes.source());
                memo.settled().map(|source| treatment(source.copied()))
            })
        });
        Treatments { policy, settled }
    }
}

impl RouteMaps for Treatments {
    fn of_all(&self, protocol: Protocol, afi: Afi) -> Option<Treatment> {
        self.settled[protocol as usize][usize::from(afi == Afi::Ipv6)]
    }

    fn of(&self, protocol: Protocol, prefix: AnyPrefix) -> Treatment {
        let Some(policy) = self.policy.of(protocol) else { return Treatment::default() };
        let route = route(protocol, prefix.afi());
        let changes = match prefix {
            AnyPrefix::V4(prefix) => policy.evaluate(&route, prefix),
            AnyPrefix::V6(prefix) => policy.evaluate(&route, prefix),
        };
        treatment(changes.map(|changes| changes.source()))
    }
}

/// What such a policy sees of a route: the configuration accepts no condition on anything else.
fn route(protocol: Protocol, afi: Afi) -> Route<'static> {
    let nobody = Ipv4Addr::UNSPECIFIED;
    let source = Source { neighbor: nobody.into(), internal: protocol == Protocol::BgpInternal };
    Route { attributes: &[], next_hop: NextHop::V4(nobody), afi, source }
}

/// `source`: of a route that is accepted.
fn treatment(source: Option<Option<std::net::IpAddr>>) -> Treatment {
    Treatment { deny: source.is_none(), source: source.flatten() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn policies_become_treatments_once_or_route_by_route() {
        let text = r#"
[router]
asn = 65001
router-id = "10.0.0.1"
[policy.prefix-set.private]
prefixes = ["10.0.0.0/8 8..32"]
[[policy.definition.no-private.statement]]
conditions.match-prefix-set = "private"
actions.policy-result = "reject"
[[policy.definition.ours.statement]]
conditions.route-type = "external"
actions.set-source = ["192.0.2.1", "2001:db8::1"]
[fib.policy]
bgp = ["no-private", "ours"]
connected = ["reject"]
"#;
        let fib = config::parse(text).unwrap().fib.unwrap();
        let maps = Treatments::new(fib.policy);
        let denied = Treatment { deny: true, source: None };
        assert_eq!(maps.of_all(Protocol::Connected, Afi::Ipv4), Some(denied));
        assert_eq!(maps.of_all(Protocol::Static, Afi::Ipv6), Some(Treatment::default()));
        let source = |text: &str| Treatment { deny: false, source: text.parse().ok() };
        // The set has no IPv6 prefix, so that it need not be asked.
        assert_eq!(maps.of_all(Protocol::BgpExternal, Afi::Ipv6), Some(source("2001:db8::1")));
        assert_eq!(maps.of_all(Protocol::BgpExternal, Afi::Ipv4), None);
        let of = |protocol, prefix: &str| maps.of(protocol, prefix.parse().unwrap());
        assert_eq!(of(Protocol::BgpExternal, "10.1.0.0/16"), denied);
        assert_eq!(of(Protocol::BgpExternal, "11.0.0.0/8"), source("192.0.2.1"));
        assert_eq!(of(Protocol::BgpInternal, "11.0.0.0/8"), Treatment::default());
        assert_eq!(of(Protocol::Kernel, "10.1.0.0/16"), Treatment::default());
    }
}
