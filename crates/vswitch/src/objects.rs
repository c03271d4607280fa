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
    /// How many objects, routes' targets and neighbours refer to it.
    users: u32,
}

/// All numbered objects.
#[derive(Default)]
pub(crate) struct Objects {
    map: Map<Oid, Object>,
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
        self.map.get(&oid)?.attrs.iter().find_map(pick)
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
        self.last += 1;
        let oid = Oid(OURS | Oid::vid(kind, self.last).0);
        for mut attr in attrs.clone() {
            self.count_references(&mut attr, 1);
        }
        self.map.insert(oid, Object { kind, attrs, users: 0 });
        oid
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
        let attrs = self.map.remove(&oid).map(|object| object.attrs).unwrap_or_default();
        for mut attr in attrs.clone() {
            self.count_references(&mut attr, -1);
        }
        Ok(attrs)
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
        schema::complete(kind, attrs).map_err(|broken| broken.status)
    }

    /// Whether the object of an attribute exists and has the right kind.
    fn check(&self, attr: &Attr) -> Result<(), Status> {
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
