//! Another configuration of the neighbours: only those it is about notice.

use super::*;
use crate::session::Neighbors;
use ribtide_bgp::peer::EgressSettings;

fn config(bgp: &str) -> BgpConfig {
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{bgp}");
    config::parse(&text).unwrap().bgp.unwrap()
}

impl Router {
    fn reconfigure(&self, bgp: &str) -> Result<Neighbors, String> {
        let bgp = config(bgp);
        self.bgp().sessions.call(move |s| s.reconfigure(&bgp)).unwrap()
    }
}

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|a| a.parse().unwrap()).collect()
}

#[test]
fn only_neighbours_whose_settings_changed_notice() {
    let router = Router::start(CLIENTS);
    let [mut stays, removed, mut described] = ["127.0.0.11", "127.0.0.12", "127.0.1.1"]
        .map(|a| Peer::up(&router, a, if a.contains(".1.") { 65005 } else { 65001 }));
    stays.announce(&p4(0, 10));
    assert_eq!(router.reconfigure(CLIENTS), Ok(Neighbors::default()));

    // One goes, one comes, the range is another group's by name only.
    let other = CLIENTS.replace("127.0.0.12", "127.0.0.13").replace("group.world", "group.planet");
    let expected = Neighbors {
        added: addresses(&["127.0.0.13"]),
        removed: addresses(&["127.0.0.12"]),
        refreshed: addresses(&["127.0.1.1"]),
        ..Neighbors::default()
    };
    assert_eq!(router.reconfigure(&other), Ok(expected));
    assert_eq!(removed.notified(), (6, 3), "peer de-configured");
    assert_eq!(Peer::dial(&router, "127.0.0.12", 65001).notified(), (6, 5));
    assert!(router.neighbor("127.0.0.12").is_none());
    assert_eq!(router.neighbor("127.0.1.1").unwrap().group, "planet");
    let mut came = Peer::up(&router, "127.0.0.13", 65001);
    came.until("routes", |p| p.routes.len() == 10);

    // Another hold time takes another session; of dynamic neighbours too.
    let slower = other.replace("passive = true", "passive = true\nhold-time = 30");
    let reset = Neighbors { reset: addresses(&["127.0.0.11", "127.0.0.13"]), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&slower), Ok(reset));
    assert_eq!(stays.notified(), (6, 6), "other configuration change");
    assert_eq!(came.notified(), (6, 6));
    described.until("what the others had sent is gone", |p| p.ends.len() == 1 && p.routes.is_empty());
    let mut again = Peer::up(&router, "127.0.0.11", 65001);
    assert_eq!(router.neighbor("127.0.0.11").unwrap().up.unwrap().negotiated.hold_time, 30);
    again.announce(&p4(0, 20));
    described.until("routes of the new session", |p| p.routes.len() == 20);

    // The range goes, and with it who came from it.
    let closed = slower.replace("127.0.1.0/24", "127.0.3.0/24");
    let gone = Neighbors { removed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&closed), Ok(gone));
    assert_eq!(described.notified(), (6, 3));
    again.until("still there", |p| p.ends.len() == 2);
    assert!(!again.closed);
    until("ends are accounted for", || router.bgp().sessions.call(|s| s.ending()).unwrap() == 0);
}

#[test]
fn another_import_policy_asks_for_the_routes_again_and_keeps_the_session() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.1.1", 65005);
    let mut listener = Peer::up(&router, "127.0.0.11", 65001);
    source.announce(&p4(0, 10));
    listener.until("routes", |p| p.routes.len() == 10);
    let refused = CLIENTS.replace("import = [\"accept\"]", "import = [\"reject\"]");
    let refreshed = Neighbors { refreshed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&refused), Ok(refreshed.clone()));
    source.until("asked again", |p| p.refreshes == 1);
    source.announce(&p4(0, 10));
    listener.until("no routes", |p| p.routes.is_empty());
    assert_eq!(router.reconfigure(CLIENTS), Ok(refreshed));
    source.until("asked again", |p| p.refreshes == 2);
    source.announce(&p4(0, 10));
    listener.until("routes again", |p| p.routes.len() == 10);
    assert_eq!(router.neighbor("127.0.1.1").unwrap().flaps, 0);
}

