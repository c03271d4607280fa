//! The running egress workers, and a change of their number (`bgp.update-threads`) while sessions last.
//!
//! A worker knows what its members were sent, so a member stays with its worker as long as its session lasts. New
//! workers get the groups of new sessions. Workers in excess get none, and each ends when its last member has left. With
//! `"off"` the session thread runs them all until then ([`super::stage_moves`]).
//!
//! A new worker starts in this order:
//!
//! 1. It runs, without members.
//! 2. The session thread sends it every source that comes up from now on, when no message for other workers waits any more.
//! 3. It learns the sources that another worker knows: those before step 2.
//! 4. Each shard adds it. It has no group, so no shard sends it anything.
//! 5. The session thread may give it members. It requests the tables that they need, as ever.

use super::egress::{Outputs, WorkerBuilder, WorkerPort, WorkerSink};
use super::owners::Directory;
use super::resize::ShardFactory;
use super::session::Sessions;
use super::stage::NamedStage;
use super::{Bgp, NotChanged, stage};
use ribtide_config::Threads;
use ribtide_runtime::call::{NoReply, StageHandle};
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Poll interval for messages that wait for other workers.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How often it is checked whether a worker in excess has members.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The running workers, by number. Clones share them.
#[derive(Clone, Default)]
pub struct Workers(Arc<RwLock<Vec<Option<WorkerPort>>>>);

impl Workers {
    /// These, numbered from 0.
    pub(super) fn new(ports: Vec<WorkerPort>) -> Workers {
        Workers(Arc::new(RwLock::new(ports.into_iter().map(Some).collect())))
    }

    /// Those that run now, with their numbers.
    pub fn running(&self) -> Vec<(usize, WorkerPort)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().enumerate().filter_map(|(index, port)| Some((index, port.clone()?))).collect()
    }

    /// One of them, if it runs.
    pub fn get(&self, index: usize) -> Option<WorkerPort> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(index)?.clone()
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().flatten().count()
    }

    fn set(&self, index: usize, port: Option<WorkerPort>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() <= index {
            all.resize(index + 1, None);
        }
        all[index] = port;
    }
}

impl Bgp {
    /// Gives new sessions to so many workers; [`Threads::Off`]: the session thread runs every worker. Returns whether
    /// that is another number.
    ///
    /// # Errors
    /// A thread cannot be created, or a stage has ended. Workers that were started stay,
    /// and take no sessions.
    pub fn set_update_threads(&self, threads: Threads) -> Result<bool, NotChanged> {
        let mut factory = self.factory();
        let to = usize::from(factory.placement.stages(threads));
        let (is_off, was_off) = (threads == Threads::Off, self.hosted().workers);
        match (was_off, is_off) {
            (true, false) => self.unhost(&factory, &self.homes.workers)?,
            (false, true) => self.host_workers()?,
            _ => {}
        }
        if to == factory.update_threads {
            return Ok(was_off != is_off);
        }
        for index in 0..to {
            if self.workers.get(index).is_none() {
                self.start_worker(&mut factory, index)?;
            }
        }
        factory.update_threads = to;
        let writers = factory.writers();
        self.sessions.wait(move |sessions| {
            sessions.set_update_threads(to);
            sessions.set_writers(writers);
        })?;
        if self.workers.running().iter().any(|(index, _)| *index >= to) && !factory.is_draining {
            let drain = Drain {
                sessions: self.sessions.clone(),
                owners: self.owners.clone(),
                workers: self.workers.clone(),
                factory: self.factory.clone(),
            };
            let stop = factory.stop.signal();
            thread::spawn("egress-drain", move || {
                while !stop.sleep(DRAIN_POLL_INTERVAL) && drain.step() {}
                Ended::done()
            })
            .map_err(NotChanged::Thread)?;
            factory.is_draining = true;
        }
        Ok(true)
    }

    fn start_worker(&self, factory: &mut ShardFactory, index: usize) -> Result<(), NotChanged> {
        let shards = self.owners.read().shards.clone();
        let builder = WorkerBuilder::new(index as u16, &factory.rings, Some(self.homes.workers.wake()));
        let (sink, control) = (builder.sink(), builder.control());
        let outputs = Outputs {
            shards: shards.iter().map(|shard| shard.feedback()).collect(),
            writes: factory.writes.clone(),
            monitor: factory.outputs.monitor.clone(),
            upstream: factory.outputs.activity.watch(),
        };
        let (port, worker) = builder.build(outputs, true, &factory.meters);
        let cpus = factory.placement.stage(index);
        let worker = NamedStage::new(format!("egress-{index}"), &self.homes.workers, worker);
        stage::spawn(worker, cpus, factory.stop.clone()).map_err(NotChanged::Thread)?;
        loop {
            let control = control.clone();
            if self.sessions.wait(move |sessions| sessions.add_worker(index, control))? {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let known = self.workers.running().into_iter().next();
        if let Some((_, known)) = &known {
            port.learn(known.sources()?)?;
        }
        for shard in &shards {
            shard.set_worker(index, sink.clone())?;
        }
        set_sink(&mut factory.outputs.workers, index, sink);
        self.workers.set(index, Some(port.clone()));
        // After it is among those whose deferral ends.
        if known.map_or(Ok(false), |(_, known)| known.is_deferred())? {
            return Ok(());
        }
        Ok(port.end_deferral()?)
    }
}

/// Sets the sink of a worker; numbers have no gaps.
pub(super) fn set_sink(sinks: &mut Vec<WorkerSink>, index: usize, sink: WorkerSink) {
    match sinks.get_mut(index) {
        Some(place) => *place = sink,
        None => sinks.push(sink),
    }
}

/// Ends workers in excess.
struct Drain {
    sessions: StageHandle<Sessions>,
    owners: Arc<Directory>,
    workers: Workers,
    factory: Arc<Mutex<ShardFactory>>,
}

impl Drain {
    /// Ends those without members. Returns whether any is left.
    fn step(&self) -> bool {
        let mut factory = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = factory.update_threads;
        // A stage that does not reply has ended, and then the process is stopping.
        let left = self.end_unused(limit).unwrap_or(false);
        factory.is_draining = left;
        left
    }

    fn end_unused(&self, limit: usize) -> Result<bool, NoReply> {
        let used = self.sessions.wait(|sessions| sessions.used_workers())?;
        let mut left = false;
        for (index, port) in self.workers.running().into_iter().filter(|(index, _)| *index >= limit) {
            if used.contains(&index) {
                left = true;
                continue;
            }
            self.workers.set(index, None);
            let shards = self.owners.read().shards.clone();
            for shard in &shards {
                shard.remove_worker(index)?;
            }
            port.retire()?;
            tracing::info!(target: target::BGP, thread = format!("egress-{index}"), "the update thread has no session any more, and ends");
        }
        Ok(left)
    }
}
