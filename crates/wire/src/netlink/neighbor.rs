//! Neighbours: `RTM_NEWNEIGH` and `RTM_DELNEIGH` (`linux/neighbour.h`).

use super::build::Builder;
use super::numbers::*;
use super::route::{afi_of, family};
use super::{Attrs, Malformed, Message};
use std::net::IpAddr;

/// An address on an interface, with its MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// The interface's index.
    pub ifindex: u32,
    /// The address.
    pub ip: IpAddr,
    /// Its MAC address; `None` while it is not known.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*`.
    pub state: u16,
    /// `NTF_*`.
    pub flags: u8,
    /// Its creator: `RTPROT_*`; 0 without.
    pub protocol: u8,
}

impl Neighbor {
    /// An entry that the kernel neither resolves nor ages, of another program than the administrator
    /// (`NTF_EXT_LEARNED`).
    pub fn permanent(ifindex: u32, ip: IpAddr, mac: [u8; 6], protocol: u8) -> Neighbor {
        Neighbor { ifindex, ip, mac: Some(mac), state: NUD_PERMANENT, flags: NTF_EXT_LEARNED, protocol }
    }

    /// Reads the body of `RTM_NEWNEIGH` or `RTM_DELNEIGH`; `None` for a family that is not IP.
    pub(super) fn decode(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let Some((&[fam, _, _, _, i0, i1, i2, i3, s0, s1, flags, _], attrs)) =
            message.body.split_first_chunk()
        else {
            return Err(Malformed("a neighbour message is shorter than its fixed part"));
        };
        if fam != AF_INET && fam != AF_INET6 {
            return Ok(None);
        }
        let (mut ip, mut mac, mut protocol) = (None, None, 0);
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                NDA_DST => ip = Some(attr.addr()?),
                // Other media have addresses of other lengths.
                NDA_LLADDR => mac = attr.value.try_into().ok(),
                NDA_PROTOCOL => protocol = attr.value.first().copied().unwrap_or(0),
                _ => {}
            }
        }
        let Some(ip) = ip else { return Ok(None) };
        let state = u16::from_ne_bytes([s0, s1]);
        Ok(Some(Neighbor { ifindex: u32::from_ne_bytes([i0, i1, i2, i3]), ip, mac, state, flags, protocol }))
    }

    /// Appends `RTM_NEWNEIGH` to `out`. `flags` are `NLM_F_*`; `NLM_F_REQUEST` is added.
    pub fn write_new(&self, out: &mut Vec<u8>, flags: u16, seq: u32) {
        let mut b = self.builder(out, RTM_NEWNEIGH, flags, seq);
        if let Some(mac) = self.mac {
            b.attr(NDA_LLADDR, &mac);
        }
        if self.protocol != 0 {
            b.attr(NDA_PROTOCOL, &[self.protocol]);
        }
        b.finish_short();
    }

    /// Appends `RTM_DELNEIGH` of its address on its interface to `out`.
    pub fn write_delete(&self, out: &mut Vec<u8>, flags: u16, seq: u32) {
        self.builder(out, RTM_DELNEIGH, flags, seq).finish_short();
    }

    fn builder<'a>(&self, out: &'a mut Vec<u8>, kind: u16, flags: u16, seq: u32) -> Builder<'a> {
        let ([i0, i1, i2, i3], [s0, s1]) = (self.ifindex.to_ne_bytes(), self.state.to_ne_bytes());
        let fixed = [family(afi_of(self.ip)), 0, 0, 0, i0, i1, i2, i3, s0, s1, self.flags, 0];
        let mut b = Builder::new(out, kind, flags | NLM_F_REQUEST, seq, &fixed);
        b.attr_addr(NDA_DST, self.ip);
        b
    }
}
