//! Values of attributes and of members of keys, and their text in sairedis.
//!
//! The text is that of sonic-sairedis (`meta/SaiSerialize.cpp`), in ASIC_DB, in requests and in replies. Types without
//! a text there have none here: [`Value::read`] refuses them. Writing to a string cannot fail.

use crate::{Attribute, Enum, KeyMember, ValueType, json};
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bytes of `chardata`.
pub const CHARDATA_MAX: usize = 32;

/// A value. [`Value::read`] has the variant of each value type.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `BOOL`
    Bool(bool),
    /// `CHARDATA`: at most [`CHARDATA_MAX`] bytes, without those behind the first NUL.
    Chars(Vec<u8>),
    /// An unsigned number, or a pointer.
    Uint(u64),
    /// A signed number; an enumeration's too.
    Int(i64),
    /// `MAC`
    Mac([u8; 6]),
    /// `IPV4`, `IPV6` or `IP_ADDRESS`
    Ip(IpAddr),
    /// `IP_PREFIX`: the address with the bits behind the length, and the length.
    Prefix(IpAddr, u8),
    /// `OBJECT_ID`
    Oid(u64),
    /// `OBJECT_LIST`
    Oids(Vec<u64>),
    /// A list of unsigned numbers: `UINT8_LIST`, `VLAN_LIST`, …
    Uints(Vec<u64>),
    /// A list of signed numbers or of values of an enumeration.
    Ints(Vec<i64>),
    /// A range of unsigned numbers, both ends included.
    Range(u64, u64),
    /// A list of ranges.
    Ranges(Vec<(u64, u64)>),
    /// `IP_ADDRESS_LIST`, or the segments of a `SEGMENT_LIST`.
    Ips(Vec<IpAddr>),
    /// `IP_PREFIX_LIST`
    Prefixes(Vec<(IpAddr, u8)>),
    /// Bytes of a key or a salt.
    Bytes(Vec<u8>),
    /// An ACL field or action that is off.
    Disabled,
    /// An ACL field: the value to compare with, and the bits that are compared, if the type has a mask.
    Field(Box<Value>, Option<Box<Value>>),
    /// The parameter of an ACL action.
    Action(Box<Value>),
    /// `ACL_CAPABILITY`: whether an action list is mandatory, and the actions (`sai_acl_action_type_t`).
    Capability(bool, Vec<i64>),
    /// `ACL_RESOURCE_LIST`
    AclResources(Vec<AclResource>),
    /// `MAP_LIST`: keys and values.
    Map(Vec<(u32, i32)>),
    /// `QOS_MAP_LIST`: keys and values.
    QosMap(Vec<(QosParams, QosParams)>),
    /// `SYSTEM_PORT_CONFIG` has one, `SYSTEM_PORT_CONFIG_LIST` any number.
    SystemPorts(Vec<SystemPort>),
    /// `LATCH_STATUS`
    Latch(Latch),
    /// `PORT_LANE_LATCH_STATUS_LIST`: lanes with their statuses.
    Latches(Vec<(u32, Latch)>),
    /// `PORT_SNR_LIST`: lanes with their signal-to-noise ratios, in 1/256 dB.
    Snr(Vec<(u32, u16)>),
    /// `TAPS_LIST`: for each tap its value on each lane.
    Taps(Vec<Vec<i32>>),
    /// `JSON`: the text.
    Json(Vec<u8>),
    /// `POE_PORT_POWER_CONSUMPTION`
    Poe(Poe),
    /// `NAT_ENTRY_DATA`: the key and its mask.
    Nat(NatKey, NatKey),
    /// A list of so many unknown items: the room that a caller has for a list.
    Room(u32),
    /// The length of a list, without the list: how sairedis replies that the room for a list is too small.
    Count(u32),
}

/// `sai_acl_resource_t`
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AclResource {
    /// `sai_acl_stage_t`
    pub stage: i32,
    /// `sai_acl_bind_point_type_t`
    pub bind_point: i32,
    /// Free entries.
    pub available: u32,
}

