//! The rows of syncd in ASIC_DB: the contents of the chip, for SONiC's tools and for a restarted
//! syncd.
//!
//! With `in-line` the rows are exact: an object has its row before the reply to its request.
//! Write-behind rows follow in the same order, at low priority. With `off` there are none.

use super::appl_transport::Lag;
use super::asic_transport::{NOTIFICATIONS, SHUTDOWN_REQUEST};
use super::syncd_generation::SyncdGeneration;
use super::{Daemon, Error, events};
use crossbeam_channel::Select;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Ended};
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_settings::Persistence;
use ribtide_swss::Db;
use ribtide_swss::sai::{Attr, Attrs, ObjectId, ObjectType, RawText, Sai, text};
use ribtide_swss::syncd::{AsicChange, PackedChanges, Syncd, SyncdOut};
use ribtide_tables::{
    Connection, LowPriorityPace, Reply, TableError, WriteBehindLag, passed_over, server_returns,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::thread::JoinHandle;
use std::time::Instant;

const ASIC_STATE: &str = "ASIC_STATE";
const MAPS: [&str; 2] = ["VIDTORID", "RIDTOVID"];
const HIDDEN: &str = "HIDDEN";
/// The objects that the chip has of its own, with their types, as SONiC's syncd keeps them.
pub(super) const COLD_VIDS: &str = "COLDVIDS";
/// The marker key of a syncd whose rows need not be exact.
const RAN: &str = "RIBTIDE_SYNCD_RAN";
/// The marker key of an orchagent that describes the switch to a running syncd, which alone has the
/// description.
const IN_VIEW: &str = "RIBTIDE_IN_VIEW";
/// Rows of a usual batch: a bulk. The rows of a view are one batch, too.
const BULK: usize = 1000;
/// Rows of one write.
const WRITE_BATCH_MAX: usize = 8_000;
/// Rows of one send, so that the server works while more are encoded.
const SENT_AT_ONCE: usize = 500;

/// The destination of rows.
pub(super) enum AsicDb {
    /// None. A thread keeps the marker keys for the next syncd, also after a loss of the server.
    Off { _markers: Option<AsicWriter> },
    /// A write-behind thread.
    WriteBehind(AsicWriter),
    /// The database, in line.
    InLine(Box<Rows>),
}

impl AsicDb {
    /// Opens ASIC_DB, and restores the switch from its rows, unless the switch goes on with them (`warm`). `lag` sets the
    /// pace and the limits of write-behind. Returns whether orchagent goes on with that switch, too.
    pub(super) fn open<C: Sai>(
        (persistence, lag): (Persistence, Lag),
        syncd: &mut Syncd<C>,
        warm: bool,
        daemon: &Daemon,
    ) -> Result<(AsicDb, bool), Error> {
        let mut asic = daemon.connect(Db::Asic)?;
        let exact = persistence == Persistence::InLine;
        // Any of these keys means that a running orchagent may rely on state that this syncd does
        // not have.
        let doubts: &[&str] = match (exact, warm) {
            (true, true) => &[IN_VIEW],
            (true, false) => &[IN_VIEW, RAN],
            (false, true) => &[],
            (false, false) => &[RAN, HIDDEN],
        };
        let mut exist = |keys: &[&str]| -> Result<bool, TableError> {
            Ok(!keys.is_empty() && asic.query(&[&["EXISTS"], keys].concat())? != Reply::Integer(0))
        };
        let restart = exist(doubts)?;
        if restart && exist(&[IN_VIEW])? {
            syncd.lost_view();
        }
        let goes_on = !restart && exist(&[HIDDEN])?;
        let syncd_generation = SyncdGeneration::begin(goes_on, &mut asic)?;
        if restart {
            let request = format!(r#"["{SHUTDOWN_REQUEST}","{{\"switch_id\":\"oid:0x21000000000000\"}}"]"#);
            asic.query(&["PUBLISH", NOTIFICATIONS, &request])?;
        }
        // Only after the request to orchagent: if syncd is killed before, the next one finds the
        // keys.
        match (exact, warm) {
            // The mark of a view stays until orchagent describes another one.
            (true, _) => drop(asic.query(&["DEL", RAN])?),
            (false, true) => {}
            (false, false) => drop(asic.query(&["SET", RAN, "1"])?),
        }
        let returned = server_returns(asic.database(), &daemon.stop)?;
        let mut rows = Rows::new(asic, syncd_generation, exact, returned);
        if exact {
            if !warm {
                rows.recreate(syncd)?;
            }
            rows.syncd_generation.has_started(&mut rows.connection)?;
            return Ok((AsicDb::InLine(Box::new(rows)), goes_on));
        }
        if persistence == Persistence::Off {
            rows.write(AsicChange::Wipe)?;
            rows.connection.flush()?;
            rows.syncd_generation.has_started(&mut rows.connection)?;
            let mut writer = AsicWriter::start(rows, lag, &daemon.rings)?;
            // It has nothing to write when syncd ends, so no thread waits for it.
            writer.thread = None;
            return Ok((AsicDb::Off { _markers: Some(writer) }, goes_on));
        }
        if !warm {
            rows.recreate(syncd)?;
        }
        rows.syncd_generation.has_started(&mut rows.connection)?;
        let writer = AsicWriter::start(rows, lag, &daemon.rings)?;
        Ok((AsicDb::WriteBehind(writer), goes_on))
    }

    /// Whether ASIC_DB still has the rows of a switch that continues.
    pub(super) fn has_rows(daemon: &Daemon) -> Result<bool, Error> {
        let mut asic = daemon.connect(Db::Asic)?;
        Ok(asic.query(&["EXISTS", HIDDEN])? == Reply::Integer(1))
    }

    /// Writes rows, or enqueues them.
    pub(super) fn write(&mut self, changes: PackedChanges) -> Result<(), Error> {
        match self {
            AsicDb::Off { .. } => {}
            AsicDb::WriteBehind(_) | AsicDb::InLine(_) if changes.is_empty() => {}
            AsicDb::WriteBehind(writer) => writer.write(changes)?,
            AsicDb::InLine(rows) => {
                rows.write_all(changes.unpack())?;
                rows.batches += 1;
            }
        }
        Ok(())
    }

    /// Whether [`AsicDb::write`] would not wait for older rows (--write-behind-wait).
    pub(super) fn has_room(&self) -> bool {
        match self {
            AsicDb::Off { .. } | AsicDb::InLine(_) => true,
            AsicDb::WriteBehind(writer) => writer.has_ended() || writer.lag.has_room(Instant::now()),
        }
    }

    /// Frees the buffers of a connection that this thread writes to. The write-behind thread frees its
    /// own.
    pub(super) fn shrink_to_fit(&mut self) {
        if let AsicDb::InLine(rows) = self {
            rows.connection.shrink_to_fit();
        }
    }

    /// The number of batches passed to [`AsicDb::write`], and of those written. Empty ones do not
    /// count.
    pub(super) fn progress(&self) -> (u64, u64) {
        match self {
            AsicDb::Off { .. } => (0, 0),
            AsicDb::WriteBehind(writer) => (writer.given, writer.written.load(Acquire)),
            AsicDb::InLine(rows) => (rows.batches, rows.batches),
        }
    }

    /// Whether every row must be written again, because the server was restarted, perhaps with old
    /// data.
    pub(super) fn is_lost(&mut self) -> Result<bool, Error> {
        match self {
            AsicDb::Off { .. } => Ok(false),
            AsicDb::WriteBehind(writer) => {
                writer.failed.try_recv().map_or(Ok(()), Err)?;
                Ok(writer.lost.take() == Ok(true))
            }
            AsicDb::InLine(rows) => rows.is_lost(),
        }
    }

    /// Another program emptied the database: [`AsicDb::is_lost`] is true from now on.
    pub(super) fn note_emptied(&self) {
        match self {
            AsicDb::Off { .. } => {}
            AsicDb::WriteBehind(writer) => writer.emptied.wake(),
            AsicDb::InLine(rows) => rows.emptied.0.wake(),
        }
    }

    /// Makes `select` ready when [`AsicDb::is_lost`] may have news.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        match self {
            AsicDb::Off { .. } => {}
            AsicDb::WriteBehind(writer) => {
                writer.failed.watch(select);
                writer.lost.watch(select);
            }
            AsicDb::InLine(rows) => rows.watch(select),
        }
    }
}

