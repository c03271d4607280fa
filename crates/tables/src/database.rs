//! The places of SONiC's databases: `database_config.json`, or SONiC's defaults without that file.
//!
//! With several ASICs, each is a namespace with its own servers, and `database_global.json` names
//! the file of each. SONiC's containers have the namespace of a daemon in their environment.

use crate::TableError;
use ribtide_swss::Db;
use serde_json::Value;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// The path at which SONiC's database container writes the configuration.
pub const DEFAULT_CONFIG: &str = "/var/run/redis/sonic-db/database_config.json";
/// The socket of SONiC's first Redis server.
const DEFAULT_SOCKET: &str = "/var/run/redis/redis.sock";
const DEFAULT_PORT: u16 = 6379;

/// SONiC's environment variable for the number of a daemon's ASIC.
pub const NAMESPACE_ID: &str = "NAMESPACE_ID";

/// The number in [`NAMESPACE_ID`], if there is one.
pub fn namespace_id() -> Option<u16> {
    std::env::var(NAMESPACE_ID).ok().and_then(|id| id.trim().parse().ok())
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// One database: its server, its number there, and its separator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Database {
    /// Its name in SONiC.
    pub db: Db,
    /// The number for `SELECT`; also the suffix of its channels, since channels belong to a server.
    pub id: u32,
    /// Between table and key: `:` or `|`.
    pub separator: String,
    /// The server.
    pub address: Address,
    /// The name that connections give themselves, as `CLIENT LIST` shows it.
    pub client: Option<Arc<str>>,
}

impl Database {
    /// Appends the beginning of the Redis keys of `table`.
    pub fn write_key_prefix(&self, table: &str, out: &mut String) {
        out.push_str(table);
        out.push_str(&self.separator);
    }

    /// The Redis key of `key` in `table`.
    pub fn key(&self, table: &str, key: &str) -> String {
        format!("{table}{}{key}", self.separator)
    }
}

/// A Redis server that a configuration names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its name, such as `redis1`.
    pub name: String,
    /// Its address.
    pub host: String,
    /// Its port, if it has one.
    pub port: Option<u16>,
    /// Its Unix socket, if it has one.
    pub socket: Option<PathBuf>,
}

impl Server {
    /// Whether the server accepts a connection.
    pub fn is_reachable(&self) -> bool {
        match (&self.socket, self.port) {
            (Some(socket), _) => std::os::unix::net::UnixStream::connect(socket).is_ok(),
            (None, Some(port)) => std::net::TcpStream::connect((self.host.as_str(), port)).is_ok(),
            (None, None) => false,
        }
    }
}

/// All databases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Databases(Vec<Database>);

const ALL: [Db; 7] =
    [Db::Appl, Db::Asic, Db::Counters, Db::FlexCounter, Db::Config, Db::State, Db::ApplState];

impl Databases {
    /// Reads `file`; without one, SONiC's default file. Without that too, the databases are on one
    /// server at SONiC's default socket, or at port 6379 of this host.
    ///
    /// With a `database_global.json`, the databases are those of namespace `asicN` by
    /// [`NAMESPACE_ID`], or the host's without it.
    ///
    /// # Errors
    /// [`TableError::Config`] when a file is named or present but cannot be used.
    pub fn load(file: Option<&Path>) -> Result<Databases, TableError> {
        Databases::load_of(file, namespace_id().map(|id| format!("asic{id}")).as_deref())
    }

    /// The databases of every namespace `asicN` of a `database_global.json`, each with its name.
    /// For any other file, and with [`NAMESPACE_ID`], the result of [`Databases::load`].
    ///
    /// # Errors
    /// As [`Databases::load`].
    pub fn of_asics(file: Option<&Path>) -> Result<Vec<(Option<String>, Databases)>, TableError> {
        let path = file.unwrap_or(Path::new(DEFAULT_CONFIG));
        let text = std::fs::read_to_string(path).ok().filter(|_| namespace_id().is_none());
        let included = text.and_then(|text| includes(path, &text).ok().flatten()).unwrap_or_default();
        let asics: Vec<_> = included.into_iter().filter(|(name, _)| name.is_some()).collect();
        if asics.is_empty() {
            return Ok(vec![(None, Databases::load(file)?)]);
        }
        let load = |(name, file): Included| Ok((name, Databases::load_of(Some(&file), None)?));
        asics.into_iter().map(load).collect()
    }

