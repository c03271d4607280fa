//! NOTIFICATION: the reason of a session's end, as codes and as a sentence.

use super::attribute::{self, Attribute};
use super::message::{MessageType, finish, start};
use ribtide_prefix::AfiSafi;
use std::fmt;

/// Declares a table of codes: a constant for each, and the sentence that names it.
macro_rules! codes {
    ($(#[$doc:meta])* $table:ident: $($name:ident = $code:literal $text:literal,)*) => {
        $(#[$doc])*
        pub mod $table {
            $(
                #[doc = $text]
                pub const $name: u8 = $code;
            )*

            pub(super) fn text(code: u8) -> Option<&'static str> {
                Some(match code {
                    $($code => $text,)*
                    _ => return None,
                })
            }
        }
    };
}

codes! {
    /// Error codes (RFC 4271 section 4.5 and IANA's registry; 7: RFC 7313, 8: RFC 9687).
    code:
    HEADER = 1 "message header error",
    OPEN = 2 "OPEN message error",
    UPDATE = 3 "UPDATE message error",
    HOLD_TIMER_EXPIRED = 4 "hold timer expired",
    FSM = 5 "finite state machine error",
    CEASE = 6 "cease",
    ROUTE_REFRESH = 7 "ROUTE-REFRESH message error",
    SEND_HOLD_TIMER_EXPIRED = 8 "send hold timer expired",
}

codes! {
    /// Subcodes of a message header error (RFC 4271 section 6.1).
    header:
    NOT_SYNCHRONIZED = 1 "connection not synchronized",
    BAD_LENGTH = 2 "bad message length",
    BAD_TYPE = 3 "bad message type",
}

codes! {
    /// Subcodes of an OPEN message error (RFC 4271 section 6.2; 7: RFC 5492, 11: RFC 9234).
    open:
    UNSPECIFIC = 0 "unspecific",
    UNSUPPORTED_VERSION = 1 "unsupported version number",
    BAD_PEER_AS = 2 "bad peer AS",
    BAD_IDENTIFIER = 3 "bad BGP identifier",
    UNSUPPORTED_PARAMETER = 4 "unsupported optional parameter",
    UNACCEPTABLE_HOLD_TIME = 6 "unacceptable hold time",
    UNSUPPORTED_CAPABILITY = 7 "unsupported capability",
    ROLE_MISMATCH = 11 "role mismatch",
}

codes! {
    /// Subcodes of an UPDATE message error (RFC 4271 section 6.3).
    update:
    MALFORMED_ATTRIBUTE_LIST = 1 "malformed attribute list",
    UNRECOGNIZED_WELL_KNOWN = 2 "unrecognized well-known attribute",
    MISSING_WELL_KNOWN = 3 "missing well-known attribute",
    ATTRIBUTE_FLAGS = 4 "attribute flags error",
    ATTRIBUTE_LENGTH = 5 "attribute length error",
    INVALID_ORIGIN = 6 "invalid ORIGIN",
    INVALID_NEXT_HOP = 8 "invalid NEXT_HOP",
    OPTIONAL_ATTRIBUTE = 9 "optional attribute error",
    INVALID_NETWORK = 10 "invalid network field",
    MALFORMED_AS_PATH = 11 "malformed AS_PATH",
}

codes! {
    /// Subcodes of a finite state machine error (RFC 6608).
    fsm:
    UNSPECIFIED = 0 "unspecified error",
    UNEXPECTED_IN_OPEN_SENT = 1 "unexpected message in OpenSent",
    UNEXPECTED_IN_OPEN_CONFIRM = 2 "unexpected message in OpenConfirm",
    UNEXPECTED_IN_ESTABLISHED = 3 "unexpected message in Established",
}

codes! {
    /// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
    cease:
    MAX_PREFIXES = 1 "maximum number of prefixes reached",
    ADMIN_SHUTDOWN = 2 "administrative shutdown",
    PEER_DECONFIGURED = 3 "peer de-configured",
    ADMIN_RESET = 4 "administrative reset",
    CONNECTION_REJECTED = 5 "connection rejected",
    CONFIG_CHANGE = 6 "other configuration change",
    COLLISION = 7 "connection collision resolution",
    OUT_OF_RESOURCES = 8 "out of resources",
    HARD_RESET = 9 "hard reset",
    BFD_DOWN = 10 "BFD down",
}

codes! {
    /// Subcodes of a ROUTE-REFRESH message error (RFC 7313 section 5).
    route_refresh:
    INVALID_LENGTH = 1 "invalid message length",
}

/// The reason of a session's end. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notification {
    /// Error code, one of [`code`].
    pub code: u8,
    /// Error subcode; its meaning depends on the code. Zero: unspecific.
    pub subcode: u8,
    /// Diagnostic data; its meaning depends on code and subcode.
    pub data: Vec<u8>,
}

