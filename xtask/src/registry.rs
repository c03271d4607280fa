//! The invariant "every thread is in the registry", from which `ribtide show threads` and the references of the
//! documentation have their texts. ARCHITECTURE.md's table of threads names no other.

use crate::Tree;
use crate::tree::{read, rust};
use std::collections::BTreeSet;

/// The list of threads.
const REGISTRY: &str = "crates/runtime/src/registry.rs";
/// The document with a table of the threads that carry routes, and the title above that.
const TABLE: (&str, &str) = ("ARCHITECTURE.md", "\n## Threads and queues\n");
/// What comes before the name of a thread: calls that start one, and fields of those that others start.
const BEFORE_NAME: &[&str] = &["thread::spawn(", "thread::spawn_urgent(", "ReaderThread::start(", "_thread:"];

/// Every name of a thread that the registry does not have.
pub fn check(tree: &Tree) -> Vec<String> {
    let registry = read(&tree.root.join(REGISTRY));
    let names = names(&registry);
    let mut faults = Vec::new();
    for file in tree.files("crates", rust) {
        let shown = tree.show(&file).to_string();
        if shown.contains("/tests/") || shown.ends_with("/tests.rs") {
            continue;
        }
        let text = read(&file);
        // Tests are the last part of a file.
        let code = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        for name in started(code).filter(|name| !names.contains(name)) {
            faults.push(format!("{shown}: the thread {name} is not in {REGISTRY}"));
        }
    }
    let (document, title) = TABLE;
    let text = read(&tree.root.join(document));
    let section = text.split_once(title).map_or("", |(_, after)| after).split("\n## ").next();
    let rows = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
    let cells: Vec<_> = rows.filter_map(|row| row.split(" |").next()).collect();
    if cells.is_empty() {
        faults.push(format!("{document}: no table of threads"));
    }
    for name in cells.iter().flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')) {
        if !names.contains(name) {
            faults.push(format!("{document}: the thread {name} is not in {REGISTRY}"));
        }
    }
    faults
}

/// The names of the registry. An entry may have several, as the documentation prints them.
fn names(registry: &str) -> BTreeSet<&str> {
    let entries = registry.lines().filter_map(|line| line.trim().strip_prefix("thread("));
    let lists = entries.filter_map(|entry| entry.split('"').nth(1));
    lists.flat_map(|list| list.split('`')).filter(|name| !name.contains(' ')).collect()
}

/// The literal names of the threads that this code starts.
fn started(code: &str) -> impl Iterator<Item = &str> {
    let after = |before: &'static &str| code.split(*before).skip(1);
    BEFORE_NAME
        .iter()
        .flat_map(after)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}
