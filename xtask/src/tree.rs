//! The tree that is checked: its folder, its files, and cargo run inside of it.

use crate::clippy::Diagnostic;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A workspace on disk. Results of clippy are kept, since two checks may read the same run.
#[derive(Debug)]
pub struct Tree {
    /// The folder of the workspace's `Cargo.toml`.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// Crates that clippy looks at, by their folder in `crates/`; empty for all.
    pub crates: Vec<String>,
    /// Whether cargo may use the network.
    pub offline: bool,
    pub(crate) runs: RefCell<BTreeMap<&'static str, Result<Vec<Diagnostic>, String>>>,
}

impl Tree {
    /// The workspace at `root`, built in `CARGO_TARGET_DIR` or in `target`.
    pub fn new(root: &Path) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let root = root.to_path_buf();
        Tree { root, target, crates: Vec::new(), offline: false, runs: RefCell::default() }
    }

    /// A command of cargo in this workspace.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.root);
        if self.offline {
            cargo.env("CARGO_NET_OFFLINE", "true");
        }
        cargo
    }

    /// Whether clippy looks at a crate.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.crates.is_empty() || self.crates.iter().any(|n| n == name)
    }

    /// A path as the messages say it: from the root.
    pub(crate) fn show<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }

    /// The files below a folder of the tree for which `wanted` holds, sorted. Folders that hold what was built are
    /// left out.
    pub(crate) fn files(&self, folder: &str, wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.root.join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
                let path = entry.expect("a folder entry").path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if path.is_symlink() {
                    continue;
                }
                if path.is_dir() {
                    if !matches!(name, "target" | ".git" | "__pycache__" | ".pytest_cache") {
                        folders.push(path);
                    }
                } else if wanted(&path) {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }
}

/// Whether a file holds Rust.
pub(crate) fn rust(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "rs")
}

/// The text of a file that must be there.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
