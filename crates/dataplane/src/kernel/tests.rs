//! The real kernel, in a network namespace made for each test. Without root they print that they skip.

use super::super::{DataplaneSink, FEEDBACK, ToRib};
use super::routes::InterfaceChange;
use super::writer::COMPARE_PAGE;
use super::*;
use ribtide_prefix::{AnyPrefix, Family, Prefix, Rng, V4, V6};
use ribtide_rib::{
    FibAck, FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol, RibIn, Source, UrgentOp,
    VrfPrefix,
};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_wire::netlink::numbers::{RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// In compatibility mode, so that `ip` shows next hops with their routes.
fn config() -> KernelConfig {
    KernelConfig { table: 1000, compat_mode: true, ..KernelConfig::default() }
}

mod adoption;
mod compare;
mod flush;
mod installed;
mod others;
mod vrfs;

const INSIDE: &str = "RIBTIDE_TEST_NETNS";

/// Runs `body` in a namespace of its own, by running this very test again inside: entering a namespace is a
/// matter of the whole process. `test` is the test's name.
fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        for (a, b, net) in [("v0", "p0", 0), ("v1", "p1", 1)] {
            ip(&format!("link add {a} type veth peer name {b}"));
            ip(&format!("addr add 10.0.{net}.1/24 dev {a}"));
            ip(&format!("addr add 2001:db8:{net}::1/64 dev {a} nodad"));
            ip(&format!("link set {b} up"));
            ip(&format!("link set {a} up"));
        }
        ip("link set lo up");
        return body();
    }
    struct Namespace(String);
    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
    let namespace = Namespace(format!("ribtide-{}-{test}", std::process::id()).replace("::", "-"));
    match Command::new("ip").args(["netns", "add", &namespace.0]).output() {
        Ok(out) if out.status.success() => {}
        _ => {
            println!("skipped: network namespaces need root and the command ip");
            return;
        }
    }
    let path = format!("kernel::tests::{test}");
    let out = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &path, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "the test did not run inside: {text}");
}

fn try_ip(arguments: &str) -> Result<String, String> {
    let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if out.status.success() { Ok(text(out.stdout)) } else { Err(text(out.stderr)) }
}

fn ip(arguments: &str) -> String {
    try_ip(arguments).unwrap_or_else(|e| panic!("ip {arguments}: {e}"))
}

fn json(arguments: &str) -> Vec<Value> {
    let text = try_ip(&format!("-j {arguments}")).unwrap_or_default();
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// The table as the kernel shows it: prefix → next hops, as text in a fixed order.
fn table() -> BTreeMap<String, Vec<String>> {
    table_of(1000)
}

fn table_of(number: u32) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for family in ["-4", "-6"] {
        for route in json(&format!("{family} route show table {number}")) {
            let mut hops: Vec<String> = Vec::new();
            let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
            let hop = |v: &Value| {
                let via = if v["via"].is_object() { &v["via"]["host"] } else { &v["gateway"] };
                format!("{} {} {}", text(via), text(&v["dev"]), v["weight"].as_u64().unwrap_or(1))
            };
            if route["type"] == "blackhole" {
                hops.push("blackhole".into());
            } else if let Some(list) = route["nexthops"].as_array() {
                hops.extend(list.iter().map(hop));
            } else {
                hops.push(hop(&route));
            }
            hops.sort();
            let mut dst = text(&route["dst"]);
            if dst == "default" {
                dst = format!("default {family}");
            }
            if all.contains_key(&dst) {
                dst.push_str(" twice");
            }
            all.insert(dst, hops);
        }
    }
    all
}

fn expect(routes: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    routes.iter().map(|(p, hops)| (p.to_string(), hops.iter().map(|h| h.to_string()).collect())).collect()
}

fn ifindex(name: &str) -> u32 {
    json(&format!("link show {name}"))[0]["ifindex"].as_u64().unwrap() as u32
}

fn hop(gateway: &str, dev: &str, weight: u16) -> FibHop {
    let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
    FibHop { gateway, interface: ifindex(dev), weight, onlink: false }
}

/// A batch being put together.
#[derive(Default)]
struct Batch(FibBatch);

impl Batch {
    fn start() -> Batch {
        Batch(FibBatch { start_of_replay: true, ..FibBatch::default() })
    }
    fn group(mut self, id: u32, hops: &[FibHop]) -> Self {
        let content = if hops.is_empty() { FibGroup::Blackhole } else { FibGroup::Hops(hops.to_vec()) };
        self.0.groups.push(GroupOp { id: GroupId(id), content, source: None });
        self
    }
    /// Gives the last group a source address.
    fn source(mut self, source: &str) -> Self {
        self.0.groups.last_mut().unwrap().source = Some(source.parse().unwrap());
        self
    }
    fn route(self, prefix: &str, group: Option<u32>) -> Self {
        self.route_of(prefix, group, Protocol::BgpExternal)
    }
    fn route_of(mut self, prefix: &str, group: Option<u32>, protocol: Protocol) -> Self {
        let group = group.map(GroupId);
        match prefix.parse().unwrap() {
            AnyPrefix::V4(prefix) => self.0.routes.v4.push(FibRoute { prefix, group, protocol }),
            AnyPrefix::V6(prefix) => self.0.routes.v6.push(FibRoute { prefix, group, protocol }),
        }
        self
    }
    fn after(mut self, group: u32) -> Self {
        self.0.after.push(GroupId(group));
        self
    }
    fn end(mut self) -> Self {
        self.0.end_of_replay = true;
        self
    }
    #[track_caller]
    fn apply(self, kernel: &mut Kernel) {
        kernel.apply(&Arc::new(self.0)).unwrap();
        assert_eq!(failed(kernel), []);
    }
}

