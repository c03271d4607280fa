//! Load and proof: real tables from MRT files, internet-shaped tables from a seed, senders that play them into BGP
//! sessions, and receivers that count what comes back.

mod pool;
mod rng;
pub mod table;

pub use pool::AddressPool;
