//! State tables against a real Redis, read back with plain commands: SONiC's contract, key by key.

mod common;

use common::Server;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{Field, RouteKey, RouteRow, RouteStateRow, Via};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{
    Connection, Consumer, ConsumerStateTable, Pipeline, PlainTable, Producer, ProducerStateTable, Reply,
    TableError, WriteBehind, state_table, wake_ups,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

type Routes = ProducerStateTable<RouteRow>;

fn key(text: &str) -> RouteKey {
    RouteRow::parse_key(text).unwrap()
}

fn row(fields: &[(&str, &str)]) -> RouteRow {
    RouteRow::from_fields(&mut fields.iter().copied()).unwrap()
}

fn hops(nexthop: &str, ifname: &str) -> RouteRow {
    row(&[("protocol", "bgp"), ("nexthop", nexthop), ("ifname", ifname)])
}

fn set(text: &str, row: RouteRow) -> Change<RouteRow> {
    Change::set(key(text), row)
}

fn replace(text: &str, row: RouteRow) -> Change<RouteRow> {
    Change { reshaped: true, ..set(text, row) }
}

fn del(text: &str) -> Change<RouteRow> {
    Change::del(key(text))
}

fn write(table: &mut Routes, changes: Vec<Change<RouteRow>>) {
    let mut changes = changes;
    table.write(&mut changes).unwrap();
    table.flush().unwrap();
}

fn producer(server: &Server, batch: usize) -> Routes {
    Routes::open(&server.databases, Pipeline { batch, ..Pipeline::default() }, &server.stop).unwrap()
}

fn consumer(server: &Server) -> ConsumerStateTable<RouteRow> {
    consumer_until(server, &server.stop)
}

/// One that goes when it is to stop.
fn consumer_until(server: &Server, stop: &Stop) -> ConsumerStateTable<RouteRow> {
    let database = server.databases.get(Db::Appl);
    let channels = vec![state_table::channel::<RouteRow>(database)];
    let wake_up = wake_ups(database, channels, stop).unwrap().remove(0);
    ConsumerStateTable::open(&server.databases, wake_up, stop).unwrap()
}

/// Pops until nothing is left; rows as text, by key.
fn drain(consumer: &mut ConsumerStateTable<RouteRow>) -> BTreeMap<String, String> {
    let mut changes = Vec::new();
    while consumer.pop(128, &mut changes).unwrap() {}
    changes
        .iter()
        .map(|change| {
            let text = format!("{change:?}");
            let (key, rest) = text.split_once(' ').unwrap();
            (key.strip_prefix("ROUTE_TABLE:").unwrap().to_owned(), rest.to_owned())
        })
        .collect()
}

fn map<const N: usize>(rows: [(&str, &str); N]) -> BTreeMap<String, String> {
    rows.into_iter().map(|(key, row)| (key.to_owned(), row.to_owned())).collect()
}

#[test]
fn a_set_stands_beside_its_place_until_it_is_popped() {
    let Some(server) = Server::start() else { return };
    let (mut table, mut client) = (producer(&server, 1), server.client(Db::Appl));
    let mut ears = server.client(Db::Appl);
    assert!(matches!(ears.query("SUBSCRIBE ROUTE_TABLE_CHANNEL@0"), Reply::Array(_)));

    write(&mut table, vec![set("10.1.0.0/16", hops("10.0.0.1", "Ethernet0")), del("10.2.0.0/16")]);
    assert_eq!(client.keys(), ["ROUTE_TABLE_DEL_SET", "ROUTE_TABLE_KEY_SET", "_ROUTE_TABLE:10.1.0.0/16"]);
    assert_eq!(client.hash("_ROUTE_TABLE:10.1.0.0/16"), "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp");
    assert_eq!(client.query("SISMEMBER ROUTE_TABLE_KEY_SET 10.2.0.0/16"), Reply::Integer(1));
    assert_eq!(client.query("SMEMBERS ROUTE_TABLE_DEL_SET").into_texts(), ["10.2.0.0/16"]);
    // A key that is noted already is not announced again.
    write(&mut table, vec![set("10.1.0.0/16", hops("10.0.0.1", "Ethernet4"))]);

    let mut consumer = consumer(&server);
    assert_eq!(
        drain(&mut consumer),
        map([
            ("10.1.0.0/16", "REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet4"),
            ("10.2.0.0/16", "DEL")
        ])
    );
    assert_eq!(client.keys(), ["ROUTE_TABLE:10.1.0.0/16"]);
    // Two publications of "G" were heard: one for each key that was new.
    assert_eq!(ears.query("PING").into_texts(), ["message", "ROUTE_TABLE_CHANNEL@0", "G"]);
    assert_eq!(ears.query("PING").into_texts(), ["message", "ROUTE_TABLE_CHANNEL@0", "G"]);
    assert_eq!(ears.query("PING").into_texts(), ["pong", ""]);
}

/// Two updates of one row before a pop: every pair of kinds.
#[test]
fn unconsumed_changes_coalesce() {
    let Some(server) = Server::start() else { return };
    let by_hops = || hops("10.0.0.1", "Ethernet0");
    let by_group = || row(&[("protocol", "bgp"), ("nexthop_group", "7")]);
    let set_hops = "SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0";
    // orchagent keeps no field of an older row that waits there.
    let replace_hops = "REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0";
    let set_group = "REPLACE protocol=bgp nexthop_group=7";
    let union = "SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 nexthop_group=7";
    // All fields of the hash afterwards; a replace names the empty ones too.
    let complete = Field::COMPLETE_ROUTE.len() + 1;
    for batch in [1, 1000] {
        let (mut table, mut client) = (producer(&server, batch), server.client(Db::Appl));
        let mut consumer = consumer(&server);
        let cases: [(&str, Vec<Change<RouteRow>>, &str, usize); 7] = [
            ("10.0.1.0/24", vec![set("10.0.1.0/24", by_hops()), set("10.0.1.0/24", by_group())], union, 4),
            (
                "10.0.2.0/24",
                vec![set("10.0.2.0/24", by_hops()), replace("10.0.2.0/24", by_group())],
                set_group,
                complete,
            ),
            ("10.0.3.0/24", vec![set("10.0.3.0/24", by_hops()), del("10.0.3.0/24")], "DEL", 0),
            ("10.0.4.0/24", vec![del("10.0.4.0/24"), set("10.0.4.0/24", by_hops())], replace_hops, 3),
            ("10.0.5.0/24", vec![replace("10.0.5.0/24", by_group()), del("10.0.5.0/24")], "DEL", 0),
            (
                "10.0.6.0/24",
                vec![del("10.0.6.0/24"), replace("10.0.6.0/24", by_group())],
                set_group,
                complete,
            ),
            ("10.0.7.0/24", vec![set("10.0.7.0/24", by_hops()), set("10.0.7.0/24", by_hops())], set_hops, 3),
        ];
        for (key, changes, expected, fields) in cases {
            // The row was consumed before, with another field than the new one has.
            write(&mut table, vec![set(key, row(&[("blackhole", "true")]))]);
            drain(&mut consumer);
            write(&mut table, changes);
            assert_eq!(drain(&mut consumer), map([(key, expected)]), "{key}, {batch} a call");
            let left = client.query(&format!("HLEN ROUTE_TABLE:{key}")).as_integer();
            // SET alone merges into the consumed row too, as in SONiC: its old field stays.
            let stays = i64::from(expected == union || key == "10.0.7.0/24");
            assert_eq!(left, Some(fields as i64 + stays), "{key}, {batch} a call");
        }
        assert!(!client.keys().iter().any(|key| key.starts_with('_') || key.ends_with("_SET")));
        client.query("FLUSHDB");
    }
}

/// However many changes a call carries, Redis ends up the same: rows that are copies of others among them.
#[test]
fn a_call_of_many_changes_is_as_many_calls() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    let rows = [
        hops("10.0.0.1", "Ethernet0"),
        hops("10.0.0.2", "Ethernet4"),
        row(&[("protocol", "bgp"), ("nexthop_group", "7")]),
        row(&[("blackhole", "true")]),
    ];
    // A sequence without a pattern; the same for every batch size.
    let mut state = 1u64;
    let mut roll = move |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % sides) as usize
    };
    for _ in 0..20 {
        let changes: Vec<_> = (0..60)
            .map(|_| {
                let (key, row) = (format!("10.0.{}.0/24", roll(20)), rows[roll(4)].clone());
                match roll(8) {
                    0 => del(&key),
                    1 | 2 => replace(&key, row),
                    _ => set(&key, row),
                }
            })
            .collect();
        let mut contents = [1, 7, 60].map(|batch| {
            client.query("FLUSHDB");
            write(&mut producer(&server, batch), changes.clone());
            let keys = client.keys();
            let rows = keys.iter().filter(|key| key.starts_with('_'));
            let rows: Vec<_> = rows.map(|row| (row.clone(), client.hash(row))).collect();
            let sets = ["SMEMBERS ROUTE_TABLE_KEY_SET", "SMEMBERS ROUTE_TABLE_DEL_SET"].map(|query| {
                let mut keys = client.query(query).into_texts();
                keys.sort();
                keys
            });
            (keys, rows, sets)
        });
        let [one_each, rest @ ..] = &mut contents;
        for many in rest {
            assert_eq!(many, one_each, "{changes:?}");
        }
    }
}

