//! The SONiC path: its daemons over a real Redis, started as SONiC starts them and observed with a plain Redis client
//! and by look-ups in the virtual switch.

#[path = "../../../tables/tests/common/mod.rs"]
mod common;

mod bench;
mod conformance;
mod daemons;
mod fpm;
#[path = "../../../vswitch/tests/conformance/suite/mod.rs"]
mod suite;
mod zebra;
