//! Fast external fallover: a single-hop external neighbour that is on a subnet of ours loses its session with the interface,
//! and may have it again when an interface with that subnet carries packets.
//!
//! The neighbour's interfaces are those with the longest subnet that holds its address, up or down. It is cut off when none of
//! them is up, or when no subnet holds it any more although one did: the kernel forgets a down interface's IPv6 addresses.
//! A neighbour that was never seen on a subnet of ours, such as one behind a static route, is left alone.

use super::Sessions;
use super::peer::Peer;
use ribtide_bgp::fsm::{Event, Millis, Obstacle};
use ribtide_bgp::peer::PeerId;
use ribtide_dataplane::{InterfaceNews, InterfaceState};
use ribtide_prefix::Map;
use ribtide_prefix::zone::split_zone;
use std::net::IpAddr;

/// Sessions that a line names; of more it tells the number.
const NAMED: usize = 8;

/// How late the kernel may say that an interface lost its carrier and has it again, in milliseconds: Linux names an interface
/// for its carrier at most once a second.
const CARRIER_NEWS_DELAY: Millis = 1_100;

/// The interfaces, by the kernel's numbers.
#[derive(Default)]
pub(super) struct Interfaces(Map<u32, InterfaceState>);

/// The interface of a neighbour on a subnet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnLink<'a> {
    /// This one, which is up.
    Up(&'a str),
    /// This one, if it were up.
    Down(&'a str),
    /// None: it is on no subnet of ours.
    No,
}

impl Interfaces {
    fn interface_to(&self, address: IpAddr) -> OnLink<'_> {
        match self.best(address) {
            Some((_, true, name, _)) => OnLink::Up(name),
            Some((_, false, name, _)) => OnLink::Down(name),
            None => OnLink::No,
        }
    }

    /// The number and name of the interface that is up and has the address on its subnet.
    pub(super) fn link_to(&self, address: IpAddr) -> Option<(u32, &str)> {
        self.best(address).filter(|(_, up, ..)| *up).map(|(_, _, name, index)| (index, name))
    }

    /// The interface with the longest subnet that has the address: length, whether it is up, name, number.
    fn best(&self, address: IpAddr) -> Option<(u8, bool, &str, u32)> {
        let mut best: Option<(u8, bool, &str, u32)> = None;
        for (index, state) in &self.0 {
            let Some(len) = state.holds(address) else { continue };
            // Of several that are as good the answer does not depend on their order.
            best = best.max(Some((len, state.up, &state.name, *index)));
        }
        best
    }

    /// The interface of this number.
    pub(super) fn get(&self, index: u32) -> Option<&InterfaceState> {
        self.0.get(&index)
    }

    /// The state of a neighbour's interface.
    fn on_link(&self, index: u32) -> OnLink<'_> {
        match self.0.get(&index) {
            Some(InterfaceState { name, up: true, .. }) => OnLink::Up(name),
            Some(InterfaceState { name, .. }) => OnLink::Down(name),
            None => OnLink::No,
        }
    }

    /// Every interface by its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &InterfaceState)> {
        self.0.iter().map(|(index, state)| (*index, state))
    }

    /// The numbers of all interfaces.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    fn have(&self, address: IpAddr) -> bool {
        self.0.values().any(|state| state.has(address))
    }
}

impl Sessions {
    /// Takes news: ends the sessions that an interface carried, or lets them come again.
    pub(crate) fn take_interface(&mut self, news: InterfaceNews) {
        let InterfaceNews { index, state, line } = news;
        let fell = state.as_ref().is_some_and(|state| state.fell);
        let now = state.clone();
        let before = match state {
            Some(state) => self.links.0.insert(index, state),
            None => self.links.0.remove(&index),
        };
        let holds = |state: &Option<InterfaceState>, address| {
            state.as_ref().is_some_and(|state| state.holds(address).is_some())
        };
        // Peers in a subnet of this interface, now or before.
        let concerned = self.by_address.iter().filter(|(a, _)| holds(&before, **a) || holds(&now, **a));
        let mut concerned: Vec<(IpAddr, PeerId)> = concerned.map(|(address, id)| (*address, *id)).collect();
        let on_link = |peer: &Peer| peer.link.as_ref().is_some_and(|link| link.index == index);
        concerned
            .extend(self.peers.values().filter(|peer| on_link(peer)).map(|peer| (peer.address, peer.id)));
        let (mut ended, mut back) = (Vec::new(), Vec::new());
        for (address, id) in concerned {
            let Some(peer) = self.peers.get(&id) else { continue };
            let (was_up, was_held) = (peer.up.is_some(), peer.fsm.held().is_some());
            // The connection does not outlive its own address, nor an interface that was down between two looks.
            let local = peer.up.as_ref().map(|up| up.local);
            let had = |local: &IpAddr| before.as_ref().is_some_and(|state| state.has(*local));
            let on_this = |state: &Option<InterfaceState>, local: &IpAddr| {
                state.as_ref().is_some_and(|state| state.link_local.contains(local))
            };
            // The same link-local address may be on several interfaces.
            let loses_address = match on_link(peer) {
                true => local.is_some_and(|local| on_this(&before, &local) && !on_this(&now, &local)),
                false => local.filter(had).is_some_and(|local| !self.links.have(local)),
            };
            let carried = fell
                && !may_have_begun_after(peer.state.1, self.clock.now())
                && before.as_ref().is_some_and(|state| state.up)
                && (local.is_some_and(|l| had(&l)) || on_link(peer));
            if falls_over(peer) && (loses_address || carried) {
                let name = before.as_ref().map_or_else(String::new, |state| state.name.clone());
                self.event(id, Event::Hold(Obstacle::Interface(name)));
            }
            self.obey(id);
            // One that came from a range is gone with its session.
            let peer = self.peers.get(&id);
            if was_up && peer.is_none_or(|peer| peer.up.is_none()) {
                ended.push(split_zone(address).0);
            } else if was_held && peer.is_some_and(|peer| peer.fsm.held().is_none()) {
                back.push(split_zone(address).0);
            }
        }
        self.watch_link(index);
        if let Some(line) = line {
            let named = |addresses: &[IpAddr]| (!addresses.is_empty()).then(|| named(addresses));
            self.log.interface(self.clock.now(), &line, named(&ended), named(&back));
        }
    }

