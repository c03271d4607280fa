//! Queries to a standalone syncd's virtual switch: a Unix socket that answers one line with one line of JSON.
//!
//! `lookup ADDRESS`, `route PREFIX`, `routes ROUTER PREFIX …` (in the virtual router that the switch calls so: an array), `label LABEL`,
//! `counts`, `packets` (counted by port, and dropped ones by reason), `chip`: the vendor's shell of a real chip shows the same. For `route-check`: `walk COUNT` (at least so many routes and labels,
//! and `next`), `walk COUNT NEXT` (those that follow; without `next` in the answer they are the last), `watch ENTRY …` (the number of this `watch`)
//! and `unchanged WATCH` (the watched entries, also those of earlier watches, that were not changed since; `null` when the watch is over), where an entry is
//! `ROUTER|PREFIX` or `label|LABEL`; a watch also says how many batches of rows ASIC_DB was `given` and how many of them are `written`. And
//! orders: `set NAME=VALUE …`, `refuse PREFIX …`, `take PREFIX …`, answered as `chip` is; `port NAME up|down`, which gives a port its
//! link or takes it, and is answered as `ports` is (each with whether it is enabled, and has a link); and for tests `alter VERB KEY ATTRIBUTE=VALUE …`,
//! which changes an object of the switch as another program would ([`alter`]).

use super::Error;
use super::chip_state::{alter, chip_state};
use super::events::log;
use super::syncd::chip_setting;
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::thread::{self, Ended};
use ribtide_runtime::unix_socket::{self, BindError};
use ribtide_swss::sai::{PacketAction, text};
use ribtide_vswitch::{Cursor, EntryKey, Forward, ForwardHop, PortLink, VirtualSwitch};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest query.
const LINE: u64 = 64 << 10;
/// Clients at once; a further one gets an error.
const CONNECTIONS_MAX: usize = 32;
/// How long a client may stay connected without a query.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The subject of queries.
pub(super) struct Seen<'s> {
    pub(super) switch: &'s mut VirtualSwitch,
    /// The number of row batches for all operations of the switch, and of those written to ASIC_DB.
    pub(super) rows: (u64, u64),
}

