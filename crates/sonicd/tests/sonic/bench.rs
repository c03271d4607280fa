//! The daemons of one test: started as SONiC starts them, over a Redis of their own.

use crate::common::{Client, Server};
use clap::Parser;
use ribtide_runtime::thread::Stop;
use ribtide_sonicd::{Error, fpmsyncd, orchagent, syncd};
use ribtide_swss::Db;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Line<T: clap::Args> {
    #[command(flatten)]
    options: T,
}

pub(crate) fn parse<T: clap::Args>(words: &str) -> T {
    Line::<T>::try_parse_from(words.split_whitespace()).unwrap().options
}

/// Waits until `probe` gives something; what it gives, or a failure after a long time.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The daemons of one test.
pub(crate) struct Bench {
    pub(crate) server: Server,
    dir: tempfile::TempDir,
    running: Vec<(Stop, JoinHandle<Result<(), Error>>)>,
    syncds: usize,
}

impl Bench {
    pub(crate) fn new() -> Option<Bench> {
        let server = Server::start()?;
        let bench = Bench { server, dir: tempfile::tempdir().unwrap(), running: Vec::new(), syncds: 0 };
        let socket = bench.server.socket();
        let databases = [
            ("APPL_DB", 0, ":"),
            ("ASIC_DB", 1, ":"),
            ("COUNTERS_DB", 2, ":"),
            ("CONFIG_DB", 4, "|"),
            ("STATE_DB", 6, "|"),
            ("APPL_STATE_DB", 14, ":"),
        ]
        .map(|(name, id, separator)| {
            format!(r#""{name}": {{"id": {id}, "separator": "{separator}", "instance": "redis"}}"#)
        });
        let text = format!(
            r#"{{"INSTANCES": {{"redis": {{"hostname": "127.0.0.1", "port": 6379, "unix_socket_path": "{}"}}}},
                "DATABASES": {{ {} }}, "VERSION": "1.0"}}"#,
            socket.display(),
            databases.join(",")
        );
        std::fs::write(bench.path("database_config.json"), text).unwrap();
        Some(bench)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn config(&self) -> String {
        format!("--database-config {}", self.path("database_config.json").display())
    }

    /// Where the latest syncd answers.
    fn query_socket(&self) -> PathBuf {
        self.path(&format!("query{}", self.syncds))
    }

    /// Starts syncd; the returned number stops it.
    pub(crate) fn syncd(&mut self) -> usize {
        self.syncd_with("-s")
    }

    /// The same with these options.
    pub(crate) fn syncd_with(&mut self, more: &str) -> usize {
        self.syncds += 1;
        let words =
            format!("syncd -u -l {more} --query-socket {} {}", self.query_socket().display(), self.config());
        let options: syncd::Options = parse(&words);
        self.spawn(move |stop| syncd::run_until(&options, stop))
    }

    pub(crate) fn orchagent(&mut self, more: &str) -> usize {
        let words = format!(
            "orchagent -b 1024 -s -m 02:00:00:00:00:aa -d {} {more} {}",
            self.dir.path().display(),
            self.config()
        );
        let options: orchagent::Options = parse(&words);
        self.spawn(move |stop| orchagent::run_until(&options, stop))
    }

    /// Starts fpmsyncd on a port of its choice, and says which, and the number that stops it.
    pub(crate) fn fpmsyncd(&mut self) -> (SocketAddr, usize) {
        self.fpmsyncd_with("")
    }

