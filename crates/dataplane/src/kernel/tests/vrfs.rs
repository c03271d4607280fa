//! VRFs: a table of the kernel each, apart from each other. This needs no VRF devices, which many kernels lack.

use super::*;
use ribtide_config::{FibPolicy, VrfSetup};
use ribtide_rib::{Source, Vrf, VrfId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Interfaces with their VRFs, and what is learnt of each VRF.
type Heard = (BTreeMap<String, u8>, BTreeSet<(u8, String)>);

const RED: Vrf = Vrf { id: VrfId(1), table: 1001, device: 0 };
const BLUE: Vrf = Vrf { id: VrfId(2), table: 1002, device: 0 };

/// A batch of another VRF.
fn of(vrf: Vrf, mut batch: Batch) -> Batch {
    batch.0.vrf = vrf;
    batch
}

#[test]
fn each_vrf_has_its_table_and_nothing_of_anothers() {
    in_namespace("vrfs::each_vrf_has_its_table_and_nothing_of_anothers", || {
        // From before: one that will be wanted, and one that will not.
        ip("route add 192.0.2.0/24 via 10.0.0.9 proto bgp table 1001 metric 20");
        ip("route add 203.0.113.0/24 via 10.0.0.9 proto bgp table 1001 metric 20");
        let mut kernel = Kernel::open(&System::default(), config(), &[RED]).unwrap();
        let default = Batch::start()
            .group(1, &[hop("10.0.0.2", "v0", 1)])
            .group(7_000_001, &[hop("10.0.1.2", "v1", 1)])
            .route("192.0.2.0/24", Some(1))
            .route("198.51.100.0/24", Some(1));
        default.apply(&mut kernel);
        of(RED, Batch::default().route("192.0.2.0/24", Some(7_000_001))).apply(&mut kernel);
        assert!(table_of(1001).contains_key("203.0.113.0/24"), "the replay is not over");
        Batch::default().end().apply(&mut kernel);
        let default =
            expect(&[("192.0.2.0/24", &["10.0.0.2 v0 1"]), ("198.51.100.0/24", &["10.0.0.2 v0 1"])]);
        let red = expect(&[("192.0.2.0/24", &["10.0.1.2 v1 1"])]);
        assert_eq!((table(), table_of(1001)), (default.clone(), red.clone()));

        // A link that one VRF rests on fails, and comes back.
        ip("link set v1 down");
        let change = |up| InterfaceChange { ifindex: ifindex("v1"), up, came_up: up };
        kernel.interface_changed(&change(false)).unwrap();
        assert_eq!((table(), table_of(1001)), (default.clone(), expect(&[])));
        ip("link set v1 up");
        kernel.interface_changed(&change(true)).unwrap();
        assert_eq!((table(), table_of(1001)), (default.clone(), red.clone()));

        // What another program does to one table is mended there.
        ip("route del 192.0.2.0/24 table 1001");
        let touched = Touched {
            prefix: "192.0.2.0/24".parse().unwrap(),
            table: 1001,
            metric: 20,
            there: false,
            marked: false,
        };
        kernel.touched(&[touched]).unwrap();
        assert_eq!((table(), table_of(1001)), (default.clone(), red.clone()));
        ip("route del 192.0.2.0/24 table 1001");
        ip("route del 198.51.100.0/24 table 1000");
        kernel.repair().unwrap();
        assert_eq!((table(), table_of(1001)), (default.clone(), red));

        // One VRF's route goes, the other's stays.
        of(RED, Batch::default().route("192.0.2.0/24", None)).apply(&mut kernel);
        assert_eq!((table(), table_of(1001)), (default, expect(&[])));
    });
}

#[test]
fn a_vrf_that_comes_later_is_freed_of_what_is_left_over() {
    in_namespace("vrfs::a_vrf_that_comes_later_is_freed_of_what_is_left_over", || {
        let mut kernel = open();
        Batch::start().group(1, &[hop("10.0.0.2", "v0", 1)]).end().apply(&mut kernel);
        for table in [1001, 1002] {
            ip(&format!("route add 203.0.113.0/24 via 10.0.0.9 proto bgp table {table} metric 20"));
            ip(&format!("route add 203.0.114.0/24 via 10.0.0.9 proto static table {table}"));
        }
        let others = ("203.0.114.0/24", &["10.0.0.9 v0 1"][..]);
        of(RED, Batch::default().route("192.0.2.0/24", Some(1))).apply(&mut kernel);
        assert_eq!(table_of(1001), expect(&[("192.0.2.0/24", &["10.0.0.2 v0 1"]), others]));
        kernel.know(BLUE).unwrap();
        assert_eq!(table_of(1002), expect(&[others]));
        // Another VRF of the number of one that is gone has another table.
        of(RED, Batch::default().route("192.0.2.0/24", None)).apply(&mut kernel);
        let moved = Vrf { table: 1003, ..RED };
        of(moved, Batch::default().route("198.51.100.0/24", Some(1))).apply(&mut kernel);
        assert_eq!(table_of(1001), expect(&[others]));
        assert_eq!(table_of(1003), expect(&[("198.51.100.0/24", &["10.0.0.2 v0 1"])]));
    });
}

#[test]
fn the_rib_hears_of_interfaces_and_routes_where_they_are() {
    in_namespace("vrfs::the_rib_hears_of_interfaces_and_routes_where_they_are", || {
        ip("route add 198.51.100.0/24 via 10.0.0.2");
        ip("route add 198.51.100.0/24 via 10.0.1.2 table 1001");
        let rings = Rings::default();
        let (feedback, said) = rings.bounded("feedback", FEEDBACK);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let (stop, meter) = (Stop::default(), Meters::default().meter("kernel"));
        let (channel, _sink) = RibChannel::new(0, "kernel", &rings, rib, meter, stop.clone());
        let setup = |name: &str, vrf: Vrf, interface: &str| VrfSetup {
            name: name.into(),
            vrf,
            interfaces: Some(vec![interface.into()]),
            statics: Vec::new(),
            policy: FibPolicy::default(),
        };
        let red = setup("red", RED, "v1");
        let (handle, threads) = start(config(), std::slice::from_ref(&red), channel, None, &rings).unwrap();
        let mut heard = Heard::default();
        let mut until = |what: &str, so: &dyn Fn(&Heard) -> bool| {
            let begin = Instant::now();
            while !so(&heard) {
                assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {heard:?}");
                match said.recv_timeout(Duration::from_millis(50)) {
                    Ok(Some(RibIn::Interface(event))) => _ = heard.0.insert(event.name, event.vrf.0),
                    Ok(Some(RibIn::Routes(batch))) => {
                        assert_eq!(batch.source, Source::Kernel);
                        for (prefix, set) in &batch.changes.v4 {
                            let key = (batch.vrf.0, prefix.to_string());
                            match batch.sets.get(*set as usize) {
                                Some(_) => _ = heard.1.insert(key),
                                None => _ = heard.1.remove(&key),
                            }
                        }
                    }
                    _ => {}
                }
            }
        };
        let key = |vrf: u8, prefix: &str| (vrf, prefix.to_string());
        until("both tables are read", &|(places, routes)| {
            places.get("v0") == Some(&0)
                && places.get("v1") == Some(&1)
                && routes.iter().cloned().eq([key(0, "198.51.100.0/24"), key(1, "198.51.100.0/24")])
        });
        ip("route del 198.51.100.0/24 table 1001");
        ip("route add 203.0.113.0/24 via 10.0.1.2 table 1001");
        until("a change is the VRF's", &|(_, routes)| {
            routes.iter().cloned().eq([key(0, "198.51.100.0/24"), key(1, "203.0.113.0/24")])
        });
        // Another configuration: red is gone, blue has the other interface.
        ip("route add 203.0.113.0/24 via 10.0.0.2 table 1002");
        handle.set_vrfs(&[setup("blue", BLUE, "v0")]);
        until("blue is there", &|(places, routes)| {
            places.get("v0") == Some(&2)
                && places.get("v1") == Some(&0)
                && routes.contains(&key(2, "203.0.113.0/24"))
        });
        ip("route del 198.51.100.0/24");
        until("the default VRF knows what it told", &|(_, routes)| {
            !routes.contains(&key(0, "198.51.100.0/24"))
        });
        stop.stop();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn what_the_kernel_lacks_is_said_at_the_start() {
    in_namespace("vrfs::what_the_kernel_lacks_is_said_at_the_start", || {
        let wanted = |table, interfaces: Option<&str>| ribtide_config::VrfConfig {
            table,
            interfaces: interfaces.map(|name| vec![name.into()]),
            statics: Vec::new(),
            policy: FibPolicy::default(),
        };
        let numbers = |name, table, interfaces| vrf::numbers(name, &wanted(table, interfaces), false);
        assert_eq!(numbers("red", Some(1001), Some("v0")), Ok((1001, 0)));
        let message = numbers("red", None, Some("v0")).unwrap_err();
        assert!(message.contains("VRF red: the kernel has no VRF device of that name"), "{message}");
        assert!(
            numbers("red", Some(1001), None)
                .unwrap_err()
                .contains("name the interfaces in vrf.red.interfaces")
        );
        // v0 is no VRF, but it has a number.
        assert_eq!(numbers("v0", Some(1001), Some("v1")), Ok((1001, ifindex("v0"))));
        let by_number = vrf::numbers("red", &wanted(Some(1001), Some("v0")), true).unwrap_err();
        assert!(by_number.contains("over FPM a VRF goes by the number of its device"), "{by_number}");
        // A kernel with VRFs, which this one may not be.
        if let Err(why) = try_ip("link add red type vrf table 1001") {
            println!("the kernel has no VRF devices: {why}");
            return;
        }
        let device = ifindex("red");
        assert_eq!(numbers("red", None, None), Ok((1001, device)));
        assert!(numbers("red", Some(7), None).unwrap_err().contains("has table 1001; write that one"));
    });
}
