//! The kernel's interfaces and addresses, folded into one state per interface as the RIB wants it.

use super::super::InterfaceLine;
use super::interface_list::{InterfaceList, ListedInterface};
use super::on_link::OnLink;
use ribtide_config::{DEFAULT_VRF, VrfSetup};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_rib::{InterfaceEvent, VrfId};
use ribtide_wire::netlink::Content;
use ribtide_wire::netlink::numbers::{IFF_LOOPBACK, IFF_LOWER_UP, IFF_UP};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What is known of one interface.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct State {
    /// Empty while only addresses are known.
    name: String,
    kind: Option<String>,
    mtu: u32,
    /// `IFF_*`.
    flags: u32,
    /// It did not carry packets at some time since the last [`Interfaces::news`].
    fell: bool,
    master: Option<u32>,
    /// Each usable own address with its subnet: on a point-to-point link the peer's, which does not hold the own address.
    addresses: Vec<(IpAddr, AnyPrefix)>,
}

impl State {
    fn is_vrf(&self) -> bool {
        self.kind.as_deref() == Some("vrf")
    }

    /// Whether it carries packets.
    fn is_operative(&self) -> bool {
        self.flags & (IFF_UP | IFF_LOWER_UP) == IFF_UP | IFF_LOWER_UP
    }

    /// Its addresses to and from which packets are routed, each with its subnet.
    fn routed(&self) -> Vec<(IpAddr, AnyPrefix)> {
        self.addresses.iter().filter(|(own, _)| is_routed(*own)).copied().collect()
    }

    /// Its IPv6 addresses that are valid on its link alone.
    fn link_local(&self) -> Vec<IpAddr> {
        let mut own: Vec<IpAddr> =
            self.addresses.iter().map(|(own, _)| *own).filter(|a| is_link_local(*a)).collect();
        own.dedup();
        own
    }
}

/// A change for the RIB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The interface's present state; `came_up` when it did not carry packets before. `addresses`: with the
    /// subnets that the kernel has no route to, which the event leaves out. `link_local`: those of the link alone, which it
    /// leaves out too.
    Changed {
        event: InterfaceEvent,
        addresses: Vec<(IpAddr, AnyPrefix)>,
        link_local: Vec<IpAddr>,
        came_up: bool,
    },
    /// It is gone.
    Removed(u32),
}

/// All interfaces.
pub(super) struct Interfaces {
    /// The device of the default VRF; without, it has the interfaces that are in no other.
    vrf: Option<u32>,
    /// The other VRFs.
    vrfs: Arc<[VrfSetup]>,
    states: Map<u32, State>,
    /// The last state sent to the RIB.
    sent: Map<u32, InterfaceEvent>,
    /// The link-local addresses of the last news of those that have any.
    sent_link_local: Map<u32, Vec<IpAddr>>,
    touched: Set<u32>,
    /// How often each lost its carrier. The kernel names an interface once that lost it and has it again within a moment, as
    /// it is then, which only this number tells from no event.
    carrier_downs: Map<u32, u32>,
    /// Subnets that the kernel has no route to.
    missing: Arc<BTreeSet<OnLink>>,
    /// All of it for the API.
    list: InterfaceList,
}

impl Interfaces {
    /// None yet. `vrf` is the number of the default VRF's device, if it has one.
    pub(super) fn of(vrf: Option<u32>, vrfs: Arc<[VrfSetup]>) -> Interfaces {
        Interfaces {
            vrf,
            vrfs,
            states: Map::default(),
            sent: Map::default(),
            sent_link_local: Map::default(),
            touched: Set::default(),
            carrier_downs: Map::default(),
            missing: Arc::default(),
            list: InterfaceList::default(),
        }
    }

    /// The list for the API, which follows each [`Interfaces::news`].
    pub(super) fn list(&self) -> InterfaceList {
        self.list.clone()
    }

    /// From now on the kernel has no route to these subnets. Their addresses are without a subnet for the RIB.
    pub(super) fn set_missing(&mut self, missing: Arc<BTreeSet<OnLink>>) {
        let before = std::mem::replace(&mut self.missing, missing);
        self.touched.extend(before.symmetric_difference(&self.missing).map(|(_, index)| *index));
    }

