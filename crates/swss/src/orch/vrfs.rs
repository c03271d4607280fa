//! Virtual routers: one for each VRF, and the default one that the chip has.

use super::arena::Arena;
use super::requests::{Outcome, Requester, outcome};
use super::retry_cache::Constraint;
use super::{Orch, OrchOut};
use crate::row::Name;
use crate::sai::{Attr, Item, ObjectType, Oid, Status, Verb};

/// The default VRF's number.
pub(super) const DEFAULT: u32 = 0;
/// Labels are a table of the chip beside those of the VRFs, and have a number as one: so what is done to routes is done to
/// routes of labels.
pub(super) const LABELS: u32 = 1;

/// A VRF that a row or a route names.
#[derive(Default)]
pub(super) struct Vrf {
    pub(super) oid: Option<Oid>,
    wanted: bool,
    busy: bool,
    /// Router interfaces and routes in it.
    pub(super) refs: u32,
}

/// All VRFs. Numbers are never given away again: names are few.
pub(super) struct Vrfs(Arena<Option<Name>, Vrf>);

impl Default for Vrfs {
    fn default() -> Self {
        let mut vrfs = Arena::default();
        vrfs.id_of(&None, || Vrf { wanted: true, ..Vrf::default() });
        // No VRF can be called so: a key begins with its name.
        vrfs.id_of(&Some(":labels".into()), || Vrf { wanted: true, ..Vrf::default() });
        Vrfs(vrfs)
    }
}

impl Vrfs {
    pub(super) fn id_of(&mut self, name: &Option<Name>) -> u32 {
        self.0.id_of(name, Vrf::default)
    }

    pub(super) fn find(&self, name: &Option<Name>) -> Option<u32> {
        self.0.find(name)
    }

    pub(super) fn get(&self, id: u32) -> &Vrf {
        self.0.get(id)
    }

    /// The VRF's name; `None` for the default one.
    pub(super) fn name(&self, id: u32) -> &Option<Name> {
        self.0.key(id)
    }

    pub(super) fn set_default(&mut self, oid: Oid) {
        self.0.get_mut(DEFAULT).oid = Some(oid);
        self.0.get_mut(LABELS).oid = Some(oid);
    }

    pub(super) fn default_oid(&self) -> Oid {
        self.get(DEFAULT).oid.unwrap_or_default()
    }

    /// The virtual router of a VRF that routes may go into.
    pub(super) fn usable(&self, id: u32) -> Option<Oid> {
        let vrf = self.get(id);
        vrf.oid.filter(|_| vrf.wanted && !vrf.busy)
    }
}

impl Orch {
    pub(super) fn sync_vrfs(&mut self, out: &mut OrchOut) {
        for (name, pending) in self.inputs.vrfs.take() {
            let id = self.vrfs.id_of(&Some(name));
            self.vrfs.0.get_mut(id).wanted = pending.set.is_some();
            self.step_vrf(id, out);
            if self.vrfs.usable(id).is_some() {
                // It was to go, stayed because it was in use, and is wanted again.
                self.vrf_usable(id, out);
            }
        }
    }

    pub(super) fn step_vrf(&mut self, id: u32, out: &mut OrchOut) {
        let vrf = self.vrfs.0.get_mut(id);
        if vrf.busy || id == DEFAULT || id == LABELS {
            return;
        }
        match (vrf.wanted, vrf.oid) {
            (true, None) => {
                vrf.busy = true;
                let oid = self.router_number(id, out);
                let item = Item::new(oid, [Attr::VirtualRouterV4(true), Attr::VirtualRouterV6(true)]);
                self.requests.enqueue(Verb::Create, ObjectType::VirtualRouter, Requester::Vrf(id), item);
            }
            (false, Some(oid)) if vrf.refs == 0 => {
                vrf.busy = true;
                self.requests.enqueue(
                    Verb::Remove,
                    ObjectType::VirtualRouter,
                    Requester::Vrf(id),
                    Item::bare(oid),
                );
            }
            _ => {}
        }
    }

    pub(super) fn vrf_reply(&mut self, id: u32, verb: Verb, item: Item, status: Status, out: &mut OrchOut) {
        let vrf = self.vrfs.0.get_mut(id);
        vrf.busy = false;
        match outcome(verb, status) {
            Outcome::Done if verb == Verb::Create => vrf.oid = item.id.oid(),
            Outcome::Done => vrf.oid = None,
            Outcome::TableFull | Outcome::Again => return self.retry_when_freed(Requester::Vrf(id)),
            _ => {
                vrf.wanted = vrf.oid.is_some();
                let name = self.vrfs.name(id).clone().unwrap_or_default();
                return out.failed(format_args!("the virtual router of {name}"), status);
            }
        }
        self.step_vrf(id, out);
        if self.vrfs.usable(id).is_some() {
            self.vrf_usable(id, out);
        }
    }

    fn vrf_usable(&mut self, id: u32, out: &mut OrchOut) {
        self.wake(Constraint::Vrf(id));
        for interface in self.interfaces.waiting_for_vrf(id) {
            self.step_interface(interface, out);
        }
    }

    pub(super) fn hold_vrf(&mut self, id: u32) {
        self.vrfs.0.get_mut(id).refs += 1;
    }

    pub(super) fn release_vrf(&mut self, id: u32, out: &mut OrchOut) {
        let vrf = self.vrfs.0.get_mut(id);
        vrf.refs -= 1;
        if vrf.refs == 0 {
            self.step_vrf(id, out);
        }
    }
}
