//! Values of the table as `sai_attribute_t`, and back.

use crate::abi::*;
use ribtide_sai::{
    AclResource, Attribute, CHARDATA_MAX, Key, Latch, NatKey, ObjectType, Poe, QosParams, SystemPort, Value,
    ValueType,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IPV4: i32 = 0;
const IPV6: i32 = 1;

/// The most items for which a read makes room. The count of a request or of a library never allocates more.
pub(crate) const LIST_MAX: usize = 65_536;

/// A list's items, which C reads and writes.
struct Buffer {
    /// A vector, since a box may not move while C has a pointer into it.
    words: Vec<MaybeUninit<u64>>,
    /// How many items have room in it.
    room: usize,
}

impl Buffer {
    fn of<T: Plain>(items: &[T]) -> Buffer {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let mut buffer = Buffer::with_room::<T>(items.len());
        let to = buffer.words.as_mut_ptr().cast::<T>();
        #[expect(unsafe_code, reason = "a list of C")]
        // SAFETY: `with_room` made room for so many T, aligned as a u64; the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(items.as_ptr(), to, items.len());
        }
        buffer
    }

    /// Room for so many items, all zero.
    fn with_room<T: Plain>(room: usize) -> Buffer {
        let words = (room * size_of::<T>()).div_ceil(size_of::<u64>());
        Buffer { words: vec![MaybeUninit::new(0); words], room }
    }

    fn list(&mut self, count: usize) -> sai_object_list_t {
        // A list without room has no pointer, as in sairedis.
        let list =
            if self.room == 0 { std::ptr::null_mut() } else { self.words.as_mut_ptr().cast::<c_void>() };
        sai_object_list_t { count: count as u32, list }
    }

    /// The first items, not more than have room.
    fn items<T: Plain>(&self, count: u32) -> Vec<T> {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let most = size_of_val::<[MaybeUninit<u64>]>(&self.words) / size_of::<T>();
        let count = (count as usize).min(self.room).min(most);
        let from = self.words.as_ptr().cast::<T>();
        let item = |n| {
            #[expect(unsafe_code, reason = "a list of C")]
            // SAFETY: n is below the number of T that the words have room for; they began as zeros and were written as
            // T, by us or by the library; every pattern of bits is a T.
            unsafe {
                from.add(n).read()
            }
        };
        (0..count).map(item).collect()
    }
}

/// Attributes for one call. Their lists are in buffers, which live as long.
#[derive(Default)]
pub struct Attributes {
    raw: Vec<sai_attribute_t>,
    buffers: Vec<Buffer>,
    /// The first buffer of each attribute.
    places: Vec<usize>,
}

impl Attributes {
    /// Appends an attribute with its value.
    ///
    /// # Errors
    /// A sentence when the value is not of the attribute's type, or the type has no form here.
    pub fn push(&mut self, attribute: Attribute, value: &Value) -> Result<(), String> {
        self.places.push(self.buffers.len());
        let value = self.encode(attribute.value_type(), value).ok_or_else(|| {
            format!(
                "{} has a value that is no {} of SAI's C interface",
                attribute.name(),
                attribute.value_type().name()
            )
        })?;
        self.raw.push(sai_attribute_t { id: attribute.number(), value });
        Ok(())
    }

    /// Appends an attribute to read. A list gets room for as many items as `placeholder` has.
    ///
    /// # Errors
    /// As [`Attributes::push`].
    pub fn push_room(&mut self, attribute: Attribute, placeholder: &Value) -> Result<(), String> {
        let room = room_of(placeholder).min(LIST_MAX);
        self.places.push(self.buffers.len());
        let value = self.room(attribute.value_type(), room).ok_or_else(|| {
            format!(
                "{} has values of type {}, which cannot be read",
                attribute.name(),
                attribute.value_type().name()
            )
        })?;
        self.raw.push(sai_attribute_t { id: attribute.number(), value });
        Ok(())
    }

    /// A function of C, as the value of an attribute.
    pub fn push_pointer(&mut self, attribute: Attribute, pointer: *const c_void) {
        self.places.push(self.buffers.len());
        self.raw.push(sai_attribute_t { id: attribute.number(), value: Union5::of(pointer as u64) });
    }

