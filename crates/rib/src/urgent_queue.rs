//! The urgent queue: group changes after a failure, which overtake waiting batches.
//!
//! A link may fail while a dataplane still has batches of routes to write. The repair is new
//! content of some groups and must not wait for them: it arrives through a separate queue.
//! [`UrgentQueue`], in the dataplane, merges both queues into one sequence. The result is the same
//! as in the order of creation.
//!
//! An [`UrgentOp`] was made after one batch and before the next. So it replaces older content of
//! its group in all batches up to that one, and later batches replace it. A group that is not
//! created yet is created with the newer content. A reused group number is told apart by the batch
//! that created the group.

use crate::message::{FibBatch, FibGroup, GroupId, UrgentOp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Merges a dataplane's urgent operations with its batches.
///
/// The dataplane applies the results of [`UrgentQueue::urgent`] and [`UrgentQueue::in_order`] in
/// that order. The caller must pass an urgent operation before any batch that was made after it.
#[derive(Debug, Default)]
pub struct UrgentQueue {
    /// The last returned batch since the dataplane's state is known.
    done: Option<u64>,
    /// Operations ahead of their turn, by group and creating batch, while older batches may still
    /// follow.
    early: BTreeMap<(GroupId, u64), EarlyOp>,
}

#[derive(Debug)]
struct EarlyOp {
    after: u64,
    content: FibGroup,
}

impl UrgentQueue {
    /// Marks the dataplane's state as unknown until the next start of a replay.
    pub fn restart(&mut self) {
        self.done = None;
    }

    /// Takes urgent operations and returns those that can be applied now. The returned batch has no
    /// number, so its acknowledgement acknowledges no other batch.
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

    /// Takes the next batch and returns the batch to apply.
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
