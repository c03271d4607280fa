//! `scripts/test` prints one line for a phase that passed, and the whole output of a test that failed. A cargo that
//! prints what the test says takes the place of the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What cargo prints where all tests pass.
const PASSED: &str = "   Compiling ribtide-rib v0.1.0 (/x)\n    Finished `test` profile in 3s\n     \
    Running unittests src/lib.rs (target/debug/deps/a-1)\n\nrunning 3 tests\ntest one ... ok\ntest two ... ok\n\
    test three ... ignored, takes long\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\n";

/// What it prints where one fails, between binaries that pass.
const FAILED: &str = "     Running tests/b.rs (target/debug/deps/b-2)\n\nrunning 2 tests\ntest fine ... ok\n\
    test broken ... FAILED\n\nfailures:\n\n---- broken stdout ----\n\nthread 'broken' panicked at b.rs:1:\nleft: 1\n\n\
    right: 2\n\n\nfailures:\n    broken\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\n\
    error: test failed, to rerun pass `-p b --test b`\n     Running tests/c.rs (target/debug/deps/c-3)\n\nrunning 1 test\n\
    test last ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\n\
    error: 1 target failed:\n    `-p b --test b`\n";

/// What it prints where a binary dies in the middle of a test.
const ABORTED: &str = "     Running tests/d.rs (target/debug/deps/d-4)\n\nrunning 2 tests\ntest fine ... ok\n\
    memory allocation of 8 bytes failed\nerror: test failed, to rerun pass `-p d --test d`\n\nCaused by:\n  \
    process didn't exit successfully: `d-4` (signal: 6, SIGABRT: process abort signal)\n";

/// Runs `scripts/test rust` where unit tests print the first text, integration tests the second and tests of the
/// documentation nothing. Returns the lines that it prints, with `S` for seconds, and whether it succeeded.
fn run(name: &str, unit: &str, integration: &str) -> (Vec<String>, bool) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let bin = home.join(".cargo/bin");
    fs::create_dir_all(&bin).expect("a folder for cargo");
    let cargo = "#!/bin/sh\ncase \"$*\" in\n*--lib*) kind=unit ;;\n*--doc*) exit 0 ;;\n*) kind=integration ;;\nesac\n\
        cat \"$HOME/$kind\"\n! grep -q ^error \"$HOME/$kind\"\n";
    for (file, text) in [("unit", unit), ("integration", integration), (".cargo/bin/cargo", cargo)] {
        fs::write(home.join(file), text).expect("a file");
    }
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).expect("cargo can be run");
    let output = Command::new(root.join("scripts/test"))
        .arg("rust")
        .env("HOME", &home)
        .env("CARGO_TARGET_DIR", home.join("target"))
        .output()
        .expect("scripts/test runs");
    let lines = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| match line.rsplit_once(", ") {
            Some((counts, seconds)) if seconds.ends_with(" s") => format!("{counts}, S"),
            _ => line.to_owned(),
        })
        .collect();
    (lines, output.status.success())
}

#[test]
fn report_of_passed_tests_is_a_line_for_each_phase() {
    let expected = [
        "unit tests           2 passed, 0 failed, 1 skipped, S",
        "integration tests    2 passed, 0 failed, 1 skipped, S",
        "documentation tests  0 passed, 0 failed, S",
        "4 passed, 0 failed, 2 skipped",
    ];
    let (lines, succeeded) = run("passed", PASSED, PASSED);
    assert_eq!(lines, expected);
    assert!(succeeded);
}

#[test]
fn report_of_a_failed_test_has_all_of_its_output_and_none_of_others() {
    let (lines, succeeded) = run("failed", PASSED, &format!("{PASSED}{FAILED}"));
    let text = lines.join("\n");
    assert!(!succeeded);
    assert!(text.contains("integration tests    4 passed, 1 failed, 1 skipped, S"), "{text}");
    assert!(
        text.contains(
            "---- broken stdout ----\n\nthread 'broken' panicked at b.rs:1:\nleft: 1\n\nright: 2\n"
        ),
        "{text}"
    );
    assert!(text.contains("Running tests/b.rs") && text.contains("`-p b --test b`"), "{text}");
    for passed in ["... ok", "tests/c.rs", "unittests", "Compiling"] {
        assert!(!text.contains(passed), "{passed}: {text}");
    }
    assert!(text.ends_with("6 passed, 1 failed, 2 skipped"), "{text}");
}

#[test]
fn report_of_a_binary_that_died_counts_a_failure_and_has_its_output() {
    let (lines, succeeded) = run("aborted", ABORTED, PASSED);
    let text = lines.join("\n");
    assert!(!succeeded);
    assert!(text.contains("unit tests           0 passed, 1 failed, S"), "{text}");
    assert!(text.contains("memory allocation of 8 bytes failed") && text.contains("SIGABRT"), "{text}");
    assert!(text.ends_with("2 passed, 1 failed, 1 skipped"), "{text}");
}

#[test]
fn report_of_code_that_does_not_compile_has_the_error() {
    let error = "   Compiling x v0.1.0 (/x)\nerror[E0308]: mismatched types\n --> x.rs:1:2\n\nerror: could not compile `x`\n";
    let (lines, succeeded) = run("error", error, PASSED);
    let text = lines.join("\n");
    assert!(!succeeded);
    assert!(
        text.contains("error[E0308]: mismatched types\n --> x.rs:1:2\n\nerror: could not compile `x`"),
        "{text}"
    );
    assert!(text.ends_with("2 passed, 1 failed, 1 skipped"), "{text}");
}
