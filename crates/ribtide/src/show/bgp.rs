//! BGP: the summary, neighbours, update groups.

use crate::text::{Table, bytes, count, duration, number, wrap};
use ribtide_model::{
    BgpSummary, Group, GroupMember, GroupTotal, LastNotification, MaxPrefixes, Messages, Neighbor,
    PeerRestart, PerFamilyCount, Restart, SentPaths, Session, Stale, TcpAo, TcpConnection, WaitingInterface,
};
use ribtide_prefix::AfiSafi;
use std::collections::BTreeMap;

/// The summary without neighbours.
pub(super) fn summary(s: &BgpSummary) -> String {
    let mut out = format!(
        "Router {}, AS {}, up {}\nThreading: {}\n{}: {} established, {} down; {}; {}; {} refused{}\n\n",
        s.router_id,
        s.asn,
        duration(s.uptime_seconds),
        s.threading.mode,
        count(s.neighbor_count as u64, "neighbour"),
        s.established,
        s.neighbor_count - s.established.min(s.neighbor_count),
        count(s.flaps, "flap"),
        count(s.update_groups as u64, "update group"),
        count(s.rejected_connections, "connection"),
        reasons(&s.rejected_by_reason),
    );
    if let Some(Restart { awaited, seconds_left }) = &s.restart {
        out.push_str(&format!(
            "Restarted: nothing is advertised until {} sent all routes, for {} at most (RFC 4724)\n\n",
            match awaited {
                1 => "1 more neighbour has".into(),
                n => format!("{n} more neighbours have"),
            },
            duration(*seconds_left),
        ));
    }
    let mut table = Table::new(&["Family", ">Prefixes", ">Paths", ">Active"]);
    for (family, afi) in FAMILIES {
        let of = |count: PerFamilyCount| number(count.of(afi));
        table.row([family.into(), of(s.prefixes), of(s.paths), of(s.active)]);
    }
    out.push_str(&table.render());
    for WaitingInterface { interface, group, reason } in &s.waiting_interfaces {
        out.push_str(&format!("{interface} (group {group}) has no neighbor: {reason}\n"));
    }
    out.push('\n');
    out
}

/// Numbers by reason, in parentheses; empty without any.
fn reasons(numbers: &BTreeMap<String, u64>) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = numbers.iter().map(|(why, n)| format!("{n} {why}")).collect();
    format!(" ({})", parts.join(", "))
}

/// The families by name.
pub(super) const FAMILIES: [(&str, AfiSafi); 2] =
    [("IPv4", AfiSafi::Ipv4Unicast), ("IPv6", AfiSafi::Ipv6Unicast)];

pub(super) fn neighbor_table() -> Table {
    Table::new(&[
        "Neighbor",
        ">AS",
        "Kind",
        "State",
        ">For",
        ">Flaps",
        ">In",
        ">Out",
        ">Accepted",
        ">Active",
        ">Advertised",
        ">Max prefixes",
        ">Out queue",
        "Group",
        "Last reset",
    ])
}

/// The number of routes where RFC 8212 permits none.
const NO_POLICY: &str = "no policy";

pub(super) fn neighbor_row(table: &mut Table, n: &Neighbor) {
    let of =
        |f: fn(&Session) -> PerFamilyCount| n.session.as_ref().map_or("-".into(), |s| number(f(s).total()));
    let messages =
        |f: fn(&Session) -> Messages| n.session.as_ref().map_or("-".into(), |s| number(f(s).total()));
    let queue = n.session.as_ref().map(|s| s.write_queue);
    table.row([
        n.address.to_string(),
        n.asn.map_or("any".into(), |a| a.to_string()),
        n.kind.clone(),
        n.state.clone(),
        duration(n.state_seconds),
        n.flaps.to_string(),
        messages(|s| s.messages_received),
        messages(|s| s.messages_sent),
        match &n.stale {
            _ if n.import_missing => NO_POLICY.into(),
            Some(stale) if n.session.is_none() => format!("{} stale", number(stale.paths.total())),
            _ => of(|s| s.accepted),
        },
        of(|s| s.active),
        if n.export_missing { NO_POLICY.into() } else { of(|s| s.advertised) },
        limits(&n.max_prefixes),
        queue.map_or("-".into(), |q| {
            format!("{}{}", if q.slow_writer { "slow " } else { "" }, bytes(q.bytes))
        }),
        n.group.clone(),
        last_reset(n),
    ]);
}

/// When and why the last session ended, or what hinders the first.
fn last_reset(n: &Neighbor) -> String {
    let (why, seconds) = match &n.last_down {
        Some(_) => (&n.last_down, n.last_down_seconds),
        None if n.session.is_none() => (&n.last_error, n.last_error_seconds),
        None => (&None, None),
    };
    let Some(why) = why else { return "-".into() };
    seconds.map_or_else(|| why.clone(), |seconds| format!("{} ago: {why}", duration(seconds)))
}

