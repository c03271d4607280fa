//! Requests to syncd over ZeroMQ: orchagent's end asks (REQ, connects), syncd's end answers (REP, binds).
//!
//! SONiC's own asks one thing at a time. A socket that answers takes the next request when it has answered the last, so
//! several may be under way to any syncd; their answers come in order.
//!
//! What was under way on a connection that breaks is asked again on the next one. A syncd of ours knows that the first
//! requests of a connection may be such, which it, or one before it, has carried out.

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{BACK_OFF, reason};
use super::zmtp::{Kind, Peer, Reader, Writer, introduce};
use crate::TableError;
use crate::exchange::{Exchange, Pending, WAITING, WINDOW};
use crossbeam_channel as channel;
use ribtide_runtime::rest;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

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

/// Sends requests to who answers at `endpoint`, on two threads. `spell` appends a request's message, to a syncd that is ours or
/// another; `hear` understands the reply to a request, or returns `None` when it is the reply to something else.
///
/// A connection that breaks is made again. What was under way on it is asked again of a syncd that is another process, or was away
/// in between; one that was there all the time may still be at it, which ends the exchange, as does a request that was lost too
/// often.
///
/// # Errors
/// [`TableError::Endpoint`] when there is no thread for it.
pub fn exchange<Q: Send + 'static, A: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    spell: impl Fn(&Q, bool, &mut Vec<u8>) + Send + 'static,
    hear: impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static,
) -> Result<Exchange<Q, A>, TableError> {
    let (requests, asked) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (answers, replies) = rings.bounded("syncd to orchagent", WAITING);
    let (to, stop, hear) = (endpoint.clone(), stop.clone(), Arc::new(hear));
    let body = move || {
        let interrupted = || {
            let _ = answers.send(Err(TableError::Interrupted { what: "the connection to syncd".into() }));
        };
        let mut pause = BACK_OFF.0;
        // Nobody answered for a moment; which process answered last, where it is one of ours.
        let (mut away, mut who) = (false, None);
        let mut lost = VecDeque::new();
        while !stop.stopped() {
            let peer = match connect(&to) {
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
            if !away && peer.ours == who && !lost.is_empty() {
                return interrupted();
            }
            crate::report(&format!("syncd answers at {to}"));
            (pause, away, who) = (BACK_OFF.0, false, peer.ours);
            let pending = Pending::default();
            let Some(why) = converse(peer, &mut lost, &asked, &answers, &pending, &spell, &hear) else {
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

fn connect(endpoint: &Endpoint) -> io::Result<Peer> {
    let mut failed = io::Error::other("its name has no address");
    for address in endpoint.resolve()? {
        let connected = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        match connected.and_then(|stream| introduce(stream, Kind::Req, LIMIT)) {
            Ok(peer) => return Ok(peer),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// One connection to its end, and why it ended; `None` when nobody asks any more. Asks what was `lost` before all else; what it did
/// not come to stays there.
fn converse<Q: Send + 'static, A: Send + 'static>(
    peer: Peer,
    lost: &mut VecDeque<Sent<Q>>,
    asked: &ring::Receiver<Q>,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    spell: &impl Fn(&Q, bool, &mut Vec<u8>),
    hear: &Arc<impl Fn(&Q, &[u8]) -> Option<A> + Send + Sync + 'static>,
) -> Option<String> {
    let Peer { reader, writer, ours } = peer;
    let (gone, is_gone) = channel::bounded::<String>(1);
    let (answers, under_way, hear) = (answers.clone(), pending.clone(), hear.clone());
    let ended = writer.clone();
    let body = move || {
        let why = listen(reader, &answers, &under_way, &*hear);
        ended.end();
        let _ = gone.send(why);
    };
    if let Err(e) = thread::spawn("asic-responses", body) {
        return Some(e.to_string());
    }
    let mut message = Vec::new();
    let mut send = |sent: Sent<Q>| {
        message.clear();
        spell(&sent.request, ours.is_some(), &mut message);
        // Its answer may come before this returns.
        pending.add(sent);
        writer.message(&message)
    };
    let end = |e: &io::Error| {
        writer.end();
        // What is still read counts as answered.
        let _ = is_gone.recv();
        Some(reason(e))
    };
    while let Some(sent) = lost.pop_front() {
        if let Err(e) = send(Sent { before: sent.before + 1, ..sent }) {
            return end(&e);
        }
    }
    loop {
        channel::select! {
            recv(asked.raw()) -> request => {
                rest::waited(false);
                let Ok(request) = request else {
                    writer.end();
                    return None;
                };
                if let Err(e) = send(Sent { request: asked.took(request), before: 0 }) {
                    return end(&e);
                }
            }
            recv(is_gone) -> why => return Some(why.unwrap_or_default()),
            default(rest::SPAN) => {
                rest::waited(true);
            }
        }
    }
}

fn listen<Q, A>(
    mut reader: Reader,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<Q>>,
    hear: &impl Fn(&Q, &[u8]) -> Option<A>,
) -> String {
    let mut message = Vec::new();
    loop {
        if let Err(e) = reader.message(&mut message) {
            return reason(&e);
        }
        let Some(answer) = pending.oldest().and_then(|sent| hear(&sent.request, &message)) else {
            return "it answered something else than what was asked".into();
        };
        pending.answered();
        if answers.send(Ok(answer)).is_err() {
            return "nobody listens".into();
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
    /// Answers. Who asked may be gone: then nobody misses it.
    pub fn send(&self, message: &[u8]) {
        let _ = self.writer.message(message);
    }
}

/// Binds to `endpoint` and takes requests from whoever connects, each read by `read` on its connection's thread. `read` is told
/// of as many of a connection's first requests as may be under way that they may have been asked before, and carried out.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
pub fn serve<T: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(&[u8], bool) -> T + Send + Clone + 'static,
) -> Result<ring::Receiver<(T, Answer)>, TableError> {
    let (requests, taken) = rings.bounded("orchagent to syncd", WAITING);
    let service = Service {
        kind: Kind::Rep,
        limit: LIMIT,
        what: "requests",
        listens: "asic-listen",
        serves: "asic-requests",
    };
    let body = move |peer: Peer| take(peer, &requests, &read);
    bind(endpoint, service, stop, body).map_err(|e| no_thread(endpoint, &e))?;
    Ok(taken)
}

fn take<T>(
    peer: Peer,
    requests: &ring::Sender<(T, Answer)>,
    read: &impl Fn(&[u8], bool) -> T,
) -> io::Result<()> {
    let Peer { mut reader, writer, ours } = peer;
    let answer = Answer { writer, ours: ours.is_some() };
    let mut message = Vec::new();
    for n in 0_u64.. {
        reader.message(&mut message)?;
        let request = read(&message, n < WINDOW as u64);
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
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// An end that answers, as one process after the other.
    struct Syncd(TcpListener);

    impl Syncd {
        fn accept(&self, process: u64) -> Peer {
            let (stream, _) = self.0.accept().unwrap();
            introduce_as(stream, Kind::Rep, LIMIT, Process::numbered(process)).unwrap()
        }
    }

    fn request(peer: &mut Peer) -> u8 {
        let mut message = Vec::new();
        peer.reader.message(&mut message).unwrap();
        message[0]
    }

    /// Requests are numbers, in messages of a megabyte; so are their answers.
    fn begin() -> (Syncd, Exchange<u8, u8>, Stop) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let stop = Stop::default();
        let spell = |n: &u8, ours: bool, message: &mut Vec<u8>| {
            assert!(ours);
            message.resize(1 << 20, *n);
        };
        let hear = |n: &u8, message: &[u8]| (message == [*n]).then_some(*n);
        let endpoint = Endpoint::parse(&endpoint, 0).unwrap();
        let exchange = exchange(&endpoint, &Rings::default(), &stop, spell, hear).unwrap();
        (Syncd(listener), exchange, stop)
    }

    fn answer(exchange: &Exchange<u8, u8>) -> Result<u8, TableError> {
        exchange.replies.raw().recv_timeout(PATIENCE).unwrap()
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
    fn a_syncd_that_was_there_all_the_time_may_still_be_at_it() {
        let (syncd, exchange, stop) = begin();
        let mut first = syncd.accept(1);
        exchange.requests.send(7).unwrap();
        assert_eq!(request(&mut first), 7);
        first.writer.end();
        let _again = syncd.accept(1);
        assert!(matches!(answer(&exchange), Err(TableError::Interrupted { .. })));
        stop.stop();
    }
}
