//! `ribtide support`: a bundle for a report of a fault, without the secrets of the configuration.

use crate::client::Client;
use crate::show::{Place, escape};
use crate::text;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use ribtide_model::NeighborPage;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Responses that are left out: the description of the API, which every version prints itself, a whole table of routes, a
/// comparison that would load the router, and events, which have no end. The log is that which the router keeps, wherever
/// standard error goes.
const LEFT_OUT: &[&str] = &["/v1/openapi.json", "/v1/mrt/table", "/v1/route-check", "/v1/events"];
/// Longest wait for one answer of the router.
const ANSWER: Duration = Duration::from_secs(30);
/// Facts of the kernel and of the machine.
const FACTS: &[&str] = &[
    "/etc/os-release",
    "/proc/version",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/net/sockstat",
    "/proc/net/sockstat6",
    "/proc/net/snmp",
    "/proc/net/netstat",
    "/proc/net/softnet_stat",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
    "/proc/sys/net/ipv4/nexthop_compat_mode",
    "/proc/sys/net/ipv4/fib_multipath_hash_policy",
    "/proc/sys/net/ipv6/fib_multipath_hash_policy",
    "/proc/sys/net/ipv6/route/max_size",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/core/optmem_max",
];

/// What goes into the bundle, and where it is written.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The bundle; one of this name is replaced
    #[arg(default_value = "ribtide-support.tar.gz")]
    file: PathBuf,
    /// The configuration file, which goes into the bundle without passwords, keys and comments
    /// [default: /etc/ribtide/ribtide.toml; with --api none]
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Writes the bundle. A part that cannot be read is named in its file `errors.txt`.
///
/// # Errors
/// The bundle cannot be written.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let client = Client::at_place(&options.place)?.within(ANSWER);
    let mut bundle = Bundle::default();
    bundle.add("version.txt", Ok(format!("ribtide {}\n", env!("CARGO_PKG_VERSION"))));
    let is_remote = options.place.api.is_some();
    // The file of the router on another host is not on this one; /v1/configuration has what is in force.
    if let Some(path) = options.config.as_deref().or((!is_remote).then_some(Path::new(crate::CONFIG_FILE))) {
        let config = ribtide_config::read(path).map_err(|e| e.to_string());
        bundle.add("ribtide.toml", config.and_then(|text| ribtide_config::without_secrets(&text)));
    }
    for path in FACTS.iter().filter(|_| !is_remote) {
        // A kernel that does not have it lacks the feature.
        let fact = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        bundle.add(&format!("system{path}"), fact.map_err(|e| format!("{path}: {e}")));
    }
    router(&client, &mut bundle);
    let failed = bundle.errors.len();
    bundle
        .write(&options.file)
        .map_err(|e| format!("the bundle {} cannot be written: {e}", options.file.display()))?;
    let left_out = match failed {
        0 => String::new(),
        n => format!("; {} could not be read, errors.txt in it names them", text::count(n as u64, "part")),
    };
    text::write_stdout(&format!(
        "{}: written, without passwords and keys{left_out}. It has addresses, AS numbers, routes, descriptions and the log: look \
         before you send it\n",
        options.file.display()
    ))
}

/// Adds what the router says about itself.
fn router(client: &Client, bundle: &mut Bundle) {
    let document: Value = match client.get("/v1/openapi.json") {
        Ok(document) => document,
        Err(sentence) => return bundle.add("router", Err(sentence)),
    };
    for path in readable(&document) {
        let name = format!("api/{}.json", path.trim_start_matches("/v1/").replace('/', "-"));
        let answer = client.get::<Value>(path).map(|answer| format!("{answer:#}\n"));
        bundle.add(&name, answer.map_err(|e| format!("{path}: {e}")));
    }
    bundle.add("metrics.txt", client.text("/metrics"));
    // Which neighbours there are is in api/bgp-neighbors.json; the first page of them is enough for a fault of one.
    let neighbors: Result<NeighborPage, String> = client.get("/v1/bgp/neighbors");
    for neighbor in neighbors.map(|page| page.neighbors).unwrap_or_default() {
        let path = format!("/v1/bgp/neighbors/{}/messages", escape(&neighbor.address.to_string()));
        let answer = client.get::<Value>(&path).map(|answer| format!("{answer:#}\n"));
        bundle
            .add(&format!("messages/{}.json", neighbor.address), answer.map_err(|e| format!("{path}: {e}")));
    }
}

