//! One run in one process: a table over a BGP session, through `ribtide run`, into its virtual
//! switch and to another BGP neighbour.

use super::run::{Case, Cost, Figures, Running, busy};
use crate::Error;
use crate::harness::{Place, Program, memory};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The router, the sender and the receiver.
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);
/// The time limit of the router's start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs it. The clock stops when the switch has all routes and the neighbour got them.
pub(super) fn run(case: &Case, limit: Duration, interrupted: &AtomicBool) -> Result<Figures, Error> {
    let place = Place::namespaces(ROUTER, &[SENDER, RECEIVER], 24)?;
    let mut it = Running::new(place)?;
    let (socket, file) = (it.path("ribtide.sock"), it.path("ribtide.toml"));
    std::fs::write(&file, configuration(case, &socket)).map_err(Error::System)?;
    let binary = std::env::current_exe().map_err(Error::System)?;
    let mut router = it.place.command(&binary.to_string_lossy());
    router.arg("run").arg("-c").arg(&file);
    it.program("ribtide", router)?;
    it.wait("the router", START_TIMEOUT, |_| chip(&socket).ok())?;
    if let Some(rate) = case.chip_rate {
        // Set now, so that the first timed operation is the first route.
        let mut set = Command::new(&binary);
        set.args(["config", "asic", "set", &format!("rate={rate}"), "--socket"]).arg(&socket);
        let done = set.output().map_err(Error::System)?;
        if !done.status.success() {
            let error = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(Error::Options(format!("the chip did not get its rate: {error}")));
        }
    }

    let (to, expected) = (format!("{ROUTER}:179"), u64::from(case.load.total()));
    let all = expected.to_string();
    let load = |words: &[&str], from: Ipv4Addr, asn: &str| {
        let (from, folder) = (from.to_string(), it.path(words[0]));
        std::fs::create_dir_all(&folder).map_err(Error::System)?;
        let mut command = it.place.load_command(&binary.to_string_lossy());
        command.args(words).args(["--to", &to, "--from", &from, "--router-id", &from, "--asn", asn]);
        command.args(["--wait", "30", "--quiet"]);
        Program::start(words[0], vec![command], &folder)
    };
    let mut receiver = load(&["sink", "--until-prefixes", &all], RECEIVER, "65020")?;
    std::thread::sleep(Duration::from_secs(1));
    memory::touch(case.load.memory());
    let before = it.cpu();
    let begin = Instant::now();
    let _sender = load(&["blast", "--ipv4", &all, "--hold", "3600"], SENDER, "65010")?;
    let share = it.wait("the last route", limit, |_| {
        let now = chip(&socket).ok()?;
        let there = now.routes >= expected && now.left_s == 0.0;
        let notified = there && matches!(receiver.runs(), Ok(false));
        (notified || interrupted.load(Relaxed)).then_some(now.busy)
    })?;
    let (wall_s, download_s) = (begin.elapsed().as_secs_f64(), (it.cpu() - before).as_secs_f64());
    let chip_busy = case.chip_rate.and(share);
    let quiet_s = it.quiet(begin, limit)?;
    let cpu_s = (it.cpu() - before).as_secs_f64();
    let peak = it.peak();
    let costs = [("ribtide".to_owned(), Cost { download_s, cpu_s, peak })].into();
    let (timers, ages, commands) = Default::default();
    Ok(Figures { wall_s, quiet_s, chip_busy, costs, reactions: None, timers, ages, commands })
}

/// The state of the switch.
struct Chip {
    routes: u64,
    left_s: f64,
    /// The share of busy time.
    busy: Option<f64>,
}

/// The state of the switch over the router's API: a process per query would cost as much as the
/// routes of 10 ms.
fn chip(socket: &Path) -> io::Result<Chip> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"GET /v1/asic HTTP/1.1\r\nhost: ribtide\r\nconnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let body = reply.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let state: Value = serde_json::from_str(body)?;
    let missing = || io::Error::other("the router reports no routes in its switch");
    Ok(Chip {
        routes: state["entries"]["ipv4-routes"].as_u64().ok_or_else(missing)?,
        left_s: state["left_seconds"].as_f64().ok_or_else(missing)?,
        busy: busy(&state),
    })
}

fn configuration(case: &Case, socket: &Path) -> String {
    let group = |name: &str, asn: u32, policy: &str, neighbor: Ipv4Addr| {
        format!(
            "[bgp.group.{name}]\ntype = \"external\"\npeer-asn = {asn}\npassive = true\n{policy} = [\"accept\"]\n\
             neighbors = [\"{neighbor}\"]\n\n"
        )
    };
    format!(
        "[router]\nasn = 65001\nrouter-id = \"{ROUTER}\"\n\n[bgp]\nlisten = [\"{ROUTER}:179\"]\n\n{}{}\
         [fib]\nvirtual-asic = {{ lab = true }}\nsuppress-fib-pending = {}\n\n\
         [[interface]]\nname = \"Ethernet0\"\naddresses = [\"10.0.255.254/16\", \"{ROUTER}/24\"]\n\n\
         [api]\nsocket = \"{}\"\n",
        group("sender", 65010, "import", SENDER),
        group("receiver", 65020, "export", RECEIVER),
        case.flags.confirmed,
        socket.display(),
    )
}
