//! Reconciliation of a database with the stage that writes it, or that takes its rows.
//!
//! A thread asks the stage for a page of its rows, reads them, and compares. Rows change meanwhile and
//! wait in queues, so a differing row is only suspect. Of suspects the stage is asked in three steps:
//!
//! 1. the stage watches them, and says how much it has to write until now (a fence);
//! 2. when that is written, the thread reads them again;
//! 3. the stage repairs those that still differ and that it did not change since it watched them.
//!
//! A row that is not changed between 1 and 3 was written before 2, so the database had it then, or
//! another program changed it. A stage that takes rows writes nothing. It gets what left the database
//! before 2 before it repairs.
//!
//! Rows that the stage does not have are found by their names. A first scan of the database and the
//! pages of the stage are summed in a [`NameBalance`]. Only if that is not even, a second scan passes
//! the names of its uneven places to the stage.

use super::RoundLog;
use super::agreed::Agreed;
use super::name_balance::NameBalance;
use crate::Error;
use crate::events::log;
use ribtide_runtime::call::{NoReply, StageHandle};
use ribtide_runtime::idle;
use ribtide_runtime::ring::Closed;
use ribtide_runtime::thread::{self, Stop, StopSignal};
use ribtide_swss::syncd::Difference;
use ribtide_tables::{Connection, Database, Hash, Hashes, Reply, ScanCursor, TableError};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Rows of a page: the stage makes them in less than a millisecond.
const PAGE: usize = 1000;
/// A page's CPU time, of this thread and of the stage, is multiplied by this for the rest: at most 2% of a CPU.
const CPU_REST_FACTOR: u32 = 49;
/// And the time that it took by this: with what the server needs for it, at most a tenth of the time.
const REST_FACTOR: u32 = 9;
/// The longest rest after a page.
const REST_MAX: Duration = Duration::from_secs(1);
/// How long a suspect row may wait to be written; later ones are compared in the next round.
const WRITTEN_TIMEOUT: Duration = Duration::from_secs(2);
const WRITTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The fields of a row as read; none: there is no such row.
pub(crate) type Found = Vec<(String, String)>;

/// A row of the stage.
pub(crate) trait WantedRow: Send + 'static {
    /// What identifies it to the stage.
    type Key: Clone + Send + 'static;

    /// What identifies it.
    fn key(&self) -> &Self::Key;

    /// Whether the database has it so, with these fields; none: it has no such row.
    fn is(&self, found: &[(&str, &str)]) -> bool;

    /// Whether [`WantedRow::is`] says the same of both rows, of any fields. May be false of equal rows.
    fn compares_as(&self, _other: &Self) -> bool {
        false
    }
}

/// A stage that writes a database, or takes its rows. `Which`: which of its copies, where it has several.
pub(crate) trait Mirror<Which = ()>: Sized + 'static {
    /// The rows.
    type Row: WantedRow;
    /// A position among them.
    type Cursor: Default + Send + 'static;
    /// What the producer of the rows says of them, if that is another daemon, or what the database
    /// says beside them.
    type Producer: Send + 'static;

    /// Begins a round; false if the stage cannot be compared now.
    fn begin(&mut self) -> bool {
        true
    }

    /// The next rows, about `count`, and the next position; `None` while the stage cannot say.
    #[expect(clippy::type_complexity, reason = "a page and its end")]
    fn page(&mut self, from: Self::Cursor, count: usize) -> Option<(Vec<Self::Row>, Option<Self::Cursor>)>;

    /// Of keys that the database has in a table, those that the stage has no row of.
    fn unmatched(&mut self, _table: &'static str, _names: Vec<String>) -> Vec<KeyOf<Self, Which>> {
        Vec::new()
    }

    /// Watches these rows, in place of others: a later change ends the watch of a row. May add keys
    /// to read with them. Returns the fence.
    fn watch(&mut self, keys: &mut Vec<KeyOf<Self, Which>>) -> u64;

    /// Whether everything before the fence is written.
    fn is_written(&mut self, fence: u64) -> Result<bool, Error>;

    /// Begins the delivery of what left the database until now and has not reached the stage.
    fn begin_delivery(&mut self) {}

    /// Whether the stage has it.
    fn is_delivered(&mut self) -> bool {
        true
    }

    /// Repairs those rows that differ from what was found and are still watched, and returns them.
    /// `producer`: what [`Reader::producer`] returned.
    fn repair(
        &mut self,
        found: Vec<(KeyOf<Self, Which>, Found)>,
        producer: Self::Producer,
    ) -> Result<Vec<Repaired<Self, Which>>, Error>;
}

/// The key of a row of a stage.
pub(crate) type KeyOf<S, Which = ()> = <<S as Mirror<Which>>::Row as WantedRow>::Key;

