//! The invariant "a file is one idea, at most 1,000 lines".

use crate::Tree;
use crate::tree::{read, rust};

/// Files beyond this length hold a second idea.
pub const LINES_MAX: usize = 1000;

/// Every Rust file that is too long.
pub fn check(tree: &Tree) -> Vec<String> {
    let files = ["crates", "xtask", "fuzz"].iter().flat_map(|folder| tree.files(folder, rust));
    files
        .filter_map(|file| {
            let lines = read(&file).lines().count();
            (lines > LINES_MAX).then(|| {
                format!("{}: {lines} lines; a file is one idea, at most {LINES_MAX} lines", tree.show(&file))
            })
        })
        .collect()
}
