//! ribtide's own objects: which object ids of its orchagent stand for objects of SONiC's, and every
//! entry, group and member that ribtide has put into the chip.
//!
//! ribtide's orchagent creates router interfaces, neighbours and next hops as it does alone. Here
//! these requests stop: the objects exist already, and SONiC's orchagent made them. Such an id is a
//! *stand-in*. Requests that name it reach syncd with the id of the other's object, which changes
//! when that is created again.

use crate::row::Name;
use crate::sai::{Attr, Attrs, Oid, PacketAction, RouteEntry};
use ribtide_prefix::Map;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What an object of SONiC's orchagent is to ribtide's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum StandsFor {
    /// The port, LAG or VLAN below a router interface.
    Lower(Name),
    /// The virtual router of a VRF.
    Router(Name),
    /// The router interface of this name.
    Interface(Name),
    /// The next hop of an address on it.
    NextHop(Name, IpAddr),
}

/// A stand-in.
#[derive(Clone, Debug)]
pub(super) struct StandIn {
    pub(super) what: StandsFor,
    /// The object of SONiC's orchagent; `None` while there is none.
    pub(super) real: Option<Oid>,
}

/// An entry of a route or label in the chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The target, as ribtide's orchagent names it; null of an entry that drops.
    pub(super) target: Oid,
    pub(super) drops: bool,
    /// How many labels a label's entry pops; `None` where it does not say.
    pub(super) pops: Option<u8>,
    /// The chip does not have it, because its target is not there.
    pub(super) suspended: bool,
}

/// A member of a group in the chip.
#[derive(Clone, Debug)]
pub(super) struct GroupMember {
    pub(super) group: Oid,
    pub(super) next_hop: Oid,
    pub(super) attrs: Attrs,
    /// Its next hop was carried over and is not the client's again, while another of its group is: it
    /// is not in the chip until the client makes the next hop.
    pub(super) dead: bool,
}

/// An MPLS next hop in the chip.
#[derive(Clone, Debug)]
pub(super) struct LabelledNextHop {
    pub(super) interface: Oid,
    pub(super) attrs: Attrs,
}

/// All of them.
#[derive(Default, Debug)]
pub(super) struct Own {
    stand_ins: Map<Oid, StandIn>,
    by_what: Map<StandsFor, Oid>,
    /// Objects of ribtide that have another id in this view than the one that its orchagent uses,
    /// or that are not in the chip, because something below them is missing (`None`).
    renamed: Map<Oid, Option<Oid>>,
    pub(super) labelled: BTreeMap<Oid, LabelledNextHop>,
    pub(super) groups: BTreeMap<Oid, Attrs>,
    pub(super) members: BTreeMap<Oid, GroupMember>,
    /// Keys as ribtide's orchagent has them.
    pub(super) routes: Map<RouteEntry, Entry>,
    pub(super) labels: BTreeMap<u32, Entry>,
    /// How many entries of routes and labels are suspended.
    pub(super) suspended: usize,
}

impl Own {
    /// Adds a stand-in.
    pub(super) fn add(&mut self, oid: Oid, what: StandsFor, real: Option<Oid>) {
        self.by_what.insert(what.clone(), oid);
        self.stand_ins.insert(oid, StandIn { what, real });
    }

    /// Removes a stand-in; returns whether it was one.
    pub(super) fn remove(&mut self, oid: Oid) -> Option<StandIn> {
        let gone = self.stand_ins.remove(&oid)?;
        if self.by_what.get(&gone.what) == Some(&oid) {
            self.by_what.remove(&gone.what);
        }
        Some(gone)
    }

    /// The stand-in for an object.
    pub(super) fn find(&self, what: &StandsFor) -> Option<Oid> {
        self.by_what.get(what).copied()
    }

    pub(super) fn stand_in(&self, oid: Oid) -> Option<&StandIn> {
        self.stand_ins.get(&oid)
    }

    pub(super) fn stand_ins(&self) -> impl Iterator<Item = (Oid, &StandIn)> {
        self.stand_ins.iter().map(|(oid, stand_in)| (*oid, stand_in))
    }

    /// Sets the object that a stand-in is. Returns the former one.
    pub(super) fn set_real(&mut self, oid: Oid, real: Option<Oid>) -> Option<Oid> {
        let stand_in = self.stand_ins.get_mut(&oid)?;
        std::mem::replace(&mut stand_in.real, real)
    }

    /// The id at syncd of an object; `None` while it is not there.
    pub(super) fn translate(&self, oid: Oid) -> Option<Oid> {
        match self.stand_ins.get(&oid) {
            Some(stand_in) => stand_in.real,
            None if oid.is_null() => Some(oid),
            None => self.renamed.get(&oid).copied().unwrap_or(Some(oid)),
        }
    }

    /// Sets the id at syncd of one of ribtide's own objects.
    pub(super) fn rename(&mut self, oid: Oid, at_syncd: Option<Oid>) {
        self.renamed.insert(oid, at_syncd);
    }

    /// Whether it is one of ribtide's own objects that is not in the chip.
    pub(super) fn is_absent(&self, oid: Oid) -> bool {
        self.renamed.get(&oid) == Some(&None)
    }

    /// Forgets the id at syncd of an object that is gone.
    pub(super) fn forget_name(&mut self, oid: Oid) {
        self.renamed.remove(&oid);
    }

    /// Whether anything in the chip, or that shall be there, uses a stand-in.
    pub(super) fn used(&self) -> ribtide_prefix::Set<Oid> {
        let mut used = ribtide_prefix::Set::default();
        used.extend(self.routes.values().map(|entry| entry.target));
        used.extend(self.labels.values().map(|entry| entry.target));
        used.extend(self.members.values().filter(|member| !member.dead).map(|member| member.next_hop));
        used.extend(self.labelled.values().map(|hop| hop.interface));
        used
    }

    /// Applies the attributes of a successful create or set to an entry.
    pub(super) fn apply(entry: &mut Entry, attrs: &[Attr]) {
        for attr in attrs {
            match attr {
                Attr::RouteNextHop(oid) | Attr::InsegNextHop(oid) => entry.target = *oid,
                Attr::RoutePacketAction(action) | Attr::InsegPacketAction(action) => {
                    entry.drops = *action == PacketAction::Drop;
                }
                Attr::InsegPop(pops) => entry.pops = Some(*pops),
                _ => {}
            }
        }
    }

    /// The entry that a create with these attributes makes.
    pub(super) fn entry(attrs: &[Attr]) -> Entry {
        let mut entry = Entry { target: Oid::NULL, drops: false, pops: None, suspended: false };
        Own::apply(&mut entry, attrs);
        entry
    }

    /// Sets whether an entry is suspended.
    pub(super) fn suspend(count: &mut usize, entry: &mut Entry, now: bool) {
        match (std::mem::replace(&mut entry.suspended, now), now) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        }
    }
}
