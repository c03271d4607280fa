//! What a prefix of an UPDATE costs its reader: parsing, checks, interning, and the batches for two shards.
//!
//! ```text
//! cargo test --release -p ribtide-bgp --test ingest_cost -- --ignored --nocapture
//! ```
//!
//! Instruction counts are steadier than the time: run the executable in `valgrind --tool=callgrind`.

use ribtide_bgp::ingest::{Ingest, IngestPeer, IngestSettings, Martians, ShardBatches};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_policy::{
    CommunitySet, Condition, Definition, Match, Named, Policy, Statement, Then, ValidityCondition,
};
use ribtide_prefix::{Families, PREFETCH_BATCH, Prefix, Rng, V4};
use ribtide_rpki::{Validity, Vrp, Vrps};
use ribtide_wire::bgp::attribute::{Origin, code};
use ribtide_wire::bgp::build::UpdatePacker;
use ribtide_wire::bgp::{AsPath, NextHop, build};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HEADER: usize = 19;
const UPDATES: u32 = 50_000;
const ROUNDS: u32 = 4;
/// UPDATEs of one read of a socket.
const BATCH: usize = 500;

fn peer() -> IngestPeer {
    let families = FamilySet::IPV4_UNICAST;
    let export = Arc::new(Policy::accept());
    let info = PeerInfo {
        id: PeerId(3),
        session: 1,
        address: Ipv4Addr::new(192, 0, 2, 3).into(),
        asn: 65001,
        router_id: Ipv4Addr::new(10, 0, 0, 3),
        kind: PeerKind::External,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings {
            cluster_id: Ipv4Addr::new(10, 0, 0, 99),
            ..EgressSettings::new(PeerKind::External, 65000, Ipv4Addr::new(10, 0, 0, 1), families, export)
        },
    };
    let settings = IngestSettings {
        enforce_first_as: true,
        martians: Arc::new(Martians::default_list()),
        ..IngestSettings::new(Arc::new(Policy::accept()))
    };
    IngestPeer::new(Arc::new(info), settings)
}

/// Bodies of UPDATEs with one to eleven prefixes, a path of two to six hops and four communities.
fn updates() -> (Vec<Vec<u8>>, usize) {
    let mut rng = Rng::new(1);
    let (mut next, mut prefixes) = (0x0100_0000_u32, 0);
    let mut update = |_| {
        let hops = 2 + rng.index(5);
        let mut path = vec![2, hops as u8];
        path.extend(65001_u32.to_be_bytes());
        (1..hops).for_each(|_| path.extend((1000 + rng.index(70_000) as u32).to_be_bytes()));
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Igp);
        build::as_path(&mut attributes, AsPath::new(&path));
        let communities = [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat();
        build::list(&mut attributes, 0, code::COMMUNITIES, &communities);
        let count = 1 + rng.index(11) as u32;
        let announced: Vec<Prefix<V4>> = (0..count).map(|n| Prefix::new(next + n * 256, 24)).collect();
        next += count * 256;
        prefixes += announced.len();
        let mut out = Vec::new();
        let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 3));
        UpdatePacker::new(&attributes, next_hop, 4096).announce(announced, &mut out).expect("it fits");
        out.split_off(HEADER)
    };
    let updates = (0..UPDATES).map(&mut update).collect();
    (updates, prefixes)
}

#[test]
#[ignore = "a measurement"]
fn announced() {
    let (updates, prefixes) = updates();
    let (mut ingest, mut peer) = (Ingest::default(), peer());
    let mut out = ShardBatches::new(std::array::from_fn(|logical| logical as u16 % 2));
    let since = Instant::now();
    for _ in 0..ROUNDS {
        for batch in updates.chunks(BATCH) {
            for update in batch {
                ingest.update(&mut peer, update, &mut out).expect("the UPDATE is well formed");
            }
            out.drain().for_each(drop);
        }
        ingest.forget();
    }
    let count = prefixes as u64 * u64::from(ROUNDS);
    assert_eq!(peer.counters.announced, count);
    println!("a prefix: {:.1} ns", since.elapsed().as_nanos() as f64 / count as f64);
}

/// What a route costs that is kept before import policy: memory of the reader, and time.
#[test]
#[ignore = "a measurement"]
fn kept() {
    let (updates, prefixes) = updates();
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number")
            * 4096
    };
    let (mut ingest, mut peer) = (Ingest::default(), peer());
    let settings = IngestSettings { keep_received: true, ..IngestSettings::new(Arc::new(Policy::accept())) };
    peer.set(settings);
    let mut out = ShardBatches::new(std::array::from_fn(|logical| logical as u16 % 2));
    // The caches of a reader, which are not the routes'.
    ingest.update(&mut peer, &updates[0], &mut out).expect("the UPDATE is well formed");
    let (before, since) = (resident(), Instant::now());
    for batch in updates.chunks(BATCH) {
        for update in batch {
            ingest.update(&mut peer, update, &mut out).expect("the UPDATE is well formed");
        }
        out.drain().for_each(drop);
    }
    let taken = since.elapsed();
    assert_eq!(peer.received_len::<V4>(), prefixes);
    ingest.forget();
    let all = (resident() - before) as f64;
    println!(
        "a route: {:.1} bytes with its share of {UPDATES} attribute sets, {:.1} ns",
        all / prefixes as f64,
        taken.as_nanos() as f64 / prefixes as f64
    );
}

