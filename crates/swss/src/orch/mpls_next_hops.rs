//! MPLS next hops (`SAI_NEXT_HOP_TYPE_MPLS`, `sainexthop.h`), which push or swap a label stack.
//!
//! An MPLS next hop belongs to a neighbour and is identified by the neighbour and its labels. The
//! neighbour's own IP next hop exists as long as the neighbour; an MPLS next hop is created for the
//! first route or group that uses it and removed after the last. The neighbour stays as long as the
//! MPLS next hop is in the chip.

use super::interfaces::Interfaces;
use super::neighbors::{Neighbor, Neighbors, NextHopKey};
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::routes::Constraint;
use crate::row::{LabelOp, LabelStack};
use crate::sai::{Attr, Item, NextHopType, ObjectType, OutsegType, Verb};

impl Neighbors {
    /// The number of the MPLS next hop with these labels to the neighbour `below`; a new one gets a
    /// number.
    pub(super) fn labelled_id(&mut self, below: u32, labels: LabelStack) -> u32 {
        let key = NextHopKey { labels: Some(labels), ..self.arena.key(below).clone() };
        let id = self.arena.id_of(&key, || Neighbor::above(below));
        self.arena.get_mut(below).labelled.insert(id);
        id
    }

    /// Whether it is an MPLS next hop with a create request in flight.
    pub(super) fn is_labelled_requested(&self, id: u32) -> bool {
        self.arena.get(id).below.is_some() && self.is_requested(id)
    }

    /// Requests an MPLS next hop whose neighbour is resolved. The caller wants it, or will at once.
    pub(super) fn create_labelled(
        &mut self,
        id: u32,
        below: u32,
        interfaces: &Interfaces,
        outbox: &mut Outbox,
    ) {
        let hop = self.arena.get(id);
        let held = outbox.back_off.holds(&Requester::Neighbor(id));
        if hop.busy || held || hop.oid.is_some() || self.resolved(below, interfaces).is_none() {
            return;
        }
        let NextHopKey { interface, ip, labels } = self.arena.key(id).clone();
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
            Attr::NextHopRif(interfaces.oid(interface).unwrap_or_default()),
        ];
        self.hold(below);
        self.arena.get_mut(id).busy = true;
        let oid = outbox.object_id(ObjectType::NextHop, &attrs);
        let item = Item::new(oid, attrs);
        outbox.bulker.enqueue(Verb::Create, ObjectType::NextHop, Requester::Neighbor(id), item);
    }

    /// Requests the next change that brings an MPLS next hop closer to what its users need. Without
    /// users and outside of the chip it is forgotten.
    pub(super) fn step_labelled(
        &mut self,
        id: u32,
        below: u32,
        interfaces: &mut Interfaces,
        outbox: &mut Outbox,
    ) {
        let hop = self.arena.get(id);
        if hop.busy {
            return;
        }
        let wanted = hop.is_wanted();
        match hop.oid {
            None if wanted => self.create_labelled(id, below, interfaces, outbox),
            None => {
                self.arena.remove(id);
                outbox.back_off.forget(&Requester::Neighbor(id));
                outbox.notify(Notification::NumberFreed);
                self.arena.get_mut(below).labelled.remove(&id);
                self.forget(below, interfaces, outbox);
            }
            Some(oid)
                if hop.refs == 0
                    && !outbox.back_off.holds(&Requester::Neighbor(id))
                    && (!wanted || self.resolved(below, interfaces).is_none()) =>
            {
                let hop = self.arena.get_mut(id);
                (hop.busy, hop.leaving) = (true, true);
                outbox.bulker.enqueue(
                    Verb::Remove,
                    ObjectType::NextHop,
                    Requester::Neighbor(id),
                    Item::bare(oid),
                );
            }
            Some(_) => {}
        }
    }

    /// Takes in the reply to a request for an MPLS next hop.
    pub(super) fn labelled_reply(
        &mut self,
        id: u32,
        below: u32,
        reply: ObjectReply,
        interfaces: &mut Interfaces,
        outbox: &mut Outbox,
    ) {
        let hop = self.arena.get_mut(id);
        hop.busy = false;
        hop.leaving = false;
        match (reply.verb, reply.outcome()) {
            (Verb::Create, Outcome::Done) => {
                hop.oid = reply.oid();
                outbox.crm.labelled_nexthops(1);
            }
            (Verb::Remove, Outcome::Done) => {
                hop.oid = None;
                outbox.crm.labelled_nexthops(-1);
                self.release(below, outbox);
                outbox.room_freed();
            }
            (verb, _) => {
                let NextHopKey { ip, labels, .. } = self.arena.key(id);
                let labels = labels.as_ref().map(LabelStack::to_string).unwrap_or_default();
                let what = format_args!("next hop {labels} to {ip}");
                if outbox.refused(Requester::Neighbor(id), &reply, what) {
                    outbox.notify(Notification::Wake(Constraint::NextHop(id)));
                }
                if verb == Verb::Create {
                    self.release(below, outbox);
                }
            }
        }
        if reply.outcome() == Outcome::Done {
            outbox.back_off.forget(&Requester::Neighbor(id));
        }
        // A next hop that stays after all is usable again, and waiting groups and routes continue
        // without a refused one.
        self.step(id, interfaces, outbox);
        outbox.notify(Notification::NextHopChanged(id));
    }
}
