//! The request queues of ASIC_DB against a real Redis, and the memory tables.

mod common;

use common::Server;
use ribtide_runtime::ring::Rings;
use ribtide_swss::row::{RouteKey, RouteRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::queue::{self, Message, QueueReader, QueueWriter};
use ribtide_tables::{Consumer, EncodedRequest, Exchange, Producer, TableError, memory, wake_ups};
use std::time::Duration;

fn message(key: &str, value: &str, op: &str) -> Message {
    Message { key: key.into(), value: value.into(), op: op.to_owned().into() }
}

#[test]
fn requests_leave_in_the_order_in_which_they_came() {
    let Some(server) = Server::start() else { return };
    let database = server.databases.get(Db::Asic);
    let mut writer = QueueWriter::open(database, "ASIC_STATE", &server.stop).unwrap();
    let bulk = message(
        "SAI_OBJECT_TYPE_ROUTE_ENTRY:1",
        r#"["{\"dest\":\"10.1.0.0/16\",\"switch_id\":\"oid:0x21000000000000\",\"vr\":\"oid:0x3000000000022\"}","SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x40000000005ef"]"#,
        "Sbulkcreate",
    );
    let remove = message("SAI_OBJECT_TYPE_NEXT_HOP:oid:0x40000000005ef", "{}", "Dremove");
    writer.push(&bulk);
    writer.push(&remove);
    writer.flush().unwrap();
    // Pushed at the head as key, value, operation: the list reads backwards.
    let list = server.client(Db::Asic).query("LRANGE ASIC_STATE_KEY_VALUE_OP_QUEUE 0 -1").into_texts();
    let parts = |message: &Message| [message.key.clone(), message.value.clone(), message.op.to_string()];
    let pushed = [parts(&bulk), parts(&remove)].concat();
    assert!(list.iter().eq(pushed.iter().rev()), "{list:?}");

    let channel = queue::channel(database, "ASIC_STATE");
    assert_eq!(channel, "ASIC_STATE_CHANNEL@1");
    let wake_up = wake_ups(database, vec![channel], &server.stop).unwrap().remove(0);
    let mut reader = QueueReader::open(database, "ASIC_STATE", wake_up, &server.stop).unwrap();
    assert!(reader.wake_up().wait_timeout(Duration::from_secs(10)));
    assert_eq!(reader.pop(1).unwrap(), [bulk]);
    writer.push(&message("third", "[]", "Sset"));
    writer.flush().unwrap();
    assert!(reader.wake_up().wait_timeout(Duration::from_secs(10)));
    assert_eq!(reader.pop(128).unwrap(), [remove, message("third", "[]", "Sset")]);
    assert_eq!(reader.pop(128).unwrap(), []);
    assert_eq!(server.client(Db::Asic).keys(), [""; 0]);
}

#[test]
fn requests_and_replies_that_a_server_refuses_for_a_time_come_once_and_in_order() {
    let Some(server) = Server::start() else { return };
    let database = server.databases.get(Db::Asic);
    let messages: Vec<Message> = (0..9).map(|n| message(&n.to_string(), "[]", "Sset")).collect();
    let mut writer = QueueWriter::open(database, "ASIC_STATE", &server.stop).unwrap();
    let list = |name: &str| server.client(Db::Asic).query(&format!("LRANGE {name} 0 -1")).into_texts();
    let refused_for_a_while = |writer: &mut QueueWriter| {
        server.client(Db::Asic).query("CONFIG SET maxmemory 1");
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| writer.flush().unwrap());
            std::thread::sleep(Duration::from_millis(500));
            assert!(!writing.is_finished(), "nothing was refused");
            server.client(Db::Asic).query("CONFIG SET maxmemory 0");
        });
        assert_eq!(writer.connection().generation(), 0);
    };
    messages.iter().for_each(|message| writer.push(message));
    refused_for_a_while(&mut writer);
    let pushed: Vec<String> =
        messages.iter().rev().flat_map(|m| [m.op.to_string(), m.value.clone(), m.key.clone()]).collect();
    assert_eq!(list("ASIC_STATE_KEY_VALUE_OP_QUEUE"), pushed);

    // Replies are transactions.
    let channel = queue::channel(database, "GETRESPONSE");
    let wake_up = wake_ups(database, vec![channel], &server.stop).unwrap().remove(0);
    let mut replier = QueueWriter::open(database, "GETRESPONSE", &server.stop).unwrap();
    messages.iter().for_each(|message| replier.reply(Some(message)));
    refused_for_a_while(&mut replier);
    let mut reader = QueueReader::open(database, "GETRESPONSE", wake_up, &server.stop).unwrap();
    assert_eq!(reader.pop(128).unwrap(), messages);
}

