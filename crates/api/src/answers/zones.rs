//! The names of the zones of link-local addresses, for output.

use super::{Refusal, RouterState};
use ribtide_bgpd::session::NeighborView;
use ribtide_model::ZonedAddress;
use ribtide_prefix::zone::{split_zone, zone_of};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The names, by zone.
#[derive(Default)]
pub(super) struct Zones(BTreeMap<u32, String>);

impl Zones {
    /// Those of the router. Without neighbours by interface no session thread is called.
    pub(super) fn new(router: &RouterState) -> Result<Zones, Refusal> {
        let by_interface = router.config().bgp.as_ref().is_some_and(|bgp| !bgp.interfaces.is_empty());
        match router.bgp.get().filter(|_| by_interface) {
            Some(bgp) => Ok(Zones(bgp.sessions.call(|sessions| sessions.zone_names())?)),
            None => Ok(Zones::default()),
        }
    }

    /// An address with the name of its zone, or its number where the interface is gone.
    pub(super) fn named(&self, address: IpAddr) -> ZonedAddress {
        let (address, zone) = split_zone(address);
        let name = |zone: u32| self.0.get(&zone).cloned().unwrap_or_else(|| zone.to_string());
        ZonedAddress { address, zone: zone.map(name) }
    }
}

/// The address of a neighbour.
pub(super) fn address(view: &NeighborView) -> ZonedAddress {
    neighbor(view.address, view.interface.clone())
}

/// The address of a neighbour on this interface, where the configuration has it by that.
pub(super) fn neighbor(address: IpAddr, interface: Option<String>) -> ZonedAddress {
    ZonedAddress { address: split_zone(address).0, zone: zone_of(address).and(interface) }
}