#[test]
fn a_backlog_is_found_at_start_and_later_changes_wake() {
    let Some(server) = Server::start() else { return };
    let (mut one, mut other) = (producer(&server, 1), producer(&server, 100));
    let prefix = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
    let many = |from: usize, to: usize, hop: &str| -> Vec<Change<RouteRow>> {
        (from..to).map(|n| set(&prefix(n), hops(hop, "Ethernet0"))).collect()
    };
    write(&mut one, many(0, 700, "10.0.0.1"));
    write(&mut other, many(300, 1000, "10.0.0.2"));

    let mut consumer = consumer(&server);
    assert!(consumer.wake_up().wait_timeout(Duration::from_secs(10)));
    let rows = drain(&mut consumer);
    assert_eq!(rows.len(), 1000);
    assert!(rows[&prefix(299)].contains("10.0.0.1") && rows[&prefix(300)].contains("10.0.0.2"));
    // An empty pop is normal.
    assert_eq!(drain(&mut consumer), map([]));
    while consumer.wake_up().take() == Ok(true) {}

    write(&mut other, vec![del(&prefix(0))]);
    assert!(consumer.wake_up().wait_timeout(Duration::from_secs(10)));
    assert_eq!(drain(&mut consumer), map([("10.0.0.0/24", "DEL")]));
    assert_eq!(server.client(Db::Appl).keys().len(), 999);
}

