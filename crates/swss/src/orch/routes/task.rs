//! Tasks: the change of a route that is not done.

use super::completion_tracker::BatchToken;
use super::retry_cache::Constraint;
use crate::orch::next_hop_ref::NextHopRef;
use crate::orch::to_sync::Pending;
use crate::row::{Name, RouteRow};
use crate::sai::Verb;

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the ready queue.
    Ready,
    /// In the retry cache.
    Waiting(Constraint),
    /// In a bulk.
    InFlight(RequestedEntry),
}

/// The entry that a request in flight will create, set or remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestedEntry {
    pub(super) verb: Verb,
    /// The next-hop reference that the entry will have; `None`: it will be removed.
    pub(super) reference: Option<NextHopRef>,
    /// The change is done with it. Else the task is resolved again.
    pub(super) finish: bool,
}

/// A route's change that is not done. It is passed on in its box: a copy of fields that were just
/// written would wait for the processor's store buffer.
pub(super) struct Task {
    pub(super) change: Pending<RouteRow>,
    /// Changes that came while a request is in flight.
    pub(super) later: Option<Pending<RouteRow>>,
    /// The raw key of the latest row, if its text is not libnl's; the response echoes it.
    pub(super) raw_key: Option<Name>,
    pub(super) state: State,
    /// The constraint that the task pins while it waits.
    pub(super) pin: Option<Constraint>,
    /// The token of the row of the change, or of the latest of its rows.
    pub(super) token: BatchToken,
    /// orchagent made the change itself: it gets no response.
    pub(super) silent: bool,
    /// The rows were found or resent, so no client waits for a response: those of the change, and
    /// those of `later`.
    pub(super) found: [bool; 2],
    /// The verb of the next request, where the chip's reply contradicted our state: create or set.
    pub(super) verb: Option<Verb>,
    /// The chip contradicted our state once in this try, and `verb` was sent after that.
    pub(super) contradicted: bool,
    /// The chip carried out a part of the request, so all of it must be sent again.
    pub(super) half: bool,
    /// Why the route is refused, once the chip's entry is gone.
    pub(super) refused: Option<String>,
}

impl Task {
    const BLANK: Task = Task {
        change: Pending { del: false, set: None, replaces: false },
        later: None,
        raw_key: None,
        state: State::Ready,
        pin: None,
        token: BatchToken::NONE,
        silent: false,
        found: [false; 2],
        verb: None,
        contradicted: false,
        half: false,
        refused: None,
    };

    /// A ready task. Its fields are written in the box: see [`Task`].
    pub(super) fn new(row: Option<RouteRow>, raw_key: Option<Name>, token: Option<BatchToken>) -> Box<Task> {
        let mut task = Box::new(Task::BLANK);
        task.change.del = row.is_none();
        task.change.set = row;
        task.raw_key = raw_key;
        task.silent = token.is_none();
        task.token = token.unwrap_or_default();
        task
    }

    /// A ready task without a change: the route is resolved again.
    pub(super) fn unchanged() -> Box<Task> {
        let mut task = Task::new(None, None, None);
        task.change.del = false;
        task
    }

    /// Whether it is in the ready queue.
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// The latest change.
    pub(super) fn latest(&self) -> &Pending<RouteRow> {
        self.later.as_ref().unwrap_or(&self.change)
    }

    /// Whether the task ends with this row.
    pub(super) fn wants(&self, row: &RouteRow) -> bool {
        self.latest().set.as_ref() == Some(row)
    }

    /// Notes that no client waits for a response to its rows.
    pub(super) fn set_found(&mut self) {
        self.found = [true; 2];
    }

    /// Coalesces a later row with the change, or, while a request is in flight, with the changes
    /// after it. `replaces`: [`crate::row::Change::reshaped`].
    pub(super) fn add(&mut self, row: Option<RouteRow>, replaces: bool, found: bool) {
        match (self.state, &mut self.later) {
            (State::InFlight(_), Some(later)) => {
                later.add(row, replaces);
                self.found[1] &= found;
            }
            (State::InFlight(_), none) => {
                *none = Some(Pending::new(row, replaces));
                self.found[1] = found;
            }
            _ => {
                self.change.add(row, replaces);
                self.found[0] &= found;
            }
        }
    }

    /// Coalesces the later changes with the change, or replaces it by them when it is `done`.
    pub(super) fn take_later(&mut self, done: bool) {
        let Some(later) = self.later.take() else { return };
        self.found[0] = self.found[1] && (done || self.found[0]);
        if done {
            self.change = later;
            return;
        }
        if later.del {
            self.change.add(None, true);
        }
        if let Some(row) = later.set {
            self.change.add(Some(row), later.replaces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Row;

    fn row(ifname: &str) -> RouteRow {
        RouteRow::from_fields(&mut [("ifname", ifname)].into_iter()).unwrap()
    }

    #[test]
    fn task_row_during_a_request_becomes_the_change_after_it() {
        let mut task = Task::new(Some(row("a")), None, None);
        task.state = State::InFlight(RequestedEntry { verb: Verb::Create, reference: None, finish: true });
        task.add(Some(row("b")), false, true);
        assert!(task.wants(&row("b")) && task.change.set == Some(row("a")));
        task.take_later(true);
        assert_eq!((&task.change.set, task.found[0]), (&Some(row("b")), true));
    }

    #[test]
    fn task_row_that_replaces_keeps_no_field_of_a_row_that_the_chip_refused() {
        let blackhole = RouteRow::from_fields(&mut [("blackhole", "true")].into_iter()).unwrap();
        for (replaces, dropped) in [(true, false), (false, true)] {
            let mut task = Task::new(Some(blackhole.clone()), None, None);
            task.state =
                State::InFlight(RequestedEntry { verb: Verb::Create, reference: None, finish: true });
            task.add(Some(row("b")), replaces, false);
            task.take_later(false);
            assert_eq!(task.change.set.map(|row| row.via.is_blackhole()), Some(dropped));
        }
    }

    #[test]
    fn task_ready_row_coalesces_with_the_change() {
        let mut task = Task::new(Some(row("a")), None, None);
        task.add(None, false, false);
        assert!(task.change.del && task.change.set.is_none() && task.later.is_none());
    }
}
