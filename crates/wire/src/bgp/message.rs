//! The common message header, framing of a byte stream, and the short messages KEEPALIVE and
//! ROUTE-REFRESH.

use super::notification::{Notification, code, header, route_refresh};
use ribtide_prefix::AfiSafi;

/// The marker of every message (RFC 4271 section 4.1).
pub const MARKER: [u8; 16] = [0xff; 16];
/// Bytes of the header: marker, length, type.
pub const HEADER_LEN: usize = 19;
/// The longest message without the Extended Message capability, header included.
pub const MAX_LEN: usize = 4096;
/// The longest message with the Extended Message capability (RFC 8654), header included.
pub const MAX_EXTENDED_LEN: usize = 65535;

/// The type of a message (RFC 4271 section 4.1, RFC 2918).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MessageType {
    /// OPEN.
    Open = 1,
    /// UPDATE.
    Update = 2,
    /// NOTIFICATION.
    Notification = 3,
    /// KEEPALIVE.
    Keepalive = 4,
    /// ROUTE-REFRESH.
    RouteRefresh = 5,
}

impl MessageType {
    /// The type of a number, or `None` when there is no such message.
    pub fn from_u8(n: u8) -> Option<MessageType> {
        match n {
            1 => Some(MessageType::Open),
            2 => Some(MessageType::Update),
            3 => Some(MessageType::Notification),
            4 => Some(MessageType::Keepalive),
            5 => Some(MessageType::RouteRefresh),
            _ => None,
        }
    }

    /// Whether a message of this type may be `len` bytes long, given the session's limit.
    fn allows(self, len: usize, max_len: usize) -> bool {
        match self {
            // RFC 8654 section 4: OPEN and KEEPALIVE are never extended.
            MessageType::Open => (29..=max_len.min(MAX_LEN)).contains(&len),
            MessageType::Update => (23..=max_len).contains(&len),
            MessageType::Notification => (21..=max_len).contains(&len),
            MessageType::Keepalive => len == HEADER_LEN,
            MessageType::RouteRefresh => (23..=max_len).contains(&len),
        }
    }
}

/// One message at the start of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The type of the body.
    pub kind: MessageType,
    /// The bytes after the header.
    pub body: &'a [u8],
    /// Bytes of header and body.
    pub total_len: usize,
}

/// The message at the start of `buf`, or `None` when more bytes are needed for it.
///
/// `max_len` is [`MAX_LEN`], or [`MAX_EXTENDED_LEN`] once both sides sent the Extended Message capability.
///
/// # Errors
/// The NOTIFICATION to close the session with, when the header is wrong (RFC 4271 section 6.1).
#[inline]
pub fn frame(buf: &[u8], max_len: usize) -> Result<Option<Frame<'_>>, Notification> {
    let Some((head, _)) = buf.split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let [marker @ .., len_high, len_low, kind] = head;
    if *marker != MARKER {
        return Err(Notification::new(code::HEADER, header::NOT_SYNCHRONIZED));
    }
    let total_len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
    let bad_length = || Notification::with_data(code::HEADER, header::BAD_LENGTH, vec![*len_high, *len_low]);
    if !(HEADER_LEN..=max_len).contains(&total_len) {
        return Err(bad_length());
    }
    let Some(kind) = MessageType::from_u8(*kind) else {
        return Err(Notification::with_data(code::HEADER, header::BAD_TYPE, vec![*kind]));
    };
    if !kind.allows(total_len, max_len) {
        return Err(bad_length());
    }
    Ok(buf.get(HEADER_LEN..total_len).map(|body| Frame { kind, body, total_len }))
}

/// Starts a message; [`finish`] with the returned position completes it.
pub(super) fn start(out: &mut Vec<u8>, kind: MessageType) -> usize {
    let at = out.len();
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&[0, 0, kind as u8]);
    at
}

/// Writes the length of the message that starts at `at` and ends at the end of `out`.
pub(super) fn finish(out: &mut [u8], at: usize) {
    let len = out.len().saturating_sub(at);
    patch_u16(out, at + MARKER.len(), len);
}

/// Writes a length into two bytes that were left for it.
pub(super) fn patch_u16(out: &mut [u8], at: usize, len: usize) {
    let len = u16::try_from(len).unwrap_or(u16::MAX);
    if let Some(field) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = len.to_be_bytes();
    }
}

/// Appends a message with this body. A body beyond 65,516 bytes has no encoding.
pub fn write(out: &mut Vec<u8>, kind: MessageType, body: &[u8]) {
    let at = start(out, kind);
    out.extend_from_slice(body);
    finish(out, at);
}

/// Appends a KEEPALIVE.
pub fn write_keepalive(out: &mut Vec<u8>) {
    let at = start(out, MessageType::Keepalive);
    finish(out, at);
}

/// The kind of a ROUTE-REFRESH (RFC 7313 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefreshKind {
    /// Send your routes again (RFC 2918).
    Request,
    /// The beginning of the reply to a request.
    Begin,
    /// The end of the reply: routes that were not sent again are withdrawn.
    End,
    /// An unknown subtype, which must be ignored.
    Unknown(u8),
}

/// A ROUTE-REFRESH message. The family is as numbered by IANA, since a peer may name any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteRefresh {
    /// Address family.
    pub afi: u16,
    /// Subsequent address family.
    pub safi: u8,
    /// Request, begin or end.
    pub kind: RefreshKind,
}

