//! Selected routes, FPM servers, the virtual ASIC, and the path of a prefix through all of them.

use crate::text::{Table, bytes, duration, number};
use ribtide_model::{AsicLookups, Explain, FailedRoute, FibRoute, Fpm, StageState};
use ribtide_settings::DEFAULT_VRF;
use std::net::IpAddr;

pub(super) fn fib_table() -> Table {
    Table::new(&["Prefix", "Protocol", ">Dist", ">Group", ">Age", "Next hops", "Dataplanes"])
}

pub(super) fn fib_row(table: &mut Table, r: &FibRoute) {
    let plane = |d: &ribtide_model::DataplaneState| {
        let reason = d.reason.as_ref().map_or(String::new(), |w| format!(" ({w})"));
        format!("{} {}{reason}", d.name, d.state)
    };
    table.row([
        r.prefix.clone(),
        r.protocol.clone(),
        r.distance.to_string(),
        r.group.map_or("-".into(), |g| g.to_string()),
        super::route::age(r.age_seconds),
        r.hops.join(", "),
        r.dataplanes.iter().map(plane).collect::<Vec<_>>().join(", "),
    ]);
}

pub(super) fn failed_table() -> Table {
    Table::new(&["VRF", "Prefix", "Dataplane", ">For", "Why"])
}

pub(super) fn failed_row(table: &mut Table, r: &FailedRoute) {
    table.row([
        r.vrf.clone(),
        r.prefix.clone(),
        r.dataplane.clone(),
        format!("{:.0} s", r.seconds),
        r.reason.clone(),
    ]);
}

pub(super) fn asic_table(addresses: &[IpAddr], reply: &AsicLookups) -> String {
    let mut table = Table::new(&["Address", "Action", "Prefix", "Next hops"]);
    for (address, a) in addresses.iter().zip(&reply.lookups) {
        let next_hops: Vec<String> = a.next_hops.iter().map(IpAddr::to_string).collect();
        table.row([
            address.to_string(),
            a.action.clone(),
            a.prefix.clone().unwrap_or_else(|| "-".into()),
            if next_hops.is_empty() { "-".into() } else { next_hops.join(", ") },
        ]);
    }
    table.render()
}

pub(super) fn fpm(f: &Fpm) -> String {
    if f.clients.is_empty() {
        return "No FPM server is configured; fib.fpm names them.\n".into();
    }
    let mut out = String::new();
    for c in &f.clients {
        let state = if c.connected { "connected" } else { "not connected; it is tried every 3 s" };
        out += &format!("{} to {}: {state}\n", c.name, c.server);
        let mut row = |name: &str, text: String| out += &format!("  {name:<12} {text}\n");
        row(
            "Connections",
            format!(
                "{} made, {} attempts failed, {} ended, {} of them for bytes that are no FPM",
                number(c.connects),
                number(c.failed_connects),
                number(c.closes),
                number(c.errors)
            ),
        );
        row(
            "Batches",
            format!(
                "{} written, {} waiting; the queue was full {} times",
                number(c.batches),
                number(c.waiting),
                number(c.queue_full)
            ),
        );
        row("Routes", format!("{} sent, {} deleted", number(c.routes), number(c.deletes)));
        row(
            "Bytes",
            format!(
                "{} sent, {} read; {:.2} s waited for the server to read",
                bytes(c.bytes_sent),
                bytes(c.bytes_read),
                c.stalled_seconds
            ),
        );
        row(
            "Replies",
            format!(
                "{} offloaded, {} refused by the hardware, {} possibly of replaced routes; {} sent again",
                number(c.offloaded),
                number(c.offload_failed),
                number(c.unmatched),
                number(c.resent)
            ),
        );
        if c.is_compared {
            let repaired: Vec<String> = c
                .repairs
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(kind, count)| format!("{} {kind}", number(*count)))
                .collect();
            let repaired = if repaired.is_empty() { "nothing".into() } else { repaired.join(", ") };
            let failed = match c.repairs_failed {
                0 => String::new(),
                failed => format!("; {} not taken by the server", number(failed)),
            };
            row(
                "Comparison",
                format!(
                    "{} rounds, the last one in {:.1} s, {} routes; repaired: {repaired}{failed}",
                    number(c.compare_rounds),
                    c.compare_round_seconds,
                    number(c.compared_routes)
                ),
            );
        }
        match c.replies.as_deref() {
            Some("in-chip") => row("Replies when", "the chip has a route".into()),
            Some(_) => row("Replies when", "it has read a route, before the chip has it".into()),
            None => {}
        }
        if let Some(sentence) = &c.disagreement {
            row("Warning", sentence.clone());
        }
    }
    out
}

pub(crate) fn explain_text(e: &Explain) -> String {
    let vrf = if e.vrf == DEFAULT_VRF { String::new() } else { format!(", VRF {}", e.vrf) };
    let mut out = match &e.prefix {
        Some(prefix) if *prefix != e.query => format!("{} is in {prefix}{vrf}\n", e.query),
        _ => format!("{}{vrf}\n", e.query),
    };
    for s in &e.stages {
        let mark = match s.state {
            StageState::Passed => "+",
            StageState::Waiting => "~",
            StageState::Stopped => "x",
            StageState::Absent => "-",
            StageState::Off => " ",
        };
        let mut sentences = s.messages.iter();
        let since = s.seconds.map_or(String::new(), |seconds| format!(" (for {})", duration(seconds)));
        out.push_str(&format!(
            "{mark} {:<14} {}{since}\n",
            s.stage,
            sentences.next().map_or("", String::as_str)
        ));
        for line in sentences {
            out.push_str(&format!("  {:<14} {line}\n", ""));
        }
    }
    out.push_str(&format!("=> {}\n", e.conclusion));
    out
}
