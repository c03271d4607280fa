//! The invariant "every test runs". A manifest may say `test = false` of a crate without unit tests, which is then compiled
//! once rather than twice, and `doctest = false` of one without examples in its documentation, which rustdoc then skips. A
//! unit test of the first, and an example of the second, would never run.

use crate::Tree;
use crate::tree::{read, rust};
use std::path::Path;

/// Every file with a unit test or an example in a crate whose manifest turns them off.
pub fn check(tree: &Tree) -> Vec<String> {
    let manifest = |path: &Path| path.file_name().is_some_and(|name| name == "Cargo.toml");
    let mut faults = Vec::new();
    for file in tree.files("crates", manifest) {
        let source = file.with_file_name("src");
        if !source.is_dir() {
            continue;
        }
        let (manifest, source) = (read(&file), tree.show(&source).to_string());
        let says = |setting: &str| manifest.lines().any(|line| line.replace(' ', "") == setting);
        for (setting, what, has) in [
            ("test=false", "a unit test", has_unit_test as fn(&str) -> bool),
            ("doctest=false", "an example", has_example),
        ] {
            if says(setting) {
                let found = tree.files(&source, rust).into_iter().filter(|file| has(&read(file)));
                faults.extend(found.map(|file| {
                    format!("{}: {what} that never runs; the manifest says {setting}", tree.show(&file))
                }));
            }
        }
    }
    faults
}

fn has_unit_test(text: &str) -> bool {
    text.contains("cfg(test)")
}

/// Whether rustdoc would run a fenced block of the documentation.
fn has_example(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or(line.strip_prefix("//!"))
    });
    let mut inside = false;
    comments.filter_map(|comment| comment.trim_start().strip_prefix("```")).any(|language| {
        inside = !inside;
        inside && !matches!(language.trim(), "text" | "toml" | "json" | "console")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_is_a_fenced_block_of_rust() {
        assert!(has_example("/// ```\n/// let a = 1;\n/// ```\nfn a() {}\n"));
        assert!(has_example(
            "    //! ```text\n    //! a\n    //! ```\n    //! ```should_panic\n    //! ```\n"
        ));
        assert!(!has_example("//! ```text\n//! a -> b\n//! ```\n//!\n//! Text.\n"));
        assert!(!has_example("let a = \"```\";\n// ```\n"));
    }
}
