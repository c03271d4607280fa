//! What a run of the router leaves in the kernel: a note of its protocol number and tables in a file beside the API's socket.
//!
//! The next run knows its routes by that number. With another number it would take them for those of another program, and
//! forward by them for ever.

use ribtide_config::Config;
use ribtide_dataplane::kernel::Scope;
use ribtide_dataplane::kernel::flush::flush;
use ribtide_runtime::log::target;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The name of the file is that of the API's socket with this at its end.
const EXTENSION: &str = "kernel";
/// The network namespace of the process.
const NAMESPACE: &str = "/proc/self/ns/net";

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct KernelNote {
    file: PathBuf,
    /// Names the system's boot and the network namespace: routes of others are not ours.
    place: String,
}

impl KernelNote {
    /// The note of a router with the API's socket at `socket`.
    pub(crate) fn beside(socket: &Path, boot: &str) -> KernelNote {
        let namespace = std::fs::metadata(NAMESPACE).map_or(0, |file| file.st_ino());
        KernelNote { file: socket.with_extension(EXTENSION), place: format!("{boot} {namespace}") }
    }

    /// Removes the routes of a former run with another protocol number, as a reload does. A failure is logged.
    pub(crate) fn remove_former(&self, config: &Config) {
        let Some(former) = self.read() else { return };
        let number = config.fib.as_ref().and_then(|fib| fib.kernel.as_ref()).map(|kernel| kernel.protocol);
        if number.is_none_or(|number| number == former.protocol) {
            return;
        }
        match flush(&former, false, None) {
            Ok(flushed) if flushed.routes() == 0 => {}
            Ok(flushed) => tracing::warn!(
                target: target::KERNEL,
                former = former.protocol,
                protocol = number,
                "fib.kernel.protocol is another than in the run before: {flushed}"
            ),
            Err(error) => tracing::warn!(
                target: target::KERNEL,
                former = former.protocol,
                %error,
                "fib.kernel.protocol is another than in the run before, whose routes cannot be removed; `ribtide flush --protocol \
                 {} --table …` does",
                former.protocol
            ),
        }
    }

    /// Notes what this run installs. A failure is logged.
    pub(crate) fn leave(&self, config: &Config) {
        let Ok((scope, _)) = Scope::of(config) else { return };
        if self.read().is_some_and(|noted| noted.protocol == scope.protocol && noted.tables == scope.tables) {
            return;
        }
        if let Err(error) = self.write(&scope) {
            tracing::warn!(
                target: target::KERNEL,
                file = %self.file.display(),
                %error,
                "the protocol number of the routes cannot be noted: a start with another one will not know them"
            );
        }
    }

    /// What a run in this place noted.
    fn read(&self) -> Option<Scope> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        if lines.next()? != self.place {
            return None;
        }
        let protocol = lines.next()?.parse().ok()?;
        let tables = lines.map(|line| {
            let (number, vrf) = line.split_once(' ')?;
            Some((number.parse().ok()?, vrf.to_owned()))
        });
        Some(Scope { protocol, tables: tables.collect::<Option<_>>()? })
    }

    /// In one step, so that a kill leaves the whole file or none.
    fn write(&self, scope: &Scope) -> io::Result<()> {
        let tables: String = scope.tables.iter().map(|(number, vrf)| format!("{number} {vrf}\n")).collect();
        let new = self.file.with_extension("kernel-new");
        std::fs::write(&new, format!("{}\n{}\n{tables}", self.place, scope.protocol))?;
        std::fs::rename(&new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_one_boot_and_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let note = KernelNote::beside(&folder.path().join("ribtide.sock"), "boot");
        assert!(note.read().is_none());
        let scope = Scope { protocol: 186, tables: vec![(254, "default".into()), (100, "blue".into())] };
        note.write(&scope).unwrap();
        assert_eq!(note.read(), Some(scope));
        let other = KernelNote { place: "boot 1".into(), ..note.clone() };
        assert!(other.read().is_none());
        std::fs::write(&note.file, format!("{}\n300\n", note.place)).unwrap();
        assert!(note.read().is_none(), "no protocol number");
    }
}
