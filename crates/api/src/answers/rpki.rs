//! `/v1/rpki`: caches, the table of payloads, and the validation state of a route.

use super::{Refusal, RouterState, filter};
use crate::request::{AspaQuery, PayloadQuery};
use ribtide_model::{
    CoveringPayload, HealthFault, PerFamilyCount, Rpki, RpkiAspa, RpkiAspaPage, RpkiCache, RpkiPayload,
    RpkiTablePage, RpkiValidation,
};
use ribtide_prefix::{AnyPrefix, Family, V4, V6};
use ribtide_rpki::{Origin, State, Vrp, Vrps};
use ribtide_rpkid::{CacheView, View};
use ribtide_wire::rtr::Payload;
use std::sync::Arc;

fn view(router: &RouterState) -> Result<View, Refusal> {
    let none = || {
        let message = "this router validates no routes; add an [rpki] table to its configuration";
        Refusal::Missing(message.into())
    };
    Ok(router.rpki.get().ok_or_else(none)?.call(|engine| engine.view())?)
}

/// The table that routes are validated against, with origin validation.
pub(super) fn vrps(router: &RouterState) -> Result<Option<Arc<Vrps>>, Refusal> {
    match router.rpki.get() {
        Some(rpki) => Ok(Some(rpki.call(|engine| engine.vrps())?)),
        None => Ok(None),
    }
}

/// The caches, and the size of the table.
pub(crate) fn rpki(router: &RouterState) -> Result<Rpki, Refusal> {
    let view = view(router)?;
    let (filters, assertions) = view.exceptions;
    Ok(Rpki {
        payloads: PerFamilyCount { ipv4: view.vrps.len::<V4>() as u64, ipv6: view.vrps.len::<V6>() as u64 },
        aspas: view.vrps.aspas().len() as u64,
        tables: view.tables,
        filters,
        assertions,
        degraded: view.is_degraded(),
        caches: view.caches.iter().map(cache).collect(),
    })
}

fn cache(view: &CacheView) -> RpkiCache {
    let (ipv4, ipv6) = view.records;
    RpkiCache {
        address: view.settings.address,
        local: view.settings.local_address,
        tls: view.settings.tls.is_some(),
        preference: view.settings.preference,
        state: match view.state {
            State::Waiting { .. } => "waiting",
            State::Connecting { .. } => "connecting",
            State::Querying { .. } => "querying",
            State::Receiving { .. } => "receiving",
            State::Idle { .. } => "idle",
        }
        .into(),
        next_seconds: view.due.as_secs(),
        version: view.version,
        session: view.id.map(|(session, _)| session),
        serial: view.id.map(|(_, serial)| serial),
        records: PerFamilyCount { ipv4: ipv4 as u64, ipv6: ipv6 as u64 },
        aspas: view.aspas as u64,
        age_seconds: view.age.map(|age| age.as_secs()),
        in_use: view.in_use,
        refresh_seconds: view.intervals.refresh,
        retry_seconds: view.intervals.retry,
        expire_seconds: view.intervals.expire,
        connects: view.connects,
        failures: view.failures,
        last_error: view.last_error.clone(),
    }
}

/// What is missing of RPKI data, for `show health`: each cache that cannot be reached or whose records expired, and
/// whether there are none at all.
pub(super) fn faults(router: &RouterState) -> Vec<HealthFault> {
    let fault = |what: String, why: String| HealthFault { what, why };
    match view(router) {
        Ok(view) => {
            let of_cache = |cache: &CacheView| {
                // A cache that was not tried to the end yet has no failure.
                let error = cache.last_error.as_ref()?;
                let records = match cache.age {
                    None => "it has no records".to_owned(),
                    Some(age) => {
                        let left = u64::from(cache.intervals.expire).saturating_sub(age.as_secs());
                        format!("its records are used for {left} s more")
                    }
                };
                Some(fault(format!("RPKI cache {}", cache.settings.address), format!("{error}; {records}")))
            };
            let mut faults: Vec<HealthFault> = view.caches.iter().filter_map(of_cache).collect();
            if view.is_degraded() && !faults.is_empty() {
                let why = "no cache has records, so routes without a local assertion are not-found";
                faults.push(fault("RPKI".into(), why.into()));
            }
            faults
        }
        // There is no [rpki] table.
        Err(Refusal::Missing(_)) => Vec::new(),
        Err(why) => vec![fault("RPKI".into(), why.sentence().to_owned())],
    }
}

