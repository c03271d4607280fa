//! BFD on loopback, with a neighbour that the test plays itself.

use super::*;
use ribtide_bfd::{Micros, Place, Reach, Sessions, Timers};
use ribtide_config as config;
use ribtide_prefix::Map;
use ribtide_runtime::ring::{Receiver, Rings};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use std::time::Instant;

/// How long anything may take before a test fails; nothing waits that long when all is well.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Running {
    bfd: Option<Bfd>,
    to_rib: Receiver<RibIn>,
    to_bgp: Receiver<BfdNews>,
    stop: Stop,
    /// What was heard last of each gateway, and all news.
    usable: Map<IpAddr, bool>,
    news: Vec<BfdNews>,
}

fn parsed(text: &str) -> config::Config {
    let head = "[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[fib]\n";
    config::parse(&format!("{head}{text}")).unwrap()
}

fn running(text: &str) -> Running {
    let (rings, stop) = (Rings::default(), Stop::default());
    let ((rib, to_rib), (bgp, to_bgp)) = (rings.bounded("rib", 64), rings.bounded("bgp", 64));
    let outputs = Outputs { rib: Some(rib), bgp: Some(bgp) };
    let bfd = start(&parsed(text).bfd, &[], outputs, &rings, stop.clone()).unwrap();
    Running { bfd: Some(bfd), to_rib, to_bgp, stop, usable: Map::default(), news: Vec::new() }
}

impl Running {
    fn hear(&mut self) {
        while let Some(RibIn::Gateway(event)) = self.to_rib.try_recv() {
            self.usable.insert(event.address, event.usable);
        }
        self.news.extend(std::iter::from_fn(|| self.to_bgp.try_recv()));
    }

    fn view(&self) -> Vec<SessionView> {
        self.bfd.as_ref().unwrap().handle.call(|bfd| bfd.view(None)).unwrap()
    }

    fn configure(&self, text: &str) -> Changes {
        let config = parsed(text).bfd;
        self.bfd.as_ref().unwrap().handle.call(move |bfd| bfd.configure(&config)).unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(bfd) = self.bfd.take() {
            let _ = bfd.thread.join();
        }
    }
}

/// The neighbour at `address`, whose own machine is the pure one.
struct Neighbor {
    sessions: Sessions,
    socket: UdpSocket,
    from: UdpSocket,
    ours: Ipv4Addr,
    start: Instant,
}

impl Neighbor {
    /// One that is taken for dead when nothing has come for `multiplier` times 20 ms.
    fn new(address: Ipv4Addr, ours: Ipv4Addr, multiplier: u8) -> Neighbor {
        let socket = UdpSocket::bind(SocketAddr::from((address, 3784))).unwrap();
        let from = UdpSocket::bind(SocketAddr::from((address, 0))).unwrap();
        from.set_ttl(255).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let mut sessions = Sessions::new(5);
        let place = Place { peer: ours.into(), local: None, interface: None, reach: Reach::Link };
        sessions.add(place, Timers { min_tx: 20_000, min_rx: 20_000, multiplier }, 0);
        Neighbor { sessions, socket, from, ours, start: Instant::now() }
    }

    fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Plays its part until it is told that the session's end is no failure.
    fn hears_goodbye(&mut self) {
        let begin = Instant::now();
        while self.sessions.iter().next().unwrap().1.session.standing() != ribtide_bfd::Standing::Excused {
            self.turn();
            assert!(begin.elapsed() < TEST_TIMEOUT, "not in {TEST_TIMEOUT:?}: goodbye");
        }
    }

    /// Plays its part for a moment.
    fn turn(&mut self) {
        let (mut bytes, mut out) = ([0; 64], Vec::new());
        let received = self.socket.recv_from(&mut bytes);
        let now = self.now();
        if let Ok((len, from)) = received {
            assert!(from.port() >= 49_152, "RFC 5881 section 4");
            let to = self.socket.local_addr().unwrap().ip();
            let origin = ribtide_bfd::Origin { from: from.ip(), to, interface: 1, ttl: 255, multihop: false };
            let _ = self.sessions.packet(&bytes[..len], &origin, now, &mut out);
        }
        self.sessions.tick(now, &mut out);
        for (_, effect) in out {
            if let ribtide_bfd::Effect::Send(control) = effect {
                let _ = self.from.send_to(&control.to_bytes(), (self.ours, 3784));
            }
        }
    }
}

