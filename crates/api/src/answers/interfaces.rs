//! `/v1/interfaces`: interfaces, with the neighbours on their links.

use super::neighbor_counts::session_counts;
use super::{Refusal, RouterState, bfd, zones};
use ribtide_config::{Config, DEFAULT_VRF, InterfaceConfig};
use ribtide_dataplane::kernel::{ListedInterface, ListedInterfaces};
use ribtide_model::{Interface, InterfaceAddress, Interfaces, LinkNeighbor, ZonedAddress};
use ribtide_prefix::AnyPrefix;
use ribtide_rib::IfIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// All interfaces, or those with this name.
pub(crate) fn interfaces(router: &RouterState, name: Option<&str>) -> Result<Interfaces, Refusal> {
    let mut all = without_neighbors(router);
    if let Some(name) = name.filter(|name| !all.iter().any(|interface| interface.name == *name)) {
        let message = format!("there is no interface {name}; `ribtide show interface` lists them");
        return Err(Refusal::Missing(message));
    }
    let links = Links::new(&all);
    if let Some(bgp) = router.bgp.get() {
        for counts in session_counts(&bgp)? {
            let neighbor = zones::neighbor(counts.address, counts.interface.clone());
            if let Some(at) = links.of(neighbor.address, counts.interface.as_deref()) {
                all[at].neighbors.push(LinkNeighbor { neighbor, state: counts.state.name().into() });
            }
        }
    }
    for session in bfd(router, None, None)?.sessions {
        if let Some(at) = links.of(session.peer, session.interface.as_deref()) {
            let neighbor = ZonedAddress { address: session.peer, zone: session.interface };
            all[at].bfd.push(LinkNeighbor { neighbor, state: session.state });
        }
    }
    all.retain(|interface| name.is_none_or(|name| interface.name == name));
    Ok(Interfaces { interfaces: all })
}

/// The names of the interfaces of each VRF.
pub(super) fn by_vrf(router: &RouterState) -> BTreeMap<String, Vec<String>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for interface in without_neighbors(router) {
        if let Some(vrf) = interface.vrf {
            names.entry(vrf).or_default().push(interface.name);
        }
    }
    names
}

/// All interfaces, by index; those of the kernel first.
fn without_neighbors(router: &RouterState) -> Vec<Interface> {
    let listed = router.dataplanes().interfaces.as_ref().map(|list| list.get()).unwrap_or_default();
    let config = router.config();
    let of_kernel = listed.iter().map(|(index, one)| of_kernel(*index, one, &listed));
    // Next hops resolve over these alone, if there are any. The kernel's are then those that sessions end with.
    let configured = config.interfaces.iter().map(|one| of_configuration(one, &config));
    of_kernel.chain(configured).collect()
}

fn of_kernel(index: IfIndex, one: &ListedInterface, all: &ListedInterfaces) -> Interface {
    let address = |(address, subnet): &(IpAddr, AnyPrefix)| InterfaceAddress {
        address: *address,
        subnet: subnet.to_string(),
        route_missing: one.missing.contains(subnet),
    };
    let name = |index: IfIndex| all.get(&index).map_or_else(|| format!("if{index}"), |one| one.name.clone());
    Interface {
        name: one.name.clone(),
        index,
        source: "kernel".into(),
        admin_up: one.admin_up,
        carrier: one.carrier,
        kind: one.kind.clone(),
        mtu: Some(one.mtu).filter(|mtu| *mtu != 0),
        master: one.master.map(name),
        vrf: one.vrf.clone(),
        addresses: one.addresses.iter().map(address).collect(),
        neighbors: Vec::new(),
        bfd: Vec::new(),
    }
}