/// What the kernel refused since this was asked last.
fn failed(kernel: &mut Kernel) -> Vec<(AnyPrefix, String)> {
    let failed = kernel.results.ack(0, 0).failed.into_iter().map(|(route, why)| (route.prefix, why));
    let mut failed: Vec<_> = failed.collect();
    failed.sort();
    failed
}

fn open() -> Kernel {
    Kernel::open(&System::default(), config(), &[]).unwrap()
}

#[test]
fn every_kind_of_route_is_as_asked() {
    in_namespace("every_kind_of_route_is_as_asked", || {
        let mut kernel = open();
        let far = FibHop { onlink: true, ..hop("192.0.2.9", "v0", 1) };
        Batch::start()
            .group(1, &[hop("10.0.0.2", "v0", 1)])
            .group(2, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 3)])
            .group(3, &[])
            .group(4, &[hop("2001:db8::2", "v0", 1)])
            .group(5, &[hop("", "v1", 1)])
            .group(6, &[far])
            .route("192.0.2.0/24", Some(1))
            .route("198.51.100.0/24", Some(2))
            .route("203.0.113.0/24", Some(3))
            .route("100.64.0.0/10", Some(4))
            .route("100.65.0.1/32", Some(5))
            .route("100.66.0.0/16", Some(6))
            .route("0.0.0.0/0", Some(2))
            .route("2001:db8:aaaa::/48", Some(4))
            .route("2001:db8:bbbb::/48", Some(3))
            .route("2001:db8:cccc::/48", Some(5))
            .route("::/0", Some(4))
            .route_of("10.0.0.0/24", Some(5), Protocol::Connected)
            .end()
            .apply(&mut kernel);
        let both: &[&str] = &["10.0.0.2 v0 1", "10.0.1.2 v1 3"];
        assert_eq!(
            table(),
            expect(&[
                ("192.0.2.0/24", &["10.0.0.2 v0 1"]),
                ("198.51.100.0/24", both),
                ("203.0.113.0/24", &["blackhole"]),
                ("100.64.0.0/10", &["2001:db8::2 v0 1"]),
                ("100.65.0.1", &[" v1 1"]),
                ("100.66.0.0/16", &["192.0.2.9 v0 1"]),
                ("default -4", both),
                ("2001:db8:aaaa::/48", &["2001:db8::2 v0 1"]),
                ("2001:db8:bbbb::/48", &["blackhole"]),
                ("2001:db8:cccc::/48", &[" v1 1"]),
                ("default -6", &["2001:db8::2 v0 1"]),
            ])
        );
        let route = &json("-d route show table 1000 exact 192.0.2.0/24")[0];
        assert_eq!((&route["protocol"], &route["metric"]), (&"bgp".into(), &20.into()));

        // A group changes and its routes follow, untouched; a route changes its group; routes go.
        Batch::default()
            .group(2, &[hop("10.0.1.3", "v1", 1)])
            .route("192.0.2.0/24", Some(2))
            .route("2001:db8:aaaa::/48", Some(3))
            .route("100.66.0.0/16", None)
            .route("100.65.0.1/32", None)
            .route("0.0.0.0/0", None)
            .route("::/0", None)
            // Another protocol's route takes its place: ours must go.
            .route_of("100.64.0.0/10", Some(4), Protocol::Kernel)
            .route("2001:db8:cccc::/48", None)
            .after(1)
            .after(4)
            .after(5)
            .after(6)
            .apply(&mut kernel);
        assert_eq!(
            table(),
            expect(&[
                ("192.0.2.0/24", &["10.0.1.3 v1 1"]),
                ("198.51.100.0/24", &["10.0.1.3 v1 1"]),
                ("203.0.113.0/24", &["blackhole"]),
                ("2001:db8:aaaa::/48", &["blackhole"]),
                ("2001:db8:bbbb::/48", &["blackhole"]),
            ])
        );
        // Two groups, two ways out, and nothing else is left.
        assert_eq!(json("nexthop show").len(), 4);
    });
}

