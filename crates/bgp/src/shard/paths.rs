//! Where the paths of a prefix are: in the table's own entry while there is one, in a block of about the right
//! size beyond.
//!
//! A path is eight bytes. Blocks of one size lie side by side in one vector, so that neither a path nor a
//! prefix is an allocation of its own.

use crate::peer::PeerId;

/// One path: who sent it and with which attributes (a number of the shard's own attribute table).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Path {
    pub(super) peer: PeerId,
    pub(super) attrs: u32,
}

/// What the table holds for a prefix: its paths from the oldest to the newest, and which is best.
#[derive(Debug)]
pub(super) struct Route {
    /// The path if there is one; otherwise its `attrs` is the number of the block.
    inline: Path,
    len: u32,
    /// Index of the best path, or [`Route::NO_BEST`].
    best: u32,
}

impl Route {
    const NO_BEST: u32 = u32::MAX;

    /// A route of one path, not yet judged.
    pub(super) fn new(path: Path) -> Route {
        Route { inline: path, len: 1, best: Route::NO_BEST }
    }

    /// Index of the best path.
    pub(super) fn best(&self) -> Option<usize> {
        (self.best != Route::NO_BEST).then_some(self.best as usize)
    }

    /// Sets the index of the best path.
    pub(super) fn set_best(&mut self, best: Option<usize>) {
        self.best = best.map_or(Route::NO_BEST, |index| index as u32);
    }

    /// How many paths it has; never 0 while it is in the table.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

/// The blocks of all routes with more than one path.
#[derive(Default)]
pub(super) struct PathStore {
    sizes: Vec<Size>,
}

/// Blocks of one size, and which of them are unused.
#[derive(Default)]
struct Size {
    paths: Vec<Path>,
    free: Vec<u32>,
}

/// Which size holds `len` paths: the sizes are 2, 3, 4, 6, 8, 12, 16, 24 and so on, so that at most a third of a
/// block is empty.
fn size_for(len: usize) -> usize {
    (0..).find(|size| capacity(*size) >= len).unwrap_or_default()
}

/// How many paths a block of this size holds.
fn capacity(size: usize) -> usize {
    (2 + (size & 1)) << (size >> 1)
}

impl PathStore {
    /// The paths of `route`, from the oldest to the newest.
    pub(super) fn paths<'a>(&'a self, route: &'a Route) -> &'a [Path] {
        if route.len == 1 {
            return std::slice::from_ref(&route.inline);
        }
        let size = size_for(route.len());
        let start = route.inline.attrs as usize * capacity(size);
        &self.sizes[size].paths[start..start + route.len()]
    }

    /// Adds a path as the newest. The index of the best one stays.
    pub(super) fn push(&mut self, route: &mut Route, path: Path) {
        let len = route.len();
        if len == 1 {
            let block = self.take(0);
            let paths = self.block(0, block);
            (paths[0], paths[1]) = (route.inline, path);
            route.inline.attrs = block;
        } else {
            let (old, new) = (size_for(len), size_for(len + 1));
            if old != new {
                route.inline.attrs = self.move_block(route.inline.attrs, old, new, len);
            }
            self.block(new, route.inline.attrs)[len] = path;
        }
        route.len += 1;
    }

    /// Takes out the path at `index` of a route that has more than one. The caller sets the best one.
    pub(super) fn remove(&mut self, route: &mut Route, index: usize) -> Path {
        let len = route.len();
        let old = size_for(len);
        let block = route.inline.attrs;
        let paths = &mut self.block(old, block)[..len];
        let gone = paths[index];
        paths.copy_within(index + 1.., index);
        route.len -= 1;
        if route.len == 1 {
            route.inline = paths[0];
            self.sizes[old].free.push(block);
        } else {
            let new = size_for(len - 1);
            if old != new {
                route.inline.attrs = self.move_block(block, old, new, len - 1);
            }
        }
        gone
    }