#[test]
fn what_other_producers_write_is_taken_and_nonsense_is_passed_over() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    for command in [
        "HSET _ROUTE_TABLE:10.0.0.9/32 nexthop 10.0.0.1 ifname Ethernet0 unknown x",
        "HSET _ROUTE_TABLE:banana nexthop 10.0.0.1",
        "SADD ROUTE_TABLE_KEY_SET 10.0.0.9/32 banana 10.0.0.8/32",
    ] {
        client.query(command);
    }
    let expected =
        map([("10.0.0.9/32", "REPLACE nexthop=10.0.0.1 ifname=Ethernet0"), ("10.0.0.8/32", "DEL")]);
    assert_eq!(drain(&mut consumer(&server)), expected);
}

#[test]
fn scripts_and_servers_may_go_and_come() {
    let Some(mut server) = Server::start() else { return };
    let mut table = producer(&server, 10);
    let mut consumer = consumer(&server);
    server.client(Db::Appl).query("SCRIPT FLUSH");
    write(&mut table, vec![set("10.0.0.0/24", hops("10.0.0.1", "Ethernet0"))]);
    server.client(Db::Appl).query("SCRIPT FLUSH");
    assert_eq!(drain(&mut consumer).len(), 1);
    assert_eq!(table.generation(), 0);

    // What waits when the server goes is written when it is back.
    table.write(&mut vec![set("10.0.1.0/24", hops("10.0.0.1", "Ethernet0"))]).unwrap();
    while consumer.wake_up().take() == Ok(true) {}
    server.restart();
    table.flush().unwrap();
    assert_eq!(table.generation(), 1);
    assert!(consumer.wake_up().wait_timeout(Duration::from_secs(20)));
    let mut rows = drain(&mut consumer);
    while rows.is_empty() {
        assert!(consumer.wake_up().wait_timeout(Duration::from_secs(20)));
        rows = drain(&mut consumer);
    }
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["10.0.1.0/24"]);
}

#[test]
fn a_server_that_is_busy_with_a_script_is_waited_for() {
    let Some(server) = Server::start_with(&["--lua-time-limit", "1"]) else { return };
    let mut table = producer(&server, 10);
    let mut other = Connection::open(server.databases.get(Db::Appl), &server.stop).unwrap();
    let script =
        "local begin = redis.call('TIME')[1] while redis.call('TIME')[1] - begin < 3 do end return 7";
    let busy = std::thread::spawn(move || other.query(&["EVAL", script, "0"]).unwrap());
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    let mut is_busy = || {
        let mut reply = [0; 64];
        stream.write_all(b"PING\r\n").unwrap();
        let len = stream.read(&mut reply).unwrap();
        reply[..len].starts_with(b"-BUSY")
    };
    while !is_busy() {
        assert!(!busy.is_finished(), "it never said that it is busy");
    }
    write(&mut table, vec![set("10.0.0.0/24", hops("10.0.0.1", "Ethernet0"))]);
    assert_eq!(busy.join().unwrap(), Reply::Integer(7));
    assert_eq!((table.generation(), drain(&mut consumer(&server)).len()), (0, 1));
}

/// Runs `write` while `server` refuses what `refuse` makes it refuse, and lets it go on after a second.
fn refused_for_a_second(server: &Server, refuse: &str, allow: &str, write: impl FnOnce() + Send) {
    server.client(Db::Appl).query(refuse);
    std::thread::scope(|scope| {
        let writing = scope.spawn(write);
        std::thread::sleep(Duration::from_secs(1));
        assert!(!writing.is_finished(), "nothing was refused");
        server.client(Db::Appl).query(allow);
    });
}