#[test]
fn a_restart_adopts_what_is_right_and_removes_what_is_stale() {
    in_namespace("a_restart_adopts_what_is_right_and_removes_what_is_stale", || {
        let two = |n| [hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", n)];
        Batch::start()
            .group(1, &two(2))
            .group(2, &[hop("2001:db8::2", "v0", 1)])
            .route("192.0.2.0/24", Some(1))
            .route("198.51.100.0/24", Some(1))
            .route("2001:db8:aaaa::/48", Some(2))
            .route("2001:db8:bbbb::/48", Some(2))
            .end()
            .apply(&mut open());
        let before = json("-N route show table 1000");
        // Others' routes, in the same table; ours that a crash left behind in strange forms.
        ip("route add 203.0.113.0/24 via 10.0.0.2 proto static table 1000 metric 20");
        ip("nexthop add id 5 via 10.0.0.9 dev v0");
        ip("nexthop add id 6 via 10.0.0.8 dev v0 proto bgp");
        ip("route add 192.0.2.128/25 via 10.0.0.2 proto bgp table 1000 metric 20");
        ip("route add 192.0.2.0/24 via 10.0.0.7 proto bgp table 1000 metric 77");
        let mut kernel = open();
        // Other numbers for the same groups, as after a restart of the RIB.
        Batch::start()
            .group(7, &[hop("2001:db8::2", "v0", 1)])
            .group(9, &two(2))
            .route("192.0.2.0/24", Some(9))
            .route("2001:db8:aaaa::/48", Some(7))
            .apply(&mut kernel);
        let same = |all: &[Value]| {
            all.iter().find(|r| r["dst"] == "192.0.2.0/24" && r["metric"] == 20).map(|r| r["nhid"].clone())
        };
        let during = json("-N route show table 1000");
        assert_eq!(same(&before), same(&during), "the kernel's group was not adopted");
        assert!(table_has("198.51.100.0/24"), "removed before the replay's end");
        Batch::default().end().apply(&mut kernel);
        assert_eq!(
            table(),
            expect(&[
                ("192.0.2.0/24", &["10.0.0.2 v0 1", "10.0.1.2 v1 2"]),
                ("203.0.113.0/24", &["10.0.0.2 v0 1"]),
                ("2001:db8:aaaa::/48", &["2001:db8::2 v0 1"]),
            ])
        );
        // Two groups, three ways, and the other's object.
        assert_eq!(json("nexthop show").len(), 6);
    });
}

#[test]
fn a_group_has_a_source_address_of_its_own() {
    in_namespace("a_group_has_a_source_address_of_its_own", || {
        for address in ["10.7.7.7/32", "10.7.7.8/32"] {
            ip(&format!("addr add {address} dev lo"));
        }
        ip("addr add 2001:db8:7::8/128 dev lo nodad");
        let source4 = Some("10.7.7.7".parse().unwrap());
        // In other tables than main, the kernel keeps routes whose source address is gone.
        let config = KernelConfig { table: 254, protocol: 114, source4, ..config() };
        let sources = || -> BTreeMap<String, String> {
            let shown =
                ["-4", "-6"].map(|family| json(&format!("-N {family} route show table 254 proto 114")));
            let text = |v: &Value| v.as_str().unwrap_or("none").to_owned();
            shown.iter().flatten().map(|r| (text(&r["dst"]), text(&r["prefsrc"]))).collect()
        };
        let want = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(prefix, source)| (prefix.to_string(), source.to_string())).collect()
        };
        let (four, six) = ([hop("10.0.0.2", "v0", 1)], [hop("2001:db8::2", "v0", 1)]);
        let mut kernel = Kernel::open(&System::default(), config.clone(), &[]).unwrap();
        Batch::start()
            .group(1, &four)
            .group(2, &four)
            .source("10.7.7.8")
            .group(3, &six)
            .source("2001:db8:7::8")
            .group(4, &six)
            .route("192.0.2.0/24", Some(1))
            .route("198.51.100.0/24", Some(2))
            .route("2001:db8:aaaa::/48", Some(3))
            .route("2001:db8:bbbb::/48", Some(4))
            .end()
            .apply(&mut kernel);
        let first = want(&[
            ("192.0.2.0/24", "10.7.7.7"),
            ("198.51.100.0/24", "10.7.7.8"),
            ("2001:db8:aaaa::/48", "2001:db8:7::8"),
            ("2001:db8:bbbb::/48", "none"),
        ]);
        assert_eq!(sources(), first);

        // The kernel drops what names an address that goes; when it is back, so are they.
        ip("addr del 10.7.7.8/32 dev lo");
        assert_eq!(sources().len(), 3);
        ip("addr add 10.7.7.8/32 dev lo");
        kernel.addresses_changed(&["10.9.9.9".parse().unwrap()]).unwrap();
        assert_eq!(sources().len(), 3, "the address of no source");
        kernel.addresses_changed(&["10.7.7.8".parse().unwrap()]).unwrap();
        assert_eq!(sources(), first);

        // After a restart the policy is another: what has the right source stays, the others are written again.
        let mut kernel = Kernel::open(&System::default(), config, &[]).unwrap();
        Batch::start()
            .group(5, &four)
            .source("10.7.7.8")
            .group(6, &six)
            .source("2001:db8:7::8")
            .route("192.0.2.0/24", Some(5))
            .route("198.51.100.0/24", Some(5))
            .route("2001:db8:aaaa::/48", Some(6))
            .route("2001:db8:bbbb::/48", Some(6))
            .end()
            .apply(&mut kernel);
        let second = want(&[
            ("192.0.2.0/24", "10.7.7.8"),
            ("198.51.100.0/24", "10.7.7.8"),
            ("2001:db8:aaaa::/48", "2001:db8:7::8"),
            ("2001:db8:bbbb::/48", "2001:db8:7::8"),
        ]);
        assert_eq!(sources(), second);
    });
}

