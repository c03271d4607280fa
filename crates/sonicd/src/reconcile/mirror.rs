//! Reconciliation of a database with the stage that writes it.
//!
//! A thread asks the stage for a page of the rows that it wants, reads them, and compares. Rows change
//! meanwhile and their writes wait in a queue, so a differing row is only suspect. Of suspects the stage is
//! asked in three steps:
//!
//! 1. the stage watches them, and says how much it has to write until now (a fence);
//! 2. when that is written, the thread reads them again;
//! 3. the stage repairs those that still differ and that it did not change since it watched them.
//!
//! A row that is not changed between 1 and 3 was written before 2, so the database had it then, or
//! another program changed it.

use super::RoundLog;
use crate::Error;
use crate::events::log;
use ribtide_runtime::call::{NoReply, StageHandle};
use ribtide_runtime::idle;
use ribtide_runtime::thread::{self, Ends, Stop, StopSignal};
use ribtide_swss::syncd::Difference;
use ribtide_tables::{Connection, Reply, ScanCursor, TableError};
use std::time::{Duration, Instant};

/// Rows of a page: the stage makes them in less than a millisecond.
const PAGE: usize = 1000;
/// The time at work is multiplied by this for the rest: at most 2% of a CPU.
const REST_FACTOR: u32 = 49;
/// The longest rest after a page.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long a suspect row may wait to be written; later ones are compared in the next round.
const WRITTEN_TIMEOUT: Duration = Duration::from_secs(2);
const WRITTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The fields of a row as read; none: there is no such row.
pub(crate) type Found = Vec<(String, String)>;

/// A row that the stage wants.
pub(crate) trait WantedRow: Send + 'static {
    /// What identifies it to the stage.
    type Key: Clone + Send + 'static;

    /// What identifies it.
    fn key(&self) -> &Self::Key;

    /// Whether the database has it so.
    fn is(&self, found: &Found) -> bool;
}

/// A stage that writes a database.
pub(crate) trait Mirror: Sized + 'static {
    /// The rows.
    type Row: WantedRow;
    /// A position among them.
    type Cursor: Default + Send + 'static;

    /// The next rows, about `count`, and the next position; `None` while the stage cannot say.
    #[expect(clippy::type_complexity, reason = "a page and its end")]
    fn page(&mut self, from: Self::Cursor, count: usize) -> Option<(Vec<Self::Row>, Option<Self::Cursor>)>;

    /// Of keys that the database has, those that the stage does not want.
    fn unwanted(&mut self, _names: Vec<String>) -> Vec<KeyOf<Self>> {
        Vec::new()
    }

    /// Watches these rows, in place of others: a later change ends the watch of a row. Returns the
    /// fence.
    fn watch(&mut self, keys: &[KeyOf<Self>]) -> u64;

    /// Whether everything before the fence is written.
    fn is_written(&mut self, fence: u64) -> Result<bool, Error>;

    /// Writes those rows again that differ from what was found and are still watched, and returns
    /// them.
    fn repair(&mut self, found: Vec<(KeyOf<Self>, Found)>) -> Result<Vec<(KeyOf<Self>, Difference)>, Error>;
}

/// The key of a row of a stage.
pub(crate) type KeyOf<S> = <<S as Mirror>::Row as WantedRow>::Key;

/// The set of keys that a consumer has not taken yet, and a row's key in it.
pub(crate) type QueueKey<K> = fn(&K) -> (String, String);

/// How the rows of a stage are named and read.
pub(crate) struct Reader<K> {
    /// The name of a row's table among the counts.
    pub(crate) table: fn(&K) -> &'static str,
    /// The database.
    pub(crate) connection: Connection,
    /// The key of a row in the database.
    pub(crate) name: fn(&Connection, &K) -> String,
    /// The set of keys that the consumer has not taken yet, and the key in it, where there is one: a
    /// row whose key is in it is under way.
    pub(crate) queue: Option<QueueKey<K>>,
    /// The prefix of the keys of the table, if surplus rows are searched.
    pub(crate) scanned: Option<String>,
}

impl<K> Reader<K> {
    /// The rows as the database has them. A row that is under way is `None`.
    pub(super) fn read(&mut self, keys: &[&K]) -> Result<Vec<Option<Found>>, Error> {
        let mut under_way = vec![false; keys.len()];
        if let Some(queue) = self.queue {
            // Before the rows: the consumer moves a row and removes its key in one step.
            let queued: Vec<(String, String)> = keys.iter().map(|key| queue(key)).collect();
            let commands = queued.iter().map(|(set, key)| ["SISMEMBER", set, key]);
            let replies = self.connection.query_all(commands)?;
            replies.iter().zip(&mut under_way).for_each(|(reply, on)| *on = reply.as_integer() == Some(1));
        }
        let names: Vec<String> = keys.iter().map(|key| (self.name)(&self.connection, key)).collect();
        let replies = self.connection.query_all(names.iter().map(|name| ["HGETALL", name]))?;
        let rows = replies.into_iter().map(Reply::into_pairs);
        Ok(rows.zip(under_way).map(|(row, on)| (!on).then_some(row)).collect())
    }
}

/// What ends a round.
pub(super) enum End {
    /// The stage has ended.
    Stopped,
    Failed(Error),
}

impl From<NoReply> for End {
    fn from(_: NoReply) -> End {
        End::Stopped
    }
}

impl From<Error> for End {
    fn from(e: Error) -> End {
        End::Failed(e)
    }
}

