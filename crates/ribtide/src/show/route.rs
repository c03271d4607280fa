//! BGP's routes, their counts, and their shard threads.

use super::attributes::{self, Shown, cell};
use super::bgp::FAMILIES;
use crate::text::{Table, bytes, duration, number};
use ribtide_model::{
    BackupNextHop, Forwarding, Held, InstalledGroup, Path, ProtocolCount, Route, RouteCounts, RouteGroups,
    RouteSummary, ShardLoad, Sharding,
};

const COLUMNS: [&str; 8] = ["", "Prefix", "Next hop", "From", ">Age", ">Pref", ">MED", "AS path"];

pub(super) fn table() -> Table {
    Table::new(&COLUMNS)
}

/// The same with the logical shard of each prefix.
pub(super) fn table_of_shard() -> Table {
    let [mark, rest @ ..] = COLUMNS;
    let mut columns = vec![mark, ">Logical"];
    columns.extend(rest);
    Table::new(&columns)
}

pub(super) fn rows(table: &mut Table, route: &Route) {
    cells(route).for_each(|row| table.row(row));
}

pub(super) fn rows_of_shard(table: &mut Table, route: &Route) {
    for (i, mut row) in cells(route).enumerate() {
        row.insert(1, if i == 0 { route.logical_shard.to_string() } else { String::new() });
        table.row(row);
    }
}

fn cells(route: &Route) -> impl Iterator<Item = Vec<String>> + '_ {
    route.paths.iter().enumerate().map(|(i, p)| {
        let shown = Shown::from(p);
        let state = p.validation.as_ref().map_or(String::new(), |state| format!(", {state}"));
        let stale = if p.stale { "  (stale)" } else { "" };
        let suppressed = match p.best && !route.suppressed_by.is_empty() {
            true => format!("  (suppressed by {})", route.suppressed_by.join(", ")),
            false => String::new(),
        };
        let lost = p.lost.as_ref().map_or(String::new(), |l| format!("  ({l})"));
        vec![
            match p.forwarding {
                _ if p.best => "*",
                None => "",
                Some(Forwarding::Multipath) => "=",
                Some(Forwarding::Backup) => "b",
            }
            .into(),
            if i == 0 { route.prefix.clone() } else { String::new() },
            if p.next_hop.address.is_unspecified() { "self".into() } else { p.next_hop.to_string() },
            sender(p),
            age(p.age_seconds),
            cell(shown.local_pref),
            cell(shown.med),
            format!("{}{state}{stale}{suppressed}{lost}", shown.path_and_origin()),
        ]
    })
}

/// The time since a path changed, if it is known.
pub(super) fn age(seconds: Option<u64>) -> String {
    seconds.map_or("-".into(), duration)
}

/// Everything about a route: a block for each path, and how the next hops resolve.
pub(super) fn detail(route: &Route) -> String {
    let mut out = format!("{}\n", route.prefix);
    for path in &route.paths {
        out.push_str(&path_detail(path));
    }
    if let Some(held) = route.held {
        out.push_str(match held {
            Held::Waiting => "  Not advertised: the best path waits for confirmation by the FIB\n",
            Held::WaitingWithFormer => {
                "  The former best path is advertised until the FIB confirms the new one\n"
            }
            Held::Blocked => "  Not advertised: the FIB does not have it\n",
        });
    }
    if !route.suppressed_by.is_empty() {
        out.push_str(&format!("  Suppressed by the aggregate {}\n", route.suppressed_by.join(", ")));
    }
    for hop in &route.resolution {
        let cost = hop.cost.map_or(String::new(), |cost| format!(", cost {cost}"));
        let through = hop.through.as_ref().map_or(String::new(), |prefix| format!(" through {prefix}"));
        let resolved = match &hop.unresolved {
            Some(why) => format!("not resolved: {why}"),
            None => format!("resolved{through} to {}{cost}", hop.resolved.join(", ")),
        };
        out.push_str(&format!("  Next hop {} ({}) {resolved}\n", hop.address, hop.kind));
    }
    out.push_str(&owner(route).lines().map(|line| format!("  {line}\n")).collect::<String>());
    out
}

