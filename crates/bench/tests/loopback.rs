//! Sent routes arrive: replay and blast against a sink in the same process.

use clap::Parser;
use ribtide_bench::table::Path as FeedPath;
use ribtide_bench::{Error, Routes, blast, replay, sink};
use ribtide_prefix::{AnyPrefix, Family, Prefix, PrefixTable, V4, V6, for_each_family};
use ribtide_wire::bgp::message::{RefreshKind, RouteRefresh};
use ribtide_wire::mrt::{self, Bgp4mp, Peer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod data;

#[derive(Parser)]
struct Replay {
    #[command(flatten)]
    options: replay::Options,
}

#[derive(Parser)]
struct Blast {
    #[command(flatten)]
    options: blast::Options,
}

#[derive(Parser)]
struct Sink {
    #[command(flatten)]
    options: sink::Options,
}

fn options<P: Parser>(line: &str) -> P {
    P::parse_from(std::iter::once("tool").chain(line.split_whitespace()))
}

/// Receivers that listen on a free port of loopback, the first at `first`.
fn listen(first: &str, arguments: &str) -> (sink::ListeningSink, SocketAddr) {
    let line = format!("--listen {first}:0 --table --quiet --wait 120 {arguments}");
    let bound = sink::ListeningSink::new(&options::<Sink>(&line).options).unwrap();
    let at = bound.addresses()[0];
    (bound, at)
}

/// Opens the sink while `connect` connects to it.
fn both<T: Send>(bound: sink::ListeningSink, connect: impl FnOnce() -> T + Send) -> (sink::Sink, T) {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        let sink = bound.open().unwrap();
        (sink, connecting.join().unwrap())
    })
}

