//! Route refreshes whose begin and end a peer marks (RFC 7313), for sessions whose reader keeps routes or counts prefixes: what
//! the peer has not sent again by the end leaves the reader too. Without either, shards do all.

use super::max_prefixes::Admission;
use super::{Ingest, IngestPeer, SessionNlri, ShardBatches};
use ribtide_prefix::{
    AfiSafi, BgpFamilies, BgpFamily, Prefix, Set, any_bgp_family, for_each_bgp_family, per_bgp_family,
};
use ribtide_wire::bgp::nlri::PathPrefix;
use ribtide_wire::bgp::update::Update;

per_bgp_family! {
    /// Prefixes announced since the begin of a refresh; path identifiers are 0 without one. `None`:
    /// no refresh is under way, or shards do all.
    #[derive(Debug)]
    pub(super) struct Refreshed<F> = Option<Set<PathPrefix<F>>>;
}

/// Whether any refresh is under way.
#[inline]
pub(super) fn any(refreshed: &BgpFamilies<Refreshed>) -> bool {
    any_bgp_family!(F => refreshed.get::<F>().is_some())
}

/// Notes what an UPDATE announces, and forgets what it withdraws.
#[cold]
#[inline(never)]
pub(super) fn note<N: SessionNlri>(refreshed: &mut BgpFamilies<Refreshed>, update: &Update<'_>) {
    let Some(notes) = refreshed.get_mut::<N::Family>() else { return };
    let item = |route: N| PathPrefix { prefix: route.prefix(), path_id: route.path_id() };
    for route in update.withdrawn_nlri::<N>() {
        notes.remove(&item(route));
    }
    notes.extend(update.announced_nlri::<N>().map(item));
}

impl IngestPeer {
    /// The peer begins to send its routes of a family again.
    pub fn begin_refresh(&mut self, family: AfiSafi) {
        for_each_bgp_family!(F => if F::ID == family && (self.received.is_some() || self.accepted.get::<F>().is_some()) {
            *self.refreshed.get_mut::<F>() = Some(Set::default());
        });
    }
}

impl Ingest {
    /// The peer has sent its routes of a family again: appends withdrawals of those that it has left out, where the reader knows
    /// them.
    pub fn end_refresh(&mut self, peer: &mut IngestPeer, family: AfiSafi, out: &mut ShardBatches) {
        for_each_bgp_family!(F => if F::ID == family {
            match peer.info.path_ids.has(family) {
                false => end::<Prefix<F>>(peer, out),
                true => end::<PathPrefix<F>>(peer, out),
            }
        });
    }
}

fn end<N: SessionNlri>(peer: &mut IngestPeer, out: &mut ShardBatches) {
    let IngestPeer { info, accepted, received, refreshed, .. } = peer;
    let Some(notes) = refreshed.get_mut::<N::Family>().take() else { return };
    let is_gone =
        |route: &N| !notes.contains(&PathPrefix { prefix: route.prefix(), path_id: route.path_id() });
    let mut accepted = accepted.get_mut::<N::Family>().as_mut();
    let mut gone: Vec<N> = Vec::new();
    if let Some(accepted) = &mut accepted {
        gone.extend(N::accepted(accepted).iter().copied().filter(is_gone));
    }
    if let Some(received) = received {
        let kept: Vec<N> =
            N::kept(received).sorted().iter().map(|(route, _)| route).filter(is_gone).collect();
        N::kept(received).extend_each(None, kept.iter().copied());
        gone.extend(kept);
    }
    gone.sort_unstable();
    gone.dedup();
    Admission::<N> { info, accepted, out }.withdraw_all(gone);
}
