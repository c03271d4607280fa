//! `ribtide check --diff`: what a reload of a file would change, before anything does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `POST /v1/reload/check`: what a reload of this text would change. Nothing changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CheckReload {
    /// The text of the file; absent: the file is read by the router, which must be the one that it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The path of the file. Other files that the text names are sought from its folder, by the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Prefixes that are named as examples of each kind of change, at most 1000; by default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
}

/// What a reload would change, but for routes: these come with `GET /v1/reload/check?cursor=…`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReloadCheck {
    /// The file.
    pub file: PathBuf,
    /// Changed settings that take a restart. If there is one, a reload refuses the whole file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
    /// Changed settings, by their names in the file.
    pub settings: Vec<ChangedSetting>,
    /// What happens for changed settings of the whole router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<SettingEffect>,
    /// Listeners and dataplanes that begin or end, or begin again with other settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ChangedPart>,
    /// New groups of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups_added: Vec<String>,
    /// Groups of the configuration that are no longer there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups_removed: Vec<String>,
    /// Update groups of the present sessions now.
    pub update_groups: usize,
    /// Update groups of the same sessions after the reload.
    pub update_groups_after: usize,
    /// Neighbours that the reload touches.
    pub neighbors: Vec<ChangedNeighbor>,
    /// What of the change is not computed, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_evaluated: Vec<String>,
    /// The `cursor` of the first page of routes; absent: no route can change by policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A setting with another value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// Its name, such as `bgp.group.upstream.hold-time`.
    pub name: String,
    /// Its value in force, as TOML; absent: it is not in the file. A secret is `********`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its value in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A changed setting of the whole router.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SettingEffect {
    /// Its name.
    pub name: String,
    /// What begins again: `nothing`, `sessions`, or `the router: takes a restart`.
    pub resets: String,
    /// What happens.
    pub note: String,
}

/// A listener or a dataplane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangedPart {
    /// Its setting, such as `bgp.listen`.
    pub setting: String,
    /// Which one: an address, or a name.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: String,
}

/// What a reload does to a neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ChangedNeighbor {
    /// Its address, with its interface if it is link-local.
    pub neighbor: String,
    /// Its group.
    pub group: String,
    /// `added`, `removed`, `reset`, `refreshed`, `shut-down` or `started`.
    pub change: String,
    /// Whether it has an established session.
    pub established: bool,
    /// The settings that are why, by their names in a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Another reason, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/reload/check`: progress, and at the end the routes of each neighbour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReloadRoutes {
    /// Routes and prefixes looked at so far.
    pub looked_at: u64,
    /// How many there are to look at, as far as that is known.
    pub total: u64,
    /// The routes of each neighbour that change, on the last page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<NeighborRoutes>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The routes of a neighbour that a reload changes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NeighborRoutes {
    /// Its address, with its interface if it is link-local.
    pub neighbor: String,
    /// Its group.
    pub group: String,
    /// Its received routes; absent: its import settings stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedChanges>,
    /// The routes that it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertised: Option<AdvertisedChanges>,
}

/// From which routes the new import policy was evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// From all routes that the neighbour sent, as received: they are kept.
    Received,
    /// From the accepted routes alone, as they came, because the present policy accepts all and changes none.
    AcceptedUnchanged,
    /// From the accepted routes alone, as the present policy left them: routes that it refuses are not known, and what it
    /// changed is taken for received.
    Accepted,
}

/// Received routes of a neighbour by the new import policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedChanges {
    /// From which routes.
    pub basis: Basis,
    /// Routes that were evaluated.
    pub routes: u64,
    /// Refused now, accepted then.
    pub accepted: u64,
    /// Accepted now, refused then.
    pub refused: u64,
    /// Accepted with other attributes.
    pub changed: u64,
    /// Prefixes of the newly accepted ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_examples: Vec<String>,
    /// Prefixes of the newly refused ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_examples: Vec<String>,
    /// Prefixes of the changed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_examples: Vec<String>,
}

/// Routes that a neighbour is sent: those that a reload changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AdvertisedChanges {
    /// Not sent now, sent then.
    pub appear: u64,
    /// Sent now, withdrawn then.
    pub vanish: u64,
    /// Sent with other attributes.
    pub changed: u64,
    /// Prefixes that appear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appear_examples: Vec<String>,
    /// Prefixes that vanish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vanish_examples: Vec<String>,
    /// Prefixes that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_examples: Vec<String>,
}