/// Waits until it is so, while those of `neighbors` play their part.
fn until(
    what: &str,
    router: &mut Running,
    neighbors: &mut [&mut Neighbor],
    mut so: impl FnMut(&Running) -> bool,
) {
    let begin = Instant::now();
    loop {
        neighbors.iter_mut().for_each(|n| n.turn());
        router.hear();
        if so(router) {
            return;
        }
        assert!(begin.elapsed() < TEST_TIMEOUT, "not in {TEST_TIMEOUT:?}: {what}");
        if neighbors.is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn states(router: &Running) -> Vec<&'static str> {
    router.view().iter().map(|view| view.entry.session.state().name()).collect()
}

const LISTEN: &str = "[bfd]\nlisten = [\"127.9.0.1\"]\nmin-tx = 20\nmin-rx = 20\nmultiplier = 200\n";

fn neighbors(list: &str, more: &str) -> String {
    format!(
        "{LISTEN}[bgp]\nlisten = []\n[bgp.group.g]\ntype = \"internal\"\nneighbors = [{list}]\nbfd = true\n{more}"
    )
}

#[test]
fn who_falls_silent_is_told_to_all_who_rely_on_it_and_so_is_its_return() {
    let ours = Ipv4Addr::new(127, 9, 0, 1);
    let (first, second) = (IpAddr::from([127, 9, 0, 2]), IpAddr::from([127, 9, 0, 3]));
    let mut router = running(&neighbors("\"127.9.0.2\", \"127.9.0.3\"", ""));
    let mut a = Neighbor::new(Ipv4Addr::new(127, 9, 0, 2), ours, 25);
    let mut b = Neighbor::new(Ipv4Addr::new(127, 9, 0, 3), ours, 250);
    until("both up", &mut router, &mut [&mut a, &mut b], |r| states(r) == ["Up", "Up"]);
    assert!(!router.usable.contains_key(&second), "nothing was held against it");
    // One falls silent; the other is untouched.
    router.news.clear();
    until("one is down", &mut router, &mut [&mut b], |r| r.usable.get(&first) == Some(&false));
    until("BGP hears it", &mut router, &mut [&mut b], |r| r.news.iter().any(|n| n.failed));
    assert!(router.news.iter().filter(|n| n.failed).all(|n| n.address == first));
    assert_eq!(states(&router), ["Down", "Up"]);
    until("it is back", &mut router, &mut [&mut a, &mut b], |r| r.usable.get(&first) == Some(&true));
    assert_eq!(router.view()[1].entry.flaps, 0);
    // Other timers, another neighbour, one less: the one that stays is not touched.
    let changed = router.configure(&neighbors("\"127.9.0.3\", \"127.9.0.4\"", ""));
    assert_eq!((changed.added, changed.removed), (vec![[127, 9, 0, 4].into()], vec![first]));
    let slower = neighbors("\"127.9.0.3\"", "").replace("min-tx = 20", "min-tx = 40");
    assert_eq!(router.configure(&slower).changed, [second]);
    until("agreed", &mut router, &mut [&mut a, &mut b], |r| {
        r.view()[0].entry.session.tx_interval() == Some(40_000)
    });
    assert_eq!((states(&router), router.view()[0].entry.flaps), (vec!["Up"], 0));
    a.hears_goodbye();
    router.stop.stop();
    b.hears_goodbye();
}

#[test]
fn what_must_be_proven_is_not_usable_before() {
    let statics =
        "[[interface]]\nname = \"lo\"\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = [\"127.9.1.2\"]\n";
    let listen = LISTEN.replace("127.9.0.1", "127.9.1.1");
    let text = format!("{listen}{statics}bfd = {{ strict = true }}\n");
    let mut router = running(&text);
    let gateway = IpAddr::from([127, 9, 1, 2]);
    until("held back", &mut router, &mut [], |r| r.usable.get(&gateway) == Some(&false));
    let mut a = Neighbor::new(Ipv4Addr::new(127, 9, 1, 2), Ipv4Addr::new(127, 9, 1, 1), 250);
    until("proven", &mut router, &mut [&mut a], |r| r.usable.get(&gateway) == Some(&true));
    assert!(router.news.is_empty(), "no BGP session has it");
    let outputs = Outputs { rib: None, bgp: None };
    let error = start(&parsed(&text).bfd, &[], outputs, &Rings::default(), Stop::default());
    let says = error.err().unwrap().to_string();
    assert!(says.starts_with("BFD cannot receive on 127.9.1.1 port 3784"), "{says}");
    assert!(says.contains("another BFD daemon runs"), "{says}");
}

#[test]
fn a_link_local_neighbour_whose_interface_is_not_there_waits_for_it() {
    let text = "[bfd]\nlisten = [\"::1\"]\n[[interface]]\nname = \"nowhere7\"\n[[static]]\nprefix = \"2001:db8::/32\"\n\
                next-hop = [\"fe80::2\"]\ninterface = \"nowhere7\"\nbfd = true\n";
    let mut router = running(text);
    until("it says so", &mut router, &mut [], |r| r.view()[0].error.is_some());
    assert!(router.view()[0].error.as_ref().unwrap().contains("no interface nowhere7"));
}

/// The share of a CPU that 100 sessions at 50 ms take: docs/perf/2026-11-failover.md.
#[test]
#[ignore = "measures; in release mode, with --nocapture"]
fn measure_cpu() {
    const TIME: Duration = Duration::from_secs(20);
    let ours = Ipv4Addr::new(127, 9, 2, 1);
    let theirs: Vec<Ipv4Addr> = (1..=100).map(|n| Ipv4Addr::new(127, 9, 3, n)).collect();
    let list: Vec<String> = theirs.iter().map(|a| format!("\"{a}\"")).collect();
    let text = neighbors(&list.join(", "), "").replace("127.9.0.1", "127.9.2.1");
    let text = text.replace("multiplier = 200", "multiplier = 20").replace("x = 20", "x = 50");
    let router = running(&text);
    let stop = Stop::default();
    let others = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut all: Vec<Neighbor> = theirs.iter().map(|a| Neighbor::new(*a, ours, 20)).collect();
            all.iter_mut().for_each(|n| {
                n.socket.set_nonblocking(true).unwrap();
                let id = n.sessions.iter().next().unwrap().0;
                let timers = Timers { min_tx: 50_000, min_rx: 50_000, multiplier: 20 };
                n.sessions.event(id, ribtide_bfd::Event::Configure(timers), 0, &mut Vec::new());
            });
            while !stop.stopped() {
                all.iter_mut().for_each(Neighbor::turn);
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    };
    while states(&router).iter().any(|state| *state != "Up") {
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(2));
    let cpu = || {
        let thread = thread::list().unwrap().into_iter().find(|t| t.name == "bfd").unwrap();
        (thread.cpu_seconds(), thread.user_seconds, thread.system_seconds)
    };
    let packets = |r: &Running| r.view().iter().map(|v| v.entry.sent + v.entry.received).sum::<u64>();
    let (before, counted, begin) = (cpu(), packets(&router), Instant::now());
    std::thread::sleep(TIME);
    let (after, seconds) = (cpu(), begin.elapsed().as_secs_f64());
    let packets = (packets(&router) - counted) as f64;
    let used = after.0 - before.0;
    println!(
        "{:.2}% of a CPU ({:.2} s user, {:.2} s system in {seconds:.0} s), {:.0} packets/s, {:.1} us for each; flaps: {}",
        100.0 * used / seconds,
        after.1 - before.1,
        after.2 - before.2,
        packets / seconds,
        used / packets * 1e6,
        router.view().iter().map(|v| v.entry.flaps).sum::<u64>(),
    );
    stop.stop();
    others.join().unwrap();
}
