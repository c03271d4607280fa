//! The handlers of the endpoints: calls to the stages, combined into a reply.

mod advertised;
pub(crate) mod asic;
mod bfd;
mod bgp;
mod change;
mod explain;
mod fib;
mod filter;
mod groups;
mod interfaces;
mod messages;
mod monitoring;
mod neighbor_counts;
mod nexthop;
mod origination;
mod performance;
mod reads;
mod received;
mod reload_check;
mod reload_routes;
mod routes;
mod rpki;
mod running;
mod summary;
mod suppression;
mod threads;
mod tracked;
mod version;
mod vrfs;
mod zones;

pub(super) use advertised::advertised;
pub use asic::asic_lookup;
pub(crate) use asic::{asic_faults, asic_state, set_asic};
pub(crate) use bfd::bfd;
pub(super) use bgp::{
    bgp_clear, bgp_neighbor, bgp_neighbors, bgp_summary, deferring_and_refused, group_totals,
};
pub use change::resized;
pub(crate) use change::{Changed, reload, resize};
pub(super) use explain::explain;
pub(crate) use fib::interface_name;
pub(super) use fib::{fib, fib_lookup};
pub(crate) use filter::prefixes as prefix_filter;
pub(super) use groups::bgp_groups;
pub(super) use interfaces::interfaces;
pub(super) use messages::{messages, mrt_messages};
pub(crate) use monitoring::{bmp, mrt, mrt_table};
pub(crate) use neighbor_counts::{NeighborCounts, SessionCounts, neighbor_counts, update_groups};
pub(super) use nexthop::{nexthop_groups, set_nexthop_cache};
pub(super) use origination::{add_routes, aggregates, owned_routes, withdraw_routes};
pub(super) use performance::performance;
pub(crate) use reads::Reads;
pub(super) use received::{Which as ReceivedWhich, received};
pub(super) use reload_check::{reload_check, reload_routes};
pub(crate) use reload_routes::RouteTrial;
pub(crate) use routes::Read as RouteRead;
pub(super) use routes::routes;
pub(crate) use rpki::{aspas as rpki_aspas, rpki, table as rpki_table, validation as rpki_validation};
pub(crate) use running::{LogFilter, configuration, event as log_event, events};
pub(super) use summary::{main, route_summary, shard_summaries, sharding, vrfs};
pub(super) use suppression::{failed, set_suppression};
pub use threads::pipeline;
pub(super) use threads::{health, threads};
pub(super) use tracked::tracked_next_hops;
pub(super) use version::version;
pub(super) use vrfs::{static_routes, vrfs as vrf_list};

pub(crate) use super::request::Refusal;
use crate::route_check as check;
use crate::state::{ApiState, RouterState};
use ribtide_bgp::shard::Shard;
use ribtide_bgpd::owners::Owners;
use ribtide_dataplane::Difference;
use ribtide_dataplane::fpm::FpmReading;
use ribtide_model::{Fpm, FpmClient};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::VrfId;
use ribtide_ribd::RibHandle;
use std::net::IpAddr;

/// `/v1/route-check`.
pub(super) fn route_check(
    api: &ApiState,
    full: bool,
    defaults: bool,
) -> Result<ribtide_model::RouteCheck, Refusal> {
    if api.rib.get().is_none() {
        return Err(fib::no_fib());
    }
    Ok(match defaults {
        true => check::default_routes(api)?,
        false => check::check(api, &api.route_check, full)?,
    })
}

/// The target of a query.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Exactly this prefix.
    Prefix(AnyPrefix),
    /// The longest match of this address.
    Address(IpAddr),
}

/// Parses a target: `10.0.0.0/8` is a prefix, `10.0.0.1` an address.
fn target(text: &str) -> Result<Target, Refusal> {
    if let Ok(address) = text.parse() {
        return Ok(Target::Address(address));
    }
    text.parse()
        .map(Target::Prefix)
        .map_err(|e: ribtide_prefix::ParsePrefixError| Refusal::Bad(e.to_string()))
}

/// The VRF of a name; default: the default one.
fn vrf(rib: &RibHandle, name: Option<&str>) -> Result<VrfId, Refusal> {
    let Some(name) = name else { return Ok(VrfId::DEFAULT) };
    let requested = name.to_owned();
    let found = rib.handle.call(move |stage| {
        let names = || stage.vrfs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        stage.vrf_named(Some(&requested)).ok_or_else(names)
    })?;
    found
        .map_err(|names| Refusal::Missing(format!("there is no VRF {name}; there are: {}", names.join(", "))))
}

/// A VRF that was removed during the request.
fn gone() -> Refusal {
    Refusal::Missing("the VRF has been removed meanwhile".into())
}

/// Calls every shard; replies are in the order of shard numbers.
fn each_shard<R: Send + 'static>(
    owners: &Owners,
    query: impl Fn(&mut Shard) -> R + Clone + Send + 'static,
) -> Result<Vec<R>, Refusal> {
    owners.shards.iter().map(|shard| Ok(shard.call(query.clone())?)).collect()
}

/// `/v1/fpm`.
pub(super) fn fpm(router: &RouterState) -> Result<Fpm, Refusal> {
    let rings = router.rings.read();
    let dataplanes = router.dataplanes();
    let clients = dataplanes.fpm.iter().map(|client| {
        let ring = rings.iter().find(|ring| ring.name == format!("RIB to {}", client.name));
        let FpmReading {
            connected,
            connects,
            failed_connects,
            closes,
            errors,
            batches,
            routes,
            deletes,
            bytes_sent,
            bytes_read,
            stalled_us,
            offloaded,
            offload_failed,
            unmatched,
            resent,
            replies,
            disagreement,
            is_compared,
            repair_failed,
        } = client.read();
        let repairs = client.repairs();
        // Only the kernel has routes that are imported.
        let kinds = Difference::ALL.into_iter().filter(|kind| *kind != Difference::Imported);
        FpmClient {
            name: client.name.clone(),
            server: client.server,
            connected,
            connects,
            failed_connects,
            closes,
            errors,
            batches,
            waiting: ring.map_or(0, |ring| ring.depth),
            queue_full: ring.map_or(0, |ring| ring.full),
            routes,
            deletes,
            bytes_sent,
            bytes_read,
            stalled_seconds: stalled_us as f64 / 1e6,
            offloaded,
            offload_failed,
            unmatched,
            resent,
            replies: replies.map(|when| when.to_string()),
            disagreement: disagreement.map(str::to_owned),
            is_compared,
            compared_routes: repairs.compared(),
            compare_rounds: repairs.rounds(),
            compare_round_seconds: repairs.round_time().as_secs_f64(),
            repairs: kinds.map(|kind| (kind.label().to_owned(), repairs.repaired(kind))).collect(),
            repairs_failed: repair_failed,
        }
    });
    Ok(Fpm { clients: clients.collect() })
}
