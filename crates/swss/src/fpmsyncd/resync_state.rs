//! What a connection to orchagent needs over ZeroMQ: changes, every row, or every row as a resync.
//!
//! A lost connection loses the messages in flight. fpmsyncd has every row, so it resends all of them
//! on each new connection. To ribtide's orchagent it does so between the begin and the end of
//! SONiC's `resync`, and orchagent removes the routes that were not sent. fpmsyncd begins a resync
//! only when it knows every route: after its own start, when the replay of the routing daemon is
//! complete.

use super::ResendKind;

/// The state of one table's connection, and of the resend over it.
#[derive(Debug)]
pub struct ResyncState {
    /// Whether APPL_DB had every row of the former run.
    knows_all_rows: bool,
    /// Whether the next orchagent has missed rows.
    missed: bool,
    /// Whether a resync began on this connection.
    begun: bool,
    /// Whether the connected orchagent missed rows and the resend is not complete.
    lost: bool,
    /// The resend under way; `true` as a resync.
    resending: Option<bool>,
}

impl ResyncState {
    /// The state before the first connection. `knows_all_rows`: APPL_DB had every row of the former
    /// run.
    pub fn new(knows_all_rows: bool) -> ResyncState {
        ResyncState { knows_all_rows, missed: false, begun: false, lost: false, resending: None }
    }

    /// Notes that rows were sent, and whether there was a connection.
    pub fn wrote(&mut self, is_connected: bool) {
        self.missed |= !is_connected;
    }

    /// Notes a new connection. Returns whether every row is to be sent at once, because no resync
    /// can begin yet. `is_replayed`: the routing daemon has announced every route.
    /// `is_acknowledged`: orchagent is ribtide's.
    pub fn connected(&mut self, is_replayed: bool, is_acknowledged: bool) -> bool {
        (self.begun, self.resending) = (false, None);
        // The first connection missed nothing, unless something was written before it; each later
        // one did.
        self.lost = std::mem::replace(&mut self.missed, true);
        self.lost && !(self.knows_all(is_replayed) && is_acknowledged)
    }

    /// Whether a resync is due, once per connection. `is_free`: orchagent is ribtide's, and there is
    /// room for another message.
    pub fn is_resync_due(&mut self, is_replayed: bool, is_free: bool) -> bool {
        let is_due = self.knows_all(is_replayed) && !self.begun && is_free;
        self.begun |= is_due;
        is_due
    }

    fn knows_all(&self, is_replayed: bool) -> bool {
        self.knows_all_rows || is_replayed
    }

    /// Begins a resend of all rows, as a resync if `as_resync`. Returns the kind of its rows.
    pub fn begin(&mut self, as_resync: bool, is_acknowledged: bool) -> ResendKind {
        self.resending = Some(as_resync);
        if is_acknowledged { ResendKind::Unchanged { missed: self.lost } } else { ResendKind::AsNew }
    }

    /// The resend under way; `true` as a resync.
    pub fn resending(&self) -> Option<bool> {
        self.resending
    }

    /// Ends the resend. Returns whether it was a resync.
    pub fn end(&mut self) -> bool {
        self.lost = false;
        self.resending.take() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_connection_gets_a_resync_when_the_replay_is_complete() {
        let mut state = ResyncState::new(false);
        assert!(!state.connected(false, true), "nothing was missed");
        assert!(!state.is_resync_due(false, true) && !state.is_resync_due(true, false));
        assert!(state.is_resync_due(true, true) && !state.is_resync_due(true, true), "once");
        assert_eq!(state.begin(true, true), ResendKind::Unchanged { missed: false });
        assert!(state.end() && state.resending().is_none());
    }

    #[test]
    fn later_connection_gets_a_resync_whose_rows_may_have_been_missed() {
        let mut state = ResyncState::new(false);
        state.connected(true, true);
        assert!(!state.connected(true, true) && state.is_resync_due(true, true));
        assert_eq!(state.begin(true, true), ResendKind::Unchanged { missed: true });
        assert!(state.end());
        assert_eq!(state.begin(false, true), ResendKind::Unchanged { missed: false });
    }

    #[test]
    fn connection_after_a_write_gets_every_row_at_once_unless_a_resync_can_begin() {
        for (knows_all_rows, is_acknowledged, at_once) in
            [(false, true, true), (true, true, false), (true, false, true)]
        {
            let mut state = ResyncState::new(knows_all_rows);
            state.wrote(false);
            assert_eq!(state.connected(false, is_acknowledged), at_once);
        }
        // SONiC's orchagent answers each row, and knows no resent one.
        assert_eq!(ResyncState::new(true).begin(false, false), ResendKind::AsNew);
    }

    #[test]
    fn lost_connection_ends_its_resend() {
        let mut state = ResyncState::new(true);
        state.begin(true, true);
        state.connected(true, true);
        assert_eq!(state.resending(), None);
        assert!(!state.end());
    }
}
