//! Another number of shards under load: no session is lost, and the end is that of a router that was never resized.

use super::*;
use crate::shard::ShardPort;
use ribtide_bgp::shard::RouteView;
use ribtide_prefix::{BgpFamily, LOGICAL_SHARDS, logical_shard};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Clients that announce, and those that only listen, from the beginning or later.
const SENDERS: [&str; 4] = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"];
const EARLY: &str = "127.0.0.21";
const LATE: [&str; 3] = ["127.0.0.22", "127.0.0.23", "127.0.0.24"];
/// One whose routes never change.
const STEADY: &str = "127.0.0.15";

/// Prefixes that every sender has a path for.
const PREFIXES: u32 = 6000;

/// Prefixes of the client whose routes never change, enough that many logical shards have some.
fn steady() -> Vec<Prefix<V4>> {
    (0..3000).map(|i| Prefix::new(0x0b00_0000 + (i << 10), 24)).collect()
}

/// Looks for routes that never change, one by one and as pages do, until told to stop: they are always there, once.
fn query(router: &Router, stop: &AtomicBool) {
    let steady = steady();
    for prefixes in steady.chunks(50).cycle() {
        for prefix in prefixes.iter().copied() {
            if stop.load(Relaxed) {
                return;
            }
            let owners = router.bgp().owners.read();
            let (_, shard) = owners.of(prefix).unwrap();
            assert!(
                shard.call(move |s| s.lookup(prefix)).unwrap().is_some(),
                "{prefix} is not where it should be"
            );
        }
        let logical = logical_shard(prefixes[0]);
        let owners = router.bgp().owners.read();
        let found =
            owners.having(logical).flat_map(|(_, s)| s.call(move |s| s.prefixes::<V4>(logical)).unwrap());
        let mut found: Vec<_> = found.filter(|prefix| steady.binary_search(prefix).is_ok()).collect();
        found.sort_unstable();
        let expected: Vec<_> = steady.iter().copied().filter(|p| logical_shard(*p) == logical).collect();
        assert!(found == expected, "a page of {} prefixes, not {}", found.len(), expected.len());
    }
}

/// Every table of the router and of the listeners.
type Tables = (BTreeMap<AnyPrefix, Vec<String>>, Vec<BTreeMap<AnyPrefix, Vec<u8>>>);

/// Announces `prefixes` with a path that `variant` decides, some of them alike for all senders.
fn announce(peer: &mut Peer, prefixes: &[Prefix<V4>], variant: u32) {
    let mut attributes = Vec::new();
    build::origin(&mut attributes, Origin::Igp);
    let mut path = vec![SegmentKind::Sequence as u8, 1 + (variant % 3) as u8];
    (0..=variant % 3).for_each(|i| path.extend_from_slice(&(64500 + variant % 7 + i).to_be_bytes()));
    build::as_path(&mut attributes, AsPath::new(&path));
    build::med(&mut attributes, variant % 11);
    build::local_pref(&mut attributes, 100);
    let next_hop = NextHop::V4(Ipv4Addr::new(192, 0, 2, (variant % 5) as u8 + 1));
    let mut out = Vec::new();
    UpdatePacker::new(&attributes, next_hop, 4096).announce(prefixes.iter().copied(), &mut out).unwrap();
    peer.stream.write_all(&out).unwrap();
}

/// Prefixes in blocks all over the space, so that every logical shard has some.
fn scattered(range: std::ops::Range<u32>) -> Vec<Prefix<V4>> {
    range.map(|i| Prefix::new((i.wrapping_mul(0x9e37_79b1)) & 0xffff_ff00, 24)).collect()
}

/// Announces and withdraws until told to stop, then leaves what it always leaves.
fn send(router: &Router, from: &str, number: u32, stop: &AtomicBool) -> Peer {
    let mut peer = Peer::up(router, from, 65001);
    let mut round = 0;
    while !stop.load(Relaxed) || round < 3 {
        for begin in (0..PREFIXES).step_by(50) {
            let prefixes = scattered(begin..begin + 50);
            match (begin / 50 + round + number) % 4 {
                0 => peer.withdraw(&prefixes),
                _ => announce(&mut peer, &prefixes, begin / 50 * 3 + round * 5 + number),
            }
        }
        peer.read();
        round += 1;
    }
    for begin in (0..PREFIXES).step_by(50) {
        let prefixes = scattered(begin..begin + 50);
        match (begin / 50 + number) % 6 {
            0 => peer.withdraw(&prefixes),
            _ => announce(&mut peer, &prefixes, begin / 50 + number * (begin / 100 % 3)),
        }
    }
    peer
}

