//! Which batches of rows are finished: of each, every route is in the chip as asked, changed again by a later
//! batch, or given up.
//!
//! Whoever writes the rows says of which batch they are. From there on a route's task carries a ticket of its batch, and
//! the batch counts its tickets: so an answer costs an addition and no look-up by prefix.

use crate::row::RouteKey;
use std::collections::VecDeque;

/// What ties a row to its batch; the default is a row that no client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Ticket(u64);

impl Ticket {
    /// No client waits.
    pub(super) const NONE: Ticket = Ticket(0);

    /// Whether a batch waits for the row.
    pub(super) fn is_some(self) -> bool {
        self != Ticket::NONE
    }
}

/// A batch of rows that is finished.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    /// The number that its writer gave it; 0: what no batch is about.
    pub batch: u64,
    /// Of its routes, those that the chip does not have as asked, and why, as a sentence.
    pub failed: Vec<(RouteKey, String)>,
}

#[derive(Debug)]
struct Open {
    batch: u64,
    /// Rows that did not come yet.
    due: usize,
    /// Rows that came and are not done.
    left: usize,
    failed: Vec<(RouteKey, String)>,
}

/// The batches that are not finished, oldest first.
#[derive(Default, Debug)]
pub(super) struct Ledger {
    open: VecDeque<Open>,
    /// How many were taken out; tickets count from there, and from 1.
    taken: u64,
    /// Of which of them the next row is; those before it are not due any more.
    at: usize,
    due: usize,
}

impl Ledger {
    /// Shrinks the table of open batches to its contents.
    pub(super) fn shrink_to_fit(&mut self) {
        self.open.shrink_to_fit();
    }

    /// The next `rows` rows after those that are due are of `batch`.
    pub(super) fn announce(&mut self, batch: u64, rows: usize) {
        self.open.push_back(Open { batch, due: rows, left: 0, failed: Vec::new() });
        self.due += rows;
    }

    /// How many rows were announced and did not come.
    pub(super) fn due(&self) -> usize {
        self.due
    }

    /// A row came.
    pub(super) fn row(&mut self) -> Ticket {
        while let Some(open) = self.open.get_mut(self.at) {
            if open.due > 0 {
                open.due -= 1;
                open.left += 1;
                self.due -= 1;
                return Ticket(self.taken + self.at as u64 + 1);
            }
            self.at += 1;
        }
        Ticket::default()
    }

    /// A row is done; `failed` if the chip does not have it as asked.
    pub(super) fn done(&mut self, ticket: Ticket, failed: Option<(RouteKey, String)>) {
        if ticket.is_some()
            && let Some(open) = self.open.get_mut((ticket.0 - self.taken - 1) as usize)
        {
            open.left -= 1;
            open.failed.extend(failed);
        }
    }

    /// Whether the oldest batch waits for nothing but rows that came.
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
