//! The path in one process: batches of the RIB manager in, forwarding and acknowledgements out.

use crate::eventually;
use ribtide_asic::InProcess;
use ribtide_config::{InterfaceConfig, VirtualAsicConfig};
use ribtide_dataplane::{DataplaneSink, RibChannel, ToRib};
use ribtide_prefix::{AnyPrefix, Families, Prefix, V4};
use ribtide_rib::{
    FibAck, FibBatch, FibGroup, FibHop, FibRoute, FibRoutes, GroupId, GroupOp, Protocol, RibIn, UrgentOp,
    VrfId,
};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::Stop;
use ribtide_swss::sai::PacketAction;
use ribtide_vswitch::Forward;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Rib {
    batches: Sender<Arc<FibBatch>>,
    urgent: Sender<Vec<UrgentOp>>,
    feedback: Receiver<RibIn>,
    path: InProcess,
    rings: Rings,
    stop: Stop,
    seq: u64,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn hop(gateway: &str, interface: u32) -> FibHop {
    FibHop { gateway: (!gateway.is_empty()).then(|| ip(gateway)), interface, weight: 1, onlink: false }
}

fn hops<const N: usize>(id: u32, next_hops: [(&str, u32); N]) -> GroupOp {
    GroupOp {
        id: GroupId(id),
        content: FibGroup::Hops(next_hops.map(|(gateway, interface)| hop(gateway, interface)).into()),
        source: None,
    }
}

fn routes(list: &[(&str, Option<u32>)]) -> Families<FibRoutes> {
    let mut routes = Families::<FibRoutes>::default();
    for (text, group) in list {
        let (group, protocol) = (group.map(GroupId), Protocol::BgpExternal);
        match text.parse().unwrap() {
            AnyPrefix::V4(prefix) => routes.v4.push(FibRoute { prefix, group, protocol }),
            AnyPrefix::V6(prefix) => routes.v6.push(FibRoute { prefix, group, protocol }),
        }
    }
    routes
}

impl Rib {
    /// With neighbours made, and group 1 in place with a route.
    fn with_group() -> Rib {
        let mut rib = Rib::new(true);
        rib.carried_out(FibBatch {
            groups: vec![hops(1, [("10.0.0.1", 1)])],
            routes: routes(&[("10.9.0.0/16", Some(1))]),
            ..FibBatch::default()
        });
        rib
    }

    fn new(lab: bool) -> Rib {
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let (feedback, answers) = rings.bounded("dataplanes to RIB", 256);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let meter = meters.meter("virtual ASIC");
        let (channel, DataplaneSink { batches, urgent }) =
            RibChannel::new(3, "virtual ASIC", &rings, rib, meter, stop.clone());
        let interface = |index, name: &str, address: &str, neighbor: Option<&str>| InterfaceConfig {
            index,
            name: name.into(),
            addresses: vec![(ip(address), 24)],
            neighbors: neighbor.map(|n| (ip(n), [2, 0, 0, 0, 0, 9])).into_iter().collect(),
        };
        let interfaces = [
            interface(1, "Ethernet0", "10.0.0.254", Some("10.0.0.1")),
            interface(2, "Ethernet4", "10.0.4.254", None),
        ];
        let path = ribtide_asic::start(
            "sonic",
            channel,
            &interfaces,
            &[],
            VirtualAsicConfig { lab, ..VirtualAsicConfig::default() },
            &rings,
            &meters,
        )
        .unwrap();
        let rib = Rib { batches, urgent, feedback: answers, path, rings, stop, seq: 0 };
        assert!(matches!(rib.answer(), RibIn::DataplaneUp(3)));
        rib
    }

    fn answer(&self) -> RibIn {
        self.feedback.recv_timeout(Duration::from_secs(30)).unwrap().expect("an answer")
    }

    fn send(&mut self, batch: FibBatch) -> u64 {
        self.seq += 10;
        self.batches.send(Arc::new(FibBatch { seq: self.seq, ..batch })).unwrap();
        self.seq
    }

    /// Waits until batch `seq` is acknowledged; what failed on the way.
    fn acked(&self, seq: u64) -> Vec<(String, String)> {
        let mut failures = Vec::new();
        loop {
            let RibIn::Ack(FibAck { dataplane: 3, seq: acked, failed, .. }) = self.answer() else { panic!() };
            failures.extend(failed.into_iter().map(|(prefix, why)| (prefix.to_string(), why)));
            if acked >= seq {
                assert_eq!(acked, seq);
                failures.sort();
                return failures;
            }
        }
    }

    fn carried_out(&mut self, batch: FibBatch) {
        let seq = self.send(batch);
        assert_eq!(self.acked(seq), []);
    }

    fn lookup(&self, addr: &str) -> Option<Forward> {
        self.path.lookup(VrfId::DEFAULT, &[ip(addr)]).unwrap().remove(0)
    }

    /// The gateways that packets to `addr` really leave through.
    fn gateways(&self, addr: &str) -> Vec<String> {
        let hops = self.lookup(addr).map(|forward| forward.hops).unwrap_or_default();
        let out = hops.iter().filter(|hop| hop.mac.is_some());
        let mut out: Vec<String> = out.map(|hop| format!("{} {}", hop.gateway.unwrap(), hop.port)).collect();
        out.sort();
        out
    }
}

impl Drop for Rib {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

#[test]
fn an_acknowledged_batch_is_in_the_chip() {
    let mut rib = Rib::new(true);
    rib.carried_out(FibBatch {
        start_of_replay: true,
        end_of_replay: true,
        groups: vec![
            hops(1, [("10.0.0.1", 1)]),
            hops(2, [("10.0.0.1", 1), ("10.0.4.1", 2)]),
            GroupOp { id: GroupId(3), content: FibGroup::Blackhole, source: None },
            hops(4, [("", 1)]),
        ],
        routes: routes(&[
            ("10.1.0.0/16", Some(1)),
            ("2001:db8::/32", Some(2)),
            ("10.3.0.0/16", Some(3)),
            ("10.0.0.0/24", Some(4)),
        ]),
        ..FibBatch::default()
    });
    assert_eq!(rib.gateways("10.1.2.3"), ["10.0.0.1 Ethernet0"]);
    assert_eq!(rib.gateways("2001:db8::1"), ["10.0.0.1 Ethernet0", "10.0.4.1 Ethernet4"]);
    assert_eq!(rib.lookup("10.3.2.3").unwrap().action, PacketAction::Drop);
    let connected = rib.lookup("10.0.0.77").unwrap();
    assert_eq!((connected.prefix.to_string(), &*connected.hops[0].port), ("10.0.0.0/24".into(), "Ethernet0"));
    // The switch's own address goes to the CPU.
    assert_eq!(&*rib.lookup("10.0.0.254").unwrap().hops[0].port, "CPU");

    // The group turns: all of its routes follow, none of them is named.
    let before = rib.path.counts().unwrap();
    rib.carried_out(FibBatch { groups: vec![hops(1, [("10.0.4.9", 2)])], ..FibBatch::default() });
    eventually("the group to turn", || (rib.gateways("10.1.2.3") == ["10.0.4.9 Ethernet4"]).then_some(()));

    // So it does ahead of batches that wait.
    let urgent = UrgentOp { after: rib.seq, made: 10, op: hops(1, [("10.0.0.1", 1)]) };
    rib.urgent.send(vec![urgent]).unwrap();
    eventually("the group to turn back", || {
        (rib.gateways("10.1.2.3") == ["10.0.0.1 Ethernet0"]).then_some(())
    });

    // A route moves, one goes, and one group with it.
    rib.carried_out(FibBatch {
        routes: routes(&[("10.1.0.0/16", Some(2)), ("2001:db8::/32", None), ("10.3.0.0/16", None)]),
        after: vec![GroupId(1), GroupId(3)],
        ..FibBatch::default()
    });
    assert_eq!(rib.gateways("10.1.2.3"), ["10.0.0.1 Ethernet0", "10.0.4.1 Ethernet4"]);
    assert_eq!(rib.lookup("10.3.2.3").unwrap().prefix.to_string(), "0.0.0.0/0");
    eventually("the group to go", || (rib.path.counts().unwrap().groups < before.groups).then_some(()));

    let selected = Some((GroupId(2), Protocol::BgpExternal));
    let explained = rib.path.explain("10.1.0.0/16".parse::<AnyPrefix>().unwrap().into(), selected).unwrap();
    assert_eq!(explained.orchagent.unwrap().waiting, None);
    assert_eq!(explained.chip.unwrap().hops.len(), 2);
    assert!(explained.fpmsyncd.unwrap().is_ok());
    assert!(rib.rings.read().iter().any(|ring| ring.name == "ROUTE_TABLE"));
}

#[test]
fn what_the_chip_cannot_do_is_said_with_the_reason() {
    let mut rib = Rib::new(false);
    let seq = rib.send(FibBatch {
        groups: vec![hops(1, [("10.0.0.1", 1)]), hops(2, [("10.0.4.1", 2)])],
        routes: routes(&[("10.1.0.0/16", Some(1)), ("10.2.0.0/16", Some(2))]),
        ..FibBatch::default()
    });
    let failed = rib.acked(seq);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, "10.2.0.0/16");
    assert!(failed[0].1.contains("10.0.4.1 on Ethernet4"), "{}", failed[0].1);
    assert_eq!(rib.gateways("10.1.2.3"), ["10.0.0.1 Ethernet0"]);
    // Later batches are not held up by it; one that takes the route back is fine.
    rib.carried_out(FibBatch { routes: routes(&[("10.2.0.0/16", None)]), ..FibBatch::default() });
}

#[test]
fn a_group_that_begins_to_drop_asks_for_its_routes() {
    let mut rib = Rib::new(true);
    rib.carried_out(FibBatch {
        groups: vec![hops(1, [("10.0.0.1", 1)])],
        routes: routes(&[("10.1.0.0/16", Some(1))]),
        ..FibBatch::default()
    });
    rib.send(FibBatch {
        groups: vec![GroupOp { id: GroupId(1), content: FibGroup::Blackhole, source: None }],
        ..FibBatch::default()
    });
    let answers = [rib.answer(), rib.answer()];
    assert!(answers.iter().any(|answer| matches!(answer, RibIn::DataplaneUp(3))), "{answers:?}");
    // Until they are told, the group that they name stays; then it goes.
    let before = rib.path.counts().unwrap();
    let again = rib.send(FibBatch {
        start_of_replay: true,
        groups: vec![GroupOp { id: GroupId(1), content: FibGroup::Blackhole, source: None }],
        routes: routes(&[("10.1.0.0/16", Some(1)), ("10.2.0.0/16", Some(9))]),
        ..FibBatch::default()
    });
    let never = ("10.2.0.0/16".to_owned(), "its next-hop group was never announced".to_owned());
    assert_eq!(rib.acked(again), [never]);
    assert_eq!(rib.lookup("10.1.2.3").unwrap().action, PacketAction::Drop);
    let group = |rib: &Rib| rib.path.counts().unwrap().groups;
    rib.carried_out(FibBatch { end_of_replay: true, ..FibBatch::default() });
    eventually("the group to go", || (group(&rib) < before.groups).then_some(()));
}

#[test]
fn a_table_of_many_batches_arrives_whole() {
    let mut rib = Rib::new(true);
    rib.carried_out(FibBatch {
        groups: (0..50).map(|n| hops(n + 1, [(format!("10.0.0.{}", n + 1).as_str(), 1)])).collect(),
        ..FibBatch::default()
    });
    let prefix = |n: u32| format!("20.{}.{}.0/24", n / 256, n % 256);
    let table = |round: u32| -> Vec<FibBatch> {
        (0..20)
            .map(|page| {
                let names: Vec<String> = (page * 2000..(page + 1) * 2000).map(prefix).collect();
                let list: Vec<(&str, Option<u32>)> = names
                    .iter()
                    .zip(page * 2000..)
                    .map(|(name, n)| (name.as_str(), Some((n + round) % 50 + 1)))
                    .collect();
                FibBatch { routes: routes(&list), ..FibBatch::default() }
            })
            .collect()
    };
    // Three tables in a row, the later ones over the earlier: the last word counts.
    let mut last = 0;
    for round in 0..3 {
        for batch in table(round) {
            last = rib.send(batch);
        }
    }
    assert_eq!(rib.acked(last), []);
    let addresses: Vec<IpAddr> = (0..40_000).map(|n| ip(&format!("20.{}.{}.1", n / 256, n % 256))).collect();
    let found = rib.path.lookup(VrfId::DEFAULT, &addresses).unwrap();
    for (n, forward) in (0..40_000u32).zip(found) {
        let gateway = ip(&format!("10.0.0.{}", (n + 2) % 50 + 1));
        assert!(forward.is_some_and(|f| f.reaches(gateway)), "route {n}");
    }
    // 40,000 routes, one for each of two own addresses, and the default route.
    assert_eq!(rib.path.counts().unwrap().ipv4_routes, 40_003);
}

/// Settings for the chip.
fn behave(rib: &Rib, settings: &[(&str, &str)]) {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    rib.path.behave(settings).unwrap().unwrap();
}

#[test]
fn a_stalled_chip_is_explained_however_much_waits_for_it() {
    let mut rib = Rib::with_group();
    behave(&rib, &[("stall", "on")]);
    let route = |n: u32, m: u32| {
        let prefix = Prefix::<V4>::new(0x1400_0000 + (n << 16) + (m << 8), 24);
        FibRoute { prefix, group: Some(GroupId(1)), protocol: Protocol::BgpExternal }
    };
    // Until every queue on the way is full, which fpmsyncd finds with a batch in its hands.
    let mut sent = 0;
    eventually("the path to be full", || {
        while !rib.batches.is_full() {
            let v4 = (0..250).map(|m| route(sent, m)).collect();
            let routes = Families::<FibRoutes> { v4, ..Families::default() };
            rib.send(FibBatch { routes, ..FibBatch::default() });
            sent += 1;
        }
        rib.rings.read().iter().any(|ring| ring.name == "ROUTE_TABLE" && ring.full > 0).then_some(())
    });
    let selected = Some((GroupId(1), Protocol::BgpExternal));
    let at_chip = rib.path.explain(route(0, 0).prefix.any().into(), selected).unwrap();
    assert!(at_chip.orchagent.unwrap().waiting.unwrap().to_string().contains("chip"));
    assert_eq!((at_chip.chip, at_chip.stalled), (None, Some(None)));
    let before = rib.path.explain(route(sent - 1, 0).prefix.any().into(), selected).unwrap();
    assert!(before.fpmsyncd.unwrap().is_ok());
    assert_eq!((before.orchagent, before.chip, before.stalled), (None, None, Some(None)));
    behave(&rib, &[("stall", "off")]);
    assert_eq!(rib.acked(rib.seq), []);
    let after = rib.path.explain(route(sent - 1, 0).prefix.any().into(), selected).unwrap();
    assert!(after.chip.is_some() && after.stalled.is_none());
}

#[test]
fn a_chip_that_stalls_or_is_full_loses_nothing() {
    let mut rib = Rib::with_group();
    // While it stalls nothing is confirmed, and questions are answered.
    behave(&rib, &[("stall", "on")]);
    let seq = rib.send(FibBatch { routes: routes(&[("10.1.0.0/16", Some(1))]), ..FibBatch::default() });
    let prefix: AnyPrefix = "10.1.0.0/16".parse().unwrap();
    eventually("the route to wait for the chip", || {
        let explained = rib.path.explain(prefix.into(), None).unwrap();
        (explained.orchagent?.waiting?.to_string().contains("chip")).then_some(())
    });
    assert!(rib.path.chip().unwrap().stalled);
    assert_eq!(rib.lookup("10.1.2.3").unwrap().prefix.to_string(), "0.0.0.0/0");
    behave(&rib, &[("stall", "off")]);
    assert_eq!(rib.acked(seq), []);
    // A chip that takes 10 ms for each entry.
    behave(&rib, &[("entry-us", "10000")]);
    let begin = Instant::now();
    rib.carried_out(FibBatch {
        routes: routes(&[("10.2.0.0/16", Some(1)), ("10.3.0.0/16", Some(1)), ("10.4.0.0/16", Some(1))]),
        ..FibBatch::default()
    });
    assert!(begin.elapsed() >= Duration::from_millis(30));
    assert!(rib.path.chip().unwrap().busy_seconds >= 0.03);
    // No room: it waits for room, and comes in when there is some.
    let full = rib.path.counts().unwrap().ipv4_routes.to_string();
    behave(&rib, &[("entry-us", "0"), ("ipv4-routes", &full)]);
    let seq = rib.send(FibBatch { routes: routes(&[("10.5.0.0/16", Some(1))]), ..FibBatch::default() });
    let failed = rib.acked(seq);
    assert_eq!(failed.len(), 1, "{failed:?}");
    rib.carried_out(FibBatch { routes: routes(&[("10.2.0.0/16", None)]), ..FibBatch::default() });
    eventually("the route to find room", || {
        (rib.gateways("10.5.2.3") == ["10.0.0.1 Ethernet0"]).then_some(())
    });
    let refused = rib.path.behave(vec![("speed".into(), "1".into())]).unwrap().unwrap_err();
    assert!(refused.contains("no setting \"speed\""), "{refused}");
}

/// Not a test: the share of the time in which a chip of so many routes a second is at work while a table comes.
#[test]
#[ignore = "a measurement of a minute; cargo test --release --test sonic -- --ignored --nocapture the_share"]
fn the_share_of_the_time_in_which_the_chip_is_at_work() {
    for rate in [20_000, 100_000] {
        let mut rib = Rib::new(true);
        rib.carried_out(FibBatch { groups: vec![hops(1, [("10.0.0.1", 1)])], ..FibBatch::default() });
        behave(&rib, &[("rate", &rate.to_string())]);
        let (before, begin) = (rib.path.chip().unwrap().busy_seconds, Instant::now());
        let mut last = 0;
        for page in 0..150 {
            let prefix = |n: u32| Prefix::<V4>::new(32 << 24 | n << 8, 24);
            let routes = (page * 2000..(page + 1) * 2000).map(|n| FibRoute {
                prefix: prefix(n),
                group: Some(GroupId(1)),
                protocol: Protocol::BgpExternal,
            });
            let mut batch = FibBatch::default();
            batch.routes.v4 = routes.collect();
            last = rib.send(batch);
        }
        assert_eq!(rib.acked(last), []);
        let wall = begin.elapsed().as_secs_f64();
        let busy = rib.path.chip().unwrap().busy_seconds - before;
        println!(
            "a chip of {rate} routes/s, 300,000 routes: {wall:.3} s, at work {:.2}%",
            100.0 * busy / wall
        );
    }
}