fn of_configuration(one: &InterfaceConfig, config: &Config) -> Interface {
    let is_member = |names: &Option<Vec<String>>| names.iter().flatten().any(|name| *name == one.name);
    let vrf = config.vrfs.iter().find(|(_, vrf)| is_member(&vrf.interfaces)).map(|(name, _)| name.clone());
    let address = |(address, len): &(IpAddr, u8)| {
        let subnet = AnyPrefix::from_addr(*address, *len)?.to_string();
        Some(InterfaceAddress { address: *address, subnet, route_missing: false })
    };
    Interface {
        name: one.name.clone(),
        index: one.index,
        source: "configuration".into(),
        admin_up: true,
        carrier: true,
        kind: None,
        mtu: None,
        master: None,
        vrf: vrf.or_else(|| Some(DEFAULT_VRF.into())),
        addresses: one.addresses.iter().filter_map(address).collect(),
        neighbors: Vec::new(),
        bfd: Vec::new(),
    }
}

/// Where neighbours are: BGP and BFD run in the default VRF.
struct Links {
    /// The position of the interface of a subnet; of several one that is up.
    subnets: BTreeMap<AnyPrefix, usize>,
    /// The lengths of subnets.
    lengths: BTreeSet<u8>,
    names: BTreeMap<String, usize>,
}

impl Links {
    fn new(all: &[Interface]) -> Links {
        let mut links = Links { subnets: BTreeMap::new(), lengths: BTreeSet::new(), names: BTreeMap::new() };
        for (at, interface) in all.iter().enumerate() {
            links.names.entry(interface.name.clone()).or_insert(at);
            if interface.vrf.as_deref() != Some(DEFAULT_VRF) {
                continue;
            }
            for subnet in interface.addresses.iter().filter_map(|address| address.subnet.parse().ok()) {
                let subnet: AnyPrefix = subnet;
                links.lengths.insert(subnet.len());
                let place = links.subnets.entry(subnet).or_insert(at);
                if !all[*place].is_up() && interface.is_up() {
                    *place = at;
                }
            }
        }
        links
    }

    /// The position of the interface that a neighbour was configured by, or of the longest subnet with its address.
    fn of(&self, address: IpAddr, interface: Option<&str>) -> Option<usize> {
        if let Some(name) = interface {
            return self.names.get(name).copied();
        }
        let longest_first = self.lengths.iter().rev();
        let mut subnets = longest_first.filter_map(|len| AnyPrefix::from_addr(address, *len));
        subnets.find_map(|subnet| self.subnets.get(&subnet).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, up: bool, subnets: &[&str]) -> Interface {
        let address = |subnet: &&str| InterfaceAddress {
            address: [192, 0, 2, 1].into(),
            subnet: (*subnet).into(),
            route_missing: false,
        };
        Interface {
            name: name.into(),
            index: 1,
            source: "kernel".into(),
            admin_up: up,
            carrier: up,
            kind: None,
            mtu: None,
            master: None,
            vrf: Some(DEFAULT_VRF.into()),
            addresses: subnets.iter().map(address).collect(),
            neighbors: Vec::new(),
            bfd: Vec::new(),
        }
    }

    #[test]
    fn links_of_a_neighbour_are_its_interface_or_the_longest_subnet() {
        let mut red = interface("red0", true, &["203.0.113.0/24"]);
        red.vrf = Some("red".into());
        let all = [
            interface("wide", true, &["10.0.0.0/8", "2001:db8::/32"]),
            interface("down", false, &["10.1.0.0/16"]),
            interface("up", true, &["10.1.0.0/16", "fe80::/64"]),
            red,
        ];
        let links = Links::new(&all);
        let of = |address: &str, name| links.of(address.parse().unwrap(), name).map(|at| &*all[at].name);
        assert_eq!(of("10.2.0.1", None), Some("wide"));
        assert_eq!(of("10.1.0.1", None), Some("up"));
        assert_eq!(of("2001:db8::7", None), Some("wide"));
        assert_eq!(of("203.0.113.5", None), None, "BGP is in the default VRF");
        assert_eq!(of("fe80::5", Some("down")), Some("down"));
        assert_eq!(of("fe80::5", Some("gone")), None);
    }
}
