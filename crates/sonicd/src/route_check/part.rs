//! Checks of a part of the tables each, so that one check a second is cheap while routes change.
//!
//! The routes of the router have a lap of their own, too ([`super::router`]).
//!
//! Interfaces, neighbours, groups and objects of the switch are read again at the start of a lap
//! through the tables, and after an apparent difference. A lap covers the entries of the switch,
//! too ([`super::surplus`]).

use super::forwarding::Dest;
use super::objects::{ASIC_STATE, Objects};
use super::page::{self, Connections};
use super::query::QueryClient;
use super::router::RouteLap;
use super::rows::Rows;
use super::surplus::SwitchLap;
use super::{DaemonsCheck, Entries, Error, REPORTED_DIFFERENCES_MAX, RouteCheck, Routes, Scene, counts_of};
use ribtide_prefix::Set;
use ribtide_swss::sai::ObjectId;
use ribtide_tables::{ScanCursor, TableError};
use ribtide_vswitch::EntryKey;
use std::time::Instant;

/// Pages of each of the two databases in one check, about 1,000 keys each.
const PAGES: usize = 8;

/// The state of the laps.
pub(super) struct Round {
    scene: Scene,
    /// The last differences.
    differing: Vec<Dest>,
    /// Entries that only the switch had.
    surplus: Vec<EntryKey>,
    appl: Lap,
    asic: Lap,
    routes: RouteLap,
    switch: SwitchLap,
    /// Whether something changed after the start of this lap, or may have.
    disturbed: bool,
}

/// A lap through a database.
#[derive(Default)]
struct Lap {
    cursor: ScanCursor,
    over: bool,
}

impl Lap {
    /// Requests the next matching keys.
    fn begin(&self, connections: &mut Connections, pattern: &str) {
        if !self.over {
            connections.one.begin_scan_page(pattern, page::PAGE, &self.cursor);
        }
    }

    /// Returns these keys.
    fn end(&mut self, connections: &mut Connections) -> Result<Vec<String>, TableError> {
        if self.over {
            return Ok(Vec::new());
        }
        let keys = connections.one.end_scan_page(&mut self.cursor)?;
        self.over = self.cursor.is_at_start();
        Ok(keys)
    }
}

impl Round {
    /// The state after a full check. `disturbed`: another lap is needed.
    pub(super) fn new(scene: Scene, differing: Vec<Dest>, surplus: Vec<EntryKey>, disturbed: bool) -> Round {
        let over = || Lap { over: true, ..Lap::default() };
        let switch = SwitchLap::default();
        let (appl, asic, routes) = (over(), over(), RouteLap::default());
        Round { scene, differing, surplus, appl, asic, routes, switch, disturbed }
    }

    fn is_over(&self) -> bool {
        self.appl.over && self.asic.over && self.routes.is_over() && self.switch.is_over()
    }
}

impl DaemonsCheck {
    /// Checks the next part; `None` if a full check is needed.
    pub(super) fn next_part(
        &mut self,
        mut round: Round,
        changed: bool,
        last: &RouteCheck,
        begin: Instant,
    ) -> Result<Option<RouteCheck>, Error> {
        let milliseconds = || begin.elapsed().as_secs_f64() * 1e3;
        round.disturbed |= changed;
        if round.is_over() && !round.disturbed {
            self.round = Some(round);
            return Ok(Some(RouteCheck {
                full: false,
                checked: 0,
                milliseconds: milliseconds(),
                ..last.clone()
            }));
        }
        if round.is_over() {
            let Some(scene) = self.fresh(round.scene)? else { return Ok(None) };
            let (appl, asic, switch) = (Lap::default(), Lap::default(), self.begin_switch());
            let routes = scene.routes.as_ref().map(Routes::lap).unwrap_or_default();
            round = Round { scene, appl, asic, routes, switch, disturbed: false, ..round };
        }
        let mut dests: Set<Dest> = round.differing.drain(..).collect();
        self.read_keys(&mut round, &mut dests)?;
        let checked = dests.len() as u64;
        let suspects = self.suspects_of(&mut round.scene, &dests.into_iter().collect::<Vec<_>>())?;
        let (scene, dests, mut differences) = self.second_pass(round.scene, suspects)?;
        (round.scene, round.differing) = (scene, dests);
        let mut seeming = self.next_of_switch(&mut round.switch)?;
        seeming.append(&mut round.surplus);
        let named = round.scene.in_switch();
        let surplus = self.surplus(&round.scene, seeming)?;
        round.disturbed |= surplus.is_open;
        for (key, difference) in surplus.all {
            if named.dest(key).is_none_or(|dest| !round.differing.contains(&dest)) {
                round.surplus.push(key);
                differences.push(difference);
            }
        }
        let (differing, in_switch) = (differences.len() as u64, self.in_switch()?);
        let under_way = differences.iter().filter(|difference| difference.under_way).count() as u64;
        differences.truncate(REPORTED_DIFFERENCES_MAX);
        self.round = Some(round);
        Ok(Some(RouteCheck {
            full: false,
            checked,
            best_paths_checked: 0,
            differing,
            under_way,
            differences,
            routes: in_switch.map(|(routes, _)| ("chip".to_owned(), routes)).into_iter().collect(),
            default_routes: self.default_routes()?,
            not_compared: self.not_compared(),
            milliseconds: milliseconds(),
        }))
    }

