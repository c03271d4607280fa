//! A prefix's way through every stage.

use serde::{Deserialize, Serialize};

/// `GET /v1/explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explain {
    /// What was asked.
    pub asked: String,
    /// In which VRF; the default one is `default`.
    pub vrf: String,
    /// The prefix that answers: the one asked, or the longest match of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Every stage, in the order of the route's way.
    pub stages: Vec<ExplainStage>,
    /// Where the route is, in a sentence.
    pub conclusion: String,
}

/// One stage's word on a prefix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainStage {
    /// The stage.
    pub stage: String,
    /// Whether the route got through.
    pub state: StageState,
    /// What the stage knows, a line each.
    pub says: Vec<String>,
}

impl ExplainStage {
    /// A stage that knows these lines.
    pub fn new(stage: impl Into<String>, state: StageState, says: Vec<String>) -> ExplainStage {
        ExplainStage { stage: stage.into(), state, says }
    }
}

/// How far a route came in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageState {
    /// Through.
    Passed,
    /// In here, waiting.
    Waiting,
    /// It ends here.
    Stopped,
    /// Never came.
    Absent,
    /// This stage does not run here.
    Off,
}
