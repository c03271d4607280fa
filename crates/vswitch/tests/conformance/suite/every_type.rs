//! Every object type of SAI's table that a caller can create: values of the mandatory attributes come from the table,
//! and with them the objects that these name.

use super::{Bench, is_absent};
use ribtide_sai::{Attribute, Default, Function, QosParams, SystemPort, Value, ValueType};
use ribtide_swss::sai::{
    Attr, InsegEntry, Item, NeighborEntry, ObjectId, ObjectType, Oid, RawText, RouteEntry, Status, Verb,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Type = ribtide_sai::ObjectType;

/// How many objects a chain of references may have.
const DEPTH_MAX: usize = 12;

/// The identity of an object of any type.
#[derive(Clone, Debug)]
enum Id {
    Typed(ObjectId),
    Key(RawText),
}

/// What was made: an object, and before it those that it names.
struct Maker<'a, 'b> {
    bench: &'a mut Bench<'b>,
    made: Vec<(ObjectType, Id)>,
    /// Makes values differ.
    count: u64,
    /// The types whose objects are being made.
    path: Vec<Type>,
}

fn typed(object: Type) -> ObjectType {
    ObjectType::from_number(object.number()).unwrap()
}

/// A type that SAI has functions for to create and remove its objects.
fn is_made_by_callers(object: Type) -> bool {
    let has = |function| object.function(function).is_some();
    object.api().is_some()
        && has(Function::Create)
        && has(Function::Remove)
        && object.short_name() != "SWITCH"
}

impl Maker<'_, '_> {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// An object of one of these types: one of the chip's own, or a new one.
    fn any_of(&mut self, objects: &[Type]) -> Option<Oid> {
        let is = |name: &str| objects.iter().any(|object| object.short_name() == name);
        if is("PORT") {
            return Some(self.bench.ports[2]);
        }
        if is("VIRTUAL_ROUTER") {
            return Some(self.bench.vr);
        }
        if is("SWITCH") {
            return Some(self.bench.switch);
        }
        objects.iter().find_map(|object| match self.make(*object).ok()? {
            Id::Typed(ObjectId::Oid(oid)) => Some(oid),
            _ => None,
        })
    }

    /// A value; `None` when an object that it names cannot be made.
    fn value(&mut self, attribute: Attribute) -> Option<Value> {
        use ValueType as T;
        let n = self.number();
        let small = n % 90 + 100;
        let objects: Vec<Type> = attribute.objects().collect();
        let v4 = Ipv4Addr::new(10, 9, (n >> 8) as u8, n as u8);
        Some(match attribute.value_type() {
            T::Bool => Value::Bool(true),
            T::Chardata => Value::Chars(format!("name{n}").into_bytes()),
            T::Uint8 | T::Uint16 | T::Uint32 | T::Uint64 => Value::Uint(small),
            T::Int8 => Value::Int(1),
            T::Int32 => match attribute.enumeration() {
                Some(of) => Value::Int(of.values().next()?.1.into()),
                None => Value::Int(1),
            },
            T::Mac => Value::Mac([2, 0, 0, 0, 0, n as u8]),
            T::Ipv4 | T::IpAddress => Value::Ip(v4.into()),
            T::Ipv6 => Value::Ip(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, n as u16).into()),
            T::IpPrefix => Value::Prefix(Ipv4Addr::new(10, n as u8, 0, 0).into(), 16),
            T::ObjectId => Value::Oid(self.any_of(&objects)?.0),
            T::ObjectList => Value::Oids(vec![self.any_of(&objects)?.0]),
            T::Uint8List | T::Uint16List | T::Uint32List | T::VlanList => Value::Uints(vec![small]),
            T::Int8List => Value::Ints(vec![1]),
            T::Int32List => match attribute.enumeration() {
                Some(of) => Value::Ints(vec![of.values().next()?.1.into()]),
                None => Value::Ints(vec![1]),
            },
            T::Uint16Range | T::Uint32Range | T::Uint64Range => Value::Range(1, small),
            T::Uint16RangeList | T::Uint64RangeList => Value::Ranges(vec![(1, small)]),
            T::IpAddressList => Value::Ips(vec![v4.into()]),
            T::SegmentList => Value::Ips(vec![Ipv6Addr::LOCALHOST.into()]),
            T::IpPrefixList => Value::Prefixes(vec![(Ipv4Addr::new(10, 0, 0, 0).into(), 8)]),
            T::QosMapList => Value::QosMap(vec![(QosParams::default(), QosParams::default())]),
            T::SystemPortConfig | T::SystemPortConfigList => Value::SystemPorts(vec![SystemPort::default()]),
            T::EncryptKey | T::MacsecSak => Value::Bytes(vec![7; 32]),
            T::AuthKey | T::MacsecAuthKey => Value::Bytes(vec![7; 16]),
            T::MacsecSalt => Value::Bytes(vec![7; 12]),
            _ => return None,
        })
    }

    fn attr(&mut self, attribute: Attribute) -> Option<Attr> {
        let value = self.value(attribute)?;
        let mut text = String::new();
        attribute.write_value(&value, &mut text);
        Some(Attr::read(attribute.name(), &text).unwrap_or_else(|| panic!("{attribute:?} {text}")))
    }

    /// A creation's attributes: the mandatory ones whose conditions hold.
    fn attrs(&mut self, object: Type) -> Result<Vec<Attr>, String> {
        let mut attrs: Vec<Attr> = Vec::new();
        // A condition may name an attribute that comes later.
        let (with, without): (Vec<_>, Vec<_>) = object
            .attributes()
            .filter(|attribute| attribute.is_mandatory())
            .partition(|attribute| attribute.condition().is_some());
        for attribute in without.into_iter().chain(with) {
            let is =
                |of: Attribute, value: &'static str| match attrs.iter().find(|attr| attr.name() == of.name())
                {
                    Some(attr) => attr.value() == value,
                    None => of.default_value() == Some(Default::Const(value)),
                };
            if attribute.condition().is_none_or(|rule| rule.holds(is)) {
                let attr = self.attr(attribute);
                attrs.push(attr.ok_or_else(|| format!("{} has no value", attribute.name()))?);
            }
        }
        Ok(attrs)
    }

    fn id(&mut self, object: Type) -> Option<Id> {
        let (switch, n) = (self.bench.switch, self.number());
        Some(match object.short_name() {
            _ if !object.is_entry() => Id::Typed(Oid::NULL.into()),
            "ROUTE_ENTRY" => {
                let dest = format!("10.{}.0.0/16", n % 250).parse().unwrap();
                Id::Typed(RouteEntry { switch, vr: self.bench.vr, dest }.into())
            }
            "NEIGHBOR_ENTRY" => {
                let ip = IpAddr::V4(Ipv4Addr::new(10, 8, 0, n as u8));
                Id::Typed(NeighborEntry { switch, rif: self.bench.rif, ip }.into())
            }
            "INSEG_ENTRY" => Id::Typed(InsegEntry { switch, label: 1000 + n as u32 }.into()),
            _ => {
                let mut key = Vec::new();
                for member in object.key() {
                    key.push(self.member(member)?);
                }
                let mut text = String::new();
                object.write_key(&key, &mut text);
                Id::Key(RawText::read(&text))
            }
        })
    }

    fn member(&mut self, member: ribtide_sai::KeyMember) -> Option<Value> {
        use ValueType as T;
        let n = self.number();
        let objects: Vec<Type> = member.objects().collect();
        Some(match member.value_type() {
            T::ObjectId if member.name() == "switch_id" => Value::Oid(self.bench.switch.0),
            T::ObjectId => Value::Oid(self.any_of(&objects)?.0),
            T::Uint8 | T::Uint16 | T::Uint32 | T::Uint64 => Value::Uint(n % 90 + 100),
            T::Int32 => match member.enumeration() {
                Some(of) => Value::Int(of.values().next()?.1.into()),
                None => Value::Int(1),
            },
            T::Bool => Value::Bool(true),
            T::Mac => Value::Mac([2, 0, 0, 0, 0, n as u8]),
            T::Ipv4 | T::IpAddress => Value::Ip(Ipv4Addr::new(10, 9, 0, n as u8).into()),
            T::Ipv6 => Value::Ip(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, n as u16).into()),
            T::IpPrefix => Value::Prefix(Ipv4Addr::new(10, n as u8, 0, 0).into(), 16),
            T::Uint16Range | T::Uint32Range | T::Uint64Range => Value::Range(n % 90 + 2, n % 90 + 100),
            T::NatEntryData => {
                let key = |octet: u8| ribtide_sai::NatKey {
                    src_ip: Ipv4Addr::new(octet, octet, octet, octet),
                    dst_ip: Ipv4Addr::new(octet, octet, octet, octet),
                    proto: octet,
                    l4_src_port: 7,
                    l4_dst_port: 9,
                };
                Value::Nat(key(10), key(255))
            }
            _ => return None,
        })
    }

    fn call(&mut self, verb: Verb, object: ObjectType, id: &mut Id, attrs: &[Attr]) -> Status {
        match id {
            Id::Typed(id) => {
                let mut item = Item::new(*id, attrs.iter().cloned());
                let status = self.bench.chip.one(verb, object, &mut item);
                *id = item.id;
                status
            }
            Id::Key(key) => self.bench.chip.entry(verb, object, key, attrs).err().unwrap_or(Status::Success),
        }
    }

    /// The values of attributes; their names are those of `like`.
    fn read(&mut self, object: ObjectType, id: &Id, like: &[Attr]) -> Result<Vec<Attr>, Status> {
        let mut attrs = like.to_vec();
        match id {
            Id::Typed(id) => self.bench.chip.get(object, id, &mut attrs)?,
            Id::Key(key) => self.bench.chip.get_entry(object, key, &mut attrs)?,
        }
        Ok(attrs)
    }

    /// Creates an object of a type, and those that it names.
    fn make(&mut self, object: Type) -> Result<Id, String> {
        if self.path.contains(&object) || self.path.len() >= DEPTH_MAX {
            return Err(format!("{} names another of its type", object.short_name()));
        }
        if !is_made_by_callers(object) {
            return Err(format!("{} is made by the chip alone", object.short_name()));
        }
        self.path.push(object);
        let made = self.make_here(object);
        self.path.pop();
        made.map(|(id, _)| id)
    }

    fn make_here(&mut self, object: Type) -> Result<(Id, Vec<Attr>), String> {
        let attrs = self.attrs(object)?;
        let mut id = self.id(object).ok_or_else(|| format!("{} has no key", object.short_name()))?;
        let status = self.call(Verb::Create, typed(object), &mut id, &attrs);
        if !status.is_success() {
            return Err(format!("{} {id:?} {attrs:?}: {}", object.short_name(), status.name()));
        }
        self.made.push((typed(object), id.clone()));
        Ok((id, attrs))
    }

    /// The whole life of an object of a type.
    fn test(&mut self, object: Type) -> Result<(), String> {
        let name = object.short_name();
        let (mut id, attrs) = self.make_here(object)?;
        let sai = typed(object);
        let read = match attrs.is_empty() {
            // A get names an attribute.
            true => Vec::new(),
            false => self.read(sai, &id, &attrs).map_err(|status| format!("get of {name}: {status:?}"))?,
        };
        if read != attrs {
            return Err(format!("{name} was made with {attrs:?} and has {read:?}"));
        }
        if object.is_entry() {
            let again = self.call(Verb::Create, sai, &mut id, &attrs);
            if again != Status::ItemAlreadyExists {
                return Err(format!("second creation of {name}: {again:?}"));
            }
        }
        // One attribute that a request can change.
        let plain = |of: &Attribute| {
            of.is_create_and_set()
                && matches!(
                    of.value_type(),
                    ValueType::Bool
                        | ValueType::Uint8
                        | ValueType::Uint16
                        | ValueType::Uint32
                        | ValueType::Mac
                )
        };
        if let Some(attr) = object.attributes().find(plain).and_then(|of| self.attr(of)) {
            let status = self.call(Verb::Set, sai, &mut id, std::slice::from_ref(&attr));
            if !status.is_success() {
                return Err(format!("set of {attr:?}: {status:?}"));
            }
            let read = self.read(sai, &id, std::slice::from_ref(&attr));
            if read.as_deref() != Ok(std::slice::from_ref(&attr)) {
                return Err(format!("{name} was set to {attr:?} and has {read:?}"));
            }
        }
        // It goes first, and then the objects that it names, the newest first.
        let made = std::mem::take(&mut self.made);
        for (object, mut id) in made.into_iter().rev() {
            let status = self.call(Verb::Remove, object, &mut id, &[]);
            if !status.is_success() {
                return Err(format!("removal of {object:?} {id:?} for {name}: {status:?}"));
            }
            let again = self.call(Verb::Remove, object, &mut id, &[]);
            if !is_absent(again) {
                return Err(format!("second removal of {object:?} for {name}: {again:?}"));
            }
        }
        if attrs.is_empty() {
            return Ok(());
        }
        match self.read(sai, &id, &attrs[..1]) {
            Err(status) if is_absent(status) => Ok(()),
            other => Err(format!("{name} is removed and has {other:?}")),
        }
    }
}

pub(crate) fn every_object_type_is_created_read_changed_and_removed(bench: &mut Bench<'_>) {
    let lacks = bench.lacks.types;
    let mut maker = Maker { bench, made: Vec::new(), count: 0, path: Vec::new() };
    let (mut wrong, mut count) = (Vec::new(), 0);
    for object in Type::all().filter(|object| is_made_by_callers(*object)) {
        let lacking = lacks.contains(&object.short_name());
        maker.path = vec![object];
        let done = maker.test(object);
        maker.made.clear();
        match done {
            Ok(()) if lacking => wrong.push(format!("{} can be made after all", object.short_name())),
            Ok(()) => count += 1,
            Err(why) if lacking && why.contains("NOT_SUPPORTED") => {}
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{count} types are right; {} are not:\n{}", wrong.len(), wrong.join("\n"));
    // SAI's table has so many that callers make.
    assert_eq!(count + lacks.len(), 144);
}
