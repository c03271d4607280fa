//! NOTIFICATION: the reason of a session's end, as codes and as a sentence.

use super::message::{MessageType, finish, start};
use std::fmt;

/// Error codes (RFC 4271 section 4.5 and IANA's registry).
pub mod code {
    /// Message header error.
    pub const HEADER: u8 = 1;
    /// OPEN message error.
    pub const OPEN: u8 = 2;
    /// UPDATE message error.
    pub const UPDATE: u8 = 3;
    /// Hold timer expired.
    pub const HOLD_TIMER_EXPIRED: u8 = 4;
    /// Finite state machine error.
    pub const FSM: u8 = 5;
    /// Cease.
    pub const CEASE: u8 = 6;
    /// ROUTE-REFRESH message error (RFC 7313).
    pub const ROUTE_REFRESH: u8 = 7;
    /// Send hold timer expired (RFC 9687).
    pub const SEND_HOLD_TIMER_EXPIRED: u8 = 8;
}

/// Subcodes of a message header error (RFC 4271 section 6.1).
pub mod header {
    /// Connection not synchronized.
    pub const NOT_SYNCHRONIZED: u8 = 1;
    /// Bad message length.
    pub const BAD_LENGTH: u8 = 2;
    /// Bad message type.
    pub const BAD_TYPE: u8 = 3;
}

/// Subcodes of an OPEN message error (RFC 4271 section 6.2).
pub mod open {
    /// Unspecific: the message could not be read.
    pub const UNSPECIFIC: u8 = 0;
    /// Unsupported version number.
    pub const UNSUPPORTED_VERSION: u8 = 1;
    /// Bad peer AS.
    pub const BAD_PEER_AS: u8 = 2;
    /// Bad BGP identifier.
    pub const BAD_IDENTIFIER: u8 = 3;
    /// Unsupported optional parameter.
    pub const UNSUPPORTED_PARAMETER: u8 = 4;
    /// Unacceptable hold time.
    pub const UNACCEPTABLE_HOLD_TIME: u8 = 6;
    /// Unsupported capability (RFC 5492).
    pub const UNSUPPORTED_CAPABILITY: u8 = 7;
    /// Role mismatch (RFC 9234).
    pub const ROLE_MISMATCH: u8 = 11;
}

/// Subcodes of an UPDATE message error (RFC 4271 section 6.3).
pub mod update {
    /// Malformed attribute list.
    pub const MALFORMED_ATTRIBUTE_LIST: u8 = 1;
    /// Unrecognized well-known attribute.
    pub const UNRECOGNIZED_WELL_KNOWN: u8 = 2;
    /// Missing well-known attribute.
    pub const MISSING_WELL_KNOWN: u8 = 3;
    /// Attribute flags error.
    pub const ATTRIBUTE_FLAGS: u8 = 4;
    /// Attribute length error.
    pub const ATTRIBUTE_LENGTH: u8 = 5;
    /// Invalid ORIGIN.
    pub const INVALID_ORIGIN: u8 = 6;
    /// Invalid NEXT_HOP.
    pub const INVALID_NEXT_HOP: u8 = 8;
    /// Optional attribute error.
    pub const OPTIONAL_ATTRIBUTE: u8 = 9;
    /// Invalid network field.
    pub const INVALID_NETWORK: u8 = 10;
    /// Malformed AS_PATH.
    pub const MALFORMED_AS_PATH: u8 = 11;
}

/// Subcodes of a finite state machine error (RFC 6608).
pub mod fsm {
    /// Unspecified error.
    pub const UNSPECIFIED: u8 = 0;
    /// Unexpected message in OpenSent.
    pub const UNEXPECTED_IN_OPEN_SENT: u8 = 1;
    /// Unexpected message in OpenConfirm.
    pub const UNEXPECTED_IN_OPEN_CONFIRM: u8 = 2;
    /// Unexpected message in Established.
    pub const UNEXPECTED_IN_ESTABLISHED: u8 = 3;
}

/// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
pub mod cease {
    /// Maximum number of prefixes reached.
    pub const MAX_PREFIXES: u8 = 1;
    /// Administrative shutdown.
    pub const ADMIN_SHUTDOWN: u8 = 2;
    /// Peer de-configured.
    pub const PEER_DECONFIGURED: u8 = 3;
    /// Administrative reset.
    pub const ADMIN_RESET: u8 = 4;
    /// Connection rejected.
    pub const CONNECTION_REJECTED: u8 = 5;
    /// Other configuration change.
    pub const CONFIG_CHANGE: u8 = 6;
    /// Connection collision resolution.
    pub const COLLISION: u8 = 7;
    /// Out of resources.
    pub const OUT_OF_RESOURCES: u8 = 8;
    /// Hard reset.
    pub const HARD_RESET: u8 = 9;
    /// BFD down.
    pub const BFD_DOWN: u8 = 10;
}

/// Subcodes of a ROUTE-REFRESH message error (RFC 7313 section 5).
pub mod route_refresh {
    /// Invalid message length.
    pub const INVALID_LENGTH: u8 = 1;
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

    /// The text that the peer's operator gave for a shutdown or reset (RFC 9003), if there is one.
    pub fn shutdown_text(&self) -> Option<String> {
        if self.code != code::CEASE || !matches!(self.subcode, cease::ADMIN_SHUTDOWN | cease::ADMIN_RESET) {
            return None;
        }
        let (len, rest) = self.data.split_first()?;
        let text = String::from_utf8_lossy(rest.get(..usize::from(*len))?);
        // The peer's text may be shown on a terminal: no line breaks, no escape sequences.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        (!text.is_empty()).then_some(text)
    }

    /// The meaning of the subcode, or `None` without one or for an unknown one.
    fn detail(&self) -> Option<&'static str> {
        Some(match (self.code, self.subcode) {
            (code::HEADER, header::NOT_SYNCHRONIZED) => "connection not synchronized",
            (code::HEADER, header::BAD_LENGTH) => "bad message length",
            (code::HEADER, header::BAD_TYPE) => "bad message type",
            (code::OPEN, open::UNSUPPORTED_VERSION) => "unsupported version number",
            (code::OPEN, open::BAD_PEER_AS) => "bad peer AS",
            (code::OPEN, open::BAD_IDENTIFIER) => "bad BGP identifier",
            (code::OPEN, open::UNSUPPORTED_PARAMETER) => "unsupported optional parameter",
            (code::OPEN, open::UNACCEPTABLE_HOLD_TIME) => "unacceptable hold time",
            (code::OPEN, open::UNSUPPORTED_CAPABILITY) => "unsupported capability",
            (code::OPEN, open::ROLE_MISMATCH) => "role mismatch",
            (code::UPDATE, update::MALFORMED_ATTRIBUTE_LIST) => "malformed attribute list",
            (code::UPDATE, update::UNRECOGNIZED_WELL_KNOWN) => "unrecognized well-known attribute",
            (code::UPDATE, update::MISSING_WELL_KNOWN) => "missing well-known attribute",
            (code::UPDATE, update::ATTRIBUTE_FLAGS) => "attribute flags error",
            (code::UPDATE, update::ATTRIBUTE_LENGTH) => "attribute length error",
            (code::UPDATE, update::INVALID_ORIGIN) => "invalid ORIGIN",
            (code::UPDATE, update::INVALID_NEXT_HOP) => "invalid NEXT_HOP",
            (code::UPDATE, update::OPTIONAL_ATTRIBUTE) => "optional attribute error",
            (code::UPDATE, update::INVALID_NETWORK) => "invalid network field",
            (code::UPDATE, update::MALFORMED_AS_PATH) => "malformed AS_PATH",
            (code::FSM, fsm::UNEXPECTED_IN_OPEN_SENT) => "unexpected message in OpenSent",
            (code::FSM, fsm::UNEXPECTED_IN_OPEN_CONFIRM) => "unexpected message in OpenConfirm",
            (code::FSM, fsm::UNEXPECTED_IN_ESTABLISHED) => "unexpected message in Established",
            (code::CEASE, cease::MAX_PREFIXES) => "maximum number of prefixes reached",
            (code::CEASE, cease::ADMIN_SHUTDOWN) => "administrative shutdown",
            (code::CEASE, cease::PEER_DECONFIGURED) => "peer de-configured",
            (code::CEASE, cease::ADMIN_RESET) => "administrative reset",
            (code::CEASE, cease::CONNECTION_REJECTED) => "connection rejected",
            (code::CEASE, cease::CONFIG_CHANGE) => "other configuration change",
            (code::CEASE, cease::COLLISION) => "connection collision resolution",
            (code::CEASE, cease::OUT_OF_RESOURCES) => "out of resources",
            (code::CEASE, cease::HARD_RESET) => "hard reset",
            (code::CEASE, cease::BFD_DOWN) => "BFD down",
            (code::ROUTE_REFRESH, route_refresh::INVALID_LENGTH) => "invalid message length",
            _ => return None,
        })
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            code::HEADER => f.write_str("message header error")?,
            code::OPEN => f.write_str("OPEN message error")?,
            code::UPDATE => f.write_str("UPDATE message error")?,
            code::HOLD_TIMER_EXPIRED => f.write_str("hold timer expired")?,
            code::FSM => f.write_str("finite state machine error")?,
            code::CEASE => f.write_str("cease")?,
            code::ROUTE_REFRESH => f.write_str("ROUTE-REFRESH message error")?,
            code::SEND_HOLD_TIMER_EXPIRED => f.write_str("send hold timer expired")?,
            other => write!(f, "unknown error {other}")?,
        }
        match self.detail() {
            Some(detail) => write!(f, ": {detail}")?,
            None if self.subcode != 0 => write!(f, ": unknown subcode {}", self.subcode)?,
            None => {}
        }
        if let Some(text) = self.shutdown_text() {
            write!(f, " (\"{text}\")")?;
        }
        Ok(())
    }
}

