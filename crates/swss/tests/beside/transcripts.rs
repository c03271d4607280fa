//! Requests of SONiC's real orchagent, recorded at SONiC's real syncd. They are not part of this
//! repository; without them these tests print that they are skipped.

use crate::rig::Rig;
use flate2::read::GzDecoder;
use ribtide_swss::beside::{Beside, BesideOut, from_zmq};
use ribtide_swss::json;
use ribtide_swss::orch::VidCounter;
use ribtide_swss::sai::text::Message;
use std::io::Read;
use std::path::PathBuf;

/// The text of a file of recorded data; `None` where it is absent.
pub(crate) fn read(name: &str) -> Option<String> {
    let data = std::env::var_os("RIBTIDE_DATA")
        .map(PathBuf::from)
        .unwrap_or_else(|| [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "data"].iter().collect());
    let Ok(file) = std::fs::File::open(data.join("sonic").join(name)) else {
        println!("skipped: {name} is absent");
        return None;
    };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    Some(text)
}

/// The value of a string of a JSON line, with its escapes undone.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("\"{name}\": "))?;
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let end = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        end
    })?;
    let quoted = format!("[{}]", &rest[..=end.0]);
    json::read_strings(&quoted)?.first().map(|text| text.to_string())
}

/// Whether a request is one that ribtide answers itself: the routes of RouteOrch.
fn is_swallowed(message: &Message) -> bool {
    let route = ["SAI_OBJECT_TYPE_ROUTE_ENTRY:", "SAI_OBJECT_TYPE_INSEG_ENTRY:"];
    message.op.starts_with("Sbulk") && route.iter().any(|prefix| message.key.starts_with(prefix))
}

/// Passes recorded requests and replies through, in order. Returns how many passed, and how many
/// were answered by ribtide.
fn pass(pairs: &[(Message, Message)]) -> (usize, usize) {
    let mut beside = Beside::new(Box::new(VidCounter::default()), 1);
    let (mut out, mut passed, mut swallowed) = (BesideOut::default(), 0, 0);
    for (n, (request, reply)) in pairs.iter().enumerate() {
        beside.client(n as u64, request.clone());
        beside.run(&mut out);
        if is_swallowed(request) {
            assert!(out.requests.is_empty(), "{request:?}");
            assert_eq!(out.to_client.pop(), Some((n as u64, reply.clone())), "as the chip replied");
            swallowed += 1;
            continue;
        }
        // A removal waits only for routes of ribtide, and there are none.
        assert_eq!(out.requests.pop().as_ref(), Some(request));
        assert!(beside.reply(reply.clone(), &mut out));
        beside.run(&mut out);
        assert_eq!(out.to_client.pop(), Some((n as u64, reply.clone())));
        assert!(out.requests.is_empty() && out.to_client.is_empty() && out.events.is_empty());
        passed += 1;
    }
    (passed, swallowed)
}

#[test]
fn whole_start_and_feed_over_redis_passes_unchanged() {
    let Some(text) = read("real-orchagent-start-and-feed/redis-channel.jsonl.gz") else { return };
    let mut pairs: Vec<(Message, Option<Message>)> = Vec::new();
    for line in text.lines() {
        let get = |name| field(line, name).unwrap();
        if get("q") == "ntf" {
            continue;
        }
        let message = Message { key: get("key"), value: get("val"), op: get("op").into() };
        match get("q").as_str() {
            "req" => pairs.push((message, None)),
            _ => pairs.last_mut().unwrap().1 = Some(message),
        }
    }
    let pairs: Vec<_> = pairs.into_iter().filter_map(|(request, reply)| Some((request, reply?))).collect();
    let (passed, swallowed) = pass(&pairs);
    assert!(passed > 1290 && swallowed == 21, "{passed} passed, {swallowed} did not");
}

