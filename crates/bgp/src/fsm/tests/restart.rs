//! Which ends of a session retain the peer's routes (RFC 4724 section 4.2, RFC 8538 section 4).

use super::*;
use ribtide_prefix::ByFamily;
use ribtide_wire::bgp::capability::{Capability, GracefulRestart, RestartFamilies};
use ribtide_wire::bgp::open::OpenBuilder;

/// The OPEN of a peer with graceful restart.
fn open(notification: bool) -> Vec<u8> {
    let mut families = Vec::new();
    RestartFamilies::push(&mut families, AfiSafi::Ipv4Unicast, false);
    let families = RestartFamilies::new(&families);
    let restart = GracefulRestart { restarting: false, notification, time: 120, families };
    let capabilities = [Capability::FourOctetAs(65001), Capability::GracefulRestart(restart)];
    let mut open = Vec::new();
    let router_id = Ipv4Addr::new(10, 0, 0, 2);
    OpenBuilder { asn: 65001, hold_time: 90, router_id, capabilities: &capabilities }.write(&mut open);
    open
}

/// An established session with a peer whose restart takes 120 s for IPv4. `notification`: it sends N.
fn established(notification: bool) -> Bench {
    let settings = Settings { graceful_restart: true, ..settings(1, true) };
    let mut bench = Bench { peer: Peer::new(settings, 7), now: 1_000, out: Vec::new() };
    bench.event(Event::Start);
    bench.event(Event::Accepted);
    bench.event(Event::Message(Side::Theirs, MessageType::Open, &open(notification)[HEADER_LEN..]));
    bench.keepalive(Side::Theirs);
    assert_eq!(bench.state(), State::Established);
    bench.now += 60_000;
    bench
}

fn retained() -> Action {
    Action::Down(Some(Retention {
        families: FamilySet::IPV4_UNICAST,
        time: 120_000,
        long_lived_only: FamilySet::NONE,
        long_lived: ByFamily::default(),
    }))
}

const GONE: Action = Action::Down(None);

#[test]
fn the_loss_of_the_connection_retains_with_and_without_n() {
    for notification in [false, true] {
        let mut bench = established(notification);
        assert_eq!(bench.event(Event::Closed(Side::Theirs, "reset".into()))[0], retained());
    }
}

#[test]
fn a_notification_retains_only_with_n_and_a_hard_reset_never() {
    let received = |notification, body: &[u8]| {
        let mut bench = established(notification);
        bench.event(Event::Message(Side::Theirs, MessageType::Notification, body))[0].clone()
    };
    for body in [&[6, 4][..], &[6, 2], &[3, 1], &[4, 0]] {
        assert_eq!(received(true, body), retained());
        assert_eq!(received(false, body), GONE);
    }
    for body in [&[6, 9][..], &[6, 9, 6, 2]] {
        assert_eq!(received(true, body), GONE);
        assert_eq!(received(false, body), GONE);
    }
}

#[test]
fn an_error_that_we_find_retains_with_n() {
    for notification in [false, true] {
        let expected = if notification { retained() } else { GONE };
        let mut bench = established(notification);
        assert_eq!(bench.tick_at(10_000_000)[0], expected, "hold timer");
        let mut bench = established(notification);
        let fault = Notification::new(code::UPDATE, 1);
        let actions = bench.event(Event::Fault(Side::Theirs, fault)).to_vec();
        assert_eq!((&actions[0], notified(&actions[1])), (&expected, Some((3, 1))));
        let mut bench = established(notification);
        assert_eq!(bench.event(Event::SendHoldExpired)[0], expected);
    }
}

/// RFC 8538 section 3: with N, an end without restart is a Hard Reset with its reason inside.
#[test]
fn what_an_operator_or_an_obstacle_ends_is_not_retained_and_a_hard_reset_with_n() {
    let ends = [
        (Event::Stop(Notification::cease(cease::ADMIN_SHUTDOWN)), cease::ADMIN_SHUTDOWN),
        (Event::Reset(Notification::cease(cease::ADMIN_RESET)), cease::ADMIN_RESET),
        (Event::Hold(Obstacle::Bfd), cease::BFD_DOWN),
        (Event::Hold(Obstacle::MaxPrefixes(AfiSafi::Ipv4Unicast, 5)), cease::MAX_PREFIXES),
    ];
    for (event, subcode) in ends {
        let mut bench = established(false);
        let actions = bench.event(event.clone()).to_vec();
        assert_eq!((&actions[0], notified(&actions[1])), (&GONE, Some((code::CEASE, subcode))));
        let mut bench = established(true);
        let actions = bench.event(event).to_vec();
        assert_eq!((&actions[0], notified(&actions[1])), (&GONE, Some((code::CEASE, cease::HARD_RESET))));
        let Action::Send(_, message) = &actions[1] else { panic!("a NOTIFICATION") };
        assert_eq!(message[HEADER_LEN + 2..HEADER_LEN + 4], [code::CEASE, subcode]);
        // The operator reads the reason itself.
        assert!(!bench.peer.last_down().unwrap().text.contains("hard reset"));
    }
}

/// RFC 4724 section 5: the peer restarted, and the end of its old connection did not arrive.
#[test]
fn another_connection_of_a_peer_that_restarts_replaces_its_session() {
    let mut bench = established(false);
    let actions = bench.event(Event::Accepted).to_vec();
    assert_eq!(actions[..2], [retained(), Action::Close(Side::Theirs)]);
    assert_eq!(kind(&actions[2]), Some(MessageType::Open));
    assert_eq!((actions.len(), bench.state(), bench.peer.flaps()), (3, State::OpenSent, 1));
    // A young session's may be the loser of a collision.
    let mut bench = established(false);
    bench.now -= 58_000;
    let collision = Action::Refuse(Notification::cease(cease::COLLISION));
    assert_eq!(bench.event(Event::Accepted)[0], collision);
    // Without the capability it is refused, too.
    let mut bench = Bench::established(true);
    bench.now += 60_000;
    assert_eq!(bench.event(Event::Accepted)[0], collision);
}

/// A planned restart of ours: a peer that retains our routes sees its connection end, with and without N. Others get the Cease.
#[test]
fn a_restart_of_ours_closes_without_a_notification_where_the_peer_helps() {
    let cease = || Notification::cease(cease::ADMIN_SHUTDOWN);
    let own = OwnRestart { time: 60, restarted: false, forwarding: FamilySet::ALL };
    for notification in [false, true] {
        let mut bench = established(notification);
        bench.peer.set_own_restart(Some(own));
        assert!(bench.peer.is_helped());
        let actions = bench.event(Event::Restart(cease())).to_vec();
        assert_eq!(actions, [retained(), Action::Close(Side::Theirs)]);
        assert_eq!((bench.state(), bench.peer.stopped()), (State::Idle, true));
        // It did not ask for help, so the peer knows nothing of a restart.
        let mut bench = established(notification);
        let actions = bench.event(Event::Restart(cease())).to_vec();
        let subcode = if notification { cease::HARD_RESET } else { cease::ADMIN_SHUTDOWN };
        assert_eq!((&actions[0], notified(&actions[1])), (&GONE, Some((code::CEASE, subcode))));
    }
    let mut plain = Bench::established(true);
    plain.peer.set_own_restart(Some(own));
    assert!(!plain.peer.is_helped());
    let actions = plain.event(Event::Restart(cease())).to_vec();
    assert_eq!(notified(&actions[1]), Some((code::CEASE, cease::ADMIN_SHUTDOWN)));
}
