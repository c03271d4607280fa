//! Interfaces and their addresses. Of an interface the state and the MTU can be changed.

use super::build::Builder;
use super::numbers::*;
use super::{Attrs, Malformed, Message};
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// An interface (`RTM_NEWLINK`, `RTM_DELLINK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link<'a> {
    /// The interface's index.
    pub index: u32,
    /// Its name; empty when the message does not carry it.
    pub name: &'a str,
    /// `IFF_*`.
    pub flags: u32,
    /// Largest packet in bytes; 0 when the message does not carry it.
    pub mtu: u32,
    /// The index of the bridge, bond or VRF that it belongs to.
    pub master: Option<u32>,
    /// What made it: `vlan`, `veth`, `vrf` and so on; absent for hardware.
    pub kind: Option<&'a str>,
    /// The routing table of a VRF device.
    pub vrf_table: Option<u32>,
    /// How often it lost its carrier since it was made; Linux before 4.16 does not say.
    pub carrier_down_count: Option<u32>,
}

impl<'a> Link<'a> {
    /// Whether it can carry packets: the administrator switched it on and the carrier is there.
    pub fn operative(&self) -> bool {
        self.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP
    }

    /// `None` for a message of another family, such as a bridge's about its port.
    pub(super) fn decode(message: &Message<'a>) -> Result<Option<Self>, Malformed> {
        let Some((&[family, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, _, _, _, _], attrs)) =
            message.body.split_first_chunk()
        else {
            return Err(Malformed("a link message is shorter than its fixed part"));
        };
        if family != AF_UNSPEC {
            return Ok(None);
        }
        let mut link = Link {
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            ..Link::default()
        };
        let mut data = None;
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                IFLA_IFNAME => link.name = attr.text(),
                IFLA_MTU => link.mtu = attr.u32()?,
                IFLA_CARRIER_DOWN_COUNT => link.carrier_down_count = Some(attr.u32()?),
                IFLA_MASTER => link.master = Some(attr.u32()?),
                IFLA_LINKINFO => {
                    for info in attr.nested() {
                        let info = info?;
                        match info.kind {
                            IFLA_INFO_KIND => link.kind = Some(info.text()),
                            IFLA_INFO_DATA => data = Some(info),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(data) = data.filter(|_| link.kind == Some("vrf")) {
            for detail in data.nested() {
                let detail = detail?;
                if detail.kind == IFLA_VRF_TABLE {
                    link.vrf_table = Some(detail.u32()?);
                }
            }
        }
        Ok(Some(link))
    }
}

/// Appends a change of the interface `index` to `out`: whether it is switched on, and its MTU in
/// bytes, as far as given.
pub fn write_link_change(out: &mut Vec<u8>, seq: u32, index: u32, up: Option<bool>, mtu: Option<u32>) {
    let flags = up.map_or(0, |up| if up { IFF_UP } else { 0 });
    let change = up.map_or(0, |_| IFF_UP);
    let ([i0, i1, i2, i3], [f0, f1, f2, f3], [c0, c1, c2, c3]) =
        (index.to_ne_bytes(), flags.to_ne_bytes(), change.to_ne_bytes());
    let fixed = [AF_UNSPEC, 0, 0, 0, i0, i1, i2, i3, f0, f1, f2, f3, c0, c1, c2, c3];
    let mut b = Builder::new(out, RTM_NEWLINK, NLM_F_REQUEST, seq, &fixed);
    if let Some(mtu) = mtu {
        b.attr_u32(IFLA_MTU, mtu);
    }
    b.finish_short();
}

/// An address of an interface (`RTM_NEWADDR`, `RTM_DELADDR`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface's index.
    pub ifindex: u32,
    /// The own address.
    pub local: IpAddr,
    /// The network that is reached through the interface: the own one, or on a point-to-point link the peer's.
    pub network: AnyPrefix,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `IFA_F_*`.
    pub flags: u32,
}

impl Address {
    /// Whether the address can be used: neither being checked for a duplicate nor found to be one.
    pub fn usable(&self) -> bool {
        self.flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) == 0
    }

    /// `None` for a family that ribtide does not carry.
    pub(super) fn decode(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let Some((&[family, len, flags, scope, i0, i1, i2, i3], attrs)) = message.body.split_first_chunk()
        else {
            return Err(Malformed("an address message is shorter than its fixed part"));
        };
        if family != AF_INET && family != AF_INET6 {
            return Ok(None);
        }
        let (mut address, mut local, mut flags) = (None, None, u32::from(flags));
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                IFA_ADDRESS => address = Some(attr.addr()?),
                IFA_LOCAL => local = Some(attr.addr()?),
                IFA_FLAGS => flags = attr.u32()?,
                _ => {}
            }
        }
        let (Some(local), Some(reached)) = (local.or(address), address.or(local)) else {
            return Err(Malformed("an address message has no address"));
        };
        let network = AnyPrefix::from_addr(reached, len)
            .ok_or(Malformed("an address's length exceeds its family's"))?;
        Ok(Some(Address { ifindex: u32::from_ne_bytes([i0, i1, i2, i3]), local, network, scope, flags }))
    }
}
