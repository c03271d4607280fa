//! A library as syncd's chip.

use crate::convert::{Attributes, LIST_MAX};
use crate::library::{BUFFER_OVERFLOW, Failed, INVALID_PARAMETER, Id, Library};
use crate::notify;
use ribtide_sai::{Attribute, Key, Value, ValueType};
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use ribtide_swss::sai::{
    Attr, CountersMode, ErrorMode, FdbQueue, InsegEntry, Item, NeighborEntry, ObjectId, ObjectType, Oid,
    OperStatus, Query, QueryReply, RawText, RouteEntry, Sai, Status, Verb,
};
use std::collections::BTreeMap;

/// A library behind syncd. Object ids are those of the library.
#[derive(Debug)]
pub struct LibraryChip {
    library: Library,
    /// The switch, once it was created; 0 before.
    switch: u64,
    /// Sentences for the log: values that have no form in C.
    events: Vec<String>,
    /// Link states that syncd has not taken (`sai_port_oper_status_t`).
    ports: BTreeMap<u64, i32>,
    /// Whether the next link states are those of all ports.
    all_ports: bool,
    /// Changes of the FDB that syncd has not taken.
    fdb: FdbQueue,
}

impl LibraryChip {
    /// A library without a switch. `wake` is called when it has a notification.
    pub fn new(library: Library, wake: Option<notify::Wake>) -> LibraryChip {
        notify::wake_with(wake);
        LibraryChip {
            library,
            switch: 0,
            events: Vec::new(),
            ports: BTreeMap::new(),
            all_ports: false,
            fdb: FdbQueue::default(),
        }
    }

    /// Takes the sentences for the log.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Takes what the library reported, except for link states, which [`Sai::port_states`] returns, and changes of
    /// the FDB, which [`Sai::fdb_events`] returns.
    pub fn hear(&mut self) -> notify::Notifications {
        let mut heard = notify::take();
        self.ports.append(&mut heard.ports);
        self.fdb.extend(heard.fdb.take());
        if let Some(code) = heard.unknown_fdb_event.take() {
            self.events.push(format!("the SAI library reports a change {code} of the FDB, which is none"));
        }
        heard
    }

    /// The link states of all ports of the switch.
    fn read_ports(&mut self) -> BTreeMap<u64, i32> {
        let types = ["SWITCH", "PORT"].map(ribtide_sai::ObjectType::from_short_name);
        let names = ["SAI_SWITCH_ATTR_PORT_LIST", "SAI_PORT_ATTR_OPER_STATUS"].map(Attribute::from_name);
        let ([Some(switch), Some(port)], [Some(list), Some(state)]) = (types, names) else {
            return BTreeMap::new();
        };
        let ports = match self.library.read(switch, Id::Oid(self.switch), list) {
            Ok(Value::Oids(ports)) => ports,
            other => {
                self.cannot_read(list, other.err());
                return BTreeMap::new();
            }
        };
        let mut states = BTreeMap::new();
        for oid in ports {
            match self.library.read(port, Id::Oid(oid), state) {
                Ok(Value::Int(state)) => drop(states.insert(oid, state as i32)),
                other => self.cannot_read(state, other.err()),
            }
        }
        states
    }

    /// Notes that an attribute has no value, for the log.
    fn cannot_read(&mut self, attribute: Attribute, status: Option<Failed>) {
        let why = status.map_or("it has no value".into(), |status| Status::from_code(status).name());
        self.events.push(format!("the SAI library does not say {}: {why}", attribute.name()));
    }

    /// The attributes of an item for a call.
    fn attributes(&mut self, attrs: &[Attr]) -> Result<Attributes, Failed> {
        let mut raw = Attributes::default();
        let mut text = String::new();
        for attr in attrs {
            let attribute = Attribute::from_name(attr.name()).ok_or(INVALID_PARAMETER)?;
            if attribute.value_type() == ValueType::Pointer {
                // orchagent's pointers are addresses in its own process. A function that we lack is not asked for.
                if let Some(handler) = notify::handler(attribute) {
                    raw.push_pointer(attribute, handler);
                }
                continue;
            }
            text.clear();
            attr.write_value(&mut text);
            let pushed = match attribute.read_value(&text) {
                Ok(value) => raw.push(attribute, &value),
                Err(e) => Err(e.to_string()),
            };
            if let Err(why) = pushed {
                self.events.push(why);
                return Err(INVALID_PARAMETER);
            }
        }
        Ok(raw)
    }

