//! The same tests of every chip behind the trait `Sai`: the virtual switch, and a library behind the C ABI.
//!
//! `SAI_LIBRARY=PATH cargo test -p ribtide-sai-library --test conformance` runs them with another library too, such as
//! SONiC's `libsaivs.so`; `SAI_PROFILE=FILE` is its profile, with a line `KEY=VALUE` for each setting.

mod support;

use ribtide_sai_library::{Library, LibraryChip, notify};
use ribtide_swss::sai::notification::PortState;
use ribtide_swss::sai::{
    Attr, ErrorMode, GroupType, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid, OperStatus,
    PacketAction, Query, RawText, RifType, RouteEntry, Sai, Status, Verb,
};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A library has one set of objects in a process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The compiled library of `tests/library`; `None` without a C compiler.
fn compiled() -> Option<&'static Path> {
    static COMPILED: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = support::compile(folder.path(), "libsai.so", &[])?;
        Some((folder, path))
    });
    compiled.as_ref().map(|(_, path)| path.as_path())
}

/// A chip with room for so many routes, and four ports or more.
fn library(routes: u32) -> Option<LibraryChip> {
    let profile =
        [("MEMORY_ROUTES".to_owned(), routes.to_string()), ("MEMORY_PORTS".to_owned(), "8".to_owned())];
    Some(LibraryChip::new(Library::open(compiled()?, &profile).unwrap(), None))
}

fn virtual_switch(routes: u32) -> VirtualSwitch {
    let mut chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
    chip.behave([("ipv4-routes", routes.to_string().as_str())]).unwrap();
    chip
}

/// Runs a test with each chip; `limited` are those whose room for routes the test sets.
fn each(routes: u32, run: fn(&mut Bench<'_>)) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(&mut Bench::new(&mut virtual_switch(routes)));
    if let Some(mut chip) = library(routes) {
        run(&mut Bench::new(&mut chip));
    }
    if let Some(path) = std::env::var_os("SAI_LIBRARY").filter(|_| routes == ROOMY) {
        let profile = std::env::var_os("SAI_PROFILE").map(|file| std::fs::read_to_string(file).unwrap());
        let pairs = profile.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once('='));
        let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let library = Library::open(Path::new(&path), &pairs).unwrap_or_else(|e| panic!("{e}"));
        run(&mut Bench::new(&mut LibraryChip::new(library, None)));
    }
}

/// Room for every route of a test.
const ROOMY: u32 = 100_000;

struct Bench<'a> {
    chip: &'a mut dyn Sai,
    switch: Oid,
    vr: Oid,
    ports: Vec<Oid>,
    rif: Oid,
}

impl<'a> Bench<'a> {
    fn new(chip: &'a mut dyn Sai) -> Bench<'a> {
        let mut start = Item::new(Oid::NULL, [Attr::SwitchInit(true)]);
        assert_eq!(chip.one(Verb::Create, ObjectType::Switch, &mut start), Status::Success);
        let switch = start.id.oid().unwrap();
        let mut count = [Attr::SwitchPortNumber(0)];
        chip.get(ObjectType::Switch, &switch.into(), &mut count).unwrap();
        let [Attr::SwitchPortNumber(count)] = count else { panic!("{count:?}") };
        let mut own = [
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; count as usize].into()),
        ];
        chip.get(ObjectType::Switch, &switch.into(), &mut own).unwrap();
        let [Attr::SwitchDefaultVirtualRouter(vr), Attr::SwitchPortList(ports)] = own else {
            panic!("{own:?}")
        };
        assert!(!vr.is_null() && ports.len() == count as usize && ports.iter().all(|port| !port.is_null()));
        let mut bench = Bench { chip, switch, vr, ports: ports.into(), rif: Oid::NULL };
        let port = bench.ports[1];
        bench.rif = bench.make(
            ObjectType::RouterInterface,
            [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(port)],
        );
        bench
    }

    fn make<const N: usize>(&mut self, object: ObjectType, attrs: [Attr; N]) -> Oid {
        let mut item = Item::new(Oid::NULL, attrs);
        assert_eq!(self.chip.one(Verb::Create, object, &mut item), Status::Success, "{object:?}");
        let oid = item.id.oid().unwrap();
        assert!(!oid.is_null());
        oid
    }

    /// A next hop with its neighbour.
    fn hop(&mut self, gateway: &str) -> Oid {
        let ip = gateway.parse().unwrap();
        let entry = NeighborEntry { switch: self.switch, rif: self.rif, ip };
        let mut neighbor = Item::new(entry, [Attr::NeighborMac("02:00:00:00:00:01".parse().unwrap())]);
        assert_eq!(self.chip.one(Verb::Create, ObjectType::NeighborEntry, &mut neighbor), Status::Success);
        let rif = self.rif;
        let attrs = [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(ip), Attr::NextHopRif(rif)];
        self.make(ObjectType::NextHop, attrs)
    }

    fn entry(&self, dest: &str) -> RouteEntry {
        RouteEntry { switch: self.switch, vr: self.vr, dest: dest.parse().unwrap() }
    }

    fn route(&mut self, verb: Verb, dest: &str, attrs: impl IntoIterator<Item = Attr>) -> Status {
        let mut item = Item::new(self.entry(dest), attrs);
        self.chip.one(verb, ObjectType::RouteEntry, &mut item)
    }

    fn bulk(&mut self, verb: Verb, object: ObjectType, items: &mut [Item], mode: ErrorMode) -> Vec<Status> {
        let mut statuses = Vec::new();
        self.chip.bulk(verb, object, items, mode, &mut statuses);
        assert_eq!(statuses.len(), items.len());
        statuses
    }

    fn next_hop(&mut self, dest: &str) -> Result<Oid, Status> {
        let mut attrs = [Attr::RouteNextHop(Oid::NULL)];
        self.chip.get(ObjectType::RouteEntry, &self.entry(dest).into(), &mut attrs)?;
        match attrs {
            [Attr::RouteNextHop(oid)] => Ok(oid),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, object: ObjectType, id: impl Into<ObjectId>) -> Status {
        self.chip.one(Verb::Remove, object, &mut Item::bare(id))
    }
}

