//! The invariant "bytes from outside never panic". The lints are forced from here, so that a `deny` in `wire` which
//! becomes an `allow` changes nothing. `xtask/ratchet.txt` has the exceptions: places that run while compiling.

use crate::ratchet::{Counted, compare};
use crate::{Tree, clippy};

/// What the run over the pure crates forces; only `wire` has to hold it.
pub(crate) const LINTS: &[&str] = &[
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic",
    "clippy::unreachable",
    "clippy::todo",
    "clippy::unimplemented",
    "clippy::indexing_slicing",
    "clippy::string_slice",
];

/// Every place in `wire`'s library that may panic and is no listed exception.
pub fn check(tree: &Tree) -> Vec<String> {
    compare(tree, "panics", count(tree))
}

/// The places in `wire` that may panic, by file and lint.
pub(crate) fn count(tree: &Tree) -> Counted {
    let found = clippy::compiled(clippy::pure(tree)?)?;
    let places =
        found.iter().filter(|d| LINTS.contains(&d.lint.as_str()) && d.file.starts_with("crates/wire/"));
    Ok(places.map(|d| (format!("{} {}", d.file, d.lint), d.show())).collect())
}
