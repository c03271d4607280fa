//! The Adj-RIBs-Out for monitoring stations (BMP, RFC 8671), packed from best paths when a station asks for them.
//!
//! Nothing stores what a member was sent. It is what policies and rules make of the best paths, or of the ranked ones,
//! but for what is pending. So a page is packed as for members, at once and without what is pending: that is packed
//! later, or never, where a route was withdrawn before it was sent. A member whose table is incomplete is left out,
//! because it is sent all of it. So the messages of pages and those to members, in the order in which the worker packs
//! them, leave what the members have.

use super::conditional::default_handle;
use super::group::{Group, Peers};
use super::offers::{Handles, Offers};
use super::pack::Packer;
use super::paths::{Handle, Paths};
use super::pending::Key;
use super::view::View;
use super::{Worker, Write};
use crate::message::{BestBatch, NONE, RankedBatch};
use ribtide_prefix::{BgpFamily, Prefix, for_each_bgp_family};
use ribtide_wire::bgp::nlri::PathPrefix;

/// The messages of one [`EgressIn::Mirror`](crate::message::EgressIn::Mirror), for all members of all groups.
#[derive(Debug)]
pub struct Mirrored {
    /// The token of the page.
    pub token: u64,
    /// What members were sent of these prefixes.
    pub writes: Vec<Write>,
}

impl Worker {
    /// The messages for stations since the last call.
    pub fn take_mirrored(&mut self) -> Vec<Mirrored> {
        std::mem::take(&mut self.mirrored)
    }

    pub(super) fn mirror(&mut self, token: u64, batch: &BestBatch, ranked: &RankedBatch) {
        let mut writes = Vec::new();
        let Worker { groups, peers, paths, .. } = self;
        for group in groups.values() {
            let settings = group.settings.clone();
            let takes_ranked = |family| settings.takes_ranked(family);
            let mut handles = Handles::new(batch.paths.len());
            let mut of_former = Handles::new(batch.paths.len());
            for_each_bgp_family!(F => match (settings.families.has(F::ID), takes_ranked(F::ID)) {
                (false, _) => {}
                (true, false) => {
                    let mut offers = Offers::new(&settings, peers, F::ID, &batch.paths, &mut handles);
                    let mut items: Vec<(Handle, Prefix<F>)> = Vec::new();
                    // While presence changes, some prefixes are advertised by the former settings.
                    let former = group.former_settings();
                    let mut by_former = former
                        .as_deref()
                        .map(|by| Offers::new(by, peers, F::ID, &batch.paths, &mut of_former));
                    // The group's own default route is on every page, because it is in no table of a shard.
                    let is_former = group.is_former(Prefix::<F>::default_route());
                    let by = former.as_deref().filter(|_| is_former).unwrap_or(&settings);
                    let default = default_handle::<F>(by, peers, paths);
                    let is_own = |prefix: Prefix<F>| default != NONE && prefix.len() == 0;
                    for change in batch.changes.get::<F>().iter().filter(|change| !is_own(change.prefix)) {
                        let by = match &mut by_former {
                            Some(former) if group.is_former(change.prefix) => former,
                            _ => &mut offers,
                        };
                        items.push((by.handle(change.new, change.prefix, paths), change.prefix));
                    }
                    items.extend((default != NONE).then(|| (default, Prefix::default_route())));
                    pack(group, peers, items, paths, &mut writes);
                    if default != NONE {
                        paths.release(default);
                    }
                }
                (true, true) => match settings.add_path.of(F::ID) {
                    Some(_) => mirror_ranked::<F, PathPrefix<F>>(group, peers, ranked, paths, &mut writes),
                    None => mirror_ranked::<F, Prefix<F>>(group, peers, ranked, paths, &mut writes),
                },
            });
            handles.release(paths);
            of_former.release(paths);
        }
        self.mirrored.push(Mirrored { token, writes });
    }
}

/// Packs a page of ranked paths for a group that takes these.
fn mirror_ranked<F: BgpFamily, K: Key<Family = F>>(
    group: &Group,
    peers: &Peers,
    ranked: &RankedBatch,
    paths: &mut Paths,
    writes: &mut Vec<Write>,
) {
    let (settings, batch) = (&group.settings, &ranked.paths[..]);
    let former = group.former_settings();
    let is_former = group.is_former(Prefix::<F>::default_route());
    let by = former.as_deref().filter(|_| is_former).unwrap_or(settings);
    let own = default_handle::<F>(by, peers, paths);
    let default = default_handle::<F>(settings, peers, paths);
    let (mut handles, mut of_former) = (Handles::new(batch.len()), Handles::new(batch.len()));
    let offers = Offers::new(settings, peers, F::ID, batch, &mut handles);
    let mut now = View::new::<F>(settings, batch, offers, default, paths);
    let mut view = former.as_deref().map(|by| {
        let offers = Offers::new(by, peers, F::ID, batch, &mut of_former);
        View::new::<F>(by, batch, offers, own, paths)
    });
    let mut items = group.page_ranked::<F, K>(ranked, &mut now, view.as_mut(), paths);
    items.extend((own != NONE).then(|| (own, group.own_default_key::<F, _>())));
    pack(group, peers, items, paths, writes);
    drop((now, view));
    handles.release(paths);
    of_former.release(paths);
    paths.release(own);
    paths.release(default);
}

/// Packs what is not pending, for each cohort of a group.
fn pack<K: Key>(
    group: &Group,
    peers: &Peers,
    mut items: Vec<(Handle, K)>,
    paths: &Paths,
    writes: &mut Vec<Write>,
) {
    // Routes with one path share messages.
    items.retain(|(handle, _)| *handle != NONE);
    items.sort_unstable();
    for cohort in group.cohorts() {
        let queue = cohort.queue::<K>();
        let settled: Vec<(Handle, K)> =
            items.iter().filter(|(_, key)| queue.is_settled(*key)).copied().collect();
        let mut packer = Packer::new(&group.settings, peers, cohort.members().clone());
        for run in settled.chunk_by(|a, b| a.0 == b.0) {
            if let Some((path, _)) = run.first() {
                packer.announce(*path, run, paths);
            }
        }
        writes.extend(packer.finish().map(|closed| closed.write));
    }
}
