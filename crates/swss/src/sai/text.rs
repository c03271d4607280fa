//! Requests, replies and objects as text, byte for byte as in libsairedis and syncd (sonic-sairedis
//! `lib/RedisChannel.cpp`, `meta/sai_serialize.cpp`).
//!
//! Over Redis a message is three list elements: key, value (a JSON array of alternating fields and
//! values), and an operation with a one-letter prefix. Over ZeroMQ it is one array: key, operation
//! without prefix, fields and values.

use super::attr::Value;
use super::{
    Attr, Attrs, CounterOp, CountersMode, EntryItem, ErrorMode, InsegEntry, Item, NeighborEntry, ObjectId,
    ObjectType, Oid, Query, RawText, RouteEntry, SWITCH, SaiCall, SaiReply, SaiRequest, Status, Verb, View,
};
use crate::format;
use crate::json;
use crate::row::{FILLER, Name};
use ribtide_prefix::AnyPrefix;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The separator between the objects and the attributes of a bulk.
const BULK_SEPARATOR: char = '|';
const NOTIFY: &str = "notify";
const AVAILABILITY_QUERY: &str = "object_type_get_availability_query";
const ATTRIBUTE_CAPABILITY_QUERY: &str = "attribute_capability_query";
const ENUM_VALUES_QUERY: &str = "attr_enum_values_capability_query";
const STATS_QUERY: &str = "stats_capability_query";
const STATS_ST_QUERY: &str = "stats_st_capability_query";
const GET_STATS: &str = "get_stats";
const CLEAR_STATS: &str = "clear_stats";
const FLUSH: &str = "flush";
/// The field after the attributes of an availability query.
const OBJECT_TYPE: &str = "OBJECT_TYPE";
const ATTR_ID: &str = "ATTR_ID";
const LIST_SIZE: &str = "LIST_SIZE";
/// Operations on the counters that syncd polls.
const COUNTER_OPS: [(&str, CounterOp); 4] = [
    ("start_poll", CounterOp::StartPoll),
    ("stop_poll", CounterOp::StopPoll),
    ("set_counter_group", CounterOp::SetGroup),
    ("del_counter_group", CounterOp::DelGroup),
];

/// The kind of request, which decides the operation of its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// All other requests.
    Request,
    /// A step of the view.
    View,
    /// An availability query.
    Availability,
    /// A query whether an attribute can be created, set and read.
    AttributeCapability,
    /// A query for the values of an enumeration.
    EnumValues,
    /// A query for the counters of a type.
    Stats,
    /// The same with the intervals of polling.
    StreamedStats,
    /// A flush of the FDB.
    Flush,
}

impl ReplyTo {
    const ALL: [ReplyTo; 8] = [
        ReplyTo::Request,
        ReplyTo::View,
        ReplyTo::Availability,
        ReplyTo::AttributeCapability,
        ReplyTo::EnumValues,
        ReplyTo::Stats,
        ReplyTo::StreamedStats,
        ReplyTo::Flush,
    ];

    /// The kind of `call`.
    pub fn to(call: &SaiCall) -> ReplyTo {
        match call {
            SaiCall::One { .. }
            | SaiCall::Bulk { .. }
            | SaiCall::Get { .. }
            | SaiCall::BulkGet { .. }
            | SaiCall::Entries { .. }
            | SaiCall::GetEntry { .. } => ReplyTo::Request,
            SaiCall::Query(query) => match query {
                Query::AttributeCapability { .. } => ReplyTo::AttributeCapability,
                Query::EnumValues { .. } => ReplyTo::EnumValues,
                Query::Stats { streamed: false, .. } => ReplyTo::Stats,
                Query::Stats { streamed: true, .. } => ReplyTo::StreamedStats,
                Query::FlushFdb { .. } => ReplyTo::Flush,
                Query::Counters { .. } | Query::Poll { .. } => ReplyTo::Request,
            },
            SaiCall::View(_) => ReplyTo::View,
            SaiCall::Available { .. } => ReplyTo::Availability,
        }
    }

