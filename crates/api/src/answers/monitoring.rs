//! `/v1/bmp` and `/v1/mrt`: stations, files, and dumps of the table.

use super::{Refusal, RouterState};
use crate::state::ApiState;
use ribtide_bmpd::{State, StationView};
use ribtide_config::BmpViews;
use ribtide_model::{Bmp, BmpStation, HealthFault, Mrt, MrtPage, MrtSeries};
use ribtide_mrtd::{Collector, SeriesView, TableDump};
use std::time::SystemTime;

/// Bytes of records of a page at least, unless it is the last.
const PAGE: usize = 256 * 1024;

/// The stations.
pub(crate) fn bmp(router: &RouterState) -> Result<Bmp, Refusal> {
    let none = || Refusal::Missing("this router has no BMP; add a [bmp] table to its configuration".into());
    let bmp = router.bmp.get().ok_or_else(none)?;
    let stations = bmp.handle.call(|engine| engine.view())?;
    Ok(Bmp { stations: stations.iter().map(station).collect() })
}

fn station(view: &StationView) -> BmpStation {
    let BmpViews { pre_policy, post_policy, adj_rib_out, loc_rib } = view.settings.views;
    let views = [
        (pre_policy, "adj-rib-in-pre-policy"),
        (post_policy, "adj-rib-in-post-policy"),
        (adj_rib_out, "adj-rib-out-post-policy"),
        (loc_rib, "loc-rib"),
    ];
    let state = match view.state {
        State::Waiting(_) => "waiting",
        State::Connecting(_) => "connecting",
        State::Up(_) if view.dumping => "dumping",
        State::Up(_) => "up",
    };
    BmpStation {
        name: view.settings.name.clone(),
        address: view.settings.address,
        local: view.settings.local_address,
        views: views.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned()).collect(),
        state: state.into(),
        state_seconds: view.age / 1000,
        queued_bytes: view.queued as u64,
        queue_bytes: view.settings.queue as u64,
        connects: view.connects,
        failures: view.failures,
        overflows: view.overflows,
        dumps: view.dumps,
        sent_bytes: view.bytes,
        last_error: view.last_error.clone(),
    }
}

/// The files.
pub(crate) fn mrt(router: &RouterState) -> Result<Mrt, Refusal> {
    let none = || {
        Refusal::Missing("this router writes no MRT files; add an [mrt] table to its configuration".into())
    };
    let mrt = router.mrt.get().ok_or_else(none)?;
    let view = mrt.handle.call(|engine| engine.view())?;
    Ok(Mrt { series: view.series.iter().map(series).collect() })
}

fn series(view: &SeriesView) -> MrtSeries {
    MrtSeries {
        name: view.series.name().into(),
        file: view.settings.file.clone(),
        interval_seconds: view.settings.interval.as_secs(),
        gzip: view.settings.gzip,
        writing: view.writing,
        next: view.next,
        files: view.files,
        bytes: view.bytes,
        records: view.records,
        dropped: view.dropped,
        failures: view.failures,
        last: view.last.as_ref().map(|(path, _)| path.clone()),
        last_time: view.last.as_ref().map(|(_, at)| *at),
        error: view.fault.as_ref().map(|(error, _)| error.clone()),
    }
}

/// MRT files that cannot be written. A thread that does not reply waits for the disk, and its queue shows that.
pub(super) fn faults(router: &RouterState) -> Vec<HealthFault> {
    let Some(view) = router.mrt.get().and_then(|mrt| mrt.handle.call(|engine| engine.view()).ok()) else {
        return Vec::new();
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let fault = |series: &SeriesView| {
        let (error, since) = series.fault.as_ref()?;
        let why = format!("{error}; for {} s, and routing goes on", now.saturating_sub(*since));
        Some(HealthFault { what: format!("MRT files of {}", series.series.name()), why })
    };
    view.series.iter().filter_map(fault).collect()
}

/// A page of a dump of the table. Without a cursor a dump begins.
pub(crate) fn mrt_table(router: &ApiState, cursor: Option<&str>) -> Result<MrtPage, Refusal> {
    let mut records = Vec::new();
    let mut dump = match cursor {
        Some(cursor) => router.mrt_reads.take(cursor, "")?,
        None => {
            let none = || Refusal::Missing("this router has no BGP, and so no table to dump".into());
            let bgp = router.bgp.get().ok_or_else(none)?;
            let config = router.config();
            let collector = Collector { asn: config.asn, router_id: config.router_id };
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            TableDump::new(bgp.stages(), collector, since.as_secs() as u32, &mut records)?
        }
    };
    let mut more = true;
    while more && records.len() < PAGE {
        more = dump.page(&mut records)?;
    }
    let (totals, progress) = (dump.totals(), dump.progress());
    let mut digits = String::with_capacity(2 * records.len());
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
    digits.extend(records.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    Ok(MrtPage {
        records: digits,
        progress,
        prefixes: totals.prefixes,
        paths: totals.paths,
        left_out: totals.left_out,
        next: more.then(|| router.mrt_reads.put("", dump)),
    })
}