/// The write-behind thread of ASIC_DB. It also writes the marker keys again when the server may have lost them.
pub(super) struct AsicWriter {
    /// The queue of packed rows. Boxed, because the ring has thousands of slots. `None` only during
    /// drop.
    batches: Option<ring::Sender<Box<PackedChanges>>>,
    pace: LowPriorityPace,
    lag: WriteBehindLag,
    thread: Option<JoinHandle<()>>,
    failed: oneshot::Receiver<Error>,
    /// The server came back, or was emptied.
    lost: WakeUp,
    /// Another program emptied the database.
    emptied: Waker,
    given: u64,
    written: Arc<AtomicU64>,
}

impl AsicWriter {
    fn start(mut rows: Rows, lag: Lag, rings: &Rings) -> Result<AsicWriter, Error> {
        let bound = lag.write_behind_max / BULK;
        let (batches, waiting) = rings.bounded::<Box<PackedChanges>>("rows to ASIC_DB (write-behind)", bound);
        let lag = WriteBehindLag::new(lag.limits(), Db::Asic.name());
        let pace = LowPriorityPace::new(lag.clone());
        let (its_pace, its_lag, age) = (pace.clone(), lag.clone(), lag.gauge(Db::Asic.name(), rings));
        let (failing, failed) = oneshot::pair();
        let (lost_waker, lost) = wake_up::pair();
        let emptied = rows.emptied.0.clone();
        let written = Arc::<AtomicU64>::default();
        let its_written = written.clone();
        let body = move || -> Ended {
            let mut round = || -> Result<Option<Closed>, Error> {
                let mut select = Select::new();
                waiting.watch(&mut select);
                rows.watch(&mut select);
                let _ = select.ready_timeout(idle::until_idle());
                let first = match waiting.next_now() {
                    Ok(first) => first,
                    Err(closed) => return Ok(Some(closed)),
                };
                let (begin, any) = (Instant::now(), first.is_some());
                let mut left = if any { its_pace.rows(WRITE_BATCH_MAX) } else { 0 };
                let (mut next, mut batches_done) = (first, 0);
                while let Some(rows_of_it) = next {
                    batches_done += 1;
                    left = left.saturating_sub(rows_of_it.len());
                    rows.begin(rows_of_it.unpack())?;
                    next = if left > 0 { waiting.try_recv() } else { None };
                }
                if any {
                    rows.connection.flush()?;
                    its_lag.written(batches_done, begin.elapsed(), &age);
                }
                its_written.fetch_add(batches_done as u64, Release);
                if rows.is_lost()? {
                    lost_waker.wake();
                }
                let idle = idle::on_wait(!any);
                if any {
                    its_pace.pause(begin.elapsed());
                } else if idle {
                    rows.connection.shrink_to_fit();
                    idle::purge();
                }
                Ok(None)
            };
            loop {
                match round() {
                    Ok(None) => {}
                    Ok(Some(closed)) => return closed.into(),
                    Err(e) => return failing.end_with(e),
                }
            }
        };
        let thread = thread::spawn("asic-db", body).map_err(Error::no_thread("for ASIC_DB"))?;
        let (batches, thread) = (Some(batches), Some(thread));
        Ok(AsicWriter { batches, pace, lag, thread, failed, lost, emptied, given: 0, written })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Enqueues rows. Blocks while the queue is full, and with --write-behind-wait while rows would become too old.
    fn write(&mut self, changes: PackedChanges) -> Result<(), Error> {
        self.given += 1;
        self.pace.came(Instant::now());
        self.lag.enqueue(changes.len(), || self.has_ended());
        let sent = self.batches.as_ref().is_some_and(|batches| batches.send(Box::new(changes)).is_ok());
        match self.failed.try_recv() {
            Some(e) => Err(e),
            None if !sent => Err(Error::new("ASIC_DB is no longer written; the log has the reason")),
            None => Ok(()),
        }
    }
}

impl Drop for AsicWriter {
    /// The queue is still written.
    fn drop(&mut self) {
        self.pace.awaited(true);
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The rows in the database.
pub(super) struct Rows {
    connection: Connection,
    generation: u64,
    /// The server was lost and is back, as a subscription to it noticed.
    returned: WakeUp,
    /// Another program emptied the database, as the comparison noticed.
    emptied: (Waker, WakeUp),
    syncd_generation: SyncdGeneration,
    /// Whether rows are written in line.
    exact: bool,
    /// Batches that were written in line.
    batches: u64,
    /// Scratch for a row's key, of which so much is the same for all.
    key: String,
    prefix: usize,
}

impl Rows {
    fn new(connection: Connection, syncd_generation: SyncdGeneration, exact: bool, returned: WakeUp) -> Rows {
        let key = connection.database().key(ASIC_STATE, "");
        let prefix = key.len();
        // A server that was lost since it was opened counts.
        let emptied = wake_up::pair();
        Rows {
            connection,
            generation: 0,
            returned,
            emptied,
            syncd_generation,
            exact,
            batches: 0,
            key,
            prefix,
        }
    }

    /// Makes `select` ready when [`Rows::is_lost`] may have news.
    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.returned.watch(select);
        self.emptied.1.watch(select);
    }

    /// Restores the switch from ASIC_DB after a restart of syncd alone.
    fn recreate<C: Sai>(&mut self, syncd: &mut Syncd<C>) -> Result<(), Error> {
        let hidden = self.connection.query(&["HGETALL", HIDDEN])?.into_pairs();
        let hidden: Vec<Attr> = hidden.iter().filter_map(|(name, value)| Attr::read(name, value)).collect();
        let mut rows: Vec<(ObjectType, ObjectId, Attrs)> = Vec::new();
        let mut entries: Vec<(ObjectType, RawText, Attrs)> = Vec::new();
        let prefix = self.connection.database().key(ASIC_STATE, "");
        self.connection.scan(&format!("{prefix}*"), |connection, names| {
            let hashes = connection.query_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                let pairs = hash.into_pairs();
                if pairs.is_empty() {
                    continue;
                }
                let attrs =
                    pairs.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
                let key = name.strip_prefix(&prefix).unwrap_or(name);
                if let Some((object, key)) = text::read_entry_key(key) {
                    entries.push((object, key, attrs.collect()));
                    continue;
                }
                let (object, id) = match text::read_row_key(key) {
                    Ok(known) => known,
                    Err(reason) => {
                        passed_over(Db::Asic.name(), name, reason);
                        continue;
                    }
                };
                rows.push((object, id, attrs.collect()));
            }
            Ok(())
        })?;
        if rows.is_empty() {
            return Ok(());
        }
        tracing::info!(target: target::SYNCD, objects = rows.len(), "making the objects again that ASIC_DB holds");
        let mut out = SyncdOut::default();
        syncd.recreate(rows, &hidden, &mut out);
        syncd.recreate_entries(entries, &mut out);
        for map in MAPS {
            self.connection.queue(&["DEL", map]);
        }
        events::log_syncd(&mut out.events);
        self.write_all(out.rows.unpack())
    }

