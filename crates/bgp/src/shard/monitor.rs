//! Pages of all routes of a shard, for monitoring stations (BMP).
//!
//! A page is the state between two messages. Its receiver gets it on the queue of the shard's later changes, after
//! those before it. So a receiver that takes both in order never replaces a newer state of a prefix by an older one.

use super::effects::{Marked, Others, index};
use super::paths::Path;
use super::ranked::RankedPart;
use super::watches::Sight;
use super::{Core, Removed, Shard};
use crate::attr::AttrSet;
use crate::message::{BestBatch, Change, NONE, Prefixes, RankedBatch, RouteOp, UpdateBatch};
use crate::peer::{PeerId, PeerInfo};
use ribtide_prefix::{BgpFamilies, BgpFamily, LOGICAL_SHARDS, LogicalShard, Prefix, for_each_bgp_family};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a page contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageViews {
    /// The paths that import policies accepted, of sessions that last.
    pub accepted: bool,
    /// The advertised best paths as workers have them: without those that an aggregate suppresses for all peers.
    pub best: bool,
    /// The Loc-RIB: the advertised best paths, suppressed ones too.
    pub loc_rib: bool,
    /// The ranked paths that workers know. The caller sends what is due of them before
    /// ([`Shard::send_ranked`]).
    pub ranked: bool,
}

/// A prefix and its paths.
pub type PrefixPaths<F> = (Prefix<F>, Vec<StoredPath>);

/// A path after import policy.
#[derive(Clone, Debug)]
pub struct StoredPath {
    /// The session that announced it.
    pub peer: Arc<PeerInfo>,
    /// Its path identifier, in a session that has them (RFC 7911).
    pub path_id: Option<u32>,
    /// Its attributes.
    pub attrs: AttrSet,
}

/// A page of one logical shard and family.
#[derive(Debug, Default)]
pub struct MonitorPage {
    /// Paths as their sessions announced them, after import policy.
    pub accepted: Vec<UpdateBatch>,
    /// Best paths; `old` is always [`NONE`].
    pub best: BestBatch,
    /// The Loc-RIB in the same form; `None`: it is `best`, because nothing is suppressed.
    pub loc_rib: Option<BestBatch>,
    /// Ranked paths, without former ones.
    pub ranked: RankedBatch,
    /// The hash to continue from; `None`: this was the last page.
    pub next: Option<u32>,
}

impl Shard {
    /// The routes of a logical shard from the hash `from` on, about `budget` slots of its table. Also the prefixes of
    /// another shard's part of it are none of this page's.
    pub fn monitor_page<F: BgpFamily>(
        &mut self,
        logical: LogicalShard,
        from: u32,
        mut budget: usize,
        views: PageViews,
    ) -> MonitorPage {
        let mut accepted: BTreeMap<(u16, u32), Vec<Prefix<F>>> = BTreeMap::new();
        let (mut best, mut loc_rib) = (BestPart::default(), BestPart::default());
        let suppresses = self.core.watches.is_some();
        let wants_best = views.best || (views.loc_rib && !suppresses);
        let mut ranked = RankedPart::default();
        let table = &mut self.tables.get_mut::<F>()[usize::from(logical % LOGICAL_SHARDS)];
        let next = table.walk(from, &mut budget, &mut self.core, Core::prefetch_best, |core, route| {
            if views.accepted {
                let paths = route.paths(&core.paths).iter();
                for path in paths.filter(|path| core.sessions.get(path.session).is_monitored()) {
                    accepted.entry((path.session, path.attrs)).or_default().push(route.prefix());
                }
            }
            let advertised = if wants_best || views.loc_rib { core.advertised(route) } else { None };
            if let Some(path) = advertised {
                let sight = core.sight(route.prefix());
                if wants_best && sight != Sight::Hidden {
                    best.add(core, route.prefix(), path, sight == Sight::Marked);
                }
                if views.loc_rib && suppresses {
                    loc_rib.add(core, route.prefix(), path, false);
                }
            }
            if views.ranked {
                core.page_list(route, &mut ranked);
            }
            true
        });
        let accepted = self.core.batches_of(accepted);
        let loc_rib = (views.loc_rib && suppresses).then_some(loc_rib.batch);
        MonitorPage { accepted, best: best.batch, loc_rib, ranked: ranked.batch, next }
    }

