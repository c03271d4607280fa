//! `/v1/bgp/neighbors/ADDRESS/received`: routes of a neighbour before import policy.

use super::bgp::bgp;
use super::filter::{self, Batches, ReceivedState};
use super::routes;
use super::zones::Zones;
use super::{Refusal, RouterState};
use crate::request::ReceivedQuery;
use ribtide_bgp::filter::FilterMemo;
use ribtide_bgp::ingest::{KeptPlace, ReceivedView};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{PathFilter, Shard};
use ribtide_model::{ReceivedPage, ReceivedRoute, ZonedAddress};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, ParsePrefixError, Prefix, V4, V6};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Routes whose policy one call of a reader explains, at most: some 0.2 ms.
const EXPLAINED: usize = 64;

/// The routes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// All that are kept.
    All,
    /// Those that import policy rejects.
    Filtered,
}

/// A page of the routes that the reader of the neighbour keeps, or those of exactly `prefix`.
pub(crate) fn received(
    router: &RouterState,
    address: &str,
    which: Which,
    query: &ReceivedQuery,
    limit: usize,
) -> Result<ReceivedPage, Refusal> {
    let bgp = bgp(router)?;
    let mut after = query.cursor.as_deref().map(position).transpose()?;
    let (conditions, state, changed_within) = filter::received(router, query)?;
    let exact = query.prefix.as_deref().filter(|_| conditions.prefixes.is_none());
    let exact = exact.map(str::parse).transpose();
    let exact: Option<AnyPrefix> = exact.map_err(|e: ParsePrefixError| Refusal::Bad(e.to_string()))?;
    let (view, up) = super::advertised::session(&bgp, address)?;
    let id = view.id;
    let not_kept = || {
        Refusal::Missing(format!(
            "the routes of {address} before import policy are not kept; set keep-received = true for it and reload"
        ))
    };
    let reader = bgp.readers.get(up.reader).ok_or_else(not_kept)?;
    let mut fitting = Vec::new();
    let is_shown = |view: &ReceivedView| {
        (which == Which::All || !view.accepted)
            && state.is_none_or(|state| match state {
                ReceivedState::Accepted => view.accepted,
                ReceivedState::Rejected => !view.accepted,
                ReceivedState::Validity(validity) => view.validity == validity,
            })
    };
    if let Some(prefix) = exact {
        let attributes = conditions.attributes;
        let found = reader.call(move |reader| reader.received_prefix(id, prefix))?.ok_or_else(not_kept)?;
        let fits = |view: &ReceivedView| {
            attributes.fits(view.attrs.bytes(), split_zone(view.attrs.next_hop().addr()).0)
        };
        fitting.extend(found.into_iter().filter(|view| is_shown(view) && fits(view)));
        after = None;
    } else {
        let whole = conditions.prefixes.is_none() && conditions.attributes.is_empty();
        let mut batches = Batches::new(limit, whole);
        // The number that the policy decided on.
        let mut evaluated = 0;
        while let Some(batch) = batches.next(evaluated) {
            let conditions = conditions.clone();
            let limits = (batch, EXPLAINED.min(limit - evaluated));
            let page = reader.call(move |reader| reader.received_page(id, after, limits, &conditions))?;
            let (views, last) = page.ok_or_else(not_kept)?;
            evaluated += views.len();
            fitting.extend(views.into_iter().filter(is_shown));
            after = last;
            if after.is_none() {
                break;
            }
        }
    }
    let zones = Zones::new(router)?;
    let now = router.clock.seconds();
    let ages = changes(router, id, &fitting)?;
    let is_of_time = |(view, changed): &(&ReceivedView, Option<u32>)| {
        filter::is_of_time(changed_within, changed.filter(|_| view.accepted))
    };
    let routes = fitting.iter().zip(ages).filter(is_of_time).map(|(view, changed)| {
        let age_seconds = routes::age(now, changed.filter(|_| view.accepted));
        ReceivedRoute { age_seconds, ..route(view, &zones, router.rpki.get().is_some()) }
    });
    let routes = routes.collect();
    Ok(ReceivedPage { routes, next: after.map(|place| cursor_of(&place)) })
}

/// When the paths of a neighbour changed that shards have of these routes, as far as it is known.
fn changes(router: &RouterState, id: PeerId, views: &[ReceivedView]) -> Result<Vec<Option<u32>>, Refusal> {
    let mut of_prefix: BTreeMap<(AnyPrefix, Option<u32>), Option<u32>> = BTreeMap::new();
    let filter = Arc::new(PathFilter { peer: Some(id), ..PathFilter::default() });
    fn add<F: BgpFamily>(
        router: &RouterState,
        prefixes: impl Iterator<Item = Prefix<F>>,
        filter: &Arc<PathFilter>,
        into: &mut BTreeMap<(AnyPrefix, Option<u32>), Option<u32>>,
    ) -> Result<(), Refusal> {
        let (filter, mut memo) = (filter.clone(), FilterMemo::default());
        let of = move |shard: &Shard, prefix| shard.lookup_filtered(prefix, &filter, &mut memo);
        for (_, prefix, view) in routes::each(router, prefixes, of)? {
            into.extend(view.paths.iter().map(|path| ((prefix.any(), path.path_id), path.changed)));
        }
        Ok(())
    }
    let accepted = || views.iter().filter(|view| view.accepted).map(|view| view.prefix);
    add::<V4>(router, accepted().filter_map(Prefix::from_any), &filter, &mut of_prefix)?;
    add::<V6>(router, accepted().filter_map(Prefix::from_any), &filter, &mut of_prefix)?;
    Ok(views.iter().map(|view| of_prefix.get(&(view.prefix, view.path_id)).copied().flatten()).collect())
}

