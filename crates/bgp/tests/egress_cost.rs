//! The cost of a changed best path and of a dumped prefix in an egress worker: nanoseconds on one
//! thread.
//!
//! ```text
//! cargo test --release -p ribtide-bgp --test egress_cost -- --ignored --nocapture
//! ```
//!
//! Time is the thread's own CPU time, so other work of the machine costs only caches and clock. All
//! messages are made in advance. Nothing is written to sockets.

use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::egress::{Flush, Worker, Write};
use ribtide_bgp::message::{
    BestBatch, BestPath, Change, EgressIn, NONE, RankedBatch, RankedChange, RankedPath,
};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PathSelection, PeerId, PeerInfo, PeerKind};
use ribtide_prefix::{AfiSafi, Prefix, V4};
use ribtide_wire::bgp::attribute::{AsPath, Origin, code};
use ribtide_wire::bgp::{NextHop, build};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Changes in one batch of a shard.
const BATCH: usize = 4096;
/// Prefixes packed by one call.
const BUDGET: usize = 64 * 1024;
/// Prefixes that share attributes.
const SHARE: usize = 6;
/// Sources of paths; no members.
const SOURCES: u32 = 10;

fn peer(n: u32, kind: PeerKind) -> Arc<PeerInfo> {
    let families = FamilySet::IPV4_UNICAST;
    Arc::new(PeerInfo {
        id: PeerId(n),
        session: 1,
        address: address(n).into(),
        asn: if kind == PeerKind::External { 65001 + n } else { 65000 },
        router_id: address(n),
        kind,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings::new(
            kind,
            65000,
            Ipv4Addr::LOCALHOST,
            families,
            Arc::new(ribtide_policy::Policy::accept()),
        ),
    })
}

fn address(peer: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + peer)
}

fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// The path of a set of prefixes in a round: of four hops and two communities, with its own source.
fn path(set: usize, round: u32) -> BestPath {
    let source = (set as u32 + round) % SOURCES;
    let seed = |i: u64| mix(u64::from(round) << 40 | (set as u64) << 8 | i);
    let mut value = vec![2, 4];
    value.extend((65001 + source).to_be_bytes());
    (0..3).for_each(|i| value.extend((1000 + seed(i) as u32 % 70_000).to_be_bytes()));
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    build::as_path(&mut bytes, AsPath::new(&value));
    build::list(&mut bytes, 0, code::COMMUNITIES, &seed(7).to_be_bytes());
    BestPath {
        attrs: AttrSet::new(&bytes, NextHop::V4(address(source))),
        source: PeerId(source),
        suppressed: false,
    }
}

fn prefix(n: usize) -> Prefix<V4> {
    Prefix::new(0x0100_0000 + ((n as u32) << 8), 24)
}

/// Batches of whole sets in a random order: all prefixes change from the path of `old` to that of
/// `new`.
fn batches(prefixes: usize, old: Option<u32>, new: Option<u32>) -> Vec<BestBatch> {
    let mut sets: Vec<usize> = (0..prefixes.div_ceil(SHARE)).collect();
    sets.sort_unstable_by_key(|set| mix(*set as u64 ^ 0xabcd));
    let mut batches = vec![BestBatch::default()];
    for set in sets {
        if batches.last().is_some_and(|b| b.changes.v4.len() >= BATCH) {
            batches.push(BestBatch::default());
        }
        let Some(batch) = batches.last_mut() else { continue };
        let mut number = |round: Option<u32>| {
            let Some(round) = round else { return NONE };
            batch.paths.push(path(set, round));
            (batch.paths.len() - 1) as u32
        };
        let (old, new) = (number(old), number(new));
        let prefixes = set * SHARE..prefixes.min(set * SHARE + SHARE);
        batch.changes.v4.extend(prefixes.map(|n| Change { prefix: prefix(n), old, new }));
    }
    batches
}

/// CPU time of this thread, as Linux tells it.
fn cpu_time() -> Duration {
    // The kernel updates it when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("Linux tells a thread's CPU time in /proc/thread-self/schedstat"))
}

fn paths(message: &EgressIn) -> &[BestPath] {
    match message {
        EgressIn::Best(batch) => &batch.paths,
        EgressIn::Dump { batch, .. } => &batch.paths,
        EgressIn::Ranked(batch) => &batch.paths,
        _ => &[],
    }
}

struct Timed {
    worker: Worker,
    out: Vec<Write>,
}

impl Timed {
    /// Handles messages, packs, and prints the cost. `flush`: prefixes that wait before they are
    /// packed.
    fn run(&mut self, what: &str, prefixes: usize, flush: usize, messages: Vec<EgressIn>) {
        let before = self.counts();
        // As in shards, paths of a batch outlive it.
        let kept: Vec<BestPath> = messages.iter().flat_map(paths).cloned().collect();
        let begin = cpu_time();
        for message in messages {
            self.worker.handle(message);
            if self.worker.due() >= flush {
                self.pack();
            }
        }
        let taken = cpu_time();
        self.pack();
        let end = cpu_time();
        let after = self.counts();
        let ns = |from: Duration, to: Duration| (to - from).as_nanos() as f64 / prefixes as f64;
        println!(
            "{what:>34}: {:6.1} ns a prefix ({:5.1} after all had come), {:.2} prefixes an UPDATE, {} packed",
            ns(begin, end),
            ns(taken, end),
            (after.0 - before.0) as f64 / (after.1 - before.1) as f64,
            after.0 - before.0,
        );
        drop(kept);
    }

    fn pack(&mut self) {
        while self.worker.due() > 0 {
            self.worker.flush(Flush::All, BUDGET, &mut self.out);
            self.out.clear();
        }
    }

