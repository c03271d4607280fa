//! The binary encoding of route bulks and their replies between ribtide's orchagent and syncd
//! (`docs/adr/0017-binary-route-bulks-orchagent-syncd.md`). A route takes five bytes, a hundred and
//! fifty as text.
//!
//! The first byte is a tag with which no text begins. Integers are little-endian.
//!
//! - A bulk is its tag and, for each route, what differs from the route before: flags, the virtual
//!   router, the target object, and the prefix.
//! - A reply is its tag, the outcome, and the outcome of each object, a byte each.
//!
//! All other messages are [`text`]: [`write_bulk`] and [`write_reply`] return `false` for them.
//!
//! [`text`]: super::text

use super::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, RouteEntry, SWITCH, SaiCall, SaiReply,
    SaiRequest, Status, Verb,
};
use crate::row::{pack_prefix, unpack_prefix};
use ribtide_prefix::AnyPrefix;

/// The tags of bulks.
const BULKS: [(u8, Verb); 3] = [(1, Verb::Create), (2, Verb::Set), (3, Verb::Remove)];
/// The tag of a reply.
const REPLY: u8 = 4;

/// Flags of a route: its virtual router, or its target, differs from that of the route before.
/// Other bits belong to the caller.
const ROUTER: u8 = 1;
const NEXT_HOP: u8 = 2;

/// The object ids of the previous route of a bulk. Encoder and decoder each keep one.
#[derive(Default, Debug)]
pub(crate) struct Before {
    router: Oid,
    next_hop: Oid,
}

impl Before {
    /// Appends a route: flags, what differs, and the prefix. `to`: the target, if the verb has one.
    pub(crate) fn write(
        &mut self,
        flags: u8,
        (vr, dest): (Oid, AnyPrefix),
        to: Option<Oid>,
        out: &mut Vec<u8>,
    ) {
        let head = out.len();
        out.push(flags);
        let to = to.unwrap_or(self.next_hop);
        for (flag, number, before) in [(ROUTER, vr, &mut self.router), (NEXT_HOP, to, &mut self.next_hop)] {
            if *before != number {
                *before = number;
                out[head] |= flag;
                out.extend_from_slice(&number.0.to_le_bytes());
            }
        }
        pack_prefix(dest, out);
    }

    /// Reads a route at the start of `bytes` and moves `bytes` behind it. Returns its target, too.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Option<(RouteEntry, Oid)> {
        let (&head, mut rest) = bytes.split_first()?;
        for (flag, number) in [(ROUTER, &mut self.router), (NEXT_HOP, &mut self.next_hop)] {
            if head & flag != 0 {
                let (eight, behind) = rest.split_first_chunk()?;
                (*number, rest) = (Oid(u64::from_le_bytes(*eight)), behind);
            }
        }
        let dest = unpack_prefix(&mut rest)?;
        *bytes = rest;
        Some((RouteEntry { switch: SWITCH, vr: self.router, dest }, self.next_hop))
    }
}

/// The bytes are not in this encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedBinary;

/// Encodes a bulk that creates, sets or removes routes with one target each. Returns `false`, and
/// writes nothing, for any other request.
pub fn write_bulk(request: &SaiRequest, out: &mut Vec<u8>) -> bool {
    let SaiCall::Bulk { verb, object: ObjectType::RouteEntry, items, .. } = &request.call else {
        return false;
    };
    let begin = out.len();
    out.extend(BULKS.iter().filter(|(_, of)| of == verb).map(|(mark, _)| mark));
    let mut before = Before::default();
    for item in items {
        let next_hop = match (verb, item.attrs.as_slice()) {
            (Verb::Create | Verb::Set, [Attr::RouteNextHop(to)]) => Some(*to),
            (Verb::Remove, []) => None,
            _ => {
                out.truncate(begin);
                return false;
            }
        };
        let ObjectId::Route(RouteEntry { switch: SWITCH, vr, dest }) = item.id else {
            out.truncate(begin);
            return false;
        };
        before.write(0, (vr, dest), next_hop, out);
    }
    true
}

