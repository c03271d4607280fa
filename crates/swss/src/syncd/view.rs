//! The view of an orchagent that starts while the chip forwards (`syncd/ComparisonLogic.cpp` of
//! sonic-sairedis): its requests are gathered, compared with the objects of the chip, and only the
//! difference is carried out.
//!
//! Objects have no names, so they are matched by content, from the ports up: router interfaces by
//! port, next hops by address and interface, groups by their members. The comparison uses the
//! chip's numbers. It records each operation that succeeds, so ASIC_DB is correct even after a
//! failure.

use super::entries::in_numbers;
use super::is_missing;
use super::{AsicChange, Store, Syncd, SyncdOut, order};
use crate::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, RawText, SWITCH, Sai, Status, Verb,
};
use ribtide_prefix::{Map, Set};

/// How often failed operations are retried, after others made room.
const ROUNDS: usize = 3;

/// What an object of the view is made of, in the chip's numbers: its type, what it was created with
/// and cannot change, and for a group its members.
type Content = (ObjectType, Vec<Attr>, Vec<Vec<Attr>>);

/// An operation, in the chip's numbers but for objects that are not made yet.
struct Step {
    verb: Verb,
    object: ObjectType,
    id: ObjectId,
    /// The key of an entry whose key is not typed, in place of `id`.
    key: Option<RawText>,
    attrs: Attrs,
}

/// The default of an attribute, where SAI's headers define one (`@default`).
fn default_of(attr: &Attr) -> Option<Attr> {
    Some(match attr {
        Attr::RoutePacketAction(_) => Attr::RoutePacketAction(PacketAction::Forward),
        Attr::RouteNextHop(_) => Attr::RouteNextHop(Oid::NULL),
        Attr::InsegPacketAction(_) => Attr::InsegPacketAction(PacketAction::Forward),
        Attr::InsegNextHop(_) => Attr::InsegNextHop(Oid::NULL),
        Attr::InsegPop(_) => Attr::InsegPop(0),
        Attr::NeighborNoHostRoute(_) => Attr::NeighborNoHostRoute(false),
        Attr::VirtualRouterV4(_) => Attr::VirtualRouterV4(true),
        Attr::VirtualRouterV6(_) => Attr::VirtualRouterV6(true),
        Attr::RifV4(_) => Attr::RifV4(true),
        Attr::RifV6(_) => Attr::RifV6(true),
        Attr::RifMpls(_) => Attr::RifMpls(false),
        Attr::RifMtu(_) => Attr::RifMtu(1514),
        Attr::MemberWeight(_) => Attr::MemberWeight(1),
        Attr::PortVlan(_) => Attr::PortVlan(1),
        Attr::LagVlan(_) => Attr::LagVlan(1),
        Attr::LagTpid(_) => Attr::LagTpid(0x8100),
        Attr::LagMemberEgressDisable(_) => Attr::LagMemberEgressDisable(false),
        Attr::LagMemberIngressDisable(_) => Attr::LagMemberIngressDisable(false),
        _ => return None,
    })
}

fn sorted(mut attrs: Vec<Attr>) -> Vec<Attr> {
    attrs.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    attrs
}

/// The attributes with every number translated; `None` when one has no translation.
pub(super) fn translated(attrs: &[Attr], of: &dyn Fn(Oid) -> Option<Oid>) -> Option<Attrs> {
    let mut attrs: Attrs = attrs.iter().cloned().collect();
    for oid in attrs.iter_mut().flat_map(|attr| attr.oids_mut()) {
        if !oid.is_null() {
            *oid = of(*oid)?;
        }
    }
    Some(attrs)
}

pub(super) fn translated_id(mut id: ObjectId, of: &dyn Fn(Oid) -> Option<Oid>) -> Option<ObjectId> {
    for oid in id.oids_mut() {
        *oid = of(*oid)?;
    }
    Some(id)
}

/// The outcome of steps.
struct Outcome {
    /// Those that the chip refused.
    failed: Vec<Step>,
    /// Whether the chip lacked an entry of syncd's table, or had one that the table lacks. Table and
    /// chip agree about it now, so the steps are computed again.
    differed: bool,
}

