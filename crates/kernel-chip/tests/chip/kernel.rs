//! What the kernel has, after requests, events of links, changes of other programs, and a restart.

use crate::namespace::{in_namespace, ip, try_ip};
use crate::suite::{Bench, Lacks};
use crate::{LACKS, ports};
use ribtide_kernel_chip::{KernelChip, RouteState, Settings};
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::sai::{
    Attr, ErrorMode, GroupType, Item, NeighborEntry, NextHopType, ObjectType, Oid, PacketAction, RifType,
    RouteEntry, Sai, Status, Verb,
};
use ribtide_vswitch::Limits;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const MAC: &str = "02:00:00:00:00:01";

fn open() -> KernelChip {
    KernelChip::open(ports(), Settings::default(), Limits::default()).unwrap()
}

/// What is made on a chip, by number.
struct Made {
    switch: Oid,
    vr: Oid,
    cpu: Oid,
    ports: Vec<Oid>,
    rifs: Vec<Oid>,
    hops: Vec<Oid>,
    group: Oid,
}

fn make(chip: &mut KernelChip, object: ObjectType, attrs: impl IntoIterator<Item = Attr>) -> Oid {
    let mut item = Item::new(Oid::NULL, attrs);
    assert_eq!(chip.one(Verb::Create, object, &mut item), Status::Success, "{object:?}");
    item.id.oid().unwrap()
}

fn neighbor(made: &Made, n: usize) -> NeighborEntry {
    NeighborEntry { switch: made.switch, rif: made.rifs[n], ip: format!("10.{n}.0.2").parse().unwrap() }
}

