//! VRFs of a running router down to the virtual ASIC: the real binary, its commands, and reloads of
//! its configuration.

use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// The time limit of every wait in these tests.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

const PORTS: &str = r#"
[router]
asn = 65001
router-id = "10.255.0.1"
[fib]
virtual-asic = true
[[interface]]
name = "Ethernet0"
addresses = ["10.0.0.254/24", "2001:db8::ff/64"]
neighbors = [{ address = "10.0.0.1", mac = "02:00:00:00:00:01" }]
[[interface]]
name = "Ethernet4"
addresses = ["10.0.0.254/24", "2001:db8::ff/64"]
neighbors = [{ address = "10.0.0.2", mac = "02:00:00:00:00:02" }]
[[interface]]
name = "Ethernet8"
addresses = ["10.0.8.254/24"]
neighbors = [{ address = "10.0.8.3", mac = "02:00:00:00:00:03" }]
"#;

const DEFAULT: &str = r#"
[[static]]
prefix = "192.0.2.0/24"
next-hop = ["10.0.0.1"]
"#;

const RED: &str = r#"
[vrf.Vrfred]
interfaces = ["Ethernet4"]
[[vrf.Vrfred.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.0.0.2"]
[[vrf.Vrfred.static]]
prefix = "198.51.100.0/24"
next-hop = ["10.0.8.3"]
"#;

const BLUE: &str = r#"
[vrf.Vrfblue]
interfaces = ["Ethernet8"]
[[vrf.Vrfblue.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.0.8.3"]
"#;

struct Router {
    process: Child,
    folder: tempfile::TempDir,
}

impl Router {
    fn start(config: &[&str]) -> Router {
        Router::start_by(ribtide(), config)
    }

    /// Started by a command that takes ribtide's arguments.
    fn start_by(mut command: Command, config: &[&str]) -> Router {
        let folder = tempfile::tempdir().unwrap();
        let errors = File::create(folder.path().join("stderr")).unwrap();
        write(&folder, config);
        let file = folder.path().join("ribtide.toml");
        let process = command.arg("run").arg("-c").arg(file).stderr(errors).spawn().unwrap();
        let router = Router { process, folder };
        until("the router replies", || router.run(&["show", "pipeline"]).status.success());
        router
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    fn run(&self, what: &[&str]) -> Output {
        ribtide().args(what).arg("--socket").arg(self.socket()).output().unwrap()
    }

    fn text(&self, what: &[&str]) -> String {
        let output = self.run(what);
        assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, what: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[what, &["--json"]].concat())).unwrap()
    }

    /// Changes the configuration and returns the output of `ribtide reload`.
    fn reload(&self, config: &[&str]) -> String {
        write(&self.folder, config);
        self.text(&["reload"])
    }

    /// The chip's next hop for an address, or its action.
    fn asic(&self, vrf: Option<&str>, address: &str) -> String {
        let of = vrf.map(|vrf| ["--vrf", vrf]);
        let reply =
            self.json(&[&["show", "asic", address][..], of.as_ref().map_or(&[], |of| &of[..])].concat());
        let reply = &reply["lookups"][0];
        let hop = reply["next_hops"][0].as_str();
        hop.unwrap_or_else(|| reply["action"].as_str().unwrap()).to_owned()
    }

    /// Waits for that next hop.
    fn expect_next_hop(&self, vrf: Option<&str>, address: &str, to: &str) {
        until(&format!("{address} in {vrf:?} is sent to {to}"), || self.asic(vrf, address) == to);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default());
        }
    }
}

fn ribtide() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ribtide"))
}

