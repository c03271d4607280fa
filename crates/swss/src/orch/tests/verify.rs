//! The comparison with a syncd that was started again, from rows that are not what it had.

use super::chip::Chip;
use super::world::World;
use crate::orch::{Differences, OrchConfig, OrchEvent};
use crate::sai::{Oid, text};
use crate::syncd::{Syncd, SyncdOut};
use std::collections::BTreeMap;

type Rows = BTreeMap<String, BTreeMap<String, String>>;

const FIRST: &str = "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0";
const SECOND: &str = "protocol=bgp nexthop=10.0.1.2 ifname=Ethernet1";
const BOTH: &str = "protocol=bgp nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";

fn world() -> World {
    let config = OrchConfig { responses: true, verifies: true, bulk_size: 3, ..OrchConfig::default() };
    let mut world = World::new(config);
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.neighbor(ip);
    }
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.set("ROUTE_TABLE:0.0.0.0/0", FIRST);
    world.set("ROUTE_TABLE:20.0.0.0/24", FIRST);
    world.set("ROUTE_TABLE:20.0.1.0/24", SECOND);
    world.set("ROUTE_TABLE:20.0.2.0/24", BOTH);
    world.set("ROUTE_TABLE:20.0.3.0/24", "blackhole=true");
    world.set("ROUTE_TABLE:Vrf1:20.0.0.0/24", FIRST);
    world.set("LABEL_ROUTE_TABLE:200", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_nh=swap201 mpls_pop=1");
    world.settle();
    world
}

/// syncd is killed, rows change, and another one starts. Returns what orchagent reports.
fn restart(world: &mut World, change: impl FnOnce(&mut Rows)) -> Vec<OrchEvent> {
    change(&mut world.asic_db);
    let rows: Vec<_> = world
        .asic_db
        .iter()
        .map(|(key, row)| {
            let (object, id) = text::read_row_key(key).unwrap();
            let fields = row.iter().filter_map(|(name, value)| text::read_field(name, value).unwrap());
            (object, id, fields.collect())
        })
        .collect();
    let mut hidden = world.hidden.clone();
    let own: Vec<Oid> = hidden.iter_mut().flat_map(|attr| attr.oids_mut().to_vec()).collect();
    let keys = rows.iter().map(|(object, id, _)| (*object, *id));
    let keys: Vec<_> = keys.filter(|(_, id)| id.oid().is_none_or(|oid| !own.contains(&oid))).collect();
    world.rid_of.clear();
    world.syncd = Syncd::new(Chip::new(), Box::new(world.vids.clone()));
    let mut out = SyncdOut::default();
    world.syncd.recreate(rows, &world.hidden, &mut out);
    world.write_rows(out.rows);
    world.sent.clear();
    world.orch.verify(true);
    world.orch.syncd_has(keys);
    world.orch.syncd_has_no_more();
    world.settle();
    std::mem::take(&mut world.out.events)
}

fn differences(events: &[OrchEvent]) -> Differences {
    match events {
        [OrchEvent::Verified { differences, .. }] => *differences,
        other => panic!("{other:?}"),
    }
}

/// Which requests changed anything.
fn changes(world: &World) -> usize {
    let reads =
        |request: &&crate::sai::SaiRequest| !matches!(request.call, crate::sai::SaiCall::BulkGet { .. });
    world.sent.iter().filter(reads).count()
}

#[test]
fn syncd_that_has_all_is_read_and_not_changed() {
    let mut world = world();
    let before = world.asic_db.clone();
    let events = restart(&mut world, |_| {});
    assert!(differences(&events).is_none(), "{events:?}");
    assert_eq!((changes(&world), world.asic_db == before), (0, true));
    assert!(world.sent.len() > 5);
}

/// Redis comes back with the rows of a time when more was there, and other things.
#[test]
fn rows_of_before_are_repaired() {
    let mut world = world();
    world.set("VRF_TABLE:Vrf2", "fallback=false");
    world.set("ROUTE_TABLE:Vrf2:20.0.0.0/24", SECOND);
    world.set("LAG_TABLE:PortChannel1", "admin_status=up oper_status=up");
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet3", "status=enabled");
    world.set("ROUTE_TABLE:20.0.4.0/24", BOTH);
    world.set("ROUTE_TABLE:20.0.5.0/24", BOTH);
    world.set(
        "LABEL_ROUTE_TABLE:300",
        "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 mpls_nh=swap301,swap302 mpls_pop=1",
    );
    world.settle();
    let older = world.asic_db.clone();
    world.set("ROUTE_TABLE:Vrf2:20.0.0.0/24", "DEL");
    world.set("VRF_TABLE:Vrf2", "DEL");
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet3", "DEL");
    world.set("LAG_TABLE:PortChannel1", "DEL");
    // It drops now, and the group has no other route.
    world.set("ROUTE_TABLE:20.0.2.0/24", "blackhole=true");
    world.set("ROUTE_TABLE:20.0.4.0/24", "DEL");
    // The row is refused, and the entry is gone.
    world.set("ROUTE_TABLE:20.0.5.0/24", "DEL");
    world.set("ROUTE_TABLE:20.0.5.0/24", "nexthop=nonsense ifname=Ethernet0");
    world.set("LABEL_ROUTE_TABLE:300", "blackhole=true");
    world.settle();
    let before: Vec<String> = world.asic_db.keys().cloned().collect();
    assert!(older.len() > before.len() + 8, "{} and {}", older.len(), before.len());
    world.out.events.clear();
    let events = restart(&mut world, |rows| *rows = older);
    let found = differences(&events);
    assert!(found.missing == 0 && found.changed > 1 && found.surplus > 8, "{found:?}");
    assert_eq!(world.asic_db.keys().cloned().collect::<Vec<_>>(), before);
    assert_eq!(world.forwarding("20.0.2.0/24"), "drop");
    world.assert_db_agrees();
}

/// All rows are gone, and with them the switch.
#[test]
fn syncd_that_does_not_take_it_again_ends_orchagent() {
    let mut world = world();
    let events = restart(&mut world, Rows::clear);
    assert!(matches!(events.last(), Some(OrchEvent::Fatal(_))), "{events:?}");
}

#[test]
fn comparison_that_goes_on_while_syncd_is_started_again_begins_again() {
    let mut world = world();
    world.orch.verify(false);
    world.run();
    assert!(!world.queue.is_empty() && !world.orch.idle());
    let events = restart(&mut world, |_| {});
    assert!(differences(&events).is_none() && world.orch.idle(), "{events:?}");
}
