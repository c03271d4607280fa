//! Objects with their attributes, small for routes: a million of them share few sets of attributes.

use crate::row::pack_prefix;
use crate::sai::{Attr, Attrs, InsegEntry, NeighborEntry, ObjectId, ObjectType, Oid, RawText, RouteEntry};
use ribtide_prefix::{
    AnyPrefix, Families, Family, Map, PerFamily, Prefix, for_each_family, prefetch, shrink_if_sparse,
    shrink_to_fit,
};

/// A different set of attributes, once.
#[derive(Default)]
struct Shared {
    slots: Vec<(Attrs, u32)>,
    free: Vec<u32>,
    of: Map<Attrs, u32>,
    /// What was acquired last: routes that come together often share it.
    last: u32,
}

impl Shared {
    fn acquire(&mut self, attrs: &Attrs) -> u32 {
        if let Some((same, users)) = self.slots.get_mut(self.last as usize)
            && *users > 0
            && same == attrs
        {
            *users += 1;
            return self.last;
        }
        if let Some(&id) = self.of.get(attrs) {
            self.slots[id as usize].1 += 1;
            self.last = id;
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push((Attrs::new(), 0));
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = (attrs.clone(), 1);
        self.of.insert(attrs.clone(), id);
        id
    }

    fn release(&mut self, id: u32) {
        let (attrs, users) = &mut self.slots[id as usize];
        *users -= 1;
        if *users == 0 {
            self.of.remove(attrs);
            *attrs = Attrs::new();
            self.free.push(id);
        }
    }

    /// Shrinks every table to its contents. O(capacity). Slots between others stay, because an object's number is its slot.
    fn shrink_to_fit(&mut self) {
        self.free.sort_unstable();
        while self.free.last().is_some_and(|at| *at as usize + 1 == self.slots.len()) {
            self.free.pop();
            self.slots.pop();
        }
        self.free.shrink_to_fit();
        self.slots.shrink_to_fit();
        shrink_to_fit(&mut self.of);
    }
}

struct Routes;

impl PerFamily for Routes {
    type Of<F: Family> = Map<Prefix<F>, u32>;
}

/// Objects by identity.
#[derive(Default)]
pub(super) struct Store {
    objects: Map<Oid, (ObjectType, Attrs)>,
    neighbors: Map<NeighborEntry, Attrs>,
    labels: Map<InsegEntry, Attrs>,
    /// Entries whose key is not typed.
    entries: Map<(ObjectType, RawText), Attrs>,
    /// By switch and virtual router.
    routes: Map<(Oid, Oid), Families<Routes>>,
    shared: Shared,
}

/// Puts `new` in place of the attribute of its kind, or behind the others.
pub(super) fn put(attrs: &mut Attrs, new: Attr) {
    match attrs.iter_mut().find(|attr| attr.same_kind(&new)) {
        Some(place) => *place = new,
        None => attrs.push(new),
    }
}

impl Store {
    fn route(&self, entry: &RouteEntry) -> Option<u32> {
        let routes = self.routes.get(&(entry.switch, entry.vr))?;
        match entry.dest {
            AnyPrefix::V4(p) => routes.v4.get(&p).copied(),
            AnyPrefix::V6(p) => routes.v6.get(&p).copied(),
        }
    }

    /// The attributes of an object; `None` when there is no such object.
    pub(super) fn get(&self, object: ObjectType, id: &ObjectId) -> Option<&Attrs> {
        match id {
            ObjectId::Oid(oid) => {
                self.objects.get(oid).filter(|(of, _)| *of == object).map(|(_, attrs)| attrs)
            }
            ObjectId::Neighbor(entry) => self.neighbors.get(entry),
            ObjectId::Inseg(entry) => self.labels.get(entry),
            ObjectId::Route(entry) => self.route(entry).map(|shared| &self.shared.slots[shared as usize].0),
        }
    }

    /// The type of a numbered object.
    pub(super) fn object_type(&self, oid: Oid) -> Option<ObjectType> {
        self.objects.get(&oid).map(|(object, _)| *object)
    }

