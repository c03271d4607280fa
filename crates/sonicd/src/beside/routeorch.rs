//! Rows of routes that SONiC's RouteOrch makes: EVPN, SRv6, indexes of NEXTHOP_GROUP_TABLE (its
//! NhgOrch takes that table), PIC contexts, and prefixes of fine-grained ECMP. ribtide sends it these
//! rows over ZeroMQ, and programs the others.

use super::stage::FromOrch;
use crate::orch_stage::{Feed, TableFeed};
use crate::recorder::Recording;
use crate::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::ring;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::{Field, LabelKey, LabelRouteRow, RouteKey, RouteRow, Via};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::zmq::{Endpoint, Process, ZmqProducer};
use ribtide_tables::{Consumer, TableError};

/// Fields of rows that ribtide's orchagent does not program beside SONiC's.
const FIELDS: [Field; 7] = [
    Field::NexthopGroup,
    Field::VniLabel,
    Field::RouterMac,
    Field::Segment,
    Field::SegSrc,
    Field::VpnSid,
    Field::PicContextId,
];

fn needs_routeorch(via: &Via) -> bool {
    FIELDS.iter().any(|field| !via.get(*field).is_empty())
}

/// A table that is split: RouteOrch gets some rows, ribtide's orchagent the others.
pub(crate) trait SplitRow: Row {
    /// The key of the destination, in the form that rows have for RouteOrch; `None` for a step of a
    /// resync.
    fn destination(key: &Self::Key) -> Option<Self::Key>;

    /// Whether the key begins (`Some(true)`) or ends a resync.
    fn resync(change: &Change<Self>) -> Option<bool>;

    /// Whether only RouteOrch can program the row.
    fn needs_routeorch(&self, key: &Self::Key, fine_grained: &Set<AnyPrefix>) -> bool;

    /// The message that RouteOrch now programs these destinations (`true`), or no longer does.
    fn message(keys: &[(Self::Key, bool)]) -> FromOrch;
}

impl SplitRow for RouteRow {
    fn destination(key: &RouteKey) -> Option<RouteKey> {
        match key {
            RouteKey::Resync => None,
            RouteKey::Resent { vrf, prefix } | RouteKey::Route { vrf, prefix, .. } => {
                Some(RouteKey::new(vrf.clone(), *prefix))
            }
        }
    }

    fn resync(change: &Change<Self>) -> Option<bool> {
        matches!(change.key, RouteKey::Resync).then_some(change.row.is_some())
    }

    fn needs_routeorch(&self, key: &RouteKey, fine_grained: &Set<AnyPrefix>) -> bool {
        let prefix = match key {
            RouteKey::Route { prefix, .. } if !fine_grained.is_empty() => Some(prefix),
            _ => None,
        };
        needs_routeorch(&self.via) || prefix.is_some_and(|prefix| fine_grained.contains(prefix))
    }

    fn message(keys: &[(RouteKey, bool)]) -> FromOrch {
        let route = |(key, by_routeorch): &(RouteKey, bool)| match key {
            RouteKey::Route { vrf, prefix, .. } => Some((vrf.clone(), *prefix, *by_routeorch)),
            _ => None,
        };
        FromOrch::Routes(keys.iter().filter_map(route).collect())
    }
}

impl SplitRow for LabelRouteRow {
    fn destination(key: &LabelKey) -> Option<LabelKey> {
        matches!(key, LabelKey::Label(_)).then(|| *key)
    }

    fn resync(change: &Change<Self>) -> Option<bool> {
        (!matches!(change.key, LabelKey::Label(_))).then_some(change.row.is_some())
    }

    fn needs_routeorch(&self, _: &LabelKey, _: &Set<AnyPrefix>) -> bool {
        needs_routeorch(&self.via)
    }

    fn message(keys: &[(LabelKey, bool)]) -> FromOrch {
        let label = |(key, by_routeorch): &(LabelKey, bool)| match key {
            LabelKey::Label(label) => Some((*label, *by_routeorch)),
            _ => None,
        };
        FromOrch::Labels(keys.iter().filter_map(label).collect())
    }
}

/// The consumer of a table, without the rows that it sends to RouteOrch.
pub(crate) struct Split<R: SplitRow, C> {
    consumer: C,
    /// RouteOrch.
    producer: ZmqProducer<R>,
    /// Its rows, which a restarted RouteOrch gets again.
    rows: Map<R::Key, R>,
    /// The rows of the resync in progress.
    resent: Option<Set<R::Key>>,
    fine_grained: Set<AnyPrefix>,
    machine: ring::Sender<FromOrch>,
    out: Vec<Change<R>>,
}

impl<R: SplitRow, C> Split<R, C> {
    /// Sends the rows that wait for a connection or for room.
    fn resume(&mut self) {
        if self.producer.renewed() {
            let mut all = self.rows.iter().map(|(key, row)| Change::set(key.clone(), row.clone())).collect();
            self.producer.send(&mut all);
        }
        self.producer.resume();
    }

    /// Sends RouteOrch its rows and keeps the others in `changes`.
    fn split(&mut self, changes: &mut Vec<Change<R>>) {
        let mut messages = Vec::new();
        changes.retain_mut(|change| self.keeps(change, &mut messages));
        if !messages.is_empty() {
            // Before the rows: a request of RouteOrch about them must find the message. The thread
            // that takes it waits for none of this one.
            let _ = self.machine.send(R::message(&messages));
        }
        if !self.out.is_empty() {
            self.producer.send(&mut self.out);
        }
    }

