//! Every thread and every queue, for `ribtide show threads` and the references of the documentation, which are printed
//! from here. Texts are Markdown; links are relative to `docs`.
//!
//! A test of the program compares the queues of a running router with [`QUEUES`], names and bounds.

/// Which processes have a thread or a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// `ribtide run`.
    Router,
    /// `fpmsyncd`, `orchagent` and `syncd` as processes of their own.
    Sonic,
}

/// Threads of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadKind {
    /// The name; `N` stands for a number.
    pub name: &'static str,
    /// Whose they are.
    pub process: Process,
    /// How many there are; of [`Process::Sonic`] when there is one.
    pub when: &'static str,
    /// What it does, in a few words.
    pub does: &'static str,
    /// The state that it owns, and what else there is to know; empty where `does` has it all.
    pub owns: &'static str,
}

/// Queues of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueKind {
    /// The name; `N` stands for a number, `NAME` for any name.
    pub name: &'static str,
    /// Whose it is.
    pub process: Process,
    /// How many batches fit; `None` where `of` has it.
    pub bound: Option<u64>,
    /// What is counted, and what else there is to know about the bound; empty for batches.
    pub of: &'static str,
    /// What a full queue stops.
    pub full: &'static str,
}

use Process::{Router, Sonic};

const fn thread(
    process: Process,
    name: &'static str,
    when: &'static str,
    does: &'static str,
    owns: &'static str,
) -> ThreadKind {
    ThreadKind { name, process, when, does, owns }
}

const fn queue(
    process: Process,
    name: &'static str,
    bound: u64,
    of: &'static str,
    full: &'static str,
) -> QueueKind {
    QueueKind { name, process, bound: if bound == 0 { None } else { Some(bound) }, of, full }
}

