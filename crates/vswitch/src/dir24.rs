//! IPv4 longest-prefix match in one or two memory accesses: the DIR-24-8 table.
//!
//! The first level has a slot for each /24. A slot with routes longer than /24 refers to a block of
//! 256 slots, one per address. A chip looks up in the same fixed number of steps. So the virtual
//! switch forwards by these slots, and not by a list of routes.
//!
//! A slot has the length of its route, so an insert knows without a search which slots it may
//! overwrite. The exact routes are in one map per length, where a delete finds the covering route.
//! At a million routes, both together take below 84 bytes a route.
//!
//! The first level is divided into leaves: [`Dir24::shrink_to_fit`] frees empty leaves, so an
//! emptied table takes no memory.

use crate::walk::Walk;
use ribtide_prefix::{Map, Prefix, V4, prefetch, shrink_if_sparse, shrink_to_fit};

/// A route's target: an index of the switch, 0 to [`MAX_TARGET`].
pub(crate) type Target = u32;
/// The largest target that a slot can carry.
pub(crate) const MAX_TARGET: Target = (1 << TARGET_BITS) - 2;

const TARGET_BITS: u32 = 25;
const EXTENDED: u32 = 1 << 31;
/// Slots of a block: the addresses of a /24.
const BLOCK: usize = 256;
/// Slots of a leaf: the /24s of a /14, which take a page of memory.
const LEAF: usize = 1024;
/// Leaves of a branch, and branches of the first level.
const BRANCH: usize = 128;
const _: () = assert!(LEAF * BRANCH * BRANCH == 1 << 24);

/// One slot: empty, a route's length and target, or (first level only) the number of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    const EMPTY: Slot = Slot(0);

    fn route(len: u8, target: Target) -> Slot {
        // One is added so that no route's slot is zero: a fresh table is all zero pages.
        Slot(u32::from(len) << TARGET_BITS | (target + 1))
    }

    fn extended(block: u32) -> Slot {
        Slot(EXTENDED | block)
    }

    fn block(self) -> Option<usize> {
        (self.0 & EXTENDED != 0).then_some((self.0 & !EXTENDED) as usize)
    }

    /// Zero for an empty slot.
    fn len(self) -> u8 {
        (self.0 >> TARGET_BITS) as u8
    }

    fn target(self) -> Option<Target> {
        (self.0 & ((1 << TARGET_BITS) - 1)).checked_sub(1)
    }
}

/// Slots of the first level.
type Leaf = Box<[u32; LEAF]>;

/// Leaves in an allocation of their own. One large vector would lie among the maps of
/// [`Dir24::exact`] and keep their freed memory.
type Branch = Box<[Option<Leaf>; BRANCH]>;

/// An IPv4 table.
pub(crate) struct Dir24 {
    /// A slot for each /24, in leaves; empty until the first route.
    first: Vec<Option<Branch>>,
    /// Blocks of 256 slots, one for each address of a /24, and how many routes longer than /24 each holds.
    second: Vec<Option<(Box<[u32]>, u16)>>,
    free: Vec<u32>,
    /// The exact routes, by length and network address.
    exact: [Map<u32, Target>; 33],
}

/// The place of the leaf of the `at`th /24.
fn place(first: &mut [Option<Branch>], at: usize) -> &mut Option<Leaf> {
    let branch = first[at / LEAF / BRANCH].get_or_insert_with(|| Box::new([const { None }; BRANCH]));
    &mut branch[at / LEAF % BRANCH]
}

/// An empty leaf.
fn leaf() -> Leaf {
    Box::new([0; LEAF])
}

impl Default for Dir24 {
    fn default() -> Self {
        Dir24 {
            first: Vec::new(),
            second: Vec::new(),
            free: Vec::new(),
            exact: std::array::from_fn(|_| Map::default()),
        }
    }
}

/// The shortest length, above zero, of a network that begins at this address.
fn shortest(bits: u32) -> u8 {
    (32 - bits.trailing_zeros() as u8).max(1)
}

impl Dir24 {
    /// Places of a walk: the /24s.
    pub(crate) const PLACES: usize = 1 << 24;

