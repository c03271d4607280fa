//! Sources of virtual object ids (VIDs).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of VID numbers. SONiC's orchagent and syncd share one counter in ASIC_DB, so numbers
/// are taken in blocks.
pub trait VidSource: Send {
    /// Takes `count` unused numbers.
    ///
    /// # Errors
    /// A sentence when the counter cannot be reached.
    fn take(&mut self, count: u64) -> Result<Range<u64>, String>;

    /// Raises the counter above `last`, because objects have these numbers though the counter may
    /// have been lost.
    ///
    /// # Errors
    /// As [`VidSource::take`].
    fn pass(&mut self, last: u64) -> Result<(), String>;
}

/// A counter in memory, for orchagent and syncd in one process, or for one of them. Clones share
/// it.
#[derive(Clone, Default, Debug)]
pub struct VidCounter(Arc<AtomicU64>);

impl VidSource for VidCounter {
    fn take(&mut self, count: u64) -> Result<Range<u64>, String> {
        // Index 0 is the switch.
        let start = self.0.fetch_add(count, Ordering::Relaxed) + 1;
        Ok(start..start + count)
    }

    fn pass(&mut self, last: u64) -> Result<(), String> {
        self.0.fetch_max(last, Ordering::Relaxed);
        Ok(())
    }
}
