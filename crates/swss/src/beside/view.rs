//! Views of the client, and ribtide's entries in the chip when objects below them change.
//!
//! A restarted orchagent describes the whole switch again between INIT_VIEW and APPLY_VIEW, with
//! new object ids, and APPLY_VIEW removes what the description lacks. So ribtide adds its groups
//! and routes to the description, just before APPLY_VIEW is passed on. A cold start describes no
//! interface and no neighbour before APPLY_VIEW. ribtide then adds those of ports that its routes
//! use, too ("carries them over"), and moves to the client's own as soon as there are such.

use super::learned::{NextHop, RouterInterface, is_port};
use super::message::{self, Fields};
use super::own::{Entry, Own, StandsFor};
use super::{BULK_MAX, Beside, BesideEvent, BesideOut, Step};
use crate::row::Name;
use crate::sai::text::{Message, write_id};
use crate::sai::{Attr, Attrs, InsegEntry, NeighborEntry, ObjectType, Oid, RouteEntry, SWITCH, Status};
use ribtide_prefix::Set;
use std::net::IpAddr;

/// The time after which what was carried over goes when no route uses it: SONiC's orchagent, which
/// restores neighbours within this time, does not have it.
const CARRIED_TIMEOUT_MS: u64 = 120_000;
/// The interval of looks at it after that time, while routes use it.
const CARRIED_POLL_INTERVAL_MS: u64 = 10_000;

/// What the reply to a request of the program means.
#[derive(Debug)]
pub(super) enum Effect {
    /// Nothing but an event where it failed.
    Nothing,
    /// These routes are in the chip.
    Routes(Vec<RouteEntry>),
    /// These labels are.
    Labels(Vec<u32>),
}

impl Beside {
    pub(super) fn push(&mut self, message: Message, effect: Effect) {
        self.program.push_back(Step { message, effect });
    }

    /// Pushes bulks of at most [`BULK_MAX`] objects.
    pub(super) fn push_bulks(&mut self, op: &'static str, object: &str, items: &[(String, String)]) {
        for items in items.chunks(BULK_MAX) {
            self.push(message::bulk(op, object, items), Effect::Nothing);
        }
    }

    /// Adds everything of ribtide to the view that the client is about to apply.
    pub(super) fn put_into_view(&mut self, out: &mut BesideOut) {
        if self.view.is_none() {
            return;
        }
        self.move_into_view(out);
        let own_in_view: Vec<RouteEntry> = {
            let Some(view) = &self.view else { return };
            let is_own = |key: &RouteEntry| {
                self.own.translate(key.vr).is_some_and(|router| view.is_own(router, key.dest))
            };
            self.own.routes.keys().filter(|key| is_own(key)).copied().collect()
        };
        for key in own_in_view {
            if let Some(mut entry) = self.own.routes.remove(&key) {
                Own::suspend(&mut self.own.suspended, &mut entry, false);
            }
        }
        let entries = self.put(true, out) + self.put_leftovers(out);
        if entries + self.own.suspended > 0 {
            out.events.push(BesideEvent::View { entries, suspended: self.own.suspended });
        }
    }

    /// Finds the object of each stand-in in the view, and carries over what the view lacks.
    fn move_into_view(&mut self, out: &mut BesideOut) {
        let used = self.own.used();
        let stand_ins: Vec<(Oid, StandsFor, Option<Oid>)> =
            self.own.stand_ins().map(|(oid, stand_in)| (oid, stand_in.what.clone(), stand_in.real)).collect();
        let needed: Set<Name> = stand_ins
            .iter()
            .filter(|(oid, ..)| used.contains(oid))
            .filter_map(|(_, what, _)| match what {
                StandsFor::Interface(name) | StandsFor::NextHop(name, _) => Some(name.clone()),
                _ => None,
            })
            .collect();
        for (oid, what, _) in &stand_ins {
            if let StandsFor::Router(name) = what {
                let real = self.view.as_ref().and_then(|view| view.router(&Some(name.clone())));
                self.own.set_real(*oid, real);
            }
        }
        for (oid, what, was) in &stand_ins {
            if let StandsFor::Interface(name) = what {
                let in_view = self.view.as_ref().and_then(|view| view.interface(name));
                let real = match (in_view, was) {
                    (None, Some(was)) if needed.contains(name) => self.carry_interface(*was, out),
                    (in_view, _) => in_view,
                };
                self.own.set_real(*oid, real);
            }
        }
        for (oid, what, was) in &stand_ins {
            if let StandsFor::NextHop(name, ip) = what {
                let interface = self.view.as_ref().and_then(|view| view.interface(name));
                let real = match (interface, was) {
                    (None, _) => None,
                    (Some(interface), was) => {
                        let in_view = self.view.as_ref().and_then(|view| view.next_hop(interface, *ip));
                        match (in_view, was) {
                            (None, Some(was)) if used.contains(oid) => {
                                self.carry_next_hop(*was, interface, *ip, out)
                            }
                            (in_view, _) => in_view,
                        }
                    }
                };
                self.own.set_real(*oid, real);
            }
        }
    }

