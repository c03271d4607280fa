//! Names work that waits without progress.
//!
//! A queue whose consumer takes nothing for the timeout, though the queue is not empty, is stalled. So
//! is a thread that waits so long for another process ([`PeerWait`]). A stall is logged once when it
//! is found, and once when it ends. A thread looks a few times within the timeout, and so does each
//! query; the threads that work only count.
//!
//! A consumer may wait for its own consumer. Of several stalled queues the last one in the order of a
//! route's path ([`registry`]) is the cause, unless its consumer waits for a peer.

use crate::log::target;
use crate::registry;
use crate::ring::{Progress, Rings};
use crate::thread::{self, Ends, Stop};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The time without progress after which work counts as stalled, unless a setting says otherwise.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest interval of looks.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Work that waits without progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stall {
    /// The queue, or the peer.
    pub what: String,
    /// The thread that took from the queue last, or waits for the peer. A queue from which nothing was
    /// ever taken has none.
    pub thread: Option<String>,
    /// What waits in the queue; 0 of a peer.
    pub depth: u64,
    /// How long.
    pub lasted: Duration,
    /// The stall that causes this one; `None` of a cause.
    pub behind: Option<String>,
}

/// The watchdog of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Watchdog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rings: Rings,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    /// The last look at each queue, by its number.
    seen: BTreeMap<u64, Seen>,
    /// The logged stalls, and whether the present look found them.
    logged: BTreeMap<String, bool>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    taken: u64,
    /// Since when nothing was taken although the queue was not empty.
    since: Option<Instant>,
}

impl Watchdog {
    /// A watchdog over `rings` that nothing starts: each [`Watchdog::look`] is a query.
    pub fn new(rings: Rings, timeout: Duration) -> Watchdog {
        Watchdog(Arc::new(Inner { rings, timeout, state: Mutex::default() }))
    }

    /// Starts the thread that looks until `stop`. A timeout of zero is none: nothing ever stalls.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(rings: Rings, timeout: Duration, stop: &Stop) -> io::Result<Watchdog> {
        let watchdog = Watchdog::new(rings, timeout);
        if timeout.is_zero() {
            return Ok(watchdog);
        }
        let (its, signal) = (watchdog.clone(), stop.signal());
        let interval = (timeout / 3).min(LOOK_INTERVAL_MAX);
        thread::spawn("watchdog", Ends::AtStop(stop.clone()), move || {
            while !signal.sleep(interval) {
                its.look(Instant::now());
            }
        })?;
        Ok(watchdog)
    }

    /// Everything that is stalled, causes first, by a look at all queues and peers now. Logs what
    /// began and what ended.
    pub fn look(&self, now: Instant) -> Vec<Stall> {
        let Inner { rings, timeout, state } = &*self.0;
        if timeout.is_zero() {
            return Vec::new();
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut queues, mut peers) = (Vec::new(), Vec::new());
        let mut seen = BTreeMap::new();
        for queue in rings.progress() {
            let since = since(state.seen.get(&queue.id), &queue, now);
            seen.insert(queue.id, Seen { taken: queue.taken, since });
            let lasted = since.map(|since| now.saturating_duration_since(since));
            if let Some(lasted) = lasted.filter(|lasted| lasted >= timeout) {
                queues.push((queue, lasted));
            }
        }
        state.seen = seen;
        for slot in slots().iter().filter_map(Weak::upgrade) {
            if let Some(lasted) = slot.lasted(now).filter(|lasted| lasted >= timeout) {
                peers.push((slot, lasted));
            }
        }
        let stalls = stalls(queues, &peers);
        state.log(&stalls);
        stalls
    }
}

/// Since when nothing was taken although the queue was not empty. A queue that was empty at the last
/// look, or from which a message was taken since, counts from this look.
fn since(before: Option<&Seen>, queue: &Progress, now: Instant) -> Option<Instant> {
    let waits = before.filter(|before| before.taken == queue.taken).and_then(|before| before.since);
    (queue.depth > 0).then(|| waits.unwrap_or(now))
}

