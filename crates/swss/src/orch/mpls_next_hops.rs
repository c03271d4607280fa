//! MPLS next hops (`SAI_NEXT_HOP_TYPE_MPLS`), which push a label stack.
//!
//! An MPLS next hop belongs to a neighbour and is identified by the neighbour and its labels. The neighbour's own IP next
//! hop exists as long as the neighbour; an MPLS next hop is created for the first route or group that uses it and
//! removed after the last. The neighbour stays as long as the MPLS next hop is in the chip.

use super::neighbors::{HopKey, Neighbor};
use super::requests::{Outcome, Requester, outcome};
use super::{Orch, OrchOut};
use crate::row::{LabelOp, LabelStack};
use crate::sai::{Attr, Item, NextHopType, ObjectType, OutsegType, Status, Verb};

impl Orch {
    /// The next hop that puts these labels on and leads to the neighbour `below`; made known when it is new.
    pub(super) fn labelled_id(&mut self, below: u32, labels: LabelStack) -> u32 {
        let key = HopKey { labels: Some(labels), ..self.neighbors.key(below).clone() };
        let id = self.neighbors.id_of(&key, || Neighbor::above(below));
        self.neighbors.get_mut(below).labelled.insert(id);
        id
    }

    /// Whether a next hop with labels is on its way into the chip.
    pub(super) fn is_being_made(&self, id: u32) -> bool {
        let hop = self.neighbors.get(id);
        hop.below.is_some() && hop.is_requested()
    }

    /// Asks for one that a route wants, or will at once, when its neighbour is there.
    pub(super) fn make_labelled(&mut self, id: u32, below: u32, out: &mut OrchOut) {
        let hop = self.neighbors.get(id);
        if hop.busy || hop.refused || hop.oid.is_some() || self.hop_resolved(below).is_none() {
            return;
        }
        let HopKey { interface, ip, labels } = self.neighbors.key(id).clone();
        let Some(LabelStack { op, labels }) = labels else { return };
        let outseg = match op {
            LabelOp::Push => OutsegType::Push,
            LabelOp::Swap => OutsegType::Swap,
        };
        let attrs = [
            Attr::NextHopKind(NextHopType::Mpls),
            Attr::NextHopOutseg(outseg),
            Attr::NextHopLabels(labels.iter().copied().collect()),
            Attr::NextHopIp(ip),
            Attr::NextHopRif(self.interfaces.get(interface).oid().unwrap_or_default()),
        ];
        self.hold_hop(below);
        self.neighbors.get_mut(id).busy = true;
        let oid = self.number(ObjectType::NextHop, &attrs, out);
        self.requests.enqueue(
            Verb::Create,
            ObjectType::NextHop,
            Requester::Neighbor(id),
            Item::new(oid, attrs),
        );
    }

    /// Asks for what brings one closer to what is wanted of it, or forgets it when that is nothing.
    pub(super) fn step_labelled(&mut self, id: u32, below: u32, out: &mut OrchOut) {
        let hop = self.neighbors.get(id);
        if hop.busy {
            return;
        }
        let wanted = hop.is_wanted();
        match hop.oid {
            None if wanted => self.make_labelled(id, below, out),
            None => {
                self.neighbors.remove(id);
                self.routes.clear_resolved_rows();
                self.neighbors.get_mut(below).labelled.remove(&id);
                self.forget_neighbor(below, out);
            }
            Some(oid) if hop.refs == 0 && !hop.refused && (!wanted || self.hop_resolved(below).is_none()) => {
                let hop = self.neighbors.get_mut(id);
                (hop.busy, hop.leaving) = (true, true);
                self.requests.enqueue(
                    Verb::Remove,
                    ObjectType::NextHop,
                    Requester::Neighbor(id),
                    Item::bare(oid),
                );
            }
            Some(_) => {}
        }
    }

    pub(super) fn labelled_reply(
        &mut self,
        id: u32,
        below: u32,
        verb: Verb,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        let hop = self.neighbors.get_mut(id);
        hop.busy = false;
        hop.leaving = false;
        match (verb, outcome(verb, status)) {
            (Verb::Create, Outcome::Done) => {
                hop.oid = item.id.oid();
                self.crm.labelled_nexthops(1);
            }
            (Verb::Remove, Outcome::Done) => {
                hop.oid = None;
                self.crm.labelled_nexthops(-1);
                self.release_hop(below, out);
                self.room_freed(out);
            }
            (_, result) => {
                hop.refused = true;
                if matches!(result, Outcome::TableFull | Outcome::Again) {
                    self.retry_when_freed(Requester::Neighbor(id));
                } else {
                    let HopKey { ip, labels, .. } = self.neighbors.key(id);
                    let labels = labels.as_ref().map(LabelStack::to_string).unwrap_or_default();
                    out.failed(format_args!("next hop {labels} to {ip}"), status);
                }
                if verb == Verb::Create {
                    self.release_hop(below, out);
                }
            }
        }
        // One that stays after all is usable again, and who waited for one that does not come does without.
        self.step_neighbor(id, out);
        self.hop_changed(id, out);
    }
}
