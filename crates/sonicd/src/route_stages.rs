//! The states of a route in fpmsyncd, orchagent and the switch, as stages of `explain`.

use ribtide_model::{ExplainStage, StageState};
use ribtide_swss::Row;
use ribtide_swss::orch::{RouteState, Waiting};
use ribtide_swss::row::RouteRow;
use ribtide_vswitch::Forward;
use std::time::Duration;

/// Formats a row.
pub fn row_text(row: &RouteRow) -> String {
    let mut fields = Vec::new();
    row.fields(&mut |field, value| fields.push(format!("{field}={value}")));
    format!("ROUTE_TABLE: {}", fields.join(" "))
}

/// The state in orchagent.
pub fn orchagent(state: Option<&RouteState>) -> ExplainStage {
    let Some(state) = state else {
        return ExplainStage::new(
            "orchagent",
            StageState::Absent,
            vec!["neither programmed nor wanted".into()],
        );
    };
    let mut messages = Vec::new();
    if let Some(entry) = &state.in_chip {
        let hops: Vec<String> = entry.hops.iter().map(|(ip, name, _)| format!("{ip} on {name}")).collect();
        let hops = if hops.is_empty() { "drops".into() } else { hops.join(", ") };
        let index = entry.index.as_ref().map_or(String::new(), |i| format!(", NEXTHOP_GROUP_TABLE:{i}"));
        messages.push(format!("programmed: {hops}{index}, object {:#x}", entry.oid.0));
        messages.extend(entry.missing.iter().map(|why| format!("without one of its next hops: {why}")));
    }
    let how = match &state.waiting {
        None => match &state.given_up {
            Some(why) => {
                messages.push(format!("given up: {why}"));
                StageState::Stopped
            }
            None => StageState::Passed,
        },
        Some(why @ (Waiting::Turn | Waiting::Chip | Waiting::Group)) => {
            messages.push(why.to_string());
            StageState::Waiting
        }
        Some(why) => {
            messages.push(why.to_string());
            StageState::Stopped
        }
    };
    ExplainStage::new("orchagent", how, messages)
}

/// Notes a stall of the chip, which is the last of `stages`. `left`: its remaining time. Unfinished
/// stages wait for it.
pub fn stalled(stages: &mut [ExplainStage], left: Option<Duration>) {
    let Some((chip, before)) = stages.split_last_mut() else { return };
    let known = before.iter().any(|stage| stage.state != StageState::Absent);
    let done = before.last().is_some_and(|orchagent| orchagent.state == StageState::Passed);
    if known && !done {
        chip.state = StageState::Waiting;
    }
    chip.messages.push(match left {
        Some(left) => format!("it is stalled, and goes on in {:.1} s", left.as_secs_f64()),
        None => "it is stalled until a command resumes it".into(),
    });
}

/// A next hop that is not known.
pub(super) const UNKNOWN: &str = "an unknown next hop";

/// The state in the chip.
pub fn chip(forward: Option<&Forward>) -> ExplainStage {
    let Some(forward) = forward else {
        return ExplainStage::new("virtual switch", StageState::Absent, vec!["no such entry".into()]);
    };
    let hop = |h: &ribtide_vswitch::ForwardHop| match (h.gateway, &h.mac) {
        (Some(gateway), Some(mac)) => format!("{gateway} ({mac}) on {}", h.port),
        (Some(gateway), None) => format!("{gateway}, whose MAC address is not known, on {}", h.port),
        (None, _) => format!("{} itself", h.port),
    };
    let hops: Vec<String> = forward.hops.iter().map(hop).collect();
    let messages =
        if hops.is_empty() { "drops".to_string() } else { format!("sends to {}", hops.join(", ")) };
    ExplainStage::new("virtual switch", StageState::Passed, vec![messages])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_done_waits_for_a_chip_that_is_stalled() {
        let messages = |states: [StageState; 3], left| {
            let mut stages = states.map(|state| ExplainStage::new("", state, Vec::new()));
            stalled(&mut stages, left);
            (stages[2].state, stages[2].messages.join(" "))
        };
        let (passed, waits, absent) = (StageState::Passed, StageState::Waiting, StageState::Absent);
        let for_ever = "it is stalled until a command resumes it";
        assert_eq!(messages([passed, waits, absent], None), (waits, for_ever.into()));
        assert_eq!(messages([passed, absent, absent], None).0, waits);
        // A withdrawal.
        assert_eq!(messages([absent, waits, passed], None).0, waits);
        let later = Some(Duration::from_millis(12_340));
        let for_long = "it is stalled, and goes on in 12.3 s";
        assert_eq!(messages([passed, passed, passed], later), (passed, for_long.into()));
        assert_eq!(messages([absent, absent, absent], later), (absent, for_long.into()));
    }
}
