//! Rates of stages and queues, from the difference of two readings of the pipeline.

use ribtide_model::Pipeline;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Readings that a curve has at most.
pub(super) const HISTORY: usize = 120;

/// What a stage does now.
#[derive(Default)]
pub(super) struct StageRate {
    /// Routes a second, the newest last.
    pub(super) history: VecDeque<u64>,
    /// The share of a CPU: above 1 with several threads.
    pub(super) busy: f64,
}

impl StageRate {
    /// Routes a second now.
    pub(super) fn now(&self) -> u64 {
        self.history.back().copied().unwrap_or(0)
    }

    /// The highest rate of the history.
    pub(super) fn peak(&self) -> u64 {
        self.history.iter().copied().max().unwrap_or(0)
    }
}

/// The rates, and the reading to which the next one is compared.
#[derive(Default)]
pub(super) struct Rates {
    former: Option<Pipeline>,
    stages: BTreeMap<String, StageRate>,
    /// Batches a second through each queue.
    queues: BTreeMap<String, f64>,
}

impl Rates {
    /// Takes in a reading, `elapsed` after the former one. A router that started again begins with its next reading.
    pub(super) fn take(&mut self, pipeline: &Pipeline, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        if let Some(former) = self.former.replace(pipeline.clone())
            && seconds > 0.0
        {
            for stage in &pipeline.stages {
                let was = former.stages.iter().find(|was| was.name == stage.name);
                let Some(was) = was.filter(|was| was.routes <= stage.routes) else { continue };
                let rate = self.stages.entry(stage.name.clone()).or_default();
                rate.history.push_back(((stage.routes - was.routes) as f64 / seconds) as u64);
                if rate.history.len() > HISTORY {
                    rate.history.pop_front();
                }
                rate.busy = (stage.busy_seconds - was.busy_seconds).max(0.0) / seconds;
            }
            for ring in &pipeline.rings {
                let was = former.rings.iter().find(|was| was.name == ring.name);
                let Some(was) = was.filter(|was| was.sent <= ring.sent) else { continue };
                self.queues.insert(ring.name.clone(), (ring.sent - was.sent) as f64 / seconds);
            }
        }
    }

    /// The newest reading.
    pub(super) fn pipeline(&self) -> Option<&Pipeline> {
        self.former.as_ref()
    }

    /// The rate of a stage.
    pub(super) fn stage(&self, name: &str) -> Option<&StageRate> {
        self.stages.get(name)
    }

    /// How long a batch waits in a queue of this depth, by Little's law; `None` while nothing moves.
    pub(super) fn wait(&self, queue: &str, depth: u64) -> Option<Duration> {
        let rate = self.queues.get(queue).copied().filter(|rate| *rate > 0.0)?;
        (depth > 0).then(|| Duration::from_secs_f64(depth as f64 / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::{Ring, Stage};

    fn reading(routes: u64, busy_seconds: f64, sent: u64, depth: u64) -> Pipeline {
        let stage = Stage {
            name: "shard".into(),
            routes,
            batches: 1,
            busy_seconds,
            first_seconds: None,
            last_seconds: None,
        };
        let ring = Ring { name: "shards to RIB".into(), capacity: 256, depth, peak: depth, sent, full: 0 };
        Pipeline {
            stages: vec![stage],
            rings: vec![ring],
            gauges: vec![],
            threads: vec![],
            peak_memory_bytes: 0,
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let mut rates = Rates::default();
        rates.take(&reading(1000, 1.0, 10, 0), Duration::from_secs(1));
        assert!(rates.stage("shard").is_none() && rates.wait("shards to RIB", 5).is_none());
        rates.take(&reading(5000, 1.5, 30, 5), Duration::from_secs(2));
        let shard = rates.stage("shard").unwrap();
        assert_eq!((shard.now(), shard.peak(), shard.busy), (2000, 2000, 0.25));
        assert_eq!(rates.wait("shards to RIB", 5), Some(Duration::from_millis(500)));
        assert_eq!(rates.wait("shards to RIB", 0), None);
    }

    #[test]
    fn a_router_that_started_again_has_no_negative_rate() {
        let mut rates = Rates::default();
        for routes in [1000, 2000, 10, 20] {
            rates.take(&reading(routes, 0.0, routes, 0), Duration::from_secs(1));
        }
        assert_eq!(rates.stage("shard").unwrap().history, [1000, 10]);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut rates = Rates::default();
        (0..2 * HISTORY as u64).for_each(|n| rates.take(&reading(n, 0.0, n, 0), Duration::from_secs(1)));
        assert_eq!(rates.stage("shard").unwrap().history.len(), HISTORY);
    }
}
