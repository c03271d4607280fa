//! orchagent and syncd together on a strict model of a chip.

mod batches;
mod chip;
mod failures;
mod groups;
mod labels;
mod lags_and_vlans;
mod port_states;
mod random;
mod reconcile;
mod routes;
mod verify;
mod warm;
mod world;
