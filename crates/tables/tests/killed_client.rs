//! What a client that was killed had sent: when Redis is done with it.

mod common;

use common::Server;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

/// As many bytes as a call of ours has, or more.
const CALL: usize = 96 << 10;
/// After so many answers to the next client it must be over. fpmsyncd asks more than 30 times before it reads ROUTE_TABLE, so does
/// orchagent, and syncd, whose commands are small, 16 times.
const REPLIES_MAX: usize = 16;

/// Redis stands still while a client fills its socket and is killed; the next one is connected, and has asked, when it goes on. What
/// Redis carries out of the former's is what it reads at once, and the call that it is about to read: then it
/// has an answer that it cannot deliver, and drops the rest.
#[test]
fn little_of_it_is_carried_out_and_soon() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Of all sockets those of TCP hold most.
    let Some(server) = Server::start_with(&["--port", &port.to_string()]) else { return };
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let query = |stream: &mut TcpStream, command: &str| {
        stream.write_all(command.as_bytes()).unwrap();
        let mut reply = [0; 64];
        let len = stream.read(&mut reply).unwrap();
        String::from_utf8(reply[..len].to_vec()).unwrap()
    };
    let mut call =
        "*1002\r\n$4\r\nEVAL\r\n$33\r\nreturn redis.call('INCR', 'sent')\r\n$1\r\n0\r\n".to_owned();
    let part = "x".repeat(CALL / 999);
    (0..999).for_each(|_| call += &format!("${}\r\n{part}\r\n", part.len()));

    let mut former = connect();
    assert_eq!(query(&mut former, "PING\r\n"), "+PONG\r\n");
    server.signal("STOP");
    former.set_nonblocking(true).unwrap();
    let (mut sent, mut at) = (0, 0);
    loop {
        match former.write(&call.as_bytes()[at..]) {
            Ok(len) => at += len,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => panic!("{e}"),
        }
        if at == call.len() {
            (sent, at) = (sent + 1, 0);
        }
    }
    assert!(sent > 4, "{sent}");
    drop(former);
    let mut latter = connect();
    latter.write_all(b"PING\r\n").unwrap();
    server.signal("CONT");
    let mut reply = [0; 7];
    latter.read_exact(&mut reply).unwrap();
    (1..REPLIES_MAX).for_each(|_| assert_eq!(query(&mut latter, "PING\r\n"), "+PONG\r\n"));
    let done = query(&mut latter, "GET sent\r\n");
    assert_ne!(done, format!("${}\r\n{sent}\r\n", sent.to_string().len()), "it dropped the rest");
    for _ in 0..200 {
        assert_eq!(query(&mut latter, "GET sent\r\n"), done);
    }
}
