//! What the policies of a configuration do with a route that the caller describes: `ribtide policy test`.
//!
//! The policies are those of each neighbour, after every default and built-in one, so a result is that of the
//! router. What the router refuses before an import policy, it refuses here: martians, loops of our AS, another first AS
//! than the neighbour's. Only the validation state is missing: without RPKI data each route is `not-found`.

use super::{AnyAsn, Config, NeighborSettings};
use ribtide_bgp::peer::PeerKind;
use ribtide_policy::{AnyCommunity, NewNextHop, Policy, Route, RouteType, Source};
use ribtide_prefix::{AfiSafi, AnyPrefix};
use ribtide_wire::bgp::attribute::{
    AsPath, Attributes, Communities, ExtendedCommunities, LargeCommunities, Origin, code, number,
};
use ribtide_wire::bgp::{NextHop, build};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The route without its prefix.
#[derive(Clone, Debug)]
pub struct TestRoute {
    /// The AS path, nearest first. `None`: at import the neighbour's AS alone, at export none.
    pub as_path: Option<Vec<u32>>,
    /// Communities of all kinds.
    pub communities: Vec<AnyCommunity>,
    /// The next hop; `None`: the unspecified address.
    pub next_hop: Option<IpAddr>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// ORIGIN.
    pub origin: Origin,
    /// At export: where the route comes from.
    pub source: RouteType,
}

impl Default for TestRoute {
    fn default() -> TestRoute {
        TestRoute {
            as_path: None,
            communities: Vec::new(),
            next_hop: None,
            local_pref: None,
            med: None,
            origin: Origin::Igp,
            source: RouteType::External,
        }
    }
}

/// Import or export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Routes from a neighbour.
    Import,
    /// Routes to a neighbour.
    Export,
}

/// The result of one policy for one prefix.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct PolicyTest {
    /// The prefix.
    pub prefix: String,
    /// The group of the configuration.
    pub group: String,
    /// The neighbours, ranges and interfaces of the group that have this policy.
    pub neighbors: Vec<String>,
    /// Import or export.
    pub direction: Direction,
    /// Whether the route is accepted.
    pub accepted: bool,
    /// A sentence for each tried statement; the last one decided.
    pub reasons: Vec<String>,
    /// Whether the router refuses the route before the import policy, which is not tried then; `reasons` says why.
    pub before_policy: bool,
    /// Whether the policy tests the validation state, which counts as `not-found` here.
    pub without_validation: bool,
    /// The route after the policy, if it is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<AcceptedRoute>,
}

/// A route after a policy.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct AcceptedRoute {
    /// Whether the policy changed nothing.
    pub unchanged: bool,
    /// The next hop: an address, `self`, or absent where it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// The AS path.
    pub as_path: String,
    /// `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// LOCAL_PREF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Communities of all kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
}

/// Those with one policy.
struct Holder<'c> {
    settings: &'c NeighborSettings,
    neighbors: Vec<(String, Option<IpAddr>)>,
}

