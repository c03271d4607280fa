//! The invariant "every page of docs/ is in the book". mdBook shows a page only where `docs/SUMMARY.md` names it, or where
//! its folder has a `README.md` that does: `scripts/book-pages` adds the pages below that.

use crate::Tree;
use crate::docs::links;
use crate::tree::read;
use std::path::Path;

/// Every page that no reader of the book finds, and every page that the summary names twice.
pub fn check(tree: &Tree) -> Vec<String> {
    let docs = tree.root.join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = read(&summary);
    let listed: Vec<_> = links(&text).map(|target| docs.join(target)).collect();
    let mut faults = Vec::new();
    for page in tree.files("docs", |path| path.extension().is_some_and(|e| e == "md")) {
        let shown = tree.show(&page);
        match listed.iter().filter(|path| **path == page).count() {
            0 if page != summary && !below_a_readme(&page, &listed) => {
                faults.push(format!("{shown}: docs/SUMMARY.md does not name it"));
            }
            0 | 1 => {}
            times => faults.push(format!("{shown}: docs/SUMMARY.md names it {times} times")),
        }
    }
    faults
}

/// Whether a page's folder has a listed `README.md` that links to it, so that a reader of either form finds it.
fn below_a_readme(page: &Path, listed: &[std::path::PathBuf]) -> bool {
    let readme = page.with_file_name("README.md");
    let name = page.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    listed.contains(&readme) && links(&read(&readme)).any(|target| target == name)
}
