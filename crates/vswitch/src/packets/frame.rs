//! Ethernet frames and IP headers: reads of what arrived, and the header of what leaves.
//!
//! Every function takes any bytes. What is no packet gives [`Drop::Malformed`].

use super::Drop;
use ribtide_swss::row::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const MPLS: u16 = 0x8847;

/// Bytes of both addresses.
const ADDRESSES: usize = 12;
/// Bytes of a tag, with its protocol.
const TAG: usize = 4;

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ethernet {
    pub(crate) dst: Mac,
    pub(crate) src: Mac,
    /// The VLAN of its tag; `None` without one, or with one that has a priority only (IEEE 802.1Q, 9.6).
    pub(crate) vlan: Option<u16>,
    /// The priority and drop eligibility of its tag (PCP and DEI, IEEE 802.1Q, 9.6), in their bits of
    /// the tag; 0 without one.
    pub(crate) priority: u16,
    /// The protocol behind the tag.
    pub(crate) protocol: u16,
    /// The offset behind the header.
    pub(crate) payload: usize,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

impl Ethernet {
    pub(crate) fn read(frame: &[u8]) -> Option<Ethernet> {
        let (dst, src) = (Mac(array(frame, 0)?), Mac(array(frame, 6)?));
        let protocol = word(frame, ADDRESSES)?;
        if protocol != VLAN {
            return Some(Ethernet { dst, src, vlan: None, priority: 0, protocol, payload: ADDRESSES + 2 });
        }
        let tag = word(frame, ADDRESSES + 2)?;
        let (vlan, priority) = (Some(tag & 0xfff).filter(|vlan| *vlan != 0), tag & 0xf000);
        let protocol = word(frame, ADDRESSES + TAG)?;
        Some(Ethernet { dst, src, vlan, priority, protocol, payload: ADDRESSES + TAG + 2 })
    }

    /// Whether it is for several stations: the group bit of IEEE 802.
    pub(crate) fn is_group(&self) -> bool {
        self.dst.0[0] & 1 == 1
    }

    /// Whether bridges keep it on its link (IEEE 802.1Q, 8.6.3): LACP and LLDP, for example.
    pub(crate) fn is_link_local(&self) -> bool {
        self.dst.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && self.dst.0[5] < 0x10
    }

    /// Appends its header, with the tag if it has a VLAN.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.dst.0);
        out.extend(self.src.0);
        if let Some(vlan) = self.vlan {
            out.extend(VLAN.to_be_bytes());
            out.extend((self.priority | vlan).to_be_bytes());
        }
        out.extend(self.protocol.to_be_bytes());
    }
}

/// What the hash of a flow covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// The protocol above IP; 0 when it is unknown.
    pub(crate) protocol: u8,
    /// The ports of TCP and UDP. Fragments have none, since the later ones do not carry them.
    pub(crate) ports: [u8; 4],
}

impl Flow {
    /// A hash (FNV-1a, with the finalizer of MurmurHash3), with `seed`.
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for address in [self.src, self.dst] {
            match address {
                IpAddr::V4(address) => add(&address.octets()),
                IpAddr::V6(address) => add(&address.octets()),
            }
        }
        add(&[self.protocol]);
        add(&self.ports);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

/// An IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ip {
    pub(crate) flow: Flow,
    /// Its TTL or hop limit.
    pub(crate) ttl: u8,
    /// Its length in bytes. What follows is padding of the frame.
    pub(crate) len: usize,
    /// The class selector of its DSCP (RFC 2474, 4.2.2), which is the traffic class of a label.
    pub(crate) class: u8,
}

impl Ip {
    /// Reads the packet of an Ethernet protocol, with the checks that a router makes (RFC 1812, 5.2.2;
    /// RFC 8200).
    pub(crate) fn read(protocol: u16, packet: &[u8]) -> Result<Ip, Drop> {
        match protocol {
            IPV4 => Ip::read_v4(packet),
            IPV6 => Ip::read_v6(packet),
            _ => None,
        }
        .ok_or(Drop::Malformed)
    }

    fn read_v4(packet: &[u8]) -> Option<Ip> {
        let header = usize::from(packet.first()? & 0xf) * 4;
        let len = usize::from(word(packet, 2)?);
        if packet.first()? >> 4 != 4 || header < 20 || len < header || len > packet.len() {
            return None;
        }
        if checksum(packet.get(..header)?) != 0 {
            return None;
        }
        // More fragments, or not the first.
        let is_fragment = word(packet, 6)? & 0x3fff != 0;
        let protocol = *packet.get(9)?;
        let ports = if is_fragment { [0; 4] } else { ports(protocol, packet, header) };
        let src = Ipv4Addr::from(array::<4>(packet, 12)?).into();
        let dst = Ipv4Addr::from(array::<4>(packet, 16)?).into();
        let class = *packet.get(1)? >> 5;
        Some(Ip { flow: Flow { src, dst, protocol, ports }, ttl: *packet.get(8)?, len, class })
    }

