//! `INTF_TABLE` and `VRF_TABLE`: router interfaces with their addresses, and virtual routers.

use super::route::parse_addr_len;
use super::{Db, Mac, Name, Row, RowError, RowKey, put_values, value_of};
use std::net::IpAddr;

/// The highest number of a VLAN (IEEE 802.1Q).
pub const VLAN_MAX: u16 = 4094;

/// An interface, or an address on it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IntfKey {
    /// The interface itself: its row creates the router interface.
    Interface(Name),
    /// An address with its host bits, and the length of its subnet.
    Address(Name, IpAddr, u8),
}

impl IntfKey {
    /// The interface.
    pub fn ifname(&self) -> &Name {
        match self {
            IntfKey::Interface(name) | IntfKey::Address(name, ..) => name,
        }
    }
}

impl RowKey for IntfKey {
    fn write(&self, out: &mut String) {
        out.push_str(self.ifname());
        if let IntfKey::Address(_, ip, len) = self {
            out.push_str(&format!(":{ip}/{len}"));
        }
    }

    fn parse(text: &str) -> Result<IntfKey, String> {
        let Some((ifname, address)) = text.split_once(':') else {
            return Ok(IntfKey::Interface(text.into()));
        };
        let (ip, len) = parse_addr_len(address)
            .ok_or_else(|| format!("key \"{text}\" is not INTERFACE or INTERFACE:ADDRESS/LENGTH"))?;
        Ok(IntfKey::Address(ifname.into(), ip, len))
    }
}

/// A row of `INTF_TABLE`. An absent field is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntfRow {
    /// The VRF; empty for the default one.
    pub vrf_name: Option<Name>,
    /// The MAC address of the router interface.
    pub mac_addr: Option<Mac>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// The administrative state.
    pub admin_up: Option<bool>,
    /// Whether it accepts packets with MPLS labels.
    pub mpls: Option<bool>,
    /// Sub-interfaces only: the VLAN of their tag.
    pub vlan: Option<u16>,
    /// The VNET; its interfaces are those of SONiC's VNetOrch.
    pub vnet_name: Option<Name>,
    /// Addresses only: `global` or `local`.
    pub scope: Option<Name>,
    /// Addresses only: whether `family` is IPv6.
    pub ipv6: Option<bool>,
}

impl Row for IntfRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "INTF_TABLE";
    type Key = IntfKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let fields: [(_, Option<Name>); 9] = [
            ("vrf_name", self.vrf_name.clone()),
            ("vnet_name", self.vnet_name.clone()),
            ("mac_addr", self.mac_addr.map(|mac| mac.to_string().into())),
            ("mtu", self.mtu.map(|mtu| mtu.to_string().into())),
            ("admin_status", self.admin_up.map(|up| if up { "up" } else { "down" }.into())),
            ("vlan", self.vlan.map(|vlan| vlan.to_string().into())),
            ("mpls", self.mpls.map(|mpls| if mpls { "enable" } else { "disable" }.into())),
            ("scope", self.scope.clone()),
            ("family", self.ipv6.map(|v6| if v6 { "IPv6" } else { "IPv4" }.into())),
        ];
        put_values(fields, put);
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let mut row = IntfRow::default();
        for (field, value) in fields {
            match field {
                "vrf_name" => row.vrf_name = Some(value.into()),
                "mac_addr" if !value.is_empty() => row.mac_addr = Some(value.parse()?),
                "mtu" if !value.is_empty() => {
                    let bad = |_| RowError::new(Self::TABLE, format!("mtu \"{value}\" is not a number"));
                    row.mtu = Some(value.parse().map_err(bad)?);
                }
                "admin_status" => row.admin_up = Some(value == "up"),
                "vlan" if !value.is_empty() => {
                    let vlan = value.parse().ok().filter(|vlan| (1..=VLAN_MAX).contains(vlan));
                    let bad = || {
                        let what = format!("vlan \"{value}\" is not a number from 1 to {VLAN_MAX}");
                        RowError::new(Self::TABLE, what)
                    };
                    row.vlan = Some(vlan.ok_or_else(bad)?);
                }
                "vnet_name" => row.vnet_name = Some(value.into()),
                "mpls" => row.mpls = Some(value == "enable"),
                "scope" => row.scope = Some(value.into()),
                "family" => row.ipv6 = Some(value == "IPv6"),
                _ => {}
            }
        }
        Ok(row)
    }

    fn merge(&mut self, newer: Self) {
        let older = std::mem::take(self);
        *self = IntfRow {
            vrf_name: newer.vrf_name.or(older.vrf_name),
            mac_addr: newer.mac_addr.or(older.mac_addr),
            mtu: newer.mtu.or(older.mtu),
            admin_up: newer.admin_up.or(older.admin_up),
            mpls: newer.mpls.or(older.mpls),
            vlan: newer.vlan.or(older.vlan),
            vnet_name: newer.vnet_name.or(older.vnet_name),
            scope: newer.scope.or(older.scope),
            ipv6: newer.ipv6.or(older.ipv6),
        };
    }
}

/// A row of `VRF_TABLE`. The key is the name, which begins with `Vrf`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VrfRow {
    /// Whether a lookup without a match continues in the default VRF.
    pub fallback: Option<bool>,
}

impl Row for VrfRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "VRF_TABLE";
    type Key = Name;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put_values(
            [("fallback", self.fallback.map(|fallback| if fallback { "true" } else { "false" }))],
            put,
        );
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        Ok(VrfRow { fallback: value_of(fields, "fallback").map(|value| value == "true") })
    }
}