    /// The operation of the reply, with its letter.
    fn op(self) -> &'static str {
        match self {
            ReplyTo::Request => "Sgetresponse",
            ReplyTo::View => "Snotify",
            ReplyTo::Availability => "Sobject_type_get_availability_response",
            ReplyTo::AttributeCapability => "Sattribute_capability_response",
            ReplyTo::EnumValues => "Sattr_enum_values_capability_response",
            ReplyTo::Stats => "Sstats_capability_response",
            ReplyTo::StreamedStats => "Sstats_st_capability_response",
            ReplyTo::Flush => "Sflushresponse",
        }
    }
}

/// Why a message is not a request or a reply. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError(String);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextError {}

fn bad<T>(what: impl Into<String>) -> Result<T, TextError> {
    Err(error(what))
}

/// An error with this sentence.
pub(super) fn error(what: impl Into<String>) -> TextError {
    TextError(what.into())
}

/// A message between orchagent and syncd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// `TYPE:ID`, `TYPE:COUNT`, a view's name, or a reply's status.
    pub key: String,
    /// A JSON array of alternating fields and values, or `{}`.
    pub value: String,
    /// The operation with the letter of the Redis queue: `Screate`, `Dremove`, `Sgetresponse`.
    pub op: Cow<'static, str>,
}

impl Message {
    fn new(key: String, value: String, op: &'static str) -> Message {
        Message { key, value, op: op.into() }
    }

    /// The form on a ZeroMQ socket: one array of key, operation without letter, fields and values.
    pub fn to_zmq(&self) -> String {
        let mut out = String::with_capacity(self.key.len() + self.value.len() + 32);
        json::write_strings([self.key.as_str(), self.op.get(1..).unwrap_or_default()].into_iter(), &mut out);
        if let Some(fields) = self.value.strip_prefix('[').filter(|fields| *fields != "]") {
            // Joins the two arrays: "[key,op]" and "[field,value,…]".
            out.pop();
            out.push(',');
            out.push_str(fields);
        }
        out
    }
}

/// Appends the text of an object id or key.
pub fn write_id(id: &ObjectId, out: &mut String) {
    match id {
        ObjectId::Oid(oid) => oid.format(out),
        ObjectId::Route(RouteEntry { switch, vr, dest }) => {
            out.push_str("{\"dest\":\"");
            format::prefix(*dest, out);
            out.push_str("\",\"switch_id\":\"");
            switch.format(out);
            out.push_str("\",\"vr\":\"");
            vr.format(out);
            out.push_str("\"}");
        }
        ObjectId::Neighbor(NeighborEntry { switch, rif, ip }) => {
            out.push_str("{\"ip\":\"");
            format::addr(*ip, out);
            out.push_str("\",\"rif\":\"");
            rif.format(out);
            out.push_str("\",\"switch_id\":\"");
            switch.format(out);
            out.push_str("\"}");
        }
        ObjectId::Inseg(InsegEntry { switch, label }) => {
            out.push_str("{\"label\":\"");
            format::decimal((*label).into(), out);
            out.push_str("\",\"switch_id\":\"");
            switch.format(out);
            out.push_str("\"}");
        }
    }
}

/// Parses a text such as `oid:0x21000000000000`.
pub fn read_oid(text: &str) -> Option<Oid> {
    Oid::read(text)
}

