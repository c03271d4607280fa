//! The FPM client without its threads, its socket and its clock: what the simulator runs.

use super::super::RepairCounters;
use super::super::install_results::InstallResults;
use super::compare::{Comparison, FromServer};
use super::encode::Encoder;
use super::replies::Replies;
use super::style;
use ribtide_rib::{DataplaneId, FibAck, FibBatch};
use ribtide_wire::fpm::compare::Compare;
use ribtide_wire::fpm::{Frame, write_start_of_replay};
use ribtide_wire::netlink::Content;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of a client. The caller carries the bytes, and passes batches only while it is
/// connected.
pub struct FpmMachine {
    id: DataplaneId,
    encoder: Encoder,
    replies: Replies,
    /// Whether BGP waits for the chip.
    waits: bool,
    /// A replay has begun in this connection.
    replayed: bool,
    comparison: Comparison,
    from_server: FromServer,
}

impl FpmMachine {
    /// A client that never was connected, and that compares the server's table every `reconcile`.
    /// `next_hop_groups` as in [`super::start`].
    pub fn new(
        id: DataplaneId,
        next_hop_groups: bool,
        waits: bool,
        reconcile: Duration,
        now: Instant,
    ) -> FpmMachine {
        let encoder = Encoder::new(style(next_hop_groups), now);
        let comparison = Comparison::new(None, reconcile, Arc::default(), now);
        let (replies, from_server) = (Replies::new(id, now), FromServer::default());
        FpmMachine { id, encoder, replies, waits, replayed: false, comparison, from_server }
    }

    /// Takes in that it is connected, and appends the bytes that go first. The caller sends
    /// [`ribtide_rib::RibIn::DataplaneUp`].
    pub fn connected(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.replies = Replies::new(self.id, now);
        self.replayed = false;
        self.comparison.reset();
        self.from_server = FromServer::default();
        write_start_of_replay(out, self.waits);
    }

    /// Takes in a batch, and appends its bytes.
    pub fn batch(&mut self, batch: &FibBatch, now: Instant, out: &mut Vec<u8>) {
        self.encoder.sent_state().tick(now);
        self.replayed |= batch.start_of_replay;
        let mut results = InstallResults::default();
        self.replies.sent(batch, self.replayed && self.waits, now);
        if self.replayed {
            self.encoder.handle(batch, &mut results, &mut |bytes| out.append(bytes));
            self.comparison.sent(batch.start_of_replay, batch.end_of_replay, now);
        }
        self.replies.written(results.ack(self.id, batch.seq).failed);
    }

    /// Takes in a frame of the server.
    pub fn frame(&mut self, frame: &Frame<'_>, now: Instant) {
        let sent = self.encoder.sent_state();
        for message in frame.raw().flatten() {
            if let Ok(Some(message)) = Compare::decode(&message) {
                self.from_server.note(message);
            } else if let Ok(Content::NewRoute(reply)) = Content::decode(&message) {
                self.replies.heard(&reply, &sent, now);
            }
        }
        if !self.waits {
            self.replies.forgo();
        }
    }

    /// Takes in the time, and appends the routes that are sent again, and what the comparison sends.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.encoder.sent_state().tick(now);
        let again = self.replies.again(now);
        if !again.is_empty() {
            let mut results = InstallResults::default();
            self.encoder.resend(&again, &mut results, &mut |bytes| out.append(bytes));
            self.replies.could_not(results.ack(self.id, 0).failed);
        }
        self.comparison.receive(&mut self.from_server);
        let mut results = InstallResults::default();
        self.comparison.step(now, &mut self.encoder, &mut results, &mut |bytes| out.append(bytes));
        self.replies.could_not(results.ack(self.id, 0).failed);
    }

    /// What the comparison found and repaired.
    pub fn repairs(&self) -> &RepairCounters {
        self.comparison.repairs()
    }

    /// The acknowledgement to send, if any.
    pub fn news(&mut self, now: Instant) -> Option<FibAck> {
        self.replies.news(now)
    }
}
