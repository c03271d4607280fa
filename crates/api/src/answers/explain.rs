//! `/v1/explain`: the state of a prefix in every stage, from received paths to the chip.

use super::received::Imports;
use super::{
    Refusal, RouterState, Target, advertised, asic, fib, nexthop, received, routes, target, tracked,
    vrf as vrf_of,
};
use ribtide_bgp::message::BestPath;
use ribtide_bgp::peer::LocalSource;
use ribtide_bgp::shard::PathFilter;
use ribtide_bgpd::Bgp;
use ribtide_config::DEFAULT_VRF;
use ribtide_model::{Explain, ExplainStage, Held, Path, Route, StageState, TrackedNextHop};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AnyPrefix, BgpFamily, Prefix};
use ribtide_rib::{
    CandidateInfo, Explanation, FibGroup, GroupId, HopInfo, InstallStatus, Outcome, Protocol, ReceivedHop,
    Rib, SelectionResult, Source, VrfId, VrfPrefix,
};
use ribtide_ribd::{RibHandle, RibStage};
use std::net::IpAddr;
use std::sync::Arc;

/// The note on an FPM server that confirms before the chip does.
const TOO_EARLY: &str =
    "confirmed by the FPM server, which does so before the chip has a route: its suppress-fib-pending is off";

/// The state of a prefix, or of the longest match of an address, in every stage.
/// With `to`, also whether and how this neighbour is sent it.
pub(crate) fn explain(
    router: &RouterState,
    vrf: Option<&str>,
    text: &str,
    to: Option<IpAddr>,
) -> Result<Explain, Refusal> {
    let (query, dataplanes) = (target(text)?, router.dataplanes());
    let of = match (&router.rib.get(), vrf) {
        (Some(rib), vrf) => vrf_of(rib, vrf)?,
        (None, Some(_)) => return Err(fib::no_fib()),
        (None, None) => VrfId::DEFAULT,
    };
    let prefix = match (query, &router.rib.get()) {
        (Target::Prefix(p), _) => Some(p),
        (Target::Address(_), Some(rib)) => fib::prefix_of(rib, of, query)?,
        (Target::Address(_), None) => None,
    };
    // BGP runs in the default VRF only.
    let (bgp, mut stages) = if of == VrfId::DEFAULT {
        let mut bgp = routes::lookup(router, prefix.map_or(query, Target::Prefix), &PathFilter::default())?;
        let mut stage = bgp_stage(router, bgp.as_ref(), prefix)?;
        if let Some(route) = &mut bgp {
            tracked::add_resolution(router, std::slice::from_mut(route))?;
            note_changing(&mut stage, route);
        }
        (bgp, vec![stage])
    } else {
        (None, Vec::new())
    };
    let (mut selected, mut source) = (None, None);
    let prefix = prefix.or_else(|| bgp.as_ref().and_then(|r| r.prefix.parse().ok()));
    if let (Some(rib), Some(prefix)) = (&router.rib.get(), prefix) {
        if let Some(held) = bgp.as_ref().and_then(|route| route.held) {
            stages[0].messages.push(held_back(rib, prefix, held)?);
            stages[0].state = StageState::Waiting;
        }
        let RibView { stages: of_rib, best, bgp_selection } = rib_stages(rib, VrfPrefix { vrf: of, prefix })?;
        // Of most originated paths the RIB manager gets no route.
        let feeds = |name: &String| LocalSource::ALL.iter().any(|s| s.feeds() && s.name() == name);
        let is_fed = |path: &Path| path.best && path.originated.as_ref().is_none_or(feeds);
        let has_best = bgp.as_ref().is_some_and(|route| route.paths.iter().any(is_fed));
        if let (Some(stage), true) = (stages.first_mut(), has_best) {
            match &bgp_selection {
                Some(not_taken) if !not_taken.is_empty() => {
                    stage.messages.push(format!("the RIB manager does not take the best path: {not_taken}"));
                }
                Some(_) => {}
                None => {
                    stage.messages.push("the best path is on its way to the RIB manager".into());
                    stage.state = StageState::Waiting;
                }
            }
        }
        if let Some((protocol, _)) = best.filter(|(protocol, _)| !is_bgp(*protocol)) {
            stages.push(source_stage(protocol, vrf));
            source = Some(protocol);
        }
        let early = |stage: &ExplainStage| {
            stage.state == StageState::Passed
                && dataplanes.fpm.iter().any(|client| client.name == stage.stage && client.read().is_early())
        };
        let unconnected = |stage: &ExplainStage| {
            let client = dataplanes.fpm.iter().find(|client| client.name == stage.stage)?;
            (stage.state == StageState::Waiting && !client.read().connected).then_some(client.server)
        };
        stages.extend(of_rib.into_iter().map(|mut stage| {
            if early(&stage) {
                stage.messages = vec![TOO_EARLY.into()];
            } else if let Some(server) = unconnected(&stage) {
                stage.messages = vec![format!("not connected to {server}")];
            }
            stage
        }));
        selected = best.and_then(|(protocol, group)| Some((group?, protocol)));
    }
    for (name, path) in &dataplanes.asics {
        let Some(prefix) = prefix else { break };
        let name = (dataplanes.asics.len() > 1).then_some(name.as_str());
        stages.extend(asic::stages(name, path, VrfPrefix { vrf: of, prefix }, selected)?);
    }
    let asics: Vec<&str> = dataplanes.asics.keys().map(String::as_str).collect();
    let mut conclusion = conclude(router.rib.get().is_some(), text, source, &stages, &asics);
    if let (Some(rib), None, true) = (&router.rib.get(), vrf, is_unknown(&stages)) {
        let others = other_vrfs(rib, query)?;
        if let Some(first) = others.first() {
            let vrfs = if others.len() == 1 { "VRF" } else { "VRFs" };
            let names = others.join(", ");
            conclusion.push_str(&format!(
                " in the default VRF; {vrfs} {names} {} a route: `ribtide explain {text} --vrf {first}`",
                if others.len() == 1 { "has" } else { "have" }
            ));
        }
    }
    if let Some(route) = bgp.as_ref().filter(|route| source.is_none() && !route.suppressed_by.is_empty()) {
        let by = route.suppressed_by.join(" and ");
        conclusion.push_str(&format!("; the aggregate {by} suppresses it, but for peers with unsuppress"));
    }
    if let (Some(to), Some(prefix)) = (to, prefix) {
        if of != VrfId::DEFAULT {
            return Err(Refusal::Bad("BGP runs in the default VRF; leave out vrf, or to".into()));
        }
        let stage = advertised::explain_to(router, prefix, to)?;
        let how = match stage.state {
            StageState::Passed => "it is sent".to_owned(),
            StageState::Waiting => "it is about to be sent".to_owned(),
            // A reason that lasts, before one that passes.
            _ => (stage.messages.iter().find(|message| message.starts_with("not sent: ")))
                .or(stage.messages.last())
                .cloned()
                .unwrap_or_default(),
        };
        conclusion.push_str(&format!("; to {to}: {how}"));
        stages.push(stage);
    }
    let vrf = vrf.unwrap_or(DEFAULT_VRF).into();
    Ok(Explain { query: text.into(), vrf, prefix: prefix.map(|p| p.to_string()), stages, conclusion })
}

