//! What a stage is, and where it runs: on a thread of its own, or, where that is `off`, hosted by the session thread.
//!
//! A stage's work is cut into turns. A turn takes what is at hand, bounded, and hands on its results, and waits for
//! nothing: what does not fit into a ring stays in the stage's [`Mailbox`](super::mailbox::Mailbox), and until it is
//! through the stage takes nothing more in. So a mailbox never holds more than one turn's output. How to wait between
//! turns is the only difference: a thread of its own sleeps at the stage's rings; the session thread sleeps in its poll,
//! into which every producer of a hosted stage wakes it, and passes over a stage that has no room.
//!
//! A running stage moves between the two ([`Home`]): its state, its rings and its handle stay as they are.

use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Wake;
use ribtide_runtime::thread::{self, Ended, Stop, StopSignal};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Nothing to do any more: the stage ends, and a thread of its own too.
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

impl ShrinkToFit for Box<dyn Stage> {
    fn shrink_to_fit(&mut self) {
        (**self).shrink_to_fit();
    }
}

/// A stage with the name of the thread that it has or had.
pub(super) struct NamedStage {
    pub(super) name: String,
    pub(super) home: Home,
    pub(super) stage: Box<dyn Stage>,
}

impl NamedStage {
    pub(super) fn new(name: String, home: &Home, stage: impl Stage) -> NamedStage {
        NamedStage { name, home: home.clone(), stage: Box::new(stage) }
    }
}

/// Where the stages of one kind run. Clones share it.
///
/// Senders to these stages wake the session thread while it is their host ([`Home::wake`]). Where they run changes so:
///
/// - **to the session thread**: [`Home::set_hosted`] comes first. From then on senders wake the session thread, and each thread
///   of such a stage ends after its turn, for which a call wakes it. It leaves the stage to the session thread, which looks at
///   all of its input. The change is over when there are no [`Home::threads`].
/// - **to threads**: the session thread gives the stages away. Then [`Home::set_hosted`] comes, and then the threads, whose
///   first turns look at all input.
///
/// So a batch that a sender hands over without waking the session thread is there before the stage's next look at its input:
/// the flag and the rings have one order (`SeqCst`).
#[derive(Clone)]
pub(super) struct Home(Arc<HomeState>);

struct HomeState {
    is_hosted: AtomicBool,
    /// Wakes the session thread.
    host: Wake,
    /// Threads of these stages.
    threads: AtomicUsize,
    /// Stages whose threads have ended for the session thread, and whether there are any.
    left: Mutex<Vec<NamedStage>>,
    has_left: AtomicBool,
}

impl Home {
    /// `host` wakes the session thread.
    pub(super) fn new(is_hosted: bool, host: Wake) -> Home {
        let (threads, has_left) = (AtomicUsize::new(0), AtomicBool::new(false));
        let is_hosted = AtomicBool::new(is_hosted);
        Home(Arc::new(HomeState { is_hosted, host, threads, left: Mutex::default(), has_left }))
    }

    /// Whether the session thread runs these stages.
    pub(super) fn is_hosted(&self) -> bool {
        self.0.is_hosted.load(SeqCst)
    }

    /// Whether the session thread runs these stages from now on.
    pub(super) fn set_hosted(&self, is_hosted: bool) {
        self.0.is_hosted.store(is_hosted, SeqCst);
    }

    /// For who feeds such a stage: wakes the session thread while that runs it.
    pub(super) fn wake(&self) -> Wake {
        let state = self.0.clone();
        Arc::new(move || {
            if state.is_hosted.load(SeqCst) {
                (state.host)();
            }
        })
    }

    /// Threads of these stages, those included that are about to end.
    pub(super) fn threads(&self) -> usize {
        self.0.threads.load(SeqCst)
    }

