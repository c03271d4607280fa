//! What the watch of the kernel's interfaces tells BGP's session thread.

use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// What changed of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceNews {
    /// The kernel's number of the interface.
    pub index: u32,
    /// How it is now; `None`: it is gone.
    pub state: Option<InterfaceState>,
    /// The event as a line for the operator; `None`: there was none, or not one of interest.
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
    /// Whether it carries packets.
    pub up: bool,
    /// Whether it did not, at some time since the last news.
    pub fell: bool,
    /// Our addresses of the default VRF on it, each with the subnet that the link has.
    pub addresses: Vec<(IpAddr, AnyPrefix)>,
}

impl InterfaceState {
    /// The length of its longest subnet that holds an address.
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
