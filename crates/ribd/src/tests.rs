//! The RIB manager's thread: what goes before what.

use super::*;
use ribtide_config::{StaticRoute, VrfSetup};
use ribtide_prefix::{Families, Prefix, V4};
use ribtide_rib::{
    FibAck, FibBatch, FibGroup, GatewayEvent, IfIndex, InterfaceEvent, NextHops, Protocol, ReceivedHop,
    RouteBatch, RouteSet,
};
use ribtide_runtime::ring::Reading;
use std::net::IpAddr;

/// The thread, and a dataplane that takes only what a test has it take.
struct Running {
    rib: RibHandle,
    channel: RibChannel,
    rings: Rings,
    stop: Stop,
}

/// What nothing is configured of.
fn setup() -> RibSetup {
    RibSetup {
        config: RibConfig::default(),
        vrfs: VrfsSetup::default(),
        shards: Vec::new(),
        suppress: false,
        policy: FibPolicy::default(),
        redistribution: Default::default(),
        clock: Clock::default(),
    }
}

impl Running {
    /// Two links, and a dataplane that was told so and is up.
    fn new() -> Running {
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let mut builder = RibBuilder::new(&rings);
        let mut channel = builder.plug("test", &rings, meters.meter("test"), &stop);
        let rib = builder.start(setup(), &meters, stop.clone()).unwrap();
        for index in [1, 2] {
            channel.rib.failures.send(link(index, true)).unwrap();
        }
        channel.rib.failures.send(RibIn::DataplaneUp(0)).unwrap();
        let mut ended = false;
        while !ended {
            let batch = wait(|| channel.try_next().unwrap());
            ended = batch.end_of_replay;
            acknowledge(&channel, &batch);
        }
        Running { rib, channel, rings, stop }
    }

    fn ring(&self, name: &str) -> Reading {
        self.rings.read().into_iter().find(|r| r.name == name).expect("a ring of that name")
    }

    /// Takes and acknowledges the next batch.
    fn take(&mut self) -> Arc<FibBatch> {
        let batch = wait(|| self.channel.try_next().unwrap());
        acknowledge(&self.channel, &batch);
        batch
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn acknowledge(channel: &RibChannel, batch: &FibBatch) {
    let ack = FibAck { dataplane: channel.id, seq: batch.seq, failed: Vec::new(), installed: Vec::new() };
    channel.rib.feedback.send(RibIn::Ack(ack)).unwrap();
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
        loopback: false,
        addresses: vec![(address, format!("10.0.{index}.0/24").parse().unwrap())],
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
    changes(vec![set], numbers, 0)
}

/// The same ones withdrawn.
fn withdrawn(numbers: std::ops::Range<u32>) -> RibIn {
    changes(Vec::new(), numbers, ribtide_rib::NONE)
}

fn changes(sets: Vec<RouteSet>, numbers: std::ops::Range<u32>, set: u32) -> RibIn {
    let mut changes = Families::default();
    let prefix = |n: u32| Prefix::<V4>::new(0x1400_0000 + n, 32);
    changes.v4 = numbers.map(|n| (prefix(n), set)).collect();
    RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes })
}

