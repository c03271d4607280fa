//! The cost of a reader's work on UPDATEs, on one thread without sockets: nanoseconds per path, and
//! bytes per attribute set. The load is that of the workload "learn": each peer announces one table
//! over paths of its own, so no two UPDATEs have equal attributes.
//!
//! `cargo bench -p ribtide-bench --bench ingest [-- PEERS [PREFIXES [ROUNDS]]]`. For instructions, run the executable
//! of `target/release/deps` under `valgrind --tool=callgrind` with one round: the calls of `ReaderBench::read` in the order
//! of their lines are new sets, sets from long ago, and both of an UPDATE that comes twice.

use ribtide_bench::AddressPool;
use ribtide_bench::table::{FeedOptions, Path, Table, TableOptions};
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::ingest::{Ingest, IngestPeer, IngestSettings, Martians, ShardBatches};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::{Families, V4};
use ribtide_wire::bgp::message::{MAX_LEN, frame};
use ribtide_wire::bgp::{NextHop, build};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Threads that run shards.
const SHARDS: u16 = 2;
/// Bytes read from one session at a time.
const READ: usize = 64 << 10;
/// Prefixes after which batches are passed on.
const FLUSH_THRESHOLD: usize = 4096;

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let argument = |n: usize, default| numbers.get(n).copied().unwrap_or(default);
    let (peers, prefixes, rounds) = (argument(0, 10), argument(1, 100_000), argument(2, 5));
    let streams = streams(peers, prefixes);
    let bytes: usize = streams.iter().map(Vec::len).sum();
    println!(
        "{peers} peers x {prefixes} prefixes, {} bytes of UPDATEs a path",
        bytes / (peers * prefixes) as usize
    );
    println!("ns of CPU a path: every set new, known from the UPDATE before, known from long ago");
    for round in 1..=rounds {
        let mut reader = ReaderBench::new(peers);
        let new = reader.read(&streams, 1, true);
        let long_ago = reader.read(&streams, 1, false);
        let just_now = reader.read(&streams, 2, false).saturating_sub(long_ago);
        let [new, just_now, long_ago] =
            [new, just_now, long_ago].map(|time| time.as_nanos() as f64 / f64::from(peers * prefixes));
        let handed_on = reader.kept.len();
        reader.kept.sort_unstable_by_key(|set| set.as_ptr().addr());
        reader.kept.dedup_by(|a, b| AttrSet::ptr_eq(a, b));
        let (sets, memory) = (reader.kept.len(), reader.kept.iter().map(AttrSet::memory).sum::<usize>());
        println!(
            "round {round}: {new:.1} {just_now:.1} {long_ago:.1}; {sets} sets of {} bytes, {handed_on} operations",
            memory / sets
        );
    }
}

/// Every peer's UPDATEs, framed.
fn streams(peers: u32, prefixes: u32) -> Vec<Vec<u8>> {
    let table =
        Table::new(&TableOptions { seed: 7, ipv4: prefixes, ipv4_per_set: 6.0, ..TableOptions::default() });
    let pool = AddressPool::new("10.0.1.0/24".parse().expect("a prefix"));
    let stream = |sender: u32| {
        let feed = table.feed(FeedOptions {
            sender,
            version: 0,
            shortest_of: None,
            asn: Some(65_101 + sender),
            order: u64::from(sender),
            next_hops: Families { v4: pool, v6: pool },
            next_hop_count: 16,
        });
        let (mut path, mut block, mut out) = (Path::default(), Vec::new(), Vec::new());
        for (group, prefixes) in feed.groups::<V4>() {
            feed.path::<V4>(group, &mut path);
            block.clear();
            path.encode(&mut block);
            let IpAddr::V4(next_hop) = path.next_hop else { continue };
            let packer = build::UpdatePacker::new(&block, NextHop::V4(next_hop), MAX_LEN);
            packer.announce(prefixes.iter().copied(), &mut out).expect("attributes that fit");
        }
        out
    };
    (0..peers).map(stream).collect()
}

struct ReaderBench {
    ingest: Ingest,
    batches: ShardBatches,
    peers: Vec<IngestPeer>,
    /// The sets that shards would store.
    kept: Vec<AttrSet>,
}

impl ReaderBench {
    fn new(peers: u32) -> ReaderBench {
        let map = std::array::from_fn(|shard| shard as u16 % SHARDS);
        ReaderBench {
            ingest: Ingest::default(),
            batches: ShardBatches::new(map),
            peers: (0..peers).map(peer).collect(),
            kept: Vec::with_capacity(1 << 22),
        }
    }

    /// Reads the streams in turns, each UPDATE `times` times. `keep`: the shards store the sets.
    #[inline(never)]
    fn read(&mut self, streams: &[Vec<u8>], times: u32, keep: bool) -> Duration {
        let mut rests: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let begin = on_cpu();
        while rests.iter().any(|rest| !rest.is_empty()) {
            for (peer, rest) in self.peers.iter_mut().zip(&mut rests) {
                let end = rest.len().saturating_sub(READ);
                while rest.len() > end
                    && let Some(frame) = frame(rest, MAX_LEN).expect("messages")
                {
                    for _ in 0..times {
                        self.ingest.update(peer, frame.body, &mut self.batches).expect("an UPDATE");
                    }
                    *rest = &rest[frame.total_len..];
                }
                if self.batches.len() >= FLUSH_THRESHOLD {
                    for (_, batch) in self.batches.drain() {
                        if keep {
                            self.kept.extend(batch.ops.into_iter().filter_map(|op| op.attrs));
                        }
                    }
                }
            }
        }
        on_cpu() - begin
    }
}

fn peer(n: u32) -> IngestPeer {
    let families = FamilySet::IPV4_UNICAST;
    let kind = PeerKind::External;
    let info = PeerInfo {
        id: PeerId(n),
        session: 1,
        address: [198, 19, 0, n as u8].into(),
        asn: 65_101 + n,
        router_id: [198, 19, 0, n as u8].into(),
        kind,
        multihop: false,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings::new(
            kind,
            65_001,
            [10, 0, 0, 1].into(),
            families,
            Arc::new(Policy::new(vec![], true)),
        ),
    };
    let settings = IngestSettings {
        enforce_first_as: true,
        martians: Arc::new(Martians::default_list()),
        ..IngestSettings::new(Arc::new(Policy::accept()))
    };
    IngestPeer::new(Arc::new(info), settings)
}

/// CPU time of this thread, so that other work of the machine does not count.
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc/thread-self/schedstat");
    let nanoseconds = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.expect("nanoseconds"))
}
