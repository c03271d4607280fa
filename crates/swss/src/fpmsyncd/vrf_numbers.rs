//! Numbers of VRFs that differ from their names: FPM carries the index of a VRF's interface, and
//! the kernel sends the name of that index on another socket.
//!
//! The two sockets have no order, so a route may come before the name of its VRF: it is held until
//! the name comes. And the last deletions of a VRF's former number may come after the routes of its
//! present number: they delete what was announced under the former number only.

use super::{Cause, FpmOut, Fpmsyncd};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_wire::netlink::{Content, Message, Route, messages};
use std::collections::BTreeMap;

/// Routes that were announced under a number that is not the present one of a VRF.
#[derive(Default, Debug)]
pub(super) struct VrfNumbers {
    /// By table: routes of a table that is no VRF's yet, each as the message that announced it. Never
    /// more than the client has routes.
    held: Map<u32, BTreeMap<AnyPrefix, Vec<u8>>>,
    /// By former table: its VRF, and the routes that were announced under this table and not since.
    former: Map<u32, (u32, Set<AnyPrefix>)>,
}

impl VrfNumbers {
    /// A session begins, in which everything is announced again.
    pub(super) fn forget(&mut self) {
        *self = VrfNumbers::default();
    }

    /// A route is announced again or withdrawn: it is held no more.
    pub(super) fn drop_held(&mut self, table: u32, prefix: AnyPrefix) {
        if let Some(held) = self.held.get_mut(&table) {
            held.remove(&prefix);
            if held.is_empty() {
                self.held.remove(&table);
            }
        }
    }

    /// Whether a route is held.
    pub(super) fn is_held(&self, table: u32, prefix: AnyPrefix) -> bool {
        self.held.get(&table).is_some_and(|held| held.contains_key(&prefix))
    }

    /// How many routes are held.
    pub(super) fn held_len(&self) -> usize {
        self.held.values().map(BTreeMap::len).sum()
    }
}

impl Fpmsyncd {
    /// Holds a route whose table is no VRF's yet.
    ///
    /// # Errors
    /// Why it would not be carried in any VRF.
    pub(super) fn hold(&mut self, route: &Route<'_>, message: Option<&Message<'_>>) -> Result<(), Cause> {
        self.carried(route)?;
        let mut bytes = Vec::new();
        let written = match message {
            Some(message) => {
                message.copy(&mut bytes);
                Ok(())
            }
            None => route.write_new(&mut bytes, 0, 0),
        };
        if written.is_ok() {
            self.numbers.held.entry(route.table).or_default().insert(route.prefix, bytes);
        }
        Ok(())
    }

    /// Takes in the routes that were held until this interface had a name, if it is a VRF's.
    pub(super) fn release(&mut self, ifindex: u32, out: &mut FpmOut) {
        if matches!(self.vrf_name(ifindex, true), Err(Some(Cause::UnknownVrf(_)))) {
            return;
        }
        for bytes in self.numbers.held.remove(&ifindex).unwrap_or_default().into_values() {
            for message in messages(&bytes).flatten() {
                if let Ok(Content::NewRoute(route) | Content::NewVpnRoute(route)) = Content::decode(&message)
                {
                    self.route_announced(&route, Some(&message), out);
                }
            }
        }
    }

    /// Takes in that a route of a VRF is announced under this number of it.
    pub(super) fn numbered(&mut self, vrf: u32, table: u32, prefix: AnyPrefix) {
        let of = &mut self.vrfs[vrf as usize];
        let before = std::mem::replace(&mut of.table, table);
        if vrf == 0 {
            return;
        }
        if before != table {
            self.numbers.former.remove(&table);
            let mut left = Set::default();
            of.routes.for_each(|prefix, entry| {
                if entry.source.is_some() {
                    left.insert(prefix);
                }
            });
            let older = self.numbers.former.values().filter(|(of, _)| *of == vrf);
            older.for_each(|(_, older)| left.retain(|prefix| !older.contains(prefix)));
            if before != 0 && !left.is_empty() {
                self.numbers.former.insert(before, (vrf, left));
            }
        }
        if !self.numbers.former.is_empty() {
            self.numbers.former.retain(|_, (of, left)| {
                if *of == vrf {
                    left.remove(&prefix);
                }
                !left.is_empty()
            });
        }
    }

    /// Whether a withdrawal under this number is about the route as it is: not where the VRF has
    /// another number now, under which the route was announced since.
    pub(super) fn withdraws(&mut self, vrf: u32, table: u32, prefix: AnyPrefix) -> bool {
        let now = self.vrfs[vrf as usize].table;
        if vrf == 0 || now == table || !self.links.get(&now).is_some_and(|link| link.present) {
            return true;
        }
        self.numbers.former.get_mut(&table).is_some_and(|(of, left)| *of == vrf && left.remove(&prefix))
    }
}
