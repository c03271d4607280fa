//! Which batches an FPM server has confirmed, for FIB suppression: a batch is finished when each of its routes was
//! answered, or changed again by a later batch.
//!
//! Which change a reply is about, [`super::told`] says. Where that is unsure and no other reply comes for [`DOUBT`], the route is to
//! be told once more, so that there will be another; until it is sure or there is none.
//!
//! What the server never answers (SONiC's ignores routes of its management network, and says nothing of what failed, which ours
//! does) must not hold up the rest. It is reported as failed, until an answer comes after all, when nothing was answered for [`SILENCE_TIMEOUT`];
//! or nothing of its batch, while all of a batch was that was written so much later.

use super::super::install_results::InstallResults;
use ribtide_prefix::{Family, Map, for_each_family, shrink_if_sparse};
use ribtide_rib::{DataplaneId, FibAck, FibBatch, FibRoute, Protocol, VrfId, VrfPrefix};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a server may say nothing before what it has not answered counts as failed.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after a reply that may be about a former route another is waited for.
pub(super) const DOUBT: Duration = Duration::from_secs(1);
/// The most routes that are asked about again at once.
const AGAIN: usize = 4096;

/// A batch that was written and is not finished.
struct Open {
    seq: u64,
    /// Unanswered routes.
    left: usize,
    written: Instant,
    /// When it was written, or one of its routes was answered last.
    last: Instant,
}

/// A route of which it is unsure what the server said.
#[derive(Clone, Copy)]
enum Doubt {
    /// To be asked about again then.
    Until(Instant),
    /// It was asked about again.
    Asked,
}

