//! The Adj-RIB-In of a session before import policy, for sessions that need it.
//!
//! Readers forget routes once shards have them, so another policy or another validation state needs a
//! ROUTE-REFRESH. That must not happen at each change of RPKI data (RFC 9324). So the reader of a
//! session whose import policy tests the validation state keeps its routes, also those that the policy
//! rejects: a handle of the received attributes for each prefix, or for each path of a session with path
//! identifiers.
//!
//! After a change only the routes at or below a changed prefix are looked at, and the policy runs for
//! those whose state differs. The reader does that in slices between UPDATEs; a route that arrives
//! meanwhile has the new result at once.

use super::batches;
use super::kept::KeptRoutes;
use super::max_prefixes::Admission;
use super::{Ingest, IngestPeer, IngestSettings, SessionNlri, ShardBatches};
use crate::attr::AttrSet;
use crate::filter::FilterMemo;
use ribtide_policy::{AttributeFilter, PrefixFilter, Route, Validation};
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamilies, BgpFamily, Families, Family, Prefix, for_each_bgp_family,
    for_each_family, per_bgp_family, per_family,
};
use ribtide_rpki::{ChangedPrefixes, Origin, PathRule, PathState, Validity, Vrps};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Attributes, code};
use ribtide_wire::bgp::nlri::{Nlris, PathPrefix};
use ribtide_wire::bgp::update;
use std::sync::Arc;

per_family! {
    /// Prefixes that soon are validated.
    pub(super) struct Ahead<F> = Vec<Prefix<F>>;
}

per_bgp_family! {
    /// The routes of a family.
    #[derive(Debug)]
    struct Routes<F> = KeptRoutes<Prefix<F>>;
}

per_bgp_family! {
    /// The same of a session with path identifiers.
    #[derive(Debug)]
    struct PathRoutes<F> = KeptRoutes<PathPrefix<F>>;
}

/// The routes of a session before import policy, and which of them are to be evaluated again.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Of a family without path identifiers.
    routes: BgpFamilies<Routes>,
    /// Of a family with them.
    paths: BgpFamilies<PathRoutes>,
    pending: Option<Pending>,
}

/// Routes that are to be evaluated again.
#[derive(Debug)]
struct Pending {
    changed: Arc<Families<ChangedPrefixes>>,
    /// The table of their former results; `None`: results may differ for other reasons.
    before: Option<Arc<Vrps>>,
    cursors: BgpFamilies<Cursors>,
}

/// The place of the next route.
#[derive(Debug)]
struct Cursor<F: BgpFamily> {
    /// Walk over all routes, not over the changed prefixes.
    whole: bool,
    /// The number of the changed prefix.
    index: usize,
    /// The last route at or below it; its path identifier is 0 without one.
    last: Option<PathPrefix<F>>,
}

impl<F: BgpFamily> Default for Cursor<F> {
    fn default() -> Self {
        Cursor { whole: true, index: 0, last: None }
    }
}

per_bgp_family! {
    #[derive(Debug)]
    struct Cursors<F> = Cursor<F>;
}

impl Received {
    /// The routes of a family without path identifiers.
    pub(super) fn prefixes<F: BgpFamily>(&mut self) -> &mut KeptRoutes<Prefix<F>> {
        self.routes.get_mut::<F>()
    }

    /// The routes of a family with path identifiers.
    pub(super) fn paths<F: BgpFamily>(&mut self) -> &mut KeptRoutes<PathPrefix<F>> {
        self.paths.get_mut::<F>()
    }

    /// The number of routes of a family. Sorts them.
    pub(super) fn len<F: BgpFamily>(&mut self) -> usize {
        self.prefixes::<F>().sorted().count() + self.paths::<F>().sorted().count()
    }

    /// Shrinks the maps to their contents. O(routes) after changes.
    pub(super) fn shrink_to_fit(&mut self) {
        for_each_bgp_family!(F => {
            self.prefixes::<F>().shrink_to_fit();
            self.paths::<F>().shrink_to_fit();
        });
    }

