//! Maximum prefixes, as peers see them.

use super::*;
use ribtide_bgp::fsm::Obstacle;
use ribtide_bgp::ingest::Refusal;

/// The clients' group with these settings.
fn clients(settings: &str) -> String {
    CLIENTS.replace("passive = true", &format!("passive = true\n{settings}"))
}

fn held(router: &Router, address: &str) -> Option<Obstacle> {
    router.neighbor(address).and_then(|neighbor| neighbor.held)
}

/// Accepted IPv4 prefixes against the limit, and refused ones.
fn counted(router: &Router, address: &str) -> Option<(u32, u64)> {
    let view = router.neighbor(address)?;
    let read = move |reader: &mut crate::reader::Reader| {
        let count = reader.prefix_count(view.id, AfiSafi::Ipv4Unicast)?.count;
        Some((count, reader.counters(view.id)?.refused(Refusal::MaxPrefixes)))
    };
    router.bgp().readers[view.up?.reader].call(read).unwrap()
}

fn reconfigure(router: &Router, bgp: &str) -> session::Neighbors {
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{bgp}");
    let bgp = config::parse(&text).unwrap().bgp.unwrap();
    router.bgp().sessions.call(move |s| s.reconfigure(&bgp)).unwrap().unwrap()
}

fn clear(router: &Router, address: &str) {
    let address: IpAddr = address.parse().unwrap();
    assert_eq!(router.bgp().sessions.call(move |s| s.reset(Some(address), "")).unwrap(), 1);
}

fn of_ipv4(count: u64) -> ribtide_prefix::ByFamily<u64> {
    ribtide_prefix::ByFamily::only(AfiSafi::Ipv4Unicast, count)
}

#[test]
fn restart_ends_the_session_with_the_limit_and_admits_it_after_the_idle_time() {
    for threads in THREADS {
        let router = Router::with(threads, &clients("max-prefixes = { ipv4-unicast = 100, idle-time = 2 }"));
        let mut other = Peer::up(&router, "127.0.0.12", 65001);
        let mut many = Peer::up(&router, "127.0.0.11", 65001);
        many.announce(&p4(0, 100));
        many.announce(&p4(0, 100));
        other.until("the limit itself is permitted", |p| p.routes.len() == 100);
        many.announce(&p4(100, 1));
        many.until("closed", |p| p.closed);
        let notification = many.notification.unwrap();
        assert_eq!(notification, Notification::max_prefixes(AfiSafi::Ipv4Unicast, 100));
        other.until("its routes are gone", |p| p.routes.is_empty());
        let neighbor = router.neighbor("127.0.0.11").unwrap();
        assert_eq!(neighbor.held, Some(Obstacle::MaxPrefixes(AfiSafi::Ipv4Unicast, 100)));
        assert!(neighbor.held_for.is_some_and(|left| left <= 2_000), "{:?}", neighbor.held_for);
        assert_eq!((neighbor.exceeded, neighbor.flaps), (of_ipv4(1), 1));
        assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 5));
        until("the idle time is over", || held(&router, "127.0.0.11").is_none());
        // A new session counts from nothing.
        let mut again = Peer::up(&router, "127.0.0.11", 65001);
        again.announce(&p4(50, 100));
        other.until("routes again", |p| p.routes.len() == 100);
    }
}

#[test]
fn restart_without_idle_time_waits_for_clear() {
    let router = Router::start(&clients("max-prefixes = { ipv4-unicast = 1, idle-time = 0 }"));
    for round in 1..=2 {
        let mut many = Peer::up(&router, "127.0.0.11", 65001);
        many.announce(&p4(0, 2));
        assert_eq!(many.notified(), (6, 1));
        until("held", || held(&router, "127.0.0.11").is_some());
        let neighbor = router.neighbor("127.0.0.11").unwrap();
        assert_eq!((neighbor.held_for, neighbor.exceeded), (None, of_ipv4(round)));
        assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 5));
        clear(&router, "127.0.0.11");
        assert_eq!(held(&router, "127.0.0.11"), None);
    }
}