/// Evaluates the policies of a configuration for each of `prefixes`. `group`, `neighbor`, `direction`: only these.
/// `neighbor` is an address, a range or an interface as the configuration has it.
///
/// # Errors
/// A sentence when the configuration has no such group or neighbour.
pub fn test_policies(
    config: &Config,
    prefixes: &[AnyPrefix],
    route: &TestRoute,
    group: Option<&str>,
    neighbor: Option<&str>,
    direction: Option<Direction>,
) -> Result<Vec<PolicyTest>, String> {
    let bgp = config
        .bgp
        .as_ref()
        .ok_or("the configuration has no [bgp] table, and so no policies of neighbours")?;
    let neighbors = bgp.neighbors.values().map(|n| (n.address.to_string(), Some(n.address), &n.settings));
    let ranges = bgp.dynamic.iter().map(|range| (range.range.to_string(), None, &range.settings));
    let interfaces = bgp.interfaces.iter().map(|n| (n.interface.to_string(), None, &n.settings));
    let all: Vec<_> = neighbors.chain(ranges).chain(interfaces).collect();
    if let Some(name) = group.filter(|name| !all.iter().any(|(.., settings)| settings.group == *name)) {
        let mut names: Vec<&str> = all.iter().map(|(.., settings)| settings.group.as_str()).collect();
        names.dedup();
        return Err(format!("there is no group \"{name}\" with neighbours; there are: {}", names.join(", ")));
    }
    if let Some(name) = neighbor.filter(|name| !all.iter().any(|(of, ..)| of == name)) {
        return Err(format!(
            "there is no neighbour \"{name}\" in the configuration; write it as it is there"
        ));
    }
    let mut holders: Vec<Holder<'_>> = Vec::new();
    for (name, address, settings) in all {
        if group.is_some_and(|group| settings.group != group) || neighbor.is_some_and(|n| n != name) {
            continue;
        }
        let same = |holder: &&mut Holder<'_>| {
            let of = holder.settings;
            of.group == settings.group
                && of.import == settings.import
                && of.export == settings.export
                && of.peer_asn == settings.peer_asn
                && of.as_numbers == settings.as_numbers
                && of.enforce_first_as == settings.enforce_first_as
        };
        match holders.iter_mut().find(same) {
            Some(holder) => holder.neighbors.push((name, address)),
            None => holders.push(Holder { settings, neighbors: vec![(name, address)] }),
        }
    }
    let mut results = Vec::new();
    for prefix in prefixes {
        for holder in &holders {
            for of in [Direction::Import, Direction::Export] {
                if direction.is_none_or(|wanted| wanted == of) {
                    results.push(test(config, holder, *prefix, route, of));
                }
            }
        }
    }
    Ok(results)
}

/// Why the router refuses a route from a neighbour before its import policy runs, if it does.
fn refusal(
    config: &Config,
    settings: &NeighborSettings,
    prefix: AnyPrefix,
    as_path: &[u32],
    next_hop: Option<IpAddr>,
) -> Option<String> {
    let is_martian = match prefix {
        AnyPrefix::V4(prefix) => settings.martians.contains(prefix),
        AnyPrefix::V6(prefix) => settings.martians.contains(prefix),
    };
    if is_martian {
        return Some(format!("refused before the policy: {prefix} is a martian (bgp.martians)"));
    }
    if let Some(address) = next_hop.filter(IpAddr::is_loopback) {
        return Some(format!("refused before the policy: the next hop {address} is a loopback address"));
    }
    let confederation = config.bgp.as_ref().and_then(|bgp| bgp.confederation.as_ref());
    let local_as = settings.as_numbers.local_as.map(|local| local.asn);
    let own = [Some(config.asn), local_as, confederation.map(|confederation| confederation.identifier)];
    let allowed = usize::from(settings.as_numbers.allowas_in);
    let is_loop = |own: &u32| as_path.iter().filter(|asn| *asn == own).count() > allowed;
    if let Some(own) = own.into_iter().flatten().find(is_loop) {
        let times =
            if allowed > 0 { format!(" more than {allowed} times (allowas-in)") } else { String::new() };
        return Some(format!("refused before the policy: a loop, the AS path has our AS {own}{times}"));
    }
    match settings.peer_asn {
        AnyAsn::Exactly(asn) if settings.enforce_first_as && as_path.first() != Some(&asn) => Some(format!(
            "refused before the policy: the AS path does not begin with the neighbour's AS {asn} (enforce-first-as)"
        )),
        _ => None,
    }
}

