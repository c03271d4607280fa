//! Settings that cannot be combined, in one table: which, why, and what to choose instead.
//!
//! The check of a configuration and the daemons of SONiC's path ask it with what they know, at the
//! start and when a setting changes. A combination that loses routes, or lets them wait for ever,
//! is refused. One that only gains nothing is shown in `ribtide show pipeline --sonic` and not
//! refused.

use crate::{Mode, Persistence};

/// The requested settings. A caller leaves unknown ones at their defaults, which conflict with
/// nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedSettings {
    /// `fib.kernel`.
    pub kernel: bool,
    /// `fib.virtual-asic`.
    pub virtual_asic: bool,
    /// `[[interface]]` tables.
    pub interfaces: bool,
    /// Whether orchagent answers what became of routes (`-F`).
    pub responses: Option<bool>,
    /// Whether routes go to orchagent over ZeroMQ.
    pub routes_over_zmq: Option<bool>,
    /// Whether the orchagent that runs takes them over ZeroMQ, if one runs.
    pub orchagent_over_zmq: Option<bool>,
    /// `fpmsyncd --appl-db`.
    pub appl_db: Option<Persistence>,
    /// `syncd --asic-db`.
    pub asic_db: Option<Persistence>,
    /// How orchagent talks to syncd.
    pub mode: Option<Mode>,
    /// Whether syncd answers each request, once that is known.
    pub syncd_answers: Option<bool>,
    /// Whether STATE_DB enables warm restart.
    pub warm_restart: bool,
}

/// One row of the table.
#[derive(Debug)]
pub struct Rule {
    /// The settings.
    pub settings: &'static [&'static str],
    /// Why, and what to choose instead.
    pub message: &'static str,
    broken: fn(&RequestedSettings) -> bool,
}

/// The table.
pub const RULES: &[Rule] = &[
    Rule {
        settings: &["fib.kernel", "fib.virtual-asic"],
        message: "the virtual ASIC's ports come from [[interface]] tables, which fib.kernel excludes; remove one of the two",
        broken: |requested| requested.kernel && requested.virtual_asic,
    },
    Rule {
        settings: &["fib.kernel", "interface"],
        message: "[[interface]] tables describe interfaces that no kernel has; with fib.kernel on, the kernel's own are used: \
               remove the tables or set fib.kernel = false",
        broken: |requested| requested.kernel && requested.interfaces,
    },
    Rule {
        settings: &["orchagent -F", "redis_async"],
        message: "this syncd answers no request in redis_async, so what FIB suppression would be told is only assumed, and a \
               route that failed would be advertised; start both with -s or -z zmq_sync, or use ribtide's syncd, which answers",
        broken: |requested| {
            requested.responses == Some(true)
                && requested.mode == Some(Mode::RedisAsync)
                && requested.syncd_answers == Some(false)
        },
    },
    Rule {
        settings: &["--appl-db off", "routes through Redis"],
        message: "--appl-db off would lose every route: without ZeroMQ, APPL_DB is the way to orchagent; add -q \
               tcp://127.0.0.1, or leave --appl-db out",
        broken: |requested| {
            requested.routes_over_zmq == Some(false) && requested.appl_db == Some(Persistence::Off)
        },
    },
    Rule {
        settings: &["--appl-db behind", "routes through Redis"],
        message: "--appl-db behind would lose every route: without ZeroMQ, APPL_DB is the way to orchagent; add -q \
               tcp://127.0.0.1, or leave --appl-db out",
        broken: |requested| {
            requested.routes_over_zmq == Some(false) && requested.appl_db == Some(Persistence::WriteBehind)
        },
    },
    Rule {
        settings: &["orchagent --route-zmq", "routes through Redis"],
        message: "the orchagent that runs takes routes over ZeroMQ (--route-zmq, or swss_zmq in CONFIG_DB when it started), and \
               fpmsyncd writes them to Redis, where no daemon takes them; start fpmsyncd with -q and orchagent's endpoint, or \
               orchagent without ZeroMQ",
        broken: |requested| {
            requested.routes_over_zmq == Some(false) && requested.orchagent_over_zmq == Some(true)
        },
    },
    Rule {
        settings: &["fpmsyncd -q", "orchagent without ZeroMQ"],
        message: "the orchagent that runs takes routes from Redis, and fpmsyncd sends them over ZeroMQ (-q, or swss_zmq in \
               CONFIG_DB when it started), where no daemon takes them; start orchagent with -q and --route-zmq or after \
               swss_zmq is enabled, or fpmsyncd without ZeroMQ",
        broken: |requested| {
            requested.routes_over_zmq == Some(true) && requested.orchagent_over_zmq == Some(false)
        },
    },
    Rule {
        settings: &["warm restart", "--appl-db off"],
        message: "STATE_DB enables warm restart, and with --appl-db off there is nothing that a restarted daemon could begin \
               with: every route would leave the chip and come back; choose --appl-db behind, or disable warm restart",
        broken: |requested| requested.warm_restart && requested.appl_db == Some(Persistence::Off),
    },
    Rule {
        settings: &["warm restart", "--asic-db off"],
        message: "STATE_DB enables warm restart, and with --asic-db off a restarted syncd does not know what the chip holds; \
               choose --asic-db behind or in-line, or disable warm restart",
        broken: |requested| requested.warm_restart && requested.asic_db == Some(Persistence::Off),
    },
];