/// Waits until receiver `index` has the End-of-RIB of both families.
fn wait_end_of_rib(sink: &sink::Sink, index: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while sink.report().receivers[index].end_of_rib.contains(&None) {
        assert!(Instant::now() < deadline, "no End-of-RIB");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_equal(held: &Routes, sent: &Routes) {
    assert_eq!(held.differences(sent, 5), [""; 0]);
    assert_eq!(held.digest(), sent.digest());
    assert!(sent.total() > 0);
}

/// Replays `file` and checks that the sink holds the sent routes. Returns the report and the held
/// routes.
fn replay(file: &Path, sink_arguments: &str, arguments: &str) -> (replay::Report, Routes) {
    let (bound, at) = listen("127.0.0.1", sink_arguments);
    let line = format!("{} --to {at} --quiet {arguments}", file.display());
    let replay = options::<Replay>(&line).options;
    let (sink, mut replay) = both(bound, || replay::Replay::connect(&replay).unwrap());
    let report = replay.play().unwrap();
    wait_end_of_rib(&sink, 0);
    let mut copy = Routes::default();
    sink.routes(0, |held| {
        let held = held.unwrap();
        assert_equal(held, replay.routes());
        for_each_family!(F => {
            for (set, prefix) in held.in_order::<F>() {
                let set = copy.intern(held.set(set).clone());
                copy.insert(prefix, set);
            }
        });
    });
    let got = &sink.report().receivers[0];
    assert_eq!(got.malformed, 0);
    assert_eq!((got.announced, got.withdrawn), (report.sent.announced, report.sent.withdrawn));
    assert_eq!((got.updates, got.bytes), (report.sent.updates, report.sent.bytes));
    (report, copy)
}

#[test]
fn a_recorded_table_arrives_whole() {
    let Some(data) = data::folder() else { return };
    let file = data.join("mrt/bview.20020722.2337.gz");
    let (report, held) = replay(&file, "", "");
    assert_eq!(report.peer.unwrap().asn, 1853);
    assert_eq!(report.sent.announced, report.ipv4 as u64);
    assert!(report.ipv4 > 100_000, "{report:?}");
    // The router is of another AS, and the path began with the collector's peer.
    let any = held.set(0);
    assert_eq!(any.as_path().asns().take(2).collect::<Vec<_>>(), [65_100, 1853]);

    // Within the AS, the path is as recorded and there is a preference. All peers together have more prefixes.
    let (report, held) = replay(&file, "--asn 65100", "--peer all --next-hop map:10.9.0.0/16");
    assert_eq!((report.ipv4, report.peer), (112_988, None));
    let any = held.set(0);
    assert_eq!(any.as_path().first_as(), Some(1853));
    assert_eq!(any.get(ribtide_wire::bgp::attribute::code::LOCAL_PREF), Some(&[0, 0, 0, 100][..]));
    let inside: AnyPrefix = "10.9.0.0/16".parse().unwrap();
    for (set, _) in held.in_order::<V4>() {
        assert!(inside.contains(held.set(set).next_hop.addr()));
    }
}

#[test]
fn a_recorded_stream_arrives_in_order() {
    let Some(data) = data::folder() else { return };
    let (report, _) = replay(&data.join("mrt/updates.20160811.1600.gz"), "", "--next-hop self");
    assert!(report.sent.announced > 39_000 && report.sent.withdrawn > 1_900, "{report:?}");
    assert!(report.ipv4 > 1000 && report.ipv6 > 50, "{report:?}");
}

/// A file made here: two peers, two families, a table and then a stream.
fn made_file() -> (tempfile::TempDir, PathBuf) {
    let peer =
        |asn: u32, address: &str| Peer { router_id: asn.into(), address: address.parse().unwrap(), asn };
    let peers = [peer(64_600, "192.0.2.1"), peer(64_601, "2001:db8::1")];
    let path = |asn: u32| [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1][..], &asn.to_be_bytes()].concat();
    let four = [path(64_600), vec![0x40, 3, 4, 192, 0, 2, 1]].concat();
    let six = [
        path(64_601),
        vec![0x80, 14, 17, 16],
        "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec(),
    ]
    .concat();
    let mut bytes = Vec::new();
    mrt::peer_index_table(&mut bytes, 1, [192, 0, 2, 255].into(), &peers);
    for i in 0..1000u32 {
        let prefix = |text: String| text.parse::<AnyPrefix>().unwrap();
        let entry = (0, 1, four.as_slice());
        mrt::rib(&mut bytes, 1, i, prefix(format!("{}.{}.0.0/16", 20 + i / 256, i % 256)), &[entry]);
        mrt::rib(&mut bytes, 1, i, prefix(format!("2001:db8:{i:x}::/48")), &[(1, 1, &six)]);
    }
    let session = Bgp4mp {
        peer_asn: 64_600,
        local_asn: 64_999,
        interface: 0,
        peer: peers[0].address,
        local: "192.0.2.255".parse().unwrap(),
    };
    let mut update = Vec::new();
    let gone: Prefix<V4> = "20.0.0.0/16".parse().unwrap();
    ribtide_wire::bgp::build::withdraw([gone], 4096, &mut update);
    mrt::message(&mut bytes, 2, &session, &update);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made.mrt");
    std::fs::write(&file, bytes).unwrap();
    (folder, file)
}

#[test]
fn a_made_file_arrives_and_peers_can_be_chosen() {
    let (_folder, file) = made_file();
    let (report, _) = replay(&file, "", "--peer all");
    assert_eq!((report.ipv4, report.ipv6), (999, 1000));
    assert_eq!((report.sent.announced, report.sent.withdrawn), (2000, 1));
    let (report, held) = replay(&file, "", "--peer 2001:db8::1 --prepend never");
    assert_eq!((report.ipv4, report.ipv6), (0, 1000));
    assert_eq!(held.set(0).as_path().to_string(), "64601");
    let (report, _) = replay(&file, "", "--peer 0");
    assert_eq!((report.ipv4, report.ipv6), (999, 0));
}

#[test]
fn a_cut_file_is_played_to_the_cut() {
    let (folder, file) = made_file();
    let bytes = std::fs::read(&file).unwrap();
    let cut = folder.path().join("cut.mrt");
    std::fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let (report, _) = replay(&cut, "", "--peer all");
    assert_eq!((report.ipv4, report.ipv6), (1000, 1000));
    let message = report.file.cut.unwrap().to_string();
    assert!(message.starts_with("the file ends in the middle of record 2002 at byte "), "{message}");
    assert!(report.to_string().contains(&message));
}

#[test]
fn a_made_up_table_arrives_from_every_sender_and_survives_churn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let receivers = options::<Sink>("--listen 127.0.0.1:0 --receivers 3 --table --quiet --wait 20").options;
    let line = format!(
        "--to {to} --from 127.0.0.11 --senders 3 --asn-per-sender --ipv4 20000 --ipv6 5000 \
         --churn 30 --churn-rounds 2 --quiet"
    );
    let senders = options::<Blast>(&line).options;
    let bound = sink::ListeningSink::on(&receivers, listener);
    let (sink, blast) = both(bound, || blast::Blast::connect(&senders).unwrap());
    let report = blast.send().unwrap();
    assert_eq!(report.sent.announced, 3 * 25_000);
    assert!(report.churn.withdrawn > 2 * 3 * 25_000 * 29 / 100, "{report:?}");
    assert_eq!(report.churn.withdrawn, report.churn.announced);
    let all = report.sent.updates + report.churn.updates;
    let deadline = Instant::now() + Duration::from_secs(60);
    while sink.report().receivers.iter().map(|r| r.updates).sum::<u64>() < all {
        assert!(Instant::now() < deadline, "not all UPDATEs arrived: {:?}", sink.report());
        std::thread::sleep(Duration::from_millis(10));
    }

    let expected = blast.expected();
    assert_eq!(expected.total(), 25_000);
    // The best path of every prefix by arrival, computed independently.
    let mut best: Vec<(AnyPrefix, (usize, u8, Ipv4Addr), IpAddr)> = Vec::new();
    for (index, session) in sink.sessions().enumerate() {
        let peer = session.peer();
        let sender = blast.sessions().iter().position(|s| s.peer().local == peer.remote).unwrap();
        assert_eq!(peer.asn, 65_100 + sender as u32);
        sink.routes(index, |held| {
            let held = held.unwrap();
            for_each_family!(F => check_feed::<F>(held, &blast, sender));
            for_each_family!(F => {
                for (set, prefix) in held.in_order::<F>() {
                    let set = held.set(set);
                    let rank = (set.as_path().asns().count(), set.origin() as u8, peer.router_id);
                    best.push((prefix.any(), rank, set.next_hop.addr()));
                }
            });
        });
    }
    best.sort_unstable();
    best.dedup_by_key(|(prefix, _, _)| *prefix);
    let (mut trie4, mut trie6) = (PrefixTable::<V4, IpAddr>::default(), PrefixTable::<V6, IpAddr>::default());
    for (prefix, _, next_hop) in best {
        match prefix {
            AnyPrefix::V4(p) => trie4.insert(p, next_hop),
            AnyPrefix::V6(p) => trie6.insert(p, next_hop),
        };
    }
    let lookup = |addr: IpAddr| match addr {
        IpAddr::V4(_) => trie4.longest_match(addr).map(|(_, next_hop)| *next_hop),
        IpAddr::V6(_) => trie6.longest_match(addr).map(|(_, next_hop)| *next_hop),
    };
    let probes = expected.probes::<V4>().chain(expected.probes::<V6>());
    let result = expected.check(probes.map(|address| (address, lookup(address))));
    assert_eq!((result.right, result.wrong), (25_000, 0), "{:?}", result.examples);
    assert_eq!(expected.expected_next_hop("127.0.0.1".parse().unwrap()), None);
}