fn write(folder: &tempfile::TempDir, config: &[&str]) {
    let api = format!("[api]\nsocket = \"{}\"\n", folder.path().join("api.sock").display());
    std::fs::write(folder.path().join("ribtide.toml"), [config, &[&api]].concat().concat()).unwrap();
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < TEST_TIMEOUT, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_prefix_has_its_next_hop_in_each_vrf_through_reloads() {
    let router = Router::start(&[PORTS, DEFAULT, RED]);
    let red = Some("Vrfred");
    router.expect_next_hop(None, "192.0.2.1", "10.0.0.1");
    router.expect_next_hop(red, "192.0.2.1", "10.0.0.2");
    // Connected routes are in the VRF of their interface.
    router.expect_next_hop(None, "10.0.8.3", "to-link-or-cpu");
    router.expect_next_hop(red, "10.0.0.1", "to-link-or-cpu");
    assert_eq!(router.asic(red, "10.0.8.3"), "drop");
    // A gateway of the default VRF is unresolved in another.
    assert_eq!(router.asic(red, "198.51.100.1"), "drop");

    views(&router);

    // Blue takes an interface of the default VRF, whose own routes stay.
    let output = router.reload(&[PORTS, DEFAULT, RED, BLUE]);
    assert!(output.contains("VRFs added: Vrfblue"), "{output}");
    let blue = Some("Vrfblue");
    router.expect_next_hop(blue, "192.0.2.1", "10.0.8.3");
    router.expect_next_hop(red, "192.0.2.1", "10.0.0.2");
    router.expect_next_hop(None, "192.0.2.1", "10.0.0.1");
    router.expect_next_hop(blue, "10.0.8.3", "to-link-or-cpu");
    router.expect_next_hop(None, "10.0.8.3", "drop");

    // Red is removed; its interface returns to the default VRF.
    let output = router.reload(&[PORTS, DEFAULT, BLUE]);
    assert!(output.contains("VRFs removed: Vrfred"), "{output}");
    let refused =
        String::from_utf8(router.run(&["show", "asic", "192.0.2.1", "--vrf", "Vrfred"]).stderr).unwrap();
    assert!(refused.contains("there is no VRF Vrfred; there are: default, Vrfblue"), "{refused}");
    router.expect_next_hop(blue, "192.0.2.1", "10.0.8.3");
    router.expect_next_hop(None, "192.0.2.1", "10.0.0.1");
    let connected = || router.json(&["show", "fib", "10.0.0.0/24"])["hops"].as_array().unwrap().len();
    until("Ethernet4 is back", || connected() == 2);

    // Red is added again with another route.
    let output = router.reload(&[PORTS, DEFAULT, BLUE, &RED.replace("192.0.2.0/24", "203.0.113.0/24")]);
    assert!(output.contains("VRFs added: Vrfred"), "{output}");
    router.expect_next_hop(red, "203.0.113.1", "10.0.0.2");
    assert_eq!(router.asic(red, "192.0.2.1"), "drop");

    // Static routes change alone.
    let output = router.reload(&[PORTS, BLUE, &RED.replace("198.51.100.0/24", "198.51.100.128/25")]);
    assert!(output.contains("other static routes in VRF: default, Vrfred"), "{output}");
    router.expect_next_hop(red, "192.0.2.1", "10.0.0.2");
    router.expect_next_hop(red, "203.0.113.1", "drop");
    router.expect_next_hop(None, "192.0.2.1", "drop");
    router.expect_next_hop(blue, "192.0.2.1", "10.0.8.3");
}

fn views(router: &Router) {
    let route = |what: &[&str]| router.json(what);
    let red = route(&["show", "route", "vrf", "Vrfred", "192.0.2.0/24"]);
    assert_eq!((&red["vrf"], &red["protocol"]), (&"Vrfred".into(), &"static".into()));
    assert_eq!(red["hops"][0], "via 10.0.0.2 dev Ethernet4");
    let default = route(&["show", "route", "vrf", "default", "192.0.2.7"]);
    assert_eq!((&default["vrf"], &default["prefix"]), (&"default".into(), &"192.0.2.0/24".into()));
    assert_eq!(default["hops"][0], "via 10.0.0.1 dev Ethernet0");
    assert_ne!(red["group"], default["group"]);

    let groups = route(&["show", "nexthop-group", "--vrf", "Vrfred"]);
    let groups = groups["groups"].as_array().unwrap();
    assert!(!groups.is_empty() && groups.iter().all(|g| g["vrf"] == "Vrfred"));
    let one = router.text(&["show", "nexthop-group", &red["group"].to_string()]);
    assert!(one.contains(", VRF Vrfred\n"), "{one}");
    let all = route(&["show", "nexthop-group"])["groups"].as_array().unwrap().len();
    assert!(all > groups.len());

    let summary = route(&["show", "route", "summary"]);
    let count = |table: &Value| {
        let of_static =
            table["protocols"].as_array().unwrap().iter().find(|p| p["protocol"] == "static").unwrap();
        (of_static["routes"].as_u64().unwrap(), of_static["active"].as_u64().unwrap())
    };
    assert_eq!((count(&summary["main"]), count(&summary["vrfs"][0])), ((1, 1), (2, 1)));
    assert_eq!(summary["vrfs"][0]["vrf"], "Vrfred");

    let explained = router.text(&["explain", "192.0.2.1", "--vrf", "Vrfred"]);
    assert!(explained.starts_with("192.0.2.1 is in 192.0.2.0/24, VRF Vrfred\n"), "{explained}");
    assert!(explained.contains("nexthop_group") || explained.contains("nexthop="), "{explained}");
    assert!(explained.contains("sends to 10.0.0.2 (02:00:00:00:00:02) on Ethernet4"), "{explained}");
    assert!(explained.contains("virtual switch has it"), "{explained}");
    let unresolved = router.text(&["explain", "198.51.100.0/24", "--vrf", "Vrfred"]);
    assert!(unresolved.contains("next hop 10.0.8.3 does not resolve"), "{unresolved}");
    let refused = String::from_utf8(router.run(&["explain", "192.0.2.1", "--vrf", "red"]).stderr).unwrap();
    assert!(refused.contains("there is no VRF red; there are: default, Vrfred"), "{refused}");
}

#[test]
fn an_interface_that_is_another_vrfs_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let leak = "[[static]]\nprefix = \"203.0.113.0/24\"\ninterface = \"Ethernet4\"\n";
    write(&folder, &[PORTS, leak, RED, "[vrf.green]\ntable = 7\ninterfaces = [\"Ethernet4\", \"eth9\"]\n"]);
    let output = ribtide().arg("check").arg("-c").arg(folder.path().join("ribtide.toml")).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for expected in [
        "Ethernet4 is in another VRF, and a route cannot leave its own",
        "write [vrf.Vrfgreen]",
        "table is the kernel's, and fib.kernel is off",
        "Ethernet4 is in VRF Vrfred already",
        "there is no [[interface]] named \"eth9\"",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

/// A network namespace that goes with the test.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Option<Namespace> {
        let namespace = Namespace(format!("ribtide-{}-{name}", std::process::id()));
        let made = Command::new("ip").args(["netns", "add", &namespace.0]).output();
        made.is_ok_and(|made| made.status.success()).then_some(namespace)
    }

    /// The output of `ip` in it.
    fn ip(&self, arguments: &str) -> String {
        let output = Command::new("ip").args(["-n", &self.0]).args(arguments.split(' ')).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The prefixes and next hops of a table, without those of other protocols.
    fn table(&self, number: u32) -> Vec<String> {
        let shown = self.ip(&format!("route show table {number} proto bgp"));
        let next_hop = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let after = |word: &str| words.iter().skip_while(|w| **w != word).nth(1).copied().unwrap_or("-");
            format!("{} via {} dev {}", words[0], after("via"), after("dev"))
        };
        shown.lines().map(next_hop).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

const KERNEL: &str = r#"
[router]
asn = 65001
router-id = "10.255.0.1"
[fib]
kernel = { table = 1000, compat-mode = true }
[[static]]
prefix = "192.0.2.0/24"
next-hop = ["10.0.0.2"]
"#;

const KERNEL_RED: &str = r#"
[vrf.red]
table = 1001
interfaces = ["v1"]
[[vrf.red.static]]
prefix = "192.0.2.0/24"
next-hop = ["10.0.1.2"]
"#;

const SECOND: &str = r#"
[[vrf.red.static]]
prefix = "203.0.113.0/24"
next-hop = ["10.0.1.2"]
"#;

const OF_RED: &str = r#"
[policy.prefix-set.one]
prefixes = ["192.0.2.0/24"]
[[policy.definition.of-red.statement]]
conditions.match-prefix-set = "one"
actions = { set-source = "10.7.7.8", policy-result = "accept" }
[[policy.definition.of-red.statement]]
actions.policy-result = "reject"
"#;

#[test]
fn the_kernel_has_a_table_for_each_vrf() {
    let Some(namespace) = Namespace::new("vrfs") else {
        println!("skipped: network namespaces need root and the command ip");
        return;
    };
    for (a, b, net) in [("v0", "p0", 0), ("v1", "p1", 1)] {
        namespace.ip(&format!("link add {a} type veth peer name {b}"));
        namespace.ip(&format!("addr add 10.0.{net}.1/24 dev {a}"));
        namespace.ip(&format!("link set {b} up"));
        namespace.ip(&format!("link set {a} up"));
    }
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", &namespace.0, env!("CARGO_BIN_EXE_ribtide")]);
    let router = Router::start_by(inside, &[KERNEL, KERNEL_RED]);
    let has = |table, wanted: &[&str]| {
        until(&format!("table {table} has {wanted:?}"), || namespace.table(table) == wanted);
    };
    let (default, red) = (["192.0.2.0/24 via 10.0.0.2 dev v0"], ["192.0.2.0/24 via 10.0.1.2 dev v1"]);
    has(1000, &default);
    has(1001, &red);
    // A link of one VRF fails; the other VRF's routes stay.
    namespace.ip("link set v1 down");
    has(1001, &[]);
    assert_eq!(namespace.table(1000), default);
    namespace.ip("link set v1 up");
    has(1001, &red);
    // The kernel's own routes are learnt where they are.
    namespace.ip("route add 198.51.100.0/24 via 10.0.1.2 table 1001");
    let learnt = |vrf: &str| router.run(&["show", "route", "vrf", vrf, "198.51.100.0/24"]).status.success();
    until("red learns a route", || learnt("red"));
    assert!(!learnt("default"));
    // Red has a policy and a source address, which change.
    let red_and = |settings: &str, rest: &str| {
        let settings = format!("table = 1001\n{settings}\n");
        router.reload(&[KERNEL, &KERNEL_RED.replace("table = 1001\n", &settings), SECOND, rest])
    };
    let second = "203.0.113.0/24 via 10.0.1.2 dev v1";
    assert!(red_and("", "").contains("other static routes in VRF: red"));
    has(1001, &[red[0], second]);
    let source = |prefix: &str| {
        let shown = namespace.ip(&format!("route show table 1001 proto bgp {prefix}"));
        shown.split(" src ").nth(1).and_then(|after| after.split(' ').next()).map(str::to_owned)
    };
    let is_from = |prefix: &str, address: &str| {
        until(&format!("{prefix} is from {address}"), || source(prefix).as_deref() == Some(address));
    };
    namespace.ip("addr add 10.7.7.7/32 dev v1");
    namespace.ip("addr add 10.7.7.8/32 dev v1");
    let output = red_and("source = [\"10.7.7.7\"]", "");
    assert!(output.contains("another policy for routes to the FIB in VRF: red"), "{output}");
    is_from("192.0.2.0/24", "10.7.7.7");
    is_from("203.0.113.0/24", "10.7.7.7");
    red_and("source = [\"10.7.7.7\"]\npolicy.static = [\"of-red\"]", OF_RED);
    is_from("192.0.2.0/24", "10.7.7.8");
    has(1001, &red);
    let explain = |prefix: &str| router.text(&["explain", prefix, "--vrf", "red"]);
    assert!(explain("203.0.113.0/24").contains("vrf.red denies it"));
    assert!(explain("192.0.2.0/24").contains("vrf.red gives it the source address 10.7.7.8"));
    assert_eq!(namespace.table(1000), default);
    assert!(!namespace.ip("route show table 1000 proto bgp").contains("src"));
    red_and("", "");
    has(1001, &[red[0], second]);
    until("no source address is left", || source("192.0.2.0/24").is_none());
    router.reload(&[KERNEL, KERNEL_RED]);
    has(1001, &red);
    // Red is removed with its table.
    assert!(router.reload(&[KERNEL]).contains("VRFs removed: red"));
    has(1001, &[]);
    assert_eq!(namespace.table(1000), default);
    assert!(router.reload(&[KERNEL, KERNEL_RED]).contains("VRFs added: red"));
    has(1001, &red);
    // A missing device is reported at once, and the configuration stays.
    write(&router.folder, &[KERNEL, "[vrf.blue]\n"]);
    let refused = String::from_utf8(router.run(&["reload"]).stderr).unwrap();
    assert!(refused.contains("VRF blue: the kernel has no VRF device of that name"), "{refused}");
    assert_eq!(namespace.table(1001), red);
}
