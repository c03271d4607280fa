//! Every file of recorded routes, compared line by line with another decoder (`bgpdump -m`).

use ribtide_bench::mrt_file::MrtFile;
use ribtide_bench::recording::{self, Event};
use ribtide_bench::routes::PathAttributes;
use ribtide_prefix::{AnyPrefix, Family, for_each_family};
use ribtide_wire::bgp::attribute::{Aggregator, Communities, code, number};
use ribtide_wire::mrt::Body;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

mod data;

/// The lines of the expected text, those of state changes apart.
fn expected(path: &Path) -> (Vec<String>, Vec<String>) {
    let file = flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap());
    let lines = BufReader::new(file).lines().map(|l| l.unwrap());
    let (states, routes) = lines.partition(|l| l.contains("|STATE|"));
    (states, routes)
}

/// What `bgpdump -m` writes for an event.
fn lines(event: &Event<'_>, kind: &str, out: &mut Vec<String>) {
    for_each_family!(F => withdrawn::<F>(event, kind, out));
    for_each_family!(F => announced::<F>(event, kind, out));
}

fn withdrawn<F: Family>(event: &Event<'_>, kind: &str, out: &mut Vec<String>) {
    for prefix in event.update.withdrawn::<F>() {
        out.push(format!("{kind}|{}|W|{}|{}|{prefix}", event.seconds, event.peer.address, event.peer.asn));
    }
}

fn announced<F: Family>(event: &Event<'_>, kind: &str, out: &mut Vec<String>) {
    let Some(set) = PathAttributes::of::<F>(event.update) else { return };
    let action = if event.table { "B" } else { "A" };
    let origin = ["IGP", "EGP", "INCOMPLETE"][set.origin() as usize];
    let value = |code| set.get(code).and_then(number).unwrap_or(0);
    let mut communities = String::new();
    for community in Communities::new(set.get(code::COMMUNITIES).unwrap_or_default()).iter() {
        let separator = if communities.is_empty() { "" } else { " " };
        write!(communities, "{separator}{}", community_text(community.0)).unwrap();
    }
    let atomic = if set.get(code::ATOMIC_AGGREGATE).is_some() { "AG" } else { "NAG" };
    let aggregator = set.get(code::AGGREGATOR).and_then(Aggregator::from_value);
    let aggregator = aggregator.map_or(String::new(), |a| a.to_string());
    for prefix in event.update.announced::<F>() {
        let id = event.path_id.map_or(String::new(), |id| format!("|{id}"));
        out.push(format!(
            "{kind}|{}|{action}|{}|{}|{prefix}{id}|{}|{origin}|{}|{}|{}|{communities}|{atomic}|{aggregator}|",
            event.seconds,
            event.peer.address,
            event.peer.asn,
            set.as_path(),
            set.next_hop.addr(),
            value(code::LOCAL_PREF),
            value(code::MED),
        ));
    }
}

fn community_text(community: u32) -> String {
    match community {
        0xffff_ff01 => "no-export".into(),
        0xffff_ff02 => "no-advertise".into(),
        0xffff_ff03 => "local-AS".into(),
        c => format!("{}:{}", c >> 16, c & 0xffff),
    }
}

/// The same line with addresses written as we write them, a next hop that is not there as the peer, and without the
/// aggregator "0 0.0.0.0", which is no aggregator (RFC 7607). An announcement with next hop `::` withdraws (RFC 7606).
fn normal(line: &str) -> String {
    let mut fields: Vec<String> = line.split('|').map(str::to_string).collect();
    for field in &mut fields {
        if let Ok(addr) = field.parse::<IpAddr>() {
            *field = addr.to_string();
        } else if let Ok(prefix) = field.parse::<AnyPrefix>() {
            *field = prefix.to_string();
        } else if field == "0 0.0.0.0" {
            field.clear();
        }
    }
    if let Some(next_hop) = fields.iter().position(|f| f == "255.255.255.255") {
        fields[next_hop] = fields[3].clone();
    }
    if fields[2] == "A" && fields[8] == "::" {
        fields[2] = "W".into();
        fields.truncate(6);
    }
    fields.join("|")
}

