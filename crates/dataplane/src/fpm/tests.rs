//! A server on the loopback that keeps what it is told, as `fpmsyncd` would.

mod model;

use super::super::{DataplaneSink, FEEDBACK, ToRib};
use super::sent_state::Meaning;
use super::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::{FibBatch, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol, UrgentOp, Vrf, VrfId};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_wire::fpm::{write_delete_next_hop, write_offload_reply, write_route, write_start_of_replies};
use ribtide_wire::netlink::numbers::RTM_F_OFFLOAD;
use ribtide_wire::netlink::{Forward, Hop, Hops, NextHops, Route, RouteKind, Via};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

/// What the server has, as text.
#[derive(Default)]
struct Server {
    routes: BTreeMap<String, String>,
    objects: BTreeMap<u32, String>,
    /// Every id that ever was a single object: it may never mean something else.
    singles: BTreeMap<u32, String>,
    /// How often it was said that the end will be marked, and how often it was.
    sessions_begun: usize,
    replays_ended: usize,
}

impl Server {
    fn take(&mut self, message: &FpmMessage<'_>) {
        match message {
            FpmMessage::NewRoute(route) => {
                assert_eq!(route.table, 0);
                self.routes.insert(route.prefix.to_string(), self.show(route));
            }
            FpmMessage::DelRoute(route) => {
                assert!(
                    self.routes.remove(&route.prefix.to_string()).is_some(),
                    "deleted {} twice",
                    route.prefix
                );
            }
            FpmMessage::NewNextHop(object) => {
                let text = match object.forward {
                    Forward::Via(_, via) => {
                        let gateway = via.gateway.map_or(String::new(), |g| g.to_string());
                        let text = format!("{gateway}@{}", via.ifindex);
                        let first = self.singles.entry(object.id).or_insert_with(|| text.clone());
                        assert_eq!(*first, text, "an id changed its meaning");
                        text
                    }
                    Forward::Group(members) => members
                        .map(|m| {
                            format!("{}*{}", self.objects.get(&m.id).expect("member before group"), m.weight)
                        })
                        .collect::<Vec<_>>()
                        .join(" "),
                    other => panic!("{other:?}"),
                };
                self.objects.insert(object.id, text);
            }
            FpmMessage::Multipart { .. } => self.sessions_begun += 1,
            FpmMessage::Done(_) => self.replays_ended += 1,
            FpmMessage::DelNextHop(id) => {
                assert!(self.objects.remove(id).is_some(), "deleted object {id} twice");
                let used = format!("by {id}");
                assert!(
                    !self.routes.values().any(|r| r.ends_with(&used)),
                    "deleted object {id}, which is used"
                );
            }
            other => panic!("{other:?}"),
        }
    }

    fn show(&self, route: &Route<'_>) -> String {
        let hops = match (route.kind, route.next_hops) {
            (RouteKind::Blackhole, NextHops::None) => "blackhole".into(),
            (_, NextHops::Id(id)) => format!("by {id}"),
            (_, NextHops::Inline(hops)) => text(hops),
            other => panic!("{other:?}"),
        };
        format!("{} {hops}", route.protocol)
    }
}

fn text(hops: Hops<'_>) -> String {
    let show = |h: ribtide_wire::netlink::Hop| match h.via.gateway {
        Some(g) => format!("{g}@{}*{}", h.via.ifindex, h.weight),
        None => format!("@{}*{}", h.via.ifindex, h.weight),
    };
    hops.map(show).collect::<Vec<_>>().join(" ")
}

fn batch() -> FibBatch {
    FibBatch::default()
}

fn hop(gateway: &str, interface: u32, weight: u16) -> FibHop {
    FibHop { gateway: Some(gateway.parse().unwrap()), interface, weight, onlink: false }
}

fn group(mut batch: FibBatch, id: u32, hops: &[FibHop]) -> FibBatch {
    let content = if hops.is_empty() { FibGroup::Blackhole } else { FibGroup::Hops(hops.to_vec()) };
    batch.groups.push(GroupOp { id: GroupId(id), content, source: None });
    batch
}