    /// The policy changed: all routes are evaluated again.
    pub(super) fn evaluate_all(&mut self) {
        self.pending =
            Some(Pending { changed: Arc::default(), before: None, cursors: BgpFamilies::default() });
    }

    /// The table of payloads changed: routes at or below `changed`, or of `all` prefixes, whose state is another than
    /// `before` are evaluated again.
    fn evaluate_changed(&mut self, before: &Arc<Vrps>, changed: &Arc<Families<ChangedPrefixes>>, all: bool) {
        if self.pending.is_some() {
            // Results of several tables are mixed now, so all routes are evaluated.
            return self.evaluate_all();
        }
        let mut cursors: BgpFamilies<Cursors> = BgpFamilies::default();
        for_each_bgp_family!(F => {
            let prefixes = changed.get::<<F as BgpFamily>::Address>().len();
            let routes = self.prefixes::<F>().estimate() + self.paths::<F>().estimate();
            cursors.get_mut::<F>().whole = all || (prefixes > 0 && prefixes >= routes);
            self.prefixes::<F>().begin_scan();
            self.paths::<F>().begin_scan();
        });
        self.pending = Some(Pending { changed: changed.clone(), before: Some(before.clone()), cursors });
    }

    /// The next route to evaluate again. Each look-up takes one of `budget`; `None` when it is used up, or
    /// after the last route of the family.
    fn next<N: SessionNlri>(&mut self, budget: &mut usize) -> Option<(N, AttrSet)> {
        // Taken out, because the routes are in the same struct.
        let mut pending = self.pending.take()?;
        let next = self.next_of::<N>(&mut pending, budget);
        self.pending = Some(pending);
        next
    }

    fn next_of<N: SessionNlri>(&mut self, pending: &mut Pending, budget: &mut usize) -> Option<(N, AttrSet)> {
        let Pending { changed, cursors, .. } = pending;
        let Cursor { whole, index, last } = cursors.get_mut::<N::Family>();
        let changed = changed.get::<<N::Family as BgpFamily>::Address>();
        loop {
            let at = match whole {
                true => Some(Prefix::default_route()).filter(|_| *index == 0),
                false => changed.get(*index).copied().map(Prefix::from_ip),
            }?;
            // UPDATEs that arrived since the last slice are scanned too.
            let kept = N::kept(self);
            let is_scanned = match whole {
                true => kept.scan_all(MOVED_CHUNK_COST, budget),
                false => {
                    kept.scan(|route| is_below(changed, route.prefix().ip()), SCANNED_CHUNK_COST, budget)
                }
            };
            if !is_scanned {
                return None;
            }
            *budget = budget.checked_sub(1)?;
            let end = N::of(Prefix::host(at.last_addr())?, u32::MAX);
            let kept = N::kept(self).scanned();
            let next = match *last {
                None => kept.from(N::of(at, 0)).next(),
                Some(last) => kept.after(Some(N::of(last.prefix, last.path_id))).next(),
            };
            match next.filter(|(route, _)| *route <= end) {
                Some((route, attrs)) => {
                    *last = Some(PathPrefix { prefix: route.prefix(), path_id: route.path_id() });
                    return Some((route, attrs.clone()));
                }
                None => (*index, *last) = (*index + 1, None),
            }
        }
    }
}

/// Bytes of NLRI that are noted of an UPDATE: what is prefetched for more of them would not stay in a first-level cache.
const NOTED_FIELD: usize = 1024;

/// What it takes of the budget of a slice to move a chunk of the log, in look-ups.
const MOVED_CHUNK_COST: usize = 1024;
/// What it takes to look through one.
const SCANNED_CHUNK_COST: usize = 128;

/// Whether a prefix is at or below one of `changed`.
#[inline]
fn is_below<F: Family>(changed: &[Prefix<F>], prefix: Prefix<F>) -> bool {
    let after = changed.partition_point(|changed| *changed <= prefix);
    after.checked_sub(1).and_then(|before| changed.get(before)).is_some_and(|changed| changed.covers(prefix))
}