#[test]
fn routes_are_created_read_changed_and_removed() {
    each(ROOMY, |bench| {
        let (a, b) = (bench.hop("10.0.0.1"), bench.hop("fc00::1"));
        for dest in ["20.0.0.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "20.0.0.1/32"] {
            assert_eq!(bench.route(Verb::Create, dest, [Attr::RouteNextHop(a)]), Status::Success, "{dest}");
            assert_eq!(bench.next_hop(dest), Ok(a), "{dest}");
            assert_eq!(bench.route(Verb::Set, dest, [Attr::RouteNextHop(b)]), Status::Success, "{dest}");
            assert_eq!(bench.next_hop(dest), Ok(b), "{dest}");
            assert_eq!(bench.route(Verb::Create, dest, [Attr::RouteNextHop(a)]), Status::ItemAlreadyExists);
            assert_eq!(bench.next_hop(dest), Ok(b), "{dest}");
            assert_eq!(bench.route(Verb::Remove, dest, []), Status::Success, "{dest}");
            assert_eq!(bench.next_hop(dest), Err(Status::ItemNotFound), "{dest}");
            assert_eq!(bench.route(Verb::Remove, dest, []), Status::ItemNotFound, "{dest}");
            let drop = Attr::RoutePacketAction(PacketAction::Drop);
            assert_eq!(bench.route(Verb::Set, dest, [drop.clone()]), Status::ItemNotFound, "{dest}");
            assert_eq!(bench.route(Verb::Create, dest, [drop]), Status::Success, "{dest}");
            assert_eq!(bench.route(Verb::Remove, dest, []), Status::Success, "{dest}");
        }
    });
}

#[test]
fn objects_in_use_are_not_removed() {
    each(ROOMY, |bench| {
        let hop = bench.hop("10.0.0.1");
        assert_eq!(bench.remove(ObjectType::RouterInterface, bench.rif), Status::ObjectInUse);
        assert_eq!(bench.route(Verb::Create, "20.0.0.0/24", [Attr::RouteNextHop(hop)]), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ObjectInUse);
        let group = bench.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        let member = bench.make(
            ObjectType::NextHopGroupMember,
            [Attr::MemberGroup(group), Attr::MemberNextHop(hop), Attr::MemberWeight(3)],
        );
        assert_eq!(bench.route(Verb::Set, "20.0.0.0/24", [Attr::RouteNextHop(group)]), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::ObjectInUse);
        assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ObjectInUse);
        let mut weight = [Attr::MemberWeight(0)];
        bench.chip.get(ObjectType::NextHopGroupMember, &member.into(), &mut weight).unwrap();
        assert_eq!(weight, [Attr::MemberWeight(3)]);
        assert_eq!(bench.route(Verb::Remove, "20.0.0.0/24", []), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHopGroupMember, member), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::Success);
        assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ItemNotFound);
    });
}

