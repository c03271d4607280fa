//! Groups whose routes depend on the presence of others: conditional export statements, and default
//! routes of their own.
//!
//! The settings of a group name prefix sets; its *resolved* settings have the state of these. When the
//! state changes, the group moves from its former settings to the new ones, prefix by prefix: the
//! shards dump the prefixes that may be concerned, and a prefix that changes meanwhile goes over at
//! once. So it is always known by which settings a prefix was advertised, and only what differs is
//! sent. One such transition runs at a time; a later state waits for its end.

use super::export;
use super::group::{Group, Peers};
use super::paths::{Handle, Path, Paths};
use super::pending::{Key, Phase};
use super::view::{OWN_DEFAULT_ID, View};
use crate::message::{Change, DumpRequest, DumpScope, NONE};
use crate::peer::{EgressSettings, FamilySet};
use crate::presence::Presence;
use ribtide_prefix::{AfiSafi, BgpFamilies, BgpFamily, Prefix, Set, for_each_bgp_family, per_bgp_family};
use ribtide_wire::bgp::nlri::PathPrefix;
use std::sync::Arc;

/// The state of a conditional group.
pub(super) struct Conditional {
    presence: Arc<Presence>,
    transition: Option<Transition>,
}

/// A change of the resolved settings that is not complete.
struct Transition {
    /// The settings before.
    former: Arc<EgressSettings>,
    /// The prefixes that may be concerned.
    scope: DumpScope,
    /// Prefixes that have gone over.
    over: BgpFamilies<Over>,
    /// Requested dumps that are not complete; `None`: not requested yet.
    dumps: Option<Vec<(u64, AfiSafi)>>,
}

per_bgp_family!(struct Over<F> = Set<Prefix<F>>);

impl Transition {
    /// Notes that a prefix goes over. Returns whether it was advertised by the former settings.
    fn goes_over<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> bool {
        self.scope.has(prefix) && self.over.get_mut::<F>().insert(prefix)
    }

    /// Whether a prefix is still advertised by the former settings.
    fn is_former<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.scope.has(prefix) && !self.over.get::<F>().contains(&prefix)
    }
}

/// The default route of a group by these resolved settings, with one more reference; [`NONE`] without
/// one.
pub(super) fn default_handle<F: BgpFamily>(
    settings: &EgressSettings,
    peers: &Peers,
    paths: &mut Paths,
) -> Handle {
    default_path::<F>(settings, peers).map_or(NONE, |path| paths.intern(path))
}

/// The default route of a group by these resolved settings.
pub(super) fn default_path<F: BgpFamily>(settings: &EgressSettings, peers: &Peers) -> Option<Path> {
    let originate = settings.default_originate.as_ref().filter(|_| settings.families.has(F::ID))?;
    let attrs = originate.of(F::ID)?.clone();
    let source = peers.get(&originate.source)?;
    export::next_hop(settings, source, F::ID, attrs.next_hop(), None)?;
    Some(Path { attrs, source: source.id, next_hop: None, keeps_med: false })
}

impl Group {
    /// A group with these settings at this presence of routes.
    pub(super) fn resolved(key: EgressSettings, presence: &Arc<Presence>) -> Group {
        if !key.is_conditional() {
            return Group::new(key);
        }
        let settings = key.resolve(presence);
        let conditional = Conditional { presence: presence.clone(), transition: None };
        let mut group = Group::new(settings);
        group.key = Arc::new(key);
        group.conditional = Some(Box::new(conditional));
        group
    }

    /// Whether its routes depend on others, or it has a default route of its own.
    pub(super) fn is_conditional(&self) -> bool {
        self.conditional.is_some()
    }

    /// The presence of routes is another: begins a transition, unless one is under way.
    pub(super) fn presence(&mut self, presence: &Arc<Presence>) {
        if let Some(conditional) = &mut self.conditional {
            conditional.presence = presence.clone();
            self.begin_transition();
        }
    }

    fn begin_transition(&mut self) {
        let Some(conditional) = self.conditional.as_mut().filter(|c| c.transition.is_none()) else { return };
        let settings = self.key.resolve(&conditional.presence);
        if settings == *self.settings {
            return;
        }
        let former = std::mem::replace(&mut self.settings, Arc::new(settings));
        conditional.transition = Some(Transition {
            scope: self.key.presence_scope(),
            former,
            over: BgpFamilies::default(),
            dumps: None,
        });
    }

    /// The settings by which prefixes are advertised that have not gone over yet.
    pub(super) fn former_settings(&self) -> Option<Arc<EgressSettings>> {
        Some(self.conditional.as_ref()?.transition.as_ref()?.former.clone())
    }

    /// The dumps that a transition needs. They are to be requested.
    pub(super) fn transition_requests(&mut self, worker: u32, token: &mut u64) -> Vec<DumpRequest> {
        let families = self.settings.families;
        let takes_ranked: FamilySet =
            families.iter().filter(|family| self.settings.takes_ranked(*family)).collect();
        let transition = self.conditional.as_mut().and_then(|conditional| conditional.transition.as_mut());
        let Some(transition) = transition.filter(|transition| transition.dumps.is_none()) else {
            return Vec::new();
        };
        let mut requests = Vec::new();
        for_each_bgp_family!(F => if families.has(F::ID) {
            *token += 1;
            let (scope, ranked) = (transition.scope.clone(), takes_ranked.has(F::ID));
            requests.push(DumpRequest { worker, token: *token, family: F::ID, scope, ranked });
        });
        transition.dumps = Some(requests.iter().map(|request| (request.token, request.family)).collect());
        requests
    }