/// A line for each configured group.
pub(super) fn group_totals(groups: &[GroupTotal]) -> String {
    let mut table = Table::new(&[
        "Group",
        ">Neighbors",
        ">Up",
        ">Flaps",
        ">In",
        ">Out",
        ">Accepted IPv4",
        ">IPv6",
        ">Active IPv4",
        ">IPv6",
        ">Advertised IPv4",
        ">IPv6",
        ">Out queue",
    ]);
    for g in groups {
        table.row([
            g.group.clone(),
            number(g.neighbors),
            number(g.established),
            number(g.flaps),
            number(g.messages_received),
            number(g.messages_sent),
            number(g.accepted.ipv4),
            number(g.accepted.ipv6),
            number(g.active.ipv4),
            number(g.active.ipv6),
            number(g.advertised.ipv4),
            number(g.advertised.ipv6),
            bytes(g.queued_bytes),
        ]);
    }
    if groups.is_empty() { String::new() } else { table.render() + "\n" }
}

/// Counts against limits, such as `v4 980/1,000`, with `out` for those of sent prefixes.
fn limits(all: &[MaxPrefixes]) -> String {
    let limit = |limit: &MaxPrefixes| {
        let family = if limit.family.starts_with("ipv4") { "v4" } else { "v6" };
        let out = if limit.direction == "sent" { " out" } else { "" };
        format!("{family}{out} {}/{}", limit.count.map_or("-".into(), number), number(limit.max.into()))
    };
    if all.is_empty() { "-".into() } else { all.iter().map(limit).collect::<Vec<_>>().join(", ") }
}

/// The full state of a neighbour.
pub(super) fn neighbor(n: &Neighbor) -> String {
    let mut out = format!(
        "Neighbor {}{}, {} AS {}, group {}{}\n  State {} for {}, {}\n",
        n.address,
        n.description.as_ref().map_or(String::new(), |d| format!(" ({d})")),
        n.kind,
        n.asn.map_or("any".into(), |a| a.to_string()),
        n.group,
        if n.dynamic { ", dynamic" } else { "" },
        n.state,
        duration(n.state_seconds),
        count(n.flaps, "flap"),
    );
    out.push_str(&settings(n));
    if let Some(text) = n.shutdown.as_ref().filter(|text| !text.is_empty()) {
        out.push_str(&format!("  Shut down by the configuration: \"{text}\"\n"));
    }
    if let Some(role) = &n.role {
        let theirs = n.session.as_ref().and_then(|s| s.peer_role.as_ref());
        let theirs = theirs.map_or("the peer sends none".into(), |role| format!("the peer's is {role}"));
        let theirs = if n.session.is_some() { format!(", {theirs}") } else { String::new() };
        out.push_str(&format!("  Our role is {role}{theirs} (RFC 9234)\n"));
    }
    if !n.as_numbers.is_empty() {
        out.push_str(&format!("  AS numbers: {}\n", n.as_numbers.join(", ")));
    }
    for (missing, what) in [
        (n.import_missing, "import policy: no route is accepted from it"),
        (n.export_missing, "export policy: no route is sent to it"),
    ] {
        if missing {
            out.push_str(&format!("  No {what} (RFC 8212)\n"));
        }
    }
    if n.graceful_shutdown {
        out.push_str("  Graceful shutdown: routes are sent with the community, and received ones get LOCAL_PREF 0 (RFC 8326)\n");
    }
    if let (Some(left), Some(oscillations)) = (n.idle_hold_seconds, n.oscillations) {
        out.push_str(&format!(
            "  Idle hold: connections are refused for {} more, after {oscillations} errors or short sessions in a row\n",
            duration(left)
        ));
    }
    if let Some(stale) = &n.stale {
        let Stale { paths, long_lived, sessions, seconds, restart_seconds_left, stale_seconds_left } = stale;
        let waits = match restart_seconds_left {
            Some(left) => format!("a new session within {}", duration(*left)),
            None => "its End-of-RIB".into(),
        };
        out.push_str(&format!(
            "  Restarts since {}: stale paths in use {} IPv4, {} IPv6; waits for {waits}, at most {} more (RFC 4724)\n",
            duration(*seconds),
            number(paths.ipv4),
            number(paths.ipv6),
            duration(*stale_seconds_left),
        ));
        if *sessions > 1 {
            out.push_str(&format!(
                "  They are of {sessions} sessions, each lost before its End-of-RIB (RFC 8538 section 4.1)\n"
            ));
        }
        if !long_lived.is_empty() {
            out.push_str(&format!(
                "  Long-lived stale, and the last choice: {} (RFC 9494)\n",
                long_lived.join(" ")
            ));
        }
    }
    if n.stale_expired > 0 {
        let times = count(n.stale_expired, "time");
        out.push_str(&format!("  Stale paths were removed {times} because it did not come back in time\n"));
    }
    if let Some(ao) = &n.tcp_ao {
        out.push_str(&tcp_ao(ao));
    }
    let mut line = |what, why: &Option<String>, seconds: Option<u64>| {
        let Some(why) = why else { return };
        let ago = seconds.map_or(String::new(), |s| format!(", {} ago", duration(s)));
        out.push_str(&format!("  {what}{ago}: {why}\n"));
    };
    let ended = match n.last_down_by.as_deref() {
        Some("local") => "Last session ended by this router",
        Some(_) => "Last session ended by the peer",
        None => "Last session ended",
    };
    line(ended, &n.last_down, n.last_down_seconds);
    if n.last_down != n.last_error || n.last_down_seconds != n.last_error_seconds {
        line("Last error", &n.last_error, n.last_error_seconds);
    }
    if let Some(LastNotification { direction, seconds, code, subcode, text, data: _ }) = &n.last_notification
    {
        out.push_str(&format!(
            "  Last NOTIFICATION, {direction} {} ago: {code}/{subcode}, {text}\n",
            duration(*seconds)
        ));
    }
    if n.state.starts_with("Idle (maximum prefixes") {
        let left = n.idle_seconds_left.map_or(String::new(), |s| format!("for {}, or ", duration(s)));
        out.push_str(&format!("  No session {left}until `ribtide clear bgp neighbor {}`\n", n.address));
    }
    for limit in &n.max_prefixes {
        out.push_str(&format!(
            "  Maximum of {} prefixes {}: {}{}, exceeded {}; {}\n",
            limit.family,
            limit.direction,
            limit.count.map_or(String::new(), |count| format!("{} of ", number(count))),
            number(limit.max.into()),
            count(limit.exceeded, "time"),
            limit.action,
        ));
    }
    if let Some(s) = &n.session {
        out.push_str(&session(s));
    }
    out
}

