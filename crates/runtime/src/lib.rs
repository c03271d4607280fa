//! What turns pure state machines into running stages: bounded named rings, questions to a stage, threads, time.
//!
//! A stage is a thread that owns one state machine. Work reaches it through a [`ring`]; people's questions reach it
//! through [`ask`], between two batches of work, so that a read never holds a lock that routing needs.
#![forbid(unsafe_code)]

pub mod ask;
pub mod clock;
pub mod meter;
pub mod ring;
pub mod thread;
