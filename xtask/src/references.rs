//! The references of the documentation: tables between `<!-- generated: NAME -->` and `<!-- end -->`. The test `references` of
//! the binary compares them with the code, as `make test` does; it builds with the other tests and so costs lint no build of
//! its own.

use crate::Tree;

/// Set for the test when it writes what it else compares.
const WRITE: &str = "RIBTIDE_WRITE_REFERENCES";

/// Compares the references with the code, or writes them again.
///
/// # Errors
/// What the test printed, when a reference is stale or the binary cannot be built.
pub fn run(tree: &Tree, write: bool) -> Result<(), String> {
    let mut cargo = tree.cargo();
    // All of the workspace, for the features that `make test` builds with.
    cargo.args(["test", "--quiet", "--workspace", "--test", "references"]);
    if write {
        cargo.env(WRITE, "1");
    }
    let output = cargo.output().map_err(|e| format!("cargo cannot be run: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Err(format!("{out}{err}"))
}
