//! syncd on a strict model of a chip: what ASIC_DB says is what the chip holds, whatever is asked, fails or restarts.

mod chip;
mod random;
mod raw;

use super::*;
use crate::row::Mac;
use crate::sai::{
    GroupType, NeighborEntry, NextHopType, PacketAction, RifType, RouteEntry, VidCounter, text,
};
use chip::Chip;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// ASIC_DB: what the changes made of it.
#[derive(Default)]
struct Db {
    rows: BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>,
    rid_of: BTreeMap<Oid, Oid>,
    hidden: BTreeMap<String, Attr>,
    entries: BTreeMap<(ObjectType, RawText), BTreeMap<String, Attr>>,
    in_view: bool,
}

impl Db {
    fn write(&mut self, changes: impl IntoIterator<Item = AsicChange>) {
        for change in changes {
            match change {
                AsicChange::Wipe => *self = Db::default(),
                AsicChange::Set(object, id, attrs) => {
                    let row = self.rows.entry((object, id)).or_default();
                    row.extend(attrs.into_iter().map(|attr| (attr.name().to_string(), attr)));
                }
                AsicChange::Remove(object, id) => {
                    assert!(self.rows.remove(&(object, id)).is_some(), "{object:?} {id:?}");
                }
                AsicChange::Map(vid, rid) => assert_eq!(self.rid_of.insert(vid, rid), None),
                AsicChange::Unmap(vid, rid) => assert_eq!(self.rid_of.remove(&vid), Some(rid)),
                AsicChange::Hidden(attr) => drop(self.hidden.insert(attr.name().into(), attr)),
                AsicChange::SetEntry(object, key, attrs) => {
                    let row = self.entries.entry((object, key)).or_default();
                    row.extend(attrs.into_iter().map(|attr| (attr.name().to_string(), attr)));
                }
                AsicChange::RemoveEntry(object, key) => {
                    assert!(self.entries.remove(&(object, key)).is_some());
                }
                AsicChange::View(begun) => self.in_view = begun,
            }
        }
    }
}

