//! orchagent and syncd together on a strict model of a chip.

mod chip;
mod failures;
mod groups;
mod random;
mod routes;
mod world;
