//! BGP as a peer sees it: real threads, real sockets, on loopback.

mod bfd;
mod cpus_change;
mod graceful_restart;
mod interfaces;
mod max_prefixes;
mod monitors_change;
mod origination;
mod reconfiguration;
mod resize;
mod workers;

use super::*;
use crate::monitor::Taps;
use ribtide_bgp::ingest::Refusal;
use ribtide_config as config;
use ribtide_prefix::{AfiSafi, AnyPrefix, Prefix, V4, V6, for_each_bgp_family};
use ribtide_runtime::thread;
use ribtide_wire::bgp::attribute::{Origin, SegmentKind};
use ribtide_wire::bgp::build::{self, UpdatePacker};
use ribtide_wire::bgp::capability::{Capability, GracefulRestart, RestartFamilies};
use ribtide_wire::bgp::message::{
    MAX_EXTENDED_LEN, MessageType, RefreshKind, RouteRefresh, frame, write_keepalive,
};
use ribtide_wire::bgp::notification::cease;
use ribtide_wire::bgp::open::OpenBuilder;
use ribtide_wire::bgp::update::{self, UpdateContext};
use ribtide_wire::bgp::{AsPath, NextHop, Notification};
use socket2::{Domain, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails; nothing waits that long when all is well.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Router {
    bgp: Option<Bgp>,
    stop: Stop,
}

/// Threads for everything; for updates alone, as in Junos without sharding; for shards alone; everything on one thread.
const THREADS: [&str; 4] = [
    "shards = 3\nupdate-threads = 2",
    "shards = \"off\"\nupdate-threads = 2",
    "shards = 3\nupdate-threads = \"off\"",
    "shards = \"off\"\nupdate-threads = \"off\"",
];

impl Router {
    /// A router of AS 65001 with this `[bgp]` table.
    fn start(bgp: &str) -> Router {
        Router::with(THREADS[0], bgp)
    }

    /// The same with these threads.
    fn with(threads: &str, bgp: &str) -> Router {
        let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{threads}\n{bgp}");
        let config = config::parse(&text).unwrap();
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let settings = config.bgp.as_ref().unwrap();
        let builder = BgpBuilder::new(settings, &rings).unwrap();
        let bgp = builder
            .start(&config, settings, None, &Taps::default(), Clock::default(), &meters, &stop)
            .unwrap();
        Router { bgp: Some(bgp), stop }
    }

    fn bgp(&self) -> &Bgp {
        self.bgp.as_ref().unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.bgp().listening[0]
    }

    fn neighbor(&self, address: &str) -> Option<session::NeighborView> {
        let address: IpAddr = address.parse().unwrap();
        self.bgp().sessions.call(move |s| s.neighbor(address)).unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(bgp) = self.bgp.take() {
            let _ = bgp.session_thread.join();
        }
    }
}

/// Asks until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < TEST_TIMEOUT, "not in {TEST_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A peer on a socket, that holds what it was sent.
struct Peer {
    stream: TcpStream,
    asn: u32,
    hold_time: u16,
    /// The restart time that it sends for IPv4, if it has graceful restart; with F.
    restart: Option<u16>,
    keepalives: u32,
    refreshes: u32,
    input: Vec<u8>,
    /// With the attributes as received, the next hop last.
    routes: BTreeMap<AnyPrefix, Vec<u8>>,
    ends: Vec<AfiSafi>,
    next_hops: BTreeSet<NextHop>,
    notification: Option<Notification>,
    closed: bool,
}

impl Peer {
    /// Connects from `from`, in AS `asn`, and does not wait for an answer.
    fn dial(router: &Router, from: &str, asn: u32) -> Peer {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into()).unwrap();
        let to = SocketAddr::new("127.0.0.1".parse().unwrap(), router.address().port());
        socket.connect(&to.into()).unwrap();
        Peer::on(socket.into(), asn)
    }

    fn on(stream: TcpStream, asn: u32) -> Peer {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Peer {
            stream,
            asn,
            hold_time: 90,
            restart: None,
            keepalives: 0,
            refreshes: 0,
            input: Vec::new(),
            routes: BTreeMap::new(),
            ends: Vec::new(),
            next_hops: BTreeSet::new(),
            notification: None,
            closed: false,
        }
    }

    /// Connects and establishes the session.
    fn up(router: &Router, from: &str, asn: u32) -> Peer {
        let mut peer = Peer::dial(router, from, asn);
        peer.open();
        until("established", || router.neighbor(from).is_some_and(|n| n.up.is_some()));
        peer
    }

    fn open(&mut self) {
        let IpAddr::V4(local) = self.stream.local_addr().unwrap().ip().to_canonical() else { unreachable!() };
        let mut out = Vec::new();
        let families = RestartFamilies::new(&[0, 1, 1, 0x80]);
        let restart = |time| {
            Capability::GracefulRestart(GracefulRestart {
                restarting: false,
                notification: false,
                time,
                families,
            })
        };
        let mut capabilities = vec![
            Capability::Multiprotocol { afi: 1, safi: 1 },
            Capability::Multiprotocol { afi: 2, safi: 1 },
            Capability::RouteRefresh,
            Capability::ExtendedMessage,
            Capability::FourOctetAs(self.asn),
        ];
        capabilities.extend(self.restart.map(restart));
        OpenBuilder {
            asn: self.asn,
            hold_time: self.hold_time,
            router_id: local,
            capabilities: &capabilities,
        }
        .write(&mut out);
        write_keepalive(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    fn announce<F: ribtide_prefix::Family>(&mut self, prefixes: &[Prefix<F>]) {
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Igp);
        let path = build::prepend(AsPath::default(), self.asn, u8::from(self.asn != 65001));
        build::as_path(&mut attributes, AsPath::new(&path));
        if self.asn == 65001 {
            build::local_pref(&mut attributes, 100);
        }
        let next_hop = match F::ID {
            AfiSafi::Ipv4Unicast => NextHop::V4([192, 0, 2, 1].into()),
            AfiSafi::Ipv6Unicast => NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None },
        };
        let mut out = Vec::new();
        UpdatePacker::new(&attributes, next_hop, 4096).announce(prefixes.iter().copied(), &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    fn withdraw(&mut self, prefixes: &[Prefix<V4>]) {
        let mut out = Vec::new();
        build::withdraw(prefixes.iter().copied(), 4096, &mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// Reads what is there, for a moment.
    fn read(&mut self) {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(n) => self.input.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.closed = true,
        }
        let mut at = 0;
        while let Some(frame) = frame(&self.input[at..], MAX_EXTENDED_LEN).unwrap() {
            at += frame.total_len;
            match frame.kind {
                MessageType::Keepalive => self.keepalives += 1,
                MessageType::RouteRefresh => self.refreshes += 1,
                MessageType::Notification => self.notification = Some(Notification::parse(frame.body)),
                MessageType::Update => {
                    let context = UpdateContext::new(true, self.asn != 65001);
                    let update = update::parse(frame.body, &context).unwrap();
                    self.ends.extend(update.end_of_rib());
                    for_each_bgp_family!(F => {
                        self.next_hops.extend(update.next_hop::<F>());
                        update.withdrawn::<F>().for_each(|p| {
                            self.routes.remove(&p.any());
                        });
                        let mut with = update.attribute_key().concat();
                        with.extend(format!("{:?}", update.next_hop::<F>()).into_bytes());
                        self.routes.extend(update.announced::<F>().map(|p| (p.any(), with.clone())));
                    });
                }
                _ => {}
            }
        }
        self.input.drain(..at);
    }

    fn until(&mut self, what: &str, so: impl Fn(&Peer) -> bool) {
        until(what, || {
            self.read();
            so(self)
        });
    }

    /// Reads until the router has closed; returns the NOTIFICATION that it sent.
    fn notified(self) -> (u8, u8) {
        let n = self.notification();
        (n.code, n.subcode)
    }

    /// The same, with its data.
    fn notification(mut self) -> Notification {
        self.until("closed", |p| p.closed);
        self.notification.expect("a NOTIFICATION")
    }
}

fn p4(n: u32, count: u32) -> Vec<Prefix<V4>> {
    (n..n + count).map(|i| Prefix::new(0x0a00_0000 + (i << 8), 24)).collect()
}

const CLIENTS: &str = r#"
listen = ["127.0.0.1:0"]
[bgp.group.clients]
type = "internal"
peer-asn = 65001
route-reflector-client = true
passive = true
families = ["ipv4-unicast", "ipv6-unicast"]
neighbors = ["127.0.0.11", "127.0.0.12"]
[bgp.group.world]
type = "external"
families = ["ipv4-unicast"]
import = ["accept"]
export = ["accept"]
dynamic-neighbors = ["127.0.1.0/24"]
"#;

#[test]
fn routes_go_from_peer_to_peer_and_leave_with_their_source() {
    THREADS.into_iter().for_each(routes_go);
}

fn routes_go(threads: &str) {
    let router = Router::with(threads, CLIENTS);
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    a.announce(&p4(0, 1000));
    a.announce::<V6>(&["2001:db8:1::/48".parse().unwrap()]);
    let mut b = Peer::up(&router, "127.0.0.12", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    b.until("all routes and both ends", |p| p.routes.len() == 1001 && p.ends.len() == 2);
    external.until("IPv4 routes and the end of one family", |p| {
        p.routes.len() == 1000 && p.ends == [AfiSafi::Ipv4Unicast]
    });
    let own = NextHop::V4([127, 0, 0, 1].into());
    assert_eq!(external.next_hops, BTreeSet::from([own]));

    a.withdraw(&p4(0, 400));
    b.until("withdrawn", |p| p.routes.len() == 601);
    external.announce(&p4(5000, 3));
    a.until("only what others sent", |p| p.routes.len() == 3);
    external.until("not its own", |p| p.routes.len() == 600);

    let view = router.neighbor("127.0.0.11").unwrap();
    let up = view.up.unwrap();
    let counters = router.bgp().readers[up.reader].call(move |r| r.counters(view.id)).unwrap().unwrap();
    assert_eq!((counters.announced, counters.withdrawn), (1001, 400));
    let id = router.neighbor("127.0.0.12").unwrap().id;
    until("counted", || {
        let worker = router.neighbor("127.0.0.12").unwrap().up.unwrap().worker;
        let member = router.bgp().workers.get(worker).unwrap().call(move |w| w.member(id)).unwrap().unwrap();
        (member.advertised[AfiSafi::Ipv4Unicast], member.advertised[AfiSafi::Ipv6Unicast]) == (603, 1)
    });

    drop(a);
    b.until("what a had sent is gone", |p| p.routes.len() == 3);
    assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 1);
    drop(external);
    b.until("what the external peer had sent is gone", |p| p.routes.is_empty());
    until("the dynamic peer is forgotten", || router.neighbor("127.0.1.5").is_none());
    let mut again = Peer::up(&router, "127.0.1.6", 65006);
    again.announce(&p4(9000, 5));
    b.until("routes of a peer with a number that was in use", |p| p.routes.len() == 5);
}

#[test]
fn unknown_or_wrong_peer_gets_the_reason() {
    let router = Router::start(CLIENTS);
    assert_eq!(Peer::dial(&router, "127.0.2.1", 65009).notified(), (6, 5));
    assert_eq!(router.bgp().sessions.call(|s| s.totals().refused.total()).unwrap(), 1);
    let mut wrong = Peer::dial(&router, "127.0.0.11", 65002);
    wrong.open();
    assert_eq!(wrong.notified(), (2, 2));
    let message = router.neighbor("127.0.0.11").unwrap().last_error.unwrap();
    assert!(message.contains("AS 65002, but AS 65001 is configured"), "{message}");
    let mut own = Peer::dial(&router, "127.0.1.9", 65001);
    own.open();
    assert_eq!(own.notified(), (2, 2));

    let mut broken = Peer::up(&router, "127.0.0.12", 65001);
    broken.stream.write_all(&[0; 19]).unwrap();
    assert_eq!(broken.notified(), (1, 1));
    until("down", || router.neighbor("127.0.0.12").unwrap().up.is_none());
    assert!(router.neighbor("127.0.0.12").unwrap().last_error.unwrap().contains("not synchronized"));
}

#[test]
fn a_silent_peer_is_given_up_and_a_living_one_kept() {
    silent_and_living(THREADS[0]);
}

#[test]
fn a_silent_peer_is_given_up_and_a_living_one_kept_on_one_thread() {
    silent_and_living(THREADS[3]);
}

fn silent_and_living(threads: &str) {
    let router = Router::with(threads, CLIENTS);
    let [mut living, silent] = ["127.0.0.11", "127.0.0.12"].map(|from| {
        let mut peer = Peer::dial(&router, from, 65001);
        peer.hold_time = 3;
        peer.open();
        until("established", || router.neighbor(from).is_some_and(|n| n.up.is_some()));
        peer
    });
    let mut keepalive = Vec::new();
    write_keepalive(&mut keepalive);
    until("the silent peer is given up", || {
        living.stream.write_all(&keepalive).unwrap();
        living.read();
        router.neighbor("127.0.0.12").unwrap().up.is_none()
    });
    assert_eq!(silent.notified(), (4, 0));
    assert!(living.keepalives > 1 && !living.closed);
    assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 0);
}

#[test]
fn a_second_connection_is_refused_while_the_session_lasts() {
    let router = Router::start(CLIENTS);
    let mut first = Peer::up(&router, "127.0.0.11", 65001);
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 7));
    first.until("still there", |p| p.ends.len() == 2);
    assert!(!first.closed);
}