    /// The number of attributes.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    pub(crate) fn as_ptr(&self) -> *const sai_attribute_t {
        self.raw.as_ptr()
    }

    /// A copy of the first attribute; its list, if it has one, is that of this one.
    pub(crate) fn first(&self) -> Option<sai_attribute_t> {
        self.raw.first().copied()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sai_attribute_t {
        self.raw.as_mut_ptr()
    }

    /// The value of an attribute after a call that reads it.
    pub fn value(&self, at: usize, attribute: Attribute) -> Option<Value> {
        let buffers = self.buffers.get(*self.places.get(at)?..)?;
        decode(attribute.value_type(), &self.raw.get(at)?.value, buffers)
    }

    /// The number of items that a list has, which may be more than had room; `None` for other values.
    pub fn count(&self, at: usize, attribute: Attribute) -> Option<u32> {
        let value = &self.raw.get(at)?.value;
        let kind = attribute.value_type();
        if kind == ValueType::AclCapability {
            return Some(value.get::<sai_acl_capability_t>().action_list.count);
        }
        (kind.is_list() && kind.acl_field().is_none() && kind.acl_action().is_none())
            .then(|| value.get::<sai_object_list_t>().count)
    }

    fn list<T: Plain>(&mut self, items: &[T]) -> sai_object_list_t {
        let mut buffer = Buffer::of(items);
        let list = buffer.list(items.len());
        self.buffers.push(buffer);
        list
    }

    fn list_room<T: Plain>(&mut self, room: usize) -> sai_object_list_t {
        let mut buffer = Buffer::with_room::<T>(room);
        let list = buffer.list(room);
        self.buffers.push(buffer);
        list
    }

    fn encode(&mut self, kind: ValueType, value: &Value) -> Option<Union5> {
        use ValueType as T;
        if let Some(data) = kind.acl_field() {
            let (enable, data, mask) = match value {
                Value::Disabled => (0, Union2::ZERO, Union2::ZERO),
                Value::Field(value, mask) => {
                    let value = self.encode_small(data, value)?;
                    let mask = match mask {
                        Some(mask) => self.encode_small(data, mask)?,
                        None => Union2::ZERO,
                    };
                    (1, value, mask)
                }
                _ => return None,
            };
            return Some(Union5::of(sai_acl_field_data_t { enable, mask, data }));
        }
        if let Some(data) = kind.acl_action() {
            let (enable, parameter) = match value {
                Value::Disabled => (0, Union3::ZERO),
                Value::Action(value) => match (data, &**value) {
                    (T::IpAddress, Value::Ip(ip)) => (1, Union3::of(address(*ip))),
                    (_, value) => (1, Union3::of(self.encode_small(data, value)?)),
                },
                _ => return None,
            };
            return Some(Union5::of(sai_acl_action_data_t { enable, parameter }));
        }
        Some(match (kind, value) {
            (T::Chardata, Value::Chars(chars)) => Union5::of(padded::<CHARDATA_MAX>(chars)?),
            (T::IpAddress, Value::Ip(ip)) => Union5::of(address(*ip)),
            (T::IpPrefix, Value::Prefix(ip, len)) => Union5::of(prefix(*ip, *len)),
            (T::Uint16Range, Value::Range(min, max)) => {
                Union5::of(sai_u16_range_t { min: (*min).try_into().ok()?, max: (*max).try_into().ok()? })
            }
            (T::Uint32Range, Value::Range(min, max)) => {
                Union5::of(sai_u32_range_t { min: (*min).try_into().ok()?, max: (*max).try_into().ok()? })
            }
            (T::Uint64Range, Value::Range(min, max)) => Union5::of(sai_u64_range_t { min: *min, max: *max }),
            (T::Uint16RangeList, Value::Ranges(ranges)) => {
                let ranges: Vec<sai_u16_range_t> = ranges
                    .iter()
                    .map(|(min, max)| {
                        Some(sai_u16_range_t { min: (*min).try_into().ok()?, max: (*max).try_into().ok()? })
                    })
                    .collect::<Option<_>>()?;
                Union5::of(self.list(&ranges))
            }
            (T::Uint64RangeList, Value::Ranges(ranges)) => {
                let ranges: Vec<_> =
                    ranges.iter().map(|(min, max)| sai_u64_range_t { min: *min, max: *max }).collect();
                Union5::of(self.list(&ranges))
            }
            (T::IpAddressList, Value::Ips(ips)) => {
                let ips: Vec<_> = ips.iter().map(|ip| address(*ip)).collect();
                Union5::of(self.list(&ips))
            }
            (T::SegmentList, Value::Ips(ips)) => {
                let segments: Vec<[u8; 16]> = ips.iter().map(|ip| ipv6(*ip)).collect::<Option<_>>()?;
                Union5::of(self.list(&segments))
            }
            (T::IpPrefixList, Value::Prefixes(prefixes)) => {
                let prefixes: Vec<_> = prefixes.iter().map(|(ip, len)| prefix(*ip, *len)).collect();
                Union5::of(self.list(&prefixes))
            }
            (T::EncryptKey | T::MacsecSak, Value::Bytes(bytes)) => Union5::of(padded::<32>(bytes)?),
            (T::AuthKey | T::MacsecAuthKey, Value::Bytes(bytes)) => Union5::of(padded::<16>(bytes)?),
            (T::MacsecSalt, Value::Bytes(bytes)) => Union5::of(padded::<12>(bytes)?),
            (T::AclCapability, Value::Capability(mandatory, actions)) => {
                let actions: Vec<i32> =
                    actions.iter().map(|n| i32::try_from(*n).ok()).collect::<Option<_>>()?;
                Union5::of(capability(*mandatory, self.list(&actions)))
            }
            (T::AclResourceList, Value::AclResources(resources)) => {
                let resources: Vec<_> = resources.iter().map(acl_resource).collect();
                Union5::of(self.list(&resources))
            }
            (T::MapList, Value::Map(pairs)) => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(key, value)| sai_map_t { key: *key, value: *value }).collect();
                Union5::of(self.list(&pairs))
            }
            (T::QosMapList, Value::QosMap(pairs)) => {
                let pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| sai_qos_map_t { key: qos(key), value: qos(value) })
                    .collect();
                Union5::of(self.list(&pairs))
            }
            (T::SystemPortConfig, Value::SystemPorts(ports)) => Union5::of(system_port(ports.first()?)),
            (T::SystemPortConfigList, Value::SystemPorts(ports)) => {
                let ports: Vec<_> = ports.iter().map(system_port).collect();
                Union5::of(self.list(&ports))
            }
            (T::LatchStatus, Value::Latch(status)) => Union5::of(latch(status)),
            (T::PortLaneLatchStatusList, Value::Latches(lanes)) => {
                let lanes: Vec<_> = lanes
                    .iter()
                    .map(|(lane, status)| sai_port_lane_latch_status_t { lane: *lane, value: latch(status) })
                    .collect();
                Union5::of(self.list(&lanes))
            }
            (T::PortSnrList, Value::Snr(lanes)) => {
                let lanes: Vec<_> = lanes
                    .iter()
                    .map(|(lane, snr)| sai_port_snr_values_t { lane: *lane, snr: *snr })
                    .collect();
                Union5::of(self.list(&lanes))
            }
            (T::TapsList, Value::Taps(taps)) => {
                let taps: Vec<_> = taps.iter().map(|lanes| self.list(lanes)).collect();
                Union5::of(self.list(&taps))
            }
            (T::Json, Value::Json(bytes)) => Union5::of(self.list(bytes)),
            (T::PoePortPowerConsumption, Value::Poe(consumption)) => Union5::of(poe(consumption)),
            // Larger than the union of attributes: it is a member of keys only.
            (T::NatEntryData, Value::Nat(..)) => return None,
            (kind, value) => Union5::of(self.encode_small(kind, value)?),
        })
    }

    /// Values that an ACL field can have too.
    fn encode_small(&mut self, kind: ValueType, value: &Value) -> Option<Union2> {
        use ValueType as T;
        Some(match (kind, value) {
            (T::Bool, Value::Bool(value)) => Union2::of(u8::from(*value)),
            (T::Uint8, Value::Uint(value)) => Union2::of(u8::try_from(*value).ok()?),
            (T::Uint16, Value::Uint(value)) => Union2::of(u16::try_from(*value).ok()?),
            (T::Uint32, Value::Uint(value)) => Union2::of(u32::try_from(*value).ok()?),
            (T::Uint64 | T::Pointer, Value::Uint(value)) => Union2::of(*value),
            (T::Int8, Value::Int(value)) => Union2::of(i8::try_from(*value).ok()?),
            (T::Int16, Value::Int(value)) => Union2::of(i16::try_from(*value).ok()?),
            (T::Int32, Value::Int(value)) => Union2::of(i32::try_from(*value).ok()?),
            (T::Mac, Value::Mac(mac)) => Union2::of(*mac),
            (T::Ipv4, Value::Ip(IpAddr::V4(ip))) => Union2::of(ip.octets()),
            (T::Ipv6, Value::Ip(ip)) => Union2::of(ipv6(*ip)?),
            (T::ObjectId, Value::Oid(oid)) => Union2::of(*oid),
            (T::ObjectList, Value::Oids(oids)) => Union2::of(self.list(oids)),
            (T::Uint8List, Value::Uints(numbers)) => {
                let numbers: Vec<u8> = numbers.iter().map(|n| (*n).try_into().ok()).collect::<Option<_>>()?;
                Union2::of(self.list(&numbers))
            }
            (T::Uint16List | T::VlanList, Value::Uints(numbers)) => {
                let numbers: Vec<u16> =
                    numbers.iter().map(|n| (*n).try_into().ok()).collect::<Option<_>>()?;
                Union2::of(self.list(&numbers))
            }
            (T::Uint32List, Value::Uints(numbers)) => {
                let numbers: Vec<u32> =
                    numbers.iter().map(|n| (*n).try_into().ok()).collect::<Option<_>>()?;
                Union2::of(self.list(&numbers))
            }
            (T::Int8List, Value::Ints(numbers)) => {
                let numbers: Vec<i8> = numbers.iter().map(|n| (*n).try_into().ok()).collect::<Option<_>>()?;
                Union2::of(self.list(&numbers))
            }
            (T::Int32List, Value::Ints(numbers)) => {
                let numbers: Vec<i32> =
                    numbers.iter().map(|n| (*n).try_into().ok()).collect::<Option<_>>()?;
                Union2::of(self.list(&numbers))
            }
            _ => return None,
        })
    }

    /// The value of an attribute before it is read.
    fn room(&mut self, kind: ValueType, room: usize) -> Option<Union5> {
        use ValueType as T;
        if !kind.has_text() || matches!(kind, T::TapsList | T::NatEntryData) {
            return None;
        }
        if let Some(data) = kind.acl_field() {
            let lists = matches!(data, T::ObjectList | T::Uint8List);
            let (data, mask) = match lists {
                true => (self.small_room(data, room), self.small_room(data, room)),
                false => (Union2::ZERO, Union2::ZERO),
            };
            return Some(Union5::of(sai_acl_field_data_t { enable: 0, mask, data }));
        }
        if let Some(data) = kind.acl_action() {
            let parameter = Union3::of(self.small_room(data, room));
            return Some(Union5::of(sai_acl_action_data_t { enable: 0, parameter }));
        }
        Some(match kind {
            T::Uint16RangeList => Union5::of(self.list_room::<sai_u16_range_t>(room)),
            T::Uint64RangeList => Union5::of(self.list_room::<sai_u64_range_t>(room)),
            T::IpAddressList => Union5::of(self.list_room::<sai_ip_address_t>(room)),
            T::SegmentList => Union5::of(self.list_room::<[u8; 16]>(room)),
            T::IpPrefixList => Union5::of(self.list_room::<sai_ip_prefix_t>(room)),
            T::AclCapability => Union5::of(capability(false, self.list_room::<i32>(room))),
            T::AclResourceList => Union5::of(self.list_room::<sai_acl_resource_t>(room)),
            T::MapList => Union5::of(self.list_room::<sai_map_t>(room)),
            T::QosMapList => Union5::of(self.list_room::<sai_qos_map_t>(room)),
            T::SystemPortConfigList => Union5::of(self.list_room::<sai_system_port_config_t>(room)),
            T::PortLaneLatchStatusList => Union5::of(self.list_room::<sai_port_lane_latch_status_t>(room)),
            T::PortSnrList => Union5::of(self.list_room::<sai_port_snr_values_t>(room)),
            T::Json => Union5::of(self.list_room::<u8>(room)),
            kind => Union5::of(self.small_room(kind, room)),
        })
    }

    fn small_room(&mut self, kind: ValueType, room: usize) -> Union2 {
        use ValueType as T;
        match kind {
            T::ObjectList => Union2::of(self.list_room::<u64>(room)),
            T::Uint8List | T::Int8List => Union2::of(self.list_room::<u8>(room)),
            T::Uint16List | T::VlanList => Union2::of(self.list_room::<u16>(room)),
            T::Uint32List | T::Int32List => Union2::of(self.list_room::<u32>(room)),
            _ => Union2::ZERO,
        }
    }
}

