//! The urgent queue: groups that change ahead of the batches that wait.
//!
//! A link fails while a dataplane still has batches of routes to write. The repair is new content of some groups, which
//! must not wait for these batches: it comes through a queue of its own and overtakes them. [`UrgentQueue`] is the
//! dataplane's side. It merges the two queues into one sequence with the same result as if every urgent operation had come
//! in its turn.
//!
//! An [`UrgentOp`] was made after one batch and before the next. So every batch up to that one has older content for its
//! group, which the newer one replaces wherever it comes; every later batch knows better. A group whose making has
//! not come yet cannot change yet: it is made with the newer content in its turn. And the number that a deleted group had
//! before means another group: the batch that made a group tells them apart.

use crate::message::{FibBatch, FibGroup, GroupId, UrgentOp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Merges a dataplane's urgent operations with its batches.
///
/// The dataplane carries out what [`UrgentQueue::urgent`] and [`UrgentQueue::in_order`] return, in that order. An urgent operation
/// must be given to the former before any batch that was made after it is given to the latter.
#[derive(Debug, Default)]
pub struct UrgentQueue {
    /// The latest batch that was returned since the dataplane's state is known.
    done: Option<u64>,
    /// Operations that came ahead of their turn, by group and the batch that made it, while older batches may still come.
    early: BTreeMap<(GroupId, u64), EarlyOp>,
}

#[derive(Debug)]
struct EarlyOp {
    after: u64,
    content: FibGroup,
}

impl UrgentQueue {
    /// The dataplane's state is unknown from here to the next start of a replay.
    pub fn restart(&mut self) {
        self.done = None;
    }

    /// Takes urgent operations, and returns those that can be carried out now, if any. That batch has no number: it is
    /// finished with those that it overtook, and acknowledging it acknowledges none.
    pub fn urgent(&mut self, ops: &[UrgentOp]) -> Option<FibBatch> {
        let mut now = FibBatch::default();
        for UrgentOp { after, made, op } in ops {
            if self.done.is_some_and(|done| *made <= done) {
                now.groups.push(op.clone());
            }
            if self.done.is_none_or(|done| done < *after) {
                let early = EarlyOp { after: *after, content: op.content.clone() };
                self.early.insert((op.id, *made), early);
            }
        }
        (!now.groups.is_empty()).then_some(now)
    }

    /// Takes the next batch, and returns what the dataplane carries out for it.
    pub fn in_order(&mut self, mut batch: Arc<FibBatch>) -> Arc<FibBatch> {
        let seq = batch.seq;
        if self.done.is_some() || batch.start_of_replay {
            self.done = Some(seq);
        }
        if self.early.is_empty() {
            return batch;
        }
        self.early.retain(|_, early| seq <= early.after);
        let newer = |id: GroupId| self.early.range((id, 0)..=(id, seq)).next_back();
        if batch.groups.iter().any(|op| newer(op.id).is_some()) {
            for op in &mut Arc::make_mut(&mut batch).groups {
                if let Some((_, early)) = newer(op.id) {
                    op.content = early.content.clone();
                }
            }
        }
        batch
    }
}