pub(super) fn stage(name: impl Into<String>, state: StageState, messages: Vec<String>) -> ExplainStage {
    ExplainStage::new(name, state, messages)
}

fn bgp_stage(
    router: &RouterState,
    route: Option<&Route>,
    prefix: Option<AnyPrefix>,
) -> Result<ExplainStage, Refusal> {
    let Some(bgp) = router.bgp.get() else {
        return Ok(stage("bgp", StageState::Off, vec!["not configured".into()]));
    };
    let exact = route.and_then(|route| route.prefix.parse().ok()).or(prefix);
    let imports = exact.map_or(Ok(Imports::default()), |prefix| received::imports(router, prefix))?;
    let Imports { rejected, changed } = imports;
    let Some(route) = route else {
        if !rejected.is_empty() {
            return Ok(stage("bgp", StageState::Stopped, rejected));
        }
        if let Some(why) = exact.and_then(|prefix| not_originated(router, prefix)) {
            return Ok(stage("bgp", StageState::Waiting, vec![why]));
        }
        return Ok(stage(
            "bgp",
            StageState::Absent,
            vec![
                "no neighbour announces it, or it is refused (`ribtide show bgp neighbor` counts why)".into(),
            ],
        ));
    };
    let seconds = route.paths.iter().find(|path| path.best).and_then(|path| path.age_seconds);
    let mut messages =
        vec![format!("{} path{}", route.paths.len(), if route.paths.len() == 1 { "" } else { "s" })];
    for p in &route.paths {
        let path = if p.as_path.is_empty() { "empty AS path" } else { p.as_path.as_str() };
        // The conclusion is the last message: why the path is not used.
        let of_path = changed.iter().filter(|(neighbor, id, _)| *neighbor == p.neighbor && *id == p.path_id);
        let by = of_path.flat_map(|(_, _, statements)| statements);
        messages.extend(
            by.map(|statement| format!("import policy changed the path from {}: {statement}", p.neighbor)),
        );
        let standing = match (p.best, &p.lost) {
            (true, _) => "best".into(),
            (false, Some(lost)) => format!("not used: {lost}"),
            (false, None) => "about to be used".into(),
        };
        messages.push(match &p.originated {
            Some(source) => format!("originated here ({source}), {path}: {standing}"),
            None => {
                let stale = if p.stale { ", stale (its neighbour restarts)" } else { "" };
                let id = p.path_id.map_or(String::new(), |id| format!(" (path {id})"));
                format!("from {}{id}, next hop {}, {path}: {standing}{stale}", p.neighbor, p.next_hop)
            }
        });
        messages.extend(p.validation.as_ref().map(|state| format!("its origin is {state} (RPKI)")));
    }
    messages.extend(rejected);
    if !route.suppressed_by.is_empty() {
        let aggregates = route.suppressed_by.join(" and ");
        messages.push(format!(
            "the aggregate {aggregates} suppresses it, but for peers with unsuppress (`ribtide show bgp aggregate`)"
        ));
    }
    match route.prefix.parse() {
        Ok(AnyPrefix::V4(prefix)) => exports(&bgp, prefix, route.held, &mut messages)?,
        Ok(AnyPrefix::V6(prefix)) => exports(&bgp, prefix, route.held, &mut messages)?,
        Err(_) => {}
    }
    let best = route.paths.iter().any(|p| p.best);
    let state = if best { StageState::Passed } else { StageState::Stopped };
    Ok(ExplainStage { seconds, ..stage("bgp", state, messages) })
}

