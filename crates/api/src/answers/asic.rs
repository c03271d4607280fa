//! `/v1/asic`, and the part of the SONiC path in `/v1/explain`.

use super::explain::stage;
use super::{Changed, Refusal, RouterState, Target, target, vrf as vrf_of};
use ribtide_asic::{InProcess, Selected};
use ribtide_model::{AsicFaults, AsicLookup, AsicLookups, AsicState, ExplainStage, SetAsic, StageState};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{VrfId, VrfPrefix};
use ribtide_sonicd::route_stages::{chip, orchagent, row_text, stalled};
use ribtide_swss::sai::PacketAction;
use ribtide_vswitch::Forward;
use std::net::IpAddr;

/// The forwarding of packets to these addresses.
pub fn asic_lookup(
    router: &RouterState,
    name: Option<&str>,
    vrf: Option<&str>,
    addresses: &[IpAddr],
) -> Result<AsicLookups, Refusal> {
    let asic = asic(router, name)?;
    let vrf = router.rib.get().map_or(Ok(VrfId::DEFAULT), |rib| vrf_of(&rib, vrf))?;
    Ok(AsicLookups { lookups: asic.lookup(vrf, addresses)?.iter().map(forwarding_of).collect() })
}

/// Makes the virtual ASIC refuse routes, or accept them again.
pub(crate) fn asic_faults(router: &RouterState, faults: AsicFaults) -> Result<AsicFaults, Refusal> {
    let prefix = |text: &String| match target(text)? {
        Target::Prefix(prefix) => Ok(prefix),
        Target::Address(_) => {
            Err(Refusal::Bad(format!("\"{text}\" is an address; write a prefix such as 10.0.0.0/8")))
        }
    };
    if !faults.alter.is_empty() {
        asic(router, faults.asic.as_deref())?.alter(faults.alter.clone())?.map_err(Refusal::Bad)?;
        return Ok(faults);
    }
    if faults.prefixes.is_empty() {
        return Err(Refusal::Bad("prefixes is empty; name at least one, such as [\"192.0.2.0/24\"]".into()));
    }
    let prefixes = faults.prefixes.iter().map(prefix).collect::<Result<Vec<AnyPrefix>, Refusal>>()?;
    asic(router, faults.asic.as_deref())?.refuse(prefixes, faults.refuse)?;
    Ok(faults)
}

/// The behaviour, contents and counters of the virtual ASIC.
pub(crate) fn asic_state(router: &RouterState, name: Option<&str>) -> Result<AsicState, Refusal> {
    Ok(asic(router, name)?.chip()?)
}

/// Changes the behaviour of the virtual ASIC.
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
    let message: Vec<String> = set
        .iter()
        .map(|(name, value)| match (before.settings.get(name), state.settings.get(name)) {
            (Some(from), Some(to)) => format!("{name} {from} -> {to}"),
            // `stall` is a command, not a setting.
            _ => format!("{name} {value}"),
        })
        .collect();
    let name = change.asic.as_deref().unwrap_or("the virtual ASIC");
    Ok(Changed { message: format!("{name}: {}", message.join(", ")), answer: state, is_change: true })
}

/// The virtual ASIC of a name; default: the only one.
fn asic(router: &RouterState, name: Option<&str>) -> Result<InProcess, Refusal> {
    let dataplanes = router.dataplanes();
    let asics = &dataplanes.asics;
    let there = || asics.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (name, asics.len()) {
        (_, 0) => Err(Refusal::Missing(
            "this router has no virtual ASIC; fib.virtual-asic = true in its configuration makes one".into(),
        )),
        (Some(name), _) => asics
            .get(name)
            .cloned()
            .ok_or_else(|| Refusal::Missing(format!("there is no ASIC {name}; there are: {}", there()))),
        (None, 1) => Ok(asics[there().as_str()].clone()),
        (None, _) => Err(Refusal::Bad(format!("say which ASIC; there are: {}", there()))),
    }
}

fn forwarding_of(forward: &Option<Forward>) -> AsicLookup {
    let Some(forward) = forward else {
        return AsicLookup { prefix: None, action: "drop".into(), next_hops: Vec::new() };
    };
    // Packets do not reach a gateway without MAC address.
    let next_hops: Vec<IpAddr> =
        forward.hops.iter().filter(|h| h.mac.is_some()).filter_map(|h| h.gateway).collect();
    let action = match forward.action {
        PacketAction::Forward if !next_hops.is_empty() => "forward",
        PacketAction::Forward if forward.hops.iter().any(|h| h.gateway.is_none()) => "to-link-or-cpu",
        PacketAction::Forward | PacketAction::Drop => "drop",
        _ => "to-cpu",
    };
    AsicLookup { prefix: Some(forward.prefix.to_string()), action: action.into(), next_hops }
}

/// The states of fpmsyncd, orchagent and the chip for a prefix, of which the RIB manager `selected`
/// a route.
///
/// With several ASICs the stages have the `name` of theirs.
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
