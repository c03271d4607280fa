//! `/metrics`: the data of `ribtide show` in OpenMetrics text. [`registry`] has the list.
//!
//! Nothing is stored between scrapes: each calls the stages, a page at a time. Samples are formatted straight into text.
//! Those of neighbours, which are nearly all, are formatted as the connection takes the reply, a chunk at a time.
//! A stage that does not reply leaves out only its own metrics. Metrics of queues and threads
//! matter most when a stage is stuck.

mod family;
mod format;
mod neighbors;
mod registry;
mod scrape_body;

pub(super) use format::Format;
pub use registry::{Kind, METRICS, Metric};

use super::answers;
use super::request::Refusal;
use super::state::RouterState;
use family::{Families, Labels};
use neighbors::Row;
use registry::*;
use ribtide_bgp::egress::GroupView;
use ribtide_config::DEFAULT_VRF;
use ribtide_dataplane::Difference;
use ribtide_model::{HealthState, MainTable, NextHopCache, PerFamilyCount, ShardSummary, Thread};
use scrape_body::ScrapeBody;
use std::fmt::Display;

/// Adds the metrics of one kind of stage.
type Part = fn(&RouterState, &mut Families) -> Result<(), Refusal>;

/// All metrics, as the body of the reply.
pub(crate) fn scrape(router: &RouterState, format: Format) -> ScrapeBody {
    let mut m = Families::default();
    m.add(INFO, &one("version", env!("CARGO_PKG_VERSION")), 1u64);
    m.add(UPTIME, &Labels::default(), router.clock.now() as f64 / 1000.0);
    m.add(LOG_DROPPED, &Labels::default(), ribtide_runtime::log::dropped());
    let mut unanswered = 0u64;
    let parts: [Part; 12] =
        [pipeline, shards, neighbors, groups, rpki, bmp, mrt, rib, asics, kernel, fpm, bfd];
    for part in parts {
        match part(router, &mut m) {
            Ok(()) | Err(Refusal::Missing(_)) => {}
            Err(_) => unanswered += 1,
        }
    }
    m.add(UNANSWERED, &Labels::default(), unanswered);
    m.into_body(format)
}

fn one(name: &'static str, value: impl Display) -> Labels {
    Labels::default().and(name, value)
}

fn two(a: (&'static str, impl Display), b: (&'static str, impl Display)) -> Labels {
    one(a.0, a.1).and(b.0, b.1)
}

/// A count for each family.
fn by_family(m: &mut Families, metric: Metric, labels: &Labels, count: PerFamilyCount) {
    m.add_family(metric, labels, "ipv4", count.ipv4);
    m.add_family(metric, labels, "ipv6", count.ipv6);
}

fn pipeline(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let p = answers::pipeline(router)?;
    for ring in &p.rings {
        let queue = || one("queue", &ring.name);
        m.add(QUEUE_BATCHES, &queue(), ring.sent);
        queue_level(m, &ring.name, Some(ring.capacity as u64), [ring.depth, ring.peak, ring.full]);
    }
    let health = answers::health(router);
    m.add(DEGRADED, &Labels::default(), health.state == HealthState::Degraded);
    health.stalls.iter().for_each(|stall| m.add(STALLED, &one("queue", &stall.what), stall.seconds));
    router
        .rings
        .read()
        .into_iter()
        .for_each(|ring| m.add_durations(QUEUE_WAIT, &one("queue", ring.name), &ring.waits));
    router
        .meters
        .read()
        .into_iter()
        .for_each(|stage| m.add_durations(STAGE_WORK, &one("stage", stage.name), &stage.work));
    p.gauges.iter().for_each(|g| queue_level(m, &g.name, g.bound, [g.depth, g.peak, g.full]));
    for stage in &p.stages {
        let name = || one("stage", &stage.name);
        m.add(STAGE_ROUTES, &name(), stage.routes);
        m.add(STAGE_BATCHES, &name(), stage.batches);
        m.add(STAGE_BUSY, &name(), stage.busy_seconds);
    }
    p.threads.iter().for_each(|thread| thread_usage(m, thread));
    m.add(MEMORY_PEAK, &Labels::default(), p.peak_memory_bytes);
    Ok(())
}

