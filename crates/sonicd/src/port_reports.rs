//! Reports of link states (`port_state_change`) between the threads of a daemon: the latest state of
//! each port that the receiver has not taken yet. Beside them changes of the FDB (`fdb_event`).
//!
//! A sender never waits, so a stage may send to one that waits for it. Reports of a port coalesce, so
//! there are never more than ports; changes of the FDB coalesce by address ([`FdbQueue`]).

use crossbeam_channel::Select;
use ribtide_runtime::ring::Closed;
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_swss::sai::FdbQueue;
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
    pub fdb: FdbQueue,
}

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
        self.states.is_empty() && !self.lost && self.fdb.is_empty()
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
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).fdb.extend(events);
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
            Ok(true) | Err(Closed { .. }) => {
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
    fn changes_of_the_fdb_coalesce_by_address_and_keep_their_order() {
        use ribtide_swss::sai::RawText;
        use ribtide_swss::sai::notification::FdbChange;
        let (sender, receiver) = pair();
        let event = |change, n: usize| FdbEvent {
            change,
            key: RawText::read(&format!(
                r#"{{"bvid":"oid:0x26000000000001","mac":"02:00:00:00:{:02x}:{:02x}","switch_id":"oid:0x21000000000000"}}"#,
                n >> 8,
                n & 255
            )),
            attrs: Default::default(),
        };
        sender.send_fdb((0..10).map(|n| event(FdbChange::Learned, n)).collect());
        sender.send_fdb((5..300).map(|n| event(FdbChange::Moved, n)).collect());
        sender.send_fdb(vec![event(FdbChange::Aged, 0)]);
        let expected: Vec<FdbEvent> = (1..10)
            .map(|n| event(FdbChange::Learned, n))
            .chain((10..300).map(|n| event(FdbChange::Moved, n)))
            .collect();
        assert_eq!(receiver.take().fdb.take(), expected);
        assert!(receiver.take().is_empty());
    }
}