impl IngestPeer {
    /// Whether the routes before import policy are kept.
    pub fn keeps_received(&self) -> bool {
        self.received.is_some()
    }

    /// The number of kept routes of a family. Moves the log of changes to the sorted map first.
    pub fn received_len<F: BgpFamily>(&mut self) -> usize {
        self.received.as_mut().map_or(0, |received| received.len::<F>())
    }

    /// The table of payloads changed: kept routes at or below `changed` whose state is another than
    /// `before` are evaluated again with [`Ingest::evaluate_again`].
    /// With other ASPA records these are all routes with another state of their path.
    pub fn validate_again(
        &mut self,
        before: &Arc<Vrps>,
        after: &Vrps,
        changed: &Arc<Families<ChangedPrefixes>>,
    ) {
        let IngestSettings { import, .. } = &self.settings;
        let paths = import.tests_path() && !after.has_same_aspas(before);
        let prefixes = import.tests_validity() && !(changed.v4.is_empty() && changed.v6.is_empty());
        if let Some(received) = self.received.as_mut().filter(|_| paths || prefixes) {
            received.evaluate_changed(before, changed, paths);
        }
    }

    /// Whether its routes of family `F` have path identifiers.
    fn has_path_ids<F: BgpFamily>(&self) -> bool {
        self.info.path_ids.has(F::ID)
    }

    /// Whether [`Ingest::evaluate_again`] has work.
    pub fn is_pending(&self) -> bool {
        self.received.as_ref().is_some_and(|received| received.pending.is_some())
    }
}

impl IngestPeer {
    /// Whether the import policy tests the validation state of prefixes.
    #[inline]
    pub fn validates(&self) -> bool {
        self.settings.import.tests_validity()
    }
}

impl Ingest {
    /// Notes the prefixes that an UPDATE announces, which follows soon: its body. Returns how many are noted.
    #[inline]
    pub fn note_ahead(&mut self, peer: &IngestPeer, body: &[u8]) -> usize {
        let Some((family, field)) = update::peek_announced(body) else { return 0 };
        // The last route may be cut.
        let field = field.get(..NOTED_FIELD).unwrap_or(field);
        let mut count = 0;
        for_each_bgp_family!(F => if F::ID == family {
            let ahead = self.ahead.get_mut::<<F as BgpFamily>::Address>();
            match peer.has_path_ids::<F>() {
                false => Nlris::<Prefix<F>>::new(field).for_each(|route| ahead.push(route.ip())),
                true => Nlris::<PathPrefix<F>>::new(field).for_each(|route| ahead.push(route.prefix.ip())),
            }
            count = ahead.len();
        });
        count
    }

    /// Reads the memory that validation of the noted prefixes needs: a table of payloads is larger than a cache.
    pub fn prefetch(&mut self) {
        for_each_family!(F => {
            let ahead = self.ahead.get_mut::<F>();
            self.vrps.prefetch(ahead);
            ahead.clear();
        });
    }

    /// Validates later routes against this table. Returns the former one.
    pub fn set_vrps(&mut self, vrps: Arc<Vrps>) -> Arc<Vrps> {
        std::mem::replace(&mut self.vrps, vrps)
    }

    /// Evaluates the import policy again for kept routes of a session, after `budget` of them at most, and
    /// appends them to `out`. Routes keep their place in counters. Returns whether all is done.
    pub fn evaluate_again(&mut self, peer: &mut IngestPeer, out: &mut ShardBatches, budget: usize) -> bool {
        let mut budget = budget;
        for_each_bgp_family!(F => match peer.has_path_ids::<F>() {
            false => self.family_again::<Prefix<F>>(peer, out, &mut budget),
            true => self.family_again::<PathPrefix<F>>(peer, out, &mut budget),
        });
        if budget > 0
            && let Some(received) = &mut peer.received
        {
            received.pending = None;
        }
        !peer.is_pending()
    }

