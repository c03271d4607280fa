//! The kernel's interfaces and addresses, folded into one state per interface as the RIB wants it.

use ribtide_prefix::{Map, Set};
use ribtide_rib::InterfaceEvent;
use ribtide_wire::netlink::{Address, Content};
use std::net::IpAddr;

/// What is known of one interface.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    /// Empty while only addresses are known.
    name: String,
    operative: bool,
    /// It did not carry packets at some time since the last [`Interfaces::news`].
    fell: bool,
    master: Option<u32>,
    is_vrf: bool,
    addresses: Vec<(IpAddr, u8)>,
}

/// A difference that the RIB has not been told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The interface's present state; `came_up` when it did not carry packets before.
    Changed { event: InterfaceEvent, came_up: bool },
    /// It is gone.
    Removed(u32),
}

/// All interfaces.
#[derive(Default)]
pub(super) struct Interfaces {
    /// The VRF whose addresses count; without, those that are in none.
    vrf: Option<u32>,
    states: Map<u32, State>,
    /// What the RIB was told.
    told: Map<u32, InterfaceEvent>,
    touched: Set<u32>,
}

impl Interfaces {
    /// Those of a VRF, by the number of its device; or those outside of any.
    pub(super) fn of(vrf: Option<u32>) -> Interfaces {
        Interfaces { vrf, ..Interfaces::default() }
    }

    /// Takes one message of the kernel, from a dump or a notification.
    pub(super) fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::NewLink(link) => {
                let state = self.states.entry(link.index).or_default();
                state.name = link.name.into();
                state.operative = link.operative();
                state.fell |= !state.operative;
                state.master = link.master;
                let is_vrf = link.kind == Some("vrf");
                if std::mem::replace(&mut state.is_vrf, is_vrf) != is_vrf {
                    // Its members' addresses belong to another table, or no longer do.
                    self.touched.extend(self.states.keys());
                }
                self.touched.insert(link.index);
            }
            Content::DelLink(link) => {
                self.states.remove(&link.index);
                self.touched.insert(link.index);
            }
            Content::NewAddress(address) if address.usable() => {
                let Some(pair) = routed(address) else { return };
                let addresses = &mut self.states.entry(address.ifindex).or_default().addresses;
                if !addresses.contains(&pair) {
                    addresses.push(pair);
                    addresses.sort_unstable();
                }
                self.touched.insert(address.ifindex);
            }
            Content::NewAddress(address) | Content::DelAddress(address) => {
                let Some(pair) = routed(address) else { return };
                if let Some(state) = self.states.get_mut(&address.ifindex) {
                    state.addresses.retain(|a| *a != pair);
                }
                self.touched.insert(address.ifindex);
            }
            _ => {}
        }
    }

    /// Begins anew: a dump follows, and what it does not show is gone.
    pub(super) fn restart(&mut self) {
        self.touched.extend(self.states.keys());
        self.states.clear();
    }

    /// What changed since the last call, one item per interface, by number.
    pub(super) fn news(&mut self) -> Vec<News> {
        let mut touched: Vec<u32> = self.touched.drain().collect();
        touched.sort_unstable();
        let mut news = Vec::new();
        for index in touched {
            let fell = self.states.get_mut(&index).is_some_and(|s| std::mem::take(&mut s.fell));
            let Some(state) = self.states.get(&index).filter(|s| !s.name.is_empty()) else {
                if self.told.remove(&index).is_some() {
                    news.push(News::Removed(index));
                }
                continue;
            };
            // The addresses of a VRF and of its members are connected routes of the VRF's table, and of no other.
            let master = state.master.filter(|m| self.states.get(m).is_some_and(|m| m.is_vrf));
            let vrf = if state.is_vrf { Some(index) } else { master };
            let event = InterfaceEvent {
                index,
                name: state.name.clone(),
                up: state.operative,
                addresses: if vrf == self.vrf { state.addresses.clone() } else { Vec::new() },
            };
            let before = self.told.get(&index);
            let came_up = event.up && (fell || !before.is_some_and(|b| b.up));
            if came_up || before != Some(&event) {
                self.told.insert(index, event.clone());
                news.push(News::Changed { event, came_up });
            }
        }
        news
    }
}

