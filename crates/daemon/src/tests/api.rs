//! What holds for every endpoint, asked of a router over its Unix socket and over TCP.

use crate::router::Router;
use ribtide_api::endpoints;
use ribtide_config as config;
use ribtide_model::{ApiError, Reloaded};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef";

struct Bench {
    router: Router,
    http: SocketAddr,
    folder: tempfile::TempDir,
}

impl Bench {
    fn start(token: bool) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let token = if token { format!("token-file = {file:?}") } else { String::new() };
        let socket = folder.path().join("api.sock");
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\nlisten = []\n[bgp.group.g]\ntype = \"internal\"\n\
             passive = true\nneighbors = [\"127.0.0.12\"]\n[fib]\nvirtual-asic = true\n[[interface]]\nname = \"Ethernet0\"\n\
             addresses = [\"10.0.0.1/24\"]\n[api]\nsocket = {socket:?}\nhttp = \"{http}\"\n{token}\n"
        );
        let path = folder.path().join("ribtide.toml");
        std::fs::write(&path, text).unwrap();
        let router = Router::start(config::load(&path).unwrap(), Some(path), None).unwrap();
        Bench { router, http, folder }
    }

    /// Changes the configuration file.
    fn edit(&self, edit: impl FnOnce(&str) -> String) {
        let path = self.folder.path().join("ribtide.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, edit(&text)).unwrap();
    }

    fn reload(&self) -> (u16, String) {
        self.unix(&request("POST", "/v1/reload", &[], ""))
    }

    fn socket(&self) -> PathBuf {
        self.router.socket()
    }

    fn unix(&self, request: &Request<'_>) -> (u16, String) {
        request.send(UnixStream::connect(self.socket()).unwrap())
    }

    fn tcp(&self, request: &Request<'_>) -> (u16, String) {
        request.send(TcpStream::connect(self.http).unwrap())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.router.shut_down();
    }
}

struct Request<'r> {
    method: &'r str,
    path: &'r str,
    headers: &'r [&'r str],
    body: &'r str,
}

const JSON: &str = "content-type: application/json";

impl Request<'_> {
    /// The status, and the sentence of a refusal or the body.
    fn send(&self, mut stream: impl Read + Write) -> (u16, String) {
        let Request { method, path, headers, body } = self;
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|header| header.starts_with("host:")) {
            head.push_str("host: localhost\r\n");
        }
        headers.iter().for_each(|header| head.push_str(&format!("{header}\r\n")));
        if !body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let sentence = serde_json::from_str::<ApiError>(body).map(|e| e.error);
        (status, sentence.unwrap_or_else(|_| body.into()))
    }
}

fn request<'r>(method: &'r str, path: &'r str, headers: &'r [&'r str], body: &'r str) -> Request<'r> {
    Request { method, path, headers, body }
}

#[test]
fn unknown_fields_are_refused_by_every_endpoint() {
    let bench = Bench::start(false);
    let list = endpoints();
    assert!(list.len() > 25, "{list:?}");
    for (method, path) in list {
        let path = path.replace("{address}", "127.0.0.12");
        let refused = |request: &Request<'_>| {
            let (status, message) = bench.unix(request);
            let context = format!("{} {} {}: {status} {message}", request.method, request.path, request.body);
            assert_eq!(status, 400, "{context}");
            (message, context)
        };
        let names_fields = |(message, context): (String, String)| {
            assert!(message.contains("unknown field `neighbour`"), "{context}");
            // An endpoint that takes fields has some of them in the sentence.
            assert!(
                message.contains("expected `")
                    || message.contains("expected one of `")
                    || message.contains("there are no fields"),
                "{context}"
            );
        };
        let queried = format!("{path}?neighbour=10.4.0.2");
        names_fields(refused(&request(&method, &queried, &[JSON], "")));
        let body = "{\"neighbour\": \"10.4.0.2\"}";
        if method == "POST" {
            names_fields(refused(&request("POST", &path, &[JSON], body)));
            // Nor do fields go by their place: `[null, true]` would be `{"all": true}`.
            for list in ["[]", " [null, true]", "[{}]"] {
                let (message, context) = refused(&request("POST", &path, &[JSON], list));
                assert!(message.contains("fields go by name"), "{context}");
            }
            let (message, context) = refused(&request("POST", &path, &["content-type: text/plain"], body));
            assert!(message.contains("application/json"), "{context}");
        } else {
            let (message, context) = refused(&request("GET", &path, &[JSON], body));
            assert!(message.contains("takes no body"), "{context}");
        }
    }
}

