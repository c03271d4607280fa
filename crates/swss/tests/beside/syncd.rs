//! A syncd for tests: objects as text, references checked, views as SONiC's syncd has them
//! (sonic-sairedis, `syncd/Syncd.cpp`): between INIT_VIEW and APPLY_VIEW requests only describe,
//! and APPLY_VIEW leaves what was described.

use ribtide_swss::json;
use ribtide_swss::sai::text::Message;
use std::collections::{BTreeMap, BTreeSet};

type Fields = BTreeMap<String, String>;

#[derive(Default)]
pub(super) struct Syncd {
    /// Objects by `TYPE:ID`.
    pub(super) objects: BTreeMap<String, Fields>,
    view: Option<BTreeMap<String, Fields>>,
    /// Ports whose link is down.
    down: Vec<String>,
    removed: BTreeSet<String>,
}

fn reply(status: &str, value: String, op: &str) -> Message {
    Message { key: format!("SAI_STATUS_{status}"), value, op: op.to_owned().into() }
}

fn array(strings: &[String]) -> String {
    let mut value = String::new();
    json::write_strings(strings.iter().map(String::as_str), &mut value);
    value
}

impl Syncd {
    /// Takes the link of a port away: the first one has number 0.
    pub(super) fn take_link(&mut self, port: u64) {
        self.down.push(format!("SAI_OBJECT_TYPE_PORT:oid:0x1{:012x}", port + 2));
    }

    /// The destinations of routes that a request removed since the last call.
    pub(super) fn take_removed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.removed)
    }

    /// Executes a request.
    pub(super) fn execute(&mut self, request: &Message) -> Message {
        let op = &request.op[1..];
        let pairs = json::read_strings(&request.value).unwrap_or_default();
        let pairs: Vec<(String, String)> =
            pairs.chunks_exact(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect();
        match (op, request.key.as_str()) {
            ("notify", "INIT_VIEW") => {
                self.view = Some(BTreeMap::new());
                return reply("SUCCESS", "[]".into(), "Snotify");
            }
            ("notify", "APPLY_VIEW") => {
                let view = self.view.take().expect("APPLY_VIEW without INIT_VIEW");
                for (key, fields) in &view {
                    if let Some(missing) = missing(&view, key, fields) {
                        panic!("the view has {key} with {missing}, which it has not");
                    }
                }
                let before = self.routes();
                self.objects = view;
                let after = self.routes();
                self.removed.extend(before.into_keys().filter(|dest| !after.contains_key(dest)));
                return reply("SUCCESS", "[]".into(), "Snotify");
            }
            ("get", _) => {
                let is_down = self.down.contains(&request.key);
                let value = |(name, value): &(String, String)| match name.as_str() {
                    "SAI_PORT_ATTR_OPER_STATUS" if is_down => "SAI_PORT_OPER_STATUS_DOWN".into(),
                    "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID" => "oid:0x3000000000022".into(),
                    "SAI_SWITCH_ATTR_CPU_PORT" => "oid:0x1000000000001".into(),
                    "SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS" => "32".into(),
                    "SAI_SWITCH_ATTR_NUMBER_OF_ECMP_GROUPS" => "128".into(),
                    _ => value.clone(),
                };
                let values: Vec<String> =
                    pairs.iter().flat_map(|pair| [pair.0.clone(), value(pair)]).collect();
                return reply("SUCCESS", array(&values), "Sgetresponse");
            }
            ("bulkget", key) => {
                let object = key.rsplit_once(':').unwrap().0;
                let mut found = Vec::new();
                for (id, joined) in pairs {
                    let fields = self.objects.get(&format!("{object}:{id}"));
                    found.push(format!(
                        "SAI_STATUS_{}",
                        if fields.is_some() { "SUCCESS" } else { "ITEM_NOT_FOUND" }
                    ));
                    let value = |part: &str, fields: &Fields| {
                        let name = part.split_once('=').unwrap().0;
                        let default = match name {
                            "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION" => Some("SAI_PACKET_ACTION_FORWARD"),
                            "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID" => Some("oid:0x0"),
                            _ => None,
                        };
                        let value = fields.get(name).map(String::as_str).or(default)?;
                        Some(format!("{name}={value}"))
                    };
                    let values =
                        fields.map(|fields| joined.split('|').filter_map(|part| value(part, fields)));
                    found.push(values.map(|values| values.collect::<Vec<_>>().join("|")).unwrap_or_default());
                }
                return reply("SUCCESS", array(&found), "Sgetresponse");
            }
            ("create" | "set" | "remove", key) => {
                let status = self.one(op, key, pairs.into_iter().collect());
                return reply(status, "[]".into(), "Sgetresponse");
            }
            ("bulkcreate" | "bulkset" | "bulkremove", key) => {
                let object = key.rsplit_once(':').unwrap().0.to_owned();
                let mut statuses = Vec::new();
                for (id, joined) in pairs {
                    let fields = joined.split('|').filter_map(|part| part.split_once('='));
                    let fields = fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
                    let status = self.one(&op[4..], &format!("{object}:{id}"), fields);
                    statuses.extend([format!("SAI_STATUS_{status}"), String::new()]);
                }
                let all = statuses.iter().step_by(2).all(|status| status == "SAI_STATUS_SUCCESS");
                return reply(if all { "SUCCESS" } else { "FAILURE" }, array(&statuses), "Sgetresponse");
            }
            _ => {}
        }
        let op = match op.strip_suffix("_query") {
            Some(op) => format!("S{op}_response"),
            None => "Sgetresponse".into(),
        };
        reply("SUCCESS", "[]".into(), &op)
    }

    fn one(&mut self, op: &str, key: &str, fields: Fields) -> &'static str {
        let in_view = self.view.is_some();
        let objects = self.view.as_mut().unwrap_or(&mut self.objects);
        match op {
            "create" if objects.contains_key(key) => "ITEM_ALREADY_EXISTS",
            "create" if !in_view && missing(objects, key, &fields).is_some() => "INVALID_PARAMETER",
            "create" => {
                objects.insert(key.to_owned(), fields);
                "SUCCESS"
            }
            "set" if !in_view && missing(objects, key, &fields).is_some() => "INVALID_PARAMETER",
            "set" => match objects.get_mut(key) {
                Some(object) => {
                    object.extend(fields);
                    "SUCCESS"
                }
                None if in_view || !key.contains("_ENTRY") => "SUCCESS",
                None => "ITEM_NOT_FOUND",
            },
            "remove" => {
                let id = key.split_once(':').unwrap().1;
                let names = |(other, fields): (&String, &Fields)| {
                    other != key
                        && (other.contains(&format!("\"{id}\"")) || fields.values().any(|value| value == id))
                };
                if id.starts_with("oid:") && objects.iter().any(names) {
                    return "OBJECT_IN_USE";
                }
                match objects.remove(key) {
                    Some(_) => {
                        if !in_view {
                            self.removed.extend(destination(key));
                        }
                        "SUCCESS"
                    }
                    None if key.contains("_ENTRY") => "ITEM_NOT_FOUND",
                    None => "SUCCESS",
                }
            }
            _ => unreachable!(),
        }
    }

    /// The entries of routes: destination, router, and the target or action.
    pub(super) fn routes(&self) -> BTreeMap<String, String> {
        let route = |(key, fields): (&String, &Fields)| {
            let dest = destination(key)?;
            let drops = fields
                .get("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION")
                .is_some_and(|action| action.ends_with("DROP"));
            let target = fields.get("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID").cloned().unwrap_or_default();
            Some((dest, if drops { "drop".into() } else { target }))
        };
        self.objects.iter().filter_map(route).collect()
    }

    /// Objects of a type.
    pub(super) fn of(&self, object: &str) -> Vec<&Fields> {
        let prefix = format!("SAI_OBJECT_TYPE_{object}:");
        self.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, fields)| fields).collect()
    }
}

