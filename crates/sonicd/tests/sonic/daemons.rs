//! orchagent and syncd: from the rows of APPL_DB, written as any producer writes them, to the chip.

use crate::bench::{Bench, eventually, parse};
use ribtide_runtime::thread::Stop;
use ribtide_sonicd::{orchagent, syncd};
use ribtide_swss::Db;

#[test]
fn routes_reach_the_chip_and_leave_it() {
    let Some(mut bench) = Bench::new() else { return };
    bench.syncd();
    bench.orchagent("");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0 weight 1");
    bench.set(
        "ROUTE_TABLE",
        "10.2.0.0/16",
        "protocol bgp nexthop 10.0.0.1,10.0.4.1 ifname Ethernet0,Ethernet4 weight 1,1",
    );
    bench.set("ROUTE_TABLE", "10.3.0.0/16", "protocol static blackhole true");
    bench.forwards("10.1.2.3", &["10.0.0.1"]);
    bench.forwards("10.2.2.3", &["10.0.0.1", "10.0.4.1"]);
    eventually("the blackhole", || (bench.query("lookup 10.3.0.1")["prefix"] == "10.3.0.0/16").then_some(()));
    assert_eq!(bench.query("lookup 10.3.0.1")["action"], "drop");

    // ASIC_DB, as any tool of SONiC's reads it.
    let (row, key) = bench.asic_route("10.1.0.0/16");
    let (switch, vr) = ("oid:0x21000000000000", "\"vr\":\"oid:0x3");
    assert!(key.contains(&format!("\",\"switch_id\":\"{switch}\",{vr}")), "{key}");
    let hop = row.strip_prefix("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=").unwrap();
    let mut asic = bench.server.client(Db::Asic);
    let hop_row = asic.hash(&format!("ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP:{hop}"));
    assert!(
        hop_row.contains("SAI_NEXT_HOP_ATTR_IP=10.0.0.1 ")
            && hop_row.contains("SAI_NEXT_HOP_ATTR_TYPE=SAI_NEXT_HOP_TYPE_IP"),
        "{hop_row}"
    );
    assert!(
        asic.query(&format!("HGET VIDTORID {hop}")).into_text().is_some_and(|rid| rid.starts_with("oid:0x"))
    );
    let (row, _) = bench.asic_route("10.3.0.0/16");
    assert_eq!(row, "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP");
    let (row, _) = bench.asic_route("0.0.0.0/0");
    assert_eq!(row, "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION=SAI_PACKET_ACTION_DROP");
    let (group, _) = bench.asic_route("10.2.0.0/16");
    let group = group.strip_prefix("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=").unwrap().to_owned();
    assert_eq!(
        asic.hash(&format!("ASIC_STATE:SAI_OBJECT_TYPE_NEXT_HOP_GROUP:{group}")),
        "SAI_NEXT_HOP_GROUP_ATTR_TYPE=SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP"
    );
    let members = asic
        .keys()
        .into_iter()
        .filter(|key| key.contains("GROUP_MEMBER:"))
        .map(|key| asic.hash(&key))
        .filter(|row| row.contains(&group));
    assert_eq!(members.count(), 2);

    // APPL_DB holds what was consumed; the recording names it.
    assert_eq!(
        bench.appl().hash("ROUTE_TABLE:10.1.0.0/16"),
        "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp weight=1"
    );
    let line = "|ROUTE_TABLE:10.1.0.0/16|SET|protocol:bgp|nexthop:10.0.0.1|ifname:Ethernet0|weight:1";
    eventually("the recording", || {
        std::fs::read_to_string(bench.path("swss.rec")).unwrap().contains(line).then_some(())
    });

    for key in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
        bench.del("ROUTE_TABLE", key);
    }
    eventually("the routes to go", || {
        let rows = asic.keys();
        (!rows.iter().any(|key| {
            key.contains("\"10.1.0.0/16\"") || key.contains("NEXT_HOP_GROUP") || key.contains("\"10.3.")
        }))
        .then_some(())
    });
    assert_eq!(bench.query("lookup 10.1.2.3")["prefix"], "0.0.0.0/0");
    assert_eq!(bench.query("counts")["groups"], 0);
}

