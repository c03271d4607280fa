//! Messages of another implementation with their meaning: ExaBGP's encoding tests. They are not
//! part of this repository; without them, the test prints that it is skipped.

use crate::bgp::message::{MAX_LEN, MessageType, frame};
use crate::bgp::update::{Disposition, Update, UpdateContext, parse};
use crate::bgp::{Notification, build};
use ribtide_prefix::{AnyPrefix, Prefix, for_each_bgp_family};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One `raw` line, the command before it and the JSON after it, if there are any.
pub(super) struct Vector {
    pub(super) text: String,
    pub(super) command: Option<String>,
    pub(super) message: Vec<u8>,
    json: Option<Value>,
}

/// The files of ExaBGP's encoding tests, in order; `None` where they are absent.
pub(super) fn files() -> Option<Vec<PathBuf>> {
    let data = std::env::var_os("RIBTIDE_DATA")
        .map(PathBuf::from)
        .unwrap_or_else(|| [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "data"].iter().collect());
    let folder = std::fs::read_dir(data.join("wire/exabgp-encoding")).ok()?;
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    Some(files)
}

/// The vectors of one file: lines `NUMBER:cmd:…`, `NUMBER:raw:…` and `NUMBER:json:…`.
pub(super) fn read_file(name: &str, content: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    let mut command = None;
    for line in content.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(kind), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if number.starts_with('#') {
            continue;
        }
        match kind {
            "cmd" => command = Some(rest.to_string()),
            "raw" => {
                let digits: Vec<u8> = rest.bytes().filter(u8::is_ascii_hexdigit).collect();
                let message = digits
                    .chunks(2)
                    .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
                    .collect();
                let text = format!("{name}: {line}");
                vectors.push(Vector { text, command: command.take(), message, json: None });
            }
            "json" => vectors.last_mut().unwrap().json = serde_json::from_str(rest).ok(),
            _ => {}
        }
    }
    vectors
}

fn vectors() -> Option<Vec<Vector>> {
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        read_file(&name, &std::fs::read_to_string(&path).unwrap())
    };
    let messages = files()?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "ci"));
    Some(messages.flat_map(read).collect())
}

/// Prefixes by next hop, as text.
type Routes = BTreeMap<String, Vec<String>>;

/// The unicast routes of the JSON: announced and withdrawn; `None` with other families or several
/// paths per prefix.
fn meant(json: &Value) -> Option<(Routes, Vec<String>)> {
    let update = &json["neighbor"]["message"]["update"];
    let unicast = |section: &str| {
        let families = update[section].as_object().cloned().unwrap_or_default();
        families.keys().all(|k| k == "ipv4 unicast" || k == "ipv6 unicast").then_some(families)
    };
    let text = |item: &Value| {
        item.get("path-information")
            .is_none()
            .then(|| item["nlri"].as_str().unwrap().parse::<AnyPrefix>().unwrap().to_string())
    };
    let list = |items: &Value| items.as_array().unwrap().iter().map(text).collect::<Option<Vec<_>>>();
    let mut announced = Routes::new();
    for next_hops in unicast("announce")?.values() {
        for (next_hop, items) in next_hops.as_object().unwrap() {
            announced.entry(next_hop.clone()).or_default().extend(list(items)?);
        }
    }
    let mut withdrawn = Vec::new();
    for items in unicast("withdraw")?.values() {
        withdrawn.extend(list(items)?);
    }
    (!announced.is_empty() || !withdrawn.is_empty()).then_some((announced, withdrawn))
}

/// The same of a parsed UPDATE.
fn read(update: &Update<'_>) -> (Routes, Vec<String>) {
    let (mut announced, mut withdrawn) = (Routes::new(), Vec::new());
    for_each_bgp_family!(F => {
        withdrawn.extend(update.withdrawn::<F>().map(|p| p.to_string()));
        for prefix in update.announced::<F>() {
            let next_hop = update.next_hop::<F>().unwrap().addr().to_string();
            announced.entry(next_hop).or_default().push(prefix.to_string());
        }
    });
    (announced, withdrawn)
}

