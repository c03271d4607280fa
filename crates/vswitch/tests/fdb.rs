//! The FDB in ASIC_DB: rows that a flush removes, and those of addresses that the chip learns and forgets by itself.

use ribtide_swss::sai::notification::{FdbChange, FdbEvent};
use ribtide_swss::sai::{
    Attr, Attrs, Audit, EntryItem, ErrorMode, Item, ObjectId, ObjectType, Oid, Query, QueryReply, RawText,
    SWITCH, Sai, SaiCall, SaiReply, SaiRequest, Status, Verb, VidCounter, View,
};
use ribtide_swss::syncd::{AsicChange, Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::collections::BTreeMap;

/// The virtual switch, with events as of a chip that learns.
struct Chip {
    switch: VirtualSwitch,
    events: Vec<FdbEvent>,
}

impl Sai for Chip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        self.switch.bulk(verb, object, items, mode, statuses);
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.get(object, id, attrs)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.switch.entry(verb, object, key, attrs)
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        self.switch.query(query)
    }

    fn own_objects(&mut self, switch: Oid) -> Vec<(ObjectType, Oid)> {
        self.switch.own_objects(switch)
    }

    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        self.switch.object_type(rid)
    }

    fn fdb_events(&mut self) -> Vec<FdbEvent> {
        std::mem::take(&mut self.events)
    }
}

struct Bench {
    syncd: Syncd<Chip>,
    /// Rows of FDB entries by their key.
    rows: BTreeMap<String, Attrs>,
    /// VLANs and bridge ports, by VID.
    vlans: [Oid; 2],
    ports: [Oid; 2],
}

fn of(name: &str) -> ObjectType {
    ObjectType::from_name(&format!("SAI_OBJECT_TYPE_{name}")).unwrap()
}

const STATIC: &str = "SAI_FDB_ENTRY_TYPE_STATIC";
const DYNAMIC: &str = "SAI_FDB_ENTRY_TYPE_DYNAMIC";

impl Bench {
    fn new() -> Bench {
        let switch = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        let chip = Chip { switch, events: Vec::new() };
        let syncd = Syncd::new(chip, Box::new(VidCounter::default()));
        let none = [Oid::NULL; 2];
        let mut bench = Bench { syncd, rows: BTreeMap::new(), vlans: none, ports: none };
        bench.call(SaiCall::View(View::Init));
        let item = Item::new(SWITCH, [Attr::SwitchInit(true)]);
        bench.call(SaiCall::One { verb: Verb::Create, object: ObjectType::Switch, item });
        bench.call(SaiCall::View(View::Apply));
        // Those of the first two ports are the chip's own.
        let mut own: Vec<Oid> =
            bench.syncd.numbers().filter(|n| n.own == Some(of("BRIDGE_PORT"))).map(|n| n.vid).collect();
        own.sort_unstable();
        bench.ports = [own[0], own[1]];
        bench.vlans = [10, 20].map(|n| {
            let vid = Oid::vid(of("VLAN"), 0x10_0000 + n);
            let item = Item::new(vid, [Attr::VlanId(n as u16)]);
            bench.call(SaiCall::One { verb: Verb::Create, object: of("VLAN"), item });
            vid
        });
        bench
    }

    fn call(&mut self, call: SaiCall) -> SaiReply {
        let mut out = SyncdOut::default();
        self.syncd.handle(SaiRequest { id: 1, call }, &mut out);
        self.write(out);
        SaiReply::one(1, Status::Success)
    }

    fn write(&mut self, out: SyncdOut) {
        assert!(out.replies.iter().all(|reply| reply.status.is_success()), "{:?}", out.replies);
        for change in out.rows.unpack() {
            match change {
                AsicChange::SetEntry(_, key, attrs) => {
                    let row = self.rows.entry(key.to_string()).or_default();
                    for attr in attrs {
                        row.retain(|old| !old.same_kind(&attr));
                        row.push(attr);
                    }
                }
                AsicChange::RemoveEntry(_, key) => assert!(self.rows.remove(&key.to_string()).is_some()),
                _ => {}
            }
        }
    }

    fn key(&self, mac: u8, bv: Oid) -> RawText {
        RawText::read(&format!(
            r#"{{"bvid":"{bv}","mac":"02:00:00:00:00:{mac:02X}","switch_id":"{SWITCH}"}}"#
        ))
    }

