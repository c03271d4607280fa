//! SONiC's ZeroMQ transports: tables from fpmsyncd to orchagent, requests from orchagent to syncd and replies back.
//!
//! On the wire they are SONiC's, byte for byte. Between two sides that are both ribtide's a table is acknowledged
//! too, on the way back that ZeroMQ's own leave unused, so that a burst fills a window and not a queue that drops.

mod answers;
mod binary;
mod endpoint;
mod listener;
mod push;
mod requests;
mod table;
mod turns;
mod zmtp;

pub use answers::{AnswerEvent, AnswersAt, Taken, answer_to, answers_at};
pub use endpoint::Endpoint;
pub use push::{Push, WINDOW};
pub use requests::{Again, Answer, exchange, serve};
pub use table::{ZmqConsumer, ZmqProducer};
pub use zmtp::Process;
