//! A server that has what it was sent, except what it loses, and that replies in small pages.

use super::super::super::announcer::Style;
use super::*;
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol, Vrf, VrfId};
use ribtide_wire::fpm::compare::{self, write_reply};
use ribtide_wire::fpm::frame;
use ribtide_wire::netlink::Content;
use std::collections::BTreeMap;

const INTERVAL: Duration = Duration::from_secs(60);
const PAGE: usize = 3;

#[derive(Default)]
struct Server {
    /// Objects, by id, and routes, by table and prefix; each with its fingerprint.
    objects: BTreeMap<u32, u64>,
    routes: BTreeMap<(u32, AnyPrefix), u64>,
    /// Messages about these are lost.
    deaf: Vec<Key>,
    /// Contents of this table's routes are not compared.
    opaque: Option<u32>,
    queries: usize,
}

impl Server {
    /// Takes in frames. Returns what it replies.
    fn read(&mut self, bytes: &[u8]) -> Vec<Compare> {
        let (mut rest, mut replies) = (bytes, Vec::new());
        while let Some(f) = frame(rest).unwrap() {
            for message in f.raw().map(Result::unwrap) {
                match Compare::decode(&message).unwrap() {
                    Some(Compare::Query(seq, query)) => replies.push(self.reply(seq, query)),
                    Some(other) => panic!("{other:?}"),
                    None => self.take(&Content::decode(&message).unwrap()),
                }
            }
            rest = &rest[f.len..];
        }
        replies
    }

    fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::NewRoute(route) if !self.is_deaf(Key::Route(route.table, route.prefix)) => {
                let content = compare::route(route.protocol, compare::next_hops_of(route));
                self.routes.insert((route.table, route.prefix), content);
            }
            Content::DelRoute(route) if !self.is_deaf(Key::Route(route.table, route.prefix)) => {
                self.routes.remove(&(route.table, route.prefix));
            }
            Content::NewNextHop(object) if !self.is_deaf(Key::Object(object.id)) => {
                self.objects.insert(object.id, compare::object(&object.forward));
            }
            Content::DelNextHop(id) if !self.is_deaf(Key::Object(*id)) => drop(self.objects.remove(id)),
            _ => {}
        }
    }

    fn is_deaf(&self, key: Key) -> bool {
        self.deaf.contains(&key)
    }

    fn entries(&self) -> Vec<Entry> {
        let objects = self.objects.iter().map(|(id, content)| (Key::Object(*id), *content));
        let routes =
            self.routes.iter().map(|((table, prefix), content)| (Key::Route(*table, *prefix), *content));
        let entry = |(key, content)| match key {
            Key::Route(table, _) if self.opaque == Some(table) => Entry { key, content: None },
            _ => Entry { key, content: Some(content) },
        };
        objects.chain(routes).map(entry).collect()
    }

    fn reply(&mut self, seq: u32, query: Query) -> Compare {
        self.queries += 1;
        let all = self.entries();
        let (entries, next) = match query {
            Query::Page(from) => {
                let from = from as usize;
                let to = all.len().min(from + PAGE);
                let next = (to < all.len()).then_some(to as u64);
                (all.get(from..to).unwrap_or_default().to_vec(), next)
            }
            Query::Keys(keys) => {
                let find = |key: &Key| all.iter().find(|entry| entry.key == *key).copied();
                (keys.iter().filter_map(find).collect(), None)
            }
        };
        // Through bytes, as a connection would.
        let mut bytes = Vec::new();
        write_reply(&mut bytes, &Reply { seq, ready: true, next, entries });
        let f = frame(&bytes).unwrap().unwrap();
        Compare::decode(&f.raw().next().unwrap().unwrap()).unwrap().unwrap()
    }
}

struct Bench {
    encoder: Encoder,
    comparison: Comparison,
    server: Server,
    from_server: FromServer,
    now: Instant,
    /// Bytes that the server has not read.
    sent: Vec<u8>,
}

impl Bench {
    fn new(style: Style) -> Bench {
        let now = Instant::now();
        let mut from_server = FromServer::default();
        from_server.note(Compare::Offer(VERSION));
        Bench {
            encoder: Encoder::new(style, now),
            comparison: Comparison::new(None, INTERVAL, Arc::default(), now),
            server: Server::default(),
            from_server,
            now,
            sent: Vec::new(),
        }
    }