#[test]
fn commands_that_a_server_refuses_for_a_time_are_sent_again() {
    let Some(server) = Server::start() else { return };
    let mut table = producer(&server, 10);
    let mut plain = PlainTable::<RouteStateRow>::open(&server.databases, &server.stop).unwrap();
    let mut consumer = consumer(&server);
    let refusals =
        [("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"), ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")];
    for (n, (refuse, allow)) in refusals.into_iter().enumerate() {
        // By a script, and by plain commands.
        refused_for_a_second(&server, refuse, allow, || {
            write(&mut table, vec![set(&format!("10.0.{n}.0/24"), hops("10.0.0.1", "Ethernet0"))]);
        });
        refused_for_a_second(&server, refuse, allow, || {
            let row = RouteStateRow { protocol: Some("bgp".into()) };
            plain.write(&mut vec![Change::set(key(&format!("10.1.{n}.0/24")), row)]).unwrap();
            plain.flush().unwrap();
        });
    }
    assert_eq!(drain(&mut consumer).len(), 2);
    assert_eq!(server.client(Db::ApplState).keys().len(), 2);
}

#[test]
fn keys_of_another_type_are_passed_over_and_replaced_by_their_writer() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    let (mut table, mut consumer) = (producer(&server, 10), consumer(&server));
    // Rows where they wait, where they are, and the sets of their keys.
    let spoilt =
        ["_ROUTE_TABLE:10.0.1.0/24", "ROUTE_TABLE:10.0.2.0/24", "ROUTE_TABLE_KEY_SET", "ROUTE_TABLE_DEL_SET"];
    spoilt.iter().for_each(|key| drop(client.query(&format!("SET {key} x"))));
    let rows = |n: u8| hops(&format!("10.0.0.{n}"), "Ethernet0");
    write(
        &mut table,
        vec![set("10.0.1.0/24", rows(1)), set("10.0.2.0/24", rows(2)), replace("10.0.3.0/24", rows(3))],
    );
    let changes = popped(&mut consumer);
    let all = [1, 2, 3].map(|n| replace(&format!("10.0.{n}.0/24"), rows(n)));
    assert_eq!(changes, all);
    // Between the producer and the consumer: a pending row is lost, and the row at its final key counts.
    write(&mut table, vec![set("10.0.1.0/24", rows(9)), set("10.0.4.0/24", rows(4))]);
    client.query("SET _ROUTE_TABLE:10.0.1.0/24 x");
    client.query("SADD ROUTE_TABLE_KEY_SET 10.0.5.0/24");
    client.query("SET ROUTE_TABLE:10.0.5.0/24 x");
    let changes = popped(&mut consumer);
    assert_eq!(changes, [1, 4].map(|n| replace(&format!("10.0.{n}.0/24"), rows(n))));
    client.query("SET ROUTE_TABLE_KEY_SET x");
    assert_eq!(popped(&mut consumer), vec![]);
    // Plain reads and writes.
    let mut plain = PlainTable::<RouteRow>::open(&server.databases, &server.stop).unwrap();
    let mut found = Vec::new();
    plain.rows(|key, row| found.push(Change::set(key, row))).unwrap();
    found.sort_by_key(|change| format!("{:?}", change.key));
    let all = [(1, rows(1)), (2, rows(2)), (3, rows(3)), (4, rows(4))];
    assert_eq!(found, all.map(|(n, row)| set(&format!("10.0.{n}.0/24"), row)));
    write_plain(&mut plain, set("10.0.5.0/24", rows(5)));
    assert_eq!(plain.get(&key("10.0.5.0/24")).unwrap(), Some(rows(5)));
    assert!(ribtide_tables::unreadable_keys() >= 5);
    // A counter is no row: the sentence has the key, and what to do.
    client.query("HSET VIDCOUNTER a b");
    let mut connection = Connection::open(server.databases.get(Db::Appl), &server.stop).unwrap();
    let refused = connection.query(&["INCRBY", "VIDCOUNTER", "1"]).unwrap_err().to_string();
    assert!(refused.contains("(key VIDCOUNTER); delete it: redis-cli -n 0 DEL 'VIDCOUNTER'"), "{refused}");
}

/// The changes that wait, in the order of their keys.
fn popped(consumer: &mut ConsumerStateTable<RouteRow>) -> Vec<Change<RouteRow>> {
    let mut changes = Vec::new();
    while consumer.pop(128, &mut changes).unwrap() {}
    changes.sort_by_key(|change| format!("{:?}", change.key));
    changes
}

fn write_plain(table: &mut PlainTable<RouteRow>, change: Change<RouteRow>) {
    table.write(&mut vec![change]).unwrap();
    table.flush().unwrap();
}

#[test]
fn what_was_sent_to_a_server_that_goes_is_sent_again() {
    let Some(mut server) = Server::start() else { return };
    let mut table = PlainTable::<RouteStateRow>::open(&server.databases, &server.stop).unwrap();
    let row = || RouteStateRow { protocol: Some("bgp".into()) };
    // So many that some leave before the flush, and some do not.
    let mut changes =
        (0..700).map(|n| Change::set(key(&format!("10.{}.{}.0/24", n >> 8, n & 255)), row())).collect();
    table.write(&mut changes).unwrap();
    server.restart();
    assert_eq!(server.client(Db::ApplState).keys().len(), 0);
    table.flush().unwrap();
    assert_eq!(table.generation(), 1);
    assert_eq!(server.client(Db::ApplState).keys().len(), 700);
}

