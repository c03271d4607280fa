//! BMP, the BGP Monitoring Protocol (RFC 7854; Adj-RIB-Out RFC 8671; Loc-RIB RFC 9069).
//!
//! A router sends messages to a station and reads none. [`build`] writes them; [`read_message`] cuts one off a
//! buffer that may still grow, for stations.

pub mod build;
mod read;
#[cfg(test)]
mod tests;

pub use read::{Error, Message, Statistics, Tlvs, read_message};

use std::net::{IpAddr, Ipv4Addr};

/// The version of RFC 7854.
pub const VERSION: u8 = 3;
/// Bytes of the common header.
pub const HEADER_LEN: usize = 6;
/// Bytes of the per-peer header.
pub const PEER_HEADER_LEN: usize = 42;
/// The longest message that a reader accepts: two OPENs and an UPDATE of extended length fit several times.
pub const MAX_LEN: usize = 1 << 20;

/// Message types (RFC 7854 section 4.1).
pub(crate) mod kind {
    pub(crate) const ROUTE_MONITORING: u8 = 0;
    pub(crate) const STATISTICS: u8 = 1;
    pub(crate) const PEER_DOWN: u8 = 2;
    pub(crate) const PEER_UP: u8 = 3;
    pub(crate) const INITIATION: u8 = 4;
    pub(crate) const TERMINATION: u8 = 5;
}

/// Flags of the per-peer header.
pub mod flags {
    /// The peer's address is IPv6 (RFC 7854 section 4.2).
    pub const IPV6: u8 = 0x80;
    /// The Adj-RIB is the one after policy (RFC 7854 section 4.2).
    pub const POST_POLICY: u8 = 0x40;
    /// AS_PATH has AS numbers of two octets (RFC 7854 section 4.2).
    pub const TWO_OCTET_AS: u8 = 0x20;
    /// It is the Adj-RIB-Out (RFC 8671 section 4).
    pub const ADJ_RIB_OUT: u8 = 0x10;
    /// Of a Loc-RIB: it is filtered (RFC 9069 section 4.2).
    pub const FILTERED: u8 = 0x80;
}

/// Types of information TLVs in Initiation and Peer Up (RFC 7854 section 4.4; RFC 9069 section 5.3).
pub mod information {
    /// Free text.
    pub const STRING: u16 = 0;
    /// sysDescr of RFC 1213.
    pub const SYS_DESCR: u16 = 1;
    /// sysName of RFC 1213.
    pub const SYS_NAME: u16 = 2;
    /// The name of the VRF or table.
    pub const TABLE_NAME: u16 = 3;
}

/// Reasons in a Termination (RFC 7854 section 4.5).
pub mod termination {
    /// The session is closed by an administrator.
    pub const ADMINISTRATIVE: u16 = 0;
    /// For no reason that is given.
    pub const UNSPECIFIED: u16 = 1;
    /// The router has no resources left for the session.
    pub const OUT_OF_RESOURCES: u16 = 2;
    /// The station has another session with the router.
    pub const REDUNDANT: u16 = 3;
    /// The session will not be opened again.
    pub const PERMANENT: u16 = 4;
}

/// Types of statistics (RFC 7854 section 4.8; RFC 8671 section 6.2).
pub mod statistic {
    /// Prefixes rejected by inbound policy.
    pub const REJECTED: u16 = 0;
    /// Updates invalidated due to a loop in CLUSTER_LIST.
    pub const CLUSTER_LOOP: u16 = 3;
    /// Updates invalidated due to a loop in AS_PATH.
    pub const AS_LOOP: u16 = 4;
    /// Updates invalidated due to ORIGINATOR_ID.
    pub const ORIGINATOR_LOOP: u16 = 5;
    /// Routes in the Adj-RIBs-In.
    pub const ADJ_RIB_IN: u16 = 7;
    /// Routes in the Loc-RIB.
    pub const LOC_RIB: u16 = 8;
    /// Routes in the Adj-RIB-In of a family.
    pub const FAMILY_ADJ_RIB_IN: u16 = 9;
    /// Routes in the Loc-RIB of a family.
    pub const FAMILY_LOC_RIB: u16 = 10;
    /// UPDATEs subjected to treat-as-withdraw.
    pub const TREATED_AS_WITHDRAW: u16 = 11;
    /// Routes in the Adj-RIBs-Out after policy.
    pub const ADJ_RIB_OUT_POST: u16 = 15;
    /// Routes in the Adj-RIB-Out of a family after policy.
    pub const FAMILY_ADJ_RIB_OUT_POST: u16 = 17;
}

/// The type of a peer (RFC 7854 section 4.2; RFC 9069 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PeerType {
    /// A peer of the default table.
    Global = 0,
    /// A peer of a table with a route distinguisher.
    Distinguished = 1,
    /// A peer of a table without one.
    Local = 2,
    /// The Loc-RIB itself.
    LocRib = 3,
}

impl PeerType {
    fn from_u8(value: u8) -> Option<PeerType> {
        [PeerType::Global, PeerType::Distinguished, PeerType::Local, PeerType::LocRib]
            .get(usize::from(value))
            .copied()
    }
}

/// Time since 1970; zero: unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: u32,
    /// Microseconds after them.
    pub microseconds: u32,
}

/// The per-peer header (RFC 7854 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHeader {
    /// The type of the peer.
    pub kind: PeerType,
    /// See [`flags`]; [`flags::IPV6`] follows from the address, but in a Loc-RIB.
    pub flags: u8,
    /// The distinguisher of its table; 0 for the default one.
    pub distinguisher: u64,
    /// Its address; unspecified for a Loc-RIB.
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// When the routes of the message were received.
    pub time: Timestamp,
}

/// Why a session ended (RFC 7854 section 4.9; RFC 9069 section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason<'a> {
    /// 1: we closed it with this NOTIFICATION, from its marker on.
    LocalNotification(&'a [u8]),
    /// 2: we closed it without one, at this event of the FSM (RFC 4271 section 8.1); 0: none is relevant.
    LocalEvent(u16),
    /// 3: the peer closed it with this NOTIFICATION, from its marker on.
    RemoteNotification(&'a [u8]),
    /// 4: the peer closed it without one.
    RemoteClose,
    /// 5: it continues, but is monitored no longer.
    Unmonitored,
    /// 6: a Loc-RIB is monitored no longer; its information TLVs.
    LocalClose(&'a [u8]),
}

/// A statistic with its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statistic {
    /// A counter of 32 bits, which wraps.
    Counter(u16, u32),
    /// A gauge.
    Gauge(u16, u64),
    /// A gauge of an address family: AFI and SAFI.
    FamilyGauge(u16, (u16, u8), u64),
}
