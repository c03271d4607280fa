//! Comparison of syncd with what orchagent requested, after syncd was started again.
//!
//! A syncd that starts makes the chip from the rows of ASIC_DB. Another program may have deleted rows
//! before, or Redis came back with older ones. So orchagent, which has what it requested in memory,
//! reads it back through the queue of requests, in three parts:
//!
//! 1. Every object but routes, type by type in the order in which they can be made. What is missing is
//!    created with its former id, and attributes that differ are set. No other request is sent
//!    meanwhile, so no object changes between its reading and its repair.
//! 2. Routes and labels, a bulk at a time beside other requests. A route with a request in flight is
//!    left out: the reply to that says whether the chip has the entry.
//! 3. Of the keys that ASIC_DB has ([`Orch::syncd_has`]), those that orchagent does not know: they are
//!    removed. Again no other request is sent, because an object counts as known with the reply to its
//!    creation.
//!
//! If anything differed, all is read again. What is still missing after [`ROUNDS`] ends orchagent, and
//! the next one describes the switch in a view.

use super::bulker::{Bulker, Context, is_single};
use super::routes::{ExpectedEntry, RouteName};
use super::{Orch, OrchEvent};
use crate::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, RouteEntry, SaiCall, SaiReply,
    Status, Verb,
};
use crate::syncd::{ORDER, is_missing, place};
use ribtide_prefix::Map;

/// How often all is read while something differs.
const ROUNDS: u32 = 3;
/// The types of [`ORDER`] that orchagent does not make: their objects are never removed.
const NOT_REMOVED: [ObjectType; 2] = [ObjectType::Switch, ObjectType::Port];

/// A request of a comparison.
pub(super) enum Asked {
    /// These objects were read, which should have these attributes.
    Read(ObjectType, Vec<(ObjectId, Attrs)>),
    /// These were repaired.
    Repair(Verb, ObjectType, Vec<ObjectId>),
}

/// What differed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Differences {
    /// Objects that syncd did not have.
    pub missing: usize,
    /// Attributes that differed.
    pub changed: usize,
    /// Objects that only syncd had.
    pub surplus: usize,
}

impl Differences {
    /// Whether nothing differed.
    pub fn is_none(&self) -> bool {
        *self == Differences::default()
    }
}

/// What a step compares when earlier requests have their replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Objects,
    Surplus,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    /// Earlier requests have no reply yet.
    Drain(Next),
    /// These are to be read, the last one first.
    Objects(Vec<(ObjectType, ObjectId)>),
    /// Routes from this number on are to be read.
    Routes(u32),
    /// All was read, and keys of ASIC_DB are awaited.
    Keys,
    /// What is surplus is being removed.
    Surplus,
}

/// The comparison, and what it needs of the time before.
#[derive(Default)]
pub(super) struct Verification {
    /// Every object that orchagent requested, but routes and labels, with its attributes.
    requested: Map<ObjectId, (ObjectType, Attrs)>,
    /// Whether it is kept ([`super::OrchConfig::verifies`]).
    keeps: bool,
    phase: Phase,
    /// A comparison shall begin.
    wanted: bool,
    /// The comparison's number. Replies to an earlier one have no effect.
    number: u64,
    /// Its requests without a reply.
    open: usize,
    round: u32,
    /// What differed in this round, and how much of it was not repaired, with the last reason.
    found: Differences,
    failed: usize,
    status: Option<Status>,
    /// What differed in the rounds before.
    before: Differences,
    /// Objects and routes of a round.
    compared: usize,
    /// Objects of ASIC_DB that orchagent did not know when they were found, until they are removed.
    unknown: Vec<(ObjectType, ObjectId)>,
    awaits_keys: bool,
    /// Whether it is the turn of other requests, while routes are compared.
    yields: bool,
}

impl Verification {
    pub(super) fn new(keeps: bool) -> Verification {
        Verification { keeps, ..Verification::default() }
    }

    /// Whether a comparison goes on, or shall begin.
    pub(super) fn is_active(&self) -> bool {
        self.wanted || !matches!(self.phase, Phase::Idle)
    }