#[test]
fn another_export_policy_takes_back_what_it_forbids_and_keeps_the_session() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.0.11", 65001);
    let mut listener = Peer::up(&router, "127.0.1.1", 65005);
    source.announce(&p4(0, 10));
    listener.until("routes", |p| p.routes.len() == 10);
    let closed = CLIENTS.replace("export = [\"accept\"]", "export = [\"reject\"]");
    let refreshed = Neighbors { refreshed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&closed), Ok(refreshed.clone()));
    listener.until("routes taken back", |p| p.routes.is_empty());
    source.withdraw(&p4(0, 5));
    source.announce(&p4(100, 7));
    assert_eq!(router.reconfigure(CLIENTS), Ok(refreshed));
    listener.until("routes again", |p| p.routes.len() == 12);
    assert_eq!(listener.ends, [AfiSafi::Ipv4Unicast], "no second End-of-RIB");
    let (neighbor, worker) =
        (router.neighbor("127.0.1.1").unwrap(), |n: &session::NeighborView| n.up.as_ref().unwrap().worker);
    assert_eq!((neighbor.flaps, listener.refreshes), (0, 0));
    drop(listener);
    until("its session is over", || router.neighbor("127.0.1.1").is_none());
    let groups = router.bgp().workers.get(worker(&neighbor)).unwrap().call(|w| w.groups().len()).unwrap();
    assert!(groups <= 1, "a group without members is gone");
}

#[test]
fn prefix_sid_changes_both_directions_and_keeps_the_session() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.1", 65005);
    source.announce(&p4(0, 10));
    external.until("routes", |p| p.routes.len() == 10);
    let refreshed = Neighbors { refreshed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    let inside = CLIENTS.replace("type = \"external\"", "type = \"external\"\nprefix-sid = true");
    for (config, requests, prefix_sid) in [(inside.as_str(), 1, true), (CLIENTS, 2, false)] {
        external.routes.clear();
        assert_eq!(router.reconfigure(config), Ok(refreshed.clone()));
        external.until("asked for its routes", |p| p.refreshes == requests);
        external.until("every route again", |p| p.routes.len() == 10);
        let up = router.neighbor("127.0.1.1").unwrap().up.unwrap();
        let groups = router.bgp().workers.get(up.worker).unwrap().call(|w| w.groups()).unwrap();
        let own = groups.iter().find(|group| group.members.contains(&up.info.id)).unwrap();
        assert_eq!(own.settings.prefix_sid, prefix_sid);
    }
    assert_eq!(router.neighbor("127.0.1.1").unwrap().flaps, 0);
}

/// A path that changes with the settings is sent again, and one that may be accepted is requested; `local-as` is part
/// of the session.
#[test]
fn as_numbers_change_with_a_reload() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.1", 65005);
    source.announce(&p4(0, 10));
    external.until("routes", |p| p.routes.len() == 10);
    let has = |peer: &Peer, path: &[u8]| {
        peer.routes.values().all(|attributes| attributes.windows(path.len()).any(|at| at == path))
    };
    let begins = |asn: u32| [&[0x40, 2][..], &[6, 2, 1], &asn.to_be_bytes()].concat();
    assert!(has(&external, &begins(65001)));
    let with =
        |settings: &str| CLIENTS.replace("type = \"external\"", &format!("type = \"external\"\n{settings}"));
    let refreshed = Neighbors { refreshed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    for (settings, requests) in
        [("allowas-in = 2", 1), ("as-override = true", 2), ("remove-private-as = true", 2), ("", 2)]
    {
        external.routes.clear();
        assert_eq!(router.reconfigure(&with(settings)), Ok(refreshed.clone()), "{settings}");
        external.until("asked for its routes", |p| p.refreshes == requests);
        if !settings.starts_with("allowas") {
            external.until("every route again", |p| p.routes.len() == 10);
        }
        let up = router.neighbor("127.0.1.1").unwrap().up.unwrap();
        let groups = router.bgp().workers.get(up.worker).unwrap().call(|w| w.groups()).unwrap();
        let own = groups.iter().find(|group| group.members.contains(&up.info.id)).unwrap();
        let EgressSettings { as_override, remove_private_as, .. } = &own.settings;
        assert_eq!(
            (as_override.is_some(), remove_private_as.is_some()),
            (settings.starts_with("as-"), settings.starts_with("remove"))
        );
    }
    assert_eq!(router.neighbor("127.0.1.1").unwrap().flaps, 0);
    let local_as = with("local-as = { asn = 65010, replace = true }");
    let reset = router.reconfigure(&local_as);
    assert_eq!(reset, Ok(Neighbors { reset: addresses(&["127.0.1.1"]), ..Neighbors::default() }));
    until("its session is over", || router.neighbor("127.0.1.1").is_none());
    let mut external = Peer::up(&router, "127.0.1.1", 65005);
    external.until("routes", |p| p.routes.len() == 10);
    assert!(has(&external, &begins(65010)));
    assert_eq!(router.neighbor("127.0.1.1").unwrap().up.unwrap().negotiated.local_asn, 65010);
}

