//! Reads BMP messages in place.

use super::{
    HEADER_LEN, MAX_LEN, PEER_HEADER_LEN, PeerHeader, PeerType, Reason, Statistic, Timestamp, VERSION, flags,
    kind,
};
use crate::bgp::message::{MAX_EXTENDED_LEN, frame};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Routes of a peer, as an UPDATE with its marker.
    RouteMonitoring(PeerHeader, &'a [u8]),
    /// Statistics of a peer.
    Statistics(PeerHeader, Statistics<'a>),
    /// A session ended.
    PeerDown(PeerHeader, Reason<'a>),
    /// A session is established.
    PeerUp {
        /// The peer.
        peer: PeerHeader,
        /// The router's address.
        local: IpAddr,
        /// The TCP ports of the router and of the peer.
        ports: (u16, u16),
        /// The OPEN that the router sent, marker included.
        sent: &'a [u8],
        /// The OPEN that the peer sent, marker included.
        received: &'a [u8],
        /// Information.
        information: Tlvs<'a>,
    },
    /// The first message, with information about the router.
    Initiation(Tlvs<'a>),
    /// The last message: text and reason.
    Termination(Tlvs<'a>),
    /// Another type.
    Other(u8),
}

/// Type, length, value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = (u16, &'a [u8]);

    /// Ends where the rest holds no whole TLV.
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (kind, rest) = self.0.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.0 = rest;
        Some((u16::from_be_bytes(*kind), value))
    }
}

/// The statistics of a report; those of unknown lengths are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics<'a>(Tlvs<'a>);

impl Iterator for Statistics<'_> {
    type Item = Statistic;

    fn next(&mut self) -> Option<Statistic> {
        loop {
            let (kind, value) = self.0.next()?;
            match *value {
                [a, b, c, d] => return Some(Statistic::Counter(kind, u32::from_be_bytes([a, b, c, d]))),
                [a, b, c, d, e, f, g, h] => {
                    return Some(Statistic::Gauge(kind, u64::from_be_bytes([a, b, c, d, e, f, g, h])));
                }
                [x, y, safi, a, b, c, d, e, f, g, h] => {
                    let family = (u16::from_be_bytes([x, y]), safi);
                    let value = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                    return Some(Statistic::FamilyGauge(kind, family, value));
                }
                _ => {}
            }
        }
    }
}

/// The error of reading BMP. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Another version than 3.
    Version(u8),
    /// A length below that of the header, or above [`MAX_LEN`].
    Length(u32),
    /// The message ends inside the named field.
    Short(&'static str),
    /// An unknown type of peer.
    PeerType(u8),
    /// An unknown reason of a Peer Down.
    Reason(u8),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Version(version) => write!(f, "the version is {version}, and only {VERSION} is known"),
            Error::Length(len) => {
                write!(f, "a message of {len} bytes is not {HEADER_LEN} to {MAX_LEN} bytes long")
            }
            Error::Short(field) => write!(f, "the message ends inside its {field}"),
            Error::PeerType(kind) => write!(f, "there is no peer type {kind}"),
            Error::Reason(reason) => write!(f, "there is no Peer Down reason {reason}"),
        }
    }
}

impl std::error::Error for Error {}

/// Cuts the first message off `buf` and returns its number of bytes; `None` when `buf` does not hold all of it
/// yet.
///
/// # Errors
/// The place of the next message is unknown ([`Error::Version`], [`Error::Length`]), or the message is malformed.
pub fn read_message(buf: &[u8]) -> Result<Option<(Message<'_>, usize)>, Error> {
    let Some(([version, a, b, c, d, kind], _)) = buf.split_first_chunk() else { return Ok(None) };
    if *version != VERSION {
        return Err(Error::Version(*version));
    }
    let len = u32::from_be_bytes([*a, *b, *c, *d]);
    let total = usize::try_from(len).unwrap_or(usize::MAX);
    if !(HEADER_LEN..=MAX_LEN).contains(&total) {
        return Err(Error::Length(len));
    }
    let Some(body) = buf.get(HEADER_LEN..total) else { return Ok(None) };
    Ok(Some((read_body(*kind, body)?, total)))
}