/// A view under comparison.
struct Comparison {
    /// What the chip holds now, in its own numbers.
    actual: Store,
    /// The chip's numbers of the new view's objects, as far as they are made.
    rid_of: Map<Oid, Oid>,
    /// The chip's objects that the new view has.
    kept: Set<Oid>,
    /// What objects were called: of several that are alike, one keeps its number.
    previous: Map<Oid, Oid>,
}

/// The ports of each virtual router's interfaces, the only difference between virtual routers.
fn ports_of(store: &Store, of: &dyn Fn(Oid) -> Option<Oid>) -> Map<Oid, Vec<Oid>> {
    let mut ports: Map<Oid, Vec<Oid>> = Map::default();
    for (_, attrs) in store.sorted(ObjectType::RouterInterface) {
        let (mut vr, mut port) = (None, None);
        for attr in &attrs {
            match attr {
                Attr::RifVirtualRouter(oid) => vr = Some(*oid),
                Attr::RifPort(oid) | Attr::RifVlan(oid) => port = of(*oid),
                _ => {}
            }
        }
        if let (Some(vr), Some(port)) = (vr, port) {
            ports.entry(vr).or_default().push(port);
        }
    }
    ports
}

/// The ports of each LAG, the only difference between LAGs.
fn ports_of_lags(store: &Store, of: &dyn Fn(Oid) -> Option<Oid>) -> Map<Oid, Vec<Oid>> {
    let mut ports: Map<Oid, Vec<Oid>> = Map::default();
    for (_, attrs) in store.sorted(ObjectType::LagMember) {
        let (mut lag, mut port) = (None, None);
        for attr in &attrs {
            match attr {
                Attr::LagMemberLag(oid) => lag = Some(*oid),
                Attr::LagMemberPort(oid) => port = of(*oid),
                _ => {}
            }
        }
        if let (Some(lag), Some(port)) = (lag, port) {
            ports.entry(lag).or_default().push(port);
        }
    }
    ports
}

/// The members of each group, in numbers of `of`, each sorted: the same for the same group.
fn members_of(store: &Store, of: &dyn Fn(Oid) -> Option<Oid>) -> Map<Oid, Vec<(Oid, Vec<Attr>)>> {
    let mut members: Map<Oid, Vec<(Oid, Vec<Attr>)>> = Map::default();
    for (id, attrs) in store.sorted(ObjectType::NextHopGroupMember) {
        let group =
            attrs.iter().find_map(|attr| if let Attr::MemberGroup(oid) = attr { Some(*oid) } else { None });
        let rest: Vec<Attr> =
            attrs.iter().filter(|attr| !matches!(attr, Attr::MemberGroup(_))).cloned().collect();
        // A member whose next hop is new has none of the chip's numbers: no group of the chip has
        // it.
        let rest =
            translated(&rest, of).map_or(vec![Attr::MemberNextHop(Oid::NULL)], |attrs| attrs.into_vec());
        if let (Some(group), Some(member)) = (group, id.oid()) {
            members.entry(group).or_default().push((member, sorted(rest)));
        }
    }
    for list in members.values_mut() {
        list.sort_by_cached_key(|(_, attrs)| attrs.iter().map(Attr::to_string).collect::<Vec<_>>());
    }
    members
}

/// The types that are matched by what nothing can change, or in ways of their own.
const ROUTE_PATH: [ObjectType; 7] = [
    ObjectType::Switch,
    ObjectType::Port,
    ObjectType::VirtualRouter,
    ObjectType::RouterInterface,
    ObjectType::NextHop,
    ObjectType::NextHopGroup,
    ObjectType::NextHopGroupMember,
];

/// Whether objects of a type are matched by all of their attributes.
fn is_described_in_full(object: ObjectType) -> bool {
    !ROUTE_PATH.contains(&object)
}

/// The content of an object, in numbers of `of`; `create_only`: only attributes that nothing can change.
fn content(
    object: ObjectType,
    attrs: &[Attr],
    members: Option<&Vec<(Oid, Vec<Attr>)>>,
    create_only: bool,
    of: &dyn Fn(Oid) -> Option<Oid>,
) -> Option<Content> {
    // The purpose of an object that is not typed may be in any of its attributes.
    let all = is_described_in_full(object) && !create_only;
    let counts = |attr: &&Attr| attr.create_only() || all;
    let fixed: Vec<Attr> = attrs.iter().filter(counts).cloned().collect();
    let fixed = translated(&fixed, of)?.into_vec();
    let members = members.into_iter().flatten().map(|(_, attrs)| attrs.clone()).collect();
    Some((object, sorted(fixed), members))
}

