//! What BFD says of neighbours, and their sessions.

use super::*;
use ribtide_bfd::Standing;
use ribtide_bfdd::BfdNews;

fn hear(router: &Router, address: &str, failed: bool, standing: Option<Standing>) {
    let news = BfdNews { address: address.parse().unwrap(), failed, standing };
    router.bgp().sessions.call(move |sessions| sessions.take_bfd(&news)).unwrap();
}

fn watched(bfd: &str) -> String {
    CLIENTS.replace("[bgp.group.world]", &format!("bfd = {bfd}\n[bgp.group.world]"))
}

#[test]
fn a_neighbour_that_is_not_reached_loses_its_session_until_it_is() {
    let router = Router::start(&watched("true"));
    let mut stays = Peer::up(&router, "127.0.0.12", 65001);
    let peer = Peer::up(&router, "127.0.0.11", 65001);
    hear(&router, "127.0.0.11", false, Some(Standing::Unproven));
    hear(&router, "127.0.0.11", false, Some(Standing::Up));
    hear(&router, "127.0.0.11", true, Some(Standing::Failed));
    assert_eq!(peer.notified(), (6, 10), "BFD Down, RFC 9384");
    let view = router.neighbor("127.0.0.11").unwrap();
    assert!(view.held.is_some() && view.up.is_none() && view.last_error.unwrap().contains("BFD"));
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 10));
    hear(&router, "127.0.0.11", false, Some(Standing::Up));
    let again = Peer::up(&router, "127.0.0.11", 65001);
    // It was gone and is back before the session thread got the change.
    hear(&router, "127.0.0.11", true, Some(Standing::Up));
    assert_eq!(again.notified(), (6, 10));
    let again = Peer::up(&router, "127.0.0.11", 65001);
    hear(&router, "127.0.0.11", true, Some(Standing::Failed));
    assert_eq!(again.notified(), (6, 10));
    // Without BFD, nothing is held against it any more: by the neighbour's operator, or by ours.
    hear(&router, "127.0.0.11", false, Some(Standing::Excused));
    Peer::up(&router, "127.0.0.11", 65001);
    hear(&router, "127.0.0.11", true, Some(Standing::Failed));
    assert!(router.neighbor("127.0.0.11").unwrap().held.is_some());
    router.bgp().sessions.call(|s| s.reconfigure(&config(CLIENTS))).unwrap().unwrap();
    Peer::up(&router, "127.0.0.11", 65001);
    stays.read();
    assert!(!stays.closed, "and no other session noticed");
}

#[test]
fn a_strict_neighbour_has_no_session_before_it_is_proven() {
    let router = Router::start(&watched("{ strict = true }"));
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 10));
    hear(&router, "127.0.0.11", false, Some(Standing::Unproven));
    assert_eq!(Peer::dial(&router, "127.0.0.11", 65001).notified(), (6, 10));
    hear(&router, "127.0.0.11", false, Some(Standing::Up));
    let peer = Peer::up(&router, "127.0.0.11", 65001);
    // Other settings that take another session know what is proven.
    let slower = watched("{ strict = true }").replace("passive = true", "passive = true\nhold-time = 30");
    router.bgp().sessions.call(move |s| s.reconfigure(&config(&slower))).unwrap().unwrap();
    assert_eq!(peer.notified(), (6, 6));
    Peer::up(&router, "127.0.0.11", 65001);
    let other = Peer::dial(&router, "127.0.0.12", 65001);
    assert_eq!(other.notified(), (6, 10));
}

fn config(bgp: &str) -> BgpConfig {
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{bgp}");
    config::parse(&text).unwrap().bgp.unwrap()
}
