//! What the RIB manager gets of a prefix: the next hops that it is forwarded by, and no news where they stay the same.
//!
//! It gets the next hop of the selected path also where that path cannot be used. So a next hop that is unreachable does
//! not take the route away that may be the reason for it, and both come back together (`docs/adr/0020-next-hop-resolution.md`).
//!
//! Where only the best path matters, that is its next hop, and a comparison of two numbers tells whether it is another.
//! With multipath or backup paths the others matter too. What each does for forwarding is noted in two bits of the path
//! itself, so that what the RIB manager has of a prefix is known whatever happened to sessions and next hops since.

use super::paths::{Part, Path};
use super::route::Route;
use super::{Core, SelectedPath, ShardOut};
use crate::decision::{self, Candidate};
use crate::link_bandwidth;
use crate::message::FeedSet;
use crate::peer::FeedKind;
use ribtide_prefix::Family;
use smallvec::SmallVec;

/// What the RIB manager has of a prefix, where more than the best path matters.
pub(super) type Fed = Option<FeedSet>;

impl Core {
    /// Whether the RIB manager gets more than the best path.
    fn feeds_several(&self, out: &ShardOut) -> bool {
        self.options.forwards_by_several() && out.feeds()
    }

    /// To be called before the paths of a route change, for [`Core::feed`] afterwards.
    #[inline]
    pub(super) fn note_fed<F: Family>(&mut self, route: &Route<F>, out: &ShardOut) {
        if self.feeds_several(out) {
            self.note_set(route);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_set<F: Family>(&mut self, route: &Route<F>) {
        self.fed = self.fed_set(route);
    }

    /// What the RIB manager has of a route.
    pub(super) fn fed_set<F: Family>(&self, route: &Route<F>) -> Fed {
        let selected = route.selected();
        let paths = route.paths(&self.paths);
        let others = || paths.iter().enumerate().filter(|(at, _)| *at != selected).map(|(_, path)| *path);
        let members = others().filter(|path| path.part() == Part::Member);
        let backup = others().find(|path| path.part() == Part::Backup);
        Some(self.feed_set(paths[selected], members, backup))
    }

    fn feed_set(&self, best: Path, members: impl Iterator<Item = Path>, backup: Option<Path>) -> FeedSet {
        let address = |path: Path| self.attrs.next_hop(path.attrs);
        let ways: SmallVec<[Path; 8]> = std::iter::once(best).chain(members).collect();
        let mut next_hops: SmallVec<_> = ways.iter().map(|path| (address(*path), 1)).collect();
        if self.options.link_bandwidth && ways.len() > 1 {
            let bandwidths = ways.iter().map(|path| self.attrs.get(path.attrs).link_bandwidth());
            let shares = link_bandwidth::shares(bandwidths);
            next_hops.iter_mut().zip(shares).for_each(|((_, share), of_path)| *share = of_path);
        }
        next_hops.sort_unstable();
        let backup = backup.map(|path| (address(path), self.feed_kind(path)));
        FeedSet { next_hops, kind: self.feed_kind(best), backup }
    }

    /// Tells the RIB manager what it has not of a route whose selected path was `old`, and that was noted before if it was
    /// in the table. `new` is the selected path, or nothing if the route is about to go. Whether that was anything.
    pub(super) fn feed<F: Family>(
        &mut self,
        route: &Route<F>,
        [old, new]: [Option<SelectedPath>; 2],
        out: &mut ShardOut,
    ) -> bool {
        if !out.feeds() {
            return false;
        }
        // A path that can be used from now on waits for dataplanes to confirm it, though its next hops are known there.
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

    #[cold]
    #[inline(never)]
    fn feed_several<F: Family>(
        &mut self,
        route: &Route<F>,
        new: Option<SelectedPath>,
        again: bool,
        out: &mut ShardOut,
    ) -> bool {
        let (before, after) = (self.fed.take(), new.map(|_| self.assign(route)));
        let news = again || before != after;
        if news {
            out.feed_set(route.prefix(), after.as_ref());
        }
        news
    }

    /// Feeds a route as it is, whatever the RIB manager has of it.
    pub(super) fn feed_anew<F: Family>(&self, route: &Route<F>, best: Path, out: &mut ShardOut) {
        if self.feeds_several(out) {
            out.feed_set(route.prefix(), self.fed_set(route).as_ref());
        } else {
            let hop = (self.attrs.next_hop(best.attrs), self.feed_kind(best));
            out.feed(route.prefix(), Some(hop));
        }
    }

    /// Chooses the paths that a route is forwarded by beside the selected one, and notes it with them.
    fn assign<F: Family>(&mut self, route: &Route<F>) -> FeedSet {
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

    /// Which of several paths share the traffic with the best one, and which stands in.
    fn choose(&self, paths: &[Path], best: usize) -> (SmallVec<[usize; 8]>, Option<usize>) {
        let hop = |at: usize| self.attrs.next_hop(paths[at].attrs);
        let most = usize::from(self.options.maximum_paths);
        let mut ways: SmallVec<[usize; 8]> = SmallVec::from_slice(&[best]);
        if most > 1 {
            // Whoever is of the best one's class has its hint.
            let alike = self.usable_of(paths).filter(|(_, path)| path.worth() == paths[best].worth());
            let (alike, judged): (SmallVec<[usize; 8]>, SmallVec<[Candidate<'_>; 8]>) =
                alike.map(|(at, path)| (at, self.candidate(path))).unzip();
            let first = alike.iter().position(|at| *at == best).unwrap_or_default();
            for other in decision::multipath(&judged[..], first, &self.options) {
                let other = alike[other];
                if ways.len() < most && ways.iter().all(|way| hop(*way) != hop(other)) {
                    ways.push(other);
                }
            }
        }
        let mut backup = None;
        if self.options.backup_path {
            let aside = |at: usize| ways.iter().all(|way| hop(*way) != hop(at));
            backup = self.best_among(self.usable_of(paths).filter(|(at, _)| aside(*at)));
        }
        ways.remove(0);
        (ways, backup)
    }

    pub(super) fn feed_kind(&self, path: Path) -> FeedKind {
        self.sessions.get(path.session).info.feed_kind()
    }

    /// Whether the RIB manager sees no difference between the two.
    fn same_feed(&self, old: Option<Path>, new: Option<Path>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
        self.attrs.same_next_hop(old.attrs, new.attrs) && self.feed_kind(old) == self.feed_kind(new)
    }
}
