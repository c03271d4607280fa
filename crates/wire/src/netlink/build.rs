//! Writing one message at the end of a buffer: header, body, attributes, lengths patched when known.

use std::net::IpAddr;

/// A message or attribute would exceed its 16-bit length field (thousands of next hops). Nothing
/// was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many next hops for one message; use next-hop groups or lower the multipath limit")
    }
}

impl std::error::Error for TooLong {}

/// A message being written at the end of `out`.
pub(crate) struct Builder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    too_long: bool,
}

impl<'a> Builder<'a> {
    /// Starts a message; `fixed` is the structure that follows the header (`rtmsg`, `nhmsg`, ...).
    pub(crate) fn new(out: &'a mut Vec<u8>, kind: u16, flags: u16, seq: u32, fixed: &[u8]) -> Self {
        let start = out.len();
        let ([k0, k1], [f0, f1], [s0, s1, s2, s3]) =
            (kind.to_ne_bytes(), flags.to_ne_bytes(), seq.to_ne_bytes());
        // Few writes, because a million routes need a million of these.
        out.extend_from_slice(&[0, 0, 0, 0, k0, k1, f0, f1, s0, s1, s2, s3, 0, 0, 0, 0]);
        out.extend_from_slice(fixed);
        Builder { out, start, too_long: false }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn attr(&mut self, kind: u16, value: &[u8]) {
        let at = self.open(kind);
        self.bytes(value);
        self.close(at);
    }

    pub(crate) fn attr_u32(&mut self, kind: u16, value: u32) {
        self.attr_word(kind, value.to_ne_bytes());
    }

    /// [`attr`](Self::attr) for four bytes, in one piece.
    fn attr_word(&mut self, kind: u16, [v0, v1, v2, v3]: [u8; 4]) {
        let ([l0, l1], [k0, k1]) = (8u16.to_ne_bytes(), kind.to_ne_bytes());
        self.bytes(&[l0, l1, k0, k1, v0, v1, v2, v3]);
    }

    pub(crate) fn attr_addr(&mut self, kind: u16, addr: IpAddr) {
        match addr {
            IpAddr::V4(a) => self.attr_word(kind, a.octets()),
            IpAddr::V6(a) => self.attr(kind, &a.octets()),
        }
    }

    /// Starts an attribute whose value is written with further calls; [`close`](Self::close) ends it.
    pub(crate) fn open(&mut self, kind: u16) -> usize {
        let at = self.open_raw();
        self.bytes(&kind.to_ne_bytes());
        at
    }

    /// Starts anything that begins with its own 16-bit length: an attribute or an `rtnexthop`.
    pub(crate) fn open_raw(&mut self) -> usize {
        let at = self.out.len();
        self.bytes(&[0; 2]);
        at
    }

    /// Ends what `open` or `open_raw` started at `at`: writes its length and pads to four bytes.
    pub(crate) fn close(&mut self, at: usize) {
        match u16::try_from(self.out.len() - at) {
            Ok(len) => patch(self.out, at, len.to_ne_bytes()),
            Err(_) => self.too_long = true,
        }
        // Relative to the message, because in an FPM stream it may start at any offset.
        let pad = (self.start.wrapping_sub(self.out.len())) & 3;
        self.out.resize(self.out.len() + pad, 0);
    }

    /// Ends a message of fixed size, which cannot be too long.
    pub(crate) fn finish_short(self) {
        let finished = self.finish();
        debug_assert!(finished.is_ok());
    }

    /// Ends the message, or removes it when a part of it was too long.
    pub(crate) fn finish(self) -> Result<(), TooLong> {
        let len = u32::try_from(self.out.len() - self.start);
        match len {
            Ok(len) if !self.too_long => {
                patch(self.out, self.start, len.to_ne_bytes());
                Ok(())
            }
            _ => {
                self.out.truncate(self.start);
                Err(TooLong)
            }
        }
    }
}

/// Overwrites the bytes at `at`, which the caller wrote before.
pub(crate) fn patch<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}
