//! `/v1/fib/failed` and `/v1/fib/suppression`: failed routes of dataplanes, and FIB suppression.

use super::fib::no_fib;
use super::{ApiState, Refusal, RouterState};
use ribtide_model::{FailedPage, FailedRoute, SetSuppression, SuppressionSet};
use ribtide_ribd::RibStage;
use std::collections::VecDeque;

/// A page of failed routes.
pub(crate) fn failed(router: &ApiState, cursor: Option<&str>, limit: usize) -> Result<FailedPage, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let mut reads = match cursor {
        Some(cursor) => router.failed_reads.take(cursor, "")?,
        None => {
            let of_each = |stage: &mut RibStage| {
                stage.rib.iter().map(|(vrf, rib)| (vrf, rib.failed_cursor())).collect::<VecDeque<_>>()
            };
            let mut reads = rib.handle.call(of_each)?;
            reads.iter_mut().for_each(|(_, read)| read.sort());
            reads
        }
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
    let next = (!reads.is_empty()).then(|| router.failed_reads.put("", reads));
    Ok(FailedPage { routes, next })
}

/// Turns FIB suppression on or off until the next reload.
pub(crate) fn set_suppression(router: &RouterState, set: SetSuppression) -> Result<SuppressionSet, Refusal> {
    let rib = &router.rib.get().ok_or_else(no_fib)?;
    let before = rib.suppress(set.suppress_fib_pending)?;
    Ok(SuppressionSet { from: before, to: set.suppress_fib_pending })
}
