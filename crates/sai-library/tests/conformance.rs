//! The conformance suite of chips, with a library behind the C ABI, and what only a library has.
//!
//! `SAI_LIBRARY=PATH cargo test -p ribtide-sai-library --test conformance` runs the suite with another library too, such
//! as SONiC's `libsaivs.so`; `SAI_PROFILE=FILE` is its profile, with a line `KEY=VALUE` for each setting.

#[path = "../../vswitch/tests/conformance/suite/mod.rs"]
mod suite;
mod support;

use ribtide_sai_library::{Library, LibraryChip, notify};
use ribtide_swss::sai::notification::{FdbChange, FdbEvent, PortState};
use ribtide_swss::sai::{Attr, Item, ObjectType, Oid, OperStatus, Query, RawText, Sai, Status, Verb};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use suite::{Bench, ROOMY};

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

/// Runs a test with each library. The room for routes is a setting of ours.
fn each(routes: u32, run: fn(&mut Bench<'_>)) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut chip) = library(routes) {
        run(&mut Bench::new(&mut chip));
        assert_eq!(chip.take_events(), [""; 0]);
    }
    if let Some(path) = std::env::var_os("SAI_LIBRARY").filter(|_| routes == ROOMY) {
        let profile = std::env::var_os("SAI_PROFILE").map(|file| std::fs::read_to_string(file).unwrap());
        let pairs = profile.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once('='));
        let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let library = Library::open(Path::new(&path), &pairs).unwrap_or_else(|e| panic!("{e}"));
        run(&mut Bench::new(&mut LibraryChip::new(library, None)));
    }
}

suite::conformance!(each);

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
        pointer("SAI_SWITCH_ATTR_FDB_EVENT_NOTIFY"),
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
    assert_eq!((woken.load(Ordering::Relaxed), heard.shutdown), (3, false));
    assert_eq!(chip.hear(), notify::Notifications::default());
    assert_eq!(chip.port_states(), []);
    chip.report_all_ports();
    let all: Vec<PortState> =
        ports.iter().map(|port| state(*port, if *port == ports[1] { up } else { down })).collect();
    assert_eq!(chip.port_states(), all);
    // A change of the FDB has the key and the attributes of its entry.
    let bridge_port = |text: &str| Attr::raw("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", text);
    let of = |name: &str| ObjectType::from_name(name).unwrap();
    let vlan_id = Attr::raw("SAI_VLAN_ATTR_VLAN_ID", "7");
    let mut vlan = Item::new(Oid::NULL, [vlan_id]);
    assert_eq!(chip.one(Verb::Create, of("SAI_OBJECT_TYPE_VLAN"), &mut vlan), Status::Success);
    let bv = vlan.id.oid().unwrap();
    let key = format!(r#"{{"bvid":"{bv}","mac":"02:00:00:00:00:01","switch_id":"{switch}"}}"#);
    let (key, fdb) = (RawText::read(&key), of("SAI_OBJECT_TYPE_FDB_ENTRY"));
    let kind = Attr::raw("SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_STATIC");
    assert_eq!(chip.entry(Verb::Create, fdb, &key, std::slice::from_ref(&kind)), Ok(()));
    let port = bridge_port(&ports[1].to_string());
    assert_eq!(chip.entry(Verb::Set, fdb, &key, std::slice::from_ref(&port)), Ok(()));
    assert_eq!(chip.fdb_events(), []);
    assert!(chip.hear().fdb.is_empty());
    let moved =
        FdbEvent { change: FdbChange::Moved, key: key.clone(), attrs: [kind, port].into_iter().collect() };
    assert_eq!(chip.fdb_events(), [moved]);
    assert_eq!(chip.fdb_events(), []);
    assert_eq!(chip.entry(Verb::Remove, fdb, &key, &[]), Ok(()));
    assert_eq!(chip.one(Verb::Remove, of("SAI_OBJECT_TYPE_VLAN"), &mut Item::bare(bv)), Status::Success);

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

    let mut query = |query: Query| {
        let reply = chip.query(&query);
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
