//! A reload of the `[bmp]` and `[mrt]` tables: each begins, changes and ends while BGP runs.

use crate::reload::NotReloaded;
use ribtide_api::RouterState;
use ribtide_bgpd::Bgp;
use ribtide_bmpd::{self as bmpd, Bmp, BmpBuilder};
use ribtide_config::{BmpConfig, Config, MrtConfig};
use ribtide_mrtd::{Collector, Mrt, MrtBuilder};
use ribtide_runtime::thread::Stop;
use std::sync::Arc;

/// Applies `[bmp]`. Returns whether anything changed.
pub(crate) fn set_bmp(router: &RouterState, new: &Config, stop: &Stop) -> Result<bool, NotReloaded> {
    let Some(bgp) = router.bgp.get() else { return Ok(false) };
    match (router.bmp.get(), new.bmp.as_ref().filter(|_| new.bgp.is_some())) {
        (None, None) => Ok(false),
        (Some(running), Some(bmp)) => {
            let bmp = bmp.clone();
            let changes = running.handle.wait(move |engine| engine.configure(&bmp));
            Ok(changes.map_err(NotReloaded::NoMonitor)? != bmpd::Changes::default())
        }
        (None, Some(bmp)) => {
            let started = begin_bmp(router, &bgp, new, bmp, stop);
            if started.is_err() {
                // Nothing else of it is left; the first error counts.
                let _ = bgp.set_bmp(None);
            }
            router.bmp.set(Some(Arc::new(started?)));
            Ok(true)
        }
        (Some(running), None) => {
            // While it still takes what stages wait to send.
            bgp.set_bmp(None).map_err(NotReloaded::NotChanged)?;
            router.bmp.set(None);
            running.end();
            Ok(true)
        }
    }
}

fn begin_bmp(
    router: &RouterState,
    bgp: &Bgp,
    new: &Config,
    bmp: &BmpConfig,
    stop: &Stop,
) -> Result<Bmp, NotReloaded> {
    let builder = BmpBuilder::new(&router.rings).map_err(NotReloaded::Monitor)?;
    bgp.set_bmp(Some(&builder.tap())).map_err(NotReloaded::NotChanged)?;
    let as_peer = bmpd::Router { asn: new.asn, router_id: new.router_id };
    builder.start(bmp, as_peer, bgp.stages(), router.clock, stop.clone()).map_err(NotReloaded::Monitor)
}

/// Applies `[mrt]`. Returns whether anything changed.
pub(crate) fn set_mrt(router: &RouterState, new: &Config, stop: &Stop) -> Result<bool, NotReloaded> {
    let Some(bgp) = router.bgp.get() else { return Ok(false) };
    match (router.mrt.get(), new.mrt.as_ref().filter(|_| new.bgp.is_some())) {
        (None, None) => Ok(false),
        (Some(running), Some(mrt)) => {
            let mrt = mrt.clone();
            // It may wait for the disk, and then is busy; it is not to wait for that.
            let changes = running.handle.call(move |engine| engine.configure(&mrt));
            Ok(changes.map_err(NotReloaded::NoMonitor)? != ribtide_mrtd::Changes::default())
        }
        (None, Some(mrt)) => {
            let started = begin_mrt(router, &bgp, new, mrt, stop);
            if started.is_err() {
                let _ = bgp.set_mrt(None);
            }
            router.mrt.set(Some(Arc::new(started?)));
            Ok(true)
        }
        (Some(running), None) => {
            bgp.set_mrt(None).map_err(NotReloaded::NotChanged)?;
            router.mrt.set(None);
            running.end();
            Ok(true)
        }
    }
}

fn begin_mrt(
    router: &RouterState,
    bgp: &Bgp,
    new: &Config,
    mrt: &MrtConfig,
    stop: &Stop,
) -> Result<Mrt, NotReloaded> {
    let builder = MrtBuilder::new(&router.rings);
    bgp.set_mrt(Some(&builder.tap())).map_err(NotReloaded::NotChanged)?;
    let collector = Collector { asn: new.asn, router_id: new.router_id };
    builder.start(mrt, collector, bgp.stages(), stop.clone()).map_err(NotReloaded::Monitor)
}
