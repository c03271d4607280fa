//! Route refreshes whose begin and end a peer marks (RFC 7313 section 4).

use super::{Reader, Report, What};
use ribtide_bgp::message::ShardIn;
use ribtide_bgp::peer::{FamilySet, PeerId};
use ribtide_prefix::AfiSafi;
use ribtide_wire::bgp::message::RefreshKind;

/// The state of a session about marks of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks {
    /// Whether the peer has the capability; else it sends none.
    pub(crate) understood: bool,
    /// Whether it has graceful restart: then a begin before its End-of-RIB is ignored.
    pub(crate) after_end_of_rib: bool,
    /// Families whose End-of-RIB came.
    pub(crate) ended: FamilySet,
    /// Families whose refresh is under way.
    pub(crate) under_way: FamilySet,
    /// Whether an ignored message was reported. One line a session is enough: the peer may send more than a log holds.
    pub(crate) reported: bool,
}

impl Marks {
    /// A report of a message that is ignored, unless there was one.
    pub(super) fn ignored(&mut self, message: &'static str) -> Option<What> {
        (!std::mem::replace(&mut self.reported, true)).then_some(What::Ignored(message))
    }
}

/// A mark.
pub(super) struct Mark {
    pub(super) kind: RefreshKind,
    pub(super) family: AfiSafi,
}

impl Reader {
    /// The peer marked the begin or end of a refresh. The reader has read all messages before the
    /// mark, and none after it.
    pub(super) fn mark(&mut self, peer: PeerId, Mark { kind, family }: Mark) {
        match kind {
            RefreshKind::Begin => self.begin_refresh(peer, family),
            RefreshKind::End => self.end_refresh(peer, family),
            RefreshKind::Request | RefreshKind::Unknown(_) => {}
        }
    }

    fn begin_refresh(&mut self, peer: PeerId, family: AfiSafi) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        let number = session.peer.info().session;
        let is_early = session.marks.after_end_of_rib && !session.marks.ended.has(family);
        if is_early {
            let what = session.marks.ignored("a begin of a route refresh before End-of-RIB");
            what.into_iter().for_each(|what| self.reports.post(Report { peer, session: number, what }));
            return;
        }
        if !session.peer.info().families.has(family) {
            return;
        }
        session.marks.under_way = session.marks.under_way.with(family);
        session.peer.begin_refresh(family);
        self.hand_on();
        let message = || ShardIn::BeginOfRefresh { peer, session: number, family };
        self.shards.iter_mut().for_each(|shard| shard.post(message()));
        self.reports.post(Report { peer, session: number, what: What::BeginOfRefresh(family) });
    }

    /// The refresh of a family ends: by the peer's mark, or because its time is over. Without one nothing happens.
    pub(super) fn end_refresh(&mut self, peer: PeerId, family: AfiSafi) {
        let Some(session) = self.sessions.get_mut(&peer) else { return };
        if !session.marks.under_way.has(family) {
            return;
        }
        session.marks.under_way = session.marks.under_way.without(family);
        self.ingest.end_refresh(&mut session.peer, family, &mut self.batches);
        let (number, keeps) = (session.peer.info().session, session.peer.keeps_received());
        if keeps {
            self.kept_changed();
        }
        self.hand_on();
        let message = || ShardIn::EndOfRefresh { peer, session: number, family };
        self.shards.iter_mut().for_each(|shard| shard.post(message()));
        self.reports.post(Report { peer, session: number, what: What::EndOfRefresh(family) });
    }
}
