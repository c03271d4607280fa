//! orchagent and syncd together on a strict model of a chip.

mod batches;
mod chip;
mod failures;
mod groups;
mod labels;
mod random;
mod reconcile;
mod routes;
mod warm;
mod world;