fn route(mut batch: FibBatch, prefix: &str, group: Option<u32>) -> FibBatch {
    let (group, protocol) = (group.map(GroupId), Protocol::BgpExternal);
    match prefix.parse().unwrap() {
        AnyPrefix::V4(prefix) => batch.routes.v4.push(FibRoute { prefix, group, protocol }),
        AnyPrefix::V6(prefix) => batch.routes.v6.push(FibRoute { prefix, group, protocol }),
    }
    batch
}

/// Applies a batch to the encoder and what it says to the server. Returns what could not be said.
fn feed(encoder: &mut Encoder, server: &mut Server, batch: &FibBatch) -> Vec<(AnyPrefix, String)> {
    let mut results = InstallResults::default();
    let mut bytes = Vec::new();
    encoder.handle(batch, &mut results, &mut |out| bytes.append(out));
    let mut rest = &bytes[..];
    while let Some(f) = frame(rest).unwrap() {
        f.messages().for_each(|m| server.take(&m.unwrap()));
        rest = &rest[f.len..];
    }
    assert!(rest.is_empty());
    results.ack(7, batch.seq).failed.into_iter().map(|(route, why)| (route.prefix, why)).collect()
}

fn first_batches() -> FibBatch {
    let b = group(batch(), 1, &[hop("10.0.0.2", 4, 1), hop("10.0.1.2", 5, 3)]);
    let b = group(b, 2, &[hop("2001:db8::2", 4, 1)]);
    let b = group(b, 3, &[]);
    let b = route(b, "192.0.2.0/24", Some(1));
    let b = route(b, "198.51.100.0/24", Some(2));
    let b = route(b, "203.0.113.0/24", Some(3));
    let b = route(b, "2001:db8:aaaa::/48", Some(2));
    FibBatch { start_of_replay: true, end_of_replay: true, ..b }
}

fn routes(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(p, h)| (p.to_string(), h.to_string())).collect()
}

#[test]
fn inline_next_hops_follow_their_group() {
    let (mut encoder, mut server) = (Encoder::new(Style::Inline, Instant::now()), Server::default());
    assert_eq!(feed(&mut encoder, &mut server, &first_batches()), []);
    assert_eq!(
        server.routes,
        routes(&[
            ("192.0.2.0/24", "186 10.0.0.2@4*1 10.0.1.2@5*3"),
            ("198.51.100.0/24", "186 2001:db8::2@4*1"),
            ("203.0.113.0/24", "186 blackhole"),
            ("2001:db8:aaaa::/48", "186 2001:db8::2@4*1"),
        ])
    );
    // A change of a group is a change of each of its routes; what is deleted and re-made in one batch stays.
    let b = group(batch(), 2, &[hop("2001:db8::3", 4, 1)]);
    let b = group(b, 3, &[hop("10.0.0.9", 4, 1)]);
    let b = route(b, "192.0.2.0/24", None);
    feed(&mut encoder, &mut server, &b);
    assert_eq!(
        server.routes,
        routes(&[
            ("198.51.100.0/24", "186 2001:db8::3@4*1"),
            ("203.0.113.0/24", "186 10.0.0.9@4*1"),
            ("2001:db8:aaaa::/48", "186 2001:db8::3@4*1"),
        ])
    );
    assert!(server.objects.is_empty());
    // What was never told is not deleted.
    feed(&mut encoder, &mut server, &route(batch(), "192.0.2.0/24", None));
}

