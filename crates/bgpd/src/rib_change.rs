//! The RIB manager begins or ends while BGP runs: no session ends, and neighbours keep every route whose next hop resolves.

use super::Bgp;
use super::monitors_change::NotChanged;
use super::shard::ShardPort;
use ribtide_rib::{RibIn, Source};
use ribtide_ribd::RibHandle;
use ribtide_runtime::call::NoReply;
use std::time::{Duration, Instant};

/// How long next hops may take to resolve before neighbours lose the routes over them. The RIB manager learns of interfaces
/// and of other programs' routes a moment after its start.
const RESOLUTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval for that, and for the ends of scans.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Bgp {
    /// A RIB manager without BGP gets all routes, and from then on reports next hops to shards. Returns when it has them, and
    /// after it has resolved them or did not within 5 s.
    ///
    /// # Errors
    /// A stage has ended.
    pub fn connect_rib(&self, rib: &RibHandle) -> Result<(), NotChanged> {
        // Held, so that no shard is started or moves meanwhile.
        let mut factory = self.factory();
        let shards = self.owners.read().shards.clone();
        let channels = shards.iter().map(ShardPort::feedback_channel).collect();
        let redistributed = self.redistributed.clone();
        rib.handle.wait(move |stage| {
            stage.set_shards(channels);
            stage.set_sessions(Some(redistributed));
        })?;
        factory.outputs.rib = Some(rib.inbox.clone());
        for shard in &shards {
            shard.begin_feed(rib.inbox.clone())?;
        }
        for shard in &shards {
            while shard.is_feeding()? {
                std::thread::sleep(POLL_INTERVAL);
            }
            shard.said()?;
        }
        // A closed queue is reported by the calls below.
        let _ = rib.inbox.send(RibIn::EndOfInitial(Source::Bgp));
        let begin = Instant::now();
        while begin.elapsed() < RESOLUTION_TIMEOUT && !is_resolved(rib)? {
            std::thread::sleep(POLL_INTERVAL);
        }
        shards.iter().try_for_each(ShardPort::begin_tracking)?;
        Ok(())
    }

    /// The RIB manager is about to end: shards take what it sent them and send it nothing more, and nothing is redistributed.
    ///
    /// # Errors
    /// A stage has ended.
    pub fn disconnect_rib(&self, rib: &RibHandle) -> Result<(), NotChanged> {
        let mut factory = self.factory();
        rib.handle.wait(|stage| {
            stage.set_shards(Vec::new());
            stage.set_sessions(None);
        })?;
        factory.outputs.rib = None;
        self.sessions.wait(|sessions| sessions.forget_redistributed())?;
        let shards = self.owners.read().shards.clone();
        shards.iter().try_for_each(ShardPort::end_feed)?;
        Ok(())
    }
}

/// Whether the RIB manager has handled all routes, those of other sources too, and every next hop of them resolves.
fn is_resolved(rib: &RibHandle) -> Result<bool, NoReply> {
    // A call comes after the batch that was taken from the queue.
    Ok(rib.inbox.is_empty() && rib.handle.wait(|stage| stage.rib.default_vrf().is_resolved())?)
}