    /// From now on there are these VRFs beside the default one.
    pub(super) fn set_vrfs(&mut self, vrfs: Arc<[VrfSetup]>) {
        self.vrfs = vrfs;
        self.touched.extend(self.states.keys());
    }

    /// The VRF that an interface is in. `None`: one that is not ours, and its addresses are not either.
    fn place(&self, index: u32, state: &State) -> Option<VrfId> {
        let lists = |vrf: &&VrfSetup| vrf.interfaces.iter().flatten().any(|name| *name == state.name);
        if let Some(listed) = self.vrfs.iter().find(lists) {
            return Some(listed.vrf.id);
        }
        // The addresses of a VRF and of its members are connected routes of the VRF's table, and of no other.
        let device = if state.is_vrf() { Some(index) } else { state.master };
        let device =
            device.and_then(|device| Some((device, self.states.get(&device).filter(|d| d.is_vrf())?)));
        if device.map(|(index, _)| index) == self.vrf {
            return Some(VrfId::DEFAULT);
        }
        let of =
            |vrf: &&VrfSetup| vrf.interfaces.is_none() && device.is_some_and(|(_, d)| d.name == vrf.name);
        self.vrfs.iter().find(of).map(|vrf| vrf.vrf.id)
    }

    /// An interface for the list; `None`: it is gone.
    fn listed(&self, index: u32) -> Option<ListedInterface> {
        let state = self.states.get(&index).filter(|state| !state.name.is_empty())?;
        let name = |id| match id {
            VrfId::DEFAULT => Some(DEFAULT_VRF.to_owned()),
            id => self.vrfs.iter().find(|setup| setup.vrf.id == id).map(|setup| setup.name.clone()),
        };
        let subnets: BTreeSet<AnyPrefix> = state.addresses.iter().map(|(_, subnet)| *subnet).collect();
        Some(ListedInterface {
            name: state.name.clone(),
            kind: state.kind.clone(),
            admin_up: state.flags & IFF_UP != 0,
            carrier: state.flags & IFF_LOWER_UP != 0,
            mtu: state.mtu,
            master: state.master,
            vrf: self.place(index, state).and_then(name),
            addresses: state.addresses.clone(),
            missing: subnets.into_iter().filter(|s| self.missing.contains(&(*s, index))).collect(),
        })
    }

    /// Takes one message of the kernel, from a dump or a notification.
    pub(super) fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::NewLink(link) => {
                let state = self.states.entry(link.index).or_default();
                let renamed = state.name != link.name;
                state.name = link.name.into();
                state.flags = link.flags;
                state.mtu = link.mtu;
                let downs = link.carrier_down_count;
                let before = downs.and_then(|downs| self.carrier_downs.insert(link.index, downs));
                state.fell |= !state.is_operative() || before.is_some_and(|before| downs != Some(before));
                state.master = link.master;
                let was_vrf = state.is_vrf();
                state.kind = link.kind.map(str::to_owned);
                if state.is_vrf() != was_vrf || (was_vrf && renamed) {
                    // Its members' addresses belong to another table, or no longer do.
                    self.touched.extend(self.states.keys());
                }
                self.touched.insert(link.index);
            }
            Content::DelLink(link) => {
                self.states.remove(&link.index);
                self.carrier_downs.remove(&link.index);
                self.touched.insert(link.index);
            }
            Content::NewAddress(address) | Content::DelAddress(address) => {
                let there = matches!(content, Content::NewAddress(_)) && address.usable();
                let state = self.states.entry(address.ifindex).or_default();
                let pair = (address.local, address.network);
                state.addresses.retain(|a| *a != pair);
                if there {
                    state.addresses.push(pair);
                    state.addresses.sort_unstable();
                }
                self.touched.insert(address.ifindex);
            }
            _ => {}
        }
    }

    /// Starts over: a dump follows, and what it does not show is gone.
    pub(super) fn restart(&mut self) {
        self.touched.extend(self.states.keys());
        self.states.clear();
    }

    /// What changed since the last call, one item per interface, by number; each with a line for the operator, if it is of
    /// interest to one.
    pub(super) fn news(&mut self) -> Vec<(News, Option<InterfaceLine>)> {
        let mut touched: Vec<u32> = self.touched.drain().collect();
        touched.sort_unstable();
        self.list.update(touched.iter().map(|index| (*index, self.listed(*index))));
        let mut news = Vec::new();
        for index in touched {
            let fell = self.states.get_mut(&index).is_some_and(|s| std::mem::take(&mut s.fell));
            let Some(state) = self.states.get(&index).filter(|s| !s.name.is_empty()) else {
                self.sent_link_local.remove(&index);
                if let Some(before) = self.sent.remove(&index) {
                    let line =
                        InterfaceLine { interface: before.name, sentence: "the interface is gone".into() };
                    news.push((News::Removed(index), Some(line)));
                }
                continue;
            };
            let place = self.place(index, state);
            let addresses = if place.is_some() { state.routed() } else { Vec::new() };
            let reached = |(own, subnet): &(IpAddr, AnyPrefix)| match self.missing.contains(&(*subnet, index))
            {
                true => (*own, AnyPrefix::host(*own)),
                false => (*own, *subnet),
            };
            let event = InterfaceEvent {
                vrf: place.unwrap_or_default(),
                index,
                name: state.name.clone(),
                up: state.is_operative(),
                loopback: state.flags & IFF_LOOPBACK != 0,
                addresses: addresses.iter().map(reached).collect(),
            };
            let before = self.sent.get(&index);
            let came_up = event.up && (fell || !before.is_some_and(|b| b.up));
            let link_local = if place.is_some() { state.link_local() } else { Vec::new() };
            let link_local_before = self.sent_link_local.get(&index).map_or(&[][..], Vec::as_slice);
            if came_up || before != Some(&event) || link_local != link_local_before {
                let line = describe(before, &event, came_up);
                self.sent.insert(index, event.clone());
                match link_local.is_empty() {
                    true => drop(self.sent_link_local.remove(&index)),
                    false => drop(self.sent_link_local.insert(index, link_local.clone())),
                }
                news.push((News::Changed { event, addresses, link_local, came_up }, line));
            }
        }
        news
    }
}

