//! BFD sessions.

use crate::text::{Table, count, duration, number};
use ribtide_model::{Bfd, BfdSession};

/// Sessions; only those in `state`.
pub(super) fn sessions(bfd: &Bfd, state: Option<&str>) -> String {
    let mut table = Table::new(&[
        "Peer",
        "Interface",
        "State",
        "Diagnostic",
        "Remote diagnostic",
        ">Tx ms",
        ">Rx ms",
        ">Detect ms",
        ">Changed",
        ">Sent",
        ">Received",
        ">Flaps",
    ]);
    for s in &bfd.sessions {
        table.row([
            s.peer.to_string(),
            s.interface.clone().unwrap_or_else(|| if s.multihop { "multihop" } else { "-" }.into()),
            s.state.clone(),
            s.diagnostic.clone(),
            s.remote_diagnostic.clone(),
            s.tx_ms.map_or("-".into(), milliseconds),
            milliseconds(s.rx_ms),
            milliseconds(s.detection_ms),
            duration(s.state_seconds as u64),
            number(s.sent),
            number(s.received),
            number(s.flaps),
        ]);
    }
    let mut out = table.render();
    if let (true, Some(state)) = (bfd.sessions.is_empty(), state) {
        out = format!("No BFD session is in the state {state}.\n");
    } else if bfd.sessions.is_empty() {
        out = "There is no BFD session: no neighbour and no static route has `bfd` in the configuration.\n"
            .into();
    }
    for s in &bfd.sessions {
        out.push_str(&remark(s));
    }
    let discarded: Vec<String> =
        bfd.discarded.iter().map(|(why, n)| format!("{why} {}", number(*n))).collect();
    if !discarded.is_empty() {
        let all = count(bfd.discarded.values().sum(), "packet");
        out.push_str(&format!("{all} discarded: {}\n", discarded.join(", ")));
    }
    out
}

/// A warning about a session, beside its state.
fn remark(s: &BfdSession) -> String {
    let mut out = String::new();
    if !s.usable {
        out.push_str(&format!("Next hops avoid {}.\n", s.peer));
    }
    if let Some(error) = &s.error {
        out.push_str(&format!("{}: {error}\n", s.peer));
    }
    out
}

/// `50`, `62.5`: at most the significant digits.
fn milliseconds(ms: f64) -> String {
    format!("{ms}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_session_and_what_is_wrong() {
        let up = BfdSession {
            peer: "192.0.2.2".parse().unwrap(),
            interface: None,
            local: None,
            multihop: false,
            state: "Up".into(),
            diagnostic: "none".into(),
            remote_state: "Up".into(),
            remote_diagnostic: "none".into(),
            usable: true,
            bgp: true,
            discriminator: 7,
            remote_discriminator: 9,
            tx_ms: Some(50.0),
            rx_ms: 62.5,
            detection_ms: 187.5,
            state_seconds: 3700.5,
            sent: 12_345,
            received: 12_300,
            flaps: 1,
            error: None,
        };
        let down = BfdSession {
            peer: "fe80::2".parse().unwrap(),
            interface: Some("eth1".into()),
            state: "Down".into(),
            diagnostic: "detection time expired".into(),
            usable: false,
            tx_ms: None,
            error: Some("packets cannot be sent".into()),
            ..up.clone()
        };
        let discarded = [("ttl".into(), 3), ("length".into(), 1)].into();
        let text = sessions(&Bfd { sessions: vec![up, down], discarded }, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Peer       Interface  State  Diagnostic              Remote diagnostic  Tx ms  Rx ms  Detect ms  Changed    Sent  Received  Flaps",
                "192.0.2.2  -          Up     none                    none                  50   62.5      187.5    1h01m  12,345    12,300      1",
                "fe80::2    eth1       Down   detection time expired  none                   -   62.5      187.5    1h01m  12,345    12,300      1",
                "Next hops avoid fe80::2.",
                "fe80::2: packets cannot be sent",
                "4 packets discarded: length 1, ttl 3",
            ]
        );
        let none = sessions(&Bfd { sessions: vec![], discarded: Default::default() }, None);
        assert!(none.starts_with("There is no BFD session"));
    }
}
