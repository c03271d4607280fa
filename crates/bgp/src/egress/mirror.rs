//! The Adj-RIBs-Out for monitoring stations (BMP, RFC 8671), packed from best paths when a station asks for them.
//!
//! Nothing stores what a member was sent. It is what policies and rules make of the best paths, but for prefixes that
//! are pending. So a page of best paths is packed as for members, at once and without the pending prefixes: these are
//! packed later, or never, where a route was withdrawn before it was sent. A member whose table is incomplete is left
//! out, because it is sent all of it. So the messages of pages and those to members, in the order in which the worker
//! packs them, leave what the members have.

use super::offers::{Handles, Offers};
use super::pack::Packer;
use super::paths::Handle;
use super::{Worker, Write};
use crate::message::{BestBatch, NONE};
use ribtide_prefix::{Family, Prefix, for_each_family};

/// The messages of one [`EgressIn::Mirror`](crate::message::EgressIn::Mirror), for all members of all groups.
#[derive(Debug)]
pub struct Mirrored {
    /// The token of the page.
    pub token: u64,
    /// What members were sent of these prefixes.
    pub writes: Vec<Write>,
}

impl Worker {
    /// The messages for stations since the last call.
    pub fn take_mirrored(&mut self) -> Vec<Mirrored> {
        std::mem::take(&mut self.mirrored)
    }

    pub(super) fn mirror(&mut self, token: u64, batch: &BestBatch) {
        let mut writes = Vec::new();
        for group in self.groups.values() {
            let settings = group.settings.clone();
            let mut handles = Handles::new(batch.paths.len());
            for_each_family!(F => if settings.families.has(F::AFI) {
                let mut offers = Offers::new(&settings, &self.peers, F::AFI, &batch.paths, &mut handles);
                let mut items: Vec<(Handle, Prefix<F>)> = Vec::new();
                for change in batch.changes.get::<F>() {
                    let handle = offers.handle(change.new, change.prefix, &mut self.paths);
                    if handle != NONE {
                        items.push((handle, change.prefix));
                    }
                }
                // Routes with one path share messages.
                items.sort_unstable();
                for cohort in group.cohorts() {
                    let queue = cohort.queue::<F>();
                    let settled = items.iter().filter(|(_, prefix)| queue.is_settled(*prefix));
                    let settled: Vec<(Handle, Prefix<F>)> = settled.copied().collect();
                    let mut packer = Packer::new(&settings, &self.peers, cohort.members().clone());
                    for run in settled.chunk_by(|a, b| a.0 == b.0) {
                        if let Some((path, _)) = run.first() {
                            packer.announce(*path, run, &self.paths);
                        }
                    }
                    writes.extend(packer.finish().map(|closed| closed.write));
                }
            });
            handles.release(&mut self.paths);
        }
        self.mirrored.push(Mirrored { token, writes });
    }
}