/// The room that a placeholder of a request stands for.
fn room_of(placeholder: &Value) -> usize {
    match placeholder {
        Value::Room(count) | Value::Count(count) => *count as usize,
        Value::Oids(items) => items.len(),
        Value::Uints(items) => items.len(),
        Value::Ints(items) => items.len(),
        Value::Ranges(items) => items.len(),
        Value::Ips(items) => items.len(),
        Value::Prefixes(items) => items.len(),
        Value::Capability(_, actions) => actions.len(),
        Value::AclResources(items) => items.len(),
        Value::Map(items) => items.len(),
        Value::QosMap(items) => items.len(),
        Value::SystemPorts(items) => items.len(),
        Value::Latches(items) => items.len(),
        Value::Snr(items) => items.len(),
        Value::Json(bytes) => bytes.len(),
        Value::Field(value, _) | Value::Action(value) => room_of(value),
        _ => 0,
    }
}

/// The value of a type without lists.
pub(crate) fn plain_value(kind: ValueType, value: &Union5) -> Option<Value> {
    decode(kind, value, &[])
}

fn decode(kind: ValueType, value: &Union5, buffers: &[Buffer]) -> Option<Value> {
    use ValueType as T;
    let items = |list: sai_object_list_t| Some((buffers.first()?, list.count));
    if let Some(data) = kind.acl_field() {
        let field = value.get::<sai_acl_field_data_t>();
        if field.enable == 0 {
            return Some(Value::Disabled);
        }
        let masked = !matches!(data, T::Bool | T::ObjectId | T::ObjectList);
        let mask = match masked {
            true => Some(Box::new(decode_small(data, &field.mask, buffers.get(1..).unwrap_or_default())?)),
            false => None,
        };
        return Some(Value::Field(Box::new(decode_small(data, &field.data, buffers)?), mask));
    }
    if let Some(data) = kind.acl_action() {
        let action = value.get::<sai_acl_action_data_t>();
        if action.enable == 0 {
            return Some(Value::Disabled);
        }
        let parameter = match data {
            T::IpAddress => Value::Ip(ip(action.parameter.get())?),
            data => decode_small(data, &action.parameter.get::<Union2>(), buffers)?,
        };
        return Some(Value::Action(Box::new(parameter)));
    }
    Some(match kind {
        T::Chardata => {
            let bytes = value.get::<[u8; CHARDATA_MAX]>();
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            Value::Chars(bytes[..end].to_vec())
        }
        T::IpAddress => Value::Ip(ip(value.get())?),
        T::IpPrefix => prefix_of(value.get()).map(|(ip, len)| Value::Prefix(ip, len))?,
        T::Uint16Range => {
            let range = value.get::<sai_u16_range_t>();
            Value::Range(range.min.into(), range.max.into())
        }
        T::Uint32Range => {
            let range = value.get::<sai_u32_range_t>();
            Value::Range(range.min.into(), range.max.into())
        }
        T::Uint64Range => {
            let range = value.get::<sai_u64_range_t>();
            Value::Range(range.min, range.max)
        }
        T::Uint16RangeList => {
            let (buffer, count) = items(value.get())?;
            let ranges = buffer.items::<sai_u16_range_t>(count);
            Value::Ranges(ranges.iter().map(|range| (range.min.into(), range.max.into())).collect())
        }
        T::Uint64RangeList => {
            let (buffer, count) = items(value.get())?;
            let ranges = buffer.items::<sai_u64_range_t>(count);
            Value::Ranges(ranges.iter().map(|range| (range.min, range.max)).collect())
        }
        T::IpAddressList => {
            let (buffer, count) = items(value.get())?;
            let ips = buffer.items::<sai_ip_address_t>(count);
            Value::Ips(ips.into_iter().map(ip).collect::<Option<_>>()?)
        }
        T::SegmentList => {
            let (buffer, count) = items(value.get())?;
            let segments = buffer.items::<[u8; 16]>(count);
            Value::Ips(segments.into_iter().map(|bytes| IpAddr::V6(bytes.into())).collect())
        }
        T::IpPrefixList => {
            let (buffer, count) = items(value.get())?;
            let prefixes = buffer.items::<sai_ip_prefix_t>(count);
            Value::Prefixes(prefixes.into_iter().map(prefix_of).collect::<Option<_>>()?)
        }
        T::EncryptKey | T::MacsecSak => Value::Bytes(value.get::<[u8; 32]>().into()),
        T::AuthKey | T::MacsecAuthKey => Value::Bytes(value.get::<[u8; 16]>().into()),
        T::MacsecSalt => Value::Bytes(value.get::<[u8; 12]>().into()),
        T::AclCapability => {
            let capability = value.get::<sai_acl_capability_t>();
            let (buffer, count) = items(capability.action_list)?;
            let actions = buffer.items::<i32>(count).into_iter().map(i64::from).collect();
            Value::Capability(capability.is_action_list_mandatory != 0, actions)
        }
        T::AclResourceList => {
            let (buffer, count) = items(value.get())?;
            let resource = |of: sai_acl_resource_t| AclResource {
                stage: of.stage,
                bind_point: of.bind_point,
                available: of.avail_num,
            };
            Value::AclResources(buffer.items(count).into_iter().map(resource).collect())
        }
        T::MapList => {
            let (buffer, count) = items(value.get())?;
            Value::Map(buffer.items(count).into_iter().map(|map: sai_map_t| (map.key, map.value)).collect())
        }
        T::QosMapList => {
            let (buffer, count) = items(value.get())?;
            let pair = |map: sai_qos_map_t| (qos_of(map.key), qos_of(map.value));
            Value::QosMap(buffer.items(count).into_iter().map(pair).collect())
        }
        T::SystemPortConfig => Value::SystemPorts(vec![system_port_of(value.get())]),
        T::SystemPortConfigList => {
            let (buffer, count) = items(value.get())?;
            Value::SystemPorts(buffer.items(count).into_iter().map(system_port_of).collect())
        }
        T::LatchStatus => Value::Latch(latch_of(value.get())),
        T::PortLaneLatchStatusList => {
            let (buffer, count) = items(value.get())?;
            let lane = |of: sai_port_lane_latch_status_t| (of.lane, latch_of(of.value));
            Value::Latches(buffer.items(count).into_iter().map(lane).collect())
        }
        T::PortSnrList => {
            let (buffer, count) = items(value.get())?;
            let lane = |of: sai_port_snr_values_t| (of.lane, of.snr);
            Value::Snr(buffer.items(count).into_iter().map(lane).collect())
        }
        T::Json => {
            let (buffer, count) = items(value.get())?;
            Value::Json(buffer.items(count))
        }
        T::PoePortPowerConsumption => Value::Poe(poe_of(value.get())),
        kind => decode_small(kind, &value.get::<Union2>(), buffers)?,
    })
}