/// Parses the text of an object id or key.
///
/// # Errors
/// A sentence when the text does not identify an object of this type.
pub fn read_id(object: ObjectType, text: &str) -> Result<ObjectId, TextError> {
    let wrong = || TextError(format!("\"{text}\" does not identify a {}", object.name()));
    if !object.is_entry() {
        return Oid::read(text).map(ObjectId::Oid).ok_or_else(wrong);
    }
    let fields = json::read_object(text).ok_or_else(wrong)?;
    let get =
        |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value).ok_or_else(wrong);
    let oid = |name: &str| Oid::read(get(name)?).ok_or_else(wrong);
    let switch = oid("switch_id")?;
    match object {
        ObjectType::RouteEntry => {
            let dest: AnyPrefix = get("dest")?.parse().map_err(|_| wrong())?;
            Ok(ObjectId::Route(RouteEntry { switch, vr: oid("vr")?, dest }))
        }
        ObjectType::InsegEntry => {
            let label = get("label")?.parse().map_err(|_| wrong())?;
            Ok(ObjectId::Inseg(InsegEntry { switch, label }))
        }
        _ if !object.is_typed() => Err(wrong()),
        _ => {
            let ip = get("ip")?.parse().map_err(|_| wrong())?;
            Ok(ObjectId::Neighbor(NeighborEntry { switch, rif: oid("rif")?, ip }))
        }
    }
}

/// Appends the key of the row of an object in `ASIC_STATE`, without the name of the table:
/// `TYPE:ID`.
pub fn write_row_key(object: ObjectType, id: &ObjectId, out: &mut String) {
    out.push_str(object.name());
    out.push(':');
    write_id(id, out);
}

/// Parses the key of a row in `ASIC_STATE`.
///
/// # Errors
/// A sentence when the type is not one of the route path, or the rest does not identify an object.
pub fn read_row_key(key: &str) -> Result<(ObjectType, ObjectId), TextError> {
    let (object, id) = split_key(key)?;
    Ok((object, read_id(object, id)?))
}

/// Appends the key of the row of an entry whose key is not typed.
pub fn write_entry_key(object: ObjectType, key: &RawText, out: &mut String) {
    out.push_str(object.name());
    out.push(':');
    key.write(out);
}

/// Parses the key of the row of an entry whose key is not typed; `None` for other rows.
pub fn read_entry_key(key: &str) -> Option<(ObjectType, RawText)> {
    let (object, entry) = split_key(key).ok().filter(|(object, _)| has_raw_key(*object))?;
    Some((object, read_raw_key(object, entry).ok()?))
}

/// Passes the fields of the row of an object in `ASIC_STATE` to `put`.
pub fn row_fields(attrs: &[Attr], put: &mut dyn FnMut(&str, &str)) {
    if attrs.is_empty() {
        return put(FILLER.0, FILLER.1);
    }
    let mut value = String::new();
    for attr in attrs {
        value.clear();
        attr.write_value(&mut value);
        put(attr.name(), &value);
    }
}

/// Parses a field of a row; `None` for the filler of a row without attributes.
///
/// # Errors
/// A sentence when the value is not one of this attribute.
pub fn read_field(name: &str, value: &str) -> Result<Option<Attr>, TextError> {
    if (name, value) == FILLER {
        return Ok(None);
    }
    match Attr::read(name, value) {
        Some(attr) => Ok(Some(attr)),
        None => bad(format!("\"{value}\" is not a value of {name}")),
    }
}

fn split_key(key: &str) -> Result<(ObjectType, &str), TextError> {
    let Some((name, id)) = key.split_once(':') else { return bad(format!("\"{key}\" is not TYPE:ID")) };
    match ObjectType::from_name(name) {
        Some(object) => Ok((object, id)),
        None => bad(format!("{name} is not an object type of SAI")),
    }
}

fn view_name(view: View) -> &'static str {
    match view {
        View::Init => "INIT_VIEW",
        View::Apply => "APPLY_VIEW",
    }
}

/// A JSON array under construction.
struct Fields {
    out: String,
}

impl Fields {
    fn new() -> Fields {
        Fields { out: String::from("[") }
    }

    fn put(&mut self, field: &str, value: &str) {
        for text in [field, value] {
            if self.out.len() > 1 {
                self.out.push(',');
            }
            json::write_string(text, &mut self.out);
        }
    }

    fn end(mut self) -> String {
        self.out.push(']');
        self.out
    }
}

