//! The batches that an FPM server has confirmed, for FIB suppression. A batch is finished when each
//! of its routes has a reply, or was changed by a later batch.
//!
//! [`super::sent_state`] decides which message a reply is about. If that is unclear and no other
//! reply arrives for [`DOUBT`], the route is sent again, which brings another reply; this repeats
//! until it is clear, or no reply comes.
//!
//! Routes without reply must not block the rest: SONiC's server ignores routes of its management
//! network and does not report failures. Such a route is reported as failed until a reply arrives.
//! That happens when no reply of any kind arrived for [`SILENCE_TIMEOUT`], or none of its batch,
//! while a batch that was written so much later is complete.

use super::super::install_results::InstallResults;
use super::sent_state::{Meaning, SentState};
use ribtide_prefix::{Family, Map, for_each_family, shrink_if_sparse};
use ribtide_rib::{DataplaneId, FibAck, FibBatch, FibRoute, Protocol, VrfId, VrfPrefix};
use ribtide_wire::netlink::Route;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a server may be silent before routes without reply count as failed.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for another reply after an unclear one.
pub(super) const DOUBT: Duration = Duration::from_secs(1);
/// Routes that are sent again in one step.
const AGAIN: usize = 4096;

/// A written batch that is not finished.
struct Open {
    seq: u64,
    /// Routes without reply.
    left: usize,
    written: Instant,
    /// The time of its write, or of the last reply about one of its routes.
    last: Instant,
}

/// A route with an unclear reply.
#[derive(Clone, Copy)]
enum Doubt {
    /// Send it again at this time.
    Until(Instant),
    /// It was sent again.
    Resent,
}

/// A refusal of a route of an unfinished batch, which is one from `first` to `last`. The report goes
/// out with the end of each of them: before the end of its batch the RIB manager ignores it, and
/// with the end, it would take the route for confirmed.
struct Refusal {
    first: u64,
    last: u64,
    why: String,
}

/// What a reply counts as.
pub(super) enum Heard {
    /// The route is in hardware.
    Offloaded,
    /// The hardware refused the route.
    Refused,
    /// The reply is not, or may not be, about the last message of a route.
    Unmatched,
    /// It says neither.
    Nothing,
}

/// The replies and their results.
pub(super) struct Replies {
    dataplane: DataplaneId,
    open: VecDeque<Open>,
    /// The last batch that changed each prefix.
    pending: Map<VrfPrefix, u64>,
    doubts: Map<VrfPrefix, Doubt>,
    /// Refused routes of unfinished batches.
    refused: Map<VrfPrefix, Refusal>,
    results: InstallResults,
    /// The batch under write, which is unfinished in any case.
    writing: Option<u64>,
    /// The time of the last reply, or, for a server that `speaks`, of the last message; otherwise
    /// the start of the wait.
    last: Instant,
    /// The write time of the latest batch with all replies.
    answered: Instant,
    /// Whether the server has replied since the connect.
    speaks: bool,
    /// The number of routes that were given up because of silence, until it is logged; then 0.
    given_up: Option<usize>,
}

impl Replies {
    pub(super) fn new(dataplane: DataplaneId, now: Instant) -> Replies {
        Replies {
            dataplane,
            open: VecDeque::new(),
            pending: Map::default(),
            doubts: Map::default(),
            refused: Map::default(),
            results: InstallResults::default(),
            writing: None,
            last: now,
            answered: now,
            speaks: false,
            given_up: None,
        }
    }

