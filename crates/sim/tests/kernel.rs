//! The simulated kernel beside the real one: the same random requests to both, in a network
//! namespace. Every reply, every notification and the tables must be equal.
//!
//! `RIBTIDE_KERNEL_SEEDS=1000` runs more. Without root the test prints that it skips.

use ribtide_netlink::{Refusal, Socket, Sockets};
use ribtide_prefix::{Afi, AnyPrefix, Rng};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_sim::kernel::Kernel;
use ribtide_wire::netlink::numbers::{
    NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
    RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{
    Content, Forward, Hop, Hops, Member, Members, NextHop, NextHops, Route, RouteKind, Via, dump_next_hops,
    dump_routes, write_next_hop_delete,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

const INSIDE: &str = "RIBTIDE_TEST_NETNS";
const TEST: &str = "simulated_kernel_does_what_the_real_one_does";
/// Time for what the real kernel does later by itself.
const SETTLE_TRIES: u32 = 200;
/// Tables: one of its own, and the main one, where a source address that goes takes routes along.
const TABLES: [u32; 2] = [1000, 254];
const PROTOCOLS: [u8; 2] = [186, 4];

/// Runs a command of iproute2.
fn ip(arguments: &str) {
    let out = Command::new("ip").args(arguments.split(' ')).output().expect("the command ip");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A request, written for each kernel again.
#[derive(Clone, Debug)]
enum Request {
    Object(u32, u8, Content2, u16),
    DeleteObject(u32),
    Route(OwnedRoute, u16),
    DeleteRoute(OwnedRoute),
}

#[derive(Clone, Debug)]
enum Content2 {
    Blackhole(Afi),
    Via(Via),
    Group(Vec<Member>),
}

#[derive(Clone, Debug)]
struct OwnedRoute {
    prefix: AnyPrefix,
    table: u32,
    protocol: u8,
    kind: RouteKind,
    scope: u8,
    metric: Option<u32>,
    source: Option<IpAddr>,
    hop: Option<Hop>,
    id: Option<u32>,
}

impl Request {
    fn write(&self, out: &mut Vec<u8>, seq: u32) {
        match self {
            Request::Object(id, protocol, content, flags) => {
                let forward = match content {
                    Content2::Blackhole(afi) => Forward::Blackhole(*afi),
                    Content2::Via(via) => Forward::via(*via),
                    Content2::Group(members) => Forward::Group(Members::from(&members[..])),
                };
                let object = NextHop { id: *id, protocol: *protocol, forward };
                object.write_new(out, *flags, seq).expect("a short object");
            }
            Request::DeleteObject(id) => write_next_hop_delete(out, *id, 0, seq),
            Request::Route(route, flags) => route.with(|route| route.write_new(out, *flags, seq)),
            Request::DeleteRoute(route) => route.with(|route| route.write_delete(out, 0, seq)),
        }
    }
}

impl OwnedRoute {
    fn with<T, E: std::fmt::Debug>(&self, with: impl FnOnce(&Route<'_>) -> Result<T, E>) {
        let next_hops = match (self.id, &self.hop) {
            (Some(id), _) => NextHops::Id(id),
            (None, Some(_)) => NextHops::Inline(Hops::from(self.hop.as_slice())),
            (None, None) => NextHops::None,
        };
        let mut route = Route::new(self.prefix, self.table, self.protocol, next_hops);
        (route.kind, route.scope, route.metric, route.prefsrc) =
            (self.kind, self.scope, self.metric, self.source);
        with(&route).expect("a short route");
    }
}

/// An event of the host.
#[derive(Clone, Copy, Debug)]
enum Event {
    Switch(u32, bool),
    Carrier(u32, bool),
    Address(u32, IpAddr, u8, bool),
}

const ADDRESSES: [(u32, &str, u8); 6] = [
    (0, "10.0.0.1", 24),
    (0, "2001:db8:0::1", 64),
    (1, "10.0.1.1", 24),
    (1, "2001:db8:1::1", 64),
    (2, "10.7.7.7", 32),
    (2, "2001:db8:7::7", 128),
];

fn address(rng: &mut Rng) -> (u32, IpAddr, u8) {
    let (link, address, len) = *rng.pick(&ADDRESSES);
    (link, address.parse().expect("an address"), len)
}

fn gateway(rng: &mut Rng) -> IpAddr {
    let all =
        ["10.0.0.2", "10.0.0.3", "10.0.1.2", "192.0.2.9", "2001:db8::2", "2001:db8:1::2", "2001:db8:9::9"];
    rng.pick(&all).parse().expect("an address")
}

/// Both kernels.
struct Both {
    /// The index of each link in the real kernel, and in both.
    links: Vec<u32>,
    sockets: [Socket; 2],
    monitors: [Socket; 2],
    wait: WaitFd,
    simulated: Kernel,
}

impl Both {
    fn new(links: Vec<u32>) -> Both {
        let simulated = Kernel::new();
        for (n, name) in ["v0", "v1", "lo"].iter().enumerate() {
            let mine = ADDRESSES.iter().filter(|(link, ..)| *link as usize == n);
            let addresses: Vec<(IpAddr, u8)> =
                mine.map(|(_, address, len)| (address.parse().expect("an address"), *len)).collect();
            simulated.state().add_link(links[n], name, &addresses);
        }
        let groups = [RTNLGRP_NEXTHOP, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE];
        let open = |sockets: Sockets| {
            (sockets.open().expect("a socket"), sockets.monitor(&groups, 1 << 22).expect("a monitor"))
        };
        let (real, sim) = (open(Sockets::default()), open(simulated.sockets()));
        let wait = WaitFd::new(&Stop::default()).expect("a descriptor");
        Both { links, sockets: [real.0, sim.0], monitors: [real.1, sim.1], wait, simulated }
    }

    fn via(&self, rng: &mut Rng) -> Via {
        let gateway = (!rng.one_in(6)).then(|| gateway(rng));
        Via { gateway, ifindex: self.links[rng.index(2)], onlink: gateway.is_some() && rng.one_in(10) }
    }

    fn request(&self, rng: &mut Rng) -> Request {
        let id = |rng: &mut Rng| 1 + rng.index(8) as u32;
        let flags = |rng: &mut Rng| {
            let usual = [
                NLM_F_CREATE | NLM_F_REPLACE,
                NLM_F_CREATE | NLM_F_REPLACE,
                NLM_F_REPLACE,
                NLM_F_CREATE | NLM_F_EXCL,
                NLM_F_CREATE,
                NLM_F_CREATE | NLM_F_APPEND,
            ];
            *rng.pick(&usual)
        };
        let protocol = *rng.pick(&PROTOCOLS);
        match rng.index(10) {
            0..3 => {
                let content = match rng.index(8) {
                    0 => Content2::Blackhole(if rng.one_in(2) { Afi::Ipv4 } else { Afi::Ipv6 }),
                    1..5 => Content2::Via(self.via(rng)),
                    _ => {
                        let count = if rng.one_in(12) { 0 } else { 1 + rng.index(3) };
                        let member =
                            |_| Member { id: 1 + rng.index(5) as u32, weight: 1 + rng.index(3) as u16 };
                        Content2::Group((0..count).map(member).collect())
                    }
                };
                // Groups and single objects often have ids of their own.
                let id = match content {
                    Content2::Group(_) if !rng.one_in(6) => 5 + rng.index(4) as u32,
                    Content2::Group(_) => id(rng),
                    _ if !rng.one_in(6) => 1 + rng.index(4) as u32,
                    _ => id(rng),
                };
                let flags = flags(rng) & !NLM_F_APPEND;
                Request::Object(id, protocol, content, flags)
            }
            3 => Request::DeleteObject(1 + rng.index(9) as u32),
            4..8 => {
                let mut route = self.route(rng, protocol);
                let mut flags = flags(rng);
                match rng.index(6) {
                    0 => route.kind = *rng.pick(&[RouteKind::Blackhole, RouteKind::Unreachable]),
                    1 => {
                        let mut via = self.via(rng);
                        // The inline gateway of an IPv4 route may be of IPv6; not the other way round.
                        if route.prefix.afi() == Afi::Ipv6 && via.gateway.is_some_and(|g| g.is_ipv4()) {
                            via.gateway = None;
                        }
                        route.hop = Some(Hop { via: Via { onlink: false, ..via }, weight: 1 });
                        // The kernel merges inline IPv6 next hops of one metric, the simulated one does not.
                        if route.prefix.afi() == Afi::Ipv6 {
                            flags = if rng.one_in(2) {
                                NLM_F_CREATE | NLM_F_EXCL
                            } else {
                                NLM_F_CREATE | NLM_F_REPLACE
                            };
                        }
                    }
                    _ => route.id = Some(id(rng)),
                }
                Request::Route(route, flags)
            }
            _ => {
                let mut route = self.route(rng, protocol);
                route.source = None;
                if rng.one_in(3) {
                    (route.protocol, route.kind, route.scope) = (0, RouteKind::Other(0), 255);
                }
                if rng.one_in(6) {
                    route.metric = None;
                }
                Request::DeleteRoute(route)
            }
        }
    }

    fn route(&self, rng: &mut Rng, protocol: u8) -> OwnedRoute {
        let prefixes =
            ["192.0.2.0/24", "198.51.100.0/24", "100.64.0.0/10", "2001:db8:aaaa::/48", "2001:db8:bbbb::/48"];
        let prefix: AnyPrefix = rng.pick(&prefixes).parse().expect("a prefix");
        let source = rng.maybe(6, |_| match prefix.afi() {
            Afi::Ipv4 => "10.7.7.7".parse().expect("an address"),
            Afi::Ipv6 => "2001:db8:7::7".parse().expect("an address"),
        });
        OwnedRoute {
            prefix,
            table: *rng.pick(&TABLES),
            protocol,
            kind: RouteKind::Unicast,
            scope: 0,
            metric: *rng.pick(&[Some(20), Some(20), Some(20), Some(77), None]),
            source,
            hop: None,
            id: None,
        }
    }

    fn event(&self, rng: &mut Rng) -> Event {
        let link = rng.index(2) as u32;
        match rng.index(4) {
            0 => Event::Switch(link, rng.one_in(2)),
            1 => Event::Carrier(link, rng.one_in(2)),
            _ => {
                let (link, address, len) = address(rng);
                Event::Address(link, address, len, !rng.one_in(3))
            }
        }
    }

    /// Lets an event happen to both.
    fn happen(&mut self, event: Event) {
        let name = |link: u32| ["v0", "v1", "lo"][link as usize];
        let state = &mut *self.simulated.state();
        match event {
            Event::Switch(link, up) => {
                ip(&format!("link set {} {}", name(link), if up { "up" } else { "down" }));
                state.switch(self.links[link as usize], up);
            }
            Event::Carrier(link, up) => {
                ip(&format!("link set p{link} {}", if up { "up" } else { "down" }));
                state.set_carrier(self.links[link as usize], up);
            }
            Event::Address(link, address, len, add) => {
                let index = self.links[link as usize];
                let has = state.links()[&index].addresses.iter().any(|(own, _)| *own == address);
                // The command refuses what is there already.
                if has == add || (add && address.is_ipv6() && !state.links()[&index].up) {
                    return;
                }
                let (verb, nodad) = if add { ("add", " nodad") } else { ("del", "") };
                let nodad = if address.is_ipv6() { nodad } else { "" };
                ip(&format!("addr {verb} {address}/{len} dev {}{nodad}", name(link)));
                match add {
                    true => state.add_address(index, address, len),
                    false => state.delete_address(index, address),
                }
            }
        }
    }

    /// Sends requests to both, and returns the errors of each.
    fn send(&mut self, requests: &[Request]) -> [Vec<(usize, i32)>; 2] {
        [0, 1].map(|n| {
            let mut refused = Vec::new();
            let note = |index, Refusal { errno, .. }| refused.push((index, errno));
            self.sockets[n]
                .request(requests, |request, out, seq| request.write(out, seq), note)
                .expect("replies");
            refused
        })
    }

    /// What the tables of a kernel have, as text.
    fn tables(&mut self, n: usize) -> BTreeSet<String> {
        let socket = &mut self.sockets[n];
        let mut all: BTreeSet<String> = socket
            .dump(dump_next_hops, |all: &mut BTreeSet<String>, content| _ = all.insert(show(&content)))
            .expect("a dump");
        for table in TABLES {
            for afi in [Afi::Ipv4, Afi::Ipv6] {
                for protocol in PROTOCOLS {
                    let routes = socket.dump(
                        |out, seq| dump_routes(out, seq, afi, table, protocol),
                        |all: &mut BTreeMap<String, u32>, content| {
                            if matches!(&content, Content::NewRoute(route) if route.table == table && route.protocol == protocol) {
                                *all.entry(show(&content)).or_default() += 1;
                            }
                        },
                    );
                    match routes {
                        Ok(routes) => {
                            all.extend(routes.into_iter().map(|(text, count)| format!("{text} {count}")))
                        }
                        Err(e) => _ = all.insert(format!("table {table} {afi:?}: {:?}", e.raw_os_error())),
                    }
                }
            }
        }
        all
    }

    /// The notifications that wait at a monitor, as text.
    fn notifications(&mut self, n: usize) -> Vec<String> {
        let mut all = Vec::new();
        let mut note = |_, content: Content<'_>| match &content {
            Content::NewRoute(route) | Content::DelRoute(route)
                if !PROTOCOLS.contains(&route.protocol) || !TABLES.contains(&route.table) => {}
            _ => all.push(show(&content)),
        };
        self.monitors[n].notified(&self.wait, Duration::ZERO, &mut note).expect("notifications");
        all
    }
}

fn show(content: &Content<'_>) -> String {
    let mut text = String::new();
    let (verb, route) = match content {
        Content::NewRoute(route) => ("new", route),
        Content::DelRoute(route) => ("del", route),
        Content::NewNextHop(NextHop { id, protocol, forward }) => {
            return match forward {
                Forward::Group(members) => format!("group {id} {protocol} {members:?}"),
                forward => format!("object {id} {protocol} {forward:?}"),
            };
        }
        other => return format!("{other:?}"),
    };
    let _ = write!(
        text,
        "{verb} {} table {} proto {} scope {} {:?} metric {:?} source {:?} ",
        route.prefix, route.table, route.protocol, route.scope, route.kind, route.metric, route.prefsrc
    );
    match route.next_hops {
        NextHops::Id(id) => _ = write!(text, "object {id}"),
        NextHops::Inline(hops) if route.kind == RouteKind::Unicast => {
            for hop in hops {
                let _ = write!(text, "{:?} {} ", hop.via.gateway, hop.via.ifindex);
            }
        }
        _ => {}
    }
    text
}

fn index_of(name: &str) -> u32 {
    let path = format!("/sys/class/net/{name}/ifindex");
    let text = Command::new("cat").arg(&path).output().expect("cat");
    String::from_utf8_lossy(&text.stdout).trim().parse().unwrap_or_else(|_| panic!("{path}"))
}

fn seeds() -> u64 {
    std::env::var("RIBTIDE_KERNEL_SEEDS").map_or(30, |text| text.parse().expect("a number of seeds"))
}

/// The IPv4 route by an object and with a source address that a request adds.
fn with_source(request: &Request) -> Option<&OwnedRoute> {
    match request {
        Request::Route(route, _) if route.prefix.afi() == Afi::Ipv4 && route.id.is_some() => Some(route),
        _ => None,
    }
    .filter(|route| route.source.is_some())
}

/// Adds a route with the attributes of a former one: the kernel has these, even if the source address
/// is gone.
fn again(rng: &mut Rng, sourced: &[OwnedRoute]) -> Option<Request> {
    let former = (!sourced.is_empty()).then(|| rng.pick(sourced).clone())?;
    let prefix = rng.pick(&["192.0.2.0/24", "198.51.100.0/24", "100.64.0.0/10"]).parse().expect("a prefix");
    Some(Request::Route(OwnedRoute { prefix, ..former }, NLM_F_CREATE | NLM_F_REPLACE))
}

/// One history.
fn compare(seed: u64, links: &[u32]) {
    // An earlier one leaves routes and objects.
    for family in ["-4", "-6"] {
        for table in TABLES {
            for protocol in PROTOCOLS {
                let flush = format!("{family} route flush table {table} proto {protocol}");
                // There may be no table.
                let _ = Command::new("ip").args(flush.split(' ')).output();
            }
        }
    }
    ip("nexthop flush");
    for name in ["v0", "v1", "p0", "p1"] {
        ip(&format!("link set {name} up"));
    }
    for (link, address, len) in ADDRESSES {
        let name = ["v0", "v1", "lo"][link as usize];
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip(&format!("addr replace {address}/{len} dev {name}{nodad}"));
    }
    let rng = &mut Rng::of_purpose(seed, &[31]);
    let mut both = Both::new(links.to_vec());
    // Tables exist from their first route on, of any program in the namespace.
    for table in TABLES {
        for prefix in ["203.0.113.0/24", "2001:db8:cccc::/48"] {
            let route = OwnedRoute {
                prefix: prefix.parse().expect("a prefix"),
                kind: RouteKind::Blackhole,
                table,
                ..both.route(rng, 4)
            };
            let route = OwnedRoute { source: None, metric: Some(5), ..route };
            let made = both.send(&[Request::Route(route.clone(), NLM_F_CREATE), Request::DeleteRoute(route)]);
            assert_eq!(made, [vec![], vec![]]);
        }
    }
    both.notifications(0);
    both.notifications(1);
    let mut story: Vec<String> = Vec::new();
    let mut sourced: Vec<OwnedRoute> = Vec::new();
    for _ in 0..60 {
        let mut by_event = false;
        if rng.one_in(8) {
            let event = both.event(rng);
            story.push(format!("{event:?}"));
            both.happen(event);
            by_event = true;
        } else {
            let mut requests: Vec<Request> = (0..1 + rng.index(4)).map(|_| both.request(rng)).collect();
            requests.extend(rng.maybe(4, |rng| again(rng, &sourced)).flatten());
            sourced.extend(requests.iter().filter_map(with_source).cloned());
            story.extend(requests.iter().map(|request| format!("{request:?}")));
            let [real, simulated] = both.send(&requests);
            if real != simulated {
                let before = both.tables(1).into_iter().collect::<Vec<_>>().join("\n");
                let story = story.join("\n");
                panic!(
                    "replies of seed {seed}: {real:?}, simulated {simulated:?}:\n{story}\nafter it:\n{before}"
                );
            }
        }
        let mut tries = 0;
        let (mut real, simulated) = (both.tables(0), both.tables(1));
        while real != simulated && by_event && tries < SETTLE_TRIES {
            std::thread::sleep(Duration::from_millis(5));
            (tries, real) = (tries + 1, both.tables(0));
        }
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>().join("\n")
        };
        assert!(
            real == simulated,
            "tables of seed {seed}:\n{}\nonly the real kernel has:\n{}\nonly the simulated one:\n{}",
            story.join("\n"),
            only(&real, &simulated),
            only(&simulated, &real)
        );
        let [mut real, mut simulated] = [0, 1].map(|n| both.notifications(n));
        // The order of what goes along is that of hashes.
        real.sort();
        simulated.sort();
        assert_eq!(real, simulated, "notifications of seed {seed}:\n{}", story.join("\n"));
    }
}

#[test]
fn simulated_kernel_does_what_the_real_one_does() {
    if std::env::var_os(INSIDE).is_some() {
        for (a, b) in [("v0", "p0"), ("v1", "p1")] {
            ip(&format!("link add {a} type veth peer name {b}"));
        }
        ip("link set lo up");
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").expect("Linux 5.8");
        let links: Vec<u32> = ["v0", "v1", "lo"].map(index_of).into();
        let first = std::env::var("RIBTIDE_KERNEL_SEED").ok().and_then(|text| text.parse().ok());
        let seeds = first.map_or(0..seeds(), |first: u64| first..first + 1);
        let fails = |seed: &u64| std::panic::catch_unwind(|| compare(*seed, &links)).is_err();
        let failed: Vec<u64> = seeds.filter(fails).collect();
        assert!(failed.is_empty(), "seeds that fail: {failed:?}");
        return;
    }
    struct Namespace(String);
    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
    let namespace = Namespace(format!("ribtide-{}-sim", std::process::id()));
    match Command::new("ip").args(["netns", "add", &namespace.0]).output() {
        Ok(out) if out.status.success() => {}
        _ => {
            println!("skipped: network namespaces need root and the command ip");
            return;
        }
    }
    let out = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().expect("a path"))
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("the command ip");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "the test did not run inside: {text}");
}
