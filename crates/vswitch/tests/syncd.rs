//! syncd on the virtual switch: restarts of orchagent and syncd keep the forwarding.

use ribtide_prefix::Rng;
use ribtide_swss::sai::{
    Attr, Attrs, Audit, ErrorMode, GroupType, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid,
    PacketAction, RifType, RouteEntry, SWITCH, Sai, SaiCall, SaiReply, SaiRequest, Status, Verb, VidCounter,
    VidSource, View,
};
use ribtide_swss::syncd::{AsicChange, Difference, ORDER, PackedChanges, Repair, RowCursor, Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, Counts, PortSetup, VirtualSwitch};
use std::collections::BTreeMap;

struct Bench {
    syncd: Syncd<VirtualSwitch>,
    vids: VidCounter,
    rows: BTreeMap<(ObjectType, ObjectId), Attrs>,
    hidden: Vec<Attr>,
    vr: Oid,
    ports: Vec<Oid>,
}

fn chip() -> VirtualSwitch {
    VirtualSwitch::new(PortSetup::usual(), Behavior::default())
}

impl Bench {
    fn new() -> Bench {
        let vids = VidCounter::default();
        let syncd = Syncd::new(chip(), Box::new(vids.clone()));
        Bench { syncd, vids, rows: BTreeMap::new(), hidden: Vec::new(), vr: Oid::NULL, ports: Vec::new() }
    }

    fn call(&mut self, call: SaiCall) -> SaiReply {
        let mut out = SyncdOut::default();
        self.syncd.handle(SaiRequest { id: 1, call }, &mut out);
        assert_eq!(out.events, [""; 0]);
        self.write(out.rows);
        out.replies.pop().unwrap()
    }

    fn write(&mut self, changes: PackedChanges) {
        for change in changes.unpack() {
            match change {
                AsicChange::Wipe => self.rows.clear(),
                AsicChange::Set(object, id, attrs) => {
                    let row = self.rows.entry((object, id)).or_default();
                    for attr in attrs {
                        row.retain(|old| !old.same_kind(&attr));
                        row.push(attr);
                    }
                }
                AsicChange::Remove(object, id) => drop(self.rows.remove(&(object, id))),
                AsicChange::Hidden(attr) => self.hidden.push(attr),
                AsicChange::Map(..)
                | AsicChange::Unmap(..)
                | AsicChange::View(_)
                | AsicChange::SetEntry(..)
                | AsicChange::RemoveEntry(..) => {}
            }
        }
    }

    fn create(&mut self, object: ObjectType, id: impl Into<ObjectId>, attrs: impl IntoIterator<Item = Attr>) {
        let items = vec![Item { id: id.into(), attrs: attrs.into_iter().collect() }];
        let call = SaiCall::Bulk { verb: Verb::Create, object, items, mode: ErrorMode::IgnoreError };
        assert_eq!(self.call(call).statuses, [Status::Success], "{object:?}");
    }

    fn make<const N: usize>(&mut self, object: ObjectType, attrs: [Attr; N]) -> Oid {
        let vid = Oid::vid(object, self.vids.take(1).unwrap().start);
        self.create(object, vid, attrs);
        vid
    }

    /// A start of orchagent that describes routes over two next hops.
    fn describe(&mut self, routes: &[&str]) {
        assert_eq!(self.call(SaiCall::View(View::Init)).status, Status::Success);
        self.create(ObjectType::Switch, SWITCH, [Attr::SwitchInit(true)]);
        let attrs = vec![
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; 32].into()),
        ];
        let reply = self.call(SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs });
        let [Attr::SwitchDefaultVirtualRouter(vr), Attr::SwitchPortList(ports)] = &reply.values[..] else {
            panic!("{reply:?}")
        };
        (self.vr, self.ports) = (*vr, ports.to_vec());
        let group = self.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        for n in 0..2u8 {
            let port = Attr::RifPort(self.ports[usize::from(n)]);
            let attrs = [Attr::RifVirtualRouter(self.vr), Attr::RifKind(RifType::Port), port];
            let rif = self.make(ObjectType::RouterInterface, attrs);
            let ip = [10, n, 0, 1].into();
            let mac = Attr::NeighborMac("02:00:00:00:00:01".parse().unwrap());
            self.create(ObjectType::NeighborEntry, NeighborEntry { switch: SWITCH, rif, ip }, [mac]);
            let kind = Attr::NextHopKind(NextHopType::Ip);
            let hop = self.make(ObjectType::NextHop, [kind, Attr::NextHopIp(ip), Attr::NextHopRif(rif)]);
            self.make(ObjectType::NextHopGroupMember, [Attr::MemberGroup(group), Attr::MemberNextHop(hop)]);
        }
        for dest in routes {
            let entry = RouteEntry { switch: SWITCH, vr: self.vr, dest: dest.parse().unwrap() };
            self.create(ObjectType::RouteEntry, entry, [Attr::RouteNextHop(group)]);
        }
        assert_eq!(self.call(SaiCall::View(View::Apply)).status, Status::Success);
    }

    fn gateways(&self, addr: &str) -> Vec<String> {
        let vr = self.syncd.rid(self.vr).unwrap();
        let forward = self.syncd.chip().lookup(vr, addr.parse().unwrap());
        let mut found: Vec<String> = forward
            .into_iter()
            .flat_map(|f| f.hops)
            .map(|h| format!("{} {}", h.gateway.unwrap(), h.port))
            .collect();
        found.sort();
        found
    }
}