/// `sai_qos_map_params_t`, with the names of its members.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "the names are those of SAI's structure, where they are documented")]
pub struct QosParams {
    pub tc: u8,
    pub dscp: u8,
    pub dot1p: u8,
    pub prio: u8,
    pub pg: u8,
    pub queue_index: u8,
    /// `sai_packet_color_t`
    pub color: i32,
    pub mpls_exp: u8,
    pub fc: u8,
}

/// `sai_system_port_config_t`, with the names of its members.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "the names are those of SAI's structure, where they are documented")]
pub struct SystemPort {
    pub port_id: u32,
    pub attached_switch_id: u32,
    pub attached_core_index: u32,
    pub attached_core_port_index: u32,
    pub speed: u32,
    pub num_voq: u32,
}

/// `sai_latch_status_t`
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latch {
    /// The present state.
    pub current: bool,
    /// Whether it changed since the last read.
    pub changed: bool,
}

/// `sai_poe_port_power_consumption_t`, with the names of its members.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(missing_docs, reason = "the names are those of SAI's structure, where they are documented")]
pub struct Poe {
    /// `sai_poe_port_active_channel_type_t`
    pub active_channel: i32,
    pub voltage: u32,
    pub current: u32,
    pub consumption: u32,
    /// `sai_poe_port_signature_type_t`
    pub signature_type: i32,
    /// `sai_poe_port_class_method_type_t`
    pub class_method: i32,
    pub measured_class_a: u8,
    pub assigned_class_a: u8,
    pub measured_class_b: u8,
    pub assigned_class_b: u8,
}

/// `sai_nat_entry_key_t`; `sai_nat_entry_mask_t` has the same members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of SAI's structure, where they are documented")]
pub struct NatKey {
    pub src_ip: Ipv4Addr,
    pub dst_ip: Ipv4Addr,
    pub proto: u8,
    pub l4_src_port: u16,
    pub l4_dst_port: u16,
}

/// Why a text is no value of a type. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError(pub(crate) String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// What the text of a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) kind: ValueType,
    pub(crate) of: Option<Enum>,
}

impl Attribute {
    /// Parses the text of a value.
    ///
    /// # Errors
    /// A sentence with the attribute and the text, when it is no value of the attribute's type.
    pub fn read_value(self, text: &str) -> Result<Value, ValueError> {
        let shape = Shape { kind: self.value_type(), of: self.enumeration() };
        Value::read(shape, text).ok_or_else(|| wrong(self.name(), shape, text))
    }

    /// Appends the text of a value of this attribute's type.
    pub fn write_value(self, value: &Value, out: &mut String) {
        value.write(Shape { kind: self.value_type(), of: self.enumeration() }, out);
    }
}

impl KeyMember {
    pub(crate) fn shape(self) -> Shape {
        Shape { kind: self.value_type(), of: self.enumeration() }
    }
}

/// The sentence for a text that is no value.
pub(crate) fn wrong(name: &str, shape: Shape, text: &str) -> ValueError {
    const SHOWN: usize = 100;
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    let kind = shape.kind.name();
    ValueError(match shape.of {
        _ if !shape.kind.has_text() => {
            format!("{name} has values of type {kind}, for which sairedis has no text")
        }
        Some(of) => format!("\"{shown}{more}\" is no value of {name}, which takes {kind} of {}", of.name()),
        None => format!("\"{shown}{more}\" is no value of {name}, which takes {kind}"),
    })
}

impl ValueType {
    /// Whether sairedis has a text for its values.
    pub fn has_text(self) -> bool {
        use ValueType::*;
        !matches!(
            self,
            Int64
                | PrbsRxState
                | Int16List
                | Int32Range
                | AclFieldDataInt8
                | AclFieldDataInt16
                | AclFieldDataMacsecSci
                | AclActionDataInt8
                | AclActionDataInt16
                | TlvList
                | PortEyeValuesList
                | Timespec
                | MacsecSci
                | MacsecSsci
                | FabricPortReachability
                | PortErrStatusList
                | AclChainList
                | PortFrequencyOffsetPpmList
                | TwampStatsData
                | PortPam4EyeValuesList
                | PrbsPerLaneRxStatusList
                | PrbsPerLaneRxStateList
                | PrbsBitErrorRate
                | PrbsPerLaneBitErrorRateList
        )
    }