/// Decodes a bulk; `None` for text.
///
/// # Errors
/// [`MalformedBinary`] when the tag is that of a bulk and the rest is invalid.
pub fn read_bulk(id: u64, message: &[u8]) -> Option<Result<SaiRequest, MalformedBinary>> {
    let (mark, routes) = message.split_first()?;
    let verb = BULKS.iter().find(|(of, _)| of == mark)?.1;
    let items = read_routes(verb, routes).ok_or(MalformedBinary);
    Some(items.map(|items| {
        let (object, mode) = (ObjectType::RouteEntry, ErrorMode::IgnoreError);
        SaiRequest { id, call: SaiCall::Bulk { verb, object, items, mode } }
    }))
}

fn read_routes(verb: Verb, mut bytes: &[u8]) -> Option<Vec<Item>> {
    /// The smallest encoded route: flags, length, and eight bits of its address.
    const LEAST: usize = 3;
    let mut items = Vec::with_capacity(bytes.len() / LEAST);
    let mut before = Before::default();
    while !bytes.is_empty() {
        let (route, to) = before.read(&mut bytes)?;
        let attrs = match verb {
            Verb::Create | Verb::Set => Attrs::from_iter([Attr::RouteNextHop(to)]),
            Verb::Remove => Attrs::new(),
        };
        items.push(Item { id: route.into(), attrs });
    }
    Some(items)
}

/// Encodes a reply without values. Returns `false`, and writes nothing, for one with values, or with a status
/// outside of one byte, such as a vendor's.
pub fn write_reply(reply: &SaiReply, out: &mut Vec<u8>) -> bool {
    if !reply.values.is_empty() {
        return false;
    }
    let begin = out.len();
    out.push(REPLY);
    for status in [reply.status].iter().chain(&reply.statuses) {
        let Ok(code) = i8::try_from(status.code()) else {
            out.truncate(begin);
            return false;
        };
        out.push(code as u8);
    }
    true
}