    /// The paths of a logical shard from the hash `from` on, about `budget` slots of its table, and the hash to
    /// continue from; `None`: this was the last page.
    pub fn paths_page<F: BgpFamily>(
        &mut self,
        logical: LogicalShard,
        from: u32,
        mut budget: usize,
    ) -> (Vec<PrefixPaths<F>>, Option<u32>) {
        let mut page = Vec::new();
        let table = &mut self.tables.get_mut::<F>()[usize::from(logical % LOGICAL_SHARDS)];
        let next = table.walk(from, &mut budget, &mut self.core, Core::prefetch_best, |core, route| {
            let path = |path: &Path| {
                let session = core.sessions.get(path.session);
                // Of the others, paths are left that are being removed.
                session.keeps::<F>().then(|| StoredPath {
                    peer: session.info.clone(),
                    path_id: core.sessions.path_id::<F>(path.session, core.attrs.path_id(path.attrs)),
                    attrs: core.attrs.get(path.attrs).clone(),
                })
            };
            let paths: Vec<StoredPath> = route.paths(&core.paths).iter().filter_map(path).collect();
            if !paths.is_empty() {
                page.push((route.prefix(), paths));
            }
            true
        });
        (page, next)
    }

    /// The sessions whose paths it has or may get, those of retained paths and of originated ones too.
    pub fn sources(&self) -> Vec<Arc<PeerInfo>> {
        self.core.sessions.iter().filter(|(_, s)| s.up).map(|(_, session)| session.info.clone()).collect()
    }

    /// Whether this is the lasting session of a neighbour, whose routes stations get.
    pub fn is_monitored(&self, peer: PeerId, session: u32) -> bool {
        let number = self.core.sessions.number(peer, session);
        number.is_some_and(|number| self.core.sessions.get(number).is_monitored())
    }
}

/// A page of best paths.
#[derive(Default)]
struct BestPart {
    batch: BestBatch,
    others: Others,
}

impl BestPart {
    fn add<F: BgpFamily>(&mut self, core: &mut Core, prefix: Prefix<F>, path: Path, suppressed: bool) {
        let source = core.sessions.get(path.session).info.id;
        let (attrs, noted) = core.attrs.in_batch(path.attrs);
        let new = index(&mut self.others, &mut self.batch.paths, attrs, Marked { source, suppressed }, noted);
        self.batch.changes.get_mut::<F>().push(Change { prefix, old: NONE, new });
    }
}

/// Removed paths as withdrawals of their sessions, in order.
pub fn withdrawals(removed: &[Removed]) -> Vec<UpdateBatch> {
    let same = |a: &Removed, b: &Removed| (a.peer, a.session) == (b.peer, b.session);
    let batch = |run: &[Removed]| {
        let first = run.first()?;
        let op =
            |path: &Removed| RouteOp { attrs: None, path_id: path.path_id, family: path.family, count: 1 };
        let mut prefixes = BgpFamilies::<Prefixes>::default();
        for_each_bgp_family!(F => {
            let of_family = run.iter().filter(|path| path.family == F::ID);
            prefixes.get_mut::<F>().extend(of_family.filter_map(|path| Prefix::<F>::from_any(path.prefix)));
        });
        Some(UpdateBatch {
            peer: first.peer,
            session: first.session,
            ops: run.iter().map(op).collect(),
            prefixes,
        })
    };
    removed.chunk_by(same).filter_map(batch).collect()
}

impl Core {
    /// A batch of each session.
    fn batches_of<F: BgpFamily>(&self, routes: BTreeMap<(u16, u32), Vec<Prefix<F>>>) -> Vec<UpdateBatch> {
        let mut batches: Vec<UpdateBatch> = Vec::new();
        for ((session, number), mut prefixes) in routes {
            let info = &self.sessions.get(session).info;
            let (attrs, path_id) = (self.attrs.get(number).clone(), self.attrs.path_id(number));
            let op = RouteOp { attrs: Some(attrs), path_id, family: F::ID, count: prefixes.len() as u32 };
            match batches.last_mut().filter(|batch| (batch.peer, batch.session) == (info.id, info.session)) {
                Some(batch) => {
                    batch.ops.push(op);
                    batch.prefixes.get_mut::<F>().append(&mut prefixes);
                }
                None => {
                    let mut families = BgpFamilies::default();
                    *families.get_mut::<F>() = prefixes;
                    let (peer, session) = (info.id, info.session);
                    batches.push(UpdateBatch { peer, session, ops: vec![op], prefixes: families });
                }
            }
        }
        batches
    }
}