    /// Notes a batch before its write. Deletions, and routes that ribtide does not own, need no
    /// reply. Without `wait` none does.
    pub(super) fn sent(&mut self, batch: &FibBatch, wait: bool, now: Instant) {
        // An urgent batch has no number.
        if batch.seq == 0 {
            return;
        }
        self.open.push_back(Open { seq: batch.seq, left: 0, written: now, last: now });
        self.writing = Some(batch.seq);
        if !wait {
            return self.forgo();
        }
        // A server without any reply gets no more time because of new routes.
        if self.speaks || self.pending.is_empty() {
            self.last = now;
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.requested(batch.vrf.id, route, batch.seq);
        });
    }

    fn requested<F: Family>(&mut self, vrf: VrfId, route: &FibRoute<F>, seq: u64) {
        let at = VrfPrefix { vrf, prefix: route.prefix.any() };
        self.refused.remove(&at);
        let ours = !matches!(route.protocol, Protocol::Connected | Protocol::Kernel);
        if route.group.is_none() || !ours {
            self.results.installed(at);
            return self.settle(at);
        }
        let before = self.pending.insert(at, seq);
        self.doubts.remove(&at);
        self.count(before, -1);
        self.count(Some(seq), 1);
    }

    /// Notes what the server says of a route.
    pub(super) fn heard(&mut self, reply: &Route<'_>, sent: &SentState, now: Instant) -> Heard {
        if !reply.offload_failed() && !reply.offloaded() {
            return Heard::Nothing;
        }
        let refused = refusal(reply);
        match sent.reply(reply) {
            Meaning::Now(route) => {
                self.replied(route, refused.as_deref(), now);
                if refused.is_some() { Heard::Refused } else { Heard::Offloaded }
            }
            Meaning::Unsure(route) => {
                self.unsure(route, refused.as_deref(), now);
                Heard::Unmatched
            }
            Meaning::Nothing => Heard::Unmatched,
        }
    }

    /// Notes a confirmation or a refusal.
    pub(super) fn replied(&mut self, at: VrfPrefix, refused: Option<&str>, now: Instant) {
        (self.last, self.speaks) = (now, true);
        let seq = self.pending.get(&at).copied();
        match refused {
            Some(why) => self.refuse(at, why.into()),
            None => {
                self.refused.remove(&at);
                shrink_if_sparse(&mut self.refused);
                self.results.installed(at);
                self.settle(at);
            }
        }
        if let Some(open) = seq.and_then(|seq| self.find(seq)) {
            open.last = now;
            if open.left == 0 {
                let written = open.written;
                self.answered = self.answered.max(written);
            }
        }
    }

    /// Notes an unclear reply, perhaps about an earlier state of the route. A route that was sent
    /// again and is refused counts as refused; a later success corrects it.
    pub(super) fn unsure(&mut self, at: VrfPrefix, refused: Option<&str>, now: Instant) {
        if refused.is_some() && matches!(self.doubts.get(&at), Some(Doubt::Resent)) {
            return self.replied(at, refused, now);
        }
        (self.last, self.speaks) = (now, true);
        let doubt = match self.doubts.get(&at) {
            // No other message of it is unanswered.
            Some(Doubt::Resent) => now,
            Some(Doubt::Until(_)) | None => now + DOUBT,
        };
        // A route that counts as failed, because the server was silent, may be in hardware.
        let failed = self.refused.contains_key(&at) || self.results.has_failed(at);
        if refused.is_some() || failed || self.pending.contains_key(&at) {
            self.doubts.insert(at, Doubt::Until(doubt));
        }
    }

    /// Routes to send again now.
    pub(super) fn again(&mut self, now: Instant) -> Vec<VrfPrefix> {
        if self.doubts.is_empty() {
            return Vec::new();
        }
        let due = |(at, doubt): (&VrfPrefix, &Doubt)| match doubt {
            Doubt::Until(until) if *until <= now => Some(*at),
            _ => None,
        };
        let again: Vec<VrfPrefix> = self.doubts.iter().filter_map(due).take(AGAIN).collect();
        for at in &again {
            self.doubts.insert(*at, Doubt::Resent);
        }
        again
    }

    /// Whether a route has no reply, or an unclear one, and so the time matters.
    pub(super) fn waits(&self) -> bool {
        !self.pending.is_empty() || self.has_doubts()
    }

    /// Whether a reply is unclear.
    pub(super) fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Notes that a batch was written, except these routes.
    pub(super) fn written(&mut self, but: Vec<(VrfPrefix, String)>) {
        self.writing = None;
        self.could_not(but);
    }

    /// These routes could not be sent.
    pub(super) fn could_not(&mut self, but: Vec<(VrfPrefix, String)>) {
        for (at, why) in but {
            self.refuse(at, why);
        }
    }

    fn refuse(&mut self, at: VrfPrefix, why: String) {
        let known = self.pending.get(&at).map(|seq| (*seq, *seq));
        let batches = known.or_else(|| {
            // Its batch may be finished, or any of these.
            self.results.refused(at, why.clone());
            self.open.back().map(|open| (0, open.seq))
        });
        if let Some((first, last)) = batches {
            self.refused.insert(at, Refusal { first, last, why });
        }
        self.settle(at);
    }

    /// Stops to wait: all sent routes count as confirmed.
    pub(super) fn forgo(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.pending = Map::default();
        self.open.iter_mut().for_each(|open| open.left = 0);
    }

    /// The acknowledgement to send, if any.
    pub(super) fn news(&mut self, now: Instant) -> Option<FibAck> {
        if !self.pending.is_empty() {
            self.give_up(now);
        }
        let finished = |open: &&Open| open.left == 0 && self.writing != Some(open.seq);
        let done = self.open.iter().take_while(finished).count();
        match self.open.drain(..done).next_back() {
            Some(Open { seq, .. }) => {
                let results = &mut self.results;
                self.refused.retain(|at, refusal| {
                    if refusal.first <= seq {
                        results.refused(*at, refusal.why.clone());
                    }
                    refusal.last > seq
                });
                shrink_if_sparse(&mut self.refused);
                Some(self.results.ack(self.dataplane, seq))
            }
            None => self.results.news(self.dataplane),
        }
    }

    /// The number of routes that waited when a server was silent for [`SILENCE_TIMEOUT`]; once for
    /// each connection.
    pub(super) fn given_up(&mut self) -> Option<usize> {
        self.given_up.as_mut().map(std::mem::take).filter(|routes| *routes > 0)
    }

    /// Reports routes without reply as failed.
    fn give_up(&mut self, now: Instant) {
        let why = "the FPM server has not confirmed it; with suppress-fib-pending it must reply that it is in hardware";
        if now.saturating_duration_since(self.last) >= SILENCE_TIMEOUT {
            if !self.speaks {
                self.given_up.get_or_insert(self.pending.len());
            }
            for at in self.pending.keys().copied().collect::<Vec<_>>() {
                self.refuse(at, why.into());
            }
            self.doubts = Map::default();
        }
        // Only the first batch blocks others.
        let Some(first) = self.open.iter().find(|open| open.left > 0) else { return };
        if self.answered.saturating_duration_since(first.last) >= SILENCE_TIMEOUT {
            let of_first = |(_, seq): &(&VrfPrefix, &u64)| **seq == first.seq;
            let unanswered: Vec<VrfPrefix> =
                self.pending.iter().filter(of_first).map(|(at, _)| *at).collect();
            for at in unanswered {
                self.refuse(at, why.into());
            }
        }
    }

    fn settle(&mut self, at: VrfPrefix) {
        self.doubts.remove(&at);
        shrink_if_sparse(&mut self.doubts);
        let seq = self.pending.remove(&at);
        shrink_if_sparse(&mut self.pending);
        self.count(seq, -1);
    }

    fn count(&mut self, seq: Option<u64>, by: isize) {
        if let Some(open) = seq.and_then(|seq| self.find(seq)) {
            open.left = open.left.saturating_add_signed(by);
        }
    }

    fn find(&mut self, seq: u64) -> Option<&mut Open> {
        let at = self.open.binary_search_by_key(&seq, |open| open.seq).ok()?;
        Some(&mut self.open[at])
    }
}

