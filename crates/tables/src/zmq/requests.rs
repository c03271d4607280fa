//! Requests to syncd over ZeroMQ: orchagent's end asks (REQ, connects), syncd's end answers (REP, binds).
//!
//! SONiC's own asks one thing at a time. A socket that answers takes the next request when it has answered the last, so
//! several may be under way to any syncd; their answers come in order.
//!
//! Requests under way on a connection that breaks are sent again on the next one. A syncd of ours knows that the
//! first requests of a connection may be such, which it, or one before it, has carried out ([`Resent`]).

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{CONNECT_BACKOFF, connect, given_up, reason};
use super::turns::Turns;
use super::zmtp::{Kind, Peer, Reader, Writer, next_socket};
use crate::TableError;
use crate::exchange::{Exchange, Pending, WAITING, WINDOW};
use crossbeam_channel::select;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::watchdog::PeerWait;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Attempts to send a request again, at most: the request may be what ends syncd.
const RESENDS_MAX: u8 = 5;
/// The longest message: SONiC's buffer.
const LIMIT: usize = 128 << 20;

fn no_thread(endpoint: &Endpoint, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: endpoint.to_string(), cause: cause.to_string() }
}

/// A request in flight.
struct Sent<Q> {
    request: Q,
    /// How often it was sent before.
    before: u8,
}

/// Sends requests to the server at `endpoint`, on two threads. `encode` appends a request's message; its flag says whether
/// syncd is ribtide's. `decode` decodes the reply to a request, or returns `None` for another message.
///
/// A broken connection is made again, and the requests in flight on it are sent again. Two cases
/// end the exchange: SONiC's syncd kept running, so it may still execute a request; or one request
/// was lost too often.
///
/// # Errors
/// [`TableError::Endpoint`] when no thread can be created.
pub fn exchange<Q: Send + 'static, A: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    encode: impl Fn(&Q, bool, &mut Vec<u8>) + Send + 'static,
    decode: impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static,
) -> Result<Exchange<Q, A>, TableError> {
    let (requests, requests_rx) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (replies_tx, replies) = rings.bounded("syncd to orchagent", WAITING);
    let (to, stop, decode) = (endpoint.clone(), stop.clone(), Arc::new(decode));
    let absent = PeerWait::new(format!("syncd at {endpoint}"));
    let body = move || -> Ended {
        let interrupted =
            || replies_tx.end_with(Err(TableError::Interrupted { what: "the connection to syncd".into() }));
        let socket = next_socket();
        let mut pause = CONNECT_BACKOFF.0;
        // Whether the connection is lost, and the process of the last syncd, when it is ribtide's.
        let (mut away, mut who) = (false, None);
        let mut lost = VecDeque::new();
        while !stop.stopped() {
            let peer = match connect(&to, Kind::Req, LIMIT, socket) {
                Ok(peer) => peer,
                Err(e) => {
                    absent.begin();
                    if !std::mem::replace(&mut away, true) {
                        tracing::warn!(target: target::ZMQ, endpoint = %to, error = %e, "waiting for syncd");
                    }
                    stop.sleep(pause);
                    pause = CONNECT_BACKOFF.1.min(pause * 2);
                    continue;
                }
            };
            absent.end();
            if !away && peer.ours.or(who).is_none() && !lost.is_empty() {
                return interrupted();
            }
            tracing::info!(target: target::ZMQ, endpoint = %to, "connected to syncd");
            (pause, away, who) = (CONNECT_BACKOFF.0, false, peer.ours);
            let pending = Pending::default();
            let why = match converse(peer, &mut lost, &requests_rx, &replies_tx, &pending, &encode, &decode) {
                Ok(why) => why,
                Err(closed) => return closed.into(),
            };
            tracing::warn!(target: target::ZMQ, endpoint = %to, reason = %why, "the connection to syncd is lost");
            let mut again: VecDeque<_> =
                std::iter::from_fn(|| pending.oldest()).inspect(|_| pending.replied()).collect();
            // Requests that were not sent again are younger.
            again.append(&mut lost);
            lost = again;
            let too_often = lost.iter().any(|sent: &Sent<Q>| sent.before == RESENDS_MAX);
            // A request whose reply did not match is pending and not among the lost ones.
            if too_often || !pending.is_empty() {
                return interrupted();
            }
        }
        Ended::at_stop(&stop)
    };
    thread::spawn("asic-requests", body).map_err(|e| no_thread(endpoint, &e))?;
    Ok(Exchange { requests, replies, _reader: None })
}

