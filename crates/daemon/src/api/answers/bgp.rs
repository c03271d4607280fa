//! `/v1/bgp/…`: neighbours and totals. The session thread knows the sessions, readers what came, shards what is held,
//! workers what went out.

use super::{Inside, Refusal};
use crate::api::model::{BgpSummary, Clear, Cleared, Neighbor, PerFamilyCount, ReceiveCounters, Session};
use crate::bgp::Bgp;
use crate::bgp::session::{NeighborView, UpView};
use ribtide_bgp::ingest::{IngestCounters, Refusal as Refused};
use ribtide_bgp::peer::{PeerId, PeerKind};
use ribtide_prefix::{Afi, V4, V6};
use std::net::IpAddr;

fn bgp(inside: &Inside) -> Result<&Bgp, Refusal> {
    let none =
        || Refusal::Missing("this router runs no BGP; a [bgp] table in its configuration makes it".into());
    inside.bgp.as_ref().ok_or_else(none)
}

/// One line for each neighbour.
pub(crate) fn bgp_summary(inside: &Inside) -> Result<BgpSummary, Refusal> {
    let bgp = bgp(inside)?;
    let (mut prefixes, mut paths) = (PerFamilyCount::default(), PerFamilyCount::default());
    let owners = bgp.owners.read();
    let shard_threads = owners.shards.len();
    for shard in &owners.shards {
        let counts = shard.ask(|s| s.counts())?;
        prefixes.ipv4 += counts.ipv4.prefixes as u64;
        prefixes.ipv6 += counts.ipv6.prefixes as u64;
        paths.ipv4 += counts.ipv4.paths as u64;
        paths.ipv6 += counts.ipv6.paths as u64;
    }
    drop(owners);
    let views = bgp.sessions.ask(|s| s.neighbors())?;
    let neighbors = views.into_iter().map(|view| neighbor(bgp, view)).collect::<Result<_, _>>()?;
    Ok(BgpSummary {
        router_id: inside.config().router_id,
        asn: inside.config().asn,
        shard_threads: if bgp.hosted.shards { 0 } else { shard_threads },
        update_threads: if bgp.hosted.workers { 0 } else { bgp.workers.len() },
        prefixes,
        paths,
        neighbors,
    })
}

/// Everything about one neighbour.
pub(crate) fn bgp_neighbor(inside: &Inside, address: IpAddr) -> Result<Neighbor, Refusal> {
    let bgp = bgp(inside)?;
    let view = bgp.sessions.ask(move |s| s.neighbor(address))?;
    let view = view.ok_or_else(|| no_neighbor(address))?;
    neighbor(bgp, view)
}

/// Ends sessions, or exchanges their routes again.
pub(crate) fn bgp_clear(inside: &Inside, clear: Clear) -> Result<Cleared, Refusal> {
    let Clear { address, soft } = clear;
    let neighbors =
        bgp(inside)?.sessions.ask(move |s| if soft { s.refresh(address) } else { s.reset(address) })?;
    match address {
        Some(address) if neighbors == 0 => Err(no_neighbor(address)),
        _ => Ok(Cleared { neighbors }),
    }
}

fn no_neighbor(address: IpAddr) -> Refusal {
    Refusal::Missing(format!("there is no neighbour {address}; `ribtide show bgp summary` lists all"))
}

fn neighbor(bgp: &Bgp, view: NeighborView) -> Result<Neighbor, Refusal> {
    let session = view.up.as_ref().map(|up| session(bgp, view.id, up)).transpose()?;
    Ok(Neighbor {
        address: view.address,
        group: view.group,
        description: view.description,
        asn: view.asn,
        kind: match view.kind {
            PeerKind::External => "external",
            PeerKind::Internal => "internal",
            PeerKind::Client => "client",
        }
        .into(),
        state: if view.stopped { "Idle (shut down)".into() } else { view.state.name().into() },
        state_seconds: view.state_age / 1000,
        flaps: view.flaps,
        last_error: view.last_error,
        session,
    })
}

fn session(bgp: &Bgp, id: PeerId, up: &UpView) -> Result<Session, Refusal> {
    let mut received = PerFamilyCount::default();
    for shard in &bgp.owners.read().shards {
        let (v4, v6) = shard.ask(move |s| (s.peer_counts::<V4>(id), s.peer_counts::<V6>(id)))?;
        received.ipv4 += u64::from(v4.paths);
        received.ipv6 += u64::from(v6.paths);
    }
    // A session that has just ended is known to the session thread a moment longer than to the others.
    let counters = match bgp.readers.get(up.reader) {
        Some(reader) => reader.ask(move |r| r.counters(id))?.unwrap_or_default(),
        None => IngestCounters::default(),
    };
    let sent = match bgp.workers.get(up.worker) {
        Some(worker) => worker.ask(move |w| w.member(id))?,
        None => None,
    };
    let families = [Afi::Ipv4, Afi::Ipv6].into_iter().filter(|afi| up.negotiated.families.has(*afi));
    Ok(Session {
        router_id: up.negotiated.router_id,
        local_address: Some(up.local),
        families: families.map(|afi| afi.unicast_name().into()).collect(),
        hold_time: up.negotiated.hold_time,
        four_octet_as: up.negotiated.four_octet_as,
        extended_messages: up.negotiated.extended_message,
        route_refresh: up.negotiated.route_refresh,
        received,
        advertised: sent.map_or_else(PerFamilyCount::default, |m| PerFamilyCount {
            ipv4: m.advertised_ipv4,
            ipv6: m.advertised_ipv6,
        }),
        counters: receive_counters(&counters),
        updates_sent: sent.map_or(0, |m| m.counters.updates),
        queued_bytes: up.writes.bytes as u64,
        blocked: up.writes.full,
    })
}

fn receive_counters(c: &IngestCounters) -> ReceiveCounters {
    let loops = [Refused::AsLoop, Refused::OriginatorLoop, Refused::ClusterLoop];
    let others = Refused::ALL.into_iter().filter(|r| !loops.contains(r));
    let reasons = [
        c.last_fault.map(|f| format!("treated as a withdrawal: {f}")),
        c.last_discard.map(|f| format!("attribute discarded: {f}")),
        c.last_refusal.map(|r| format!("not used: {r}")),
    ];
    ReceiveCounters {
        updates: c.updates,
        announced: c.announced,
        withdrawn: c.withdrawn,
        treated_as_withdraw: c.treated_as_withdraw,
        discarded_attributes: c.discarded_attributes,
        loops: loops.into_iter().map(|r| c.refused(r)).sum(),
        rejected: others.map(|r| c.refused(r)).sum(),
        last_reason: reasons.into_iter().flatten().reduce(|a, b| format!("{a}; {b}")),
    }
}
