//! Every transition, then two machines and random events.

use super::*;
use crate::peer::FamilySet;
use proptest::prelude::*;
use ribtide_wire::bgp::message::{HEADER_LEN, MAX_LEN, frame};
use std::net::Ipv4Addr;

mod collision;
mod restart;

fn settings(id: u8, passive: bool) -> Settings {
    Settings {
        local_asn: 65001,
        alternate_asn: None,
        router_id: Ipv4Addr::new(10, 0, 0, id),
        peer_asn: Some(65001),
        families: FamilySet::UNICAST,
        hold_time: 90,
        passive,
        connect_retry: 20,
        role: None,
        role_strict: false,
        graceful_restart: false,
        own_restart: None,
        long_lived: None,
        add_path_receive: FamilySet::NONE,
        add_path_send: FamilySet::NONE,
        extended_next_hop: false,
    }
}

/// RFC 7705 section 4.2: the other AS comes after Bad Peer AS, without an idle hold, and the first one again after
/// that.
#[test]
fn alternate_as_is_sent_after_bad_peer_as() {
    let migrating = Settings { alternate_asn: Some(4_200_000_007), ..settings(1, false) };
    let mut bench = Bench { peer: Peer::new(migrating.clone(), 7), now: 1_000, out: Vec::new() };
    let sent = |actions: &[Action], asn: u32| {
        let open = migrating.open_message(asn);
        assert!(actions.contains(&Action::Send(Side::Ours, open)), "{asn} {actions:?}");
    };
    assert_eq!(bench.event(Event::Start), [Action::Connect]);
    let mut last = 65001;
    sent(bench.event(Event::Connected), last);
    for asn in [4_200_000_007, 65001, 4_200_000_007] {
        bench.event(Event::Message(Side::Ours, MessageType::Notification, &[2, 2]));
        assert_eq!((bench.state(), bench.peer.idle_hold()), (State::Active, None), "after {last}");
        let next = bench.peer.next_deadline().unwrap();
        assert_eq!(bench.tick_at(next), [Action::Connect]);
        sent(bench.event(Event::Connected), asn);
        last = asn;
    }
    // Another error changes nothing, and is one.
    bench.event(Event::Message(Side::Ours, MessageType::Notification, &[2, 4]));
    assert_eq!((bench.state(), bench.peer.local_asn), (State::Idle, last));
    let next = bench.peer.next_deadline().unwrap();
    bench.tick_at(next);
    bench.event(Event::Connected);
    bench.open(Side::Ours, 2);
    bench.keepalive(Side::Ours);
    assert_eq!(bench.peer.negotiated().map(|n| n.local_asn), Some(4_200_000_007));
    // The connection that waited gets the other one.
    let mut bench = Bench { peer: Peer::new(migrating.clone(), 7), now: 1_000, out: Vec::new() };
    bench.event(Event::Start);
    bench.event(Event::Connected);
    bench.event(Event::Accepted);
    let out = bench.event(Event::Message(Side::Ours, MessageType::Notification, &[2, 2]));
    let open = migrating.open_message(4_200_000_007);
    assert_eq!(out, [Action::Close(Side::Ours), Action::Send(Side::Theirs, open)]);
}

/// The machine with its clock and last actions.
struct Bench {
    peer: Peer,
    now: Millis,
    out: Vec<Action>,
}

impl Bench {
    fn new(passive: bool) -> Bench {
        let mut bench = Bench { peer: Peer::new(settings(1, passive), 7), now: 1_000, out: Vec::new() };
        bench.event(Event::Start);
        bench
    }

    fn event(&mut self, event: Event<'_>) -> &[Action] {
        self.out.clear();
        self.peer.handle(event, self.now, &mut self.out);
        &self.out
    }

    fn tick_at(&mut self, at: Millis) -> &[Action] {
        self.now = at;
        self.event(Event::Tick)
    }

    fn state(&self) -> State {
        self.peer.state()
    }

    fn open(&mut self, side: Side, id: u8) -> Vec<Action> {
        let message = settings(id, false).first_open();
        self.event(Event::Message(side, MessageType::Open, &message[HEADER_LEN..])).to_vec()
    }

    fn keepalive(&mut self, side: Side) -> Vec<Action> {
        self.event(Event::Message(side, MessageType::Keepalive, &[])).to_vec()
    }

