//! Waits for a socket, a wake-up of another thread, or the stop: for threads that block in a read.

use crate::ring::Wake;
use crate::stop::{Stop, StopHook};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// An eventfd that a thread polls beside its socket.
#[derive(Debug)]
pub struct WaitFd {
    event: Arc<OwnedFd>,
    stop: Stop,
    _hook: StopHook,
}

impl WaitFd {
    /// Creates it; `stop` ends every later wait at once.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(stop: &Stop) -> io::Result<WaitFd> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = event.clone();
        Ok(WaitFd { event, stop: stop.clone(), _hook: stop.on_stop(move || wake(&stopped)) })
    }

    /// What ends the present wait, or the next one, on another thread.
    pub fn waker(&self) -> Wake {
        let event = self.event.clone();
        Arc::new(move || wake(&event))
    }

    /// Waits until `socket` is readable or closed, for a wake-up, a stop, or `timeout`. Returns
    /// whether a read of the socket would not block.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, socket: impl AsFd, timeout: Duration) -> io::Result<bool> {
        if self.stop.stopped() {
            return Ok(false);
        }
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
        // A duration beyond the range of `Timespec` means no timeout.
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(false),
            polled => polled?,
        };
        let [socket, woken] = fds.map(|fd| !fd.revents().is_empty());
        if woken {
            // It never blocks; without a wake-up there is nothing to read.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        Ok(socket)
    }
}

fn wake(event: &OwnedFd) {
    // A full counter has woken the thread already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn wait_ends_for_data_a_wake_up_a_stop_and_the_timeout() {
        let stop = Stop::default();
        let wait = WaitFd::new(&stop).unwrap();
        let (mut other, socket) = UnixStream::pair().unwrap();
        assert!(!wait.wait(&socket, Duration::from_millis(1)).unwrap());
        wait.waker()();
        assert!(!wait.wait(&socket, Duration::MAX).unwrap());
        assert!(!wait.wait(&socket, Duration::from_millis(1)).unwrap(), "a wake-up ends one wait");
        other.write_all(b"x").unwrap();
        assert!(wait.wait(&socket, Duration::MAX).unwrap());
        let (_other, silent) = UnixStream::pair().unwrap();
        stop.stop();
        assert!(!wait.wait(&silent, Duration::MAX).unwrap());
        assert!(!WaitFd::new(&stop).unwrap().wait(&silent, Duration::MAX).unwrap(), "stopped before");
    }
}