impl RouteRefresh {
    /// A message about a family that ribtide carries.
    pub fn new(family: AfiSafi, kind: RefreshKind) -> RouteRefresh {
        let (afi, safi) = family.codes();
        RouteRefresh { afi, safi, kind }
    }

    /// Its family; `None`: ribtide does not carry it.
    pub fn family(&self) -> Option<AfiSafi> {
        AfiSafi::from_codes(self.afi, self.safi)
    }

    /// Reads the body of a ROUTE-REFRESH. Outbound filters (RFC 5291), which we never offer, are ignored.
    ///
    /// # Errors
    /// The NOTIFICATION to close with, when the length is wrong (RFC 7313 section 5).
    pub fn parse(body: &[u8]) -> Result<RouteRefresh, Notification> {
        let wrong = || {
            // The data is the whole message as received.
            let mut data = Vec::new();
            let at = start(&mut data, MessageType::RouteRefresh);
            data.extend_from_slice(body);
            finish(&mut data, at);
            Notification::with_data(code::ROUTE_REFRESH, route_refresh::INVALID_LENGTH, data)
        };
        let Some(([afi_high, afi_low, subtype, safi], filters)) = body.split_first_chunk::<4>() else {
            return Err(wrong());
        };
        let kind = match subtype {
            0 => RefreshKind::Request,
            1 => RefreshKind::Begin,
            2 => RefreshKind::End,
            other => RefreshKind::Unknown(*other),
        };
        if matches!(kind, RefreshKind::Begin | RefreshKind::End) && !filters.is_empty() {
            return Err(wrong());
        }
        Ok(RouteRefresh { afi: u16::from_be_bytes([*afi_high, *afi_low]), safi: *safi, kind })
    }

    /// Appends the message.
    pub fn write(self, out: &mut Vec<u8>) {
        let at = start(out, MessageType::RouteRefresh);
        let subtype = match self.kind {
            RefreshKind::Request => 0,
            RefreshKind::Begin => 1,
            RefreshKind::End => 2,
            RefreshKind::Unknown(n) => n,
        };
        out.extend_from_slice(&self.afi.to_be_bytes());
        out.extend_from_slice(&[subtype, self.safi]);
        finish(out, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keepalive() -> Vec<u8> {
        let mut out = Vec::new();
        write_keepalive(&mut out);
        out
    }

    fn error(buf: &[u8], max_len: usize) -> (u8, u8, Vec<u8>) {
        let n = frame(buf, max_len).unwrap_err();
        (n.code, n.subcode, n.data)
    }

    #[test]
    fn a_message_is_cut_when_it_is_whole() {
        let mut buf = keepalive();
        assert_eq!(buf.len(), HEADER_LEN);
        buf.extend_from_slice(&keepalive());
        for short in 0..HEADER_LEN {
            assert_eq!(frame(&buf[..short], MAX_LEN), Ok(None));
        }
        let frame = frame(&buf, MAX_LEN).unwrap().unwrap();
        assert_eq!(frame, Frame { kind: MessageType::Keepalive, body: &[], total_len: HEADER_LEN });
    }

    #[test]
    fn a_wrong_marker_is_not_synchronized() {
        let mut buf = keepalive();
        buf[3] = 0;
        assert_eq!(error(&buf, MAX_LEN), (1, 1, vec![]));
    }

    #[test]
    fn a_wrong_length_is_in_the_data() {
        for (kind, len, max) in [
            (4u8, 18u16, MAX_LEN),
            (4, 20, MAX_LEN),
            (2, 22, MAX_LEN),
            (2, 4097, MAX_LEN),
            (1, 28, MAX_LEN),
            (1, 4097, MAX_EXTENDED_LEN),
            (3, 20, MAX_LEN),
            (5, 22, MAX_LEN),
        ] {
            let mut buf = keepalive();
            buf[16..18].copy_from_slice(&len.to_be_bytes());
            buf[18] = kind;
            assert_eq!(error(&buf, max), (1, 2, len.to_be_bytes().to_vec()), "type {kind} length {len}");
        }
        let mut extended = keepalive();
        extended[16..18].copy_from_slice(&4097u16.to_be_bytes());
        extended[18] = 2;
        assert_eq!(frame(&extended, MAX_EXTENDED_LEN), Ok(None));
    }

    #[test]
    fn an_unknown_type_is_named() {
        let mut buf = keepalive();
        buf[18] = 6;
        assert_eq!(error(&buf, MAX_LEN), (1, 3, vec![6]));
    }

    #[test]
    fn route_refresh_round_trips() {
        for kind in [RefreshKind::Request, RefreshKind::Begin, RefreshKind::End, RefreshKind::Unknown(9)] {
            let sent = RouteRefresh { afi: 2, safi: 1, kind };
            let mut out = Vec::new();
            sent.write(&mut out);
            let frame = frame(&out, MAX_LEN).unwrap().unwrap();
            assert_eq!(frame.kind, MessageType::RouteRefresh);
            assert_eq!(RouteRefresh::parse(frame.body), Ok(sent));
        }
    }

    #[test]
    fn an_enhanced_route_refresh_of_wrong_length_carries_the_message_back() {
        assert!(RouteRefresh::parse(&[0, 1, 0, 1, 9, 9]).is_ok(), "a request may carry filters");
        let n = RouteRefresh::parse(&[0, 1, 1, 1, 9]).unwrap_err();
        assert_eq!((n.code, n.subcode, n.data.len()), (7, 1, 24));
        assert!(RouteRefresh::parse(&[0, 1]).is_err());
    }
}