fn test(
    config: &Config,
    holder: &Holder<'_>,
    prefix: AnyPrefix,
    route: &TestRoute,
    direction: Direction,
) -> PolicyTest {
    let settings = holder.settings;
    let unspecified: IpAddr = match prefix {
        AnyPrefix::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        AnyPrefix::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let (policy, source): (&Policy, Source) = match direction {
        Direction::Import => {
            let kind = match settings.kind {
                PeerKind::External | PeerKind::RouteServerClient => RouteType::External,
                _ => RouteType::Internal,
            };
            let address = holder.neighbors.iter().find_map(|(_, address)| *address);
            (&settings.import, Source { neighbor: address.unwrap_or(unspecified), kind })
        }
        Direction::Export => (&settings.export, Source { neighbor: unspecified, kind: route.source }),
    };
    let as_path = route.as_path.clone().unwrap_or(match (direction, settings.peer_asn, source.kind) {
        (Direction::Import, AnyAsn::Exactly(asn), RouteType::External) => vec![asn],
        _ => Vec::new(),
    });
    let attributes = attributes(route, &as_path);
    let tested = Route {
        attributes: &attributes,
        next_hop: NextHop::from(route.next_hop.unwrap_or(unspecified)),
        family: AfiSafi::unicast(prefix.afi()),
        source,
        validation: None,
    };
    let refused = match direction {
        Direction::Import => refusal(config, settings, prefix, &as_path, route.next_hop),
        Direction::Export => None,
    };
    let before_policy = refused.is_some();
    let (changes, reasons) = match refused {
        Some(why) => (None, vec![why]),
        None => policy.explain(&tested, prefix),
    };
    let accepted = changes.map(|changes| {
        let mut changed = Vec::new();
        changes.write(&attributes, &mut changed);
        let next_hop = match changes.next_hop() {
            Some(NewNextHop::Own) => Some("self".into()),
            Some(NewNextHop::Address(address)) => Some(address.to_string()),
            None => route.next_hop.map(|address| address.to_string()),
        };
        accepted(&changed, next_hop, changes.is_empty())
    });
    PolicyTest {
        prefix: prefix.to_string(),
        group: settings.group.clone(),
        neighbors: holder.neighbors.iter().map(|(name, _)| name.clone()).collect(),
        direction,
        accepted: accepted.is_some(),
        reasons,
        before_policy,
        without_validation: policy.tests_validity(),
        route: accepted,
    }
}

/// The attributes of a route, in canonical form.
fn attributes(route: &TestRoute, as_path: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    build::origin(&mut out, route.origin);
    let mut path = Vec::new();
    for asn in as_path.iter().rev() {
        path = build::prepend(AsPath::new(&path), *asn, 1);
    }
    build::as_path(&mut out, AsPath::new(&path));
    if let Some(med) = route.med {
        build::med(&mut out, med);
    }
    if let Some(preference) = route.local_pref {
        build::local_pref(&mut out, preference);
    }
    for code in [code::COMMUNITIES, code::EXTENDED_COMMUNITIES, code::LARGE_COMMUNITIES] {
        let mut value = Vec::new();
        for community in route.communities.iter().filter(|community| community.code() == code) {
            community.write(&mut value);
        }
        build::list(&mut out, 0, code, &value);
    }
    out
}

fn accepted(attributes: &[u8], next_hop: Option<String>, unchanged: bool) -> AcceptedRoute {
    let mut route = AcceptedRoute {
        unchanged,
        next_hop,
        as_path: String::new(),
        origin: String::new(),
        local_pref: None,
        med: None,
        communities: Vec::new(),
    };
    for a in Attributes::new(attributes) {
        match a.code {
            code::ORIGIN => {
                route.origin = Origin::from_value(a.value).map_or(String::new(), |o| o.to_string());
            }
            code::AS_PATH => route.as_path = AsPath::new(a.value).to_string(),
            code::MED => route.med = number(a.value),
            code::LOCAL_PREF => route.local_pref = number(a.value),
            code::COMMUNITIES => {
                route.communities.extend(Communities::new(a.value).iter().map(|c| c.to_string()));
            }
            code::LARGE_COMMUNITIES => {
                route.communities.extend(LargeCommunities::new(a.value).iter().map(|c| c.to_string()));
            }
            code::EXTENDED_COMMUNITIES => {
                route.communities.extend(ExtendedCommunities::new(a.value).iter().map(|c| c.to_string()));
            }
            _ => {}
        }
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        crate::parse(
            r#"
[router]
asn = 65001
router-id = "10.0.0.1"
[policy.prefix-set.private]
prefixes = ["10.0.0.0/8 8..32"]
[policy.community-set.blackhole]
members = ["65001:666"]
[[policy.definition.in.statement]]
name = "private"
conditions.match-prefix-set = "private"
actions.policy-result = "reject"
[[policy.definition.in.statement]]
name = "blackhole"
conditions.match-community-set = "blackhole"
actions.set-local-pref = 200
actions.policy-result = "accept"
[bgp.group.upstream]
type = "external"
peer-asn = 65010
import = ["in"]
export = ["accept"]
neighbors = ["192.0.2.1", "192.0.2.2"]
[bgp.group.customer]
type = "external"
peer-asn = 65020
neighbors = ["192.0.2.9"]
"#,
        )
        .unwrap()
    }

    fn run(
        route: &TestRoute,
        prefix: &str,
        group: Option<&str>,
        neighbor: Option<&str>,
        direction: Option<Direction>,
    ) -> Result<Vec<PolicyTest>, String> {
        test_policies(&config(), &[prefix.parse().unwrap()], route, group, neighbor, direction)
    }

    #[test]
    fn each_policy_decides_with_its_reasons() {
        let imports = |route: &TestRoute, prefix: &str| {
            run(route, prefix, Some("upstream"), None, Some(Direction::Import)).unwrap()
        };
        let plain = TestRoute::default();
        let [result] = &imports(&plain, "10.1.0.0/16")[..] else { panic!() };
        assert!(!result.accepted && result.route.is_none());
        assert_eq!(result.neighbors, ["192.0.2.1", "192.0.2.2"]);
        assert!(result.reasons.last().unwrap().contains("statement \"private\""), "{result:?}");
        // Not tried statements have no part, and the end of an external import policy rejects.
        let [result] = &imports(&plain, "198.51.100.0/24")[..] else { panic!() };
        assert!(!result.accepted && result.reasons.len() == 3, "{result:?}");
        let marked = TestRoute { communities: vec!["65001:666".parse().unwrap()], ..plain.clone() };
        let [result] = &imports(&marked, "198.51.100.0/24")[..] else { panic!() };
        let route = result.route.as_ref().unwrap();
        assert_eq!((route.local_pref, route.as_path.as_str(), route.unchanged), (Some(200), "65010", false));
        assert_eq!(route.communities, ["65001:666"]);
    }

    #[test]
    fn what_the_router_refuses_before_a_policy_is_refused_here() {
        let import = |prefix: &str, as_path: Option<Vec<u32>>, next_hop: Option<&str>| {
            let next_hop = next_hop.map(|text| text.parse().unwrap());
            let marked = vec!["65001:666".parse().unwrap()];
            let route = TestRoute { as_path, next_hop, communities: marked, ..TestRoute::default() };
            let results = run(&route, prefix, Some("upstream"), None, Some(Direction::Import)).unwrap();
            (results[0].accepted, results[0].before_policy, results[0].reasons.last().unwrap().clone())
        };
        let (accepted, before, _) = import("198.51.100.0/24", Some(vec![65010, 7]), Some("192.0.2.1"));
        assert!(accepted && !before);
        for (prefix, as_path, next_hop, why) in [
            ("127.1.0.0/16", vec![65010], None, "127.1.0.0/16 is a martian"),
            ("ff02::/16", vec![65010], None, "ff02::/16 is a martian"),
            ("198.51.100.0/24", vec![65010, 65001, 7], None, "the AS path has our AS 65001"),
            ("198.51.100.0/24", vec![65011], None, "does not begin with the neighbour's AS 65010"),
            ("198.51.100.0/24", vec![], None, "does not begin with the neighbour's AS 65010"),
            ("198.51.100.0/24", vec![65010], Some("127.0.0.1"), "127.0.0.1 is a loopback address"),
        ] {
            let (accepted, before, reason) = import(prefix, Some(as_path), next_hop);
            assert!(!accepted && before && reason.contains(why), "{prefix}: {reason}");
        }
        // To a neighbour nothing of this counts.
        let route = TestRoute { as_path: Some(vec![65001]), ..TestRoute::default() };
        let results = run(&route, "127.1.0.0/16", Some("upstream"), None, Some(Direction::Export)).unwrap();
        assert!(results[0].accepted && !results[0].before_policy);
    }

    #[test]
    fn no_policy_is_that_of_rfc_8212_and_unknown_names_are_refused() {
        let plain = TestRoute::default();
        let results = run(&plain, "2001:db8::/32", Some("customer"), None, None).unwrap();
        assert_eq!(
            results.iter().map(|r| (r.direction, r.accepted)).collect::<Vec<_>>(),
            [(Direction::Import, false), (Direction::Export, false)]
        );
        let results = run(&plain, "2001:db8::/32", None, Some("192.0.2.2"), Some(Direction::Export)).unwrap();
        assert!(results.len() == 1 && results[0].accepted && results[0].route.as_ref().unwrap().unchanged);
        assert!(run(&plain, "::/0", Some("upstraem"), None, None).unwrap_err().contains("upstream"));
        assert!(run(&plain, "::/0", None, Some("192.0.2.3"), None).unwrap_err().contains("192.0.2.3"));
    }
}
