//! The tests of every implementation of the trait `Sai`. Each program of tests takes this module in by its path, and
//! gives [`conformance!`] a function that runs a test with its chip.
//!
//! What is right is SAI's: the statuses and error modes of `saistatus.h` and `saitypes.h`, and its table of attributes.
#![allow(dead_code, reason = "each program of tests uses a part")]

mod every_type;
pub(crate) mod wire;

pub(crate) use every_type::every_object_type_is_created_read_changed_and_removed;

use ribtide_swss::sai::{
    Attr, ErrorMode, GroupType, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid, PacketAction,
    RifType, RouteEntry, Sai, Status, Verb,
};

/// Room for every route of a test.
pub(crate) const ROOMY: u32 = 100_000;

/// Makes a test of each function of the suite. `$each` runs one with a chip that has room for so many routes.
macro_rules! conformance {
    ($each:path) => {
        suite::conformance! { $each:
            suite::ROOMY =>
                routes_are_created_read_changed_and_removed
                neighbours_are_created_read_changed_and_removed
                objects_in_use_are_not_removed
                bulk_with_a_failing_entry_at_any_place_obeys_its_error_mode
                bulk_of_members_with_a_failing_entry_at_any_place_obeys_its_error_mode
                get_with_an_attribute_that_is_not_there_fails_and_the_others_stay
                list_that_is_longer_than_its_room_overflows
                unknown_references_and_missing_attributes_are_refused
                every_object_type_is_created_read_changed_and_removed;
            3 => full_table_refuses_one_more_route;
        }
    };
    ($each:path: $($routes:expr => $($name:ident)*;)*) => {
        $($(
            #[test]
            fn $name() {
                $each($routes, suite::$name);
            }
        )*)*
    };
}
pub(crate) use conformance;

/// A chip under test, with what a switch has of its own and one router interface.
pub(crate) struct Bench<'a> {
    pub(crate) chip: &'a mut dyn Sai,
    pub(crate) switch: Oid,
    pub(crate) vr: Oid,
    pub(crate) ports: Vec<Oid>,
    pub(crate) rif: Oid,
    /// Whether the caller's error mode reaches the chip. The text of requests to syncd has none: it is
    /// [`ErrorMode::IgnoreError`].
    modes: bool,
    /// What this chip lacks.
    pub(crate) lacks: Lacks,
}

/// What a chip may lack.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lacks {
    /// Objects of these types, by their names without `SAI_OBJECT_TYPE_`, are refused with
    /// [`Status::NotSupported`].
    pub(crate) types: &'static [&'static str],
    /// IPv6 routes by a gateway of IPv4 are refused with [`Status::NotSupported`].
    pub(crate) ipv6_by_ipv4: bool,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(chip: &'a mut dyn Sai) -> Bench<'a> {
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
        let mut bench = Bench {
            chip,
            switch,
            vr,
            ports: ports.into(),
            rif: Oid::NULL,
            modes: true,
            lacks: Lacks::default(),
        };
        let port = bench.ports[1];
        bench.rif = bench.make(
            ObjectType::RouterInterface,
            [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(port)],
        );
        bench
    }

    /// A chip that is reached by the text of requests.
    pub(crate) fn by_text(self) -> Bench<'a> {
        Bench { modes: false, ..self }
    }

    /// A chip that lacks something.
    pub(crate) fn lacking(self, lacks: Lacks) -> Bench<'a> {
        Bench { lacks, ..self }
    }

    /// The error modes that reach the chip.
    fn modes(&self) -> &'static [ErrorMode] {
        let both = &[ErrorMode::IgnoreError, ErrorMode::StopOnError];
        if self.modes { both } else { &both[..1] }
    }

    pub(crate) fn make(&mut self, object: ObjectType, attrs: impl IntoIterator<Item = Attr>) -> Oid {
        let mut item = Item::new(Oid::NULL, attrs);
        let status = self.chip.one(Verb::Create, object, &mut item);
        assert_eq!(status, Status::Success, "{object:?} {:?}", item.attrs);
        let oid = item.id.oid().unwrap();
        assert!(!oid.is_null());
        oid
    }

    fn neighbor(&self, gateway: &str) -> NeighborEntry {
        NeighborEntry { switch: self.switch, rif: self.rif, ip: gateway.parse().unwrap() }
    }

    /// A next hop with its neighbour.
    fn hop(&mut self, gateway: &str) -> Oid {
        let mac = Attr::NeighborMac("02:00:00:00:00:01".parse().unwrap());
        let mut neighbor = Item::new(self.neighbor(gateway), [mac]);
        assert_eq!(self.chip.one(Verb::Create, ObjectType::NeighborEntry, &mut neighbor), Status::Success);
        let ip = gateway.parse().unwrap();
        let attrs = [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(ip), Attr::NextHopRif(self.rif)];
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

    pub(crate) fn remove(&mut self, object: ObjectType, id: impl Into<ObjectId>) -> Status {
        self.chip.one(Verb::Remove, object, &mut Item::bare(id))
    }
}

