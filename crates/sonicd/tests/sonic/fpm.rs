//! All three daemons, fed over FPM as zebra feeds them. The names of interfaces come from the kernel, so these tests
//! run in a network namespace of their own; without root they print that they skip.

use crate::bench::{Bench, eventually};
use ribtide_prefix::AnyPrefix;
use ribtide_swss::Db;
use ribtide_wire::fpm;
use ribtide_wire::netlink::{Content, Forward, Hop, Member, NextHop, NextHops, Route, RouteKind, Via};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

const INSIDE: &str = "RIBTIDE_TEST_NETNS";
/// zebra without SONiC's patches says the kernel's main table.
const MAIN: u32 = 254;
const BGP: u8 = 186;

/// Runs `ip`, which may refuse.
pub(crate) fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}

/// Runs `body` in a network namespace with the interfaces Ethernet0 and Ethernet4, by running this test (its path is
/// `test`) again inside.
pub(crate) fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        assert!(ip("link set lo up"));
        for n in [0, 4] {
            assert!(ip(&format!("link add Ethernet{n} type veth peer name peer{n}")));
            assert!(ip(&format!("link set peer{n} up")));
        }
        return body();
    }
    struct Namespace(String);
    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
        }
    }
    let namespace = Namespace(format!("ribtide-{}-{}", std::process::id(), test.replace("::", "-")));
    if !ip(&format!("netns add {}", namespace.0)) {
        println!("skipped: network namespaces need root and the command ip");
        return;
    }
    let out = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "the test did not run inside: {text}");
}

fn index(interface: &str) -> u32 {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).map_or_else(
        // RouterState `ip netns exec` /sys shows the namespace; elsewhere ask ip itself.
        |_| panic!("{interface} has no index"),
        |text| text.trim().parse().unwrap(),
    )
}

fn via(gateway: &str, interface: &str) -> Via {
    Via { gateway: Some(gateway.parse().unwrap()), ifindex: index(interface), onlink: false }
}

/// The routing daemon's end.
struct Zebra(TcpStream);

impl Zebra {
    fn connect(address: SocketAddr) -> Zebra {
        Zebra(eventually("fpmsyncd to listen", || TcpStream::connect(address).ok()))
    }

    fn route(&mut self, prefix: &str, hops: &[Via]) {
        let hops: Vec<Hop> = hops.iter().map(|via| Hop { via: *via, weight: 1 }).collect();
        self.announce(prefix, NextHops::Inline(hops.as_slice().into()));
    }

    fn announce(&mut self, prefix: &str, next_hops: NextHops<'_>) {
        let mut bytes = Vec::new();
        fpm::write_route(&mut bytes, &Route::new(prefix.parse().unwrap(), MAIN, BGP, next_hops)).unwrap();
        self.0.write_all(&bytes).unwrap();
    }

    fn blackhole(&mut self, prefix: &str) {
        let route = Route::new(prefix.parse().unwrap(), MAIN, BGP, NextHops::None);
        let mut bytes = Vec::new();
        fpm::write_route(&mut bytes, &Route { kind: RouteKind::Blackhole, ..route }).unwrap();
        self.0.write_all(&bytes).unwrap();
    }

    fn object(&mut self, id: u32, forward: Forward<'_>) {
        let mut bytes = Vec::new();
        fpm::write_next_hop(&mut bytes, &NextHop { id, protocol: BGP, forward }).unwrap();
        self.0.write_all(&bytes).unwrap();
    }

    fn withdraw(&mut self, prefix: &str) {
        let mut bytes = Vec::new();
        fpm::write_delete(&mut bytes, prefix.parse().unwrap(), MAIN, BGP);
        self.0.write_all(&bytes).unwrap();
    }

    /// There is no reply.
    fn silent(&mut self) {
        self.0.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
        let replied = self.0.read(&mut [0; 4096]);
        assert!(replied.is_err(), "{replied:?}");
    }

    /// Reads replies until each of these prefixes was said to be offloaded.
    fn offloaded(&mut self, prefixes: &[&str]) {
        let mut missing: Vec<AnyPrefix> = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        let (mut held, mut read) = (Vec::new(), [0; 4096]);
        self.0.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        while !missing.is_empty() {
            let n = self.0.read(&mut read).expect("an offload reply");
            assert!(n > 0, "fpmsyncd closed the session; not offloaded: {missing:?}");
            held.extend_from_slice(&read[..n]);
            while let Some(frame) = fpm::frame(&held).unwrap() {
                for message in frame.messages() {
                    let Ok(Content::NewRoute(route)) = message else { panic!("{message:?}") };
                    assert!(route.offloaded() && route.table == MAIN && route.protocol == BGP);
                    missing.retain(|prefix| *prefix != route.prefix);
                }
                let len = frame.len;
                held.drain(..len);
            }
        }
    }
}

