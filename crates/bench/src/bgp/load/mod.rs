//! All neighbours of the router under test, on a few threads: senders that write what was encoded before, receivers
//! that hold for each prefix the number of its path, and know at any time how many are right.

mod backlog;
mod receiver;
mod session;
mod socket;
mod worker;

use super::model::{PathNumber, Script, View};
use super::topology::Topology;
use crate::Error;
use crate::harness::Place;
use backlog::Pool;
use receiver::Counters;
use session::Status;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::{A_TURN, Command, Worker};

/// Bytes that one thread can take before it must look at them even though more are coming.
const BACKLOG: usize = 2 << 30;
/// Commands that may wait for a thread.
const COMMANDS: usize = 4096;

/// The neighbours. Sessions have numbers: senders from 0, then receivers. Dropped, it closes them.
pub(super) struct Load {
    senders: usize,
    statuses: Vec<Arc<Status>>,
    workers: Vec<Handle>,
    /// Nanoseconds of CPU time that went into what was left for later.
    afterwards: Arc<AtomicU64>,
}

struct Handle {
    commands: SyncSender<Command>,
    waker: Arc<mio::Waker>,
    thread: Option<JoinHandle<()>>,
}

/// What a receiver has had since it was made.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Received {
    /// UPDATEs.
    pub(super) updates: u64,
    /// Prefixes announced, each as often as it was.
    pub(super) announced: u64,
    /// Prefixes withdrawn, each as often as it was.
    pub(super) withdrawn: u64,
    /// Bytes of the UPDATEs.
    pub(super) bytes: u64,
}

impl std::ops::AddAssign for Received {
    fn add_assign(&mut self, other: Received) {
        self.updates += other.updates;
        self.announced += other.announced;
        self.withdrawn += other.withdrawn;
        self.bytes += other.bytes;
    }
}

