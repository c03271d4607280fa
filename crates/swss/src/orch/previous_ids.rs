//! The previous object ids of a warm start: the virtual ids (VIDs) that the previous orchagent gave
//! to objects that syncd still has.
//!
//! Objects have no names, so a warm-started orchagent recognises them by their content, from the
//! ports up, and gives them their previous VIDs: ASIC_DB then needs no renaming. syncd compares
//! contents when it applies the view, so a VID that goes to another object costs a renaming and
//! nothing else.

use crate::row::Name;
use crate::sai::{Attr, Attrs, ObjectId, ObjectType, Oid};
use ribtide_prefix::{Map, Set};

/// The next hops of a group and their weights, ordered.
type Hops = Vec<(Oid, u32)>;

/// What a router interface lies on: a port, LAG or VLAN, and the tag of a sub-interface (0: none).
pub(super) type RifPlace = (Oid, u16);

/// The objects with ids that ASIC_DB has from the previous run, and the group of each index.
#[derive(Default, Debug)]
pub struct PreviousIds {
    /// Objects by type and by their create-only attributes.
    by_content: Map<(ObjectType, Vec<Attr>), Vec<Oid>>,
    /// The virtual routers that orchagent created, and the one of each router interface.
    routers: Vec<Oid>,
    router_of: Map<RifPlace, Oid>,
    /// The LAGs, and the one of each port.
    lags: Vec<Oid>,
    lag_of: Map<Oid, Oid>,
    /// Groups that no object took yet.
    groups: Set<Oid>,
    members: Map<Oid, Hops>,
    /// Members by group and next hop.
    memberships: Map<(Oid, Oid), Oid>,
    by_hops: Map<Hops, Vec<Oid>>,
    by_index: Map<Name, Oid>,
    indexed: Set<Oid>,
}

fn content(object: ObjectType, attrs: &[Attr]) -> (ObjectType, Vec<Attr>) {
    let mut fixed: Vec<Attr> = attrs.iter().filter(|attr| attr.create_only()).cloned().collect();
    fixed.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    (object, fixed)
}

impl PreviousIds {
    /// Takes in an object of ASIC_DB. Objects that a key identifies have no id and are left out.
    pub fn object(&mut self, object: ObjectType, id: &ObjectId, attrs: &Attrs) {
        let Some(oid) = id.oid() else { return };
        let named = |pick: fn(&Attr) -> Option<Oid>| attrs.iter().find_map(pick);
        match object {
            ObjectType::VirtualRouter => self.routers.push(oid),
            ObjectType::Lag => self.lags.push(oid),
            ObjectType::NextHopGroup => drop(self.groups.insert(oid)),
            ObjectType::NextHopGroupMember => {
                let group = named(|attr| if let Attr::MemberGroup(oid) = attr { Some(*oid) } else { None });
                let hop = named(|attr| if let Attr::MemberNextHop(oid) = attr { Some(*oid) } else { None });
                let weight = attrs
                    .iter()
                    .find_map(|attr| if let Attr::MemberWeight(w) = attr { Some(*w) } else { None });
                if let (Some(group), Some(hop)) = (group, hop) {
                    self.members.entry(group).or_default().push((hop, weight.unwrap_or(1)));
                    self.memberships.insert((group, hop), oid);
                }
            }
            _ => {
                let router =
                    named(|attr| if let Attr::RifVirtualRouter(oid) = attr { Some(*oid) } else { None });
                let on = named(|attr| match attr {
                    Attr::RifPort(oid) | Attr::RifVlan(oid) => Some(*oid),
                    _ => None,
                });
                let tag = attrs
                    .iter()
                    .find_map(|attr| if let Attr::RifOuterVlan(tag) = attr { Some(*tag) } else { None });
                if let (Some(router), Some(on)) = (router, on) {
                    self.router_of.insert((on, tag.unwrap_or(0)), router);
                }
                let lag = named(|attr| if let Attr::LagMemberLag(oid) = attr { Some(*oid) } else { None });
                let port = named(|attr| if let Attr::LagMemberPort(oid) = attr { Some(*oid) } else { None });
                if let (Some(lag), Some(port)) = (lag, port) {
                    self.lag_of.insert(port, lag);
                }
                self.by_content.entry(content(object, attrs)).or_default().push(oid);
            }
        }
    }

