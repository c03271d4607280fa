//! SONiC's ZeroMQ transports: tables from fpmsyncd to orchagent, and requests and replies between
//! orchagent and syncd.
//!
//! The wire format is SONiC's. Between two ribtide ends, messages are also acknowledged, in the
//! direction that ZeroMQ's socket types leave unused. So a burst fills a window, and no queue
//! drops.

mod binary;
mod endpoint;
mod listener;
mod notifications;
mod push;
mod requests;
mod responses;
mod table;
mod turns;
mod zmtp;

pub use endpoint::Endpoint;
pub use notifications::{connect_notifications, listen_notifications};
pub use push::{Push, WINDOW};
pub use requests::{ReplySender, Resent, exchange, serve};
pub use responses::{Acknowledgement, ResponseEvent, ResponseListener, connect_responses, listen_responses};
pub use table::{ZmqConsumer, ZmqProducer, decode_changes, encode_changes};
pub use zmtp::Process;
