//! Batches of rows: when they are finished, and what is said of their routes.

use super::world::World;
use crate::orch::{Finished, OrchConfig};
use crate::row::{RouteKey, RouteRow, Row};
use crate::sai::{ObjectType, Status, Verb};

const VIA_0: &str = "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0 weight=1";
const VIA_1: &str = "protocol=bgp nexthop=10.0.1.2 ifname=Ethernet1 weight=1";

fn world() -> World {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.settle();
    world
}

fn key(text: &str) -> RouteKey {
    RouteRow::parse_key(text).unwrap()
}

fn done(batch: u64) -> Option<Finished> {
    Some(Finished { batch, failed: Vec::new() })
}

#[test]
fn a_batch_is_finished_when_the_chip_has_all_of_it_and_not_before_an_older_one() {
    let mut world = world();
    world.orch.batch(7, 2);
    world.orch.batch(8, 0);
    assert_eq!((world.orch.rows_due(), world.orch.finished(true)), (2, None));
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!((world.orch.rows_due(), world.orch.finished(true)), (1, None), "a row is still to come");
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_0);
    world.run();
    assert_eq!(world.orch.finished(true), None, "the chip has not answered");
    world.settle();
    assert_eq!([world.orch.finished(true), world.orch.finished(true)], [done(7), done(8)]);
    assert_eq!(world.orch.finished(true), None);
}

#[test]
fn row_that_a_later_batch_overtakes_keeps_no_batch_waiting() {
    let mut world = world();
    world.orch.batch(1, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.run();
    world.orch.batch(2, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    assert_eq!([world.orch.finished(false), world.orch.finished(false)], [done(1), None]);
    world.settle();
    assert_eq!((world.orch.finished(false), world.forwarding("10.1.0.0/16").as_str()), (done(2), "-"));
}

#[test]
fn what_waits_has_failed_once_nothing_moves_and_is_taken_back_when_it_comes() {
    let mut world = world();
    world.orch.batch(1, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_1);
    world.settle();
    assert_eq!(world.orch.finished(false), None, "more rows may come, its neighbour among them");
    let why = "next hop 10.0.1.2 on Ethernet1 is not resolved".to_owned();
    let failed = vec![(key("10.1.0.0/16"), why)];
    assert_eq!(world.orch.finished(true), Some(Finished { batch: 1, failed }));
    assert!(world.out.status_changes.is_empty());
    world.neighbor("10.0.1.2");
    world.settle();
    assert_eq!(std::mem::take(&mut world.out.status_changes), [(key("10.1.0.0/16"), None)]);
    // Once.
    world.orch.batch(2, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!((world.orch.finished(true), world.out.status_changes.len()), (done(2), 0));
}

#[test]
fn what_the_chip_refuses_fails_its_batch_and_a_later_failure_is_news() {
    let mut world = world();
    let refuse = |world: &mut World, verb| {
        world.syncd.chip_mut().fail.push((ObjectType::RouteEntry, verb, Status::Failure));
    };
    refuse(&mut world, Verb::Create);
    world.orch.batch(1, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    let refused = "the chip refused it: SAI_STATUS_FAILURE".to_owned();
    let failed = vec![(key("10.1.0.0/16"), refused.clone())];
    assert_eq!(world.orch.finished(true), Some(Finished { batch: 1, failed }));
    world.orch.batch(2, 1);
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.orch.finished(true), done(2));
    assert_eq!(std::mem::take(&mut world.out.status_changes), [(key("10.1.0.0/16"), None)]);
    // It waits, is reported, and then the chip refuses it.
    world.orch.batch(3, 1);
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_1);
    world.settle();
    assert_eq!(world.orch.finished(true).map(|finished| finished.failed.len()), Some(1));
    refuse(&mut world, Verb::Create);
    world.neighbor("10.0.1.2");
    world.settle();
    assert_eq!(world.out.status_changes, [(key("10.2.0.0/16"), Some(refused))]);
}
