//! The kernel's table against what was selected, of the default VRF: which prefixes are there, and by which gateways,
//! interfaces and weights, next-hop objects taken for what they do.
//!
//! The kernel notes nothing for us. Each look reads a part of its table; what seems to differ has all of it compared.

use super::super::state::RouterState;
use super::PAGE;
use ribtide_dataplane::kernel::{Forwarding, Installed, KernelHandle, Walk, installed, next_hop_objects};
use ribtide_model::Difference;
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_rib::{GroupId, IfIndex, Protocol, RouteInfo};
use ribtide_ribd::{RibHandle, RibStage};
use ribtide_runtime::call::NoReply;
use std::io;
use std::sync::Arc;

/// Between two looks.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Through the kernel's table.
    walk: Walk,
    /// How many routes of ours it has seen.
    seen: u64,
    /// Whether the last look found a difference.
    differs: bool,
}

/// What next-hop objects do.
type Objects = Arc<Map<u32, Forwarding>>;

/// What differs: in all of the table, or, unless something differed before or seems to, in the next part of it.
pub(super) fn check(
    router: &RouterState,
    state: &mut State,
    part: usize,
    all: bool,
) -> Result<Vec<Difference>, NoReply> {
    let (Some(rib), Some(kernel)) = (&router.rib, &router.kernel) else { return Ok(Vec::new()) };
    if !all && !state.differs && walk_on(rib, kernel, state, part)? {
        return Ok(Vec::new());
    }
    let differences = everything(rib, kernel)?;
    *state = State { differs: !differences.is_empty(), ..State::default() };
    Ok(differences)
}

/// Whether a route of this protocol is in the kernel because we wrote it there.
fn is_written(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Connected | Protocol::Kernel)
}

/// Whether routes of a group are as the kernel has them, each pair of a group and an object compared once.
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
        let compare =
            || Forwarding::wanted(&info.content).is_none_or(|wanted| wanted == found.forwarding(objects));
        match found {
            Installed::Object(id) => *self.same.entry((info.group, *id)).or_insert_with(compare),
            Installed::Inline(_) => compare(),
        }
    }
}

/// Looks at the next part of the kernel's table. False: something seems to differ. Each route that is there must be selected,
/// and lead where it does; that none is missing, their number tells at the end.
fn walk_on(rib: &RibHandle, kernel: &KernelHandle, state: &mut State, part: usize) -> Result<bool, NoReply> {
    let Ok((found, ended)) = state.walk.step(&kernel.config, part) else { return Ok(false) };
    state.seen += found.len() as u64;
    if !found.is_empty() {
        let Ok(objects) = next_hop_objects() else { return Ok(false) };
        let objects = Arc::new(objects);
        for page in found.chunks(PAGE) {
            let (asked, objects) = (page.to_vec(), objects.clone());
            let agree = rib.handle.call(move |stage| {
                let (rib, mut comparison) = (stage.rib.default_vrf(), Comparison::new(objects));
                asked.iter().all(|(prefix, found)| {
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

/// All of our routes there against those that should be.
fn everything(rib: &RibHandle, kernel: &KernelHandle) -> Result<Vec<Difference>, NoReply> {
    let read = || -> io::Result<_> { Ok((installed(&kernel.config)?, Arc::new(next_hop_objects()?))) };
    let (mut there, objects) = match read() {
        Ok(read) => read,
        Err(e) => return Ok(vec![difference("", "-", "-", format!("its table cannot be read: {e}"))]),
    };
    let mut cursor = rib.handle.call(|stage| stage.rib.default_vrf().cursor())?;
    let mut differences = Vec::new();
    while !cursor.is_done() {
        let objects = objects.clone();
        let (back, left, wrong) = rib.handle.call(move |stage| {
            let mut comparison = Comparison::new(objects);
            let mut wrong = Vec::new();
            for info in stage.rib.default_vrf().page(&mut cursor, PAGE) {
                if is_written(info.protocol) {
                    let found = there.remove(&info.prefix);
                    wrong.extend(compare(stage, &mut comparison, &info, found.as_ref()));
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
                let leads = found.forwarding(&objects).text(|index| name(stage, index));
                let says = "the kernel has it with our protocol number".to_owned();
                difference(&prefix.to_string(), "absent", &leads, says)
            };
            page.iter().map(stale).collect::<Vec<_>>()
        })?);
    }
    Ok(differences)
}

/// How a selected route differs from what the kernel has, if it does.
fn compare(
    stage: &RibStage,
    comparison: &mut Comparison,
    info: &RouteInfo,
    found: Option<&Installed>,
) -> Option<Difference> {
    let wanted = Forwarding::wanted(&info.content)?;
    let text = |forwarding: &Forwarding| forwarding.text(|index| name(stage, index));
    let (found, says) = match found {
        None => ("absent".to_owned(), "the kernel does not have it"),
        Some(found) if comparison.agree(info, found) => return None,
        Some(found) => {
            (text(&found.forwarding(&comparison.objects)), "the kernel has other next hops for it")
        }
    };
    Some(difference(&info.prefix.to_string(), &text(&wanted), &found, says.to_owned()))
}

fn name(stage: &RibStage, index: IfIndex) -> String {
    stage.rib.interface(index).map_or_else(|| format!("if{index}"), |interface| interface.name.clone())
}

fn difference(prefix: &str, rib: &str, found: &str, says: String) -> Difference {
    Difference {
        vrf: "default".into(),
        prefix: prefix.into(),
        neighbor: None,
        stage: "kernel".into(),
        rib: rib.into(),
        found: found.into(),
        says,
        // The writer may be about to see to it: the two were not read in one moment.
        under_way: true,
    }
}
