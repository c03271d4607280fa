//! The virtual switch through its public interface: accepted and refused requests, and forwarding.

use proptest::prelude::*;
use ribtide_prefix::AnyPrefix;
use ribtide_swss::sai::{
    Attr, ErrorMode, GroupType, InsegEntry, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid,
    OutsegType, PacketAction, RifType, RouteEntry, Sai, Status, Verb,
};
use ribtide_vswitch::{Behavior, Cursor, EntryKey, Limits, PROFILES, PortSetup, Profile, VirtualSwitch};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

struct Bench {
    chip: VirtualSwitch,
    switch: Oid,
    vr: Oid,
    rif: Oid,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        let behavior = Behavior { limits, ..Behavior::default() };
        let mut chip = VirtualSwitch::new(PortSetup::usual(), behavior);
        let mut start = Item::new(Oid::NULL, [Attr::SwitchInit(true)]);
        assert_eq!(chip.one(Verb::Create, ObjectType::Switch, &mut start), Status::Success);
        let switch = start.id.oid().unwrap();
        let mut own = [
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; 64].into()),
            Attr::SwitchPortNumber(0),
        ];
        chip.get(ObjectType::Switch, &switch.into(), &mut own).unwrap();
        let [Attr::SwitchDefaultVirtualRouter(vr), Attr::SwitchPortList(ports), Attr::SwitchPortNumber(32)] =
            &own
        else {
            panic!("{own:?}")
        };
        let (vr, port) = (*vr, ports[1]);
        let mut bench = Bench { chip, switch, vr, rif: Oid::NULL };
        bench.rif = bench.make(
            ObjectType::RouterInterface,
            vec![Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(port)],
        );
        bench
    }

    fn make(&mut self, kind: ObjectType, attrs: Vec<Attr>) -> Oid {
        let mut item = Item::new(Oid::NULL, attrs);
        assert_eq!(self.chip.one(Verb::Create, kind, &mut item), Status::Success);
        item.id.oid().unwrap()
    }

    /// A next hop with its neighbour.
    fn hop(&mut self, gateway: &str) -> Oid {
        let entry = NeighborEntry { switch: self.switch, rif: self.rif, ip: ip(gateway) };
        let mut neighbor = Item::new(entry, [Attr::NeighborMac("02:00:00:00:00:01".parse().unwrap())]);
        assert_eq!(self.chip.one(Verb::Create, ObjectType::NeighborEntry, &mut neighbor), Status::Success);
        let kind = Attr::NextHopKind(NextHopType::Ip);
        self.make(ObjectType::NextHop, vec![kind, Attr::NextHopIp(ip(gateway)), Attr::NextHopRif(self.rif)])
    }

    fn entry(&self, dest: &str) -> RouteEntry {
        RouteEntry { switch: self.switch, vr: self.vr, dest: dest.parse().unwrap() }
    }

    fn route(&mut self, verb: Verb, dest: &str, attrs: Vec<Attr>) -> Status {
        let entry = self.entry(dest);
        self.chip.one(verb, ObjectType::RouteEntry, &mut Item::new(entry, attrs))
    }

    fn gateways(&self, addr: &str) -> Vec<String> {
        let forward = self.chip.lookup(self.vr, ip(addr));
        let hops = forward.into_iter().flat_map(|f| f.hops);
        hops.map(|h| format!("{} {} {}", h.gateway.unwrap(), h.port, h.weight)).collect()
    }

    fn remove(&mut self, kind: ObjectType, id: impl Into<ObjectId>) -> Status {
        self.chip.one(Verb::Remove, kind, &mut Item::bare(id))
    }
}