impl Comparison {
    /// Matches the objects of the new view with those that the chip has.
    ///
    /// `there`: those that need no match, as orchagent did not make them itself.
    fn match_all(&mut self, new: &Store, there: &Map<Oid, ObjectType>) {
        // The view lacks those of them that orchagent removed.
        let described = there.iter().filter(|(vid, object)| new.get(**object, &(**vid).into()).is_some());
        self.kept.extend(described.filter_map(|(vid, _)| self.rid_of.get(vid)));
        self.match_content(new, ObjectType::Port, false);
        self.match_lags(new);
        let apart = |object: &ObjectType| {
            ROUTE_PATH.contains(object) || matches!(*object, ObjectType::Hostif | ObjectType::Lag)
        };
        let others: Vec<ObjectType> =
            new.numbered_types().into_iter().filter(|object| !apart(object)).collect();
        // Router interfaces are over some of them, and others name router interfaces.
        self.match_while_possible(new, &others, false);
        self.match_routers(new);
        let typed = [ObjectType::Hostif, ObjectType::RouterInterface, ObjectType::NextHop];
        let all: Vec<ObjectType> = others.into_iter().chain(typed).collect();
        self.match_while_possible(new, &all, false);
        self.match_while_possible(new, &all, true);
        self.match_content(new, ObjectType::NextHopGroup, false);
        self.match_changed_groups(new);
        self.match_members(new);
    }

    /// Matches objects of these types, which may name each other, as far as that goes.
    fn match_while_possible(&mut self, new: &Store, objects: &[ObjectType], create_only: bool) {
        let mut before = usize::MAX;
        while self.kept.len() != before {
            before = self.kept.len();
            objects.iter().for_each(|object| self.match_content(new, *object, create_only));
        }
    }

    /// The object of the chip that had a number before, if the new view does not have it yet.
    fn free_previous(&self, vid: Oid) -> Option<Oid> {
        self.previous.get(&vid).copied().filter(|rid| !self.kept.contains(rid))
    }

    fn keep(&mut self, vid: Oid, rid: Oid) {
        self.rid_of.insert(vid, rid);
        self.kept.insert(rid);
    }

    /// Matches LAGs: first those that share most ports, then those without ports. Of several that
    /// are alike, one keeps its number.
    fn match_lags(&mut self, new: &Store) {
        let theirs = ports_of_lags(new, &|vid| self.rid_of.get(&vid).copied());
        let ours = ports_of_lags(&self.actual, &|rid| Some(rid));
        let lags = |store: &Store| -> Vec<Oid> {
            store.sorted(ObjectType::Lag).iter().filter_map(|(id, _)| id.oid()).collect()
        };
        let none = Vec::new();
        let mut pairs = Vec::new();
        for vid in lags(new) {
            let theirs = theirs.get(&vid).unwrap_or(&none);
            for rid in lags(&self.actual) {
                let ours = ours.get(&rid).unwrap_or(&none);
                let shared = theirs.iter().filter(|port| ours.contains(port)).count();
                if shared > 0 || (theirs.is_empty() && ours.is_empty()) {
                    let was = self.previous.get(&vid) == Some(&rid);
                    pairs.push((std::cmp::Reverse((shared, was)), vid, rid));
                }
            }
        }
        pairs.sort_unstable();
        for (_, vid, rid) in pairs {
            if !self.rid_of.contains_key(&vid) && !self.kept.contains(&rid) {
                self.keep(vid, rid);
            }
        }
    }