    /// Reads what routes depend on; `None` if the VRFs changed.
    fn fresh(&mut self, before: Scene) -> Result<Option<Scene>, Error> {
        let Scene { rows, routers, vrfs, dependencies, objects, .. } = before;
        let mut scene = self.scene(rows.without_expected())?;
        if scene.dependencies.vrfs != dependencies.vrfs || scene.objects.routers != objects.routers {
            return Ok(None);
        }
        (scene.routers, scene.vrfs, scene.entries) = (routers, vrfs, Entries::default());
        Ok(Some(scene))
    }

    /// The next destinations in either database and in the router.
    fn read_keys(&mut self, round: &mut Round, dests: &mut Set<Dest>) -> Result<(), Error> {
        let Round { scene, appl, asic, routes, .. } = round;
        let (tables, table) = (Rows::tables(&self.appl), self.asic.key(ASIC_STATE, ""));
        for _ in 0..PAGES {
            appl.begin(&mut self.appl, Rows::PATTERN);
            asic.begin(&mut self.asic, &Objects::pattern(&table));
            if let Some(link) = &mut self.router {
                dests.extend(link.next_routes(scene, routes)?.into_iter().map(|(dest, _)| dest));
            }
            let rows = appl.end(&mut self.appl)?;
            dests.extend(rows.iter().filter_map(|key| scene.rows.of(&tables, key)));
            for key in asic.end(&mut self.asic)? {
                let Some(id @ (ObjectId::Route(_) | ObjectId::Inseg(_))) = Objects::id(&table, &key) else {
                    continue;
                };
                dests.extend(scene.dest(&id));
            }
        }
        Ok(())
    }

    /// The suspects among these.
    fn suspects_of(&mut self, scene: &mut Scene, dests: &[Dest]) -> Result<Set<Dest>, Error> {
        let mut suspects = Set::default();
        for dests in dests.chunks(page::PAGE) {
            let known = self.again(scene, dests)?;
            let chip = match &self.syncd {
                Some(path) => scene.in_chip(&mut QueryClient::open(path)?, dests)?,
                None => vec![None; dests.len()],
            };
            for ((dest, known), chip) in dests.iter().zip(&known).zip(chip) {
                suspects.extend(scene.compare(*dest, known, chip).map(|_| *dest));
            }
        }
        Ok(suspects)
    }

    /// The number of routes and labels in the switch, if it is queried.
    fn in_switch(&self) -> Result<Option<(u64, u64)>, Error> {
        self.syncd.as_deref().map(counts_of).transpose()
    }
}

impl Scene {
    /// The destination of this entry; `None` if it is not compared.
    pub(super) fn dest(&self, id: &ObjectId) -> Option<Dest> {
        match id {
            ObjectId::Route(route) => self.vrfs.get(&route.vr).map(|vrf| Dest::Route(*vrf, route.dest)),
            ObjectId::Inseg(inseg) => Some(Dest::Label(inseg.label)),
            _ => None,
        }
    }
}
