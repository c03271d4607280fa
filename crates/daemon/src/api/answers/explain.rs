//! `/v1/explain`: a prefix's way through every stage, from what peers announced to what the chip does.

use super::{Inside, Refusal, Target, asic, fib, nexthop, routes, target, vrf as vrf_of};
use crate::api::model::{Explain, ExplainStage, Held, Route, StageState};
use crate::bgp::Bgp;
use crate::config::DEFAULT_VRF;
use crate::rib::RibHandle;
use crate::sonic::inprocess::Selected;
use ribtide_bgp::message::BestPath;
use ribtide_prefix::{AnyPrefix, Family, Prefix, logical_shard};
use ribtide_rib::{Explanation, InstallStatus, Outcome, ReceivedHop, Verdict, VrfId, VrfPrefix};

/// Of what an FPM server confirms that does not wait for the chip.
const TOO_EARLY: &str =
    "confirmed by the FPM server, which does so before the chip has a route: its suppress-fib-pending is off";

/// Every stage's word on a prefix, or on the longest match of an address.
pub(crate) fn explain(inside: &Inside, vrf: Option<&str>, text: &str) -> Result<Explain, Refusal> {
    let asked = target(text)?;
    let of = match (&inside.rib, vrf) {
        (Some(rib), vrf) => vrf_of(rib, vrf)?,
        (None, Some(_)) => return Err(fib::no_fib()),
        (None, None) => VrfId::DEFAULT,
    };
    let prefix = match (asked, &inside.rib) {
        (Target::Prefix(p), _) => Some(p),
        (Target::Address(_), Some(rib)) => fib::prefix_of(rib, of, asked)?,
        (Target::Address(_), None) => None,
    };
    // BGP is the default VRF's.
    let (bgp, mut stages) = if of == VrfId::DEFAULT {
        let bgp = routes::lookup(inside, prefix.map_or(asked, Target::Prefix))?;
        let stages = vec![bgp_stage(inside, bgp.as_ref())?];
        (bgp, stages)
    } else {
        (None, Vec::new())
    };
    let mut selected = None;
    let prefix = prefix.or_else(|| bgp.as_ref().and_then(|r| r.prefix.parse().ok()));
    if let (Some(rib), Some(prefix)) = (&inside.rib, prefix) {
        if let Some(held) = bgp.as_ref().and_then(|route| route.held) {
            stages[0].says.push(held_back(rib, prefix, held)?);
            stages[0].state = StageState::Waiting;
        }
        let (told, leads) = rib_stages(rib, VrfPrefix { vrf: of, prefix })?;
        let early = |stage: &ExplainStage| {
            stage.state == StageState::Passed
                && inside.fpm.iter().any(|client| client.name == stage.stage && client.read().is_early())
        };
        stages.extend(told.into_iter().map(|mut stage| {
            if early(&stage) {
                stage.says = vec![TOO_EARLY.into()];
            }
            stage
        }));
        selected = leads;
    }
    for (name, path) in &inside.asics {
        let Some(prefix) = prefix else { break };
        let name = (inside.asics.len() > 1).then_some(name.as_str());
        stages.extend(asic::stages(name, path, VrfPrefix { vrf: of, prefix }, selected)?);
    }
    let conclusion = conclude(inside, text, &stages);
    let vrf = vrf.unwrap_or(DEFAULT_VRF).into();
    Ok(Explain { asked: text.into(), vrf, prefix: prefix.map(|p| p.to_string()), stages, conclusion })
}

pub(super) fn stage(name: impl Into<String>, state: StageState, says: Vec<String>) -> ExplainStage {
    ExplainStage { stage: name.into(), state, says }
}

