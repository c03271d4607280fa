//! Checks of the tree that no compiler makes. Each check guards an invariant of ARCHITECTURE.md, and
//! `xtask/tests/breaks.rs` breaks each invariant in a copy of the tree and expects the check to notice.

pub mod book;
pub mod clippy;
pub mod dependencies;
pub mod docs;
pub mod effects;
pub mod format;
pub mod graph;
pub mod libraries;
pub mod panics;
pub mod profiles;
pub mod queues;
pub mod ratchet;
pub mod references;
pub mod registry;
pub mod sai_table;
pub mod sizes;
pub mod threads;
mod tree;
pub mod untested;
pub mod words;

pub use tree::Tree;

/// A check and what it guards.
#[derive(Debug)]
pub struct Check {
    /// The argument of `cargo xtask` that runs this check alone.
    pub name: &'static str,
    /// The invariant, for the message of a failed check.
    pub holds: &'static str,
    /// Returns the faults, one sentence each, with file and line where there is one.
    pub run: fn(&Tree) -> Vec<String>,
}

/// All checks, the fast ones first.
pub const CHECKS: &[Check] = &[
    Check { name: "graph", holds: "arrows between crates point down only", run: graph::check },
    Check { name: "sizes", holds: "a file is one idea", run: sizes::check },
    Check { name: "profiles", holds: "the shipped profile is the tested profile", run: profiles::check },
    Check { name: "untested", holds: "every test runs", run: untested::check },
    Check { name: "registry", holds: "every thread is in the registry", run: registry::check },
    Check { name: "docs", holds: "documents name paths that exist", run: docs::check },
    Check { name: "book", holds: "every page of docs/ is in the book", run: book::check },
    Check { name: "words", holds: "code and documents use the field's words", run: words::check },
    Check {
        name: "dependencies",
        holds: "dependencies have the licences and sources of deny.toml",
        run: dependencies::check,
    },
    Check { name: "format", holds: "rustfmt has nothing to change", run: format::check },
    Check { name: "effects", holds: "pure crates have no effects", run: effects::check },
    Check { name: "panics", holds: "bytes from outside never panic", run: panics::check },
    Check { name: "clippy", holds: "clippy has nothing to say", run: clippy::check },
    Check { name: "queues", holds: "every queue has a bound and a name", run: queues::check },
    Check { name: "threads", holds: "no thread ends silently", run: threads::check },
];