/// The statuses of a bulk of `count` of which entry `place` fails with `why`.
fn expected(count: usize, place: usize, why: Status, mode: ErrorMode) -> Vec<Status> {
    let status = |n: usize| match (n.cmp(&place), mode) {
        (std::cmp::Ordering::Equal, _) => why,
        (std::cmp::Ordering::Greater, ErrorMode::StopOnError) => Status::NotExecuted,
        _ => Status::Success,
    };
    (0..count).map(status).collect()
}

pub(crate) fn routes_are_created_read_changed_and_removed(bench: &mut Bench<'_>) {
    let (v4, b, v6) = (bench.hop("10.0.0.1"), bench.hop("fc00::1"), bench.hop("fc00::2"));
    if bench.lacks.ipv6_by_ipv4 {
        let attrs = [Attr::RouteNextHop(v4)];
        assert_eq!(bench.route(Verb::Create, "2001:db8::/32", attrs), Status::NotSupported);
        assert_eq!(bench.next_hop("2001:db8::/32"), Err(Status::ItemNotFound));
    }
    for dest in ["20.0.0.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "20.0.0.1/32"] {
        let a = if dest.contains(':') && bench.lacks.ipv6_by_ipv4 { v6 } else { v4 };
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
}

pub(crate) fn neighbours_are_created_read_changed_and_removed(bench: &mut Bench<'_>) {
    let neighbor = ObjectType::NeighborEntry;
    let mac = |text: &str| Attr::NeighborMac(text.parse().unwrap());
    let (a, b) = (mac("02:00:00:00:00:01"), mac("02:00:00:00:00:02"));
    for ip in ["10.0.0.1", "fe80::1"] {
        let entry = bench.neighbor(ip);
        let mut one = |verb, attrs: &[Attr]| {
            bench.chip.one(verb, neighbor, &mut Item::new(entry, attrs.iter().cloned()))
        };
        assert_eq!(one(Verb::Set, std::slice::from_ref(&a)), Status::ItemNotFound);
        assert_eq!(one(Verb::Create, &[]), Status::MandatoryAttributeMissing);
        assert_eq!(one(Verb::Create, std::slice::from_ref(&a)), Status::Success);
        assert_eq!(one(Verb::Create, std::slice::from_ref(&b)), Status::ItemAlreadyExists);
        let read = |bench: &mut Bench<'_>| {
            let mut attrs = [mac("00:00:00:00:00:00")];
            let done = bench.chip.get(neighbor, &entry.into(), &mut attrs);
            done.map(|()| attrs[0].clone())
        };
        assert_eq!(read(bench), Ok(a.clone()));
        let mut set = Item::new(entry, [b.clone()]);
        assert_eq!(bench.chip.one(Verb::Set, neighbor, &mut set), Status::Success);
        assert_eq!(read(bench), Ok(b.clone()));
        assert_eq!(bench.remove(neighbor, entry), Status::Success);
        assert_eq!(read(bench), Err(Status::ItemNotFound));
        assert_eq!(bench.remove(neighbor, entry), Status::ItemNotFound);
    }
}