#[test]
fn routes_go_from_zebra_to_the_chip() {
    in_namespace("fpm::routes_go_from_zebra_to_the_chip", || {
        let Some(mut bench) = Bench::new() else { return };
        bench.syncd();
        bench.orchagent("");
        bench.ports();
        let (address, fpmsyncd) = bench.fpmsyncd();
        let mut zebra = Zebra::connect(address);
        let (a, b) = (via("10.0.0.1", "Ethernet0"), via("10.0.4.1", "Ethernet4"));
        zebra.route("10.1.0.0/16", &[a]);
        zebra.route("10.2.0.0/16", &[a, b]);
        zebra.object(1, Forward::via(a));
        zebra.object(2, Forward::via(b));
        zebra.object(
            3,
            Forward::Group([Member { id: 1, weight: 1 }, Member { id: 2, weight: 2 }].as_slice().into()),
        );
        zebra.announce("10.3.0.0/16", NextHops::Id(3));
        zebra.offloaded(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]);
        bench.forwards("10.1.2.3", &["10.0.0.1"]);
        bench.forwards("10.2.2.3", &["10.0.0.1", "10.0.4.1"]);
        bench.forwards("10.3.2.3", &["10.0.0.1", "10.0.4.1"]);
        let mut appl = bench.appl();
        assert_eq!(
            appl.hash("ROUTE_TABLE:10.1.0.0/16"),
            "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp weight=1"
        );
        assert_eq!(appl.hash("ROUTE_TABLE:10.3.0.0/16"), "nexthop_group=3 protocol=bgp");

        // From next hops to a group and back, in one go: the last word counts.
        zebra.announce("10.1.0.0/16", NextHops::Id(3));
        bench.forwards("10.1.2.3", &["10.0.0.1", "10.0.4.1"]);
        zebra.route("10.1.0.0/16", &[b]);
        bench.forwards("10.1.2.3", &["10.0.4.1"]);
        eventually("the row to have no group", || {
            let row = appl.hash("ROUTE_TABLE:10.1.0.0/16");
            (row.contains("nexthop=10.0.4.1")
                && (!row.contains("nexthop_group") || row.contains("nexthop_group= ")))
            .then_some(())
        });
        zebra.withdraw("10.2.0.0/16");
        eventually("10.2.0.0/16 to go", || {
            (bench.query("lookup 10.2.2.3")["prefix"] == "0.0.0.0/0").then_some(())
        });
        assert_eq!(appl.hash("ROUTE_TABLE:10.2.0.0/16"), "");

        // The session breaks and a route goes meanwhile: what is announced again stays, the rest goes.
        drop(zebra);
        let mut zebra = Zebra::connect(address);
        zebra.route("10.1.0.0/16", &[b]);
        zebra.offloaded(&["10.1.0.0/16"]);
        eventually("10.3.0.0/16 to go", || {
            (bench.query("lookup 10.3.2.3")["prefix"] == "0.0.0.0/0").then_some(())
        });
        bench.forwards("10.1.2.3", &["10.0.4.1"]);
        eventually("the group to go", || {
            (!appl.keys().iter().any(|key| key.contains("NEXTHOP_GROUP"))).then_some(())
        });

        // fpmsyncd itself starts again, and a route goes meanwhile.
        zebra.route("10.4.0.0/16", &[a]);
        bench.forwards("10.4.2.3", &["10.0.0.1"]);
        bench.stop(fpmsyncd);
        drop(zebra);
        let (address, _) = bench.fpmsyncd();
        let mut zebra = Zebra::connect(address);
        zebra.route("10.4.0.0/16", &[a]);
        eventually("10.1.0.0/16 to go", || {
            (bench.query("lookup 10.1.2.3")["prefix"] == "0.0.0.0/0").then_some(())
        });
        bench.forwards("10.4.2.3", &["10.0.0.1"]);
        let rows: Vec<String> = appl.keys().into_iter().filter(|key| key.contains("ROUTE_TABLE")).collect();
        assert_eq!(rows, ["ROUTE_TABLE:10.4.0.0/16"]);
    });
}

