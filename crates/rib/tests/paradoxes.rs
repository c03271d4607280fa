//! Circles of routes, by name. Each table has the result that `docs/adr/0020-next-hop-resolution.md` gives it,
//! computed by hand; the oracle and the RIB, in every mode of the cache, must both have it.

use crate::common::oracle::{Oracle, Reason};
use crate::common::*;
use ribtide_rib::*;

const STATIC: Protocol = Protocol::Static;
const INT: Protocol = Protocol::BgpInternal;

/// Neighbours 10.0.1.2 on interface 1 and 10.0.2.2 on interface 2, and some routes.
struct Table {
    bench: Bench,
    oracle: Oracle,
}

impl Table {
    fn new(routes: &[(&str, RouteSet)]) -> Table {
        let mut table = Table { bench: Bench::with(vec![]), oracle: Oracle::default() };
        table.link(1, true);
        table.link(2, true);
        for (prefix, set) in routes {
            table.oracle.announce(pfx(prefix), set.clone());
            table.bench.handle(vec![route(pfx(prefix), set.protocol.source(), Some(set.clone()))]);
        }
        table
    }

    fn link(&mut self, index: IfIndex, up: bool) {
        let RibIn::Interface(state) = interface(index, up, &[&format!("10.0.{index}.1/24")]) else {
            unreachable!()
        };
        self.oracle.interfaces.insert(index, state.clone());
        self.bench.handle(vec![RibIn::Interface(state)]);
    }

    /// Checks that a prefix is installed with these neighbours, or not at all.
    #[track_caller]
    fn expect(&self, prefix: &str, links: &[IfIndex]) {
        let hops: Vec<FibHop> = links.iter().map(|link| hop(&format!("10.0.{link}.2"), *link)).collect();
        let expected = Some(FibGroup::Hops(hops)).filter(|_| !links.is_empty());
        let content = self.oracle.fib().remove(&pfx(prefix)).map(|(_, content)| content);
        assert_eq!(content, expected, "{prefix}, of the oracle");
        assert_eq!(self.bench.fib(prefix), expected, "{prefix}, of the RIB");
    }

    #[track_caller]
    fn expect_reason(&self, address: &str, reason: Reason) {
        let next_hop = recursive(address);
        assert_eq!(self.oracle.evaluate(&[next_hop]).reason(next_hop), Some(reason), "{address}");
    }
}

fn by(gateways: &[&str]) -> RouteSet {
    set(STATIC, &gateways.iter().map(|gateway| gw(gateway)).collect::<Vec<_>>())
}

#[test]
fn two_statics_below_a_recursive_default_lose_one_link_and_keep_the_other() {
    let mut table = Table::new(&[
        ("192.0.2.0/24", by(&["10.0.1.2", "10.0.2.2"])),
        ("0.0.0.0/0", set(INT, &[gw("192.0.2.1")])),
        ("20.0.0.0/24", set(INT, &[gw("192.0.2.1")])),
    ]);
    table.expect("0.0.0.0/0", &[1, 2]);
    // The first member resolves to the default route, which resolves back: dropped from this group.
    table.link(1, false);
    for prefix in ["192.0.2.0/24", "0.0.0.0/0", "20.0.0.0/24"] {
        table.expect(prefix, &[2]);
    }
}

#[test]
fn two_prefixes_each_by_the_other_take_the_default_route() {
    let pair = [("20.0.1.0/24", set(INT, &[gw("30.0.0.1")])), ("30.0.0.0/24", set(INT, &[gw("20.0.1.1")]))];
    let alone = Table::new(&pair);
    alone.expect("20.0.1.0/24", &[]);
    alone.expect("30.0.0.0/24", &[]);
    alone.expect_reason("20.0.1.1", Reason::Circle);
    let mut all = vec![("0.0.0.0/0", by(&["10.0.1.2"]))];
    all.extend(pair);
    let table = Table::new(&all);
    table.expect("20.0.1.0/24", &[1]);
    table.expect("30.0.0.0/24", &[1]);
}

#[test]
fn chain_of_twenty_is_too_deep_from_the_seventeenth_on() {
    let prefix = |n: usize| format!("50.{n}.0.0/16");
    let names: Vec<String> = (1..=20).map(prefix).collect();
    let chain = |n: usize| {
        let gateway = if n == 1 { "10.0.1.2".to_owned() } else { format!("50.{}.0.1", n - 1) };
        (&*names[n - 1], by(&[&gateway]))
    };
    let routes: Vec<(&str, RouteSet)> = (1..=20).map(chain).collect();
    let table = Table::new(&routes);
    for n in 1..=20 {
        table.expect(&prefix(n), if n <= 16 { &[1] } else { &[] });
    }
    table.expect_reason("50.16.0.1", Reason::TooDeep);
}

#[test]
fn circle_of_three_takes_the_hop_of_its_one_supporter() {
    let mut table = Table::new(&[
        ("40.0.0.0/24", by(&["41.0.0.1"])),
        ("41.0.0.0/24", by(&["42.0.0.1"])),
        ("42.0.0.0/24", by(&["40.0.0.1", "10.0.2.2"])),
    ]);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24", "42.0.0.0/24"] {
        table.expect(prefix, &[2]);
    }
    table.link(2, false);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24", "42.0.0.0/24"] {
        table.expect(prefix, &[]);
    }
}