/// Compares a file with its text; `only_there` lines of the text have no counterpart, for the reason `why`.
fn check(name: &str, kind: &str, only_there: usize, why: &str) {
    let Some(data) = data::folder() else { return };
    let path: PathBuf = data.join("mrt").join(name);
    let (states, routes) = expected(&data.join("mrt/expected").join(format!("{name}.bgp.gz")));

    let mut found = Vec::new();
    let summary = recording::read(
        &path,
        false,
        |_| true,
        |event| {
            lines(&event, kind, &mut found);
            Ok(())
        },
    )
    .unwrap();
    let mut there = routes.iter().map(|line| normal(line));
    for (i, found) in found.iter().enumerate() {
        let mut skipped = Vec::new();
        let same = there.by_ref().find(|line| {
            skipped.push(line.clone());
            line == found
        });
        let first = skipped.first();
        assert!(same.is_some(), "{name}, line {}: found {found}, expected {first:?}", i + 1);
    }
    assert_eq!(routes.len() - found.len(), only_there, "{name}: {why}; {summary:?}");
    assert_eq!((summary.bad, summary.cut, summary.add_path), (0, None, 0), "{name}: {summary:?}");

    let mut file = MrtFile::open(&path).unwrap();
    let mut found = Vec::new();
    while let Some(record) = file.next_record().unwrap() {
        if let Ok(Body::StateChange(s)) = record.body() {
            let (peer, asn) = (s.session.peer, s.session.peer_asn);
            found.push(format!("BGP4MP|{}|STATE|{peer}|{asn}|{}|{}", record.seconds, s.old, s.new));
        }
    }
    let states: Vec<_> = states.iter().map(|line| normal(line)).collect();
    assert_eq!(found, states, "{name}");
}

#[test]
fn a_table_of_one_path_a_record() {
    check("bview.20020722.2337.gz", "TABLE_DUMP", 0, "");
}

#[test]
fn a_table_of_all_paths_a_record() {
    check("bview.64k_stream_overflow.gz", "TABLE_DUMP2", 0, "");
}

#[test]
fn tables_with_path_identifiers() {
    check("bview.ipv4_unicast_add_path.gz", "TABLE_DUMP2_AP", 2, "routes of the collector itself");
    check("bview.ipv6_unicast_add_path.gz", "TABLE_DUMP2_AP", 2, "routes of the collector itself");
}

#[test]
fn streams_of_two_octet_as_numbers() {
    check("updates.20020722.2238.gz", "BGP4MP", 0, "");
    check("updates.20070211.0141.gz", "BGP4MP", 151, "multicast routes");
    check("updates.20071015.1505.gz", "BGP4MP", 0, "");
}

#[test]
fn streams_of_four_octet_as_numbers() {
    check("updates.20100722.2015.gz", "BGP4MP", 0, "");
    check("updates.20160811.1600.gz", "BGP4MP", 0, "");
}

#[test]
fn an_extended_message_and_a_malformed_one() {
    check("updates.long_withdrawal.gz", "BGP4MP", 0, "");
    check(
        "updates.nlri_mask_trailing_bits.gz",
        "BGP4MP",
        1,
        "its second prefix is cut, so no router takes the first",
    );
}

#[test]
fn a_file_that_is_cut_ends_with_a_sentence() {
    let Some(data) = data::folder() else { return };
    for (name, entries, cut) in [
        ("rib.20140523.0600_firstMB.bz2", 270_005, (9074, 15_273_283)),
        ("rib.20080501.0644_firstMB.bz2", 139_291, (139_292, 9_876_131)),
    ] {
        let summary = recording::read(&data.join("mrt").join(name), true, |_| true, |_| Ok(())).unwrap();
        assert_eq!((summary.events, summary.bad), (entries, 0), "{name}");
        let found = summary.cut.unwrap();
        assert_eq!((found.record, found.byte), cut);
        let message = format!("the file ends in the middle of record {} at byte {}", cut.0, cut.1);
        assert_eq!(found.to_string(), message);
    }
}

#[test]
fn the_busiest_peer_is_the_full_feed() {
    let Some(data) = data::folder() else { return };
    let survey = recording::survey(&data.join("mrt/bview.20020722.2337.gz")).unwrap();
    assert!(survey.table);
    assert_eq!(survey.peers.len(), 36);
    assert_eq!(survey.busiest().unwrap().asn, 1853);
}
