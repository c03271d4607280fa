//! `/v1/fib`: routes that the RIB manager selected.

use super::filter::{self, Batches};
use super::{ApiState, Refusal, Target, gone, target, vrf as vrf_of};
use crate::request::FibQuery;
use ribtide_model::{BLACKHOLE, DataplaneState, FibLookups, FibNextHop, FibPage, FibRoute, UNRESOLVED};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{FibGroup, FibHop, IfIndex, InstallStatus, Protocol, Rib, RouteInfo, VrfId};
use ribtide_ribd::{RibHandle, RibStage};
use std::net::IpAddr;

/// Prefixes of one call of the RIB manager.
const LOOKUP: usize = 1000;

/// A route as copied on the thread of the RIB manager; the thread of the API formats it.
struct Described {
    vrf: String,
    info: RouteInfo,
    hops: Vec<String>,
    states: Vec<(String, InstallStatus)>,
    /// Seconds since it last changed, if it is known.
    age: Option<u64>,
}

fn describe(stage: &RibStage, vrf: VrfId, rib: &Rib, info: RouteInfo) -> Described {
    Described {
        vrf: stage.vrf_name(vrf),
        states: stage.install_statuses(rib, info.prefix),
        hops: content(stage, &info.content),
        age: age(stage, rib, info.prefix),
        info,
    }
}

/// Seconds since a selected route changed, if it is known.
fn age(stage: &RibStage, rib: &Rib, prefix: AnyPrefix) -> Option<u64> {
    rib.changed_at(prefix).map(|at| stage.now().saturating_sub(at) / 1000)
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
        age_seconds: d.age,
        dataplanes: d
            .states
            .into_iter()
            .map(|(name, status)| {
                let state = state_name(&status).into();
                let reason = match status {
                    InstallStatus::Failed(reason) => Some(reason),
                    InstallStatus::Installed | InstallStatus::Pending => None,
                };
                DataplaneState { name, state, reason }
            })
            .collect(),
    }
}

/// The route of the RIB manager for a target.
fn lookup(
    rib: &RibHandle,
    vrf: VrfId,
    what: Target,
    conditions: FibFilter,
) -> Result<Option<FibRoute>, Refusal> {
    let found = rib.handle.call(move |stage| {
        let rib = stage.rib.get(vrf)?;
        let info = match what {
            Target::Prefix(p) => rib.lookup(p),
            Target::Address(a) => rib.longest_match(a),
        };
        info.filter(|info| conditions.fits(stage, rib, info)).map(|info| describe(stage, vrf, rib, info))
    })?;
    Ok(found.map(model))
}

/// Conditions on a selected route, which all must hold.
#[derive(Clone, Debug)]
struct FibFilter {
    /// A gateway.
    next_hop: Option<IpAddr>,
    protocol: Option<Protocol>,
    /// The name of the state in some dataplane.
    state: Option<&'static str>,
    /// Seconds since it changed: fewer, and at least so many.
    age_under: Option<u32>,
    age_over: Option<u32>,
}

/// The names of a route's states in a dataplane.
const STATES: [&str; 3] = ["installed", "pending", "failed"];

fn state_name(status: &InstallStatus) -> &'static str {
    let [installed, pending, failed] = STATES;
    match status {
        InstallStatus::Installed => installed,
        InstallStatus::Pending => pending,
        InstallStatus::Failed(_) => failed,
    }
}

impl FibFilter {
    fn new(query: &FibQuery) -> Result<FibFilter, Refusal> {
        let protocol = |text: &str| {
            Protocol::ALL.into_iter().find(|protocol| protocol.name() == text).ok_or_else(|| {
                let names = Protocol::ALL.map(Protocol::name).join(", ");
                Refusal::Bad(format!("protocol: \"{text}\" is none; write one of {names}"))
            })
        };
        let state = |text: &str| filter::named(text, STATES.map(|name| (name, name)));
        Ok(FibFilter {
            next_hop: filter::next_hop(query.next_hop.as_deref())?,
            protocol: query.protocol.as_deref().map(protocol).transpose()?,
            state: query.state.as_deref().map(state).transpose()?,
            age_under: query
                .age_under
                .as_deref()
                .map(|text| filter::seconds("age-under", text))
                .transpose()?,
            age_over: query.age_over.as_deref().map(|text| filter::seconds("age-over", text)).transpose()?,
        })
    }

