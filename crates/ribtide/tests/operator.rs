//! An operator's view of a running router: the real binary with real sessions, through `ribtide
//! show`, the API over TCP, `/metrics` and standard error.

use ribtide_daemon::registry::{Process, QUEUES, QueueKind};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of every wait in these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

const IPV4: u64 = 3000;
const IPV6: u64 = 300;

fn ribtide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ribtide"))
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Router {
    process: Running,
    folder: tempfile::TempDir,
    bgp: SocketAddr,
    http: SocketAddr,
}

impl Router {
    fn start(threads: &str) -> Router {
        Router::start_with(threads, "")
    }

    /// With `more` tables in its configuration.
    fn start_with(threads: &str, more: &str) -> Router {
        let folder = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (bgp, http) = (free(), free());
        let config = folder.path().join("ribtide.toml");
        let text = format!(
            r#"
            [router]
            asn = 65001
            router-id = "10.255.0.1"
            [bgp]
            listen = ["{bgp}"]
            {threads}
            [bgp.group.upstream]
            type = "external"
            import = ["accept"]
            export = ["accept"]
            dynamic-neighbors = ["127.0.1.0/24"]
            [bgp.group.clients]
            type = "internal"
            route-reflector-client = true
            passive = true
            neighbors = ["127.0.0.12", "127.0.0.13"]
            [fib]
            virtual-asic = {{ lab = true }}
            [[interface]]
            name = "Ethernet0"
            addresses = ["10.0.255.254/16", "2001:db8::ffff/64"]
            [[static]]
            prefix = "203.0.113.0/24"
            blackhole = true
            [api]
            socket = "{}"
            http = "{http}"
            {more}
            "#,
            folder.path().join("api.sock").display()
        );
        std::fs::write(&config, text).unwrap();
        let errors = File::create(folder.path().join("stderr")).unwrap();
        let process = ribtide().arg("run").arg("-c").arg(&config).stderr(errors).spawn().unwrap();
        let router = Router { process: Running(process), folder, bgp, http };
        until("the router replies", || router.try_text(&["bgp", "summary"]).is_some());
        router
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    fn try_text(&self, what: &[&str]) -> Option<String> {
        let output = ribtide().arg("show").args(what).arg("--socket").arg(self.socket()).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// The output of `ribtide show WHAT`.
    fn text(&self, what: &[&str]) -> String {
        self.try_text(what).unwrap_or_else(|| panic!("ribtide show {what:?} fails"))
    }

    /// The same as JSON.
    fn json(&self, what: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[what, &["--json"]].concat())).unwrap()
    }

