//! Interfaces.

use crate::text::{Table, count, fold, wrap};
use ribtide_model::{Interface, InterfaceAddress, Interfaces, LinkNeighbor};

/// A line for each interface.
pub(super) fn table(all: &Interfaces) -> String {
    let header = ["Interface", ">Index", "Admin", "Carrier", "VRF", ">Sessions", ">BFD", "Addresses"];
    let mut table = Table::new(&header);
    for one in &all.interfaces {
        let addresses: Vec<String> = one.addresses.iter().map(address).collect();
        table.row([
            one.name.clone(),
            one.index.to_string(),
            up_or_down(one.admin_up).into(),
            up_or_down(one.carrier).into(),
            one.vrf.clone().unwrap_or_else(|| "-".into()),
            working(&one.neighbors, "Established"),
            working(&one.bfd, "Up"),
            if addresses.is_empty() { "-".into() } else { addresses.join(", ") },
        ]);
    }
    let mut out = table.render();
    if all.interfaces.is_empty() {
        out = "No part of this router needs interfaces: it has neither [bgp], nor [fib], nor [[interface]] tables.\n".into();
    }
    for one in &all.interfaces {
        missing(one, &mut out);
    }
    out
}

/// Everything about each interface.
pub(super) fn detail(all: &Interfaces) -> String {
    let texts: Vec<String> = all.interfaces.iter().map(one).collect();
    texts.join("\n")
}

fn one(one: &Interface) -> String {
    let mut out = format!("{}, index {}", one.name, one.index);
    match one.source.as_str() {
        "kernel" => out.push_str(&format!(
            ": administratively {}, carrier {}\n",
            up_or_down(one.admin_up),
            up_or_down(one.carrier)
        )),
        _ => out.push_str(": of the configuration, always up\n"),
    }
    let kind = one.kind.as_ref().map(|kind| format!("kind {kind}"));
    let mtu = one.mtu.map(|mtu| format!("MTU {mtu}"));
    let master = one.master.as_ref().map(|master| format!("member of {master}"));
    let vrf = match &one.vrf {
        Some(vrf) => format!("VRF {vrf}"),
        None => "in a VRF of the kernel that is not in the configuration".into(),
    };
    let facts: Vec<String> = kind.into_iter().chain(mtu).chain(master).chain([vrf]).collect();
    out.push_str(&format!("  {}\n", facts.join(", ")));
    for address in &one.addresses {
        out.push_str(&format!("  Address {}\n", self::address(address)));
    }
    missing(one, &mut out);
    let of = |all: &[LinkNeighbor]| -> Vec<String> {
        all.iter().map(|neighbor| format!("{} {}", neighbor.neighbor, neighbor.state)).collect()
    };
    for (title, all) in [("BGP ", &one.neighbors), ("BFD ", &one.bfd)] {
        if !all.is_empty() {
            out.push_str(&wrap("  ", title, ", ", &of(all)));
        }
    }
    fold(&out)
}

fn up_or_down(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// `2/3`: those in this state, of all.
fn working(all: &[LinkNeighbor], state: &str) -> String {
    match all.len() {
        0 => "-".into(),
        n => format!("{}/{n}", all.iter().filter(|one| one.state == state).count()),
    }
}

/// `10.0.0.1/24`, or `10.0.0.1 peer 10.0.0.2/32`.
fn address(one: &InterfaceAddress) -> String {
    let InterfaceAddress { address, subnet, .. } = one;
    let len = subnet.rsplit_once('/').map_or("", |(_, len)| len);
    match is_peer(one) {
        true => format!("{address} peer {subnet}"),
        false => format!("{address}/{len}"),
    }
}

/// Whether the subnet is that of the other end of the link.
fn is_peer(one: &InterfaceAddress) -> bool {
    let subnet: Result<ribtide_prefix::AnyPrefix, _> = one.subnet.parse();
    subnet.is_ok_and(|subnet| !subnet.contains(one.address))
}

/// The subnets without route, as sentences.
fn missing(one: &Interface, out: &mut String) {
    let missing: Vec<&str> = one
        .addresses
        .iter()
        .filter(|address| address.route_missing)
        .map(|address| &*address.subnet)
        .collect();
    if !missing.is_empty() {
        let what = count(missing.len() as u64, "subnet");
        out.push_str(&format!(
            "{}: the kernel has no route to {what} by it, so no next hop resolves there: {}\n",
            one.name,
            missing.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        let address = |address: &str, subnet: &str, route_missing| InterfaceAddress {
            address: address.parse().unwrap(),
            subnet: subnet.into(),
            route_missing,
        };
        let neighbor =
            |text: &str, state: &str| LinkNeighbor { neighbor: text.parse().unwrap(), state: state.into() };
        Interface {
            name: "swp1".into(),
            index: 3,
            source: "kernel".into(),
            admin_up: true,
            carrier: false,
            kind: Some("veth".into()),
            mtu: Some(1500),
            master: Some("bond0".into()),
            vrf: Some("default".into()),
            addresses: vec![
                address("10.0.0.1", "10.0.0.0/24", true),
                address("10.1.0.1", "10.1.0.2/32", false),
                address("fe80::1", "fe80::/64", false),
            ],
            neighbors: vec![neighbor("10.0.0.2", "Established"), neighbor("fe80::2%swp1", "Active")],
            bfd: vec![neighbor("10.0.0.2", "Up")],
        }
    }

    #[test]
    fn table_has_a_line_for_each_interface_and_the_missing_subnets() {
        let outside = Interface {
            name: "red0".into(),
            vrf: None,
            addresses: Vec::new(),
            neighbors: Vec::new(),
            bfd: Vec::new(),
            ..interface()
        };
        let text = table(&Interfaces { interfaces: vec![interface(), outside] });
        assert_eq!(
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>(),
            [
                "Interface Index Admin Carrier VRF Sessions BFD Addresses",
                "swp1 3 up down default 1/2 1/1 10.0.0.1/24, 10.1.0.1 peer 10.1.0.2/32, fe80::1/64",
                "red0 3 up down - - - -",
                "swp1: the kernel has no route to 1 subnet by it, so no next hop resolves there: 10.0.0.0/24",
            ]
        );
        assert!(table(&Interfaces { interfaces: Vec::new() }).starts_with("No part"));
    }

    #[test]
    fn detail_names_neighbours_with_their_states() {
        let text = detail(&Interfaces { interfaces: vec![interface()] });
        assert_eq!(
            text.lines().take(5).collect::<Vec<_>>(),
            [
                "swp1, index 3: administratively up, carrier down",
                "  kind veth, MTU 1500, member of bond0, VRF default",
                "  Address 10.0.0.1/24",
                "  Address 10.1.0.1 peer 10.1.0.2/32",
                "  Address fe80::1/64",
            ]
        );
        assert!(
            text.contains("\n  BGP 10.0.0.2 Established, fe80::2%swp1 Active\n  BFD 10.0.0.2 Up\n"),
            "{text}"
        );
    }
}