/// The log line of a change; `None`: an operator has no use for one.
fn describe(before: Option<&InterfaceEvent>, now: &InterfaceEvent, came_up: bool) -> Option<InterfaceLine> {
    let state = if now.up { "up" } else { "down" };
    let (mut parts, mut routes) = (Vec::new(), Vec::new());
    match before {
        None => parts.push(format!("is new and {state}")),
        Some(before) => {
            if before.name != now.name {
                parts.push(format!("was {}", before.name));
            }
            if before.up != now.up {
                parts.push(format!("is {state}"));
            } else if came_up {
                parts.push("was down and is up".into());
            }
        }
    }
    let subject = if parts.is_empty() { "addresses of the interface changed:" } else { "the interface" };
    let had = before.map_or(&[][..], |before| &before.addresses);
    let name = |(own, subnet): &(IpAddr, AnyPrefix)| match subnet.contains(*own) {
        true => format!("{own}/{}", subnet.len()),
        false => format!("{own} peer {subnet}"),
    };
    // An address whose subnet lost its route stands alone, and has its subnet again after that.
    let alone = |(own, _): &(IpAddr, AnyPrefix)| (*own, AnyPrefix::host(*own));
    let is_lost = |a: &(IpAddr, AnyPrefix)| {
        *a != alone(a) && had.contains(a) && !had.contains(&alone(a)) && now.addresses.contains(&alone(a))
    };
    let is_back = |a: &(IpAddr, AnyPrefix)| {
        *a != alone(a)
            && now.addresses.contains(a)
            && had.contains(&alone(a))
            && !now.addresses.contains(&alone(a))
    };
    for a in had.iter().filter(|a| !now.addresses.contains(a)) {
        if is_lost(a) {
            routes.push(format!("the kernel has no route to {} by it", a.1));
        } else if !now.addresses.iter().any(|b| b.0 == a.0 && is_back(b)) {
            parts.push(format!("{} removed", name(a)));
        }
    }
    for a in now.addresses.iter().filter(|a| !had.contains(a)) {
        if is_back(a) {
            routes.push(format!("the kernel has a route to {} by it again", a.1));
        } else if !had.iter().any(|b| b.0 == a.0 && is_lost(b)) {
            parts.push(format!("{} added", name(a)));
        }
    }
    if parts.is_empty() {
        // The interface is named by the line.
        return (!routes.is_empty())
            .then(|| InterfaceLine { interface: now.name.clone(), sentence: routes.join(", ") });
    }
    parts.append(&mut routes);
    let sentence = format!("{subject} {}", parts.join(", "));
    Some(InterfaceLine { interface: now.name.clone(), sentence })
}

