//! The recorded messages of a neighbour.

use crate::text::{count, duration};
use ribtide_model::{LostMessages, RecordedMessage, RecordedMessages, RecordedSession};

/// Where what a message says begins.
const INDENT: &str = "      ";

/// The messages before the last loss, and those since.
pub(super) fn recorded(r: &RecordedMessages) -> String {
    if r.recorder_bytes == 0 {
        return format!("Neighbor {}: no message is recorded, because bgp.recorder-bytes is 0\n", r.address);
    }
    let mut out = format!("Neighbor {}\n", r.address);
    if let Some(LostMessages { session, ended, seconds, messages }) = &r.lost {
        out += &format!("\nBefore the session was lost, {} ago at {}:\n", duration(*seconds), time(ended));
        out += &about(session);
        out += &list(messages);
    }
    out += match (&r.session, &r.lost) {
        (Some(_), _) => "\nThe present session:\n",
        (None, Some(_)) => "\nSince then, without a session:\n",
        (None, None) => "\nWithout a session so far:\n",
    };
    out += &r.session.as_ref().map(about).unwrap_or_default();
    out + &list(&r.messages)
}

fn about(s: &RecordedSession) -> String {
    let old = if s.four_octet_as { "" } else { ", 2-octet AS numbers" };
    format!(
        "  AS {}, router id {}, to our AS {} at {}{old},\n  established {}\n",
        s.peer_asn,
        s.router_id,
        s.local_asn,
        s.local_address,
        time(&s.established)
    )
}

/// A time to the second.
fn time(timestamp: &str) -> String {
    timestamp.split('.').next().unwrap_or(timestamp).replace('T', " ")
}

fn list(messages: &[RecordedMessage]) -> String {
    if messages.is_empty() {
        return "  no message but KEEPALIVEs\n".into();
    }
    messages.iter().map(message).collect()
}

fn message(m: &RecordedMessage) -> String {
    // Hour to millisecond; the day is that of the session.
    let clock = m.timestamp.get(11..23).unwrap_or(&m.timestamp);
    let head = format!("  {clock} {:8} {}, {}\n", m.direction, m.kind, count(m.length, "byte"));
    head + INDENT + &m.summary + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(direction: &str, timestamp: &str) -> RecordedMessage {
        RecordedMessage {
            timestamp: timestamp.into(),
            direction: direction.into(),
            kind: "OPEN".into(),
            length: 53,
            summary: "AS 65010, hold time 90, router id 192.0.2.1; ipv4-unicast, ipv6-unicast, route refresh, 4-octet AS 65010"
                .into(),
            path_ids: false,
            bytes: "ff".into(),
        }
    }

    #[test]
    fn messages_before_a_loss_come_first() {
        let session = RecordedSession {
            established: "2026-12-01T10:00:00.000000Z".into(),
            peer_asn: 65010,
            local_asn: 65001,
            router_id: [192, 0, 2, 1].into(),
            local_address: [192, 0, 2, 2].into(),
            four_octet_as: true,
        };
        let mut reply = RecordedMessages {
            address: "192.0.2.1".parse().unwrap(),
            recorder_bytes: 8192,
            session: None,
            messages: vec![],
            lost: Some(LostMessages {
                session,
                ended: "2026-12-01T10:05:00.500000Z".into(),
                seconds: 61,
                messages: vec![open("sent", "2026-12-01T09:59:59.123456Z")],
            }),
        };
        let text = recorded(&reply);
        assert_eq!(
            text,
            "\
Neighbor 192.0.2.1

Before the session was lost, 1m01s ago at 2026-12-01 10:05:00:
  AS 65010, router id 192.0.2.1, to our AS 65001 at 192.0.2.2,
  established 2026-12-01 10:00:00
  09:59:59.123 sent     OPEN, 53 bytes
      AS 65010, hold time 90, router id 192.0.2.1; ipv4-unicast, ipv6-unicast, route refresh, 4-octet AS 65010

Since then, without a session:
  no message but KEEPALIVEs
"
        );
        reply.recorder_bytes = 0;
        assert!(recorded(&reply).contains("bgp.recorder-bytes is 0"));
    }
}
