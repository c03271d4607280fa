//! Every structure of the C ABI against what a C compiler makes of SAI's headers: `layout.txt`.
//!
//! The file was printed by a program that includes `sai.h` and `saiextensions.h` of SAI 1.18.1, with a line for each
//! `sizeof` and `offsetof`. With `SAI_HEADERS=FOLDER`, a folder with `inc` and `experimental`, this test compiles such a
//! program again.

mod support;

use ribtide_sai::ObjectType;
use ribtide_sai_library::{abi, key_layout};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const LAYOUT: &str = include_str!("layout.txt");

/// Offset and size by `STRUCTURE.MEMBER`, and 0 and size by `STRUCTURE`.
fn expected(text: &str) -> BTreeMap<&str, (usize, usize)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [name, "sizeof", size, "align", _] => (name, (0, size.parse().unwrap())),
                [name, offset, size] => (name, (offset.parse().unwrap(), size.parse().unwrap())),
                _ => panic!("{line}"),
            }
        })
        .collect()
}

#[test]
fn structures_are_laid_out_as_in_the_headers() {
    let expected = expected(LAYOUT);
    let mut checked = 0;
    for (name, offset, size) in abi::layout() {
        // The address in `sai_nat_entry_key_t` is the same in the mask.
        assert_eq!(expected.get(name.as_str()), Some(&(offset, size)), "{name}");
        checked += 1;
    }
    assert!(checked > 100, "{checked}");
    for (name, size) in [
        ("sai_attribute_value_t", size_of::<abi::Union5>()),
        ("sai_acl_action_parameter_t", size_of::<abi::Union3>()),
        ("sai_acl_field_data_data_t", size_of::<abi::Union2>()),
        ("sai_acl_field_data_mask_t", size_of::<abi::Union2>()),
    ] {
        assert_eq!(expected[name], (0, size), "{name}");
        // Each is a union, so each member begins at 0.
        let prefix = format!("{name}.");
        let members: Vec<_> = expected.iter().filter(|(member, _)| member.starts_with(&prefix)).collect();
        assert!(members.len() >= 10 && members.iter().all(|(_, (offset, _))| *offset == 0), "{name}");
    }
}

#[test]
fn keys_are_laid_out_as_in_the_headers() {
    let expected = expected(LAYOUT);
    let mut keys = 0;
    for object in ObjectType::all().filter(|object| object.is_entry()) {
        let name = format!("sai_{}_t", object.short_name().to_lowercase());
        let (offsets, size) = key_layout(object).unwrap();
        assert_eq!(expected.get(name.as_str()), Some(&(0, size)), "{name}");
        for (member, offset) in object.key().zip(offsets) {
            let member = format!("{name}.{}", member.name());
            assert_eq!(expected.get(member.as_str()).map(|(offset, _)| *offset), Some(offset), "{member}");
        }
        keys += 1;
    }
    assert_eq!(keys, 22);
}

/// A program that prints the figures of `names`.
fn print(includes: &[&str], names: &[&str], paths: &[&Path]) -> Option<String> {
    let mut program = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    includes.iter().for_each(|include| writeln!(program, "#include \"{include}\"").unwrap());
    program.push_str("int main(void) {\n");
    for name in names {
        match name.split_once('.') {
            None => writeln!(
                program,
                "printf(\"{name} sizeof %zu align %zu\\n\", sizeof({name}), _Alignof({name}));"
            ),
            Some((of, member)) => writeln!(
                program,
                "printf(\"{name} %zu %zu\\n\", offsetof({of}, {member}), sizeof((({of} *)0)->{member}));"
            ),
        }
        .unwrap();
    }
    program.push_str("return 0; }\n");
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-w", "-o"]).arg(&binary).arg(&source);
    for path in paths {
        cc.arg("-I").arg(path);
    }
    let output = match cc.output() {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: no C compiler: {e}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(Command::new(binary).output().unwrap().stdout).unwrap())
}

/// The declarations of the library that the tests load.
#[test]
fn the_tests_own_declarations_are_laid_out_as_in_the_headers() {
    let header = std::fs::read_to_string(support::folder().join("sai.h")).unwrap();
    let words: Vec<&str> = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let lines = LAYOUT.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    // Not every member of a union is declared.
    let declared = |name: &&str| match name.split_once('.') {
        None => words.contains(name),
        Some((of, member)) => words.contains(&of) && declares(&header, of, member),
    };
    let names: Vec<&str> = names.into_iter().filter(declared).collect();
    assert!(names.len() > 100, "{}", names.len());
    let Some(printed) = print(&["sai.h"], &names, &[&support::folder()]) else { return };
    let (printed, expected) = (expected(&printed), expected(LAYOUT));
    for name in names {
        assert_eq!(printed[name], expected[name], "{name}");
    }
}

/// Whether the structure in our header has this member.
fn declares(header: &str, of: &str, member: &str) -> bool {
    let Some(end) = header.find(&format!("}} {of};")) else { return false };
    let start = header[..end].rfind('{').unwrap_or(0);
    header[start..end].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == member)
}

#[test]
fn committed_figures_are_those_of_the_headers() {
    let Some(headers) = std::env::var_os("SAI_HEADERS") else { return println!("skipped: no SAI_HEADERS") };
    let lines = LAYOUT.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    let headers = Path::new(&headers);
    let paths = [headers.join("inc"), headers.join("experimental")];
    let includes = ["sai.h", "saiextensions.h"];
    let Some(printed) = print(&includes, &names, &[&paths[0], &paths[1]]) else { return };
    let committed: Vec<&str> = LAYOUT.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), committed);
}

/// `SAI_WRITE=1` writes them.
#[test]
fn files_of_the_library_are_those_of_the_table() {
    for (path, text) in support::generated() {
        if std::env::var_os("SAI_WRITE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} is not that of the table: SAI_WRITE=1 writes it", path.display());
    }
}