    /// Whether its value is a list, which a caller of SAI gives room.
    pub fn is_list(self) -> bool {
        use ValueType::*;
        self.name().ends_with("_LIST") || matches!(self, AclCapability | Json)
    }

    /// Whether its text is JSON.
    fn is_json(self) -> bool {
        use ValueType::*;
        matches!(self, AclResourceList | MapList | QosMapList | SystemPortConfigList)
    }

    /// The number of bytes of a key or salt.
    pub(crate) fn bytes(self) -> Option<usize> {
        match self {
            ValueType::EncryptKey | ValueType::MacsecSak => Some(32),
            ValueType::AuthKey | ValueType::MacsecAuthKey => Some(16),
            ValueType::MacsecSalt => Some(12),
            _ => None,
        }
    }
}

impl Value {
    pub(crate) fn read(shape: Shape, text: &str) -> Option<Value> {
        use ValueType::*;
        let Shape { kind, of } = shape;
        if !kind.has_text() {
            return None;
        }
        if let Some(most) = kind.bytes() {
            return Some(Value::Bytes(hex(text, most)?));
        }
        if kind.is_list() && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Some(Value::Count(text.parse().ok()?));
        }
        if kind.is_list()
            && let Some(count) = text.strip_suffix(":null").and_then(|count| uint(count, u32::MAX.into()))
            && count > 0
        {
            return Some(Value::Room(count as u32));
        }
        Some(match kind {
            Bool => Value::Bool(boolean(text)?),
            Chardata => Value::Chars(chars(text)?),
            Uint8 => Value::Uint(uint(text, u8::MAX.into())?),
            Uint16 => Value::Uint(uint(text, u16::MAX.into())?),
            Uint32 => Value::Uint(uint(text, u32::MAX.into())?),
            Uint64 => Value::Uint(uint(text, u64::MAX)?),
            Int8 => Value::Int(text.parse::<i8>().ok()?.into()),
            Int16 => Value::Int(text.parse::<i16>().ok()?.into()),
            Int32 => Value::Int(number_of(text, of)?),
            Pointer => Value::Uint(hex_number(text)?),
            Mac => Value::Mac(mac(text)?),
            Ipv4 => Value::Ip(IpAddr::V4(text.parse().ok()?)),
            Ipv6 => Value::Ip(IpAddr::V6(text.parse().ok()?)),
            IpAddress => Value::Ip(text.parse().ok()?),
            IpPrefix => prefix(text).map(|(ip, len)| Value::Prefix(ip, len))?,
            ObjectId => Value::Oid(oid(text)?),
            ObjectList => Value::Oids(list(text, oid)?),
            Uint8List => Value::Uints(list(text, |t| uint(t, u8::MAX.into()))?),
            Uint16List | VlanList => Value::Uints(list(text, |t| uint(t, u16::MAX.into()))?),
            Uint32List => Value::Uints(list(text, |t| uint(t, u32::MAX.into()))?),
            Int8List => Value::Ints(list(text, |t| t.parse::<i8>().ok().map(i64::from))?),
            Int32List => Value::Ints(list(text, |t| number_of(t, of))?),
            Uint16Range => range(text, u16::MAX.into()).map(|(low, high)| Value::Range(low, high))?,
            Uint32Range => range(text, u32::MAX.into()).map(|(low, high)| Value::Range(low, high))?,
            Uint64Range => range(text, u64::MAX).map(|(low, high)| Value::Range(low, high))?,
            Uint16RangeList => Value::Ranges(ranges(text, u16::MAX.into())?),
            Uint64RangeList => Value::Ranges(ranges(text, u64::MAX)?),
            IpAddressList => Value::Ips(list(text, |t| t.parse().ok())?),
            SegmentList => Value::Ips(list(text, |t| t.parse().ok().map(IpAddr::V6))?),
            IpPrefixList => Value::Prefixes(list(text, prefix)?),
            AclCapability => {
                let (mandatory, actions) = text.split_once(':')?;
                let of = Enum::from_name("sai_acl_action_type_t");
                Value::Capability(boolean(mandatory)?, list(actions, |t| number_of(t, of))?)
            }
            LatchStatus => {
                let (changed, current) = text.split_once(':')?;
                Value::Latch(Latch { changed: boolean(changed)?, current: boolean(current)? })
            }
            _ => match (kind.acl_field(), kind.acl_action()) {
                (None, None) => return json::read(kind, text),
                _ if text == "disabled" => Value::Disabled,
                (Some(data), _) => {
                    let (value, mask) = match text.split_once("&mask:") {
                        Some((value, mask)) => (value, Some(mask)),
                        None => (text, None),
                    };
                    let value = Box::new(Value::read(Shape { kind: data, of }, value)?);
                    let masked = !matches!(data, Bool | ObjectId | ObjectList);
                    let mask = match (masked, mask) {
                        (true, Some(mask)) => Some(Box::new(read_mask(data, mask)?)),
                        (false, None) => None,
                        _ => return None,
                    };
                    Value::Field(value, mask)
                }
                (_, Some(data)) => Value::Action(Box::new(Value::read(Shape { kind: data, of }, text)?)),
            },
        })
    }

    pub(crate) fn write(&self, shape: Shape, out: &mut String) {
        let Shape { kind, of } = shape;
        // Writing to a String cannot fail.
        let _ = match self {
            Value::Bool(value) => write!(out, "{value}"),
            Value::Chars(chars) => {
                write_chars(chars, out);
                Ok(())
            }
            Value::Uint(value) if kind == ValueType::Pointer => write!(out, "{value:#x}"),
            Value::Uint(value) => write!(out, "{value}"),
            Value::Int(value) => {
                write_number(*value, of, out);
                Ok(())
            }
            Value::Mac(mac) => {
                let [a, b, c, d, e, f] = mac;
                write!(out, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{f:02X}")
            }
            Value::Ip(ip) => {
                write_ip(*ip, out);
                Ok(())
            }
            Value::Prefix(ip, len) => {
                write_ip(*ip, out);
                write!(out, "/{len}")
            }
            Value::Oid(oid) => write!(out, "oid:{oid:#x}"),
            Value::Oids(oids) => write_list(oids, out, |oid, out| {
                let _ = write!(out, "oid:{oid:#x}");
            }),
            Value::Uints(numbers) => write_list(numbers, out, |number, out| {
                let _ = write!(out, "{number}");
            }),
            Value::Ints(numbers) => write_list(numbers, out, |number, out| write_number(*number, of, out)),
            Value::Range(low, high) => write!(out, "{low},{high}"),
            Value::Ranges(ranges) => write_list(ranges, out, |(low, high), out| {
                let _ = write!(out, "{low},{high}");
            }),
            Value::Ips(ips) => write_list(ips, out, |ip, out| write_ip(*ip, out)),
            Value::Prefixes(prefixes) => write_list(prefixes, out, |(ip, len), out| {
                write_ip(*ip, out);
                let _ = write!(out, "/{len}");
            }),
            Value::Bytes(bytes) => {
                for byte in bytes {
                    let _ = write!(out, "{byte:02X}");
                }
                Ok(())
            }
            Value::Disabled => out.write_str("disabled"),
            Value::Field(value, mask) => {
                let data = kind.acl_field().unwrap_or(kind);
                value.write(Shape { kind: data, of }, out);
                if let Some(mask) = mask {
                    out.push_str("&mask:");
                    write_mask(data, mask, out);
                }
                Ok(())
            }
            Value::Action(value) => {
                value.write(Shape { kind: kind.acl_action().unwrap_or(kind), of }, out);
                Ok(())
            }
            Value::Capability(mandatory, actions) => {
                let of = Enum::from_name("sai_acl_action_type_t");
                let _ = write!(out, "{mandatory}:");
                write_list(actions, out, |number, out| write_number(*number, of, out))
            }
            Value::Latch(Latch { current, changed }) => write!(out, "{changed}:{current}"),
            Value::Count(count) => write!(out, "{count}"),
            Value::Room(count) if kind.is_json() => write!(out, "{{\"count\":{count},\"list\":null}}"),
            Value::Room(count) => write!(out, "{count}:null"),
            Value::AclResources(_)
            | Value::Map(_)
            | Value::QosMap(_)
            | Value::SystemPorts(_)
            | Value::Latches(_)
            | Value::Snr(_)
            | Value::Taps(_)
            | Value::Json(_)
            | Value::Poe(_)
            | Value::Nat(..) => {
                json::write(kind, self, out);
                Ok(())
            }
        };
    }

    /// Every object id in it, for translation.
    pub fn oids_mut(&mut self) -> &mut [u64] {
        match self {
            Value::Oid(oid) => std::slice::from_mut(oid),
            Value::Oids(oids) => oids,
            Value::Field(value, _) | Value::Action(value) => value.oids_mut(),
            _ => &mut [],
        }
    }
}

