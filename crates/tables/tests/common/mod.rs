//! A Redis server for one test, on a Unix socket in a directory of its own.

use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_tables::{Address, Connection, Databases, Reply};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server; it ends with this.
pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
    /// Every database on it.
    pub(crate) databases: Databases,
    /// Ends what was opened on it.
    pub(crate) stop: Stop,
}

impl Server {
    /// A fresh server, or `None` with a line printed where redis-server is not installed.
    #[allow(dead_code)]
    pub(crate) fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    /// The same with more options.
    pub(crate) fn start_with(options: &[&str]) -> Option<Server> {
        let dir = tempfile::tempdir().unwrap();
        let Some(child) = spawn(&dir, options) else {
            eprintln!("skipped: redis-server is not installed");
            return None;
        };
        let databases = Databases::one_server(Address::Unix(dir.path().join("redis.sock")));
        let server = Server { child, dir, databases, stop: Stop::default() };
        server.wait();
        Some(server)
    }

    /// The server's socket.
    #[allow(dead_code)]
    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Connection::open(self.databases.get(Db::Appl), &self.stop).is_err() {
            assert!(Instant::now() < deadline, "redis-server did not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends the server a signal.
    #[allow(dead_code)]
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Kills the server and starts an empty one in its place.
    #[allow(dead_code)]
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.dir, &[]).unwrap();
        self.wait();
    }

    /// A connection for plain commands.
    #[allow(dead_code)]
    pub(crate) fn client(&self, db: Db) -> Client {
        Client(Connection::open(self.databases.get(db), &self.stop).unwrap())
    }
}

fn spawn(dir: &tempfile::TempDir, options: &[&str]) -> Option<Child> {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
        .arg(dir.path())
        .arg("--unixsocket")
        .arg(dir.path().join("redis.sock"))
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plain Redis commands, as any client would send them.
pub(crate) struct Client(Connection);

#[allow(dead_code)]
impl Client {
    /// One command, words separated by spaces.
    pub(crate) fn query(&mut self, command: &str) -> Reply {
        self.0.query(&command.split(' ').collect::<Vec<_>>()).unwrap()
    }

    /// A hash as `field=value` words, sorted.
    pub(crate) fn hash(&mut self, key: &str) -> String {
        let mut pairs = self.0.query(&["HGETALL", key]).unwrap().into_pairs();
        pairs.sort();
        pairs.into_iter().map(|(field, value)| format!("{field}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// All keys of the database, sorted.
    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys = self.0.query(&["KEYS", "*"]).unwrap().into_texts();
        keys.sort();
        keys
    }
}
