//! The completion tracker: which batches of rows are finished.
//!
//! A batch is finished when each of its routes is in the chip as its row asks, was changed by a
//! later batch, or failed.
//!
//! The writer announces how many rows each batch has. The tracker gives each row a token of its
//! batch, the route's task carries it, and the batch counts its open tokens: a reply costs one
//! subtraction and no look-up by prefix.

use crate::row::RouteKey;
use std::collections::VecDeque;

/// Ties a row to its batch; the default is the token of a row outside of every batch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct BatchToken(u64);

impl BatchToken {
    /// The token of a row outside of every batch.
    pub(super) const NONE: BatchToken = BatchToken(0);

    /// Whether the row belongs to a batch.
    pub(super) fn is_some(self) -> bool {
        self != BatchToken::NONE
    }
}

/// A batch of rows that is finished.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    /// The writer's number of the batch; 0 for failures outside of every batch.
    pub batch: u64,
    /// The routes that failed, each with its reason as a sentence.
    pub failed: Vec<(RouteKey, String)>,
}

#[derive(Debug)]
struct OpenBatch {
    batch: u64,
    /// Announced rows that were not read yet.
    due: usize,
    /// Rows that were read and are not done.
    left: usize,
    failed: Vec<(RouteKey, String)>,
}

/// The batches that are not finished, oldest first.
#[derive(Default, Debug)]
pub(super) struct CompletionTracker {
    open: VecDeque<OpenBatch>,
    /// How many batches were finished and taken; tokens are numbered from there, beginning with 1.
    taken: u64,
    /// The open batch that the next row belongs to; earlier ones have no rows due.
    at: usize,
    due: usize,
}

impl CompletionTracker {
    /// Shrinks the table of open batches to its contents.
    pub(super) fn shrink_to_fit(&mut self) {
        self.open.shrink_to_fit();
    }

    /// Announces that `rows` rows, after those that are due, belong to `batch`.
    pub(super) fn announce(&mut self, batch: u64, rows: usize) {
        self.open.push_back(OpenBatch { batch, due: rows, left: 0, failed: Vec::new() });
        self.due += rows;
    }

    /// How many announced rows were not read yet.
    pub(super) fn due(&self) -> usize {
        self.due
    }

    /// Counts a row that was read, and returns its token.
    pub(super) fn row(&mut self) -> BatchToken {
        while let Some(open) = self.open.get_mut(self.at) {
            if open.due > 0 {
                open.due -= 1;
                open.left += 1;
                self.due -= 1;
                return BatchToken(self.taken + self.at as u64 + 1);
            }
            self.at += 1;
        }
        BatchToken::default()
    }

    /// Counts a row as done; `failed` carries the route and the reason of a failure.
    pub(super) fn done(&mut self, token: BatchToken, failed: Option<(RouteKey, String)>) {
        if token.is_some()
            && let Some(open) = self.open.get_mut((token.0 - self.taken - 1) as usize)
        {
            open.left -= 1;
            open.failed.extend(failed);
        }
    }

    /// Whether all rows of the oldest batch were read and some are not done.
    pub(super) fn waits(&self) -> bool {
        self.open.front().is_some_and(|open| open.due == 0 && open.left > 0)
    }

    /// Takes the oldest batch if it is finished.
    pub(super) fn take(&mut self) -> Option<Finished> {
        self.open.front().filter(|open| open.due == 0 && open.left == 0)?;
        let open = self.open.pop_front()?;
        self.taken += 1;
        self.at = self.at.saturating_sub(1);
        Some(Finished { batch: open.batch, failed: open.failed })
    }
}
