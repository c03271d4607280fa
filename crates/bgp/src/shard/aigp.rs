//! Distances to the next hops of paths with an accumulated IGP metric (RFC 7311).
//!
//! A speaker that sets itself as the next hop adds its distance to the former next hop (section 3.4.3), so what peers get
//! changes with the distance. Workers derive all that they have sent from the attribute sets that they were told. So the
//! distance is part of the set ([`AttrSet::with_distance`]), and a path whose next hop becomes nearer or farther changes
//! to another set. Sets without the metric have none and are shared as before.

use super::Core;
use super::paths::Path;
use super::route::Route;
use crate::attr::AttrSet;
use ribtide_prefix::BgpFamily;
use smallvec::SmallVec;

impl Core {
    /// The number of attributes that came in a session; see [`AttrTable::acquire`](super::attrs::AttrTable::acquire).
    #[inline]
    pub(super) fn acquire(&mut self, attrs: &AttrSet, path_id: u32, session: u16) -> u32 {
        if attrs.has_aigp() && !self.sessions.is_originated(session) {
            return self.acquire_measured(attrs, path_id, session);
        }
        self.attrs.acquire(attrs, path_id, None)
    }

    /// The same with the distance to the next hop; 0 while it is not known, and the path not in use.
    #[cold]
    fn acquire_measured(&mut self, attrs: &AttrSet, path_id: u32, session: u16) -> u32 {
        let distance = self.attrs.hops.distance_to(attrs.next_hop().addr(), self.is_recursive(session));
        self.attrs.acquire(&attrs.with_distance(Some(distance.unwrap_or(0))), path_id, None)
    }

    /// Gives paths of a route with an accumulated IGP metric the present distances to their next hops. Returns the former
    /// paths, which the caller releases.
    #[inline]
    pub(super) fn measure<F: BgpFamily>(&mut self, route: &mut Route<F>) -> SmallVec<[Path; 2]> {
        if self.attrs.has_aigp() { self.measure_paths(route) } else { SmallVec::new() }
    }

    #[cold]
    fn measure_paths<F: BgpFamily>(&mut self, route: &mut Route<F>) -> SmallVec<[Path; 2]> {
        let mut former = SmallVec::new();
        for at in 0..route.len() {
            let path = route.paths(&self.paths)[at];
            let recursive = self.is_recursive(path.session);
            let attrs = self.attrs.get(path.attrs);
            // An unreachable next hop has no distance. Its path is not in use.
            let distance = self.attrs.distance(path.attrs, recursive);
            let (Some(known), Some(distance)) = (attrs.distance(), distance) else { continue };
            if known == distance {
                continue;
            }
            let attrs = attrs.with_distance(Some(distance));
            let (path_id, exclude) = (self.attrs.path_id(path.attrs), self.attrs.exclude(path.attrs));
            let number = self.attrs.acquire(&attrs, path_id, exclude);
            self.attrs.retain::<F>(number, recursive, 1);
            self.attrs.release_ref(number);
            route.set_attrs_of_same_rank(&mut self.paths, at, number);
            former.push(path);
        }
        former
    }
}