/// What a cursor of this list begins with.
const CURSOR: &str = "received-";

/// A cursor: the last prefix, and `@` and its path identifier where that is not 0.
fn cursor_of((_, prefix, path_id): &KeptPlace) -> String {
    match path_id {
        0 => format!("{CURSOR}{prefix}"),
        id => format!("{CURSOR}{prefix}@{id}"),
    }
}

fn position(cursor: &str) -> Result<KeptPlace, Refusal> {
    let bad = |e: String| {
        Refusal::Bad(format!(
            "cursor: this is not `next` of a page before: {e}; begin again without a cursor"
        ))
    };
    let place =
        cursor.strip_prefix(CURSOR).ok_or_else(|| bad(format!("\"{cursor}\" is none of this list")))?;
    let (prefix, id) = place.split_once('@').unwrap_or((place, "0"));
    let prefix: AnyPrefix = prefix.parse().map_err(|e: ParsePrefixError| bad(e.to_string()))?;
    let id = id.parse().map_err(|_| bad(format!("\"{id}\" is no path identifier")))?;
    Ok((AfiSafi::unicast(prefix.afi()), prefix, id))
}

fn route(view: &ReceivedView, zones: &Zones, validates: bool) -> ReceivedRoute {
    let next_hop = view.attrs.next_hop();
    let path = super::advertised::of_wire(view.attrs.bytes(), next_hop);
    ReceivedRoute {
        prefix: view.prefix.to_string(),
        path_id: view.path_id,
        next_hop: zones.named(next_hop.addr()),
        link_local: path.link_local,
        as_path: path.as_path,
        origin: path.origin,
        local_pref: path.local_pref,
        med: path.med,
        aigp: path.aigp,
        communities: path.communities,
        large_communities: path.large_communities,
        extended_communities: path.extended_communities,
        aggregator: path.aggregator,
        originator_id: path.originator_id,
        cluster_list: path.cluster_list,
        only_to_customer: path.only_to_customer,
        other_attributes: path.other_attributes,
        accepted: view.accepted,
        decision: view.reasons.last().cloned().unwrap_or_default(),
        validation: validates.then(|| view.validity.name().into()),
        age_seconds: None,
        aspa: view.path.filter(|_| validates).map(|state| state.name().into()),
    }
}

/// What import policies do with the kept routes of a prefix.
#[derive(Default)]
pub(super) struct Imports {
    /// For each neighbour whose policy rejects one, a sentence with the statement that decided.
    pub(super) rejected: Vec<String>,
    /// Of accepted routes: neighbour, path identifier, and the sentences of the statements that changed it.
    pub(super) changed: Vec<(ZonedAddress, Option<u32>, Vec<String>)>,
}

/// What the import policies of neighbours do with kept routes of exactly this prefix.
pub(super) fn imports(router: &RouterState, prefix: AnyPrefix) -> Result<Imports, Refusal> {
    let mut imports = Imports::default();
    let Some(bgp) = router.bgp.get() else { return Ok(imports) };
    let zones = Zones::new(router)?;
    for reader in &bgp.readers {
        let found = reader.call(move |reader| reader.received_of(prefix))?;
        for (address, view) in &found {
            if view.accepted {
                let changed = view.changed_by.iter().filter_map(|place| view.reasons.get(*place).cloned());
                imports.changed.push((zones.named(*address), view.path_id, changed.collect()));
                continue;
            }
            let state =
                if router.rpki.get().is_some() { format!(" ({})", view.validity) } else { String::new() };
            let why = view.reasons.last().map_or("", String::as_str);
            let address = zones.named(*address);
            let id = view.path_id.map_or(String::new(), |id| format!(" (path {id})"));
            imports
                .rejected
                .push(format!("{address}{id} announces it{state}, and import policy rejects it: {why}"));
        }
    }
    Ok(imports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_a_prefix_and_a_path_where_there_are_several() {
        let prefix: AnyPrefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!(position("received-10.0.0.0/8").unwrap(), (AfiSafi::Ipv4Unicast, prefix, 0));
        assert_eq!(
            position("received-10.0.0.0/8@4294967295").unwrap(),
            (AfiSafi::Ipv4Unicast, prefix, u32::MAX)
        );
        let place = (AfiSafi::Ipv4Unicast, prefix, 3);
        assert_eq!(position(&cursor_of(&place)).unwrap(), place);
        let wrong = ["10.0.0.0/8@", "10.0.0.0/8@x", "@3", "10.0.0.0/8@4294967296", ""];
        let of_others = ["10.0.0.0/8".to_owned(), "routes-3".into()];
        for wrong in wrong.map(|place| format!("{CURSOR}{place}")).iter().chain(&of_others) {
            assert!(matches!(position(wrong), Err(Refusal::Bad(why)) if why.contains("cursor")), "{wrong}");
        }
    }
}
