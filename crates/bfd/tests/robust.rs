//! Hostile packets, and sessions that end without packets.

mod common;

use common::*;
use proptest::prelude::*;
use ribtide_bfd::*;
use ribtide_wire::bfd::{Control, Diagnostic, Malformed, State};

fn control(my: u32, your: u32, state: State) -> Control {
    Control {
        diagnostic: Diagnostic::NONE,
        state,
        poll: false,
        finished: false,
        control_plane_independent: false,
        authenticated: false,
        demand: false,
        multiplier: 3,
        my_discriminator: my,
        your_discriminator: your,
        desired_min_tx: 50_000,
        required_min_rx: 50_000,
        required_min_echo_rx: 0,
    }
}

/// A session that is up at a second.
fn up() -> (Sessions, Discriminator) {
    let mut sessions = Sessions::new(7);
    let id = sessions.add(place(0), timers(50, 50, 3), 0);
    let mut out = Vec::new();
    let packets = [control(9, 0, State::Down), control(9, id.0, State::Init), control(9, id.0, State::Up)];
    for packet in packets {
        sessions.packet(&packet.to_bytes(), &origin(0), SECOND, &mut out).unwrap();
    }
    assert_eq!(sessions.get(id).unwrap().session.state(), State::Up);
    (sessions, id)
}

#[test]
fn packets_without_a_session_are_counted_by_reason() {
    let (mut sessions, id) = up();
    let mut send = |control: Control, change: &dyn Fn(&mut Origin)| {
        let mut from = origin(0);
        change(&mut from);
        sessions.packet(&control.to_bytes(), &from, SECOND, &mut Vec::new())
    };
    let down = control(9, id.0, State::Down);
    assert_eq!(send(down, &|o| o.ttl = 254), Err(Discard::Ttl), "GTSM");
    assert_eq!(send(control(9, id.0 ^ 1, State::Down), &|_| ()), Err(Discard::NoSession));
    assert_eq!(send(down, &|o| o.from = address(7)), Err(Discard::OtherPlace));
    assert_eq!(send(down, &|o| o.multihop = true), Err(Discard::OtherPlace));
    assert_eq!(send(control(9, 0, State::Down), &|o| o.from = address(7)), Err(Discard::NoSession));
    assert_eq!(send(control(9, 0, State::Up), &|_| ()), Err(Discard::Malformed(Malformed::State)));
    let mut bytes = [0; 26];
    bytes[..24].copy_from_slice(&down.to_bytes());
    (bytes[1], bytes[3]) = (bytes[1] | 4, 26);
    assert_eq!(sessions.packet(&bytes, &origin(0), SECOND, &mut Vec::new()), Err(Discard::Authenticated));
    assert_eq!(sessions.get(id).unwrap().session.state(), State::Up, "none of them did anything");
    let counted: Vec<(&str, u64)> = sessions.discarded().map(|(why, n)| (why.name(), n)).collect();
    let expected = [("state", 1), ("ttl", 1), ("no-session", 2), ("other-address", 2), ("authenticated", 1)];
    assert_eq!(counted, expected);
}

#[test]
fn the_most_specific_session_gets_the_packet() {
    let mut sessions = Sessions::new(7);
    let any = sessions.add(place(0), timers(50, 50, 3), 0);
    let of_link = Place { interface: Some(2), ..place(0) };
    let tied = sessions.add(of_link, timers(50, 50, 3), 0);
    let far = Place { reach: Reach::Multihop { min_ttl: 250 }, ..place(0) };
    let far = sessions.add(far, timers(50, 50, 3), 0);
    let mut send =
        |origin: Origin| sessions.packet(&control(9, 0, State::Down).to_bytes(), &origin, 0, &mut Vec::new());
    assert_eq!(send(origin(0)), Ok(tied));
    assert_eq!(send(Origin { interface: 3, ..origin(0) }), Ok(any));
    assert_eq!(send(Origin { multihop: true, ttl: 250, ..origin(0) }), Ok(far));
    assert_eq!(send(Origin { multihop: true, ttl: 249, ..origin(0) }), Err(Discard::Ttl));
}