    fn established(passive: bool) -> Bench {
        let mut bench = Bench::new(passive);
        let side = if passive {
            bench.event(Event::Accepted);
            Side::Theirs
        } else {
            bench.event(Event::Connected);
            Side::Ours
        };
        bench.open(side, 2);
        assert!(matches!(bench.keepalive(side)[..], [Action::Up(up, _)] if up == side));
        bench
    }
}

/// The NOTIFICATION that an action sends, if it does.
fn notified(action: &Action) -> Option<(u8, u8)> {
    let Action::Send(_, message) = action else { return None };
    let frame = frame(message, MAX_LEN).unwrap().unwrap();
    (frame.kind == MessageType::Notification).then(|| (frame.body[0], frame.body[1]))
}

fn kind(action: &Action) -> Option<MessageType> {
    let Action::Send(_, message) = action else { return None };
    Some(frame(message, MAX_LEN).unwrap().unwrap().kind)
}

#[test]
fn an_active_peer_connects_and_establishes() {
    let mut bench = Bench { peer: Peer::new(settings(1, false), 7), now: 0, out: Vec::new() };
    assert_eq!(bench.state(), State::Idle);
    assert_eq!(bench.peer.next_deadline(), None);
    assert_eq!(bench.event(Event::Start), [Action::Connect]);
    assert_eq!(bench.state(), State::Connect);
    assert_eq!(kind(&bench.event(Event::Connected)[0]), Some(MessageType::Open));
    assert_eq!(bench.state(), State::OpenSent);
    let actions = bench.open(Side::Ours, 2);
    assert_eq!(kind(&actions[0]), Some(MessageType::Keepalive));
    assert_eq!((actions.len(), bench.state()), (1, State::OpenConfirm));
    bench.keepalive(Side::Ours);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.peer.negotiated().unwrap().router_id, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(bench.peer.established_since(), Some(0));
    assert_eq!(bench.peer.send_hold(), Some(480_000));
}

#[test]
fn a_passive_peer_waits() {
    let mut bench = Bench::new(true);
    assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Active, None));
    assert_eq!(kind(&bench.event(Event::Accepted)[0]), Some(MessageType::Open));
    assert_eq!(bench.state(), State::OpenSent);
    assert_eq!(Bench::established(true).state(), State::Established);
}

#[test]
fn an_attempt_that_fails_is_repeated_later_and_later() {
    let mut bench = Bench::new(false);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        bench.event(Event::ConnectFailed("connection refused".into()));
        assert_eq!(bench.state(), State::Active);
        let next = bench.peer.next_deadline().unwrap();
        pauses.push(next - bench.now);
        assert_eq!(bench.tick_at(next - 1), []);
        assert_eq!(bench.tick_at(next), [Action::Connect]);
    }
    for (pause, full) in pauses.iter().zip([1, 2, 4, 8, 16, 20, 20, 20, 20]) {
        assert!((full * 750..=full * 1000).contains(pause), "{pauses:?}");
    }
    assert_eq!(bench.peer.last_error().unwrap().text, "could not connect: connection refused");
}

#[test]
fn an_attempt_without_reply_times_out() {
    let mut bench = Bench::new(false);
    let limit = bench.peer.next_deadline().unwrap();
    assert_eq!(limit, bench.now + CONNECT_TIMEOUT);
    assert_eq!(bench.tick_at(limit), [Action::Close(Side::Ours)]);
    assert_eq!(bench.state(), State::Active);
}

#[test]
fn a_peer_that_never_opens_is_given_up() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    let out = bench.tick_at(1_000 + OPEN_TIMEOUT).to_vec();
    assert_eq!(notified(&out[0]), Some((4, 0)));
    assert_eq!(out[1], Action::Close(Side::Theirs));
    assert_eq!(bench.state(), State::Idle, "pausing after an error");
    assert!(matches!(bench.event(Event::Accepted)[..], [Action::Refuse(_)]));
    let resume = bench.peer.next_deadline().unwrap();
    bench.tick_at(resume);
    assert_eq!(bench.state(), State::Active);
}

