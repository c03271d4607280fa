//! The transport of fpmsyncd to orchagent: ROUTE_TABLE and LABEL_ROUTE_TABLE through Redis, or over
//! ZeroMQ with APPL_DB as a mirror.
//!
//! Over ZeroMQ a lost connection loses the messages in flight, so fpmsyncd resends every row on each
//! new connection ([`ResyncState`]).

use super::settings::Settings;
use super::{Daemon, Error};
use clap::Args;
use ribtide_runtime::gauge::Gauge;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_settings::Persistence;
use ribtide_swss::fpmsyncd::{ResendKind, ResyncState};
use ribtide_swss::row::{LabelKey, LabelRouteRow, RouteKey, RouteRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::zmq::{Endpoint, WINDOW, ZmqProducer};
use ribtide_tables::{LagLimits, Pipeline, PlainTable, Producer, ProducerStateTable, WriteBehind};
use std::time::Duration;

/// The port of orchagent for tables; on a host with several ASICs each namespace has its own.
pub(super) const PORT: u16 = 8100;

/// The port in this namespace.
pub(super) fn port() -> u16 {
    in_namespace(PORT)
}

/// The port in this namespace that corresponds to `port` on a host with one ASIC.
pub(super) fn in_namespace(port: u16) -> u16 {
    let namespace = ribtide_tables::namespace_id();
    namespace.map_or(port, |id| port.saturating_add(id).saturating_add(1))
}

/// The pace and the limits of a write-behind database.
#[derive(Args, Clone, Copy, Debug)]
pub struct Lag {
    /// The most rows that wait for a write-behind database, in whole thousands. Routes wait while there are
    /// as many
    #[arg(long, value_name = "ROWS", default_value_t = 2_048_000)]
    pub write_behind_max: usize,
    /// The pace of a write-behind database, and no bound: once a row waits half of this, rows are written at
    /// full speed. 0: once a row is 10 s old
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub write_behind_max_age: u64,
    /// Make --write-behind-max-age a bound: routes wait rather than exceed it, so a burst goes as fast as
    /// Redis takes its rows
    #[arg(long)]
    pub write_behind_wait: bool,
}

impl Lag {
    pub(super) fn limits(self) -> LagLimits {
        let age = (self.write_behind_max_age > 0).then(|| Duration::from_millis(self.write_behind_max_age));
        LagLimits { rows: self.write_behind_max, age, waits: self.write_behind_wait }
    }

    /// Notes its settings.
    pub(super) fn note(self, settings: &mut Settings) {
        settings.note("--write-behind-max", self.write_behind_max, self.write_behind_max, "");
        settings.note("--write-behind-max-age", self.write_behind_max_age, self.write_behind_max_age, "");
        let waits = if self.write_behind_wait { "enabled" } else { "disabled" };
        settings.note("--write-behind-wait", waits, waits, "");
    }
}

/// A row of a table that has resyncs.
pub(super) trait ResyncRow: Row {
    /// The key whose SET begins a resync and whose DEL ends it.
    const RESYNC: Self::Key;
}

impl ResyncRow for RouteRow {
    const RESYNC: RouteKey = RouteKey::Resync;
}

impl ResyncRow for LabelRouteRow {
    const RESYNC: LabelKey = LabelKey::Resync;
}

/// How much of the written rows orchagent has, or can read from APPL_DB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandedOver {
    /// All of it, as far as the consumer reports it.
    All,
    /// Not all: the caller must wait before it writes more.
    Some,
    /// No orchagent consumes.
    Nothing,
}

/// The writing side of such a table.
pub(super) enum Routes<R: ResyncRow> {
    /// Through APPL_DB.
    Redis(Box<RedisRoutes<R>>),
    /// Over ZeroMQ.
    Zmq(Box<ZmqRoutes<R>>),
}

impl<R: ResyncRow> Routes<R> {
    pub(super) fn redis(
        pipeline: Pipeline,
        flush: Option<Meter>,
        daemon: &Daemon,
    ) -> Result<Routes<R>, Error> {
        let table = || ProducerStateTable::open(&daemon.databases, pipeline, &daemon.stop);
        let written = WriteBehind::full_speed(table()?, pipeline.capacity, flush, &daemon.rings)?;
        Ok(Routes::Redis(Box::new(RedisRoutes { written, stored: table()? })))
    }