#[test]
fn operators_reset_refresh_and_shut_down() {
    THREADS.into_iter().for_each(operators);
}

fn operators(threads: &str) {
    let router = Router::with(threads, CLIENTS);
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    let mut b = Peer::up(&router, "127.0.0.12", 65001);
    a.announce(&p4(0, 10));
    b.until("routes", |p| p.routes.len() == 10 && p.ends.len() == 2);

    b.routes.clear();
    let mut refresh = Vec::new();
    RouteRefresh { afi: 1, safi: 1, kind: RefreshKind::Request }.write(&mut refresh);
    b.stream.write_all(&refresh).unwrap();
    b.until("routes again, as asked by the peer", |p| p.routes.len() == 10);
    b.routes.clear();
    assert_eq!(router.bgp().sessions.call(|s| s.refresh(None)).unwrap(), 2);
    b.until("routes again, as asked by the operator", |p| p.routes.len() == 10);
    assert_eq!(b.ends.len(), 2);

    let address: IpAddr = "127.0.0.11".parse().unwrap();
    assert_eq!(router.bgp().sessions.call(move |s| s.reset(Some(address), "new card")).unwrap(), 1);
    assert_eq!(a.notification(), Notification::cease_with_text(cease::ADMIN_RESET, "new card"));
    b.until("routes of the session that was reset are gone", |p| p.routes.is_empty());
    let again = Peer::up(&router, "127.0.0.11", 65001);
    drop(router);
    assert_eq!(again.notified(), (6, 2));
    assert_eq!(b.notified(), (6, 2));
}

