//! Origin validation on a thread of its own: connections to RPKI caches, and the table of payloads.
//!
//! ```text
//! caches ◄──RTR──► rpki ──► readers: the new table, and the prefixes whose payloads changed
//! ```
//!
//! The table is immutable and shared. The thread hands each new one to the readers by a call, and no
//! stage waits for this thread.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod connection;
mod engine;
#[cfg(test)]
mod tests;

pub use engine::{CacheView, Changes, Engine, View};

use mio::{Events, Poll, Token, Waker};
use ribtide_config::RpkiConfig;
use ribtide_prefix::Families;
use ribtide_rpki::{ChangedPrefixes, Vrps};
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::ring::Wake;
use ribtide_runtime::thread::{self, Ended, Stop};
use std::io;
use std::sync::Arc;

const WAKE: Token = Token(usize::MAX);

/// Gets each new table, and the prefixes whose payloads differ from the one before.
pub type Publish = Box<dyn Fn(&Arc<Vrps>, &Arc<Families<ChangedPrefixes>>) + Send>;

/// Starts the thread with the caches of `config`.
///
/// # Errors
/// The system gives no thread or descriptor. Displays as a sentence.
pub fn start(
    config: &RpkiConfig,
    publish: Publish,
    clock: Clock,
    stop: Stop,
) -> io::Result<StageHandle<Engine>> {
    let failed = |e: io::Error| {
        let cure = "raise the limits of processes and open files (ulimit)";
        io::Error::new(e.kind(), format!("the RPKI thread cannot start: {e}; {cure}"))
    };
    let poll = Poll::new().map_err(failed)?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(failed)?;
    // A waker fails only when the process is out of kernel memory.
    let wake: Wake = Arc::new(move || drop(waker.wake()));
    let (handle, calls) = pair("RPKI");
    let mut engine = Engine::new(poll, publish, clock);
    engine.configure(config);
    let at_stop = wake.clone();
    let body = move || {
        let _waker = stop.on_stop(move || at_stop());
        run(engine, &calls, &stop)
    };
    thread::spawn("rpki", body).map_err(failed)?;
    Ok(handle.with_wake(Some(wake)))
}

fn run(mut engine: Engine, calls: &CallQueue<Engine>, stop: &Stop) -> Ended {
    let mut events = Events::with_capacity(64);
    // Local exceptions: without a cache nothing else wakes the thread.
    engine.publish();
    while !stop.stopped() && !engine.has_ended() {
        engine.wait(&mut events);
        for event in &events {
            if event.token() != WAKE {
                engine.ready(event.token().0);
            }
        }
        engine.tick();
        calls.serve(&mut engine);
        engine.publish();
    }
    if engine.has_ended() { Ended::done() } else { Ended::at_stop(stop) }
}
