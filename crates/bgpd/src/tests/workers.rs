//! Another number of update threads while sessions last.

use super::*;

/// The worker of a neighbour.
fn worker_of(router: &Router, address: &str) -> usize {
    router.neighbor(address).unwrap().up.unwrap().worker
}

fn numbers(router: &Router) -> Vec<usize> {
    router.bgp().workers.running().into_iter().map(|(index, _)| index).collect()
}

/// Tries again while the end of former threads is under way.
fn set(bgp: &Bgp, threads: Threads) -> bool {
    let mut changed = None;
    until("update threads may change", || {
        changed = bgp.set_update_threads(threads).ok();
        changed.is_some()
    });
    changed.unwrap()
}

/// The same for shards: their numbers before and after.
fn resize(bgp: &Bgp, threads: Threads) -> (usize, usize) {
    let mut resized = None;
    until("shards may change", || {
        resized = bgp.resize(threads, None).ok();
        resized.is_some()
    });
    resized.map(|resized| (resized.from, resized.to)).unwrap()
}

#[test]
fn threads_off_and_on_sessions_last() {
    let router = Router::with("shards = 2\nupdate-threads = 2", CLIENTS);
    let bgp = router.bgp();
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    let mut x = Peer::up(&router, "127.0.1.5", 65005);
    a.announce(&p4(0, 100));
    x.until("the table", |p| p.routes.len() == 100);
    for round in 1..4 {
        assert!(set(bgp, Threads::Off));
        assert!(!set(bgp, Threads::Off));
        assert_eq!(resize(bgp, Threads::Off), (2, 0));
        assert_eq!(resize(bgp, Threads::Off), (0, 0));
        let hosted = bgp.hosted();
        assert!(hosted.shards && hosted.workers);
        a.announce(&p4(1000 * round, 50));
        x.until("routes still come", |p| p.routes.len() == 150);
        let mut y = Peer::up(&router, "127.0.1.6", 65006);
        y.until("a table of the session thread", |p| p.routes.len() == 150);
        assert!(set(bgp, Threads::Number(2)));
        assert_eq!(resize(bgp, Threads::Number(2)), (0, 2));
        a.withdraw(&p4(1000 * round, 50));
        x.until("routes still go", |p| p.routes.len() == 100);
        y.until("here too", |p| p.routes.len() == 100);
        drop(y);
    }
    for address in ["127.0.0.11", "127.0.1.5"] {
        assert_eq!(router.neighbor(address).unwrap().flaps, 0, "{address}");
    }
}

#[test]
fn set_update_threads_new_sessions_use_new_threads_and_excess_threads_end_with_their_last() {
    let router = Router::with("shards = 3\nupdate-threads = 1", CLIENTS);
    let bgp = router.bgp();
    let mut a = Peer::up(&router, "127.0.0.11", 65001);
    a.announce(&p4(0, 100));
    assert!(bgp.set_update_threads(Threads::Number(3)).unwrap());
    assert!(!bgp.set_update_threads(Threads::Number(3)).unwrap());
    assert_eq!(numbers(&router), [0, 1, 2]);
    // Another group: an idle worker gets it. It knows the source that came before it.
    let mut x = Peer::up(&router, "127.0.1.5", 65005);
    x.until("the table", |p| p.routes.len() == 100);
    assert_ne!(worker_of(&router, "127.0.1.5"), worker_of(&router, "127.0.0.11"));
    // A source after it.
    let mut b = Peer::up(&router, "127.0.0.12", 65001);
    b.announce(&p4(1000, 50));
    x.until("the later source's", |p| p.routes.len() == 150);
    a.until("of the same group", |p| p.routes.len() == 50);
    // Fewer: the session stays with its worker, which gets no other.
    assert!(bgp.set_update_threads(Threads::Number(1)).unwrap());
    let mut y = Peer::up(&router, "127.0.1.6", 65006);
    assert_eq!((worker_of(&router, "127.0.1.5") > 0, worker_of(&router, "127.0.1.6")), (true, 0));
    a.announce(&p4(2000, 10));
    x.until("routes still come", |p| p.routes.len() == 160);
    y.until("here too", |p| p.routes.len() == 160);
    let worker = worker_of(&router, "127.0.1.5");
    until("the unused one has ended", || numbers(&router) == [0, worker]);
    drop(x);
    until("and then the used one", || numbers(&router) == [0]);
    a.withdraw(&p4(0, 100));
    y.until("routes still leave", |p| p.routes.len() == 60);
    // More again: places of ended ones are used.
    drop(b);
    until("its session has ended", || router.neighbor("127.0.0.12").is_some_and(|n| n.up.is_none()));
    // The end of the former threads may still be under way.
    until("there are more again", || matches!(bgp.set_update_threads(Threads::Number(2)), Ok(true)));
    until("the shards are resized", || bgp.resize(Threads::Number(5), None).is_ok());
    let mut z = Peer::up(&router, "127.0.0.12", 65001);
    z.until("the table of all shards", |p| p.routes.len() == 10);
    assert_eq!(numbers(&router), [0, 1]);
    assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 0);
}
