//! Router Advertisements and Solicitations of IPv6 Neighbor Discovery (RFC 4861 sections 4.1 and 4.2),
//! by which routers on a link learn each other's link-local addresses.
//!
//! The kernel computes and checks the ICMPv6 checksum.

/// The ICMPv6 type of a Router Solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// The ICMPv6 type of a Router Advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// The hop limit of every packet: one with less was forwarded by a router (RFC 4861 section 6.1).
pub const HOP_LIMIT: u8 = 255;

/// Bytes of a solicitation before its options.
const SOLICITATION_LEN: usize = 8;
/// Bytes of an advertisement before its options.
const ADVERTISEMENT_LEN: usize = 16;
/// The option with the sender's link-layer address.
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;

/// A received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A host or router wants advertisements.
    RouterSolicitation,
    /// The sender is a router.
    RouterAdvertisement {
        /// The seconds for which hosts may use it as a default router; 0: not at all.
        lifetime: u16,
    },
}

impl Message {
    /// Reads an ICMPv6 message. `None` if it is of another type, or invalid (RFC 4861 sections 6.1.1
    /// and 6.1.2): then it is discarded.
    pub fn parse(bytes: &[u8]) -> Option<Message> {
        let (message, options) = match bytes {
            [ROUTER_SOLICITATION, 0, ..] => (Message::RouterSolicitation, bytes.get(SOLICITATION_LEN..)?),
            [ROUTER_ADVERTISEMENT, 0, _, _, _, _, high, low, ..] => {
                let lifetime = u16::from_be_bytes([*high, *low]);
                (Message::RouterAdvertisement { lifetime }, bytes.get(ADVERTISEMENT_LEN..)?)
            }
            _ => return None,
        };
        are_options(options).then_some(message)
    }
}

/// Whether all options are whole, and none has length zero.
fn are_options(mut bytes: &[u8]) -> bool {
    while let [_, len, ..] = bytes {
        match bytes.get(8 * usize::from(*len)..) {
            Some(rest) if *len > 0 => bytes = rest,
            _ => return false,
        }
    }
    bytes.is_empty()
}

/// An advertisement of a router that hosts must not use as a default router: its lifetime is 0. It says
/// nothing else of the link. `mac`: the sender's link-layer address, if it has one.
pub fn router_advertisement(mac: Option<[u8; 6]>) -> Vec<u8> {
    let mut out = vec![0; ADVERTISEMENT_LEN];
    if let Some(kind) = out.first_mut() {
        *kind = ROUTER_ADVERTISEMENT;
    }
    write_link_layer_address(&mut out, mac);
    out
}

/// A solicitation of advertisements.
pub fn router_solicitation(mac: Option<[u8; 6]>) -> Vec<u8> {
    let mut out = vec![0; SOLICITATION_LEN];
    if let Some(kind) = out.first_mut() {
        *kind = ROUTER_SOLICITATION;
    }
    write_link_layer_address(&mut out, mac);
    out
}

fn write_link_layer_address(out: &mut Vec<u8>, mac: Option<[u8; 6]>) {
    if let Some(mac) = mac {
        out.extend_from_slice(&[SOURCE_LINK_LAYER_ADDRESS, 1]);
        out.extend_from_slice(&mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    #[test]
    fn parse_reads_what_is_sent() {
        for mac in [None, Some(MAC)] {
            let advertisement = Message::RouterAdvertisement { lifetime: 0 };
            assert_eq!(Message::parse(&router_advertisement(mac)), Some(advertisement));
            assert_eq!(Message::parse(&router_solicitation(mac)), Some(Message::RouterSolicitation));
        }
        assert_eq!(
            router_advertisement(Some(MAC)),
            [134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 1]
        );
    }

    #[test]
    fn parse_reads_advertisements_of_others_and_no_invalid_ones() {
        // With lifetime, timers, MTU and prefix, as routers of hosts send it.
        let mut other = vec![134, 0, 7, 7, 64, 0x40, 0x07, 0x08, 0, 0, 0, 1, 0, 0, 0, 2];
        other.extend_from_slice(&[5, 1, 0, 0, 0, 0, 5, 0xdc, 3, 4]);
        other.extend_from_slice(&[0; 30]);
        assert_eq!(Message::parse(&other), Some(Message::RouterAdvertisement { lifetime: 1800 }));
        for len in 0..other.len() {
            let whole = [16, 24].contains(&len);
            assert_eq!(Message::parse(&other[..len]).is_some(), whole, "{len}");
        }
        other[17] = 0;
        assert_eq!(Message::parse(&other), None, "an option of length zero");
        for wrong in [[135, 0], [134, 1], [133, 1]] {
            let mut bytes = router_advertisement(None);
            bytes[..2].copy_from_slice(&wrong);
            assert_eq!(Message::parse(&bytes), None);
        }
    }
}
