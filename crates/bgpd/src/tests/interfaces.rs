//! What becomes of interfaces, and the sessions over them.

use super::*;
use ribtide_dataplane::{InterfaceNews, InterfaceState};

const ON_LINK: &str = r#"
listen = ["127.0.0.1:0"]
[bgp.group.link]
type = "external"
peer-asn = 65002
passive = true
import = ["accept"]
neighbors = ["127.0.0.11", "127.1.0.11"]
[bgp.group.far]
type = "external"
peer-asn = 65002
passive = true
multihop = 8
neighbors = ["127.0.0.12"]
[bgp.group.internal]
type = "internal"
passive = true
neighbors = ["127.0.0.13"]
[bgp.group.range]
type = "external"
import = ["accept"]
dynamic-neighbors = ["127.0.9.0/24"]
"#;

/// An interface with 127.0.0.1/16, the address that the router answers on.
fn eth1(up: bool) -> InterfaceState {
    let addresses = vec![("127.0.0.1".parse().unwrap(), "127.0.0.0/16".parse().unwrap())];
    InterfaceState { name: "eth1".into(), up, fell: false, addresses, link_local: Vec::new() }
}

fn hear(router: &Router, state: Option<InterfaceState>) {
    let news = InterfaceNews { index: 7, state, line: None };
    router.bgp().sessions.call(move |sessions| sessions.take_interface(news)).unwrap();
}

#[test]
fn take_interface_down_ends_single_hop_external_sessions_alone() {
    let router = Router::start(ON_LINK);
    hear(&router, Some(eth1(true)));
    let near = Peer::up(&router, "127.0.0.11", 65002);
    let ranged = Peer::up(&router, "127.0.9.1", 65003);
    let others = [("127.1.0.11", 65002), ("127.0.0.12", 65002), ("127.0.0.13", 65001)];
    let others = others.map(|(address, asn)| Peer::up(&router, address, asn));
    hear(&router, Some(eth1(false)));
    assert_eq!((near.notified(), ranged.notified()), ((6, 0), (6, 0)));
    let view = router.neighbor("127.0.0.11").unwrap();
    assert!(view.held.is_some() && view.up.is_none() && view.last_error.unwrap().contains("eth1"));
    assert!(router.neighbor("127.0.9.1").is_none(), "it came from a range");
    for (address, asn) in [("127.0.0.11", 65002), ("127.0.9.1", 65003)] {
        assert_eq!(Peer::dial(&router, address, asn).notified(), (6, 5), "{address} while it is down");
    }
    hear(&router, Some(eth1(true)));
    Peer::up(&router, "127.0.0.11", 65002);
    Peer::up(&router, "127.0.9.1", 65003);
    for mut other in others {
        other.read();
        assert!(!other.closed, "not its interface, or not for it");
    }
}

#[test]
fn take_interface_address_gone_or_interface_gone_ends_the_session_until_it_is_back() {
    let router = Router::start(ON_LINK);
    for gone in [Some(InterfaceState { addresses: Vec::new(), ..eth1(true) }), None] {
        hear(&router, Some(eth1(true)));
        let peer = Peer::up(&router, "127.0.0.11", 65002);
        hear(&router, gone);
        assert_eq!(peer.notified(), (6, 0));
        assert!(router.neighbor("127.0.0.11").unwrap().held.is_some());
    }
    hear(&router, Some(eth1(true)));
    let peer = Peer::up(&router, "127.0.0.11", 65002);
    // Another address of ours in the same subnet: the connection is over, and another one may come.
    hear(
        &router,
        Some(InterfaceState {
            addresses: vec![("127.0.0.2".parse().unwrap(), "127.0.0.0/16".parse().unwrap())],
            ..eth1(true)
        }),
    );
    assert_eq!(peer.notified(), (6, 0));
    assert!(router.neighbor("127.0.0.11").unwrap().held.is_none());
    hear(&router, Some(eth1(true)));
    let peer = Peer::up(&router, "127.0.0.11", 65002);
    // Down and up again before a notification, when the session is old enough to have been there.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    hear(&router, Some(InterfaceState { fell: true, ..eth1(true) }));
    assert_eq!(peer.notified(), (6, 0));
    Peer::up(&router, "127.0.0.11", 65002);
}

#[test]
fn fast_external_fallover_off_keeps_the_session_and_a_reload_changes_it() {
    let router = Router::start(&format!("fast-external-fallover = false\n{ON_LINK}"));
    hear(&router, Some(eth1(true)));
    let mut peer = Peer::up(&router, "127.0.0.11", 65002);
    hear(&router, Some(eth1(false)));
    peer.read();
    assert!(!peer.closed && router.neighbor("127.0.0.11").unwrap().held.is_none());
    // Switched on, it counts at once; for this group alone.
    let on =
        ON_LINK.replace("passive = true\nimport", "passive = true\nfast-external-fallover = true\nimport");
    let reconfigure = |bgp: String| {
        let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{bgp}");
        let bgp = config::parse(&text).unwrap().bgp.unwrap();
        router.bgp().sessions.call(move |s| s.reconfigure(&bgp)).unwrap().unwrap();
    };
    reconfigure(format!("fast-external-fallover = false\n{on}"));
    assert_eq!(peer.notified(), (6, 0));
    reconfigure(format!("fast-external-fallover = false\n{ON_LINK}"));
    Peer::up(&router, "127.0.0.11", 65002);
}
