//! `route-check` of SONiC's daemons: compares APPL_DB, ASIC_DB, APPL_STATE_DB and the switch, and
//! the routes of a running [router] with APPL_DB.
//!
//! It checks what SONiC's `route_check.py` does: every row of ROUTE_TABLE is in ASIC_DB, every
//! route of ASIC_DB has a row or belongs to the switch, and with FIB suppression each has a
//! response in APPL_STATE_DB. It also checks that both have the same next hops, by the rules of
//! orchagent, and that the switch does what ASIC_DB says. Rows of LABEL_ROUTE_TABLE are compared,
//! too.
//!
//! A check has two passes. The first reads everything in pages, or a [part], and collects suspects.
//! Because the databases change meanwhile, the second reads all suspects again, and reports those
//! that still differ. Entries that only the switch has are in no database: [`surplus`] finds them.
//! A check ends at once if no server and no switch has changed since the last one.

mod asics;
mod forwarding;
mod objects;
mod page;
mod part;
mod router;
mod rows;
mod surplus;

use super::Error;
use super::config_db::{ConfigDb, Switch};
use super::query::{self, QueryClient};
pub use asics::AsicsCheck;
use forwarding::{Dest, Forwarding, NextHop};
use objects::{Entry, Objects};
use page::{Connections, Hashes, What};
use part::Round;
use ribtide_model::{DefaultRoute, Difference, RouteCheck};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{LabelStack, Name, RouteRow, RouteStateRow};
use ribtide_swss::sai::Oid;
use ribtide_swss::{Db, Row};
use ribtide_tables::{Connection, Databases};
use ribtide_vswitch::EntryKey;
pub use router::Router;
use router::{ROUTER, RouterLink, Routes};
use rows::{Dependencies, Expected, Rows};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;
use surplus::Surplus;

/// Differences that are reported individually.
const REPORTED_DIFFERENCES_MAX: usize = 1000;
/// The possible reasons of a missing entry.
const ABSENT: &str = "APPL_DB has a row, and ASIC_DB no entry: orchagent waits for what it needs, or the switch refused it; \
                      swss.rec and the log of orchagent say which";
/// The field of INFO that differs after a restart of the server.
const SERVER: &str = "run_id:";
/// Routes of a VRF whose entries identify its virtual router, if no interface does.
const SAMPLE: usize = 16;

/// The scope of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckScope {
    /// Everything.
    Full,
    /// Everything, if something has changed since the last check.
    Changed,
    /// The last differences and the next part of the tables, until all was read after the last
    /// change. The first check, and one after a change of servers or VRFs, is full.
    Part,
}

/// A check of the daemons of one ASIC, with its state between two runs.
pub struct DaemonsCheck {
    appl: Connections,
    asic: Connections,
    states: Connections,
    counters: Connection,
    config: ConfigDb,
    state: Connection,
    router: Option<RouterLink>,
    syncd: Option<PathBuf>,
    last: Option<(Vec<String>, RouteCheck)>,
    round: Option<Round>,
}

/// A destination after the first pass.
#[derive(Clone, Copy, Default)]
struct Examined {
    /// The index of its expected forwarding.
    expected_index: Option<u32>,
    /// The index of its entry.
    entry: Option<u32>,
    /// The number of its route in the router.
    route: Option<u32>,
    answered: bool,
}

/// Distinct entries with their forwarding.
#[derive(Default)]
struct Entries {
    numbers: Map<Entry, u32>,
    all: Vec<(Entry, Result<Forwarding, String>)>,
}

impl Entries {
    fn number(&mut self, entry: Entry, objects: &Objects) -> u32 {
        *self.numbers.entry(entry).or_insert_with(|| {
            self.all.push((entry, objects.forwarding(entry)));
            self.all.len() as u32 - 1
        })
    }
}

/// The contents of APPL_DB and ASIC_DB except routes, with the mapping between them.
struct Scene {
    dependencies: Dependencies,
    objects: Objects,
    rows: Rows,
    entries: Entries,
    /// The routes of the router, if it is compared.
    routes: Option<Routes>,
    /// The virtual router of each VRF by number, and the reverse.
    routers: Map<u32, Oid>,
    vrfs: Map<Oid, u32>,
    suppress: bool,
}