#[test]
fn packets_with_a_label_follow_its_entry() {
    let mut bench = Bench::new(Limits { labels: 2, labelled_next_hops: 1, ..Limits::default() });
    let plain = bench.hop("10.0.0.1");
    let attrs = |labels: &[u32]| {
        vec![
            Attr::NextHopKind(NextHopType::Mpls),
            Attr::NextHopOutseg(OutsegType::Swap),
            Attr::NextHopLabels(labels.into()),
            Attr::NextHopIp(ip("10.0.0.1")),
            Attr::NextHopRif(bench.rif),
        ]
    };
    let (first, second, unlabelled) =
        (attrs(&[201, 3]), attrs(&[202]), [&attrs(&[1])[..2], &attrs(&[1])[3..]].concat());
    let swap = bench.make(ObjectType::NextHop, first);
    let mut refuse =
        |attrs| bench.chip.one(Verb::Create, ObjectType::NextHop, &mut Item::new(Oid::NULL, attrs));
    assert_eq!(refuse(second), Status::TableFull);
    assert_eq!(refuse(unlabelled), Status::MandatoryAttributeMissing);
    let switch = bench.switch;
    let entry = |label| InsegEntry { switch, label };
    let one = |bench: &mut Bench, verb, label, attrs: Vec<Attr>| {
        bench.chip.one(verb, ObjectType::InsegEntry, &mut Item::new(entry(label), attrs))
    };
    let to = vec![Attr::InsegNextHop(swap), Attr::InsegPop(1)];
    assert_eq!(one(&mut bench, Verb::Set, 200, vec![Attr::InsegPop(2)]), Status::ItemNotFound);
    assert_eq!(one(&mut bench, Verb::Create, 200, to.clone()), Status::Success);
    assert_eq!(one(&mut bench, Verb::Create, 200, to.clone()), Status::ItemAlreadyExists);
    let drop = vec![Attr::InsegPacketAction(PacketAction::Drop)];
    assert_eq!(one(&mut bench, Verb::Create, 300, drop.clone()), Status::Success);
    assert_eq!(one(&mut bench, Verb::Create, 400, to), Status::TableFull);
    assert_eq!(bench.chip.counts().labels, 2);
    let shown = |bench: &Bench, label| {
        let forward = bench.chip.label(label).unwrap();
        let hops = forward.hops.iter().map(|hop| {
            let labels = hop.labels.as_ref().map(|labels| format!("{labels}@")).unwrap_or_default();
            format!("{labels}{}", hop.gateway.unwrap())
        });
        (forward.action, forward.pop, hops.collect::<Vec<_>>())
    };
    assert_eq!(shown(&bench, 200), (PacketAction::Forward, 1, vec!["swap201/3@10.0.0.1".into()]));
    assert_eq!(shown(&bench, 300), (PacketAction::Drop, 0, vec![]));
    assert_eq!(bench.chip.label(400), None);
    // A label keeps its target.
    let mut gone = Item::bare(swap);
    assert_eq!(bench.chip.one(Verb::Remove, ObjectType::NextHop, &mut gone), Status::ObjectInUse);
    assert_eq!(one(&mut bench, Verb::Set, 200, vec![Attr::InsegNextHop(plain)]), Status::Success);
    assert_eq!(one(&mut bench, Verb::Set, 200, vec![Attr::InsegPop(2)]), Status::Success);
    assert_eq!(shown(&bench, 200), (PacketAction::Forward, 2, vec!["10.0.0.1".into()]));
    let mut values = [Attr::InsegPop(0), Attr::InsegNextHop(Oid::NULL)];
    bench.chip.get(ObjectType::InsegEntry, &entry(200).into(), &mut values).unwrap();
    assert_eq!(values, [Attr::InsegPop(2), Attr::InsegNextHop(plain)]);
    assert_eq!(bench.chip.one(Verb::Remove, ObjectType::NextHop, &mut gone), Status::Success);
    assert_eq!(one(&mut bench, Verb::Remove, 200, vec![]), Status::Success);
    assert_eq!(one(&mut bench, Verb::Remove, 200, vec![]), Status::ItemNotFound);
    assert_eq!(one(&mut bench, Verb::Set, 300, vec![Attr::RouteNextHop(plain)]), Status::NotSupported);
}

