//! The SONiC path: its daemons over a real Redis, started as SONiC starts them and observed with a plain Redis client
//! and by look-ups in the virtual switch.

#[path = "../../../tables/tests/common/mod.rs"]
mod common;

mod bench;
mod daemons;
mod fpm;
mod zebra;
