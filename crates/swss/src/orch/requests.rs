//! Requests under way: numbering them, gathering single operations into bulks, and finding the requester of a reply.

use super::{Orch, OrchEvent, OrchOut};
use crate::row::Name;
use crate::sai::{ErrorMode, Item, ObjectType, Oid, SaiCall, SaiReply, SaiRequest, Status, Verb, VidSource};
use ribtide_prefix::{Map, PREFETCH_BATCH};
use std::collections::VecDeque;
use std::ops::Range;

/// How many object numbers are taken from the source at once.
const VID_BLOCK: u64 = 1024;

/// The object that an operation was enqueued for; the reply goes there.
#[derive(Clone, Debug)]
pub(super) enum Requester {
    Port(Name),
    Vrf(u32),
    Interface(u32),
    Neighbor(u32),
    Group(u32),
    /// A group, and which next hop's membership.
    Member(u32, u32),
}

/// The requesters of one SAI call.
pub(super) enum Context {
    /// The start; a port when it asks for that port's lanes.
    Boot(Option<Oid>),
    Crm,
    /// How many more of a type fit.
    Available(ObjectType),
    /// One requester for each object.
    Objects(Verb, ObjectType, Vec<(Requester, Item)>),
    /// Routes, and how many of the bulk's entries each has.
    Routes(Vec<(super::route_table::RouteId, u8)>),
}

/// Enqueued operations of one verb and object type. They are independent of each other: each was enqueued after all its
/// dependencies were confirmed.
struct Bucket {
    verb: Verb,
    object: ObjectType,
    items: VecDeque<(Requester, Item)>,
}

/// Requests that wait, and requests in flight.
pub(super) struct Requests {
    vids: Box<dyn VidSource>,
    block: Range<u64>,
    next_id: u64,
    in_flight: Map<u64, Context>,
    /// Operations on all but routes: these go first.
    buckets: VecDeque<Bucket>,
    /// Complete calls, in order.
    calls: VecDeque<(SaiCall, Context)>,
    pub(super) broken: bool,
}

impl Requests {
    pub(super) fn new(vids: Box<dyn VidSource>) -> Self {
        Requests {
            vids,
            block: 0..0,
            next_id: 1,
            in_flight: Map::default(),
            buckets: VecDeque::new(),
            calls: VecDeque::new(),
            broken: false,
        }
    }

    pub(super) fn idle(&self) -> bool {
        self.in_flight.is_empty() && self.buckets.is_empty() && self.calls.is_empty()
    }

    /// A new object number, or null when there is none to be had.
    pub(super) fn vid(&mut self, object: ObjectType, out: &mut OrchOut) -> Oid {
        if self.block.is_empty() {
            match self.vids.take(VID_BLOCK) {
                Ok(block) => self.block = block,
                Err(why) => {
                    self.broken = true;
                    out.events.push(OrchEvent::Fatal(format!("no object numbers: {why}")));
                }
            }
        }
        self.block.next().map_or(Oid::NULL, |index| Oid::vid(object, index))
    }

    /// Enqueues an operation on one object. It leaves in a bulk with others of its verb and type.
    pub(super) fn enqueue(&mut self, verb: Verb, object: ObjectType, requester: Requester, item: Item) {
        let bucket = self.buckets.iter_mut().find(|b| b.verb == verb && b.object == object);
        match bucket {
            Some(bucket) => bucket.items.push_back((requester, item)),
            None => {
                let items = VecDeque::from([(requester, item)]);
                self.buckets.push_back(Bucket { verb, object, items });
            }
        }
    }

    /// Queues a call that is complete as it is.
    pub(super) fn call(&mut self, call: SaiCall, context: Context) {
        self.calls.push_back((call, context));
    }

    /// The next call of the buckets.
    fn next_of_buckets(&mut self, bulk_size: usize) -> Option<(SaiCall, Context)> {
        let bucket = self.buckets.front_mut()?;
        let (verb, object) = (bucket.verb, bucket.object);
        // Of these, SAI has no bulk.
        let single =
            matches!(object, ObjectType::Port | ObjectType::VirtualRouter | ObjectType::RouterInterface);
        let count = bucket.items.len().min(if single { 1 } else { bulk_size });
        let requested: Vec<(Requester, Item)> = bucket.items.drain(..count).collect();
        if bucket.items.is_empty() {
            self.buckets.pop_front();
        }
        let call = match requested.as_slice() {
            [(_, item)] if object != ObjectType::NextHopGroupMember => {
                SaiCall::One { verb, object, item: item.clone() }
            }
            _ => {
                let items = requested.iter().map(|(_, item)| item.clone()).collect();
                let mode = match object {
                    ObjectType::NextHopGroupMember => ErrorMode::StopOnError,
                    _ => ErrorMode::IgnoreError,
                };
                SaiCall::Bulk { verb, object, items, mode }
            }
        };
        Some((call, Context::Objects(verb, object, requested)))
    }
}