#[test]
fn external_neighbour_of_any_as_has_the_one_of_its_open() {
    let router = Router::start(
        r#"
        listen = ["127.0.0.1:0"]
        [bgp.group.any]
        type = "external"
        peer-asn = "external"
        passive = true
        families = ["ipv4-unicast"]
        import = ["accept"]
        neighbors = ["127.0.0.31", "127.0.0.32"]
        "#,
    );
    // Our own AS is no external one (RFC 4271 section 6.2: Bad Peer AS).
    let mut internal = Peer::dial(&router, "127.0.0.31", 65001);
    internal.open();
    assert_eq!(internal.notified(), (2, 2));
    assert_eq!(router.neighbor("127.0.0.32").unwrap().asn, None);
    let mut external = Peer::up(&router, "127.0.0.32", 65099);
    assert_eq!(router.neighbor("127.0.0.32").unwrap().asn, Some(65099));
    // The first AS of its paths is that one.
    external.announce(&p4(0, 10));
    let accepted = |router: &Router| router.neighbor("127.0.0.32").unwrap().up.unwrap().info;
    assert_eq!((accepted(&router).asn, accepted(&router).kind.is_internal()), (65099, false));
    // None until the reader has the session.
    let counters = || {
        let up = router.neighbor("127.0.0.32").unwrap().up.unwrap();
        router.bgp().readers[up.reader].call(move |reader| reader.counters(up.info.id)).unwrap()
    };
    until("routes", || counters().is_some_and(|c| c.announced == 10));
    external.asn = 65098;
    external.announce(&p4(20, 5));
    until("routes of another first AS are refused", || counters().unwrap().refused(Refusal::FirstAs) == 5);
}

