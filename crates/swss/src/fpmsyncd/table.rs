//! The routes of one VRF, small: eight bytes beside the prefix.

use super::source::SourceId;
use super::stage::Stage;
use crate::segmented_vec::{HashIndex, SegmentedVec};
use ribtide_prefix::{
    AnyPrefix, Families, Family, HashBuilder, PerFamily, Prefix, for_each_family, prefetch,
};
use std::cell::Cell;
use std::hash::BuildHasher;

/// One route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The source of its next hops; `None` when it is withdrawn and the withdrawal not taken yet.
    pub(super) source: Option<SourceId>,
    /// In which session it was announced last.
    pub(super) epoch: u16,
    pub(super) protocol: u8,
    pub(super) stage: Stage,
}

impl Entry {
    pub(super) const GONE: Entry = Entry { source: None, epoch: 0, protocol: 0, stage: Stage::NEW };
}

const _: () = assert!(size_of::<Entry>() == 8);

/// Routes of one family, one behind the other as they came.
///
/// A route is looked for several times: when it is announced, when its row is handed over, when it
/// is answered; and each time after the one that came before it. So the route that was found last
/// and its neighbours are tried first, and what is near is neither hashed nor waited for.
struct Routes<F: Family> {
    routes: SegmentedVec<(Prefix<F>, Entry)>,
    by_prefix: HashIndex,
    hasher: HashBuilder,
    last: Cell<u32>,
}

impl<F: Family> Default for Routes<F> {
    fn default() -> Self {
        Routes {
            routes: SegmentedVec::default(),
            by_prefix: HashIndex::default(),
            hasher: HashBuilder::default(),
            last: Cell::default(),
        }
    }
}

impl<F: Family> Routes<F> {
    /// What is kept of a prefix's hash.
    fn hash(&self, prefix: Prefix<F>) -> u32 {
        (self.hasher.hash_one(prefix) >> 32) as u32
    }

    fn near(&self, prefix: Prefix<F>) -> Option<u32> {
        let last = self.last.get();
        let is = |at: &u32| self.routes.get(*at).is_some_and(|(of, _)| *of == prefix);
        let at = [last, last.wrapping_add(1), last.wrapping_sub(1)].into_iter().find(is)?;
        self.last.set(at);
        Some(at)
    }

    fn find(&self, prefix: Prefix<F>) -> Option<u32> {
        self.near(prefix).or_else(|| {
            let at = self.by_prefix.find(self.hash(prefix), |at| self.routes[at].0 == prefix)?;
            self.last.set(at);
            Some(at)
        })
    }

    /// Where a prefix of this hash probably is, without a look at the route.
    fn guess(&self, prefix: Prefix<F>) -> Option<u32> {
        self.by_prefix.find(self.hash(prefix), |_| true)
    }

    fn is_nth(&self, prefix: Prefix<F>, n: usize) -> bool {
        self.routes.get(self.last.get().wrapping_add(n as u32)).is_some_and(|(of, _)| *of == prefix)
    }

    fn get(&self, prefix: Prefix<F>) -> Option<&Entry> {
        self.find(prefix).map(|at| &self.routes[at].1)
    }

    fn get_mut(&mut self, prefix: Prefix<F>) -> Option<&mut Entry> {
        self.find(prefix).map(|at| &mut self.routes[at].1)
    }

    fn entry(&mut self, prefix: Prefix<F>) -> &mut Entry {
        let at = self.find(prefix).unwrap_or_else(|| {
            let at = self.routes.len() as u32;
            self.routes.push((prefix, Entry::GONE));
            self.by_prefix.insert(self.hash(prefix), at);
            self.last.set(at);
            at
        });
        &mut self.routes[at].1
    }

    /// The last one takes its place.
    fn remove(&mut self, prefix: Prefix<F>) {
        let Some(at) = self.find(prefix) else { return };
        self.by_prefix.remove(self.hash(prefix), at);
        if let Some(last) = self.routes.pop()
            && last.0 != prefix
        {
            self.by_prefix.renumber(self.hash(last.0), self.routes.len() as u32, at);
            self.routes[at] = last;
        }
        self.by_prefix.shrink_if_sparse();
    }

    fn shrink_to_fit(&mut self) {
        self.routes.shrink_to_fit();
        self.by_prefix.shrink_to_fit();
    }

    fn allocation_size(&self) -> usize {
        self.routes.capacity() * size_of::<(Prefix<F>, Entry)>() + self.by_prefix.allocation_size()
    }
}

struct OfFamily;

impl PerFamily for OfFamily {
    type Of<F: Family> = Routes<F>;
}

/// Routes of one VRF by prefix.
#[derive(Default)]
pub(super) struct RouteTable(Families<OfFamily>);