/// What its configuration says of its sessions.
fn settings(n: &Neighbor) -> String {
    let connects = match n.connect_retry_seconds {
        Some(every) => format!("connects every {every} s"),
        None => "waits for it to connect".into(),
    };
    let hold = match n.configured_hold_time {
        0 => "no hold time".into(),
        seconds => format!("hold time {seconds} s"),
    };
    let mut parts = vec![hold, connects];
    parts.extend(n.authentication.as_ref().map(|how| format!("signed with {how}")));
    parts.extend(n.multihop.map(|ttl| format!("multihop with TTL {ttl}")));
    parts.extend(n.ttl_security.map(|hops| format!("TTL security of {}", count(hops.into(), "hop"))));
    parts.extend(n.bfd.then(|| "watched by BFD".to_owned()));
    format!(
        "  Configured: {}\n  Import policy {}, export policy {}\n",
        parts.join(", "),
        n.import_policy,
        n.export_policy
    )
}

/// The TCP connection of a session.
fn tcp(s: &Session, t: &TcpConnection) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", 1000.0 * seconds);
    format!(
        "  TCP from port {} to port {}: MSS {} sent, {} received; RTT {} (variation {}, least {}); window {}, {} in flight, {} sent again\n",
        t.local_port,
        t.remote_port,
        t.send_mss,
        t.receive_mss,
        ms(t.rtt_seconds),
        ms(t.rtt_variation_seconds),
        ms(t.least_rtt_seconds),
        count(t.congestion_window.into(), "segment"),
        t.unacknowledged,
        t.retransmitted,
    ) + &capabilities("sent", &s.capabilities_sent)
        + &capabilities("received", &s.capabilities_received)
}

fn capabilities(direction: &str, all: &[String]) -> String {
    let all = if all.is_empty() { "none".into() } else { all.join(", ") };
    format!("  Capabilities {direction}: {all}\n")
}

fn tcp_ao(ao: &TcpAo) -> String {
    let TcpAo { keys, current, rnext, good, bad, key_not_found, unsigned } = ao;
    let keys = count(*keys as u64, "key");
    let (Some(current), Some(rnext)) = (current, rnext) else {
        return format!("  TCP-AO with {keys} (RFC 5925)\n");
    };
    format!(
        "  TCP-AO with {keys}: signs with send-id {current}, asks for recv-id {rnext}; segments {} right, {} wrong, {} with the \
         ID of no key, {} unsigned (RFC 5925)\n",
        number(*good),
        number(*bad),
        number(*key_not_found),
        number(*unsigned),
    )
}