    fn match_routers(&mut self, new: &Store) {
        let theirs = ports_of(new, &|vid| self.rid_of.get(&vid).copied());
        let ours = ports_of(&self.actual, &|rid| Some(rid));
        let mut free: Vec<Oid> =
            self.actual.sorted(ObjectType::VirtualRouter).iter().filter_map(|(id, _)| id.oid()).collect();
        free.retain(|rid| !self.kept.contains(rid));
        for (id, _) in new.sorted(ObjectType::VirtualRouter) {
            let Some(vid) = id.oid().filter(|vid| !self.rid_of.contains_key(vid)) else { continue };
            if let Some(at) = self.free_previous(vid).and_then(|rid| free.iter().position(|of| *of == rid)) {
                self.keep(vid, free.swap_remove(at));
            }
        }
        // First those that share a port, then any.
        for share in [true, false] {
            for (id, _) in new.sorted(ObjectType::VirtualRouter) {
                let Some(vid) = id.oid().filter(|vid| !self.rid_of.contains_key(vid)) else { continue };
                let fits = |rid: &Oid| match (theirs.get(&vid), ours.get(rid)) {
                    (Some(theirs), Some(ours)) => theirs.iter().any(|port| ours.contains(port)),
                    _ => false,
                };
                if let Some(at) = free.iter().position(|rid| !share || fits(rid)) {
                    self.keep(vid, free.swap_remove(at));
                }
            }
        }
    }

    fn match_content(&mut self, new: &Store, object: ObjectType, create_only: bool) {
        // Without an attribute that nothing can change, all objects of the type would be alike.
        let tells = |content: &Content| !create_only || !content.1.is_empty();
        let is_group = object == ObjectType::NextHopGroup;
        let (mut ours, mut theirs) = (Map::default(), Map::default());
        if is_group {
            ours = members_of(&self.actual, &|rid| Some(rid));
            theirs = members_of(new, &|vid| self.rid_of.get(&vid).copied());
        }
        let mut by_content: Map<Content, Vec<Oid>> = Map::default();
        for (id, attrs) in self.actual.sorted(object).into_iter().rev() {
            let Some(rid) = id.oid().filter(|rid| !self.kept.contains(rid)) else { continue };
            let content = content(object, &attrs, ours.get(&rid), create_only, &|rid| Some(rid));
            if let Some(content) = content.filter(tells) {
                by_content.entry(content).or_default().push(rid);
            }
        }
        for same in [true, false] {
            for (id, attrs) in new.sorted(object) {
                let Some(vid) = id.oid().filter(|vid| !self.rid_of.contains_key(vid)) else { continue };
                let previous = self.free_previous(vid);
                if same && previous.is_none() {
                    continue;
                }
                let rid_of = |vid: Oid| self.rid_of.get(&vid).copied();
                let content = content(object, &attrs, theirs.get(&vid), create_only, &rid_of);
                let Some(content) = content.filter(tells) else { continue };
                let Some(alike) = by_content.get_mut(&content) else { continue };
                let rid = match same {
                    true => alike.iter().position(|rid| Some(*rid) == previous).map(|at| alike.remove(at)),
                    false => alike.pop(),
                };
                if let Some(rid) = rid {
                    self.keep(vid, rid);
                }
            }
        }
    }

    /// Matches a group whose members changed with the one that it shares most with: its routes stay
    /// as they are, and a chip full of groups has room for it.
    fn match_changed_groups(&mut self, new: &Store) {
        let ours = members_of(&self.actual, &|rid| Some(rid));
        let theirs = members_of(new, &|vid| self.rid_of.get(&vid).copied());
        let mut free: Vec<(Oid, Option<Content>)> = Vec::new();
        for (id, attrs) in self.actual.sorted(ObjectType::NextHopGroup) {
            let Some(rid) = id.oid().filter(|rid| !self.kept.contains(rid)) else { continue };
            free.push((rid, content(ObjectType::NextHopGroup, &attrs, None, false, &|rid| Some(rid))));
        }
        for (id, attrs) in new.sorted(ObjectType::NextHopGroup) {
            let Some(vid) = id.oid().filter(|vid| !self.rid_of.contains_key(vid)) else { continue };
            let kind = content(ObjectType::NextHopGroup, &attrs, None, false, &|vid| Some(vid));
            let shared = |rid: &Oid| match (theirs.get(&vid), ours.get(rid)) {
                (Some(theirs), Some(ours)) => {
                    theirs.iter().filter(|(_, a)| ours.iter().any(|(_, b)| a == b)).count()
                }
                _ => 0,
            };
            let fitting = free.iter().enumerate().filter(|(_, (_, of))| *of == kind);
            let previous = self.free_previous(vid);
            let best = fitting.map(|(at, (rid, _))| ((previous == Some(*rid), shared(rid)), at)).max();
            if let Some((_, at)) = best.filter(|((same, shared), _)| *same || *shared > 0) {
                let (rid, _) = free.swap_remove(at);
                self.keep(vid, rid);
            }
        }
    }