    fn write_all(&mut self, changes: impl Iterator<Item = AsicChange>) -> Result<(), Error> {
        self.begin(changes)?;
        Ok(self.connection.flush()?)
    }

    /// Queues changes for the next flush.
    fn begin(&mut self, changes: impl Iterator<Item = AsicChange>) -> Result<(), Error> {
        for (n, change) in (1usize..).zip(changes) {
            self.write(change)?;
            if n.is_multiple_of(SENT_AT_ONCE) {
                self.connection.push();
            }
        }
        Ok(())
    }

    /// Returns whether the server came back or was emptied; then it has its marker keys again.
    fn is_lost(&mut self) -> Result<bool, Error> {
        match self.returned.take() {
            Ok(true) => drop(self.connection.query(&["PING"])?),
            Ok(false) => {}
            // The subscription ended at the stop, and the thread still writes its queue.
            Err(Closed { .. }) => self.returned = WakeUp::never(),
        }
        let emptied = self.emptied.1.take() == Ok(true);
        let generation = self.connection.generation();
        if std::mem::replace(&mut self.generation, generation) == generation && !emptied {
            return Ok(false);
        }
        self.syncd_generation.write(&mut self.connection)?;
        if !self.exact {
            self.connection.query(&["SET", RAN, "1"])?;
        }
        Ok(true)
    }