    fn read_v6(packet: &[u8]) -> Option<Ip> {
        let len = 40 + usize::from(word(packet, 4)?);
        if packet.first()? >> 4 != 6 || len > packet.len() {
            return None;
        }
        let protocol = *packet.get(6)?;
        let src = Ipv6Addr::from(array::<16>(packet, 8)?).into();
        let dst = Ipv6Addr::from(array::<16>(packet, 24)?).into();
        let ports = ports(protocol, packet, 40);
        let class = (*packet.first()? & 0xf) >> 1;
        Some(Ip { flow: Flow { src, dst, protocol, ports }, ttl: *packet.get(7)?, len, class })
    }

    /// Whether routers forward its destination: multicast and link-local addresses stay on their link.
    pub(crate) fn stays_on_link(&self) -> bool {
        match self.flow.dst {
            IpAddr::V4(dst) => dst.is_multicast() || dst.is_broadcast() || dst.is_link_local(),
            IpAddr::V6(dst) => dst.is_multicast() || dst.is_unicast_link_local(),
        }
    }
}

impl Ip {
    /// Whether no router may forward it, because of an address that is never on a wire, or of a source that no host has
    /// (RFC 1812, 5.3.7; RFC 4291, 2.5.2, 2.5.3, 2.5.6 and 2.7).
    pub(crate) fn is_martian(&self) -> bool {
        let source = match self.flow.src {
            IpAddr::V4(src) => {
                src.octets()[0] == 0 || src.is_multicast() || src.is_broadcast() || src.is_link_local()
            }
            IpAddr::V6(src) => src.is_unspecified() || src.is_multicast() || src.is_unicast_link_local(),
        };
        let destination = match self.flow.dst {
            IpAddr::V4(dst) => dst.octets()[0] == 0,
            IpAddr::V6(dst) => dst.is_unspecified(),
        };
        source || destination || self.flow.src.is_loopback() || self.flow.dst.is_loopback()
    }
}

fn ports(protocol: u8, packet: &[u8], at: usize) -> [u8; 4] {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    match protocol {
        TCP | UDP => array(packet, at).unwrap_or_default(),
        _ => [0; 4],
    }
}

/// The Internet checksum (RFC 1071) of some bytes; 0 for a header with a valid one.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    let mut sum: u64 = words.by_ref().map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sets the TTL or hop limit of a packet, and adapts the checksum of an IPv4 header (RFC 1624).
pub(crate) fn set_ttl(packet: &mut [u8], ttl: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let (Some(old), Some(sum)) = (word(packet, 8), word(packet, 10)) else { return };
            let new = u16::from_be_bytes([ttl, old as u8]);
            // HC' = ~(~HC + ~m + m'), in ones' complement.
            let mut adapted = u32::from(!sum) + u32::from(!old) + u32::from(new);
            adapted = (adapted & 0xffff) + (adapted >> 16);
            adapted = (adapted & 0xffff) + (adapted >> 16);
            packet[8] = ttl;
            packet[10..12].copy_from_slice(&(!(adapted as u16)).to_be_bytes());
        }
        Some(6) => {
            if let Some(place) = packet.get_mut(7) {
                *place = ttl;
            }
        }
        _ => {}
    }
}

/// An entry of a label stack (RFC 3032).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LabelEntry {
    pub(crate) label: u32,
    /// The traffic class (RFC 5462), of three bits.
    pub(crate) class: u8,
    pub(crate) bottom: bool,
    pub(crate) ttl: u8,
}

impl LabelEntry {
    pub(crate) const LEN: usize = 4;

    pub(crate) fn read(packet: &[u8]) -> Option<LabelEntry> {
        let entry = u32::from_be_bytes(array(packet, 0)?);
        let class = (entry >> 9) as u8 & 7;
        Some(LabelEntry { label: entry >> 12, class, bottom: entry & 0x100 != 0, ttl: entry as u8 })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let class = u32::from(self.class & 7) << 9;
        let entry = self.label << 12 | class | u32::from(self.bottom) << 8 | u32::from(self.ttl);
        out.extend(entry.to_be_bytes());
    }

    /// Sets the traffic class and the TTL of the first entry of a packet.
    pub(crate) fn set_first(packet: &mut [u8], class: u8, ttl: u8) {
        if let Some([_, _, third, fourth]) = packet.first_chunk_mut() {
            *third = *third & 0xf1 | (class & 7) << 1;
            *fourth = ttl;
        }
    }
}

