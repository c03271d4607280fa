//! The routes of a session and family before import policy: a log of changes, and a sorted map of older ones.
//!
//! While a table comes, an UPDATE costs one copy of its NLRI and one handle of its attributes. Few ever look: a change
//! of payloads reads the log once and takes out the routes that it concerns, and a view in order moves the log to the
//! map. So a log is not sorted, and a route takes its bytes on the wire and its share of a handle.
//!
//! The log is bounded: where too much of it is of the past, its oldest part moves to the map, twice as fast as it grows.

use crate::attr::AttrSet;
use ribtide_prefix::{Bits, Map, SortedMap};
use ribtide_wire::bgp::nlri::{Nlri, Nlris};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

/// Bytes of a full chunk. Tests have small ones, so that short histories fill several.
const CHUNK: usize = if cfg!(test) { 160 } else { 1 << 15 };
/// Chunks that move to the map when one was filled.
const MOVED_AT_ONCE: usize = 2;
/// How many times as large as the log the map may be at least, once routes have moved there.
const MAP_TO_LOG: usize = 16;
/// A sample has one in so many routes.
const SAMPLED: u64 = if cfg!(test) { 1 } else { 64 };

/// The routes of a session and family, with their attributes as received.
#[derive(Debug)]
pub(super) struct KeptRoutes<N> {
    /// What the log had before its oldest change, and perhaps some of its changes.
    map: SortedMap<N, AttrSet>,
    /// The changes, the oldest first; only the last chunk grows.
    log: VecDeque<Chunk>,
    /// The number of chunks at which the log moves to the map, or gets another limit.
    limit: usize,
    /// Whether the log moves to the map.
    is_moving: bool,
    /// The place of [`KeptRoutes::scan`] in the log: the number of the chunk, and of its run.
    scanned: (usize, usize),
}

/// Successive changes.
#[derive(Debug, Default)]
struct Chunk {
    runs: Vec<Run>,
    nlri: Vec<u8>,
}

/// The routes of an UPDATE.
#[derive(Debug)]
struct Run {
    /// `None`: they were withdrawn.
    attrs: Option<AttrSet>,
    /// Where their NLRI end.
    end: u32,
}

impl<N> Default for KeptRoutes<N> {
    fn default() -> Self {
        KeptRoutes {
            map: SortedMap::default(),
            log: VecDeque::new(),
            limit: 1,
            is_moving: false,
            scanned: (0, 0),
        }
    }
}

impl<N: Nlri + Ord + Hash> KeptRoutes<N> {
    /// Adds the routes of an UPDATE, whose fields are well formed. `None`: they were withdrawn.
    #[inline]
    pub(super) fn extend(&mut self, attrs: Option<AttrSet>, routes: &Nlris<'_, N>) {
        self.push(attrs, |nlri| routes.fields().iter().for_each(|field| nlri.extend_from_slice(field)));
    }

    /// Adds routes one by one.
    pub(super) fn extend_each(&mut self, attrs: Option<AttrSet>, routes: impl Iterator<Item = N>) {
        self.push(attrs, |nlri| routes.for_each(|route| route.encode(nlri)));
    }