#[test]
fn fields_given_twice_or_empty_are_refused() {
    let bench = Bench::start(false);
    for (path, body, message) in [
        ("/v1/bgp/clear", "", "nothing is cleared"),
        ("/v1/bgp/clear", "{}", "nothing is cleared"),
        ("/v1/bgp/clear", "{\"soft\": true}", "nothing is cleared"),
        ("/v1/bgp/clear", "{\"all\": false}", "nothing is cleared"),
        ("/v1/bgp/clear", "{\"address\": null}", "nothing is cleared"),
        ("/v1/bgp/clear", "{\"address\": \"\"}", "is no address"),
        ("/v1/bgp/clear", "{\"address\": \"127.0.0.12\", \"all\": true}", "send one of them"),
        ("/v1/bgp/clear", "{\"all\": false, \"all\": true}", "duplicate field `all`"),
        ("/v1/asic", "{\"set\": {}}", "set is empty"),
        ("/v1/asic", "{\"set\": {\"rate\": \"1\", \"rate\": \"2\"}}", "`rate` is there twice"),
        ("/v1/asic/faults", "{\"prefixes\": [], \"refuse\": true}", "prefixes is empty"),
        ("/v1/asic/lookup", "{\"addresses\": []}", "addresses is empty"),
        ("/v1/fib/lookup", "{\"prefixes\": []}", "prefixes is empty"),
    ] {
        let (status, sentence) = bench.unix(&request("POST", path, &[JSON], body));
        assert!(status == 400 && sentence.contains(message), "{path} {body}: {status} {sentence}");
    }
    for (path, message) in [
        ("/v1/routes?limit=1&limit=2", "duplicate field `limit`"),
        ("/v1/routes?prefix=", "prefix"),
        ("/v1/explain?prefix=", "prefix"),
        ("/v1/bgp/nexthops?address=", "invalid IP address"),
        ("/v1/bfd?peer=", "invalid IP address"),
    ] {
        let (status, sentence) = bench.unix(&request("GET", path, &[], ""));
        assert!(status == 400 && sentence.contains(message), "{path}: {status} {sentence}");
    }
    let all = bench.unix(&request("POST", "/v1/bgp/clear", &[JSON], "{\"all\": true}"));
    assert_eq!(all, (200, "{\"neighbors\":1}".into()));
}

#[test]
fn changes_over_tcp_take_a_token() {
    let (without, with) = (Bench::start(false), Bench::start(true));
    let good = format!("authorization: Bearer {TOKEN}");
    let clear = |headers: &[&str], bench: &Bench| {
        let headers = [&[JSON][..], headers].concat();
        bench.tcp(&request("POST", "/v1/bgp/clear", &headers, "{\"all\": true}"))
    };
    for (bench, headers, status, message) in [
        (&without, &[][..], 403, "set api.token-file"),
        (&without, &[good.as_str()][..], 403, "set api.token-file"),
        (&with, &[][..], 401, "Authorization: Bearer TOKEN"),
        (&with, &["authorization: Basic 0123456789abcdef"], 401, "Authorization: Bearer TOKEN"),
        (&with, &["authorization: Bearer"], 401, "Authorization: Bearer TOKEN"),
        (&with, &["authorization: Bearer 0123456789abcdeF"], 401, "send the one in the file"),
        (&with, &["authorization: Bearer 0123456789abcdef0"], 401, "send the one in the file"),
        (&with, &[good.as_str()], 200, "neighbors"),
        (&with, &["authorization: bearer 0123456789abcdef"], 200, "neighbors"),
        (&with, &[good.as_str(), "origin: http://evil.example"], 403, "http://evil.example"),
        (&with, &[good.as_str(), "host: evil.example"], 421, "evil.example"),
    ] {
        let (got, sentence) = clear(headers, bench);
        assert!(got == status && sentence.contains(message), "{headers:?}: {got} {sentence}");
    }
    // Reads take none, but those of the configuration and the log. Every other endpoint is a change, and refused: 403 comes before the
    // fields are looked at.
    let private = ["/v1/configuration", "/v1/events", "/v1/log", "/v1/reload/check"];
    for (method, path) in endpoints() {
        let path = path.replace("{address}", "127.0.0.12");
        let (status, sentence) = without.tcp(&request(&method, &path, &[JSON], ""));
        let read = method == "GET" || ["/v1/asic/lookup", "/v1/fib/lookup"].contains(&path.as_str());
        let read = read && !private.contains(&path.as_str());
        assert_eq!(status != 403, read, "{method} {path}: {status} {sentence}");
    }
    for path in private {
        assert_eq!(with.tcp(&request("GET", path, &[], "")).0, 401, "{path}");
    }
    for path in ["/v1/configuration", "/v1/log"] {
        assert_eq!(with.tcp(&request("GET", path, &[&good], "")).0, 200, "{path}");
    }
}