fn decode_small(kind: ValueType, value: &Union2, buffers: &[Buffer]) -> Option<Value> {
    use ValueType as T;
    let items = || Some((buffers.first()?, value.get::<sai_object_list_t>().count));
    Some(match kind {
        T::Bool => Value::Bool(value.get::<u8>() != 0),
        T::Uint8 => Value::Uint(value.get::<u8>().into()),
        T::Uint16 => Value::Uint(value.get::<u16>().into()),
        T::Uint32 => Value::Uint(value.get::<u32>().into()),
        T::Uint64 | T::Pointer => Value::Uint(value.get()),
        T::Int8 => Value::Int(value.get::<i8>().into()),
        T::Int16 => Value::Int(value.get::<i16>().into()),
        T::Int32 => Value::Int(value.get::<i32>().into()),
        T::Mac => Value::Mac(value.get()),
        T::Ipv4 => Value::Ip(IpAddr::V4(value.get::<[u8; 4]>().into())),
        T::Ipv6 => Value::Ip(IpAddr::V6(value.get::<[u8; 16]>().into())),
        T::ObjectId => Value::Oid(value.get()),
        T::ObjectList => {
            let (buffer, count) = items()?;
            Value::Oids(buffer.items(count))
        }
        T::Uint8List => {
            let (buffer, count) = items()?;
            Value::Uints(buffer.items::<u8>(count).into_iter().map(u64::from).collect())
        }
        T::Uint16List | T::VlanList => {
            let (buffer, count) = items()?;
            Value::Uints(buffer.items::<u16>(count).into_iter().map(u64::from).collect())
        }
        T::Uint32List => {
            let (buffer, count) = items()?;
            Value::Uints(buffer.items::<u32>(count).into_iter().map(u64::from).collect())
        }
        T::Int8List => {
            let (buffer, count) = items()?;
            Value::Ints(buffer.items::<i8>(count).into_iter().map(i64::from).collect())
        }
        T::Int32List => {
            let (buffer, count) = items()?;
            Value::Ints(buffer.items::<i32>(count).into_iter().map(i64::from).collect())
        }
        _ => return None,
    })
}

fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut padded = [0; N];
    padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(padded)
}

fn ipv6(ip: IpAddr) -> Option<[u8; 16]> {
    match ip {
        IpAddr::V6(ip) => Some(ip.octets()),
        IpAddr::V4(_) => None,
    }
}

/// Addresses are in network byte order.
fn raw_address(ip: IpAddr) -> (i32, sai_ip_addr_t) {
    let mut bytes = [0; 16];
    let family = match ip {
        IpAddr::V4(ip) => {
            bytes[..4].copy_from_slice(&ip.octets());
            IPV4
        }
        IpAddr::V6(ip) => {
            bytes = ip.octets();
            IPV6
        }
    };
    (family, sai_ip_addr_t(bytes))
}

pub(crate) fn address(ip: IpAddr) -> sai_ip_address_t {
    let (addr_family, addr) = raw_address(ip);
    sai_ip_address_t { addr_family, addr }
}

pub(crate) fn prefix(ip: IpAddr, len: u8) -> sai_ip_prefix_t {
    let (addr_family, addr) = raw_address(ip);
    let mask = match addr_family {
        IPV4 => IpAddr::V4(u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0).into()),
        _ => IpAddr::V6(u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0).into()),
    };
    sai_ip_prefix_t { addr_family, addr, mask: raw_address(mask).1 }
}