/// Whether packets to it are routed between interfaces: not those to addresses of the host alone, or of the link alone.
pub(super) fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !a.is_loopback() && !a.is_link_local(),
        IpAddr::V6(a) => !a.is_loopback() && !a.is_unicast_link_local(),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::{Address, Link};

    fn link(index: u32, name: &str, up: bool) -> Content<'_> {
        Content::NewLink(Link { flags: if up { UP } else { 0 }, ..plain(index, name) })
    }

    /// A link that is up: a VRF's device where it has a table, a member of the device `master` where there is one.
    fn vrf_link(index: u32, name: &str, master: Option<u32>, vrf_table: Option<u32>) -> Content<'_> {
        let kind = vrf_table.map(|_| "vrf");
        Content::NewLink(Link { master, kind, vrf_table, ..plain(index, name) })
    }

    /// `IFF_UP | IFF_LOWER_UP`.
    const UP: u32 = 0x10001;

    fn plain(index: u32, name: &str) -> Link<'_> {
        Link {
            index,
            name,
            flags: UP,
            mtu: 1500,
            master: None,
            kind: None,
            vrf_table: None,
            carrier_down_count: None,
        }
    }

    fn address(ifindex: u32, text: &str, flags: u32) -> Address {
        let (addr, len) = text.split_once('/').unwrap();
        let local = addr.parse().unwrap();
        let network = ribtide_prefix::AnyPrefix::from_addr(local, len.parse().unwrap()).unwrap();
        Address { ifindex, local, network, scope: 0, flags }
    }

    fn changed(event: InterfaceEvent, came_up: bool) -> News {
        News::Changed { addresses: event.addresses.clone(), link_local: Vec::new(), event, came_up }
    }

    fn news(all: &mut Interfaces) -> Vec<News> {
        all.news().into_iter().map(|(news, _)| news).collect()
    }

    fn event(index: u32, name: &str, up: bool, addresses: &[(&str, u8)]) -> InterfaceEvent {
        let on_subnet = |(a, len): &(&str, u8)| {
            let own: IpAddr = a.parse().unwrap();
            (own, AnyPrefix::from_addr(own, *len).unwrap())
        };
        let addresses = addresses.iter().map(on_subnet).collect();
        InterfaceEvent { vrf: VrfId::DEFAULT, index, name: name.into(), up, loopback: false, addresses }
    }

    #[test]
    fn one_event_tells_the_whole_state() {
        let mut all = Interfaces::of(None, [].into());
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0x80)));
        let expect = event(2, "eth0", true, &[("10.0.0.1", 24)]);
        assert_eq!(news(&mut all), [changed(expect, true)]);
        // Nothing new: nothing said.
        all.take(&link(2, "eth0", true));
        assert_eq!(news(&mut all), []);
        // Down and up between two looks: the kernel has lost routes all the same.
        all.take(&link(2, "eth0", false));
        all.take(&link(2, "eth0", true));
        let expect = event(2, "eth0", true, &[("10.0.0.1", 24)]);
        assert_eq!(news(&mut all), [changed(expect, true)]);
        all.take(&link(2, "eth0", false));
        let expect = event(2, "eth0", false, &[("10.0.0.1", 24)]);
        assert_eq!(news(&mut all), [changed(expect, false)]);
        all.take(&Content::DelLink(Link {
            index: 2,
            name: "eth0",
            flags: 0,
            mtu: 0,
            master: None,
            kind: None,
            vrf_table: None,
            carrier_down_count: None,
        }));
        assert_eq!(news(&mut all), [News::Removed(2)]);
    }

    #[test]
    fn news_carrier_lost_and_back_in_one_message_came_up() {
        let named = |downs| {
            let Content::NewLink(link) = link(2, "eth0", true) else { unreachable!() };
            Content::NewLink(Link { carrier_down_count: downs, ..link })
        };
        let expect = event(2, "eth0", true, &[]);
        let mut all = Interfaces::of(None, [].into());
        all.take(&named(Some(3)));
        assert_eq!(news(&mut all), [changed(expect.clone(), true)]);
        all.take(&named(Some(3)));
        assert_eq!(news(&mut all), []);
        all.take(&named(Some(4)));
        let sentence = "the interface was down and is up".into();
        let line = Some(InterfaceLine { interface: "eth0".into(), sentence });
        assert_eq!(all.news(), [(changed(expect.clone(), true), line)]);
        // Notifications were lost, and a dump shows it.
        all.restart();
        all.take(&named(Some(6)));
        assert_eq!(news(&mut all), [changed(expect.clone(), true)]);
        all.restart();
        all.take(&named(Some(6)));
        assert_eq!(news(&mut all), []);
        // A kernel that does not count.
        all.take(&named(None));
        assert_eq!(news(&mut all), []);
    }

    /// Sessions over link-local addresses end with them. The RIB has no use for these.
    #[test]
    fn link_local_addresses_are_news_and_no_part_of_the_event() {
        let mut all = Interfaces::of(None, [].into());
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "fe80::1/64", 0)));
        let with = |all: &mut Interfaces| match all.news().pop() {
            Some((News::Changed { event, addresses, link_local, .. }, _)) => {
                assert!(event.addresses.is_empty() && addresses.is_empty());
                Some(link_local)
            }
            other => {
                assert_eq!(other, None);
                None
            }
        };
        let one: IpAddr = "fe80::1".parse().unwrap();
        assert_eq!(with(&mut all), Some(vec![one]));
        assert_eq!(with(&mut all), None);
        all.take(&Content::NewAddress(address(2, "fe80::1/64", 0)));
        assert_eq!(with(&mut all), None, "it has not changed");
        all.take(&Content::DelAddress(address(2, "fe80::1/64", 0)));
        assert_eq!(with(&mut all), Some(vec![]));
        // Notifications were lost, and a dump shows it again.
        all.take(&Content::NewAddress(address(2, "fe80::1/64", 0)));
        with(&mut all);
        all.restart();
        all.take(&link(2, "eth0", true));
        assert_eq!(with(&mut all), Some(vec![]));
    }

    #[test]
    fn an_address_counts_when_duplicate_detection_is_over() {
        let mut all = Interfaces::of(None, [].into());
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "2001:db8::1/64", 0x40)));
        assert_eq!(news(&mut all), [changed(event(2, "eth0", true, &[]), true)]);
        all.take(&Content::NewAddress(address(2, "2001:db8::1/64", 0x80)));
        let expect = event(2, "eth0", true, &[("2001:db8::1", 64)]);
        assert_eq!(news(&mut all), [changed(expect, false)]);
    }

    #[test]
    fn subnet_without_a_route_in_the_kernel_leaves_the_host_address() {
        let mut all = Interfaces::of(None, [].into());
        all.take(&link(2, "eth0", true));
        all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0x80)));
        all.news();
        let subnet: AnyPrefix = "10.0.0.0/24".parse().unwrap();
        all.set_missing(Arc::new([(subnet, 2), (subnet, 3)].into()));
        let with_subnet = event(2, "eth0", true, &[("10.0.0.1", 24)]);
        let without = event(2, "eth0", true, &[("10.0.0.1", 32)]);
        let line =
            |sentence: &str| Some(InterfaceLine { interface: "eth0".into(), sentence: sentence.into() });
        // The sessions of BGP keep the address as it is.
        let addresses = with_subnet.addresses.clone();
        let lost = News::Changed { event: without, addresses, link_local: Vec::new(), came_up: false };
        assert_eq!(all.news(), [(lost, line("the kernel has no route to 10.0.0.0/24 by it"))]);
        all.set_missing(Arc::default());
        let back = line("the kernel has a route to 10.0.0.0/24 by it again");
        assert_eq!(all.news(), [(changed(with_subnet, false), back)]);
    }

    #[test]
    fn list_has_addresses_that_are_no_news_and_missing_subnets() {
        let mut all = Interfaces::of(None, [].into());
        let list = all.list();
        all.take(&link(1, "lo", true));
        all.take(&Content::NewAddress(address(1, "127.0.0.1/8", 0x80)));
        all.take(&link(2, "eth0", false));
        all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0x80)));
        all.take(&Content::NewAddress(address(2, "fe80::1/64", 0x80)));
        all.take(&Content::NewAddress(address(2, "2001:db8::1/64", 0x40)));
        assert!(list.get().is_empty(), "it follows the news");
        all.news();
        let own =
            |of: u32| list.get()[&of].addresses.iter().map(|(own, _)| own.to_string()).collect::<Vec<_>>();
        assert_eq!((own(1), own(2)), (vec!["127.0.0.1".into()], vec!["10.0.0.1".into(), "fe80::1".into()]));
        let eth0 = list.get()[&2].clone();
        assert_eq!((eth0.admin_up, eth0.carrier, eth0.vrf.as_deref()), (false, false, Some(DEFAULT_VRF)));
        // A list that a reader holds stays as it is.
        let held = list.get();
        let subnet: AnyPrefix = "10.0.0.0/24".parse().unwrap();
        all.set_missing(Arc::new([(subnet, 2)].into()));
        all.take(&Content::DelAddress(address(1, "127.0.0.1/8", 0)));
        all.news();
        assert_eq!((list.get()[&2].missing.as_slice(), held[&2].missing.len()), (&[subnet][..], 0));
        assert!(own(1).is_empty(), "a loopback's address is no news, and gone all the same");
        // One of a VRF that the configuration does not have.
        all.take(&vrf_link(9, "red", None, Some(100)));
        all.take(&vrf_link(2, "eth0", Some(9), None));
        all.news();
        assert_eq!((list.get()[&2].vrf.clone(), list.get()[&2].master), (None, Some(9)));
        all.restart();
        all.news();
        assert!(list.get().is_empty());
    }

    #[test]
    fn what_a_new_dump_does_not_show_is_gone() {
        let mut all = Interfaces::of(None, [].into());
        all.take(&link(2, "eth0", true));
        all.take(&link(3, "eth1", true));
        all.news();
        all.restart();
        all.take(&link(3, "eth1", true));
        assert_eq!(news(&mut all), [News::Removed(2)]);
    }

    #[test]
    fn addresses_of_a_vrfs_members_are_the_vrfs() {
        let seen = |vrf, vrfs: &[VrfSetup]| {
            let mut all = Interfaces::of(vrf, vrfs.into());
            all.take(&vrf_link(2, "eth0", Some(9), None));
            all.take(&Content::NewAddress(address(2, "10.0.0.1/24", 0)));
            all.take(&vrf_link(3, "eth1", None, None));
            all.take(&Content::NewAddress(address(3, "10.0.1.1/24", 0)));
            all.take(&vrf_link(9, "red", None, Some(100)));
            let told = news(&mut all).into_iter().map(|news| match news {
                News::Changed { event, .. } => (event.index, event.vrf.0, event.addresses.len()),
                News::Removed(index) => panic!("{index} is not gone"),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(seen(None, &[]), [(2, 0, 0), (3, 0, 1), (9, 0, 0)]);
        assert_eq!(seen(Some(9), &[]), [(2, 0, 1), (3, 0, 0), (9, 0, 0)]);
        let vrf = |name: &str, interfaces: Option<&[&str]>| VrfSetup {
            name: name.into(),
            vrf: ribtide_rib::Vrf { id: VrfId(4), table: 100, device: 9 },
            interfaces: interfaces.map(|names| names.iter().map(|name| name.to_string()).collect()),
            statics: Vec::new(),
            policy: ribtide_config::FibPolicy::default(),
        };
        assert_eq!(seen(None, &[vrf("red", None)]), [(2, 4, 1), (3, 0, 1), (9, 4, 0)]);
        assert_eq!(seen(None, &[vrf("blue", None)]), [(2, 0, 0), (3, 0, 1), (9, 0, 0)]);
        assert_eq!(seen(None, &[vrf("any", Some(&["eth1"]))]), [(2, 0, 0), (3, 4, 1), (9, 0, 0)]);
    }

    #[test]
    fn an_interface_follows_its_device_and_the_configuration() {
        let vrf = |id, name: &str| VrfSetup {
            name: name.into(),
            vrf: ribtide_rib::Vrf { id: VrfId(id), table: 100, device: 9 },
            interfaces: None,
            statics: Vec::new(),
            policy: ribtide_config::FibPolicy::default(),
        };
        let mut all = Interfaces::of(None, [vrf(1, "red")].into());
        all.take(&vrf_link(9, "red", None, Some(100)));
        all.take(&vrf_link(2, "eth0", None, None));
        let mut places = |message: Option<Content<'_>>, vrfs: Option<VrfSetup>| {
            message.iter().for_each(|message| all.take(message));
            vrfs.into_iter().for_each(|vrf| all.set_vrfs([vrf].into()));
            let told = news(&mut all).into_iter().filter_map(|news| match news {
                News::Changed { event, .. } if event.index == 2 => Some(event.vrf.0),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(places(None, None), [0]);
        assert_eq!(places(Some(vrf_link(2, "eth0", Some(9), None)), None), [1]);
        assert_eq!(places(None, Some(vrf(3, "red"))), [3]);
        assert_eq!(places(Some(vrf_link(9, "blue", None, Some(100))), None), [0]);
        assert_eq!(places(Some(vrf_link(9, "red", None, Some(100))), None), [3]);
        assert_eq!(places(Some(vrf_link(2, "eth0", None, None)), None), [0]);
    }

    #[test]
    fn news_says_what_an_operator_would() {
        let mut all = Interfaces::of(None, [].into());
        let mut says = |messages: &[Content<'_>]| {
            messages.iter().for_each(|message| all.take(message));
            let lines = all.news().into_iter().filter_map(|(_, line)| line);
            lines.map(|line| format!("{}: {}", line.interface, line.sentence)).collect::<Vec<String>>()
        };
        let (four, six) = (address(2, "10.0.0.1/24", 0), address(2, "2001:db8::1/64", 0));
        assert_eq!(
            says(&[link(2, "eth1", true), Content::NewAddress(four)]),
            ["eth1: the interface is new and up, 10.0.0.1/24 added"]
        );
        assert_eq!(
            says(&[Content::NewAddress(six)]),
            ["eth1: addresses of the interface changed: 2001:db8::1/64 added"]
        );
        assert_eq!(
            says(&[link(2, "eth1", false), Content::DelAddress(six)]),
            ["eth1: the interface is down, 2001:db8::1/64 removed"]
        );
        assert_eq!(says(&[link(2, "eth1", true)]), ["eth1: the interface is up"]);
        assert_eq!(
            says(&[link(2, "eth1", false), link(2, "eth1", true)]),
            ["eth1: the interface was down and is up"]
        );
        assert_eq!(says(&[link(2, "wan", true)]), ["wan: the interface was eth1"]);
        assert_eq!(says(&[link(2, "wan", true)]), [""; 0]);
        let gone = ribtide_wire::netlink::Link {
            index: 2,
            name: "wan",
            flags: 0,
            mtu: 0,
            master: None,
            kind: None,
            vrf_table: None,
            carrier_down_count: None,
        };
        assert_eq!(says(&[Content::DelLink(gone)]), ["wan: the interface is gone"]);
    }

    #[test]
    fn news_point_to_point_network_is_the_peers() {
        let mut all = Interfaces::of(None, [].into());
        let to = |peer: &str| Address { local: "10.0.0.1".parse().unwrap(), ..address(2, peer, 0) };
        let news = |all: &mut Interfaces| match all.news().remove(0) {
            (News::Changed { event, .. }, line) => (event.addresses, line.unwrap().sentence),
            other => panic!("{other:?}"),
        };
        all.take(&link(2, "ppp0", true));
        all.take(&Content::NewAddress(to("10.0.0.2/32")));
        all.take(&Content::NewAddress(to("10.0.0.3/32")));
        let own = |peer: &str| (IpAddr::from([10, 0, 0, 1]), peer.parse::<AnyPrefix>().unwrap());
        let sentence =
            "the interface is new and up, 10.0.0.1 peer 10.0.0.2/32 added, 10.0.0.1 peer 10.0.0.3/32 added";
        assert_eq!(news(&mut all), (vec![own("10.0.0.2/32"), own("10.0.0.3/32")], sentence.into()));
        all.take(&Content::DelAddress(to("10.0.0.2/32")));
        let sentence = "addresses of the interface changed: 10.0.0.1 peer 10.0.0.2/32 removed";
        assert_eq!(news(&mut all), (vec![own("10.0.0.3/32")], sentence.into()));
    }
}
