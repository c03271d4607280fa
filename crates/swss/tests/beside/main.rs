//! Mode `beside` at a model of syncd. `crates/vswitch/tests/beside` has the same tests at ribtide's syncd on the virtual
//! switch.

mod matters;
mod rig;
mod syncd;
mod transcripts;
