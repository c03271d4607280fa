//! VRFs with shared dataplanes: none sees another's routes, and dataplanes see one sequence of batches.

use crate::common::*;
use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::*;
use std::collections::BTreeMap;

const RED: VrfId = VrfId(1);
const BLUE: VrfId = VrfId(7);

fn vrf(id: VrfId) -> Vrf {
    Vrf { id, table: 100 + u32::from(id.0), device: 1000 + u32::from(id.0) }
}

/// An event as it is in another VRF. Interfaces are numbered apart.
fn placed(event: RibIn, vrf: VrfId) -> RibIn {
    match event {
        RibIn::Routes(batch) => RibIn::Routes(RouteBatch { vrf, ..batch }),
        RibIn::Interface(event) => RibIn::Interface(InterfaceEvent { vrf, ..event }),
        other => other,
    }
}

fn up(index: IfIndex, addresses: &[&str]) -> RibIn {
    interface(index, true, addresses)
}

fn down(index: IfIndex, addresses: &[&str]) -> RibIn {
    interface(index, false, addresses)
}

/// A dataplane: what it has of each VRF, by group.
#[derive(Default)]
struct Plane {
    groups: BTreeMap<GroupId, FibGroup>,
    routes: BTreeMap<(VrfId, AnyPrefix), GroupId>,
    /// The last batch it took.
    seq: u64,
    /// A replay has begun since it came up; before that, what it gets builds on what it does not have.
    replayed: bool,
    /// Those of a replay: what it began with and has not named yet.
    stale: Option<Vec<(VrfId, AnyPrefix)>>,
    starts: usize,
    ends: usize,
}

impl Plane {
    fn apply(&mut self, batch: &FibBatch) {
        assert!(batch.seq > self.seq, "{} comes after {}", batch.seq, self.seq);
        self.seq = batch.seq;
        if batch.start_of_replay {
            (self.replayed, self.starts) = (true, self.starts + 1);
            self.stale = Some(self.routes.keys().copied().collect());
        }
        if !self.replayed {
            return;
        }
        for GroupOp { id, content, .. } in &batch.groups {
            self.groups.insert(*id, content.clone());
        }
        let v4 = batch.routes.v4.iter().map(|r| (r.prefix.any(), r.group));
        for (prefix, group) in v4.chain(batch.routes.v6.iter().map(|r| (r.prefix.any(), r.group))) {
            let key = (batch.vrf.id, prefix);
            self.stale.iter_mut().for_each(|stale| stale.retain(|named| *named != key));
            match group {
                Some(group) => {
                    assert!(self.groups.contains_key(&group), "{prefix} by a group that is not there");
                    self.routes.insert(key, group);
                }
                None => _ = self.routes.remove(&key),
            }
        }
        for id in &batch.after {
            assert!(!self.routes.values().any(|used| used == id), "group {} is used", id.0);
            self.groups.remove(id);
        }
        if batch.end_of_replay {
            self.ends += 1;
            for key in self.stale.take().expect("a replay that began") {
                self.routes.remove(&key);
            }
        }
    }

    /// The forwarding of packets to exactly this prefix.
    fn does(&self, vrf: VrfId, prefix: &str) -> Option<&FibGroup> {
        self.groups.get(self.routes.get(&(vrf, pfx(prefix)))?)
    }
}

/// The RIB manager with a dataplane that acknowledges at once, or not.
struct Bench {
    rib: Vrfs,
    plane: Plane,
    acknowledges: bool,
}

impl Bench {
    fn new(config: RibConfig) -> Bench {
        let mut bench = Bench { rib: Vrfs::new(config), plane: Plane::default(), acknowledges: true };
        bench.rib.add(vrf(RED));
        bench.handle(vec![RibIn::DataplaneUp(0)]);
        bench
    }

    fn handle(&mut self, events: Vec<RibIn>) {
        let mut outs = self.rib.handle(events);
        loop {
            let acks: Vec<RibIn> = outs.into_iter().flat_map(|out| self.carry_out(out)).collect();
            if acks.is_empty() || !self.acknowledges {
                return;
            }
            outs = self.rib.handle(acks);
        }
    }

