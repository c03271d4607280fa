//! `/v1/fib/failed` and `/v1/fib/suppression`: what dataplanes could not install, and whether BGP waits for them.

use super::fib::no_fib;
use super::{Inside, Refusal};
use crate::api::model::{FailedPage, FailedRoute, SetSuppression, SuppressionSet};

/// A page of what dataplanes could not install.
pub(crate) fn failed(inside: &Inside, cursor: Option<&str>, limit: usize) -> Result<FailedPage, Refusal> {
    let rib = inside.rib.as_ref().ok_or_else(no_fib)?;
    let mut read = match cursor {
        Some(cursor) => inside.failed_reads.take(cursor)?,
        None => {
            let mut read = rib.asker.ask(|stage| stage.rib.failed_cursor())?;
            read.sort();
            read
        }
    };
    let (read, routes) = rib.asker.ask(move |stage| {
        let (names, now) = (stage.plane_names(), stage.now());
        let routes = stage.rib.failed_page(&mut read, limit).into_iter().map(|failed| FailedRoute {
            prefix: failed.prefix.to_string(),
            dataplane: names.get(usize::from(failed.dataplane)).cloned().unwrap_or_default(),
            seconds: now.saturating_sub(failed.since) as f64 / 1000.0,
            reason: failed.reason,
        });
        let routes = routes.collect();
        (read, routes)
    })?;
    let next = (!read.is_done()).then(|| inside.failed_reads.put(read));
    Ok(FailedPage { routes, next })
}

/// BGP waits for dataplanes from now on, or no longer, until the configuration is read again.
pub(crate) fn set_suppression(inside: &Inside, set: SetSuppression) -> Result<SuppressionSet, Refusal> {
    let rib = inside.rib.as_ref().ok_or_else(no_fib)?;
    let before = rib.suppress(set.suppress_fib_pending)?;
    Ok(SuppressionSet { from: before, to: set.suppress_fib_pending })
}