fn attr_fields(attrs: &[Attr]) -> String {
    let mut fields = Fields::new();
    row_fields(attrs, &mut |field, value| fields.put(field, value));
    fields.end()
}

/// Formats a request.
pub fn write_request(request: &SaiRequest) -> Message {
    let mut key = String::new();
    match &request.call {
        SaiCall::One { verb, object, item } => {
            write_row_key(*object, &item.id, &mut key);
            match verb {
                Verb::Create => Message::new(key, attr_fields(&item.attrs), "Screate"),
                Verb::Set => Message::new(key, attr_fields(&item.attrs), "Sset"),
                Verb::Remove => Message::new(key, "{}".into(), "Dremove"),
            }
        }
        SaiCall::Bulk { verb, object, items, .. } => {
            let _ = write!(key, "{}:{}", object.name(), items.len());
            Message::new(key, bulk_fields(*verb, items), bulk_op(*verb))
        }
        SaiCall::Get { object, id, attrs } => {
            write_row_key(*object, id, &mut key);
            Message::new(key, attr_fields(attrs), "Sget")
        }
        SaiCall::BulkGet { object, items } => {
            let _ = write!(key, "{}:{}", object.name(), items.len());
            let items = items.iter().map(|(id, attrs)| {
                let mut text = String::new();
                write_id(id, &mut text);
                (text, join(attrs))
            });
            Message::new(key, pair_fields(items), "Sbulkget")
        }
        SaiCall::Entries { verb, object, items, bulk: true } => {
            let _ = write!(key, "{}:{}", object.name(), items.len());
            let filler = |joined: String| match joined.is_empty() && *verb == Verb::Create {
                true => format!("{}={}", FILLER.0, FILLER.1),
                false => joined,
            };
            let items = items.iter().map(|item| (item.key.to_string(), filler(join(&item.attrs))));
            Message::new(key, pair_fields(items), bulk_op(*verb))
        }
        SaiCall::Entries { verb, object, items, bulk: false } => {
            let item = items.first();
            let _ = write!(key, "{}:", object.name());
            item.iter().for_each(|item| item.key.write(&mut key));
            let attrs = item.map(|item| item.attrs.as_slice()).unwrap_or_default();
            match verb {
                Verb::Create => Message::new(key, attr_fields(attrs), "Screate"),
                Verb::Set => Message::new(key, attr_fields(attrs), "Sset"),
                Verb::Remove => Message::new(key, "{}".into(), "Dremove"),
            }
        }
        SaiCall::GetEntry { object, key: entry, attrs } => {
            let _ = write!(key, "{}:{entry}", object.name());
            Message::new(key, attr_fields(attrs), "Sget")
        }
        SaiCall::Query(query) => write_query(query),
        SaiCall::Available { object, attrs } => {
            SWITCH.format(&mut key);
            let mut fields = Fields::new();
            if !attrs.is_empty() {
                row_fields(attrs, &mut |field, value| fields.put(field, value));
            }
            fields.put(OBJECT_TYPE, object.name());
            Message::new(key, fields.end(), "Sobject_type_get_availability_query")
        }
        SaiCall::View(view) => Message::new(view_name(*view).into(), Fields::new().end(), "Snotify"),
    }
}

fn bulk_op(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "Sbulkcreate",
        Verb::Set => "Sbulkset",
        Verb::Remove => "Sbulkremove",
    }
}

/// The attributes of an object of a bulk, as its value.
pub fn join(attrs: &[Attr]) -> String {
    let mut joined = String::new();
    for attr in attrs {
        if !joined.is_empty() {
            joined.push(BULK_SEPARATOR);
        }
        joined.push_str(attr.name());
        joined.push('=');
        attr.write_value(&mut joined);
    }
    joined
}

fn pair_fields(pairs: impl Iterator<Item = (String, String)>) -> String {
    let mut fields = Fields::new();
    pairs.for_each(|(field, value)| fields.put(&field, &value));
    fields.end()
}

