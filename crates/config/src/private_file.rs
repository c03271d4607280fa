//! Files with one secret, which others than their owner and group must not be able to use.

use super::regular_file;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Reads at most `max` bytes of the file at `path`, which has a `what`, such as "token".
///
/// # Errors
/// What is wrong with the file, and what to do.
pub(super) fn read(path: &Path, what: &str, max: usize) -> Result<String, String> {
    let at = path.display();
    let mut file = regular_file::open(path)
        .map_err(|e| format!("cannot read {at}: {e}; write the path of a file with a {what} in it"))?;
    // Of the open file, because its name may refer to another one by now.
    let found = file.metadata().map_err(|e| format!("cannot read {at}: {e}"))?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(format!(
            "every user of this system may use {at} (its mode is {mode:04o}), so the {what} in it is no secret; \
             write another {what}, after `chmod 0600 {at}`"
        ));
    }
    let mut text = String::new();
    let read = file.by_ref().take(max as u64).read_to_string(&mut text);
    read.map_err(|e| format!("cannot read {at}: {e}"))?;
    Ok(text)
}
