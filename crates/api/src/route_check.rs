//! `route-check` in a running router: compares RIB, kernel, SONiC path and chip.
//!
//! Journals note changed FIB entries and changed entries of the chip ([`ribtide_prefix::Journal`]).
//! So a check compares what changed since the last check, and what differed then; an idle table
//! costs nothing. The first check, a full one, and one after too many changes compare everything, a
//! page at a time. RIB and chip show that a route differs; queries to the stages between show
//! where.
//!
//! The kernel has no journal ([`kernel`]), and BGP's paths change without a change of the FIB
//! ([`bgp`]). Each check compares the next part of both, so that a number of checks covers
//! everything.

mod bgp;
mod kernel;

use super::answers::interface_name;
use super::state::RouterState;
use ribtide_asic::{Explained, InProcess, Selected};
use ribtide_model::{DefaultRoute, Difference, RouteCheck};
use ribtide_prefix::{AnyPrefix, Set};
use ribtide_rib::{FibGroup, FibHop, InstallStatus, VrfId, VrfPrefix};
use ribtide_ribd::RibStage;
use ribtide_runtime::call::NoReply;
use ribtide_swss::orch::Waiting;
use ribtide_swss::sai::PacketAction;
use ribtide_vswitch::Forward;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Routes in one query to a stage.
const PAGE: usize = 1000;
/// Differences that are reported individually.
const REPORTED_DIFFERENCES_MAX: usize = 1000;
/// Routes of the kernel, and of BGP, that a check compares if it is not a full one.
const PART: usize = 16_384;

/// The state between two checks.
#[derive(Debug)]
pub struct State {
    /// Routes in a part.
    part: usize,
    /// Whether a full check has been made.
    known: bool,
    /// Routes that differed, or that are not compared yet.
    open: Set<VrfPrefix>,
    kernel: kernel::State,
    bgp: bgp::State,
}

impl Default for State {
    fn default() -> State {
        State::with_parts_of(PART)
    }
}

impl State {
    /// The state before the first check, with parts of this size.
    pub fn with_parts_of(part: usize) -> State {
        State {
            part,
            known: false,
            open: Set::default(),
            kernel: kernel::State::default(),
            bgp: bgp::State::default(),
        }
    }
}

/// A next hop: gateway and interface.
type NextHop = (Option<IpAddr>, String);

/// The forwarding of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Forwarding {
    Drop,
    Hops(BTreeSet<NextHop>),
    /// An unresolved group: any forwarding of the chip is accepted.
    Unresolved,
}

