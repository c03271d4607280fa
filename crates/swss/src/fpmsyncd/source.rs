//! Sources of next hops, each different one once: next hops as announced, next-hop objects, rows
//! from before the start.
//!
//! A route holds the number of its source and nothing else, so a million routes over few next-hop
//! sets share few rows, and a next-hop object that changes is one change here.

use super::RouteRef;
use super::labels::LabelledHop;
use super::routes::no_gateway;
use crate::row::Via;
use ribtide_prefix::{Map, Set};
use ribtide_wire::netlink::{Hop, Vxlan};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Number of a source.
pub(super) type SourceId = NonZeroU32;

/// What APPL_DB has of a route.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Written {
    pub(super) via: Arc<Via>,
    pub(super) protocol: u8,
}

impl Written {
    /// Whether a route of this protocol has the same row, as far as rows of these next hops name one.
    pub(super) fn has_protocol_of(&self, protocol: u8) -> bool {
        self.protocol == protocol || !self.via.has_protocol()
    }
}

/// One next hop as announced, a missing gateway filled in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RawHop {
    pub(super) gateway: IpAddr,
    pub(super) ifindex: u32,
    pub(super) weight: u16,
}

impl RawHop {
    /// A next hop of a route to IPv4 or IPv6 destinations.
    pub(super) fn new(hop: Hop, ipv4: bool) -> RawHop {
        RawHop {
            gateway: hop.via.gateway.unwrap_or(no_gateway(ipv4)),
            ifindex: hop.via.ifindex,
            weight: hop.weight.max(1),
        }
    }
}

/// One EVPN next hop as announced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct OverlayHop {
    pub(super) gateway: IpAddr,
    pub(super) ifindex: u32,
    pub(super) vxlan: Vxlan,
}

/// What a source is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum What {
    /// The same row for ever.
    Fixed(Arc<Via>),
    /// Next hops that routes carry themselves.
    Hops(Box<[RawHop]>),
    /// The same, where some of them put labels on.
    Labelled(Box<[LabelledHop]>),
    /// A next-hop object.
    Object(u32),
    /// EVPN next hops.
    Overlay(Box<[OverlayHop]>),
    /// An SRv6 segment, and the source of the outer header.
    Segment(Ipv6Addr, Option<Ipv6Addr>),
    /// A PIC context and a next-hop object.
    Vpn(u32, u32),
    /// Next hops that a route of a VNET carries itself.
    Vnet(Box<[RawHop]>),
}

/// The row that a source gives its routes.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    /// Not known yet: routes keep what they had.
    Waiting,
    /// None: the switch's management does not go through the chip.
    Nothing,
    Row(Arc<Via>),
}

#[derive(Debug)]
struct Source {
    what: What,
    state: State,
    users: u32,
    /// All users while the state is [`State::Waiting`], and what APPL_DB has of each.
    waiting: Map<RouteRef, Option<Written>>,
}

/// All sources in use.
#[derive(Default, Debug)]
pub(super) struct Sources {
    slots: Vec<Option<Source>>,
    free: Vec<SourceId>,
    fixed: Map<Arc<Via>, SourceId>,
    hops: Map<Box<[RawHop]>, SourceId>,
    labelled: Map<Box<[LabelledHop]>, SourceId>,
    objects: Map<u32, SourceId>,
    /// The sources of the other kinds.
    others: Map<What, SourceId>,
    /// The sources of SRv6 VPNs that name an object or a PIC context, for as long as ids mean the same.
    vpns: Map<u32, Set<SourceId>>,
    /// How many sources steer to a segment.
    segments: Map<Ipv6Addr, u32>,
    /// Segments that sources came to use, or use no more, since the last [`Sources::take_segments`].
    changed_segments: Vec<Ipv6Addr>,
}

fn index(id: SourceId) -> usize {
    id.get() as usize - 1
}

impl Sources {
    fn slot(&self, id: SourceId) -> &Source {
        match &self.slots[index(id)] {
            Some(source) => source,
            None => unreachable!("source {id} is in use"),
        }
    }

    fn slot_mut(&mut self, id: SourceId) -> &mut Source {
        match &mut self.slots[index(id)] {
            Some(source) => source,
            None => unreachable!("source {id} is in use"),
        }
    }

    pub(super) fn state(&self, id: SourceId) -> &State {
        &self.slot(id).state
    }

    pub(super) fn what(&self, id: SourceId) -> &What {
        &self.slot(id).what
    }

    pub(super) fn users(&self, id: SourceId) -> u32 {
        self.slot(id).users
    }

    /// The source of next hops, without making one.
    pub(super) fn find_hops(&self, hops: &[RawHop]) -> Option<SourceId> {
        self.hops.get(hops).copied()
    }