/// The difference of a destination.
struct Finding {
    stage: &'static str,
    expected: String,
    found: String,
    message: String,
    under_way: bool,
}

impl DaemonsCheck {
    /// Opens the databases, and the switch of the syncd with the query socket `syncd`. `router`: the
    /// one that feeds the databases.
    ///
    /// # Errors
    /// A sentence when a database cannot be reached.
    pub fn open(
        databases: &Databases,
        syncd: Option<PathBuf>,
        router: Option<Box<dyn Router>>,
    ) -> Result<DaemonsCheck, Error> {
        let stop = Stop::default();
        let open = |db| Connections::open(databases.get(db), &stop);
        Ok(DaemonsCheck {
            appl: open(Db::Appl)?,
            asic: open(Db::Asic)?,
            states: open(Db::ApplState)?,
            counters: Connection::open(databases.get(Db::Counters), &stop)?,
            config: ConfigDb::new(Connection::open(databases.get(Db::Config), &stop)?),
            state: Connection::open(databases.get(Db::State), &stop)?,
            router: router.map(RouterLink::new),
            syncd,
            last: None,
            round: None,
        })
    }

    /// Runs a check.
    ///
    /// # Errors
    /// A sentence when a database or syncd does not reply.
    pub fn check(&mut self, check: CheckScope) -> Result<RouteCheck, Error> {
        let begin = Instant::now();
        let mut watermarks = self.watermarks()?;
        let (of_router, is_sending) = self.find_router()?;
        watermarks.extend(of_router);
        let changed = is_sending || self.last.as_ref().is_none_or(|(before, _)| *before != watermarks);
        if check == CheckScope::Part
            && let (Some(round), Some((before, last))) = (self.round.take(), self.last.take())
            && is_same_servers(&before, &watermarks)
            && let Some(found) = self.next_part(round, changed, &last, begin)?
        {
            self.last = Some((watermarks, found.clone()));
            return Ok(found);
        }
        if let (CheckScope::Changed, false, Some((_, last))) = (check, changed, &self.last) {
            let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
            return Ok(RouteCheck { full: false, checked: 0, milliseconds, ..last.clone() });
        }
        let found = self.compare(begin)?;
        self.last = Some((watermarks, found.clone()));
        Ok(found)
    }

    /// Watermarks of the three databases and the switch: any write moves one of them.
    fn watermarks(&mut self) -> Result<Vec<String>, Error> {
        let mut watermarks = Vec::new();
        for connection in [&mut self.appl, &mut self.asic, &mut self.states] {
            for section in ["server", "persistence"] {
                let info = connection.query(&["INFO", section])?.into_text().unwrap_or_default();
                let names = [SERVER, "rdb_changes_since_last_save:", "rdb_last_save_time:"];
                let lines = info.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
                watermarks.extend(lines.map(str::to_owned));
            }
        }
        if let Some(path) = &self.syncd {
            let chip = query::query(path, "chip")?;
            watermarks.push(format!("{} {}", chip["calls"], chip["requested"]));
        }
        Ok(watermarks)
    }

    fn compare(&mut self, begin: Instant) -> Result<RouteCheck, Error> {
        let mut scene = self.scene(Rows::default())?;
        let (known, queued) = self.first_pass(&mut scene)?;
        let mut suspects: Set<Dest> = queued;
        suspects.extend(scene.suspects(&known));
        let mut counts = Counts { routes: scene.routes.as_ref().map(|_| 0), ..Counts::default() };
        for (dest, of) in &known {
            counts.add(*dest, of);
        }
        if let Some(path) = &self.syncd {
            suspects.extend(scene.other_in_chip(path, &known)?);
        }
        let checked =
            counts.rows + counts.entries + counts.label_rows + counts.labels + counts.routes.unwrap_or(0);
        let (mut lap, mut seeming, named) = (self.begin_switch(), Vec::new(), scene.in_switch());
        let entry = |key| named.dest(key).and_then(|dest| known.get(&dest)?.entry);
        while !lap.is_over() {
            seeming.extend(self.next_of_switch(&mut lap)?.into_iter().filter(|key| entry(*key).is_none()));
        }
        drop(known);
        let (scene, dests, mut differences) = self.second_pass(scene, suspects)?;
        let reported: Set<Dest> = dests.iter().copied().collect();
        let Surplus { all: mut surplus, is_open } = self.surplus(&scene, seeming)?;
        let named = scene.in_switch();
        surplus.retain(|(key, _)| named.dest(*key).is_none_or(|dest| !reported.contains(&dest)));
        let (surplus, more): (Vec<EntryKey>, Vec<Difference>) = surplus.into_iter().unzip();
        differences.extend(more);
        let differing = differences.len() as u64;
        self.round = Some(Round::new(scene, dests, surplus, is_open));
        counts.chip = self.syncd.as_deref().map(counts_of).transpose()?;
        let under_way = differences.iter().filter(|difference| difference.under_way).count() as u64;
        differences.truncate(REPORTED_DIFFERENCES_MAX);
        Ok(RouteCheck {
            full: true,
            checked,
            best_paths_checked: 0,
            differing,
            under_way,
            differences,
            routes: counts.by_table(),
            default_routes: self.default_routes()?,
            not_compared: self.not_compared(),
            milliseconds: begin.elapsed().as_secs_f64() * 1e3,
        })
    }