fn stalls(queues: Vec<(Progress, Duration)>, peers: &[(Arc<Slot>, Duration)]) -> Vec<Stall> {
    let last = queues
        .iter()
        .filter_map(|(queue, _)| Some((registry::path_position(&queue.name)?, &queue.name)))
        .max()
        .map(|(_, name)| name.clone());
    let peer_of =
        |thread: u32| peers.iter().find(|(slot, _)| thread != 0 && slot.thread.load(Relaxed) == thread);
    let mut stalls: Vec<Stall> = peers
        .iter()
        .map(|(slot, lasted)| Stall {
            what: slot.what.clone(),
            thread: thread_name(slot.thread.load(Relaxed)),
            depth: 0,
            lasted: *lasted,
            behind: None,
        })
        .collect();
    stalls.extend(queues.into_iter().map(|(queue, lasted)| {
        let behind = match peer_of(queue.consumer) {
            Some((slot, _)) => Some(slot.what.clone()),
            None => last
                .clone()
                .filter(|last| *last != queue.name && registry::path_position(&queue.name).is_some()),
        };
        let thread = thread_name(queue.consumer);
        Stall { what: queue.name, thread, depth: queue.depth, lasted, behind }
    }));
    stalls.sort_by_key(|stall| stall.behind.is_some());
    stalls
}

impl State {
    fn log(&mut self, stalls: &[Stall]) {
        self.logged.values_mut().for_each(|found| *found = false);
        for Stall { what, thread, depth, lasted, behind } in stalls {
            if self.logged.insert(what.clone(), true).is_none() {
                let (thread, behind) = (thread.as_deref().unwrap_or("-"), behind.as_deref().unwrap_or("-"));
                tracing::warn!(
                    target: target::PROCESS,
                    what,
                    thread,
                    depth,
                    seconds = lasted.as_secs(),
                    behind,
                    "work waits without progress: `ribtide show health` names all of it"
                );
            }
        }
        self.logged.retain(|what, found| {
            if !*found {
                tracing::info!(target: target::PROCESS, what, "work goes on");
            }
            *found
        });
    }
}

fn thread_name(id: u32) -> Option<String> {
    // A thread that ended has no name.
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The waits of a thread for another process: a Redis that does not reply, a peer that does not read.
/// It costs a few stores per wait.
#[derive(Clone, Debug)]
pub struct PeerWait(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    what: String,
    /// Milliseconds from [`START`] to the start of the wait, plus one; 0 without one.
    since_ms: AtomicU64,
    thread: AtomicU32,
}

/// The beginning of all times of [`Slot`].
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

fn slots() -> MutexGuard<'static, Vec<Weak<Slot>>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn lasted(&self, now: Instant) -> Option<Duration> {
        let since = self.since_ms.load(Relaxed).checked_sub(1)?;
        Some(now.saturating_duration_since(*START + Duration::from_millis(since)))
    }
}

impl PeerWait {
    /// The waits for `what`, listed until the drop.
    pub fn new(what: String) -> PeerWait {
        let slot = Arc::new(Slot { what, since_ms: AtomicU64::new(0), thread: AtomicU32::new(0) });
        let mut all = slots();
        all.retain(|slot| slot.strong_count() > 0);
        all.push(Arc::downgrade(&slot));
        PeerWait(slot)
    }

    /// The calling thread waits from now on, or still does.
    pub fn begin(&self) {
        if self.0.since_ms.load(Relaxed) == 0 {
            self.0.thread.store(thread::id(), Relaxed);
            self.0.since_ms.store(START.elapsed().as_millis() as u64 + 1, Relaxed);
        }
    }

    /// The wait is over.
    pub fn end(&self) {
        self.0.since_ms.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogSettings, capture};

    const TIMEOUT: Duration = Duration::from_secs(30);
    /// Peers are of the process, so the tests run one after the other.
    static ONE: Mutex<()> = Mutex::new(());

    fn whats(stalls: &[Stall]) -> Vec<(&str, Option<&str>)> {
        stalls.iter().map(|stall| (&*stall.what, stall.behind.as_deref())).collect()
    }

