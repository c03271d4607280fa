//! The routes of a running router, and the rows of ROUTE_TABLE that fpmsyncd makes of them.
//!
//! The router is read over its API, a page at a time. It must have an FPM client: without one it
//! does not feed APPL_DB. A route is compared by the rules of fpmsyncd: a route to one next hop on
//! a management port has no row, VRFs have names that begin with `Vrf`, and weights are those of
//! netlink. Rows without a `protocol` are another program's, since fpmsyncd always writes it.

use super::forwarding::{Dest, Forwarding, NextHop};
use super::rows::{self, Written};
use super::{DaemonsCheck, Error, Examined, Finding, Scene};
use crate::settings;
use ribtide_model::{BLACKHOLE, FibNextHop, FibPage, FibRoute, FpmClient, UNRESOLVED};
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_swss::fpmsyncd::MANAGEMENT;
use ribtide_swss::row::Name;
use ribtide_wire::netlink::scale_weight;
use std::collections::{BTreeSet, VecDeque};

/// Routes in a query.
pub(super) const PAGE: usize = 1000;
/// How often a read of a VRF starts again after the router dropped its cursor.
const RESTARTS_MAX: usize = 3;
/// The line of a watermark that says which router is compared.
pub(super) const ROUTER: &str = "router:";
/// The default VRF in the API.
const DEFAULT: &str = "default";

/// A running router. An error is a sentence.
pub trait Router {
    /// Its FPM clients; the error says why no router can be queried.
    ///
    /// # Errors
    /// The router is there and does not reply.
    fn clients(&mut self) -> Result<Result<Vec<FpmClient>, String>, String>;

    /// Its VRFs, the default one included.
    ///
    /// # Errors
    /// The router does not reply.
    fn vrfs(&mut self) -> Result<Vec<String>, String>;

    /// A page of the selected routes of a VRF.
    ///
    /// # Errors
    /// The router does not reply, has no such VRF, or dropped the cursor.
    fn page(&mut self, vrf: &str, cursor: Option<&str>, limit: usize) -> Result<FibPage, String>;

    /// The selected routes of exactly these prefixes.
    ///
    /// # Errors
    /// The router does not reply, or has no such VRF.
    fn lookup(&mut self, vrf: &str, prefixes: Vec<String>) -> Result<Vec<Option<FibRoute>>, String>;
}

/// The state of the comparison with the router.
pub(super) struct RouterLink {
    router: Box<dyn Router>,
    /// Its FPM clients, or why it is not compared.
    clients: Result<Vec<FpmClient>, String>,
}

impl RouterLink {
    pub(super) fn new(router: Box<dyn Router>) -> RouterLink {
        RouterLink { router, clients: Err(String::new()) }
    }

    /// The next routes of a lap, with their numbers; none if the router is not compared.
    pub(super) fn next_routes(
        &mut self,
        scene: &mut Scene,
        lap: &mut RouteLap,
    ) -> Result<Vec<(Dest, u32)>, Error> {
        let Some(routes) = &mut scene.routes else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for route in lap.next(&mut *self.router)? {
            let prefix: AnyPrefix = (route.prefix.parse())
                .map_err(|e| Error::new(format!("the router's reply cannot be read: {e}")))?;
            let vrf = (route.vrf != DEFAULT).then(|| Name::from(route.vrf.as_str()));
            let dest = Dest::Route(scene.rows.vrfs.number(vrf.as_ref()), prefix);
            found.push((dest, routes.number(route)?));
        }
        Ok(found)
    }
}

/// The state of a route in the FPM clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Status {
    Sent,
    Pending,
    Failed(String),
}

/// What a route should have in APPL_DB.
#[derive(Clone, PartialEq, Debug)]
enum Wanted {
    /// FPM has no message for it, so fpmsyncd keeps what it had.
    Unresolved,
    /// A row. `optional`: or none, as it forwards to the switch's management.
    Row { forwarding: Forwarding, optional: bool },
}