#[test]
fn an_absent_server_is_one_sentence() {
    let databases = ribtide_tables::Databases::one_server(ribtide_tables::Address::Unix(
        "/nonexistent/redis.sock".into(),
    ));
    let error = Routes::open(&databases, Pipeline::default(), &Stop::default()).unwrap_err();
    assert!(matches!(error, TableError::Unreachable { .. }));
    assert_eq!(
        error.to_string(),
        "Redis for APPL_DB does not answer at /nonexistent/redis.sock (No such file or directory (os error 2)); start \
         redis-server, or name the right place in the database configuration"
    );
}

#[test]
fn plain_tables_hold_rows_where_they_stay() {
    let Some(server) = Server::start() else { return };
    let mut table = PlainTable::<RouteStateRow>::open(&server.databases, &server.stop).unwrap();
    let state = |protocol: &str| RouteStateRow { protocol: Some(protocol.into()) };
    let mut changes = vec![
        Change::set(key("10.0.0.0/24"), state("bgp")),
        Change::set(key("Vrfred:2001:db8::/32"), state("static")),
        Change::set(key("10.0.1.0/24"), state("bgp")),
        Change::del(key("10.0.1.0/24")),
    ];
    table.write(&mut changes).unwrap();
    table.flush().unwrap();
    let mut client = server.client(Db::ApplState);
    assert_eq!(client.keys(), ["ROUTE_TABLE:10.0.0.0/24", "ROUTE_TABLE:Vrfred:2001:db8::/32"]);
    assert_eq!(client.hash("ROUTE_TABLE:10.0.0.0/24"), "protocol=bgp");
    assert_eq!(table.get(&key("Vrfred:2001:db8::/32")).unwrap(), Some(state("static")));
    assert_eq!(table.get(&key("10.9.9.0/24")).unwrap(), None);
    client.query("HSET ROUTE_TABLE:banana protocol bgp");
    let mut rows = BTreeMap::new();
    table.rows(|key, row| drop(rows.insert(key, row))).unwrap();
    let expected = [(key("10.0.0.0/24"), state("bgp")), (key("Vrfred:2001:db8::/32"), state("static"))];
    assert_eq!(rows, expected.into());
}

#[test]
fn a_server_that_cannot_copy_gets_every_row_a_field_at_a_time() {
    let Some(server) = Server::start_with(&["--rename-command", "COPY", ""]) else { return };
    let mut table = PlainTable::<RouteRow>::open(&server.databases, &server.stop).unwrap();
    let row = hops("10.0.0.1", "Ethernet0");
    table.write(&mut (1..=3).map(|n| set(&format!("{n}.0.0.0/8"), row.clone())).collect()).unwrap();
    table.flush().unwrap();
    let mut client = server.client(Db::Appl);
    for n in 1..=3 {
        let hash = client.hash(&format!("ROUTE_TABLE:{n}.0.0.0/8"));
        assert_eq!(hash, "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp", "{n}");
    }
}

#[test]
fn equal_rows_are_copies_and_none_is_lost_with_the_first() {
    let Some(server) = Server::start() else { return };
    let mut table = PlainTable::<RouteRow>::open(&server.databases, &server.stop).unwrap();
    let mut client = server.client(Db::Appl);
    let (one, other) = (hops("10.0.0.1", "Ethernet0"), hops("10.0.0.2", "Ethernet4"));
    // What was there before goes, of the first and of copies.
    for row in ["1.0.0.0/8", "2.0.0.0/8"] {
        client.query(&format!("HSET ROUTE_TABLE:{row} weight 5 protocol static"));
    }
    let mut changes: Vec<_> = (1..=3).map(|n| set(&format!("{n}.0.0.0/8"), one.clone())).collect();
    changes.push(set("4.0.0.0/8", other.clone()));
    changes.push(set("5.0.0.0/8", one.clone()));
    // The first one again, in between and as it was.
    changes.extend([set("1.0.0.0/8", other.clone()), del("6.0.0.0/8"), set("2.0.0.0/8", other.clone())]);
    changes.extend([set("7.0.0.0/8", other.clone()), del("2.0.0.0/8"), set("8.0.0.0/8", other.clone())]);
    table.write(&mut changes).unwrap();
    table.flush().unwrap();
    let via = |hop: &str, port: &str| format!("ifname={port} nexthop={hop} protocol=bgp");
    for (rows, hash) in [
        (&[3, 5][..], via("10.0.0.1", "Ethernet0")),
        (&[1, 4, 7, 8], via("10.0.0.2", "Ethernet4")),
        (&[2, 6], String::new()),
    ] {
        for row in rows {
            assert_eq!(client.hash(&format!("ROUTE_TABLE:{row}.0.0.0/8")), hash, "{row}");
        }
    }
    // Another client deletes the first while the others are made.
    let taken = Arc::new(std::sync::atomic::AtomicBool::default());
    let (ended, mut thief) = (taken.clone(), server.client(Db::Appl));
    let stealing = std::thread::spawn(move || {
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            thief.query("DEL ROUTE_TABLE:10.0.0.0/24");
        }
    });
    let mut changes: Vec<_> =
        (0..9000).map(|n| set(&format!("10.{}.{}.0/24", n >> 8, n & 255), one.clone())).collect();
    table.write(&mut changes).unwrap();
    table.flush().unwrap();
    taken.store(true, std::sync::atomic::Ordering::Relaxed);
    stealing.join().unwrap();
    let rows = client.keys().into_iter().filter(|key| key.starts_with("ROUTE_TABLE:10.")).count();
    assert!(rows >= 8999, "{rows}");
}

