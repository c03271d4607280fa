//! syncd as a chip: the requests of a client become those of the trait. Object ids are VIDs, which the client gives.

use ribtide_swss::sai::notification::PortState;
use ribtide_swss::sai::text::{self, ReplyTo};
use ribtide_swss::sai::{
    Attr, EntryItem, ErrorMode, Item, ObjectId, ObjectType, Oid, Query, QueryReply, RawText, SWITCH, Sai,
    SaiCall, SaiReply, SaiRequest, Status, Verb, View,
};

/// The first index of the client's VIDs: those that syncd takes for the objects of the chip's own are below.
const FIRST: u64 = 0x100_0000;

/// syncd behind `call`, which carries a request out.
pub(crate) struct Wire<F> {
    call: F,
    next: u64,
}

impl<F: FnMut(SaiCall) -> SaiReply> Wire<F> {
    pub(crate) fn new(call: F) -> Wire<F> {
        Wire { call, next: FIRST }
    }
}

/// Carries a request out by its text, as over Redis, and reads the text of the reply.
pub(crate) fn by_text(call: SaiCall, mut execute: impl FnMut(SaiRequest) -> SaiReply) -> SaiReply {
    let reply_to = ReplyTo::to(&call);
    let message = text::write_request(&SaiRequest { id: 7, call });
    let request = text::read_request(7, &message.key, &message.value, &message.op);
    let reply = execute(request.unwrap_or_else(|e| panic!("{message:?}: {e}")));
    let message = text::write_reply(&reply, reply_to);
    text::read_reply(7, &message.key, &message.value, &message.op)
        .unwrap_or_else(|e| panic!("{message:?}: {e}"))
}

impl<F: FnMut(SaiCall) -> SaiReply> Sai for Wire<F> {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        let starts = (verb, object) == (Verb::Create, ObjectType::Switch) && self.next == FIRST;
        if starts {
            assert!((self.call)(SaiCall::View(View::Init)).status.is_success());
        }
        let mut requested = items.to_vec();
        if verb == Verb::Create {
            for item in &mut requested {
                if let ObjectId::Oid(oid) = &mut item.id {
                    *oid = if object == ObjectType::Switch { SWITCH } else { Oid::vid(object, self.next) };
                    self.next += 1;
                }
            }
        }
        let ids: Vec<ObjectId> = requested.iter().map(|item| item.id).collect();
        let one = requested.len() == 1;
        let call = match requested.pop() {
            Some(item) if one => SaiCall::One { verb, object, item },
            last => {
                requested.extend(last);
                SaiCall::Bulk { verb, object, items: requested, mode }
            }
        };
        let reply = (self.call)(call);
        let of_each = if one { vec![reply.status] } else { reply.statuses };
        for ((item, id), status) in items.iter_mut().zip(ids).zip(&of_each) {
            if verb == Verb::Create && status.is_success() {
                item.id = id;
            }
        }
        statuses.extend(of_each);
        if starts {
            assert!((self.call)(SaiCall::View(View::Apply)).status.is_success());
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        let reply = (self.call)(SaiCall::Get { object, id: *id, attrs: attrs.to_vec() });
        take_values(reply, attrs)
    }

    fn port_states(&mut self) -> Vec<PortState> {
        Vec::new()
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        let reply = (self.call)(SaiCall::Available { object, attrs: attrs.iter().cloned().collect() });
        match (reply.status, &reply.values[..]) {
            (Status::Success, [Attr::ObjectCount(count)]) => Ok(*count),
            (status, _) => Err(status),
        }
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        let items = vec![EntryItem { key: key.clone(), attrs: attrs.iter().cloned().collect() }];
        match (self.call)(SaiCall::Entries { verb, object, items, bulk: false }).status {
            Status::Success => Ok(()),
            status => Err(status),
        }
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        let reply = (self.call)(SaiCall::GetEntry { object, key: key.clone(), attrs: attrs.to_vec() });
        take_values(reply, attrs)
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        let reply = (self.call)(SaiCall::Query(query.clone()));
        QueryReply { status: reply.status, fields: reply.values }
    }

    fn object_type(&mut self, vid: Oid) -> Option<ObjectType> {
        vid.object_type()
    }
}

/// The values of a reply, in the places of those that were asked for.
fn take_values(reply: SaiReply, attrs: &mut [Attr]) -> Result<(), Status> {
    for (attr, value) in attrs.iter_mut().zip(reply.values) {
        assert_eq!(attr.name(), value.name());
        *attr = value;
    }
    if reply.status.is_success() { Ok(()) } else { Err(reply.status) }
}