/// The rules that what is asked for breaks.
pub fn broken(requested: &RequestedSettings) -> impl Iterator<Item = &'static Rule> {
    let requested = *requested;
    RULES.iter().filter(move |rule| (rule.broken)(&requested))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(requested: RequestedSettings) -> Vec<&'static [&'static str]> {
        broken(&requested).map(|rule| rule.settings).collect()
    }

    #[test]
    fn what_is_not_known_conflicts_with_nothing() {
        assert!(message(RequestedSettings::default()).is_empty());
        assert!(
            message(RequestedSettings { warm_restart: true, kernel: true, ..RequestedSettings::default() })
                .is_empty()
        );
    }

    #[test]
    fn each_rule_can_be_broken_and_kept() {
        let base = RequestedSettings::default();
        let breaks: [(RequestedSettings, RequestedSettings); 9] = [
            (
                RequestedSettings { kernel: true, virtual_asic: true, ..base },
                RequestedSettings { virtual_asic: true, ..base },
            ),
            (
                RequestedSettings { kernel: true, interfaces: true, ..base },
                RequestedSettings { kernel: true, ..base },
            ),
            (
                RequestedSettings {
                    responses: Some(true),
                    mode: Some(Mode::RedisAsync),
                    syncd_answers: Some(false),
                    ..base
                },
                RequestedSettings {
                    responses: Some(true),
                    mode: Some(Mode::RedisAsync),
                    syncd_answers: Some(true),
                    ..base
                },
            ),
            (
                RequestedSettings { routes_over_zmq: Some(false), appl_db: Some(Persistence::Off), ..base },
                RequestedSettings { routes_over_zmq: Some(true), appl_db: Some(Persistence::Off), ..base },
            ),
            (
                RequestedSettings {
                    routes_over_zmq: Some(false),
                    appl_db: Some(Persistence::WriteBehind),
                    ..base
                },
                RequestedSettings {
                    routes_over_zmq: Some(false),
                    appl_db: Some(Persistence::InLine),
                    ..base
                },
            ),
            (
                RequestedSettings { routes_over_zmq: Some(false), orchagent_over_zmq: Some(true), ..base },
                RequestedSettings { routes_over_zmq: Some(true), orchagent_over_zmq: Some(true), ..base },
            ),
            (
                RequestedSettings { routes_over_zmq: Some(true), orchagent_over_zmq: Some(false), ..base },
                RequestedSettings { routes_over_zmq: Some(false), orchagent_over_zmq: Some(false), ..base },
            ),
            (
                RequestedSettings { warm_restart: true, appl_db: Some(Persistence::Off), ..base },
                RequestedSettings { warm_restart: true, appl_db: Some(Persistence::WriteBehind), ..base },
            ),
            (
                RequestedSettings { warm_restart: true, asic_db: Some(Persistence::Off), ..base },
                RequestedSettings { asic_db: Some(Persistence::Off), ..base },
            ),
        ];
        assert_eq!(breaks.len(), RULES.len());
        for (rule, (bad, good)) in RULES.iter().zip(breaks) {
            assert_eq!(message(bad), [rule.settings]);
            assert!(message(good).is_empty(), "{:?}", rule.settings);
        }
    }
}
