//! The feed: the next hops by which the RIB manager forwards a prefix, sent only when they change.
//!
//! The feed has the next hop of the selected path even if that path is unusable. So an unreachable
//! next hop does not remove a route that may be the reason for it, and both return together
//! (`docs/adr/0020-next-hop-resolution.md`).
//!
//! An originated path has no feed where the router forwards by routes of other protocols. An aggregate
//! discards what no more specific route forwards, so that no packet goes in a circle; a path of the API
//! has the next hop that it came with, or discards too. The unspecified address stands for that.
//!
//! Where only the best path matters, a comparison of two numbers shows a change. With multipath or
//! a backup path the others matter too. Two bits of each path note its part in forwarding, so the
//! last feed of a prefix is known whatever happened to sessions and next hops since.

use super::paths::{Part, Path};
use super::route::Route;
use super::{Core, SelectedPath, ShardOut};
use crate::decision::{self, Candidate};
use crate::link_bandwidth;
use crate::message::FeedSet;
use crate::peer::FeedKind;
use ribtide_prefix::BgpFamily;
use smallvec::SmallVec;

/// The last feed of a prefix, where more than the best path matters.
pub(super) type Fed = Option<FeedSet>;

impl Core {
    /// Whether the feed has more than the best path.
    fn feeds_several(&self, out: &ShardOut) -> bool {
        self.several && out.feeds()
    }

