//! The publication of responses as in SONiC's ResponsePublisher
//! (`orchagent/response_publisher.cpp`): a row of APPL_STATE_DB, and a message on the channel
//! `APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL`.
//!
//! The publisher is a low-priority write-behind table. No route waits for it, unless fpmsyncd reads
//! publications. Two responses to a route before a write become one. A message without subscriber
//! is not sent. Without FIB suppression nothing is published, and rows stay as they are until it is
//! on again.

use super::appl_transport::Lag;
use super::{Daemon, Error};
use ribtide_swss::row::{ROUTE_RESPONSE_CHANNEL, RouteKey, RouteResponse, RouteRow, RouteStateRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Connection, PlainTable, Producer, Reply, TableError, WriteBehind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rows of APPL_DB in one read.
const PAGE: usize = 1000;
/// Number and interval of repeated reads.
const READS_MAX: usize = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// The sending side.
pub(super) struct ResponsePublisher {
    writer: WriteBehind<RouteStateRow>,
    all: All,
}

/// A complete state.
type All = Arc<Mutex<Option<CompleteState>>>;

enum CompleteState {
    /// Confirmed routes, with messages.
    Confirmed(Vec<Change<RouteStateRow>>),
    /// Routes in the chip without a request; the protocol of each row is in APPL_DB.
    InChip(Vec<RouteKey>),
}

impl ResponsePublisher {
    /// Starts to publish. Rows of an earlier run are deleted, unless `keeps` is set, until
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
            writer: WriteBehind::low_priority(published, lag.limits(), &daemon.rings)?,
            all,
        })
    }

    /// Sets whether fpmsyncd reads publications.
    pub(super) fn awaited(&self, awaited: bool) {
        self.writer.awaited(awaited);
    }

    /// Enqueues these.
    pub(super) fn publish(&mut self, confirmed: &[Change<RouteStateRow>]) -> Result<(), Error> {
        Ok(self.writer.enqueue(confirmed)?)
    }

    /// The complete state after a warm start, during which nothing is published.
    pub(super) fn reconcile(&mut self, confirmed: Vec<Change<RouteStateRow>>) -> Result<(), Error> {
        self.begin(CompleteState::Confirmed(confirmed))
    }

    /// The complete state at the start of publication. It sends no messages.
    pub(super) fn resume(&mut self, in_chip: Vec<RouteKey>) -> Result<(), Error> {
        self.begin(CompleteState::InChip(in_chip))
    }

    fn begin(&mut self, all: CompleteState) -> Result<(), Error> {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
        // The writer checks when it has something to write.
        Ok(self.writer.nudge()?)
    }

    /// Whether [`ResponsePublisher::publish`] would not wait for older rows (--write-behind-wait).
    pub(super) fn has_room(&self) -> bool {
        self.writer.admits_rows()
    }

    /// Whether everything is published.
    pub(super) fn is_idle(&self) -> bool {
        self.writer.is_idle()
    }
}

/// The target of publication.
struct Published {
    rows: PlainTable<RouteStateRow>,
    channel: Connection,
    appl: Connection,
    all: All,
}

impl Producer<RouteStateRow> for Published {
    /// As in SONiC: a row for a confirmed route, no row for a deleted one. The row first, because
    /// the subscriber may read it.
    fn write(&mut self, changes: &mut Vec<Change<RouteStateRow>>) -> Result<(), TableError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).take();
        match all {
            Some(CompleteState::Confirmed(all)) => self.reconcile(all, true)?,
            Some(CompleteState::InChip(keys)) => {
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

    /// The rows of routes in APPL_DB, which may lag. A row that does not appear is left out.
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
            if keys.is_empty() || looks == READS_MAX {
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

    /// Sends the messages, if the channel, or a pattern that may match it, has a subscriber.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_server::Server;
    use ribtide_tables::wake_ups;

    fn published(server: &Server) -> Published {
        let connect = |db| Connection::open(server.databases.get(db), &server.stop).unwrap();
        Published {
            rows: PlainTable::open(&server.databases, &server.stop).unwrap(),
            channel: connect(Db::ApplState),
            appl: connect(Db::Appl),
            all: All::default(),
        }
    }

    fn key(text: &str) -> RouteKey {
        RouteKey::new(None, text.parse().unwrap())
    }

    fn confirmed(text: &str) -> Change<RouteStateRow> {
        RouteStateRow::confirmed(key(text), Some("bgp".into()))
    }

    #[test]
    fn row_is_written_before_its_message() {
        let Some(server) = Server::start() else { return };
        let (mut published, mut client) = (published(&server), server.client(Db::ApplState));
        published.write(&mut vec![confirmed("10.1.0.0/16")]).unwrap();
        published.flush().unwrap();
        assert_eq!(client.hash("ROUTE_TABLE:10.1.0.0/16"), "protocol=bgp");
        let database = server.databases.get(Db::ApplState);
        let heard = wake_ups(database, vec![ROUTE_RESPONSE_CHANNEL.into()], &server.stop).unwrap().remove(0);
        while client.query(&format!("PUBSUB NUMSUB {ROUTE_RESPONSE_CHANNEL}")).into_pairs()[0].1 == "0" {
            std::thread::yield_now();
        }
        // A wake-up at the subscription itself.
        while heard.take() == Ok(true) {}
        published.write(&mut vec![confirmed("10.2.0.0/16"), Change::del(key("10.1.0.0/16"))]).unwrap();
        assert!(heard.wait_timeout(Duration::from_secs(10)), "a message");
        // The table is not flushed by its owner yet.
        assert_eq!(client.keys(), ["ROUTE_TABLE:10.2.0.0/16"]);
    }

    #[test]
    fn message_is_made_only_for_a_subscriber_by_name_or_pattern() {
        let Some(server) = Server::start() else { return };
        let mut published = published(&server);
        let mut messages = || published.messages(&[confirmed("10.1.0.0/16")]).unwrap().len();
        assert_eq!(messages(), 0);
        let database = server.databases.get(Db::ApplState);
        let _wake = wake_ups(database, vec![ROUTE_RESPONSE_CHANNEL.into()], &server.stop).unwrap();
        let mut client = server.client(Db::ApplState);
        while client.query(&format!("PUBSUB NUMSUB {ROUTE_RESPONSE_CHANNEL}")).into_pairs()[0].1 == "0" {
            std::thread::yield_now();
        }
        assert_eq!(messages(), 1);
    }

    #[test]
    fn complete_state_replaces_the_rows_of_an_earlier_run() {
        let Some(server) = Server::start() else { return };
        let (mut published, mut client) = (published(&server), server.client(Db::ApplState));
        for route in ["10.1.0.0/16", "10.66.0.0/16"] {
            client.query(&format!("HSET ROUTE_TABLE:{route} protocol bgp"));
        }
        let all = vec![confirmed("10.1.0.0/16"), confirmed("10.2.0.0/16")];
        *published.all.lock().unwrap() = Some(CompleteState::Confirmed(all));
        published.write(&mut Vec::new()).unwrap();
        published.flush().unwrap();
        assert_eq!(client.keys(), ["ROUTE_TABLE:10.1.0.0/16", "ROUTE_TABLE:10.2.0.0/16"]);
        published.forget().unwrap();
        assert!(client.keys().is_empty());
    }
}
