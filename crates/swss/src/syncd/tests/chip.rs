//! A chip that is nothing but its objects: it refuses what a chip refuses, and fails when told to.

use crate::sai::{Attr, ErrorMode, Item, ObjectId, ObjectType, Oid, RawText, Sai, Status, Verb};
use std::collections::{BTreeMap, BTreeSet};

const PORTS: u64 = 3;

#[derive(Default)]
pub(super) struct Chip {
    pub(super) objects: BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>,
    last: u64,
    /// Entries whose key is not typed.
    pub(super) entries: BTreeMap<(ObjectType, RawText), BTreeMap<String, Attr>>,
    /// The switch, the default virtual router, the CPU port and the ports.
    own: Vec<Oid>,
    /// At most so many of one type.
    pub(super) limit: Option<(ObjectType, usize)>,
    /// Which of the next operations fail; the last stands for the first of them.
    pub(super) failures: Vec<bool>,
    pub(super) operations: Vec<String>,
    /// How many objects each bulk had.
    pub(super) bulks: Vec<usize>,
}

impl Chip {
    fn add(&mut self, object: ObjectType, attrs: &[Attr]) -> Oid {
        self.last += 1;
        let oid = Oid(1 << 63 | u64::from(object.number()) << 32 | self.last);
        self.put(object, oid.into(), attrs);
        oid
    }

    fn put(&mut self, object: ObjectType, id: ObjectId, attrs: &[Attr]) {
        let row = self.objects.entry((object, id)).or_default();
        row.extend(attrs.iter().map(|attr| (attr.name().to_string(), attr.clone())));
    }

    /// Every object with what it was told, as text.
    pub(super) fn objects(&self) -> BTreeMap<(ObjectType, ObjectId), BTreeSet<String>> {
        let text = |row: &BTreeMap<String, Attr>| row.values().map(Attr::to_string).collect();
        self.objects.iter().map(|(key, row)| (*key, text(row))).collect()
    }

    fn there(&self, oid: Oid) -> bool {
        oid.is_null() || self.objects.keys().any(|(_, id)| id.oid() == Some(oid))
    }

    fn used(&self, oid: Oid) -> bool {
        self.own.contains(&oid)
            || self.objects.iter().any(|((_, id), row)| {
                let mut id = *id;
                let in_key = id.oid().is_none() && id.oids_mut().any(|named| *named == oid);
                in_key || row.values().any(|attr| attr.clone().oids_mut().contains(&oid))
            })
            || self.entries.iter().any(|((_, key), row)| {
                key.oids().contains(&oid) || row.values().any(|attr| attr.clone().oids_mut().contains(&oid))
            })
    }

    /// The ports that it has not of its own.
    fn made_ports(&self) -> Vec<Oid> {
        let ports = self.objects.keys().filter(|(object, _)| *object == ObjectType::Port);
        ports.filter_map(|(_, id)| id.oid()).filter(|oid| !self.own.contains(oid)).collect()
    }

    fn one(&mut self, verb: Verb, object: ObjectType, item: &mut Item) -> Status {
        self.operations.push(format!("{verb:?} {object:?}"));
        if self.failures.pop() == Some(true) {
            return Status::InsufficientResources;
        }
        let mut named: Vec<Oid> = item.attrs.iter_mut().flat_map(|attr| attr.oids_mut().to_vec()).collect();
        if item.id.oid().is_none() {
            named.extend(item.id.oids_mut().map(|oid| *oid));
        }
        if !named.into_iter().all(|oid| self.there(oid)) {
            return Status::InvalidObjectId;
        }
        let key = (object, item.id);
        match verb {
            Verb::Create if object == ObjectType::Switch && !self.own.is_empty() => Status::ItemAlreadyExists,
            Verb::Create if self.objects.contains_key(&key) => Status::ItemAlreadyExists,
            Verb::Create => {
                let count = self.objects.keys().filter(|(of, _)| *of == object).count();
                if self.limit.is_some_and(|(of, limit)| of == object && count >= limit) {
                    return Status::TableFull;
                }
                match item.id {
                    ObjectId::Oid(_) => item.id = self.add(object, &item.attrs).into(),
                    id => self.put(object, id, &item.attrs),
                }
                if object == ObjectType::Switch {
                    self.own.extend(item.id.oid());
                    let own = [ObjectType::VirtualRouter, ObjectType::Port];
                    let ports = (0..PORTS).map(|_| ObjectType::Port);
                    for object in own.into_iter().chain(ports) {
                        let oid = self.add(object, &[]);
                        self.own.push(oid);
                    }
                }
                Status::Success
            }
            _ if !self.objects.contains_key(&key) => Status::ItemNotFound,
            Verb::Set if item.attrs.iter().any(Attr::create_only) => Status::InvalidParameter,
            Verb::Set => {
                self.put(object, item.id, &item.attrs);
                Status::Success
            }
            Verb::Remove if item.id.oid().is_some_and(|oid| self.used(oid)) => Status::ObjectInUse,
            Verb::Remove => {
                self.objects.remove(&key);
                Status::Success
            }
        }
    }
}

impl Sai for Chip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        self.bulks.push(items.len());
        let mut stopped = false;
        for item in items {
            let status = if stopped { Status::NotExecuted } else { self.one(verb, object, item) };
            stopped |= mode == ErrorMode::StopOnError && !status.is_success();
            statuses.push(status);
        }
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.operations.push(format!("{verb:?} {object:?}"));
        let named = attrs.iter().flat_map(|attr| attr.clone().oids_mut().to_vec());
        if !named.chain(key.oids().iter().copied()).all(|oid| self.there(oid)) {
            return Err(Status::InvalidObjectId);
        }
        let entry = (object, key.clone());
        match (verb, self.entries.contains_key(&entry)) {
            (Verb::Create, true) => return Err(Status::ItemAlreadyExists),
            (Verb::Set | Verb::Remove, false) => return Err(Status::ItemNotFound),
            (Verb::Remove, true) => drop(self.entries.remove(&entry)),
            (Verb::Create | Verb::Set, _) => {
                let row = self.entries.entry(entry).or_default();
                row.extend(attrs.iter().map(|attr| (attr.name().to_string(), attr.clone())));
            }
        }
        Ok(())
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        let row = self.objects.get(&(object, *id)).ok_or(Status::ItemNotFound)?;
        for attr in attrs {
            *attr = match &*attr {
                Attr::SwitchDefaultVirtualRouter(_) => Attr::SwitchDefaultVirtualRouter(self.own[1]),
                Attr::SwitchCpuPort(_) => Attr::SwitchCpuPort(self.own[2]),
                Attr::SwitchPortNumber(_) => Attr::SwitchPortNumber(PORTS as u32),
                Attr::SwitchPortList(_) => {
                    Attr::SwitchPortList([&self.own[3..], &self.made_ports()].concat().into())
                }
                other => row.get(other.name()).cloned().ok_or(Status::NotImplemented)?,
            };
        }
        Ok(())
    }
}