#[test]
fn token_for_reads_reads_private_paths_and_changes_nothing() {
    let bench = Bench::start(true);
    let file = bench.folder.path().join("read-token");
    std::fs::write(&file, "fedcba9876543210").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let status = |method: &str, path: &str, token: &str| {
        let header = format!("authorization: Bearer {token}");
        bench.tcp(&request(method, path, &[&header], ""))
    };
    assert_eq!(status("GET", "/v1/log", "fedcba9876543210").0, 401, "not before the reload");
    bench.edit(|text| format!("{text}read-token-file = {file:?}\n"));
    let (_, body) = bench.reload();
    assert!(body.contains("api.read-token-file"), "{body}");
    assert_eq!(status("GET", "/v1/log", "fedcba9876543210").0, 200);
    assert_eq!(status("GET", "/v1/log", TOKEN).0, 200);
    let (refused, sentence) = status("POST", "/v1/reload", "fedcba9876543210");
    assert!(refused == 403 && sentence.contains("send that of api.token-file"), "{refused} {sentence}");
    assert_eq!(status("POST", "/v1/reload", TOKEN).0, 200);
    // Without the other there is nothing that a client could send for a change.
    bench.edit(|text| text.replace("\ntoken-file = ", "\n#"));
    assert_eq!(bench.reload().0, 200);
    let (refused, sentence) = status("POST", "/v1/reload", "fedcba9876543210");
    assert!(refused == 403 && sentence.contains("set api.token-file"), "{refused} {sentence}");
}

#[test]
fn reload_takes_another_token() {
    let bench = Bench::start(true);
    let reload = |token: &str| {
        let header = format!("authorization: Bearer {token}");
        bench.tcp(&request("POST", "/v1/reload", &[&header], ""))
    };
    std::fs::write(bench.folder.path().join("token"), "fedcba9876543210").unwrap();
    assert_eq!(reload("fedcba9876543210").0, 401, "not before the reload");
    let (status, message) = reload(TOKEN);
    assert!(status == 200 && message.contains("\"api_token\":true"), "{status} {message}");
    assert_eq!(reload(TOKEN).0, 401);
    assert_eq!(reload("fedcba9876543210").0, 200);
}

#[test]
fn reload_of_a_fixed_setting_is_refused_and_names_others() {
    let bench = Bench::start(false);
    bench.edit(|text| text.replace("[fib]", "[process]\nseccomp = false\n[fib]\nmax-ecmp = 16"));
    let (status, sentence) = bench.reload();
    assert!(
        status >= 400 && sentence.contains("process.seccomp to a weaker filter cannot change"),
        "{status} {sentence}"
    );
    bench.edit(|text| text.replace("[process]\nseccomp = false\n", ""));
    let (status, body) = bench.reload();
    assert_eq!(status, 200, "{body}");
    let reloaded: Reloaded = serde_json::from_str(&body).unwrap();
    assert_eq!(reloaded.settings, ["fib.max-ecmp"]);
}