    /// orchagent's entry of an address on a VLAN and port.
    fn entry(&mut self, mac: u8, vlan: usize, port: usize, kind: &str) {
        let attrs = [
            Attr::raw("SAI_FDB_ENTRY_ATTR_TYPE", kind),
            Attr::raw("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &self.ports[port].to_string()),
        ];
        let items =
            vec![EntryItem { key: self.key(mac, self.vlans[vlan]), attrs: attrs.into_iter().collect() }];
        self.call(SaiCall::Entries { verb: Verb::Create, object: of("FDB_ENTRY"), items, bulk: false });
    }

    /// What the chip reports about an address, in its own ids.
    fn event(
        &mut self,
        change: FdbChange,
        mac: u8,
        vlan: Option<usize>,
        port: Option<usize>,
    ) -> Vec<FdbEvent> {
        let rid = |vid: Oid| self.syncd.rid(vid).unwrap();
        let bv = vlan.map_or(Oid::NULL, |vlan| rid(self.vlans[vlan]));
        let mac = if mac == 0 { "00:00:00:00:00:00".to_owned() } else { format!("02:00:00:00:00:{mac:02X}") };
        let key = format!(r#"{{"bvid":"{bv}","mac":"{mac}","switch_id":"{}"}}"#, rid(SWITCH));
        let port = port.map(|port| rid(self.ports[port]).to_string());
        let port = port.map(|port| Attr::raw("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &port));
        let event = FdbEvent { change, key: RawText::read(&key), attrs: port.into_iter().collect() };
        self.syncd.chip_mut().events.push(event);
        let mut out = SyncdOut::default();
        let events = self.syncd.fdb_events(&mut out);
        self.write(out);
        events
    }

    /// The last octets of the addresses that have a row.
    fn addresses(&self) -> Vec<u8> {
        let octet =
            |key: &String| u8::from_str_radix(key.split("02:00:00:00:00:").nth(1)?.get(..2)?, 16).ok();
        let mut all: Vec<u8> = self.rows.keys().filter_map(octet).collect();
        all.sort_unstable();
        all
    }

    fn flush(&mut self, attrs: &[(&str, String)]) {
        let attrs = attrs.iter().map(|(name, value)| Attr::raw(&format!("SAI_FDB_FLUSH_ATTR_{name}"), value));
        self.call(SaiCall::Query(Query::FlushFdb { attrs: attrs.collect() }));
        // The chip has the same entries.
        assert_eq!(self.syncd.chip().switch.raw_entries().len(), self.rows.len());
    }
}

#[test]
fn flush_removes_the_rows_that_its_port_vlan_and_type_select() {
    let four = |bench: &mut Bench| {
        bench.entry(1, 0, 0, DYNAMIC);
        bench.entry(2, 0, 1, DYNAMIC);
        bench.entry(3, 1, 0, DYNAMIC);
        bench.entry(4, 0, 0, STATIC);
    };
    let all = || ("ENTRY_TYPE", "SAI_FDB_FLUSH_ENTRY_TYPE_ALL".to_owned());
    let of_type = || ("ENTRY_TYPE", "SAI_FDB_FLUSH_ENTRY_TYPE_STATIC".to_owned());
    let port = |bench: &Bench, n: usize| ("BRIDGE_PORT_ID", bench.ports[n].to_string());
    let vlan = |bench: &Bench, n: usize| ("BV_ID", bench.vlans[n].to_string());
    type Attrs<'a> = Vec<(&'a str, String)>;
    type Make<'a> = &'a dyn Fn(&Bench) -> Attrs<'a>;
    let cases: [(Make<'_>, &[u8]); 8] = [
        (&|_| vec![], &[4]),
        (&|_| vec![all()], &[]),
        (&|_| vec![of_type()], &[1, 2, 3]),
        (&|bench| vec![port(bench, 0)], &[2, 4]),
        (&|bench| vec![vlan(bench, 0)], &[3, 4]),
        (&|bench| vec![port(bench, 0), vlan(bench, 0)], &[2, 3, 4]),
        (&|bench| vec![port(bench, 0), vlan(bench, 0), all()], &[2, 3]),
        (&|bench| vec![port(bench, 1), of_type()], &[1, 2, 3, 4]),
    ];
    for (attrs, left) in cases {
        let mut bench = Bench::new();
        four(&mut bench);
        let attrs = attrs(&bench);
        bench.flush(&attrs);
        assert_eq!(bench.addresses(), left, "{attrs:?}");
    }
}

#[test]
fn learned_addresses_get_rows_and_events_have_the_ids_of_orchagent() {
    let mut bench = Bench::new();
    let events = bench.event(FdbChange::Learned, 5, Some(0), Some(0));
    let port =
        |bench: &Bench, n: usize| Attr::raw("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &bench.ports[n].to_string());
    let key = bench.key(5, bench.vlans[0]);
    let attrs = [port(&bench, 0)].into_iter().collect();
    assert_eq!(events, [FdbEvent { change: FdbChange::Learned, key: key.clone(), attrs }]);
    let kind = Attr::raw("SAI_FDB_ENTRY_ATTR_TYPE", DYNAMIC);
    assert_eq!(bench.rows[&key.to_string()].to_vec(), [port(&bench, 0), kind.clone()]);
    bench.event(FdbChange::Moved, 5, Some(0), Some(1));
    assert_eq!(bench.rows[&key.to_string()].to_vec(), [port(&bench, 1), kind]);
    bench.event(FdbChange::Learned, 6, Some(1), Some(0));
    assert_eq!(bench.addresses(), [5, 6]);
    bench.event(FdbChange::Aged, 5, Some(0), Some(1));
    assert_eq!(bench.addresses(), [6]);
    // One that has no row, and one of an object that orchagent never heard of.
    assert_eq!(bench.event(FdbChange::Aged, 9, Some(0), Some(1)).len(), 1);
    let key = RawText::read(r#"{"bvid":"oid:0x77","mac":"02:00:00:00:00:07","switch_id":"oid:0x0"}"#);
    bench.syncd.chip_mut().events.push(FdbEvent { change: FdbChange::Learned, key, attrs: Attrs::new() });
    let mut out = SyncdOut::default();
    assert_eq!(bench.syncd.fdb_events(&mut out), []);
    assert!(out.rows.is_empty());
}

/// Events of a chip that were on their way when orchagent made the entry.
#[test]
fn static_entry_over_a_learned_address_outlives_its_events() {
    let mut bench = Bench::new();
    bench.event(FdbChange::Learned, 5, Some(0), Some(0));
    bench.entry(5, 0, 1, STATIC);
    let key = bench.key(5, bench.vlans[0]).to_string();
    let row = |bench: &Bench| {
        let mut row: Vec<String> =
            bench.rows[&key].iter().map(Attr::value).map(|value| value.to_string()).collect();
        row.sort();
        row
    };
    let of = |bench: &Bench, n: usize| [STATIC.to_owned(), bench.ports[n].to_string()];
    assert_eq!(row(&bench), of(&bench, 1));
    for change in [FdbChange::Learned, FdbChange::Aged] {
        bench.event(change, 5, Some(0), Some(0));
        assert_eq!(row(&bench), of(&bench, 1), "{change:?}");
    }
    // One that may move (`SAI_FDB_ENTRY_ATTR_ALLOW_MAC_MOVE`) stays static.
    bench.event(FdbChange::Moved, 5, Some(0), Some(0));
    assert_eq!(row(&bench), of(&bench, 0));
    // A flush of learned entries leaves it.
    bench.event(FdbChange::Flushed, 0, Some(0), None);
    assert_eq!(bench.addresses(), [5]);
    bench.event(FdbChange::Flushed, 5, Some(0), Some(0));
    assert_eq!(bench.addresses(), [0u8; 0]);
}

#[test]
fn flush_event_without_an_address_removes_the_rows_of_its_port_and_vlan() {
    let cases: [(Option<usize>, Option<usize>, &[u8]); 4] = [
        (None, Some(0), &[2, 4]),
        (Some(0), None, &[3, 4]),
        (Some(0), Some(0), &[2, 3, 4]),
        (None, None, &[4]),
    ];
    for (vlan, port, left) in cases {
        let mut bench = Bench::new();
        bench.event(FdbChange::Learned, 1, Some(0), Some(0));
        bench.event(FdbChange::Learned, 2, Some(0), Some(1));
        bench.event(FdbChange::Learned, 3, Some(1), Some(0));
        bench.entry(4, 0, 0, STATIC);
        assert_eq!(bench.event(FdbChange::Flushed, 0, vlan, port).len(), 1);
        assert_eq!(bench.addresses(), left, "{vlan:?} {port:?}");
    }
}
