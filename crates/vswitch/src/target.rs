//! Targets of routes, each stored once: a million routes share a few thousand targets.

use crate::dir24::{MAX_TARGET, Target};
use ribtide_prefix::Map;
use ribtide_swss::sai::{Oid, PacketAction};

/// An action and the object that packets go to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Action {
    pub(crate) packet: PacketAction,
    /// A next hop, group, router interface or port; null without one.
    pub(crate) to: Oid,
}

/// The targets in use, counted by routes.
#[derive(Default)]
pub(crate) struct Targets {
    slots: Vec<(Action, u32)>,
    free: Vec<Target>,
    of: Map<Action, Target>,
}

impl Targets {
    pub(crate) fn action(&self, target: Target) -> Action {
        self.slots[target as usize].0
    }

    /// Adds a reference to `action`. The flag marks the first one; `None` means that the table is
    /// full.
    pub(crate) fn acquire(&mut self, action: Action) -> Option<(Target, bool)> {
        if let Some(&target) = self.of.get(&action) {
            self.slots[target as usize].1 += 1;
            return Some((target, false));
        }
        let target = match self.free.pop() {
            Some(target) => target,
            None if self.slots.len() > MAX_TARGET as usize => return None,
            None => {
                self.slots.push((action, 0));
                (self.slots.len() - 1) as Target
            }
        };
        self.slots[target as usize] = (action, 1);
        self.of.insert(action, target);
        Some((target, true))
    }

    /// Removes a reference; true for the last one.
    pub(crate) fn release(&mut self, target: Target) -> bool {
        let (action, routes) = &mut self.slots[target as usize];
        *routes -= 1;
        if *routes > 0 {
            return false;
        }
        self.of.remove(action);
        self.free.push(target);
        true
    }

    pub(crate) fn allocation_size(&self) -> usize {
        self.slots.capacity() * size_of::<(Action, u32)>()
            + self.free.capacity() * size_of::<Target>()
            + self.of.allocation_size()
    }
}
