//! Proof that sharding, batching and scheduling change no result: a naive BGP, a maker of random histories, and a
//! simulator that runs the real stages on the same history in whatever order a seed chooses.
//!
//! One seeded [`ribtide_prefix::Rng`] draws all choices: a failure is repeated by its seed.
//!
//! - [`world`]: peers, routes and the events of a history.
//! - [`oracle`]: BGP as simple as it can be written: one thread, sorted maps, everything recomputed.
//! - [`run`]: the real readers, shards and egress workers, their queues, a dataplane that fails now and then, and the
//!   comparison.
//! - [`network`]: links, static routes, neighbours and next hops of every kind, and the events of a history.
//! - [`feedback`]: shards, egress workers and the RIB manager in a loop, which must come to rest with one answer.
#![forbid(unsafe_code)]

mod egress;
pub mod feedback;
mod fib;
pub mod network;
pub mod oracle;
pub mod policy;
pub mod run;
mod stage;
pub mod world;
