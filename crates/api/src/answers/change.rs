//! `/v1/bgp/shards` and `/v1/reload`: changes while the router runs.

use super::bgp::bgp;
use super::{ApiState, Refusal, RouterState};
use ribtide_bgpd::resize;
use ribtide_config::Threads;
use ribtide_model::{Reloaded, Resize, Resized, ShardCount};
use std::fmt;

/// What a change answers, and what the log says of it.
#[derive(Clone, Debug)]
pub(crate) struct Changed<T> {
    /// The answer.
    pub(crate) answer: T,
    /// What is otherwise now, with what it was before where that is known.
    pub(crate) says: String,
}

impl<T: fmt::Display> From<T> for Changed<T> {
    fn from(answer: T) -> Changed<T> {
        Changed { says: answer.to_string(), answer }
    }
}

/// Another number of shard threads.
pub(crate) fn resize(router: &RouterState, resize: Resize) -> Result<Resized, Refusal> {
    let threads = match resize.shards {
        ShardCount::Number(n) => Threads::Number(n),
        ShardCount::Word(_) => Threads::Auto,
    };
    let rib = router.rib.as_ref().map(|rib| &rib.handle);
    bgp(router)?.resize(threads, rib).map(resized).map_err(|e| Refusal::Bad(e.to_string()))
}

/// The configuration file once more.
pub(crate) fn reload(api: &ApiState) -> Result<Reloaded, Refusal> {
    (api.reload)().map_err(Refusal::Bad)
}

/// The answer to a resize, and to a reload that made one.
pub fn resized(resized: resize::Resized) -> Resized {
    let resize::Resized { from, to, logical_shards, prefixes, stops, most_paths } = resized;
    let [over_10, over_25, over_50] = stops.over;
    Resized {
        from,
        to,
        logical_shards,
        prefixes,
        stops: stops.count,
        stops_in_vain: stops.in_vain,
        stops_over_10_ms: over_10,
        stops_over_25_ms: over_25,
        stops_over_50_ms: over_50,
        most_paths_in_a_stop: most_paths,
        longest_stop_seconds: stops.longest.as_secs_f64(),
        paused_seconds: stops.all.as_secs_f64(),
    }
}
