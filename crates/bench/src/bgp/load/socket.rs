//! What a neighbour that costs nothing asks of its sockets. The neighbours of a real router have processors of their own:
//! what a router writes is with them when it has come to their host. So the system notes when bytes came, and they may be
//! read later, when the router has done and nothing else needs the cores.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use nix::{libc, setsockopt_impl, sockopt_impl};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

sockopt_impl!(
    /// Bytes that must be there before a socket is readable.
    ReceiveLowWater,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32
);

/// Bytes that may wait in the sockets of all receivers.
const ALL: usize = 256 << 20;
/// The same for one: a window is twice as large, which is half of what Linux 6.16 and later let one grow to.
const ONE: usize = 8 << 20;

/// How many bytes each of so many receivers may gather.
pub(super) fn gathered(receivers: usize) -> usize {
    (ALL / receivers.max(1)).min(ONE)
}

/// The system notes when bytes come, a moment after it was first asked to: what came before counts as coming when it is
/// read.
pub(super) fn stamp(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::ReceiveTimestampns, &true)?)
}

/// A socket is readable when so many bytes are there, or its window is closed; it gets room for twice as many, as far as
/// the system's `tcp_rmem` allows: what a neighbour's window grows to that reads at once.
pub(super) fn gather(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    // The room follows the mark, but never comes back.
    setsockopt(socket, ReceiveLowWater, &(2 * bytes))?;
    Ok(setsockopt(socket, ReceiveLowWater, &bytes)?)
}

/// Reads once: how many bytes, and when the last of them came to this host.
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
    fn bytes_wait_to_be_read_and_say_when_they_came() {
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
