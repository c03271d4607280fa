//! The cost of a path in a shard: nanoseconds on one thread and bytes, for the project's tables.
//!
//! ```text
//! cargo test --release -p ribtide-bgp --test shard_cost -- --ignored --nocapture [learn|single|scale|suppressed|identifiers|ranked]
//! ```
//!
//! Time is the thread's own CPU time, so other work of the machine costs only caches and clock. All
//! messages are made in advance.

use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::{
    Confirmation, DumpRequest, DumpScope, NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch,
};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_bgp::shard::{Shard, ShardOut};
use ribtide_prefix::{AfiSafi, BgpFamilies, Prefix, Rng, V4};
use ribtide_wire::bgp::attribute::{AsPath, Origin, code};
use ribtide_wire::bgp::{NextHop, build};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prefixes of one read of a socket: 64 KiB of UPDATEs of about 115 bytes.
const BATCH: usize = 3000;
/// Prefixes after which effects are sent.
const HAND_ON: usize = 4096;
/// Under FIB suppression: sends of effects until the first of them are confirmed.
const LATER: usize = 16;

/// How many peers announce how many prefixes.
struct Load {
    name: &'static str,
    peers: u32,
    prefixes: usize,
    /// Whether best paths wait for confirmation.
    suppressed: bool,
    /// Whether a worker gets the ranked paths of each prefix, as for add-path.
    ranked: bool,
}

fn peer(n: u32, session: u32) -> Arc<PeerInfo> {
    let families = FamilySet::IPV4_UNICAST;
    Arc::new(PeerInfo {
        id: PeerId(n),
        session,
        address: address(n).into(),
        asn: 65001 + n,
        router_id: address(n),
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
            Arc::new(ribtide_policy::Policy::new(vec![], true)),
        ),
    })
}

fn address(peer: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + peer)
}

/// The prefixes in groups that share attributes: about six neighbours each.
fn groups(prefixes: usize) -> Vec<Vec<Prefix<V4>>> {
    let mut rng = Rng::new(1);
    let mut left = prefixes;
    let mut groups = Vec::new();
    let mut next = 0x0100_0000u32;
    while left > 0 {
        let count = (1 + rng.index(11)).min(left);
        next = next.wrapping_add(rng.index(8) as u32 * 256);
        let group = (0..count as u32).map(|n| Prefix::new(next.wrapping_add(n * 256), 24)).collect();
        next = next.wrapping_add(count as u32 * 256);
        groups.push(group);
        left -= count;
    }
    groups
}

/// The attributes of a group at `peer`: a path of two to six hops.
fn attributes(peer: u32, group: usize) -> AttrSet {
    let mut rng = Rng::new(u64::from(peer) << 32 | group as u64);
    let hops = 2 + rng.index(5);
    let mut path = vec![2, hops as u8];
    path.extend((65001 + peer).to_be_bytes());
    (1..hops).for_each(|_| path.extend((1000 + rng.index(70_000) as u32).to_be_bytes()));
    let mut bytes = Vec::new();
    build::origin(&mut bytes, Origin::Igp);
    build::as_path(&mut bytes, AsPath::new(&path));
    let communities = [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat();
    build::list(&mut bytes, 0, code::COMMUNITIES, &communities);
    AttrSet::new(&bytes, NextHop::V4(address(peer)))
}

/// One peer's announcements, batch by batch, in an order of its own.
struct Sender<'a> {
    peer: u32,
    groups: &'a [Vec<Prefix<V4>>],
    order: Vec<u32>,
    at: usize,
}

impl<'a> Sender<'a> {
    fn new(peer: u32, groups: &'a [Vec<Prefix<V4>>]) -> Sender<'a> {
        let mut order: Vec<u32> = (0..groups.len() as u32).collect();
        let mut rng = Rng::new(u64::from(peer) + 77);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.index(i + 1));
        }
        Sender { peer, groups, order, at: 0 }
    }

    /// The next batch, and the bytes of its attribute sets.
    fn next(&mut self) -> Option<(UpdateBatch, usize)> {
        if self.at == self.order.len() {
            return None;
        }
        let (peer, session) = (PeerId(self.peer), 1);
        let mut batch = UpdateBatch { peer, session, ops: Vec::new(), prefixes: BgpFamilies::default() };
        let mut bytes = 0;
        while batch.prefixes.v4.len() < BATCH && self.at < self.order.len() {
            let group = self.order[self.at] as usize;
            self.at += 1;
            let attrs = attributes(self.peer, group);
            bytes += attrs.memory();
            let prefixes = &self.groups[group];
            batch.ops.push(RouteOp {
                attrs: Some(attrs),
                path_id: 0,
                family: AfiSafi::Ipv4Unicast,
                count: prefixes.len() as u32,
            });
            batch.prefixes.v4.extend_from_slice(prefixes);
        }
        Some((batch, bytes))
    }
}

