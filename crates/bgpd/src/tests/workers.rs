//! Another number of update threads while sessions last.

use super::*;

/// The worker of a neighbour.
fn worker_of(router: &Router, address: &str) -> usize {
    router.neighbor(address).unwrap().up.unwrap().worker
}

fn numbers(router: &Router) -> Vec<usize> {
    router.bgp().workers.running().into_iter().map(|(index, _)| index).collect()
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