#[test]
fn with_suppression_only_what_the_chip_has_is_offloaded() {
    in_namespace("fpm::with_suppression_only_what_the_chip_has_is_offloaded", || {
        let Some(mut bench) = Bench::new() else { return };
        bench.server.client(Db::Config).query("HSET DEVICE_METADATA|localhost suppress-fib-pending enabled");
        let (address, _) = bench.fpmsyncd();
        let mut zebra = Zebra::connect(address);
        zebra.route("10.1.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        // It is not programmed: no reply, however long one waits.
        zebra.silent();
        bench.syncd();
        bench.orchagent("-F");
        bench.ports();
        zebra.offloaded(&["10.1.0.0/16"]);
        bench.forwards("10.1.2.3", &["10.0.0.1"]);
        // It follows behind.
        let mut states = bench.server.client(Db::ApplState);
        eventually("APPL_STATE_DB to have it", || {
            (states.hash("ROUTE_TABLE:10.1.0.0/16") == "protocol=bgp").then_some(())
        });
    });
}

/// A response published by, or as by, an orchagent that answers directly is one too many; that of another one counts.
#[test]
fn an_answer_counts_once_whichever_way_answers_come() {
    in_namespace("fpm::an_answer_counts_once_whichever_way_answers_come", || {
        let Some(mut bench) = Bench::new() else { return };
        bench.server.client(Db::Config).query("HSET DEVICE_METADATA|localhost suppress-fib-pending enabled");
        // As one of SONiC's has left them: what APPL_DB has is in the chip.
        let mut states = bench.server.client(Db::ApplState);
        states.query("HSET ROUTE_TABLE:10.9.0.0/16 protocol bgp");
        bench
            .appl()
            .query("HSET ROUTE_TABLE:10.9.0.0/16 protocol bgp nexthop 10.0.0.1 ifname Ethernet0 weight 1");
        let (address, _) = bench.fpmsyncd();
        let mut zebra = Zebra::connect(address);
        let channel = |bench: &Bench, wanted: &str| {
            let mut state = bench.server.client(Db::State);
            eventually(&format!("answers: {wanted}"), || {
                let active = format!(r#""active":"{wanted}""#);
                state.hash("RIBTIDE_PIPELINE|fpmsyncd").contains(&active).then_some(())
            });
        };
        channel(&bench, "through Redis");
        zebra.route("10.9.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        zebra.offloaded(&["10.9.0.0/16"]);
        let mut redis = bench.server.client(Db::ApplState);
        let mut publish = |prefix: &str| {
            let message =
                format!(r#"["SWSS_RC_SUCCESS","{prefix}","err_str","SWSS_RC_SUCCESS","protocol","bgp"]"#);
            redis.query(&format!("PUBLISH APPL_DB_ROUTE_TABLE_RESPONSE_CHANNEL {message}"))
        };
        // An orchagent of SONiC's answers.
        zebra.route("10.1.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        eventually("the row", || (!bench.appl().hash("_ROUTE_TABLE:10.1.0.0/16").is_empty()).then_some(()));
        publish("10.1.0.0/16");
        zebra.offloaded(&["10.1.0.0/16"]);
        bench.syncd();
        let orchagent = bench.orchagent("-F");
        bench.ports();
        channel(&bench, "direct");
        bench.forwards("10.1.2.3", &["10.0.0.1"]);
        // It has a next hop that is not resolved: what is published now is not from orchagent.
        zebra.route("10.2.0.0/16", &[via("10.0.0.77", "Ethernet0")]);
        zebra.route("10.3.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        zebra.offloaded(&["10.3.0.0/16"]);
        publish("10.2.0.0/16");
        zebra.silent();
        // Published all the same, for others.
        let confirmed = "protocol=bgp";
        eventually("the state", || (states.hash("ROUTE_TABLE:10.3.0.0/16") == confirmed).then_some(()));
        bench.stop(orchagent);
        // Until it is known which orchagent answers, none does.
        publish("10.2.0.0/16");
        zebra.silent();
        channel(&bench, "through Redis");
        publish("10.2.0.0/16");
        zebra.offloaded(&["10.2.0.0/16"]);
        // Back again: it answers what was told while it was away, and says nothing of what waits.
        zebra.route("10.4.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        bench.orchagent("-F");
        bench.ports();
        zebra.offloaded(&["10.4.0.0/16"]);
        channel(&bench, "direct");
        zebra.silent();
        zebra.route("10.5.0.0/16", &[via("10.0.0.1", "Ethernet0")]);
        zebra.offloaded(&["10.5.0.0/16"]);
        eventually("the state", || (states.hash("ROUTE_TABLE:10.5.0.0/16") == confirmed).then_some(()));
    });
}

/// Redis goes and comes back empty. It cannot be known what was under way, so orchagent and syncd end with a sentence, for
/// their supervisor to start them again; fpmsyncd writes all that it knows.
#[test]
fn a_redis_that_lost_its_data_is_filled_again() {
    let Some(mut bench) = Bench::new() else { return };
    bench.syncd();
    let orchagent = bench.orchagent("");
    bench.ports();
    let (address, _) = bench.fpmsyncd();
    let mut zebra = Zebra::connect(address);
    let dropped = |bench: &Bench, addr: &str, prefix: &str| {
        eventually(prefix, || (bench.query(&format!("lookup {addr}"))["prefix"] == prefix).then_some(()));
    };
    zebra.blackhole("10.9.0.0/16");
    dropped(&bench, "10.9.0.1", "10.9.0.0/16");

    bench.server.restart();
    // syncd and fpmsyncd write their rows again; an orchagent with empty tables is to be started again.
    let message = bench.end(orchagent).unwrap_err().to_string();
    assert!(message.starts_with("Redis for ASIC_DB "), "{message}");
    bench.orchagent("");
    bench.ports();
    dropped(&bench, "10.9.0.1", "10.9.0.0/16");
    zebra.blackhole("10.8.0.0/16");
    dropped(&bench, "10.8.0.1", "10.8.0.0/16");
    eventually("the rows", || {
        (bench.appl().hash("ROUTE_TABLE:10.9.0.0/16").contains("blackhole=true")).then_some(())
    });
}

/// Redis comes back with a dump that has rows of before: what fpmsyncd does not have is deleted, in each of its tables.
#[test]
fn surplus_rows_of_an_old_dump_are_deleted() {
    let Some(mut bench) = Bench::new() else { return };
    let mut appl = bench.appl();
    let stale = ["ROUTE_TABLE:10.66.0.0/16", "LABEL_ROUTE_TABLE:66", "NEXTHOP_GROUP_TABLE:66"];
    for key in stale {
        appl.query(&format!("HSET {key} nexthop 10.0.0.1 ifname Ethernet0"));
    }
    appl.query("SAVE");
    for key in stale {
        appl.query(&format!("DEL {key}"));
    }
    let (address, _) = bench.fpmsyncd();
    let mut zebra = Zebra::connect(address);
    zebra.blackhole("10.9.0.0/16");
    eventually("the row", || (!appl.hash("_ROUTE_TABLE:10.9.0.0/16").is_empty()).then_some(()));
    bench.server.restart();
    // No orchagent consumes these rows, so their deletions stay where they were queued.
    let mut appl = bench.appl();
    for key in stale {
        let (table, key) = key.split_once(':').unwrap();
        eventually(&format!("the deletion from {table}"), || {
            let deleted = appl.query(&format!("SMEMBERS {table}_DEL_SET")).into_texts();
            deleted.iter().any(|deleted| deleted == key).then_some(())
        });
    }
    let pending: Vec<String> = appl.keys().into_iter().filter(|key| key.starts_with('_')).collect();
    assert_eq!(pending, ["_ROUTE_TABLE:10.9.0.0/16"], "it is written again, and the others are not");
}

#[test]
fn changes_that_wait_for_the_flush_timer_are_written_at_the_stop() {
    let Some(mut bench) = Bench::new() else { return };
    let (address, fpmsyncd) = bench.fpmsyncd_with("--flush-timer 3600000 --small-traffic 0");
    let mut zebra = Zebra::connect(address);
    zebra.blackhole("10.9.0.0/16");
    // Without FIB suppression the reply does not wait for the row.
    zebra.offloaded(&["10.9.0.0/16"]);
    assert_eq!(bench.appl().hash("_ROUTE_TABLE:10.9.0.0/16"), "");
    bench.stop(fpmsyncd);
    assert!(bench.appl().hash("_ROUTE_TABLE:10.9.0.0/16").contains("blackhole=true"));
}

/// What a client said of itself counts as long as its session: a replay whose client is gone must not seem silent.
#[test]
fn session_ends_with_its_connection() {
    let Some(mut bench) = Bench::new() else { return };
    let (address, _) = bench.fpmsyncd();
    let mut zebra = Zebra::connect(address);
    let mut bytes = Vec::new();
    fpm::write_start_of_replay(&mut bytes, true);
    zebra.0.write_all(&bytes).unwrap();
    let mut state = bench.server.client(Db::State);
    let mut disagrees = || state.hash("RIBTIDE_PIPELINE|fpmsyncd").contains("the router waits for the chip");
    eventually("the disagreement about FIB suppression", || disagrees().then_some(()));
    drop(zebra);
    eventually("its end", || (!disagrees()).then_some(()));
}
