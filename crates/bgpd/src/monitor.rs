//! What monitoring gets of BGP's stages: for BMP stations and for MRT files.
//!
//! ```text
//! session thread ──sessions──► monitor        readers, shards, workers ──data──► monitor
//! ```
//!
//! A [`Tap`] is the stages' end. A stage looks at its flags once for each read, batch or flush, and sends nothing that
//! is not wanted. Nothing is copied for a route: a reader hands over the bytes that it read, a shard the batch that it
//! has handled, and a worker its packed messages.
//!
//! **Order.** All stages share one queue to a monitor. A stage answers [`ShardPort::monitor_page`] and
//! [`Reader::monitor_page`] into that queue, between two batches, so a page of its table is after all of its earlier
//! changes and before all later ones. The queue of sessions is another: the session thread sends a session's start
//! before the reader gets the session, so a monitor that empties that queue after it took a message knows the session
//! of the message, or it has ended.
//!
//! [`ShardPort::monitor_page`]: crate::shard::ShardPort::monitor_page
//! [`Reader::monitor_page`]: crate::reader::Reader::monitor_page

use super::mailbox::Mailbox;
use ribtide_bgp::egress::{Mirrored, Write};
use ribtide_bgp::fsm::{Action, Event};
use ribtide_bgp::ingest::KeptRoute;
use ribtide_bgp::message::{BestBatch, UpdateBatch};
use ribtide_bgp::peer::PeerInfo;
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_wire::bgp::message::MessageType;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::SystemTime;

/// Messages of stages in the queue of a monitor at most: one is at most a read of 64 KiB, or some thousand prefixes.
const DATA: usize = 256;
/// Starts and ends of sessions in the queue of a monitor at most.
const SESSIONS: usize = 1024;

/// What a monitor wants, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted(u8);

impl Wanted {
    /// Received UPDATEs of the sessions that keep their routes before import policy.
    pub const RECEIVED: Wanted = Wanted(1);
    /// Received UPDATEs of all sessions.
    pub const ALL_RECEIVED: Wanted = Wanted(2);
    /// Routes after import policy.
    pub const ACCEPTED: Wanted = Wanted(4);
    /// Best paths.
    pub const BEST: Wanted = Wanted(8);
    /// Sent messages.
    pub const SENT: Wanted = Wanted(16);