#[test]
fn dynamic_neighbor_is_remembered_while_it_waits() {
    let world = CLIENTS.replace(
        "export = [\"accept\"]",
        "export = [\"accept\"]\nmax-prefixes = { ipv4-unicast = 1, idle-time = 1 }",
    );
    let router = Router::start(&world);
    let mut many = Peer::up(&router, "127.0.1.5", 65005);
    many.announce(&p4(0, 2));
    assert_eq!(many.notified(), (6, 1));
    assert_eq!(Peer::dial(&router, "127.0.1.5", 65005).notified(), (6, 5));
    until("forgotten after the idle time", || router.neighbor("127.0.1.5").is_none());
    let _up = Peer::up(&router, "127.0.1.5", 65005);
    // Its range goes: nothing waits for the end of an idle time.
    let mut many = Peer::up(&router, "127.0.1.6", 65006);
    many.announce(&p4(0, 2));
    assert_eq!(many.notified(), (6, 1));
    reconfigure(&router, &world.replace("127.0.1.0/24", "127.0.3.0/24"));
    assert!(router.neighbor("127.0.1.6").is_none());
}

#[test]
fn discard_keeps_the_limit_whatever_comes_and_with_any_threads() {
    for threads in THREADS {
        let limit = "max-prefixes = { ipv4-unicast = 1000, action = \"discard\" }";
        let router = Router::with(threads, &clients(limit));
        let mut other = Peer::up(&router, "127.0.0.12", 65001);
        let mut many = Peer::up(&router, "127.0.0.11", 65001);
        many.announce(&p4(0, 2000));
        many.announce::<V6>(&["2001:db8:1::/48".parse().unwrap()]);
        other.until("the limit and the other family", |p| p.routes.len() == 1001);
        assert_eq!(counted(&router, "127.0.0.11"), Some((1000, 1000)));
        // Which ones depends on the order of arrival alone.
        let first: Vec<AnyPrefix> = p4(0, 1000).into_iter().map(Prefix::any).collect();
        assert!(first.iter().all(|prefix| other.routes.contains_key(prefix)));
        many.withdraw(&p4(0, 10));
        many.announce(&p4(1500, 20));
        let last: Vec<AnyPrefix> = p4(1500, 10).into_iter().map(Prefix::any).collect();
        other.until("room that was made is used", |p| {
            p.routes.len() == 1001 && last.iter().all(|prefix| p.routes.contains_key(prefix))
        });
        assert_eq!(counted(&router, "127.0.0.11"), Some((1000, 1010)));
        assert_eq!(router.neighbor("127.0.0.11").unwrap().exceeded, of_ipv4(1));
        drop(many);
        other.until("all are gone", |p| p.routes.is_empty());
    }
}

#[test]
fn limit_of_a_live_session_takes_effect_with_the_routes_that_are_requested_again() {
    let router = Router::start(&clients(""));
    let mut other = Peer::up(&router, "127.0.0.12", 65001);
    let mut many = Peer::up(&router, "127.0.0.11", 65001);
    many.announce(&p4(0, 50));
    other.until("no limit", |p| p.routes.len() == 50);
    let mut refreshes = 0;
    for (settings, left) in [
        ("max-prefixes = { ipv4-unicast = 20, action = \"discard\" }", 20),
        ("max-prefixes = { ipv4-unicast = 30, action = \"discard\" }", 30),
        ("max-prefixes = { ipv4-unicast = 10, action = \"discard\" }", 10),
        ("", 50),
    ] {
        let changed = reconfigure(&router, &clients(settings));
        assert_eq!(changed.refreshed.len(), 2, "{changed:?}");
        refreshes += 2;
        many.until("routes of both families requested", |p| p.refreshes == refreshes);
        many.announce(&p4(0, 50));
        other.until(settings, |p| p.routes.len() == left);
    }
    assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 0);
    // Lower than what is there, with restart: the session ends, and a higher limit admits it at once.
    reconfigure(&router, &clients("max-prefixes = { ipv4-unicast = 49 }"));
    many.until("requested", |p| p.refreshes == refreshes + 2);
    many.announce(&p4(0, 50));
    assert_eq!(many.notified(), (6, 1));
    until("held", || held(&router, "127.0.0.11").is_some());
    reconfigure(&router, &clients("max-prefixes = { ipv4-unicast = 50 }"));
    assert_eq!(held(&router, "127.0.0.11"), None);
    let mut again = Peer::up(&router, "127.0.0.11", 65001);
    again.announce(&p4(0, 50));
    other.until("routes again", |p| p.routes.len() == 50);
}

