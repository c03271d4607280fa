//! Values whose text is JSON. Members are in the order of their names, without blanks, as sairedis writes them.
//! Writing to a string cannot fail.

use crate::value::{AclResource, Latch, NatKey, Poe, QosParams, Shape, SystemPort, number_of, write_number};
use crate::{Enum, Value, ValueType};
use serde_json::{Map, Value as Json};
use std::fmt::Write;

/// Parses a value of a type whose text is JSON.
pub(crate) fn read(kind: ValueType, text: &str) -> Option<Value> {
    from_json(kind, &serde_json::from_str(text).ok()?)
}

/// Takes a value out of JSON.
pub(crate) fn from_json(kind: ValueType, json: &Json) -> Option<Value> {
    Some(match kind {
        ValueType::AclResourceList => return list(json, Value::AclResources, acl_resource),
        ValueType::MapList => return list(json, Value::Map, map),
        ValueType::QosMapList => return list(json, Value::QosMap, qos_map),
        ValueType::SystemPortConfig => Value::SystemPorts(vec![system_port(json)?]),
        ValueType::SystemPortConfigList => return list(json, Value::SystemPorts, system_port),
        ValueType::PortLaneLatchStatusList => {
            Value::Latches(json.as_object()?.iter().map(latch).collect::<Option<_>>()?)
        }
        ValueType::PortSnrList => Value::Snr(json.as_object()?.iter().map(snr).collect::<Option<_>>()?),
        ValueType::TapsList => Value::Taps(taps(json.as_object()?)?),
        ValueType::Json => {
            let numbers = json.get("json")?.as_str()?;
            let shape = Shape { kind: ValueType::Int8List, of: None };
            let Value::Ints(numbers) = Value::read(shape, numbers)? else { return None };
            Value::Json(numbers.into_iter().map(|number| number as u8).collect())
        }
        ValueType::PoePortPowerConsumption => Value::Poe(poe(json)?),
        ValueType::NatEntryData => Value::Nat(nat(json.get("key")?)?, nat(json.get("mask")?)?),
        _ => return None,
    })
}

