//! The routes of the kernel against the selected routes of the default VRF: prefixes, gateways,
//! interfaces and weights. A next-hop object counts as its content.
//!
//! In a comparison of the whole table, a connected or imported route must be there as another
//! program's, or as the kernel's own.
//!
//! The kernel has no journal. Each check reads the next part of its table; a suspected difference
//! makes it compare the whole table.

use super::super::state::RouterState;
use super::PAGE;
use ribtide_dataplane::kernel::{
    Forwarding, Installed, KernelHandle, Walk, installed, next_hop_objects, routes_of_others,
};
use ribtide_model::Difference;
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_rib::{GroupId, IfIndex, Protocol, RouteInfo};
use ribtide_ribd::{RibHandle, RibStage};
use ribtide_runtime::call::NoReply;
use std::io;
use std::sync::Arc;

/// The state between two checks.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The place in the table of the kernel.
    walk: Walk,
    /// Routes of ribtide that the walk has seen.
    seen: u64,
    /// Whether the last check found a difference.
    differs: bool,
}

/// The content of next-hop objects.
type Objects = Arc<Map<u32, Forwarding>>;

/// The differences of the next part of the table, or of the whole table if something differed
/// before or seems to.
pub(super) fn check(
    router: &RouterState,
    state: &mut State,
    part: usize,
    all: bool,
) -> Result<Vec<Difference>, NoReply> {
    let dataplanes = router.dataplanes();
    let rib = router.rib.get();
    let (Some(rib), Some(kernel)) = (&rib, &dataplanes.kernel) else { return Ok(Vec::new()) };
    if !all && !state.differs && walk_on(rib, kernel, state, part)? {
        return Ok(Vec::new());
    }
    let differences = everything(rib, kernel)?;
    *state = State { differs: !differences.is_empty(), ..State::default() };
    Ok(differences)
}

/// Whether ribtide wrote a route of this protocol number.
fn is_written(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Connected | Protocol::Kernel)
}

/// Whether the kernel has the content of a group; each pair of a group and an object is compared
/// once.
struct Comparison {
    objects: Objects,
    same: Map<(GroupId, u32), bool>,
}

impl Comparison {
    fn new(objects: Objects) -> Comparison {
        Comparison { objects, same: Map::default() }
    }

    fn agree(&mut self, info: &RouteInfo, found: &Installed) -> bool {
        let objects = &self.objects;
        let compare = || {
            Forwarding::expected(&info.content).is_none_or(|expected| expected == found.forwarding(objects))
        };
        match found {
            Installed::Object(id) => *self.same.entry((info.group, *id)).or_insert_with(compare),
            Installed::Inline(_) => compare(),
        }
    }
}

/// Compares the next part of the table; `false` if something seems to differ. Each route must be
/// selected with these next hops. A comparison of counts at the end of the table shows missing
/// routes.
fn walk_on(rib: &RibHandle, kernel: &KernelHandle, state: &mut State, part: usize) -> Result<bool, NoReply> {
    let Ok((found, ended)) = state.walk.step(&kernel.config, part) else { return Ok(false) };
    state.seen += found.len() as u64;
    if !found.is_empty() {
        let Ok(objects) = next_hop_objects() else { return Ok(false) };
        let objects = Arc::new(objects);
        for page in found.chunks(PAGE) {
            let (page_copy, objects) = (page.to_vec(), objects.clone());
            let agree = rib.handle.call(move |stage| {
                let (rib, mut comparison) = (stage.rib.default_vrf(), Comparison::new(objects));
                page_copy.iter().all(|(prefix, found)| {
                    let info = rib.lookup(*prefix).filter(|info| is_written(info.protocol));
                    info.is_some_and(|info| comparison.agree(&info, found))
                })
            })?;
            if !agree {
                return Ok(false);
            }
        }
    }
    if !ended {
        return Ok(true);
    }
    let seen = std::mem::take(&mut state.seen);
    let selected = rib.handle.call(|stage| {
        let totals = stage.rib.default_vrf().totals();
        totals.iter().filter(|total| is_written(total.protocol)).map(|total| total.installed).sum::<u64>()
    })?;
    Ok(seen == selected)
}

