//! Whether APPL_DB, ASIC_DB, APPL_STATE_DB and the switch agree, where fpmsyncd, orchagent and syncd run as processes.
//!
//! What `route_check.py` of SONiC asks: every row of ROUTE_TABLE is in ASIC_DB, every route of ASIC_DB is a row's or the
//! switch's own, with FIB suppression each has its answer in APPL_STATE_DB. And what it does not ask: that both lead to the
//! same next hops, by the rules by which orchagent programs rows, and that the switch does what ASIC_DB says. Labels are
//! looked at too: rows of LABEL_ROUTE_TABLE, and their entries.
//!
//! A look is two passes. The first reads everything, a page at a time, or a [part]; it suspects what differs. Since the databases
//! go on meanwhile, the second reads of all suspects each again, and tells what differs then, too. What only the switch has no key
//! of a database names: [`surplus`] finds it. A look that finds that no server and no switch has changed anything since the last one
//! is over with that.

mod leads;
mod objects;
mod page;
mod part;
mod rows;
mod surplus;

use super::Error;
use super::config_db::{ConfigDb, Switch};
use super::query::{self, QueryClient};
use leads::{Dest, Leads, Way};
use objects::{Entry, Objects};
use page::{Hashes, Lanes, What};
use part::Round;
use ribtide_model::{DefaultRoute, Difference, RouteCheck};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{LabelStack, Name, RouteRow, RouteStateRow};
use ribtide_swss::sai::Oid;
use ribtide_swss::{Db, Row};
use ribtide_tables::{Connection, Databases};
use ribtide_vswitch::EntryKey;
use rows::{Ground, Rows, Wanted};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Instant;
use surplus::Surplus;

/// Differences that are told one by one.
const REPORTED_DIFFERENCES_MAX: usize = 1000;
/// Why a row may have no entry.
const ABSENT: &str = "APPL_DB has a row, and ASIC_DB no entry: orchagent waits for what it needs, or the switch refused it; \
                      swss.rec and the log of orchagent say which";
/// What a server that was started again has another of.
const SERVER: &str = "run_id:";
/// Routes of a VRF by which its virtual router is found, where no interface tells.
const SAMPLE: usize = 16;

/// How much is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Everything.
    Full,
    /// Everything, if anything has changed since the last look.
    Changed,
    /// What differed at the last look and the next part of the tables, until all was read after the last change; everything at
    /// first, and when a server or the VRFs are others.
    Part,
}

/// Between two looks.
pub struct DaemonsCheck {
    appl: Lanes,
    asic: Lanes,
    states: Lanes,
    counters: Connection,
    config: ConfigDb,
    syncd: Option<PathBuf>,
    last: Option<(Vec<String>, RouteCheck)>,
    round: Option<Round>,
}

/// What is known of a destination after the first pass.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The number of what its row asks for.
    wish: Option<u32>,
    /// The number of its entry.
    entry: Option<u32>,
    answered: bool,
}

/// Entries, each kind once, and where it leads.
#[derive(Default)]
struct Entries {
    numbers: Map<Entry, u32>,
    all: Vec<(Entry, Result<Leads, String>)>,
}

impl Entries {
    fn number(&mut self, entry: Entry, objects: &Objects) -> u32 {
        *self.numbers.entry(entry).or_insert_with(|| {
            self.all.push((entry, objects.leads(entry)));
            self.all.len() as u32 - 1
        })
    }
}

/// What APPL_DB and ASIC_DB have of everything but routes, and which is which.
struct Scene {
    ground: Ground,
    objects: Objects,
    rows: Rows,
    entries: Entries,
    /// The virtual routers of VRFs by number, and the numbers of virtual routers.
    routers: Map<u32, Oid>,
    vrfs: Map<Oid, u32>,
    suppress: bool,
}

/// What is wrong with a destination.
struct Finding {
    stage: &'static str,
    wanted: String,
    found: String,
    says: String,
    under_way: bool,
}

