//! BGP as pure state machines: path attributes, decision process, shard, update group, session FSM.
//!
//! Nothing here has a thread, a socket or a clock; `ribtide-daemon` adds them. Start with
//! [`message`], the messages between the parts.
#![forbid(unsafe_code)]

pub mod attr;
pub mod decision;
pub mod egress;
pub mod filter;
pub mod fsm;
pub mod ingest;
pub mod link_bandwidth;
pub mod message;
pub mod peer;
pub mod presence;
pub mod shard;
pub mod watch;