    /// Sends waiting messages over ZeroMQ, and returns whether a resend of all rows is due; with `true` as a resync. No
    /// resend is due while routes are `held` back until the routing daemon's replay is over; `replayed`: it is.
    pub(super) fn resend_due(&mut self, held: bool, replayed: bool) -> Option<bool> {
        let Routes::Zmq(zmq) = self else { return None };
        if held {
            zmq.go_on();
            return None;
        }
        match zmq.look(replayed) {
            ResendScope::Changes => None,
            ResendScope::Everything => Some(false),
            ResendScope::Resync => Some(true),
        }
    }

    /// Begins a resend of all rows, as a resync if `as_resync`. Returns the kind of its rows; `None` through Redis.
    pub(super) fn begin_resend(&mut self, as_resync: bool) -> Option<ResendKind> {
        match self {
            Routes::Redis(_) => None,
            Routes::Zmq(zmq) => Some(zmq.begin_resend(as_resync)),
        }
    }

    /// Whether a resend is going on. A lost connection ends it.
    pub(super) fn is_resending(&self) -> bool {
        matches!(self, Routes::Zmq(zmq) if zmq.state.resending().is_some() && zmq.producer.is_connected())
    }

    /// Sends rows of the resend, and its end after the `last`.
    pub(super) fn resend(&mut self, rows: &mut Vec<Change<R>>, last: bool) {
        if let Routes::Zmq(zmq) = self {
            zmq.resend(rows, last);
        }
    }

    /// Begins a resend of all rows as new, after Redis may have lost rows: orchagent's responses write APPL_STATE_DB again.
    /// As [`Routes::begin_resend`].
    pub(super) fn resend_as_new(&mut self) -> Option<ResendKind> {
        let Routes::Zmq(zmq) = self else { return None };
        let as_resync = zmq.state.resending().unwrap_or(false);
        zmq.begin_resend(as_resync);
        Some(ResendKind::AsNew)
    }

    /// Writes rows to APPL_DB only, unless it is the transport to orchagent.
    pub(super) fn keep(&mut self, rows: &mut Vec<Change<R>>) -> Result<(), Error> {
        match self {
            Routes::Redis(redis) => Ok(redis.written.write(rows)?),
            Routes::Zmq(zmq) => {
                zmq.keep(rows)?;
                rows.clear();
                Ok(())
            }
        }
    }

    /// Every row in APPL_DB, pending ones of the write-behind queue apart, and whether orchagent
    /// has not consumed it yet.
    pub(super) fn rows(&mut self, each: impl FnMut(R::Key, R, bool)) -> Result<(), Error> {
        match self {
            Routes::Redis(redis) => {
                redis.stored.rows(each)?;
                // It is read again only after a loss of Redis.
                redis.stored.shrink_to_fit();
                Ok(())
            }
            Routes::Zmq(zmq) => zmq.rows(each),
        }
    }

