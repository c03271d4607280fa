//! Acknowledgements to the RIB manager: the batches that the chip has executed.
//!
//! The thread of fpmsyncd sends a header with the number of route rows of a batch before the rows.
//! The state machine of orchagent counts the rows ([`Orch::batch`]) and returns each finished batch
//! with the routes that failed. It also reports a later change of the status of such a route.

use super::vrf_names::VrfNames;
use ribtide_dataplane::install_results::InstallResults;
use ribtide_rib::{DataplaneId, RibIn, VrfPrefix};
use ribtide_runtime::ring;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::RouteKey;
use std::collections::VecDeque;

/// Announces the rows of one batch of the RIB manager; sent before the rows.
#[derive(Debug)]
pub(super) struct BatchHeader {
    /// The batch.
    pub(super) seq: u64,
    /// The number of route rows of the batch.
    pub(super) rows: usize,
    /// Routes without a row, with the reason.
    pub(super) failed: Vec<(VrfPrefix, String)>,
}

/// Unfinished batches.
#[derive(Debug)]
pub(super) struct Acks {
    dataplane: DataplaneId,
    feedback: ring::Sender<RibIn>,
    /// Routes that failed before they had a row, by batch.
    failed: VecDeque<(u64, Vec<(VrfPrefix, String)>)>,
    verdicts: InstallResults,
    vrfs: VrfNames,
}

impl Acks {
    pub(super) fn new(dataplane: DataplaneId, feedback: ring::Sender<RibIn>, vrfs: VrfNames) -> Acks {
        Acks { dataplane, feedback, failed: VecDeque::new(), verdicts: InstallResults::default(), vrfs }
    }

    /// Notes the header of a batch, before its rows.
    pub(super) fn begin_batch(&mut self, header: BatchHeader, orch: &mut Orch) {
        orch.batch(header.seq, header.rows);
        if !header.failed.is_empty() {
            self.failed.push_back((header.seq, header.failed));
        }
    }

    /// Notes a changed status of a route outside of a batch.
    pub(super) fn status_change(&mut self, key: &RouteKey, why: Option<String>) {
        let RouteKey::Route { vrf, prefix, .. } = key else { return };
        let Some(vrf) = self.vrfs.id(vrf.as_ref()) else { return };
        let route = VrfPrefix { vrf, prefix: *prefix };
        match why {
            Some(why) => self.verdicts.refused(route, why),
            None => self.verdicts.installed(route),
        }
    }

    /// Acknowledges finished batches and routes that no longer fail; `quiet`: see
    /// [`Orch::finished`]. Returns `false` when the receiver is gone.
    pub(super) fn acknowledge(&mut self, orch: &mut Orch, quiet: bool) -> bool {
        let mut last = None;
        while let Some(finished) = orch.finished(quiet) {
            // 0: urgent operations.
            last = Some(finished.batch).filter(|batch| *batch > 0).or(last);
            for (key, why) in finished.failed {
                self.status_change(&key, Some(why));
            }
            while self.failed.front().is_some_and(|(seq, _)| *seq == finished.batch) {
                let Some((_, failed)) = self.failed.pop_front() else { break };
                failed.into_iter().for_each(|(route, why)| self.verdicts.refused(route, why));
            }
        }
        let ack = match last {
            Some(seq) => Some(self.verdicts.ack(self.dataplane, seq)),
            None => self.verdicts.news(self.dataplane),
        };
        ack.is_none_or(|ack| self.feedback.send(RibIn::Ack(ack)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::AnyPrefix;
    use ribtide_rib::FibAck;
    use ribtide_runtime::ring::{Receiver, Rings};
    use ribtide_swss::orch::OrchConfig;
    use ribtide_swss::sai::VidCounter;

    fn prefix(n: u8) -> AnyPrefix {
        AnyPrefix::from_addr([10, n, 0, 0].into(), 16).unwrap()
    }

    fn ack(answers: &Receiver<RibIn>) -> Option<FibAck> {
        match answers.try_recv()? {
            RibIn::Ack(ack) => Some(ack),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn acknowledgement_names_the_last_batch_of_routes_and_all_failures() {
        let (feedback, answers) = Rings::default().bounded("dataplanes to RIB", 8);
        let mut acks = Acks::new(3, feedback, VrfNames::default());
        let mut orch = Orch::new(OrchConfig::default(), Box::new(VidCounter::default()));
        let failed = |n: u8, why: &str| (VrfPrefix::from(prefix(n)), why.to_owned());
        // An urgent operation, with batch 0, is finished in the same round.
        let header = BatchHeader { seq: 5, rows: 0, failed: vec![failed(1, "it has no row")] };
        acks.begin_batch(header, &mut orch);
        acks.begin_batch(BatchHeader { seq: 0, rows: 0, failed: Vec::new() }, &mut orch);
        assert!(acks.acknowledge(&mut orch, false));
        let expected =
            FibAck { dataplane: 3, seq: 5, failed: vec![failed(1, "it has no row")], installed: Vec::new() };
        assert_eq!(ack(&answers), Some(expected));
        // Without a batch only what changed is sent.
        assert!(acks.acknowledge(&mut orch, false));
        assert_eq!(ack(&answers), None);
        acks.status_change(&RouteKey::new(None, prefix(2)), Some("the table is full".into()));
        assert!(acks.acknowledge(&mut orch, false));
        let news = |failed, installed| Some(FibAck { dataplane: 3, seq: 0, failed, installed });
        assert_eq!(ack(&answers), news(vec![failed(2, "the table is full")], Vec::new()));
        acks.status_change(&RouteKey::new(None, prefix(2)), None);
        assert!(acks.acknowledge(&mut orch, false));
        assert_eq!(ack(&answers), news(Vec::new(), vec![prefix(2).into()]));
    }
}