/// RFC 8326 section 4.2: the community goes out, LOCAL_PREF 0 and the community come in, and no session ends.
#[test]
fn graceful_shutdown_changes_both_directions_and_keeps_the_session() {
    let router = Router::start(CLIENTS);
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.1", 65005);
    internal.announce(&p4(0, 10));
    external.announce(&p4(100, 10));
    external.until("routes", |p| p.routes.len() == 10);
    internal.until("routes", |p| p.routes.len() == 10);
    let has = |peer: &Peer, attribute: &[u8]| {
        peer.routes.values().all(|attributes| attributes.windows(attribute.len()).any(|at| at == attribute))
    };
    let (community, lowest, usual) =
        ([8, 4, 0xff, 0xff, 0, 0], [0x40, 5, 4, 0, 0, 0, 0], [0x40, 5, 4, 0, 0, 0, 100]);
    let refreshed = Neighbors { refreshed: addresses(&["127.0.1.1"]), ..Neighbors::default() };
    let leaving = CLIENTS.replace("type = \"external\"", "type = \"external\"\ngraceful-shutdown = true");
    for (config, requests, leaves) in [(leaving.as_str(), 1, true), (CLIENTS, 2, false)] {
        assert_eq!(router.reconfigure(config), Ok(refreshed.clone()));
        external.until("asked for its routes", |p| p.refreshes == requests);
        external.announce(&p4(100, 10));
        external.until("routes to it", |p| p.routes.len() == 10 && has(p, &community) == leaves);
        let wanted = if leaves { lowest } else { usual };
        internal.until("routes from it", |p| {
            p.routes.len() == 10 && has(p, &wanted) && has(p, &community) == leaves
        });
        assert_eq!(router.neighbor("127.0.1.1").unwrap().graceful_shutdown, leaves);
    }
    assert_eq!(router.neighbor("127.0.1.1").unwrap().flaps, 0);
}

#[test]
fn shutdown_ends_the_session_with_its_text_until_it_is_removed() {
    let router = Router::start(CLIENTS);
    let [up, dynamic] =
        [("127.0.0.11", 65001), ("127.0.1.1", 65005)].map(|(a, asn)| Peer::up(&router, a, asn));
    let down = CLIENTS.replace("type = ", "shutdown = \"back at ten\"\ntype = ");
    let shut_down = addresses(&["127.0.0.11", "127.0.0.12", "127.0.1.1"]);
    let expected = Neighbors { shut_down: shut_down.clone(), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&down), Ok(expected));
    let farewell = Notification::cease_with_text(cease::ADMIN_SHUTDOWN, "back at ten");
    assert_eq!([up, dynamic].map(Peer::notification), [farewell.clone(), farewell.clone()]);
    // Neither a neighbour nor a range takes a connection, and both say why.
    for (address, asn) in [("127.0.0.11", 65001), ("127.0.1.1", 65005)] {
        assert_eq!(Peer::dial(&router, address, asn).notification(), farewell);
    }
    assert!(router.neighbor("127.0.1.1").is_none());
    assert_eq!(router.neighbor("127.0.0.11").unwrap().shutdown.as_deref(), Some("back at ten"));

    // It stays so with other settings, another text, and the settings that need a new session.
    let slower =
        down.replace("passive = true", "passive = true\nhold-time = 30").replace("at ten", "at noon");
    let reset = Neighbors { reset: addresses(&["127.0.0.11", "127.0.0.12"]), ..Neighbors::default() };
    assert_eq!(router.reconfigure(&slower), Ok(reset));
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 2));

    let started = Neighbors { started: shut_down[..2].to_vec(), ..Neighbors::default() };
    assert_eq!(router.reconfigure(CLIENTS), Ok(started));
    let _up = [("127.0.0.11", 65001), ("127.0.1.1", 65005)].map(|(a, asn)| Peer::up(&router, a, asn));
}

