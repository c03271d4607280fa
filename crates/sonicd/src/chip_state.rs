//! The state of a virtual switch, as the API and syncd's query socket report it, and changes of its
//! contents behind syncd's back.

use ribtide_model::AsicState;
use ribtide_prefix::AnyPrefix;
use ribtide_swss::sai::{Item, ObjectId, RouteEntry, Sai, Verb, text};
use ribtide_vswitch::VirtualSwitch;
use std::time::Instant;

/// What a virtual switch is set to, holds and has done, now.
pub fn chip_state(switch: &mut VirtualSwitch) -> AsicState {
    let now = Instant::now();
    let stall = switch.stalled(now);
    let (time, counts) = (switch.chip_time(), switch.counts());
    let settings = switch.behavior().settings().into_iter().map(|(name, value)| (name.into(), value));
    let entries = [
        ("ipv4-routes", counts.ipv4_routes),
        ("ipv6-routes", counts.ipv6_routes),
        ("router-interfaces", counts.router_interfaces),
        ("neighbors", counts.neighbors),
        ("next-hops", counts.next_hops),
        ("groups", counts.groups),
        ("group-members", counts.group_members),
        ("labels", counts.labels),
    ];
    AsicState {
        settings: settings.collect(),
        refused: switch.refused().iter().map(AnyPrefix::to_string).collect(),
        without_link: without_link(switch),
        stalled: stall.is_some(),
        stalled_seconds: stall.flatten().map(|until| (until - now).as_secs_f64()),
        entries: entries.into_iter().map(|(name, count)| (name.into(), count as u64)).collect(),
        calls: time.calls,
        requested: time.entries,
        failed: time.failed,
        busy_seconds: time.busy.as_secs_f64(),
        left_seconds: switch.left(now).as_secs_f64(),
        idle_seconds: time.idle.as_secs_f64(),
    }
}

fn without_link(switch: &VirtualSwitch) -> Vec<String> {
    let ports = switch.ports().into_iter().filter(|port| port.admin_up && !port.link);
    ports.map(|port| port.name.to_string()).collect()
}

/// Changes an object of a virtual switch as another program would, for tests and debugging: syncd is
/// not informed. `text` is `create`, `set` or `remove`, the object's key in the format of ASIC_STATE
/// with the chip's own numbers, and `ATTRIBUTE=VALUE …`. A route whose virtual router is `oid:0x0` is
/// one of the default virtual router.
///
/// # Errors
/// A sentence: the text is no such change, or the status by which the switch refuses it.
pub fn alter(switch: &mut VirtualSwitch, text: &str) -> Result<(), String> {
    let mut words = text.split_whitespace();
    let verb = match words.next() {
        Some("create") => Verb::Create,
        Some("set") => Verb::Set,
        Some("remove") => Verb::Remove,
        _ => return Err(format!("\"{text}\" does not begin with create, set or remove")),
    };
    let key = words.next().ok_or("an object is missing; write TYPE:ID as in ASIC_STATE")?;
    let (object, mut id) = text::read_row_key(key).map_err(|e| e.to_string())?;
    if let ObjectId::Route(RouteEntry { vr, .. }) = &mut id
        && vr.is_null()
    {
        *vr = switch.default_router().ok_or("the switch is not started")?;
    }
    let attr = |word: &str| {
        let (name, value) =
            word.split_once('=').ok_or_else(|| format!("\"{word}\" is no ATTRIBUTE=VALUE"))?;
        let attr = text::read_field(name, value).map_err(|e| e.to_string())?;
        attr.ok_or_else(|| format!("\"{word}\" is no attribute"))
    };
    let attrs = words.map(attr).collect::<Result<Vec<_>, String>>()?;
    match switch.one(verb, object, &mut Item::new(id, attrs)) {
        status if status.is_success() => Ok(()),
        status => Err(format!("the switch refuses it: {}", status.name())),
    }
}