impl Notification {
    /// A notification without data.
    pub fn new(code: u8, subcode: u8) -> Self {
        Notification { code, subcode, data: Vec::new() }
    }

    /// A notification with data.
    pub fn with_data(code: u8, subcode: u8, data: Vec<u8>) -> Self {
        Notification { code, subcode, data }
    }

    /// A Cease of subcode [`cease`].
    pub fn cease(subcode: u8) -> Self {
        Notification::new(code::CEASE, subcode)
    }

    /// A Cease of subcode [`cease::ADMIN_SHUTDOWN`] or [`cease::ADMIN_RESET`] with a text for the peer's operator,
    /// of at most [`SHUTDOWN_TEXT_MAX`] bytes (RFC 9003 section 2). An empty text is none; a longer one is cut.
    pub fn cease_with_text(subcode: u8, text: &str) -> Self {
        let mut end = text.len().min(SHUTDOWN_TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        if text.is_empty() {
            return Notification::cease(subcode);
        }
        let data = [&[text.len() as u8], text.as_bytes()].concat();
        Notification::with_data(code::CEASE, subcode, data)
    }

    /// A Cease, Maximum Number of Prefixes Reached, with the family and the upper bound as data (RFC
    /// 4486 section 4).
    pub fn max_prefixes(family: AfiSafi, max: u32) -> Self {
        let data = [&family.to_bytes()[..], &max.to_be_bytes()].concat();
        Notification::with_data(code::CEASE, cease::MAX_PREFIXES, data)
    }

    /// This NOTIFICATION inside of a Hard Reset, which no side answers with a graceful restart (RFC 8538
    /// section 3.1).
    #[must_use]
    pub fn hard_reset(&self) -> Self {
        let data = [&[self.code, self.subcode], &self.data[..]].concat();
        Notification::with_data(code::CEASE, cease::HARD_RESET, data)
    }

    /// Whether it is a Hard Reset.
    pub fn is_hard_reset(&self) -> bool {
        self.code == code::CEASE && self.subcode == cease::HARD_RESET
    }

    /// The NOTIFICATION inside of a Hard Reset, if there is one.
    fn inside(&self) -> Option<Notification> {
        (self.is_hard_reset() && self.data.len() >= 2).then(|| Notification::parse(&self.data))
    }

    /// Parses the body of a NOTIFICATION. Missing fields count as unspecific, because errors in it
    /// must not be reported (RFC 4271 section 6.4).
    pub fn parse(body: &[u8]) -> Self {
        match body {
            [code, subcode, data @ ..] => Notification::with_data(*code, *subcode, data.to_vec()),
            [code] => Notification::new(*code, 0),
            [] => Notification::new(0, 0),
        }
    }

    /// Appends the message. Data beyond what a message of [`super::message::MAX_LEN`] holds is cut off.
    pub fn write(&self, out: &mut Vec<u8>) {
        let at = start(out, MessageType::Notification);
        out.extend_from_slice(&[self.code, self.subcode]);
        let room = super::message::MAX_LEN - super::message::HEADER_LEN - 2;
        out.extend_from_slice(self.data.get(..room).unwrap_or(&self.data));
        finish(out, at);
    }

    /// The text of a shutdown or reset from the peer's operator, if there is one (RFC 9003).
    pub fn shutdown_text(&self) -> Option<ShutdownText<'_>> {
        if self.code != code::CEASE || !matches!(self.subcode, cease::ADMIN_SHUTDOWN | cease::ADMIN_RESET) {
            return None;
        }
        let (len, rest) = self.data.split_first()?;
        match rest.get(..usize::from(*len)).map(str::from_utf8) {
            Some(Ok("")) => None,
            Some(Ok(text)) => Some(ShutdownText::Text(text)),
            Some(Err(_)) | None => {
                let shown = self.data.get(..=SHUTDOWN_TEXT_MAX).unwrap_or(&self.data);
                Some(ShutdownText::Malformed(shown))
            }
        }
    }

