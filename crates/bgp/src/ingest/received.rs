//! The Adj-RIB-In of a session before import policy, for sessions that need it.
//!
//! Readers forget routes once shards have them, so another policy or another validation state needs a
//! ROUTE-REFRESH. That must not happen at each change of RPKI data (RFC 9324). So the reader of a
//! session whose import policy tests the validation state keeps its routes, also those that the policy
//! rejects: a handle of the received attributes for each prefix.
//!
//! After a change only the routes at or below a changed prefix are looked at, and the policy runs for
//! those whose state differs. The reader does that in slices between UPDATEs; a route that arrives
//! meanwhile has the new result at once.

use super::batches;
use super::max_prefixes::Admission;
use super::{Ingest, IngestPeer, ShardBatches};
use crate::attr::AttrSet;
use ribtide_policy::{Route, Validation};
use ribtide_prefix::{AnyPrefix, Families, Family, Prefix, V4, V6, for_each_family, per_family};
use ribtide_rpki::{ChangedPrefixes, Origin, Validity, Vrps};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Attributes, code};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

per_family! {
    /// The routes of a family, in an order in which those below a prefix are adjacent.
    #[derive(Debug)]
    struct Routes<F> = BTreeMap<Prefix<F>, AttrSet>;
}

/// The routes of a session before import policy, and which of them are to be evaluated again.
#[derive(Debug, Default)]
pub(super) struct Received {
    routes: Families<Routes>,
    pending: Option<Pending>,
}

/// Routes that are to be evaluated again.
#[derive(Debug)]
struct Pending {
    changed: Arc<Families<ChangedPrefixes>>,
    /// The table of their former results; `None`: results may differ for other reasons.
    before: Option<Arc<Vrps>>,
    cursors: Families<Cursors>,
}

/// The place of the next route.
#[derive(Debug)]
struct Cursor<F: Family> {
    /// Walk over all routes, not over the changed prefixes.
    whole: bool,
    /// The number of the changed prefix.
    index: usize,
    /// The last route at or below it.
    last: Option<Prefix<F>>,
}

impl<F: Family> Default for Cursor<F> {
    fn default() -> Self {
        Cursor { whole: true, index: 0, last: None }
    }
}

per_family! {
    #[derive(Debug)]
    struct Cursors<F> = Cursor<F>;
}

impl Received {
    /// Keeps routes with these attributes.
    pub(super) fn insert<F: Family>(&mut self, prefix: Prefix<F>, attrs: &AttrSet) {
        self.routes.get_mut::<F>().insert(prefix, attrs.clone());
    }

    /// Forgets routes: they were withdrawn, or no policy may accept them.
    pub(super) fn remove<F: Family>(&mut self, prefixes: impl Iterator<Item = Prefix<F>>) {
        let routes = self.routes.get_mut::<F>();
        prefixes.for_each(|prefix| drop(routes.remove(&prefix)));
    }

    /// The attributes of a prefix as received.
    fn get<F: Family>(&self, prefix: Prefix<F>) -> Option<&AttrSet> {
        self.routes.get::<F>().get(&prefix)
    }

    /// The number of routes of a family.
    pub(super) fn len<F: Family>(&self) -> usize {
        self.routes.get::<F>().len()
    }