    /// The stages whose threads have ended for the session thread.
    fn take_left(&self) -> Vec<NamedStage> {
        if !self.0.has_left.swap(false, SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *self.0.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Leaves a stage to the session thread.
    pub(super) fn leave(&self, stage: NamedStage) {
        self.0.left.lock().unwrap_or_else(PoisonError::into_inner).push(stage);
        self.0.has_left.store(true, SeqCst);
        (self.0.host)();
    }

    fn is(&self, other: &Home) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Runs a stage on a thread of its own, on these CPUs if there is a choice.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(stage: NamedStage, cpus: Option<Cpus>, stop: Stop) -> io::Result<()> {
    try_spawn(stage, cpus, stop).map_err(|(error, _)| error)
}

/// The same; returns the stage with the error.
pub(super) fn try_spawn(
    stage: NamedStage,
    cpus: Option<Cpus>,
    stop: Stop,
) -> Result<(), (io::Error, Option<NamedStage>)> {
    let (name, home) = (stage.name.clone(), stage.home.clone());
    let place = Arc::new(Mutex::new(Some(stage)));
    let of_thread = place.clone();
    let take =
        |place: &Mutex<Option<NamedStage>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
    home.0.threads.fetch_add(1, SeqCst);
    let of_spawned = home.clone();
    let spawned = thread::spawn(name, move || {
        if let Some(stage) = take(&of_thread) {
            pin(&stage.name, cpus.as_ref());
            if let Some(stage) = run(stage, &stop) {
                of_spawned.leave(stage);
            }
        }
        of_spawned.0.threads.fetch_sub(1, SeqCst);
        // The stop, or its owner: that retired the stage, or has it run by the session thread.
        Ended::done()
    });
    if let Err(error) = spawned {
        home.0.threads.fetch_sub(1, SeqCst);
        return Err((error, take(&place)));
    }
    Ok(())
}

/// Runs a stage on the calling thread until its work is over, or the stop. Returns it if the session thread is to run it.
fn run(mut of: NamedStage, stop: &Stop) -> Option<NamedStage> {
    let signal = stop.signal();
    let _waker = of.stage.waker().map(|wake| stop.on_stop(move || wake()));
    while !stop.stopped() {
        match of.stage.turn() {
            Turn::Over => return None,
            _ if of.home.is_hosted() => return Some(of),
            Turn::Busy => {}
            after => {
                if of.stage.wait(after, &signal) {
                    idle::trim(&mut of.stage);
                }
            }
        }
    }
    None
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

/// The stages that the session thread runs beside its own work.
#[derive(Default)]
pub(super) struct Hosted {
    /// Where stages come from.
    homes: Vec<Home>,
    stages: Vec<NamedStage>,
    /// The stage with the next turn: an early stage of the pipeline must leave turns to later ones.
    next: usize,
}

impl ShrinkToFit for Hosted {
    fn shrink_to_fit(&mut self) {
        self.stages.iter_mut().for_each(|of| of.stage.shrink_to_fit());
    }
}

impl Hosted {
    /// For stages of these homes.
    pub(super) fn new(homes: Vec<Home>) -> Hosted {
        Hosted { homes, ..Hosted::default() }
    }

    pub(super) fn push(&mut self, stage: NamedStage) {
        self.stages.push(stage);
    }

    /// Takes the stages whose threads have ended for it. Returns the descriptors to watch.
    pub(super) fn adopt(&mut self) -> Vec<RawFd> {
        let mut descriptors = Vec::new();
        for stage in self.homes.iter().flat_map(Home::take_left) {
            descriptors.extend(stage.stage.descriptor());
            self.stages.push(stage);
        }
        descriptors
    }

    /// Gives the stages of `home` away.
    pub(super) fn take(&mut self, home: &Home) -> Vec<NamedStage> {
        let (taken, kept) = std::mem::take(&mut self.stages).into_iter().partition(|of| of.home.is(home));
        (self.stages, self.next) = (kept, 0);
        taken
    }

    /// Descriptors to watch: readable means that a pass is due.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.stages.iter().filter_map(|of| of.stage.descriptor())
    }

    /// Gives every stage some turns. Says whether another pass is due at once, in a moment, or when something comes.
    pub(super) fn pass(&mut self) -> Turn {
        let mut outcome = Turn::Idle;
        let begin = Instant::now();
        for _ in 0..self.stages.len() {
            let at = self.next % self.stages.len();
            self.next = (at + 1) % self.stages.len();
            for turn in 1..=TURNS {
                match self.stages[at].stage.turn() {
                    Turn::Idle => break,
                    Turn::Over => {
                        self.stages.remove(at);
                        // The next one has its place.
                        self.next = at;
                        if self.stages.is_empty() {
                            return outcome;
                        }
                        break;
                    }
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// One that stays on its thread, or with its host.
    fn named(stage: impl Stage) -> NamedStage {
        let home = Home::new(false, Arc::new(|| ()));
        NamedStage { name: "test".into(), home, stage: Box::new(stage) }
    }

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
            let mut stages = [named(a), named(b), named(sink)];
            stages.rotate_left(rotate);
            let mut hosted = Hosted { homes: Vec::new(), stages: Vec::from(stages), next: 0 };
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
        assert!(run(named(Resting { trims: trims.clone(), waits: 0 }), &Stop::default()).is_none());
        assert_eq!(trims.load(Relaxed), 1);
    }

    #[test]
    fn hosted_stage_whose_work_is_over_ends() {
        let (sender, input) = Rings::default().bounded("to the sink", 4);
        let (got, trims) = (Arc::new(AtomicU64::new(0)), Arc::<AtomicU64>::default());
        let mut hosted = Hosted::default();
        hosted.push(named(Resting { trims: trims.clone(), waits: 2 }));
        hosted.push(named(Sink { input, got: got.clone() }));
        sender.send(0).unwrap();
        hosted.pass();
        assert_eq!((hosted.stages.len(), got.load(Relaxed)), (1, 1));
        let mut hosted = Hosted::default();
        hosted.push(named(Resting { trims, waits: 2 }));
        assert_eq!((hosted.pass(), hosted.pass()), (Turn::Idle, Turn::Idle));
        assert!(hosted.stages.is_empty());
    }

    /// Batches come all the time, while their stage moves from a thread to a host and back.
    #[test]
    fn stage_moves_between_thread_and_host_without_a_lost_batch() {
        let (rings, got, woken) =
            (Rings::default(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let wake = woken.clone();
        let home = Home::new(false, Arc::new(move || wake.store(true, SeqCst)));
        let (sender, input) = rings.bounded("to the sink", 4);
        let sender = sender.with_wake(Some(home.wake()));
        let stop = Stop::default();
        let stage = Box::new(Sink { input, got: got.clone() });
        spawn(NamedStage { name: "sink".into(), home: home.clone(), stage }, None, stop.clone()).unwrap();
        const BATCHES: u64 = 20_000;
        let send = move || {
            (0..BATCHES).for_each(|n| sender.send(n).unwrap());
            Ended::done()
        };
        let feed = thread::spawn("feed", send).unwrap();
        let mut hosted = Hosted::new(vec![home.clone()]);
        for turn in 0.. {
            home.set_hosted(true);
            while home.threads() > 0 {
                std::thread::yield_now();
            }
            hosted.adopt();
            // The host looks once, and then sleeps until it is woken.
            while hosted.pass() != Turn::Idle {}
            let (before, begin) = (got.load(Relaxed), Instant::now());
            while got.load(Relaxed) < (before + 50).min(BATCHES) {
                if woken.swap(false, SeqCst) {
                    while hosted.pass() != Turn::Idle {}
                }
                assert!(
                    begin.elapsed() < Duration::from_secs(30),
                    "a batch waits for a wake-up that does not come"
                );
                std::thread::yield_now();
            }
            let stages = hosted.take(&home);
            home.set_hosted(false);
            stages.into_iter().for_each(|stage| spawn(stage, None, stop.clone()).unwrap());
            if got.load(Relaxed) == BATCHES && turn > 20 {
                break;
            }
        }
        feed.join().unwrap();
        stop.stop();
    }

    #[test]
    fn stage_with_endless_work_blocks_no_other() {
        let (sender, input) = Rings::default().bounded("to the sink", 1);
        let got = Arc::new(AtomicU64::new(0));
        sender.send(0).unwrap();
        let mut hosted = Hosted::default();
        hosted.push(named(Greedy));
        hosted.push(named(Sink { input, got: got.clone() }));
        assert_eq!((hosted.pass(), got.load(Relaxed)), (Turn::Busy, 0), "the slice is used up");
        assert_eq!((hosted.pass(), got.load(Relaxed)), (Turn::Busy, 1));
    }

    #[test]
    fn stages_on_threads_of_their_own_do_the_same() {
        let Pipeline { input, stages: (a, b, sink), got, .. } = pipeline();
        let stop = Stop::default();
        spawn(named(a), None, stop.clone()).unwrap();
        spawn(named(b), None, stop.clone()).unwrap();
        spawn(named(sink), None, stop.clone()).unwrap();
        (0..100).for_each(|n| input.send(n).unwrap());
        while got.load(Relaxed) < 900 {
            std::thread::yield_now();
        }
        stop.stop();
    }
}
