//! RTR, the RPKI to Router protocol: PDUs of version 0 (RFC 6810 section 5), version 1 (RFC 8210
//! section 5) and version 2 (draft-ietf-sidrops-8210bis section 5), read in place and written.
//!
//! [`frame`] cuts the next PDU out of received bytes, and a length is checked against the PDU's type
//! before the rest is there. So no length from outside decides about memory.

use ribtide_prefix::{AnyPrefix, Prefix, V4, V6};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The TCP port of a cache without transport security (RFC 8210 section 9).
pub const PORT: u16 = 323;
/// The TCP port of a cache with TLS (RFC 8210 section 9.2 and 14).
pub const TLS_PORT: u16 = 324;
/// The highest version here.
pub const VERSION: u8 = 2;
/// Length of a PDU's header, in bytes.
pub const HEADER: usize = 8;
/// Length of the longest PDU that is read, in bytes: an Error Report with a PDU and a text. The RFCs
/// have no bound.
pub const MAX_LEN: usize = 64 * 1024;

/// Bounds of Refresh Interval, in seconds (RFC 8210 section 6).
pub const REFRESH: RangeInclusive<u32> = 1..=86_400;
/// Bounds of Retry Interval, in seconds.
pub const RETRY: RangeInclusive<u32> = 1..=7200;
/// Bounds of Expire Interval, in seconds.
pub const EXPIRE: RangeInclusive<u32> = 600..=172_800;

mod kind {
    pub(super) const SERIAL_NOTIFY: u8 = 0;
    pub(super) const SERIAL_QUERY: u8 = 1;
    pub(super) const RESET_QUERY: u8 = 2;
    pub(super) const CACHE_RESPONSE: u8 = 3;
    pub(super) const IPV4_PREFIX: u8 = 4;
    pub(super) const IPV6_PREFIX: u8 = 6;
    pub(super) const END_OF_DATA: u8 = 7;
    pub(super) const CACHE_RESET: u8 = 8;
    pub(super) const ROUTER_KEY: u8 = 9;
    pub(super) const ERROR_REPORT: u8 = 10;
    pub(super) const ASPA: u8 = 11;
}

/// The intervals of a cache, in seconds (RFC 8210 section 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intervals {
    /// Between a complete answer and the next Serial Query.
    pub refresh: u32,
    /// Between a failed query and the next one.
    pub retry: u32,
    /// After a complete answer its records are used for as long without another.
    pub expire: u32,
}

impl Default for Intervals {
    /// The defaults of RFC 8210 section 6, also for version 0.
    fn default() -> Intervals {
        Intervals { refresh: 3600, retry: 600, expire: 7200 }
    }
}

/// A validated ROA payload (RFC 6811 section 2): AS `asn` may originate the prefix and its more
/// specific ones up to `max_len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Payload {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The longest permitted length.
    pub max_len: u8,
    /// The AS; 0 permits none.
    pub asn: u32,
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} AS{}", self.prefix, self.max_len, self.asn)
    }
}

/// The providers of an ASPA PDU: numbers of four bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Providers<'a>(&'a [[u8; 4]]);

impl<'a> Providers<'a> {
    /// Providers in wire form.
    pub fn new(numbers: &'a [[u8; 4]]) -> Providers<'a> {
        Providers(numbers)
    }

    /// The AS numbers.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.0.iter().map(|number| u32::from_be_bytes(*number))
    }

    /// Whether an announcement may have them: at least one, each once, in ascending order, and AS 0 alone
    /// (draft-ietf-sidrops-8210bis section 5.12).
    fn is_list(self) -> bool {
        !self.0.is_empty()
            && self.0.is_sorted_by(|a, b| a < b)
            && (self.0.len() == 1 || self.0.first() != Some(&[0; 4]))
    }
}

/// The address families of an ASPA record. In drafts up to 11 a PDU names them, in later ones it has no such field:
/// its record is for both. The formats differ, see [`Frame::parse`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AspaFamilies {
    /// Both, in the format without the field.
    Both,
    /// As the field of the former format has them: 0 is IPv4, 1 is IPv6, 3 both.
    Flags(u8),
}

