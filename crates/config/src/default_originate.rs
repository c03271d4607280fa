//! `default-originate` of a neighbour: a default route of its own.

use super::check::{Both, Checker};
use super::diagnosis::key;
use super::or_table::or_table;
use ribtide_policy::{Named, Policy, PrefixSet};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// `true`, `false`, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum DefaultOriginateSetting {
    Switch(bool),
    Table(DefaultOriginateTable),
}

or_table!(
    DefaultOriginateSetting,
    visit_bool,
    bool,
    Switch,
    "true, false, or a table of routes-exist (a prefix set) and policy (a list), such as { routes-exist = \"upstream\" }"
);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DefaultOriginateTable {
    /// The default route is sent only while some best path, of whatever prefix in this prefix set, exists and may be
    /// advertised.
    #[schemars(extend("x-default" = "always"))]
    pub(super) routes_exist: Option<String>,
    /// Policies for the default route, tried in order until one decides: its attributes, and the families in which it
    /// is sent.
    #[schemars(extend("x-default" = "sent as it is"), extend("x-see" = "#policy"))]
    pub(super) policy: Option<Vec<String>>,
}

/// A default route of a neighbour.
#[derive(Clone, PartialEq, Debug)]
pub struct DefaultOriginateConfig {
    /// Only while a best path is in this set.
    pub condition: Option<Arc<Named<PrefixSet>>>,
    /// Its attributes.
    pub policy: Arc<Policy>,
}

impl Checker {
    pub(super) fn default_originate(&mut self, both: &Both<'_>) -> Option<DefaultOriginateConfig> {
        let (setting, at) =
            both.pick("default-originate", |n| &n.default_originate, |g| &g.default_originate);
        let place = |name: &str| [&at.key()[..], key![name]].concat();
        match setting? {
            DefaultOriginateSetting::Switch(false) => None,
            DefaultOriginateSetting::Switch(true) => {
                Some(DefaultOriginateConfig { condition: None, policy: Arc::new(Policy::accept()) })
            }
            DefaultOriginateSetting::Table(table) => {
                let condition = table.routes_exist.as_ref();
                let condition =
                    condition.and_then(|name| self.prefix_set_named(name, &place("routes-exist")));
                let policy = self.source_policy(table.policy.as_deref(), false, &place("policy"));
                Some(DefaultOriginateConfig { condition, policy })
            }
        }
    }
}
