//! The message header, the walk over several messages in one buffer, and the kernel's acknowledgements.

use super::build::Builder;
use super::numbers::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_MULTI, NLMSG_DONE, NLMSG_NOOP, NLMSGERR_ATTR_MSG,
};
use super::{Attrs, Malformed};

/// Length of the header that every message begins with.
pub(super) const HEADER: usize = 16;

/// One undecoded message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The type: `RTM_NEWROUTE` and so on (see [`numbers`](super::numbers)).
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// The sequence number of a request; replies repeat it.
    pub seq: u32,
    /// The port of the socket whose request this replies to; 0 for the kernel's notifications.
    pub port: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Appends the message as it was received.
    pub fn copy(&self, out: &mut Vec<u8>) {
        self.write(&[self.body], out);
    }

    /// Appends this header, and the parts of `body` instead of [`Message::body`].
    pub(crate) fn write(&self, body: &[&[u8]], out: &mut Vec<u8>) {
        let len = HEADER + body.iter().map(|part| part.len()).sum::<usize>();
        // A received body fits into the length that it was received with.
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
        out.extend_from_slice(&self.kind.to_ne_bytes());
        out.extend_from_slice(&self.flags.to_ne_bytes());
        out.extend_from_slice(&self.seq.to_ne_bytes());
        out.extend_from_slice(&self.port.to_ne_bytes());
        body.iter().for_each(|part| out.extend_from_slice(part));
    }
}

/// The messages in `buf`, as one read from the kernel or one FPM frame holds them.
pub fn messages(buf: &[u8]) -> Messages<'_> {
    Messages(buf)
}

/// Iterator over the messages of a buffer. Ends after the first malformed one, since the next cannot be found.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.0);
        if all.is_empty() {
            return None;
        }
        let Some(&[l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, p0, p1, p2, p3]) = all.first_chunk()
        else {
            return Some(Err(Malformed("fewer bytes than a message header")));
        };
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let Some(body) = all.get(HEADER..len) else {
            return Some(Err(Malformed("a message's length does not fit the buffer")));
        };
        self.0 = all.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            seq: u32::from_ne_bytes([s0, s1, s2, s3]),
            port: u32::from_ne_bytes([p0, p1, p2, p3]),
            body,
        }))
    }
}

/// Appends an empty message of a series, with the flag whether the series is acknowledged.
pub fn write_multipart(out: &mut Vec<u8>, ack: bool) {
    let flags = if ack { NLM_F_MULTI | NLM_F_ACK } else { NLM_F_MULTI };
    Builder::new(out, NLMSG_NOOP, flags, 0, &[]).finish_short();
}

/// Appends the message that ends a dump.
pub fn write_done(out: &mut Vec<u8>) {
    Builder::new(out, NLMSG_DONE, 0, 0, &[0; 4]).finish_short();
}

/// The result of a request, or the end of a dump. [`Message::seq`] identifies the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// 0 when the request was done, otherwise the positive error number.
    pub errno: i32,
    /// The kernel's message, if any (extended acknowledgements).
    pub text: Option<&'a str>,
}

impl<'a> Ack<'a> {
    /// Reads `NLMSG_ERROR`.
    pub(super) fn decode_error(message: &Message<'a>) -> Result<Self, Malformed> {
        let short = Malformed("an acknowledgement is cut short");
        let (errno, request) = message.body.split_first_chunk().ok_or(short)?;
        let tlvs = if message.flags & NLM_F_ACK_TLVS == 0 {
            &[]
        } else {
            let request_len = request.first_chunk().map(|b| u32::from_ne_bytes(*b)).ok_or(short)?;
            let skip = if message.flags & NLM_F_CAPPED == 0 {
                (request_len as usize).checked_next_multiple_of(4).ok_or(short)?
            } else {
                HEADER
            };
            request.get(skip..).ok_or(short)?
        };
        Ok(Ack { errno: i32::from_ne_bytes(*errno).wrapping_neg(), text: text(tlvs)? })
    }

    /// Reads `NLMSG_DONE`; some kernels leave the body out.
    pub(super) fn decode_done(message: &Message<'a>) -> Result<Self, Malformed> {
        let Some((errno, tlvs)) = message.body.split_first_chunk() else {
            return Ok(Ack { errno: 0, text: None });
        };
        let tlvs = if message.flags & NLM_F_ACK_TLVS == 0 { &[] } else { tlvs };
        Ok(Ack { errno: i32::from_ne_bytes(*errno).wrapping_neg(), text: text(tlvs)? })
    }
}

fn text(tlvs: &[u8]) -> Result<Option<&str>, Malformed> {
    for attr in Attrs::new(tlvs) {
        let attr = attr?;
        if attr.kind == NLMSGERR_ATTR_MSG {
            return Ok(Some(attr.text()));
        }
    }
    Ok(None)
}
