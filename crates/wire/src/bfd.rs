//! BFD control packets (RFC 5880 section 4), read and written whole: they are 24 bytes long.
//!
//! [`Control::parse`] makes those checks of section 6.8.6 that need no session; the others are in the crate `bfd`.

use std::fmt;

/// The UDP port that sessions over a single hop are received on (RFC 5881 section 4).
pub const SINGLE_HOP_PORT: u16 = 3784;
/// The UDP port that sessions over several hops are received on (RFC 5883 section 5).
pub const MULTIHOP_PORT: u16 = 4784;
/// The first of the UDP ports that packets are sent from (RFC 5881 section 4); the last is 65535.
pub const FIRST_SOURCE_PORT: u16 = 49_152;
/// The TTL or hop limit that packets are sent with, and over a single hop arrive with (RFC 5881 section 5).
pub const TTL: u8 = 255;
/// Length of a packet without an authentication section, in bytes.
pub const LENGTH: usize = 24;

const VERSION: u8 = 1;
/// Length with the shortest authentication section.
const LENGTH_WITH_AUTHENTICATION: u8 = 26;

/// The states of a session (RFC 5880 section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Kept down by an operator.
    AdminDown,
    /// No packet came from the other side during the detection time.
    Down,
    /// The other side sends, but has not received our packets yet.
    Init,
    /// Each side receives the other's packets.
    Up,
}

impl State {
    /// The RFC's name.
    pub fn name(self) -> &'static str {
        match self {
            State::AdminDown => "AdminDown",
            State::Down => "Down",
            State::Init => "Init",
            State::Up => "Up",
        }
    }

    fn from_bits(bits: u8) -> State {
        match bits & 3 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason of a session's last change of state (RFC 5880 section 4.1), 0 to 31. Displays as
/// words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    /// No diagnostic.
    pub const NONE: Diagnostic = Diagnostic(0);
    /// No packet came for the detection time.
    pub const DETECTION_TIME_EXPIRED: Diagnostic = Diagnostic(1);
    /// The other side signalled that its session is down.
    pub const NEIGHBOR_SIGNALED_DOWN: Diagnostic = Diagnostic(3);
    /// An operator keeps the session down.
    pub const ADMINISTRATIVELY_DOWN: Diagnostic = Diagnostic(7);
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "none",
            1 => "detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            9 => "misconnectivity defect",
            other => return write!(f, "diagnostic {other}"),
        })
    }
}

/// A control packet. Intervals are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// The reason of the last change of state of the sender's session.
    pub diagnostic: Diagnostic,
    /// The state of the sender's session.
    pub state: State,
    /// The sender wants a reply with [`Control::finished`] set.
    pub poll: bool,
    /// The reply to a poll.
    pub finished: bool,
    /// The sender's BFD goes on while its control plane restarts.
    pub control_plane_independent: bool,
    /// There is an authentication section.
    pub authenticated: bool,
    /// The sender wants no packets while both sides are up, but those that poll.
    pub demand: bool,
    /// How many packets may be missing before the session is down; at least 1.
    pub multiplier: u8,
    /// The sender's number for the session, never 0.
    pub my_discriminator: u32,
    /// The receiver's number for the session, or 0 when the sender does not know it.
    pub your_discriminator: u32,
    /// Desired Min TX Interval of the sender.
    pub desired_min_tx: u32,
    /// Required Min RX Interval of the sender; 0: it accepts no packets.
    pub required_min_rx: u32,
    /// Required Min Echo RX Interval of the sender; 0: it accepts no echo packets.
    pub required_min_echo_rx: u32,
}

/// The reason to discard a packet, for any session (RFC 5880 section 6.8.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Malformed {
    /// Its version is not 1.
    Version,
    /// It is shorter than a packet or than its length field, or that field is too small.
    Length,
    /// Its detection multiplier is 0.
    Multiplier,
    /// Its multipoint bit is set.
    Multipoint,
    /// Its own discriminator is 0.
    Discriminator,
    /// Its Your Discriminator is 0 in a state that requires one.
    State,
}