#[test]
fn next_hop_objects_are_told_before_and_deleted_after_their_use() {
    let (mut encoder, mut server) = (Encoder::new(Style::Objects, Instant::now()), Server::default());
    feed(&mut encoder, &mut server, &first_batches());
    assert_eq!(server.routes["192.0.2.0/24"], "186 by 1");
    assert_eq!(server.routes["203.0.113.0/24"], "186 blackhole");
    assert_eq!(server.objects[&1], "10.0.0.2@4*1 10.0.1.2@5*3");
    assert_eq!(server.objects.len(), 5);
    // A group changes: its routes are not sent again. It becomes a blackhole: they are.
    let mut b = group(batch(), 1, &[hop("10.0.0.2", 4, 1), hop("10.0.1.3", 5, 300)]);
    b = group(b, 2, &[]);
    feed(&mut encoder, &mut server, &b);
    assert_eq!(server.objects[&1], "10.0.0.2@4*1 10.0.1.3@5*256");
    assert_eq!(server.routes["198.51.100.0/24"], "186 blackhole");
    assert_eq!(server.objects.len(), 3);
    let mut b = route(batch(), "192.0.2.0/24", None);
    b.after.push(GroupId(1));
    feed(&mut encoder, &mut server, &b);
    assert!(server.objects.is_empty());

    // An interface without a gateway is named by its single object, whatever it was before and becomes after.
    let link = FibHop { gateway: None, ..hop("::", 6, 1) };
    for (hops, by_group) in
        [(&[link][..], false), (&[hop("10.0.0.2", 4, 1)], true), (&[link], false), (&[], false)]
    {
        feed(&mut encoder, &mut server, &group(batch(), 2, hops));
        let route = &server.routes["198.51.100.0/24"];
        assert_eq!(route == "186 by 2", by_group, "{route}");
        assert_eq!(server.objects.contains_key(&2), by_group);
        let named = route.strip_prefix("186 by ").and_then(|id| server.objects.get(&id.parse().unwrap()));
        assert_eq!(named.is_some(), !hops.is_empty(), "{route} is by no object");
        assert_eq!(server.objects.len(), hops.len() + usize::from(by_group));
    }
}

#[test]
fn a_replay_deletes_what_is_gone_since() {
    for (style, objects) in [(Style::Inline, false), (Style::Objects, true)] {
        let (mut encoder, mut server) = (Encoder::new(style, Instant::now()), Server::default());
        feed(&mut encoder, &mut server, &first_batches());
        // The first replay breaks off; the second is complete.
        let b = group(batch(), 1, &[hop("10.0.0.2", 4, 1)]);
        feed(
            &mut encoder,
            &mut server,
            &FibBatch { start_of_replay: true, ..route(b, "192.0.2.0/24", Some(1)) },
        );
        let b = group(batch(), 1, &[hop("10.0.0.2", 4, 1)]);
        feed(
            &mut encoder,
            &mut server,
            &FibBatch { start_of_replay: true, ..route(b, "198.51.100.0/24", Some(1)) },
        );
        assert_eq!(server.routes.len(), 4);
        assert_eq!(server.replays_ended, 1);
        feed(&mut encoder, &mut server, &FibBatch { end_of_replay: true, ..batch() });
        assert_eq!(server.replays_ended, 2);
        let shown = if objects { "186 by 1" } else { "186 10.0.0.2@4*1" };
        assert_eq!(server.routes, routes(&[("198.51.100.0/24", shown)]));
        assert_eq!(server.objects.len(), if objects { 2 } else { 0 });
    }
}

#[test]
fn set_style_next_replay_refers_otherwise_and_leaves_no_object() {
    let (mut encoder, mut server) = (Encoder::new(Style::Inline, Instant::now()), Server::default());
    feed(&mut encoder, &mut server, &first_batches());
    let inline = server.routes.clone();
    encoder.set_style(Style::Objects);
    // A route is gone since.
    let mut later = first_batches();
    later.routes.v6.clear();
    feed(&mut encoder, &mut server, &later);
    assert_eq!(server.routes["192.0.2.0/24"], "186 by 1");
    assert_eq!((server.routes.len(), server.objects.len()), (3, 5));
    encoder.set_style(Style::Inline);
    feed(&mut encoder, &mut server, &first_batches());
    assert_eq!((&server.routes, server.objects.len()), (&inline, 0));
}

