//! All neighbours of the router under test, on a few threads. Senders write encoded messages;
//! receivers store the path number of each prefix and count the correct ones.

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
use ribtide_runtime::call::StageHandle;
use session::Status;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::{FREE_SEGMENTS_MIN, Worker};

/// Bytes that one thread may store before it must parse them.
const BACKLOG: usize = 2 << 30;

/// The neighbours. Sessions have numbers: senders from 0, then receivers. Dropped, it closes them.
pub(super) struct Load {
    senders: usize,
    statuses: Vec<Arc<Status>>,
    workers: Vec<Handle>,
    /// Nanoseconds of CPU time of deferred parsing.
    afterwards: Arc<AtomicU64>,
}

struct Handle {
    worker: StageHandle<Worker>,
    thread: Option<JoinHandle<()>>,
}

/// Messages that a receiver got since its start.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Received {
    /// UPDATEs.
    pub(super) updates: u64,
    /// Prefix announcements, repeated ones included.
    pub(super) announced: u64,
    /// Prefix withdrawals, repeated ones included.
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
    /// Starts the threads for the neighbours of `topology`, without sessions. Call
    /// [`Load::set_view`] before the first one. `bytes`: about the bytes that all receivers get in
    /// a phase.
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
            // Sockets belong to the namespace of their thread, and threads to that of their parent.
            let enter = || -> Result<Vec<Handle>, Error> {
                place.enter_load()?;
                let one = |n: usize| {
                    let (worker, handle, calls) = Worker::new(
                        router,
                        Arc::clone(&neighbors),
                        senders,
                        load.statuses.clone(),
                        Arc::clone(&load.afterwards),
                        Pool::new((bytes / threads.max(1)).min(BACKLOG), 2 * FREE_SEGMENTS_MIN),
                    )
                    .map_err(Error::System)?;
                    let thread = std::thread::Builder::new().name(format!("load-{n}"));
                    let thread = thread.spawn(move || worker.run(&calls)).map_err(Error::System)?;
                    Ok(Handle { worker: handle, thread: Some(thread) })
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

    /// The worker of a session.
    fn worker(&self, session: usize) -> &StageHandle<Worker> {
        &self.workers[session % self.workers.len()].worker
    }

    /// Starts a call of the worker of a session. Blocks only while too many calls wait there.
    fn start_call(&self, session: usize, call: impl FnOnce(&mut Worker) + Send + 'static) {
        // A worker ends only with this struct.
        let _ = self.worker(session).start(call);
    }

    /// The session of a receiver.
    pub(super) fn receiver(&self, n: usize) -> usize {
        self.senders + n
    }

    /// Sets the expected routes of receivers; returns when all of them use it.
    pub(super) fn set_view(&self, view: &View) {
        self.call_all(|| {
            let view = view.clone();
            |worker: &mut Worker| worker.set_view(view)
        });
    }

    /// Parses everything that receivers got; returns when it is done. Before that, their routes are
    /// not known.
    pub(super) fn parse_all(&self) {
        self.call_all(|| Worker::read_all);
    }

    /// Runs a call on all workers at the same time, and waits for all.
    fn call_all<C: FnOnce(&mut Worker) + Send + 'static>(&self, call: impl Fn() -> C) {
        let pending: Vec<_> = self.workers.iter().map(|handle| handle.worker.start(call())).collect();
        pending.into_iter().flatten().for_each(|pending| _ = pending.wait());
    }

    /// Brings a session up, with retries. Afterwards it must stay up.
    pub(super) fn connect(&self, session: usize) {
        self.begin(session, false);
    }

    /// The same for a returning session: a router that has not removed the old one may close it
    /// once more.
    pub(super) fn connect_again(&self, session: usize) {
        self.begin(session, true);
    }

    fn begin(&self, session: usize, may_end: bool) {
        self.statuses[session].up.store(false, Relaxed);
        self.statuses[session].may_end.store(may_end, Relaxed);
        self.start_call(session, move |worker| worker.connect(session));
    }

    /// Ends a session with a Cease and drops its routes.
    pub(super) fn close(&self, session: usize) {
        self.statuses[session].up.store(false, Relaxed);
        self.start_call(session, move |worker| worker.close(session));
    }

    /// Sends `script`; [`Load::is_sent`] reports when the kernel has taken all of it.
    pub(super) fn send(&self, session: usize, script: Script) {
        self.statuses[session].sending.store(true, Relaxed);
        self.start_call(session, move |worker| worker.send(session, script));
    }

    /// Whether a session is up.
    pub(super) fn is_up(&self, session: usize) -> bool {
        self.statuses[session].up.load(Relaxed)
    }

    /// Whether all was sent.
    pub(super) fn is_sent(&self, session: usize) -> bool {
        !self.statuses[session].sending.load(Relaxed)
    }

    /// The reason why a session ended or did not come up.
    pub(super) fn trouble(&self, session: usize) -> Option<String> {
        self.statuses[session].trouble()
    }

    /// The number of returned sessions that were closed again.
    pub(super) fn cut(&self) -> u64 {
        self.statuses.iter().map(|status| status.cut.load(Relaxed)).sum()
    }

    /// A session that was up and ended by itself.
    pub(super) fn lost(&self) -> Option<(usize, String)> {
        let lost = |(n, status): (usize, &Arc<Status>)| status.lost().map(|why| (n, why));
        self.statuses.iter().enumerate().find_map(lost)
    }

    /// When receiver `session` came to hold exactly the best table, as of the last
    /// [`Load::parse_all`]; `None` while it does not.
    pub(super) fn right_since(&self, session: usize) -> Option<Instant> {
        self.statuses[session].counters().right_since
    }

    /// Messages that a receiver got until the last [`Load::parse_all`].
    pub(super) fn received(&self, session: usize) -> Received {
        self.statuses[session].counters().received
    }

    /// CPU time of [`Load::parse_all`]: it does not count for the router.
    pub(super) fn afterwards(&self) -> Duration {
        Duration::from_nanos(self.afterwards.load(Relaxed))
    }

    /// When the last UPDATE arrived at any receiver.
    pub(super) fn last_update(&self) -> Option<Instant> {
        self.statuses.iter().filter_map(|s| s.counters().last).max()
    }

    /// The paths of a receiver, and the number of its prefixes that no sender announced.
    pub(super) fn table(&self, session: usize) -> (Vec<PathNumber>, usize) {
        self.worker(session).wait(move |worker| worker.table(session)).unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for handle in &self.workers {
            let _ = handle.worker.start(Worker::stop);
        }
        for handle in &mut self.workers {
            if let Some(thread) = handle.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
