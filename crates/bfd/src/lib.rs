//! Bidirectional forwarding detection (RFC 5880, 5881, 5883) as pure state machines: whether packets go to a neighbour
//! and come back, found out within some tens of milliseconds.
//!
//! [`Session`] is one session in asynchronous mode. [`Sessions`] is all of a router's: it knows which packet is for which,
//! and refuses those that are for none. Nothing here has a thread, a socket or a clock.
//!
//! Left out: the echo function, which others may use with us only as far as they must (we say that we receive none),
//! demand mode of our own (a neighbour's is respected), and authentication (packets that have it are refused).
#![forbid(unsafe_code)]

mod session;
mod sessions;

pub use session::{Effect, Event, Micros, SLOW, Session, Standing, Timers};
pub use sessions::{Discard, Discriminator, Entry, Origin, Place, Reach, Sessions};