#[test]
fn whole_start_and_feed_over_zmq_passes_byte_for_byte() {
    let Some(text) = read("zmq-passthrough/proxy.jsonl.gz") else { return };
    let mut pairs = Vec::new();
    for line in text.lines().filter(|line| line.contains("\"q\": \"orch\"")) {
        let (Some(request), Some(reply)) = (field(line, "m"), field(line, "r")) else { continue };
        // The recording cuts longer ones.
        if request.len() >= 20_000 || reply.len() >= 20_000 {
            continue;
        }
        let (request_message, reply_message) = (from_zmq(&request).unwrap(), from_zmq(&reply).unwrap());
        assert_eq!(request_message.to_zmq(), request);
        assert_eq!(reply_message.to_zmq(), reply);
        pairs.push((request_message, reply_message));
    }
    let (passed, swallowed) = pass(&pairs);
    assert!(passed > 1200 && swallowed > 10, "{passed} passed, {swallowed} did not");
}

/// The requests of a `sairedis.rec` that change something, in order.
pub(crate) fn recorded(text: &str) -> Vec<(String, &'static str, Vec<String>)> {
    let mut requests = Vec::new();
    for line in text.lines() {
        let mut parts = line.split('|').skip(1);
        let (Some(letter), Some(key)) = (parts.next(), parts.next()) else { continue };
        let op = match letter {
            "a" => "Snotify",
            "c" => "Screate",
            "s" => "Sset",
            "g" => "Sget",
            "r" => "Dremove",
            _ => continue,
        };
        let fields = parts.filter_map(|part| part.split_once('='));
        let fields = fields.flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect();
        requests.push((key.to_owned(), op, fields));
    }
    requests
}

#[test]
fn restarted_orchagent_leaves_ribtides_routes_in_place() {
    let Some(first) = read("orchagent-restart/first.sairedis.rec.gz") else { return };
    let Some(second) = read("orchagent-restart/second.sairedis.rec.gz") else { return };
    let mut rig = Rig::new();
    let replay = |rig: &mut Rig, text: &str| {
        for (key, op, fields) in recorded(text) {
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            rig.client(&key, op, &fields);
        }
    };
    replay(&mut rig, &first);
    let hops = rig.syncd.of("NEXT_HOP");
    let hops: Vec<String> = hops.iter().map(|hop| hop["SAI_NEXT_HOP_ATTR_IP"].clone()).collect();
    let v4: Vec<&String> = hops.iter().filter(|ip| ip.starts_with("10.0.0.")).collect();
    assert!(v4.len() >= 2, "{hops:?}");
    for n in 0..1000 {
        let row = format!("protocol=bgp nexthop={} ifname=Ethernet0 weight=1", v4[n % 2]);
        rig.route(&format!("100.{}.{}.0/24", n / 256, n % 256), &row);
    }
    let ecmp = format!("protocol=bgp nexthop={},{} ifname=Ethernet0,Ethernet0 weight=1,1", v4[0], v4[1]);
    rig.route("101.0.0.0/24", &ecmp);
    let before = rig.syncd.routes();
    let ours = |dest: &&String| dest.starts_with("100.") || dest.starts_with("101.");
    assert_eq!(before.keys().filter(ours).count(), 1001);
    rig.syncd.take_removed();
    replay(&mut rig, &second);
    // They were there throughout: no request took one out, nor did the end of the view.
    let removed = rig.syncd.take_removed();
    assert_eq!(removed.iter().filter(ours).collect::<Vec<_>>(), Vec::<&String>::new());
    let after = rig.syncd.routes();
    assert_eq!(after.keys().filter(ours).count(), 1001, "{:?}", rig.events);
    // Each still reaches the same address, and through objects that are there.
    let hops = rig.syncd.objects.iter();
    let ip_of = |oid: &String| {
        let key = format!("SAI_OBJECT_TYPE_NEXT_HOP:{oid}");
        hops.clone().find(|(other, _)| **other == key).map(|(_, hop)| hop["SAI_NEXT_HOP_ATTR_IP"].clone())
    };
    for n in [0, 1, 998, 999] {
        let target = &after[&format!("100.{}.{}.0/24", n / 256, n % 256)];
        assert_eq!(ip_of(target).as_ref(), Some(v4[n % 2]));
    }
    let members = rig.syncd.of("NEXT_HOP_GROUP_MEMBER");
    assert_eq!(members.len(), 2);
}
