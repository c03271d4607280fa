//! The bulker: single operations gathered into bulks, requests in flight, and the requester of each
//! reply (`orchagent/bulker.h` of sonic-swss).

use super::ports::PortObject;
use super::routes::RouteId;
use super::verify::Asked;
use crate::row::Name;
use crate::sai::{ErrorMode, Item, ObjectType, Oid, SaiCall, SaiRequest, Status, Verb};
use ribtide_prefix::Map;
use std::collections::VecDeque;

/// The object that an operation was enqueued for; the reply goes there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Requester {
    Port(Name),
    PortObject(PortObject),
    Vrf(u32),
    Interface(u32),
    Neighbor(u32),
    Group(u32),
    /// A group, and the next hop of its member.
    Member(u32, u32),
}

/// The requesters of one SAI call.
pub(super) enum Context {
    /// The start; a port when the call reads the lanes of that port.
    Boot(Option<Oid>),
    /// A port whose link state the call reads.
    PortStatus(Name),
    /// A port whose speed the call reads.
    PortSpeed(Name),
    /// CRM, which reads attributes of the switch.
    Crm,
    /// CRM, which reads how many more objects of a type have room.
    Available(ObjectType),
    /// One requester for each object.
    Objects(Verb, ObjectType, Vec<(Requester, Item)>),
    /// Routes, each with the count of its entries in the bulk.
    Routes(Vec<(RouteId, u8)>),
    /// The comparison with syncd of this number.
    Verify(u64, Asked),
}

/// The reply to an operation on one object.
pub(super) struct ObjectReply {
    pub(super) verb: Verb,
    pub(super) object: ObjectType,
    pub(super) item: Item,
    pub(super) status: Status,
    /// The chip carried out, or refused, another operation of the same call.
    pub(super) progress: bool,
}

impl ObjectReply {
    /// What the status means for the operation.
    pub(super) fn outcome(&self) -> Outcome {
        outcome(self.verb, self.status, self.progress)
    }

    /// The object's id.
    pub(super) fn oid(&self) -> Option<Oid> {
        self.item.id.oid()
    }
}

/// Enqueued operations of one verb and object type. They are independent of each other: each was
/// enqueued after all its dependencies were confirmed.
struct Bucket {
    verb: Verb,
    object: ObjectType,
    items: VecDeque<(Requester, Item)>,
}

/// Operations and calls that wait, and requests in flight.
#[derive(Default)]
pub(super) struct Bulker {
    /// How many requests were sent. The number of a request is the count with it, so it begins with
    /// 1.
    sent: u64,
    in_flight: Map<u64, Context>,
    /// Operations on all objects but routes: these go first.
    buckets: VecDeque<Bucket>,
    /// Complete calls, in order.
    calls: VecDeque<(SaiCall, Context)>,
    stopped: bool,
}

impl Bulker {
    /// Whether no request is in flight and none waits.
    pub(super) fn idle(&self) -> bool {
        self.in_flight.is_empty() && self.buckets.is_empty() && self.calls.is_empty()
    }

    /// Stops for good: the state of the chip is not known any more.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether a request may be sent while at most `window` are in flight.
    pub(super) fn may_send(&self, window: usize) -> bool {
        !self.stopped && self.in_flight.len() < window.max(1)
    }

    /// The next request: first complete calls, then buckets, in bulks of at most `bulk_size`
    /// objects.
    pub(super) fn next(&mut self, bulk_size: usize) -> Option<SaiRequest> {
        let next = self.calls.pop_front().or_else(|| self.next_of_buckets(bulk_size))?;
        Some(self.request(next))
    }

    /// The next request of complete calls alone.
    pub(super) fn next_call(&mut self) -> Option<SaiRequest> {
        let next = self.calls.pop_front()?;
        Some(self.request(next))
    }

    fn request(&mut self, (call, context): (SaiCall, Context)) -> SaiRequest {
        self.sent += 1;
        self.in_flight.insert(self.sent, context);
        SaiRequest { id: self.sent, call }
    }

    /// Whether every complete call has its reply.
    pub(super) fn calls_done(&self) -> bool {
        self.in_flight.is_empty() && self.calls.is_empty()
    }

    /// Takes the requesters of a request in flight. `None`: no such request is in flight.
    pub(super) fn replied(&mut self, id: u64) -> Option<Context> {
        self.in_flight.remove(&id)
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

    /// Enqueues a complete call.
    pub(super) fn call(&mut self, call: SaiCall, context: Context) {
        self.calls.push_back((call, context));
    }

    /// The next call of the oldest bucket.
    fn next_of_buckets(&mut self, bulk_size: usize) -> Option<(SaiCall, Context)> {
        let bucket = self.buckets.front_mut()?;
        let (verb, object) = (bucket.verb, bucket.object);
        let count = bucket.items.len().min(if is_single(object) { 1 } else { bulk_size });
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

/// Whether requests have one object of this type: these are few, and not every SAI has bulk calls for
/// them.
pub(super) fn is_single(object: ObjectType) -> bool {
    matches!(
        object,
        ObjectType::Port
            | ObjectType::Lag
            | ObjectType::LagMember
            | ObjectType::Vlan
            | ObjectType::BridgePort
            | ObjectType::VlanMember
            | ObjectType::Hostif
            | ObjectType::VirtualRouter
            | ObjectType::RouterInterface
    )
}

/// What a status means for an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The object is as requested.
    Done,
    /// A table of the chip is full, or the object is in use: retry when an object leaves the chip,
    /// or after the first pause.
    TableFull,
    /// The chip skipped it because of another entry: request it again.
    Again,
    /// The object exists already.
    Exists,
    /// The object does not exist.
    Missing,
    /// The chip refused it: retry after a pause.
    Failed,
}

/// Whether the chip carried out or refused an operation of a call. Operations that it skipped are
/// requested again at once only then: it may skip the same ones for ever.
pub(super) fn has_progress(statuses: &[Status]) -> bool {
    statuses.iter().any(|status| *status != Status::NotExecuted)
}

/// The outcome of a status in a call with [`has_progress`], by the classes of `handleSaiCreateStatus`, `handleSaiSetStatus` and
/// `handleSaiRemoveStatus` (`orchagent/saihelper.cpp`). SONiC counts "exists" and "missing" as
/// success; here they are outcomes of their own.
pub(super) fn outcome(verb: Verb, status: Status, progress: bool) -> Outcome {
    use Status as S;
    match (verb, status) {
        (_, S::Success) => Outcome::Done,
        (_, S::NotExecuted) if progress => Outcome::Again,
        (Verb::Create, S::ItemAlreadyExists) => Outcome::Exists,
        (Verb::Remove, S::ItemNotFound | S::AddrNotFound | S::InvalidObjectId) => Outcome::Done,
        (Verb::Remove, S::ObjectInUse) => Outcome::TableFull,
        (Verb::Set, S::ItemNotFound | S::AddrNotFound) => Outcome::Missing,
        (
            Verb::Create | Verb::Set,
            S::InsufficientResources | S::TableFull | S::NoMemory | S::NvStorageFull,
        ) => Outcome::TableFull,
        _ => Outcome::Failed,
    }
}
