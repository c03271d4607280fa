//! `cargo xtask sai-table HEADERS COMMIT` writes `crates/sai/src/table.txt` from SAI's headers. HEADERS is a folder
//! with `inc` and `experimental` of opencomputeproject/SAI at COMMIT. The rules by which names belong together are
//! those of SAI's own metadata (`meta/README.md` of SAI): `sai_x_attr_t` has the attributes of
//! `SAI_OBJECT_TYPE_X`, enumerators that end in `_START`, `_END` and `_RANGE_BASE` are marks, and `@ignore` marks an
//! older name of a value.

mod emit;
mod header;

use crate::Tree;
use header::Headers;
use std::fs;
use std::path::{Path, PathBuf};

/// The table, from the root of the workspace.
pub const TABLE: &str = "crates/sai/src/table.txt";

/// Writes the table.
///
/// # Errors
/// A sentence when a header cannot be read, or has a form that the table cannot express.
pub fn run(tree: &Tree, headers: &Path, commit: &str) -> Result<(), String> {
    let path = tree.root.join(TABLE);
    fs::write(&path, table(headers, commit)?).map_err(|e| format!("{}: {e}", path.display()))
}

/// The text of the table.
///
/// # Errors
/// As [`run`].
pub fn table(headers: &Path, commit: &str) -> Result<String, String> {
    let mut read = Headers::default();
    for file in files(headers)? {
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        read.add(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    read.evaluate()?;
    emit::table(&read, commit)
}

/// The headers in the order in which their constants may name each other: `inc` before `experimental`.
fn files(headers: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    for folder in ["inc", "experimental"] {
        let folder = headers.join(folder);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "h"));
        files.sort();
        all.extend(files);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small SAI with each form that the headers have.
    const TYPES: &str = r"
#define SAI_MAJOR 1
#define SAI_MINOR 2
#define SAI_REVISION 3
#define SAI_STATUS_CODE(_S_) (-(_S_))
#define SAI_STATUS_SUCCESS 0x00000000L
#define SAI_STATUS_FAILURE SAI_STATUS_CODE(0x00000001L)
#define SAI_FIELD_RANGE 0xFF
/* typedef enum _sai_not_t { SAI_NOT_A } sai_not_t; */
typedef enum _sai_object_type_t
{
    SAI_OBJECT_TYPE_NULL = 0, /**< invalid, object type */
    SAI_OBJECT_TYPE_DOOR = 1,
    SAI_OBJECT_TYPE_KEY_ENTRY = 2,
    SAI_OBJECT_TYPE_MAX,
    SAI_OBJECT_TYPE_EXTENSIONS_RANGE_BASE = 0x20000000,
} sai_object_type_t;
typedef enum _sai_object_type_extensions_t
{
    SAI_OBJECT_TYPE_EXTENSIONS_RANGE_START = SAI_OBJECT_TYPE_EXTENSIONS_RANGE_BASE,
    SAI_OBJECT_TYPE_GATE = SAI_OBJECT_TYPE_EXTENSIONS_RANGE_START,
} sai_object_type_extensions_t;
typedef enum _sai_api_t { SAI_API_UNSPECIFIED = 0, SAI_API_DOOR = 1, SAI_API_MAX } sai_api_t;
/**
 * @brief Colors
 *
 * @flags strict
 */
typedef enum _sai_color_t
{
    SAI_COLOR_GREEN = 1 << 2,
    /** @ignore - for backward compatibility */
    SAI_COLOR_GREENISH = SAI_COLOR_GREEN,
    SAI_COLOR_BLUE,
} sai_color_t;
typedef union _sai_attribute_value_t
{
    /** @validonly meta->attrvaluetype == SAI_ATTR_VALUE_TYPE_BOOL */
    bool booldata;
    /** @validonly meta->attrvaluetype == SAI_ATTR_VALUE_TYPE_OBJECT_ID */
    sai_object_id_t oid;
} sai_attribute_value_t;
typedef union _sai_acl_field_data_data_t { bool booldata; } sai_acl_field_data_data_t;
typedef union _sai_acl_action_parameter_t { bool booldata; } sai_acl_action_parameter_t;
typedef struct _sai_key_entry_t
{
    /** @objects SAI_OBJECT_TYPE_DOOR */
    sai_object_id_t switch_id;
    sai_color_t color;
} sai_key_entry_t;
typedef enum _sai_door_attr_t
{
    SAI_DOOR_ATTR_START,
    /**
     * @brief Whether it is open, or not
     *
     * @type bool
     * @flags MANDATORY_ON_CREATE | CREATE_ONLY
     * @condition SAI_DOOR_ATTR_COLOR == SAI_COLOR_BLUE
     */
    SAI_DOOR_ATTR_OPEN = SAI_DOOR_ATTR_START,
    /**
     * @brief Color
     *
     * @type sai_color_t
     * @flags CREATE_AND_SET
     * @default SAI_COLOR_GREEN
     */
    SAI_DOOR_ATTR_COLOR,
    /**
     * @brief Fields
     *
     * @type sai_object_id_t
     * @flags CREATE_ONLY
     * @objects SAI_OBJECT_TYPE_DOOR, SAI_OBJECT_TYPE_GATE
     * @allownull true
     * @range SAI_FIELD_RANGE
     */
    SAI_DOOR_ATTR_FIELD_MIN = SAI_DOOR_ATTR_START + 0x10,
    SAI_DOOR_ATTR_END,
} sai_door_attr_t;
typedef sai_status_t (*sai_create_door_fn)(_In_ uint32_t count, _In_ const sai_attribute_t *list);
typedef struct _sai_door_api_t
{
    sai_create_door_fn create_door;
    sai_get_door_attribute_fn get_door_attribute;
    sai_bulk_object_create_fn create_doors;
    sai_bulk_create_key_entry_fn create_key_entries;
} sai_door_api_t;
";

    fn headers(name: &str, types: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ribtide-sai-table-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join("inc")).unwrap();
        fs::create_dir_all(folder.join("experimental")).unwrap();
        fs::write(folder.join("inc/saitypes.h"), types).unwrap();
        folder
    }

    #[test]
    fn table_has_a_line_for_each_name_of_the_headers() {
        let folder = headers("whole", TYPES);
        let table = table(&folder, "abc").unwrap();
        fs::remove_dir_all(folder).unwrap();
        let lines: Vec<&str> = table.lines().skip_while(|line| line.starts_with('#')).collect();
        assert_eq!(lines[..2], ["s\t1\t2\t3\tabc", "n\t4\t11\t1\t4\t3\t2\t12"]);
        for line in [
            "e\tsai_color_t\tflags",
            "e\tsai_status_t\t-",
            "v\tSAI_COLOR_GREEN\t4",
            "v\tSAI_COLOR_BLUE\t5",
            "w\tSAI_COLOR_GREENISH\t4",
            "v\tSAI_OBJECT_TYPE_GATE\t536870912",
            "v\tSAI_STATUS_FAILURE\t-1",
            "f\tget_door_attribute",
            "o\tSAI_OBJECT_TYPE_DOOR\t1\tSAI_API_DOOR\t-\t0,-,-,1,-,-,-,2,-,-,-,-",
            "o\tSAI_OBJECT_TYPE_KEY_ENTRY\t2\tSAI_API_DOOR\t-\t-,-,-,-,-,-,-,3,-,-,-,-",
            "m\tswitch_id\tOBJECT_ID\tobjects=DOOR",
            "m\tcolor\tINT32:sai_color_t",
            "a\tSAI_DOOR_ATTR_OPEN\t0\tBOOL\tmc\tcondition=SAI_DOOR_ATTR_COLOR == SAI_COLOR_BLUE",
            "a\tSAI_DOOR_ATTR_COLOR\t1\tINT32:sai_color_t\ts\tdefault=SAI_COLOR_GREEN",
            "a\tSAI_DOOR_ATTR_FIELD_MIN\t16\tOBJECT_ID\tcn\tobjects=DOOR,GATE",
            "a\tSAI_DOOR_ATTR_FIELD_9\t25\tOBJECT_ID\tcn\tobjects=DOOR,GATE",
        ] {
            assert!(lines.contains(&line), "{line} in\n{table}");
        }
        assert!(!table.contains("_START") && !table.contains("SAI_OBJECT_TYPE_MAX"));
    }

    #[test]
    fn table_refuses_what_it_cannot_express() {
        for (name, from, to, why) in [
            (
                "flag",
                "@flags CREATE_AND_SET",
                "@flags SOMETIMES",
                "SAI_DOOR_ATTR_COLOR has the unknown flag SOMETIMES",
            ),
            (
                "type",
                "@type sai_color_t",
                "@type sai_colour_t",
                "SAI_DOOR_ATTR_COLOR has the unknown type sai_colour_t",
            ),
            ("number", "1 << 2", "1 * 4", "the initializer of SAI_COLOR_GREEN has an unknown form"),
            ("bulk", "create_doors", "create_dours", "create_dours of SAI_API_DOOR creates"),
        ] {
            let folder = headers(name, &TYPES.replacen(from, to, 1));
            let fault = table(&folder, "abc").unwrap_err();
            fs::remove_dir_all(folder).unwrap();
            assert!(fault.starts_with(why), "{fault}");
        }
    }

    /// `SAI_HEADERS=FOLDER cargo test -p xtask`: the committed table is that of the headers in this folder.
    #[test]
    fn committed_table_is_that_of_the_headers() {
        let Some(headers) = std::env::var_os("SAI_HEADERS") else {
            return println!("skipped: no SAI_HEADERS");
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let committed = fs::read_to_string(root.join(TABLE)).unwrap();
        let commit = committed.lines().find_map(|line| line.strip_prefix("s\t")?.split('\t').nth(3)).unwrap();
        assert!(
            table(Path::new(&headers), commit).unwrap() == committed,
            "write it with cargo xtask sai-table"
        );
    }
}
