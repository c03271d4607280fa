//! The invariant "every queue has a bound and a name". Only `runtime` makes channels, with both. Channels that others
//! make are counted for each file in `xtask/ratchet.txt`, none today; one without a bound is never right.

use crate::ratchet::{Counted, compare};
use crate::threads::OWNERLESS;
use crate::{Tree, clippy};

/// The lint with which `clippy.toml` finds what makes a channel.
pub(crate) const LINT: &str = "clippy::disallowed_methods";

/// What `clippy.toml` says of a channel without a bound.
const UNBOUNDED: &str = "a queue without a bound";

/// Every channel without a bound, and every channel that is made outside of `runtime` and not listed.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = compare(tree, "queues", count(tree));
    if let Ok(found) = clippy::workspace(tree) {
        faults.extend(
            found.iter().filter(|d| d.lint == LINT && d.message.contains(UNBOUNDED)).map(|d| d.show()),
        );
    }
    faults
}

/// The channels that are made outside of `runtime`, by file; tests count too.
pub(crate) fn count(tree: &Tree) -> Counted {
    let found = clippy::compiled(clippy::workspace(tree)?)?;
    let is_other = |message: &str| message.contains(UNBOUNDED) || message.contains(OWNERLESS);
    let channels = found.iter().filter(|d| d.lint == LINT && !is_other(&d.message));
    let elsewhere = channels.filter(|d| !d.file.starts_with("crates/runtime/"));
    Ok(elsewhere.map(|d| (d.file.clone(), d.show())).collect())
}
