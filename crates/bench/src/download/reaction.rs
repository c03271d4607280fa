//! Reaction times under load, until the switch forwards accordingly: a route that another producer
//! writes to ROUTE_TABLE, from the row in APPL_DB on, and a link of the switch that goes down or up.

use super::redis::Redis;
use super::run::query_switch;
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
/// The interval between queries of the switch.
const REACTION_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait; longer reactions are reported as this.
const REACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two measurements.
const REACTION_PAUSE: Duration = Duration::from_millis(100);

/// Reaction times in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Reactions {
    /// Urgent routes that were written; the switch has them in the end.
    pub routes: usize,
    /// Of each urgent route.
    pub route_ms: Vec<f64>,
    /// Of each link event.
    pub link_ms: Vec<f64>,
}

/// Sets up the second port.
pub(super) fn prepare(appl: &mut Redis) -> io::Result<()> {
    let lanes = ["lanes", "5,6,7,8", "speed", "40000", "admin_status", "up"];
    appl.set("PORT_TABLE", PORT, &lanes)?;
    appl.set("INTF_TABLE", PORT, &["NULL", "NULL"])?;
    appl.set("INTF_TABLE", &format!("{PORT}:10.1.0.1/24"), &["scope", "global", "family", "IPv4"])?;
    appl.set("NEIGH_TABLE", &format!("{PORT}:10.1.0.2"), &["neigh", "02:00:00:00:01:02", "family", "IPv4"])
}

/// Writes the route through both ports. fpmsyncd runs by then, because it deletes at its start what
/// zebra does not announce.
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
            || query_switch(socket, &format!("route {prefix}")).is_ok_and(|reply| !reply.is_null()),
        )?);
        for (status, hops) in [("down", 1), ("up", 2)] {
            all.link_ms.extend(timed(
                done,
                || query_switch(socket, &format!("port {PORT} {status}")).map(drop),
                || {
                    let reply = query_switch(socket, &format!("lookup {address}")).unwrap_or(Value::Null);
                    reply.get("hops").and_then(Value::as_array).is_some_and(|found| found.len() == hops)
                },
            )?);
        }
        if done.load(Relaxed) {
            break;
        }
        std::thread::sleep(REACTION_PAUSE);
    }
    Ok(all)
}

/// The milliseconds until the reaction; `None` when the load ended before.
fn timed(
    done: &AtomicBool,
    write: impl FnOnce() -> io::Result<()>,
    seen: impl Fn() -> bool,
) -> io::Result<Option<f64>> {
    let under_load = !done.load(Relaxed);
    let begin = Instant::now();
    write()?;
    while !seen() && begin.elapsed() < REACTION_TIMEOUT {
        std::thread::sleep(REACTION_POLL_INTERVAL);
    }
    Ok(under_load.then(|| begin.elapsed().as_secs_f64() * 1000.0))
}