    /// The database called `name` in `database_config.json`, for one that is none of SONiC's own.
    /// It is used as `db` is: the same tables and separator.
    ///
    /// # Errors
    /// [`TableError::Config`] when the file cannot be read, or has no such database.
    pub fn named(file: Option<&Path>, name: &str, db: Db) -> Result<Database, TableError> {
        let path = file.unwrap_or(Path::new(DEFAULT_CONFIG));
        let bad = |cause: String| TableError::Config { file: path.into(), cause };
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let root: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        place(&root, name, db).map_err(bad)
    }

    /// As [`Databases::load`], for this namespace.
    fn load_of(file: Option<&Path>, namespace: Option<&str>) -> Result<Databases, TableError> {
        let path = file.unwrap_or(Path::new(DEFAULT_CONFIG));
        let bad = |cause: String| TableError::Config { file: path.into(), cause };
        match std::fs::read_to_string(path) {
            Ok(text) => match includes(path, &text).map_err(bad)? {
                None => Databases::parse(&text).map_err(bad),
                Some(includes) => {
                    let included = includes.into_iter().find(|(name, _)| name.as_deref() == namespace);
                    let missing = || match namespace {
                        Some(name) => {
                            format!("it includes no file of the namespace {name}, which NAMESPACE_ID names")
                        }
                        None => "it includes no file without a namespace; set NAMESPACE_ID".into(),
                    };
                    Databases::load_of(Some(&included.ok_or_else(|| bad(missing()))?.1), None)
                }
            },
            Err(e) if file.is_none() && e.kind() == std::io::ErrorKind::NotFound => {
                let socket = Path::new(DEFAULT_SOCKET);
                Ok(Databases::one_server(match socket.exists() {
                    true => Address::Unix(socket.into()),
                    false => Address::Tcp("127.0.0.1".into(), DEFAULT_PORT),
                }))
            }
            Err(e) => Err(bad(e.to_string())),
        }
    }

    /// The same, with connections that have this name at the server, and the mark of this process.
    pub fn for_client(mut self, name: &str) -> Databases {
        static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
        let client: Arc<str> = format!("ribtide-{name}-{:x}", *PROCESS).into();
        self.0.iter_mut().for_each(|database| database.client = Some(client.clone()));
        self
    }

    /// Every database on one server, under SONiC's default numbers.
    pub fn one_server(address: Address) -> Databases {
        Databases(
            ALL.into_iter()
                .map(|db| Database {
                    db,
                    id: db.id().into(),
                    separator: db.separator().into(),
                    address: address.clone(),
                    client: None,
                })
                .collect(),
        )
    }

    /// The servers of a configuration by name, with or without databases; with a
    /// `database_global.json`, those of all namespaces.
    ///
    /// # Errors
    /// [`TableError::Config`] when the file cannot be used.
    pub fn servers(file: &Path) -> Result<Vec<Server>, TableError> {
        let bad = |cause: String| TableError::Config { file: file.into(), cause };
        let text = std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
        if let Some(includes) = includes(file, &text).map_err(bad)? {
            let mut all = Vec::new();
            for (namespace, file) in includes {
                all.extend(Databases::servers(&file)?.into_iter().map(|server| match &namespace {
                    Some(namespace) => Server { name: format!("{namespace} {}", server.name), ..server },
                    None => server,
                }));
            }
            return Ok(all);
        }
        let root: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let instances = root.get("INSTANCES").and_then(Value::as_object);
        let instances = instances.ok_or_else(|| bad("it has no INSTANCES".into()))?;
        let server = |(name, server): (&String, &Value)| {
            let text =
                |field: &str| server.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
            Server {
                name: name.clone(),
                host: text("hostname").unwrap_or("127.0.0.1").into(),
                port: server.get("port").and_then(Value::as_u64).and_then(|port| port.try_into().ok()),
                socket: text("unix_socket_path").map(PathBuf::from),
            }
        };
        Ok(instances.iter().map(server).collect())
    }