    /// Whether a comparison goes on. One that waits for the end of the start holds up nothing.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// Whether only its own requests are sent.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.phase, Phase::Drain(_) | Phase::Objects(_) | Phase::Surplus)
    }

    /// Whether its request goes before others: every other time.
    pub(super) fn takes_turn(&mut self) -> bool {
        self.yields = !self.yields;
        self.yields
    }

    /// Takes in an outcome of a request that is no request of the comparison.
    pub(super) fn note(&mut self, verb: Verb, object: ObjectType, item: &Item, status: Status) {
        if !self.keeps || object == ObjectType::Switch {
            return;
        }
        let exists = verb == Verb::Create && status == Status::ItemAlreadyExists;
        match verb {
            Verb::Create if status.is_success() || exists => {
                self.requested.insert(item.id, (object, item.attrs.clone()));
            }
            Verb::Set if status.is_success() => {
                let (_, attrs) = self.requested.entry(item.id).or_insert((object, Attrs::new()));
                for attr in &item.attrs {
                    match attrs.iter_mut().find(|known| known.same_kind(attr)) {
                        Some(known) => *known = attr.clone(),
                        None => attrs.push(attr.clone()),
                    }
                }
            }
            Verb::Set | Verb::Remove if is_missing(status) => drop(self.requested.remove(&item.id)),
            Verb::Remove if status.is_success() => drop(self.requested.remove(&item.id)),
            _ => {}
        }
    }

    fn enqueue(&mut self, call: SaiCall, asked: Asked, bulker: &mut Bulker) {
        self.open += 1;
        bulker.call(call, Context::Verify(self.number, asked));
    }

    /// Enqueues an operation on objects of one type.
    fn repair(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: Vec<Item>,
        bulk_size: usize,
        bulker: &mut Bulker,
    ) {
        let size = if is_single(object) { 1 } else { bulk_size };
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut bulk: Vec<Item> = items.by_ref().take(size).collect();
            let ids = bulk.iter().map(|item| item.id).collect();
            let call = match bulk.pop() {
                Some(item) if bulk.is_empty() && object != ObjectType::NextHopGroupMember => {
                    SaiCall::One { verb, object, item }
                }
                last => {
                    bulk.extend(last);
                    SaiCall::Bulk { verb, object, items: bulk, mode: ErrorMode::IgnoreError }
                }
            };
            self.enqueue(call, Asked::Repair(verb, object, ids), bulker);
        }
    }

    /// Enqueues the reading of objects of one type.
    fn read(&mut self, object: ObjectType, wanted: Vec<(ObjectId, Attrs)>, bulker: &mut Bulker) {
        if wanted.is_empty() {
            return;
        }
        self.compared += wanted.len();
        let attrs = |attrs: &Attrs| if attrs.is_empty() { probe(object) } else { attrs.to_vec() };
        let items = wanted.iter().map(|(id, wanted)| (*id, attrs(wanted))).collect();
        self.enqueue(SaiCall::BulkGet { object, items }, Asked::Read(object, wanted), bulker);
    }

    fn repaired(&mut self, verb: Verb, object: ObjectType, ids: Vec<ObjectId>, reply: &SaiReply) {
        let mut statuses = reply.statuses.clone();
        statuses.resize(ids.len(), reply.status);
        for (id, status) in ids.into_iter().zip(statuses) {
            let done = match verb {
                Verb::Create => status.is_success() || status == Status::ItemAlreadyExists,
                Verb::Set => status.is_success(),
                Verb::Remove => status.is_success() || is_missing(status),
            };
            if !done {
                self.failed += 1;
                self.status = Some(status);
                // What uses it may be repaired in the next round.
                self.unknown.extend((verb == Verb::Remove).then_some((object, id)));
            }
        }
    }

    /// Begins a round.
    fn begin_round(&mut self) {
        self.phase = Phase::Drain(Next::Objects);
        (self.compared, self.failed, self.status) = (0, 0, None);
        self.before.missing += self.found.missing;
        self.before.changed += self.found.changed;
        self.before.surplus += self.found.surplus;
        self.found = Differences::default();
    }

    /// Ends a round: all is as requested, or another round follows, or orchagent cannot go on.
    fn end_round(&mut self, events: &mut Vec<OrchEvent>) {
        self.round += 1;
        if !self.found.is_none() && self.round < ROUNDS {
            return self.begin_round();
        }
        let compared = self.compared;
        let lasts = self.found.missing + self.found.surplus > 0 || self.failed > 0;
        let status = self.status.unwrap_or(Status::ItemNotFound);
        self.begin_round();
        self.phase = Phase::Idle;
        self.unknown = Vec::new();
        events.push(match lasts {
            true => OrchEvent::Fatal(format!(
                "syncd was started again and does not have what it was told, and does not take it again ({}); start \
                 orchagent again, so that it describes the switch again",
                status.name()
            )),
            false => OrchEvent::Verified { compared, differences: self.before },
        });
    }
}

/// An attribute by which an object without attributes is found.
fn probe(object: ObjectType) -> Vec<Attr> {
    match object {
        ObjectType::Lag => vec![Attr::LagVlan(0)],
        ObjectType::VirtualRouter => vec![Attr::VirtualRouterV4(false)],
        _ => Vec::new(),
    }
}

