//! What the members of a group with given settings would be sent. Nothing changes, and no group needs to have them.
//!
//! The code is that of the Adj-RIB-Out ([`super::adj_rib_out`]), which is that of the packer.

use super::adj_rib_out::{Advertised, AdvertisedPath, form};
use super::offers::{Handles, Offers};
use super::ranked::Selector;
use super::view::OWN_DEFAULT_ID;
use super::{Worker, conditional};
use crate::message::{BestPath, RankedBatch};
use crate::peer::{EgressSettings, PeerId};
use ribtide_prefix::{BgpFamily, Prefix};

impl Worker {
    /// The form in which members with these settings get each of these best paths, the source of the path not among the
    /// members; `None` inside: they do not get it. Conditions hold as at present. O(prefixes).
    pub fn trial<F: BgpFamily>(
        &mut self,
        settings: &EgressSettings,
        page: &[(Prefix<F>, BestPath)],
    ) -> Vec<Option<Advertised>> {
        let settings = settings.resolve(&self.presence);
        let own = self.default_by::<F>(&settings).map(|path| path.form);
        let Worker { peers, paths, .. } = self;
        let best: Vec<BestPath> = page.iter().map(|(_, best)| best.clone()).collect();
        let mut handles = Handles::new(best.len());
        let mut sent = Vec::with_capacity(page.len());
        {
            let mut offers = Offers::new(&settings, peers, F::ID, &best, &mut handles);
            for (at, (prefix, _)) in (0..).zip(page) {
                if prefix.len() == 0 && own.is_some() {
                    sent.push(own.clone());
                    continue;
                }
                let handle = offers.handle(at, *prefix, paths);
                let gets = paths.get(handle);
                sent.push(gets.and_then(|path| form(&settings, peers.get(&path.source)?, path, *prefix)));
            }
        }
        handles.release(paths);
        sent
    }

    /// The same of ranked paths, for members that select among these: for each change of `page` the sent paths with their
    /// sources, by identifier. O(paths).
    pub fn trial_ranked<F: BgpFamily>(
        &mut self,
        settings: &EgressSettings,
        page: &RankedBatch,
    ) -> Vec<Vec<(PeerId, AdvertisedPath)>> {
        let settings = settings.resolve(&self.presence);
        let own = self.default_by::<F>(&settings);
        let Worker { peers, paths, .. } = self;
        let selector = Selector::new::<F>(&settings, &page.paths);
        let mut handles = Handles::new(page.paths.len());
        let mut sent = Vec::with_capacity(page.changes.get::<F>().len());
        {
            let mut offers = Offers::new(&settings, peers, F::ID, &page.paths, &mut handles);
            for change in page.changes.get::<F>() {
                let (prefix, (_, ranked)) = (change.prefix, page.of(change));
                if prefix.len() == 0
                    && let (Some(own), Some(default)) = (&own, &settings.default_originate)
                {
                    sent.push(vec![(default.source, own.clone())]);
                    continue;
                }
                let selected = selector.select(ranked, prefix, &mut offers);
                let advertised = selected.into_iter().filter_map(|one| {
                    let handle = offers.handle(one.path, prefix, paths);
                    let path = paths.get(handle)?;
                    let form = form(&settings, peers.get(&path.source)?, path, prefix)?;
                    Some((path.source, AdvertisedPath { id: selector.id(one), form }))
                });
                sent.push(advertised.collect());
            }
        }
        handles.release(paths);
        sent
    }

    /// The default route of members with these resolved settings, in place of any of BGP (`default-originate`).
    pub(super) fn default_by<F: BgpFamily>(&self, settings: &EgressSettings) -> Option<AdvertisedPath> {
        let path = conditional::default_path::<F>(settings, &self.peers)?;
        let form = form(settings, self.peers.get(&path.source)?, &path, Prefix::<F>::default_route())?;
        Some(AdvertisedPath { id: settings.add_path.of(F::ID).map(|_| OWN_DEFAULT_ID), form })
    }
}