    /// The error output of a failing command.
    fn complaint(&self, what: &[&str]) -> String {
        let output = ribtide().arg("show").args(what).arg("--socket").arg(self.socket()).output().unwrap();
        assert!(!output.status.success(), "{what:?} should fail");
        String::from_utf8(output.stderr).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// Peers with addresses from `from` on, until they are dropped.
    fn peers(&self, tool: &str, from: &str, more: &[&str]) -> Running {
        let to = self.bgp.to_string();
        let options = ["--to", &to, "--from", from, "--quiet", "--wait", "30"];
        let mut command = ribtide();
        command.arg(tool).args(options).args(more).stdout(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Status, head and body of an API reply over TCP.
    fn http(&self, request: &str) -> (u16, String, String) {
        self.exchange(TcpStream::connect(self.http).unwrap(), request)
    }

    /// The same over the Unix socket, which permits changes.
    fn unix(&self, request: &str) -> (u16, String, String) {
        self.exchange(UnixStream::connect(self.socket()).unwrap(), request)
    }

    fn exchange(&self, mut stream: impl Read + Write, request: &str) -> (u16, String, String) {
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        let length = body.len();
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/openmetrics-text, application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.into())
    }

    /// The output of `ribtide WORDS`.
    fn command(&self, words: &[&str]) -> String {
        let output = ribtide().args(words).arg("--socket").arg(self.socket()).output().unwrap();
        assert!(output.status.success(), "ribtide {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < TEST_TIMEOUT, "not in {TEST_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two senders of the same table from an AS each, and a client that receives it.
fn loaded(threads: &str) -> (Router, [Running; 2]) {
    let router = Router::start(threads);
    let (ipv4, ipv6) = (IPV4.to_string(), IPV6.to_string());
    let table = ["--asn", "65101", "--senders", "2", "--asn-per-sender", "--ipv4", &ipv4, "--ipv6", &ipv6];
    let senders = router.peers("blast", "127.0.1.5", &table);
    let client = router.peers("sink", "127.0.0.12", &["--asn", "65001"]);
    until("every route is there and sent on", || {
        let summary = router.json(&["bgp", "summary"]);
        let client = summary["neighbors"].as_array().unwrap().iter().find(|n| n["address"] == "127.0.0.12");
        let advertised = client.and_then(|c| c.pointer("/session/advertised/ipv4").cloned());
        summary["paths"]["ipv4"] == 2 * IPV4
            && summary["paths"]["ipv6"] == 2 * IPV6
            && summary["active"]["ipv4"] == IPV4
            && advertised == Some(IPV4.into())
    });
    (router, [senders, client])
}

fn sum<'a>(items: &'a Value, of: impl Fn(&'a Value) -> &'a Value) -> u64 {
    items.as_array().unwrap().iter().map(|item| of(item).as_u64().unwrap()).sum()
}

#[test]
fn operator_commands_are_complete_and_consistent() {
    let (router, peers) = loaded("shards = 2\nupdate-threads = 2");
    summary_and_neighbours(&router);
    routes_and_shards(&router);
    groups(&router);
    threads(&router);
    next_hop_groups(&router);
    metrics(&router);
    drop(peers);
    until("the neighbours are gone", || router.json(&["bgp", "summary"])["established"] == 0);
    let log = router.log();
    for expected in [
        " INFO bgp::session: the session is up neighbor=127.0.1.5 asn=65101 group=upstream \
         families=ipv4-unicast,ipv6-unicast hold_time_s=90",
        " INFO bgp::session: the session is up neighbor=127.0.0.12 asn=65001 group=clients ",
        " WARN bgp::session: the session is down neighbor=127.0.0.12 asn=65001 group=clients ",
    ] {
        assert!(log.contains(expected), "{expected}\n{log}");
    }
}

fn summary_and_neighbours(router: &Router) {
    let summary = router.json(&["bgp", "summary"]);
    assert_eq!((&summary["asn"], &summary["router_id"]), (&65001.into(), &"10.255.0.1".into()));
    assert_eq!(
        summary["threading"]["mode"],
        "RIB sharding: 2 shard threads, 1 reader; update threading: 2 update threads"
    );
    assert_eq!(
        [&summary["neighbor_count"], &summary["established"], &summary["update_groups"]],
        [4, 3, 2].map(Value::from).each_ref(),
        "{summary}"
    );
    let text = router.text(&["bgp", "summary"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Router 10.255.0.1, AS 65001, up "), "{text}");
    assert_eq!(
        lines[1],
        "Threading: RIB sharding: 2 shard threads, 1 reader; update threading: 2 update threads"
    );
    assert!(lines[2].starts_with("4 neighbours: 3 established, 1 down; 0 flaps; "), "{text}");
    let client = lines.iter().find(|l| l.starts_with("127.0.0.12 ")).unwrap();
    assert!(client.contains("Established") && client.ends_with(" clients   -"), "{text}");

    let sender = router.json(&["bgp", "neighbor", "127.0.1.5"]);
    let session = &sender["session"];
    assert_eq!(
        (&sender["asn"], &sender["dynamic"], &sender["group"]),
        (&65101.into(), &true.into(), &"upstream".into())
    );
    assert_eq!(session["accepted"], serde_json::json!({"ipv4": IPV4, "ipv6": IPV6}));
    assert_eq!(session["messages_received"]["open"], 1);
    assert_eq!(session["messages_sent"]["open"], 1);
    assert!(session["messages_received"]["keepalive"].as_u64().unwrap() >= 1);
    assert_eq!(session["messages_received"]["update"], session["counters"]["updates"]);
    assert_eq!(session["counters"]["announced"], IPV4 + IPV6);
    assert_eq!(session["reader_thread"], "reader-0");
    assert_eq!(session["write_queue"]["slow_writer"], false);
    let all = router.json(&["bgp", "neighbor"]);
    let active = |n: &Value| n.pointer("/session/active/ipv4").and_then(Value::as_u64).unwrap_or(0);
    assert_eq!(all.as_array().unwrap().iter().map(active).sum::<u64>(), IPV4);

    // The filters by group and update thread; together they select all neighbours.
    let clients = router.json(&["bgp", "neighbor", "--group", "clients"]);
    assert_eq!(clients.as_array().unwrap().len(), 2);
    let of = |n: &str| router.json(&["bgp", "neighbor", "--update-thread", n]).as_array().unwrap().len();
    assert_eq!(of("0") + of("1"), 3);
    assert!(of("0") > 0 && of("1") > 0, "the groups are spread over both");
    let text = router.text(&["bgp", "neighbor", "127.0.0.12"]);
    for expected in
        ["client AS 65001", "sent to by egress-", "KEEPALIVE", "not a slow writer", "full 0 times"]
    {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(router.complaint(&["bgp", "neighbor", "192.0.2.77"]).contains("show bgp summary"));
    assert!(router.complaint(&["bgp", "neighbor", "--group", "x"]).contains("it has clients, upstream"));
    assert!(
        router
            .complaint(&["bgp", "neighbor", "--update-thread", "9"])
            .contains("there are 2, numbered from 0")
    );
}

fn routes_and_shards(router: &Router) {
    let summary = router.json(&["route", "summary"]);
    for family in ["ipv4", "ipv6"] {
        for what in ["prefixes", "paths", "active", "hidden"] {
            assert_eq!(sum(&summary["shards"], |s| &s["routes"][what][family]), summary["bgp"][what][family]);
        }
    }
    assert_eq!(summary["bgp"]["prefixes"], serde_json::json!({"ipv4": IPV4, "ipv6": IPV6}));
    let main = |family: &str, protocol: &str| -> Value {
        let protocols = summary["main"]["protocols"].as_array().unwrap();
        let row = protocols.iter().find(|p| p["family"] == family && p["protocol"] == protocol);
        row.unwrap_or_else(|| panic!("no {protocol} in {summary}"))["routes"].clone()
    };
    assert_eq!([main("ipv4", "ebgp"), main("ipv4", "static")], [IPV4, 1]);
    assert_eq!(main("ipv6", "ebgp"), IPV6);
    let text = router.text(&["route", "summary"]);
    assert!(
        text.contains("total    IPv4") && text.contains("shard-1") && text.contains("Main table"),
        "{text}"
    );

    let sharding = router.json(&["route", "rib-sharding"]);
    let shards = sharding["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 2);
    let logical: u64 = shards.iter().map(|s| s["logical_shards"].as_array().unwrap().len() as u64).sum();
    let share: f64 = shards.iter().map(|s| s["load_share"].as_f64().unwrap()).sum();
    assert!(logical == 64 && (share - 1.0).abs() < 1e-9, "{sharding}");
    for shard in shards {
        assert_eq!(
            sum(&shard["logical_shards"], |l| &l["prefixes"]["ipv4"]),
            shard["routes"]["prefixes"]["ipv4"]
        );
        assert!(shard["inbox"]["capacity"].as_u64().unwrap() > 0);
        assert!(shard["cpu_seconds"].as_f64().unwrap() > 0.0);
    }

    // The routes of each shard, page by page, are all routes, each where `show route PREFIX` says.
    let mut prefixes = Vec::new();
    for number in ["0", "shard-1"] {
        let text = router.text(&["route", "rib-sharding", number, "--json"]);
        let routes: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(
            routes.iter().all(|r| r["shard"] == number.trim_start_matches("shard-").parse::<u64>().unwrap())
        );
        prefixes.extend(routes.into_iter().map(|r| (r["prefix"].to_string(), r["logical_shard"].clone())));
    }
    let mut names: Vec<&String> = prefixes.iter().map(|(prefix, _)| prefix).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len() as u64, prefixes.len() as u64), (IPV4 + IPV6, IPV4 + IPV6));
    let (prefix, logical) = prefixes.last().unwrap();
    let prefix = prefix.trim_matches('"');
    let expected = format!("{prefix} is in logical shard {logical}, on shard 1.\n");
    assert!(router.text(&["route", prefix]).ends_with(&expected), "{expected}");
    let text = router.text(&["route", "rib-sharding", "1"]);
    assert!(text.starts_with("shard-1: ") && text.contains(prefix), "{}", text.lines().next().unwrap());
    let main = router.text(&["route", "rib-sharding", "main"]);
    assert!(main.contains("203.0.113.0/24") && main.contains("blackhole"));
    assert!(router.complaint(&["route", "rib-sharding", "2"]).contains("there are 2, numbered from 0"));
}

fn groups(router: &Router) {
    let groups = router.json(&["bgp", "group", "clients"]);
    let [group] = groups.as_array().unwrap().as_slice() else { panic!("one group of clients: {groups}") };
    assert_eq!(group["configured"], serde_json::json!(["clients"]));
    assert_eq!(group["members"][0]["address"], "127.0.0.12");
    assert!(group["sent"]["announced"].as_u64().unwrap() >= IPV4 + IPV6, "{group}");
    assert!(group["prefixes_per_update"].as_f64().unwrap() > 1.0);
    let thread = &group["update_thread"];
    assert_eq!(router.json(&["bgp", "neighbor", "127.0.0.12"])["session"]["update_thread"], *thread);
    let text = router.text(&["bgp", "group"]);
    for expected in [
        "to route reflector clients of cluster 10.255.0.1",
        "Members 127.0.0.12",
        "1 member at 1 position: 0 full",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(router.complaint(&["bgp", "group", "missing"]).contains("no group \"missing\""));
}

fn next_hop_groups(router: &Router) {
    let change = |args: &[&str]| {
        let output = ribtide().args(args).arg("--socket").arg(router.socket()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = router.json(&["nexthop-group"]);
    assert_eq!(all["cache"]["mode"], "dependency");
    let groups = all["groups"].as_array().unwrap();
    // The group of the interface, of the blackhole, and those of BGP's next hops.
    assert!(groups.len() > 2, "{groups:?}");
    assert_eq!(router.json(&["route", "summary"])["main"]["next_hop_groups"], groups.len());
    let most = groups.iter().max_by_key(|g| g["installed_routes"].as_u64()).unwrap();
    assert!(most["installed"].as_bool().unwrap() && most["installed_routes"].as_u64().unwrap() > 100);
    assert!(
        all["cache"]["hits"].as_u64().unwrap() > 1000
            && all["cache"]["resolution_seconds"].as_f64().unwrap() > 0.0
    );
    let id = most["id"].to_string();
    let one = router.json(&["nexthop-group", &id]);
    assert_eq!(&one["groups"][0], most);
    let text = router.text(&["nexthop-group", &id]);
    assert!(
        text.contains(&format!("ID: {id}, VRF default\n")) && text.contains("Cache: kept up to date"),
        "{text}"
    );
    assert_eq!(router.text(&["nexthop-group"]).lines().count(), groups.len() + 4, "a head, and a line each");
    assert!(router.complaint(&["nexthop-group", "99999"]).contains("there is no next-hop group 99999"));
    // A route shows its groups.
    let routes = router.text(&["route", "--json"]);
    let route: Value = serde_json::from_str(routes.lines().next().unwrap()).unwrap();
    let shown = router.json(&["route", route["prefix"].as_str().unwrap()]);
    assert_eq!(shown["groups"]["received"], shown["groups"]["installed"]["group"]);
    assert_eq!(shown["groups"]["installed"]["protocol"], "ebgp");

    let expected = change(&["config", "fib", "nexthop-cache", "epoch"]);
    assert_eq!(expected, "the next-hop cache works by \"epoch\" now, by \"dependency\" before\n");
    let epoch = router.json(&["nexthop-group", &id]);
    assert_eq!((&epoch["cache"]["mode"], &epoch["groups"][0]["stamp"]), (&"epoch".into(), &0.into()));
    let config = router.folder.path().join("ribtide.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[fib]", "[fib]\nnexthop-cache = \"off\"")).unwrap();
    let expected = change(&["reload"]);
    assert!(expected.contains("the next-hop cache works by \"off\" now, by \"epoch\" before"), "{expected}");
    assert!(router.text(&["nexthop-group", &id]).contains("Cache: not cached"));
    std::fs::write(&config, text).unwrap();
    assert!(change(&["reload"]).contains("works by \"dependency\" now"));
}

fn threads(router: &Router) {
    let threads = router.json(&["threads"]);
    let names: Vec<&str> =
        threads["threads"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    for name in ["sessions", "reader-0", "shard-0", "shard-1", "egress-0", "egress-1", "rib", "api", "log"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for thread in threads["threads"].as_array().unwrap() {
        assert!(thread["cpu_percent"].as_f64().is_some() && thread["role"] != "", "{thread}");
    }
    let rings = threads["rings"].as_array().unwrap();
    for ring in rings {
        let name = ring["name"].as_str().unwrap();
        let bound = router_queue(name).and_then(|queue| queue.bound);
        assert_eq!(bound, ring["capacity"].as_u64(), "{name} in crates/runtime/src/registry.rs");
    }
    assert!(
        rings.iter().any(|r| r["name"] == "readers to shard 1" && r["sent"].as_u64() > Some(0)),
        "{rings:?}"
    );
    let stages = router.json(&["performance"]);
    let shard =
        stages.as_array().unwrap().iter().find(|s| s["stage"] == "shard-1").expect("two shard threads");
    for record in shard["records"].as_array().unwrap() {
        assert!(record["Tasks"].as_u64() >= Some(10_000) && record["API"] == "shard-1", "{record}");
    }
    assert!(router.text(&["performance"]).contains("egress-0"));
    assert!(router.text(&["performance", "rib"]).starts_with("rib: "));
    assert!(
        router.complaint(&["performance", "nothing"]).contains("there is no stage \"nothing\"; there are ")
    );
    let text = router.text(&["threads"]);
    assert!(text.contains("BGP: a RIB shard") && text.contains("readers to shard 0"), "{text}");
}

/// OpenMetrics text as its specification has it: every family described once, before its samples and together with
/// them, every sample of a described family, labels quoted, numbers, an end. Returns the samples by name and labels.
fn open_metrics(text: &str) -> Vec<(String, f64)> {
    let mut families: Vec<(String, String, String)> = Vec::new();
    let mut samples: Vec<(String, f64)> = Vec::new();
    let body = text.strip_suffix("# EOF\n").expect("an end");
    for line in body.lines() {
        if let Some(described) = line.strip_prefix("# ") {
            let mut words = described.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            if families.last().is_none_or(|(last, ..)| last != name) {
                assert!(families.iter().all(|(known, ..)| known != name), "{name} twice");
                families.push((name.into(), String::new(), String::new()));
            }
            let (_, kind, unit) = families.last_mut().unwrap();
            match what {
                "TYPE" => *kind = rest.into(),
                "UNIT" => *unit = rest.into(),
                "HELP" => assert!(rest.ends_with('.'), "{line}"),
                other => panic!("{other}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(labels.ends_with('}') && labels.matches('"').count() % 2 == 0, "{line}");
        let (family, kind, unit) = families.last().unwrap();
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => panic!("{line}"),
        };
        let is_of = |suffix: &&str| name == format!("{family}{suffix}");
        assert!(suffixes.iter().any(is_of), "a sample outside its family: {line}");
        assert!(unit.is_empty() || family.ends_with(&format!("_{unit}")), "{family} in {unit}");
        assert!(samples.iter().all(|(known, _)| known != series), "{series} twice");
        samples.push((series.into(), value.parse().unwrap()));
    }
    samples
}

fn metrics(router: &Router) {
    let (status, head, text) = router.http("GET /metrics");
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let text = unchunked(&head, text);
    let samples = open_metrics(&text);
    let value = |series: &str| {
        let sample = samples.iter().find(|(known, _)| known == series);
        sample.unwrap_or_else(|| panic!("no {series} in\n{text}")).1
    };
    let total = |name: &str, has: &str| -> f64 {
        let of = samples.iter().filter(|(s, _)| s.split('{').next() == Some(name) && s.contains(has));
        of.map(|(_, value)| value).sum()
    };
    assert_eq!(value("ribtide_unanswered_queries"), 0.0);
    assert!(value("ribtide_queue_batches_total{queue=\"readers to shard 0\"}") > 0.0);
    assert_eq!(value("ribtide_queue_depth{queue=\"workers to sessions\"}"), 0.0);
    assert_eq!(total("ribtide_bgp_shard_paths", "family=\"ipv4\""), 2.0 * IPV4 as f64);
    assert_eq!(total("ribtide_bgp_neighbor_up", ""), 3.0);
    assert_eq!(
        value("ribtide_bgp_neighbor_accepted{neighbor=\"127.0.1.5\",group=\"upstream\",family=\"ipv6\"}"),
        IPV6 as f64
    );
    assert_eq!(total("ribtide_bgp_neighbor_write_queue_stops_total", ""), 0.0);
    assert_eq!(total("ribtide_bgp_update_group_members", ""), 3.0);
    assert_eq!(value("ribtide_rib_routes{vrf=\"default\",family=\"ipv4\",protocol=\"ebgp\"}"), IPV4 as f64);
    assert_eq!(value("ribtide_rib_next_hop_cache_info{mode=\"dependency\"}"), 1.0);
    assert!(
        value("ribtide_rib_next_hop_cache_hits_total") > value("ribtide_rib_next_hop_cache_misses_total")
    );
    assert!(value("ribtide_thread_cpu_seconds_total{thread=\"shard-0\"}") > 0.0);
    // Every queue that `show pipeline` lists is there with bound and depth.
    for ring in router.json(&["pipeline"])["rings"].as_array().unwrap() {
        let labels = format!("{{queue={}}}", ring["name"]);
        assert_eq!(value(&format!("ribtide_queue_bound{labels}")), ring["capacity"].as_f64().unwrap());
        value(&format!("ribtide_queue_depth{labels}"));
        value(&format!("ribtide_queue_full_total{labels}"));
    }
}

/// The body of an answer that was sent in chunks.
fn unchunked(head: &str, body: String) -> String {
    if !head.contains("transfer-encoding: chunked") {
        return body;
    }
    let (mut whole, mut rest) = (String::new(), body.as_str());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

#[test]
fn wrong_requests_are_refused_in_json_with_what_to_do() {
    let router = Router::start("shards = 1\nupdate-threads = 1");
    for (request, status, expected) in [
        ("GET /v1/nothing", 404, "no endpoint /v1/nothing; docs/operations.md"),
        ("POST /v1/pipeline", 405, "/v1/pipeline does not take POST"),
        ("GET /v1/routes?limit=many", 400, "invalid digit"),
        ("GET /v1/routes?limit=0", 400, "a page holds 1 to 2000"),
        ("GET /v1/routes?lmit=5", 400, "unknown field `lmit`"),
        ("GET /v1/routes?prefix=10.0.0.0/33", 400, "10.0.0.0/33"),
        ("GET /v1/routes?cursor=7", 400, "a cursor is `next` of a page; begin again without a cursor"),
        ("GET /v1/routes?cursor=advertised-7", 400, "of the list \"advertised\", and this is \"routes\""),
        (
            "GET /v1/routes?age-under=soon",
            400,
            "age-under: \"soon\" is no duration; write seconds, or such as 90s",
        ),
        ("GET /v1/routes?shard=1", 404, "there are 1, numbered from 0"),
        ("GET /v1/explain", 400, "missing field `prefix`"),
        ("GET /v1/nexthop-groups?cursor=x", 400, "start again without one"),
        ("GET /v1/nexthop-groups?id=4000000000", 404, "no next-hop group 4000000000"),
        ("POST /v1/asic/lookup\n{", 400, "send JSON"),
        ("GET /v1/bgp/neighbors/banana", 400, "\"banana\" is no address"),
        ("GET /v1/bgp/neighbors/%ff", 400, "the path of the URL"),
        ("GET /v1/bgp/neighbors?cursor=x", 400, "\"x\" is no cursor"),
        ("GET /v1/bgp/neighbors?limit=257", 400, "a page holds 1 to 256"),
        ("POST /v1/bgp/clear\n{\"all\": true}", 403, "set api.token-file"),
    ] {
        let (got, head, body) = router.http(request);
        assert_eq!(got, status, "{request}: {body}");
        assert!(head.contains("content-type: application/json"), "{request}: {head}");
        let error: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{request}: {e}: {body}"));
        assert!(error["error"].as_str().unwrap().contains(expected), "{request}: {body}");
    }
}

#[test]
fn clear_with_an_unknown_field_clears_nothing_and_changes_are_logged() {
    let router = Router::start("shards = 1\nupdate-threads = 1");
    let _client = router.peers("sink", "127.0.0.13", &["--asn", "65001"]);
    let down = || router.log().lines().filter(|line| line.contains("is down")).count();
    until("it is up", || {
        router.log().contains("the session is up neighbor=127.0.0.13 asn=65001 group=clients")
    });
    for body in ["{\"neighbor\": \"127.0.0.13\"}", "{}", "{\"soft\": false}"] {
        let (status, _, expected) = router.unix(&format!("POST /v1/bgp/clear\n{body}"));
        assert_eq!(status, 400, "{body}: {expected}");
        if body.contains("neighbor") {
            let fields = ["unknown field `neighbor`", "`address`", "`all`", "`soft`"];
            assert!(fields.iter().all(|word| expected.contains(word)), "{expected}");
        }
    }
    for request in ["POST /v1/bgp/clear\n{\"all\": true}", "POST /v1/reload"] {
        let (status, _, expected) = router.http(request);
        assert!(status == 403 && expected.contains("api.token-file"), "{request}: {status} {expected}");
    }
    assert_eq!(down(), 0, "{}", router.log());
    let refused = [" WARN api: ", "caller=127.0.0.1:", "request=\"POST /v1/reload\"", "is refused"];
    until("the refusal is logged", || {
        router.log().lines().any(|line| refused.iter().all(|part| line.contains(part)))
    });
    // The command line uses the API.
    router.command(&["clear", "bgp", "neighbor", "all"]);
    until("the session has ended", || down() == 1);
    // A sink does not reconnect.
    let _again = router.peers("sink", "127.0.0.13", &["--asn", "65001"]);
    until("it is up again", || router.log().matches("the session is up").count() == 2);
    router.command(&["clear", "bgp", "neighbor", "127.0.0.13", "soft"]);
    router.command(&["config", "fib", "nexthop-cache", "epoch"]);
    router.command(&["reload"]);
    let uid = format!("uid {}", nix_uid());
    for expected in [
        "sessions begin again with all neighbors, 2 in number",
        "routes are exchanged again with neighbor 127.0.0.13, 1 in number",
        "the next-hop cache works by \"epoch\" now, by \"dependency\" before",
        "the next-hop cache works by \"dependency\" now, by \"epoch\" before",
    ] {
        let parts = [" INFO api: ", "request=\"POST ", &uid, ", pid ", expected];
        until(expected, || router.log().lines().any(|l| parts.iter().all(|part| l.contains(part))));
    }
}

/// The user of the test, and so of the command line.
fn nix_uid() -> String {
    let output = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn explain_has_stages_of_static_route_and_bgp_path() {
    let prefix = "11.0.0.0/24";
    let more = format!("[[static]]\nprefix = \"{prefix}\"\nnext-hop = [\"10.0.0.9\"]");
    let router = Router::start_with("shards = 1\nupdate-threads = 1", &more);
    let explained =
        || serde_json::from_str::<Value>(&router.command(&["explain", prefix, "--json"])).unwrap();
    let concludes = |why: &str| {
        let through = "the static route is all the way through: virtual switch has it";
        until(why, || explained()["conclusion"] == through);
        let stages = explained()["stages"].as_array().unwrap().clone();
        assert!(stages.iter().any(|s| s["stage"] == "static" && s["state"] == "passed"), "{why}: {stages:?}");
        stages
    };
    let expected = |stages: &[Value], stage: &str| {
        let stage = stages.iter().find(|s| s["stage"] == stage).unwrap();
        (stage["state"].as_str().unwrap().to_owned(), stage["messages"].to_string())
    };
    let (state, _) = expected(&concludes("BGP has nothing"), "bgp");
    assert_eq!(state, "absent");
    let table = ["--uniform", "--ipv4", "1", "--asn", "65002", "--next-hops", "1"];
    let announce = |from: &str, next_hops: &str| {
        let peer = router.peers("blast", from, &[&table[..], &["--next-hops4", next_hops]].concat());
        until("BGP has a path", || explained()["stages"][0]["messages"].to_string().contains(from));
        peer
    };
    // A BGP path that is unusable does not hide the static route.
    let unusable = announce("127.0.1.10", "192.168.77.0/24");
    until("it is not used", || explained()["stages"][0]["state"] == "stopped");
    let (_, why) = expected(&concludes("BGP has an unusable path"), "bgp");
    assert!(why.contains("not used: "), "{why}");
    drop(unusable);
    until("it is gone", || explained()["stages"][0]["state"] == "absent");
    // The best BGP path loses in the RIB manager, and both stages report it.
    let _worse = announce("127.0.1.11", "10.0.0.0/16");
    until("the RIB manager has it", || {
        explained()["stages"][0]["messages"]
            .to_string()
            .contains("the RIB manager does not take the best path")
    });
    let stages = concludes("BGP's path has the worse distance");
    let lower = "not used: the selected route has the lower distance 1";
    assert!(expected(&stages, "bgp").1.contains(lower), "{stages:?}");
    assert!(expected(&stages, "rib").1.contains(lower), "{stages:?}");
}

#[test]
fn bgp_without_own_threads_is_reported() {
    let (router, _peers) = loaded("shards = \"off\"\nupdate-threads = \"off\"");
    let summary = router.json(&["bgp", "summary"]);
    let off = "RIB sharding off, update threading off: all of BGP on the session thread";
    assert_eq!(
        (&summary["threading"]["mode"], &summary["threading"]["shard_threads"]),
        (&off.into(), &0.into())
    );
    let sharding = router.json(&["route", "rib-sharding"]);
    assert_eq!(sharding["shards"][0]["thread"], "sessions");
    assert_eq!(sharding["shards"][0]["logical_shards"].as_array().unwrap().len(), 64);
    assert!(sharding["shards"][0]["cpu_seconds"].is_null());
    assert_eq!(router.json(&["bgp", "neighbor", "127.0.0.12"])["session"]["update_thread"], "sessions");
}

#[test]
fn a_refused_session_is_logged_with_the_reason_and_a_stop_with_its_farewell() {
    let mut router = Router::start("shards = 1\nupdate-threads = 1");
    // AS 65009 where ours is configured.
    let _wrong = router.peers("sink", "127.0.0.12", &["--asn", "65009"]);
    let refused = "the neighbor gets no session neighbor=127.0.0.12 asn=65001 group=clients reason=\"NOTIFICATION sent \
                   (OPEN message error: bad peer AS)";
    until("the refusal is logged", || router.log().contains(refused));
    let _client = router.peers("sink", "127.0.0.13", &["--asn", "65001"]);
    until("it is up", || {
        router.log().contains("the session is up neighbor=127.0.0.13 asn=65001 group=clients")
    });
    let pid = router.process.0.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(router.process.0.wait().unwrap().success());
    let log = router.log();
    let farewell = "NOTIFICATION sent (cease: administrative shutdown)";
    assert!(
        log.lines().any(|l| l.contains("127.0.0.13") && l.contains("is down") && l.contains(farewell)),
        "{log}"
    );
}

/// What is known about a queue of the router, by its name.
fn router_queue(name: &str) -> Option<&'static QueueKind> {
    // What belongs to one of several ASICs has its name in front.
    let name = name.split_once(": ").map_or(name, |(_, name)| name);
    QUEUES.iter().find(|kind| kind.process == Process::Router && matches(kind.name, name))
}

/// Whether a name has the pattern of a kind.
fn matches(pattern: &str, name: &str) -> bool {
    if let Some((before, after)) = pattern.split_once("NAME") {
        let inside = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        return inside.is_some_and(|inside| !inside.is_empty() && !inside.contains(", "));
    }
    match pattern.strip_suffix('N') {
        Some(before) => {
            let number = name.strip_prefix(before);
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        }
        None => pattern == name,
    }
}

#[test]
fn router_queue_is_found_by_number_name_and_asic() {
    let bound = |name| router_queue(name).and_then(|queue| queue.bound);
    assert_eq!(bound("readers to shard 12"), Some(8));
    assert_eq!(bound("RIB to fpm-1"), Some(64));
    assert_eq!(bound("RIB to kernel, urgent"), Some(8));
    assert_eq!(bound("asic1: ROUTE_TABLE"), Some(64));
    assert_eq!((bound("readers to shard"), bound("ROUTE_TABLES")), (None, None));
}