impl Wanted {
    fn of(hops: &[String]) -> Result<Wanted, Error> {
        match hops {
            [text] if text == UNRESOLVED => return Ok(Wanted::Unresolved),
            [text] if text == BLACKHOLE => {
                return Ok(Wanted::Row { forwarding: Forwarding::Drop, optional: false });
            }
            _ => {}
        }
        let hops = hops.iter().map(|text| text.parse()).collect::<Result<Vec<FibNextHop>, String>>();
        let hops = hops.map_err(|e| Error::new(format!("the router's reply cannot be read: {e}")))?;
        let weight = |hop: &FibNextHop| hop.weight.unwrap_or(1);
        let largest = hops.iter().map(weight).max().unwrap_or(1);
        let optional = matches!(&hops[..], [hop] if MANAGEMENT.contains(&hop.interface.as_str()));
        let hops = hops.iter().map(|hop| NextHop {
            gateway: hop.gateway,
            interface: Some(hop.interface.as_str().into()),
            labels: None,
            weight: scale_weight(weight(hop), largest).into(),
        });
        Ok(Wanted::Row { forwarding: rows::through(hops.collect()), optional })
    }
}

/// Distinct routes of the router, and what their comparison needs.
pub(super) struct Routes {
    /// The dataplanes that are FPM clients.
    clients: BTreeSet<String>,
    connected: bool,
    vrfs: BTreeSet<String>,
    numbers: Map<(Vec<String>, Status), u32>,
    all: Vec<(Wanted, Status)>,
}

impl Routes {
    /// The number of a route's content and state.
    fn number(&mut self, route: FibRoute) -> Result<u32, Error> {
        let mut status = Status::Sent;
        for plane in route.dataplanes.into_iter().filter(|plane| self.clients.contains(&plane.name)) {
            match plane.state.as_str() {
                "failed" => status = Status::Failed(plane.reason.unwrap_or_default()),
                "pending" if status == Status::Sent => status = Status::Pending,
                _ => {}
            }
        }
        let key = (route.hops, status);
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        let number = self.all.len() as u32;
        self.all.push((Wanted::of(&key.0)?, key.1.clone()));
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// The VRFs whose routes fpmsyncd writes.
    pub(super) fn lap(&self) -> RouteLap {
        let vrfs = self.vrfs.iter().filter(|vrf| is_written(vrf)).cloned();
        RouteLap { vrfs: vrfs.collect(), cursor: None, restarts: 0 }
    }
}

/// Whether fpmsyncd writes routes of a VRF with this name.
fn is_written(vrf: &str) -> bool {
    vrf == DEFAULT || vrf.starts_with("Vrf")
}

/// A lap through the routes of the router.
#[derive(Default)]
pub(super) struct RouteLap {
    /// The VRFs that are left.
    vrfs: VecDeque<String>,
    /// The next page of the first one.
    cursor: Option<String>,
    restarts: usize,
}

impl RouteLap {
    pub(super) fn is_over(&self) -> bool {
        self.vrfs.is_empty()
    }

    /// The next routes. A read whose cursor the router dropped starts again, and so does a VRF's.
    fn next(&mut self, router: &mut dyn Router) -> Result<Vec<FibRoute>, Error> {
        let Some(vrf) = self.vrfs.front().cloned() else { return Ok(Vec::new()) };
        match router.page(&vrf, self.cursor.as_deref(), PAGE) {
            Ok(FibPage { routes, next }) => {
                self.cursor = next;
                if self.cursor.is_none() {
                    self.vrfs.pop_front();
                }
                Ok(routes)
            }
            Err(e) if !has_vrf(router, &vrf).map_err(|_| Error::new(&e))? => {
                self.cursor = None;
                self.vrfs.pop_front();
                Ok(Vec::new())
            }
            Err(_) if self.cursor.is_some() && self.restarts < RESTARTS_MAX => {
                self.cursor = None;
                self.restarts += 1;
                Ok(Vec::new())
            }
            Err(e) => Err(Error::new(e)),
        }
    }
}

fn has_vrf(router: &mut dyn Router, vrf: &str) -> Result<bool, String> {
    Ok(router.vrfs()?.iter().any(|name| name == vrf))
}

impl DaemonsCheck {
    /// Finds the router, and returns watermarks of what it sent, and whether more is to be sent.
    pub(super) fn find_router(&mut self) -> Result<(Vec<String>, bool), Error> {
        let Some(link) = &mut self.router else { return Ok((Vec::new(), false)) };
        link.clients = link.router.clients().map_err(Error::new)?;
        if let Ok(clients) = &link.clients {
            if clients.is_empty() {
                link.clients = Err("it has no FPM client (fib.fpm in its configuration)".into());
            } else if is_off(&settings::of("fpmsyncd", &mut self.state)?) {
                link.clients = Err("fpmsyncd keeps no APPL_DB (--appl-db off)".into());
            }
        }
        Ok(match &link.clients {
            Err(why) => (vec![format!("{ROUTER} not compared: {why}")], false),
            Ok(clients) => {
                let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
                let mut watermarks = vec![format!("{ROUTER} {}", names.join(" "))];
                watermarks.extend(clients.iter().map(|client| {
                    let FpmClient { connects, closes, batches, routes, deletes, .. } = client;
                    let FpmClient { resent, offload_failed, .. } = client;
                    format!("{connects} {closes} {batches} {routes} {deletes} {resent} {offload_failed}")
                }));
                // Routes that it could not send move no counter.
                (watermarks, clients.iter().any(|client| !client.connected || client.waiting > 0))
            }
        })
    }