    /// Prefetches the routes of a bulk or a page.
    pub(super) fn prefetch<'a>(&self, ids: impl Iterator<Item = &'a ObjectId>) {
        for id in ids {
            if let ObjectId::Route(entry) = id {
                prefetch(self.route(entry));
            }
        }
    }

    /// Puts an object, in place of what it was.
    pub(super) fn insert(&mut self, object: ObjectType, id: ObjectId, attrs: &Attrs) {
        match id {
            ObjectId::Oid(oid) => drop(self.objects.insert(oid, (object, attrs.clone()))),
            ObjectId::Neighbor(entry) => drop(self.neighbors.insert(entry, attrs.clone())),
            ObjectId::Inseg(entry) => drop(self.labels.insert(entry, attrs.clone())),
            ObjectId::Route(entry) => {
                let shared = self.shared.acquire(attrs);
                let routes = self.routes.entry((entry.switch, entry.vr)).or_default();
                let old = match entry.dest {
                    AnyPrefix::V4(p) => routes.v4.insert(p, shared),
                    AnyPrefix::V6(p) => routes.v6.insert(p, shared),
                };
                if let Some(old) = old {
                    self.shared.release(old);
                }
            }
        }
    }

    /// Changes attributes of an object, which is made when there is none.
    pub(super) fn set(&mut self, object: ObjectType, id: ObjectId, new: &Attrs) {
        let new = new.iter().cloned();
        match id {
            ObjectId::Route(_) => {
                let mut attrs = self.get(object, &id).cloned().unwrap_or_default();
                new.for_each(|attr| put(&mut attrs, attr));
                self.insert(object, id, &attrs);
            }
            ObjectId::Oid(oid) => {
                let attrs = &mut self.objects.entry(oid).or_insert((object, Attrs::new())).1;
                new.for_each(|attr| put(attrs, attr));
            }
            ObjectId::Neighbor(entry) => {
                let attrs = self.neighbors.entry(entry).or_default();
                new.for_each(|attr| put(attrs, attr));
            }
            ObjectId::Inseg(entry) => {
                let attrs = self.labels.entry(entry).or_default();
                new.for_each(|attr| put(attrs, attr));
            }
        }
    }

    pub(super) fn remove(&mut self, id: &ObjectId) {
        match id {
            ObjectId::Oid(oid) => drop(self.objects.remove(oid)),
            ObjectId::Neighbor(entry) => drop(self.neighbors.remove(entry)),
            ObjectId::Inseg(entry) => drop(self.labels.remove(entry)),
            ObjectId::Route(entry) => {
                let key = (entry.switch, entry.vr);
                let Some(routes) = self.routes.get_mut(&key) else { return };
                fn from<F: Family>(map: &mut Map<Prefix<F>, u32>, prefix: Prefix<F>) -> Option<u32> {
                    let old = map.remove(&prefix);
                    shrink_if_sparse(map);
                    old
                }
                let old = match entry.dest {
                    AnyPrefix::V4(p) => from(&mut routes.v4, p),
                    AnyPrefix::V6(p) => from(&mut routes.v6, p),
                };
                if let Some(old) = old {
                    self.shared.release(old);
                }
                if routes.v4.is_empty() && routes.v6.is_empty() {
                    self.routes.remove(&key);
                }
            }
        }
    }

    /// The entries whose key is not typed.
    pub(super) fn entries(&self) -> &Map<(ObjectType, RawText), Attrs> {
        &self.entries
    }

    /// The same, to change them.
    pub(super) fn entries_mut(&mut self) -> &mut Map<(ObjectType, RawText), Attrs> {
        &mut self.entries
    }

    /// The types of numbered objects, each once, in order.
    pub(super) fn numbered_types(&self) -> std::collections::BTreeSet<ObjectType> {
        self.objects.values().map(|(object, _)| *object).collect()
    }