fn ip_of(family: i32, addr: sai_ip_addr_t) -> Option<IpAddr> {
    let [a, b, c, d, ..] = addr.0;
    match family {
        IPV4 => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        IPV6 => Some(IpAddr::V6(Ipv6Addr::from(addr.0))),
        _ => None,
    }
}

fn ip(address: sai_ip_address_t) -> Option<IpAddr> {
    ip_of(address.addr_family, address.addr)
}

/// `None` for a mask with a hole.
fn prefix_of(prefix: sai_ip_prefix_t) -> Option<(IpAddr, u8)> {
    let ip = ip_of(prefix.addr_family, prefix.addr)?;
    let (ones, len) = match ip_of(prefix.addr_family, prefix.mask)? {
        IpAddr::V4(mask) => (u32::from(mask).leading_ones(), u32::from(mask).count_ones()),
        IpAddr::V6(mask) => (u128::from(mask).leading_ones(), u128::from(mask).count_ones()),
    };
    (ones == len).then_some((ip, len as u8))
}

fn capability(mandatory: bool, action_list: sai_object_list_t) -> sai_acl_capability_t {
    sai_acl_capability_t {
        is_action_list_mandatory: mandatory.into(),
        action_list,
        supported_match_type: 0,
        is_non_contiguous_bits_exact_match_supported: 0,
    }
}