fn path_detail(p: &Path) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&attributes::line(name, &value));
    let mut state = vec![match (p.best, p.forwarding, &p.lost) {
        (true, ..) => "best".to_owned(),
        (_, Some(Forwarding::Multipath), _) => "shares the traffic of the best path".into(),
        (_, Some(Forwarding::Backup), _) => "backup".into(),
        (.., Some(why)) => format!("not best: {why}"),
        (.., None) => "not best".into(),
    }];
    state.extend(p.validation.clone());
    state.extend(p.stale.then(|| "stale".to_owned()));
    line("State", state.join(", "));
    line("Age", p.age_seconds.map_or_else(String::new, duration));
    let of =
        |what: &str, value: Option<String>| value.map_or(String::new(), |value| format!(", {what} {value}"));
    line(
        "Next hop",
        match p.next_hop.address.is_unspecified() {
            true => "self".into(),
            false => format!(
                "{}{}{}",
                p.next_hop,
                of("link-local", p.link_local.map(|address| address.to_string())),
                of("interior cost", p.igp_cost.map(|cost| cost.to_string()))
            ),
        },
    );
    out.push_str(&Shown::from(p).lines());
    let of_session = match (&p.neighbor_kind, p.neighbor_asn, p.neighbor_router_id) {
        (Some(kind), Some(asn), Some(id)) => format!(", {kind} AS {asn}, router ID {id}"),
        _ => String::new(),
    };
    format!("  Path from {}{of_session}\n{out}", sender(p))
}

/// The neighbour of a path, with the path identifier that it gave; or the source of an originated path.
fn sender(p: &Path) -> String {
    match (&p.originated, p.path_id) {
        (Some(source), _) => format!("({source})"),
        (None, Some(id)) => format!("{} (path {id})", p.neighbor),
        (None, None) => p.neighbor.to_string(),
    }
}

/// The shard of a prefix, and its next-hop groups.
pub(super) fn owner(route: &Route) -> String {
    let Route { prefix, logical_shard, shard, groups, .. } = route;
    let groups = groups.as_ref().map_or(String::new(), |groups| {
        let RouteGroups { received, backup, denied, source, installed } = groups;
        let installed = match installed {
            None if *denied => "not installed: fib.policy denies it".into(),
            None => "not installed".into(),
            Some(InstalledGroup { group, protocol, .. }) => {
                let source = source.map_or(String::new(), |source| format!(", source {source}"));
                format!("installed: group {group}, of the {protocol} route{source}")
            }
        };
        let backup = backup.as_ref().map_or(String::new(), |BackupNextHop { hop, unresolved, in_use }| {
            let state = match (unresolved, in_use) {
                (Some(why), _) => format!("would not help: {why}"),
                (None, true) => "is in use: none of the first next hops resolves".into(),
                (None, false) => "stands by".into(),
            };
            format!("Backup {hop} {state}.\n")
        });
        format!("Received next-hop group {received}; {installed}.\n{backup}")
    });
    let parts = match route.paths.iter().any(|path| path.forwarding.is_some()) {
        true => "* best path, = shares its traffic, b backup\n",
        false => "",
    };
    format!("{parts}{groups}{prefix} is in logical shard {logical_shard}, on shard {shard}.\n")
}