fn bgp_stage(inside: &Inside, route: Option<&Route>) -> Result<ExplainStage, Refusal> {
    let Some(bgp) = &inside.bgp else {
        return Ok(stage("bgp", StageState::Off, vec!["not configured".into()]));
    };
    let Some(route) = route else {
        return Ok(stage(
            "bgp",
            StageState::Absent,
            vec!["no neighbour announces it, or import policy refuses it".into()],
        ));
    };
    let mut says =
        vec![format!("{} path{}", route.paths.len(), if route.paths.len() == 1 { "" } else { "s" })];
    for p in &route.paths {
        let path = if p.as_path.is_empty() { "empty AS path" } else { p.as_path.as_str() };
        let standing = match (p.best, &p.lost) {
            (true, _) => "best".into(),
            (false, Some(lost)) => format!("not used: {lost}"),
            (false, None) => "about to be used".into(),
        };
        says.push(format!("from {}, next hop {}, {path}: {standing}", p.neighbor, p.next_hop));
    }
    match route.prefix.parse() {
        Ok(AnyPrefix::V4(prefix)) => exports(bgp, prefix, route.held, &mut says)?,
        Ok(AnyPrefix::V6(prefix)) => exports(bgp, prefix, route.held, &mut says)?,
        Err(_) => {}
    }
    let best = route.paths.iter().any(|p| p.best);
    Ok(stage("bgp", if best { StageState::Passed } else { StageState::Stopped }, says))
}

/// Which update groups get the best path, or would if it were not `held` back, and what their export policies say of it.
fn exports<F: Family>(
    bgp: &Bgp,
    prefix: Prefix<F>,
    held: Option<Held>,
    says: &mut Vec<String>,
) -> Result<(), Refusal> {
    let owners = bgp.owners.read();
    let Some(shard) = owners.of(logical_shard(prefix)) else { return Ok(()) };
    let best = shard.ask(move |s| {
        let best = s.lookup(prefix)?.paths.into_iter().find(|path| path.best)?;
        Some(BestPath { attrs: best.attrs, source: best.peer.id })
    })?;
    drop(owners);
    let Some(best) = best else { return Ok(()) };
    for (number, worker) in bgp.workers.iter().enumerate() {
        let best = best.clone();
        for export in worker.ask(move |w| w.exports(prefix.any(), &best))? {
            let sent = match (export.sent, held) {
                (true, None) => "sent",
                (true, Some(_)) => "to be sent when it is advertised",
                (false, _) => "not sent",
            };
            let members = if export.members == 1 { "member" } else { "members" };
            says.push(format!(
                "update group {number}.{} ({} {members}): {sent}",
                export.group, export.members
            ));
            says.extend(export.says);
        }
    }
    Ok(())
}

