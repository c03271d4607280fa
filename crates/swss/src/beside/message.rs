//! The text of requests and replies that pass: what of it is read, and what stays opaque.
//!
//! A message keeps its text from carrier to carrier. Over Redis it is a key, a value and an
//! operation with a letter; over ZeroMQ one array of the same strings (sonic-sairedis,
//! `lib/ZeroMQChannel.cpp`, `meta/ZeroMQSelectableChannel.cpp`).

use crate::json;
use crate::sai::text::Message;
use crate::sai::{Oid, Status};
use std::borrow::Cow;

/// The operation of a reply to requests that are no query.
pub(super) const REPLY_OP: &str = "Sgetresponse";
/// The operation of a step of a view and of its reply.
pub(super) const NOTIFY_OP: &str = "Snotify";

/// Names and values, as they came.
pub(super) type Fields = Vec<(String, String)>;

/// The message of a ZeroMQ text; `None` when the text is no array that begins with two strings.
/// [`Message::to_zmq`] gives the same text again.
pub fn from_zmq(text: &str) -> Option<Message> {
    let (key, rest) = first_string(text.strip_prefix('[')?)?;
    let (op, rest) = first_string(rest.strip_prefix(',')?)?;
    // A remove has its own letter and value in the queue of Redis (sonic-swss-common,
    // `producertable.cpp`).
    let removes = op == "remove";
    let value = match rest {
        "]" if removes => "{}".to_owned(),
        "]" => "[]".to_owned(),
        rest => format!("[{}", rest.strip_prefix(',')?),
    };
    let letter = if removes { 'D' } else { 'S' };
    Some(Message { key: key.into_owned(), value, op: format!("{letter}{op}").into() })
}

/// The string at the start of `text`, and the text after it.
fn first_string(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut escaped = false;
    let end = text.bytes().enumerate().skip(1).find_map(|(at, byte)| match byte {
        _ if escaped => {
            escaped = false;
            None
        }
        b'\\' => {
            escaped = true;
            None
        }
        b'"' => Some(at + 1),
        _ => None,
    })?;
    let (quoted, rest) = text.split_at_checked(end)?;
    let string = json::read_strings(&format!("[{quoted}]"))?.pop()?.into_owned();
    Some((string.into(), rest))
}

/// The operation without its letter.
pub(super) fn operation(message: &Message) -> &str {
    message.op.strip_prefix(['S', 'D']).unwrap_or(&message.op)
}

/// The type of a request's key, such as `SAI_OBJECT_TYPE_NEXT_HOP`, and what follows it: the id of
/// the object, or the number of objects of a bulk.
pub(super) fn object_of(message: &Message) -> Option<(&str, &str)> {
    let (name, rest) = message.key.split_once(':')?;
    Some((name.strip_prefix("SAI_OBJECT_TYPE_")?, rest))
}

/// The fields of a message; none when it has none, or when they are not pairs of strings.
pub(super) fn fields(message: &Message) -> Fields {
    pairs(&message.value)
}

fn pairs(value: &str) -> Fields {
    let strings = json::read_strings(value).unwrap_or_default();
    strings.chunks_exact(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect()
}

/// The objects of a request, each with its attributes: one, or those of a bulk.
pub(super) fn objects(message: &Message) -> Vec<(String, Fields)> {
    let Some((_, id)) = object_of(message) else { return Vec::new() };
    if !operation(message).starts_with("bulk") {
        return vec![(id.to_owned(), fields(message))];
    }
    let split = |joined: &str| {
        let parts = joined.split('|').filter_map(|part| part.split_once('='));
        parts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    fields(message).into_iter().map(|(id, joined)| (id, split(&joined))).collect()
}

/// A request about one object.
pub(super) fn request(op: &'static str, object: &str, id: &str, fields: &Fields) -> Message {
    let value = match op {
        "Dremove" => "{}".to_owned(),
        _ => array(fields.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()])),
    };
    Message { key: format!("SAI_OBJECT_TYPE_{object}:{id}"), value, op: op.into() }
}

