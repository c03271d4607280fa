//! Routes that this router originates.

use crate::text::{Table, number};
use ribtide_model::Aggregates;

/// The configured aggregates.
pub(super) fn aggregates(aggregates: &Aggregates) -> String {
    if aggregates.aggregates.is_empty() {
        return "There is no aggregate: the configuration has no [[bgp.aggregate]] table.\n".into();
    }
    let mut table = Table::new(&["Aggregate", "Originated", ">Contributors", "Suppresses", "Policy"]);
    for aggregate in &aggregates.aggregates {
        table.row([
            aggregate.prefix.clone(),
            if aggregate.active { "yes" } else { "no" }.into(),
            number(aggregate.contributors),
            aggregate.suppresses.clone(),
            aggregate.policy.clone(),
        ]);
    }
    table.render()
}
