//! `/v1/bgp/nexthops`: the next hops that BGP registered.

use super::fib::{content, no_fib};
use super::zones::Zones;
use super::{Refusal, RouterState};
use ribtide_model::{Route, TrackedNextHop, TrackedNextHops};
use ribtide_prefix::zone::split_zone;
use ribtide_rib::{FibGroup, FibHop, Outcome, Reachability, TrackedInfo};
use ribtide_ribd::RibStage;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The registered next hops, or those of one address.
pub(crate) fn tracked_next_hops(
    router: &RouterState,
    only: Option<IpAddr>,
) -> Result<TrackedNextHops, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let zones = Zones::new(router)?;
    Ok(rib.handle.call(move |stage| {
        let all = stage.rib.default_vrf().tracked_next_hops();
        let mut infos: Vec<TrackedInfo> =
            all.filter(|info| only.is_none_or(|only| only == split_zone(info.next_hop.address).0)).collect();
        infos.sort_by_key(|info| info.next_hop);
        TrackedNextHops { next_hops: infos.into_iter().map(|info| next_hop(stage, &zones, info)).collect() }
    })?)
}

/// Adds to each route how the next hops of its paths resolve, with one call of the RIB manager. Without installed routes
/// nothing resolves.
pub(super) fn add_resolution(router: &RouterState, routes: &mut [Route]) -> Result<(), Refusal> {
    let Some(rib) = router.rib.get() else { return Ok(()) };
    let zones = Zones::new(router)?;
    let addresses =
        |route: &Route| route.paths.iter().map(|path| path.next_hop.address).collect::<BTreeSet<_>>();
    let wanted: BTreeSet<IpAddr> = routes.iter().flat_map(addresses).collect();
    let all = rib.handle.call(move |stage| {
        let all = stage.rib.default_vrf().tracked_next_hops();
        let mut infos: Vec<TrackedInfo> =
            all.filter(|info| wanted.contains(&split_zone(info.next_hop.address).0)).collect();
        infos.sort_by_key(|info| info.next_hop);
        let of = |info: TrackedInfo| (split_zone(info.next_hop.address).0, next_hop(stage, &zones, info));
        infos.into_iter().map(of).collect::<Vec<_>>()
    })?;
    for route in routes {
        let own = addresses(route);
        let is_for =
            |next_hop: &TrackedNextHop| next_hop.only_for.as_ref().is_none_or(|only| *only == route.prefix);
        let of_route = all.iter().filter(|(address, next_hop)| own.contains(address) && is_for(next_hop));
        route.resolution = of_route.map(|(_, next_hop)| next_hop.clone()).collect();
    }
    Ok(())
}

fn next_hop(stage: &RibStage, zones: &Zones, info: TrackedInfo) -> TrackedNextHop {
    let TrackedInfo { next_hop, outcome, via, notified, changes, changed_at, delayed_until } = info;
    let (resolved, unresolved) = match outcome {
        Outcome::Hops(hops) => {
            // Without a weight of its own, a hop has that of the route.
            let hops = hops.into_iter().map(|hop| FibHop { weight: hop.weight.max(1), ..hop }).collect();
            (content(stage, &FibGroup::Hops(hops)), None)
        }
        Outcome::Blackhole => (content(stage, &FibGroup::Blackhole), None),
        Outcome::Unresolved(why) => (Vec::new(), Some(why.to_string())),
    };
    TrackedNextHop {
        address: zones.named(next_hop.address).to_string(),
        kind: if next_hop.recursive { "recursive" } else { "on-link" }.into(),
        only_for: next_hop.exclude.map(|prefix| prefix.to_string()),
        reachable: notified.map(|state| state.cost().is_some()),
        alone: matches!(notified, Some(Reachability::ReachableAlone { .. })),
        cost: notified.and_then(Reachability::cost),
        through: via.map(|prefix| prefix.to_string()),
        resolved,
        unresolved,
        changes,
        changed_seconds: changed_at.map(|at| stage.now().saturating_sub(at) / 1000),
        delayed_ms: delayed_until.map(|until| until.saturating_sub(stage.now())),
    }
}
