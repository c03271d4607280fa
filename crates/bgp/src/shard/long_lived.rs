//! Long-lived stale paths (RFC 9494 section 4.2): the retained paths of a peer that was away for longer than its restart time.
//!
//! Each gets an attribute set with the community LLGR_STALE. So what follows from it needs no mark beside a path: the
//! decision process and export read the set, and a path of the peer's next session replaces it as any other.

use super::route::Route;
use super::{Core, Shard, ShardOut};
use crate::decision::LONG_LIVED_STALE_HINT;
use crate::peer::PeerId;
use ribtide_prefix::{BgpFamily, FamilySet};
use ribtide_wire::bgp::attribute::Community;

impl Shard {
    pub(super) fn long_lived(&mut self, peer: PeerId, session: u32, families: FamilySet) {
        let Some(number) = self.core.sessions.retained(peer, session) else { return };
        if !self.core.sessions.get(number).info.long_lived {
            return;
        }
        self.core.sessions.long_lived(number, families);
        self.work.mark_long_lived();
    }
}

impl Core {
    /// Marks the paths of a route that are long-lived stale now, and removes those with NO_LLGR. Returns whether a path is left.
    pub(super) fn mark_long_lived<F: BgpFamily>(&mut self, route: &mut Route<F>, out: &mut ShardOut) -> bool {
        let unmarked = |core: &Core, route: &Route<F>| {
            let mut paths = route.paths(&core.paths).iter();
            paths.position(|path| {
                core.sessions.get(path.session).is_long_lived::<F>()
                    && !core.attrs.get(path.attrs).llgr_stale()
            })
        };
        while let Some(at) = unmarked(self, route) {
            let attrs = route.paths(&self.paths)[at].attrs;
            match self.attrs.get(attrs).no_llgr() {
                true if !self.forget(route, at, out) => return false,
                true => {}
                false => self.mark_path(route, at, out),
            }
        }
        true
    }

    fn mark_path<F: BgpFamily>(&mut self, route: &mut Route<F>, at: usize, out: &mut ShardOut) {
        let old = self.selected_of(route);
        self.note_fed(route, out);
        let path = route.paths(&self.paths)[at];
        let marked = self.attrs.get(path.attrs).with_community(Community::LLGR_STALE);
        let (path_id, exclude) = (self.attrs.path_id(path.attrs), self.attrs.exclude(path.attrs));
        let attrs = self.attrs.acquire(&marked, path_id, exclude);
        self.attrs.retain::<F>(attrs, self.is_recursive(path.session), 1);
        let gone = route.set_attrs(&mut self.paths, at, (attrs, LONG_LIVED_STALE_HINT));
        self.decide(route);
        let new = self.selected_of(route);
        self.changed(route, Some(old), Some(new), out);
        self.release::<F>(gone);
        self.attrs.release_ref(attrs);
        self.ranked.note(route.prefix());
    }
}