fn table_has(prefix: &str) -> bool {
    !json(&format!("route show table 1000 exact {prefix}")).is_empty()
}

#[test]
fn what_the_kernel_refuses_is_named_and_the_rest_is_installed() {
    in_namespace("what_the_kernel_refuses_is_named_and_the_rest_is_installed", || {
        let mut kernel = open();
        // 600 routes: more than one chunk, refused ones in each.
        let mut batch =
            Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]).group(2, &[hop("99.9.9.9", "v0", 1)]);
        for i in 0..600u32 {
            batch = batch
                .route(&format!("192.{}.{}.0/24", i / 256, i % 256), Some(if i % 100 == 0 { 2 } else { 1 }));
        }
        // An IPv4 gateway is of no use to an IPv6 route.
        batch = batch.route("2001:db8:aaaa::/48", Some(1)).end();
        kernel.apply(&Arc::new(batch.0.clone())).unwrap();
        let mut refused: Vec<(AnyPrefix, String)> = (0..6u32)
            .map(|i| (format!("192.{}.{}.0/24", i * 100 / 256, i * 100 % 256), "Nexthop has invalid gateway"))
            .chain([("2001:db8:aaaa::/48".into(), "IPv6 routes can not use an IPv4 nexthop")])
            .map(|(p, why)| (p.parse().unwrap(), format!("the kernel refused it: {why}")))
            .collect();
        refused.sort();
        assert_eq!(failed(&mut kernel), refused);
        assert_eq!(table().len(), 594);
        // The way becomes usable: the routes come without being asked for again.
        ip("addr add 99.9.9.1/24 dev v0");
        kernel
            .interface_changed(&InterfaceChange { ifindex: ifindex("v0"), up: true, came_up: false })
            .unwrap();
        assert_eq!(table().len(), 600);
        let mut said = kernel.results.news(0).unwrap();
        said.installed.sort();
        let came = refused.iter().map(|(p, _)| *p).filter(|p| p.addr().is_ipv4());
        let came: Vec<VrfPrefix> = came.map(VrfPrefix::from).collect();
        assert_eq!((said.installed, said.failed), (came, vec![]));
        // A route that moves to a group that cannot be does not stay where it was.
        ip("addr del 99.9.9.1/24 dev v0");
        let batch = Batch::default().group(3, &[hop("99.8.8.8", "v0", 1)]).route("192.0.1.0/24", Some(3));
        kernel.apply(&Arc::new(batch.0.clone())).unwrap();
        assert_eq!(failed(&mut kernel).len(), 1);
        assert!(!table_has("192.0.1.0/24"));
        // It does not matter either when it is no longer wanted.
        kernel.apply(&Arc::new(Batch::default().route("192.0.1.0/24", None).0)).unwrap();
        let said = kernel.results.news(0).unwrap();
        assert_eq!(
            (said.installed, said.failed),
            (vec!["192.0.1.0/24".parse::<AnyPrefix>().unwrap().into()], vec![])
        );
    });
}

#[test]
fn routes_that_the_kernel_drops_with_a_link_come_back() {
    in_namespace("routes_that_the_kernel_drops_with_a_link_come_back", || {
        let mut kernel = open();
        let batch = || {
            Batch::start()
                .group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1)])
                .group(2, &[hop("10.0.1.2", "v1", 1)])
                .group(3, &[hop("2001:db8:1::2", "v1", 1)])
                .route("192.0.2.0/24", Some(1))
                .route("198.51.100.0/24", Some(2))
                .route("2001:db8:aaaa::/48", Some(3))
                .end()
        };
        batch().apply(&mut kernel);
        let whole = table();
        let flap = || {
            ip("link set v1 down");
            ip("link set v1 up");
            ip("addr add 2001:db8:1::1/64 dev v1 nodad");
        };
        flap();
        assert_eq!(table().len(), 1, "the kernel was expected to drop the routes");
        kernel
            .interface_changed(&InterfaceChange { ifindex: ifindex("v1"), up: true, came_up: true })
            .unwrap();
        assert_eq!(failed(&mut kernel), []);
        assert_eq!(table(), whole);

        // The link is back without its address: the route whose group went with it has failed.
        ip("link set v1 down");
        ip("link set v1 up");
        let came_up = InterfaceChange { ifindex: ifindex("v1"), up: true, came_up: true };
        kernel.interface_changed(&came_up).unwrap();
        let routes: Vec<String> = failed(&mut kernel).iter().map(|(prefix, _)| prefix.to_string()).collect();
        assert_eq!(routes, ["2001:db8:aaaa::/48"]);
        kernel.interface_changed(&came_up).unwrap();
        assert_eq!(failed(&mut kernel), [], "it is reported once");
        ip("addr add 2001:db8:1::1/64 dev v1 nodad");
        kernel.interface_changed(&InterfaceChange { came_up: false, ..came_up }).unwrap();
        assert_eq!(failed(&mut kernel), []);
        assert_eq!(table(), whole);

        // The RIB changes the lost groups before the news of the link are here.
        flap();
        Batch::default()
            .group(2, &[hop("10.0.0.2", "v0", 1)])
            .group(1, &[hop("10.0.1.2", "v1", 1), hop("10.0.0.3", "v0", 1)])
            .apply(&mut kernel);
        assert_eq!(table()["198.51.100.0/24"], ["10.0.0.2 v0 1"]);
        assert_eq!(table()["192.0.2.0/24"], ["10.0.0.3 v0 1", "10.0.1.2 v1 1"]);
        assert_eq!(table().len(), 3);

        // A batch writes a route by a group that is gone.
        flap();
        Batch::default().route("2001:db8:bbbb::/48", Some(3)).apply(&mut kernel);
        assert_eq!(table().len(), 4);

        // Another program removes routes and objects; a repair mends all of it.
        ip("route del 192.0.2.0/24 table 1000");
        ip("route add 192.0.2.0/24 via 10.0.0.9 proto bgp table 1000 metric 20");
        ip("nexthop flush");
        kernel.repair().unwrap();
        assert_eq!(failed(&mut kernel), []);
        assert_eq!(table().len(), 4);
        assert_eq!(table()["192.0.2.0/24"], ["10.0.0.3 v0 1", "10.0.1.2 v1 1"]);
    });
}