/// Why there is no path of a prefix that the configuration originates.
fn not_originated(router: &RouterState, prefix: AnyPrefix) -> Option<String> {
    let config = router.config();
    let originate = &config.bgp.as_ref()?.originate;
    if originate.aggregates.contains_key(&prefix) {
        return Some(
            "the aggregate of [[bgp.aggregate]] is not originated: it has no contributor \
             (`ribtide show bgp aggregate`)"
                .into(),
        );
    }
    (originate.networks.contains(&prefix) && originate.require_route).then(|| {
        "the network of bgp.originate.networks is not originated: require-route is on, and no connected, static or kernel \
         route has exactly this prefix"
            .into()
    })
}

/// Says of next hops that change often, or do not resolve, since when and how often. A route without a best path ends
/// at BGP for that reason, or waits for a next hop that resolves again.
fn note_changing(stage: &mut ExplainStage, route: &Route) {
    let has_best = route.paths.iter().any(|path| path.best);
    let mut waits = false;
    for next_hop in &route.resolution {
        let Some(message) = changing(next_hop) else { continue };
        waits |= next_hop.delayed_ms.is_some();
        match has_best {
            // The conclusion uses the last message, which is about the best path.
            true => stage.messages.insert(1.min(stage.messages.len()), message),
            false => stage.messages.push(message),
        }
    }
    if waits && !has_best && stage.state == StageState::Stopped {
        // That of the next hop that is awaited comes last.
        stage.messages.sort_by_key(|message| message.contains(AWAITED));
        stage.state = StageState::Waiting;
    }
}

/// What is said of a next hop that resolves and that BGP does not use yet.
const AWAITED: &str = "resolves again, and BGP uses it if it stays so for";

fn changing(next_hop: &TrackedNextHop) -> Option<String> {
    let TrackedNextHop { address, changes, changed_seconds, delayed_ms, .. } = next_hop;
    let seconds = (*changed_seconds)?;
    if let Some(left) = delayed_ms {
        return Some(format!(
            "next hop {address} {AWAITED} {} s: it changed {changes} times, and was lost {seconds} s ago",
            left.div_ceil(1000)
        ));
    }
    let often = match changes {
        0 | 1 => String::new(),
        _ => format!(", after {changes} changes"),
    };
    match (next_hop.reachable, &next_hop.unresolved) {
        (Some(false), Some(why)) => {
            Some(format!("next hop {address} has not resolved for {seconds} s{often}: {why}"))
        }
        _ => None,
    }
}