    /// Whether ribtide's orchagent gets the change, perhaps as a deletion.
    fn keeps(&mut self, change: &mut Change<R>, messages: &mut Vec<(R::Key, bool)>) -> bool {
        if let Some(begins) = R::resync(change) {
            match begins {
                true => self.resent = Some(Set::default()),
                false => self.end_resync(messages),
            }
            return true;
        }
        // The usual row costs a look at its fields.
        let plain = |row: &R, key: &R::Key| !row.needs_routeorch(key, &self.fine_grained);
        if self.rows.is_empty() && change.row.as_ref().is_none_or(|row| plain(row, &change.key)) {
            return true;
        }
        let Some(key) = R::destination(&change.key) else { return true };
        let by_routeorch =
            change.row.as_ref().is_some_and(|row| row.needs_routeorch(&key, &self.fine_grained));
        if let (true, Some(resent)) = (by_routeorch, &mut self.resent) {
            resent.insert(key.clone());
        }
        match (self.rows.contains_key(&key), by_routeorch) {
            (false, false) => true,
            (true, false) => {
                self.rows.remove(&key);
                messages.push((key.clone(), false));
                self.out.push(Change::del(key));
                // RouteOrch deletes the row and responds.
                change.row.is_some()
            }
            (known, true) => {
                if let Some(row) = change.row.take() {
                    self.rows.insert(key.clone(), row.clone());
                    self.out.push(Change::set(key.clone(), row));
                }
                if !known {
                    messages.push((key, true));
                }
                // The earlier row of ribtide's orchagent is deleted.
                !known
            }
        }
    }

    fn end_resync(&mut self, messages: &mut Vec<(R::Key, bool)>) {
        let Some(resent) = self.resent.take() else { return };
        let stale: Vec<R::Key> = self.rows.keys().filter(|key| !resent.contains(*key)).cloned().collect();
        for key in stale {
            self.rows.remove(&key);
            messages.push((key.clone(), false));
            self.out.push(Change::del(key));
        }
    }
}

impl<R: SplitRow, C: Consumer<R>> Consumer<R> for Split<R, C> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let more = self.consumer.pop(max, changes)?;
        self.split(changes);
        Ok(more)
    }

    fn wake_up(&self) -> &WakeUp {
        self.consumer.wake_up()
    }

    fn shrink_to_fit(&mut self) {
        self.consumer.shrink_to_fit();
    }

    fn set_fence(&mut self, from: Option<Process>) {
        self.consumer.set_fence(from);
    }

    fn is_past_fence(&mut self) -> bool {
        self.consumer.is_past_fence()
    }

    fn hold(&mut self, held: bool) {
        self.consumer.hold(held);
    }

    fn is_drained(&self) -> bool {
        self.consumer.is_drained()
    }
}

/// A [`Feed`] of a table that is split.
pub(crate) struct RouteOrchRows<R: SplitRow, C: Consumer<R> + Send + 'static>(TableFeed<R, Split<R, C>>);

impl<R: SplitRow, C: Consumer<R> + Send + 'static> RouteOrchRows<R, C> {
    /// Splits the rows of `consumer`; `feed` makes the feed of those of ribtide's orchagent. Reads
    /// the prefixes of fine-grained ECMP once: a later change of FG_NHG_PREFIX needs a restart.
    ///
    /// # Errors
    /// A database that is not there, or no thread for the connection.
    pub(crate) fn new(
        consumer: C,
        (routes, machine): (&Endpoint, ring::Sender<FromOrch>),
        feed: impl FnOnce(Split<R, C>) -> TableFeed<R, Split<R, C>>,
        daemon: &Daemon,
    ) -> Result<Self, Error> {
        let split = Split {
            consumer,
            producer: ZmqProducer::connect(routes.clone(), &daemon.rings, &daemon.stop)?,
            rows: Map::default(),
            resent: None,
            fine_grained: fine_grained(daemon)?,
            machine,
            out: Vec::new(),
        };
        Ok(RouteOrchRows(feed(split)))
    }

    /// Splits rows that are in APPL_DB at the start; `take` gets the others.
    pub(crate) fn found(&mut self, mut rows: Vec<Change<R>>, take: impl FnMut(Change<R>)) {
        self.0.consumer_mut().split(&mut rows);
        rows.into_iter().filter(|change| change.row.is_some()).for_each(take);
    }
}

/// The prefixes of fine-grained ECMP (FG_NHG_PREFIX of CONFIG_DB).
fn fine_grained(daemon: &Daemon) -> Result<Set<AnyPrefix>, Error> {
    let mut config = daemon.connect(Db::Config)?;
    let begin = config.database().key("FG_NHG_PREFIX", "");
    let mut prefixes = Set::default();
    config.scan(&format!("{begin}*"), |_, names| {
        prefixes.extend(names.iter().filter_map(|name| name.strip_prefix(&begin)?.parse::<AnyPrefix>().ok()));
        Ok(())
    })?;
    Ok(prefixes)
}

impl<R: SplitRow, C: Consumer<R> + Send + 'static> Feed for RouteOrchRows<R, C> {
    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.0.watch(select);
        self.0.consumer().producer.wake_up().watch(select);
    }

    fn pop(&mut self, orch: &mut Orch, max: usize, record: Option<&mut Recording>) -> Result<usize, Error> {
        self.0.consumer_mut().resume();
        self.0.pop(orch, max, record)
    }

    fn expect_rows(&mut self) {
        self.0.expect_rows();
    }

    fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    fn set_fence(&mut self, from: Option<Process>) {
        self.0.set_fence(from);
    }

    fn is_past_fence(&mut self) -> bool {
        self.0.is_past_fence()
    }

    fn hold(&mut self, held: bool) {
        self.0.hold(held);
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }
}