fn queue_level(m: &mut Families, name: &str, bound: Option<u64>, [depth, peak, full]: [u64; 3]) {
    let queue = || one("queue", name);
    m.add(QUEUE_DEPTH, &queue(), depth);
    if let Some(bound) = bound {
        m.add(QUEUE_BOUND, &queue(), bound);
    }
    m.add(QUEUE_PEAK, &queue(), peak);
    m.add(QUEUE_FULL, &queue(), full);
}

fn thread_usage(m: &mut Families, t: &Thread) {
    m.add(THREAD_CPU, &one("thread", &t.name), t.cpu_seconds);
    if let Some(waited) = t.waited_seconds {
        m.add(THREAD_RUNNABLE, &one("thread", &t.name), waited);
    }
}

fn asics(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for (name, asic) in &router.dataplanes().asics {
        for (table, count) in asic.reconciled() {
            let of = || two(("asic", name), ("table", table.trim_start_matches("chip ")));
            m.add(ASIC_RECONCILE_COMPARED, &of(), count.compared);
            m.add(ASIC_RECONCILE_REPAIRED, &of(), count.repaired);
            m.add(ASIC_RECONCILE_FAILED, &of(), count.failed);
        }
    }
    Ok(())
}

fn shards(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    answers::shard_summaries(router)?.iter().for_each(|s| shard(m, s));
    Ok(())
}

fn shard(m: &mut Families, s: &ShardSummary) {
    let shard = &one("shard", s.shard);
    by_family(m, SHARD_PREFIXES, shard, s.routes.prefixes);
    by_family(m, SHARD_PATHS, shard, s.routes.paths);
    by_family(m, SHARD_ACTIVE, shard, s.routes.active);
    by_family(m, SHARD_HIDDEN, shard, s.routes.hidden);
    m.add(SHARD_FIB_WAITING, shard, s.routes.waiting);
    m.add(SHARD_FIB_BLOCKED, shard, s.routes.blocked);
    m.add(SHARD_ATTRIBUTE_SETS, shard, s.attribute_sets);
    m.add(SHARD_NEXT_HOPS, shard, s.next_hops);
    m.add(SHARD_SURPLUS_PATHS, shard, s.surplus_paths);
    m.add(SHARD_MEMORY, shard, s.memory_bytes);
}

fn neighbors(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let (is_deferring, refused) = answers::deferring_and_refused(router)?;
    m.add(RESTARTING, &Labels::default(), is_deferring);
    for (why, n) in refused.by_reason() {
        m.add(REFUSED_CONNECTIONS, &one("reason", why.name()), n);
    }
    m.set_neighbors(answers::neighbor_counts(router)?.map(Row::new).collect());
    Ok(())
}

fn groups(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for (id, update_thread, view) in answers::update_groups(router)? {
        group(m, &two(("update_group", id), ("update_thread", update_thread)), &view);
    }
    Ok(())
}

fn group(m: &mut Families, labels: &Labels, g: &GroupView) {
    m.add(GROUP_MEMBERS, labels, g.members.len());
    m.add(GROUP_FULL, labels, g.blocked.len());
    m.add(GROUP_DETACHED, labels, g.detached.len());
    m.add(GROUP_POSITIONS, labels, g.cohorts);
    m.add(GROUP_WAITING, labels, g.waiting);
    m.add(GROUP_UPDATES, labels, g.counters.updates);
    m.add(GROUP_PREFIXES, labels, g.counters.announced + g.counters.withdrawn);
}

