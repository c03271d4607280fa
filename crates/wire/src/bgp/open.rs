//! OPEN: the identity and capabilities of a peer.

use super::AS_TRANS;
use super::capability::{Capabilities, Capability};
use super::message::{MessageType, finish, patch_u16, start};
use super::notification::{Notification, code, open};
use std::net::Ipv4Addr;

/// The only version of BGP.
pub const VERSION: u8 = 4;

/// The parameter that holds capabilities (RFC 5492).
const PARAM_CAPABILITIES: u8 = 2;
/// In place of a parameter type, it announces the extended form (RFC 9072).
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
    /// The NOTIFICATION to close with (RFC 4271 section 6.2). The session checks whether the AS
    /// number is the expected one and whether the router ID differs from ours.
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
        // RFC 7607: zero is no AS number.
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
    /// Lengths have two bytes.
    extended: bool,
}

impl<'a> Parameters<'a> {
    /// `optional` begins at the Optional Parameters Length field; `None` when the lengths do not add up.
    fn parse(optional: &'a [u8]) -> Option<Self> {
        let parameters = match optional {
            // RFC 9072 section 2: the type field decides, the one-byte length is to be ignored unless zero.
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
    /// Our AS number; the two-octet field has [`AS_TRANS`] when it needs four. The four-octet
    /// capability is sent when it is among `capabilities`.
    pub asn: u32,
    /// The hold time that we propose, in seconds.
    pub hold_time: u16,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// What we offer. All of them together must fit a message of 4,096 bytes.
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

#[cfg(test)]
mod tests {
    use super::super::capability::{
        AddPath, AddPathFamily, ExtendedNextHop, GracefulRestart, RestartFamilies,
    };
    use super::super::message::{MAX_LEN, frame};
    use super::*;

    /// The body of an OPEN of AS 65001 with hold time 90 and these optional parameters, length field included.
    fn body(optional: &[u8]) -> Vec<u8> {
        [&[4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 1], optional].concat()
    }

    fn subcode(body: &[u8]) -> u8 {
        let notification = Open::parse(body).unwrap_err();
        assert_eq!(notification.code, code::OPEN);
        notification.subcode
    }

    fn written(builder: OpenBuilder<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        builder.write(&mut out);
        let frame = frame(&out, MAX_LEN).unwrap().unwrap();
        assert_eq!((frame.kind, frame.total_len), (MessageType::Open, out.len()));
        frame.body.to_vec()
    }

    #[test]
    fn it_round_trips() {
        let capabilities = [
            Capability::Multiprotocol { afi: 1, safi: 1 },
            Capability::Multiprotocol { afi: 2, safi: 1 },
            Capability::RouteRefresh,
            Capability::ExtendedMessage,
            Capability::FourOctetAs(70000),
            Capability::GracefulRestart(GracefulRestart {
                restarting: false,
                notification: true,
                time: 4095,
                families: RestartFamilies::new(&[0, 1, 1, 0x80, 0, 2, 1, 0]),
            }),
            Capability::EnhancedRouteRefresh,
            Capability::Unknown { code: 200, value: &[1, 2, 3] },
        ];
        let router_id = [10, 0, 0, 1].into();
        let body = written(OpenBuilder { asn: 70000, hold_time: 90, router_id, capabilities: &capabilities });
        let open = Open::parse(&body).unwrap();
        assert_eq!((open.my_as, open.asn()), (AS_TRANS, 70000));
        assert_eq!((open.hold_time, open.router_id), (90, router_id));
        assert_eq!(open.capabilities().collect::<Vec<_>>(), capabilities);
    }

    #[test]
    fn long_capabilities_take_the_extended_form() {
        let value = [7; 200];
        let many = [Capability::Unknown { code: 200, value: &value }; 3];
        for (count, extended) in [(0, false), (1, false), (2, true), (3, true)] {
            let capabilities = &many[..count];
            let router_id = [10, 0, 0, 1].into();
            let body = written(OpenBuilder { asn: 65001, hold_time: 0, router_id, capabilities });
            assert_eq!(body.get(10) == Some(&EXTENDED), extended);
            let open = Open::parse(&body).unwrap();
            assert_eq!((open.my_as, open.asn(), open.hold_time), (65001, 65001, 0));
            assert_eq!(open.capabilities().collect::<Vec<_>>(), capabilities);
        }
    }

    #[test]
    fn what_other_implementations_send() {
        // One parameter for each capability.
        let body_of_two = body(&[8, 2, 2, 2, 0, 2, 2, 70, 0]);
        let found: Vec<_> = Open::parse(&body_of_two).unwrap().capabilities().collect();
        assert_eq!(found, [Capability::RouteRefresh, Capability::EnhancedRouteRefresh]);
        // The extended form for what did not need it.
        let extended = body(&[255, 255, 0, 7, 2, 0, 4, 2, 0, 6, 0]);
        let found: Vec<_> = Open::parse(&extended).unwrap().capabilities().collect();
        assert_eq!(found, [Capability::RouteRefresh, Capability::ExtendedMessage]);
        // Lists.
        let lists = body(&[
            22, 2, 20, 69, 4, 0, 1, 1, 3, 5, 6, 0, 1, 0, 1, 0, 2, 64, 6, 0x80, 120, 0, 2, 1, 0x80, 6, 0,
        ]);
        // Lengths must add up: the parameter holds 6 + 8 + 8 + 2 bytes.
        assert_eq!(subcode(&lists), open::UNSPECIFIC);
        let lists = body(&[
            26, 2, 24, 69, 4, 0, 1, 1, 3, 5, 6, 0, 1, 0, 1, 0, 2, 64, 6, 0x80, 120, 0, 2, 1, 0x80, 6, 0,
        ]);
        let open = Open::parse(&lists).unwrap();
        // Add-path, extended next hops, and graceful restart.
        let mut buf = Vec::new();
        let family = AddPathFamily { afi: 1, safi: 1, receive: true, send: true };
        let expected = [
            Capability::AddPath(AddPath::new(&[family], &mut buf)),
            Capability::ExtendedNextHop(ExtendedNextHop::IPV4_UNICAST_OVER_IPV6),
            Capability::GracefulRestart(GracefulRestart {
                restarting: true,
                notification: false,
                time: 120,
                families: RestartFamilies::new(&[0, 2, 1, 0x80]),
            }),
            Capability::ExtendedMessage,
        ];
        assert_eq!(open.capabilities().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn add_path_names_families_and_directions() {
        let family = |afi, receive, send| AddPathFamily { afi, safi: 1, receive, send };
        let families = [family(1, true, false), family(2, false, true), family(25, true, true)];
        let mut buf = Vec::new();
        let all = [families[0], families[1], family(3, false, false), families[2]];
        let capability = Capability::AddPath(AddPath::new(&all, &mut buf));
        let body = written(OpenBuilder {
            asn: 65001,
            hold_time: 90,
            router_id: [10, 0, 0, 1].into(),
            capabilities: &[capability],
        });
        assert_eq!(body[9..], [16, 2, 14, 69, 12, 0, 1, 1, 1, 0, 2, 1, 2, 0, 25, 1, 3][..]);
        let open = Open::parse(&body).unwrap();
        let read: Vec<_> = open.capabilities().collect();
        assert_eq!(read, [capability]);
        let Capability::AddPath(read) = read[0] else { panic!("{read:?}") };
        assert_eq!(read.families().collect::<Vec<_>>(), families);
        // RFC 7911 section 4: with any other value, and cut short, it counts as not sent.
        for value in
            [&[0, 1, 1, 0][..], &[0, 1, 1, 4], &[0, 1, 1, 3, 0, 2, 1, 7], &[0, 1, 1], &[0, 1, 1, 1, 0]]
        {
            let parameter =
                [&[value.len() as u8 + 4, 2, value.len() as u8 + 2, 69, value.len() as u8], value];
            let body = super::tests::body(&parameter.concat());
            let read: Vec<_> = Open::parse(&body).unwrap().capabilities().collect();
            assert_eq!(read, [Capability::Unknown { code: 69, value }]);
        }
    }

    #[test]
    fn a_capability_that_cannot_be_read_is_one_that_was_not_offered() {
        let short = body(&[7, 2, 5, 65, 3, 0, 0, 1]);
        let open = Open::parse(&short).unwrap();
        assert_eq!(open.asn(), 65001);
        let unknown = Capability::Unknown { code: 65, value: &[0, 0, 1] };
        assert_eq!(open.capabilities().collect::<Vec<_>>(), [unknown]);
    }

    /// RFC 4724 section 3: flags and time, then four bytes for each family.
    #[test]
    fn graceful_restart_has_its_flags_in_front_and_its_families_behind() {
        let mut families = Vec::new();
        RestartFamilies::push(&mut families, ribtide_prefix::AfiSafi::Ipv6Unicast, true);
        RestartFamilies::push(&mut families, ribtide_prefix::AfiSafi::Ipv4Unicast, false);
        let families = RestartFamilies::new(&families);
        let ours = GracefulRestart { restarting: true, notification: true, time: 300, families };
        let mut out = Vec::new();
        Capability::GracefulRestart(ours).write(&mut out);
        assert_eq!(out, [64, 10, 0xc1, 0x2c, 0, 2, 1, 0x80, 0, 1, 1, 0]);
        assert_eq!(ours.families.iter().collect::<Vec<_>>(), [(2, 1, true), (1, 1, false)]);
        let long = GracefulRestart { time: u16::MAX, ..GracefulRestart { restarting: false, ..ours } };
        let mut out = Vec::new();
        Capability::GracefulRestart(long).write(&mut out);
        assert_eq!(out[2..4], [0x4f, 0xff], "a time beyond twelve bits is no flag");
        // Of another length, it is no offer.
        for value in [&[][..], &[0], &[0, 9, 0], &[0, 9, 0, 1, 1]] {
            let list =
                [&[value.len() as u8 + 4, 2, value.len() as u8 + 2, 64, value.len() as u8], value].concat();
            let read = body(&list);
            let read: Vec<_> = Open::parse(&read).unwrap().capabilities().collect();
            assert_eq!(read, [Capability::Unknown { code: 64, value }]);
        }
    }

    #[test]
    fn errors_of_rfc_4271_section_6_2() {
        let version = Open::parse(&[3, 0, 1, 0, 90, 10, 0, 0, 1, 0]).unwrap_err();
        assert_eq!((version.subcode, version.data), (open::UNSUPPORTED_VERSION, vec![0, 4]));
        for hold_time in [1, 2] {
            assert_eq!(subcode(&[4, 0, 1, 0, hold_time, 10, 0, 0, 1, 0]), open::UNACCEPTABLE_HOLD_TIME);
        }
        assert!(Open::parse(&[4, 0, 1, 0, 3, 10, 0, 0, 1, 0]).is_ok());
        assert_eq!(subcode(&[4, 0, 1, 0, 90, 0, 0, 0, 0, 0]), open::BAD_IDENTIFIER);
        assert_eq!(subcode(&[4, 0, 0, 0, 90, 10, 0, 0, 1, 0]), open::BAD_PEER_AS);
        assert_eq!(subcode(&body(&[8, 2, 6, 65, 4, 0, 0, 0, 0])), open::BAD_PEER_AS);
        assert_eq!(subcode(&body(&[2, 1, 0])), open::UNSUPPORTED_PARAMETER);
    }

    #[test]
    fn lengths_that_do_not_add_up() {
        for optional in [
            &[][..],
            &[1],
            &[0, 0],
            &[1, 2],
            &[2, 2, 1],
            &[4, 2, 2, 2, 1],
            &[3, 2, 1, 2],
            &[255, 255, 0, 9, 2, 0, 0],
            &[255, 255, 0],
        ] {
            assert_eq!(subcode(&body(optional)), open::UNSPECIFIC, "{optional:?}");
        }
    }
}
