//! `/v1/nexthop-groups` and `/v1/nexthop-cache`: next-hop groups and the resolution cache.

use super::fib::{content, interface_name, no_fib};
use super::{Refusal, RouterState, vrf as vrf_of};
use ribtide_model::{
    BackupNextHop, InstalledGroup, NextHopCache, NextHopCacheSet, NextHopGroup, NextHopGroupPage,
    ReceivedNextHop, RouteGroups, SetNextHopCache, Tracked,
};
use ribtide_rib::{
    CacheMode, FibPolicyResult, GroupId, GroupInfo, HopInfo, Outcome, SelectionResult, Source, Track, VrfId,
};
use ribtide_ribd::{RibHandle, RibStage};

/// The group `id`, or at most `limit` groups after `cursor`, of one VRF or all.
pub(crate) fn nexthop_groups(
    router: &RouterState,
    id: Option<u32>,
    vrf: Option<&str>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<NextHopGroupPage, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let place = |cursor: &str| {
        let (vrf, group) = cursor.split_once('.')?;
        Some((VrfId(vrf.parse().ok()?), GroupId(group.parse().ok()?)))
    };
    let after = match cursor.map(place) {
        None => None,
        Some(Some(after)) => Some(after),
        Some(None) => {
            return Err(Refusal::Bad("a cursor is what `next` said; start again without one".into()));
        }
    };
    let vrf = vrf.map(|name| vrf_of(rib, Some(name))).transpose()?;
    let page = rib.handle.call(move |stage| {
        let described = |(vrf, info)| group(stage, vrf, info);
        let (groups, next): (Vec<_>, _) = match id {
            Some(id) => (stage.rib.group(GroupId(id)).map(described).into_iter().collect(), None),
            None => {
                // Each VRF numbers its groups separately.
                let mut vrfs: Vec<_> =
                    stage.rib.iter().filter(|(id, _)| vrf.is_none_or(|vrf| vrf == *id)).collect();
                vrfs.retain(|(id, _)| after.is_none_or(|(last, _)| *id >= last));
                vrfs.sort_unstable_by_key(|(id, _)| *id);
                let mut infos = vrfs.into_iter().flat_map(|(id, rib)| {
                    let from = after.filter(|(last, _)| *last == id).map_or(GroupId(0), |(_, group)| group);
                    rib.groups_after(from).map(move |info| (id, info))
                });
                let page: Vec<_> = infos.by_ref().take(limit).collect();
                let more = infos.next().is_some();
                let last = page.last().map(|(vrf, info)| format!("{}.{}", vrf.0, info.id.0));
                (page.into_iter().map(described).collect(), last.filter(|_| more))
            }
        };
        NextHopGroupPage { cache: cache(stage), groups, next }
    })?;
    match id {
        Some(id) if page.groups.is_empty() => Err(Refusal::Missing(format!(
            "there is no next-hop group {id}; `ribtide show nexthop-group` lists them"
        ))),
        _ => Ok(page),
    }
}

/// The cache, and its counters in the default VRF.
pub(super) fn cache(stage: &RibStage) -> NextHopCache {
    let rib = stage.rib.default_vrf();
    let c = rib.cache_counters();
    NextHopCache {
        mode: rib.cache_mode().name().into(),
        generation: c.generation,
        hits: c.hits,
        misses: c.misses,
        resolutions: c.resolutions,
        lookups: c.lookups,
        invalidations: c.invalidations,
        resolution_seconds: c.nanoseconds as f64 / 1e9,
    }
}

fn group(stage: &RibStage, vrf: VrfId, info: GroupInfo) -> NextHopGroup {
    let ids = |ids: Vec<GroupId>| ids.into_iter().map(|id| id.0).collect();
    NextHopGroup {
        id: info.id.0,
        vrf: stage.vrf_name(vrf),
        routes: info.candidates,
        installed_routes: info.installed,
        installed: info.in_fib,
        allow_recursion: info.allow_recursion,
        only_for: info.exclude.map(|prefix| prefix.to_string()),
        received: info.hops.iter().map(|hop| received(stage, hop)).collect(),
        backup: info.backup.iter().map(|hop| received(stage, hop)).collect(),
        on_backup: info.on_backup,
        policy: (info.policy_result != FibPolicyResult::default()).then(|| info.policy_result.to_string()),
        tracks: info.track.map(|(track, holds)| Tracked { what: tracked(stage, track), holds }),
        resolved: info.content.as_ref().map(|c| content(stage, c)),
        level: info.level,
        stamp: (stage.rib.default_vrf().cache_mode() == CacheMode::Epoch).then_some(info.stamp),
        depends: ids(info.depends),
        dependents: ids(info.dependents),
    }
}

/// The name of what a route tracks.
pub(super) fn tracked(stage: &RibStage, track: Track) -> String {
    match track {
        Track::Interface(index) => format!("interface {}", interface_name(stage, index)),
        Track::Prefix(prefix) => format!("prefix {prefix}"),
        Track::Address(address) => format!("address {address}"),
    }
}

fn received(stage: &RibStage, hop: &HopInfo) -> ReceivedNextHop {
    let gateway = hop.received.gateway.map(|gateway| format!("via {gateway}"));
    let interface = hop.received.interface.map(|i| format!("dev {}", interface_name(stage, i)));
    let onlink = hop.received.onlink.then(|| "onlink".to_owned());
    let parts: Vec<String> = [gateway, interface, onlink].into_iter().flatten().collect();
    ReceivedNextHop {
        hop: parts.join(" "),
        weight: hop.received.weight,
        through: hop.via.map(|prefix| prefix.to_string()),
        unresolved: match &hop.outcome {
            Outcome::Unresolved(why) => Some(why.to_string()),
            Outcome::Hops(_) | Outcome::Blackhole => None,
        },
    }
}

/// The groups of a BGP prefix; `None` if BGP feeds no next hops for it.
pub(super) fn of_route(rib: &RibHandle, prefix: &str) -> Result<Option<RouteGroups>, Refusal> {
    let Ok(prefix) = prefix.parse() else { return Ok(None) };
    Ok(rib.handle.call(move |stage| {
        // BGP runs in the default VRF only.
        let rib = stage.rib.default_vrf();
        let candidates = rib.explain(prefix)?.candidates;
        let received = candidates.iter().find(|c| c.protocol.source() == Source::Bgp)?;
        let installed =
            candidates.iter().find(|c| c.selection == SelectionResult::Selected).map(|c| InstalledGroup {
                group: c.group.0,
                protocol: c.protocol.name().into(),
                hops: rib.lookup(prefix).map(|route| content(stage, &route.content)).unwrap_or_default(),
            });
        let group = rib.group(received.group)?;
        let backup = group.backup.first().map(|hop| {
            let ReceivedNextHop { hop, unresolved, .. } = self::received(stage, hop);
            BackupNextHop { hop, unresolved, in_use: group.on_backup }
        });
        let FibPolicyResult { deny: denied, source } = group.policy_result;
        Some(RouteGroups { received: received.group.0, backup, denied, source, installed })
    })?)
}

/// Sets the mode of the cache until the next reload.
pub(crate) fn set_nexthop_cache(
    router: &RouterState,
    set: &SetNextHopCache,
) -> Result<NextHopCacheSet, Refusal> {
    let mode: CacheMode = set.mode.parse().map_err(Refusal::Bad)?;
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let before = rib.set_cache_mode(mode)?;
    Ok(NextHopCacheSet { from: before.name().into(), to: mode.name().into() })
}