/// What the reply says of an object.
fn read_item(status: Status, values: &str) -> (Status, Attrs) {
    let pairs = values.split('|').filter_map(|pair| pair.split_once('='));
    (status, pairs.filter_map(|(name, value)| Attr::read(name, value)).collect())
}

/// The objects of a reply to a bulk of gets: the status of each, and what was read. Without anything read
/// it may have statuses alone.
pub(crate) fn items_of(reply: &SaiReply) -> impl Iterator<Item = (Status, Attrs)> {
    let values = reply.values.iter().map(|value| {
        let mut text = String::new();
        value.write_value(&mut text);
        read_item(Status::from_name(value.name()), &text)
    });
    reply.statuses.iter().map(|status| (*status, Attrs::new())).chain(values)
}

impl Orch {
    /// syncd was started again: what it has is compared with what was requested, as soon as the start is
    /// over. A comparison that goes on begins again. `keys`: [`Orch::syncd_has`] follows, and
    /// [`Orch::syncd_has_no_more`].
    pub fn verify(&mut self, keys: bool) {
        let verification = &mut self.verification;
        if !verification.keeps {
            return;
        }
        verification.number += 1;
        verification.wanted = true;
        verification.phase = Phase::Idle;
        verification.unknown = Vec::new();
        verification.awaits_keys = keys;
    }

    /// Takes in keys of ASIC_DB, without those of objects that the chip has of its own.
    pub fn syncd_has(&mut self, keys: impl IntoIterator<Item = (ObjectType, ObjectId)>) {
        for (object, id) in keys {
            if ORDER.contains(&object) && !NOT_REMOVED.contains(&object) && !self.is_known(&id) {
                self.verification.unknown.push((object, id));
            }
        }
    }

    /// Every key was taken in.
    pub fn syncd_has_no_more(&mut self) {
        self.verification.awaits_keys = false;
    }

    /// Whether orchagent has an object, or may have it because of a request in flight.
    fn is_known(&self, id: &ObjectId) -> bool {
        match id {
            ObjectId::Route(RouteEntry { vr, dest, .. }) => {
                let name = |vrf| RouteName { vrf, prefix: *dest };
                self.objects.vrfs.by_oid(*vr).is_some_and(|vrf| !self.routes.has_no_entry(name(vrf)))
            }
            ObjectId::Inseg(entry) => !self.routes.has_no_entry(RouteName::of_label(entry.label)),
            _ => self.verification.requested.contains_key(id),
        }
    }

    /// Enqueues the next requests of a comparison, or goes to its next part; false when it waits.
    pub(super) fn verify_next(&mut self) -> bool {
        let bulk_size = self.config.bulk_size.max(1);
        let bulker = &mut self.outbox.bulker;
        let verification = &mut self.verification;
        match &mut verification.phase {
            Phase::Idle => {
                let begins = verification.wanted && self.boot.done() && self.objects.ports.ready();
                if begins {
                    verification.wanted = false;
                    (verification.open, verification.round) = (0, 0);
                    verification.found = Differences::default();
                    verification.begin_round();
                    verification.before = Differences::default();
                }
                begins
            }
            Phase::Drain(_) if !bulker.calls_done() => false,
            Phase::Drain(Next::Objects) => {
                let mut objects: Vec<(ObjectType, ObjectId)> =
                    verification.requested.iter().map(|(id, (object, _))| (*object, *id)).collect();
                objects
                    .sort_unstable_by_key(|(object, id)| std::cmp::Reverse((place(*object), *object, *id)));
                verification.phase = Phase::Objects(objects);
                true
            }
            Phase::Drain(Next::Surplus) => {
                self.remove_surplus(bulk_size);
                true
            }
            _ if verification.open > 0 => false,
            Phase::Objects(left) => {
                let Some((object, _)) = left.last().copied() else {
                    verification.phase = Phase::Routes(0);
                    return true;
                };
                let first = left.iter().rposition(|(of, _)| *of != object).map_or(0, |at| at + 1);
                let first = first.max(left.len().saturating_sub(bulk_size));
                let ids: Vec<ObjectId> = left.drain(first..).rev().map(|(_, id)| id).collect();
                let attrs = |id: &ObjectId| verification.requested.get(id).map(|(_, attrs)| attrs.clone());
                let wanted = ids.iter().filter_map(|id| Some((*id, attrs(id)?)));
                // Without an attribute to read an object cannot be found.
                let wanted =
                    wanted.filter(|(_, attrs)| !(attrs.is_empty() && probe(object).is_empty())).collect();
                verification.read(object, wanted, bulker);
                true
            }
            Phase::Routes(at) => {
                let (from, end) = (*at, at.saturating_add(bulk_size as u32));
                *at = end;
                self.read_routes(from, end);
                true
            }
            Phase::Keys if verification.awaits_keys => false,
            Phase::Keys => {
                verification.phase = Phase::Drain(Next::Surplus);
                true
            }
            Phase::Surplus => {
                verification.end_round(&mut self.outbox.out.events);
                true
            }
        }
    }