/// Why the hardware refused the route, as a sentence. A reply with both flags is a refusal.
fn refusal(reply: &Route<'_>) -> Option<String> {
    reply.offload_failed().then(|| match reply.why {
        Some(why) => format!("the FPM server says: {why}"),
        None => "the FPM server reports that the hardware refused it".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::AnyPrefix;
    use ribtide_rib::GroupId;
    use ribtide_wire::netlink::NextHops;
    use ribtide_wire::netlink::numbers::{RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED};

    fn batch(seq: u64, routes: &[(&str, bool)]) -> FibBatch {
        let route = |(prefix, set): &(&str, bool)| FibRoute {
            prefix: prefix.parse().unwrap(),
            group: set.then_some(GroupId(1)),
            protocol: Protocol::BgpExternal,
        };
        let mut batch = FibBatch { seq, ..FibBatch::default() };
        batch.routes.v4 = routes.iter().map(route).collect();
        batch
    }

    fn parts_of(ack: Option<FibAck>) -> (u64, Vec<String>, Vec<String>) {
        let ack = ack.expect("news");
        let mut failed: Vec<String> = ack.failed.iter().map(|(prefix, _)| prefix.to_string()).collect();
        failed.sort();
        (ack.seq, failed, ack.installed.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_batch_is_finished_by_the_last_answer_or_by_its_successors() {
        let now = Instant::now();
        let [a, b] = ["10.0.0.0/8", "11.0.0.0/8"];
        let [p, q] = [a, b].map(|text| text.parse::<AnyPrefix>().unwrap().into());
        let mut replies = Replies::new(3, now);
        let sent = |replies: &mut Replies, batch: FibBatch| {
            replies.sent(&batch, true, now);
            replies.written(Vec::new());
        };
        sent(&mut replies, batch(1, &[(a, true), (b, true)]));
        sent(&mut replies, batch(2, &[(b, false)]));
        assert_eq!(replies.news(now), None);
        replies.replied(p, None, now);
        assert_eq!(parts_of(replies.news(now)), (2, vec![], vec![]), "what is deleted needs no answer");
        sent(&mut replies, batch(5, &[(a, true)]));
        sent(&mut replies, batch(6, &[(b, true), (a, true)]));
        replies.replied(q, Some("no room"), now);
        assert_eq!(parts_of(replies.news(now)), (5, vec![], vec![]));
        replies.replied(p, None, now);
        assert_eq!(
            parts_of(replies.news(now)),
            (6, vec![b.into()], vec![]),
            "what failed is told with its batch"
        );
        replies.replied(q, None, now);
        assert_eq!(parts_of(replies.news(now)), (0, vec![], vec![b.into()]));
    }

    #[test]
    fn batch_is_not_finished_before_it_is_written() {
        let now = Instant::now();
        let (a, p) = ("10.0.0.0/8", "10.0.0.0/8".parse::<AnyPrefix>().unwrap().into());
        let mut replies = Replies::new(3, now);
        replies.sent(&batch(1, &[(a, true)]), true, now);
        replies.replied(p, None, now);
        assert_eq!(replies.news(now), None, "more of its routes may follow");
        replies.written(Vec::new());
        assert_eq!(parts_of(replies.news(now)), (1, vec![], vec![]));
        // A refusal of a finished batch is sent alone.
        replies.replied(p, Some("no room"), now);
        assert_eq!(parts_of(replies.news(now)), (0, vec![a.into()], vec![]));
    }

    #[test]
    fn reply_that_says_offloaded_and_failed_is_a_refusal() {
        let reply = |flags| {
            let route = Route::new("10.0.0.0/8".parse().unwrap(), 0, 186, NextHops::None);
            refusal(&Route { flags, ..route }).is_some()
        };
        assert_eq!([RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED].map(reply), [false, true]);
        assert!(reply(RTM_F_OFFLOAD | RTM_F_OFFLOAD_FAILED));
    }

    #[test]
    fn silence_is_failure_until_there_is_an_answer() {
        let now = Instant::now();
        let (a, p) = ("10.0.0.0/8", "10.0.0.0/8".parse::<AnyPrefix>().unwrap().into());
        let mut replies = Replies::new(3, now);
        replies.sent(&batch(1, &[(a, true)]), true, now);
        replies.written(Vec::new());
        assert_eq!(replies.news(now + SILENCE_TIMEOUT / 2), None);
        assert_eq!(replies.given_up(), None);
        assert_eq!(parts_of(replies.news(now + SILENCE_TIMEOUT)), (1, vec![a.into()], vec![]));
        assert_eq!((replies.given_up(), replies.given_up()), (Some(1), None), "once");
        replies.replied(p, None, now + SILENCE_TIMEOUT);
        assert_eq!(parts_of(replies.news(now + SILENCE_TIMEOUT)), (0, vec![], vec![a.into()]));
        replies.sent(&batch(2, &[(a, true)]), true, now);
        replies.written(Vec::new());
        replies.forgo();
        assert_eq!(parts_of(replies.news(now)), (2, vec![], vec![]));
    }

    #[test]
    fn a_server_that_never_answers_has_no_more_time_because_routes_go_on_coming() {
        let now = Instant::now();
        let (a, p) = ("10.0.0.0/8", "10.0.0.0/8".parse::<AnyPrefix>().unwrap().into());
        let ack_of = |replies: &mut Replies, seq, after| {
            replies.sent(&batch(seq, &[(a, true)]), true, now + after);
            replies.written(Vec::new());
            replies.news(now + after)
        };
        let mut replies = Replies::new(3, now);
        assert_eq!(ack_of(&mut replies, 1, SILENCE_TIMEOUT / 2), None);
        assert_eq!(
            ack_of(&mut replies, 2, SILENCE_TIMEOUT).map(|ack| ack.seq),
            Some(1),
            "another took its place"
        );
        assert_eq!(parts_of(ack_of(&mut replies, 3, SILENCE_TIMEOUT * 3 / 2)), (3, vec![a.into()], vec![]));
        replies.replied(p, None, now + SILENCE_TIMEOUT * 3 / 2);
        assert_eq!(parts_of(replies.news(now + SILENCE_TIMEOUT * 3 / 2)), (0, vec![], vec![a.into()]));
        assert_eq!(ack_of(&mut replies, 4, SILENCE_TIMEOUT * 2), None);
        assert_eq!(
            ack_of(&mut replies, 5, SILENCE_TIMEOUT * 2 + SILENCE_TIMEOUT / 2).map(|ack| ack.seq),
            Some(4)
        );
        assert_eq!(
            ack_of(&mut replies, 6, SILENCE_TIMEOUT * 3).map(|ack| ack.seq),
            Some(5),
            "one that answers is waited for"
        );
    }
}