impl std::fmt::Display for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Forwarding::Drop => f.write_str("drop"),
            Forwarding::Unresolved => f.write_str("unresolved"),
            Forwarding::Hops(hops) => {
                let hop = |(gateway, interface): &NextHop| match gateway {
                    Some(gateway) => format!("via {gateway} dev {interface}"),
                    None => format!("dev {interface}"),
                };
                f.write_str(&hops.iter().map(hop).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The route in the RIB manager.
#[derive(Clone, Debug)]
struct Expected {
    forwarding: Forwarding,
    selected: Selected,
    /// Dataplanes that have not confirmed it: name, and the reason of a failure.
    open: Vec<(String, Option<String>)>,
}

fn expected(stage: &RibStage, route: VrfPrefix) -> Option<Expected> {
    let rib = stage.rib.get(route.vrf)?;
    let info = rib.lookup(route.prefix)?;
    let forwarding = match &info.content {
        FibGroup::Blackhole => Forwarding::Drop,
        FibGroup::Unresolved => Forwarding::Unresolved,
        FibGroup::Hops(hops) => {
            let hop = |hop: &FibHop| (hop.gateway, interface_name(stage, hop.interface));
            Forwarding::Hops(hops.iter().map(hop).collect())
        }
    };
    let statuses = stage.install_statuses(rib, route.prefix).into_iter();
    let open = statuses.filter_map(|(name, status)| match status {
        InstallStatus::Installed => None,
        InstallStatus::Pending => Some((name, None)),
        InstallStatus::Failed(why) => Some((name, Some(why))),
    });
    Some(Expected { forwarding, selected: (info.group, info.protocol), open: open.collect() })
}

/// The forwarding of a route in the chip; `None` for a route of the switch itself.
fn found(forward: &Forward) -> Option<Forwarding> {
    let own = |hop: &ribtide_vswitch::ForwardHop| hop.gateway.is_none() && &*hop.port == "CPU";
    if forward.hops.iter().any(own) || forward.action == PacketAction::Trap {
        return None;
    }
    if forward.hops.is_empty() {
        return Some(Forwarding::Drop);
    }
    Some(Forwarding::Hops(forward.hops.iter().map(|hop| (hop.gateway, hop.port.to_string())).collect()))
}

/// Whether the switch made the route itself: a dropping default route, or one to itself.
fn is_own(prefix: AnyPrefix, forward: &Forward) -> bool {
    match found(forward) {
        None => true,
        Some(forwarding) => prefix.len() == 0 && forwarding == Forwarding::Drop,
    }
}

fn agree(expected: Option<&Expected>, chip: Option<&Forward>, prefix: AnyPrefix) -> bool {
    match (expected, chip) {
        (None, None) => true,
        (None, Some(forward)) => is_own(prefix, forward),
        (Some(expected), None) => expected.forwarding == Forwarding::Unresolved,
        (Some(expected), Some(forward)) => {
            let found = found(forward);
            // The router's own address, from any announcer.
            expected.forwarding == Forwarding::Unresolved
                || found.is_none_or(|found| found == expected.forwarding)
        }
    }
}

/// Compares once.
///
/// # Errors
/// A stage has stopped or is too busy.
pub fn check(router: &RouterState, state: &Mutex<State>, full: bool) -> Result<RouteCheck, NoReply> {
    let begin = Instant::now();
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(RouteCheck::default()) };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let state = &mut *state;
    let (changed, installed) = rib.handle.call(|stage| {
        let totals = stage.rib.iter().flat_map(|(_, rib)| rib.totals());
        (stage.changed.take(), totals.map(|total| total.installed).sum::<u64>())
    })?;
    let mut all = full || !state.known || changed.is_none();
    state.open.extend(changed.into_iter().flatten());
    let mut routes = BTreeMap::from([("rib".to_owned(), installed)]);
    for (name, asic) in &router.dataplanes().asics {
        let counts = asic.counts()?;
        routes.insert(chip_of(router, name), (counts.ipv4_routes + counts.ipv6_routes) as u64);
        let moved = asic.changed()?;
        all |= moved.is_none();
        state.open.extend(moved.into_iter().flatten());
    }
    let mut left: Vec<VrfPrefix> = Vec::new();
    if all {
        state.known = false;
        left = everything(router)?;
    }
    left.extend(state.open.iter().copied());
    left.sort_unstable();
    left.dedup();
    let checked = left.len() as u64;
    let mut open = Vec::new();
    for page in left.chunks(PAGE) {
        open.extend(differing(router, page)?);
    }
    let mut differences = Vec::new();
    let (mut differing, mut under_way) = (0, 0);
    state.open = open.iter().map(|open| open.route).collect();
    let mut silent = BTreeSet::new();
    for (n, open) in open.into_iter().enumerate() {
        differing += 1;
        if n < REPORTED_DIFFERENCES_MAX {
            let difference = explain(router, open, &mut silent)?;
            under_way += u64::from(difference.under_way);
            differences.push(difference);
        }
    }
    let kernel = kernel::check(router, &mut state.kernel, state.part, all)?;
    let found = bgp::check(router, &mut state.bgp, &left, if all { usize::MAX } else { state.part })?;
    routes.extend(found.best.map(|best| ("bgp".to_owned(), best)));
    for elsewhere in [kernel, found.differences] {
        differing += elsewhere.len() as u64;
        under_way += elsewhere.iter().filter(|difference| difference.under_way).count() as u64;
        differences.extend(elsewhere.into_iter().take(REPORTED_DIFFERENCES_MAX));
    }
    state.known = true;
    Ok(RouteCheck {
        full: all,
        checked,
        best_paths_checked: found.compared,
        differing,
        under_way,
        differences,
        routes,
        default_routes: defaults(router)?,
        not_compared: Vec::new(),
        milliseconds: begin.elapsed().as_secs_f64() * 1e3,
    })
}

/// Every route of the RIB manager and of the chip.
fn everything(router: &RouterState) -> Result<Vec<VrfPrefix>, NoReply> {
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(Vec::new()) };
    let vrfs: Vec<VrfId> = rib.handle.call(|stage| stage.rib.iter().map(|(id, _)| id).collect())?;
    let mut all = Vec::new();
    for vrf in vrfs {
        // Copies all prefixes at once, as every paged read of the FIB does.
        let prefixes = rib.handle.call(move |stage| {
            let rib = stage.rib.get(vrf)?;
            let mut cursor = rib.cursor();
            let mut prefixes = Vec::new();
            while !cursor.is_done() {
                prefixes.extend(rib.page(&mut cursor, 4096).into_iter().map(|info| info.prefix));
            }
            Some(prefixes)
        })?;
        all.extend(prefixes.into_iter().flatten().map(|prefix| VrfPrefix { vrf, prefix }));
        for asic in router.dataplanes().asics.values() {
            all.extend(asic.prefixes(vrf)?.into_iter().map(|prefix| VrfPrefix { vrf, prefix }));
        }
    }
    Ok(all)
}