/// The Ethernet protocol of what is below the last label.
pub(crate) fn protocol_of(packet: &[u8]) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checksum by the definition of RFC 791: the ones' complement of the ones' complement sum, one bit of carry at a time.
    fn by_definition(bytes: &[u8]) -> u16 {
        let mut sum: u16 = 0;
        for pair in bytes.chunks(2) {
            let word = u16::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u16::from(*low));
            let (next, carry) = sum.overflowing_add(word);
            sum = next + u16::from(carry);
        }
        0xffff - sum
    }

    #[test]
    fn the_checksum_of_a_known_header() {
        // The example of the IPv4 header that textbooks share: its checksum is b861.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&header), 0xb861);
    }

    fn header(ttl: u8, rest: &[u8; 10]) -> Vec<u8> {
        let mut packet = vec![0x45, rest[0], 0, 20, rest[1], rest[2], 0, 0, ttl, rest[3], 0, 0];
        packet.extend([10, rest[4], rest[5], rest[6], 192, rest[7], rest[8], rest[9]]);
        let sum = by_definition(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    proptest! {
        #[test]
        fn the_checksum_is_that_of_its_definition(bytes: Vec<u8>) {
            prop_assert_eq!(checksum(&bytes), by_definition(&bytes));
        }

        /// Every receiver adds up the whole header, and takes 0xffff only.
        #[test]
        fn a_header_stays_valid_with_another_ttl(ttl: u8, new: u8, rest: [u8; 10]) {
            let mut packet = header(ttl, &rest);
            prop_assert!(Ip::read(IPV4, &packet).is_ok());
            set_ttl(&mut packet, new);
            prop_assert_eq!(by_definition(&packet), 0);
            prop_assert_eq!(Ip::read(IPV4, &packet).map(|ip| ip.ttl), Ok(new));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, ttl: u8) {
            let _ = Ethernet::read(&bytes);
            let _ = LabelEntry::read(&bytes);
            for protocol in [IPV4, IPV6, ARP] {
                let _ = Ip::read(protocol, &bytes);
            }
            set_ttl(&mut bytes.clone(), ttl);
        }

        #[test]
        fn a_header_is_written_as_it_is_read(bytes: [u8; 14], vlan in proptest::option::of(1u16..4095), priority in 0u16..16) {
            let priority = if vlan.is_some() { priority << 12 } else { 0 };
            let read = Ethernet { vlan, priority, ..Ethernet::read(&bytes).unwrap_or(Ethernet { dst: Mac::default(), src: Mac::default(), vlan: None, priority: 0, protocol: IPV4, payload: 14 }) };
            let read = Ethernet { protocol: if read.protocol == VLAN { IPV4 } else { read.protocol }, ..read };
            let mut out = Vec::new();
            read.write(&mut out);
            let again = Ethernet::read(&out).unwrap();
            prop_assert_eq!((again.dst, again.src, again.vlan, again.protocol), (read.dst, read.src, read.vlan, read.protocol));
            prop_assert_eq!((again.payload, again.priority), (out.len(), read.priority));
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let good = header(9, &[0; 10]);
        for (at, value) in [(0, 0x55), (0, 0x44), (0, 0x46), (2, 1), (3, 21), (3, 19), (10, 0xaa)] {
            let mut bad = good.clone();
            bad[at] ^= if bad[at] == value { 1 } else { bad[at] ^ value };
            assert_eq!(Ip::read(IPV4, &bad), Err(Drop::Malformed), "byte {at} is {value:#x}");
        }
        assert!(Ip::read(IPV4, &[&good[..], &[0; 26]].concat()).is_ok_and(|ip| ip.len == 20), "padding");
        let mut six = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        six.extend([0; 40]);
        assert!(Ip::read(IPV6, &six).is_ok_and(|ip| ip.len == 48 && ip.ttl == 64));
        assert_eq!(Ip::read(IPV6, &six[..47]), Err(Drop::Malformed));
    }

    #[test]
    fn fragments_of_a_packet_have_one_hash() {
        let packet = |flags: u8, ports: [u8; 4]| {
            let mut packet = header(9, &[0; 10]);
            (packet[3], packet[6], packet[9]) = (24, flags, 17);
            packet[10..12].fill(0);
            let sum = by_definition(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(ports);
            Ip::read(IPV4, &packet).unwrap().flow
        };
        let (first, later) = (packet(0x20, [1, 2, 3, 4]), packet(0x01, [9, 9, 9, 9]));
        assert_eq!(first.hash(7), later.hash(7));
        assert_ne!(packet(0, [1, 2, 3, 4]).hash(7), packet(0, [1, 2, 3, 5]).hash(7));
        // The two choices of a flow are independent.
        assert_ne!(first.hash(1), first.hash(2));
    }
}