/// Router interfaces, neighbours and next hops on all ports, and a group of the first two, with weights 1 and 3.
fn describe(chip: &mut KernelChip) -> Made {
    let Bench { switch, vr, ports, rif, .. } = Bench::new(chip).lacking(Lacks { ..LACKS });
    let mut cpu = [Attr::SwitchCpuPort(Oid::NULL)];
    chip.get(ObjectType::Switch, &switch.into(), &mut cpu).unwrap();
    let [Attr::SwitchCpuPort(cpu)] = cpu else { panic!("{cpu:?}") };
    let mut made = Made { switch, vr, cpu, rifs: Vec::new(), hops: Vec::new(), group: Oid::NULL, ports };
    for n in 0..made.ports.len() {
        let attrs = [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(made.ports[n])];
        // The suite made the second.
        made.rifs.push(if n == 1 { rif } else { make(chip, ObjectType::RouterInterface, attrs) });
        let mut item = Item::new(neighbor(&made, n), [Attr::NeighborMac(MAC.parse().unwrap())]);
        assert_eq!(chip.one(Verb::Create, ObjectType::NeighborEntry, &mut item), Status::Success);
        let attrs = [
            Attr::NextHopKind(NextHopType::Ip),
            Attr::NextHopIp(neighbor(&made, n).ip),
            Attr::NextHopRif(made.rifs[n]),
        ];
        made.hops.push(make(chip, ObjectType::NextHop, attrs));
    }
    made.group = make(chip, ObjectType::NextHopGroup, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
    let mut members: Vec<Item> = [(0, 1), (1, 3)]
        .map(|(n, weight)| {
            let attrs = [
                Attr::MemberGroup(made.group),
                Attr::MemberNextHop(made.hops[n]),
                Attr::MemberWeight(weight),
            ];
            Item::new(Oid::NULL, attrs)
        })
        .into();
    let mut statuses = Vec::new();
    chip.bulk(
        Verb::Create,
        ObjectType::NextHopGroupMember,
        &mut members,
        ErrorMode::IgnoreError,
        &mut statuses,
    );
    assert_eq!(statuses, [Status::Success; 2]);
    made
}

fn entry(made: &Made, dest: &str) -> RouteEntry {
    RouteEntry { switch: made.switch, vr: made.vr, dest: dest.parse().unwrap() }
}

fn route(chip: &mut KernelChip, verb: Verb, made: &Made, dest: &str, attrs: &[Attr]) -> Status {
    chip.one(verb, ObjectType::RouteEntry, &mut Item::new(entry(made, dest), attrs.iter().cloned()))
}

fn create(chip: &mut KernelChip, made: &Made, dest: &str, to: Oid) {
    assert_eq!(route(chip, Verb::Create, made, dest, &[Attr::RouteNextHop(to)]), Status::Success, "{dest}");
}

fn json(arguments: &str) -> Vec<Value> {
    let text = try_ip(&format!("-j -N {arguments}")).unwrap_or_default();
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// Next-hop objects of the kernel by number: what `ip` says of each.
fn objects() -> BTreeMap<u64, Value> {
    json("nexthop show").into_iter().map(|object| (object["id"].as_u64().unwrap(), object)).collect()
}

/// The routes of the chip: destination → what packets do, hops as `GATEWAY DEV WEIGHT`.
fn routes() -> BTreeMap<String, Vec<String>> {
    let objects = objects();
    let single = |id: u64, weight: u64| {
        // The chip may have replaced it since the objects were read.
        let Some(object) = objects.get(&id) else { return format!("object {id}") };
        if object["blackhole"] == Value::Bool(true) || object.get("blackhole").is_some_and(Value::is_null) {
            return "blackhole".to_owned();
        }
        let text = |key: &str| object[key].as_str().unwrap_or("-").to_owned();
        format!("{} {} {weight}", text("gateway"), text("dev"))
    };
    let mut all = BTreeMap::new();
    for family in ["-4", "-6"] {
        // Of the main table alone `ip` leaves out local routes of IPv6.
        let all_tables = json(&format!("{family} route show table all proto 115"));
        for route in all_tables
            .into_iter()
            .filter(|route| matches!(route["table"].as_str(), None | Some("254" | "main")))
        {
            // Behind a connected route of IPv6 the second.
            assert!(route["metric"] == 10 || (family == "-6" && route["metric"] == 266), "{route}");
            let hops = match (route["type"].as_str(), route["nhid"].as_u64()) {
                (Some("6" | "blackhole"), None) => vec!["blackhole route".to_owned()],
                (Some("2" | "local"), None) => vec!["local".to_owned()],
                (_, Some(id)) => {
                    let group = objects.get(&id).and_then(|object| object["group"].as_array());
                    let group = group.map_or(&[][..], Vec::as_slice);
                    let hop = |member: &Value| {
                        single(member["id"].as_u64().unwrap(), member["weight"].as_u64().unwrap_or(1))
                    };
                    let mut hops: Vec<String> = group.iter().map(hop).collect();
                    hops.sort();
                    hops
                }
                // Another program's, which the chip has not corrected yet.
                _ => vec![route.to_string()],
            };
            let dst = route["dst"].as_str().unwrap();
            all.insert(if dst == "default" { format!("default {family}") } else { dst.to_owned() }, hops);
        }
    }
    all
}

fn expect<const N: usize>(routes: [(&str, &[&str]); N]) -> BTreeMap<String, Vec<String>> {
    let hops = |hops: &[&str]| hops.iter().map(|hop| hop.to_string()).collect();
    routes.iter().map(|(dest, of)| (dest.to_string(), hops(of))).collect()
}

/// Serves the chip until the kernel is as it should be.
fn until(chip: &mut KernelChip, what: &str, done: impl Fn(&mut KernelChip) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        chip.serve();
        if done(chip) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {:#?} {:?}", routes(), chip.take_events());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The chip's neighbours: `ADDRESS DEV MAC`.
fn neighbors() -> Vec<String> {
    let mut all: Vec<String> = json("neigh show nud permanent")
        .iter()
        .filter(|entry| entry["protocol"] == "115" || entry["protocol"] == 115)
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text("dst"), text("dev"), text("lladdr"))
        })
        .collect();
    all.sort();
    all
}

const ECMP: &[&str] = &["10.0.0.2 Ethernet0 1", "10.1.0.2 Ethernet4 3"];

#[test]
fn kernel_has_what_was_requested() {
    in_namespace(|| {
        let mut chip = open();
        let made = describe(&mut chip);
        create(&mut chip, &made, "20.0.0.0/24", made.group);
        create(&mut chip, &made, "20.0.1.0/24", made.hops[2]);
        create(&mut chip, &made, "10.3.0.0/24", made.rifs[3]);
        create(&mut chip, &made, "2001:db8:3::/64", made.rifs[3]);
        create(&mut chip, &made, "10.9.9.9/32", made.cpu);
        create(&mut chip, &made, "2001:db8::9/128", made.cpu);
        let drop = [Attr::RoutePacketAction(PacketAction::Drop)];
        for dest in ["20.0.2.0/24", "2001:db8:2::/48", "0.0.0.0/0", "::/0"] {
            assert_eq!(route(&mut chip, Verb::Create, &made, dest, &drop), Status::Success);
        }
        let wanted = expect([
            ("20.0.0.0/24", ECMP),
            ("20.0.1.0/24", &["10.2.0.2 Ethernet8 1"]),
            ("10.3.0.0/24", &["- Ethernet12 1"]),
            ("2001:db8:3::/64", &["- Ethernet12 1"]),
            ("10.9.9.9", &["local"]),
            ("2001:db8::9", &["local"]),
            ("20.0.2.0/24", &["blackhole route"]),
            ("2001:db8:2::/48", &["blackhole route"]),
        ]);
        assert_eq!(routes(), wanted);
        assert_eq!(neighbors().len(), 4, "{:?}", neighbors());
        assert!(neighbors().contains(&format!("10.2.0.2 Ethernet8 {MAC}")));
        // A default route that drops is none in the kernel, until it has a next hop.
        assert_eq!(chip.route_state("0.0.0.0/0".parse().unwrap()), RouteState::NotNeeded);
        let forward = [Attr::RoutePacketAction(PacketAction::Forward), Attr::RouteNextHop(made.hops[2])];
        assert_eq!(route(&mut chip, Verb::Set, &made, "0.0.0.0/0", &forward), Status::Success);
        assert_eq!(routes()["default -4"], ["10.2.0.2 Ethernet8 1"]);
        assert_eq!(route(&mut chip, Verb::Set, &made, "0.0.0.0/0", &drop), Status::Success);
        assert_eq!(routes(), wanted);
        // The weight of a member, and a member less.
        let [first, second] = chip.model().group_members(made.group)[..] else { panic!() };
        let mut weight = Item::new(second, [Attr::MemberWeight(1)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::NextHopGroupMember, &mut weight), Status::Success);
        assert_eq!(routes()["20.0.0.0/24"], ["10.0.0.2 Ethernet0 1", "10.1.0.2 Ethernet4 1"]);
        let mut gone = Item::bare(first);
        assert_eq!(chip.one(Verb::Remove, ObjectType::NextHopGroupMember, &mut gone), Status::Success);
        assert_eq!(routes()["20.0.0.0/24"], ["10.1.0.2 Ethernet4 1"]);
        // The states and MTUs of netdevs.
        let link = |port: &str| json(&format!("link show {port}")).remove(0);
        let port = made.ports[3];
        let mut down = Item::new(port, [Attr::PortAdminState(false)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::Port, &mut down), Status::Success);
        assert!(!link("Ethernet12")["flags"].to_string().contains("\"UP\""));
        let mut mtu = Item::new(made.rifs[2], [Attr::RifMtu(1400)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::RouterInterface, &mut mtu), Status::Success);
        assert_eq!(link("Ethernet8")["mtu"], 1400);
        let mut mtu = Item::new(made.rifs[2], [Attr::RifMtu(1 << 30)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::RouterInterface, &mut mtu), Status::InvalidParameter);
        let mut read = [Attr::RifMtu(0)];
        chip.get(ObjectType::RouterInterface, &made.rifs[2].into(), &mut read).unwrap();
        assert_eq!((read, link("Ethernet8")["mtu"].as_u64()), ([Attr::RifMtu(1400)], Some(1400)));
        // Without the switch nothing of the chip is left, and what others have is.
        ip("route add 30.0.0.0/8 dev Ethernet0 metric 10");
        let mut switch = Item::bare(made.switch);
        assert_eq!(chip.one(Verb::Remove, ObjectType::Switch, &mut switch), Status::Success);
        assert_eq!((routes().len(), objects().len(), neighbors().len()), (0, 0, 0));
        assert_eq!(json("route show 30.0.0.0/8").len(), 1);
    });
}

/// An entry that the kernel refuses, because another program has a route there, at each place of a bulk.
#[test]
fn refused_routes_have_a_status_and_are_not_in_the_model() {
    in_namespace(|| {
        let mut chip = open();
        let made = describe(&mut chip);
        ip("route add 20.0.2.0/24 dev Ethernet12 metric 10");
        let dests: Vec<String> = (0..5).map(|n| format!("20.0.{n}.0/24")).collect();
        let ok = Status::Success;
        for mode in [ErrorMode::IgnoreError, ErrorMode::StopOnError] {
            let mut items: Vec<Item> = dests
                .iter()
                .map(|dest| Item::new(entry(&made, dest), [Attr::RouteNextHop(made.group)]))
                .collect();
            let mut statuses = Vec::new();
            chip.bulk(Verb::Create, ObjectType::RouteEntry, &mut items, mode, &mut statuses);
            let (last, left) = match mode {
                ErrorMode::IgnoreError => (ok, vec![0, 1, 3, 4]),
                ErrorMode::StopOnError => (Status::NotExecuted, vec![0, 1]),
            };
            assert_eq!(statuses, [ok, ok, Status::Failure, last, last]);
            let there: Vec<String> = left.iter().map(|n| dests[*n].clone()).collect();
            assert_eq!(routes().into_keys().collect::<Vec<_>>(), there, "{mode:?}");
            for (n, dest) in dests.iter().enumerate() {
                let in_model = chip.model().route_action(made.vr, dest.parse().unwrap()).is_some();
                assert_eq!(in_model, left.contains(&n), "{mode:?} {dest}");
            }
            assert!(chip.take_events().iter().any(|event| event.contains("20.0.2.0/24")));
            for dest in &there {
                assert_eq!(route(&mut chip, Verb::Remove, &made, dest, &[]), ok);
            }
            assert!(routes().is_empty());
        }
        // The group counts no route, and a next hop that the kernel refuses is not there: its gateway is an own address.
        ip("addr add 10.3.0.9/24 dev Ethernet12");
        let attrs = [
            Attr::NextHopKind(NextHopType::Ip),
            Attr::NextHopIp("10.3.0.9".parse().unwrap()),
            Attr::NextHopRif(made.rifs[3]),
        ];
        let mut hop = Item::new(Oid::NULL, attrs);
        let status = chip.one(Verb::Create, ObjectType::NextHop, &mut hop);
        assert_eq!((status, hop.id.oid()), (Status::InvalidParameter, Some(Oid::NULL)));
        for member in chip.model().group_members(made.group).to_vec() {
            assert_eq!(chip.one(Verb::Remove, ObjectType::NextHopGroupMember, &mut Item::bare(member)), ok);
        }
        assert_eq!(chip.one(Verb::Remove, ObjectType::NextHopGroup, &mut Item::bare(made.group)), ok);
    });
}

#[test]
fn lost_link_leaves_the_group_and_routes_drop_until_it_is_back() {
    in_namespace(|| {
        let mut chip = open();
        let (rings, stop) = (Rings::default(), Stop::default());
        let _wake_up = chip.watch(&rings, &stop).unwrap();
        let made = describe(&mut chip);
        chip.settle();
        create(&mut chip, &made, "20.0.0.0/24", made.group);
        create(&mut chip, &made, "20.0.1.0/24", made.hops[1]);
        create(&mut chip, &made, "10.1.0.0/24", made.rifs[1]);
        // What would forward instead.
        ip("route add 20.0.0.0/16 dev Ethernet12");
        let whole = expect([
            ("20.0.0.0/24", ECMP),
            ("20.0.1.0/24", &["10.1.0.2 Ethernet4 1"]),
            ("10.1.0.0/24", &["- Ethernet4 1"]),
        ]);
        assert_eq!(routes(), whole);
        let before = neighbors();
        for (down, up) in [
            ("link set peer1 down", "link set peer1 up"),
            ("link set Ethernet4 down", "link set Ethernet4 up"),
        ] {
            ip(down);
            let without = expect([
                ("20.0.0.0/24", &["10.0.0.2 Ethernet0 1"]),
                ("20.0.1.0/24", &["blackhole"]),
                ("10.1.0.0/24", &["blackhole"]),
            ]);
            until(&mut chip, down, |_| routes() == without);
            // A route that is requested meanwhile.
            create(&mut chip, &made, "20.0.3.0/24", made.hops[1]);
            assert_eq!(routes()["20.0.3.0/24"], ["blackhole"]);
            ip(up);
            until(&mut chip, up, |_| routes().get("20.0.3.0/24") == routes().get("20.0.1.0/24"));
            assert_eq!(route(&mut chip, Verb::Remove, &made, "20.0.3.0/24", &[]), Status::Success);
            until(&mut chip, up, |_| routes() == whole && neighbors() == before);
        }
        // The netdev itself goes, and one of its name comes.
        ip("link del Ethernet4");
        until(&mut chip, "gone", |_| routes().get("20.0.1.0/24").is_some_and(|hops| hops == &["blackhole"]));
        ip("link add Ethernet4 type veth peer name peer1");
        ip("link set peer1 up");
        ip("link set Ethernet4 up");
        until(&mut chip, "again", |_| routes() == whole && neighbors() == before);
    });
}

#[test]
fn changes_of_other_programs_are_corrected() {
    in_namespace(|| {
        let mut chip = open();
        let (rings, stop) = (Rings::default(), Stop::default());
        let _wake_up = chip.watch(&rings, &stop).unwrap();
        let made = describe(&mut chip);
        chip.settle();
        create(&mut chip, &made, "20.0.0.0/24", made.group);
        create(&mut chip, &made, "2001:db8:3::/64", made.rifs[3]);
        create(&mut chip, &made, "10.9.9.9/32", made.cpu);
        let (whole, neighbours) = (routes(), neighbors());
        let right = |_: &mut KernelChip| routes() == whole && neighbors() == neighbours;
        assert!(right(&mut chip) && whole.len() == 3);
        let group = json("route show 20.0.0.0/24")[0]["nhid"].as_u64().unwrap();
        let hop = *objects().iter().find(|(_, object)| object["gateway"] == "10.0.0.2").unwrap().0;
        for change in [
            "route del 20.0.0.0/24 metric 10",
            "-6 route del 2001:db8:3::/64 metric 10",
            "route replace 20.0.0.0/24 dev Ethernet12 metric 10",
            "route add 20.0.7.0/24 dev Ethernet12 metric 10 proto 115",
            &format!("nexthop del id {group}"),
            &format!("nexthop del id {hop}"),
            "nexthop flush",
            "neigh del 10.2.0.2 dev Ethernet8",
            "neigh replace 10.2.0.2 dev Ethernet8 lladdr 02:00:00:00:00:99 nud permanent",
            "neigh flush dev Ethernet8 nud permanent",
        ] {
            let repaired = chip.repaired();
            ip(change);
            until(&mut chip, change, |chip| right(chip) && chip.repaired() > repaired);
            assert!(!chip.take_events().is_empty(), "{change}");
        }
        // What is not the chip's stays.
        let others = ["route add 40.0.0.0/24 dev Ethernet12 metric 7", "nexthop add id 9 dev Ethernet12"];
        others.iter().for_each(|other| drop(ip(other)));
        let repaired = chip.repaired();
        ip("route del 20.0.0.0/24 metric 10");
        until(&mut chip, "again", |chip| right(chip) && chip.repaired() > repaired);
        assert_eq!((json("route show 40.0.0.0/24").len(), objects().contains_key(&9)), (1, true));
    });
}

/// A later chip describes the same but for one route: that one goes when everything was requested, and no other is deleted
/// in between.
#[test]
fn restart_adopts_what_is_requested_again_and_deletes_the_rest() {
    in_namespace(|| {
        let mut chip = open();
        let made = describe(&mut chip);
        for dest in ["20.0.0.0/24", "20.0.1.0/24", "20.0.2.0/24"] {
            create(&mut chip, &made, dest, made.group);
        }
        let whole = routes();
        drop(chip);
        ip("nexthop add id 9 dev Ethernet12");
        assert_eq!(routes(), whole, "the kernel goes on without syncd");
        let mut monitor = std::process::Command::new("ip")
            .args(["monitor", "route"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let mut chip = open();
        assert_eq!(chip.found_routes(), 3);
        let made = describe(&mut chip);
        create(&mut chip, &made, "20.0.0.0/24", made.group);
        create(&mut chip, &made, "20.0.1.0/24", made.hops[2]);
        assert_eq!(routes().len(), 3, "not before all is requested");
        chip.settle();
        let wanted = expect([("20.0.0.0/24", ECMP), ("20.0.1.0/24", &["10.2.0.2 Ethernet8 1"])]);
        assert_eq!(routes(), wanted);
        std::thread::sleep(Duration::from_millis(300));
        monitor.kill().unwrap();
        let seen = String::from_utf8(monitor.wait_with_output().unwrap().stdout).unwrap();
        let deleted: Vec<&str> = seen.lines().filter(|line| line.starts_with("Deleted")).collect();
        assert!(deleted.len() == 1 && deleted[0].contains("20.0.2.0/24"), "{seen}");
        // Of the objects those in use are left, and those of others: 4 hops, 4 interfaces, a group with what each needs.
        assert!(objects().contains_key(&9));
        let again = open();
        drop(again);
        assert_eq!(routes(), wanted, "a chip that describes nothing deletes nothing");
    });
}

/// Serves the chip until the notifications of what was done before are taken in.
fn serve_for_a_while(chip: &mut KernelChip) {
    for _ in 0..20 {
        chip.serve();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a netdev is switched on, and its MTU.
fn link(name: &str) -> (bool, u64) {
    let link = json(&format!("link show {name}")).remove(0);
    (link["flags"].to_string().contains("\"UP\""), link["mtu"].as_u64().unwrap())
}

fn enable(chip: &mut KernelChip, port: Oid, up: bool) {
    let mut item = Item::new(port, [Attr::PortAdminState(up)]);
    assert_eq!(chip.one(Verb::Set, ObjectType::Port, &mut item), Status::Success);
}

#[test]
fn state_and_mtu_of_a_netdev_that_another_program_changes_are_corrected() {
    in_namespace(|| {
        let mut chip = open();
        let (rings, stop) = (Rings::default(), Stop::default());
        let _wake_up = chip.watch(&rings, &stop).unwrap();
        let made = describe(&mut chip);
        chip.settle();
        create(&mut chip, &made, "20.0.0.0/24", made.group);
        enable(&mut chip, made.ports[0], true);
        enable(&mut chip, made.ports[3], false);
        let mut mtu = Item::new(made.rifs[1], [Attr::RifMtu(1400)]);
        assert_eq!(chip.one(Verb::Set, ObjectType::RouterInterface, &mut mtu), Status::Success);
        serve_for_a_while(&mut chip);
        let (whole, neighbours) = (routes(), neighbors());
        let right = || {
            let links = ["Ethernet0", "Ethernet4", "Ethernet12"].map(link);
            links == [(true, 1500), (true, 1400), (false, 1500)]
                && routes() == whole
                && neighbors() == neighbours
        };
        until(&mut chip, "before", |_| right());
        for change in [
            "link set Ethernet0 down",
            "link set Ethernet12 up",
            "link set Ethernet4 mtu 1300",
            "link set Ethernet4 mtu 9000",
        ] {
            let repaired = chip.repaired();
            ip(change);
            until(&mut chip, change, |chip| right() && chip.repaired() > repaired);
        }
        // A netdev of its name that comes later has what was requested, too.
        ip("link del Ethernet4");
        until(&mut chip, "gone", |_| routes()["20.0.0.0/24"] == ["10.0.0.2 Ethernet0 1"]);
        ip("link add Ethernet4 type veth peer name peer1");
        ip("link set peer1 up");
        ip("link set Ethernet4 up");
        until(&mut chip, "again", |_| right());
        // Nothing was requested of this one.
        ip("link set Ethernet8 down mtu 1300");
        until(&mut chip, "seen", |chip| {
            let hop = chip.route_state("20.0.0.0/24".parse().unwrap());
            matches!(hop, RouteState::Via(_)) && link("Ethernet8") == (false, 1300)
        });
        serve_for_a_while(&mut chip);
        assert_eq!(link("Ethernet8"), (false, 1300));
    });
}

/// Whether the chip says that a port has a link.
fn has_link(chip: &mut KernelChip, name: &str) -> bool {
    chip.model().ports().iter().any(|port| *port.name == *name && port.link)
}

/// A netdev that the kernel refuses to switch on: one on top of another that is off.
fn refuses_to_come_up(name: &str) {
    ip("link add below type veth peer name below2");
    ip(&format!("link add link below {name} type macvlan"));
}

#[test]
fn note_that_fails_keeps_no_other_from_being_taken_in() {
    in_namespace(|| {
        let mut chip = open();
        let (rings, stop) = (Rings::default(), Stop::default());
        let _wake_up = chip.watch(&rings, &stop).unwrap();
        let made = describe(&mut chip);
        chip.settle();
        create(&mut chip, &made, "20.0.0.0/24", made.hops[0]);
        create(&mut chip, &made, "20.0.2.0/24", made.hops[2]);
        enable(&mut chip, made.ports[1], true);
        serve_for_a_while(&mut chip);
        ip("link del Ethernet4");
        refuses_to_come_up("Ethernet4");
        ip("link set peer0 down");
        ip("route del 20.0.2.0/24 metric 10");
        // All of it waits at the chip.
        std::thread::sleep(Duration::from_millis(500));
        chip.serve();
        assert!(!has_link(&mut chip, "Ethernet0"), "{:?}", chip.take_events());
        until(&mut chip, "the rest", |_| {
            routes() == expect([("20.0.0.0/24", &["blackhole"]), ("20.0.2.0/24", &["10.2.0.2 Ethernet8 1"])])
        });
    });
}

/// The chip hears of nothing, as without notifications, and compares when it settles.
#[test]
fn comparison_reads_links() {
    in_namespace(|| {
        let mut chip = open();
        let made = describe(&mut chip);
        create(&mut chip, &made, "20.0.0.0/24", made.hops[0]);
        create(&mut chip, &made, "20.0.1.0/24", made.hops[1]);
        enable(&mut chip, made.ports[2], true);
        ip("link set peer0 down");
        ip("link set Ethernet8 down");
        ip("link del Ethernet4");
        chip.settle();
        assert_eq!(routes(), expect([("20.0.0.0/24", &["blackhole"]), ("20.0.1.0/24", &["blackhole"])]));
        let links = ["Ethernet0", "Ethernet4", "Ethernet12"].map(|name| has_link(&mut chip, name));
        assert_eq!((links, link("Ethernet8")), ([false, false, true], (true, 1500)));
    });
}

/// Where packets to an address go: the gateway, or `-`, and the netdev.
fn way(address: &str) -> String {
    let way = json(&format!("route get {address}")).remove(0);
    let text = |key: &str| way[key].as_str().unwrap_or("-").to_owned();
    format!("{} {}", text("gateway"), text("dev"))
}

/// A connected route goes before the chip's of the same prefix, as in IPv4; those of BGP daemons go behind it.
#[test]
fn chips_routes_go_behind_connected_ones_and_before_those_of_daemons() {
    in_namespace(|| {
        let mut chip = open();
        let (rings, stop) = (Rings::default(), Stop::default());
        let _wake_up = chip.watch(&rings, &stop).unwrap();
        let mut made = describe(&mut chip);
        chip.settle();
        for (port, address) in [("Ethernet8", "2001:db8:8::1/64"), ("Ethernet12", "2001:db8:c::1/64")] {
            ip(&format!("-6 addr add {address} dev {port} nodad"));
        }
        ip("addr add 10.12.0.1/24 dev Ethernet12");
        let gateway = "2001:db8:8::2".parse().unwrap();
        let attrs =
            [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(gateway), Attr::NextHopRif(made.rifs[2])];
        made.hops.push(make(&mut chip, ObjectType::NextHop, attrs));
        serve_for_a_while(&mut chip);
        // Connected: the network of another netdev, which BGP has learned too.
        create(&mut chip, &made, "10.12.0.0/24", made.hops[2]);
        create(&mut chip, &made, "2001:db8:c::/64", made.hops[4]);
        create(&mut chip, &made, "20.0.0.0/24", made.hops[2]);
        create(&mut chip, &made, "2001:db8:20::/64", made.hops[4]);
        ip("route add 20.0.0.0/24 dev Ethernet12 metric 20 proto bgp");
        ip("-6 route add 2001:db8:20::/64 dev Ethernet12 metric 20 proto bgp");
        assert_eq!((way("10.12.0.9"), way("2001:db8:c::9")), ("- Ethernet12".into(), "- Ethernet12".into()));
        let chips = ["20.0.0.9", "2001:db8:20::9"].map(way);
        assert_eq!(chips, ["10.2.0.2 Ethernet8", "2001:db8:8::2 Ethernet8"]);
        let metric = |chip: &mut KernelChip, what: &str, metric: u64| {
            until(chip, what, |_| {
                let all = json("-6 route show 2001:db8:c::/64 proto 115");
                all.iter().map(|route| route["metric"].as_u64().unwrap()).collect::<Vec<_>>() == [metric]
            });
        };
        metric(&mut chip, "behind", 266);
        // Another program deletes it there.
        let repaired = chip.repaired();
        ip("-6 route del 2001:db8:c::/64 metric 266");
        until(&mut chip, "deleted", |chip| chip.repaired() > repaired);
        metric(&mut chip, "again", 266);
        // Without the address it is as any other, and with it behind again.
        ip("-6 addr del 2001:db8:c::1/64 dev Ethernet12");
        metric(&mut chip, "alone", 10);
        assert_eq!(way("2001:db8:c::9"), "2001:db8:8::2 Ethernet8");
        ip("-6 addr add 2001:db8:c::1/64 dev Ethernet12 nodad");
        metric(&mut chip, "connected again", 266);
        assert_eq!(way("2001:db8:c::9"), "- Ethernet12");
        // A later chip, which adopts it, and its removal.
        drop(chip);
        let mut chip = open();
        let mut made = describe(&mut chip);
        made.hops.push(make(
            &mut chip,
            ObjectType::NextHop,
            [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(gateway), Attr::NextHopRif(made.rifs[2])],
        ));
        create(&mut chip, &made, "2001:db8:c::/64", made.hops[4]);
        chip.settle();
        metric(&mut chip, "adopted", 266);
        assert_eq!(route(&mut chip, Verb::Remove, &made, "2001:db8:c::/64", &[]), Status::Success);
        assert_eq!(routes().len(), 0);
        assert_eq!(way("2001:db8:c::9"), "- Ethernet12");
    });
}
