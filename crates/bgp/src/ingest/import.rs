//! Results of the import policy for recent attribute sets.
//!
//! A policy runs once for attributes that arrive again, for any number of prefixes. A prefix costs
//! lookups only where a statement of the policy matches prefixes. As in [`Recent`], the number of
//! places is fixed, and attributes that arrive once leave only their hash.

use super::recent::Recent;
use crate::attr::{AttrSet, Content};
use ribtide_policy::{Changes, Memo, NewNextHop, Policy, Route, Source, Validation};
use ribtide_prefix::{AfiSafi, BgpFamily, Prefix};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::attribute::Attributes;
use std::sync::Arc;

/// Policy results for recent attribute sets.
#[derive(Default)]
pub(super) struct Import {
    /// Empty before the first evaluation.
    places: Vec<Place>,
    /// The result for attributes that arrived for the first time.
    once: Option<Memo<AttrSet>>,
    scratch: Scratch,
}

/// Equal to the number of places for attribute sets.
const PLACES: usize = 1 << 14;

#[derive(Default)]
struct Place {
    /// The hash of the last attributes in this place.
    hash: u32,
    /// Their result, if they arrived more than once.
    cached: Option<Box<CachedResult>>,
}

struct CachedResult {
    policy: Arc<Policy>,
    source: Source,
    family: AfiSafi,
    received: AttrSet,
    memo: Memo<AttrSet>,
}

/// Scratch memory for changed attributes.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    content: Content,
}

/// The result of a policy for the routes of an UPDATE.
pub(super) struct PolicyResult<'a> {
    policy: &'a Policy,
    route: Route<'a>,
    content: &'a Content,
    memo: &'a mut Memo<AttrSet>,
    scratch: &'a mut Scratch,
    recent: &'a mut Recent,
}

impl Import {
    /// Evaluates the policy for routes of family `family` with these attributes and this next hop.
    /// `validation`: where the policy tests the validation state.
    #[expect(clippy::too_many_arguments, reason = "the parts of a route, and the caches")]
    pub(super) fn evaluate<'a>(
        &'a mut self,
        policy: &'a Arc<Policy>,
        source: Source,
        family: AfiSafi,
        next_hop: NextHop,
        validation: Option<Validation<'a>>,
        content: &'a Content,
        recent: &'a mut Recent,
    ) -> PolicyResult<'a> {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let Import { places, once, scratch } = self;
        let route = Route { attributes: content.attributes(), next_hop, family, source, validation };
        let hash = content.hash();
        let place = &mut places[hash as usize % PLACES];
        let memo = if place.hash != hash {
            *place = Place { hash, cached: None };
            once.insert(memo_of(policy, &route, content, scratch, recent))
        } else {
            let same = |j: &CachedResult| {
                Arc::ptr_eq(&j.policy, policy)
                    && (j.source, j.family) == (source, family)
                    && j.received.has_content(content)
            };
            place.cached.take_if(|cached| !same(cached));
            let cached = place.cached.get_or_insert_with(|| {
                let memo = memo_of(policy, &route, content, scratch, recent);
                let received = recent.intern(content).clone();
                Box::new(CachedResult { policy: policy.clone(), source, family, received, memo })
            });
            &mut cached.memo
        };
        PolicyResult { policy, route, content, memo, scratch, recent }
    }
}

impl PolicyResult<'_> {
    /// The result if it is the same for all prefixes: the attribute set to use, or `None` inside
    /// when the policy rejects.
    pub(super) fn settled(&self) -> Option<Option<&AttrSet>> {
        self.memo.settled()
    }

    /// The result for `prefix`.
    pub(super) fn on<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> Option<&AttrSet> {
        let PolicyResult { policy, route, content, memo, scratch, recent } = self;
        memo.decide(policy, route, prefix, |changes| changed_set(changes, route, content, scratch, recent))
            .map(|set| &*set)
    }
}

fn memo_of(
    policy: &Policy,
    route: &Route<'_>,
    content: &Content,
    scratch: &mut Scratch,
    recent: &mut Recent,
) -> Memo<AttrSet> {
    Memo::new(policy, route, |changes| changed_set(changes, route, content, scratch, recent))
}

/// The attribute set of an accepted route after the changes of the policy.
fn changed_set(
    changes: Changes,
    route: &Route<'_>,
    content: &Content,
    scratch: &mut Scratch,
    recent: &mut Recent,
) -> AttrSet {
    if changes.is_empty() {
        return recent.intern(content).clone();
    }
    let next_hop = match changes.next_hop() {
        Some(NewNextHop::Address(next_hop)) => next_hop,
        // `self` has no meaning on import; the configuration refuses it.
        Some(NewNextHop::Own) | None => route.next_hop,
    };
    scratch.bytes.clear();
    changes.write(route.attributes, &mut scratch.bytes);
    scratch.content.begin(next_hop);
    Attributes::new(&scratch.bytes).for_each(|attribute| scratch.content.push(&attribute));
    recent.intern(&scratch.content).clone()
}
