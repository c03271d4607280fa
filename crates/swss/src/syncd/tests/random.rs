//! Random requests, failures and restarts; [`World::check`] looks after each.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;

#[derive(Clone, Debug)]
enum Act {
    /// Objects of one type, each from two numbers that choose what it names.
    Bulk(Verb, ObjectType, Vec<(u8, u8)>, bool),
    /// Which of the next operations on the chip fail.
    Fail(Vec<bool>),
    RestartSyncd,
    /// A bulk in which syncd ends when so many rows are written.
    Crash(Verb, ObjectType, Vec<(u8, u8)>, usize),
    /// orchagent starts again, and describes so many of the things that it had.
    RestartOrchagent(u8),
}

const TYPES: [ObjectType; 7] = [
    ObjectType::VirtualRouter,
    ObjectType::RouterInterface,
    ObjectType::NeighborEntry,
    ObjectType::NextHop,
    ObjectType::NextHopGroup,
    ObjectType::NextHopGroupMember,
    ObjectType::RouteEntry,
];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let verb = prop_oneof![4 => Just(Verb::Create), 1 => Just(Verb::Set), 1 => Just(Verb::Remove)];
    let object = prop::sample::select(&TYPES[..]);
    let crash = (verb.clone(), object.clone(), prop::collection::vec(any::<(u8, u8)>(), 1..4), 0..7_usize);
    let bulk = (verb, object, prop::collection::vec(any::<(u8, u8)>(), 1..4), any::<bool>());
    let act = prop_oneof![
        30 => bulk.prop_map(|(verb, object, of, stop)| Act::Bulk(verb, object, of, stop)),
        2 => prop::collection::vec(any::<bool>(), 1..6).prop_map(Act::Fail),
        1 => Just(Act::RestartSyncd),
        2 => crash.prop_map(|(verb, object, of, written)| Act::Crash(verb, object, of, written)),
        2 => any::<u8>().prop_map(Act::RestartOrchagent),
    ];
    prop::collection::vec(act, 1..60)
}

fn has_default(attr: &Attr) -> bool {
    matches!(
        attr,
        Attr::RoutePacketAction(_)
            | Attr::RouteNextHop(_)
            | Attr::RifMtu(_)
            | Attr::VirtualRouterV4(_)
            | Attr::MemberWeight(_)
    )
}

impl World {
    /// A VID of a type, chosen by a number: now and then one that does not exist.
    fn some(&self, object: ObjectType, n: u8) -> Oid {
        let of = |(kind, id): &(ObjectType, ObjectId)| id.oid().filter(|_| *kind == object);
        let all: Vec<Oid> = self.db.rows.keys().filter_map(of).collect();
        match all.len() {
            _ if n > 250 => Oid::vid(object, 88_888),
            0 => Oid::vid(object, 77_777),
            len => all[usize::from(n) % len],
        }
    }