/// A row that was repaired, and what was wrong with it.
pub(crate) type Repaired<S, Which = ()> = (KeyOf<S, Which>, Difference);

/// Where the keys are that a consumer has not taken yet.
#[derive(Clone, Copy)]
pub(crate) struct Queue<K> {
    /// The table of a row: its keys are in the set `TABLE_KEY_SET`.
    pub(crate) table: fn(&K) -> &'static str,
    /// A row's key in that set.
    pub(crate) key: fn(&K) -> String,
}

/// Asks the producer of rows what it has of those that were found.
pub(crate) type AskProducer<K, P> = Box<dyn FnMut(&[(K, Found)]) -> Result<P, Error> + Send>;

/// How the names of rows are searched.
pub(crate) struct Scanned {
    /// The pattern of the scan.
    pub(crate) pattern: String,
    /// The tables, each with the prefix of its keys.
    pub(crate) tables: Vec<(&'static str, String)>,
    /// Whether the stage must know a key of a table before rows are compared: no page has it.
    pub(crate) is_other_format: fn(&str, &str) -> bool,
}

/// How the rows of a stage are named and read.
pub(crate) struct Reader<K, P> {
    /// The name of a row's table among the counts.
    pub(crate) table: fn(&K) -> &'static str,
    /// The database.
    pub(crate) connection: Connection,
    /// Appends the key of a row in the database.
    pub(crate) write_name: fn(&Database, &K, &mut String),
    /// The keys that the consumer has not taken yet, where there is one: such a row is under way.
    pub(crate) queue: Option<Queue<K>>,
    /// The tables, if rows are searched that the stage does not have.
    pub(crate) scanned: Option<Scanned>,
    /// The reason of a repair, for the log.
    pub(crate) why: fn(Difference) -> &'static str,
    /// Asks the producer of the rows, if the stage takes them: one that differs may be written again.
    pub(crate) producer: AskProducer<K, P>,
}

impl<K, P> Reader<K, P> {
    /// Reads rows, and passes the name of each to `each_name`.
    pub(super) fn read(&mut self, keys: &[&K], mut each_name: impl FnMut(&str)) -> Result<ReadRows, Error> {
        // Before the rows: the consumer moves a row and removes its key in one step.
        let under_way = self.under_way(keys)?;
        let write_name = self.write_name;
        let hashes = self.connection.read_hashes(keys.iter(), |database, key, name| {
            write_name(database, key, name);
            each_name(name);
        })?;
        Ok(ReadRows { hashes, under_way })
    }

    /// The key of a row in the database.
    fn name(&self, key: &K) -> String {
        let mut name = String::new();
        (self.write_name)(self.connection.database(), key, &mut name);
        name
    }

