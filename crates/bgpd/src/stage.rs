//! What a stage is, and where it runs: on a thread of its own, or, where that is `off`, hosted by the session thread.
//!
//! A stage's work is cut into turns. A turn takes what is at hand, bounded, and hands on its results, and waits for
//! nothing: what does not fit into a ring stays in the stage's [`Mailbox`](super::mailbox::Mailbox), and until it is
//! through the stage takes nothing more in. So a mailbox never holds more than one turn's output. How to wait between
//! turns is the only difference: a thread of its own sleeps at the stage's rings; the session thread sleeps in its poll,
//! into which every producer of a hosted stage wakes it, and passes over a stage that has no room.

use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Wake;
use ribtide_runtime::thread::{self, Ends, Stop, StopSignal};
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Turns of one hosted stage before the next has its turns: enough that packing finds what belongs together.
const TURNS: usize = 8;
/// A pass over the hosted stages that has lasted so long ends, so that timers and keepalives have their time.
const SLICE: Duration = Duration::from_millis(20);

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// There may be more to do at once.
    Busy,
    /// Something waits for room in a ring.
    Held,
    /// Nothing to do until something comes in.
    Idle,
    /// Nothing to do any more: its thread ends. A hosted stage lasts as long as its host.
    Over,
}

/// A stage of the pipeline.
pub(super) trait Stage: ShrinkToFit + Send + 'static {
    /// Does what is at hand, bounded; never waits.
    fn turn(&mut self) -> Turn;

    /// Waits, on a thread of its own, for what the last turn said: input, or room; for questions, which a turn answers however
    /// long there is no room; and for the stop. Returns whether the thread is idle ([`idle::wait`]): it is then trimmed.
    fn wait(&mut self, after: Turn, stop: &StopSignal) -> bool;

    /// Readable when there is input that comes through no ring.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Ends a wait that does not see the signal of the stop.
    fn waker(&self) -> Option<Wake> {
        None
    }
}

/// Runs a stage on a thread of its own, on these CPUs if there is a choice.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(name: String, stage: impl Stage, cpus: Option<Cpus>, stop: Stop) -> io::Result<()> {
    thread::spawn(name.clone(), Ends::WithOwner, move || {
        pin(&name, cpus.as_ref());
        run(stage, &stop);
    })?;
    Ok(())
}

/// Runs a stage on the calling thread until its work is over, or the stop.
fn run(mut stage: impl Stage, stop: &Stop) {
    let signal = stop.signal();
    let _waker = stage.waker().map(|wake| stop.on_stop(move || wake()));
    while !stop.stopped() {
        match stage.turn() {
            Turn::Busy => {}
            Turn::Over => break,
            after => {
                if stage.wait(after, &signal) {
                    idle::trim(&mut stage);
                }
            }
        }
    }
}

/// Puts the calling thread on its CPUs. They could be used when the router started; if that has changed since, the routes
/// matter more.
pub(super) fn pin(name: &str, cpus: Option<&Cpus>) {
    if let Some(cpus) = cpus
        && let Err(error) = cpus.pin()
    {
        tracing::warn!(
            target: target::BGP,
            thread = name,
            %cpus,
            %error,
            "the thread cannot run on its CPUs; it runs where there is room"
        );
    }
}

/// The stages that the session thread runs beside its own work, in the order of the pipeline.
#[derive(Default)]
pub(super) struct Hosted {
    stages: Vec<Box<dyn Stage>>,
    /// The stage with the next turn: an early stage of the pipeline must leave turns to later ones.
    next: usize,
}

impl ShrinkToFit for Hosted {
    fn shrink_to_fit(&mut self) {
        self.stages.iter_mut().for_each(|stage| stage.shrink_to_fit());
    }
}

impl Hosted {
    pub(super) fn push(&mut self, stage: impl Stage) {
        self.stages.push(Box::new(stage));
    }

