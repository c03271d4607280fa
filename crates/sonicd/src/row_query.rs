//! orchagent's query to fpmsyncd: what does it have of these rows, which were found in APPL_DB?
//!
//! A row that is missing in APPL_DB was deleted, or the database lost it and fpmsyncd will write it
//! again. Only fpmsyncd knows which. A query is a message on a channel of APPL_DB's server, and so is
//! the reply, as with `explain`. The number of subscribers shows whether ribtide's fpmsyncd runs.

use super::{Daemon, Error};
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_swss::fpmsyncd::{FoundRow, ProducerRow};
use ribtide_swss::row::RowName;
use ribtide_tables::{Connection, PubSubEvent, listen};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The channel of queries.
const CHANNEL: &str = "RIBTIDE_ROWS_fpmsyncd";
/// Timeout of a reply, longer than that of a call to a stage.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);
const REPLY_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A table, a key, and the fields that were found.
type FoundText = (String, String, Vec<(String, String)>);

/// A query.
#[derive(Debug, Serialize, Deserialize)]
struct RowQuery {
    /// The channel for the reply.
    answer: String,
    number: u64,
    rows: Vec<FoundText>,
}

/// A reply: what fpmsyncd has of each row; `None` when its stage does not answer.
#[derive(Debug, Serialize, Deserialize)]
struct RowReply {
    number: u64,
    rows: Option<Vec<Answer>>,
}

/// [`ProducerRow`] as text.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Absent,
    Same,
    Other,
    Unknown,
}

impl From<ProducerRow> for Answer {
    fn from(row: ProducerRow) -> Answer {
        match row {
            ProducerRow::Absent => Answer::Absent,
            ProducerRow::Same => Answer::Same,
            ProducerRow::Other => Answer::Other,
            ProducerRow::Unknown => Answer::Unknown,
        }
    }
}

impl From<Answer> for ProducerRow {
    fn from(answer: Answer) -> ProducerRow {
        match answer {
            Answer::Absent => ProducerRow::Absent,
            Answer::Same => ProducerRow::Same,
            Answer::Other => ProducerRow::Other,
            Answer::Unknown => ProducerRow::Unknown,
        }
    }
}

/// Starts to reply to queries; `compare` runs in fpmsyncd's stage. The listening thread carries a
/// query out: one client sends one at a time.
///
/// # Errors
/// When APPL_DB cannot be reached.
pub(super) fn answer<S: 'static>(
    of: &Daemon,
    handle: StageHandle<S>,
    compare: fn(&mut S, &[FoundRow]) -> Vec<ProducerRow>,
) -> Result<(), Error> {
    let mut replies = of.connect(Db::Appl)?;
    Ok(listen(of.databases.get(Db::Appl), vec![CHANNEL.into()], &of.stop, move |event| {
        let PubSubEvent::Message { payload, .. } = event else { return };
        let Ok(RowQuery { answer, number, rows }) = serde_json::from_str(payload) else { return };
        let found =
            rows.into_iter().map(|(table, key, fields)| Some((RowName::parse(&table, &key)?, fields)));
        let found: Option<Vec<FoundRow>> = found.collect();
        let rows = found.and_then(|found| handle.call(move |stage| compare(stage, &found)).ok());
        let rows = rows.map(|rows| rows.into_iter().map(Answer::from).collect());
        let text = serde_json::to_string(&RowReply { number, rows }).unwrap_or_default();
        // Without a reply the client keeps its rows, and asks again in its next round.
        let _ = replies.query(&["PUBLISH", &answer, &text]);
        replies.shrink_to_fit();
    })?)
}

/// orchagent's side.
pub(super) struct Client {
    daemon: Daemon,
    state: Mutex<Option<Open>>,
}

/// The connection and the reply channel, which the first query opens.
struct Open {
    connection: Connection,
    channel: String,
    number: u64,
    reply: Arc<Mutex<Option<RowReply>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// A client of the fpmsyncd on the databases of `daemon`.
    pub(super) fn new(daemon: &Daemon) -> Client {
        Client { daemon: daemon.clone(), state: Mutex::new(None) }
    }

    /// What fpmsyncd has of each row. `None` without a reply, so without ribtide's fpmsyncd.
    ///
    /// # Errors
    /// When APPL_DB's server cannot be reached.
    pub(super) fn compare(&self, found: &[FoundRow]) -> Result<Option<Vec<ProducerRow>>, Error> {
        let mut state = lock(&self.state);
        let open = match &mut *state {
            Some(open) => open,
            none => none.insert(Open::new(&self.daemon)?),
        };
        open.number += 1;
        let row = |(name, fields): &FoundRow| (name.table().to_owned(), name.text(), fields.clone());
        let rows = found.iter().map(row).collect();
        let query = RowQuery { answer: open.channel.clone(), number: open.number, rows };
        let query = serde_json::to_string(&query).unwrap_or_default();
        let heard = open.connection.query(&["PUBLISH", CHANNEL, &query])?.as_integer();
        open.connection.shrink_to_fit();
        if heard.is_none_or(|heard| heard == 0) {
            return Ok(None);
        }
        let rows = open.wait(&self.daemon.stop).filter(|rows| rows.len() == found.len());
        Ok(rows.map(|rows| rows.into_iter().map(ProducerRow::from).collect()))
    }
}

impl Open {
    fn new(daemon: &Daemon) -> Result<Open, Error> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let channel = format!("RIBTIDE_ROWS_ANSWER_{}_{}", std::process::id(), since.as_nanos());
        let reply = Arc::<Mutex<Option<RowReply>>>::default();
        let to = reply.clone();
        listen(daemon.databases.get(Db::Appl), vec![channel.clone()], &daemon.stop, move |event| {
            if let PubSubEvent::Message { payload, .. } = event {
                *lock(&to) = serde_json::from_str(payload).ok();
            }
        })?;
        Ok(Open { connection: daemon.connect(Db::Appl)?, channel, number: 0, reply })
    }

    /// The reply to the last query; `None` when none comes in time.
    fn wait(&mut self, stop: &Stop) -> Option<Vec<Answer>> {
        let (begin, signal) = (Instant::now(), stop.signal());
        while begin.elapsed() < REPLY_TIMEOUT {
            // A reply after its timeout may arrive later.
            if let Some(reply) = lock(&self.reply).take().filter(|reply| reply.number == self.number) {
                return reply.rows;
            }
            if signal.sleep(REPLY_POLL_INTERVAL) {
                break;
            }
        }
        None
    }
}