    fn family_again<N: SessionNlri>(
        &mut self,
        peer: &mut IngestPeer,
        out: &mut ShardBatches,
        budget: &mut usize,
    ) {
        let family = N::Family::ID;
        let IngestPeer { info, settings, accepted, received, counters, context, refreshed: _ } = peer;
        let Some(received) = received else { return };
        let rule = context.path_rule().filter(|_| settings.import.tests_path());
        let Some(before) = received.pending.as_ref().map(|pending| pending.before.clone()) else { return };
        let local_asn = info.egress.local_asn;
        let mut routes = Admission::<N> { info, accepted: accepted.get_mut().as_mut(), out };
        // Neighbours often share attributes and results.
        let (mut run, mut last): (Vec<N>, Option<AttrSet>) = (Vec::new(), None);
        // The last verified path: neighbours share attributes, too.
        let mut verified: Option<(AttrSet, PathStates)> = None;
        while let Some((route, attrs)) = received.next::<N>(budget) {
            let prefix = route.prefix();
            let Ingest { recent, import, content, vrps, .. } = self;
            let origin = origin_of(attrs.bytes(), local_asn);
            let path = rule.map(|rule| match &verified {
                Some((of, states)) if batches::same(Some(of), Some(&attrs)) => *states,
                _ => {
                    let states = PathStates::new(&attrs, &rule, before.as_deref(), vrps);
                    verified = Some((attrs.clone(), states));
                    states
                }
            });
            let is_same = |before: &Arc<Vrps>| {
                path.is_none_or(|path| path.before == Some(path.now))
                    && before.validate(prefix.ip(), origin) == vrps.validate(prefix.ip(), origin)
            };
            if before.as_ref().is_some_and(is_same) {
                continue;
            }
            let path = path.map(|path| path.now);
            counters.evaluated_again += 1;
            let next_hop = attrs.next_hop();
            content.begin(next_hop);
            attrs.attributes().for_each(|attribute| content.push(&attribute));
            let validation = Some(Validation { vrps, origin, path });
            let source = info.source();
            let mut result =
                import.evaluate(&settings.import, source, family, next_hop, validation, content, recent);
            let new = result.on(prefix).cloned();
            if !batches::same(new.as_ref(), last.as_ref()) {
                send(&mut routes, last.as_ref(), &mut run);
                last = new;
            }
            run.push(route);
        }
        send(&mut routes, last.as_ref(), &mut run);
    }
}

/// Sends routes with these attributes to the shards; `None`: the policy rejects them.
fn send<N: SessionNlri>(routes: &mut Admission<'_, N>, attrs: Option<&AttrSet>, run: &mut Vec<N>) {
    if run.is_empty() {
        return;
    }
    match attrs {
        Some(attrs) => drop(routes.announce(attrs, run.drain(..))),
        None => drop(routes.withdraw(run.drain(..))),
    }
}

/// The states of a path before and after a change of the ASPA records.
#[derive(Clone, Copy)]
struct PathStates {
    /// `None`: results may differ for other reasons.
    before: Option<PathState>,
    now: PathState,
}

impl PathStates {
    fn new(attrs: &AttrSet, rule: &PathRule, before: Option<&Vrps>, now: &Vrps) -> PathStates {
        let state = |vrps: &Vrps| vrps.aspas().verify(path_of(attrs.bytes()), rule);
        let now_state = state(now);
        let before = before.map(|before| if before.has_same_aspas(now) { now_state } else { state(before) });
        PathStates { before, now: now_state }
    }
}

/// The origin of a route with these attributes, in canonical form.
pub(super) fn origin_of(attributes: &[u8], local_asn: u32) -> Origin {
    Origin::of(path_of(attributes), local_asn)
}

/// The AS path of a route with these attributes, in canonical form.
pub(super) fn path_of(attributes: &[u8]) -> AsPath<'_> {
    let path = Attributes::new(attributes).find(|attribute| attribute.code == code::AS_PATH);
    AsPath::new(path.map_or(&[], |attribute| attribute.value))
}