    #[test]
    fn queue_without_progress_stalls_and_one_with_progress_does_not() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (rings, begin) = (Rings::default(), Instant::now());
        let watchdog = Watchdog::new(rings.clone(), TIMEOUT);
        let at = |seconds| watchdog.look(begin + Duration::from_secs(seconds));
        let (tx, rx) = rings.bounded("test to nothing", 4);
        assert_eq!(at(0), []);
        tx.send(1).unwrap();
        // It came after the look at 0, so it has waited since 10 for all that is known.
        assert_eq!((at(10), at(39)), (vec![], vec![]));
        let log = capture(&LogSettings::default(), || {
            let stalls = at(40);
            assert_eq!((stalls.len(), stalls[0].depth, stalls[0].thread.clone()), (1, 1, None));
            assert_eq!((stalls[0].lasted, at(50).len()), (TIMEOUT, 1));
            tx.send(2).unwrap();
            assert_eq!(rx.recv(), Ok(1));
            assert_eq!(at(60), [], "one message was taken");
        });
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), 2, "{log}");
        assert!(lines[0].contains("WARN") && lines[0].contains("work waits without progress"), "{log}");
        assert!(lines[0].contains("test to nothing") && lines[1].contains("work goes on"), "{log}");
        // The other one stays, and a slow consumer that takes one now and then does not stall.
        let stalls = at(90);
        assert_eq!(stalls.len(), 1);
        let own = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert_eq!(stalls[0].thread.as_deref(), Some(own.trim_end()), "who took last");
        for seconds in (100..300).step_by(10) {
            tx.send(3).unwrap();
            assert_eq!(rx.recv().map(|_| at(seconds)), Ok(vec![]));
        }
        assert_eq!(Watchdog::new(rings, Duration::ZERO).look(begin + 10 * TIMEOUT), [], "it is off");
    }

    #[test]
    fn gauge_stalls_only_when_it_is_watched_and_without_progress() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (rings, begin) = (Rings::default(), Instant::now());
        let watchdog = Watchdog::new(rings.clone(), TIMEOUT);
        let at = |seconds| watchdog.look(begin + Duration::from_secs(seconds)).len();
        let (routes, requests) =
            (rings.gauge("routes that wait", None), rings.gauge("requests in flight", Some(4)));
        requests.moved();
        routes.set(7);
        requests.set(4);
        assert_eq!((at(0), at(20)), (0, 0));
        requests.moved();
        assert_eq!((at(30), at(59), at(60)), (0, 0, 1), "always four, and not the same");
        requests.set(0);
        assert_eq!(at(100), 0);
    }

    #[test]
    fn last_stalled_queue_of_the_path_or_the_peer_of_its_consumer_is_the_cause() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (rings, begin) = (Rings::default(), Instant::now());
        let watchdog = Watchdog::new(rings.clone(), TIMEOUT);
        let full = |name: &str| {
            let (tx, rx) = rings.bounded(name, 2);
            (0..2).for_each(|n| tx.send(n).unwrap());
            (tx, rx)
        };
        let (rib, reader) = (full("shards to RIB"), full("readers to shard 3"));
        let (kernel, other) = (full("RIB to kernel"), full("not in the list"));
        watchdog.look(begin);
        let stalls = watchdog.look(begin + TIMEOUT);
        let behind = Some("RIB to kernel");
        let mut found = whats(&stalls);
        found.sort_unstable();
        let expected = [
            ("RIB to kernel", None),
            ("not in the list", None),
            ("readers to shard 3", behind),
            ("shards to RIB", behind),
        ];
        assert_eq!(found, expected);
        assert!(stalls[0].behind.is_none() && stalls[1].behind.is_none(), "causes first");
        // The consumer of the last one waits for a peer.
        kernel.1.recv().unwrap();
        let wait = PeerWait::new("the peer of this test".into());
        wait.begin();
        let later = Instant::now() + 4 * TIMEOUT;
        watchdog.look(later - 2 * TIMEOUT);
        let stalls = watchdog.look(later);
        let of =
            |what: &str| whats(&stalls).into_iter().find(|(name, _)| *name == what).map(|(_, behind)| behind);
        assert_eq!(of("the peer of this test"), Some(None));
        assert_eq!(of("RIB to kernel"), Some(Some("the peer of this test")));
        assert_eq!(of("shards to RIB"), Some(behind));
        wait.end();
        assert!(!whats(&watchdog.look(later)).iter().any(|(what, _)| what.contains("peer of this")));
        drop((rib, reader, other));
    }
}
