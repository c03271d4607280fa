//! What monitors get of a reader: the bytes that it reads, and pages of kept routes.

use super::refresh::Mark;
use super::{Reader, What};
use crate::mailbox::Mailbox;
use crate::monitor::{KeptPage, MonitorIn, Received, Tap, Wanted};
use ribtide_bgp::ingest::KeptPlace;
use ribtide_bgp::peer::{FamilySet, PeerId};
use std::sync::Arc;
use std::time::SystemTime;

/// The UPDATEs of one read that were handled.
#[derive(Default)]
pub(super) struct Handled {
    /// The end of the last one; 0: there is none.
    end: usize,
    withdrawn: Vec<usize>,
}

impl Handled {
    /// An UPDATE of `len` bytes that ends at `end` was handled. `is_withdrawn`: its routes count as withdrawn.
    pub(super) fn update(&mut self, end: usize, len: usize, is_withdrawn: bool) {
        self.end = end;
        if is_withdrawn {
            self.withdrawn.push(end - len);
        }
    }
}

impl Reader {
    /// Whether a monitor wants the UPDATEs of a session.
    pub(super) fn wants_received(&self, id: PeerId) -> bool {
        let bmp = self.monitors.bmp.as_ref().is_some_and(|tap| tap.wants(Wanted::RECEIVED));
        self.monitors.mrt.as_ref().is_some_and(|tap| tap.wants(Wanted::ALL_RECEIVED))
            || (bmp && self.sessions.get(&id).is_some_and(|session| session.peer.keeps_received()))
    }

    /// Handles messages, and copies them once for all monitors.
    #[cold]
    #[inline(never)]
    pub(super) fn monitored_messages(
        &mut self,
        id: PeerId,
        number: u32,
        rest: &mut &[u8],
        complete: &mut FamilySet,
        recent: &mut usize,
    ) -> Result<Option<Mark>, What> {
        let (at, mut handled) = (SystemTime::now(), Handled::default());
        let bytes = *rest;
        let outcome = self.messages(id, number, rest, complete, recent, Some(&mut handled));
        let Some(session) = self.sessions.get(&id) else { return outcome };
        let Handled { end, withdrawn } = handled;
        if end == 0 {
            return outcome;
        }
        let (info, kept) = (session.peer.info().clone(), session.peer.keeps_received());
        let received = Arc::new(Received { info, at, messages: bytes[..end].to_vec(), withdrawn, kept });
        if let Some(tap) = self.monitors.mrt.as_ref().filter(|tap| tap.wants(Wanted::ALL_RECEIVED)) {
            tap.offer(MonitorIn::Received(received.clone()));
        }
        if let (Some(tap), Some(monitor)) = (&self.monitors.bmp, &mut self.monitor)
            && kept
            && tap.wants(Wanted::RECEIVED)
        {
            monitor.post(MonitorIn::Received(received));
        }
        outcome
    }

    /// Sets the BMP monitor. Messages that wait for the former one are dropped.
    pub fn set_bmp(&mut self, tap: Option<Tap>) {
        self.monitor = tap.as_ref().map(|tap| Mailbox::new(tap.data.clone()));
        self.monitors.bmp = tap;
    }

    /// Sets the MRT monitor.
    pub fn set_mrt(&mut self, tap: Option<Tap>) {
        self.monitors.mrt = tap;
    }

    /// A session keeps its routes from now on, or no longer, or other ones than its messages say: what was left out of a
    /// refresh is gone (RFC 7313).
    #[cold]
    pub(super) fn kept_changed(&mut self) {
        if let (Some(tap), Some(monitor)) = (&self.monitors.bmp, &mut self.monitor)
            && tap.wants(Wanted::RECEIVED)
        {
            monitor.post(MonitorIn::KeptChanged);
        }
    }

    /// Sends the BMP monitor a page of the routes of a session before import policy, after this place,
    /// in the order of what the reader sends it. Returns the last route of the page, if there may be more;
    /// `None`: there is no page, because routes are not kept or the session has ended.
    pub fn monitor_page(
        &mut self,
        peer: PeerId,
        session: u32,
        after: Option<KeptPlace>,
        limit: usize,
        token: u64,
    ) -> Option<Option<KeptPlace>> {
        let of = self.sessions.get_mut(&peer).filter(|of| of.peer.info().session == session && !of.ended)?;
        let routes = of.peer.kept_page(after, limit)?;
        let last = routes.last().map(|(place, _)| *place);
        let full = routes.len() >= limit;
        let info = of.peer.info().clone();
        self.monitor.as_mut()?.post(MonitorIn::Kept(KeptPage { token, info, routes }));
        Some(last.filter(|_| full))
    }
}
