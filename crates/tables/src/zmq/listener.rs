//! Who connects to a socket that is bound: a thread waits for them, and each is served on one of its own.

use super::endpoint::Endpoint;
use super::push::reason;
use super::zmtp::{Kind, Peer, introduce};
use ribtide_runtime::thread::{self, Stop};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// What is served, and on which threads.
#[derive(Clone, Copy)]
pub(super) struct Service {
    pub(super) kind: Kind,
    /// The longest message, in bytes.
    pub(super) limit: usize,
    /// What comes, for the log.
    pub(super) what: &'static str,
    /// The thread that waits.
    pub(super) listens: &'static str,
    /// The thread of a connection.
    pub(super) serves: &'static str,
}

/// A socket that is bound; dropping this leaves it so.
#[derive(Debug)]
pub(super) struct Bound {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl Bound {
    /// Waits for no client any more: the address is free from now on. Those who are served go on.
    pub(super) fn end(self) {
        self.stop.stop();
        // It looks when a client connects.
        drop(TcpStream::connect(self.address));
        let _ = self.thread.join();
    }
}

/// Binds to `endpoint`, and has `serve` deal with whoever connects until its connection ends. The error is of the
/// address or of the thread that waits.
pub(super) fn bind(
    endpoint: &Endpoint,
    service: Service,
    stop: &Stop,
    serve: impl Fn(Peer) -> io::Result<()> + Send + Clone + 'static,
) -> io::Result<Bound> {
    let listener = TcpListener::bind(endpoint.resolve()?.as_slice())?;
    let address = listener.local_addr()?;
    let (stop, its) = (stop.clone(), stop.clone());
    let Service { kind, limit, what, listens, serves } = service;
    let body = move || {
        while !its.stopped() {
            let Ok((stream, from)) = listener.accept() else {
                // Out of descriptors, most likely: trying at once would only spin.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if its.stopped() {
                return;
            }
            let serve = serve.clone();
            let body = move || {
                let served = introduce(stream, kind, limit, 0).and_then(|peer| {
                    let writer = peer.writer.clone();
                    let served = serve(peer);
                    // Also for who is still in the middle of an answer.
                    writer.end();
                    served
                });
                if let Err(e) = served {
                    crate::report(&format!("{what} from {from} ended: {}", reason(&e)));
                }
            };
            if let Err(e) = thread::spawn(serves, body) {
                crate::report(&format!("no thread for {what} from {from}: {e}"));
            }
        }
    };
    thread::spawn(listens, body).map(|thread| Bound { address, stop, thread })
}