    /// Reads everything except routes.
    fn scene(&mut self, rows: Rows) -> Result<Scene, Error> {
        let dependencies = Dependencies::read(&mut self.appl)?;
        let objects = Objects::read(&mut self.asic, &mut self.counters, &dependencies)?;
        let suppress = self.config.has(Switch::SuppressFibPending)?;
        let (routes, entries) = (self.routes()?, Entries::default());
        let (routers, vrfs) = (Map::default(), Map::default());
        Ok(Scene { dependencies, objects, rows, entries, routes, routers, vrfs, suppress })
    }

    /// The first pass: reads all routes of the router and all rows, entries and responses from all
    /// databases in parallel, and keys that wait for orchagent.
    fn first_pass(&mut self, scene: &mut Scene) -> Result<(Map<Dest, Examined>, Set<Dest>), Error> {
        scene.find_routers(&mut self.appl, &mut self.asic)?;
        let queued = scene.rows.queued(&mut self.appl)?;
        let mut known: Map<Dest, Examined> = Map::default();
        let mut lap = scene.routes.as_ref().map(Routes::lap).unwrap_or_default();
        let (tables, table) = (Rows::tables(&self.appl), self.asic.key(objects::ASIC_STATE, ""));
        let mut rows = Hashes::begin(&mut self.appl, Rows::PATTERN, &tables, What::Fields);
        let (pattern, kinds) = (Objects::pattern(&table), Objects::tables(&table));
        let mut entries = Hashes::begin(&mut self.asic, &pattern, &kinds, What::Fields);
        let states = self.states.key(RouteStateRow::TABLE, "");
        let mut answers = scene.suppress.then(|| {
            let tables = std::slice::from_ref(&states);
            Hashes::begin(&mut self.states, &format!("{states}*"), tables, What::Name)
        });
        let mut more = [true, true, answers.is_some()];
        while more.contains(&true) || !lap.is_over() {
            if let Some(link) = self.router.as_mut().filter(|_| !lap.is_over()) {
                for (dest, route) in link.next_routes(scene, &mut lap)? {
                    known.entry(dest).or_default().route = Some(route);
                }
            }
            if more[0] {
                more[0] = rows.step(|key, fields| {
                    let dest = scene.rows.of(&tables, key);
                    if let Some((dest, expected_index)) =
                        dest.and_then(|dest| Some((dest, scene.rows.expected_index(dest, fields)?)))
                    {
                        known.entry(dest).or_default().expected_index = Some(expected_index);
                    }
                })?;
            }
            if more[1] {
                more[1] = entries.step(|key, fields| {
                    let dest = Objects::id(&table, key).and_then(|id| scene.dest(&id));
                    let entry = |dest| objects::entry(fields, matches!(dest, Dest::Label(_)));
                    if let Some((dest, entry)) = dest.and_then(|dest| Some((dest, entry(dest)?))) {
                        known.entry(dest).or_default().entry =
                            Some(scene.entries.number(entry, &scene.objects));
                    }
                })?;
            }
            if let Some(answers) = answers.as_mut().filter(|_| more[2]) {
                more[2] = answers.step(|key, _| {
                    let dest = key.strip_prefix(&states).and_then(|name| scene.rows.dest(name));
                    if let Some(dest) = dest {
                        known.entry(dest).or_default().answered = true;
                    }
                })?;
            }
        }
        Ok((known, queued))
    }