    /// Which of the rows are under way.
    fn under_way(&mut self, keys: &[&K]) -> Result<Vec<bool>, Error> {
        let mut under_way = vec![false; keys.len()];
        let Some(Queue { table, key }) = self.queue else { return Ok(under_way) };
        let tables: BTreeSet<&str> = keys.iter().map(|key| table(key)).collect();
        let set = |table| (table, format!("{table}_KEY_SET"));
        let mut sets: BTreeMap<&str, String> = tables.into_iter().map(set).collect();
        // Most of the time nothing is under way, and the sizes of the sets alone say so.
        let sizes = self.connection.query_all(sets.values().map(|set| ["SCARD", set]))?;
        let mut sizes = sizes.iter().map(Reply::as_integer);
        sets.retain(|_, _| sizes.next() != Some(Some(0)));
        let queued = keys.iter().enumerate().filter_map(|(n, k)| Some((n, sets.get(table(k))?, key(k))));
        let queued: Vec<(usize, &String, String)> = queued.collect();
        let replies =
            self.connection.query_all(queued.iter().map(|(_, set, key)| ["SISMEMBER", set, key]))?;
        for ((n, ..), reply) in queued.iter().zip(replies) {
            under_way[*n] = reply.as_integer() == Some(1);
        }
        Ok(under_way)
    }
}

/// Rows that were read.
pub(super) struct ReadRows {
    hashes: Hashes,
    under_way: Vec<bool>,
}

impl ReadRows {
    /// The place of each row and the row as the database has it, without those that are under way.
    pub(super) fn settled(&self) -> impl Iterator<Item = (usize, Hash<'_>)> {
        let rows = self.hashes.iter().enumerate().zip(&self.under_way);
        rows.filter(|(_, under_way)| !**under_way).map(|(row, _)| row)
    }
}

/// What ends a round.
pub(crate) enum End {
    /// The stage has ended, or all do.
    Stopped(Closed),
    Failed(Error),
}

impl From<NoReply> for End {
    fn from(e: NoReply) -> End {
        e.closed().map_or_else(|| End::Failed(Error::new(e.to_string())), End::Stopped)
    }
}

impl From<Closed> for End {
    fn from(closed: Closed) -> End {
        End::Stopped(closed)
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

/// Rounds of a comparison.
pub(crate) trait Rounds: Send {
    /// Sleeps until the next round.
    ///
    /// # Errors
    /// The stop.
    fn rest_of_round(&mut self) -> Result<(), Closed>;

    /// Compares every row once.
    fn round(&mut self) -> Result<(), End>;

    /// Ends the log of the round, and frees buffers.
    fn end(&mut self);
}

impl<S: Mirror<Which>, Which: 'static> Rounds for Reconciler<S, Which> {
    fn rest_of_round(&mut self) -> Result<(), Closed> {
        self.stop.pause(self.interval.saturating_sub(self.began.elapsed()))?;
        self.began = Instant::now();
        Ok(())
    }

    fn round(&mut self) -> Result<(), End> {
        Reconciler::round(self)
    }

    fn end(&mut self) {
        self.log.end();
        self.reader.connection.shrink_to_fit();
    }
}

/// Compares in rounds on a thread, until the stop: `first`, then `others`, at the interval of `first`.
pub(crate) fn start(
    daemon: &'static str,
    mut first: impl Rounds + 'static,
    mut others: Vec<Box<dyn Rounds>>,
) -> Result<(), Error> {
    let mut failures = vec![String::new(); 1 + others.len()];
    let body = move || -> Result<Infallible, Closed> {
        loop {
            first.rest_of_round()?;
            let others = others.iter_mut().map(|other| &mut **other);
            let all = std::iter::once(&mut first as &mut dyn Rounds).chain(others);
            for (comparison, failure) in all.zip(&mut failures) {
                match comparison.round() {
                    Ok(()) => failure.clear(),
                    Err(End::Stopped(closed)) => return Err(closed),
                    // The next round tries again.
                    Err(End::Failed(e)) => {
                        let text = e.to_string();
                        if text != *failure {
                            log!(daemon, warn, error = %e, "a comparison of the database failed");
                        }
                        *failure = text;
                    }
                }
                comparison.end();
            }
            idle::purge();
        }
    };
    thread::spawn("reconcile", body).map(drop).map_err(Error::no_thread("to compare the database"))
}

/// What a page takes.
struct PageTime {
    began: Instant,
    /// This thread's CPU time at its start.
    cpu: Duration,
    /// CPU time of the stage.
    of_stage: Duration,
}

impl PageTime {
    fn start() -> PageTime {
        PageTime { began: Instant::now(), cpu: thread::cpu_time(), of_stage: Duration::ZERO }
    }
}

/// The thread of the comparison.
pub(crate) struct Reconciler<S: Mirror<Which>, Which: 'static = ()> {
    handle: StageHandle<S>,
    reader: Reader<KeyOf<S, Which>, S::Producer>,
    interval: Duration,
    pub(crate) log: RoundLog,
    stop: StopSignal,
    began: Instant,
}

impl<S: Mirror<Which>, Which: 'static> Reconciler<S, Which> {
    pub(crate) fn new(
        handle: StageHandle<S>,
        reader: Reader<KeyOf<S, Which>, S::Producer>,
        interval: Duration,
        log: RoundLog,
        stop: &Stop,
    ) -> Self {
        Reconciler { handle, reader, interval, log, stop: stop.signal(), began: Instant::now() }
    }

    /// Rests after a page.
    ///
    /// # Errors
    /// The stop.
    fn rest(&self, page: &PageTime) -> Result<(), Closed> {
        let cpu = thread::cpu_time().saturating_sub(page.cpu) + page.of_stage;
        let rest = (cpu * CPU_REST_FACTOR).max(page.began.elapsed() * REST_FACTOR);
        self.stop.pause(rest.min(REST_MAX))
    }

    /// Lets the stage do something that takes CPU time for a page.
    fn on_stage<R: Send + 'static>(
        &self,
        page: &mut PageTime,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, End> {
        let timed = move |stage: &mut S| {
            let before = thread::cpu_time();
            let result = work(stage);
            (result, thread::cpu_time().saturating_sub(before))
        };
        let (result, cpu) = self.handle.wait(timed)?;
        page.of_stage += cpu;
        Ok(result)
    }

