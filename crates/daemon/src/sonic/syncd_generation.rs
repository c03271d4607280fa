//! SyncdGeneration when the switch has all that orchagent told syncd: a number in ASIC_DB.
//!
//! A syncd whose rows need not be exact asks orchagent on a channel to describe everything again. A channel keeps nothing, and
//! a Redis that was started again may not be listened to yet. So the request stands in the database too: a syncd that does not
//! have what the one before was told writes another number, and orchagent looks at it.

use super::{Error, log};
use ribtide_runtime::thread::{self, Stop};
use ribtide_tables::{Connection, TableError};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const KEY: &str = "RIBTIDE_SYNCD_SINCE";
/// How often orchagent looks.
const GENERATION_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A number that no other run has.
pub(super) fn of_this_run() -> u64 {
    // A hasher's key is random.
    RandomState::new().hash_one(std::process::id())
}

/// syncd's: what it writes, also to a server that may have lost it.
pub(super) struct SyncdGeneration(String);

impl SyncdGeneration {
    /// The number of the syncd before, if this one `goes_on` with all that it was told; otherwise another.
    pub(super) fn begin(goes_on: bool, asic: &mut Connection) -> Result<SyncdGeneration, TableError> {
        if let Some(before) = asic.ask(&["GET", KEY])?.into_text().filter(|_| goes_on) {
            return Ok(SyncdGeneration(before));
        }
        let since = SyncdGeneration(of_this_run().to_string());
        since.write(asic)?;
        Ok(since)
    }

    pub(super) fn write(&self, asic: &mut Connection) -> Result<(), TableError> {
        asic.ask(&["SET", KEY, &self.0]).map(drop)
    }
}

/// orchagent's, asked before it tells syncd anything that may be lost: calls `tell` once when a syncd does not have what was told from
/// here on. SONiC's syncd writes no number, and nothing is looked at.
pub(super) fn watch(
    mut asic: Connection,
    stop: &Stop,
    tell: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let Some(since) = asic.ask(&["GET", KEY])?.into_text() else { return Ok(()) };
    let stop = stop.clone();
    let body = move || {
        while !stop.stopped() {
            std::thread::sleep(GENERATION_POLL_INTERVAL);
            match asic.ask(&["GET", KEY]).map(|number| number.into_text()) {
                // A server that lost it: syncd writes it again.
                Ok(None) => {}
                Ok(Some(now)) if now == since => {}
                Ok(Some(_)) => return tell(),
                Err(_) if stop.stopped() => return,
                Err(e) => log("orchagent", &format!("{e}; looking again whether syncd was started again")),
            }
        }
    };
    thread::spawn("asic-since", body)
        .map(drop)
        .map_err(|e| Error::new(format!("no thread to watch syncd: {e}")))
}
