//! Every check notices what breaks its invariant: each test breaks a copy of the tree and expects the fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::{
    Tree, book, clippy, dependencies, docs, effects, format, graph, panics, profiles, queues, ratchet,
    registry, sizes, threads, untested, words,
};

/// A copy of some folders of the tree and of xtask, which is a member of the workspace. All copies build in one folder,
/// without the network.
fn copy(name: &str, folders: &[&str]) -> Tree {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let to = scratch.join(name);
    if to.exists() {
        fs::remove_dir_all(&to).expect("the last run's copy can be removed");
    }
    for folder in folders.iter().chain(&["xtask"]) {
        copy_folder(&from.join(folder), &to.join(folder));
    }
    for file in ["Cargo.toml", "Cargo.lock", "clippy.toml", "deny.toml", "rustfmt.toml"] {
        fs::copy(from.join(file), to.join(file)).expect("a file of the workspace");
    }
    let mut tree = Tree::new(&to);
    tree.target = scratch.join("built");
    tree.offline = true;
    tree
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder of the copy");
    for entry in fs::read_dir(from).expect("a folder of the tree") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("an entry has a name");
        if path.is_dir() {
            if name != "target" {
                copy_folder(&path, &to.join(name));
            }
        } else {
            fs::copy(&path, to.join(name)).expect("a file of the tree");
        }
    }
}

/// Changes a file of the copy by replacing a text that it must have.
fn replace(tree: &Tree, file: &str, before: &str, after: &str) {
    let path = tree.root.join(file);
    let text = fs::read_to_string(&path).expect("a file of the copy");
    assert!(text.contains(before), "{file} lacks {before:?}");
    fs::write(path, text.replacen(before, after, 1)).expect("a file of the copy");
}

fn append(tree: &Tree, file: &str, text: &str) {
    let path = tree.root.join(file);
    let before = fs::read_to_string(&path).expect("a file of the copy");
    fs::write(path, before + text).expect("a file of the copy");
}

/// Writes a file of the copy, and returns its path.
fn write(tree: &Tree, file: &str, text: &str) -> PathBuf {
    let path = tree.root.join(file);
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder of the copy");
    fs::write(&path, text).expect("a file of the copy");
    path
}

/// Adds a module to a crate of the copy.
fn add_module(tree: &Tree, name: &str, module: &str, code: &str) {
    write(tree, &format!("crates/{name}/src/{module}.rs"), &format!("//! A break.\n{code}\n"));
    append(tree, &format!("crates/{name}/src/lib.rs"), &format!("pub mod {module};\n"));
}

/// Asserts that some fault has all of these texts.
fn assert_fault(faults: &[String], texts: &[&str]) {
    let found = faults.iter().any(|fault| texts.iter().all(|text| fault.contains(text)));
    assert!(found, "no fault has {texts:?}:\n{}", faults.join("\n"));
}

#[test]
fn graph_of_the_unbroken_copy_holds() {
    let tree = copy("graph_unbroken", &["crates"]);
    assert_eq!(graph::check(&tree), [""; 0]);
}

#[test]
fn dependencies_with_another_licence_or_from_elsewhere_are_noticed() {
    let tree = copy("dependencies", &["crates"]);
    assert_eq!(dependencies::check(&tree), [""; 0]);
    replace(&tree, "deny.toml", "    \"Zlib\",\n", "");
    assert_fault(&dependencies::check(&tree), &["foldhash", "\"Zlib\"", "deny.toml"]);
    // A package on disk stands for one from git: neither is from crates.io.
    let scratch = tree.root.parent().expect("a folder of copies").join("elsewhere");
    fs::create_dir_all(scratch.join("src")).expect("a folder");
    fs::write(scratch.join("src/lib.rs"), "").expect("a file");
    let manifest = "[package]\nname = \"elsewhere\"\nversion = \"0.1.0\"\nlicense = \"MIT\"\n[workspace]\n";
    fs::write(scratch.join("Cargo.toml"), manifest).expect("a manifest");
    let dependency = format!("\n[dependencies.elsewhere]\npath = {:?}\n", scratch.display().to_string());
    append(&tree, "crates/text/Cargo.toml", &dependency);
    assert_fault(&dependencies::check(&tree), &["elsewhere v0.1.0", "crates.io"]);
}

