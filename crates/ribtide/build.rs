//! Gives a release build the commit that it is made from, for `ribtide show version`.
//!
//! RIBTIDE_COMMIT in the environment has precedence, for builds outside of a repository. A debug build has none: each commit
//! would compile the program again.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RIBTIDE_COMMIT");
    let given = std::env::var("RIBTIDE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = given.or_else(|| is_release.then(of_repository).flatten());
    if let Some(commit) = commit {
        println!("cargo:rustc-env=RIBTIDE_BUILD_COMMIT={commit}");
    }
}

/// The commit of the repository, `-dirty` behind it if tracked files differ from it; `None`: this is no repository.
fn of_repository() -> Option<String> {
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // A path that is not there would run this again each time.
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { head } else { format!("{head}-dirty") })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