    /// One operation on one object. A create returns the object id.
    fn execute(&mut self, verb: Verb, object: ribtide_sai::ObjectType, item: &Item) -> Result<u64, Failed> {
        let attrs = self.attributes(&item.attrs)?;
        let key = key(&item.id);
        let id = id(&item.id, &key);
        match verb {
            Verb::Create => {
                let oid = self.library.create(object, id, self.switch, &attrs)?;
                if object.short_name() == "SWITCH" {
                    self.switch = oid;
                }
                Ok(oid)
            }
            // A pointer that we do not pass on leaves nothing to set.
            Verb::Set if attrs.is_empty() && !item.attrs.is_empty() => Ok(0),
            Verb::Set => self.library.set(object, id, &attrs).map(|()| 0),
            Verb::Remove => {
                self.library.remove(object, id)?;
                if object.short_name() == "SWITCH" {
                    self.switch = 0;
                }
                Ok(0)
            }
        }
    }

    /// Several operations in one call. An item whose attributes have no form in C fails before the call, and with
    /// [`ErrorMode::StopOnError`] nothing behind it is called.
    fn execute_all(
        &mut self,
        verb: Verb,
        object: ribtide_sai::ObjectType,
        items: &mut [Item],
        stop: bool,
        statuses: &mut Vec<Status>,
    ) {
        let (mut attrs, mut good, mut failed) = (Vec::with_capacity(items.len()), Vec::new(), Vec::new());
        for (n, item) in items.iter().enumerate() {
            match self.attributes(&item.attrs) {
                Ok(_) if stop && !failed.is_empty() => {}
                Ok(raw) => {
                    attrs.push(raw);
                    good.push(n);
                }
                Err(status) => failed.push((n, status)),
            }
        }
        let keys: Vec<Key> = good.iter().map(|n| key(&items[*n].id)).collect();
        let ids: Vec<Id<'_>> = good.iter().zip(&keys).map(|(n, key)| id(&items[*n].id, key)).collect();
        let done: Vec<(u64, i32)> = match verb {
            Verb::Create => self.library.bulk_create(object, &ids, self.switch, &attrs, stop),
            Verb::Remove => plain(self.library.bulk_remove(object, &ids, stop)),
            Verb::Set => plain(self.library.bulk_set(object, &ids, &attrs, stop)),
        };
        let first = statuses.len();
        statuses.resize(first + items.len(), Status::NotExecuted);
        let mut stopped = false;
        for (n, (oid, status)) in good.into_iter().zip(done) {
            let status = Status::from_code(status);
            stopped |= !status.is_success();
            statuses[first + n] = status;
            if let (Verb::Create, true, ObjectId::Oid(id)) = (verb, status.is_success(), &mut items[n].id) {
                *id = Oid(oid);
            }
        }
        for (n, status) in failed {
            if !(stop && stopped) {
                statuses[first + n] = Status::from_code(status);
                stopped = true;
            }
        }
    }

    /// Reads attributes of an object by its id or key.
    fn read(&mut self, object: ObjectType, id: Id<'_>, attrs: &mut [Attr]) -> Result<(), Status> {
        let object = of(object)?;
        let mut raw = Attributes::default();
        let mut known = Vec::with_capacity(attrs.len());
        let mut text = String::new();
        for attr in attrs.iter() {
            let attribute = Attribute::from_name(attr.name()).ok_or(Status::InvalidParameter)?;
            text.clear();
            attr.write_value(&mut text);
            let room = attribute.read_value(&text).unwrap_or(Value::Room(0));
            if let Err(why) = raw.push_room(attribute, &room) {
                self.events.push(why);
                return Err(Status::NotSupported);
            }
            known.push(attribute);
        }
        let done = self.library.get(object, id, &mut raw);
        for ((n, attribute), attr) in known.into_iter().enumerate().zip(attrs) {
            let value = match done {
                Ok(()) => raw.value(n, attribute),
                Err(_) => raw.count(n, attribute).map(Value::Count),
            };
            text.clear();
            if let Some(value) = value {
                attribute.write_value(&value, &mut text);
            }
            match Attr::read(attr.name(), &text) {
                Some(read) => *attr = read,
                None if done.is_ok() => return Err(Status::Failure),
                // A length in the place of a list is no value of a typed list.
                None if !text.is_empty() => *attr = Attr::raw(attr.name(), &text),
                None => {}
            }
        }
        done.map_err(Status::from_code)
    }