impl ValueType {
    /// The type of the data of an ACL field.
    pub fn acl_field(self) -> Option<ValueType> {
        ValueType::of(self.name().strip_prefix("ACL_FIELD_DATA_")?.as_bytes())
    }

    /// The type of the parameter of an ACL action.
    pub fn acl_action(self) -> Option<ValueType> {
        ValueType::of(self.name().strip_prefix("ACL_ACTION_DATA_")?.as_bytes())
    }
}

/// The mask of an ACL field: numbers in hexadecimal digits.
fn read_mask(kind: ValueType, text: &str) -> Option<Value> {
    use ValueType::*;
    let within = |most: u64| hex_number(text).filter(|number| *number <= most).map(Value::Uint);
    match kind {
        Uint8 => within(u8::MAX.into()),
        Uint16 => within(u16::MAX.into()),
        // The mask of an enumeration is signed, and sairedis writes it with 64 bits.
        Int32 => hex_number(text).map(|number| Value::Int((number as u32 as i32).into())),
        Uint32 => within(u32::MAX.into()),
        Uint64 => within(u64::MAX),
        Uint8List => Some(Value::Uints(list(text, |t| hex_number(t).filter(|n| *n <= u8::MAX.into()))?)),
        _ => Value::read(Shape { kind, of: None }, text),
    }
}

