//! The settings, queues and repairs of SONiC's daemons, from STATE_DB.

use super::Error;
use super::queues::{self, Queue};
use super::reconcile::{self, ReconcileCount};
use super::settings::{self, DAEMONS, Setting};
use super::unhandled_tables::{self, UnhandledTables};
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_tables::{Connection, Databases};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The settings and queues of a daemon; empty if it did not run since the start of the databases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DaemonPipeline {
    /// The ASIC, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// The daemon.
    pub daemon: &'static str,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// Its queues, by name.
    pub queues: Vec<Queue>,
    /// What it compared and repaired, by table.
    pub reconciled: BTreeMap<String, ReconcileCount>,
    /// Rows that it leaves in place and does not program, by database and table.
    pub unhandled: UnhandledTables,
}

/// The settings and queues of the daemons on the databases of `config`; default: SONiC's file. With
/// several ASICs, of all, unless `NAMESPACE_ID` selects one.
///
/// # Errors
/// A sentence when the databases cannot be read.
pub fn of_daemons(config: Option<&Path>) -> Result<Vec<DaemonPipeline>, Error> {
    let mut all = Vec::new();
    for (asic, databases) in Databases::of_asics(config)? {
        let mut state = Connection::open(databases.get(Db::State), &Stop::default())?;
        for daemon in DAEMONS {
            all.push(DaemonPipeline {
                asic: asic.clone(),
                daemon,
                settings: settings::of(daemon, &mut state)?,
                queues: queues::of(daemon, &mut state)?,
                reconciled: reconcile::of(daemon, &mut state)?,
                unhandled: unhandled_tables::of(daemon, &mut state)?,
            });
        }
    }
    Ok(all)
}