fn write_query(query: &Query) -> Message {
    let mut key = String::new();
    SWITCH.format(&mut key);
    let mut fields = Fields::new();
    let op = match query {
        Query::AttributeCapability { object, attr } => {
            fields.put(OBJECT_TYPE, object.name());
            fields.put(ATTR_ID, attr);
            "Sattribute_capability_query"
        }
        Query::EnumValues { object, attr, room } => {
            fields.put(OBJECT_TYPE, object.name());
            fields.put(ATTR_ID, attr);
            fields.put(LIST_SIZE, &room.to_string());
            "Sattr_enum_values_capability_query"
        }
        Query::Stats { object, room, streamed } => {
            fields.put(OBJECT_TYPE, object.name());
            fields.put(LIST_SIZE, &room.to_string());
            if *streamed { "Sstats_st_capability_query" } else { "Sstats_capability_query" }
        }
        Query::Counters { object, id, counters, mode } => {
            key.clear();
            write_row_key(*object, &ObjectId::Oid(*id), &mut key);
            counters.iter().for_each(|counter| fields.put(counter, ""));
            // sairedis has no request that does both: syncd alone polls so.
            if *mode == CountersMode::Clear { "Sclear_stats" } else { "Sget_stats" }
        }
        Query::FlushFdb { attrs } => {
            key = format!("SAI_OBJECT_TYPE_FDB_FLUSH:{key}");
            return Message::new(key, attr_fields(attrs), "Sflush");
        }
        Query::Poll { op, key: group, fields: values } => {
            values.iter().for_each(|(field, value)| fields.put(field, value));
            let op = match op {
                CounterOp::StartPoll => "Sstart_poll",
                CounterOp::StopPoll => "Sstop_poll",
                CounterOp::SetGroup => "Sset_counter_group",
                CounterOp::DelGroup => "Sdel_counter_group",
            };
            return Message::new(group.to_string(), fields.end(), op);
        }
    };
    Message::new(key, fields.end(), op)
}

fn bulk_fields(verb: Verb, items: &[Item]) -> String {
    let mut fields = Fields::new();
    let (mut id, mut joined) = (String::new(), String::new());
    for item in items {
        id.clear();
        write_id(&item.id, &mut id);
        joined.clear();
        for attr in &item.attrs {
            if !joined.is_empty() {
                joined.push(BULK_SEPARATOR);
            }
            joined.push_str(attr.name());
            joined.push('=');
            attr.write_value(&mut joined);
        }
        if joined.is_empty() && verb == Verb::Create {
            joined.push_str("NULL=NULL");
        }
        fields.put(&id, &joined);
    }
    fields.end()
}

/// Parses a request from the Redis queue, with or without the letter before `op`.
///
/// # Errors
/// A sentence when the operation, the type or a value is not one of the route path.
pub fn read_request(id: u64, key: &str, value: &str, op: &str) -> Result<SaiRequest, TextError> {
    // A remove has an empty object where other operations have an array.
    let items = if value == "{}" { Some(Vec::new()) } else { json::read_strings(value) };
    let Some(items) = items.filter(|items| items.len() % 2 == 0) else {
        return bad(format!("the fields of {op} {key} are not an array of pairs"));
    };
    let pairs = || items.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1]));
    read_pairs(id, key, &mut pairs(), op.strip_prefix(['S', 'D']).unwrap_or(op))
}

/// Parses a request from a ZeroMQ socket.
///
/// # Errors
/// As [`read_request`].
pub fn read_zmq_request(id: u64, message: &str) -> Result<SaiRequest, TextError> {
    let items = json::read_strings(message);
    match items.as_deref() {
        Some([key, op, fields @ ..]) if fields.len() % 2 == 0 => {
            let mut pairs = fields.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1]));
            read_pairs(id, key, &mut pairs, op)
        }
        _ => bad("a message to syncd is not an array of a key, an operation, and pairs"),
    }
}

