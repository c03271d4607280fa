//! orchagent's comparison with APPL_DB.

use super::world::World;
use crate::fpmsyncd::{FoundRow, ProducerRow};
use crate::orch::{HeldCursor, OrchConfig, producer_rows};
use crate::row::RowName;
use crate::syncd::Difference;

/// A round; fpmsyncd has none of the rows, and of those in `kept` others. Returns the
/// repairs.
fn round(world: &mut World, kept: &[&str]) -> Vec<String> {
    round_with(world, kept, |_| {})
}

/// The same, with `between` the suspects and their repair.
fn round_with(world: &mut World, kept: &[&str], between: impl FnOnce(&mut World)) -> Vec<String> {
    let name = |name: &RowName| format!("{}:{}", name.table(), name.text());
    assert!(world.orch.begin_comparison());
    let mut suspects = Vec::new();
    for table in RowName::TABLES {
        let keys = world.keys(table);
        suspects.extend(world.orch.rows_not_held(table, &keys));
    }
    let mut cursor = Some(HeldCursor::default());
    while let Some(from) = cursor {
        let (rows, next) = world.orch.held_rows(from, 2).unwrap();
        let differs =
            |(row, held): &(RowName, _)| !crate::orch::HeldRow::is_as(held, row, &world.read(&name(row)));
        suspects.extend(rows.into_iter().filter(differs).map(|(row, _)| row));
        cursor = next;
    }
    let keys = world.orch.watch_rows(&suspects);
    let found: Vec<_> = keys.into_iter().map(|key| (key.clone(), world.read(&name(&key)))).collect();
    between(world);
    let of = |(row, _): FoundRow| match kept.contains(&&*name(&row)) {
        true => (row, ProducerRow::Other),
        false => (row, ProducerRow::Absent),
    };
    let producer: Vec<_> = producer_rows(&found).into_iter().map(of).collect();
    let repaired = world.orch.repair_rows(found, &producer);
    world.settle();
    repaired.into_iter().map(|(row, difference)| format!("{} {difference:?}", name(&row))).collect()
}

fn world() -> World {
    let mut world = World::with_responses();
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.neighbor(ip);
    }
    world.settle();
    world
}

const FIRST: &str = "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0";
const SECOND: &str = "protocol=bgp nexthop=10.0.1.2 ifname=Ethernet1";
const BOTH: &str = "protocol=bgp nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";

