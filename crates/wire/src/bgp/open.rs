//! OPEN: who the peer is and what it can do.

use super::AS_TRANS;
use super::capability::{Capabilities, Capability};
use super::message::{MessageType, finish, patch_u16, start};
use super::notification::{Notification, code, open};
use std::net::Ipv4Addr;

/// The only version of BGP.
pub const VERSION: u8 = 4;

/// The parameter that holds capabilities (RFC 5492).
const PARAM_CAPABILITIES: u8 = 2;
/// In place of a parameter type: the extended form follows (RFC 9072).
const EXTENDED: u8 = 255;

/// A received OPEN, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// The two-octet AS number field; [`AS_TRANS`] when the peer's needs four. See [`Open::asn`].
    pub my_as: u16,
    /// The hold time that the peer proposes, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// The peer's BGP identifier; never 0.0.0.0.
    pub router_id: Ipv4Addr,
    parameters: Parameters<'a>,
}

impl<'a> Open<'a> {
    /// Reads and checks the body of an OPEN.
    ///
    /// # Errors
    /// The NOTIFICATION to close with (RFC 4271 section 6.2). Whether the AS number is the expected one, and
    /// whether the router id differs from ours, is for the session to check.
    pub fn parse(body: &'a [u8]) -> Result<Open<'a>, Notification> {
        let unreadable = || Notification::new(code::OPEN, open::UNSPECIFIC);
        let Some(([version, as1, as2, hold1, hold2, a, b, c, d], optional)) = body.split_first_chunk::<9>()
        else {
            return Err(unreadable());
        };
        if *version != VERSION {
            let supported = u16::from(VERSION).to_be_bytes().to_vec();
            return Err(Notification::with_data(code::OPEN, open::UNSUPPORTED_VERSION, supported));
        }
        let parameters = Parameters::parse(optional).ok_or_else(unreadable)?;
        let open = Open {
            my_as: u16::from_be_bytes([*as1, *as2]),
            hold_time: u16::from_be_bytes([*hold1, *hold2]),
            router_id: Ipv4Addr::new(*a, *b, *c, *d),
            parameters,
        };
        for (kind, value) in parameters {
            if kind != PARAM_CAPABILITIES {
                return Err(Notification::new(code::OPEN, open::UNSUPPORTED_PARAMETER));
            }
            let mut capabilities = Capabilities { rest: value };
            capabilities.by_ref().for_each(drop);
            if !capabilities.rest.is_empty() {
                return Err(unreadable());
            }
        }
        // RFC 7607: zero is nobody's AS number.
        if open.my_as == 0 || open.asn() == 0 {
            return Err(Notification::new(code::OPEN, open::BAD_PEER_AS));
        }
        if matches!(open.hold_time, 1 | 2) {
            return Err(Notification::new(code::OPEN, open::UNACCEPTABLE_HOLD_TIME));
        }
        if open.router_id.is_unspecified() {
            return Err(Notification::new(code::OPEN, open::BAD_IDENTIFIER));
        }
        Ok(open)
    }

    /// The peer's AS number: from the four-octet capability if it sent one.
    pub fn asn(&self) -> u32 {
        let four = self.capabilities().find_map(|c| match c {
            Capability::FourOctetAs(asn) => Some(asn),
            _ => None,
        });
        four.unwrap_or(u32::from(self.my_as))
    }

    /// All capabilities, in the order received. One may be there more than once.
    pub fn capabilities(&self) -> impl Iterator<Item = Capability<'a>> + use<'a> {
        self.parameters
            .filter(|(kind, _)| *kind == PARAM_CAPABILITIES)
            .flat_map(|(_, value)| Capabilities { rest: value })
    }
}

/// The optional parameters: pairs of type and value. Their structure was checked when made by `parse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Parameters<'a> {
    rest: &'a [u8],
    /// Lengths have two octets.
    extended: bool,
}

impl<'a> Parameters<'a> {
    /// `optional` begins at the Optional Parameters Length field; `None` when the lengths do not add up.
    fn parse(optional: &'a [u8]) -> Option<Self> {
        let parameters = match optional {
            // RFC 9072 section 2: the type field decides, the one-octet length is to be ignored unless zero.
            [len, EXTENDED, a, b, rest @ ..] if *len != 0 => {
                let rest = (rest.len() == usize::from(u16::from_be_bytes([*a, *b]))).then_some(rest)?;
                Parameters { rest, extended: true }
            }
            [len, rest @ ..] if rest.len() == usize::from(*len) => Parameters { rest, extended: false },
            _ => return None,
        };
        let mut walk = parameters;
        walk.by_ref().for_each(drop);
        walk.rest.is_empty().then_some(parameters)
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (kind, len, rest) = match self.rest {
            [kind, a, b, rest @ ..] if self.extended => (*kind, u16::from_be_bytes([*a, *b]), rest),
            [kind, len, rest @ ..] if !self.extended => (*kind, u16::from(*len), rest),
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(usize::from(len))?;
        self.rest = rest;
        Some((kind, value))
    }
}

/// An OPEN to send.
#[derive(Clone, Copy, Debug)]
pub struct OpenBuilder<'a> {
    /// Our AS number; the two-octet field says [`AS_TRANS`] when it needs four. The four-octet capability
    /// is sent when it is among `capabilities`.
    pub asn: u32,
    /// The hold time that we propose, in seconds.
    pub hold_time: u16,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// What we offer. All of them together must fit a message of 4,096 octets.
    pub capabilities: &'a [Capability<'a>],
}

impl OpenBuilder<'_> {
    /// Appends the message: all capabilities in one parameter, in the extended form (RFC 9072) only when it
    /// is needed.
    pub fn write(&self, out: &mut Vec<u8>) {
        let at = start(out, MessageType::Open);
        out.push(VERSION);
        out.extend_from_slice(&u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
        out.extend_from_slice(&self.hold_time.to_be_bytes());
        out.extend_from_slice(&self.router_id.octets());
        let mut capabilities = Vec::new();
        for capability in self.capabilities {
            capability.write(&mut capabilities);
        }
        match u8::try_from(capabilities.len()) {
            Ok(0) => out.push(0),
            Ok(len @ 1..=253) => out.extend_from_slice(&[len + 2, PARAM_CAPABILITIES, len]),
            _ => {
                let lengths = out.len() + 2;
                out.extend_from_slice(&[EXTENDED, EXTENDED, 0, 0, PARAM_CAPABILITIES, 0, 0]);
                patch_u16(out, lengths, capabilities.len() + 3);
                patch_u16(out, lengths + 3, capabilities.len());
            }
        }
        out.extend_from_slice(&capabilities);
        finish(out, at);
    }
}
