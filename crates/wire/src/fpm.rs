//! The Forwarding Plane Manager protocol (FPM, FRR `dplane_fpm_nl`): netlink messages in frames
//! over TCP, from the routing daemon (client) to the program of the switch (server; SONiC's
//! `fpmsyncd`, port 2620).
//!
//! A frame is a header of four bytes (version, type, length in network order including the header) and one or more
//! netlink messages.

pub mod compare;

use crate::netlink::numbers::*;
use crate::netlink::{
    Content, LabelRoute, Malformed, Message, Messages, NextHop, NextHops, NoReply, Route, TooLong, messages,
    write_confirmation, write_done, write_echo, write_multipart, write_next_hop_delete, write_rebuilt,
};
use ribtide_prefix::AnyPrefix;

/// The TCP port that servers listen on.
pub const PORT: u16 = 2620;
/// Length of a frame's header in bytes.
pub const HEADER: usize = 4;
/// The longest frame that SONiC's `fpmsyncd` accepts; it never recovers from a longer one. Writers
/// keep this limit, and [`frame`] accepts the 65,535 bytes of the length field.
pub const MAX_SENT: usize = 16_384;

/// The longest reason of a refusal, in bytes.
const LONGEST_REASON: usize = 255;
const VERSION: u8 = 1;
const TYPE_NETLINK: u8 = 1;

/// The content of one message. FPM uses routes, next-hop objects and `Other`.
pub type FpmMessage<'a> = Content<'a>;

/// A complete frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Bytes of the frame, header included: where the next one starts.
    pub len: usize,
    /// The netlink messages; empty when the frame is of another type (protobuf), which is to be skipped.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The undecoded messages: for readers of header fields.
    pub fn raw(&self) -> Messages<'a> {
        messages(self.body)
    }

    /// The decoded messages. An error before further items concerns one message; after an error
    /// that ends the iteration, the rest of the frame is unreadable.
    pub fn messages(&self) -> impl Iterator<Item = Result<FpmMessage<'a>, Malformed>> + use<'a> {
        self.raw().map(|m: Result<Message<'a>, _>| m.and_then(|m| Content::decode(&m)))
    }
}

/// The stream is not FPM. The next frame cannot be found: close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FpmError {
    /// The type is 0, which no frame has.
    Type,
    /// The length is below the header's or not a multiple of four.
    Length(u16),
}

impl std::fmt::Display for FpmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FpmError::Type => f.write_str("the peer sent a frame of type 0; it does not speak FPM"),
            FpmError::Length(n) => {
                write!(
                    f,
                    "the peer sent a frame of length {n}, which is no multiple of 4 from 4 up; it does not speak FPM"
                )
            }
        }
    }
}

impl std::error::Error for FpmError {}

/// The frame at the start of `buf`; `None` when it is not complete yet.
pub fn frame(buf: &[u8]) -> Result<Option<Frame<'_>>, FpmError> {
    let Some(&[_version, kind, l0, l1]) = buf.first_chunk() else { return Ok(None) };
    let len = u16::from_be_bytes([l0, l1]);
    if kind == 0 {
        return Err(FpmError::Type);
    }
    if usize::from(len) < HEADER || !len.is_multiple_of(4) {
        return Err(FpmError::Length(len));
    }
    let len = usize::from(len);
    Ok(buf.get(HEADER..len).map(|body| Frame { len, body: if kind == TYPE_NETLINK { body } else { &[] } }))
}

/// Appends a frame with what `fill` appends. Removes it again when `fill` fails or the frame would
/// exceed [`MAX_SENT`].
pub fn write_frame(
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>,
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(&[VERSION, TYPE_NETLINK, 0, 0]);
    let filled = fill(out);
    let len = out.len() - start;
    match u16::try_from(len) {
        Ok(n) if filled.is_ok() && len <= MAX_SENT => {
            crate::netlink::patch(out, start + 2, n.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(TooLong)
        }
    }
}

/// [`write_frame`] for one message of fixed size, which cannot be too long.
fn write_short(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>) {
    let written = write_frame(out, fill);
    debug_assert!(written.is_ok());
}

/// A frame is a multiple of four bytes long; so are all messages but those of others.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len.wrapping_neg() % 4, 0);
}

/// Appends a frame that adds `route` or replaces what its prefix had.
pub fn write_route(out: &mut Vec<u8>, route: &Route<'_>) -> Result<(), TooLong> {
    write_frame(out, |out| route.write_new(out, NLM_F_CREATE | NLM_F_REPLACE, 0))
}

/// Appends a frame that deletes the route of `prefix`.
pub fn write_delete(out: &mut Vec<u8>, prefix: AnyPrefix, table: u32, protocol: u8) {
    let route = Route::new(prefix, table, protocol, NextHops::None);
    write_short(out, |out| route.write_delete(out, 0, 0));
}

