//! MRT, the format that routing tables and update streams are recorded in (RFC 6396; add-path RFC 8050).
//!
//! A file is a sequence of length-delimited records. The only state is the peer table at the head
//! of a TABLE_DUMP_V2 file, to which its entries refer by number. [`read_record`] cuts one record
//! off a buffer that may still grow; [`Record::body`] decodes it. Nothing is copied.
//!
//! Recorded attributes differ from those of a session: [`AttributeForm`] names their forms, and
//! their reader must observe it.

mod bgp4mp;
mod build;
mod cursor;
mod table_dump;

pub use bgp4mp::{Bgp4mp, Message, StateChange};
pub use build::{
    PathEntry, Time, entry_next_hop, local_message_et, message, message_et, peer_index_table, rib,
    rib_add_path, state_change_et,
};
pub use table_dump::{Entries, Entry, Peer, PeerIndexTable, Peers, Rib, TableDump, rib_next_hop};

use crate::mrt::cursor::Cursor;
use std::fmt;

/// Bytes of a record's header (RFC 6396 section 2).
pub const HEADER_LEN: usize = 12;

/// The longest body accepted. A table entry of a thousand peers with long attributes is under a
/// megabyte. A longer record is not MRT, and must not make a reader buffer it.
pub const MAX_BODY_LEN: usize = 64 << 20;

/// One record: its header and the bytes of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When it was recorded, in seconds since 1970.
    pub seconds: u32,
    /// Microseconds after `seconds`; zero but in the "ET" types (RFC 6396 section 3).
    pub microseconds: u32,
    /// Type (RFC 6396 section 4).
    pub kind: u16,
    /// Subtype, whose meaning depends on the type.
    pub subtype: u16,
    /// What follows the header, without the microseconds of the "ET" types.
    pub payload: &'a [u8],
}

/// TABLE_DUMP (RFC 6396 section 4.2).
const TABLE_DUMP: u16 = 12;
/// TABLE_DUMP_V2 (RFC 6396 section 4.3).
const TABLE_DUMP_V2: u16 = 13;
/// BGP4MP (RFC 6396 section 4.4).
const BGP4MP: u16 = 16;
/// BGP4MP with microseconds (RFC 6396 section 4.5).
const BGP4MP_ET: u16 = 17;

/// How the attributes of a table entry differ from those of an UPDATE between speakers of 4-octet AS numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeForm {
    /// AS numbers in AS_PATH and AGGREGATOR take four bytes, not two.
    pub four_octet_as: bool,
    /// MP_REACH_NLRI is cut to its next hop (RFC 6396 section 4.3.4); see [`rib_next_hop`].
    pub short_mp_reach: bool,
}

/// The content of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// The peers that the following [`Rib`] records refer to.
    PeerIndexTable(PeerIndexTable<'a>),
    /// One prefix and every peer's path to it (TABLE_DUMP_V2).
    Rib(Rib<'a>),
    /// One prefix and one path (TABLE_DUMP).
    TableDump(TableDump<'a>),
    /// A BGP message that was received or sent.
    Message(Message<'a>),
    /// A change of a session's state.
    StateChange(StateChange),
    /// A type or subtype without unicast routes: multicast tables, OSPF, IS-IS and unknown ones.
    Other,
}

/// The error of decoding MRT. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The header claims a body longer than [`MAX_BODY_LEN`].
    TooLong {
        /// The length claimed, in bytes.
        len: u32,
    },
    /// The body ends inside the named field.
    Short {
        /// The field that is cut.
        field: &'static str,
    },
    /// An address family other than IPv4 and IPv6.
    AddressFamily {
        /// IANA's number as found.
        afi: u16,
    },
    /// A prefix longer than its family allows.
    PrefixLength {
        /// The length found, in bits.
        len: u8,
        /// The longest allowed.
        max: u8,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLong { len } => {
                write!(
                    f,
                    "a record claims {len} bytes, more than the {MAX_BODY_LEN} that are accepted: not an MRT file?"
                )
            }
            Error::Short { field } => write!(f, "the record ends inside its {field}"),
            Error::AddressFamily { afi } => {
                write!(f, "address family {afi} is neither IPv4 (1) nor IPv6 (2)")
            }
            Error::PrefixLength { len, max } => write!(f, "prefix length {len} is over {max}"),
        }
    }
}

impl std::error::Error for Error {}

/// Cuts the first record off `buf` and returns its number of bytes; `None` when `buf` does not hold
/// all of it yet.
///
/// # Errors
/// [`Error::TooLong`], and [`Error::Short`] for an "ET" record without room for its microseconds. Both mean that
/// the place of the next record is unknown or unsound.
pub fn read_record(buf: &[u8]) -> Result<Option<(Record<'_>, usize)>, Error> {
    let mut header = Cursor(buf);
    let (Ok(seconds), Ok(kind), Ok(subtype), Ok(len)) =
        (header.u32("time"), header.u16("type"), header.u16("subtype"), header.u32("length"))
    else {
        return Ok(None);
    };
    let body_len = usize::try_from(len).unwrap_or(usize::MAX);
    if body_len > MAX_BODY_LEN {
        return Err(Error::TooLong { len });
    }
    let Some((body, _)) = header.0.split_at_checked(body_len) else { return Ok(None) };
    let mut body = Cursor(body);
    let microseconds = if kind == BGP4MP_ET { body.u32("microseconds")? } else { 0 };
    Ok(Some((Record { seconds, microseconds, kind, subtype, payload: body.0 }, HEADER_LEN + body_len)))
}

impl<'a> Record<'a> {
    /// The content of the record. Checks the fixed fields; entries and peers are checked during
    /// iteration.
    ///
    /// # Errors
    /// The fixed fields are cut, or name an address family or a prefix length that does not exist. The records
    /// after this one are unaffected.
    pub fn body(&self) -> Result<Body<'a>, Error> {
        match self.kind {
            TABLE_DUMP => TableDump::parse(self.subtype, self.payload),
            TABLE_DUMP_V2 => table_dump::parse_v2(self.subtype, self.payload),
            BGP4MP | BGP4MP_ET => bgp4mp::parse(self.subtype, self.payload),
            _ => Ok(Body::Other),
        }
    }
}

#[cfg(test)]
mod tests;
