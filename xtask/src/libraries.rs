//! `cargo xtask libraries FILE`: names, versions, licences and copyright notices of the libraries in the binary. The
//! package has the file, because most of these licences ask for it.

use crate::Tree;
use crate::tree::read;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Beginnings of the names of files with a licence or a notice.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A library of the binary.
struct Library {
    /// Name and version.
    name: String,
    licence: String,
    folder: PathBuf,
}

/// Writes the file.
///
/// # Errors
/// Cargo fails, or the file cannot be written.
pub fn run(tree: &Tree, file: &Path) -> Result<(), String> {
    std::fs::write(file, text(&libraries(tree)?)).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

/// What `ribtide` links, without this project's crates.
fn libraries(tree: &Tree) -> Result<Vec<Library>, String> {
    let linked =
        output(tree, &["tree", "--package=ribtide", "--edges=normal", "--prefix=none", "--format={p}"])?;
    // `name v1.0.0`, and `(proc-macro)` or `(*)`.
    let linked: BTreeSet<(&str, &str)> = linked
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let metadata = output(tree, &["metadata", "--format-version=1"])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let found = packages.iter().filter(|package| package["source"].is_string()).filter_map(|package| {
        let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_path_buf();
        let licence = package["license"].as_str().unwrap_or("see below").to_owned();
        linked.contains(&(name, version)).then(|| Library {
            name: format!("{name} {version}"),
            licence,
            folder,
        })
    });
    Ok(found.collect())
}

fn output(tree: &Tree, arguments: &[&str]) -> Result<String, String> {
    let output = tree.cargo().args(arguments).output().map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A line of each library, then each text once, with the libraries that have it.
fn text(libraries: &[Library]) -> String {
    let mut out = String::from("Libraries of others in the program ribtide.\n\n");
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for library in libraries {
        let _ = writeln!(out, "{}: {}", library.name, library.licence);
        for text in notices(&library.folder) {
            let of = texts.entry(text).or_default();
            if of.last() != Some(&library.name.as_str()) {
                of.push(&library.name);
            }
        }
    }
    for (text, of) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{text}", "=".repeat(80), of.join(", "));
    }
    out
}

/// The texts of a library's licences and notices.
fn notices(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_uppercase();
        path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| named(path)).collect();
    paths.sort();
    paths.iter().map(|path| read(path).trim().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_each_licence_once() {
        let folder = std::env::temp_dir().join(format!("xtask-libraries-{}", std::process::id()));
        let library = |name: &str, notice: &str| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("LICENSE-MIT"), notice).unwrap();
            std::fs::write(folder.join("README"), "not a licence").unwrap();
            Library { name: format!("{name} 1.0.0"), licence: "MIT".into(), folder }
        };
        let text =
            text(&[library("a", "Copyright A"), library("b", "Copyright B"), library("c", "Copyright A\n")]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("\nb 1.0.0: MIT\n"), "{text}");
        assert_eq!(text.matches("Copyright A").count(), 1, "{text}");
        assert!(text.contains("\na 1.0.0, c 1.0.0\n\nCopyright A\n"), "{text}");
        assert!(!text.contains("not a licence"));
    }
}
