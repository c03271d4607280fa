//! Virtual routers (`orchagent/vrforch.cpp`): one for each row of VRF_TABLE, and the default one of
//! the chip. Link-local addresses in a VRF go to the CPU, as in the default one: the sessions of its
//! routing daemon over link-local addresses need that.

use crate::orch::arena::Arena;
use crate::orch::boot::link_local_subnet;
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::routes::{DEFAULT_VRF, LABELS_VRF};
use crate::orch::to_sync::ToSync;
use crate::row::{Change, Name, VrfRow};
use crate::sai::{Attr, Item, ObjectType, Oid, Verb};

/// A VRF that a row or a route names.
#[derive(Default)]
struct Vrf {
    /// The virtual router in the chip.
    oid: Option<Oid>,
    /// VRF_TABLE has it.
    wanted: bool,
    /// A request is in flight.
    busy: bool,
    /// Its route of link-local addresses was asked for.
    link_local: bool,
    /// Router interfaces and routes in it.
    refs: u32,
}

/// All VRFs. A number is never used again, because names are few.
pub(super) struct Vrfs {
    to_sync: ToSync<VrfRow>,
    arena: Arena<Option<Name>, Vrf>,
    /// [`crate::orch::OrchConfig::link_local_in_vrfs`].
    with_link_local: bool,
}

impl Vrfs {
    /// The default VRF alone. `with_link_local`: [`crate::orch::OrchConfig::link_local_in_vrfs`].
    pub(super) fn new(with_link_local: bool) -> Vrfs {
        let mut arena = Arena::default();
        let default = arena.id_of(&None, || Vrf { wanted: true, ..Vrf::default() });
        // No VRF can have this name: a key begins with it and ends it with a colon.
        let labels = arena.id_of(&Some(":labels".into()), || Vrf { wanted: true, ..Vrf::default() });
        debug_assert_eq!((default, labels), (DEFAULT_VRF, LABELS_VRF));
        Vrfs { to_sync: ToSync::default(), arena, with_link_local }
    }

    /// Takes in a change of VRF_TABLE.
    pub(super) fn add(&mut self, change: Change<VrfRow>) {
        self.to_sync.add(change);
    }

