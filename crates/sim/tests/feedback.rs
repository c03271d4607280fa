//! BGP, the RIB manager and the network become idle, and every advertised route is then forwarded.
//!
//! `RIBTIDE_SEEDS=100000` runs more, `RIBTIDE_SEED=17` one seed, named by the failure.

use ribtide_bgp::decision::DecisionOptions;
use ribtide_prefix::{AnyPrefix, Rng};
use ribtide_rib::{CacheMode, Protocol};
use ribtide_sim::feedback::{Feedback, Outcome, Setup};
use ribtide_sim::history::options;
use ribtide_sim::network::{Choice, Event, Kind, Network, announcement, link, route};
use std::net::IpAddr;

const SHARDS: [u16; 4] = [1, 2, 7, 64];
const MODES: [CacheMode; 3] = [CacheMode::Dependency, CacheMode::Epoch, CacheMode::Off];

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs it for many seeds; a panic names the seed.
fn seeds(most: u64, what: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let seeds = match number("RIBTIDE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIBTIDE_SEEDS").unwrap_or(most),
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| what(seed)) {
            eprintln!("repeat with RIBTIDE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn setup(rng: &mut Rng) -> Setup {
    Setup {
        shards: *rng.pick(&SHARDS),
        workers: 1 + rng.index(3) as u16,
        cache: *rng.pick(&MODES),
        suppress: rng.one_in(3),
        calm: rng.one_in(2),
    }
}

fn network(seed: u64, choice: Choice) -> (Network, Rng) {
    let mut rng = Rng::new(seed);
    let options = options(&mut rng, false);
    let length = 10 + rng.index(60);
    (Network::new(&mut rng, options, choice, length), rng)
}

/// Runs a history in each cache mode, with events one by one and all at once.
fn in_every_mode(network: &Network) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for cache in MODES {
        for (seed, calm, suppress) in [(1, true, false), (2, false, false), (3, true, true), (4, false, true)]
        {
            let setup = Setup { shards: 2, workers: 2, cache, suppress, calm };
            outcomes.push(Feedback::new(network, setup, Rng::new(seed)).finish());
        }
    }
    outcomes
}

