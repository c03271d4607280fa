//! Socket options of a neighbour without cost. The neighbours of a real router have processors of
//! their own, and routes are delivered when they reach their host. So the kernel notes arrival
//! times, and bytes are read later, when the router is idle.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use nix::{libc, setsockopt_impl, sockopt_impl};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

sockopt_impl!(
    /// SO_RCVLOWAT: bytes at which a socket is readable.
    ReceiveLowWater,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32
);

/// Bytes that wait in the sockets of all receivers, at most.
const ALL: usize = 256 << 20;
/// The same for one: its window is twice as large, half of the maximum of Linux 6.16 and later.
const ONE: usize = 8 << 20;

/// Bytes that each of so many receivers may store in its socket.
pub(super) fn gathered(receivers: usize) -> usize {
    (ALL / receivers.max(1)).min(ONE)
}

/// Makes the kernel note arrival times, from a moment after the first call on. Earlier bytes count
/// as arriving when they are read.
pub(super) fn stamp(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

/// Makes a socket readable at so many bytes, or with a closed window. Its buffer is twice as large,
/// as far as `tcp_rmem` permits: the window of a neighbour that reads at once.
pub(super) fn gather(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    // The buffer follows the low-water mark, but never shrinks.
    setsockopt(socket, ReceiveLowWater, &(2 * bytes))?;
    Ok(setsockopt(socket, ReceiveLowWater, &bytes)?)
}

/// Reads once: the number of bytes, and the arrival time of the last one.
pub(super) fn receive(socket: &impl AsRawFd, room: &mut [u8]) -> io::Result<(usize, Instant)> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut room = [IoSliceMut::new(room)];
    let got = recvmsg::<()>(socket.as_raw_fd(), &mut room, Some(&mut control), MsgFlags::empty())?;
    let stamp = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
        _ => None,
    });
    let (now, clock) = (Instant::now(), Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?));
    let ago = stamp.map_or(Duration::ZERO, |stamp| clock.saturating_sub(stamp));
    Ok((got.bytes, now.checked_sub(ago).unwrap_or(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn waiting_bytes_keep_their_arrival_times() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        stamp(&theirs).unwrap();
        theirs.set_nonblocking(true).unwrap();
        gather(&theirs, 1 << 20).unwrap();
        let poll = mio::Poll::new().unwrap();
        let (fd, token) = (theirs.as_raw_fd(), mio::Token(0));
        poll.registry().register(&mut mio::unix::SourceFd(&fd), token, mio::Interest::READABLE).unwrap();
        let (mut poll, mut events) = (poll, mio::Events::with_capacity(4));
        let mut is_readable = |wait| {
            poll.poll(&mut events, Some(Duration::from_millis(wait))).unwrap();
            events.iter().any(|event| event.is_readable())
        };
        // The system begins to note times a moment after the first socket has asked for it.
        let noted = (0..50).any(|_| {
            let begin = Instant::now();
            ours.write_all(&[1; 1000]).unwrap();
            let sent = Instant::now();
            assert!(!is_readable(100));
            let (n, came) = receive(&theirs, &mut [0; 2000]).unwrap();
            assert_eq!(n, 1000);
            // The two clocks may differ by a little of what is waited for here.
            let slack = Duration::from_millis(20);
            assert!(came + slack >= begin);
            came <= sent + slack
        });
        assert!(noted, "bytes came when they were read, and not before");
        // The mark is reached, before the window closes.
        ours.set_nonblocking(true).unwrap();
        let mut left = 3 << 20;
        while left > 0 && !is_readable(0) {
            left -= ours.write(&[2; 1 << 16]).unwrap_or_default().min(left);
        }
        let mut got = 0;
        while let Ok((n @ 1.., _)) = receive(&theirs, &mut vec![0; 1 << 20]) {
            got += n;
        }
        assert!(got >= 1 << 20, "readable at {got} bytes");
    }
}