/// Appends a frame that adds the route of a label or replaces what the label had.
pub fn write_label_route(out: &mut Vec<u8>, route: &LabelRoute<'_>) -> Result<(), TooLong> {
    write_frame(out, |out| route.write_new(out, NLM_F_CREATE | NLM_F_REPLACE, 0))
}

/// Appends a frame that deletes the route of `label`.
pub fn write_delete_label(out: &mut Vec<u8>, label: u32, protocol: u8) {
    let route = LabelRoute::new(label, protocol, NextHops::None);
    write_short(out, |out| route.write_delete(out, 0, 0));
}

/// Appends a frame that makes or replaces a next-hop object. Members go before the group that names them.
pub fn write_next_hop(out: &mut Vec<u8>, next_hop: &NextHop<'_>) -> Result<(), TooLong> {
    write_frame(out, |out| next_hop.write_new(out, NLM_F_CREATE | NLM_F_REPLACE, 0))
}

/// Appends the frame that starts a replay, which [`write_end_of_replay`] ends. `waits`: the client
/// waits for the chip before it uses a route; a change of it is sent again. The message is
/// `NLMSG_NOOP` with `NLM_F_MULTI`, and with `NLM_F_ACK` if `waits`. Other servers ignore it.
pub fn write_start_of_replay(out: &mut Vec<u8>, waits: bool) {
    write_short(out, |out| {
        write_multipart(out, waits);
        Ok(())
    });
}

/// Appends the server's frame with the time of its replies: when the chip has a route (`in_chip`),
/// or at once. The message is that of [`write_start_of_replay`]; it is sent only to clients that
/// sent theirs, and again after a change.
pub fn write_start_of_replies(out: &mut Vec<u8>, in_chip: bool) {
    write_start_of_replay(out, in_chip);
}

/// Appends the frame that ends a replay: `NLMSG_DONE`. Other servers ignore it.
pub fn write_end_of_replay(out: &mut Vec<u8>) {
    write_short(out, |out| {
        write_done(out);
        Ok(())
    });
}

/// Appends a frame that deletes the next-hop object `id`.
pub fn write_delete_next_hop(out: &mut Vec<u8>, id: u32) {
    write_short(out, |out| {
        write_next_hop_delete(out, id, 0, 0);
        Ok(())
    });
}

/// Appends the server's reply: the switch has the route of `prefix` (`installed`), or refused it.
/// zebra takes a reply only with `NLM_F_REQUEST`, and matches it by table and protocol.
pub fn write_offload_reply(out: &mut Vec<u8>, prefix: AnyPrefix, table: u32, protocol: u8, installed: bool) {
    let mut route = Route::new(prefix, table, protocol, NextHops::None);
    route.flags = if installed { RTM_F_OFFLOAD } else { RTM_F_OFFLOAD_FAILED };
    write_short(out, |out| route.write_new(out, NLM_F_CREATE, 0));
}

/// Appends the reply of SONiC's `fpmsyncd` to the route of `message` at once, without FIB suppression: the
/// whole route again, as libnl builds it, or as it came where it has an `encap`sulation.
///
/// # Errors
/// Why there is no reply. Nothing was appended.
pub fn write_sonic_reply(out: &mut Vec<u8>, message: &Message<'_>, encap: bool) -> Result<(), NoReply> {
    let mut why = Ok(());
    let framed = write_frame(out, |out| {
        why = if encap { write_echo(out, message) } else { write_rebuilt(out, message) };
        let len = if encap { message.body.len() } else { 0 };
        pad(out, len);
        why.map_err(|_| TooLong)
    });
    why.and(framed.map_err(NoReply::from))
}

/// The same to a route that orchagent confirmed.
pub fn write_sonic_confirmation(out: &mut Vec<u8>, prefix: AnyPrefix, table: u32, protocol: u8) {
    write_short(out, |out| write_confirmation(out, prefix, table, protocol));
}

/// The same for a refusal, with the reason as a sentence: other clients ignore it, and one longer
/// than 255 bytes is left out.
pub fn write_refusal(out: &mut Vec<u8>, prefix: AnyPrefix, table: u32, protocol: u8, why: &str) {
    let mut route = Route::new(prefix, table, protocol, NextHops::None);
    route.flags = RTM_F_OFFLOAD_FAILED;
    route.why = Some(why).filter(|why| why.len() <= LONGEST_REASON);
    write_short(out, |out| route.write_new(out, NLM_F_CREATE, 0));
}

/// The same for the route of a label; `table` as the client had it.
pub fn write_label_offload_reply(out: &mut Vec<u8>, label: u32, table: u32, protocol: u8) {
    let route =
        LabelRoute { table, flags: RTM_F_OFFLOAD, ..LabelRoute::new(label, protocol, NextHops::None) };
    write_short(out, |out| route.write_new(out, NLM_F_CREATE, 0));
}

#[cfg(test)]
mod reply_tests;
#[cfg(test)]
mod tests;