/// The own address and the length of its subnet. `None` for addresses that are never routed between interfaces:
/// of the host alone, or of the link alone.
fn routed(address: &Address) -> Option<(IpAddr, u8)> {
    let local = match address.local {
        IpAddr::V4(a) => a.is_loopback() || a.is_link_local(),
        IpAddr::V6(a) => a.is_loopback() || a.is_unicast_link_local(),
    };
    (!local).then(|| {
        // On a point-to-point link the network is the peer's and does not hold the own address.
        let len = if address.network.contains(address.local) {
            address.network.len()
        } else {
            width(address.local)
        };
        (address.local, len)
    })
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::Link;

    fn link(index: u32, name: &str, up: bool) -> Content<'_> {
        let flags = if up { 0x10001 } else { 0 };
        Content::NewLink(Link { index, name, flags, mtu: 1500, master: None, kind: None, vrf_table: None })
    }

    fn address(ifindex: u32, text: &str, flags: u32) -> Address {
        let (addr, len) = text.split_once('/').unwrap();
        let local = addr.parse().unwrap();
        let network = ribtide_prefix::AnyPrefix::from_addr(local, len.parse().unwrap()).unwrap();
        Address { ifindex, local, network, scope: 0, flags }
    }

    fn event(index: u32, name: &str, up: bool, addresses: &[(&str, u8)]) -> InterfaceEvent {
        let addresses = addresses.iter().map(|(a, l)| (a.parse().unwrap(), *l)).collect();
        InterfaceEvent { index, name: name.into(), up, addresses }
    }

    #[test]
    fn one_event_tells_the_whole_state() {
        let mut all = Interfaces::default();
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0x80)));
        all.take(&Content::NewAddress(address(2, "fe80::1/64", 0x80)));
        let expect = event(2, "eth0", true, &[("10.0.0.1", 24)]);
        assert_eq!(all.news(), [News::Changed { event: expect, came_up: true }]);
        // Nothing new: nothing said.
        all.take(&link(2, "eth0", true));
        assert_eq!(all.news(), []);
        // Down and up between two looks: the kernel has lost routes all the same.
        all.take(&link(2, "eth0", false));
        all.take(&link(2, "eth0", true));
        let expect = event(2, "eth0", true, &[("10.0.0.1", 24)]);
        assert_eq!(all.news(), [News::Changed { event: expect, came_up: true }]);
        all.take(&link(2, "eth0", false));
        let expect = event(2, "eth0", false, &[("10.0.0.1", 24)]);
        assert_eq!(all.news(), [News::Changed { event: expect, came_up: false }]);
        all.take(&Content::DelLink(Link {
            index: 2,
            name: "eth0",
            flags: 0,
            mtu: 0,
            master: None,
            kind: None,
            vrf_table: None,
        }));
        assert_eq!(all.news(), [News::Removed(2)]);
    }

    #[test]
    fn an_address_counts_when_duplicate_detection_is_over() {
        let mut all = Interfaces::default();
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "2001:db8::1/64", 0x40)));
        assert_eq!(all.news(), [News::Changed { event: event(2, "eth0", true, &[]), came_up: true }]);
        all.take(&Content::NewAddress(address(2, "2001:db8::1/64", 0x80)));
        let expect = event(2, "eth0", true, &[("2001:db8::1", 64)]);
        assert_eq!(all.news(), [News::Changed { event: expect, came_up: false }]);
    }

    #[test]
    fn what_a_new_dump_does_not_show_is_gone() {
        let mut all = Interfaces::default();
        all.take(&link(2, "eth0", true));
        all.take(&link(3, "eth1", true));
        all.news();
        all.restart();
        all.take(&link(3, "eth1", true));
        assert_eq!(all.news(), [News::Removed(2)]);
    }

    #[test]
    fn addresses_of_a_vrfs_members_are_the_vrfs() {
        let link = |index, name, master, vrf_table: Option<u32>| {
            let kind = vrf_table.map(|_| "vrf");
            Content::NewLink(Link { index, name, flags: 0x10001, mtu: 1500, master, kind, vrf_table })
        };
        let seen = |vrf| {
            let mut all = Interfaces::of(vrf);
            all.take(&link(2, "eth0", Some(9), None));
            all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0)));
            all.take(&link(3, "eth1", None, None));
            all.take(&Content::NewAddress(address(3, "10.0.1.1/24", 0)));
            all.take(&link(9, "red", None, Some(100)));
            let told = all.news().into_iter().map(|news| match news {
                News::Changed { event, .. } => (event.index, event.addresses.len()),
                News::Removed(index) => panic!("{index} is not gone"),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(seen(None), [(2, 0), (3, 1), (9, 0)]);
        assert_eq!(seen(Some(9)), [(2, 1), (3, 0), (9, 0)]);
    }
}
