//! The FPM client and fpmsyncd with frames that are lost between them, and what a round of the
//! comparison costs.

use ribtide_dataplane::Difference;
use ribtide_dataplane::fpm::machine::FpmMachine;
use ribtide_prefix::{Prefix, Rng, V4};
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol};
use ribtide_runtime::thread::cpu_time;
use ribtide_swss::fpmsyncd::{FpmConfig, FpmOut, Fpmsyncd};
use ribtide_wire::fpm;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

struct Bench {
    client: FpmMachine,
    server: Fpmsyncd,
    out: FpmOut,
    now: Instant,
    /// CPU time of the client and of the server.
    cpu: [Duration; 2],
}

impl Bench {
    fn new(next_hop_groups: bool) -> Bench {
        let now = Instant::now();
        let mut bench = Bench {
            client: FpmMachine::new(1, next_hop_groups, false, INTERVAL, now),
            server: Fpmsyncd::new(FpmConfig::default()),
            out: FpmOut::default(),
            now,
            cpu: [Duration::ZERO; 2],
        };
        bench.server.link(7, "Ethernet0", &mut bench.out);
        bench.server.session_up();
        let mut begins = Vec::new();
        bench.client.connected(now, &mut begins);
        bench.deliver(&begins, |_| false);
        bench
    }

    /// Carries frames to the server, except those that are lost, and its replies to the client.
    fn deliver(&mut self, bytes: &[u8], mut is_lost: impl FnMut(usize) -> bool) {
        let begin = cpu_time();
        let (mut at, mut number) = (0, 0);
        while let Some(frame) = fpm::frame(&bytes[at..]).unwrap() {
            if !is_lost(number) {
                self.server.frame(&frame, &mut self.out);
            }
            (at, number) = (at + frame.len, number + 1);
        }
        let mut replies = Vec::new();
        self.out.write_replies(&mut replies);
        let read = cpu_time();
        at = 0;
        while let Some(frame) = fpm::frame(&replies[at..]).unwrap() {
            self.client.frame(&frame, self.now);
            at += frame.len;
        }
        self.cpu[0] += cpu_time() - read;
        self.cpu[1] += read - begin;
    }

    fn send(&mut self, batch: &FibBatch, is_lost: impl FnMut(usize) -> bool) {
        let mut bytes = Vec::new();
        self.client.batch(batch, self.now, &mut bytes);
        self.deliver(&bytes, is_lost);
        self.server.take(&mut self.out);
    }

    /// A round of the comparison. Returns what it repaired.
    fn round(&mut self) -> u64 {
        let (rounds, before) = (self.client.repairs().rounds(), self.repaired());
        self.now += INTERVAL;
        while self.client.repairs().rounds() == rounds {
            let (begin, mut bytes) = (cpu_time(), Vec::new());
            self.client.tick(self.now, &mut bytes);
            self.cpu[0] += cpu_time() - begin;
            self.deliver(&bytes, |_| false);
        }
        self.repaired() - before
    }

    fn repaired(&self) -> u64 {
        Difference::ALL.into_iter().map(|kind| self.client.repairs().repaired(kind)).sum()
    }
}

fn group(id: u32, gateways: &[u8]) -> GroupOp {
    let hop = |n: &u8| FibHop {
        gateway: Some([10, 0, 0, *n].into()),
        interface: 7,
        weight: 1 + u16::from(n % 2),
        onlink: false,
    };
    GroupOp { id: GroupId(id), content: FibGroup::Hops(gateways.iter().map(hop).collect()), source: None }
}

fn route(n: u32, group: Option<u32>) -> FibRoute<V4> {
    let prefix = Prefix::<V4>::new(0x2000_0000 | n << 8, 24);
    FibRoute { prefix, group: group.map(GroupId), protocol: Protocol::BgpExternal }
}

#[test]
fn fpmsyncd_that_loses_frames_has_every_route_after_a_round() {
    for seed in 0..40 {
        let rng = &mut Rng::new(seed);
        let mut bench = Bench::new(seed % 2 == 0);
        let mut all = FibBatch { seq: 1, start_of_replay: true, end_of_replay: true, ..FibBatch::default() };
        all.groups = (1..=4).map(|id| group(id, &[id as u8, 9])).collect();
        all.routes.v4 = (0..3000).map(|n| route(n, Some(n % 4 + 1))).collect();
        bench.send(&all, |_| false);
        assert_eq!(bench.round(), 0);
        let mut lost = 0;
        for seq in 2..20 {
            let mut batch = FibBatch { seq, ..FibBatch::default() };
            batch.groups = vec![group(rng.index(4) as u32 + 1, &[rng.index(5) as u8, 10, seq as u8])];
            let routes = (0..30).map(|_| (rng.index(3200) as u32, rng.index(6) as u32));
            batch.routes.v4 = routes.map(|(n, id)| route(n, (1..=4).contains(&id).then_some(id))).collect();
            bench.send(&batch, |_| {
                let is_lost = rng.one_in(5);
                lost += usize::from(is_lost);
                is_lost
            });
        }
        assert!(lost > 0 && bench.round() > 0, "seed {seed}");
        assert_eq!(bench.round(), 0, "seed {seed}");
        assert_eq!(bench.server.waiting(), 0);
    }
}

/// What a round costs: printed, not judged.
/// `cargo test --release -p ribtide-sim --test fpm_comparison -- --ignored --nocapture how_much`.
#[test]
#[ignore = "a measurement"]
fn how_much() {
    const ROUTES: u32 = 1_000_000;
    for next_hop_groups in [false, true] {
        let mut bench = Bench::new(next_hop_groups);
        let mut all = FibBatch { seq: 1, start_of_replay: true, end_of_replay: true, ..FibBatch::default() };
        all.groups = (1..=64).map(|id| group(id, &[id as u8, 100])).collect();
        // In no order, as BGP has them.
        let at = |n: u32| n.wrapping_mul(0x9e37_79b1) & 0xf_ffff;
        all.routes.v4 = (0..ROUTES).map(|n| route(at(n), Some(n % 64 + 1))).collect();
        bench.send(&all, |_| false);
        for _ in 0..3 {
            bench.cpu = [Duration::ZERO; 2];
            let compared = bench.client.repairs().compared();
            assert_eq!(bench.round(), 0);
            let [client, server] = bench.cpu;
            let compared = bench.client.repairs().compared() - compared;
            println!("{compared} routes, groups {next_hop_groups}: client {client:?}, fpmsyncd {server:?}");
        }
    }
}
