//! The flag that stops all threads, and how it wakes the threads that sleep.
//!
//! A thread sleeps until there is work, however long that takes. So a stop wakes every sleeper: a
//! [`StopSignal`] makes a `Select` ready, a [`StopHook`] calls what wakes a poll, and
//! [`Stop::sleep`] returns.

use crate::ring::Closed;
use crate::sync::atomic::{AtomicU8, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::sync::channel::{Receiver, RecvTimeoutError, Select, bounded};
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

const STOP: u8 = 1;
const STOP_AND_REMOVE: u8 = 2;

/// The stop flag of all stages of a process, or of a part of them ([`Stop::part`]). Clones share it.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<State>);

#[derive(Default)]
struct State {
    flag: AtomicU8,
    hooks: Mutex<Hooks>,
    /// The flag of the whole process, for a part; and the hook by which its stop stops the part.
    whole: Option<(Stop, OnceLock<StopHook>)>,
}

#[derive(Default)]
struct Hooks {
    next: u64,
    calls: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("flag", &self.flag).finish_non_exhaustive()
    }
}

impl State {
    fn hooks(&self) -> MutexGuard<'_, Hooks> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, flag: u8) {
        if self.flag.compare_exchange(0, flag, Release, Relaxed).is_ok() {
            // A hook may drop others, so it is called without the lock.
            let calls = std::mem::take(&mut self.hooks().calls);
            calls.into_values().for_each(|call| call());
        }
    }
}

impl Stop {
    /// Stops all stages. Routes that they installed elsewhere stay.
    pub fn stop(&self) {
        self.0.set(STOP);
    }

    /// Stops all stages, which then remove the routes that they installed elsewhere. An earlier
    /// [`Stop::stop`] wins: after a failure, the process is to be restarted.
    pub fn stop_and_remove(&self) {
        self.0.set(STOP_AND_REMOVE);
    }

    /// The flag of a part of the process, such as one dataplane. A stop of the whole process stops the part in the
    /// same way; a stop of the part stops nothing else.
    #[must_use]
    pub fn part(&self) -> Stop {
        let state = State { whole: Some((self.clone(), OnceLock::new())), ..State::default() };
        let part = Stop(Arc::new(state));
        // Without a cycle: the hook of the whole process does not keep the part.
        let (weak, whole) = (Arc::downgrade(&part.0), self.clone());
        let hook = self.on_stop(move || {
            if let Some(state) = weak.upgrade() {
                state.set(whole.0.flag.load(Acquire));
            }
        });
        if let Some((_, place)) = &part.0.whole {
            let _ = place.set(hook);
        }
        part
    }

    /// Stops the whole process, after a failure of a part.
    pub fn fail(&self) {
        match &self.0.whole {
            Some((whole, _)) => whole.fail(),
            None => self.stop(),
        }
    }

    /// Whether the flag is set.
    pub fn stopped(&self) -> bool {
        self.0.flag.load(Acquire) != 0
    }

    /// Whether the flag or that of the whole process is set. The stop of the process sets the flags of its
    /// parts one after the other.
    pub fn has_begun(&self) -> bool {
        self.stopped() || self.0.whole.as_ref().is_some_and(|(whole, _)| whole.has_begun())
    }

    /// For the loop of a thread: goes on.
    ///
    /// # Errors
    /// [`Closed`] once the flag is set.
    pub fn running(&self) -> Result<(), Closed> {
        if self.stopped() { Err(Closed) } else { Ok(()) }
    }

    /// Whether stages remove what they installed elsewhere before they end.
    pub fn removes(&self) -> bool {
        self.0.flag.load(Acquire) == STOP_AND_REMOVE
    }

    /// Calls `call` at the stop, on the thread that stops; at once if it is stopped. It must not
    /// block. The drop of the result revokes it.
    #[must_use = "the call is revoked by the drop"]
    pub fn on_stop(&self, call: impl FnOnce() + Send + 'static) -> StopHook {
        let mut hooks = self.0.hooks();
        // Both sides use the lock after the flag, so either this sees the flag or the stop the call.
        if self.stopped() {
            drop(hooks);
            call();
            return StopHook { stop: self.clone(), id: u64::MAX };
        }
        let id = hooks.next;
        hooks.next += 1;
        hooks.calls.insert(id, Box::new(call));
        drop(hooks);
        StopHook { stop: self.clone(), id }
    }