    /// Every object that the library has of its own: what the attributes of the switch name, what the attributes of
    /// those name, and so on, as SONiC's `syncd/SaiDiscovery.cpp`. By type, and in that by id.
    pub fn discover(&mut self) -> Vec<(ribtide_sai::ObjectType, u64)> {
        let Some(switch) = ribtide_sai::ObjectType::from_short_name("SWITCH") else { return Vec::new() };
        let mut found = std::collections::BTreeMap::from([(self.switch, switch)]);
        let mut left = vec![(switch, self.switch)];
        while let Some((object, oid)) = left.pop() {
            let names = object.attributes().filter(|attribute| {
                matches!(attribute.value_type(), ValueType::ObjectId | ValueType::ObjectList)
            });
            for attribute in names {
                let mut value = match self.library.read(object, Id::Oid(oid), attribute) {
                    Ok(value) => value,
                    // An attribute that the library does not support has no value.
                    Err(status) if is_unsupported(status) => continue,
                    Err(status) => {
                        self.cannot_read(attribute, Some(status));
                        continue;
                    }
                };
                for oid in value.oids_mut().iter().copied().filter(|oid| *oid != 0) {
                    if !found.contains_key(&oid)
                        && let Some(object) = self.library.object_type(oid)
                    {
                        found.insert(oid, object);
                        left.push((object, oid));
                    }
                }
            }
        }
        let mut found: Vec<_> = found.into_iter().map(|(oid, object)| (object, oid)).collect();
        found.sort_unstable();
        found
    }
}

/// Whether the status says that a library does not have an attribute.
fn is_unsupported(status: Failed) -> bool {
    let status = Status::from_code(status);
    let plain =
        [Status::NotSupported, Status::NotImplemented, Status::InvalidParameter, Status::ItemNotFound];
    plain.contains(&status) || status.attribute().is_some()
}

fn plain(statuses: Vec<i32>) -> Vec<(u64, i32)> {
    statuses.into_iter().map(|status| (0, status)).collect()
}

/// The type in the table.
fn of(object: ObjectType) -> Result<ribtide_sai::ObjectType, Status> {
    ribtide_sai::ObjectType::from_name(object.name()).ok_or(Status::InvalidObjectType)
}

/// The key of an object; empty for one with an id.
fn key(id: &ObjectId) -> Key {
    match *id {
        ObjectId::Oid(_) => Key::new(),
        ObjectId::Route(RouteEntry { switch, vr, dest }) => {
            vec![Value::Oid(switch.0), Value::Oid(vr.0), Value::Prefix(dest.addr(), dest.len())]
        }
        ObjectId::Neighbor(NeighborEntry { switch, rif, ip }) => {
            vec![Value::Oid(switch.0), Value::Oid(rif.0), Value::Ip(ip)]
        }
        ObjectId::Inseg(InsegEntry { switch, label }) => {
            vec![Value::Oid(switch.0), Value::Uint(label.into())]
        }
    }
}

fn id<'a>(id: &ObjectId, key: &'a Key) -> Id<'a> {
    match id {
        ObjectId::Oid(oid) => Id::Oid(oid.0),
        _ => Id::Key(key),
    }
}

impl Sai for LibraryChip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        let object = match of(object) {
            Ok(object) => object,
            Err(status) => return statuses.resize(statuses.len() + items.len(), status),
        };
        match items {
            [item] => {
                let done = self.execute(verb, object, item);
                if let (Verb::Create, Ok(oid), ObjectId::Oid(id)) = (verb, &done, &mut item.id) {
                    *id = Oid(*oid);
                }
                statuses.push(done.map_or_else(Status::from_code, |_| Status::Success));
            }
            items => self.execute_all(verb, object, items, mode == ErrorMode::StopOnError, statuses),
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        let key = key(id);
        self.read(object, self::id(id, &key), attrs)
    }

    fn port_states(&mut self) -> Vec<PortState> {
        if self.switch != 0 && std::mem::take(&mut self.all_ports) {
            let mut all = self.read_ports();
            // States that the library reported meanwhile are at least as new.
            all.append(&mut self.ports);
            self.ports = all;
        }
        let status = |state| match state {
            1 => OperStatus::Up,
            2 => OperStatus::Down,
            3 => OperStatus::Testing,
            4 => OperStatus::NotPresent,
            _ => OperStatus::Unknown,
        };
        let states = std::mem::take(&mut self.ports).into_iter();
        states.map(|(port, state)| PortState { port: Oid(port), status: status(state) }).collect()
    }

    fn report_all_ports(&mut self) {
        self.all_ports = true;
    }

    fn fdb_events(&mut self) -> Vec<FdbEvent> {
        self.fdb.take()
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        let object = of(object)?;
        let attrs = self.attributes(attrs).map_err(Status::from_code)?;
        self.library.available(self.switch, object, &attrs).map_err(Status::from_code)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        let (object, key) = self.entry_key(object, key)?;
        let attrs = self.attributes(attrs).map_err(Status::from_code)?;
        let done = match verb {
            Verb::Create => self.library.create(object, Id::Key(&key), self.switch, &attrs).map(drop),
            Verb::Set => self.library.set(object, Id::Key(&key), &attrs),
            Verb::Remove => self.library.remove(object, Id::Key(&key)),
        };
        done.map_err(Status::from_code)
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        let (_, key) = self.entry_key(object, key)?;
        self.read(object, Id::Key(&key), attrs)
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        self.answer(query).unwrap_or_else(QueryReply::of)
    }

    fn own_objects(&mut self, _switch: Oid) -> Vec<(ObjectType, Oid)> {
        let own = self.discover().into_iter().filter(|(object, _)| object.short_name() != "SWITCH");
        own.filter_map(|(object, oid)| Some((ObjectType::from_number(object.number())?, Oid(oid)))).collect()
    }

    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        ObjectType::from_number(self.library.object_type(rid.0)?.number())
    }
}

