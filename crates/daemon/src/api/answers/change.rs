//! `/v1/bgp/shards` and `/v1/reload`: changes while the router runs.

use super::bgp::bgp;
use super::{Inside, Refusal};
use crate::api::model::{Reloaded, Resize, Resized, ShardCount};
use crate::config::Threads;
use crate::reload::reload as read_again;

/// Another number of shard threads.
pub(crate) fn resize(inside: &Inside, resize: Resize) -> Result<Resized, Refusal> {
    let threads = match resize.shards {
        ShardCount::Number(n) => Threads::Number(n),
        ShardCount::Word(_) => Threads::Auto,
    };
    let rib = inside.rib.as_ref().map(|rib| &rib.asker);
    bgp(inside)?.resize(threads, rib).map(Resized::from).map_err(|e| Refusal::Bad(e.to_string()))
}

/// The configuration file once more.
pub(crate) fn reload(inside: &Inside) -> Result<Reloaded, Refusal> {
    read_again(inside).map(Reloaded::from).map_err(|e| Refusal::Bad(e.to_string()))
}
