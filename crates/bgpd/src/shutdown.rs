//! The end of BGP while the process goes on.

use super::Bgp;
use ribtide_config::{BgpConfig, OriginateConfig};
use ribtide_runtime::call::NoReply;
use ribtide_runtime::log::target;
use std::time::{Duration, Instant};

/// How long routes may take to leave the shards. Shards that end drop the routes that are left
/// then.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the session thread may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval for both.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Bgp {
    /// Ends BGP: every session with Cease, Peer De-configured (RFC 4486), and every originated route. Shards withdraw their routes
    /// from the RIB manager and unregister their next hops before the threads end. `former`: the configuration in force.
    pub fn end(&self, former: &BgpConfig) {
        if let Err(error) = self.drain(former) {
            // It has ended, and then the process is stopping.
            tracing::warn!(target: target::BGP, %error, "BGP ends with routes");
        }
        self.stop.stop();
        let begin = Instant::now();
        while !self.session_thread.is_finished() && begin.elapsed() < END_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn drain(&self, former: &BgpConfig) -> Result<(), NoReply> {
        let nothing = BgpConfig {
            listen: Vec::new(),
            neighbors: Default::default(),
            dynamic: Vec::new(),
            interfaces: Vec::new(),
            originate: OriginateConfig::default(),
            ..former.clone()
        };
        // Routes of API clients end with their source.
        let outcome = self.sessions.wait(move |sessions| sessions.reconfigure(&nothing))?;
        if let Err(error) = outcome {
            tracing::warn!(target: target::BGP, %error, "sessions end with the session thread");
        }
        let begin = Instant::now();
        while begin.elapsed() < DRAIN_TIMEOUT && self.has_routes()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Whether a shard has routes, or effects that are not in the queues of later stages.
    fn has_routes(&self) -> Result<bool, NoReply> {
        let shards = self.owners.read().shards.clone();
        for shard in &shards {
            let counts = shard.call(|shard| shard.counts())?;
            let has_routes = counts.families.iter().any(|(_, of)| of.prefixes > 0);
            if has_routes || !shard.has_taken_all() {
                return Ok(true);
            }
            shard.said()?;
        }
        Ok(false)
    }

    /// How many shards ever existed, for [`BgpBuilder::after_run`](super::BgpBuilder::after_run). Waits for a resize.
    pub fn shards_ever(&self) -> u32 {
        self.factory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).shards_ever
    }
}