fn read_pairs<'a>(
    id: u64,
    key: &str,
    pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>,
    op: &str,
) -> Result<SaiRequest, TextError> {
    let one = |verb| (verb, false);
    let bulk = |verb| (verb, true);
    let (verb, is_bulk) = match op {
        "create" => one(Verb::Create),
        "set" => one(Verb::Set),
        "remove" => one(Verb::Remove),
        "bulkcreate" => bulk(Verb::Create),
        "bulkset" => bulk(Verb::Set),
        "bulkremove" => bulk(Verb::Remove),
        "get" => {
            let (object, object_id) = split_key(key)?;
            let attrs = read_placeholders(pairs)?;
            let call = match has_raw_key(object) {
                true => SaiCall::GetEntry { object, key: read_raw_key(object, object_id)?, attrs },
                false => SaiCall::Get { object, id: read_id(object, object_id)?, attrs },
            };
            return Ok(SaiRequest { id, call });
        }
        "bulkget" => {
            let (object, count) = split_key(key)?;
            let mut items = Vec::new();
            for (field, joined) in pairs {
                let attrs = read_placeholders(&mut joined_pairs(op, key, joined)?.into_iter())?;
                items.push((read_id(object, field)?, attrs));
            }
            check_items(op, key, count, items.len())?;
            return Ok(SaiRequest { id, call: SaiCall::BulkGet { object, items } });
        }
        AVAILABILITY_QUERY => {
            let (mut object, mut attrs) = (None, Attrs::new());
            for (name, value) in pairs {
                match name {
                    OBJECT_TYPE => object = ObjectType::from_name(value),
                    _ => attrs.extend(read_field(name, value)?),
                }
            }
            let Some(object) = object else { return bad(format!("{op} names no type of the route path")) };
            return Ok(SaiRequest { id, call: SaiCall::Available { object, attrs } });
        }
        NOTIFY => {
            let view = match key {
                "INIT_VIEW" => View::Init,
                "APPLY_VIEW" => View::Apply,
                _ => return bad(format!("syncd does not know the step {key}")),
            };
            return Ok(SaiRequest { id, call: SaiCall::View(view) });
        }
        _ => return Ok(SaiRequest { id, call: SaiCall::Query(read_query(key, pairs, op)?) }),
    };
    if let Some((object, rest)) = split_key(key).ok().filter(|(object, _)| has_raw_key(*object)) {
        let items = read_entries(verb, object, rest, pairs, (op, is_bulk))?;
        return Ok(SaiRequest { id, call: SaiCall::Entries { verb, object, items, bulk: is_bulk } });
    }
    if !is_bulk {
        let (object, object_id) = read_row_key(key)?;
        let item = Item { id: object_id, attrs: read_attrs(pairs)? };
        check_count(verb, key, &item)?;
        return Ok(SaiRequest { id, call: SaiCall::One { verb, object, item } });
    }
    let (object, count) = split_key(key)?;
    let mut items = Vec::with_capacity(pairs.size_hint().0);
    for (field, joined) in pairs {
        let mut attrs = Attrs::new();
        for part in joined.split(BULK_SEPARATOR).filter(|part| !part.is_empty()) {
            let (name, value) = joined_pair(op, key, part)?;
            attrs.extend(read_field(name, value)?);
        }
        let item = Item { id: read_id(object, field)?, attrs };
        check_count(verb, key, &item)?;
        items.push(item);
    }
    check_items(op, key, count, items.len())?;
    Ok(SaiRequest { id, call: SaiCall::Bulk { verb, object, items, mode: ErrorMode::IgnoreError } })
}

/// One attribute of an object of a bulk.
fn joined_pair<'a>(op: &str, key: &str, part: &'a str) -> Result<(&'a str, &'a str), TextError> {
    match part.split_once('=') {
        Some(pair) => Ok(pair),
        None => bad(format!("\"{part}\" in {op} {key} is not ATTRIBUTE=VALUE")),
    }
}

