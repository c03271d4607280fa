//! A logical shard that moves from one shard to another, so that their number may change while sessions last.
//!
//! Neither side says anything of it to workers or the RIB manager: to them it is the same route, and which shard
//! speaks of it is of no interest. Whoever moves one sees to it that
//!
//! - both shards have handled all routes and session messages that were sent while the giver owned the logical shard,
//!   and the taker gets none for it before it has taken it;
//! - what the giver said goes out before what the taker says from then on, as [`Change::old`](crate::message::Change)
//!   follows from what was said last;
//! - both have handled the same dump requests, or unanswered ones are made again: a request that the taker had handled
//!   before and the giver handles after the move shows nothing of it.

use super::paths::{Path, Route};
use super::{Shard, ShardOut, Table};
use crate::attr::AttrSet;
use crate::message::NextHopState;
use crate::peer::{PeerId, PeerInfo};
use ribtide_prefix::{Families, Family, LogicalShard, PerFamily, Prefix, for_each_family};
use std::net::IpAddr;
use std::sync::Arc;

/// A logical shard on its way: all that its new owner must know to go on as if it had always had it.
#[derive(Debug)]
pub struct Moved {
    logical: LogicalShard,
    /// Sessions that are up.
    sessions: Vec<Arc<PeerInfo>>,
    /// The attribute sets that paths name by index.
    attrs: Vec<AttrSet>,
    /// What was known of their next hops.
    next_hops: Vec<(IpAddr, NextHopState)>,
    /// From the oldest to the newest of each route, route by route.
    paths: Vec<Path>,
    routes: Families<Routes>,
}

/// Prefixes in no order: how many of the paths are each one's, and which of these is best.
#[derive(Debug)]
struct Routes;
impl PerFamily for Routes {
    type Of<F: Family> = Vec<(Prefix<F>, u32, Option<u32>)>;
}

impl Moved {
    /// Which logical shard it is.
    pub fn logical(&self) -> LogicalShard {
        self.logical
    }

    /// How many prefixes it has, of both families.
    pub fn prefixes(&self) -> usize {
        self.routes.v4.len() + self.routes.v6.len()
    }
}

impl Shard {
    /// Gives a logical shard away. Work on its tables that is under way is done first, and said in `out`; the move
    /// itself says no more than which next hops are out of use here.
    pub fn extract(&mut self, logical: LogicalShard, out: &mut ShardOut) -> Moved {
        self.work_on(logical, out);
        let sessions = self.core.peers.iter().flatten().filter(|peer| peer.up);
        let mut moved = Moved {
            logical,
            sessions: sessions.map(|peer| peer.info.clone()).collect(),
            attrs: Vec::new(),
            next_hops: Vec::new(),
            paths: Vec::new(),
            routes: Families::default(),
        };
        for_each_family!(F => {
            let table = std::mem::take(&mut self.tables.get_mut::<F>()[usize::from(logical)]);
            self.give(table, &mut moved);
        });
        self.number_attrs(&mut moved);
        out.next_hops(&mut self.core.attrs.hops.uses);
        moved
    }

    /// Puts the routes of a table into `moved`, for now with the attribute numbers of this shard.
    fn give<F: Family>(&mut self, table: Table<F>, moved: &mut Moved) {
        for (prefix, route) in table {
            let best = self.core.best_of(&route);
            if let Some(best) = best {
                self.core.counts::<F>(best.peer).best -= 1;
            }
            let paths = self.core.paths.paths(&route);
            moved.paths.extend_from_slice(paths);
            let row = (prefix, paths.len() as u32, route.best().map(|best| best as u32));
            moved.routes.get_mut::<F>().push(row);
            for path in &moved.paths[moved.paths.len() - route.len()..] {
                self.core.counts::<F>(path.peer).paths -= 1;
            }
            self.core.paths.clear(route);
        }
    }

