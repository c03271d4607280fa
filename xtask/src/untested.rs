//! The invariant "every test runs". A manifest may say `test = false` of a crate without unit tests, which is then compiled
//! once rather than twice; a unit test of it would never run.

use crate::Tree;
use crate::tree::{read, rust};
use std::path::Path;

/// Every file with a unit test in a crate whose manifest turns them off.
pub fn check(tree: &Tree) -> Vec<String> {
    let manifest = |path: &Path| path.file_name().is_some_and(|name| name == "Cargo.toml");
    let mut faults = Vec::new();
    for file in tree.files("crates", manifest) {
        let source = file.with_file_name("src");
        if !source.is_dir() || !read(&file).lines().any(|line| line.replace(' ', "") == "test=false") {
            continue;
        }
        let source = tree.show(&source).to_string();
        let tests = tree.files(&source, rust).into_iter().filter(|file| read(file).contains("cfg(test)"));
        faults.extend(tests.map(|file| {
            format!("{}: a unit test that never runs; the manifest says test = false", tree.show(&file))
        }));
    }
    faults
}
