//! Which of a batch's paths a group gets, prefix by prefix where its export policy looks at them, and as what.
//!
//! The policy is asked once for each path, and its answer is shared by all prefixes that go the same way through it. A
//! path that it changes waits and is packed as the changed one, so paths that a policy makes alike share messages.

use super::export;
use super::group::Peers;
use super::paths::{Handle, Path, Paths};
use super::pending::AdvertisedSource;
use crate::attr::AttrSet;
use crate::message::{BestPath, NONE};
use crate::peer::{EgressSettings, PeerInfo};
use ribtide_policy::{Changes, Memo, NewNextHop, PolicyResult, Route};
use ribtide_prefix::{Afi, Family, Prefix};

/// The paths of a batch as a group gets them, for prefixes of one family.
pub(super) struct Offers<'a> {
    paths: &'a [BestPath],
    offers: Vec<Offer<'a>>,
    handles: &'a mut Handles,
}

enum Offer<'a> {
    /// The group does not get the path.
    No,
    /// It gets it as it is.
    Plain,
    /// The policy looks at it.
    Asked(Box<Asked<'a>>),
}

struct Asked<'a> {
    judge: Judge<'a>,
    /// What the policy accepts may still be impossible to send.
    memo: Memo<Option<Accepted>>,
}

/// A path that the policy accepts.
struct Accepted {
    changes: Changes,
    /// Of the path as it is changed, once that was asked for.
    handle: Handle,
}

/// Handles of a batch's paths, made when they are asked for and held as long as the batch.
pub(super) struct Handles {
    /// For each path as it is: groups share them.
    plain: Vec<Handle>,
    /// Of paths that a policy changed.
    changed: Vec<Handle>,
}

impl Handles {
    /// For a batch of so many paths.
    pub(super) fn new(paths: usize) -> Handles {
        Handles { plain: vec![NONE; paths], changed: Vec::new() }
    }

    /// Drops them.
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
    /// Judges `paths` for prefixes of family `afi`, as far as the prefix does not matter.
    pub(super) fn new(
        settings: &'a EgressSettings,
        peers: &'a Peers,
        afi: Afi,
        paths: &'a [BestPath],
        handles: &'a mut Handles,
    ) -> Offers<'a> {
        let constant = settings.export.constant();
        let offer = |path: &'a BestPath| {
            let source = peers
                .get(&path.source)
                .filter(|s| export::forbidden(settings, s, afi, &path.attrs).is_none());
            let Some(source) = source else { return Offer::No };
            let judge = Judge { settings, source, afi, path };
            match constant {
                Some(PolicyResult::Accept) if judge.can_send(None) => Offer::Plain,
                Some(_) => Offer::No,
                None => {
                    let memo = Memo::new(&settings.export, &judge.route(), |changes| judge.accepted(changes));
                    Offer::Asked(Box::new(Asked { judge, memo }))
                }
            }
        };
        Offers { paths, offers: paths.iter().map(offer).collect(), handles }
    }

    /// The source of the path of this number, if the group gets it for this prefix.
    pub(super) fn source<F: Family>(&mut self, path: u32, prefix: Prefix<F>) -> AdvertisedSource {
        let gets = match self.offers.get_mut(path as usize) {
            None | Some(Offer::No) => false,
            Some(Offer::Plain) => true,
            Some(Offer::Asked(asked)) => asked.judge.ask(&mut asked.memo, prefix).is_some(),
        };
        if gets {
            AdvertisedSource::from(self.paths[path as usize].source)
        } else {
            AdvertisedSource::NOTHING
        }
    }

    /// The path of this number as the group gets it for this prefix; [`NONE`] when it does not.
    pub(super) fn handle<F: Family>(&mut self, path: u32, prefix: Prefix<F>, paths: &mut Paths) -> Handle {
        let at = path as usize;
        match self.offers.get_mut(at) {
            None | Some(Offer::No) => NONE,
            Some(Offer::Plain) => self.handles.plain(at, &self.paths[at], paths),
            Some(Offer::Asked(asked)) => {
                let Asked { judge, memo } = &mut **asked;
                let Some(accepted) = judge.ask(memo, prefix) else { return NONE };
                if accepted.handle == NONE {
                    accepted.handle = if accepted.changes.is_empty() {
                        self.handles.plain(at, &self.paths[at], paths)
                    } else {
                        let handle = paths.intern(judge.changed(&accepted.changes));
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
struct Judge<'a> {
    settings: &'a EgressSettings,
    source: &'a PeerInfo,
    afi: Afi,
    path: &'a BestPath,
}

impl Judge<'_> {
    fn route(&self) -> Route<'_> {
        let attrs = &self.path.attrs;
        let (afi, source) = (self.afi, self.source.source());
        Route { attributes: attrs.bytes(), next_hop: attrs.next_hop(), afi, source }
    }

    fn ask<'m, F: Family>(
        &self,
        memo: &'m mut Memo<Option<Accepted>>,
        prefix: Prefix<F>,
    ) -> Option<&'m mut Accepted> {
        let make = |changes| self.accepted(changes);
        memo.decide(&self.settings.export, &self.route(), prefix, make)?.as_mut()
    }

    fn accepted(&self, changes: Changes) -> Option<Accepted> {
        self.can_send(changes.next_hop()).then_some(Accepted { changes, handle: NONE })
    }

    /// Whether there is a next hop to send, when the policy sets it to this.
    fn can_send(&self, next_hop: Option<NewNextHop>) -> bool {
        let received = self.path.attrs.next_hop();
        export::next_hop(self.settings, self.source, self.afi, received, next_hop).is_some()
    }

    /// The path with these changes.
    fn changed(&self, changes: &Changes) -> Path {
        let attrs = &self.path.attrs;
        let mut bytes = Vec::new();
        changes.write(attrs.bytes(), &mut bytes);
        Path {
            attrs: AttrSet::new(&bytes, attrs.next_hop()),
            source: self.path.source,
            next_hop: changes.next_hop(),
            keeps_med: changes.med().is_some(),
        }
    }
}

/// How a group gets one path for one prefix, asked for once; `None` when it does not. `says` is given why, in sentences.
pub(super) fn explain<F: Family>(
    settings: &EgressSettings,
    source: &PeerInfo,
    path: &BestPath,
    prefix: Prefix<F>,
    says: &mut Vec<String>,
) -> Option<Path> {
    let judge = Judge { settings, source, afi: F::AFI, path };
    if let Some(why) = export::forbidden(settings, source, F::AFI, &path.attrs) {
        says.push(format!("not sent: {why}"));
        return None;
    }
    let (changes, tried) = settings.export.explain(&judge.route(), prefix.any());
    says.extend(tried);
    let changes = changes?;
    if !judge.can_send(changes.next_hop()) {
        says.push("not sent: there is no next hop of this family that the peer could use".into());
        return None;
    }
    Some(judge.changed(&changes))
}
