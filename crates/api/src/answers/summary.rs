//! `/v1/routes/summary` and `/v1/routes/sharding`: the number of routes in total, in the RIB
//! manager, and in each shard thread.

use super::bgp::{bgp, thread, threading};
use super::{Refusal, RouterState, each_shard, threads};
use ribtide_bgp::shard::{Counts, FamilyCounts};
use ribtide_bgpd::Bgp;
use ribtide_bgpd::owners::Owners;
use ribtide_model::{
    DataplaneCount, LogicalShardLoad, MainTable, PerFamilyCount, ProtocolCount, RouteCounts, RouteSummary,
    ShardLoad, ShardSummary, Sharding, VrfTable,
};
use ribtide_prefix::{Afi, LOGICAL_SHARDS, LogicalShard, V4, V6};
use ribtide_rib::{Rib, Total};

/// All counts.
pub(crate) fn route_summary(router: &RouterState) -> Result<RouteSummary, Refusal> {
    let shards = shard_summaries(router)?;
    let (main, vrfs) = (main(router)?, vrfs(router)?);
    Ok(RouteSummary {
        asn: router.config().asn,
        router_id: router.config().router_id,
        bgp: total(&shards),
        main,
        vrfs,
        shards,
    })
}

/// The BGP routes of all shards.
pub(super) fn bgp_routes(router: &RouterState) -> Result<RouteCounts, Refusal> {
    let bgp = bgp(router)?;
    Ok(total(&shards(&bgp, &bgp.owners.read())?))
}

/// The counts of each shard thread; none without BGP.
pub(crate) fn shard_summaries(router: &RouterState) -> Result<Vec<ShardSummary>, Refusal> {
    let Some(bgp) = router.bgp.get() else { return Ok(Vec::new()) };
    shards(&bgp, &bgp.owners.read())
}

fn total(shards: &[ShardSummary]) -> RouteCounts {
    shards.iter().fold(RouteCounts::default(), |mut total, shard| {
        total += shard.routes;
        total
    })
}

/// Each shard thread.
fn shards(bgp: &Bgp, owners: &Owners) -> Result<Vec<ShardSummary>, Refusal> {
    let counts = each_shard(owners, |shard| shard.counts())?;
    let name = |shard| thread(bgp.hosted().shards, "shard", shard);
    Ok(counts.iter().enumerate().map(|(shard, counts)| shard_summary(shard, name(shard), counts)).collect())
}

fn shard_summary(shard: usize, thread: String, c: &Counts) -> ShardSummary {
    let count = |of: fn(&FamilyCounts) -> usize| PerFamilyCount::new(|family| of(&c.families[family]) as u64);
    ShardSummary {
        shard,
        thread,
        routes: RouteCounts {
            prefixes: count(|c| c.prefixes),
            paths: count(|c| c.paths),
            active: count(|c| c.best),
            hidden: count(|c| c.hidden),
            waiting: c.waiting as u64,
            blocked: c.blocked as u64,
        },
        attribute_sets: c.attribute_sets as u64,
        next_hops: c.next_hops as u64,
        surplus_paths: c.surplus,
        memory_bytes: c.memory as u64,
    }
}

/// The main table of the RIB manager, if routes are installed.
pub(crate) fn main(router: &RouterState) -> Result<Option<MainTable>, Refusal> {
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(None) };
    let table = rib.handle.call(|stage| {
        let dataplanes = stage.rib.dataplanes().map(|d| DataplaneCount {
            name: stage.plane_name(d.id),
            outstanding_batches: d.outstanding as u64,
            failed: d.failed as u64,
            lagging_by: d.lag.map(|prefixes| prefixes as u64),
        });
        let rib = stage.rib.default_vrf();
        MainTable {
            protocols: protocols(rib),
            next_hop_groups: rib.group_count(),
            next_hop_cache: super::nexthop::cache(stage),
            memory_bytes: rib.table_size() as u64,
            suppress_fib_pending: rib.suppresses(),
            dataplanes: dataplanes.collect(),
        }
    })?;
    Ok(Some(table))
}

/// The tables of the other VRFs.
pub(crate) fn vrfs(router: &RouterState) -> Result<Vec<VrfTable>, Refusal> {
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(Vec::new()) };
    Ok(rib.handle.call(|stage| {
        let others = stage.vrfs().skip(1).map(|(name, rib)| VrfTable {
            vrf: name.into(),
            protocols: protocols(rib),
            next_hop_groups: rib.group_count(),
            memory_bytes: rib.table_size() as u64,
        });
        others.collect()
    })?)
}

/// The routes of a VRF by family and protocol.
pub(super) fn protocols(rib: &Rib) -> Vec<ProtocolCount> {
    let count = |t: Total| ProtocolCount {
        family: match t.afi {
            Afi::Ipv4 => "ipv4",
            Afi::Ipv6 => "ipv6",
        }
        .into(),
        protocol: t.protocol.name().into(),
        routes: t.candidates,
        active: t.installed,
        denied: t.denied,
    };
    rib.totals().into_iter().map(count).collect()
}

/// Each shard thread with its share of the work.
pub(crate) fn sharding(router: &RouterState) -> Result<Sharding, Refusal> {
    let bgp = bgp(router)?;
    // One guard for all calls, so that no logical shard moves in between.
    let owners = bgp.owners.read();
    let owned: Vec<Vec<usize>> =
        (0..LOGICAL_SHARDS).map(|logical| owners.having(logical).map(|(index, _)| index).collect()).collect();
    let shards = shards(&bgp, &owners)?;
    let loads = each_shard(&owners, |shard| {
        let v6 = shard.loads::<V6>();
        let both = shard.loads::<V4>().zip(v6).map(|((logical, v4), (_, v6))| (logical, v4, v6));
        both.collect::<Vec<_>>()
    })?;
    drop(owners);
    let all: u64 = shards.iter().map(|shard| shard.routes.paths.total()).sum();
    let (rings, threads) = (threads::rings(router), threads::used()?);
    let own_cpu = |name: &str| {
        let thread = threads.iter().find(|t| t.name == name).filter(|_| !bgp.hosted().shards);
        thread.map(|t| t.cpu_seconds)
    };
    let shards = shards.into_iter().zip(loads).map(|(summary, load)| {
        let number = summary.shard;
        let own = |logical: &LogicalShard| owned[usize::from(*logical)].contains(&number);
        let logical_shards = load.into_iter().filter(|(logical, ..)| own(logical));
        let inbox = format!("readers to shard {number}");
        ShardLoad {
            load_share: if all == 0 { 0.0 } else { summary.routes.paths.total() as f64 / all as f64 },
            cpu_seconds: own_cpu(&summary.thread),
            inbox: rings.iter().find(|ring| ring.name == inbox).cloned(),
            logical_shards: logical_shards
                .map(|(logical_shard, v4, v6)| LogicalShardLoad {
                    logical_shard,
                    prefixes: PerFamilyCount { ipv4: v4 as u64, ipv6: v6 as u64 },
                })
                .collect(),
            summary,
        }
    });
    Ok(Sharding { mode: threading(&bgp).mode, shards: shards.collect() })
}
