//! FIB policies of `[fib.policy]` and `[vrf.NAME.policy]`, compiled for the RIB manager.

use ribtide_config::FibPolicy;
use ribtide_policy::{Memo, Route, RouteType, Source};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix};
use ribtide_rib::{FibPolicyResult, Protocol, RouteMaps};
use ribtide_wire::bgp::NextHop;
use std::net::{IpAddr, Ipv4Addr};

/// The compiled policies.
pub(super) struct CompiledFibPolicy {
    policy: FibPolicy,
    /// The result for each protocol and family, if it does not depend on the prefix.
    settled: [[Option<FibPolicyResult>; 2]; Protocol::ALL.len()],
}

/// The FIB policy result of a route whose list returned `list_result`: `None` if rejected, else the
/// source address from the list, if any.
fn policy_result(
    policy: &FibPolicy,
    protocol: Protocol,
    afi: Afi,
    list_result: Option<Option<IpAddr>>,
) -> FibPolicyResult {
    let Some(given) = list_result else { return FibPolicyResult { deny: true, source: None } };
    let ours = !matches!(protocol, Protocol::Connected | Protocol::Kernel);
    let source = match afi {
        Afi::Ipv4 => policy.source4.map(IpAddr::V4),
        Afi::Ipv6 => policy.source6.map(IpAddr::V6),
    };
    FibPolicyResult { deny: false, source: given.or(source.filter(|_| ours)) }
}

impl CompiledFibPolicy {
    /// Evaluates each policy as far as prefixes do not matter.
    pub(super) fn new(policy: FibPolicy) -> CompiledFibPolicy {
        let settled = Protocol::ALL.map(|protocol| {
            [Afi::Ipv4, Afi::Ipv6].map(|afi| {
                let policy_result = |list_result| policy_result(&policy, protocol, afi, list_result);
                let Some(list) = policy.of(protocol) else { return Some(policy_result(Some(None))) };
                let memo = Memo::new(list, &route(protocol, afi), |changes| changes.source());
                memo.settled().map(|source| policy_result(source.copied()))
            })
        });
        CompiledFibPolicy { policy, settled }
    }
}

impl RouteMaps for CompiledFibPolicy {
    fn of_all(&self, protocol: Protocol, afi: Afi) -> Option<FibPolicyResult> {
        self.settled[protocol as usize][usize::from(afi == Afi::Ipv6)]
    }

    fn of(&self, protocol: Protocol, prefix: AnyPrefix) -> FibPolicyResult {
        let policy_result = |list_result| policy_result(&self.policy, protocol, prefix.afi(), list_result);
        let Some(list) = self.policy.of(protocol) else { return policy_result(Some(None)) };
        let route = route(protocol, prefix.afi());
        let changes = match prefix {
            AnyPrefix::V4(prefix) => list.evaluate(&route, prefix),
            AnyPrefix::V6(prefix) => list.evaluate(&route, prefix),
        };
        policy_result(changes.map(|changes| changes.source()))
    }
}

/// The fields of a route that a FIB policy may match; the configuration refuses others.
fn route(protocol: Protocol, afi: Afi) -> Route<'static> {
    let no_neighbor = Ipv4Addr::UNSPECIFIED;
    let kind = if protocol == Protocol::BgpInternal { RouteType::Internal } else { RouteType::External };
    let source = Source { neighbor: no_neighbor.into(), kind };
    let family = AfiSafi::unicast(afi);
    Route { attributes: &[], next_hop: NextHop::V4(no_neighbor), family, source, validation: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_config as config;

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
        let maps = CompiledFibPolicy::new(fib.policy);
        let denied = FibPolicyResult { deny: true, source: None };
        assert_eq!(maps.of_all(Protocol::Connected, Afi::Ipv4), Some(denied));
        assert_eq!(maps.of_all(Protocol::Static, Afi::Ipv6), Some(FibPolicyResult::default()));
        let source = |text: &str| FibPolicyResult { deny: false, source: text.parse().ok() };
        // The set has no IPv6 prefix, so the result is settled.
        assert_eq!(maps.of_all(Protocol::BgpExternal, Afi::Ipv6), Some(source("2001:db8::1")));
        assert_eq!(maps.of_all(Protocol::BgpExternal, Afi::Ipv4), None);
        let of = |protocol, prefix: &str| maps.of(protocol, prefix.parse().unwrap());
        assert_eq!(of(Protocol::BgpExternal, "10.1.0.0/16"), denied);
        assert_eq!(of(Protocol::BgpExternal, "11.0.0.0/8"), source("192.0.2.1"));
        assert_eq!(of(Protocol::BgpInternal, "11.0.0.0/8"), FibPolicyResult::default());
        assert_eq!(of(Protocol::Kernel, "10.1.0.0/16"), FibPolicyResult::default());
    }

    #[test]
    fn a_vrf_has_policies_and_a_source_address_of_its_own() {
        let text = r#"
[router]
asn = 65001
router-id = "10.0.0.1"
[fib]
kernel = true
[fib.policy]
static = ["reject"]
[policy.prefix-set.private]
prefixes = ["10.0.0.0/8 8..32"]
[[policy.definition.from-private.statement]]
conditions.match-prefix-set = "private"
actions.set-source = "192.0.2.1"
[vrf.red]
source = ["198.51.100.1", "2001:db8::1"]
[vrf.red.policy]
static = ["from-private"]
kernel = ["reject"]
[vrf.blue]
"#;
        let config = config::parse(text).unwrap();
        let red = CompiledFibPolicy::new(config.vrfs["red"].policy.clone());
        let source = |text: &str| FibPolicyResult { deny: false, source: text.parse().ok() };
        let of = |prefix: &str| red.of(Protocol::Static, prefix.parse().unwrap());
        assert_eq!((of("10.1.0.0/16"), of("11.0.0.0/8")), (source("192.0.2.1"), source("198.51.100.1")));
        assert_eq!(red.of_all(Protocol::Static, Afi::Ipv4), None);
        assert_eq!(red.of_all(Protocol::Static, Afi::Ipv6), Some(source("2001:db8::1")));
        assert_eq!(
            red.of_all(Protocol::Kernel, Afi::Ipv4).map(|policy_result| policy_result.deny),
            Some(true)
        );
        // The kernel's own routes have no source address of ours.
        assert_eq!(red.of_all(Protocol::Connected, Afi::Ipv4), Some(FibPolicyResult::default()));
        assert_eq!(config.vrfs["blue"].policy, FibPolicy::default());
        let text = text.replace("kernel = [\"reject\"]", "bgp = [\"reject\"]");
        let message = config::parse(&text).unwrap_err();
        assert!(message[0].message.contains("BGP's routes are in the default VRF alone"), "{message:?}");
        let text = text.replace("bgp = [\"reject\"]", "").replace("2001:db8::1", "10.0.0.2");
        let message = config::parse(&text).unwrap_err();
        assert!(message[0].message.contains("at most one of each family"), "{message:?}");
    }
}
