//! The rows of APPL_STATE_DB: the truth is which routes orchagent confirmed last.
//!
//! The stage does not keep the protocol of a route, which its row carries. So a missing row gets that
//! of its row in APPL_DB, and one without a row there stays missing.

use super::mirror::{Found, KeyOf, Mirror, Reader, Scanned, WantedRow, difference};
use crate::orch_stage::OrchStage;
use crate::{Daemon, Error};
use ribtide_swss::orch::HeldCursor;
use ribtide_swss::row::{Name, RouteRow, RouteStateRow, RowName};
use ribtide_swss::syncd::Difference;
use ribtide_swss::{Db, Row};
use ribtide_tables::{Connection, Database};

/// The rows of APPL_STATE_DB, among the copies of orchagent's stage.
pub(crate) struct ConfirmedRoutes;

/// A route that has a row.
pub(crate) struct Confirmed(RowName);

impl WantedRow for Confirmed {
    type Key = RowName;

    fn key(&self) -> &RowName {
        &self.0
    }

    /// Its protocol is what the row says.
    fn is(&self, found: &[(&str, &str)]) -> bool {
        !found.is_empty()
    }

    fn compares_as(&self, _: &Confirmed) -> bool {
        true
    }
}

/// The protocols of rows that are missing, by APPL_DB.
pub(crate) type Protocols = Vec<(RowName, Name)>;

fn write_name(database: &Database, name: &RowName, out: &mut String) {
    database.write_key_prefix(RouteStateRow::TABLE, out);
    name.write(out);
}

/// How the rows are read.
///
/// # Errors
/// When a database cannot be reached.
pub(crate) fn reader(daemon: &Daemon) -> Result<Reader<RowName, Protocols>, Error> {
    let connection = daemon.connect(Db::ApplState)?;
    let prefix = connection.database().key(RouteStateRow::TABLE, "");
    let mut appl = daemon.connect(Db::Appl)?;
    Ok(Reader {
        table: |_| "APPL_STATE_DB ROUTE_TABLE",
        connection,
        write_name,
        queue: None,
        scanned: Some(Scanned {
            pattern: format!("{prefix}*"),
            tables: vec![(RouteStateRow::TABLE, prefix)],
            is_other_format: |_, _| false,
        }),
        why: Difference::why,
        producer: Box::new(move |found| protocols(&mut appl, found)),
    })
}

fn protocols(appl: &mut Connection, found: &[(RowName, Found)]) -> Result<Protocols, Error> {
    let missing: Vec<&RowName> =
        found.iter().filter(|(_, fields)| fields.is_empty()).map(|(name, _)| name).collect();
    let database = appl.database();
    let key = |name: &&RowName| {
        let mut key = database.key(RouteRow::TABLE, "");
        name.write(&mut key);
        key
    };
    let keys: Vec<String> = missing.iter().map(key).collect();
    let replies = appl.query_all(keys.iter().map(|key| ["HGET", key, "protocol"]))?;
    let protocol =
        |(name, reply): (&RowName, ribtide_tables::Reply)| Some((name.clone(), reply.into_text()?.into()));
    Ok(missing.into_iter().zip(replies).filter_map(protocol).collect())
}

impl Mirror<ConfirmedRoutes> for OrchStage {
    type Row = Confirmed;
    type Cursor = HeldCursor;
    type Producer = Protocols;

    fn begin(&mut self) -> bool {
        // Without FIB suppression the rows stay as they are.
        self.outputs.publishes() && self.orch.begin_comparison()
    }

    fn page(&mut self, from: HeldCursor, count: usize) -> Option<(Vec<Confirmed>, Option<HeldCursor>)> {
        if !self.outputs.publishes() {
            return None;
        }
        let (keys, next) = self.orch.confirmed_rows(from, count)?;
        Some((keys.into_iter().map(Confirmed).collect(), next))
    }

    fn unmatched(&mut self, table: &'static str, keys: Vec<String>) -> Vec<RowName> {
        let names = keys.iter().filter_map(|key| RowName::parse(table, key));
        names.filter(|name| self.orch.is_confirmed(name) == Some(false)).collect()
    }

    fn watch(&mut self, keys: &mut Vec<RowName>) -> u64 {
        self.orch.watch_responses(keys);
        0
    }

    /// Responses of before the watch are written when all are.
    fn is_written(&mut self, _: u64) -> Result<bool, Error> {
        Ok(self.outputs.idle())
    }

    fn repair(
        &mut self,
        found: Vec<(KeyOf<Self, ConfirmedRoutes>, Found)>,
        protocols: Protocols,
    ) -> Result<Vec<(RowName, Difference)>, Error> {
        let (mut rows, mut repaired) = (Vec::new(), Vec::new());
        for (name, fields) in found {
            let RowName::Route(key) = &name else { continue };
            let is_wanted = self.orch.is_confirmed(&name);
            let differs = is_wanted.is_some_and(|wanted| wanted == fields.is_empty());
            if !differs || !self.orch.is_watched(&name) || !self.outputs.publishes() {
                continue;
            }
            let protocol = protocols.iter().find(|(of, _)| *of == name).map(|(_, protocol)| protocol.clone());
            if is_wanted == Some(true) && protocol.is_none() {
                continue;
            }
            rows.push(RouteStateRow::confirmed(key.clone(), protocol));
            repaired.push((name.clone(), difference(is_wanted == Some(true), &fields)));
        }
        self.outputs.publish_again(&rows)?;
        Ok(repaired)
    }
}
