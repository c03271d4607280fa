//! Numbered objects: attributes and reference counts.
//!
//! All kinds are stored alike, as attributes. One table here has the required attributes of each
//! kind and the kinds of its references; SAI's own schema decides completeness.

use ribtide_prefix::Map;
use ribtide_swss::sai::{Attr, Attrs, ObjectType, Oid, Status, schema};

/// Numbers of the chip have this bit, which no number of orchagent has: a mix-up finds no object.
const OURS: u64 = 1 << 63;

/// One object.
pub(crate) struct Object {
    pub(crate) kind: ObjectType,
    pub(crate) attrs: Attrs,
    /// What the switch gave an object of its own, which does not count as a reference.
    base: Box<[Attr]>,
    /// How many objects, routes' targets and neighbours refer to it.
    users: u32,
}

/// All numbered objects.
#[derive(Default)]
pub(crate) struct Objects {
    map: Map<Oid, Object>,
    /// Objects by their key attributes: no two of a type have the same.
    keys: Map<(ObjectType, String), Oid>,
    last: u64,
}

impl Objects {
    pub(crate) fn get(&self, oid: Oid) -> Option<&Object> {
        self.map.get(&oid)
    }

    /// Continues with numbers above those of `earlier`.
    pub(crate) fn number_after(&mut self, earlier: &Objects) {
        self.last = earlier.last;
    }

    /// The highest assigned number.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The next object gets the number after this.
    pub(crate) fn count_from(&mut self, last: u64) {
        self.last = last;
    }

    /// Whether `oid` is an object of one of these kinds.
    pub(crate) fn is(&self, oid: Oid, kinds: &[ObjectType]) -> bool {
        self.map.get(&oid).is_some_and(|object| kinds.contains(&object.kind))
    }

    /// The first result of `pick` among the attributes of `oid`.
    pub(crate) fn find<T>(&self, oid: Oid, pick: impl FnMut(&Attr) -> Option<T>) -> Option<T> {
        let object = self.map.get(&oid)?;
        object.attrs.iter().chain(&object.base).find_map(pick)
    }

    /// The objects of a kind that name `oid` by an attribute, in the order of their numbers.
    pub(crate) fn users_by(&self, kind: ObjectType, attr: &str, oid: Oid) -> Vec<Oid> {
        let names = |user: &Oid| {
            self.find(*user, |of| (of.name() == attr).then(|| of.clone().oids_mut().contains(&oid)))
        };
        let mut users: Vec<Oid> = self.of_kind(kind).filter(|user| names(user) == Some(true)).collect();
        users.sort_unstable();
        users
    }

    /// The objects of a kind, in no order.
    pub(crate) fn of_kind(&self, kind: ObjectType) -> impl Iterator<Item = Oid> {
        self.map.iter().filter(move |(_, object)| object.kind == kind).map(|(oid, _)| *oid)
    }

