//! Objects and entries that an earlier run of ribtide left in the chip, found in ASIC_DB at the
//! start. Rows that are still there are programmed again; the rest is removed when no request came
//! for a while. Until then views of the client contain them, too, so that they forward while rows
//! are still on their way.

use super::learned::{Learned, route_key};
use super::message::{self, Fields};
use super::own::{Entry, StandsFor};
use super::view::{Effect, label_fields, label_text, route_fields};
use super::{Beside, BesideOut, Step};
use crate::sai::text::{read_oid, write_id};
use crate::sai::{ObjectId, ObjectType, Oid, RouteEntry, SWITCH};
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The time without a request of ribtide's orchagent after which its rows are complete.
const QUIET_MS: u64 = 30_000;

const GROUP: &str = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_GROUP_ID";
const HOP: &str = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID";
const INTERFACE: &str = "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID";

/// Objects and entries of an earlier run that no request of this one named, with the ids of the view.
#[derive(Default, Debug)]
pub(super) struct Leftovers {
    /// The object ids that earlier runs took: apart from each other, in order.
    former: Vec<Range<u64>>,
    /// Members of groups, with their attributes.
    members: BTreeMap<Oid, Fields>,
    groups: BTreeMap<Oid, Fields>,
    /// MPLS next hops.
    hops: BTreeMap<Oid, Fields>,
    routes: Map<(Oid, AnyPrefix), Entry>,
    /// Default routes of the default virtual router, which are only ever set.
    defaults: Map<(Oid, AnyPrefix), Entry>,
    labels: BTreeMap<u32, Entry>,
    /// What was carried over into the view for these.
    carried: Map<StandsFor, Oid>,
    quiet_since: Option<u64>,
}

impl Leftovers {
    fn is_empty(&self) -> bool {
        self.members.is_empty()
            && self.groups.is_empty()
            && self.hops.is_empty()
            && self.routes.is_empty()
            && self.labels.is_empty()
            && self.defaults.is_empty()
            && self.carried.is_empty()
    }

    /// Whether there are any, so that the machine needs the time.
    pub(super) fn wait(&self) -> bool {
        !self.is_empty()
    }

    /// The numbers of objects that are there.
    pub(super) fn objects(&self) -> impl Iterator<Item = Oid> + '_ {
        self.members.keys().chain(self.groups.keys()).chain(self.hops.keys()).copied()
    }

    fn is_former(&self, oid: Oid) -> bool {
        let after = self.former.partition_point(|range| range.start <= oid.index());
        after
            .checked_sub(1)
            .and_then(|at| self.former.get(at))
            .is_some_and(|range| range.contains(&oid.index()))
    }

    /// Takes in that a request of this run named an entry, with the ids of the view.
    pub(super) fn claim(&mut self, id: &ObjectId) {
        match id {
            ObjectId::Route(key) if !(self.routes.is_empty() && self.defaults.is_empty()) => {
                self.routes.remove(&(key.vr, key.dest));
                self.defaults.remove(&(key.vr, key.dest));
            }
            ObjectId::Inseg(key) => drop(self.labels.remove(&key.label)),
            _ => {}
        }
    }
}

fn entry_of(object: &str, fields: &Fields) -> Entry {
    let name = |attr: &str| format!("SAI_{object}_ATTR_{attr}");
    Entry {
        target: message::oid(fields, &name("NEXT_HOP_ID")).unwrap_or_default(),
        drops: message::value(fields, &name("PACKET_ACTION")) == Some("SAI_PACKET_ACTION_DROP"),
        pops: message::value(fields, &name("NUM_OF_POP")).and_then(|pops| pops.parse().ok()),
        suspended: false,
    }
}

fn route_text(vr: Oid, dest: AnyPrefix) -> String {
    let mut id = String::new();
    write_id(&RouteEntry { switch: SWITCH, vr, dest }.into(), &mut id);
    id
}

/// The attributes with another object in the place of one.
fn with(fields: &Fields, name: &str, oid: Oid) -> Fields {
    let mut fields = fields.clone();
    fields.iter_mut().filter(|(of, _)| of == name).for_each(|(_, value)| *value = oid.to_string());
    fields
}

/// Which object of the view an object of the former one is.
#[derive(Default)]
struct Moved(Map<Oid, Option<Oid>>);

impl Beside {
    /// Takes in the numbers of object ids that earlier runs took. Call it before
    /// [`Beside::found`].
    pub fn found_former_ids(&mut self, mut former: Vec<Range<u64>>) {
        former.sort_unstable_by_key(|range| range.start);
        former.dedup_by(|next, range| {
            let overlaps = next.start <= range.end;
            if overlaps {
                range.end = range.end.max(next.end);
            }
            overlaps
        });
        self.leftovers.former = former;
    }

