//! syncd on the virtual switch: restarts of orchagent and syncd keep the forwarding.

use ribtide_swss::sai::{
    Attr, Attrs, ErrorMode, GroupType, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid, RifType,
    RouteEntry, SWITCH, SaiCall, SaiReply, SaiRequest, Status, Verb, VidCounter, VidSource, View,
};
use ribtide_swss::syncd::{AsicChange, PackedChanges, Syncd, SyncdOut};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
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
                AsicChange::Map(..) | AsicChange::Unmap(..) | AsicChange::View(_) => {}
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