/// Why a best path is not advertised, with `fib.suppress-fib-pending`.
fn held_back(rib: &RibHandle, prefix: AnyPrefix, held: Held) -> Result<String, Refusal> {
    let waits = rib.asker.ask(move |stage| {
        let has = stage.rib.default_vrf().status(prefix);
        let done = |id: usize| {
            has.iter().any(|(has, state)| usize::from(*has) == id && *state == InstallStatus::Installed)
        };
        let names = stage.plane_names().into_iter().enumerate();
        names.filter(|(id, _)| !done(*id)).map(|(_, name)| name).collect::<Vec<_>>()
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

/// The RIB manager's and the dataplanes' word on a prefix, and which route was selected.
fn rib_stages(rib: &RibHandle, route: VrfPrefix) -> Result<(Vec<ExplainStage>, Option<Selected>), Refusal> {
    let VrfPrefix { vrf, prefix } = route;
    let (found, awaited) = rib.asker.ask(move |s| {
        let explained = s.rib.get(vrf).and_then(|rib| rib.explain(prefix));
        let found = explained.map(|explanation| {
            let policy = match vrf {
                VrfId::DEFAULT => "fib.policy".into(),
                _ => format!("vrf.{}", s.vrf_name(vrf)),
            };
            let content = explanation.group.content.as_ref().map(|c| fib::content(s, c));
            let tracks = explanation.group.track.map(|(track, holds)| (nexthop::tracked(s, track), holds));
            (explanation, content, tracks, policy, s.plane_names())
        });
        (found, s.awaited_interface(vrf, prefix))
    })?;
    let Some((e, content, tracks, policy, names)) = found else {
        let stage = match awaited {
            Some(name) => {
                let says = format!("the static route waits until there is an interface {name}");
                stage("rib", StageState::Waiting, vec![says])
            }
            None => stage("rib", StageState::Absent, vec!["no protocol has a route".into()]),
        };
        return Ok((vec![stage], None));
    };
    let selected = e.candidates.iter().find(|candidate| candidate.verdict == Verdict::Selected);
    let selected = selected.map(|candidate| (e.group.id, candidate.protocol));
    let mut stages = vec![rib_stage(&e, content.as_deref(), tracks, &policy)];
    for (id, status) in e.dataplanes {
        let name = names.get(usize::from(id)).cloned().unwrap_or_else(|| format!("dataplane {id}"));
        stages.push(match status {
            InstallStatus::Installed => {
                stage(name, StageState::Passed, vec!["installed, and confirmed".into()])
            }
            InstallStatus::Pending => {
                stage(name, StageState::Waiting, vec!["sent, not yet confirmed".into()])
            }
            InstallStatus::Failed(why) => stage(name, StageState::Stopped, vec![format!("refused: {why}")]),
        });
    }
    Ok((stages, selected))
}

/// `policy`: the key of what denies routes and gives them a source address.
fn rib_stage(
    e: &Explanation,
    content: Option<&[String]>,
    tracks: Option<(String, bool)>,
    policy: &str,
) -> ExplainStage {
    let mut says = Vec::new();
    for c in &e.candidates {
        let verdict = match c.verdict {
            selected @ (Verdict::Selected | Verdict::Denied) => selected.to_string(),
            other => format!("not selected: {other}"),
        };
        says.push(format!("{} route, distance {}, metric {}: {verdict}", c.protocol, c.distance, c.metric));
    }
    let backup = e.group.backup.iter().map(|hop| ("backup next hop", hop));
    for (kind, hop) in e.group.hops.iter().map(|hop| ("next hop", hop)).chain(backup) {
        let received = match hop.received {
            ReceivedHop { gateway: Some(g), .. } => format!("{kind} {g}"),
            ReceivedHop { interface: Some(i), .. } => format!("interface {i}"),
            _ => "next hop".into(),
        };
        let via = hop.via.map_or(String::new(), |v| format!(" through {v}"));
        says.push(match &hop.outcome {
            Outcome::Hops(_) => format!("{received} resolves{via}"),
            Outcome::Blackhole => format!("{received} leads{via} to a blackhole"),
            Outcome::Unresolved(why) => format!("{received} does not resolve: {why}"),
        });
    }
    if e.group.on_backup {
        says.push("its backup stands in for its next hops".into());
    }
    if let Some((what, holds)) = tracks {
        says.push(format!("it tracks {what}, which {}", if holds { "holds" } else { "does not hold" }));
    }
    if let Some(content) = content {
        says.push(format!("group {}: {}", e.group.id.0, content.join(", ")));
    }
    if e.candidates.iter().any(|c| c.verdict == Verdict::Denied) {
        says.push(format!("{policy} denies it"));
    } else if let Some(source) = e.group.treatment.source {
        says.push(format!("{policy} gives it the source address {source}"));
    }
    let selected = e.candidates.iter().any(|c| c.verdict == Verdict::Selected);
    stage("rib", if selected { StageState::Passed } else { StageState::Stopped }, says)
}

/// Where the route is, in a sentence.
fn conclude(inside: &Inside, asked: &str, stages: &[ExplainStage]) -> String {
    if stages.iter().all(|s| matches!(s.state, StageState::Absent | StageState::Off)) {
        return format!("nothing is known of {asked}");
    }
    if let Some(stuck) = stages.iter().find(|s| s.state == StageState::Stopped) {
        return format!(
            "the route ends at {}: {}",
            stuck.stage,
            stuck.says.last().cloned().unwrap_or_default()
        );
    }
    // Those before it wait for it.
    if let Some(waiting) = stages.iter().rev().find(|s| s.state == StageState::Waiting) {
        return format!(
            "the route waits at {}: {}",
            waiting.stage,
            waiting.says.last().cloned().unwrap_or_default()
        );
    }
    match (inside.rib.is_some(), stages.last()) {
        (false, _) => "the route is in BGP; this router installs no routes".into(),
        (true, Some(last)) if last.state == StageState::Passed => {
            format!("the route is all the way through: {} has it", last.stage)
        }
        (true, _) => "the route is selected, and no dataplane takes routes".into(),
    }
}