/// Serves one connection until its end, and returns the reason. Sends the requests in `lost` first, and
/// leaves there what it did not send.
///
/// # Errors
/// [`Closed`] when the requester has stopped.
fn converse<Q: Send + 'static, A: Send + 'static>(
    peer: Peer,
    lost: &mut VecDeque<Sent<Q>>,
    requests_rx: &ring::Receiver<Q>,
    replies_tx: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    encode: &impl Fn(&Q, bool, &mut Vec<u8>),
    decode: &Arc<impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static>,
) -> Result<String, Closed> {
    let Peer { reader, writer, ours, .. } = peer;
    let (gone, is_gone) = oneshot::pair();
    let (replies_tx, in_flight, decode) = (replies_tx.clone(), pending.clone(), decode.clone());
    let ended = writer.clone();
    let body = move || {
        let why = listen(reader, &replies_tx, &in_flight, &*decode);
        ended.end();
        gone.end_with(why)
    };
    if let Err(e) = thread::spawn("asic-responses", body) {
        return Ok(e.to_string());
    }
    let mut message = Vec::new();
    let mut send = |sent: Sent<Q>| {
        message.clear();
        encode(&sent.request, ours.is_some(), &mut message);
        // Its reply may come before this call returns.
        pending.add(sent);
        writer.message(&message)
    };
    // The reading thread still takes replies that have arrived.
    let end = |e: &io::Error| Ok(given_up(e, &writer, &is_gone));
    while let Some(sent) = lost.pop_front() {
        if let Err(e) = send(Sent { before: sent.before + 1, ..sent }) {
            return end(&e);
        }
    }
    loop {
        select! {
            recv(requests_rx.raw()) -> request => {
                idle::on_wait(false);
                let request = requests_rx.received(request).inspect_err(|_| writer.end())?;
                if let Err(e) = send(Sent { request, before: 0 }) {
                    return end(&e);
                }
            }
            recv(is_gone.raw()) -> why => return Ok(why.unwrap_or_default()),
            default(idle::until_idle()) => {
                idle::on_wait(true);
            }
        }
    }
}

fn listen<Q, A>(
    mut reader: Reader,
    replies_tx: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    decode: &impl Fn(&Q, &[u8]) -> Option<A>,
) -> String {
    let mut message = Vec::new();
    loop {
        if let Err(e) = reader.message(&mut message) {
            return reason(&e);
        }
        let Some(answer) = pending.oldest().and_then(|sent| decode(&sent.request, &message)) else {
            return "its reply does not belong to the oldest request".into();
        };
        pending.replied();
        if replies_tx.send(Ok(answer)).is_err() {
            return "no server listens".into();
        }
    }
}

/// Sends the reply to a request.
#[derive(Clone, Debug)]
pub struct ReplySender {
    writer: Writer,
    /// Whether the requester is ribtide's.
    pub ours: bool,
}

impl ReplySender {
    /// Sends the reply. A requester that is gone loses it.
    pub fn send(&self, message: &[u8]) {
        let _ = self.writer.message(message);
    }
}

/// Whether a request may have been sent and executed before: the first requests of a connection, up
/// to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resent {
    /// It is new.
    No,
    /// It may have been sent to an earlier syncd.
    Elsewhere,
    /// It may have been sent here, over a connection that broke.
    Here,
}

/// Binds to `endpoint` and takes requests of all connections, each read by `read` on its
/// connection's thread. They wait in the queue called `queue`.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
pub fn serve<T: Send + 'static>(
    endpoint: &Endpoint,
    queue: &str,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(&[u8], Resent) -> T + Send + Clone + 'static,
) -> Result<ring::Receiver<(T, ReplySender)>, TableError> {
    let (requests, taken) = rings.bounded(queue, WAITING);
    let service = Service {
        kind: Kind::Rep,
        limit: LIMIT,
        what: "requests",
        accept_thread: "asic-listen",
        serve_thread: "asic-requests",
    };
    let turns = Turns::default();
    let last = Arc::new(Mutex::new(None));
    let body = move |peer: Peer| {
        let _turn = turns.wait(&peer);
        let who = peer.ours.map(|process| (process, peer.socket));
        let before = std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), who);
        let again = if who.is_some() && who == before { Resent::Here } else { Resent::Elsewhere };
        take(peer, again, &requests, &read)
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| no_thread(endpoint, &e))?;
    Ok(taken)
}