    /// Reads the routes and labels of these numbers.
    fn read_routes(&mut self, from: u32, end: u32) {
        let (mut routes, mut labels) = (Vec::new(), Vec::new());
        for at in from..end {
            match self.routes.expected_at(at, &self.objects) {
                Some(Some((id, attrs))) if matches!(id, ObjectId::Inseg(_)) => labels.push((id, attrs)),
                Some(entry) => routes.extend(entry),
                None => {
                    routes.extend(self.expected_defaults());
                    self.verification.phase = Phase::Keys;
                    break;
                }
            }
        }
        // An entry that forwards may drop, and one that drops may keep a group that is to be removed in use.
        for (_, attrs) in &mut routes {
            attrs.extend(match attrs.as_slice() {
                [Attr::RouteNextHop(_)] => Some(Attr::RoutePacketAction(PacketAction::Forward)),
                [Attr::RoutePacketAction(PacketAction::Drop)] => Some(Attr::RouteNextHop(Oid::NULL)),
                _ => None,
            });
        }
        for (_, attrs) in &mut labels {
            attrs.push(match attrs.iter().any(|attr| matches!(attr, Attr::InsegPacketAction(_))) {
                true => Attr::InsegNextHop(Oid::NULL),
                false => Attr::InsegPacketAction(PacketAction::Forward),
            });
        }
        let bulker = &mut self.outbox.bulker;
        self.verification.read(ObjectType::RouteEntry, routes, bulker);
        self.verification.read(ObjectType::InsegEntry, labels, bulker);
    }

    /// Removes what orchagent does not know: first what uses others.
    fn remove_surplus(&mut self, bulk_size: usize) {
        let mut unknown = std::mem::take(&mut self.verification.unknown);
        unknown.retain(|(_, id)| !self.is_known(id));
        unknown.sort_unstable_by_key(|(object, id)| std::cmp::Reverse((place(*object), *object, *id)));
        unknown.dedup();
        self.verification.phase = Phase::Surplus;
        self.verification.found.surplus += unknown.len();
        for of_type in unknown.chunk_by(|(a, _), (b, _)| a == b) {
            let items = of_type.iter().map(|(_, id)| Item::new(*id, [])).collect();
            let object = of_type[0].0;
            self.verification.repair(Verb::Remove, object, items, bulk_size, &mut self.outbox.bulker);
        }
    }

    /// Takes in the reply to a request of a comparison.
    pub(super) fn verify_reply(&mut self, number: u64, asked: Asked, reply: &SaiReply) {
        if number != self.verification.number {
            return;
        }
        self.verification.open = self.verification.open.saturating_sub(1);
        let (object, wanted) = match asked {
            Asked::Repair(verb, object, ids) => {
                return self.verification.repaired(verb, object, ids, reply);
            }
            Asked::Read(object, wanted) => (object, wanted),
        };
        let (mut creates, mut sets) = (Vec::new(), Vec::new());
        for ((id, wanted), (status, found)) in wanted.into_iter().zip(items_of(reply)) {
            if !self.is_still(&id, &wanted) {
                continue;
            }
            match status {
                _ if is_missing(status) => creates.push(Item { id, attrs: wanted }),
                Status::Success => {
                    let differing = wanted.into_iter().filter(|attr| !found.contains(attr));
                    sets.extend(differing.map(|attr| Item::new(id, [attr])));
                }
                // The chip does not say it.
                _ => {}
            }
        }
        self.verification.found.missing += creates.len();
        self.verification.found.changed += sets.len();
        let (bulk_size, bulker) = (self.config.bulk_size.max(1), &mut self.outbox.bulker);
        self.verification.repair(Verb::Create, object, creates, bulk_size, bulker);
        self.verification.repair(Verb::Set, object, sets, bulk_size, bulker);
    }

    /// Whether an object shall still have what it was compared with.
    fn is_still(&self, id: &ObjectId, wanted: &Attrs) -> bool {
        match id {
            ObjectId::Route(_) | ObjectId::Inseg(_) => match self.expected_entry(id) {
                ExpectedEntry::Entry(attrs) => attrs.iter().all(|attr| wanted.contains(attr)),
                _ => false,
            },
            _ => true,
        }
    }
}