/// A page of payloads. A cursor is the last payload of the page before, so a page is of the table of its time.
pub(crate) fn table(
    router: &RouterState,
    query: &PayloadQuery,
    limit: usize,
) -> Result<RpkiTablePage, Refusal> {
    let vrps = view(router)?.vrps;
    let set = filter::listed_prefixes(query.prefix.as_deref(), query.r#match)?;
    let fits = |payload: &Payload| {
        set.is_none_or(|set| set.has_any(payload.prefix)) && query.asn.is_none_or(|asn| asn == payload.asn)
    };
    let last = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let (after_v4, after_v6) = match last {
        None => (Some(None), None),
        Some(Payload { prefix: AnyPrefix::V4(prefix), max_len, asn }) => {
            (Some(Some(Vrp { prefix, max_len, asn })), None)
        }
        Some(Payload { prefix: AnyPrefix::V6(prefix), max_len, asn }) => {
            (None, Some(Vrp { prefix, max_len, asn }))
        }
    };
    let first = after_v4.into_iter().flat_map(|last| vrps.after::<V4>(last)).map(Vrp::payload);
    let second = vrps.after::<V6>(after_v6).map(Vrp::payload);
    let page: Vec<Payload> = first.chain(second).filter(fits).take(limit).collect();
    let next = page.last().filter(|_| page.len() == limit);
    let next = next.map(|Payload { prefix, max_len, asn }| format!("{prefix}-{max_len}-{asn}"));
    Ok(RpkiTablePage { payloads: page.iter().map(payload).collect(), next })
}

/// A page of ASPA records. A cursor is the last customer of the page before.
pub(crate) fn aspas(router: &RouterState, query: &AspaQuery, limit: usize) -> Result<RpkiAspaPage, Refusal> {
    let vrps = view(router)?.vrps;
    let fits = |(customer, providers): &(u32, &[u32])| {
        query.customer.is_none_or(|asn| asn == *customer)
            && query.provider.is_none_or(|asn| providers.contains(&asn))
    };
    let last =
        query.cursor.as_deref().map(|text| text.parse::<u32>().map_err(|_| no_cursor(text))).transpose()?;
    let record = |(customer, providers): (u32, &[u32])| RpkiAspa { customer, providers: providers.to_vec() };
    let aspas: Vec<RpkiAspa> = vrps.aspas().after(last).filter(fits).take(limit).map(record).collect();
    let next = aspas.last().filter(|_| aspas.len() == limit).map(|last| last.customer.to_string());
    Ok(RpkiAspaPage { aspas, next })
}

fn no_cursor(text: &str) -> Refusal {
    Refusal::Bad(format!("\"{text}\" is no cursor; give back the last page's next, or none to begin"))
}

fn parse_cursor(text: &str) -> Result<Payload, Refusal> {
    let parts = || {
        let (rest, asn) = text.rsplit_once('-')?;
        let (prefix, max_len) = rest.rsplit_once('-')?;
        Some(Payload { prefix: prefix.parse().ok()?, max_len: max_len.parse().ok()?, asn: asn.parse().ok()? })
    };
    parts().ok_or_else(|| no_cursor(text))
}

fn payload(Payload { prefix, max_len, asn }: &Payload) -> RpkiPayload {
    RpkiPayload { prefix: prefix.to_string(), max_length: *max_len, asn: *asn }
}

/// The state of a prefix with an origin AS, and why.
pub(crate) fn validation(
    router: &RouterState,
    prefix: &str,
    asn: Option<u32>,
) -> Result<RpkiValidation, Refusal> {
    let vrps = view(router)?.vrps;
    let prefix: AnyPrefix =
        prefix.parse().map_err(|e: ribtide_prefix::ParsePrefixError| Refusal::Bad(e.to_string()))?;
    let covering = vrps.covering_any(prefix);
    Ok(RpkiValidation {
        prefix: prefix.to_string(),
        asn,
        state: vrps.validate_any(prefix, Origin(asn)).name().into(),
        covering: covering
            .iter()
            .map(|vrp| CoveringPayload { payload: payload(vrp), mismatch: mismatch(vrp, prefix, asn) })
            .collect(),
    })
}

/// Why a payload that covers a prefix does not match it (RFC 6811 section 2).
fn mismatch(vrp: &Payload, prefix: AnyPrefix, asn: Option<u32>) -> Option<String> {
    let mut reasons = Vec::new();
    if prefix.len() > vrp.max_len {
        reasons.push(format!("the prefix is longer than {}", vrp.max_len));
    }
    match asn {
        _ if vrp.asn == 0 => reasons.push("AS 0 permits no origin".into()),
        None => reasons.push("the path ends in an AS_SET".into()),
        Some(asn) if asn != vrp.asn => reasons.push(format!("the origin is AS {asn}")),
        Some(_) => {}
    }
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// The validation state of a path of a prefix; for paths of this router's own table.
pub(super) fn state<F: Family>(
    vrps: &Vrps,
    prefix: ribtide_prefix::Prefix<F>,
    path: ribtide_wire::bgp::AsPath<'_>,
    local_asn: u32,
) -> String {
    vrps.validate(prefix, Origin::of(path, local_asn)).name().into()
}
