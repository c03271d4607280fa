//! How the real binary ends: the exit status that a program matches on, and the sentence for people, which says what is
//! wrong, where, and what to do.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user without privileges.
const UNPRIVILEGED: u32 = 65534;

/// The program, in a folder that every user may read.
fn ribtide(folder: &Path) -> Command {
    let program = folder.join("ribtide");
    if !program.exists() {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_ribtide"), &program).unwrap();
    }
    unprivileged(Command::new(program))
}

/// The command without privileges.
fn unprivileged(mut command: Command) -> Command {
    command.env_remove("RIBTIDE_LOG").env_remove("JOURNAL_STREAM").stdin(Stdio::null());
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

/// A configuration of the router; `bgp`, `fib` and `more` are lines of its tables.
fn config(folder: &Path, name: &str, [bgp, fib, more]: [&str; 3]) -> PathBuf {
    let (file, socket) = (folder.join(name), folder.join("api.sock"));
    let text = format!(
        "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\nshards = 1\nupdate-threads = 1\n{bgp}\n\
         [fib]\n{fib}\n[api]\nsocket = \"{}\"\n{more}\n",
        socket.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn exit_status_and_sentence_of_each_failure() {
    const SILENT: &str = "listen = []";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = &taken.local_addr().unwrap().to_string();
    let redis = folder.join("redis.sock");
    let redis = redis.to_str().unwrap();
    let database = serde_json::json!({ "id": 0, "separator": ":", "instance": "redis" });
    let names = ["APPL_DB", "ASIC_DB", "COUNTERS_DB", "CONFIG_DB", "STATE_DB", "APPL_STATE_DB"];
    let databases: serde_json::Map<_, _> =
        names.iter().map(|db| ((*db).to_owned(), database.clone())).collect();
    let instance = serde_json::json!({ "hostname": "127.0.0.1", "port": 1, "unix_socket_path": redis });
    let databases = serde_json::json!(
        { "INSTANCES": { "redis": instance }, "DATABASES": databases, "VERSION": "1.0" }
    );
    let config_json = folder.join("database_config.json");
    std::fs::write(&config_json, databases.to_string()).unwrap();
    let run = |name: &str, tables: [&str; 3]| {
        let mut command = ribtide(folder);
        command.args(["run", "-c"]).arg(config(folder, name, tables));
        command
    };
    let words = |words: &[&str]| {
        let mut command = ribtide(folder);
        command.args(words);
        command
    };
    let sonic = |daemon: &str| words(&[daemon, "--database-config", config_json.to_str().unwrap()]);
    let mut loud = run("loud-variable.toml", [SILENT, "", ""]);
    loud.env("RIBTIDE_LOG", "loud");
    let stall_exit = folder.join("stall-exit.toml");
    std::fs::write(&stall_exit, "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\nstall-exit = 20\n")
        .unwrap();
    let mut no_thread = Command::new("bash");
    let file = config(folder, "no-thread.toml", [SILENT, "", ""]);
    let script =
        format!("ulimit -u 0 && exec {} run -c {}", folder.join("ribtide").display(), file.display());
    no_thread.args(["-c", &script]);
    let cases: Vec<(Command, i32, [&str; 3])> = vec![
        (
            words(&["show", "bgp", "summary", "--socket", "/nonexistent"]),
            1,
            ["router", "/nonexistent", "--socket"],
        ),
        (words(&["run", "-c", "/nonexistent.toml"]), 2, ["cannot be read", "/nonexistent.toml", "-c FILE"]),
        (
            run("loud.toml", [SILENT, "", "[log]\nlevel = \"loud\""]),
            2,
            ["\"loud\" is neither a level", "loud.toml:13:9", "write a level"],
        ),
        (loud, 2, ["\"loud\" is neither a level", "RIBTIDE_LOG=\"loud\"", "write a level"]),
        (
            words(&["fpmsyncd", "--pipeline", "0"]),
            2,
            [" ERROR fpmsyncd: ", "--pipeline 0", "give a number from 1 up"],
        ),
        (
            words(&["run", "-c", stall_exit.to_str().unwrap()]),
            2,
            ["only after 30 s", "stall-exit.toml:4:14", "write at least 30, or 0 for never"],
        ),
        (
            words(&["syncd", "--database-config", config_json.to_str().unwrap(), "--stall-exit", "20"]),
            2,
            [" ERROR syncd: ", "--stall-exit 20: ", "write at least 30, or 0 for never"],
        ),
        (
            words(&["syncd", "--database-config", "/nonexistent.json"]),
            2,
            [" ERROR syncd: ", "/nonexistent.json", "--database-config"],
        ),
        (
            run("kernel.toml", [SILENT, "kernel = { table = 4242 }", ""]),
            3,
            [" ERROR router: ", "CAP_NET_ADMIN", "or set fib.kernel = false"],
        ),
        (
            run("http.toml", [SILENT, "", &format!("http = \"{taken}\"")]),
            4,
            ["for the API: Address already in use", taken, "set api.http to a free address"],
        ),
        (
            run("bgp.toml", [&format!("listen = [\"{taken}\"]"), "", ""]),
            4,
            ["BGP cannot listen on ", taken, "or set bgp.listen to another port"],
        ),
        (sonic("fpmsyncd"), 5, [" ERROR fpmsyncd: Redis for ", redis, "start redis-server"]),
        (sonic("orchagent"), 5, [" ERROR orchagent: Redis for ", redis, "start redis-server"]),
        (sonic("syncd"), 5, [" ERROR syncd: Redis for ", redis, "start redis-server"]),
        (
            unprivileged(no_thread),
            8,
            ["no thread", "for the log", "raise the limit of processes (ulimit -u)"],
        ),
    ];
    for (mut command, status, parts) in cases {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{command:?}: no \"{part}\" in {text}");
        }
    }
}

/// `check` and `run` refuse keys that this kernel cannot have, and show no secret.
#[test]
fn tcp_ao_without_a_kernel_that_has_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let group = "listen = []\n[bgp.group.up]\ntype = \"internal\"\nneighbors = [\"192.0.2.1\"]\n\
                 tcp-ao = { keys = [{ id = 1, secret = \"topsecret\" }] }";
    let file = config(folder.path(), "ao.toml", [group, "", ""]);
    for command in ["check", "run"] {
        let mut program = ribtide(folder.path());
        // `check` comes first: a kernel with TCP-AO would run it.
        let output = program.args([command, "-c"]).arg(&file).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("topsecret"), "{said}");
        if command == "check" && output.status.success() {
            return println!("skipped: the kernel has TCP-AO");
        }
        assert!(!output.status.success());
        assert!(
            said.contains("192.0.2.1 has tcp-ao keys, and the kernel has no TCP-AO (needs Linux 6.7"),
            "{said}"
        );
    }
}