/// Writes the announced routes and reads them back.
fn round_trips(update: &Update<'_>, ctx: &UpdateContext) {
    let mut attributes = Vec::new();
    for attribute in update.attributes() {
        build::attribute(&mut attributes, attribute.flags, attribute.code, attribute.value);
    }
    for_each_bgp_family!(F => {
        let prefixes: Vec<Prefix<F>> = update.announced::<F>().collect();
        if let Some(next_hop) = update.next_hop::<F>() {
            let mut out = Vec::new();
            let packer = build::UpdatePacker::new(&attributes, next_hop, MAX_LEN);
            assert_eq!(packer.announce(prefixes.iter().copied(), &mut out), Ok(1));
            let body = frame(&out, MAX_LEN).unwrap().unwrap().body;
            let four_octet = UpdateContext { four_octet_as: true, ..*ctx };
            let again = parse(body, &four_octet).unwrap();
            assert_eq!(again.announced::<F>().collect::<Vec<_>>(), prefixes);
            assert_eq!(again.next_hop::<F>(), Some(next_hop));
            assert!(again.attributes().eq(update.attributes()));
        }
    });
}

#[test]
fn exabgp_updates_are_read_as_they_were_meant() {
    let Some(vectors) = vectors() else {
        println!(
            "skipped: no ExaBGP vectors; set RIBTIDE_DATA to the directory that has wire/exabgp-encoding"
        );
        return;
    };
    let mut compared = 0;
    for Vector { text, message, json, .. } in &vectors {
        let frame = match frame(message, MAX_LEN) {
            Ok(Some(frame)) if frame.kind == MessageType::Update => frame,
            Ok(Some(_)) => continue,
            other => panic!("{text}: {other:?}"),
        };
        let ctx = UpdateContext::new(!text.contains("no-asn4"), false);
        let parsed = parse(frame.body, &ctx);
        let Some((announced, withdrawn)) = json.as_ref().and_then(meant) else { continue };
        compared += 1;
        match &parsed {
            // Well-known and yet unknown: RFC 4271 section 6.3.
            Err(Notification { subcode: 2, data, .. }) => {
                assert_eq!(&data[..2], [data[0] & 0x7f, 0x99], "{text}")
            }
            // IPv6 routes with an IPv4 next hop have no capability that allows them.
            Err(Notification { subcode: 9, .. }) => {
                assert!(announced.keys().all(|n| n.parse::<std::net::Ipv4Addr>().is_ok()), "{text}");
                assert!(announced.values().flatten().all(|p| p.contains(':')), "{text}");
            }
            Err(notification) => panic!("{text}: {notification}"),
            Ok(update) if announced.contains_key("255.255.255.255") => {
                assert!(matches!(update.disposition(), Disposition::TreatAsWithdraw { .. }), "{text}");
            }
            Ok(update) => {
                assert_eq!(update.disposition(), Disposition::Normal, "{text}");
                assert_eq!(update.discarded(), [], "{text}");
                assert_eq!(read(update), (announced, withdrawn), "{text}");
                round_trips(update, &ctx);
            }
        }
    }
    println!("{} messages, {compared} compared", vectors.len());
    assert!(compared >= 50, "only {compared} of {} messages could be compared", vectors.len());
}

#[test]
fn exabgp_end_of_rib_markers() {
    let Some(vectors) = vectors() else {
        println!("skipped: no ExaBGP vectors");
        return;
    };
    let ctx = UpdateContext::new(true, false);
    let ends = |family| {
        let is_end = |v: &&Vector| {
            let body = frame(&v.message, MAX_LEN).unwrap().unwrap().body;
            parse(body, &ctx).is_ok_and(|u| u.end_of_rib() == Some(family))
        };
        vectors.iter().filter(is_end).count()
    };
    assert!(ends(ribtide_prefix::AfiSafi::Ipv4Unicast) >= 5);
    assert!(ends(ribtide_prefix::AfiSafi::Ipv6Unicast) >= 5);
}