#[test]
fn graph_dependency_upwards_is_noticed_however_it_is_written() {
    let tree = copy("graph_spellings", &["crates"]);
    let manifest = tree.root.join("crates/bfd/Cargo.toml");
    let unbroken = fs::read_to_string(&manifest).expect("bfd's manifest");
    let upwards = "bfd may not depend on rib";
    let pure = "bfd is pure and may not depend on";
    let first =
        "[dev-dependencies]\nproptest.workspace = true\n\n[dependencies]\nribtide-rib.workspace = true\n";
    let breaks: &[(&str, &str, &str)] = &[
        ("a line", "[dependencies]\nribtide-rib.workspace = true\n", upwards),
        ("a table", "[dependencies.ribtide-rib]\nworkspace = true\n", upwards),
        ("an inline table", "[dependencies]\nribtide-rib = { workspace = true }\n", upwards),
        ("after dev-dependencies", first, upwards),
        ("a renamed one", "[dependencies]\nx = { package = \"ribtide-rib\", path = \"../rib\" }\n", upwards),
        ("an optional one", "[dependencies]\nribtide-rib = { workspace = true, optional = true }\n", upwards),
        ("for a target", "[target.'cfg(unix)'.dependencies]\nribtide-rib.workspace = true\n", upwards),
        ("to build", "[build-dependencies]\nribtide-rib.workspace = true\n", upwards),
        (
            "for tests",
            "[dev-dependencies]\nribtide-daemon.workspace = true\n",
            "bfd may not depend on daemon (dev)",
        ),
        ("tokio", "[dependencies]\ntokio.workspace = true\n", pure),
        ("tokio, renamed", "[dependencies]\nt = { package = \"tokio\", version = \"1\" }\n", pure),
        ("to build, of others", "[build-dependencies]\nlibc.workspace = true\n", pure),
    ];
    let (package, _) = unbroken.split_once("[dependencies]").expect("bfd has dependencies");
    for (name, dependencies, fault) in breaks {
        fs::write(&manifest, format!("{package}{dependencies}")).expect("bfd's manifest");
        let faults = graph::check(&tree);
        assert!(faults.len() == 1 && faults[0].contains(fault), "{name}: {faults:?}");
    }
}

#[test]
fn graph_bgp_and_http_in_the_build_of_sonic_daemons_are_noticed() {
    let tree = copy("graph_sonic", &["crates"]);
    let manifest = "crates/ribtide/Cargo.toml";
    replace(
        &tree,
        manifest,
        "ribtide-config = { workspace = true, optional = true }",
        "ribtide-config.workspace = true",
    );
    replace(&tree, manifest, "\"dep:ribtide-config\",", "");
    replace(&tree, manifest, "hyper = { workspace = true, optional = true }", "hyper.workspace = true");
    replace(&tree, manifest, "\"dep:hyper\",", "");
    let faults = graph::check(&tree);
    for name in ["ribtide-bgp", "hyper"] {
        assert_fault(&faults, &["ribtide without its default features depends on", &format!(" {name},")]);
    }
    assert!(!faults.iter().any(|fault| fault.contains(" axum,")), "{faults:?}");
}

