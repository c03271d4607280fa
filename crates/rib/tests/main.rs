//! Tests of the RIB manager, each file a module: one program compiles and links in a fraction of the time of fourteen.

mod backup;
mod cache;
mod circles;
mod common;
mod confirmations;
mod confluence;
mod dataplane;
mod fib_policy;
mod memory;
mod paradoxes;
mod property;
mod resolution;
mod selection;
mod urgent_queue;
mod vrfs;
