//! Makes orchagent compare each new run of syncd with what it requested ([`ribtide_swss::orch::Orch::verify`]): the keys of
//! ASIC_DB come from here, what they hold is read through syncd.

use super::asic_db::COLD_VIDS;
use super::orch_stage::OrchStage;
use super::syncd_generation::RUN;
use super::{Daemon, Error};
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended};
use ribtide_swss::Db;
use ribtide_swss::sai::text;
use ribtide_tables::{Connection, TableError, wake_ups};
use std::collections::HashSet;
use std::time::Duration;

/// Interval of a look at the run of syncd, without a message.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Starts the thread. SONiC's syncd has no run, and is not compared. `surplus`: whether objects that
/// orchagent does not know are removed.
///
/// # Errors
/// ASIC_DB, or no thread.
pub(super) fn start(handle: StageHandle<OrchStage>, surplus: bool, daemon: &Daemon) -> Result<(), Error> {
    let (mut asic, stop) = (daemon.connect(Db::Asic)?, daemon.stop.clone());
    let wake_up = wake_ups(asic.database(), vec![RUN.into()], &stop)?.remove(0);
    let mut run = asic.query(&["GET", RUN])?.into_text();
    let body = move || {
        while !stop.stopped() {
            let _ = wake_up.wait_timeout(READ_INTERVAL);
            let looked = asic.query(&["GET", RUN]).and_then(|found| {
                let Some(now) = found.into_text().filter(|now| run.as_ref() != Some(now)) else {
                    return Ok(());
                };
                // Before the first run orchagent has requested nothing.
                if run.is_some() {
                    compare(&handle, surplus, &mut asic)?;
                }
                run = Some(now);
                Ok(())
            });
            match looked {
                Err(_) if stop.stopped() => break,
                Err(e) => tracing::warn!(
                    target: target::ORCHAGENT,
                    error = %e,
                    "orchagent cannot see whether syncd was started again; looking again"
                ),
                Ok(()) => {}
            }
        }
        Ended::at_stop(&stop)
    };
    thread::spawn("asic-runs", body)
        .map(drop)
        .map_err(Error::no_thread("to compare a syncd that was started again"))
}

/// Begins a comparison, and passes it the keys of ASIC_DB. A stage that has stopped ends the process.
fn compare(handle: &StageHandle<OrchStage>, surplus: bool, asic: &mut Connection) -> Result<(), TableError> {
    let _ = handle.wait(move |stage| stage.orch.verify(surplus));
    if !surplus {
        return Ok(());
    }
    let prefix = asic.database().key("ASIC_STATE", "");
    let own: HashSet<String> = asic.query(&["HKEYS", COLD_VIDS])?.into_texts().into_iter().collect();
    asic.scan(&format!("{prefix}*"), |_, names| {
        let keys = names.iter().filter_map(|name| name.strip_prefix(&prefix));
        let made = keys.filter(|key| key.split_once(':').is_none_or(|(_, id)| !own.contains(id)));
        let keys: Vec<_> = made.filter_map(|key| text::read_row_key(key).ok()).collect();
        let _ = handle.wait(move |stage| stage.orch.syncd_has(keys));
        Ok(())
    })?;
    let _ = handle.wait(|stage| stage.orch.syncd_has_no_more());
    Ok(())
}