/// Compares all routes of ribtide in the kernel with the selected ones.
fn everything(rib: &RibHandle, kernel: &KernelHandle) -> Result<Vec<Difference>, NoReply> {
    let config = &*kernel.config;
    let read = || -> io::Result<_> {
        Ok((installed(config)?, routes_of_others(config)?, Arc::new(next_hop_objects()?)))
    };
    let (mut there, others, objects) = match read() {
        Ok(read) => read,
        Err(e) => return Ok(vec![difference("", "-", "-", format!("its table cannot be read: {e}"))]),
    };
    let others = Arc::new(others);
    let mut cursor = rib.handle.call(|stage| stage.rib.default_vrf().cursor())?;
    let mut differences = Vec::new();
    while !cursor.is_done() {
        let (objects, others) = (objects.clone(), others.clone());
        let (back, left, wrong) = rib.handle.call(move |stage| {
            let mut comparison = Comparison::new(objects);
            let mut wrong = Vec::new();
            for info in stage.rib.default_vrf().page(&mut cursor, PAGE) {
                if is_written(info.protocol) {
                    let found = there.remove(&info.prefix);
                    wrong.extend(compare(stage, &mut comparison, &info, found.as_ref()));
                } else if !others.contains(&info.prefix) {
                    let message = "no program's route, nor the kernel's own, is there".to_owned();
                    let rib = info.protocol.to_string();
                    wrong.push(difference(&info.prefix.to_string(), &rib, "absent", message));
                }
            }
            (cursor, there, wrong)
        })?;
        (cursor, there) = (back, left);
        differences.extend(wrong);
    }
    let mut stale: Vec<(AnyPrefix, Installed)> = there.into_iter().collect();
    stale.sort_unstable_by_key(|(prefix, _)| *prefix);
    for page in stale.chunks(PAGE) {
        let (page, objects) = (page.to_vec(), objects.clone());
        differences.extend(rib.handle.call(move |stage| {
            let stale = |(prefix, found): &(AnyPrefix, Installed)| {
                let forwarding = found.forwarding(&objects).text(|index| name(stage, index));
                let message = "the kernel has it with our protocol number".to_owned();
                difference(&prefix.to_string(), "absent", &forwarding, message)
            };
            page.iter().map(stale).collect::<Vec<_>>()
        })?);
    }
    Ok(differences)
}

/// The difference between a selected route and the kernel, if any.
fn compare(
    stage: &RibStage,
    comparison: &mut Comparison,
    info: &RouteInfo,
    found: Option<&Installed>,
) -> Option<Difference> {
    let expected = Forwarding::expected(&info.content)?;
    let text = |forwarding: &Forwarding| forwarding.text(|index| name(stage, index));
    let (found, message) = match found {
        None => ("absent".to_owned(), "the kernel does not have it"),
        Some(found) if comparison.agree(info, found) => return None,
        Some(found) => {
            (text(&found.forwarding(&comparison.objects)), "the kernel has other next hops for it")
        }
    };
    Some(difference(&info.prefix.to_string(), &text(&expected), &found, message.to_owned()))
}

fn name(stage: &RibStage, index: IfIndex) -> String {
    stage.rib.interface(index).map_or_else(|| format!("if{index}"), |interface| interface.name.clone())
}

fn difference(prefix: &str, rib: &str, found: &str, message: String) -> Difference {
    Difference {
        vrf: "default".into(),
        prefix: prefix.into(),
        neighbor: None,
        stage: "kernel".into(),
        rib: rib.into(),
        found: found.into(),
        message,
        // A write may be under way, because the two sides are not read at the same instant.
        under_way: true,
    }
}