pub(crate) fn objects_in_use_are_not_removed(bench: &mut Bench<'_>) {
    let hop = bench.hop("10.0.0.1");
    assert_eq!(bench.remove(ObjectType::RouterInterface, bench.rif), Status::ObjectInUse);
    assert_eq!(bench.route(Verb::Create, "20.0.0.0/24", [Attr::RouteNextHop(hop)]), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ObjectInUse);
    let group = bench.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    let attrs = [Attr::MemberGroup(group), Attr::MemberNextHop(hop), Attr::MemberWeight(3)];
    let member = bench.make(ObjectType::NextHopGroupMember, attrs);
    assert_eq!(bench.route(Verb::Set, "20.0.0.0/24", [Attr::RouteNextHop(group)]), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ObjectInUse);
    let mut weight = [Attr::MemberWeight(0)];
    bench.chip.get(ObjectType::NextHopGroupMember, &member.into(), &mut weight).unwrap();
    assert_eq!(weight, [Attr::MemberWeight(3)]);
    // The route releases the group; then its member releases the next hop.
    assert_eq!(bench.route(Verb::Remove, "20.0.0.0/24", []), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::NextHopGroupMember, member), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::Success);
    assert!(is_absent(bench.remove(ObjectType::NextHop, hop)));
    // A neighbour alone keeps the interface; an interface keeps its virtual router.
    assert_eq!(bench.remove(ObjectType::RouterInterface, bench.rif), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::NeighborEntry, bench.neighbor("10.0.0.1")), Status::Success);
    assert_eq!(bench.remove(ObjectType::RouterInterface, bench.rif), Status::Success);
    if bench.lacks.types.contains(&"VIRTUAL_ROUTER") {
        let mut vr = Item::new(Oid::NULL, []);
        let status = bench.chip.one(Verb::Create, ObjectType::VirtualRouter, &mut vr);
        return assert_eq!((status, vr.id.oid()), (Status::NotSupported, Some(Oid::NULL)));
    }
    let vr = bench.make(ObjectType::VirtualRouter, []);
    let attrs = [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(bench.ports[1])];
    let rif = bench.make(ObjectType::RouterInterface, attrs);
    assert_eq!(bench.remove(ObjectType::VirtualRouter, vr), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::RouterInterface, rif), Status::Success);
    let entry = RouteEntry { vr, ..bench.entry("20.0.0.0/24") };
    let mut route = Item::new(entry, [Attr::RoutePacketAction(PacketAction::Drop)]);
    assert_eq!(bench.chip.one(Verb::Create, ObjectType::RouteEntry, &mut route), Status::Success);
    assert_eq!(bench.remove(ObjectType::VirtualRouter, vr), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::RouteEntry, entry), Status::Success);
    assert_eq!(bench.remove(ObjectType::VirtualRouter, vr), Status::Success);
}

/// Whether the status says that there is no such object: syncd does not know its id any more.
pub(crate) fn is_absent(status: Status) -> bool {
    matches!(status, Status::ItemNotFound | Status::InvalidObjectId)
}

