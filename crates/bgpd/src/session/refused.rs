//! Incoming connections that got no session, by reason.

/// Why an incoming connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionRefusal {
    /// No neighbour and no range has its address.
    UnknownAddress,
    /// It would be one dynamic neighbour too many.
    OutOfResources,
    /// Its SYN came with too low a TTL (GTSM, RFC 5082).
    LowTtl,
    /// It is not signed with TCP-AO, and the neighbour has keys (RFC 5925).
    NotSigned,
    /// The kernel refused an option of the socket.
    SocketOptions,
    /// The neighbour has a session or another connection, is shut down, or is held in Idle.
    Neighbor,
}

impl ConnectionRefusal {
    /// Every reason.
    pub const ALL: [ConnectionRefusal; 6] = [
        ConnectionRefusal::UnknownAddress,
        ConnectionRefusal::OutOfResources,
        ConnectionRefusal::LowTtl,
        ConnectionRefusal::NotSigned,
        ConnectionRefusal::SocketOptions,
        ConnectionRefusal::Neighbor,
    ];

    /// Its name in output and metrics.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionRefusal::UnknownAddress => "unknown-address",
            ConnectionRefusal::OutOfResources => "out-of-resources",
            ConnectionRefusal::LowTtl => "low-ttl",
            ConnectionRefusal::NotSigned => "not-signed",
            ConnectionRefusal::SocketOptions => "socket-options",
            ConnectionRefusal::Neighbor => "neighbor",
        }
    }
}

/// How many connections were refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedConnections([u64; ConnectionRefusal::ALL.len()]);

impl RefusedConnections {
    pub(super) fn add(&mut self, why: ConnectionRefusal) {
        self.0[why as usize] += 1;
    }

    /// Each reason and its number.
    pub fn by_reason(&self) -> impl Iterator<Item = (ConnectionRefusal, u64)> + '_ {
        ConnectionRefusal::ALL.into_iter().map(|why| (why, self.0[why as usize]))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
