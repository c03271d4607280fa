//! Whether fpmsyncd sends routes the way on which orchagent takes them. Each has its own setting (`-q` and `--route-zmq`, or
//! CONFIG_DB as it was when it started), and where the two differ no route arrives and no daemon misses one.
//!
//! It shows in Redis, whoever's orchagent it is: for as long as it runs it listens to the channels of the tables that it takes from
//! there. NEXTHOP_GROUP_TABLE is always one of them; ROUTE_TABLE is where routes do not come over ZeroMQ.

use super::{Error, log, refuse};
use crate::combinations::{Asked, broken};
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_swss::row::{NextHopGroupRow, RouteRow};
use ribtide_tables::{Connection, Databases, state_table};
use std::time::Duration;

/// An orchagent that starts may listen to one channel before the other: it is looked twice, so far apart at least.
pub(super) const APART: Duration = Duration::from_secs(1);

/// fpmsyncd's look at orchagent.
pub(super) struct TransportCheck {
    appl: Connection,
    over_zmq: bool,
    /// What the last look found wrong, and what two have.
    suspected: Option<&'static str>,
    wrong: Option<&'static str>,
}

impl TransportCheck {
    pub(super) fn open(databases: &Databases, over_zmq: bool, stop: &Stop) -> Result<TransportCheck, Error> {
        let appl = Connection::open(databases.get(Db::Appl), stop)?;
        Ok(TransportCheck { appl, over_zmq, suspected: None, wrong: None })
    }

    /// Refuses to start beside an orchagent that takes routes another way.
    pub(super) fn refuse(&mut self) -> Result<(), Error> {
        let first = self.asked()?;
        if refuse(&first).is_ok() {
            return Ok(());
        }
        std::thread::sleep(APART);
        refuse(&self.asked()?)
    }

    /// Looks once more, [`APART`] from the last time, and says in the log what is wrong. True when that changed.
    pub(super) fn look(&mut self) -> Result<bool, Error> {
        let found = broken(&self.asked()?).next().map(|rule| rule.says);
        let before = std::mem::replace(&mut self.suspected, found);
        let wrong = found.filter(|_| before == found);
        let changed = wrong != self.wrong;
        self.wrong = wrong;
        if let Some(why) = wrong.filter(|_| changed) {
            log("fpmsyncd", &format!("no route reaches orchagent: {why}"));
        }
        Ok(changed)
    }

    /// Why no route reaches orchagent.
    pub(super) fn wrong(&self) -> Option<&'static str> {
        self.wrong
    }

    fn asked(&mut self) -> Result<Asked, Error> {
        let orchagent_over_zmq = self.orchagent()?;
        Ok(Asked { routes_over_zmq: Some(self.over_zmq), orchagent_over_zmq, ..Asked::default() })
    }

    /// Whether the orchagent that runs takes routes over ZeroMQ; `None` where none runs.
    fn orchagent(&mut self) -> Result<Option<bool>, Error> {
        let of = self.appl.database();
        let channels = [state_table::channel::<NextHopGroupRow>(of), state_table::channel::<RouteRow>(of)];
        let [groups, routes] = channels.map(|channel| state_table::is_heard(&mut self.appl, &channel));
        Ok(groups?.then_some(!routes?))
    }
}