#[test]
fn write_behind_settle_returns_after_all_rows_are_written() {
    let Some(mut server) = Server::start() else { return };
    let rings = Rings::default();
    let mut writer = WriteBehind::full_speed(producer(&server, 1000), 1000, None, &rings).unwrap();
    let mut changes: Vec<_> = (0..25_000)
        .map(|n: u32| {
            set(&format!("10.{}.{}.0/24", n >> 8 & 0x3f, n & 255), hops("10.0.0.1", &format!("Ethernet{n}")))
        })
        .collect();
    writer.write(&mut changes).unwrap();
    assert_eq!(changes, []);
    writer.settle().unwrap();
    assert!(writer.has_room() && writer.is_idle());
    let mut client = server.client(Db::Appl);
    assert_eq!(client.query("SCARD ROUTE_TABLE_KEY_SET").as_integer(), Some(16_384));
    // Rows of a key coalesce in order: what was said last stands.
    assert_eq!(client.hash("_ROUTE_TABLE:10.0.0.0/24"), "ifname=Ethernet16384 nexthop=10.0.0.1 protocol=bgp");

    // A server that comes back without its rows is another generation.
    server.restart();
    writer.write(&mut vec![del("10.0.0.0/24")]).unwrap();
    writer.settle().unwrap();
    assert_eq!(writer.generation(), 1);
    assert_eq!(server.client(Db::Appl).keys(), ["ROUTE_TABLE_DEL_SET", "ROUTE_TABLE_KEY_SET"]);

    // What waits when it is dropped is still written.
    writer.write(&mut vec![set("10.1.0.0/24", hops("10.0.0.1", "Ethernet0"))]).unwrap();
    drop(writer);
    assert_eq!(server.client(Db::Appl).query("EXISTS _ROUTE_TABLE:10.1.0.0/24"), Reply::Integer(1));
}

#[test]
fn a_producer_waits_for_a_consumer_that_is_there_and_for_no_other() {
    let Some(server) = Server::start() else { return };
    let mut table = producer(&server, 1000);
    let rows = |n: u32| set(&format!("10.{}.{}.0/24", n >> 8, n & 255), hops("10.0.0.1", "Ethernet0"));
    write(&mut table, (0..12_000).map(rows).collect());
    let depth = || match server.client(Db::Appl).query("SCARD ROUTE_TABLE_KEY_SET") {
        Reply::Integer(depth) => depth,
        other => panic!("{other:?}"),
    };
    // No consumer is there; then one is, and it has no time.
    table.let_through(&|| false).unwrap();
    let stop = Stop::default();
    let mut there = consumer_until(&server, &stop);
    table.let_through(&|| true).unwrap();
    assert_eq!(depth(), 12_000);
    // It takes none for a while, and then some.
    let waiting = std::thread::spawn(move || table.let_through(&|| false).map(|()| table));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished());
    let mut changes = Vec::new();
    there.pop(1500, &mut changes).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    there.pop(500, &mut changes).unwrap();
    let mut table = waiting.join().unwrap().unwrap();
    assert_eq!((depth(), changes.len()), (10_000, 2000));
    // It goes while it is waited for.
    write(&mut table, (0..12_000).map(rows).collect());
    let waiting = std::thread::spawn(move || table.let_through(&|| false));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    stop.stop();
    waiting.join().unwrap().unwrap();
    assert_eq!(depth(), 12_000);
}

/// Takes what it is given, for a consumer that takes none.
struct StandsStill;

impl Producer<RouteRow> for StandsStill {
    fn write(&mut self, changes: &mut Vec<Change<RouteRow>>) -> Result<(), TableError> {
        changes.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        Ok(())
    }