/// Serves queries on `path`, whose file has these permissions; `see` runs them in the stage.
///
/// # Errors
/// The socket cannot be created.
pub(super) fn start<S: 'static>(
    daemon: &'static str,
    path: &Path,
    mode: u32,
    handle: StageHandle<S>,
    see: fn(&mut S) -> Seen<'_>,
) -> Result<(), Error> {
    let failed = |e: std::io::Error| {
        let path = path.display();
        Error::listen(&e, format!("cannot answer queries on {path}: {e}; name a path that can be written"))
    };
    // A stale socket of an earlier run would block the name.
    if UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
    let listener = unix_socket::bind(path, mode, None).map_err(|e| match e {
        BindError::Socket(e) | BindError::Group(e) => failed(e),
    })?;
    let body = move || -> Infallible {
        let clients = Arc::new(());
        loop {
            let (handle, client) = (handle.clone(), clients.clone());
            // The clones are the connections.
            let full = Arc::strong_count(&clients) > CONNECTIONS_MAX + 1;
            let answered = listener.accept().and_then(|(stream, _)| {
                if full {
                    let message =
                        format!("{CONNECTIONS_MAX} clients are connected; try again when one has left");
                    return writeln!(&stream, "{}", json!({ "error": message }));
                }
                stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
                let body = move || {
                    // A client that left, or was idle, is no fault.
                    let _ = serve(stream, &handle, see);
                    drop(client);
                    Ended::done()
                };
                thread::spawn("query", body).map(drop)
            });
            if let Err(e) = answered {
                log!(daemon, warn, error = %e, "a query was not accepted");
                // Most likely no descriptor is free; an immediate retry would spin.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    };
    thread::spawn("query-listen", body).map(drop).map_err(failed)
}

/// The reply to one query of the syncd at `path`.
///
/// # Errors
/// A sentence when it does not reply.
pub(super) fn query(path: &Path, text: &str) -> Result<Value, Error> {
    QueryClient::open(path)?.query(text)
}

/// A connection to a syncd's query socket.
pub(super) struct QueryClient {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl QueryClient {
    /// Connects to the syncd at `path`.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub(super) fn open(path: &Path) -> Result<QueryClient, Error> {
        let stream = UnixStream::connect(path).map_err(|e| silent(path, &e))?;
        Ok(QueryClient { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// The reply to a query.
    ///
    /// # Errors
    /// A sentence when it does not reply.
    pub(super) fn query(&mut self, text: &str) -> Result<Value, Error> {
        let failed = |e: std::io::Error| silent(&self.path, &e);
        self.stream.get_mut().write_all(format!("{text}\n").as_bytes()).map_err(failed)?;
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line)
            .map_err(|e| Error::new(format!("what syncd answered cannot be read: {e}")))
    }
}

fn silent(path: &Path, e: &std::io::Error) -> Error {
    Error::new(format!("no syncd answers at {}: {e}", path.display()))
}

fn serve<S: 'static>(
    stream: UnixStream,
    handle: &StageHandle<S>,
    see: fn(&mut S) -> Seen<'_>,
) -> std::io::Result<()> {
    let mut answers = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = handle.call(move |state: &mut S| answer(see(state), line.trim()));
        let answer = answer.unwrap_or_else(|e| json!({ "error": e.to_string() }));
        // One write, because otherwise each word would be a packet.
        answers.write_all(format!("{answer}\n").as_bytes())?;
    }
}

fn answer(Seen { switch, rows: (given, written) }: Seen<'_>, text: &str) -> Value {
    let bad = || {
        let message = "queries: lookup ADDRESS, route PREFIX, routes ROUTER PREFIX, label LABEL, ports, packets, counts, chip, walk COUNT NEXT, watch ENTRY or unchanged WATCH; changes: set NAME=VALUE, refuse PREFIX, take PREFIX, port NAME up, port NAME down or alter VERB KEY ATTRIBUTE=VALUE";
        json!({ "error": message })
    };
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match (word, order(switch, word, rest)) {
        (_, Err(message)) => return json!({ "error": message }),
        ("chip" | "set" | "refuse" | "take" | "alter", Ok(())) => {
            return serde_json::to_value(chip_state(switch)).unwrap_or_default();
        }
        ("ports", Ok(())) if rest.is_empty() => return ports(switch),
        ("packets", Ok(())) if rest.is_empty() => return packets(switch),
        ("port", Ok(())) => return ports(switch),
        _ => {}
    }
    let Some(vr) = switch.default_router() else { return json!({ "error": "the switch is not started" }) };
    match (word, rest) {
        ("lookup", text) => match text.parse::<IpAddr>() {
            Ok(addr) => switch.lookup(vr, addr).map_or(Value::Null, |forward| describe(&forward)),
            Err(_) => bad(),
        },
        ("route", text) => match text.parse::<AnyPrefix>() {
            Ok(prefix) => switch.route_at(vr, prefix).map_or(Value::Null, |forward| describe(&forward)),
            Err(_) => bad(),
        },
        ("routes", text) => routes(switch, text).unwrap_or_else(bad),
        ("walk", text) => walk(switch, text).unwrap_or_else(bad),
        ("watch", text) => match text.split_whitespace().map(entry).collect::<Option<Vec<_>>>() {
            Some(watched) => json!({ "watch": switch.watch(watched), "given": given, "written": written }),
            None => bad(),
        },
        ("unchanged", text) => match text.parse() {
            Ok(watch) => {
                let entries = switch.unchanged(watch).map(texts);
                json!({ "entries": entries, "given": given, "written": written })
            }
            Err(_) => bad(),
        },
        ("label", text) => match text.parse::<u32>() {
            Ok(label) => switch.label(label).map_or(Value::Null, |forward| {
                json!({
                    "label": forward.label,
                    "pop": forward.pop,
                    "action": action(forward.action),
                    "hops": hops(&forward.hops),
                })
            }),
            Err(_) => bad(),
        },
        ("counts", "") => {
            let counts = switch.counts();
            json!({
                "ipv4_routes": counts.ipv4_routes,
                "ipv6_routes": counts.ipv6_routes,
                "router_interfaces": counts.router_interfaces,
                "neighbors": counts.neighbors,
                "next_hops": counts.next_hops,
                "groups": counts.groups,
                "group_members": counts.group_members,
                "labels": counts.labels,
                "bytes": counts.bytes,
                "operations": switch.operations(),
            })
        }
        _ => bad(),
    }
}

/// Each port, and its link.
fn ports(switch: &VirtualSwitch) -> Value {
    let port = |PortLink { name, admin_up, link }: PortLink| {
        let state = json!({ "admin_up": admin_up, "link": link, "up": admin_up && link });
        (name.to_string(), state)
    };
    Value::Object(switch.ports().into_iter().map(port).collect())
}

/// Packets of each port that had some, and dropped ones by reason.
fn packets(switch: &VirtualSwitch) -> Value {
    let counters = switch.packet_counters().into_iter();
    let used = counters.filter(|of| of.packets_in + of.packets_out + of.discards_in > 0);
    let ports = used.map(|of| {
        let counts = json!({ "in": of.packets_in, "out": of.packets_out, "dropped": of.discards_in });
        (of.port.to_string(), counts)
    });
    let drops =
        switch.packet_drops().into_iter().map(|(reason, count)| (reason.name().to_owned(), count.into()));
    json!({ "ports": Value::Object(ports.collect()), "drops": Value::Object(drops.collect()) })
}

/// The entries of these destinations in a virtual router.
fn routes(switch: &VirtualSwitch, text: &str) -> Option<Value> {
    let (router, prefixes) = text.split_once(' ')?;
    let router = text::read_oid(router)?;
    let route = |text: &str| {
        let forward = switch.route_at(router, text.parse().ok()?);
        Some(forward.map_or(Value::Null, |forward| describe(&forward)))
    };
    prefixes.split_whitespace().map(route).collect()
}

/// `ROUTER|PREFIX` or `label|LABEL`.
pub(super) fn entry(text: &str) -> Option<EntryKey> {
    let (table, key) = text.split_once('|')?;
    Some(match table {
        "label" => EntryKey::Label(key.parse().ok()?),
        _ => EntryKey::Route(text::read_oid(table)?, key.parse().ok()?),
    })
}

/// The inverse.
pub(super) fn entry_text(key: EntryKey) -> String {
    match key {
        EntryKey::Label(label) => format!("label|{label}"),
        EntryKey::Route(router, prefix) => format!("{router}|{prefix}"),
    }
}

fn texts(keys: impl IntoIterator<Item = EntryKey>) -> Vec<String> {
    keys.into_iter().map(entry_text).collect()
}

/// A page of a walk, `COUNT` or `COUNT NEXT`.
fn walk(switch: &VirtualSwitch, text: &str) -> Option<Value> {
    let (enough, from) = match text.split_once(' ') {
        Some((enough, from)) => (enough, cursor(from)?),
        None => (text, Cursor::default()),
    };
    let (keys, next) = switch.walk(from, enough.parse().ok()?);
    Some(json!({ "entries": texts(keys), "next": next.map(cursor_text) }))
}

/// `ROUTER|PLACE` or `label|LABEL`.
fn cursor(text: &str) -> Option<Cursor> {
    let (table, place) = text.split_once('|')?;
    Some(match table {
        "label" => Cursor::Label(place.parse().ok()?),
        _ => Cursor::Route(text::read_oid(table)?, place.parse().ok()?),
    })
}

fn cursor_text(cursor: Cursor) -> String {
    match cursor {
        Cursor::Label(label) => format!("label|{label}"),
        Cursor::Route(router, place) => format!("{router}|{place}"),
    }
}

/// Executes a command.
fn order(switch: &mut VirtualSwitch, word: &str, rest: &str) -> Result<(), String> {
    match word {
        "chip" if !rest.is_empty() => Err(format!("chip takes nothing after it, not \"{rest}\"")),
        "alter" => alter(switch, rest),
        "port" => match rest.split_once(' ') {
            Some((name, "up")) => switch.set_link(name, true),
            Some((name, "down")) => switch.set_link(name, false),
            _ => Err("write port NAME up or port NAME down, such as port Ethernet0 down".into()),
        },
        "set" if rest.is_empty() => Err("set names no setting; write NAME=VALUE, such as rate=20000".into()),
        "refuse" | "take" if rest.is_empty() => {
            Err(format!("{word} names no prefix; write at least one, such as 192.0.2.0/24"))
        }
        "set" => {
            let settings = rest.split_whitespace().map(chip_setting).collect::<Result<Vec<_>, String>>()?;
            switch.behave(settings.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        }
        "refuse" | "take" => {
            let prefixes =
                rest.split_whitespace().map(|text| text.parse::<AnyPrefix>().map_err(|e| e.to_string()));
            let prefixes = prefixes.collect::<Result<Vec<_>, String>>()?;
            prefixes.into_iter().for_each(|prefix| switch.refuse(prefix, word == "refuse"));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn describe(forward: &Forward) -> Value {
    json!({
        "prefix": forward.prefix.to_string(),
        "action": action(forward.action),
        "hops": hops(&forward.hops),
    })
}

fn hops(hops: &[ForwardHop]) -> Vec<Value> {
    let hop = |hop: &ForwardHop| {
        let mut message = json!({
            "gateway": hop.gateway.map(|ip| ip.to_string()),
            "port": &*hop.port,
            "mac": hop.mac.map(|mac| mac.to_string()),
            "weight": hop.weight,
        });
        if let Some(labels) = &hop.labels {
            message["labels"] = labels.to_string().into();
        }
        message
    };
    hops.iter().map(hop).collect()
}

fn action(action: PacketAction) -> &'static str {
    match action {
        PacketAction::Forward => "forward",
        PacketAction::Drop => "drop",
        PacketAction::Trap => "trap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_vswitch::Behavior;

    #[test]
    fn changes_and_queries_with_words_too_few_or_many_are_refused() {
        let mut switch = VirtualSwitch::new(Vec::new(), Behavior::default());
        for (text, message) in [
            ("chip banana", "chip takes nothing"),
            ("set", "set names no setting"),
            ("set banana=1", "banana"),
            ("refuse", "refuse names no prefix"),
            ("take", "take names no prefix"),
            ("port", "write port NAME up"),
            ("port Ethernet0", "write port NAME up"),
            ("port Ethernet0 sideways", "write port NAME up"),
            ("port Ethernet0 down", "the switch has no port Ethernet0"),
            ("alter", "does not begin with create, set or remove"),
            ("alter set", "an object is missing"),
            ("alter set banana:1", "banana"),
            ("alter remove SAI_OBJECT_TYPE_NEXT_HOP:oid:0x4", "the switch refuses it"),
        ] {
            let answer = answer(Seen { switch: &mut switch, rows: (0, 0) }, text);
            let error = answer["error"].as_str().unwrap_or_default();
            assert!(error.contains(message), "{text}: {answer}");
        }
        assert!(answer(Seen { switch: &mut switch, rows: (0, 0) }, "chip")["settings"].is_object());
    }
}
