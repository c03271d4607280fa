//! The flight recorder of a neighbour: the last messages of this session, and of the one before it.
//!
//! The session thread records all sent messages, and received ones until the session is established. The reader of the
//! session records later ones, and returns its ring when the session ends. OPENs, NOTIFICATIONs and ROUTE-REFRESHes have a
//! ring of their own, so UPDATEs of a table do not push them out. KEEPALIVEs are only counted.

use super::{Command, Sessions};
use crate::monitor::{DownCause, SessionUp};
use crate::recorder::{Direction, MessageRing, Recorded, recent};
use ribtide_bgp::peer::PeerId;
use ribtide_runtime::clock::Millis;
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::message::{HEADER_LEN, MessageType};
use std::net::IpAddr;
use std::sync::Arc;

/// A NOTIFICATION is sent at most so long after the end of its session.
const END_MS: Millis = 10;

/// What the session thread has recorded of a neighbour.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// Messages other than UPDATEs.
    control: MessageRing,
    /// UPDATEs of workers.
    updates: MessageRing,
    lost: Option<Box<LostSession>>,
    /// The last NOTIFICATION, whatever is kept otherwise.
    notification: Option<LastNotification>,
    /// Which side ended the last session.
    ended_by: Option<Direction>,
}

/// The last NOTIFICATION that a neighbour sent or was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastNotification {
    /// When, in milliseconds of the router's clock.
    pub at: Millis,
    /// From which side.
    pub direction: Direction,
    /// What it says.
    pub notification: Notification,
}

/// The end of the last session that was lost.
#[derive(Clone, Debug)]
pub struct LostSession {
    /// The session.
    pub up: Arc<SessionUp>,
    /// When it ended, in milliseconds of the router's clock.
    pub at: Millis,
    /// What was exchanged before, in no order.
    pub recorded: Vec<Recorded>,
}

/// What is recorded of a neighbour, without what the reader of its session has.
#[derive(Clone, Debug)]
pub struct RecordedView {
    /// Its number in this process.
    pub id: PeerId,
    /// The bytes that each ring keeps.
    pub bound: usize,
    /// Since the last session ended.
    pub recorded: Vec<Recorded>,
    /// The established session and its reader.
    pub up: Option<(Arc<SessionUp>, usize)>,
    /// The last session that was lost.
    pub lost: Option<LostSession>,
}

impl Recorder {
    /// Sets how many bytes are kept; 0: none.
    pub(super) fn set_bound(&mut self, bound: usize) {
        self.control.set_bound(bound);
        self.updates.set_bound(bound);
        if bound == 0 {
            self.lost = None;
        }
    }

    /// The last NOTIFICATION, and which side ended the last session.
    pub(super) fn ends(&self) -> (Option<&LastNotification>, Option<Direction>) {
        (self.notification.as_ref(), self.ended_by)
    }

    /// Notes the body of a NOTIFICATION.
    pub(super) fn notification(&mut self, at: Millis, direction: Direction, body: &[u8]) {
        self.notification = Some(LastNotification { at, direction, notification: Notification::parse(body) });
    }

    /// Notes a message that the session thread handles.
    pub(super) fn control(&mut self, now: Millis, direction: Direction, kind: MessageType, message: &[u8]) {
        // The NOTIFICATION that ended a session is sent after the end, and noted with it.
        let is_noted = kind == MessageType::Notification
            && self.lost.as_ref().is_some_and(|lost| {
                now.saturating_sub(lost.at) < END_MS && lost.recorded.iter().any(|one| *one.bytes == *message)
            });
        if kind != MessageType::Keepalive && !is_noted && self.control.bound() > 0 {
            self.control.push(now, direction, message.into());
        }
    }

    /// Notes UPDATEs for the neighbour, of which [`recent`] has cut off the first.
    #[inline]
    pub(super) fn updates(&mut self, now: Millis, messages: &Arc<[u8]>) {
        if self.updates.bound() > 0 {
            self.updates.push(now, Direction::Sent, messages.clone());
        }
    }

    /// The session ends: what was exchanged stays until the next one ends.
    pub(super) fn lose(&mut self, up: Arc<SessionUp>, cause: &DownCause, now: Millis) {
        self.ended_by = Some(match cause {
            DownCause::Local(_) | DownCause::LocalEvent(_) => Direction::Sent,
            DownCause::Remote(_) | DownCause::RemoteClosed => Direction::Received,
        });
        if self.control.bound() == 0 {
            return;
        }
        // The NOTIFICATION may be sent after the end.
        if let DownCause::Local(notification) = cause
            && self.control.iter().last().is_none_or(|last| last.bytes != *notification)
        {
            self.control.push(now, Direction::Sent, notification.clone());
        }
        let recorded = [self.control.take(), self.updates.take()].concat();
        self.lost = Some(Box::new(LostSession { up, at: now, recorded }));
    }
}

impl Sessions {
    /// Sets how many bytes of messages are kept of each neighbour, from the next message on.
    pub(super) fn set_recorder_bytes(&mut self, bytes: usize) {
        if std::mem::replace(&mut self.recorder_bytes, bytes) == bytes {
            return;
        }
        self.peers.values_mut().for_each(|peer| peer.recorder.set_bound(bytes));
        (0..self.load.len()).for_each(|reader| self.outbox.send_to_reader(reader, Command::Record(bytes)));
    }

    /// Notes a message that the session thread sends.
    pub(super) fn record_sent(&mut self, id: PeerId, kind: Option<MessageType>, message: &[u8]) {
        let now = self.clock.now();
        if let Some((peer, kind)) = self.peers.get_mut(&id).zip(kind) {
            peer.recorder.control(now, Direction::Sent, kind, message);
            if kind == MessageType::Notification {
                let body = message.get(HEADER_LEN..).unwrap_or_default();
                peer.recorder.notification(now, Direction::Sent, body);
            }
        }
    }

    /// The end of a chunk, for the recorders of its receivers.
    #[inline]
    pub(super) fn recorded_part(&self, chunk: &Arc<[u8]>) -> Arc<[u8]> {
        recent(chunk, self.recorder_bytes)
    }

    /// The reader of an ended session gives back what it recorded.
    pub(super) fn take_recorded(&mut self, id: PeerId, session: u32, recorded: Vec<Recorded>) {
        let lost = self.peers.get_mut(&id).and_then(|peer| peer.recorder.lost.as_mut());
        if let Some(lost) = lost.filter(|lost| lost.up.info.session == session) {
            lost.recorded.extend(recorded);
        }
    }

    /// What is recorded of the neighbour of this address.
    pub fn recorded(&self, address: IpAddr) -> Option<RecordedView> {
        let peer = self.peers.get(self.by_address.get(&address)?)?;
        let Recorder { control, updates, lost, .. } = &peer.recorder;
        Some(RecordedView {
            id: peer.id,
            bound: control.bound(),
            recorded: control.iter().chain(updates.iter()).cloned().collect(),
            up: peer.up.as_ref().map(|up| (up.monitored.clone(), up.reader)),
            lost: lost.as_deref().cloned(),
        })
    }
}
