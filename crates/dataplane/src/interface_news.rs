//! Interface changes for the session thread of BGP.

use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// A change of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceNews {
    /// The index of the interface.
    pub index: u32,
    /// The present state; `None` after its removal.
    pub state: Option<InterfaceState>,
    /// A line for the log, if the event is of interest.
    pub line: Option<InterfaceLine>,
}

/// A log line about an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceLine {
    /// Its name.
    pub interface: String,
    /// What happened to it, as a sentence without its name.
    pub sentence: String,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceState {
    /// Its name.
    pub name: String,
    /// Whether it is up with carrier.
    pub up: bool,
    /// Whether it was down at some time since the last change.
    pub fell: bool,
    /// Its addresses in the default VRF, each with the subnet of the link.
    pub addresses: Vec<(IpAddr, AnyPrefix)>,
    /// Its own IPv6 addresses that are valid on its link alone.
    pub link_local: Vec<IpAddr>,
}

impl InterfaceState {
    /// The length of its longest subnet that contains an address.
    pub fn holds(&self, address: IpAddr) -> Option<u8> {
        self.addresses
            .iter()
            .filter(|(_, subnet)| subnet.contains(address))
            .map(|(_, subnet)| subnet.len())
            .max()
    }

    /// Whether an address on it is ours.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }
}