/// How many next hops a batch gives to its one resolved group.
fn next_hops(batch: &FibBatch) -> usize {
    let mut contents = batch.groups.iter().map(|op| &op.content).filter(|c| **c != FibGroup::Unresolved);
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

/// A RIB manager whose dataplane was full when one of two next hops failed, and has taken that change and one route;
/// and the number of all routes.
fn overtaken(failure: RibIn) -> (Running, u32) {
    let mut running = Running::new();
    running.rib.inbox.send(routes(0..1)).unwrap();
    assert_eq!(next_hops(&running.take()), 2);
    // Nothing is taken from now on: its ring fills, and the RIB manager waits for it.
    let mut next = 1;
    while running.ring("RIB to test").depth < ribtide_dataplane::BATCHES as u64
        || running.ring("shards to RIB").depth < INBOX as u64
    {
        if running.rib.inbox.try_send(routes(next..next + 1)).is_ok() {
            next += 1;
        }
    }
    running.channel.rib.failures.send(failure).unwrap();
    wait(|| (running.ring("RIB to test, urgent").depth > 0).then_some(()));
    let first = running.take();
    assert_eq!(
        (first.seq, first.route_count(), next_hops(&first)),
        (0, 0, 1),
        "the group, before all routes"
    );
    (running, next)
}

#[test]
fn run_without_dataplane_takes_routes_and_answers() {
    let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
    let builder = RibBuilder::new(&rings);
    let failures = builder.failures();
    let rib = builder.start(setup(), &meters, stop.clone()).unwrap();
    for index in [1, 2] {
        failures.send(link(index, true)).unwrap();
    }
    // The last producer of failures goes too, as the feedback's are gone from the start.
    drop(failures);
    rib.inbox.send(routes(0..10)).unwrap();
    // Resolved over the links, though nothing installs them.
    let resolved = |stage: &mut RibStage| {
        let totals = stage.rib.default_vrf().totals();
        totals.iter().any(|t| t.protocol == Protocol::BgpExternal && (t.candidates, t.installed) == (10, 10))
    };
    wait(|| rib.handle.call(resolved).unwrap().then_some(()));
    stop.stop();
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
    assert!(connected_gone.unwrap() >= ribtide_dataplane::BATCHES, "what waited in the ring goes first");
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
            running.channel.rib.failures.send(event(up)).unwrap();
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
    flap(&mut running, first_link, "1,000,000 routes of one group, idle: a link");
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

// ---- several dataplanes

/// A dataplane that takes what a test has it take, and what it has in the end.
struct Taker {
    channel: RibChannel,
    routes: std::collections::BTreeMap<AnyPrefix, ribtide_rib::GroupId>,
    groups: std::collections::BTreeSet<ribtide_rib::GroupId>,
    most: usize,
}

impl Taker {
    fn take_all(&mut self) -> usize {
        let mut batches = 0;
        while let Some(batch) = self.channel.try_next().unwrap() {
            self.groups.extend(batch.groups.iter().map(|op| op.id));
            for route in &batch.routes.v4 {
                match route.group {
                    Some(group) => {
                        assert!(self.groups.contains(&group), "{group:?} is not there yet");
                        self.routes.insert(route.prefix.any(), group);
                    }
                    None => _ = self.routes.remove(&route.prefix.any()),
                }
            }
            for group in &batch.after {
                assert!(self.routes.values().all(|used| used != group), "{group:?} is used");
                self.groups.remove(group);
            }
            self.most = self.most.max(batch.route_count());
            acknowledge(&self.channel, &batch);
            batches += 1;
        }
        batches
    }
}

/// The thread and some dataplanes that are up; without routes.
fn several<const N: usize>() -> (RibHandle, [Taker; N], Rings, Stop) {
    let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
    let mut builder = RibBuilder::new(&rings);
    let plug = |n| builder.plug(&format!("test-{n}"), &rings, meters.meter("test"), &stop);
    let mut takers = std::array::from_fn(plug).map(|channel| Taker {
        channel,
        routes: Default::default(),
        groups: Default::default(),
        most: 0,
    });
    let rib = builder.start(setup(), &meters, stop.clone()).unwrap();
    for index in [1, 2] {
        takers[0].channel.rib.failures.send(link(index, true)).unwrap();
    }
    for taker in &mut takers {
        taker.channel.rib.feedback.send(RibIn::DataplaneUp(taker.channel.id)).unwrap();
        wait(|| (taker.take_all() > 0 && taker.routes.len() >= 2).then_some(()));
    }
    (rib, takers, rings, stop)
}

fn lag(rib: &RibHandle) -> Vec<Option<usize>> {
    rib.handle.call(|stage| stage.rib.dataplanes().map(|d| d.lag).collect()).unwrap()
}

#[test]
fn a_dataplane_that_takes_nothing_holds_up_no_other_and_is_told_each_prefix_once() {
    let (rib, mut takers, _rings, stop) = several::<3>();
    // Each of 200 routes comes and goes, a batch each time: far more than what rings hold.
    for round in 0..7 {
        for n in 0..200 {
            let message = if round % 2 == 0 { routes(n..n + 1) } else { withdrawn(n..n + 1) };
            rib.inbox.send(message).unwrap();
            for taker in &mut takers[..2] {
                wait(|| (taker.take_all() > 0).then_some(()));
            }
        }
    }
    assert_eq!(lag(&rib), [None, None, Some(200)]);
    assert_eq!(takers[0].routes, takers[1].routes);
    assert_eq!(takers[0].routes.len(), 2 * 2 + 200);
    assert_ne!(takers[2].routes, takers[0].routes);
    // It goes on: what waited in its ring, and then what it missed, in one batch.
    let mut batches = 0;
    wait(|| {
        batches += takers[2].take_all();
        (takers[2].routes == takers[0].routes).then_some(())
    });
    assert!(batches <= ribtide_dataplane::BATCHES + 8, "{batches}");
    wait(|| (lag(&rib) == [None; 3]).then_some(()));
    stop.stop();
}

#[test]
fn plugged_dataplane_gets_every_route_and_an_unplugged_one_is_forgotten() {
    let (rib, [mut first], rings, stop) = several::<1>();
    rib.inbox.send(routes(0..100)).unwrap();
    wait(|| (first.take_all() > 0 && first.routes.len() == 104).then_some(()));
    let channel = rib.plug("late", &rings, Meters::default().meter("late"), &stop.part()).unwrap();
    let mut late = Taker { channel, routes: Default::default(), groups: Default::default(), most: 0 };
    assert_eq!((late.channel.id, rib.is_up(1)), (1, Ok(false)));
    late.channel.rib.feedback.send(RibIn::DataplaneUp(1)).unwrap();
    wait(|| (late.take_all() > 0 && late.routes == first.routes).then_some(()));
    assert_eq!(rib.is_up(1), Ok(true));
    rib.inbox.send(withdrawn(0..50)).unwrap();
    for taker in [&mut first, &mut late] {
        wait(|| (taker.take_all() > 0 && taker.routes.len() == 54).then_some(()));
    }
    rib.unplug(0).unwrap();
    // Its threads send until they end. That is too late to be up again, and to finish anything.
    first.channel.rib.feedback.send(RibIn::DataplaneUp(0)).unwrap();
    first.channel.rib.failures.send(RibIn::DataplaneUp(0)).unwrap();
    rib.inbox.send(routes(200..300)).unwrap();
    wait(|| (late.take_all() > 0 && late.routes.len() == 154).then_some(()));
    let names = rib.handle.call(|stage| {
        let up: Vec<_> = stage.rib.dataplanes().map(|plane| plane.id).collect();
        (up, stage.planes().map(|id| stage.plane_name(id)).collect::<Vec<_>>())
    });
    assert_eq!(names, Ok((vec![1], vec!["late".to_owned()])));
    assert!(first.channel.try_next().is_err(), "its queue is closed");
    rib.forget_source(Source::Bgp).unwrap();
    wait(|| (late.take_all() > 0 && late.routes.len() == 4).then_some(()));
    stop.stop();
}

#[test]
fn set_vrfs_interfaces_of_tables_come_and_go_and_those_of_a_kernel_take_their_place() {
    let (rib, [mut taker], _rings, stop) = several::<1>();
    let table = |index: u32| ribtide_config::InterfaceConfig {
        index,
        name: format!("eth{index}"),
        addresses: vec![(IpAddr::from([10, 0, index as u8, 1]), 24)],
        neighbors: Vec::new(),
    };
    let subnets = |taker: &Taker| -> Vec<String> {
        let all = taker.routes.keys().filter(|prefix| prefix.len() == 24);
        all.map(|prefix| prefix.to_string()).collect()
    };
    let mut set = |indexes: &[u32], of_kernel: bool, expected: &[&str]| {
        let interfaces = indexes.iter().map(|index| table(*index)).collect();
        rib.set_vrfs(VrfsSetup { interfaces, of_kernel, ..VrfsSetup::default() }).unwrap();
        wait(|| {
            taker.take_all();
            (subnets(&taker) == expected).then_some(())
        });
    };
    // The kernel told of 1 and 2.
    set(&[], true, &["10.0.1.0/24", "10.0.2.0/24"]);
    set(&[2, 3], false, &["10.0.2.0/24", "10.0.3.0/24"]);
    set(&[3], false, &["10.0.3.0/24"]);
    set(&[3, 4], false, &["10.0.3.0/24", "10.0.4.0/24"]);
    // A kernel tells of 4 again.
    rib.failures().send(link(4, true)).unwrap();
    set(&[], true, &["10.0.4.0/24"]);
    stop.stop();
}

#[test]
fn when_no_dataplane_goes_on_routes_wait_where_they_come_from() {
    let (rib, mut takers, rings, stop) = several::<2>();
    let depth = |name: &str| rings.read().into_iter().find(|r| r.name == name).unwrap().depth;
    let mut sent = 0;
    // One more, where that is to be had; whether there is room nowhere.
    let full = |sent: &mut u32| {
        match rib.inbox.try_send(routes(*sent..*sent + 1)) {
            Ok(()) => *sent += 1,
            Err(_) if depth("RIB to test-1") == ribtide_dataplane::BATCHES as u64 => return Some(()),
            Err(_) => {}
        }
        None
    };
    wait(|| full(&mut sent));
    assert_eq!(lag(&rib), [None; 2], "no dataplane lags when none goes on");
    // One goes on, and more comes.
    let before = sent;
    wait(|| {
        takers[1].take_all();
        full(&mut sent);
        (sent > before + 1000).then_some(())
    });
    assert!(lag(&rib)[0].is_some());
    // And stops: the other one is far behind, and still what counts is that no dataplane can take more.
    wait(|| full(&mut sent));
    let stopped = sent;
    std::thread::sleep(Duration::from_millis(50));
    full(&mut sent);
    assert_eq!(stopped, sent);
    wait(|| {
        takers.iter_mut().for_each(|taker| _ = taker.take_all());
        (takers[0].routes.len() == sent as usize + 4 && takers[0].routes == takers[1].routes).then_some(())
    });
    stop.stop();
}

#[test]
fn a_failed_link_reaches_a_dataplane_that_is_behind_too() {
    let (rib, mut takers, rings, stop) = several::<2>();
    rib.inbox.send(routes(0..1)).unwrap();
    wait(|| {
        takers.iter_mut().for_each(|taker| _ = taker.take_all());
        takers.iter().all(|taker| taker.routes.len() == 5).then_some(())
    });
    let mut next = 1;
    while lag(&rib)[1].is_none() {
        rib.inbox.send(routes(next..next + 1)).unwrap();
        next += 1;
        takers[0].take_all();
    }
    takers[0].channel.rib.failures.send(link(1, false)).unwrap();
    let urgent =
        || rings.read().into_iter().find(|ring| ring.name == "RIB to test-1, urgent").map(|ring| ring.depth);
    wait(|| (urgent()? > 0).then_some(()));
    let first = wait(|| takers[1].channel.try_next().unwrap());
    assert_eq!(
        (first.seq, first.route_count(), next_hops(&first)),
        (0, 0, 1),
        "the group, before all routes"
    );
    stop.stop();
}

#[test]
fn routes_of_a_vrf_leave_with_it() {
    let mut running = Running::new();
    let blackhole = StaticRoute {
        prefix: "10.9.0.0/16".parse().unwrap(),
        hops: Vec::new(),
        distance: 1,
        backup: Vec::new(),
        track: None,
        bfd: None,
    };
    let vrf = VrfSetup {
        name: "Vrf-a".into(),
        vrf: ribtide_rib::Vrf { id: VrfId(7), table: 0, device: 9 },
        interfaces: Some(Vec::new()),
        statics: vec![blackhole],
        policy: FibPolicy::default(),
    };
    let with = VrfsSetup { vrfs: vec![vrf], ..VrfsSetup::default() };
    let names = |running: &Running| -> Vec<String> {
        running.rib.handle.call(|stage| stage.vrfs().map(|(name, _)| name.to_owned()).collect()).unwrap()
    };
    let changed = running.rib.set_vrfs(with).unwrap();
    assert_eq!(changed, VrfsChanged { added: vec!["Vrf-a".into()], ..VrfsChanged::default() });
    assert_eq!(names(&running), [ribtide_config::DEFAULT_VRF, "Vrf-a"]);
    let of_vrf = |running: &mut Running| loop {
        let batch = running.take();
        if batch.vrf.id == VrfId(7) && batch.route_count() > 0 {
            break batch.routes.v4.iter().map(|route| route.group.is_some()).collect::<Vec<bool>>();
        }
    };
    assert_eq!(of_vrf(&mut running), [true]);
    let changed = running.rib.set_vrfs(VrfsSetup::default()).unwrap();
    assert_eq!(changed, VrfsChanged { removed: vec!["Vrf-a".into()], ..VrfsChanged::default() });
    assert_eq!(names(&running), [ribtide_config::DEFAULT_VRF]);
    assert_eq!(of_vrf(&mut running), [false]);
}
