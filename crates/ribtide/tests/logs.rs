//! The log of the real binary: its settings, and a reader that stands still.

use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test fails; nothing waits that long when all is well.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

fn ribtide() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ribtide"));
    command.env_remove("RIBTIDE_LOG").env_remove("JOURNAL_STREAM");
    command
}

fn until(what: &str, met: impl Fn() -> bool) {
    let begin = Instant::now();
    while !met() {
        assert!(begin.elapsed() < TEST_TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A router without neighbours, and its folder.
struct Router {
    process: Child,
    folder: tempfile::TempDir,
}

impl Router {
    fn start(tables: &str, change: impl FnOnce(&mut Command, &Path)) -> Router {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), tables);
        let mut command = ribtide();
        command.args(["run", "-c"]).arg(folder.path().join("ribtide.toml"));
        command.stderr(File::create(folder.path().join("stderr")).unwrap());
        change(&mut command, folder.path());
        let process = command.spawn().unwrap();
        let router = Router { process, folder };
        until("the router answers", || router.run(&["show", "bgp", "summary"]).status.success());
        router
    }

    fn run(&self, words: &[&str]) -> Output {
        ribtide().args(words).arg("--socket").arg(self.folder.path().join("api.sock")).output().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// Changes something, which a line with level info and target api reports.
    fn change(&self) {
        for mode in ["epoch", "dependency"] {
            let output = self.run(&["config", "fib", "nexthop-cache", mode]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn stop(&mut self) {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        let begin = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < TEST_TIMEOUT, "the router does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write(folder: &Path, tables: &str) -> PathBuf {
    let file = folder.join("ribtide.toml");
    let socket = folder.join("api.sock");
    let text = format!(
        "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\nlisten = []\nshards = 1\nupdate-threads = 1\n\
         [fib]\n[api]\nsocket = \"{}\"\n{tables}",
        socket.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn log_default_is_text_at_info_with_time_level_and_target() {
    let mut router = Router::start("", |_, _| {});
    router.change();
    router.stop();
    let log = router.log();
    for line in log.lines() {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z') && time.contains('T'), "{line}");
        let (level, rest) = rest.trim_start().split_once(' ').unwrap();
        assert!(["ERROR", "WARN", "INFO"].contains(&level), "{line}");
        assert!(rest.split_once(": ").is_some_and(|(target, _)| !target.contains(' ')), "{line}");
    }
    assert!(log.contains(" INFO router: the router is running; "), "{log}");
    assert!(log.contains(" INFO api: a client changed the router: "), "{log}");
    assert!(log.contains(" request=\"POST /v1/"), "{log}");
}

#[test]
fn log_settings_of_the_file_are_obeyed_and_a_reload_changes_them() {
    let router = Router::start("[log]\nlevel = \"warn\"\nformat = \"json\"\n", |_, _| {});
    router.change();
    // [fib] without a dataplane.
    let lines: Vec<Value> = router.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line["level"] == "WARN"), "{lines:?}");
    assert!(lines.iter().any(|line| line["target"] == "router" && line["message"].is_string()), "{lines:?}");
    write(router.folder.path(), "[log]\nlevel = \"warn,api=info\"\n");
    let reloaded = String::from_utf8(router.run(&["reload"]).stdout).unwrap();
    assert!(reloaded.contains("the log has other settings"), "{reloaded}");
    router.change();
    until("a line of the API is there", || router.log().contains(" INFO api: "));
    assert!(router.run(&["reload"]).status.success());
    let line = " INFO api: a client's request changed nothing: ";
    until("a reload that changes nothing says so", || router.log().contains(line));
    write(router.folder.path(), "[log]\nlevel = \"loud\"\n");
    let refused = String::from_utf8(router.run(&["reload"]).stderr).unwrap();
    assert!(
        refused.contains(
            "\"loud\" is neither a level (off, error, warn, info, debug, trace) nor a target (api, "
        ),
        "{refused}"
    );
}

#[test]
fn log_variable_counts_before_the_file_and_before_a_reload() {
    let mut router = Router::start("[log]\nlevel = \"debug\"\n", |command, _| {
        command.env("RIBTIDE_LOG", "off");
    });
    assert!(router.run(&["reload"]).status.success());
    router.change();
    router.stop();
    assert_eq!(router.log(), "");
}

#[test]
fn log_under_journald_has_priorities() {
    let mut router = Router::start("", |command, folder| {
        let file = std::fs::metadata(folder.join("stderr")).unwrap();
        command.env("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino()));
    });
    router.stop();
    let log = router.log();
    assert!(log.lines().all(|line| line.starts_with("<4>20") || line.starts_with("<6>20")), "{log}");
    assert!(log.lines().count() > 0);
}

#[test]
fn log_reader_stands_still_router_works_and_stops() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    // Keeps the pipe full, whatever its size, until the reader is gone.
    let fill = std::thread::spawn(move || while filler.write_all(&[b'\n'; 4096]).is_ok() {});
    // Something is in it.
    reader.read_exact(&mut [0]).unwrap();
    let mut router = Router::start("", |command, _| {
        command.stderr(writer);
    });
    (0..5).for_each(|_| router.change());
    assert!(router.run(&["reload"]).status.success());
    router.stop();
    drop(reader);
    fill.join().unwrap();
}

/// The exit status and standard error of a command that ends by itself.
fn status(command: &mut Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn daemon_log_options_are_obeyed_and_unknown_values_refused() {
    let fpmsyncd = |options: &[&str]| {
        status(ribtide().args(["fpmsyncd", "--database-config", "/nonexistent.json"]).args(options))
    };
    let (code, text) = fpmsyncd(&[]);
    assert!(
        code == Some(2) && text.contains(" ERROR fpmsyncd: ") && text.contains("/nonexistent.json"),
        "{text}"
    );
    let (_, json) = fpmsyncd(&["--log-format", "json"]);
    let line: Value = serde_json::from_str(json.trim_end()).unwrap();
    assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"fpmsyncd".into()));
    assert_eq!(fpmsyncd(&["--log-level", "off"]), (Some(2), String::new()));
    assert_eq!(fpmsyncd(&["--log-level", "info,fpmsyncd=off"]), (Some(2), String::new()));
    for (options, says) in [
        (["--log-level", "loud"], "\"loud\" is neither a level"),
        (["--log-level", "fpm=loud"], "\"fpm=loud\": "),
        (["--log-format", "xml"], "\"xml\" is no format of the log"),
    ] {
        let (code, refused) = fpmsyncd(&options);
        assert!(code == Some(2) && refused.contains(says), "{refused}");
    }
}