/// The reply comes over the socket of the request, and the next request goes to the new one.
#[test]
fn reload_moves_the_socket_and_the_tcp_listener() {
    let bench = Bench::start(false);
    let former = bench.socket();
    let moved = former.with_extension("moved");
    bench.edit(|text| text.replace(&format!("socket = {former:?}"), &format!("socket = {moved:?}")));
    let (status, body) = bench.reload();
    assert_eq!(status, 200, "{body}");
    assert_eq!((bench.socket(), former.exists(), moved.exists()), (moved.clone(), false, true));
    bench.edit(|text| format!("{text}\n").replacen("http = ", "socket-mode = \"0600\"\nhttp = ", 1));
    let (status, body) = bench.reload();
    assert_eq!(status, 200, "{body}");
    assert_eq!(std::fs::metadata(&moved).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bench.reload().0, 200, "the new socket is served");
}

/// Of each kind of part that a reload begins, changes or ends before the one that fails.
#[test]
fn reload_that_fails_leaves_everything_as_it_was() {
    let bench = Bench::start(false);
    let (former, moved) = (bench.socket(), bench.socket().with_extension("moved"));
    let path = bench.folder.path().join("ribtide.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    // No interface here has the address that BGP or BFD cannot bind.
    let changed = good
        .replace(&format!("socket = {former:?}"), &format!("socket = {moved:?}"))
        .replace(&format!("http = \"{}\"\n", bench.http), "")
        .replace("virtual-asic = true", "virtual-asic = true\nfpm = [\"127.0.0.1:9\"]\nmax-ecmp = 16")
        .replace("listen = []", "listen = []\nalways-compare-med = true\nshards = 3");
    let names = |state: &ribtide_api::RouterState| {
        let dataplanes = state.dataplanes();
        let fpm: Vec<String> = dataplanes.fpm.iter().map(|fpm| fpm.name.clone()).collect();
        let shards = state.owners().unwrap().read().shards.len();
        (fpm, dataplanes.asics.keys().cloned().collect::<Vec<_>>(), shards)
    };
    let before = names(bench.router.state());
    let bgp = changed.replace("listen = []", "listen = [\"192.0.2.77:1790\"]");
    let bfd = changed.replace("passive = true", "passive = true\nbfd = true")
        + "[bfd]\nlisten = [\"192.0.2.77\"]\n";
    for (text, why) in [(bgp, "192.0.2.77:1790"), (bfd, "192.0.2.77")] {
        std::fs::write(&path, &text).unwrap();
        let (status, sentence) = bench.reload();
        assert!(status == 400 && sentence.contains(why), "{status} {sentence}");
        assert!(sentence.starts_with("nothing is reloaded: "), "{sentence}");
        assert!(!moved.exists() && bench.socket() == former, "the API stays where it is");
        assert_eq!(bench.tcp(&request("GET", "/v1/threads", &[], "")).0, 200, "also on TCP");
        assert_eq!(names(bench.router.state()), before);
        assert_eq!(bench.unix(&request("GET", "/v1/bfd", &[], "")).1.matches("192.0.2.77").count(), 0);
        let config = bench.router.state().config();
        assert_eq!(
            (config.api.socket.clone(), config.fib.as_ref().unwrap().max_ecmp == 16),
            (former.clone(), false)
        );
    }
    std::fs::write(&path, changed).unwrap();
    assert_eq!(bench.reload().0, 200);
    assert!(moved.exists() && !former.exists());
    assert_ne!(names(bench.router.state()), before);
}

#[test]
fn reload_and_resize_wait_for_no_other_change_of_stages() {
    let bench = Bench::start(false);
    let (former, moved) = (bench.socket(), bench.socket().with_extension("moved"));
    bench.edit(|text| text.replace(&format!("socket = {former:?}"), &format!("socket = {moved:?}")));
    let bgp = bench.router.state().bgp.get().unwrap();
    let reservation = bgp.reserve().unwrap();
    assert!(bgp.reserve().is_err());
    for (path, body) in [("/v1/reload", ""), ("/v1/bgp/shards", "{\"shards\": 2}")] {
        let (status, sentence) = bench.unix(&request("POST", path, &[JSON], body));
        assert!(
            status == 400 && sentence.contains("try again when that is done"),
            "{path} {status} {sentence}"
        );
    }
    assert!(former.exists() && !moved.exists());
    drop(reservation);
    assert_eq!(bench.unix(&request("POST", "/v1/bgp/shards", &[JSON], "{\"shards\": 2}")).0, 200);
    assert_eq!(bench.reload().0, 200);
    assert!(moved.exists());
}

/// Waits until the router answers at its Unix socket.
fn answers_again(bench: &Bench, socket: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "the socket is not there again");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bench.unix(&request("GET", "/v1/threads", &["host: ribtide"], "")).0, 200);
}