fn take<T>(
    peer: Peer,
    again: Resent,
    requests: &ring::Sender<(T, ReplySender)>,
    read: &impl Fn(&[u8], Resent) -> T,
) -> io::Result<()> {
    let Peer { mut reader, writer, ours, .. } = peer;
    let answer = ReplySender { writer, ours: ours.is_some() };
    let mut message = Vec::new();
    for n in 0_u64.. {
        reader.message(&mut message)?;
        let request = read(&message, if n < WINDOW as u64 { again } else { Resent::No });
        if requests.send((request, answer.clone())).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::zmtp::{Process, handshake_as};
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// A REP socket of one process after the other.
    struct Syncd(TcpListener);

    impl Syncd {
        fn accept(&self, process: u64) -> Peer {
            let (stream, _) = self.0.accept().unwrap();
            handshake_as(stream, Kind::Rep, LIMIT, (Process::numbered(process), 0)).unwrap()
        }
    }

    fn request(peer: &mut Peer) -> u8 {
        let mut message = Vec::new();
        peer.reader.message(&mut message).unwrap();
        message[0]
    }

    /// SONiC's syncd: it sends its greeting and no more.
    fn of_sonic(syncd: &Syncd) -> TcpStream {
        let (mut stream, _) = syncd.0.accept().unwrap();
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).unwrap();
        stream.write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REP").unwrap();
        stream
    }

    /// Requests are numbers, in messages of a megabyte; replies too.
    fn begin() -> (Syncd, Exchange<u8, u8>, Stop) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let stop = Stop::default();
        let encode = |n: &u8, _ours: bool, message: &mut Vec<u8>| message.resize(1 << 20, *n);
        let decode = |n: &u8, message: &[u8]| (message == [*n]).then_some(*n);
        let endpoint = Endpoint::parse(&endpoint, 0).unwrap();
        let exchange = exchange(&endpoint, &Rings::default(), &stop, encode, decode).unwrap();
        (Syncd(listener), exchange, stop)
    }

    fn answer(exchange: &Exchange<u8, u8>) -> Result<u8, TableError> {
        exchange.replies.raw().recv_timeout(TEST_TIMEOUT).unwrap()
    }

    #[test]
    fn requests_are_resent_to_another_syncd_process() {
        let (syncd, exchange, stop) = begin();
        let mut first = syncd.accept(1);
        for n in [7, 8, 9] {
            exchange.requests.send(n).unwrap();
        }
        assert_eq!(request(&mut first), 7);
        first.writer.message(&[7]).unwrap();
        assert_eq!(answer(&exchange).unwrap(), 7);
        assert_eq!(request(&mut first), 8);
        first.writer.end();
        // It listened before, and ends without reading.
        syncd.accept(2).writer.end();
        let mut third = syncd.accept(3);
        for n in [8, 9] {
            assert_eq!(request(&mut third), n);
            third.writer.message(&[n]).unwrap();
            assert_eq!(answer(&exchange).unwrap(), n);
        }
        stop.stop();
    }

    #[test]
    fn requests_are_resent_to_the_same_ribtide_syncd() {
        let (syncd, exchange, stop) = begin();
        let mut first = syncd.accept(1);
        exchange.requests.send(7).unwrap();
        assert_eq!(request(&mut first), 7);
        first.writer.end();
        let mut again = syncd.accept(1);
        assert_eq!(again.socket, first.socket);
        assert_eq!(request(&mut again), 7);
        stop.stop();
    }

    #[test]
    fn a_syncd_of_sonic_that_was_there_all_the_time_may_still_be_at_it() {
        let (syncd, exchange, stop) = begin();
        let mut first = of_sonic(&syncd);
        exchange.requests.send(7).unwrap();
        first.read_exact(&mut [0; 1 << 20]).unwrap();
        drop(first);
        let _again = of_sonic(&syncd);
        assert!(matches!(answer(&exchange), Err(TableError::Interrupted { .. })));
        stop.stop();
    }

    #[test]
    fn server_knows_which_requests_may_be_resent() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = Endpoint::parse(&format!("tcp://{free}"), 0).unwrap();
        let read = |message: &[u8], again| (message[0], again);
        let (rings, stop) = (Rings::default(), Stop::default());
        let taken = serve(&endpoint, "requests", &rings, &stop, read).unwrap();
        let (next, window) = (|| taken.raw().recv_timeout(TEST_TIMEOUT).unwrap().0, WINDOW as u8);
        let connect = |socket| connect(&endpoint, Kind::Req, LIMIT, socket).unwrap();
        let former = connect(1);
        (0..=window).for_each(|n| former.writer.message(&[n]).unwrap());
        (0..window).for_each(|n| assert_eq!(next(), (n, Resent::Elsewhere)));
        assert_eq!(next(), (window, Resent::No));
        // The earlier process has not ended.
        for (socket, before) in [(1, Resent::Here), (2, Resent::Elsewhere)] {
            let again = connect(socket);
            again.writer.message(&[7]).unwrap();
            assert_eq!(next(), (7, before));
        }
        stop.stop();
    }
}