    /// Takes in the group of an index of NEXTHOP_GROUP_TABLE. Routes that name the index have it as
    /// next hop in ASIC_DB.
    pub fn index(&mut self, name: Name, group: Oid) {
        self.by_index.insert(name, group);
        self.indexed.insert(group);
    }

    /// Sorts what was taken in, and groups it by content. Call it after the last
    /// [`PreviousIds::object`].
    pub(super) fn complete(mut self) -> PreviousIds {
        self.routers.sort_unstable();
        self.lags.sort_unstable();
        for group in &self.groups {
            let mut hops = self.members.remove(group).unwrap_or_default();
            hops.sort_unstable();
            self.by_hops.entry(hops).or_default().push(*group);
        }
        self.by_hops.values_mut().for_each(|oids| oids.sort_unstable());
        self.by_content.values_mut().for_each(|oids| oids.sort_unstable());
        self
    }

    /// Whether an index of NEXTHOP_GROUP_TABLE was a group.
    pub(super) fn has_index(&self, index: &Name) -> bool {
        self.by_index.contains_key(index)
    }

    /// Takes an object with these attributes.
    pub(super) fn object_of(&mut self, object: ObjectType, attrs: &[Attr]) -> Option<Oid> {
        if object == ObjectType::NextHopGroupMember {
            let (mut group, mut hop) = (Oid::NULL, Oid::NULL);
            for attr in attrs {
                match attr {
                    Attr::MemberGroup(oid) => group = *oid,
                    Attr::MemberNextHop(oid) => hop = *oid,
                    _ => {}
                }
            }
            return self.memberships.remove(&(group, hop));
        }
        self.by_content.get_mut(&content(object, attrs))?.pop()
    }

    /// Takes the LAG that most of these ports are in, else one that no port is in.
    pub(super) fn lag(&mut self, ports: &[Oid]) -> Option<Oid> {
        let shared = |lag: &Oid| ports.iter().filter(|port| self.lag_of.get(*port) == Some(lag)).count();
        let is_empty = |lag: &Oid| self.lag_of.values().all(|of| of != lag);
        let lags = self.lags.iter().enumerate();
        let fit = |(at, lag): (usize, &Oid)| match shared(lag) {
            0 => is_empty(lag).then_some((0, std::cmp::Reverse(at))),
            count => Some((count, std::cmp::Reverse(at))),
        };
        let (_, std::cmp::Reverse(at)) = lags.filter_map(fit).max()?;
        Some(self.lags.remove(at))
    }

    /// Takes the virtual router that one of these router interfaces is in, else one that none is in.
    pub(super) fn router(&mut self, places: &[RifPlace]) -> Option<Oid> {
        let by_port = places.iter().find_map(|place| self.router_of.get(place)).copied();
        let fits = |oid: &Oid| match by_port {
            Some(router) => *oid == router,
            None => self.router_of.values().all(|other| other != oid),
        };
        let at = self.routers.iter().position(fits)?;
        Some(self.routers.remove(at))
    }

    /// Takes the group that an index was if it has these next hops, else another that has them,
    /// else the one that the index was. `hops` is ordered.
    pub(super) fn group(&mut self, hops: &[(Oid, u32)], index: Option<&Name>) -> Option<Oid> {
        let was = index.and_then(|index| self.by_index.get(index)).copied();
        let same: Vec<Oid> = self.by_hops.get(hops).into_iter().flatten().copied().collect();
        let free = |wanted: &dyn Fn(Oid) -> bool| {
            same.iter().copied().find(|oid| self.groups.contains(oid) && wanted(*oid))
        };
        let same = free(&|oid| Some(oid) == was)
            .or_else(|| free(&|oid| !self.indexed.contains(&oid)))
            .or_else(|| free(&|_| true));
        same.or(was).filter(|oid| self.groups.remove(oid))
    }
}
