//! Whether the host at the other end of a TCP connection is still there.
//!
//! A host without power, or behind a cut line, says nothing. TCP notices that after two hours where nothing is under way, and
//! after a quarter of an hour where something is. Here it is [`SILENCE`]: probes where nothing is under way ([`probe`]), and
//! a look at what TCP itself has sent again in vain otherwise ([`Watched`]).
//!
//! TCP_USER_TIMEOUT, tcp(7), would be the usual option, but it also ends a connection to a host that answers and a process that has
//! not read for so long. An FPM server whose chip stands still is just that, and a new connection would cost it a whole table.

use std::borrow::Borrow;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A host that acknowledged nothing for so long, although it was asked to, is gone. Where it had left no room for data for
/// minutes, TCP asks only every two minutes, and it takes two of those.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Keepalive: after so long without a word, so often, so many in vain. Together that is [`SILENCE`].
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 4;

/// Has TCP end the connection when nothing is under way and the other host does not answer for [`SILENCE`].
///
/// # Errors
/// The system's.
pub fn probe(stream: &TcpStream) -> io::Result<()> {
    let keepalive = socket2::TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// A connection with timeouts. When one of them ends, and the other host is gone, it fails with [`ErrorKind::HostUnreachable`], and
/// is of no use to anybody any more: also who waits at it elsewhere is told.
#[derive(Debug)]
pub struct Watched<S>(pub S);

impl<S: Borrow<TcpStream>> Read for Watched<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.0.borrow();
        unless_gone(stream, stream.read(buffer))
    }
}

impl<S: Borrow<TcpStream>> Write for Watched<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.0.borrow();
        unless_gone(stream, stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was done, or why the connection ends here.
fn unless_gone(stream: &TcpStream, done: io::Result<usize>) -> io::Result<usize> {
    if !done.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock) || !is_gone(&state(stream)?) {
        return done;
    }
    // What was under way would come after all that is said on the next connection, if the host is back by then. So it is dropped
    // with the socket.
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    let _ = stream.shutdown(Shutdown::Both);
    let says =
        format!("the other host acknowledged nothing for {} s, so it counts as gone", SILENCE.as_secs());
    Err(io::Error::new(ErrorKind::HostUnreachable, says))
}

/// Nothing was acknowledged for long, and it is not that nothing was asked: what was under way was sent again; or, where the
/// other side has no room, more than one probe in a row has no answer (one may be lost).
fn is_gone(state: &libc::tcp_info) -> bool {
    Duration::from_millis(state.tcpi_last_ack_recv.into()) >= SILENCE
        && (state.tcpi_retransmits > 0 || state.tcpi_probes > 1)
}

/// TCP_INFO, tcp(7).
#[expect(unsafe_code, reason = "neither std nor socket2 has this option")]
fn state(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    // SAFETY: all-zero is a valid tcp_info: it has numbers only.
    let mut state: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is borrowed; the kernel writes at most `len` bytes, which is the size
    // of `state`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(state) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn a_host_is_gone_that_acknowledges_nothing_of_what_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        probe(&stream).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let _server = listener.accept().unwrap();
        // A server that does not read, until there is no room: its host answers all the same.
        while stream.write(&[0; 65536]).is_ok() {}
        while state(&stream).unwrap().tcpi_last_ack_recv < 1000 {
            let read = Watched(&stream).read(&mut [0; 1]).unwrap_err();
            assert_eq!(read.kind(), ErrorKind::WouldBlock);
        }
        let now = state(&stream).unwrap();
        assert!(now.tcpi_probes <= 1 && now.tcpi_retransmits == 0, "{now:?}");
        let after = |last_ack: Duration, retransmits, probes| {
            is_gone(&libc::tcp_info {
                tcpi_last_ack_recv: last_ack.as_millis() as u32,
                tcpi_retransmits: retransmits,
                tcpi_probes: probes,
                ..now
            })
        };
        assert!(after(SILENCE, 1, 0) && after(SILENCE, 0, 2));
        assert!(!after(SILENCE / 2, 7, 7), "it takes its time");
        assert!(!after(SILENCE * 9, 0, 1), "nothing but one probe is under way");
    }
}