#[test]
fn a_bad_open_gets_a_notification_and_is_the_last_error() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    let other = Settings { local_asn: 65002, ..settings(2, false) }.first_open();
    let out = bench.event(Event::Message(Side::Theirs, MessageType::Open, &other[HEADER_LEN..])).to_vec();
    assert_eq!(notified(&out[0]), Some((2, 2)));
    assert_eq!(out[1..], [Action::Close(Side::Theirs)]);
    let expected = "NOTIFICATION sent (OPEN message error: bad peer AS): the peer says it is AS 65002, but AS 65001 is configured";
    assert_eq!(bench.peer.last_error().unwrap().text, expected);
    assert_eq!(bench.peer.flaps(), 0);
}

#[test]
fn keepalives_go_out_before_a_third_of_the_hold_time_is_over() {
    let mut bench = Bench::established(false);
    let mut last = bench.now;
    for _ in 0..20 {
        let next = bench.peer.next_deadline().unwrap();
        assert!((22_500..=30_000).contains(&(next - last)), "{}", next - last);
        assert_eq!(kind(&bench.tick_at(next)[0]), Some(MessageType::Keepalive));
        last = next;
        bench.peer.alive(next);
    }
}

#[test]
fn the_hold_timer_is_restarted_by_what_arrives_and_ends_the_session() {
    let mut bench = Bench::established(false);
    let start = bench.now;
    assert_eq!(bench.peer.hold_expires(), Some(start + 90_000));
    bench.peer.alive(start + 50_000);
    bench.peer.alive(start + 10_000);
    assert_eq!(bench.peer.hold_expires(), Some(start + 140_000), "an old sign of life takes nothing back");
    let mut out = Vec::new();
    while bench.state() == State::Established {
        let next = bench.peer.next_deadline().unwrap();
        out = bench.tick_at(next).to_vec();
    }
    assert_eq!(bench.now, start + 140_000);
    assert_eq!(out[0], Action::Down(None));
    assert_eq!(notified(&out[1]), Some((4, 0)));
    assert_eq!(out[2], Action::Close(Side::Ours));
    assert_eq!((bench.peer.flaps(), bench.peer.established_since()), (1, None));
}

#[test]
fn without_hold_time_there_are_no_timers() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    let open = Settings { hold_time: 0, ..settings(2, false) }.first_open();
    bench.event(Event::Message(Side::Theirs, MessageType::Open, &open[HEADER_LEN..]));
    bench.keepalive(Side::Theirs);
    assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Established, None));
}

#[test]
fn an_unexpected_message_is_an_error_of_its_state() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    let out = bench.event(Event::Message(Side::Theirs, MessageType::Update, &[0; 4])).to_vec();
    assert_eq!(notified(&out[0]), Some((5, 1)));

    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    bench.open(Side::Theirs, 2);
    assert_eq!(notified(&bench.open(Side::Theirs, 2)[0]), Some((5, 2)));

    let mut bench = Bench::established(true);
    assert_eq!(notified(&bench.open(Side::Theirs, 2)[1]), Some((5, 3)));
    assert_eq!(bench.state(), State::Idle);
}

#[test]
fn a_fault_is_notified_to_the_peer() {
    let mut bench = Bench::established(true);
    let out = bench.event(Event::Fault(Side::Theirs, Notification::new(1, 1))).to_vec();
    assert_eq!(out[0], Action::Down(None));
    assert_eq!(notified(&out[1]), Some((1, 1)));
    assert_eq!(out[2..], [Action::Close(Side::Theirs)]);
}

/// DampPeerOscillations of RFC 4271 section 8.1.1.
#[test]
fn idle_hold_doubles_with_every_oscillation_and_a_stable_session_ends_it() {
    let mut bench = Bench::new(true);
    let lose = |bench: &mut Bench, after: Millis| {
        assert!(matches!(bench.event(Event::Accepted)[..], [Action::Send(..)]), "connections are taken");
        bench.open(Side::Theirs, 2);
        bench.keepalive(Side::Theirs);
        assert_eq!(bench.state(), State::Established);
        bench.now += after;
        bench.event(Event::Closed(Side::Theirs, "reset by the peer".into()));
        bench.peer.idle_hold().map(|hold| (hold.until - bench.now, hold.oscillations))
    };
    for _ in 0..2 {
        // The first losses hold nothing, and a stable session between them counts.
        assert_eq!((lose(&mut bench, 10), lose(&mut bench, 10)), (None, None));
        assert_eq!(lose(&mut bench, STABLE_SESSION_TIME), None);
        assert_eq!((lose(&mut bench, 10), lose(&mut bench, 10)), (None, None));
        for (count, full) in (3..).zip([4, 8, 16, 32, 60, 60]) {
            let (time, oscillations) = lose(&mut bench, 10).unwrap();
            assert!((full * 750..=full * 1000).contains(&time), "{full} s: {time} ms");
            assert_eq!((oscillations, bench.state()), (count, State::Idle));
            let refused = Notification::cease(cease::CONNECTION_REJECTED);
            assert_eq!(bench.event(Event::Accepted), [Action::Refuse(refused)]);
            bench.tick_at(bench.now + time);
            assert_eq!(bench.state(), State::Active);
        }
        assert_eq!(lose(&mut bench, STABLE_SESSION_TIME), None);
    }
}

