//! Two sessions with each other, through whatever lies between them.

mod common;

use common::*;
use proptest::prelude::*;
use ribtide_bfd::*;
use ribtide_wire::bfd::{Diagnostic, State};

const UP: [State; 2] = [State::Up; 2];

fn up(timers: [Timers; 2]) -> World {
    let mut world = World::new(timers, 1);
    world.run(3 * SECOND);
    assert_eq!(world.states(), UP);
    world
}

#[test]
fn a_session_comes_up_slowly_and_then_sends_as_agreed() {
    let mut world = World::new([timers(50, 100, 3), timers(80, 60, 5)], 1);
    world.run(3 * SECOND);
    assert_eq!(world.states(), UP);
    for side in 0..2 {
        let states: Vec<State> = world.sides[side].changes.iter().map(|(_, s)| *s).collect();
        let whole = [State::Init, State::Up];
        assert!(states == whole || states == [State::Up], "{states:?}");
        assert_eq!(world.session(side).standing(), Standing::Up);
        let first = world.sides[side].sent[0].1;
        assert_eq!((first.desired_min_tx, first.required_min_echo_rx), (1_000_000, 0));
    }
    // The slower of what one side wants to send and what the other can receive.
    assert_eq!(world.session(0).tx_interval(), Some(60_000));
    assert_eq!(world.session(1).tx_interval(), Some(100_000));
    assert_eq!(world.session(0).detection_time(), 500 * MS);
    assert_eq!(world.session(1).detection_time(), 180 * MS);
    assert!(world.sides[0].sent.iter().any(|(_, c)| c.poll), "faster is found out by a poll");
    assert!(world.sides[1].sent.iter().any(|(_, c)| c.finished), "and answered");
    assert!(world.sides.iter().all(|s| s.sent.iter().all(|(_, c)| !(c.poll && c.finished))));
    // A second later all polls are over, and packets keep to the jitter of section 6.8.7.
    let from = world.now;
    world.run(20 * SECOND);
    let sent: Vec<_> = world.sides[0].sent.iter().filter(|(at, _)| *at > from).collect();
    assert!(sent.iter().all(|(_, c)| !c.poll && c.state == State::Up));
    let gaps: Vec<Micros> = sent.windows(2).map(|w| w[1].0 - w[0].0).collect();
    assert!(gaps.iter().all(|gap| (45 * MS..=60 * MS).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().min().unwrap() + 10 * MS < *gaps.iter().max().unwrap(), "not in step");
}

#[test]
fn one_packet_that_may_be_lost_none() {
    let mut world = up([timers(50, 50, 1), timers(50, 50, 3)]);
    let from = world.now;
    world.run(10 * SECOND);
    let sent: Vec<Micros> = world.sides[0].sent.iter().map(|(at, _)| *at).filter(|at| *at > from).collect();
    assert!(sent.windows(2).all(|w| (37_500..=45_000).contains(&(w[1] - w[0]))));
    assert_eq!(world.states(), UP);
}

#[test]
fn silence_is_found_out_within_the_detection_time() {
    let mut world = up([timers(50, 50, 3), timers(50, 50, 3)]);
    world.ways = [Way { cut: true, ..Way::default() }; 2];
    let cut = world.now;
    world.run(SECOND);
    for side in 0..2 {
        let session = world.session(side);
        assert_eq!((session.state(), session.standing()), (State::Down, Standing::Failed));
        assert_eq!(session.diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
        assert_eq!(session.remote_discriminator(), 0, "it may have restarted meanwhile");
        let (at, _) = *world.sides[side].changes.last().unwrap();
        assert!((cut + 100 * MS..=cut + 151 * MS).contains(&at), "{} ms", (at - cut) / MS);
    }
    // Down, both send slowly; and come back by themselves.
    let before = world.sides[0].sent.len();
    world.run(10 * SECOND);
    assert!((10..15).contains(&(world.sides[0].sent.len() - before)));
    world.ways = [Way::default(); 2];
    world.run(3 * SECOND);
    assert_eq!(world.states(), UP);
    assert_eq!(world.session(0).standing(), Standing::Up);
}

#[test]
fn who_hears_nothing_tells_the_other() {
    let mut world = up([timers(50, 50, 3), timers(50, 50, 3)]);
    world.ways[0].cut = true;
    world.run(500 * MS);
    let (deaf, told) = (world.session(1), world.session(0));
    assert_eq!(deaf.diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    assert_eq!(told.diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    assert_eq!(told.remote_diagnostic(), Diagnostic::DETECTION_TIME_EXPIRED);
    assert_eq!((deaf.standing(), told.standing()), (Standing::Failed, Standing::Failed));
    // One way is not enough, however long it lasts.
    world.run(30 * SECOND);
    assert_eq!((world.session(0).state(), world.session(1).state()), (State::Init, State::Down));
    world.ways[0].cut = false;
    world.run(3 * SECOND);
    assert_eq!(world.states(), UP);
}

#[test]
fn a_peer_that_restarts_has_another_number_and_comes_up_again() {
    let mut world = up([timers(50, 50, 3), timers(50, 50, 3)]);
    let former = world.session(0).remote_discriminator();
    world.restart(1, timers(50, 50, 3));
    world.run(5 * SECOND);
    assert_eq!(world.states(), UP);
    assert_ne!(world.session(0).remote_discriminator(), former);
    let went: Vec<State> = world.sides[0].changes.iter().map(|(_, s)| *s).collect();
    assert!(
        went.ends_with(&[State::Down, State::Init, State::Up]) || went.ends_with(&[State::Down, State::Up])
    );
    world.restart(0, timers(50, 50, 3));
    world.restart(1, timers(50, 50, 3));
    world.run(5 * SECOND);
    assert_eq!(world.states(), UP);
}

#[test]
fn an_operator_who_takes_it_down_is_no_failure() {
    let mut world = up([timers(50, 50, 3), timers(50, 50, 3)]);
    world.event(0, Event::Disable);
    world.run(SECOND);
    assert_eq!(world.states(), [State::AdminDown, State::Down]);
    for side in 0..2 {
        assert_eq!(world.session(side).standing(), Standing::Excused);
        assert!(world.session(side).standing().usable(true));
    }
    assert_eq!(world.session(0).diagnostic(), Diagnostic::ADMINISTRATIVELY_DOWN);
    assert_eq!(world.session(1).diagnostic(), Diagnostic::NEIGHBOR_SIGNALED_DOWN);
    world.event(0, Event::Enable);
    world.run(3 * SECOND);
    assert_eq!(world.states(), UP);
    // After a failure, it is an excuse too.
    world.ways = [Way { cut: true, ..Way::default() }; 2];
    world.run(SECOND);
    assert!(!world.session(1).standing().usable(false));
    world.ways = [Way::default(); 2];
    world.event(0, Event::Disable);
    world.run(2 * SECOND);
    assert!(world.session(1).standing().usable(false));
}

#[test]
fn without_a_peer_nothing_is_held_against_the_way_unless_it_must_be_proven() {
    let mut world = World::new([timers(50, 50, 3), timers(50, 50, 3)], 1);
    world.ways[1].cut = true;
    world.run(10 * SECOND);
    let standing = world.session(0).standing();
    assert_eq!(standing, Standing::Unproven);
    assert!(standing.usable(false) && !standing.usable(true));
    let sent = &world.sides[0].sent;
    assert!((10..=14).contains(&sent.len()), "slowly: {}", sent.len());
}

#[test]
fn other_timers_are_agreed_on_without_a_flap() {
    let mut world = up([timers(50, 50, 3), timers(50, 50, 3)]);
    let changes = world.sides[0].changes.len();
    // To send less often, and to expect packets more often, wait for the answer.
    world.ways[1].cut = true;
    world.event(0, Event::Configure(timers(400, 20, 4)));
    world.run(40 * MS);
    assert_eq!(world.session(0).tx_interval(), Some(50_000), "as before");
    assert_eq!(world.session(0).rx_interval(), 50_000);
    world.ways[1].cut = false;
    world.run(SECOND);
    assert_eq!(world.session(0).tx_interval(), Some(400_000));
    assert_eq!(world.session(1).detection_time(), 1_600 * MS);
    assert_eq!(world.session(1).tx_interval(), Some(50_000), "it wants to send no faster");
    world.event(1, Event::Configure(timers(10, 10, 3)));
    world.event(1, Event::Configure(timers(20, 10, 3)));
    world.run(2 * SECOND);
    assert_eq!(world.session(1).tx_interval(), Some(20_000));
    assert_eq!(world.session(0).detection_time(), 60 * MS);
    world.run(10 * SECOND);
    assert_eq!(world.states(), UP);
    assert_eq!(world.sides[0].changes.len(), changes, "nothing flapped");
}

#[test]
fn packets_lost_or_out_of_order_do_not_matter_while_some_come() {
    for seed in 0..50 {
        let mut world = World::new([timers(50, 50, 10), timers(50, 50, 10)], seed);
        world.ways = [Way { delay: MS, spread: 150 * MS, loss: 20, cut: false }; 2];
        world.run(30 * SECOND);
        assert_eq!(world.states(), UP, "seed {seed}");
        let before = world.sides[0].changes.len();
        world.run(60 * SECOND);
        assert_eq!(world.sides[0].changes.len(), before, "seed {seed}");
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

    /// Whatever happened, two that hear each other come up, stay up, and agree on what to expect.
    #[test]
    fn both_come_up_after_any_trouble(troubles in prop::collection::vec(trouble(), 0..30), seed in 1..1_000_000u64) {
        let mut world = World::new([timers(50, 50, 3), timers(50, 50, 3)], seed);
        for trouble in troubles {
            match trouble {
                Trouble::Cut(side, cut) => world.ways[side].cut = cut,
                Trouble::Restart(side) => world.restart(side, timers(50, 50, 3)),
                Trouble::Timers(side, ms, multiplier) => {
                    world.event(side, Event::Configure(timers(ms, ms, multiplier)));
                }
                Trouble::Disable(side) => world.event(side, Event::Disable),
                Trouble::Enable(side) => world.event(side, Event::Enable),
                Trouble::Wait(ms) => world.run(ms * MS),
            }
        }
        world.ways = [Way::default(); 2];
        (0..2).for_each(|side| world.event(side, Event::Enable));
        world.run(8 * SECOND);
        prop_assert_eq!(world.states(), UP);
        let changes = world.sides[0].changes.len() + world.sides[1].changes.len();
        world.run(20 * SECOND);
        prop_assert_eq!(world.sides[0].changes.len() + world.sides[1].changes.len(), changes, "nothing flaps");
        for side in 0..2 {
            let (this, that) = (world.session(side), world.session(1 - side));
            prop_assert_eq!(this.standing(), Standing::Up);
            prop_assert_eq!(Some(this.rx_interval()), that.tx_interval());
            prop_assert_eq!(this.remote_multiplier(), that.timers().multiplier);
        }
    }
}
