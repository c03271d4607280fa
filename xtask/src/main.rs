//! Checks of the tree that no compiler makes; `make lint` runs them. Each one guards an invariant of ARCHITECTURE.md
//! and names it when it fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What each crate may depend on. The folders are the architecture: arrows point down only.
const GRAPH: &[(&str, &[&str])] = &[
    ("prefix", &[]),
    ("wire", &["prefix"]),
    ("policy", &["prefix", "wire"]),
    ("bgp", &["prefix", "wire", "policy"]),
    ("bfd", &["wire"]),
    ("rib", &["prefix"]),
    ("swss", &["prefix", "wire"]),
    ("runtime", &[]),
    ("sai", &["prefix", "swss"]),
    ("tables", &["prefix", "swss", "runtime"]),
    ("daemon", &["prefix", "wire", "policy", "bgp", "bfd", "rib", "swss", "runtime", "sai", "tables"]),
    ("bench", &["prefix", "wire", "rib"]),
    ("sim", &["prefix", "wire", "policy", "bgp", "rib"]),
    ("ribtide", &["prefix", "daemon", "bench"]),
];

/// Crates without effects.
const PURE: &[&str] = &["prefix", "wire", "policy", "bgp", "bfd", "rib", "swss"];

/// What a pure crate must not name. Tests may.
const EFFECTS: &[(&str, &str)] = &[
    ("std::thread", "a thread"),
    ("std::fs", "a file"),
    ("std::process", "a process"),
    ("std::io::", "input or output"),
    ("std::time::Instant", "a clock"),
    ("std::time::SystemTime", "a clock"),
    ("Instant::now", "a clock"),
    ("TcpStream", "a socket"),
    ("TcpListener", "a socket"),
    ("UdpSocket", "a socket"),
    ("UnixStream", "a socket"),
    ("std::env", "the environment"),
    ("println!", "output"),
    ("eprintln!", "output"),
    ("async fn", "async"),
    (".await;", "async"),
    (".await?", "async"),
    (".await.", "async"),
    ("unsafe {", "unsafe code"),
    ("Mutex", "a lock"),
    ("RwLock", "a lock"),
];

/// Files beyond this length hold a second idea.
const MAX_LINES: usize = 1000;

fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf();
    let mut faults = Vec::new();
    crate_graph(&root, &mut faults);
    for name in PURE {
        pure(&root.join("crates").join(name), &mut faults);
    }
    wire_denies_panics(&root, &mut faults);
    unbounded_channels(&root, &mut faults);
    for file in rust_files(&root.join("crates")).into_iter().chain(rust_files(&root.join("xtask"))) {
        let lines = read(&file).lines().count();
        if lines > MAX_LINES {
            faults.push(format!(
                "{}: {lines} lines; a file is one idea, at most {MAX_LINES} lines",
                show(&root, &file)
            ));
        }
    }
    if faults.is_empty() {
        println!("tree: crate graph, effects, panics, channels and file sizes hold");
        return ExitCode::SUCCESS;
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    eprintln!("{} of the invariants in ARCHITECTURE.md are broken", faults.len());
    ExitCode::FAILURE
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn show<'a>(root: &Path, path: &'a Path) -> std::path::Display<'a> {
    path.strip_prefix(root).unwrap_or(path).display()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The invariant "arrows point down only".
fn crate_graph(root: &Path, faults: &mut Vec<String>) {
    let allowed: BTreeMap<_, _> = GRAPH.iter().copied().collect();
    for entry in fs::read_dir(root.join("crates")).expect("crates/") {
        let folder = entry.expect("a folder entry").path();
        let name = folder.file_name().and_then(|n| n.to_str()).expect("a crate's name").to_string();
        let Some(allowed) = allowed.get(name.as_str()) else {
            faults.push(format!("crates/{name}: not in the crate graph of xtask and ARCHITECTURE.md"));
            continue;
        };
        let manifest = read(&folder.join("Cargo.toml"));
        // Tests may look at more than the code may use.
        let code = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for line in code.lines() {
            let Some(dependency) =
                line.strip_prefix("ribtide-").and_then(|l| l.split(['.', ' ', '=']).next())
            else {
                continue;
            };
            if !allowed.contains(&dependency) {
                faults.push(format!("crates/{name}: may not depend on {dependency}; arrows point down only"));
            }
        }
    }
}

/// The invariant "pure crates have no effects".
fn pure(folder: &Path, faults: &mut Vec<String>) {
    let files = rust_files(&folder.join("src"));
    // Modules that exist only in tests: `#[cfg(test)]` and then `mod name;`.
    let mut test_modules = Vec::new();
    for file in &files {
        let text = read(file);
        for declaration in text.split("#[cfg(test)]\nmod ").skip(1) {
            let name =
                declaration.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let own = file.with_extension("");
            let beside = match file.file_stem().and_then(|s| s.to_str()) {
                Some("lib" | "mod") => file.with_file_name(name),
                _ => own.join(name),
            };
            test_modules.push(beside);
        }
    }
    for file in files {
        if test_modules.iter().any(|m| file.with_extension("") == *m || file.starts_with(m)) {
            continue;
        }
        let text = read(&file);
        // By convention a file's own tests come last.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for (token, what) in EFFECTS {
                if line.contains(token) {
                    faults.push(format!(
                        "{}:{}: {what} in a pure crate ({token})",
                        file.display(),
                        number + 1
                    ));
                }
            }
        }
    }
}

/// The invariant "bytes from outside never panic": the compiler checks it where `wire` asks it to.
fn wire_denies_panics(root: &Path, faults: &mut Vec<String>) {
    let lib = read(&root.join("crates/wire/src/lib.rs"));
    for lint in ["clippy::unwrap_used", "clippy::expect_used", "clippy::panic", "clippy::indexing_slicing"] {
        if !lib.contains(lint) {
            faults.push(format!(
                "crates/wire/src/lib.rs: does not deny {lint}; bytes from outside never panic"
            ));
        }
    }
}

/// The invariant "every queue has a bound and a name".
fn unbounded_channels(root: &Path, faults: &mut Vec<String>) {
    for name in ["daemon", "tables", "sai", "runtime"] {
        for file in rust_files(&root.join("crates").join(name).join("src")) {
            for (number, line) in read(&file).lines().enumerate() {
                let queue = line.contains("mpsc::channel(") || line.contains("::unbounded(");
                if queue && !line.contains("// bounded by") {
                    faults.push(format!(
                        "{}:{}: a queue without a bound; use a ring, or end the line with `// bounded by ...`",
                        show(root, &file),
                        number + 1
                    ));
                }
            }
        }
    }
}
