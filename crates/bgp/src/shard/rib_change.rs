//! A RIB manager begins or ends while sessions last.
//!
//! It begins in two steps, so that no neighbour loses a route that will resolve. First each shard feeds its routes while
//! every next hop counts as reachable. When all shards have done that, they register their next hops, and the first
//! reports come from a RIB that has every route, also those by which other next hops resolve.
//!
//! At its end every next hop is reachable again, and whatever waited for a dataplane is advertised.

use super::route::Route;
use super::{Core, Shard, ShardOut};
use ribtide_prefix::BgpFamily;

impl Shard {
    /// A RIB manager has begun: the shard feeds it every route, in steps. Next hops stay reachable without its reports
    /// until [`Shard::begin_tracking`].
    pub fn begin_feed(&mut self, out: &mut ShardOut) {
        out.begin_feed();
        self.core.attrs.hops.separate();
        self.work.feed();
    }

    /// Whether routes are left to feed after [`Shard::begin_feed`].
    pub fn is_feeding(&self) -> bool {
        self.work.is_feeding()
    }

    /// Registers every next hop with the RIB manager. The state of each stays as it is until the first report.
    pub fn begin_tracking(&mut self, out: &mut ShardOut) {
        out.begin_next_hops();
        self.core.attrs.hops.begin_tracking();
        self.core.clear_out(out);
    }

    /// The RIB manager has ended, and the caller has handled all its messages. Its unsent feed is dropped, and routes
    /// that waited for it are advertised, in steps.
    pub fn end_feed(&mut self, out: &mut ShardOut) {
        self.suppress(false, out);
        out.end_feed();
        self.core.unanswered = Default::default();
        if self.core.attrs.hops.end_tracking() {
            self.work.redecide();
        }
        self.work.unfeed(self.core.several);
        self.core.clear_out(out);
    }
}

impl Core {
    /// Gives paths whose next hop lies inside the prefix of the route an entry of their own, in the state that it would
    /// have without a RIB manager. [`super::next_hops`] has the reason.
    pub(super) fn separate_paths<F: BgpFamily>(&mut self, route: &mut Route<F>) {
        let prefix = route.prefix();
        for at in 0..route.len() {
            let path = route.paths(&self.paths)[at];
            let shared = self.is_recursive(path.session) && self.attrs.exclude(path.attrs).is_none();
            if !shared || !self.attrs.is_inside(path.attrs, prefix) {
                continue;
            }
            let (attrs, path_id) = (self.attrs.get(path.attrs).clone(), self.attrs.path_id(path.attrs));
            let number = self.attrs.acquire(&attrs, path_id, Some(prefix.any()));
            self.attrs.retain::<F>(number, true, 1);
            self.attrs.release_ref(number);
            route.set_attrs_of_same_rank(&mut self.paths, at, number);
            self.release::<F>(path);
            self.ranked.note(prefix);
        }
    }
}
