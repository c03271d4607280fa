//! What moves in one stop, counted: whatever a clock says, and however prefixes and paths are spread.

use super::*;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::ingest::ShardBatches;
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::{Prefix, V4, logical_shard};
use ribtide_runtime::activity::Activity;
use ribtide_runtime::clock::Clock;
use ribtide_wire::bgp::NextHop;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Paths of the prefix that has the most.
const WIDE: u32 = 5000;

fn peer(n: u32) -> Arc<PeerInfo> {
    let families = FamilySet::IPV4_UNICAST;
    Arc::new(PeerInfo {
        id: PeerId(n),
        session: 1,
        address: Ipv4Addr::from(n).into(),
        asn: 65001,
        router_id: Ipv4Addr::from(n),
        kind: PeerKind::External,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings::new(
            PeerKind::External,
            65000,
            Ipv4Addr::LOCALHOST,
            families,
            Arc::new(Policy::new(vec![], true)),
        ),
    })
}

/// All prefixes of one logical shard that moves from the first shard to the second.
fn prefixes() -> Vec<Prefix<V4>> {
    let logical = LOGICAL_SHARDS - 1;
    let blocks = (1..1 << 18).map(|block| Prefix::<V4>::new(block << 14, 32));
    let blocks = blocks.filter(|block| logical_shard(*block) == logical).take(2);
    blocks.flat_map(|block| (0..1 << 14).map(move |n| Prefix::new(block.bits() + n, 32))).collect()
}

#[test]
fn moves_skewed_logical_shard_and_wide_prefix_stops_move_bounded_numbers_of_paths() {
    let (rings, stop, seed) = (Rings::default(), Stop::default(), HashSeed::random());
    let (news, _news) = rings.bounded("news", 1);
    let outputs = Outputs {
        workers: Vec::new(),
        rib: None,
        news,
        monitor: None,
        events: crate::best_changes::queue(&rings).0,
        activity: Activity::default(),
        clock: Clock::default(),
    };
    let shards: Vec<ShardPort> = (0..2)
        .map(|index| {
            let builder = ShardBuilder::new(index, index.into(), &rings, None);
            let options = DecisionOptions::default();
            let (port, stage) = builder.build(options, &seed, outputs.clone(), &Meters::default());
            let home = stage::Home::new(false, std::sync::Arc::new(|| ()));
            let stage = NamedStage::new(format!("shard-{index}"), &home, stage);
            stage::spawn(stage, None, stop.clone()).unwrap();
            port
        })
        .collect();
    let all = prefixes();
    let logical = logical_shard(all[0]);
    let attrs = AttrSet::new(&[0x40, 1, 1, 0], NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)));
    for n in 1..=WIDE {
        shards[0].inbox().send(ShardIn::PeerUp(peer(n))).unwrap();
        let mut batches = ShardBatches::new([0; 64]);
        let announced = if n <= 3 { &all[..] } else { &all[..1] };
        batches.extend(&peer(n), Some(&attrs), announced.iter().copied());
        batches.drain().for_each(|(_, batch)| shards[0].inbox().send(ShardIn::Routes(batch)).unwrap());
    }
    while !shards[0].has_taken_all() {
        std::thread::yield_now();
    }
    let paths = 3 * (all.len() - 1) + WIDE as usize;
    let counts = |shard: &ShardPort| {
        shard.call(|shard| shard.counts().families[ribtide_prefix::AfiSafi::Ipv4Unicast]).unwrap()
    };
    assert_eq!((counts(&shards[0]).paths, paths > 2 * STOP_PATHS_MAX), (paths, true));

    let mut owners = Owners { shards, map: Owners::map(1), split: None };
    let mut moves = Moves::new(&owners, 2, &seed);
    moves.reserve(&owners).unwrap();
    let mut moved = 0;
    while !moves.left.is_empty() {
        moves.most_paths = 0;
        moves.some(&mut owners).unwrap();
        assert!(moves.most_paths <= STOP_PATHS_MAX + WIDE as usize, "{} paths in one stop", moves.most_paths);
        moved += moves.most_paths;
        // Wherever it stops, each prefix is where the map has it.
        let split = owners.split.clone().filter(|split| split.logical == logical);
        let there = counts(&owners.shards[1]).prefixes;
        let has_moved = |prefix: &Prefix<V4>| match &split {
            Some(split) => split.has_moved(*prefix),
            None => owners.map[usize::from(logical)] == 1,
        };
        assert_eq!(all.iter().filter(|prefix| has_moved(prefix)).count(), there);
        assert_eq!(counts(&owners.shards[0]).prefixes + there, all.len());
        moves.shrink().unwrap();
    }
    moves.end(&owners).unwrap();
    let of = |shard: usize| counts(&owners.shards[shard]).paths;
    assert_eq!((moved, of(0), of(1), owners.map), (paths, 0, paths, Owners::remap(&[0; 64], 2)));
    stop.stop();
}

#[test]
fn stops_add_counts_those_over_each_limit() {
    let mut stops = Stops::default();
    for (ms, without_move) in [(3, false), (10, false), (11, true), (26, false), (51, false)] {
        stops.add(Duration::from_millis(ms), without_move);
    }
    let Stops { count, without_move, longest, over, all } = stops;
    assert_eq!((count, without_move, over), (5, 1, [3, 2, 1]));
    assert_eq!((longest.as_millis(), all.as_millis()), (51, 101));
}
