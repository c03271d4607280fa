use super::*;
use crate::redis_server::{Client, Server};
use std::collections::BTreeMap;

const A: &str = "oid:0x1000000000001";
const B: &str = "oid:0x1000000000002";

fn request(op: CounterOp, key: &str, fields: &[(&str, &str)]) -> PollChange {
    let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    PollChange::Request { op, key: key.into(), fields }
}

fn writer(server: &Server, settings: Settings) -> Writer {
    let open = |db| Connection::open(server.databases.get(db), &server.stop).unwrap();
    Writer::new(open(Db::Counters), open(Db::FlexCounter), settings)
}

fn write(writer: &mut Writer, changes: impl IntoIterator<Item = PollChange>) {
    let mut waiting = Waiting::default();
    changes.into_iter().for_each(|change| waiting.change(change));
    writer.write(waiting).unwrap();
}

/// FLEX_COUNTER_DB by key.
fn rows(client: &mut Client) -> BTreeMap<String, String> {
    client.keys().into_iter().map(|key| (key.clone(), client.hash(&key))).collect()
}

fn expect<const N: usize>(rows: [(&str, &str); N]) -> BTreeMap<String, String> {
    rows.into_iter().map(|(key, row)| (key.to_owned(), row.to_owned())).collect()
}

#[test]
fn request_of_several_objects_has_a_row_of_each() {
    let Some(server) = Server::start() else { return };
    let (mut writer, mut client) = (writer(&server, Settings::default()), server.client(Db::FlexCounter));
    write(
        &mut writer,
        [
            request(CounterOp::SetGroup, "G", &[("POLL_INTERVAL", "1000")]),
            request(CounterOp::StartPoll, &format!("G:{A},{B}"), &[("PORT_COUNTER_ID_LIST", "X")]),
        ],
    );
    let (a, b) = (format!("FLEX_COUNTER_TABLE:G:{A}"), format!("FLEX_COUNTER_TABLE:G:{B}"));
    let (group, list) = (("FLEX_COUNTER_GROUP_TABLE:G", "POLL_INTERVAL=1000"), "PORT_COUNTER_ID_LIST=X");
    assert_eq!(rows(&mut client), expect([group, (&a, list), (&b, list)]));
    write(&mut writer, [request(CounterOp::StopPoll, &format!("G:{A}"), &[])]);
    assert_eq!(rows(&mut client), expect([group, (&b, list)]));
    write(&mut writer, [request(CounterOp::StopPoll, &format!("G:{A},{B}"), &[])]);
    assert_eq!(rows(&mut client), expect([group]));
    write(&mut writer, [PollChange::Reset]);
    assert_eq!(rows(&mut client), BTreeMap::new());
}

#[test]
fn row_that_goes_and_comes_in_one_batch_has_no_former_field() {
    let Some(server) = Server::start() else { return };
    let (mut writer, mut client) = (writer(&server, Settings::default()), server.client(Db::FlexCounter));
    let group = |op, fields: &[(&str, &str)]| request(op, "G", fields);
    write(
        &mut writer,
        [group(CounterOp::SetGroup, &[("POLL_INTERVAL", "1000"), ("PORT_PLUGIN_LIST", "c0de")])],
    );
    let again = [
        group(CounterOp::DelGroup, &[]),
        group(CounterOp::SetGroup, &[("POLL_INTERVAL", "2000")]),
        group(CounterOp::SetGroup, &[("FLEX_COUNTER_STATUS", "enable")]),
    ];
    write(&mut writer, again);
    let row = "FLEX_COUNTER_STATUS=enable POLL_INTERVAL=2000";
    assert_eq!(rows(&mut client), expect([("FLEX_COUNTER_GROUP_TABLE:G", row)]));
    // And one that comes and goes.
    let gone = [group(CounterOp::SetGroup, &[("POLL_INTERVAL", "3000")]), group(CounterOp::DelGroup, &[])];
    write(&mut writer, gone);
    assert_eq!(rows(&mut client), BTreeMap::new());
}

#[test]
fn settings_are_written_again_when_the_database_has_lost_them() {
    let Some(mut server) = Server::start() else { return };
    let mut writer = writer(&server, Settings::default());
    let settings = [
        request(CounterOp::SetGroup, "G", &[("POLL_INTERVAL", "1000")]),
        request(CounterOp::StartPoll, &format!("G:{A}"), &[("PORT_COUNTER_ID_LIST", "X")]),
        request(CounterOp::StartPoll, &format!("G:{B}"), &[]),
    ];
    write(&mut writer, settings);
    let whole = rows(&mut server.client(Db::FlexCounter));
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[&format!("FLEX_COUNTER_TABLE:G:{B}")], "NULL=NULL");
    // Another program empties it; the thread looks.
    server.client(Db::FlexCounter).query("FLUSHDB");
    write(&mut writer, []);
    assert_eq!(rows(&mut server.client(Db::FlexCounter)), whole);
    // It is empty when a row changes: that row, and the others.
    server.client(Db::FlexCounter).query("FLUSHALL");
    write(&mut writer, [request(CounterOp::SetGroup, "G", &[("POLL_INTERVAL", "500")])]);
    let mut changed = whole.clone();
    changed.insert("FLEX_COUNTER_GROUP_TABLE:G".into(), "POLL_INTERVAL=500".into());
    assert_eq!(rows(&mut server.client(Db::FlexCounter)), changed);
    // Another server comes in its place.
    server.restart();
    write(&mut writer, [request(CounterOp::StopPoll, &format!("G:{A}"), &[])]);
    changed.remove(&format!("FLEX_COUNTER_TABLE:G:{A}"));
    assert_eq!(rows(&mut server.client(Db::FlexCounter)), changed);
}

/// A row of several objects is one of an earlier version.
#[test]
fn settings_of_the_database_are_read_and_rows_of_several_objects_become_one_each() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::FlexCounter);
    client.query("HSET FLEX_COUNTER_GROUP_TABLE:G POLL_INTERVAL 1000");
    client.query(&format!("HSET FLEX_COUNTER_TABLE:G:{A},{B} PORT_COUNTER_ID_LIST X"));
    let mut flex = Connection::open(server.databases.get(Db::FlexCounter), &server.stop).unwrap();
    let (settings, changes) = read(&mut flex).unwrap();
    assert_eq!(changes.len(), 2);
    let whole = rows(&mut client);
    let (a, b) = (format!("FLEX_COUNTER_TABLE:G:{A}"), format!("FLEX_COUNTER_TABLE:G:{B}"));
    let (group, list) = (("FLEX_COUNTER_GROUP_TABLE:G", "POLL_INTERVAL=1000"), "PORT_COUNTER_ID_LIST=X");
    assert_eq!(whole, expect([group, (&a, list), (&b, list)]));
    client.query("FLUSHDB");
    write(&mut writer(&server, settings), []);
    assert_eq!(rows(&mut client), whole);
}