    fn let_through(&mut self, hurried: &dyn Fn() -> bool) -> Result<(), TableError> {
        while !hurried() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn waiting(&self) -> usize {
        0
    }
}

#[test]
fn write_behind_caller_is_not_blocked_by_a_consumer_that_stands_still() {
    let mut writer = WriteBehind::full_speed(StandsStill, 1000, None, &Rings::default()).unwrap();
    let row = hops("10.0.0.1", "Ethernet0");
    let rows = |n: u32| set(&format!("{}.{}.{}.0/24", 10 + (n >> 16), n >> 8 & 255, n & 255), row.clone());
    // More than the ring holds.
    let mut changes: Vec<_> = (0..600_000).map(rows).collect();
    writer.write(&mut changes).unwrap();
    assert!(!writer.has_room() && !writer.is_idle() && !writer.is_settled().unwrap());
    writer.settle().unwrap();
    assert!(writer.is_settled().unwrap());
    assert!(writer.has_room() && writer.is_idle());
}

#[test]
fn rows_are_written_as_appendix_a_of_the_contract_shows() {
    let Some(server) = Server::start() else { return };
    let mut table = producer(&server, 1000);
    let via = Via::hops([("10.0.0.1".parse().unwrap(), "Ethernet0", 1)].into_iter(), true);
    let row = RouteRow { protocol: Some("bgp".into()), via: Arc::new(via) };
    write(&mut table, vec![set("10.1.0.0/16", row)]);
    drain(&mut consumer(&server));
    let mut client = server.client(Db::Appl);
    assert_eq!(
        client.hash("ROUTE_TABLE:10.1.0.0/16"),
        "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp weight=1"
    );
}

#[test]
fn pending_row_after_a_deletion_has_none_of_the_former_fields() {
    let Some(server) = Server::start() else { return };
    server.client(Db::Appl).query("HSET ROUTE_TABLE:10.2.0.0/16 blackhole true");
    let mut table = producer(&server, 100);
    write(&mut table, vec![del("10.2.0.0/16")]);
    write(&mut table, vec![set("10.2.0.0/16", hops("10.0.0.2", "Ethernet0"))]);
    let mut rows = Vec::new();
    table.rows(|key, row, pending| rows.push((key, row, pending))).unwrap();
    let key = RouteRow::parse_key("10.2.0.0/16").unwrap();
    assert_eq!(rows, [(key, hops("10.0.0.2", "Ethernet0"), true)]);
}

#[test]
fn rows_can_be_written_straight_to_their_final_place() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    // What an earlier producer left: a new row, a replaced one and a deletion, none of them taken yet.
    client.query("HSET ROUTE_TABLE:10.2.0.0/16 blackhole true");
    client.query("HSET ROUTE_TABLE:10.3.0.0/16 blackhole true");
    let left = vec![
        set("10.1.0.0/16", hops("10.0.0.1", "Ethernet0")),
        replace("10.2.0.0/16", hops("10.0.0.2", "Ethernet0")),
        del("10.3.0.0/16"),
    ];
    write(&mut producer(&server, 100), left);
    let pipeline = Pipeline { stable: true, ..Pipeline::default() };
    let mut table = Routes::open(&server.databases, pipeline, &server.stop).unwrap();
    let noted = ["ROUTE_TABLE:10.1.0.0/16", "ROUTE_TABLE:10.2.0.0/16", "ROUTE_TABLE_KEY_SET"];
    assert_eq!(client.keys(), noted);
    assert_eq!(client.hash(noted[0]), "ifname=Ethernet0 nexthop=10.0.0.1 protocol=bgp");
    // Newer than that: what is written now.
    let changes = vec![
        set("10.1.0.0/16", hops("10.0.0.9", "Ethernet4")),
        del("10.2.0.0/16"),
        set("10.4.0.0/16", hops("10.0.0.4", "Ethernet0")),
        replace("10.4.0.0/16", row(&[("protocol", "bgp"), ("blackhole", "true")])),
    ];
    write(&mut table, changes);
    assert_eq!(client.keys(), ["ROUTE_TABLE:10.1.0.0/16", "ROUTE_TABLE:10.4.0.0/16", "ROUTE_TABLE_KEY_SET"]);
    assert_eq!(
        drain(&mut consumer(&server)),
        map([
            ("10.1.0.0/16", "REPLACE protocol=bgp nexthop=10.0.0.9 ifname=Ethernet4"),
            ("10.2.0.0/16", "DEL"),
            ("10.3.0.0/16", "DEL"),
            ("10.4.0.0/16", "REPLACE protocol=bgp blackhole=true"),
        ])
    );
    assert_eq!(client.keys(), ["ROUTE_TABLE:10.1.0.0/16", "ROUTE_TABLE:10.4.0.0/16"]);
}

/// Of rows with their own many next hops a call carries fewer.
#[test]
fn a_call_of_long_rows_is_cut() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    let calls = |client: &mut common::Client| {
        let text = client.query("INFO commandstats").into_text().unwrap();
        let calls = text.split_once("cmdstat_evalsha:calls=").map_or("0", |(_, rest)| rest);
        calls.split(',').next().unwrap().parse::<usize>().unwrap()
    };
    let via = |n: usize| {
        let gateways: Vec<String> = (0..60).map(|hop| format!("10.{hop}.{}.{}", n >> 8, n & 255)).collect();
        hops(&gateways.join(","), &["Ethernet0"; 60].join(","))
    };
    for (differ, expected) in [(false, 1..2), (true, 15..30)] {
        let before = calls(&mut client);
        let rows = (0..1000)
            .map(|n| set(&format!("20.{}.{}.0/24", n >> 8, n & 255), via(if differ { n } else { 0 })));
        write(&mut producer(&server, 1000), rows.collect());
        let made = calls(&mut client) - before;
        assert!(expected.contains(&made), "{made}");
    }
    assert_eq!(client.query("SCARD ROUTE_TABLE_KEY_SET"), Reply::Integer(1000));
}

