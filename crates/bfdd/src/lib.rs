//! BFD on a thread of its own: sockets, timers, and notifications when packets no longer reach a
//! neighbour.
//!
//! ```text
//! sockets ◄──► bfd ──► RIB manager (its urgent queue): next hops avoid the neighbour
//!               │
//!               └────► session thread: its session ends with Cease, BFD Down
//! ```
//!
//! The thread waits for no other thread and does nothing else, so a busy router does not look dead
//! to its neighbours, nor they to it. Notifications without room wait here, the newest for each
//! neighbour ([`notifier`]).
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod engine;
mod notifier;
mod socket;
#[cfg(test)]
mod tests;

pub use engine::{Changes, Engine, SessionView};
pub use notifier::BfdNews;

use mio::{Events, Poll, Token, Waker};
use ribtide_config::{BfdConfig, BfdPeer, BfdSession, InterfaceConfig};
use ribtide_rib::RibIn;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_runtime::thread::{self, Ended, Stop};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

const WAKE: Token = Token(usize::MAX);
/// Sets of learnt neighbours that may wait.
const LEARNT: usize = 16;

/// All neighbours whose addresses are learnt, with their sessions: the session thread sends the whole set at each change.
pub type Learnt = BTreeMap<BfdPeer, BfdSession>;

/// How to reach the thread.
pub struct Bfd {
    /// For questions.
    pub handle: StageHandle<Engine>,
    /// For learnt neighbours.
    pub learnt: Sender<Learnt>,
    /// Ends when every neighbour has been told of a stop.
    pub thread: JoinHandle<()>,
}

/// Who is told.
pub struct Outputs {
    /// The RIB manager's urgent queue.
    pub rib: Option<Sender<RibIn>>,
    /// The session thread.
    pub bgp: Option<Sender<BfdNews>>,
}

/// Binds the sockets, and starts the thread with the sessions of `config`. `interfaces`: those whose numbers the
/// configuration gives.
///
/// # Errors
/// When a socket cannot be bound, or the system gives no thread. Displays as a sentence; the kind is the system's.
pub fn start(
    config: &BfdConfig,
    interfaces: &[InterfaceConfig],
    outputs: Outputs,
    rings: &Rings,
    stop: Stop,
) -> io::Result<Bfd> {
    let failed = |e: io::Error| {
        let cure = "raise the limits of processes and open files (ulimit)";
        io::Error::new(e.kind(), format!("the BFD thread cannot start: {e}; {cure}"))
    };
    let poll = Poll::new().map_err(failed)?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(failed)?;
    // A waker fails only when the process is out of kernel memory.
    let wake: Wake = Arc::new(move || drop(waker.wake()));
    let (handle, calls) = pair("BFD");
    let (learnt, learns) = rings.bounded("sessions to BFD", LEARNT);
    let mut engine = Engine::new(poll, config.listen.clone(), interfaces, outputs);
    engine.configure(config)?;
    let at_stop = wake.clone();
    let body = move || {
        let _waker = stop.on_stop(move || at_stop());
        run(engine, &calls, &learns, &stop)
    };
    let thread = thread::spawn_urgent("bfd", 20, body).map_err(failed)?;
    let learnt = learnt.with_wake(Some(wake.clone()));
    Ok(Bfd { handle: handle.with_wake(Some(wake)), learnt, thread })
}

fn run(mut engine: Engine, calls: &CallQueue<Engine>, learns: &Receiver<Learnt>, stop: &Stop) -> Ended {
    let mut events = Events::with_capacity(64);
    while !stop.stopped() {
        if let Err(error) = engine.poll.poll(&mut events, Some(engine.poll_timeout()))
            && error.kind() != io::ErrorKind::Interrupted
        {
            panic!("the BFD thread cannot wait for its sockets: {error}");
        }
        for event in &events {
            if event.token() != WAKE {
                engine.ready(event.token().0);
            }
        }
        // Packets before timers: what came while the thread did not run has come.
        engine.receive();
        engine.tick();
        while let Some(learnt) = learns.try_recv() {
            engine.learn(learnt);
        }
        calls.serve(&mut engine);
        engine.notify();
    }
    engine.close();
    Ended::at_stop(stop)
}