impl LibraryChip {
    /// The type and the key of an entry in text.
    fn entry_key(
        &mut self,
        object: ObjectType,
        key: &RawText,
    ) -> Result<(ribtide_sai::ObjectType, Key), Status> {
        let object = of(object)?;
        let key = object.read_key(&key.to_string()).map_err(|why| {
            self.events.push(why.to_string());
            Status::InvalidParameter
        })?;
        Ok((object, key))
    }

    fn answer(&mut self, query: &Query) -> Result<QueryReply, Status> {
        let named = |name: &str| Attribute::from_name(name).ok_or(Status::InvalidParameter);
        // The number of items, where there is no room for them.
        let longer = |field: &str, count: u32| QueryReply {
            status: Status::BufferOverflow,
            fields: vec![Attr::raw(field, &count.to_string())],
        };
        Ok(match query {
            Query::AttributeCapability { attr, .. } => {
                let [create, set, get] =
                    self.library.capability(self.switch, named(attr)?).map_err(Status::from_code)?;
                QueryReply::capability(create, set, get)
            }
            Query::EnumValues { attr, room, .. } => {
                match self.library.enum_values(self.switch, named(attr)?, (*room).min(LIST_MAX as u32)) {
                    Ok(values) => QueryReply::enum_values(&values, *room),
                    Err((BUFFER_OVERFLOW, count)) => longer("ENUM_COUNT", count),
                    Err((status, _)) => return Err(Status::from_code(status)),
                }
            }
            // A library is not called for the least interval of polling.
            Query::Stats { streamed: true, .. } => return Err(Status::NotSupported),
            Query::Stats { object, room, .. } => {
                match self.library.stats_capability(self.switch, of(*object)?, (*room).min(LIST_MAX as u32)) {
                    Ok(stats) => {
                        let counters: Vec<i32> = stats.iter().map(|(counter, _)| *counter as i32).collect();
                        QueryReply::stats(&counters, *room)
                    }
                    Err((BUFFER_OVERFLOW, count)) => longer("STAT_COUNT", count),
                    Err((status, _)) => return Err(Status::from_code(status)),
                }
            }
            Query::Counters { object, id, counters, mode } => {
                let object = of(*object)?;
                let stats = object.stats().ok_or(Status::NotSupported)?;
                let number = |name: &str| stats.number_of(name).map(|number| number as u32);
                let numbers: Option<Vec<u32>> = counters.iter().map(|name| number(name)).collect();
                let numbers = numbers.ok_or(Status::InvalidParameter)?;
                let values = match mode {
                    CountersMode::Read => self.library.stats(object, id.0, &numbers),
                    CountersMode::Clear => {
                        self.library.clear_stats(object, id.0, &numbers).map(|()| Vec::new())
                    }
                    CountersMode::ReadAndClear => self.library.take_stats(object, id.0, &numbers),
                };
                let values = values.map_err(Status::from_code)?;
                let fields = counters.iter().zip(values);
                QueryReply {
                    status: Status::Success,
                    fields: fields.map(|(name, value)| Attr::raw(name, &value.to_string())).collect(),
                }
            }
            Query::FlushFdb { attrs } => {
                let attrs = self.attributes(attrs).map_err(Status::from_code)?;
                self.library.flush_fdb(self.switch, &attrs).map_err(Status::from_code)?;
                QueryReply::of(Status::Success)
            }
            Query::Poll { .. } => return Err(Status::NotSupported),
        })
    }
}