    /// Notes an object of ASIC_DB that may be of an earlier run.
    pub(super) fn note_leftover(&mut self, object: &str, id: &str, fields: &Fields) {
        match object {
            "ROUTE_ENTRY" => {
                let Some((router, prefix)) = route_key(id) else { return };
                let entry = entry_of(object, fields);
                let Learned { default_router, cpu_port, .. } = self.learned;
                if prefix.len() == 0 && router == default_router {
                    if !entry.drops {
                        self.leftovers.defaults.insert((router, prefix), entry);
                    }
                } else if entry.target != cpu_port || cpu_port.is_null() {
                    self.leftovers.routes.insert((router, prefix), entry);
                }
                return;
            }
            "INSEG_ENTRY" => {
                if let Some(label) = super::client::label_of(id) {
                    self.leftovers.labels.insert(label, entry_of(object, fields));
                }
                return;
            }
            _ => {}
        }
        let Some(oid) = read_oid(id).filter(|oid| self.leftovers.is_former(*oid)) else { return };
        let is_mpls = || message::value(fields, "SAI_NEXT_HOP_ATTR_TYPE") == Some("SAI_NEXT_HOP_TYPE_MPLS");
        match object {
            "NEXT_HOP_GROUP_MEMBER" => drop(self.leftovers.members.insert(oid, fields.clone())),
            "NEXT_HOP_GROUP" => drop(self.leftovers.groups.insert(oid, fields.clone())),
            "NEXT_HOP" if is_mpls() => drop(self.leftovers.hops.insert(oid, fields.clone())),
            _ => {}
        }
    }

    /// Notes that an object of ASIC_DB is one that an earlier run carried over.
    pub(super) fn note_carried(&mut self, object: &str, id: &str) {
        let Some(oid) = read_oid(id).filter(|oid| self.leftovers.is_former(*oid)) else { return };
        let carried = match object {
            "ROUTER_INTERFACE" => {
                self.learned.interfaces.get_mut(&oid).map(|interface| &mut interface.carried)
            }
            "NEXT_HOP" => self.learned.next_hops.get_mut(&oid).map(|hop| &mut hop.carried),
            _ => None,
        };
        if let Some(carried) = carried {
            *carried = true;
            self.carried_since = Some(self.now_ms);
        }
    }

    /// Notes that leftovers may use what an earlier run carried over, as far as names are known.
    pub(super) fn note_carried_names(&mut self) {
        if self.carried_since.is_none() || self.leftovers.is_empty() {
            return;
        }
        let learned = &self.learned;
        for (oid, _) in learned.interfaces.iter().filter(|(_, interface)| interface.carried) {
            let name = learned.interface_name(*oid);
            if let Some(name) = name.filter(|name| learned.interface(name) == Some(*oid)) {
                self.leftovers.carried.insert(StandsFor::Interface(name), *oid);
            }
        }
        for (oid, hop) in learned.next_hops.iter().filter(|(_, hop)| hop.carried) {
            if let Some((name, ip)) = learned.next_hop_name(*oid)
                && learned.next_hop(hop.interface, ip) == Some(*oid)
            {
                self.leftovers.carried.insert(StandsFor::NextHop(name, ip), *oid);
            }
        }
    }

    /// Whether a leftover uses an object that was carried over.
    pub(super) fn leftovers_use(&self, oid: Oid) -> bool {
        if self.leftovers.carried.is_empty() {
            return false;
        }
        let what = match self.learned.next_hop_name(oid) {
            Some((name, ip)) => Some(StandsFor::NextHop(name, ip)),
            None => self.learned.interface_name(oid).map(StandsFor::Interface),
        };
        what.is_some_and(|what| self.leftovers.carried.get(&what) == Some(&oid))
    }