/// Update groups that get the best path, or would without `held`, and the decisions of their export
/// policies.
fn exports<F: BgpFamily>(
    bgp: &Bgp,
    prefix: Prefix<F>,
    held: Option<Held>,
    messages: &mut Vec<String>,
) -> Result<(), Refusal> {
    let owners = bgp.owners.read();
    let Some((_, shard)) = owners.of(prefix) else { return Ok(()) };
    let found = shard.call(move |s| {
        let view = s.lookup(prefix)?;
        let suppressed = !view.suppressed_by.is_empty();
        let best = view.paths.into_iter().find(|path| path.best)?;
        Some((BestPath { attrs: best.attrs, source: best.peer.id, suppressed }, s.ranked_of(prefix)))
    })?;
    drop(owners);
    let Some((best, ranked)) = found else { return Ok(()) };
    let ranked = Arc::new(ranked);
    for (number, worker) in bgp.workers.running() {
        let (best, ranked) = (best.clone(), ranked.clone());
        for export in worker.call(move |w| w.exports(prefix, &best, &ranked))? {
            let sent = match (export.sent, held) {
                (true, None) => "sent",
                (true, Some(_)) => "to be sent when it is advertised",
                (false, _) => "not sent",
            };
            let members = if export.members == 1 { "member" } else { "members" };
            messages.push(format!(
                "update group {number}.{} ({} {members}): {sent}",
                export.group, export.members
            ));
            messages.extend(export.messages);
        }
    }
    Ok(())
}

/// Why a best path is not advertised, with `fib.suppress-fib-pending`.
fn held_back(rib: &RibHandle, prefix: AnyPrefix, held: Held) -> Result<String, Refusal> {
    let waits = rib.handle.call(move |stage| {
        let has = stage.rib.default_vrf().status(prefix);
        let done = |id| has.contains(&(id, InstallStatus::Installed));
        stage.planes().filter(|id| !done(*id)).map(|id| stage.plane_name(id)).collect::<Vec<_>>()
    })?;
    let by = if waits.is_empty() { "the RIB manager".into() } else { waits.join(" and ") };
    Ok(match held {
        Held::Waiting => format!("not advertised yet: waits for confirmation by {by}"),
        Held::WaitingWithFormer => {
            format!("waits for confirmation by {by}; the former best path stays advertised meanwhile")
        }
        Held::Blocked => "not advertised: suppress-fib-pending is on, and the FIB does not have it".into(),
    })
}

fn is_bgp(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::BgpExternal | Protocol::BgpInternal)
}

/// The source of a route that is not from BGP.
fn source_stage(protocol: Protocol, vrf: Option<&str>) -> ExplainStage {
    let messages = match (protocol, vrf) {
        (Protocol::Static, None | Some(DEFAULT_VRF)) => "configured in [[static]]".into(),
        (Protocol::Static, Some(vrf)) => format!("configured in [[vrf.{vrf}.static]]"),
        (Protocol::Connected, _) => "the subnet of an address of an interface that is up".into(),
        (Protocol::Kernel, _) => "the kernel has it from another program".into(),
        (Protocol::BgpExternal | Protocol::BgpInternal, _) => "announced by a neighbour".into(),
    };
    stage(protocol.to_string(), StageState::Passed, vec![messages])
}

/// The state of a prefix in the RIB manager and the dataplanes.
struct RibView {
    stages: Vec<ExplainStage>,
    /// The protocol of the best candidate, and its group if it is selected.
    best: Option<(Protocol, Option<GroupId>)>,
    /// Why the candidate of BGP is not selected; empty if it is; `None` without candidate.
    bgp_selection: Option<String>,
}

