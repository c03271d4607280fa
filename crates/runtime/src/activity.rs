//! Activity flags: they tell a downstream stage under load from one with a lone route.
//!
//! Under load it pays to collect a larger batch; a lone route must not wait, least of all for a
//! timer. Only upstream stages know whether more routes are coming. Each has a flag on cache lines
//! of its own, which costs one store per change. A stage declares itself idle *before* it sends its
//! last batch. The receiver of that batch then sees the idle flag, because the send orders the
//! stores.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, PoisonError};

/// The stages of one part of the pipeline. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Activity(Arc<Board>);

#[derive(Default, Debug)]
struct Board {
    flags: Mutex<Vec<Arc<Flag>>>,
    /// Number of changes of `flags`.
    changes: AtomicUsize,
}

/// Two cache lines: processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Flag(AtomicBool);

/// One stage's flag. It is idle until it is set, and after this is dropped.
#[derive(Debug)]
pub struct Busy {
    board: Arc<Board>,
    flag: Arc<Flag>,
    now: bool,
}

/// Reads the flags of all stages, without a lock unless stages were added or removed.
#[derive(Debug)]
pub struct Watch {
    board: Arc<Board>,
    flags: Vec<Arc<Flag>>,
    seen: usize,
}

impl Activity {
    /// Adds a stage and returns its flag.
    pub fn stage(&self) -> Busy {
        let flag = Arc::new(Flag::default());
        self.0.change(|flags| flags.push(flag.clone()));
        Busy { board: self.0.clone(), flag, now: false }
    }

    /// The watch of a downstream stage.
    pub fn watch(&self) -> Watch {
        Watch { board: self.0.clone(), flags: Vec::new(), seen: 0 }
    }
}

impl Board {
    fn change(&self, what: impl FnOnce(&mut Vec<Arc<Flag>>)) {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        what(&mut flags);
        self.changes.fetch_add(1, Release);
    }
}

impl Busy {
    /// Sets whether the stage has more to do than its next batch.
    pub fn set(&mut self, busy: bool) {
        if self.now != busy {
            self.now = busy;
            self.flag.0.store(busy, Relaxed);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set(false);
        self.board.change(|flags| flags.retain(|flag| !Arc::ptr_eq(flag, &self.flag)));
    }
}

impl Watch {
    /// Whether no stage has more to do.
    pub fn idle(&mut self) -> bool {
        let changes = self.board.changes.load(Acquire);
        if self.seen != changes {
            self.seen = changes;
            self.flags.clone_from(&self.board.flags.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.flags.iter().all(|flag| !flag.0.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Rings;

    #[test]
    fn who_gets_the_last_batch_finds_the_sender_idle() {
        let activity = Activity::default();
        let mut watch = activity.watch();
        let rings = Rings::default();
        let (tx, rx) = rings.bounded("routes", 1);
        let (checked, next) = rings.bounded("looked at", 1);
        std::thread::scope(|scope| {
            let mut busy = activity.stage();
            scope.spawn(move || {
                for lone in 0..10_000 {
                    busy.set(true);
                    busy.set(false);
                    tx.send(lone).unwrap();
                    next.recv().unwrap();
                }
            });
            for _ in 0..10_000 {
                rx.recv().unwrap();
                assert!(watch.idle());
                checked.send(()).unwrap();
            }
        });
    }

    #[test]
    fn stages_come_and_go() {
        let activity = Activity::default();
        let mut watch = activity.watch();
        assert!(watch.idle());
        let (mut one, mut two) = (activity.stage(), activity.stage());
        one.set(true);
        two.set(true);
        assert!(!watch.idle());
        one.set(false);
        assert!(!watch.idle());
        drop(two);
        assert!(watch.idle());
    }
}
