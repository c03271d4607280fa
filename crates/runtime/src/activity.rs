//! Whether any stage upstream is at work, so that a stage downstream can tell load from a lone route.
//!
//! Under load it pays to wait for more before a batch is closed; a lone route must wait for nothing, least of all for a
//! timer. The difference is whether more is on its way, and only those upstream know. Each says so in a flag on cache
//! lines of its own, which costs it one store when that changes, and declares itself idle *before* it hands on its last
//! batch: who receives that batch then finds no stage at work, because what was stored before a batch was sent is seen by
//! whoever received it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

/// The stages of one part of the pipeline. Clones are the same.
#[derive(Clone, Default, Debug)]
pub struct Activity(Arc<Board>);

#[derive(Default, Debug)]
struct Board {
    flags: Mutex<Vec<Arc<Flag>>>,
    /// How often `flags` has changed.
    changes: AtomicUsize,
}

/// Two cache lines: processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Flag(AtomicBool);

/// One stage's flag; the stage counts as idle until it says otherwise, and again when this is dropped.
#[derive(Debug)]
pub struct Busy {
    board: Arc<Board>,
    flag: Arc<Flag>,
    now: bool,
}

/// Looks at the flags of all stages, without a lock unless stages came or went.
#[derive(Debug)]
pub struct Watch {
    board: Arc<Board>,
    flags: Vec<Arc<Flag>>,
    seen: usize,
}

impl Activity {
    /// A flag for one more stage.
    pub fn stage(&self) -> Busy {
        let flag = Arc::new(Flag::default());
        self.0.change(|flags| flags.push(flag.clone()));
        Busy { board: self.0.clone(), flag, now: false }
    }

    /// For a stage downstream.
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
    /// Says whether the stage has something to do beyond what it hands on next.
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
        let (looked, next) = rings.bounded("looked at", 1);
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
                looked.send(()).unwrap();
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
