//! Warm restart by SONiC's tables: which daemon starts warm, its progress, the end of a replay, and
//! whether orchagent may be stopped.
//!
//! `WARM_RESTART_ENABLE_TABLE` enables warm start for the system or a container. A daemon starts
//! warm if it ran before, according to its `restore_count` in `WARM_RESTART_TABLE`. It writes its
//! progress there, too.

use super::config_db::ConfigDb;
use super::direct_responses::presence;
use super::orch_stage::OrchStage;
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_runtime::ring;
use ribtide_swss::fpmsyncd::{FpmOut, Fpmsyncd};
use ribtide_swss::{Db, json};
use ribtide_tables::{Bookkeeping, Connection, PubSubEvent, listen};
use std::time::{Duration, Instant};

/// STATE_DB's table of the daemons.
const TABLE: &str = "WARM_RESTART_TABLE";

/// The progress of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It does not start warm.
    Disabled,
    /// It starts.
    Initialized,
    /// It restored its former state.
    Restored,
    /// Its state is reconciled.
    Reconciled,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Initialized => "initialized",
            State::Restored => "restored",
            State::Reconciled => "reconciled",
        }
    }
}

/// A daemon in SONiC's tables.
pub(super) struct WarmStart {
    state: Connection,
    bookkeeping: Bookkeeping,
    restore_count: u64,
    app: &'static str,
    container: &'static str,
    warm: bool,
}

impl WarmStart {
    /// Determines whether `app`, in `container`, starts warm, and notes its start.
    pub(super) fn begin(
        app: &'static str,
        container: &'static str,
        daemon: &Daemon,
    ) -> Result<WarmStart, Error> {
        let (state, bookkeeping) = (daemon.connect(Db::State)?, daemon.bookkeeping.clone());
        let mut warm = WarmStart { state, bookkeeping, restore_count: 0, app, container, warm: false };
        warm.again()?;
        Ok(warm)
    }

    /// [`WarmStart::begin`] for a repeated step.
    pub(super) fn again(&mut self) -> Result<(), Error> {
        let mut enabled = false;
        for of in ["system", self.container] {
            let key = self.state.database().key("WARM_RESTART_ENABLE_TABLE", of);
            enabled |= self.state.query(&["HGET", &key, "enable"])?.into_text().as_deref() == Some("true");
        }
        let key = self.state.database().key(TABLE, self.app);
        let count = self.state.query(&["HGET", &key, "restore_count"])?.into_text();
        let count = count.and_then(|text| text.parse::<u64>().ok());
        self.warm = enabled && count.is_some();
        self.restore_count = if self.warm { count.unwrap_or(0) + 1 } else { 0 };
        self.set_state(if self.warm { State::Initialized } else { State::Disabled });
        Ok(())
    }

    /// Whether it starts warm.
    pub(super) fn is_warm(&self) -> bool {
        self.warm
    }

    /// Writes its progress.
    pub(super) fn set_state(&self, state: State) {
        let field = |name: &str, value: String| (name.to_owned(), value);
        let count = field("restore_count", self.restore_count.to_string());
        self.bookkeeping.set_fields(TABLE, self.app, [count, field("state", state.name().into())].into());
    }
}

/// The delay before the first check of BGP's marks, as in SONiC.
const FIRST_CHECK_MS: u64 = 5000;
const CHECK_INTERVAL_MS: u64 = 1000;

/// The part of fpmsyncd: the rows of a new routing daemon are held back until its replay is
/// complete, so that APPL_DB gets only the difference.
pub(super) struct Replay {
    warm: WarmStart,
    /// Without a warm start: the silence that ends a replay.
    quiet_ms: u64,
    /// The maximum time of a replay, after which held rows are written.
    limit_ms: u64,
    /// The silence required after BGP has marked the end of its initial updates.
    hold_ms: u64,
    looked_ms: u64,
    holding: bool,
}

impl Replay {
    pub(super) fn open(quiet_ms: u64, config: &mut ConfigDb, daemon: &Daemon) -> Result<Replay, Error> {
        let seconds = |given: Option<u64>, usual: u64| given.unwrap_or(usual).saturating_mul(1000);
        Ok(Replay {
            warm: WarmStart::begin("bgp", "bgp", daemon)?,
            quiet_ms,
            limit_ms: seconds(config.warm_bgp("bgp_timer")?, 120),
            hold_ms: seconds(config.warm_bgp("eoiu_hold")?, 3),
            looked_ms: 0,
            holding: false,
        })
    }

    /// Whether rows are held back.
    pub(super) fn holds(&self) -> bool {
        self.holding
    }

    /// Notes a connected routing daemon. `first` since the start of this process.
    pub(super) fn connected(&mut self, first: bool, machine: &mut Fpmsyncd) -> Result<(), Error> {
        if !first {
            self.warm.again()?;
        }
        self.looked_ms = 0;
        self.holding = self.warm.is_warm() && !machine.is_empty();
        machine.set_quiet(if self.holding { 0 } else { self.quiet_ms });
        match (self.warm.is_warm(), self.holding) {
            (true, true) => self.warm.set_state(State::Restored),
            (true, false) => self.warm.set_state(State::Reconciled),
            _ => {}
        }
        Ok(())
    }