fn rpki(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let rpki = answers::rpki(router)?;
    for c in &rpki.caches {
        let cache = || one("cache", c.address);
        m.add(RPKI_CACHE_UP, &cache(), c.version.is_some());
        m.add(RPKI_CACHE_IN_USE, &cache(), c.in_use);
        by_family(m, RPKI_CACHE_RECORDS, &cache(), c.records);
        m.add(RPKI_CACHE_ASPAS, &cache(), c.aspas);
        if let Some(serial) = c.serial {
            m.add(RPKI_CACHE_SERIAL, &cache(), u64::from(serial));
        }
        if let Some(age) = c.age_seconds {
            m.add(RPKI_CACHE_AGE, &cache(), age);
        }
        m.add(RPKI_CACHE_CONNECTS, &cache(), c.connects);
        m.add(RPKI_CACHE_FAILURES, &cache(), c.failures);
    }
    by_family(m, RPKI_PAYLOADS, &Labels::default(), rpki.payloads);
    m.add(RPKI_ASPAS, &Labels::default(), rpki.aspas);
    m.add(RPKI_TABLES, &Labels::default(), rpki.tables);
    m.add(RPKI_DEGRADED, &Labels::default(), rpki.degraded);
    Ok(())
}

fn bmp(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for s in &answers::bmp(router)?.stations {
        let station = || one("station", &s.name);
        m.add(BMP_STATION_UP, &station(), matches!(s.state.as_str(), "up" | "dumping"));
        m.add(BMP_STATION_DUMPING, &station(), s.state == "dumping");
        m.add(BMP_STATION_QUEUE, &station(), s.queued_bytes);
        m.add(BMP_STATION_QUEUE_BOUND, &station(), s.queue_bytes);
        m.add(BMP_STATION_CONNECTS, &station(), s.connects);
        m.add(BMP_STATION_FAILURES, &station(), s.failures);
        m.add(BMP_STATION_OVERFLOWS, &station(), s.overflows);
        m.add(BMP_STATION_SENT, &station(), s.sent_bytes);
    }
    Ok(())
}

fn mrt(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for s in &answers::mrt(router)?.series {
        let series = || one("series", &s.name);
        m.add(MRT_FAILING, &series(), s.error.is_some());
        m.add(MRT_FILES, &series(), s.files);
        m.add(MRT_FAILURES, &series(), s.failures);
        m.add(MRT_RECORDS, &series(), s.records);
        m.add(MRT_DROPPED, &series(), s.dropped);
    }
    Ok(())
}

fn rib(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let Some(main) = answers::main(router)? else { return Ok(()) };
    let MainTable {
        protocols,
        next_hop_groups,
        memory_bytes,
        next_hop_cache,
        suppress_fib_pending,
        dataplanes,
    } = main;
    m.add(SUPPRESS_FIB_PENDING, &Labels::default(), suppress_fib_pending);
    let others = answers::vrfs(router)?;
    let of_default = protocols.iter().map(|p| (DEFAULT_VRF, p));
    let of_others = others.iter().flat_map(|table| table.protocols.iter().map(|p| (table.vrf.as_str(), p)));
    for (vrf, p) in of_default.chain(of_others) {
        let labels = || two(("vrf", vrf), ("family", &p.family)).and("protocol", &p.protocol);
        m.add(RIB_ROUTES, &labels(), p.routes);
        m.add(RIB_ACTIVE, &labels(), p.active);
        m.add(RIB_DENIED, &labels(), p.denied);
    }
    m.add(RIB_GROUPS, &Labels::default(), next_hop_groups);
    m.add(RIB_MEMORY, &Labels::default(), memory_bytes);
    cache(m, &next_hop_cache);
    for d in &dataplanes {
        let plane = || one("dataplane", &d.name);
        m.add(OUTSTANDING, &plane(), d.outstanding_batches);
        m.add(FAILED, &plane(), d.failed);
        m.add(LAG, &plane(), d.lagging_by.unwrap_or(0));
    }
    Ok(())
}

