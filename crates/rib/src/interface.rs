//! Connected routes: the subnets and addresses of interfaces that are up.

use crate::message::{IfIndex, InterfaceEvent};
use ribtide_prefix::{AnyPrefix, Map};

/// Connected prefixes, each with its interfaces.
#[derive(Debug, Default)]
pub(crate) struct Connected {
    interfaces: Map<AnyPrefix, Vec<IfIndex>>,
}

impl Connected {
    /// Applies the new state of an interface and returns the changed prefixes, each once.
    pub(crate) fn change(
        &mut self,
        index: IfIndex,
        old: Option<&InterfaceEvent>,
        new: Option<&InterfaceEvent>,
    ) -> Vec<AnyPrefix> {
        let (old, new) = (prefixes(old), prefixes(new));
        let mut changed: Vec<AnyPrefix> = Vec::new();
        for prefix in old.iter().filter(|p| !new.contains(p)) {
            if let Some(list) = self.interfaces.get_mut(prefix) {
                list.retain(|i| *i != index);
                if list.is_empty() {
                    self.interfaces.remove(prefix);
                }
            }
            changed.push(*prefix);
        }
        for prefix in new.iter().filter(|p| !old.contains(p)) {
            self.interfaces.entry(*prefix).or_default().push(index);
            changed.push(*prefix);
        }
        changed
    }

    /// The interfaces of `prefix`.
    pub(crate) fn on(&self, prefix: AnyPrefix) -> &[IfIndex] {
        self.interfaces.get(&prefix).map_or(&[], Vec::as_slice)
    }
}

/// The connected prefixes of an interface, each once: the subnet of each address, and its host
/// route. An interface that is down has none. Loopback addresses are excluded, because no packet
/// may be sent to them. Link-local ones are excluded, because every link has them.
fn prefixes(state: Option<&InterfaceEvent>) -> Vec<AnyPrefix> {
    let mut all: Vec<AnyPrefix> = Vec::new();
    for (address, subnet) in state.into_iter().filter(|s| s.up).flat_map(|s| &s.addresses) {
        if address.is_loopback() || address.is_unspecified() || crate::target::is_link_local(*address) {
            continue;
        }
        all.extend([*subnet, AnyPrefix::host(*address)]);
    }
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::VrfId;
    use std::net::IpAddr;

    fn on_subnet(address: &str, len: u8) -> (IpAddr, AnyPrefix) {
        let address = address.parse().unwrap();
        (address, AnyPrefix::from_addr(address, len).unwrap())
    }

    #[test]
    fn loopback_and_link_local_addresses_make_no_routes() {
        let addresses = ["10.0.0.1", "127.0.0.1", "::1", "fe80::1", "0.0.0.0"];
        let state = InterfaceEvent {
            vrf: VrfId::DEFAULT,
            index: 1,
            name: "eth0".into(),
            up: true,
            loopback: false,
            addresses: addresses.iter().map(|a| on_subnet(a, 24)).collect(),
        };
        let made: Vec<String> = prefixes(Some(&state)).iter().map(AnyPrefix::to_string).collect();
        assert_eq!(made, ["10.0.0.0/24", "10.0.0.1/32"]);
    }

    #[test]
    fn a_subnet_on_two_interfaces_stays_until_both_are_gone() {
        let on = |index, up| InterfaceEvent {
            vrf: VrfId::DEFAULT,
            index,
            name: format!("eth{index}"),
            up,
            loopback: false,
            addresses: vec![on_subnet(&format!("10.0.0.{index}"), 24)],
        };
        let subnet: AnyPrefix = "10.0.0.0/24".parse().unwrap();
        let mut connected = Connected::default();
        assert_eq!(connected.change(1, None, Some(&on(1, true))).len(), 2);
        connected.change(2, None, Some(&on(2, true)));
        assert_eq!(connected.on(subnet), [1, 2]);
        assert!(connected.change(1, Some(&on(1, true)), Some(&on(1, false))).contains(&subnet));
        assert_eq!(connected.on(subnet), [2]);
        connected.change(2, Some(&on(2, true)), None);
        assert!(connected.on(subnet).is_empty());
    }
}
