//! The previous object ids of a warm start: the virtual ids (VIDs) that the previous orchagent gave to objects that syncd
//! still has.
//!
//! Objects have no names, so a warm-started orchagent recognises them by their content, from the ports up, and gives them
//! their previous VIDs: ASIC_DB then needs no renaming. syncd compares contents when it applies the view, so a VID that
//! goes to another object costs a renaming and nothing else.

use super::groups::{GroupKey, Member};
use super::{Orch, OrchOut};
use crate::row::{IntfKey, Name};
use crate::sai::{Attr, Attrs, ObjectId, ObjectType, Oid};
use ribtide_prefix::{Map, Set};

/// What a group is made of: its next hops and their weights, ordered.
type Hops = Vec<(Oid, u32)>;

/// The objects with ids that ASIC_DB has from the previous run, and the group of each index.
#[derive(Default, Debug)]
pub struct PreviousIds {
    /// Objects by type and by what cannot change of them.
    by_content: Map<(ObjectType, Vec<Attr>), Vec<Oid>>,
    /// The virtual routers that were made, and those that ports are in.
    routers: Vec<Oid>,
    router_of: Map<Oid, Oid>,
    /// Groups that have no other name yet.
    groups: Set<Oid>,
    members: Map<Oid, Hops>,
    /// Memberships by group and next hop.
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
    /// Takes in an object. Objects that a key identifies need no number.
    pub fn object(&mut self, object: ObjectType, id: &ObjectId, attrs: &Attrs) {
        let Some(oid) = id.oid() else { return };
        let named = |pick: fn(&Attr) -> Option<Oid>| attrs.iter().find_map(pick);
        match object {
            ObjectType::VirtualRouter => self.routers.push(oid),
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
                let port = named(|attr| if let Attr::RifPort(oid) = attr { Some(*oid) } else { None });
                if let (Some(router), Some(port)) = (router, port) {
                    self.router_of.insert(port, router);
                }
                self.by_content.entry(content(object, attrs)).or_default().push(oid);
            }
        }
    }

    /// Takes in which group an index of NEXTHOP_GROUP_TABLE was, as a route that names the index tells.
    pub fn index(&mut self, name: Name, group: Oid) {
        self.by_index.insert(name, group);
        self.indexed.insert(group);
    }

    /// All objects are in.
    fn complete(mut self) -> PreviousIds {
        self.routers.sort_unstable();
        for group in &self.groups {
            let mut hops = self.members.remove(group).unwrap_or_default();
            hops.sort_unstable();
            self.by_hops.entry(hops).or_default().push(*group);
        }
        self.by_hops.values_mut().for_each(|oids| oids.sort_unstable());
        self.by_content.values_mut().for_each(|oids| oids.sort_unstable());
        self
    }

    fn object_of(&mut self, object: ObjectType, attrs: &[Attr]) -> Option<Oid> {
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

    /// The router that one of these ports is in, else one that no port is in.
    fn router(&mut self, ports: &[Oid]) -> Option<Oid> {
        let by_port = ports.iter().find_map(|port| self.router_of.get(port)).copied();
        let fits = |oid: &Oid| match by_port {
            Some(router) => *oid == router,
            None => self.router_of.values().all(|other| other != oid),
        };
        let at = self.routers.iter().position(fits)?;
        Some(self.routers.remove(at))
    }

    /// The group that an index was if it has these hops, else another that has them, else the one that the index was.
    fn group(&mut self, hops: &Hops, index: Option<&Name>) -> Option<Oid> {
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

impl Orch {
    /// Starts warm: all that rows ask for is described to syncd until [`Orch::restored`]. To be called before
    /// anything else.
    pub fn restore(&mut self, previous_ids: PreviousIds) {
        self.previous_ids = Some(previous_ids.complete());
        self.boot.start_warm();
    }

    /// The number of an object that is to be made: what it was called before, or a new one.
    pub(super) fn number(&mut self, object: ObjectType, attrs: &[Attr], out: &mut OrchOut) -> Oid {
        let previous = self.previous_ids.as_mut().and_then(|ids| ids.object_of(object, attrs));
        previous.unwrap_or_else(|| self.requests.vid(object, out))
    }

    /// Whether an index was a group before: then it stays one, though one next hop would do.
    pub(super) fn was_group(&self, index: u32) -> bool {
        let previous_ids = self.previous_ids.as_ref();
        previous_ids.is_some_and(|ids| ids.by_index.contains_key(self.indexes.name(index)))
    }

    /// The number of a VRF's virtual router.
    pub(super) fn router_number(&mut self, vrf: u32, out: &mut OrchOut) -> Oid {
        let name = self.vrfs.name(vrf).clone();
        let ports = &self.ports;
        let rows = self.inputs.interfaces.iter().filter_map(|(key, pending)| match key {
            IntfKey::Interface(ifname) => Some((ifname, pending.set.as_ref()?)),
            IntfKey::Address(..) => None,
        });
        let of_vrf = rows.filter(|(_, row)| row.vrf_name == name).filter_map(|(ifname, _)| ports.oid(ifname));
        let of_vrf: Vec<Oid> = of_vrf.collect();
        let previous = self.previous_ids.as_mut().and_then(|ids| ids.router(&of_vrf));
        previous.unwrap_or_else(|| self.requests.vid(ObjectType::VirtualRouter, out))
    }

    /// The number of a group that will have these members.
    pub(super) fn group_number(&mut self, id: u32, wanted: &[Member], out: &mut OrchOut) -> Oid {
        if self.previous_ids.is_some() {
            let usable =
                wanted.iter().filter_map(|(hop, weight)| Some((self.hop_usable(*hop)?, (*weight).max(1))));
            let mut hops: Hops = usable.collect();
            hops.sort_unstable();
            let index = match self.groups.key(id) {
                GroupKey::Index(index) => Some(self.indexes.name(*index).clone()),
                GroupKey::Members(_) => None,
            };
            let previous = self.previous_ids.as_mut().and_then(|ids| ids.group(&hops, index.as_ref()));
            if let Some(oid) = previous {
                return oid;
            }
        }
        self.requests.vid(ObjectType::NextHopGroup, out)
    }
}
