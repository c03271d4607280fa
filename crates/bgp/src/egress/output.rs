//! Outgoing messages: packed into chunks, counted, addressed.

use super::{Counters, Receiver, Write};
use crate::peer::PeerId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes at which a chunk is closed: about what a member's socket takes at once.
const CHUNK: usize = 64 * 1024;

/// The messages of one flush for one list of receivers. No prefix is in it twice, so chunks may be
/// reordered.
pub(super) struct Sink {
    to: Arc<[Receiver]>,
    open: BTreeMap<Option<PeerId>, Open>,
    closed: Vec<Closed>,
}

/// Messages for all receivers but one, not yet a chunk.
#[derive(Default)]
struct Open {
    bytes: Vec<u8>,
    counters: Counters,
}

/// A chunk with its counts per receiver.
pub(super) struct Closed {
    pub(super) write: Write,
    pub(super) counters: Counters,
}

impl Sink {
    /// `to` is in the order of peers.
    pub(super) fn new(to: Arc<[Receiver]>) -> Sink {
        Sink { to, open: BTreeMap::new(), closed: Vec::new() }
    }

    /// Appends messages for all receivers but `except`; `write` appends and counts them.
    pub(super) fn write(&mut self, except: Option<PeerId>, write: impl FnOnce(&mut Vec<u8>, &mut Counters)) {
        let except = except.filter(|peer| self.to.binary_search_by_key(peer, |r| r.peer).is_ok());
        let open = self.open.entry(except).or_default();
        write(&mut open.bytes, &mut open.counters);
        if open.bytes.len() >= CHUNK {
            let closed = close(&self.to, except, open);
            self.closed.extend(closed);
        }
    }

    /// The chunks, in order.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Closed> {
        let rest: Vec<Closed> =
            self.open.iter_mut().filter_map(|(except, open)| close(&self.to, *except, open)).collect();
        self.closed.into_iter().chain(rest)
    }
}

fn close(to: &Arc<[Receiver]>, except: Option<PeerId>, open: &mut Open) -> Option<Closed> {
    let counters = std::mem::take(&mut open.counters);
    if open.bytes.is_empty() {
        return None;
    }
    let chunk = Arc::from(open.bytes.as_slice());
    open.bytes.clear();
    Some(Closed { write: Write { chunk, to: to.clone(), except }, counters })
}