#[test]
fn lost_answers_are_made_up_for() {
    in_namespace("lost_answers_are_made_up_for", || {
        let mut kernel = open();
        let prefix = |i: u32| format!("192.{}.{}.0/24", i / 256, i % 256);
        let batch = Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]);
        (0..250).fold(batch, |b, i| b.route(&prefix(i), Some(1))).end().apply(&mut kernel);
        // Each deletion of what is gone is answered with an error; so many do not fit.
        ip("link set v0 down");
        ip("link set v0 up");
        kernel.make_overrun_likely();
        let batch = (0..200).fold(Batch::default(), |b, i| b.route(&prefix(i), None));
        batch.route("203.0.113.0/24", Some(1)).apply(&mut kernel);
        assert_eq!(table().len(), 51);
        assert!(table_has("203.0.113.0/24"));
        // The socket works as before.
        Batch::default().route("203.0.113.0/24", None).apply(&mut kernel);
        assert_eq!(table().len(), 50);
    });
}

/// Random batches, link flaps and restarts; after each the kernel's table is the model's.
#[test]
fn whatever_happens_the_kernel_has_what_was_asked() {
    in_namespace("whatever_happens_the_kernel_has_what_was_asked", || {
        let mut rng = Rng::new(0x2545_f491_4f6c_dd1d);
        let mut below = move |n: u64| rng.below(n) as u32;
        let indexes = [ifindex("v0"), ifindex("v1")];
        let mut kernel = open();
        let mut groups: BTreeMap<u32, Vec<FibHop>> = BTreeMap::new();
        let mut routes: BTreeMap<AnyPrefix, u32> = BTreeMap::new();
        Batch::start().end().apply(&mut kernel);
        for round in 0..200 {
            let mut batch = Batch::default();
            for _ in 0..below(4) {
                let id = 1 + below(12);
                // IPv6 gateways, so that routes of both families can use any group.
                let mut hops: Vec<FibHop> = (0..1 + below(4))
                    .map(|_| {
                        let dev = below(2);
                        let gateway = Some(format!("2001:db8:{dev}::{:x}", 2 + below(4)).parse().unwrap());
                        let weight = 1 + below(3) as u16;
                        FibHop { gateway, interface: indexes[dev as usize], weight, onlink: false }
                    })
                    .collect();
                hops.sort();
                hops.dedup_by_key(|h| (h.gateway, h.interface));
                if batch.0.groups.iter().all(|op| op.id.0 != id) {
                    batch = batch.group(id, &hops);
                    groups.insert(id, hops);
                }
            }
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..below(40) {
                let n = below(64);
                let prefix =
                    if n < 32 { format!("100.64.{n}.0/24") } else { format!("2001:db8:f{n:x}::/48") };
                let prefix: AnyPrefix = prefix.parse().unwrap();
                if !seen.insert(prefix) {
                    continue;
                }
                let any = groups.keys().nth(below(groups.len().max(1) as u64) as usize).copied();
                let group = any.filter(|_| below(4) > 0);
                match group {
                    Some(group) => routes.insert(prefix, group),
                    None => routes.remove(&prefix),
                };
                batch = batch.route(&prefix.to_string(), group);
            }
            let unused: Vec<u32> =
                groups.keys().filter(|g| !routes.values().any(|r| r == *g)).copied().collect();
            for group in unused.into_iter().filter(|_| below(3) == 0) {
                groups.remove(&group);
                batch = batch.after(group);
            }
            let flapped = (below(4) == 0).then(|| below(2));
            if let Some(dev) = flapped {
                ip(&format!("link set v{dev} down"));
                ip(&format!("link set v{dev} up"));
                ip(&format!("addr add 2001:db8:{dev}::1/64 dev v{dev} nodad"));
            }
            kernel.apply(&Arc::new(batch.0.clone())).unwrap();
            assert_eq!(failed(&mut kernel), [], "round {round}");
            if let Some(dev) = flapped {
                let ifindex = indexes[dev as usize];
                kernel.interface_changed(&InterfaceChange { ifindex, up: true, came_up: true }).unwrap();
                assert_eq!(failed(&mut kernel), []);
            }
            if below(10) == 0 {
                kernel = open();
                let mut all = Batch::start();
                for (id, hops) in &groups {
                    all = all.group(100 + id, hops);
                }
                groups = groups.into_iter().map(|(id, hops)| (100 + id, hops)).collect();
                for (prefix, group) in &mut routes {
                    *group += 100;
                    all = all.route(&prefix.to_string(), Some(*group));
                }
                all.end().apply(&mut kernel);
            }
            let model: BTreeMap<String, Vec<String>> = routes
                .iter()
                .map(|(prefix, group)| {
                    let mut hops: Vec<String> = groups[group]
                        .iter()
                        .map(|h| {
                            let dev = if h.interface == indexes[0] { "v0" } else { "v1" };
                            let weight = if groups[group].len() == 1 { 1 } else { h.weight };
                            format!("{} {dev} {weight}", h.gateway.unwrap())
                        })
                        .collect();
                    hops.sort();
                    (prefix.to_string(), hops)
                })
                .collect();
            let there = table();
            let differs = |p: &&String| there.get(*p) != model.get(*p);
            let all: Vec<&String> = there.keys().chain(model.keys()).filter(differs).collect();
            let show: Vec<_> = all.iter().map(|p| (p, there.get(*p), model.get(*p))).collect();
            assert!(show.is_empty(), "round {round}: prefix, kernel's, wanted: {show:?}");
        }
    });
}

