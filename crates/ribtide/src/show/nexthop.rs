//! Next-hop groups and the resolution cache.

use crate::text::{Table, count, number, wrap};
use ribtide_model::{NextHopCache, NextHopGroup, ReceivedNextHop, Tracked, TrackedNextHops};

/// The cache and its counters.
pub(super) fn cache(c: &NextHopCache) -> String {
    let lookups = c.hits + c.misses;
    let share = if lookups == 0 {
        String::new()
    } else {
        format!(" ({:.1}%)", 100.0 * c.hits as f64 / lookups as f64)
    };
    format!(
        "Next-hop cache: {}, generation {}\n  {} hits{share}, {} misses; {} resolutions, {} look-ups of next hops in {:.3} s; \
         {} invalidations\n",
        c.mode,
        number(c.generation),
        number(c.hits),
        number(c.misses),
        number(c.resolutions),
        number(c.lookups),
        c.resolution_seconds,
        number(c.invalidations)
    )
}

/// The next hops that BGP has registered.
pub(super) fn tracked(all: &TrackedNextHops) -> String {
    let mut table = Table::new(&["Next hop", "Kind", "State", ">Cost", "Through", "Resolved", ">Changes"]);
    for n in &all.next_hops {
        let state = match (n.reachable, n.delayed_ms) {
            (None, _) => "unknown".into(),
            (Some(true), None) if n.alone => "reachable alone".into(),
            (Some(true), None) => "reachable".into(),
            (Some(false), None) => "unreachable".into(),
            (Some(_), Some(ms)) => format!("delayed {:.1} s", ms as f64 / 1000.0),
        };
        let (resolved, more) = first(&n.resolved, "");
        let resolved = match &n.unresolved {
            Some(why) => format!("unresolved: {why}"),
            None => format!("{resolved} {more}").trim_end().into(),
        };
        table.row([
            n.address.clone(),
            match &n.only_for {
                Some(prefix) => format!("{} for {prefix}", n.kind),
                None => n.kind.clone(),
            },
            state,
            n.cost.map_or_else(|| "-".into(), |cost| cost.to_string()),
            n.through.clone().unwrap_or_else(|| "-".into()),
            resolved,
            n.changes.to_string(),
        ]);
    }
    format!("{}\n{}", count(all.next_hops.len() as u64, "next hop"), table.render())
}

pub(super) fn table() -> Table {
    Table::new(&[
        ">ID",
        "VRF",
        "Received",
        "",
        "Resolved",
        "",
        ">Level",
        ">Routes",
        ">In FIB",
        "Depends",
        "Dependents",
        "Cache",
    ])
}

pub(super) fn row(table: &mut Table, cache: &NextHopCache, g: &NextHopGroup) {
    let received: Vec<String> = g.received.iter().map(|h| h.hop.clone()).collect();
    let (received, more_received) = first(&received, "blackhole");
    let (resolved, more_resolved) = match &g.resolved {
        Some(hops) => first(hops, "blackhole"),
        None => ("unresolved".into(), String::new()),
    };
    table.row([
        g.id.to_string(),
        g.vrf.clone(),
        received,
        more_received,
        resolved,
        more_resolved,
        g.level.to_string(),
        number(g.routes.into()),
        number(g.installed_routes.into()),
        ids(&g.depends, 3),
        ids(&g.dependents, 3),
        state(cache, g),
    ]);
}

/// The full state of a group.
pub(super) fn group(cache: &NextHopCache, g: &NextHopGroup) -> String {
    let kind = if g.allow_recursion { "may recurse" } else { "may not recurse" };
    let only =
        g.only_for.as_ref().map_or(String::new(), |p| format!(", for {p} alone, whose next hop is inside"));
    let installed = if g.installed { "installed" } else { "not installed" };
    let mut out = format!(
        "ID: {}, VRF {}\n  {}, {} in the FIB; {installed}\n  Cache: {}\n",
        g.id,
        g.vrf,
        count(g.routes.into(), "route"),
        number(g.installed_routes.into()),
        state(cache, g)
    );
    out += &format!("  Received: {}, {kind}{only}\n", count(g.received.len() as u64, "next hop"));
    out += &hops(&g.received);
    if !g.backup.is_empty() {
        let state = if g.on_backup { "in use" } else { "standing by" };
        out += &format!("  Backup: {}, {state}\n", count(g.backup.len() as u64, "next hop"));
        out += &hops(&g.backup);
    }
    if let Some(policy) = &g.policy {
        out += &format!("  Policy: {policy}\n");
    }
    if let Some(Tracked { what, holds }) = &g.tracks {
        out += &format!("  Tracks: {what}, which {}\n", if *holds { "holds" } else { "does not hold" });
    }
    match &g.resolved {
        None => out += "  Resolved: nothing resolves\n",
        Some(hops) => {
            out += &format!("  Resolved: {}, level {}\n", count(hops.len() as u64, "hop"), g.level);
            hops.iter().for_each(|hop| out += &format!("    {hop}\n"));
        }
    }
    for (title, groups) in [("Depends: ", &g.depends), ("Dependents: ", &g.dependents)] {
        if !groups.is_empty() {
            out += &wrap("  ", title, " ", &groups.iter().map(|id| format!("({id})")).collect::<Vec<_>>());
        }
    }
    out
}

/// Next hops and what each resolves to.
fn hops(hops: &[ReceivedNextHop]) -> String {
    let mut table = Table::new(&["    Next hop", ">Weight", "Resolves"]);
    for ReceivedNextHop { hop, weight, through, unresolved } in hops {
        let resolves = match (unresolved, through) {
            (Some(why), _) => format!("no: {why}"),
            (None, Some(prefix)) => format!("through {prefix}"),
            (None, None) => "on its interface".into(),
        };
        table.row([format!("    {hop}"), weight.to_string(), resolves]);
    }
    table.render()
}

