//! The rows that a comparison of APPL_DB asks for, and the watches of suspects.

use super::*;
use crate::fpmsyncd::{ProducerRow, RowCursor, RowName, TableKey, WantedRow};
use crate::row::{LabelKey, RouteKey};
use std::collections::BTreeMap;

/// Every wanted row, in pages of so many.
fn wanted(bench: &Bench, page: usize) -> BTreeMap<(&'static str, String), WantedRow> {
    let (mut all, mut cursor) = (BTreeMap::new(), Some(RowCursor::default()));
    while let Some(from) = cursor {
        let (rows, next) = bench.machine.wanted_rows(from, page);
        for (name, row) in rows {
            assert_eq!(bench.machine.wanted(&name).as_ref(), Some(&row));
            assert_eq!(all.insert((name.table(), name.text()), row), None);
        }
        cursor = next;
    }
    all
}

fn fields<R: Row>(row: &R) -> Vec<(String, String)> {
    let mut all = Vec::new();
    row.fields(&mut |name, value| all.push((name.to_owned(), value.to_owned())));
    all
}

#[test]
fn wanted_rows_are_those_that_were_handed_over() {
    let mut bench = Bench::new();
    for n in 0..30 {
        bench.route(&format!("10.{n}.0.0/16"), "10.0.0.1", 7);
    }
    bench.route("2001:db8::/32", "fd00::1", 7);
    bench.route_in(40, "10.0.0.0/8", &[("10.0.0.2", 8, 1)]);
    bench.label(100, &[("10.0.0.1", 7, 1, &[200])]);
    bench.hop(1, "10.0.0.1", 7);
    bench.hop(2, "10.0.0.2", 7);
    bench.group(5, &[(1, 1), (2, 1)]);
    bench.by_id("11.0.0.0/8", 5);
    assert!(wanted(&bench, 7).is_empty(), "nothing is handed over");
    bench.take();
    for page in [1, 7, 1000] {
        let rows = wanted(&bench, page);
        assert_eq!(rows.len(), 30 + 1 + 1 + 1 + 1 + 1);
        let has = |table, text: &str| rows.contains_key(&(table, text.to_owned()));
        assert!(has("ROUTE_TABLE", "10.7.0.0/16") && has("ROUTE_TABLE", "Vrfred:10.0.0.0/8"));
        assert!(has("LABEL_ROUTE_TABLE", "100") && has("NEXTHOP_GROUP_TABLE", "5"));
    }
    // A change that is not handed over leaves its row out.
    bench.route("10.7.0.0/16", "10.0.0.9", 7);
    assert_eq!(wanted(&bench, 7).len(), 34);
    bench.take();
    bench.del("10.8.0.0/16");
    bench.take();
    assert_eq!(wanted(&bench, 7).len(), 34);
}

#[test]
fn wanted_groups_are_the_groups_that_were_handed_over_and_no_routes() {
    let mut bench = Bench::new();
    bench.route("10.0.0.0/8", "10.0.0.1", 7);
    bench.label(100, &[("10.0.0.1", 7, 1, &[200])]);
    bench.hop(1, "10.0.0.1", 7);
    bench.group(5, &[(1, 1)]);
    bench.by_id("11.0.0.0/8", 5);
    let groups = |bench: &Bench| bench.machine.wanted_groups().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(groups(&bench).is_empty(), "nothing is handed over");
    bench.take();
    assert_eq!(groups(&bench), [TableKey::Row(RowName::Group("5".into()))]);
}

#[test]
fn known_row_is_wanted_once_it_is_announced() {
    let mut bench = Bench::new();
    bench.machine.known_route(RouteKey::new(None, prefix("10.1.0.0/16")), &bgp_row("10.0.0.1"), false);
    assert!(wanted(&bench, 7).is_empty(), "its fields may be another fpmsyncd's");
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.take();
    assert_eq!(wanted(&bench, 7).len(), 1);
}

#[test]
fn wanted_row_is_found_in_any_order_of_next_hops() {
    let row = |hops: &[&str]| RouteRow {
        protocol: Some("bgp".into()),
        via: Arc::new(Via::hops(hops.iter().map(|hop| (hop.parse().unwrap(), "Ethernet0", 1)), true)),
    };
    let wanted = WantedRow::Route(row(&["10.0.0.1", "10.0.0.2"]));
    assert!(
        wanted.is(&fields(&row(&["10.0.0.1", "10.0.0.2"])))
            && wanted.is(&fields(&row(&["10.0.0.2", "10.0.0.1"])))
    );
    let mut other = fields(&row(&["10.0.0.1", "10.0.0.2"]));
    other.push(("unknown".into(), "1".into()));
    other.push(("blackhole".into(), String::new()));
    assert!(wanted.is(&other), "empty and foreign fields have no effect");
    other.push(("blackhole".into(), "true".into()));
    assert!(!wanted.is(&other) && !wanted.is::<&str>(&[]));
    assert!(!wanted.is(&fields(&row(&["10.0.0.1"]))));
    let other = RouteRow { protocol: Some("static".into()), ..row(&["10.0.0.1", "10.0.0.2"]) };
    assert!(!wanted.is(&fields(&other)));
}