    /// Gives back what `route` has of the store.
    pub(super) fn clear(&mut self, route: Route) {
        if route.len() > 1 {
            self.sizes[size_for(route.len())].free.push(route.inline.attrs);
        }
    }

    /// Puts `path` in the place of the one at `index`, as the newest.
    pub(super) fn replace(&mut self, route: &mut Route, index: usize, path: Path) -> Path {
        let len = route.len();
        if len == 1 {
            return std::mem::replace(&mut route.inline, path);
        }
        let paths = &mut self.block(size_for(len), route.inline.attrs)[..len];
        let gone = paths[index];
        paths.copy_within(index + 1.., index);
        paths[len - 1] = path;
        gone
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let of = |size: &Size| size.paths.capacity() * size_of::<Path>() + size.free.capacity() * 4;
        self.sizes.iter().map(of).sum()
    }

    /// How many blocks are in use.
    #[cfg(test)]
    fn used(&self) -> usize {
        let blocks = |(i, size): (usize, &Size)| size.paths.len() / capacity(i) - size.free.len();
        self.sizes.iter().enumerate().map(blocks).sum()
    }

    fn block(&mut self, size: usize, block: u32) -> &mut [Path] {
        let capacity = capacity(size);
        let start = block as usize * capacity;
        &mut self.sizes[size].paths[start..start + capacity]
    }

    /// An unused block.
    fn take(&mut self, size: usize) -> u32 {
        if self.sizes.len() <= size {
            self.sizes.resize_with(size + 1, Size::default);
        }
        let Size { paths, free } = &mut self.sizes[size];
        free.pop().unwrap_or_else(|| {
            let block = (paths.len() / capacity(size)) as u32;
            paths.resize(paths.len() + capacity(size), Path { peer: PeerId(0), attrs: 0 });
            block
        })
    }

    fn move_block(&mut self, block: u32, from: usize, to: usize, len: usize) -> u32 {
        let new = self.take(to);
        for i in 0..len {
            let path = self.block(from, block)[i];
            self.block(to, new)[i] = path;
        }
        self.sizes[from].free.push(block);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(n: u32) -> Path {
        Path { peer: PeerId(n), attrs: !n }
    }

    #[test]
    fn sizes_are_what_the_budget_counts_on() {
        assert_eq!((size_of::<Path>(), size_of::<Route>()), (8, 16));
        assert_eq!((0..8).map(capacity).collect::<Vec<_>>(), [2, 3, 4, 6, 8, 12, 16, 24]);
        assert_eq!((2..10).map(size_for).collect::<Vec<_>>(), [0, 1, 2, 3, 3, 4, 4, 5]);
    }

    proptest! {
        // Two routes that share the store behave as two vectors, and leave nothing behind.
        #[test]
        fn routes_are_vectors(steps in prop::collection::vec((0..2usize, 0..3u8, any::<prop::sample::Index>()), 0..200)) {
            let mut store = PathStore::default();
            let mut routes = [Route::new(path(0)), Route::new(path(1))];
            let mut models = [vec![path(0)], vec![path(1)]];
            for (n, (which, what, at)) in steps.into_iter().enumerate() {
                let (route, model) = (&mut routes[which], &mut models[which]);
                let (at, new) = (at.index(model.len()), path(n as u32 + 2));
                match what {
                    0 if model.len() > 1 => prop_assert_eq!(store.remove(route, at), model.remove(at)),
                    1 => {
                        prop_assert_eq!(store.replace(route, at, new), model.remove(at));
                        model.push(new);
                    }
                    _ => {
                        store.push(route, new);
                        model.push(new);
                    }
                }
                for (route, model) in routes.iter().zip(&models) {
                    prop_assert_eq!(store.paths(route), &model[..]);
                }
            }
            for route in &mut routes {
                while route.len() > 1 {
                    store.remove(route, 0);
                }
            }
            prop_assert_eq!(store.used(), 0);
        }
    }
}