impl Control {
    /// Parses the UDP payload `bytes`. Bytes after the packet are ignored, as is the content of an
    /// authentication section.
    ///
    /// # Errors
    /// The reason to discard the packet.
    pub fn parse(bytes: &[u8]) -> Result<Control, Malformed> {
        let Some((&[first, flags, multiplier, length], rest)) = bytes.split_first_chunk() else {
            return Err(Malformed::Length);
        };
        if first >> 5 != VERSION {
            return Err(Malformed::Version);
        }
        let bit = |n: u8| flags & (1 << n) != 0;
        let authenticated = bit(2);
        let shortest = if authenticated { LENGTH_WITH_AUTHENTICATION } else { LENGTH as u8 };
        let Some((words, _)) = rest.split_first_chunk::<20>() else { return Err(Malformed::Length) };
        if length < shortest || usize::from(length) > bytes.len() {
            return Err(Malformed::Length);
        }
        if multiplier == 0 {
            return Err(Malformed::Multiplier);
        }
        if bit(0) {
            return Err(Malformed::Multipoint);
        }
        let mut words = words
            .chunks_exact(4)
            .map(|word| word.iter().fold(0u32, |number, byte| (number << 8) | u32::from(*byte)));
        let mut word = || words.next().unwrap_or_default();
        let control = Control {
            diagnostic: Diagnostic(first & 31),
            state: State::from_bits(flags >> 6),
            poll: bit(5),
            finished: bit(4),
            control_plane_independent: bit(3),
            authenticated,
            demand: bit(1),
            multiplier,
            my_discriminator: word(),
            your_discriminator: word(),
            desired_min_tx: word(),
            required_min_rx: word(),
            required_min_echo_rx: word(),
        };
        if control.my_discriminator == 0 {
            return Err(Malformed::Discriminator);
        }
        if control.your_discriminator == 0 && control.state > State::Down {
            return Err(Malformed::State);
        }
        Ok(control)
    }

    /// The packet's bytes. There is no authentication section.
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let flags =
            [(self.poll, 5), (self.finished, 4), (self.control_plane_independent, 3), (self.demand, 1)];
        let flags = flags.iter().fold((self.state as u8) << 6, |f, (on, n)| f | (u8::from(*on) << n));
        let head = [(VERSION << 5) | (self.diagnostic.0 & 31), flags, self.multiplier, LENGTH as u8];
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx,
            self.required_min_rx,
            self.required_min_echo_rx,
        ];
        let words = words.into_iter().flat_map(u32::to_be_bytes);
        for (to, from) in bytes.iter_mut().zip(head.into_iter().chain(words)) {
            *to = from;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet as another implementation sends it: FRR's bfdd, up, polling.
    const BYTES: [u8; 24] = [
        0x20, 0xe0, 0x03, 0x18, 0x9a, 0x1b, 0x02, 0x03, 0x00, 0x00, 0x00, 0x07, 0x00, 0x04, 0x93, 0xe0, 0x00,
        0x00, 0xc3, 0x50, 0x00, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn a_packet_is_read_and_written() {
        let control = Control::parse(&BYTES).unwrap();
        assert_eq!(
            control,
            Control {
                diagnostic: Diagnostic::NONE,
                state: State::Up,
                poll: true,
                finished: false,
                control_plane_independent: false,
                authenticated: false,
                demand: false,
                multiplier: 3,
                my_discriminator: 0x9a1b_0203,
                your_discriminator: 7,
                desired_min_tx: 300_000,
                required_min_rx: 50_000,
                required_min_echo_rx: 0,
            }
        );
        assert_eq!(control.to_bytes(), BYTES);
    }

    #[test]
    fn what_cannot_be_is_discarded() {
        let with = |changes: &[(usize, u8)]| {
            let mut bytes = BYTES;
            changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            Control::parse(&bytes)
        };
        assert_eq!(with(&[(0, 0x40)]), Err(Malformed::Version));
        assert_eq!(with(&[(3, 23)]), Err(Malformed::Length), "too small");
        assert_eq!(with(&[(3, 25)]), Err(Malformed::Length), "longer than the payload");
        assert_eq!(with(&[(1, 0xe4)]), Err(Malformed::Length), "no authentication section");
        assert_eq!(with(&[(2, 0)]), Err(Malformed::Multiplier));
        assert_eq!(with(&[(1, 0xe1)]), Err(Malformed::Multipoint));
        assert_eq!(with(&[(4, 0), (5, 0), (6, 0), (7, 0)]), Err(Malformed::Discriminator));
        assert_eq!(with(&[(11, 0)]), Err(Malformed::State));
        assert!(with(&[(11, 0), (1, 0x40)]).is_ok(), "down, it need not know us");
        let mut long = BYTES.to_vec();
        long.extend([1, 4, 1, 0]);
        (long[1], long[3]) = (0xe4, 28);
        assert!(Control::parse(&long).unwrap().authenticated);
    }

    #[test]
    fn diagnostics_have_words() {
        assert_eq!(Diagnostic::DETECTION_TIME_EXPIRED.to_string(), "detection time expired");
        assert_eq!(Diagnostic(31).to_string(), "diagnostic 31");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(control) = Control::parse(&bytes)
                && !control.authenticated
            {
                let written = control.to_bytes();
                prop_assert_eq!(Control::parse(&written), Ok(control));
                prop_assert_eq!(&written[4..], &bytes[4..24]);
            }
        }
    }
}