#[test]
fn idle_hold_ends_with_an_obstacle() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    bench.event(Event::Fault(Side::Theirs, Notification::new(1, 1)));
    assert!(bench.peer.idle_hold().is_some());
    bench.event(Event::Hold(Obstacle::Bfd));
    bench.event(Event::Release);
    assert_eq!((bench.peer.idle_hold(), bench.state()), (None, State::Active));
    assert!(matches!(bench.event(Event::Accepted)[..], [Action::Send(..)]), "connections are taken");
}

#[test]
fn idle_hold_does_not_follow_a_failed_connect_nor_our_own_cease() {
    let mut bench = Bench::new(false);
    for _ in 0..9 {
        bench.event(Event::ConnectFailed("refused".into()));
        assert_eq!(bench.peer.idle_hold(), None);
        bench.tick_at(bench.peer.next_deadline().unwrap());
    }
    // Failed connects before do not make a first error wait longer.
    bench.event(Event::Connected);
    bench.event(Event::Fault(Side::Ours, Notification::new(1, 1)));
    assert!(bench.peer.idle_hold().unwrap().until - bench.now <= RETRY_PAUSE_MIN);
    for _ in 0..9 {
        bench.tick_at(bench.peer.next_deadline().unwrap());
        bench.event(Event::Connected);
        bench.open(Side::Ours, 2);
        bench.keepalive(Side::Ours);
        assert_eq!(bench.state(), State::Established);
        // A link that flaps comes back at once.
        bench.event(Event::Hold(Obstacle::Interface("eth1".into())));
        assert_eq!(bench.peer.idle_hold(), None);
        assert_eq!(bench.event(Event::Release), [Action::Connect]);
        bench.event(Event::ConnectFailed("refused".into()));
    }
}

#[test]
fn a_notification_from_the_peer_ends_the_session_without_reply() {
    let mut bench = Bench::established(true);
    let out = bench.event(Event::Message(Side::Theirs, MessageType::Notification, &[6, 4])).to_vec();
    assert_eq!(out, [Action::Down(None), Action::Close(Side::Theirs)]);
    assert_eq!(bench.peer.last_error().unwrap().text, "NOTIFICATION received (cease: administrative reset)");
    assert_eq!(bench.state(), State::Active, "a cease is no error: the peer may come back at once");
    let mut bench = Bench::established(true);
    bench.event(Event::Message(Side::Theirs, MessageType::Notification, &[3, 1]));
    assert_eq!(bench.state(), State::Idle);
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    let mut bench = Bench::established(false);
    let out = bench.event(Event::SendHoldExpired).to_vec();
    assert_eq!(out[0], Action::Down(None));
    assert_eq!(notified(&out[1]), Some((8, 0)));
}

#[test]
fn the_operator_stops_resets_and_starts() {
    let mut bench = Bench::established(false);
    let out = bench.event(Event::Stop(Notification::cease(cease::ADMIN_SHUTDOWN))).to_vec();
    assert_eq!(out[0], Action::Down(None));
    assert_eq!(notified(&out[1]), Some((6, 2)));
    assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Idle, None));
    assert_eq!(bench.event(Event::Reset(Notification::cease(cease::ADMIN_RESET))), []);
    assert!(matches!(bench.event(Event::Accepted)[..], [Action::Refuse(_)]));
    assert_eq!(bench.event(Event::Start), [Action::Connect]);

    let mut bench = Bench::established(false);
    let out = bench.event(Event::Reset(Notification::cease(cease::ADMIN_RESET))).to_vec();
    assert_eq!(notified(&out[1]), Some((6, 4)));
    assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Active, Some(bench.now + 1_000)));
}