    /// The identity of an object, and an attribute that can be set.
    fn choose(&mut self, verb: Verb, object: ObjectType, a: u8, b: u8) -> Item {
        let create = verb == Verb::Create;
        let addr = ip(&format!("10.0.0.{}", b % 4));
        match object {
            ObjectType::NeighborEntry => {
                let entry = NeighborEntry {
                    switch: SWITCH,
                    rif: self.some(ObjectType::RouterInterface, a),
                    ip: addr,
                };
                Item::new(entry, [Attr::NeighborMac(Mac([2, 0, 0, 0, 0, a % 3]))])
            }
            ObjectType::RouteEntry => {
                let dest = if b.is_multiple_of(3) {
                    format!("fc00:{}::/32", b % 7)
                } else {
                    format!("{}.0.0.0/8", b % 16)
                };
                let vr = self.some(ObjectType::VirtualRouter, a);
                let to = [ObjectType::NextHop, ObjectType::NextHopGroup, ObjectType::RouterInterface]
                    [usize::from(a % 3)];
                let attr = match b % 5 {
                    0 => Attr::RoutePacketAction(if a > 99 {
                        PacketAction::Drop
                    } else {
                        PacketAction::Forward
                    }),
                    _ => Attr::RouteNextHop(self.some(to, b)),
                };
                Item::new(RouteEntry { switch: SWITCH, vr, dest: dest.parse().unwrap() }, [attr])
            }
            _ => {
                let vid = if create && a < 250 { self.vid(object) } else { self.some(object, a) };
                let attrs: Vec<Attr> = match object {
                    ObjectType::VirtualRouter => vec![Attr::VirtualRouterV4(a > 99)],
                    ObjectType::RouterInterface if create => vec![
                        Attr::RifVirtualRouter(self.some(ObjectType::VirtualRouter, b)),
                        Attr::RifKind(RifType::Port),
                        Attr::RifPort(self.ports[usize::from(b % 3)]),
                    ],
                    ObjectType::RouterInterface => vec![Attr::RifMtu(u32::from(b))],
                    ObjectType::NextHop => vec![
                        Attr::NextHopKind(NextHopType::Ip),
                        Attr::NextHopIp(addr),
                        Attr::NextHopRif(self.some(ObjectType::RouterInterface, a)),
                    ],
                    ObjectType::NextHopGroupMember if create => vec![
                        Attr::MemberGroup(self.some(ObjectType::NextHopGroup, a)),
                        Attr::MemberNextHop(self.some(ObjectType::NextHop, b)),
                        Attr::MemberWeight(u32::from(b % 2)),
                    ],
                    ObjectType::NextHopGroupMember => vec![Attr::MemberWeight(u32::from(a % 3))],
                    _ => vec![Attr::GroupKind(GroupType::DynamicUnorderedEcmp)],
                };
                Item::new(vid, attrs)
            }
        }
    }

    fn choose_all(&mut self, verb: Verb, object: ObjectType, of: Vec<(u8, u8)>) -> Vec<Item> {
        let bare = |item: Item| if verb == Verb::Remove { Item::bare(item.id) } else { item };
        of.into_iter().map(|(a, b)| bare(self.choose(verb, object, a, b))).collect()
    }

    /// Describes objects again, under new numbers: those of `keep`, and returns what was described.
    fn describe_again(&mut self, rows: &BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>, keep: u8) {
        let mut again: BTreeMap<Oid, Oid> =
            [SWITCH, self.vr].into_iter().chain(self.ports.clone()).map(|oid| (oid, oid)).collect();
        for object in ORDER {
            for (n, ((_, id), row)) in rows.iter().filter(|((of, _), _)| *of == object).enumerate() {
                if id.oid().is_some_and(|vid| again.contains_key(&vid)) || (n as u8 ^ keep).is_multiple_of(4)
                {
                    continue;
                }
                let mut id = *id;
                // Now and then one says less than before: the chip must go back to the default.
                let message = |attr: &&Attr| !has_default(attr) || !(n as u8 ^ keep).is_multiple_of(5);
                let mut attrs: Attrs = row.values().filter(message).cloned().collect();
                let new = |oid: &mut Oid| -> Option<()> {
                    if !oid.is_null() {
                        *oid = *again.get(oid)?;
                    }
                    Some(())
                };
                // What resolves to something that is not described is not described either.
                if attrs.iter_mut().flat_map(|attr| attr.oids_mut()).try_for_each(new).is_none() {
                    continue;
                }
                match &mut id {
                    ObjectId::Oid(old) => {
                        let vid = Oid::vid(object, self.vids.take(1).unwrap().start);
                        again.insert(std::mem::replace(old, vid), vid);
                    }
                    entry => {
                        if entry.oids_mut().try_for_each(new).is_none() {
                            continue;
                        }
                    }
                }
                assert_eq!(self.one(Verb::Create, object, Item { id, attrs }), Status::Success);
            }
        }
    }

