//! The paths of a batch for a group: whether it gets each path, and in which form.
//!
//! The export policy is evaluated once for each path, and prefixes with equal results share the
//! outcome. A changed path waits and is packed in its changed form, so paths that a policy makes
//! equal share messages.

use super::export;
use super::group::Peers;
use super::paths::{Handle, Path, Paths};
use super::pending::AdvertisedSource;
use crate::attr::AttrSet;
use crate::message::{BestPath, NONE};
use crate::peer::{EgressSettings, PeerInfo};
use ribtide_policy::{Changes, Memo, NewNextHop, Policy, PolicyResult, Route};
use ribtide_prefix::{AfiSafi, BgpFamily, Prefix};
use ribtide_wire::bgp::attribute::Community;

/// The paths of a batch for a group and prefixes of one family.
pub(super) struct Offers<'a> {
    paths: &'a [BestPath],
    offers: Vec<Offer<'a>>,
    handles: &'a mut Handles,
}

enum Offer<'a> {
    /// The group does not get the path.
    No,
    /// It gets the path unchanged.
    Plain,
    /// The export policy tests the prefix or changes the path.
    ByPolicy(Box<PolicyOffer<'a>>),
}

struct PolicyOffer<'a> {
    export: GroupExport<'a>,
    /// An accepted path may still be impossible to send.
    memo: Memo<Option<Accepted>>,
}

/// An accepted path.
struct Accepted {
    changes: Changes,
    /// The handle of the changed path, after its first use.
    handle: Handle,
}

/// Handles of a batch's paths, made on demand and held during the batch.
pub(super) struct Handles {
    /// Unchanged paths, which groups share.
    plain: Vec<Handle>,
    /// Changed paths.
    changed: Vec<Handle>,
}

impl Handles {
    /// For a batch of so many paths.
    pub(super) fn new(paths: usize) -> Handles {
        Handles { plain: vec![NONE; paths], changed: Vec::new() }
    }

    /// Releases them.
    pub(super) fn release(self, paths: &mut Paths) {
        self.plain.into_iter().chain(self.changed).for_each(|handle| paths.release(handle));
    }

    fn plain(&mut self, at: usize, path: &BestPath, paths: &mut Paths) -> Handle {
        let handle = &mut self.plain[at];
        if *handle == NONE {
            *handle = paths.intern(Path::plain(path));
        }
        *handle
    }
}

impl<'a> Offers<'a> {
    /// Evaluates `paths` for prefixes of family `family`, as far as the prefix does not matter.
    pub(super) fn new(
        settings: &'a EgressSettings,
        peers: &'a Peers,
        family: AfiSafi,
        paths: &'a [BestPath],
        handles: &'a mut Handles,
    ) -> Offers<'a> {
        let offer = |path: &'a BestPath| {
            let source = peers
                .get(&path.source)
                .filter(|s| export::forbidden(settings, s, family, &path.attrs).is_none());
            let Some((source, policy)) = source.zip(settings.policy_for(path)) else { return Offer::No };
            let export = GroupExport { settings, policy, source, family, path };
            match policy.constant() {
                Some(PolicyResult::Accept) if export.can_send(None) => Offer::Plain,
                Some(_) => Offer::No,
                None => {
                    let memo = Memo::new(policy, &export.route(), |changes| export.accepted(changes));
                    Offer::ByPolicy(Box::new(PolicyOffer { export, memo }))
                }
            }
        };
        Offers { paths, offers: paths.iter().map(offer).collect(), handles }
    }

    /// The source of this path, if the group gets it for this prefix.
    pub(super) fn source<F: BgpFamily>(&mut self, path: u32, prefix: Prefix<F>) -> AdvertisedSource {
        let gets = match self.offers.get_mut(path as usize) {
            None | Some(Offer::No) => false,
            Some(Offer::Plain) => true,
            Some(Offer::ByPolicy(offer)) => offer.export.evaluate(&mut offer.memo, prefix).is_some(),
        };
        if gets {
            AdvertisedSource::from(self.paths[path as usize].source)
        } else {
            AdvertisedSource::NOTHING
        }
    }

    /// This path in the group's form for this prefix; [`NONE`] if the group does not get it.
    pub(super) fn handle<F: BgpFamily>(&mut self, path: u32, prefix: Prefix<F>, paths: &mut Paths) -> Handle {
        let at = path as usize;
        match self.offers.get_mut(at) {
            None | Some(Offer::No) => NONE,
            Some(Offer::Plain) => self.handles.plain(at, &self.paths[at], paths),
            Some(Offer::ByPolicy(offer)) => {
                let PolicyOffer { export, memo } = &mut **offer;
                let Some(accepted) = export.evaluate(memo, prefix) else { return NONE };
                if accepted.handle == NONE {
                    accepted.handle = if accepted.changes.is_empty() {
                        self.handles.plain(at, &self.paths[at], paths)
                    } else {
                        let handle = paths.intern(export.changed(&accepted.changes));
                        self.handles.changed.push(handle);
                        handle
                    };
                }
                accepted.handle
            }
        }
    }
}