#[test]
fn a_request_without_reply_is_redelivered_to_the_next_reader() {
    let Some(server) = Server::start() else { return };
    let database = server.databases.get(Db::Asic);
    let requests: Vec<Message> = (0..4).map(|n| message(&n.to_string(), "[]", "Sset")).collect();
    let reply = message("SAI_STATUS_SUCCESS", "[]", "Sgetresponse");
    let replies =
        || server.client(Db::Asic).query("LLEN GETRESPONSE_KEY_VALUE_OP_QUEUE").as_integer().unwrap() / 3;
    // Each run of syncd takes what there is, answers some, and ends.
    let run = |requests_rx: &[Message], expected: &[(usize, bool)], replies_tx: &[Option<&Message>]| {
        let mut orchagent = QueueWriter::open(database, "ASIC_STATE", &server.stop).unwrap();
        requests_rx.iter().for_each(|request| orchagent.push(request));
        orchagent.flush().unwrap();
        let rings = Rings::default();
        let (taken, reader) =
            queue::serve(database, "ASIC_STATE", "requests", &rings, &server.stop, |request| request)
                .unwrap();
        for (n, redelivered) in expected {
            let request = taken.recv_timeout(Duration::from_secs(10)).unwrap().unwrap().unwrap();
            assert_eq!((&request.message, request.redelivered), (&requests[*n], *redelivered));
        }
        let mut syncd = QueueWriter::open(database, "GETRESPONSE", &server.stop).unwrap();
        replies_tx.iter().for_each(|reply| syncd.reply(*reply));
        syncd.flush().unwrap();
        reader.end();
        orchagent.connection().query(&["PUBLISH", &queue::channel(database, "ASIC_STATE"), "G"]).unwrap();
        while !reader.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    run(&requests[..3], &[(0, false), (1, false), (2, false)], &[Some(&reply)]);
    assert_eq!(replies(), 1);
    // Nothing is lost by taking it once more, and what comes later comes later.
    run(&requests[3..], &[(1, true), (2, true), (3, false)], &[]);
    // Some are carried out and need no reply.
    run(&[], &[(1, true), (2, true), (3, true)], &[None, Some(&reply)]);
    assert_eq!(replies(), 2);
    run(&[], &[(3, true)], &[]);
    let mut syncd = QueueWriter::open(database, "GETRESPONSE", &server.stop).unwrap();
    syncd.reply_and_forget(&reply);
    syncd.flush().unwrap();
    run(&requests[..1], &[(0, false)], &[None]);
    let mut client = server.client(Db::Asic);
    assert!(client.keys().iter().all(|key| !key.contains("UNREPLIED_LIST")), "{:?}", client.keys());
}

/// orchagent's end; a request is a number, and so is its reply.
fn exchange(server: &Server) -> Exchange<u32, String> {
    let encode = |n: u32| EncodedRequest { message: message(&n.to_string(), "[]", "Sset"), pending: Some(n) };
    let decode = |_: &u32, reply: Message| Some(reply.value);
    let database = server.databases.get(Db::Asic);
    queue::exchange(database, "VIDCOUNTER", &Rings::default(), &server.stop, encode, decode).unwrap()
}

fn reply_of(exchange: &Exchange<u32, String>) -> Result<String, TableError> {
    exchange.replies.recv_timeout(Duration::from_secs(20)).unwrap().expect("a reply within 20 s")
}

/// syncd's end carries out one request.
fn carry_out(server: &Server) {
    let database = server.databases.get(Db::Asic);
    let wake_up =
        wake_ups(database, vec![queue::channel(database, "ASIC_STATE")], &server.stop).unwrap().remove(0);
    let mut requests = QueueReader::open(database, "ASIC_STATE", wake_up, &server.stop).unwrap();
    let mut replies = QueueWriter::open(database, "GETRESPONSE", &server.stop).unwrap();
    let request = loop {
        assert!(requests.wake_up().wait_timeout(Duration::from_secs(20)), "no request came");
        if let Some(request) = requests.pop(1).unwrap().pop() {
            break request;
        }
    };
    replies.push(&message("SAI_STATUS_SUCCESS", &request.key, "Sgetresponse"));
    replies.flush().unwrap();
}

/// A server with a counter of object ids, which has what `commands` leave when it is started again.
fn server_of_before(commands: &[&str]) -> Option<Server> {
    let server = Server::start()?;
    let mut client = server.client(Db::Asic);
    client.query("SET VIDCOUNTER 1");
    commands.iter().for_each(|command| drop(client.query(command)));
    client.query("SAVE");
    Some(server)
}

#[test]
fn exchange_goes_on_with_a_server_that_is_lost_without_a_request_in_flight() {
    let Some(mut server) = server_of_before(&[]) else { return };
    let exchange = exchange(&server);
    for n in 0..6 {
        exchange.requests.send(n).unwrap();
        carry_out(&server);
        assert_eq!(reply_of(&exchange), Ok(n.to_string()));
        // Sometimes the reading thread has noticed it before the next request, sometimes it has not.
        server.restart();
        std::thread::sleep(Duration::from_millis(u64::from(n % 3) * 250));
    }
}

#[test]
fn exchange_ends_with_a_server_that_is_lost_with_a_request_in_flight() {
    let Some(mut server) = server_of_before(&[]) else { return };
    let exchange = exchange(&server);
    exchange.requests.send(1).unwrap();
    let sent = "LLEN ASIC_STATE_KEY_VALUE_OP_QUEUE";
    while server.client(Db::Asic).query(sent).as_integer() != Some(3) {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.restart();
    assert!(matches!(reply_of(&exchange), Err(TableError::Interrupted { .. })));
}

#[test]
fn exchange_ends_with_a_server_that_comes_back_with_requests_or_replies_of_before() {
    for list in ["ASIC_STATE_KEY_VALUE_OP_QUEUE", "RIBTIDE_REQUESTS_OWED", "GETRESPONSE_KEY_VALUE_OP_QUEUE"] {
        let Some(mut server) = server_of_before(&[&format!("LPUSH {list} key [] op")]) else { return };
        server.client(Db::Asic).query(&format!("DEL {list}"));
        let exchange = exchange(&server);
        server.restart();
        // A reply of before is found at once, the others with the next request.
        let _ = exchange.requests.send(1);
        assert!(matches!(reply_of(&exchange), Err(TableError::Outdated { .. })), "{list}");
    }
}

fn route(n: u32, nexthop: &str) -> Change<RouteRow> {
    let fields = [("nexthop", nexthop), ("ifname", "Ethernet0")];
    Change::set(key(n), RouteRow::from_fields(&mut fields.into_iter()).unwrap())
}

fn key(n: u32) -> RouteKey {
    RouteRow::parse_key(&format!("10.{}.{}.0/24", n / 256, n % 256)).unwrap()
}

#[test]
fn memory_table_stops_its_producer_and_coalesces_what_waits() {
    let (mut producer, mut consumer) = memory::table::<RouteRow>(&Rings::default(), 2);
    let writer = std::thread::spawn(move || {
        for round in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            for n in 0..3000 {
                producer.write(&mut vec![route(n, round)]).unwrap();
            }
        }
        producer.write(&mut vec![Change::del(key(7))]).unwrap();
        producer.flush().unwrap();
        producer
    });
    let (mut last, mut taken) = (std::collections::BTreeMap::new(), 0);
    let mut changes = Vec::new();
    while last.get(&key(7)) != Some(&None) {
        assert!(consumer.wake_up().wait_timeout(Duration::from_secs(20)));
        while consumer.pop(100, &mut changes).unwrap() {}
        taken += changes.len();
        last.extend(changes.drain(..).map(|change| (change.key, change.row)));
    }
    drop(writer.join().unwrap());
    assert_eq!(last.len(), 3000);
    assert!(
        last.iter().all(|(k, row)| *k == key(7) || *row == route(0, "10.0.0.3").row),
        "the last state wins"
    );
    assert!(taken <= 9001);
}

#[test]
fn memory_table_coalesces_a_key_as_redis_does() {
    let (mut producer, mut consumer) = memory::table::<RouteRow>(&Rings::default(), 2);
    let group = RouteRow::from_fields(&mut [("nexthop_group", "7")].into_iter()).unwrap();
    let replace = Change { reshaped: true, ..Change::set(key(1), group.clone()) };
    producer
        .write(&mut vec![route(1, "10.0.0.1"), replace.clone(), Change::del(key(2)), route(2, "10.0.0.2")])
        .unwrap();
    producer
        .write(&mut vec![route(3, "10.0.0.1"), Change::set(key(3), group), route(4, "10.0.0.1")])
        .unwrap();
    producer.write(&mut vec![Change::del(key(4))]).unwrap();
    assert_eq!(producer.waiting(), 4);
    producer.flush().unwrap();
    let mut changes = Vec::new();
    assert!(!consumer.pop(100, &mut changes).unwrap());
    let texts: Vec<String> = changes.iter().map(|change| format!("{change:?}")).collect();
    assert_eq!(
        texts,
        [
            "ROUTE_TABLE:10.0.1.0/24 REPLACE nexthop_group=7",
            "ROUTE_TABLE:10.0.2.0/24 REPLACE nexthop=10.0.0.2 ifname=Ethernet0",
            "ROUTE_TABLE:10.0.3.0/24 SET nexthop=10.0.0.1 ifname=Ethernet0 nexthop_group=7",
            "ROUTE_TABLE:10.0.4.0/24 DEL",
        ]
    );
    drop(consumer);
    producer.write(&mut vec![route(1, "10.0.0.1")]).unwrap();
    let message = producer.flush().unwrap_err().to_string();
    assert_eq!(message, "the stage at the other end of ROUTE_TABLE has stopped; its log has the reason");
}