    /// Why the router is not compared, if so.
    pub(super) fn not_compared(&self) -> Vec<String> {
        let why = self.router.as_ref().and_then(|link| link.clients.as_ref().err());
        why.map(|why| format!("the RIB manager with APPL_DB: {why}")).into_iter().collect()
    }

    /// The start of a comparison with the router; `None`: it is not compared.
    pub(super) fn routes(&mut self) -> Result<Option<Routes>, Error> {
        let Some(RouterLink { router, clients: Ok(clients) }) = &mut self.router else { return Ok(None) };
        Ok(Some(Routes {
            clients: clients.iter().map(|client| client.name.clone()).collect(),
            connected: clients.iter().all(|client| client.connected),
            vrfs: router.vrfs().map_err(Error::new)?.into_iter().collect(),
            numbers: Map::default(),
            all: Vec::new(),
        }))
    }

    /// The numbers of the routes to these destinations.
    pub(super) fn look_up(&mut self, scene: &mut Scene, dests: &[Dest]) -> Result<Vec<Option<u32>>, Error> {
        let mut found = vec![None; dests.len()];
        let (Some(link), Some(routes)) = (&mut self.router, &mut scene.routes) else { return Ok(found) };
        let mut by_vrf: Map<u32, Vec<(usize, AnyPrefix)>> = Map::default();
        for (n, dest) in dests.iter().enumerate() {
            if let Dest::Route(vrf, prefix) = dest {
                by_vrf.entry(*vrf).or_default().push((n, *prefix));
            }
        }
        for (vrf, wanted) in by_vrf {
            let vrf = scene.rows.vrfs.shown(vrf);
            if !routes.vrfs.contains(&vrf) || !is_written(&vrf) {
                continue;
            }
            for some in wanted.chunks(PAGE) {
                let prefixes = some.iter().map(|(_, prefix)| prefix.to_string()).collect();
                let answers = match link.router.lookup(&vrf, prefixes) {
                    Ok(answers) => answers,
                    Err(e) if has_vrf(&mut *link.router, &vrf).unwrap_or(true) => return Err(Error::new(e)),
                    // The VRF was removed meanwhile.
                    Err(_) => break,
                };
                for ((n, _), route) in some.iter().zip(answers) {
                    found[*n] = route.map(|route| routes.number(route)).transpose()?;
                }
            }
        }
        Ok(found)
    }
}

/// Whether fpmsyncd does not keep APPL_DB.
fn is_off(settings: &[settings::Setting]) -> bool {
    settings.iter().any(|setting| setting.name == "appl-db" && setting.active == "off")
}

impl Scene {
    /// Whether a route of the router and a row of fpmsyncd agree.
    pub(super) fn route_agrees(&self, route: u32, row: u32) -> bool {
        let Some(routes) = &self.routes else { return true };
        match &routes.all[route as usize].0 {
            Wanted::Unresolved => true,
            Wanted::Row { forwarding, .. } => {
                self.written(row).is_some_and(|written| written.same(forwarding))
            }
        }
    }

    /// What a row says, resolved through its group; `None`: nothing that a route may have.
    fn written(&self, row: u32) -> Option<&Forwarding> {
        match &self.rows.expected_set.all[row as usize].written {
            Written::Forwarding(forwarding) => Some(forwarding),
            Written::Group(index) => match self.dependencies.written_group(index)? {
                Written::Forwarding(forwarding) => Some(forwarding),
                _ => None,
            },
            Written::Unreadable(_) => None,
        }
    }