impl RouteTable {
    pub(super) fn get(&self, prefix: AnyPrefix) -> Option<&Entry> {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.get(p),
            AnyPrefix::V6(p) => self.0.v6.get(p),
        }
    }

    /// Where a route probably is, as the index has it.
    ///
    /// Of many routes in no order each look-up waits for memory, first for the index and then for
    /// the route. Asked for all and then [prefetched](RouteTable::prefetch) all, the waits overlap.
    pub(super) fn guess(&self, prefix: AnyPrefix) -> Option<u32> {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.guess(p),
            AnyPrefix::V6(p) => self.0.v6.guess(p),
        }
    }

    /// Prefetches the route that is probably there.
    pub(super) fn prefetch(&self, prefix: AnyPrefix, at: Option<u32>) {
        prefetch(at.and_then(|at| match prefix {
            AnyPrefix::V4(_) => self.0.v4.routes.get(at).map(|(_, entry)| entry.stage),
            AnyPrefix::V6(_) => self.0.v6.routes.get(at).map(|(_, entry)| entry.stage),
        }));
    }

    /// The route is looked for next, and is probably there.
    pub(super) fn expect(&self, prefix: AnyPrefix, at: Option<u32>) {
        let last = match prefix {
            AnyPrefix::V4(_) => &self.0.v4.last,
            AnyPrefix::V6(_) => &self.0.v6.last,
        };
        last.set(at.unwrap_or(last.get()));
    }

    /// Whether it is the `n`th behind the route that was found last. Then those between are
    /// probably what is looked for next, and need not be looked at before.
    pub(super) fn is_nth(&self, prefix: AnyPrefix, n: usize) -> bool {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.is_nth(p, n),
            AnyPrefix::V6(p) => self.0.v6.is_nth(p, n),
        }
    }

    pub(super) fn get_mut(&mut self, prefix: AnyPrefix) -> Option<&mut Entry> {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.get_mut(p),
            AnyPrefix::V6(p) => self.0.v6.get_mut(p),
        }
    }

    /// The entry of a prefix, withdrawn when it is new.
    pub(super) fn entry(&mut self, prefix: AnyPrefix) -> &mut Entry {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.entry(p),
            AnyPrefix::V6(p) => self.0.v6.entry(p),
        }
    }

    pub(super) fn remove(&mut self, prefix: AnyPrefix) {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.remove(p),
            AnyPrefix::V6(p) => self.0.v6.remove(p),
        }
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        for_each_family!(F => self.0.get_mut::<F>().shrink_to_fit());
    }

    pub(super) fn len(&self) -> usize {
        self.0.v4.routes.len() + self.0.v6.routes.len()
    }

    pub(super) fn allocation_size(&self) -> usize {
        self.0.v4.allocation_size() + self.0.v6.allocation_size()
    }

    /// The route at a place of its family; places from 0 on, until there is none.
    pub(super) fn at(&self, ipv6: bool, at: u32) -> Option<(AnyPrefix, &Entry)> {
        match ipv6 {
            false => self.0.v4.routes.get(at).map(|(prefix, entry)| (prefix.any(), entry)),
            true => self.0.v6.routes.get(at).map(|(prefix, entry)| (prefix.any(), entry)),
        }
    }

    pub(super) fn for_each(&self, mut each: impl FnMut(AnyPrefix, &Entry)) {
        for_each_family!(F => for (prefix, entry) in self.0.get::<F>().routes.iter() {
            each(prefix.any(), entry);
        });
    }

    pub(super) fn for_each_mut(&mut self, mut each: impl FnMut(AnyPrefix, &mut Entry)) {
        for_each_family!(F => for (prefix, entry) in self.0.get_mut::<F>().routes.iter_mut() {
            each(prefix.any(), entry);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn prefix(n: u32) -> AnyPrefix {
        AnyPrefix::host(std::net::Ipv4Addr::from_bits(n).into())
    }

    fn all(table: &RouteTable) -> BTreeMap<AnyPrefix, u16> {
        let mut found = BTreeMap::new();
        table.for_each(|prefix, entry| assert_eq!(found.insert(prefix, entry.epoch), None));
        found
    }

    #[test]
    fn every_route_is_found_whatever_came_and_went() {
        let (mut table, mut model) = (RouteTable::default(), BTreeMap::new());
        // A number that jumps about, from a few that come often to many that come once.
        let mut state = 1u32;
        for n in 0..200_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = prefix(if n % 3 == 0 { state >> 12 & 0xff } else { n >> 1 });
            if state >> 30 == 0 {
                table.remove(at);
                model.remove(&at);
            } else {
                table.entry(at).epoch = n as u16;
                model.insert(at, n as u16);
            }
            let other = prefix(state >> 15);
            assert_eq!(table.is_nth(at, 0), table.get(at).is_some());
            let guess = table.guess(other);
            table.prefetch(other, guess);
            table.expect(other, guess);
            assert_eq!(table.get(other).map(|entry| entry.epoch), model.get(&other).copied());
            assert_eq!(table.get_mut(at).map(|entry| entry.epoch), model.get(&at).copied());
        }
        assert_eq!((all(&table), table.len()), (model.clone(), model.len()));
        for (n, at) in model.keys().copied().enumerate() {
            table.remove(at);
            assert!(table.get(at).is_none() && table.len() == model.len() - n - 1);
        }
        assert!(all(&table).is_empty());
    }

    #[test]
    fn room_for_routes_that_came_and_went_is_given_back() {
        let mut table = RouteTable::default();
        for stay in [10, 30_000] {
            (0..stay).for_each(|n| table.entry(prefix(n)).epoch = 7);
            table.shrink_to_fit();
            let before = table.allocation_size();
            (stay..230_000).for_each(|n| table.entry(prefix(n)).epoch = 8);
            // It has just grown.
            assert!(table.allocation_size() / table.len() <= 38);
            // The eldest go first.
            (0..230_000 - stay).for_each(|n| table.remove(prefix(n)));
            table.shrink_to_fit();
            assert_eq!((table.allocation_size(), table.len()), (before, stay as usize));
            assert!(all(&table).keys().copied().eq((230_000 - stay..230_000).map(prefix)));
            (230_000 - stay..230_000).for_each(|n| table.remove(prefix(n)));
        }
    }
}