/// The name of a chip in a difference: that of its ASIC if there are several.
fn chip_of(router: &RouterState, name: &str) -> String {
    if router.dataplanes().asics.len() > 1 { name.to_owned() } else { "chip".to_owned() }
}

/// A route that differs, or that a dataplane has not confirmed.
struct Open {
    route: VrfPrefix,
    expected: Option<Expected>,
    /// The virtual ASIC and the forwarding of its chip; `None` for another dataplane.
    chip: Option<(String, Option<Forward>)>,
}

/// The routes of `page` that differ.
fn differing(router: &RouterState, page: &[VrfPrefix]) -> Result<Vec<Open>, NoReply> {
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(Vec::new()) };
    let page_copy = page.to_vec();
    let of_rib: Vec<Option<Expected>> =
        rib.handle.call(move |stage| page_copy.into_iter().map(|route| expected(stage, route)).collect())?;
    let dataplanes = router.dataplanes();
    let asics = &dataplanes.asics;
    let mut of_chips = Vec::with_capacity(asics.len());
    for (name, asic) in asics {
        of_chips.push((name, asic.entries(page)?));
    }
    let mut open = Vec::new();
    for (n, (route, expected)) in page.iter().zip(of_rib).enumerate() {
        let open_at = |at: &dyn Fn(&String) -> bool| {
            expected.as_ref().is_some_and(|expected| expected.open.iter().any(|(plane, _)| at(plane)))
        };
        for (name, entries) in &of_chips {
            let chip = entries.get(n).cloned().flatten();
            if !agree(expected.as_ref(), chip.as_ref(), route.prefix) || open_at(&|plane| plane == *name) {
                let chip = Some(((*name).clone(), chip));
                open.push(Open { route: *route, expected: expected.clone(), chip });
            }
        }
        if open_at(&|plane| !asics.contains_key(plane)) {
            open.push(Open { route: *route, expected, chip: None });
        }
    }
    Ok(open)
}

/// The stage at which a differing route waits, and the reason.
///
/// `silent`: virtual ASICs with a stage that did not reply; they are not called again.
fn explain(router: &RouterState, open: Open, silent: &mut BTreeSet<String>) -> Result<Difference, NoReply> {
    let Open { route, expected, chip } = open;
    let dataplanes = router.dataplanes();
    let asics = &dataplanes.asics;
    let at = |stage: &str, under_way: bool, message: String| (stage.to_owned(), under_way, message);
    let differs = |forward: &Option<Forward>| !agree(expected.as_ref(), forward.as_ref(), route.prefix);
    let of_this = |plane: &str| match &chip {
        Some((name, _)) => plane == name,
        None => !asics.contains_key(plane),
    };
    let (stage, under_way, message) = match &chip {
        Some((name, forward)) if differs(forward) => {
            let page_copy = (!silent.contains(name)).then(|| asics.get(name)).flatten();
            let reported = match page_copy.map(|asic| between(name, asic, route, expected.as_ref())) {
                Some(Ok(reported)) => Some(reported),
                Some(Err(silence)) if asics.len() == 1 => return Err(silence),
                _ => None,
            };
            let (stage, under_way, message) = reported.unwrap_or_else(|| {
                silent.insert(name.clone());
                at("fpmsyncd", true, "its stages are too busy to answer; work behind them waits".into())
            });
            let stage = if asics.len() > 1 { format!("{name} {stage}") } else { stage };
            (stage, under_way, message)
        }
        _ => {
            match expected.iter().flat_map(|expected| expected.open.iter()).find(|(plane, _)| of_this(plane))
            {
                Some((plane, Some(why))) => at(plane, false, why.clone()),
                Some((plane, None)) => at(plane, true, "sent, not yet confirmed".into()),
                None => at("rib", true, "it has changed meanwhile".into()),
            }
        }
    };
    let vrf = match &router.rib.get() {
        Some(rib) => rib.handle.call(move |stage| stage.vrf_name(route.vrf))?,
        None => String::new(),
    };
    let chip = chip.map(|(_, forward)| match &forward {
        None => "absent".to_owned(),
        Some(forward) => {
            found(forward).map_or_else(|| "to the CPU".to_owned(), |forward| forward.to_string())
        }
    });
    Ok(Difference {
        vrf,
        prefix: route.prefix.to_string(),
        neighbor: None,
        rib: expected.map_or_else(|| "absent".into(), |expected| expected.forwarding.to_string()),
        found: chip.unwrap_or_else(|| "not confirmed".into()),
        stage,
        message,
        under_way,
    })
}