fn session(s: &Session) -> String {
    let yes = |b: bool| if b { "yes" } else { "no" };
    let left = s.hold_seconds_left.map_or(String::new(), |left| format!(" ({left} s left)"));
    let timers = match s.keepalive_seconds {
        Some(every) => format!("Hold time {} s{left}, a KEEPALIVE at least every {every} s", s.hold_time),
        None => "No hold time".into(),
    };
    let mut out = format!(
        "  Local address {}, AS {}, peer's router ID {}\n  {timers}, last message {} ago\n\
         \x20 Families {}; 4-octet AS {}, extended messages {}, route refresh {}\n\
         \x20 Read by {}, sent to by {}, update group {}{}\n",
        s.local_address,
        s.local_asn,
        s.router_id,
        duration(s.heard_seconds),
        s.families.join(" "),
        yes(s.four_octet_as),
        yes(s.extended_messages),
        if s.enhanced_route_refresh { "enhanced" } else { yes(s.route_refresh) },
        s.reader_thread,
        s.update_thread,
        s.update_group.as_deref().unwrap_or("-"),
        match (s.detached, s.joining) {
            (true, _) => ", lagging in it",
            (false, true) => ", still to be sent the table",
            (false, false) => "",
        },
    );
    out.push_str(&s.tcp.as_ref().map(|of| tcp(s, of)).unwrap_or_default());
    if let Some(PeerRestart { families, seconds, notification }) = &s.graceful_restart {
        let after = if *notification { ", after a NOTIFICATION too" } else { "" };
        out.push_str(&match families.is_empty() {
            true => {
                "  Graceful restart: the peer keeps no forwarding, so nothing is retained while it restarts\n"
                    .into()
            }
            false => format!(
                "  Graceful restart: {} retained for {} without a session{after}\n",
                families.join(" "),
                duration(*seconds)
            ),
        });
    }
    if !s.long_lived_seconds.is_empty() {
        let times =
            s.long_lived_seconds.iter().map(|(family, time)| format!("{family} for {}", duration(*time)));
        let times: Vec<String> = times.collect();
        out.push_str(&format!("  Long-lived stale after that: {}\n", times.join(", ")));
    }
    if let Some(seconds) = s.retains_ours_seconds {
        let time = duration(seconds);
        out.push_str(&format!("  Graceful restart of this router: the peer retains our routes for {time}\n"));
    }
    if !s.add_path_receive.is_empty() {
        out.push_str(&format!(
            "  Several paths of a prefix are received (add-path) in {}\n",
            s.add_path_receive.join(" ")
        ));
    }
    if s.extended_next_hop {
        out.push_str("  IPv4 routes may have IPv6 next hops (RFC 8950)\n");
    }
    for SentPaths { family, paths } in &s.add_path_send {
        out.push_str(&format!("  Several paths of a prefix are sent (add-path) in {family}: {paths}\n"));
    }
    let mut routes = Table::new(&["  Routes", ">IPv4", ">IPv6"]);
    let received = s.received.map(|received| ("received", received));
    let counts = [("accepted", s.accepted), ("active", s.active), ("advertised", s.advertised)];
    for (name, count) in received.into_iter().chain(counts) {
        routes.row([format!("    {name}"), number(count.ipv4), number(count.ipv6)]);
    }
    let mut messages = Table::new(&["  Messages", ">Received", ">Sent"]);
    for ((kind, received), (_, sent)) in s.messages_received.kinds().into_iter().zip(s.messages_sent.kinds())
    {
        messages.row([format!("    {kind}"), number(received), number(sent)]);
    }
    let c = &s.counters;
    let mut prefixes = Table::new(&["  Prefixes in UPDATEs", ">Received", ">Sent"]);
    for (what, received, sent) in
        [("announced", c.announced, s.sent.announced), ("withdrawn", c.withdrawn, s.sent.withdrawn)]
    {
        prefixes.row([format!("    {what}"), number(received), number(sent)]);
    }
    [routes, messages, prefixes].iter_mut().for_each(|table| out.push_str(&table.render()));
    out.push_str(&format!(
        "  Refused: {} prefixes by import, {} as loops, {} by their first AS, {} martians, {} route leaks, {} beyond the maximum, {} of other families; {} UPDATEs treated as withdrawal, {} \
         attributes discarded\n",
        number(c.rejected),
        number(c.loops),
        number(c.first_as),
        number(c.martians),
        number(c.route_leaks),
        number(c.beyond_max),
        number(c.ignored),
        number(c.treated_as_withdraw),
        number(c.discarded_attributes),
    ));
    if let Some(reason) = &c.last_reason {
        out.push_str(&format!("  Last refusal: {reason}\n"));
    }
    if s.sent.too_long > 0 {
        let title = "  Withdrawn instead of sent, as their attributes do not fit a message of this session: ";
        out.push_str(&format!("{title}{} prefixes\n", number(s.sent.too_long)));
    }
    let q = &s.write_queue;
    out.push_str(&format!(
        "  Write queue {}{}, at most {} so far and {} allowed, blocked {}, full {} for {:.1} s; {} slow writer; {} prefixes wait for it\n",
        bytes(q.bytes),
        if q.full { " (full)" } else { "" },
        bytes(q.peak_bytes),
        bytes(q.bound_bytes),
        count(q.blocks, "time"),
        count(q.stops, "time"),
        q.stopped_seconds,
        if q.slow_writer { "designated a" } else { "not a" },
        number(s.waiting),
    ));
    out
}

