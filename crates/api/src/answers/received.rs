//! `/v1/bgp/neighbors/ADDRESS/received`: routes of a neighbour before import policy.

use super::bgp::bgp;
use super::{Refusal, RouterState};
use ribtide_bgp::ingest::ReceivedView;
use ribtide_model::{ReceivedPage, ReceivedRoute};
use ribtide_prefix::{AnyPrefix, ParsePrefixError};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::code;
use std::net::IpAddr;

/// A page of the routes that the reader of the neighbour keeps.
pub(crate) fn received(
    router: &RouterState,
    address: &str,
    cursor: Option<&str>,
    limit: usize,
) -> Result<ReceivedPage, Refusal> {
    let bgp = bgp(router)?;
    let address: IpAddr = address
        .parse()
        .map_err(|_| Refusal::Bad(format!("\"{address}\" is no address; write one such as 192.0.2.1")))?;
    let after = cursor.map(str::parse::<AnyPrefix>).transpose();
    let after = after.map_err(|e: ParsePrefixError| {
        Refusal::Bad(format!("the cursor is not that of a last page: {e}; begin without one"))
    })?;
    let view = bgp.sessions.call(move |s| s.neighbor(address))?;
    let view = view.ok_or_else(|| super::bgp::no_neighbor(address))?;
    let id = view.id;
    let up = view.up.ok_or_else(|| {
        Refusal::Missing(format!("the session with {address} is not established, so it has no routes"))
    })?;
    let reader = bgp.readers.get(up.reader);
    let page = reader.map(|reader| reader.call(move |reader| reader.received_page(id, after, limit)));
    let page = page.transpose()?.flatten().ok_or_else(|| {
        Refusal::Missing(format!(
            "the routes of {address} before import policy are not kept; set keep-received = true for it and reload"
        ))
    })?;
    let next = page.last().filter(|_| page.len() == limit).map(|last| last.prefix.to_string());
    Ok(ReceivedPage { routes: page.iter().map(|view| route(view, router.rpki.is_some())).collect(), next })
}

fn route(view: &ReceivedView, validates: bool) -> ReceivedRoute {
    ReceivedRoute {
        prefix: view.prefix.to_string(),
        next_hop: view.attrs.next_hop().addr(),
        as_path: AsPath::new(view.attrs.value(code::AS_PATH).unwrap_or_default()).to_string(),
        accepted: view.accepted,
        decision: view.reasons.last().cloned().unwrap_or_default(),
        validation: validates.then(|| view.validity.name().into()),
    }
}

/// For each neighbour whose import policy rejects a kept route of exactly this prefix, a sentence with the statement that
/// decided.
pub(super) fn rejected(router: &RouterState, prefix: AnyPrefix) -> Result<Vec<String>, Refusal> {
    let Some(bgp) = &router.bgp else { return Ok(Vec::new()) };
    let mut sentences = Vec::new();
    for reader in &bgp.readers {
        let found = reader.call(move |reader| reader.received_of(prefix))?;
        for (address, view) in found.iter().filter(|(_, view)| !view.accepted) {
            let state = if router.rpki.is_some() { format!(" ({})", view.validity) } else { String::new() };
            let why = view.reasons.last().map_or("", String::as_str);
            sentences.push(format!("{address} announces it{state}, and import policy rejects it: {why}"));
        }
    }
    Ok(sentences)
}