/// What origin validation costs a reader, with a policy of one statement on a community in its place and without any:
/// prefixes in no order, four an UPDATE, and payloads for three of ten. *Both* tests the community and the state.
///
/// `ONLY=N` runs one of the four, for `valgrind --tool=callgrind --toggle-collect='*profiled_updates*'`.
#[test]
#[ignore = "a measurement"]
fn validated() {
    let count: u32 = std::env::var("PREFIXES").map_or(1_000_000, |text| text.parse().expect("a number"));
    let mut rng = Rng::new(7);
    let mut prefixes: Vec<Prefix<V4>> =
        (0..count).map(|n| Prefix::new(0x0b00_0000 + n * 1024, 22 + rng.below(3) as u8)).collect();
    rng.shuffle(&mut prefixes);
    let (mut updates, mut payloads) = (Vec::new(), Vec::new());
    for announced in prefixes.chunks(4) {
        let origin = 1000 + rng.index(70_000) as u32;
        let path = [65001, 1000 + rng.index(400) as u32, 1000 + rng.index(400) as u32, origin];
        let path: Vec<u8> = [2, 4].into_iter().chain(path.iter().flat_map(|asn| asn.to_be_bytes())).collect();
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Igp);
        build::as_path(&mut attributes, AsPath::new(&path));
        let communities = [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat();
        build::list(&mut attributes, 0, code::COMMUNITIES, &communities);
        for prefix in announced {
            if !rng.chance(0.3) {
                continue;
            }
            // One of ten is invalid.
            let asn = origin + u32::from(rng.one_in(10));
            payloads.push(Vrp { prefix: *prefix, max_len: 24, asn });
        }
        let mut out = Vec::new();
        let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, 3));
        UpdatePacker::new(&attributes, next_hop, 4096)
            .announce(announced.iter().copied(), &mut out)
            .expect("it fits");
        updates.push(out.split_off(HEADER));
    }
    let table = Arc::new(Vrps::new(Families { v4: payloads, v6: Vec::new() }));
    let tagged: CommunitySet = ["1:666".parse().expect("a community")].into_iter().collect();
    let both = |rejected: Vec<Statement>| {
        let mut statements: Vec<Statement> =
            rejected.into_iter().map(|statement| Statement { then: Then::Reject, ..statement }).collect();
        statements.push(Statement { then: Then::Accept, ..Statement::default() });
        Arc::new(Policy::new(vec![Arc::new(Definition { name: "import".into(), statements })], true))
    };
    let policy = |statement| both(vec![statement]);
    let tag = Statement {
        conditions: vec![Condition::CommunitySet(Named::new("tagged", tagged), Match::Any)],
        ..Statement::default()
    };
    let invalid = Statement { validity: Some(ValidityCondition(Validity::Invalid)), ..Statement::default() };
    let settings = |import| IngestSettings {
        martians: Arc::new(Martians::default_list()),
        ..IngestSettings::new(import)
    };
    let kinds = [
        ("policy", settings(policy(tag.clone()))),
        ("kept", IngestSettings { keep_received: true, ..settings(policy(tag.clone())) }),
        ("validated", settings(policy(invalid.clone()))),
        ("both", settings(both(vec![tag, invalid]))),
    ];
    let only: Option<usize> = std::env::var("ONLY").ok().and_then(|text| text.parse().ok());
    for (_, (name, settings)) in kinds.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| *n == only))
    {
        let mut took: Vec<f64> = (0..if only.is_some() { 1 } else { 5 })
            .map(|_| {
                let (mut ingest, mut peer) = (Ingest::default(), peer());
                ingest.set_vrps(table.clone());
                peer.set(settings.clone());
                profiled_updates(&mut ingest, &mut peer, &updates) / f64::from(count)
            })
            .collect();
        took.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.1} ns a prefix ({:.1} to {:.1})",
            took[took.len() / 2],
            took[0],
            took[took.len() - 1]
        );
    }
}

/// Nanoseconds of CPU that the UPDATEs took.
#[inline(never)]
fn profiled_updates(ingest: &mut Ingest, peer: &mut IngestPeer, updates: &[Vec<u8>]) -> f64 {
    let mut out = ShardBatches::new([0; 64]);
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("a number")
    };
    let since = cpu();
    for batch in updates.chunks(BATCH) {
        let mut prefetched = 0;
        for (n, update) in batch.iter().enumerate() {
            // As the reader does.
            if n >= prefetched && peer.validates() {
                let mut prefixes = 0;
                while prefixes < PREFETCH_BATCH
                    && let Some(next) = batch.get(prefetched)
                {
                    prefixes = ingest.note_ahead(peer, next);
                    prefetched += 1;
                }
                ingest.prefetch();
            }
            ingest.update(peer, update, &mut out).expect("the UPDATE is well formed");
        }
        out.drain().for_each(drop);
    }
    cpu() - since
}
