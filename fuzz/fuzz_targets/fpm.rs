//! What a routing daemon may send to fpmsyncd: whatever it is, APPL_DB is told of the routes that fpmsyncd believes in. Headers are right, so that the fuzzer need not count; `raw` is a stream as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_swss::fpmsyncd::{FpmConfig, FpmOut, Fpmsyncd};
use ribtide_swss::row::VpnTable;
use ribtide_wire::fpm;

/// RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_DELNEXTHOP, NLMSG_DONE, and those of SONiC's FRR: local SIDs, PIC contexts, routes
/// of VPNs.
const KINDS: [u16; 11] = [24, 25, 104, 105, 3, 1000, 1001, 2000, 2001, 3000, 3001];

fuzz_target!(|input: (Vec<(u8, &[u8])>, &[u8])| {
    let (messages, raw) = input;
    let mut stream = Vec::new();
    for (kind, body) in messages {
        let len = 16 + body.len();
        let whole = 4 + len.next_multiple_of(4);
        if whole > usize::from(u16::MAX) {
            return;
        }
        stream.extend_from_slice(&[1, 1]);
        stream.extend_from_slice(&(whole as u16).to_be_bytes());
        let start = stream.len();
        stream.extend_from_slice(&(len as u32).to_ne_bytes());
        stream.extend_from_slice(&KINDS[usize::from(kind) % KINDS.len()].to_ne_bytes());
        stream.extend_from_slice(&[u8::from(kind >= 128), kind & 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        stream.extend_from_slice(body);
        stream.resize(start + len.next_multiple_of(4), 0);
    }
    stream.extend_from_slice(raw);

    let mut out = FpmOut::default();
    let mut daemon = Fpmsyncd::new(FpmConfig::default());
    daemon.link(1, "Ethernet0", &mut out);
    daemon.link(2, "VrfRed", &mut out);
    daemon.link(3, "Vnet1", &mut out);
    daemon.link(4, "Brvxlan1", &mut out);
    daemon.session_up();
    let mut rest = stream.as_slice();
    while let Ok(Some(frame)) = fpm::frame(rest) {
        daemon.frame(&frame, &mut out);
        rest = &rest[frame.len..];
        if rest.len() % 3 == 0 {
            daemon.take(&mut out);
        }
    }
    daemon.take(&mut out);
    let mut applied = std::collections::HashSet::new();
    for change in out.routes {
        match change.row {
            Some(_) => applied.insert(change.key),
            None => applied.remove(&change.key),
        };
    }
    let mut labels = std::collections::HashSet::new();
    for change in out.labels {
        match change.row {
            Some(_) => labels.insert(change.key),
            None => labels.remove(&change.key),
        };
    }
    // Rows that are gone go after all others, and one key is only ever in one of the two.
    let mut vpns = std::collections::BTreeSet::new();
    for change in out.vpn_rows.iter().chain(&out.old_vpn_rows) {
        match &change.row {
            Some(row) => {
                assert_eq!(row.table, change.table);
                vpns.insert((change.table, change.key.clone()));
            }
            None => drop(vpns.remove(&(change.table, change.key.clone()))),
        }
    }
    let vnets = vpns.iter().filter(|(table, _)| matches!(table, VpnTable::VnetRoute | VpnTable::VnetTunnel)).count();
    let rows = applied.len() + labels.len() + vnets;
    // A route that waits for a next-hop object has no row yet, or still that of before. Those that wait for the name of
    // their VRF's interface do not count as routes.
    assert!((daemon.len().saturating_sub(daemon.waiting())..=daemon.len()).contains(&rows));
    for event in &out.events {
        let _ = event.to_string();
    }
});