    /// Changes that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.to_sync.len()
    }

    /// The VRF's number; a new VRF gets one.
    pub(super) fn id_of(&mut self, name: &Option<Name>) -> u32 {
        self.arena.id_of(name, Vrf::default)
    }

    /// The number of a VRF that has one.
    pub(super) fn find(&self, name: &Option<Name>) -> Option<u32> {
        self.arena.find(name)
    }

    /// The VRF's name; `None` for the default one.
    pub(super) fn name(&self, id: u32) -> &Option<Name> {
        self.arena.key(id)
    }

    /// Sets the virtual router that the chip has from the start.
    pub(super) fn set_default(&mut self, oid: Oid) {
        self.arena.get_mut(DEFAULT_VRF).oid = Some(oid);
        self.arena.get_mut(LABELS_VRF).oid = Some(oid);
    }

    /// The virtual router in the chip.
    pub(super) fn oid(&self, id: u32) -> Option<Oid> {
        self.arena.get(id).oid
    }

    /// The VRF of a virtual router.
    pub(super) fn by_oid(&self, oid: Oid) -> Option<u32> {
        let mut of_routes = self.arena.iter().filter(|(id, ..)| *id != LABELS_VRF);
        of_routes.find(|(.., vrf)| vrf.oid == Some(oid)).map(|(id, ..)| id)
    }

    /// The virtual router, if new routes and router interfaces may use it.
    pub(super) fn usable(&self, id: u32) -> Option<Oid> {
        let vrf = self.arena.get(id);
        vrf.oid.filter(|_| vrf.wanted && !vrf.busy)
    }

    /// Handles the changes of VRF_TABLE.
    pub(super) fn sync(&mut self, outbox: &mut Outbox) {
        for (name, pending) in self.to_sync.take() {
            let id = self.id_of(&Some(name));
            outbox.back_off.forget(&Requester::Vrf(id));
            self.arena.get_mut(id).wanted = pending.set.is_some();
            // A VRF that was deleted while in use, and is wanted again, is usable at once.
            self.step_and_notify(id, outbox);
        }
    }

    fn step_and_notify(&mut self, id: u32, outbox: &mut Outbox) {
        self.step_link_local(id, outbox);
        self.step(id, outbox);
        if self.usable(id).is_some() {
            outbox.notify(Notification::VrfUsable(id));
        }
    }

    /// Announces the route of link-local addresses, or its end. It ends with the row of VRF_TABLE, since
    /// it is a user of the virtual router as other routes are.
    fn step_link_local(&mut self, id: u32, outbox: &mut Outbox) {
        let there = self.usable(id).is_some() && self.with_link_local;
        let vrf = self.arena.get_mut(id);
        if std::mem::replace(&mut vrf.link_local, there) != there {
            outbox.notify(Notification::OwnPrefix(id, link_local_subnet(), there));
        }
    }

    /// Requests the next change that brings the virtual router closer to VRF_TABLE.
    pub(super) fn step(&mut self, id: u32, outbox: &mut Outbox) {
        let Vrfs { arena, .. } = self;
        let vrf = arena.get(id);
        let held = outbox.back_off.holds(&Requester::Vrf(id));
        if vrf.busy || held || id == DEFAULT_VRF || id == LABELS_VRF {
            return;
        }
        let (verb, item) = match (vrf.wanted, vrf.oid) {
            (true, None) => {
                let oid = outbox.virtual_router_id(arena.key(id));
                let attrs = [Attr::VirtualRouterV4(true), Attr::VirtualRouterV6(true)];
                (Verb::Create, Item::new(oid, attrs))
            }
            (false, Some(oid)) if vrf.refs == 0 => (Verb::Remove, Item::bare(oid)),
            _ => return,
        };
        arena.get_mut(id).busy = true;
        outbox.bulker.enqueue(verb, ObjectType::VirtualRouter, Requester::Vrf(id), item);
    }

    /// Takes in the reply to a request for a virtual router.
    pub(super) fn reply(&mut self, id: u32, reply: ObjectReply, outbox: &mut Outbox) {
        let vrf = self.arena.get_mut(id);
        vrf.busy = false;
        match reply.outcome() {
            Outcome::Done => {
                vrf.oid = reply.oid().filter(|_| reply.verb == Verb::Create);
                outbox.back_off.forget(&Requester::Vrf(id));
            }
            _ => {
                let name = self.name(id).as_deref().unwrap_or_default();
                outbox.refused(Requester::Vrf(id), &reply, format_args!("the virtual router of {name}"));
            }
        }
        self.step_and_notify(id, outbox);
    }

    /// Counts a user of the virtual router.
    pub(super) fn hold(&mut self, id: u32) {
        self.arena.get_mut(id).refs += 1;
    }

    /// Counts a user less. The last one lets a deleted VRF go.
    pub(super) fn release(&mut self, id: u32, outbox: &mut Outbox) {
        let vrf = self.arena.get_mut(id);
        vrf.refs -= 1;
        if vrf.refs == 0 {
            self.step(id, outbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::{Status, VidCounter};

    /// Replies to the only request that waits; returns its verb.
    fn reply(vrfs: &mut Vrfs, id: u32, status: Status, outbox: &mut Outbox) -> Option<Verb> {
        let request = outbox.bulker.next(1)?;
        outbox.bulker.replied(request.id);
        let crate::sai::SaiCall::One { verb, object, item } = request.call else { return None };
        vrfs.reply(id, ObjectReply { verb, object, item, status, progress: true }, outbox);
        Some(verb)
    }

    #[test]
    fn vrfs_deleted_row_removes_the_router_after_its_last_user() {
        let (mut vrfs, mut outbox) = (Vrfs::new(true), Outbox::new(Box::new(VidCounter::default()), 1000));
        vrfs.add(Change::set("Vrf1".into(), VrfRow::default()));
        vrfs.sync(&mut outbox);
        let id = vrfs.find(&Some("Vrf1".into())).unwrap();
        assert_eq!(vrfs.usable(id), None);
        assert_eq!(reply(&mut vrfs, id, Status::Success, &mut outbox), Some(Verb::Create));
        assert!(vrfs.usable(id).is_some());
        let link_local = |added| Some(Notification::OwnPrefix(id, "fe80::/10".parse().unwrap(), added));
        assert_eq!(outbox.next_notification(), link_local(true));
        assert_eq!(outbox.next_notification(), Some(Notification::VrfUsable(id)));

        vrfs.hold(id);
        vrfs.add(Change::del("Vrf1".into()));
        vrfs.sync(&mut outbox);
        assert!(vrfs.usable(id).is_none() && outbox.bulker.idle());
        assert_eq!(outbox.next_notification(), link_local(false));
        vrfs.release(id, &mut outbox);
        assert_eq!(reply(&mut vrfs, id, Status::Success, &mut outbox), Some(Verb::Remove));
        assert_eq!(vrfs.oid(id), None);
    }

    #[test]
    fn vrfs_full_chip_retries_after_room_was_freed() {
        let (mut vrfs, mut outbox) = (Vrfs::new(true), Outbox::new(Box::new(VidCounter::default()), 1000));
        vrfs.add(Change::set("Vrf1".into(), VrfRow::default()));
        vrfs.sync(&mut outbox);
        let id = vrfs.find(&Some("Vrf1".into())).unwrap();
        reply(&mut vrfs, id, Status::TableFull, &mut outbox);
        assert!(outbox.bulker.idle() && outbox.next_notification().is_none());
        outbox.room_freed();
        assert_eq!(outbox.next_notification(), Some(Notification::Retry(Requester::Vrf(id))));
    }
}
