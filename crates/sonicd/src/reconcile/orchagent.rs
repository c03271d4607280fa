//! orchagent's routes, labels and next-hop groups: the truth is APPL_DB, which they come through.
//! With routes over ZeroMQ these are the groups alone.
//!
//! An APPL_DB that lost its data has no rows, and that must not empty the chip. So fpmsyncd is queried
//! for its own version of the rows that differ ([`row_query`]).

use super::appl_db::write_row_name;
use super::mirror::{Found, KeyOf, Mirror, Queue, Reader, Scanned, WantedRow};
use crate::orch_stage::{Feed, OrchStage};
use crate::{Daemon, Error, row_query};
use ribtide_swss::fpmsyncd::{FoundRow, ProducerRow};
use ribtide_swss::orch::{HeldCursor, HeldRow, is_other_format, producer_rows};
use ribtide_swss::row::{NextHopGroupRow, RowName};
use ribtide_swss::syncd::Difference;
use ribtide_swss::{Db, Row};

/// A row with what orchagent has of it.
pub(crate) struct Held {
    name: RowName,
    held: HeldRow,
}

impl Held {
    /// A row by its key.
    pub(super) fn new(name: RowName, held: HeldRow) -> Held {
        Held { name, held }
    }
}

impl WantedRow for Held {
    type Key = RowName;

    fn key(&self) -> &RowName {
        &self.name
    }

    fn is(&self, found: &[(&str, &str)]) -> bool {
        self.held.is_as(&self.name, found)
    }

    fn compares_as(&self, other: &Held) -> bool {
        self.held.compares_as(&self.name, &other.held, &other.name)
    }
}

/// How the rows are read. `only_groups`: those of next-hop groups.
///
/// # Errors
/// When APPL_DB cannot be reached.
pub(crate) fn reader(only_groups: bool, daemon: &Daemon) -> Result<Reader<RowName, Producer>, Error> {
    let connection = daemon.connect(Db::Appl)?;
    let prefix = |table| (table, connection.database().key(table, ""));
    let is_compared = |table: &&str| !only_groups || *table == NextHopGroupRow::TABLE;
    let tables = RowName::TABLES.into_iter().filter(is_compared).map(prefix).collect();
    let client = row_query::Client::new(daemon);
    Ok(Reader {
        table: |name| match name {
            RowName::Route(_) => "orchagent ROUTE_TABLE",
            RowName::Label(_) => "orchagent LABEL_ROUTE_TABLE",
            RowName::Group(_) => "orchagent NEXTHOP_GROUP_TABLE",
        },
        write_name: write_row_name,
        queue: Some(Queue { table: RowName::table, key: RowName::text }),
        // One scan: each visits all keys of the database.
        scanned: Some(Scanned { pattern: "*_TABLE:*".into(), tables, is_other_format }),
        why: |difference| match difference {
            Difference::Missing => "orchagent did not have it",
            Difference::Changed => "orchagent had other next hops",
            Difference::Surplus => "APPL_DB and fpmsyncd do not have it",
        },
        producer: Box::new(move |found| ask(&client, found)),
        connection,
    })
}

/// What fpmsyncd has of rows, as far as it is known.
pub(crate) type Producer = Vec<(RowName, ProducerRow)>;

fn ask(client: &row_query::Client, found: &[FoundRow]) -> Result<Producer, Error> {
    let requested = producer_rows(found);
    let rows = if requested.is_empty() { None } else { client.compare(&requested)? };
    Ok(requested.into_iter().map(|(name, _)| name).zip(rows.unwrap_or_default()).collect())
}

impl OrchStage {
    /// The feeds of the compared tables. The fence of a subscriber stays in the others.
    fn compared_feeds(&mut self) -> impl Iterator<Item = &mut Box<dyn Feed>> {
        let (groups, only_groups) = (self.groups, self.compares_only_groups);
        let feeds = self.feeds.iter_mut().enumerate();
        feeds.filter(move |(n, _)| !only_groups || *n == groups).map(|(_, feed)| feed)
    }
}

impl Mirror for OrchStage {
    type Row = Held;
    type Cursor = HeldCursor;
    type Producer = Producer;

    fn begin(&mut self) -> bool {
        self.orch.begin_comparison()
    }

    fn page(&mut self, from: HeldCursor, count: usize) -> Option<(Vec<Held>, Option<HeldCursor>)> {
        let (rows, next) = match self.compares_only_groups {
            true => (self.orch.held_groups()?, None),
            false => self.orch.held_rows(from, count)?,
        };
        Some((rows.into_iter().map(|(name, held)| Held::new(name, held)).collect(), next))
    }

    fn unmatched(&mut self, table: &'static str, keys: Vec<String>) -> Vec<RowName> {
        self.orch.rows_not_held(table, &keys)
    }

    fn watch(&mut self, keys: &mut Vec<RowName>) -> u64 {
        *keys = self.orch.watch_rows(keys);
        0
    }

    fn is_written(&mut self, _: u64) -> Result<bool, Error> {
        Ok(true)
    }

    /// Rows that another thread took from APPL_DB before they were read end their watch.
    fn begin_delivery(&mut self) {
        self.compared_feeds().for_each(|feed| feed.set_fence(None));
    }

    fn is_delivered(&mut self) -> bool {
        self.compared_feeds().all(|feed| feed.is_past_fence())
    }

    fn repair(
        &mut self,
        found: Vec<(KeyOf<Self>, Found)>,
        producer: Producer,
    ) -> Result<Vec<(RowName, Difference)>, Error> {
        // The stage's next turn carries it out.
        Ok(self.orch.repair_rows(found, &producer))
    }
}
