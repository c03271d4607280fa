//! The interfaces as `kernel-links` last heard of them, for the API.

use ribtide_prefix::AnyPrefix;
use ribtide_rib::IfIndex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// An interface of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedInterface {
    /// Its name.
    pub name: String,
    /// What made it: `vlan`, `veth`, `vrf` and so on; `None` for hardware.
    pub kind: Option<String>,
    /// Whether the administrator switched it on.
    pub admin_up: bool,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// The largest packet in bytes; 0: the kernel does not say.
    pub mtu: u32,
    /// The bridge, bond or VRF device that it belongs to.
    pub master: Option<IfIndex>,
    /// The VRF of ribtide that it is in; `None`: the kernel's VRF is none of the configuration.
    pub vrf: Option<String>,
    /// Its usable addresses, each with the subnet of the link: on a point-to-point link the peer's, which does not hold the
    /// own address.
    pub addresses: Vec<(IpAddr, AnyPrefix)>,
    /// Of their subnets, those that the kernel has no route to by this interface.
    pub missing: Vec<AnyPrefix>,
}

/// All interfaces, by index.
pub type ListedInterfaces = BTreeMap<IfIndex, Arc<ListedInterface>>;

/// The list, which one thread writes. Clones share it.
#[derive(Clone, Default)]
pub struct InterfaceList(Arc<Mutex<Arc<ListedInterfaces>>>);

impl InterfaceList {
    /// The present list.
    pub fn get(&self) -> Arc<ListedInterfaces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces some interfaces; `None`: it is gone.
    pub(super) fn update(&self, changed: impl IntoIterator<Item = (IfIndex, Option<ListedInterface>)>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Copied only while a reader has it.
        let list = Arc::make_mut(&mut list);
        for (index, interface) in changed {
            match interface {
                Some(interface) => drop(list.insert(index, Arc::new(interface))),
                None => drop(list.remove(&index)),
            }
        }
    }
}
