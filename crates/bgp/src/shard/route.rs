//! What the table holds for a prefix: its paths from the oldest to the newest, and which of them is selected.
//!
//! The selected path is the best one if any path is eligible. Otherwise it is the path that would be best if all next hops were
//! reachable: it is fed to the RIB manager, which resolves its next hop, and is not advertised.

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
    form: Form,
    /// Its FIB suppression state.
    pub(super) gate: Gate,
    /// The path, if there is one. With several paths, `attrs` is their block, `session` their
    /// number, and `hint` the index of the selected one.
    path: Path,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// No route.
    Empty,
    /// One path, and it is best.
    Best,
    /// One unusable path.
    Idle,
    /// Several, and the selected one is best.
    Many,
    /// Several, all unusable.
    ManyIdle,
}

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
        Route { bits: F::Bits::default(), len: 0, form: Form::Empty, gate: Gate::OPEN, path }
    }

    fn is_empty(&self) -> bool {
        self.form == Form::Empty
    }

    fn hash(&self, seed: &Seed) -> u32 {
        hash_of::<F>(self.bits, self.len, seed)
    }
}

impl<F: BgpFamily> Route<F> {
    /// A route of one path, which is selected. `best`: it is usable.
    pub(super) fn new(prefix: Prefix<F>, path: Path, best: bool) -> Route<F> {
        let form = if best { Form::Best } else { Form::Idle };
        Route { bits: prefix.bits(), len: prefix.len(), form, gate: Gate::OPEN, path }
    }

    /// A route of at least one path, with the index of the selected one and whether it is usable.
    pub(super) fn of(
        prefix: Prefix<F>,
        store: &mut PathStore,
        paths: &[Path],
        selected: usize,
        usable: bool,
    ) -> Route<F> {
        let mut route = Route::new(prefix, paths[0], usable);
        if paths.len() > 1 {
            let block = store.take(paths.len());
            store.get_mut(block, paths.len()).copy_from_slice(paths);
            route.path = Path { attrs: block, session: paths.len() as u16, hint: 0 };
            route.form = Form::Many;
            route.set_selected(selected, usable);
        }
        route
    }

    pub(super) fn prefix(&self) -> Prefix<F> {
        Prefix::new(self.bits, self.len)
    }

    /// Whether it is the route of this prefix.
    #[inline]
    pub(super) fn is(&self, prefix: Prefix<F>) -> bool {
        self.bits == prefix.bits() && self.len == prefix.len() && self.form != Form::Empty
    }

    /// Index of the selected path.
    pub(super) fn selected(&self) -> usize {
        match self.form {
            Form::Many | Form::ManyIdle => usize::from(self.path.hint),
            _ => 0,
        }
    }