    /// Every object with its kind, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Oid, ObjectType)> {
        self.map.iter().map(|(oid, object)| (*oid, object.kind))
    }

    pub(crate) fn count(&self, kind: ObjectType) -> usize {
        self.map.values().filter(|object| object.kind == kind).count()
    }

    /// Creates an object with checked attributes.
    pub(crate) fn insert(&mut self, kind: ObjectType, attrs: Attrs) -> Oid {
        let oid = self.number(kind);
        for mut attr in attrs.clone() {
            self.count_references(&mut attr, 1);
        }
        if let Some(key) = key_of(kind, &attrs) {
            self.keys.insert(key, oid);
        }
        self.map.insert(oid, Object { kind, attrs, base: Box::default(), users: 0 });
        oid
    }

    fn number(&mut self, kind: ObjectType) -> Oid {
        self.last += 1;
        Oid(OURS | Oid::vid(kind, self.last).0)
    }

    /// Creates an object of the switch's own.
    pub(crate) fn insert_own(&mut self, kind: ObjectType, attrs: Attrs) -> Oid {
        let oid = self.number(kind);
        if let Some(key) = key_of(kind, &attrs) {
            self.keys.insert(key, oid);
        }
        let base = attrs.into_vec().into();
        self.map.insert(oid, Object { kind, attrs: Attrs::new(), base, users: 0 });
        oid
    }

    /// Gives an object of the switch's own more attributes.
    pub(crate) fn extend_own(&mut self, oid: Oid, attrs: Attrs) {
        if let Some(object) = self.map.get_mut(&oid) {
            object.base = object.base.iter().cloned().chain(attrs).collect();
        }
    }

    /// Removes an object of the switch's own with what it belonged to.
    pub(crate) fn remove_own(&mut self, oid: Oid) {
        if let Some(object) = self.map.remove(&oid) {
            self.forget(object);
        }
    }

    /// Takes a removed object out of the references and keys.
    fn forget(&mut self, object: Object) -> Attrs {
        let all: Vec<Attr> = object.attrs.iter().chain(&object.base).cloned().collect();
        if let Some(key) = key_of(object.kind, &all) {
            self.keys.remove(&key);
        }
        for mut attr in object.attrs.clone() {
            self.count_references(&mut attr, -1);
        }
        object.attrs
    }

    /// Replaces one attribute.
    pub(crate) fn set(&mut self, oid: Oid, kind: ObjectType, attr: Attr) -> Status {
        if !self.is(oid, &[kind]) {
            return Status::ItemNotFound;
        }
        if let Err(status) = self.check(&attr) {
            return status;
        }
        self.count_references(&mut attr.clone(), 1);
        let Some(object) = self.map.get_mut(&oid) else { return Status::ItemNotFound };
        let old = match object.attrs.iter_mut().find(|a| a.same_kind(&attr)) {
            Some(place) => Some(std::mem::replace(place, attr)),
            None => {
                object.attrs.push(attr);
                None
            }
        };
        if let Some(mut old) = old {
            self.count_references(&mut old, -1);
        }
        Status::Success
    }

    /// Removes an object without references and returns its attributes.
    pub(crate) fn remove(&mut self, oid: Oid, kind: ObjectType) -> Result<Attrs, Status> {
        match self.map.get(&oid) {
            Some(object) if object.kind != kind => return Err(Status::ItemNotFound),
            None => return Err(Status::ItemNotFound),
            Some(object) if object.users > 0 => return Err(Status::ObjectInUse),
            Some(_) => {}
        }
        Ok(self.map.remove(&oid).map(|object| self.forget(object)).unwrap_or_default())
    }

    /// Changes the reference count of an object; the null object has none.
    pub(crate) fn refer(&mut self, oid: Oid, by: i32) {
        if let Some(object) = self.map.get_mut(&oid) {
            object.users = object.users.saturating_add_signed(by);
        }
    }

    fn count_references(&mut self, attr: &mut Attr, by: i32) {
        for oid in attr.oids_mut() {
            self.refer(*oid, by);
        }
    }

    /// Whether a new object may have these attributes.
    pub(crate) fn check_new(&self, kind: ObjectType, attrs: &[Attr]) -> Result<(), Status> {
        for (n, attr) in attrs.iter().enumerate() {
            if schema::twice(attrs, n) {
                return Err(Status::InvalidParameter);
            }
            self.check(attr)?;
        }
        if key_of(kind, attrs).is_some_and(|key| self.keys.contains_key(&key)) {
            return Err(Status::ItemAlreadyExists);
        }
        schema::complete(kind, attrs).map_err(|broken| broken.status)
    }

    /// Whether an object exists; the null object counts.
    pub(crate) fn exists(&self, oid: Oid) -> bool {
        oid.is_null() || self.map.contains_key(&oid)
    }

    /// Whether the object of an attribute exists and has the right kind.
    pub(crate) fn check(&self, attr: &Attr) -> Result<(), Status> {
        if let Attr::Other(raw) = attr {
            if schema::is_read_only(attr) {
                return Err(Status::InvalidParameter);
            }
            let exist = raw.value().oids().iter().all(|oid| self.exists(*oid));
            return if exist { Ok(()) } else { Err(Status::InvalidObjectId) };
        }
        let (oid, kinds): (Oid, &[ObjectType]) = match attr {
            Attr::RifVirtualRouter(oid) => (*oid, &[ObjectType::VirtualRouter]),
            Attr::RifPort(oid) | Attr::BridgePortPort(oid) => (*oid, &[ObjectType::Port, ObjectType::Lag]),
            Attr::RifVlan(oid) | Attr::VlanMemberVlan(oid) => (*oid, &[ObjectType::Vlan]),
            Attr::LagMemberLag(oid) => (*oid, &[ObjectType::Lag]),
            Attr::LagMemberPort(oid) => (*oid, &[ObjectType::Port]),
            Attr::VlanMemberBridgePort(oid) => (*oid, &[ObjectType::BridgePort]),
            Attr::NextHopRif(oid) => (*oid, &[ObjectType::RouterInterface]),
            Attr::MemberGroup(oid) => (*oid, &[ObjectType::NextHopGroup]),
            Attr::MemberNextHop(oid) => (*oid, &[ObjectType::NextHop]),
            _ => return Ok(()),
        };
        if self.is(oid, kinds) { Ok(()) } else { Err(Status::InvalidObjectId) }
    }
}

/// The key attributes of an object, as text; `None` without any.
fn key_of(kind: ObjectType, attrs: &[Attr]) -> Option<(ObjectType, String)> {
    // Objects of the route path have none; the lanes of ports are the setup's.
    if let ObjectType::Port
    | ObjectType::VirtualRouter
    | ObjectType::RouterInterface
    | ObjectType::NextHop
    | ObjectType::NextHopGroup
    | ObjectType::NextHopGroupMember = kind
    {
        return None;
    }
    let mut keys: Vec<String> =
        attrs.iter().filter(|attr| schema::is_key(attr)).map(Attr::to_string).collect();
    keys.sort_unstable();
    (!keys.is_empty()).then(|| (kind, keys.join("|")))
}
