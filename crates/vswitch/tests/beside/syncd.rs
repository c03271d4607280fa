//! ribtide's syncd on the virtual switch, by the text of requests, with ASIC_DB.

use ribtide_swss::sai::text::{self, Message, ReplyTo};
use ribtide_swss::sai::{
    Attr, Attrs, Audit, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, Query, QueryReply, RawText,
    Sai, Status, Verb, VidCounter,
};
use ribtide_swss::syncd::{AsicChange, PackedChanges, Syncd as Machine, SyncdOut};
use ribtide_vswitch::{Behavior, Counts, PortSetup, VirtualSwitch};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Fields = BTreeMap<String, String>;

/// The virtual switch, and which of its routes requests removed.
struct Chip {
    switch: VirtualSwitch,
    removed: BTreeSet<String>,
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
        let first = statuses.len();
        self.switch.bulk(verb, object, items, mode, statuses);
        for (item, status) in items.iter().zip(&statuses[first..]) {
            let drops = item.attrs.contains(&Attr::RoutePacketAction(PacketAction::Drop));
            if let ObjectId::Route(entry) = &item.id
                && status.is_success()
                && (verb == Verb::Remove || verb == Verb::Set && drops)
            {
                self.removed.insert(entry.dest.to_string());
            }
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.get(object, id, attrs)
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        self.switch.available(object, attrs)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.switch.entry(verb, object, key, attrs)
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        self.switch.get_entry(object, key, attrs)
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
}

pub(super) struct Syncd {
    machine: Machine<Chip>,
    vids: VidCounter,
    /// ASIC_STATE as text: objects by `TYPE:ID`.
    pub(super) objects: BTreeMap<String, Fields>,
    rows: BTreeMap<(ObjectType, ObjectId), Attrs>,
    entries: BTreeMap<(ObjectType, RawText), Attrs>,
    hidden: BTreeMap<String, Attr>,
    /// Whether a view is not applied in full.
    in_view: bool,
}

fn machine(vids: &VidCounter) -> Machine<Chip> {
    let mut switch = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
    // The sizes of SONiC's virtual switch.
    switch.behave([("groups", "512")]).unwrap();
    Machine::new(Chip { switch, removed: BTreeSet::new() }, Box::new(vids.clone()))
}

impl Default for Syncd {
    fn default() -> Syncd {
        let vids = VidCounter::default();
        Syncd {
            machine: machine(&vids),
            vids,
            objects: BTreeMap::new(),
            rows: BTreeMap::new(),
            entries: BTreeMap::new(),
            hidden: BTreeMap::new(),
            in_view: false,
        }
    }
}

impl Syncd {
    /// Takes the link of a port away: the first one has number 0.
    pub(super) fn take_link(&mut self, port: u64) {
        self.machine.chip_mut().switch.set_link(&format!("Ethernet{}", 4 * port), false).unwrap();
    }

