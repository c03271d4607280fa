//! What a thread that writes for others tells them, without a lock: how far it is, and whether it
//! polls slowly.

use crate::sync::atomic::{
    AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// How far a writer is with what its owner handed over, and how often its database was lost. One
/// thread writes, any thread reads.
#[derive(Default, Debug)]
pub struct WriterProgress {
    done: AtomicU64,
    generation: AtomicU64,
}

impl WriterProgress {
    /// Nothing is written, to a database of this generation.
    pub fn new(generation: u64) -> WriterProgress {
        WriterProgress { done: AtomicU64::new(0), generation: AtomicU64::new(generation) }
    }

    /// So many entries are written since the start, to a database of this generation.
    pub fn note(&self, done: u64, generation: u64) {
        // Before `done`: a reader that finds its entry written also finds a loss that came before.
        self.generation.store(generation, Relaxed);
        self.done.store(done, Release);
    }

    /// The database was lost so often, whatever is written.
    pub fn note_generation(&self, generation: u64) {
        self.generation.store(generation, Relaxed);
    }

    /// The entries that are written since the start. The writer's earlier stores are visible.
    pub fn done(&self) -> u64 {
        self.done.load(Acquire)
    }

    /// How often the database was lost. Of what is [`WriterProgress::done`], each loss before the end
    /// of its write counts; so read that first.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }
}

/// The pace of a thread that polls sources, and polls them less often while nothing changes. Another
/// thread asks for the shorter interval again.
#[derive(Default, Debug)]
pub struct PollPace(AtomicU8);

/// The thread polls at the shorter interval.
const FAST: u8 = 0;
/// It sleeps longer, and only a wake-up ends that.
const SLOW: u8 = 1;
/// It was asked for the shorter interval, and has not begun a round since.
const HURRIED: u8 = 2;

impl PollPace {
    /// Asks for the shorter interval. Returns whether the thread must be woken for that.
    #[must_use = "the thread sleeps on unless it is woken"]
    pub fn hurry(&self) -> bool {
        self.0.swap(HURRIED, AcqRel) == SLOW
    }

    /// Begins a round of the thread. Returns whether the shorter interval was asked for since
    /// the last one.
    pub fn begin_round(&self) -> bool {
        self.0.swap(FAST, AcqRel) == HURRIED
    }

    /// Announces a sleep of more than the shorter interval. Returns whether that is permitted: not
    /// after a [`PollPace::hurry`] since the round began, which an unconditional store would undo.
    #[must_use = "the thread must not sleep for longer after a refusal"]
    pub fn slow_down(&self) -> bool {
        self.0.compare_exchange(FAST, SLOW, AcqRel, Acquire).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn writer_progress_reads_what_was_noted_last() {
        let progress = WriterProgress::new(3);
        assert_eq!((progress.done(), progress.generation()), (0, 3));
        progress.note(7, 4);
        progress.note_generation(5);
        assert_eq!((progress.done(), progress.generation()), (7, 5));
    }

    #[test]
    fn poll_pace_hurry_wakes_a_slow_thread_and_keeps_a_fast_one_fast() {
        let pace = PollPace::default();
        assert!(!pace.hurry(), "it is awake soon anyway");
        assert!(pace.begin_round() && !pace.begin_round(), "once");
        assert!(pace.slow_down());
        assert!(pace.hurry() && !pace.hurry(), "one wake-up");
        assert!(!pace.slow_down(), "the request came after the round began");
        assert!(pace.begin_round() && pace.slow_down());
        assert!(!pace.begin_round(), "another wake-up, without a request");
    }
}
