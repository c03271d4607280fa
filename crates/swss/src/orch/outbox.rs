//! What every part of orchagent may use beside its own state: the bulker, object ids, CRM counters,
//! notifications, and the outputs of the machine.
//!
//! A part changes its own state and that of the parts below it. It never calls a part above it: it
//! enqueues a [`Notification`], which `Orch` delivers after the call returns. SONiC's orchagent
//! calls observers instead (`Subject` and `Observer`, `orchagent/observer.h`).

use super::back_off::BackOff;
use super::bulker::{Bulker, ObjectReply, Outcome, Requester};
use super::crm::Crm;
use super::object_ids::ObjectIds;
use super::routes::Constraint;
use super::{OrchEvent, OrchOut};
use crate::row::Name;
use crate::sai::{Attr, ObjectType, Oid, VidSource};
use ribtide_prefix::AnyPrefix;
use std::collections::VecDeque;

/// A message to a part above the sender. [`Notification::LowerGone`], [`Notification::Link`] and
/// [`Notification::OwnPrefix`] carry a change, in order. All others ask to compare desired and
/// programmed state again. They may come late, twice, or after their number was used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Notification {
    /// The constraint may be resolved: its routes become ready.
    Wake(Constraint),
    /// The chip has a port, LAG or VLAN of this name, on which router interfaces may be made.
    LowerReady(Name),
    /// A LAG or VLAN leaves the chip.
    LowerGone(Name),
    /// The MTU or MAC address that router interfaces on a port, LAG or VLAN have changed.
    LowerChanged(Name),
    /// The state of the link of a port or LAG.
    Link(Name, bool),
    /// Routes may be programmed in the VRF.
    VrfUsable(u32),
    /// Neighbours and routes may use the router interface.
    InterfaceUsable(u32),
    /// The last user of a router interface released it.
    InterfaceReleased(u32),
    /// The router interface begins to move to another VRF, or ends a move.
    InterfaceMoves(u32),
    /// The link of an interface changed.
    LinkChanged(u32),
    /// A destination became the router's own, or is not any more: the VRF, the prefix, and whether it
    /// was added. Its route resolves to the CPU.
    OwnPrefix(u32, AnyPrefix, bool),
    /// Whether routes may use the next hop changed.
    NextHopChanged(u32),
    /// The last route or group member released the next hop.
    NextHopReleased(u32),
    /// No row, group or waiting route names the next hop.
    NextHopUnpinned(u32),
    /// No route uses the group, and none waits for it.
    GroupReleased(u32),
    /// The object of an index of NEXTHOP_GROUP_TABLE changed.
    IndexChanged(u32),
    /// The last route that names an index released it.
    IndexReleased(u32),
    /// No waiting route names the index.
    IndexUnpinned(u32),
    /// A number of a next hop, a group or an index is free and may be used again.
    NumberFreed,
    /// The chip refused a request for this object, which may be sent again.
    Retry(Requester),
}

/// The shared services of all parts.
pub(super) struct Outbox {
    pub(super) bulker: Bulker,
    pub(super) ids: ObjectIds,
    pub(super) crm: Crm,
    /// The outputs of the call that is going on: the caller's, see `Orch::writing_to`.
    pub(super) out: OrchOut,
    notifications: VecDeque<Notification>,
    /// Objects with a refused request.
    pub(super) back_off: BackOff<Requester>,
}

impl Outbox {
    /// `retry_ms`: [`super::OrchConfig::retry_ms`].
    pub(super) fn new(vids: Box<dyn VidSource>, retry_ms: u64) -> Outbox {
        Outbox {
            bulker: Bulker::default(),
            ids: ObjectIds::new(vids),
            crm: Crm::default(),
            out: OrchOut::default(),
            notifications: VecDeque::new(),
            back_off: BackOff::new(retry_ms),
        }
    }

    /// Enqueues a notification.
    pub(super) fn notify(&mut self, notification: Notification) {
        self.notifications.push_back(notification);
    }

    /// Takes the oldest notification.
    pub(super) fn next_notification(&mut self) -> Option<Notification> {
        self.notifications.pop_front()
    }

    /// Takes in that the chip refused a request. [`BackOff`] holds the requester until it gets a
    /// [`Notification::Retry`]. Returns whether it is the first refusal, which is logged as that of
    /// `what`; a full table is no event.
    pub(super) fn refused(
        &mut self,
        requester: Requester,
        reply: &ObjectReply,
        what: impl std::fmt::Display,
    ) -> bool {
        let table_full = reply.outcome() == Outcome::TableFull;
        let first = self.back_off.refused(requester, reply.status, table_full);
        if first && !table_full {
            self.out.failed(what, reply.status);
        }
        first
    }

    /// An object left the chip: the object that has waited longest for room is retried.
    pub(super) fn room_freed(&mut self) {
        if let Some(requester) = self.back_off.take_full() {
            self.notify(Notification::Retry(requester));
        }
    }

    /// Retries up to `max` objects whose time has come; false when there is none.
    pub(super) fn retry_due(&mut self, max: usize) -> bool {
        let due = self.back_off.take_due(max);
        let any = !due.is_empty();
        self.notifications.extend(due.into_iter().map(Notification::Retry));
        any
    }

    /// The id of an object that will be created: the previous one at a warm start, else a new one.
    /// Null when the source of ids failed; then no request is sent any more.
    pub(super) fn object_id(&mut self, object: ObjectType, attrs: &[Attr]) -> Oid {
        let previous = self.ids.previous(object, attrs);
        self.or_new_id(object, previous)
    }

    /// The same for the virtual router of a VRF.
    pub(super) fn virtual_router_id(&mut self, vrf: &Option<Name>) -> Oid {
        let previous = self.ids.previous_router(vrf);
        self.or_new_id(ObjectType::VirtualRouter, previous)
    }

    /// The same for a LAG that will have these ports.
    pub(super) fn lag_id(&mut self, ports: &[Oid]) -> Oid {
        let previous = self.ids.previous_lag(ports);
        self.or_new_id(ObjectType::Lag, previous)
    }

    /// The same for a group that will have these next hops with their weights; `index` is its index
    /// in NEXTHOP_GROUP_TABLE.
    pub(super) fn group_id(&mut self, hops: impl Iterator<Item = (Oid, u32)>, index: Option<&Name>) -> Oid {
        let previous = self.ids.previous_group(hops, index);
        self.or_new_id(ObjectType::NextHopGroup, previous)
    }

    fn or_new_id(&mut self, object: ObjectType, previous: Option<Oid>) -> Oid {
        if let Some(oid) = previous {
            return oid;
        }
        self.ids.new_id(object).unwrap_or_else(|why| {
            self.bulker.stop();
            self.out.events.push(OrchEvent::Fatal(format!("no object numbers: {why}")));
            Oid::NULL
        })
    }
}