    /// Matches the members that matched groups have in common.
    fn match_members(&mut self, new: &Store) {
        let mut ours = members_of(&self.actual, &|rid| Some(rid));
        let theirs = members_of(new, &|vid| self.rid_of.get(&vid).copied());
        for (group, members) in theirs {
            let Some(ours) = self.rid_of.get(&group).and_then(|rid| ours.get_mut(rid)) else { continue };
            for (vid, attrs) in members {
                let alike = |(_, of): &(Oid, Vec<Attr>)| *of == attrs;
                let same = |of: &(Oid, Vec<Attr>)| alike(of) && self.previous.get(&vid) == Some(&of.0);
                if let Some(at) = ours.iter().position(same).or_else(|| ours.iter().position(alike)) {
                    let (rid, _) = ours.swap_remove(at);
                    self.keep(vid, rid);
                }
            }
        }
    }

    /// What is to be done: objects to make, attributes to set, objects to remove.
    fn steps(&self, new: &Store) -> Vec<Step> {
        let rid_of = |vid: Oid| self.rid_of.get(&vid).copied();
        let (mut creates, mut sets, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut routes, mut gone) = (Vec::new(), Vec::new());
        // Entries of the chip that the new view has.
        let mut entries: Set<ObjectId> = Set::default();
        let mut compare = |object: ObjectType, id: ObjectId, attrs: Attrs, creates: &mut Vec<_>| {
            let there =
                translated_id(id, &rid_of).and_then(|rid| Some((rid, self.actual.get(object, &rid)?)));
            let Some((rid, actual)) = there else { return creates.push((object, id, attrs)) };
            if object.is_entry() {
                entries.insert(rid);
            }
            let changed = self.changes(&attrs, actual).into_iter();
            sets.extend(changed.map(|attr| Step::set(object, rid, None, attr)));
        };
        for (object, id) in new.ids().filter(|(object, _)| *object != ObjectType::InsegEntry) {
            let attrs = new.get(object, &id).cloned().unwrap_or_default();
            compare(object, id, attrs, &mut creates);
        }
        for object in [ObjectType::RouteEntry, ObjectType::InsegEntry] {
            new.sorted(object).into_iter().for_each(|(id, attrs)| compare(object, id, attrs, &mut routes));
        }
        sets.sort_by_key(|step| (order::place(step.object), step.object, step.id));
        for object in [ObjectType::InsegEntry, ObjectType::RouteEntry] {
            let old = self.actual.sorted(object).into_iter().filter(|(id, _)| !entries.contains(id));
            gone.extend(old.map(|(id, _)| (object, id, Attrs::new())));
        }
        for (object, id) in self.actual.ids().filter(|(object, _)| *object != ObjectType::InsegEntry) {
            if !id.oid().map_or(entries.contains(&id), |rid| self.kept.contains(&rid)) {
                let attrs = self.actual.get(object, &id).cloned().unwrap_or_default();
                removes.push((object, id, attrs));
            }
        }
        let removes =
            order::sort(removes).into_iter().rev().map(|(object, id, _)| (object, id, Attrs::new()));
        let (made, changed, removed) = self.entry_steps(new);
        let step = |verb| move |(object, id, attrs)| Step { verb, object, id, key: None, attrs };
        let creates = order::sort(creates).into_iter().chain(routes).map(step(Verb::Create));
        let steps = creates.chain(made).chain(sets).chain(changed).chain(removed);
        steps.chain(gone.into_iter().chain(removes).map(step(Verb::Remove))).collect()
    }

    /// The attributes, in the new view's numbers, that differ from those of an object of the chip.
    fn changes(&self, attrs: &Attrs, actual: &Attrs) -> Vec<Attr> {
        let rid_of = |vid: Oid| self.rid_of.get(&vid).copied();
        let missing = actual.iter().filter(|a| !attrs.iter().any(|b| b.same_kind(a)));
        let defaults = missing.filter_map(default_of);
        let attrs = attrs.iter().cloned().chain(defaults).filter(|attr| !attr.create_only());
        let differs = |attr: &Attr| {
            let same = translated(std::slice::from_ref(attr), &rid_of)
                .is_some_and(|wanted| actual.contains(&wanted[0]));
            // An attribute that was never given has its default.
            let given = actual.iter().any(|a| a.same_kind(attr));
            !same && (given || default_of(attr).as_ref() != Some(attr))
        };
        attrs.filter(differs).collect()
    }