/// The destination of the key of a route.
fn destination(key: &str) -> Option<String> {
    let id = key.strip_prefix("SAI_OBJECT_TYPE_ROUTE_ENTRY:")?;
    let (_, rest) = id.split_once("\"dest\":\"")?;
    rest.split('"').next().map(str::to_owned)
}

/// An object of the route path that `fields` or the key name, and that does not exist.
fn missing(objects: &BTreeMap<String, Fields>, key: &str, fields: &Fields) -> Option<String> {
    const CHECKED: [(&str, &str); 5] = [
        ("oid:0x4", "NEXT_HOP"),
        ("oid:0x5", "NEXT_HOP_GROUP"),
        ("oid:0x6", "ROUTER_INTERFACE"),
        ("oid:0x2d", "NEXT_HOP_GROUP_MEMBER"),
        ("oid:0x3", "VIRTUAL_ROUTER"),
    ];
    let in_key = key.split('"').filter(|part| part.starts_with("oid:"));
    let named = fields.values().map(String::as_str).chain(in_key);
    for oid in named.filter(|value| value.starts_with("oid:0x") && *value != "oid:0x3000000000022") {
        for (prefix, object) in CHECKED {
            if oid.len() == prefix.len() + 12
                && oid.starts_with(prefix)
                && !objects.contains_key(&format!("SAI_OBJECT_TYPE_{object}:{oid}"))
            {
                return Some(oid.to_owned());
            }
        }
    }
    None
}