    /// Adds leftovers to the view that the client is about to apply. Returns how many entries it adds.
    pub(super) fn put_leftovers(&mut self, out: &mut BesideOut) -> usize {
        let former = std::mem::take(&mut self.leftovers);
        let mut next = Leftovers { former: former.former.clone(), ..Leftovers::default() };
        let mut moved = Moved::default();
        let entries = former.routes.values().chain(former.defaults.values()).chain(former.labels.values());
        let targets: BTreeSet<Oid> = entries.filter(|entry| !entry.drops).map(|entry| entry.target).collect();
        let mut members: BTreeMap<Oid, Vec<&Fields>> = BTreeMap::new();
        for fields in former.members.values() {
            if let Some(group) = message::oid(fields, GROUP).filter(|group| targets.contains(group)) {
                members.entry(group).or_default().push(fields);
            }
        }
        let mut items = Vec::new();
        for (group, fields) in &former.groups {
            let mut there = Vec::new();
            for member in members.get(group).into_iter().flatten() {
                let hop = message::oid(member, HOP).unwrap_or_default();
                if let Some(hop) = self.in_view(hop, &former, &mut next, &mut moved, out) {
                    there.push(with(member, HOP, hop));
                }
            }
            let Some(oid) = (!there.is_empty())
                .then(|| self.new_oids(ObjectType::NextHopGroup, 1, out).first().copied())
                .flatten()
            else {
                continue;
            };
            self.push(
                message::request("Screate", "NEXT_HOP_GROUP", &oid.to_string(), fields),
                Effect::Nothing,
            );
            moved.0.insert(*group, Some(oid));
            next.groups.insert(oid, fields.clone());
            let oids = self.new_oids(ObjectType::NextHopGroupMember, there.len(), out);
            for (fields, member) in there.into_iter().zip(oids) {
                let fields = with(&fields, GROUP, oid);
                items.push((member.to_string(), message::joined(&fields)));
                next.members.insert(member, fields);
            }
        }
        self.push_bulks("Sbulkcreate", "NEXT_HOP_GROUP_MEMBER", &items);
        let mut items = Vec::new();
        for ((former_vr, dest), entry) in &former.routes {
            let is_ours = self.is_leftover_of_view(*former_vr, *dest);
            let Some(vr) = is_ours else { continue };
            if let Some(entry) = self.entry_in_view(entry, &former, &mut next, &mut moved, out) {
                items.push((route_text(vr, *dest), message::joined(&route_fields(entry.target, &entry))));
                next.routes.insert((vr, *dest), entry);
            }
        }
        // In the order of their prefixes.
        items.sort_unstable();
        self.push_bulks("Sbulkcreate", "ROUTE_ENTRY", &items);
        for ((former_vr, dest), entry) in &former.defaults {
            let Some(vr) = self.is_leftover_of_view(*former_vr, *dest) else { continue };
            if let Some(entry) = self.entry_in_view(entry, &former, &mut next, &mut moved, out) {
                self.set_default(vr, *dest, &entry);
                next.defaults.insert((vr, *dest), entry);
            }
        }
        let mut items = Vec::new();
        for (label, entry) in &former.labels {
            if self.own.labels.contains_key(label) || self.routeorch_labels.contains(label) {
                continue;
            }
            if let Some(entry) = self.entry_in_view(entry, &former, &mut next, &mut moved, out) {
                items.push((label_text(*label), message::joined(&label_fields(entry.target, &entry))));
                next.labels.insert(*label, entry);
            }
        }
        self.push_bulks("Sbulkcreate", "INSEG_ENTRY", &items);
        let count = next.routes.len() + next.defaults.len() + next.labels.len();
        self.leftovers = former;
        self.leftovers_in_view = next;
        count
    }

    /// The virtual router of the view for a route of the former one; `None` when the route is another's
    /// in the view, or is put there by its row.
    fn is_leftover_of_view(&self, former: Oid, dest: AnyPrefix) -> Option<Oid> {
        let vrf = self.learned.vrf(former)?;
        let view = self.view.as_ref()?;
        let vr = view.router(&vrf)?;
        let claimed = self
            .own_router(former)
            .is_some_and(|vr| self.own.routes.contains_key(&RouteEntry { switch: SWITCH, vr, dest }));
        let is_other = view.is_own(vr, dest) || self.routeorch_routes.contains(&(vrf, dest));
        (!claimed && !is_other).then_some(vr)
    }

    fn entry_in_view(
        &mut self,
        entry: &Entry,
        former: &Leftovers,
        next: &mut Leftovers,
        moved: &mut Moved,
        out: &mut BesideOut,
    ) -> Option<Entry> {
        if entry.drops {
            return Some(*entry);
        }
        let target = self.in_view(entry.target, former, next, moved, out)?;
        Some(Entry { target, ..*entry })
    }

    /// The object of the view for one of the former view: the client's, or one that is carried over.
    fn in_view(
        &mut self,
        was: Oid,
        former: &Leftovers,
        next: &mut Leftovers,
        moved: &mut Moved,
        out: &mut BesideOut,
    ) -> Option<Oid> {
        if let Some(known) = moved.0.get(&was) {
            return *known;
        }
        let found = self.find_in_view(was, former, next, out);
        moved.0.insert(was, found);
        found
    }

