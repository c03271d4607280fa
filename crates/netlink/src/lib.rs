//! The netlink socket: requests in chunks with one barrier each, dumps, and the stream of notifications; and the next-hop
//! objects of one program in the kernel.
//!
//! Measured on Linux 6.18, one core: an acknowledgement per message costs 20 to 47 % of the rate, 64 to 256 messages
//! a system call are enough. So a chunk asks for an acknowledgement of its last message only. The kernel reports
//! failures in any case; the sequence number says which message failed.

mod objects;
mod transport;

pub use objects::{CHIP_IDS, Ids, Objects, ROUTER_IDS, SingleContent, leave_compat_mode};
pub use transport::{SimulatedKernel, SimulatedPeer, Sockets};

use ribtide_runtime::idle;
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_wire::netlink::numbers::{NLM_F_ACK, NLM_F_DUMP_INTR, NLMSG_NOOP};
use ribtide_wire::netlink::{Content, messages};
use socket2::{Domain, Protocol, SockFilter, Type};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use transport::Transport;

/// Most messages in one system call.
const CHUNK_MESSAGES: usize = 256;
/// A chunk is sent at this size in bytes, well below the default send buffer of 208 KiB.
const CHUNK_BYTES: usize = 64 * 1024;
/// The receive buffer of a socket for requests: 256 failures with their messages fit many times.
const REPLIES_BUFFER: u32 = 8 * 1024 * 1024;
/// The size of a read. The kernel makes messages of a dump as large as the last buffer, up to 32
/// KiB, and cannot send a group of more than 450 members into 4 KiB.
const READ_BYTES: usize = 256 * 1024;
/// Timeout of a reply. The kernel replies before the system call of the request returns, so a
/// missing reply was lost.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Notifications of one [`Socket::notified`] at most.
const NOTIFIED_MAX: usize = 8192;
/// The notifications of one [`Socket::notified_now`]. More come from a program that does not stop.
const NOTIFIED_NOW_MAX: usize = 1 << 20;
/// Repetitions of a dump that the kernel reports as inconsistent.
const DUMP_TRIES: usize = 10;

/// Why the kernel refused a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The message of the kernel, or the name of the error.
    pub text: String,
}

/// A netlink socket of the route family, in the network namespace of the thread that opened it.
pub struct Socket {
    inner: Transport,
    seq: u32,
    read: Vec<u8>,
    write: Vec<u8>,
    /// The offset of the last message in `write`.
    last: usize,
    /// The port id of the socket; 0 before the first reply.
    port: u32,
}

impl Socket {
    /// A socket for requests.
    pub fn open() -> io::Result<Socket> {
        kernel_socket(REPLIES_BUFFER).map(|inner| Socket::of(Transport::Kernel(inner)))
    }

    /// A socket whose other end is a simulated kernel.
    pub fn simulated(peer: Box<dyn SimulatedPeer>) -> Socket {
        Socket::of(Transport::Simulated(peer))
    }

    fn of(inner: Transport) -> Socket {
        let read = idle::long_lived_buffer(READ_BYTES);
        Socket { inner, seq: 0, read, write: Vec::new(), last: 0, port: 0 }
    }

