//! Names work that waits without progress.
//!
//! A queue whose consumer takes nothing for the timeout, though the queue is not empty, is stalled. So
//! are the calls of a stage that finishes none ([`call`]), and a thread that waits so long for another
//! process ([`PeerWait`]). A stall is logged once when it is found, and once when it ends. A thread looks a few times within the timeout, and so does each
//! query; the threads that work only count.
//!
//! A consumer may wait for its own consumer. Of several stalled queues the last one in the order of a
//! route's path ([`registry`]) is the cause, unless its consumer waits for a peer, or for what one of
//! its gauges counts.
//!
//! On request a stall ends the process, which its service manager starts again. Only a thread of this
//! process that takes nothing, though it waits for nothing that is known here, is such a reason: a
//! peer that is away does not come back because this process ends.

use crate::call;
use crate::log::{self, target};
use crate::registry;
use crate::ring::{Progress, Rings};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::thread::{self, Ended, Stop};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The time without progress after which work counts as stalled, unless a setting says otherwise.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest interval of looks.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// The exit status of a process that a stall ended.
pub const STALL_EXIT_STATUS: u8 = 9;

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
    /// Whether it is a cause, and its thread one of this process that waits for no peer as far as is
    /// known. A queue from which nothing was ever taken is none: its consumer may still start.
    pub is_own: bool,
}

/// The watchdog of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Watchdog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rings: Rings,
    /// Milliseconds without progress after which work is stalled; 0: it never is.
    timeout_ms: AtomicU64,
    /// Milliseconds of a stall after which it ends the process; 0: it never does.
    exit_ms: AtomicU64,
    state: Mutex<State>,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Default, Debug)]
