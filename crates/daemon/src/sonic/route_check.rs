//! Whether APPL_DB, ASIC_DB, APPL_STATE_DB and the switch agree, where fpmsyncd, orchagent and syncd run as processes.
//!
//! What `route_check.py` of SONiC asks: every row of ROUTE_TABLE is in ASIC_DB, every route of ASIC_DB is a row's or the
//! switch's own, with FIB suppression each has its answer in APPL_STATE_DB, and the switch holds as many as ASIC_DB says.
//! Labels are looked at too: rows of LABEL_ROUTE_TABLE, and their entries.
//! Keys are read a page at a time. A look that finds that no server and no switch has changed anything since the last one
//! is over with that.

use super::Error;
use super::config_db::{ConfigDb, Switch};
use super::query;
use crate::api::model::{DefaultRoute, Difference, RouteCheck};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{LabelKey, LabelRouteRow, Name, RouteKey, RouteRow, RouteStateRow};
use ribtide_swss::sai::{Attr, Attrs, ObjectId, ObjectType, Oid, RouteEntry, SWITCH, text};
use ribtide_swss::{Db, Row};
use ribtide_tables::{Connection, Databases, TableError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ASIC_STATE: &str = "ASIC_STATE";
/// Differences that are told one by one.
const TOLD: usize = 1000;

/// A route as the databases name it. Other VRFs than the default one have a name in APPL_DB and a number in ASIC_DB, so
/// they are one here.
type Key = (bool, AnyPrefix);

/// Between two looks.
pub struct DaemonsCheck {
    appl: Connection,
    asic: Connection,
    states: Connection,
    config: ConfigDb,
    syncd: Option<PathBuf>,
    last: Option<(Vec<String>, RouteCheck)>,
}

impl DaemonsCheck {
    /// Of the daemons on the databases of `config`, and the switch of the syncd that answers at `syncd`.
    ///
    /// # Errors
    /// A sentence when a database cannot be reached.
    pub fn open(config: Option<&Path>, syncd: Option<PathBuf>) -> Result<DaemonsCheck, Error> {
        let databases = Databases::load(config)?;
        let stop = Stop::default();
        let open = |db| Connection::open(databases.get(db), &stop);
        Ok(DaemonsCheck {
            appl: open(Db::Appl)?,
            asic: open(Db::Asic)?,
            states: open(Db::ApplState)?,
            config: ConfigDb::open(&databases, &stop)?,
            syncd,
            last: None,
        })
    }

    /// Looks; `full`: whether or not anything has changed.
    ///
    /// # Errors
    /// A sentence when a database or syncd does not answer.
    pub fn look(&mut self, full: bool) -> Result<RouteCheck, Error> {
        let begin = Instant::now();
        let marks = self.marks()?;
        if let Some((before, last)) = &self.last
            && *before == marks
            && !full
        {
            let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
            return Ok(RouteCheck { full: false, checked: 0, milliseconds, ..last.clone() });
        }
        let found = self.compare(begin)?;
        self.last = Some((marks, found.clone()));
        Ok(found)
    }

    /// What is another as soon as a server or the switch changes anything.
    fn marks(&mut self) -> Result<Vec<String>, Error> {
        let mut marks = Vec::new();
        for connection in [&mut self.appl, &mut self.asic, &mut self.states] {
            for section in ["server", "persistence"] {
                let info = connection.ask(&["INFO", section])?.into_text().unwrap_or_default();
                let names = ["run_id:", "rdb_changes_since_last_save:", "rdb_last_save_time:"];
                let told = info.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
                marks.extend(told.map(str::to_owned));
            }
        }
        if let Some(path) = &self.syncd {
            let chip = query::ask(path, "chip")?;
            marks.push(format!("{} {}", chip["calls"], chip["asked"]));
        }
        Ok(marks)
    }

    fn compare(&mut self, begin: Instant) -> Result<RouteCheck, Error> {
        let rows = self.rows()?;
        let queue = self.appl.ask(&["SMEMBERS", "ROUTE_TABLE_KEY_SET"])?.into_texts();
        let queued: Set<Key> = queue.iter().filter_map(|text| key_of(text)).collect();
        let (hidden, routes) = self.programmed()?;
        let Labels { rows: label_rows, entries: labels, queued: labels_queued } = self.labels()?;
        let mut labels_missing = false;
        let mut differences = Vec::new();
        let mut differing = 0;
        let mut tell = |key: Key, stage: &str, rib: &str, found: &str, says: &str, under_way: bool| {
            differing += 1;
            if differences.len() < TOLD {
                differences.push(Difference {
                    vrf: if key.0 { "default" } else { "another" }.into(),
                    prefix: key.1.to_string(),
                    stage: stage.into(),
                    rib: rib.into(),
                    found: found.into(),
                    says: says.into(),
                    under_way,
                });
            }
        };
        for key in &queued {
            let says = "it waits in APPL_DB's queue for orchagent to take it";
            tell(*key, "orchagent", "changed", "not taken", says, true);
        }
        for key in rows.iter().filter(|key| !routes.contains_key(*key) && !queued.contains(*key)) {
            let says = "ROUTE_TABLE has it, and ASIC_DB does not: orchagent waits for what it needs, or the switch refused it; \
                        swss.rec and the log of orchagent say which";
            tell(*key, "orchagent", "a row of ROUTE_TABLE", "not in ASIC_DB", says, true);
        }
        let without_row = routes.iter().filter(|(key, _)| !rows.contains(*key) && !queued.contains(*key));
        let without_row: Vec<(Key, RouteEntry)> = without_row.map(|(key, entry)| (*key, *entry)).collect();
        for (key, entry) in without_row {
            if !hidden.owns(key.1, &self.fields(entry)?) {
                let says = "ASIC_DB has it, and ROUTE_TABLE does not";
                tell(key, "orchagent", "no row", "in ASIC_DB", says, true);
            }
        }
        let mut counts =
            [("APPL_DB".to_owned(), rows.len() as u64), ("ASIC_DB".to_owned(), routes.len() as u64)].to_vec();
        if !label_rows.is_empty() || !labels.is_empty() {
            counts.push(("APPL_DB labels".into(), label_rows.len() as u64));
            counts.push(("ASIC_DB labels".into(), labels.len() as u64));
        }
        if self.config.has(Switch::SuppressFibPending)? {
            let answered = self.answered()?;
            for key in rows.iter().filter(|key| !answered.contains(*key) && routes.contains_key(*key)) {
                let says = "APPL_STATE_DB has no answer for it, so it is not advertised";
                tell(*key, "responses", "a row of ROUTE_TABLE", "no answer", says, true);
            }
        }
        if let Some(path) = &self.syncd {
            let chip = query::ask(path, "counts")?;
            let count = |name: &str| chip[name].as_u64().unwrap_or_default();
            let held_labels = count("labels");
            labels_missing = held_labels != labels.len() as u64;
            if held_labels > 0 || !labels.is_empty() {
                counts.push(("chip labels".into(), held_labels));
            }
            let held = count("ipv4_routes") + count("ipv6_routes");
            counts.push(("chip".into(), held));
            if held != routes.len() as u64 {
                let mut looked = Vec::new();
                for key in routes.keys().filter(|key| key.0) {
                    if looked.len() == TOLD {
                        break;
                    }
                    if query::ask(path, &format!("route {}", key.1))?.is_null() {
                        looked.push(*key);
                    }
                }
                for key in &looked {
                    tell(*key, "chip", "in ASIC_DB", "absent", "the switch does not have it", true);
                }
                if looked.is_empty() {
                    differing += 1;
                }
            }
        }
        let mut tell_label = |label: u32, rib: &str, found: &str, says: &str| {
            differing += 1;
            if differences.len() < TOLD {
                differences.push(Difference {
                    vrf: "labels".into(),
                    prefix: label.to_string(),
                    stage: "orchagent".into(),
                    rib: rib.into(),
                    found: found.into(),
                    says: says.into(),
                    under_way: true,
                });
            }
        };
        for label in &labels_queued {
            let says = "it waits in APPL_DB's queue for orchagent to take it";
            tell_label(*label, "changed", "not taken", says);
        }
        for label in label_rows.difference(&labels).filter(|label| !labels_queued.contains(*label)) {
            let says = "LABEL_ROUTE_TABLE has it, and ASIC_DB does not: orchagent waits for what it needs, or the switch \
                        refused it; swss.rec and the log of orchagent say which";
            tell_label(*label, "a row of LABEL_ROUTE_TABLE", "not in ASIC_DB", says);
        }
        for label in labels.difference(&label_rows).filter(|label| !labels_queued.contains(*label)) {
            tell_label(*label, "no row", "in ASIC_DB", "ASIC_DB has it, and LABEL_ROUTE_TABLE does not");
        }
        differing += u64::from(labels_missing);
        let under_way = differences.iter().filter(|difference| difference.under_way).count() as u64;
        Ok(RouteCheck {
            full: true,
            checked: (rows.len() + routes.len() + label_rows.len() + labels.len()) as u64,
            differing,
            under_way,
            differences,
            routes: counts.into_iter().collect(),
            default_routes: self.defaults(&hidden)?,
            milliseconds: begin.elapsed().as_secs_f64() * 1e3,
        })
    }

    /// Only the default routes: some exact keys, whatever the size of the tables.
    ///
    /// # Errors
    /// A sentence when a database does not answer.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, Error> {
        let hidden = self.hidden()?;
        self.defaults(&hidden)
    }

    fn defaults(&mut self, hidden: &Hidden) -> Result<Vec<DefaultRoute>, Error> {
        let mut all = Vec::new();
        for prefix in ["0.0.0.0/0", "::/0"].into_iter().filter_map(|text| text.parse::<AnyPrefix>().ok()) {
            let mut key = self.appl.database().key(RouteRow::TABLE, "");
            RouteRow::key_text(&RouteKey::new(None, prefix), &mut key);
            let row = self.appl.ask(&["HGETALL", &key])?.into_pairs();
            let field =
                |name: &str| row.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
            let entry = RouteEntry { switch: SWITCH, vr: hidden.router, dest: prefix };
            let programmed = self.fields(entry)?;
            let forwards =
                programmed.iter().any(|attr| matches!(attr, Attr::RouteNextHop(oid) if !oid.is_null()));
            all.push(DefaultRoute {
                prefix: prefix.to_string(),
                forwarded: !row.is_empty() && forwards,
                leads: (!row.is_empty()).then(|| {
                    let by = |name: &str| field(name).filter(|value| !value.is_empty());
                    match (by("nexthop_group"), by("nexthop"), by("ifname")) {
                        (Some(group), ..) => format!("group {group}"),
                        (None, Some(hops), Some(interfaces)) => format!("via {hops} dev {interfaces}"),
                        (None, None, Some(interfaces)) => format!("dev {interfaces}"),
                        _ => "drop".into(),
                    }
                }),
            });
        }
        Ok(all)
    }

    /// The keys of LABEL_ROUTE_TABLE, the labels of ASIC_DB, and those that wait to be taken.
    fn labels(&mut self) -> Result<Labels, Error> {
        let label = |text: &str| match LabelRouteRow::parse_key(text) {
            Ok(LabelKey::Label(label)) => Some(label),
            _ => None,
        };
        let rows = keys(&mut self.appl, LabelRouteRow::TABLE, label)?;
        let queue = self.appl.ask(&["SMEMBERS", "LABEL_ROUTE_TABLE_KEY_SET"])?.into_texts();
        let entry = |text: &str| {
            let key = format!("{}:{text}", ObjectType::InsegEntry.name());
            match text::read_row_key(&key) {
                Ok((_, ObjectId::Inseg(entry))) => Some(entry.label),
                _ => None,
            }
        };
        let table = self.asic.database().key(ASIC_STATE, ObjectType::InsegEntry.name());
        let entries = keys(&mut self.asic, &table, entry)?;
        Ok(Labels { rows, entries, queued: queue.iter().filter_map(|text| label(text)).collect() })
    }

    /// The keys of ROUTE_TABLE.
    fn rows(&mut self) -> Result<Set<Key>, Error> {
        keys(&mut self.appl, RouteRow::TABLE, key_of)
    }

    fn answered(&mut self) -> Result<Set<Key>, Error> {
        keys(&mut self.states, RouteStateRow::TABLE, key_of)
    }

    fn hidden(&mut self) -> Result<Hidden, Error> {
        let mut hidden = Hidden { router: Oid::NULL, cpu: Oid::NULL };
        for (name, value) in self.asic.ask(&["HGETALL", "HIDDEN"])?.into_pairs() {
            match Attr::read(&name, &value) {
                Some(Attr::SwitchDefaultVirtualRouter(oid)) => hidden.router = oid,
                Some(Attr::SwitchCpuPort(oid)) => hidden.cpu = oid,
                _ => {}
            }
        }
        Ok(hidden)
    }

    /// Routes of ASIC_DB.
    fn programmed(&mut self) -> Result<(Hidden, Map<Key, RouteEntry>), Error> {
        let hidden = self.hidden()?;
        let mut key = self.asic.database().key(ASIC_STATE, ObjectType::RouteEntry.name());
        key.push(':');
        let prefix = self.asic.database().key(ASIC_STATE, "");
        let mut routes = Map::default();
        self.asic.scan(&format!("{key}*"), |_, names| {
            for name in names {
                let row = name.strip_prefix(&prefix).map(text::read_row_key);
                if let Some(Ok((ObjectType::RouteEntry, ObjectId::Route(entry)))) = row {
                    routes.insert((entry.vr == hidden.router, entry.dest), entry);
                }
            }
            Ok(())
        })?;
        Ok((hidden, routes))
    }

    /// What ASIC_DB says of a route.
    fn fields(&mut self, entry: RouteEntry) -> Result<Attrs, TableError> {
        let mut key = self.asic.database().key(ASIC_STATE, "");
        text::write_row_key(ObjectType::RouteEntry, &ObjectId::Route(entry), &mut key);
        let pairs = self.asic.ask(&["HGETALL", &key])?.into_pairs();
        Ok(pairs.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten()).collect())
    }
}