impl std::ops::Sub for Received {
    type Output = Received;
    fn sub(self, other: Received) -> Received {
        Received {
            updates: self.updates - other.updates,
            announced: self.announced - other.announced,
            withdrawn: self.withdrawn - other.withdrawn,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl Load {
    /// Threads for the neighbours of `topology`; no session is up yet. [`Load::judge_by`] must be called before the
    /// first one is. `bytes`: what all receivers together will about get in a phase.
    ///
    /// # Errors
    /// The system refuses a thread or the place.
    pub(super) fn start(
        place: &Place,
        topology: &Topology,
        threads: usize,
        bytes: usize,
    ) -> Result<Load, Error> {
        let router = SocketAddr::new(topology.router.into(), topology.port);
        let senders = topology.senders.len();
        let count = topology.neighbors().count();
        let statuses: Vec<Arc<Status>> = (0..count).map(|_| Arc::default()).collect();
        let mut load = Load { senders, statuses, workers: Vec::new(), afterwards: Arc::default() };
        let neighbors: Arc<[_]> = topology.neighbors().copied().collect();
        std::thread::scope(|scope| {
            // Sockets belong to the namespace of the thread that makes them, and threads to that of their parent.
            let enter = || -> Result<Vec<Handle>, Error> {
                place.enter_load()?;
                let one = |n: usize| {
                    let (commands, inbox) = sync_channel(COMMANDS);
                    let (worker, waker) = Worker::new(
                        router,
                        Arc::clone(&neighbors),
                        senders,
                        load.statuses.clone(),
                        inbox,
                        Arc::clone(&load.afterwards),
                        Pool::new((bytes / threads.max(1)).min(BACKLOG), 2 * A_TURN),
                    )
                    .map_err(Error::System)?;
                    let thread = std::thread::Builder::new().name(format!("load-{n}"));
                    let thread = thread.spawn(move || worker.run()).map_err(Error::System)?;
                    Ok(Handle { commands, waker, thread: Some(thread) })
                };
                (0..threads.max(1)).map(one).collect()
            };
            scope.spawn(enter).join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
        .map(|workers| {
            load.workers = workers;
            load
        })
    }

    fn tell(&self, session: usize, command: Command) {
        self.tell_worker(session % self.workers.len(), command);
    }

    fn tell_worker(&self, worker: usize, command: Command) {
        let handle = &self.workers[worker];
        // A worker ends only with us.
        let _ = handle.commands.send(command);
        let _ = handle.waker.wake();
    }

    /// The session of a receiver.
    pub(super) fn receiver(&self, n: usize) -> usize {
        self.senders + n
    }

    /// Judges receivers by `view` from now on; returns when all of them are.
    pub(super) fn judge_by(&self, view: &View) {
        self.have_all_done(|done| Command::Judge(view.clone(), done));
    }

    /// Looks at all that has come to receivers; returns when that is done. Until then it is not known what they hold.
    pub(super) fn look(&self) {
        self.have_all_done(Command::Look);
    }

    fn have_all_done(&self, command: impl Fn(SyncSender<()>) -> Command) {
        let (done, all) = sync_channel(self.workers.len());
        for worker in 0..self.workers.len() {
            self.tell_worker(worker, command(done.clone()));
        }
        drop(done);
        all.iter().for_each(drop);
    }

    /// Brings a session up, and tries again until it is. After that, it must stay.
    pub(super) fn connect(&self, session: usize) {
        self.begin(session, true);
    }

    /// The same for a session that was there before: a router that has not done with that may cut it once more.
    pub(super) fn connect_again(&self, session: usize) {
        self.begin(session, false);
    }

    fn begin(&self, session: usize, must_stay: bool) {
        self.statuses[session].set_up(false);
        self.statuses[session].set_must_stay(must_stay);
        self.tell(session, Command::Connect(session));
    }

    /// Ends a session with a Cease; what it held is forgotten.
    pub(super) fn close(&self, session: usize) {
        self.statuses[session].set_up(false);
        self.tell(session, Command::Close(session));
    }

    /// Sends `script`; [`Load::is_sent`] says when the system has taken all of it.
    pub(super) fn send(&self, session: usize, script: Script) {
        self.statuses[session].set_sent(false);
        self.tell(session, Command::Send(session, script));
    }

    /// Whether a session is up.
    pub(super) fn is_up(&self, session: usize) -> bool {
        self.statuses[session].is_up()
    }

    /// Whether all was sent.
    pub(super) fn is_sent(&self, session: usize) -> bool {
        self.statuses[session].is_sent()
    }

    /// Why a session ended by itself, or did not come up the last time it was tried.
    pub(super) fn trouble(&self, session: usize) -> Option<String> {
        self.statuses[session].trouble()
    }

    /// How often sessions were cut that had come back.
    pub(super) fn cut(&self) -> u64 {
        self.statuses.iter().map(|status| status.cut()).sum()
    }

    /// A session that was up and ended by itself.
    pub(super) fn lost(&self) -> Option<(usize, String)> {
        let lost = |(n, status): (usize, &Arc<Status>)| status.lost().map(|why| (n, why));
        self.statuses.iter().enumerate().find_map(lost)
    }

    /// When receiver `session` came to hold exactly the best table, as of the last [`Load::look`]; `None` while it does not.
    pub(super) fn right_since(&self, session: usize) -> Option<Instant> {
        self.counters(session).right_since()
    }

    /// What a receiver has had until the last [`Load::look`].
    pub(super) fn received(&self, session: usize) -> Received {
        self.counters(session).received()
    }

    /// CPU time that went into [`Load::look`]: not at the router's cost.
    pub(super) fn afterwards(&self) -> Duration {
        Duration::from_nanos(self.afterwards.load(Relaxed))
    }

    /// When an UPDATE last came to any receiver.
    pub(super) fn last_update(&self) -> Option<Instant> {
        self.statuses.iter().filter_map(|s| s.counters.last()).max()
    }

    fn counters(&self, session: usize) -> &Counters {
        &self.statuses[session].counters
    }

    /// The paths that a receiver holds now, and how many prefixes it holds that no sender announced.
    pub(super) fn table(&self, session: usize) -> (Vec<PathNumber>, usize) {
        let (answer, table) = sync_channel(1);
        self.tell(session, Command::Table(session, answer));
        table.recv_timeout(Duration::from_secs(60)).unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for worker in 0..self.workers.len() {
            self.tell_worker(worker, Command::Stop);
        }
        for handle in &mut self.workers {
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
