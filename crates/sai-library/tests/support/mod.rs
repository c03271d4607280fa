//! The library of `tests/library`, compiled by `cc`.
#![allow(dead_code, reason = "each test program uses a part")]

use ribtide_sai::{Api, Attribute, Function, ObjectType, ValueType};
use ribtide_sai_library::key_layout;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `SAI_API_VERSION` of the table.
pub(crate) fn table_version() -> u32 {
    let [major, minor, revision] = ribtide_sai::version();
    10_000 * major + 100 * minor + revision
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library")
}

/// The files of the library that are written from the table.
pub(crate) fn generated() -> [(PathBuf, String); 2] {
    [(folder().join("names.inc"), names()), (folder().join("tables.inc"), tables())]
}

/// Compiles the library into `into`, with further flags; `None` where there is no C compiler.
pub(crate) fn compile(into: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let library = into.join(name);
    let version = format!("-DVERSION={}", table_version());
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O0", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC", "-o"]);
    cc.arg(&library).arg("-I").arg(folder());
    if !flags.iter().any(|flag| flag.starts_with("-DVERSION")) {
        cc.arg(version);
    }
    let output = match cc.args(flags).arg(folder().join("memory.c")).output() {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: no C compiler: {e}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

/// The kind of values and the size of a list's items, for the library's copies.
fn kind(attribute: Attribute) -> Option<(&'static str, usize)> {
    use ValueType as T;
    Some(match attribute.value_type() {
        T::ObjectId => ("OID", 8),
        T::ObjectList => ("OIDS", 8),
        T::AclFieldDataObjectList => ("FIELD_OIDS", 8),
        T::AclFieldDataUint8List => ("FIELD_BYTES", 1),
        T::AclActionDataObjectId => ("ACTION_OID", 8),
        T::AclActionDataObjectList => ("ACTION_OIDS", 8),
        T::AclCapability => ("CAPABILITY", 4),
        T::Uint8List | T::Int8List | T::Json => ("LIST_OF", 1),
        T::Uint16List | T::VlanList => ("LIST_OF", 2),
        T::Uint32List | T::Int32List | T::Uint16RangeList => ("LIST_OF", 4),
        T::MapList | T::PortLaneLatchStatusList | T::PortSnrList => ("LIST_OF", 8),
        T::AclResourceList => ("LIST_OF", 12),
        T::SegmentList | T::Uint64RangeList | T::TapsList => ("LIST_OF", 16),
        T::IpAddressList => ("LIST_OF", 20),
        T::SystemPortConfigList => ("LIST_OF", 24),
        T::QosMapList => ("LIST_OF", 32),
        T::IpPrefixList => ("LIST_OF", 36),
        _ => return None,
    })
}

fn names() -> String {
    let mut out = String::from(
        "/* Written from ribtide's table: SAI_WRITE=1 cargo test -p ribtide-sai-library --test layout */\nenum {\n",
    );
    for object in ObjectType::all() {
        writeln!(out, "TYPE_{} = {},", object.short_name(), object.number()).unwrap();
    }
    for name in [
        "SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS",
        "SWITCH_ATTR_CPU_PORT",
        "SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID",
        "SWITCH_ATTR_PORT_LIST",
        "SWITCH_ATTR_AVAILABLE_IPV4_ROUTE_ENTRY",
        "SWITCH_ATTR_NUMBER_OF_ECMP_GROUPS",
        "SWITCH_ATTR_PORT_STATE_CHANGE_NOTIFY",
        "SWITCH_ATTR_FDB_EVENT_NOTIFY",
    ] {
        let number = Attribute::from_name(&format!("SAI_{name}")).unwrap().number();
        writeln!(out, "ATTR_{} = {number},", name.trim_start_matches("SWITCH_ATTR_")).unwrap();
    }
    for name in ["HW_LANE_LIST", "SPEED", "ADMIN_STATE", "OPER_STATUS"] {
        let number = Attribute::from_name(&format!("SAI_PORT_ATTR_{name}")).unwrap().number();
        writeln!(out, "ATTR_PORT_{name} = {number},").unwrap();
    }
    out.push_str("};\nstatic int kind_of(sai_object_type_t type, sai_attr_id_t id, size_t *size) {\n*size = 0;\nswitch (type) {\n");
    for object in ObjectType::all() {
        let kinds: Vec<_> = object.attributes().filter_map(|a| Some((a.number(), kind(a)?))).collect();
        if kinds.is_empty() {
            continue;
        }
        writeln!(out, "case {}: switch (id) {{", object.number()).unwrap();
        for (number, (kind, size)) in kinds {
            writeln!(out, "case {number}: *size = {size}; return {kind};").unwrap();
        }
        out.push_str("default: return PLAIN; }\n");
    }
    out.push_str("default: return PLAIN; }\n}\n");
    out.push_str(
        "static const uint32_t *mandatory(sai_object_type_t type, uint32_t *count) {\nswitch (type) {\n",
    );
    for object in ObjectType::all() {
        let needed = object.attributes().filter(|a| a.is_mandatory() && a.condition().is_none());
        let needed: Vec<String> = needed.map(|a| a.number().to_string()).collect();
        if !needed.is_empty() {
            writeln!(
                out,
                "case {}: {{ static const uint32_t all[] = {{{}}}; *count = {}; return all; }}",
                object.number(),
                needed.join(","),
                needed.len()
            )
            .unwrap();
        }
    }
    out.push_str("default: *count = 0; return 0; }\n}\n");
    out
}

fn tables() -> String {
    let mut out = String::from(
        "/* Written from ribtide's table: SAI_WRITE=1 cargo test -p ribtide-sai-library --test layout */\n",
    );
    let objects = || ObjectType::all().filter(|object| object.api().is_some());
    for object in objects().filter(|object| object.short_name() != "SWITCH") {
        let lower = object.short_name().to_lowercase();
        match object.is_entry() {
            true => {
                let size = key_layout(object).unwrap().1;
                writeln!(out, "ENTRY({lower}, {}, {size})", object.number()).unwrap();
            }
            false => writeln!(out, "OBJECT({lower}, {})", object.number()).unwrap(),
        }
    }
    for api in Api::all() {
        writeln!(out, "static void *table_{}[{}] = {{", api.number(), api.functions().len()).unwrap();
        for object in objects().filter(|object| object.api() == Some(api)) {
            let lower = object.short_name().to_lowercase();
            let mut put = |function, name: &str| {
                // The bulk functions of a switch do not exist, and counters of entries have a key.
                if let Some(place) = object.function(function) {
                    writeln!(out, "[{place}] = (void *){name},").unwrap();
                }
            };
            put(Function::Create, &format!("create_{lower}"));
            put(Function::Remove, &format!("remove_{lower}"));
            put(Function::Set, &format!("set_{lower}"));
            put(Function::Get, &format!("get_{lower}"));
            put(Function::BulkCreate, &format!("bulk_create_{lower}"));
            put(Function::BulkRemove, &format!("bulk_remove_{lower}"));
            put(Function::BulkSet, &format!("bulk_set_{lower}"));
            if !object.is_entry() {
                put(Function::Stats, "stats_of");
                if lower == "port" {
                    // Others are read and cleared one after the other.
                    put(Function::StatsExt, "stats_ext_of");
                }
                put(Function::ClearStats, "clear_stats");
            }
            put(Function::Flush, "flush");
        }
        out.push_str("};\n");
    }
    out.push_str("static sai_status_t tables(uint32_t api, void **table) {\nswitch (api) {\n");
    for api in Api::all() {
        writeln!(out, "case {}: *table = table_{}; return SUCCESS;", api.number(), api.number()).unwrap();
    }
    out.push_str("default: return INVALID_PARAMETER; }\n}\n");
    out
}
