//! The RIB manager's thread: what goes before what.

use super::*;
use ribtide_prefix::{Families, Prefix, V4};
use ribtide_rib::{
    FibAck, FibGroup, GatewayEvent, IfIndex, InterfaceEvent, NextHops, Protocol, ReceivedHop, RouteBatch,
    RouteSet,
};
use ribtide_runtime::ring::Reading;
use std::net::IpAddr;

/// The thread, and a dataplane that takes only what a test has it take.
struct Running {
    rib: RibHandle,
    port: Port,
    rings: Rings,
    stop: Stop,
}

impl Running {
    /// Two links, and a dataplane that was told so and is up.
    fn new() -> Running {
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let mut builder = RibBuilder::new(&rings);
        let mut port = builder.plug("test", &rings, meters.meter("test"), &stop);
        let setup = RibSetup {
            config: RibConfig::default(),
            vrfs: VrfsSetup::default(),
            shards: Vec::new(),
            suppress: false,
            policy: FibPolicy::default(),
            clock: Clock::default(),
        };
        let rib = builder.start(setup, &meters, stop.clone()).unwrap();
        for index in [1, 2] {
            port.rib.failures.send(link(index, true)).unwrap();
        }
        port.rib.failures.send(RibIn::DataplaneUp(0)).unwrap();
        let mut ended = false;
        while !ended {
            let batch = wait(|| port.try_next().unwrap());
            ended = batch.end_of_replay;
            acknowledge(&port, &batch);
        }
        Running { rib, port, rings, stop }
    }

    fn ring(&self, name: &str) -> Reading {
        self.rings.read().into_iter().find(|r| r.name == name).expect("a ring of that name")
    }

    /// Takes and acknowledges the next batch.
    fn take(&mut self) -> Arc<FibBatch> {
        let batch = wait(|| self.port.try_next().unwrap());
        acknowledge(&self.port, &batch);
        batch
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn acknowledge(port: &Port, batch: &FibBatch) {
    let ack = FibAck { dataplane: port.id, seq: batch.seq, failed: Vec::new(), installed: Vec::new() };
    port.rib.feedback.send(RibIn::Ack(ack)).unwrap();
}

/// Polls for what another thread is about to do. The limit only ends a test that fails.
fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn link(index: IfIndex, up: bool) -> RibIn {
    let address = IpAddr::from([10, 0, index as u8, 1]);
    RibIn::Interface(InterfaceEvent {
        vrf: VrfId::DEFAULT,
        index,
        name: format!("eth{index}"),
        up,
        addresses: vec![(address, 24)],
    })
}

/// Host routes of BGP by a neighbour on each link.
fn routes(numbers: std::ops::Range<u32>) -> RibIn {
    let next_hops =
        NextHops::Via([1, 2].map(|index| ReceivedHop::gateway(IpAddr::from([10, 0, index, 2]))).to_vec());
    let set = RouteSet {
        next_hops,
        backup: Vec::new(),
        backup_recursion: false,
        track: None,
        distance: 20,
        metric: 0,
        allow_recursion: false,
        protocol: Protocol::BgpExternal,
    };
    let mut changes = Families::default();
    let prefix = |n: u32| Prefix::<V4>::new(0x1400_0000 + n, 32);
    changes.v4 = numbers.map(|n| (prefix(n), 0)).collect();
    RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets: vec![set], changes })
}

/// How many ways out a batch gives to its one group that leads anywhere.
fn ways(batch: &FibBatch) -> usize {
    let mut contents = batch.groups.iter().map(|op| &op.content).filter(|c| **c != FibGroup::Nowhere);
    match (contents.next(), contents.next()) {
        (Some(FibGroup::Hops(hops)), None) => hops.len(),
        other => panic!("{other:?}"),
    }
}

/// Whether packets reach the neighbour on the first link.
fn reached(usable: bool) -> RibIn {
    let address = IpAddr::from([10, 0, 1, 2]);
    RibIn::Gateway(GatewayEvent { address, interface: None, usable })
}

