//! The state of a prefix in every stage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/explain`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explain {
    /// The query.
    pub query: String,
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// The prefix: that of the query, or the longest match of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Every stage in the order of the path.
    pub stages: Vec<ExplainStage>,
    /// Where the route is, as a sentence.
    pub conclusion: String,
}

/// The state of a prefix in a stage.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplainStage {
    /// The stage.
    pub stage: String,
    /// The progress of the route.
    pub state: StageState,
    /// Details, a line each.
    pub messages: Vec<String>,
    /// Seconds since the route came here, or into this state: of BGP since the best path last changed, of the RIB manager and
    /// of dataplanes since the route was last sent, or since a dataplane first refused it. Absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl ExplainStage {
    /// A stage with these details.
    pub fn new(stage: impl Into<String>, state: StageState, messages: Vec<String>) -> ExplainStage {
        ExplainStage { stage: stage.into(), state, messages, seconds: None }
    }
}

/// The progress of a route in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageState {
    /// It passed.
    Passed,
    /// It waits here.
    Waiting,
    /// It ends here.
    Stopped,
    /// It never arrived.
    Absent,
    /// This stage does not run here.
    Off,
}