#[test]
fn bulk_with_a_failing_entry_obeys_its_error_mode() {
    each(ROOMY, |bench| {
        let hop = bench.hop("10.0.0.1");
        assert_eq!(bench.route(Verb::Create, "20.0.2.0/24", [Attr::RouteNextHop(hop)]), Status::Success);
        let routes = |bench: &Bench<'_>| -> Vec<Item> {
            let entry = |n: u32| bench.entry(&format!("20.0.{n}.0/24"));
            (0..5).map(|n| Item::new(entry(n), [Attr::RouteNextHop(hop)])).collect()
        };
        let (yes, exists, not) = (Status::Success, Status::ItemAlreadyExists, Status::NotExecuted);
        let mut items = routes(bench);
        let statuses = bench.bulk(Verb::Create, ObjectType::RouteEntry, &mut items, ErrorMode::StopOnError);
        assert_eq!(statuses, [yes, yes, exists, not, not]);
        assert_eq!(bench.next_hop("20.0.1.0/24"), Ok(hop));
        assert_eq!(bench.next_hop("20.0.3.0/24"), Err(Status::ItemNotFound));
        let mut items = routes(bench);
        let statuses = bench.bulk(Verb::Create, ObjectType::RouteEntry, &mut items, ErrorMode::IgnoreError);
        assert_eq!(statuses, [exists, exists, exists, yes, yes]);

        // A set of what is missing, in the middle.
        assert_eq!(bench.route(Verb::Remove, "20.0.2.0/24", []), yes);
        let other = bench.hop("10.0.0.2");
        let mut sets: Vec<Item> = (0..5u32)
            .map(|n| Item::new(bench.entry(&format!("20.0.{n}.0/24")), [Attr::RouteNextHop(other)]))
            .collect();
        let statuses = bench.bulk(Verb::Set, ObjectType::RouteEntry, &mut sets, ErrorMode::StopOnError);
        assert_eq!(statuses, [yes, yes, Status::ItemNotFound, not, not]);
        assert_eq!((bench.next_hop("20.0.1.0/24"), bench.next_hop("20.0.3.0/24")), (Ok(other), Ok(hop)));
        let statuses = bench.bulk(Verb::Set, ObjectType::RouteEntry, &mut sets, ErrorMode::IgnoreError);
        assert_eq!(statuses, [yes, yes, Status::ItemNotFound, yes, yes]);

        // A removal of what is missing.
        let mut removals: Vec<Item> =
            (0..5u32).map(|n| Item::bare(bench.entry(&format!("20.0.{n}.0/24")))).collect();
        let statuses =
            bench.bulk(Verb::Remove, ObjectType::RouteEntry, &mut removals, ErrorMode::StopOnError);
        assert_eq!(statuses, [yes, yes, Status::ItemNotFound, not, not]);
        let statuses =
            bench.bulk(Verb::Remove, ObjectType::RouteEntry, &mut removals, ErrorMode::IgnoreError);
        let missing = Status::ItemNotFound;
        assert_eq!(statuses, [missing, missing, missing, yes, yes]);
    });
}

#[test]
fn bulk_of_objects_with_ids_returns_an_id_for_each_that_was_made() {
    each(ROOMY, |bench| {
        let (a, b) = (bench.hop("10.0.0.1"), bench.hop("10.0.0.2"));
        let group = bench.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        let member = |hop: Oid| Item::new(Oid::NULL, [Attr::MemberGroup(group), Attr::MemberNextHop(hop)]);
        // An id that no object has.
        let absent = Oid(a.0 ^ 0xffff_0000);
        for (mode, third) in
            [(ErrorMode::StopOnError, Status::NotExecuted), (ErrorMode::IgnoreError, Status::Success)]
        {
            let mut items = [member(a), member(absent), member(b)];
            let statuses = bench.bulk(Verb::Create, ObjectType::NextHopGroupMember, &mut items, mode);
            assert!(statuses[0].is_success() && !statuses[1].is_success(), "{statuses:?}");
            assert_eq!(statuses[2], third);
            let made: Vec<Oid> = items.iter().filter_map(|item| item.id.oid()).collect();
            assert_eq!(
                made.iter().map(|oid| oid.is_null()).collect::<Vec<_>>(),
                [false, true, !third.is_success()]
            );
            for oid in made.into_iter().filter(|oid| !oid.is_null()) {
                let mut of = [Attr::MemberGroup(Oid::NULL)];
                bench.chip.get(ObjectType::NextHopGroupMember, &oid.into(), &mut of).unwrap();
                assert_eq!(of, [Attr::MemberGroup(group)]);
                assert_eq!(bench.remove(ObjectType::NextHopGroupMember, oid), Status::Success);
            }
        }
    });
}