    /// The second pass: reads each suspect again and reports those that still differ.
    fn second_pass(
        &mut self,
        before: Scene,
        suspects: Set<Dest>,
    ) -> Result<(Scene, Vec<Dest>, Vec<Difference>), Error> {
        let mut suspects: Vec<Dest> = suspects.into_iter().collect();
        suspects.sort_unstable();
        let (mut dests, mut differences) = (Vec::new(), Vec::new());
        if suspects.is_empty() {
            return Ok((before, dests, differences));
        }
        let Scene { rows, routers, vrfs, .. } = before;
        let mut scene = self.scene(rows)?;
        (scene.routers, scene.vrfs) = (routers, vrfs);
        let queued = scene.rows.queued(&mut self.appl)?;
        for suspects in suspects.chunks(page::PAGE) {
            let known = self.again(&mut scene, suspects)?;
            let chip = match &self.syncd {
                Some(path) => scene.in_chip(&mut QueryClient::open(path)?, suspects)?,
                None => vec![None; suspects.len()],
            };
            for ((dest, known), chip) in suspects.iter().zip(known).zip(chip) {
                let finding = if queued.contains(dest) {
                    Some(Finding {
                        stage: "orchagent",
                        expected: "changed".into(),
                        found: "not taken".into(),
                        message: "it waits in APPL_DB's queue for orchagent to take it".into(),
                        under_way: true,
                    })
                } else {
                    scene.compare(*dest, &known, chip)
                };
                if let Some(finding) = finding {
                    dests.push(*dest);
                    differences.push(scene.difference(*dest, finding));
                }
            }
        }
        Ok((scene, dests, differences))
    }

    /// Reads these destinations again.
    fn again(&mut self, scene: &mut Scene, dests: &[Dest]) -> Result<Vec<Examined>, Error> {
        let routes = self.look_up(scene, dests)?;
        let Scene { rows, entries, objects, routers, suppress, .. } = scene;
        let keys: Vec<String> = dests.iter().map(|dest| rows.key(&self.appl, *dest)).collect();
        let (states, table) = (self.states.key(RouteStateRow::TABLE, ""), self.appl.key(RouteRow::TABLE, ""));
        let answers: Vec<String> =
            keys.iter().map(|key| format!("{states}{}", key.strip_prefix(&table).unwrap_or(key))).collect();
        let router = |dest: &Dest| match dest {
            Dest::Route(vrf, _) => routers.get(vrf).copied().unwrap_or_default(),
            Dest::Label(_) => Oid::NULL,
        };
        let ids = dests.iter().map(|dest| Objects::key(&self.asic, &objects::id(*dest, router(dest))));
        let ids: Vec<String> = ids.collect();
        let mut all = Vec::with_capacity(dests.len());
        for start in (0..dests.len()).step_by(page::PAGE) {
            let page = start..dests.len().min(start + page::PAGE);
            self.appl.begin("HGETALL", &keys[page.clone()]);
            self.asic.begin("HGETALL", &ids[page.clone()]);
            if *suppress {
                self.states.begin("EXISTS", &answers[page]);
            }
            let (found, in_asic, answered) = (self.appl.end()?, self.asic.end()?, self.states.end()?);
            for (n, (row, entry)) in found.into_iter().zip(in_asic).enumerate() {
                let is_label = matches!(dests[start + n], Dest::Label(_));
                let entry =
                    objects::entry(&entry.into_pairs(), is_label).map(|entry| entries.number(entry, objects));
                let answered = answered.get(n).and_then(|reply| reply.as_integer()) == Some(1);
                all.push(Examined {
                    expected_index: rows.expected_index(dests[start + n], &row.into_pairs()),
                    entry,
                    route: routes[start + n],
                    answered,
                });
            }
        }
        Ok(all)
    }

