//! Detects that the host at the other end of a TCP connection is gone.
//!
//! A host without power, or behind a cut line, sends nothing. TCP detects that after two hours on
//! an idle connection, and after a quarter of an hour with data in flight. Here it takes
//! [`SILENCE_TIMEOUT`]: by keepalive on an idle connection ([`probe`]), and by TCP's
//! retransmissions otherwise ([`Watched`]).
//!
//! TCP_USER_TIMEOUT, tcp(7), is the usual option. But it also ends a connection whose host
//! acknowledges and whose process does not read. An FPM server with a stalled chip does that, and a
//! new connection would cost it a whole table.

use std::borrow::Borrow;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// A host that acknowledges nothing for this time, although it was probed, is gone. With a window
/// of zero for minutes, TCP probes only every two minutes, and detection takes two probes.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// A timeout of [`Watched`] at most: detection takes so much longer, and costs a wake-up.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Keepalive: idle time, interval and probes. Together they are [`SILENCE_TIMEOUT`].
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 4;

/// Makes TCP end an idle connection whose host does not acknowledge for [`SILENCE_TIMEOUT`].
///
/// # Errors
/// The system's.
pub fn probe(stream: &TcpStream) -> io::Result<()> {
    let keepalive = socket2::TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(PROBES);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// A connection with timeouts. When one expires and the other host is gone, the call fails with
/// [`ErrorKind::HostUnreachable`]. The connection is then shut down, so other threads that wait at
/// it fail too.
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

impl<S: Borrow<TcpStream>> AsFd for Watched<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.borrow().as_fd()
    }
}

impl<S: Borrow<TcpStream>> Watched<S> {
    /// Fails as a read would, if the other host is gone: for a thread that waits elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::HostUnreachable`], or the system's.
    pub fn check(&self) -> io::Result<()> {
        let stream = self.0.borrow();
        if is_gone(&state(stream)?) { Err(give_up(stream)?) } else { Ok(()) }
    }
}

/// The result, or the error of a host that is gone.
fn unless_gone(stream: &TcpStream, done: io::Result<usize>) -> io::Result<usize> {
    if !done.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock) || !is_gone(&state(stream)?) {
        return done;
    }
    Err(give_up(stream)?)
}

/// Shuts the connection down, and returns the error that says so.
fn give_up(stream: &TcpStream) -> io::Result<io::Error> {
    // Data in flight would arrive after the data of the next connection, if the host comes back. So
    // it is dropped with the socket.
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    let _ = stream.shutdown(Shutdown::Both);
    let message = format!(
        "the other host acknowledged nothing for {} s, so it counts as gone",
        SILENCE_TIMEOUT.as_secs()
    );
    Ok(io::Error::new(ErrorKind::HostUnreachable, message))
}

/// Whether nothing was acknowledged for long although TCP retransmitted, or, with a window of zero,
/// sent more than one probe (one may be lost).
fn is_gone(state: &libc::tcp_info) -> bool {
    Duration::from_millis(state.tcpi_last_ack_recv.into()) >= SILENCE_TIMEOUT
        && (state.tcpi_retransmits > 0 || state.tcpi_probes > 1)
}

/// What the kernel says of a connection (TCP_INFO).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpState {
    /// Bytes of a sent segment at most.
    pub send_mss: u32,
    /// Bytes of received segments, estimated.
    pub receive_mss: u32,
    /// Smoothed round-trip time and its variation.
    pub rtt: [Duration; 2],
    /// The least round-trip time of the last minutes.
    pub least_rtt: Duration,
    /// Segments that may be in flight.
    pub congestion_window: u32,
    /// Segments in flight.
    pub unacknowledged: u32,
    /// Segments that were sent again.
    pub retransmitted: u32,
}

/// The state of a connection.
///
/// # Errors
/// The system's.
pub fn tcp_state(stream: &TcpStream) -> io::Result<TcpState> {
    let state = state(stream)?;
    let time = |microseconds: u32| Duration::from_micros(microseconds.into());
    Ok(TcpState {
        send_mss: state.tcpi_snd_mss,
        receive_mss: state.tcpi_rcv_mss,
        rtt: [time(state.tcpi_rtt), time(state.tcpi_rttvar)],
        least_rtt: time(state.tcpi_min_rtt),
        congestion_window: state.tcpi_snd_cwnd,
        unacknowledged: state.tcpi_unacked,
        retransmitted: state.tcpi_total_retrans,
    })
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
    fn tcp_state_has_the_segment_size_and_round_trip_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        stream.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        let state = tcp_state(&stream).unwrap();
        assert!(state.send_mss >= 536 && state.congestion_window > 0, "{state:?}");
        assert!(!state.rtt[0].is_zero() && state.retransmitted == 0, "{state:?}");
    }

    #[test]
    fn a_host_is_gone_that_acknowledges_nothing_of_what_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        probe(&stream).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let _server = listener.accept().unwrap();
        // A server that does not read until its window is zero: its host acknowledges all the same.
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
        assert!(after(SILENCE_TIMEOUT, 1, 0) && after(SILENCE_TIMEOUT, 0, 2));
        assert!(!after(SILENCE_TIMEOUT / 2, 7, 7), "it takes its time");
        assert!(!after(SILENCE_TIMEOUT * 9, 0, 1), "nothing but one probe is under way");
    }
}
