//! Where the API's answers come from: questions to the stages, put together.

mod asic;
mod bgp;
mod change;
mod explain;
mod fib;
mod reads;
mod routes;

pub(crate) use asic::asic_lookup;
pub(super) use bgp::{bgp_clear, bgp_neighbor, bgp_summary};
pub(crate) use change::{reload, resize};
pub(super) use explain::explain;
pub(super) use fib::fib;
pub(crate) use reads::Reads;
pub(crate) use routes::Read as RouteRead;
pub(super) use routes::routes;

use super::model::{Fpm, FpmClient, Pipeline, Ring, Stage, Thread};
use super::server::Refusal;
use crate::dataplane::fpm::FpmReading;
use crate::router::Inside;
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// What a person asks about.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Exactly this prefix.
    Prefix(AnyPrefix),
    /// Whatever this address matches longest.
    Address(IpAddr),
}

/// `10.0.0.0/8` is a prefix, `10.0.0.1` an address.
fn target(text: &str) -> Result<Target, Refusal> {
    if let Ok(address) = text.parse() {
        return Ok(Target::Address(address));
    }
    text.parse()
        .map(Target::Prefix)
        .map_err(|e: ribtide_prefix::ParsePrefixError| Refusal::Bad(e.to_string()))
}

/// `/v1/pipeline`.
pub(crate) fn pipeline(inside: &Inside) -> Result<Pipeline, Refusal> {
    let stages = inside.meters.read().into_iter().map(|m| Stage {
        name: m.name,
        routes: m.routes,
        batches: m.batches,
        busy_seconds: m.busy.as_secs_f64(),
        first_seconds: m.span.map(|(first, _)| first.as_secs_f64()),
        last_seconds: m.span.map(|(_, last)| last.as_secs_f64()),
    });
    let rings = inside.rings.read().into_iter().map(|r| Ring {
        name: r.name,
        capacity: r.capacity,
        depth: r.depth,
        peak: r.peak,
        sent: r.sent,
        full: r.full,
    });
    let unread = |e: std::io::Error| Refusal::Busy(format!("cannot read /proc: {e}"));
    let threads = ribtide_runtime::thread::cpu_seconds().map_err(unread)?;
    let threads = threads.into_iter().map(|(name, cpu_seconds)| Thread { name, cpu_seconds });
    Ok(Pipeline {
        stages: stages.collect(),
        rings: rings.collect(),
        threads: threads.collect(),
        peak_memory_bytes: ribtide_runtime::thread::peak_memory().map_err(unread)?,
    })
}

/// `/v1/fpm`.
pub(super) fn fpm(inside: &Inside) -> Result<Fpm, Refusal> {
    let clients = inside.fpm.iter().map(|client| {
        let FpmReading {
            connected,
            connects,
            failed_connects,
            closes,
            routes,
            deletes,
            bytes_sent,
            bytes_read,
            stalled_us,
            offloaded,
            offload_failed,
        } = client.read();
        FpmClient {
            name: client.name.clone(),
            server: client.server,
            connected,
            connects,
            failed_connects,
            closes,
            routes,
            deletes,
            bytes_sent,
            bytes_read,
            stalled_seconds: stalled_us as f64 / 1e6,
            offloaded,
            offload_failed,
        }
    });
    Ok(Fpm { clients: clients.collect() })
}
