//! Bidirectional Forwarding Detection (RFC 5880, 5881, 5883) as pure state machines: detects within
//! tens of milliseconds whether packets reach a neighbour and return.
//!
//! [`Session`] is one session in asynchronous mode. [`Sessions`] holds all sessions of a router and
//! assigns packets to them. Nothing here has a thread, a socket or a clock.
//!
//! Not implemented: the echo function (our Required Min Echo RX Interval is 0), our own demand mode
//! (a neighbour's is respected), and authentication (packets with it are discarded).
#![forbid(unsafe_code)]

mod session;
mod sessions;

pub use session::{Effect, Event, Micros, SLOW, Session, Standing, Timers};
pub use sessions::{Discard, Discriminator, Entry, Origin, Place, Reach, Sessions};