fn acl_resource(resource: &AclResource) -> sai_acl_resource_t {
    let AclResource { stage, bind_point, available } = *resource;
    sai_acl_resource_t { stage, bind_point, avail_num: available }
}

fn qos(params: &QosParams) -> sai_qos_map_params_t {
    let QosParams { tc, dscp, dot1p, prio, pg, queue_index, color, mpls_exp, fc } = *params;
    sai_qos_map_params_t { tc, dscp, dot1p, prio, pg, queue_index, color, mpls_exp, fc }
}

fn qos_of(params: sai_qos_map_params_t) -> QosParams {
    let sai_qos_map_params_t { tc, dscp, dot1p, prio, pg, queue_index, color, mpls_exp, fc } = params;
    QosParams { tc, dscp, dot1p, prio, pg, queue_index, color, mpls_exp, fc }
}

fn system_port(port: &SystemPort) -> sai_system_port_config_t {
    let SystemPort {
        port_id,
        attached_switch_id,
        attached_core_index,
        attached_core_port_index,
        speed,
        num_voq,
    } = *port;
    sai_system_port_config_t {
        port_id,
        attached_switch_id,
        attached_core_index,
        attached_core_port_index,
        speed,
        num_voq,
    }
}

fn system_port_of(port: sai_system_port_config_t) -> SystemPort {
    let sai_system_port_config_t {
        port_id,
        attached_switch_id,
        attached_core_index,
        attached_core_port_index,
        speed,
        num_voq,
    } = port;
    SystemPort { port_id, attached_switch_id, attached_core_index, attached_core_port_index, speed, num_voq }
}

fn latch(latch: &Latch) -> sai_latch_status_t {
    sai_latch_status_t { current_status: latch.current.into(), changed: latch.changed.into() }
}

fn latch_of(status: sai_latch_status_t) -> Latch {
    Latch { current: status.current_status != 0, changed: status.changed != 0 }
}

fn poe(poe: &Poe) -> sai_poe_port_power_consumption_t {
    sai_poe_port_power_consumption_t {
        active_channel: poe.active_channel,
        voltage: poe.voltage,
        current: poe.current,
        consumption: poe.consumption,
        signature_type: poe.signature_type,
        class_method: poe.class_method,
        measured_class_a: poe.measured_class_a,
        assigned_class_a: poe.assigned_class_a,
        measured_class_b: poe.measured_class_b,
        assigned_class_b: poe.assigned_class_b,
    }
}

fn poe_of(poe: sai_poe_port_power_consumption_t) -> Poe {
    Poe {
        active_channel: poe.active_channel,
        voltage: poe.voltage,
        current: poe.current,
        consumption: poe.consumption,
        signature_type: poe.signature_type,
        class_method: poe.class_method,
        measured_class_a: poe.measured_class_a,
        assigned_class_a: poe.assigned_class_a,
        measured_class_b: poe.measured_class_b,
        assigned_class_b: poe.assigned_class_b,
    }
}

fn nat(key: &NatKey) -> sai_nat_entry_key_t {
    sai_nat_entry_key_t {
        src_ip: sai_ip4_t(key.src_ip.octets()),
        dst_ip: sai_ip4_t(key.dst_ip.octets()),
        proto: key.proto,
        l4_src_port: key.l4_src_port,
        l4_dst_port: key.l4_dst_port,
    }
}

/// Keys of one type as an array of the structure of C, such as `sai_route_entry_t`.
#[derive(Debug)]
pub struct RawKeys {
    /// Every such structure begins with the switch, so its alignment is that of a `u64`.
    words: Vec<u64>,
    /// The size of one.
    size: usize,
}

/// Size and alignment of a member of a key in C.
fn shape(kind: ValueType) -> Option<(usize, usize)> {
    use ValueType as T;
    Some(match kind {
        T::Bool | T::Uint8 => (1, 1),
        T::Uint16 => (2, 2),
        T::Uint32 | T::Int32 => (4, 4),
        T::Uint64 | T::ObjectId => (8, 8),
        T::Mac => (6, 1),
        T::Ipv4 => (4, 4),
        T::Ipv6 => (16, 1),
        T::IpAddress => (size_of::<sai_ip_address_t>(), align_of::<sai_ip_address_t>()),
        T::IpPrefix => (size_of::<sai_ip_prefix_t>(), align_of::<sai_ip_prefix_t>()),
        T::Uint32Range => (size_of::<sai_u32_range_t>(), align_of::<sai_u32_range_t>()),
        // Its addresses are numbers of 32 bits in C.
        T::NatEntryData => (size_of::<sai_nat_entry_data_t>(), 4),
        _ => return None,
    })
}