/// Comes and goes, each time from another address.
fn flap(router: &Router, stop: &AtomicBool) {
    let mut times = 0;
    while !stop.load(Relaxed) || times < 3 {
        let from = format!("127.0.1.{}", 1 + times % 250);
        let mut peer = Peer::up(router, &from, 65007);
        peer.announce(&scattered(0..PREFIXES / 2));
        (0..3).for_each(|_| peer.read());
        times += 1;
        drop(peer);
        until("the flapping peer is forgotten", || router.neighbor(&from).is_none());
    }
}

fn listen(router: &Router, from: &str, stop: &AtomicBool) -> Peer {
    let mut peer = Peer::up(router, from, 65001);
    while !stop.load(Relaxed) {
        peer.read();
    }
    peer
}

fn row<F: BgpFamily>(view: &RouteView<F>) -> (AnyPrefix, Vec<String>) {
    let mut paths: Vec<String> = view
        .paths
        .iter()
        .map(|p| format!("{} {} {:?} {:?}", p.peer.address, p.best, p.attrs.bytes(), p.attrs.next_hop()))
        .collect();
    paths.sort();
    (view.prefix.any(), paths)
}

/// All that the shards hold, found as the API finds it.
fn table(router: &Router) -> BTreeMap<AnyPrefix, Vec<String>> {
    let mut rows = BTreeMap::new();
    let owners = router.bgp().owners.read();
    for logical in 0..LOGICAL_SHARDS {
        for (_, shard) in owners.having(logical) {
            let found = shard.call(move |shard| {
                let prefixes = shard.prefixes::<V4>(logical);
                prefixes.into_iter().map(|p| row(&shard.lookup(p).unwrap())).collect::<Vec<_>>()
            });
            rows.extend(found.unwrap());
        }
    }
    rows
}

/// The setting of so many threads; 0: off.
fn threads(number: u16) -> Threads {
    if number == 0 { Threads::Off } else { Threads::Number(number) }
}

