//! Random changes, random order of replies, random lack of room, and times in which the chip refuses any request at
//! random: in the end the chip does what the rows say, and when
//! all rows are gone nothing is left.

use super::world::World;
use crate::orch::{Finished, OrchConfig};
use crate::row::{RouteKey, RouteRow, Row};
use crate::sai::{ObjectType, Status, Verb};
use proptest::prelude::*;
use ribtide_prefix::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// What a test does.
#[derive(Clone, Debug)]
enum Act {
    Route(u8, Target),
    NoRoute(u8),
    Index(u8, Vec<(u8, u8)>),
    NoIndex(u8),
    Neighbor(u8, bool),
    Mac(u8),
    Link(u8, bool),
    Vrf(bool),
    Run,
    Answer(usize),
    Fail(u8),
    /// Makes the chip refuse one request in so many; 0: none.
    Moody(u8, u64),
    Tick,
}

/// The next hops of a route.
#[derive(Clone, Debug)]
enum Target {
    Drop,
    Interface(u8),
    Index(u8),
    /// Next hops and weights.
    Hops(Vec<u8>, bool),
}

/// Routes; those from this number on are of labels.
const ROUTES: u8 = 8;
const LABELS: u8 = 6;
const INDEXES: u8 = 3;
/// Groups of which there are enough for all: each route may have one of its own, and each index.
const ENOUGH_GROUPS: u32 = ROUTES as u32 + INDEXES as u32;
/// Neighbours, and next hops: those beyond are MPLS next hops of the first neighbours.
const NEIGHBORS: u8 = 5;
const HOPS: u8 = 8;

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        1 => Just(Target::Drop),
        1 => (0..3u8).prop_map(Target::Interface),
        2 => (0..INDEXES).prop_map(Target::Index),
        5 => (proptest::collection::vec(0..HOPS, 1..4), any::<bool>()).prop_map(|(hops, w)| Target::Hops(hops, w)),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..ROUTES, target()).prop_map(|(n, target)| Act::Route(n, target)),
        3 => (0..ROUTES).prop_map(Act::NoRoute),
        3 => (0..INDEXES, proptest::collection::vec((0..HOPS, 1..3u8), 1..4)).prop_map(|(n, m)| Act::Index(n, m)),
        2 => (0..INDEXES).prop_map(Act::NoIndex),
        4 => (0..NEIGHBORS, any::<bool>()).prop_map(|(n, up)| Act::Neighbor(n, up)),
        1 => (0..NEIGHBORS).prop_map(Act::Mac),
        2 => (0..3u8, any::<bool>()).prop_map(|(n, up)| Act::Link(n, up)),
        1 => any::<bool>().prop_map(Act::Vrf),
        6 => Just(Act::Run),
        12 => any::<usize>().prop_map(Act::Answer),
        2 => (0..8u8).prop_map(Act::Fail),
        1 => (0..5u8, any::<u64>()).prop_map(|(one_in, seed)| Act::Moody(one_in, seed)),
        1 => Just(Act::Tick),
    ]
}

fn labels(hop: u8) -> Option<String> {
    let how = if hop.is_multiple_of(2) { "push" } else { "swap" };
    (hop >= NEIGHBORS).then(|| format!("{how}{}/{hop}", 100 + hop))
}

fn ip(hop: u8) -> String {
    let hop = hop % NEIGHBORS;
    format!("10.0.{}.{}", hop % 3, 2 + hop / 3)
}

fn fields(hops: &[(u8, Option<u8>)]) -> String {
    fn list(hops: &[(u8, Option<u8>)], f: impl Fn(&(u8, Option<u8>)) -> String) -> String {
        hops.iter().map(f).collect::<Vec<_>>().join(",")
    }
    let weight = match hops[0].1 {
        Some(_) => list(hops, |(_, w)| w.unwrap_or(1).to_string()),
        None => String::new(),
    };
    format!(
        "nexthop={} ifname={} mpls_nh={} weight={weight} nexthop_group= blackhole=false",
        list(hops, |(hop, _)| ip(*hop)),
        list(hops, |(hop, _)| format!("Ethernet{}", hop % NEIGHBORS % 3)),
        list(hops, |(hop, _)| labels(*hop).unwrap_or("na".into())),
    )
}