    /// What an object is, with all the objects that it names described in turn.
    fn described(
        store: &BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>,
        object: ObjectType,
        id: ObjectId,
        ports: &BTreeMap<Oid, usize>,
    ) -> String {
        if let Some(port) = id.oid().and_then(|oid| ports.get(&oid)) {
            return format!("own {port}");
        }
        let describe = |oid: Oid| {
            let of = ObjectType::ALL.iter().find(|object| store.contains_key(&(**object, oid.into())));
            of.map_or("nothing".into(), |of| World::described(store, *of, oid.into(), ports))
        };
        let mut text = format!("{object:?}(");
        match id {
            ObjectId::Oid(_) => {}
            ObjectId::Route(entry) => text += &format!("{} in {} ", entry.dest, describe(entry.vr)),
            ObjectId::Neighbor(entry) => text += &format!("{} on {} ", entry.ip, describe(entry.rif)),
            ObjectId::Inseg(entry) => text += &format!("label {} ", entry.label),
        }
        for attr in store[&(object, id)].values() {
            let mut attr = attr.clone();
            let named: Vec<String> = attr.oids_mut().iter().map(|oid| describe(*oid)).collect();
            attr.oids_mut().fill(Oid::NULL);
            // An explicit default is as good as none.
            let default = matches!(
                attr,
                Attr::RoutePacketAction(PacketAction::Forward)
                    | Attr::RifMtu(1514)
                    | Attr::VirtualRouterV4(true)
                    | Attr::MemberWeight(1)
            ) || named == ["nothing"];
            if !default {
                text += &format!("{attr} {named:?} ");
            }
        }
        text + ")"
    }

    fn all_described(
        store: &BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>,
        own: impl IntoIterator<Item = Oid>,
    ) -> Vec<String> {
        let own = own.into_iter().enumerate().map(|(n, oid)| (oid, n)).collect();
        let mut all: Vec<String> =
            store.keys().map(|(object, id)| World::described(store, *object, *id, &own)).collect();
        all.sort();
        all
    }

    fn restart_orchagent(&mut self, keep: u8) {
        let rows = self.db.rows.clone();
        self.start();
        self.describe_again(&rows, keep);
        // The view itself is what must come out, without ports that it does not use.
        let mut described = self.syncd.view.take().unwrap();
        self.syncd.leave_out_unused(&mut described);
        self.syncd.view = Some(described);
        let mut view = BTreeMap::new();
        self.syncd.view.as_ref().unwrap().for_each(&mut |object, id, attrs| {
            let row = attrs.iter().map(|attr| (attr.name().to_string(), attr.clone()));
            view.insert((object, id), row.collect::<BTreeMap<_, _>>());
        });
        let own = || [SWITCH, self.vr].into_iter().chain(self.ports.clone());
        let wanted = World::all_described(&view, own());
        let failing = self.syncd.chip().failures.contains(&true);
        let status = self.view(View::Apply);
        assert!(failing || status == Status::Success, "{:?}", self.events);
        if status == Status::Success {
            let own = [SWITCH, self.vr].into_iter().chain(self.ports.clone());
            assert_eq!(World::all_described(&self.db.rows, own), wanted);
            let numbers = |rows: Vec<(ObjectType, ObjectId)>| rows.into_iter().collect::<BTreeSet<_>>();
            assert_eq!(
                numbers(self.db.rows.keys().copied().collect()),
                numbers(view.keys().copied().collect())
            );
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_database_is_what_the_chip_holds(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            match act {
                Act::Bulk(verb, object, of, stop) => {
                    let mode = if stop { ErrorMode::StopOnError } else { ErrorMode::IgnoreError };
                    let items = world.choose_all(verb, object, of);
                    world.bulk(verb, object, items, mode);
                }
                Act::Crash(verb, object, of, written) => {
                    world.syncd.chip_mut().failures.clear();
                    let items = world.choose_all(verb, object, of);
                    let mode = ErrorMode::IgnoreError;
                    let call = SaiCall::Bulk { verb, object, items: items.clone(), mode };
                    let (lost, again) = world.crash_in(call, written);
                    for ((item, lost), again) in items.iter().zip(lost.statuses).zip(again.statuses) {
                        let there = world.db.rows.contains_key(&(object, item.id));
                        let message = format!("{item:?} {} {}", lost.name(), again.name());
                        prop_assert!(again.is_success() || !lost.is_success(), "{}", message);
                        prop_assert!(!again.is_success() || there == (verb != Verb::Remove), "{}", message);
                    }
                }
                Act::Fail(which) => world.syncd.chip_mut().failures = which,
                Act::RestartSyncd => world.restart_syncd(),
                Act::RestartOrchagent(keep) => world.restart_orchagent(keep),
            }
        }
        world.syncd.chip_mut().failures.clear();
        world.restart_orchagent(0);
    }
}