/// A PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pdu<'a> {
    /// The cache has data of this serial number.
    SerialNotify {
        /// Session ID.
        session: u16,
        /// Serial Number.
        serial: u32,
    },
    /// A router asks for the changes after a serial number.
    SerialQuery {
        /// Session ID.
        session: u16,
        /// Serial Number.
        serial: u32,
    },
    /// A router asks for all data.
    ResetQuery,
    /// An answer begins.
    CacheResponse {
        /// Session ID.
        session: u16,
    },
    /// IPv4 Prefix or IPv6 Prefix: a record is announced or withdrawn.
    Prefix {
        /// Whether it is announced.
        announce: bool,
        /// The record.
        payload: Payload,
    },
    /// An answer is complete.
    EndOfData {
        /// Session ID.
        session: u16,
        /// Serial Number.
        serial: u32,
        /// From version 1, as the cache sends them.
        intervals: Option<Intervals>,
    },
    /// The cache has no changes after that serial number.
    CacheReset,
    /// Router Key (RFC 8210 section 5.10), for BGPsec.
    RouterKey,
    /// ASPA (draft-ietf-sidrops-8210bis section 5.12): the providers of a customer AS are announced, in place of
    /// former ones of the same families, or withdrawn.
    Aspa {
        /// Whether they are announced.
        announce: bool,
        /// The families that they are for.
        families: AspaFamilies,
        /// The customer.
        customer: u32,
        /// Its providers; none of a withdrawal.
        providers: Providers<'a>,
    },
    /// An error of the other side.
    ErrorReport {
        /// Error Code.
        code: ErrorCode,
        /// The erroneous PDU, or the part of it that the report has.
        pdu: &'a [u8],
        /// Text, UTF-8 where the sender is right.
        text: &'a [u8],
    },
}

/// An error code (RFC 8210 section 12). Displays as there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode(pub u16);

impl ErrorCode {
    /// A PDU is malformed, or nonsense at this point.
    pub const CORRUPT_DATA: ErrorCode = ErrorCode(0);
    /// The cache has no data yet; the only code that does not end the session.
    pub const NO_DATA_AVAILABLE: ErrorCode = ErrorCode(2);
    /// The sender does not know the version.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(4);
    /// The sender does not know the type.
    pub const UNSUPPORTED_TYPE: ErrorCode = ErrorCode(5);
    /// A record was withdrawn that was not announced.
    pub const UNKNOWN_WITHDRAWAL: ErrorCode = ErrorCode(6);
    /// A record was announced twice.
    pub const DUPLICATE_ANNOUNCEMENT: ErrorCode = ErrorCode(7);
    /// A PDU is of another version than the session.
    pub const UNEXPECTED_VERSION: ErrorCode = ErrorCode(8);
    /// The providers of an ASPA PDU are no list of providers (version 2).
    pub const ASPA_PROVIDER_LIST: ErrorCode = ErrorCode(9);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "Corrupt Data",
            1 => "Internal Error",
            2 => "No Data Available",
            3 => "Invalid Request",
            4 => "Unsupported Protocol Version",
            5 => "Unsupported PDU Type",
            6 => "Withdrawal of Unknown Record",
            7 => "Duplicate Announcement Received",
            8 => "Unexpected Protocol Version",
            9 => "ASPA Provider List Error",
            other => return write!(f, "error code {other}"),
        })
    }
}

/// The fault of a PDU, for an Error Report. Displays as words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its code.
    pub code: ErrorCode,
    /// What is wrong.
    pub text: String,
}