/// Route counts by table.
pub(super) fn summary(s: &RouteSummary) -> String {
    let mut out = format!("Router {}, AS {}\n\n", s.router_id, s.asn);
    if !s.shards.is_empty() {
        let mut table =
            Table::new(&["BGP", "Family", ">Prefixes", ">Paths", ">Active", ">Hidden", ">Memory"]);
        let memory = s.shards.iter().map(|shard| shard.memory_bytes).sum();
        counts(&mut table, "total", &s.bgp, memory);
        for shard in &s.shards {
            counts(&mut table, &shard.thread, &shard.routes, shard.memory_bytes);
        }
        out.push_str(&table.render());
    }
    let Some(main) = &s.main else {
        out.push_str("\nNo main table: this router installs no routes.\n");
        return out;
    };
    out.push_str(&protocols("Main table", &main.protocols));
    out.push_str(&denied("fib.policy", &main.protocols));
    out.push_str(&format!(
        "{} next-hop groups, cached by {}; tables of {}\n",
        number(main.next_hop_groups as u64),
        main.next_hop_cache.mode,
        bytes(main.memory_bytes)
    ));
    if main.suppress_fib_pending {
        out.push_str(&format!(
            "FIB suppression is on: {} best paths wait for confirmation, {} are not in the FIB and not advertised\n",
            number(s.bgp.waiting),
            number(s.bgp.blocked)
        ));
    }
    for vrf in &s.vrfs {
        out.push_str(&protocols(&format!("VRF {}", vrf.vrf), &vrf.protocols));
        out.push_str(&format!(
            "{} next-hop groups; tables of {}\n",
            number(vrf.next_hop_groups as u64),
            bytes(vrf.memory_bytes)
        ));
        out.push_str(&denied(&format!("vrf.{}.policy", vrf.vrf), &vrf.protocols));
    }
    if !s.vrfs.is_empty() {
        out.push('\n');
    }
    for d in &main.dataplanes {
        out.push_str(&format!(
            "Dataplane {}: {} batches unconfirmed, {} routes failed{}\n",
            d.name,
            number(d.outstanding_batches),
            number(d.failed),
            d.lagging_by.map_or_else(String::new, |routes| format!(
                ", lagging: {} routes wait until it continues",
                number(routes)
            ))
        ));
    }
    out
}

/// A table of the routes of each protocol.
fn protocols(title: &str, protocols: &[ProtocolCount]) -> String {
    let mut table = Table::new(&[title, "Family", ">Routes", ">Active"]);
    for p in protocols {
        table.row([p.protocol.clone(), p.family.replace("ip", "IP"), number(p.routes), number(p.active)]);
    }
    format!("\n{}", table.render())
}

/// How many routes a policy keeps from the dataplanes, if any.
fn denied(policy: &str, protocols: &[ProtocolCount]) -> String {
    match protocols.iter().map(|p| p.denied).sum() {
        0 => String::new(),
        denied => format!("{} selected and not installed: {policy} denies them\n", number(denied)),
    }
}

fn counts(table: &mut Table, name: &str, c: &RouteCounts, memory: u64) {
    for (i, (family, afi)) in FAMILIES.into_iter().enumerate() {
        table.row([
            if i == 0 { name.into() } else { String::new() },
            family.into(),
            number(c.prefixes.of(afi)),
            number(c.paths.of(afi)),
            number(c.active.of(afi)),
            number(c.hidden.of(afi)),
            if i == 0 { bytes(memory) } else { String::new() },
        ]);
    }
}

/// The shard threads and their load.
pub(super) fn sharding(s: &Sharding) -> String {
    let mut table = Table::new(&[
        "Shard",
        ">Logical",
        ">IPv4 prefixes",
        ">IPv4 paths",
        ">IPv6 prefixes",
        ">IPv6 paths",
        ">Share",
        ">Memory",
        ">CPU s",
        ">Inbox",
    ]);
    for load in &s.shards {
        let RouteCounts { prefixes, paths, .. } = load.summary.routes;
        table.row([
            load.summary.thread.clone(),
            load.logical_shards.len().to_string(),
            number(prefixes.ipv4),
            number(paths.ipv4),
            number(prefixes.ipv6),
            number(paths.ipv6),
            format!("{:.1}%", 100.0 * load.load_share),
            bytes(load.summary.memory_bytes),
            load.cpu_seconds.map_or("-".into(), |s| format!("{s:.2}")),
            load.inbox.as_ref().map_or("-".into(), |ring| format!("{} of {}", ring.depth, ring.capacity)),
        ]);
    }
    format!("{}\n\n{}", s.mode, table.render())
}

