//! `/v1/bgp/neighbors/ADDRESS/received`: routes of a neighbour before import policy.

use super::bgp::bgp;
use super::routes::family_of;
use super::zones::Zones;
use super::{Refusal, RouterState};
use ribtide_bgp::ingest::{KeptPlace, ReceivedView};
use ribtide_model::{ReceivedPage, ReceivedRoute};
use ribtide_prefix::{AfiSafi, AnyPrefix, FamilySet, ParsePrefixError};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::code;

/// The routes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// All that are kept.
    All,
    /// Those that import policy rejects.
    Filtered,
}

/// A page of the routes that the reader of the neighbour keeps. It looks at `limit` of them at most, or at those of exactly
/// `prefix`.
pub(crate) fn received(
    router: &RouterState,
    address: &str,
    (which, families): (Which, FamilySet),
    prefix: Option<&str>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<ReceivedPage, Refusal> {
    let bgp = bgp(router)?;
    let after = cursor.map(|cursor| position(cursor, families)).transpose()?;
    let prefix = prefix.map(str::parse).transpose();
    let prefix: Option<AnyPrefix> = prefix.map_err(|e: ParsePrefixError| Refusal::Bad(e.to_string()))?;
    let of_family = |prefix: AnyPrefix| Ok::<_, Refusal>((family_of(families, prefix.afi())?, prefix));
    let prefix = prefix.map(of_family).transpose()?;
    let (view, up) = super::advertised::session(bgp, address)?;
    let id = view.id;
    let reader = bgp.readers.get(up.reader);
    let page = reader.map(|reader| {
        reader.call(move |reader| match prefix {
            None => reader.received_page(id, families, after, limit),
            Some((family, prefix)) => reader.received_prefix(id, family, prefix),
        })
    });
    let page = page.transpose()?.flatten().ok_or_else(|| {
        Refusal::Missing(format!(
            "the routes of {address} before import policy are not kept; set keep-received = true for it and reload"
        ))
    })?;
    let next = page.last().filter(|_| prefix.is_none() && page.len() == limit).map(cursor_of);
    let shown = page.iter().filter(|view| which == Which::All || !view.accepted);
    let zones = Zones::new(router)?;
    let routes = shown.map(|view| route(view, &zones, router.rpki().is_some())).collect();
    Ok(ReceivedPage { routes, next })
}

/// A cursor: the last prefix, and `@` and its path identifier where it has one.
fn cursor_of(last: &ReceivedView) -> String {
    match last.path_id {
        None => last.prefix.to_string(),
        Some(id) => format!("{}@{id}", last.prefix),
    }
}

fn position(cursor: &str, families: FamilySet) -> Result<KeptPlace, Refusal> {
    let bad =
        |e: String| Refusal::Bad(format!("the cursor is not that of a last page: {e}; begin without one"));
    let (prefix, id) = cursor.split_once('@').unwrap_or((cursor, "0"));
    let prefix: AnyPrefix = prefix.parse().map_err(|e: ParsePrefixError| bad(e.to_string()))?;
    let id = id.parse().map_err(|_| bad(format!("\"{id}\" is no path identifier")))?;
    Ok((family_of(families, prefix.afi())?, prefix, id))
}

fn route(view: &ReceivedView, zones: &Zones, validates: bool) -> ReceivedRoute {
    ReceivedRoute {
        prefix: view.prefix.to_string(),
        path_id: view.path_id,
        next_hop: zones.named(view.attrs.next_hop().addr()),
        as_path: AsPath::new(view.attrs.value(code::AS_PATH).unwrap_or_default()).to_string(),
        accepted: view.accepted,
        decision: view.reasons.last().cloned().unwrap_or_default(),
        validation: validates.then(|| view.validity.name().into()),
        aspa: view.path.filter(|_| validates).map(|state| state.name().into()),
    }
}

/// For each neighbour whose import policy rejects a kept route of exactly this prefix, a sentence with the statement that
/// decided.
pub(super) fn rejected(router: &RouterState, prefix: AnyPrefix) -> Result<Vec<String>, Refusal> {
    let Some(bgp) = &router.bgp else { return Ok(Vec::new()) };
    let zones = Zones::new(router)?;
    let mut sentences = Vec::new();
    for reader in &bgp.readers {
        let found = reader.call(move |reader| reader.received_of(AfiSafi::unicast(prefix.afi()), prefix))?;
        for (address, view) in found.iter().filter(|(_, view)| !view.accepted) {
            let state = if router.rpki().is_some() { format!(" ({})", view.validity) } else { String::new() };
            let why = view.reasons.last().map_or("", String::as_str);
            let address = zones.named(*address);
            let id = view.path_id.map_or(String::new(), |id| format!(" (path {id})"));
            sentences.push(format!("{address}{id} announces it{state}, and import policy rejects it: {why}"));
        }
    }
    Ok(sentences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_a_prefix_and_a_path_where_there_are_several() {
        let prefix: AnyPrefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!(position("10.0.0.0/8", FamilySet::UNICAST).unwrap(), (AfiSafi::Ipv4Unicast, prefix, 0));
        assert_eq!(
            position("10.0.0.0/8@4294967295", FamilySet::UNICAST).unwrap(),
            (AfiSafi::Ipv4Unicast, prefix, u32::MAX)
        );
        let multicast = FamilySet::of(&[AfiSafi::Ipv4Multicast]);
        assert_eq!(position("10.0.0.0/8", multicast).unwrap(), (AfiSafi::Ipv4Multicast, prefix, 0));
        assert!(position("2001:db8::/32", multicast).is_err());
        for wrong in ["10.0.0.0/8@", "10.0.0.0/8@x", "@3", "10.0.0.0/8@4294967296", ""] {
            assert!(
                matches!(position(wrong, FamilySet::UNICAST), Err(Refusal::Bad(why)) if why.contains("cursor")),
                "{wrong}"
            );
        }
    }
}