/// The withdrawals of all of a peer's routes, by groups, in another order than the announcements.
fn withdrawals(peer: u32, groups: &[Vec<Prefix<V4>>], rng: &mut Rng) -> Vec<UpdateBatch> {
    let mut order: Vec<&[Prefix<V4>]> = groups.iter().map(Vec::as_slice).collect();
    (1..order.len()).rev().for_each(|i| order.swap(i, rng.index(i + 1)));
    let prefixes: Vec<Prefix<V4>> = order.concat();
    let batch = |prefixes: &[Prefix<V4>]| UpdateBatch {
        peer: PeerId(peer),
        session: 1,
        ops: vec![RouteOp {
            attrs: None,
            path_id: 0,
            family: AfiSafi::Ipv4Unicast,
            count: prefixes.len() as u32,
        }],
        prefixes: BgpFamilies { v4: prefixes.to_vec(), v6: Vec::new() },
    };
    prefixes.chunks(BATCH).map(batch).collect()
}

/// A shard with its costs.
struct Timed {
    shard: Shard,
    out: ShardOut,
    since: Duration,
    changes: usize,
    /// Unconfirmed fences, under FIB suppression.
    fences: VecDeque<u64>,
}

impl Timed {
    fn handle(&mut self, message: ShardIn) {
        self.shard.handle(message, &mut self.out);
        if self.out.len() > HAND_ON || self.shard.fence_due() {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        self.shard.send_ranked(&mut self.out);
        self.changes += self.out.len();
        drop(self.out.take());
        self.fences.extend(self.shard.fence());
        if self.fences.len() > LATER {
            self.confirm();
        }
    }

    fn confirm(&mut self) {
        if let Some(fence) = self.fences.pop_front() {
            self.handle(ShardIn::Confirmed(Confirmation { fence, ..Confirmation::default() }));
            while self.shard.work_left() {
                self.shard.step(&mut self.out);
            }
        }
    }

    /// Does what is left, and tells what all since the last time cost.
    fn print(&mut self, what: &str, count: usize) {
        while self.shard.work_left() {
            self.shard.step(&mut self.out);
            self.hand_on();
        }
        self.hand_on();
        while !self.fences.is_empty() {
            self.confirm();
            self.hand_on();
        }
        let ns = (cpu_time() - self.since).as_nanos() as f64 / count as f64;
        println!("{what:>22}: {ns:6.1} ns, {:.2} changes", self.changes as f64 / count as f64);
        (self.since, self.changes) = (cpu_time(), 0);
    }
}

/// CPU time of this thread, as Linux tells it.
fn cpu_time() -> Duration {
    // The kernel updates it when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("Linux tells a thread's CPU time in /proc/thread-self/schedstat"))
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<usize>().ok()).unwrap_or(0) * 1024
}

