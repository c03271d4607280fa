//! The invariant "pure crates have no effects". Clippy resolves what the source names, so an import of a module, an
//! alias, a macro or an included file hides nothing; `xtask/pure/clippy.toml` lists what is an effect.

use crate::clippy::{self, Diagnostic, PURE};
use crate::tree::{read, rust};
use crate::{Tree, words};

/// What the run over the pure crates forces.
pub(crate) const LINTS: &[&str] =
    &["clippy::disallowed_types", "clippy::disallowed_methods", "clippy::disallowed_macros", "unsafe_code"];

/// Everything in a pure crate's library that reaches outside of it.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = match clippy::pure(tree) {
        Ok(found) => found
            .iter()
            .filter(|d| LINTS.contains(&d.lint.as_str()) || d.is_error())
            .map(Diagnostic::show)
            .collect(),
        Err(fault) => vec![fault],
    };
    // No lint knows an `async` block, nor an included file, where another block may lie. Neither word has another
    // meaning in code, and tests want them as little.
    for name in PURE.iter().filter(|name| tree.has(name)) {
        for file in tree.files(&format!("crates/{name}/src"), rust) {
            let text = read(&file);
            for (line, word) in
                words::code(&text).into_iter().filter(|(_, w)| matches!(*w, "async" | "include"))
            {
                faults.push(format!("{}:{line}: {word} in a pure crate", tree.show(&file)));
            }
        }
    }
    faults
}