    /// The routes of a family after this prefix; all for `None`.
    pub(super) fn after<F: Family>(
        &self,
        last: Option<Prefix<F>>,
    ) -> impl Iterator<Item = (Prefix<F>, &AttrSet)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.routes.get::<F>().range((from, Bound::Unbounded)).map(|(prefix, attrs)| (*prefix, attrs))
    }

    /// The policy changed: all routes are evaluated again.
    pub(super) fn evaluate_all(&mut self) {
        self.pending = Some(Pending { changed: Arc::default(), before: None, cursors: Families::default() });
    }

    /// The table of payloads changed: routes at or below `changed` whose state is another than `before` are
    /// evaluated again.
    fn evaluate_changed(&mut self, before: &Arc<Vrps>, changed: &Arc<Families<ChangedPrefixes>>) {
        if self.pending.is_some() {
            // Which routes have results of which table is no longer known.
            return self.evaluate_all();
        }
        let mut cursors: Families<Cursors> = Families::default();
        for_each_family!(F => {
            let prefixes = changed.get::<F>().len();
            cursors.get_mut::<F>().whole = prefixes > 0 && prefixes >= self.routes.get::<F>().len();
        });
        self.pending = Some(Pending { changed: changed.clone(), before: Some(before.clone()), cursors });
    }

    /// The next route to evaluate again. Each look-up takes one of `budget`; `None` when it is used up, or
    /// after the last route of the family.
    fn next<F: Family>(&mut self, budget: &mut usize) -> Option<(Prefix<F>, AttrSet)> {
        let Pending { changed, cursors, .. } = self.pending.as_mut()?;
        let Cursor { whole, index, last } = cursors.get_mut::<F>();
        loop {
            let at = match whole {
                true => Some(Prefix::default_route()).filter(|_| *index == 0),
                false => changed.get::<F>().get(*index).copied(),
            }?;
            *budget = budget.checked_sub(1)?;
            let from = last.map_or(Bound::Included(at), Bound::Excluded);
            let to = Bound::Included(Prefix::host(at.last_addr())?);
            match self.routes.get::<F>().range((from, to)).next() {
                Some((prefix, attrs)) => {
                    *last = Some(*prefix);
                    return Some((*prefix, attrs.clone()));
                }
                None => (*index, *last) = (*index + 1, None),
            }
        }
    }
}

impl IngestPeer {
    /// Whether the routes before import policy are kept.
    pub fn keeps_received(&self) -> bool {
        self.received.is_some()
    }

    /// The number of kept routes of a family.
    pub fn received_len<F: Family>(&self) -> usize {
        self.received.as_ref().map_or(0, |received| received.len::<F>())
    }

    /// The table of payloads changed: kept routes at or below `changed` whose state is another than
    /// `before` are evaluated again with [`Ingest::evaluate_again`].
    pub fn validate_again(&mut self, before: &Arc<Vrps>, changed: &Arc<Families<ChangedPrefixes>>) {
        if self.settings.import.tests_validity()
            && let Some(received) = &mut self.received
        {
            received.evaluate_changed(before, changed);
        }
    }

    /// Whether [`Ingest::evaluate_again`] has work.
    pub fn is_pending(&self) -> bool {
        self.received.as_ref().is_some_and(|received| received.pending.is_some())
    }
}

impl Ingest {
    /// Validates later routes against this table. Returns the former one.
    pub fn set_vrps(&mut self, vrps: Arc<Vrps>) -> Arc<Vrps> {
        std::mem::replace(&mut self.vrps, vrps)
    }

    /// Evaluates the import policy again for kept routes of a session, after `budget` of them at most, and
    /// appends them to `out`. Routes keep their place in counters. Returns whether all is done.
    pub fn evaluate_again(&mut self, peer: &mut IngestPeer, out: &mut ShardBatches, budget: usize) -> bool {
        let mut budget = budget;
        for_each_family!(F => self.family_again::<F>(peer, out, &mut budget));
        if budget > 0
            && let Some(received) = &mut peer.received
        {
            received.pending = None;
        }
        !peer.is_pending()
    }

    fn family_again<F: Family>(&mut self, peer: &mut IngestPeer, out: &mut ShardBatches, budget: &mut usize) {
        let IngestPeer { info, settings, accepted, received, counters, .. } = peer;
        let Some(received) = received else { return };
        let Some(before) = received.pending.as_ref().map(|pending| pending.before.clone()) else { return };
        let local_asn = info.egress.local_asn;
        let mut routes = Admission { info, accepted: accepted.get_mut::<F>().as_mut(), out };
        // Neighbours often share attributes and results.
        let (mut run, mut last): (Vec<Prefix<F>>, Option<AttrSet>) = (Vec::new(), None);
        while let Some((prefix, attrs)) = received.next::<F>(budget) {
            let Ingest { recent, import, content, vrps, .. } = self;
            let origin = origin_of(attrs.bytes(), local_asn);
            if before
                .as_ref()
                .is_some_and(|before| before.validate(prefix, origin) == vrps.validate(prefix, origin))
            {
                continue;
            }
            counters.evaluated_again += 1;
            let next_hop = attrs.next_hop();
            content.begin(next_hop);
            attrs.attributes().for_each(|attribute| content.push(&attribute));
            let validation = Some(Validation { vrps, origin });
            let source = info.source();
            let mut result =
                import.evaluate(&settings.import, source, F::AFI, next_hop, validation, content, recent);
            let new = result.on(prefix).cloned();
            if !batches::same(new.as_ref(), last.as_ref()) {
                send(&mut routes, last.as_ref(), &mut run);
                last = new;
            }
            run.push(prefix);
        }
        send(&mut routes, last.as_ref(), &mut run);
    }
}

