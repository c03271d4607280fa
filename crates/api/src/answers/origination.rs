//! `/v1/bgp/aggregates` and `/v1/bgp/originated`: what the session thread originates.

use super::bgp::bgp;
use super::{Refusal, RouterState};
use ribtide_bgp::shard::Shard;
use ribtide_bgp::watch::WatchId;
use ribtide_bgpd::session::{InjectedChange, InjectedText, InjectedView, NewRoute};
use ribtide_model::{
    AddRoute, AddRoutes, Aggregate, Aggregates, OwnedRoute, OwnedRoutePage, RoutesChanged, WithdrawRoutes,
};
use ribtide_prefix::{AnyPrefix, ParsePrefixError};
use std::collections::{BTreeMap, BTreeSet};

/// The configured aggregates.
pub(crate) fn aggregates(router: &RouterState) -> Result<Aggregates, Refusal> {
    let bgp = bgp(router)?;
    let views = bgp.sessions.call(|s| s.aggregates())?;
    let mut members: BTreeMap<WatchId, u64> = BTreeMap::new();
    for shard in &bgp.owners.read().shards {
        for (watch, count) in shard.call(|s: &mut Shard| s.watched())? {
            *members.entry(watch).or_default() += u64::from(count);
        }
    }
    let aggregates = views.into_iter().map(|view| Aggregate {
        prefix: view.prefix.to_string(),
        active: view.active,
        contributors: view.watch.and_then(|watch| members.get(&watch)).copied().unwrap_or(0),
        suppresses: view.suppresses,
        policy: view.policy,
    });
    Ok(Aggregates { aggregates: aggregates.collect() })
}

/// Routes of one request at most.
const ROUTES_MAX: usize = 10_000;
/// Bytes of an owner's name at most.
const OWNER_MAX: usize = 64;

/// Announces routes of an owner.
pub(crate) fn add_routes(router: &RouterState, request: AddRoutes) -> Result<RoutesChanged, Refusal> {
    let AddRoutes { owner, expires, replace, routes } = request;
    check_owner(&owner)?;
    if expires == Some(0) {
        return Err(Refusal::Bad(
            "expires: 0 s is no time; write 1 and more, or leave it out for never".into(),
        ));
    }
    if routes.is_empty() && !replace {
        return Err(Refusal::Bad("routes: the list is empty; write at least one route, or replace".into()));
    }
    if routes.len() > ROUTES_MAX {
        let message = format!("routes: at most {ROUTES_MAX} in a request, not {}", routes.len());
        return Err(Refusal::Bad(message));
    }
    let mut seen = BTreeSet::new();
    let mut new = Vec::new();
    for (i, route) in routes.into_iter().enumerate() {
        let route = new_route(i, route)?;
        if !seen.insert(route.prefix()) {
            return Err(Refusal::Bad(format!("routes[{i}].prefix: {} is in the list twice", route.prefix())));
        }
        new.push(route);
    }
    let (of, after) = (owner.clone(), expires.map(|s| u64::from(s) * 1000));
    let changed = bgp(router)?.sessions.call(move |s| s.inject(&of, after, replace, new))?;
    changed.map(|change| changes(owner, change)).map_err(|e| Refusal::Bad(e.to_string()))
}

/// Withdraws routes of an owner.
pub(crate) fn withdraw_routes(
    router: &RouterState,
    request: WithdrawRoutes,
) -> Result<RoutesChanged, Refusal> {
    let WithdrawRoutes { owner, prefixes, all } = request;
    check_owner(&owner)?;
    if all != prefixes.is_empty() {
        return Err(Refusal::Bad(
            "prefixes: write a list of prefixes, or \"all\": true for all of the owner".into(),
        ));
    }
    let mut parsed = Vec::new();
    for (i, text) in prefixes.iter().enumerate() {
        let prefix = text.parse::<AnyPrefix>();
        parsed.push(prefix.map_err(|e| Refusal::Bad(format!("prefixes[{i}]: {e}")))?);
    }
    let of = owner.clone();
    let change = bgp(router)?.sessions.call(move |s| s.withdraw_of(&of, (!all).then_some(parsed)))?;
    Ok(changes(owner, change))
}

/// A page of the routes of API clients.
pub(crate) fn owned_routes(
    router: &RouterState,
    owner: Option<String>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<OwnedRoutePage, Refusal> {
    let after = cursor.map(str::parse::<AnyPrefix>).transpose();
    let after =
        after.map_err(|_| Refusal::Bad("cursor: this is none of a page before; leave it out".into()))?;
    let views = bgp(router)?.sessions.call(move |s| s.injected(owner.as_deref(), after, limit))?;
    let next = views.last().filter(|_| views.len() == limit).map(|view| view.prefix.to_string());
    let route = |view: InjectedView| OwnedRoute {
        owner: view.owner,
        expires: view.expires_in.map(|ms| ms.div_ceil(1000)),
        route: AddRoute {
            prefix: view.prefix.to_string(),
            next_hop: view.text.next_hop,
            discard: view.text.next_hop.is_none(),
            med: view.text.med,
            local_pref: view.text.local_pref,
            communities: view.text.communities,
        },
    };
    Ok(OwnedRoutePage { routes: views.into_iter().map(route).collect(), next })
}

fn check_owner(owner: &str) -> Result<(), Refusal> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@/".contains(c);
    match owner {
        "" => Err(Refusal::Bad("owner: it is empty; write a name for your client".into())),
        owner if owner.len() > OWNER_MAX || !owner.chars().all(is_plain) => {
            Err(Refusal::Bad(format!("owner: a name has at most {OWNER_MAX} letters, digits and -_.:@/")))
        }
        _ => Ok(()),
    }
}

fn changes(owner: String, change: InjectedChange) -> RoutesChanged {
    let InjectedChange { announced, refreshed, withdrawn } = change;
    RoutesChanged { owner, announced, refreshed, withdrawn }
}

fn new_route(i: usize, route: AddRoute) -> Result<NewRoute, Refusal> {
    let AddRoute { prefix, next_hop, discard, med, local_pref, communities } = route;
    let bad = |field: &str, message: String| Refusal::Bad(format!("routes[{i}].{field}: {message}"));
    let prefix: AnyPrefix = prefix.parse().map_err(|e: ParsePrefixError| bad("prefix", e.to_string()))?;
    if discard == next_hop.is_some() {
        return Err(match discard {
            true => bad("discard", "a route that discards has no next_hop; write one of both".into()),
            false => bad("next_hop", "it is missing; write an address, or \"discard\": true".into()),
        });
    }
    let text = InjectedText { next_hop, med, local_pref, communities };
    NewRoute::new(prefix, text).map_err(|(field, message)| bad(&field, message))
}
