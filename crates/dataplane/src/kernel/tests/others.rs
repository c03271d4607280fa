//! The kernel with others at work in it: what they break, and what they bring.

use super::*;
use ribtide_prefix::for_each_family;
use ribtide_rib::{NextHops, RouteBatch};
use std::io::Write as _;
use std::process::Stdio;

/// The threads, and the ends of their rings.
struct Running {
    batches: ring::Sender<Arc<FibBatch>>,
    _urgent: ring::Sender<Vec<UrgentOp>>,
    said: ring::Receiver<RibIn>,
    stop: Stop,
    threads: [JoinHandle<()>; 3],
    /// Others' routes as the RIB was told them.
    learnt: BTreeMap<String, String>,
}

impl Running {
    fn start(config: KernelConfig) -> Running {
        let rings = Rings::default();
        let (feedback, said) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: std::sync::Arc::default() };
        let (stop, meter) = (Stop::default(), Meters::default().meter("kernel"));
        let (channel, DataplaneSink { batches, urgent }) =
            RibChannel::new(0, "kernel", &rings, rib, meter, stop.clone());
        let (_, threads) = start(config, &[], channel, None, &rings).unwrap();
        let mut running = Running { batches, _urgent: urgent, said, stop, threads, learnt: BTreeMap::new() };
        running.until("the kernel is ready", |_| false, |message| matches!(message, RibIn::DataplaneUp(0)));
        running
    }

    /// Has a batch carried out.
    fn apply(&mut self, batch: Batch, seq: u64) {
        self.batches.send(Arc::new(FibBatch { seq, ..batch.0 })).unwrap();
        self.until(
            "it is done",
            |_| false,
            |message| match message {
                RibIn::Ack(ack) if ack.seq == seq => {
                    assert_eq!(ack.failed, []);
                    true
                }
                _ => false,
            },
        );
    }

    /// Takes what the threads say until one of the two is true.
    fn until(
        &mut self,
        what: &str,
        state: impl Fn(&BTreeMap<String, String>) -> bool,
        message: impl Fn(&RibIn) -> bool,
    ) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !state(&self.learnt) {
            assert!(
                Instant::now() < deadline,
                "it does not happen that {what}: {:?}, {:?}",
                self.learnt,
                table()
            );
            let Ok(Some(said)) = self.said.recv_timeout(Duration::from_millis(20)) else { continue };
            if let RibIn::Routes(batch) = &said {
                self.learn(batch);
            }
            if message(&said) {
                return;
            }
        }
    }

    fn learn(&mut self, batch: &RouteBatch) {
        assert_eq!(batch.source, Source::Kernel);
        for_each_family!(F => for (prefix, set) in batch.changes.get::<F>() {
            match batch.sets.get(*set as usize).map(|set| &set.next_hops) {
                Some(NextHops::Via(hops)) => {
                    let gateway = hops[0].gateway.map_or("link".into(), |g| g.to_string());
                    self.learnt.insert(prefix.to_string(), gateway);
                }
                Some(NextHops::Blackhole) => {
                    self.learnt.insert(prefix.to_string(), "blackhole".into());
                }
                Some(NextHops::Unreachable) => {
                    self.learnt.insert(prefix.to_string(), "unreachable".into());
                }
                None => assert!(self.learnt.remove(&prefix.to_string()).is_some(), "{prefix} was never told"),
            }
        });
    }

    fn stop(self) {
        self.stop.stop();
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Runs lines of `ip` commands; those that fail are passed over.
fn ip_batch(lines: &str) {
    let mut ip = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ip.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    ip.wait().unwrap();
}

pub(super) fn prefix(i: u32) -> String {
    format!("192.{}.{}.0/24", i / 256, i % 256)
}

/// Routes over a group of two, half of them, and over one next hop, the others.
fn routes(n: u32) -> Batch {
    let start = Batch::start()
        .group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1)])
        .group(2, &[hop("2001:db8::2", "v0", 1)])
        .route("2001:db8:aaaa::/48", Some(2));
    (0..n).fold(start, |batch, i| batch.route(&prefix(i), Some(1 + i % 2))).end()
}