#[test]
fn a_route_too_long_for_the_server_fails_alone() {
    let hops: Vec<FibHop> = (0..700).map(|i| hop(&format!("2001:db8::{i:x}"), 4, 1)).collect();
    let b = group(group(batch(), 1, &hops), 2, &[hop("10.0.0.2", 4, 1)]);
    let b = route(route(b, "2001:db8:aaaa::/48", Some(1)), "192.0.2.0/24", Some(2));
    let b = route(b, "198.51.100.0/24", Some(9));
    let (mut encoder, mut server) = (Encoder::new(Style::Inline, Instant::now()), Server::default());
    let failed = feed(&mut encoder, &mut server, &FibBatch { start_of_replay: true, ..b });
    let prefixes: BTreeSet<String> = failed.iter().map(|(p, _)| p.to_string()).collect();
    assert_eq!(prefixes, BTreeSet::from(["198.51.100.0/24".into(), "2001:db8:aaaa::/48".into()]));
    assert_eq!(server.routes.len(), 1);
}

/// A client wired as the router does it.
struct Wired {
    handle: FpmHandle,
    batches: Sender<Arc<FibBatch>>,
    urgent: Sender<Vec<UrgentOp>>,
    said: Receiver<RibIn>,
    confirms: Arc<AtomicBool>,
    stop: Stop,
}

fn wired(server: SocketAddr) -> Wired {
    wired_to(server, false)
}

/// `confirms`: BGP waits for what the client confirms.
fn wired_to(server: SocketAddr, confirms: bool) -> Wired {
    let rings = Rings::default();
    let (feedback, said) = rings.bounded("feedback", FEEDBACK);
    let confirms = Arc::new(AtomicBool::new(confirms));
    let rib = ToRib { failures: feedback.clone(), feedback, confirms: confirms.clone() };
    let stop = Stop::default();
    let meter = Meters::default().meter("fpm");
    let (channel, DataplaneSink { batches, urgent }) =
        RibChannel::new(7, "fpm", &rings, rib, meter, stop.clone());
    let handle =
        start_with_retry("fpm".into(), server, false, 60, channel, Duration::from_millis(20)).unwrap();
    Wired { handle, batches, urgent, said, confirms, stop }
}

/// Reads from the client until `enough` says so.
fn read_until(stream: &mut TcpStream, server: &mut Server, mut enough: impl FnMut(&Server) -> bool) {
    let (mut buf, mut chunk) = (Vec::new(), vec![0; 65536]);
    while !enough(server) {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "the client closed the connection");
        buf.extend_from_slice(&chunk[..n]);
        let mut used = 0;
        while let Some(f) = frame(&buf[used..]).unwrap() {
            f.messages().for_each(|m| server.take(&m.unwrap()));
            used += f.len;
        }
        buf.drain(..used);
    }
}