/// The states of the RIB manager and the dataplanes for a prefix.
fn rib_stages(rib: &RibHandle, route: VrfPrefix) -> Result<RibView, Refusal> {
    let VrfPrefix { vrf, prefix } = route;
    let (found, awaited) = rib.handle.call(move |s| {
        let explained = s.rib.get(vrf).and_then(|rib| Some((rib, rib.explain(prefix)?)));
        let found = explained.map(|(rib, explanation)| {
            let policy = match vrf {
                VrfId::DEFAULT => "fib.policy".into(),
                _ => format!("vrf.{}", s.vrf_name(vrf)),
            };
            let content = explanation.group.content.as_ref().map(|c| fib::content(s, c));
            let tracks = explanation.group.track.map(|(track, holds)| (nexthop::tracked(s, track), holds));
            let others = explanation.candidates.iter().map(|candidate| {
                let unresolved = candidate.selection == SelectionResult::Unresolved;
                let group = unresolved.then(|| rib.group(candidate.group)).flatten();
                group.map_or(Vec::new(), |group| group.hops)
            });
            let unresolved: Vec<Vec<HopInfo>> = others.collect();
            let delayed = delayed(s, vrf, &explanation);
            let chains: Vec<String> =
                explanation.group.hops.iter().flat_map(|hop| chain(s, rib, hop)).collect();
            let now = s.now();
            let since = rib.changed_at(prefix).map(|at| now.saturating_sub(at) / 1000);
            let is_selected = explanation.candidates.iter().any(|c| c.selection == SelectionResult::Selected);
            let status = |id| explanation.dataplanes.iter().find(|(of, _)| *of == id);
            // One without a status is down, or gets the table just now.
            let statuses: Vec<(String, Option<InstallStatus>)> = s
                .planes()
                .map(|id| (s.plane_name(id), status(id).map(|(_, status)| status.clone())))
                .filter(|(_, status)| status.is_some() || is_selected)
                .collect();
            (explanation, unresolved, content, tracks, policy, statuses, (delayed, chains, since))
        });
        (found, s.awaited_interface(vrf, prefix))
    })?;
    let Some((e, unresolved, content, tracks, policy, statuses, (delayed, chains, seconds))) = found else {
        let stage = match awaited {
            Some(name) => {
                let messages = format!("the static route waits until there is an interface {name}");
                stage("rib", StageState::Waiting, vec![messages])
            }
            None => stage("rib", StageState::Absent, vec!["no protocol has a route".into()]),
        };
        return Ok(RibView { stages: vec![stage], best: None, bgp_selection: None });
    };
    // Without a selected candidate, the one whose group is explained.
    let is_selected =
        |c: &&CandidateInfo| matches!(c.selection, SelectionResult::Selected | SelectionResult::Denied);
    let best = e.candidates.iter().find(is_selected).or(e.candidates.first()).map(|candidate| {
        (candidate.protocol, (candidate.selection == SelectionResult::Selected).then_some(e.group.id))
    });
    let of_bgp = e.candidates.iter().zip(&unresolved).find(|(candidate, _)| is_bgp(candidate.protocol));
    let bgp_selection = of_bgp.map(|(candidate, hops)| match candidate.selection {
        SelectionResult::Selected | SelectionResult::Denied => String::new(),
        other => [&[other.to_string()][..], &lines(hops)].concat().join("; "),
    });
    let rib_stage = rib_stage(&e, &unresolved, content.as_deref(), tracks, &policy, (delayed, chains));
    let mut stages = vec![ExplainStage { seconds, ..rib_stage }];
    for (name, status) in statuses {
        let stage = match status {
            Some(InstallStatus::Installed) => {
                stage(name, StageState::Passed, vec!["installed, and confirmed".into()])
            }
            Some(InstallStatus::Pending) => {
                stage(name, StageState::Waiting, vec!["sent, not yet confirmed".into()])
            }
            Some(InstallStatus::Failed(why)) => {
                stage(name, StageState::Stopped, vec![format!("refused: {why}")])
            }
            None => {
                stages.push(stage(name, StageState::Waiting, vec!["does not take routes yet".into()]));
                continue;
            }
        };
        stages.push(ExplainStage { seconds, ..stage });
    }
    Ok(RibView { stages, best, bgp_selection })
}

/// A line for each resolved next hop of a BGP route that BGP does not use yet, because it changed
/// often.
fn delayed(stage: &RibStage, vrf: VrfId, e: &Explanation) -> Vec<String> {
    if vrf != VrfId::DEFAULT || !e.candidates.iter().any(|candidate| is_bgp(candidate.protocol)) {
        return Vec::new();
    }
    let of_route = |address| e.group.hops.iter().any(|hop| hop.received.gateway == Some(address));
    let tracked = stage.rib.default_vrf().tracked_next_hops();
    let address = |address| split_zone(address).0;
    let delayed = tracked.filter_map(|info| Some((address(info.next_hop.address), info.delayed_until?)));
    // Without the time that is left: `watch` shows changes.
    let lines = delayed.filter(|(address, _)| of_route(*address)).map(|(address, _)| {
        format!("next hop {address} changed often, so BGP hears of it later (`ribtide show bgp nexthop`)")
    });
    lines.collect()
}

/// Steps of a chain that are shown, at most.
const STEPS: usize = 8;

/// The further steps by which a next hop resolves: a line for each route that it resolves through, to the one with an
/// interface. Of a route with several next hops the first is followed.
fn chain(stage: &RibStage, rib: &Rib, hop: &HopInfo) -> Vec<String> {
    let mut lines = Vec::new();
    let mut via = hop.via;
    while let Some(prefix) = via.filter(|_| lines.len() < STEPS) {
        let Some(explained) = rib.explain(prefix) else { break };
        let Some(route) = explained.candidates.iter().find(|c| c.selection == SelectionResult::Selected)
        else {
            break;
        };
        let hops = &explained.group.hops;
        let Some(first) = hops.first() else {
            lines.push(format!("{prefix} is a {} route that discards", route.protocol));
            break;
        };
        let by = match (first.received.gateway, first.received.interface) {
            (Some(gateway), _) => format!("by {gateway}"),
            (None, Some(index)) => format!("on {}", fib::interface_name(stage, index)),
            (None, None) => "that discards".into(),
        };
        let more = match hops.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let through = match (&first.outcome, first.via) {
            (Outcome::Unresolved(why), _) => format!(", which does not resolve: {why}"),
            (_, Some(next)) => format!(", which resolves through {next}"),
            _ => String::new(),
        };
        lines.push(format!("{prefix} is a {} route {by}{more}{through}", route.protocol));
        via = first.via;
    }
    lines
}