#[test]
fn an_obstacle_ends_the_session_with_its_reason_until_it_is_released() {
    let mut bench = Bench::established(false);
    let actions = bench.event(Event::Hold(Obstacle::Bfd)).to_vec();
    assert_eq!(
        (&actions[0], notified(&actions[1])),
        (&Action::Down(None), Some((code::CEASE, cease::BFD_DOWN)))
    );
    assert_eq!(actions[2..], [Action::Close(Side::Ours)]);
    assert_eq!(
        (bench.state(), bench.peer.held(), bench.peer.next_deadline()),
        (State::Idle, Some(&Obstacle::Bfd), None)
    );
    let refusal = Action::Refuse(Notification::cease(cease::BFD_DOWN));
    assert_eq!(bench.event(Event::Accepted), [refusal]);
    assert!(bench.event(Event::Hold(Obstacle::Bfd)).is_empty());
    assert!(bench.tick_at(1_000_000).is_empty());
    // An operator's reset changes nothing; a stop outlasts the obstacle.
    assert!(bench.event(Event::Reset(Notification::cease(cease::ADMIN_RESET))).is_empty());
    assert_eq!(bench.event(Event::Release), [Action::Connect]);
    assert!(bench.event(Event::Release).is_empty(), "once");
    bench.event(Event::Hold(Obstacle::Bfd));
    bench.event(Event::Stop(Notification::cease(cease::ADMIN_SHUTDOWN)));
    assert!(bench.event(Event::Release).is_empty());
    assert_eq!(bench.event(Event::Start), [Action::Connect]);
    // The obstacle may exist before the session, and before the start.
    let mut bench = Bench { peer: Peer::new(settings(1, true), 7), now: 0, out: Vec::new() };
    bench.event(Event::Hold(Obstacle::Bfd));
    bench.event(Event::Start);
    assert_eq!(bench.state(), State::Idle);
    bench.event(Event::Release);
    assert_eq!(bench.state(), State::Active);
}

#[test]
fn hold_interface_down_ceases_and_release_connects_at_once() {
    let mut bench = Bench::established(false);
    let down = || Event::Hold(Obstacle::Interface("eth1".into()));
    let actions = bench.event(down()).to_vec();
    assert_eq!((&actions[0], notified(&actions[1])), (&Action::Down(None), Some((code::CEASE, 0))));
    assert_eq!(actions[2..], [Action::Close(Side::Ours)]);
    let text = &bench.peer.last_error().unwrap().text;
    assert_eq!(text, "NOTIFICATION sent (cease): interface eth1 is down or lost its address");
    let refusal = Action::Refuse(Notification::cease(cease::CONNECTION_REJECTED));
    assert_eq!(bench.event(Event::Accepted), [refusal]);
    assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Idle, None));
    // The obstacle may change.
    assert!(bench.event(Event::Hold(Obstacle::Bfd)).is_empty());
    assert_eq!(bench.peer.held(), Some(&Obstacle::Bfd));
    assert_eq!(bench.event(Event::Release), [Action::Connect]);
    assert_eq!(bench.peer.held(), None);
}

#[test]
fn hold_max_prefixes_names_the_limit_to_the_peer_and_rejects_connections() {
    let expected = [
        (
            Obstacle::MaxPrefixes(AfiSafi::Ipv4Unicast, 1000),
            Notification::max_prefixes(AfiSafi::Ipv4Unicast, 1000),
            "NOTIFICATION sent (cease: maximum number of prefixes reached (1000 of ipv4-unicast))",
        ),
        (
            Obstacle::MaxPrefixesOut(AfiSafi::Ipv6Unicast, 7),
            Notification::cease_with_text(cease::ADMIN_RESET, "more than 7 ipv6-unicast prefixes to send"),
            "NOTIFICATION sent (cease: administrative reset (\"more than 7 ipv6-unicast prefixes to send\"))",
        ),
    ];
    for (obstacle, notification, text) in expected {
        let mut bench = Bench::established(false);
        let mut message = Vec::new();
        notification.write(&mut message);
        let ends = [Action::Down(None), Action::Send(Side::Ours, message), Action::Close(Side::Ours)];
        assert_eq!(bench.event(Event::Hold(obstacle)), ends);
        assert_eq!(bench.peer.last_error().unwrap().text, text);
        let refusal = Action::Refuse(Notification::cease(cease::CONNECTION_REJECTED));
        assert_eq!(bench.event(Event::Accepted), [refusal]);
        assert_eq!((bench.state(), bench.peer.next_deadline()), (State::Idle, None));
    }
}