struct State {
    /// The last look at each queue, by its number.
    seen: BTreeMap<u64, Seen>,
    /// The logged stalls, and whether the present look found them.
    logged: BTreeMap<String, bool>,
    /// The last look.
    looked: Option<Instant>,
    /// The looks came on time since then; `None` before the first.
    on_time: Option<Instant>,
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
        let timeout_ms = AtomicU64::new(milliseconds(timeout));
        Watchdog(Arc::new(Inner { rings, timeout_ms, exit_ms: AtomicU64::new(0), state: Mutex::default() }))
    }

    /// Starts the thread that looks until `stop`; the times are those of [`Watchdog::configure`].
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(rings: Rings, timeout: Duration, exit: Duration, stop: &Stop) -> io::Result<Watchdog> {
        let watchdog = Watchdog::new(rings, timeout);
        watchdog.configure(timeout, exit);
        let (its, signal, stop) = (watchdog.clone(), stop.signal(), stop.clone());
        thread::spawn("watchdog", move || {
            while !signal.sleep(its.interval()) {
                let now = Instant::now();
                let stalls = its.look(now);
                let exit = Duration::from_millis(its.0.exit_ms.load(Relaxed));
                if let Some(stall) = due(&stalls, exit, its.on_time(now)) {
                    end_process(stall);
                }
            }
            Ended::at_stop(&stop)
        })?;
        Ok(watchdog)
    }

    /// Sets the times, from the next look on. A timeout of zero is none: nothing ever stalls.
    ///
    /// A stall with [`Stall::is_own`] that has lasted for `exit` ends the process with
    /// [`STALL_EXIT_STATUS`], at most an interval of looks later; zero: none does.
    pub fn configure(&self, timeout: Duration, exit: Duration) {
        self.0.timeout_ms.store(milliseconds(timeout), Relaxed);
        self.0.exit_ms.store(milliseconds(exit), Relaxed);
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.0.timeout_ms.load(Relaxed))
    }

    /// The interval of looks: a few within the timeout. Without a timeout, the longest.
    fn interval(&self) -> Duration {
        match self.timeout() {
            Duration::ZERO => LOOK_INTERVAL_MAX,
            timeout => (timeout / 3).min(LOOK_INTERVAL_MAX),
        }
    }

    /// For how long looks came on time.
    fn on_time(&self, now: Instant) -> Duration {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.on_time.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Everything that is stalled, causes first, by a look at all queues and peers now. Logs what
    /// began and what ended.
    pub fn look(&self, now: Instant) -> Vec<Stall> {
        let (Inner { rings, state, .. }, timeout) = (&*self.0, self.timeout());
        if timeout.is_zero() {
            return Vec::new();
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.note_look(now, self.interval());
        let (mut queues, mut peers) = (Vec::new(), Vec::new());
        let mut seen = BTreeMap::new();
        for queue in rings.progress().into_iter().chain(call::progress()) {
            let since = since(state.seen.get(&queue.id), &queue, now);
            seen.insert(queue.id, Seen { taken: queue.taken, since });
            let lasted = since.map(|since| now.saturating_duration_since(since));
            if let Some(lasted) = lasted.filter(|lasted| *lasted >= timeout) {
                queues.push((queue, lasted));
            }
        }
        state.seen = seen;
        for slot in slots().iter().filter_map(Weak::upgrade) {
            if let Some(lasted) = slot.lasted(now).filter(|lasted| *lasted >= timeout) {
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
    // A thread whose gauge stands still waits for what the gauge counts, such as replies, unless it
    // leaves replies in their queue.
    let of_thread = |thread: u32, is_ring: bool| {
        let own =
            move |queue: &&Progress| thread != 0 && queue.consumer == thread && queue.is_ring == is_ring;
        queues.iter().map(|(queue, _)| queue).filter(own)
    };
    let replies_of = |thread: u32| {
        of_thread(thread, true).find(|queue| registry::carries_replies(&queue.name)).map(|queue| &queue.name)
    };
    let awaited_by = |queue: &Progress| match (queue.is_ring, replies_of(queue.consumer)) {
        (true, None) => of_thread(queue.consumer, false).next().map(|gauge| gauge.name.clone()),
        (true, Some(_)) => None,
        (false, replies) => replies.cloned(),
    };
    let mut stalls: Vec<Stall> = peers
        .iter()
        .map(|(slot, lasted)| Stall {
            what: slot.what.clone(),
            thread: thread_name(slot.thread.load(Relaxed)),
            depth: 0,
            lasted: *lasted,
            behind: None,
            is_own: false,
        })
        .collect();
    stalls.extend(queues.iter().map(|(queue, lasted)| {
        let peer = peer_of(queue.consumer).map(|(slot, _)| slot.what.clone());
        let behind = peer.or_else(|| awaited_by(queue)).or_else(|| {
            let is_in_path = registry::path_position(&queue.name).is_some();
            last.clone().filter(|last| *last != queue.name && is_in_path)
        });
        let thread = thread_name(queue.consumer);
        // The consumer of a queue beside the path may wait for any of the others.
        let is_alone = last.is_none() && peers.is_empty() && queues.iter().all(|(queue, _)| queue.is_ring);
        let is_cause = is_alone || registry::path_position(&queue.name).is_some();
        let is_own = queue.is_ring && behind.is_none() && thread.is_some() && is_cause;
        Stall { what: queue.name.clone(), thread, depth: queue.depth, lasted: *lasted, behind, is_own }
    }));
    stalls.sort_by_key(|stall| stall.behind.is_some());
    stalls
}

/// The first stall that is a reason to end the process, with looks that came on time for `on_time`.
/// Before, the whole process may have been stopped or without a CPU, so that no consumer could run.
fn due(stalls: &[Stall], exit: Duration, on_time: Duration) -> Option<&Stall> {
    stalls.iter().find(|stall| !exit.is_zero() && stall.is_own && stall.lasted.min(on_time) >= exit)
}

/// Why no stall could end a process after `exit`, as a sentence, though work counts as stalled after
/// `timeout`; `None` of a usable pair, in which `exit` is zero (never) or at least `timeout`.
pub fn exit_problem(timeout: Duration, exit: Duration) -> Option<String> {
    let (timeout, exit) = (timeout.as_secs(), exit.as_secs());
    match (timeout, exit) {
        (_, 0) => None,
        (0, _) => Some(
            "with a stall timeout of 0 nothing counts as stalled, so no stall can end the process; set \
             the stall timeout, or write 0 here for never"
                .into(),
        ),
        _ => (exit < timeout).then(|| {
            format!(
                "work counts as stalled only after {timeout} s, so no stall can end the process after \
                 {exit} s; write at least {timeout}, or 0 for never"
            )
        }),
    }
}

fn end_process(stall: &Stall) -> ! {
    tracing::error!(
        target: target::PROCESS,
        what = stall.what,
        thread = stall.thread.as_deref().unwrap_or("-"),
        depth = stall.depth,
        seconds = stall.lasted.as_secs(),
        "work waits without progress for too long; stopping the process, so that another one starts \
         without it"
    );
    log::flush();
    std::process::exit(STALL_EXIT_STATUS.into());
}

impl State {
    /// Notes a look. One that is late by more than an interval begins the time of looks on time.
    fn note_look(&mut self, now: Instant, interval: Duration) {
        let is_late = self.looked.is_none_or(|last| now.saturating_duration_since(last) > 2 * interval);
        if is_late {
            self.on_time = Some(now);
        }
        self.looked = Some(now);
    }

    fn log(&mut self, stalls: &[Stall]) {
        self.logged.values_mut().for_each(|found| *found = false);
        for Stall { what, thread, depth, lasted, behind, .. } in stalls {
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
        let since = self.since_ms.load(Acquire).checked_sub(1)?;
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
            // A watchdog that sees the wait sees its thread too, or it would take a queue of the thread
            // for stalled without the peer.
            self.0.since_ms.store(START.elapsed().as_millis() as u64 + 1, Release);
        }
    }

    #[cfg(all(test, loom))]
    pub(crate) fn lasted(&self, now: Instant) -> Option<Duration> {
        self.0.lasted(now)
    }

    #[cfg(all(test, loom))]
    pub(crate) fn thread(&self) -> u32 {
        self.0.thread.load(Relaxed)
    }

    /// The wait is over.
    pub fn end(&self) {
        self.0.since_ms.store(0, Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::log::{LogSettings, capture};
    use std::convert::Infallible;

    const TIMEOUT: Duration = Duration::from_secs(30);
    /// Peers and calls are of the process, so the tests run one after the other.
    static ONE: Mutex<()> = Mutex::new(());

    pub(crate) fn one() -> MutexGuard<'static, ()> {
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whats(stalls: &[Stall]) -> Vec<(&str, Option<&str>)> {
        stalls.iter().map(|stall| (&*stall.what, stall.behind.as_deref())).collect()
    }

    #[test]
    fn queue_without_progress_stalls_and_one_with_progress_does_not() {
        let _one = one();
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
        // The times change while it runs.
        assert_eq!(at(330).len(), 1);
        watchdog.configure(2 * TIMEOUT, Duration::ZERO);
        assert_eq!((at(340), at(360).len()), (vec![], 1));
        watchdog.configure(Duration::ZERO, Duration::ZERO);
        assert_eq!(at(900), []);
    }

    #[test]
    fn gauge_stalls_only_when_it_is_watched_and_without_progress() {
        let _one = one();
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
    fn gauge_of_a_thread_is_the_cause_of_its_queues_unless_replies_wait() {
        let _one = one();
        let (rings, begin) = (Rings::default(), Instant::now());
        let watchdog = Watchdog::new(rings.clone(), TIMEOUT);
        // Taken from once, so its consumer is known.
        let ring = |name: &str| {
            let (tx, rx) = rings.bounded(name, 2);
            (0..2).for_each(|n| tx.send(n).unwrap());
            rx.recv().unwrap();
            (tx, rx)
        };
        let (rows, labels) = (ring("ROUTE_TABLE"), ring("LABEL_ROUTE_TABLE"));
        let requests = rings.gauge("requests in flight to syncd", Some(8));
        requests.moved();
        requests.set(8);
        let found = |at| -> Vec<_> {
            let mut stalls = watchdog.look(at);
            stalls.sort_by(|a, b| a.what.cmp(&b.what));
            stalls.into_iter().map(|stall| (stall.what, stall.behind, stall.is_own)).collect()
        };
        let stall =
            |what: &str, behind: Option<&str>, is_own| (what.into(), behind.map(str::to_owned), is_own);
        let (gauge, replies_ring) = ("requests in flight to syncd", "syncd to orchagent");
        assert_eq!(found(begin), []);
        let waits = [
            stall("LABEL_ROUTE_TABLE", Some(gauge), false),
            stall("ROUTE_TABLE", Some(gauge), false),
            stall(gauge, None, false),
        ];
        assert_eq!(found(begin + TIMEOUT), waits, "the thread waits for replies of a peer");
        let replies = ring(replies_ring);
        assert_eq!(found(begin + TIMEOUT), waits);
        let own = [
            stall("LABEL_ROUTE_TABLE", None, false),
            stall("ROUTE_TABLE", Some(replies_ring), false),
            stall(gauge, Some(replies_ring), false),
            stall(replies_ring, None, true),
        ];
        assert_eq!(found(begin + 2 * TIMEOUT), own, "the thread takes no replies");
        drop((rows, replies));
        requests.set(0);
        let alone = [stall("LABEL_ROUTE_TABLE", None, true)];
        assert_eq!(found(begin + 3 * TIMEOUT), alone, "nothing else is stalled");
        drop(labels);
    }

    #[test]
    fn due_only_own_stalls_after_looks_on_time() {
        let stall = |is_own, seconds| Stall {
            what: "shards to RIB".into(),
            thread: Some("rib".into()),
            depth: 1,
            lasted: Duration::from_secs(seconds),
            behind: None,
            is_own,
        };
        let (exit, always) = (2 * TIMEOUT, Duration::MAX);
        let of =
            |stalls: &[Stall], exit, on_time| due(stalls, exit, on_time).map(|stall| stall.lasted.as_secs());
        assert_eq!(of(&[stall(false, 99), stall(true, 59)], exit, always), None);
        let both = [stall(false, 99), stall(true, 60)];
        assert_eq!(of(&both, exit, always), Some(60));
        assert_eq!(of(&both, Duration::ZERO, always), None, "never");
        assert_eq!(of(&both, exit, TIMEOUT), None, "the process was stopped");
    }

    #[test]
    fn on_time_begins_again_after_a_late_look() {
        let _one = one();
        let begin = Instant::now();
        let watchdog = Watchdog::new(Rings::default(), TIMEOUT);
        let on_time = |seconds| {
            let now = begin + Duration::from_secs(seconds);
            watchdog.look(now);
            watchdog.on_time(now).as_secs()
        };
        assert_eq!([on_time(0), on_time(10), on_time(30)], [0, 10, 30]);
        assert_eq!([on_time(51), on_time(61)], [0, 10], "no look for 21 s");
    }

    #[test]
    fn exit_problem_unless_it_is_never_or_at_least_the_timeout() {
        let problem = |timeout, exit| exit_problem(Duration::from_secs(timeout), Duration::from_secs(exit));
        assert_eq!([problem(30, 0), problem(0, 0), problem(30, 30), problem(2, 60)], [const { None }; 4]);
        let problem = |timeout, exit| problem(timeout, exit).unwrap_or_default();
        assert!(problem(30, 29).ends_with("write at least 30, or 0 for never"));
        assert!(problem(0, 60).contains("nothing counts as stalled"));
    }

    #[test]
    fn calls_of_a_stage_that_finishes_none_stall_with_its_thread() {
        let _one = one();
        let begin = Instant::now();
        let watchdog = Watchdog::new(Rings::default(), TIMEOUT);
        let (handle, calls) = call::pair::<()>("a stage");
        let (go_on, waits) = crate::oneshot::pair::<()>();
        // None was run yet: its thread is not known.
        let served = handle.start(move |()| _ = waits.recv()).unwrap();
        assert_eq!(watchdog.look(begin), []);
        let stalls = watchdog.look(begin + TIMEOUT);
        let found = |stalls: &[Stall]| -> Vec<_> {
            stalls.iter().map(|stall| (stall.what.clone(), stall.thread.clone(), stall.is_own)).collect()
        };
        assert_eq!(found(&stalls), [("queries to a stage".into(), None, false)]);
        // Its thread stands still inside of a call.
        let stage = thread::spawn("stuck-stage", move || {
            calls.serve(&mut ());
            Ended::done()
        });
        let own = ("queries to a stage".into(), Some("stuck-stage".into()), true);
        let mut found_last = Vec::new();
        while found_last != [own.clone()] {
            found_last = found(&watchdog.look(begin + TIMEOUT));
            std::thread::yield_now();
        }
        go_on.send(());
        served.wait().unwrap();
        assert_eq!(watchdog.look(begin + TIMEOUT), [], "it is done");
        stage.unwrap().join().unwrap();
        assert!(handle.start(|()| ()).is_err());
        assert_eq!(watchdog.look(begin + 3 * TIMEOUT), [], "the stage has ended");
    }

    /// The queue and the thread of [`process_with_a_stalled_thread`].
    const STALLED: [&str; 2] = ["shards to RIB", "stalled-stage"];

    #[test]
    fn stall_exit_ends_a_process_with_a_stalled_thread() {
        let process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watchdog::tests::process_with_a_stalled_thread", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&process.stderr);
        assert_eq!(process.status.code(), Some(STALL_EXIT_STATUS.into()), "{text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.contains("ERROR") && STALLED.iter().all(|part| last.contains(part)), "{text}");
    }

    #[test]
    #[ignore = "the process of stall_exit_ends_a_process_with_a_stalled_thread"]
    fn process_with_a_stalled_thread() {
        log::start(&LogSettings::default()).unwrap();
        let (rings, [queue, name]) = (Rings::default(), STALLED);
        let (tx, rx) = rings.bounded(queue, 4);
        thread::spawn(name, move || -> Infallible {
            rx.recv().unwrap();
            // It never goes on.
            loop {
                std::thread::park();
            }
        })
        .unwrap();
        (0..4).for_each(|n| tx.send(n).unwrap());
        let second = Duration::from_secs(1);
        let stop = Stop::default();
        Watchdog::start(rings, second, 2 * second, &stop).unwrap();
        // Without the exit the test ends well, and so with another status.
        std::thread::sleep(60 * second);
    }

    #[test]
    fn last_stalled_queue_of_the_path_or_the_peer_of_its_consumer_is_the_cause() {
        let _one = one();
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
        assert!(!stalls.iter().any(|stall| stall.is_own), "one waits for a peer, others are not known");
        assert_eq!(of("shards to RIB"), Some(behind));
        wait.end();
        assert!(!whats(&watchdog.look(later)).iter().any(|(what, _)| what.contains("peer of this")));
        drop((rib, reader, other));
    }
}
