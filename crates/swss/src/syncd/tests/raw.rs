//! Objects and entries outside of the route path.

use super::*;
use crate::sai::EntryItem;

fn of(name: &str) -> ObjectType {
    ObjectType::from_name(&format!("SAI_OBJECT_TYPE_{name}")).unwrap()
}

fn raw(name: &str, value: impl ToString) -> Attr {
    Attr::raw(&format!("SAI_{name}"), &value.to_string())
}

/// A VLAN with a bridge port over a LAG as its member, and an entry of the FDB.
struct Layer2 {
    vlan: Oid,
    lag: Oid,
    bridge_port: Oid,
    member: Oid,
    policer: Oid,
}

impl World {
    fn layer2(&mut self, vlan_id: u16, cir: u32) -> Layer2 {
        // Numbers that run against the order in which they can be made.
        let [member, bridge_port, policer, lag, vlan] =
            ["VLAN_MEMBER", "BRIDGE_PORT", "POLICER", "LAG", "VLAN"].map(|name| self.vid(of(name)));
        let mut create = |object: &str, oid: Oid, attrs: Vec<Attr>| {
            assert_eq!(self.one(Verb::Create, of(object), Item::new(oid, attrs)), Status::Success);
        };
        create("VLAN", vlan, vec![raw("VLAN_ATTR_VLAN_ID", vlan_id)]);
        create("LAG", lag, vec![]);
        create(
            "POLICER",
            policer,
            vec![raw("POLICER_ATTR_METER_TYPE", "SAI_METER_TYPE_BYTES"), raw("POLICER_ATTR_CIR", cir)],
        );
        create("BRIDGE_PORT", bridge_port, vec![raw("BRIDGE_PORT_ATTR_PORT_ID", lag)]);
        let attrs =
            vec![raw("VLAN_MEMBER_ATTR_VLAN_ID", vlan), raw("VLAN_MEMBER_ATTR_BRIDGE_PORT_ID", bridge_port)];
        create("VLAN_MEMBER", member, attrs);
        let layer2 = Layer2 { vlan, lag, bridge_port, member, policer };
        assert_eq!(self.fdb(Verb::Create, &layer2, "02:00:00:00:00:01"), Status::Success);
        layer2
    }