    /// The number of routes.
    pub(crate) fn len(&self) -> usize {
        self.exact.iter().map(Map::len).sum()
    }

    /// The target of the route at exactly `prefix`.
    pub(crate) fn get(&self, prefix: Prefix<V4>) -> Option<Target> {
        self.exact[usize::from(prefix.len())].get(&prefix.bits()).copied()
    }

    /// Prefetches the first slot of a route.
    pub(crate) fn prefetch(&self, prefix: Prefix<V4>) {
        prefetch(self.slot((prefix.bits() >> 8) as usize));
    }

    /// Puts a route and returns the target of the one that it replaced. `target` is at most [`MAX_TARGET`].
    pub(crate) fn insert(&mut self, prefix: Prefix<V4>, target: Target) -> Option<Target> {
        debug_assert!(target <= MAX_TARGET);
        let len = prefix.len();
        let old = self.exact[usize::from(len)].insert(prefix.bits(), target);
        if len == 0 {
            // An empty slot already means the default route: writing it would touch all 64 MiB.
            return old;
        }
        if self.first.is_empty() {
            self.first.resize_with(BRANCH, || None);
        }
        if len > 24 {
            *self.open_block(prefix) += u16::from(old.is_none());
        }
        self.paint(prefix, |slot| slot.len() <= len, Slot::route(len, target));
        old
    }

    /// Removes the route at exactly `prefix` and returns its target.
    pub(crate) fn remove(&mut self, prefix: Prefix<V4>) -> Option<Target> {
        let len = prefix.len();
        let of_length = &mut self.exact[usize::from(len)];
        let old = of_length.remove(&prefix.bits())?;
        shrink_if_sparse(of_length);
        if len == 0 {
            return Some(old);
        }
        let covering = self.covering(prefix).map_or(Slot::EMPTY, |(len, target)| Slot::route(len, target));
        self.paint(prefix, |slot| slot.len() == len, covering);
        if len > 24 {
            self.close_block(prefix);
        }
        Some(old)
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        self.exact.iter_mut().for_each(shrink_to_fit);
        for branch in &mut self.first {
            for place in branch.iter_mut().flat_map(|leaves| leaves.iter_mut()) {
                if place.as_ref().is_some_and(|leaf| leaf.iter().all(|slot| *slot == 0)) {
                    *place = None;
                }
            }
            if branch.as_ref().is_some_and(|leaves| leaves.iter().all(Option::is_none)) {
                *branch = None;
            }
        }
        self.second.truncate(self.second.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        self.second.shrink_to_fit();
        self.free.retain(|block| (*block as usize) < self.second.len());
        self.free.shrink_to_fit();
    }

    /// The length and target of the longest route that holds `addr`.
    pub(crate) fn lookup(&self, addr: u32) -> Option<(u8, Target)> {
        let mut slot = self.slot((addr >> 8) as usize);
        if let Some(block) = slot.block() {
            slot = self.second[block]
                .as_ref()
                .map_or(Slot::EMPTY, |(slots, _)| Slot(slots[(addr & 0xff) as usize]));
        }
        match slot.target() {
            Some(target) => Some((slot.len(), target)),
            None => self.exact[0].get(&0).map(|target| (0, *target)),
        }
    }

    fn branch(&self, at: usize) -> Option<&Branch> {
        self.first.get(at / LEAF / BRANCH).and_then(Option::as_ref)
    }

    fn leaf(&self, at: usize) -> Option<&Leaf> {
        self.branch(at).and_then(|leaves| leaves[at / LEAF % BRANCH].as_ref())
    }

    /// The slot of the `at`th /24.
    fn slot(&self, at: usize) -> Slot {
        self.leaf(at).map_or(Slot::EMPTY, |leaf| Slot(leaf[at % LEAF]))
    }

    fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.first.iter().flatten().flat_map(|branch| branch.iter().flatten())
    }

