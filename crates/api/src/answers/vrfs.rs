//! `/v1/vrfs` and `/v1/static-routes`.

use super::fib::{interface_name, no_fib};
use super::{Refusal, RouterState, interfaces, nexthop, summary, vrf as vrf_of};
use ribtide_config::{self as config, DEFAULT_VRF, StaticHop, StaticTrack};
use ribtide_model::{StaticNextHop, StaticRoute, StaticRoutes, Tracked, Vrf, Vrfs};
use ribtide_rib::{CandidateInfo, HopInfo, Outcome, Protocol, Rib, SelectionResult, VrfId};
use ribtide_ribd::RibStage;
use std::net::IpAddr;

/// Static routes of one call of the RIB manager.
const ROUTES_BATCH_MAX: usize = 256;

/// Every VRF, the default one first.
pub(crate) fn vrfs(router: &RouterState) -> Result<Vrfs, Refusal> {
    let config = router.config();
    let dataplanes = router.dataplanes();
    let tables = dataplanes.kernel.as_ref().map(|kernel| kernel.scope().tables).unwrap_or_default();
    let mut members = interfaces::by_vrf(router);
    let listed = dataplanes.interfaces.as_ref().map(|list| list.get()).unwrap_or_default();
    let device_of_default = config.fib.as_ref().and_then(|fib| fib.kernel.as_ref()?.vrf.as_deref());
    let mut vrf = |name: &str, statics: &[config::StaticRoute]| {
        let device = if name == DEFAULT_VRF { device_of_default } else { Some(name) };
        let is_device = |device: &&str| {
            listed.values().any(|one| one.name == *device && one.kind.as_deref() == Some("vrf"))
        };
        Vrf {
            name: name.into(),
            table: tables.iter().find(|(_, of)| *of == name).map(|(table, _)| *table),
            device: device.filter(is_device).map(str::to_owned),
            interfaces: members.remove(name).unwrap_or_default(),
            static_routes: statics.len(),
            protocols: Vec::new(),
            next_hop_groups: 0,
            bgp: name == DEFAULT_VRF && config.bgp.is_some(),
        }
    };
    let mut all = vec![vrf(DEFAULT_VRF, &config.statics)];
    all.extend(config.vrfs.iter().map(|(name, one)| vrf(name, &one.statics)));
    if let Some(rib) = router.rib.get() {
        let counts = rib.handle.call(|stage| {
            let of =
                |(name, rib): (&str, &Rib)| (name.to_owned(), summary::protocols(rib), rib.group_count());
            stage.vrfs().map(of).collect::<Vec<_>>()
        })?;
        for (name, protocols, groups) in counts {
            if let Some(vrf) = all.iter_mut().find(|vrf| vrf.name == name) {
                (vrf.protocols, vrf.next_hop_groups) = (protocols, groups);
            }
        }
    }
    Ok(Vrfs { vrfs: all })
}

/// The static routes of a VRF, or of all.
pub(crate) fn static_routes(router: &RouterState, vrf: Option<&str>) -> Result<StaticRoutes, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let ids = match vrf {
        Some(name) => vec![vrf_of(rib, Some(name))?],
        None => rib.handle.call(|stage| stage.rib.iter().map(|(id, _)| id).collect::<Vec<_>>())?,
    };
    let mut routes: Vec<StaticRoute> = Vec::new();
    for id in ids {
        let mut first = 0;
        loop {
            // A route that a reload removes meanwhile may be left out, or another one repeated.
            let some = rib.handle.call(move |stage| {
                let some = stage.static_routes(id).skip(first).take(ROUTES_BATCH_MAX);
                some.map(|(route, awaited)| described(stage, id, route, awaited)).collect::<Vec<_>>()
            })?;
            first += some.len();
            let is_last = some.len() < ROUTES_BATCH_MAX;
            routes.extend(some);
            if is_last {
                break;
            }
        }
    }
    Ok(StaticRoutes { routes })
}

fn described(
    stage: &RibStage,
    vrf: VrfId,
    route: &config::StaticRoute,
    awaited: Option<&String>,
) -> StaticRoute {
    let rib = stage.rib.get(vrf);
    let found = rib.and_then(|rib| candidate(rib, route));
    let mut described = StaticRoute {
        vrf: stage.vrf_name(vrf),
        prefix: route.prefix.to_string(),
        distance: route.distance,
        blackhole: route.hops.is_empty(),
        next_hops: route.hops.iter().map(configured).collect(),
        backup: route.backup.iter().map(|gateway| gateway_alone(*gateway)).collect(),
        on_backup: false,
        tracks: route.track.as_ref().map(|track| Tracked { what: tracked(track), holds: false }),
        bfd: route.bfd.is_some(),
        selected: false,
        reason: None,
        group: None,
    };
    match (awaited, found) {
        (Some(name), _) => described.reason = Some(format!("it waits until there is an interface {name}")),
        (None, None) => described.reason = Some("it is on its way to the RIB manager".into()),
        (None, Some(candidate)) => {
            described.selected = candidate.selection == SelectionResult::Selected;
            described.reason = (!described.selected).then(|| candidate.selection.to_string());
            described.group = Some(candidate.group.0);
            if let Some(group) = rib.and_then(|rib| rib.group(candidate.group)) {
                let hops = |hops: &[HopInfo]| hops.iter().map(|hop| resolved(stage, hop)).collect();
                described.next_hops = hops(&group.hops);
                described.backup = hops(&group.backup);
                described.on_backup = group.on_backup;
                described.tracks =
                    group.track.map(|(track, holds)| Tracked { what: nexthop::tracked(stage, track), holds });
            }
        }
    }
    described
}

/// The candidate of a static route.
fn candidate(rib: &Rib, route: &config::StaticRoute) -> Option<CandidateInfo> {
    let candidates = rib.explain(route.prefix)?.candidates;
    candidates.into_iter().find(|c| c.protocol == Protocol::Static && c.distance == route.distance)
}

/// A next hop of a route that waits for an interface.
fn configured(hop: &StaticHop) -> StaticNextHop {
    let StaticHop { gateway, interface } = hop.clone();
    StaticNextHop { gateway, interface, through: None, unresolved: None }
}

fn gateway_alone(gateway: IpAddr) -> StaticNextHop {
    configured(&StaticHop { gateway: Some(gateway), interface: None })
}

fn resolved(stage: &RibStage, hop: &HopInfo) -> StaticNextHop {
    StaticNextHop {
        gateway: hop.received.gateway,
        interface: hop.received.interface.map(|index| interface_name(stage, index)),
        through: hop.via.map(|prefix| prefix.to_string()),
        unresolved: match &hop.outcome {
            Outcome::Unresolved(why) => Some(why.to_string()),
            Outcome::Hops(_) | Outcome::Blackhole => None,
        },
    }
}

fn tracked(track: &StaticTrack) -> String {
    match track {
        StaticTrack::Interface(name) => format!("interface {name}"),
        StaticTrack::Prefix(prefix) => format!("prefix {prefix}"),
        StaticTrack::Address(address) => format!("address {address}"),
    }
}