    /// The destinations of routes that a request removed, or set to drop, since the last call.
    pub(super) fn take_removed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.machine.chip_mut().removed)
    }

    /// Executes a request, and writes its rows.
    pub(super) fn execute(&mut self, request: &Message) -> Message {
        let request = text::read_request(1, &request.key, &request.value, &request.op)
            .unwrap_or_else(|e| panic!("{request:?}: {e}"));
        let reply_to = ReplyTo::to(&request.call);
        let mut out = SyncdOut::default();
        self.machine.handle(request, &mut out);
        self.write(out.rows);
        text::write_reply(&out.replies.pop().unwrap(), reply_to)
    }

    fn write(&mut self, changes: PackedChanges) {
        for change in changes.unpack() {
            match change {
                AsicChange::Wipe => {
                    self.objects.clear();
                    self.rows.clear();
                    self.entries.clear();
                    self.hidden.clear();
                }
                AsicChange::Set(object, id, attrs) => {
                    let mut key = String::new();
                    text::write_row_key(object, &id, &mut key);
                    put_fields(self.objects.entry(key).or_default(), &attrs);
                    put(self.rows.entry((object, id)).or_default(), attrs);
                }
                AsicChange::SetEntry(object, entry, attrs) => {
                    let mut key = String::new();
                    text::write_entry_key(object, &entry, &mut key);
                    put_fields(self.objects.entry(key).or_default(), &attrs);
                    put(self.entries.entry((object, entry)).or_default(), attrs);
                }
                AsicChange::Remove(object, id) => {
                    let mut key = String::new();
                    text::write_row_key(object, &id, &mut key);
                    self.objects.remove(&key);
                    self.rows.remove(&(object, id));
                }
                AsicChange::RemoveEntry(object, entry) => {
                    let mut key = String::new();
                    text::write_entry_key(object, &entry, &mut key);
                    self.objects.remove(&key);
                    self.entries.remove(&(object, entry));
                }
                AsicChange::Hidden(attr) => drop(self.hidden.insert(attr.name().to_owned(), attr)),
                AsicChange::View(there) => self.in_view = there,
                AsicChange::Map(..) | AsicChange::Unmap(..) => {}
            }
        }
    }

    /// syncd and its chip end, and another syncd makes the chip again from ASIC_DB.
    pub(super) fn restart(&mut self) {
        self.machine = machine(&self.vids);
        if self.in_view {
            self.machine.lost_view();
        }
        let rows: Vec<_> =
            self.rows.iter().map(|((object, id), attrs)| (*object, *id, attrs.clone())).collect();
        let entries: Vec<_> =
            self.entries.iter().map(|((object, key), attrs)| (*object, key.clone(), attrs.clone())).collect();
        let hidden: Vec<Attr> = self.hidden.values().cloned().collect();
        let mut out = SyncdOut::default();
        self.machine.recreate(rows, &hidden, &mut out);
        self.machine.recreate_entries(entries, &mut out);
        assert!(out.events.is_empty(), "{:?}", out.events);
        self.write(out.rows);
    }

    /// The routes of the chip: destination, and the target or action.
    pub(super) fn routes(&self) -> BTreeMap<String, String> {
        let mut routes = BTreeMap::new();
        self.each_route(&mut |dest, _, action, to| {
            let vid = self.machine.vid(to).unwrap_or(to);
            routes.insert(dest, if action == PacketAction::Drop { "drop".into() } else { vid.to_string() });
        });
        routes
    }

    fn each_route(&self, each: &mut dyn FnMut(String, Oid, PacketAction, Oid)) {
        let chip = &self.machine.chip().switch;
        let mut next = Some(Default::default());
        while let Some(from) = next {
            let (ids, rest) = chip.entries(from, 1000);
            next = rest;
            for id in ids {
                let ObjectId::Route(entry) = id else { continue };
                let mut attrs =
                    [Attr::RoutePacketAction(PacketAction::Forward), Attr::RouteNextHop(Oid::NULL)];
                chip.read(ObjectType::RouteEntry, &id, &mut attrs).unwrap();
                let [Attr::RoutePacketAction(action), Attr::RouteNextHop(to)] = attrs else {
                    panic!("{attrs:?}")
                };
                each(entry.dest.to_string(), entry.vr, action, to);
            }
        }
    }

    /// Where packets of each route leave: gateways and ports.
    pub(super) fn forwarding(&self) -> BTreeMap<String, Vec<String>> {
        let chip = &self.machine.chip().switch;
        let mut all = BTreeMap::new();
        self.each_route(&mut |dest, vr, action, _| {
            let addr = dest.split('/').next().unwrap().parse().unwrap();
            let hops = chip.lookup(vr, addr).into_iter().flat_map(|forward| forward.hops);
            let mut hops: Vec<String> =
                hops.map(|hop| format!("{:?} {} {:?}", hop.gateway, hop.port, hop.mac)).collect();
            hops.sort();
            hops.insert(0, format!("{action:?}"));
            all.insert(dest, hops);
        });
        all
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { bytes: 0, ..self.machine.chip().switch.counts() }
    }

    /// Objects of a type, as ASIC_DB has them.
    pub(super) fn of(&self, object: &str) -> Vec<&Fields> {
        let prefix = format!("SAI_OBJECT_TYPE_{object}:");
        self.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, fields)| fields).collect()
    }
}

fn put(row: &mut Attrs, attrs: Attrs) {
    for attr in attrs {
        row.retain(|old| !old.same_kind(&attr));
        row.push(attr);
    }
}

fn put_fields(row: &mut Fields, attrs: &[Attr]) {
    text::row_fields(attrs, &mut |field, value| {
        row.insert(field.into(), value.into());
    });
}