    #[inline]
    fn push(&mut self, attrs: Option<AttrSet>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.log.back().is_none_or(Chunk::is_full) {
            self.begin_chunk();
        }
        let Some(chunk) = self.log.back_mut() else { return };
        let before = chunk.nlri.len();
        write(&mut chunk.nlri);
        if chunk.nlri.len() > before {
            // A run for each UPDATE: what was scanned does not change.
            chunk.runs.push(Run { attrs, end: chunk.nlri.len() as u32 });
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_chunk(&mut self) {
        if let Some(full) = self.log.back_mut() {
            full.shrink_to_fit();
        }
        if !self.is_moving && self.log.len() >= self.limit {
            // Next to a map that is larger, the log stays small.
            if self.map_size() < self.log.len() * CHUNK && self.is_mostly_present() {
                self.limit *= 2;
            } else {
                self.is_moving = true;
            }
        }
        // As large as the last one, so that it is not copied while it grows.
        let chunk = self.log.back().map_or_else(Chunk::default, Chunk::room_like);
        if self.is_moving {
            (0..MOVED_AT_ONCE).for_each(|_| self.move_chunk());
        }
        self.log.push_back(chunk);
    }

    /// Bytes of the map.
    fn map_size(&self) -> usize {
        self.map.entries() * size_of::<(N, Option<AttrSet>)>()
    }

    /// Whether at most a quarter of the changes is of the past, judged by a sample.
    fn is_mostly_present(&self) -> bool {
        let (mut changes, mut sample): (usize, Map<N, bool>) = (0, Map::default());
        // An odd number that no peer knows, so that none chooses what the sample has.
        let factor = sample.hasher().hash_one(0_u8) | 1;
        for chunk in &self.log {
            chunk.for_each(0, |attrs, route: N| {
                let bits = route.prefix().bits().left();
                let hash = ((bits >> 64) as u64 ^ bits as u64).wrapping_mul(factor);
                if (hash >> 56).is_multiple_of(SAMPLED) {
                    changes += 1;
                    sample.insert(route, attrs.is_some());
                }
            });
        }
        let present = sample.values().filter(|is_present| **is_present).count();
        present * 4 >= changes * 3
    }

    /// Moves the oldest chunk to the map.
    fn move_chunk(&mut self) {
        let KeptRoutes { map, log, .. } = self;
        if let Some(chunk) = log.pop_front() {
            chunk.for_each(0, |attrs, route| put(map, route, attrs));
        }
        // The map may have had later changes of these routes, from a scan.
        self.scanned = (0, 0);
        if self.log.is_empty() {
            self.is_moving = false;
            self.limit = (self.map_size() / MAP_TO_LOG / CHUNK).max(1);
        }
    }

    /// All routes, in order. O(changes in the log).
    pub(super) fn sorted(&mut self) -> &mut SortedMap<N, AttrSet> {
        while !self.log.is_empty() {
            self.move_chunk();
        }
        &mut self.map
    }

    /// Begins another scan.
    pub(super) fn begin_scan(&mut self) {
        self.scanned = (0, 0);
    }

    /// Looks for routes with `is_wanted` in what the log has since the last call, and brings them up to date in the map.
    /// Each chunk takes `cost` of `budget`; returns whether it was enough, so that [`KeptRoutes::scanned`] may be read.
    pub(super) fn scan(&mut self, is_wanted: impl Fn(N) -> bool, cost: usize, budget: &mut usize) -> bool {
        let KeptRoutes { map, log, scanned, .. } = self;
        while let Some(chunk) = log.get(scanned.0) {
            if scanned.1 < chunk.runs.len() {
                if *budget == 0 {
                    return false;
                }
                *budget = budget.saturating_sub(cost);
                chunk.for_each(scanned.1, |attrs, route| {
                    if is_wanted(route) {
                        put(map, route, attrs);
                    }
                });
                scanned.1 = chunk.runs.len();
            }
            // The last chunk grows.
            if scanned.0 + 1 == log.len() {
                break;
            }
            *scanned = (scanned.0 + 1, 0);
        }
        true
    }

    /// Moves all changes to the map. Each chunk takes `cost` of `budget`; returns whether it was enough, so that
    /// [`KeptRoutes::scanned`] may be read.
    pub(super) fn scan_all(&mut self, cost: usize, budget: &mut usize) -> bool {
        while !self.log.is_empty() && *budget > 0 {
            *budget = budget.saturating_sub(cost);
            self.move_chunk();
        }
        self.log.is_empty()
    }

    /// The routes that a complete scan wanted are as they are now; others may be missing, or of the past.
    pub(super) fn scanned(&mut self) -> &mut SortedMap<N, AttrSet> {
        &mut self.map
    }

    /// The number of routes, as if each change were of another, and NLRI had their usual length.
    pub(super) fn estimate(&self) -> usize {
        self.map.entries() + self.log.iter().map(|chunk| chunk.nlri.len()).sum::<usize>() / 4
    }

    /// Shrinks the tables to their contents. O(routes) after changes of the map.
    pub(super) fn shrink_to_fit(&mut self) {
        self.map.shrink_to_fit();
        if let Some(last) = self.log.back_mut() {
            last.shrink_to_fit();
        }
        self.log.shrink_to_fit();
    }
}

fn put<N: Copy + Ord>(map: &mut SortedMap<N, AttrSet>, route: N, attrs: Option<&AttrSet>) {
    match attrs {
        Some(attrs) => map.insert(route, attrs.clone()),
        None => map.remove(route),
    }
}

impl Chunk {
    /// An empty one with room for as much, and some more.
    fn room_like(&self) -> Chunk {
        let with_slack = |len: usize| len + len / 32;
        Chunk {
            runs: Vec::with_capacity(with_slack(self.runs.len())),
            nlri: Vec::with_capacity(with_slack(self.nlri.len())),
        }
    }

    fn is_full(&self) -> bool {
        self.nlri.len() + self.runs.len() * size_of::<Run>() >= CHUNK
    }

    fn shrink_to_fit(&mut self) {
        self.runs.shrink_to_fit();
        self.nlri.shrink_to_fit();
    }

    /// The changes from this run on.
    #[inline]
    fn for_each<N: Nlri>(&self, run: usize, mut change: impl FnMut(Option<&AttrSet>, N)) {
        let mut begin = run.checked_sub(1).and_then(|before| self.runs.get(before)).map_or(0, |run| run.end);
        for Run { attrs, end } in self.runs.get(run..).unwrap_or_default() {
            let nlri = self.nlri.get(begin as usize..*end as usize).unwrap_or_default();
            Nlris::new(nlri).for_each(|route| change(attrs.as_ref(), route));
            begin = *end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::{Prefix, Rng, V4, V6};
    use ribtide_wire::bgp::NextHop;
    use ribtide_wire::bgp::nlri::PathPrefix;
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    fn attrs(med: u8) -> AttrSet {
        AttrSet::new(&[0x80, 4, 4, 0, 0, 0, med], NextHop::V4(Ipv4Addr::LOCALHOST))
    }

    fn med(attrs: &AttrSet) -> Option<u32> {
        attrs.med()
    }

    /// Any history of changes, scans and looks in order, against a tree.
    fn any_history<N: Nlri + Ord + Hash + std::fmt::Debug>(of: fn(u32) -> N) {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (mut kept, mut tree) = (KeptRoutes::<N>::default(), BTreeMap::<N, u32>::new());
            let numbers = [4, 60, 5000][seed as usize % 3];
            // A scan wants the numbers below this.
            let mut wanted = None;
            for _ in 0..rng.below(4000) {
                let mut routes: Vec<N> = (0..=rng.below(6)).map(|_| of(rng.below(numbers) as u32)).collect();
                match rng.below(100) {
                    0 => {
                        let sorted: Vec<_> =
                            kept.sorted().iter().map(|(route, attrs)| (route, med(attrs))).collect();
                        let expected: Vec<_> = tree.iter().map(|(route, med)| (*route, Some(*med))).collect();
                        assert_eq!(sorted, expected);
                    }
                    1 => kept.shrink_to_fit(),
                    2 => {
                        kept.begin_scan();
                        wanted = Some(of(rng.below(numbers) as u32));
                    }
                    3..20 => {
                        let mut budget = rng.below(5) as usize;
                        let Some(below) = wanted else { continue };
                        let is_enough = match rng.below(20) {
                            0 => kept.scan_all(2, &mut budget),
                            _ => kept.scan(|route| route < below, 2, &mut budget),
                        };
                        if is_enough {
                            let seen: Vec<_> = (kept.scanned().iter())
                                .map(|(route, attrs)| (route, med(attrs)))
                                .take_while(|(route, _)| *route < below)
                                .collect();
                            let expected: Vec<_> =
                                tree.range(..below).map(|(route, med)| (*route, Some(*med))).collect();
                            assert_eq!(seen, expected);
                        }
                    }
                    20..40 => {
                        for route in &routes {
                            tree.remove(route);
                        }
                        kept.extend_each(None, routes.into_iter());
                    }
                    n => {
                        tree.extend(routes.iter().map(|route| (*route, n as u32)));
                        let mut field = Vec::new();
                        routes.drain(..).for_each(|route| route.encode(&mut field));
                        kept.extend(Some(attrs(n as u8)), &Nlris::new(&field));
                    }
                }
            }
            assert_eq!(kept.sorted().count(), tree.len());
        }
    }

    #[test]
    fn any_history_gives_the_routes_of_a_tree() {
        any_history::<Prefix<V4>>(|n| Prefix::new(n << 8, 24 + (n % 8) as u8));
        any_history::<Prefix<V6>>(|n| Prefix::new((u128::from(n) << 80).to_be_bytes(), 48));
        any_history::<PathPrefix<V4>>(|n| PathPrefix {
            prefix: Prefix::new((n / 4) << 8, 24),
            path_id: n % 4,
        });
    }

    #[test]
    fn a_table_stays_in_the_log_and_changes_of_few_routes_do_not() {
        let of = |n: u32| Prefix::<V4>::new(n << 8, 24);
        let attrs = attrs(1);
        let mut kept = KeptRoutes::default();
        (0..20_000).for_each(|n| kept.extend_each(Some(attrs.clone()), [of(n)].into_iter()));
        assert_eq!((kept.map.entries(), kept.estimate()), (0, 20_000));
        // The same routes again, and again.
        (0..200_000).for_each(|n| kept.extend_each(Some(attrs.clone()), [of(n % 20_000)].into_iter()));
        assert!(kept.log.len() * CHUNK * 2 < kept.map_size(), "{} chunks", kept.log.len());
        assert_eq!(kept.sorted().count(), 20_000);
        drop(kept);
        // One route that flaps.
        let mut kept = KeptRoutes::default();
        for n in 0..20_000 {
            kept.extend_each(Some(attrs.clone()).filter(|_| n % 2 == 0), [of(7)].into_iter());
            assert!(kept.log.len() <= 20 && kept.map.entries() < 3000);
        }
        assert_eq!(kept.sorted().count(), 0);
        assert_eq!(attrs.handles(), 1, "no handle is left but this one");
    }

    #[test]
    fn a_scan_has_the_last_change_when_older_ones_move_after_it() {
        let of = |n: u32| Prefix::<V4>::new(n << 8, 24);
        let mut kept = KeptRoutes::default();
        kept.extend_each(Some(attrs(1)), [of(1)].into_iter());
        // Flaps of another route, so that the log moves soon.
        let flap = |kept: &mut KeptRoutes<_>, times| {
            (0..times).for_each(|_| kept.extend_each(Some(attrs(2)), [of(9)].into_iter()));
        };
        while kept.log.is_empty() || kept.log[0].runs.len() < 3 {
            flap(&mut kept, 1);
        }
        kept.extend_each(Some(attrs(3)), [of(1)].into_iter());
        kept.begin_scan();
        let seen = |kept: &mut KeptRoutes<_>| {
            assert!(kept.scan(|route| route == of(1), 1, &mut 100));
            kept.scanned().from(of(1)).next().map(|(route, attrs)| (route, attrs.med()))
        };
        assert_eq!(seen(&mut kept), Some((of(1), Some(3))));
        for _ in 0..20 {
            flap(&mut kept, 3);
            assert_eq!(seen(&mut kept), Some((of(1), Some(3))));
        }
    }
}
