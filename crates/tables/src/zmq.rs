//! SONiC's ZeroMQ transports: tables from fpmsyncd to orchagent, requests from orchagent to syncd and replies back.
//!
//! On the wire they are SONiC's, byte for byte. Between two sides that are both ribtide's a table is acknowledged
//! too, on the way back that ZeroMQ's own leave unused, so that a burst fills a window and not a queue that drops.

mod binary;
mod endpoint;
mod listener;
mod requests;
mod table;
mod zmtp;

pub use endpoint::Endpoint;
pub use requests::{Answer, exchange, serve};
pub use table::{ZmqConsumer, ZmqProducer};
