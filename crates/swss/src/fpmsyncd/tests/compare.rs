//! Queries of ribtide's client: what is offered to whom, pages, and keys.

use super::*;
use ribtide_wire::fpm::compare::{self, Compare, Entry, KEYS_MAX, Key, Query, Reply, VERSION};

impl Bench {
    /// ribtide's client connects.
    fn ours() -> Bench {
        let mut bench = Bench::new();
        bench.send(Content::Multipart { ack: false });
        bench.out.in_chip = None;
        bench.out.comparison.clear();
        bench
    }

    fn end_of_replay(&mut self) {
        self.machine.end_of_replay(&mut self.out);
    }

    fn ask(&mut self, query: &Query) -> Reply {
        let mut bytes = Vec::new();
        compare::write_query(&mut bytes, 7, query);
        self.machine.frame(&fpm::frame(&bytes).unwrap().unwrap(), &mut self.out);
        let bytes = std::mem::take(&mut self.out.comparison);
        let frame = fpm::frame(&bytes).unwrap().unwrap();
        let message = frame.raw().next().unwrap().unwrap();
        let Ok(Some(Compare::Reply(reply))) = Compare::decode(&message) else { panic!("{message:?}") };
        assert_eq!(reply.seq, 7);
        reply
    }

    fn pages(&mut self) -> Vec<Entry> {
        let (mut entries, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let reply = self.ask(&Query::Page(from));
            assert!(reply.ready && (reply.next.is_none() || !reply.entries.is_empty()));
            entries.extend(reply.entries);
            next = reply.next;
        }
        entries
    }

    fn keys(&mut self, keys: &[Key]) -> Vec<Entry> {
        self.ask(&Query::Keys(keys.into())).entries
    }
}

fn key(table: u32, to: &str) -> Key {
    Key::Route(table, prefix(to))
}

/// The content of a route with these next hops, as the client computes it of its message.
fn content(to: &str, hops: &[(&str, u32, u16)]) -> Option<u64> {
    let hops: Vec<Hop> =
        hops.iter().map(|(gw, by, weight)| Hop { via: out(gw, *by), weight: *weight }).collect();
    let route = Route::new(prefix(to), 0, 186, NextHops::Inline(Hops::from(&hops[..])));
    Some(compare::route(186, compare::next_hops_of(&route)))
}

#[test]
fn compare_is_offered_to_ribtides_client_alone_and_once() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    assert!(bench.out.comparison.is_empty());
    bench.send(Content::Multipart { ack: false });
    let mut offer = Vec::new();
    compare::write_offer(&mut offer);
    assert_eq!(std::mem::take(&mut bench.out.comparison), offer);
    let message = fpm::frame(&offer).unwrap().unwrap().raw().next().unwrap().unwrap();
    assert_eq!(Compare::decode(&message), Ok(Some(Compare::Offer(VERSION))));
    bench.send(Content::Multipart { ack: true });
    assert!(bench.out.comparison.is_empty(), "the setting of the client changed");
    bench.reconnect();
    bench.send(Content::Multipart { ack: true });
    bench.out.offloads.clear();
    let mut replies = Vec::new();
    bench.out.write_replies(&mut replies);
    assert!(replies.ends_with(&offer) && bench.out.comparison.is_empty());
    for as_sonic in [
        AsSonic { weights: true, ..AsSonic::default() },
        AsSonic { next_hop_change: true, ..AsSonic::default() },
    ] {
        let mut bench = Bench::with(FpmConfig { as_sonic, ..FpmConfig::default() });
        bench.send(Content::Multipart { ack: false });
        assert!(bench.out.comparison.is_empty());
    }
}