#[test]
fn sent_limit_ends_one_session_before_it_gets_more_than_that() {
    for threads in THREADS {
        let neighbors = "neighbors = [\"127.0.0.11\", \"127.0.0.12\"]";
        let own = "neighbors = [\"127.0.0.11\"]\n[[bgp.group.clients.neighbor]]\naddress = \"127.0.0.12\"\n\
                   max-prefixes-out = { ipv4-unicast = 100, idle-time = 0 }";
        let router = Router::with(threads, &CLIENTS.replace(neighbors, own));
        let mut limited = Peer::up(&router, "127.0.0.12", 65001);
        let mut source = Peer::up(&router, "127.0.1.5", 65005);
        // Its own routes are not sent to it.
        limited.announce(&p4(5000, 200));
        source.announce(&p4(0, 100));
        let mut other = Peer::up(&router, "127.0.0.11", 65001);
        limited.until("the limit itself is permitted", |p| p.routes.len() == 100);
        other.until("both sources", |p| p.routes.len() == 300);
        source.announce(&p4(100, 50));
        limited.until("closed", |p| p.closed);
        assert_eq!(limited.routes.len(), 100, "nothing beyond the limit was sent");
        let text = limited.notification.unwrap().to_string();
        assert!(
            text.contains("administrative reset (\"more than 100 ipv4-unicast prefixes to send\")"),
            "{text}"
        );
        other.until("the group goes on", |p| p.routes.len() == 150);
        assert_eq!(held(&router, "127.0.0.12"), Some(Obstacle::MaxPrefixesOut(AfiSafi::Ipv4Unicast, 100)));
        // The table of a new session exceeds it too; then the limit is lifted.
        clear(&router, "127.0.0.12");
        let mut again = Peer::dial(&router, "127.0.0.12", 65001);
        again.open();
        assert_eq!(again.notified(), (6, 4));
        until("held again", || router.neighbor("127.0.0.12").unwrap().exceeded_out == of_ipv4(2));
        reconfigure(&router, CLIENTS);
        let mut again = Peer::up(&router, "127.0.0.12", 65001);
        again.until("everything", |p| p.routes.len() == 150);
        // A limit below what was sent acts at once, without another change.
        reconfigure(&router, &CLIENTS.replace(neighbors, own));
        assert_eq!(again.notified(), (6, 4));
    }
}

#[test]
fn shutdown_and_its_end_admit_a_neighbour_that_waits() {
    let limited = clients("max-prefixes = { ipv4-unicast = 100, idle-time = 0 }");
    let router = Router::start(&limited);
    let mut many = Peer::up(&router, "127.0.0.11", 65001);
    many.announce(&p4(0, 101));
    until("the limit ended the session", || held(&router, "127.0.0.11").is_some());
    reconfigure(&router, &limited.replace("passive = true", "passive = true\nshutdown = true"));
    reconfigure(&router, &limited);
    assert_eq!(held(&router, "127.0.0.11"), None);
    Peer::up(&router, "127.0.0.11", 65001);
}