/// The same history with these numbers of shards one after another. If one of them is 0, update threads go off and come again,
/// too.
fn history(update_threads: &str, numbers: &[u16]) -> Tables {
    let clients: Vec<String> =
        SENDERS.iter().chain([&EARLY, &STEADY]).chain(&LATE).map(|a| format!("\"{a}\"")).collect();
    let first = if numbers[0] == 0 { "\"off\"".into() } else { numbers[0].to_string() };
    let threaded = format!("shards = {first}\nupdate-threads = {update_threads}");
    let bgp = CLIENTS.replace("\"127.0.0.11\", \"127.0.0.12\"", &clients.join(", "));
    let router = Router::with(&threaded, &bgp);
    let stop = AtomicBool::new(false);
    let mut constant = Peer::up(&router, STEADY, 65001);
    constant.announce(&steady());
    until("the routes that never change are there", || table(&router).len() == steady().len());
    let (senders, mut listeners) = std::thread::scope(|scope| {
        let (router, stop) = (&router, &stop);
        let senders: Vec<_> = (0..)
            .zip(SENDERS)
            .map(|(number, from)| scope.spawn(move || send(router, from, number, stop)))
            .collect();
        let mut listeners = vec![scope.spawn(move || listen(router, EARLY, stop))];
        scope.spawn(|| flap(router, stop));
        scope.spawn(|| query(router, stop));
        let constant = &mut constant;
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                constant.read();
            }
        });
        until("routes flow", || {
            router.bgp().owners.read().shards[0]
                .call(|s| s.counts().families[AfiSafi::Ipv4Unicast].paths)
                .unwrap()
                > steady().len()
        });
        for (step, number) in numbers.iter().enumerate() {
            let came = LATE.get(step).map(|from| scope.spawn(move || listen(router, from, stop)));
            listeners.extend(came);
            let mut resized = None;
            until("shards may change", || {
                resized = router.bgp().resize(threads(*number), None).ok();
                resized.is_some()
            });
            let resized = resized.unwrap();
            assert_eq!(resized.to, usize::from(*number));
            assert_eq!(router.bgp().hosted().shards, *number == 0);
            assert_eq!(router.bgp().owners.read().shards.len(), resized.to.max(1));
            assert_eq!(resized.logical_shards > 0, resized.from.max(1) != resized.to.max(1));
            if numbers.contains(&0) {
                let update_threads = [0, 3, 0, 1][step % 4];
                until("update threads may change", || {
                    router.bgp().set_update_threads(threads(update_threads)).is_ok()
                });
                assert_eq!(router.bgp().hosted().workers, update_threads == 0);
            }
            assert!(table(router).len() <= PREFIXES as usize + steady().len(), "a prefix is in two shards");
            assert!(resized.stops.longest <= resized.stops.all);
            // No prefix has more paths than there are senders.
            assert!(resized.most_paths <= 1 << 15 && (resized.most_paths > 0) == (resized.prefixes > 0));
        }
        let late = numbers.len().min(LATE.len());
        listeners.extend(LATE[late..].iter().map(|from| scope.spawn(move || listen(router, from, stop))));
        stop.store(true, Relaxed);
        let join = |threads: Vec<std::thread::ScopedJoinHandle<'_, Peer>>| -> Vec<Peer> {
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        };
        (join(senders), join(listeners))
    });

    // The last word of every sender has gone through when routes that follow it in every shard have.
    let mut senders = senders;
    let marks_of =
        |number: u32| (0..256).map(move |i| Prefix::<V4>::new(0xc612_0000 + (number << 16) + (i << 8), 24));
    for (number, sender) in (0..).zip(&mut senders) {
        sender.announce(&marks_of(number).collect::<Vec<_>>());
    }
    let marks: Vec<AnyPrefix> = (0..4).flat_map(marks_of).map(Prefix::any).collect();
    for listener in &mut listeners {
        listener.until("every sender's last word", |p| marks.iter().all(|mark| p.routes.contains_key(mark)));
        assert!(listener.ends.len() == 2, "one End-of-RIB for each family: {:?}", listener.ends);
    }
    until("every session's end is accounted for", || {
        router.bgp().sessions.call(|s| s.ending()).unwrap() == 0
    });
    let routes = table(&router);
    for listener in &mut listeners {
        listener.until("the whole table", |p| p.routes.len() == routes.len());
    }
    // A mark can overtake a change of a path in the same flush, which changes no length.
    until("every listener has the same table", || {
        listeners.iter_mut().for_each(Peer::read);
        listeners.iter().all(|listener| listener.routes == listeners[0].routes)
    });
    for address in SENDERS.iter().chain([&EARLY]).chain(&LATE) {
        let neighbor = router.neighbor(address).unwrap();
        assert_eq!(
            (neighbor.flaps, neighbor.up.is_some()),
            (0, true),
            "{address}: {:?}",
            neighbor.last_error
        );
    }
    constant.read();
    assert!(!constant.closed && constant.notification.is_none());
    senders.iter_mut().for_each(Peer::read);
    assert!(senders.iter().chain(&listeners).all(|peer| !peer.closed && peer.notification.is_none()));
    (routes, listeners.into_iter().map(|listener| listener.routes).collect())
}

#[test]
fn shards_come_and_go_under_load_and_nothing_else_changes() {
    let still = history("2", &[2]);
    assert!(still.0.len() > 5000 && still.1.iter().all(|table| *table == still.1[0]));
    for (update_threads, numbers) in [("2", &[1, 4, 2][..]), ("\"off\"", &[3, 1, 7]), ("2", &[2, 0, 3, 0])] {
        let resized = history(update_threads, numbers);
        assert!(resized.0 == still.0, "the shards hold something else after {numbers:?}");
        for (table, expected) in resized.1.iter().zip(&still.1) {
            assert_eq!(table.len(), expected.len());
            assert!(table == expected, "a listener was told something else with {numbers:?}");
        }
    }
}