    /// A socket that receives the notifications of `groups` (`RTNLGRP_*`), of which `buffer` bytes may wait.
    pub fn monitor(groups: &[u32], buffer: u32) -> io::Result<Socket> {
        let socket = kernel_socket(buffer)?;
        // The first message gives a socket its address, and one without an address gets no notifications. A no-op that
        // is no request has no answer. (`bind` would do the same, with an address that only unsafe code can make.)
        let mut noop = [0; 16];
        noop[..4].copy_from_slice(&16u32.to_ne_bytes());
        noop[4..6].copy_from_slice(&NLMSG_NOOP.to_ne_bytes());
        socket.send(&noop)?;
        for group in groups {
            set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, *group as libc::c_int)?;
        }
        // A wait is a poll; then all is read that waits.
        socket.set_nonblocking(true)?;
        Ok(Socket::of(Transport::Kernel(socket)))
    }

    /// The kernel's number for this socket, which is in whatever the kernel says about its requests. 0 before the first
    /// answer.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Filters out notifications that the socket with this port id caused.
    pub fn leave_out(&mut self, port: u32) -> io::Result<()> {
        const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let socket = match &mut self.inner {
            Transport::Kernel(socket) => socket,
            Transport::Simulated(peer) => {
                peer.leave_out(port);
                return Ok(());
            }
        };
        // The port is at offset 12 of the header. A filter loads in network byte order.
        socket.attach_filter(&[
            SockFilter::new(LOAD_WORD, 0, 0, 12),
            SockFilter::new(JUMP_IF_EQUAL, 0, 1, port.to_be()),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ])
    }

    /// Sends a request for each of `items`, encoded by `write`, and calls `refused` for each that
    /// the kernel refused. The kernel has handled all of them on return.
    ///
    /// # Errors
    /// `ENOBUFS` when replies were lost, so the refused ones are unknown.
    pub fn request<T>(
        &mut self,
        items: &[T],
        mut write: impl FnMut(&T, &mut Vec<u8>, u32),
        mut refused: impl FnMut(usize, Refusal),
    ) -> io::Result<()> {
        let mut done = 0;
        while done < items.len() {
            let first_seq = self.seq.wrapping_add(1);
            let mut count = 0;
            self.write.clear();
            for item in &items[done..] {
                self.seq = self.seq.wrapping_add(1);
                self.last = self.write.len();
                write(item, &mut self.write, self.seq);
                count += 1;
                if count == CHUNK_MESSAGES || self.write.len() >= CHUNK_BYTES {
                    break;
                }
            }
            self.barrier(first_seq, |index, refusal| refused(done + index, refusal))?;
            done += count;
        }
        Ok(())
    }

    /// Sends the buffer and reads until the reply to its last message.
    fn barrier(&mut self, first_seq: u32, mut refused: impl FnMut(usize, Refusal)) -> io::Result<()> {
        // The flags are at offset 6 of the header.
        let flags = &mut self.write[self.last + 6..self.last + 8];
        let requested = u16::from_ne_bytes([flags[0], flags[1]]) | NLM_F_ACK;
        flags.copy_from_slice(&requested.to_ne_bytes());
        self.inner.send(&self.write)?;
        let last = self.seq.wrapping_sub(first_seq);
        loop {
            let n = self.answer()?;
            for message in messages(&self.read[..n]) {
                let message = message.map_err(io::Error::other)?;
                let index = message.seq.wrapping_sub(first_seq);
                if index > last {
                    continue; // The rest of an answer that an earlier error made us leave.
                }
                let Content::Ack(ack) = Content::decode(&message).map_err(io::Error::other)? else {
                    continue;
                };
                self.port = message.port;
                if ack.errno != 0 {
                    let text = match ack.text {
                        Some(text) => text.to_owned(),
                        None => io::Error::from_raw_os_error(ack.errno).to_string(),
                    };
                    refused(index as usize, Refusal { errno: ack.errno, text });
                }
                if index == last {
                    return Ok(());
                }
            }
        }
    }

    /// Reads the next replies. After an overrun it reads all that are left, because the kernel
    /// reports an overrun only once until the buffer is empty.
    fn answer(&mut self) -> io::Result<usize> {
        match self.inner.receive(&mut self.read) {
            Err(e) if overran(&e) || e.kind() == io::ErrorKind::WouldBlock => {
                self.inner.discard();
                Err(io::Error::from_raw_os_error(libc::ENOBUFS))
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => self.answer(),
            other => other,
        }
    }

    /// Sends the dump request that `write` encodes, and folds the reply into a `T`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn dump<T: Default>(
        &mut self,
        write: impl Fn(&mut Vec<u8>, u32),
        mut each: impl FnMut(&mut T, Content<'_>),
    ) -> io::Result<T> {
        for _ in 0..DUMP_TRIES {
            self.begin_dump(&write)?;
            let mut all = T::default();
            match self.read_dump(|content| each(&mut all, content)) {
                Ok(true) => return Ok(all),
                Ok(false) => {}
                Err(e) if overran(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other("the kernel's tables changed during every attempt to read them"))
    }

    /// Reads a dump to its end; `false` if it is inconsistent.
    fn read_dump(&mut self, mut each: impl FnMut(Content<'_>)) -> io::Result<bool> {
        let mut whole = true;
        while !self.read_part(&mut whole, &mut each)? {}
        Ok(whole)
    }

    /// Sends the dump request that `write` encodes, for [`Socket::dump_on`].
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn begin_dump(&mut self, write: impl Fn(&mut Vec<u8>, u32)) -> io::Result<()> {
        self.seq = self.seq.wrapping_add(1);
        self.write.clear();
        write(&mut self.write, self.seq);
        self.inner.send(&self.write)
    }

    /// Continues a dump by one buffer of the kernel: some hundred routes. Returns whether it
    /// reached the end. Any time may pass in between; the dump may or may not have changes of that
    /// time.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn dump_on(&mut self, mut each: impl FnMut(Content<'_>)) -> io::Result<bool> {
        self.read_part(&mut true, &mut each)
    }

    fn read_part(&mut self, whole: &mut bool, each: &mut impl FnMut(Content<'_>)) -> io::Result<bool> {
        let n = self.answer()?;
        for message in messages(&self.read[..n]) {
            let message = message.map_err(io::Error::other)?;
            if message.seq != self.seq {
                continue;
            }
            *whole &= message.flags & NLM_F_DUMP_INTR == 0;
            match Content::decode(&message).map_err(io::Error::other)? {
                Content::Done(ack) | Content::Ack(ack) if ack.errno != 0 => {
                    return Err(io::Error::from_raw_os_error(ack.errno));
                }
                Content::Done(_) => return Ok(true),
                content => each(content),
            }
        }
        Ok(false)
    }

    /// Sets the smallest receive buffer, so that a test can overrun it. A simulated kernel overruns
    /// when its script says so.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn shrink(&self) -> io::Result<()> {
        match &self.inner {
            Transport::Kernel(socket) => socket.set_recv_buffer_size(1),
            Transport::Simulated(_) => Ok(()),
        }
    }

    /// Waits for notifications and passes all that wait, up to some thousand, to `each` with the port
    /// id of their cause; returns without any after the timeout, a wake-up or the stop.
    ///
    /// # Errors
    /// `ENOBUFS` when notifications were lost.
    pub fn notified(
        &mut self,
        wait: &WaitFd,
        timeout: Duration,
        mut each: impl FnMut(u32, Content<'_>),
    ) -> io::Result<()> {
        if !self.inner.wait(wait, timeout)? {
            return Ok(());
        }
        // The kernel has one notification in each read.
        for _ in 0..NOTIFIED_MAX {
            if !self.read_notification(&mut each)? {
                break;
            }
        }
        Ok(())
    }

    /// Passes the notifications that wait now to `each`, with the port id of their cause. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when notifications were lost, or come without end.
    pub fn notified_now(&mut self, mut each: impl FnMut(u32, Content<'_>)) -> io::Result<()> {
        for _ in 0..NOTIFIED_NOW_MAX {
            if !self.read_notification(&mut each)? {
                return Ok(());
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENOBUFS))
    }

    /// Reads once; `false` if nothing waits.
    fn read_notification(&mut self, each: &mut impl FnMut(u32, Content<'_>)) -> io::Result<bool> {
        let n = match self.inner.receive(&mut self.read) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            other => other?,
        };
        for message in messages(&self.read[..n]).flatten() {
            if let Ok(content) = Content::decode(&message) {
                each(message.port, content);
            }
        }
        Ok(true)
    }
}

/// Whether the error is an overrun of the buffer.
pub fn overran(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ENOBUFS)
}

/// A socket of the kernel with a receive buffer of this size.
fn kernel_socket(bytes: u32) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_ROUTE)),
    )?;
    // More than the limit of the system needs a privilege, which route changes need, too.
    let requested = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, requested).is_err() {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK] {
        set_option(&socket, libc::SOL_NETLINK, option, 1)?;
    }
    socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(socket)
}

/// Sets an integer option that socket2 has no method for.
#[allow(unsafe_code)]
fn set_option(
    socket: &socket2::Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `socket` is borrowed; the pointer and length describe `value`, which
    // lives through the call; the kernel only reads it.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