#[test]
fn row_that_is_handed_over_ends_its_watch() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    bench.label(100, &[("10.0.0.1", 7, 1, &[200])]);
    bench.take();
    let names = [
        TableKey::Row(RowName::Route(RouteKey::new(None, prefix("10.1.0.0/16")))),
        TableKey::Row(RowName::Route(RouteKey::new(None, prefix("10.2.0.0/16")))),
        TableKey::Row(RowName::Label(LabelKey::Label(100))),
    ];
    bench.machine.watch(&names);
    let watched = |bench: &Bench| names.each_ref().map(|name| bench.machine.is_watched(name));
    bench.route("10.1.0.0/16", "10.0.0.2", 7);
    assert_eq!((watched(&bench), bench.machine.wanted(&names[0])), ([true; 3], None));
    bench.take();
    assert_eq!(watched(&bench), [false, true, true]);
    bench.no_label(100);
    bench.take();
    assert_eq!(watched(&bench), [false, true, false]);
    // A row of its own accord has an answer, which is counted.
    let awaiting = bench.machine.awaiting();
    let mut out = FpmOut::default();
    bench.machine.row_again(&names[1], true, &mut out);
    bench.machine.row_again(&names[2], true, &mut out);
    assert!(
        matches!(&out.routes[..], [Change { row: Some(row), reshaped: true, .. }] if *row == bgp_row("10.0.0.1"))
    );
    assert!(out.labels.is_empty() && bench.machine.awaiting() == awaiting);
    assert_eq!(bench.machine.count_awaiting(), bench.machine.awaiting());
}

#[test]
fn surplus_rows_of_an_old_dump_are_deleted_and_no_others() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.hop(1, "10.0.0.1", 7);
    bench.hop(2, "10.0.0.3", 8);
    bench.group(3, &[(1, 1), (2, 1)]);
    bench.by_id("10.2.0.0/16", 3);
    bench.label(400, &[("10.0.0.1", 7, 1, &[401])]);
    bench.take();
    for key in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "Vrfred:10.1.0.0/16"] {
        bench.machine.delete_surplus_route(RouteRow::parse_key(key).unwrap(), &mut bench.out);
    }
    for label in [400, 500] {
        bench.machine.delete_surplus_label(LabelKey::Label(label), &mut bench.out);
    }
    // An index that is no number is another program's.
    for index in ["3", "4", "other"] {
        bench.machine.delete_surplus_group(index.into(), &mut bench.out);
    }
    assert_eq!(
        bench.drain(),
        [
            "ROUTE_TABLE:10.3.0.0/16 DEL",
            "ROUTE_TABLE:Vrfred:10.1.0.0/16 DEL",
            "LABEL_ROUTE_TABLE:500 DEL",
            "NEXTHOP_GROUP_TABLE:4 DEL"
        ]
    );
}

/// Another daemon asks what this one has of rows that it found, or found missing.
#[test]
fn compare_found_row_that_no_client_announced_is_absent_after_the_replay_alone() {
    let mut bench = Bench::new();
    bench.machine.known_route(RouteKey::new(None, prefix("10.9.0.0/16")), &bgp_row("10.0.0.1"), false);
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    bench.take();
    bench.route("10.2.0.0/16", "10.0.0.9", 7);
    let name = |text| RowName::parse("ROUTE_TABLE", text).unwrap();
    let Some(WantedRow::Route(row)) = bench.machine.wanted(&TableKey::Row(name("10.1.0.0/16"))) else {
        panic!("no row")
    };
    let found = [
        (name("10.1.0.0/16"), fields(&row)),
        (name("10.1.0.0/16"), Vec::new()),
        (name("10.2.0.0/16"), fields(&row)),
        (name("10.3.0.0/16"), fields(&row)),
        (name("10.9.0.0/16"), Vec::new()),
        (RowName::parse("NEXTHOP_GROUP_TABLE", "theirs").unwrap(), Vec::new()),
    ];
    let (same, other, unknown) = (ProducerRow::Same, ProducerRow::Other, ProducerRow::Unknown);
    assert_eq!(bench.machine.compare_found(&found), [same, other, unknown, unknown, unknown, unknown]);
    bench.machine.end_of_replay(&mut bench.out);
    let absent = ProducerRow::Absent;
    assert_eq!(bench.machine.compare_found(&found), [same, other, other, absent, absent, absent]);
}
