//! `/metrics`: what `ribtide show` says, for Prometheus and whatever else reads OpenMetrics. docs/operations.md has the
//! list with what to watch.
//!
//! Nothing is kept between scrapes: each asks the stages as `ribtide show` does, a page at a time. A stage that does not
//! answer leaves out its metrics, not the others: queues and threads say most just when a stage is stuck.

mod family;

use super::answers;
use super::request::{NeighborQuery, Refusal};
use super::state::RouterState;
use family::{Families, Labels};
use ribtide_config::DEFAULT_VRF;
use ribtide_model::{
    Group, MainTable, Messages, Neighbor, NextHopCache, PerFamilyCount, ShardSummary, Thread,
};

/// What the text is.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds what one kind of stage says.
type Part = fn(&RouterState, &mut Families) -> Result<(), Refusal>;

/// Neighbours of a page.
const PAGE: usize = 64;

/// Everything, as OpenMetrics text.
pub(crate) fn text(router: &RouterState) -> Result<String, Refusal> {
    let mut m = Families::default();
    m.gauge("info", "Which version this is.", one("version", env!("CARGO_PKG_VERSION")), 1u64);
    m.gauge("uptime_seconds", "Since the start.", Labels::new(), router.clock.now() as f64 / 1000.0);
    let mut unanswered = 0u64;
    let parts: [Part; 7] = [pipeline, shards, neighbors, groups, rib, fpm, bfd];
    for part in parts {
        match part(router, &mut m) {
            Ok(()) | Err(Refusal::Missing(_)) => {}
            Err(_) => unanswered += 1,
        }
    }
    m.gauge(
        "unanswered_questions",
        "Parts of this scrape that a stage did not answer for; their metrics are missing.",
        Labels::new(),
        unanswered,
    );
    m.text().map_err(|_| Refusal::Busy("the metrics cannot be written as text".into()))
}