#[test]
fn it_connects_where_it_is_not_passive() {
    let listener = std::net::TcpListener::bind("127.0.0.21:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::start(&format!(
        r#"
        listen = ["[::]:0"]
        [bgp.group.peers]
        type = "external"
        peer-asn = 65021
        families = ["ipv4-unicast"]
        import = ["accept"]
        export = ["accept"]
        [[bgp.group.peers.neighbor]]
        address = "127.0.0.21"
        port = {port}
        local-address = "127.0.0.22"
        "#
    ));
    let (stream, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), "127.0.0.22".parse::<IpAddr>().unwrap());
    let mut peer = Peer::on(stream, 65021);
    peer.open();
    until("established", || router.neighbor("127.0.0.21").is_some_and(|n| n.up.is_some()));
    drop(peer);
    let (stream, _) = listener.accept().unwrap();
    let mut peer = Peer::on(stream, 65021);
    peer.open();
    peer.until("the session came back", |p| p.ends == [AfiSafi::Ipv4Unicast]);
    assert_eq!(router.neighbor("127.0.0.21").unwrap().flaps, 1);
    // A socket of the dual-stack listener, with the TTL of an external session.
    drop(peer);
    until("the session is over", || router.neighbor("127.0.0.21").unwrap().up.is_none());
    let mut peer = Peer::dial(&router, "127.0.0.21", 65021);
    peer.open();
    peer.until("the session came back the other way", |p| p.ends == [AfiSafi::Ipv4Unicast]);
}