impl std::error::Error for Notification {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::message::{MAX_LEN, frame};

    /// An administrative shutdown whose text is `text`, at most 255 bytes (RFC 9003).
    fn shutdown(text: &str) -> Notification {
        let data = [&[text.len() as u8], text.as_bytes()].concat();
        Notification::with_data(code::CEASE, cease::ADMIN_SHUTDOWN, data)
    }

    #[test]
    fn it_is_a_sentence() {
        for (notification, expected) in [
            (Notification::new(code::HOLD_TIMER_EXPIRED, 0), "hold timer expired"),
            (Notification::new(code::SEND_HOLD_TIMER_EXPIRED, 0), "send hold timer expired"),
            (Notification::cease(cease::ADMIN_RESET), "cease: administrative reset"),
            (shutdown("back at ten\u{1b}[2J"), "cease: administrative shutdown (\"back at ten [2J\")"),
            (Notification::new(code::UPDATE, 7), "UPDATE message error: unknown subcode 7"),
            (Notification::new(99, 0), "unknown error 99"),
        ] {
            assert_eq!(notification.to_string(), expected);
        }
    }

    #[test]
    fn it_round_trips() {
        let sent = shutdown(&"ä".repeat(127));
        let mut out = Vec::new();
        sent.write(&mut out);
        assert_eq!(Notification::parse(frame(&out, MAX_LEN).unwrap().unwrap().body), sent);
        assert_eq!(sent.shutdown_text().unwrap().chars().count(), 127);
    }

    #[test]
    fn data_is_cut_to_a_message() {
        let mut out = Vec::new();
        Notification::with_data(3, 9, vec![0; 9000]).write(&mut out);
        assert_eq!(out.len(), MAX_LEN);
        assert!(frame(&out, MAX_LEN).unwrap().is_some());
    }

    #[test]
    fn a_shutdown_text_longer_than_its_data_is_none() {
        let n = Notification::with_data(code::CEASE, cease::ADMIN_SHUTDOWN, vec![9, b'x']);
        assert_eq!(n.to_string(), "cease: administrative shutdown");
        assert_eq!(Notification::parse(&[]), Notification::new(0, 0));
    }
}
