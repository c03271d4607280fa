//! The invariant "no thread ends silently". Only `runtime` starts threads: its `spawn` takes what may end the thread, and
//! ends the process where nothing may. Threads that others start today, in tests, benches and the demonstration, are
//! counted for each file in `xtask/ratchet.txt`; scoped threads are joined by the language.

use crate::queues::LINT;
use crate::ratchet::{Counted, compare};
use crate::{Tree, clippy};

/// What `clippy.toml` says of a thread that `runtime` did not start.
pub(crate) const OWNERLESS: &str = "a thread without an owner";

/// Every thread that is started outside of `runtime` and not listed.
pub fn check(tree: &Tree) -> Vec<String> {
    compare(tree, "threads", count(tree))
}

/// The threads that are started outside of `runtime`, by file; tests count too.
pub(crate) fn count(tree: &Tree) -> Counted {
    let found = clippy::compiled(clippy::workspace(tree)?)?;
    let threads = found.iter().filter(|d| d.lint == LINT && d.message.contains(OWNERLESS));
    let elsewhere = threads.filter(|d| !d.file.starts_with("crates/runtime/"));
    Ok(elsewhere.map(|d| (d.file.clone(), d.show())).collect())
}