/// Decodes the reply to request `id`; `None` for text.
///
/// # Errors
/// [`MalformedBinary`] when the tag is that of a reply and the rest is invalid.
pub fn read_reply(id: u64, message: &[u8]) -> Option<Result<SaiReply, MalformedBinary>> {
    let outcomes = message.strip_prefix(&[REPLY])?;
    let mut outcomes = outcomes.iter().map(|code| Status::from_code((*code as i8).into()));
    Some(outcomes.next().ok_or(MalformedBinary).map(|status| SaiReply {
        id,
        status,
        statuses: outcomes.collect(),
        values: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::PacketAction;
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::Prefix;

    fn bulk(verb: Verb, items: Vec<Item>) -> SaiRequest {
        let (object, mode) = (ObjectType::RouteEntry, ErrorMode::IgnoreError);
        SaiRequest { id: 7, call: SaiCall::Bulk { verb, object, items, mode } }
    }

    fn item() -> impl Strategy<Value = (Oid, Oid, AnyPrefix)> {
        let prefix = prop_oneof![
            (any::<u32>(), 0..=32u8).prop_map(|(bits, len)| AnyPrefix::V4(Prefix::new(bits, len))),
            (any::<[u8; 16]>(), 0..=128u8).prop_map(|(bits, len)| AnyPrefix::V6(Prefix::new(bits, len))),
        ];
        (0..3u64, 0..3u64, prefix).prop_map(|(vr, to, dest)| (Oid(vr), Oid(to << 40), dest))
    }

    proptest! {
        #[test]
        fn a_bulk_is_read_as_it_was_written(
            routes in prop::collection::vec(item(), 0..40),
            verb in prop::sample::select(vec![Verb::Create, Verb::Set, Verb::Remove]),
        ) {
            let items = routes.into_iter().map(|(vr, to, dest)| {
                let next_hop = (verb != Verb::Remove).then_some(Attr::RouteNextHop(to));
                Item::new(RouteEntry { switch: SWITCH, vr, dest }, next_hop)
            });
            let (request, mut bytes) = (bulk(verb, items.collect()), Vec::new());
            prop_assert!(write_bulk(&request, &mut bytes));
            prop_assert_eq!(read_bulk(7, &bytes), Some(Ok(request)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (read_bulk(0, &bytes), read_reply(0, &bytes));
        }
    }

    fn route(dest: &str, attrs: Vec<Attr>) -> Item {
        Item::new(RouteEntry { switch: SWITCH, vr: Oid(34), dest: dest.parse().unwrap() }, attrs)
    }

    #[test]
    fn a_route_takes_five_bytes_and_a_cut_bulk_is_refused() {
        let forwards = |n| route(&format!("10.0.{n}.0/24"), vec![Attr::RouteNextHop(Oid(9))]);
        let mut bytes = Vec::new();
        assert!(write_bulk(&bulk(Verb::Create, (0..100).map(forwards).collect()), &mut bytes));
        assert_eq!(bytes.len(), 1 + 16 + 100 * 5);
        for len in 1..bytes.len() {
            let whole = len == 1 || len >= 22 && (len - 22) % 5 == 0;
            assert_eq!(read_bulk(0, &bytes[..len]).unwrap().is_ok(), whole, "{len}");
        }
        assert_eq!(read_bulk(0, br#"["SAI_OBJECT_TYPE_ROUTE_ENTRY:1"]"#), None);
        assert_eq!(read_bulk(0, &[]), None);
    }

    #[test]
    fn what_is_not_of_this_form_is_left_to_text() {
        let drops = route("10.0.0.0/8", vec![Attr::RoutePacketAction(PacketAction::Drop)]);
        let forwards = route("10.1.0.0/16", vec![Attr::RouteNextHop(Oid(9))]);
        let elsewhere = RouteEntry { switch: Oid(1), vr: Oid(34), dest: "10.0.0.0/8".parse().unwrap() };
        let mut bytes = vec![9];
        for request in [
            bulk(Verb::Create, vec![forwards.clone(), drops]),
            bulk(Verb::Create, vec![forwards.clone(), Item::bare(elsewhere)]),
            bulk(Verb::Remove, vec![Item::bare(elsewhere)]),
            SaiRequest {
                id: 7,
                call: SaiCall::One { verb: Verb::Create, object: ObjectType::RouteEntry, item: forwards },
            },
        ] {
            assert!(!write_bulk(&request, &mut bytes), "{request:?}");
            assert_eq!(bytes, [9]);
        }
        let values = SaiReply { values: vec![Attr::ObjectCount(3)], ..SaiReply::one(7, Status::Success) };
        assert!(!write_reply(&values, &mut bytes));
    }

    #[test]
    fn every_outcome_is_read_as_it_was_written() {
        let all: Vec<Status> = (-24..=0).map(Status::from_code).collect();
        for reply in [SaiReply::one(7, Status::TableFull), SaiReply::bulk(7, all)] {
            let mut bytes = Vec::new();
            assert!(write_reply(&reply, &mut bytes));
            assert_eq!(bytes.len(), 2 + reply.statuses.len());
            assert_eq!(read_reply(7, &bytes), Some(Ok(reply)));
        }
        assert_eq!(read_reply(7, &[REPLY]), Some(Err(MalformedBinary)));
        // A status outside of one byte goes as text.
        let mut bytes = vec![9];
        let wide = Status::from_code(-0x50001);
        for reply in [SaiReply::one(7, wide), SaiReply::bulk(7, vec![Status::Success, wide])] {
            assert!(!write_reply(&reply, &mut bytes));
            assert_eq!(bytes, [9]);
        }
        assert_eq!(read_reply(7, b"[]"), None);
    }
}