const BOTH: [&str; 2] = ["10.0.0.1 Ethernet0", "10.1.0.1 Ethernet4"];

#[test]
fn what_forwards_goes_on_over_starts() {
    let mut bench = Bench::new();
    bench.describe(&["20.0.0.0/8", "30.0.0.0/8"]);
    let counts = bench.syncd.chip().counts();
    assert_eq!((bench.gateways("20.1.1.1"), counts.groups), (BOTH.map(String::from).to_vec(), 1));
    // orchagent starts again, the same and then with another route.
    let before = bench.rows.keys().map(|(object, _)| *object).collect::<Vec<_>>();
    bench.describe(&["20.0.0.0/8", "30.0.0.0/8"]);
    assert_eq!(bench.syncd.chip().counts(), counts);
    assert_eq!(bench.rows.keys().map(|(object, _)| *object).collect::<Vec<_>>(), before);
    bench.describe(&["20.0.0.0/8", "40.0.0.0/8"]);
    assert_eq!(bench.gateways("40.1.1.1"), BOTH);
    assert_eq!(bench.gateways("30.1.1.1"), [""; 0]);
    // syncd starts again, and orchagent after it.
    let rows: Vec<_> = bench.rows.iter().map(|((object, id), attrs)| (*object, *id, attrs.clone())).collect();
    bench.syncd = Syncd::new(chip(), Box::new(bench.vids.clone()));
    let mut out = SyncdOut::default();
    bench.syncd.recreate(rows, &bench.hidden, &mut out);
    assert_eq!(out.events, [""; 0]);
    bench.write(out.rows);
    assert_eq!(bench.gateways("20.1.1.1"), BOTH);
    let counts = bench.syncd.chip().counts();
    bench.describe(&["20.0.0.0/8", "40.0.0.0/8"]);
    assert_eq!(
        (bench.gateways("40.1.1.1"), bench.syncd.chip().counts()),
        (BOTH.map(String::from).to_vec(), counts)
    );
}

/// Every object of the chip by orchagent's numbers, with its attributes as text.
fn contents(bench: &Bench) -> BTreeMap<String, Vec<String>> {
    let syncd = &bench.syncd;
    let mut all = BTreeMap::new();
    syncd.for_each(&mut |object, mut id, attrs| {
        let key = format!("{object:?} {id:?}");
        id.oids_mut().for_each(|oid| *oid = syncd.rid(*oid).unwrap());
        let mut found: Vec<Attr> = attrs.to_vec();
        let text = match syncd.chip().read(object, &id, &mut found) {
            Err(status) => vec![status.name().into_owned()],
            Ok(()) => {
                let oids = found.iter_mut().flat_map(|attr| attr.oids_mut());
                oids.filter(|oid| !oid.is_null()).for_each(|oid| *oid = syncd.vid(*oid).unwrap());
                found.iter().map(Attr::to_string).collect()
            }
        };
        all.insert(key, text);
    });
    all
}

/// Runs rounds until one finds nothing, and returns what was repaired.
fn reconcile(bench: &mut Bench, page: usize) -> Vec<Repair> {
    let mut all = Vec::new();
    for _ in 0..5 {
        let (mut round, before) = (bench.syncd.begin_round(), all.len());
        while let Some(rest) = round.take() {
            let mut out = SyncdOut::default();
            let (result, next) = bench.syncd.reconcile(rest, page, &mut out);
            all.extend(result.repairs);
            round = next;
        }
        if all.len() == before {
            return all;
        }
    }
    panic!("it is never repaired: {all:?}");
}