    /// Creates the router interface of a port in the view. LAGs and VLANs are objects of the client
    /// that it makes again, and other virtual routers too: routes over them wait for those.
    pub(super) fn carry_interface(&mut self, was: Oid, out: &mut BesideOut) -> Option<Oid> {
        let former = self.learned.interfaces.get(&was)?.clone();
        let default = self.view.as_ref()?.default_router;
        if !is_port(former.lower) || former.virtual_router != default {
            return None;
        }
        let oid = *self.new_oids(ObjectType::RouterInterface, 1, out).first()?;
        self.push(
            message::request("Screate", "ROUTER_INTERFACE", &oid.to_string(), &former.fields),
            Effect::Nothing,
        );
        self.view.as_mut()?.add_interface(oid, RouterInterface { carried: true, ..former });
        Some(oid)
    }

    /// Creates a neighbour and its next hop on an interface that was carried over.
    pub(super) fn carry_next_hop(
        &mut self,
        was: Oid,
        interface: Oid,
        ip: IpAddr,
        out: &mut BesideOut,
    ) -> Option<Oid> {
        // The client has the interface again, and has not the neighbour: it is gone.
        if !self.view.as_ref()?.interfaces.get(&interface)?.carried {
            return None;
        }
        let former = self.learned.next_hops.get(&was)?.clone();
        let neighbor = self.learned.neighbors.get(&(former.interface, ip))?.clone();
        let oid = *self.new_oids(ObjectType::NextHop, 1, out).first()?;
        let mut fields = former.fields.clone();
        for (name, value) in &mut fields {
            if name == "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID" {
                *value = interface.to_string();
            }
        }
        let key = neighbor_text(interface, ip);
        self.push(message::request("Screate", "NEIGHBOR_ENTRY", &key, &neighbor), Effect::Nothing);
        self.push(message::request("Screate", "NEXT_HOP", &oid.to_string(), &fields), Effect::Nothing);
        let view = self.view.as_mut()?;
        view.neighbors.insert((interface, ip), neighbor);
        view.add_next_hop(oid, NextHop { interface, ip, fields, carried: true });
        Some(oid)
    }

    /// Puts ribtide's objects and entries into the chip: `all` of them, into a view, or those that
    /// were not there because something below them was missing. Returns how many entries it puts.
    fn put(&mut self, all: bool, out: &mut BesideOut) -> usize {
        self.put_labelled(all, out);
        if all {
            let groups: Vec<(Oid, Attrs)> =
                self.own.groups.iter().map(|(oid, attrs)| (*oid, attrs.clone())).collect();
            let oids = self.new_oids(ObjectType::NextHopGroup, groups.len(), out);
            for ((group, attrs), oid) in groups.into_iter().zip(oids) {
                self.own.rename(group, Some(oid));
                let message =
                    message::request("Screate", "NEXT_HOP_GROUP", &oid.to_string(), &self.fields(&attrs));
                self.push(message, Effect::Nothing);
            }
        }
        self.put_members(all, out);
        let routes = self.put_routes(all);
        routes + self.put_labels(all)
    }

