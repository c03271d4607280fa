//! Requests to syncd over ZeroMQ: orchagent's end asks (REQ, connects), syncd's end answers (REP, binds).
//!
//! SONiC's own asks one thing at a time. A socket that answers takes the next request when it has answered the last, so
//! several may be under way to any syncd; their answers come in order.
//!
//! What was under way on a connection that breaks is asked again on the next one. A syncd of ours knows that the first
//! requests of a connection may be such, which it, or one before it, has carried out ([`Again`]).

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{BACK_OFF, connect, given_up, reason};
use super::turns::Turns;
use super::zmtp::{Kind, Peer, Reader, Writer, next_socket};
use crate::TableError;
use crate::exchange::{Exchange, Pending, WAITING, WINDOW};
use crossbeam_channel as channel;
use ribtide_runtime::idle;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a request is asked again: not for ever, as it may be what ends syncd.
const AGAIN: u8 = 5;
/// The longest message: SONiC's buffer.
const LIMIT: usize = 128 << 20;

fn no_thread(endpoint: &Endpoint, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: endpoint.to_string(), cause: cause.to_string() }
}

/// A request that is under way.
struct Sent<Q> {
    request: Q,
    /// How often it was asked before.
    before: u8,
}

/// Sends requests to the server at `endpoint`, on two threads. `encode` appends a request's message; its flag says whether
/// syncd is ribtide's. `decode` decodes the reply to a request, or returns `None` for another message.
///
/// A broken connection is made again, and the requests in flight on it are sent again. Two cases end the exchange: SONiC's
/// syncd kept running, so it may still carry a request out; or one request was lost too often.
///
/// # Errors
/// [`TableError::Endpoint`] when there is no thread for it.
pub fn exchange<Q: Send + 'static, A: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    encode: impl Fn(&Q, bool, &mut Vec<u8>) + Send + 'static,
    decode: impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static,
) -> Result<Exchange<Q, A>, TableError> {
    let (requests, asked) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (answers, replies) = rings.bounded("syncd to orchagent", WAITING);
    let (to, stop, decode) = (endpoint.clone(), stop.clone(), Arc::new(decode));
    let body = move || {
        let interrupted = || {
            let _ = answers.send(Err(TableError::Interrupted { what: "the connection to syncd".into() }));
        };
        let socket = next_socket();
        let mut pause = BACK_OFF.0;
        // There was no answer for a moment; which process answered last, where it is one of ours.
        let (mut away, mut who) = (false, None);
        let mut lost = VecDeque::new();
        while !stop.stopped() {
            let peer = match connect(&to, Kind::Req, LIMIT, socket) {
                Ok(peer) => peer,
                Err(e) => {
                    if !std::mem::replace(&mut away, true) {
                        crate::report(&format!("waiting for syncd at {to}: {e}"));
                    }
                    std::thread::sleep(pause);
                    pause = BACK_OFF.1.min(pause * 2);
                    continue;
                }
            };
            if !away && peer.ours.or(who).is_none() && !lost.is_empty() {
                return interrupted();
            }
            crate::report(&format!("syncd answers at {to}"));
            (pause, away, who) = (BACK_OFF.0, false, peer.ours);
            let pending = Pending::default();
            let Some(why) = converse(peer, &mut lost, &asked, &answers, &pending, &encode, &decode) else {
                return;
            };
            crate::report(&format!("syncd no longer answers at {to}: {why}"));
            let mut again: VecDeque<_> =
                std::iter::from_fn(|| pending.oldest()).inspect(|_| pending.answered()).collect();
            // What was not asked again is younger.
            again.append(&mut lost);
            lost = again;
            let too_often = lost.iter().any(|sent: &Sent<Q>| sent.before == AGAIN);
            // What got another answer than its own is under way and not among the lost.
            if too_often || !pending.is_empty() {
                return interrupted();
            }
        }
    };
    thread::spawn("asic-requests", body).map_err(|e| no_thread(endpoint, &e))?;
    Ok(Exchange { requests, replies, _reader: None })
}

/// One connection to its end, and why it ended; `None` when no client asks any more. Asks what was `lost` before all else; what it did
/// not come to stays there.
fn converse<Q: Send + 'static, A: Send + 'static>(
    peer: Peer,
    lost: &mut VecDeque<Sent<Q>>,
    asked: &ring::Receiver<Q>,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    encode: &impl Fn(&Q, bool, &mut Vec<u8>),
    decode: &Arc<impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static>,
) -> Option<String> {
    let Peer { reader, writer, ours, .. } = peer;
    let (gone, is_gone) = channel::bounded::<String>(1);
    let (answers, under_way, decode) = (answers.clone(), pending.clone(), decode.clone());
    let ended = writer.clone();
    let body = move || {
        let why = listen(reader, &answers, &under_way, &*decode);
        ended.end();
        let _ = gone.send(why);
    };
    if let Err(e) = thread::spawn("asic-responses", body) {
        return Some(e.to_string());
    }
    let mut message = Vec::new();
    let mut send = |sent: Sent<Q>| {
        message.clear();
        encode(&sent.request, ours.is_some(), &mut message);
        // Its answer may come before this returns.
        pending.add(sent);
        writer.message(&message)
    };
    // What is still read counts as answered.
    let end = |e: &io::Error| Some(given_up(e, &writer, &is_gone));
    while let Some(sent) = lost.pop_front() {
        if let Err(e) = send(Sent { before: sent.before + 1, ..sent }) {
            return end(&e);
        }
    }
    loop {
        channel::select! {
            recv(asked.raw()) -> request => {
                idle::on_wait(false);
                let Ok(request) = request else {
                    writer.end();
                    return None;
                };
                if let Err(e) = send(Sent { request: asked.took(request), before: 0 }) {
                    return end(&e);
                }
            }
            recv(is_gone) -> why => return Some(why.unwrap_or_default()),
            default(idle::IDLE_TIMEOUT) => {
                idle::on_wait(true);
            }
        }
    }
}