/// What [`World::forwarding`] says of these next hops.
fn shown(hops: &[(u8, Option<u8>)]) -> String {
    let mut set: BTreeMap<(std::net::IpAddr, String), Option<u8>> = BTreeMap::new();
    let mut sorted = hops.to_vec();
    sorted.sort();
    for (hop, weight) in sorted {
        set.entry((ip(hop).parse().unwrap(), labels(hop).unwrap_or_default())).or_insert(weight);
    }
    let one = set.len() == 1;
    let show = |((ip, labels), weight): ((std::net::IpAddr, String), Option<u8>)| {
        let to = if labels.is_empty() { ip.to_string() } else { format!("{labels}@{ip}") };
        match weight {
            Some(weight) if !one => format!("{to}*{weight}"),
            _ => to,
        }
    };
    set.into_iter().map(show).collect::<Vec<_>>().join(" ")
}

fn key(route: u8) -> String {
    if route >= LABELS {
        return (100 + u32::from(route)).to_string();
    }
    if route % 3 == 2 { format!("Vrf1:10.{route}.0.0/16") } else { format!("10.{route}.0.0/16") }
}

fn weighted(hops: &[u8], weights: bool) -> Vec<(u8, Option<u8>)> {
    hops.iter().map(|hop| (*hop, weights.then_some(*hop + 1))).collect()
}

fn row(target: &Target) -> String {
    match target {
        Target::Drop => "blackhole=true nexthop= ifname= mpls_nh= weight= nexthop_group=".into(),
        Target::Interface(n) => {
            format!("nexthop=0.0.0.0 ifname=Ethernet{n} mpls_nh= weight= nexthop_group= blackhole=")
        }
        Target::Index(n) => format!("nexthop_group={n} nexthop= ifname= mpls_nh= weight= blackhole="),
        Target::Hops(hops, weights) => fields(&weighted(hops, *weights)),
    }
}

struct Player {
    world: World,
    routes: BTreeMap<u8, Target>,
    indexes: BTreeMap<u8, Vec<(u8, u8)>>,
    batches: Batches,
}

/// What the writer of the rows knows of them.
#[derive(Default)]
struct Batches {
    last: u64,
    finished: u64,
    /// The batch that changed a key last.
    changed: BTreeMap<String, u64>,
    /// Keys that are reported as failed.
    failed: BTreeSet<String>,
}

impl Batches {
    fn collect(&mut self, world: &mut World, quiet: bool) {
        let text = |key: &RouteKey| {
            let mut text = String::new();
            RouteRow::key_text(key, &mut text);
            text
        };
        for (key, why) in world.out.status_changes.drain(..) {
            match why {
                Some(_) => drop(self.failed.insert(text(&key))),
                None => drop(self.failed.remove(&text(&key))),
            }
        }
        while let Some(Finished { batch, failed }) = world.orch.finished(quiet) {
            if batch == 0 {
                self.failed.extend(failed.iter().map(|(key, _)| text(key)));
                continue;
            }
            assert_eq!(batch, self.finished + 1, "in order, each once");
            self.finished = batch;
            let current = failed.iter().map(|(key, _)| text(key)).filter(|key| self.changed[key] <= batch);
            self.failed.extend(current);
        }
    }
}

impl Player {
    fn forwarding(&self, n: u8) -> String {
        match n {
            LABELS.. => {
                let forwarding = self.world.label_forwarding(100 + u32::from(n));
                forwarding.strip_suffix(&format!(" pop{n}")).unwrap_or(&forwarding).to_owned()
            }
            _ => self.world.forwarding(&key(n)),
        }
    }

    fn why(&self, n: u8) -> String {
        if n < LABELS {
            return self.world.why(&key(n));
        }
        let state = self.world.orch.explain_label(100 + u32::from(n));
        state.and_then(|state| state.waiting).map_or_else(String::new, |waiting| waiting.to_string())
    }

