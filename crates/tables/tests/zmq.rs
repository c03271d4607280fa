//! A table over ZeroMQ between two sides of ours; beside libzmq it is tested in `tests/interop`.

use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{LabelKey, LabelRouteRow, RouteRow};
use ribtide_swss::{Change, Row};
use ribtide_tables::Consumer;
use ribtide_tables::zmq::{Endpoint, ZmqConsumer, ZmqProducer};
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn endpoint() -> Endpoint {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Endpoint::parse("tcp://127.0.0.1", free).unwrap()
}

fn change(key: &str, fields: &[(&str, &str)]) -> Change<RouteRow> {
    let key = RouteRow::parse_key(key).unwrap();
    match fields {
        [] => Change::del(key),
        _ => Change::set(key, RouteRow::from_fields(&mut fields.iter().copied()).unwrap()),
    }
}

fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !until() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn routes(from: u32, to: u32) -> Vec<Change<RouteRow>> {
    (from..to)
        .map(|n| {
            let fields = [("protocol", "bgp"), ("nexthop", "10.0.0.1"), ("ifname", "Ethernet0")];
            change(&format!("10.{}.{}.0/24", n >> 8, n & 255), &fields)
        })
        .collect()
}

#[test]
fn rows_come_out_as_they_went_in_and_are_acknowledged_when_taken() {
    let (rings, stop, endpoint) = (Rings::default(), Stop::default(), endpoint());
    let mut producer = ZmqProducer::<RouteRow>::connect(endpoint.clone(), &rings, &stop).unwrap();
    let mut consumer = ZmqConsumer::<RouteRow>::bind(&endpoint, &rings, &stop).unwrap();
    wait("connected", || producer.renewed());
    assert!(producer.is_acknowledged() && producer.has_room());
    let mut sent = routes(0, 2500);
    sent.push(change("10.0.0.0/24", &[]));
    sent.push(change("Vrf1:2001:db8::/32", &[("blackhole", "true")]));
    producer.send(&mut sent.clone());
    let mut got = Vec::new();
    wait("all came", || {
        while consumer.pop(700, &mut got).unwrap() {}
        got.len() == sent.len()
    });
    assert_eq!(got, sent);
    wait("all is taken", || producer.is_taken());
}

#[test]
fn a_consumer_that_does_not_take_fills_a_window_and_loses_nothing() {
    let (rings, stop, endpoint) = (Rings::default(), Stop::default(), endpoint());
    let mut consumer = ZmqConsumer::<RouteRow>::bind(&endpoint, &rings, &stop).unwrap();
    let mut producer = ZmqProducer::<RouteRow>::connect(endpoint.clone(), &rings, &stop).unwrap();
    wait("connected", || producer.renewed());
    let mut sent = 0;
    while producer.has_room() {
        producer.send(&mut routes(sent, sent + 1));
        sent += 1;
    }
    assert_eq!(sent, 64);
    producer.send(&mut routes(sent, sent + 100));
    assert_eq!(producer.waiting(), 100);
    let mut got = Vec::new();
    wait("all came", || {
        producer.resume();
        while consumer.pop(10, &mut got).unwrap() {}
        got.len() == 164
    });
    assert_eq!(got, routes(0, 164));
    assert_eq!(producer.waiting(), 0);
}

#[test]
fn rows_that_fill_a_message_go_on_in_the_next_one() {
    let (rings, stop, endpoint) = (Rings::default(), Stop::default(), endpoint());
    let mut producer = ZmqProducer::<RouteRow>::connect(endpoint.clone(), &rings, &stop).unwrap();
    let mut consumer = ZmqConsumer::<RouteRow>::bind(&endpoint, &rings, &stop).unwrap();
    wait("connected", || producer.renewed());
    // Four rows are more than a mebibyte.
    let group = "g".repeat(300 << 10);
    let row = |n: u32| change(&format!("10.{n}.0.0/16"), &[("nexthop_group", &group)]);
    let sent: Vec<_> = (0..10).map(row).collect();
    producer.send(&mut sent.clone());
    let mut got = Vec::new();
    wait("all came", || {
        while consumer.pop(100, &mut got).unwrap() {}
        producer.is_taken()
    });
    assert!(got == sent, "{} rows", got.len());
}

#[test]
fn two_tables_share_an_endpoint_and_each_has_its_consumer() {
    let (rings, stop, endpoint) = (Rings::default(), Stop::default(), endpoint());
    let (mut routes_in, mut labels_in) =
        ZmqConsumer::<RouteRow>::bind_two::<LabelRouteRow>(&endpoint, &rings, &stop).unwrap();
    let mut routes_out = ZmqProducer::<RouteRow>::connect(endpoint.clone(), &rings, &stop).unwrap();
    let mut labels_out = ZmqProducer::<LabelRouteRow>::connect(endpoint, &rings, &stop).unwrap();
    wait("connected", || routes_out.renewed());
    wait("connected", || labels_out.renewed());
    let row =
        LabelRouteRow::from_fields(&mut [("ifname", "Ethernet0"), ("mpls_pop", "1")].into_iter()).unwrap();
    let labels: Vec<_> = (16..1500).map(|n| Change::set(LabelKey::Label(n), row.clone())).collect();
    // One that is not taken does not hold the other up.
    labels_out.send(&mut labels.clone());
    routes_out.send(&mut routes(0, 2500));
    let (mut some, mut others) = (Vec::new(), Vec::new());
    wait("all routes came", || {
        while routes_in.pop(700, &mut some).unwrap() {}
        some.len() == 2500
    });
    wait("all routes are taken", || routes_out.is_taken());
    assert!(!labels_out.is_taken());
    wait("all labels came", || {
        while labels_in.pop(700, &mut others).unwrap() {}
        others.len() == labels.len()
    });
    assert_eq!((some, others), (routes(0, 2500), labels));
    wait("all labels are taken", || labels_out.is_taken());
}

#[test]
fn without_a_consumer_nothing_waits() {
    let (rings, endpoint) = (Rings::default(), endpoint());
    let mut producer = ZmqProducer::<RouteRow>::connect(endpoint.clone(), &rings, &Stop::default()).unwrap();
    producer.send(&mut routes(0, 1));
    assert_eq!((producer.waiting(), producer.is_connected()), (0, false));
    let mut consumer = ZmqConsumer::<RouteRow>::bind(&endpoint, &rings, &Stop::default()).unwrap();
    wait("connected", || producer.renewed());
    producer.send(&mut routes(1, 2));
    let mut got = Vec::new();
    wait("it came", || {
        consumer.pop(10, &mut got).unwrap();
        !got.is_empty()
    });
    assert_eq!(got, routes(1, 2));
}

#[test]
fn what_is_not_zeromq_is_cut_off() {
    use std::io::{Read, Write};
    let (rings, stop) = (Rings::default(), Stop::default());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = Endpoint::parse("tcp://127.0.0.1", port).unwrap();
    let _consumer = ZmqConsumer::<RouteRow>::bind(&endpoint, &rings, &stop).unwrap();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n                                                "[..], &[0xff; 200]]
    {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(garbage).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        // Closed, or reset because not all was read.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() >= 64, "it introduced itself first");
    }
}
