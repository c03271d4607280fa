//! Filters of lists of routes: from the fields of a query to conditions that the stages evaluate.
//!
//! A page ends with its last route that fits, or after [`LOOKED_AT_MAX`] routes that were looked at. So a
//! selective filter costs the client few requests, and a request a bounded time.

use super::{Refusal, RouterState};
use crate::request::{AdvertisedQuery, PrefixMatch, ReceivedQuery, RouteQuery};
use ribtide_bgp::ingest::KeptFilter;
use ribtide_bgp::shard::{PathFilter, PathState};
use ribtide_policy::{AsPathSet, AttributeFilter, CommunityPattern, Numbers, PrefixFilter};
use ribtide_prefix::AnyPrefix;
use ribtide_rpki::Validity;
use std::net::IpAddr;

/// Routes that a page with a filter looks at, at most.
pub(super) const LOOKED_AT_MAX: usize = 100_000;
/// Routes of one call of a stage while it looks for those that fit: some 0.1 ms.
pub(super) const LOOKED_AT_BATCH: usize = 1000;

/// The batches in which a page looks at routes.
pub(super) struct Batches {
    limit: usize,
    /// Whether each route fits, so that the page is filled to its limit.
    whole: bool,
    left: usize,
}

impl Batches {
    /// Of a page of `limit` routes.
    pub(super) fn new(limit: usize, whole: bool) -> Batches {
        Batches { limit, whole, left: LOOKED_AT_MAX }
    }

    /// The size of the next batch, when `found` routes fit so far; `None`: the page is complete.
    pub(super) fn next(&mut self, found: usize) -> Option<usize> {
        let room = self.limit.saturating_sub(found);
        let batch = match self.whole {
            true => LOOKED_AT_BATCH.min(room),
            // A batch must fit whole. A short last one would look at few routes in each call.
            false => Some(LOOKED_AT_BATCH.min(self.limit)).filter(|batch| *batch <= room)?,
        };
        self.left = self.left.checked_sub(batch)?;
        (batch > 0).then_some(batch)
    }
}

/// A field of a query that cannot be used.
fn wrong(field: &str, why: impl std::fmt::Display) -> Refusal {
    Refusal::Bad(format!("{field}: {why}"))
}

/// The prefixes of a query. `None`: all, and for an exact match those that the caller looks up.
pub(crate) fn prefixes(prefix: Option<&str>, how: PrefixMatch) -> Result<Option<PrefixFilter>, Refusal> {
    let name = match how {
        PrefixMatch::Exact => return Ok(None),
        PrefixMatch::Longer => "longer",
        PrefixMatch::Shorter => "shorter",
    };
    let text = prefix.ok_or_else(|| wrong("match", format_args!("{name} needs a prefix")))?;
    let prefix: AnyPrefix = text.parse().map_err(|e| wrong("prefix", e))?;
    Ok(Some(match how {
        PrefixMatch::Shorter => PrefixFilter::Shorter(prefix),
        _ => PrefixFilter::Longer(prefix),
    }))
}

/// An address without zone.
pub(super) fn next_hop(text: Option<&str>) -> Result<Option<IpAddr>, Refusal> {
    let parse = |text: &str| {
        text.parse().map_err(|_| {
            wrong(
                "next-hop",
                format_args!("\"{text}\" is no address; write one such as 192.0.2.1 or fe80::1"),
            )
        })
    };
    text.map(parse).transpose()
}

/// The fields that are conditions on attributes.
struct AttributeFields<'q> {
    community: &'q Option<String>,
    as_path: &'q Option<String>,
    origin_as: &'q Option<String>,
    next_hop: &'q Option<String>,
}

impl AttributeFields<'_> {
    fn filter(self) -> Result<AttributeFilter, Refusal> {
        let of = |text: &str| text.parse().map_err(|e: String| wrong("community", e));
        let communities: Vec<CommunityPattern> = match self.community {
            None => Vec::new(),
            Some(list) => list.split(',').map(of).collect::<Result<_, _>>()?,
        };
        let mut as_paths = Vec::new();
        if let Some(text) = self.as_path {
            let regex = text.parse().map_err(|e: String| wrong("as-path", e))?;
            as_paths.push(AsPathSet { regex: vec![regex], ..AsPathSet::default() });
        }
        if let Some(text) = self.origin_as {
            let origin: Numbers = text.parse().map_err(|e: String| wrong("origin-as", e))?;
            as_paths.push(AsPathSet { origin: [origin].into_iter().collect(), ..AsPathSet::default() });
        }
        Ok(AttributeFilter { communities, as_paths, next_hop: next_hop(self.next_hop.as_deref())? })
    }
}