    /// One database.
    ///
    /// # Panics
    /// Never: both constructors fill in every [`Db`].
    pub fn get(&self, db: Db) -> &Database {
        self.0.iter().find(|d| d.db == db).expect("every database has a place")
    }

    /// The number of their servers.
    pub fn server_count(&self) -> usize {
        let mut addresses: Vec<&Address> = Vec::new();
        for database in &self.0 {
            if !addresses.contains(&&database.address) {
                addresses.push(&database.address);
            }
        }
        addresses.len()
    }

    /// Parses a `database_config.json`: `INSTANCES` name servers, `DATABASES` refer to them.
    fn parse(text: &str) -> Result<Databases, String> {
        let root: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let mut databases = Vec::new();
        for db in ALL {
            let has = root.get("DATABASES").and_then(|all| all.get(db.name())).is_some();
            databases.push(match db {
                // Only counters are in it, so a file without it is no reason to stop.
                Db::FlexCounter if !has => {
                    Database { db, id: db.id().into(), ..place(&root, Db::Counters.name(), db)? }
                }
                _ => place(&root, db.name(), db)?,
            });
        }
        Ok(Databases(databases))
    }
}

/// The place of the database called `name`.
fn place(root: &Value, name: &str, db: Db) -> Result<Database, String> {
    let of = |field: &str| {
        root.get("DATABASES")
            .and_then(|d| d.get(name))
            .and_then(|d| d.get(field))
            .ok_or_else(|| format!("DATABASES has no {} with a field \"{field}\"", name))
    };
    let instance = of("instance")?.as_str().unwrap_or_default();
    let server = root
        .get("INSTANCES")
        .and_then(|i| i.get(instance))
        .ok_or_else(|| format!("INSTANCES has no \"{instance}\", where {} should be", name))?;
    let text = |field: &str| server.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let address = match text("unix_socket_path") {
        Some(path) => Address::Unix(path.into()),
        None => {
            let port = server.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
            let port = port.ok_or_else(|| {
                format!("the instance \"{instance}\" has neither a unix_socket_path nor a valid port")
            })?;
            Address::Tcp(text("hostname").unwrap_or("127.0.0.1").into(), port)
        }
    };
    let id = of("id")?.as_u64().and_then(|id| u32::try_from(id).ok());
    let id = id.ok_or_else(|| format!("the id of {} is not a number", name))?;
    let separator = of("separator").ok().and_then(Value::as_str);
    let separator = separator.map_or_else(|| db.separator().into(), str::to_owned);
    Ok(Database { db, id, separator, address, client: None })
}

/// A namespace, or `None` for the host, with its file.
type Included = (Option<String>, PathBuf);

