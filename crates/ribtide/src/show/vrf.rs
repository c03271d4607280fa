//! VRFs and static routes.

use crate::text::{Table, number};
use ribtide_model::{ProtocolCount, StaticNextHop, StaticRoute, StaticRoutes, Vrf, Vrfs};

/// A line for each VRF.
pub(super) fn vrfs(all: &Vrfs) -> String {
    let header = ["VRF", ">Table", "Device", "BGP", ">Static", ">Routes", ">Active", ">Groups", "Interfaces"];
    let mut table = Table::new(&header);
    for vrf in &all.vrfs {
        let sum = |of: fn(&ProtocolCount) -> u64| number(vrf.protocols.iter().map(of).sum());
        let Vrf { name, table: of_kernel, device, interfaces, static_routes, bgp, .. } = vrf;
        table.row([
            name.clone(),
            of_kernel.map_or("-".into(), |table| table.to_string()),
            device.clone().unwrap_or_else(|| "-".into()),
            if *bgp { "yes" } else { "no" }.into(),
            number(*static_routes as u64),
            sum(|count| count.routes),
            sum(|count| count.active),
            number(vrf.next_hop_groups as u64),
            if interfaces.is_empty() { "-".into() } else { interfaces.join(", ") },
        ]);
    }
    table.render()
}

/// A line for each static route.
pub(super) fn static_routes(all: &StaticRoutes) -> String {
    if all.routes.is_empty() {
        return "There is no static route: [[static]] and [[vrf.NAME.static]] tables make them.\n".into();
    }
    let mut table = Table::new(&["VRF", "Prefix", ">Distance", "State", "Next hops", "Note"]);
    for route in &all.routes {
        table.row([
            route.vrf.clone(),
            route.prefix.clone(),
            route.distance.to_string(),
            if route.selected { "selected" } else { "not used" }.into(),
            next_hops(route),
            note(route),
        ]);
    }
    table.render()
}

fn next_hops(route: &StaticRoute) -> String {
    if route.blackhole {
        return "discard".into();
    }
    let hops = if route.on_backup { &route.backup } else { &route.next_hops };
    hops.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn name(hop: &StaticNextHop) -> String {
    let gateway = hop.gateway.map(|gateway| format!("via {gateway}"));
    let interface = hop.interface.as_ref().map(|interface| format!("dev {interface}"));
    gateway.into_iter().chain(interface).collect::<Vec<_>>().join(" ")
}

/// Why it is not used, what is missing, and what its use depends on.
fn note(route: &StaticRoute) -> String {
    let reason = route.reason.as_ref().map(|why| why.trim_start_matches("not used: ").to_owned());
    let backup = route.on_backup.then(|| "its backup stands in for its next hops".to_owned());
    let unresolved = route
        .next_hops
        .iter()
        .filter_map(|hop| Some(format!("{} does not resolve: {}", name(hop), hop.unresolved.as_ref()?)));
    let tracks = route.tracks.as_ref().map(|tracked| {
        format!("tracks {}, which {}", tracked.what, if tracked.holds { "holds" } else { "does not hold" })
    });
    let bfd = route.bfd.then(|| "BFD".to_owned());
    let parts: Vec<String> =
        reason.into_iter().chain(backup).chain(unresolved).chain(tracks).chain(bfd).collect();
    if parts.is_empty() { "-".into() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::Tracked;

    fn route(prefix: &str) -> StaticRoute {
        let hop = |gateway: &str| StaticNextHop {
            gateway: gateway.parse().ok(),
            interface: None,
            through: None,
            unresolved: None,
        };
        StaticRoute {
            vrf: "default".into(),
            prefix: prefix.into(),
            distance: 1,
            blackhole: false,
            next_hops: vec![hop("10.0.0.2"), hop("10.0.0.3")],
            backup: vec![hop("10.0.0.9")],
            on_backup: false,
            tracks: None,
            bfd: false,
            selected: true,
            reason: None,
            group: Some(7),
        }
    }

    #[test]
    fn static_routes_say_why_they_are_not_used() {
        let mut waits = route("20.0.0.0/8");
        (waits.selected, waits.reason) = (false, Some("not used: none of its next hops resolves".into()));
        waits.next_hops[0].unresolved = Some("no route holds it".into());
        waits.tracks = Some(Tracked { what: "interface eth1".into(), holds: false });
        let mut backup = route("30.0.0.0/8");
        (backup.on_backup, backup.bfd) = (true, true);
        let discards = StaticRoute { blackhole: true, next_hops: Vec::new(), ..route("40.0.0.0/8") };
        let text =
            static_routes(&StaticRoutes { routes: vec![route("10.0.0.0/8"), waits, backup, discards] });
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            text.lines().map(words).collect::<Vec<_>>(),
            [
                "VRF Prefix Distance State Next hops Note",
                "default 10.0.0.0/8 1 selected via 10.0.0.2, via 10.0.0.3 -",
                "default 20.0.0.0/8 1 not used via 10.0.0.2, via 10.0.0.3 none of its next hops resolves; via 10.0.0.2 does \
                 not resolve: no route holds it; tracks interface eth1, which does not hold",
                "default 30.0.0.0/8 1 selected via 10.0.0.9 its backup stands in for its next hops; BFD",
                "default 40.0.0.0/8 1 selected discard -",
            ]
        );
        assert!(static_routes(&StaticRoutes { routes: Vec::new() }).starts_with("There is no static route"));
    }

    #[test]
    fn vrfs_have_the_sums_of_their_routes() {
        let count = |routes, active| ProtocolCount {
            family: "ipv4".into(),
            protocol: "static".into(),
            routes,
            active,
            denied: 0,
        };
        let vrf = Vrf {
            name: "red".into(),
            table: Some(100),
            device: None,
            interfaces: vec!["eth1".into(), "eth2".into()],
            static_routes: 2,
            protocols: vec![count(1000, 900), count(5, 4)],
            next_hop_groups: 3,
            bgp: false,
        };
        let text = vrfs(&Vrfs { vrfs: vec![vrf] });
        let last = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(last, "red 100 - no 2 1,005 904 3 eth1, eth2");
    }
}
