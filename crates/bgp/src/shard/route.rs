//! What the table holds for a prefix: its paths from the oldest to the newest, and which of them is selected.
//!
//! The selected path is the best one if any path is eligible. Otherwise it is the path that would be best if all next hops were
//! reachable: it is fed to the RIB manager, which resolves its next hop, and is not advertised.

use super::age::Stamp;
use super::gate::Gate;
use super::paths::{Part, Path, PathStore, is_full};
use super::table::{Seed, Slot};
use ribtide_prefix::{Afi, BgpFamily, Bits, Prefix};
use std::hash::{BuildHasher, Hasher};

/// A prefix with its paths: sixteen bytes for IPv4, 28 for IPv6.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<F: BgpFamily> {
    bits: F::Bits,
    len: u8,
    /// [`PRESENT`], [`SEVERAL`], [`USABLE`], and the flags of the gate in the bits of [`GATE`].
    state: u8,
    /// The tag of a gate that waits. Else the [`Stamp`] of the path, if there is one.
    word: u16,
    /// The path, if there is one. With several paths, `attrs` is their block, `session` their
    /// number, and `hint` the index of the selected one.
    path: Path,
}

/// It is a route.
const PRESENT: u8 = 1;
/// It has several paths.
const SEVERAL: u8 = 2;
/// The selected path is usable, and so the best.
const USABLE: u8 = 4;
const GATE: u8 = 0xe0;

/// The hash of a prefix in the tables of routes.
pub(super) fn hash<F: BgpFamily>(prefix: Prefix<F>, seed: &Seed) -> u32 {
    hash_of::<F>(prefix.bits(), prefix.len(), seed)
}

fn hash_of<F: BgpFamily>(bits: F::Bits, len: u8, seed: &Seed) -> u32 {
    let mut hasher = seed.build_hasher();
    let left = bits.left();
    match F::AFI {
        Afi::Ipv4 => hasher.write_u64((left >> 64) as u64 | u64::from(len)),
        Afi::Ipv6 => {
            hasher.write_u128(left);
            hasher.write_u8(len);
        }
    }
    (hasher.finish() >> 32) as u32
}

impl<F: BgpFamily> Slot for Route<F> {
    fn empty() -> Route<F> {
        let path = Path { attrs: 0, session: 0, hint: 0 };
        Route { bits: F::Bits::default(), len: 0, state: 0, word: 0, path }
    }

    fn is_empty(&self) -> bool {
        self.state & PRESENT == 0
    }

    fn hash(&self, seed: &Seed) -> u32 {
        hash_of::<F>(self.bits, self.len, seed)
    }
}

impl<F: BgpFamily> Route<F> {
    /// A route of one path, which is selected. `best`: it is usable.
    pub(super) fn new(prefix: Prefix<F>, path: Path, best: bool, Stamp(word): Stamp) -> Route<F> {
        let state = PRESENT | if best { USABLE } else { 0 };
        Route { bits: prefix.bits(), len: prefix.len(), state, word, path }
    }

    /// A route of at least one path, with the index of the selected one and whether it is usable. `stamps`: of each path,
    /// where the store has stamps.
    pub(super) fn of(
        prefix: Prefix<F>,
        store: &mut PathStore,
        paths: &[Path],
        stamps: &[Stamp],
        selected: usize,
        usable: bool,
    ) -> Route<F> {
        let mut route = Route::new(prefix, paths[0], usable, stamps.first().copied().unwrap_or_default());
        if paths.len() > 1 {
            let block = store.take(paths.len());
            store.get_mut(block, paths.len()).copy_from_slice(paths);
            stamps.iter().enumerate().for_each(|(n, stamp)| store.set_stamp(block, n, *stamp));
            route.path = Path { attrs: block, session: paths.len() as u16, hint: 0 };
            route.state |= SEVERAL;
            route.set_selected(selected, usable);
        }
        route
    }

    /// Its FIB suppression state.
    #[inline]
    pub(super) fn gate(&self) -> Gate {
        Gate::of_parts(self.state & GATE, self.word)
    }

