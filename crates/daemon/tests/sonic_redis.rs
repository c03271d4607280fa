//! SONiC's daemons over a real Redis, started as SONiC starts them, observed with a plain Redis client and by
//! look-ups in the virtual switch.

#[path = "../../tables/tests/common/mod.rs"]
mod common;

use clap::Parser;
use common::{Client, Server};
use ribtide_daemon::sonic::{orchagent, syncd};
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Line<T: clap::Args> {
    #[command(flatten)]
    options: T,
}

fn parse<T: clap::Args>(words: &str) -> T {
    Line::<T>::try_parse_from(words.split_whitespace()).unwrap().options
}

/// Waits until `probe` gives something; what it gives, or a failure after a long time.
fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The daemons of one test.
struct Bench {
    server: Server,
    dir: tempfile::TempDir,
    running: Vec<(Stop, JoinHandle<()>)>,
    syncds: usize,
}

impl Bench {
    fn new() -> Option<Bench> {
        let server = Server::start()?;
        let bench = Bench { server, dir: tempfile::tempdir().unwrap(), running: Vec::new(), syncds: 0 };
        let socket = bench.server.socket();
        let databases = [("APPL_DB", 0, ":"), ("ASIC_DB", 1, ":"), ("COUNTERS_DB", 2, ":"), ("CONFIG_DB", 4, "|"), ("STATE_DB", 6, "|"), ("APPL_STATE_DB", 14, ":")]
            .map(|(name, id, separator)| format!(r#""{name}": {{"id": {id}, "separator": "{separator}", "instance": "redis"}}"#));
        let text = format!(
            r#"{{"INSTANCES": {{"redis": {{"hostname": "127.0.0.1", "port": 6379, "unix_socket_path": "{}"}}}},
                "DATABASES": {{ {} }}, "VERSION": "1.0"}}"#,
            socket.display(),
            databases.join(",")
        );
        std::fs::write(bench.path("database_config.json"), text).unwrap();
        Some(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> String {
        format!("--database-config {}", self.path("database_config.json").display())
    }

    /// Where the latest syncd answers.
    fn query_socket(&self) -> PathBuf {
        self.path(&format!("query{}", self.syncds))
    }

    /// Starts syncd; the returned number stops it.
    fn syncd(&mut self) -> usize {
        self.syncds += 1;
        let words = format!("syncd -u -s -l --query-socket {} {}", self.query_socket().display(), self.config());
        let options: syncd::Options = parse(&words);
        self.spawn(move |stop| syncd::run_until(&options, stop).unwrap())
    }

    fn orchagent(&mut self, more: &str) -> usize {
        let words = format!(
            "orchagent -b 1024 -s -m 02:00:00:00:00:aa -d {} {more} {}",
            self.dir.path().display(),
            self.config()
        );
        let options: orchagent::Options = parse(&words);
        self.spawn(move |stop| orchagent::run_until(&options, stop).unwrap())
    }

    fn spawn(&mut self, body: impl FnOnce(&Stop) + Send + 'static) -> usize {
        let stop = Stop::default();
        let theirs = stop.clone();
        self.running.push((stop, std::thread::spawn(move || body(&theirs))));
        self.running.len() - 1
    }

    /// Stops one daemon and waits for its end.
    fn stop(&mut self, which: usize) {
        let (stop, thread) = std::mem::replace(&mut self.running[which], (Stop::default(), std::thread::spawn(|| ())));
        stop.stop();
        thread.join().unwrap();
    }

    fn appl(&self) -> Client {
        self.server.client(Db::Appl)
    }

    /// Writes a row as any producer does.
    fn set(&self, table: &str, key: &str, fields: &str) {
        let mut client = self.appl();
        client.ask(&format!("HSET _{table}:{key} {fields}"));
        client.ask(&format!("SADD {table}_KEY_SET {key}"));
        client.ask(&format!("PUBLISH {table}_CHANNEL@0 G"));
    }

    fn del(&self, table: &str, key: &str) {
        let mut client = self.appl();
        client.ask(&format!("DEL _{table}:{key}"));
        client.ask(&format!("SADD {table}_DEL_SET {key}"));
        client.ask(&format!("SADD {table}_KEY_SET {key}"));
        client.ask(&format!("PUBLISH {table}_CHANNEL@0 G"));
    }

    /// Two ports with a subnet and a neighbour each.
    fn ports(&self) {
        for (n, lanes) in [(0, "1,2,3,4"), (4, "5,6,7,8")] {
            self.set("PORT_TABLE", &format!("Ethernet{n}"), &format!("lanes {lanes} speed 40000 admin_status up mtu 9100"));
        }
        self.set("PORT_TABLE", "PortConfigDone", "count 2");
        self.set("PORT_TABLE", "PortInitDone", "lanes 0");
        for n in [0, 4] {
            self.set("INTF_TABLE", &format!("Ethernet{n}"), "NULL NULL");
            self.set("INTF_TABLE", &format!("Ethernet{n}:10.0.{n}.0/31"), "scope global family IPv4");
            self.set("NEIGH_TABLE", &format!("Ethernet{n}:10.0.{n}.1"), "neigh 02:00:00:00:00:01 family IPv4");
        }
    }

    /// A question to syncd's virtual switch.
    fn query(&self, question: &str) -> Value {
        let mut stream = eventually("syncd's socket", || UnixStream::connect(self.query_socket()).ok());
        writeln!(stream, "{question}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until packets to `addr` leave through exactly these gateways.
    fn forwards(&self, addr: &str, gateways: &[&str]) {
        eventually(&format!("{addr} through {gateways:?}"), || {
            let answer = self.query(&format!("lookup {addr}"));
            let hops = answer["hops"].as_array().cloned().unwrap_or_default();
            let mut found: Vec<String> = hops
                .iter()
                .filter(|hop| !hop["mac"].is_null())
                .filter_map(|hop| Some(hop["gateway"].as_str()?.to_owned()))
                .collect();
            found.sort();
            (found == gateways).then_some(())
        });
    }

    /// The ASIC_DB row of a route, once it is there.
    fn asic_route(&self, dest: &str) -> (String, String) {
        let mut client = self.server.client(Db::Asic);
        eventually(&format!("the row of {dest}"), || {
            let key = client.keys().into_iter().find(|key| {
                key.starts_with("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:") && key.contains(&format!("\"dest\":\"{dest}\""))
            })?;
            Some((client.hash(&key), key))
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (stop, _) in &self.running {
            stop.stop();
        }
    }
}

#[test]
fn routes_reach_the_chip_and_leave_it() {
    let Some(mut bench) = Bench::new() else { return };
    bench.syncd();
    bench.orchagent("");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0 weight 1");
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "protocol bgp nexthop 10.0.0.1,10.0.4.1 ifname Ethernet0,Ethernet4 weight 1,1");
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
    assert!(hop_row.contains("SAI_NEXT_HOP_ATTR_IP=10.0.0.1 ") && hop_row.contains("SAI_NEXT_HOP_ATTR_TYPE=SAI_NEXT_HOP_TYPE_IP"), "{hop_row}");
    assert!(asic.ask(&format!("HGET VIDTORID {hop}")).into_text().is_some_and(|rid| rid.starts_with("oid:0x")));
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
    let members = asic.keys().into_iter().filter(|key| key.contains("GROUP_MEMBER:")).map(|key| asic.hash(&key)).filter(|row| row.contains(&group));
    assert_eq!(members.count(), 2);

    // APPL_DB holds what was consumed; the recording names it.
    assert_eq!(bench.appl().hash("ROUTE_TABLE:10.1.0.0/16"), "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp weight=1");
    let line = "|ROUTE_TABLE:10.1.0.0/16|SET|protocol:bgp|nexthop:10.0.0.1|ifname:Ethernet0|weight:1";
    eventually("the recording", || std::fs::read_to_string(bench.path("swss.rec")).unwrap().contains(line).then_some(()));

    for key in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
        bench.del("ROUTE_TABLE", key);
    }
    eventually("the routes to go", || {
        let rows = asic.keys();
        (!rows.iter().any(|key| key.contains("\"10.1.0.0/16\"") || key.contains("GROUP") || key.contains("\"10.3.")))
            .then_some(())
    });
    assert_eq!(bench.query("lookup 10.1.2.3")["prefix"], "0.0.0.0/0");
    assert_eq!(bench.query("counts")["groups"], 0);
}

#[test]
fn either_daemon_may_start_again_and_nothing_stale_stays() {
    let Some(mut bench) = Bench::new() else { return };
    let syncd = bench.syncd();
    let orchagent = bench.orchagent("-F");
    bench.ports();
    bench.set("ROUTE_TABLE", "10.1.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "protocol bgp nexthop 10.0.4.1 ifname Ethernet4");
    bench.forwards("10.2.2.3", &["10.0.4.1"]);
    bench.asic_route("10.2.0.0/16");
    let mut states = bench.server.client(Db::ApplState);
    eventually("the responses", || (states.hash("ROUTE_TABLE:10.2.0.0/16") == "protocol=bgp").then_some(()));

    // syncd alone: the switch is made again from ASIC_DB, and orchagent goes on with its own numbers.
    bench.stop(syncd);
    let syncd = bench.syncd();
    bench.forwards("10.1.2.3", &["10.0.0.1"]);
    bench.set("ROUTE_TABLE", "10.3.0.0/16", "protocol bgp nexthop 10.0.0.1 ifname Ethernet0");
    bench.forwards("10.3.2.3", &["10.0.0.1"]);

    // orchagent alone, with a change while it is away: it describes everything anew.
    bench.stop(orchagent);
    bench.del("ROUTE_TABLE", "10.1.0.0/16");
    bench.set("ROUTE_TABLE", "10.2.0.0/16", "nexthop 10.0.0.1 ifname Ethernet0");
    let orchagent = bench.orchagent("-F");
    bench.forwards("10.2.2.3", &["10.0.0.1"]);
    bench.forwards("10.3.2.3", &["10.0.0.1"]);
    eventually("the withdrawn route to go", || (bench.query("lookup 10.1.2.3")["prefix"] == "0.0.0.0/0").then_some(()));
    eventually("its state to go", || (states.hash("ROUTE_TABLE:10.1.0.0/16").is_empty()).then_some(()));

    // Both.
    bench.stop(orchagent);
    bench.stop(syncd);
    bench.del("ROUTE_TABLE", "10.3.0.0/16");
    bench.syncd();
    bench.orchagent("-F");
    bench.forwards("10.2.2.3", &["10.0.0.1"]);
    eventually("the withdrawn route to go", || (bench.query("lookup 10.3.2.3")["prefix"] == "0.0.0.0/0").then_some(()));
    let mut asic = bench.server.client(Db::Asic);
    eventually("ASIC_DB to agree", || {
        let routes = asic.keys().into_iter().filter(|key| key.contains("ROUTE_ENTRY"));
        let hops = asic.keys().into_iter().filter(|key| key.contains(":SAI_OBJECT_TYPE_NEXT_HOP:"));
        (routes.count() as u64 == bench.query("counts")["ipv4_routes"].as_u64()? + bench.query("counts")["ipv6_routes"].as_u64()?
            && hops.count() as u64 == bench.query("counts")["next_hops"].as_u64()?)
        .then_some(())
    });
}

#[test]
fn what_does_not_work_is_one_sentence() {
    let Some(bench) = Bench::new() else { return };
    let stop = Stop::default();
    let says = |words: &str| {
        let options: orchagent::Options = parse(&format!("orchagent {words} {}", bench.config()));
        orchagent::run_until(&options, &stop).unwrap_err().to_string()
    };
    assert!(says("").starts_with("orchagent without -s or -z is SONiC's redis_async mode"));
    assert!(says("-z zmq_sync").starts_with("orchagent -z zmq_sync: ribtide runs redis_sync only"));
    assert_eq!(says("-s -m banana"), "-m banana is not a MAC address such as 02:00:00:00:00:01");
    assert_eq!(says("-s -b 0"), "-b 0 would never take anything; give a number from 1 up");
    assert!(says("-s -d /nonexistent").starts_with("cannot record to /nonexistent/swss.rec: No such file or directory"));
    let away: syncd::Options = parse("syncd -s --database-config /nonexistent.json");
    let says = syncd::run_until(&away, &stop).unwrap_err().to_string();
    assert!(says.starts_with("the database configuration /nonexistent.json cannot be used: "), "{says}");
}
