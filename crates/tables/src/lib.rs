//! Producer and consumer tables: how rows of SONiC's databases travel between the stages of the route path.
//!
//! The counterpart of libswsscommon (sonic-swss-common, `common/table.h`, `producerstatetable.h`,
//! `consumerstatetable.h`, `zmqproducerstatetable.h`), whose word for a named channel of rows is "table".
//! The traits [`Producer`] and [`Consumer`] have three carriers. Over Redis and ZeroMQ the keys, sets, queues, channels
//! and messages are SONiC's own, so that each stage works beside SONiC's other daemons. In memory, typed rows go through
//! a bounded ring.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod coalesce;
mod connection;
mod database;
mod error;
mod exchange;
mod low_priority_pace;
pub mod memory;
mod plain;
mod prefetching_consumer;
pub mod queue;
mod resp;
mod row_cache;
pub mod state_table;
mod subscribe;
mod write_behind;
pub mod zmq;

pub use connection::{Connection, ScanCursor};
pub use database::{Address, DEFAULT_CONFIG, Database, Databases, NAMESPACE_ID, Server, namespace_id};
pub use error::TableError;
pub use exchange::{EncodedRequest, Exchange, Message, ReaderThread, WINDOW};
pub use low_priority_pace::LowPriorityPace;
pub use plain::PlainTable;
pub use prefetching_consumer::PrefetchingConsumer;
pub use resp::{Command, Reply};
pub use state_table::{ConsumerStateTable, Pipeline, ProducerStateTable};
pub use subscribe::{PubSubEvent, Wake, listen, wake_ups};
pub use write_behind::WriteBehind;

use ribtide_swss::{Change, Row};
use zmq::Process;

/// The writing side of a table.
pub trait Producer<R: Row> {
    /// Takes all changes; they may wait until [`Producer::flush`]. Waits while the table is full.
    ///
    /// # Errors
    /// When the table cannot be written; changes that were taken are lost with it.
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError>;

    /// Brings what waits to where the consumer finds it.
    ///
    /// # Errors
    /// As [`Producer::write`].
    fn flush(&mut self) -> Result<(), TableError>;

    /// Waits while the consumer is there and has much to take, until it is `hurried`: what comes meanwhile coalesces where it waits, and
    /// what another client writes does not wait behind all that there is.
    ///
    /// # Errors
    /// As [`Producer::write`].
    fn let_through(&mut self, hurried: &dyn Fn() -> bool) -> Result<(), TableError> {
        let _ = hurried;
        Ok(())
    }

    /// How many changes wait for a flush.
    fn waiting(&self) -> usize;

    /// How often the carrier was lost and found again, perhaps without its rows: after a change of this number the
    /// owner writes again what must be there. Memory is never lost.
    fn generation(&self) -> u64 {
        0
    }

    /// Frees its buffers; called when the writing thread is idle and nothing waits.
    fn shrink_to_fit(&mut self) {}
}

/// The reading side of a table.
pub trait Consumer<R: Row> {
    /// Appends at most `max` changes to `changes` and returns whether there may be more. Nothing found is normal: a
    /// wake-up is only a hint. Once there may not be more, the next change brings a wake-up.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError>;

    /// Says when to pop.
    fn wake(&self) -> &Wake;

    /// Frees its buffers; called when the consuming thread is idle.
    fn shrink_to_fit(&mut self) {}

    /// Sets a fence behind every change that has left its table and is not popped. Over ZeroMQ the fence stands behind the
    /// changes of all processes but `from`, and is passed only after those processes have ended.
    fn set_fence(&mut self, from: Option<Process>) {
        let _ = from;
    }

    /// Whether every change before the last fence is popped. A wake-up says when to look again.
    fn is_past_fence(&mut self) -> bool {
        true
    }

    /// From now on nothing is taken from where the table is, but by [`Consumer::pop`]; or it is again.
    fn hold(&mut self, held: bool) {
        let _ = held;
    }

    /// Whether everything is popped that was taken from where the table is.
    fn is_drained(&self) -> bool {
        true
    }
}

/// Tells the operator what happened to a connection: losing a database is not an error of any one caller.
fn report(sentence: &str) {
    ribtide_runtime::log::log("ribtide", sentence);
}