#[test]
fn a_session_a_break_and_a_replay() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = wired(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    let mut server = Server::default();
    // Before anything is announced.
    read_until(&mut stream, &mut server, |s| s.sessions_begun == 1);
    client.batches.send(Arc::new(FibBatch { seq: 1, ..first_batches() })).unwrap();
    read_until(&mut stream, &mut server, |s| s.routes.len() == 4);
    assert!(matches!(client.said.recv().unwrap(), RibIn::Ack(a) if a.seq == 1 && a.failed.is_empty()));

    // A group changes ahead of what waits; that finishes no batch.
    let op = group(batch(), 1, &[hop("10.0.1.2", 5, 3)]).groups.remove(0);
    client.urgent.send(vec![UrgentOp { after: 1, made: 1, op }]).unwrap();
    let only = |s: &Server| s.routes["192.0.2.0/24"].ends_with(" 10.0.1.2@5*1");
    read_until(&mut stream, &mut server, only);
    // What is written is counted a moment later.
    while client.handle.read().routes < 5 {
        std::thread::sleep(Duration::from_millis(1));
    }

    // Replies: one in hardware, after the one about what it was before; one refused.
    let mut replies = Vec::new();
    write_offload_reply(&mut replies, "192.0.2.0/24".parse().unwrap(), 0, 186, true);
    write_offload_reply(&mut replies, "192.0.2.0/24".parse().unwrap(), 0, 186, true);
    write_delete_next_hop(&mut replies, 1); // of no meaning in this direction
    write_offload_reply(&mut replies, "198.51.100.0/24".parse().unwrap(), 0, 186, false);
    stream.write_all(&replies).unwrap();
    let RibIn::Ack(ack) = client.said.recv().unwrap() else { panic!("no failure reported") };
    assert_eq!((ack.seq, ack.failed[0].0), (0, "198.51.100.0/24".parse::<AnyPrefix>().unwrap().into()));
    let reading = client.handle.read();
    assert_eq!((reading.offloaded, reading.offload_failed, reading.unmatched), (1, 1, 1));
    assert_eq!(reading.routes, 5);
    assert!(reading.connected);
    // The other way round: what was refused is in hardware after all.
    let mut replies = Vec::new();
    write_offload_reply(&mut replies, "198.51.100.0/24".parse().unwrap(), 0, 186, true);
    write_offload_reply(&mut replies, "192.0.2.0/24".parse().unwrap(), 0, 186, true);
    stream.write_all(&replies).unwrap();
    let RibIn::Ack(ack) = client.said.recv().unwrap() else { panic!("nothing was taken back") };
    assert_eq!((ack.seq, ack.failed.len()), (0, 0));
    assert_eq!(ack.installed, ["198.51.100.0/24".parse::<AnyPrefix>().unwrap().into()]);

    // The server goes, with what it knows kept; a route goes meanwhile.
    drop(stream);
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneDown(7)));
    client.batches.send(Arc::new(route(batch(), "192.0.2.0/24", None))).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    let mut again = first_batches();
    again.routes.v4.remove(0);
    client.batches.send(Arc::new(FibBatch { seq: 2, ..again })).unwrap();
    read_until(&mut stream, &mut server, |s| s.routes.len() == 3);
    assert!(!server.routes.contains_key("192.0.2.0/24"));
    assert_eq!(server.sessions_begun, 2);
    assert_eq!(client.handle.read().connects, 2);

    // Replies that come too late, or are about something else: a route that is gone, another protocol's, another VRF's,
    // one by a next hop that it no longer has. And then one that is right, with the next hop that it has.
    let before = client.handle.read();
    let offloaded = |prefix: &str, gateway: &str| {
        let via = Via { gateway: Some(gateway.parse().unwrap()), ifindex: 4, onlink: false };
        let hops = [Hop { via, weight: 1 }];
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        let mut out = Vec::new();
        let route = Route { flags: RTM_F_OFFLOAD, ..Route::new(prefix.parse().unwrap(), 0, 186, next_hops) };
        write_route(&mut out, &route).unwrap();
        out
    };
    let mut replies = Vec::new();
    write_offload_reply(&mut replies, "192.0.2.0/24".parse().unwrap(), 0, 186, false);
    write_offload_reply(&mut replies, "198.51.100.0/24".parse().unwrap(), 0, 4, false);
    write_offload_reply(&mut replies, "198.51.100.0/24".parse().unwrap(), 77, 186, false);
    replies.extend(offloaded("198.51.100.0/24", "10.0.0.99"));
    replies.extend(offloaded("198.51.100.0/24", "2001:db8::2"));
    stream.write_all(&replies).unwrap();
    while client.handle.read().offloaded == before.offloaded {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = client.handle.read();
    let counts = (after.offload_failed, after.offloaded, after.unmatched);
    assert_eq!(counts, (before.offload_failed, before.offloaded + 1, before.unmatched + 4));

    // A server that does not speak FPM is left.
    stream.write_all(&[1, 0, 0, 4]).unwrap();
    while !matches!(client.said.recv().unwrap(), RibIn::DataplaneDown(7)) {}
    assert_eq!(client.handle.read().errors, 1);
    client.stop.stop();
}

