//! The sessions that a shard's paths come from, by small numbers of its own.
//!
//! A path names a session, not a peer: when a peer's next session begins before all paths of the former one have been
//! swept out, the two are not confused, and no session has to wait for the purge.
//!
//! The paths of an ended session may be retained (RFC 4724 section 4.2). They stay usable, and the peer's next session takes
//! them over one by one: its path of a prefix (and path identifier) replaces the retained one, and so does its withdrawal. A
//! sweep removes the rest. When the next session ends before that, both have retained paths (RFC 8538 section 4.1): the
//! sessions of a peer form a list from the latest to the oldest. Readers bound its length.

use super::query::PeerCounts;
use crate::attr::AttrSet;
use crate::peer::{FeedKind, PeerId, PeerInfo, PeerKind};
use ribtide_prefix::{BgpFamilies, BgpFamily, FamilySet, PerBgpFamily, any_bgp_family, sum_bgp_families};
use std::sync::Arc;

/// No number.
pub(super) const NONE: u16 = u16::MAX;

/// All sessions that are up or still have paths.
#[derive(Default)]
pub(super) struct Sessions {
    list: Vec<Option<Session>>,
    unused: Vec<u16>,
    /// By peer: what was heard last.
    last: Vec<Last>,
    /// Sessions that ended and have paths.
    ending: Vec<u16>,
    /// Whether any session had originated paths.
    any_originated: bool,
}

/// A session, up or not.
pub(super) struct Session {
    pub(super) info: Arc<PeerInfo>,
    /// Whether its paths are usable: it lasts, or they are retained.
    pub(super) up: bool,
    /// The families of usable paths; none unless `up`. A scan removes the paths of other families.
    keeps: FamilySet,
    /// Whether it ended. Its usable paths are retained ones.
    ended: bool,
    /// The families whose retained paths are long-lived stale.
    long_lived: FamilySet,
    /// The number of the peer's latest earlier session whose paths are retained, or [`NONE`].
    former: u16,
    /// The kind of its routes for the RIB manager: a copy from `info`, which is read for each path judged.
    pub(super) feed_kind: FeedKind,
    /// The families in which its paths have identifiers; also a copy.
    path_ids: FamilySet,
    /// Whether this router originates its paths.
    originated: bool,
    /// Whether it does, and the RIB manager gets none of them.
    pub(super) is_not_fed: bool,
    /// Whether its end is news to whom it is confirmed.
    confirm: bool,
    /// Paths of it that followers know though they are best no longer.
    held: u32,
    pub(super) counts: BgpFamilies<PeerCounts>,
}

/// The last session of a peer.
#[derive(Clone, Copy)]
struct Last {
    session: u32,
    /// Its number while it lasts.
    number: u16,
    /// The number of the latest ended session with retained paths: this one or an earlier one.
    retained: u16,
}

const UNKNOWN: Last = Last { session: 0, number: NONE, retained: NONE };

impl PerBgpFamily for PeerCounts {
    type Of<F: BgpFamily> = PeerCounts;
}

impl Session {
    /// A session that is up, and whose end will be confirmed; or one that is over, and whose end was not sent to any worker.
    fn new(info: Arc<PeerInfo>, up: bool, former: u16) -> Session {
        let feed_kind = info.feed_kind();
        let originated = info.kind.is_local();
        let is_not_fed = matches!(info.kind, PeerKind::Local(source) if !source.feeds());
        let keeps = if up { FamilySet::ALL } else { FamilySet::NONE };
        let path_ids = info.path_ids;
        Session {
            info,
            up,
            keeps,
            ended: !up,
            long_lived: FamilySet::NONE,
            former,
            feed_kind,
            path_ids,
            originated,
            is_not_fed,
            confirm: up,
            held: 0,
            counts: BgpFamilies::default(),
        }
    }

    /// Whether its paths of a family are usable.
    pub(super) fn keeps<F: BgpFamily>(&self) -> bool {
        self.keeps.has(F::ID)
    }

    /// Whether stations get its paths: it lasts, and is that of a neighbour.
    pub(super) fn is_monitored(&self) -> bool {
        self.up && !self.ended && !self.originated
    }