    fn route(&mut self, n: u8, text: &str) {
        if n >= LABELS {
            let text = if text == "DEL" { text.to_owned() } else { format!("{text} mpls_pop={n}") };
            return self.world.set(&format!("LABEL_ROUTE_TABLE:{}", key(n)), &text);
        }
        self.batches.last += 1;
        self.batches.changed.insert(key(n), self.batches.last);
        self.batches.failed.remove(&key(n));
        self.world.orch.batch(self.batches.last, 1);
        self.world.set(&format!("ROUTE_TABLE:{}", key(n)), text);
    }

    fn index(&mut self, n: u8, members: &[(u8, u8)]) {
        let members: Vec<(u8, Option<u8>)> = members.iter().map(|(hop, w)| (*hop, Some(*w))).collect();
        let text = fields(&members).replace(" nexthop_group= blackhole=false", "");
        self.world.set(&format!("NEXTHOP_GROUP_TABLE:{n}"), &text);
    }

    fn neighbor(&mut self, hop: u8, mac: Option<u8>) {
        let text = match mac {
            Some(mac) => format!("neigh=02:00:00:00:00:{mac:02x} family=IPv4"),
            None => "DEL".into(),
        };
        self.world.set(&format!("NEIGH_TABLE:Ethernet{}:{}", hop % 3, ip(hop)), &text);
    }

    fn link(&mut self, n: u8, up: bool) {
        self.world.link(n.into(), up);
    }

    fn play(&mut self, act: Act) {
        match act {
            Act::Route(n, target) => {
                self.route(n, &row(&target));
                self.routes.insert(n, target);
            }
            Act::NoRoute(n) => {
                self.route(n, "DEL");
                self.routes.remove(&n);
            }
            Act::Index(n, members) => {
                self.index(n, &members);
                self.indexes.insert(n, members);
            }
            Act::NoIndex(n) => {
                self.world.set(&format!("NEXTHOP_GROUP_TABLE:{n}"), "DEL");
                self.indexes.remove(&n);
            }
            Act::Neighbor(hop, there) => self.neighbor(hop, there.then_some(1)),
            Act::Mac(hop) => self.neighbor(hop, Some(2)),
            Act::Link(n, up) => self.link(n, up),
            Act::Vrf(there) => self.world.set("VRF_TABLE:Vrf1", if there { "fallback=false" } else { "DEL" }),
            Act::Run => {
                self.world.run();
                self.batches.collect(&mut self.world, true);
            }
            Act::Answer(at) if !self.world.queue.is_empty() => {
                let at = at % self.world.queue.len();
                self.world.answer(at);
            }
            Act::Answer(_) => {}
            Act::Fail(n) => {
                let (object, verb) = [
                    (ObjectType::RouteEntry, Verb::Create),
                    (ObjectType::RouteEntry, Verb::Set),
                    (ObjectType::NextHopGroup, Verb::Create),
                    (ObjectType::NextHopGroupMember, Verb::Create),
                    (ObjectType::NeighborEntry, Verb::Create),
                    (ObjectType::NextHop, Verb::Create),
                    (ObjectType::InsegEntry, Verb::Create),
                    (ObjectType::InsegEntry, Verb::Set),
                ][usize::from(n)];
                self.world.syncd.chip_mut().fail.push((object, verb, Status::TableFull));
            }
            Act::Moody(one_in, seed) => {
                let moody = (one_in > 0).then(|| (usize::from(one_in), Rng::new(seed)));
                self.world.syncd.chip_mut().moody = moody;
            }
            Act::Tick => {
                self.world.now_ms += 1000;
                self.world.orch.tick(self.world.now_ms, &mut self.world.out);
            }
        }
    }