fn read_body(kind: u8, body: &[u8]) -> Result<Message<'_>, Error> {
    match kind {
        kind::ROUTE_MONITORING => {
            let (peer, update) = read_peer(body)?;
            Ok(Message::RouteMonitoring(peer, update))
        }
        kind::STATISTICS => {
            let (peer, rest) = read_peer(body)?;
            let (_, rest) = rest.split_first_chunk::<4>().ok_or(Error::Short("count"))?;
            Ok(Message::Statistics(peer, Statistics(Tlvs(rest))))
        }
        kind::PEER_DOWN => {
            let (peer, rest) = read_peer(body)?;
            Ok(Message::PeerDown(peer, read_reason(rest)?))
        }
        kind::PEER_UP => read_peer_up(body),
        kind::INITIATION => Ok(Message::Initiation(Tlvs(body))),
        kind::TERMINATION => Ok(Message::Termination(Tlvs(body))),
        other => Ok(Message::Other(other)),
    }
}

fn read_reason(body: &[u8]) -> Result<Reason<'_>, Error> {
    let (code, data) = body.split_first().ok_or(Error::Short("reason"))?;
    Ok(match code {
        1 => Reason::LocalNotification(data),
        2 => {
            let event = data.first_chunk().ok_or(Error::Short("FSM event"))?;
            Reason::LocalEvent(u16::from_be_bytes(*event))
        }
        3 => Reason::RemoteNotification(data),
        4 => Reason::RemoteClose,
        5 => Reason::Unmonitored,
        6 => Reason::LocalClose(data),
        other => return Err(Error::Reason(*other)),
    })
}

fn read_peer_up(body: &[u8]) -> Result<Message<'_>, Error> {
    let (peer, rest) = read_peer(body)?;
    let (local, rest) = rest.split_first_chunk().ok_or(Error::Short("local address"))?;
    let ([a, b, c, d], rest) = rest.split_first_chunk().ok_or(Error::Short("ports"))?;
    let ports = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    let local = read_address(peer.address.is_ipv6(), *local);
    let (sent, rest) = split_open(rest).ok_or(Error::Short("sent OPEN"))?;
    let (received, rest) = split_open(rest).ok_or(Error::Short("received OPEN"))?;
    Ok(Message::PeerUp { peer, local, ports, sent, received, information: Tlvs(rest) })
}

fn split_open(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = frame(bytes, MAX_EXTENDED_LEN).ok()??.total_len;
    bytes.split_at_checked(len)
}

fn read_peer(body: &[u8]) -> Result<(PeerHeader, &[u8]), Error> {
    let (header, rest) =
        body.split_first_chunk::<PEER_HEADER_LEN>().ok_or(Error::Short("per-peer header"))?;
    let mut fields = header.as_slice();
    let short = Error::Short("per-peer header");
    let [kind, flags] = take(&mut fields).ok_or(short)?;
    let kind = PeerType::from_u8(kind).ok_or(Error::PeerType(kind))?;
    let distinguisher = u64::from_be_bytes(take(&mut fields).ok_or(short)?);
    let address = take(&mut fields).ok_or(short)?;
    let asn = u32::from_be_bytes(take(&mut fields).ok_or(short)?);
    let router_id = Ipv4Addr::from(take::<4>(&mut fields).ok_or(short)?);
    let seconds = u32::from_be_bytes(take(&mut fields).ok_or(short)?);
    let microseconds = u32::from_be_bytes(take(&mut fields).ok_or(short)?);
    let address = read_address(kind != PeerType::LocRib && flags & flags::IPV6 != 0, address);
    let time = Timestamp { seconds, microseconds };
    Ok((PeerHeader { kind, flags, distinguisher, address, asn, router_id, time }, rest))
}

fn read_address(ipv6: bool, bytes: [u8; 16]) -> IpAddr {
    match (ipv6, bytes) {
        (true, bytes) => Ipv6Addr::from(bytes).into(),
        (false, [.., a, b, c, d]) => Ipv4Addr::new(a, b, c, d).into(),
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}