/// The books on answers, and on what they said.
pub(super) struct Replies {
    dataplane: DataplaneId,
    open: VecDeque<Open>,
    /// The batch that changed a prefix last.
    pending: Map<VrfPrefix, u64>,
    doubts: Map<VrfPrefix, Doubt>,
    /// What was refused of batches that are not finished, the number of the batch and why. It is told with the end of its batch: the RIB
    /// manager has no ear for it before, and after that it would take the route for confirmed.
    refused: Map<VrfPrefix, (u64, String)>,
    results: InstallResults,
    /// The batch that is being written: not finished, whatever is answered.
    writing: Option<u64>,
    /// When something was answered last, or, by a server that `speaks`, asked for; otherwise since when something is awaited.
    last: Instant,
    /// When the latest batch was written of which all is answered.
    answered: Instant,
    /// The server has answered something since it connected.
    speaks: bool,
    /// How many routes were given up because it has not, when that is still to be said; 0 once it was.
    in_vain: Option<usize>,
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
            in_vain: None,
        }
    }

    /// A batch is about to be written. Deletions, and routes that are not ours to make, need no answer; none does unless
    /// `wait`.
    pub(super) fn asked(&mut self, batch: &FibBatch, wait: bool, now: Instant) {
        // What overtakes others has no number.
        if batch.seq == 0 {
            return;
        }
        self.open.push_back(Open { seq: batch.seq, left: 0, written: now, last: now });
        self.writing = Some(batch.seq);
        if !wait {
            return self.forgo();
        }
        // A server that says nothing at all does not have more time because routes go on coming.
        if self.speaks || self.pending.is_empty() {
            self.last = now;
        }
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.asked_for(batch.vrf.id, route, batch.seq);
        });
    }

    fn asked_for<F: Family>(&mut self, vrf: VrfId, route: &FibRoute<F>, seq: u64) {
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

    /// The server has a route in hardware, or says why not.
    pub(super) fn replied(&mut self, at: VrfPrefix, refused: Option<&str>, now: Instant) {
        (self.last, self.speaks) = (now, true);
        let seq = self.pending.get(&at).copied();
        match refused {
            Some(why) => self.refuse(at, why.into()),
            None => {
                self.refused.remove(&at);
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

    /// The server said something of a route, perhaps as it was before. Who waits for it, or hears why it was `refused`,
    /// must know. One that was asked about again and is refused is taken for refused: what says otherwise comes in time.
    pub(super) fn unsure(&mut self, at: VrfPrefix, refused: Option<&str>, now: Instant) {
        if refused.is_some() && matches!(self.doubts.get(&at), Some(Doubt::Asked)) {
            return self.replied(at, refused, now);
        }
        (self.last, self.speaks) = (now, true);
        let doubt = match self.doubts.get(&at) {
            // Nothing else is under way.
            Some(Doubt::Asked) => now,
            Some(Doubt::Until(_)) | None => now + DOUBT,
        };
        if refused.is_some() || self.pending.contains_key(&at) {
            self.doubts.insert(at, Doubt::Until(doubt));
        }
    }

    /// Routes to ask about again now.
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
            self.doubts.insert(*at, Doubt::Asked);
        }
        again
    }

    /// The batch is written, but for these.
    pub(super) fn written(&mut self, but: Vec<(VrfPrefix, String)>) {
        self.writing = None;
        self.could_not(but);
    }

    /// These could not be told.
    pub(super) fn could_not(&mut self, but: Vec<(VrfPrefix, String)>) {
        for (at, why) in but {
            self.refuse(at, why);
        }
    }

    fn refuse(&mut self, at: VrfPrefix, why: String) {
        let batch = match self.pending.get(&at) {
            Some(seq) => Some(*seq),
            None => {
                // Its batch may be finished, or be any of these.
                self.results.refused(at, why.clone());
                self.open.back().map(|open| open.seq)
            }
        };
        if let Some(seq) = batch {
            self.refused.insert(at, (seq, why));
        }
        self.settle(at);
    }

    /// Nothing more is waited for: the server is taken to have what it was told.
    pub(super) fn forgo(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.pending.clear();
        self.open.iter_mut().for_each(|open| open.left = 0);
    }

    /// What there is to tell the RIB manager.
    pub(super) fn news(&mut self, now: Instant) -> Option<FibAck> {
        if !self.pending.is_empty() {
            self.give_up(now);
        }
        let finished = |open: &&Open| open.left == 0 && self.writing != Some(open.seq);
        let done = self.open.iter().take_while(finished).count();
        match self.open.drain(..done).next_back() {
            Some(Open { seq, .. }) => {
                let results = &mut self.results;
                self.refused.retain(|at, (batch, why)| {
                    let held = *batch > seq;
                    if !held {
                        results.refused(*at, std::mem::take(why));
                    }
                    held
                });
                shrink_if_sparse(&mut self.refused);
                Some(self.results.ack(self.dataplane, seq))
            }
            None => self.results.news(self.dataplane),
        }
    }

    /// How many routes waited when the server had answered nothing at all for [`SILENCE_TIMEOUT`]; said once a connection.
    pub(super) fn in_vain(&mut self) -> Option<usize> {
        self.in_vain.as_mut().map(std::mem::take).filter(|routes| *routes > 0)
    }

    /// Reports as failed what is not going to be answered.
    fn give_up(&mut self, now: Instant) {
        let why = "the FPM server has not confirmed it; with suppress-fib-pending it must reply that it is in hardware";
        if now.saturating_duration_since(self.last) >= SILENCE_TIMEOUT {
            if !self.speaks {
                self.in_vain.get_or_insert(self.pending.len());
            }
            for at in self.pending.keys().copied().collect::<Vec<_>>() {
                self.refuse(at, why.into());
            }
            self.doubts.clear();
        }
        // Only the first holds up others.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::AnyPrefix;
    use ribtide_rib::GroupId;

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

    fn told(ack: Option<FibAck>) -> (u64, Vec<String>, Vec<String>) {
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
        let asked = |replies: &mut Replies, batch: FibBatch| {
            replies.asked(&batch, true, now);
            replies.written(Vec::new());
        };
        asked(&mut replies, batch(1, &[(a, true), (b, true)]));
        asked(&mut replies, batch(2, &[(b, false)]));
        assert_eq!(replies.news(now), None);
        replies.replied(p, None, now);
        assert_eq!(told(replies.news(now)), (2, vec![], vec![]), "what is deleted needs no answer");
        asked(&mut replies, batch(5, &[(a, true)]));
        asked(&mut replies, batch(6, &[(b, true), (a, true)]));
        replies.replied(q, Some("no room"), now);
        assert_eq!(told(replies.news(now)), (5, vec![], vec![]));
        replies.replied(p, None, now);
        assert_eq!(
            told(replies.news(now)),
            (6, vec![b.into()], vec![]),
            "what failed is told with its batch"
        );
        replies.replied(q, None, now);
        assert_eq!(told(replies.news(now)), (0, vec![], vec![b.into()]));
    }

    #[test]
    fn silence_is_failure_until_there_is_an_answer() {
        let now = Instant::now();
        let (a, p) = ("10.0.0.0/8", "10.0.0.0/8".parse::<AnyPrefix>().unwrap().into());
        let mut replies = Replies::new(3, now);
        replies.asked(&batch(1, &[(a, true)]), true, now);
        replies.written(Vec::new());
        assert_eq!(replies.news(now + SILENCE_TIMEOUT / 2), None);
        assert_eq!(replies.in_vain(), None);
        assert_eq!(told(replies.news(now + SILENCE_TIMEOUT)), (1, vec![a.into()], vec![]));
        assert_eq!((replies.in_vain(), replies.in_vain()), (Some(1), None), "once");
        replies.replied(p, None, now + SILENCE_TIMEOUT);
        assert_eq!(told(replies.news(now + SILENCE_TIMEOUT)), (0, vec![], vec![a.into()]));
        replies.asked(&batch(2, &[(a, true)]), true, now);
        replies.written(Vec::new());
        replies.forgo();
        assert_eq!(told(replies.news(now)), (2, vec![], vec![]));
    }

    #[test]
    fn a_server_that_never_answers_has_no_more_time_because_routes_go_on_coming() {
        let now = Instant::now();
        let (a, p) = ("10.0.0.0/8", "10.0.0.0/8".parse::<AnyPrefix>().unwrap().into());
        let ask = |replies: &mut Replies, seq, after| {
            replies.asked(&batch(seq, &[(a, true)]), true, now + after);
            replies.written(Vec::new());
            replies.news(now + after)
        };
        let mut replies = Replies::new(3, now);
        assert_eq!(ask(&mut replies, 1, SILENCE_TIMEOUT / 2), None);
        assert_eq!(
            ask(&mut replies, 2, SILENCE_TIMEOUT).map(|ack| ack.seq),
            Some(1),
            "another took its place"
        );
        assert_eq!(told(ask(&mut replies, 3, SILENCE_TIMEOUT * 3 / 2)), (3, vec![a.into()], vec![]));
        replies.replied(p, None, now + SILENCE_TIMEOUT * 3 / 2);
        assert_eq!(told(replies.news(now + SILENCE_TIMEOUT * 3 / 2)), (0, vec![], vec![a.into()]));
        assert_eq!(ask(&mut replies, 4, SILENCE_TIMEOUT * 2), None);
        assert_eq!(
            ask(&mut replies, 5, SILENCE_TIMEOUT * 2 + SILENCE_TIMEOUT / 2).map(|ack| ack.seq),
            Some(4)
        );
        assert_eq!(
            ask(&mut replies, 6, SILENCE_TIMEOUT * 3).map(|ack| ack.seq),
            Some(5),
            "one that answers is waited for"
        );
    }
}
