//! The FPM server: one client at a time over TCP, complete frames to the daemon, replies back.
//!
//! A session has two threads. One reads, so that a daemon that waits for its database delays the
//! client through TCP only. The other writes replies. So a client that does not read them blocks
//! the daemon only when the reply queue is full, and then loses its session after a timeout. A
//! client with a dead host loses its session, too, because it could not reconnect otherwise.

use super::Error;
use super::events::log;
use ribtide_runtime::idle;
use ribtide_runtime::liveness::{self, Watched};
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::watchdog::PeerWait;
use ribtide_wire::fpm;
use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Batches of frames in the queue of the daemon at most.
const BATCHES: usize = 16;
/// Reply buffers in the queue of the client at most.
const REPLIES: usize = 256;
/// The maximum size of a read; zebra sends pieces of 64 KiB.
const READ: usize = 256 << 10;
/// How long a client may leave replies unread.
const STALL: Duration = Duration::from_secs(60);

/// An event of the server.
#[derive(Debug)]
pub(super) enum FpmEvent {
    /// A client connected, and a replay of its routes follows. Replies go into this queue.
    Connected(SocketAddr, ring::Sender<Vec<u8>>),
    /// Complete frames, one after the other.
    Frames(Vec<u8>),
    /// The client is gone.
    Disconnected,
}

/// Listens on `address` and serves one client after the other, until `stop`.
///
/// # Errors
/// The address cannot be bound.
pub(super) fn start(
    daemon: &'static str,
    address: SocketAddr,
    rings: &Rings,
    stop: &Stop,
) -> Result<(SocketAddr, ring::Receiver<FpmEvent>), Error> {
    let listening = |e: io::Error| {
        let cure = "stop what listens there, or choose another --listen";
        Error::listen(&e, format!("cannot listen for FPM on {address}: {e}; {cure}"))
    };
    let listener = TcpListener::bind(address).map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    let (events, received) = rings.bounded("FPM frames to fpmsyncd", BATCHES);
    let (rings, stop) = (rings.clone(), stop.clone());
    let body = move || -> Result<Infallible, Closed> {
        loop {
            stop.running()?;
            match listener.accept() {
                Ok((stream, peer)) => serve(daemon, stream, peer, &events, &rings)?,
                Err(e) => {
                    log!(daemon, error, error = %e, "a connection could not be accepted");
                    // Probably no descriptor is free; an immediate retry would spin.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    };
    thread::spawn("fpm-read", body).map_err(Error::no_thread("for FPM"))?;
    Ok((address, received))
}

/// Serves a session to its end. The error means that the daemon has stopped.
fn serve(
    daemon: &'static str,
    stream: TcpStream,
    peer: SocketAddr,
    events: &ring::Sender<FpmEvent>,
    rings: &Rings,
) -> Result<(), ring::Closed> {
    let replies = match writer(daemon, &stream, rings) {
        Ok(replies) => replies,
        Err(e) => {
            log!(daemon, error, client = %peer, error = %e, "the FPM session cannot be set up");
            return Ok(());
        }
    };
    events.send(FpmEvent::Connected(peer, replies))?;
    let why = loop_frames(&stream, events)?;
    log!(daemon, warn, client = %peer, reason = why, "the FPM session ended");
    let _ = stream.shutdown(std::net::Shutdown::Both);
    events.send(FpmEvent::Disconnected)
}

fn loop_frames(stream: &TcpStream, events: &ring::Sender<FpmEvent>) -> Result<String, ring::Closed> {
    let mut read = idle::long_lived_buffer(READ);
    let mut held = 0;
    if let Err(e) = stream.set_read_timeout(Some(idle::IDLE_TIMEOUT)) {
        return Ok(e.to_string());
    }
    let mut patient = idle::IdleReader::new(Watched(stream));
    loop {
        match patient.read(&mut read[held..]) {
            Ok(0) => return Ok("the client closed it".into()),
            Ok(n) => held += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Ok(e.to_string()),
        }
        let mut whole = 0;
        let broken = loop {
            match fpm::frame(&read[whole..held]) {
                Ok(Some(frame)) => whole += frame.len,
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        if whole > 0 {
            events.send(FpmEvent::Frames(read[..whole].to_vec()))?;
            read.copy_within(whole..held, 0);
            held -= whole;
        }
        if let Some(e) = broken {
            return Ok(e.to_string());
        }
    }
}

/// The writer thread; it ends with its queue, or when the client does not read.
fn writer(daemon: &'static str, stream: &TcpStream, rings: &Rings) -> io::Result<ring::Sender<Vec<u8>>> {
    let mut stream = stream.try_clone()?;
    stream.set_write_timeout(Some(STALL))?;
    stream.set_nodelay(true)?;
    liveness::probe(&stream)?;
    let (replies, waiting) = rings.bounded::<Vec<u8>>("fpmsyncd replies", REPLIES);
    let client = stream.peer_addr().map_or_else(|e| e.to_string(), |address| address.to_string());
    let peer = PeerWait::new(format!("FPM client {client}"));
    let body = move || -> Result<Infallible, Ended> {
        loop {
            let bytes = waiting.recv()?;
            peer.begin();
            let written = stream.write_all(&bytes);
            peer.end();
            if let Err(e) = written {
                if e.kind() == io::ErrorKind::WouldBlock {
                    let span = STALL.as_secs();
                    log!(daemon, warn, "the FPM client read no replies for {span} s, so its session ends");
                }
                // This ends the reader, too.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return Err(Ended::done());
            }
        }
    };
    thread::spawn("fpm-write", body)?;
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(events: &ring::Receiver<FpmEvent>) -> FpmEvent {
        events.recv_timeout(Duration::from_secs(10)).unwrap().expect("an event")
    }

    #[test]
    fn frames_arrive_whole_replies_leave_and_nonsense_ends_the_session_only() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (address, events) = start("test", any, &Rings::default(), &Stop::default()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let FpmEvent::Connected(_, replies) = next(&events) else { panic!() };
        let mut bytes = Vec::new();
        for i in 0..3 {
            fpm::write_delete(&mut bytes, "10.0.0.0/24".parse().unwrap(), i, 186);
        }
        let half = bytes.len() - 10;
        client.write_all(&bytes[..half]).unwrap();
        let mut got = Vec::new();
        let take = |got: &mut Vec<u8>, to: usize| {
            while got.len() < to {
                let FpmEvent::Frames(frames) = next(&events) else { panic!() };
                got.extend(frames);
            }
        };
        let each = bytes.len() / 3;
        take(&mut got, 2 * each);
        assert_eq!(got.len(), 2 * each);
        client.write_all(&bytes[half..]).unwrap();
        take(&mut got, bytes.len());
        assert_eq!(got, bytes);

        replies.send(b"reply".to_vec()).unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"reply");

        client.write_all(b"\x01\x01\x00\x03").unwrap();
        assert!(matches!(next(&events), FpmEvent::Disconnected));
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
        let _again = TcpStream::connect(address).unwrap();
        assert!(matches!(next(&events), FpmEvent::Connected(..)));
    }

    #[test]
    fn a_port_that_is_taken_is_one_sentence() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let message = start("test", address, &Rings::default(), &Stop::default()).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("cannot listen for FPM on {address}: Address already in use")),
            "{message}"
        );
    }
}