    /// Whether it ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended
    }

    /// Whether its paths of a family are to be long-lived stale.
    pub(super) fn is_long_lived<F: BgpFamily>(&self) -> bool {
        self.long_lived.has(F::ID) && self.keeps::<F>()
    }

    /// Whether it has retained paths that are to be long-lived stale.
    pub(super) fn has_long_lived(&self) -> bool {
        !self.long_lived.and(self.keeps).is_empty()
    }

    /// Whether a path with these attributes is long-lived stale: it has the community, and the peer was sent the capability
    /// (RFC 9494 section 4.3).
    #[inline]
    pub(super) fn is_least_preferred(&self, attrs: &AttrSet) -> bool {
        attrs.llgr_stale() && self.info.long_lived
    }

    /// Whether its paths are retained.
    pub(super) fn is_retained(&self) -> bool {
        self.up && self.ended
    }

    /// Whether it has paths to be swept.
    fn is_to_sweep(&self) -> bool {
        any_bgp_family!(F => !self.keeps::<F>() && self.counts.get::<F>().paths > 0) || !self.up
    }

    /// Whether nothing of it is left.
    fn is_gone(&self) -> bool {
        sum_bgp_families!(F => self.counts.get::<F>().paths) + self.held == 0
    }
}

impl Sessions {
    /// The session of a number in use.
    pub(super) fn get(&self, number: u16) -> &Session {
        self.list[usize::from(number)].as_ref().expect("a path's session is known")
    }

    /// Whether this router originates, or originated, any path.
    #[inline]
    pub(super) fn any_originated(&self) -> bool {
        self.any_originated
    }

    /// Whether this router originates the paths of a session in use.
    #[inline]
    pub(super) fn is_originated(&self, number: u16) -> bool {
        self.any_originated && self.get(number).originated
    }

    /// `path_id`, if the session has path identifiers in family `F`.
    #[inline]
    pub(super) fn path_id<F: BgpFamily>(&self, number: u16, path_id: u32) -> Option<u32> {
        self.get(number).path_ids.has(F::ID).then_some(path_id)
    }

    /// What it contributes, to change.
    pub(super) fn counts<F: BgpFamily>(&mut self, number: u16) -> &mut PeerCounts {
        let session = self.list[usize::from(number)].as_mut().expect("a path's session is known");
        session.counts.get_mut::<F>()
    }

    /// The number of a peer's session, if this one is up.
    pub(super) fn number(&self, peer: PeerId, session: u32) -> Option<u16> {
        let last = self.last(peer)?;
        (last.session == session && last.number != NONE).then_some(last.number)
    }

    /// The latest session before this one whose retained paths of family `F` its own replace, or a number that no path has.
    /// With path identifiers in one of the two sessions alone, nothing says which path would replace which (RFC 7911
    /// section 2), so the retained ones wait for their sweep. Called with the result it has the next earlier one.
    #[inline]
    pub(super) fn former<F: BgpFamily>(&self, number: u16) -> u16 {
        let session = self.get(number);
        if session.former == NONE { NONE } else { self.like::<F>(session) }
    }

    #[cold]
    fn like<F: BgpFamily>(&self, session: &Session) -> u16 {
        let same = |former: &u16| self.get(*former).path_ids.has(F::ID) == session.path_ids.has(F::ID);
        self.list_from(session.former).find(same).unwrap_or(NONE)
    }

    /// Sessions with retained paths, from this one to the oldest.
    fn list_from(&self, number: u16) -> impl Iterator<Item = u16> {
        let some = |number: u16| (number != NONE).then_some(number);
        std::iter::successors(some(number), move |number| some(self.get(*number).former))
    }

    /// The number of a peer's ended session, if its paths are retained.
    pub(super) fn retained(&self, peer: PeerId, session: u32) -> Option<u16> {
        self.list_from(self.last(peer)?.retained).find(|number| self.get(*number).info.session == session)
    }

    /// The same, for a session of which more paths come in, perhaps of families that are to be swept.
    pub(super) fn retained_again(&mut self, peer: PeerId, session: u32) -> Option<u16> {
        let number = self.retained(peer, session)?;
        if !self.ending.contains(&number) {
            self.ending.push(number);
        }
        Some(number)
    }

    /// The sessions of a peer whose paths are retained.
    pub(super) fn retained_of(&self, peer: PeerId) -> impl Iterator<Item = &Session> {
        let latest = self.last(peer).map_or(NONE, |last| last.retained);
        self.list_from(latest).map(|number| self.get(number))
    }

    /// The session of a peer that is up.
    pub(super) fn of(&self, peer: PeerId) -> Option<&Session> {
        let number = self.last(peer)?.number;
        (number != NONE).then(|| self.get(number))
    }

    /// The last session of a peer that this shard heard of.
    pub(super) fn latest(&self, peer: PeerId) -> Option<u32> {
        self.last(peer).map(|last| last.session)
    }