    /// Checks the default routes only, with some exact keys, whatever the size of the tables.
    ///
    /// # Errors
    /// A sentence when a database does not reply.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, Error> {
        let prefixes = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|text| text.parse::<AnyPrefix>().ok());
        let (router, mut rows) = (Objects::switch(&mut self.asic)?.router, Rows::default());
        let mut all = Vec::new();
        for dest in prefixes.map(|prefix| Dest::Route(0, prefix)) {
            let row = self.appl.query(&["HGETALL", &rows.key(&self.appl, dest)])?.into_pairs();
            let expected_index = rows.expected_index(dest, &row);
            let entries = Objects::entries_of(&mut self.asic, &[objects::id(dest, router)])?;
            all.push(DefaultRoute {
                prefix: shown(dest),
                forwarded: expected_index.is_some() && entries.iter().flatten().any(|entry| entry.forwards()),
                next_hops: expected_index.map(|expected_index| {
                    Shown::Expected(&rows.expected_set.all[expected_index as usize].expected).to_string()
                }),
            });
        }
        Ok(all)
    }
}

impl Scene {
    /// Finds the virtual router of each VRF: by one of its interfaces, else by some of its routes.
    fn find_routers(&mut self, appl: &mut Connections, asic: &mut Connections) -> Result<(), Error> {
        let Scene { dependencies, objects, rows, routers, .. } = self;
        routers.insert(0, objects.router);
        for (name, router) in objects.routers_by_interface(dependencies) {
            routers.insert(rows.vrfs.number(Some(name)), router);
        }
        let taken = |routers: &Map<u32, Oid>, oid: &Oid| routers.values().any(|taken| taken == oid);
        let names: Vec<Name> = dependencies.vrfs.iter().cloned().collect();
        for name in &names {
            let vrf = rows.vrfs.number(Some(name));
            let free: Vec<Oid> = objects.routers.keys().copied().filter(|oid| !taken(routers, oid)).collect();
            if !routers.contains_key(&vrf)
                && let Some(router) = Objects::router_with(asic, &free, &rows.sample(appl, vrf, SAMPLE)?)?
            {
                routers.insert(vrf, router);
            }
        }
        // The remaining virtual routers have no rows, so their order does not matter.
        for router in objects.routers.keys() {
            if !taken(routers, router) {
                let free = names.iter().map(|name| rows.vrfs.number(Some(name)));
                let vrf = free.into_iter().find(|vrf| !routers.contains_key(vrf));
                let vrf = vrf.unwrap_or_else(|| rows.vrfs.number(Some(&router.to_string().into())));
                routers.insert(vrf, *router);
            }
        }
        self.vrfs = routers.iter().map(|(vrf, router)| (*router, *vrf)).collect();
        Ok(())
    }

    fn router_of(&self, dest: Dest) -> Option<Oid> {
        match dest {
            Dest::Route(vrf, _) => self.routers.get(&vrf).copied(),
            Dest::Label(_) => None,
        }
    }