fn write_mask(kind: ValueType, mask: &Value, out: &mut String) {
    let _ = match mask {
        Value::Uint(number) => write!(out, "{number:#x}"),
        Value::Int(number) => write!(out, "{number:#x}"),
        Value::Uints(numbers) => write_list(numbers, out, |number, out| {
            let _ = write!(out, "{number:#x}");
        }),
        _ => {
            mask.write(Shape { kind, of: None }, out);
            Ok(())
        }
    };
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn uint(text: &str, most: u64) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= most)
}

/// A number in hexadecimal digits, with or without `0x`.
fn hex_number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

fn hex(text: &str, most: usize) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 2 * most || !text.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return None;
    }
    let digits = text.as_bytes().chunks_exact(2);
    let mut bytes: Vec<u8> = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    bytes.resize(most, 0);
    Some(bytes)
}

pub(crate) fn oid(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("oid:0x").filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, len) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    Some((ip, uint(len, most)? as u8))
}

/// `COUNT:ITEM,ITEM`, or `0:null`.
fn list<T>(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let (count, items) = text.split_once(':')?;
    let count = uint(count, u32::MAX.into())? as usize;
    if items == "null" {
        return Some(Vec::new());
    }
    let items: Vec<T> = items.split(',').map(item).collect::<Option<_>>()?;
    (items.len() == count).then_some(items)
}