/// The stage of the SONiC path at which the route begins to differ from the RIB.
fn between(
    name: &str,
    asic: &InProcess,
    route: VrfPrefix,
    expected: Option<&Expected>,
) -> Result<(String, bool, String), NoReply> {
    let Explained { fpmsyncd, orchagent, .. } =
        asic.explain(route, expected.map(|expected| expected.selected))?;
    let of_it = |open: &&(String, Option<String>)| open.0 == name;
    let refused =
        expected.and_then(|expected| expected.open.iter().filter(of_it).find_map(|(_, why)| why.clone()));
    let pending =
        expected.is_some_and(|expected| expected.open.iter().filter(of_it).any(|(_, why)| why.is_none()));
    let at = |stage: &str, under_way: bool, message: String| Ok((stage.to_owned(), under_way, message));
    if let Some(waiting) = orchagent.as_ref().and_then(|state| state.waiting.as_ref()) {
        return match waiting {
            Waiting::Chip => at("chip", true, waiting.to_string()),
            Waiting::Turn | Waiting::Group => at("orchagent", true, waiting.to_string()),
            _ => at("orchagent", false, waiting.to_string()),
        };
    }
    if let Some(why) = refused {
        return at("chip", false, why);
    }
    let programmed = orchagent.as_ref().and_then(|state| state.in_chip.as_ref());
    match (fpmsyncd, programmed) {
        (Some(Err(why)), _) => at("fpmsyncd", false, why),
        (Some(Ok(_)), None) => {
            at("orchagent", pending, "it has a row, and orchagent did not take it yet".into())
        }
        (None, Some(_)) => {
            at("orchagent", true, "the RIB manager has no such route any more, and it is programmed".into())
        }
        _ if pending => at("orchagent", true, "an earlier change is in the chip".into()),
        _ => at("syncd", false, "the chip's entry differs from orchagent's".into()),
    }
}

/// Compares the default routes only, in constant time.
///
/// # Errors
/// A stage has stopped or is too busy.
pub fn default_routes(router: &RouterState) -> Result<RouteCheck, NoReply> {
    Ok(RouteCheck { default_routes: defaults(router)?, ..RouteCheck::default() })
}

/// The default route of each family in the RIB and in the chip.
fn defaults(router: &RouterState) -> Result<Vec<DefaultRoute>, NoReply> {
    let routes = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|text| text.parse::<AnyPrefix>().ok());
    let routes: Vec<VrfPrefix> = routes.map(VrfPrefix::from).collect();
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(Vec::new()) };
    let page_copy = routes.clone();
    let of_rib: Vec<Option<Expected>> =
        rib.handle.call(move |stage| page_copy.into_iter().map(|route| expected(stage, route)).collect())?;
    let dataplanes = router.dataplanes();
    let asics = &dataplanes.asics;
    let mut chips = Vec::with_capacity(asics.len());
    for asic in asics.values() {
        chips.push(asic.entries(&routes)?);
    }
    let all = routes.iter().zip(of_rib).enumerate();
    Ok(all
        .map(|(n, (route, expected))| {
            let mut entries = chips.iter().map(|entries| entries.get(n).cloned().flatten());
            let same = entries.all(|entry| agree(expected.as_ref(), entry.as_ref(), route.prefix));
            DefaultRoute {
                prefix: route.prefix.to_string(),
                forwarded: same
                    && expected
                        .as_ref()
                        .is_some_and(|w| w.open.is_empty() && w.forwarding != Forwarding::Drop),
                next_hops: expected.map(|expected| expected.forwarding.to_string()),
            }
        })
        .collect())
}