impl Fault {
    /// A fault with this code.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Fault {
        Fault { code, text: text.into() }
    }

    fn corrupt(text: impl Into<String>) -> Fault {
        Fault::new(ErrorCode::CORRUPT_DATA, text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

/// A complete PDU in received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The version that the sender uses.
    pub version: u8,
    /// All its bytes.
    pub bytes: &'a [u8],
    kind: u8,
    /// Session ID, error code or flags.
    field: u16,
    body: &'a [u8],
}

/// The next PDU of `bytes`, or `None` if it is not complete.
///
/// # Errors
/// The length is impossible for the type; the bytes after it have no meaning.
pub fn frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Fault> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [version, kind, field_high, field_low, length @ ..] = *header;
    let length = u32::from_be_bytes(length) as usize;
    let lengths = lengths(version, kind);
    if !lengths.contains(&length) {
        let (least, most) = (lengths.start(), lengths.end());
        return Err(Fault::corrupt(format!(
            "a PDU of type {kind} has a length of {length} bytes, not {least} to {most}"
        )));
    }
    let Some(bytes) = bytes.get(..length) else { return Ok(None) };
    let field = u16::from_be_bytes([field_high, field_low]);
    Ok(Some(Frame { version, bytes, kind, field, body: bytes.get(HEADER..).unwrap_or_default() }))
}

/// The lengths that a PDU may have.
fn lengths(version: u8, kind: u8) -> RangeInclusive<usize> {
    let exactly = |length| length..=length;
    match kind {
        kind::SERIAL_NOTIFY | kind::SERIAL_QUERY => exactly(12),
        kind::RESET_QUERY | kind::CACHE_RESPONSE | kind::CACHE_RESET => exactly(HEADER),
        kind::IPV4_PREFIX => exactly(20),
        kind::IPV6_PREFIX => exactly(32),
        kind::END_OF_DATA if version == 0 => exactly(12),
        kind::END_OF_DATA => exactly(24),
        kind::ERROR_REPORT => 16..=MAX_LEN,
        kind::ASPA if version > 1 => 12..=MAX_LEN,
        _ => HEADER..=MAX_LEN,
    }
}

impl<'a> Frame<'a> {
    /// Reads the PDU.
    ///
    /// # Errors
    /// A value is impossible, or the type is unknown.
    pub fn parse(&self) -> Result<Pdu<'a>, Fault> {
        let short = || Fault::corrupt(format!("a PDU of type {} is too short", self.kind));
        let session = self.field;
        let number = |at: usize| {
            let bytes = self.body.get(at..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(short)
        };
        Ok(match self.kind {
            kind::SERIAL_NOTIFY => Pdu::SerialNotify { session, serial: number(0)? },
            kind::SERIAL_QUERY => Pdu::SerialQuery { session, serial: number(0)? },
            kind::RESET_QUERY => Pdu::ResetQuery,
            kind::CACHE_RESPONSE => Pdu::CacheResponse { session },
            kind::IPV4_PREFIX | kind::IPV6_PREFIX => self.prefix().ok_or_else(short)??,
            kind::END_OF_DATA => {
                let intervals = match self.version {
                    0 => None,
                    _ => Some(Intervals { refresh: number(4)?, retry: number(8)?, expire: number(12)? }),
                };
                Pdu::EndOfData { session, serial: number(0)?, intervals }
            }
            kind::CACHE_RESET => Pdu::CacheReset,
            kind::ROUTER_KEY if self.version > 0 => Pdu::RouterKey,
            kind::ASPA if self.version > 1 => self.aspa()?,
            kind::ERROR_REPORT => {
                let (pdu, rest) = counted(self.body).ok_or_else(short)?;
                let (text, _) = counted(rest).ok_or_else(short)?;
                Pdu::ErrorReport { code: ErrorCode(self.field), pdu, text }
            }
            other => {
                let text = format!("a PDU of type {other} in version {}", self.version);
                return Err(Fault::new(ErrorCode::UNSUPPORTED_TYPE, text));
            }
        })
    }

    /// Whether it is an Error Report, to which no Error Report replies.
    pub fn is_error_report(&self) -> bool {
        self.kind == kind::ERROR_REPORT
    }