#[test]
fn what_cannot_be_resized_says_why_and_goes_on() {
    let router = Router::with("shards = 2\nupdate-threads = 1", CLIENTS);
    let message = router.bgp().resize(Threads::Number(65), None).unwrap_err().to_string();
    assert!(message.contains("65 shard threads cannot be"), "{message}");
    let same = router.bgp().resize(Threads::Number(2), None).unwrap();
    assert_eq!((same.from, same.to, same.logical_shards), (2, 2, 0));
}

#[test]
fn peer_that_comes_after_a_resize_gets_the_table_of_every_shard() {
    let router = Router::with("shards = 1\nupdate-threads = 1", CLIENTS);
    let mut first = Peer::up(&router, "127.0.0.11", 65001);
    first.announce(&p4(0, 100));
    until("all are there", || table(&router).len() == 100);
    assert_eq!(router.bgp().resize(Threads::Number(3), None).unwrap().to, 3);
    let mut second = Peer::up(&router, "127.0.0.12", 65001);
    second.until("the table and its ends", |p| p.routes.len() == 100 && p.ends.len() == 2);
}

/// Enough for several parts.
fn many() -> Vec<Prefix<V4>> {
    (0..20_000).map(|i| Prefix::new(0x0b00_0000 + (i << 8), 24)).collect()
}

#[test]
fn resize_while_another_is_under_way_is_refused_and_the_first_ends_as_asked() {
    let router = Router::with("shards = 1\nupdate-threads = 1", CLIENTS);
    let mut peer = Peer::up(&router, "127.0.0.11", 65001);
    peer.announce(&many());
    until("all are there", || table(&router).len() == many().len());
    // Each caller reserves the stages first. One calls again and again, and is refused while another does.
    let resize = |to| {
        let _reservation = router.bgp().reserve().map_err(|e| e.to_string())?;
        router.bgp().resize(Threads::Number(to), None).map_err(|e| e.to_string())
    };
    let stop = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        let (resize, stop) = (&resize, &stop);
        let other = scope.spawn(move || {
            let mut refused = 0;
            while !stop.load(Relaxed) {
                match resize(2) {
                    Ok(resized) => {
                        assert_eq!(resized.to, 2);
                        // The other one has its turn too.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => {
                        assert!(error.contains("just being resized"), "{error}");
                        refused += 1;
                    }
                }
            }
            refused
        });
        let (mut done, mut refused) = (0, 0);
        while done < 6 && !other.is_finished() {
            match resize(3) {
                Ok(resized) => {
                    assert_eq!(resized.to, 3);
                    done += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    assert!(error.contains("just being resized"), "{error}");
                    refused += 1;
                }
            }
        }
        stop.store(true, Relaxed);
        refused + other.join().unwrap()
    });
    assert!(busy > 0);
    let threads = router.bgp().owners.read().shards.len();
    assert!(threads == 2 || threads == 3);
    assert_eq!(table(&router).len(), many().len());
    let same = router.bgp().resize(Threads::Number(threads as u16), None).unwrap();
    assert_eq!((same.from, same.logical_shards), (threads, 0), "nothing was left half done");
}

#[test]
fn session_that_ends_in_a_resize_leaves_nothing_behind() {
    let router = Router::with("shards = 1\nupdate-threads = 1", CLIENTS);
    let mut stays = Peer::up(&router, "127.0.0.12", 65001);
    stays.announce(&many()[..100]);
    for (to, from) in [(4, 1), (1, 4)] {
        let mut ends = Peer::up(&router, "127.0.0.11", 65001);
        ends.announce(&many());
        until("all are there", || table(&router).len() == many().len());
        std::thread::scope(|scope| {
            let resize = scope.spawn(|| router.bgp().resize(Threads::Number(to), None).unwrap());
            until("some have moved", || {
                let owners = router.bgp().owners.read();
                resize.is_finished() || owners.split.is_some() || owners.map != Owners::map(from)
            });
            drop(ends);
            assert_eq!(resize.join().unwrap().to, usize::from(to));
        });
        until("its end is accounted for", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
        until("its routes are gone", || table(&router).len() == 100);
        let paths =
            |shard: &ShardPort| shard.call(|s| s.counts().families[AfiSafi::Ipv4Unicast].paths).unwrap();
        assert_eq!(router.bgp().owners.read().shards.iter().map(paths).sum::<usize>(), 100);
    }
    stays.read();
    assert!(!stays.closed);
}