#[test]
fn what_others_break_is_mended() {
    in_namespace("others::what_others_break_is_mended", || {
        let mut running = Running::start(config());
        running.apply(routes(100), 1);
        let whole = table();
        let group = json("route show table 1000 exact 192.0.0.0/24")[0]["nhid"].as_u64().unwrap();
        let single = json("nexthop show").iter().find(|n| n["gateway"] == "10.0.0.2").unwrap()["id"].clone();
        for broken in [
            "route del 192.0.1.0/24 table 1000".to_string(),
            "-6 route del 2001:db8:aaaa::/48 table 1000".into(),
            "route replace 192.0.2.0/24 via 10.0.0.9 table 1000 metric 20 proto static".into(),
            "route add 203.0.113.0/24 via 10.0.0.9 table 1000 metric 20 proto bgp".into(),
            "route add 192.0.3.0/24 via 10.0.0.9 table 1000 metric 7 proto bgp".into(),
            "route flush table 1000".into(),
            format!("nexthop del id {single}"),
            format!("nexthop del id {group}"),
            format!("nexthop replace id {group} group {single}"),
            "nexthop flush".into(),
        ] {
            // What has no such object any more is for the next round.
            let _ = try_ip(&broken);
            running.until(&format!("the table is whole after {broken}"), |_| table() == whole, |_| false);
        }
        // Another's route and another's object stay.
        ip("route add 203.0.113.0/24 via 10.0.0.9 table 1000 proto static");
        ip("nexthop add id 7 via 10.0.0.9 dev v0");
        ip("route del 192.0.1.0/24 table 1000");
        running.until("our route is back", |_| table_has("192.0.1.0/24"), |_| false);
        assert!(table_has("203.0.113.0/24"));
        assert!(json("nexthop show").iter().any(|n| n["id"] == 7));
        running.stop();
    });
}

#[test]
fn an_overrun_is_answered_by_a_comparison() {
    in_namespace("others::an_overrun_is_answered_by_a_comparison", || {
        let mut running = Running::start(KernelConfig { receive_buffer: 1, ..config() });
        running.apply(routes(4000), 1);
        let whole = table();
        // Far more messages than fit.
        let lines: String = (0..3000).map(|i| format!("route del {} table 1000\n", prefix(i))).collect();
        ip_batch(&lines);
        running.until("the table is whole", |_| table() == whole, |_| false);
        running.stop();
    });
}

#[test]
fn routes_carry_the_source_address() {
    in_namespace("others::routes_carry_the_source_address", || {
        ip("addr add 10.7.7.7/32 dev lo");
        ip("addr add 2001:db8:7::7/128 dev lo nodad");
        // In other tables than main, the kernel keeps routes whose source address is gone.
        let config = KernelConfig {
            table: 254,
            source4: Some("10.7.7.7".parse().unwrap()),
            source6: Some("2001:db8:7::7".parse().unwrap()),
            metric: 33,
            protocol: 114,
            ..config()
        };
        let mut running = Running::start(config.clone());
        running.apply(routes(10), 1);
        let marks = |family: &str| {
            let shown = json(&format!("-N {family} route show table 254 proto 114"));
            let mark = |r: &Value| (r["prefsrc"].clone(), r["metric"].clone());
            let marks: std::collections::BTreeSet<String> =
                shown.iter().map(|r| format!("{:?}", mark(r))).collect();
            (shown.len(), marks)
        };
        let one = |address: &str| [format!("{:?}", (Value::from(address), Value::from(33)))].into();
        assert_eq!(marks("-4"), (10, one("10.7.7.7")));
        assert_eq!(marks("-6"), (1, one("2001:db8:7::7")));
        // With the address, the kernel drops the routes that name it, and does not say so.
        ip("addr del 10.7.7.7/32 dev lo");
        assert_eq!(marks("-4").0, 0);
        ip("addr add 10.7.7.7/32 dev lo");
        running.until("routes are back with their source address", |_| marks("-4").0 == 10, |_| false);
        assert_eq!(marks("-4"), (10, one("10.7.7.7")));
        running.stop();

        // The next start wants none: what is there is not right as it is.
        let mut running = Running::start(KernelConfig { source4: None, source6: None, ..config });
        running.apply(routes(10), 1);
        assert_eq!(
            marks("-4").1.into_iter().next().unwrap(),
            format!("{:?}", (Value::Null, Value::from(33)))
        );
        running.stop();
    });
}

#[test]
fn others_routes_are_learnt() {
    in_namespace("others::others_routes_are_learnt", || {
        ip("route add 198.51.100.0/24 via 10.0.0.2");
        let mut running = Running::start(config());
        let know = |what: &[(&str, &str)]| {
            let what: BTreeMap<String, String> =
                what.iter().map(|(p, g)| (p.to_string(), g.to_string())).collect();
            move |learnt: &BTreeMap<String, String>| *learnt == what
        };
        let first = ("198.51.100.0/24", "10.0.0.2");
        running.until("what was there is told", know(&[first]), |_| false);
        // Ours are not learnt, nor are those of other tables.
        running.apply(routes(5), 1);
        ip("route add 198.18.0.0/15 via 10.0.1.2 proto static");
        ip("route add unreachable 203.0.113.0/24");
        ip("-6 route add 2001:db8:ffff::/48 via 2001:db8:1::2");
        ip("nexthop add id 5 via 10.0.1.3 dev v1");
        ip("route add 100.64.0.0/10 nhid 5");
        let all = [
            first,
            ("198.18.0.0/15", "10.0.1.2"),
            ("203.0.113.0/24", "unreachable"),
            ("2001:db8:ffff::/48", "2001:db8:1::2"),
            ("100.64.0.0/10", "10.0.1.3"),
        ];
        running.until("what came is told", know(&all), |_| false);
        ip("nexthop replace id 5 via 10.0.1.4 dev v1");
        ip("route del 203.0.113.0/24");
        let changed = [first, all[1], all[3], ("100.64.0.0/10", "10.0.1.4")];
        running.until("a route by an object follows it", know(&changed), |_| false);
        // The kernel drops IPv4 routes with their link and says nothing.
        ip("link set v1 down");
        running.until("routes that went with the link are gone", know(&[first]), |_| false);
        running.stop();
    });
}

