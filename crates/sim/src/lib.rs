//! Proof that sharding, batching and scheduling change no result: a naive BGP, a maker of random histories, and a
//! simulator that runs the real stages on the same history in whatever order a seed chooses.
//!
//! - [`rng`]: the seeded source of all choices; a failure is repeated by its seed.
//! - [`world`]: peers, routes and the events of a history.
//! - [`oracle`]: BGP as simple as it can be written: one thread, sorted maps, everything computed anew.
//! - [`run`]: the real readers, shards and egress workers, their queues, a dataplane that fails now and then, and the
//!   comparison.
#![forbid(unsafe_code)]

mod egress;
mod fib;
pub mod oracle;
pub mod policy;
pub mod rng;
pub mod run;
mod stage;
pub mod world;
