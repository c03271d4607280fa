//! Publishes responses as SONiC's ResponsePublisher does (`orchagent/response_publisher.cpp`): a row of APPL_STATE_DB, and
//! a message on the channel `APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL`.
//!
//! The publisher is a low-priority write-behind table, and no route waits for it, unless fpmsyncd hears of routes this way.
//! A route that is answered twice before it is written is published once, as it is then; a message without a subscriber is
//! not sent. While no client waits for the chip nothing is published, and rows stay as they are until it is published again.

use super::appl_transport::Lag;
use super::{Daemon, Error};
use ribtide_swss::row::{ROUTE_RESPONSE_CHANNEL, RouteKey, RouteResponse, RouteRow, RouteStateRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Connection, PlainTable, Producer, Reply, TableError, WriteBehind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rows of APPL_DB that are asked for at a time.
const PAGE: usize = 1000;
/// How often, and how long after another, they are looked for again.
const LOOKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// The side that has answers.
pub(super) struct ResponsePublisher {
    writer: WriteBehind<RouteStateRow>,
    all: All,
}

/// First of all: these are all.
type All = Arc<Mutex<Option<AllThatAre>>>;

enum AllThatAre {
    /// Confirmed, and to be told.
    Confirmed(Vec<Change<RouteStateRow>>),
    /// In the chip, though no row asked for it; each row's protocol is in APPL_DB.
    InChip(Vec<RouteKey>),
}

impl ResponsePublisher {
    /// Publishes from now on. What an earlier run confirmed is forgotten, unless it `keeps` it until
    /// [`ResponsePublisher::reconcile`].
    pub(super) fn start(keeps: bool, lag: Lag, daemon: &Daemon) -> Result<ResponsePublisher, Error> {
        let all = All::default();
        let mut published = Published {
            rows: daemon.plain()?,
            channel: daemon.connect(Db::ApplState)?,
            appl: daemon.connect(Db::Appl)?,
            all: all.clone(),
        };
        if !keeps {
            published.forget()?;
        }
        Ok(ResponsePublisher {
            writer: WriteBehind::low_priority(published, lag.behind_by, &daemon.rings)?,
            all,
        })
    }

    /// Whether fpmsyncd waits for what is published.
    pub(super) fn awaited(&self, awaited: bool) {
        self.writer.awaited(awaited);
    }

    /// Publishes these when it gets to it.
    pub(super) fn publish(&mut self, confirmed: &[Change<RouteStateRow>]) -> Result<(), Error> {
        Ok(self.writer.enqueue(confirmed)?)
    }

    /// After a warm start, before which nothing is published: these are all that there are.
    pub(super) fn reconcile(&mut self, confirmed: Vec<Change<RouteStateRow>>) -> Result<(), Error> {
        self.begin(AllThatAre::Confirmed(confirmed))
    }

    /// Before anything is published after a while in which nothing was: these are in the chip, and no others. No message is sent.
    pub(super) fn resume(&mut self, in_chip: Vec<RouteKey>) -> Result<(), Error> {
        self.begin(AllThatAre::InChip(in_chip))
    }

    fn begin(&mut self, all: AllThatAre) -> Result<(), Error> {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
        // It looks when it has something to write.
        Ok(self.writer.nudge()?)
    }

    /// Whether everything is published.
    pub(super) fn is_idle(&self) -> bool {
        self.writer.is_idle()
    }
}

/// Where it is published.
struct Published {
    rows: PlainTable<RouteStateRow>,
    channel: Connection,
    appl: Connection,
    all: All,
}

impl Producer<RouteStateRow> for Published {
    /// As in SONiC: the row of a route that was confirmed, no row for one that went. The row first: who hears the message may
    /// look for it.
    fn write(&mut self, changes: &mut Vec<Change<RouteStateRow>>) -> Result<(), TableError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).take();
        match all {
            Some(AllThatAre::Confirmed(all)) => self.reconcile(all, true)?,
            Some(AllThatAre::InChip(keys)) => {
                let all = self.with_protocols(keys)?;
                self.reconcile(all, false)?;
            }
            None => {}
        }
        let messages = self.messages(changes)?;
        self.rows.write(changes)?;
        self.publish_messages(messages)
    }

    fn flush(&mut self) -> Result<(), TableError> {
        self.rows.flush()
    }

    fn waiting(&self) -> usize {
        self.rows.waiting()
    }

    fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
        self.channel.shrink_to_fit();
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

    /// What APPL_DB says of routes: it may be behind, and is waited for. What it does not have then is left out.
    fn with_protocols(&mut self, mut keys: Vec<RouteKey>) -> Result<Vec<Change<RouteStateRow>>, TableError> {
        let mut all = Vec::new();
        for looks in 0.. {
            let mut missing = Vec::new();
            for page in keys.chunks(PAGE) {
                let protocols = self.protocols(page)?;
                for (key, protocol) in page.iter().zip(protocols) {
                    match protocol.into_text() {
                        Some(protocol) => {
                            all.push(RouteStateRow::confirmed(key.clone(), Some(protocol.into())))
                        }
                        None => missing.push(key.clone()),
                    }
                }
            }
            keys = missing;
            if keys.is_empty() || looks == LOOKS {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(all)
    }

    fn protocols(&mut self, keys: &[RouteKey]) -> Result<Vec<Reply>, TableError> {
        let database = self.appl.database();
        let name = |key: &RouteKey| {
            let mut text = String::new();
            RouteRow::key_text(key, &mut text);
            database.key(RouteRow::TABLE, &text)
        };
        let names: Vec<String> = keys.iter().map(name).collect();
        self.appl.query_all(names.iter().map(|name| ["HGET", name, "protocol"]))
    }

    fn reconcile(&mut self, all: Vec<Change<RouteStateRow>>, notify: bool) -> Result<(), TableError> {
        let mut there = BTreeMap::new();
        self.rows.rows(|key, row| drop(there.insert(key, row)))?;
        let messages = if notify { self.messages(&all)? } else { Vec::new() };
        let mut rows: Vec<_> = all
            .into_iter()
            .filter(|change| change.row.is_none() || there.remove(&change.key) != change.row)
            .collect();
        rows.extend(there.into_keys().map(Change::del));
        self.rows.write(&mut rows)?;
        self.publish_messages(messages)
    }

    /// The messages about these, if anybody listens: to the channel, or to a pattern that may be its name.
    fn messages(&mut self, changes: &[Change<RouteStateRow>]) -> Result<Vec<String>, TableError> {
        let by_name = self.channel.query(&["PUBSUB", "NUMSUB", ROUTE_RESPONSE_CHANNEL])?.into_pairs();
        let named = by_name.first().is_some_and(|(_, count)| count != "0");
        if !named && self.channel.query(&["PUBSUB", "NUMPAT"])?.as_integer().is_none_or(|count| count == 0) {
            return Ok(Vec::new());
        }
        Ok(changes.iter().map(|change| RouteResponse::of(change).message()).collect())
    }

    fn publish_messages(&mut self, messages: Vec<String>) -> Result<(), TableError> {
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