impl DaemonsCheck {
    /// Of the daemons on the databases of `config`, and the switch of the syncd that answers at `syncd`.
    ///
    /// # Errors
    /// A sentence when a database cannot be reached.
    pub fn open(config: Option<&Path>, syncd: Option<PathBuf>) -> Result<DaemonsCheck, Error> {
        let databases = Databases::load(config)?;
        let stop = Stop::default();
        let open = |db| Lanes::open(databases.get(db), &stop);
        Ok(DaemonsCheck {
            appl: open(Db::Appl)?,
            asic: open(Db::Asic)?,
            states: open(Db::ApplState)?,
            counters: Connection::open(databases.get(Db::Counters), &stop)?,
            config: ConfigDb::new(Connection::open(databases.get(Db::Config), &stop)?),
            syncd,
            last: None,
            round: None,
        })
    }

    /// Looks.
    ///
    /// # Errors
    /// A sentence when a database or syncd does not answer.
    pub fn look(&mut self, look: Look) -> Result<RouteCheck, Error> {
        let begin = Instant::now();
        let watermarks = self.watermarks()?;
        let changed = self.last.as_ref().is_none_or(|(before, _)| *before != watermarks);
        if look == Look::Part
            && let (Some(round), Some((before, last))) = (self.round.take(), self.last.take())
            && is_same_servers(&before, &watermarks)
            && let Some(found) = self.next_part(round, changed, &last, begin)?
        {
            self.last = Some((watermarks, found.clone()));
            return Ok(found);
        }
        if let (Look::Changed, false, Some((_, last))) = (look, changed, &self.last) {
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
            watermarks.push(format!("{} {}", chip["calls"], chip["asked"]));
        }
        Ok(watermarks)
    }

