//! MRT (RFC 6396, RFC 8050) on a thread of its own: dumps of the table, and files of received messages.
//!
//! ```text
//! session thread, readers ──► mrt ──► files        shards ◄──queries── mrt
//! ```
//!
//! The thread waits for the disk, so no stage waits for the thread: messages without room in its queue are dropped and
//! counted. A dump queries the shards a page at a time, and takes messages between two pages. A file has another name
//! until it is complete and on the disk. An error ends a file and is a fault until the next file has no error.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod engine;
mod file;
mod name;
mod table;
mod updates;

pub use engine::{Changes, Engine, Series, SeriesView, View};
pub use table::{TableDump, Totals};

use crossbeam_channel::Select;
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::{Feed, Tap};
use ribtide_config::MrtConfig;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::{self, Ended, Stop};
use std::io;
use std::net::Ipv4Addr;
use std::thread::JoinHandle;

/// The router as the collector of MRT records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collector {
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
}

/// The running thread.
pub struct Mrt {
    /// Calls its state.
    pub handle: StageHandle<Engine>,
    /// It ends after a stop, when its files are complete.
    pub thread: JoinHandle<()>,
    stop: Stop,
}

impl Mrt {
    /// Ends the thread while the process goes on. It completes its files first, which may take as long as the disk does;
    /// this does not wait for it. BGP's stages must not have its [`Tap`] any more.
    pub fn end(&self) {
        self.stop.stop();
    }
}

/// The thread's queues, before it runs.
pub struct MrtBuilder {
    tap: Tap,
    feed: Feed,
}

impl MrtBuilder {
    /// Creates the queues.
    pub fn new(rings: &Rings) -> MrtBuilder {
        let (tap, feed) = Tap::lossy("MRT", rings, None);
        MrtBuilder { tap, feed }
    }

    /// For BGP's stages.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// Starts the thread with the files of `config`.
    ///
    /// # Errors
    /// The system gives no thread. Displays as a sentence.
    pub fn start(
        self,
        config: &MrtConfig,
        collector: Collector,
        stages: Stages,
        stop: Stop,
    ) -> io::Result<Mrt> {
        let (handle, calls) = pair("MRT");
        let mut engine = Engine::new(self.feed, stages, collector);
        engine.configure(config);
        let stop = stop.part();
        let own = stop.clone();
        let thread = thread::spawn("mrt", move || run(engine, &calls, &stop));
        let thread = thread.map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("the MRT thread cannot start: {e}; raise the limit of processes (ulimit -u)"),
            )
        })?;
        Ok(Mrt { handle, thread, stop: own })
    }
}

fn run(mut engine: Engine, calls: &CallQueue<Engine>, stop: &Stop) -> Ended {
    let signal = stop.signal();
    engine.begin();
    while !stop.stopped() {
        let more = engine.turn();
        calls.serve(&mut engine);
        if more {
            continue;
        }
        let mut select = Select::new();
        signal.watch(&mut select);
        calls.watch(&mut select);
        engine.watch(&mut select);
        // The next turn looks at everything.
        let _ = select.ready_timeout(engine.timeout());
    }
    engine.end();
    Ended::at_stop(stop)
}
