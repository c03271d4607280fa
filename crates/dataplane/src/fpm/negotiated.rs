//! The negotiation of replies: whether the client waits until the chip has a route, and whether the
//! server confirms then or at once. Only servers of ribtide announce it.

use ribtide_runtime::log::target;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// When a server confirms a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// When it has read the route: its `suppress-fib-pending` is off.
    AtOnce,
    /// When the chip has the route.
    InChip,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            When::AtOnce => "at-once",
            When::InChip => "in-chip",
        })
    }
}

/// The negotiated state of the connection. The writer sends it, the reader receives it, and the API
/// reads it.
#[derive(Default, Debug)]
pub(super) struct Negotiated {
    /// The sent value.
    waits: AtomicBool,
    /// The received value: 0 for none, else a [`When`] plus 1.
    replies: AtomicU8,
    /// Whether a present disagreement was logged.
    logged: AtomicBool,
}

impl Negotiated {
    /// Notes the sent value.
    pub(super) fn said(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    /// The sent value: whether BGP waits.
    pub(super) fn waits(&self) -> bool {
        self.waits.load(Relaxed)
    }

    /// Notes the received value.
    pub(super) fn heard(&self, in_chip: bool) {
        let when = if in_chip { When::InChip } else { When::AtOnce };
        self.replies.store(when as u8 + 1, Relaxed);
    }

    /// Resets the state, because the next server may be another.
    pub(super) fn end(&self) {
        self.replies.store(0, Relaxed);
    }

    /// The received value, if any.
    pub(super) fn replies(&self) -> Option<When> {
        match self.replies.load(Relaxed) {
            0 => None,
            1 => Some(When::AtOnce),
            _ => Some(When::InChip),
        }
    }

    /// Why the values do not fit.
    pub(super) fn disagreement(&self) -> Option<&'static str> {
        match (self.waits(), self.replies()?) {
            (true, When::AtOnce) => Some(
                "BGP waits for the chip (fib.suppress-fib-pending), but the server's suppress-fib-pending is off: it replies before \
                 the chip has a route, and BGP advertises it then",
            ),
            (false, When::InChip) => Some(
                "the server's suppress-fib-pending is on, but this router's fib.suppress-fib-pending is off: BGP advertises routes \
                 before the chip has them",
            ),
            _ => None,
        }
    }

    /// Logs a disagreement as it begins.
    pub(super) fn look(&self, server: SocketAddr) {
        let disagreement = self.disagreement();
        if self.logged.swap(disagreement.is_some(), Relaxed) {
            return;
        }
        if let Some(says) = disagreement {
            tracing::warn!(target: target::FPM, %server, "{says}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_says_something_else_disagrees() {
        let negotiated = Negotiated::default();
        for waits in [false, true] {
            negotiated.end();
            negotiated.said(waits);
            assert_eq!((negotiated.replies(), negotiated.disagreement()), (None, None), "a server of others");
            for (in_chip, when) in [(false, When::AtOnce), (true, When::InChip)] {
                negotiated.heard(in_chip);
                assert_eq!(negotiated.replies(), Some(when));
                assert_eq!(negotiated.disagreement().is_some(), waits != in_chip);
            }
        }
    }
}