/// The commands that the server has executed of this name.
fn calls(server: &Server, name: &str) -> u64 {
    let stats = server.client(Db::Appl).query("INFO commandstats").into_text().unwrap_or_default();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

fn many(first: u32, last: u32) -> Vec<Change<RouteRow>> {
    let hop = hops("10.0.0.1", "Ethernet0");
    (first..last).map(|n| set(&format!("10.{}.{}.0/24", n >> 8, n & 255), hop.clone())).collect()
}

#[test]
fn flush_of_several_calls_publishes_once_and_a_full_pipeline_is_a_flush() {
    let Some(server) = Server::start() else { return };
    let pipeline = Pipeline { batch: 10, capacity: 100, stable: false };
    let mut table = Routes::open(&server.databases, pipeline, &server.stop).unwrap();
    let published = || (calls(&server, "evalsha"), calls(&server, "publish"));
    assert_eq!(published(), (0, 0));
    write(&mut table, many(0, 55));
    assert_eq!(published(), (6, 1), "six calls, one flush");
    write(&mut table, many(55, 305));
    assert_eq!(published(), (31, 4), "two full pipelines and a half");
    // One call publishes only a key that is new.
    write(&mut table, many(0, 5));
    assert_eq!(published(), (32, 4));
    write(&mut table, many(305, 306));
    assert_eq!(published(), (33, 5));
}

/// A producer that was killed between the calls of a flush and their publication.
#[test]
fn pending_rows_of_an_earlier_producer_are_published_when_they_are_read() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::Appl);
    client.query("SADD ROUTE_TABLE_KEY_SET 10.1.0.0/16");
    client.query("HSET _ROUTE_TABLE:10.1.0.0/16 nexthop 10.0.0.1 ifname Ethernet0");
    let mut consumer = consumer(&server);
    // The wake-up of the start.
    while consumer.pop(1, &mut Vec::new()).unwrap() {}
    while consumer.wake_up().take() == Ok(true) {}
    client.query("SADD ROUTE_TABLE_KEY_SET 10.2.0.0/16");
    client.query("HSET _ROUTE_TABLE:10.2.0.0/16 nexthop 10.0.0.1 ifname Ethernet0");
    let mut found = 0;
    producer(&server, 1000).rows(|_, _, pending| found += usize::from(pending)).unwrap();
    assert_eq!(found, 1);
    assert!(consumer.wake_up().wait_timeout(Duration::from_secs(10)), "the consumer is told");
    assert_eq!(drain(&mut consumer).len(), 1);
}

#[test]
fn consumer_pops_more_rows_than_one_call_takes() {
    let Some(server) = Server::start() else { return };
    let mut consumer = consumer(&server);
    write(&mut producer(&server, 1000), many(0, 9001));
    let (mut changes, before) = (Vec::new(), calls(&server, "spop"));
    assert!(consumer.pop(9000, &mut changes).unwrap(), "there is one more");
    assert_eq!((changes.len(), calls(&server, "spop") - before), (9000, 3));
    assert!(!consumer.pop(9000, &mut changes).unwrap());
    assert_eq!(changes.len(), 9001);
}

/// A missing pending row is looked up, and moved by no command that fails, but for the first of a call.
#[test]
fn taking_rows_from_their_final_place_fails_once_a_call_at_most() {
    let Some(server) = Server::start() else { return };
    let mut consumer = consumer(&server);
    let pipeline = Pipeline { stable: true, ..Pipeline::default() };
    let mut table = Routes::open(&server.databases, pipeline, &server.stop).unwrap();
    write(&mut table, many(0, 500));
    write(&mut table, vec![del("10.0.7.0/24")]);
    let (mut changes, before) = (Vec::new(), calls(&server, "renamenx"));
    assert!(!consumer.pop(1000, &mut changes).unwrap());
    assert_eq!((changes.len(), changes.iter().filter(|change| change.row.is_none()).count()), (500, 1));
    assert!(calls(&server, "renamenx") - before <= 1);
    // A row beside its place, of another producer, is moved all the same.
    write(&mut producer(&server, 1000), many(500, 600));
    write(&mut table, many(600, 700));
    changes.clear();
    assert!(!consumer.pop(1000, &mut changes).unwrap());
    assert!(changes.len() == 200 && changes.iter().all(|change| change.row.is_some()));
    assert!(!server.client(Db::Appl).keys().iter().any(|key| key.starts_with('_')));
}
