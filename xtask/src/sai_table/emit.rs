//! The text of the table, one line for each enumeration, value, API, function, object type, member and attribute.
//! `crates/sai/src/table.rs` describes the lines.

use super::header::{Enumerator, Headers, Member, Tags};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The kinds of functions, in the order of a line `object`.
const FUNCTIONS: [&str; 12] = [
    "create",
    "remove",
    "set",
    "get",
    "stats",
    "stats_ext",
    "clear_stats",
    "bulk_create",
    "bulk_remove",
    "bulk_set",
    "bulk_get",
    "flush",
];

/// Enumerators that mark a range or an end, and are no values.
fn is_mark(name: &str) -> bool {
    ["_START", "_END", "_RANGE_BASE"].iter().any(|end| name.ends_with(end))
}

/// An enumeration with what its extensions add.
struct Values<'a> {
    values: Vec<&'a Enumerator>,
    aliases: Vec<&'a Enumerator>,
}

/// The text of the table.
///
/// # Errors
/// A sentence for a form that the table cannot express.
pub(super) fn table(headers: &Headers, commit: &str) -> Result<String, String> {
    let enums = merged(headers);
    let types = ValueTypes::of(headers)?;
    let version = ["SAI_MAJOR", "SAI_MINOR", "SAI_REVISION"].map(|name| headers.number(name));
    let [Some(major), Some(minor), Some(revision)] = version else {
        return Err("the headers have no SAI_MAJOR, SAI_MINOR and SAI_REVISION".into());
    };
    let mut counts = [0usize; 7];
    let mut text = String::new();

    let mut plain: BTreeMap<&str, Vec<(&str, i64, bool)>> = BTreeMap::new();
    for (name, of) in enums.iter().filter(|(name, _)| name.starts_with("sai_") && !is_attributes(name)) {
        let mut lines: Vec<_> = of.values.iter().map(|v| (v.name.as_str(), v.number, false)).collect();
        lines.sort_by_key(|(_, number, _)| *number);
        lines.extend(of.aliases.iter().map(|v| (v.name.as_str(), v.number, true)));
        plain.insert(name, lines);
    }
    let statuses = headers.macros.iter().filter(|(name, _)| name.starts_with("SAI_STATUS_"));
    let mut statuses: Vec<_> = statuses.map(|(name, number)| (name.as_str(), *number, false)).collect();
    statuses.sort_by_key(|(_, number, _)| *number);
    plain.insert("sai_status_t", statuses);
    for (name, lines) in &plain {
        let strict = headers.enums.get(*name).is_some_and(|of| of.tags.get("flags") == Some("strict"));
        writeln!(text, "e\t{name}\t{}", if strict { "flags" } else { "-" }).unwrap();
        counts[0] += 1;
        for (value, number, alias) in lines {
            i32::try_from(*number).map_err(|_| format!("{value} has more than 32 bits"))?;
            writeln!(text, "{}\t{value}\t{number}", if *alias { "w" } else { "v" }).unwrap();
            counts[1] += 1;
        }
    }

    let apis = plain.get("sai_api_t").ok_or("no sai_api_t")?;
    let apis: Vec<_> = apis.iter().filter(|(name, ..)| *name != "SAI_API_UNSPECIFIED").collect();
    let mut functions_of = BTreeMap::new();
    for (name, number, _) in &apis {
        let structure = format!("sai_{}_api_t", name.trim_start_matches("SAI_API_").to_lowercase());
        let functions =
            headers.structs.get(&structure).ok_or_else(|| format!("no {structure} for {name}"))?;
        writeln!(text, "p\t{name}\t{number}").unwrap();
        counts[2] += 1;
        for function in functions {
            writeln!(text, "f\t{}", function.name).unwrap();
            counts[3] += 1;
        }
        functions_of.insert(*name, functions);
    }

    let objects = plain.get("sai_object_type_t").ok_or("no sai_object_type_t")?;
    let mut used = BTreeSet::new();
    for (name, number, _) in objects.iter().filter(|(_, number, _)| *number != 0) {
        let lower = name.trim_start_matches("SAI_OBJECT_TYPE_").to_lowercase();
        let stats = format!("sai_{lower}_stat_t");
        let stats = if plain.contains_key(stats.as_str()) { &stats } else { "-" };
        let found = functions_of.iter().map(|(api, functions)| (*api, indices(&lower, functions, &mut used)));
        let (api, numbers) = found
            .filter(|(_, numbers)| numbers.iter().any(Option::is_some))
            .max_by_key(|(_, numbers)| numbers.iter().flatten().count())
            .unwrap_or(("-", [None; FUNCTIONS.len()]));
        let numbers = numbers.map(|n| n.map_or_else(|| "-".to_owned(), |n| n.to_string())).join(",");
        writeln!(text, "o\t{name}\t{number}\t{api}\t{stats}\t{numbers}").unwrap();
        counts[4] += 1;
        // The structure of a key begins with the switch; others are values of attributes.
        let key = headers.structs.get(&format!("sai_{lower}_t"));
        let key = key.filter(|members| members.first().is_some_and(|first| first.name == "switch_id"));
        for member in key.into_iter().flatten() {
            let kind = types.member(&member.kind, &plain).ok_or_else(|| {
                format!("{} of {name} has the type {}, which no attribute has", member.name, member.kind)
            })?;
            writeln!(text, "m\t{}\t{kind}{}", member.name, objects_of(&member.tags)?).unwrap();
            counts[5] += 1;
        }
        let attributes = format!("sai_{lower}_attr_t");
        let Some(attributes) = enums.get(attributes.as_str()) else { continue };
        let mut lines = Vec::new();
        for value in &attributes.values {
            // The two ends of a range name each number between them too (ProcessEnumSection of SAI's parse.pl).
            let range =
                value.name.strip_suffix("MIN").and_then(|stem| Some((stem, value.tags.get("range")?)));
            lines.push((value.number, attribute(&value.name, value.number, &value.tags, &types, &plain)?));
            if let Some((stem, range)) = range {
                let most = headers.number(range).ok_or_else(|| format!("{range} is not defined"))?;
                for n in 1..most.min(RANGE_MAX) {
                    let number = value.number + n;
                    let line = attribute(&format!("{stem}{n}"), number, &value.tags, &types, &plain)?;
                    lines.push((number, line));
                }
            }
        }
        lines.sort_by_key(|(number, _)| *number);
        counts[6] += lines.len() + attributes.aliases.len();
        lines.iter().for_each(|(_, line)| text.push_str(line));
        for alias in &attributes.aliases {
            writeln!(text, "b\t{}\t{}", alias.name, alias.number).unwrap();
        }
    }
    let mut functions =
        functions_of.iter().flat_map(|(api, of)| of.iter().map(move |function| (api, function)));
    if let Some((api, function)) =
        functions.find(|(_, f)| f.kind.contains("_bulk_") && !used.contains(&f.name))
    {
        return Err(format!("{} of {api} creates, removes, sets or gets no object type", function.name));
    }

    let counts = counts.map(|n| n.to_string()).join("\t");
    Ok(format!(
        "# Object types, attributes, enumerations and statuses of SAI {major}.{minor}.{revision}.\n\
         # Written by `cargo xtask sai-table HEADERS COMMIT` from https://github.com/opencomputeproject/SAI at\n\
         # {commit}; `crates/sai/src/table.rs` describes the lines.\n\
         s\t{major}\t{minor}\t{revision}\t{commit}\nn\t{counts}\n{text}"
    ))
}

