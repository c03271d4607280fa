//! `cargo xtask [CHECK...]` runs all checks, or those named; `make lint` runs all. `cargo xtask lower` writes the
//! numbers of `xtask/ratchet.txt` down to what the tree has. `cargo xtask docs` by name also compares the generated
//! references of the documentation with the code, and `cargo xtask docs --write` writes them again.
//! `cargo xtask libraries FILE` writes the licences of the libraries in the binary.
//! `cargo xtask sai-table HEADERS COMMIT` writes the table of SAI (`xtask/src/sai_table.rs`). The exit status is 0 only if no check found a fault.

use std::path::Path;
use std::process::ExitCode;
use xtask::{CHECKS, Tree, libraries, ratchet, references, sai_table};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let tree = Tree::new(root);
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names == ["lower"] {
        return match ratchet::lower(&tree) {
            Ok(lines) => {
                lines.iter().for_each(|line| println!("{line}"));
                ExitCode::SUCCESS
            }
            Err(fault) => done(Err(fault)),
        };
    }
    if names == ["docs", "--write"] {
        return done(references::run(&tree, true));
    }
    if let [command, headers, commit] = &names[..]
        && command == "sai-table"
    {
        return done(sai_table::run(&tree, Path::new(headers), commit));
    }
    if let [command, file] = &names[..]
        && command == "libraries"
    {
        return done(libraries::run(&tree, Path::new(file)));
    }
    if let Some(unknown) = names.iter().find(|name| !CHECKS.iter().any(|check| check.name == **name)) {
        let known: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        eprintln!(
            "there is no check {unknown}; the checks are {}, and `lower`, `docs --write`, `libraries FILE` and `sai-table HEADERS COMMIT` are commands",
            known.join(", ")
        );
        return ExitCode::FAILURE;
    }
    let (mut passed, mut failed) = (0, 0);
    for check in CHECKS.iter().filter(|check| names.is_empty() || names.iter().any(|n| n == check.name)) {
        let faults = (check.run)(&tree);
        for fault in &faults {
            println!("{}: {fault}", check.name);
        }
        if faults.is_empty() {
            passed += 1;
        } else {
            println!("FAILED {}: {} faults; the check holds: {}", check.name, faults.len(), check.holds);
            failed += 1;
        }
    }
    println!("lint: {passed} passed, {failed} failed");
    if failed > 0 {
        return ExitCode::FAILURE;
    }
    if names == ["docs"] { done(references::run(&tree, false)) } else { ExitCode::SUCCESS }
}

/// The exit status of a command, which prints its fault.
fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}
