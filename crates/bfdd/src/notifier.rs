//! Notifications of BFD to the RIB manager and the session thread. They never block: without room,
//! the newest state of each neighbour waits here, with a note of a failure in between.

use super::Outputs;
use ribtide_bfd::Standing;
use ribtide_rib::{GatewayEvent, IfIndex, RibIn};
use ribtide_runtime::ring::{Sender, TrySend};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A gateway as the RIB manager knows it.
pub(super) type Gateway = (IpAddr, Option<IfIndex>);

/// News of a BFD session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BfdNews {
    /// The neighbour.
    pub address: IpAddr,
    /// Whether it failed since the last notification.
    pub failed: bool,
    /// The present state; `None` after the end of the session.
    pub standing: Option<Standing>,
}

pub(super) struct Notifier {
    outputs: Outputs,
    /// Unusable gateways.
    unusable: BTreeSet<Gateway>,
    /// Unsent gateways for the RIB manager.
    gateways: BTreeMap<Gateway, bool>,
    /// Unsent neighbours for the session thread.
    neighbors: BTreeMap<IpAddr, BfdNews>,
}

impl Notifier {
    pub(super) fn new(outputs: Outputs) -> Notifier {
        Notifier { outputs, unusable: BTreeSet::new(), gateways: BTreeMap::new(), neighbors: BTreeMap::new() }
    }

    /// Sets the RIB manager, which is to know every unusable gateway.
    pub(super) fn set_rib(&mut self, rib: Option<Sender<RibIn>>) {
        self.outputs.rib = rib;
        self.gateways.clear();
        if self.outputs.rib.is_some() {
            self.gateways.extend(self.unusable.iter().map(|gateway| (*gateway, false)));
        }
    }

    /// Sets the session thread; what waits for the former one is dropped.
    pub(super) fn set_bgp(&mut self, bgp: Option<Sender<BfdNews>>) {
        self.outputs.bgp = bgp;
        self.neighbors.clear();
    }

    pub(super) fn gateway(&mut self, gateway: Gateway, usable: bool) {
        let changed = if usable { self.unusable.remove(&gateway) } else { self.unusable.insert(gateway) };
        if changed && self.outputs.rib.is_some() {
            self.gateways.insert(gateway, usable);
        }
    }

    pub(super) fn neighbor(&mut self, address: IpAddr, standing: Option<Standing>) {
        if self.outputs.bgp.is_none() {
            return;
        }
        let news = BfdNews { address, failed: false, standing };
        let waiting = self.neighbors.entry(address).or_insert(news);
        waiting.failed |= standing == Some(Standing::Failed);
        waiting.standing = standing;
    }

    /// Whether a notification waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.gateways.is_empty() || !self.neighbors.is_empty()
    }

    /// Sends notifications while there is room, first those that repair forwarding.
    pub(super) fn send(&mut self) {
        while let (Some(rib), Some(((address, interface), usable))) =
            (&self.outputs.rib, self.gateways.pop_first())
        {
            let event = GatewayEvent { address, interface, usable };
            // A queue is closed only when the process is stopping.
            if let Err(TrySend::Full(_)) = rib.try_send(RibIn::Gateway(event)) {
                self.gateways.insert((address, interface), usable);
                break;
            }
        }
        while let (Some(bgp), Some((address, news))) = (&self.outputs.bgp, self.neighbors.pop_first()) {
            if let Err(TrySend::Full(news)) = bgp.try_send(news) {
                self.neighbors.insert(address, news);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::ring::Rings;

    #[test]
    fn what_does_not_fit_coalesces_and_a_failure_is_not_forgotten() {
        let rings = Rings::default();
        let ((rib, to_rib), (bgp, to_bgp)) = (rings.bounded("r", 1), rings.bounded("b", 1));
        let mut notifier = Notifier::new(Outputs { rib: Some(rib), bgp: Some(bgp) });
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        notifier.gateway((address(1), None), true);
        assert!(!notifier.is_waiting(), "they are usable until it is said otherwise");
        for n in 1..3 {
            notifier.gateway((address(n), None), false);
            notifier.neighbor(address(n), Some(Standing::Failed));
        }
        notifier.send();
        assert!(notifier.is_waiting());
        notifier.gateway((address(2), None), true);
        notifier.neighbor(address(2), Some(Standing::Up));
        let mut gateways = Vec::new();
        let mut neighbors = Vec::new();
        while let Some(RibIn::Gateway(event)) = to_rib.try_recv() {
            gateways.push((event.address, event.usable));
            neighbors.extend(to_bgp.try_recv());
            notifier.send();
        }
        assert_eq!(gateways, [(address(1), false), (address(2), true)]);
        let notified: Vec<_> = neighbors.iter().map(|n| (n.address, n.failed, n.standing.unwrap())).collect();
        assert_eq!(notified, [(address(1), true, Standing::Failed), (address(2), true, Standing::Up)]);
        assert!(!notifier.is_waiting());
    }

    #[test]
    fn gateway_without_room_is_sent_when_there_is_some() {
        let (rib, to_rib) = Rings::default().bounded("r", 1);
        let mut notifier = Notifier::new(Outputs { rib: Some(rib), bgp: None });
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        for n in 1..=3 {
            notifier.gateway((address(n), None), false);
        }
        let sent: Vec<IpAddr> = std::iter::from_fn(|| {
            notifier.send();
            match to_rib.try_recv()? {
                RibIn::Gateway(event) => Some(event.address),
                other => panic!("{other:?}"),
            }
        })
        .collect();
        assert_eq!(sent, [1, 2, 3].map(address));
        assert!(!notifier.is_waiting());
    }
}