/// All threads but the first of a process, in the order of a route's path.
#[rustfmt::skip]
pub const THREADS: &[ThreadKind] = &[
    thread(Router, "sessions", "1", "BGP: session FSMs, timers, writing",
        "FSMs, timers, listening, connecting, the write side of every socket; hosts stages that are `off`"),
    thread(Router, "writer-N", "`bgp.update-threads`, less one", "BGP: writes to sockets beside the session thread",
        "connections that the session thread lends it, for one write each ([ADR 4](adr/0004-bgp-socket-writes-session-thread.md))"),
    thread(Router, "reader-N", "1 for 4 shards; 0 with `bgp.shards = \"off\"`", "BGP: reads and parses sessions",
        "the read side of established sessions, their attribute sets"),
    thread(Router, "shard-N", "`bgp.shards`, changeable at run time", "BGP: a RIB shard, its Adj-RIB-In and best paths",
        "Adj-RIB-In and best paths of its prefixes"),
    thread(Router, "egress-N", "`bgp.update-threads`", "BGP: an update thread, packs for update groups",
        "the update groups of some peers"),
    thread(Router, "egress-drain", "1, while update threads in excess have sessions", "BGP: ends update threads in excess",
        "nothing: it queries the session thread"),
    thread(Router, "bgp-initial", "1, until BGP's first table is complete", "BGP: waits for the first tables",
        "nothing: it queries the stages"),
    thread(Router, "rib", "1", "RIB manager: selection, next-hop groups", "selection, next-hop groups, resolution"),
    thread(Router, "kernel-fib", "1", "writes routes to the kernel",
        "the desired state of the kernel, the routes that it writes; higher priority than other threads"),
    thread(Router, "kernel-routes", "1", "watches other programs' changes of the kernel's routes",
        "changes of routes by other programs"),
    thread(Router, "kernel-links", "1, with BGP, `fib.kernel`, or a `[fib]` without dataplanes", "watches interfaces",
        "interfaces and addresses"),
    thread(Router, "fpm", "1 for a server", "sends routes to an FPM server", "a connection to an FPM server"),
    thread(Router, "fpm-reader", "1 for a server", "reads an FPM server's replies", "its replies"),
    thread(Router, "sonic-fpmsyncd", "1", "virtual ASIC: fpmsyncd",
        "no table of routes: the RIB manager has it"),
    thread(Router, "sonic-orchagent", "1", "virtual ASIC: orchagent", "object ids, references, the only table of routes here"),
    thread(Router, "sonic-syncd", "1", "virtual ASIC: syncd and the switch", "the switch, which has syncd's table of routes"),
    thread(Router, "sonic-reconcile", "1, unless `reconcile-interval = 0`", "virtual ASIC: compares the switch with orchagent", "nothing: it queries the stages"),
    thread(Router, "bfd", "1", "BFD sessions: packets, timers",
        "BFD sessions, their sockets and timers; real-time priority where the system allows it"),
    thread(Router, "rpki", "1, with `rpki`", "RPKI caches",
        "the connections to RPKI caches, their records, and the table of payloads, which readers share"),
    thread(Router, "bmp", "1, with `bmp`", "BMP stations",
        "the sessions with BMP stations, their queues and dumps"),
    thread(Router, "mrt", "1, with `mrt`", "MRT files", "the files that are being written; it waits for the disk"),
    thread(Router, "watchdog", "1", "looks for work that waits without progress", "nothing: it reads counters"),
    thread(Router, "log", "1", "writes the log", "the write side of standard error ([more](#logs))"),
    thread(Router, "api", "1", "management API: listens", "listeners of the API"),
    thread(Router, "api-query", "16 at most", "management API: queries stages",
        "nothing: each sends a client's queries to the stages"),
    thread(Router, "api-events", "1, while clients follow events of routes, and 60 s after", "management API: keeps changes of best paths for clients",
        "the latest changes of best paths"),
    thread(Router, "demo", "1, of `ribtide demo`", "demonstration", "nothing"),
    thread(Router, "bench-read", "1, of `ribtide demo`", "demonstration: reads the sender's BGP session",
        "the read side of that session"),
    thread(Router, "bench-keepalive", "1, of `ribtide demo`", "demonstration: KEEPALIVEs of the sender's BGP session", "nothing"),
    thread(Sonic, "fpm-read", "fpmsyncd", "the FPM connection: frames in", ""),
    thread(Sonic, "fpm-write", "fpmsyncd", "the FPM connection: offload replies out", ""),
    thread(Sonic, "watchdog", "each", "looks for work that waits without progress", ""),
    thread(Sonic, "log", "each", "writes the log ([more](operations.md#logs))", ""),
    thread(Sonic, "links", "fpmsyncd; syncd that forwards packets", "interfaces of the kernel", ""),
    thread(Sonic, "appl-db-listen`, `asic-db-listen` and others by their database", "each", "subscriptions to Redis channels", ""),
    thread(Sonic, "bookkeeping", "each; orchagent has three",
        "rows that no route waits for: settings, queues, timers and warm restart in STATE_DB, CRM in COUNTERS_DB, link states in APPL_DB", ""),
    thread(Sonic, "config-watch", "fpmsyncd, orchagent", "`suppress-fib-pending` in CONFIG_DB: it wakes the stage at a change", ""),
    thread(Sonic, "explain", "each", "replies about a route (`ribtide explain PREFIX --sonic`): it queries the stage", ""),
    thread(Sonic, "zmq-push", "fpmsyncd, `-q`, one for routes and one for labels", "the ZeroMQ connection to orchagent", ""),
    thread(Sonic, "zmq-acks", "fpmsyncd, `-q`, one for routes and one for labels", "orchagent's acknowledgements", ""),
    thread(Sonic, "zmq-listen", "orchagent, `-q`", "the listener", ""),
    thread(Sonic, "zmq-pull", "orchagent, `-q`",
        "one reader for each connection, which starts when connections of earlier processes are read to their end", ""),
    thread(Sonic, "write-behind", "fpmsyncd, unless `--appl-db off` or `in-line` over ZeroMQ",
        "APPL_DB; beside ZeroMQ at low priority, and at full speed once rows are half a second old ([ADR 47](adr/0047-write-behind-paced-by-age.md))", ""),
    thread(Sonic, "recorder", "orchagent, `-A`", "`swss.rec` and `sairedis.rec`", ""),
    thread(Sonic, "ring", "orchagent, `-R`", "prefetched rows; it stops while orchagent stalls", ""),
    thread(Sonic, "notification-listen", "orchagent, over ZeroMQ", "the listener for notifications of SONiC's syncd", ""),
    thread(Sonic, "notification-pull", "orchagent, over ZeroMQ", "one reader for each connection of SONiC's syncd", ""),
    thread(Sonic, "unhandled-tables", "orchagent", "a look for rows of tables that it does not handle, as they are announced and every minute", ""),
    thread(Sonic, "asic-generation", "orchagent, with ribtide's syncd", "a look whether syncd still has its state, after a message of syncd and every 10 s", ""),
    thread(Sonic, "asic-runs", "orchagent", "a look whether syncd was started again, after a message of syncd and every 10 s; then it reads the keys of ASIC_DB", ""),
    thread(Sonic, "warm-restart", "fpmsyncd, `--appl-db off`; syncd, `--asic-db off`",
        "a look whether STATE_DB enables warm restart, which it then reports as impossible, after a keyspace notification and every 10 s", ""),
    thread(Sonic, "response-push", "orchagent, `-F`", "the connection that carries route responses to fpmsyncd", ""),
    thread(Sonic, "response-acks", "orchagent, `-F`", "fpmsyncd's acknowledgements", ""),
    thread(Sonic, "response-listen", "fpmsyncd, `suppress-fib-pending`", "the listener for responses", ""),
    thread(Sonic, "response-pull", "fpmsyncd, `suppress-fib-pending`", "one reader for each connection", ""),
    thread(Sonic, "write-behind", "orchagent",
        "APPL_STATE_DB, and messages on its channel; at low priority, unless fpmsyncd depends on the channel", ""),
    thread(Sonic, "asic-requests", "orchagent", "requests encoded as text or binary", ""),
    thread(Sonic, "asic-responses", "orchagent", "replies decoded", ""),
    thread(Sonic, "asic-listen", "syncd", "the ZeroMQ listener", ""),
    thread(Sonic, "asic-requests", "syncd", "requests decoded", ""),
    thread(Sonic, "asic-replies", "syncd", "replies encoded", ""),
    thread(Sonic, "asic-notifications", "syncd", "link states, to orchagents on the channel of ASIC_DB", ""),
    thread(Sonic, "counters", "syncd", "polled counters, to COUNTERS_DB, and their settings, to FLEX_COUNTER_DB", ""),
    thread(Sonic, "asic-db", "syncd, `--asic-db behind` or `off`", "ASIC_DB, with `off` only marker keys in it; at low priority", ""),
    thread(Sonic, "reconcile", "fpmsyncd, orchagent; syncd, unless `--asic-db off`",
        "the comparison of the database with what the stage wrote, or took ([ADR 24](adr/0024-reconciliation-of-sonics-copies.md))", ""),
    thread(Sonic, "beside", "orchagent, `--beside`", "requests of SONiC's orchagent and ribtide's on their way to syncd", ""),
    thread(Sonic, "asic-listen", "orchagent, `--beside zmq_sync`", "the ZeroMQ listener for SONiC's orchagent", ""),
    thread(Sonic, "asic-requests", "orchagent, `--beside`", "requests of SONiC's orchagent", ""),
    thread(Sonic, "notification-push", "orchagent, `--beside zmq_sync`", "the connection that carries notifications to SONiC's orchagent", ""),
    thread(Sonic, "notification-acks", "orchagent, `--beside zmq_sync`", "the other direction of that connection", ""),
    thread(Sonic, "notification-listen", "orchagent, `--beside` with `-z zmq_sync`", "the ZeroMQ listener for syncd's notifications", ""),
    thread(Sonic, "notification-pull", "orchagent, `--beside` with `-z zmq_sync`", "notifications of syncd", ""),
    thread(Sonic, "kernel-watch", "syncd, `--kernel-chip`", "hears of netdevs and of other programs' changes", ""),
    thread(Sonic, "packets", "syncd, `SAI_VS_HOSTIF_USE_TAP_DEVICE=true`", "reads the netdevs of ports and host interfaces", ""),
    thread(Sonic, "query-listen", "syncd, `--query-socket`", "the listener for queries about the switch", ""),
    thread(Sonic, "query", "syncd, `--query-socket`", "queries about the switch", ""),
];