    fn feed(&mut self, batch: &FibBatch) {
        let sent = &mut self.sent;
        self.encoder.handle(batch, &mut InstallResults::default(), &mut |out| sent.append(out));
        self.comparison.sent(batch.start_of_replay, batch.end_of_replay, self.now);
    }

    /// The server reads, and its replies arrive.
    fn read(&mut self) {
        let replies = self.server.read(&std::mem::take(&mut self.sent));
        replies.into_iter().for_each(|reply| self.from_server.note(reply));
    }

    fn step(&mut self) {
        self.comparison.receive(&mut self.from_server);
        let sent = &mut self.sent;
        let mut results = InstallResults::default();
        self.comparison.step(self.now, &mut self.encoder, &mut results, &mut |out| sent.append(out));
    }

    /// Time passes until the next round is over. Returns what it repaired: missing, other, unexpected,
    /// objects.
    fn round(&mut self) -> [u64; 4] {
        let rounds = self.comparison.repairs().rounds();
        let before = self.repaired();
        self.now += INTERVAL;
        for _ in 0..1000 {
            self.step();
            self.read();
            if self.comparison.repairs().rounds() > rounds {
                let after = self.repaired();
                return [0, 1, 2, 3].map(|kind| after[kind] - before[kind]);
            }
        }
        panic!("the round does not end");
    }

    fn repaired(&self) -> [u64; 4] {
        let counters = self.comparison.repairs();
        [Difference::Missing, Difference::OtherNextHops, Difference::Unexpected, Difference::NextHopObject]
            .map(|difference| counters.repaired(difference))
    }

    fn failed(&self) -> u64 {
        self.comparison.counters.failed.load(Relaxed)
    }
}

fn hops(gateways: &[&str]) -> FibGroup {
    let hop = |gateway: &&str| {
        let gateway = Some(gateway.parse().unwrap());
        FibHop { gateway, interface: 7, weight: 1, onlink: false }
    };
    FibGroup::Hops(gateways.iter().map(hop).collect())
}

fn groups(groups: &[(u32, FibGroup)]) -> FibBatch {
    let op = |(id, content): &(u32, FibGroup)| GroupOp {
        id: GroupId(*id),
        content: content.clone(),
        source: None,
    };
    FibBatch { groups: groups.iter().map(op).collect(), ..FibBatch::default() }
}

fn with(mut batch: FibBatch, routes: &[(&str, Option<u32>)]) -> FibBatch {
    for (prefix, group) in routes {
        let (group, protocol) = (group.map(GroupId), Protocol::BgpExternal);
        match prefix.parse().unwrap() {
            AnyPrefix::V4(prefix) => batch.routes.v4.push(FibRoute { prefix, group, protocol }),
            AnyPrefix::V6(prefix) => batch.routes.v6.push(FibRoute { prefix, group, protocol }),
        }
    }
    batch
}

fn key(prefix: &str) -> Key {
    Key::Route(0, prefix.parse().unwrap())
}

/// Six routes by three groups, all sent.
fn replayed(style: Style) -> Bench {
    let mut bench = Bench::new(style);
    let all = groups(&[
        (1, hops(&["10.0.0.1", "10.0.0.2"])),
        (2, hops(&["2001:db8::1"])),
        (3, FibGroup::Blackhole),
    ]);
    let routes = [
        ("10.1.0.0/16", Some(1)),
        ("10.2.0.0/16", Some(2)),
        ("10.3.0.0/16", Some(3)),
        ("10.4.0.0/16", Some(1)),
        ("2001:db8:1::/48", Some(2)),
        ("2001:db8:2::/48", Some(3)),
    ];
    bench.feed(&FibBatch { start_of_replay: true, end_of_replay: true, ..with(all, &routes) });
    bench.read();
    bench
}

#[test]
fn comparison_of_equal_tables_repairs_nothing_and_reads_each_once() {
    for style in [Style::Inline, Style::Objects] {
        let mut bench = replayed(style);
        assert_eq!(bench.round(), [0; 4], "{style:?}");
        assert_eq!(bench.comparison.repairs().compared(), 6);
        assert_eq!(bench.server.queries, bench.server.entries().len().div_ceil(PAGE), "no key was suspect");
        // Before its time there is no other round.
        bench.step();
        assert!(bench.sent.is_empty());
        assert_eq!(bench.round(), [0; 4]);
    }
}