    /// Every route, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix<V4>, Target)> {
        (0u8..)
            .zip(&self.exact)
            .flat_map(|(len, map)| map.iter().map(move |(bits, target)| (Prefix::new(*bits, len), *target)))
    }

    /// Continues a walk at a place. It visits the routes whose network begins there, and returns
    /// the next place: [`Dir24::PLACES`] after the last.
    pub(crate) fn walk(&self, mut at: usize, walk: &mut Walk) -> usize {
        while at < Dir24::PLACES && walk.goes_on() {
            if at == 0 && !self.exact[0].is_empty() {
                walk.meets(Prefix::<V4>::default_route().any());
            }
            // Skips missing leaves and branches.
            if self.branch(at).is_none() {
                at = (at + 1).next_multiple_of(LEAF * BRANCH);
                continue;
            }
            let Some(leaf) = self.leaf(at) else {
                at = (at + 1).next_multiple_of(LEAF);
                continue;
            };
            for slot in &leaf[at % LEAF..] {
                self.meet((at as u32) << 8, Slot(*slot), walk);
                at += 1;
                if !walk.goes_on() {
                    break;
                }
            }
        }
        at
    }

    /// The routes whose network begins in the /24 that has this slot.
    #[inline]
    fn meet(&self, bits: u32, slot: Slot, walk: &mut Walk) {
        let mut begin = |bits: u32, first: u8, longest: u8, painted: u8| {
            for len in first..=longest {
                // The slot's own route exists; shorter ones may lie beneath it, and no longer one
                // begins here.
                if len == painted || self.exact[usize::from(len)].contains_key(&bits) {
                    walk.meets(Prefix::<V4>::new(bits, len).any());
                }
            }
        };
        let Some(block) = slot.block() else {
            return begin(bits, shortest(bits), slot.len(), slot.len());
        };
        begin(bits, shortest(bits), 24, 0);
        let slots = self.second[block].iter().flat_map(|(slots, _)| slots.iter());
        for (bits, slot) in (bits..=bits | 0xff).zip(slots) {
            let painted = Slot(*slot).len();
            begin(bits, shortest(bits).max(25), painted, painted);
        }
    }

    /// Bytes of memory.
    pub(crate) fn allocation_size(&self) -> usize {
        self.first.capacity() * size_of::<Option<Branch>>()
            + self.first.iter().flatten().count() * size_of::<[Option<Leaf>; BRANCH]>()
            + self.leaves().count() * LEAF * size_of::<u32>()
            + self.second.capacity() * size_of::<Option<(Box<[u32]>, u16)>>()
            + self.second.iter().flatten().count() * BLOCK * size_of::<u32>()
            + self.free.capacity() * size_of::<u32>()
            + self.exact.iter().map(Map::allocation_size).sum::<usize>()
            + size_of::<Self>()
    }

    /// The longest painted route that covers `prefix` and is not `prefix` itself.
    fn covering(&self, prefix: Prefix<V4>) -> Option<(u8, Target)> {
        (1..prefix.len()).rev().find_map(|len| {
            let map = &self.exact[usize::from(len)];
            if map.is_empty() {
                return None;
            }
            map.get(&prefix.truncate(len).bits()).map(|target| (len, *target))
        })
    }

    /// Writes `new` into each slot of `prefix` that holds what `over` accepts.
    fn paint(&mut self, prefix: Prefix<V4>, over: impl Fn(Slot) -> bool, new: Slot) {
        let Dir24 { first, second, .. } = self;
        let mut repaint = |block: usize, from: usize, to: usize| {
            let Some((slots, _)) = &mut second[block] else { return };
            for slot in slots[from..to].iter_mut().filter(|slot| over(Slot(**slot))) {
                *slot = new.0;
            }
        };
        let at = (prefix.bits() >> 8) as usize;
        if prefix.len() > 24 {
            let leaf = place(first, at).as_ref();
            let from = (prefix.bits() & 0xff) as usize;
            if let Some(block) = leaf.and_then(|leaf| Slot(leaf[at % LEAF]).block()) {
                repaint(block, from, from + (1 << (32 - prefix.len())));
            }
            return;
        }
        let mut at = at;
        let to = at + (1 << (24 - prefix.len()));
        while at < to {
            let (place, from) = (place(first, at), at % LEAF);
            let size = (LEAF - from).min(to - at);
            at += size;
            if place.is_none() && new == Slot::EMPTY {
                continue;
            }
            let leaf = place.get_or_insert_with(leaf);
            for slot in &mut leaf[from..from + size] {
                match Slot(*slot).block() {
                    Some(block) => repaint(block, 0, BLOCK),
                    None if over(Slot(*slot)) => *slot = new.0,
                    None => {}
                }
            }
        }
    }

    /// The block of the /24 around `prefix`, made from that /24's slot if there is none, and its number of routes.
    fn open_block(&mut self, prefix: Prefix<V4>) -> &mut u16 {
        let at = (prefix.bits() >> 8) as usize;
        let slot = self.slot(at);
        let block = slot.block().unwrap_or_else(|| {
            let block = self.free.pop().unwrap_or(self.second.len() as u32) as usize;
            let made = Some((vec![slot.0; BLOCK].into(), 0));
            match self.second.get_mut(block) {
                Some(place) => *place = made,
                None => self.second.push(made),
            }
            place(&mut self.first, at).get_or_insert_with(leaf)[at % LEAF] = Slot::extended(block as u32).0;
            block
        });
        &mut self.second[block].get_or_insert_with(|| unreachable!("a slot names a block that is there")).1
    }

    /// Removes one long route of this /24 from the count; the last one frees the block.
    fn close_block(&mut self, prefix: Prefix<V4>) {
        let at = (prefix.bits() >> 8) as usize;
        let Some(block) = self.slot(at).block() else { return };
        let Some((slots, longer)) = &mut self.second[block] else { return };
        *longer -= 1;
        if *longer > 0 {
            return;
        }
        // Without long routes all 256 slots are equal.
        let slot = Slot(slots[0]);
        self.second[block] = None;
        self.free.push(block as u32);
        if let Some(leaf) = place(&mut self.first, at) {
            leaf[at % LEAF] = slot.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::EntryKey;
    use proptest::prelude::*;
    use ribtide_swss::sai::Oid;
    use std::collections::HashMap;

    /// The slowest correct table: it compares every route.
    #[derive(Default)]
    struct Naive(HashMap<Prefix<V4>, Target>);

    impl Naive {
        fn lookup(&self, addr: u32) -> Option<(u8, Target)> {
            let addr = std::net::IpAddr::V4(addr.into());
            let inside = self.0.iter().filter(|(prefix, _)| prefix.contains(addr));
            inside.max_by_key(|(prefix, _)| prefix.len()).map(|(prefix, target)| (prefix.len(), *target))
        }
    }

    /// Prefixes crowd into a few /24s and their neighbours, so that they cover each other at every length.
    fn prefix() -> impl Strategy<Value = Prefix<V4>> {
        let base = prop_oneof![Just(0x0a00_0000u32), Just(0x0a00_0100), Just(0xffff_ff00), Just(0)];
        (base, 0u32..1024, prop_oneof![0u8..=32, 22u8..=32])
            .prop_map(|(base, low, len)| Prefix::new(base.wrapping_add(low), len))
    }

    /// All entries of a walk, a few at a time.
    fn walk(table: &Dir24) -> Vec<EntryKey> {
        let (mut met, mut place) = (Vec::new(), 0);
        while place < Dir24::PLACES {
            let mut piece = Walk::new(3);
            place = table.walk(place, &mut piece);
            met.append(&mut piece.met);
        }
        met.sort_unstable();
        met
    }

    #[test]
    fn a_walk_comes_to_the_last_address() {
        let mut table = Dir24::default();
        let all: [Prefix<V4>; 3] = ["255.255.255.0/24", "255.255.255.128/25", "255.255.255.255/32"]
            .map(|text| text.parse().unwrap());
        for prefix in all {
            table.insert(prefix, 1);
        }
        assert_eq!(walk(&table), all.map(|prefix| EntryKey::Route(Oid::NULL, prefix.any())));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn any_history_forwards_like_the_naive_table(
            steps in prop::collection::vec((prefix(), prop::option::weighted(0.6, 0u32..50)), 1..200)
        ) {
            let (mut table, mut naive) = (Dir24::default(), Naive::default());
            for (n, (prefix, target)) in steps.iter().enumerate() {
                if n % 10 == 9 {
                    table.shrink_to_fit();
                }
                let (old, expected) = match target {
                    Some(target) => (table.insert(*prefix, *target), naive.0.insert(*prefix, *target)),
                    None => (table.remove(*prefix), naive.0.remove(prefix)),
                };
                prop_assert_eq!(old, expected);
            }
            prop_assert_eq!(table.len(), naive.0.len());
            prop_assert_eq!(table.iter().collect::<HashMap<_, _>>(), naive.0.clone());
            let mut all: Vec<_> = naive.0.keys().map(|prefix| EntryKey::Route(Oid::NULL, prefix.any())).collect();
            all.sort_unstable();
            prop_assert_eq!(walk(&table), all);
            for (prefix, _) in &steps {
                let first = prefix.bits();
                let last = first | u32::MAX.checked_shr(u32::from(prefix.len())).unwrap_or(0);
                for addr in [first, last, first.wrapping_sub(1), last.wrapping_add(1), first ^ 0x80, first | 0x55] {
                    prop_assert_eq!(table.lookup(addr), naive.lookup(addr), "address {:#x}", addr);
                }
                prop_assert_eq!(table.get(*prefix), naive.0.get(prefix).copied());
            }
        }
    }

    #[test]
    fn blocks_are_given_back_and_used_again() {
        let mut table = Dir24::default();
        let p = |text: &str| text.parse::<Prefix<V4>>().unwrap();
        table.insert(p("10.0.0.0/24"), 1);
        table.insert(p("10.0.0.1/32"), 2);
        table.insert(p("10.0.0.128/25"), 3);
        let blocks = table.second.len();
        assert_eq!(table.second.iter().flatten().count(), 1);
        assert_eq!(table.lookup(0x0a00_0001), Some((32, 2)));
        table.remove(p("10.0.0.1/32"));
        table.remove(p("10.0.0.128/25"));
        assert_eq!(table.lookup(0x0a00_00ff), Some((24, 1)));
        assert_eq!(table.second.iter().flatten().count(), 0);
        table.insert(p("192.0.2.1/32"), 4);
        assert_eq!(table.second.len(), blocks);
        assert_eq!(table.lookup(0xc000_0202), None);
        assert_eq!(table.lookup(0xc000_0201), Some((32, 4)));
    }

    #[test]
    fn a_table_that_was_large_and_is_empty_takes_no_memory() {
        let mut table = Dir24::default();
        let spread =
            |n: u32| Prefix::new(n.wrapping_mul(0x9e37_79b9), if n.is_multiple_of(7) { 32 } else { 24 });
        table.insert(Prefix::new(0, 0), 1);
        table.insert(spread(0), 1);
        let before = table.allocation_size();
        assert!((1..100_000).all(|n| table.insert(spread(n), 2).is_none()));
        let full = table.allocation_size();
        assert!((1..100_000).all(|n| table.remove(spread(n)) == Some(2)));
        table.shrink_to_fit();
        let after = table.allocation_size();
        assert!(after < before + full / 20, "{before} bytes, then {full}, then {after}");
        assert!(table.leaves().count() <= 1 && table.second.iter().flatten().count() <= 1);
    }

    #[test]
    fn a_million_routes_fit_the_budget() {
        let mut table = Dir24::default();
        // Lengths and their shares as in the internet's table: three fifths /24, the rest spread from /16 to /23.
        let mut n = 0x9e37_79b9_7f4a_7c15u64;
        while table.len() < 1_000_000 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = match (n >> 8) % 100 {
                0..60 => 24,
                60..72 => 22,
                72..82 => 23,
                82..88 => 21,
                88..94 => 20,
                94..97 => 19,
                97..99 => 18,
                _ => 16,
            };
            table.insert(Prefix::new((n >> 32) as u32, len), 7);
        }
        let each = table.allocation_size() as f64 / table.len() as f64;
        assert!(each <= 84.0, "{each} bytes a route");
    }
}