pub(crate) fn bulk_with_a_failing_entry_at_any_place_obeys_its_error_mode(bench: &mut Bench<'_>) {
    const COUNT: usize = 5;
    let (hop, other) = (bench.hop("10.0.0.1"), bench.hop("10.0.0.2"));
    let dest = |n: usize| format!("20.0.{n}.0/24");
    let object = ObjectType::RouteEntry;
    for &mode in bench.modes() {
        for place in [0, COUNT / 2, COUNT - 1] {
            let what = format!("entry {place}, {mode:?}");
            let items = |bench: &Bench<'_>, attr: Option<Attr>| -> Vec<Item> {
                (0..COUNT).map(|n| Item::new(bench.entry(&dest(n)), attr.clone())).collect()
            };
            let (stops, ok) = (mode == ErrorMode::StopOnError, Status::Success);
            let is_done = |n: usize| n != place && !(stops && n > place);
            // A create of what exists.
            assert_eq!(bench.route(Verb::Create, &dest(place), [Attr::RouteNextHop(other)]), ok);
            let mut creates = items(bench, Some(Attr::RouteNextHop(hop)));
            let statuses = bench.bulk(Verb::Create, object, &mut creates, mode);
            assert_eq!(statuses, expected(COUNT, place, Status::ItemAlreadyExists, mode), "{what}");
            for n in 0..COUNT {
                let target = match n == place {
                    true => Ok(other),
                    false => is_done(n).then_some(hop).ok_or(Status::ItemNotFound),
                };
                assert_eq!(bench.next_hop(&dest(n)), target, "{what}: {n}");
                if target.is_err() {
                    assert_eq!(bench.route(Verb::Create, &dest(n), [Attr::RouteNextHop(hop)]), ok);
                }
            }
            // A set of what is missing.
            assert_eq!(bench.route(Verb::Remove, &dest(place), []), ok);
            let mut sets = items(bench, Some(Attr::RouteNextHop(other)));
            let statuses = bench.bulk(Verb::Set, object, &mut sets, mode);
            assert_eq!(statuses, expected(COUNT, place, Status::ItemNotFound, mode), "{what}");
            for n in (0..COUNT).filter(|n| *n != place) {
                let target = if is_done(n) { other } else { hop };
                assert_eq!(bench.next_hop(&dest(n)), Ok(target), "{what}: {n}");
            }
            // A removal of what is missing.
            let statuses = bench.bulk(Verb::Remove, object, &mut items(bench, None), mode);
            assert_eq!(statuses, expected(COUNT, place, Status::ItemNotFound, mode), "{what}");
            for n in (0..COUNT).filter(|n| *n != place) {
                assert_eq!(bench.next_hop(&dest(n)).is_err(), is_done(n), "{what}: {n}");
                let left = if is_done(n) { Status::ItemNotFound } else { ok };
                assert_eq!(bench.route(Verb::Remove, &dest(n), []), left, "{what}: {n}");
            }
        }
    }
    // No route is left that keeps them.
    for hop in [hop, other] {
        assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::Success);
    }
}

