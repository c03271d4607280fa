//! The references in the documentation are what the code has. `cargo xtask docs --write` writes them again.

#[path = "../../src/exit.rs"]
mod exit;
#[path = "../../src/manual/schema.rs"]
mod schema;
mod tables;

use std::fs;
use std::path::Path;
use tables::reference;

/// Begins a reference; its name follows, and `-->`.
const BEGIN: &str = "<!-- generated: ";
/// Ends it.
const END: &str = "<!-- end -->";
/// Set by `cargo xtask docs --write`.
const WRITE: &str = "RIBTIDE_WRITE_REFERENCES";

/// The document with its references as the code has them, and the names of those that were otherwise.
fn generated(text: &str) -> (String, Vec<&str>) {
    let (mut out, mut rest, mut stale) = (String::new(), text, Vec::new());
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->\n").expect("the name of a reference ends with -->");
        let (present, after) = after.split_once(END).unwrap_or_else(|| panic!("{name}: {END} is missing"));
        let table = reference(name).expect("a reference of the code");
        if present != table {
            stale.push(name);
        }
        out += &format!("{before}{BEGIN}{name} -->\n{table}{END}");
        rest = after;
    }
    (out + rest, stale)
}

#[test]
fn references_of_the_documentation_equal_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut faults = Vec::new();
    let mut found = 0;
    for file in ["configuration.md", "operations.md", "sonic.md"] {
        let path = docs.join(file);
        let text = fs::read_to_string(&path).expect("a document");
        found += text.matches(BEGIN).count();
        let (new, stale) = generated(&text);
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, new).expect("a document can be written");
        } else {
            faults.extend(stale.into_iter().map(|name| format!("docs/{file}: {name}")));
        }
    }
    assert!(found > 0, "no document has a reference");
    assert!(faults.is_empty(), "stale; `cargo xtask docs --write` writes them again:\n{}", faults.join("\n"));
}

#[test]
fn openapi_document_equals_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/openapi.json");
    let new = format!("{:#}\n", ribtide_daemon::openapi());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, new).expect("the document can be written");
    } else {
        let present = fs::read_to_string(&path).expect("contrib/openapi.json");
        assert!(present == new, "contrib/openapi.json is stale; `cargo xtask docs --write` writes it again");
    }
}

#[test]
fn schema_of_outputs_equals_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/outputs.schema.json");
    let run =
        std::process::Command::new(env!("CARGO_BIN_EXE_ribtide")).args(["schema", "--outputs"]).output();
    let new = String::from_utf8(run.expect("the program runs").stdout).expect("text");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, new).expect("the document can be written");
    } else {
        let present = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            present == new,
            "contrib/outputs.schema.json is stale; `cargo xtask docs --write` writes it again"
        );
    }
}
