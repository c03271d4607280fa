//! Puts routes into UPDATEs and the UPDATEs into a session, and counts both.

use crate::Error;
use crate::session::Session;
use ribtide_prefix::{Afi, AfiSafi, Family, Prefix};
use ribtide_wire::bgp::{NextHop, build};

/// Counts of sent messages; part of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Sent {
    /// Prefixes announced.
    pub announced: u64,
    /// Prefixes withdrawn.
    pub withdrawn: u64,
    /// UPDATE messages, End-of-RIB markers included.
    pub updates: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Prefixes left out: the peer does not accept their family, or their attributes are too long
    /// for a message.
    pub left_out: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Sent) {
        self.announced += other.announced;
        self.withdrawn += other.withdrawn;
        self.updates += other.updates;
        self.bytes += other.bytes;
        self.left_out += other.left_out;
    }
}

/// Bytes at which messages are written to the socket.
const FLUSH: usize = 64 << 10;

/// Writes routes into a session.
pub struct Sender<'a> {
    session: &'a Session,
    ready: Vec<u8>,
    sent: Sent,
}

impl<'a> Sender<'a> {
    /// A writer into `session`.
    pub fn new(session: &'a Session) -> Sender<'a> {
        Sender { session, ready: Vec::with_capacity(2 * FLUSH), sent: Sent::default() }
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Announces prefixes that share attributes: `block` as in an UPDATE, without the next hop.
    ///
    /// # Errors
    /// The session ended.
    pub fn announce<F: Family>(
        &mut self,
        block: &[u8],
        next_hop: NextHop,
        prefixes: impl ExactSizeIterator<Item = Prefix<F>>,
    ) -> Result<(), Error> {
        let count = prefixes.len() as u64;
        let peer = self.session.peer();
        let packer = build::UpdatePacker::new(block, next_hop, peer.max_len);
        match peer.takes(F::AFI).then(|| packer.announce(prefixes, &mut self.ready)) {
            Some(Ok(messages)) => {
                self.sent.announced += count;
                self.wrote(messages)
            }
            Some(Err(_)) | None => {
                self.sent.left_out += count;
                Ok(())
            }
        }
    }

    /// Withdraws prefixes.
    ///
    /// # Errors
    /// The session ended.
    pub fn withdraw<F: Family>(
        &mut self,
        prefixes: impl ExactSizeIterator<Item = Prefix<F>>,
    ) -> Result<(), Error> {
        let count = prefixes.len() as u64;
        if !self.session.peer().takes(F::AFI) {
            self.sent.left_out += count;
            return Ok(());
        }
        self.sent.withdrawn += count;
        let messages = build::withdraw(prefixes, self.session.peer().max_len, &mut self.ready);
        self.wrote(messages)
    }

    /// Sends End-of-RIB (RFC 4724) for each family that the peer accepts, and flushes.
    ///
    /// # Errors
    /// The session ended.
    pub fn end_of_rib(&mut self) -> Result<(), Error> {
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            if self.session.peer().takes(afi) {
                build::end_of_rib(AfiSafi::unicast(afi), &mut self.ready);
                self.sent.updates += 1;
            }
        }
        self.flush()
    }

    /// Flushes.
    ///
    /// # Errors
    /// The session ended.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.session.send(&self.ready)?;
        self.sent.bytes += self.ready.len() as u64;
        self.ready.clear();
        Ok(())
    }

    fn wrote(&mut self, messages: usize) -> Result<(), Error> {
        self.sent.updates += messages as u64;
        if self.ready.len() >= FLUSH { self.flush() } else { Ok(()) }
    }
}