    /// The same for hops some of which put labels on.
    pub(super) fn find_labelled(&self, hops: &[LabelledHop]) -> Option<SourceId> {
        self.labelled.get(hops).copied()
    }

    /// The same for the kinds that have no look-up of their own.
    pub(super) fn find_other(&self, what: &What) -> Option<SourceId> {
        self.others.get(what).copied()
    }

    /// The segments whose use changed, each with whether a source uses it now.
    pub(super) fn take_segments(&mut self) -> Vec<(Ipv6Addr, bool)> {
        let mut changed = std::mem::take(&mut self.changed_segments);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(|sid| (sid, self.uses_segment(&sid))).collect()
    }

    /// How many segments [`Sources::take_segments`] returns at most.
    pub(super) fn changed_segments(&self) -> usize {
        self.changed_segments.len()
    }

    /// Whether a source steers to this segment.
    pub(super) fn uses_segment(&self, sid: &Ipv6Addr) -> bool {
        self.segments.contains_key(sid)
    }

    /// The sources of SRv6 VPNs that name this object or PIC context.
    pub(super) fn vpns_of(&self, object: u32) -> Vec<SourceId> {
        let mut found: Vec<SourceId> = self.vpns.get(&object).into_iter().flatten().copied().collect();
        found.sort_unstable();
        found
    }

    /// The sources of EVPN and of VNETs that leave by an interface.
    pub(super) fn others_by(&self, ifindex: u32) -> Vec<SourceId> {
        let leaves = |what: &What| match what {
            What::Overlay(hops) => hops.iter().any(|hop| hop.ifindex == ifindex),
            What::Vnet(hops) => hops.iter().any(|hop| hop.ifindex == ifindex),
            _ => false,
        };
        let mut found: Vec<SourceId> =
            self.others.iter().filter(|(what, _)| leaves(what)).map(|(_, id)| *id).collect();
        found.sort_unstable();
        found
    }

    pub(super) fn find_object(&self, object: u32) -> Option<SourceId> {
        self.objects.get(&object).copied()
    }

    /// The source of a fixed row.
    pub(super) fn fixed(&mut self, via: &Arc<Via>) -> SourceId {
        match self.fixed.get(via) {
            Some(id) => *id,
            None => self.insert(What::Fixed(via.clone()), State::Row(via.clone())),
        }
    }