    fn carry_out(&mut self, out: RibOut) -> Vec<RibIn> {
        let live = out.fib.filter(|_| self.rib.dataplanes().count() > 0);
        let batches = live.into_iter().chain(out.replay.into_iter().map(|(_, batch)| batch));
        let mut take = |batch: FibBatch| {
            self.plane.apply(&batch);
            ack(batch.seq)
        };
        batches.map(&mut take).collect()
    }
}

fn ack(seq: u64) -> RibIn {
    RibIn::Ack(FibAck { dataplane: 0, seq, failed: Vec::new(), installed: Vec::new() })
}

fn via(gateway: &str, interface: IfIndex) -> FibGroup {
    FibGroup::Hops(vec![hop(gateway, interface)])
}

/// An interface of each VRF with the same subnet, and the same prefix by a gateway in it.
fn twins() -> Bench {
    let mut b = Bench::new(RibConfig::default());
    let same = |index, vrf| {
        [up(index, &["10.0.0.1/24"]), announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.0.2")])]
            .map(|event| placed(event, vrf))
    };
    same(3, VrfId::DEFAULT).into_iter().chain(same(4, RED)).for_each(|event| b.handle(vec![event]));
    b
}

#[test]
fn a_prefix_has_other_next_hops_in_each_vrf() {
    let b = twins();
    assert_eq!(b.plane.does(VrfId::DEFAULT, "192.0.2.0/24"), Some(&via("10.0.0.2", 3)));
    assert_eq!(b.plane.does(RED, "192.0.2.0/24"), Some(&via("10.0.0.2", 4)));
    let groups: Vec<(VrfId, GroupId)> =
        b.rib.iter().flat_map(|(vrf, rib)| rib.groups().map(move |g| (vrf, g.id))).collect();
    for (vrf, id) in &groups {
        assert_eq!(b.rib.group(*id).map(|(of, info)| (of, info.id)), Some((*vrf, *id)));
    }
    assert_eq!(b.plane.groups.len(), groups.len(), "no number is of two groups");
}

#[test]
fn an_interface_that_fails_is_one_vrfs_alone() {
    let mut b = twins();
    let urgent = b.rib.urgent([placed(down(4, &["10.0.0.1/24"]), RED)]);
    let of_default: Vec<GroupId> = b.rib.default_vrf().groups().map(|g| g.id).collect();
    assert!(urgent.iter().all(|op| !of_default.contains(&op.op.id)));
    b.handle(vec![]);
    assert_eq!(b.plane.does(RED, "192.0.2.0/24"), None);
    assert_eq!(b.plane.does(VrfId::DEFAULT, "192.0.2.0/24"), Some(&via("10.0.0.2", 3)));
}

#[test]
fn an_interface_leaves_one_vrf_and_enters_another() {
    let mut b = twins();
    b.rib.add(vrf(BLUE));
    b.handle(vec![placed(announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.0.2")]), BLUE)]);
    assert_eq!(b.plane.does(BLUE, "192.0.2.0/24"), None);
    b.handle(vec![placed(up(4, &["10.0.0.1/24"]), BLUE)]);
    assert_eq!(b.plane.does(RED, "192.0.2.0/24"), None);
    assert_eq!(b.plane.does(RED, "10.0.0.0/24"), None);
    assert_eq!(b.plane.does(BLUE, "192.0.2.0/24"), Some(&via("10.0.0.2", 4)));
    assert_eq!(b.rib.interface(4).map(|interface| interface.vrf), Some(BLUE));
    b.handle(vec![RibIn::InterfaceRemoved(4)]);
    assert_eq!(b.plane.does(BLUE, "192.0.2.0/24"), None);
    assert!(b.rib.interface(4).is_none());
}

#[test]
fn a_vrf_goes_with_its_routes_and_groups() {
    let mut b = twins();
    let groups = b.rib.default_vrf().group_count();
    assert_eq!(b.rib.leaving().count(), 0);
    let out = b.rib.remove(RED);
    b.carry_out(out);
    assert!(b.rib.get(RED).is_none());
    assert!(b.rib.leaving().eq([RED]), "the dataplane has not acknowledged the deletion");
    assert!(b.plane.routes.keys().all(|(vrf, _)| *vrf == VrfId::DEFAULT));
    assert_eq!(b.plane.groups.len(), groups);
    // What is still under way of it has no effect.
    b.handle(vec![
        placed(announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.0.2")]), RED),
        ack(b.plane.seq),
    ]);
    assert_eq!(b.plane.does(RED, "192.0.2.0/24"), None);
    assert_eq!(b.rib.leaving().count(), 0);
    // Another one of its number starts over.
    b.rib.add(vrf(RED));
    b.handle(vec![placed(up(4, &["10.0.9.1/24"]), RED)]);
    assert_eq!(b.plane.does(RED, "192.0.2.0/24"), None);
    assert_eq!(b.plane.does(RED, "10.0.9.0/24"), Some(&FibGroup::Hops(vec![link(4)])));
}

#[test]
fn a_replay_is_of_all_vrfs_and_ends_once() {
    let mut b = Bench::new(RibConfig { initial_sources: vec![Source::Bgp], ..RibConfig::default() });
    assert_eq!((b.plane.starts, b.plane.ends), (1, 0), "BGP has not announced everything");
    b.acknowledges = false;
    let many = |vrf, third: u32| {
        let mut events = vec![placed(up(3 + third, &["10.0.0.1/24"]), vrf)];
        let prefix = |n: u32| format!("20.{}.{}.0/24", n / 256, n % 256);
        events.extend(
            (0..3 * PAGE as u32)
                .map(|n| placed(announce(&prefix(n), Protocol::Static, &[gw("10.0.0.2")]), vrf)),
        );
        events
    };
    b.handle(many(VrfId::DEFAULT, 0));
    b.handle(many(RED, 1));
    b.handle(vec![RibIn::EndOfInitial(Source::Bgp)]);
    assert_eq!(b.plane.ends, 1);
    // Another dataplane, which is slow: no end before it has all pages of both VRFs.
    let mut slow = Plane::default();
    let mut waiting: std::collections::VecDeque<FibBatch> = Default::default();
    let mut outs = b.rib.handle([RibIn::DataplaneUp(1)]);
    loop {
        waiting.extend(outs.into_iter().flat_map(|out| out.replay).map(|(id, batch)| {
            assert_eq!(id, 1);
            batch
        }));
        let Some(batch) = waiting.pop_front() else { break };
        slow.apply(&batch);
        if batch.end_of_replay {
            assert_eq!(slow.routes.len(), b.plane.routes.len(), "everything before the end");
        }
        outs = b.rib.handle([RibIn::Ack(FibAck {
            dataplane: 1,
            seq: batch.seq,
            failed: Vec::new(),
            installed: Vec::new(),
        })]);
    }
    assert_eq!((slow.starts, slow.ends), (1, 1));
    assert_eq!(slow.routes, b.plane.routes);
    assert_eq!(slow.groups, b.plane.groups);
    let stands = b.rib.dataplanes().find(|d| d.id == 1).unwrap();
    assert_eq!((stands.outstanding, stands.replayed), (0, true));
}

#[test]
fn a_lagging_dataplane_lags_in_all_vrfs_and_gets_the_deletions_of_a_removed_one() {
    let mut b = twins();
    let ack_of = |seq| RibIn::Ack(FibAck { dataplane: 1, seq, failed: Vec::new(), installed: Vec::new() });
    let mut slow = Plane::default();
    // What is on its way to it; that it gets everything in this order is checked when it takes it.
    let mut waiting: std::collections::VecDeque<FibBatch> = Default::default();
    let deliver = |waiting: &mut std::collections::VecDeque<FibBatch>, outs: Vec<RibOut>| {
        for out in outs {
            waiting.extend(out.fib.filter(|_| !out.lagging.contains(&1)));
            waiting.extend(out.replay.into_iter().filter(|(id, _)| *id == 1).map(|(_, batch)| batch));
        }
    };
    let take = |b: &mut Bench, slow: &mut Plane, waiting: &mut std::collections::VecDeque<FibBatch>| {
        let Some(batch) = waiting.pop_front() else { return false };
        slow.apply(&batch);
        let outs = b.rib.feedback([ack_of(batch.seq)]);
        deliver(waiting, outs);
        true
    };
    let outs = b.rib.handle([RibIn::DataplaneUp(1)]);
    deliver(&mut waiting, outs);
    while take(&mut b, &mut slow, &mut waiting) {}
    let announced = |n: u32, gateway: &str, vrf| {
        placed(announce(&format!("20.{n}.0.0/16"), Protocol::Static, &[gw(gateway)]), vrf)
    };
    // Only the default VRF's batches wait for it.
    for n in 0..40 {
        let outs = b.rib.handle([announced(n, "10.0.0.3", VrfId::DEFAULT)]);
        deliver(&mut waiting, outs);
    }
    let full = waiting.len();
    let outs = b.rib.feedback([RibIn::Lagging(1)]);
    deliver(&mut waiting, outs);
    for n in 0..40 {
        let outs = b.rib.handle([announced(n, "10.0.0.4", RED), announced(n, "10.0.0.4", VrfId::DEFAULT)]);
        deliver(&mut waiting, outs);
    }
    assert_eq!(waiting.len(), full, "nothing more of any VRF");
    let lag = |b: &Bench| b.rib.dataplanes().find(|d| d.id == 1).unwrap().lag;
    assert_eq!(lag(&b), Some(80));
    let out = b.rib.remove(RED);
    deliver(&mut waiting, vec![out]);
    // What it had of the VRF, and not what was added since.
    let of_red = slow.routes.keys().filter(|(vrf, _)| *vrf == RED).count();
    assert_eq!(lag(&b), Some(40 + of_red));
    while take(&mut b, &mut slow, &mut waiting) {}
    assert_eq!(lag(&b), None);
    assert!(slow.routes.keys().all(|(vrf, _)| *vrf == VrfId::DEFAULT));
    let groups: Vec<GroupId> = b.rib.default_vrf().groups().filter(|g| g.in_fib).map(|g| g.id).collect();
    assert_eq!(slow.groups.keys().copied().collect::<Vec<_>>(), groups);
    assert!(
        (0..40).all(|n| slow.does(VrfId::DEFAULT, &format!("20.{n}.0.0/16")) == Some(&via("10.0.0.4", 3)))
    );
}

#[test]
fn acknowledgements_find_their_vrf() {
    let mut b = twins();
    b.acknowledges = false;
    let prefix = "198.51.100.0/24";
    let announced = announce(prefix, Protocol::Static, &[gw("10.0.0.2")]);
    b.handle(vec![announced.clone(), placed(announced, RED)]);
    let status = |b: &Bench, vrf| b.rib.get(vrf).unwrap().status(pfx(prefix)).remove(0).1;
    assert_eq!(status(&b, VrfId::DEFAULT), InstallStatus::Pending);
    assert_eq!(status(&b, RED), InstallStatus::Pending);
    // The default VRF's batch is the first of the two.
    b.rib.handle([ack(b.plane.seq - 1)]);
    assert_eq!(status(&b, VrfId::DEFAULT), InstallStatus::Installed);
    assert_eq!(status(&b, RED), InstallStatus::Pending);
    let failed = vec![(VrfPrefix { vrf: RED, prefix: pfx(prefix) }, "no room".into())];
    b.rib.handle([RibIn::Ack(FibAck { dataplane: 0, seq: b.plane.seq, failed, installed: Vec::new() })]);
    assert_eq!(status(&b, VrfId::DEFAULT), InstallStatus::Installed);
    assert_eq!(status(&b, RED), InstallStatus::Failed("no room".into()));
    assert_eq!(b.rib.dataplanes().map(|d| (d.failed, d.outstanding)).collect::<Vec<_>>(), [(1, 0)]);
    let again: Vec<FibBatch> = b
        .rib
        .handle([RibIn::Retry(0)])
        .into_iter()
        .flat_map(|out| out.replay)
        .map(|(_, batch)| batch)
        .collect();
    assert_eq!(again.iter().map(|batch| (batch.vrf.id, batch.again)).collect::<Vec<_>>(), [(RED, true)]);
    assert_eq!(again[0].vrf, vrf(RED));
}

#[derive(Clone, Debug)]
enum Act {
    Route { vrf: bool, prefix: u8, distance: u8, gateway: Option<u8> },
    Link { vrf: bool, index: u8, up: bool },
    Dataplane(bool),
    Remove,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), 0..6u8, 1..4u8, proptest::option::of(0..4u8))
            .prop_map(|(vrf, prefix, distance, gateway)| Act::Route { vrf, prefix, distance, gateway }),
        3 => (any::<bool>(), 0..2u8, any::<bool>()).prop_map(|(vrf, index, up)| Act::Link { vrf, index, up }),
        1 => any::<bool>().prop_map(Act::Dataplane),
        1 => Just(Act::Remove),
    ]
}

/// What an act is to the RIB manager of one VRF; links of VRFs have numbers apart.
fn event(act: &Act) -> Option<(VrfId, RibIn)> {
    let of = |vrf: bool| if vrf { RED } else { VrfId::DEFAULT };
    match *act {
        Act::Route { vrf, prefix, distance, gateway } => {
            let prefix = pfx([
                "192.0.2.0/24",
                "192.0.0.0/16",
                "10.0.0.0/24",
                "10.0.1.0/25",
                "0.0.0.0/0",
                "2001:db8::/32",
            ][usize::from(prefix)]);
            let to = |n: u8| gw(["10.0.0.2", "10.0.1.2", "192.0.2.7", "10.0.1.99"][usize::from(n)]);
            let set = gateway.map(|n| RouteSet { distance, ..set(Protocol::Static, &[to(n)]) });
            Some((of(vrf), placed(route(prefix, Source::Static, set), of(vrf))))
        }
        Act::Link { vrf, index, up: is_up } => {
            let number = 10 + 2 * u32::from(index) + u32::from(vrf);
            let addresses = [["10.0.0.1/24"], ["10.0.1.1/24"]][usize::from(index)];
            let event = if is_up { up(number, &addresses) } else { down(number, &addresses) };
            Some((of(vrf), placed(event, of(vrf))))
        }
        Act::Dataplane(_) | Act::Remove => None,
    }
}

/// Whatever is resolved, as text: numbers of groups are each RIB's own.
fn resolved_state(rib: &Rib) -> Vec<String> {
    let mut cursor = rib.cursor();
    cursor.sort();
    let routes = rib.page(&mut cursor, usize::MAX).into_iter();
    routes.map(|r| format!("{} {} {} {:?}", r.prefix, r.protocol, r.distance, r.content)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Routes spread over two VRFs select and resolve as if each VRF were alone, and the dataplane has just that.
    #[test]
    fn vrfs_do_not_see_each_other(batches in prop::collection::vec(prop::collection::vec(acts(), 1..6), 1..20)) {
        let mut b = Bench::new(RibConfig::default());
        let alone = |id| Rib::new(RibConfig { vrf: vrf(id), ..RibConfig::default() });
        let mut lone = BTreeMap::from([(VrfId::DEFAULT, Rib::new(RibConfig::default())), (RED, alone(RED))]);
        for batch in batches {
            let mut events = Vec::new();
            for act in batch {
                match act {
                    Act::Dataplane(up) => {
                        events.push(if up { RibIn::DataplaneUp(0) } else { RibIn::DataplaneDown(0) });
                        b.plane.replayed &= up;
                    }
                    Act::Remove => {
                        b.handle(std::mem::take(&mut events));
                        let out = b.rib.remove(RED);
                        b.carry_out(out);
                        b.rib.add(vrf(RED));
                        lone.insert(RED, alone(RED));
                    }
                    other => {
                        let (id, event) = event(&other).expect("a route or a link");
                        lone.get_mut(&id).expect("its VRF").handle([event.clone()]);
                        events.push(event);
                    }
                }
            }
            b.handle(events);
            for (id, rib) in &lone {
                prop_assert_eq!(resolved_state(b.rib.get(*id).expect("it is there")), resolved_state(rib));
            }
        }
        b.handle(vec![RibIn::DataplaneUp(0)]);
        for (id, rib) in &lone {
            let mut has: Vec<String> = Vec::new();
            for ((_, prefix), group) in b.plane.routes.iter().filter(|((of, _), _)| of == id) {
                has.push(format!("{prefix} {:?}", b.plane.groups[group]));
            }
            let mut cursor = rib.cursor();
            cursor.sort();
            let mut wanted: Vec<String> =
                rib.page(&mut cursor, usize::MAX).into_iter().map(|r| format!("{} {:?}", r.prefix, r.content)).collect();
            has.sort();
            wanted.sort();
            prop_assert_eq!(has, wanted);
        }
    }
}