/// A line for each next hop: what it resolves to, or why it is unresolved.
fn lines(hops: &[HopInfo]) -> Vec<String> {
    hops.iter().map(|hop| line("next hop", hop)).collect()
}

fn line(kind: &str, hop: &HopInfo) -> String {
    let received = match hop.received {
        ReceivedHop { gateway: Some(g), .. } => format!("{kind} {g}"),
        ReceivedHop { interface: Some(i), .. } => format!("interface {i}"),
        _ => "next hop".into(),
    };
    let via = hop.via.map_or(String::new(), |v| format!(" through {v}"));
    match &hop.outcome {
        Outcome::Hops(_) => format!("{received} resolves{via}"),
        Outcome::Blackhole => format!("{received} resolves{via} to a blackhole"),
        Outcome::Unresolved(why) => format!("{received} does not resolve: {why}"),
    }
}

/// `policy`: the configuration key of the FIB policy. `unresolved`: the next hops of each
/// unresolved candidate.
fn rib_stage(
    e: &Explanation,
    unresolved: &[Vec<HopInfo>],
    content: Option<&[String]>,
    tracks: Option<(String, bool)>,
    policy: &str,
    (delayed, chains): (Vec<String>, Vec<String>),
) -> ExplainStage {
    let mut messages = Vec::new();
    for (c, hops) in e.candidates.iter().zip(unresolved) {
        messages.push(format!(
            "{} route, distance {}, metric {}: {}",
            c.protocol, c.distance, c.metric, c.selection
        ));
        // The lines of the explained group follow anyway.
        if c.group != e.group.id {
            messages.extend(lines(hops));
        }
    }
    messages.extend(lines(&e.group.hops));
    messages.extend(chains);
    messages.extend(e.group.backup.iter().map(|hop| line("backup next hop", hop)));
    if e.group.on_backup {
        messages.push("its backup stands in for its next hops".into());
    }
    if e.group.cut > 0 {
        messages.push(format!("fib.max-ecmp leaves {} resolved next hops out", e.group.cut));
    }
    if let Some((what, holds)) = tracks {
        messages.push(format!("it tracks {what}, which {}", if holds { "holds" } else { "does not hold" }));
    }
    if let Some(content) = content {
        messages.push(format!("group {}: {}", e.group.id.0, content.join(", ")));
    }
    messages.extend(delayed);
    // The conclusion takes the last sentence, so the reason of a route that ends here comes last.
    if e.candidates.iter().any(|c| c.selection == SelectionResult::Denied) {
        messages.push(format!("{policy} denies it"));
    } else if let Some(source) = e.group.policy_result.source {
        messages.push(format!("{policy} gives it the source address {source}"));
    }
    if e.candidates.iter().all(|c| c.selection == SelectionResult::NeverUsed) {
        messages.push("every route has distance 255, which says never to use it".into());
    }
    let selected = e.candidates.iter().any(|c| c.selection == SelectionResult::Selected);
    let is_selected = |c: &&CandidateInfo| c.selection == SelectionResult::Selected;
    if let Some(discarding) =
        e.candidates.iter().find(is_selected).filter(|_| e.group.content == Some(FibGroup::Blackhole))
    {
        let is_bgps = |c: &CandidateInfo| c.protocol.source() == Source::Bgp;
        if !is_bgps(discarding) && e.candidates.iter().any(is_bgps) {
            messages
                .push("with fib.suppress-fib-pending BGP advertises the prefix when it is forwarded".into());
        }
        messages.push(DISCARDS.into());
    }
    let unresolved = e.candidates.first().is_some_and(|c| c.selection == SelectionResult::Unresolved);
    if !selected
        && unresolved
        && let Some(hop) = e.group.hops.iter().find(|hop| matches!(hop.outcome, Outcome::Unresolved(_)))
    {
        let reason = line("next hop", hop);
        messages.retain(|message| *message != reason);
        messages.push(reason);
    }
    stage("rib", if selected { StageState::Passed } else { StageState::Stopped }, messages)
}

/// The last message of the RIB manager's stage about a route that discards.
const DISCARDS: &str = "packets to it are discarded";

