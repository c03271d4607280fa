//! Which batches an FPM server has confirmed, for FIB suppression: a batch is finished when each of its routes was
//! answered, or changed again by a later batch.
//!
//! Which change a reply is about, the encoder's books tell. What the server never answers (SONiC's ignores routes of its management network)
//! must not hold up the rest: when nothing has come for a while, what is unanswered is reported as failed, until an answer
//! comes after all.

use super::super::verdicts::Verdicts;
use ribtide_prefix::{Family, Map, for_each_family};
use ribtide_rib::{DataplaneId, FibAck, FibBatch, FibRoute, Protocol, VrfId, VrfPrefix};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a server may say nothing before what it has not answered counts as failed.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// The books on answers, and on what they said.
pub(super) struct Replies {
    dataplane: DataplaneId,
    /// Batches written and not finished: the number, and how many routes are unanswered.
    open: VecDeque<(u64, usize)>,
    /// The batch that changed a prefix last.
    pending: Map<VrfPrefix, u64>,
    verdicts: Verdicts,
    /// The batch that is being written: not finished, whatever is answered.
    writing: Option<u64>,
    /// When something was written or answered last.
    last: Instant,
}

impl Replies {
    pub(super) fn new(dataplane: DataplaneId, now: Instant) -> Replies {
        Replies {
            dataplane,
            open: VecDeque::new(),
            pending: Map::default(),
            verdicts: Verdicts::default(),
            writing: None,
            last: now,
        }
    }

    /// A batch is about to be written. Deletions, and routes that are not ours to make, need no answer; none does unless
    /// `wait`.
    pub(super) fn asked(&mut self, batch: &FibBatch, wait: bool, now: Instant) {
        // What overtakes others has no number.
        if batch.seq == 0 {
            return;
        }
        self.open.push_back((batch.seq, 0));
        self.writing = Some(batch.seq);
        if !wait {
            return self.forgo();
        }
        self.last = now;
        for_each_family!(F => for route in batch.routes.get::<F>() {
            self.asked_for(batch.vrf.id, route, batch.seq);
        });
    }

    fn asked_for<F: Family>(&mut self, vrf: VrfId, route: &FibRoute<F>, seq: u64) {
        let at = VrfPrefix { vrf, prefix: route.prefix.any() };
        let ours = !matches!(route.protocol, Protocol::Connected | Protocol::Kernel);
        if route.group.is_none() || !ours {
            self.verdicts.installed(at);
            return self.settle(at);
        }
        let before = self.pending.insert(at, seq);
        self.count(before, -1);
        self.count(Some(seq), 1);
    }

    /// The server has a route in hardware, or says why not.
    pub(super) fn replied(&mut self, at: VrfPrefix, refused: Option<&str>, now: Instant) {
        self.last = now;
        match refused {
            Some(why) => self.verdicts.refused(at, why.into()),
            None => self.verdicts.installed(at),
        }
        self.settle(at);
    }

    /// The batch is written, but for these.
    pub(super) fn written(&mut self, but: Vec<(VrfPrefix, String)>) {
        self.writing = None;
        for (at, why) in but {
            self.verdicts.refused(at, why);
            self.settle(at);
        }
    }

    /// Nothing more is waited for: the server is taken to have what it was told.
    pub(super) fn forgo(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.pending.clear();
        self.open.iter_mut().for_each(|(_, left)| *left = 0);
    }

    /// What there is to tell the RIB manager.
    pub(super) fn news(&mut self, now: Instant) -> Option<FibAck> {
        if !self.pending.is_empty() && now.saturating_duration_since(self.last) >= SILENCE {
            let why = "the FPM server has not confirmed it; with suppress-fib-pending it must reply that it is in hardware";
            for at in std::mem::take(&mut self.pending).into_keys() {
                self.verdicts.refused(at, why.into());
            }
            self.open.iter_mut().for_each(|(_, left)| *left = 0);
        }
        let finished = |(seq, left): &&(u64, usize)| *left == 0 && self.writing != Some(*seq);
        let done = self.open.iter().take_while(finished).count();
        match self.open.drain(..done).next_back() {
            Some((seq, _)) => Some(self.verdicts.ack(self.dataplane, seq)),
            None => self.verdicts.news(self.dataplane),
        }
    }

    fn settle(&mut self, at: VrfPrefix) {
        let seq = self.pending.remove(&at);
        self.count(seq, -1);
    }

    fn count(&mut self, seq: Option<u64>, by: isize) {
        let Some(seq) = seq else { return };
        if let Ok(at) = self.open.binary_search_by_key(&seq, |(seq, _)| *seq) {
            self.open[at].1 = self.open[at].1.saturating_add_signed(by);
        }
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
        assert_eq!(told(replies.news(now)), (5, vec![b.into()], vec![]));
        replies.replied(p, None, now);
        assert_eq!(told(replies.news(now)), (6, vec![], vec![]));
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
        assert_eq!(replies.news(now + SILENCE / 2), None);
        assert_eq!(told(replies.news(now + SILENCE)), (1, vec![a.into()], vec![]));
        replies.replied(p, None, now + SILENCE);
        assert_eq!(told(replies.news(now + SILENCE)), (0, vec![], vec![a.into()]));
        replies.asked(&batch(2, &[(a, true)]), true, now);
        replies.written(Vec::new());
        replies.forgo();
        assert_eq!(told(replies.news(now)), (2, vec![], vec![]));
    }
}