    fn find_in_view(
        &mut self,
        was: Oid,
        former: &Leftovers,
        next: &mut Leftovers,
        out: &mut BesideOut,
    ) -> Option<Oid> {
        if let Some(fields) = former.hops.get(&was) {
            let interface = self.interface_in_view(message::oid(fields, INTERFACE)?, next, out)?;
            let oid = *self.new_oids(ObjectType::NextHop, 1, out).first()?;
            let fields = with(fields, INTERFACE, interface);
            self.push(message::request("Screate", "NEXT_HOP", &oid.to_string(), &fields), Effect::Nothing);
            next.hops.insert(oid, fields);
            return Some(oid);
        }
        let Some(hop) = self.learned.next_hops.get(&was) else {
            return self.interface_in_view(was, next, out);
        };
        let (former, ip) = (hop.interface, hop.ip);
        let interface = self.interface_in_view(former, next, out)?;
        let hop = match self.view.as_ref()?.next_hop(interface, ip) {
            Some(hop) => hop,
            None => self.carry_next_hop(was, interface, ip, out)?,
        };
        if self.view.as_ref()?.next_hops.get(&hop)?.carried
            && let Some(name) = self.learned.interface_name(former)
        {
            next.carried.insert(StandsFor::NextHop(name, ip), hop);
        }
        Some(hop)
    }

    /// The router interface of the view for one of the former view. Ports have the same id in each view,
    /// and no name before the client has made their host interfaces.
    fn interface_in_view(&mut self, was: Oid, next: &mut Leftovers, out: &mut BesideOut) -> Option<Oid> {
        let former = self.learned.interfaces.get(&was)?;
        let view = self.view.as_ref()?;
        let name = self.learned.interface_name(was);
        let is_same = |oid: &Oid| {
            view.interfaces.get(oid).is_some_and(|interface| {
                interface.outer_vlan == former.outer_vlan && interface.virtual_router == former.virtual_router
            })
        };
        let by_name = name.as_ref().and_then(|name| view.interface(name));
        let found = by_name.or_else(|| view.interfaces_on(former.lower).find(is_same));
        let interface = match found {
            Some(interface) => interface,
            None => self.carry_interface(was, out)?,
        };
        if self.view.as_ref()?.interfaces.get(&interface)?.carried
            && let Some(name) = name
        {
            next.carried.insert(StandsFor::Interface(name), interface);
        }
        Some(interface)
    }

    /// Sets a default route, which is there.
    fn set_default(&mut self, vr: Oid, dest: AnyPrefix, entry: &Entry) {
        for field in route_fields(entry.target, entry) {
            let message = message::request("Sset", "ROUTE_ENTRY", &route_text(vr, dest), &vec![field]);
            self.push(message, Effect::Nothing);
        }
    }

    /// Moves leftovers from an object that was carried over to the client's own.
    pub(super) fn move_leftovers(&mut self, what: &StandsFor, now: Oid, out: &mut BesideOut) {
        let Some(was) = self.leftovers.carried.get(what).copied().filter(|was| *was != now) else { return };
        self.leftovers.carried.remove(what);
        let is_above = |fields: &Fields| message::oid(fields, INTERFACE) == Some(was);
        let above: Vec<(Oid, Fields)> = self
            .leftovers
            .hops
            .iter()
            .filter(|(_, fields)| is_above(fields))
            .map(|(oid, fields)| (*oid, with(fields, INTERFACE, now)))
            .collect();
        for (hop, fields) in above {
            let Some(oid) = self.new_oids(ObjectType::NextHop, 1, out).first().copied() else { return };
            self.push(message::request("Screate", "NEXT_HOP", &oid.to_string(), &fields), Effect::Nothing);
            self.move_targets(hop, oid, out);
            self.push(
                message::request("Dremove", "NEXT_HOP", &hop.to_string(), &Vec::new()),
                Effect::Nothing,
            );
            self.leftovers.hops.remove(&hop);
            self.leftovers.hops.insert(oid, fields);
        }
        self.move_targets(was, now, out);
        let stand_in = self.own.find(what).and_then(|oid| self.own.stand_in(oid));
        if stand_in.is_none_or(|stand_in| stand_in.real != Some(was)) {
            self.remove_carried(was);
        }
    }

