//! Tells whoever wants to know what became of routes, as SONiC does: a row of APPL_STATE_DB, and a message on a channel.
//!
//! It is a record that is written behind, and no route waits for it, unless what it publishes is how fpmsyncd hears of routes.
//! A route that is answered twice before it is written is published once, as it is then; a message that nobody would hear is
//! not sent.

use super::Error;
use super::north::Lag;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{Name, ROUTE_RESPONSE_CHANNEL, RouteKey, RouteResponse, RouteStateRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Behind, Connection, Databases, PlainTable, Producer, TableError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The side that has answers.
pub(super) struct Publisher {
    behind: Behind<RouteStateRow>,
    all: All,
}

/// First of all: these routes are confirmed, and no others.
type All = Arc<Mutex<Option<Vec<RouteResponse>>>>;

impl Publisher {
    /// Publishes from here on. What an earlier run confirmed is forgotten, unless it `keeps` it until
    /// [`Publisher::reconcile`].
    pub(super) fn start(
        databases: &Databases,
        keeps: bool,
        lag: Lag,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<Publisher, Error> {
        let all = All::default();
        let mut published = Published {
            rows: PlainTable::open(databases, stop)?,
            channel: Connection::open(databases.get(Db::ApplState), stop)?,
            all: all.clone(),
        };
        if !keeps {
            published.forget()?;
        }
        Ok(Publisher { behind: Behind::record(published, lag.behind_by, rings)?, all })
    }

    /// Whether somebody waits for what is published.
    pub(super) fn awaited(&self, awaited: bool) {
        self.behind.awaited(awaited);
    }

    /// Publishes these when it gets to it.
    pub(super) fn publish(&mut self, responses: impl Iterator<Item = RouteResponse>) -> Result<(), Error> {
        Ok(self.behind.note(responses.map(|response| change(response.key, response.protocol)))?)
    }

    /// After a warm start, before which nothing is published: these are all that there are.
    pub(super) fn reconcile(&mut self, responses: Vec<RouteResponse>) -> Result<(), Error> {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Some(responses);
        // It looks when it has something to write.
        Ok(self.behind.nudge()?)
    }

    /// Whether everything is published.
    pub(super) fn is_idle(&self) -> bool {
        self.behind.is_idle()
    }
}

fn change(key: RouteKey, protocol: Option<Name>) -> Change<RouteStateRow> {
    let row = protocol.map(|protocol| RouteStateRow { protocol: Some(protocol) });
    Change { key, row, reshaped: false }
}

/// Where it is published.
struct Published {
    rows: PlainTable<RouteStateRow>,
    channel: Connection,
    all: All,
}

impl Producer<RouteStateRow> for Published {
    /// As in SONiC: the row of a route that was confirmed, no row for one that went. The row first: who hears the message may
    /// look for it.
    fn write(&mut self, changes: &mut Vec<Change<RouteStateRow>>) -> Result<(), TableError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(all) = all {
            self.reconcile(all)?;
        }
        let messages = self.messages(changes)?;
        self.rows.write(changes)?;
        self.tell(messages)
    }

    fn flush(&mut self) -> Result<(), TableError> {
        self.rows.flush()
    }

    fn waiting(&self) -> usize {
        self.rows.waiting()
    }

    fn relieve(&mut self) {
        self.rows.relieve();
        self.channel.relieve();
    }
}

impl Published {
    fn forget(&mut self) -> Result<(), TableError> {
        let rows = self.channel.database().key(RouteStateRow::TABLE, "");
        self.channel.scan(&format!("{rows}*"), |connection, names| {
            names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
            connection.flush()
        })
    }

    fn reconcile(&mut self, responses: Vec<RouteResponse>) -> Result<(), TableError> {
        let mut there = BTreeMap::new();
        self.rows.rows(|key, row| drop(there.insert(key, row)))?;
        let all: Vec<_> =
            responses.into_iter().map(|response| change(response.key, response.protocol)).collect();
        let messages = self.messages(&all)?;
        let mut rows: Vec<_> = all
            .into_iter()
            .filter(|change| change.row.is_none() || there.remove(&change.key) != change.row)
            .collect();
        rows.extend(there.into_keys().map(Change::del));
        self.rows.write(&mut rows)?;
        self.tell(messages)
    }

    /// The messages about these, if anybody listens: to the channel, or to a pattern that may be its name.
    fn messages(&mut self, changes: &[Change<RouteStateRow>]) -> Result<Vec<String>, TableError> {
        let by_name = self.channel.ask(&["PUBSUB", "NUMSUB", ROUTE_RESPONSE_CHANNEL])?.into_pairs();
        let named = by_name.first().is_some_and(|(_, count)| count != "0");
        if !named && self.channel.ask(&["PUBSUB", "NUMPAT"])?.as_integer().is_none_or(|count| count == 0) {
            return Ok(Vec::new());
        }
        let message = |change: &Change<RouteStateRow>| {
            let protocol = change.row.as_ref().and_then(|row| row.protocol.clone());
            RouteResponse::success(change.key.clone(), protocol).message()
        };
        Ok(changes.iter().map(message).collect())
    }

    fn tell(&mut self, messages: Vec<String>) -> Result<(), TableError> {
        if messages.is_empty() {
            return Ok(());
        }
        self.rows.flush()?;
        for message in &messages {
            self.channel.queue(&["PUBLISH", ROUTE_RESPONSE_CHANNEL, message]);
        }
        self.channel.flush()
    }
}