    fn write(&mut self, change: AsicChange) -> Result<(), TableError> {
        let (rows, key) = (&mut self.connection, &mut self.key);
        let mut place = |object, id: &ObjectId| {
            key.truncate(self.prefix);
            text::write_row_key(object, id, key);
        };
        let set = |rows: &mut Connection, key: &str, attrs: &[Attr]| {
            rows.queue_with(|command| {
                command.arg("HSET");
                command.arg(key);
                text::row_fields(attrs, &mut |field, value| {
                    command.arg(field);
                    command.arg(value);
                });
            });
        };
        match change {
            AsicChange::Set(object, id, attrs) => {
                place(object, &id);
                set(rows, key, &attrs);
            }
            AsicChange::SetEntry(object, entry, attrs) => {
                key.truncate(self.prefix);
                text::write_entry_key(object, &entry, key);
                set(rows, key, &attrs);
            }
            AsicChange::RemoveEntry(object, entry) => {
                key.truncate(self.prefix);
                text::write_entry_key(object, &entry, key);
                rows.queue(&["DEL", key]);
            }
            AsicChange::Remove(object, id) => {
                place(object, &id);
                rows.queue(&["DEL", key]);
            }
            AsicChange::Map(vid, rid) => {
                let (vid, rid) = (vid.to_string(), rid.to_string());
                rows.queue(&["HSET", MAPS[0], &vid, &rid]);
                rows.queue(&["HSET", MAPS[1], &rid, &vid]);
            }
            AsicChange::Unmap(vid, rid) => {
                rows.queue(&["HDEL", MAPS[0], &vid.to_string()]);
                rows.queue(&["HDEL", MAPS[1], &rid.to_string()]);
            }
            AsicChange::Hidden(attr) => {
                let mut value = String::new();
                attr.write_value(&mut value);
                rows.queue(&["HSET", HIDDEN, attr.name(), &value]);
                for vid in attr.clone().oids_mut() {
                    let object = vid.object_type().map_or("SAI_OBJECT_TYPE_NULL", ObjectType::name);
                    rows.queue(&["HSET", COLD_VIDS, &vid.to_string(), object]);
                }
            }
            AsicChange::View(true) => rows.queue(&["SET", IN_VIEW, "1"]),
            AsicChange::View(false) => rows.queue(&["DEL", IN_VIEW]),
            AsicChange::Wipe => {
                let pattern = format!("{}*", rows.database().key(ASIC_STATE, ""));
                rows.scan(&pattern, |connection, names| {
                    names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
                    connection.flush()
                })?;
                rows.queue(&["DEL", HIDDEN, COLD_VIDS, MAPS[0], MAPS[1], IN_VIEW]);
            }
        }
        Ok(())
    }
}
