//! Replies to the routing daemon: a route is in the chip, or refused.
//!
//! SONiC's fpmsyncd replies without FIB suppression with the whole announced route, and with it with a new route of the same key. The
//! client gets the same bytes here. Only ribtide's client gets a shorter form, with nothing but what it reads.

use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::Name;
use ribtide_prefix::AnyPrefix;
use ribtide_wire::fpm;
use ribtide_wire::netlink::Message;

/// The form of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyForm {
    /// The key of the route: to ribtide's client.
    Short,
    /// A new route of libnl, as SONiC's builds it for a response of orchagent.
    Confirmation,
    /// The announced route as SONiC's sends it back: this frame of [`FpmOut::replies`].
    Announced {
        /// Where the frame begins.
        at: usize,
        /// Its length in bytes.
        len: usize,
    },
}

/// A notification to the routing daemon about a route: it is in the chip, or refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offload {
    /// The destination.
    pub prefix: AnyPrefix,
    /// The table, as the daemon itself numbered it.
    pub table: u32,
    /// The protocol.
    pub protocol: u8,
    /// Why the chip does not have it; `None` when it has.
    pub refused: Option<Name>,
    /// The form of the reply that it is in the chip. SONiC's sends no refusals.
    pub form: ReplyForm,
}

impl Offload {
    /// Appends the FPM frame. `replies` is [`FpmOut::replies`].
    pub fn write(&self, replies: &[u8], out: &mut Vec<u8>) {
        match (&self.refused, self.form) {
            (Some(why), _) => fpm::write_refusal(out, self.prefix, self.table, self.protocol, why),
            (None, ReplyForm::Short) => {
                fpm::write_offload_reply(out, self.prefix, self.table, self.protocol, true);
            }
            (None, ReplyForm::Confirmation) => {
                fpm::write_sonic_confirmation(out, self.prefix, self.table, self.protocol);
            }
            (None, ReplyForm::Announced { at, len }) => {
                out.extend_from_slice(replies.get(at..at + len).unwrap_or_default());
            }
        }
    }
}

/// A notification to the routing daemon about a label's route: fpmsyncd took it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelOffload {
    /// The label.
    pub label: u32,
    /// The table, as the daemon numbered it.
    pub table: u32,
    /// The protocol.
    pub protocol: u8,
    /// The form of the reply.
    pub form: ReplyForm,
}

impl LabelOffload {
    /// Appends the FPM frame. `replies` is [`FpmOut::replies`].
    pub fn write(&self, replies: &[u8], out: &mut Vec<u8>) {
        match self.form {
            ReplyForm::Announced { at, len } => {
                out.extend_from_slice(replies.get(at..at + len).unwrap_or_default());
            }
            ReplyForm::Short | ReplyForm::Confirmation => {
                fpm::write_label_offload_reply(out, self.label, self.table, self.protocol);
            }
        }
    }
}

impl FpmOut {
    /// Whether there is a reply.
    pub fn has_replies(&self) -> bool {
        !self.offloads.is_empty()
            || !self.label_offloads.is_empty()
            || self.in_chip.is_some()
            || !self.comparison.is_empty()
    }

    /// Appends the frames of all replies, and removes these.
    pub fn write_replies(&mut self, out: &mut Vec<u8>) {
        if let Some(in_chip) = self.in_chip.take() {
            fpm::write_start_of_replies(out, in_chip);
        }
        let replies = &self.replies;
        self.offloads.drain(..).for_each(|offload| offload.write(replies, out));
        self.label_offloads.drain(..).for_each(|offload| offload.write(replies, out));
        self.replies.clear();
        out.append(&mut self.comparison);
    }
}

impl Fpmsyncd {
    /// The form of the reply to an announced route, at once. `encap`: it has an encapsulation, other than labels of its own.
    pub(super) fn announced_form(
        &self,
        message: Option<&Message<'_>>,
        encap: bool,
        out: &mut FpmOut,
    ) -> ReplyForm {
        let Some(message) = message.filter(|_| self.client_waits().is_none()) else {
            return ReplyForm::Short;
        };
        let at = out.replies.len();
        match fpm::write_sonic_reply(&mut out.replies, message, encap) {
            Ok(()) => ReplyForm::Announced { at, len: out.replies.len() - at },
            // A frame longer than SONiC's own sends gets the key.
            Err(_) => ReplyForm::Short,
        }
    }

    /// Tells the routing daemon that a route is in the chip, or why it is `refused`.
    pub(super) fn offload(&mut self, at: RouteRef, protocol: u8, refused: Option<Name>, out: &mut FpmOut) {
        let is_ours = self.client_waits().is_some();
        let form = if is_ours { ReplyForm::Short } else { ReplyForm::Confirmation };
        self.reply(at, protocol, refused, form, out);
    }

    /// The same, with the form of the reply.
    pub(super) fn reply(
        &mut self,
        at: RouteRef,
        protocol: u8,
        refused: Option<Name>,
        form: ReplyForm,
        out: &mut FpmOut,
    ) {
        match refused {
            None => self.counters.confirmed += 1,
            Some(_) => self.counters.failed += 1,
        }
        let table = self.vrfs[at.0 as usize].table;
        out.offloads.push(Offload { prefix: at.1, table, protocol, refused, form });
    }
}