    fn compare(&mut self, begin: Instant) -> Result<RouteCheck, Error> {
        let mut scene = self.scene(Rows::default())?;
        let (known, queued) = self.first_pass(&mut scene)?;
        let mut suspects: Set<Dest> = queued;
        suspects.extend(scene.suspects(&known));
        let mut counts = Counts::default();
        for (dest, of) in &known {
            counts.add(*dest, of);
        }
        if let Some(path) = &self.syncd {
            suspects.extend(scene.other_in_chip(path, &known)?);
        }
        let checked = counts.rows + counts.entries + counts.label_rows + counts.labels;
        let (mut lap, mut seeming, named) = (self.begin_switch(), Vec::new(), scene.in_switch());
        let entry = |key| named.dest(key).and_then(|dest| known.get(&dest)?.entry);
        while !lap.is_over() {
            seeming.extend(self.next_of_switch(&mut lap)?.into_iter().filter(|key| entry(*key).is_none()));
        }
        drop(known);
        let (scene, dests, mut differences) = self.second_pass(scene, suspects)?;
        let told: Set<Dest> = dests.iter().copied().collect();
        let Surplus { all: mut surplus, is_open } = self.surplus(&scene, seeming)?;
        let named = scene.in_switch();
        surplus.retain(|(key, _)| named.dest(*key).is_none_or(|dest| !told.contains(&dest)));
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
            milliseconds: begin.elapsed().as_secs_f64() * 1e3,
        })
    }

    /// Everything but routes.
    fn scene(&mut self, rows: Rows) -> Result<Scene, Error> {
        let ground = Ground::read(&mut self.appl)?;
        let objects = Objects::read(&mut self.asic, &mut self.counters, &ground)?;
        let suppress = self.config.has(Switch::SuppressFibPending)?;
        let (routers, vrfs) = (Map::default(), Map::default());
        Ok(Scene { ground, objects, rows, entries: Entries::default(), routers, vrfs, suppress })
    }

    /// Reads all rows, entries and answers, the databases at the same time; also what waits for orchagent.
    fn first_pass(&mut self, scene: &mut Scene) -> Result<(Map<Dest, Known>, Set<Dest>), Error> {
        scene.find_routers(&mut self.appl, &mut self.asic)?;
        let queued = scene.rows.queued(&mut self.appl)?;
        let mut known: Map<Dest, Known> = Map::default();
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
        while more.contains(&true) {
            if more[0] {
                more[0] = rows.step(|key, fields| {
                    let dest = scene.rows.of(&tables, key);
                    if let Some((dest, wish)) =
                        dest.and_then(|dest| Some((dest, scene.rows.wish(dest, fields)?)))
                    {
                        known.entry(dest).or_default().wish = Some(wish);
                    }
                })?;
            }
            if more[1] {
                more[1] = entries.step(|key, fields| {
                    let dest = Objects::id(&table, key).and_then(|id| scene.dest(&id));
                    if let (Some(dest), Some(entry)) = (dest, objects::entry(fields)) {
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

    /// Reads all suspects again, each by itself, and tells what differs still, in what was read for it.
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
                        wanted: "changed".into(),
                        found: "not taken".into(),
                        says: "it waits in APPL_DB's queue for orchagent to take it".into(),
                        under_way: true,
                    })
                } else {
                    scene.judge(*dest, &known).or_else(|| scene.judge_chip(&known, chip?))
                };
                if let Some(finding) = finding {
                    dests.push(*dest);
                    differences.push(scene.difference(*dest, finding));
                }
            }
        }
        Ok((scene, dests, differences))
    }

    /// What there is of these now.
    fn again(&mut self, scene: &mut Scene, dests: &[Dest]) -> Result<Vec<Known>, Error> {
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
                let entry = objects::entry(&entry.into_pairs()).map(|entry| entries.number(entry, objects));
                let answered = answered.get(n).and_then(|reply| reply.as_integer()) == Some(1);
                all.push(Known { wish: rows.wish(dests[start + n], &row.into_pairs()), entry, answered });
            }
        }
        Ok(all)
    }

    /// Only the default routes: some exact keys, whatever the size of the tables.
    ///
    /// # Errors
    /// A sentence when a database does not answer.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, Error> {
        let prefixes = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|text| text.parse::<AnyPrefix>().ok());
        let (router, mut rows) = (Objects::switch(&mut self.asic)?.router, Rows::default());
        let mut all = Vec::new();
        for dest in prefixes.map(|prefix| Dest::Route(0, prefix)) {
            let row = self.appl.query(&["HGETALL", &rows.key(&self.appl, dest)])?.into_pairs();
            let wish = rows.wish(dest, &row);
            let entries = Objects::entries_of(&mut self.asic, &[objects::id(dest, router)])?;
            all.push(DefaultRoute {
                prefix: shown(dest),
                forwarded: wish.is_some() && entries.iter().flatten().any(|entry| entry.forwards()),
                leads: wish.map(|wish| Shown::Wanted(&rows.wishes.all[wish as usize].0).to_string()),
            });
        }
        Ok(all)
    }
}

impl Scene {
    /// Finds the virtual router of each VRF: by an interface that is in it, else by some routes of it.
    fn find_routers(&mut self, appl: &mut Lanes, asic: &mut Lanes) -> Result<(), Error> {
        let Scene { ground, objects, rows, routers, .. } = self;
        routers.insert(0, objects.router);
        for (name, router) in objects.routers_by_interface(ground) {
            routers.insert(rows.vrfs.number(Some(name)), router);
        }
        let taken = |routers: &Map<u32, Oid>, oid: &Oid| routers.values().any(|taken| taken == oid);
        let names: Vec<Name> = ground.vrfs.iter().cloned().collect();
        for name in &names {
            let vrf = rows.vrfs.number(Some(name));
            let free: Vec<Oid> = objects.routers.keys().copied().filter(|oid| !taken(routers, oid)).collect();
            if !routers.contains_key(&vrf)
                && let Some(router) = Objects::router_with(asic, &free, &rows.sample(appl, vrf, SAMPLE)?)?
            {
                routers.insert(vrf, router);
            }
        }
        // What is left has no rows, so that it does not matter which is which; or it belongs to no route.
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

    /// What a row asks for, by way of its group if it names one.
    fn wanted(&self, wish: u32) -> Shown<'_> {
        let wanted = &self.rows.wishes.all[wish as usize].0;
        match wanted {
            Wanted::Group(index) => self.ground.group(index).map_or(Shown::NoGroup(index), Shown::Wanted),
            _ => Shown::Wanted(wanted),
        }
    }

