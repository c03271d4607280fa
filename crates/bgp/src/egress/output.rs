//! Messages on their way out: packed into chunks, counted, addressed.

use super::{Counters, Receiver, Write};
use crate::peer::PeerId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A chunk is closed when it has this many bytes. What a member's socket takes at once is of this order.
const CHUNK: usize = 64 * 1024;

/// What one flush sends to one list of receivers. No prefix is in it twice, so the order of chunks is free.
pub(super) struct Sink {
    to: Arc<[Receiver]>,
    streams: BTreeMap<Option<PeerId>, Stream>,
    closed: Vec<Closed>,
}

/// Messages for all receivers but one.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    pub(super) counters: Counters,
}

/// A chunk, and what it counts for each of its receivers.
pub(super) struct Closed {
    pub(super) write: Write,
    pub(super) counters: Counters,
}

impl Sink {
    /// `to` is in the order of peers.
    pub(super) fn new(to: Arc<[Receiver]>) -> Sink {
        Sink { to, streams: BTreeMap::new(), closed: Vec::new() }
    }

    /// Appends messages for all receivers but `except`; `write` puts them behind what is there.
    pub(super) fn write(&mut self, except: Option<PeerId>, write: impl FnOnce(&mut Stream)) {
        let except = except.filter(|peer| self.to.binary_search_by_key(peer, |r| r.peer).is_ok());
        let stream = self.streams.entry(except).or_default();
        write(stream);
        if stream.bytes.len() >= CHUNK {
            let closed = close(&self.to, except, stream);
            self.closed.extend(closed);
        }
    }

    /// The chunks, in order.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Closed> {
        let rest: Vec<Closed> =
            self.streams.iter_mut().filter_map(|(except, stream)| close(&self.to, *except, stream)).collect();
        self.closed.into_iter().chain(rest)
    }
}

fn close(to: &Arc<[Receiver]>, except: Option<PeerId>, stream: &mut Stream) -> Option<Closed> {
    let counters = std::mem::take(&mut stream.counters);
    if stream.bytes.is_empty() {
        return None;
    }
    let chunk = Arc::from(stream.bytes.as_slice());
    stream.bytes.clear();
    Some(Closed { write: Write { chunk, to: to.clone(), except }, counters })
}