/// Rows of every kind, programmed and not, agree with themselves.
#[test]
fn comparison_of_rows_that_orchagent_took_finds_nothing() {
    for single_groups in [false, true] {
        let mut world = World::new(OrchConfig { responses: true, single_groups, ..OrchConfig::default() });
        for ip in ["10.0.0.2", "10.0.1.2"] {
            world.neighbor(ip);
        }
        for (key, text) in [
            ("NEXTHOP_GROUP_TABLE:1", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 weight=3,1"),
            ("NEXTHOP_GROUP_TABLE:2", "nexthop=10.0.0.2 ifname=Ethernet0 weight=5"),
            ("NEXTHOP_GROUP_TABLE:3", "nexthop_group=1,2"),
            ("NEXTHOP_GROUP_TABLE:4", "nexthop=10.0.3.9,10.0.2.9 ifname=Ethernet3,Ethernet2"),
            ("ROUTE_TABLE:0.0.0.0/0", FIRST),
            ("ROUTE_TABLE:20.0.0.0/24", FIRST),
            ("ROUTE_TABLE:20.0.1.0/24", BOTH),
            (
                "ROUTE_TABLE:20.0.2.0/24",
                "nexthop=10.0.1.2,10.0.0.2,10.0.1.2 ifname=Ethernet1,Ethernet0,Ethernet1",
            ),
            ("ROUTE_TABLE:20.0.3.0/24", "blackhole=true"),
            ("ROUTE_TABLE:20.0.4.0/24", "nexthop_group=1 blackhole=false ifname="),
            ("ROUTE_TABLE:20.0.5.0/24", "nexthop_group=2"),
            ("ROUTE_TABLE:20.0.6.0/24", "nexthop_group=9"),
            ("ROUTE_TABLE:20.0.7.0/24", "ifname=Ethernet2"),
            ("ROUTE_TABLE:20.0.8.0/24", "ifname=eth0 nexthop=10.0.0.2"),
            ("ROUTE_TABLE:20.0.9.0/24", "nexthop=10.0.2.9 ifname=Ethernet2"),
            ("ROUTE_TABLE:20.0.10.0/24", "nexthop=10.0.2.9,10.0.0.2 ifname=Ethernet2,Ethernet0"),
            ("ROUTE_TABLE:20.0.11.0/24", "segment=one seg_src=fc00::1"),
            ("ROUTE_TABLE:20.0.12.0/24", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_nh=push100"),
            ("ROUTE_TABLE:Vrf1:20.0.0.0/24", FIRST),
            ("ROUTE_TABLE:169.254.0.0/24", "ifname=Ethernet0"),
            ("ROUTE_TABLE:10.0.0.1", "ifname=Ethernet0"),
            ("ROUTE_TABLE:10.0.0.7", "ifname=Ethernet0"),
            ("ROUTE_TABLE:10.0.1.7/32", SECOND),
            ("ROUTE_TABLE:resync", "NULL=NULL"),
            ("LABEL_ROUTE_TABLE:200", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_nh=swap201 mpls_pop=1"),
            ("LABEL_ROUTE_TABLE:300", "nexthop=10.0.0.2 ifname=Ethernet0"),
            ("LABEL_ROUTE_TABLE:400", "blackhole=true mpls_pop=2"),
            ("LABEL_ROUTE_TABLE:500", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_pop=banana"),
        ] {
            if !key.ends_with("resync") {
                world.set(key, text);
            } else {
                world.set_unnoticed(key, text);
            }
        }
        world.settle();
        assert_eq!(round(&mut world, &[]), [""; 0], "single groups: {single_groups}");
        // A route that keeps its entry below a subnet.
        world.set("ROUTE_TABLE:10.0.1.7/32", "nexthop= ifname=Ethernet1");
        world.settle();
        assert_eq!(round(&mut world, &[]), [""; 0], "single groups: {single_groups}");
    }
}

#[test]
fn route_whose_deletion_was_lost_is_removed() {
    let mut world = world();
    let keys = ["ROUTE_TABLE:20.0.0.0/24", "ROUTE_TABLE:20.0.1.0/24", "ROUTE_TABLE:20.0.2.0/24"];
    world.set(keys[0], FIRST);
    // It waits for its neighbour, and is not programmed when that comes.
    world.set(keys[1], "nexthop=10.0.2.2 ifname=Ethernet2");
    world.set(keys[2], "segment=one seg_src=fc00::1");
    world.set("LABEL_ROUTE_TABLE:200", FIRST);
    world.set("NEXTHOP_GROUP_TABLE:1", BOTH);
    world.settle();
    let all = [
        "ROUTE_TABLE:20.0.0.0/24",
        "ROUTE_TABLE:20.0.1.0/24",
        "ROUTE_TABLE:20.0.2.0/24",
        "LABEL_ROUTE_TABLE:200",
        "NEXTHOP_GROUP_TABLE:1",
    ];
    all.iter().for_each(|key| world.set_unnoticed(key, "DEL"));
    let repaired = round(&mut world, &[]);
    let wanted: Vec<String> = all.iter().map(|key| format!("{key} Surplus")).collect();
    assert_eq!(repaired, wanted);
    world.neighbor("10.0.2.2");
    world.settle();
    assert_eq!(["20.0.0.0/24", "20.0.1.0/24"].map(|key| world.forwarding(key)), ["-", "-"]);
    assert_eq!(world.label_forwarding(200), "-");
    assert_eq!(round(&mut world, &[]), [""; 0]);
}

/// With routes over ZeroMQ, groups alone are compared.
#[test]
fn group_whose_deletion_was_lost_is_removed_in_a_comparison_of_groups_alone() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
    ["1", "2"].iter().for_each(|index| world.set(&format!("NEXTHOP_GROUP_TABLE:{index}"), BOTH));
    world.settle();
    world.set_unnoticed("ROUTE_TABLE:20.0.0.0/24", "DEL");
    world.set_unnoticed("NEXTHOP_GROUP_TABLE:1", "DEL");
    assert!(world.orch.begin_comparison());
    let group = |index: &str| RowName::Group(index.into());
    let mut held: Vec<_> = world.orch.held_groups().unwrap().into_iter().map(|(name, _)| name).collect();
    held.sort_by_key(RowName::text);
    assert_eq!(held, [group("1"), group("2")]);
    let found = vec![(group("1"), Vec::new())];
    assert_eq!(world.orch.watch_rows(&[group("1")]), [group("1")]);
    let repaired = world.orch.repair_rows(found, &[(group("1"), ProducerRow::Absent)]);
    assert_eq!(repaired, [(group("1"), Difference::Surplus)]);
    world.settle();
    let held = world.orch.held_groups().unwrap();
    assert_eq!(held.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [group("2")]);
    assert_ne!(world.forwarding("20.0.0.0/24"), "-");
}

/// An APPL_DB without rows does not empty the chip.
#[test]
fn route_whose_row_fpmsyncd_has_is_kept() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
    world.settle();
    world.set_unnoticed("ROUTE_TABLE:20.0.0.0/24", "DEL");
    assert_eq!(round(&mut world, &["ROUTE_TABLE:20.0.0.0/24"]), [""; 0]);
    assert_eq!(world.forwarding("20.0.0.0/24"), "10.0.0.2");
    // The same for a row that another program changed.
    world.set_unnoticed("ROUTE_TABLE:20.0.0.0/24", SECOND);
    assert_eq!(round(&mut world, &["ROUTE_TABLE:20.0.0.0/24"]), [""; 0]);
    assert_eq!(world.forwarding("20.0.0.0/24"), "10.0.0.2");
}

/// Nothing is known of fpmsyncd's rows: it does not run, is not ribtide's, or its replay is not over.
#[test]
fn route_without_a_row_is_kept_without_an_answer_of_fpmsyncd() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
    world.settle();
    let name = RowName::parse("ROUTE_TABLE", "20.0.0.0/24").unwrap();
    world.orch.watch_rows(std::slice::from_ref(&name));
    assert_eq!(world.orch.repair_rows(vec![(name, Vec::new())], &[]), []);
}

#[test]
fn row_that_orchagent_missed_is_given_to_it() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
    world.set("NEXTHOP_GROUP_TABLE:1", FIRST);
    world.set("ROUTE_TABLE:20.0.1.0/24", "nexthop_group=1");
    world.settle();
    world.responses();
    world.set_unnoticed("ROUTE_TABLE:20.0.0.0/24", SECOND);
    world.set_unnoticed("ROUTE_TABLE:20.0.2.0/24", BOTH);
    world.set_unnoticed("NEXTHOP_GROUP_TABLE:1", BOTH);
    world.set_unnoticed("LABEL_ROUTE_TABLE:200", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_pop=2");
    let mut repaired = round(&mut world, &[]);
    repaired.sort();
    assert_eq!(
        repaired,
        [
            "LABEL_ROUTE_TABLE:200 Missing",
            "NEXTHOP_GROUP_TABLE:1 Changed",
            "ROUTE_TABLE:20.0.0.0/24 Changed",
            "ROUTE_TABLE:20.0.2.0/24 Missing"
        ]
    );
    let forwarding = ["20.0.0.0/24", "20.0.1.0/24", "20.0.2.0/24"].map(|key| world.forwarding(key));
    assert_eq!(forwarding, ["10.0.1.2", "10.0.0.2 10.0.1.2", "10.0.0.2 10.0.1.2"]);
    assert_eq!(world.label_forwarding(200), "10.0.0.2 pop2");
    // A response to it could be counted for a later row.
    assert_eq!(world.responses(), [""; 0]);
    world.set_unnoticed("LABEL_ROUTE_TABLE:200", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_pop=3");
    assert_eq!(round(&mut world, &[]), ["LABEL_ROUTE_TABLE:200 Changed"]);
    assert_eq!(world.label_forwarding(200), "10.0.0.2 pop3");
}

#[test]
fn row_that_comes_meanwhile_is_not_repaired() {
    for is_programmed in [false, true] {
        let mut world = world();
        world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
        world.settle();
        world.set_unnoticed("ROUTE_TABLE:20.0.0.0/24", "DEL");
        let came = |world: &mut World| {
            world.set("ROUTE_TABLE:20.0.0.0/24", SECOND);
            if is_programmed {
                world.settle();
            }
        };
        assert_eq!(round_with(&mut world, &[], came), [""; 0]);
        assert_eq!(world.forwarding("20.0.0.0/24"), "10.0.1.2");
    }
}

/// orchagent takes the deletion of `20.0.0.1/32` for one of `20.0.0.1`, whose row stays.
#[test]
fn host_route_deleted_in_another_format_is_given_to_orchagent() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.1", FIRST);
    world.settle();
    world.take("ROUTE_TABLE:20.0.0.1/32", "DEL");
    world.settle();
    assert_eq!(world.forwarding("20.0.0.1"), "-");
    assert_eq!(round(&mut world, &[]), ["ROUTE_TABLE:20.0.0.1 Missing"]);
    assert_eq!(world.forwarding("20.0.0.1"), "10.0.0.2");
}

/// Either row is right; the one in libnl's format is taken when neither is programmed.
#[test]
fn route_with_rows_in_two_formats_is_as_one_of_them() {
    let mut world = world();
    world.set("ROUTE_TABLE:20.0.0.1", FIRST);
    world.set("ROUTE_TABLE:20.0.0.1/32", SECOND);
    world.set("ROUTE_TABLE:20:0::1", "blackhole=true");
    world.settle();
    assert_eq!(round(&mut world, &[]), [""; 0]);
    assert_eq!(world.forwarding("20.0.0.1"), "10.0.1.2");
    world.take("ROUTE_TABLE:20.0.0.1", "DEL");
    world.settle();
    assert_eq!(round(&mut world, &[]), ["ROUTE_TABLE:20.0.0.1 Missing"]);
    assert_eq!(world.forwarding("20.0.0.1"), "10.0.0.2");
    // The row in the other format is left.
    world.set_unnoticed("ROUTE_TABLE:20.0.0.1", "DEL");
    assert_eq!(round(&mut world, &[]), ["ROUTE_TABLE:20.0.0.1 Changed"]);
    assert_eq!(world.forwarding("20.0.0.1"), "10.0.1.2");
    world.set_unnoticed("ROUTE_TABLE:20.0.0.1/32", "DEL");
    world.set_unnoticed("ROUTE_TABLE:20:0::1", "DEL");
    let mut repaired = round(&mut world, &[]);
    repaired.sort();
    assert_eq!(repaired, ["ROUTE_TABLE:20.0.0.1 Surplus", "ROUTE_TABLE:20::1 Surplus"]);
}