    /// The family and the upper bound of Maximum Number of Prefixes Reached, if the peer named them
    /// (RFC 4486 section 4).
    pub fn prefix_bound(&self) -> Option<(u16, u8, u32)> {
        let is_bound = self.code == code::CEASE && self.subcode == cease::MAX_PREFIXES;
        let [a, b, safi, max @ ..] = *self.data.first_chunk::<7>().filter(|_| is_bound)?;
        Some((u16::from_be_bytes([a, b]), safi, u32::from_be_bytes(max)))
    }

    /// The diagnostic data as text, decoded where the RFCs say what they are; `None`: there are none, or [`fmt::Display`] has them.
    pub fn data_text(&self) -> Option<String> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let is_shown = self.shutdown_text().is_some() || self.prefix_bound().is_some();
        if self.data.is_empty() || is_shown || self.is_hard_reset() {
            return None;
        }
        Some(match (self.code, self.subcode, self.data.as_slice()) {
            (code::HEADER, header::BAD_LENGTH, [high, low]) => {
                format!("the length was {}", u16::from_be_bytes([*high, *low]))
            }
            (code::HEADER, header::BAD_TYPE, [kind]) => format!("the type was {kind}"),
            (code::OPEN, open::UNSUPPORTED_VERSION, [high, low]) => {
                format!("version {} is supported", u16::from_be_bytes([*high, *low]))
            }
            (code::UPDATE, update::MISSING_WELL_KNOWN, [missing]) => match attribute::name(*missing) {
                Some(name) => format!("{name} is missing"),
                None => format!("attribute {missing} is missing"),
            },
            (code::UPDATE, update::UNRECOGNIZED_WELL_KNOWN..=update::OPTIONAL_ATTRIBUTE, data) => {
                match Attribute::split_first(data) {
                    Some((Attribute { flags, code, value }, _)) => {
                        let name =
                            attribute::name(code).map_or_else(|| format!("attribute {code}"), str::to_owned);
                        format!("{name} with flags {flags:02x} and value {}", hex(value))
                    }
                    None => format!("data {}", hex(data)),
                }
            }
            (_, _, data) => format!("data {}", hex(data)),
        })
    }

    /// The meaning of the subcode, or `None` without one or for an unknown one.
    fn detail(&self) -> Option<&'static str> {
        match self.code {
            _ if self.subcode == 0 => None,
            code::HEADER => header::text(self.subcode),
            code::OPEN => open::text(self.subcode),
            code::UPDATE => update::text(self.subcode),
            code::FSM => fsm::text(self.subcode),
            code::CEASE => cease::text(self.subcode),
            code::ROUTE_REFRESH => route_refresh::text(self.subcode),
            _ => None,
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match code::text(self.code) {
            Some(text) => f.write_str(text)?,
            None => write!(f, "unknown error {}", self.code)?,
        }
        match self.detail() {
            Some(detail) => write!(f, ": {detail}")?,
            None if self.subcode != 0 => write!(f, ": unknown subcode {}", self.subcode)?,
            None => {}
        }
        if let Some(text) = self.shutdown_text() {
            write!(f, " ({text})")?;
        }
        // One level: a Hard Reset inside of another is shown as such.
        if let Some(inside) = self.inside() {
            let data = if inside.is_hard_reset() { Vec::new() } else { inside.data };
            write!(f, " ({})", Notification { data, ..inside })?;
        }
        if let Some((afi, safi, max)) = self.prefix_bound() {
            match AfiSafi::from_codes(afi, safi) {
                Some(family) => write!(f, " ({max} of {family})")?,
                None => write!(f, " ({max} of AFI {afi}, SAFI {safi})")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Notification {}

/// The longest text of a shutdown or reset, in bytes (RFC 9003 section 2: its length is one octet).
pub const SHUTDOWN_TEXT_MAX: usize = 255;

/// The received text of a shutdown or reset. Displays as what an operator may see on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutdownText<'a> {
    /// UTF-8.
    Text(&'a str),
    /// Not UTF-8, or shorter than its length: the data, at most a length and a text. The log has it, and the
    /// session ends as with a well-formed text (RFC 9003 section 4).
    Malformed(&'a [u8]),
}

impl fmt::Display for ShutdownText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShutdownText::Text(text) => {
                // RFC 9003 section 6: neither line breaks and escape sequences, nor a reversed direction of writing.
                let shown = |c: char| {
                    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
                    if c.is_control() || reorders { ' ' } else { c }
                };
                write!(f, "\"{}\"", text.chars().map(shown).collect::<String>())
            }
            ShutdownText::Malformed(data) => {
                f.write_str("malformed text, in hexadecimal: ")?;
                data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::message::{MAX_LEN, frame};

    fn shutdown(text: &str) -> Notification {
        Notification::cease_with_text(cease::ADMIN_SHUTDOWN, text)
    }

    #[test]
    fn it_is_a_sentence() {
        for (notification, expected) in [
            (Notification::new(code::HOLD_TIMER_EXPIRED, 0), "hold timer expired"),
            (Notification::new(code::SEND_HOLD_TIMER_EXPIRED, 0), "send hold timer expired"),
            (Notification::cease(cease::ADMIN_RESET), "cease: administrative reset"),
            (shutdown("back at ten\u{1b}[2J"), "cease: administrative shutdown (\"back at ten [2J\")"),
            (shutdown("a\u{202e}b"), "cease: administrative shutdown (\"a b\")"),
            (shutdown(""), "cease: administrative shutdown"),
            (Notification::new(code::UPDATE, 7), "UPDATE message error: unknown subcode 7"),
            (Notification::new(99, 0), "unknown error 99"),
        ] {
            assert_eq!(notification.to_string(), expected);
        }
    }

    #[test]
    fn data_are_decoded_where_their_meaning_is_known() {
        let with = |code, subcode, data: &[u8]| Notification::with_data(code, subcode, data.to_vec());
        for (notification, expected) in [
            (with(code::HEADER, header::BAD_LENGTH, &[0, 18]), Some("the length was 18")),
            (with(code::HEADER, header::BAD_TYPE, &[9]), Some("the type was 9")),
            (with(code::OPEN, open::UNSUPPORTED_VERSION, &[0, 4]), Some("version 4 is supported")),
            (with(code::UPDATE, update::MISSING_WELL_KNOWN, &[2]), Some("AS_PATH is missing")),
            (with(code::UPDATE, 6, &[0x40, 1, 1, 9]), Some("ORIGIN with flags 40 and value 09")),
            (with(code::UPDATE, 5, &[0x40]), Some("data 40")),
            (with(code::OPEN, open::UNSUPPORTED_CAPABILITY, &[1, 4, 0, 1, 0, 1]), Some("data 010400010001")),
            (shutdown("back at ten"), None),
            (Notification::max_prefixes(AfiSafi::Ipv4Unicast, 7), None),
            (Notification::cease(cease::ADMIN_RESET), None),
        ] {
            assert_eq!(notification.data_text().as_deref(), expected);
        }
    }

    #[test]
    fn it_round_trips() {
        let text = "ä".repeat(127);
        let sent = shutdown(&text);
        let mut out = Vec::new();
        sent.write(&mut out);
        let received = Notification::parse(frame(&out, MAX_LEN).unwrap().unwrap().body);
        assert_eq!(received.shutdown_text(), Some(ShutdownText::Text(&text)));
        assert_eq!(received, sent);
        // The 128th character would need a 256th byte.
        assert_eq!(shutdown(&"ä".repeat(128)), sent);
    }

    /// RFC 8538 section 3.1: code, subcode and data of the reason are the data.
    #[test]
    fn a_hard_reset_has_its_reason_inside() {
        let hard = shutdown("bye").hard_reset();
        assert_eq!((hard.code, hard.subcode, &hard.data[..]), (6, 9, &[6, 2, 3, b'b', b'y', b'e'][..]));
        assert_eq!(hard.to_string(), "cease: hard reset (cease: administrative shutdown (\"bye\"))");
        let deep = hard.hard_reset().hard_reset();
        assert_eq!(deep.to_string(), "cease: hard reset (cease: hard reset)");
        for data in [vec![], vec![6]] {
            assert_eq!(Notification::with_data(6, 9, data).to_string(), "cease: hard reset");
        }
    }

    #[test]
    fn data_is_cut_to_a_message() {
        let mut out = Vec::new();
        Notification::with_data(3, 9, vec![0; 9000]).write(&mut out);
        assert_eq!(out.len(), MAX_LEN);
        assert!(frame(&out, MAX_LEN).unwrap().is_some());
    }

    #[test]
    fn max_prefixes_has_family_and_bound_as_rfc_4486_section_4_has_them() {
        let sent = Notification::max_prefixes(AfiSafi::Ipv6Unicast, 100_000);
        assert_eq!((sent.code, sent.subcode), (6, 1));
        assert_eq!(sent.data, [0, 2, 1, 0, 1, 0x86, 0xa0]);
        assert_eq!(sent.to_string(), "cease: maximum number of prefixes reached (100000 of ipv6-unicast)");
        let vpn = Notification::with_data(6, 1, vec![0, 1, 128, 0, 0, 0, 9]);
        assert!(vpn.to_string().ends_with("reached (9 of AFI 1, SAFI 128)"));
        // The data is optional, and another subcode's is not taken for it.
        assert_eq!(Notification::cease(1).to_string(), "cease: maximum number of prefixes reached");
        assert_eq!(Notification::with_data(6, 3, sent.data).prefix_bound(), None);
    }

    /// RFC 9003 section 4: the operator gets a message about it, in hexadecimal.
    #[test]
    fn a_malformed_shutdown_text_is_shown_in_hexadecimal() {
        for (data, shown) in [(vec![9, b'x'], "0978"), (vec![2, 0xc3, 0x28], "02c328")] {
            let n = Notification::with_data(code::CEASE, cease::ADMIN_RESET, data);
            let expected = format!("cease: administrative reset (malformed text, in hexadecimal: {shown})");
            assert_eq!(n.to_string(), expected);
        }
        let long = Notification::with_data(code::CEASE, cease::ADMIN_RESET, vec![0xff; 60_000]);
        assert!(long.to_string().len() < 600, "{long}");
        let other = Notification::with_data(code::CEASE, cease::PEER_DECONFIGURED, vec![9, b'x']);
        assert_eq!(other.to_string(), "cease: peer de-configured", "its data is no text");
        assert_eq!(Notification::parse(&[]), Notification::new(0, 0));
    }
}
