//! BMP (RFC 7854, RFC 8671, RFC 9069) on a thread of its own: sessions with stations, dumps of tables, and messages
//! about their changes.
//!
//! ```text
//! session thread, readers, shards, workers ──► bmp ──TCP──► stations
//! ```
//!
//! The thread waits for no station. Bytes that a socket does not take wait in the station's queue,
//! which has a bound; a station for which more would wait gets a Termination, and the whole tables
//! in its next session. So the thread always empties the queue of BGP's stages, and a slow station
//! stops none of them.
//!
//! A dump is requested from the stages a page at a time, while little waits for the station. A page comes on the
//! queue of the stage's changes, so it needs no comparison with them ([`ribtide_bgpd::monitor`]).
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod connection;
mod dump;
mod encode;
mod engine;
mod station;
mod statistics;
#[cfg(test)]
mod tests;

pub use engine::{Changes, Engine};
pub use station::{State, StationView};

use mio::{Events, Poll, Token, Waker};
use ribtide_bgpd::Stages;
use ribtide_bgpd::monitor::{Feed, Tap};
use ribtide_config::BmpConfig;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::ring::{Rings, Wake};
use ribtide_runtime::thread::{self, Ended, Stop};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Poll interval for the end of the thread, which takes [`engine`]'s farewell at most.
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);

const WAKE: Token = Token(usize::MAX);

/// The running thread.
pub struct Bmp {
    /// Calls its state.
    pub handle: StageHandle<Engine>,
    /// It ends after a stop, when every station got a Termination.
    pub thread: JoinHandle<()>,
    stop: Stop,
}

impl Bmp {
    /// Ends the thread while the process goes on: every station gets a Termination, which says that it is no longer
    /// configured. BGP's stages must not have its [`Tap`] any more.
    pub fn end(&self) {
        // A thread that has ended already has no station.
        let _ = self.handle.wait(Engine::remove_stations);
        self.stop.stop();
        while !self.thread.is_finished() {
            std::thread::sleep(END_POLL_INTERVAL);
        }
    }
}

/// The thread's queues, before it runs.
pub struct BmpBuilder {
    poll: Poll,
    wake: Wake,
    tap: Tap,
    feed: Feed,
}

/// The router as the peer of its Loc-RIB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Router {
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
}

impl BmpBuilder {
    /// Creates the queues.
    ///
    /// # Errors
    /// The system gives no descriptor. Displays as a sentence.
    pub fn new(rings: &Rings) -> io::Result<BmpBuilder> {
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(failed)?;
        // A waker fails only when the process is out of kernel memory.
        let wake: Wake = Arc::new(move || drop(waker.wake()));
        let (tap, feed) = Tap::new("BMP", rings, Some(wake.clone()));
        Ok(BmpBuilder { poll, wake, tap, feed })
    }

    /// For BGP's stages.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// Starts the thread with the stations of `config`.
    ///
    /// # Errors
    /// The system gives no thread. Displays as a sentence.
    pub fn start(
        self,
        config: &BmpConfig,
        router: Router,
        stages: Stages,
        clock: Clock,
        stop: Stop,
    ) -> io::Result<Bmp> {
        let BmpBuilder { poll, wake, tap: _, feed } = self;
        let (handle, calls) = pair("BMP");
        let mut engine = Engine::new(poll, feed, stages, router, clock);
        engine.configure(config);
        let stop = stop.part();
        let (at_stop, own) = (wake.clone(), stop.clone());
        let body = move || {
            let _waker = stop.on_stop(move || at_stop());
            run(engine, &calls, &stop)
        };
        let thread = thread::spawn("bmp", body).map_err(failed)?;
        Ok(Bmp { handle: handle.with_wake(Some(wake)), thread, stop: own })
    }
}

fn failed(e: io::Error) -> io::Error {
    let cure = "raise the limits of processes and open files (ulimit)";
    io::Error::new(e.kind(), format!("the BMP thread cannot start: {e}; {cure}"))
}

fn run(mut engine: Engine, calls: &CallQueue<Engine>, stop: &Stop) -> Ended {
    let mut events = Events::with_capacity(64);
    engine.begin();
    while !stop.stopped() {
        engine.wait(&mut events);
        for event in &events {
            if event.token() != WAKE {
                engine.ready(event.token().0);
            }
        }
        engine.take();
        engine.tick();
        calls.serve(&mut engine);
        engine.send();
    }
    engine.end();
    Ended::at_stop(stop)
}