/// `{"count":N,"list":[…]}`, or with `null` for a list without items.
fn list<T>(json: &Json, of: fn(Vec<T>) -> Value, item: fn(&Json) -> Option<T>) -> Option<Value> {
    let count = json.get("count")?.as_u64().and_then(|count| u32::try_from(count).ok())?;
    match json.get("list")? {
        Json::Null if count > 0 => Some(Value::Room(count)),
        Json::Null => Some(of(Vec::new())),
        Json::Array(items) if items.len() == count as usize => {
            Some(of(items.iter().map(item).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// A number, which sairedis writes as a number in some structures and as a text in others.
fn uint(json: &Json, name: &str, most: u64) -> Option<u64> {
    let number = match json.get(name)? {
        Json::String(text) => text.parse().ok()?,
        other => other.as_u64()?,
    };
    (number <= most).then_some(number)
}

fn u32_of(json: &Json, name: &str) -> Option<u32> {
    uint(json, name, u32::MAX.into()).map(|number| number as u32)
}

fn u8_of(json: &Json, name: &str) -> Option<u8> {
    uint(json, name, u8::MAX.into()).map(|number| number as u8)
}

fn enum_of(json: &Json, name: &str, of: &str) -> Option<i32> {
    number_of(json.get(name)?.as_str()?, Enum::from_name(of)).map(|number| number as i32)
}

fn acl_resource(json: &Json) -> Option<AclResource> {
    Some(AclResource {
        stage: enum_of(json, "stage", STAGE)?,
        bind_point: enum_of(json, "bind_point", BIND_POINT)?,
        available: u32_of(json, "avail_num")?,
    })
}

fn map(json: &Json) -> Option<(u32, i32)> {
    let value = json.get("value")?.as_i64().and_then(|value| i32::try_from(value).ok())?;
    Some((u32_of(json, "key")?, value))
}

fn qos_map(json: &Json) -> Option<(QosParams, QosParams)> {
    Some((qos_params(json.get("key")?)?, qos_params(json.get("value")?)?))
}

fn qos_params(json: &Json) -> Option<QosParams> {
    // sairedis gives the members that older versions did not have a default.
    let later = |name: &str| json.get(name).map_or(Some(0), |_| u8_of(json, name));
    Some(QosParams {
        tc: u8_of(json, "tc")?,
        dscp: u8_of(json, "dscp")?,
        dot1p: u8_of(json, "dot1p")?,
        prio: u8_of(json, "prio")?,
        pg: u8_of(json, "pg")?,
        queue_index: u8_of(json, "qidx")?,
        color: enum_of(json, "color", COLOR)?,
        mpls_exp: later("mpls_exp")?,
        fc: later("fc")?,
    })
}

fn system_port(json: &Json) -> Option<SystemPort> {
    Some(SystemPort {
        port_id: u32_of(json, "port_id")?,
        attached_switch_id: u32_of(json, "attached_switch_id")?,
        attached_core_index: u32_of(json, "attached_core_index")?,
        attached_core_port_index: u32_of(json, "attached_core_port_index")?,
        speed: u32_of(json, "speed")?,
        num_voq: u32_of(json, "num_voq")?,
    })
}

/// `"0":"T*"`: the lane, its state, and a star if it changed.
fn latch((lane, json): (&String, &Json)) -> Option<(u32, Latch)> {
    let (current, changed) = match json.as_str()? {
        "T" => (true, false),
        "T*" => (true, true),
        "F" => (false, false),
        "F*" => (false, true),
        _ => return None,
    };
    Some((lane.parse().ok()?, Latch { current, changed }))
}

/// `"0":20.5`: the lane and its ratio in dB.
fn snr((lane, json): (&String, &Json)) -> Option<(u32, u16)> {
    let raw = (json.as_f64()? * 256.0).round();
    (0.0..=f64::from(u16::MAX)).contains(&raw).then_some((lane.parse().ok()?, raw as u16))
}

/// `"0":[{"tap0":1},{"tap1":2}]`: the taps of each lane.
fn taps(lanes: &Map<String, Json>) -> Option<Vec<Vec<i32>>> {
    let Some(first) = lanes.get("0") else { return lanes.is_empty().then(Vec::new) };
    let mut taps = Vec::new();
    for tap in 0..first.as_array()?.len() {
        let name = format!("tap{tap}");
        let of_lane = |lane: usize| {
            let value = lanes.get(&lane.to_string())?.as_array()?.get(tap)?.get(&name)?.as_i64()?;
            i32::try_from(value).ok()
        };
        taps.push((0..lanes.len()).map(of_lane).collect::<Option<Vec<i32>>>()?);
    }
    Some(taps)
}

fn poe(json: &Json) -> Option<Poe> {
    Some(Poe {
        active_channel: enum_of(json, "active_channel", POE_CHANNEL)?,
        voltage: u32_of(json, "voltage")?,
        current: u32_of(json, "current")?,
        consumption: u32_of(json, "consumption")?,
        signature_type: enum_of(json, "signature_type", POE_SIGNATURE)?,
        class_method: enum_of(json, "class_method", POE_METHOD)?,
        measured_class_a: u8_of(json, "measured_class_a")?,
        assigned_class_a: u8_of(json, "assigned_class_a")?,
        measured_class_b: u8_of(json, "measured_class_b")?,
        assigned_class_b: u8_of(json, "assigned_class_b")?,
    })
}

fn nat(json: &Json) -> Option<NatKey> {
    let ip = |name: &str| json.get(name)?.as_str()?.parse().ok();
    let port = |name: &str| uint(json, name, u16::MAX.into()).map(|number| number as u16);
    Some(NatKey {
        src_ip: ip("src_ip")?,
        dst_ip: ip("dst_ip")?,
        proto: u8_of(json, "proto")?,
        l4_src_port: port("l4_src_port")?,
        l4_dst_port: port("l4_dst_port")?,
    })
}

const STAGE: &str = "sai_acl_stage_t";
const BIND_POINT: &str = "sai_acl_bind_point_type_t";
const COLOR: &str = "sai_packet_color_t";
const POE_CHANNEL: &str = "sai_poe_port_active_channel_type_t";
const POE_SIGNATURE: &str = "sai_poe_port_signature_type_t";
const POE_METHOD: &str = "sai_poe_port_class_method_type_t";

/// Appends the text of a value of a type whose text is JSON.
pub(crate) fn write(kind: ValueType, value: &Value, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::AclResources(resources) => write_list(resources, out, |resource, out| {
            let AclResource { stage, bind_point, available } = resource;
            let _ = write!(out, "{{\"avail_num\":\"{available}\",\"bind_point\":\"");
            write_number((*bind_point).into(), Enum::from_name(BIND_POINT), out);
            out.push_str("\",\"stage\":\"");
            write_number((*stage).into(), Enum::from_name(STAGE), out);
            out.push_str("\"}");
        }),
        Value::Map(pairs) => write_list(pairs, out, |(key, value), out| {
            let _ = write!(out, "{{\"key\":{key},\"value\":{value}}}");
        }),
        Value::QosMap(pairs) => write_list(pairs, out, |(key, value), out| {
            out.push_str("{\"key\":");
            write_qos_params(key, out);
            out.push_str(",\"value\":");
            write_qos_params(value, out);
            out.push('}');
        }),
        Value::SystemPorts(ports) => match (kind, &ports[..]) {
            (ValueType::SystemPortConfig, [port]) => {
                write_system_port(port, out);
                Ok(())
            }
            (_, ports) => write_list(ports, out, write_system_port),
        },
        Value::Latches(lanes) => write_lanes(lanes, out, |Latch { current, changed }, out| {
            out.push_str(if *current { "\"T" } else { "\"F" });
            out.push_str(if *changed { "*\"" } else { "\"" });
        }),
        Value::Snr(lanes) => write_lanes(lanes, out, |snr, out| {
            let hundredths = (f64::from(*snr) / 256.0 * 100.0).round();
            let _ = write!(out, "{:?}", hundredths / 100.0);
        }),
        Value::Taps(taps) => {
            let lanes = taps.first().map_or(0, Vec::len);
            let of_lane: Vec<(u32, usize)> = (0..lanes).map(|lane| (lane as u32, lane)).collect();
            write_lanes(&of_lane, out, |lane, out| {
                for (n, tap) in taps.iter().enumerate() {
                    out.push(if n == 0 { '[' } else { ',' });
                    let _ = match tap.get(*lane) {
                        Some(value) => write!(out, "{{\"tap{n}\":{value}}}"),
                        None => write!(out, "{{}}"),
                    };
                }
                out.push(']');
            })
        }
        Value::Json(bytes) => {
            out.push_str("{\"json\":\"");
            let numbers = bytes.iter().map(|byte| i64::from(*byte as i8)).collect();
            Value::Ints(numbers).write(Shape { kind: ValueType::Int8List, of: None }, out);
            write!(out, "\"}}")
        }
        Value::Poe(poe) => {
            let named = |number: i32, of: &str| {
                let mut name = String::new();
                write_number(number.into(), Enum::from_name(of), &mut name);
                name
            };
            write!(
                out,
                "{{\"active_channel\":\"{}\",\"assigned_class_a\":\"{}\",\"assigned_class_b\":\"{}\",\
                 \"class_method\":\"{}\",\"consumption\":\"{}\",\"current\":\"{}\",\"measured_class_a\":\"{}\",\
                 \"measured_class_b\":\"{}\",\"signature_type\":\"{}\",\"voltage\":\"{}\"}}",
                named(poe.active_channel, POE_CHANNEL),
                poe.assigned_class_a,
                poe.assigned_class_b,
                named(poe.class_method, POE_METHOD),
                poe.consumption,
                poe.current,
                poe.measured_class_a,
                poe.measured_class_b,
                named(poe.signature_type, POE_SIGNATURE),
                poe.voltage,
            )
        }
        Value::Nat(key, mask) => {
            out.push_str("{\"key\":");
            write_nat(key, out);
            out.push_str(",\"mask\":");
            write_nat(mask, out);
            write!(out, "}}")
        }
        _ => Ok(()),
    };
}

fn write_list<T>(items: &[T], out: &mut String, item: impl Fn(&T, &mut String)) -> std::fmt::Result {
    write!(out, "{{\"count\":{},\"list\":", items.len())?;
    if items.is_empty() {
        out.push_str("null");
    } else {
        out.push('[');
        for (n, one) in items.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            item(one, out);
        }
        out.push(']');
    }
    out.push('}');
    Ok(())
}

/// An object with a member for each lane, in the order of the texts of their numbers.
fn write_lanes<T>(lanes: &[(u32, T)], out: &mut String, item: impl Fn(&T, &mut String)) -> std::fmt::Result {
    let mut named: Vec<(String, &T)> = lanes.iter().map(|(lane, value)| (lane.to_string(), value)).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    out.push('{');
    for (n, (lane, value)) in named.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        write!(out, "\"{lane}\":")?;
        item(value, out);
    }
    out.push('}');
    Ok(())
}

fn write_qos_params(params: &QosParams, out: &mut String) {
    out.push_str("{\"color\":\"");
    write_number(params.color.into(), Enum::from_name(COLOR), out);
    let QosParams { tc, dscp, dot1p, prio, pg, queue_index, mpls_exp, fc, .. } = params;
    let _ = write!(
        out,
        "\",\"dot1p\":{dot1p},\"dscp\":{dscp},\"fc\":{fc},\"mpls_exp\":{mpls_exp},\"pg\":{pg},\"prio\":{prio},\
         \"qidx\":{queue_index},\"tc\":{tc}}}"
    );
}

fn write_system_port(port: &SystemPort, out: &mut String) {
    let SystemPort {
        port_id,
        attached_switch_id,
        attached_core_index,
        attached_core_port_index,
        speed,
        num_voq,
    } = port;
    let _ = write!(
        out,
        "{{\"attached_core_index\":\"{attached_core_index}\",\"attached_core_port_index\":\
         \"{attached_core_port_index}\",\"attached_switch_id\":\"{attached_switch_id}\",\"num_voq\":\"{num_voq}\",\
         \"port_id\":\"{port_id}\",\"speed\":\"{speed}\"}}"
    );
}

fn write_nat(key: &NatKey, out: &mut String) {
    let NatKey { src_ip, dst_ip, proto, l4_src_port, l4_dst_port } = key;
    let _ = write!(
        out,
        "{{\"dst_ip\":\"{dst_ip}\",\"l4_dst_port\":\"{l4_dst_port}\",\"l4_src_port\":\"{l4_src_port}\",\
         \"proto\":\"{proto}\",\"src_ip\":\"{src_ip}\"}}"
    );
}
