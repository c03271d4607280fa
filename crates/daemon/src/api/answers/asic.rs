//! `/v1/asic`, and the SONiC path's part of `/v1/explain`.

use super::explain::stage;
use super::{Refusal, RouterState, Target, target, vrf as vrf_of};
use crate::api::model::{
    AsicAnswer, AsicAnswers, AsicFaults, AsicState, Changed, ExplainStage, SetAsic, StageState,
};
use crate::sonic::inprocess::{InProcess, Selected};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{VrfId, VrfPrefix};
use ribtide_swss::Row;
use ribtide_swss::orch::{RouteState, Waiting};
use ribtide_swss::row::RouteRow;
use ribtide_swss::sai::PacketAction;
use ribtide_vswitch::Forward;
use std::net::IpAddr;
use std::time::Duration;

/// What the virtual ASIC does with packets to these addresses.
pub(crate) fn asic_lookup(
    router: &RouterState,
    name: Option<&str>,
    vrf: Option<&str>,
    addresses: &[IpAddr],
) -> Result<AsicAnswers, Refusal> {
    let asic = asic(router, name)?;
    let vrf = router.rib.as_ref().map_or(Ok(VrfId::DEFAULT), |rib| vrf_of(rib, vrf))?;
    Ok(AsicAnswers { answers: asic.lookup(vrf, addresses)?.iter().map(answer).collect() })
}

/// Has the virtual ASIC refuse some routes from now on, or no longer.
pub(crate) fn asic_faults(router: &RouterState, faults: AsicFaults) -> Result<AsicFaults, Refusal> {
    let prefix = |text: &String| match target(text)? {
        Target::Prefix(prefix) => Ok(prefix),
        Target::Address(_) => {
            Err(Refusal::Bad(format!("\"{text}\" is an address; write a prefix such as 10.0.0.0/8")))
        }
    };
    if faults.prefixes.is_empty() {
        return Err(Refusal::Bad("prefixes is empty; name at least one, such as [\"192.0.2.0/24\"]".into()));
    }
    let prefixes = faults.prefixes.iter().map(prefix).collect::<Result<Vec<AnyPrefix>, Refusal>>()?;
    asic(router, faults.asic.as_deref())?.refuse(prefixes, faults.refuse)?;
    Ok(faults)
}

/// How the virtual ASIC behaves, what it holds and what it did.
pub(crate) fn asic_state(router: &RouterState, name: Option<&str>) -> Result<AsicState, Refusal> {
    Ok(asic(router, name)?.chip()?)
}

/// Has the virtual ASIC behave otherwise.
pub(crate) fn set_asic(router: &RouterState, change: SetAsic) -> Result<Changed<AsicState>, Refusal> {
    if change.set.is_empty() {
        return Err(Refusal::Bad(
            "set is empty; name at least one setting, such as {\"rate\": \"20000\"}".into(),
        ));
    }
    let asic = asic(router, change.asic.as_deref())?;
    let before = asic.chip()?;
    let set: Vec<(String, String)> = change.set.into_iter().collect();
    asic.behave(set.clone())?.map_err(Refusal::Bad)?;
    let state = asic.chip()?;
    let says: Vec<String> = set
        .iter()
        .map(|(name, value)| match (before.settings.get(name), state.settings.get(name)) {
            (Some(from), Some(to)) => format!("{name} {from} -> {to}"),
            // `stall` is an order, not a setting.
            _ => format!("{name} {value}"),
        })
        .collect();
    let name = change.asic.as_deref().unwrap_or("the virtual ASIC");
    Ok(Changed { says: format!("{name}: {}", says.join(", ")), answer: state })
}

/// The virtual ASIC of a name; without a name, the only one.
fn asic<'a>(router: &'a RouterState, name: Option<&str>) -> Result<&'a InProcess, Refusal> {
    let there = || router.asics.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (name, router.asics.len()) {
        (_, 0) => Err(Refusal::Missing(
            "this router has no virtual ASIC; fib.virtual-asic = true in its configuration makes one".into(),
        )),
        (Some(name), _) => router
            .asics
            .get(name)
            .ok_or_else(|| Refusal::Missing(format!("there is no ASIC {name}; there are: {}", there()))),
        (None, 1) => Ok(&router.asics[there().as_str()]),
        (None, _) => Err(Refusal::Bad(format!("say which ASIC; there are: {}", there()))),
    }
}

fn answer(forward: &Option<Forward>) -> AsicAnswer {
    let Some(forward) = forward else {
        return AsicAnswer { prefix: None, action: "drop".into(), next_hops: Vec::new() };
    };
    // A gateway without a MAC address is one that packets do not reach.
    let next_hops: Vec<IpAddr> =
        forward.hops.iter().filter(|h| h.mac.is_some()).filter_map(|h| h.gateway).collect();
    let action = match forward.action {
        PacketAction::Forward if !next_hops.is_empty() => "forward",
        PacketAction::Forward if forward.hops.iter().any(|h| h.gateway.is_none()) => "to-link-or-cpu",
        PacketAction::Forward | PacketAction::Drop => "drop",
        _ => "to-cpu",
    };
    AsicAnswer { prefix: Some(forward.prefix.to_string()), action: action.into(), next_hops }
}