    /// Descriptors to watch: readable means that a pass is due.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.stages.iter().filter_map(|stage| stage.descriptor())
    }

    /// Gives every stage some turns. Says whether another pass is due at once, in a moment, or when something comes.
    pub(super) fn pass(&mut self) -> Turn {
        let mut outcome = Turn::Idle;
        let begin = Instant::now();
        let count = self.stages.len();
        for _ in 0..count {
            let stage = &mut self.stages[self.next];
            self.next = (self.next + 1) % count;
            for turn in 1..=TURNS {
                match stage.turn() {
                    Turn::Idle | Turn::Over => break,
                    Turn::Held => {
                        outcome = if outcome == Turn::Idle { Turn::Held } else { outcome };
                        break;
                    }
                    Turn::Busy if turn == TURNS => outcome = Turn::Busy,
                    Turn::Busy => {}
                }
                if begin.elapsed() > SLICE {
                    return Turn::Busy;
                }
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Mailbox;
    use crossbeam_channel::Select;
    use ribtide_runtime::ring::{Receiver, Rings, Sender};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    /// Makes three of each that comes in.
    struct Triple {
        input: Receiver<u64>,
        output: Mailbox<u64>,
    }

    impl ShrinkToFit for Triple {
        fn shrink_to_fit(&mut self) {}
    }

    impl Stage for Triple {
        fn turn(&mut self) -> Turn {
            if !self.output.retry() {
                return Turn::Held;
            }
            let Some(n) = self.input.try_recv() else { return Turn::Idle };
            (0..3).for_each(|i| self.output.post(3 * n + i));
            assert!(self.output.waiting() <= 3, "more than a turn's output waits");
            if self.output.is_empty() { Turn::Busy } else { Turn::Held }
        }

        fn wait(&mut self, after: Turn, _: &StopSignal) -> bool {
            match after {
                Turn::Held => {
                    let mut select = Select::new();
                    self.output.watch(&mut select);
                    select.ready();
                }
                _ => std::thread::yield_now(),
            }
            false
        }
    }

    struct Sink {
        input: Receiver<u64>,
        got: Arc<AtomicU64>,
    }

    impl ShrinkToFit for Sink {
        fn shrink_to_fit(&mut self) {}
    }

    impl Stage for Sink {
        fn turn(&mut self) -> Turn {
            let Some(n) = self.input.try_recv() else { return Turn::Idle };
            assert_eq!(self.got.fetch_add(1, Relaxed), n, "in order");
            Turn::Busy
        }

        fn wait(&mut self, _: Turn, _: &StopSignal) -> bool {
            std::thread::yield_now();
            false
        }
    }

    /// Two multipliers and a sink over rings of one: the smallest that could stop for ever.
    struct Pipeline {
        input: Sender<u64>,
        stages: (Triple, Triple, Sink),
        got: Arc<AtomicU64>,
        woken: Arc<AtomicBool>,
    }

    fn pipeline() -> Pipeline {
        let (rings, woken, got) =
            (Rings::default(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let ring = |name: &str| {
            let (tx, rx) = rings.bounded(name, 1);
            let woken = woken.clone();
            (tx.with_wake(Some(Arc::new(move || woken.store(true, Relaxed)))), rx)
        };
        let ((input, a), (second, b), (third, c)) = (ring("a"), ring("b"), ring("c"));
        let stages = (
            Triple { input: a, output: Mailbox::new(second) },
            Triple { input: b, output: Mailbox::new(third) },
            Sink { input: c, got: got.clone() },
        );
        Pipeline { input, stages, got, woken }
    }

    #[test]
    fn stages_on_one_thread_pass_everything_on_whatever_the_order_of_their_turns() {
        for rotate in 0..3 {
            let Pipeline { input, stages: (a, b, sink), got, woken } = pipeline();
            let mut stages: [Box<dyn Stage>; 3] = [Box::new(a), Box::new(b), Box::new(sink)];
            stages.rotate_left(rotate);
            let mut hosted = Hosted { stages: Vec::from(stages), next: 0 };
            for n in 0..100 {
                input.try_send(n).expect("room: the former one is through");
                // As the session thread does: it sleeps only when nothing is left and nothing has woken it.
                while woken.swap(false, Relaxed) | (hosted.pass() != Turn::Idle) {}
                assert_eq!(got.load(Relaxed), 9 * (n + 1));
            }
        }
    }

    /// Always has more to do than a pass has time for.
    struct Greedy;

    impl ShrinkToFit for Greedy {
        fn shrink_to_fit(&mut self) {}
    }

    impl Stage for Greedy {
        fn turn(&mut self) -> Turn {
            std::thread::sleep(SLICE + Duration::from_millis(1));
            Turn::Busy
        }

        fn wait(&mut self, _: Turn, _: &StopSignal) -> bool {
            false
        }
    }

    /// It is idle once, and then its work is over.
    struct Resting {
        trims: Arc<AtomicU64>,
        waits: u64,
    }

    impl ShrinkToFit for Resting {
        fn shrink_to_fit(&mut self) {
            self.trims.fetch_add(1, Relaxed);
        }
    }

    impl Stage for Resting {
        fn turn(&mut self) -> Turn {
            if self.waits == 2 { Turn::Over } else { Turn::Idle }
        }

        fn wait(&mut self, _: Turn, _: &StopSignal) -> bool {
            self.waits += 1;
            self.waits == 1
        }
    }

    #[test]
    fn stage_is_trimmed_when_its_thread_is_idle() {
        let trims = Arc::<AtomicU64>::default();
        run(Resting { trims: trims.clone(), waits: 0 }, &Stop::default());
        assert_eq!(trims.load(Relaxed), 1);
    }

    #[test]
    fn stage_with_endless_work_blocks_no_other() {
        let (sender, input) = Rings::default().bounded("to the sink", 1);
        let got = Arc::new(AtomicU64::new(0));
        sender.send(0).unwrap();
        let mut hosted = Hosted::default();
        hosted.push(Greedy);
        hosted.push(Sink { input, got: got.clone() });
        assert_eq!((hosted.pass(), got.load(Relaxed)), (Turn::Busy, 0), "the slice is used up");
        assert_eq!((hosted.pass(), got.load(Relaxed)), (Turn::Busy, 1));
    }

    #[test]
    fn stages_on_threads_of_their_own_do_the_same() {
        let Pipeline { input, stages: (a, b, sink), got, .. } = pipeline();
        let stop = Stop::default();
        spawn("a".into(), a, None, stop.clone()).unwrap();
        spawn("b".into(), b, None, stop.clone()).unwrap();
        spawn("sink".into(), sink, None, stop.clone()).unwrap();
        (0..100).for_each(|n| input.send(n).unwrap());
        while got.load(Relaxed) < 900 {
            std::thread::yield_now();
        }
        stop.stop();
    }
}