/// Every prefix of the table is held with just the attributes that the sender's feed gives it.
fn check_feed<F: Family>(held: &Routes, blast: &blast::Blast, sender: usize) {
    let feed = blast.feed(sender);
    let (mut path, mut block) = (FeedPath::default(), Vec::new());
    for (group, prefixes) in feed.groups::<F>() {
        feed.path::<F>(group, &mut path);
        block.clear();
        path.encode(&mut block);
        for prefix in prefixes {
            let set = held.get(*prefix).unwrap_or_else(|| panic!("{prefix} did not arrive"));
            assert_eq!((set.next_hop.addr(), &set.block), (path.next_hop, &block), "{prefix}");
        }
    }
    assert_eq!(held.count::<F>(), blast.table().count::<F>());
}

#[test]
fn the_sink_ends_when_it_has_enough_and_reports_a_session_that_ends() {
    let (bound, at) = listen("127.0.0.1", "--until-prefixes 1000 --until-idle 0.2");
    let line = format!("--to {at} --ipv4 1000 --quiet --once --hold-time 3");
    let senders = options::<Blast>(&line.replace("--once", "")).options;
    let (sink, blast) = both(bound, || blast::Blast::connect(&senders).unwrap());
    blast.send().unwrap();
    sink.wait().unwrap();
    assert_eq!(sink.report().receivers[0].held, Some(1000));
    // Longer than the hold time: keepalives go both ways.
    std::thread::sleep(Duration::from_secs(4));
    sink.wait().unwrap();
    drop(blast);
    let end = sink.sessions().next().unwrap().wait_end(Some(Duration::from_secs(5)));
    assert_eq!(end.unwrap().to_string(), "it sent NOTIFICATION 6/2, cease: administrative shutdown");

    let (bound, at) = listen("127.0.0.1", "--until-prefixes 1000");
    let run = options::<Blast>(&format!("--to {at} --ipv4 10 --quiet --once")).options;
    let (sink, _) = both(bound, || blast::run(&run).unwrap());
    let error = sink.wait().unwrap_err().to_string();
    assert!(error.contains("ended: it sent NOTIFICATION 6/2, cease: administrative shutdown"), "{error}");
}

