//! The log lines of the daemons. A state machine returns events, and its stage logs them here.

use super::Error;
use ribtide_runtime::log::target;
use ribtide_swss::fpmsyncd::FpmEvent;
use ribtide_swss::orch::{Differences, OrchEvent};

/// Events that are logged at once. A full chip refuses a route each, and a line for each of a million routes would help no one.
const EVENTS_BATCH_MAX: usize = 20;

/// Logs in the name of `$daemon`, where several daemons share the code. Each call has one level and one target (that is what
/// makes a disabled one cost a branch), so there is one call a daemon.
macro_rules! log {
    ($daemon:expr, $level:ident, $($event:tt)+) => {
        match $daemon {
            "orchagent" => tracing::$level!(target: ribtide_runtime::log::target::ORCHAGENT, $($event)+),
            "syncd" => tracing::$level!(target: ribtide_runtime::log::target::SYNCD, $($event)+),
            _ => tracing::$level!(target: ribtide_runtime::log::target::FPMSYNCD, $($event)+),
        }
    };
}
pub(crate) use log;

/// Logs why a daemon, or its stage in the virtual ASIC, ended.
pub fn log_failure(daemon: &str, error: &Error) {
    log!(daemon, error, "{error}");
}

/// Logs the events of fpmsyncd.
pub fn log_fpmsyncd(events: &mut Vec<FpmEvent>) {
    let more = events.len().saturating_sub(EVENTS_BATCH_MAX);
    for event in events.drain(..).take(EVENTS_BATCH_MAX) {
        match event {
            FpmEvent::Route(prefix, reason) => {
                tracing::warn!(target: target::FPMSYNCD, %prefix, %reason, "the route is not in APPL_DB");
            }
            FpmEvent::Label(label, reason) => {
                tracing::warn!(target: target::FPMSYNCD, label, %reason, "the label is not in APPL_DB");
            }
            FpmEvent::Object(id, reason) => {
                tracing::warn!(target: target::FPMSYNCD, nexthop = id, %reason, "the next-hop object is not in APPL_DB");
            }
            FpmEvent::LocalSid(sid, reason) => {
                tracing::warn!(target: target::FPMSYNCD, %sid, %reason, "the local SID is not in APPL_DB");
            }
            FpmEvent::Malformed(what) => tracing::warn!(target: target::FPMSYNCD, "{what}"),
            FpmEvent::Swept { routes, groups, vpn_rows } => tracing::info!(
                target: target::FPMSYNCD,
                routes,
                groups,
                vpn_rows,
                "routes and next-hop groups that were not announced again are deleted"
            ),
        }
    }
    if more > 0 {
        tracing::warn!(target: target::FPMSYNCD, events = more, "more events came at the same time and are not logged");
    }
}

/// Logs the events of orchagent. Returns the sentence of the first that ends it.
pub(super) fn log_orchagent(events: &mut Vec<OrchEvent>) -> Option<String> {
    let more = events.len().saturating_sub(EVENTS_BATCH_MAX);
    let mut fatal = None;
    for (n, event) in events.drain(..).enumerate() {
        match event {
            OrchEvent::Fatal(sentence) => fatal = fatal.or(Some(sentence)),
            _ if n >= EVENTS_BATCH_MAX => {}
            OrchEvent::Refused(object, reason) => {
                tracing::warn!(target: target::ORCHAGENT, object, reason, "the row is not programmed");
            }
            OrchEvent::Verified { compared, differences: Differences { missing, changed, surplus } } => {
                if missing + changed + surplus == 0 {
                    tracing::info!(target: target::ORCHAGENT, compared, "syncd was started again, and has what was requested");
                } else {
                    tracing::warn!(target: target::ORCHAGENT, compared, missing, changed, surplus, "syncd was started again without what was requested, and has it again");
                }
            }
            OrchEvent::Failed(object, status) => {
                tracing::error!(target: target::ORCHAGENT, object, status = %status.name(), "the chip refused the request, which is sent again after a pause");
            }
        }
    }
    if more > 0 {
        tracing::warn!(target: target::ORCHAGENT, events = more, "more events came at the same time and are not logged");
    }
    fatal
}

/// Logs the events of syncd.
pub(super) fn log_syncd(events: &mut Vec<String>) {
    let more = events.len().saturating_sub(EVENTS_BATCH_MAX);
    events
        .drain(..)
        .take(EVENTS_BATCH_MAX)
        .for_each(|event| tracing::error!(target: target::SYNCD, "{event}"));
    if more > 0 {
        tracing::warn!(target: target::SYNCD, events = more, "more events came at the same time and are not logged");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::log::{LogSettings, capture};
    use ribtide_swss::sai::Status;

    #[test]
    fn events_of_a_full_chip_are_logged_in_part_and_the_rest_is_counted() {
        let mut events: Vec<OrchEvent> =
            (0..1000).map(|n| OrchEvent::Failed(format!("route 10.0.{n}.0/24"), Status::TableFull)).collect();
        events.push(OrchEvent::Fatal("syncd is gone".into()));
        let mut fatal = None;
        let lines = capture(&LogSettings::default(), || fatal = log_orchagent(&mut events));
        assert_eq!((fatal.as_deref(), events.len()), (Some("syncd is gone"), 0));
        let lines: Vec<&str> =
            lines.lines().map(|line| line.split_once(' ').unwrap().1.trim_start()).collect();
        assert_eq!(lines.len(), EVENTS_BATCH_MAX + 1);
        assert_eq!(
            lines[0],
            "ERROR orchagent: the chip refused the request, which is sent again after a pause object=\"route 10.0.0.0/24\" \
             status=SAI_STATUS_TABLE_FULL"
        );
        assert!(lines[EVENTS_BATCH_MAX].ends_with(&format!(" events={}", 1001 - EVENTS_BATCH_MAX)));
    }

    #[test]
    fn log_has_the_target_of_the_daemon() {
        for daemon in ["fpmsyncd", "orchagent", "syncd"] {
            let line = capture(&LogSettings::default(), || log!(daemon, warn, neighbor = 1, "x"));
            assert!(line.ends_with(&format!(" WARN {daemon}: x neighbor=1\n")), "{line}");
        }
    }
}
