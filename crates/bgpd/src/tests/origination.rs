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

/// The prefixes of a peer, sorted.
fn has(peer: &Peer, expected: &[&str]) -> bool {
    prefixes(peer) == expected.iter().map(ToString::to_string).collect()
}

const AGGREGATE: &str = "[[bgp.aggregate]]\nprefix = \"10.0.0.0/16\"\n";

#[test]
fn aggregate_exists_while_a_contributor_does() {
    THREADS.into_iter().for_each(aggregate);
}

fn aggregate(threads: &str) {
    let only = format!("{CLIENTS}{AGGREGATE}summary-only = true\n");
    let router = Router::with(threads, &only);
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    internal.announce(&p4(0, 3));
    external.until("the aggregate alone", |p| has(p, &["10.0.0.0/16"]));
    internal.until("the aggregate alone", |p| has(p, &["10.0.0.0/16"]));
    // With ATOMIC_AGGREGATE, and AGGREGATOR of ours.
    let attributes = external.routes.values().next().unwrap().clone();
    let aggregator = [0xc0, 7, 8, 0, 0, 0xfd, 0xe9, 10, 255, 0, 1];
    assert!(attributes.windows(aggregator.len()).any(|window| window == aggregator), "{attributes:?}");
    assert!(attributes.windows(3).any(|window| window == [0x40, 6, 0]), "{attributes:?}");
    let views = router.bgp().sessions.call(|s| s.aggregates()).unwrap();
    assert!(views[0].active && views[0].suppresses == "all");
    let watch = views[0].watch.unwrap();
    let shards = router.bgp().owners.read().shards.clone();
    let count = || -> u32 {
        let of_shard = |shard: &shard::ShardPort| shard.call(|s| s.watched()).unwrap();
        shards.iter().flat_map(of_shard).filter(|(id, _)| *id == watch).map(|(_, count)| count).sum()
    };
    assert_eq!(count(), 3);

    // One that comes up later gets the same.
    let mut later = Peer::up(&router, "127.0.1.6", 65006);
    later.until("the aggregate alone", |p| has(p, &["10.0.0.0/16"]));
    internal.withdraw(&p4(0, 2));
    until("one is left", || count() == 1);
    external.until("the aggregate still", |p| has(p, &["10.0.0.0/16"]));
    internal.withdraw(&p4(2, 1));
    external.until("nothing", |p| p.routes.is_empty());

    // Without suppression contributors are sent; a reload that adds it withdraws them after the aggregate.
    internal.announce(&p4(0, 2));
    router.apply(&format!("{CLIENTS}{AGGREGATE}"));
    external.until("all", |p| has(p, &["10.0.0.0/16", "10.0.0.0/24", "10.0.1.0/24"]));
    router.apply(&only);
    external.until("the aggregate alone again", |p| has(p, &["10.0.0.0/16"]));
    router.apply(CLIENTS);
    external.until("no aggregate", |p| has(p, &["10.0.0.0/24", "10.0.1.0/24"]));
    router.apply(&only);
    external.until("a new aggregate", |p| has(p, &["10.0.0.0/16"]));
}

/// Some contributors, by policy; and an aggregate that its policy rejects replaces nothing.
#[test]
fn aggregate_policies_choose_contributors_and_attributes() {
    let policies = "[policy.prefix-set.some]\nprefixes = [\"10.0.1.0/24\"]\n\
                    [[policy.definition.some.statement]]\nconditions.match-prefix-set = \"some\"\n\
                    actions.policy-result = \"accept\"\n";
    let with = |aggregate: &str| format!("{CLIENTS}{AGGREGATE}{aggregate}\n{policies}");
    let router = Router::start(&with("suppress = [\"some\"]"));
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    internal.announce(&p4(0, 2));
    external.until("all but one", |p| has(p, &["10.0.0.0/16", "10.0.0.0/24"]));
    router.apply(&with(""));
    external.until("all", |p| has(p, &["10.0.0.0/16", "10.0.0.0/24", "10.0.1.0/24"]));
    router.apply(&with("summary-only = true\npolicy = [\"reject\"]"));
    external.until("no aggregate, and what was there", |p| has(p, &["10.0.0.0/24", "10.0.1.0/24"]));
}

/// Routes move between shards, and the aggregate is there all the time.
#[test]
fn aggregate_survives_a_change_of_the_number_of_shards() {
    let router = Router::start(&format!("{CLIENTS}{AGGREGATE}summary-only = true\n"));
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    let prefixes: Vec<Prefix<V4>> = (0..64).map(|n| Prefix::new(0x0a00_0000 + (n << 10), 24)).collect();
    internal.announce(&prefixes);
    external.until("the aggregate alone", |p| has(p, &["10.0.0.0/16"]));
    let id = router.neighbor("127.0.1.5").unwrap().id;
    let worker = router.neighbor("127.0.1.5").unwrap().up.unwrap().worker;
    let sent =
        || router.bgp().workers.get(worker).unwrap().call(move |w| w.member(id)).unwrap().unwrap().counters;
    let before = sent();
    for shards in [7, 1, 4] {
        router.bgp().resize(ribtide_config::Threads::Number(shards), None).unwrap();
        external.read();
        assert!(has(&external, &["10.0.0.0/16"]), "{shards} shards: {:?}", external.routes);
    }
    assert_eq!(sent(), before, "no peer heard of it");
    internal.withdraw(&prefixes);
    external.until("nothing", |p| p.routes.is_empty());
}

