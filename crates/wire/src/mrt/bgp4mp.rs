//! Streams of BGP messages and session states (RFC 6396 section 4.4; add-path RFC 8050 section 3).

use super::cursor::Cursor;
use super::{Body, Error};
use ribtide_prefix::Afi;
use std::net::IpAddr;

/// The session of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bgp4mp {
    /// AS number of the peer.
    pub peer_asn: u32,
    /// AS number of the collector.
    pub local_asn: u32,
    /// Index of the interface, or zero.
    pub interface: u16,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Address of the collector.
    pub local: IpAddr,
}

/// A BGP message as it was on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The session.
    pub session: Bgp4mp,
    /// AS numbers in the message take four bytes.
    pub four_octet_as: bool,
    /// Prefixes in the message carry path identifiers (RFC 8050).
    pub add_path: bool,
    /// The collector sent the message, rather than received it.
    pub local: bool,
    /// The message, from its marker on.
    pub bytes: &'a [u8],
}

/// A change of a session's state; states are numbered 1 (Idle) to 6 (Established) (RFC 6396 section 4.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateChange {
    /// The session.
    pub session: Bgp4mp,
    /// The state left.
    pub old: u16,
    /// The state entered.
    pub new: u16,
}

pub(super) fn parse(subtype: u16, payload: &[u8]) -> Result<Body<'_>, Error> {
    let mut c = Cursor(payload);
    let (four_octet_as, add_path, local) = match subtype {
        0 => return parse_state_change(&mut c, false),
        5 => return parse_state_change(&mut c, true),
        1 => (false, false, false),
        4 => (true, false, false),
        6 => (false, false, true),
        7 => (true, false, true),
        8 => (false, true, false),
        9 => (true, true, false),
        10 => (false, true, true),
        11 => (true, true, true),
        _ => return Ok(Body::Other),
    };
    let session = read_session(&mut c, four_octet_as)?;
    Ok(Body::Message(Message { session, four_octet_as, add_path, local, bytes: c.0 }))
}

fn parse_state_change<'a>(c: &mut Cursor<'a>, four_octet_as: bool) -> Result<Body<'a>, Error> {
    let session = read_session(c, four_octet_as)?;
    let old = c.u16("old state")?;
    let new = c.u16("new state")?;
    Ok(Body::StateChange(StateChange { session, old, new }))
}

fn read_session(c: &mut Cursor<'_>, four_octet_as: bool) -> Result<Bgp4mp, Error> {
    let peer_asn = c.asn(four_octet_as, "peer AS")?;
    let local_asn = c.asn(four_octet_as, "local AS")?;
    let interface = c.u16("interface index")?;
    let afi = c.afi("address family")?;
    let peer = c.addr(afi, "peer address")?;
    let local = c.addr(afi, "local address")?;
    Ok(Bgp4mp { peer_asn, local_asn, interface, peer, local })
}

/// The address family that a session's addresses are written in: the peer's, since both are one family.
pub(super) fn afi_of(addr: IpAddr) -> Afi {
    match addr {
        IpAddr::V4(_) => Afi::Ipv4,
        IpAddr::V6(_) => Afi::Ipv6,
    }
}
