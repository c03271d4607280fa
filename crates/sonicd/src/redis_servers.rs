//! `ribtide redis up`: runs the Redis servers of a `database_config.json`, or of a generated one
//! with one server or SONiC's several, for hosts without Redis.

use super::Error;
use clap::{Args, Subcommand};
use ribtide_runtime::log::target;
use ribtide_tables::{DEFAULT_CONFIG, Databases, Server};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Timeout of a reply.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of checks of the servers.
const SERVERS_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What to do with Redis.
#[derive(Subcommand, Clone, Debug)]
pub enum Redis {
    /// Run the Redis servers that a configuration names and that do not run yet, until a signal; they keep nothing on disk
    Up(Options),
}

/// Which servers.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// SONiC's database_config.json; /var/run/redis/sonic-db/database_config.json if nothing is said
    #[arg(long, value_name = "FILE")]
    pub database_config: Option<PathBuf>,
    /// Write a configuration into this directory first, with all sockets there and no ports
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "database_config")]
    pub dir: Option<PathBuf>,
    /// With --dir: several servers, as SONiC has them with /etc/sonic/enable_multidb
    #[arg(long, requires = "dir")]
    pub multi_db: bool,
    /// With --dir: servers for so many ASICs besides, each in a directory of its own, and a database_global.json; a daemon
    /// with NAMESPACE_ID=N in its environment finds those of asicN by it
    #[arg(long, value_name = "N", requires = "dir", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub asics: Option<u16>,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// One sentence: no redis-server, a server that does not start or that ended.
pub fn run(redis: Redis) -> Result<(), Error> {
    let Redis::Up(options) = redis;
    let file = match &options.dir {
        Some(dir) => match options.asics {
            None => write(dir, options.multi_db)?,
            Some(asics) => write_global(dir, options.multi_db, asics)?,
        },
        None => options.database_config.clone().unwrap_or_else(|| DEFAULT_CONFIG.into()),
    };
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ending.clone())
            .map_err(|e| Error::new(format!("cannot listen for signals: {e}")))?;
    }
    let mut children = Vec::new();
    for server in Databases::servers(&file)? {
        if server.is_reachable() {
            tracing::info!(target: target::REDIS, server = server.name, "the server runs already");
        } else {
            children.push(Running::start(server)?);
        }
    }
    for child in &mut children {
        child.wait()?;
    }
    let path = file.display();
    tracing::info!(target: target::REDIS, "ready; the daemons find the servers with --database-config {path}");
    while !ending.load(Relaxed) {
        std::thread::sleep(SERVERS_POLL_INTERVAL);
        children.iter_mut().try_for_each(Running::check)?;
    }
    Ok(())
}

/// A started server, which ends with this value.
struct Running {
    server: Server,
    child: Child,
}

impl Running {
    fn start(server: Server) -> Result<Running, Error> {
        let mut command = Command::new("redis-server");
        command.args([
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            // Without active rehashing, only commands move entries of a growing table, so an idle
            // server uses no CPU. Otherwise Redis moves entries for 1% of its idle time, ten
            // seconds after a full table.
            "--activerehashing",
            "no",
            "--dir",
            "/",
            "--bind",
            &server.host,
        ]);
        // Port 0 means none.
        command.args(["--port", &server.port.unwrap_or(0).to_string()]);
        if let Some(socket) = &server.socket {
            if let Some(folder) = socket.parent() {
                std::fs::create_dir_all(folder)
                    .map_err(|e| Error::new(format!("cannot make {}: {e}", folder.display())))?;
            }
            command.arg("--unixsocket").arg(socket).args(["--unixsocketperm", "770"]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|e| {
            Error::new(format!("redis-server does not start: {e}; install it: apt-get install redis-server"))
        })?;
        tracing::info!(target: target::REDIS, server = server.name, "the server starts");
        Ok(Running { server, child })
    }

    fn wait(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        while !self.server.is_reachable() {
            self.check()?;
            if begin.elapsed() > SERVER_START_TIMEOUT {
                return Err(Error::new(format!("{} does not answer", self.server.name)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Error::new(format!(
                "{} ended; see whether something else has its port or socket",
                self.server.name
            ))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a configuration for the host and one for each ASIC; returns the path of the global one.
fn write_global(dir: &Path, multi: bool, asics: u16) -> Result<PathBuf, Error> {
    let host = write(dir, multi)?;
    let mut includes = vec![json!({ "include": "database_config.json" })];
    for n in 0..asics {
        let namespace = format!("asic{n}");
        write(&dir.join(&namespace), multi)?;
        includes
            .push(json!({ "namespace": namespace, "include": format!("{namespace}/database_config.json") }));
    }
    let file = host.with_file_name("database_global.json");
    let text = json!({ "INCLUDES": includes, "VERSION": "1.0" });
    std::fs::write(&file, format!("{text:#}\n"))
        .map_err(|e| Error::new(format!("cannot write {}: {e}", file.display())))?;
    Ok(file)
}

/// Writes a configuration with SONiC's databases; returns its path.
pub(super) fn write(dir: &Path, multi: bool) -> Result<PathBuf, Error> {
    let dir = std::path::absolute(dir).map_err(|e| Error::new(format!("{}: {e}", dir.display())))?;
    // SONiC's template for several servers; other databases are on the first.
    let on = |name: &str| match name {
        "APPL_DB" if multi => "redis1",
        "ASIC_DB" if multi => "redis2",
        "COUNTERS_DB" | "PFC_WD_DB" | "FLEX_COUNTER_DB" if multi => "redis3",
        _ => "redis",
    };
    let databases = [
        ("APPL_DB", 0, ":"),
        ("ASIC_DB", 1, ":"),
        ("COUNTERS_DB", 2, ":"),
        ("LOGLEVEL_DB", 3, ":"),
        ("CONFIG_DB", 4, "|"),
        ("PFC_WD_DB", 5, ":"),
        ("FLEX_COUNTER_DB", 5, ":"),
        ("STATE_DB", 6, "|"),
        ("APPL_STATE_DB", 14, ":"),
    ];
    let databases: serde_json::Map<String, serde_json::Value> = databases
        .into_iter()
        .map(|(name, id, separator)| {
            (name.to_owned(), json!({ "id": id, "separator": separator, "instance": on(name) }))
        })
        .collect();
    let names: &[&str] = if multi { &["redis", "redis1", "redis2", "redis3"] } else { &["redis"] };
    let instances: serde_json::Map<String, serde_json::Value> = names
        .iter()
        .map(|name| {
            let socket = dir.join(format!("{name}.sock"));
            ((*name).to_owned(), json!({ "hostname": "127.0.0.1", "port": 0, "unix_socket_path": socket }))
        })
        .collect();
    let text = json!({ "INSTANCES": instances, "DATABASES": databases, "VERSION": "1.0" });
    let file = dir.join("database_config.json");
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&file, format!("{text:#}\n")))
        .map_err(|e| Error::new(format!("cannot write {}: {e}", file.display())))?;
    Ok(file)
}
