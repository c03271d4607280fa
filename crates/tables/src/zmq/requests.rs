//! Requests to syncd over ZeroMQ: orchagent's end asks (REQ, connects), syncd's end answers (REP, binds).
//!
//! SONiC's own asks one thing at a time. A socket that answers takes the next request when it has answered the last, so
//! several may be under way to any syncd; their answers come in order.

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{BACK_OFF, reason};
use super::zmtp::{Kind, Peer, Reader, Writer, introduce};
use crate::TableError;
use crate::exchange::{Exchange, Pending, Question, WAITING};
use crossbeam_channel as channel;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The longest message: SONiC's buffer.
const LIMIT: usize = 128 << 20;

fn no_thread(endpoint: &Endpoint, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: endpoint.to_string(), cause: cause.to_string() }
}

/// Sends requests to who answers at `endpoint`, on two threads. `ask` spells a request; `hear` understands the reply to
/// what it left pending, or returns `None` when it is the reply to something else.
///
/// A connection that breaks is made again; when something was under way on it, that ends the exchange.
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
        let mut pause = BACK_OFF.0;
        let mut said = false;
        while !stop.stopped() {
            let peer = match connect(&to) {
                Ok(peer) => peer,
                Err(e) => {
                    if !std::mem::replace(&mut said, true) {
                        crate::report(&format!("waiting for syncd at {to}: {e}"));
                    }
                    std::thread::sleep(pause);
                    pause = BACK_OFF.1.min(pause * 2);
                    continue;
                }
            };
            crate::report(&format!("syncd answers at {to}"));
            (pause, said) = (BACK_OFF.0, false);
            let pending = Pending::default();
            match converse(peer, &asked, &answers, &pending, &ask, &hear) {
                None => return,
                Some(why) => crate::report(&format!("syncd no longer answers at {to}: {why}")),
            }
            if !pending.is_empty() {
                let _ = answers.send(Err(TableError::Interrupted { what: "syncd".into() }));
                return;
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
    asked: &ring::Receiver<Q>,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<P>,
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
    loop {
        channel::select! {
            recv(asked.raw()) -> request => {
                let Ok(request) = request else {
                    writer.end();
                    return None;
                };
                let Question { message, pending: waits } = ask(asked.took(request));
                waits.into_iter().for_each(|waits| pending.add(waits));
                if let Err(e) = writer.message(message.to_zmq().as_bytes()) {
                    writer.end();
                    return Some(reason(&e));
                }
            }
            recv(is_gone) -> why => return Some(why.unwrap_or_default()),
        }
    }
}

fn listen<A, P>(
    mut reader: Reader,
    answers: &ring::Sender<Result<A, TableError>>,
    pending: &Pending<P>,
    hear: &impl Fn(&P, &str) -> Option<A>,
) -> String {
    let mut message = Vec::new();
    loop {
        if let Err(e) = reader.message(&mut message) {
            return reason(&e);
        }
        let text = String::from_utf8_lossy(&message);
        let Some(answer) = pending.oldest().and_then(|oldest| hear(&oldest, &text)) else {
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

/// Binds to `endpoint` and takes requests from whoever connects, each read by `read` on its connection's thread.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
pub fn serve<T: Send + 'static>(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(&str) -> T + Send + Clone + 'static,
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

fn take<T>(peer: Peer, requests: &ring::Sender<(T, Answer)>, read: &impl Fn(&str) -> T) -> io::Result<()> {
    let Peer { mut reader, writer, .. } = peer;
    let mut message = Vec::new();
    loop {
        reader.message(&mut message)?;
        let request = read(&String::from_utf8_lossy(&message));
        if requests.send((request, Answer(writer.clone()))).is_err() {
            return Ok(());
        }
    }
}