/// What the kernel says about next-hop objects and IPv4 routes while `body` runs, in messages of each.
fn told(body: impl FnOnce()) -> (usize, usize) {
    let mut monitor = Socket::monitor(&[RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP], 1 << 20).unwrap();
    let wait = WaitFd::new(&Stop::default()).unwrap();
    body();
    let (mut objects, mut routes, mut heard) = (0, 0, usize::MAX);
    while std::mem::replace(&mut heard, objects + routes) != objects + routes {
        monitor
            .notified(&wait, Duration::from_millis(200), |_, content| match content {
                ribtide_wire::netlink::Content::NewNextHop(_)
                | ribtide_wire::netlink::Content::DelNextHop(_) => objects += 1,
                _ => routes += 1,
            })
            .unwrap();
    }
    (objects, routes)
}

#[test]
fn routes_leave_an_unresolved_group_before_it_goes() {
    in_namespace("routes_leave_an_unresolved_group_before_it_goes", || {
        let mut kernel = open();
        Batch::start()
            .group(1, &[hop("10.0.0.2", "v0", 1)])
            .group(2, &[hop("10.0.1.2", "v1", 1)])
            .route("192.0.2.0/24", Some(1))
            .route("198.51.100.0/24", Some(1))
            .end()
            .apply(&mut kernel);
        let mut monitor = Socket::monitor(&[RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP], 1 << 20).unwrap();
        let mut batch = Batch::default().route("192.0.2.0/24", Some(2));
        batch.0.groups.push(GroupOp { id: GroupId(1), content: FibGroup::Unresolved, source: None });
        batch.apply(&mut kernel);
        assert_eq!(table(), expect(&[("192.0.2.0/24", &["10.0.1.2 v1 1"])]));
        let mut first = None;
        monitor
            .notified(&WaitFd::new(&Stop::default()).unwrap(), Duration::from_millis(200), |_, content| {
                let moved = matches!(content, ribtide_wire::netlink::Content::NewRoute(_));
                first.get_or_insert(moved);
            })
            .unwrap();
        assert_eq!(first, Some(true), "the group was deleted first");
        // It comes back, and with it the route that it still has.
        Batch::default().group(1, &[hop("10.0.0.2", "v0", 1)]).apply(&mut kernel);
        let whole = expect(&[("192.0.2.0/24", &["10.0.1.2 v1 1"]), ("198.51.100.0/24", &["10.0.0.2 v0 1"])]);
        assert_eq!((table(), json("nexthop show").len()), (whole, 4));
    });
}

