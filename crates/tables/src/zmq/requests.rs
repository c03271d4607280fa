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
use crate::exchange::{Exchange, Pending, Question, WAITING, WINDOW};
use crossbeam_channel as channel;
use ribtide_runtime::rest;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
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
struct Sent<P> {
    waits: P,
    text: Arc<String>,
    /// How often it was asked before.
    before: u8,
}

/// Sends requests to who answers at `endpoint`, on two threads. `ask` spells a request; `hear` understands the reply to
/// what it left pending, or returns `None` when it is the reply to something else.
///
/// A connection that breaks is made again. What was under way on it is asked again of a syncd that was away in between; one that
/// was there all the time may still be at it, which ends the exchange, as does a request that was lost too often.
///
/// # Errors
/// [`TableError::Endpoint`] when there is no thread for it.
pub fn exchange<Q: Send + 'static, A: Send + 'static, P: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    ask: impl Fn(Q) -> Question<P> + Send + 'static,
    hear: impl Fn(&P, &str) -> Option<A> + Send + Sync + 'static,
) -> Result<Exchange<Q, A>, TableError> {
    let (requests, asked) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (answers, replies) = rings.bounded("syncd to orchagent", WAITING);
    let (to, stop, hear) = (endpoint.clone(), stop.clone(), Arc::new(hear));
    let body = move || {
        let interrupted = || {
            let _ = answers.send(Err(TableError::Interrupted { what: "the connection to syncd".into() }));
        };
        let mut pause = BACK_OFF.0;
        let mut away = false;
        let mut lost = Vec::new();
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
            if !away && !lost.is_empty() {
                return interrupted();
            }
            crate::report(&format!("syncd answers at {to}"));
            (pause, away) = (BACK_OFF.0, false);
            let (again, pending) = (std::mem::take(&mut lost), Pending::default());
            let Some(why) = converse(peer, again, &asked, &answers, &pending, &ask, &hear) else { return };
            crate::report(&format!("syncd no longer answers at {to}: {why}"));
            lost.extend(std::iter::from_fn(|| pending.oldest()).inspect(|_| pending.answered()));
            let too_often = lost.iter().any(|sent: &Sent<P>| sent.before == AGAIN);
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

/// One connection to its end, and why it ended; `None` when nobody asks any more.
fn converse<Q: Send + 'static, A: Send + 'static, P: Send + 'static>(
    peer: Peer,
    lost: Vec<Sent<P>>,
    asked: &ring::Receiver<Q>,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<P>>,
    ask: &impl Fn(Q) -> Question<P>,
    hear: &Arc<impl Fn(&P, &str) -> Option<A> + Send + Sync + 'static>,
) -> Option<String> {
    let Peer { reader, writer, .. } = peer;
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
    let send = |sent: Sent<P>| {
        let text = sent.text.clone();
        // Its answer may come before this returns.
        pending.add(sent);
        writer.message(text.as_bytes())
    };
    let end = |e: &io::Error| {
        writer.end();
        // What is still read counts as answered.
        let _ = is_gone.recv();
        Some(reason(e))
    };
    for sent in lost {
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
                let Question { message, pending: waits } = ask(asked.took(request));
                let text = Arc::new(message.to_zmq());
                let sent = match waits {
                    Some(waits) => send(Sent { waits, text, before: 0 }),
                    None => writer.message(text.as_bytes()),
                };
                if let Err(e) = sent {
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

fn listen<A, P>(
    mut reader: Reader,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<Sent<P>>,
    hear: &impl Fn(&P, &str) -> Option<A>,
) -> String {
    let mut message = Vec::new();
    loop {
        if let Err(e) = reader.message(&mut message) {
            return reason(&e);
        }
        let text = String::from_utf8_lossy(&message);
        let Some(answer) = pending.oldest().and_then(|sent| hear(&sent.waits, &text)) else {
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
pub struct Answer(Writer);

impl Answer {
    /// Answers. Who asked may be gone: then nobody misses it.
    pub fn send(&self, text: &str) {
        let _ = self.0.message(text.as_bytes());
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
    read: impl Fn(&str, bool) -> T + Send + Clone + 'static,
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
    read: &impl Fn(&str, bool) -> T,
) -> io::Result<()> {
    let Peer { mut reader, writer, .. } = peer;
    let mut message = Vec::new();
    for n in 0_u64.. {
        reader.message(&mut message)?;
        let request = read(&String::from_utf8_lossy(&message), n < WINDOW as u64);
        if requests.send((request, Answer(writer.clone()))).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