#[test]
fn reconcile_chip_changed_by_another_program_is_repaired() {
    let mut bench = Bench::new();
    let routes: Vec<String> = (0..600).map(|n| format!("20.{}.{}.0/24", n / 256, n % 256)).collect();
    bench.describe(&routes.iter().map(String::as_str).collect::<Vec<_>>());
    let counts = |bench: &Bench| Counts { bytes: 0, ..bench.syncd.chip().counts() };
    let (before, entries) = (contents(&bench), counts(&bench));
    assert_eq!(reconcile(&mut bench, 100), []);
    let vr = bench.syncd.rid(bench.vr).unwrap();
    let route = |dest: &str| ObjectId::Route(RouteEntry { switch: SWITCH, vr, dest: dest.parse().unwrap() });
    let of = |bench: &Bench, kind: ObjectType| -> Vec<ObjectId> {
        let objects = bench.syncd.chip().objects().into_iter();
        objects.filter(|(object, _)| *object == kind).map(|(_, id)| id).collect()
    };
    let mut rng = Rng::new(7);
    for seed in 0..40 {
        let mut differs = 0;
        for _ in 0..1 + seed % 7 {
            let (verb, object, item) = match rng.below(7) {
                0 => (
                    Verb::Remove,
                    ObjectType::RouteEntry,
                    Item::bare(route(&routes[rng.below(600) as usize])),
                ),
                1 => {
                    let drops = Attr::RoutePacketAction(PacketAction::Drop);
                    let id = route(&routes[rng.below(600) as usize]);
                    (Verb::Set, ObjectType::RouteEntry, Item::new(id, [drops]))
                }
                2 => {
                    let hop = of(&bench, ObjectType::NextHop)[0].oid().unwrap();
                    let id = route(&routes[rng.below(600) as usize]);
                    (Verb::Set, ObjectType::RouteEntry, Item::new(id, [Attr::RouteNextHop(hop)]))
                }
                3 => {
                    let id = route(&format!("30.{}.0.0/16", rng.below(256)));
                    (Verb::Create, ObjectType::RouteEntry, Item::bare(id))
                }
                4 => {
                    let members = of(&bench, ObjectType::NextHopGroupMember);
                    if members.len() < 2 {
                        continue;
                    }
                    (Verb::Remove, ObjectType::NextHopGroupMember, Item::bare(members[0]))
                }
                5 => {
                    let id = of(&bench, ObjectType::NeighborEntry)[0];
                    let mac = Attr::NeighborMac("02:00:00:00:00:99".parse().unwrap());
                    (Verb::Set, ObjectType::NeighborEntry, Item::new(id, [mac]))
                }
                _ => {
                    let kind = Attr::GroupKind(GroupType::DynamicUnorderedEcmp);
                    (Verb::Create, ObjectType::NextHopGroup, Item::new(Oid::NULL, [kind]))
                }
            };
            let mut item = item;
            differs += usize::from(bench.syncd.chip_mut().one(verb, object, &mut item).is_success());
        }
        let repaired = reconcile(&mut bench, [1, 17, 4096][seed % 3]);
        assert!(repaired.iter().all(|repair| repair.status.is_success()), "{repaired:?}");
        assert!(
            (differs == 0) == repaired.is_empty() && repaired.len() <= differs,
            "{differs}: {repaired:?}"
        );
        assert_eq!(counts(&bench), entries, "{seed}");
        assert!(contents(&bench) == before, "{seed}: {repaired:?}");
    }
}

#[test]
fn reconcile_objects_that_routes_used_are_made_again_under_new_numbers() {
    let mut bench = Bench::new();
    bench.describe(&["20.0.0.0/8", "30.0.0.0/8"]);
    let before = contents(&bench);
    let chip = bench.syncd.chip_mut();
    let (routes, _) = chip.entries(Default::default(), 100);
    let mut objects = chip.objects();
    objects.sort_by_key(|(object, _)| std::cmp::Reverse(ORDER.iter().position(|of| of == object)));
    let entries = routes.into_iter().map(|id| (ObjectType::RouteEntry, id));
    // The chip alone makes its switch and what it has of its own.
    let own: Vec<Oid> = chip.own_objects(Oid::NULL).into_iter().map(|(_, rid)| rid).collect();
    for (object, id) in entries.chain(objects) {
        if object != ObjectType::Switch && !id.oid().is_some_and(|rid| own.contains(&rid)) {
            assert_eq!(chip.one(Verb::Remove, object, &mut Item::bare(id)), Status::Success, "{object:?}");
        }
    }
    assert_eq!(bench.gateways("20.1.1.1"), [""; 0]);
    let repaired = reconcile(&mut bench, 3);
    assert!(repaired.iter().all(|repair| repair.difference == Difference::Missing), "{repaired:?}");
    assert_eq!((contents(&bench), bench.gateways("20.1.1.1")), (before, BOTH.map(String::from).to_vec()));
    // Requests go on with the new numbers.
    bench.describe(&["20.0.0.0/8", "40.0.0.0/8"]);
    assert_eq!(bench.gateways("40.1.1.1"), BOTH);
}