    /// A signal for one thread that sleeps at channels.
    pub fn signal(&self) -> StopSignal {
        let (sender, ended) = bounded::<()>(0);
        StopSignal { ended, _hook: self.on_stop(move || drop(sender)) }
    }

    /// Sleeps for `duration`, or until the stop.
    pub fn sleep(&self, duration: Duration) {
        self.signal().sleep(duration);
    }
}

/// A call at the stop, until the drop.
#[derive(Debug)]
pub struct StopHook {
    stop: Stop,
    id: u64,
}

impl Drop for StopHook {
    fn drop(&mut self) {
        let call = self.stop.0.hooks().calls.remove(&self.id);
        drop(call);
    }
}

/// A channel that is ready from the stop on. Each thread has its own, so that no two threads contend
/// for it.
#[derive(Debug)]
pub struct StopSignal {
    ended: Receiver<()>,
    _hook: StopHook,
}

impl StopSignal {
    /// Makes `select` ready at the stop.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.ended);
    }

    /// The channel, for `crossbeam_channel::select!`. Nothing is ever sent; it is closed at the stop.
    pub fn raw(&self) -> &Receiver<()> {
        &self.ended
    }

    /// Sleeps for `duration`.
    ///
    /// # Errors
    /// [`Closed`] at the stop.
    pub fn pause(&self, duration: Duration) -> Result<(), Closed> {
        if self.sleep(duration) { Err(Closed) } else { Ok(()) }
    }

    /// Sleeps for `duration`, or until the stop. Returns whether it is stopped.
    pub fn sleep(&self, duration: Duration) -> bool {
        self.ended.recv_timeout(duration) == Err(RecvTimeoutError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn stop_and_remove_only_when_nothing_stopped_before() {
        let (clean, failed) = (Stop::default(), Stop::default());
        clean.stop_and_remove();
        clean.stop();
        assert!(clean.stopped() && clean.removes());
        failed.stop();
        failed.stop_and_remove();
        assert!(failed.stopped() && !failed.removes());
    }

    #[test]
    fn part_stops_with_the_whole_in_the_same_way_and_alone_stops_nothing_else() {
        let whole = Stop::default();
        let (alone, other) = (whole.part(), whole.part());
        alone.stop();
        assert!(alone.stopped() && !whole.stopped() && !other.stopped());
        whole.stop_and_remove();
        assert!(other.removes() && !alone.removes(), "an earlier stop wins");
        assert!(whole.part().removes(), "a part of a stopped process is stopped");
        let whole = Stop::default();
        let part = whole.part();
        assert!(!part.has_begun());
        // As before its hook is called.
        whole.0.flag.store(STOP, Release);
        assert!(part.has_begun() && !part.stopped());
        let whole = Stop::default();
        whole.part().part().fail();
        assert!(whole.stopped());
    }

    #[test]
    fn parts_that_are_gone_leave_no_hook() {
        let whole = Stop::default();
        (0..3).for_each(|_| drop(whole.part()));
        assert_eq!(whole.0.hooks().calls.len(), 0);
    }

    #[test]
    fn stop_calls_each_hook_once_and_none_that_was_dropped() {
        let (stop, calls) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
        let hook = |stop: &Stop| {
            let calls = calls.clone();
            stop.on_stop(move || _ = calls.fetch_add(1, Relaxed))
        };
        let (kept, dropped) = (hook(&stop), hook(&stop));
        drop(dropped);
        assert_eq!(calls.load(Relaxed), 0);
        stop.stop();
        stop.stop();
        assert_eq!(calls.load(Relaxed), 1);
        let late = hook(&stop);
        assert_eq!(calls.load(Relaxed), 2, "a hook after the stop is called at once");
        drop((kept, late));
    }

    #[test]
    fn stop_wakes_a_select_and_a_sleeper_without_a_timeout() {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            for sleeps in [false, true] {
                let stop = stop.clone();
                scope.spawn(move || {
                    let signal = stop.signal();
                    if sleeps {
                        return assert!(signal.sleep(Duration::MAX));
                    }
                    let mut select = Select::new();
                    signal.watch(&mut select);
                    select.ready();
                });
            }
            stop.stop();
        });
        assert!(!Stop::default().signal().sleep(Duration::from_millis(1)));
        stop.sleep(Duration::MAX);
    }
}
