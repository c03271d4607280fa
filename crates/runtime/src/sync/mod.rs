//! What threads share: the atomics and locks of std and the channels of crossbeam, or those of loom
//! in its models (`--cfg loom`, run by `scripts/loom`).
//!
//! `Arc` is std's in both: loom's has no `Weak`, and no model is about the end of a shared value.
//! Statics keep std's atomics, because loom's have no value before a model begins.

// The interface of crossbeam, which is public.
#[cfg(loom)]
#[allow(unreachable_pub)]
pub(crate) mod channel;

#[cfg(not(loom))]
pub(crate) use crossbeam_channel as channel;
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