    /// Moves entries and members from one next hop or interface to another.
    fn move_targets(&mut self, was: Oid, now: Oid, out: &mut BesideOut) {
        let uses = |entry: &Entry| entry.target == was && !entry.drops;
        let mut items = Vec::new();
        for ((vr, dest), entry) in self.leftovers.routes.iter_mut().filter(|(_, entry)| uses(entry)) {
            entry.target = now;
            items.push((route_text(*vr, *dest), format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={now}")));
        }
        items.sort_unstable();
        self.push_bulks("Sbulkset", "ROUTE_ENTRY", &items);
        let mut defaults = Vec::new();
        for (key, entry) in self.leftovers.defaults.iter_mut().filter(|(_, entry)| uses(entry)) {
            entry.target = now;
            defaults.push((*key, *entry));
        }
        defaults.into_iter().for_each(|((vr, dest), entry)| self.set_default(vr, dest, &entry));
        let mut items = Vec::new();
        for (label, entry) in self.leftovers.labels.iter_mut().filter(|(_, entry)| uses(entry)) {
            entry.target = now;
            items.push((label_text(*label), format!("SAI_INSEG_ENTRY_ATTR_NEXT_HOP_ID={now}")));
        }
        self.push_bulks("Sbulkset", "INSEG_ENTRY", &items);
        let is_of = |fields: &Fields| message::oid(fields, HOP) == Some(was);
        let members: Vec<(Oid, Fields)> = self
            .leftovers
            .members
            .iter()
            .filter(|(_, fields)| is_of(fields))
            .map(|(oid, fields)| (*oid, with(fields, HOP, now)))
            .collect();
        let oids = self.new_oids(ObjectType::NextHopGroupMember, members.len(), out);
        let (mut items, mut gone) = (Vec::new(), Vec::new());
        for ((former, fields), oid) in members.into_iter().zip(oids) {
            items.push((oid.to_string(), message::joined(&fields)));
            gone.push((former.to_string(), String::new()));
            self.leftovers.members.remove(&former);
            self.leftovers.members.insert(oid, fields);
        }
        self.push_bulks("Sbulkcreate", "NEXT_HOP_GROUP_MEMBER", &items);
        self.push_bulks("Sbulkremove", "NEXT_HOP_GROUP_MEMBER", &gone);
    }

    /// Removes what is left when ribtide's orchagent has had nothing to do for a while.
    pub(super) fn look_at_leftovers(&mut self, out: &mut BesideOut) {
        if self.leftovers.is_empty() {
            return;
        }
        let is_quiet = self.started && self.requests.is_empty() && self.sent.is_empty();
        if !is_quiet || !self.may_program() {
            self.leftovers.quiet_since = None;
            return;
        }
        let since = *self.leftovers.quiet_since.get_or_insert(self.now_ms);
        if since + QUIET_MS > self.now_ms {
            return;
        }
        let gone = std::mem::take(&mut self.leftovers);
        self.leftovers.former = gone.former;
        let is_of_routeorch = |(router, prefix): &(Oid, AnyPrefix)| {
            let vrf = self.learned.vrf(*router);
            vrf.is_none_or(|vrf| self.routeorch_routes.contains(&(vrf, *prefix)))
        };
        let mut items: Vec<(String, String)> = gone
            .routes
            .keys()
            .filter(|key| !is_of_routeorch(key) && !self.learned.is_own(key.0, key.1))
            .map(|(vr, dest)| (route_text(*vr, *dest), String::new()))
            .collect();
        items.sort_unstable();
        let defaults: Vec<_> = gone.defaults.into_keys().filter(|key| !is_of_routeorch(key)).collect();
        self.push_bulks("Sbulkremove", "ROUTE_ENTRY", &items);
        for (vr, dest) in defaults {
            let drops = Entry { target: Oid::NULL, drops: true, pops: None, suspended: false };
            self.set_default(vr, dest, &drops);
        }
        let labels = gone.labels.keys().filter(|label| !self.routeorch_labels.contains(*label));
        let items: Vec<_> = labels.map(|label| (label_text(*label), String::new())).collect();
        self.push_bulks("Sbulkremove", "INSEG_ENTRY", &items);
        let objects = [
            (gone.members.into_keys().collect::<Vec<_>>(), "NEXT_HOP_GROUP_MEMBER"),
            (gone.groups.into_keys().collect(), "NEXT_HOP_GROUP"),
            (gone.hops.into_keys().collect(), "NEXT_HOP"),
        ];
        for (oids, name) in objects {
            for oid in oids {
                let message = message::request("Dremove", name, &oid.to_string(), &Vec::new());
                self.program.push_back(Step { message, effect: Effect::Nothing });
            }
        }
        for (what, oid) in gone.carried {
            if self.own.find(&what).is_none() {
                match &what {
                    StandsFor::NextHop(name, ip) => self.retract_next_hop(name, *ip, out),
                    StandsFor::Interface(name) => self.retract_interface(name, out),
                    _ => {}
                }
                self.remove_carried(oid);
            }
        }
    }
}