/// The offset of each member of a key, and the size of the structure, by the rules of C.
pub fn key_layout(object: ObjectType) -> Option<(Vec<usize>, usize)> {
    let (mut offsets, mut end, mut most) = (Vec::new(), 0usize, 1);
    for member in object.key() {
        let (size, align) = shape(member.value_type())?;
        let at = end.next_multiple_of(align);
        offsets.push(at);
        end = at + size;
        most = most.max(align);
    }
    Some((offsets, end.next_multiple_of(most)))
}

impl RawKeys {
    /// The structures of keys.
    ///
    /// # Errors
    /// A sentence when a member has no value of its type.
    pub fn new<'a>(object: ObjectType, keys: impl IntoIterator<Item = &'a Key>) -> Result<RawKeys, String> {
        let wrong = |what: &str| format!("the key of a {} has {what}", object.name());
        let (offsets, size) = key_layout(object).ok_or_else(|| wrong("a member of an unknown type"))?;
        let (mut words, mut bytes) = (Vec::new(), vec![0; size]);
        for key in keys {
            if key.len() != offsets.len() || !size.is_multiple_of(size_of::<u64>()) {
                return Err(wrong("another number of members"));
            }
            bytes.fill(0);
            for ((member, value), at) in object.key().zip(key).zip(&offsets) {
                let part = member_bytes(member.value_type(), value).ok_or_else(|| {
                    wrong(&format!("no {} as its {}", member.value_type().name(), member.name()))
                })?;
                bytes[*at..at + part.len()].copy_from_slice(&part);
            }
            let word = |word: &[u8]| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            words.extend(bytes.chunks_exact(size_of::<u64>()).map(|bytes| u64::from_le(word(bytes))));
        }
        Ok(RawKeys { words, size })
    }

    /// The bytes of the structures, one after another.
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The size of one structure.
    pub fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.words.as_ptr().cast()
    }
}

/// A member of a key as bytes of C.
fn member_bytes(kind: ValueType, value: &Value) -> Option<Vec<u8>> {
    use ValueType as T;
    let with_family = |family: i32, parts: &[[u8; 16]]| {
        let mut bytes = family.to_ne_bytes().to_vec();
        parts.iter().for_each(|part| bytes.extend(part));
        bytes
    };
    Some(match (kind, value) {
        (T::Bool, Value::Bool(value)) => vec![u8::from(*value)],
        (T::Uint8, Value::Uint(value)) => vec![u8::try_from(*value).ok()?],
        (T::Uint16, Value::Uint(value)) => u16::try_from(*value).ok()?.to_ne_bytes().into(),
        (T::Uint32, Value::Uint(value)) => u32::try_from(*value).ok()?.to_ne_bytes().into(),
        (T::Uint64, Value::Uint(value)) | (T::ObjectId, Value::Oid(value)) => value.to_ne_bytes().into(),
        (T::Int32, Value::Int(value)) => i32::try_from(*value).ok()?.to_ne_bytes().into(),
        (T::Mac, Value::Mac(mac)) => mac.to_vec(),
        (T::Ipv4, Value::Ip(IpAddr::V4(ip))) => ip.octets().into(),
        (T::Ipv6, Value::Ip(ip)) => ipv6(*ip)?.into(),
        (T::IpAddress, Value::Ip(ip)) => {
            let (family, addr) = raw_address(*ip);
            with_family(family, &[addr.0])
        }
        (T::IpPrefix, Value::Prefix(ip, len)) => {
            let raw = prefix(*ip, *len);
            with_family(raw.addr_family, &[raw.addr.0, raw.mask.0])
        }
        (T::Uint32Range, Value::Range(min, max)) => {
            let ends = [u32::try_from(*min).ok()?, u32::try_from(*max).ok()?];
            ends.into_iter().flat_map(u32::to_ne_bytes).collect()
        }
        (T::NatEntryData, Value::Nat(key, mask)) => {
            [nat(key), nat(mask)].into_iter().flat_map(nat_bytes).collect()
        }
        _ => return None,
    })
}

/// The bytes of a structure that has padding after `proto`.
fn nat_bytes(key: sai_nat_entry_key_t) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<sai_nat_entry_key_t>()];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(std::mem::offset_of!(sai_nat_entry_key_t, src_ip), &key.src_ip.0);
    put(std::mem::offset_of!(sai_nat_entry_key_t, dst_ip), &key.dst_ip.0);
    put(std::mem::offset_of!(sai_nat_entry_key_t, proto), &[key.proto]);
    put(std::mem::offset_of!(sai_nat_entry_key_t, l4_src_port), &key.l4_src_port.to_ne_bytes());
    put(std::mem::offset_of!(sai_nat_entry_key_t, l4_dst_port), &key.l4_dst_port.to_ne_bytes());
    bytes
}