#[test]
fn comparison_repairs_each_kind_of_difference_once() {
    for style in [Style::Inline, Style::Objects] {
        let mut bench = replayed(style);
        let (table, wanted) = (0, bench.server.entries());
        let prefix = |text: &str| text.parse::<AnyPrefix>().unwrap();
        bench.server.routes.remove(&(table, prefix("10.1.0.0/16")));
        bench.server.routes.remove(&(table, prefix("2001:db8:2::/48")));
        bench.server.routes.insert((table, prefix("10.2.0.0/16")), 77);
        bench.server.routes.insert((table, prefix("10.9.0.0/16")), 77);
        // Of a VRF that the client does not have.
        bench.server.routes.insert((40, prefix("10.1.0.0/16")), 77);
        let mut objects = 0;
        if style == Style::Objects {
            bench.server.objects.insert(1, 77);
            bench.server.objects.insert(9, 77);
            bench.server.objects.remove(&2);
            objects = 3;
        }
        assert_eq!(bench.round(), [2, 1, 2, objects], "{style:?}");
        assert_eq!(bench.server.entries(), wanted);
        assert_eq!((bench.round(), bench.failed()), ([0; 4], 0));
    }
}

#[test]
fn comparison_of_lost_messages_brings_what_was_sent_last() {
    let mut bench = replayed(Style::Objects);
    bench.server.deaf = ["10.1.0.0/16", "10.2.0.0/16", "10.5.0.0/16"].map(key).into();
    bench.server.deaf.push(Key::Object(2));
    let changes = [("10.1.0.0/16", Some(3)), ("10.2.0.0/16", None), ("10.5.0.0/16", Some(1))];
    bench.feed(&with(groups(&[(2, hops(&["2001:db8::1", "2001:db8::2"]))]), &changes));
    bench.read();
    bench.server.deaf.clear();
    assert_eq!(bench.round(), [1, 1, 1, 1]);
    assert_eq!(bench.round(), [0; 4]);
    assert_eq!(bench.server.routes.len(), 6);
}

#[test]
fn comparison_of_what_changes_meanwhile_is_no_difference() {
    let mut bench = replayed(Style::Inline);
    bench.now += INTERVAL;
    let before = bench.comparison.repairs().rounds();
    // Between each query and its reply, and before it, routes and groups change.
    for n in 0..60_u32 {
        let gateway = format!("10.0.0.{}", n % 7 + 1);
        let routes = [
            ("10.1.0.0/16", (n % 3 > 0).then_some(1)),
            ("10.5.0.0/16", (n % 2 > 0).then_some(1)),
            ("10.0.0.0/16", (n % 5 > 0).then_some(3)),
        ];
        bench.feed(&with(groups(&[(1, hops(&[&gateway]))]), &routes));
        bench.step();
        if n % 2 == 0 {
            bench.feed(&with(FibBatch::default(), &[("10.4.0.0/16", (n % 4 > 0).then_some(3))]));
        }
        bench.read();
        if n % 3 == 0 {
            bench.feed(&with(FibBatch::default(), &[("10.6.0.0/16", (n % 6 > 0).then_some(3))]));
        }
        bench.now += INTERVAL / 8;
    }
    assert!(bench.comparison.repairs().rounds() > before + 1);
    assert_eq!((bench.repaired(), bench.failed()), ([0; 4], 0));
}

#[test]
fn comparison_repair_of_a_route_that_changed_since_the_query_is_left_out() {
    let mut bench = replayed(Style::Inline);
    bench.server.routes.clear();
    bench.now += INTERVAL;
    // The pages, and then the query of what is missing.
    while bench.comparison.pending.as_ref().is_none_or(|query| query.keys.is_empty()) {
        bench.read();
        bench.step();
    }
    bench.read();
    bench.feed(&with(FibBatch::default(), &[("10.1.0.0/16", None), ("10.2.0.0/16", Some(3))]));
    bench.step();
    bench.read();
    assert_eq!(bench.repaired(), [4, 0, 0, 0]);
    assert_eq!(bench.server.routes.len(), 5);
    assert_eq!(bench.round(), [0; 4]);
}