/// Labels: rows of LABEL_ROUTE_TABLE, entries of ASIC_DB, and keys that wait to be taken.
struct Labels {
    rows: BTreeSet<u32>,
    entries: BTreeSet<u32>,
    queued: BTreeSet<u32>,
}

/// What the switch has of its own.
struct Hidden {
    router: Oid,
    cpu: Oid,
}

impl Hidden {
    /// Whether a route is the switch's: to itself, or a default route that drops.
    fn owns(&self, dest: AnyPrefix, attrs: &Attrs) -> bool {
        attrs.iter().any(|attr| matches!(attr, Attr::RouteNextHop(oid) if *oid == self.cpu))
            || dest.len() == 0
                && !attrs.iter().any(|attr| matches!(attr, Attr::RouteNextHop(oid) if !oid.is_null()))
    }
}

fn key_of(text: &str) -> Option<Key> {
    match RouteRow::parse_key(text) {
        Ok(RouteKey::Route { vrf, prefix, .. }) => Some((vrf.is_none_or(|vrf: Name| vrf.is_empty()), prefix)),
        _ => None,
    }
}

fn keys<K, T: Default + Extend<K>>(
    connection: &mut Connection,
    table: &str,
    read: impl Fn(&str) -> Option<K>,
) -> Result<T, Error> {
    let prefix = connection.database().key(table, "");
    let mut all = T::default();
    connection.scan(&format!("{prefix}*"), |_, names| {
        all.extend(names.iter().filter_map(|name| read(name.strip_prefix(&prefix)?)));
        Ok(())
    })?;
    Ok(all)
}