/// Where the route is, as a sentence. `source`: the source of a route that is not from BGP; then
/// the stage of BGP does not count.
/// `asics`: the names of virtual ASICs, whose own stages say more than the acknowledgements of these dataplanes.
fn conclude(
    installs: bool,
    query: &str,
    source: Option<Protocol>,
    stages: &[ExplainStage],
    asics: &[&str],
) -> String {
    let route = source.map_or("route".into(), |protocol| format!("{protocol} route"));
    let on_way = |s: &&ExplainStage| source.is_none() || s.stage != "bgp";
    if is_unknown(stages) {
        return format!("nothing is known of {query}");
    }
    if let Some(stuck) = stages.iter().filter(on_way).find(|s| s.state == StageState::Stopped) {
        return format!(
            "the {route} ends at {}: {}",
            stuck.stage,
            stuck.messages.last().cloned().unwrap_or_default()
        );
    }
    // Earlier stages wait for it.
    if let Some(waiting) = stages.iter().filter(on_way).rev().find(|s| s.state == StageState::Waiting) {
        return format!(
            "the {route} waits at {}: {}",
            waiting.stage,
            waiting.messages.last().cloned().unwrap_or_default()
        );
    }
    // Dataplanes, and of a virtual ASIC its last stage, are behind the RIB manager.
    let rib = stages.iter().position(|s| s.stage == "rib");
    match rib.map(|rib| (&stages[rib], &stages[rib + 1..])) {
        None if !installs => "the route is in BGP; this router installs no routes".into(),
        None => format!("the {route} is in BGP alone"),
        // What this router originates has no next hop.
        Some((rib, _)) if rib.state == StageState::Absent => {
            "the route is in BGP alone: the RIB manager gets none of it".into()
        }
        Some((rib, behind)) => {
            let discards = rib.messages.last().is_some_and(|message| message == DISCARDS);
            let ends = |state| last_stages(behind, asics, state);
            let missing = match ends(StageState::Absent).as_slice() {
                [] => String::new(),
                missing => format!("; {} does not have it", missing.join(", ")),
            };
            let conclusion = match ends(StageState::Passed).as_slice() {
                [] if missing.is_empty() => format!("the {route} is selected, and no dataplane takes routes"),
                [] => format!("the {route} is selected{missing}"),
                [one] => format!("the {route} is all the way through: {one} has it{missing}"),
                [rest @ .., last] => {
                    format!(
                        "the {route} is all the way through: {} and {last} have it{missing}",
                        rest.join(", ")
                    )
                }
            };
            if discards { format!("{conclusion}; {DISCARDS}") } else { conclusion }
        }
    }
}

/// Whether no stage has anything of the prefix.
fn is_unknown(stages: &[ExplainStage]) -> bool {
    stages.iter().all(|s| matches!(s.state, StageState::Absent | StageState::Off))
}

/// The other VRFs that have a route of this prefix, or for this address, by name.
fn other_vrfs(rib: &RibHandle, query: Target) -> Result<Vec<String>, Refusal> {
    Ok(rib.handle.call(move |stage| {
        let has = |rib: &Rib| match query {
            Target::Prefix(prefix) => rib.explain(prefix).is_some(),
            Target::Address(address) => rib.longest_match(address).is_some(),
        };
        let found = stage.vrfs().filter(|(name, rib)| *name != DEFAULT_VRF && has(rib));
        found.map(|(name, _)| name.to_owned()).collect()
    })?)
}

