//! Reports of link states (`port_state_change`) between the threads of a daemon: the latest state of
//! each port that the receiver has not taken yet. Beside them changes of the FDB (`fdb_event`), in order.
//!
//! A sender never waits, so a stage may send to one that waits for it. Reports of a port coalesce, so
//! there are never more than ports; of changes of the FDB at most [`FDB_EVENTS_MAX`] wait.

use crossbeam_channel::Select;
use ribtide_runtime::ring::Closed;
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use std::sync::{Arc, Mutex, PoisonError};

/// Reports that were not taken yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PortReports {
    /// The states, in the order in which their ports were first reported.
    pub states: Vec<PortState>,
    /// Whether reports may have been lost before these.
    pub lost: bool,
    /// Changes of the FDB.
    pub fdb: Vec<FdbEvent>,
    /// Changes of the FDB that were dropped, since [`FDB_EVENTS_MAX`] waited.
    pub dropped: usize,
}

/// Changes of the FDB that wait at most.
pub const FDB_EVENTS_MAX: usize = 65_536;

impl PortReports {
    fn add(&mut self, states: &[PortState]) {
        for state in states {
            match self.states.iter_mut().find(|other| other.port == state.port) {
                Some(other) => other.status = state.status,
                None => self.states.push(*state),
            }
        }
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && !self.lost && self.fdb.is_empty() && self.dropped == 0
    }
}

/// The sending side.
#[derive(Clone, Debug)]
pub struct PortReportSender {
    waiting: Arc<Mutex<PortReports>>,
    waker: Waker,
}

/// The receiving side.
#[derive(Debug)]
pub struct PortReportReceiver {
    waiting: Arc<Mutex<PortReports>>,
    wake_up: WakeUp,
}

/// Makes both sides.
pub fn pair() -> (PortReportSender, PortReportReceiver) {
    let waiting = Arc::<Mutex<PortReports>>::default();
    let (waker, wake_up) = wake_up::pair();
    (PortReportSender { waiting: waiting.clone(), waker }, PortReportReceiver { waiting, wake_up })
}

impl PortReportSender {
    /// Sends states.
    pub fn send(&self, states: &[PortState]) {
        if !states.is_empty() {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).add(states);
            self.waker.wake();
        }
    }

    /// Sends changes of the FDB.
    pub fn send_fdb(&self, events: Vec<FdbEvent>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = FDB_EVENTS_MAX.saturating_sub(waiting.fdb.len());
        waiting.dropped += events.len().saturating_sub(room);
        waiting.fdb.extend(events.into_iter().take(room));
        drop(waiting);
        self.waker.wake();
    }

    /// Announces that reports may have been lost.
    pub fn lost(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).lost = true;
        self.waker.wake();
    }
}

impl PortReportReceiver {
    /// Takes the reports.
    pub fn take(&self) -> PortReports {
        match self.wake_up.take() {
            Ok(false) => PortReports::default(),
            // A sender that is gone may have sent before.
            Ok(true) | Err(Closed) => {
                std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Waits for reports and takes them, with `on_idle` as in [`WakeUp::wait_or_idle`].
    ///
    /// # Errors
    /// [`Closed`] when every sender is gone.
    pub fn wait(&self, on_idle: impl FnMut()) -> Result<PortReports, Closed> {
        self.wake_up.wait_or_idle(on_idle)?;
        Ok(std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Makes `select` ready when there may be reports.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.wake_up.watch(select);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::sai::{Oid, OperStatus};

    #[test]
    fn reports_of_a_port_coalesce_and_the_latest_counts() {
        let (sender, receiver) = pair();
        assert!(receiver.take().is_empty());
        let state = |port, status| PortState { port: Oid(port), status };
        sender.send(&[state(1, OperStatus::Down), state(2, OperStatus::Down)]);
        sender.clone().send(&[state(1, OperStatus::Up)]);
        sender.lost();
        let states = vec![state(1, OperStatus::Up), state(2, OperStatus::Down)];
        assert_eq!(receiver.take(), PortReports { states, lost: true, ..PortReports::default() });
        assert!(receiver.take().is_empty());
    }

    #[test]
    fn changes_of_the_fdb_keep_their_order_and_have_a_bound() {
        use ribtide_swss::sai::RawText;
        use ribtide_swss::sai::notification::FdbChange;
        let (sender, receiver) = pair();
        let event = |n: usize| FdbEvent {
            change: FdbChange::Learned,
            key: RawText::plain(&n.to_string()),
            attrs: Default::default(),
        };
        sender.send_fdb((0..10).map(event).collect());
        sender.send_fdb((10..FDB_EVENTS_MAX + 3).map(event).collect());
        let reports = receiver.take();
        assert_eq!((reports.fdb.len(), reports.dropped), (FDB_EVENTS_MAX, 3));
        assert!(reports.fdb.iter().enumerate().all(|(n, of)| of.key.to_string() == n.to_string()));
        assert!(receiver.take().is_empty());
    }
}