    /// A row's next hops for display.
    fn written_text(&self, row: u32) -> String {
        match (&self.rows.expected_set.all[row as usize].written, self.written(row)) {
            (_, Some(forwarding)) => forwarding.to_string(),
            (Written::Group(index), None) => format!("group {index}, which is not there"),
            (Written::Unreadable(why), None) => why.clone(),
            (Written::Forwarding(_), None) => String::new(),
        }
    }

    /// The difference between the router and APPL_DB, if any.
    pub(super) fn compare_router(&self, dest: Dest, known: &Examined) -> Option<Finding> {
        let (routes, Dest::Route(vrf, _)) = (self.routes.as_ref()?, dest) else { return None };
        let finding = |stage, expected: &str, found: String, message: &str, under_way| {
            let (expected, message) = (expected.to_owned(), message.to_owned());
            Some(Finding { stage, expected, found, message, under_way })
        };
        let (route, row) = match (known.route, known.expected_index) {
            (None, None) => return None,
            (None, Some(row)) => {
                let is_own = self.rows.expected_set.all[row as usize].has_protocol;
                return if is_own && is_written(&self.rows.vrfs.shown(vrf)) {
                    let message = "APPL_DB has a row, and the RIB manager no route: another program wrote it, or fpmsyncd did \
                                   not delete it";
                    finding("fpmsyncd", "no route", self.written_text(row), message, true)
                } else {
                    None
                };
            }
            (Some(route), row) => (route, row),
        };
        let (Wanted::Row { forwarding, optional }, status) = &routes.all[route as usize] else { return None };
        let (found, message) = match row {
            Some(row) if self.route_agrees(route, row) => return None,
            Some(row) => {
                (self.written_text(row), "its row in APPL_DB has other next hops than the RIB manager")
            }
            None if *optional => return None,
            None => (
                "no row".to_owned(),
                "the RIB manager sent it, and APPL_DB has no row: another program deleted it, or fpmsyncd does not go on",
            ),
        };
        let expected = forwarding.to_string();
        match status {
            Status::Failed(why) => finding("fpm", &expected, found, why, false),
            _ if !routes.connected => finding(
                "fpm",
                &expected,
                found,
                "an FPM client of the router has no connection to its server",
                true,
            ),
            Status::Pending => finding("fpm", &expected, found, "the FPM client has not confirmed it", true),
            Status::Sent => finding("fpmsyncd", &expected, found, message, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Entries;
    use super::super::objects::Objects;
    use super::super::rows::{Dependencies, Rows};
    use super::*;
    use ribtide_model::DataplaneState;
    use ribtide_swss::Row;
    use ribtide_swss::row::NextHopGroupRow;

    const FPM: &str = "fpm 127.0.0.1:2620";

    fn pairs(text: &str) -> Vec<(String, String)> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn route(hops: &str, state: &str) -> FibRoute {
        let plane = |name: &str, state: &str| DataplaneState {
            name: name.into(),
            state: state.into(),
            reason: (state == "failed").then(|| "too many next hops".into()),
        };
        FibRoute {
            vrf: DEFAULT.into(),
            prefix: "20.0.0.0/24".into(),
            protocol: "ebgp".into(),
            distance: 20,
            group: Some(1),
            hops: hops.split(", ").map(str::to_owned).collect(),
            // Another dataplane's state does not count.
            dataplanes: vec![plane("kernel", "failed"), plane(FPM, state)],
            age_seconds: None,
        }
    }

    fn scene() -> Scene {
        let mut dependencies = Dependencies::default();
        for (name, fields) in [
            ("7", "nexthop=10.0.0.1,10.0.0.2 ifname=Ethernet0,Ethernet4 weight=1,3"),
            ("8", "nexthop=10.0.0.1 ifname=Ethernet0 weight=1"),
        ] {
            let fields = pairs(fields);
            let row = NextHopGroupRow::from_fields(&mut fields.iter().map(|(a, b)| (a.as_str(), b.as_str())));
            dependencies.add_group(name.into(), &row.unwrap().via);
        }
        let routes = Routes {
            clients: BTreeSet::from([FPM.to_owned()]),
            connected: true,
            vrfs: BTreeSet::from([DEFAULT.to_owned(), "Vrf1".to_owned(), "red".to_owned()]),
            numbers: Map::default(),
            all: Vec::new(),
        };
        Scene {
            dependencies,
            objects: Objects::default(),
            rows: Rows::default(),
            entries: Entries::default(),
            routes: Some(routes),
            routers: Map::default(),
            vrfs: Map::default(),
            suppress: false,
        }
    }

    /// The difference between a route and a row, if any: its stage, and what both have.
    fn compare(
        vrf: &str,
        wanted: Option<FibRoute>,
        row: &str,
    ) -> Option<(&'static str, String, String, bool)> {
        let mut scene = scene();
        let name = (vrf != DEFAULT).then(|| Name::from(vrf));
        let dest = Dest::Route(scene.rows.vrfs.number(name.as_ref()), "20.0.0.0/24".parse().unwrap());
        let route = wanted.map(|route| scene.routes.as_mut().unwrap().number(route).unwrap());
        let expected_index = scene.rows.expected_index(dest, &pairs(row));
        let known = Examined { route, expected_index, ..Examined::default() };
        let found = scene.compare_router(dest, &known);
        found.map(|found| (found.stage, found.expected, found.found, found.under_way))
    }

    #[test]
    fn route_and_row_with_the_same_next_hops_agree() {
        for (hops, row) in [
            ("via 10.0.0.1 dev Ethernet0", "protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1"),
            ("via 10.0.0.1 dev Ethernet0", "protocol=bgp nexthop_group=8"),
            ("dev Ethernet0", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet0"),
            ("dev Loopback0", "protocol=kernel nexthop=:: ifname=Loopback0"),
            ("via fe80::1 dev Ethernet0", "protocol=bgp nexthop=fe80::1 ifname=Ethernet0"),
            ("blackhole", "protocol=static blackhole=true nexthop= ifname="),
            // In any order, and with weights of the range of netlink.
            (
                "via 10.0.0.1 dev Ethernet0 weight 1, via 10.0.0.2 dev Ethernet4 weight 3",
                "protocol=bgp nexthop=10.0.0.2,10.0.0.1 ifname=Ethernet4,Ethernet0 weight=3,1",
            ),
            (
                "via 10.0.0.1 dev Ethernet0 weight 1, via 10.0.0.2 dev Ethernet4 weight 3",
                "protocol=bgp nexthop_group=7",
            ),
            (
                "via 10.0.0.1 dev Ethernet0 weight 10000, via 10.0.0.2 dev Ethernet4 weight 40000",
                "protocol=bgp nexthop=10.0.0.1,10.0.0.2 ifname=Ethernet0,Ethernet4 weight=64,256",
            ),
            // fpmsyncd keeps what it had.
            ("unresolved", "protocol=bgp nexthop=10.0.0.9 ifname=Ethernet0"),
            ("unresolved", ""),
            // The management port has no rows.
            ("via 10.0.0.1 dev eth0", ""),
            ("dev docker0", ""),
        ] {
            for state in ["installed", "pending", "failed"] {
                assert_eq!(compare(DEFAULT, Some(route(hops, state)), row), None, "{hops}: {row}");
            }
        }
        assert_eq!(compare(DEFAULT, None, ""), None);
    }

    #[test]
    fn route_and_row_with_other_next_hops_differ() {
        let ecmp = "via 10.0.0.1 dev Ethernet0 weight 1, via 10.0.0.2 dev Ethernet4 weight 3";
        for (hops, row, found) in [
            (
                "via 10.0.0.1 dev Ethernet0",
                "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0",
                "via 10.0.0.2 dev Ethernet0",
            ),
            (
                "via 10.0.0.1 dev Ethernet0",
                "protocol=bgp nexthop=10.0.0.1 ifname=unknown",
                "via 10.0.0.1 dev unknown",
            ),
            ("via 10.0.0.1 dev Ethernet0", "protocol=bgp blackhole=true", "drop"),
            ("via 10.0.0.1 dev Ethernet0", "protocol=bgp nexthop_group=9", "group 9, which is not there"),
            (
                "via 10.0.0.1 dev Ethernet0",
                "protocol=bgp nexthop=banana ifname=Ethernet0",
                "\"banana\" is not an address",
            ),
            ("blackhole", "protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0", "via 10.0.0.1 dev Ethernet0"),
            (ecmp, "protocol=bgp nexthop_group=8", "via 10.0.0.1 dev Ethernet0"),
            (
                ecmp,
                "protocol=bgp nexthop=10.0.0.1,10.0.0.2 ifname=Ethernet0,Ethernet4 weight=1,1",
                "via 10.0.0.1 dev Ethernet0, via 10.0.0.2 dev Ethernet4",
            ),
            (ecmp, "", "no row"),
        ] {
            let (stage, _, text, under_way) = compare(DEFAULT, Some(route(hops, "installed")), row).unwrap();
            assert_eq!((stage, text.as_str(), under_way), ("fpmsyncd", found, true), "{hops}: {row}");
            assert_eq!(compare("Vrf1", Some(route(hops, "installed")), row).unwrap().0, "fpmsyncd");
        }
        // Where it waits, and why it does not go on.
        let of =
            |state| compare(DEFAULT, Some(route("dev Ethernet0", state)), "").map(|found| (found.0, found.3));
        assert_eq!(of("pending"), Some(("fpm", true)));
        assert_eq!(of("failed"), Some(("fpm", false)));
    }

    #[test]
    fn row_without_a_route_differs_if_fpmsyncd_may_have_written_it() {
        let (own, other) =
            ("protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0", "nexthop=10.0.0.1 ifname=Ethernet0");
        let wanted = ("fpmsyncd", "no route".to_owned(), "via 10.0.0.1 dev Ethernet0".to_owned(), true);
        for vrf in [DEFAULT, "Vrf1", "Vrf2"] {
            assert_eq!(compare(vrf, None, own), Some(wanted.clone()), "{vrf}");
            assert_eq!(compare(vrf, None, other), None, "{vrf}");
        }
        assert_eq!(compare("Vnet1", None, own), None);
    }

    /// A router with pages of one route, which may drop cursors and VRFs.
    #[derive(Default)]
    struct Fake {
        vrfs: Vec<String>,
        routes: usize,
        dropped: usize,
    }

    impl Router for Fake {
        fn clients(&mut self) -> Result<Result<Vec<FpmClient>, String>, String> {
            Ok(Err("no router".into()))
        }

        fn vrfs(&mut self) -> Result<Vec<String>, String> {
            Ok(self.vrfs.clone())
        }

        fn page(&mut self, vrf: &str, cursor: Option<&str>, _: usize) -> Result<FibPage, String> {
            let place: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            if cursor.is_some() && self.dropped > 0 {
                self.dropped -= 1;
                return Err("no read under way".into());
            }
            if !self.vrfs.iter().any(|name| name == vrf) {
                return Err(format!("there is no VRF {vrf}"));
            }
            let prefix = format!("20.0.{place}.0/24");
            let routes = vec![FibRoute { vrf: vrf.into(), prefix, ..route("dev Ethernet0", "installed") }];
            let next = (place + 1 < self.routes).then(|| (place + 1).to_string());
            Ok(FibPage { routes, next })
        }

        fn lookup(&mut self, _: &str, _: Vec<String>) -> Result<Vec<Option<FibRoute>>, String> {
            Err("not called".into())
        }
    }

    fn read(lap: &mut RouteLap, router: &mut Fake) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        while !lap.is_over() {
            let routes = lap.next(router)?;
            found.extend(routes.into_iter().map(|route| format!("{} {}", route.vrf, route.prefix)));
        }
        Ok(found)
    }

    #[test]
    fn lap_reads_each_vrf_that_fpmsyncd_writes() {
        let lap = || scene().routes.unwrap().lap();
        let vrfs = || vec![DEFAULT.to_owned(), "Vrf1".to_owned()];
        let mut router = Fake { vrfs: vrfs(), routes: 2, ..Fake::default() };
        let all = ["Vrf1 20.0.0.0/24", "Vrf1 20.0.1.0/24", "default 20.0.0.0/24", "default 20.0.1.0/24"];
        assert_eq!(read(&mut lap(), &mut router).unwrap(), all);
        // A dropped cursor: its VRF is read again from the start.
        router.dropped = RESTARTS_MAX;
        let mut again = read(&mut lap(), &mut router).unwrap();
        again.sort_unstable();
        again.dedup();
        assert_eq!(again, all);
        router.dropped = RESTARTS_MAX + 1;
        assert!(read(&mut lap(), &mut router).is_err());
        // A VRF that was removed meanwhile has no routes.
        router = Fake { vrfs: vec![DEFAULT.to_owned()], routes: 2, ..Fake::default() };
        assert_eq!(read(&mut lap(), &mut router).unwrap(), all[2..]);
    }
}