    /// Checks whether the replay is complete, except for what `waits` to be read.
    pub(super) fn look(
        &mut self,
        waits: bool,
        machine: &mut Fpmsyncd,
        out: &mut FpmOut,
    ) -> Result<(), Error> {
        let (true, Some(on), Some(idle)) = (self.holding, machine.session_ms(), machine.idle_ms()) else {
            return Ok(());
        };
        if !machine.is_replayed() {
            let look = on >= FIRST_CHECK_MS && on >= self.looked_ms + CHECK_INTERVAL_MS;
            if look {
                self.looked_ms = on;
            }
            let silent = !waits && machine.silent_ms().is_some_and(|silent| silent >= self.hold_ms);
            if idle >= self.limit_ms || (look && silent && self.has_eoiu()?) {
                machine.end_of_replay(out);
            }
        }
        if machine.is_replayed() {
            self.holding = false;
            machine.set_quiet(self.quiet_ms);
            self.warm.set_state(State::Reconciled);
            tracing::info!(target: target::FPMSYNCD, duration_ms = on, "the replay is over; APPL_DB gets the difference");
        }
        Ok(())
    }

    /// Whether BGP has marked, for both families, that every peer is complete.
    fn has_eoiu(&mut self) -> Result<bool, Error> {
        for family in ["IPv4|eoiu", "IPv6|eoiu"] {
            let key = self.warm.state.database().key("BGP_STATE_TABLE", family);
            if self.warm.state.query(&["HGET", &key, "state"])?.into_text().as_deref() != Some("reached") {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The part of orchagent: all rows are read before they are described to syncd.
pub struct Restore {
    warm: WarmStart,
    /// Routes over ZeroMQ come between the halves of a resync; after this time they count as
    /// complete.
    resync_until: Option<Instant>,
}

impl Restore {
    pub(super) fn begin(warm: WarmStart, resync: Option<Duration>) -> Restore {
        warm.set_state(State::Restored);
        Restore { warm, resync_until: resync.map(|limit| Instant::now() + limit) }
    }

    /// Checks whether every row is in; `quiet`: nothing arrives. Returns `true` once the view is
    /// applied.
    pub(super) fn look(&mut self, stage: &mut OrchStage, quiet: bool) -> Result<bool, Error> {
        let due = self.resync_until.is_none_or(|until| stage.orch.resynced() || Instant::now() >= until);
        if quiet && due {
            stage.orch.restored();
        }
        if stage.orch.restoring() {
            return Ok(false);
        }
        self.warm.set_state(State::Reconciled);
        tracing::info!(target: target::ORCHAGENT, "started warm: unchanged objects stay, and changes since the stop are programmed");
        Ok(true)
    }
}

const CHECK: &str = "RESTARTCHECK";
const CHECK_REPLY: &str = "RESTARTCHECKREPLY";
/// Requests in the queue, at most; further ones are dropped.
const CHECKS_MAX: usize = 16;
/// How long a request waits for an idle moment.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// A request of `orchagent_restart_check`.
#[derive(Clone, Copy, Debug)]
struct RestartCheckRequest {
    since: Instant,
    freeze: bool,
    skip_pending: bool,
}

/// The restart check: a request on a channel whether orchagent may be stopped, and its reply.
/// Afterwards orchagent stops working.
pub struct RestartCheck {
    requests: ring::Receiver<RestartCheckRequest>,
    open: Option<RestartCheckRequest>,
    appl: Connection,
}

impl RestartCheck {
    /// Subscribes to `RESTARTCHECK`, and to the channel that shows the presence of this orchagent.
    pub(super) fn listen(daemon: &Daemon) -> Result<RestartCheck, Error> {
        let (request_tx, requests) = ring::unlisted(CHECK, CHECKS_MAX);
        let appl = daemon.databases.get(Db::Appl);
        let channels = std::iter::once(CHECK.into()).chain(presence()).collect();
        listen(appl, channels, &daemon.stop, move |heard| {
            let PubSubEvent::Message { payload, .. } = heard else { return };
            let parts = json::read_strings(payload).unwrap_or_default();
            if parts.first().map(|part| &**part) != Some("orchagent") {
                return;
            }
            let has_flag = |name: &str| {
                parts
                    .get(2..)
                    .unwrap_or_default()
                    .chunks(2)
                    .any(|pair| pair[0] == name && pair.get(1).is_some_and(|v| v == "true"))
            };
            // A client that repeats its request while the queue is full gets the first reply.
            let _ = request_tx.try_send(RestartCheckRequest {
                since: Instant::now(),
                freeze: !has_flag("NoFreeze"),
                skip_pending: has_flag("SkipPendingTaskCheck"),
            });
        })?;
        Ok(RestartCheck { requests, open: None, appl: daemon.connect(Db::Appl)? })
    }

    /// A check with one open request of `since`, after which orchagent goes on.
    #[cfg(test)]
    pub(super) fn requested(since: Instant, appl: Connection) -> RestartCheck {
        let open = Some(RestartCheckRequest { since, freeze: false, skip_pending: false });
        RestartCheck { requests: ring::unlisted(CHECK, 1).1, open, appl }
    }

    /// Makes `select` ready when a client asks.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.requests.watch(select);
    }

    /// Whether a request has no reply yet.
    pub(super) fn has_request(&mut self) -> bool {
        self.open = self.open.take().or_else(|| self.requests.try_recv());
        self.is_open()
    }

    /// Replies to the request when the reply is known. `settled`: nothing arrives, is in flight or
    /// waits; `idle`: nothing is in flight. Returns whether orchagent must stop working.
    pub(super) fn answer(&mut self, settled: bool, idle: bool) -> Result<bool, Error> {
        let Some(request) = self.open else { return Ok(false) };
        let ready = settled || (request.skip_pending && idle);
        if !ready && request.since.elapsed() < CHECK_TIMEOUT {
            return Ok(false);
        }
        self.open = None;
        let answer = if ready { "READY" } else { "NOT_READY" };
        self.appl.query(&["PUBLISH", CHECK_REPLY, &format!(r#"["orchagent","{answer}"]"#)])?;
        Ok(ready && request.freeze)
    }

    /// Whether a request waits for its reply.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}
