//! Static routes of the configuration: as the RIB manager takes them, once the interfaces that they name are there.

use ribtide_config::{StaticHop, StaticRoute, StaticTrack};
use ribtide_prefix::{AnyPrefix, Families};
use ribtide_rib::{
    IfIndex, InterfaceEvent, NONE, NextHops, Protocol, ReceivedHop, RibIn, RouteBatch, RouteSet, Source,
    Track, VrfId,
};
use std::collections::BTreeMap;

/// The static routes of a VRF; those that name an interface wait until it is known there.
#[derive(Clone, Debug)]
pub(super) struct Statics {
    vrf: VrfId,
    routes: Vec<StaticRoute>,
    indexes: BTreeMap<String, IfIndex>,
}

impl Statics {
    /// From the configuration.
    pub(super) fn new(vrf: VrfId, routes: Vec<StaticRoute>) -> Statics {
        Statics { vrf, routes, indexes: BTreeMap::new() }
    }

    /// Other routes from now on; what to announce and withdraw for it.
    pub(super) fn replace(&mut self, routes: Vec<StaticRoute>) -> Option<RibIn> {
        if self.routes == routes {
            return None;
        }
        let former = std::mem::replace(&mut self.routes, routes);
        Some(self.batch_after(&former))
    }

    /// The interface that a route of `prefix` waits for, if one does.
    pub(super) fn awaited(&self, prefix: AnyPrefix) -> Option<String> {
        let mut of_prefix = self.routes.iter().filter(|r| r.prefix == prefix);
        of_prefix.find_map(|route| self.awaited_by(route)).cloned()
    }

    /// Every route, with the interface that it waits for, if it does.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&StaticRoute, Option<&String>)> {
        self.routes.iter().map(|route| (route, self.awaited_by(route)))
    }

    fn awaited_by<'a>(&self, route: &'a StaticRoute) -> Option<&'a String> {
        interfaces(route).find(|name| !self.indexes.contains_key(*name))
    }

    /// Everything that can be announced now; it takes the place of everything before.
    pub(super) fn batch(&self) -> RibIn {
        self.batch_after(&self.routes)
    }

    /// The same, where these routes were announced before.
    fn batch_after(&self, former: &[StaticRoute]) -> RibIn {
        let mut batch = RouteBatch {
            vrf: self.vrf,
            source: Source::Static,
            sets: Vec::new(),
            changes: Families::default(),
        };
        let mut change = |prefix, set| match prefix {
            AnyPrefix::V4(p) => batch.changes.v4.push((p, set)),
            AnyPrefix::V6(p) => batch.changes.v6.push((p, set)),
        };
        former.iter().for_each(|route| change(route.prefix, NONE));
        for (route, set) in self.routes.iter().filter_map(|route| Some((route, self.set(route)?))) {
            change(route.prefix, batch.sets.len() as u32);
            batch.sets.push(set);
        }
        RibIn::Routes(batch)
    }

    /// What a route is to the RIB manager, if all interfaces that it names are there.
    fn set(&self, route: &StaticRoute) -> Option<RouteSet> {
        let hop = |hop: &StaticHop| {
            let interface = match &hop.interface {
                None => None,
                Some(name) => Some(*self.indexes.get(name)?),
            };
            Some(ReceivedHop { gateway: hop.gateway, interface, weight: 1, onlink: false })
        };
        let hops: Vec<ReceivedHop> = route.hops.iter().map(hop).collect::<Option<_>>()?;
        let track = match &route.track {
            None => None,
            Some(StaticTrack::Interface(name)) => Some(Track::Interface(*self.indexes.get(name)?)),
            Some(StaticTrack::Prefix(prefix)) => Some(Track::Prefix(*prefix)),
            Some(StaticTrack::Address(address)) => Some(Track::Address(*address)),
        };
        Some(RouteSet {
            next_hops: if hops.is_empty() { NextHops::Blackhole } else { NextHops::Via(hops) },
            backup: route.backup.iter().map(|address| ReceivedHop::gateway(*address)).collect(),
            backup_recursion: true,
            track,
            distance: route.distance,
            metric: 0,
            allow_recursion: true,
            protocol: Protocol::Static,
        })
    }

    /// Learns the number of an interface of this VRF; all static routes again when that changed one of them.
    pub(super) fn interface(&mut self, event: &InterfaceEvent) -> Option<RibIn> {
        if self.indexes.insert(event.name.clone(), event.index) == Some(event.index) {
            return None;
        }
        let names = |route: &StaticRoute| interfaces(route).any(|name| *name == event.name);
        self.routes.iter().any(names).then(|| self.batch())
    }
}

/// The interfaces that a route names.
fn interfaces(route: &StaticRoute) -> impl Iterator<Item = &String> {
    let tracked = match &route.track {
        Some(StaticTrack::Interface(name)) => Some(name),
        _ => None,
    };
    route.hops.iter().filter_map(|hop| hop.interface.as_ref()).chain(tracked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_rib::{Rib, RibConfig};

    fn route(distance: u8, gateway: &str, track: Option<StaticTrack>) -> StaticRoute {
        let hops = vec![StaticHop { gateway: Some(gateway.parse().unwrap()), interface: None }];
        let prefix = "0.0.0.0/0".parse().unwrap();
        StaticRoute { prefix, hops, distance, backup: Vec::new(), track, bfd: None }
    }

    #[test]
    fn a_route_that_tracks_an_interface_waits_for_it_and_follows_it() {
        let track = Some(StaticTrack::Interface("eth1".into()));
        let routes = vec![route(1, "10.0.0.2", track), route(250, "10.0.0.3", None)];
        let mut statics = Statics::new(VrfId::DEFAULT, routes);
        let mut rib = Rib::new(RibConfig::default());
        let prefix = "0.0.0.0/0".parse().unwrap();
        let mut gateway = |events: Vec<RibIn>| {
            rib.handle(events);
            let group = rib.lookup(prefix)?.group;
            rib.group(group)?.hops[0].received.gateway.map(|g| g.to_string())
        };
        let eth = |index: IfIndex, up| {
            let name = format!("eth{index}");
            let addresses = vec![(
                format!("10.0.{index}.1").parse().unwrap(),
                format!("10.0.{index}.0/24").parse().unwrap(),
            )];
            InterfaceEvent { vrf: VrfId::DEFAULT, index: index + 1, name, up, loopback: false, addresses }
        };
        assert_eq!(
            gateway(vec![statics.batch(), RibIn::Interface(eth(0, true))]).as_deref(),
            Some("10.0.0.3")
        );
        assert_eq!(statics.awaited(prefix), Some("eth1".into()));
        let again = statics.interface(&eth(1, true)).unwrap();
        assert_eq!(gateway(vec![RibIn::Interface(eth(1, true)), again]).as_deref(), Some("10.0.0.2"));
        assert!(statics.awaited(prefix).is_none() && statics.interface(&eth(1, false)).is_none());
        assert_eq!(gateway(vec![RibIn::Interface(eth(1, false))]).as_deref(), Some("10.0.0.3"));
        assert_eq!(gateway(vec![RibIn::Interface(eth(1, true))]).as_deref(), Some("10.0.0.2"));
    }
}
