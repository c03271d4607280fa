//! Filters of lists of routes: from the fields of a query to conditions that the stages evaluate.
//!
//! A page ends with the last route that fits and has room, or after [`LOOKED_AT_MAX`] routes that were looked at. So a
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

/// Routes of the first such call of a page with a filter.
const LOOKED_AT_FIRST: usize = 64;

/// The batches in which a page looks at routes. With a filter they grow, so that few calls find one route among many, and
/// a route among the first costs little.
pub(super) struct Batches {
    limit: usize,
    /// Whether each route fits, so that the page is filled to its limit.
    whole: bool,
    size: usize,
    left: usize,
}

impl Batches {
    /// Of a page of `limit` routes.
    pub(super) fn new(limit: usize, whole: bool) -> Batches {
        Batches { limit, whole, size: LOOKED_AT_FIRST, left: LOOKED_AT_MAX }
    }

    /// The size of the next batch, when `found` routes fit so far; `None`: the page is complete. With a filter more may fit
    /// than there is room for.
    pub(super) fn next(&mut self, found: usize) -> Option<usize> {
        let room = self.limit.saturating_sub(found);
        let batch = match self.whole {
            true => LOOKED_AT_BATCH.min(room),
            false if room == 0 => 0,
            false => self.size,
        };
        self.size = LOOKED_AT_BATCH.min(2 * self.size);
        let batch = batch.min(self.left);
        self.left -= batch;
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

/// The same, where the caller looks up no single prefix: an exact match selects it in the list.
pub(super) fn listed_prefixes(
    prefix: Option<&str>,
    how: PrefixMatch,
) -> Result<Option<PrefixFilter>, Refusal> {
    match (prefix, how) {
        (Some(text), PrefixMatch::Exact) => {
            Ok(Some(PrefixFilter::Exact(text.parse().map_err(|e| wrong("prefix", e))?)))
        }
        _ => prefixes(prefix, how),
    }
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

/// A duration: `90`, `90s`, `15m`, `6h` or `2d`.
pub(super) fn seconds(field: &str, text: &str) -> Result<u32, Refusal> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        None => (text, 1),
        Some(number) => (
            number,
            match text.as_bytes().last() {
                Some(b'm') => 60,
                Some(b'h') => 3600,
                Some(b'd') => 86_400,
                _ => 1,
            },
        ),
    };
    number.parse().ok().and_then(|n: u32| n.checked_mul(unit)).ok_or_else(|| {
        wrong(field, format_args!("\"{text}\" is no duration; write seconds, or such as 90s, 15m, 6h or 2d"))
    })
}

/// The seconds of the router's clock in which paths of these ages changed; `None` without a condition.
fn changed(
    router: &RouterState,
    under: Option<&str>,
    over: Option<&str>,
) -> Result<Option<(u32, u32)>, Refusal> {
    let under = under.map(|text| seconds("age-under", text)).transpose()?;
    let over = over.map(|text| seconds("age-over", text)).transpose()?;
    Ok(span(router.clock.seconds(), under, over))
}

/// The same at the second `now`. A span that ends before it begins holds no second.
fn span(now: u32, under: Option<u32>, over: Option<u32>) -> Option<(u32, u32)> {
    (under.is_some() || over.is_some()).then(|| {
        let from = under.map_or(0, |under| (now + 1).saturating_sub(under));
        // Nothing changed before the start.
        let to = over.map_or(Some(u32::MAX), |over| now.checked_sub(over));
        to.map_or((1, 0), |to| (from, to))
    })
}

/// Whether a path that changed in this second fits; one whose time is not known fits no condition.
pub(super) fn is_of_time(span: Option<(u32, u32)>, changed: Option<u32>) -> bool {
    span.is_none_or(|(from, to)| changed.is_some_and(|at| (from..=to).contains(&at)))
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
    let changed = changed(router, query.age_under.as_deref(), query.age_over.as_deref())?;
    let mut filter = PathFilter { attributes, changed, ..PathFilter::default() };
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

/// When a route has to have changed: not before the first and not after the second; always: `None`.
type Changed = Option<(u32, u32)>;

/// The conditions of a query about routes before import policy.
pub(super) fn received(
    router: &RouterState,
    query: &ReceivedQuery,
) -> Result<(KeptFilter, Option<ReceivedState>, Changed), Refusal> {
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
    let changed = changed(router, query.age_under.as_deref(), query.age_over.as_deref())?;
    Ok((filter, state, changed))
}

/// The conditions of a query about advertised routes: on their attributes, and on when the best path changed.
pub(super) fn advertised(
    router: &RouterState,
    query: &AdvertisedQuery,
) -> Result<(AttributeFilter, Changed), Refusal> {
    let AdvertisedQuery { community, as_path, origin_as, next_hop, .. } = query;
    let attributes = AttributeFields { community, as_path, origin_as, next_hop }.filter()?;
    Ok((attributes, changed(router, query.age_under.as_deref(), query.age_over.as_deref())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_up_to_a_bound_and_the_page_ends_when_it_is_full() {
        let mut whole = Batches::new(2500, true);
        assert_eq!(
            [0, 1000, 2000, 2500].map(|found| whole.next(found)),
            [Some(1000), Some(1000), Some(500), None]
        );
        let mut filtered = Batches::new(2500, false);
        let found = [0, 7, 500, 800, 1500, 2499, 2600];
        let batches = found.map(|found| filtered.next(found));
        assert_eq!(batches, [Some(64), Some(128), Some(256), Some(512), Some(1000), Some(1000), None]);
        // Whatever the limit, few calls find a single route.
        let mut nothing_fits = Batches::new(1, false);
        let batches: Vec<usize> = std::iter::from_fn(|| nothing_fits.next(0)).collect();
        assert_eq!((batches.len(), batches.iter().sum::<usize>()), (104, LOOKED_AT_MAX));
    }

    #[test]
    fn ages_are_spans_of_the_clock() {
        assert_eq!(
            ["90", "90s", "15m", "6h", "2d"].map(|text| seconds("age-over", text).unwrap()),
            [90, 90, 900, 21_600, 172_800]
        );
        for text in ["", "m", "1w", "-3", "99999999999", "60000d", "1.5h", "3é"] {
            let why = seconds("age-under", text).unwrap_err();
            assert!(why.sentence().starts_with(&format!("age-under: \"{text}\" is no duration")), "{why:?}");
        }
        assert_eq!(span(100, None, None), None);
        // At 100, what is younger than 10 seconds changed from 91 on; what is at least as old, until 90.
        assert_eq!(span(100, Some(10), None), Some((91, u32::MAX)));
        assert_eq!(span(100, None, Some(10)), Some((0, 90)));
        assert_eq!(span(100, Some(1000), None), Some((0, u32::MAX)));
        let never = span(100, None, Some(101));
        assert!(
            !is_of_time(never, Some(0))
                && is_of_time(None, None)
                && !is_of_time(span(9, Some(3), None), None)
        );
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