    /// Whether it is a Serial Notify, which has one format in every version.
    pub fn is_serial_notify(&self) -> bool {
        self.kind == kind::SERIAL_NOTIFY
    }

    /// Drafts up to 11 have flags, families and the number of providers before the customer, and nothing in the header's
    /// field. Later ones have the flags there. A withdrawal of these has no provider, so both are told apart.
    fn aspa(&self) -> Result<Pdu<'a>, Fault> {
        let (numbers, rest) = self.body.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(Fault::corrupt("an ASPA PDU ends within an AS number"));
        }
        let (announce, families, numbers) = match numbers {
            [[flags, families, count @ ..], numbers @ ..] if self.field == 0 && !numbers.is_empty() => {
                let count = usize::from(u16::from_be_bytes(*count));
                if count != numbers.len() - 1 || *flags > 1 {
                    return Err(Fault::corrupt(format!(
                        "an ASPA PDU with flags {flags} has {} providers, and says {count}",
                        numbers.len() - 1
                    )));
                }
                (flags & 1 == 1, AspaFamilies::Flags(*families), numbers)
            }
            // The flags are the first byte of the field.
            _ => (self.field & 0x0100 != 0, AspaFamilies::Both, numbers),
        };
        let Some((customer, providers)) = numbers.split_first() else {
            return Err(Fault::corrupt("an ASPA PDU without a customer"));
        };
        let (customer, providers) = (u32::from_be_bytes(*customer), Providers(providers));
        // The former drafts have no rules for the list, and caches send it in any order.
        let fits = match (announce, families) {
            (true, AspaFamilies::Both) => providers.is_list(),
            (true, AspaFamilies::Flags(_)) => !providers.0.is_empty(),
            (false, AspaFamilies::Both) => providers.0.is_empty(),
            (false, AspaFamilies::Flags(_)) => true,
        };
        if !fits {
            let text = format!("the providers of AS {customer}: {} in number", providers.0.len());
            return Err(Fault::new(ErrorCode::ASPA_PROVIDER_LIST, text));
        }
        Ok(Pdu::Aspa { announce, families, customer, providers })
    }

    fn prefix(&self) -> Option<Result<Pdu<'a>, Fault>> {
        let (&[flags, len, max_len, _], rest) = self.body.split_first_chunk::<4>()?;
        let (address, asn) = match self.kind {
            kind::IPV4_PREFIX => {
                let (address, rest) = rest.split_first_chunk::<4>()?;
                (IpAddr::V4(Ipv4Addr::from(*address)), rest)
            }
            _ => {
                let (address, rest) = rest.split_first_chunk::<16>()?;
                (IpAddr::V6(Ipv6Addr::from(*address)), rest)
            }
        };
        let asn = u32::from_be_bytes(*asn.first_chunk::<4>()?);
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = AnyPrefix::from_addr(address, len).filter(|_| len <= max_len && max_len <= width);
        Some(match prefix {
            Some(prefix) => {
                Ok(Pdu::Prefix { announce: flags & 1 == 1, payload: Payload { prefix, max_len, asn } })
            }
            None => Err(Fault::corrupt(format!(
                "a record has the prefix {address}/{len} and the maximum length {max_len}"
            ))),
        })
    }
}

/// Bytes after their length, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