fn one(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn two(a: (&'static str, impl ToString), b: (&'static str, impl ToString)) -> Labels {
    vec![(a.0, a.1.to_string()), (b.0, b.1.to_string())]
}

/// A count's value for each family.
fn by_family(
    m: &mut Families,
    name: &'static str,
    help: &'static str,
    labels: &Labels,
    count: PerFamilyCount,
) {
    for (family, n) in [("ipv4", count.ipv4), ("ipv6", count.ipv6)] {
        let mut labels = labels.clone();
        labels.push(("family", family.into()));
        m.gauge(name, help, labels, n);
    }
}

fn pipeline(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let p = answers::pipeline(router)?;
    for ring in &p.rings {
        let queue = || one("queue", &ring.name);
        m.counter("queue_batches", "Batches that went in.", queue(), ring.sent);
        queue_level(m, &ring.name, Some(ring.capacity as u64), [ring.depth, ring.peak, ring.full]);
    }
    p.gauges.iter().for_each(|g| queue_level(m, &g.name, g.bound, [g.depth, g.peak, g.full]));
    for stage in &p.stages {
        let name = || one("stage", &stage.name);
        m.counter("stage_routes", "Route changes that the stage handled.", name(), stage.routes);
        m.counter("stage_batches", "In how many batches.", name(), stage.batches);
        m.counter("stage_busy_seconds", "Wall time at work.", name(), stage.busy_seconds);
    }
    p.threads.iter().for_each(|thread| thread_usage(m, thread));
    m.gauge("memory_peak_bytes", "Peak resident memory of the process.", Labels::new(), p.peak_memory_bytes);
    Ok(())
}

fn queue_level(m: &mut Families, name: &str, bound: Option<u64>, [depth, peak, full]: [u64; 3]) {
    let queue = || one("queue", name);
    m.gauge("queue_depth", "Batches in the queue now, or what its name says.", queue(), depth);
    if let Some(bound) = bound {
        m.gauge("queue_bound", "What it takes at most.", queue(), bound);
    }
    m.gauge("queue_peak", "The most it ever held.", queue(), peak);
    m.counter("queue_full", "How often a producer found it full and had to wait.", queue(), full);
}

fn thread_usage(m: &mut Families, t: &Thread) {
    let cpu = "CPU time of the thread, or of all threads of this name.";
    m.counter("thread_cpu_seconds", cpu, one("thread", &t.name), t.cpu_seconds);
    if let Some(waited) = t.waited_seconds {
        let help = "Time in which the thread could have run but had no CPU.";
        m.counter("thread_runnable_seconds", help, one("thread", &t.name), waited);
    }
}

fn shards(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let summary = answers::route_summary(router)?;
    summary.shards.iter().for_each(|s| shard(m, s));
    Ok(())
}

fn shard(m: &mut Families, s: &ShardSummary) {
    let shard = one("shard", s.shard);
    by_family(m, "bgp_shard_prefixes", "Prefixes in the shard thread.", &shard, s.routes.prefixes);
    by_family(m, "bgp_shard_paths", "Paths in the shard thread.", &shard, s.routes.paths);
    by_family(m, "bgp_shard_active", "Prefixes with a best path in force.", &shard, s.routes.active);
    by_family(
        m,
        "bgp_shard_hidden",
        "Paths that cannot be used: their next hop cannot be reached.",
        &shard,
        s.routes.hidden,
    );
    let waiting = "Best paths that are not advertised before dataplanes confirm them.";
    m.gauge("bgp_shard_fib_waiting", waiting, shard.clone(), s.routes.waiting);
    let blocked = "Best paths that are not advertised because the FIB does not have them.";
    m.gauge("bgp_shard_fib_blocked", blocked, shard.clone(), s.routes.blocked);
    m.gauge("bgp_shard_attribute_sets", "Attribute sets in use.", shard.clone(), s.attribute_sets);
    m.gauge("bgp_shard_next_hops", "Next hops in use.", shard.clone(), s.next_hops);
    m.gauge("bgp_shard_memory_bytes", "Tables, paths and attribute sets.", shard, s.memory_bytes);
}

fn neighbors(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let mut query = NeighborQuery::default();
    loop {
        let page = answers::bgp_neighbors(router, &query, PAGE)?;
        page.neighbors.iter().for_each(|n| neighbor(m, n));
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

fn neighbor(m: &mut Families, n: &Neighbor) {
    let who = two(("neighbor", n.address), ("group", &n.group));
    m.gauge("bgp_neighbor_up", "Whether its session is established.", who.clone(), n.session.is_some());
    m.gauge(
        "bgp_neighbor_state_seconds",
        "How long it has been up, or in its state.",
        who.clone(),
        n.state_seconds,
    );
    m.counter("bgp_neighbor_flaps", "Established sessions lost.", who.clone(), n.flaps);
    let Some(s) = &n.session else { return };
    by_family(m, "bgp_neighbor_accepted", "Paths held of it.", &who, s.accepted);
    by_family(m, "bgp_neighbor_active", "Of these, best paths in force.", &who, s.active);
    by_family(m, "bgp_neighbor_advertised", "Prefixes advertised to it.", &who, s.advertised);
    messages(m, &who, "received", &s.messages_received);
    messages(m, &who, "sent", &s.messages_sent);
    let c = &s.counters;
    let prefixes = [
        ("received", "announced", c.announced),
        ("received", "withdrawn", c.withdrawn),
        ("received", "refused", c.loops + c.rejected + c.first_as + c.martians),
        ("sent", "announced", s.sent.announced),
        ("sent", "withdrawn", s.sent.withdrawn),
    ];
    for (direction, what, count) in prefixes {
        let mut labels = who.clone();
        labels.extend([("direction", direction.into()), ("what", what.into())]);
        m.counter("bgp_neighbor_prefixes", "Prefixes in UPDATEs of this session.", labels, count);
    }
    let faults = "UPDATEs treated as withdrawals (RFC 7606).";
    m.counter("bgp_neighbor_treated_as_withdraw", faults, who.clone(), c.treated_as_withdraw);
    m.gauge("bgp_neighbor_write_queue_bytes", "What waits to be written.", who.clone(), s.write_queue.bytes);
    let blocks = "How often its TCP took less than there was to write.";
    m.counter("bgp_neighbor_write_queue_blocks", blocks, who.clone(), s.write_queue.blocks);
    let stops = "How often its write queue was full, so that its update group went on without it.";
    m.counter("bgp_neighbor_write_queue_stops", stops, who.clone(), s.write_queue.stops);
    m.gauge("bgp_neighbor_waiting", "Prefixes that wait to be packed for it.", who.clone(), s.waiting);
    m.gauge("bgp_neighbor_slow", "Whether it is designated a slow writer.", who, s.write_queue.slow_writer);
}

fn messages(m: &mut Families, who: &Labels, direction: &str, messages: &Messages) {
    for (kind, count) in messages.kinds() {
        let mut labels = who.clone();
        labels.extend([("direction", direction.to_owned()), ("type", kind.to_ascii_lowercase())]);
        m.counter("bgp_neighbor_messages", "Messages of this session.", labels, count);
    }
}

fn groups(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let groups = answers::bgp_groups(router, None, None)?;
    groups.groups.iter().for_each(|g| group(m, g));
    Ok(())
}

fn group(m: &mut Families, g: &Group) {
    let labels = || two(("update_group", &g.id), ("update_thread", &g.update_thread));
    m.gauge("bgp_update_group_members", "Members.", labels(), g.members.len());
    let full = g.members.iter().filter(|member| member.full).count();
    m.gauge("bgp_update_group_full_members", "Members whose write queue is full.", labels(), full);
    let detached = g.members.iter().filter(|member| member.detached).count();
    let behind = "Members that the group has gone on without, and that have not caught up.";
    m.gauge("bgp_update_group_detached_members", behind, labels(), detached);
    m.gauge("bgp_update_group_positions", "Positions of its members; 1: all keep up.", labels(), g.positions);
    m.gauge("bgp_update_group_waiting", "Prefixes that wait to be packed.", labels(), g.waiting);
    let once = "UPDATEs packed, each once however many members got it.";
    m.counter("bgp_update_group_updates", once, labels(), g.sent.updates);
    let prefixes =
        "Prefixes in them, announced and withdrawn; divided by the UPDATEs, how well they are packed.";
    m.counter("bgp_update_group_prefixes", prefixes, labels(), g.sent.announced + g.sent.withdrawn);
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
    let suppress = "Whether BGP advertises only what dataplanes confirmed.";
    m.gauge("suppress_fib_pending", suppress, Labels::new(), suppress_fib_pending);
    let others = answers::vrfs(router)?;
    let of_default = protocols.iter().map(|p| (DEFAULT_VRF, p));
    let of_others = others.iter().flat_map(|table| table.protocols.iter().map(|p| (table.vrf.as_str(), p)));
    for (vrf, p) in of_default.chain(of_others) {
        let labels = || [two(("vrf", vrf), ("family", &p.family)), one("protocol", &p.protocol)].concat();
        m.gauge("rib_routes", "Routes of the RIB manager.", labels(), p.routes);
        m.gauge("rib_active", "Of these, selected and given to the dataplanes.", labels(), p.active);
        let denied = "Of these, selected and kept from the dataplanes by fib.policy, or vrf.NAME.policy.";
        m.gauge("rib_denied", denied, labels(), p.denied);
    }
    m.gauge("rib_next_hop_groups", "Next-hop groups.", Labels::new(), next_hop_groups);
    m.gauge("rib_memory_bytes", "The routing tables, without groups.", Labels::new(), memory_bytes);
    cache(m, &next_hop_cache);
    for d in &dataplanes {
        let plane = || one("dataplane", &d.name);
        let outstanding = "Batches sent and not yet confirmed.";
        m.gauge("dataplane_outstanding_batches", outstanding, plane(), d.outstanding_batches);
        m.gauge("dataplane_failed", "Prefixes that it could not install.", plane(), d.failed);
        let behind =
            "Prefixes that changed and that a dataplane which is behind the others is still to be told of.";
        m.gauge("dataplane_behind", behind, plane(), d.behind.unwrap_or(0));
    }
    Ok(())
}

fn cache(m: &mut Families, c: &NextHopCache) {
    let none = Labels::new;
    m.gauge("rib_next_hop_cache_info", "How the resolution cache works.", one("mode", &c.mode), 1u64);
    m.gauge(
        "rib_next_hop_cache_generation",
        "Events that outdate it in mode epoch, and 1.",
        none(),
        c.generation,
    );
    let hits = "Routes that took what their next-hop group had resolved to.";
    m.counter("rib_next_hop_cache_hits", hits, none(), c.hits);
    let misses = "Routes for which a set of next hops had to be resolved first.";
    m.counter("rib_next_hop_cache_misses", misses, none(), c.misses);
    m.counter("rib_next_hop_resolutions", "Sets of next hops resolved.", none(), c.resolutions);
    m.counter("rib_next_hop_lookups", "Next hops looked up.", none(), c.lookups);
    let outdated = "Next-hop groups whose cached result an event outdated.";
    m.counter("rib_next_hop_cache_invalidations", outdated, none(), c.invalidations);
    m.counter("rib_resolution_seconds", "Wall time spent on resolution.", none(), c.resolution_seconds);
}

fn bfd(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    let bfd = answers::bfd(router, None)?;
    for s in &bfd.sessions {
        let who = || two(("peer", s.peer), ("interface", s.interface.as_deref().unwrap_or_default()));
        m.gauge("bfd_session_up", "Whether the BFD session is up.", who(), s.state == "Up");
        m.gauge("bfd_session_usable", "Whether next hops may lead to the neighbour.", who(), s.usable);
        m.gauge("bfd_session_state_seconds", "How long it has been in its state.", who(), s.state_seconds);
        let detection = "After so long without a packet it is down.";
        m.gauge("bfd_session_detection_seconds", detection, who(), s.detection_ms / 1e3);
        m.counter("bfd_session_flaps", "How often it went down from up.", who(), s.flaps);
        m.counter("bfd_session_sent", "BFD packets sent.", who(), s.sent);
        m.counter("bfd_session_received", "BFD packets received.", who(), s.received);
    }
    for (why, count) in &bfd.discarded {
        m.counter("bfd_discarded", "BFD packets discarded, by reason.", one("reason", why), *count);
    }
    Ok(())
}

fn fpm(router: &RouterState, m: &mut Families) -> Result<(), Refusal> {
    for c in answers::fpm(router)?.clients {
        let client = || one("client", &c.name);
        m.gauge("fpm_connected", "Whether there is a connection.", client(), c.connected);
        let says = "Whether the server's replies do not fit fib.suppress-fib-pending; show fpm says how.";
        m.gauge("fpm_disagrees", says, client(), c.disagreement.is_some());
        m.counter("fpm_connects", "Connections made.", client(), c.connects);
        m.counter("fpm_connects_failed", "Attempts to connect that failed.", client(), c.failed_connects);
        m.counter("fpm_closes", "Connections that ended.", client(), c.closes);
        m.counter("fpm_errors", "Connections ended for bytes that are no FPM.", client(), c.errors);
        m.counter("fpm_batches", "Batches of the RIB manager written.", client(), c.batches);
        m.counter("fpm_queue_full", "Batches that found the queue full.", client(), c.queue_full);
        m.counter("fpm_sent_bytes", "Bytes written.", client(), c.bytes_sent);
        m.counter("fpm_read_bytes", "Bytes read.", client(), c.bytes_read);
        let replies = |result: &str| two(("client", &c.name), ("result", result));
        for (result, count) in
            [("offloaded", c.offloaded), ("refused", c.offload_failed), ("unmatched", c.unmatched)]
        {
            m.counter("fpm_replies", "Replies about routes, by what they said.", replies(result), count);
        }
        let again = "Routes sent once more, because it was unsure which change a reply was about.";
        m.counter("fpm_asked_again", again, client(), c.asked_again);
        m.counter("fpm_routes", "Routes sent, replacements included.", client(), c.routes);
        m.counter("fpm_deletes", "Deletions sent.", client(), c.deletes);
        let stalled = "Time spent waiting for the server to read.";
        m.counter("fpm_stalled_seconds", stalled, client(), c.stalled_seconds);
    }
    Ok(())
}