/// A state by name, or a refusal with all names.
pub(super) fn named<'n, T>(text: &str, states: impl IntoIterator<Item = (&'n str, T)>) -> Result<T, Refusal> {
    let mut names = Vec::new();
    for (name, state) in states {
        if name == text {
            return Ok(state);
        }
        names.push(name);
    }
    Err(wrong("state", format_args!("\"{text}\" is none; write one of {}", names.join(", "))))
}

fn validity(text: &str) -> Option<Validity> {
    Validity::ALL.into_iter().find(|state| state.name() == text)
}

const NO_VALIDATION: &str = "this router validates no routes; an [rpki] table in its configuration makes it";

/// The conditions of a query about BGP routes.
pub(super) fn paths(router: &RouterState, query: &RouteQuery) -> Result<PathFilter, Refusal> {
    let RouteQuery { community, as_path, origin_as, next_hop, neighbor, state, .. } = query;
    let attributes = AttributeFields { community, as_path, origin_as, next_hop }.filter()?;
    let mut filter = PathFilter { attributes, ..PathFilter::default() };
    if let Some(name) = neighbor {
        filter.peer = Some(super::bgp::neighbor_named(&*super::bgp::bgp(router)?, name)?.id);
    }
    if let Some(text) = state {
        match validity(text) {
            Some(validity) => {
                let vrps = super::rpki::vrps(router)?.ok_or_else(|| wrong("state", NO_VALIDATION))?;
                filter.validity = Some((validity, vrps, router.config().asn));
            }
            None => {
                let states = PathState::ALL.map(|state| (state.name(), Some(state)));
                // They are found above, and only named here.
                let validities = Validity::ALL.map(|state| (state.name(), None));
                filter.state = named(text, states.into_iter().chain(validities))?;
            }
        }
    }
    Ok(filter)
}

/// A state of a route before import policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceivedState {
    Accepted,
    Rejected,
    Validity(Validity),
}

/// The conditions of a query about routes before import policy.
pub(super) fn received(
    router: &RouterState,
    query: &ReceivedQuery,
) -> Result<(KeptFilter, Option<ReceivedState>), Refusal> {
    let ReceivedQuery { prefix, r#match, community, as_path, origin_as, next_hop, state, .. } = query;
    let filter = KeptFilter {
        prefixes: prefixes(prefix.as_deref(), *r#match)?,
        attributes: AttributeFields { community, as_path, origin_as, next_hop }.filter()?,
    };
    let state = state.as_deref().map(|text| {
        let own = [("accepted", ReceivedState::Accepted), ("rejected", ReceivedState::Rejected)];
        let validities = Validity::ALL.map(|state| (state.name(), ReceivedState::Validity(state)));
        named(text, own.into_iter().chain(validities))
    });
    let state = state.transpose()?;
    if matches!(state, Some(ReceivedState::Validity(_))) && router.rpki.get().is_none() {
        return Err(wrong("state", NO_VALIDATION));
    }
    Ok((filter, state))
}

/// The conditions of a query about advertised routes.
pub(super) fn advertised(query: &AdvertisedQuery) -> Result<AttributeFilter, Refusal> {
    let AdvertisedQuery { community, as_path, origin_as, next_hop, .. } = query;
    AttributeFields { community, as_path, origin_as, next_hop }.filter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_with_its_last_batch_that_fits() {
        let mut whole = Batches::new(2500, true);
        assert_eq!(
            [0, 1000, 2000, 2500].map(|found| whole.next(found)),
            [Some(1000), Some(1000), Some(500), None]
        );
        let mut filtered = Batches::new(2500, false);
        assert_eq!(
            [0, 7, 1500, 1501].map(|found| filtered.next(found)),
            [Some(1000), Some(1000), Some(1000), None]
        );
        let mut small = Batches::new(3, false);
        assert_eq!([0, 0, 1].map(|found| small.next(found)), [Some(3), Some(3), None]);
        let mut nothing_fits = Batches::new(10_000, false);
        let batches: Vec<usize> = std::iter::from_fn(|| nothing_fits.next(0)).collect();
        assert_eq!((batches.len(), batches.iter().sum::<usize>()), (100, LOOKED_AT_MAX));
    }

    #[test]
    fn a_state_that_does_not_exist_is_refused_with_those_that_do() {
        let states = || [("sent", 1), ("waiting", 2)];
        assert_eq!(named("waiting", states()).ok(), Some(2));
        match named("wating", states()) {
            Err(Refusal::Bad(why)) => {
                assert_eq!(why, "state: \"wating\" is none; write one of sent, waiting");
            }
            other => panic!("{other:?}"),
        }
    }
}