fn cache(m: &mut Families, c: &NextHopCache) {
    let none = Labels::default;
    m.add(CACHE_INFO, &one("mode", &c.mode), 1u64);
    m.add(CACHE_GENERATION, &none(), c.generation);
    m.add(CACHE_HITS, &none(), c.hits);
    m.add(CACHE_MISSES, &none(), c.misses);
    m.add(RESOLUTIONS, &none(), c.resolutions);
    m.add(LOOKUPS, &none(), c.lookups);
    m.add(CACHE_INVALIDATIONS, &none(), c.invalidations);
    m.add(RESOLUTION_TIME, &none(), c.resolution_seconds);
}

fn bfd(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let bfd = answers::bfd(router, None, None)?;
    for s in &bfd.sessions {
        let who = || two(("peer", s.peer), ("interface", s.interface.as_deref().unwrap_or_default()));
        m.add(BFD_UP, &who(), s.state == "Up");
        m.add(BFD_USABLE, &who(), s.usable);
        m.add(BFD_STATE, &who(), s.state_seconds);
        m.add(BFD_DETECTION, &who(), s.detection_ms / 1e3);
        m.add(BFD_FLAPS, &who(), s.flaps);
        m.add(BFD_SENT, &who(), s.sent);
        m.add(BFD_RECEIVED, &who(), s.received);
    }
    for (why, count) in &bfd.discarded {
        m.add(BFD_DISCARDED, &one("reason", why), *count);
    }
    Ok(())
}

fn kernel(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let dataplanes = router.dataplanes();
    let Some(kernel) = &dataplanes.kernel else { return Ok(()) };
    let counters = &kernel.repairs;
    for difference in Difference::ALL {
        m.add(KERNEL_REPAIRS, &one("difference", difference.label()), counters.repaired(difference));
    }
    m.add(KERNEL_COMPARED, &Labels::default(), counters.compared());
    m.add(KERNEL_ROUNDS, &Labels::default(), counters.rounds());
    m.add(KERNEL_ROUND_TIME, &Labels::default(), counters.round_time().as_secs_f64());
    Ok(())
}

fn fpm(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for c in answers::fpm(router)?.clients {
        let client = || one("client", &c.name);
        m.add(FPM_CONNECTED, &client(), c.connected);
        m.add(FPM_DISAGREES, &client(), c.disagreement.is_some());
        m.add(FPM_CONNECTS, &client(), c.connects);
        m.add(FPM_CONNECTS_FAILED, &client(), c.failed_connects);
        m.add(FPM_CLOSES, &client(), c.closes);
        m.add(FPM_ERRORS, &client(), c.errors);
        m.add(FPM_BATCHES, &client(), c.batches);
        m.add(FPM_QUEUE_FULL, &client(), c.queue_full);
        m.add(FPM_SENT, &client(), c.bytes_sent);
        m.add(FPM_READ, &client(), c.bytes_read);
        let replies = |result: &str| two(("client", &c.name), ("result", result));
        for (result, count) in
            [("offloaded", c.offloaded), ("refused", c.offload_failed), ("unmatched", c.unmatched)]
        {
            m.add(FPM_REPLIES, &replies(result), count);
        }
        m.add(FPM_SENT_AGAIN, &client(), c.resent);
        m.add(FPM_ROUTES, &client(), c.routes);
        m.add(FPM_DELETES, &client(), c.deletes);
        m.add(FPM_STALLED, &client(), c.stalled_seconds);
        let repairs = |difference: &str| two(("client", &c.name), ("difference", difference));
        for (difference, count) in &c.repairs {
            m.add(FPM_REPAIRS, &repairs(difference), *count);
        }
        m.add(FPM_REPAIRS_FAILED, &client(), c.repairs_failed);
        m.add(FPM_IS_COMPARED, &client(), c.is_compared);
        m.add(FPM_COMPARED, &client(), c.compared_routes);
        m.add(FPM_ROUNDS, &client(), c.compare_rounds);
        m.add(FPM_ROUND_TIME, &client(), c.compare_round_seconds);
    }
    Ok(())
}