    pub(super) fn insert(&mut self, what: What, state: State) -> SourceId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            let number = u32::try_from(self.slots.len()).ok().and_then(SourceId::new);
            number.unwrap_or_else(|| unreachable!("each source has a route, and there are fewer routes"))
        });
        match &what {
            What::Fixed(via) => self.fixed.insert(via.clone(), id),
            What::Hops(hops) => self.hops.insert(hops.clone(), id),
            What::Labelled(hops) => self.labelled.insert(hops.clone(), id),
            What::Object(object) => self.objects.insert(*object, id),
            What::Overlay(_) | What::Vnet(_) => self.others.insert(what.clone(), id),
            What::Segment(sid, _) => {
                *self.segments.entry(*sid).or_default() += 1;
                self.changed_segments.push(*sid);
                self.others.insert(what.clone(), id)
            }
            What::Vpn(pic_context, next_hop) => {
                for object in [pic_context, next_hop] {
                    self.vpns.entry(*object).or_default().insert(id);
                }
                self.others.insert(what.clone(), id)
            }
        };
        self.slots[index(id)] = Some(Source { what, state, users: 0, waiting: Map::default() });
        id
    }

    /// Counts a route on a source. `had` is what APPL_DB has of it, to remember while the source
    /// waits.
    pub(super) fn join(&mut self, id: SourceId, at: RouteRef, had: Option<Written>) {
        let source = self.slot_mut(id);
        source.users += 1;
        if source.state == State::Waiting {
            source.waiting.insert(at, had);
        }
    }

    /// Takes back a [`Sources::join`] of a route that had joined the same source before.
    pub(super) fn unjoin(&mut self, id: SourceId) {
        self.slot_mut(id).users -= 1;
    }

    /// Counts a route off a source, which goes with its last one.
    pub(super) fn leave(&mut self, id: SourceId, at: RouteRef) {
        let source = self.slot_mut(id);
        source.users -= 1;
        source.waiting.remove(&at);
        self.drop_unused(id);
    }

    /// Forgets a source that was made and that no route joined.
    pub(super) fn drop_unused(&mut self, id: SourceId) {
        if self.slot(id).users > 0 {
            return;
        }
        let Some(source) = self.slots[index(id)].take() else { return };
        let other = match &source.what {
            What::Segment(sid, _) => {
                if let Some(users) = self.segments.get_mut(sid) {
                    *users -= 1;
                    if *users == 0 {
                        self.segments.remove(sid);
                        self.changed_segments.push(*sid);
                    }
                }
                true
            }
            What::Vpn(..) => {
                self.detach_vpn(id, &source.what);
                false
            }
            What::Overlay(_) | What::Vnet(_) => true,
            What::Fixed(_) | What::Hops(_) | What::Labelled(_) | What::Object(_) => false,
        };
        if other {
            self.others.remove(&source.what);
        }
        match source.what {
            What::Fixed(via) => self.fixed.remove(&via),
            What::Hops(hops) => self.hops.remove(&hops),
            What::Labelled(hops) => self.labelled.remove(&hops),
            // The id may be another source's by now.
            What::Object(object) if self.objects.get(&object) == Some(&id) => self.objects.remove(&object),
            _ => None,
        };
        self.free.push(id);
    }

    /// Parts the source of an SRv6 VPN from its ids.
    fn detach_vpn(&mut self, id: SourceId, what: &What) {
        let What::Vpn(pic_context, next_hop) = what else { return };
        if self.others.get(what) == Some(&id) {
            self.others.remove(what);
        }
        for object in [pic_context, next_hop] {
            if let Some(sources) = self.vpns.get_mut(object) {
                sources.remove(&id);
                if sources.is_empty() {
                    self.vpns.remove(object);
                }
            }
        }
    }

    /// What APPL_DB has of a route whose source waits.
    pub(super) fn had(&self, id: SourceId, at: &RouteRef) -> Option<&Written> {
        self.slot(id).waiting.get(at)?.as_ref()
    }

    /// The routes that wait, and that until then keep a row which satisfies `keeps`.
    pub(super) fn waiting_with(&self, keeps: impl Fn(&Via) -> bool) -> Vec<(SourceId, RouteRef)> {
        let mut found = Vec::new();
        for (number, source) in (1..).zip(&self.slots) {
            let (Some(id), Some(source)) = (SourceId::new(number), source) else { continue };
            let kept =
                source.waiting.iter().filter(|(_, had)| had.as_ref().is_some_and(|row| keeps(&row.via)));
            found.extend(kept.map(|(at, _)| (id, *at)));
        }
        found
    }

    /// A route that waits keeps its row no more.
    pub(super) fn keep_nothing(&mut self, id: SourceId, at: RouteRef) {
        if let Some(had) = self.slot_mut(id).waiting.get_mut(&at) {
            *had = None;
        }
    }

    /// The routes that wait for a source.
    pub(super) fn waiting(&self, id: SourceId) -> Vec<RouteRef> {
        self.slot(id).waiting.keys().copied().collect()
    }

    /// Gives a source another state. The routes of one that waited wait no more.
    pub(super) fn set_state(&mut self, id: SourceId, state: State) {
        let source = self.slot_mut(id);
        source.state = state;
        source.waiting = Map::default();
    }

    /// Parts a deleted object from its source: routes keep the row that they have, and the next
    /// route that names the id waits for it to be announced again.
    pub(super) fn detach(&mut self, object: u32) {
        if let Some(id) = self.find_object(object)
            && self.slot(id).state != State::Waiting
        {
            self.objects.remove(&object);
        }
        for id in self.vpns_of(object) {
            if self.slot(id).state != State::Waiting {
                let what = self.slot(id).what.clone();
                self.detach_vpn(id, &what);
            }
        }
    }

    /// [`Sources::detach`] of every object, waited for or not: ids mean something else from now on.
    pub(super) fn detach_all(&mut self) {
        self.objects.clear();
        self.vpns.clear();
        self.others.retain(|what, _| !matches!(what, What::Vpn(..)));
    }

    /// The sources of next hops that leave by an interface.
    pub(super) fn hops_by(&self, ifindex: u32) -> Vec<(SourceId, Box<[RawHop]>)> {
        let by = self.hops.iter().filter(|(hops, _)| hops.iter().any(|hop| hop.ifindex == ifindex));
        by.map(|(hops, id)| (*id, hops.clone())).collect()
    }

    /// The sources of next hops with labels that leave by an interface.
    pub(super) fn labelled_by(&self, ifindex: u32) -> Vec<(SourceId, Box<[LabelledHop]>)> {
        let by = self.labelled.iter().filter(|(hops, _)| hops.iter().any(|hop| hop.hop.ifindex == ifindex));
        by.map(|(hops, id)| (*id, hops.clone())).collect()
    }

    /// How many sources there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// How many routes wait for an object.
    pub(super) fn waiting_len(&self) -> usize {
        self.slots.iter().flatten().map(|source| source.waiting.len()).sum()
    }
}