    /// The expected forwarding of a row, resolved through its group.
    fn expected(&self, expected_index: u32) -> Shown<'_> {
        let expected = &self.rows.expected_set.all[expected_index as usize].expected;
        match expected {
            Expected::Group(index) => {
                self.dependencies.group(index).map_or(Shown::NoGroup(index), Shown::Expected)
            }
            _ => Shown::Expected(expected),
        }
    }

    /// The suspects.
    fn suspects(&self, known: &Map<Dest, Examined>) -> Vec<Dest> {
        // Few distinct rows meet few distinct entries.
        let mut well: Map<(u32, u32), bool> = Map::default();
        let mut routes_well: Map<(u32, u32), bool> = Map::default();
        let differs = |(dest, of): &(&Dest, &Examined)| {
            let agrees = match (of.route, of.expected_index) {
                (Some(route), Some(row)) => {
                    *routes_well.entry((route, row)).or_insert_with(|| self.route_agrees(route, row))
                }
                _ => self.compare_router(**dest, of).is_none(),
            };
            if !agrees {
                return true;
            }
            let same = match (of.expected_index, of.entry) {
                (Some(expected_index), Some(entry)) => *well.entry((expected_index, entry)).or_insert_with(|| {
                    let (found, forwarding) = &self.entries.all[entry as usize];
                    let requested = self.rows.expected_set.all[expected_index as usize].pop;
                    let pops = found.pop.is_none_or(|pop| pop == requested);
                    pops && matches!((self.expected(expected_index), forwarding), (Shown::Expected(Expected::Forwarding(expected)), Ok(forwarding)) if expected.same(forwarding))
                }),
                _ => false,
            };
            let answered = of.answered || !self.suppress || matches!(dest, Dest::Label(_));
            !(same && answered) && self.compare_databases(**dest, of).is_some()
        };
        known.iter().filter(differs).map(|(dest, _)| *dest).collect()
    }

    /// The first difference on the way from the router to the switch, if any. `chip`: as of
    /// [`Scene::in_chip`].
    fn compare(&self, dest: Dest, known: &Examined, chip: Option<Option<Forwarding>>) -> Option<Finding> {
        self.compare_router(dest, known)
            .or_else(|| self.compare_databases(dest, known))
            .or_else(|| self.compare_chip(known, chip?))
    }

    /// The difference between the databases, if any.
    fn compare_databases(&self, dest: Dest, known: &Examined) -> Option<Finding> {
        let finding = |expected: String, found: String, message: &str| {
            let (message, under_way) = (message.to_owned(), true);
            Some(Finding { stage: "orchagent", expected, found, message, under_way })
        };
        let entry = known.entry.map(|entry| &self.entries.all[entry as usize]);
        let forwarding = entry.map(|(_, forwarding)| forwarding);
        let found = match forwarding {
            None => "not in ASIC_DB".to_owned(),
            Some(Ok(forwarding)) => forwarding.to_string(),
            Some(Err(_)) => "to an object that is not there".to_owned(),
        };
        let Some(expected_index) = known.expected_index else {
            if forwarding.is_none_or(|forwarding| is_own(dest, forwarding.as_ref().ok())) {
                return None;
            }
            return finding("no row".into(), found, "ASIC_DB has it, and APPL_DB does not");
        };
        let shown = self.expected(expected_index);
        let expected = match &shown {
            Shown::Expected(expected) => *expected,
            Shown::NoGroup(_) => {
                return finding(
                    shown.to_string(),
                    found,
                    "NEXTHOP_GROUP_TABLE does not have the group that its row names",
                );
            }
        };
        let to_cpu = matches!(forwarding, Some(Ok(Forwarding::Cpu)));
        let (own, alone) = match dest {
            Dest::Route(vrf, prefix) => (
                self.dependencies.owns(self.rows.vrfs.name(vrf), prefix)
                    || !ribtide_swss::orch::parsed_row::is_global(prefix),
                matches!(expected, Expected::Direct(name) if self.dependencies.leaves_alone(name, prefix)),
            ),
            Dest::Label(_) => (false, false),
        };
        let direct;
        let expected = match expected {
            // The router's own address, from any announcer.
            _ if own && to_cpu => return None,
            Expected::Unread if forwarding.is_some() => return None,
            Expected::Unread => return finding(shown.to_string(), found, ABSENT),
            Expected::Local if forwarding.is_none_or(|forwarding| is_own(dest, forwarding.as_ref().ok())) => {
                return None;
            }
            Expected::Local => {
                return finding(
                    shown.to_string(),
                    found,
                    "ASIC_DB has it, and its row resolves to the router itself",
                );
            }
            Expected::Refused(why) => {
                return Some(Finding {
                    stage: "orchagent",
                    expected: shown.to_string(),
                    found,
                    message: format!("orchagent does not take its row: {why}"),
                    under_way: false,
                });
            }
            // An entry of the switch for it is accepted.
            Expected::Direct(_) if alone => return None,
            Expected::Direct(name) => {
                let hop = NextHop { gateway: None, interface: Some(name.clone()), labels: None, weight: 1 };
                direct = Forwarding::through(vec![hop]);
                &direct
            }
            Expected::Forwarding(forwarding) => forwarding,
            Expected::Group(_) => {
                return finding(
                    shown.to_string(),
                    found,
                    "its group is made of other groups, which are not programmed",
                );
            }
        };
        let message = match forwarding {
            None => ABSENT,
            Some(Err(message)) => message,
            Some(Ok(forwarding)) if forwarding.is_part_of(expected) => {
                "its entry has some of its next hops: the others are not resolved, or their links are down, or the switch has no \
                 room for its group"
            }
            Some(Ok(forwarding)) if !forwarding.same(expected) => {
                "its entry in ASIC_DB resolves to something else than its row"
            }
            Some(Ok(_)) => {
                let requested = self.rows.expected_set.all[expected_index as usize].pop;
                if let Some(pop) = entry.and_then(|(entry, _)| entry.pop)
                    && requested != pop
                {
                    let labels = |n: u8| format!("takes {n} labels off");
                    return finding(
                        labels(requested),
                        labels(pop),
                        "its entry takes off another number of labels than its row says",
                    );
                }
                if self.suppress && !known.answered && matches!(dest, Dest::Route(..)) {
                    return Some(Finding {
                        stage: "responses",
                        expected: shown.to_string(),
                        found: "no answer".into(),
                        message: "APPL_STATE_DB has no answer for it, so it is not advertised".into(),
                        under_way: true,
                    });
                }
                return None;
            }
        };
        finding(expected.to_string(), found, message)
    }

    /// The difference of the switch, if any.
    fn compare_chip(&self, known: &Examined, chip: Option<Forwarding>) -> Option<Finding> {
        let expected = known.entry.map(|entry| &self.entries.all[entry as usize].1);
        let expected = expected.and_then(|forwarding| forwarding.as_ref().ok());
        let message = match (expected, &chip) {
            (Some(expected), Some(chip)) if chip.same(expected) => return None,
            (None, _) => return None,
            (Some(_), Some(_)) => "the switch forwards elsewhere than its entry in ASIC_DB says",
            (Some(_), None) => "the switch does not have it",
        };
        Some(Finding {
            stage: "chip",
            expected: expected.map(Forwarding::to_string).unwrap_or_default(),
            found: chip.map_or_else(|| "absent".into(), |forwarding| forwarding.to_string()),
            message: message.into(),
            under_way: true,
        })
    }

    /// Destinations whose entry in ASIC_DB differs from the switch.
    fn other_in_chip(&self, path: &Path, known: &Map<Dest, Examined>) -> Result<Vec<Dest>, Error> {
        let mut client = QueryClient::open(path)?;
        let mut others = Vec::new();
        let dests: Vec<Dest> =
            known.iter().filter(|(_, of)| of.entry.is_some()).map(|(dest, _)| *dest).collect();
        for dests in dests.chunks(page::PAGE) {
            for (dest, chip) in dests.iter().zip(self.in_chip(&mut client, dests)?) {
                let of = known.get(dest).copied().unwrap_or_default();
                others.extend(chip.and_then(|chip| self.compare_chip(&of, chip)).map(|_| *dest));
            }
        }
        Ok(others)
    }

    /// The forwarding of the switch for these. The outer `None`: labels, and VRFs without virtual
    /// router, are not queried.
    fn in_chip(
        &self,
        client: &mut QueryClient,
        dests: &[Dest],
    ) -> Result<Vec<Option<Option<Forwarding>>>, Error> {
        forwarding_in_switch(client, dests.iter().map(|dest| self.key_in_switch(*dest)))
    }

    fn difference(&self, dest: Dest, finding: Finding) -> Difference {
        let vrf = match dest {
            Dest::Route(vrf, _) => self.rows.vrfs.shown(vrf),
            Dest::Label(_) => "labels".into(),
        };
        difference(vrf, shown(dest), finding)
    }
}