/// syncd, its chip and its database, and an orchagent's numbers.
struct World {
    syncd: Syncd<Chip>,
    vids: VidCounter,
    db: Db,
    events: Vec<String>,
    vr: Oid,
    ports: Vec<Oid>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl World {
    fn new() -> World {
        let vids = VidCounter::default();
        let mut world = World {
            syncd: Syncd::new(Chip::default(), Box::new(vids.clone())).validate(Validation::Off),
            vids,
            db: Db::default(),
            events: Vec::new(),
            vr: Oid::NULL,
            ports: Vec::new(),
        };
        world.start();
        assert_eq!(world.view(View::Apply), Status::Success);
        world
    }

    fn vid(&mut self, object: ObjectType) -> Oid {
        Oid::vid(object, self.vids.take(1).unwrap().start)
    }

    fn call(&mut self, call: SaiCall) -> SaiReply {
        self.hand(call, Syncd::handle)
    }

    fn hand(&mut self, call: SaiCall, to: fn(&mut Syncd<Chip>, SaiRequest, &mut SyncdOut)) -> SaiReply {
        let mut out = SyncdOut::default();
        to(&mut self.syncd, SaiRequest { id: 7, call }, &mut out);
        self.db.write(out.rows.unpack());
        self.events.extend(out.events);
        self.check();
        let reply = out.replies.pop().unwrap();
        assert!(out.replies.is_empty() && reply.id == 7);
        reply
    }

    fn view(&mut self, view: View) -> Status {
        self.call(SaiCall::View(view)).status
    }

    fn bulk(&mut self, verb: Verb, object: ObjectType, items: Vec<Item>, mode: ErrorMode) -> Vec<Status> {
        let count = items.len();
        let reply = self.call(SaiCall::Bulk { verb, object, items, mode });
        assert_eq!(reply.statuses.len(), count);
        reply.statuses
    }

    fn one(&mut self, verb: Verb, object: ObjectType, item: Item) -> Status {
        self.call(SaiCall::One { verb, object, item }).status
    }

    fn make(&mut self, object: ObjectType, attrs: impl IntoIterator<Item = Attr>) -> Oid {
        let vid = self.vid(object);
        assert_eq!(self.one(Verb::Create, object, Item::new(vid, attrs)), Status::Success);
        vid
    }

    /// What orchagent does first: it begins a view, makes the switch, and asks what that has.
    fn start(&mut self) {
        assert_eq!(self.view(View::Init), Status::Success);
        let mac = Attr::SwitchSrcMac(Mac([2, 0, 0, 0, 0, 1]));
        let switch = Item::new(SWITCH, [Attr::SwitchInit(true), mac]);
        assert_eq!(self.one(Verb::Create, ObjectType::Switch, switch), Status::Success);
        let attrs = vec![
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchCpuPort(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; 8].into()),
        ];
        let reply = self.call(SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs });
        let [Attr::SwitchDefaultVirtualRouter(vr), Attr::SwitchCpuPort(_), Attr::SwitchPortList(ports)] =
            reply.values.as_slice()
        else {
            panic!("{reply:?}")
        };
        (self.vr, self.ports) = (*vr, ports.to_vec());
    }

    fn rif(&mut self, port: usize) -> Oid {
        let attrs =
            [Attr::RifVirtualRouter(self.vr), Attr::RifKind(RifType::Port), Attr::RifPort(self.ports[port])];
        self.make(ObjectType::RouterInterface, attrs)
    }

    /// A next hop with its neighbour.
    fn hop(&mut self, rif: Oid, gateway: &str) -> Oid {
        let entry = NeighborEntry { switch: SWITCH, rif, ip: ip(gateway) };
        let neighbor = Item::new(entry, [Attr::NeighborMac(Mac([2, 0, 0, 0, 0, 9]))]);
        assert_eq!(self.one(Verb::Create, ObjectType::NeighborEntry, neighbor), Status::Success);
        let kind = Attr::NextHopKind(NextHopType::Ip);
        self.make(ObjectType::NextHop, [kind, Attr::NextHopIp(ip(gateway)), Attr::NextHopRif(rif)])
    }

    fn group(&mut self, hops: &[Oid]) -> Oid {
        let group = self.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        for hop in hops {
            self.make(ObjectType::NextHopGroupMember, [Attr::MemberGroup(group), Attr::MemberNextHop(*hop)]);
        }
        group
    }

    fn entry(&self, dest: &str) -> RouteEntry {
        RouteEntry { switch: SWITCH, vr: self.vr, dest: dest.parse().unwrap() }
    }

    fn route(&mut self, dest: &str, to: Oid) -> Status {
        let item = Item::new(self.entry(dest), [Attr::RouteNextHop(to)]);
        self.one(Verb::Create, ObjectType::RouteEntry, item)
    }

    /// syncd alone starts again, on an empty chip.
    fn restart_syncd(&mut self) {
        self.syncd = Syncd::new(Chip::default(), Box::new(self.vids.clone())).validate(Validation::Off);
        // As the daemon does: the maps are written again.
        self.db.rid_of.clear();
        let rows: Vec<_> = self
            .db
            .rows
            .iter()
            .map(|((object, id), row)| (*object, *id, row.values().cloned().collect()))
            .collect();
        let hidden: Vec<Attr> = self.db.hidden.values().cloned().collect();
        let mut out = SyncdOut::default();
        self.syncd.recreate(rows, &hidden, &mut out);
        let entries = self.db.entries.iter();
        let entries: Vec<_> = entries
            .map(|((object, key), row)| (*object, key.clone(), row.values().cloned().collect()))
            .collect();
        self.syncd.recreate_entries(entries, &mut out);
        self.db.write(out.rows.unpack());
        self.events.extend(out.events);
        self.check();
    }

    /// syncd carries out a request, ends when so many of its rows are written, and is started again with what it owes. What
    /// it would have answered, and what the next one answers.
    fn crash_in(&mut self, call: SaiCall, written: usize) -> (SaiReply, SaiReply) {
        let mut out = SyncdOut::default();
        self.syncd.handle(SaiRequest { id: 7, call: call.clone() }, &mut out);
        self.db.write(out.rows.unpack().take(written));
        self.restart_syncd();
        (out.replies.remove(0), self.hand(call, Syncd::handle_again))
    }

    /// Everything that must always hold.
    fn check(&self) {
        let db = &self.db;
        let rids: BTreeSet<Oid> = db.rid_of.values().copied().collect();
        assert_eq!(rids.len(), db.rid_of.len(), "two VIDs have one RID");
        for (vid, rid) in &db.rid_of {
            assert_eq!((self.syncd.rid(*vid), self.syncd.vid(*rid)), (Some(*rid), Some(*vid)));
        }
        // The rows, in the chip's numbers, are what the chip was told.
        let rid = |oid: Oid| if oid.is_null() { oid } else { db.rid_of[&oid] };
        let mut rows = BTreeMap::new();
        for ((object, id), row) in &db.rows {
            let mut id = *id;
            id.oids_mut().for_each(|oid| *oid = rid(*oid));
            let mut attrs: Vec<Attr> = row.values().cloned().collect();
            attrs.iter_mut().flat_map(|attr| attr.oids_mut()).for_each(|oid| *oid = rid(*oid));
            rows.insert((*object, id), attrs.iter().map(Attr::to_string).collect::<BTreeSet<_>>());
        }
        assert_eq!(rows, self.syncd.chip().objects());
        // And what syncd says of it.
        let mut count = 0;
        self.syncd.for_each(&mut |object, id, attrs| {
            let row = &db.rows[&(object, id)];
            assert_eq!(row.len(), attrs.len());
            assert!(attrs.iter().all(|attr| row[attr.name()] == *attr));
            assert_eq!(self.syncd.attrs(object, &id), Some(attrs));
            count += 1;
        });
        assert_eq!((count, self.syncd.len()), (db.rows.len(), count + db.entries.len()));
        // And of the entries whose key is not typed.
        let text = |row: &BTreeMap<String, Attr>| row.values().map(Attr::to_string).collect::<BTreeSet<_>>();
        let mut entries = BTreeMap::new();
        for ((object, key), row) in &db.entries {
            let (mut key, mut row) = (key.clone(), row.clone());
            key.oids_mut().iter_mut().for_each(|oid| *oid = rid(*oid));
            row.values_mut().flat_map(|attr| attr.oids_mut()).for_each(|oid| *oid = rid(*oid));
            entries.insert((*object, key), text(&row));
        }
        let chip = self.syncd.chip().entries.iter();
        assert_eq!(entries, chip.map(|(key, row)| (key.clone(), text(row))).collect());
        // Numbers that are mapped are objects that have a row.
        let mapped: BTreeSet<Oid> = db.rid_of.keys().copied().collect();
        let numbered = db.rows.keys().filter_map(|(_, id)| id.oid()).collect();
        assert_eq!(mapped, numbered);
    }

    /// How many operations the chip got since last asked.
    fn operations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.syncd.chip_mut().operations)
    }

    fn row(&self, object: ObjectType, id: impl Into<ObjectId>) -> String {
        let row = &self.db.rows[&(object, id.into())];
        row.values().map(Attr::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_contracts_bulk() {
    let mut world = World::new();
    let rif = world.rif(0);
    let hop = world.hop(rif, "10.0.0.1");
    world.operations();
    let key = |dest: &str, vr: Oid| {
        format!(
            "{{\\\"dest\\\":\\\"{dest}\\\",\\\"switch_id\\\":\\\"oid:0x21000000000000\\\",\\\"vr\\\":\\\"{vr}\\\"}}"
        )
    };
    let value = format!(
        "[\"{}\",\"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop}\",\"{}\",\"SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP\"]",
        key("10.1.0.0/16", world.vr),
        key("10.2.0.0/16", world.vr)
    );
    let request = text::read_request(7, "SAI_OBJECT_TYPE_ROUTE_ENTRY:2", &value, "Sbulkcreate").unwrap();
    let reply = world.call(request.call);
    assert_eq!(reply.statuses, [Status::Success; 2]);
    assert_eq!(
        text::write_reply(&reply, text::ReplyTo::Request).value,
        r#"["SAI_STATUS_SUCCESS","","SAI_STATUS_SUCCESS",""]"#
    );
    assert_eq!(world.operations(), ["Create RouteEntry", "Create RouteEntry"]);
    assert_eq!(world.syncd.chip().bulks.last(), Some(&2));
    let entry = world.entry("10.1.0.0/16");
    assert_eq!(world.row(ObjectType::RouteEntry, entry), format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop}"));
    let entry = world.entry("10.2.0.0/16");
    assert_eq!(
        world.row(ObjectType::RouteEntry, entry),
        "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"
    );
    assert_eq!(world.one(Verb::Remove, ObjectType::RouteEntry, Item::bare(entry)), Status::Success);
    assert!(!world.db.rows.contains_key(&(ObjectType::RouteEntry, entry.into())));
}

#[test]
fn what_fails_is_answered_alone_and_leaves_no_row() {
    let mut world = World::new();
    let rif = world.rif(0);
    let hop = world.hop(rif, "10.0.0.1");
    let missing = Oid::vid(ObjectType::NextHop, 999);
    let item = |dest: &str, to: Oid| Item::new(world.entry(dest), [Attr::RouteNextHop(to)]);
    let items = [item("10.1.0.0/16", hop), item("10.2.0.0/16", missing), item("10.3.0.0/16", hop)];
    let create =
        |world: &mut World, mode| world.bulk(Verb::Create, ObjectType::RouteEntry, items.to_vec(), mode);
    let statuses = create(&mut world, ErrorMode::StopOnError);
    assert_eq!(statuses, [Status::Success, Status::InvalidObjectId, Status::NotExecuted]);
    let statuses = create(&mut world, ErrorMode::IgnoreError);
    assert_eq!(statuses, [Status::ItemAlreadyExists, Status::InvalidObjectId, Status::Success]);
    assert_eq!(
        world.events[0],
        "1 of 3 SAI_OBJECT_TYPE_ROUTE_ENTRY name objects that were never made; the reply to orchagent names them"
    );
    // One number twice in one bulk is not two objects.
    let vid = world.vid(ObjectType::NextHopGroup);
    let group = Item::new(vid, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    let statuses = world.bulk(
        Verb::Create,
        ObjectType::NextHopGroup,
        vec![group.clone(), group],
        ErrorMode::IgnoreError,
    );
    assert_eq!(statuses, [Status::Success, Status::ItemAlreadyExists]);
    // A route with both of its attributes in one bulk of sets.
    let entry = world.entry("10.1.0.0/16");
    let sets = [Attr::RoutePacketAction(PacketAction::Drop), Attr::RouteNextHop(Oid::NULL)];
    let sets = sets.map(|attr| Item::new(entry, [attr])).to_vec();
    let statuses = world.bulk(Verb::Set, ObjectType::RouteEntry, sets, ErrorMode::IgnoreError);
    assert_eq!(statuses, [Status::Success; 2]);
    assert_eq!(
        world.row(ObjectType::RouteEntry, entry),
        "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x0 SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP"
    );
}

#[test]
fn bulk_that_comes_again_answers_each_item_in_its_place() {
    let mut world = World::new();
    let rif = world.rif(0);
    let (hop, unknown) = (world.hop(rif, "10.0.0.1"), world.vid(ObjectType::NextHop));
    let routes = [("10.1.0.0/16", hop), ("10.2.0.0/16", hop), ("10.3.0.0/16", unknown), ("10.4.0.0/16", hop)];
    let items = routes.map(|(dest, to)| Item::new(world.entry(dest), [Attr::RouteNextHop(to)])).to_vec();
    assert_eq!(world.one(Verb::Create, ObjectType::RouteEntry, items[0].clone()), Status::Success);
    let (object, mode) = (ObjectType::RouteEntry, ErrorMode::IgnoreError);
    let reply = world.hand(SaiCall::Bulk { verb: Verb::Create, object, items, mode }, Syncd::handle_again);
    let done: Vec<bool> = reply.statuses.iter().map(|status| status.is_success()).collect();
    assert_eq!(done, [true, true, false, true], "{:?}", reply.statuses);
}

#[test]
fn number_of_a_removed_object_leaves_the_database() {
    let mut world = World::new();
    let rif = world.rif(0);
    let hop = world.hop(rif, "10.0.0.1");
    assert!(world.db.rid_of.contains_key(&hop));
    assert_eq!(world.one(Verb::Remove, ObjectType::NextHop, Item::bare(hop)), Status::Success);
    assert!(!world.db.rid_of.contains_key(&hop) && world.db.rid_of.contains_key(&rif));
}

#[test]
fn what_an_earlier_syncd_did_of_a_request_counts_as_done() {
    let mut world = World::new();
    let rif = world.rif(0);
    let hop = world.hop(rif, "10.0.0.1");
    let dests = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"];
    let bulk = |verb, items| {
        let mode = ErrorMode::StopOnError;
        SaiCall::Bulk { verb, object: ObjectType::RouteEntry, items, mode }
    };
    let routes = dests.map(|dest| Item::new(world.entry(dest), [Attr::RouteNextHop(hop)])).to_vec();
    let bare = dests.map(|dest| Item::bare(world.entry(dest))).to_vec();
    for written in 0..=3 {
        let (_, again) = world.crash_in(bulk(Verb::Create, routes.clone()), written);
        assert_eq!(again.statuses, [Status::Success; 3]);
        assert_eq!(world.operations().iter().filter(|made| *made == "Create RouteEntry").count(), 3);
        assert!(bare.iter().all(|item| world.db.rows.contains_key(&(ObjectType::RouteEntry, item.id))));
        let (_, again) = world.crash_in(bulk(Verb::Remove, bare.clone()), written);
        assert_eq!(again.statuses, [Status::Success; 3]);
        assert!(bare.iter().all(|item| !world.db.rows.contains_key(&(ObjectType::RouteEntry, item.id))));
    }
    let group =
        Item::new(world.vid(ObjectType::NextHopGroup), [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    let create = SaiCall::One { verb: Verb::Create, object: ObjectType::NextHopGroup, item: group };
    assert_eq!(world.crash_in(create.clone(), 9).1.status, Status::Success);
    assert_eq!(world.call(create).status, Status::ItemAlreadyExists);
}

#[test]
fn a_view_that_is_described_is_noted_until_it_is_applied() {
    let mut world = World::new();
    assert!(!world.db.in_view);
    world.start();
    assert!(world.db.in_view);
    let mut out = SyncdOut::default();
    world.syncd.all_rows(&mut out);
    world.db.write(out.rows.unpack());
    assert!(world.db.in_view);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert!(!world.db.in_view);
}

#[test]
fn what_is_described_once_more_counts_as_described() {
    let mut world = World::new();
    world.start();
    let group =
        Item::new(world.vid(ObjectType::NextHopGroup), [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    let create = SaiCall::One { verb: Verb::Create, object: ObjectType::NextHopGroup, item: group };
    assert_eq!(world.call(create.clone()).status, Status::Success);
    assert_eq!(world.hand(create.clone(), Syncd::handle_again).status, Status::Success);
    assert_eq!(world.call(create).status, Status::ItemAlreadyExists);
}

/// Two interfaces, three next hops, a group of two, and routes.
fn describe_some(world: &mut World, changed: bool) {
    let a = world.rif(0);
    let b = world.rif(1);
    let hops = [world.hop(a, "10.0.0.1"), world.hop(b, "10.1.0.1"), world.hop(b, "10.1.0.2")];
    let group = world.group(if changed { &hops[1..] } else { &hops[..2] });
    assert_eq!(world.route("20.0.0.0/8", group), Status::Success);
    assert_eq!(world.route("30.0.0.0/8", hops[2]), Status::Success);
    assert_eq!(world.route("2001:db8::/32", if changed { hops[1] } else { hops[0] }), Status::Success);
    if !changed {
        assert_eq!(world.route("40.0.0.0/8", a), Status::Success);
    }
}

#[test]
fn an_orchagent_that_describes_the_same_changes_nothing_in_the_chip() {
    let mut world = World::new();
    describe_some(&mut world, false);
    let (rows, objects) = (world.db.rows.len(), world.syncd.chip().objects());
    world.operations();
    for _ in 0..2 {
        world.start();
        assert!(world.syncd.in_view());
        describe_some(&mut world, false);
        assert_eq!(world.operations(), [""; 0]);
        assert_eq!(world.view(View::Apply), Status::Success);
        assert!(!world.syncd.in_view());
        assert_eq!(world.operations(), [""; 0]);
        assert_eq!(world.syncd.chip().objects(), objects);
        assert_eq!(world.db.rows.len(), rows);
    }
    // And it goes on with its own numbers.
    let rif = world.rif(2);
    assert_eq!(world.route("50.0.0.0/8", rif), Status::Success);
    assert_eq!(world.events, [""; 0]);
}

#[test]
fn only_the_difference_is_carried_out() {
    let mut world = World::new();
    describe_some(&mut world, false);
    world.operations();
    world.start();
    describe_some(&mut world, true);
    assert_eq!(world.view(View::Apply), Status::Success);
    let mut operations = world.operations();
    operations.sort();
    assert_eq!(
        operations,
        ["Create NextHopGroupMember", "Remove NextHopGroupMember", "Remove RouteEntry", "Set RouteEntry",]
    );
    // A view that describes nothing empties the chip.
    world.start();
    assert_eq!(world.view(View::Apply), Status::Success);
    let left: BTreeSet<ObjectType> = world.db.rows.keys().map(|(object, _)| *object).collect();
    assert_eq!(left, BTreeSet::from([ObjectType::Port, ObjectType::VirtualRouter, ObjectType::Switch]));
}

#[test]
fn virtual_routers_are_told_apart_by_their_ports() {
    let mut world = World::new();
    let describe = |world: &mut World, order: [usize; 2]| {
        let vrs = order.map(|port| (port, world.make(ObjectType::VirtualRouter, [])));
        for (port, vr) in vrs {
            let attrs =
                [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(world.ports[port])];
            let rif = world.make(ObjectType::RouterInterface, attrs);
            let entry = RouteEntry { switch: SWITCH, vr, dest: format!("{port}.0.0.0/8").parse().unwrap() };
            let item = Item::new(entry, [Attr::RouteNextHop(rif)]);
            assert_eq!(world.one(Verb::Create, ObjectType::RouteEntry, item), Status::Success);
        }
    };
    describe(&mut world, [1, 2]);
    world.operations();
    world.start();
    describe(&mut world, [2, 1]);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(world.operations(), [""; 0]);
}

#[test]
fn a_full_chip_is_emptied_before_it_is_filled() {
    let mut world = World::new();
    world.syncd.chip_mut().limit = Some((ObjectType::NextHopGroup, 1));
    describe_some(&mut world, false);
    world.start();
    describe_some(&mut world, true);
    assert_eq!(world.view(View::Apply), Status::Success);
}

#[test]
fn what_had_no_room_is_made_when_there_is_some() {
    let mut world = World::new();
    world.syncd.chip_mut().limit = Some((ObjectType::NextHop, 1));
    let rif = world.rif(0);
    world.hop(rif, "10.0.0.1");
    world.start();
    let rif = world.rif(0);
    let hop = world.hop(rif, "10.0.0.2");
    assert_eq!(world.route("20.0.0.0/8", hop), Status::Success);
    assert_eq!(world.view(View::Apply), Status::Success);
    let entry = world.entry("20.0.0.0/8");
    assert_eq!(world.row(ObjectType::RouteEntry, entry), format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop}"));
}

#[test]
fn what_is_said_no_more_goes_back_to_its_default() {
    let mut world = World::new();
    let rif = world.rif(0);
    let entry = world.entry("20.0.0.0/8");
    let drop = Item::new(entry, [Attr::RoutePacketAction(PacketAction::Drop)]);
    assert_eq!(world.one(Verb::Create, ObjectType::RouteEntry, drop), Status::Success);
    world.start();
    let again = world.rif(0);
    assert_ne!(rif, again);
    assert_eq!(world.route("20.0.0.0/8", again), Status::Success);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(
        world.row(ObjectType::RouteEntry, entry),
        format!(
            "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={again} SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_FORWARD"
        )
    );
}

/// The ports of a breakout: the chip has none of their lanes, so an orchagent makes them, and its successor finds them in
/// the list of ports (`snoopGetOid` of sonic-sairedis).
#[test]
fn a_view_has_the_ports_of_an_earlier_orchagent_that_it_uses_and_no_others() {
    let mut world = World::new();
    let made: Vec<Oid> = [1, 2, 3]
        .map(|lane| {
            world.make(ObjectType::Port, [Attr::PortLanes(Box::new([lane])), Attr::PortSpeed(10_000)])
        })
        .into();
    let describe = |world: &mut World| {
        let rif = world.rif(world.ports.iter().position(|port| *port == made[0]).unwrap());
        let hop = world.hop(rif, "10.0.0.1");
        assert_eq!(world.route("20.0.0.0/8", hop), Status::Success);
        let up = Item::new(made[1], [Attr::PortAdminState(true)]);
        assert_eq!(world.one(Verb::Set, ObjectType::Port, up), Status::Success);
    };
    world.ports.push(made[0]);
    describe(&mut world);
    world.operations();
    let rids = |world: &World| -> Vec<Option<Oid>> { made.iter().map(|vid| world.syncd.rid(*vid)).collect() };
    let before = rids(&world);
    for _ in 0..2 {
        world.start();
        assert!(made[..2].iter().all(|port| world.ports.contains(port)), "{:?}", world.ports);
        describe(&mut world);
        assert_eq!(world.view(View::Apply), Status::Success);
        assert_eq!(rids(&world), [before[0], before[1], None]);
    }
    // The third port was neither used nor described, and nothing else changed.
    assert_eq!(world.operations(), ["Remove Port"]);
    // Without any of them in the new view they all go.
    world.start();
    describe_some(&mut world, false);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(rids(&world), [None; 3]);
}

#[test]
fn a_view_is_applied_to_a_chip_that_is_not_as_the_table_has_it() {
    let mut world = World::new();
    describe_some(&mut world, false);
    let rid_of = |world: &World, prefix: &str| {
        let dest = prefix.parse().unwrap();
        let is_it = |(object, id): &&(ObjectType, ObjectId)| {
            *object == ObjectType::RouteEntry && matches!(id, ObjectId::Route(entry) if entry.dest == dest)
        };
        *world.syncd.chip().objects.keys().find(is_it).unwrap()
    };
    world.start();
    describe_some(&mut world, true);
    let rif = world.rif(2);
    assert_eq!(world.route("50.0.0.0/8", rif), Status::Success);
    // The view changes one of the routes that the chip lost, and does not have the other one.
    for prefix in ["2001:db8::/32", "40.0.0.0/8"] {
        let lost = rid_of(&world, prefix);
        world.syncd.chip_mut().objects.remove(&lost);
    }
    // Another program made a route that the view has, and it drops.
    let (object, mut id) = rid_of(&world, "30.0.0.0/8");
    if let ObjectId::Route(entry) = &mut id {
        entry.dest = "50.0.0.0/8".parse().unwrap();
    }
    let drop = Attr::RoutePacketAction(PacketAction::Drop);
    world.syncd.chip_mut().objects.insert((object, id), BTreeMap::from([(drop.name().into(), drop)]));
    assert_eq!(world.view(View::Apply), Status::Success);
    // `World::check` has compared the chip with ASIC_DB.
    assert_eq!(world.db.rows.keys().filter(|(object, _)| *object == ObjectType::RouteEntry).count(), 4);
}

#[test]
fn a_view_that_fails_says_so_and_the_database_tells_the_truth() {
    let mut world = World::new();
    describe_some(&mut world, false);
    world.start();
    describe_some(&mut world, true);
    let rif = world.rif(2);
    let hop = world.hop(rif, "10.2.0.1");
    let group = world.group(&[hop]);
    assert_eq!(world.route("30.1.0.0/16", group), Status::Success);
    world.syncd.chip_mut().limit = Some((ObjectType::NextHopGroup, 1));
    assert_eq!(world.view(View::Apply), Status::Failure);
    let sentence =
        "the view is not applied: Create of a SAI_OBJECT_TYPE_NEXT_HOP_GROUP failed; start orchagent again";
    assert!(world.events.iter().any(|event| event == sentence), "{:?}", world.events);
    // All but the group, its member and its route is there.
    let routes = world.db.rows.keys().filter(|(object, _)| *object == ObjectType::RouteEntry);
    assert_eq!(routes.count(), 3);
    // orchagent may not have read that: neither this syncd nor the next one takes it back.
    let again = |world: &mut World| world.hand(SaiCall::View(View::Apply), Syncd::handle_again).status;
    assert_eq!(again(&mut world), Status::Failure);
    assert!(world.syncd.has_unapplied_view() && world.db.in_view);
    world.restart_syncd();
    world.syncd.lost_view();
    assert_eq!(again(&mut world), Status::Failure);
    let mut out = SyncdOut::default();
    world.syncd.all_rows(&mut out);
    world.db.write(out.rows.unpack());
    assert!(world.db.in_view);
    world.syncd.chip_mut().limit = None;
    world.start();
    describe_some(&mut world, true);
    assert_eq!(world.view(View::Apply), Status::Success);
    assert_eq!(again(&mut world), Status::Success);
    assert!(!world.syncd.has_unapplied_view() && !world.db.in_view);
}

#[test]
fn a_database_that_is_of_another_time_is_written_again() {
    let mut world = World::new();
    describe_some(&mut world, false);
    let (rows, hidden) = (world.db.rows.clone(), world.db.hidden.clone());
    // It has what is no more, lacks what is, and its counter is lost.
    let entry = world.entry("20.0.0.0/8");
    world.db.rows.remove(&(ObjectType::RouteEntry, entry.into()));
    let lost = RouteEntry { dest: "77.0.0.0/8".parse().unwrap(), ..entry };
    world.db.rows.insert((ObjectType::RouteEntry, lost.into()), BTreeMap::new());
    world.db.hidden.clear();
    world.syncd.vids = Box::new(VidCounter::default());
    let mut out = SyncdOut::default();
    world.syncd.all_rows(&mut out);
    world.db.write(out.rows.unpack());
    world.check();
    assert_eq!((&world.db.rows, &world.db.hidden), (&rows, &hidden));
    let last = rows.keys().filter_map(|(_, id)| id.oid()).map(Oid::index).max();
    assert_eq!(world.syncd.vids.take(1).map(|numbers| numbers.start).ok(), last.map(|last| last + 1));
}

#[test]
fn syncd_alone_starts_again() {
    let mut world = World::new();
    describe_some(&mut world, false);
    let port = world.ports[1];
    let up = Item::new(port, [Attr::PortAdminState(true)]);
    assert_eq!(world.one(Verb::Set, ObjectType::Port, up), Status::Success);
    let before = world.db.rows.clone();
    world.restart_syncd();
    assert_eq!(world.db.rows, before);
    // orchagent goes on with the numbers that it has, and can start again too.
    let rif = world.rif(2);
    assert_eq!(world.route("50.0.0.0/8", rif), Status::Success);
    assert_eq!(
        world.one(Verb::Remove, ObjectType::RouteEntry, Item::bare(world.entry("20.0.0.0/8"))),
        Status::Success
    );
    world.start();
    assert_eq!(world.ports[1], port);
    describe_some(&mut world, false);
    assert_eq!(world.view(View::Apply), Status::Success);
    // What the chip takes no more has no row.
    let rows = world.db.rows.len();
    world.db.rows.get_mut(&(ObjectType::RouteEntry, world.entry("30.0.0.0/8").into())).unwrap().insert(
        "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID".into(),
        Attr::RouteNextHop(Oid::vid(ObjectType::NextHop, 99_999)),
    );
    world.restart_syncd();
    assert_eq!(world.db.rows.len(), rows - 1);
    assert_eq!(
        world.events.last().unwrap(),
        "1 of 4 SAI_OBJECT_TYPE_ROUTE_ENTRY could not be made again; restart orchagent"
    );
}

#[test]
fn without_rows_only_the_chip_knows_its_routes() {
    let mut syncd = Syncd::new(Chip::default(), Box::new(VidCounter::default())).without_rows();
    let mut call = |call| {
        let mut out = SyncdOut::default();
        syncd.handle(SaiRequest { id: 7, call }, &mut out);
        assert!(out.rows.unpack().all(|row| !matches!(row, AsicChange::Set(ObjectType::RouteEntry, ..))));
        out.replies.pop().unwrap()
    };
    assert_eq!(call(SaiCall::View(View::Init)).status, Status::Success);
    let switch = Item::new(SWITCH, [Attr::SwitchInit(true), Attr::SwitchSrcMac(Mac([2, 0, 0, 0, 0, 1]))]);
    let make = |object, item| SaiCall::One { verb: Verb::Create, object, item };
    assert_eq!(call(make(ObjectType::Switch, switch)).status, Status::Success);
    let attrs = vec![Attr::SwitchDefaultVirtualRouter(Oid::NULL)];
    let got = call(SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs });
    let [Attr::SwitchDefaultVirtualRouter(vr)] = got.values[..] else { panic!("{got:?}") };
    assert_eq!(call(SaiCall::View(View::Apply)).status, Status::Success);
    let entry = RouteEntry { switch: SWITCH, vr, dest: "10.1.0.0/16".parse().unwrap() };
    let drop = Item::new(entry, [Attr::RoutePacketAction(PacketAction::Drop)]);
    assert_eq!(call(make(ObjectType::RouteEntry, drop.clone())).status, Status::Success);
    // The chip itself says that it has it.
    assert_eq!(call(make(ObjectType::RouteEntry, drop)).status, Status::ItemAlreadyExists);
    // What it holds is not known here, so nothing can be compared with it.
    assert_eq!(call(SaiCall::View(View::Init)).status, Status::NotSupported);
    assert!(syncd.attrs(ObjectType::RouteEntry, &entry.into()).is_none());
    assert!(syncd.chip().objects().keys().any(|(object, _)| *object == ObjectType::RouteEntry));
}

#[test]
fn rules_of_the_schema_are_held_where_they_are_asked_for() {
    let bad = |world: &World, n: u8| {
        Item::new(world.entry(&format!("20.{n}.0.0/16")), [Attr::NextHopRif(Oid::NULL)])
    };
    let good = |world: &World, n: u8| Item::bare(world.entry(&format!("20.{n}.0.0/16")));
    let (create, route) = (Verb::Create, ObjectType::RouteEntry);
    let outcomes = |validation| {
        let mut world = World::new();
        world.syncd.validation = validation;
        let one = world.one(create, route, bad(&world, 1));
        let items = vec![good(&world, 2), bad(&world, 3), good(&world, 4)];
        let stopped = world.bulk(create, route, items, ErrorMode::StopOnError);
        let items = vec![bad(&world, 5), good(&world, 6)];
        let all = world.bulk(create, route, items, ErrorMode::IgnoreError);
        (one, stopped, all, world.events)
    };
    const BAD: Status = Status::InvalidParameter;
    const NOT: Status = Status::NotExecuted;
    const GOOD: Status = Status::Success;
    let (one, stopped, all, events) = outcomes(Validation::All);
    assert_eq!((one, stopped, all), (BAD, vec![GOOD, BAD, NOT], vec![BAD, GOOD]));
    assert!(
        events[0].ends_with(" has no attribute SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID: refused"),
        "{events:?}"
    );
    let (one, stopped, all, _) = outcomes(Validation::Single);
    assert_eq!((one, stopped, all), (BAD, vec![GOOD, GOOD, GOOD], vec![GOOD, GOOD]));
    assert_eq!(outcomes(Validation::Off).0, GOOD);

    // Also while a view is described.
    let mut world = World::new();
    world.syncd.validation = Validation::All;
    world.start();
    assert!(world.syncd.in_view());
    let items = vec![good(&world, 2), bad(&world, 3), good(&world, 4)];
    assert_eq!(world.bulk(create, route, items, ErrorMode::StopOnError), [GOOD, BAD, NOT]);
}
