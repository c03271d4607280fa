//! Mode `beside` at ribtide's syncd on the virtual switch: the tests that `crates/swss/tests/beside` runs at a model, and
//! kills of each process.

mod kills;
#[path = "../../../swss/tests/beside/matters.rs"]
mod matters;
#[path = "../../../swss/tests/beside/rig.rs"]
mod rig;
mod syncd;
#[path = "../../../swss/tests/beside/transcripts.rs"]
mod transcripts;
