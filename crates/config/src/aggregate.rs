//! The `[[bgp.aggregate]]` tables.

use super::check::Checker;
use super::diagnosis::{Step, key};
use super::policy::Direction;
use ribtide_policy::{GracefulShutdown, Policy};
use ribtide_prefix::AnyPrefix;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An `[[bgp.aggregate]]` table.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AggregateTable {
    /// The prefix, which is originated while there is a route inside it: its contributors.
    pub(super) prefix: String,
    /// No contributor is advertised.
    #[serde(default)]
    pub(super) summary_only: bool,
    /// The contributors that these policies accept are not advertised. Not together with `summary-only`.
    #[schemars(extend("x-default" = "none"), extend("x-see" = "#policy"))]
    pub(super) suppress: Option<Vec<String>>,
    /// Policies for the aggregate itself, tried in order until one decides: its attributes, and whether it is
    /// originated at all.
    #[schemars(extend("x-default" = "originated as it is"), extend("x-see" = "#policy"))]
    pub(super) policy: Option<Vec<String>>,
    /// Must be `false`: RFC 9774 forbids AS_SET.
    #[serde(default)]
    pub(super) as_set: bool,
}

/// An aggregate.
#[derive(Clone, PartialEq, Debug)]
pub struct AggregateConfig {
    /// Its policy.
    pub policy: Arc<Policy>,
    /// Its contributors that are not advertised.
    pub suppress: SuppressConfig,
}

/// The contributors of an aggregate that are not advertised.
#[derive(Clone, PartialEq, Debug)]
pub enum SuppressConfig {
    /// None.
    Nothing,
    /// All.
    All,
    /// Those that a policy accepts.
    Accepted(Arc<Policy>),
}

impl Checker {
    pub(super) fn aggregates(&mut self, tables: &[AggregateTable]) -> BTreeMap<AnyPrefix, AggregateConfig> {
        let mut aggregates = BTreeMap::new();
        for (i, table) in tables.iter().enumerate() {
            let at: &[Step] = key!["bgp", "aggregate", i];
            let place = |name: &str| [at, key![name]].concat();
            if table.as_set {
                self.problem(
                    &place("as-set"),
                    "an AS_SET is not sent, because RFC 9774 forbids it; remove as-set, and mark routes by communities in policy",
                );
            }
            let suppress = match &table.suppress {
                Some(_) if table.summary_only => {
                    self.problem(
                        &place("suppress"),
                        "summary-only suppresses all contributors; write one of both",
                    );
                    SuppressConfig::All
                }
                Some(list) => {
                    let place = place("suppress");
                    let off = GracefulShutdown::Off;
                    let policy = self.policy(Direction::Import, Some(list), true, off, &place);
                    SuppressConfig::Accepted(policy)
                }
                None if table.summary_only => SuppressConfig::All,
                None => SuppressConfig::Nothing,
            };
            let policy = self.source_policy(table.policy.as_deref(), false, &place("policy"));
            match table.prefix.parse::<AnyPrefix>() {
                Ok(prefix) if prefix.len() == AnyPrefix::host(prefix.addr()).len() => {
                    let message = format!("no prefix is more specific than {prefix}; write a shorter one");
                    self.problem(&place("prefix"), message);
                }
                Ok(prefix) if aggregates.contains_key(&prefix) => {
                    self.problem(&place("prefix"), format!("{prefix} has a table already; remove one"));
                }
                Ok(prefix) => {
                    aggregates.insert(prefix, AggregateConfig { policy, suppress });
                }
                Err(error) => self.problem(&place("prefix"), error.to_string()),
            }
        }
        aggregates
    }
}