#[test]
fn a_peer_that_does_not_read_stops_its_group_and_loses_nothing() {
    THREADS.into_iter().for_each(one_does_not_read);
}

fn one_does_not_read(threads: &str) {
    let router = Router::with(threads, CLIENTS);
    let mut source = Peer::up(&router, "127.0.1.7", 65007);
    let mut slow = Peer::up(&router, "127.0.0.12", 65001);
    slow.until("the beginning", |p| p.ends.len() == 2);
    let all: Vec<Prefix<V4>> = (0..200_000u32).map(|i| Prefix::new(0x0a00_0000 + (i << 8), 24)).collect();
    // Paths of their own, so that each route is a message: far more than sockets and queues hold.
    for (at, prefix) in all.iter().enumerate() {
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Igp);
        let mut path = vec![SegmentKind::Sequence as u8, 40];
        path.extend_from_slice(&65007u32.to_be_bytes());
        (1..40).for_each(|i| path.extend_from_slice(&(100_000 + at as u32 + i).to_be_bytes()));
        build::as_path(&mut attributes, AsPath::new(&path));
        let mut out = Vec::new();
        let next_hop = NextHop::V4([192, 0, 2, 1].into());
        UpdatePacker::new(&attributes, next_hop, 4096).announce([*prefix], &mut out).unwrap();
        source.stream.write_all(&out).unwrap();
    }
    for round in 0..3u8 {
        // Changes while it does not read: each round new attributes for every route.
        let mut attributes = Vec::new();
        build::origin(&mut attributes, Origin::Igp);
        let path = build::prepend(AsPath::default(), 65007, 2 + round);
        build::as_path(&mut attributes, AsPath::new(&path));
        let mut out = Vec::new();
        let next_hop = NextHop::V4([192, 0, 2, 2 + round].into());
        UpdatePacker::new(&attributes, next_hop, 4096).announce(all.iter().copied(), &mut out).unwrap();
        source.stream.write_all(&out).unwrap();
    }
    source.withdraw(&all[..100]);
    let id = router.neighbor("127.0.0.12").unwrap().id;
    until("all of it arrived in the worker", || {
        let worker = router.neighbor("127.0.0.12").unwrap().up.unwrap().worker;
        let member = router.bgp().workers.get(worker).unwrap().call(move |w| w.member(id)).unwrap();
        let id = router.neighbor("127.0.1.7").unwrap().id;
        let reader = router.neighbor("127.0.1.7").unwrap().up.unwrap().reader;
        let counters = router.bgp().readers[reader].call(move |r| r.counters(id)).unwrap();
        // None until the worker, the reader has the session.
        counters.is_some_and(|c| c.withdrawn == 100) && member.is_some_and(|m| m.blocked && m.waiting > 0)
    });
    let up = router.neighbor("127.0.0.12").unwrap().up.unwrap();
    assert!(up.writes.full && up.writes.slow && up.writes.bytes > 0, "{:?}", up.writes);
    slow.until("everything", |p| p.routes.len() == 199_900);
    let last = NextHop::V4([192, 0, 2, 4].into());
    slow.until("the last state", |p| p.next_hops.contains(&last));
    assert!(!slow.closed);
    let up = router.neighbor("127.0.0.12").unwrap().up.unwrap();
    assert!(!up.writes.full && up.writes.stops >= 1, "{:?}", up.writes);
    let worker = router.bgp().workers.get(up.worker).unwrap();
    until("its worker knows", || {
        let member = worker.call(move |w| w.member(id)).unwrap().unwrap();
        !member.blocked && member.waiting == 0 && member.advertised[AfiSafi::Ipv4Unicast] == 199_900
    });
}

