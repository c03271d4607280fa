//! Sockets: replies, dumps and notifications.

use super::dump::Dump;
use super::faults::Request;
use super::{Kernel, OTHERS, State, encode};
use crate::router::trace;
use ribtide_netlink::SimulatedPeer;
use ribtide_wire::netlink::numbers::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use ribtide_wire::netlink::{Content, Message, messages};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

/// Milliseconds after which a caller gives a lost reply up.
const REPLY_TIMEOUT_MS: u64 = 1000;
/// Datagrams of notifications that wait at most.
const NOTIFICATIONS_MAX: usize = 4096;

/// The end of a socket in the process.
pub(super) struct Peer {
    kernel: Kernel,
    port: u32,
}

/// The end of a socket in the kernel.
#[derive(Default)]
pub(super) struct Receiver {
    groups: BTreeSet<u32>,
    left_out: Option<u32>,
    queue: VecDeque<Vec<u8>>,
    overrun: bool,
    dump: Option<Dump>,
}

impl Receiver {
    /// Drops all but some of what waits.
    fn overrun(&mut self, kept: usize) {
        self.queue.truncate(kept);
        self.overrun = true;
    }
}

impl Peer {
    pub(super) fn open(kernel: &Kernel, groups: &[u32]) -> io::Result<Box<dyn SimulatedPeer>> {
        let mut state = kernel.state();
        state.last_port += 1;
        let port = state.last_port;
        let groups = groups.iter().copied().collect();
        state.sockets.insert(port, Receiver { groups, ..Receiver::default() });
        Ok(Box::new(Peer { kernel: kernel.clone(), port }))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kernel.state().sockets.remove(&self.port);
    }
}

impl SimulatedPeer for Peer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.kernel.state();
        if let Some(errno) = state.faults.refused_send() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let before = state.receiver(self.port).queue.len();
        for message in messages(bytes) {
            let message = message.map_err(io::Error::other)?;
            if message.flags & NLM_F_REQUEST == 0 {
                continue;
            }
            let errno = match Dump::of(&message) {
                Some(dump) if message.flags & NLM_F_DUMP == NLM_F_DUMP => {
                    if state.begin_dump(self.port, dump) {
                        continue;
                    }
                    libc::EBUSY
                }
                _ if state.is_ignored(&message) => 0,
                _ => match state.faults.refused(&message) {
                    Some(errno) => errno,
                    None => state.request(&message, self.port).err().unwrap_or(0),
                },
            };
            trace(|| {
                format!("socket {}: {:?} {:#x}: {errno}", self.port, Content::decode(&message), message.flags)
            });
            if errno != 0 || message.flags & NLM_F_ACK != 0 {
                let ack = encode::ack(errno, &[0; 16], message.seq, self.port);
                state.receiver(self.port).queue.push_back(ack);
            }
        }
        if state.receiver(self.port).queue.len() > before && state.faults.lost_reply() {
            state.receiver(self.port).overrun(before);
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.kernel.state();
        let receiver = state.receiver(self.port);
        if std::mem::take(&mut receiver.overrun) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let Some(datagram) = receiver.queue.pop_front() else {
            if receiver.groups.is_empty() {
                state.pass(REPLY_TIMEOUT_MS);
            }
            return Err(io::ErrorKind::WouldBlock.into());
        };
        state.dump_further(self.port);
        let n = datagram.len().min(into.len());
        into[..n].copy_from_slice(&datagram[..n]);
        Ok(n)
    }

    fn leave_out(&mut self, port: u32) {
        self.kernel.state().receiver(self.port).left_out = Some(port);
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        let mut state = self.kernel.state();
        let receiver = state.receiver(self.port);
        if receiver.overrun || !receiver.queue.is_empty() {
            return true;
        }
        // A wait without end is one that the scheduler of the simulation ends.
        if timeout < Duration::from_secs(3600) {
            state.pass(timeout.as_millis() as u64);
        }
        false
    }
}

impl State {
    fn is_ignored(&self, message: &Message<'_>) -> bool {
        let replaces = self.faults.ignored == Some(Request::ReplaceObject)
            && matches!(Content::decode(message), Ok(Content::NewNextHop(object)) if self.objects.contains_key(&object.id));
        self.faults.is_ignored(message, replaces)
    }

    fn receiver(&mut self, port: u32) -> &mut Receiver {
        self.sockets.entry(port).or_default()
    }

    /// Prepares the first buffer of a dump, unless one is under way.
    fn begin_dump(&mut self, port: u32, mut dump: Dump) -> bool {
        if self.receiver(port).dump.is_some() {
            return false;
        }
        let (bytes, ended) = self.dump_on(&mut dump, port);
        let receiver = self.receiver(port);
        receiver.queue.push_back(bytes);
        receiver.dump = (!ended).then_some(dump);
        true
    }

    /// A buffer was read: the next one is prepared.
    fn dump_further(&mut self, port: u32) {
        let Some(mut dump) = self.receiver(port).dump.take() else { return };
        let (bytes, ended) = self.dump_on(&mut dump, port);
        let receiver = self.receiver(port);
        receiver.queue.push_back(bytes);
        receiver.dump = (!ended).then_some(dump);
    }

    /// Sends a notification to the sockets that joined its group.
    pub(super) fn notify(&mut self, group: u32, port: u32, bytes: &[u8]) {
        if self.faults.silent && port == OTHERS {
            return;
        }
        for receiver in self.sockets.values_mut() {
            let filtered = receiver.left_out == Some(port);
            if filtered || !receiver.groups.contains(&group) {
                continue;
            }
            if receiver.queue.len() >= NOTIFICATIONS_MAX {
                receiver.overrun(NOTIFICATIONS_MAX / 2);
            } else {
                receiver.queue.push_back(bytes.to_vec());
            }
        }
    }

    /// The notifications that wait are lost, and each monitor that had some learns of that. Returns
    /// whether there were some.
    pub fn lose_notifications(&mut self) -> bool {
        let monitors = self.sockets.values_mut().filter(|receiver| !receiver.groups.is_empty());
        let mut any = false;
        for receiver in monitors.filter(|receiver| !receiver.queue.is_empty()) {
            receiver.overrun(0);
            any = true;
        }
        any
    }

    /// Whether a notification waits.
    pub fn has_notifications(&self) -> bool {
        let waits = |receiver: &Receiver| {
            !receiver.groups.is_empty() && (receiver.overrun || !receiver.queue.is_empty())
        };
        self.sockets.values().any(waits)
    }
}