/// fpmsyncd's, orchagent's and the chip's word on a prefix, of which the RIB manager `selected` a route.
///
/// Stages of one of several ASICs, and only of such, are called by its `name` too.
pub(super) fn stages(
    name: Option<&str>,
    asic: &InProcess,
    route: VrfPrefix,
    selected: Option<Selected>,
) -> Result<Vec<ExplainStage>, Refusal> {
    let e = asic.explain(route, selected)?;
    let fpmsyncd = match &e.fpmsyncd {
        None => stage("fpmsyncd", StageState::Absent, vec!["no client announced it".into()]),
        Some(Err(why)) => stage("fpmsyncd", StageState::Stopped, vec![why.clone()]),
        Some(Ok(row)) => stage("fpmsyncd", StageState::Passed, vec![row_text(row)]),
    };
    let mut stages = vec![fpmsyncd, orchagent(e.orchagent.as_ref()), chip(e.chip.as_ref())];
    if let Some(left) = e.stalled {
        stalled(&mut stages, left);
    }
    if let Some(name) = name {
        stages.iter_mut().for_each(|stage| stage.stage = format!("{name} {}", stage.stage));
    }
    Ok(stages)
}

/// A row of a route, as a line.
pub(crate) fn row_text(row: &RouteRow) -> String {
    let mut fields = Vec::new();
    row.fields(&mut |field, value| fields.push(format!("{field}={value}")));
    format!("ROUTE_TABLE: {}", fields.join(" "))
}

/// orchagent's word.
pub(crate) fn orchagent(state: Option<&RouteState>) -> ExplainStage {
    let Some(state) = state else {
        return stage("orchagent", StageState::Absent, vec!["neither programmed nor wanted".into()]);
    };
    let mut says = Vec::new();
    if let Some(lead) = &state.in_chip {
        let hops: Vec<String> = lead.hops.iter().map(|(ip, name, _)| format!("{ip} on {name}")).collect();
        let hops = if hops.is_empty() { "drops".into() } else { hops.join(", ") };
        let index = lead.index.as_ref().map_or(String::new(), |i| format!(", NEXTHOP_GROUP_TABLE:{i}"));
        says.push(format!("programmed: {hops}{index}, object {:#x}", lead.oid.0));
    }
    let how = match &state.waiting {
        None => match &state.given_up {
            Some(why) => {
                says.push(format!("given up: {why}"));
                StageState::Stopped
            }
            None => StageState::Passed,
        },
        Some(why @ (Waiting::Turn | Waiting::Chip | Waiting::Group)) => {
            says.push(why.to_string());
            StageState::Waiting
        }
        Some(why) => {
            says.push(why.to_string());
            StageState::Stopped
        }
    };
    stage("orchagent", how, says)
}

/// The chip, the last of `stages` and after orchagent, does nothing for so long: what is not done waits for it, and it says so.
pub(crate) fn stalled(stages: &mut [ExplainStage], left: Option<Duration>) {
    let Some((chip, before)) = stages.split_last_mut() else { return };
    let known = before.iter().any(|stage| stage.state != StageState::Absent);
    let done = before.last().is_some_and(|orchagent| orchagent.state == StageState::Passed);
    if known && !done {
        chip.state = StageState::Waiting;
    }
    chip.says.push(match left {
        Some(left) => format!("it is stalled, and goes on in {:.1} s", left.as_secs_f64()),
        None => "it is stalled until it is told to go on".into(),
    });
}

/// The chip's word.
pub(crate) fn chip(forward: Option<&Forward>) -> ExplainStage {
    let Some(forward) = forward else {
        return stage("virtual switch", StageState::Absent, vec!["no such entry".into()]);
    };
    let hop = |h: &ribtide_vswitch::ForwardHop| match (h.gateway, &h.mac) {
        (Some(gateway), Some(mac)) => format!("{gateway} ({mac}) on {}", h.port),
        (Some(gateway), None) => format!("{gateway}, whose MAC address is not known, on {}", h.port),
        (None, _) => format!("{} itself", h.port),
    };
    let hops: Vec<String> = forward.hops.iter().map(hop).collect();
    let says = if hops.is_empty() { "drops".to_string() } else { format!("sends to {}", hops.join(", ")) };
    stage("virtual switch", StageState::Passed, vec![says])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_waits_for_a_chip_that_is_stalled() {
        let says = |states: [StageState; 3], left| {
            let mut stages = states.map(|state| stage("", state, Vec::new()));
            stalled(&mut stages, left);
            (stages[2].state, stages[2].says.join(" "))
        };
        let (passed, waits, absent) = (StageState::Passed, StageState::Waiting, StageState::Absent);
        let for_ever = "it is stalled until it is told to go on";
        assert_eq!(says([passed, waits, absent], None), (waits, for_ever.into()));
        assert_eq!(says([passed, absent, absent], None).0, waits);
        // A withdrawal.
        assert_eq!(says([absent, waits, passed], None).0, waits);
        let later = Some(Duration::from_millis(12_340));
        let for_long = "it is stalled, and goes on in 12.3 s";
        assert_eq!(says([passed, passed, passed], later), (passed, for_long.into()));
        assert_eq!(says([absent, absent, absent], later), (absent, for_long.into()));
    }
}
