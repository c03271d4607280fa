//! BGP's threads: sessions (FSMs, timers, all writes), readers, shards, egress workers.

pub mod shard;