#[test]
fn full_table_refuses_one_more_route() {
    each(3, |bench| {
        let hop = bench.hop("10.0.0.1");
        let mut items: Vec<Item> = (0..5u32)
            .map(|n| Item::new(bench.entry(&format!("20.0.{n}.0/24")), [Attr::RouteNextHop(hop)]))
            .collect();
        let statuses = bench.bulk(Verb::Create, ObjectType::RouteEntry, &mut items, ErrorMode::IgnoreError);
        let (yes, full) = (Status::Success, Status::TableFull);
        assert_eq!(statuses, [yes, yes, yes, full, full]);
        let mut free = [Attr::SwitchAvailableIpv4Route(9)];
        bench.chip.get(ObjectType::Switch, &bench.switch.into(), &mut free).unwrap();
        assert_eq!(free, [Attr::SwitchAvailableIpv4Route(0)]);
        assert_eq!(bench.route(Verb::Remove, "20.0.1.0/24", []), yes);
        assert_eq!(bench.route(Verb::Create, "20.0.9.0/24", [Attr::RouteNextHop(hop)]), yes);
    });
}

#[test]
fn list_that_is_longer_than_its_room_overflows() {
    each(ROOMY, |bench| {
        let mut few = [Attr::SwitchPortList(vec![Oid::NULL; 2].into())];
        let switch = bench.switch.into();
        assert_eq!(bench.chip.get(ObjectType::Switch, &switch, &mut few), Err(Status::BufferOverflow));
        let mut lanes = [Attr::PortLanes(vec![0; 8].into())];
        let port = bench.ports[0].into();
        bench.chip.get(ObjectType::Port, &port, &mut lanes).unwrap();
        let [Attr::PortLanes(lanes)] = lanes else { panic!("{lanes:?}") };
        assert!(!lanes.is_empty());
    });
}

#[test]
fn unknown_references_and_missing_attributes_are_refused() {
    each(ROOMY, |bench| {
        let absent = Oid(bench.rif.0 ^ 0xffff_0000);
        let status = bench.route(Verb::Create, "20.0.0.0/24", [Attr::RouteNextHop(absent)]);
        assert!(!status.is_success(), "{status:?}");
        assert_eq!(bench.next_hop("20.0.0.0/24"), Err(Status::ItemNotFound));
        let mut rif = Item::new(Oid::NULL, [Attr::RifKind(RifType::Port)]);
        let status = bench.chip.one(Verb::Create, ObjectType::RouterInterface, &mut rif);
        assert_eq!((status, rif.id.oid()), (Status::MandatoryAttributeMissing, Some(Oid::NULL)));
    });
}

/// Only a library has notifications of its own threads.
#[test]
fn notifications_of_a_library_arrive_and_coalesce() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(path) = compiled() else { return };
    let woken = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&woken);
    let wake: notify::Wake = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let mut chip = LibraryChip::new(Library::open(path, &[]).unwrap(), Some(wake));
    // orchagent's pointers mean nothing here, and a library must not call them.
    let pointer = |name: &str| Attr::read(name, "0x5597d5b6c6b1").unwrap();
    let attrs = [
        Attr::SwitchInit(true),
        pointer("SAI_SWITCH_ATTR_PORT_STATE_CHANGE_NOTIFY"),
        pointer("SAI_SWITCH_ATTR_BFD_SESSION_STATE_CHANGE_NOTIFY"),
    ];
    let mut start = Item::new(Oid::NULL, attrs);
    assert_eq!(chip.one(Verb::Create, ObjectType::Switch, &mut start), Status::Success);
    let switch = start.id.oid().unwrap();
    let mut ports = [Attr::SwitchPortList(vec![Oid::NULL; 4].into())];
    chip.get(ObjectType::Switch, &switch.into(), &mut ports).unwrap();
    let [Attr::SwitchPortList(ports)] = ports else { panic!("{ports:?}") };
    for (port, up) in [(ports[0], true), (ports[1], true), (ports[0], false)] {
        let mut item = Item::new(port, [Attr::PortAdminState(up)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::Port, &mut item), Status::Success);
    }
    let heard = chip.hear();
    let (up, down) = (OperStatus::Up, OperStatus::Down);
    let state = |port: Oid, status| PortState { port, status };
    assert_eq!(chip.port_states(), [state(ports[0], down), state(ports[1], up)]);
    assert_eq!((woken.load(Ordering::Relaxed), heard.shutdown, heard.dropped), (3, false, 0));
    assert_eq!(chip.hear(), notify::Notifications::default());
    assert_eq!(chip.port_states(), []);
    chip.report_all_ports();
    let all: Vec<PortState> =
        ports.iter().map(|port| state(*port, if *port == ports[1] { up } else { down })).collect();
    assert_eq!(chip.port_states(), all);
    // The count of a request makes no room beyond a bound.
    let mut endless = [Attr::read("SAI_PORT_ATTR_ADVERTISED_SPEED", "4294967295:null").unwrap()];
    assert!(chip.get(ObjectType::Port, &ports[0].into(), &mut endless).is_err());

    // What a library has of its own, by type.
    let own = chip.discover();
    let count = |name: &str| own.iter().filter(|(object, _)| object.short_name() == name).count();
    assert_eq!((count("SWITCH"), count("PORT"), count("VIRTUAL_ROUTER"), own.len()), (1, 5, 1, 7));
}