#[test]
fn graph_build_script_unknown_crate_and_missing_lints_are_noticed() {
    let tree = copy("graph_crates", &["crates"]);
    write(&tree, "crates/prefix/build.rs", "fn main() {}\n");
    replace(&tree, "crates/wire/Cargo.toml", "[lints]\nworkspace = true\n", "");
    copy_folder(&tree.root.join("crates/bfd"), &tree.root.join("crates/extra"));
    replace(&tree, "crates/extra/Cargo.toml", "ribtide-bfd", "ribtide-extra");
    let faults = graph::check(&tree);
    assert_fault(&faults, &["prefix is pure and may not have a build script"]);
    assert_fault(&faults, &["crates/wire/Cargo.toml", "[lints]"]);
    assert_fault(&faults, &["extra: not in the crate graph"]);
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn effects_and_panics_are_noticed_however_they_are_written() {
    let mut tree = copy("pure", &["crates/prefix", "crates/wire"]);
    tree.crates = vec!["prefix".into(), "wire".into()];
    let effects: &[(&str, &str, &str)] = &[
        ("b_thread", "pub fn f() { std::thread::spawn(|| ()); }", "`std::thread::spawn`: a thread"),
        (
            "b_modules",
            "use std::{fs, thread};\npub fn f() { thread::park(); let _ = fs::read(\"\"); }",
            "a thread",
        ),
        ("b_clock", "type T = std::time::Instant;\npub fn f() -> T { T::now() }", "a clock"),
        (
            "b_lock",
            "macro_rules! m { ($v:expr) => { ::std::sync::Mutex::new($v) } }\npub fn f() { m!(1); }",
            "a lock",
        ),
        (
            "b_expect",
            "#[expect(clippy::disallowed_methods)]\npub fn f() { std::thread::sleep(std::time::Duration::MAX) }",
            "a thread",
        ),
        (
            "b_allow",
            "#![allow(warnings, clippy::all, clippy::disallowed_macros)]\npub fn f() { println!() }",
            "output",
        ),
        ("b_include", "include!(\"b_included.txt\");", "include in a pure crate"),
        ("b_async", "pub async fn f() {}", "async in a pure crate"),
        ("b_block", "pub fn f() { let _ = async { 1 }; }", "async in a pure crate"),
        (
            "b_names",
            "use std::net::ToSocketAddrs as _;\npub fn f() { let _ = \"a:1\".to_socket_addrs(); }",
            "a socket",
        ),
        ("b_value", "pub fn f() { let g = std::env::var::<&str>; let _ = g(\"A\"); }", "the environment"),
        ("b_path", "pub fn f(p: &std::path::Path) -> bool { p.exists() }", "a file"),
        ("b_channel", "use std::sync::mpsc as m;\npub fn f() { let _ = m::channel::<u8>(); }", "a channel"),
        ("b_stdio", "pub fn f() { let _ = std::io::stdin(); }", "input or output"),
        ("b_unsafe", "pub fn f(x: &u8) -> u8 { unsafe { *std::ptr::from_ref(x) } }", "unsafe_code"),
    ];
    write(&tree, "crates/prefix/src/b_included.txt", "pub fn f() { std::process::exit(1) }\n");
    for (module, code, _) in effects {
        add_module(&tree, "prefix", module, code);
    }
    let innocent =
        "/// Never async, no std::thread::spawn.\npub fn f() -> &'static str { \"async std::fs::read\" }";
    add_module(&tree, "prefix", "innocent", innocent);
    replace(&tree, "crates/wire/src/lib.rs", "deny(clippy::unwrap_used", "allow(clippy::unwrap_used");
    let panicking: &[(&str, &str, &str)] = &[
        ("b_unwrap", "pub fn f(x: Option<u8>) -> u8 { x.unwrap() }", "clippy::unwrap_used"),
        (
            "b_index",
            "#[allow(clippy::indexing_slicing)]\npub fn f(x: &[u8]) -> u8 { x[0] }",
            "clippy::indexing_slicing",
        ),
        (
            "b_expect",
            "#[expect(clippy::expect_used)]\npub fn f(x: Option<u8>) { x.expect(\"\"); }",
            "clippy::expect_used",
        ),
        (
            "b_panic",
            "#![allow(clippy::all, clippy::restriction)]\npub fn f() { panic!(\"now\") }",
            "clippy::panic",
        ),
    ];
    for (module, code, _) in panicking {
        add_module(&tree, "wire", module, code);
    }
    write(
        &tree,
        "xtask/ratchet.txt",
        "panics 2 crates/wire/src/bgp/attribute/registry.rs clippy::indexing_slicing\n",
    );

    let faults = effects::check(&tree);
    for (module, _, fault) in effects {
        assert_fault(&faults, &[&format!("prefix/src/{module}.rs:"), fault]);
    }
    assert_fault(&faults, &["prefix/src/b_included.txt:1", "a process"]);
    assert!(!faults.iter().any(|fault| fault.contains("innocent") || fault.contains("wire")), "{faults:#?}");

    let faults = panics::check(&tree);
    for (module, _, fault) in panicking {
        assert_fault(&faults, &[&format!("wire/src/{module}.rs"), fault]);
    }
    assert_eq!(faults.len(), panicking.len(), "registry.rs is excepted: {faults:#?}");
}

#[test]
fn effects_list_with_a_wrong_path_is_noticed() {
    let mut tree = copy("pure_list", &["crates/prefix"]);
    tree.crates = vec!["prefix".into()];
    replace(&tree, "xtask/pure/clippy.toml", "std::thread::spawn", "std::thread::spwan");
    assert_fault(&effects::check(&tree), &["std::thread::spwan"]);
}

#[test]
fn queues_without_name_or_bound_and_threads_without_owner_are_noticed_however_they_are_written() {
    let mut tree = copy("queues", &["crates/prefix", "crates/wire", "crates/bfd"]);
    tree.crates = vec!["bfd".into()];
    let tokio = "tokio = { version = \"1\", default-features = false, features = [\"sync\", \"rt\"] }";
    let dependencies = format!("[dependencies]\ncrossbeam-channel.workspace = true\n{tokio}\n");
    replace(&tree, "crates/bfd/Cargo.toml", "[dependencies]\n", &dependencies);
    let (bound, name) = ("a queue without a bound", "a queue without a name");
    let breaks: &[(&str, &str, &str)] = &[
        ("b_out", "pub fn f() { crossbeam_channel::unbounded::<u8>(); }", bound),
        ("b_import", "use crossbeam_channel::{unbounded as u};\npub fn f() { u::<u8>(); }", bound),
        ("b_std", "use std::sync::mpsc;\npub fn f() { let _ = mpsc::channel::<u8>(); }", bound),
        ("b_tokio", "pub fn f() { let _ = tokio::sync::mpsc::unbounded_channel::<u8>(); }", bound),
        ("b_bounded", "pub fn f() { let _ = crossbeam_channel::bounded::<u8>(1); }", name),
        ("b_sync", "use std::sync::mpsc::*;\npub fn f() { let _ = sync_channel::<u8>(1); }", name),
        ("b_tokio_bounded", "pub fn f() { let _ = tokio::sync::mpsc::channel::<u8>(1); }", name),
        ("b_value", "pub fn f() { let g = crossbeam_channel::bounded::<u8>; let _ = g(1); }", name),
        (
            "b_allow",
            "#![allow(clippy::disallowed_methods)]\npub fn f() { let _ = crossbeam_channel::bounded::<u8>(1); }",
            name,
        ),
    ];
    for (module, code, _) in breaks {
        add_module(&tree, "bfd", module, code);
    }
    add_module(&tree, "bfd", "listed", "pub fn f() { let _ = crossbeam_channel::bounded::<u8>(1); }");
    add_module(&tree, "bfd", "b_lint", "/// Docs.\npub fn f() -> u8 { return 1; }");
    let started: &[(&str, &str)] = &[
        ("t_spawn", "pub fn f() { std::thread::spawn(|| ()); }"),
        ("t_import", "use std::thread::{self as t};\npub fn f() { t::spawn(|| ()); }"),
        ("t_builder", "pub fn f() { let _ = std::thread::Builder::new().spawn(|| ()); }"),
        ("t_task", "use tokio::task::spawn as s;\npub fn f() { drop(s(std::future::ready(()))); }"),
        ("t_blocking", "pub fn f() { drop(tokio::task::spawn_blocking(|| ())); }"),
        ("t_local", "pub fn f() { drop(tokio::task::spawn_local(std::future::ready(()))); }"),
        ("t_handle", "pub fn f(on: &tokio::runtime::Handle) { drop(on.spawn(std::future::ready(()))); }"),
        ("t_runtime", "pub fn f(on: &tokio::runtime::Runtime) { drop(on.spawn_blocking(|| ())); }"),
        ("t_set", "pub fn f(of: &mut tokio::task::JoinSet<()>) { of.spawn(std::future::ready(())); }"),
    ];
    for (module, code) in started {
        add_module(&tree, "bfd", module, code);
    }
    write(&tree, "xtask/ratchet.txt", "queues 1 crates/bfd/src/listed.rs\n");

    let faults = threads::check(&tree);
    for (module, _) in started {
        assert_fault(&faults, &[&format!("crates/bfd/src/{module}.rs:"), "without an owner"]);
    }
    assert_eq!(faults.len(), started.len(), "{faults:#?}");

    let faults = queues::check(&tree);
    for (module, _, fault) in breaks {
        assert_fault(&faults, &[&format!("crates/bfd/src/{module}.rs:"), fault]);
    }
    assert_eq!(faults.len(), breaks.len(), "{faults:#?}");

    let faults = clippy::check(&tree);
    assert_fault(&faults, &["crates/bfd/src/b_lint.rs:3", "clippy::needless_return"]);
    assert!(!faults.iter().any(|fault| fault.contains("queue") || fault.contains("owner")), "{faults:#?}");
}

#[test]
fn registry_without_a_thread_of_the_code_or_of_the_architecture_is_noticed() {
    let tree = copy("registry", &["crates/runtime", "crates/tables"]);
    let document = "# A\n\n## Threads and queues\n\n| `rib` | routes |\n| `bfd`, `shard-N` | more |\n\n## B\n\n| `x` |\n";
    write(&tree, "ARCHITECTURE.md", document);
    assert_eq!(registry::check(&tree), [""; 0]);
    replace(&tree, "ARCHITECTURE.md", "`bfd`, `shard-N`", "`bfd`, `shards`");
    let breaks = [
        ("r_spawn", "pub fn f() { let _ = thread::spawn(\n    \"r-spawn\", || never()); }", "r-spawn"),
        ("r_urgent", "pub fn f() { let _ = thread::spawn_urgent(\"r-urgent\", 5, || never()); }", "r-urgent"),
        ("r_field", "pub const X: Y = Y { serve_thread: \"r-field\" };", "r-field"),
        ("r_test", "\n#[cfg(test)]\nmod tests { fn f() { let _ = thread::spawn(\"r-test\", never); } }", ""),
    ];
    for (module, code, _) in breaks {
        add_module(&tree, "tables", module, code);
    }
    let faults = registry::check(&tree);
    assert_fault(&faults, &["ARCHITECTURE.md", "the thread shards is not in"]);
    for (module, _, name) in breaks.iter().filter(|(_, _, name)| !name.is_empty()) {
        assert_fault(&faults, &[&format!("crates/tables/src/{module}.rs"), name]);
    }
    assert_eq!(faults.len(), breaks.len(), "{faults:#?}");
}

#[test]
fn clippy_crate_that_does_not_compile_is_noticed_by_all_that_count() {
    let mut tree = copy("broken", &["crates/prefix"]);
    tree.crates = vec!["prefix".into()];
    add_module(&tree, "prefix", "b_type", "pub fn f() -> u8 { \"\" }");
    write(&tree, "xtask/ratchet.txt", "queues 1 crates/prefix/src/b_type.rs\n");
    for check in [clippy::check, effects::check, panics::check, queues::check] {
        assert_fault(&check(&tree), &["crates/prefix/src/b_type.rs:2: mismatched types"]);
    }
    assert!(ratchet::lower(&tree).is_err(), "what was not compiled is not counted");
}

#[test]
fn sizes_file_of_too_many_lines_is_noticed() {
    let tree = copy("sizes", &["crates/prefix", "fuzz"]);
    assert_eq!(sizes::check(&tree), [""; 0]);
    write(&tree, "crates/prefix/src/long.rs", &"// a line\n".repeat(sizes::LINES_MAX));
    write(&tree, "crates/prefix/tests/longer.rs", &"// a line\n".repeat(sizes::LINES_MAX + 101));
    let faults = sizes::check(&tree);
    assert_fault(&faults, &["crates/prefix/tests/longer.rs: 1101 lines"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[test]
fn untested_unit_test_and_example_are_noticed() {
    let tree = copy("untested", &["crates/sim", "crates/text"]);
    assert_eq!(untested::check(&tree), [""; 0]);
    append(&tree, "crates/text/src/lib.rs", "#[cfg(test)]\nmod more {}\n");
    assert_eq!(untested::check(&tree), [""; 0], "its tests run");
    append(&tree, "crates/sim/src/stage.rs", "#[cfg(test)]\nmod tests {}\n");
    assert_fault(&untested::check(&tree), &["crates/sim/src/stage.rs", "never runs"]);
    append(&tree, "crates/text/src/lib.rs", "/// ```\n/// assert!(false);\n/// ```\nmod example {}\n");
    assert_fault(&untested::check(&tree), &["crates/text/src/lib.rs", "an example", "never runs"]);
}

#[test]
fn profiles_override_of_code_generation_is_noticed_wherever_it_is_written() {
    let tree = copy("profiles", &[".ci", ".cargo", "scripts"]);
    write(&tree, "Makefile", "test:\n\t@scripts/test\n");
    assert_eq!(profiles::check(&tree), [""; 0]);
    append(&tree, ".ci/run", "# CARGO_PROFILE_RELEASE_LTO=off in a comment\n");
    assert_eq!(profiles::check(&tree), [""; 0]);

    let breaks: &[(&str, &str, &str)] = &[
        (".ci/run", "export CARGO_PROFILE_RELEASE_LTO=off\n", "CARGO_PROFILE_RELEASE_LTO=off"),
        ("scripts/test", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo build\n", "CODEGEN_UNITS=16"),
        ("scripts/setup", "export RUSTFLAGS=\"-C target-cpu=native\"\n", "RUSTFLAGS="),
        ("scripts/run", "cargo build --config profile.release.lto=false\n", "--config"),
        ("scripts/more", "CARGO_INCREMENTAL=1 cargo build --release\n", "CARGO_INCREMENTAL=1"),
        ("Makefile", "\t@cargo build --profile quick\n", "--profile"),
        (".cargo/config.toml", "[profile.release]\nlto = false\n", "profile"),
    ];
    write(&tree, "scripts/more", "");
    for (file, text, _) in breaks {
        append(&tree, file, text);
    }
    let faults = profiles::check(&tree);
    for (file, _, fault) in breaks {
        assert_fault(&faults, &[&format!("{file}:"), fault]);
    }
}

#[test]
fn docs_path_that_is_not_there_is_noticed_however_it_is_written() {
    let tree = copy("docs", &["crates/prefix"]);
    let whole = "# A page\n\n## What it has\n\n`crates/prefix/src/shard.rs`, `crates/prefix/`, `/etc/x/y.md`, `a/b`,\n\
        `GET /v1/x.md`, [code](../crates/prefix), [here](#what-it-has), [there](page.md#a-page), <https://x.example/y.md>,\n\
        [out](https://x.example/z.md).\n```\n[no](link) `crates/none`\n```\n";
    write(&tree, "docs/page.md", whole);
    assert_eq!(docs::check(&tree), [""; 0]);

    let breaks: &[(&str, &str)] = &[
        ("`crates/prefix/src/none.rs`", "there is no crates/prefix/src/none.rs"),
        ("`crates/none/`", "there is no crates/none/"),
        ("| a | `prefix/src/shard.rs` |", "there is no prefix/src/shard.rs"),
        ("`crates/prefix/src/shard.rs` (`of`, `none_such`)", "crates/prefix/src/shard.rs has no none_such"),
        ("[a](none.md)", "the link to none.md leads to no file"),
        ("[a](../crates/prefix/src/none.rs)", "leads to no file"),
        ("[a](page.md#what-it-lacks)", "the link to page.md#what-it-lacks leads to no heading"),
        ("[a](#none)", "the link to #none leads to no heading"),
        ("[a\nb](none.md)", "the link to none.md leads to no file"),
    ];
    for (text, fault) in breaks {
        write(&tree, "docs/page.md", &format!("{whole}{text}\n"));
        let faults = docs::check(&tree);
        assert!(faults.len() == 1 && faults[0].contains(fault), "{text}: {faults:?}");
    }
}

#[test]
fn book_page_that_the_summary_lacks_or_names_twice_is_noticed() {
    let tree = copy("book", &["docs"]);
    assert_eq!(book::check(&tree), [""; 0]);
    write(&tree, "docs/lost.md", "# Lost\n");
    write(&tree, "docs/adr/9999-lost.md", "# 9999. Lost\n");
    write(&tree, "docs/deployments/lost.md", "# Lost\n");
    append(&tree, "docs/SUMMARY.md", "- [Again](tasks.md)\n");
    let faults = book::check(&tree);
    assert_fault(&faults, &["docs/lost.md: docs/SUMMARY.md does not name it"]);
    assert_fault(&faults, &["docs/adr/9999-lost.md"]);
    assert_fault(&faults, &["docs/deployments/lost.md"]);
    assert_fault(&faults, &["docs/tasks.md: docs/SUMMARY.md names it 2 times"]);
    assert_eq!(faults.len(), 4, "{faults:?}");
    append(&tree, "docs/adr/README.md", "[9999](9999-lost.md)\n");
    assert_eq!(book::check(&tree).len(), 3, "the folder's README.md names it");
}

#[test]
fn format_of_a_changed_file_is_noticed() {
    let tree = copy("format", &["crates/prefix"]);
    assert_eq!(format::check(&tree), [""; 0]);
    append(&tree, "crates/prefix/src/lib.rs", "fn  f( ) { }\n");
    assert_fault(&format::check(&tree), &["crates/prefix/src/lib.rs:"]);
}

#[test]
fn words_of_pages_styles_scripts_and_rules_are_noticed() {
    let tree = copy("words_of_pages", &[]);
    write(&tree, "xtask/ratchet.txt", "# A comment.\n");
    for file in
        ["page/index.html", "page/page.css", "page/page.js", "contrib/rules.yml", "contrib/rules.yaml"]
    {
        let path = write(&tree, file, "/* read anew */\n");
        assert_fault(&words::check(&tree), &["anew: 1 where xtask/ratchet.txt has 0", &format!("{file}:1")]);
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(words::check(&tree), [""; 0]);
}

#[test]
fn words_more_and_fewer_than_listed_are_noticed_and_lowered() {
    let tree = copy("words", &[]);
    let file = "docs/page.md";
    write(
        &tree,
        file,
        "The table is read anew.\n\nThe shard answers who\nasks, and calls `relieve_all()`.\n",
    );
    let list = "# A comment.\nwords 1 anew\nwords 1 who asks\nwords 1 relieve\n";
    let path = write(&tree, "xtask/ratchet.txt", list);
    assert_eq!(words::check(&tree), [""; 0]);

    append(&tree, file, "Anew.\n");
    assert_fault(&words::check(&tree), &["anew: 2 where xtask/ratchet.txt has 1", "docs/page.md:5"]);

    write(&tree, file, "Who asks: `GLANCE`.\n");
    let faults = words::check(&tree);
    assert_fault(&faults, &["anew: 0 where xtask/ratchet.txt has 1; lower it"]);
    assert_fault(&faults, &["relieve: 0 where xtask/ratchet.txt has 1; lower it"]);
    assert_fault(&faults, &["GLANCE: 1 where xtask/ratchet.txt has 0"]);
    assert_eq!(faults.len(), 3, "{faults:?}");

    // What is there and not listed is never written up.
    let lowered = fs::read_to_string(&path)
        .expect("the list")
        .replace("words 1 anew\nwords 1 who asks\nwords 1 relieve\n", "");
    let mut counted = copy("words_lowered", &["crates/prefix", "crates/wire"]);
    counted.crates = vec!["prefix".into(), "wire".into()];
    let registry = "panics 2 crates/wire/src/bgp/attribute/registry.rs clippy::indexing_slicing\n";
    let path = write(
        &counted,
        "xtask/ratchet.txt",
        &format!("{lowered}words 900 anew\n{registry}queues 3 crates/x.rs\n"),
    );
    let changed = ratchet::lower(&counted).expect("all is counted");
    assert_eq!(changed.len(), 2, "{changed:?}");
    let text = fs::read_to_string(path).expect("the list");
    assert!(text.starts_with("# A comment.\n") && text.contains(registry), "{text}");
    assert!(!text.contains("900") && !text.contains("crates/x.rs") && !text.contains("GLANCE"), "{text}");
}

#[test]
fn command_line_runs_one_check_and_refuses_an_unknown_one() {
    let xtask =
        |argument| Command::new(env!("CARGO_BIN_EXE_xtask")).arg(argument).output().expect("xtask runs");
    let one = xtask("graph");
    assert!(String::from_utf8_lossy(&one.stdout).ends_with("lint: 1 passed, 0 failed\n"), "{one:?}");
    let unknown = xtask("grahp");
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no check grahp"), "{unknown:?}");
}