/// The files of a `database_global.json` by namespace; `None` for any other file. Paths are
/// relative to the file. Entries of a container are left out: they belong to a smart switch and not
/// to an ASIC.
fn includes(file: &Path, text: &str) -> Result<Option<Vec<Included>>, String> {
    let root: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let Some(includes) = root.get("INCLUDES") else { return Ok(None) };
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    for include in includes.as_array().into_iter().flatten() {
        let text = |field: &str| include.get(field).and_then(Value::as_str);
        let path = text("include").ok_or("one of its INCLUDES has no \"include\"")?;
        if text("container_name").is_none() {
            // SONiC also lists the host's file under an empty name.
            files.push((
                text("namespace").filter(|name| !name.is_empty()).map(str::to_owned),
                folder.join(path),
            ));
        }
    }
    Ok(Some(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_global_configuration_names_that_of_each_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            file
        };
        let of = |port: u16| {
            let database =
                |db: Db| format!(r#""{}": {{"id": 3, "separator": ":", "instance": "redis"}}"#, db.name());
            let databases = ALL.map(database).join(",");
            let server = format!(r#"{{"redis": {{"hostname": "127.0.0.1", "port": {port}}}}}"#);
            format!(r#"{{"INSTANCES": {server}, "DATABASES": {{{databases}}}}}"#)
        };
        write("sonic-db/database_config.json", of(6379));
        write("redis0/database_config.json", of(6380));
        write("redis1/database_config.json", of(6381));
        let global = r#"{"INCLUDES": [{"include": "database_config.json"},
            {"namespace": "asic0", "include": "../redis0/database_config.json"},
            {"namespace": "asic1", "include": "../redis1/database_config.json"},
            {"container_name": "dpu0", "include": "../dpu0/database_config.json"}], "VERSION": "1.0"}"#;
        let global = write("sonic-db/database_global.json", global.into());
        let place = |namespace| {
            Databases::load_of(Some(&global), namespace).map(|all| all.get(Db::Asic).address.clone())
        };
        for (namespace, port) in [(None, 6379), (Some("asic0"), 6380), (Some("asic1"), 6381)] {
            assert_eq!(place(namespace).unwrap(), Address::Tcp("127.0.0.1".into(), port));
        }
        let message = place(Some("asic7")).unwrap_err().to_string();
        assert!(message.contains("no file of the namespace asic7, which NAMESPACE_ID names"), "{message}");
        let of_asics = |file| -> Vec<_> {
            let all = Databases::of_asics(Some(file)).unwrap();
            all.into_iter().map(|(name, all)| (name, all.get(Db::State).address.clone())).collect()
        };
        let at = |port| Address::Tcp("127.0.0.1".into(), port);
        assert_eq!(of_asics(&global), [(Some("asic0".into()), at(6380)), (Some("asic1".into()), at(6381))]);
        assert_eq!(of_asics(&dir.path().join("redis1/database_config.json")), [(None, at(6381))]);
        let servers = Databases::servers(&global).unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["redis", "asic0 redis", "asic1 redis"]);
    }

    #[test]
    fn a_configuration_places_each_database_on_its_server() {
        let text = r#"{"INSTANCES": {
            "redis": {"hostname": "127.0.0.1", "port": 6379, "unix_socket_path": "/run/a.sock", "persistence_for_warm_boot": "yes"},
            "redis1": {"hostname": "10.0.0.9", "port": 6378, "unix_socket_path": ""}},
          "DATABASES": {
            "APPL_DB": {"id": 0, "separator": ":", "instance": "redis1"},
            "ASIC_DB": {"id": 1, "separator": ":", "instance": "redis"},
            "COUNTERS_DB": {"id": 2, "separator": ":", "instance": "redis"},
            "CONFIG_DB": {"id": 4, "separator": "|", "instance": "redis"},
            "STATE_DB": {"id": 6, "separator": "|", "instance": "redis"},
            "APPL_STATE_DB": {"id": 14, "separator": ":", "instance": "redis"},
            "EVENT_DB": {"id": 19, "separator": "|", "instance": "redis"}},
          "VERSION": "1.0"}"#;
        let databases = Databases::parse(text).unwrap();
        assert_eq!(databases.get(Db::Appl).address, Address::Tcp("10.0.0.9".into(), 6378));
        assert_eq!(databases.get(Db::State).address, Address::Unix("/run/a.sock".into()));
        let one = Databases::one_server(Address::Tcp("127.0.0.1".into(), DEFAULT_PORT));
        assert_eq!((databases.server_count(), one.server_count()), (2, 1));
        assert_eq!(databases.get(Db::State).key("ROUTE_TABLE", "::/0"), "ROUTE_TABLE|::/0");
        assert_eq!(databases.get(Db::ApplState).id, 14);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let servers = Databases::servers(file.path()).unwrap();
        let server = |name: &str, host: &str, port, socket: Option<&str>| Server {
            name: name.into(),
            host: host.into(),
            port: Some(port),
            socket: socket.map(PathBuf::from),
        };
        assert_eq!(
            servers,
            [
                server("redis", "127.0.0.1", 6379, Some("/run/a.sock")),
                server("redis1", "10.0.0.9", 6378, None)
            ]
        );
        let missing = Databases::parse(&text.replace("redis1\":", "redis9\":")).unwrap_err();
        assert_eq!(missing, "INSTANCES has no \"redis1\", where APPL_DB should be");
    }

    #[test]
    fn a_named_file_must_exist() {
        let message = Databases::load(Some(Path::new("/nonexistent.json"))).unwrap_err().to_string();
        assert!(
            message.starts_with("the database configuration /nonexistent.json cannot be used: "),
            "{message}"
        );
    }
}
