//! BMP or MRT begins or ends while BGP runs: every stage gets the monitor's [`Tap`], or loses it.
//!
//! The session thread gets it first, so the monitor knows each session whose messages a reader may send it. A stage sends
//! nothing before the monitor's thread says what it wants, so nothing waits in the queue of a monitor that does not run yet but
//! sessions that begin or end.

use super::Bgp;
use super::monitor::Tap;
use super::resize::ShardFactory;
use ribtide_runtime::call::NoReply;
use std::fmt;
use std::io;
use std::sync::{MutexGuard, PoisonError, TryLockError};

/// Why the stages are as before. Displays as a sentence.
#[derive(Debug)]
pub enum NotChanged {
    /// Another change of stages is under way, such as one of the number of shards.
    Busy,
    /// A thread cannot be created.
    Thread(io::Error),
    /// A stage does not reply.
    NoReply(NoReply),
}

impl fmt::Display for NotChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotChanged::Busy => f.write_str("the shards are just being resized; try again when that is done"),
            NotChanged::Thread(e) => {
                write!(f, "the system gives no thread: {e}; raise the limit of processes (ulimit -u)")
            }
            NotChanged::NoReply(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for NotChanged {}

impl From<NoReply> for NotChanged {
    fn from(e: NoReply) -> NotChanged {
        NotChanged::NoReply(e)
    }
}

/// The only change of BGP's stages under way. The next one can be made after its drop.
#[must_use]
#[derive(Debug)]
pub struct Reservation<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Bgp {
    /// Reserves BGP's stages for a change of several steps, such as a reload, or of the number of shards: until it is dropped
    /// no other client makes one, so no step of it is refused for that reason.
    ///
    /// # Errors
    /// [`NotChanged::Busy`]: another one is under way.
    pub fn reserve(&self) -> Result<Reservation<'_>, NotChanged> {
        match self.changes.try_lock() {
            Ok(held) => Ok(Reservation { _held: held }),
            Err(TryLockError::Poisoned(held)) => Ok(Reservation { _held: held.into_inner() }),
            Err(TryLockError::WouldBlock) => Err(NotChanged::Busy),
        }
    }

    /// What starts shards and workers. Held, so that none starts meanwhile; another thread holds it for some calls at most.
    pub(super) fn factory(&self) -> MutexGuard<'_, ShardFactory> {
        self.factory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the BMP monitor. Its thread begins after this, or ends after this.
    ///
    /// # Errors
    /// A stage has ended.
    pub fn set_bmp(&self, tap: Option<&Tap>) -> Result<(), NotChanged> {
        // Held, so that no shard is started meanwhile.
        let mut factory = self.factory();
        factory.outputs.monitor = tap.cloned();
        let of_stage = tap.cloned();
        self.sessions.wait(move |sessions| sessions.set_bmp(of_stage))?;
        for reader in &self.readers {
            let of_stage = tap.cloned();
            reader.wait(move |reader| reader.set_bmp(of_stage))?;
        }
        let shards = self.owners.read().shards.clone();
        for shard in &shards {
            shard.set_bmp(tap.cloned())?;
        }
        for (_, worker) in self.workers.running() {
            worker.set_bmp(tap.cloned())?;
        }
        Ok(())
    }

    /// Sets the MRT monitor, as [`Bgp::set_bmp`]. Only the session thread and readers send to it.
    ///
    /// # Errors
    /// A stage has ended.
    pub fn set_mrt(&self, tap: Option<&Tap>) -> Result<(), NotChanged> {
        let of_stage = tap.cloned();
        self.sessions.wait(move |sessions| sessions.set_mrt(of_stage))?;
        for reader in &self.readers {
            let of_stage = tap.cloned();
            reader.wait(move |reader| reader.set_mrt(of_stage))?;
        }
        Ok(())
    }
}