#[test]
fn a_watched_entry_is_unchanged_until_a_request_names_it() {
    let mut bench = Bench::new(Limits::default());
    let drop = || vec![Attr::RoutePacketAction(PacketAction::Drop)];
    for dest in ["10.0.0.0/24", "10.0.1.0/24"] {
        assert_eq!(bench.route(Verb::Create, dest, drop()), Status::Success);
    }
    let vr = bench.vr;
    let keys = |dests: &[&str]| -> Vec<EntryKey> {
        dests.iter().map(|dest| EntryKey::Route(vr, dest.parse().unwrap())).collect()
    };
    let unchanged = |bench: &Bench, watch| -> Vec<_> {
        let mut unchanged: Vec<_> = bench.chip.unchanged(watch).expect("it is not over").collect();
        unchanged.sort_unstable();
        unchanged
    };
    // Missing entries are not watched, and changed ones are watched no longer, even if the change
    // has no effect.
    let first = bench.chip.watch(keys(&["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]));
    assert_eq!(unchanged(&bench, first).len(), 2);
    assert_eq!(bench.route(Verb::Set, "10.0.1.0/24", drop()), Status::Success);
    assert_eq!(unchanged(&bench, first), keys(&["10.0.0.0/24"]));
    // A second watch of one that the first watches too, and of one that changed since the first.
    let second = bench.chip.watch(keys(&["10.0.0.0/24", "10.0.1.0/24"]));
    assert_eq!(unchanged(&bench, first), keys(&["10.0.0.0/24"]));
    assert_eq!(unchanged(&bench, second).len(), 2);
    assert_eq!(bench.route(Verb::Set, "10.0.0.0/24", drop()), Status::Success);
    assert_eq!(unchanged(&bench, first), []);
    assert_eq!(unchanged(&bench, second), keys(&["10.0.1.0/24"]));
    assert!(bench.chip.unchanged(second + 1).is_none() && bench.chip.unchanged(0).is_none());
    // No number comes twice, also not after the switch was shut down, which ends every watch.
    assert_eq!(bench.remove(ObjectType::Switch, bench.switch), Status::Success);
    assert!(bench.chip.unchanged(second).is_none());
    assert_eq!(bench.chip.watch([]), second + 1);
    assert!(bench.chip.unchanged(second).is_none() && unchanged(&bench, second + 1).is_empty());
}

#[test]
fn watch_beyond_the_threshold_ends_earlier_ones() {
    let mut bench = Bench::new(Limits::default());
    let drop = || vec![Attr::RoutePacketAction(PacketAction::Drop)];
    let dest = |n: u32| format!("10.{}.{}.0/24", n >> 8, n & 255);
    let vr = bench.vr;
    let key = |n: u32| EntryKey::Route(vr, dest(n).parse().unwrap());
    for n in 0..4_000 {
        assert_eq!(bench.route(Verb::Create, &dest(n), drop()), Status::Success);
    }
    let first = bench.chip.watch((0..3_999).map(key));
    let second = bench.chip.watch((3_999..4_000).map(key));
    assert_eq!(bench.chip.unchanged(first).unwrap().count(), 3_999);
    assert_eq!(bench.chip.unchanged(second).unwrap().count(), 4_000);
    let third = bench.chip.watch([key(0)]);
    assert!(bench.chip.unchanged(first).is_none() && bench.chip.unchanged(second).is_none());
    assert_eq!(bench.chip.unchanged(third).unwrap().collect::<Vec<_>>(), [key(0)]);
}

#[test]
fn a_walk_meets_all_that_stays() {
    let mut bench = Bench::new(Limits::default());
    let other = bench.make(ObjectType::VirtualRouter, vec![]);
    let mut stay: Vec<EntryKey> = Vec::new();
    let change = |bench: &mut Bench, verb, key| {
        let status = match key {
            EntryKey::Route(vr, dest) => {
                let entry = RouteEntry { switch: bench.switch, vr, dest };
                bench.chip.one(verb, ObjectType::RouteEntry, &mut Item::bare(entry))
            }
            EntryKey::Label(label) => {
                let entry = InsegEntry { switch: bench.switch, label };
                bench.chip.one(verb, ObjectType::InsegEntry, &mut Item::bare(entry))
            }
        };
        assert_eq!(status, Status::Success, "{verb:?} {key:?}");
    };
    for vr in [bench.vr, other] {
        let nested = [
            "0.0.0.0/0",
            "128.0.0.0/1",
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.0.0.0/25",
            "10.0.0.0/32",
            "10.0.0.7/32",
        ];
        let v4 = (0..2000_u32).map(|n| format!("{}.{}.{}.0/24", 20 + n % 7, n & 255, n >> 8));
        let v6 = (0..3_000_u32).map(|n| format!("2a00:{:x}:{:x}::/48", n >> 8, n & 255));
        let all = nested.map(str::to_owned).into_iter().chain(v4).chain(v6).chain(["::/0".to_owned()]);
        stay.extend(all.map(|text| EntryKey::Route(vr, text.parse().unwrap())));
    }
    stay.extend((0..500).map(|n| EntryKey::Label(16 + n * 3)));
    stay.iter().for_each(|key| change(&mut bench, Verb::Create, *key));
    let vr = bench.vr;
    let guests = |n: usize| {
        let route = move |text: String| EntryKey::Route(vr, text.parse().unwrap());
        let v6 = (0..200).map(move |m| route(format!("2b00:{n:x}:{m:x}::/48")));
        let v4 = (0..10).map(move |m| route(format!("30.{n}.{m}.0/26")));
        v6.chain(v4).chain((0..10).map(move |m| EntryKey::Label((20_000 + n * 10 + m) as u32)))
    };
    // Without changes; while tables grow; and while they shrink, so far that the IPv6 table is
    // joined meanwhile.
    let mut there = 0;
    for verb in [None, Some(Verb::Create), Some(Verb::Remove)] {
        let (mut met, mut from) = (HashSet::new(), Some(Cursor::default()));
        while let Some(at) = from {
            let (keys, next) = bench.chip.walk(at, 60);
            assert_ne!(next, from, "it goes on");
            met.extend(keys);
            from = next;
            match verb {
                Some(Verb::Create) if there < 100 => {
                    guests(there).for_each(|key| change(&mut bench, Verb::Create, key));
                    there += 1;
                }
                Some(Verb::Remove) if there > 0 => {
                    there -= 1;
                    guests(there).for_each(|key| change(&mut bench, Verb::Remove, key));
                    bench.chip.shrink_to_fit();
                }
                _ => {}
            }
        }
        assert_eq!(stay.iter().find(|key| !met.contains(*key)), None);
        assert!(verb.is_some() || met.len() == stay.len());
        if verb == Some(Verb::Create) {
            // There were too few pieces for all.
            (there..100).flat_map(&guests).for_each(|key| change(&mut bench, Verb::Create, key));
            there = 100;
        }
    }
}

#[test]
fn packets_follow_routes_groups_and_neighbours() {
    let mut bench = Bench::new(Limits::default());
    let (a, b) = (bench.hop("10.0.0.1"), bench.hop("10.0.0.2"));
    let kind = Attr::GroupKind(GroupType::DynamicUnorderedEcmp);
    let group = bench.make(ObjectType::NextHopGroup, vec![kind]);
    let member =
        |hop, weight| vec![Attr::MemberGroup(group), Attr::MemberNextHop(hop), Attr::MemberWeight(weight)];
    bench.make(ObjectType::NextHopGroupMember, member(a, 3));
    let second = bench.make(ObjectType::NextHopGroupMember, member(b, 1));

    assert_eq!(bench.route(Verb::Create, "10.1.0.0/16", vec![Attr::RouteNextHop(group)]), Status::Success);
    assert_eq!(bench.route(Verb::Create, "10.1.2.0/24", vec![Attr::RouteNextHop(b)]), Status::Success);
    assert_eq!(bench.route(Verb::Create, "2001:db8::/32", vec![Attr::RouteNextHop(a)]), Status::Success);
    let drop = vec![Attr::RoutePacketAction(PacketAction::Drop)];
    assert_eq!(bench.route(Verb::Create, "0.0.0.0/0", drop), Status::Success);

    assert_eq!(bench.gateways("10.1.1.1"), ["10.0.0.1 Ethernet4 3", "10.0.0.2 Ethernet4 1"]);
    assert_eq!(bench.gateways("10.1.2.3"), ["10.0.0.2 Ethernet4 1"]);
    assert_eq!(bench.gateways("2001:db8::1"), ["10.0.0.1 Ethernet4 1"]);
    assert_eq!(bench.chip.lookup(bench.vr, ip("192.0.2.1")).unwrap().action, PacketAction::Drop);
    assert_eq!(bench.chip.lookup(bench.vr, ip("2001:db9::1")), None);

    // Removal of a member takes effect without a change of routes.
    assert_eq!(bench.remove(ObjectType::NextHopGroupMember, second), Status::Success);
    assert_eq!(bench.gateways("10.1.1.1"), ["10.0.0.1 Ethernet4 3"]);

    let expected = [("10.1.1.1", "10.0.0.1"), ("10.1.2.3", "10.0.0.2"), ("192.0.2.1", "10.0.0.1")];
    let checked = bench.chip.check(bench.vr, expected.map(|(addr, gateway)| (ip(addr), ip(gateway))));
    assert_eq!((checked.lookups, checked.right, checked.wrong.len()), (3, 2, 1));

    // Without its neighbour a next hop drops.
    let neighbor = NeighborEntry { switch: bench.switch, rif: bench.rif, ip: ip("10.0.0.1") };
    assert_eq!(bench.remove(ObjectType::NeighborEntry, neighbor), Status::Success);
    assert!(!bench.chip.lookup(bench.vr, ip("10.1.1.1")).unwrap().reaches(ip("10.0.0.1")));
    let counts = bench.chip.counts();
    assert_eq!((counts.ipv4_routes, counts.ipv6_routes, counts.next_hops, counts.neighbors), (3, 1, 2, 1));
}

#[test]
fn what_is_referred_to_stays_and_what_is_missing_is_refused() {
    let mut bench = Bench::new(Limits::default());
    let hop = bench.hop("10.0.0.1");
    assert_eq!(bench.route(Verb::Set, "10.0.0.0/8", vec![Attr::RouteNextHop(hop)]), Status::ItemNotFound);
    assert_eq!(bench.route(Verb::Remove, "10.0.0.0/8", vec![]), Status::ItemNotFound);
    assert_eq!(
        bench.route(Verb::Create, "10.0.0.0/8", vec![Attr::RouteNextHop(Oid(77))]),
        Status::InvalidObjectId
    );
    assert_eq!(bench.route(Verb::Create, "10.0.0.0/8", vec![Attr::RouteNextHop(hop)]), Status::Success);
    assert_eq!(bench.route(Verb::Create, "10.0.0.0/8", vec![]), Status::ItemAlreadyExists);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ObjectInUse);
    assert_eq!(bench.remove(ObjectType::RouterInterface, bench.rif), Status::ObjectInUse);
    let vr = bench.vr;
    assert_eq!(bench.remove(ObjectType::VirtualRouter, vr), Status::ObjectInUse);
    // The route releases the next hop when it resolves to another.
    assert_eq!(bench.route(Verb::Set, "10.0.0.0/8", vec![Attr::RouteNextHop(Oid::NULL)]), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::Success);
    assert_eq!(bench.remove(ObjectType::NextHop, hop), Status::ItemNotFound);
    let mut second = Item::new(Oid::NULL, [Attr::SwitchInit(true)]);
    assert_eq!(bench.chip.one(Verb::Create, ObjectType::Switch, &mut second), Status::ItemAlreadyExists);
    // With the switch goes all that it holds; a new one starts empty and with other numbers.
    let (switch, vr) = (bench.switch, bench.vr);
    assert_eq!(bench.remove(ObjectType::Switch, switch), Status::Success);
    assert_eq!(bench.chip.counts().ipv4_routes, 0);
    assert_eq!(bench.route(Verb::Create, "10.0.0.0/8", vec![]), Status::InvalidObjectId);
    assert_eq!(bench.chip.one(Verb::Create, ObjectType::Switch, &mut second), Status::Success);
    assert!(bench.chip.default_router().is_some_and(|new| new != vr));
    let mut bare = Item::bare(Oid::NULL);
    assert_eq!(
        bench.chip.one(Verb::Create, ObjectType::NextHop, &mut bare),
        Status::MandatoryAttributeMissing
    );
}

#[test]
fn a_full_table_refuses_and_recovers() {
    let mut bench = Bench::new(Limits { ipv4_routes: 2, groups: 1, ..Limits::default() });
    let mut items: Vec<Item> = ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "2001:db8::/32"]
        .map(|dest| Item::new(bench.entry(dest), [Attr::RoutePacketAction(PacketAction::Drop)]))
        .into();
    let mut statuses = Vec::new();
    let (create, kind) = (Verb::Create, ObjectType::RouteEntry);
    bench.chip.bulk(create, kind, &mut items.clone(), ErrorMode::IgnoreError, &mut statuses);
    assert_eq!(statuses, [Status::Success, Status::Success, Status::TableFull, Status::Success]);
    let mut left = [Attr::SwitchAvailableIpv4Route(9), Attr::SwitchAvailableGroup(9)];
    bench.chip.get(ObjectType::Switch, &bench.switch.into(), &mut left).unwrap();
    assert_eq!(left, [Attr::SwitchAvailableIpv4Route(0), Attr::SwitchAvailableGroup(1)]);
    let family = |afi| {
        Attr::read("SAI_ROUTE_ENTRY_ATTR_IP_ADDR_FAMILY", &format!("SAI_IP_ADDR_FAMILY_{afi}")).unwrap()
    };
    let mut available = |object, attrs: &[Attr]| bench.chip.available(object, attrs);
    assert_eq!(available(kind, &[family("IPV4")]), Ok(0));
    assert_eq!(available(kind, &[family("IPV6")]), Ok(u64::from(Limits::default().ipv6_routes) - 1));
    assert_eq!(available(ObjectType::NextHopGroup, &[]), Ok(1));
    let mpls = [Attr::NextHopKind(NextHopType::Mpls)];
    assert_eq!(available(ObjectType::NextHop, &mpls), Ok(Limits::default().labelled_next_hops.into()));
    assert_eq!(available(ObjectType::InsegEntry, &[]), Ok(Limits::default().labels.into()));
    assert_eq!(available(kind, &[]), Err(Status::NotSupported));
    assert_eq!(bench.route(Verb::Remove, "10.0.0.0/8", vec![]), Status::Success);
    statuses.clear();
    bench.chip.bulk(create, kind, &mut items[2..], ErrorMode::StopOnError, &mut statuses);
    assert_eq!(statuses, [Status::Success, Status::ItemAlreadyExists]);
    statuses.clear();
    bench.chip.bulk(create, kind, &mut items, ErrorMode::StopOnError, &mut statuses);
    assert_eq!(statuses, [Status::TableFull, Status::NotExecuted, Status::NotExecuted, Status::NotExecuted]);
}

/// Each profile takes as many routes as it says and refuses the next one, in the middle of a bulk.
#[test]
fn profile_is_full_at_its_size() {
    for Profile { name, limits } in PROFILES {
        for v6 in [false, true] {
            let mut bench = Bench::new(limits);
            let size = if v6 { limits.ipv6_routes } else { limits.ipv4_routes };
            let dest = |n: u32| match v6 {
                true => format!("2001:db8:{:x}:{:x}::/64", n >> 16, n & 0xffff),
                false => format!("{}.{}.{}.0/24", 20 + (n >> 16), (n >> 8) & 0xff, n & 0xff),
            };
            let drop = || [Attr::RoutePacketAction(PacketAction::Drop)];
            let mut items: Vec<Item> =
                (0..size + 3).map(|n| Item::new(bench.entry(&dest(n)), drop())).collect();
            let mut statuses = Vec::new();
            for bulk in items.chunks_mut(1000) {
                bench.chip.bulk(
                    Verb::Create,
                    ObjectType::RouteEntry,
                    bulk,
                    ErrorMode::IgnoreError,
                    &mut statuses,
                );
            }
            let full = statuses.iter().position(|status| *status == Status::TableFull);
            assert_eq!(full, Some(size as usize), "{name}");
            assert!(statuses.iter().all(|status| status.is_success() || *status == Status::TableFull));
            let mut left = [Attr::SwitchAvailableIpv4Route(9), Attr::SwitchAvailableIpv6Route(9)];
            bench.chip.get(ObjectType::Switch, &bench.switch.into(), &mut left).unwrap();
            // Of a shared table nothing is left for the other family either.
            let (v4, other) = match (limits.shared_routes, v6) {
                (true, _) => (0, 0),
                (false, true) => (limits.ipv4_routes, 0),
                (false, false) => (0, limits.ipv6_routes),
            };
            let expected = [Attr::SwitchAvailableIpv4Route(v4), Attr::SwitchAvailableIpv6Route(other)];
            assert_eq!(left, expected, "{name}");
            let other = if v6 { "20.0.0.0/24" } else { "2001:db8::/64" };
            let status = bench.route(Verb::Create, other, drop().into());
            let expected = if limits.shared_routes { Status::TableFull } else { Status::Success };
            assert_eq!(status, expected, "{name}");
            assert_eq!(bench.route(Verb::Remove, &dest(7), vec![]), Status::Success);
            assert_eq!(bench.route(Verb::Create, &dest(size), drop().into()), Status::Success, "{name}");
        }
    }
}

#[test]
fn configured_failures_happen() {
    let mut bench = Bench::new(Limits::default());
    let entry = |bench: &Bench, n: u32| {
        Item::new(
            bench.entry(&format!("20.{}.{}.0/24", n / 256, n % 256)),
            [Attr::RoutePacketAction(PacketAction::Drop)],
        )
    };
    let bulk = |bench: &mut Bench, verb, range: std::ops::Range<u32>| {
        let mut items: Vec<Item> = range.map(|n| entry(bench, n)).collect();
        let mut statuses = Vec::new();
        bench.chip.bulk(verb, ObjectType::RouteEntry, &mut items, ErrorMode::IgnoreError, &mut statuses);
        let failed: Vec<usize> =
            (0..).zip(&statuses).filter(|(_, s)| !s.is_success()).map(|(n, _)| n).collect();
        (statuses.len(), failed)
    };
    // One entry of a bulk, and no single call.
    bench.chip.behave([("fail-entry", "40")]).unwrap();
    assert_eq!(bulk(&mut bench, Verb::Create, 0..100), (100, vec![39]));
    assert_eq!(bulk(&mut bench, Verb::Create, 39..40), (1, vec![]));
    // A share of all destinations, always the same ones; removal always succeeds.
    bench.chip.behave([("fail-entry", "0"), ("fail-rate", "0.1")]).unwrap();
    let (_, failed) = bulk(&mut bench, Verb::Set, 0..100);
    assert!((1..30).contains(&failed.len()), "{failed:?}");
    assert_eq!(bulk(&mut bench, Verb::Set, 0..100).1, failed);
    assert!(bulk(&mut bench, Verb::Remove, 0..100).1.is_empty());
    assert_eq!(bulk(&mut bench, Verb::Create, 0..100).1, failed);
    // A table that becomes smaller than its contents.
    bench.chip.behave([("fail-rate", "0"), ("ipv4-routes", "50")]).unwrap();
    assert_eq!(bulk(&mut bench, Verb::Set, 0..100).1, failed, "they are not there");
    assert_eq!(bulk(&mut bench, Verb::Create, 100..110).1.len(), 10);
    // All settings or none.
    assert!(bench.chip.behave([("ipv4-routes", "70"), ("speed", "1")]).is_err());
    assert_eq!(bench.chip.behavior().limits.ipv4_routes, 50);
    assert!(bench.chip.chip_time().failed >= 11);
}

#[test]
fn its_time_and_its_stalls() {
    let mut bench = Bench::new(Limits::default());
    let ms = Duration::from_millis;
    let now = Instant::now();
    assert_eq!((bench.chip.done_at(now), bench.chip.stalled(now)), (None, None));
    bench.chip.behave([("call-us", "1000"), ("bulk-us", "2000"), ("entry-us", "500")]).unwrap();
    let drop = vec![Attr::RoutePacketAction(PacketAction::Drop)];
    assert_eq!(bench.route(Verb::Create, "10.0.0.0/8", drop.clone()), Status::Success);
    assert_eq!(bench.chip.done_at(now), Some(now + Duration::from_micros(1500)));
    let mut items = ["11.0.0.0/8", "12.0.0.0/8"].map(|dest| Item::new(bench.entry(dest), drop.clone()));
    bench.chip.bulk(
        Verb::Create,
        ObjectType::RouteEntry,
        &mut items,
        ErrorMode::IgnoreError,
        &mut Vec::new(),
    );
    assert_eq!(bench.chip.done_at(now), Some(now + Duration::from_micros(5500)));
    let time = bench.chip.chip_time();
    assert_eq!((time.busy, time.idle), (Duration::from_micros(5500), Duration::ZERO));

    bench.chip.behave([("stall", "on")]).unwrap();
    assert_eq!(bench.chip.stalled(now + ms(60_000)), Some(None));
    bench.chip.behave([("stall", "off")]).unwrap();
    assert_eq!(bench.chip.stalled(now), None);
    bench.chip.behave([("stall", "60")]).unwrap();
    let until = bench.chip.stalled(now).flatten().unwrap();
    assert!(until >= now + ms(60_000));
    assert_eq!(bench.chip.stalled(until), None);
    // What is under way is done that much later.
    assert_eq!(bench.route(Verb::Create, "13.0.0.0/8", drop), Status::Success);
    assert!(bench.chip.done_at(now).unwrap() >= now + ms(60_000));
    for bad in ["soon", "-1", "1e30"] {
        assert!(bench.chip.behave([("stall", bad)]).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    /// Any history of creates, sets and removes, both families: the switch and a list of routes agree.
    #[test]
    fn any_history_forwards_like_a_list_of_routes(
        steps in prop::collection::vec((0u8..3, any::<bool>(), 0u8..=255, 0u8..=32, 0usize..3), 1..120)
    ) {
        let mut bench = Bench::new(Limits::default());
        let hops = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|gateway| (bench.hop(gateway), ip(gateway)));
        let mut list: HashMap<AnyPrefix, IpAddr> = HashMap::new();
        let address = |six: bool, byte: u8| if six {
            IpAddr::from([0x2001_u16, u16::from(byte), 0, 0, 0, 0, 0, 1])
        } else {
            IpAddr::from([byte, byte, byte, byte])
        };
        for (verb, six, byte, len, hop) in &steps {
            let prefix = AnyPrefix::from_addr(address(*six, *byte), *len).unwrap();
            let to = vec![Attr::RouteNextHop(hops[*hop].0)];
            let there = list.contains_key(&prefix);
            let (verb, attrs) = [(Verb::Create, to.clone()), (Verb::Set, to), (Verb::Remove, vec![])][usize::from(*verb)].clone();
            let status = bench.route(verb, &prefix.to_string(), attrs);
            prop_assert_eq!(status.is_success(), there == (verb != Verb::Create));
            match verb {
                Verb::Remove => drop(list.remove(&prefix)),
                _ if status.is_success() => drop(list.insert(prefix, hops[*hop].1)),
                _ => {}
            }
        }
        for (_, six, byte, ..) in &steps {
            let addr = address(*six, *byte);
            let expected = list.iter().filter(|(p, _)| p.contains(addr)).max_by_key(|(p, _)| p.len());
            let found = bench.chip.lookup(bench.vr, addr);
            prop_assert_eq!(found.as_ref().map(|f| f.prefix), expected.map(|(p, _)| *p));
            prop_assert_eq!(found.and_then(|f| f.hops[0].gateway), expected.map(|(_, gateway)| *gateway));
        }
        prop_assert_eq!(bench.chip.routes(bench.vr).count(), list.len());
    }
}
