//! The settings in which two configurations differ, by the text of their files: names, former and new values. A secret is
//! named and never shown.

use super::Config;
use super::shown::{HIDDEN, SECRET_KEYS};
use std::collections::{BTreeMap, BTreeSet};
use toml::Value;

/// A setting that is another in two files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingDifference {
    /// Its name: keys with dots, and in brackets what names a table of a list.
    pub name: String,
    /// Its value in the first file, as TOML; `None`: it is absent. Of a secret `********`.
    pub from: Option<String>,
    /// Its value in the second file.
    pub to: Option<String>,
}

/// Characters of a value at most; a longer one is described.
const VALUE_MAX: usize = 100;
/// Keys that name a table of a list, if each of its tables has another value of them.
const NAMES: [&str; 5] = ["name", "address", "interface", "prefix", "range"];

/// The settings in which `new` differs from `old`, by name. Comments, order of keys and notation do not count.
pub fn differences(old: &Config, new: &Config) -> Vec<SettingDifference> {
    let table = |config: &Config| config.shown.whole.0.parse::<toml::Table>().unwrap_or_default();
    between(table(old), table(new))
}

fn between(old: toml::Table, new: toml::Table) -> Vec<SettingDifference> {
    let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), Value::Table(old), &mut from);
    flatten(String::new(), Value::Table(new), &mut to);
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let of = |name: &String| {
        let (before, after) = (from.get(name), to.get(name));
        if before == after {
            return None;
        }
        let is_secret = name.rsplit(['.', '[', ']']).any(|key| SECRET_KEYS.contains(&key));
        let shown = |value: Option<&Value>, other: Option<&Value>| match is_secret {
            true => value.map(|_| HIDDEN.to_owned()),
            false => value.map(|value| text(value, other)),
        };
        Some(SettingDifference { name: name.clone(), from: shown(before, after), to: shown(after, before) })
    };
    names.into_iter().filter_map(of).collect()
}

/// Every setting with its name.
fn flatten(name: String, value: Value, all: &mut BTreeMap<String, Value>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                let key = match key.contains(['.', '[', ']', ' ']) {
                    true => format!("\"{key}\""),
                    false => key,
                };
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                flatten(name, value, all);
            }
        }
        Value::Array(tables) if !tables.is_empty() && tables.iter().all(Value::is_table) => {
            let labels = labels(&tables);
            for (label, table) in labels.into_iter().zip(tables) {
                flatten(format!("{name}[{label}]"), table, all);
            }
        }
        value => drop(all.insert(name, value)),
    }
}

/// What names each table of a list: one of [`NAMES`], or its number from 1.
fn labels(tables: &[Value]) -> Vec<String> {
    for key in NAMES {
        let values: Option<Vec<String>> =
            tables.iter().map(|table| Some(table.get(key)?.as_str()?.to_owned())).collect();
        if let Some(values) = values
            && values.iter().collect::<BTreeSet<_>>().len() == values.len()
        {
            return values;
        }
    }
    (1..=tables.len()).map(|number| number.to_string()).collect()
}

/// A value as TOML. Of a long list only what `other` has not.
fn text(value: &Value, other: Option<&Value>) -> String {
    let whole = value.to_string();
    if whole.chars().count() <= VALUE_MAX {
        return whole;
    }
    let Value::Array(values) = value else {
        return whole.chars().take(VALUE_MAX).chain("…".chars()).collect();
    };
    let others: BTreeSet<String> = match other {
        Some(Value::Array(others)) => others.iter().map(Value::to_string).collect(),
        _ => BTreeSet::new(),
    };
    let own: Vec<String> = values.iter().map(Value::to_string).filter(|one| !others.contains(one)).collect();
    let (mut shown, mut length) = (Vec::new(), 0);
    for one in &own {
        length += one.chars().count() + 2;
        if length > VALUE_MAX {
            break;
        }
        shown.push(one.as_str());
    }
    let more = own.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let entries = values.len();
    match own.is_empty() {
        true => format!("{entries} entries"),
        false => format!("{entries} entries, with {}{more}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(old: &str, new: &str) -> Vec<String> {
        let all = between(old.parse().unwrap(), new.parse().unwrap());
        let show = |value: Option<String>| value.unwrap_or("-".into());
        all.into_iter().map(|d| format!("{}: {} > {}", d.name, show(d.from), show(d.to))).collect()
    }

    #[test]
    fn settings_are_named_by_key_and_by_what_names_a_table() {
        let old = "[router]\nasn = 1\n[bgp.group.a]\nhold-time = 90\n[[bgp.group.a.neighbor]]\naddress = \"192.0.2.1\"\n\
                   port = 1\n[[bgp.group.a.neighbor]]\naddress = \"192.0.2.2\"\n[[s]]\nx = 1\n[[s]]\nx = 1\n";
        let new = "# other text\n[router]\nasn = 0x1\n[bgp.group.a]\n[[bgp.group.a.neighbor]]\naddress = \"192.0.2.2\"\n\
                   passive = true\n[[s]]\nx = 1\n[[s]]\nx = 2\n[bgp.group.\"b.c\"]\nport = 5\n";
        assert_eq!(
            rows(old, new),
            [
                "bgp.group.\"b.c\".port: - > 5",
                "bgp.group.a.hold-time: 90 > -",
                "bgp.group.a.neighbor[192.0.2.1].address: \"192.0.2.1\" > -",
                "bgp.group.a.neighbor[192.0.2.1].port: 1 > -",
                "bgp.group.a.neighbor[192.0.2.2].passive: - > true",
                "s[2].x: 1 > 2",
            ]
        );
        assert_eq!(rows(old, old), [""; 0]);
    }

    #[test]
    fn a_changed_secret_is_named_and_not_shown() {
        let of = |key: &str| {
            format!(
                "[g]\npassword = \"{key}\"\ntcp-ao = {{ keys = [{{ secret = '{key}', send-id = 1 }}] }}\n"
            )
        };
        let rows = rows(&of("hunter2"), &of("hunter3"));
        assert_eq!(rows, ["g.password: ******** > ********", "g.tcp-ao.keys[1].secret: ******** > ********"]);
        assert_eq!(self::rows(&of("hunter2"), &of("hunter2")), [""; 0]);
    }

    #[test]
    fn a_long_list_shows_what_the_other_has_not() {
        let list = |range: std::ops::Range<u32>| {
            let values: Vec<String> = range.map(|n| format!("\"10.{n}.0.0/16\"")).collect();
            format!("p = [{}]", values.join(", "))
        };
        assert_eq!(
            rows(&list(0..50), &list(1..52)),
            ["p: 50 entries, with \"10.0.0.0/16\" > 51 entries, with \"10.50.0.0/16\", \"10.51.0.0/16\""]
        );
    }
}