    /// What seems to differ.
    fn suspects(&self, known: &Map<Dest, Known>) -> Vec<Dest> {
        // Few kinds of rows lead to few kinds of entries.
        let mut well: Map<(u32, u32), bool> = Map::default();
        let differs = |(dest, of): &(&Dest, &Known)| {
            let same = match (of.wish, of.entry) {
                (Some(wish), Some(entry)) => *well.entry((wish, entry)).or_insert_with(|| {
                    let (found, leads) = &self.entries.all[entry as usize];
                    let pops = self.rows.wishes.all[wish as usize].1 == found.pop;
                    pops && matches!((self.wanted(wish), leads), (Shown::Wanted(Wanted::Leads(wanted)), Ok(leads)) if wanted.same(leads))
                }),
                _ => false,
            };
            let answered = of.answered || !self.suppress || matches!(dest, Dest::Label(_));
            !(same && answered) && self.judge(**dest, of).is_some()
        };
        known.iter().filter(differs).map(|(dest, _)| *dest).collect()
    }

    /// What is wrong, as the databases have it.
    fn judge(&self, dest: Dest, known: &Known) -> Option<Finding> {
        let finding = |wanted: String, found: String, says: &str| {
            let (says, under_way) = (says.to_owned(), true);
            Some(Finding { stage: "orchagent", wanted, found, says, under_way })
        };
        let entry = known.entry.map(|entry| &self.entries.all[entry as usize]);
        let leads = entry.map(|(_, leads)| leads);
        let found = match leads {
            None => "not in ASIC_DB".to_owned(),
            Some(Ok(leads)) => leads.to_string(),
            Some(Err(_)) => "to what is not there".to_owned(),
        };
        let Some(wish) = known.wish else {
            if leads.is_none_or(|leads| is_own(dest, leads.as_ref().ok())) {
                return None;
            }
            return finding("no row".into(), found, "ASIC_DB has it, and APPL_DB does not");
        };
        let shown = self.wanted(wish);
        let wanted = match &shown {
            Shown::Wanted(wanted) => *wanted,
            Shown::NoGroup(_) => {
                return finding(
                    shown.to_string(),
                    found,
                    "NEXTHOP_GROUP_TABLE does not have the group that its row names",
                );
            }
        };
        let to_cpu = matches!(leads, Some(Ok(Leads::Cpu)));
        let (own, alone) = match dest {
            Dest::Route(vrf, prefix) => (
                self.ground.owns(self.rows.vrfs.name(vrf), prefix)
                    || !ribtide_swss::orch::parsed_row::is_global(prefix),
                matches!(wanted, Wanted::Direct(name) if self.ground.leaves_alone(name, prefix)),
            ),
            Dest::Label(_) => (false, false),
        };
        let direct;
        let wanted = match wanted {
            // The router's own address, whoever announces it too.
            _ if own && to_cpu => return None,
            Wanted::Unread if leads.is_some() => return None,
            Wanted::Unread => return finding(shown.to_string(), found, ABSENT),
            Wanted::Local if leads.is_none_or(|leads| is_own(dest, leads.as_ref().ok())) => return None,
            Wanted::Local => {
                return finding(
                    shown.to_string(),
                    found,
                    "ASIC_DB has it, and its row leads to the router itself",
                );
            }
            Wanted::Refused(why) => {
                return Some(Finding {
                    stage: "orchagent",
                    wanted: shown.to_string(),
                    found,
                    says: format!("orchagent does not take its row: {why}"),
                    under_way: false,
                });
            }
            // What the switch has of it, if anything, stays.
            Wanted::Direct(_) if alone => return None,
            Wanted::Direct(name) => {
                let way = Way { gateway: None, interface: Some(name.clone()), labels: None, weight: 1 };
                direct = Leads::through(vec![way]);
                &direct
            }
            Wanted::Leads(leads) => leads,
            Wanted::Group(_) => {
                return finding(
                    shown.to_string(),
                    found,
                    "its group is made of other groups, which are not programmed",
                );
            }
        };
        let says = match leads {
            None => ABSENT,
            Some(Err(says)) => says,
            Some(Ok(leads)) if leads.lacks_of(wanted) => {
                "its entry has some of its next hops: the others are not resolved, or their links are down, or the switch has no \
                 room for its group"
            }
            Some(Ok(leads)) if !leads.same(wanted) => "its entry in ASIC_DB leads elsewhere than its row",
            Some(Ok(_)) => {
                let (requested, pop) =
                    (self.rows.wishes.all[wish as usize].1, entry.map_or(1, |(entry, _)| entry.pop));
                if requested != pop {
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
                        wanted: shown.to_string(),
                        found: "no answer".into(),
                        says: "APPL_STATE_DB has no answer for it, so it is not advertised".into(),
                        under_way: true,
                    });
                }
                return None;
            }
        };
        finding(wanted.to_string(), found, says)
    }

    /// What is wrong with what the switch has.
    fn judge_chip(&self, known: &Known, chip: Option<Leads>) -> Option<Finding> {
        let wanted = known.entry.map(|entry| &self.entries.all[entry as usize].1);
        let wanted = wanted.and_then(|leads| leads.as_ref().ok());
        let says = match (wanted, &chip) {
            (Some(wanted), Some(chip)) if chip.same(wanted) => return None,
            (None, _) => return None,
            (Some(_), Some(_)) => "the switch leads elsewhere than its entry in ASIC_DB",
            (Some(_), None) => "the switch does not have it",
        };
        Some(Finding {
            stage: "chip",
            wanted: wanted.map(Leads::to_string).unwrap_or_default(),
            found: chip.map_or_else(|| "absent".into(), |leads| leads.to_string()),
            says: says.into(),
            under_way: true,
        })
    }

    /// Whose entry in ASIC_DB the switch does not do.
    fn other_in_chip(&self, path: &Path, known: &Map<Dest, Known>) -> Result<Vec<Dest>, Error> {
        let mut client = QueryClient::open(path)?;
        let mut others = Vec::new();
        let dests: Vec<Dest> =
            known.iter().filter(|(_, of)| of.entry.is_some()).map(|(dest, _)| *dest).collect();
        for dests in dests.chunks(page::PAGE) {
            for (dest, chip) in dests.iter().zip(self.in_chip(&mut client, dests)?) {
                let of = known.get(dest).copied().unwrap_or_default();
                others.extend(chip.and_then(|chip| self.judge_chip(&of, chip)).map(|_| *dest));
            }
        }
        Ok(others)
    }

    /// What the switch has of these; the outer none: it is not asked about labels, nor in VRFs that it does not have.
    fn in_chip(&self, client: &mut QueryClient, dests: &[Dest]) -> Result<Vec<Option<Option<Leads>>>, Error> {
        leads_in_switch(client, dests.iter().map(|dest| self.key_in_switch(*dest)))
    }

    fn difference(&self, dest: Dest, finding: Finding) -> Difference {
        let vrf = match dest {
            Dest::Route(vrf, _) => self.rows.vrfs.shown(vrf),
            Dest::Label(_) => "labels".into(),
        };
        difference(vrf, shown(dest), finding)
    }
}

