//! Tests of the RIB manager, each file a module of one program: what they share is compiled and linked once.

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
mod redistribution;
mod resolution;
mod selection;
mod urgent_queue;
mod vrfs;