    /// Gives the attribute sets in `moved` numbers of their own, and lets go of this shard's.
    fn number_attrs(&mut self, moved: &mut Moved) {
        let mut numbers = ribtide_prefix::Map::<u32, u32>::default();
        let attrs = &mut self.core.attrs;
        for path in &mut moved.paths {
            let here = path.attrs;
            path.attrs = *numbers.entry(here).or_insert_with(|| {
                moved.attrs.push(attrs.get(here).clone());
                moved.next_hops.push(attrs.hop_of(here));
                moved.attrs.len() as u32 - 1
            });
            attrs.release(here);
        }
        moved.next_hops.sort_unstable_by_key(|(addr, _)| *addr);
        moved.next_hops.dedup_by_key(|(addr, _)| *addr);
    }

    /// Takes a logical shard that another gave away. Says which next hops are in use here now, and nothing else
    /// unless this shard knows better: paths of sessions that it knows to be over go at once.
    pub fn adopt(&mut self, moved: Moved, out: &mut ShardOut) {
        let Moved { logical, sessions, attrs, next_hops, paths, mut routes } = moved;
        let mut over: Vec<PeerId> = Vec::new();
        for info in &sessions {
            let here = self.core.peer(info.id).map(|peer| (peer.info.session, peer.up));
            match here {
                Some((session, up)) if session > info.session || (session == info.session && !up) => {
                    over.push(info.id)
                }
                Some((session, _)) if session == info.session => {}
                _ => self.peer_up(info.clone(), out),
            }
        }
        let mut differs = false;
        for (addr, state) in next_hops {
            differs |= !self.core.attrs.hops.learn(addr, state);
        }
        let options = self.core.options;
        let numbers: Vec<u32> = attrs.iter().map(|attrs| self.core.attrs.acquire(attrs, &options)).collect();
        let mut paths = paths.into_iter().map(|path| Path { attrs: numbers[path.attrs as usize], ..path });
        let mut row: Vec<Path> = Vec::new();
        for_each_family!(F => for (prefix, len, best) in std::mem::take(routes.get_mut::<F>()) {
            row.extend(paths.by_ref().take(len as usize));
            self.take(logical, prefix, &mut row, best, &over, out);
        });
        numbers.into_iter().for_each(|number| self.core.attrs.release(number));
        if differs {
            self.work.redecide();
        }
        out.next_hops(&mut self.core.attrs.hops.uses);
    }

    /// A route comes in with its paths, taken out of `row`, but for those of sessions that are over.
    fn take<F: Family>(
        &mut self,
        logical: LogicalShard,
        prefix: Prefix<F>,
        row: &mut Vec<Path>,
        best: Option<u32>,
        over: &[PeerId],
        out: &mut ShardOut,
    ) {
        let core = &mut self.core;
        row.iter().for_each(|path| core.attrs.retain(path.attrs));
        let old = best.map(|best| row[best as usize]);
        let stays = |path: &Path| !over.contains(&path.peer);
        let gone: Vec<Path> = match over {
            [] => Vec::new(),
            _ => row.iter().copied().filter(|path| !stays(path)).collect(),
        };
        row.retain(stays);
        let mut new = None;
        let mut paths = row.drain(..);
        if let Some(first) = paths.next() {
            core.counts::<F>(first.peer).paths += 1;
            let mut route = Route::new(first);
            for path in paths {
                core.counts::<F>(path.peer).paths += 1;
                core.paths.push(&mut route, path);
            }
            match gone.is_empty() {
                true => route.set_best(best.map(|best| best as usize)),
                false => route.set_best(core.decide(&route)),
            }
            new = core.best_of(&route);
            self.tables.get_mut::<F>()[usize::from(logical)].insert(prefix, route);
        }
        core.tell(prefix, old, new, out);
        if let Some(new) = new {
            core.counts::<F>(new.peer).best += 1;
        }
        gone.into_iter().for_each(|path| core.attrs.release(path.attrs));
    }
}