    /// Both.
    #[must_use]
    pub fn and(self, other: Wanted) -> Wanted {
        Wanted(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub fn has(self, other: Wanted) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A message of a stage.
#[derive(Debug)]
pub enum MonitorIn {
    /// A reader read UPDATEs.
    Received(Arc<Received>),
    /// A page of routes before import policy.
    Kept(KeptPage),
    /// The routes of a session are kept from now on, or no longer: the views before policy are others.
    KeptChanged,
    /// A shard handled a batch.
    Accepted(UpdateBatch),
    /// Best paths changed.
    Best(Arc<BestBatch>),
    /// A page of a shard's routes.
    Page(ShardPage),
    /// A worker packed messages.
    Sent(Vec<Write>),
    /// A page of best paths as members get them. Each worker sends one for each page.
    Mirrored(Mirrored),
}

/// Bytes that a reader read from a session.
#[derive(Debug)]
pub struct Received {
    /// The session.
    pub info: Arc<PeerInfo>,
    /// When it read them.
    pub at: SystemTime,
    /// Whole messages; among them, UPDATEs that were no reason to close the session.
    pub messages: Vec<u8>,
    /// Where UPDATEs begin whose routes were treated as withdrawn (RFC 7606).
    pub withdrawn: Vec<usize>,
    /// Whether the session keeps its routes before import policy.
    pub kept: bool,
}

/// A page of routes before import policy.
#[derive(Debug)]
pub struct KeptPage {
    /// Returned from the request.
    pub token: u64,
    /// The session.
    pub info: Arc<PeerInfo>,
    /// The routes, in order.
    pub routes: Vec<KeptRoute>,
}

/// A page of a shard's routes.
#[derive(Debug)]
pub struct ShardPage {
    /// Returned from the request.
    pub token: u64,
    /// Routes after import policy, if they were requested.
    pub accepted: Vec<UpdateBatch>,
    /// Best paths, if they were requested.
    pub best: Option<Arc<BestBatch>>,
}

/// A start or end of a session.
#[derive(Clone, Debug)]
pub enum SessionNews {
    /// A session is established.
    Up(Arc<SessionUp>),
    /// It ended.
    Down {
        /// The session.
        up: Arc<SessionUp>,
        /// Why.
        cause: DownCause,
        /// When.
        at: SystemTime,
    },
}

/// An established session.
#[derive(Debug)]
pub struct SessionUp {
    /// The facts of the session.
    pub info: Arc<PeerInfo>,
    /// When it was established.
    pub at: SystemTime,
    /// Our address.
    pub local: IpAddr,
    /// Our TCP port and the peer's.
    pub ports: (u16, u16),
    /// The OPEN that we sent, marker included.
    pub sent: Arc<[u8]>,
    /// The OPEN that the peer sent, marker included.
    pub received: Arc<[u8]>,
}

/// Why a session ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DownCause {
    /// We sent this NOTIFICATION, marker included.
    Local(Arc<[u8]>),
    /// We closed it without one, at this event of RFC 4271 section 8.1; 0: none of them.
    LocalEvent(u16),
    /// The peer sent this NOTIFICATION, marker included.
    Remote(Arc<[u8]>),
    /// The peer closed it without one.
    RemoteClosed,
}

/// Events of RFC 4271 section 8.1, and of RFC 9687.
const HOLD_TIMER_EXPIRES: u16 = 10;
const SEND_HOLD_TIMER_EXPIRES: u16 = 29;

impl DownCause {
    /// What an event is as a cause, before it is known whether we send a NOTIFICATION.
    pub(super) fn of(event: &Event<'_>) -> DownCause {
        match event {
            Event::Message(_, MessageType::Notification, body) => {
                let mut message = Vec::new();
                ribtide_wire::bgp::message::write(&mut message, MessageType::Notification, body);
                DownCause::Remote(message.into())
            }
            Event::Closed(..) | Event::Accepted => DownCause::RemoteClosed,
            Event::SendHoldExpired => DownCause::LocalEvent(SEND_HOLD_TIMER_EXPIRES),
            Event::Tick => DownCause::LocalEvent(HOLD_TIMER_EXPIRES),
            _ => DownCause::LocalEvent(0),
        }
    }

    /// The cause, with the actions of the FSM.
    pub(super) fn with(self, actions: &[Action]) -> DownCause {
        let notification = |action: &Action| match action {
            Action::Send(_, message) if super::session::is_notification(message) => {
                Some(message.as_slice().into())
            }
            _ => None,
        };
        match (&self, actions.iter().find_map(notification)) {
            (DownCause::Remote(_), _) | (_, None) => self,
            (_, Some(sent)) => DownCause::Local(sent),
        }
    }
}

/// The stages' end of a monitor.
#[derive(Clone)]
pub struct Tap {
    wanted: Arc<AtomicU8>,
    /// Messages of readers that were dropped, because the monitor may lag ([`Tap::lossy`]).
    lost: Option<Arc<AtomicU64>>,
    pub(super) data: Sender<MonitorIn>,
    sessions: Sender<SessionNews>,
}

/// The monitor's end.
pub struct Feed {
    wanted: Arc<AtomicU8>,
    lost: Arc<AtomicU64>,
    /// Messages of stages.
    pub data: Receiver<MonitorIn>,
    /// Starts and ends of sessions.
    pub sessions: Receiver<SessionNews>,
}

/// The monitors of a router.
#[derive(Clone, Default)]
pub struct Taps {
    /// BMP: a full queue stops the stage. The thread that empties it waits for no station.
    pub bmp: Option<Tap>,
    /// MRT: a full queue drops. The thread that empties it waits for the disk.
    pub mrt: Option<Tap>,
}

impl Tap {
    /// The queues of the monitor `name`, which `wake` wakes.
    pub fn new(name: &str, rings: &Rings, wake: Option<Wake>) -> (Tap, Feed) {
        let (wanted, lost) = (Arc::<AtomicU8>::default(), Arc::<AtomicU64>::default());
        let (data, data_out) = rings.bounded(format!("stages to {name}"), DATA);
        let (sessions, sessions_out) = rings.bounded(format!("sessions to {name}"), SESSIONS);
        let tap = Tap {
            wanted: wanted.clone(),
            lost: None,
            data: data.with_wake(wake.clone()),
            sessions: sessions.with_wake(wake),
        };
        (tap, Feed { wanted, lost, data: data_out, sessions: sessions_out })
    }

    /// The same for a monitor that may lag: messages without room are dropped and counted.
    pub fn lossy(name: &str, rings: &Rings, wake: Option<Wake>) -> (Tap, Feed) {
        let (tap, feed) = Tap::new(name, rings, wake);
        (Tap { lost: Some(feed.lost.clone()), ..tap }, feed)
    }

    /// The tap with a queue for messages without room, for a stage that waits for the monitor.
    pub(super) fn with_mailbox(self) -> (Mailbox<MonitorIn>, Tap) {
        (Mailbox::new(self.data.clone()), self)
    }

    /// Whether it wants this.
    #[inline]
    pub(super) fn wants(&self, what: Wanted) -> bool {
        Wanted(self.wanted.load(Acquire)).has(what)
    }

    /// Sends news of a session, or returns it where the queue is full.
    pub(super) fn news(&self, news: SessionNews) -> Option<SessionNews> {
        use ribtide_runtime::ring::TrySend;
        match (self.sessions.try_send(news), &self.lost) {
            (Err(TrySend::Full(news)), None) => Some(news),
            (Err(TrySend::Full(_)), Some(lost)) => {
                lost.fetch_add(1, Relaxed);
                None
            }
            (Ok(()) | Err(TrySend::Closed(_)), _) => None,
        }
    }

    /// Sends data, or drops and counts it, for a monitor that may lag.
    pub(super) fn offer(&self, data: MonitorIn) {
        if self.data.try_send(data).is_err()
            && let Some(lost) = &self.lost
        {
            lost.fetch_add(1, Relaxed);
        }
    }
}

impl Feed {
    /// Sets what the stages send from now on. A stage that gets a call afterwards has seen it.
    pub fn want(&self, what: Wanted) {
        self.wanted.store(what.0, Release);
    }

    /// Dropped messages since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_bgp::fsm::Side;
    use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerKind};
    use ribtide_policy::Policy;
    use ribtide_wire::bgp::Notification;
    use ribtide_wire::bgp::notification::cease;

    fn session_up() -> SessionUp {
        let address = IpAddr::from([192, 0, 2, 1]);
        let router_id = [192, 0, 2, 1].into();
        let egress = EgressSettings::new(
            PeerKind::External,
            65_001,
            router_id,
            FamilySet::ALL,
            Arc::new(Policy::accept()),
        );
        let info = PeerInfo {
            id: PeerId(1),
            session: 1,
            address,
            asn: 65_002,
            router_id,
            kind: PeerKind::External,
            multihop: false,
            link: None,
            families: FamilySet::ALL,
            path_ids: FamilySet::NONE,
            long_lived: false,
            egress,
        };
        let (at, ports) = (SystemTime::UNIX_EPOCH, (179, 40_000));
        SessionUp { info: info.into(), at, local: address, ports, sent: Arc::new([]), received: Arc::new([]) }
    }

    #[test]
    fn the_cause_of_an_end_is_the_notification_of_either_side() {
        let mut ours = Vec::new();
        Notification::cease(cease::ADMIN_RESET).write(&mut ours);
        let sent = [Action::Send(Side::Ours, ours.clone()), Action::Down(None)];
        let body = [6, 2];
        let cause = DownCause::of(&Event::Message(Side::Ours, MessageType::Notification, &body));
        let DownCause::Remote(message) = &cause else { panic!("{cause:?}") };
        assert_eq!((message.len(), &message[18..]), (21, &[3, 6, 2][..]));
        assert_eq!(cause.clone().with(&[Action::Down(None)]), cause);
        let reset = DownCause::of(&Event::Reset(Notification::cease(cease::ADMIN_RESET)));
        assert_eq!(reset.with(&sent), DownCause::Local(ours.into()));
        let closed = DownCause::of(&Event::Closed(Side::Ours, String::new()));
        assert_eq!(closed.with(&[Action::Down(None)]), DownCause::RemoteClosed);
        assert_eq!(DownCause::of(&Event::Tick).with(&[]), DownCause::LocalEvent(10));
    }

    #[test]
    fn a_full_queue_keeps_news_or_counts_them_as_lost() {
        let rings = Rings::default();
        let up = Arc::new(session_up());
        let down = || SessionNews::Up(up.clone());
        let (tap, feed) = Tap::new("bmp", &rings, None);
        assert!((0..SESSIONS).all(|_| tap.news(down()).is_none()));
        assert!(tap.news(down()).is_some());
        assert_eq!(feed.lost(), 0);
        let (tap, feed) = Tap::lossy("mrt", &rings, None);
        assert!((0..=SESSIONS).all(|_| tap.news(down()).is_none()));
        assert_eq!(feed.lost(), 1);
        assert!(!tap.wants(Wanted::BEST));
        feed.want(Wanted::BEST.and(Wanted::SENT));
        assert!(tap.wants(Wanted::BEST) && !tap.wants(Wanted::RECEIVED));
    }
}