/// The endpoints that need no field, of those the first page.
fn readable(document: &Value) -> Vec<&str> {
    let paths = document["paths"].as_object();
    let is_readable = |path: &str, operation: &Value| {
        let needs = |parameter: &Value| parameter["required"] == true;
        let parameters = operation["parameters"].as_array();
        path.starts_with("/v1/")
            && operation.is_object()
            && !LEFT_OUT.contains(&path)
            && !parameters.is_some_and(|all| all.iter().any(needs))
    };
    let all = paths.into_iter().flatten();
    all.filter(|(path, methods)| is_readable(path, &methods["get"])).map(|(path, _)| path.as_str()).collect()
}

/// The files of a bundle.
#[derive(Debug, Default)]
struct Bundle {
    files: Vec<(String, String)>,
    errors: Vec<String>,
}

impl Bundle {
    /// Adds a file, or the reason why it is missing.
    fn add(&mut self, name: &str, content: Result<String, String>) {
        match content {
            Ok(text) => self.files.push((name.to_owned(), text)),
            Err(sentence) => self.errors.push(format!("{name}: {sentence}\n")),
        }
    }

    /// Writes all into a compressed archive that only its owner may read.
    fn write(mut self, path: &Path) -> io::Result<()> {
        if !self.errors.is_empty() {
            self.files.push(("errors.txt".to_owned(), self.errors.concat()));
        }
        // The mode is for a new file, so another one goes first.
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for (name, text) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now);
            archive.append_data(&mut header, format!("ribtide-support/{name}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The names of all keys in a schema.
    fn names(schema: &Value, out: &mut Vec<String>) {
        match schema {
            Value::Object(object) => {
                out.extend(
                    object
                        .get("properties")
                        .and_then(Value::as_object)
                        .into_iter()
                        .flatten()
                        .map(|(name, _)| name.clone()),
                );
                object.values().for_each(|value| names(value, out));
            }
            Value::Array(list) => list.iter().for_each(|value| names(value, out)),
            _ => {}
        }
    }

    #[test]
    fn every_setting_with_a_secret_name_is_removed() {
        let mut all = Vec::new();
        names(&ribtide_config::schema(), &mut all);
        // Lists of keys, and names of files, whose contents are not in the bundle.
        let known = ["keys", "key-id", "secret-file", "token-file", "read-token-file", "tls-key"];
        let suspicious = |name: &&String| {
            ["password", "secret", "key", "token", "credential", "passphrase"]
                .iter()
                .any(|word| name.contains(word))
        };
        let missing: Vec<_> = all
            .iter()
            .filter(suspicious)
            .filter(|name| {
                !ribtide_config::SECRET_KEYS.contains(&name.as_str()) && !known.contains(&name.as_str())
            })
            .collect();
        assert!(missing.is_empty(), "secret or not? {missing:?}");
        assert!(
            ribtide_config::SECRET_KEYS.iter().all(|secret| all.iter().any(|name| name == secret)),
            "no setting has this name"
        );
    }

    #[test]
    fn readable_endpoints_need_no_field() {
        let one =
            |required: bool| json!({ "get": { "parameters": [{ "name": "a", "required": required }] } });
        let paths = json!({ "paths": {
            "/v1/a": one(false), "/v1/b": one(true), "/v1/c": { "post": {} }, "/v1/route-check": { "get": {} }, "/page": { "get": {} },
        } });
        assert_eq!(readable(&paths), ["/v1/a"]);
    }
}