#[test]
fn compare_pages_have_objects_and_routes_as_they_were_announced() {
    let mut bench = Bench::ours();
    bench.hop(0x8000_0001, "10.0.0.1", 7);
    bench.hop(0x8000_0002, "", 8);
    bench.group(5, &[(0x8000_0001, 1), (0x8000_0002, 9)]);
    bench.route_in(0, "10.1.0.0/16", &[("10.0.0.2", 8, 3), ("10.0.0.1", 7, 1)]);
    bench.route("10.2.0.0/16", "", 8);
    bench.by_id("10.3.0.0/16", 5);
    bench.by_id("10.4.0.0/16", 99);
    bench.kind("10.5.0.0/16", RouteKind::Blackhole);
    bench.route("10.6.0.0/16", "10.0.0.1", 1);
    bench.route("10.7.0.0/16", "10.0.0.1", 7);
    bench.del("10.7.0.0/16");
    bench.route("2001:db8::/32", "", 8);
    bench.route_in(40, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    bench.route_in(42, "10.1.0.0/16", &[("10.0.0.1", 7, 5)]);
    assert_eq!(bench.ask(&Query::Page(0)), Reply { seq: 7, ready: false, next: None, entries: vec![] });
    bench.end_of_replay();
    let entry = |key, content| Entry { key, content };
    let named = |id| Some(compare::route(186, compare::named_object(id)));
    let object = |forward: &Forward<'_>| Some(compare::object(forward));
    let members = [Member { id: 0x8000_0002, weight: 9 }, Member { id: 0x8000_0001, weight: 1 }];
    let wanted = [
        entry(Key::Object(5), object(&Forward::Group(Members::from(&members[..])))),
        entry(Key::Object(0x8000_0001), object(&Forward::via(out("10.0.0.1", 7)))),
        entry(Key::Object(0x8000_0002), object(&Forward::via(out("", 8)))),
        entry(key(0, "10.1.0.0/16"), content("10.1.0.0/16", &[("10.0.0.1", 7, 1), ("10.0.0.2", 8, 3)])),
        entry(key(0, "10.2.0.0/16"), content("10.2.0.0/16", &[("", 8, 1)])),
        entry(key(0, "10.3.0.0/16"), named(5)),
        entry(key(0, "10.4.0.0/16"), named(99)),
        entry(key(0, "10.5.0.0/16"), Some(compare::route(186, compare::BLACKHOLE))),
        // The management's has no row, and is held.
        entry(key(0, "10.6.0.0/16"), content("10.6.0.0/16", &[("10.0.0.1", 1, 1)])),
        entry(key(0, "2001:db8::/32"), content("2001:db8::/32", &[("", 8, 1)])),
        entry(key(40, "10.1.0.0/16"), content("10.1.0.0/16", &[("10.0.0.1", 7, 1)])),
        entry(key(42, "10.1.0.0/16"), None),
    ];
    assert_eq!(bench.pages(), wanted);
    let keys: Vec<Key> = wanted.iter().rev().map(|entry| entry.key).collect();
    let mut found = bench.keys(&keys);
    found.reverse();
    assert_eq!(found, wanted);
    assert_eq!(bench.keys(&[key(0, "10.7.0.0/16"), key(9, "10.1.0.0/16"), Key::Object(6)]), []);
}

#[test]
fn compare_of_routes_that_are_not_carried_or_wait_says_that_they_are_not_compared() {
    let mut bench = Bench::ours();
    bench.route_in(41, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    bench.route_in(77, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    bench.end_of_replay();
    assert_eq!(bench.pages(), []);
    let keys = [key(41, "10.1.0.0/16"), key(77, "10.1.0.0/16"), key(77, "10.2.0.0/16")];
    let entry = |key| Entry { key, content: None };
    assert_eq!(bench.keys(&keys), [entry(keys[0]), entry(keys[1])], "the last one was lost");
    bench.machine.link(77, "Vrfblue", &mut bench.out);
    assert_eq!(
        bench.pages(),
        [Entry { key: keys[1], content: content("10.1.0.0/16", &[("10.0.0.1", 7, 1)]) }]
    );
}

#[test]
fn compare_rows_of_before_the_start_are_foreign_until_they_are_announced() {
    let mut bench = Bench::ours();
    bench.end_of_replay();
    bench.machine.known_route(
        crate::row::RouteKey::new(None, prefix("10.1.0.0/16")),
        &bgp_row("10.0.0.1"),
        false,
    );
    assert!(!bench.ask(&Query::Page(0)).ready);
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.end_of_replay();
    assert_eq!(bench.pages()[0].content, content("10.1.0.0/16", &[("10.0.0.1", 7, 1)]));
}

#[test]
fn compare_pages_fit_into_frames_and_have_each_entry_once() {
    let mut bench = Bench::ours();
    for n in 0..2500_u32 {
        bench.hop(0x8000_0000 + n, &format!("10.{}.{}.1", n >> 8, n & 255), 7);
        bench.route(&format!("20.{}.{}.0/24", n >> 8, n & 255), &format!("10.0.0.{}", n % 3 + 1), 7);
        bench.route(&format!("2001:db8:{n:x}::/48"), "fe80::1", 8);
    }
    bench.end_of_replay();
    let entries = bench.pages();
    let keys: std::collections::BTreeSet<String> =
        entries.iter().map(|entry| format!("{:?}", entry.key)).collect();
    assert_eq!((entries.len(), keys.len()), (7500, 7500));
    // More keys than a client may ask for.
    let keys: Vec<Key> = entries.iter().rev().take(KEYS_MAX).map(|entry| entry.key).collect();
    assert_eq!(bench.keys(&keys).len(), KEYS_MAX);
    // A position that no page named.
    for from in [u64::MAX, 1 << 62, 1 << 63 | u64::from(u32::MAX)] {
        bench.ask(&Query::Page(from));
    }
}
