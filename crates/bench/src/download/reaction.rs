//! How long one urgent thing takes while a load is under way: a route that another producer writes to ROUTE_TABLE, and a
//! port whose link goes down or comes up, from the row in APPL_DB until the switch forwards otherwise.

use super::redis::Redis;
use super::run::ask;
use crate::harness::place::PROGRAM_LINK;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The port whose link goes down and up.
const PORT: &str = "Ethernet4";
/// A route through both ports, which has one next hop while that port is down.
const BOTH: &str = "100.127.0.0/24";
/// How often the switch is asked.
const REACTION_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait; a load that takes longer to let something through is told as this.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause between two.
const PAUSE: Duration = Duration::from_millis(100);

/// Milliseconds.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Reactions {
    /// Urgent routes that were written; the switch has them in the end.
    pub routes: usize,
    /// Of each urgent route.
    pub route_ms: Vec<f64>,
    /// Of each change of the link.
    pub link_ms: Vec<f64>,
}

/// The second port, when the switch is set up.
pub(super) fn prepare(appl: &mut Redis) -> io::Result<()> {
    let lanes = ["lanes", "5,6,7,8", "speed", "40000", "admin_status", "up", "oper_status", "up"];
    appl.set("PORT_TABLE", PORT, &lanes)?;
    appl.set("INTF_TABLE", PORT, &["NULL", "NULL"])?;
    appl.set("INTF_TABLE", &format!("{PORT}:10.1.0.1/24"), &["scope", "global", "family", "IPv4"])?;
    appl.set("NEIGH_TABLE", &format!("{PORT}:10.1.0.2"), &["neigh", "02:00:00:00:01:02", "family", "IPv4"])
}

/// The route through both ports. fpmsyncd runs by then: it deletes what it finds at its start and zebra does not announce.
pub(super) fn begin(appl: &mut Redis) -> io::Result<()> {
    let ports = format!("{PROGRAM_LINK},{PORT}");
    appl.set("ROUTE_TABLE", BOTH, &["protocol", "static", "nexthop", "10.0.0.2,10.1.0.2", "ifname", &ports])
}

/// Measures one after the other until `done`.
pub(super) fn measure(mut appl: Redis, socket: &Path, done: &AtomicBool) -> io::Result<Reactions> {
    let mut all = Reactions::default();
    for n in 0..=255_u8 {
        let (address, prefix) = ("100.127.0.1", format!("100.64.{n}.0/24"));
        all.routes += 1;
        let route = ["protocol", "static", "nexthop", "10.0.0.2", "ifname", PROGRAM_LINK];
        all.route_ms.extend(timed(
            done,
            || appl.set("ROUTE_TABLE", &prefix, &route),
            || ask(socket, &format!("route {prefix}")).is_ok_and(|answer| !answer.is_null()),
        )?);
        for (status, hops) in [("down", 1), ("up", 2)] {
            all.link_ms.extend(timed(
                done,
                || appl.set("PORT_TABLE", PORT, &["oper_status", status]),
                || {
                    let answer = ask(socket, &format!("lookup {address}")).unwrap_or(Value::Null);
                    answer.get("hops").and_then(Value::as_array).is_some_and(|found| found.len() == hops)
                },
            )?);
        }
        if done.load(Relaxed) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(all)
}

/// Milliseconds until it is seen; `None` when the load was over before it began.
fn timed(
    done: &AtomicBool,
    write: impl FnOnce() -> io::Result<()>,
    seen: impl Fn() -> bool,
) -> io::Result<Option<f64>> {
    let under_load = !done.load(Relaxed);
    let begin = Instant::now();
    write()?;
    while !seen() && begin.elapsed() < LIMIT {
        std::thread::sleep(REACTION_POLL_INTERVAL);
    }
    Ok(under_load.then(|| begin.elapsed().as_secs_f64() * 1000.0))
}