/// Objects, entries and queries outside of the route path are text.
#[test]
fn entries_and_queries_of_text_reach_a_library() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut chip) = library(ROOMY) else { return };
    let mut start = Item::new(Oid::NULL, [Attr::SwitchInit(true)]);
    assert_eq!(chip.one(Verb::Create, ObjectType::Switch, &mut start), Status::Success);
    let switch = start.id.oid().unwrap();
    let of = |name: &str| ObjectType::from_name(name).unwrap();
    let (vlan, fdb) = (of("SAI_OBJECT_TYPE_VLAN"), of("SAI_OBJECT_TYPE_FDB_ENTRY"));
    let mut item = Item::new(Oid::NULL, [Attr::raw("SAI_VLAN_ATTR_VLAN_ID", "100")]);
    assert_eq!(chip.one(Verb::Create, vlan, &mut item), Status::Success);
    let bv = item.id.oid().unwrap();
    assert_eq!(chip.object_type(bv), Some(vlan));

    let key =
        RawText::read(&format!(r#"{{"bvid":"{bv}","mac":"02:00:00:00:00:01","switch_id":"{switch}"}}"#));
    let kind = Attr::raw("SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_STATIC");
    assert_eq!(chip.entry(Verb::Create, fdb, &key, std::slice::from_ref(&kind)), Ok(()));
    assert_eq!(
        chip.entry(Verb::Create, fdb, &key, std::slice::from_ref(&kind)),
        Err(Status::ItemAlreadyExists)
    );
    let action = Attr::raw("SAI_FDB_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP");
    assert_eq!(chip.entry(Verb::Set, fdb, &key, &[action]), Ok(()));
    let mut read = [kind.clone(), Attr::raw("SAI_FDB_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_FORWARD")];
    assert_eq!(chip.get_entry(fdb, &key, &mut read), Ok(()));
    assert_eq!(read.map(|attr| attr.value()), ["SAI_FDB_ENTRY_TYPE_STATIC", "SAI_PACKET_ACTION_DROP"]);
    let no_key = RawText::read("{}");
    assert_eq!(chip.entry(Verb::Remove, fdb, &no_key, &[]), Err(Status::InvalidParameter));
    assert_eq!(chip.take_events(), ["the key of a SAI_OBJECT_TYPE_FDB_ENTRY has no member switch_id"]);

    let mut flushed = Vec::new();
    let mut query = |query: Query| {
        let reply = chip.query(&query, &mut flushed);
        let fields = reply.fields.iter().map(|field| format!("{}={}", field.name(), field.value()));
        (reply.status, fields.collect::<Vec<_>>())
    };
    let attr = || "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION".into();
    let route = of("SAI_OBJECT_TYPE_ROUTE_ENTRY");
    let (status, fields) = query(Query::AttributeCapability { object: route, attr: attr() });
    assert_eq!(status, Status::Success);
    assert_eq!(fields, ["CREATE_IMPLEMENTED=true", "SET_IMPLEMENTED=true", "GET_IMPLEMENTED=true"]);
    let (status, fields) = query(Query::EnumValues { object: route, attr: attr(), room: 2 });
    assert_eq!((status, fields), (Status::BufferOverflow, vec!["ENUM_COUNT=3".to_owned()]));
    assert_eq!(query(Query::FlushFdb { attrs: Default::default() }), (Status::Success, vec![]));
    assert_eq!(chip.entry(Verb::Remove, fdb, &key, &[]), Err(Status::ItemNotFound));

    // Eight ports, the CPU port, the virtual router; the VLAN is of no attribute of these.
    let own = chip.own_objects(switch);
    assert_eq!(own.len(), 10, "{own:?}");
    assert!(own.is_sorted() && own.iter().all(|(object, _)| *object != ObjectType::Switch));
}