pub(crate) fn bulk_of_members_with_a_failing_entry_at_any_place_obeys_its_error_mode(bench: &mut Bench<'_>) {
    const COUNT: usize = 4;
    let object = ObjectType::NextHopGroupMember;
    let hops: Vec<Oid> = (1..=COUNT).map(|n| bench.hop(&format!("10.0.0.{n}"))).collect();
    let group = bench.make(ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    // An id that no object has.
    let absent = Oid(hops[0].0 ^ 0xffff_0000);
    for &mode in bench.modes() {
        for place in [0, COUNT / 2, COUNT - 1] {
            let what = format!("entry {place}, {mode:?}");
            let member = |n: usize| {
                let hop = if n == place { absent } else { hops[n] };
                Item::new(Oid::NULL, [Attr::MemberGroup(group), Attr::MemberNextHop(hop)])
            };
            let mut items: Vec<Item> = (0..COUNT).map(member).collect();
            let statuses = bench.bulk(Verb::Create, object, &mut items, mode);
            let why = statuses[place];
            assert!(!why.is_success() && why != Status::NotExecuted, "{what}: {why:?}");
            assert_eq!(statuses, expected(COUNT, place, why, mode), "{what}");
            let made: Vec<Oid> = items.iter().filter_map(|item| item.id.oid()).collect();
            for (oid, status) in made.iter().zip(&statuses) {
                assert_eq!(oid.is_null(), !status.is_success(), "{what}: {made:?} {statuses:?}");
            }
            let made: Vec<Oid> = made.into_iter().filter(|oid| !oid.is_null()).collect();
            for oid in &made {
                let mut of = [Attr::MemberGroup(Oid::NULL)];
                bench.chip.get(object, &(*oid).into(), &mut of).unwrap();
                assert_eq!(of, [Attr::MemberGroup(group)]);
            }
            // A removal of them with one that is gone: the last.
            if let [.., last] = made[..] {
                assert_eq!(bench.remove(object, last), Status::Success);
                let mut items: Vec<Item> = [last].into_iter().chain(made).map(Item::bare).collect();
                items.dedup();
                let statuses = bench.bulk(Verb::Remove, object, &mut items, mode);
                assert!(is_absent(statuses[0]), "{what}: {statuses:?}");
                let stopped = mode == ErrorMode::StopOnError && statuses.len() > 1;
                for (item, status) in items[1..].iter().zip(&statuses[1..]) {
                    let (first, again) = match (stopped, item.id == items[0].id) {
                        (true, true) => (Status::NotExecuted, None),
                        (true, false) => (Status::NotExecuted, Some(Status::Success)),
                        (false, true) => (*status, None),
                        (false, false) => (Status::Success, None),
                    };
                    assert_eq!(*status, first, "{what}");
                    if let Some(again) = again {
                        assert_eq!(bench.remove(object, item.id), again, "{what}");
                    }
                }
            }
        }
    }
    assert_eq!(bench.remove(ObjectType::NextHopGroup, group), Status::Success);
}

pub(crate) fn full_table_refuses_one_more_route(bench: &mut Bench<'_>) {
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
}

pub(crate) fn get_with_an_attribute_that_is_not_there_fails_and_the_others_stay(bench: &mut Bench<'_>) {
    let hop = bench.hop("10.0.0.1");
    let given = || Attr::NextHopIp("0.0.0.0".parse().unwrap());
    let rif = || Attr::NextHopRif(Oid::NULL);
    // One of SAI's that the object does not have, and a name that SAI does not have.
    for name in ["SAI_NEXT_HOP_ATTR_TUNNEL_MAC", "SAI_NEXT_HOP_ATTR_OF_NO_HEADER"] {
        let not = || Attr::raw(name, "00:00:00:00:00:00");
        for (place, mut attrs) in
            [(0, [not(), given(), rif()]), (1, [given(), not(), rif()]), (2, [given(), rif(), not()])]
        {
            let status = bench.chip.get(ObjectType::NextHop, &hop.into(), &mut attrs).unwrap_err();
            assert!(status != Status::ItemNotFound, "the object is there");
            assert!(status.attribute().is_none_or(|of| of == place), "{name} at {place}: {status:?}");
        }
    }
    let mut attrs = [given(), rif()];
    assert_eq!(bench.chip.get(ObjectType::NextHop, &hop.into(), &mut attrs), Ok(()));
    assert_eq!(attrs, [Attr::NextHopIp("10.0.0.1".parse().unwrap()), Attr::NextHopRif(bench.rif)]);
}

pub(crate) fn list_that_is_longer_than_its_room_overflows(bench: &mut Bench<'_>) {
    let mut few = [Attr::SwitchPortList(vec![Oid::NULL; 2].into())];
    let switch = bench.switch.into();
    assert_eq!(bench.chip.get(ObjectType::Switch, &switch, &mut few), Err(Status::BufferOverflow));
    // The length comes in the place of the list.
    assert_eq!(few[0].value(), bench.ports.len().to_string());
    let mut lanes = [Attr::PortLanes(vec![0; 8].into())];
    let port = bench.ports[0].into();
    bench.chip.get(ObjectType::Port, &port, &mut lanes).unwrap();
    let [Attr::PortLanes(lanes)] = lanes else { panic!("{lanes:?}") };
    assert!(!lanes.is_empty());
}

pub(crate) fn unknown_references_and_missing_attributes_are_refused(bench: &mut Bench<'_>) {
    let absent = Oid(bench.rif.0 ^ 0xffff_0000);
    let status = bench.route(Verb::Create, "20.0.0.0/24", [Attr::RouteNextHop(absent)]);
    assert!(!status.is_success(), "{status:?}");
    assert_eq!(bench.next_hop("20.0.0.0/24"), Err(Status::ItemNotFound));
    let mut rif = Item::new(Oid::NULL, [Attr::RifKind(RifType::Port)]);
    let status = bench.chip.one(Verb::Create, ObjectType::RouterInterface, &mut rif);
    assert_eq!((status, rif.id.oid()), (Status::MandatoryAttributeMissing, Some(Oid::NULL)));
    // A second switch.
    let mut again = Item::new(Oid::NULL, [Attr::SwitchInit(true)]);
    let status = bench.chip.one(Verb::Create, ObjectType::Switch, &mut again);
    assert_eq!((status, again.id.oid()), (Status::ItemAlreadyExists, Some(Oid::NULL)));
}
