//! A client of one route, which keeps books of fpmsyncd's replies as ribtide's FPM client does.

use super::Bench;

/// The route.
pub(super) const KEY: &str = "10.1.0.0/16";

#[derive(Default)]
pub(super) struct Client {
    /// What was announced last, by gateway.
    pub(super) last: Option<u8>,
    /// Replies that may come about what was announced before, and about what was announced last.
    superseded: usize,
    current: usize,
    confirmed: bool,
    /// The route was refused, as it was announced last.
    pub(super) refused: bool,
    /// A reply came that may have been about either; it was asked about since then.
    pub(super) unsure: bool,
    asked: bool,
}

impl Client {
    /// The route gets this next hop, or is withdrawn: fpmsyncd is told, if it is `connected`.
    pub(super) fn announce(&mut self, gateway: Option<u8>, connected: bool, bench: &mut Bench) {
        if gateway != self.last {
            self.superseded += std::mem::take(&mut self.current);
        }
        self.asked = self.unsure && gateway == self.last;
        (self.last, self.confirmed, self.refused, self.unsure) = (gateway, false, false, false);
        if !connected {
            return;
        }
        self.current += usize::from(gateway.is_some());
        match gateway {
            Some(gateway) => bench.route(KEY, &format!("10.0.0.{gateway}"), 7),
            None => bench.del(KEY),
        }
    }

    /// Takes the replies. `is_there`: the chip has what was announced last, and nothing is on its way that changes it.
    pub(super) fn hear(&mut self, is_there: bool, bench: &mut Bench) {
        for reply in bench.out.offloads.drain(..) {
            if let Some(gateway) = reply.refused {
                assert_eq!(
                    self.last.map(|last| last.to_string()).as_deref(),
                    Some(&*gateway),
                    "another is refused"
                );
                match self.superseded == 0 || self.asked {
                    true => (self.confirmed, self.refused, self.unsure) = (false, true, false),
                    false => self.unsure = true,
                }
                continue;
            }
            if self.superseded > 0 {
                self.superseded -= 1;
                self.unsure = true;
                continue;
            }
            self.current = self.current.saturating_sub(1);
            assert!(self.last.is_none() || is_there, "confirmed before it is in the chip");
            (self.confirmed, self.refused, self.unsure) = (true, false, false);
        }
    }

    /// fpmsyncd was killed: what it confirmed counts no more, nor, where the client is a `fresh` one, what was asked.
    pub(super) fn disconnected(&mut self, fresh: bool) {
        (self.confirmed, self.refused, self.unsure, self.asked) = (false, false, false, false);
        if fresh {
            (self.superseded, self.current) = (0, 0);
        }
    }

    /// Whether the route is confirmed, if there is one.
    pub(super) fn has_its_answer(&self) -> bool {
        self.confirmed || self.last.is_none()
    }
}