    /// The same with more options.
    pub(crate) fn fpmsyncd_with(&mut self, more: &str) -> (SocketAddr, usize) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options: fpmsyncd::Options =
            parse(&format!("fpmsyncd --listen {free} --quiet 1 {more} {}", self.config()));
        (free, self.spawn(move |stop| fpmsyncd::run_until(&options, stop)))
    }

    fn spawn(&mut self, body: impl FnOnce(&Stop) -> Result<(), Error> + Send + 'static) -> usize {
        let stop = Stop::default();
        let theirs = stop.clone();
        self.running.push((stop, std::thread::spawn(move || body(&theirs))));
        self.running.len() - 1
    }

    /// Stops one daemon and waits for its end.
    pub(crate) fn stop(&mut self, which: usize) {
        self.running[which].0.stop();
        self.end(which).unwrap();
    }

    /// Waits until a daemon ends by itself.
    pub(crate) fn end(&mut self, which: usize) -> Result<(), Error> {
        let ended = (Stop::default(), std::thread::spawn(|| Ok(())));
        std::mem::replace(&mut self.running[which], ended).1.join().unwrap()
    }

    pub(crate) fn appl(&self) -> Client {
        self.server.client(Db::Appl)
    }

    /// Writes a row as any producer does.
    pub(crate) fn set(&self, table: &str, key: &str, fields: &str) {
        let mut client = self.appl();
        client.query(&format!("HSET _{table}:{key} {fields}"));
        client.query(&format!("SADD {table}_KEY_SET {key}"));
        client.query(&format!("PUBLISH {table}_CHANNEL@0 G"));
    }

    pub(crate) fn del(&self, table: &str, key: &str) {
        let mut client = self.appl();
        client.query(&format!("DEL _{table}:{key}"));
        client.query(&format!("SADD {table}_DEL_SET {key}"));
        client.query(&format!("SADD {table}_KEY_SET {key}"));
        client.query(&format!("PUBLISH {table}_CHANNEL@0 G"));
    }

    /// Two ports with a subnet and a neighbour each.
    pub(crate) fn ports(&self) {
        for (n, lanes) in [(0, "1,2,3,4"), (4, "5,6,7,8")] {
            self.set(
                "PORT_TABLE",
                &format!("Ethernet{n}"),
                &format!("lanes {lanes} speed 40000 admin_status up mtu 9100"),
            );
        }
        self.set("PORT_TABLE", "PortConfigDone", "count 2");
        self.set("PORT_TABLE", "PortInitDone", "lanes 0");
        for n in [0, 4] {
            self.set("INTF_TABLE", &format!("Ethernet{n}"), "NULL NULL");
            self.set("INTF_TABLE", &format!("Ethernet{n}:10.0.{n}.0/31"), "scope global family IPv4");
            self.set(
                "NEIGH_TABLE",
                &format!("Ethernet{n}:10.0.{n}.1"),
                "neigh 02:00:00:00:00:01 family IPv4",
            );
        }
    }

    /// A question to syncd's virtual switch.
    pub(crate) fn query(&self, question: &str) -> Value {
        let mut stream = eventually("syncd's socket", || UnixStream::connect(self.query_socket()).ok());
        writeln!(stream, "{question}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until packets to `addr` leave through exactly these gateways.
    pub(crate) fn forwards(&self, addr: &str, gateways: &[&str]) {
        eventually(&format!("{addr} through {gateways:?}"), || {
            let answer = self.query(&format!("lookup {addr}"));
            let hops = answer["hops"].as_array().cloned().unwrap_or_default();
            let mut found: Vec<String> = hops
                .iter()
                .filter(|hop| !hop["mac"].is_null())
                .filter_map(|hop| Some(hop["gateway"].as_str()?.to_owned()))
                .collect();
            found.sort();
            (found == gateways).then_some(())
        });
    }

    /// The ASIC_DB row of a route, once it is there.
    pub(crate) fn asic_route(&self, dest: &str) -> (String, String) {
        let mut client = self.server.client(Db::Asic);
        eventually(&format!("the row of {dest}"), || {
            let key = client.keys().into_iter().find(|key| {
                key.starts_with("ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:")
                    && key.contains(&format!("\"dest\":\"{dest}\""))
            })?;
            Some((client.hash(&key), key))
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (stop, _) in &self.running {
            stop.stop();
        }
    }
}