    /// Whether a dump is that of its transition.
    pub(super) fn is_of_transition(&self, token: u64) -> bool {
        let transition = self.conditional.as_ref().and_then(|conditional| conditional.transition.as_ref());
        let dumps = transition.and_then(|transition| transition.dumps.as_ref());
        dumps.is_some_and(|dumps| dumps.iter().any(|(of, _)| *of == token))
    }

    /// As [`Group::change`]. `former`: by the former settings, in a transition.
    pub(super) fn change_conditional<F: BgpFamily>(
        &mut self,
        changes: &[Change<F>],
        now: &mut View<'_>,
        mut former: Option<&mut View<'_>>,
        paths: &mut Paths,
    ) {
        for change in changes {
            let prefix = change.prefix;
            let first = self.goes_over(prefix);
            if !first && now.has_default(prefix) {
                // It has the group's own, whatever the table has.
                continue;
            }
            let advertised = match &mut former {
                Some(former) if first => former.source(change.old, prefix),
                _ => now.source(change.old, prefix),
            };
            let new = now.handle(change.new, prefix, paths);
            self.change_one(prefix, advertised, new, paths);
        }
    }

    /// A dumped best path of a prefix in a transition; [`NONE`] as `path` without one.
    fn transit<F: BgpFamily>(
        &mut self,
        path: u32,
        prefix: Prefix<F>,
        now: &mut View<'_>,
        former: &mut View<'_>,
        paths: &mut Paths,
    ) {
        if !self.goes_over(prefix) {
            return;
        }
        let (before, after) = (former.handle(path, prefix, paths), now.handle(path, prefix, paths));
        if before != after {
            let advertised = former.source(path, prefix);
            self.change_one(prefix, advertised, after, paths);
        }
    }

    /// Adds a part of a dump of the transition; `last`: the last of its family.
    pub(super) fn transition_dumped<F: BgpFamily>(
        &mut self,
        items: &[Change<F>],
        last: bool,
        now: &mut View<'_>,
        former: &mut View<'_>,
        paths: &mut Paths,
    ) {
        for item in items {
            self.transit(item.new, item.prefix, now, former, paths);
        }
        if last {
            // The table may have none.
            self.transit(NONE, Prefix::<F>::default_route(), now, former, paths);
        }
    }

    /// All shards have completed a dump of the transition.
    pub(super) fn transition_complete(&mut self, token: u64) {
        let Some(conditional) = &mut self.conditional else { return };
        let Some(transition) = &mut conditional.transition else { return };
        if let Some(dumps) = &mut transition.dumps {
            dumps.retain(|(of, _)| *of != token);
            if dumps.is_empty() {
                conditional.transition = None;
                self.begin_transition();
            }
        }
    }

    /// As [`Group::dumped`].
    pub(super) fn dumped_conditional<F: BgpFamily>(
        &mut self,
        token: u64,
        items: &[Change<F>],
        now: &mut View<'_>,
        mut former: Option<&mut View<'_>>,
        paths: &mut Paths,
    ) {
        for item in items {
            let former = former.as_deref_mut().filter(|_| self.is_former(item.prefix));
            let has_default =
                former.as_ref().map_or(now.has_default(item.prefix), |f| f.has_default(item.prefix));
            if has_default {
                continue;
            }
            let new = match former {
                Some(former) => former.handle(item.new, item.prefix, paths),
                None => now.handle(item.new, item.prefix, paths),
            };
            self.dump_item(token, item.prefix, new, paths);
        }
    }

    /// Adds the group's own default route to a dump, before its end.
    pub(super) fn dump_default<F: BgpFamily>(&mut self, token: u64, peers: &Peers, paths: &mut Paths) {
        let prefix = Prefix::<F>::default_route();
        let former = self.former_settings().filter(|_| self.is_former(prefix));
        let settings = former.unwrap_or_else(|| self.settings.clone());
        let handle = default_handle::<F>(&settings, peers, paths);
        if handle != NONE {
            match self.settings.add_path.of(F::ID) {
                Some(_) => {
                    let key = self.own_default_key::<F, PathPrefix<F>>();
                    self.dump_item(token, key, handle, paths);
                }
                None => self.dump_item(token, prefix, handle, paths),
            }
            paths.release(handle);
        }
    }

    pub(super) fn goes_over<F: BgpFamily>(&mut self, prefix: Prefix<F>) -> bool {
        let transition = self.conditional.as_mut().and_then(|conditional| conditional.transition.as_mut());
        transition.is_some_and(|transition| transition.goes_over(prefix))
    }

    /// Whether a prefix is still advertised by the [former settings](Group::former_settings).
    pub(super) fn is_former<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        let transition = self.conditional.as_ref().and_then(|conditional| conditional.transition.as_ref());
        transition.is_some_and(|transition| transition.is_former(prefix))
    }

    /// The key of the group's own default route.
    pub(super) fn own_default_key<F: BgpFamily, K: Key<Family = F>>(&self) -> K {
        K::of(Prefix::default_route(), OWN_DEFAULT_ID)
    }

    fn dump_item<K: Key>(&mut self, token: u64, key: K, new: Handle, paths: &mut Paths) {
        for cohort in self.cohorts_mut() {
            let queue = cohort.queue_mut::<K>();
            if queue.phase() == Phase::Dumping(token) {
                queue.dump_item(key, new, paths);
            }
        }
    }
}