/// The stages in this state at which ways behind the RIB manager end: each dataplane, and of a virtual ASIC its chip.
fn last_stages<'s>(behind: &'s [ExplainStage], asics: &[&str], state: StageState) -> Vec<&'s str> {
    let ends =
        |name: &str| !asics.contains(&name) && !name.ends_with("fpmsyncd") && !name.ends_with("orchagent");
    behind.iter().filter(|s| s.state == state && ends(&s.stage)).map(|s| s.stage.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use StageState::{Absent, Off, Passed, Stopped, Waiting};

    /// The conclusion about stages by name, state and last message.
    fn concluded(source: Option<Protocol>, asics: &[&str], stages: &[(&str, StageState, &str)]) -> String {
        let stages: Vec<ExplainStage> =
            stages.iter().map(|(name, state, why)| stage(*name, *state, vec![(*why).into()])).collect();
        conclude(true, "10.0.0.0/8", source, &stages, asics)
    }

    const BGP: (&str, StageState, &str) = ("bgp", Passed, "1 path");
    const RIB: (&str, StageState, &str) = ("rib", Passed, "group 3");
    const CHIP: [(&str, StageState, &str); 3] =
        [("fpmsyncd", Passed, ""), ("orchagent", Passed, ""), ("virtual switch", Passed, "")];

    #[test]
    fn every_dataplane_that_has_a_route_is_named() {
        let one = [&[BGP, RIB, ("virtual-asic", Passed, "")][..], &CHIP].concat();
        let through = "the route is all the way through: virtual switch has it";
        assert_eq!(concluded(None, &["virtual-asic"], &one), through);
        let kernel = [&[BGP, RIB, ("kernel", Passed, ""), ("virtual-asic", Passed, "")][..], &CHIP].concat();
        assert_eq!(
            concluded(None, &["virtual-asic"], &kernel),
            "the route is all the way through: kernel and virtual switch have it"
        );
        let of_two = |second| {
            let stages = [
                BGP,
                RIB,
                ("asic0", Passed, ""),
                ("asic1", Passed, ""),
                ("asic0 fpmsyncd", Passed, ""),
                ("asic0 virtual switch", Passed, ""),
                ("asic1 fpmsyncd", Passed, ""),
                ("asic1 virtual switch", second, "table full"),
            ];
            concluded(None, &["asic0", "asic1"], &stages)
        };
        assert_eq!(
            of_two(Passed),
            "the route is all the way through: asic0 virtual switch and asic1 virtual switch have it"
        );
        assert_eq!(of_two(Stopped), "the route ends at asic1 virtual switch: table full");
        assert_eq!(of_two(Waiting), "the route waits at asic1 virtual switch: table full");
        assert_eq!(
            of_two(Absent),
            "the route is all the way through: asic0 virtual switch has it; asic1 virtual switch does not have it"
        );
    }

    #[test]
    fn a_route_that_goes_nowhere_says_where_it_is() {
        // What this router originates has no next hop for a dataplane.
        let none = ("rib", Absent, "no protocol has a route");
        assert_eq!(
            concluded(None, &[], &[BGP, none]),
            "the route is in BGP alone: the RIB manager gets none of it"
        );
        assert_eq!(concluded(None, &[], &[BGP, RIB]), "the route is selected, and no dataplane takes routes");
        let absent = ("bgp", Absent, "no neighbour announces it");
        assert_eq!(concluded(None, &[], &[absent, none]), "nothing is known of 10.0.0.0/8");
        assert_eq!(
            concluded(None, &[], &[("bgp", Off, "not configured"), ("rib", Waiting, "no interface eth9")]),
            "the route waits at rib: no interface eth9"
        );
    }

    /// A next hop of BGP's path, with its last notification.
    fn tracked(reachable: bool, changes: u32, delayed_ms: Option<u64>) -> TrackedNextHop {
        let unresolved = (!reachable && delayed_ms.is_none()).then(|| "no route holds it".into());
        TrackedNextHop {
            address: "10.7.0.2".into(),
            kind: "recursive".into(),
            only_for: None,
            reachable: Some(reachable),
            alone: false,
            cost: None,
            through: None,
            resolved: Vec::new(),
            unresolved,
            changes,
            changed_seconds: (changes > 0).then_some(3),
            delayed_ms,
        }
    }

    #[test]
    fn next_hop_that_changes_often_is_named_with_when_and_how_often() {
        let of = |next_hop: TrackedNextHop| changing(&next_hop);
        assert_eq!(of(tracked(true, 0, None)), None);
        assert_eq!(of(tracked(true, 6, None)), None);
        assert_eq!(
            of(tracked(false, 1, None)).as_deref(),
            Some("next hop 10.7.0.2 has not resolved for 3 s: no route holds it")
        );
        assert_eq!(
            of(tracked(false, 5, None)).as_deref(),
            Some("next hop 10.7.0.2 has not resolved for 3 s, after 5 changes: no route holds it")
        );
        assert_eq!(
            of(tracked(false, 5, Some(1200))).as_deref(),
            Some(
                "next hop 10.7.0.2 resolves again, and BGP uses it if it stays so for 2 s: it changed 5 times, and was lost 3 s ago"
            )
        );
    }

    #[test]
    fn bgp_has_no_part_in_the_way_of_another_protocols_route() {
        let stopped = ("bgp", Stopped, "not used: next hop unreachable");
        let stages = [stopped, ("connected", Passed, ""), RIB, ("kernel", Passed, "")];
        assert_eq!(
            concluded(Some(Protocol::Connected), &[], &stages),
            "the connected route is all the way through: kernel has it"
        );
        let unresolved = ("rib", Stopped, "next hop 192.0.2.9 does not resolve: no route holds it");
        assert_eq!(
            concluded(Some(Protocol::Static), &[], &[stopped, ("static", Passed, ""), unresolved]),
            "the static route ends at rib: next hop 192.0.2.9 does not resolve: no route holds it"
        );
        assert_eq!(
            concluded(None, &[], &[stopped, unresolved]),
            "the route ends at bgp: not used: next hop unreachable"
        );
    }
}
