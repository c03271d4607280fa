//! What a group gets by some settings: paths of a batch, a selection among ranked ones, and its own default route in place of
//! any.

use super::conditional::default_handle;
use super::group::{Group, Peers};
use super::offers::{Handles, Offers};
use super::paths::{Handle, Paths};
use super::pending::AdvertisedSource;
use super::ranked::{Selected, Selector};
use crate::message::{BestPath, NONE, RankedPath};
use crate::peer::EgressSettings;
use ribtide_prefix::{BgpFamily, Prefix};
use smallvec::smallvec;

/// The identifier of a group's own default route. That of a path has the number of its peer in its upper half, from 1 on.
pub(super) const OWN_DEFAULT_ID: u32 = 1;

/// The paths of a batch as a group gets them.
pub(super) struct View<'a> {
    offers: Offers<'a>,
    pub(super) selector: Selector<'a>,
    /// Its own default route; [`NONE`] without one.
    default: Handle,
    default_source: AdvertisedSource,
}

impl<'a> View<'a> {
    /// `offers` are those of `batch` by these settings, and `default` is their [default route](default_handle).
    pub(super) fn new<F: BgpFamily>(
        settings: &EgressSettings,
        batch: &'a [BestPath],
        offers: Offers<'a>,
        default: Handle,
        paths: &Paths,
    ) -> View<'a> {
        let source = paths.source(default);
        let default_source = source.map_or(AdvertisedSource::NOTHING, AdvertisedSource::from);
        View { offers, selector: Selector::new::<F>(settings, batch), default, default_source }
    }

    pub(super) fn has_default<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.default != NONE && prefix.len() == 0
    }

    /// The source of this path, if the group gets it for this prefix.
    pub(super) fn source<F: BgpFamily>(&mut self, path: u32, prefix: Prefix<F>) -> AdvertisedSource {
        match self.has_default(prefix) {
            true => self.default_source,
            false => self.offers.source(path, prefix),
        }
    }

    /// This path in the group's form for this prefix; [`NONE`] if the group does not get it.
    pub(super) fn handle<F: BgpFamily>(&mut self, path: u32, prefix: Prefix<F>, paths: &mut Paths) -> Handle {
        match self.has_default(prefix) {
            true => self.default,
            false => self.offers.handle(path, prefix, paths),
        }
    }

    /// The selected ones of `ranked`, in the order of their identifiers. The group's own default route is a selection of one path
    /// without an index.
    pub(super) fn select<F: BgpFamily>(&mut self, ranked: &[RankedPath], prefix: Prefix<F>) -> Selected {
        if self.has_default(prefix) {
            let id = self.selector.key_id(OWN_DEFAULT_ID);
            return smallvec![RankedPath { path: NONE, id, equal: false }];
        }
        self.selector.select(ranked, prefix, &mut self.offers)
    }
}

/// Calls `work` for a group, with its views of a batch by its settings, and by the former ones in a transition. `offers` are those
/// of its settings.
pub(super) fn with_views<F: BgpFamily>(
    group: &mut Group,
    offers: Offers<'_>,
    peers: &Peers,
    batch: &[BestPath],
    paths: &mut Paths,
    work: impl for<'v> FnOnce(&mut Group, &mut View<'v>, Option<&mut View<'v>>, &mut Paths),
) {
    let settings = group.settings.clone();
    let default = default_handle::<F>(&settings, peers, paths);
    match group.former_settings() {
        None => {
            let mut now = View::new::<F>(&settings, batch, offers, default, paths);
            work(group, &mut now, None, paths);
        }
        Some(former) => {
            let of_former = default_handle::<F>(&former, peers, paths);
            let mut handles = Handles::new(batch.len());
            let mut now = View::new::<F>(&settings, batch, offers, default, paths);
            let offers = Offers::new(&former, peers, F::ID, batch, &mut handles);
            let mut view = View::new::<F>(&former, batch, offers, of_former, paths);
            work(group, &mut now, Some(&mut view), paths);
            drop((now, view));
            handles.release(paths);
            paths.release(of_former);
        }
    }
    paths.release(default);
}