impl From<TableError> for End {
    fn from(e: TableError) -> End {
        End::Failed(e.into())
    }
}

/// Compares in rounds of `interval` on a thread, until `stop`.
pub(crate) fn start<S: Mirror>(
    daemon: &'static str,
    handle: StageHandle<S>,
    reader: Reader<KeyOf<S>>,
    interval: Duration,
    log: RoundLog,
    stop: &Stop,
) -> Result<(), Error> {
    let mut thread = Reconciler::new(handle, reader, interval, log, stop);
    let body = move || {
        let mut failure = String::new();
        while thread.rest_of_round() {
            match thread.round() {
                Ok(()) => failure.clear(),
                Err(End::Stopped) => return,
                // The next round tries again.
                Err(End::Failed(e)) => {
                    let text = e.to_string();
                    if text != failure {
                        log!(daemon, warn, error = %e, "a comparison of the database failed");
                    }
                    failure = text;
                }
            }
            thread.log.end();
            thread.reader.connection.shrink_to_fit();
            idle::purge();
        }
    };
    thread::spawn("reconcile", Ends::WithOwner, body)
        .map(drop)
        .map_err(Error::no_thread("to compare the database"))
}

/// The thread of the comparison.
pub(super) struct Reconciler<S: Mirror> {
    handle: StageHandle<S>,
    reader: Reader<KeyOf<S>>,
    interval: Duration,
    pub(super) log: RoundLog,
    stop: StopSignal,
    began: Instant,
}

impl<S: Mirror> Reconciler<S> {
    pub(super) fn new(
        handle: StageHandle<S>,
        reader: Reader<KeyOf<S>>,
        interval: Duration,
        log: RoundLog,
        stop: &Stop,
    ) -> Self {
        Reconciler { handle, reader, interval, log, stop: stop.signal(), began: Instant::now() }
    }

    /// Sleeps until the next round. Returns whether the process goes on.
    fn rest_of_round(&mut self) -> bool {
        let left = self.interval.saturating_sub(self.began.elapsed());
        let goes_on = !self.stop.sleep(left);
        self.began = Instant::now();
        goes_on
    }

    /// Rests after a page that took `work`.
    fn rest(&self, work: Duration) -> bool {
        !self.stop.sleep((work * REST_FACTOR).min(REST_MAX))
    }

    /// Compares every row once.
    pub(super) fn round(&mut self) -> Result<(), End> {
        let mut cursor = Some(S::Cursor::default());
        while let Some(from) = cursor.take() {
            let begin = Instant::now();
            let Some((rows, next)) = self.handle.wait(move |stage| stage.page(from, PAGE))? else {
                return Ok(());
            };
            cursor = next;
            rows.iter().for_each(|row| self.log.compared((self.reader.table)(row.key()), 1));
            let found = self.reader.read(&rows.iter().map(WantedRow::key).collect::<Vec<_>>())?;
            let differs = |(row, found): (S::Row, Option<Found>)| {
                found.is_some_and(|found| !row.is(&found)).then(|| row.key().clone())
            };
            let suspects: Vec<KeyOf<S>> = rows.into_iter().zip(found).filter_map(differs).collect();
            self.confirm(suspects)?;
            if !self.rest(begin.elapsed()) {
                return Err(End::Stopped);
            }
        }
        let Some(prefix) = self.reader.scanned.clone() else { return Ok(()) };
        let (pattern, mut cursor) = (format!("{prefix}*"), ScanCursor::default());
        loop {
            let begin = Instant::now();
            let mut names = self.reader.connection.scan_page(&pattern, &mut cursor)?;
            names.iter_mut().for_each(|name| drop(name.drain(..prefix.len())));
            let unwanted = self.handle.wait(move |stage| stage.unwanted(names))?;
            self.confirm(unwanted)?;
            if cursor.is_at_start() {
                return Ok(());
            }
            if !self.rest(begin.elapsed()) {
                return Err(End::Stopped);
            }
        }
    }

    /// Repairs those of the suspects that differ indeed.
    fn confirm(&mut self, suspects: Vec<KeyOf<S>>) -> Result<(), End> {
        if suspects.is_empty() {
            return Ok(());
        }
        let watched = suspects.clone();
        let fence = self.handle.wait(move |stage| stage.watch(&watched))?;
        let begin = Instant::now();
        while !self.handle.wait(move |stage| stage.is_written(fence))?? {
            if begin.elapsed() > WRITTEN_TIMEOUT || self.stop.sleep(WRITTEN_POLL_INTERVAL) {
                return Ok(());
            }
        }
        let found = self.reader.read(&suspects.iter().collect::<Vec<_>>())?;
        let found: Vec<(KeyOf<S>, Found)> =
            suspects.into_iter().zip(found).filter_map(|(key, found)| Some((key, found?))).collect();
        for (key, difference) in self.handle.wait(move |stage| stage.repair(found))?? {
            let name = (self.reader.name)(&self.reader.connection, &key);
            self.log.repaired((self.reader.table)(&key), &name, difference, None);
        }
        Ok(())
    }
}

/// What differs in a row, given whether it is wanted, and what was found.
pub(crate) fn difference(wanted: bool, found: &Found) -> Difference {
    match (wanted, found.is_empty()) {
        (true, true) => Difference::Missing,
        (true, false) => Difference::Changed,
        (false, _) => Difference::Surplus,
    }
}