#[test]
fn a_group_of_512_is_adopted_without_a_word() {
    in_namespace("others::a_group_of_512_is_adopted_without_a_word", || {
        ip("addr add 10.9.0.1/16 dev v0");
        let hops: Vec<FibHop> =
            (0..512).map(|i| hop(&format!("10.9.{}.{}", 1 + i / 250, 1 + i % 250), "v0", 1)).collect();
        let batch = |groups: u32| {
            let start = Batch::start().group(groups, &hops);
            (0..300).fold(start, |b, i| b.route(&prefix(i), Some(groups))).end()
        };
        batch(1).apply(&mut open());
        // Another process, other numbers of groups: not one message.
        assert_eq!(told(|| batch(77).apply(&mut open())), (0, 0));
        assert_eq!(json("nexthop show").len(), 513);
    });
}

#[test]
fn a_restart_does_not_follow_the_rib_before_its_last_word() {
    in_namespace("others::a_restart_does_not_follow_the_rib_before_its_last_word", || {
        let ways =
            || Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]).group(2, &[hop("10.0.1.2", "v1", 1)]);
        ways()
            .route(&prefix(1), Some(1))
            .route(&prefix(2), Some(1))
            .route(&prefix(3), Some(1))
            .end()
            .apply(&mut open());
        let mut kernel = open();
        let before = told(|| {
            // One neighbour is sooner than the others.
            ways()
                .route(&prefix(1), Some(2))
                .route(&prefix(2), Some(2))
                .route(&prefix(3), Some(2))
                .apply(&mut kernel);
            Batch::default().route(&prefix(1), Some(1)).route(&prefix(3), None).apply(&mut kernel);
        });
        assert_eq!(before, (0, 0));
        let end = told(|| Batch::default().end().apply(&mut kernel));
        assert_eq!(end, (0, 2), "one is another now, one is gone");
        assert_eq!(table(), expect(&[(&prefix(1), &["10.0.0.2 v0 1"]), (&prefix(2), &["10.0.1.2 v1 1"])]));

        // A link that goes meanwhile takes what was found along: nothing is held back any more.
        let mut kernel = open();
        ways().route(&prefix(2), Some(1)).apply(&mut kernel);
        ip("link set v1 down");
        let ifindex = ifindex("v1");
        kernel.interface_changed(&InterfaceChange { ifindex, up: false, came_up: false }).unwrap();
        assert_eq!(table(), expect(&[(&prefix(1), &["10.0.0.2 v0 1"]), (&prefix(2), &["10.0.0.2 v0 1"])]));
    });
}

#[test]
fn groups_of_equal_content_are_told_apart_by_their_routes() {
    in_namespace("others::groups_of_equal_content_are_told_apart_by_their_routes", || {
        let batch = |ids: [u32; 3]| {
            let start = ids.iter().fold(Batch::start(), |b, id| b.group(*id, &[hop("10.0.0.2", "v0", 1)]));
            (0..30).fold(start, |b, i| b.route(&prefix(i), Some(ids[i as usize % 3]))).end()
        };
        batch([1, 2, 3]).apply(&mut open());
        for ids in [[3, 1, 2], [2, 3, 1], [7, 8, 9]] {
            let mut kernel = open();
            assert_eq!(told(|| batch(ids).apply(&mut kernel)), (0, 0), "{ids:?}");
            // They change one by one all the same.
            Batch::default().group(ids[1], &[hop("10.0.1.2", "v1", 1)]).apply(&mut kernel);
            assert_eq!(table()["192.0.1.0/24"], ["10.0.1.2 v1 1"]);
            assert_eq!(table()["192.0.2.0/24"], ["10.0.0.2 v0 1"]);
            Batch::default().group(ids[1], &[hop("10.0.0.2", "v0", 1)]).apply(&mut kernel);
        }
        assert_eq!(json("nexthop show").len(), 4);
    });
}

#[test]
fn a_vrf_that_is_not_there_is_a_sentence() {
    in_namespace("others::a_vrf_that_is_not_there_is_a_sentence", || {
        assert!(super::super::vrf::find("red").unwrap_err().contains("ip link add red type vrf"));
        assert!(super::super::vrf::find("v0").unwrap_err().contains("not a VRF"));
        if try_ip("link add red type vrf table 77").is_ok() {
            assert_eq!(super::super::vrf::find("red"), Ok((ifindex("red"), 77)));
        }
    });
}
