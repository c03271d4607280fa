//! `/v1/asic`, and the SONiC path's part of `/v1/explain`.

use super::explain::stage;
use super::{Changed, Refusal, RouterState, Target, target, vrf as vrf_of};
use ribtide_asic::{InProcess, Selected};
use ribtide_model::{AsicAnswer, AsicAnswers, AsicFaults, AsicState, ExplainStage, SetAsic, StageState};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{VrfId, VrfPrefix};
use ribtide_sonicd::route_stages::{chip, orchagent, row_text, stalled};
use ribtide_swss::sai::PacketAction;
use ribtide_vswitch::Forward;
use std::net::IpAddr;

/// What the virtual ASIC does with packets to these addresses.
pub fn asic_lookup(
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
