//! Checks of what ends and guards a session.

use super::check::{Both, Checker};
use super::file;
use ribtide_wire::bgp::notification::SHUTDOWN_TEXT_MAX;

impl Checker {
    /// The text of a shutdown, which is empty without one; `None`: the session is not shut down.
    pub(super) fn shutdown(&mut self, both: &Both<'_>) -> Option<String> {
        let (shutdown, at) = both.pick("shutdown", |n| &n.shutdown, |g| &g.shutdown);
        match shutdown? {
            file::Shutdown::Switch(on) => on.then(String::new),
            file::Shutdown::Text(text) => {
                if text.len() > SHUTDOWN_TEXT_MAX {
                    let message = format!(
                        "a shutdown text has at most {SHUTDOWN_TEXT_MAX} bytes (RFC 9003), and this has {}; shorten it",
                        text.len()
                    );
                    self.problem(&at.key(), message);
                }
                Some(text.clone())
            }
        }
    }
}
