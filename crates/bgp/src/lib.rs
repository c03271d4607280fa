//! BGP as pure state machines: path attributes, decision process, shard, update group, session FSM.
//!
//! Nothing here has a thread, a socket or a clock; `ribtide-daemon` gives them those. Start with [`message`]:
//! it shows what crosses between the parts.
#![forbid(unsafe_code)]

pub mod attr;
pub mod decision;
pub mod egress;
pub mod fsm;
pub mod ingest;
pub mod link_bandwidth;
pub mod message;
pub mod peer;
pub mod shard;
