//! Writes BMP messages. Each function appends one whole message.

use super::{PeerHeader, PeerType, Reason, Statistic, VERSION, flags, kind};
use std::net::IpAddr;

/// Appends a Route Monitoring message (RFC 7854 section 4.6) with a whole UPDATE, marker included.
pub fn route_monitoring(out: &mut Vec<u8>, peer: &PeerHeader, update: &[u8]) {
    message(out, kind::ROUTE_MONITORING, |out| {
        header(out, peer);
        out.extend_from_slice(update);
    });
}

/// The ends of a session, and both OPENs.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Our address; unspecified for a Loc-RIB.
    pub local: IpAddr,
    /// Our TCP port; 0 for a Loc-RIB.
    pub local_port: u16,
    /// The peer's TCP port; 0 for a Loc-RIB.
    pub remote_port: u16,
    /// The OPEN that we sent, marker included.
    pub sent: &'a [u8],
    /// The OPEN that the peer sent, marker included.
    pub received: &'a [u8],
}

/// Appends a Peer Up (RFC 7854 section 4.10). `information`: TLVs by type ([`super::information`]).
pub fn peer_up(out: &mut Vec<u8>, peer: &PeerHeader, session: &Session<'_>, information: &[(u16, &[u8])]) {
    message(out, kind::PEER_UP, |out| {
        header(out, peer);
        address(out, session.local);
        out.extend_from_slice(&session.local_port.to_be_bytes());
        out.extend_from_slice(&session.remote_port.to_be_bytes());
        out.extend_from_slice(session.sent);
        out.extend_from_slice(session.received);
        tlvs(out, information);
    });
}

/// Appends a Peer Down (RFC 7854 section 4.9).
pub fn peer_down(out: &mut Vec<u8>, peer: &PeerHeader, reason: Reason<'_>) {
    message(out, kind::PEER_DOWN, |out| {
        header(out, peer);
        let (code, event, data): (u8, Option<u16>, &[u8]) = match reason {
            Reason::LocalNotification(data) => (1, None, data),
            Reason::LocalEvent(event) => (2, Some(event), &[]),
            Reason::RemoteNotification(data) => (3, None, data),
            Reason::RemoteClose => (4, None, &[]),
            Reason::Unmonitored => (5, None, &[]),
            Reason::LocalClose(data) => (6, None, data),
        };
        out.push(code);
        out.extend(event.into_iter().flat_map(u16::to_be_bytes));
        out.extend_from_slice(data);
    });
}

/// Appends an Initiation (RFC 7854 section 4.3), the first message of a session.
pub fn initiation(out: &mut Vec<u8>, information: &[(u16, &[u8])]) {
    message(out, kind::INITIATION, |out| tlvs(out, information));
}

/// Appends a Termination (RFC 7854 section 4.5), the last message of a session. `reason`: [`super::termination`];
/// `text` may be empty.
pub fn termination(out: &mut Vec<u8>, reason: u16, text: &str) {
    message(out, kind::TERMINATION, |out| {
        if !text.is_empty() {
            tlvs(out, &[(0, text.as_bytes())]);
        }
        tlvs(out, &[(1, &reason.to_be_bytes())]);
    });
}

/// Appends a Statistics Report (RFC 7854 section 4.8).
pub fn statistics(out: &mut Vec<u8>, peer: &PeerHeader, statistics: &[Statistic]) {
    message(out, kind::STATISTICS, |out| {
        header(out, peer);
        out.extend_from_slice(&u32::try_from(statistics.len()).unwrap_or(u32::MAX).to_be_bytes());
        for statistic in statistics {
            match *statistic {
                Statistic::Counter(kind, value) => tlvs(out, &[(kind, &value.to_be_bytes())]),
                Statistic::Gauge(kind, value) => tlvs(out, &[(kind, &value.to_be_bytes())]),
                Statistic::FamilyGauge(kind, (afi, safi), value) => {
                    let mut bytes = [0; 11];
                    let fields = afi.to_be_bytes().into_iter().chain([safi]).chain(value.to_be_bytes());
                    bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
                    tlvs(out, &[(kind, &bytes)]);
                }
            }
        }
    });
}

/// Appends information TLVs. A value beyond 65,535 bytes has no encoding and is cut there.
pub fn tlvs(out: &mut Vec<u8>, information: &[(u16, &[u8])]) {
    for (kind, value) in information {
        let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        out.extend_from_slice(value);
    }
}

fn header(out: &mut Vec<u8>, peer: &PeerHeader) {
    let family = match (peer.kind, peer.address) {
        (PeerType::LocRib, _) | (_, IpAddr::V4(_)) => 0,
        (_, IpAddr::V6(_)) => flags::IPV6,
    };
    out.extend_from_slice(&[peer.kind as u8, peer.flags | family]);
    out.extend_from_slice(&peer.distinguisher.to_be_bytes());
    address(out, peer.address);
    out.extend_from_slice(&peer.asn.to_be_bytes());
    out.extend_from_slice(&peer.router_id.octets());
    out.extend_from_slice(&peer.time.seconds.to_be_bytes());
    out.extend_from_slice(&peer.time.microseconds.to_be_bytes());
}

/// Sixteen bytes; an IPv4 address is in the last four.
fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.extend_from_slice(&[0; 12]);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[VERSION, 0, 0, 0, 0, kind]);
    body(out);
    let len = u32::try_from(out.len() - at).unwrap_or(u32::MAX).to_be_bytes();
    out.iter_mut().skip(at + 1).zip(len).for_each(|(to, from)| *to = from);
}