#[test]
fn reconcile_refused_repair_is_tried_in_the_next_round() {
    let mut bench = Bench::new();
    bench.describe(&["20.0.0.0/8"]);
    let (vr, dest) = (bench.syncd.rid(bench.vr).unwrap(), "20.0.0.0/8".parse().unwrap());
    let id = RouteEntry { switch: SWITCH, vr, dest };
    let chip = bench.syncd.chip_mut();
    chip.one(Verb::Remove, ObjectType::RouteEntry, &mut Item::bare(id));
    chip.refuse(dest, true);
    let mut round = bench.syncd.begin_round();
    let mut repairs = Vec::new();
    while let Some(rest) = round.take() {
        let (result, next) = bench.syncd.reconcile(rest, 100, &mut SyncdOut::default());
        repairs.extend(result.repairs);
        round = next;
    }
    assert_eq!(repairs.iter().map(|repair| repair.status).collect::<Vec<_>>(), [Status::Failure]);
    bench.syncd.chip_mut().refuse(dest, false);
    assert_eq!(reconcile(&mut bench, 100).len(), 1);
    assert_eq!(bench.gateways("20.1.1.1"), BOTH);
}

#[test]
fn asic_db_rows_come_once_and_a_request_ends_a_watch() {
    let mut bench = Bench::new();
    bench.describe(&["20.0.0.0/8", "30.0.0.0/8"]);
    let (mut cursor, mut rows) = (Some(RowCursor::default()), BTreeMap::new());
    while let Some(from) = cursor.take() {
        let (page, next) = bench.syncd.rows(from, 3).unwrap();
        for (key, attrs) in page {
            assert!(rows.insert(key, attrs).is_none());
        }
        cursor = next;
    }
    assert_eq!(rows, bench.rows);
    let [a, b] = ["20.0.0.0/8", "30.0.0.0/8"].map(|dest| {
        ObjectId::Route(RouteEntry { switch: SWITCH, vr: bench.vr, dest: dest.parse().unwrap() })
    });
    bench.syncd.watch([a, b]);
    let items = vec![Item::new(a, [Attr::RoutePacketAction(PacketAction::Drop)])];
    bench.call(SaiCall::Bulk {
        verb: Verb::Set,
        object: ObjectType::RouteEntry,
        items,
        mode: ErrorMode::IgnoreError,
    });
    assert_eq!([a, b].map(|id| bench.syncd.is_watched(&id)), [false, true]);
    let mut out = SyncdOut::default();
    bench.syncd.row_again(ObjectType::RouteEntry, b, &mut out);
    let changes: Vec<AsicChange> = out.rows.unpack().collect();
    assert!(matches!(changes[..], [AsicChange::Remove(..), AsicChange::Set(..)]), "{changes:?}");
}

/// Else a round would make it again, and nothing would remove it: orchagent knows that it is gone.
#[test]
fn reconcile_leaves_out_what_the_chip_said_is_missing() {
    for verb in [Verb::Remove, Verb::Set] {
        let mut bench = Bench::new();
        bench.describe(&["20.0.0.0/8", "30.0.0.0/8"]);
        let (vr, dest) = (bench.syncd.rid(bench.vr).unwrap(), "20.0.0.0/8".parse().unwrap());
        let entry = RouteEntry { switch: SWITCH, vr, dest };
        bench.syncd.chip_mut().one(Verb::Remove, ObjectType::RouteEntry, &mut Item::bare(entry));
        let mut item = Item::bare(RouteEntry { vr: bench.vr, ..entry });
        if verb == Verb::Set {
            item = Item::new(item.id, [Attr::RoutePacketAction(PacketAction::Drop)]);
        }
        let reply = bench.call(SaiCall::One { verb, object: ObjectType::RouteEntry, item });
        assert_eq!(reply.status, Status::ItemNotFound);
        assert_eq!(reconcile(&mut bench, 100), []);
        let row = ObjectId::from(RouteEntry { vr: bench.vr, ..entry });
        assert!(!bench.rows.contains_key(&(ObjectType::RouteEntry, row)));
        assert_eq!(bench.gateways("20.1.1.1"), [""; 0]);
    }
}