    /// Steps for entries whose key is not typed: create, set, remove.
    fn entry_steps(&self, new: &Store) -> (Vec<Step>, Vec<Step>, Vec<Step>) {
        let rid_of = |vid: Oid| self.rid_of.get(&vid).copied();
        let (mut made, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let mut there: Set<(ObjectType, RawText)> = Set::default();
        for ((object, key), attrs) in new.entries() {
            let rid = in_numbers(key, &rid_of).map(|rid| (*object, rid));
            match rid.and_then(|rid| Some((self.actual.entries().get(&rid)?, rid))) {
                None => made.push(Step {
                    verb: Verb::Create,
                    object: *object,
                    id: Oid::NULL.into(),
                    key: Some(key.clone()),
                    attrs: attrs.clone(),
                }),
                Some((actual, rid)) => {
                    let sets = self.changes(attrs, actual).into_iter();
                    changed.extend(
                        sets.map(|attr| Step::set(*object, Oid::NULL.into(), Some(rid.1.clone()), attr)),
                    );
                    there.insert(rid);
                }
            }
        }
        for entry in self.actual.entries().keys().filter(|entry| !there.contains(*entry)) {
            removed.push(Step {
                verb: Verb::Remove,
                object: entry.0,
                id: Oid::NULL.into(),
                key: Some(entry.1.clone()),
                attrs: Attrs::new(),
            });
        }
        (made, changed, removed)
    }
}

impl Step {
    /// A set of one attribute.
    fn set(object: ObjectType, id: ObjectId, key: Option<RawText>, attr: Attr) -> Step {
        Step { verb: Verb::Set, object, id, key, attrs: Attrs::from_iter([attr]) }
    }
}

impl<S: Sai> Syncd<S> {
    /// Makes the chip hold what `new` describes.
    pub(super) fn apply(&mut self, new: Store, out: &mut SyncdOut) -> Status {
        let mut actual = Store::default();
        self.store.for_each(&mut |object, id, attrs| {
            let rid_of = |vid: Oid| self.rid(vid);
            if let (Some(id), Some(attrs)) = (translated_id(id, &rid_of), translated(attrs, &rid_of)) {
                actual.insert(object, id, &attrs);
            }
        });
        for ((object, key), attrs) in self.store.entries() {
            let rid_of = |vid: Oid| self.rid(vid);
            if let (Some(key), Some(attrs)) = (in_numbers(key, &rid_of), translated(attrs, &rid_of)) {
                actual.entries_mut().insert((*object, key), attrs);
            }
        }
        let mut there = self.own.clone();
        let named = std::mem::take(&mut self.named);
        there.extend(named.into_keys().filter_map(|vid| Some((vid, self.store.object_type(vid)?))));
        let known = there.keys().chain([&SWITCH]).filter_map(|vid| Some((*vid, self.rid(*vid)?)));
        let previous = self.rid_of.clone();
        let mut view = Comparison { actual, rid_of: known.collect(), kept: Set::default(), previous };
        view.kept.extend(self.rid(SWITCH));
        view.match_all(&new, &there);
        let mut steps = view.steps(&new);
        for _ in 0..ROUNDS {
            let before = steps.len();
            let Outcome { failed, differed } = self.carry_out(&mut view, steps, out);
            steps = if differed { view.steps(&new) } else { failed };
            if steps.is_empty() || (steps.len() == before && !differed) {
                break;
            }
        }
        for step in steps.iter().take(10) {
            out.events.push(format!(
                "the view is not applied: {:?} of a {} failed; start orchagent again",
                step.verb,
                step.object.name()
            ));
        }
        self.adopt(view, out);
        if !steps.is_empty() {
            // The mark of ASIC_DB stays: orchagent may not hear of the failure from this syncd.
            self.unapplied = true;
            return Status::Failure;
        }
        out.rows.push(AsicChange::View(false));
        Status::Success
    }

