//! The folder of recorded routes, on machines that have it.

use std::path::{Path, PathBuf};

/// The folder of recorded data: `RIBTIDE_DATA`, or `../shared/data` beside the repository. Without
/// it, prints that the test is skipped.
pub(crate) fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("RIBTIDE_DATA").map_or(beside, PathBuf::from);
    let there = folder.join("mrt").is_dir();
    if !there {
        println!("skipped: there is no recorded data at {}", folder.display());
    }
    there.then_some(folder)
}
