//! Route refreshes whose begin and end a peer marks (RFC 7313): what it has not sent again by the end is removed.
//!
//! A path has no room for a mark. So from the begin on the shard notes the received paths of the family, and after the end a scan
//! removes the paths of the session that are not noted. Outside of a refresh there are no notes, and an operation of an UPDATE
//! costs one test of a list that is empty.

use super::route::Route;
use super::{Core, Removed, Shard, ShardOut};
use crate::peer::PeerId;
use ribtide_prefix::{AfiSafi, BgpFamilies, BgpFamily, Prefix, Set, per_bgp_family};

per_bgp_family! {
    /// Prefixes with their path identifiers, 0 without one.
    struct Notes<F> = Set<(Prefix<F>, u32)>;
}

/// A refresh of a session.
struct Refresh {
    session: u16,
    family: AfiSafi,
    /// Whether its end came, and a scan is under way.
    ended: bool,
    /// Prefixes of its family announced since its begin.
    notes: BgpFamilies<Notes>,
}

/// The refreshes under way.
#[derive(Default)]
pub(super) struct Refreshes(Vec<Refresh>);

impl Refreshes {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a family of a session: one at most that lasts, beside some that have ended.
    fn of(&mut self, session: u16, family: AfiSafi) -> impl Iterator<Item = &mut Refresh> {
        self.0.iter_mut().filter(move |refresh| refresh.session == session && refresh.family == family)
    }

    /// Another begin starts over. Paths that an ended refresh has left out are removed
    /// nevertheless.
    fn begin(&mut self, session: u16, family: AfiSafi) {
        self.0.retain(|refresh| refresh.ended || refresh.session != session || refresh.family != family);
        self.0.push(Refresh { session, family, ended: false, notes: BgpFamilies::default() });
    }

    /// Returns whether there is a refresh to end.
    fn end(&mut self, session: u16, family: AfiSafi) -> bool {
        let lasts = self.of(session, family).find(|refresh| !refresh.ended);
        lasts.map(|refresh| refresh.ended = true).is_some()
    }

    /// The session ended. Paths that an ended refresh has left out are removed nevertheless.
    pub(super) fn session_ended(&mut self, session: u16) {
        self.0.retain(|refresh| refresh.ended || refresh.session != session);
    }

    /// Another session has this number.
    pub(super) fn forget(&mut self, session: u16) {
        self.0.retain(|refresh| refresh.session != session);
    }

    /// The scan has seen all routes.
    pub(super) fn scanned(&mut self) {
        self.0.retain(|refresh| !refresh.ended);
    }

    /// Notes what an operation announced, or forgets what it withdrew.
    #[cold]
    #[inline(never)]
    pub(super) fn note<F: BgpFamily>(
        &mut self,
        session: u16,
        path_id: u32,
        prefixes: &[Prefix<F>],
        announced: bool,
    ) {
        for refresh in self.of(session, F::ID) {
            let notes = refresh.notes.get_mut::<F>();
            let items = prefixes.iter().map(|prefix| (*prefix, path_id));
            match announced {
                true => notes.extend(items),
                // So there are no more notes than paths.
                false => items.for_each(|item| {
                    notes.remove(&item);
                }),
            }
        }
    }

    /// Whether an ended refresh has left a path out.
    fn is_gone<F: BgpFamily>(&self, session: u16, item: (Prefix<F>, u32)) -> bool {
        let concerned =
            |refresh: &&Refresh| refresh.session == session && refresh.family == F::ID && refresh.ended;
        self.0.iter().filter(concerned).any(|refresh| !refresh.notes.get::<F>().contains(&item))
    }

    /// Takes out the note of a path that moves to another shard; returns whether there was one, of a refresh that has not ended.
    pub(super) fn take<F: BgpFamily>(&mut self, session: u16, item: (Prefix<F>, u32)) -> bool {
        let mut lasts = false;
        for refresh in self.of(session, F::ID) {
            lasts |= refresh.notes.get_mut::<F>().remove(&item) && !refresh.ended;
        }
        lasts
    }

    /// A path came from another shard. After the end it is none to remove: that shard has removed its own.
    pub(super) fn adopted<F: BgpFamily>(&mut self, session: u16, item: (Prefix<F>, u32)) {
        for refresh in self.of(session, F::ID).filter(|refresh| refresh.ended) {
            refresh.notes.get_mut::<F>().insert(item);
        }
    }
}

impl Shard {
    pub(super) fn begin_refresh(&mut self, peer: PeerId, session: u32, family: AfiSafi) {
        if let Some(number) = self.core.sessions.number(peer, session) {
            self.core.refreshes.begin(number, family);
        }
    }

    pub(super) fn end_refresh(&mut self, peer: PeerId, session: u32, family: AfiSafi) {
        let Some(number) = self.core.sessions.number(peer, session) else { return };
        if self.core.refreshes.end(number, family) {
            self.work.remove_unrefreshed();
        }
    }
}

impl Core {
    /// Removes the paths that an ended refresh has left out. Returns whether a path is left.
    pub(super) fn remove_unrefreshed<F: BgpFamily>(
        &mut self,
        route: &mut Route<F>,
        out: &mut ShardOut,
    ) -> bool {
        let gone = |core: &Core, route: &Route<F>| {
            let item = |attrs| (route.prefix(), core.attrs.path_id(attrs));
            let mut paths = route.paths(&core.paths).iter();
            paths.position(|path| core.refreshes.is_gone::<F>(path.session, item(path.attrs)))
        };
        while let Some(at) = gone(self, route) {
            let path = route.paths(&self.paths)[at];
            let (info, path_id) = (&self.sessions.get(path.session).info, self.attrs.path_id(path.attrs));
            out.removed(Removed {
                peer: info.id,
                session: info.session,
                family: F::ID,
                prefix: route.prefix().any(),
                path_id,
            });
            if !self.forget(route, at, out) {
                return false;
            }
        }
        true
    }
}