/// The numbers between the two ends of a range that get names, as in SAI's metadata.
const RANGE_MAX: i64 = 10;

fn is_attributes(name: &str) -> bool {
    name.ends_with("_attr_t")
}

/// The enumerations, with those of `experimental` that extend them.
fn merged(headers: &Headers) -> BTreeMap<String, Values<'_>> {
    let mut all: BTreeMap<String, Values<'_>> = BTreeMap::new();
    for (name, of) in &headers.enums {
        let base = name.replace("_extensions_t", "_t").replace("_custom_t", "_t");
        let into =
            all.entry(base.clone()).or_insert_with(|| Values { values: Vec::new(), aliases: Vec::new() });
        let prefix = base.strip_suffix('t').unwrap_or(&base).to_uppercase();
        let last = of.values.len().saturating_sub(1);
        for (n, value) in of.values.iter().enumerate() {
            // SAI's metadata takes the last value that is no mark, if it is called MAX.
            let rest_are_marks = of.values[n + 1..=last.max(n)].iter().all(|v| is_mark(&v.name));
            if is_mark(&value.name) || (value.name == format!("{prefix}MAX") && rest_are_marks) {
                continue;
            }
            match value.tags.get("ignore") {
                Some(_) => into.aliases.push(value),
                None => into.values.push(value),
            }
        }
    }
    all
}