fn prefix(text: &str) -> AnyPrefix {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The announcement of a peer with a next hop and an AS path of that length.
fn announce(network: &Network, peer: usize, next_hop: &str, asns: usize, prefixes: &[&str]) -> Event {
    let with = announcement(&network.peers[peer], address(next_hop), asns);
    Event::Announce(peer, with, prefixes.iter().map(|text| prefix(text)).collect())
}

fn statics(text: &str, gateways: &[&str]) -> Event {
    let hops = gateways.iter().map(|gateway| (address(gateway), None)).collect();
    route(Protocol::Static, prefix(text), Some(hops))
}

/// Checks that the stages become idle and advertise only forwarded routes.
fn rests(seed: u64, choice: Choice) {
    let (network, mut rng) = network(seed, choice);
    let setup = setup(&mut rng);
    Feedback::new(&network, setup, rng).finish();
}

/// Checks that the end is the same in each cache mode, with any number of shards and any order.
fn ends_alike(seed: u64, choice: Choice) {
    let (network, mut rng) = network(seed, choice);
    let suppress = rng.one_in(3);
    let mut first: Option<Outcome> = None;
    for cache in MODES {
        let setup = Setup { cache, suppress, ..setup(&mut rng) };
        let outcome = Feedback::new(&network, setup, Rng::new(rng.next_u64())).finish();
        let first = first.get_or_insert(outcome.clone());
        if !first.damped && !outcome.damped {
            assert_eq!(*first, outcome, "{setup:?}");
        }
    }
}

#[test]
fn plain_networks_rest_and_advertise_what_is_forwarded() {
    seeds(500, |seed| rests(seed, Choice::Plain));
}

#[test]
fn plain_networks_end_alike_in_every_order_and_mode() {
    seeds(150, |seed| ends_alike(seed, Choice::Plain));
}

#[test]
fn networks_rest_and_advertise_what_is_forwarded() {
    seeds(100, |seed| rests(seed, Choice::Any));
}

/// Seeds in which BGP advertised routes that the RIB manager found circular or unresolved.
#[test]
fn networks_with_circles_rest_and_advertise_what_is_forwarded() {
    for seed in [109, 178, 219, 237, 266, 297, 306, 325, 338, 357, 373, 393] {
        rests(seed, Choice::Any);
    }
}

/// A prefix whose paths depend on its own choice may have several stable states, so damped
/// histories are excluded (ADR 20).
#[test]
fn networks_end_alike_in_every_order_and_mode() {
    seeds(150, |seed| ends_alike(seed, Choice::Any));
}

/// Row 1 of the table that ADR 20 was written for.
#[test]
fn loss_of_one_of_two_static_next_hops_keeps_what_is_recursive() {
    let mut network = Network::empty(DecisionOptions::default());
    let (source, other) = (network.neighbor(Kind::Internal), network.neighbor(Kind::SingleHop));
    let routes: Vec<String> = (0..30).map(|n| format!("30.{n}.0.0/16")).collect();
    let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
    network.size += routes.len();
    for event in [
        link(1, true),
        link(2, true),
        statics("192.0.2.0/24", &["10.0.1.20", "10.0.2.20"]),
        Event::Up(source),
        Event::Up(other),
        announce(&network, source, "192.0.2.9", 1, &["0.0.0.0/0"]),
        announce(&network, source, "192.0.2.10", 1, &routes),
        link(2, false),
    ] {
        network.happens(event);
    }
    for outcome in in_every_mode(&network) {
        assert!(outcome.forwarded.contains_key(&prefix("0.0.0.0/0")));
        assert_eq!(
            outcome.advertised.values().map(|advertised| advertised.len()).max(),
            Some(routes.len() + 1)
        );
    }
}

/// Row 2 of the table that ADR 20 was written for.
#[test]
fn routes_by_each_others_next_hops_become_idle() {
    for kind in [Kind::Multihop, Kind::Internal] {
        let mut network = Network::empty(DecisionOptions::default());
        let source = network.neighbor(kind);
        network.neighbor(Kind::SingleHop);
        for event in [
            link(1, true),
            statics("0.0.0.0/0", &["10.0.1.20"]),
            Event::Up(source),
            Event::Up(1),
            announce(&network, source, "30.0.0.1", 1, &["20.0.1.0/24"]),
            announce(&network, source, "20.0.1.1", 1, &["30.0.0.0/24"]),
        ] {
            network.happens(event);
        }
        let outcomes = in_every_mode(&network);
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:#?}");
        network.happens(Event::Withdraw(source, vec![prefix("20.0.1.0/24"), prefix("30.0.0.0/24")]));
        assert!(in_every_mode(&network).iter().all(|outcome| outcome.forwarded.len() <= 5));
    }
}

/// Row 3 of the table that ADR 20 was written for.
#[test]
fn off_link_next_hop_of_single_hop_peer_does_not_replace_good_path() {
    let mut network = Network::empty(DecisionOptions::default());
    let (good, bad) = (network.neighbor(Kind::SingleHop), network.neighbor(Kind::SingleHop));
    let client = network.neighbor(Kind::Client);
    for event in [
        link(1, true),
        statics("0.0.0.0/0", &["10.0.1.20"]),
        Event::Up(good),
        Event::Up(bad),
        Event::Up(client),
        announce(&network, good, "10.0.1.21", 2, &["20.0.0.0/24"]),
        announce(&network, bad, "192.0.2.9", 1, &["20.0.0.0/24"]),
    ] {
        network.happens(event);
    }
    for outcome in in_every_mode(&network) {
        assert!(outcome.forwarded.contains_key(&prefix("20.0.0.0/24")));
        let advertised = &outcome.advertised[&network.peers[client].id];
        assert_eq!(advertised[&prefix("20.0.0.0/24")].1.addr(), address("10.0.1.21"));
    }
}

/// A next hop inside the prefix itself, which only another path of the prefix reaches (RFC 4271
/// section 9.1.2.1).
#[test]
fn next_hop_that_only_backup_of_same_route_reaches_is_not_best() {
    for first in [0, 1] {
        let mut network = Network::empty(DecisionOptions { backup_path: true, ..DecisionOptions::default() });
        let (inside, outside) = (network.neighbor(Kind::Internal), network.neighbor(Kind::Internal));
        let client = network.neighbor(Kind::Client);
        let paths = [
            announce(&network, inside, "20.0.0.1", 1, &["20.0.0.0/24"]),
            announce(&network, outside, "10.0.1.20", 2, &["20.0.0.0/24"]),
        ];
        for event in [link(1, true), Event::Up(inside), Event::Up(outside), Event::Up(client)] {
            network.happens(event);
        }
        network.happens(paths[first].clone());
        network.happens(paths[1 - first].clone());
        for outcome in in_every_mode(&network) {
            let advertised = &outcome.advertised[&network.peers[client].id];
            assert_eq!(advertised[&prefix("20.0.0.0/24")].1.addr(), address("10.0.1.20"));
        }
    }
}