#[test]
fn a_session_lost_is_sought_again_and_a_stable_one_at_once() {
    let mut bench = Bench::new(false);
    for _ in 0..5 {
        bench.event(Event::ConnectFailed("refused".into()));
        let next = bench.peer.next_deadline().unwrap();
        bench.tick_at(next);
    }
    bench.event(Event::Connected);
    bench.open(Side::Ours, 2);
    bench.keepalive(Side::Ours);
    bench.now += STABLE_SESSION_TIME;
    bench.event(Event::Closed(Side::Ours, "closed by the peer".into()));
    assert_eq!(bench.state(), State::Active);
    assert!(bench.peer.next_deadline().unwrap() <= bench.now + 1_000);
    let expected = "the connection ended: closed by the peer";
    assert_eq!(bench.peer.last_error().unwrap().text, expected);
    let next = bench.peer.next_deadline().unwrap();
    bench.tick_at(next);
    bench.event(Event::ConnectFailed("refused".into()));
    assert_eq!(bench.peer.last_error().unwrap().text, "could not connect: refused");
    assert_eq!(bench.peer.last_down().unwrap().text, expected, "what failed since is no reason of the end");
}

#[test]
fn a_second_connection_of_the_peer_is_refused() {
    let mut bench = Bench::new(true);
    bench.event(Event::Accepted);
    assert!(matches!(bench.event(Event::Accepted)[..], [Action::Refuse(_)]));
    assert_eq!(bench.state(), State::OpenSent);
}

/// Random inputs, also of connections that do not exist.
#[derive(Clone, Debug)]
enum Random {
    Start,
    Stop,
    Reset,
    Accepted,
    Connected,
    ConnectFailed,
    Closed(bool),
    Open(bool, u8, u16),
    Bytes(bool, u8, Vec<u8>),
    Keepalive(bool),
    Fault(bool),
    Alive,
    SendHoldExpired,
    Wait(u16),
    NextTimer,
}

fn random() -> impl Strategy<Value = Random> {
    prop_oneof![
        1 => Just(Random::Start),
        1 => Just(Random::Stop),
        1 => Just(Random::Reset),
        4 => Just(Random::Accepted),
        4 => Just(Random::Connected),
        1 => Just(Random::ConnectFailed),
        1 => any::<bool>().prop_map(Random::Closed),
        6 => (any::<bool>(), 0u8..4, prop_oneof![Just(0u16), 3u16..200]).prop_map(|(s, i, h)| Random::Open(s, i, h)),
        1 => (any::<bool>(), 1u8..6, proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(s, k, b)| Random::Bytes(s, k, b)),
        6 => any::<bool>().prop_map(Random::Keepalive),
        1 => any::<bool>().prop_map(Random::Fault),
        2 => Just(Random::Alive),
        1 => Just(Random::SendHoldExpired),
        2 => any::<u16>().prop_map(Random::Wait),
        3 => Just(Random::NextTimer),
    ]
}

/// A driver with the machine's sockets, which checks every action against them.
struct Driver {
    bench: Bench,
    /// For each side: none, being opened, open.
    sockets: [Option<bool>; 2],
    up: Option<Side>,
}

impl Driver {
    fn socket(&mut self, side: Side) -> &mut Option<bool> {
        &mut self.sockets[side as usize]
    }