#[test]
fn a_lost_next_hop_leaves_every_group_with_one_message() {
    in_namespace("a_lost_next_hop_leaves_every_group_with_one_message", || {
        let mut kernel = open();
        let mut batch = Batch::start()
            .group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.0.3", "v0", 1), hop("10.0.1.2", "v1", 1)])
            .group(2, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.2", "v1", 1)]);
        for i in 0..500u32 {
            batch = batch.route(&format!("192.{}.{}.0/24", i / 256, i % 256), Some(1 + i % 2));
        }
        batch.end().apply(&mut kernel);
        let one = |gateway| vec![format!("{gateway} v0 1")];
        // Its object is deleted, and the kernel says so of the object and of each of the two groups.
        let lost = told(|| {
            Batch::default()
                .group(1, &[hop("10.0.0.2", "v0", 1), hop("10.0.0.3", "v0", 1)])
                .group(2, &[hop("10.0.0.2", "v0", 1)])
                .apply(&mut kernel);
        });
        assert_eq!(lost, (3, 0));
        assert_eq!(table()["192.0.1.0/24"], one("10.0.0.2"));
        // One that is replaced in one group and dropped from the other.
        Batch::default()
            .group(1, &[hop("10.0.0.3", "v0", 1)])
            .group(2, &[hop("10.0.0.3", "v0", 1)])
            .apply(&mut kernel);
        assert_eq!(
            (table()["192.0.0.0/24"].clone(), table()["192.0.1.0/24"].clone()),
            (one("10.0.0.3"), one("10.0.0.3"))
        );
        assert_eq!((table().len(), json("nexthop show").len()), (500, 3));

        // With its link: the kernel has done it by itself already, and nothing is left to be said.
        let both = [hop("10.0.0.3", "v0", 1), hop("10.0.1.2", "v1", 1)];
        Batch::default().group(1, &both).group(2, &both).apply(&mut kernel);
        let v1 = ifindex("v1");
        ip("link set v1 down");
        let after = told(|| {
            kernel.interface_changed(&InterfaceChange { ifindex: v1, up: false, came_up: false }).unwrap();
            let left = [hop("10.0.0.3", "v0", 1)];
            Batch::default().group(1, &left).group(2, &left).apply(&mut kernel);
            kernel.verify().unwrap();
        });
        assert_eq!(after, (0, 0));
        assert_eq!((table().len(), json("nexthop show").len()), (500, 3));
        // With the link of all ways: a withdrawal of what the kernel dropped costs nothing.
        ip("link set v0 down");
        let v0 = ifindex("v0");
        let after = told(|| {
            kernel.interface_changed(&InterfaceChange { ifindex: v0, up: false, came_up: false }).unwrap();
            let mut batch = Batch::default();
            for i in 0..500u32 {
                batch = batch.route(&format!("192.{}.{}.0/24", i / 256, i % 256), None);
            }
            batch.after(1).after(2).apply(&mut kernel);
        });
        assert_eq!(after, (0, 0));
        assert_eq!((table().len(), json("nexthop show").len()), (0, 0));
    });
}

#[test]
fn unresolved_group_takes_its_routes_along_and_brings_them_back() {
    in_namespace("unresolved_group_takes_its_routes_along_and_brings_them_back", || {
        let mut kernel = open();
        let prefix = |i: u32| format!("192.{}.{}.0/24", i / 256, i % 256);
        let ways = [hop("10.0.0.2", "v0", 1)];
        let mut batch = Batch::start()
            .group(1, &ways)
            .group(2, &[hop("10.0.1.2", "v1", 1)])
            .route("192.0.0.0/8", Some(2));
        for i in 0..500u32 {
            batch = batch.route(&prefix(i), Some(1));
        }
        batch.end().apply(&mut kernel);
        let unresolved = || {
            let mut batch = Batch::default();
            batch.0.groups.push(GroupOp { id: GroupId(1), content: FibGroup::Unresolved, source: None });
            batch
        };
        // The object and the way that was in it, and with them all routes; the less specific one forwards from now on.
        assert_eq!(told(|| unresolved().apply(&mut kernel)), (2, 0));
        assert_eq!((table().len(), json("nexthop show").len()), (1, 2));
        // Some of the routes go, and one comes that was on its way when the group lost its way: nothing is refused, and
        // nothing said.
        let after = told(|| {
            let batch = (0..10).fold(unresolved(), |b, i| b.route(&prefix(i), None));
            batch.apply(&mut kernel);
        });
        assert_eq!(after, (0, 0));
        Batch::default().route("198.51.100.0/24", Some(1)).apply(&mut kernel);
        kernel.verify().unwrap();
        kernel.repair().unwrap();
        assert_eq!((failed(&mut kernel), table().len()), (vec![], 1));
        // A way is back: all that is still wanted, with it. To say it twice changes nothing.
        Batch::default().group(1, &ways).apply(&mut kernel);
        assert_eq!(table().len(), 1 + 490 + 1);
        assert_eq!(table()["198.51.100.0/24"], ["10.0.0.2 v0 1"]);
        assert_eq!(told(|| Batch::default().group(1, &ways).apply(&mut kernel)), (0, 0));
        // With the link: the kernel has done it already.
        ip("link set v0 down");
        let v0 = ifindex("v0");
        let after = told(|| {
            kernel.interface_changed(&InterfaceChange { ifindex: v0, up: false, came_up: false }).unwrap();
            unresolved().apply(&mut kernel);
        });
        assert_eq!((after, table().len()), ((0, 0), 1));
        ip("link set v0 up");
        kernel.interface_changed(&InterfaceChange { ifindex: v0, up: true, came_up: true }).unwrap();
        assert_eq!(table().len(), 1, "the RIB decides what it resolves to");
        Batch::default().group(1, &ways).apply(&mut kernel);
        assert_eq!(table().len(), 1 + 490 + 1);
    });
}

/// The threads: interfaces are told, batches acknowledged, a flap mended.
#[test]
fn the_stage_tells_interfaces_and_acknowledges() {
    in_namespace("the_stage_tells_interfaces_and_acknowledges", || {
        let rings = Rings::default();
        let (feedback, said) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let (stop, meter) = (Stop::default(), Meters::default().meter("kernel"));
        let (channel, DataplaneSink { batches, urgent }) =
            RibChannel::new(3, "kernel", &rings, rib, meter, stop.clone());
        let (_, threads) =
            start(KernelConfig { import: false, ..config() }, &[], channel, None, &rings).unwrap();
        let mut interfaces = Vec::new();
        loop {
            match said.recv().unwrap() {
                RibIn::Interface(event) => interfaces.push(event),
                RibIn::EndOfInitial(Source::Connected) => {}
                RibIn::DataplaneUp(3) => break,
                other => panic!("{other:?}"),
            }
        }
        let v0 = interfaces.iter().find(|i| i.name == "v0").unwrap();
        assert!(v0.up);
        let addresses: Vec<_> = [("10.0.0.1", "10.0.0.0/24"), ("2001:db8::1", "2001:db8::/64")]
            .map(|(own, subnet)| (own.parse().unwrap(), subnet.parse().unwrap()))
            .into();
        assert_eq!(v0.addresses, addresses);

        let batch = Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]).route("192.0.2.0/24", Some(1)).end();
        batches.send(Arc::new(FibBatch { seq: 5, ..batch.0 })).unwrap();
        let acked = |seq| loop {
            match said.recv().unwrap() {
                // A flap may be seen while the link is down: the route fails, and is repaired.
                RibIn::Ack(ack) if seq > 0 && ack.seq == 0 => {}
                RibIn::Ack(ack) => {
                    break assert_eq!(ack, FibAck { dataplane: 3, seq, failed: vec![], installed: vec![] });
                }
                _ => {}
            }
        };
        acked(5);
        assert!(table_has("192.0.2.0/24"));

        // A group changes ahead of what waits; that finishes no batch.
        let op = Batch::default().group(1, &[hop("10.0.0.3", "v0", 1)]).0.groups.remove(0);
        urgent.send(vec![UrgentOp { after: 5, made: 5, op }]).unwrap();
        acked(0);
        assert!(table()["192.0.2.0/24"][0].contains("10.0.0.3"), "{:?}", table());

        ip("link set v0 down");
        assert!(!table_has("192.0.2.0/24"));
        ip("link set v0 up");
        loop {
            match said.recv().unwrap() {
                RibIn::Interface(event) if event.name == "v0" && event.up => break,
                _ => {}
            }
        }
        // The writer heard of it before the RIB did, so a batch sent now comes after the repair.
        batches.send(Arc::new(FibBatch { seq: 6, ..FibBatch::default() })).unwrap();
        acked(6);
        assert!(table_has("192.0.2.0/24"));

        // A route fails for want of an address, which comes: that it no longer does is said.
        let prefix = "198.51.100.0/24";
        let batch = Batch::default().group(2, &[hop("99.9.9.9", "v0", 1)]).route(prefix, Some(2));
        batches.send(Arc::new(FibBatch { seq: 7, ..batch.0 })).unwrap();
        let ack = || loop {
            if let RibIn::Ack(ack) = said.recv().unwrap() {
                break ack;
            }
        };
        assert_eq!(ack().failed[0].0, prefix.parse::<AnyPrefix>().unwrap().into());
        ip("addr add 99.9.9.1/24 dev v0");
        let installed = vec![prefix.parse::<AnyPrefix>().unwrap().into()];
        assert_eq!(ack(), FibAck { dataplane: 3, seq: 0, failed: vec![], installed });
        assert!(table_has(prefix));
        stop.stop();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// How fast: printed, not judged. `cargo test --release -- --ignored --nocapture how_fast`.
#[test]
#[ignore = "a measurement"]
fn how_fast() {
    fn fill<F: Family>(n: u32, at: impl Fn(u32) -> Prefix<F>, group: Option<u32>) -> Vec<FibRoute<F>> {
        let group = group.map(GroupId);
        (0..n).map(|i| FibRoute { prefix: at(i), group, protocol: Protocol::BgpExternal }).collect()
    }
    in_namespace("how_fast", || {
        let mut kernel = open();
        Batch::start()
            .group(1, &[hop("2001:db8::2", "v0", 1)])
            .group(2, &[hop("2001:db8:1::2", "v1", 1)])
            .end()
            .apply(&mut kernel);
        // Spread over 64.0.0.0/2: the kernel takes 30 µs for each deletion out of one dense block.
        let v4 = |i: u32| Prefix::<V4>::new(0x4000_0000 | i.wrapping_mul(0x9e37_79b1) >> 2, 24);
        let v6 = |i: u32| Prefix::<V6>::new((0x2a00_u128 << 112 | u128::from(i) << 80).to_be_bytes(), 48);
        for (what, group) in [("add", Some(1)), ("replace", Some(2)), ("delete", None)] {
            for family in ["IPv4", "IPv6"] {
                let mut batch = FibBatch::default();
                let n = 200_000;
                if family == "IPv4" {
                    batch.routes.v4 = fill(n, v4, group);
                } else {
                    batch.routes.v6 = fill(n, v6, group);
                }
                let begin = Instant::now();
                kernel.apply(&Arc::new(batch)).unwrap();
                assert_eq!(failed(&mut kernel), []);
                println!("{family} {what}: {:.0} routes/s", f64::from(n) / begin.elapsed().as_secs_f64());
            }
        }
    });
}