/// A route before import policy, and what the policy says of it now.
#[derive(Clone, Debug)]
pub struct ReceivedView {
    /// The family.
    pub family: AfiSafi,
    /// The prefix.
    pub prefix: AnyPrefix,
    /// Its path identifier, in a session that has them (RFC 7911).
    pub path_id: Option<u32>,
    /// The attributes as received.
    pub attrs: AttrSet,
    /// The validation state.
    pub validity: Validity,
    /// The verification state of the path, of a neighbour towards which we have a role.
    pub path: Option<PathState>,
    /// Whether the policy accepts it.
    pub accepted: bool,
    /// A sentence for each tried statement of the policy; the last one decided.
    pub reasons: Vec<String>,
    /// Of an accepted route: the places in `reasons` of the statements whose actions changed it.
    pub changed_by: Vec<usize>,
}

impl Ingest {
    /// What the import policy of a session says of a kept route.
    fn view<N: SessionNlri>(&self, peer: &IngestPeer, (kept, attrs): (N, &AttrSet)) -> ReceivedView {
        let prefix = kept.prefix();
        let IngestPeer { info, settings, .. } = peer;
        let origin = origin_of(attrs.bytes(), info.egress.local_asn);
        let rule = peer.context.path_rule();
        let path = rule.map(|rule| self.vrps.aspas().verify(path_of(attrs.bytes()), &rule));
        let route = Route {
            attributes: attrs.bytes(),
            next_hop: attrs.next_hop(),
            family: N::Family::ID,
            source: info.source(),
            validation: Some(Validation { vrps: &self.vrps, origin, path }),
        };
        let (changes, reasons, changed_by) = settings.import.explain_changes(&route, prefix.any());
        let validity = self.vrps.validate(prefix.ip(), origin);
        ReceivedView {
            family: N::Family::ID,
            prefix: prefix.any(),
            path_id: N::HAS_PATH_ID.then(|| kept.path_id()),
            attrs: attrs.clone(),
            validity,
            path,
            accepted: changes.is_some(),
            reasons,
            changed_by,
        }
    }

    /// What the import policy of a session says of the kept routes of exactly this prefix.
    pub fn view_received(&self, peer: &mut IngestPeer, prefix: AnyPrefix) -> Vec<ReceivedView> {
        match prefix {
            AnyPrefix::V4(prefix) => self.views_of(peer, prefix),
            AnyPrefix::V6(prefix) => self.views_of(peer, prefix),
        }
    }

    fn views_of<F: BgpFamily>(&self, peer: &mut IngestPeer, prefix: Prefix<F>) -> Vec<ReceivedView> {
        let has_path_ids = peer.has_path_ids::<F>();
        let Some(received) = &mut peer.received else { return Vec::new() };
        if has_path_ids {
            let kept = received.paths::<F>().sorted().from(PathPrefix { prefix, path_id: 0 });
            let kept = kept.take_while(|(route, _)| route.prefix == prefix);
            let kept = kept.map(|(route, attrs)| (route, attrs.clone())).collect();
            self.views::<PathPrefix<F>>(peer, kept)
        } else {
            let kept =
                received.prefixes::<F>().sorted().from(prefix).take_while(|(route, _)| *route == prefix);
            let kept = kept.map(|(route, attrs)| (route, attrs.clone())).collect();
            self.views::<Prefix<F>>(peer, kept)
        }
    }

    fn views<N: SessionNlri>(&self, peer: &IngestPeer, kept: Vec<(N, AttrSet)>) -> Vec<ReceivedView> {
        kept.iter().map(|(route, attrs)| self.view(peer, (*route, attrs))).collect()
    }

