//! `/v1/fib/failed` and `/v1/fib/suppression`: failed routes of dataplanes, and FIB suppression.

use super::fib::no_fib;
use super::{ApiState, Refusal, RouterState, filter, vrf};
use crate::request::FailedQuery;
use ribtide_model::{FailedPage, FailedRoute, SetSuppression, SuppressionSet};
use ribtide_rib::{FailedCursor, VrfId};
use ribtide_ribd::{RibHandle, RibStage};
use std::collections::VecDeque;

/// A page of failed routes.
pub(crate) fn failed(router: &ApiState, query: &FailedQuery, limit: usize) -> Result<FailedPage, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let of = query.parameters();
    let mut reads = match query.cursor.as_deref() {
        Some(cursor) => router.failed_reads.take(cursor, &of)?,
        None => begin(rib, query)?,
    };
    let (reads, routes) = rib.handle.call(move |stage| {
        let now = stage.now();
        let mut routes = Vec::new();
        while routes.len() < limit
            && let Some((vrf, read)) = reads.front_mut()
        {
            // A removed VRF has no failures.
            let page = stage.rib.get(*vrf).map(|rib| rib.failed_page(read, limit - routes.len()));
            let over = page.is_none() || read.is_done();
            routes.extend(page.into_iter().flatten().map(|failed| FailedRoute {
                vrf: stage.vrf_name(*vrf),
                prefix: failed.prefix.to_string(),
                dataplane: stage.plane_name(failed.dataplane),
                seconds: now.saturating_sub(failed.since) as f64 / 1000.0,
                reason: failed.reason,
            }));
            if over {
                reads.pop_front();
            }
        }
        (reads, routes)
    })?;
    let next = (!reads.is_empty()).then(|| router.failed_reads.put(&of, reads));
    Ok(FailedPage { routes, next })
}

/// The failures that fit, of each VRF.
fn begin(rib: &RibHandle, query: &FailedQuery) -> Result<VecDeque<(VrfId, FailedCursor)>, Refusal> {
    let set = filter::listed_prefixes(query.prefix.as_deref(), query.r#match)?;
    let only = query.vrf.as_deref().map(|name| vrf(rib, Some(name))).transpose()?;
    let (mut reads, planes) = rib.handle.call(move |stage: &mut RibStage| {
        let vrfs = stage.rib.iter().filter(|(vrf, _)| only.is_none_or(|only| only == *vrf));
        let reads: VecDeque<_> = vrfs.map(|(vrf, rib)| (vrf, rib.failed_cursor())).collect();
        (reads, stage.planes().map(|id| (stage.plane_name(id), id)).collect::<Vec<_>>())
    })?;
    let plane = query.dataplane.as_deref().map(|name| match planes.iter().find(|(known, _)| known == name) {
        Some((_, id)) => Ok(*id),
        None => {
            let names: Vec<&str> = planes.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("there is no dataplane {name}; there are: {}", names.join(", "));
            Err(Refusal::Missing(message))
        }
    });
    let plane = plane.transpose()?;
    for (_, read) in &mut reads {
        read.retain(|prefix, of| {
            plane.is_none_or(|plane| plane == of) && set.is_none_or(|set| set.has_any(prefix))
        });
        read.sort();
    }
    Ok(reads)
}

/// Turns FIB suppression on or off until the next reload.
pub(crate) fn set_suppression(router: &RouterState, set: SetSuppression) -> Result<SuppressionSet, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let before = rib.suppress(set.suppress_fib_pending)?;
    Ok(SuppressionSet { from: before, to: set.suppress_fib_pending })
}