impl Orch {
    /// Sends what may be in flight: first what was queued, then objects, then routes as they stand now.
    pub(super) fn send(&mut self, out: &mut OrchOut) {
        while !self.requests.broken && self.requests.in_flight.len() < self.config.window.max(1) {
            let bulk_size = self.config.bulk_size.max(1);
            let next = self.requests.calls.pop_front();
            let Some((call, context)) = next.or_else(|| self.requests.next_of_buckets(bulk_size)) else {
                let more = self.boot_next(out) || (self.ready() && self.gather_routes(bulk_size, out));
                if more {
                    continue;
                }
                return;
            };
            let id = self.requests.next_id;
            self.requests.next_id += 1;
            self.requests.in_flight.insert(id, context);
            out.requests.push(SaiRequest { id, call });
        }
    }

    pub(super) fn take_reply(&mut self, mut reply: SaiReply, out: &mut OrchOut) {
        let Some(context) = self.requests.in_flight.remove(&reply.id) else { return };
        match context {
            Context::Boot(port) => self.boot_reply(port, reply, out),
            Context::Crm => self.crm_reply(reply),
            Context::Available(object) => self.available_reply(object, reply),
            Context::Objects(verb, object, requested) => {
                if requested.len() == 1 && reply.statuses.is_empty() {
                    reply.statuses.push(reply.status);
                }
                if !self.statuses_fit(&reply, requested.len(), out) {
                    return;
                }
                for ((requester, item), status) in requested.into_iter().zip(reply.statuses) {
                    self.object_reply(verb, object, requester, item, status, out);
                }
            }
            Context::Routes(routes) => {
                let entries: usize = routes.iter().map(|(_, count)| usize::from(*count)).sum();
                if !self.statuses_fit(&reply, entries, out) {
                    return;
                }
                let mut rest = &reply.statuses[..];
                for routes in routes.chunks(PREFETCH_BATCH) {
                    self.routes.table.prefetch_tasks(routes.iter().map(|(id, _)| *id));
                    for (id, count) in routes {
                        let (of_route, after) = rest.split_at(usize::from(*count));
                        rest = after;
                        self.route_reply(*id, of_route, out);
                    }
                }
            }
        }
    }

    /// A reply that does not say what became of each object leaves no way to know what the chip has.
    fn statuses_fit(&mut self, reply: &SaiReply, requested: usize, out: &mut OrchOut) -> bool {
        if reply.statuses.len() == requested {
            return true;
        }
        self.requests.broken = true;
        out.events.push(OrchEvent::Fatal(format!(
            "syncd answered {} with {} statuses for {requested} objects; start orchagent again",
            reply.status.name(),
            reply.statuses.len()
        )));
        false
    }

    fn object_reply(
        &mut self,
        verb: Verb,
        object: ObjectType,
        requester: Requester,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        match requester {
            Requester::Port(name) => self.port_reply(&name, verb, item, status, out),
            Requester::Vrf(id) => self.vrf_reply(id, verb, item, status, out),
            Requester::Interface(id) => self.interface_reply(id, verb, item, status, out),
            Requester::Neighbor(id) => self.neighbor_reply(id, verb, object, item, status, out),
            Requester::Group(id) => self.group_reply(id, verb, item, status, out),
            Requester::Member(group, hop) => self.member_reply(group, hop, verb, item, status, out),
        }
    }
}

/// What a status means for the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It is as asked.
    Done,
    /// A table of the chip is full, or the object is in use: try again when something is freed.
    TableFull,
    /// It was left out because of another: ask again.
    Again,
    /// It is there already.
    Exists,
    /// It is not there.
    Missing,
    /// Given up.
    Failed,
}

/// SONiC's classes of failures, except that "exists" and "missing" are told from success.
pub(super) fn outcome(verb: Verb, status: Status) -> Outcome {
    use Status::*;
    match (verb, status) {
        (_, Success) => Outcome::Done,
        (_, NotExecuted) => Outcome::Again,
        (Verb::Create, ItemAlreadyExists) => Outcome::Exists,
        (Verb::Remove, ItemNotFound | AddrNotFound | InvalidObjectId) => Outcome::Done,
        (Verb::Remove, ObjectInUse) => Outcome::TableFull,
        (Verb::Set, ItemNotFound | AddrNotFound) => Outcome::Missing,
        (Verb::Create, ItemNotFound | AddrNotFound | ObjectInUse) => Outcome::Done,
        (Verb::Create | Verb::Set, InsufficientResources | TableFull | NoMemory | NvStorageFull) => {
            Outcome::TableFull
        }
        _ => Outcome::Failed,
    }
}
