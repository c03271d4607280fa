//! The continuous comparison repairs what no notification reports. These tests have no watcher.

use super::super::watch::Touched;
use super::machine::KernelMachine;
use super::others::prefix;
use super::system::SimulatedClock;
use super::*;
use crate::Difference;
use ribtide_netlink::Sockets;
use ribtide_rib::{Vrf, VrfId};
use std::sync::Mutex;

/// Compares one whole round in pages of `count` routes. Returns what was repaired: routes that were missing, that had other
/// next hops, and that were unexpected, and next-hop objects.
fn round(kernel: &mut Kernel, count: usize) -> [u64; 4] {
    let counters = kernel.repairs.counters.clone();
    let repaired = || Difference::ALL.map(|difference| counters.repaired(difference));
    let before = repaired();
    while !kernel.compare(count).unwrap() {}
    let after = repaired();
    std::array::from_fn(|n| after[n] - before[n])
}

fn routes(n: u32) -> Batch {
    let start = Batch::start()
        .group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1)])
        .group(2, &[hop("2001:db8::2", "v0", 1)])
        .route("2001:db8:aaaa::/48", Some(2))
        .route("2001:db8:bbbb::/48", Some(2));
    (0..n).fold(start, |batch, i| batch.route(&prefix(i), Some(1 + i % 2))).end()
}

#[test]
fn compare_repairs_each_difference_once() {
    in_namespace("compare::compare_repairs_each_difference_once", || {
        let mut kernel = open();
        routes(100).apply(&mut kernel);
        let whole = table();
        assert_eq!(round(&mut kernel, 10), [0; 4]);
        assert_eq!(kernel.repairs.counters.compared(), 102);
        let objects = json("nexthop show");
        let single = objects.iter().find(|n| n["gateway"] == "10.0.0.2").unwrap()["id"].clone();
        let group = json("route show table 1000 exact 192.0.0.0/24")[0]["nhid"].clone();
        for (broken, repaired) in [
            ("route del 192.0.1.0/24 table 1000".to_string(), [1, 0, 0, 0]),
            ("-6 route del 2001:db8:aaaa::/48 table 1000".into(), [1, 0, 0, 0]),
            (
                (0..30).map(|i| format!("route del {} table 1000", prefix(i))).collect::<Vec<_>>().join("; "),
                [30, 0, 0, 0],
            ),
            ("route replace 192.0.2.0/24 via 10.0.0.9 table 1000 metric 20 proto bgp".into(), [0, 1, 0, 0]),
            // The number of another program.
            (
                "route replace 192.0.2.0/24 via 10.0.0.9 table 1000 metric 20 proto static".into(),
                [0, 1, 0, 0],
            ),
            (format!("route replace 192.0.1.0/24 nhid {group} table 1000 metric 20 proto bgp"), [0, 1, 0, 0]),
            ("route add 203.0.113.0/24 via 10.0.0.9 table 1000 metric 20 proto bgp".into(), [0, 0, 1, 0]),
            ("route add 192.0.3.0/24 via 10.0.0.9 table 1000 metric 7 proto bgp".into(), [0, 0, 1, 0]),
            // The content of an object, of a group, and one that nothing uses.
            (format!("nexthop replace id {single} via 10.0.0.9 dev v0 proto bgp"), [0, 0, 0, 1]),
            (format!("nexthop replace id {group} group {single} proto bgp"), [0, 0, 0, 1]),
            ("nexthop add id 77 via 10.0.0.9 dev v0 proto bgp".into(), [0, 0, 0, 1]),
            // All routes of the group are gone with it.
            (format!("nexthop del id {group}"), [50, 0, 0, 1]),
            ("nexthop flush".into(), [102, 0, 0, 5]),
        ] {
            broken.split("; ").for_each(|broken| _ = ip(broken));
            assert_eq!(round(&mut kernel, 10), repaired, "{broken}");
            assert_eq!(table(), whole, "{broken}");
            assert_eq!(round(&mut kernel, 10), [0; 4], "{broken}");
            assert_eq!(json("nexthop show").len(), objects.len(), "{broken}");
        }
        // Another program's route and object stay, and a route for a type of service.
        ip("route add 203.0.113.0/24 via 10.0.0.9 table 1000 proto static");
        ip("route add 203.0.113.0/24 tos 0x10 via 10.0.0.9 table 1000 proto bgp metric 20");
        ip("nexthop add id 7 via 10.0.0.9 dev v0");
        assert_eq!(round(&mut kernel, 10), [0; 4]);
        assert!(table_has("203.0.113.0/24"));
        // What ribtide does not have there is no difference: an unresolved group, a failed route.
        let mut batch =
            Batch::default().group(3, &[hop("99.9.9.9", "v0", 1)]).route("198.51.100.0/24", Some(3));
        batch.0.groups.push(GroupOp { id: GroupId(2), content: FibGroup::Unresolved, source: None });
        kernel.apply(&Arc::new(batch.0)).unwrap();
        assert_eq!(failed(&mut kernel).len(), 1);
        // 50 of ribtide, and two of the other program.
        assert_eq!(table().len(), 52);
        assert_eq!(round(&mut kernel, 10), [0; 4]);
    });
}