#[test]
fn a_neighbour_that_starts_shut_down_begins_with_a_reload() {
    let router = Router::start(&CLIENTS.replace("type = ", "shutdown = true\ntype = "));
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 2));
    router.reconfigure(CLIENTS).unwrap();
    let _up = Peer::up(&router, "127.0.0.11", 65001);
}

/// A kernel without TCP-AO carries no session that has keys: neither at the start nor after a reload.
#[test]
fn tcp_ao_is_refused_where_the_kernel_has_none() {
    use crate::session::tcp_ao::{UNSUPPORTED, is_supported};
    let keys = "tcp-ao = { keys = [{ id = 1, secret = \"topsecret\" }] }";
    let signed = CLIENTS.replace("passive = true", &format!("passive = true\n{keys}"));
    if is_supported().unwrap() {
        return println!("skipped: the kernel has TCP-AO");
    }
    let refused = BgpBuilder::new(&config(&signed), &Rings::default()).err().unwrap().to_string();
    assert!(refused.contains("127.0.") && refused.contains(UNSUPPORTED), "{refused}");
    let router = Router::start(CLIENTS);
    let mut stays = Peer::up(&router, "127.0.0.11", 65001);
    let refused = router.reconfigure(&signed).unwrap_err();
    assert!(refused.contains(UNSUPPORTED) && !refused.contains("topsecret"), "{refused}");
    stays.announce(&p4(0, 10));
    let up = router.neighbor("127.0.0.11").unwrap().up;
    assert!(up.is_some(), "a refused configuration changes nothing");
}

#[test]
fn settings_of_connections_and_next_hop_self_leave_sessions_alone() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.1.1", 65005);
    let mut listener = Peer::up(&router, "127.0.0.11", 65001);
    source.announce(&p4(0, 10));
    listener.until("routes", |p| p.routes.len() == 10);
    let before = listener.routes.clone();
    let more = "passive = false\nconnect-retry = 1\nport = 1790\nnext-hop-self = true";
    let changed = CLIENTS.replacen("passive = true", more, 1);
    let refreshed = addresses(&["127.0.0.11", "127.0.0.12"]);
    assert_eq!(router.reconfigure(&changed).unwrap().refreshed, refreshed);
    listener.until("another next hop", |p| {
        p.routes.len() == 10 && p.routes.iter().all(|(prefix, sent)| before.get(prefix) != Some(sent))
    });
    assert_eq!(router.reconfigure(CLIENTS).unwrap().refreshed, refreshed);
    listener.until("the former one", |p| p.routes == before);
    assert!(!listener.closed && router.neighbor("127.0.0.11").unwrap().flaps == 0);
}

#[test]
fn another_cluster_id_is_sent_and_checked_in_present_sessions() {
    let router = Router::start(CLIENTS);
    let mut source = Peer::up(&router, "127.0.0.12", 65001);
    let mut listener = Peer::up(&router, "127.0.0.11", 65001);
    let mut other = Peer::up(&router, "127.0.1.1", 65005);
    source.announce(&p4(0, 10));
    listener.until("routes", |p| p.routes.len() == 10);
    other.until("routes", |p| p.routes.len() == 10);
    let before = listener.routes.clone();
    let changed = router.reconfigure(&format!("cluster-id = \"10.9.9.9\"\n{CLIENTS}")).unwrap();
    let refreshed = addresses(&["127.0.0.11", "127.0.0.12"]);
    assert_eq!(changed, Neighbors { refreshed, ..Neighbors::default() });
    let has = |attributes: &[u8], id: [u8; 4]| attributes.windows(4).any(|bytes| bytes == id);
    listener.until("the new id", |p| {
        p.routes.len() == 10 && p.routes.values().all(|sent| has(sent, [10, 9, 9, 9]))
    });
    assert!(before.values().all(|sent| !has(sent, [10, 9, 9, 9])));
    // What came before it is checked again.
    source.until("a request of the routes", |p| p.refreshes > 0);
    assert!(!source.closed && !listener.closed && !other.closed);
    assert_eq!(router.neighbor("127.0.0.11").unwrap().flaps, 0);
}
