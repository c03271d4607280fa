//! The router's own addresses, which no next hop may be (RFC 4271 section 5.1.3): those of every interface, whatever its
//! state, and all addresses in the subnets of loopback interfaces, since packets to these end at the host.

use crate::message::InterfaceEvent;
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Own addresses and subnets, each with the number of its interfaces.
#[derive(Debug, Default)]
pub(crate) struct OwnAddresses {
    prefixes: Map<AnyPrefix, usize>,
    /// Those of them that are subnets.
    subnets: Vec<AnyPrefix>,
}

impl OwnAddresses {
    /// Applies the new state of an interface and returns the prefixes whose addresses became own ones, or are no longer.
    pub(crate) fn change(
        &mut self,
        old: Option<&InterfaceEvent>,
        new: Option<&InterfaceEvent>,
    ) -> Vec<AnyPrefix> {
        let (old, new) = (prefixes(old), prefixes(new));
        let mut changed = Vec::new();
        for prefix in new.difference(&old) {
            let interfaces = self.prefixes.entry(*prefix).or_default();
            *interfaces += 1;
            if *interfaces == 1 {
                self.subnets.extend(Some(*prefix).filter(|prefix| !is_host(*prefix)));
                changed.push(*prefix);
            }
        }
        for prefix in old.difference(&new) {
            if let Some(interfaces) = self.prefixes.get_mut(prefix) {
                *interfaces -= 1;
                if *interfaces == 0 {
                    self.prefixes.remove(prefix);
                    self.subnets.retain(|subnet| subnet != prefix);
                    changed.push(*prefix);
                }
            }
        }
        changed
    }

    /// Whether it is one.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.prefixes.contains_key(&AnyPrefix::host(address))
            || self.subnets.iter().any(|subnet| subnet.contains(address))
    }
}

fn is_host(prefix: AnyPrefix) -> bool {
    prefix == AnyPrefix::host(prefix.addr())
}

fn prefixes(state: Option<&InterfaceEvent>) -> BTreeSet<AnyPrefix> {
    let Some(state) = state else { return BTreeSet::new() };
    let hosts = state.addresses.iter().map(|(address, _)| AnyPrefix::host(address.to_canonical()));
    let subnets = state.addresses.iter().map(|(_, subnet)| *subnet).filter(|_| state.loopback);
    hosts.chain(subnets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::VrfId;

    fn state(index: u32, loopback: bool, addresses: &[(&str, u8)]) -> InterfaceEvent {
        let on_subnet = |(text, len): &(&str, u8)| {
            let address: IpAddr = text.parse().unwrap();
            (address, AnyPrefix::from_addr(address, *len).unwrap())
        };
        let addresses = addresses.iter().map(on_subnet).collect();
        InterfaceEvent {
            vrf: VrfId::DEFAULT,
            index,
            name: format!("eth{index}"),
            up: true,
            loopback,
            addresses,
        }
    }

    #[test]
    fn own_are_addresses_of_interfaces_and_subnets_of_loopbacks() {
        let mut own = OwnAddresses::default();
        let contains = |own: &OwnAddresses| {
            ["10.0.0.1", "10.0.0.9", "10.5.0.1", "10.5.0.9", "::ffff:10.0.0.1"]
                .map(|text| own.contains(text.parse::<IpAddr>().unwrap().to_canonical()))
        };
        let link = state(2, false, &[("10.0.0.1", 24)]);
        let lo = state(1, true, &[("10.5.0.1", 24), ("10.6.0.1", 32)]);
        assert_eq!(own.change(None, Some(&link)).len(), 1);
        assert_eq!(own.change(None, Some(&lo)).len(), 3);
        assert_eq!(contains(&own), [true, false, true, true, true]);
        // The same address on another link stays an own one, without its subnet.
        let other = state(3, false, &[("10.5.0.1", 24)]);
        assert_eq!(own.change(None, Some(&other)), []);
        assert_eq!(own.change(Some(&lo), None).len(), 2);
        assert_eq!(contains(&own), [true, false, true, false, true]);
        assert_eq!(own.change(Some(&other), Some(&state(3, true, &[("10.5.0.1", 24)]))).len(), 1);
        assert_eq!(contains(&own), [true, false, true, true, true]);
    }
}