    /// All sessions in use, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Session)> {
        let numbered = self.list.iter().enumerate();
        numbered.filter_map(|(number, session)| Some((number as u16, session.as_ref()?)))
    }

    /// A session begins. Its number, unless all are in use: there are 65,535.
    pub(super) fn begin(&mut self, info: Arc<PeerInfo>) -> Option<u16> {
        let at = info.id.0 as usize;
        if self.last.len() <= at {
            self.last.resize(at + 1, UNKNOWN);
        }
        let (session, retained) = (info.session, self.last[at].retained);
        let number = self.add(Session::new(info, true, retained));
        self.last[at] = Last { session, number: number.unwrap_or(NONE), retained };
        number
    }

    /// A number for a session that is known to be over, and of which paths come in nevertheless.
    pub(super) fn begin_ended(&mut self, info: Arc<PeerInfo>) -> Option<u16> {
        let number = self.add(Session::new(info, false, NONE))?;
        self.ending.push(number);
        Some(number)
    }

    /// A session that is up ends. Its paths of these families are retained, beside those of earlier sessions; its others are
    /// still to be swept.
    pub(super) fn end(&mut self, number: u16, retained: FamilySet) {
        let Some(session) = &mut self.list[usize::from(number)] else { return };
        session.ended = true;
        let last = &mut self.last[session.info.id.0 as usize];
        (last.number, last.retained) = (NONE, number);
        self.release_families(number, FamilySet::ALL.but(retained));
    }

    /// Retained paths of these families are to be long-lived stale.
    pub(super) fn long_lived(&mut self, number: u16, families: FamilySet) {
        if let Some(session) = &mut self.list[usize::from(number)] {
            session.long_lived = session.long_lived.or(families);
        }
    }

    /// Paths of these families are retained no longer, and are still to be swept.
    pub(super) fn sweep(&mut self, number: u16, families: FamilySet) {
        self.release_families(number, families);
    }

    fn release_families(&mut self, number: u16, families: FamilySet) {
        let Some(session) = &mut self.list[usize::from(number)] else { return };
        session.keeps = session.keeps.but(families);
        session.up = !session.keeps.is_empty();
        if !session.up {
            self.unlink(number);
        }
        if !self.ending.contains(&number) {
            self.ending.push(number);
        }
    }

    /// Takes a session out of its peer's list of those with retained paths.
    fn unlink(&mut self, number: u16) {
        let Some(session) = &mut self.list[usize::from(number)] else { return };
        let (at, older) = (session.info.id.0 as usize, std::mem::replace(&mut session.former, NONE));
        let last = self.last[at];
        let newer = self.list_from(last.retained).find(|newer| self.get(*newer).former == number);
        for newer in [Some(last.number), newer].into_iter().flatten() {
            if let Some(newer) = self.list.get_mut(usize::from(newer)).and_then(Option::as_mut)
                && newer.former == number
            {
                newer.former = older;
            }
        }
        if last.retained == number {
            self.last[at].retained = older;
        }
    }

    /// Followers know a path of it that may be best no longer.
    pub(super) fn hold(&mut self, number: u16) {
        self.held(number, |held| *held += 1);
    }

    /// Undoes one [`Sessions::hold`].
    pub(super) fn release_ref(&mut self, number: u16) {
        self.held(number, |held| *held -= 1);
    }

    fn held(&mut self, number: u16, change: impl FnOnce(&mut u32)) {
        let session = self.list[usize::from(number)].as_mut().expect("a held path's session is known");
        change(&mut session.held);
    }

    /// The only session whose paths of family `F` may have to go; `None`: there are several, or none.
    #[inline]
    pub(super) fn leaving<F: BgpFamily>(&self) -> Option<u16> {
        match self.ending[..] {
            [only] if !self.get(only).keeps::<F>() => Some(only),
            _ => None,
        }
    }

    /// Whether any paths are to be swept.
    pub(super) fn any_ending(&self) -> bool {
        self.ending.iter().any(|number| self.get(*number).is_to_sweep())
    }

    /// Drops sessions that ended and of which nothing is left, and calls `confirm` with each.
    pub(super) fn settle(&mut self, mut confirm: impl FnMut(PeerId, u32)) {
        let Sessions { list, unused, ending, .. } = self;
        ending.retain(|number| {
            let ended = &mut list[usize::from(*number)];
            // With retained paths, it waits for the end of these.
            if ended.as_ref().is_some_and(|session| session.up) {
                return ended.as_ref().is_some_and(Session::is_to_sweep);
            }
            let Some(session) = ended.take_if(|session| session.is_gone()) else { return true };
            if session.confirm {
                confirm(session.info.id, session.info.session);
            }
            unused.push(*number);
            false
        });
    }

    fn last(&self, peer: PeerId) -> Option<Last> {
        self.last.get(peer.0 as usize).copied()
    }

    fn add(&mut self, session: Session) -> Option<u16> {
        self.any_originated |= session.originated;
        if let Some(number) = self.unused.pop() {
            self.list[usize::from(number)] = Some(session);
            return Some(number);
        }
        let number = u16::try_from(self.list.len()).ok().filter(|number| *number != NONE)?;
        self.list.push(Some(session));
        Some(number)
    }
}