    fn is_empty(&self) -> bool {
        let FibFilter { next_hop, protocol, state, age_under, age_over } = self;
        next_hop.is_none()
            && protocol.is_none()
            && state.is_none()
            && age_under.is_none()
            && age_over.is_none()
    }

    fn fits(&self, stage: &RibStage, rib: &Rib, route: &RouteInfo) -> bool {
        let goes_by = |address| match &route.content {
            FibGroup::Hops(hops) => hops.iter().any(|hop| hop.gateway == Some(address)),
            FibGroup::Blackhole | FibGroup::Unresolved => false,
        };
        let is_so = |name| rib.status(route.prefix).iter().any(|(_, status)| state_name(status) == name);
        self.protocol.is_none_or(|protocol| route.protocol == protocol)
            && self.next_hop.is_none_or(goes_by)
            && self.state.is_none_or(is_so)
            && self.is_of_age(|| age(stage, rib, route.prefix))
    }
}

impl FibFilter {
    /// Whether a route of this age fits; one whose age is not known fits no condition.
    fn is_of_age(&self, age: impl FnOnce() -> Option<u64>) -> bool {
        if self.age_under.is_none() && self.age_over.is_none() {
            return true;
        }
        age().is_some_and(|age| {
            self.age_under.is_none_or(|under| age < u64::from(under))
                && self.age_over.is_none_or(|over| age >= u64::from(over))
        })
    }
}

/// A page, one prefix, or the longest match of an address.
pub(crate) fn fib(router: &ApiState, query: &FibQuery, limit: usize) -> Result<FibPage, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let vrf = query.vrf.as_deref();
    let conditions = FibFilter::new(query)?;
    let set = filter::prefixes(query.prefix.as_deref(), query.r#match)?;
    if let Some(text) = query.prefix.as_deref().filter(|_| set.is_none()) {
        let found = lookup(rib, vrf_of(rib, vrf)?, target(text)?, conditions.clone())?;
        let whose = vrf.map_or(String::new(), |vrf| format!(" in VRF {vrf}"));
        let such = if conditions.is_empty() { "" } else { " such" };
        let route =
            found.ok_or_else(|| Refusal::Missing(format!("no{such} route for {text} is selected{whose}")))?;
        return Ok(FibPage { routes: vec![route], next: None });
    }
    let of = query.parameters();
    let (vrf, mut read) = match query.cursor.as_deref() {
        Some(cursor) => router.fib_reads.take(cursor, &of)?,
        None => {
            let vrf = vrf_of(rib, vrf)?;
            let mut read =
                rib.handle.call(move |stage| Some(stage.rib.get(vrf)?.cursor()))?.ok_or_else(gone)?;
            if let Some(set) = set {
                read.retain(|prefix| set.has_any(prefix));
            }
            read.sort();
            (vrf, read)
        }
    };
    let mut routes = Vec::new();
    let mut batches = Batches::new(limit, conditions.is_empty());
    while !read.is_done()
        && let Some(batch) = batches.next(routes.len())
    {
        let (conditions, room) = (conditions.clone(), limit - routes.len());
        let page = rib.handle.call(move |stage| {
            let rib = stage.rib.get(vrf)?;
            // Looks on only while there is room, so nothing that fits is left behind.
            let mut routes = Vec::new();
            let mut left = batch;
            while left > 0 && routes.len() < room && !read.is_done() {
                let some = left.min(room - routes.len());
                left -= some;
                let page =
                    rib.page(&mut read, some).into_iter().filter(|info| conditions.fits(stage, rib, info));
                routes.extend(page.map(|info| describe(stage, vrf, rib, info)));
            }
            Some((read, routes))
        })?;
        let (rest, page) = page.ok_or_else(gone)?;
        read = rest;
        routes.extend(page.into_iter().map(model));
    }
    let next = (!read.is_done()).then(|| router.fib_reads.put(&of, (vrf, read)));
    Ok(FibPage { routes, next })
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