#[test]
fn a_peer_in_demand_mode_gets_only_replies() {
    let (mut sessions, id) = up();
    let mut out = Vec::new();
    // It replies to our poll, which announces the faster timers, and demands silence.
    let quiet = Control { demand: true, finished: true, ..control(9, id.0, State::Up) };
    sessions.packet(&quiet.to_bytes(), &origin(0), SECOND, &mut out).unwrap();
    out.clear();
    let mut now = SECOND;
    for _ in 0..50 {
        now += 50 * MS;
        sessions.packet(&Control { finished: false, ..quiet }.to_bytes(), &origin(0), now, &mut out).unwrap();
        sessions.tick(now, &mut out);
    }
    assert!(out.is_empty(), "{out:?}");
    let poll = Control { poll: true, finished: false, ..quiet };
    sessions.packet(&poll.to_bytes(), &origin(0), now, &mut out).unwrap();
    assert!(matches!(out[..], [(_, Effect::Send(Control { finished: true, poll: false, .. }))]), "{out:?}");
    // New timers need a poll, also in demand mode.
    out.clear();
    sessions.event(id, Event::Configure(timers(100, 100, 3)), now, &mut out);
    sessions.tick(now + 60 * MS, &mut out);
    assert!(out.iter().any(|(_, e)| matches!(e, Effect::Send(c) if c.poll)));
    // A peer that accepts no packets gets none.
    let no_receive = Control { required_min_rx: 0, ..control(9, id.0, State::Up) };
    sessions.packet(&no_receive.to_bytes(), &origin(0), now + 60 * MS, &mut out).unwrap();
    out.clear();
    sessions.tick(now + 100 * MS, &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_removed_session_sends_admin_down() {
    let (mut sessions, id) = up();
    let mut out = Vec::new();
    sessions.remove(id, SECOND, &mut out);
    let states = out.iter().filter_map(|(_, e)| if let Effect::Send(c) = e { Some(c.state) } else { None });
    assert_eq!(states.collect::<Vec<_>>(), [State::AdminDown]);
    assert!(sessions.get(id).is_none() && sessions.deadline().is_none());
    let late = sessions.packet(&control(9, id.0, State::Up).to_bytes(), &origin(0), SECOND, &mut out);
    assert_eq!(late, Err(Discard::NoSession));
}

#[derive(Clone, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Packet { my: u32, known: bool, state: u8, flags: u8, multiplier: u8, tx: u32, rx: u32 },
    Configure(u32, u32, u8),
    Disable,
    Enable,
    Wait(Micros),
}

fn input() -> impl Strategy<Value = Input> {
    let interval = || prop_oneof![Just(0u32), 1..3_000_000u32, any::<u32>()];
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Input::Bytes),
        8 => (any::<u32>(), any::<bool>(), any::<u8>(), any::<u8>(), any::<u8>(), interval(), interval())
            .prop_map(|(my, known, state, flags, multiplier, tx, rx)| Input::Packet {
                my, known, state, flags, multiplier, tx, rx,
            }),
        1 => (1..2_000_000u32, 1..2_000_000u32, 1..=255u8).prop_map(|(t, r, m)| Input::Configure(t, r, m)),
        1 => Just(Input::Disable),
        1 => Just(Input::Enable),
        6 => (0..3_000_000u64).prop_map(Input::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// No input panics. Afterwards no session is up without a packet in its detection time, and
    /// none sends more than one packet per event beside its periodic ones.
    #[test]
    fn no_session_outlives_its_packets(inputs in prop::collection::vec(input(), 1..80)) {
        let mut sessions = Sessions::new(3);
        let id = sessions.add(place(0), timers(50, 50, 3), 0);
        let (mut now, mut received_at) = (0, 0);
        let mut out = Vec::new();
        for input in inputs {
            let before = out.len();
            match input {
                Input::Bytes(bytes) => {
                    if sessions.packet(&bytes, &origin(0), now, &mut out).is_ok() {
                        received_at = now;
                    }
                }
                Input::Packet { my, known, state, flags, multiplier, tx, rx } => {
                    let state = [State::AdminDown, State::Down, State::Init, State::Up][usize::from(state % 4)];
                    let packet = Control {
                        poll: flags & 1 > 0,
                        finished: flags & 2 > 0,
                        demand: flags & 4 > 0,
                        diagnostic: Diagnostic(flags >> 3),
                        multiplier,
                        desired_min_tx: tx,
                        required_min_rx: rx,
                        ..control(my, if known { id.0 } else { 0 }, state)
                    };
                    if sessions.packet(&packet.to_bytes(), &origin(0), now, &mut out).is_ok() {
                        received_at = now;
                    }
                }
                Input::Configure(min_tx, min_rx, multiplier) => {
                    sessions.event(id, Event::Configure(Timers { min_tx, min_rx, multiplier }), now, &mut out);
                }
                Input::Disable => sessions.event(id, Event::Disable, now, &mut out),
                Input::Enable => sessions.event(id, Event::Enable, now, &mut out),
                Input::Wait(time) => {
                    now += time;
                    sessions.tick(now, &mut out);
                    prop_assert!(sessions.deadline().is_none_or(|at| at > now));
                }
            }
            let sent = out[before..].iter().filter(|(_, e)| matches!(e, Effect::Send(_))).count();
            prop_assert!(sent <= 2, "a reply and a changed state: {sent}");
            let session = &sessions.get(id).unwrap().session;
            let receives = session.state() >= State::Init;
            prop_assert!(!receives || received_at + session.detection_time() > now, "{session:?} at {now}");
            prop_assert!(session.state() != State::Up || session.standing() == Standing::Up);
        }
    }
}
