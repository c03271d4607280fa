//! What became of routes: which a dataplane reported as failed, and which of those are in place after all.
//!
//! While nothing fails, nothing is kept and a success costs a look at two empty tables.

use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_rib::{DataplaneId, FibAck};

/// One dataplane's books on failures.
#[derive(Default, Debug)]
pub(crate) struct Verdicts {
    /// Reported as failed, and not as installed since.
    failed: Set<AnyPrefix>,
    /// The last word on each prefix since the last report: why it failed, or `None` when it is in place.
    news: Map<AnyPrefix, Option<String>>,
}

impl Verdicts {
    /// Notes that a route could not be installed, and why, as a sentence.
    pub(crate) fn refused(&mut self, prefix: AnyPrefix, why: String) {
        self.news.insert(prefix, Some(why));
    }

    /// Notes that a route is as the RIB manager asked.
    pub(crate) fn installed(&mut self, prefix: AnyPrefix) {
        if self.failed.contains(&prefix) || self.news.contains_key(&prefix) {
            self.news.insert(prefix, None);
        }
    }

    /// The acknowledgement of every batch up to `seq`, with all that was noted since the last one.
    pub(crate) fn ack(&mut self, dataplane: DataplaneId, seq: u64) -> FibAck {
        let mut ack = FibAck { dataplane, seq, failed: Vec::new(), installed: Vec::new() };
        for (prefix, verdict) in self.news.drain() {
            match verdict {
                Some(why) => {
                    self.failed.insert(prefix);
                    ack.failed.push((prefix, why));
                }
                None if self.failed.remove(&prefix) => ack.installed.push(prefix),
                // It failed and was mended before anybody was told.
                None => {}
            }
        }
        ack
    }

    /// What was noted since the last acknowledgement, as one that finishes no batch; `None` when there is nothing.
    pub(crate) fn news(&mut self, dataplane: DataplaneId) -> Option<FibAck> {
        let ack = self.ack(dataplane, 0);
        (!ack.failed.is_empty() || !ack.installed.is_empty()).then_some(ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_taken_back_once_and_only_if_it_was_told() {
        let [a, b, c] = ["10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32"].map(|p| p.parse().unwrap());
        let mut verdicts = Verdicts::default();
        let ack = |seq, failed: &[(AnyPrefix, &str)], installed: &[AnyPrefix]| FibAck {
            dataplane: 4,
            seq,
            failed: failed.iter().map(|(p, why)| (*p, why.to_string())).collect(),
            installed: installed.to_vec(),
        };
        verdicts.refused(a, "no room".into());
        verdicts.refused(b, "no room".into());
        verdicts.installed(b);
        verdicts.installed(c);
        assert_eq!(verdicts.ack(4, 9), ack(9, &[(a, "no room")], &[]));
        assert_eq!(verdicts.news(4), None);
        // The last word counts.
        verdicts.installed(a);
        verdicts.refused(a, "no neighbour".into());
        assert_eq!(verdicts.news(4), Some(ack(0, &[(a, "no neighbour")], &[])));
        verdicts.refused(a, "no room".into());
        verdicts.installed(a);
        assert_eq!(verdicts.news(4), Some(ack(0, &[], &[a])));
        verdicts.installed(a);
        assert_eq!(verdicts.news(4), None);
    }
}