    /// Carries steps out, in bulks of one kind.
    fn carry_out(&mut self, view: &mut Comparison, steps: Vec<Step>, out: &mut SyncdOut) -> Outcome {
        let (mut failed, mut differed) = (Vec::new(), false);
        let mut steps = steps.into_iter().peekable();
        while let Some(first) = steps.next() {
            let (verb, object) = (first.verb, first.object);
            if first.key.is_some() {
                failed.extend(self.carry_out_entry(view, first, out));
                continue;
            }
            let mut bulk = vec![first];
            let same = |step: &Step| (step.verb, step.object) == (verb, object) && step.key.is_none();
            while let Some(step) = steps.next_if(same) {
                bulk.push(step);
            }
            let (mut requested, mut items) = (Vec::new(), Vec::new());
            for step in bulk {
                let rid_of = |vid: Oid| view.rid_of.get(&vid).copied();
                let id = match (verb, step.id) {
                    (Verb::Create, ObjectId::Oid(_)) => Some(ObjectId::Oid(Oid::NULL)),
                    (Verb::Create, id) => translated_id(id, &rid_of),
                    // It was the chip's when the step was made.
                    (_, id) => Some(id),
                };
                match id.zip(translated(&step.attrs, &rid_of)) {
                    Some((id, attrs)) => {
                        requested.push(step);
                        items.push(Item { id, attrs });
                    }
                    None => failed.push(step),
                }
            }
            let mut statuses = Vec::with_capacity(items.len());
            if !items.is_empty() {
                self.chip.bulk(verb, object, &mut items, ErrorMode::IgnoreError, &mut statuses);
            }
            statuses.resize(items.len(), Status::Failure);
            let mut surplus = Vec::new();
            for ((step, item), status) in requested.into_iter().zip(items).zip(statuses) {
                if !status.is_success() {
                    out.events.push(format!("{verb:?} of a {}: {}", object.name(), status.name()));
                    match (verb, status) {
                        (Verb::Set | Verb::Remove, Status::ItemNotFound) => {
                            view.actual.remove(&item.id);
                            differed = true;
                        }
                        // Another program's entry may have attributes that the view does not
                        // mention: it is removed, then created.
                        (Verb::Create, Status::ItemAlreadyExists) if object.is_entry() => {
                            surplus.push(Item::new(item.id, []));
                        }
                        _ => failed.push(step),
                    }
                    continue;
                }
                match verb {
                    Verb::Create => {
                        if let (Some(vid), Some(rid)) = (step.id.oid(), item.id.oid()) {
                            view.keep(vid, rid);
                        }
                        view.actual.insert(object, item.id, &item.attrs);
                    }
                    Verb::Set => view.actual.set(object, item.id, &item.attrs),
                    Verb::Remove => view.actual.remove(&item.id),
                }
            }
            if !surplus.is_empty() {
                let mut statuses = Vec::with_capacity(surplus.len());
                self.chip.bulk(Verb::Remove, object, &mut surplus, ErrorMode::IgnoreError, &mut statuses);
                differed = true;
            }
        }
        Outcome { failed, differed }
    }

    /// Carries out a step about an entry whose key is not typed. Returns one that failed.
    fn carry_out_entry(&mut self, view: &mut Comparison, step: Step, out: &mut SyncdOut) -> Option<Step> {
        let rid_of = |vid: Oid| view.rid_of.get(&vid).copied();
        let key = step.key.as_ref()?;
        // Of other steps it was the chip's key when the step was made.
        let key = if step.verb == Verb::Create { in_numbers(key, &rid_of) } else { Some(key.clone()) };
        let Some((key, attrs)) = key.zip(translated(&step.attrs, &rid_of)) else { return Some(step) };
        let mut done = self.chip.entry(step.verb, step.object, &key, &attrs);
        if step.verb == Verb::Create && done == Err(Status::ItemAlreadyExists) {
            // Another program made it.
            done = self
                .chip
                .entry(Verb::Remove, step.object, &key, &[])
                .and_then(|()| self.chip.entry(step.verb, step.object, &key, &attrs));
        }
        match done {
            Ok(()) => {}
            // Another program removed it, or it aged out.
            Err(status) if step.verb == Verb::Remove && is_missing(status) => {}
            Err(status) => {
                out.events.push(format!("{:?} of a {}: {}", step.verb, step.object.name(), status.name()));
                return Some(step);
            }
        }
        let entries = view.actual.entries_mut();
        match step.verb {
            Verb::Create => drop(entries.insert((step.object, key), attrs)),
            Verb::Set => {
                let stored = entries.entry((step.object, key)).or_default();
                attrs.into_iter().for_each(|attr| super::store::put(stored, attr));
            }
            Verb::Remove => drop(entries.remove(&(step.object, key))),
        }
        None
    }

