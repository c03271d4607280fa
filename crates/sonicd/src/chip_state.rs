//! The state of a virtual switch, as the API and syncd's query socket report it.

use ribtide_model::AsicState;
use ribtide_prefix::AnyPrefix;
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
