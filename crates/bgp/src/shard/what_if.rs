//! The best path that a prefix would have with other paths or other options. Nothing changes.
//!
//! `ribtide check --diff` asks for it. Paths of a peer are replaced by those that its new import policy makes of them,
//! and the decision process runs as for a real change.

use super::Shard;
use crate::attr::AttrSet;
use crate::decision::{self, Candidate, DecisionOptions, Rank};
use crate::message::{BestPath, RankedBatch, RankedChange, RankedPath};
use crate::peer::{PeerId, PeerInfo};
use ribtide_prefix::{BgpFamily, Prefix};
use std::sync::Arc;

/// A path of a peer in the place of the one that it has, or of none.
#[derive(Clone, Debug)]
pub struct PathOverride {
    /// The peer, as in its present session.
    pub peer: Arc<PeerInfo>,
    /// The path identifier that the peer sent; 0 without one (RFC 7911).
    pub path_id: u32,
    /// Its attributes; `None`: the peer has no such path.
    pub attrs: Option<AttrSet>,
}

/// What egress workers would have of a prefix.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// The best path.
    pub best: Option<BestPath>,
    /// All usable paths from the best on, for peers that select among them.
    pub ranked: RankedBatch,
}

/// A path in question.
struct Row<'a> {
    candidate: Candidate<'a>,
    attrs: &'a AttrSet,
    source: PeerId,
    /// Its identifier for peers.
    id: u32,
}

impl Shard {
    /// What workers would have of a prefix with these paths of peers and these options. FIB suppression, which delays a
    /// change and does not prevent it, is left out of account. A next hop that no path has counts as reachable at cost 0.
    pub fn what_if<F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        overrides: &[PathOverride],
        options: &DecisionOptions,
    ) -> WhatIf {
        let core = &self.core;
        let mut used = vec![false; overrides.len()];
        let mut rows: Vec<Row<'_>> = Vec::new();
        let paths = self.find(prefix).map(|route| route.paths(&core.paths)).unwrap_or_default();
        for path in paths {
            let session = core.sessions.get(path.session);
            let (peer, path_id) = (&*session.info, core.attrs.path_id(path.attrs));
            let present = core.attrs.get(path.attrs);
            let replaced = overrides.iter().position(|o| o.peer.id == peer.id && o.path_id == path_id);
            let attrs = match replaced {
                None => present,
                Some(at) => {
                    used[at] = true;
                    let Some(attrs) = &overrides[at].attrs else { continue };
                    attrs
                }
            };
            let same_hop = attrs.next_hop() == present.next_hop();
            let cost = match same_hop {
                true => core.cost(*path),
                false => self.cost_to(attrs, prefix, peer),
            };
            let rank = match core.is_originated(*path) {
                true => Rank::ORIGINATED,
                false => rank(attrs, peer, options),
            };
            let candidate = Candidate { rank, peer, cost, path_id };
            rows.push(Row { candidate, attrs, source: peer.id, id: core.sent_id_of(peer.id.0, path_id, 0) });
        }
        for (new, _) in overrides.iter().zip(used).filter(|(_, used)| !used) {
            let Some(attrs) = &new.attrs else { continue };
            let PathOverride { peer, path_id, .. } = new;
            let (rank, cost) = (rank(attrs, peer, options), self.cost_to(attrs, prefix, peer));
            let candidate = Candidate { rank, peer, cost, path_id: *path_id };
            rows.push(Row { candidate, attrs, source: peer.id, id: core.sent_id_of(peer.id.0, *path_id, 0) });
        }
        let suppressed = core.is_suppressed(prefix);
        let candidates: Vec<Candidate<'_>> = rows.iter().map(|row| row.candidate).collect();
        let path = |row: &Row<'_>| BestPath { attrs: row.attrs.clone(), source: row.source, suppressed };
        let mut ranked = RankedBatch::default();
        // Lists of ranked paths have no suppressed route.
        let listed: &[Candidate<'_>] = if suppressed { &[] } else { &candidates[..] };
        for (place, one) in (0..).zip(decision::ranked(listed, options)) {
            ranked.paths.push(path(&rows[one.index]));
            ranked.ranked.push(RankedPath { path: place, id: rows[one.index].id, equal: one.equal });
        }
        let new = ranked.ranked.len() as u32;
        ranked.changes.get_mut::<F>().push(RankedChange { prefix, start: 0, old: 0, new });
        WhatIf { best: decision::best(&candidates[..], options).map(|best| path(&rows[best])), ranked }
    }

    /// Interior cost to the next hop of a path that the shard does not have.
    fn cost_to<F: BgpFamily>(
        &self,
        attrs: &AttrSet,
        prefix: Prefix<F>,
        peer: &PeerInfo,
    ) -> Result<u32, decision::Reason> {
        let address = attrs.next_hop().addr();
        let recursive = peer.feed_kind().recursive;
        self.core.attrs.hops.cost_of_other(address, prefix.any(), recursive).unwrap_or(Ok(0))
    }
}

/// The rank of a path from a peer.
fn rank(attrs: &AttrSet, peer: &PeerInfo, options: &DecisionOptions) -> Rank {
    let rank = Rank::new(attrs, options);
    if attrs.llgr_stale() && peer.long_lived { rank.long_lived_stale() } else { rank }
}
