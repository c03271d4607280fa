//! Two sessions with each other over a simulated path.

mod common;

use common::*;
use proptest::prelude::*;
use ribtide_bfd::*;
use ribtide_wire::bfd::{Diagnostic, State};

const UP: [State; 2] = [State::Up; 2];

fn up(timers: [Timers; 2]) -> Network {
    let mut network = Network::new(timers, 1);
    network.run(3 * SECOND);
    assert_eq!(network.states(), UP);
    network
}

#[test]
fn a_session_comes_up_slowly_and_then_sends_as_agreed() {
    let mut network = Network::new([timers(50, 100, 3), timers(80, 60, 5)], 1);
    network.run(3 * SECOND);
    assert_eq!(network.states(), UP);
    for side in 0..2 {
        let states: Vec<State> = network.sides[side].changes.iter().map(|(_, s)| *s).collect();
        let whole = [State::Init, State::Up];
        assert!(states == whole || states == [State::Up], "{states:?}");
        assert_eq!(network.session(side).standing(), Standing::Up);
        let first = network.sides[side].sent[0].1;
        assert_eq!((first.desired_min_tx, first.required_min_echo_rx), (1_000_000, 0));
    }
    // The slower of one side's send interval and the other's receive interval.
    assert_eq!(network.session(0).tx_interval(), Some(60_000));
    assert_eq!(network.session(1).tx_interval(), Some(100_000));
    assert_eq!(network.session(0).detection_time(), 500 * MS);
    assert_eq!(network.session(1).detection_time(), 180 * MS);
    assert!(network.sides[0].sent.iter().any(|(_, c)| c.poll), "a faster rate needs a poll");
    assert!(network.sides[1].sent.iter().any(|(_, c)| c.finished), "with a final reply");
    assert!(network.sides.iter().all(|s| s.sent.iter().all(|(_, c)| !(c.poll && c.finished))));
    // A second later all polls are over, and packets keep to the jitter of section 6.8.7.
    let from = network.now;
    network.run(20 * SECOND);
    let sent: Vec<_> = network.sides[0].sent.iter().filter(|(at, _)| *at > from).collect();
    assert!(sent.iter().all(|(_, c)| !c.poll && c.state == State::Up));
    let gaps: Vec<Micros> = sent.windows(2).map(|w| w[1].0 - w[0].0).collect();
    assert!(gaps.iter().all(|gap| (45 * MS..=60 * MS).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().min().unwrap() + 10 * MS < *gaps.iter().max().unwrap(), "not in step");
}

#[test]
fn multiplier_of_one_loses_no_session() {
    let mut network = up([timers(50, 50, 1), timers(50, 50, 3)]);
    let from = network.now;
    network.run(10 * SECOND);
    let sent: Vec<Micros> = network.sides[0].sent.iter().map(|(at, _)| *at).filter(|at| *at > from).collect();
    assert!(sent.windows(2).all(|w| (37_500..=45_000).contains(&(w[1] - w[0]))));
    assert_eq!(network.states(), UP);
}

#[test]
fn silence_is_detected_within_the_detection_time() {
    let mut network = up([timers(50, 50, 3), timers(50, 50, 3)]);
    network.paths = [Path { cut: true, ..Path::default() }; 2];
    let cut = network.now;
    network.run(SECOND);
    for side in 0..2 {
        let session = network.session(side);
        assert_eq!((session.state(), session.standing()), (State::Down, Standing::Failed));
        assert_eq!(session.diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
        assert_eq!(session.remote_discriminator(), 0, "it may have restarted meanwhile");
        let (at, _) = *network.sides[side].changes.last().unwrap();
        assert!((cut + 100 * MS..=cut + 151 * MS).contains(&at), "{} ms", (at - cut) / MS);
    }
    // Both are down and send slowly, and come up again without help.
    let before = network.sides[0].sent.len();
    network.run(10 * SECOND);
    assert!((10..15).contains(&(network.sides[0].sent.len() - before)));
    network.paths = [Path::default(); 2];
    network.run(3 * SECOND);
    assert_eq!(network.states(), UP);
    assert_eq!(network.session(0).standing(), Standing::Up);
}

#[test]
fn side_that_receives_nothing_signals_the_other() {
    let mut network = up([timers(50, 50, 3), timers(50, 50, 3)]);
    network.paths[0].cut = true;
    network.run(500 * MS);
    let (detecting, notified) = (network.session(1), network.session(0));
    assert_eq!(detecting.diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    assert_eq!(notified.diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    assert_eq!(notified.remote_diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    assert_eq!((detecting.standing(), notified.standing()), (Standing::Failed, Standing::Failed));
    // One direction is not enough, for any time.
    network.run(30 * SECOND);
    assert_eq!((network.session(0).state(), network.session(1).state()), (State::Init, State::Down));
    network.paths[0].cut = false;
    network.run(3 * SECOND);
    assert_eq!(network.states(), UP);
}

#[test]
fn a_peer_that_restarts_has_another_number_and_comes_up_again() {
    let mut network = up([timers(50, 50, 3), timers(50, 50, 3)]);
    let former = network.session(0).remote_discriminator();
    network.restart(1, timers(50, 50, 3));
    network.run(5 * SECOND);
    assert_eq!(network.states(), UP);
    assert_ne!(network.session(0).remote_discriminator(), former);
    let went: Vec<State> = network.sides[0].changes.iter().map(|(_, s)| *s).collect();
    assert!(
        went.ends_with(&[State::Down, State::Init, State::Up]) || went.ends_with(&[State::Down, State::Up])
    );
    network.restart(0, timers(50, 50, 3));
    network.restart(1, timers(50, 50, 3));
    network.run(5 * SECOND);
    assert_eq!(network.states(), UP);
}

#[test]
fn administrative_down_is_no_failure() {
    let mut network = up([timers(50, 50, 3), timers(50, 50, 3)]);
    network.event(0, Event::Disable);
    network.run(SECOND);
    assert_eq!(network.states(), [State::AdminDown, State::Down]);
    for side in 0..2 {
        assert_eq!(network.session(side).standing(), Standing::Excused);
        assert!(network.session(side).standing().usable(true));
    }
    assert_eq!(network.session(0).diagnostic(), Diagnostic::ADMINISTRATIVELY_DOWN);
    assert_eq!(network.session(1).diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    network.event(0, Event::Enable);
    network.run(3 * SECOND);
    assert_eq!(network.states(), UP);
    // It is no failure after a failure either.
    network.paths = [Path { cut: true, ..Path::default() }; 2];
    network.run(SECOND);
    assert!(!network.session(1).standing().usable(false));
    network.paths = [Path::default(); 2];
    network.event(0, Event::Disable);
    network.run(2 * SECOND);
    assert!(network.session(1).standing().usable(false));
}

#[test]
fn without_a_peer_the_path_is_usable_unless_strict() {
    let mut network = Network::new([timers(50, 50, 3), timers(50, 50, 3)], 1);
    network.paths[1].cut = true;
    network.run(10 * SECOND);
    let standing = network.session(0).standing();
    assert_eq!(standing, Standing::Unproven);
    assert!(standing.usable(false) && !standing.usable(true));
    let sent = &network.sides[0].sent;
    assert!((10..=14).contains(&sent.len()), "slowly: {}", sent.len());
}

#[test]
fn other_timers_are_agreed_on_without_a_flap() {
    let mut network = up([timers(50, 50, 3), timers(50, 50, 3)]);
    let changes = network.sides[0].changes.len();
    // A longer send interval and a shorter receive interval wait for the final reply.
    network.paths[1].cut = true;
    network.event(0, Event::Configure(timers(400, 20, 4)));
    network.run(40 * MS);
    assert_eq!(network.session(0).tx_interval(), Some(50_000), "as before");
    assert_eq!(network.session(0).rx_interval(), 50_000);
    network.paths[1].cut = false;
    network.run(SECOND);
    assert_eq!(network.session(0).tx_interval(), Some(400_000));
    assert_eq!(network.session(1).detection_time(), 1_600 * MS);
    assert_eq!(network.session(1).tx_interval(), Some(50_000), "it wants to send no faster");
    network.event(1, Event::Configure(timers(10, 10, 3)));
    network.event(1, Event::Configure(timers(20, 10, 3)));
    network.run(2 * SECOND);
    assert_eq!(network.session(1).tx_interval(), Some(20_000));
    assert_eq!(network.session(0).detection_time(), 60 * MS);
    network.run(10 * SECOND);
    assert_eq!(network.states(), UP);
    assert_eq!(network.sides[0].changes.len(), changes, "nothing flapped");
}

#[test]
fn packets_lost_or_out_of_order_do_not_matter_while_some_come() {
    for seed in 0..50 {
        let mut network = Network::new([timers(50, 50, 10), timers(50, 50, 10)], seed);
        network.paths = [Path { delay: MS, spread: 150 * MS, loss: 20, cut: false }; 2];
        network.run(30 * SECOND);
        assert_eq!(network.states(), UP, "seed {seed}");
        let before = network.sides[0].changes.len();
        network.run(60 * SECOND);
        assert_eq!(network.sides[0].changes.len(), before, "seed {seed}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Cut(usize, bool),
    Restart(usize),
    Timers(usize, u32, u8),
    Disable(usize),
    Enable(usize),
    Wait(u64),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let side = || 0..2usize;
    prop_oneof![
        (side(), any::<bool>()).prop_map(|(s, c)| Trouble::Cut(s, c)),
        side().prop_map(Trouble::Restart),
        (side(), 10..500u32, 1..6u8).prop_map(|(s, t, m)| Trouble::Timers(s, t, m)),
        side().prop_map(Trouble::Disable),
        side().prop_map(Trouble::Enable),
        (1..3_000u64).prop_map(Trouble::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// After any events, two sides that receive each other come up, stay up, and agree on
    /// intervals.
    #[test]
    fn both_come_up_after_any_trouble(troubles in prop::collection::vec(trouble(), 0..30), seed in 1..1_000_000u64) {
        let mut network = Network::new([timers(50, 50, 3), timers(50, 50, 3)], seed);
        for trouble in troubles {
            match trouble {
                Trouble::Cut(side, cut) => network.paths[side].cut = cut,
                Trouble::Restart(side) => network.restart(side, timers(50, 50, 3)),
                Trouble::Timers(side, ms, multiplier) => {
                    network.event(side, Event::Configure(timers(ms, ms, multiplier)));
                }
                Trouble::Disable(side) => network.event(side, Event::Disable),
                Trouble::Enable(side) => network.event(side, Event::Enable),
                Trouble::Wait(ms) => network.run(ms * MS),
            }
        }
        network.paths = [Path::default(); 2];
        (0..2).for_each(|side| network.event(side, Event::Enable));
        network.run(8 * SECOND);
        prop_assert_eq!(network.states(), UP);
        let changes = network.sides[0].changes.len() + network.sides[1].changes.len();
        network.run(20 * SECOND);
        prop_assert_eq!(network.sides[0].changes.len() + network.sides[1].changes.len(), changes, "nothing flaps");
        for side in 0..2 {
            let (this, that) = (network.session(side), network.session(1 - side));
            prop_assert_eq!(this.standing(), Standing::Up);
            prop_assert_eq!(Some(this.rx_interval()), that.tx_interval());
            prop_assert_eq!(this.remote_multiplier(), that.timers().multiplier);
        }
    }
}
