//! `/v1/performance`: the PerformanceTimer of every stage.

use super::{Refusal, RouterState};
use ribtide_model::{Performance, PerformanceRecord};
use ribtide_runtime::performance::Record;

/// The latest records of every stage.
#[expect(clippy::unnecessary_wraps, reason = "as all answers")]
pub(crate) fn performance(router: &RouterState) -> Result<Vec<Performance>, Refusal> {
    let of = |(stage, records): (String, Vec<Record>)| Performance {
        records: records.iter().map(|record| PerformanceRecord::of(&stage, record)).collect(),
        stage,
    };
    Ok(router.meters.performance().into_iter().map(of).collect())
}
