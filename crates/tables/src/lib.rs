//! Producer and consumer tables: the carriers of SONiC's rows between the stages of the route path.
//!
//! The counterpart of libswsscommon (sonic-swss-common, `common/table.h`, `producerstatetable.h`,
//! `consumerstatetable.h`, `zmqproducerstatetable.h`), which calls a named channel of rows a
//! "table". The traits [`Producer`] and [`Consumer`] have three carriers. Over Redis and ZeroMQ,
//! the keys, sets, queues, channels and messages are SONiC's, so each stage works beside SONiC's
//! other daemons. In memory, typed rows pass through a bounded ring.
// These macros panic when the pipe has no reader.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod bookkeeping;
mod coalesced;
mod connection;
mod database;
mod error;
mod exchange;
mod lag;
mod low_priority_pace;
pub mod memory;
mod plain;
mod prefetching_consumer;
pub mod queue;
mod resp;
mod row_cache;
pub mod state_table;
mod subscriptions;
mod unreadable;
mod write_behind;
pub mod zmq;

pub use bookkeeping::{Bookkeeping, Fields};
pub use connection::{Connection, Hash, Hashes, ScanCursor};
pub use database::{Address, DEFAULT_CONFIG, Database, Databases, NAMESPACE_ID, Server, namespace_id};
pub use error::TableError;
pub use exchange::{EncodedRequest, Exchange, Message, ReaderThread, WINDOW};
pub use lag::{LagLimits, WriteBehindLag};
pub use low_priority_pace::LowPriorityPace;
pub use plain::PlainTable;
pub use prefetching_consumer::PrefetchingConsumer;
pub use resp::{Command, Reply};
pub use state_table::{ConsumerStateTable, Pipeline, ProducerStateTable};
pub use subscriptions::{PubSubEvent, listen, server_returns, wake_ups};
pub use unreadable::{passed_over, unreadable_keys};
pub use write_behind::WriteBehind;

use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::{Change, Row};
use zmq::Process;

/// The writing side of a table.
pub trait Producer<R: Row> {
    /// Takes all changes, which may wait for [`Producer::flush`]. Blocks while the table is full.
    ///
    /// # Errors
    /// When the table cannot be written; the taken changes are lost.
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError>;

    /// Makes the waiting changes visible to the consumer.
    ///
    /// # Errors
    /// As [`Producer::write`].
    fn flush(&mut self) -> Result<(), TableError>;

    /// Blocks while a running consumer has a backlog, until `hurried` returns true. Later changes
    /// coalesce meanwhile, and another client's rows do not wait for the whole backlog.
    ///
    /// # Errors
    /// As [`Producer::write`].
    fn let_through(&mut self, hurried: &dyn Fn() -> bool) -> Result<(), TableError> {
        let _ = hurried;
        Ok(())
    }

    /// The number of changes that wait for a flush.
    fn waiting(&self) -> usize;

    /// Rises when the carrier was lost and found again, perhaps without its rows. The owner then
    /// writes its rows again. Memory is never lost.
    fn generation(&self) -> u64 {
        0
    }

    /// Frees its buffers; called when the writing thread is idle and nothing waits.
    fn shrink_to_fit(&mut self) {}
}

/// The reading side of a table.
pub trait Consumer<R: Row> {
    /// Appends at most `max` changes to `changes` and returns whether there may be more. No change
    /// is normal, because a wake-up is only a hint. After `false`, the next change causes a
    /// wake-up.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError>;

    /// Wakes the consuming thread.
    fn wake_up(&self) -> &WakeUp;

    /// Frees its buffers; called when the consuming thread is idle.
    fn shrink_to_fit(&mut self) {}

    /// Sets a fence after every change that has left its table and is not popped. Over ZeroMQ the
    /// fence comes after the changes of all processes but `from`, and is passed only when those
    /// have ended.
    fn set_fence(&mut self, from: Option<Process>) {
        let _ = from;
    }

    /// Whether every change before the last fence is popped. A wake-up follows when this may have
    /// changed.
    fn is_past_fence(&mut self) -> bool {
        true
    }

    /// Holds or releases the reading ahead of [`Consumer::pop`].
    fn hold(&mut self, held: bool) {
        let _ = held;
    }

    /// Whether every change that was read ahead is popped.
    fn is_drained(&self) -> bool {
        true
    }
}