    fn event(&mut self, event: Event<'_>) {
        let accepted = event == Event::Accepted;
        if let Event::Closed(side, _) = event {
            // A socket may close before the machine gets the event; closing it again is harmless.
            assert!(self.socket(side).is_some());
        }
        if accepted && self.sockets[Side::Theirs as usize].is_none() {
            self.sockets[Side::Theirs as usize] = Some(true);
        }
        let actions = self.bench.event(event).to_vec();
        for action in actions {
            match action {
                Action::Connect => {
                    assert!(self.socket(Side::Ours).is_none());
                    *self.socket(Side::Ours) = Some(false);
                }
                Action::Refuse(_) => {
                    assert!(accepted);
                    let known = self.bench.peer.theirs.is_some();
                    if !known {
                        *self.socket(Side::Theirs) = None;
                    }
                }
                Action::Send(side, message) => {
                    assert_eq!(*self.socket(side), Some(true));
                    assert!(frame(&message, MAX_LEN).unwrap().is_some());
                }
                Action::Close(side) => {
                    assert!(self.up != Some(side), "Down precedes Close");
                    assert!(self.socket(side).take().is_some());
                }
                Action::Up(side, _) => {
                    assert_eq!(*self.socket(side), Some(true));
                    assert!(self.up.replace(side).is_none());
                }
                Action::Down(_) => assert!(self.up.take().is_some()),
            }
        }
        assert_eq!(self.up.is_some(), self.bench.state() == State::Established);
        assert_eq!(self.sockets[0].is_some(), self.bench.peer.ours.is_some());
        assert_eq!(self.sockets[1].is_some(), self.bench.peer.theirs.is_some());
        if let Some(next) = self.bench.peer.next_deadline() {
            assert!(next > self.bench.now, "a timer that is due has been run");
        }
    }

    fn play(&mut self, step: Random) {
        let side = |theirs: bool| if theirs { Side::Theirs } else { Side::Ours };
        let open = |driver: &Driver, s: bool| driver.sockets[side(s) as usize] == Some(true);
        match step {
            Random::Start => self.event(Event::Start),
            Random::Stop => self.event(Event::Stop(Notification::cease(2))),
            Random::Reset => self.event(Event::Reset(Notification::cease(4))),
            Random::Accepted => self.event(Event::Accepted),
            Random::Connected if self.sockets[0] == Some(false) => {
                self.sockets[0] = Some(true);
                self.event(Event::Connected);
            }
            Random::ConnectFailed if self.sockets[0] == Some(false) => {
                self.event(Event::ConnectFailed("refused".into()));
            }
            Random::Closed(s) if open(self, s) => self.event(Event::Closed(side(s), "reset".into())),
            Random::Open(s, id, hold_time) if open(self, s) => {
                let message = Settings { hold_time, ..settings(id, false) }.first_open();
                self.event(Event::Message(side(s), MessageType::Open, &message[HEADER_LEN..]));
            }
            Random::Bytes(s, kind, bytes) if open(self, s) => {
                self.event(Event::Message(side(s), MessageType::from_u8(kind).unwrap(), &bytes));
            }
            Random::Keepalive(s) if open(self, s) => {
                self.event(Event::Message(side(s), MessageType::Keepalive, &[]));
            }
            Random::Fault(s) if open(self, s) => self.event(Event::Fault(side(s), Notification::new(1, 1))),
            Random::Alive => self.bench.peer.alive(self.bench.now),
            Random::SendHoldExpired => self.event(Event::SendHoldExpired),
            Random::Wait(ms) => {
                self.bench.now += Millis::from(ms);
                self.event(Event::Tick);
            }
            Random::NextTimer => self.next_timer(),
            _ => {}
        }
    }

    fn next_timer(&mut self) {
        if let Some(next) = self.bench.peer.next_deadline() {
            self.bench.now = next;
            self.event(Event::Tick);
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_a_good_peer_can_establish_afterwards(
        passive: bool,
        steps in proptest::collection::vec(random(), 0..80),
    ) {
        let mut driver = Driver { bench: Bench::new(passive), sockets: [None, None], up: None };
        if !passive {
            driver.sockets[0] = Some(false);
        }
        for step in steps {
            driver.play(step);
        }
        // All connections are lost, the operator enables the session, and the peer follows the
        // protocol.
        for theirs in [false, true] {
            driver.play(Random::Closed(theirs));
        }
        driver.play(Random::ConnectFailed);
        driver.event(Event::Start);
        for _ in 0..20 {
            if passive {
                driver.event(Event::Accepted);
            }
            driver.play(Random::Connected);
            let theirs = driver.sockets[1].is_some();
            driver.play(Random::Open(theirs, 2, 90));
            driver.play(Random::Keepalive(theirs));
            if driver.up.is_some() {
                return Ok(());
            }
            driver.next_timer();
        }
        prop_assert!(false, "not established: {:?}", driver.bench.peer);
    }
}