fn joined_pairs<'a>(op: &str, key: &str, joined: &'a str) -> Result<Vec<(&'a str, &'a str)>, TextError> {
    let parts = joined.split(BULK_SEPARATOR).filter(|part| !part.is_empty());
    parts.map(|part| joined_pair(op, key, part)).collect()
}

/// The number of objects in the key is that of the message.
fn check_items(op: &str, key: &str, count: &str, items: usize) -> Result<(), TextError> {
    if count.parse() == Ok(items) { Ok(()) } else { bad(format!("{op} {key} carries {items} objects")) }
}

/// Whether the key of an object of this type is not typed.
fn has_raw_key(object: ObjectType) -> bool {
    object.is_entry() && !object.is_typed()
}

/// Reads the key of such an object: a JSON object.
fn read_raw_key(object: ObjectType, text: &str) -> Result<RawText, TextError> {
    match text.starts_with('{') && text.ends_with('}') {
        true => Ok(RawText::read(text)),
        false => bad(format!("\"{text}\" does not identify a {}", object.name())),
    }
}

fn read_entries<'a>(
    verb: Verb,
    object: ObjectType,
    rest: &str,
    pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>,
    (op, is_bulk): (&str, bool),
) -> Result<Vec<EntryItem>, TextError> {
    let mut items = Vec::new();
    match is_bulk {
        false => items.push(EntryItem { key: read_raw_key(object, rest)?, attrs: read_attrs(pairs)? }),
        true => {
            for (field, joined) in pairs {
                let attrs = read_attrs(&mut joined_pairs(op, field, joined)?.into_iter())?;
                items.push(EntryItem { key: read_raw_key(object, field)?, attrs });
            }
            check_items(op, object.name(), rest, items.len())?;
        }
    }
    match items.iter().find(|item| verb == Verb::Set && item.attrs.len() != 1) {
        None => Ok(items),
        Some(item) => bad(format!("a set of {} names {} attributes, not one", item.key, item.attrs.len())),
    }
}

/// Reads a request that changes no object.
fn read_query<'a>(
    key: &str,
    pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>,
    op: &str,
) -> Result<Query, TextError> {
    if let Some((_, counter_op)) = COUNTER_OPS.iter().find(|(name, _)| *name == op) {
        let fields = pairs.map(|(field, value)| (field.into(), value.into())).collect();
        return Ok(Query::Poll { op: *counter_op, key: key.into(), fields });
    }
    if let GET_STATS | CLEAR_STATS = op {
        return match read_row_key(key)? {
            (object, ObjectId::Oid(id)) => {
                let counters = pairs.map(|(counter, _)| counter.into()).collect();
                let mode = if op == CLEAR_STATS { CountersMode::Clear } else { CountersMode::Read };
                Ok(Query::Counters { object, id, counters, mode })
            }
            _ => bad(format!("{key} has no counters")),
        };
    }
    if op == FLUSH {
        return Ok(Query::FlushFdb { attrs: read_attrs(pairs)? });
    }
    let (mut object, mut attr, mut room) = (None, None::<Name>, 0);
    for (name, value) in pairs {
        match name {
            OBJECT_TYPE => object = ObjectType::from_name(value),
            ATTR_ID => attr = Some(value.into()),
            LIST_SIZE => match value.parse() {
                Ok(size) => room = size,
                Err(_) => return bad(format!("\"{value}\" in {op} is no size of a list")),
            },
            _ => {}
        }
    }
    let object = |op: &str| object.ok_or_else(|| TextError(format!("{op} names no object type of SAI")));
    let attr = |op: &str| attr.ok_or_else(|| TextError(format!("{op} names no attribute")));
    Ok(match op {
        ATTRIBUTE_CAPABILITY_QUERY => Query::AttributeCapability { object: object(op)?, attr: attr(op)? },
        ENUM_VALUES_QUERY => Query::EnumValues { object: object(op)?, attr: attr(op)?, room },
        STATS_QUERY | STATS_ST_QUERY => {
            Query::Stats { object: object(op)?, room, streamed: op == STATS_ST_QUERY }
        }
        _ => return bad(format!("syncd does not know the operation {op}")),
    })
}