    /// Lets a peer have a session or not, as its settings have it, its maximum prefixes, BFD, and the interface to it.
    pub(super) fn obey(&mut self, id: PeerId) {
        let obstacle = self.obstacle(id);
        let Some(peer) = self.peers.get(&id) else { return };
        if obstacle.as_ref() != peer.fsm.held() {
            self.event(id, obstacle.map_or(Event::Release, Event::Hold));
        }
    }

    /// What stands in the way of a session of this peer.
    pub(super) fn obstacle(&mut self, id: PeerId) -> Option<Obstacle> {
        let on_link = match self.peers.get(&id) {
            Some(peer) if falls_over(peer) => match &peer.link {
                Some(link) => self.links.on_link(link.index),
                None => self.links.interface_to(peer.address),
            },
            Some(_) => OnLink::No,
            None => return None,
        };
        let peer = self.peers.get_mut(&id)?;
        let cut_off = match on_link {
            OnLink::Up(name) => {
                peer.interface = Some(name.into());
                None
            }
            OnLink::Down(name) => Some(name.to_owned()),
            OnLink::No if falls_over(peer) => peer.interface.clone(),
            OnLink::No => {
                peer.interface = None;
                None
            }
        };
        let by_limit = peer.limits.obstacle();
        by_limit.or_else(|| self.bfd_obstacle(self.peers.get(&id)?)).or(cut_off.map(Obstacle::Interface))
    }
}

/// Whether a session that was established at `established` may have begun after a loss of carrier that is heard of `now`.
fn may_have_begun_after(established: Millis, now: Millis) -> bool {
    now < established + CARRIER_NEWS_DELAY
}

/// Whether the neighbour's session ends with the interface to it.
fn falls_over(peer: &Peer) -> bool {
    let on_link = peer.kind.is_external() && !peer.settings.is_multihop();
    peer.settings.fast_external_fallover && (on_link || peer.link.is_some())
}

fn named(addresses: &[IpAddr]) -> String {
    let names: Vec<String> = addresses.iter().take(NAMED).map(IpAddr::to_string).collect();
    match addresses.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, up: bool, networks: &[&str]) -> InterfaceState {
        let subnet = |text: &&str| (IpAddr::from([0, 0, 0, 0]), text.parse().unwrap());
        InterfaceState {
            name: name.into(),
            up,
            fell: false,
            addresses: networks.iter().map(subnet).collect(),
            link_local: Vec::new(),
        }
    }

    #[test]
    fn interface_lookup_takes_the_longest_subnet_and_of_equal_ones_one_that_is_up() {
        let mut all = Interfaces::default();
        let peer = IpAddr::from([192, 0, 2, 9]);
        assert_eq!(all.interface_to(peer), OnLink::No);
        all.0.insert(1, state("wide", true, &["192.0.0.0/16"]));
        all.0.insert(2, state("eth0", true, &["10.0.0.0/24", "2001:db8::/64"]));
        assert_eq!(all.interface_to(peer), OnLink::Up("wide"));
        // The wider subnet is another link, over which the neighbour is not.
        all.0.insert(3, state("eth1", false, &["192.0.2.0/24"]));
        assert_eq!(all.interface_to(peer), OnLink::Down("eth1"));
        all.0.insert(4, state("eth2", true, &["192.0.2.0/24"]));
        assert_eq!(all.interface_to(peer), OnLink::Up("eth2"));
        assert_eq!(all.interface_to("2001:db8::7".parse().unwrap()), OnLink::Up("eth0"));
    }

    #[test]
    fn session_of_the_last_second_may_have_begun_after_the_loss() {
        assert!(may_have_begun_after(5_000, 5_000) && may_have_begun_after(5_000, 6_000));
        assert!(!may_have_begun_after(5_000, 6_100));
    }

    #[test]
    fn named_tells_a_few_and_the_number_of_the_rest() {
        let addresses: Vec<IpAddr> = (1..=10).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        assert_eq!(named(&addresses[..2]), "192.0.2.1, 192.0.2.2");
        assert!(named(&addresses).ends_with("192.0.2.8 and 2 more"));
    }
}