/// A dataplane that is full when one of two ways out ends, and has taken what came of that; and how many routes there
/// are, of which it has one.
fn overtaken(failure: RibIn) -> (Running, u32) {
    let mut running = Running::new();
    running.rib.inbox.send(routes(0..1)).unwrap();
    assert_eq!(ways(&running.take()), 2);
    // Nothing is taken from here on: its ring fills, and the RIB manager waits for it.
    let mut next = 1;
    while running.ring("RIB to test").depth < crate::dataplane::BATCHES as u64
        || running.ring("shards to RIB").depth < INBOX as u64
    {
        if running.rib.inbox.try_send(routes(next..next + 1)).is_ok() {
            next += 1;
        }
    }
    running.port.rib.failures.send(failure).unwrap();
    wait(|| (running.ring("RIB to test, urgent").depth > 0).then_some(()));
    let first = running.take();
    assert_eq!((first.seq, first.route_count(), ways(&first)), (0, 0, 1), "the group, before all routes");
    (running, next)
}

#[test]
fn a_neighbour_that_packets_do_not_reach_overtakes_routes_too() {
    let (mut running, next) = overtaken(reached(false));
    let mut seen = 1;
    while seen < next as usize {
        let batch = running.take();
        assert!(batch.groups.is_empty() && batch.routes.v4.iter().all(|r| r.group.is_some()));
        seen += batch.route_count();
    }
}

#[test]
fn a_failed_link_overtakes_routes_while_a_dataplane_is_full() {
    let (mut running, next) = overtaken(link(1, false));
    // All routes come, and what became of the link's own after those that waited for the dataplane.
    let (mut seen, mut connected_gone) = (0, None);
    while seen + 1 < next as usize || connected_gone.is_none() {
        let batch = running.take();
        assert!(batch.groups.is_empty(), "the group is not told again");
        let bgp = batch.routes.v4.iter().filter(|r| r.protocol == Protocol::BgpExternal);
        if batch.routes.v4.iter().any(|r| r.group.is_none()) {
            connected_gone = Some(seen);
        }
        seen += bgp.count();
    }
    assert!(connected_gone.unwrap() >= crate::dataplane::BATCHES, "what waited in the ring goes first");
}

/// Microseconds from a link's end, or BFD's, to the group that avoids it at the dataplane: docs/perf/2026-11-failover.md.
#[test]
#[ignore = "measures; in release mode, with --nocapture"]
fn measure_failover() {
    const ROUTES: u32 = 1_000_000;
    const BATCH: u32 = 2048;
    let mut running = Running::new();
    let flap = |running: &mut Running, event: fn(bool) -> RibIn, label: &str| {
        let (mut times, mut most): (Vec<u128>, usize) = (Vec::new(), 0);
        for up in [false, true].repeat(10) {
            let begin = Instant::now();
            running.port.rib.failures.send(event(up)).unwrap();
            let mut others = 0;
            loop {
                let batch = running.take();
                if !batch.groups.is_empty() && batch.seq == 0 {
                    break;
                }
                others += batch.route_count();
            }
            times.push(begin.elapsed().as_micros());
            most = most.max(others);
        }
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{label}: median {median} us, worst {worst} us; at most {most} routes came first");
    };
    let send = |inbox: &Sender<RibIn>, first: u32| {
        for start in (first..first + ROUTES).step_by(BATCH as usize) {
            inbox.send(routes(start..(start + BATCH).min(first + ROUTES))).unwrap();
        }
    };
    let inbox = running.rib.inbox.clone();
    let sender = std::thread::spawn(move || send(&inbox, 0));
    let mut taken = 0;
    while taken < ROUTES as usize {
        taken += running.take().route_count();
    }
    sender.join().unwrap();
    let first_link = |up| link(1, up);
    flap(&mut running, first_link, "1,000,000 routes of one group, at rest: a link");
    flap(&mut running, reached, "the same: BFD");

    // A backlog that never ends while links flap: routes come, and go again, as fast as they are taken.
    let (inbox, busy) = (running.rib.inbox.clone(), Stop::default());
    let stop = busy.clone();
    let sender = std::thread::spawn(move || {
        for round in 0.. {
            for start in (0..ROUTES).step_by(BATCH as usize) {
                if stop.stopped()
                    || inbox
                        .send(routes(
                            start + ROUTES * (round % 8 + 1)..start + ROUTES * (round % 8 + 1) + BATCH,
                        ))
                        .is_err()
                {
                    return;
                }
            }
        }
    });
    wait(|| (running.ring("shards to RIB").depth == INBOX as u64).then_some(()));
    flap(&mut running, first_link, "the same, with more routes coming than the RIB manager takes: a link");
    flap(&mut running, reached, "the same: BFD");
    busy.stop();
    drop(running);
    sender.join().unwrap();
}