    /// Looks at `limit` kept routes of a session after this place at most, family by family, until the policy has been
    /// explained for `fitting` of them. Returns those that fit, and the place of the last one that was looked at, unless that
    /// was the last of all; `None` where routes are not kept.
    pub fn view_page(
        &self,
        peer: &mut IngestPeer,
        after: Option<KeptPlace>,
        (limit, fitting): (usize, usize),
        filter: &KeptFilter,
    ) -> Option<(Vec<ReceivedView>, Option<KeptPlace>)> {
        let kept = peer.kept_page(after, limit)?;
        let last = kept.last().filter(|_| kept.len() == limit).map(|(place, _)| *place);
        let mut memo = FilterMemo::default();
        let mut page = Vec::new();
        for (at, (place @ (_, prefix, path_id), attrs)) in kept.iter().enumerate() {
            // The policy, which costs more, runs for routes that fit.
            if filter.prefixes.is_some_and(|set| !set.has_any(*prefix))
                || !memo.fits(&filter.attributes, attrs)
            {
                continue;
            }
            page.push(match *prefix {
                AnyPrefix::V4(prefix) => self.view_of(peer, prefix, *path_id, attrs),
                AnyPrefix::V6(prefix) => self.view_of(peer, prefix, *path_id, attrs),
            });
            if page.len() == fitting && at + 1 < kept.len() {
                return Some((page, Some(*place)));
            }
        }
        Some((page, last))
    }

    fn view_of<F: BgpFamily>(
        &self,
        peer: &IngestPeer,
        prefix: Prefix<F>,
        path_id: u32,
        attrs: &AttrSet,
    ) -> ReceivedView {
        match peer.has_path_ids::<F>() {
            true => self.view(peer, (PathPrefix { prefix, path_id }, attrs)),
            false => self.view(peer, (prefix, attrs)),
        }
    }
}

/// Conditions on kept routes, which all must hold; the default has none.
#[derive(Clone, Debug, Default)]
pub struct KeptFilter {
    /// On the prefix.
    pub prefixes: Option<PrefixFilter>,
    /// On the attributes as received.
    pub attributes: AttributeFilter,
}

/// The place of a kept route: family, prefix and path identifier (0 without one), in the order of pages.
pub type KeptPlace = (AfiSafi, AnyPrefix, u32);

/// A kept route and its attributes as received.
pub type KeptRoute = (KeptPlace, AttrSet);

/// Where a page after this place begins in family `F`: after a route, or with the first for `Some(None)`; `None`: it
/// has none of the family.
fn place_in<F: BgpFamily>(after: Option<KeptPlace>) -> Option<Option<PathPrefix<F>>> {
    match after {
        Some((family, prefix, path_id)) if family == F::ID => {
            Some(Prefix::from_any(prefix).map(|prefix| PathPrefix { prefix, path_id }))
        }
        Some((family, ..)) if family > F::ID => None,
        _ => Some(None),
    }
}

impl IngestPeer {
    /// Kept routes after this place, family by family, at most `limit`; `None` where they are not kept.
    pub fn kept_page(&mut self, after: Option<KeptPlace>, limit: usize) -> Option<Vec<KeptRoute>> {
        self.received.as_ref()?;
        let mut page = Vec::new();
        for_each_bgp_family!(F => if let Some(after) = place_in::<F>(after) {
            self.kept_of::<F>(after, limit, &mut page);
        });
        Some(page)
    }

    fn kept_of<F: BgpFamily>(
        &mut self,
        after: Option<PathPrefix<F>>,
        limit: usize,
        page: &mut Vec<KeptRoute>,
    ) {
        let left = limit.saturating_sub(page.len());
        let has_path_ids = self.has_path_ids::<F>();
        let Some(received) = &mut self.received else { return };
        if has_path_ids {
            let kept = received.paths::<F>().sorted().after(after).take(left);
            page.extend(
                kept.map(|(route, attrs)| ((F::ID, route.prefix.any(), route.path_id), attrs.clone())),
            );
        } else {
            let kept = received.prefixes::<F>().sorted().after(after.map(|last| last.prefix)).take(left);
            page.extend(kept.map(|(prefix, attrs)| ((F::ID, prefix.any(), 0), attrs.clone())));
        }
    }
}
