//! Clippy as a source of facts. Lints that hold an invariant are forced on the command line with `--force-warn`, which
//! no `allow`, `expect` or `[lints]` in the tree can take back; the checks read the diagnostics.

use crate::Tree;
use serde_json::Value;

/// What clippy or the compiler says of one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// From the root of the tree; empty if the message is about no file.
    pub file: String,
    /// From 1; 0 if the message is about no file.
    pub line: u64,
    /// From 1; 0 if the message is about no file.
    pub column: u64,
    /// The lint, such as `clippy::panic`; empty for errors without a code.
    pub lint: String,
    /// The message, with the configured reason where there is one.
    pub message: String,
}

impl Diagnostic {
    /// Whether it is about no lint: an error of the compiler, or a wrong path in `clippy.toml`.
    pub(crate) fn is_error(&self) -> bool {
        self.lint.is_empty() || self.lint.starts_with("E0")
    }

    /// The diagnostic as one line.
    pub fn show(&self) -> String {
        let lint = if self.lint.is_empty() { String::new() } else { format!(" ({})", self.lint) };
        format!("{}:{}: {}{lint}", self.file, self.line, self.message)
    }
}

/// The crates without effects: `handle(batch) → effects`.
pub(crate) const PURE: &[&str] = &["prefix", "wire", "rpki", "policy", "bgp", "bfd", "rib", "sai", "swss"];

/// The lints forced in the pure crates; `effects` and `panics` each read theirs.
const PURE_LINTS: &[&[&str]] = &[crate::effects::LINTS, crate::panics::LINTS];

/// The run over the pure crates' libraries, without their tests, with `xtask/pure/clippy.toml`.
pub(crate) fn pure(tree: &Tree) -> Result<Vec<Diagnostic>, String> {
    once(tree, "pure", || {
        let mut cargo = tree.cargo();
        cargo.env("CLIPPY_CONF_DIR", tree.root.join("xtask/pure"));
        // A folder of its own, since other lints make cargo check the crates again.
        cargo.args(["clippy", "--quiet", "--message-format=json", "--lib", "--keep-going", "--target-dir"]);
        cargo.arg(tree.target.join("pure"));
        for name in PURE.iter().filter(|name| tree.has(name)) {
            cargo.arg(format!("-pribtide-{name}"));
        }
        cargo.arg("--");
        cargo.args(PURE_LINTS.iter().copied().flatten().map(|lint| format!("--force-warn={lint}")));
        diagnostics(cargo)
    })
}

/// The run over everything, tests included, with the workspace's lints and `clippy.toml`.
pub(crate) fn workspace(tree: &Tree) -> Result<Vec<Diagnostic>, String> {
    once(tree, "workspace", || {
        let mut cargo = tree.cargo();
        cargo.args(["clippy", "--quiet", "--message-format=json", "--keep-going", "--target-dir"]);
        cargo.arg(&tree.target);
        if tree.crates.is_empty() {
            cargo.args(["--workspace", "--all-targets"]);
        } else {
            cargo.arg("--lib").args(tree.crates.iter().map(|name| format!("-pribtide-{name}")));
        }
        lint(cargo)
    })
}

/// All that clippy says but for channels and threads, which are the checks `queues` and `threads`.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for run in [workspace(tree), sonic(tree)] {
        match run {
            Ok(found) => {
                let found = found.iter().filter(|d| d.lint != crate::queues::LINT);
                faults.extend(found.map(Diagnostic::show));
            }
            Err(fault) => faults.push(fault),
        }
    }
    faults
}

/// The run over `ribtide` without its default features, which the workspace's run does not compile: SONiC's daemons alone.
fn sonic(tree: &Tree) -> Result<Vec<Diagnostic>, String> {
    if !tree.crates.is_empty() {
        return Ok(Vec::new());
    }
    let mut cargo = tree.cargo();
    cargo.args(["clippy", "--quiet", "--message-format=json", "--target-dir"]).arg(&tree.target);
    cargo.args(["-pribtide", "--no-default-features", "--bins"]);
    lint(cargo)
}

/// Runs clippy as the workspace is linted. All such runs have the same flags: with others, cargo would check every crate
/// again, for this run and for the next one with the former flags.
fn lint(mut cargo: std::process::Command) -> Result<Vec<Diagnostic>, String> {
    cargo.args(["--", "-Dwarnings"]).arg(format!("--force-warn={}", crate::queues::LINT));
    diagnostics(cargo)
}

/// The diagnostics, if all crates were compiled: places in a crate that was not would be missing.
pub(crate) fn compiled(found: Vec<Diagnostic>) -> Result<Vec<Diagnostic>, String> {
    match found.iter().find(|d| d.is_error()) {
        Some(error) => Err(error.show()),
        None => Ok(found),
    }
}

/// A run's result, which is kept in the tree.
fn once(
    tree: &Tree,
    name: &'static str,
    run: impl FnOnce() -> Result<Vec<Diagnostic>, String>,
) -> Result<Vec<Diagnostic>, String> {
    if let Some(result) = tree.runs.borrow().get(name) {
        return result.clone();
    }
    let result = run();
    tree.runs.borrow_mut().insert(name, result.clone());
    result
}

/// Runs clippy. A place that is compiled twice, for a library and for its tests, is one diagnostic.
fn diagnostics(mut cargo: std::process::Command) -> Result<Vec<Diagnostic>, String> {
    let output = cargo.output().map_err(|e| format!("cargo clippy cannot be run: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut found: Vec<_> = said.lines().filter_map(diagnostic).collect();
    found.sort();
    found.dedup();
    if !output.status.success() && found.is_empty() {
        return Err(format!("cargo clippy failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(found)
}

/// One line of cargo's JSON, if it is an error or a warning.
fn diagnostic(line: &str) -> Option<Diagnostic> {
    let line: Value = serde_json::from_str(line).ok()?;
    let message = line.get("message").filter(|_| line["reason"] == "compiler-message")?;
    let spans = message["spans"].as_array()?;
    let span = spans.iter().find(|span| span["is_primary"] == true);
    let text = message["message"].as_str().unwrap_or_default();
    let lint = message["code"]["code"].as_str().unwrap_or_default();
    // Counts of warnings and errors are about no place and no lint; what is of another level is a note on the whole run.
    let is_count = text.ends_with("emitted") || text.starts_with("aborting due to");
    if !matches!(message["level"].as_str()?, "error" | "warning")
        || span.is_none() && lint.is_empty() && is_count
    {
        return None;
    }
    let of = |key: &str| span.and_then(|span| span[key].as_u64()).unwrap_or_default();
    let notes = message["children"].as_array().into_iter().flatten();
    // Clippy says the reason of a disallowed item as the first note; what lint was forced, and where, is not one.
    let reason = notes
        .filter_map(|note| note["message"].as_str())
        .find(|note| !note.starts_with("requested on the command line") && !note.starts_with("for further"));
    Some(Diagnostic {
        file: span.and_then(|span| span["file_name"].as_str()).unwrap_or_default().into(),
        line: of("line_start"),
        column: of("column_start"),
        lint: lint.into(),
        message: match reason {
            Some(reason) => format!("{text}: {}", reason.lines().next().unwrap_or_default()),
            None => text.into(),
        },
    })
}