/// The objects that a value or member may name, with a tab before.
fn objects_of(tags: &Tags) -> Result<String, String> {
    let Some(objects) = tags.get("objects") else { return Ok(String::new()) };
    let names = objects.split(',').map(|name| {
        let name = name.trim();
        name.strip_prefix("SAI_OBJECT_TYPE_").ok_or_else(|| format!("{name} is no object type"))
    });
    Ok(format!("\tobjects={}", names.collect::<Result<Vec<_>, _>>()?.join(",")))
}

fn attribute(
    name: &str,
    number: i64,
    tags: &Tags,
    types: &ValueTypes,
    enums: &BTreeMap<&str, Vec<(&str, i64, bool)>>,
) -> Result<String, String> {
    let kind = tags.get("type").ok_or_else(|| format!("{name} has no @type"))?;
    let kind = types.attribute(kind, enums).ok_or_else(|| format!("{name} has the unknown type {kind}"))?;
    let mut flags = String::new();
    for flag in tags.get("flags").ok_or_else(|| format!("{name} has no @flags"))?.split('|') {
        flags.push(match flag.trim() {
            "MANDATORY_ON_CREATE" => 'm',
            "CREATE_ONLY" => 'c',
            "CREATE_AND_SET" => 's',
            "READ_ONLY" => 'r',
            "KEY" => 'k',
            "DYNAMIC" => 'd',
            "SPECIAL" => 'p',
            other => return Err(format!("{name} has the unknown flag {other}")),
        });
    }
    for (tag, flag) in [("allownull", 'n'), ("allowempty", 'e'), ("isvlan", 'v'), ("isresourcetype", 't')] {
        match tags.get(tag) {
            Some("true") => flags.push(flag),
            Some("false") | None => {}
            Some(other) => return Err(format!("{name} has @{tag} {other}")),
        }
    }
    let mut line = format!("a\t{name}\t{number}\t{kind}\t{flags}{}", objects_of(tags)?);
    for tag in ["default", "condition", "validonly"] {
        if let Some(text) = tags.get(tag) {
            write!(line, "\t{tag}={text}").unwrap();
        }
    }
    line.push('\n');
    Ok(line)
}

/// The value type of each type of C, as the unions of values say it.
struct ValueTypes {
    values: BTreeMap<String, String>,
    fields: BTreeMap<String, String>,
    actions: BTreeMap<String, String>,
}

impl ValueTypes {
    fn of(headers: &Headers) -> Result<ValueTypes, String> {
        let of = |union: &str| {
            let members = headers.structs.get(union).ok_or_else(|| format!("no {union}"))?;
            Ok::<_, String>(members.iter().filter_map(value_type).collect::<BTreeMap<_, _>>())
        };
        Ok(ValueTypes {
            values: of("sai_attribute_value_t")?,
            fields: of("sai_acl_field_data_data_t")?,
            actions: of("sai_acl_action_parameter_t")?,
        })
    }