/// The expected forwarding of a row, for display.
enum Shown<'a> {
    Expected(&'a Expected),
    NoGroup(&'a Name),
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shown::NoGroup(index) => write!(f, "group {index}"),
            Shown::Expected(Expected::Group(index)) => write!(f, "group {index}"),
            Shown::Expected(Expected::Forwarding(forwarding)) => forwarding.fmt(f),
            Shown::Expected(Expected::Direct(name)) => write!(f, "dev {name}"),
            Shown::Expected(Expected::Local) => f.write_str("the router itself"),
            Shown::Expected(Expected::Refused(_)) => f.write_str("what cannot be"),
            Shown::Expected(Expected::Unread) => f.write_str("a tunnel"),
        }
    }
}

/// The number of routes and labels in the switch of this syncd.
fn counts_of(syncd: &Path) -> Result<(u64, u64), Error> {
    let chip = query::query(syncd, "counts")?;
    let count = |name: &str| chip[name].as_u64().unwrap_or_default();
    Ok((count("ipv4_routes") + count("ipv6_routes"), count("labels")))
}

/// The forwarding of the switch for these; the outer `None`: not queried, because only routes are.
fn forwarding_in_switch(
    client: &mut QueryClient,
    keys: impl ExactSizeIterator<Item = Option<EntryKey>>,
) -> Result<Vec<Option<Option<Forwarding>>>, Error> {
    let mut all = vec![None; keys.len()];
    let mut by_router: Map<Oid, (Vec<usize>, String)> = Map::default();
    for (n, key) in keys.enumerate() {
        if let Some(EntryKey::Route(router, prefix)) = key {
            let (places, question) =
                by_router.entry(router).or_insert_with(|| (Vec::new(), format!("routes {router}")));
            places.push(n);
            question.push_str(&format!(" {prefix}"));
        }
    }
    for (places, question) in by_router.into_values() {
        let answers = client.query(&question)?;
        for (n, answer) in places.into_iter().zip(answers.as_array().into_iter().flatten()) {
            all[n] = Some(forward(answer));
        }
    }
    Ok(all)
}

