//! syncd's generation: a number in ASIC_DB (`RIBTIDE_SYNCD_SINCE`) that stays the same as long as syncd has every object
//! that orchagent requested.
//!
//! A syncd that lost objects publishes `switch_shutdown_request`, and orchagent describes everything again. A channel
//! stores nothing, and a restarted Redis may have no subscriber yet. So such a syncd also writes another generation.
//! orchagent reads it after each subscription and each message of that channel, and now and then.
//!
//! Another number (`RIBTIDE_SYNCD_RUN`) is that of the process. A syncd that goes on makes the chip from rows that another
//! program may have changed while no syncd ran, so orchagent compares each new run with what it requested ([`super::verify`]).

use super::Error;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_tables::{Connection, TableError, wake_ups};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const KEY: &str = "RIBTIDE_SYNCD_SINCE";
/// The key of the run, and its channel.
pub(super) const RUN: &str = "RIBTIDE_SYNCD_RUN";
/// Interval of reads of orchagent, without a message.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// A number that identifies the run.
pub(super) fn of_this_run() -> u64 {
    // A hasher's key is random.
    RandomState::new().hash_one(std::process::id())
}

/// The side of syncd. It writes the numbers again to a server that may have lost them.
pub(super) struct SyncdGeneration {
    generation: String,
    run: String,
}

impl SyncdGeneration {
    /// The generation of the previous syncd, if this one `goes_on` with all of its objects; otherwise a new one.
    pub(super) fn begin(goes_on: bool, asic: &mut Connection) -> Result<SyncdGeneration, TableError> {
        let run = of_this_run().to_string();
        if let Some(generation) = asic.query(&["GET", KEY])?.into_text().filter(|_| goes_on) {
            return Ok(SyncdGeneration { generation, run });
        }
        let since = SyncdGeneration { generation: run.clone(), run };
        announce(KEY, &since.generation, asic)?;
        Ok(since)
    }

    /// The switch has what ASIC_DB has.
    pub(super) fn has_started(&self, asic: &mut Connection) -> Result<(), TableError> {
        announce(RUN, &self.run, asic)
    }

    pub(super) fn write(&self, asic: &mut Connection) -> Result<(), TableError> {
        announce(KEY, &self.generation, asic)?;
        announce(RUN, &self.run, asic)
    }
}

fn announce(key: &str, number: &str, asic: &mut Connection) -> Result<(), TableError> {
    asic.query(&["SET", key, number])?;
    asic.query(&["PUBLISH", key, number]).map(drop)
}

/// The side of orchagent, called before its first request: calls `on_change` once when the
/// generation changes. SONiC's syncd writes no number, and then nothing is polled.
pub(super) fn watch(
    mut asic: Connection,
    stop: &Stop,
    on_change: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let Some(since) = asic.query(&["GET", KEY])?.into_text() else { return Ok(()) };
    let wake_up = wake_ups(asic.database(), vec![KEY.into()], stop)?.remove(0);
    let stop = stop.clone();
    let body = move || {
        while !stop.stopped() {
            // The subscription ends with the daemon.
            wake_up.wait_timeout(READ_INTERVAL);
            match asic.query(&["GET", KEY]).map(|number| number.into_text()) {
                // The server lost it, and syncd writes it again.
                Ok(None) => {}
                Ok(Some(now)) if now == since => {}
                Ok(Some(_)) => {
                    on_change();
                    return Ended::done();
                }
                Err(_) if stop.stopped() => break,
                Err(e) => tracing::warn!(
                    target: target::ORCHAGENT,
                    error = %e,
                    "orchagent cannot see whether syncd was started again; looking again"
                ),
            }
        }
        Ended::at_stop(&stop)
    };
    thread::spawn("asic-generation", body).map(drop).map_err(Error::no_thread("to watch syncd"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_server::Server;
    use ribtide_swss::Db;

    #[test]
    fn generation_is_the_previous_one_only_for_a_syncd_with_all_objects() {
        let Some(server) = Server::start() else { return };
        let mut asic = Connection::open(server.databases.get(Db::Asic), &server.stop).unwrap();
        let mut client = server.client(Db::Asic);
        client.query(&format!("SET {KEY} 7"));
        assert_eq!(SyncdGeneration::begin(true, &mut asic).unwrap().generation, "7");
        let other = SyncdGeneration::begin(false, &mut asic).unwrap().generation;
        assert_ne!(other, "7");
        assert_eq!(client.query(&format!("GET {KEY}")).into_text(), Some(other.clone()));
        let next = SyncdGeneration::begin(true, &mut asic).unwrap();
        assert_eq!(next.generation, other);
        next.has_started(&mut asic).unwrap();
        let run = client.query(&format!("GET {RUN}")).into_text().unwrap();
        assert!(run != other && run != SyncdGeneration::begin(true, &mut asic).unwrap().run);
    }
}