    /// Writes changes; through APPL_DB on a thread of its own, so that decoding continues and
    /// changes coalesce.
    pub(super) fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        match self {
            Routes::Redis(redis) => Ok(redis.written.write(changes)?),
            Routes::Zmq(zmq) => zmq.write(changes),
        }
    }

    /// Sends rows again for their responses. APPL_DB has them already, so they go there only if it
    /// is the transport to orchagent.
    pub(super) fn request_responses(&mut self, rows: &mut Vec<Change<R>>) -> Result<(), Error> {
        match self {
            Routes::Redis(_) => self.write(rows),
            Routes::Zmq(zmq) => {
                zmq.send(rows);
                Ok(())
            }
        }
    }

    /// What was written to APPL_DB until now, for [`Routes::is_past`]; `None`: nothing is.
    pub(super) fn fence(&self) -> Option<u64> {
        match self {
            Routes::Redis(redis) => Some(redis.written.fence()),
            Routes::Zmq(zmq) => match &zmq.kept {
                Kept::Off => None,
                Kept::WriteBehind(table) => Some(table.fence()),
                Kept::InLine(_) => Some(0),
            },
        }
    }

    /// Whether APPL_DB has everything before the fence.
    pub(super) fn is_past(&self, fence: u64) -> bool {
        match self {
            Routes::Redis(redis) => redis.written.is_past(fence),
            Routes::Zmq(zmq) => match &zmq.kept {
                Kept::Off | Kept::InLine(_) => true,
                Kept::WriteBehind(table) => table.is_past(fence),
            },
        }
    }

    /// Whether everything is written to APPL_DB, if it is the transport to orchagent;
    /// [`Routes::wake_up`] reports a change.
    pub(super) fn is_written(&self) -> Result<bool, Error> {
        match self {
            Routes::Redis(redis) => Ok(redis.written.is_settled()?),
            Routes::Zmq(_) => Ok(true),
        }
    }

    /// Waits for that, not for orchagent.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        match self {
            Routes::Redis(redis) => Ok(redis.written.settle()?),
            Routes::Zmq(_) => Ok(()),
        }
    }

    /// The gauge of rows on the way to orchagent, for [`Rings`].
    pub(super) fn note_depths(&self) {
        if let Routes::Zmq(zmq) = self {
            zmq.waits.set(zmq.producer.waiting());
            zmq.unacknowledged.set(usize::try_from(zmq.producer.unacknowledged()).unwrap_or(usize::MAX));
        }
    }

    /// How much of the written rows orchagent has, or can read from APPL_DB.
    pub(super) fn handed_over(&self) -> Result<HandedOver, Error> {
        Ok(match self {
            // Rows that wait for the consumption of others keep waiting.
            Routes::Redis(_) if self.is_written()? => HandedOver::All,
            Routes::Redis(_) => HandedOver::Some,
            Routes::Zmq(zmq) if !zmq.producer.is_connected() => HandedOver::Nothing,
            Routes::Zmq(zmq) if zmq.producer.is_acknowledged() && !zmq.producer.is_taken() => {
                HandedOver::Some
            }
            Routes::Zmq(_) => HandedOver::All,
        })
    }

    /// Keys that orchagent has not consumed from APPL_DB.
    pub(super) fn queued(&mut self) -> Result<Vec<R::Key>, Error> {
        match self {
            Routes::Redis(redis) => {
                let queued = redis.stored.queued()?;
                redis.stored.shrink_to_fit();
                Ok(queued)
            }
            Routes::Zmq(_) => Ok(Vec::new()),
        }
    }

    /// Wakes the caller when there may be room, or everything is written.
    pub(super) fn wake_up(&self) -> &WakeUp {
        match self {
            Routes::Redis(redis) => redis.written.wake_up(),
            Routes::Zmq(zmq) => zmq.producer.wake_up(),
        }
    }

    /// How often Redis was lost and found again.
    pub(super) fn generation(&self) -> u64 {
        match self {
            Routes::Redis(redis) => redis.written.generation(),
            Routes::Zmq(zmq) => zmq.kept.generation(),
        }
    }

    /// Whether changes would leave this process; without a connected orchagent they go to APPL_DB. Not
    /// while rows wait for older ones (--write-behind-wait).
    pub(super) fn has_room(&self) -> bool {
        match self {
            Routes::Redis(redis) => redis.written.has_room(),
            Routes::Zmq(zmq) => {
                zmq.kept.admits_rows() && (!zmq.producer.is_connected() || zmq.producer.has_room())
            }
        }
    }

    /// Takes the wake-up of APPL_DB's writer, if routes go over ZeroMQ: the stage then checks
    /// [`Routes::has_room`].
    pub(super) fn begin_round(&self) {
        if let Some(written) = self.written() {
            let _ = written.take();
        }
    }

    /// Wakes the caller when APPL_DB may be less far behind, if routes go over ZeroMQ.
    pub(super) fn written(&self) -> Option<&WakeUp> {
        match self {
            Routes::Zmq(zmq) => match &zmq.kept {
                Kept::WriteBehind(table) => Some(table.wake_up()),
                Kept::Off | Kept::InLine(_) => None,
            },
            Routes::Redis(_) => None,
        }
    }
}

/// Through Redis.
pub(super) struct RedisRoutes<R: Row> {
    written: WriteBehind<R>,
    /// Reads stored rows; the writing thread has the other connection.
    stored: ProducerStateTable<R>,
}

/// Over ZeroMQ.
pub(super) struct ZmqRoutes<R: Row> {
    pub(super) producer: ZmqProducer<R>,
    kept: Kept<R>,
    stored: Option<PlainTable<R>>,
    state: ResyncState,
    /// Rows without room, and unacknowledged messages.
    waits: Gauge,
    unacknowledged: Gauge,
}

/// The mirror in APPL_DB.
enum Kept<R: Row> {
    Off,
    WriteBehind(WriteBehind<R>),
    InLine(Box<PlainTable<R>>),
}

impl<R: Row> Kept<R> {
    fn admits_rows(&self) -> bool {
        match self {
            Kept::Off | Kept::InLine(_) => true,
            Kept::WriteBehind(table) => table.admits_rows(),
        }
    }

