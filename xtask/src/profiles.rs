//! The invariant "the shipped profile is the tested profile". Users get what `cargo build --release` builds, so the tests
//! against other programs must run that. An override in the commands of the tree may change debug information only.

use crate::Tree;
use crate::tree::read;
use std::path::PathBuf;

/// Keys of a profile that change no code, as the end of a variable's name. Incremental compilation is none of them: it
/// cuts a crate into other units.
const HARMLESS: &[&str] = &["_DEBUG", "_SPLIT_DEBUGINFO", "_STRIP"];

/// Scripts that instrument the code, or model it, beside the tests of what users get.
const INSTRUMENT: &[&str] = &["scripts/loom", "scripts/tsan"];

/// Every override of how code is generated, in what builds and tests the binary: `.ci`, `scripts`, `Makefile` and
/// `.cargo/config.toml`.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut faults = Vec::new();
    for file in commands(tree) {
        for (at, line) in
            read(&file).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'))
        {
            faults.extend(overrides(line).map(|found| {
                format!("{}:{}: {found} changes the code of what is tested", tree.show(&file), at + 1)
            }));
        }
    }
    faults
}

fn commands(tree: &Tree) -> Vec<PathBuf> {
    let folders = [".ci", "scripts"].into_iter().filter(|folder| tree.root.join(folder).is_dir());
    let mut files: Vec<_> = folders.flat_map(|folder| tree.files(folder, |_| true)).collect();
    let single = ["Makefile", ".cargo/config.toml", ".cargo/config"].map(|file| tree.root.join(file));
    files.extend(single.into_iter().filter(|file| file.is_file()));
    files.retain(|file| !INSTRUMENT.contains(&tree.show(file).to_string().as_str()));
    files
}

/// What of a line makes rustc generate other code than the profile in `Cargo.toml` does.
fn overrides(line: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '='));
    line.split(word).filter(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "CARGO_INCREMENTAL" => value != "0",
            "profile" | "rustflags" | "--profile" | "--config" => true,
            name if name.starts_with("CARGO_PROFILE_") => !HARMLESS.iter().any(|key| name.ends_with(key)),
            name => name.ends_with("RUSTFLAGS"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_of_code_generation_are_found_and_of_debug_information_are_not() {
        let found = |line| overrides(line).collect::<Vec<_>>();
        let harmless =
            "export CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_DEV_STRIP=debuginfo";
        assert_eq!(found(harmless), [""; 0]);
        assert_eq!(found("A=1 CARGO_PROFILE_RELEASE_LTO=off make"), ["CARGO_PROFILE_RELEASE_LTO=off"]);
        assert_eq!(found("export CARGO_INCREMENTAL=1"), ["CARGO_INCREMENTAL=1"]);
        assert_eq!(
            found("CARGO_PROFILE_RELEASE_PACKAGE_X_OPT_LEVEL=1"),
            ["CARGO_PROFILE_RELEASE_PACKAGE_X_OPT_LEVEL=1"]
        );
        assert_eq!(found("CARGO_BUILD_RUSTFLAGS='-C opt-level=1'"), ["CARGO_BUILD_RUSTFLAGS="]);
        assert_eq!(found("cargo build --profile quick"), ["--profile"]);
        assert_eq!(found("cargo build --config 'a.b=1'"), ["--config"]);
        assert_eq!(found("[profile.release]"), ["profile"]);
    }
}