fn listen<Q, A>(
    mut reader: Reader,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    decode: &impl Fn(&Q, &[u8]) -> Option<A>,
) -> String {
    let mut message = Vec::new();
    loop {
        if let Err(e) = reader.message(&mut message) {
            return reason(&e);
        }
        let Some(answer) = pending.oldest().and_then(|sent| decode(&sent.request, &message)) else {
            return "it answered something else than what was asked".into();
        };
        pending.answered();
        if answers.send(Ok(answer)).is_err() {
            return "no server listens".into();
        }
    }
}

/// The way back to who asked.
#[derive(Clone, Debug)]
pub struct Answer {
    writer: Writer,
    /// Who asked is one of ours.
    pub ours: bool,
}

impl Answer {
    /// Answers. Who asked may be gone: then the answer is dropped.
    pub fn send(&self, message: &[u8]) {
        let _ = self.writer.message(message);
    }
}

/// Whether a request may have been asked before, and carried out: as many of a connection's first ones as may be under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// It is new.
    No,
    /// It may have been asked of an earlier syncd.
    Elsewhere,
    /// It may have been asked here, over a connection that broke.
    Here,
}

/// Binds to `endpoint` and takes requests from whoever connects, each read by `read` on its connection's thread.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
pub fn serve<T: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(&[u8], Again) -> T + Send + Clone + 'static,
) -> Result<ring::Receiver<(T, Answer)>, TableError> {
    let (requests, taken) = rings.bounded("orchagent to syncd", WAITING);
    let service = Service {
        kind: Kind::Rep,
        limit: LIMIT,
        what: "requests",
        listens: "asic-listen",
        serves: "asic-requests",
    };
    let turns = Turns::default();
    let last = Arc::new(Mutex::new(None));
    let body = move |peer: Peer| {
        let _turn = turns.wait(&peer);
        let who = peer.ours.map(|process| (process, peer.socket));
        let before = std::mem::replace(&mut *last.lock().unwrap_or_else(PoisonError::into_inner), who);
        let again = if who.is_some() && who == before { Again::Here } else { Again::Elsewhere };
        take(peer, again, &requests, &read)
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| no_thread(endpoint, &e))?;
    Ok(taken)
}

fn take<T>(
    peer: Peer,
    again: Again,
    requests: &ring::Sender<(T, Answer)>,
    read: &impl Fn(&[u8], Again) -> T,
) -> io::Result<()> {
    let Peer { mut reader, writer, ours, .. } = peer;
    let answer = Answer { writer, ours: ours.is_some() };
    let mut message = Vec::new();
    for n in 0_u64.. {
        reader.message(&mut message)?;
        let request = read(&message, if n < WINDOW as u64 { again } else { Again::No });
        if requests.send((request, answer.clone())).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::zmtp::{Process, introduce_as};
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// An end that answers, as one process after the other.
    struct Syncd(TcpListener);

    impl Syncd {
        fn accept(&self, process: u64) -> Peer {
            let (stream, _) = self.0.accept().unwrap();
            introduce_as(stream, Kind::Rep, LIMIT, (Process::numbered(process), 0)).unwrap()
        }
    }

    fn request(peer: &mut Peer) -> u8 {
        let mut message = Vec::new();
        peer.reader.message(&mut message).unwrap();
        message[0]
    }

    /// One of SONiC's: it introduces itself, and that is all.
    fn of_sonic(syncd: &Syncd) -> TcpStream {
        let (mut stream, _) = syncd.0.accept().unwrap();
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        stream.write_all(&greeting).unwrap();
        stream.write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REP").unwrap();
        stream
    }

    /// Requests are numbers, in messages of a megabyte; so are their answers.
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
    fn a_syncd_that_is_another_process_is_asked_again() {
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
        // It listened all the time, and goes away before it read anything, too.
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
    fn a_syncd_of_ours_that_was_there_all_the_time_is_asked_again() {
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
    fn who_answers_knows_what_may_have_been_asked_before() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = Endpoint::parse(&format!("tcp://{free}"), 0).unwrap();
        let read = |message: &[u8], again| (message[0], again);
        let (rings, stop) = (Rings::default(), Stop::default());
        let taken = serve(&endpoint, &rings, &stop, read).unwrap();
        let (next, window) = (|| taken.raw().recv_timeout(TEST_TIMEOUT).unwrap().0, WINDOW as u8);
        let connect = |socket| connect(&endpoint, Kind::Req, LIMIT, socket).unwrap();
        let former = connect(1);
        (0..=window).for_each(|n| former.writer.message(&[n]).unwrap());
        (0..window).for_each(|n| assert_eq!(next(), (n, Again::Elsewhere)));
        assert_eq!(next(), (window, Again::No));
        // The former one was not ended.
        for (socket, before) in [(1, Again::Here), (2, Again::Elsewhere)] {
            let again = connect(socket);
            again.writer.message(&[7]).unwrap();
            assert_eq!(next(), (7, before));
        }
        stop.stop();
    }
}