    fn put_labelled(&mut self, all: bool, out: &mut BesideOut) {
        let hops: Vec<Oid> = self.own.labelled.keys().copied().collect();
        for hop in hops {
            if !all && self.own.translate(hop).is_some() {
                continue;
            }
            let Some(labelled) = self.own.labelled.get(&hop) else { continue };
            let (interface, attrs) = (labelled.interface, labelled.attrs.clone());
            let there = self.own.translate(interface).is_some();
            let oid = there.then(|| self.new_oids(ObjectType::NextHop, 1, out).first().copied()).flatten();
            self.own.rename(hop, oid);
            if let Some(oid) = oid {
                let fields = self.fields(&attrs);
                self.push(
                    message::request("Screate", "NEXT_HOP", &oid.to_string(), &fields),
                    Effect::Nothing,
                );
            }
        }
    }

    fn put_members(&mut self, all: bool, out: &mut BesideOut) {
        let mut due = Vec::new();
        let mut members = std::mem::take(&mut self.own.members);
        for (oid, member) in &mut members {
            if all || self.own.translate(*oid).is_none() {
                let real = self.own.translate(member.next_hop);
                if member.dead && real.is_some_and(|real| self.is_carried(real)) {
                    self.own.rename(*oid, None);
                    continue;
                }
                member.dead &= real.is_none();
                let target = (self.own.translate(member.group), self.own.translate(member.next_hop));
                due.push((*oid, target, member.attrs.clone()));
            }
        }
        self.own.members = members;
        let there = due.iter().filter(|(_, target, _)| matches!(target, (Some(_), Some(_)))).count();
        let mut oids = self.new_oids(ObjectType::NextHopGroupMember, there, out).into_iter();
        let mut items = Vec::with_capacity(there);
        for (member, target, attrs) in due {
            let (Some(group), Some(hop)) = target else {
                self.own.rename(member, None);
                continue;
            };
            let Some(oid) = oids.next() else { continue };
            self.own.rename(member, Some(oid));
            items.push((oid.to_string(), member_text(group, hop, &attrs)));
        }
        self.push_bulks("Sbulkcreate", "NEXT_HOP_GROUP_MEMBER", &items);
    }

