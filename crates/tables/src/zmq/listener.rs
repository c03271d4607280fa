//! The listener of a bound socket: one thread accepts, and each connection is served on a thread of
//! its own.

use super::endpoint::Endpoint;
use super::push::reason;
use super::zmtp::{Kind, Peer, handshake};
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended, Stop};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// The served messages, and the names of the threads.
#[derive(Clone, Copy)]
pub(super) struct Service {
    pub(super) kind: Kind,
    /// The longest message, in bytes.
    pub(super) limit: usize,
    /// The content, for the log.
    pub(super) what: &'static str,
    /// The name of the accepting thread.
    pub(super) accept_thread: &'static str,
    /// The name of a connection's thread.
    pub(super) serve_thread: &'static str,
}

/// A bound socket; dropping it keeps it bound.
#[derive(Debug)]
pub(super) struct BoundListener {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<()>,
}

impl BoundListener {
    /// Stops accepting and frees the address. Open connections continue.
    pub(super) fn end(self) {
        self.stop.stop();
        // The accepting thread checks for the end at each connection.
        drop(TcpStream::connect(self.address));
        let _ = self.thread.join();
    }
}

/// Binds to `endpoint` and calls `serve` for each connection until it ends. The error is of the
/// address or of the accepting thread.
pub(super) fn bind(
    endpoint: &Endpoint,
    service: Service,
    stop: &Stop,
    serve: impl Fn(Peer) -> io::Result<()> + Send + Clone + 'static,
) -> io::Result<BoundListener> {
    let listener = TcpListener::bind(endpoint.resolve()?.as_slice())?;
    let address = listener.local_addr()?;
    let (stop, its) = (stop.clone(), stop.clone());
    let Service { kind, limit, what, accept_thread, serve_thread } = service;
    let body = move || {
        while !its.stopped() {
            let Ok((stream, from)) = listener.accept() else {
                // Most likely no descriptor is free; an immediate retry would spin.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if its.stopped() {
                break;
            }
            let serve = serve.clone();
            let body = move || {
                let served = handshake(stream, kind, limit, 0).and_then(|peer| {
                    let writer = peer.writer.clone();
                    let served = serve(peer);
                    // Also for a thread in the middle of a reply.
                    writer.end();
                    served
                });
                if let Err(e) = served {
                    tracing::warn!(
                        target: target::ZMQ,
                        peer = %from,
                        channel = what,
                        error = reason(&e),
                        "the connection ended"
                    );
                }
                Ended::done()
            };
            if let Err(e) = thread::spawn(serve_thread, body) {
                tracing::error!(
                    target: target::ZMQ,
                    peer = %from,
                    channel = what,
                    error = %e,
                    "the system gives no thread for the connection"
                );
            }
        }
        Ended::at_stop(&its)
    };
    thread::spawn(accept_thread, body).map(|thread| BoundListener { address, stop, thread })
}
