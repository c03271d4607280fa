//! Sessions: what was announced in which, and what goes when a replay is over.
//!
//! SONiC's FPM has no end-of-replay message, and no client withdraws a route that vanished while no
//! client was connected. So each route has the number of the session that announced it last, and
//! routes of older sessions are deleted when the replay is over. The client reports the end, or the
//! caller does ([`Fpmsyncd::end_of_replay`]), or silence ends it.
//!
//! A client is silent while fpmsyncd reads from it and it sends nothing. Time in which fpmsyncd did
//! not read, because orchagent lagged or the process was stopped, does not count. Silence does not
//! end the replay of a client that announced an end-of-replay message.

use super::stage::Stage;
use super::{FpmEvent, FpmOut, Fpmsyncd};
use crate::row::{Change, RouteKey, RouteRow};
use ribtide_wire::fpm::compare;

/// The session that is on, or was on last.
#[derive(Default, Debug)]
pub(super) struct Session {
    /// It is on.
    pub(super) up: bool,
    /// Its number.
    pub(super) epoch: u16,
    /// Something is left of before it.
    stale: bool,
    started_ms: u64,
    /// When it last announced something that was missing, or as much later as it was not listened
    /// to since.
    progress_ms: u64,
    /// The same of something that was there before the session: of that there is only so much.
    renewed_ms: u64,
    /// Its client is ribtide's, which sends an end-of-replay message. The value: whether it waits
    /// for the chip.
    client_waits: Option<bool>,
    /// Keys of an earlier run whose text differs from fpmsyncd's own (raw keys); the sweep deletes
    /// them.
    odd: Vec<RouteKey>,
}

impl Session {
    /// Something from before became known.
    pub(super) fn stale(&mut self, now_ms: u64) {
        self.stale = true;
        self.progress(now_ms, true);
    }

    /// Something was announced that was missing; `renewed`: it was there before the session.
    pub(super) fn progress(&mut self, now_ms: u64, renewed: bool) {
        self.progress_ms = now_ms;
        if renewed {
            self.renewed_ms = now_ms;
        }
    }

    /// The client was not read for so long.
    pub(super) fn miss(&mut self, span_ms: u64) {
        self.progress_ms += span_ms;
        self.renewed_ms += span_ms;
    }
}

impl Fpmsyncd {
    /// Takes in a row of `ROUTE_TABLE` that APPL_DB has from before: it stays if it is announced,
    /// and goes when the replay is over. A route that is known already is left as it is. `queued`:
    /// orchagent has not taken it yet.
    pub fn known_route(&mut self, key: RouteKey, row: &RouteRow, queued: bool) {
        self.session.stale(self.now_ms);
        match key {
            RouteKey::Resync | RouteKey::Resent { .. } => {}
            RouteKey::Route { raw_key: Some(_), .. } => self.session.odd.push(key),
            RouteKey::Route { vrf, prefix, raw_key: None } => {
                let vrf = vrf.map_or(0, |vrf| self.vrf_named(&vrf));
                if self.vrfs[vrf as usize].routes.get(prefix).is_some() {
                    return;
                }
                let source = self.sources.fixed(&row.via);
                self.sources.join(source, (vrf, prefix), None);
                let protocol = row.protocol.as_deref().and_then(|name| self.config.protocols.number(name));
                let stage = match (self.config.suppress, queued) {
                    (false, _) => Stage::NEW,
                    (true, false) => Stage::FOUND,
                    // Beside an answer to it one to the row before may be under way.
                    (true, true) => self.owed.wrote((vrf, prefix), Stage::FOUND, false),
                };
                let entry = self.vrfs[vrf as usize].routes.entry(prefix);
                entry.source = Some(source);
                entry.protocol = protocol.unwrap_or(0);
                entry.stage.set(stage, &mut self.awaiting);
            }
        }
    }

    /// Takes in that a routing daemon connected: it announces everything that it knows.
    pub fn session_up(&mut self) {
        if self.session.epoch == u16::MAX {
            self.session.epoch = 0;
            self.vrfs.iter_mut().for_each(|vrf| vrf.routes.for_each_mut(|_, entry| entry.epoch = 0));
            self.objects.forget_epochs();
            self.labels.forget_epochs();
            self.vpn_rows.forget_epochs();
        }
        self.session.epoch += 1;
        (self.session.up, self.session.client_waits) = (true, None);
        self.session.started_ms = self.now_ms;
        self.session.stale(self.now_ms);
        self.sources.detach_all();
        self.numbers.forget();
        self.objects.new_session();
        self.pic_contexts.new_session();
        self.logged.clear();
    }