/// The routes of one shard thread by logical shard.
pub(super) fn shard(load: &ShardLoad) -> String {
    let RouteCounts { prefixes, paths, hidden, .. } = load.summary.routes;
    let mut table = Table::new(&[">Logical", ">IPv4 prefixes", ">IPv6 prefixes"]);
    for logical in &load.logical_shards {
        let c = logical.prefixes;
        table.row([logical.logical_shard.to_string(), number(c.ipv4), number(c.ipv6)]);
    }
    format!(
        "{}: {} prefixes, {} paths, {} of them hidden; {:.1}% of all paths\n\n{}\n",
        load.summary.thread,
        number(prefixes.total()),
        number(paths.total()),
        number(hidden.total()),
        100.0 * load.load_share,
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::{
        DataplaneCount, LogicalShardLoad, MainTable, NextHopCache, PerFamilyCount, Ring, ShardSummary,
        VrfTable,
    };

    fn both(ipv4: u64, ipv6: u64) -> PerFamilyCount {
        PerFamilyCount { ipv4, ipv6 }
    }

    fn counts(prefixes: u64) -> RouteCounts {
        RouteCounts {
            prefixes: both(prefixes, 1),
            paths: both(10 * prefixes, 2),
            active: both(prefixes - 1, 1),
            hidden: both(1, 0),
            waiting: 0,
            blocked: 0,
        }
    }

    fn part(shard: usize, prefixes: u64) -> ShardSummary {
        ShardSummary {
            shard,
            thread: format!("shard-{shard}"),
            routes: counts(prefixes),
            attribute_sets: 5,
            surplus_paths: 0,
            next_hops: 1,
            memory_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_prefix_has_an_owner_and_groups() {
        let mut route = Route {
            prefix: "192.0.2.0/24".into(),
            logical_shard: 3,
            shard: 1,
            paths: vec![],
            held: None,
            suppressed_by: Vec::new(),
            resolution: Vec::new(),
            groups: Some(RouteGroups {
                received: 25,
                backup: None,
                denied: false,
                source: None,
                installed: None,
            }),
        };
        let shard = "192.0.2.0/24 is in logical shard 3, on shard 1.\n";
        assert_eq!(owner(&route), format!("Received next-hop group 25; not installed.\n{shard}"));
        let installed = InstalledGroup { group: 30, protocol: "static".into(), hops: vec![] };
        let mut standing_by = BackupNextHop { hop: "via 192.0.2.3".into(), unresolved: None, in_use: false };
        let groups_with = |backup| {
            Some(RouteGroups {
                received: 25,
                backup,
                denied: false,
                source: None,
                installed: Some(installed.clone()),
            })
        };
        route.groups = groups_with(None);
        let groups = "Received next-hop group 25; installed: group 30, of the static route.\n";
        assert_eq!(owner(&route), format!("{groups}{shard}"));
        route.groups = groups_with(Some(standing_by.clone()));
        assert_eq!(owner(&route), format!("{groups}Backup via 192.0.2.3 stands by.\n{shard}"));
        standing_by.in_use = true;
        route.groups = groups_with(Some(standing_by.clone()));
        assert!(owner(&route).contains("Backup via 192.0.2.3 is in use: none of"));
        standing_by.unresolved = Some("no route holds it".into());
        route.groups = groups_with(Some(standing_by));
        assert!(owner(&route).contains("Backup via 192.0.2.3 would not help: no route holds it.\n"));
        route.groups =
            groups_with(None).map(|groups| RouteGroups { source: "10.0.0.1".parse().ok(), ..groups });
        assert!(owner(&route).contains("of the static route, source 10.0.0.1.\n"));
        route.groups =
            groups_with(None).map(|groups| RouteGroups { denied: true, installed: None, ..groups });
        assert!(owner(&route).contains("not installed: fib.policy denies it.\n"));
    }

    #[test]
    fn the_summary_goes_from_the_whole_to_the_parts() {
        let mut all = RouteSummary {
            asn: 65001,
            router_id: [10, 0, 0, 1].into(),
            bgp: counts(5000),
            main: None,
            vrfs: vec![],
            shards: vec![part(0, 3000), part(1, 2000)],
        };
        let expected = "\
Router 10.0.0.1, AS 65001

BGP      Family  Prefixes   Paths  Active  Hidden   Memory
total    IPv4       5,000  50,000   4,999       1  2.0 MiB
         IPv6           1       2       1       0
shard-0  IPv4       3,000  30,000   2,999       1  1.0 MiB
         IPv6           1       2       1       0
shard-1  IPv4       2,000  20,000   1,999       1  1.0 MiB
         IPv6           1       2       1       0
";
        assert_eq!(summary(&all), format!("{expected}\nNo main table: this router installs no routes.\n"));
        (all.bgp.waiting, all.bgp.blocked) = (2, 1);
        all.main = Some(MainTable {
            protocols: vec![
                ProtocolCount {
                    family: "ipv4".into(),
                    protocol: "static".into(),
                    routes: 2,
                    active: 1,
                    denied: 0,
                },
                ProtocolCount {
                    family: "ipv6".into(),
                    protocol: "ebgp".into(),
                    routes: 1,
                    active: 1,
                    denied: 0,
                },
            ],
            next_hop_groups: 3,
            next_hop_cache: NextHopCache {
                mode: "dependency".into(),
                generation: 1,
                hits: 0,
                misses: 0,
                resolutions: 0,
                lookups: 0,
                invalidations: 0,
                resolution_seconds: 0.0,
            },
            memory_bytes: 2048,
            suppress_fib_pending: true,
            dataplanes: vec![DataplaneCount {
                name: "kernel".into(),
                outstanding_batches: 1,
                failed: 0,
                lagging_by: Some(7),
            }],
        });
        let main = "
Main table  Family  Routes  Active
static      IPv4         2       1
ebgp        IPv6         1       1
3 next-hop groups, cached by dependency; tables of 2.0 KiB
FIB suppression is on: 2 best paths wait for confirmation, 1 are not in the FIB and not advertised
Dataplane kernel: 1 batches unconfirmed, 0 routes failed, lagging: 7 routes wait until it continues
";
        assert_eq!(summary(&all), format!("{expected}{main}"));
        let routes = ProtocolCount {
            family: "ipv4".into(),
            protocol: "static".into(),
            routes: 4,
            active: 3,
            denied: 0,
        };
        all.vrfs = vec![VrfTable {
            vrf: "Vrfred".into(),
            protocols: vec![routes],
            next_hop_groups: 2,
            memory_bytes: 1024,
        }];
        let red = "
VRF Vrfred  Family  Routes  Active
static      IPv4         4       3
2 next-hop groups; tables of 1.0 KiB

Dataplane";
        assert_eq!(summary(&all), format!("{expected}{}", main.replace("Dataplane", red)));
    }

    #[test]
    fn a_shard_has_its_share_its_queue_and_its_logical_shards() {
        let inbox =
            Ring { name: "readers to shard 0".into(), capacity: 128, depth: 3, peak: 9, sent: 100, full: 0 };
        let load = ShardLoad {
            summary: part(0, 3000),
            load_share: 0.6,
            cpu_seconds: Some(1.5),
            inbox: Some(inbox),
            logical_shards: vec![
                LogicalShardLoad { logical_shard: 0, prefixes: both(1000, 1) },
                LogicalShardLoad { logical_shard: 62, prefixes: both(2000, 0) },
            ],
        };
        assert_eq!(
            shard(&load),
            "\
shard-0: 3,001 prefixes, 30,002 paths, 1 of them hidden; 60.0% of all paths

Logical  IPv4 prefixes  IPv6 prefixes
      0          1,000              1
     62          2,000              0

"
        );
        let hosted = ShardLoad { cpu_seconds: None, inbox: None, ..load.clone() };
        assert_eq!(
            sharding(&Sharding { mode: "In words".into(), shards: vec![load, hosted] }),
            "\
In words

Shard    Logical  IPv4 prefixes  IPv4 paths  IPv6 prefixes  IPv6 paths  Share   Memory  CPU s     Inbox
shard-0        2          3,000      30,000              1           2  60.0%  1.0 MiB   1.50  3 of 128
shard-0        2          3,000      30,000              1           2  60.0%  1.0 MiB      -         -
"
        );
    }
}
