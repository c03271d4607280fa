//! rustfmt, as a check.

use crate::Tree;

/// Every place that rustfmt would change.
pub fn check(tree: &Tree) -> Vec<String> {
    let output = match tree.cargo().args(["fmt", "--all", "--check"]).output() {
        Ok(output) => output,
        Err(e) => return vec![format!("cargo fmt cannot be run: {e}")],
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let places = said.lines().filter_map(|line| line.strip_prefix("Diff in "));
    let root = format!("{}/", tree.root.display());
    let mut faults: Vec<_> =
        places.map(|place| format!("{} cargo fmt would change this", place.replace(&root, ""))).collect();
    if faults.is_empty() && !output.status.success() {
        faults.push(format!("cargo fmt failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    faults
}