/// Whether both watermarks are of the same processes.
fn is_same_servers(before: &[String], now: &[String]) -> bool {
    let ids = |watermarks: &[String]| -> Vec<String> {
        let is_id = |watermark: &&String| [SERVER, ROUTER].iter().any(|id| watermark.starts_with(id));
        watermarks.iter().filter(is_id).cloned().collect()
    };
    ids(before) == ids(now)
}

fn shown(dest: Dest) -> String {
    match dest {
        Dest::Route(_, prefix) => prefix.to_string(),
        Dest::Label(label) => label.to_string(),
    }
}

fn difference(vrf: String, prefix: String, finding: Finding) -> Difference {
    let Finding { stage, expected, found, message, under_way } = finding;
    Difference { vrf, prefix, neighbor: None, stage: stage.into(), rib: expected, found, message, under_way }
}

/// Whether a route without row belongs to the switch: a route to itself, or a dropping default
/// route.
fn is_own(dest: Dest, forwarding: Option<&Forwarding>) -> bool {
    let default = matches!(dest, Dest::Route(_, prefix) if prefix.len() == 0);
    forwarding == Some(&Forwarding::Cpu) && !matches!(dest, Dest::Label(_))
        || default && forwarding == Some(&Forwarding::Drop)
}

/// Parses the reply of syncd about a route; `None` without an entry.
fn forward(answer: &Value) -> Option<Forwarding> {
    let hops = answer["hops"].as_array()?;
    if answer["action"] == "drop" || hops.is_empty() {
        return Some(Forwarding::Drop);
    }
    if answer["action"] == "trap" || hops.iter().any(|hop| hop["gateway"].is_null() && hop["port"] == "CPU") {
        return Some(Forwarding::Cpu);
    }
    let hop = |hop: &Value| NextHop {
        gateway: hop["gateway"].as_str().and_then(|text| text.parse().ok()),
        // The switch has its own names of ports.
        interface: None,
        labels: hop["labels"].as_str().and_then(LabelStack::parse),
        weight: hop["weight"].as_u64().unwrap_or(1) as u32,
    };
    Some(Forwarding::through(hops.iter().map(hop).collect()))
}

/// The counts of a check.
#[derive(Default)]
struct Counts {
    rows: u64,
    entries: u64,
    label_rows: u64,
    labels: u64,
    /// Of the router, if it is compared.
    routes: Option<u64>,
    /// Routes and labels.
    chip: Option<(u64, u64)>,
}

impl Counts {
    fn add(&mut self, dest: Dest, known: &Examined) {
        let (rows, entries) = match dest {
            Dest::Route(..) => (&mut self.rows, &mut self.entries),
            Dest::Label(_) => (&mut self.label_rows, &mut self.labels),
        };
        *rows += u64::from(known.expected_index.is_some());
        *entries += u64::from(known.entry.is_some());
        if let Some(routes) = &mut self.routes {
            *routes += u64::from(known.route.is_some());
        }
    }

    fn by_table(&self) -> std::collections::BTreeMap<String, u64> {
        let mut counts = vec![("APPL_DB", self.rows), ("ASIC_DB", self.entries)];
        counts.extend(self.routes.map(|routes| ("rib", routes)));
        counts.extend(self.chip.map(|(routes, _)| ("chip", routes)));
        if self.label_rows + self.labels + self.chip.map_or(0, |(_, labels)| labels) > 0 {
            counts.extend([("APPL_DB labels", self.label_rows), ("ASIC_DB labels", self.labels)]);
            counts.extend(self.chip.map(|(_, labels)| ("chip labels", labels)));
        }
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