#[test]
fn two_supporters_of_a_circle_are_decided_in_one_round_each_by_its_own_hop() {
    let table = Table::new(&[
        ("40.0.0.0/24", by(&["41.0.0.1", "10.0.1.2"])),
        ("41.0.0.0/24", by(&["40.0.0.1", "10.0.2.2"])),
        ("60.0.0.0/24", by(&["40.0.0.1", "41.0.0.1"])),
    ]);
    table.expect("40.0.0.0/24", &[1]);
    table.expect("41.0.0.0/24", &[2]);
    table.expect("60.0.0.0/24", &[1, 2]);
}

#[test]
fn circle_that_depends_on_another_waits_for_it() {
    let pairs = |supporter: &[&str]| {
        Table::new(&[
            ("40.0.0.0/24", by(&["41.0.0.1", "42.0.0.1"])),
            ("41.0.0.0/24", by(&["40.0.0.1"])),
            ("42.0.0.0/24", by(&["43.0.0.1"])),
            ("43.0.0.0/24", by(&[&["42.0.0.1"], supporter].concat())),
        ])
    };
    let table = pairs(&["10.0.1.2"]);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24", "42.0.0.0/24", "43.0.0.0/24"] {
        table.expect(prefix, &[1]);
    }
    let table = pairs(&[]);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24", "42.0.0.0/24", "43.0.0.0/24"] {
        table.expect(prefix, &[]);
    }
}

#[test]
fn circle_through_a_backup_member_takes_the_default_route() {
    let standby = |backup: &str| RouteSet { backup: vec![gw(backup)], ..by(&["10.0.1.2"]) };
    let mut table = Table::new(&[
        ("40.0.0.0/24", standby("41.0.0.1")),
        ("41.0.0.0/24", by(&["40.0.0.1"])),
        ("0.0.0.0/0", by(&["10.0.2.2"])),
    ]);
    table.expect("40.0.0.0/24", &[1]);
    table.expect("41.0.0.0/24", &[1]);
    // 10.0.1.2 itself resolves by the default route then: no backup is needed.
    table.link(1, false);
    table.expect("40.0.0.0/24", &[2]);
    table.expect("41.0.0.0/24", &[2]);
}

#[test]
fn circle_through_a_condition_passes_over_and_the_condition_holds_by_the_default_route() {
    let guarded = RouteSet { track: Some(Track::Address(ip("41.0.0.1"))), ..by(&["10.0.1.2"]) };
    let pair = [("40.0.0.0/24", guarded), ("41.0.0.0/24", by(&["40.0.0.1"]))];
    let alone = Table::new(&pair);
    alone.expect("40.0.0.0/24", &[]);
    alone.expect("41.0.0.0/24", &[]);
    let mut all = vec![("0.0.0.0/0", by(&["10.0.2.2"]))];
    all.extend(pair);
    let table = Table::new(&all);
    table.expect("40.0.0.0/24", &[1]);
    table.expect("41.0.0.0/24", &[2]);
}

#[test]
fn gateway_tied_to_an_interface_in_a_circle_takes_only_hops_by_it() {
    let tied = |interface| ReceivedHop { interface: Some(interface), ..gw("41.0.0.1") };
    let routes = |interface| {
        [
            ("40.0.0.0/24", set(STATIC, &[tied(interface)])),
            ("41.0.0.0/24", by(&["40.0.0.1", "10.0.2.2"])),
            ("0.0.0.0/0", by(&["10.0.1.2"])),
        ]
    };
    let table = Table::new(&routes(2));
    table.expect("40.0.0.0/24", &[2]);
    table.expect("41.0.0.0/24", &[2]);
    // Decided by interface 2, 41.0.0.0/24 has no next hop on interface 1: the default route has.
    let table = Table::new(&routes(1));
    table.expect("40.0.0.0/24", &[1]);
    table.expect("41.0.0.0/24", &[2]);
}

#[test]
fn query_passes_over_one_candidate_of_a_circle_and_takes_the_next_of_the_same_prefix() {
    let floating = RouteSet { distance: 10, ..by(&["10.0.2.2"]) };
    let table = Table::new(&[
        ("40.0.0.0/24", by(&["41.0.0.1"])),
        ("40.0.0.0/24", floating),
        ("41.0.0.0/24", by(&["40.0.0.1"])),
    ]);
    table.expect("41.0.0.0/24", &[2]);
    table.expect("40.0.0.0/24", &[2]);
}

#[test]
fn max_ecmp_keeps_the_first_hop_of_each_interface_before_the_second_of_any() {
    let gateways = ["10.0.1.2", "10.0.1.3", "10.0.2.2", "10.0.2.3"];
    let of = |max_ecmp| {
        let mut bench = Bench::new(RibConfig { max_ecmp, ..RibConfig::default() });
        let links = [1, 2].map(|link| interface(link, true, &[&format!("10.0.{link}.1/24")]));
        bench.handle(links.to_vec());
        bench.handle(vec![announce("40.0.0.0/24", STATIC, &gateways.map(gw))]);
        bench
    };
    of(2).expect("40.0.0.0/24", &[hop("10.0.1.2", 1), hop("10.0.2.2", 2)]);
    of(3).expect("40.0.0.0/24", &[hop("10.0.1.2", 1), hop("10.0.1.3", 1), hop("10.0.2.2", 2)]);
    of(1).expect("40.0.0.0/24", &[hop("10.0.1.2", 1)]);
}
