//! Proof that sharding, batching and scheduling change no result: a naive BGP, a generator of
//! random histories, and a simulator that runs the real stages in an order drawn from a seed.
//!
//! One seeded [`ribtide_prefix::Rng`] makes all choices, so a seed repeats a failure.
//!
//! - [`history`]: peers, routes and the events of a history.
//! - [`oracle`]: BGP as simple as possible: one thread, sorted maps, everything recomputed.
//! - [`run`]: the real readers, shards and egress workers, their queues, a dataplane that sometimes fails, and
//!   the comparison.
//! - [`network`]: links, static routes, neighbours and next hops of every kind, and the events of a history.
//! - [`router`]: the router with SONiC's stages and the virtual switch, and faults.
//! - [`kernel_router`]: the router with the kernel dataplane, and faults.
//! - [`kernel`]: the simulated kernel.
//! - [`feedback`]: shards, egress workers and the RIB manager in a loop, which must end in agreement.
#![forbid(unsafe_code)]

pub mod campaign;
mod egress;
pub mod feedback;
mod fib;
pub mod history;
pub mod kernel;
pub mod kernel_router;
pub mod network;
pub mod oracle;
pub mod policy;
pub mod router;
mod routing;
pub mod run;
mod stage;
mod station;
mod watches;
