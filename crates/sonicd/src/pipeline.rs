//! What SONiC's daemons say of themselves in STATE_DB: their settings, and where rows and requests stand in them.

use super::Error;
use super::queues::{self, Queue};
use super::settings::{self, DAEMONS, Setting};
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_tables::{Connection, Databases};
use serde::Serialize;
use std::path::Path;

/// What a daemon says of itself; nothing when it did not run since the databases started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DaemonPipeline {
    /// Of which ASIC it is, where several are asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// The daemon.
    pub daemon: &'static str,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// Its queues, by name.
    pub queues: Vec<Queue>,
}

/// What the daemons on the databases of `config` say; without one, SONiC's default. Of several ASICs all are asked, unless
/// `NAMESPACE_ID` says which.
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
            });
        }
    }
    Ok(all)
}