    /// Takes in that the session ended. Routes stay.
    pub fn session_down(&mut self) {
        self.session.up = false;
    }

    /// Takes in that the client of the session is ribtide's, and whether it `waits` for the chip.
    /// The reply carries whether fpmsyncd does, and the first one of a session that it compares.
    pub(super) fn set_client(&mut self, waits: bool, out: &mut FpmOut) {
        let is_first = self.session.client_waits.replace(waits).is_none();
        out.in_chip = Some(self.config.suppress);
        if is_first && self.is_comparable() {
            compare::write_offer(&mut out.comparison);
        }
    }

    /// Whether the client of the present session waits for the chip; `None` when it is not
    /// ribtide's, or when there is no session.
    pub fn client_waits(&self) -> Option<bool> {
        self.session.client_waits.filter(|_| self.session.up)
    }

    /// Whether a session has announced everything, and what it did not announce is gone.
    pub fn is_replayed(&self) -> bool {
        self.session.epoch > 0 && !self.session.stale
    }

    /// From now on a replay is over when it is silent for so long; 0 for never: the caller knows.
    pub fn set_quiet(&mut self, quiet_ms: u64) {
        self.config.quiet_ms = quiet_ms;
    }

    /// For how many milliseconds the session that is on was listened to and announced nothing that
    /// was missing; `None` when none is on, or its client sends an end-of-replay message.
    pub fn silent_ms(&self) -> Option<u64> {
        let Session { up, client_waits, progress_ms, .. } = self.session;
        (up && client_waits.is_none()).then(|| self.now_ms.saturating_sub(progress_ms))
    }

    /// For how many milliseconds it was listened to and announced nothing that was there before it;
    /// `None` when none is on.
    pub fn idle_ms(&self) -> Option<u64> {
        self.session.up.then(|| self.now_ms.saturating_sub(self.session.renewed_ms))
    }

    /// For how many milliseconds the session has been on; `None` when none is.
    pub fn session_ms(&self) -> Option<u64> {
        self.session.up.then(|| self.now_ms.saturating_sub(self.session.started_ms))
    }

    /// Whether the replay has been silent for long enough, and nothing of it `waits` to be read, or
    /// has got nowhere for too long.
    pub(super) fn replay_over(&self, waits: bool) -> bool {
        let (quiet, limit) = (self.config.quiet_ms, self.config.replay_limit_ms);
        let (true, Some(silent), Some(idle)) =
            (self.session.stale && quiet > 0, self.silent_ms(), self.idle_ms())
        else {
            return false;
        };
        (silent >= quiet && !waits) || idle >= limit
    }

    /// Takes in that the session announced everything: what it did not announce goes.
    pub fn end_of_replay(&mut self, out: &mut FpmOut) {
        if !std::mem::take(&mut self.session.stale) {
            return;
        }
        let epoch = self.session.epoch;
        let mut stale = Vec::new();
        for (vrf, of) in (0..).zip(&self.vrfs) {
            of.routes.for_each(|prefix, entry| {
                if entry.source.is_some() && entry.epoch != epoch {
                    stale.push((vrf, prefix));
                }
            });
        }
        let odd = std::mem::take(&mut self.session.odd);
        let labels = self.labels.stale(epoch);
        let routes = stale.len() + odd.len() + labels.len();
        stale.into_iter().for_each(|at| self.withdraw(at));
        labels.into_iter().for_each(|label| self.withdraw_label(label));
        self.counters.written += odd.len() as u64;
        out.routes.extend(odd.into_iter().map(Change::del));
        let groups = self.objects.stale(epoch);
        groups.iter().for_each(|id| self.delete_group(*id));
        let groups = groups.len();
        let vpn_rows = self.delete_stale_vpn_rows();
        if routes + groups + vpn_rows > 0 {
            out.events.push(FpmEvent::Swept { routes, groups, vpn_rows });
        }
    }
}
