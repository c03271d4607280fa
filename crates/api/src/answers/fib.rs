//! `/v1/fib`: routes that the RIB manager selected.

use super::{ApiState, Refusal, Target, gone, target, vrf as vrf_of};
use ribtide_model::{BLACKHOLE, DataplaneState, FibLookups, FibNextHop, FibPage, FibRoute, UNRESOLVED};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{FibGroup, FibHop, IfIndex, InstallStatus, Rib, RouteInfo, VrfId};
use ribtide_ribd::{RibHandle, RibStage};

/// Prefixes of one call of the RIB manager.
const LOOKUP: usize = 1000;

/// A route as copied on the thread of the RIB manager; the thread of the API formats it.
struct Described {
    vrf: String,
    info: RouteInfo,
    hops: Vec<String>,
    states: Vec<(String, InstallStatus)>,
}

fn describe(stage: &RibStage, vrf: VrfId, rib: &Rib, info: RouteInfo) -> Described {
    Described {
        vrf: stage.vrf_name(vrf),
        states: stage.install_statuses(rib, info.prefix),
        hops: content(stage, &info.content),
        info,
    }
}

/// The content of a group, a line for each hop.
pub(super) fn content(stage: &RibStage, group: &FibGroup) -> Vec<String> {
    match group {
        FibGroup::Blackhole => vec![BLACKHOLE.into()],
        FibGroup::Unresolved => vec![UNRESOLVED.into()],
        FibGroup::Hops(hops) => hops.iter().map(|hop| hop_text(stage, hop, hops.len() > 1)).collect(),
    }
}

fn hop_text(stage: &RibStage, hop: &FibHop, weighted: bool) -> String {
    let interface = interface_name(stage, hop.interface);
    FibNextHop { gateway: hop.gateway, interface, weight: weighted.then_some(hop.weight) }.to_string()
}

/// The name of an interface, or its index after removal.
pub(crate) fn interface_name(stage: &RibStage, index: IfIndex) -> String {
    stage.rib.interface(index).map_or_else(|| format!("if{index}"), |i| i.name.clone())
}

fn model(d: Described) -> FibRoute {
    FibRoute {
        vrf: d.vrf,
        prefix: d.info.prefix.to_string(),
        protocol: d.info.protocol.name().into(),
        distance: d.info.distance,
        group: Some(d.info.group.0),
        hops: d.hops,
        dataplanes: d
            .states
            .into_iter()
            .map(|(name, status)| {
                let (state, reason) = match status {
                    InstallStatus::Installed => ("installed", None),
                    InstallStatus::Pending => ("pending", None),
                    InstallStatus::Failed(reason) => ("failed", Some(reason)),
                };
                DataplaneState { name, state: state.into(), reason }
            })
            .collect(),
    }
}

/// The route of the RIB manager for a target.
fn lookup(rib: &RibHandle, vrf: VrfId, what: Target) -> Result<Option<FibRoute>, Refusal> {
    let found = rib.handle.call(move |stage| {
        let rib = stage.rib.get(vrf)?;
        let info = match what {
            Target::Prefix(p) => rib.lookup(p),
            Target::Address(a) => rib.longest_match(a),
        };
        info.map(|info| describe(stage, vrf, rib, info))
    })?;
    Ok(found.map(model))
}

/// A page, one prefix, or the longest match of an address.
pub(crate) fn fib(
    router: &ApiState,
    vrf: Option<&str>,
    prefix: Option<&str>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<FibPage, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    if let Some(text) = prefix {
        let found = lookup(rib, vrf_of(rib, vrf)?, target(text)?)?;
        let whose = vrf.map_or(String::new(), |vrf| format!(" in VRF {vrf}"));
        let route =
            found.ok_or_else(|| Refusal::Missing(format!("no route for {text} is selected{whose}")))?;
        return Ok(FibPage { routes: vec![route], next: None });
    }
    let (vrf, mut read) = match cursor {
        Some(cursor) => router.fib_reads.take(cursor)?,
        None => {
            let vrf = vrf_of(rib, vrf)?;
            let mut read =
                rib.handle.call(move |stage| Some(stage.rib.get(vrf)?.cursor()))?.ok_or_else(gone)?;
            read.sort();
            (vrf, read)
        }
    };
    let page = rib.handle.call(move |stage| {
        let rib = stage.rib.get(vrf)?;
        let page = rib.page(&mut read, limit);
        let routes: Vec<_> = page.into_iter().map(|info| describe(stage, vrf, rib, info)).collect();
        Some((read, routes))
    })?;
    let (read, routes) = page.ok_or_else(gone)?;
    let next = (!read.is_done()).then(|| router.fib_reads.put((vrf, read)));
    Ok(FibPage { routes: routes.into_iter().map(model).collect(), next })
}

/// The selected routes of exactly these prefixes, some at a time.
pub(crate) fn fib_lookup(
    router: &ApiState,
    vrf: Option<&str>,
    prefixes: &[String],
) -> Result<FibLookups, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let vrf = vrf_of(rib, vrf)?;
    let prefix = |text: &String| {
        text.parse().map_err(|e: ribtide_prefix::ParsePrefixError| Refusal::Bad(e.to_string()))
    };
    let prefixes = prefixes.iter().map(prefix).collect::<Result<Vec<AnyPrefix>, Refusal>>()?;
    let mut routes = Vec::with_capacity(prefixes.len());
    for some in prefixes.chunks(LOOKUP) {
        let some = some.to_vec();
        let found = rib.handle.call(move |stage| {
            let rib = stage.rib.get(vrf)?;
            let describe = |prefix| rib.lookup(prefix).map(|info| describe(stage, vrf, rib, info));
            Some(some.into_iter().map(describe).collect::<Vec<_>>())
        })?;
        routes.extend(found.ok_or_else(gone)?.into_iter().map(|found| found.map(model)));
    }
    Ok(FibLookups { routes })
}

pub(super) fn no_fib() -> Refusal {
    Refusal::Missing("this router installs no routes; add a [fib] table to its configuration".into())
}

/// The prefix of a target in the RIB.
pub(super) fn prefix_of(rib: &RibHandle, vrf: VrfId, what: Target) -> Result<Option<AnyPrefix>, Refusal> {
    match what {
        Target::Prefix(p) => Ok(Some(p)),
        Target::Address(a) => {
            Ok(rib.handle.call(move |stage| Some(stage.rib.get(vrf)?.longest_match(a)?.prefix))?)
        }
    }
}
