//! Stages move between threads of their own and the session thread (`"off"`), while sessions last.
//!
//! Nothing about a stage changes but the thread that gives it turns ([`Home`]), so no route moves and no queue is emptied. With
//! `bgp.shards = "off"` the session thread runs the readers and one shard: the shards become one first
//! ([`Bgp::resize`]). With `bgp.update-threads = "off"` it runs every worker; those in excess end with their last session, as
//! ever.

use super::stage::{self, Home, NamedStage};
use super::{Bgp, NotChanged};
use crate::resize::ShardFactory;
use ribtide_runtime::call::NoReply;
use std::time::{Duration, Instant};

/// Poll interval for threads that are about to end.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long a thread's turn may take before its end is not waited for any more.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// The stages without threads of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnSessionThread {
    /// `bgp.shards` is `off`: the shard and the readers.
    pub shards: bool,
    /// `bgp.update-threads` is `off`: the workers.
    pub workers: bool,
}

/// Where the stages run whose threads may be `off`.
pub(super) struct Homes {
    /// The readers, and the first shard.
    pub(super) shards: Home,
    /// The workers.
    pub(super) workers: Home,
}

impl Bgp {
    /// The stages on the session thread.
    pub fn hosted(&self) -> OnSessionThread {
        OnSessionThread { shards: self.homes.shards.is_hosted(), workers: self.homes.workers.is_hosted() }
    }

    /// The session thread runs the readers and the only shard from now on.
    pub(super) fn host_shards(&self) -> Result<(), NotChanged> {
        self.homes.shards.set_hosted(true);
        for reader in &self.readers {
            reader.wait(|_| ())?;
        }
        let shards = self.owners.read().shards.clone();
        for shard in &shards {
            shard.call_all_sent()?.wait()?;
        }
        moved(&self.homes.shards)
    }

    /// The session thread runs all workers from now on.
    pub(super) fn host_workers(&self) -> Result<(), NotChanged> {
        self.homes.workers.set_hosted(true);
        for (_, worker) in self.workers.running() {
            worker.is_deferred()?;
        }
        moved(&self.homes.workers)
    }

    /// The stages of `home` run on threads of their own from now on.
    pub(super) fn unhost(&self, factory: &ShardFactory, home: &Home) -> Result<(), NotChanged> {
        moved(home)?;
        let of_call = home.clone();
        let stages: Vec<NamedStage> = self.sessions.wait(move |sessions| sessions.give_stages(&of_call))?;
        home.set_hosted(false);
        let mut outcome = Ok(());
        for stage in stages {
            let number = stage.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            let cpus = match stage.name.starts_with("reader") {
                true => factory.placement.reader(number),
                false => factory.placement.stage(number),
            };
            if let Err((error, stage)) = stage::try_spawn(stage, cpus, factory.stop.clone()) {
                outcome = Err(NotChanged::Thread(error));
                stage.into_iter().for_each(|stage| home.leave(stage));
            }
        }
        if outcome.is_err() {
            // The session thread has those without a thread: it gets the others, too.
            home.set_hosted(true);
            self.wake_stages()?;
        }
        outcome
    }

    /// Gives each stage a turn.
    fn wake_stages(&self) -> Result<(), NoReply> {
        self.readers.iter().try_for_each(|reader| reader.wait(|_| ()))?;
        let shards = self.owners.read().shards.clone();
        for shard in &shards {
            shard.call_all_sent()?.wait()?;
        }
        self.workers.running().iter().try_for_each(|(_, worker)| worker.is_deferred().map(drop))
    }
}

/// Waits until the threads have left their stages to the session thread.
fn moved(home: &Home) -> Result<(), NotChanged> {
    let begin = Instant::now();
    while home.threads() > 0 {
        if begin.elapsed() > MOVE_TIMEOUT {
            return Err(NotChanged::Busy);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