/// A path for a group, before its export policy.
struct GroupExport<'a> {
    settings: &'a EgressSettings,
    /// The policy that decides about the path.
    policy: &'a Policy,
    source: &'a PeerInfo,
    family: AfiSafi,
    path: &'a BestPath,
}

impl GroupExport<'_> {
    fn route(&self) -> Route<'_> {
        let attrs = &self.path.attrs;
        let (family, source) = (self.family, self.source.source());
        Route { attributes: attrs.bytes(), next_hop: attrs.next_hop(), family, source, validation: None }
    }

    fn evaluate<'m, F: BgpFamily>(
        &self,
        memo: &'m mut Memo<Option<Accepted>>,
        prefix: Prefix<F>,
    ) -> Option<&'m mut Accepted> {
        let make = |changes| self.accepted(changes);
        memo.decide(self.policy, &self.route(), prefix, make)?.as_mut()
    }

    fn accepted(&self, changes: Changes) -> Option<Accepted> {
        self.can_send(changes.next_hop()).then_some(Accepted { changes, handle: NONE })
    }

    /// Whether a valid next hop exists when the policy sets it to this.
    fn can_send(&self, next_hop: Option<NewNextHop>) -> bool {
        let received = self.path.attrs.next_hop();
        export::next_hop(self.settings, self.source, self.family, received, next_hop).is_some()
    }

    /// The path with these changes.
    fn changed(&self, changes: &Changes) -> Path {
        let attrs = &self.path.attrs;
        let mut bytes = Vec::new();
        // A router that is not the next hop neither adds the metric nor changes it (RFC 7311 sections 3.4.1
        // and 3.4.3).
        let own = || export::sets_own(self.settings, self.source, attrs.next_hop(), changes.next_hop());
        let sets_aigp = changes.aigp().is_some() && own();
        if sets_aigp || changes.aigp().is_none() {
            changes.write(attrs.bytes(), &mut bytes);
        } else {
            changes.without_aigp().write(attrs.bytes(), &mut bytes);
        }
        let mut set = AttrSet::new(&bytes, attrs.next_hop());
        // A route that the receivers must treat as the last choice keeps the mark (RFC 9494 section 4.3).
        if self.source.long_lived && attrs.llgr_stale() && !set.llgr_stale() {
            set = set.with_community(Community::LLGR_STALE);
        }
        Path {
            // The metric of a policy is sent as it is.
            attrs: match attrs.distance().filter(|_| !sets_aigp) {
                None => set,
                distance => set.with_distance(distance),
            },
            source: self.path.source,
            next_hop: changes.next_hop(),
            keeps_med: changes.med().is_some(),
        }
    }
}

/// The form of one path for a group and prefix; `None` if the group does not get it. Appends the
/// reasons to `messages`, as sentences.
pub(super) fn explain<F: BgpFamily>(
    settings: &EgressSettings,
    source: &PeerInfo,
    path: &BestPath,
    prefix: Prefix<F>,
    messages: &mut Vec<String>,
) -> Option<Path> {
    let Some(policy) = settings.policy_for(path) else {
        messages.push("not sent: an aggregate suppresses it, and there is no unsuppress policy".into());
        return None;
    };
    let export = GroupExport { settings, policy, source, family: F::ID, path };
    if let Some(why) = export::forbidden(settings, source, F::ID, &path.attrs) {
        messages.push(format!("not sent: {why}"));
        return None;
    }
    let (changes, tried) = policy.explain(&export.route(), prefix.any());
    messages.extend(tried);
    let changes = changes?;
    if !export.can_send(changes.next_hop()) {
        messages.push("not sent: there is no next hop of this family that the peer could use".into());
        return None;
    }
    Some(export.changed(&changes))
}