    /// Notes the last feed of a route, for [`Core::feed`]. Call it before the paths of the route
    /// change.
    #[inline]
    pub(super) fn note_fed<F: BgpFamily>(&mut self, route: &Route<F>, out: &ShardOut) {
        if self.feeds_several(out) {
            self.note_set(route);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_set<F: BgpFamily>(&mut self, route: &Route<F>) {
        self.fed = self.fed_set(route);
    }

    /// The last feed of a route.
    pub(super) fn fed_set<F: BgpFamily>(&self, route: &Route<F>) -> Fed {
        let selected = route.selected();
        let paths = route.paths(&self.paths);
        if self.is_not_fed(paths[selected]) {
            return None;
        }
        let others = || paths.iter().enumerate().filter(|(at, _)| *at != selected).map(|(_, path)| *path);
        let members = others().filter(|path| path.part() == Part::Member);
        let backup = others().find(|path| path.part() == Part::Backup);
        Some(self.feed_set(paths[selected], members, backup))
    }

    fn feed_set(&self, best: Path, members: impl Iterator<Item = Path>, backup: Option<Path>) -> FeedSet {
        let address = |path: Path| self.attrs.next_hop(path.attrs);
        let chosen: SmallVec<[Path; 8]> = std::iter::once(best).chain(members).collect();
        let mut next_hops: SmallVec<_> = chosen.iter().map(|path| (address(*path), 1)).collect();
        if self.options.link_bandwidth && chosen.len() > 1 {
            let bandwidths = chosen.iter().map(|path| self.attrs.get(path.attrs).link_bandwidth());
            let shares = link_bandwidth::shares(bandwidths);
            next_hops.iter_mut().zip(shares).for_each(|((_, share), of_path)| *share = of_path);
        }
        next_hops.sort_unstable();
        let backup = backup.map(|path| (address(path), self.feed_kind(path)));
        FeedSet { next_hops, kind: self.feed_kind(best), backup }
    }

    /// Feeds a route whose selected path was `old`, if its feed changed. `new` is the selected
    /// path, or `None` if the route is about to go. Returns whether the feed changed.
    pub(super) fn feed<F: BgpFamily>(
        &mut self,
        route: &Route<F>,
        [old, new]: [Option<SelectedPath>; 2],
        out: &mut ShardOut,
    ) -> bool {
        if !out.feeds() {
            return false;
        }
        let mut old = old;
        if self.sessions.any_originated() {
            if new.is_some_and(|new| self.is_not_fed(new.path)) {
                return self.feed_nothing(route, old, out);
            }
            old = old.filter(|old| !self.is_not_fed(old.path));
        }
        // A path that becomes usable needs a fence, though its next hops are in the RIB already.
        let best = |selected: Option<SelectedPath>| selected.and_then(SelectedPath::best);
        let again = self.gates.is_on() && best(old).is_none() && best(new).is_some();
        if self.feeds_several(out) {
            return self.feed_several(route, new, again, out);
        }
        let [old, new] = [old, new].map(|selected| selected.map(|selected| selected.path));
        let news = again || (old != new && !self.same_feed(old, new));
        if news {
            let hop = |path: Path| (self.attrs.next_hop(path.attrs), self.feed_kind(path));
            out.feed(route.prefix(), new.map(hop));
        }
        news
    }

    /// An originated path without feed is selected instead of `old`: BGP has no route for the RIB manager. Returns
    /// whether the path needs a fence, because no originated one was selected before.
    #[cold]
    fn feed_nothing<F: BgpFamily>(
        &mut self,
        route: &Route<F>,
        old: Option<SelectedPath>,
        out: &mut ShardOut,
    ) -> bool {
        self.fed = None;
        self.clear_parts(route);
        if old.is_some_and(|old| self.is_not_fed(old.path)) {
            return false;
        }
        // With FIB suppression also where nothing was fed: what the RIB manager knows of a named prefix is confirmed
        // before the fence, also that a dataplane has refused its route.
        if old.is_some() || self.gates.is_on() {
            out.feed(route.prefix(), None);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn feed_several<F: BgpFamily>(
        &mut self,
        route: &Route<F>,
        new: Option<SelectedPath>,
        again: bool,
        out: &mut ShardOut,
    ) -> bool {
        let (before, after) = (self.fed.take(), new.map(|_| self.assign(route)));
        // Shares of the last feed are not known while they are computed otherwise than before.
        let several = |fed: &Fed| fed.as_ref().is_some_and(|set| set.next_hops.len() > 1);
        let unsure = self.shares_changed && (several(&before) || several(&after));
        let news = again || unsure || before != after;
        if news {
            out.feed_set(route.prefix(), after.as_ref());
        }
        news
    }

    /// Feeds a route as it is, changed or not.
    pub(super) fn feed_again<F: BgpFamily>(&self, route: &Route<F>, best: Path, out: &mut ShardOut) {
        if self.is_not_fed(best) {
            return;
        }
        if self.feeds_several(out) {
            out.feed_set(route.prefix(), self.fed_set(route).as_ref());
        } else {
            let hop = (self.attrs.next_hop(best.attrs), self.feed_kind(best));
            out.feed(route.prefix(), Some(hop));
        }
    }

    /// Feeds a route to a RIB manager that has begun, and gives paths whose next hop lies inside the prefix an entry of
    /// their own. Nothing is advertised otherwise for that.
    pub(super) fn feed_first<F: BgpFamily>(&mut self, route: &mut Route<F>, out: &mut ShardOut) {
        self.separate_paths(route);
        let selected = self.selected_of(route).path;
        if self.feeds_several(out) && !self.is_not_fed(selected) {
            self.assign(route);
        }
        self.feed_again(route, selected, out);
    }

    /// No path of a route forwards.
    pub(super) fn clear_parts<F: BgpFamily>(&mut self, route: &Route<F>) {
        route.paths_mut(&mut self.paths).iter_mut().for_each(|path| path.set_part(Part::Nothing));
    }

    /// Selects the multipath members and the backup of a route, and notes them in its paths.
    fn assign<F: BgpFamily>(&mut self, route: &Route<F>) -> FeedSet {
        let (members, backup) = match route.best() {
            Some(best) if route.len() > 1 => self.choose(route.paths(&self.paths), best),
            _ => Default::default(),
        };
        for (at, path) in route.paths_mut(&mut self.paths).iter_mut().enumerate() {
            path.set_part(match at {
                _ if members.contains(&at) => Part::Member,
                _ if backup == Some(at) => Part::Backup,
                _ => Part::Nothing,
            });
        }
        let paths = route.paths(&self.paths);
        let members = members.iter().map(|at| paths[*at]);
        self.feed_set(paths[route.selected()], members, backup.map(|at| paths[at]))
    }

    /// The multipath members beside the best path, and the backup.
    fn choose(&self, paths: &[Path], best: usize) -> (SmallVec<[usize; 8]>, Option<usize>) {
        let hop = |at: usize| self.attrs.next_hop(paths[at].attrs);
        let alone = |path: Path| {
            // An originated path shares no traffic, and is no backup.
            self.is_originated(path) || self.attrs.is_alone(path.attrs, self.is_recursive(path.session))
        };
        if alone(paths[best]) {
            return Default::default();
        }
        let most = usize::from(self.options.maximum_paths);
        let mut chosen: SmallVec<[usize; 8]> = SmallVec::from_slice(&[best]);
        if most > 1 {
            // A path of the same class as the best one has the same hint.
            let alike = self.usable_of(paths).filter(|(_, path)| path.worth() == paths[best].worth());
            let alike = alike.filter(|(_, path)| !alone(*path));
            let (alike, candidates): (SmallVec<[usize; 8]>, SmallVec<[Candidate<'_>; 8]>) =
                alike.map(|(at, path)| (at, self.candidate(path))).unzip();
            let first = alike.iter().position(|at| *at == best).unwrap_or_default();
            for other in decision::multipath(&candidates[..], first, &self.options) {
                let other = alike[other];
                if chosen.len() < most && chosen.iter().all(|one| hop(*one) != hop(other)) {
                    chosen.push(other);
                }
            }
        }
        let mut backup = None;
        if self.options.backup_path {
            let aside = |at: usize| chosen.iter().all(|one| hop(*one) != hop(at));
            backup = self.best_among(paths, |at, path| aside(at) && !alone(path));
        }
        chosen.remove(0);
        (chosen, backup)
    }

    pub(super) fn feed_kind(&self, path: Path) -> FeedKind {
        let kind = self.sessions.get(path.session).feed_kind;
        match self.attrs.has_aigp() {
            true => FeedKind { aigp: self.fed_metric(path), ..kind },
            false => kind,
        }
    }

    #[cold]
    fn fed_metric(&self, path: Path) -> u32 {
        let metric = |metric: u64| metric.clamp(1, u32::MAX.into()) as u32;
        self.attrs.get(path.attrs).aigp().map_or(0, metric)
    }

    /// Whether two paths have the same feed.
    fn same_feed(&self, old: Option<Path>, new: Option<Path>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
        self.attrs.same_next_hop(old.attrs, new.attrs) && self.feed_kind(old) == self.feed_kind(new)
    }
}