/// All queues, in the order of a route's path.
#[rustfmt::skip]
pub const QUEUES: &[QueueKind] = &[
    queue(Router, "readers to shard N", 8, "", "the reader, and so TCP"),
    queue(Router, "shards to worker N", 256, "", "the shard"),
    queue(Router, "workers to sessions", 64, "", "the worker. After it each peer has a write queue; with 8 MiB in it (less with \
        more than 64 groups) the peer's group goes on without the peer"),
    queue(Router, "sessions to writers", 64, "sets of 8 connections each", "no thread: the session thread writes the rest itself"),
    queue(Router, "writers to sessions", 64, "sets of 8 connections each", "no thread: the session thread writes the rest itself"),
    queue(Router, "shards to RIB", 256, "", "the shard"),
    queue(Router, "RIB to NAME", 64, "for each dataplane", "the RIB manager, which goes on taking feedback and failures. Where another \
        dataplane has emptied half of its queue: no stage, and the full one becomes [lagging](adr/0012-lagging-dataplane.md)"),
    queue(Router, "RIB to NAME, urgent", 8, "for each dataplane", "no stage: more operations coalesce, but no batch is sent before them"),
    queue(Router, "ROUTE_TABLE", 64, "", "fpmsyncd"),
    queue(Router, "NEXTHOP_GROUP_TABLE", 64, "", "fpmsyncd"),
    queue(Router, "orchagent to syncd", 8, "at most 4 bulks are under way, and 8,192 rows wait in orchagent",
        "no stage: replies never exceed requests"),
    queue(Router, "syncd to orchagent", 8, "", "no stage: replies never exceed requests"),
    queue(Router, "requests to shard N", 256, "feedback", "no stage: workers keep the rest; next-hop states and confirmations coalesce"),
    queue(Router, "dataplanes to RIB", 256, "feedback", "the dataplane; the RIB manager empties it also while it waits"),
    queue(Router, "interfaces to RIB", 256, "failures; used by `bfd` too", "the interface watcher; `bfd` keeps the rest, coalesced. \
        The RIB manager empties it before all other queues, and while it waits"),
    queue(Router, "stages to BMP", 256, "reads of 64 KiB, or batches, with `bmp`",
        "the reader, shard or worker. The `bmp` thread waits for no station, and each station has a queue (`queue-mib`)"),
    queue(Router, "stages to MRT", 256, "control: reads of 64 KiB, with `mrt`", "no stage: reads without room are dropped and counted"),
    queue(Router, "sessions to BMP", 1024, "control", "no thread: the session thread keeps the rest"),
    queue(Router, "sessions to MRT", 1024, "control", "no thread: states without room are dropped and counted"),
    queue(Router, "redistribution to sessions", 16, "redistributed routes", "no stage: later changes of a prefix replace earlier ones"),
    queue(Router, "interfaces to sessions", 1024, "failures", "the interface watcher, after the RIB manager has the same; \
        the session thread waits on no queue"),
    queue(Router, "BFD to sessions", 1024, "failures", "no thread: `bfd` keeps the rest, coalesced"),
    queue(Router, "sessions to BFD", 16, "sets of neighbours by interface", "no thread: the session thread sends the whole set when there is room"),
    queue(Router, "FIB batches to acknowledge", 256, "feedback", "fpmsyncd"),
    queue(Router, "readers to sessions", 1024, "control", "the reader; the session thread waits for no stage"),
    queue(Router, "shards to events", 256, "control: changes of best paths, while clients follow events of routes",
        "no stage: batches without room are dropped, and their changes counted"),
    queue(Router, "shards to sessions", 1024, "control", "the shard; the session thread waits for no stage"),
    queue(Router, "sessions to reader N", 1024, "control", "no thread: the session thread keeps the rest"),
    queue(Router, "sessions to worker N", 1024, "control", "no thread: the session thread keeps the rest"),
    queue(Router, "kernel watchers to kernel FIB", 256, "control", "the watcher, which then reads the kernel's state again"),
    queue(Router, "lines to the log", 4096, "lines, not in `show threads`", "no thread: lines without room are dropped and counted"),
    queue(Router, "queries to a stage", 64, "only in `show health`; a waiting stage answers them too", "the client, for at most 10 s"),
    queue(Sonic, "FPM frames to fpmsyncd", 16, "reads of 256 KiB", "the reader, and so the routing daemon"),
    queue(Sonic, "lines to the log", 4096, "lines", "no thread: lines without room are dropped and counted"),
    queue(Sonic, "fpmsyncd replies", 256, "buffers", "fpmsyncd; a client that reads nothing for 60 s loses its session"),
    queue(Sonic, "interfaces to fpmsyncd", 1024, "", "the watcher"),
    queue(Sonic, "interfaces to syncd", 1024, "with packets", "the watcher"),
    queue(Sonic, "kernel to syncd", 4096, "notifications of the kernel (`--kernel-chip`)", "the thread that reads them; the kernel drops further ones, and everything is compared then"),
    queue(Sonic, "packets to syncd", 64, "reads of at most 64 packets, and 4 MiB", "no thread: packets without room are dropped and counted (`queue-full`)"),
    queue(Sonic, "responses to ZeroMQ", 64, "messages of at most 4,000 routes each, under way or not taken",
        "no stage: the rest waits in orchagent, five bytes a route"),
    queue(Sonic, "responses to fpmsyncd", 64, "messages", "the reader of the connection, and so its sender"),
    queue(Sonic, "published responses to fpmsyncd", 10_000, "responses, without a direct connection", "the reader of APPL_STATE_DB's channel"),
    queue(Sonic, "ROUTE_TABLE to ZeroMQ", 64, "messages of 1,000 routes each; LABEL_ROUTE_TABLE has its own",
        "fpmsyncd, which coalesces changes and from 50,000 on reads no FPM"),
    queue(Sonic, "ROUTE_TABLE", 64, "messages of 1,000 routes each, in orchagent; LABEL_ROUTE_TABLE has its own", "the reader of the connection, and so fpmsyncd"),
    queue(Sonic, "keys in ROUTE_TABLE_KEY_SET", 10_000, "keys, while there is an orchagent",
        "the thread that writes APPL_DB ([ADR 19](adr/0019-back-pressure-of-a-stalled-orchagent-over-redis.md))"),
    queue(Sonic, "ROUTE_TABLE to APPL_DB (write-behind)", 0, "where it carries the routes 320 batches of 1,000 rows; a script call writes 1,000 rows or 64 KiB \
        ([ADR 18](adr/0018-commands-in-a-killed-redis-clients-socket.md)). Beside ZeroMQ 2,048 batches, packed (`--write-behind-max`); fewer with `--write-behind-wait`",
        "fpmsyncd, which hands over nothing while rows wait there, so changes coalesce"),
    queue(Sonic, "ROUTE_TABLE to APPL_STATE_DB (write-behind)", 0, "2,048 batches of 1,000 rows, packed (`--write-behind-max`); fewer with `--write-behind-wait`", "orchagent"),
    queue(Sonic, "queries of `explain --sonic` to a daemon, and its replies", 16, "queries", "no stage: more are dropped, and the client reports that after 15 s"),
    queue(Sonic, "rows in m_toSync", 0, "50,000 rows of orchagent", "no stage: while a request is under way it takes no more"),
    queue(Sonic, "ROUTE_TABLE taken consumer", 29, "prefetched, with `-R`", "the prefetching thread"),
    queue(Sonic, "orchagent to syncd", 64, "messages; 8 requests under way", "orchagent"),
    queue(Sonic, "syncd to orchagent", 64, "messages", "syncd"),
    queue(Sonic, "replies to orchagent", 64, "messages", "syncd"),
    queue(Sonic, "SONiC's orchagent to ribtide's", 64, "requests, with `--beside`; SONiC's orchagent has one without a reply", "its reader"),
    queue(Sonic, "ribtide's orchagent to beside", 64, "requests, with `--beside`; 8 without a reply", "orchagent"),
    queue(Sonic, "beside to ribtide's orchagent", 64, "replies, with `--beside`", "no stage: replies never exceed requests"),
    queue(Sonic, "learned rows", 1024, "rows that SONiC's orchagent's requests teach, with `--beside`",
        "no stage: more rows wait in the `beside` thread"),
    queue(Sonic, "notifications of syncd", 1024, "notifications, with `--beside`", "their reader"),
    queue(Sonic, "notifications to ZeroMQ", 64, "notifications to SONiC's orchagent, with `--beside`",
        "no stage: 10,000 more wait in the `beside` thread"),
    queue(Sonic, "to FILE", 64, "pieces of 64 KiB each of a recording (`-A`)", "orchagent"),
    queue(Sonic, "rows to ASIC_DB (write-behind)", 0, "2,048 batches, of a bulk each (`--write-behind-max`); fewer with `--write-behind-wait`", "syncd"),
];

