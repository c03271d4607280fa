//! Neighbours that restart, as other peers see them: nothing, but what is different afterwards.

use super::*;

const RESTARTING: &str = "127.0.0.11";

/// Connects and establishes a session with graceful restart of this restart time.
fn up(router: &Router, from: &str, asn: u32, restart: u16) -> Peer {
    let mut peer = Peer::dial(router, from, asn);
    peer.restart = Some(restart);
    peer.open();
    until("established", || router.neighbor(from).is_some_and(|n| n.up.is_some()));
    peer
}

fn end_of_rib(peer: &mut Peer) {
    let mut out = Vec::new();
    build::end_of_rib(AfiSafi::Ipv4Unicast, &mut out);
    peer.stream.write_all(&out).unwrap();
}

/// Stale IPv4 paths of a neighbour in all shards.
fn stale(router: &Router, address: &str) -> u32 {
    let Some(id) = router.neighbor(address).map(|neighbor| neighbor.id) else { return 0 };
    let owners = router.bgp().owners.read();
    owners.shards.iter().map(|shard| shard.call(move |s| s.stale_count::<V4>(id)).unwrap()).sum()
}

/// Loses the session of the restarting peer, whose 1,000 routes the other one keeps.
fn lose(router: &Router, peer: Peer, other: &mut Peer) {
    other.until("all routes", |p| p.routes.len() == 1000);
    drop(peer);
    until("lost", || router.neighbor(RESTARTING).is_some_and(|n| n.retained.is_some()));
    until("marked", || stale(router, RESTARTING) == 1000);
}

#[test]
fn routes_stay_until_end_of_rib_with_any_threads() {
    for threads in THREADS {
        let router = Router::with(threads, CLIENTS);
        let mut other = Peer::up(&router, "127.0.0.12", 65001);
        let mut peer = up(&router, RESTARTING, 65001, 60);
        peer.announce(&p4(0, 1000));
        lose(&router, peer, &mut other);
        let mut peer = up(&router, RESTARTING, 65001, 60);
        let retained = router.neighbor(RESTARTING).unwrap().retained.unwrap();
        assert_eq!(
            (retained.families, retained.restart_left),
            (ribtide_prefix::FamilySet::IPV4_UNICAST, None)
        );
        peer.announce(&p4(100, 950));
        other.until("the new ones beside the old ones", |p| p.routes.len() == 1050);
        assert_eq!(stale(&router, RESTARTING), 100);
        end_of_rib(&mut peer);
        other.until("the old ones are gone", |p| p.routes.len() == 950);
        until("the end is known", || router.neighbor(RESTARTING).is_some_and(|n| n.retained.is_none()));
        until("no trace", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
        drop(peer);
        lose_for_good(&router, &mut other);
    }
}

/// The operator's reset ends it.
fn lose_for_good(router: &Router, other: &mut Peer) {
    until("lost", || router.neighbor(RESTARTING).is_some_and(|n| n.retained.is_some()));
    let address: IpAddr = RESTARTING.parse().unwrap();
    assert_eq!(router.bgp().sessions.call(move |s| s.reset(Some(address), "")).unwrap(), 1);
    other.until("all are gone", |p| p.routes.is_empty());
    until("no trace", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
}

#[test]
fn stale_routes_move_with_their_shards() {
    // Enough shards for two readers.
    let router = Router::with("shards = 8\nupdate-threads = 2", CLIENTS);
    let mut other = Peer::up(&router, "127.0.0.12", 65001);
    let mut peer = up(&router, RESTARTING, 65001, 60);
    peer.announce(&p4(0, 1000));
    lose(&router, peer, &mut other);
    router.bgp().resize(Threads::Number(5), None).unwrap();
    assert_eq!(stale(&router, RESTARTING), 1000);
    // The reader of the lost session is not the least loaded one any more, and has to be taken nevertheless.
    let _third = Peer::up(&router, "127.0.1.9", 65009);
    let mut peer = up(&router, RESTARTING, 65001, 60);
    peer.announce(&p4(0, 400));
    until("taken over", || stale(&router, RESTARTING) == 600);
    router.bgp().resize(Threads::Number(1), None).unwrap();
    assert_eq!(stale(&router, RESTARTING), 600);
    other.read();
    assert_eq!(other.routes.len(), 1000);
    end_of_rib(&mut peer);
    other.until("the old ones are gone", |p| p.routes.len() == 400);
    until("no trace", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
}

#[test]
fn a_dynamic_neighbour_is_remembered_for_its_restart_time() {
    let router = Router::start(CLIENTS);
    let mut other = Peer::up(&router, "127.0.0.12", 65001);
    let mut peer = up(&router, "127.0.1.5", 65005, 2);
    peer.announce(&p4(0, 10));
    other.until("its routes", |p| p.routes.len() == 10);
    let id = router.neighbor("127.0.1.5").unwrap().id;
    drop(peer);
    until("lost", || router.neighbor("127.0.1.5").is_some_and(|n| n.retained.is_some()));
    other.read();
    assert_eq!(other.routes.len(), 10);
    until("forgotten", || router.neighbor("127.0.1.5").is_none());
    other.until("its routes are gone", |p| p.routes.is_empty());
    until("no trace", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
    let mut next = Peer::up(&router, "127.0.1.6", 65006);
    assert_eq!(router.neighbor("127.0.1.6").unwrap().id, id, "its number is free again");
    next.announce(&p4(0, 3));
    other.until("of another", |p| p.routes.len() == 3);
}

#[test]
fn the_restart_time_of_a_neighbour_ends_and_a_removed_one_leaves_nothing() {
    let router = Router::start(CLIENTS);
    let mut other = Peer::up(&router, "127.0.0.12", 65001);
    let mut peer = up(&router, RESTARTING, 65001, 1);
    peer.announce(&p4(0, 1000));
    other.until("all routes", |p| p.routes.len() == 1000);
    drop(peer);
    other.until("gone", |p| p.routes.is_empty());
    let neighbor = router.neighbor(RESTARTING).unwrap();
    assert_eq!((neighbor.stale_expired, neighbor.retained), (1, None));
    let mut peer = up(&router, RESTARTING, 65001, 60);
    peer.announce(&p4(0, 1000));
    lose(&router, peer, &mut other);
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{CLIENTS}");
    let bgp = config::parse(&text.replace("\"127.0.0.11\", ", "")).unwrap().bgp.unwrap();
    router.bgp().sessions.call(move |s| s.reconfigure(&bgp)).unwrap().unwrap();
    other.until("gone with the neighbour", |p| p.routes.is_empty());
    until("no trace", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
}
