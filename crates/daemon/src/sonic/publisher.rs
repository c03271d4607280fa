//! Tells whoever wants to know what became of routes, as SONiC does: a row of APPL_STATE_DB, and a message on a channel.
//!
//! A thread of its own does it, and no route waits for it: it follows at a record's [`Pace`], unless what it publishes is how
//! fpmsyncd hears of routes. So it may fall behind by a whole table; what waits is one entry a route, the
//! latest, and a route that was answered twice meanwhile is published once. A message that nobody would hear is not sent.

use super::Error;
use ribtide_prefix::Map;
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::row::{Name, ROUTE_RESPONSE_CHANNEL, RouteKey, RouteResponse, RouteStateRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Connection, Databases, Pace, PlainTable, Producer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Routes that are published at once at most.
const BATCH: usize = 10_000;
/// What waits usually takes no more room than this many entries.
const USUAL: usize = 16_384;

/// The side that has answers.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    pace: Pace,
    /// None only while it is dropped.
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// What is to be published.
#[derive(Default)]
struct Waiting {
    /// First of all: these routes are confirmed and no others.
    all: Option<Vec<RouteResponse>>,
    /// Routes in the order in which they were answered first, and what each was answered last: the row's protocol, or that
    /// it is gone.
    order: VecDeque<RouteKey>,
    last: Map<RouteKey, Option<Name>>,
    /// Since when something waits.
    since: Option<Instant>,
    /// Something that was taken is being published.
    busy: bool,
    /// Nothing more comes.
    over: bool,
    failed: Option<Error>,
}

/// What is published at once.
struct Batch {
    responses: Vec<RouteResponse>,
    /// There are no others: rows of others go.
    all: bool,
}

impl Waiting {
    fn add(&mut self, response: RouteResponse) {
        let RouteResponse { key, protocol, .. } = response;
        if self.last.insert(key.clone(), protocol).is_none() {
            self.order.push_back(key);
        }
    }

    /// At most as many as `room` says for what waits since then.
    fn take(&mut self, room: impl Fn(Instant) -> usize) -> Option<(Batch, Instant)> {
        let since = self.since?;
        if let Some(responses) = self.all.take() {
            return Some((Batch { responses, all: true }, since));
        }
        let count = self.order.len().min(room(since));
        let last = &mut self.last;
        let take = |key| last.remove_entry(&key).map(|(key, protocol)| RouteResponse::success(key, protocol));
        let responses: Vec<_> = self.order.drain(..count).filter_map(take).collect();
        if self.order.is_empty() {
            self.since = None;
            if self.last.capacity() > USUAL {
                (self.order, self.last) = Default::default();
            }
        }
        (count > 0).then_some((Batch { responses, all: false }, since))
    }

    fn is_empty(&self) -> bool {
        self.all.is_none() && self.order.is_empty()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, waited for; `None` when there is none any more.
    fn next(&self, pace: &Pace) -> Option<(Batch, Instant)> {
        let mut waiting = self.lock();
        waiting.busy = false;
        loop {
            if let Some(batch) = waiting.take(|since| pace.rows(BATCH, since, false)) {
                waiting.busy = true;
                return Some(batch);
            }
            if waiting.over {
                return None;
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Publisher {
    /// Publishes from here on. What an earlier run confirmed is forgotten, unless it `keeps` it until
    /// [`Publisher::reconcile`].
    pub(super) fn start(databases: &Databases, keeps: bool, stop: &Stop) -> Result<Publisher, Error> {
        let mut published = Published {
            rows: PlainTable::open(databases, stop)?,
            channel: Connection::open(databases.get(Db::ApplState), stop)?,
        };
        if !keeps {
            published.forget()?;
        }
        let shared = Arc::<Shared>::default();
        let pace = Pace::default();
        let (waiting, its_pace) = (shared.clone(), pace.clone());
        let body = move || {
            its_pace.begin();
            while let Some((batch, since)) = waiting.next(&its_pace) {
                let begin = Instant::now();
                if let Err(e) = published.publish(batch) {
                    let mut waiting = waiting.lock();
                    (waiting.failed, waiting.over, waiting.busy) = (Some(e), true, false);
                    return;
                }
                its_pace.rest(begin.elapsed(), since, || false);
            }
        };
        let thread = thread::spawn("publisher", body)
            .map_err(|e| Error::new(format!("no thread to publish on: {e}")))?;
        Ok(Publisher { shared, pace, thread: Some(thread) })
    }

    /// Whether somebody waits for what is published.
    pub(super) fn awaited(&self, awaited: bool) {
        self.pace.awaited(awaited);
    }

    /// Publishes these when it gets to it.
    pub(super) fn publish(&mut self, responses: impl Iterator<Item = RouteResponse>) -> Result<(), Error> {
        self.tell(|waiting| responses.for_each(|response| waiting.add(response)))
    }

    /// After a warm start: these are all that there are.
    pub(super) fn reconcile(&mut self, responses: Vec<RouteResponse>) -> Result<(), Error> {
        self.tell(|waiting| {
            *waiting = Waiting { all: Some(responses), busy: waiting.busy, ..Waiting::default() }
        })
    }

    fn tell(&mut self, tell: impl FnOnce(&mut Waiting)) -> Result<(), Error> {
        let mut waiting = self.shared.lock();
        if let Some(e) = waiting.failed.take() {
            return Err(e);
        }
        let (slept, now) = (waiting.is_empty() && !waiting.busy, Instant::now());
        tell(&mut waiting);
        waiting.since.get_or_insert(now);
        drop(waiting);
        self.pace.came(now);
        if slept {
            self.shared.more.notify_one();
        }
        Ok(())
    }

    /// Whether everything is published.
    pub(super) fn is_idle(&self) -> bool {
        let waiting = self.shared.lock();
        waiting.is_empty() && !waiting.busy
    }
}

impl Drop for Publisher {
    /// What waits is still published.
    fn drop(&mut self) {
        self.pace.awaited(true);
        self.shared.lock().over = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where it is published.
struct Published {
    rows: PlainTable<RouteStateRow>,
    channel: Connection,
}

impl Published {
    fn forget(&mut self) -> Result<(), Error> {
        let rows = self.channel.database().key(RouteStateRow::TABLE, "");
        Ok(self.channel.scan(&format!("{rows}*"), |connection, names| {
            names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
            connection.flush()
        })?)
    }

    fn publish(&mut self, Batch { responses, all }: Batch) -> Result<(), Error> {
        let mut there = BTreeMap::new();
        if all {
            self.rows.rows(|key, row| drop(there.insert(key, row)))?;
        }
        // As in SONiC: the row of a route that was confirmed, no row for one that went. The row first: who hears the message
        // may look for it.
        let mut rows = Vec::with_capacity(responses.len());
        for RouteResponse { key, protocol, .. } in &responses {
            let row = protocol.clone().map(|protocol| RouteStateRow { protocol: Some(protocol) });
            if all && row.is_some() && there.remove(key) == row {
                continue;
            }
            rows.push(Change { key: key.clone(), row, reshaped: false });
        }
        rows.extend(there.into_keys().map(Change::del));
        if !rows.is_empty() {
            self.rows.write(&mut rows)?;
            self.rows.flush()?;
        }
        if self.is_heard()? {
            for response in &responses {
                self.channel.queue(&["PUBLISH", ROUTE_RESPONSE_CHANNEL, &response.message()]);
            }
            self.channel.flush()?;
        }
        Ok(())
    }

    /// Whether anybody listens: to the channel, or to a pattern that may be its name.
    fn is_heard(&mut self) -> Result<bool, Error> {
        let by_name = self.channel.ask(&["PUBSUB", "NUMSUB", ROUTE_RESPONSE_CHANNEL])?.into_pairs();
        let named = by_name.first().is_some_and(|(_, count)| count != "0");
        Ok(named || self.channel.ask(&["PUBSUB", "NUMPAT"])?.as_integer().is_some_and(|count| count > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::RouteRow;

    fn response(n: u32, protocol: Option<&str>) -> RouteResponse {
        let key = RouteRow::parse_key(&format!("10.{}.{}.0/24", n >> 8, n & 255)).unwrap();
        RouteResponse::success(key, protocol.map(Name::from))
    }

    #[test]
    fn what_waits_is_one_entry_a_route_and_the_latest() {
        let mut waiting = Waiting::default();
        for round in 0..5 {
            for n in 0..3000 {
                let protocol =
                    if round == 4 && n % 2 == 1 { None } else { Some(["bgp", "static"][round % 2]) };
                waiting.add(response(n, protocol));
            }
            assert_eq!((waiting.order.len(), waiting.last.len()), (3000, 3000));
        }
        waiting.since = Some(Instant::now());
        let some = |_| 1000;
        let (first, _) = waiting.take(some).unwrap();
        let wanted = |n: u32| response(n, n.is_multiple_of(2).then_some("bgp"));
        assert_eq!(first.responses, (0..1000).map(wanted).collect::<Vec<_>>());
        // One that was taken and is answered again is another entry.
        waiting.add(response(0, Some("bgp")));
        assert_eq!(waiting.order.len(), 2001);
        let taken = std::iter::from_fn(|| waiting.take(some));
        let rest: Vec<_> = taken.flat_map(|(batch, _)| batch.responses).collect();
        assert_eq!(rest, (1000..3000).chain([0]).map(wanted).collect::<Vec<_>>());
        assert!(waiting.is_empty() && waiting.since.is_none() && waiting.take(some).is_none());
        (waiting.all, waiting.since) = (Some(vec![response(7, Some("bgp"))]), Some(Instant::now()));
        assert!(waiting.take(some).is_some_and(|(batch, _)| batch.all && batch.responses.len() == 1));
    }
}