#[test]
fn a_server_that_does_not_read_stops_the_client_and_nothing_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = wired(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    let first = FibBatch { start_of_replay: true, ..group(batch(), 1, &[hop("10.0.0.2", 4, 1)]) };
    client.batches.send(Arc::new(first)).unwrap();
    // Far more than the sockets' buffers hold: the ring must fill.
    let page = |n: u32| {
        let mut b = FibBatch { seq: u64::from(n), ..batch() };
        for i in 0..20_000u32 {
            let prefix = ribtide_prefix::Prefix::new((n * 20_000 + i) << 4, 28);
            b.routes.v4.push(FibRoute { prefix, group: Some(GroupId(1)), protocol: Protocol::BgpExternal });
        }
        Arc::new(b)
    };
    let (mut sent, mut before) = (0, client.handle.read());
    loop {
        if client.batches.try_send(page(sent)).is_ok() {
            sent += 1;
            assert!(sent < 2000, "nothing stopped the client");
            continue;
        }
        // Full for now, or for good? Then it waits, and nothing leaves meanwhile.
        std::thread::sleep(Duration::from_millis(10));
        let now = client.handle.read();
        if now.stalled_us > before.stalled_us && now.bytes_sent == before.bytes_sent {
            break;
        }
        before = now;
    }
    // Replies are read although writing is stopped.
    let mut reply = Vec::new();
    write_offload_reply(&mut reply, "192.0.2.0/24".parse().unwrap(), 0, 186, true);
    stream.write_all(&reply).unwrap();
    while client.handle.read().unmatched == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut server = Server::default();
    let want = sent as usize * 20_000;
    read_until(&mut stream, &mut server, |s| s.routes.len() == want);
    client.stop.stop();
}

#[test]
fn where_bgp_waits_a_batch_is_done_when_its_routes_are_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = wired_to(listener.local_addr().unwrap(), true);
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    client.batches.send(Arc::new(FibBatch { seq: 1, ..first_batches() })).unwrap();
    let mut server = Server::default();
    read_until(&mut stream, &mut server, |s| s.routes.len() == 4);
    let prefixes: Vec<AnyPrefix> = server.routes.keys().map(|text| text.parse().unwrap()).collect();
    let mut replies = Vec::new();
    for (n, prefix) in prefixes.iter().enumerate() {
        write_offload_reply(&mut replies, *prefix, 0, 186, n > 0);
    }
    stream.write_all(&replies).unwrap();
    // What was refused comes before the number that it is an exception of, or with it.
    let mut failed = Vec::new();
    loop {
        let RibIn::Ack(ack) = client.said.recv().unwrap() else { panic!("no acknowledgement") };
        failed.extend(ack.failed.into_iter().map(|(prefix, _)| prefix));
        if ack.seq == 1 {
            break;
        }
    }
    assert_eq!(failed, [prefixes[0].into()]);
    client.stop.stop();
}

#[test]
fn vrfs_go_by_the_numbers_of_their_devices() {
    let red = Vrf { id: VrfId(1), table: 0, device: 41 };
    let mut encoder = Encoder::new(Style::Inline, Instant::now());
    let sent = encoder.sent_state();
    let mut say = |batch: FibBatch, vrf: Vrf| {
        let (mut bytes, mut lines) = (Vec::new(), Vec::new());
        encoder
            .handle(&FibBatch { vrf, ..batch }, &mut InstallResults::default(), &mut |out| bytes.append(out));
        let mut rest = &bytes[..];
        while let Some(f) = frame(rest).unwrap() {
            lines.extend(f.messages().map(|m| match m.unwrap() {
                FpmMessage::NewRoute(Route { prefix, table, next_hops: NextHops::Inline(hops), .. }) => {
                    format!("{prefix} in {table}: {}", text(hops))
                }
                FpmMessage::DelRoute(route) => format!("{} in {} gone", route.prefix, route.table),
                FpmMessage::Done(_) => "that is all".into(),
                other => panic!("{other:?}"),
            }));
            rest = &rest[f.len..];
        }
        lines
    };
    let default = Vrf::default();
    let (near, far) = ([hop("10.0.0.2", 3, 1)], [hop("10.0.0.2", 4, 1)]);
    let groups = || group(group(FibBatch { start_of_replay: true, ..batch() }, 1, &near), 9, &far);
    assert_eq!(say(route(groups(), "192.0.2.0/24", Some(1)), default), ["192.0.2.0/24 in 0: 10.0.0.2@3*1"]);
    let of_red = route(route(batch(), "192.0.2.0/24", Some(9)), "198.51.100.0/24", Some(9));
    let both = ["192.0.2.0/24 in 41: 10.0.0.2@4*1", "198.51.100.0/24 in 41: 10.0.0.2@4*1"];
    assert_eq!(say(of_red, red), both);
    // A reply says its table too.
    let reply = |table: u32, ifindex: u32| {
        let via = Via { gateway: Some("10.0.0.2".parse().unwrap()), ifindex, onlink: false };
        let hops = [Hop { via, weight: 1 }];
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        match sent.reply(&Route::new("192.0.2.0/24".parse().unwrap(), table, 186, next_hops)) {
            Meaning::Now(at) => Some(at.vrf),
            _ => None,
        }
    };
    assert_eq!(
        [reply(0, 3), reply(254, 3), reply(41, 4)],
        [Some(default.id), Some(default.id), Some(red.id)]
    );
    assert_eq!([reply(0, 4), reply(41, 3), reply(42, 4)], [None; 3]);
    // A group that begins to drop is told by its routes, of whichever VRF.
    let turned = say(group(batch(), 9, &near), default);
    assert_eq!(turned.len(), 2, "{turned:?}");
    assert!(turned.iter().all(|line| line.ends_with("in 41: 10.0.0.2@3*1")));
    // What a replay does not name goes, where it was.
    assert!(say(route(groups(), "192.0.2.0/24", Some(1)), default).len() == 1);
    say(route(batch(), "192.0.2.0/24", Some(9)), red);
    let end = FibBatch { end_of_replay: true, ..batch() };
    assert_eq!(say(end, default), ["198.51.100.0/24 in 41 gone", "that is all"]);
}