fn write_list<T>(items: &[T], out: &mut String, item: impl Fn(&T, &mut String)) -> fmt::Result {
    write!(out, "{}:", items.len())?;
    if items.is_empty() {
        out.push_str("null");
    }
    for (n, one) in items.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        item(one, out);
    }
    Ok(())
}

fn range(text: &str, most: u64) -> Option<(u64, u64)> {
    let (low, high) = text.split_once(',')?;
    Some((uint(low, most)?, uint(high, most)?))
}

/// A list of ranges, whose ends have the same comma as the items.
fn ranges(text: &str, most: u64) -> Option<Vec<(u64, u64)>> {
    let (count, items) = text.split_once(':')?;
    let count = uint(count, u32::MAX.into())? as usize;
    if items == "null" {
        return Some(Vec::new());
    }
    let ends: Vec<u64> = items.split(',').map(|end| uint(end, most)).collect::<Option<_>>()?;
    let pairs = ends.chunks_exact(2).map(|ends| (ends[0], ends[1]));
    (Some(ends.len()) == count.checked_mul(2)).then(|| pairs.collect())
}

/// A value of an enumeration by its name or, without one, by its number.
pub(crate) fn number_of(text: &str, of: Option<Enum>) -> Option<i64> {
    let number = |text: &str| text.parse::<i32>().ok().map(i64::from);
    match of {
        Some(of) if of.is_flags() => {
            let mut sum = 0;
            for part in text.split('|') {
                sum |= match of.number_of(part) {
                    Some(bit) => i64::from(bit),
                    None => hex_number(part.strip_prefix("0x")?).and_then(|n| i32::try_from(n).ok())?.into(),
                };
            }
            Some(sum)
        }
        Some(of) => of.number_of(text).map(i64::from).or_else(|| number(text)),
        None => number(text),
    }
}

pub(crate) fn write_number(number: i64, of: Option<Enum>, out: &mut String) {
    let Some(of) = of else {
        let _ = write!(out, "{number}");
        return;
    };
    let name = i32::try_from(number).ok().and_then(|number| of.name_of(number));
    match name {
        Some(name) => out.push_str(name),
        None if of.is_flags() => write_flags(number, of, out),
        None => {
            let _ = write!(out, "{number}");
        }
    }
}

/// The names of the bits of a number, and the bits without names as a number.
fn write_flags(mut number: i64, of: Enum, out: &mut String) {
    let start = out.len();
    for (name, bit) in of.values().filter(|(_, bit)| *bit != 0) {
        if number & i64::from(bit) != 0 {
            if out.len() > start {
                out.push('|');
            }
            out.push_str(name);
            number &= !i64::from(bit);
        }
    }
    if number != 0 || out.len() == start {
        if out.len() > start {
            out.push('|');
        }
        let _ = write!(out, "{number:#x}");
    }
}

fn write_ip(ip: IpAddr, out: &mut String) {
    // Both write IPv4-mapped and -compatible addresses as inet_ntop does.
    let _ = match ip {
        IpAddr::V4(ip) => write!(out, "{ip}"),
        IpAddr::V6(ip) => write!(out, "{}", Inet6(ip)),
    };
}

/// An IPv6 address as `inet_ntop` writes it: Rust writes `::a.b.c.d` of IPv4-compatible addresses in groups.
struct Inet6(Ipv6Addr);

impl fmt::Display for Inet6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [0, 0, 0, 0, 0, 0, high, low] = self.0.segments() else { return self.0.fmt(f) };
        match high {
            0 => self.0.fmt(f),
            _ => write!(f, "::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        }
    }
}

/// Bytes other than letters and digits are `\xHH`, and a backslash is two.
fn chars(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                rest = after;
            }
            (b'\\', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    if bytes.len() > CHARDATA_MAX {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    Some(bytes)
}

fn write_chars(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = match byte {
            b'\\' => out.write_str("\\\\"),
            byte if byte.is_ascii_alphanumeric() => out.write_char(char::from(*byte)),
            byte => write!(out, "\\x{byte:02X}"),
        };
    }
}