#[test]
fn a_sender_learns_why_its_session_ended() {
    let (bound, at) = listen("127.0.0.1", "");
    let senders = options::<Blast>(&format!("--to {at} --ipv4 500000 --quiet")).options;
    let (sink, blast) = both(bound, || blast::Blast::connect(&senders).unwrap());
    drop(sink);
    let error = blast.send().unwrap_err().to_string();
    assert!(error.contains("NOTIFICATION 6/2, cease: administrative shutdown"), "{error}");
}

#[test]
fn a_route_refresh_gets_all_routes() {
    let (bound, at) = listen("127.0.0.1", "");
    let senders = options::<Blast>(&format!("--to {at} --ipv4 1000 --ipv6 100 --quiet --hold 3")).options;
    let (sink, blast) = both(bound, || blast::Blast::connect(&senders).unwrap());
    blast.send().unwrap();
    wait_end_of_rib(&sink, 0);
    let before = sink.report().receivers[0].announced;
    let mut refresh = Vec::new();
    RouteRefresh { afi: 1, safi: 1, kind: RefreshKind::Request }.write(&mut refresh);
    sink.sessions().next().unwrap().send(&refresh).unwrap();
    blast.stay().unwrap();
    assert_eq!((before, sink.report().receivers[0].announced), (1100, 2100));
}

#[test]
fn what_goes_wrong_is_a_sentence() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = |e: Error| e.to_string();
    let blast_error = |line: &str| text(blast::run(&options::<Blast>(line).options).unwrap_err());
    let error = blast_error(&format!("--to {closed} --ipv4 1"));
    assert!(error.starts_with(&format!("cannot connect to {closed}: Connection refused")), "{error}");
    assert!(error.contains("--wait SECONDS"), "{error}");
    assert!(blast_error("--to nowhere --ipv4 1").starts_with("\"nowhere\" is not an address and a port"));
    assert!(blast_error(&format!("--to {closed} --senders 2 --ipv4 1")).contains("--from 127.0.0.2"));
    let missing = options::<Replay>(&format!("/does/not/exist.mrt --to {closed}")).options;
    let error = text(replay::run(&missing).unwrap_err());
    assert!(error.starts_with("cannot read /does/not/exist.mrt: No such file"), "{error}");

    // A file that is no MRT file, and one with nothing in it.
    let folder = tempfile::tempdir().unwrap();
    for (name, content, expected) in [
        (
            "text.mrt",
            "this is not an MRT file at all, only text",
            "text.mrt: record 1 at byte 0: a record claims",
        ),
        ("empty.mrt", "", "empty.mrt has no IPv4 or IPv6 unicast routes to play"),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        let (bound, at) = listen("127.0.0.1", "");
        let options = options::<Replay>(&format!("{} --to {at} --quiet", file.display())).options;
        let (_sink, mut replay) = both(bound, || replay::Replay::connect(&options).unwrap());
        let error = text(replay.play().unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    let (bound, at) = listen("127.0.0.1", "--router-id 198.18.0.1");
    let error = std::thread::scope(|scope| {
        let opening = scope.spawn(|| bound.open().map(drop).unwrap_err());
        let error = blast_error(&format!("--to {at} --ipv4 1 --router-id 198.18.0.1"));
        opening.join().unwrap();
        error
    });
    assert!(error.contains("bad BGP identifier"), "{error}");
    assert!(sink::ListeningSink::new(&options::<Sink>(&format!("--listen {}", at)).options).is_ok());
}
