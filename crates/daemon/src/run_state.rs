//! What a run of the router leaves to the next one: whether it is a restart, and whether packets were forwarded meanwhile (RFC
//! 4724 section 4.1).
//!
//! A run that has installed and advertised its first routes notes so in a file beside the API's socket. The file has the id of the
//! system's boot, and a stop that removes all routes removes it too. The kernel answers for itself: routes with our protocol
//! number are there or not. A chip behind an FPM server keeps its routes while ribtide is away, and one in this process does not.

use crate::kernel_note::KernelNote;
use ribtide_bgpd::session::Restarted;
use ribtide_config::Config;
use ribtide_dataplane::kernel::{Scope, installed_families};
use ribtide_prefix::{AfiSafi, FamilySet};
use ribtide_runtime::log::target;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The system's name of its present boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The name of the file is that of the API's socket with this at its end.
const EXTENSION: &str = "run";

/// The file, and what it has to say.
#[derive(Clone, Debug)]
pub(crate) struct RunState {
    file: PathBuf,
    boot: String,
}

impl RunState {
    /// The state of a router with the API's socket at `socket`.
    pub(crate) fn beside(socket: &Path) -> RunState {
        // Without an id a file of an earlier boot would count, so there is none then.
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
        RunState { file: socket.with_extension(EXTENSION), boot: boot.trim().to_owned() }
    }

    /// The note of what runs leave in the kernel.
    pub(crate) fn kernel_note(&self) -> KernelNote {
        KernelNote::beside(&self.file, &self.boot)
    }

    /// Whether a run of this boot of the system has left its routes.
    fn is_left(&self) -> bool {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        !self.boot.is_empty() && text.lines().next() == Some(self.boot.as_str())
    }

    /// Notes that this run has installed and advertised its routes. A failure is logged.
    pub(crate) fn leave(&self) {
        if self.boot.is_empty() || self.is_left() {
            return;
        }
        if let Err(error) = self.write() {
            tracing::warn!(
                target: target::ROUTER,
                file = %self.file.display(),
                %error,
                "the note about this run cannot be written: without routes in the kernel the next start will not be a restart to \
                 neighbours"
            );
        }
    }

    /// In one step, so that a kill leaves the whole file or none.
    fn write(&self) -> io::Result<()> {
        let new = self.file.with_extension("run-new");
        let mut file = std::fs::File::create(&new)?;
        writeln!(file, "{}", self.boot)?;
        drop(file);
        std::fs::rename(&new, &self.file)
    }

    /// Notes that this run leaves nothing.
    pub(crate) fn forget(&self) {
        // Mostly it is not there.
        let _ = std::fs::remove_file(&self.file);
    }

    /// What an earlier run has left, if this start is a restart to neighbours.
    pub(crate) fn restarted(&self, config: &Config) -> Option<Restarted> {
        let bgp = config.bgp.as_ref().filter(|bgp| bgp.restarts_gracefully())?;
        let is_left = self.is_left();
        let (kernel, others) = match &config.fib {
            // No packet goes through a router without dataplanes.
            None => (None, is_left),
            // A chip in this process begins empty (ADR 16).
            Some(fib) => {
                let kernel = fib.kernel.as_ref().map(|_| in_kernel(config));
                (kernel, fib.asics.is_empty() && (fib.fpm.is_empty() || is_left))
            }
        };
        let forwarding = match (others, kernel) {
            (false, _) => FamilySet::NONE,
            (true, Some(found)) => found,
            (true, None) => FamilySet::ALL,
        };
        let restarts = is_left || kernel.is_some_and(|found| !found.is_empty());
        let kept: Vec<&str> = forwarding.iter().map(AfiSafi::name).collect();
        if restarts {
            tracing::info!(
                target: target::BGP_SESSION,
                forwarding_kept = if kept.is_empty() { "none".to_owned() } else { kept.join(",") },
                at_most_s = bgp.selection_deferral_time.as_secs(),
                "this is a restart: nothing is advertised before neighbors have sent their routes"
            );
        }
        restarts.then_some(Restarted { forwarding, deferral: bgp.selection_deferral_time })
    }
}

/// The families with own routes in the kernel. One that cannot be read has none: then peers withdraw what may be right, and rely on
/// nothing that may be wrong.
fn in_kernel(config: &Config) -> FamilySet {
    let found = Scope::of(config).map_err(io::Error::other).and_then(|(scope, _)| installed_families(&scope));
    found.unwrap_or_else(|error| {
        tracing::warn!(
            target: target::KERNEL,
            %error,
            "the kernel's routes cannot be read, so neighbors are told that forwarding was not kept"
        );
        FamilySet::NONE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_config as config;

    fn router(more: &str) -> Config {
        config::parse(&format!("[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n{more}")).unwrap()
    }

    const GROUP: &str = "[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\nneighbors = [\"192.0.2.1\"]\n";

    #[test]
    fn a_restart_needs_the_note_of_a_run_of_this_boot() {
        let folder = tempfile::tempdir().unwrap();
        let state = RunState::beside(&folder.path().join("ribtide.sock"));
        let full = "graceful-restart = { mode = \"restart\", selection-deferral-time = 9 }\n";
        let restarts = router(&format!("[bgp]\n{full}{GROUP}"));
        assert_eq!(state.restarted(&restarts), None, "the first start");
        state.leave();
        let restarted = Restarted { forwarding: FamilySet::ALL, deferral: std::time::Duration::from_secs(9) };
        assert_eq!(state.restarted(&restarts), Some(restarted), "a reflector forwards nothing itself");
        assert_eq!(state.restarted(&router(&format!("[bgp]\n{GROUP}"))), None, "no neighbour is to help");
        let fib = |fib: &str| state.restarted(&router(&format!("[bgp]\n{full}{GROUP}{fib}")));
        let interface = "[[interface]]\nname = \"Ethernet0\"\naddresses = [\"192.0.2.0/31\"]\n";
        assert_eq!(fib(&format!("[fib]\nfpm = [\"127.0.0.1:2620\"]\n{interface}")), Some(restarted));
        let lost = Restarted { forwarding: FamilySet::NONE, ..restarted };
        let asic = format!("[fib.virtual-asic]\nlab = true\n{interface}");
        assert_eq!(fib(&asic), Some(lost), "a chip in this process begins empty");
        let other = RunState { boot: "another boot".into(), ..state.clone() };
        assert_eq!(other.restarted(&restarts), None);
        state.forget();
        assert_eq!(state.restarted(&restarts), None);
    }
}
