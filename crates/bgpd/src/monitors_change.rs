//! BMP or MRT begins or ends while BGP runs: every stage gets the monitor's [`Tap`], or loses it.
//!
//! The session thread gets it first, so the monitor knows each session whose messages a reader may send it. A stage sends
//! nothing before the monitor's thread says what it wants, so nothing waits in the queue of a monitor that does not run yet but
//! sessions that begin or end.

use super::Bgp;
use super::monitor::Tap;
use ribtide_runtime::call::NoReply;
use std::fmt;
use std::io;

/// Why the stages are as before. Displays as a sentence.
#[derive(Debug)]
pub enum NotChanged {
    /// The number of shards is changing, and new ones would miss the change.
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

impl Bgp {
    /// Sets the BMP monitor. Its thread begins after this, or ends after this.
    ///
    /// # Errors
    /// The number of shards is changing, or a stage has ended.
    pub fn set_bmp(&self, tap: Option<&Tap>) -> Result<(), NotChanged> {
        // Held, so that no shard is started meanwhile.
        let Ok(mut factory) = self.factory.try_lock() else { return Err(NotChanged::Busy) };
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