fn check_count(verb: Verb, key: &str, item: &Item) -> Result<(), TextError> {
    match (verb, item.attrs.len()) {
        (Verb::Set, n) if n != 1 => bad(format!("a set of {key} names {n} attributes of an object, not one")),
        _ => Ok(()),
    }
}

fn read_attrs<'a>(pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Attrs, TextError> {
    let mut attrs = Attrs::new();
    for (name, value) in pairs {
        attrs.extend(read_field(name, value)?);
    }
    Ok(attrs)
}

/// The attributes of a get with their placeholders. A placeholder need not be a value of the
/// attribute: a caller may leave its memory as it was.
fn read_placeholders<'a>(
    pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Attr>, TextError> {
    Ok(pairs.map(|(name, value)| Attr::placeholder(name, value)).collect())
}

/// Formats the reply to a request of this kind.
pub fn write_reply(reply: &SaiReply, reply_to: ReplyTo) -> Message {
    let mut fields = Fields::new();
    for status in &reply.statuses {
        fields.put(&status.name(), "");
    }
    let mut value = String::new();
    for attr in &reply.values {
        value.clear();
        attr.write_value(&mut value);
        fields.put(attr.name(), &value);
    }
    Message::new(reply.status.name().into(), fields.end(), reply_to.op())
}

/// Parses the reply to request `id` from the Redis queue, with or without the letter before `op`.
///
/// # Errors
/// A sentence when it is not a reply.
pub fn read_reply(id: u64, key: &str, value: &str, op: &str) -> Result<SaiReply, TextError> {
    let Some(items) = json::read_strings(value).filter(|items| items.len() % 2 == 0) else {
        return bad(format!("the fields of the reply {key} are not an array of pairs"));
    };
    read_reply_items(id, key, op.strip_prefix('S').unwrap_or(op), &items)
}

/// Parses the reply to request `id` from a ZeroMQ socket.
///
/// # Errors
/// As [`read_reply`].
pub fn read_zmq_reply(id: u64, message: &str) -> Result<SaiReply, TextError> {
    match json::read_strings(message).as_deref() {
        Some([key, op, fields @ ..]) if fields.len() % 2 == 0 => read_reply_items(id, key, op, fields),
        _ => bad("a reply of syncd is not an array of a status, an operation, and pairs"),
    }
}

/// Whether a field of a reply is a status: a name, or the number of one without a name.
fn is_status(field: &str) -> bool {
    field.starts_with("SAI_STATUS_") || field.parse::<i32>().is_ok()
}

fn read_reply_items(id: u64, key: &str, op: &str, items: &[Cow<'_, str>]) -> Result<SaiReply, TextError> {
    if ReplyTo::ALL.iter().all(|reply_to| reply_to.op().strip_prefix('S') != Some(op)) {
        return bad(format!("{op} is not a reply of syncd"));
    }
    let mut reply = SaiReply::one(id, Status::from_name(key));
    // Of a bulk of gets a status has the attributes of an object, if one was read.
    let has_attrs = |pair: &[Cow<'_, str>]| !pair[1].is_empty() && is_status(&pair[0]);
    let of_gets = items.chunks_exact(2).any(has_attrs);
    for pair in items.chunks_exact(2) {
        if !of_gets && is_status(&pair[0]) && pair[1].is_empty() {
            reply.statuses.push(Status::from_name(&pair[0]));
            continue;
        }
        match read_field(&pair[0], &pair[1]) {
            Ok(value) => reply.values.extend(value),
            // The length of a list that found too little room, in the place of its items.
            Err(_) if reply.status == Status::BufferOverflow => {
                reply.values.push(Attr::raw(&pair[0], &pair[1]));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(reply)
}

#[cfg(test)]
mod tests;