#[test]
fn either_daemon_may_start_again_and_nothing_stale_stays() {
    let Some(mut bench) = Bench::new() else { return };
    let mut states = bench.server.client(Db::ApplState);
    // Of an orchagent before these.
    states.query("HSET ROUTE_TABLE:10.66.0.0/16 protocol bgp");
    let syncd = bench.syncd();
    let orchagent = bench.orchagent("-F");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "protocol bgp nexthop 10.0.4.1 ifname Ethernet4");
    bench.forwards("10.2.2.3", &["10.0.4.1"]);
    bench.asic_route("10.2.0.0/16");
    eventually("the responses", || (states.hash("ROUTE_TABLE:10.2.0.0/16") == "protocol=bgp").then_some(()));
    assert_eq!(states.hash("ROUTE_TABLE:10.66.0.0/16"), "");

    // syncd alone: the switch is made again from ASIC_DB, and orchagent goes on with its own numbers.
    bench.stop(syncd);
    let syncd = bench.syncd();
    bench.forwards("10.1.2.3", &["10.0.0.1"]);
    bench.set("ROUTE_TABLE", "10.3.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.forwards("10.3.2.3", &["10.0.0.1"]);

    // orchagent alone, with a change while it is away: it describes everything again.
    bench.stop(orchagent);
    bench.del("ROUTE_TABLE", "10.1.0.0/16");
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "nexthop 10.0.0.1 ifname Ethernet0");
    let orchagent = bench.orchagent("-F");
    bench.forwards("10.2.2.3", &["10.0.0.1"]);
    bench.forwards("10.3.2.3", &["10.0.0.1"]);
    eventually("the withdrawn route to go", || {
        (bench.query("lookup 10.1.2.3")["prefix"] == "0.0.0.0/0").then_some(())
    });
    eventually("its state to go", || (states.hash("ROUTE_TABLE:10.1.0.0/16").is_empty()).then_some(()));
    eventually("the state of a route that it found", || {
        (states.hash("ROUTE_TABLE:10.3.0.0/16") == "protocol=bgp").then_some(())
    });

    // Both.
    bench.stop(orchagent);
    bench.stop(syncd);
    bench.del("ROUTE_TABLE", "10.3.0.0/16");
    bench.syncd();
    bench.orchagent("-F");
    bench.forwards("10.2.2.3", &["10.0.0.1"]);
    eventually("the withdrawn route to go", || {
        (bench.query("lookup 10.3.2.3")["prefix"] == "0.0.0.0/0").then_some(())
    });
    let mut asic = bench.server.client(Db::Asic);
    eventually("ASIC_DB to agree", || {
        let routes = asic.keys().into_iter().filter(|key| key.contains("ROUTE_ENTRY"));
        let hops = asic.keys().into_iter().filter(|key| key.contains(":SAI_OBJECT_TYPE_NEXT_HOP:"));
        (routes.count() as u64
            == bench.query("counts")["ipv4_routes"].as_u64()?
                + bench.query("counts")["ipv6_routes"].as_u64()?
            && hops.count() as u64 == bench.query("counts")["next_hops"].as_u64()?)
        .then_some(())
    });
}

#[test]
fn suppression_that_is_turned_on_confirms_old_and_new_routes() {
    let Some(mut bench) = Bench::new() else { return };
    let mut config = bench.server.client(Db::Config);
    config.query("CONFIG SET notify-keyspace-events KEA");
    bench.syncd();
    bench.orchagent("");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.forwards("10.1.2.3", &["10.0.0.1"]);
    let mut states = bench.server.client(Db::ApplState);
    assert_eq!(states.keys(), [""; 0]);
    config.query("HSET DEVICE_METADATA|localhost suppress-fib-pending enabled");
    eventually("the state of what is in the chip", || {
        (states.hash("ROUTE_TABLE:10.1.0.0/16") == "protocol=bgp").then_some(())
    });
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    eventually("the state of a new route", || {
        (states.hash("ROUTE_TABLE:10.2.0.0/16") == "protocol=bgp").then_some(())
    });
}

#[test]
fn what_does_not_work_is_one_sentence() {
    let Some(bench) = Bench::new() else { return };
    let stop = Stop::default();
    let message = |words: &str| {
        let options: orchagent::Options = parse(&format!("orchagent {words} {}", bench.config()));
        orchagent::run_until(&options, &stop).unwrap_err().to_string()
    };
    assert_eq!(message("-s -m banana"), "-m banana is not a MAC address such as 02:00:00:00:00:01");
    assert_eq!(
        message("-s -q ipc:///tmp/x"),
        "-q: \"ipc:///tmp/x\" is not a ZeroMQ endpoint such as tcp://127.0.0.1:8100"
    );
    assert_eq!(message("-s -b 0"), "-b 0 would never take anything; give a number from 1 up");
    assert!(
        message("-s -d /nonexistent")
            .starts_with("cannot record to /nonexistent/swss.rec: No such file or directory")
    );
    let away: syncd::Options = parse("syncd -s --database-config /nonexistent.json");
    let message = syncd::run_until(&away, &stop).unwrap_err().to_string();
    assert!(
        message.starts_with("the database configuration /nonexistent.json cannot be used: "),
        "{message}"
    );
}

#[test]
fn a_chip_takes_orders_while_it_stalls() {
    let Some(mut bench) = Bench::new() else { return };
    bench.syncd();
    bench.orchagent("");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.forwards("10.1.2.3", &["10.0.0.1"]);
    assert_eq!(bench.query("set stall=on rate=1000 fail-entry=2")["stalled"], true);
    assert!(bench.query("set stall=soon")["error"].as_str().unwrap().contains("neither a number of seconds"));
    assert!(bench.query("refuse everything")["error"].is_string());
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(bench.query("lookup 10.2.2.3")["prefix"], "0.0.0.0/0");
    let state = bench.query("set stall=off");
    assert_eq!((&state["stalled"], state["settings"]["rate"].as_str()), (&false.into(), Some("1000")));
    bench.forwards("10.2.2.3", &["10.0.0.1"]);
    assert_eq!(bench.query("refuse 10.3.0.0/16")["refused"][0], "10.3.0.0/16");
    bench.set("ROUTE_TABLE", "10.3.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    eventually("the refusal", || (bench.query("chip")["failed"] == 1).then_some(()));
    assert_eq!(bench.query("take 10.3.0.0/16")["refused"], serde_json::Value::Null);
    assert!(bench.query("chip")["busy_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn settings_that_cannot_be_combined_are_refused_at_the_start() {
    let Some(bench) = Bench::new() else { return };
    bench.server.client(Db::State).query("HSET WARM_RESTART_ENABLE_TABLE|system enable true");
    let options: syncd::Options = parse(&format!("syncd -s --asic-db off {}", bench.config()));
    let message = syncd::run_until(&options, &Stop::default()).unwrap_err().to_string();
    assert!(message.contains("does not know what the chip holds"), "{message}");
}
