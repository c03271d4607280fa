//! What the import policy makes of attributes that came lately.
//!
//! A policy that looks at a route is run once for attributes that come again, however many prefixes come with them;
//! a prefix costs look-ups only where the policy's statements look at prefixes. As in [`Recent`], a fixed number of
//! places is enough, and attributes that come once leave only their hash behind.

use super::recent::Recent;
use crate::attr::{AttrSet, Content};
use ribtide_policy::{Changes, Memo, NewNextHop, Policy, Route, Source};
use ribtide_prefix::{Afi, Family, Prefix};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::attribute::Attributes;
use std::sync::Arc;

/// Judgements on attributes that came lately.
#[derive(Default)]
pub(super) struct Import {
    /// None before the first judgement.
    places: Vec<Place>,
    /// The judgement on attributes that came for the first time.
    once: Option<Memo<AttrSet>>,
    scratch: Scratch,
}

/// As many as there are of sets.
const PLACES: usize = 1 << 14;

#[derive(Default)]
struct Place {
    /// Of the attributes seen last here.
    hash: u32,
    /// The judgement on them, if they came more than once.
    judged: Option<Box<Judged>>,
}

struct Judged {
    policy: Arc<Policy>,
    source: Source,
    afi: Afi,
    received: AttrSet,
    memo: Memo<AttrSet>,
}

/// Where changed attributes are put together.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    content: Content,
}

/// A policy's judgement on the routes of an UPDATE.
pub(super) struct Judgement<'a> {
    policy: &'a Policy,
    route: Route<'a>,
    content: &'a Content,
    memo: &'a mut Memo<AttrSet>,
    scratch: &'a mut Scratch,
    recent: &'a mut Recent,
}

impl Import {
    /// Judges routes of family `afi` with these attributes and this next hop.
    pub(super) fn judge<'a>(
        &'a mut self,
        policy: &'a Arc<Policy>,
        source: Source,
        afi: Afi,
        next_hop: NextHop,
        content: &'a Content,
        recent: &'a mut Recent,
    ) -> Judgement<'a> {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let Import { places, once, scratch } = self;
        let route = Route { attributes: content.attributes(), next_hop, afi, source };
        let hash = content.hash();
        let place = &mut places[hash as usize % PLACES];
        let memo = if place.hash != hash {
            *place = Place { hash, judged: None };
            once.insert(asked(policy, &route, content, scratch, recent))
        } else {
            let same = |j: &Judged| {
                Arc::ptr_eq(&j.policy, policy)
                    && (j.source, j.afi) == (source, afi)
                    && j.received.has_content(content)
            };
            place.judged.take_if(|judged| !same(judged));
            let judged = place.judged.get_or_insert_with(|| {
                let memo = asked(policy, &route, content, scratch, recent);
                let received = recent.intern(content).clone();
                Box::new(Judged { policy: policy.clone(), source, afi, received, memo })
            });
            &mut judged.memo
        };
        Judgement { policy, route, content, memo, scratch, recent }
    }
}

impl Judgement<'_> {
    /// What it is for every prefix, if it is the same: the set to use, or `None` inside when the routes are rejected.
    pub(super) fn settled(&self) -> Option<Option<&AttrSet>> {
        self.memo.settled()
    }

    /// What it is for this prefix.
    pub(super) fn on<F: Family>(&mut self, prefix: Prefix<F>) -> Option<&AttrSet> {
        let Judgement { policy, route, content, memo, scratch, recent } = self;
        memo.decide(policy, route, prefix, |changes| made(changes, route, content, scratch, recent))
            .map(|set| &*set)
    }
}

fn asked(
    policy: &Policy,
    route: &Route<'_>,
    content: &Content,
    scratch: &mut Scratch,
    recent: &mut Recent,
) -> Memo<AttrSet> {
    Memo::new(policy, route, |changes| made(changes, route, content, scratch, recent))
}

/// The set of a route that was accepted with these changes.
fn made(
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
        // Our own address means nothing here; the configuration refuses it.
        Some(NewNextHop::Own) | None => route.next_hop,
    };
    scratch.bytes.clear();
    changes.write(route.attributes, &mut scratch.bytes);
    scratch.content.begin(next_hop);
    Attributes::new(&scratch.bytes).for_each(|attribute| scratch.content.push(&attribute));
    recent.intern(&scratch.content).clone()
}