/// Sends routes with these attributes to the shards; `None`: the policy rejects them.
fn send<F: Family>(routes: &mut Admission<'_, F>, attrs: Option<&AttrSet>, run: &mut Vec<Prefix<F>>) {
    if run.is_empty() {
        return;
    }
    match attrs {
        Some(attrs) => drop(routes.announce(attrs, run.drain(..))),
        None => drop(routes.withdraw(run.drain(..))),
    }
}

/// The origin of a route with these attributes, in canonical form.
pub(super) fn origin_of(attributes: &[u8], local_asn: u32) -> Origin {
    let path = Attributes::new(attributes).find(|attribute| attribute.code == code::AS_PATH);
    Origin::of(AsPath::new(path.map_or(&[], |attribute| attribute.value)), local_asn)
}

/// A route before import policy, and what the policy says of it now.
#[derive(Clone, Debug)]
pub struct ReceivedView {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The attributes as received.
    pub attrs: AttrSet,
    /// The validation state.
    pub validity: Validity,
    /// Whether the policy accepts it.
    pub accepted: bool,
    /// A sentence for each tried statement of the policy; the last one decided.
    pub reasons: Vec<String>,
}

impl Ingest {
    /// What the import policy of a session says of a kept route.
    fn view<F: Family>(&self, peer: &IngestPeer, prefix: Prefix<F>, attrs: &AttrSet) -> ReceivedView {
        let IngestPeer { info, settings, .. } = peer;
        let origin = origin_of(attrs.bytes(), info.egress.local_asn);
        let route = Route {
            attributes: attrs.bytes(),
            next_hop: attrs.next_hop(),
            afi: F::AFI,
            source: info.source(),
            validation: Some(Validation { vrps: &self.vrps, origin }),
        };
        let (changes, reasons) = settings.import.explain(&route, prefix.any());
        let validity = self.vrps.validate(prefix, origin);
        ReceivedView {
            prefix: prefix.any(),
            attrs: attrs.clone(),
            validity,
            accepted: changes.is_some(),
            reasons,
        }
    }

    /// What the import policy of a session says of the kept route of exactly this prefix.
    pub fn view_received(&self, peer: &IngestPeer, prefix: AnyPrefix) -> Option<ReceivedView> {
        let received = peer.received.as_ref()?;
        match prefix {
            AnyPrefix::V4(prefix) => Some(self.view(peer, prefix, received.get(prefix)?)),
            AnyPrefix::V6(prefix) => Some(self.view(peer, prefix, received.get(prefix)?)),
        }
    }

    /// A page of kept routes of a session after this prefix, IPv4 before IPv6.
    pub fn view_page(&self, peer: &IngestPeer, after: Option<AnyPrefix>, limit: usize) -> Vec<ReceivedView> {
        let Some(received) = &peer.received else { return Vec::new() };
        let (v4, v6) = match after {
            None => (Some(None), None),
            Some(AnyPrefix::V4(prefix)) => (Some(Some(prefix)), None),
            Some(AnyPrefix::V6(prefix)) => (None, Some(prefix)),
        };
        let first = v4.into_iter().flat_map(|after| received.after::<V4>(after));
        let first = first.map(|(prefix, attrs)| self.view(peer, prefix, attrs));
        let second = received.after::<V6>(v6).map(|(prefix, attrs)| self.view(peer, prefix, attrs));
        first.chain(second).take(limit).collect()
    }
}
