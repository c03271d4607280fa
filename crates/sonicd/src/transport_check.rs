//! Checks that fpmsyncd and orchagent use the same transport for routes. Each has its own setting (`-q`, `--route-zmq`, or
//! CONFIG_DB at its start); if the two differ, no route arrives and neither daemon notices.
//!
//! The check works with SONiC's orchagent, too. An orchagent subscribes to the channel of each table that it reads from
//! Redis as long as it runs: always to that of NEXTHOP_GROUP_TABLE, and to that of ROUTE_TABLE unless routes come over
//! ZeroMQ.

use super::{Daemon, Error, refuse};
use ribtide_runtime::log::target;
use ribtide_settings::{RequestedSettings, broken};
use ribtide_swss::Db;
use ribtide_swss::row::{NextHopGroupRow, RouteRow};
use ribtide_tables::{Connection, state_table};
use std::time::Duration;

/// The minimum interval of two checks. A starting orchagent subscribes to one channel after the
/// other, so only a difference in two checks counts.
pub(super) const APART: Duration = Duration::from_secs(1);

/// fpmsyncd's check of orchagent's transport.
pub(super) struct TransportCheck {
    appl: Connection,
    over_zmq: bool,
    /// The difference of the last check, and the confirmed one.
    suspected: Option<&'static str>,
    wrong: Option<&'static str>,
}

impl TransportCheck {
    pub(super) fn open(over_zmq: bool, daemon: &Daemon) -> Result<TransportCheck, Error> {
        Ok(TransportCheck { appl: daemon.connect(Db::Appl)?, over_zmq, suspected: None, wrong: None })
    }

    /// Refuses to start beside an orchagent with another transport.
    pub(super) fn refuse(&mut self) -> Result<(), Error> {
        let first = self.requested()?;
        if refuse(&first).is_ok() {
            return Ok(());
        }
        std::thread::sleep(APART);
        refuse(&self.requested()?)
    }

    /// Checks again, [`APART`] after the last time, and logs a difference. Returns whether it
    /// changed.
    pub(super) fn look(&mut self) -> Result<bool, Error> {
        let found = broken(&self.requested()?).next().map(|rule| rule.message);
        let before = std::mem::replace(&mut self.suspected, found);
        let wrong = found.filter(|_| before == found);
        let changed = wrong != self.wrong;
        self.wrong = wrong;
        if let Some(why) = wrong.filter(|_| changed) {
            tracing::error!(target: target::FPMSYNCD, reason = why, "no route reaches orchagent");
        }
        Ok(changed)
    }

    /// Whether the last check found a difference that is not confirmed.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspected != self.wrong
    }

    /// Why no route reaches orchagent.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        self.wrong
    }

    fn requested(&mut self) -> Result<RequestedSettings, Error> {
        let orchagent_over_zmq = self.orchagent()?;
        Ok(RequestedSettings {
            routes_over_zmq: Some(self.over_zmq),
            orchagent_over_zmq,
            ..RequestedSettings::default()
        })
    }

    /// Whether the running orchagent takes routes over ZeroMQ; `None` without one.
    fn orchagent(&mut self) -> Result<Option<bool>, Error> {
        let of = self.appl.database();
        let channels = [state_table::channel::<NextHopGroupRow>(of), state_table::channel::<RouteRow>(of)];
        let [groups, routes] = channels.map(|channel| state_table::has_subscriber(&mut self.appl, &channel));
        Ok(groups?.then_some(!routes?))
    }
}