    fn counts(&self) -> (u64, u64) {
        let counters = self.worker.groups().into_iter().map(|group| group.counters);
        counters.fold((0, 0), |sum, c| (sum.0 + c.announced + c.withdrawn, sum.1 + c.updates))
    }

    fn join(&mut self, members: std::ops::Range<u32>) -> u64 {
        for n in members {
            self.worker.handle(EgressIn::MemberUp(peer(100 + n, PeerKind::Client)));
        }
        self.worker.requests()[0].token
    }
}

fn measure(members: u32, prefixes: usize) {
    println!("one group of {members} members, {prefixes} prefixes, {SHARE} with equal attributes");
    let mut timed = Timed { worker: Worker::new(0, 1), out: Vec::new() };
    (0..SOURCES).for_each(|n| timed.worker.handle(EgressIn::SourceUp(peer(n, PeerKind::External))));
    let token = timed.join(0..members);
    timed.worker.handle(EgressIn::Dump { token, batch: BestBatch::default(), last: true });
    timed.pack();
    let changes =
        |old, new| batches(prefixes, old, new).into_iter().map(|b| EgressIn::Best(Arc::new(b))).collect();
    timed.run("announced, packed at 32K", prefixes, 32 * 1024, changes(None, Some(0)));
    timed.run("changed, packed at 32K", prefixes, 32 * 1024, changes(Some(0), Some(1)));
    timed.run("changed, packed as a whole", prefixes, usize::MAX, changes(Some(1), Some(2)));
    timed.run("changed, packed after each batch", prefixes, 1, changes(Some(2), Some(3)));
    timed.run("withdrawn and announced, as a whole", prefixes, usize::MAX, {
        let mut both: Vec<EgressIn> = changes(Some(3), None);
        both.extend(changes(None, Some(4)));
        both
    });
    let token = timed.join(members..2 * members);
    let mut parts: Vec<EgressIn> = batches(prefixes, None, Some(4))
        .into_iter()
        .map(|batch| EgressIn::Dump { token, batch, last: false })
        .collect();
    parts.push(EgressIn::Dump { token, batch: BestBatch::default(), last: true });
    timed.run("dumped to as many that join", prefixes, 1, parts);
    timed.run("withdrawn", prefixes, 32 * 1024, changes(Some(4), None));
}

/// The ranked paths of sets of prefixes, one from each source. Those of `old` and `new` differ in the path of the first
/// source alone.
fn ranked_batches(prefixes: usize, old: Option<u32>, new: Option<u32>) -> Vec<RankedBatch> {
    let mut sets: Vec<usize> = (0..prefixes.div_ceil(SHARE)).collect();
    sets.sort_unstable_by_key(|set| mix(*set as u64 ^ 0xabcd));
    let mut batches = vec![RankedBatch::default()];
    for set in sets {
        if batches.last().is_some_and(|b| b.ranked.len() >= 2 * BATCH) {
            batches.push(RankedBatch::default());
        }
        let Some(batch) = batches.last_mut() else { continue };
        let first = batch.paths.len() as u32;
        let rounds = [old, new].map(|round| round.unwrap_or(0));
        let paths = |n: u32, round: u32| BestPath {
            source: PeerId(n),
            ..path(set * SOURCES as usize + n as usize, round)
        };
        batch.paths.extend((0..SOURCES).map(|n| paths(n, if n == 0 { rounds[0] } else { 0 })));
        batch.paths.push(paths(0, rounds[1]));
        for n in set * SHARE..prefixes.min(set * SHARE + SHARE) {
            let start = batch.ranked.len() as u32;
            let row = |n: u32, path: u32| RankedPath { path, id: (n + 1) << 16, equal: n == 0 };
            let list =
                |changed: u32| (0..SOURCES).map(move |n| row(n, if n == 0 { changed } else { first + n }));
            let (former, later) = (old.map(|_| list(first)), new.map(|_| list(first + SOURCES)));
            batch.ranked.extend(former.into_iter().flatten().chain(later.into_iter().flatten()));
            let len = |round: Option<u32>| round.map_or(0, |_| SOURCES);
            batch.changes.v4.push(RankedChange { prefix: prefix(n), start, old: len(old), new: len(new) });
        }
    }
    batches
}

#[test]
#[ignore = "a measurement"]
fn ranked() {
    let prefixes = 100_000;
    println!("one member that gets all of {SOURCES} paths, {prefixes} prefixes");
    let mut timed = Timed { worker: Worker::new(0, 1), out: Vec::new() };
    (0..SOURCES).for_each(|n| timed.worker.handle(EgressIn::SourceUp(peer(n, PeerKind::External))));
    let mut member = (*peer(100, PeerKind::Client)).clone();
    member.egress.add_path.0[AfiSafi::Ipv4Unicast] = Some(PathSelection::All);
    timed.worker.handle(EgressIn::MemberUp(Arc::new(member)));
    let token = timed.worker.requests()[0].token;
    timed.worker.handle(EgressIn::RankedDump { token, batch: RankedBatch::default(), last: true });
    timed.pack();
    let changes = |old, new| {
        ranked_batches(prefixes, old, new).into_iter().map(|b| EgressIn::Ranked(Arc::new(b))).collect()
    };
    timed.run("all announced, packed at 32K", prefixes, 32 * 1024, changes(None, Some(1)));
    timed.run("one of all changed, packed at 32K", prefixes, 32 * 1024, changes(Some(1), Some(2)));
    timed.run("all withdrawn", prefixes, 32 * 1024, changes(Some(2), None));
}

#[test]
#[ignore = "a measurement"]
fn one_member() {
    measure(1, 100_000);
}

#[test]
#[ignore = "a measurement"]
fn fifty_members() {
    measure(50, 100_000);
}

#[test]
#[ignore = "a measurement"]
fn a_large_table() {
    measure(10, 1_000_000);
}