    fn settle(&mut self) {
        self.world.syncd.chip_mut().fail.clear();
        self.world.syncd.chip_mut().moody = None;
        // A pause is 64 s at most, and objects that depend on each other are retried one after the other.
        for _ in 0..16 {
            self.world.tick(64_000);
        }
        let events = self.world.events();
        assert!(events.iter().all(|event| event.starts_with("the chip refused ")), "{events:?}");
        assert_eq!(self.world.orch.refused_len(), 0);
        self.world.assert_db_agrees();
        self.batches.collect(&mut self.world, true);
        assert_eq!(self.batches.finished, self.batches.last, "every batch is finished");
        let waiting = |n: &u8| !self.why(*n).is_empty();
        let said = |n: &u8| self.batches.failed.contains(&key(*n));
        for n in 0..LABELS {
            assert_eq!(said(&n), waiting(&n), "{}: {}", key(n), self.why(n));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    #[test]
    fn the_chip_does_what_the_rows_say(
        acts in proptest::collection::vec(act(), 1..120),
        window in 1..5usize,
        bulk_size in 1..4usize,
        groups in 0..20u32,
        single_groups in any::<bool>(),
    ) {
        let config = OrchConfig {
            window, bulk_size, single_groups, group_limit: Some(groups), crm_interval_ms: 0, ..OrchConfig::default()
        };
        let mut player = Player { world: World::new(config), routes: BTreeMap::new(), indexes: BTreeMap::new(), batches: Batches::default() };
        for act in acts {
            player.play(act);
            prop_assert_eq!(&player.world.syncd.chip().violations, &[""; 0]);
        }
        // Everything that routes can wait for comes.
        for hop in 0..NEIGHBORS {
            player.neighbor(hop, Some(1));
        }
        for n in 0..3 {
            player.link(n, true);
        }
        for n in 0..INDEXES {
            let members = player.indexes.entry(n).or_insert_with(|| vec![(n, 1)]).clone();
            player.index(n, &members);
        }
        player.play(Act::Vrf(true));
        player.settle();
        for n in 0..ROUTES {
            let forwarding = player.forwarding(n);
            let wanted = match player.routes.get(&n) {
                None => "-".into(),
                Some(Target::Drop) => "drop".into(),
                Some(Target::Interface(n)) => format!("Ethernet{n}"),
                Some(Target::Hops(hops, weights)) => shown(&weighted(hops, *weights)),
                Some(Target::Index(n)) => {
                    let members = &player.indexes[n];
                    shown(&members.iter().map(|(hop, w)| (*hop, Some(*w))).collect::<Vec<_>>())
                }
            };
            let bare = |text: &str| {
                text.split(' ').map(|hop| hop.split('*').next().unwrap_or("").to_string()).collect::<Vec<_>>()
            };
            // A group of one shows its weight where a next hop has none; and where groups are few, any member will do.
            let single = bare(&forwarding).len() == 1 && bare(&wanted).contains(&bare(&forwarding)[0]);
            let few = groups < ENOUGH_GROUPS && player.why(n).contains("all used");
            let alone = single && bare(&wanted).len() == 1;
            prop_assert!(forwarding == wanted || alone || (few && single), "route {}: {} for {}", key(n), forwarding, wanted);
        }
        // An orchagent that starts warm finds it so; but where groups are few it is chance which routes have one, and an
        // index that once had more members than one, or has those of another, is known by routes of the default VRF only.
        let alike: BTreeSet<BTreeSet<_>> = player.indexes.values().map(|m| m.iter().map(|(hop, _)| *hop).collect()).collect();
        let known = alike.len() == usize::from(INDEXES) && alike.iter().all(|hops| single_groups || hops.len() > 1);
        if groups >= ENOUGH_GROUPS && known {
            let rows = player.world.asic_db.clone();
            prop_assert_eq!(player.world.restart_warm(&[]), 0);
            prop_assert_eq!(&player.world.asic_db, &rows);
            player.batches.finished = player.batches.last;
        }
        // And all goes.
        for n in 0..ROUTES {
            player.play(Act::NoRoute(n));
        }
        for n in 0..INDEXES {
            player.play(Act::NoIndex(n));
        }
        for hop in 0..NEIGHBORS {
            player.play(Act::Neighbor(hop, false));
        }
        player.play(Act::Vrf(false));
        player.settle();
        player.world.assert_empty();
        prop_assert_eq!(player.world.syncd.chip().count(ObjectType::VirtualRouter), 1);
    }
}