/// Without its source address the kernel refuses the right route.
#[test]
fn compare_deletes_a_route_with_other_next_hops_that_it_cannot_replace() {
    in_namespace("compare::compare_deletes_a_route_with_other_next_hops_that_it_cannot_replace", || {
        ip("addr add 10.7.7.7/32 dev lo");
        let config = KernelConfig { source4: Some("10.7.7.7".parse().unwrap()), ..config() };
        let mut kernel = Kernel::open(&System::default(), config, &[]).unwrap();
        routes(2).apply(&mut kernel);
        let group = |prefix: &str| json(&format!("route show table 1000 exact {prefix}"))[0]["nhid"].clone();
        let [first, second] = ["192.0.0.0/24", "192.0.1.0/24"].map(group);
        ip(&format!("route replace 192.0.0.0/24 nhid {second} table 1000 metric 20 proto bgp"));
        ip(&format!("route replace 192.0.1.0/24 nhid {second} table 1000 metric 20 proto bgp"));
        ip("addr del 10.7.7.7/32 dev lo");
        round(&mut kernel, 10);
        let refused: Vec<AnyPrefix> = failed(&mut kernel).into_iter().map(|(prefix, _)| prefix).collect();
        assert_eq!(refused, ["192.0.0.0/24", "192.0.1.0/24"].map(|prefix| prefix.parse().unwrap()));
        assert!(!table_has("192.0.0.0/24"));
        assert!(table_has("192.0.1.0/24"), "its next hops are right, and only its source address is not");
        ip("addr add 10.7.7.7/32 dev lo");
        kernel.addresses_changed(&["10.7.7.7".parse().unwrap()]).unwrap();
        assert_eq!(["192.0.0.0/24", "192.0.1.0/24"].map(group), [first, second]);
    });
}

/// The first buffer of a page is as old as the page before.
#[test]
fn compare_confirms_no_failed_route_by_an_older_buffer() {
    in_namespace("compare::compare_confirms_no_failed_route_by_an_older_buffer", || {
        ip("addr add 10.7.7.7/32 dev lo");
        // In the main table, the kernel drops routes whose source address is gone.
        let source4 = Some("10.7.7.7".parse().unwrap());
        let config = KernelConfig { table: 254, protocol: 114, source4, ..config() };
        let mut kernel = Kernel::open(&System::default(), config, &[]).unwrap();
        routes(3000).apply(&mut kernel);
        // The two IPv6 routes, and one buffer of the others.
        while kernel.repairs.counters.compared() <= 2 {
            assert!(!kernel.compare(1).unwrap());
        }
        let next: AnyPrefix = prefix(kernel.repairs.counters.compared() as u32 - 2).parse().unwrap();
        let has = || !json(&format!("route show table 254 exact {next}")).is_empty();
        assert!(has(), "one buffer has all routes");
        ip("addr del 10.7.7.7/32 dev lo");
        assert!(!has());
        kernel
            .touched(&[Touched { prefix: next, table: 254, metric: 20, there: false, marked: false }])
            .unwrap();
        assert_eq!(failed(&mut kernel).len(), 1);
        kernel.compare(1).unwrap();
        assert_eq!(kernel.results.ack(0, 0).installed, []);
    });
}

/// Own changes between two pages are no differences, whatever the pages show.
#[test]
fn compare_counts_no_own_change() {
    in_namespace("compare::compare_counts_no_own_change", || {
        let mut kernel = open();
        routes(3000).apply(&mut kernel);
        let mut rng = Rng::new(11);
        let mut group = |n: u64| (rng.next_u64() % n) as u32;
        for turn in 0..200 {
            let batch = (0..100).fold(Batch::default(), |batch, _| {
                let to = [None, Some(1), Some(2)][group(3) as usize];
                batch.route(&prefix(group(3000)), to)
            });
            batch.apply(&mut kernel);
            kernel.compare(200).unwrap();
            let repaired = Difference::ALL.map(|difference| kernel.repairs.counters.repaired(difference));
            assert_eq!(repaired, [0; 5], "turn {turn}");
        }
        assert!(kernel.repairs.counters.rounds() > 5);
        assert_eq!(round(&mut kernel, 200), [0; 4]);
    });
}