    /// Whether the selected path is usable and so the best.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.form, Form::Best | Form::Many)
    }

    /// Index of the best path.
    pub(super) fn best(&self) -> Option<usize> {
        self.is_usable().then_some(self.selected())
    }

    /// Selects a path and sets whether it is usable.
    pub(super) fn set_selected(&mut self, selected: usize, usable: bool) {
        let several = self.is_several();
        self.form = match (several, usable) {
            (true, true) => Form::Many,
            (true, false) => Form::ManyIdle,
            (false, true) => Form::Best,
            (false, false) => Form::Idle,
        };
        if several {
            self.path.hint = selected as u16;
        }
    }

    fn is_several(&self) -> bool {
        matches!(self.form, Form::Many | Form::ManyIdle)
    }

    /// Whether it has one path, which is unusable.
    pub(super) fn is_idle(&self) -> bool {
        self.form == Form::Idle
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

    /// Adds a path as the newest. The selected one stays.
    pub(super) fn push(&mut self, store: &mut PathStore, path: Path) {
        let len = self.len();
        if !self.is_several() {
            let block = store.take(2);
            store.get_mut(block, 2).copy_from_slice(&[self.path, path]);
            self.form = if self.is_usable() { Form::Many } else { Form::ManyIdle };
            self.path = Path { attrs: block, session: 2, hint: 0 };
            return;
        }
        if is_full(len) {
            self.resize(store, len, len + 1, len);
        }
        store.get_mut(self.path.attrs, len + 1)[len] = path;
        self.path.session += 1;
    }

    /// Removes the path at `index` of a route that has more than one. The caller selects again.
    pub(super) fn remove(&mut self, store: &mut PathStore, index: usize) -> Path {
        let len = self.len();
        let paths = store.get_mut(self.path.attrs, len);
        let gone = paths[index];
        paths.copy_within(index + 1.., index);
        if len == 2 {
            let block = self.path.attrs;
            self.path = paths[0];
            self.form = if self.is_usable() { Form::Best } else { Form::Idle };
            store.give(block, 2);
            return gone;
        }
        if is_full(len - 1) {
            self.resize(store, len, len - 1, len - 1);
        }
        self.path.session -= 1;
        gone
    }

    /// Replaces the path at `index`; the new one is the newest.
    pub(super) fn replace(&mut self, store: &mut PathStore, index: usize, path: Path) -> Path {
        if !self.is_several() {
            return std::mem::replace(&mut self.path, path);
        }
        let len = self.len();
        let paths = store.get_mut(self.path.attrs, len);
        let gone = paths[index];
        paths.copy_within(index + 1.., index);
        paths[len - 1] = path;
        gone
    }

    /// Frees its block in the store.
    pub(super) fn clear(&self, store: &mut PathStore) {
        if self.is_several() {
            store.give(self.path.attrs, self.len());
        }
    }

    /// Moves `count` paths to a block of another size.
    fn resize(&mut self, store: &mut PathStore, from: usize, to: usize, count: usize) {
        let (old, new) = (self.path.attrs, store.take(to));
        store.copy(old, new, count);
        store.give(old, from);
        self.path.attrs = new;
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
        let route = Route::<V4>::new(Prefix::default_route(), path(1), true);
        assert!(route.is(Prefix::default_route()) && !Route::<V4>::empty().is(Prefix::default_route()));
    }

    proptest! {
        // Two routes that share the store behave as two vectors, and leave nothing behind.
        #[test]
        fn routes_are_vectors(steps in prop::collection::vec((0..2usize, 0..3u8, any::<prop::sample::Index>()), 0..200)) {
            let mut store = PathStore::default();
            let mut routes = [0, 1].map(|n| Route::<V4>::new(Prefix::new(n << 24, 8), path(n as u16), true));
            let mut models = [vec![path(0)], vec![path(1)]];
            for (n, (which, what, at)) in steps.into_iter().enumerate() {
                let (route, model) = (&mut routes[which], &mut models[which]);
                let (at, new) = (at.index(model.len()), path(n as u16 + 2));
                match what {
                    0 if model.len() > 1 => prop_assert_eq!(route.remove(&mut store, at), model.remove(at)),
                    1 => {
                        prop_assert_eq!(route.replace(&mut store, at, new), model.remove(at));
                        model.push(new);
                    }
                    _ => {
                        route.push(&mut store, new);
                        model.push(new);
                    }
                }
                let (selected, usable) = (n % model.len(), n % 3 > 0);
                route.set_selected(selected, usable);
                prop_assert_eq!((route.selected(), route.best()), (selected, usable.then_some(selected)));
                for (route, model) in routes.iter().zip(&models) {
                    prop_assert_eq!(route.paths(&store), &model[..]);
                }
            }
            // Made of its paths at once, one is the same.
            for (route, model) in routes.iter().zip(&models) {
                let made = Route::<V4>::of(route.prefix(), &mut store, model, route.selected(), route.is_usable());
                prop_assert_eq!(made.paths(&store), &model[..]);
                prop_assert_eq!((made.prefix(), made.selected(), made.best()), (route.prefix(), route.selected(), route.best()));
                made.clear(&mut store);
            }
            routes.iter().for_each(|route| route.clear(&mut store));
            prop_assert_eq!(store.used(), 0);
        }
    }
}