    fn generation(&self) -> u64 {
        match self {
            Kept::Off => 0,
            Kept::WriteBehind(table) => table.generation(),
            Kept::InLine(table) => table.generation(),
        }
    }
}

impl<R: ResyncRow> ZmqRoutes<R> {
    pub(super) fn open(
        endpoint: Endpoint,
        (persistence, lag): (Persistence, Lag),
        daemon: &Daemon,
    ) -> Result<Routes<R>, Error> {
        let Daemon { rings, stop, .. } = daemon;
        let table = || daemon.plain::<R>();
        let kept = match persistence {
            Persistence::Off => {
                forget::<R>(daemon)?;
                Kept::Off
            }
            Persistence::WriteBehind => {
                Kept::WriteBehind(WriteBehind::low_priority(table()?, lag.limits(), rings)?)
            }
            Persistence::InLine => Kept::InLine(Box::new(table()?)),
        };
        let stored = (persistence != Persistence::Off).then(table).transpose()?;
        Ok(Routes::Zmq(Box::new(ZmqRoutes {
            producer: ZmqProducer::connect(endpoint, rings, stop)?,
            kept,
            stored,
            state: ResyncState::new(persistence == Persistence::InLine),
            waits: rings.gauge(format!("{} rows that wait for ZeroMQ", R::TABLE), None),
            unacknowledged: rings
                .gauge(format!("{} messages without an acknowledgement", R::TABLE), Some(WINDOW as usize)),
        })))
    }

    fn rows(&mut self, mut each: impl FnMut(R::Key, R, bool)) -> Result<(), Error> {
        match &mut self.stored {
            Some(table) => Ok(table.rows(|key, row| each(key, row, false))?),
            None => Ok(()),
        }
    }

    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
        self.keep(changes)?;
        self.send(changes);
        Ok(())
    }

    fn send(&mut self, changes: &mut Vec<Change<R>>) {
        if !changes.is_empty() {
            self.state.wrote(self.producer.is_connected());
            self.producer.send(changes);
        }
    }

    fn keep(&mut self, changes: &[Change<R>]) -> Result<(), Error> {
        match &mut self.kept {
            Kept::Off => {}
            Kept::WriteBehind(table) => table.enqueue(changes)?,
            Kept::InLine(table) => {
                table.write(&mut changes.to_vec())?;
                table.flush()?;
            }
        }
        Ok(())
    }

    /// Sends waiting messages, and returns what to resend.
    fn look(&mut self, replayed: bool) -> ResendScope {
        if self.producer.renewed() && self.state.connected(replayed, self.producer.is_acknowledged()) {
            return ResendScope::Everything;
        }
        self.producer.resume();
        let is_free = self.producer.is_acknowledged() && self.producer.has_room();
        match self.state.is_resync_due(replayed, is_free) {
            true => ResendScope::Resync,
            false => ResendScope::Changes,
        }
    }

    /// Sends waiting messages only, while the rows are not known.
    fn go_on(&mut self) {
        // This is the check that follows a wake-up.
        let _ = self.producer.wake_up().take();
        self.producer.resume();
    }

    fn begin_resend(&mut self, as_resync: bool) -> ResendKind {
        if as_resync {
            self.producer.send(&mut vec![begin_resync()]);
        }
        self.state.begin(as_resync, self.producer.is_acknowledged())
    }

    fn resend(&mut self, rows: &mut Vec<Change<R>>, last: bool) {
        if last && self.state.end() {
            rows.push(Change::del(R::RESYNC));
        }
        self.producer.send(rows);
    }
}

/// What to send to orchagent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ResendScope {
    /// Changes only.
    Changes,
    /// Every row.
    Everything,
    /// Every row, as a resync.
    Resync,
}

fn begin_resync<R: ResyncRow>() -> Change<R> {
    let row = R::from_fields(&mut [("nexthop", "0.0.0.0")].into_iter());
    Change::set(R::RESYNC, row.expect("an address is a next hop"))
}

/// Deletes the rows of an earlier run, which a starting orchagent would take for present.
fn forget<R: Row>(daemon: &Daemon) -> Result<(), Error> {
    let mut appl = daemon.connect(Db::Appl)?;
    let rows = appl.database().key(R::TABLE, "");
    Ok(appl.scan(&format!("{rows}*"), |connection, names| {
        names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
        connection.flush()
    })?)
}
