//! Kills in the middle of a request of the recorded start and view of SONiC's orchagent. Afterwards the chip forwards as
//! after an undisturbed run.
//!
//! `RIBTIDE_KILL_EVERY=1` kills at each request; by default at each eighth.

use crate::rig::Rig;
use crate::transcripts::{read, recorded};
use ribtide_swss::beside::BesideOut;
use ribtide_swss::sai::text::Message;
use ribtide_vswitch::Counts;
use std::collections::BTreeMap;

type Request = (String, &'static str, Vec<String>);

/// Which process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kill {
    /// SONiC's orchagent.
    Client,
    /// ribtide's orchagent; syncd executed the request, or never had it.
    Orchagent { executed: bool },
    /// syncd, which executed the request and wrote its rows, or did neither. ribtide's orchagent ends without its reply.
    Syncd { executed: bool },
}

const KILLS: [Kill; 5] = [
    Kill::Client,
    Kill::Orchagent { executed: true },
    Kill::Orchagent { executed: false },
    Kill::Syncd { executed: true },
    Kill::Syncd { executed: false },
];

fn replay(rig: &mut Rig, requests: &[Request]) {
    for (key, op, fields) in requests {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        rig.ask(key, op, &fields);
    }
}

/// Sends a request, which ends as far as `kill` says.
fn interrupted(rig: &mut Rig, (key, op, fields): &Request, kill: Kill) {
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    if kill == Kill::Client {
        rig.ask(key, op, &fields);
        return;
    }
    let mut value = String::new();
    ribtide_swss::json::write_strings(fields.iter().copied(), &mut value);
    let value = if *op == "Dremove" { "{}".into() } else { value };
    let mut out = BesideOut::default();
    rig.beside.client(u64::MAX, Message { key: key.clone(), value, op: (*op).into() });
    rig.beside.run(&mut out);
    rig.record(&mut out);
    let (Kill::Orchagent { executed } | Kill::Syncd { executed }) = kill else { return };
    // Of several requests the first is executed.
    if let (true, Some(request)) = (executed, out.requests.first()) {
        rig.syncd.execute(request);
    }
}

fn rows(rig: &mut Rig, gateways: &[String]) {
    for n in 0..40 {
        let row = format!("protocol=bgp nexthop={} ifname=Ethernet0 weight=1", gateways[n % 2]);
        rig.route(&format!("100.0.{n}.0/24"), &row);
    }
    let both = format!("{},{}", gateways[0], gateways[1]);
    for n in 0..4 {
        let row = format!("protocol=bgp nexthop={both} ifname=Ethernet0,Ethernet0 weight=1,1");
        rig.route(&format!("101.0.{n}.0/24"), &row);
    }
}

/// What the chip does, after everything that waits for a time has passed.
fn settled(rig: &mut Rig) -> (BTreeMap<String, Vec<String>>, Counts) {
    rig.pass(200_000);
    (rig.syncd.forwarding(), rig.syncd.counts())
}

#[test]
fn chip_forwards_as_after_an_undisturbed_run_whichever_process_was_killed() {
    let Some(first) = read("orchagent-restart/first.sairedis.rec.gz") else { return };
    let Some(second) = read("orchagent-restart/second.sairedis.rec.gz") else { return };
    let (first, mut second) = (recorded(&first), recorded(&second));
    let view = second.len();
    // The recording of the restart ends before the interfaces, which an orchagent makes again.
    let objects = ["HOSTIF:", "ROUTER_INTERFACE:", "NEIGHBOR_ENTRY:", "NEXT_HOP:"];
    let made = |(key, op, _): &&Request| {
        *op == "Screate" && objects.iter().any(|of| key.starts_with(&format!("SAI_OBJECT_TYPE_{of}")))
    };
    second.extend(first.iter().filter(made).cloned());
    assert!(view > 50 && second.len() > view + 5, "{view} {}", second.len());
    let mut rig = Rig::new();
    replay(&mut rig, &first);
    let hops = rig.syncd.of("NEXT_HOP");
    let gateways: Vec<String> = hops.iter().map(|hop| hop["SAI_NEXT_HOP_ATTR_IP"].clone()).collect();
    let gateways: Vec<String> = gateways.into_iter().filter(|ip| ip.starts_with("10.0.0.")).take(2).collect();
    rows(&mut rig, &gateways);
    replay(&mut rig, &second);
    let expected = settled(&mut rig);
    let ours = |dest: &&String| dest.starts_with("100.") || dest.starts_with("101.");
    assert_eq!(expected.0.keys().filter(ours).count(), 44);
    let hops =
        |(dest, hops): (&String, &Vec<String>)| hops.len() == 2 + usize::from(dest.starts_with("101."));
    assert!(expected.0.iter().filter(|(dest, _)| ours(dest)).all(hops), "{expected:?}");

    let every = std::env::var("RIBTIDE_KILL_EVERY").map_or(8, |every| every.parse().unwrap());
    let (mut count, mut wrong) = (0, Vec::new());
    for (n, at) in (0..second.len()).step_by(every).enumerate() {
        // By turns, unless every request is taken.
        let kills = if every == 1 { &KILLS[..] } else { &KILLS[n % KILLS.len()..][..1] };
        for &kill in kills {
            let mut rig = Rig::new();
            replay(&mut rig, &first);
            rows(&mut rig, &gateways);
            rig.syncd.take_removed();
            replay(&mut rig, &second[..at]);
            interrupted(&mut rig, &second[at], kill);
            if let Kill::Syncd { .. } = kill {
                rig.syncd.restart();
            }
            if kill != Kill::Client {
                rig.restart_ribtide(0x100_0000..0x200_0000);
                rows(&mut rig, &gateways);
            }
            // SONiC's orchagent ends without a reply, and describes the switch again.
            replay(&mut rig, &second);
            let removed = rig.syncd.take_removed();
            assert_eq!(
                removed.iter().filter(ours).count(),
                0,
                "{kill:?} at {at} ({} {})",
                second[at].1,
                second[at].0
            );
            let found = settled(&mut rig);
            count += 1;
            if found != expected {
                let differ = expected.0.iter().filter(|(dest, hops)| found.0.get(*dest) != Some(hops));
                let differ: Vec<_> = differ.map(|(dest, _)| (dest, found.0.get(dest))).take(3).collect();
                let surplus: Vec<_> = found.0.keys().filter(|dest| !expected.0.contains_key(*dest)).collect();
                wrong.push(format!(
                    "{kill:?} at {at} ({} {}): {differ:?}, surplus {surplus:?}, {:?} for {:?}; {:?}",
                    second[at].1, second[at].0, found.1, expected.1, rig.events
                ));
            }
        }
    }
    println!("{count} kills");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
