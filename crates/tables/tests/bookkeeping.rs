//! Rows that no route waits for, through servers that refuse them or lose them.

mod common;

use common::Server;
use ribtide_swss::Db;
use ribtide_tables::{Bookkeeping, Fields};
use std::time::{Duration, Instant};

fn fields(text: &str) -> Fields {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.map(|(field, value)| (field.into(), value.into())).collect()
}

/// Waits until the hash of `key` is `expected`.
fn wait_for(server: &Server, key: &str, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut found = String::new();
    while found != expected {
        assert!(Instant::now() < deadline, "{key} has {found}, not {expected}");
        std::thread::sleep(Duration::from_millis(10));
        found = server.client(Db::State).hash(key);
    }
}

#[test]
fn rows_of_an_earlier_run_go_and_fields_of_others_stay() {
    let Some(server) = Server::start() else { return };
    let mut client = server.client(Db::State);
    client.query("HSET T|former left over");
    client.query("HSET T|shared theirs 1");
    client.query("SET T|wrong 1");
    let rows = Bookkeeping::start(Db::State, &server.databases, &server.stop).unwrap();
    rows.set("T", "former", fields("a=1 b=2"));
    rows.set_fields("T", "shared", fields("ours=2"));
    rows.set("T", "wrong", fields("a=1"));
    let mut looks = 0;
    rows.follow("T", "followed", move || {
        looks = 3.min(looks + 1);
        fields(&format!("looks={looks}"))
    });
    wait_for(&server, "T|former", "a=1 b=2");
    wait_for(&server, "T|shared", "ours=2 theirs=1");
    wait_for(&server, "T|wrong", "a=1");
    wait_for(&server, "T|followed", "looks=3");
    rows.set("T", "former", fields("b=3"));
    wait_for(&server, "T|former", "b=3");
    rows.set("T", "former", Fields::new());
    wait_for(&server, "T|former", "");
}

#[test]
fn rows_outlive_a_server_that_refuses_or_loses_them() {
    let Some(mut server) = Server::start() else { return };
    let rows = Bookkeeping::start(Db::State, &server.databases, &server.stop).unwrap();
    rows.set("T", "a", fields("n=1"));
    wait_for(&server, "T|a", "n=1");
    server.client(Db::State).query("REPLICAOF 127.0.0.1 1");
    for n in 2..=1000 {
        rows.set("T", "a", fields(&format!("n={n}")));
        rows.set_fields("T", "b", fields(&format!("n={n}")));
    }
    std::thread::sleep(Duration::from_millis(700));
    server.client(Db::State).query("REPLICAOF NO ONE");
    wait_for(&server, "T|a", "n=1000");
    server.restart();
    wait_for(&server, "T|a", "n=1000");
    wait_for(&server, "T|b", "n=1000");
}