#[test]
fn default_route_of_a_neighbour_follows_its_condition() {
    THREADS.into_iter().for_each(default_route);
}

fn default_route(threads: &str) {
    let sets = "[policy.prefix-set.up]\nprefixes = [\"10.0.0.0/24\"]\n";
    let with = |default: &str| {
        format!("{}\n{sets}", CLIENTS.replace("dynamic-neighbors", &format!("{default}\ndynamic-neighbors")))
    };
    let conditional = with("default-originate = { routes-exist = \"up\" }");
    let router = Router::with(threads, &conditional);
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut other = Peer::up(&router, "127.0.0.12", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    internal.announce(&p4(1, 1));
    external.until("a route", |p| has(p, &["10.0.1.0/24"]));
    internal.announce(&p4(0, 1));
    external.until("a default route", |p| has(p, &["0.0.0.0/0", "10.0.0.0/24", "10.0.1.0/24"]));
    let mut later = Peer::up(&router, "127.0.1.6", 65006);
    later.until("a default route", |p| has(p, &["0.0.0.0/0", "10.0.0.0/24", "10.0.1.0/24"]));

    // It takes the place of the table's, which comes back.
    let default: Prefix<V4> = Prefix::default_route();
    later.announce(&[default]);
    other.until("the table's", |p| has(p, &["0.0.0.0/0", "10.0.0.0/24", "10.0.1.0/24"]));
    external.read();
    let path = |peer: &Peer| peer.routes[&default.any()].clone();
    let own = path(&external);
    internal.withdraw(&p4(0, 1));
    external.until("the table's default route", |p| has(p, &["0.0.0.0/0", "10.0.1.0/24"]) && path(p) != own);
    internal.announce(&p4(0, 1));
    external.until("its own", |p| p.routes.get(&default.any()) == Some(&own));
    later.withdraw(&[default]);
    other.until("none", |p| has(p, &["10.0.0.0/24", "10.0.1.0/24"]));
    external.read();
    assert!(external.routes.contains_key(&default.any()));

    // Refreshed, it is there again.
    external.routes.clear();
    let mut request = Vec::new();
    RouteRefresh { afi: 1, safi: 1, kind: RefreshKind::Request }.write(&mut request);
    external.stream.write_all(&request).unwrap();
    external.until("all again", |p| has(p, &["0.0.0.0/0", "10.0.0.0/24", "10.0.1.0/24"]));
    router.apply(&with("default-originate = false"));
    external.until("no default route", |p| has(p, &["10.0.0.0/24", "10.0.1.0/24"]));
    router.apply(&with("default-originate = true"));
    external.until("one without condition", |p| p.routes.contains_key(&default.any()));
    internal.withdraw(&p4(0, 2));
    external.until("it alone", |p| has(p, &["0.0.0.0/0"]));
}

/// Export depends on routes of any shard; only what differs is sent.
#[test]
fn conditional_advertisement_sends_what_differs() {
    THREADS.into_iter().for_each(conditional_advertisement);
}

fn conditional_advertisement(threads: &str) {
    let bgp = format!(
        "{}\n[policy.prefix-set.main]\nprefixes = [\"10.200.0.0/24\"]\n[policy.prefix-set.some]\n\
         prefixes = [\"10.0.0.0/23 24..24\"]\n[[policy.definition.backup.statement]]\n\
         conditions.match-prefix-set = \"some\"\nconditions.routes-exist = \"main\"\n\
         actions.policy-result = \"reject\"\n[[policy.definition.backup.statement]]\nactions.policy-result = \"accept\"\n",
        CLIENTS.replace("export = [\"accept\"]", "export = [\"backup\"]")
    );
    let router = Router::with(threads, &bgp);
    let mut internal = Peer::up(&router, "127.0.0.11", 65001);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    let main: Prefix<V4> = "10.200.0.0/24".parse().unwrap();
    let all = ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"];
    internal.announce(&p4(0, 4));
    external.until("all", |p| has(p, &all));
    let id = router.neighbor("127.0.1.5").unwrap().id;
    let worker = router.neighbor("127.0.1.5").unwrap().up.unwrap().worker;
    let sent =
        || router.bgp().workers.get(worker).unwrap().call(move |w| w.member(id)).unwrap().unwrap().counters;
    let before = sent();
    internal.announce(&[main]);
    external.until("some less", |p| has(p, &["10.0.2.0/24", "10.0.3.0/24", "10.200.0.0/24"]));
    let after = sent();
    assert_eq!((after.announced - before.announced, after.withdrawn - before.withdrawn), (1, 2));
    internal.withdraw(&[main]);
    external.until("all again", |p| has(p, &all));
    let last = sent();
    assert_eq!((last.announced - after.announced, last.withdrawn - after.withdrawn), (2, 1));
}

/// A route of a client of the API.
fn injected(prefix: &str, med: u32) -> session::NewRoute {
    let text = session::InjectedText { med: Some(med), ..session::InjectedText::default() };
    session::NewRoute::new(prefix.parse().unwrap(), text).unwrap()
}

#[test]
fn routes_of_api_clients_have_owners_and_expire() {
    let with = format!("{CLIENTS}[bgp.originate]\napi = [\"accept\"]\n");
    let router = Router::start(&with);
    let mut external = Peer::up(&router, "127.0.1.5", 65005);
    let inject =
        |owner: &'static str, expires: Option<u64>, replace: bool, routes: Vec<session::NewRoute>| {
            router.bgp().sessions.call(move |s| s.inject(owner, expires, replace, routes)).unwrap()
        };
    let changed =
        |announced, refreshed, withdrawn| Ok(session::InjectedChange { announced, refreshed, withdrawn });
    assert_eq!(
        inject("a", None, false, vec![injected("10.0.0.0/24", 1), injected("10.0.1.0/24", 1)]),
        changed(2, 0, 0)
    );
    assert_eq!(inject("b", None, false, vec![injected("10.0.2.0/24", 1)]), changed(1, 0, 0));
    external.until("all", |p| has(p, &["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]));
    let taken =
        inject("b", None, true, vec![injected("10.0.3.0/24", 1), injected("10.0.0.0/24", 1)]).unwrap_err();
    assert!(
        taken.to_string().starts_with("routes[1].prefix: 10.0.0.0/24 belongs to the owner \"a\""),
        "{taken}"
    );
    // An owner's whole set, one of which stays as it was.
    let all = vec![injected("10.0.1.0/24", 1), injected("10.0.4.0/24", 1)];
    assert_eq!(inject("a", None, true, all), changed(1, 1, 1));
    external.until("the other set", |p| has(p, &["10.0.1.0/24", "10.0.2.0/24", "10.0.4.0/24"]));
    let views = router.bgp().sessions.call(|s| s.injected(Some("a"), None, 1)).unwrap();
    assert_eq!((views.len(), views[0].prefix.to_string()), (1, "10.0.1.0/24".into()));
    let next = views[0].prefix;
    let views = router.bgp().sessions.call(move |s| s.injected(Some("a"), Some(next), 9)).unwrap();
    assert_eq!((views.len(), views[0].expires_in), (1, None));

    // They stay over a reload, unless none may be announced any more; and come back.
    let before = external.routes.clone();
    router.apply(CLIENTS);
    external.until("none", |p| p.routes.is_empty());
    assert_eq!(inject("a", None, false, vec![injected("10.0.9.0/24", 1)]), Err(session::NotInjected::Off));
    router.apply(&with);
    external.until("all again", |p| p.routes == before);
    // What is not sent again goes.
    assert_eq!(inject("a", Some(300), false, vec![injected("10.0.1.0/24", 7)]), changed(1, 0, 0));
    external.until("without the one that expired", |p| has(p, &["10.0.2.0/24", "10.0.4.0/24"]));
    let withdrawn =
        router.bgp().sessions.call(|s| s.withdraw_of("b", Some(vec!["10.0.4.0/24".parse().unwrap()])));
    assert_eq!(withdrawn.unwrap().withdrawn, 0, "of another owner");
    let withdrawn = router.bgp().sessions.call(|s| s.withdraw_of("a", None));
    assert_eq!(withdrawn.unwrap().withdrawn, 1);
    external.until("the other owner's", |p| has(p, &["10.0.2.0/24"]));
}

#[test]
fn routes_of_api_clients_that_cannot_be_are_refused_by_field() {
    let refused = |prefix: &str, next_hop: &str, communities: &[&str]| {
        let communities = communities.iter().map(ToString::to_string).collect();
        let next_hop = Some(next_hop.parse().unwrap());
        let text = session::InjectedText { next_hop, communities, ..session::InjectedText::default() };
        session::NewRoute::new(prefix.parse().unwrap(), text).unwrap_err()
    };
    assert!(refused("10.0.0.0/24", "0.0.0.0", &[]).1.contains("no neighbour"));
    assert!(refused("10.0.0.0/24", "2001:db8::1", &[]).1.contains("another family"));
    assert!(refused("2001:db8::/32", "fe80::1", &[]).1.contains("one link"));
    assert_eq!(refused("10.0.0.0/24", "192.0.2.1", &["1:1", "x"]).0, "communities[1]");
}
