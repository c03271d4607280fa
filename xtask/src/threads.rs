//! The invariant "no thread ends silently". Only `runtime` starts threads, and only `task` of the API starts tasks: their
//! `spawn` takes a body that returns why it ended, and ends the process where no stage would notice. Threads and tasks that
//! start elsewhere today, in tests, benches, the demonstration and clients, are counted for each file in
//! `xtask/ratchet.txt`; scoped threads are joined by the language.

use crate::queues::LINT;
use crate::ratchet::{Counted, compare};
use crate::{Tree, clippy};

/// What `clippy.toml` says of a thread that `runtime` did not start, and of a task.
pub(crate) const OWNERLESS: &str = "without an owner";
/// What starts them.
const STARTERS: &[&str] = &["crates/runtime/", "crates/api/src/task.rs"];

/// Every thread and task that another place starts, unless it is listed.
pub fn check(tree: &Tree) -> Vec<String> {
    compare(tree, "threads", count(tree))
}

/// The threads and tasks that other places start, by file; tests count too.
pub(crate) fn count(tree: &Tree) -> Counted {
    let found = clippy::compiled(clippy::workspace(tree)?)?;
    let threads = found.iter().filter(|d| d.lint == LINT && d.message.contains(OWNERLESS));
    let elsewhere = threads.filter(|d| !STARTERS.iter().any(|starter| d.file.starts_with(starter)));
    Ok(elsewhere.map(|d| (d.file.clone(), d.show())).collect())
}