#[test]
fn api_socket_that_another_program_removes_is_bound_again() {
    let bench = Bench::start(false);
    let socket = bench.socket();
    for _ in 0..3 {
        std::fs::remove_file(&socket).unwrap();
        answers_again(&bench, &socket);
    }
    std::fs::rename(&socket, socket.with_extension("elsewhere")).unwrap();
    answers_again(&bench, &socket);
    // Its new place after a reload is watched too.
    let moved = socket.with_extension("moved");
    bench.edit(|text| text.replace(&format!("socket = {socket:?}"), &format!("socket = {moved:?}")));
    assert_eq!(bench.reload().0, 200);
    std::fs::remove_file(&moved).unwrap();
    answers_again(&bench, &moved);
}

#[test]
fn api_socket_whose_folder_another_program_removes_is_bound_again() {
    let bench = Bench::start(false);
    let folder = bench.socket().with_extension("folder");
    let socket = folder.join("api.sock");
    let former = bench.socket();
    bench.edit(|text| text.replace(&format!("socket = {former:?}"), &format!("socket = {socket:?}")));
    assert_eq!(bench.reload().0, 200);
    for _ in 0..2 {
        std::fs::remove_dir_all(&folder).unwrap();
        answers_again(&bench, &socket);
    }
}

#[test]
fn reload_keeps_the_vrfs_of_an_earlier_reload() {
    let bench = Bench::start(false);
    bench.edit(|text| format!("{text}[vrf.Vrf-a]\ninterfaces = []\n"));
    let reloaded = || {
        let (status, body) = bench.reload();
        assert_eq!(status, 200, "{body}");
        let reloaded: Reloaded = serde_json::from_str(&body).unwrap();
        (reloaded.vrfs_added, reloaded.vrfs_removed)
    };
    assert_eq!(reloaded(), (vec!["Vrf-a".to_owned()], vec![]));
    assert_eq!(reloaded(), (vec![], vec![]), "it is the same one");
}

#[test]
fn names_that_another_site_may_have_are_refused_on_loopback() {
    let bench = Bench::start(false);
    let status = |host: &str| bench.tcp(&request("GET", "/v1/threads", &[host], "")).0;
    for host in ["host: localhost", "host: LOCALHOST:8080", "host: 127.0.0.1:80"] {
        assert_eq!(status(host), 200, "{host}");
    }
    // The listener has 127.0.0.1 alone.
    for host in ["host: evil.example", "host: localhost.evil.example:80", "host:", "host: [::1]:80"] {
        assert_eq!(status(host), 421, "{host}");
    }
    assert_eq!(bench.unix(&request("GET", "/v1/threads", &["host: ribtide"], "")).0, 200);
}

#[test]
fn socket_has_the_mode_and_group_of_the_configuration() {
    let mode = |settings: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[api]\nsocket = {path:?}\n{settings}\n"
        );
        let config = config::parse(&text).unwrap();
        let _api = ribtide_api::Api::bind(&config.api).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, config.api.socket_mode, "{settings}");
        if let Some(group) = &config.api.socket_group {
            assert_eq!(std::os::unix::fs::MetadataExt::gid(&found), group.id.as_raw());
        }
        config.api.socket_mode
    };
    assert_eq!(mode(""), 0o600);
    assert_eq!(mode("socket-mode = \"0660\""), 0o660);
    assert_eq!(mode("socket-mode = \"777\""), 0o777);
    // Ours, so that the test needs no privilege.
    let ours = nix::unistd::Group::from_gid(nix::unistd::getegid()).unwrap().unwrap();
    assert_eq!(mode(&format!("socket-group = {:?}", ours.name)), 0o660);
}