impl Pdu<'_> {
    /// Appends the PDU in a version. An Error Report is cut to [`MAX_LEN`]; a Router Key, whose
    /// contents are not read, is written without contents.
    pub fn write(&self, version: u8, out: &mut Vec<u8>) {
        let mut pdu = |kind: u8, field: u16, body: &[&[u8]]| {
            let length = HEADER + body.iter().map(|part| part.len()).sum::<usize>();
            out.extend_from_slice(&[version, kind]);
            out.extend_from_slice(&field.to_be_bytes());
            out.extend_from_slice(&(length as u32).to_be_bytes());
            body.iter().for_each(|part| out.extend_from_slice(part));
        };
        match *self {
            Pdu::SerialNotify { session, serial } => {
                pdu(kind::SERIAL_NOTIFY, session, &[&serial.to_be_bytes()]);
            }
            Pdu::SerialQuery { session, serial } => {
                pdu(kind::SERIAL_QUERY, session, &[&serial.to_be_bytes()]);
            }
            Pdu::ResetQuery => pdu(kind::RESET_QUERY, 0, &[]),
            Pdu::CacheResponse { session } => pdu(kind::CACHE_RESPONSE, session, &[]),
            Pdu::Prefix { announce, payload: Payload { prefix, max_len, asn } } => {
                let flags = [u8::from(announce), prefix.len(), max_len, 0];
                match prefix {
                    AnyPrefix::V4(prefix) => {
                        let address = <Prefix<V4>>::bits(prefix).to_be_bytes();
                        pdu(kind::IPV4_PREFIX, 0, &[&flags, &address, &asn.to_be_bytes()]);
                    }
                    AnyPrefix::V6(prefix) => {
                        let address = <Prefix<V6>>::bits(prefix);
                        pdu(kind::IPV6_PREFIX, 0, &[&flags, &address, &asn.to_be_bytes()]);
                    }
                }
            }
            Pdu::EndOfData { session, serial, intervals } => {
                let serial = serial.to_be_bytes();
                if version == 0 {
                    return pdu(kind::END_OF_DATA, session, &[&serial]);
                }
                let Intervals { refresh, retry, expire } = intervals.unwrap_or_default();
                let [refresh, retry, expire] = [refresh, retry, expire].map(u32::to_be_bytes);
                pdu(kind::END_OF_DATA, session, &[&serial, &refresh, &retry, &expire]);
            }
            Pdu::CacheReset => pdu(kind::CACHE_RESET, 0, &[]),
            Pdu::RouterKey => pdu(kind::ROUTER_KEY, 0, &[]),
            Pdu::Aspa { announce, families, customer, providers } => {
                let (customer, numbers) = (customer.to_be_bytes(), providers.0.as_flattened());
                match families {
                    AspaFamilies::Both => {
                        pdu(kind::ASPA, u16::from(announce) << 8, &[&customer, numbers]);
                    }
                    AspaFamilies::Flags(families) => {
                        let [high, low] = (providers.0.len() as u16).to_be_bytes();
                        let head = [u8::from(announce), families, high, low];
                        pdu(kind::ASPA, 0, &[&head, &customer, numbers]);
                    }
                }
            }
            Pdu::ErrorReport { code, pdu: erroneous, text } => {
                let text = text.get(..text.len().min(1024)).unwrap_or_default();
                let room = MAX_LEN - HEADER - 8 - text.len();
                let erroneous = erroneous.get(..erroneous.len().min(room)).unwrap_or_default();
                let lengths = [erroneous.len(), text.len()].map(|length| (length as u32).to_be_bytes());
                let [pdu_length, text_length] = lengths;
                pdu(kind::ERROR_REPORT, code.0, &[&pdu_length, erroneous, &text_length, text]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Option<(u8, Pdu<'_>)>, Fault> {
        frame(bytes)?.map(|frame| Ok((frame.version, frame.parse()?))).transpose()
    }

    fn payload(prefix: &str, max_len: u8, asn: u32) -> Payload {
        Payload { prefix: prefix.parse().unwrap(), max_len, asn }
    }

    fn aspa(announce: bool, families: AspaFamilies, customer: u32, providers: &[[u8; 4]]) -> Pdu<'_> {
        Pdu::Aspa { announce, families, customer, providers: Providers(providers) }
    }

    /// The figures of RFC 8210 section 5, byte by byte.
    #[test]
    fn pdus_are_those_of_the_rfc() {
        let providers = [[0, 0, 0xfc, 1], [0, 1, 0, 0]];
        let cases: [(u8, Pdu<'_>, &[u8]); 15] = [
            // As StayRTR 0.5.1 sends it, by draft 10.
            (
                2,
                aspa(true, AspaFamilies::Flags(0), 65010, &[[0, 0, 0xfd, 0xe9]]),
                &[2, 11, 0, 0, 0, 0, 0, 20, 1, 0, 0, 1, 0, 0, 0xfd, 0xf2, 0, 0, 0xfd, 0xe9],
            ),
            (
                2,
                aspa(true, AspaFamilies::Flags(3), 1, &[[0, 0, 0, 9], [0, 0, 0, 7]]),
                &[2, 11, 0, 0, 0, 0, 0, 24, 1, 3, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 7],
            ),
            (
                2,
                aspa(false, AspaFamilies::Flags(1), 1, &[]),
                &[2, 11, 0, 0, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 1],
            ),
            (
                2,
                aspa(true, AspaFamilies::Both, 64500, &providers),
                &[2, 11, 1, 0, 0, 0, 0, 20, 0, 0, 0xfb, 0xf4, 0, 0, 0xfc, 1, 0, 1, 0, 0],
            ),
            (2, aspa(false, AspaFamilies::Both, 64500, &[]), &[2, 11, 0, 0, 0, 0, 0, 12, 0, 0, 0xfb, 0xf4]),
            (
                1,
                Pdu::SerialNotify { session: 0x1234, serial: 7 },
                &[1, 0, 0x12, 0x34, 0, 0, 0, 12, 0, 0, 0, 7],
            ),
            (
                1,
                Pdu::SerialQuery { session: 0x1234, serial: 7 },
                &[1, 1, 0x12, 0x34, 0, 0, 0, 12, 0, 0, 0, 7],
            ),
            (0, Pdu::ResetQuery, &[0, 2, 0, 0, 0, 0, 0, 8]),
            (1, Pdu::CacheResponse { session: 5 }, &[1, 3, 0, 5, 0, 0, 0, 8]),
            (
                1,
                Pdu::Prefix { announce: true, payload: payload("192.0.2.0/24", 28, 65536) },
                &[1, 4, 0, 0, 0, 0, 0, 20, 1, 24, 28, 0, 192, 0, 2, 0, 0, 1, 0, 0],
            ),
            (
                1,
                Pdu::Prefix { announce: false, payload: payload("2001:db8::/32", 48, 1) },
                &[
                    1, 6, 0, 0, 0, 0, 0, 32, 0, 32, 48, 0, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    0, 0, 0, 0, 0, 1,
                ],
            ),
            (
                0,
                Pdu::EndOfData { session: 5, serial: 7, intervals: None },
                &[0, 7, 0, 5, 0, 0, 0, 12, 0, 0, 0, 7],
            ),
            (
                1,
                Pdu::EndOfData {
                    session: 5,
                    serial: 7,
                    intervals: Some(Intervals { refresh: 3600, retry: 600, expire: 7200 }),
                },
                &[1, 7, 0, 5, 0, 0, 0, 24, 0, 0, 0, 7, 0, 0, 0x0e, 0x10, 0, 0, 2, 0x58, 0, 0, 0x1c, 0x20],
            ),
            (1, Pdu::CacheReset, &[1, 8, 0, 0, 0, 0, 0, 8]),
            (
                1,
                Pdu::ErrorReport {
                    code: ErrorCode::NO_DATA_AVAILABLE,
                    pdu: &[1, 2, 0, 0, 0, 0, 0, 8],
                    text: b"no",
                },
                &[1, 10, 0, 2, 0, 0, 0, 26, 0, 0, 0, 8, 1, 2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 2, b'n', b'o'],
            ),
        ];
        for (version, pdu, bytes) in cases {
            let mut written = Vec::new();
            pdu.write(version, &mut written);
            assert_eq!(written, bytes, "{pdu:?}");
            assert_eq!(read(bytes), Ok(Some((version, pdu))));
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Ok(None), "{pdu:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn impossible_lengths_and_values_are_refused() {
        let code = |bytes: &[u8]| read(bytes).unwrap_err().code;
        // Before the rest of the PDU is there.
        assert_eq!(code(&[1, 4, 0, 0, 0xff, 0xff, 0xff, 0xff]), ErrorCode::CORRUPT_DATA);
        assert_eq!(code(&[1, 10, 0, 0, 0, 1, 0, 1]), ErrorCode::CORRUPT_DATA);
        assert_eq!(code(&[1, 2, 0, 0, 0, 0, 0, 7]), ErrorCode::CORRUPT_DATA);
        assert_eq!(code(&[1, 5, 0, 0, 0, 0, 0, 8]), ErrorCode::UNSUPPORTED_TYPE);
        assert_eq!(code(&[0, 9, 0, 0, 0, 0, 0, 8]), ErrorCode::UNSUPPORTED_TYPE);
        assert_eq!(code(&[1, 11, 0, 0, 0, 0, 0, 12, 0, 0, 0, 1]), ErrorCode::UNSUPPORTED_TYPE);
        assert_eq!(code(&[2, 11, 0, 0, 0, 0, 0, 8]), ErrorCode::CORRUPT_DATA);
        assert_eq!(code(&[2, 11, 0, 0, 0, 0, 0, 13, 0, 0, 0, 1, 0]), ErrorCode::CORRUPT_DATA);
        // The rules of draft-ietf-sidrops-8210bis section 5.12.
        for (announce, providers) in
            [(1, &[][..]), (1, &[0, 7]), (1, &[7, 7]), (1, &[8, 7])] as [(u8, &[u8]); 4]
        {
            let length = 12 + 4 * providers.len() as u8;
            let mut bytes = vec![2, 11, announce, 0, 0, 0, 0, length, 0, 0, 0, 1];
            providers.iter().for_each(|provider| bytes.extend([0, 0, 0, *provider]));
            assert_eq!(code(&bytes), ErrorCode::ASPA_PROVIDER_LIST, "{providers:?}");
        }
        // A withdrawal with a provider, and those of former drafts: another number of providers, none, unknown flags.
        assert_eq!(code(&[2, 11, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 7]), ErrorCode::CORRUPT_DATA);
        assert_eq!(
            code(&[2, 11, 0, 0, 0, 0, 0, 20, 1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7]),
            ErrorCode::CORRUPT_DATA
        );
        assert_eq!(code(&[2, 11, 0, 0, 0, 0, 0, 16, 1, 0, 0, 0, 0, 0, 0, 1]), ErrorCode::ASPA_PROVIDER_LIST);
        assert_eq!(
            code(&[2, 11, 0, 0, 0, 0, 0, 20, 3, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7]),
            ErrorCode::CORRUPT_DATA
        );
        let none = [2, 11, 1, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0];
        assert!(matches!(read(&none), Ok(Some((2, Pdu::Aspa { announce: true, customer: 1, .. })))));
        let record = |len, max_len| [1, 4, 0, 0, 0, 0, 0, 20, 1, len, max_len, 0, 192, 0, 2, 0, 0, 0, 0, 1];
        for (len, max_len) in [(24, 23), (24, 33), (33, 33)] {
            assert_eq!(code(&record(len, max_len)), ErrorCode::CORRUPT_DATA, "{len}-{max_len}");
        }
        // The erroneous PDU is longer than the report.
        assert_eq!(code(&[1, 10, 0, 0, 0, 0, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0]), ErrorCode::CORRUPT_DATA);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Bytes that can be read are written as PDUs that read the same.
        #[test]
        fn any_bytes_are_read_without_panic(
            version in 0u8..3, kind in 0u8..12, length in prop_oneof![Just(8u32), Just(12), Just(20), Just(24), Just(32), any::<u32>()],
            rest in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = vec![version, kind, 0, 1];
            bytes.extend(length.to_be_bytes());
            bytes.extend(rest);
            if let Ok(Some((version, pdu))) = read(&bytes) {
                let mut written = Vec::new();
                pdu.write(version, &mut written);
                prop_assert_eq!(read(&written), Ok(Some((version, pdu))));
            }
        }
    }
}