    /// Hands over every object but those of [`Store::entries`], in no order.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(ObjectType, ObjectId, &Attrs)) {
        for (oid, (object, attrs)) in &self.objects {
            each(*object, ObjectId::Oid(*oid), attrs);
        }
        for (entry, attrs) in &self.neighbors {
            each(ObjectType::NeighborEntry, ObjectId::Neighbor(*entry), attrs);
        }
        for (entry, attrs) in &self.labels {
            each(ObjectType::InsegEntry, ObjectId::Inseg(*entry), attrs);
        }
        self.for_each_route(&mut |entry, attrs| each(ObjectType::RouteEntry, entry.into(), attrs));
    }

    fn for_each_route(&self, each: &mut dyn FnMut(RouteEntry, &Attrs)) {
        for ((switch, vr), routes) in &self.routes {
            for_each_family!(F => for (prefix, shared) in routes.get::<F>() {
                let entry = RouteEntry { switch: *switch, vr: *vr, dest: prefix.any() };
                each(entry, &self.shared.slots[*shared as usize].0);
            });
        }
    }

    /// Every object but routes and those of [`Store::entries`], in no order.
    pub(super) fn ids(&self) -> impl Iterator<Item = (ObjectType, ObjectId)> {
        let objects = self.objects.iter().map(|(oid, (object, _))| (*object, ObjectId::Oid(*oid)));
        let neighbors = self.neighbors.keys().map(|of| (ObjectType::NeighborEntry, ObjectId::Neighbor(*of)));
        let labels = self.labels.keys().map(|of| (ObjectType::InsegEntry, ObjectId::Inseg(*of)));
        objects.chain(neighbors).chain(labels)
    }

    /// How many routes there are.
    pub(super) fn route_count(&self) -> usize {
        self.routes.values().map(|routes| routes.v4.len() + routes.v6.len()).sum()
    }

    /// Every route, packed by switch and virtual router: five bytes for one of IPv4.
    pub(super) fn packed_routes(&self) -> Vec<(Oid, Oid, Vec<u8>)> {
        let pack = |((switch, vr), routes): (&(Oid, Oid), &Families<Routes>)| {
            let mut bytes = Vec::new();
            for_each_family!(F => for prefix in routes.get::<F>().keys() {
                pack_prefix(prefix.any(), &mut bytes);
            });
            (*switch, *vr, bytes)
        };
        self.routes.iter().map(pack).collect()
    }

    /// Every object of a type, in the order of their identities.
    pub(super) fn sorted(&self, of: ObjectType) -> Vec<(ObjectId, Attrs)> {
        let mut found: Vec<(ObjectId, Attrs)> = match of {
            ObjectType::RouteEntry => {
                let mut routes = Vec::with_capacity(self.route_count());
                self.for_each_route(&mut |entry, attrs| routes.push((entry.into(), attrs.clone())));
                routes
            }
            ObjectType::NeighborEntry => {
                self.neighbors.iter().map(|(entry, attrs)| ((*entry).into(), attrs.clone())).collect()
            }
            ObjectType::InsegEntry => {
                self.labels.iter().map(|(entry, attrs)| ((*entry).into(), attrs.clone())).collect()
            }
            _ => {
                let of_type = self.objects.iter().filter(|(_, (object, _))| *object == of);
                of_type.map(|(oid, (_, attrs))| ((*oid).into(), attrs.clone())).collect()
            }
        };
        found.sort_unstable_by_key(|(id, _)| *id);
        found
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        shrink_to_fit(&mut self.objects);
        shrink_to_fit(&mut self.neighbors);
        shrink_to_fit(&mut self.labels);
        shrink_to_fit(&mut self.entries);
        for routes in self.routes.values_mut() {
            shrink_to_fit(&mut routes.v4);
            shrink_to_fit(&mut routes.v6);
        }
        self.shared.shrink_to_fit();
    }

    /// Bytes that the tables of routes take.
    pub(super) fn table_size(&self) -> usize {
        self.routes.values().map(|routes| routes.v4.allocation_size() + routes.v6.allocation_size()).sum()
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        let entries = self.neighbors.len() + self.labels.len() + self.entries.len();
        self.objects.len() + entries + self.route_count()
    }
}
