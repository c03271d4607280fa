//! `/v1/bgp/shards` and `/v1/reload`: changes while the router runs.

use super::bgp::bgp;
use super::{Refusal, RouterState};
use crate::api::model::{Reloaded, Resize, Resized, ShardCount};
use crate::config::Threads;
use crate::reload::reload as read_again;

/// Another number of shard threads.
pub(crate) fn resize(router: &RouterState, resize: Resize) -> Result<Resized, Refusal> {
    let threads = match resize.shards {
        ShardCount::Number(n) => Threads::Number(n),
        ShardCount::Word(_) => Threads::Auto,
    };
    let rib = router.rib.as_ref().map(|rib| &rib.handle);
    bgp(router)?.resize(threads, rib).map(Resized::from).map_err(|e| Refusal::Bad(e.to_string()))
}

/// The configuration file once more.
pub(crate) fn reload(router: &RouterState) -> Result<Reloaded, Refusal> {
    read_again(router).map(Reloaded::from).map_err(|e| Refusal::Bad(e.to_string()))
}