#[test]
fn both_ends_say_whether_routes_wait_for_the_chip() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = wired_to(listener.local_addr().unwrap(), true);
    let (mut stream, _) = listener.accept().unwrap();
    let said = |stream: &mut TcpStream| {
        let mut bytes = [0; 20];
        stream.read_exact(&mut bytes).unwrap();
        let FpmMessage::Multipart { ack } =
            frame(&bytes).unwrap().unwrap().messages().next().unwrap().unwrap()
        else {
            panic!("another message")
        };
        ack
    };
    let until = |replies: Option<When>, early: bool, disagrees: bool| {
        let seen = || {
            let reading = client.handle.read();
            (reading.replies, reading.is_early(), reading.disagreement.is_some())
        };
        while seen() != (replies, early, disagrees) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let say = |stream: &mut TcpStream, in_chip| {
        let mut bytes = Vec::new();
        write_start_of_replies(&mut bytes, in_chip);
        stream.write_all(&bytes).unwrap();
    };
    assert!(said(&mut stream));
    until(None, false, false);
    say(&mut stream, false);
    until(Some(When::AtOnce), true, true);
    say(&mut stream, true);
    until(Some(When::InChip), false, false);
    client.confirms.store(false, Relaxed);
    assert!(!said(&mut stream), "it is said again when it changes");
    until(Some(When::InChip), false, true);
    drop(stream);
    until(None, false, false);
    client.stop.stop();
}

#[test]
fn set_next_hop_groups_takes_a_new_connection_and_no_pause() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = wired(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    let mut server = Server::default();
    client.batches.send(Arc::new(FibBatch { seq: 1, ..first_batches() })).unwrap();
    read_until(&mut stream, &mut server, |s| s.routes.len() == 4);
    assert!(matches!(client.said.recv().unwrap(), RibIn::Ack(a) if a.seq == 1));
    client.handle.set_next_hop_groups(true);
    client.urgent.send(Vec::new()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneDown(7)));
    assert!(matches!(client.said.recv().unwrap(), RibIn::DataplaneUp(7)));
    client.batches.send(Arc::new(FibBatch { seq: 2, ..first_batches() })).unwrap();
    // The server has kept what it had.
    read_until(&mut stream, &mut server, |s| s.replays_ended == 2);
    assert_eq!((&*server.routes["192.0.2.0/24"], server.routes.len()), ("186 by 1", 4));
    client.stop.stop();
}