/// A bulk of these objects, with their attributes joined as in a bulk.
pub(super) fn bulk(op: &'static str, object: &str, items: &[(String, String)]) -> Message {
    let value = array(items.iter().flat_map(|(id, joined)| [id.as_str(), joined.as_str()]));
    Message { key: format!("SAI_OBJECT_TYPE_{object}:{}", items.len()), value, op: op.into() }
}

fn array<'a>(strings: impl Iterator<Item = &'a str>) -> String {
    let mut value = String::new();
    json::write_strings(strings, &mut value);
    value
}

/// The attributes of an object, as a bulk has them.
pub(super) fn joined(fields: &Fields) -> String {
    let parts: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    parts.join("|")
}

/// The reply to a request, with a status for each object of a bulk.
pub(super) fn reply(message: &Message, statuses: &[Status]) -> Message {
    let all = statuses.iter().copied().find(|status| !status.is_success());
    let is_bulk = operation(message).starts_with("bulk");
    // SONiC's syncd replies FAILURE to a bulk of which one entry failed.
    let status = match all {
        None => Status::Success,
        Some(_) if is_bulk => Status::Failure,
        Some(status) => status,
    };
    let each = if is_bulk { statuses } else { &[] };
    let names: Vec<_> = each.iter().map(|status| status.name()).collect();
    let value = array(names.iter().flat_map(|name| [name, ""]));
    Message { key: status.name().into(), value, op: REPLY_OP.into() }
}

/// The statuses of a reply to a request about `count` objects. An object without one has that of
/// the whole reply, but success.
pub(super) fn statuses(reply: &Message, count: usize) -> Vec<Status> {
    let whole = Status::from_name(&reply.key);
    let each: Vec<Status> = pairs(&reply.value)
        .iter()
        .filter(|(name, _)| name.starts_with("SAI_STATUS_"))
        .map(|(name, _)| Status::from_name(name))
        .collect();
    let rest = match (whole, each.len()) {
        (Status::Success, given) if given > 0 && given < count => Status::Failure,
        (whole, _) => whole,
    };
    each.into_iter().chain(std::iter::repeat(rest)).take(count).collect()
}

/// The value of a field as an object id.
pub(super) fn oid(fields: &Fields, name: &str) -> Option<Oid> {
    value(fields, name).and_then(crate::sai::text::read_oid)
}

/// The value of a field.
pub(super) fn value<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zmq_text_passes_unchanged() {
        for text in [
            r#"["INIT_VIEW","notify"]"#,
            r#"["SAI_OBJECT_TYPE_NEXT_HOP:oid:0x4","remove"]"#,
            r#"["SAI_OBJECT_TYPE_ROUTE_ENTRY:{\"dest\":\"::/0\"}","create","A","b|c\\\"\u0001"]"#,
            r#"["SAI_STATUS_SUCCESS","getresponse","SAI_STATUS_SUCCESS",""]"#,
        ] {
            assert_eq!(from_zmq(text).unwrap().to_zmq(), text);
        }
        for text in ["", "[", "[]", r#"["a"]"#, r#"["a","b"#, r#"["a","b"x]"#, r#"["a" "b"]"#, "{}"] {
            assert!(from_zmq(text).is_none(), "{text}");
        }
    }

    #[test]
    fn reply_without_a_status_for_each_object_is_no_success() {
        let message =
            |key: &str, value: &str| Message { key: key.into(), value: value.into(), op: REPLY_OP.into() };
        let short = message("SAI_STATUS_SUCCESS", r#"["SAI_STATUS_SUCCESS",""]"#);
        assert_eq!(statuses(&short, 2), [Status::Success, Status::Failure]);
        assert_eq!(statuses(&message("SAI_STATUS_SUCCESS", "[]"), 1), [Status::Success]);
        assert_eq!(statuses(&message("SAI_STATUS_TABLE_FULL", "[]"), 2), [Status::TableFull; 2]);
    }
}