/// The place of a queue in the order of a route's path; `None` of queues beside it and of unknown
/// ones. `name` is of a running process: with numbers, and perhaps an owner before it.
pub fn path_position(name: &str) -> Option<usize> {
    let name = name.rsplit(": ").next().unwrap_or(name);
    let is = |(pattern, word): (&str, &str)| {
        pattern == word
            || matches!(pattern, "N" | "NAME" | "FILE")
            || (pattern == "NAME," && word.ends_with(','))
    };
    let matches = |pattern: &str| {
        pattern.split(' ').count() == name.split(' ').count()
            && pattern.split(' ').zip(name.split(' ')).all(is)
    };
    let beside = |of: &str| ["feedback", "failures", "control"].iter().any(|kind| of.starts_with(kind));
    QUEUES.iter().position(|queue| matches(queue.name) && !beside(queue.of))
}

/// Whether a queue carries replies to its consumer. A consumer that takes none of them waits for no
/// reply.
pub fn carries_replies(name: &str) -> bool {
    name.rsplit(": ").next() == Some("syncd to orchagent")
}

/// What is known about a thread of the router, by its name without a number.
pub fn router_thread(role: &str) -> Option<&'static ThreadKind> {
    let base = |kind: &ThreadKind| kind.name.strip_suffix("-N").unwrap_or(kind.name);
    THREADS.iter().find(|kind| kind.process == Router && base(kind) == role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_position_follows_a_route() {
        let path = [
            "readers to shard 12",
            "shards to RIB",
            "RIB to kernel",
            "asic1: ROUTE_TABLE",
            "orchagent to syncd",
        ];
        let positions = path.map(path_position);
        assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?}");
        assert!(path_position("RIB to kernel, urgent") > path_position("RIB to kernel"));
        let beside = ["requests to shard 3", "dataplanes to RIB", "unknown to N", "readers to shard"];
        assert_eq!(beside.map(path_position), [None; 4]);
    }

    #[test]
    fn carries_replies_only_the_queue_back_from_syncd() {
        let names = ["syncd to orchagent", "asic1: syncd to orchagent", "orchagent to syncd"];
        assert_eq!(names.map(carries_replies), [true, true, false]);
        assert!(names.iter().all(|name| path_position(name).is_some()), "they are in the list");
    }

    #[test]
    fn router_thread_is_found_without_its_number() {
        let does = |role| router_thread(role).map(|thread| thread.does);
        assert_eq!(does("shard"), Some("BGP: a RIB shard, its Adj-RIB-In and best paths"));
        assert_eq!((does("links"), does("shard-N")), (None, None), "another process's; no role");
    }
}