/// The cache's state of a group.
fn state(cache: &NextHopCache, g: &NextHopGroup) -> String {
    match (cache.mode.as_str(), g.stamp) {
        ("off", _) => "not cached".into(),
        (_, None) => "kept up to date".into(),
        (_, Some(0)) => "not cached yet".into(),
        (_, Some(stamp)) => {
            let stands = if stamp == cache.generation { "current" } else { "outdated" };
            format!("{stands}, generation {} of {}", number(stamp), number(cache.generation))
        }
    }
}

/// The first elements, and how many more there are.
fn first(all: &[String], none: &str) -> (String, String) {
    match all {
        [] => (none.into(), String::new()),
        [one] => (one.clone(), String::new()),
        [one, rest @ ..] => (one.clone(), format!("and {} more", number(rest.len() as u64))),
    }
}

/// At most `most` numbers, and how many more there are.
fn ids(ids: &[u32], most: usize) -> String {
    let shown: Vec<String> = ids.iter().take(most).map(u32::to_string).collect();
    match ids.len().saturating_sub(most) {
        0 if ids.is_empty() => "-".into(),
        0 => shown.join(" "),
        more => format!("{} and {} more", shown.join(" "), number(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached() -> NextHopCache {
        NextHopCache {
            mode: "epoch".into(),
            generation: 14,
            hits: 999,
            misses: 1,
            resolutions: 3,
            lookups: 9,
            invalidations: 2,
            resolution_seconds: 0.0015,
        }
    }

    fn some() -> NextHopGroup {
        let hop = |hop: &str, weight, through: Option<&str>, unresolved: Option<&str>| ReceivedNextHop {
            hop: hop.into(),
            weight,
            through: through.map(Into::into),
            unresolved: unresolved.map(Into::into),
        };
        NextHopGroup {
            id: 35,
            vrf: "default".into(),
            routes: 1000,
            installed_routes: 999,
            installed: true,
            allow_recursion: true,
            only_for: None,
            received: vec![
                hop("via 3.3.3.3", 1, Some("3.3.3.0/24"), None),
                hop("via 10.0.5.2 dev eth4", 10, None, None),
                hop("via 9.9.9.9", 1, None, Some("no route holds it")),
            ],
            backup: vec![],
            on_backup: false,
            policy: None,
            tracks: None,
            resolved: Some(vec![
                "via 10.0.5.2 dev eth4 weight 1".into(),
                "via 10.0.6.2 dev eth5 weight 1".into(),
            ]),
            level: 2,
            stamp: Some(14),
            depends: vec![14],
            dependents: vec![],
        }
    }

    #[test]
    fn group_text_has_received_and_resolved_hops() {
        assert_eq!(
            cache(&cached()) + &group(&cached(), &some()),
            "\
Next-hop cache: epoch, generation 14
  999 hits (99.9%), 1 misses; 3 resolutions, 9 look-ups of next hops in 0.002 s; 2 invalidations
ID: 35, VRF default
  1,000 routes, 999 in the FIB; installed
  Cache: current, generation 14 of 14
  Received: 3 next hops, may recurse
    Next hop               Weight  Resolves
    via 3.3.3.3                 1  through 3.3.3.0/24
    via 10.0.5.2 dev eth4      10  on its interface
    via 9.9.9.9                 1  no: no route holds it
  Resolved: 2 hops, level 2
    via 10.0.5.2 dev eth4 weight 1
    via 10.0.6.2 dev eth5 weight 1
  Depends: (14)
"
        );
    }

    #[test]
    fn group_text_has_backups_and_conditions() {
        let tracks = Some(Tracked { what: "interface eth1".into(), holds: false });
        let backup = some().received.split_off(1);
        let text = group(&cached(), &NextHopGroup { backup, on_backup: true, tracks, ..some() });
        assert!(text.contains(
            "\
  Backup: 2 next hops, in use
    Next hop               Weight  Resolves
    via 10.0.5.2 dev eth4      10  on its interface
    via 9.9.9.9                 1  no: no route holds it
  Tracks: interface eth1, which does not hold
"
        ));
    }

    #[test]
    fn groups_are_a_line_each() {
        let blackhole = NextHopGroup {
            received: vec![],
            resolved: Some(vec!["blackhole".into()]),
            stamp: Some(13),
            depends: (1..9).collect(),
            ..some()
        };
        let lost = NextHopGroup { resolved: None, stamp: Some(0), ..some() };
        let mut table = table();
        for g in [&some(), &blackhole, &lost] {
            row(&mut table, &cached(), g);
        }
        assert_eq!(
            table.render(),
            "\
ID  VRF      Received                 Resolved                                    Level  Routes  In FIB  Depends           Dependents  Cache
35  default  via 3.3.3.3  and 2 more  via 10.0.5.2 dev eth4 weight 1  and 1 more      2   1,000     999  14                -           current, generation 14 of 14
35  default  blackhole                blackhole                                       2   1,000     999  1 2 3 and 5 more  -           outdated, generation 13 of 14
35  default  via 3.3.3.3  and 2 more  unresolved                                      2   1,000     999  14                -           not cached yet
"
        );
        let off = NextHopCache { mode: "off".into(), ..cached() };
        assert_eq!(state(&off, &NextHopGroup { stamp: None, ..some() }), "not cached");
    }
}