#[test]
fn comparison_counts_what_the_server_does_not_take_as_failed_and_tries_again() {
    let mut bench = replayed(Style::Inline);
    bench.server.routes.clear();
    bench.server.deaf = vec![key("10.1.0.0/16")];
    assert_eq!((bench.round(), bench.failed()), ([6, 0, 0, 0], 0));
    for failed in 1..4 {
        assert_eq!((bench.round(), bench.failed()), ([0; 4], failed));
    }
    bench.server.deaf.clear();
    bench.round();
    assert_eq!(bench.server.routes.len(), 6);
    assert_eq!((bench.round(), bench.failed()), ([0; 4], 4));
}

#[test]
fn comparison_leaves_contents_that_the_server_does_not_compare() {
    let mut bench = replayed(Style::Inline);
    bench.server.opaque = Some(0);
    bench.server.routes.values_mut().for_each(|content| *content = 77);
    bench.server.routes.remove(&(0, "10.1.0.0/16".parse().unwrap()));
    assert_eq!(bench.round(), [1, 0, 0, 0]);
}

#[test]
fn comparison_goes_by_the_device_of_a_vrf() {
    let mut bench = replayed(Style::Inline);
    let vrf = Vrf { id: VrfId(3), table: 100, device: 40 };
    bench.feed(&FibBatch { vrf, ..with(FibBatch::default(), &[("10.1.0.0/16", Some(1))]) });
    bench.read();
    assert_eq!(bench.round(), [0; 4]);
    assert_eq!(bench.comparison.repairs().compared(), 7);
    bench.server.routes.retain(|(table, _), _| *table == 0);
    assert_eq!(bench.round(), [1, 0, 0, 0]);
    assert_eq!(bench.server.routes.len(), 7);
}

#[test]
fn comparison_queries_only_a_server_that_offers_it_and_has_everything() {
    let mut bench = replayed(Style::Inline);
    let ask = |bench: &mut Bench| {
        bench.now += 2 * INTERVAL;
        bench.step();
        std::mem::take(&mut bench.sent).len()
    };
    assert_ne!(ask(&mut bench), 0);
    // Another connection, and a server without the offer.
    bench.comparison.reset();
    bench.feed(&FibBatch { start_of_replay: true, end_of_replay: true, ..FibBatch::default() });
    bench.sent.clear();
    assert_eq!(ask(&mut bench), 0);
    bench.from_server.note(Compare::Offer(VERSION + 1));
    assert_eq!(ask(&mut bench), 0, "another version");
    bench.from_server.note(Compare::Offer(VERSION));
    assert_ne!(ask(&mut bench), 0);
    // A replay begins: not before it is over.
    bench.feed(&FibBatch { start_of_replay: true, ..FibBatch::default() });
    bench.sent.clear();
    assert_eq!(ask(&mut bench), 0);
    bench.feed(&FibBatch { end_of_replay: true, ..FibBatch::default() });
    bench.sent.clear();
    assert_ne!(ask(&mut bench), 0);
    bench.comparison.set_interval(Duration::ZERO, bench.now);
    assert_eq!(ask(&mut bench), 0);
    assert_eq!(bench.comparison.next_due(bench.now), Duration::MAX);
}

#[test]
fn comparison_with_a_lost_reply_begins_again() {
    let mut bench = replayed(Style::Inline);
    bench.server.routes.clear();
    bench.now += INTERVAL;
    bench.step();
    bench.sent.clear();
    bench.now += REPLY_TIMEOUT;
    bench.step();
    assert!(bench.sent.is_empty());
    assert_eq!(bench.round(), [6, 0, 0, 0]);
    // A late reply to the lost query counts for nothing.
    bench.from_server.note(Compare::Reply(Reply { seq: 1, ready: true, next: None, entries: Vec::new() }));
    assert_eq!(bench.round(), [0; 4]);
    // A server that is not ready ends the round.
    bench.now += INTERVAL;
    bench.step();
    let seq = bench.comparison.seq;
    bench.from_server.note(Compare::Reply(Reply { seq, ready: false, next: None, entries: Vec::new() }));
    bench.step();
    assert!(bench.comparison.round.is_none());
}