    fn fdb(&mut self, verb: Verb, layer2: &Layer2, mac: &str) -> Status {
        let key = format!(r#"{{"bvid":"{}","mac":"{mac}","switch_id":"{SWITCH}"}}"#, layer2.vlan);
        let attrs = match verb {
            Verb::Create => Attrs::from_iter([raw("FDB_ENTRY_ATTR_BRIDGE_PORT_ID", layer2.bridge_port)]),
            _ => Attrs::new(),
        };
        let items = vec![EntryItem { key: RawText::read(&key), attrs }];
        self.call(SaiCall::Entries { verb, object: of("FDB_ENTRY"), items, bulk: false }).status
    }
}

#[test]
fn objects_of_any_type_and_entries_outlive_syncd() {
    let mut world = World::new();
    let layer2 = world.layer2(100, 1000);
    assert_eq!(world.db.entries.len(), 1);
    assert_eq!(world.fdb(Verb::Create, &layer2, "02:00:00:00:00:01"), Status::ItemAlreadyExists);
    assert_eq!(world.fdb(Verb::Remove, &layer2, "02:00:00:00:00:02"), Status::ItemNotFound);
    let (rows, entries) = (world.db.rows.clone(), world.db.entries.clone());
    world.restart_syncd();
    assert_eq!((&world.db.rows, &world.db.entries), (&rows, &entries));
    assert!(world.events.is_empty(), "{:?}", world.events);
    // What is named cannot go.
    let bare = Item::bare(layer2.bridge_port);
    assert_eq!(world.one(Verb::Remove, of("BRIDGE_PORT"), bare.clone()), Status::ObjectInUse);
    assert_eq!(world.fdb(Verb::Remove, &layer2, "02:00:00:00:00:01"), Status::Success);
    assert_eq!(world.one(Verb::Remove, of("VLAN_MEMBER"), Item::bare(layer2.member)), Status::Success);
    assert_eq!(world.one(Verb::Remove, of("BRIDGE_PORT"), bare), Status::Success);
    assert!(world.db.entries.is_empty());
}

#[test]
fn view_of_the_same_objects_by_other_numbers_changes_nothing_in_the_chip() {
    let mut world = World::new();
    let first = world.layer2(100, 1000);
    world.operations();
    world.start();
    let second = world.layer2(100, 1000);
    assert_ne!(first.lag, second.lag);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(world.operations(), [""; 0]);
    assert_eq!(world.row(of("VLAN"), second.vlan), "SAI_VLAN_ATTR_VLAN_ID=100");
    assert!(!world.db.rows.contains_key(&(of("VLAN"), first.vlan.into())));
    let key = world.db.entries.keys().next().unwrap().1.to_string();
    assert!(key.contains(&second.vlan.to_string()), "{key}");
}

#[test]
fn view_with_changes_sets_creates_and_removes_in_order() {
    let mut world = World::new();
    world.layer2(100, 1000);
    world.operations();
    world.start();
    // The policer has another rate, and the VLAN is another.
    let second = world.layer2(200, 2000);
    assert_eq!(world.view(View::Apply), Status::Success);
    let operations = world.operations();
    let name = |verb: Verb, object: &str| format!("{verb:?} {:?}", of(object));
    let count = |verb, object| operations.iter().filter(|done| **done == name(verb, object)).count();
    assert_eq!(count(Verb::Set, "POLICER"), 1, "{operations:?}");
    assert_eq!((count(Verb::Create, "VLAN"), count(Verb::Remove, "VLAN")), (1, 1), "{operations:?}");
    assert_eq!((count(Verb::Create, "LAG"), count(Verb::Create, "POLICER")), (0, 0), "{operations:?}");
    assert_eq!(world.row(of("POLICER"), second.policer).matches("CIR=2000").count(), 1);
    let at = |object| operations.iter().position(|done| *done == name(Verb::Remove, object)).unwrap();
    assert!(at("FDB_ENTRY") < at("VLAN_MEMBER"), "{operations:?}");
    assert!(at("VLAN_MEMBER") < at("VLAN"), "{operations:?}");
    assert!(world.events.is_empty(), "{:?}", world.events);
    // A view without any of it leaves none.
    world.start();
    assert_eq!(world.view(View::Apply), Status::Success);
    assert!(world.db.entries.is_empty());
    let of_switch = [ObjectType::Switch, ObjectType::Port, ObjectType::VirtualRouter];
    assert!(world.db.rows.keys().all(|(object, _)| of_switch.contains(object)), "{:?}", world.db.rows.keys());
    assert!(world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn attributes_that_orchagent_reads_are_in_the_row_unless_it_set_them() {
    let mut world = World::new();
    let port = world.ports[0];
    let rid = world.syncd.rid(port).unwrap();
    let in_chip = |world: &mut World, attr: Attr| {
        let status = world.syncd.chip_mut().one(Verb::Set, ObjectType::Port, &mut Item::new(rid, [attr]));
        assert_eq!(status, Status::Success);
    };
    let read = |world: &mut World, attr: Attr| {
        let mut out = SyncdOut::default();
        let call = SaiCall::Get { object: ObjectType::Port, id: port.into(), attrs: vec![attr] };
        world.syncd.handle(SaiRequest { id: 7, call }, &mut out);
        world.db.write(out.rows.unpack());
        out.replies.pop().unwrap().values
    };
    in_chip(&mut world, Attr::PortSpeed(40_000));
    assert_eq!(read(&mut world, Attr::PortSpeed(0)), [Attr::PortSpeed(40_000)]);
    assert_eq!(world.row(ObjectType::Port, port), "SAI_PORT_ATTR_SPEED=40000");
    // What another program changed of what orchagent requested is repaired, and not kept.
    assert_eq!(
        world.one(Verb::Set, ObjectType::Port, Item::new(port, [Attr::PortSpeed(25_000)])),
        Status::Success
    );
    in_chip(&mut world, Attr::PortSpeed(10_000));
    assert_eq!(read(&mut world, Attr::PortSpeed(0)), [Attr::PortSpeed(10_000)]);
    assert_eq!(world.row(ObjectType::Port, port), "SAI_PORT_ATTR_SPEED=25000");
}

#[test]
fn an_entry_requested_again_after_a_crash_counts_as_done() {
    let mut world = World::new();
    let layer2 = world.layer2(100, 1000);
    let call = |verb, mac: &str, attrs| {
        let key = format!(r#"{{"bvid":"{}","mac":"{mac}","switch_id":"{SWITCH}"}}"#, layer2.vlan);
        let items = vec![EntryItem { key: RawText::read(&key), attrs }];
        SaiCall::Entries { verb, object: of("FDB_ENTRY"), items, bulk: false }
    };
    let attrs = || Attrs::from_iter([raw("FDB_ENTRY_ATTR_BRIDGE_PORT_ID", layer2.bridge_port)]);
    let create = call(Verb::Create, "02:00:00:00:00:02", attrs());
    let remove = call(Verb::Remove, "02:00:00:00:00:02", Attrs::new());
    // Nothing of the first attempt is in the database, or all of it is.
    for written in [0, 9] {
        let (first, again) = world.crash_in(create.clone(), written);
        assert_eq!((first.status, again.status), (Status::Success, Status::Success), "{written}");
        assert_eq!(world.db.entries.len(), 2);
        let (first, again) = world.crash_in(remove.clone(), written);
        assert_eq!((first.status, again.status), (Status::Success, Status::Success), "{written}");
        assert_eq!(world.db.entries.len(), 1);
    }
    // A new request is not one that comes again.
    assert_eq!(world.call(remove).status, Status::ItemNotFound);
    assert_eq!(
        world.call(call(Verb::Create, "02:00:00:00:00:01", attrs())).status,
        Status::ItemAlreadyExists
    );
}

#[test]
fn a_view_holds_when_another_program_changed_entries_of_the_chip() {
    let mut world = World::new();
    world.layer2(100, 1000);
    let fdb = of("FDB_ENTRY");
    let (_, key) = world.syncd.chip().entries.keys().next().unwrap().clone();
    // The entry aged out in the chip; the view has none either.
    world.start();
    world.syncd.chip_mut().entries.remove(&(fdb, key.clone()));
    assert_eq!(world.view(View::Apply), Status::Success);
    assert!(world.db.entries.is_empty() && world.syncd.chip().entries.is_empty());
    assert!(world.events.is_empty(), "{:?}", world.events);
    // The chip has an entry that syncd did not make, and the view has the same with attributes of its own.
    let mut world = World::new();
    let first = world.layer2(100, 1000);
    assert_eq!(world.fdb(Verb::Remove, &first, "02:00:00:00:00:01"), Status::Success);
    world.start();
    world.layer2(100, 1000);
    world.syncd.chip_mut().entries.insert((fdb, key.clone()), BTreeMap::new());
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(world.syncd.chip().entries[&(fdb, key)].len(), 1);
    assert!(world.events.is_empty(), "{:?}", world.events);
}