    /// Whether the former path stays advertised because the next hop of its successor awaits its first answer.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.state & GATE == Gate::HELD.flags()
    }

    /// Whether its gate is [`Gate::OPEN`].
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state & GATE == 0
    }

    /// Sets its FIB suppression state. A gate that waits takes the place of the stamp of a single path, which gets the
    /// stamp `now` when it no longer waits.
    pub(super) fn set_gate(&mut self, gate: Gate, Stamp(now): Stamp) {
        let waited = self.is_waiting();
        self.state = self.state & !GATE | gate.flags();
        match gate.tag() {
            Some(tag) => self.word = tag,
            None if waited => self.word = now,
            None => {}
        }
    }

    /// Whether it waits for a fence.
    #[inline]
    fn is_waiting(&self) -> bool {
        Gate::of_parts(self.state & GATE, 0).is_waiting()
    }

    /// When its single path changed; not known while it waits.
    fn stamp(&self) -> Option<Stamp> {
        (!self.is_waiting()).then_some(Stamp(self.word))
    }

    /// When each of its paths changed, from the oldest to the newest; `None`: not known, because the only path waits for
    /// dataplanes.
    pub(super) fn stamps<'a>(&'a self, store: &'a PathStore) -> impl Iterator<Item = Option<Stamp>> + 'a {
        let single = (!self.is_several()).then(|| self.stamp());
        let several = self.is_several().then(|| store.stamps(self.path.attrs, self.len()).map(Some));
        single.into_iter().chain(several.into_iter().flatten())
    }

    /// Changes the stamp in its slot, if there is one.
    pub(super) fn renew_stamp(&mut self, renew: impl Fn(&mut Stamp)) {
        if let Some(mut stamp) = self.stamp().filter(|_| !self.is_several()) {
            renew(&mut stamp);
            self.word = stamp.0;
        }
    }

    fn set_stamp(&mut self, Stamp(word): Stamp) {
        if !self.is_waiting() {
            self.word = word;
        }
    }

    pub(super) fn prefix(&self) -> Prefix<F> {
        Prefix::new(self.bits, self.len)
    }

    /// Whether it is the route of this prefix.
    #[inline]
    pub(super) fn is(&self, prefix: Prefix<F>) -> bool {
        self.bits == prefix.bits() && self.len == prefix.len() && self.state & PRESENT != 0
    }

    /// Index of the selected path.
    pub(super) fn selected(&self) -> usize {
        if self.is_several() { usize::from(self.path.hint) } else { 0 }
    }

    /// Whether the selected path is usable and so the best.
    pub(super) fn is_usable(&self) -> bool {
        self.state & USABLE != 0
    }

    /// Index of the best path.
    pub(super) fn best(&self) -> Option<usize> {
        self.is_usable().then_some(self.selected())
    }

    /// Selects a path and sets whether it is usable.
    pub(super) fn set_selected(&mut self, selected: usize, usable: bool) {
        self.state = self.state & !USABLE | if usable { USABLE } else { 0 };
        if self.is_several() {
            self.path.hint = selected as u16;
        }
    }

    fn is_several(&self) -> bool {
        self.state & SEVERAL != 0
    }

    /// Whether it has one path, which is unusable.
    pub(super) fn is_idle(&self) -> bool {
        self.state & (PRESENT | SEVERAL | USABLE) == PRESENT
    }

    /// Number of paths; never 0 in the table.
    pub(super) fn len(&self) -> usize {
        if self.is_several() { usize::from(self.path.session) } else { 1 }
    }

    /// The paths, from the oldest to the newest.
    pub(super) fn paths<'a>(&'a self, store: &'a PathStore) -> &'a [Path] {
        match self.is_several() {
            true => store.get(self.path.attrs, self.len()),
            false => std::slice::from_ref(&self.path),
        }
    }

    /// The mutable paths of a route that has more than one.
    pub(super) fn paths_mut<'a>(&self, store: &'a mut PathStore) -> &'a mut [Path] {
        match self.is_several() {
            true => store.get_mut(self.path.attrs, self.len()),
            false => &mut [],
        }
    }

    /// Clears the part in forwarding of a single path, which has no meaning while it is the only one.
    pub(super) fn clear_single_part(&mut self) {
        if !self.is_several() {
            self.path.set_part(Part::Nothing);
        }
    }

    /// Gives the path at `index` another session.
    pub(super) fn set_session(&mut self, store: &mut PathStore, index: usize, session: u16) {
        match self.is_several() {
            true => store.get_mut(self.path.attrs, self.len())[index].session = session,
            false => self.path.session = session,
        }
    }

    /// Gives the path at `index` other attributes, and returns the former path. Its age stays.
    pub(super) fn set_attrs(
        &mut self,
        store: &mut PathStore,
        index: usize,
        (attrs, hint): (u32, u16),
    ) -> Path {
        let path = match self.is_several() {
            true => &mut store.get_mut(self.path.attrs, self.len())[index],
            false => &mut self.path,
        };
        let new = Path::new(attrs, path.session, hint);
        std::mem::replace(path, new)
    }

    /// Gives the path at `index` other attributes of the same rank.
    pub(super) fn set_attrs_of_same_rank(&mut self, store: &mut PathStore, index: usize, attrs: u32) {
        match self.is_several() {
            true => store.get_mut(self.path.attrs, self.len())[index].attrs = attrs,
            false => self.path.attrs = attrs,
        }
    }

    /// Adds a path as the newest, which changed `now`. The selected one stays.
    pub(super) fn push(&mut self, store: &mut PathStore, path: Path, now: Stamp) {
        let len = self.len();
        if !self.is_several() {
            let block = store.take(2);
            store.set(block, 0, self.path, self.stamp().unwrap_or(now));
            store.set(block, 1, path, now);
            self.state |= SEVERAL;
            self.path = Path { attrs: block, session: 2, hint: 0 };
            return;
        }
        if is_full(len) {
            self.path.attrs = store.resize(self.path.attrs, len + 1, len);
        }
        store.set(self.path.attrs, len, path, now);
        self.path.session += 1;
    }

    /// Removes the path at `index` of a route that has more than one. The caller selects again.
    pub(super) fn remove(&mut self, store: &mut PathStore, index: usize) -> Path {
        let len = self.len();
        let block = self.path.attrs;
        let gone = store.shift(block, len, index);
        if len == 2 {
            self.path = store.get(block, 1)[0];
            self.state &= !SEVERAL;
            self.set_stamp(store.stamps(block, 1).next().unwrap_or_default());
            store.give(block);
            return gone;
        }
        if is_full(len - 1) {
            self.path.attrs = store.resize(block, len - 1, len - 1);
        }
        self.path.session -= 1;
        gone
    }

    /// Replaces the path at `index`; the new one is the newest, and changed `now`.
    pub(super) fn replace(&mut self, store: &mut PathStore, index: usize, path: Path, now: Stamp) -> Path {
        if !self.is_several() {
            self.set_stamp(now);
            return std::mem::replace(&mut self.path, path);
        }
        let len = self.len();
        let gone = store.shift(self.path.attrs, len, index);
        store.set(self.path.attrs, len - 1, path, now);
        gone
    }

    /// Frees its block in the store.
    pub(super) fn clear(&self, store: &mut PathStore) {
        if self.is_several() {
            store.give(self.path.attrs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::{V4, V6};

    fn path(n: u16) -> Path {
        Path { attrs: u32::from(!n), session: n, hint: n ^ 7 }
    }

    #[test]
    fn sizes_are_what_the_budget_counts_on() {
        assert_eq!((size_of::<Route<V4>>(), size_of::<Route<V6>>()), (16, 28));
    }

    #[test]
    fn the_default_route_is_not_nothing() {
        let route = Route::<V4>::new(Prefix::default_route(), path(1), true, Stamp(0));
        assert!(route.is(Prefix::default_route()) && !Route::<V4>::empty().is(Prefix::default_route()));
    }

    #[test]
    fn a_gate_that_waits_takes_the_place_of_a_stamp() {
        let mut store = PathStore::stamped();
        let mut route = Route::<V4>::new(Prefix::default_route(), path(1), true, Stamp(7));
        let stamps =
            |route: &Route<V4>, store: &PathStore| -> Vec<Option<Stamp>> { route.stamps(store).collect() };
        let waiting = Gate::of_parts(0xa0, 0x1ffe);
        route.set_gate(waiting, Stamp(8));
        assert_eq!((route.gate(), stamps(&route, &store)), (waiting, vec![None]));
        // An unknown one is taken for one of now; those of a block stay.
        route.push(&mut store, path(2), Stamp(9));
        assert_eq!((route.gate(), stamps(&route, &store)), (waiting, vec![Some(Stamp(9)); 2]));
        route.set_gate(Gate::OPEN, Stamp(10));
        assert_eq!(stamps(&route, &store), vec![Some(Stamp(9)); 2]);
        route.remove(&mut store, 1);
        assert_eq!(stamps(&route, &store), [Some(Stamp(9))]);
        route.set_gate(waiting, Stamp(11));
        route.set_gate(Gate::of_parts(0x20, 5), Stamp(12));
        assert_eq!((route.gate(), stamps(&route, &store)), (Gate::of_parts(0x20, 0), vec![Some(Stamp(12))]));
        assert!(!route.is_idle() && route.is_usable());
    }

    proptest! {
        // Two routes that share the store behave as two vectors, and leave nothing behind.
        #[test]
        fn routes_are_vectors(steps in prop::collection::vec((0..2usize, 0..3u8, any::<prop::sample::Index>()), 0..200)) {
            let mut store = PathStore::stamped();
            let stamp = |path: &Path| Stamp(path.session * 3);
            let new = |n: u16| Route::<V4>::new(Prefix::new(u32::from(n) << 24, 8), path(n), true, stamp(&path(n)));
            let mut routes = [new(0), new(1)];
            let mut models = [vec![path(0)], vec![path(1)]];
            for (n, (which, what, at)) in steps.into_iter().enumerate() {
                let (route, model) = (&mut routes[which], &mut models[which]);
                let (at, new) = (at.index(model.len()), path(n as u16 + 2));
                let now = stamp(&new);
                match what {
                    0 if model.len() > 1 => prop_assert_eq!(route.remove(&mut store, at), model.remove(at)),
                    1 => {
                        prop_assert_eq!(route.replace(&mut store, at, new, now), model.remove(at));
                        model.push(new);
                    }
                    _ => {
                        route.push(&mut store, new, now);
                        model.push(new);
                    }
                }
                let (selected, usable) = (n % model.len(), n % 3 > 0);
                route.set_selected(selected, usable);
                prop_assert_eq!((route.selected(), route.best()), (selected, usable.then_some(selected)));
                for (route, model) in routes.iter().zip(&models) {
                    prop_assert_eq!(route.paths(&store), &model[..]);
                    let stamps: Vec<Option<Stamp>> = model.iter().map(|path| Some(stamp(path))).collect();
                    prop_assert_eq!(route.stamps(&store).collect::<Vec<_>>(), stamps);
                }
            }
            // Made of its paths at once, one is the same.
            for (route, model) in routes.iter().zip(&models) {
                let stamps: Vec<Stamp> = model.iter().map(stamp).collect();
                let made = Route::<V4>::of(
                    route.prefix(), &mut store, model, &stamps, route.selected(), route.is_usable(),
                );
                prop_assert_eq!(made.paths(&store), &model[..]);
                prop_assert_eq!(made.stamps(&store).flatten().collect::<Vec<_>>(), stamps);
                prop_assert_eq!((made.prefix(), made.selected(), made.best()), (route.prefix(), route.selected(), route.best()));
                made.clear(&mut store);
            }
            routes.iter().for_each(|route| route.clear(&mut store));
            prop_assert_eq!(store.used(), 0);
        }
    }
}
