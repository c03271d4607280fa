//! `/v1/bgp/shards` and `/v1/reload`: changes while the router runs.

use super::bgp::bgp;
use super::{ApiState, Refusal, RouterState};
use ribtide_bgpd::resize;
use ribtide_config::Threads;
use ribtide_model::{Reloaded, Resize, Resized, ShardCount, ShardWord};
use std::fmt;

/// A change: its reply, and its line in the log.
#[derive(Clone, Debug)]
pub(crate) struct Changed<T> {
    /// The reply.
    pub(crate) answer: T,
    /// What changed, with the former value if known.
    pub(crate) message: String,
    /// Whether anything changed, as far as that is known.
    pub(crate) is_change: bool,
}

impl<T: fmt::Display> From<T> for Changed<T> {
    fn from(answer: T) -> Changed<T> {
        Changed { message: answer.to_string(), answer, is_change: true }
    }
}

/// Changes the number of shard threads.
pub(crate) fn resize(router: &RouterState, resize: Resize) -> Result<Resized, Refusal> {
    let threads = match resize.shards {
        ShardCount::Number(n) => Threads::Number(n),
        ShardCount::Word(ShardWord::Auto) => Threads::Auto,
        ShardCount::Word(ShardWord::Off) => Threads::Off,
    };
    let rib = router.rib.get();
    let rib = rib.as_ref().map(|rib| &rib.handle);
    let bgp = bgp(router)?;
    let _reservation = bgp.reserve().map_err(|e| Refusal::Bad(e.to_string()))?;
    bgp.resize(threads, rib).map(resized).map_err(|e| Refusal::Bad(e.to_string()))
}

/// Reads the configuration file again.
pub(crate) fn reload(api: &ApiState) -> Result<Changed<Reloaded>, Refusal> {
    let reloaded = (api.reload.apply)().map_err(Refusal::Bad)?;
    Ok(Changed { is_change: !reloaded.is_unchanged(), ..Changed::from(reloaded) })
}

/// The reply to a resize, or to a reload that made one.
pub fn resized(resized: resize::Resized) -> Resized {
    let resize::Resized { from, to, logical_shards, prefixes, stops, most_paths } = resized;
    let [over_10, over_25, over_50] = stops.over;
    Resized {
        from,
        to,
        logical_shards,
        prefixes,
        stops: stops.count,
        stops_without_move: stops.without_move,
        stops_over_10_ms: over_10,
        stops_over_25_ms: over_25,
        stops_over_50_ms: over_50,
        most_paths_in_a_stop: most_paths,
        longest_stop_seconds: stops.longest.as_secs_f64(),
        paused_seconds: stops.all.as_secs_f64(),
    }
}