    /// Takes the new view's numbers, and emits the difference to ASIC_DB.
    fn adopt(&mut self, view: Comparison, out: &mut SyncdOut) {
        let old_rids = std::mem::take(&mut self.rid_of);
        let old_vids = std::mem::take(&mut self.vid_of);
        let old = std::mem::take(&mut self.store);
        for (vid, rid) in view.rid_of {
            self.rid_of.insert(vid, rid);
            self.vid_of.insert(rid, vid);
        }
        // Objects that could not be removed keep their old numbers.
        view.actual.for_each(&mut |_, id, _| {
            if let Some(rid) = id.oid()
                && !self.vid_of.contains_key(&rid)
                && let Some(vid) = old_vids.get(&rid)
            {
                self.rid_of.insert(*vid, rid);
                self.vid_of.insert(rid, *vid);
            }
        });
        let vid_of = |rid: Oid| self.vid_of.get(&rid).copied();
        let mut store = Store::default();
        view.actual.for_each(&mut |object, id, attrs| {
            if let (Some(id), Some(attrs)) = (translated_id(id, &vid_of), translated(attrs, &vid_of)) {
                store.insert(object, id, &attrs);
            }
        });
        for ((object, key), attrs) in view.actual.entries() {
            if let (Some(key), Some(attrs)) = (in_numbers(key, &vid_of), translated(attrs, &vid_of)) {
                store.entries_mut().insert((*object, key), attrs);
            }
        }
        self.own.retain(|vid, _| self.rid_of.contains_key(vid));
        for (entry, attrs) in old.entries() {
            if store.entries().get(entry).is_none_or(|new| !same(new, attrs)) {
                out.rows.push(AsicChange::RemoveEntry(entry.0, entry.1.clone()));
            }
        }
        for (entry, attrs) in store.entries() {
            if old.entries().get(entry).is_none_or(|old| !same(old, attrs)) {
                out.rows.push(AsicChange::SetEntry(entry.0, entry.1.clone(), attrs.clone()));
            }
        }
        old.for_each(&mut |object, id, attrs| {
            if store.get(object, &id).is_none_or(|new| !same(new, attrs)) {
                out.rows.remove(object, &id);
            }
        });
        for (vid, rid) in &old_rids {
            if self.rid_of.get(vid) != Some(rid) {
                out.rows.push(AsicChange::Unmap(*vid, *rid));
            }
        }
        for (vid, rid) in &self.rid_of {
            if old_rids.get(vid) != Some(rid) {
                out.rows.push(AsicChange::Map(*vid, *rid));
            }
        }
        store.for_each(&mut |object, id, attrs| {
            if old.get(object, &id).is_none_or(|old| !same(old, attrs)) {
                out.rows.set(object, &id, attrs);
            }
        });
        self.store = store;
    }
}

/// Whether both have the same attributes, in whatever order.
fn same(a: &[Attr], b: &[Attr]) -> bool {
    a.len() == b.len() && a.iter().all(|attr| b.contains(attr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_sai::{Attribute, Default};

    /// The list above is by hand because routes are compared by the million: it agrees with SAI's table.
    #[test]
    fn defaults_are_those_of_sais_table() {
        let mut count = 0;
        for attribute in ribtide_sai::ObjectType::all().flat_map(|object| object.attributes()) {
            let Some(ours) = default_of(&Attr::placeholder(attribute.name(), "")) else { continue };
            count += 1;
            let theirs = match attribute.default_value() {
                Some(Default::Const("SAI_NULL_OBJECT_ID")) => Attr::read(attribute.name(), "oid:0x0"),
                Some(Default::Const(text)) => {
                    let number =
                        text.strip_prefix("0x").map(|hex| u32::from_str_radix(hex, 16).unwrap().to_string());
                    Attr::read(attribute.name(), number.as_deref().unwrap_or(text))
                }
                Some(Default::Attribute(of)) => {
                    assert_eq!(of.name(), "", "{attribute:?} has the value of another attribute");
                    None
                }
                _ => None,
            };
            assert_eq!(Some(ours), theirs, "{:?}", Attribute::default_value(attribute));
        }
        assert_eq!(count, 18);
    }
}