#[test]
fn threads_run_where_the_configuration_puts_them() {
    let router = Router::with("shards = 2\nupdate-threads = 1\ncpus = \"auto\"", CLIENTS);
    let allowed = Cpus::allowed().unwrap();
    // Routers of other tests have threads of the same names, but no other test pins a reader to the last CPU.
    let last = allowed.one(allowed.len() - 1);
    for (name, cpus) in [("reader-0", &last), ("shard-1", &allowed.one(1)), ("egress-0", &allowed.one(0))] {
        until(name, || {
            let threads = thread::list().unwrap();
            threads.iter().any(|t| t.name == name && t.cpus.as_ref() == Some(cpus))
        });
    }
    drop(router);
    let text = "[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\ncpus = \"1023\"";
    let config = config::parse(text).unwrap();
    let message = BgpBuilder::new(config.bgp.as_ref().unwrap(), &Rings::default()).err().unwrap().to_string();
    assert!(message.starts_with("bgp.cpus cannot be obeyed: there is no CPU 1023"), "{message}");
}

#[test]
fn a_password_signs_the_session() {
    let with = |password: &str| {
        format!(
            r#"
            listen = ["127.0.0.1:0"]
            [bgp.group.peers]
            type = "internal"
            passive = true
            password = "{password}"
            neighbors = ["127.0.0.31"]
            "#
        )
    };
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{}", with("secret"));
    let config = config::parse(&text).unwrap();
    match BgpBuilder::new(config.bgp.as_ref().unwrap(), &Rings::default()) {
        Err(e) if e.to_string().contains("the kernel refuses the password") => {
            println!("skipped: {e}");
            return;
        }
        other => drop(other.unwrap()),
    }
    let router = Router::start(&with("secret"));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.31:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    session::set_md5(&socket, router.address().ip(), None, b"secret").unwrap();
    socket.connect(&router.address().into()).unwrap();
    let mut peer = Peer::on(socket.into(), 65001);
    peer.open();
    peer.until("established", |p| !p.ends.is_empty());
}
