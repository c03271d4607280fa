//! Interfaces.

use crate::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `GET /v1/interfaces`: the kernel's interfaces, and those of `[[interface]]` tables, by index; or those of one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interfaces {
    /// Interfaces.
    pub interfaces: Vec<Interface>,
}

/// An interface.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// `kernel`, or `configuration` for one of an `[[interface]]` table, which is always up.
    pub source: String,
    /// Whether the administrator switched it on.
    pub admin_up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// What the kernel says that it is: `vlan`, `veth`, `vrf` and so on; absent for hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The largest packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The bridge, bond or VRF device that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// The VRF; absent if it belongs to a VRF device of the kernel that is not in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Its usable addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// BGP neighbours on its link: those in a subnet of it, and those that the configuration has by interface.
    pub neighbors: Vec<LinkNeighbor>,
    /// BFD sessions over it.
    pub bfd: Vec<LinkNeighbor>,
}

impl Interface {
    /// Whether it carries packets.
    pub fn is_up(&self) -> bool {
        self.admin_up && self.carrier
    }
}

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceAddress {
    /// The own address.
    pub address: IpAddr,
    /// The subnet of the link; on a point-to-point link the peer's, which does not hold the own address.
    pub subnet: String,
    /// Whether the kernel has no route to the subnet by this interface: then next hops there do not resolve on it.
    #[serde(default)]
    pub route_missing: bool,
}

/// A neighbour on the link of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinkNeighbor {
    /// The neighbour.
    pub neighbor: ZonedAddress,
    /// The state of its session.
    pub state: String,
}