#[test]
fn compare_of_a_vrf_is_of_its_table() {
    in_namespace("compare::compare_of_a_vrf_is_of_its_table", || {
        let vrf = Vrf { id: VrfId(1), table: 2000, device: 0 };
        let mut kernel = Kernel::open(&System::default(), config(), &[vrf]).unwrap();
        routes(10).apply(&mut kernel);
        let mut batch = Batch::default().group(5, &[hop("10.0.1.2", "v1", 1)]).route("192.0.2.0/24", Some(5));
        batch.0.vrf = vrf;
        batch.apply(&mut kernel);
        assert_eq!(round(&mut kernel, 100), [0; 4]);
        ip("route del 192.0.2.0/24 table 2000");
        ip("route del 192.0.2.0/24 table 1000");
        assert_eq!(round(&mut kernel, 100), [2, 0, 0, 0]);
        assert!(table_of(2000).contains_key("192.0.2.0/24"));
        assert_eq!(table().len(), 12);
    });
}

/// A clock that moves by hand.
struct Clock(Mutex<Instant>);

impl SimulatedClock for Clock {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

/// Batches go before a page of the comparison, but not for ever.
#[test]
fn compare_waits_for_batches_two_seconds() {
    in_namespace("compare::compare_waits_for_batches_two_seconds", || {
        let clock = Arc::new(Clock(Mutex::new(Instant::now())));
        let system = System::simulated(Sockets::default(), clock.clone());
        let rings = Rings::default();
        let (feedback, _said) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let meter = Meters::default().meter("kernel");
        let (channel, DataplaneSink { batches, urgent: _urgent }) =
            RibChannel::new(3, "kernel", &rings, rib, meter, Stop::default());
        let config = KernelConfig { import: false, ..config() };
        let mut machine = KernelMachine::open(&system, config, channel, &rings).unwrap();
        let write = |machine: &mut KernelMachine, batch: Batch| {
            batches.send(Arc::new(batch.0)).unwrap();
            while machine.write().unwrap() {}
            machine.repairs().compared()
        };
        write(&mut machine, routes(100));
        // The first round follows the replay, and the next one comes 10 s later.
        assert_eq!(machine.repairs().compared(), 102);
        clock.sleep(Duration::from_secs(10));
        let mut waiting = || {
            for n in 0..2 {
                let route = Batch::default().route(&prefix(n), None);
                batches.send(Arc::new(route.0)).unwrap();
            }
            machine.write().unwrap();
            machine.repairs().compared()
        };
        assert_eq!(waiting(), 102, "a batch was there");
        clock.sleep(Duration::from_millis(1900));
        assert_eq!(waiting(), 102, "batches are there still");
        clock.sleep(Duration::from_millis(200));
        assert!(waiting() > 102, "it has waited for two seconds");
    });
}

/// What a round costs: printed, not judged. `cargo test --release -- --ignored --nocapture how_much`.
#[test]
#[ignore = "a measurement"]
fn how_much() {
    in_namespace("compare::how_much", || {
        leave_compat_mode();
        let mut kernel = open();
        let mut batch = Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]).0;
        let n = 1_000_000;
        batch.routes.v4 = (0..n)
            .map(|i: u32| FibRoute {
                prefix: Prefix::<V4>::new(0x4000_0000 | i.wrapping_mul(0x9e37_79b1) >> 2, 24),
                group: Some(GroupId(1)),
                protocol: Protocol::BgpExternal,
            })
            .collect();
        batch.end_of_replay = true;
        Batch(batch).apply(&mut kernel);
        for _ in 0..3 {
            let (begin, mut pages, mut longest) = (thread::cpu_time(), 0, Duration::ZERO);
            loop {
                let page = thread::cpu_time();
                let ended = kernel.compare(COMPARE_PAGE).unwrap();
                (pages, longest) = (pages + 1, longest.max(thread::cpu_time() - page));
                if ended {
                    break;
                }
            }
            println!("CPU time: {:?} in {pages} pages, the longest {longest:?}", thread::cpu_time() - begin);
        }
    });
}
