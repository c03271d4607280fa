//! Originated networks, from the configuration to the peers.

use super::*;
use crate::session::Neighbors;

const NETWORKS: &str = "[bgp.originate]\nnetworks = [\"10.0.0.0/24\", \"2001:db8::/32\"]\n";

fn config(bgp: &str) -> BgpConfig {
    let text = format!("[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n{bgp}");
    config::parse(&text).unwrap().bgp.unwrap()
}

impl Router {
    fn apply(&self, bgp: &str) -> Neighbors {
        let bgp = config(bgp);
        self.bgp().sessions.call(move |s| s.reconfigure(&bgp)).unwrap().unwrap()
    }
}

fn prefixes(peer: &Peer) -> BTreeSet<String> {
    peer.routes.keys().map(ToString::to_string).collect()
}

#[test]
fn networks_are_advertised_and_follow_the_configuration() {
    THREADS.into_iter().for_each(networks);
}

fn networks(threads: &str) {
    let with = format!("{CLIENTS}{NETWORKS}");
    let router = Router::with(threads, &with);
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    internal.until("both networks", |p| p.routes.len() == 2);
    external.until("the IPv4 network", |p| p.routes.len() == 1);
    let own = NextHop::V4([127, 0, 0, 1].into());
    assert!(external.next_hops.contains(&own) && internal.next_hops.contains(&own));

    // What a peer announces does not replace it; the peer itself gets it.
    internal.announce(&["10.0.0.0/24".parse().unwrap(), "10.0.1.0/24".parse::<Prefix<V4>>().unwrap()]);
    external.until("the peer's other route", |p| p.routes.len() == 2);
    internal.until("the networks still", |p| p.routes.len() == 2);

    // One leaves, one comes; no session notices.
    let other = with.replace("10.0.0.0/24", "10.0.2.0/24");
    assert_eq!(router.apply(&other), Neighbors::default());
    internal.until("the other network", |p| {
        prefixes(p) == ["10.0.2.0/24", "2001:db8::/32"].map(String::from).into()
    });
    // The path of the internal peer stands in.
    let all: BTreeSet<String> = ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"].map(String::from).into();
    external.until("the peer's path of the former network", |p| prefixes(p) == all);

    // A policy that refuses one.
    let refused = format!(
        "{CLIENTS}{}network-policy = [\"some\"]\n[policy.prefix-set.some]\nprefixes = [\"10.0.2.0/24\"]\n\
         [[policy.definition.some.statement]]\nconditions.match-prefix-set = \"some\"\n\
         actions.policy-result = \"reject\"\n",
        NETWORKS.replace("10.0.0.0/24", "10.0.2.0/24")
    );
    router.apply(&refused);
    internal.until("without the refused network", |p| prefixes(p) == ["2001:db8::/32".to_owned()].into());
    router.apply(CLIENTS);
    internal.until("no network", |p| p.routes.is_empty());
    let left: BTreeSet<String> = ["10.0.0.0/24", "10.0.1.0/24"].map(String::from).into();
    external.until("the peer's routes", |p| prefixes(p) == left);
    // And again, as a source with another number or the same.
    router.apply(&with);
    internal.until("both networks again", |p| p.routes.len() == 2);
}