    fn put_routes(&mut self, all: bool) -> usize {
        if !all && self.own.suspended == 0 {
            return 0;
        }
        let default = self.view.as_ref().unwrap_or(&self.learned).default_router;
        let mut due = Vec::new();
        let mut suspended = self.own.suspended;
        let mut routes = std::mem::take(&mut self.own.routes);
        for (key, entry) in &mut routes {
            if !all && !entry.suspended {
                continue;
            }
            let (router, target) = (self.own.translate(key.vr), self.own.translate(entry.target));
            Own::suspend(&mut suspended, entry, router.is_none() || target.is_none());
            if let (Some(vr), Some(target)) = (router, target) {
                due.push((*key, RouteEntry { vr, ..*key }, target, *entry));
            }
        }
        self.own.routes = routes;
        self.own.suspended = suspended;
        // In the order of their prefixes, as bulks of ribtide's orchagent.
        due.sort_unstable_by_key(|(_, at_syncd, ..)| *at_syncd);
        let count = due.len();
        // RouteOrch's constructor makes the default routes of the default router.
        let (defaults, due): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, at_syncd, ..)| at_syncd.vr == default && at_syncd.dest.len() == 0);
        for (_, at_syncd, target, entry) in defaults {
            for (name, value) in route_fields(target, &entry) {
                let mut id = String::new();
                write_id(&at_syncd.into(), &mut id);
                self.push(
                    message::request("Sset", "ROUTE_ENTRY", &id, &vec![(name, value)]),
                    Effect::Nothing,
                );
            }
        }
        for due in due.chunks(BULK_MAX) {
            let item = |(_, at_syncd, target, entry): &(RouteEntry, RouteEntry, Oid, Entry)| {
                let mut id = String::new();
                write_id(&(*at_syncd).into(), &mut id);
                (id, message::joined(&route_fields(*target, entry)))
            };
            let items: Vec<_> = due.iter().map(item).collect();
            let keys = due.iter().map(|(key, ..)| *key).collect();
            self.push(message::bulk("Sbulkcreate", "ROUTE_ENTRY", &items), Effect::Routes(keys));
        }
        count
    }

    fn put_labels(&mut self, all: bool) -> usize {
        let mut due = Vec::new();
        let mut labels = std::mem::take(&mut self.own.labels);
        for (label, entry) in &mut labels {
            if !all && !entry.suspended {
                continue;
            }
            let target = self.own.translate(entry.target);
            Own::suspend(&mut self.own.suspended, entry, target.is_none());
            if let Some(target) = target {
                due.push((*label, (label_text(*label), message::joined(&label_fields(target, entry)))));
            }
        }
        self.own.labels = labels;
        for due in due.chunks(BULK_MAX) {
            let items: Vec<_> = due.iter().map(|(_, item)| item.clone()).collect();
            let labels = due.iter().map(|(label, _)| *label).collect();
            self.push(message::bulk("Sbulkcreate", "INSEG_ENTRY", &items), Effect::Labels(labels));
        }
        due.len()
    }

    /// The attributes of an object as names and values, with the ids of the view.
    fn fields(&self, attrs: &Attrs) -> Fields {
        let text = |attr: &Attr| {
            let mut attr = attr.clone();
            for oid in attr.oids_mut() {
                *oid = self.own.translate(*oid).unwrap_or_default();
            }
            let mut value = String::new();
            attr.write_value(&mut value);
            (attr.name().to_owned(), value)
        };
        attrs.iter().map(text).collect()
    }

    /// Puts what waited for an object below it.
    pub(super) fn put_again(&mut self, out: &mut BesideOut) {
        self.put(false, out);
    }

    /// The client applied its view, or could not.
    pub(super) fn end_view(&mut self, succeeded: bool, out: &mut BesideOut) {
        let Some(view) = self.view.take() else { return };
        if !succeeded {
            // SONiC's orchagent ends, and its successor begins another view.
            return;
        }
        let is_carried = view.interfaces.values().any(|interface| interface.carried);
        self.carried_since = is_carried.then_some(self.now_ms);
        self.learned = view;
        self.described = true;
        self.refused.clear();
        self.leftovers = std::mem::take(&mut self.leftovers_in_view);
        self.announce_all(out);
    }

    /// Takes in an object of ASIC_DB, for a ribtide that starts beside a running client: the key
    /// after `ASIC_STATE:`, and the fields.
    pub fn found(&mut self, key: &str, fields: Vec<(String, String)>) {
        let Some((object, id)) = key.split_once(':') else { return };
        let Some(object) = object.strip_prefix("SAI_OBJECT_TYPE_") else { return };
        self.note_leftover(object, id, &fields);
        self.learned.created(object, id, fields, &mut Vec::new());
        self.note_carried(object, id);
    }

    /// Takes in the default virtual router and the CPU port, which ASIC_DB does not have: syncd
    /// replies with them. Call it before [`Beside::found`].
    pub fn found_switch(&mut self, default_router: Oid, cpu_port: Oid) {
        self.learned.default_router = default_router;
        self.learned.cpu_port = cpu_port;
    }

    /// Takes in that ASIC_DB is read to its end.
    pub fn found_all(&mut self, out: &mut BesideOut) {
        self.described = true;
        self.announce_all(out);
    }

    /// The object that a stand-in is now.
    fn lookup(&self, what: &StandsFor) -> Option<Oid> {
        match what {
            StandsFor::Lower(_) => None,
            StandsFor::Router(name) => self.learned.router(&Some(name.clone())),
            StandsFor::Interface(name) => self.learned.interface(name),
            StandsFor::NextHop(name, ip) => {
                self.learned.interface(name).and_then(|interface| self.learned.next_hop(interface, *ip))
            }
        }
    }

    pub(super) fn refresh_interface(&mut self, oid: Oid, out: &mut BesideOut) {
        if let Some(name) = self.learned.interface_name(oid) {
            self.refresh(&StandsFor::Interface(name), out);
        }
    }

    pub(super) fn refresh_next_hop(&mut self, oid: Oid, out: &mut BesideOut) {
        if let Some((name, ip)) = self.learned.next_hop_name(oid) {
            self.refresh(&StandsFor::NextHop(name, ip), out);
        }
    }

    pub(super) fn refresh_all(&mut self, out: &mut BesideOut) {
        let all: Vec<StandsFor> = self.own.stand_ins().map(|(_, stand_in)| stand_in.what.clone()).collect();
        all.iter().for_each(|what| self.refresh(what, out));
    }

    /// Looks up the object of a stand-in again, and moves what uses it.
    pub(super) fn refresh(&mut self, what: &StandsFor, out: &mut BesideOut) {
        let now = self.lookup(what);
        if let Some(now) = now {
            self.move_leftovers(what, now, out);
        }
        let Some(oid) = self.own.find(what) else { return };
        let was = self.own.stand_in(oid).and_then(|stand_in| stand_in.real);
        if now == was {
            return;
        }
        // The client has the interface again and not yet the neighbour.
        if now.is_none() && was.is_some_and(|was| self.is_carried(was)) {
            return;
        }
        self.own.set_real(oid, now);
        match (was, now) {
            (None, Some(_)) => self.put_again(out),
            (Some(was), Some(_)) => {
                match what {
                    StandsFor::Router(_) => {}
                    _ => self.retarget(oid, out),
                }
                self.remove_carried(was);
            }
            _ => {}
        }
    }

    pub(super) fn is_carried(&self, oid: Oid) -> bool {
        self.learned.next_hops.get(&oid).is_some_and(|hop| hop.carried)
            || self.learned.interfaces.get(&oid).is_some_and(|interface| interface.carried)
    }

    /// Moves entries, members and MPLS next hops from the former object of a stand-in to its
    /// present one. An entry is set; the others cannot change, and are made again.
    fn retarget(&mut self, oid: Oid, out: &mut BesideOut) {
        let Some(target) = self.own.translate(oid) else { return };
        let labelled: Vec<Oid> =
            self.own.labelled.iter().filter(|(_, hop)| hop.interface == oid).map(|(oid, _)| *oid).collect();
        for hop in labelled {
            let Some(former) = self.own.translate(hop) else { continue };
            self.own.rename(hop, None);
            self.put_labelled(false, out);
            self.retarget(hop, out);
            self.push(
                message::request("Dremove", "NEXT_HOP", &former.to_string(), &Vec::new()),
                Effect::Nothing,
            );
        }
        let mut items = Vec::new();
        for (key, entry) in &self.own.routes {
            if entry.target != oid || entry.suspended || entry.drops {
                continue;
            }
            let Some(vr) = self.own.translate(key.vr) else { continue };
            let mut id = String::new();
            write_id(&RouteEntry { vr, ..*key }.into(), &mut id);
            items.push((id, format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={target}")));
        }
        items.sort_unstable();
        self.push_bulks("Sbulkset", "ROUTE_ENTRY", &items);
        let moves = |entry: &Entry| entry.target == oid && !entry.suspended && !entry.drops;
        let labels: Vec<_> = self
            .own
            .labels
            .iter()
            .filter(|(_, entry)| moves(entry))
            .map(|(label, _)| (label_text(*label), format!("SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID={target}")))
            .collect();
        self.push_bulks("Sbulkset", "INSEG_ENTRY", &labels);
        let members: Vec<(Oid, Oid)> = self
            .own
            .members
            .iter()
            .filter(|(_, member)| member.next_hop == oid)
            .filter_map(|(oid, _)| Some((*oid, self.own.translate(*oid)?)))
            .collect();
        members.iter().for_each(|(member, _)| self.own.rename(*member, None));
        self.put_members(false, out);
        let former: Vec<_> = members.iter().map(|(_, former)| (former.to_string(), String::new())).collect();
        self.push_bulks("Sbulkremove", "NEXT_HOP_GROUP_MEMBER", &former);
    }

    /// Removes an object that was carried over, and that nothing of ribtide uses any more.
    pub(super) fn remove_carried(&mut self, oid: Oid) {
        if !self.is_carried(oid) || self.leftovers_use(oid) {
            return;
        }
        let mut interface = oid;
        if let Some(hop) = self.learned.next_hops.get(&oid).cloned() {
            interface = hop.interface;
            self.push(
                message::request("Dremove", "NEXT_HOP", &oid.to_string(), &Vec::new()),
                Effect::Nothing,
            );
            let key = neighbor_text(hop.interface, hop.ip);
            self.push(message::request("Dremove", "NEIGHBOR_ENTRY", &key, &Vec::new()), Effect::Nothing);
            self.learned.neighbors.remove(&(hop.interface, hop.ip));
            self.learned.forget_next_hop(oid);
        }
        let stand_in = self.learned.interface_name(interface).map(StandsFor::Interface);
        let stand_in = stand_in.and_then(|what| self.own.find(&what)).and_then(|oid| self.own.stand_in(oid));
        let is_used = self.learned.next_hops_on(interface).next().is_some()
            || stand_in.is_some_and(|stand_in| stand_in.real == Some(interface))
            || self.leftovers_use(interface);
        if !is_used && self.is_carried(interface) {
            let id = interface.to_string();
            self.push(message::request("Dremove", "ROUTER_INTERFACE", &id, &Vec::new()), Effect::Nothing);
            self.learned.forget_interface(interface);
        }
    }

    /// Takes back the rows of what was carried over, is still not the client's, and is not used. Without its row
    /// ribtide's orchagent would take a next hop out of a group, though the group had no other.
    pub(super) fn look_at_carried(&mut self, out: &mut BesideOut) {
        if self.carried_since.is_none_or(|since| since + CARRIED_TIMEOUT_MS > self.now_ms) {
            return;
        }
        self.remove_dead_members();
        let used = self.used();
        let is_used = |own: &Own, what: &StandsFor| own.find(what).is_some_and(|oid| used.contains(&oid));
        let mut kept: Set<Oid> = Set::default();
        let hops: Vec<(Oid, Oid)> = self
            .learned
            .next_hops
            .iter()
            .filter(|(_, hop)| hop.carried)
            .map(|(oid, hop)| (*oid, hop.interface))
            .collect();
        for (hop, interface) in hops {
            let Some((name, ip)) = self.learned.next_hop_name(hop) else {
                kept.insert(interface);
                continue;
            };
            match is_used(&self.own, &StandsFor::NextHop(name.clone(), ip)) || self.leftovers_use(hop) {
                true => drop(kept.insert(interface)),
                false => self.retract_next_hop(&name, ip, out),
            }
        }
        let interfaces: Vec<Oid> =
            self.learned.interfaces.iter().filter(|(_, i)| i.carried).map(|(oid, _)| *oid).collect();
        for interface in interfaces {
            let Some(name) = self.learned.interface_name(interface) else { continue };
            if kept.contains(&interface)
                || is_used(&self.own, &StandsFor::Interface(name.clone()))
                || self.leftovers_use(interface)
            {
                kept.insert(interface);
            } else if self.learned.interface(&name) == Some(interface) {
                self.retract_interface(&name, out);
            }
        }
        let again = self.now_ms.saturating_sub(CARRIED_TIMEOUT_MS - CARRIED_POLL_INTERVAL_MS);
        self.carried_since = (!kept.is_empty()).then_some(again);
    }

    /// Takes members out of groups whose next hop is still not the client's, where the group has another
    /// that is. One without such a member keeps all, since a group without members drops. O(members).
    fn remove_dead_members(&mut self) {
        let mut alive: Set<Oid> = Set::default();
        let mut carried = Vec::new();
        for (oid, member) in &self.own.members {
            let (Some(at_syncd), Some(hop)) = (self.own.translate(*oid), self.own.translate(member.next_hop))
            else {
                continue;
            };
            match self.is_carried(hop) {
                true => carried.push((*oid, member.group, at_syncd)),
                false => drop(alive.insert(member.group)),
            }
        }
        let mut items = Vec::new();
        for (oid, group, at_syncd) in carried {
            if alive.contains(&group)
                && let Some(member) = self.own.members.get_mut(&oid)
            {
                member.dead = true;
                self.own.rename(oid, None);
                items.push((at_syncd.to_string(), String::new()));
            }
        }
        self.push_bulks("Sbulkremove", "NEXT_HOP_GROUP_MEMBER", &items);
    }

    /// What routes, labels, members of groups and MPLS next hops name, in the ids of ribtide's orchagent. O(routes).
    fn used(&self) -> Set<Oid> {
        let entries = self.own.routes.values().chain(self.own.labels.values());
        let targets = entries.filter(|entry| !entry.drops).map(|entry| entry.target);
        let members = self.own.members.values().filter(|member| !member.dead).map(|member| member.next_hop);
        let interfaces = self.own.labelled.values().map(|hop| hop.interface);
        targets.chain(members).chain(interfaces).collect()
    }

    /// Takes the routes on router interfaces, and those of virtual routers, out of the chip until
    /// these are there again. False when a group or an MPLS next hop uses one.
    pub(super) fn withdraw(&mut self, gone: &[Oid]) -> bool {
        let uses = |oid: &Oid| gone.contains(oid);
        if self.own.labelled.values().any(|hop| uses(&hop.interface)) {
            return false;
        }
        let mut routes = std::mem::take(&mut self.own.routes);
        let mut items = Vec::new();
        for (key, entry) in &mut routes {
            if entry.suspended || !(uses(&entry.target) || uses(&key.vr)) {
                continue;
            }
            let Some(vr) = self.own.translate(key.vr) else { continue };
            let mut id = String::new();
            write_id(&RouteEntry { vr, ..*key }.into(), &mut id);
            items.push((id, String::new()));
            Own::suspend(&mut self.own.suspended, entry, true);
        }
        self.own.routes = routes;
        items.sort_unstable();
        self.push_bulks("Sbulkremove", "ROUTE_ENTRY", &items);
        let mut labels = std::mem::take(&mut self.own.labels);
        let mut items = Vec::new();
        for (label, entry) in &mut labels {
            if !entry.suspended && uses(&entry.target) {
                items.push((label_text(*label), String::new()));
                Own::suspend(&mut self.own.suspended, entry, true);
            }
        }
        self.own.labels = labels;
        self.push_bulks("Sbulkremove", "INSEG_ENTRY", &items);
        for oid in gone {
            self.own.set_real(*oid, None);
        }
        true
    }

    /// Takes in the reply to a request of the program.
    pub(super) fn program_reply(&mut self, effect: Effect, reply: &Message, out: &mut BesideOut) {
        let fails = |status: &Status| !status.is_success() && *status != Status::ItemAlreadyExists;
        let own = &mut self.own;
        let failed = match effect {
            Effect::Nothing => {
                let status = Status::from_name(&reply.key);
                let gone = [Status::ItemNotFound, Status::AddrNotFound, Status::InvalidObjectId];
                fails(&status).then_some(status).filter(|status| !gone.contains(status))
            }
            Effect::Routes(keys) => {
                let mut failed = None;
                for (key, status) in keys.iter().zip(message::statuses(reply, keys.len())) {
                    if fails(&status)
                        && let Some(entry) = own.routes.get_mut(key)
                    {
                        Own::suspend(&mut own.suspended, entry, true);
                        failed = Some(status);
                    }
                }
                failed
            }
            Effect::Labels(labels) => {
                let mut failed = None;
                for (label, status) in labels.iter().zip(message::statuses(reply, labels.len())) {
                    if fails(&status)
                        && let Some(entry) = own.labels.get_mut(label)
                    {
                        Own::suspend(&mut own.suspended, entry, true);
                        failed = Some(status);
                    }
                }
                failed
            }
        };
        if let Some(status) = failed {
            out.events.push(BesideEvent::Failed(
                "a change of ribtide's routes for SONiC's orchagent".into(),
                status,
            ));
        }
    }
}

pub(super) fn route_fields(target: Oid, entry: &Entry) -> Fields {
    let field = |name: &str, value: String| (name.to_owned(), value);
    match entry.drops {
        true => vec![field("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP".into())],
        false => vec![
            field("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_FORWARD".into()),
            field("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", target.to_string()),
        ],
    }
}

pub(super) fn label_fields(target: Oid, entry: &Entry) -> Fields {
    let field = |name: &str, value: String| (name.to_owned(), value);
    let mut fields = match entry.drops {
        true => vec![field("SAI_INSEG_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP".into())],
        false => vec![field("SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID", target.to_string())],
    };
    fields.extend(entry.pops.map(|pops| field("SAI_INSEG_ENTRY_ATTR_NUM_OF_POP", pops.to_string())));
    fields
}

fn member_text(group: Oid, hop: Oid, attrs: &Attrs) -> String {
    let mut text = format!(
        "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID={group}|SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID={hop}"
    );
    for attr in attrs {
        text.push('|');
        text.push_str(attr.name());
        text.push('=');
        attr.write_value(&mut text);
    }
    text
}

pub(super) fn label_text(label: u32) -> String {
    let mut id = String::new();
    write_id(&InsegEntry { switch: SWITCH, label }.into(), &mut id);
    id
}

fn neighbor_text(rif: Oid, ip: IpAddr) -> String {
    let mut id = String::new();
    write_id(&NeighborEntry { switch: SWITCH, rif, ip }.into(), &mut id);
    id
}