pub(super) fn groups(groups: &[Group]) -> String {
    if groups.is_empty() {
        return "No update group: none of these neighbours has a session.\n".into();
    }
    groups.iter().map(group).collect::<Vec<_>>().join("\n")
}

fn group(g: &Group) -> String {
    let members =
        |which: fn(&GroupMember) -> bool| number(g.members.iter().filter(|m| which(m)).count() as u64);
    let configured = if g.configured.len() == 1 { "group" } else { "groups" };
    let mut out = format!(
        "Update group {} on {}, of {configured} {}\n",
        g.id,
        g.update_thread,
        g.configured.join(", ")
    );
    out.push_str(&wrap("  ", "Sends ", ", ", &g.settings));
    out.push_str(&format!(
        "  {} at {}: {} full, {} lagging, {} joining; full {} in all; {} prefixes wait\n\
         \x20 Packed {} with {} prefixes announced and {} withdrawn{}\n",
        count(g.members.len() as u64, "member"),
        count(g.positions as u64, "position"),
        members(|m| m.full),
        members(|m| m.detached),
        members(|m| m.joining),
        count(g.stops, "time"),
        number(g.waiting),
        count(g.sent.updates, "UPDATE"),
        number(g.sent.announced),
        number(g.sent.withdrawn),
        g.prefixes_per_update.map_or(String::new(), |n| format!(": {n:.1} in each")),
    ));
    let members: Vec<String> = g
        .members
        .iter()
        .map(|m| {
            let state = match (m.full, m.detached, m.joining) {
                (true, ..) => " (full)",
                (_, true, _) => " (lagging)",
                (.., true) => " (joining)",
                _ => "",
            };
            format!("{}{state}", m.address)
        })
        .collect();
    out.push_str(&wrap("  ", "Members ", "  ", &members));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::{Messages, ReceiveCounters, SendCounters, Threading, WriteQueue};

    fn limit(family: &str, direction: &str, count: Option<u64>, action: &str) -> MaxPrefixes {
        MaxPrefixes {
            family: family.into(),
            direction: direction.into(),
            max: 1_000_000,
            count,
            action: action.into(),
            exceeded: 1,
        }
    }

    fn slow() -> Neighbor {
        let both = |ipv4, ipv6| PerFamilyCount { ipv4, ipv6 };
        Neighbor {
            address: "192.0.2.1".parse().unwrap(),
            group: "clients".into(),
            description: Some("lyon".into()),
            asn: Some(65001),
            kind: "client".into(),
            dynamic: false,
            state: "Established".into(),
            state_seconds: 192,
            shutdown: None,
            role: None,
            as_numbers: vec![],
            import_missing: false,
            export_missing: false,
            graceful_shutdown: false,
            idle_hold_seconds: None,
            oscillations: None,
            flaps: 1,
            last_error: Some("NOTIFICATION received (cease: administrative reset)".into()),
            last_error_seconds: Some(7500),
            last_down: Some("the connection ended: closed by the peer".into()),
            last_down_seconds: Some(7520),
            last_down_by: Some("peer".into()),
            last_notification: Some(LastNotification {
                direction: "received".into(),
                seconds: 7500,
                code: 6,
                subcode: 4,
                text: "cease: administrative reset".into(),
                data: String::new(),
            }),
            configured_hold_time: 180,
            connect_retry_seconds: Some(10),
            import_policy: "accept".into(),
            export_policy: "accept".into(),
            authentication: Some("tcp-md5".into()),
            multihop: None,
            ttl_security: Some(1),
            bfd: true,
            max_prefixes: vec![limit("ipv4-unicast", "received", Some(1_000_000), "discard")],
            idle_seconds_left: None,
            stale: None,
            stale_expired: 0,
            tcp_ao: None,
            session: Some(Session {
                local_asn: 65001,
                router_id: [1, 1, 1, 1].into(),
                local_address: "192.0.2.9".parse().unwrap(),
                families: vec!["ipv4-unicast".into()],
                hold_time: 90,
                keepalive_seconds: Some(30),
                heard_seconds: 3,
                hold_seconds_left: Some(87),
                tcp: Some(TcpConnection {
                    local_port: 179,
                    remote_port: 40_312,
                    send_mss: 1448,
                    receive_mss: 536,
                    rtt_seconds: 0.0123,
                    rtt_variation_seconds: 0.0005,
                    least_rtt_seconds: 0.011,
                    congestion_window: 10,
                    unacknowledged: 2,
                    retransmitted: 7,
                }),
                capabilities_sent: vec!["ipv4-unicast".into(), "route refresh".into()],
                capabilities_received: vec![],
                four_octet_as: true,
                extended_messages: false,
                route_refresh: true,
                enhanced_route_refresh: true,
                peer_role: None,
                graceful_restart: Some(PeerRestart {
                    families: vec!["ipv4-unicast".into()],
                    seconds: 120,
                    notification: true,
                }),
                long_lived_seconds: [("ipv4-unicast".into(), 3600)].into(),
                retains_ours_seconds: Some(120),
                add_path_receive: Vec::new(),
                extended_next_hop: false,
                add_path_send: Vec::new(),
                reader_thread: "reader-0".into(),
                update_thread: "egress-1".into(),
                update_group: Some("1.2".into()),
                received: None,
                accepted: both(1_000_000, 0),
                active: both(900_000, 0),
                advertised: both(17, 0),
                joining: false,
                detached: true,
                waiting: 1200,
                counters: ReceiveCounters {
                    announced: 1_200_000,
                    rejected: 3,
                    beyond_max: 4,
                    last_reason: Some("not used: import policy".into()),
                    ..ReceiveCounters::default()
                },
                sent: SendCounters { announced: 18, withdrawn: 1, too_long: 2, ..SendCounters::default() },
                messages_received: Messages { open: 1, update: 200_000, ..Messages::default() },
                messages_sent: Messages { open: 1, keepalive: 7, ..Messages::default() },
                write_queue: WriteQueue {
                    bytes: 8 << 20,
                    peak_bytes: 9 << 20,
                    bound_bytes: 8 << 20,
                    blocks: 30,
                    full: true,
                    stops: 3,
                    stopped_seconds: 12.25,
                    slow_writer: true,
                },
            }),
        }
    }

    #[test]
    fn neighbor_text_is_complete() {
        assert_eq!(
            neighbor(&slow()),
            "\
Neighbor 192.0.2.1 (lyon), client AS 65001, group clients
  State Established for 3m12s, 1 flap
  Configured: hold time 180 s, connects every 10 s, signed with tcp-md5, TTL security of 1 hop, watched by BFD
  Import policy accept, export policy accept
  Last session ended by the peer, 2h05m ago: the connection ended: closed by the peer
  Last error, 2h05m ago: NOTIFICATION received (cease: administrative reset)
  Last NOTIFICATION, received 2h05m ago: 6/4, cease: administrative reset
  Maximum of ipv4-unicast prefixes received: 1,000,000 of 1,000,000, exceeded 1 time; discard
  Local address 192.0.2.9, AS 65001, peer's router ID 1.1.1.1
  Hold time 90 s (87 s left), a KEEPALIVE at least every 30 s, last message 3s ago
  Families ipv4-unicast; 4-octet AS yes, extended messages no, route refresh enhanced
  Read by reader-0, sent to by egress-1, update group 1.2, lagging in it
  TCP from port 179 to port 40312: MSS 1448 sent, 536 received; RTT 12.3 ms (variation 0.5 ms, least 11.0 ms); window 10 segments, 2 in flight, 7 sent again
  Capabilities sent: ipv4-unicast, route refresh
  Capabilities received: none
  Graceful restart: ipv4-unicast retained for 2m00s without a session, after a NOTIFICATION too
  Long-lived stale after that: ipv4-unicast for 1h00m
  Graceful restart of this router: the peer retains our routes for 2m00s
  Routes             IPv4  IPv6
    accepted    1,000,000     0
    active        900,000     0
    advertised         17     0
  Messages         Received  Sent
    OPEN                  1     1
    UPDATE          200,000     0
    NOTIFICATION          0     0
    KEEPALIVE             0     7
    ROUTE-REFRESH         0     0
  Prefixes in UPDATEs   Received  Sent
    announced          1,200,000    18
    withdrawn                  0     1
  Refused: 3 prefixes by import, 0 as loops, 0 by their first AS, 0 martians, 0 route leaks, 4 beyond the maximum, 0 of other families; 0 UPDATEs treated as withdrawal, 0 attributes discarded
  Last refusal: not used: import policy
  Withdrawn instead of sent, as their attributes do not fit a message of this session: 2 prefixes
  Write queue 8.0 MiB (full), at most 9.0 MiB so far and 8.0 MiB allowed, blocked 30 times, full 3 times for 12.2 s; designated a slow writer; 1,200 prefixes wait for it
"
        );
        let idle = Neighbor {
            session: None,
            last_error: None,
            last_down: None,
            last_notification: None,
            asn: None,
            description: None,
            state: "Idle (maximum prefixes)".into(),
            idle_seconds_left: Some(192),
            max_prefixes: vec![limit("ipv6-unicast", "sent", None, "restart")],
            ..slow()
        };
        assert_eq!(
            neighbor(&idle),
            "Neighbor 192.0.2.1, client AS any, group clients\n  State Idle (maximum prefixes) for 3m12s, 1 flap\n\
             \x20 Configured: hold time 180 s, connects every 10 s, signed with tcp-md5, TTL security of 1 hop, watched by BFD\n\
             \x20 Import policy accept, export policy accept\n\
             \x20 No session for 3m12s, or until `ribtide clear bgp neighbor 192.0.2.1`\n\
             \x20 Maximum of ipv6-unicast prefixes sent: 1,000,000, exceeded 1 time; restart\n"
        );
        let stale = Stale {
            long_lived: vec![],
            paths: PerFamilyCount { ipv4: 1200, ipv6: 1 },
            sessions: 1,
            seconds: 5,
            restart_seconds_left: Some(115),
            stale_seconds_left: 355,
        };
        let restarts = Neighbor { stale: Some(stale.clone()), stale_expired: 1, ..idle.clone() };
        assert!(neighbor(&restarts).contains(
            "  Restarts since 5s: stale paths in use 1,200 IPv4, 1 IPv6; waits for a new session within 1m55s, at most \
             5m55s more (RFC 4724)\n  Stale paths were removed 1 time because it did not come back in time\n"
        ));
        let long_lived = vec!["ipv4-unicast".to_owned()];
        let stale = Some(Stale { restart_seconds_left: None, sessions: 3, long_lived, ..stale });
        let text = neighbor(&Neighbor { stale, ..slow() });
        assert!(text.contains("waits for its End-of-RIB, at most"));
        assert!(text.contains(
            "\n  They are of 3 sessions, each lost before its End-of-RIB (RFC 8538 section 4.1)\n\
             \x20 Long-lived stale, and the last choice: ipv4-unicast (RFC 9494)\n"
        ));
        let idle =
            Neighbor { state: "Idle".into(), max_prefixes: Vec::new(), idle_seconds_left: None, ..idle };
        let mut ao =
            TcpAo { keys: 2, current: None, rnext: None, good: 0, bad: 0, key_not_found: 0, unsigned: 0 };
        let signed = |ao: &TcpAo| neighbor(&Neighbor { tcp_ao: Some(ao.clone()), ..idle.clone() });
        assert!(signed(&ao).contains("\n  TCP-AO with 2 keys (RFC 5925)\n"));
        (ao.current, ao.rnext, ao.good, ao.unsigned) = (Some(1), Some(7), 12_000, 3);
        assert!(signed(&ao).contains(
            "\n  TCP-AO with 2 keys: signs with send-id 1, asks for recv-id 7; segments 12,000 right, 0 wrong, 0 with the ID of \
             no key, 3 unsigned (RFC 5925)\n"
        ));
        let silent = Neighbor { import_missing: true, export_missing: true, ..idle.clone() };
        assert!(neighbor(&silent).ends_with(
            "\n  No import policy: no route is accepted from it (RFC 8212)\n  No export policy: no route is sent to it (RFC 8212)\n"
        ));
        let mut table = neighbor_table();
        neighbor_row(&mut table, &silent);
        assert!(table.render().contains("  no policy       -   no policy  "), "{}", table.render());
        let mut several = slow();
        several.session.as_mut().unwrap().add_path_receive = vec!["ipv4-unicast".into()];
        assert!(
            neighbor(&several)
                .contains("\n  Several paths of a prefix are received (add-path) in ipv4-unicast\n")
        );
        let sent = SentPaths { family: "ipv6-unicast".into(), paths: "best 2".into() };
        several.session.as_mut().unwrap().add_path_send = vec![sent];
        assert!(
            neighbor(&several)
                .contains("\n  Several paths of a prefix are sent (add-path) in ipv6-unicast: best 2\n")
        );
        let mut related = Neighbor { role: Some("customer".into()), ..slow() };
        assert!(neighbor(&related).contains("\n  Our role is customer, the peer sends none (RFC 9234)\n"));
        related.session.as_mut().unwrap().peer_role = Some("provider".into());
        assert!(neighbor(&related).contains("\n  Our role is customer, the peer's is provider (RFC 9234)\n"));
        let leaving = Neighbor { graceful_shutdown: true, ..idle.clone() };
        assert!(
            neighbor(&leaving)
                .ends_with("\n  Graceful shutdown: routes are sent with the community, and received ones get LOCAL_PREF 0 (RFC 8326)\n")
        );
        let held = Neighbor { idle_hold_seconds: Some(61), oscillations: Some(7), ..idle.clone() };
        assert!(neighbor(&held).ends_with(
            "\n  Idle hold: connections are refused for 1m01s more, after 7 errors or short sessions in a row\n"
        ));
        let down = Neighbor { shutdown: Some("new card".into()), state: "Idle (shut down)".into(), ..idle };
        assert_eq!(
            neighbor(&down),
            "Neighbor 192.0.2.1, client AS any, group clients\n  State Idle (shut down) for 3m12s, 1 flap\n\
             \x20 Configured: hold time 180 s, connects every 10 s, signed with tcp-md5, TTL security of 1 hop, watched by BFD\n\
             \x20 Import policy accept, export policy accept\n\
             \x20 Shut down by the configuration: \"new card\"\n"
        );
    }

    #[test]
    fn the_summary_has_a_line_for_each_neighbour() {
        let reply = BgpSummary {
            router_id: [10, 0, 0, 1].into(),
            asn: 65001,
            uptime_seconds: 7500,
            threading: Threading {
                mode: "RIB sharding: 2 shard threads, 1 reader; update threading: 2 update threads".into(),
                shard_threads: 2,
                update_threads: 2,
                reader_threads: 1,
            },
            update_groups: 1,
            neighbor_count: 2,
            established: 1,
            flaps: 1,
            rejected_connections: 4,
            rejected_by_reason: [("low-ttl".into(), 1), ("unknown-address".into(), 3)].into(),
            restart: None,
            prefixes: PerFamilyCount { ipv4: 1000, ipv6: 1 },
            paths: PerFamilyCount { ipv4: 2000, ipv6: 2 },
            active: PerFamilyCount { ipv4: 999, ipv6: 1 },
            waiting_interfaces: vec![WaitingInterface {
                interface: "swp1".into(),
                group: "fabric".into(),
                reason: "the interface is down".into(),
            }],
            groups: None,
            neighbors: None,
        };
        let mut table = neighbor_table();
        neighbor_row(&mut table, &slow());
        let both = vec![
            limit("ipv4-unicast", "received", None, "warn"),
            limit("ipv6-unicast", "sent", Some(5), "restart"),
        ];
        neighbor_row(
            &mut table,
            &Neighbor { session: None, state: "Active".into(), max_prefixes: both, ..slow() },
        );
        assert_eq!(
            format!("{}{}", summary(&reply), table.render()),
            "\
Router 10.0.0.1, AS 65001, up 2h05m
Threading: RIB sharding: 2 shard threads, 1 reader; update threading: 2 update threads
2 neighbours: 1 established, 1 down; 1 flap; 1 update group; 4 connections refused (1 low-ttl, 3 unknown-address)

Family  Prefixes  Paths  Active
IPv4       1,000  2,000     999
IPv6           1      2       1
swp1 (group fabric) has no neighbor: the interface is down

Neighbor      AS  Kind    State          For  Flaps       In  Out   Accepted   Active  Advertised                        Max prefixes     Out queue  Group    Last reset
192.0.2.1  65001  client  Established  3m12s      1  200,001    8  1,000,000  900,000          17              v4 1,000,000/1,000,000  slow 8.0 MiB  clients  2h05m ago: the connection ended: closed by the peer
192.0.2.1  65001  client  Active       3m12s      1        -    -          -        -           -  v4 -/1,000,000, v6 out 5/1,000,000             -  clients  2h05m ago: the connection ended: closed by the peer
"
        );
    }

    #[test]
    fn a_configured_group_has_its_totals() {
        let both = |ipv4, ipv6| PerFamilyCount { ipv4, ipv6 };
        let total = GroupTotal {
            group: "transit".into(),
            neighbors: 3,
            established: 2,
            flaps: 1,
            accepted: both(1_000_000, 200),
            active: both(700_000, 100),
            advertised: both(10, 2),
            messages_received: 90_000,
            messages_sent: 12,
            queued_bytes: 1536,
        };
        assert_eq!(
            group_totals(&[total]),
            "\
Group    Neighbors  Up  Flaps      In  Out  Accepted IPv4  IPv6  Active IPv4  IPv6  Advertised IPv4  IPv6  Out queue
transit          3   2      1  90,000   12      1,000,000   200      700,000   100               10     2    1.5 KiB

"
        );
        assert_eq!(group_totals(&[]), "");
    }

    #[test]
    fn group_text_has_thread_and_slow_members() {
        let member = |last: u8, full| GroupMember {
            address: [192, 0, 2, last].into(),
            group: "clients".into(),
            full,
            detached: full,
            joining: false,
        };
        let group = Group {
            id: "1.2".into(),
            update_thread: "egress-1".into(),
            configured: vec!["clients".into(), "lab".into()],
            settings: vec!["to internal peers".into(), "next hop as received".into()],
            members: vec![member(1, false), member(2, true)],
            positions: 2,
            waiting: 1200,
            stops: 5,
            sent: SendCounters { updates: 1000, announced: 6100, ..SendCounters::default() },
            prefixes_per_update: Some(6.1),
        };
        assert_eq!(
            groups(&[group]),
            "\
Update group 1.2 on egress-1, of groups clients, lab
  Sends to internal peers, next hop as received
  2 members at 2 positions: 1 full, 1 lagging, 0 joining; full 5 times in all; 1,200 prefixes wait
  Packed 1,000 UPDATEs with 6,100 prefixes announced and 0 withdrawn: 6.1 in each
  Members 192.0.2.1  192.0.2.2 (full)
"
        );
        assert!(groups(&[]).starts_with("No update group"));
    }
}