/// What a row asks for, to be shown.
enum Shown<'a> {
    Wanted(&'a Wanted),
    NoGroup(&'a Name),
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shown::NoGroup(index) => write!(f, "group {index}"),
            Shown::Wanted(Wanted::Group(index)) => write!(f, "group {index}"),
            Shown::Wanted(Wanted::Leads(leads)) => leads.fmt(f),
            Shown::Wanted(Wanted::Direct(name)) => write!(f, "dev {name}"),
            Shown::Wanted(Wanted::Local) => f.write_str("the router itself"),
            Shown::Wanted(Wanted::Refused(_)) => f.write_str("what cannot be"),
            Shown::Wanted(Wanted::Unread) => f.write_str("a tunnel"),
        }
    }
}

/// How many routes and labels the switch of this syncd has.
fn counts_of(syncd: &Path) -> Result<(u64, u64), Error> {
    let chip = query::query(syncd, "counts")?;
    let count = |name: &str| chip[name].as_u64().unwrap_or_default();
    Ok((count("ipv4_routes") + count("ipv6_routes"), count("labels")))
}

/// Where the switch has these lead; the outer none: it was not asked, as it is about routes only.
fn leads_in_switch(
    client: &mut QueryClient,
    keys: impl ExactSizeIterator<Item = Option<EntryKey>>,
) -> Result<Vec<Option<Option<Leads>>>, Error> {
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

/// Whether both are watermarks of the same processes.
fn is_same_servers(before: &[String], now: &[String]) -> bool {
    let ids = |watermarks: &[String]| -> Vec<String> {
        watermarks.iter().filter(|watermark| watermark.starts_with(SERVER)).cloned().collect()
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
    let Finding { stage, wanted, found, says, under_way } = finding;
    Difference { vrf, prefix, neighbor: None, stage: stage.into(), rib: wanted, found, says, under_way }
}

/// Whether a route without a row is the switch's own: to itself, or a default route that drops.
fn is_own(dest: Dest, leads: Option<&Leads>) -> bool {
    let default = matches!(dest, Dest::Route(_, prefix) if prefix.len() == 0);
    leads == Some(&Leads::Cpu) && !matches!(dest, Dest::Label(_)) || default && leads == Some(&Leads::Drop)
}

/// What syncd answers of a route; none: the switch does not have it.
fn forward(answer: &Value) -> Option<Leads> {
    let hops = answer["hops"].as_array()?;
    if answer["action"] == "drop" || hops.is_empty() {
        return Some(Leads::Drop);
    }
    if answer["action"] == "trap" || hops.iter().any(|hop| hop["gateway"].is_null() && hop["port"] == "CPU") {
        return Some(Leads::Cpu);
    }
    let way = |hop: &Value| Way {
        gateway: hop["gateway"].as_str().and_then(|text| text.parse().ok()),
        // The switch has names of its own for ports.
        interface: None,
        labels: hop["labels"].as_str().and_then(LabelStack::parse),
        weight: hop["weight"].as_u64().unwrap_or(1) as u32,
    };
    Some(Leads::through(hops.iter().map(way).collect()))
}

/// How many there are.
#[derive(Default)]
struct Counts {
    rows: u64,
    entries: u64,
    label_rows: u64,
    labels: u64,
    /// Routes and labels.
    chip: Option<(u64, u64)>,
}

impl Counts {
    fn add(&mut self, dest: Dest, known: &Known) {
        let (rows, entries) = match dest {
            Dest::Route(..) => (&mut self.rows, &mut self.entries),
            Dest::Label(_) => (&mut self.label_rows, &mut self.labels),
        };
        *rows += u64::from(known.wish.is_some());
        *entries += u64::from(known.entry.is_some());
    }

    fn by_table(&self) -> std::collections::BTreeMap<String, u64> {
        let mut counts = vec![("APPL_DB", self.rows), ("ASIC_DB", self.entries)];
        counts.extend(self.chip.map(|(routes, _)| ("chip", routes)));
        if self.label_rows + self.labels + self.chip.map_or(0, |(_, labels)| labels) > 0 {
            counts.extend([("APPL_DB labels", self.label_rows), ("ASIC_DB labels", self.labels)]);
            counts.extend(self.chip.map(|(_, labels)| ("chip labels", labels)));
        }
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