    /// Compares every row once.
    pub(crate) fn round(&mut self) -> Result<(), End> {
        if !self.handle.wait(S::begin)? {
            return Ok(());
        }
        let is_other_format = self.reader.scanned.as_ref().map(|scanned| scanned.is_other_format);
        let (mut names, mut hashes) = (NameBalance::default(), Vec::new());
        if let Some(is_other_format) = is_other_format {
            self.scan(|table, name, key| {
                let is_suspect = is_other_format(table, key);
                if !is_suspect {
                    hashes.push(names.hash(name));
                }
                if hashes.len() >= PAGE {
                    names.subtract(hashes.drain(..));
                }
                is_suspect
            })?;
            names.subtract(hashes.drain(..));
        }
        let mut cursor = Some(S::Cursor::default());
        while let Some(from) = cursor.take() {
            let mut time = PageTime::start();
            let page = self.on_stage(&mut time, move |stage| stage.page(from, PAGE))?;
            let Some((rows, next)) = page else { return Ok(()) };
            cursor = next;
            let table = self.reader.table;
            for rows in rows.chunk_by(|a, b| table(a.key()) == table(b.key())) {
                rows.first()
                    .into_iter()
                    .for_each(|row| self.log.compared(table(row.key()), rows.len() as u64));
            }
            let keys: Vec<_> = rows.iter().map(WantedRow::key).collect();
            let take = |name: &str| hashes.extend(is_other_format.map(|_| names.hash(name)));
            let found = self.reader.read(&keys, take)?;
            let there = hashes.drain(..).zip(found.hashes.iter()).filter(|(_, row)| !row.is_empty());
            names.add(there.map(|(hash, _)| hash));
            let mut agreed = Agreed::default();
            let differing = found.settled().filter_map(|(n, found)| {
                let row = rows.get(n)?;
                (!agreed.compare(row, found)).then(|| row.key().clone())
            });
            let suspects = differing.collect();
            self.reader.connection.recycle(found.hashes);
            self.confirm(suspects)?;
            self.rest(&time)?;
        }
        match is_other_format {
            Some(is_other_format) if !names.is_even() => {
                self.scan(|table, name, key| names.is_uneven(name) && !is_other_format(table, key))
            }
            _ => Ok(()),
        }
    }

    /// Scans the names of the rows, and looks for those among the `suspects` that the stage does not
    /// have. `suspects`: whether a table, a name and its key are one.
    fn scan(&mut self, mut suspects: impl FnMut(&str, &str, &str) -> bool) -> Result<(), End> {
        let mut cursor = ScanCursor::default();
        loop {
            let mut time = PageTime::start();
            let Reader { connection, scanned: Some(Scanned { pattern, tables, .. }), .. } = &mut self.reader
            else {
                return Ok(());
            };
            let mut keys: Vec<(&'static str, Vec<String>)> =
                tables.iter().map(|(table, _)| (*table, Vec::new())).collect();
            connection.scan_names(pattern, &mut cursor, |name| {
                let of_table = |(_, prefix): &(_, String)| name.strip_prefix(prefix.as_str());
                let place = tables.iter().enumerate().find_map(|(n, table)| Some((n, of_table(table)?)));
                if let Some((n, key)) = place
                    && suspects(keys[n].0, name, key)
                {
                    keys[n].1.push(key.to_owned());
                }
            })?;
            for (table, keys) in keys.into_iter().filter(|(_, keys)| !keys.is_empty()) {
                let unmatched = self.on_stage(&mut time, move |stage| stage.unmatched(table, keys))?;
                self.confirm(unmatched)?;
            }
            if cursor.is_at_start() {
                return Ok(());
            }
            self.rest(&time)?;
        }
    }

    /// Waits until `done`, for a short time. Returns whether it is.
    fn wait_until(
        &self,
        done: impl Fn(&mut S) -> Result<bool, Error> + Copy + Send + 'static,
    ) -> Result<bool, End> {
        let begin = Instant::now();
        while !self.handle.wait(done)?? {
            if begin.elapsed() > WRITTEN_TIMEOUT || self.stop.sleep(WRITTEN_POLL_INTERVAL) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Repairs those of the suspects that differ indeed.
    fn confirm(&mut self, suspects: Vec<KeyOf<S, Which>>) -> Result<(), End> {
        if suspects.is_empty() {
            return Ok(());
        }
        let watch = move |stage: &mut S| {
            let mut keys = suspects;
            let fence = stage.watch(&mut keys);
            (fence, keys)
        };
        let (fence, keys) = self.handle.wait(watch)?;
        if !self.wait_until(move |stage| stage.is_written(fence))? {
            return Ok(());
        }
        let rows = self.reader.read(&keys.iter().collect::<Vec<_>>(), |_| ())?;
        let owned =
            |row: Hash<'_>| row.fields().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let found = rows.settled().filter_map(|(n, row)| Some((keys.get(n)?.clone(), owned(row))));
        let found: Vec<(KeyOf<S, Which>, Found)> = found.collect();
        self.handle.wait(S::begin_delivery)?;
        if !self.wait_until(|stage| Ok(stage.is_delivered()))? {
            return Ok(());
        }
        let producer = (self.reader.producer)(&found)?;
        for (key, difference) in self.handle.wait(move |stage| stage.repair(found, producer))?? {
            let name = self.reader.name(&key);
            self.log.repaired((self.reader.table)(&key), &name, (self.reader.why)(difference), None);
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