fn measure(load: &Load) {
    let groups = groups(load.prefixes);
    let mut senders: Vec<Sender<'_>> = (0..load.peers).map(|n| Sender::new(n, &groups)).collect();
    let paths = load.peers as usize * load.prefixes;
    let mut sets = 0;
    let mut rng = Rng::new(9);
    let mut open: Vec<usize> = (0..senders.len()).collect();
    let mut batches = Vec::new();
    while !open.is_empty() {
        let at = rng.index(open.len());
        match senders[open[at]].next() {
            Some((batch, bytes)) => {
                sets += bytes;
                batches.push(batch);
            }
            None => drop(open.swap_remove(at)),
        }
    }
    let before = resident();
    let mut timed = Timed {
        shard: Shard::new(DecisionOptions::default()),
        out: ShardOut::default(),
        since: cpu_time(),
        changes: 0,
        fences: VecDeque::new(),
    };
    timed.handle(ShardIn::Suppress(load.suppressed));
    if load.ranked {
        let scope = DumpScope::default();
        timed.handle(ShardIn::Dump(DumpRequest {
            worker: 0,
            token: 0,
            family: AfiSafi::Ipv4Unicast,
            scope,
            ranked: true,
        }));
        timed.print("nothing dumped", 1);
    }
    (0..load.peers).for_each(|n| timed.handle(ShardIn::PeerUp(peer(n, 1))));
    batches.into_iter().for_each(|batch| timed.handle(ShardIn::Routes(batch)));
    println!("{}: {} peers of {} prefixes", load.name, load.peers, load.prefixes);
    timed.print("a path announced", paths);
    let counts = timed.shard.counts();
    assert_eq!(counts.families[AfiSafi::Ipv4Unicast].paths, paths);
    let a_path = |bytes: usize| bytes as f64 / paths as f64;
    println!(
        "{:>22}: {:.1} bytes, and {:.1} of attribute sets; {:.1} more resident than before",
        "a path takes",
        a_path(counts.memory - sets),
        a_path(sets),
        a_path(resident().saturating_sub(before))
    );
    timed.handle(ShardIn::Dump(DumpRequest {
        worker: 0,
        token: 1,
        family: AfiSafi::Ipv4Unicast,
        scope: DumpScope::default(),
        ranked: load.ranked,
    }));
    timed.print("a prefix dumped", load.prefixes);
    let far = NextHopState::Reachable { cost: 7, partial: false };
    let hop = TrackedNextHop { address: address(1).into(), recursive: false, exclude: None };
    timed.handle(ShardIn::NextHops(vec![(hop, far)]));
    timed.print("a prefix judged again", load.prefixes);
    if load.peers > 1 {
        let gone = withdrawals(1, &groups, &mut Rng::new(10));
        timed.since = cpu_time();
        gone.into_iter().for_each(|batch| timed.handle(ShardIn::Routes(batch)));
        timed.print("a path withdrawn", load.prefixes);
    }
    timed.handle(ShardIn::PeerDown { peer: PeerId(0), session: 1, retained: FamilySet::NONE });
    timed.print("a path purged", load.prefixes);
}

/// The bytes of a path where one session has ten for each prefix, told apart by path identifiers:
/// `by_path`: another for each path, else one for each of ten sources.
fn measure_identifiers(by_path: bool) {
    const SOURCES: u32 = 10;
    let groups = groups(100_000);
    let mut shard = Shard::new(DecisionOptions::default());
    let mut out = ShardOut::default();
    let path_ids = FamilySet::IPV4_UNICAST;
    shard.handle(ShardIn::PeerUp(Arc::new(PeerInfo { path_ids, ..(*peer(0, 1)).clone() })), &mut out);
    let (mut sets, mut last) = (0, 0);
    for source in 0..SOURCES {
        let mut sender = Sender::new(source, &groups);
        while let Some((mut batch, bytes)) = sender.next() {
            sets += bytes;
            batch.peer = PeerId(0);
            if by_path {
                let one = |op: RouteOp| {
                    (0..op.count).map(move |_| RouteOp { count: 1, attrs: op.attrs.clone(), ..op })
                };
                batch.ops = batch.ops.into_iter().flat_map(one).collect();
            }
            for op in &mut batch.ops {
                last += 1;
                op.path_id = if by_path { last } else { source + 1 };
            }
            shard.handle(ShardIn::Routes(batch), &mut out);
            drop(out.take());
        }
    }
    let counts = shard.counts();
    let bytes = (counts.memory - sets) as f64 / counts.families[AfiSafi::Ipv4Unicast].paths as f64;
    println!(
        "identifiers by {}: {} paths, {} entries of sets, {bytes:.1} bytes a path",
        if by_path { "path" } else { "source" },
        counts.families[AfiSafi::Ipv4Unicast].paths,
        counts.attribute_sets
    );
}

#[test]
#[ignore = "a measurement"]
fn identifiers() {
    measure_identifiers(false);
    measure_identifiers(true);
}

#[test]
#[ignore = "a measurement"]
fn learn() {
    measure(&Load { name: "learn", peers: 10, prefixes: 100_000, suppressed: false, ranked: false });
}

#[test]
#[ignore = "a measurement"]
fn single() {
    measure(&Load { name: "single", peers: 1, prefixes: 1_000_000, suppressed: false, ranked: false });
}

#[test]
#[ignore = "a measurement"]
fn scale() {
    measure(&Load { name: "scale", peers: 10, prefixes: 800_000, suppressed: false, ranked: false });
}

#[test]
#[ignore = "a measurement"]
fn suppressed() {
    measure(&Load { name: "suppressed", peers: 1, prefixes: 1_000_000, suppressed: true, ranked: false });
}

#[test]
#[ignore = "a measurement"]
fn ranked() {
    measure(&Load { name: "ranked", peers: 10, prefixes: 100_000, suppressed: false, ranked: true });
}