    /// `TYPE` or `TYPE:NAME` of a `@type`, with the enumeration or the function of the value.
    fn attribute(&self, kind: &str, enums: &BTreeMap<&str, Vec<(&str, i64, bool)>>) -> Option<String> {
        let Some((outer, inner)) = kind.split_once(' ') else {
            return match kind {
                "char" => Some("CHARDATA".into()),
                _ => typed(&self.values, kind, "INT32", enums),
            };
        };
        match outer {
            "sai_acl_field_data_t" | "sai_acl_field_data_mask_t" => {
                typed(&self.fields, inner, "ACL_FIELD_DATA_INT32", enums)
            }
            "sai_acl_action_data_t" => typed(&self.actions, inner, "ACL_ACTION_DATA_INT32", enums),
            "sai_s32_list_t" => enums.contains_key(inner).then(|| format!("INT32_LIST:{inner}")),
            "sai_pointer_t" => Some(format!("POINTER:{inner}")),
            _ => None,
        }
    }

    /// The same for a member of a key.
    fn member(&self, kind: &str, enums: &BTreeMap<&str, Vec<(&str, i64, bool)>>) -> Option<String> {
        match kind {
            "sai_vlan_id_t" => Some("UINT16".into()),
            "sai_label_id_t" | "uint32_t" => Some("UINT32".into()),
            "uint8_t" => Some("UINT8".into()),
            "uint16_t" => Some("UINT16".into()),
            "uint64_t" => Some("UINT64".into()),
            "sai_nat_entry_data_t" => Some("NAT_ENTRY_DATA".into()),
            _ => typed(&self.values, kind, "INT32", enums),
        }
    }
}

fn typed(
    types: &BTreeMap<String, String>,
    kind: &str,
    of_enums: &str,
    enums: &BTreeMap<&str, Vec<(&str, i64, bool)>>,
) -> Option<String> {
    types.get(kind).cloned().or_else(|| enums.contains_key(kind).then(|| format!("{of_enums}:{kind}")))
}

/// The C type and the value type of a member of a union of values.
fn value_type(member: &Member) -> Option<(String, String)> {
    let (_, kind) = member.tags.get("validonly")?.split_once("SAI_ATTR_VALUE_TYPE_")?;
    Some((member.kind.clone(), kind.trim().to_owned()))
}

/// Where a method table has the functions of an object type.
fn indices(
    lower: &str,
    functions: &[Member],
    used: &mut BTreeSet<String>,
) -> [Option<usize>; FUNCTIONS.len()] {
    let mut found = [None; FUNCTIONS.len()];
    let stem = lower.strip_suffix('y').map(|stem| format!("{stem}ies"));
    let plurals = [format!("{lower}s"), stem.unwrap_or_default(), format!("{lower}es"), lower.to_owned()];
    for (n, function) in functions.iter().enumerate() {
        let (kind, name) = (function.kind.as_str(), function.name.as_str());
        let generic = kind.starts_with("sai_bulk_object_");
        let is = |form: &str, plural: &str| {
            let (before, after) = form.split_once('X').unwrap_or((form, ""));
            name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) == Some(plural)
        };
        let typed = |form: &str| kind == format!("sai_{}_fn", form.replace('X', lower));
        let named = |form: &str| generic && plurals.iter().any(|plural| is(form, plural));
        let which = if typed("create_X") {
            0
        } else if typed("remove_X") {
            1
        } else if typed("set_X_attribute") {
            2
        } else if typed("get_X_attribute") {
            3
        } else if typed("get_X_stats") {
            4
        } else if typed("get_X_stats_ext") {
            5
        } else if typed("clear_X_stats") {
            6
        } else if typed("bulk_create_X") || named("create_X") {
            7
        } else if typed("bulk_remove_X") || named("remove_X") {
            8
        } else if typed("bulk_set_X_attribute") || named("set_X_attribute") {
            9
        } else if typed("bulk_get_X_attribute") || named("get_X_attribute") {
            10
        } else if lower == "fdb_entry" && kind == "sai_flush_fdb_entries_fn" {
            11
        } else {
            continue;
        };
        used.insert(name.to_owned());
        found[which].get_or_insert(n);
    }
    found
}
