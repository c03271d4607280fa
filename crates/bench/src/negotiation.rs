//! The messages that bring a BGP session up and end it, without a socket (RFC 4271 section 8).
//!
//! Two speakers drive it. [`crate::session`] has a blocking socket and two threads for each session. The suite `bgp`
//! has hundreds of sockets that never block, notes arrival times, and parses after the measurement.

use crate::error::End;
use ribtide_prefix::{Afi, AfiSafi};
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{self, Frame, MessageType};
use ribtide_wire::bgp::notification::{self, Notification, code, fsm};
use ribtide_wire::bgp::open::{Open, OpenBuilder};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Our side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speaker {
    /// Our AS number.
    pub asn: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// The hold time that we propose, in seconds: 0 or at least 3.
    pub hold_time: u16,
}

impl Speaker {
    /// Our OPEN: four-octet AS numbers, unicast routes of `families`, and `more`.
    pub(crate) fn open(&self, families: &[Afi], more: &[Capability<'_>]) -> Vec<u8> {
        let Speaker { asn, router_id, hold_time } = *self;
        let mut capabilities: Vec<_> = families.iter().map(|afi| unicast(*afi)).collect();
        capabilities.extend(more);
        capabilities.push(Capability::FourOctetAs(asn));
        let mut out = Vec::new();
        OpenBuilder { asn, hold_time, router_id, capabilities: &capabilities }.write(&mut out);
        out
    }
}

/// The peer and the negotiated values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address and port.
    pub remote: SocketAddr,
    /// Our own address on the connection.
    pub local: SocketAddr,
    /// Its AS number.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// The negotiated hold time; zero means that neither side runs the timer.
    pub hold_time: Duration,
    /// The longest message, in bytes.
    pub max_len: usize,
    /// It accepts IPv4 unicast routes.
    pub ipv4: bool,
    /// It accepts IPv6 unicast routes.
    pub ipv6: bool,
    /// It has our AS number.
    pub internal: bool,
}

impl Peer {
    /// Whether unicast routes of the family may be sent.
    pub fn takes(&self, afi: Afi) -> bool {
        match afi {
            Afi::Ipv4 => self.ipv4,
            Afi::Ipv6 => self.ipv6,
        }
    }

    /// The interval between KEEPALIVEs, if the hold timer runs.
    pub(crate) fn keepalive_interval(&self) -> Option<Duration> {
        (!self.hold_time.is_zero()).then_some(self.hold_time / 3)
    }
}

/// The progress of a session on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Negotiation {
    /// Our OPEN was sent.
    OpenSent { speaker: Speaker, remote: SocketAddr, local: SocketAddr },
    /// The peer's OPEN was received.
    OpenConfirm(Peer),
    /// The session is up.
    Established(Peer),
}

impl Negotiation {
    /// The peer of a session that is up.
    pub(crate) fn established(&self) -> Option<&Peer> {
        match self {
            Negotiation::Established(peer) => Some(peer),
            Negotiation::OpenSent { .. } | Negotiation::OpenConfirm(_) => None,
        }
    }

    /// Takes a message; returns the reply. The caller handles UPDATE and ROUTE-REFRESH of an established session.
    ///
    /// # Errors
    /// The message ends the session; the peer then gets [`final_notification`].
    pub(crate) fn take(&mut self, frame: &Frame<'_>) -> Result<Option<Vec<u8>>, End> {
        let unexpected = match (&*self, frame.kind) {
            (_, MessageType::Notification) => return Err(End::Received(Notification::parse(frame.body))),
            (Negotiation::OpenSent { speaker, remote, local }, MessageType::Open) => {
                *self = Negotiation::OpenConfirm(agree(frame, speaker, *remote, *local)?);
                return Ok(Some(keepalive()));
            }
            (Negotiation::OpenConfirm(peer), MessageType::Keepalive) => {
                *self = Negotiation::Established(*peer);
                return Ok(None);
            }
            (Negotiation::Established(_), MessageType::Open) => fsm::UNEXPECTED_IN_ESTABLISHED,
            (Negotiation::Established(_), _) => return Ok(None),
            (Negotiation::OpenSent { .. }, _) => fsm::UNEXPECTED_IN_OPEN_SENT,
            (Negotiation::OpenConfirm(_), _) => fsm::UNEXPECTED_IN_OPEN_CONFIRM,
        };
        Err(End::Sent(Notification::new(code::FSM, unexpected)))
    }
}

fn unicast(afi: Afi) -> Capability<'static> {
    Capability::multiprotocol(AfiSafi::unicast(afi))
}

/// The negotiated values of both OPENs.
fn agree(frame: &Frame<'_>, speaker: &Speaker, remote: SocketAddr, local: SocketAddr) -> Result<Peer, End> {
    let open = Open::parse(frame.body).map_err(End::Sent)?;
    let has = |requested: Capability<'_>| open.capabilities().any(|c| c == requested);
    let any_family = open.capabilities().any(|c| matches!(c, Capability::Multiprotocol { .. }));
    if !open.capabilities().any(|c| matches!(c, Capability::FourOctetAs(_))) {
        return Err(End::Peer("it does not offer four-octet AS numbers, which this tool needs".into()));
    }
    if open.router_id == speaker.router_id {
        return Err(End::Sent(Notification::new(code::OPEN, notification::open::BAD_IDENTIFIER)));
    }
    Ok(Peer {
        remote,
        local,
        asn: open.asn(),
        router_id: open.router_id,
        hold_time: Duration::from_secs(u64::from(open.hold_time.min(speaker.hold_time))),
        max_len: if has(Capability::ExtendedMessage) { message::MAX_EXTENDED_LEN } else { message::MAX_LEN },
        // RFC 4760 section 8: a speaker without the capability speaks IPv4 unicast.
        ipv4: has(unicast(Afi::Ipv4)) || !any_family,
        ipv6: has(unicast(Afi::Ipv6)),
        internal: open.asn() == speaker.asn,
    })
}

/// A KEEPALIVE.
pub(crate) fn keepalive() -> Vec<u8> {
    let mut out = Vec::new();
    message::write_keepalive(&mut out);
    out
}

/// The NOTIFICATION that tells the peer why the session ends; `None` where it knows.
pub(crate) fn final_notification(end: &End) -> Option<Vec<u8>> {
    let notification = match end {
        End::Sent(notification) => notification.clone(),
        End::HoldTimer(_) => Notification::new(code::HOLD_TIMER_EXPIRED, 0),
        End::Peer(_) => Notification::new(code::OPEN, notification::open::UNSUPPORTED_CAPABILITY),
        End::Received(_) | End::Closed | End::Broken(_) => return None,
    };
    let mut out = Vec::new();
    notification.write(&mut out);
    Some(out)
}
