//! Files of prefixes and of ASes that policies compare with, such as programs make them from the IRR.
//!
//! A file whose first character is `{` is JSON as `bgpq4 -j` writes it. Any other has one range of prefixes a line, or any
//! number of ASes; `#` begins a comment.

use super::regular_file::{self, Unread};
use ribtide_policy::{Numbers, PrefixRange};
use ribtide_prefix::AnyPrefix;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

/// The largest file, in bytes: a million prefixes in JSON have some 100 MB.
const FILE_MAX: u64 = 256 * 1024 * 1024;
/// Wrong lines that are told one by one.
const REPORTED_LINES_MAX: usize = 3;

/// Reads prefixes.
///
/// # Errors
/// A sentence with file, line and column of the first wrong entries.
pub(super) fn prefixes(path: &Path) -> Result<Vec<PrefixRange>, String> {
    let text = read(path, FILE_MAX)?;
    if is_json(&text) {
        return Ok(json::<PrefixEntry>(path, &text)?.into_iter().map(|entry| entry.0).collect());
    }
    lines(path, &text, |line, take| take(line), prefix_range)
}

/// Reads numbers of ASes: `65001` or `AS65001`, or ranges such as `64512-65534`.
///
/// # Errors
/// As [`prefixes`].
pub(super) fn asns(path: &Path) -> Result<Vec<Numbers>, String> {
    let text = read(path, FILE_MAX)?;
    if is_json(&text) {
        return Ok(json::<AsEntry>(path, &text)?.into_iter().map(|entry| entry.0).collect());
    }
    let words = |line: &str, take: &mut dyn FnMut(&str)| {
        line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()).for_each(take);
    };
    lines(path, &text, words, |word| as_numbers(word).map_err(|message| (0, message)))
}

fn read(path: &Path, max: u64) -> Result<String, String> {
    regular_file::read(path, max).map_err(|error| match error {
        Unread::TooLong => {
            format!("{} has more than {max} bytes; divide it among several sets", path.display())
        }
        Unread::Failed(why) => format!("{} cannot be read: {why}", path.display()),
    })
}

/// A message without the text that it quotes of a file. A client of the API may name a file that it
/// may not read.
pub(super) fn without_quotes(message: &str) -> String {
    let mut parts = message.split('"');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let (Some(_), Some(rest)) = (parts.next(), parts.next()) {
        out.push_str("this");
        out.push_str(rest);
    }
    out
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The entries of the lines, into which `split` divides each. `parse` gives an error with its place in the text.
fn lines<T>(
    path: &Path,
    text: &str,
    split: impl Fn(&str, &mut dyn FnMut(&str)),
    parse: impl Fn(&str) -> Result<T, (usize, String)>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    let mut wrong = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let entries = line.split_once('#').map_or(line, |(before, _)| before).trim();
        if entries.is_empty() {
            continue;
        }
        split(entries, &mut |entry| match parse(entry) {
            Ok(entry) => all.push(entry),
            Err((at, message)) => {
                // Both are parts of the line.
                let before = entry.as_ptr().addr() - line.as_ptr().addr() + at;
                let column = line.get(..before).unwrap_or(line).chars().count() + 1;
                wrong.push((i + 1, column, without_quotes(&message)));
            }
        });
    }
    if wrong.is_empty() {
        return Ok(all);
    }
    let many = wrong.len();
    let told = wrong.into_iter().take(REPORTED_LINES_MAX);
    let mut problems: Vec<String> =
        told.map(|(line, column, message)| located(path, line, column, message)).collect();
    if many > REPORTED_LINES_MAX {
        problems.push(format!("and {} more wrong entries", many - REPORTED_LINES_MAX));
    }
    Err(problems.join("; "))
}

fn located(path: &Path, line: usize, column: usize, message: impl Display) -> String {
    format!("{}:{line}:{column}: {message}", path.display())
}

/// A range of prefixes, or what is wrong and where.
fn prefix_range(text: &str) -> Result<PrefixRange, (usize, String)> {
    text.parse().map_err(|message| {
        let prefix = text.split_whitespace().next().unwrap_or_default();
        let lengths = text.get(prefix.len()..).unwrap_or_default();
        let is_prefix = prefix.parse::<AnyPrefix>().is_ok();
        let at = if is_prefix { text.len() - lengths.trim_start().len() } else { 0 };
        (at, message)
    })
}

fn as_numbers(text: &str) -> Result<Numbers, String> {
    let number = text.strip_prefix("AS").or_else(|| text.strip_prefix("as")).unwrap_or(text);
    number.parse().map_err(|_| {
        format!("\"{text}\" is no AS; write one such as 65001 or AS65001, or a range such as 64512-65534")
    })
}

/// The entries of JSON: all lists of one object, whatever their names are.
fn json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<T>, String> {
    let lists: BTreeMap<String, Vec<T>> = serde_json::from_str(text).map_err(|e| {
        let whole = e.to_string();
        let message = without_quotes(whole.split(" at line ").next().unwrap_or(&whole));
        located(path, e.line(), e.column(), message)
    })?;
    Ok(lists.into_values().flatten().collect())
}

/// An element of a prefix list of `bgpq4 -j`.
#[derive(Deserialize)]
#[serde(try_from = "PrefixObject")]
struct PrefixEntry(PrefixRange);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PrefixObject {
    prefix: String,
    #[serde(default)]
    exact: bool,
    greater_equal: Option<u8>,
    less_equal: Option<u8>,
}

impl TryFrom<PrefixObject> for PrefixEntry {
    type Error = String;

    fn try_from(object: PrefixObject) -> Result<PrefixEntry, String> {
        let PrefixObject { prefix, exact, greater_equal, less_equal } = object;
        let text = match (exact, greater_equal, less_equal) {
            (true, None, None) | (false, None, None) => prefix,
            (false, Some(ge), None) => format!("{prefix} ge {ge}"),
            (false, None, Some(le)) => format!("{prefix} le {le}"),
            (false, Some(ge), Some(le)) => format!("{prefix} ge {ge} le {le}"),
            (true, ..) => return Err(format!("{prefix} is exact and has lengths; write one of the two")),
        };
        text.parse().map(PrefixEntry)
    }
}

/// An element of an AS list of `bgpq4 -tj`.
#[derive(Deserialize)]
#[serde(try_from = "AsValue")]
struct AsEntry(Numbers);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of AS numbers")]
enum AsValue {
    Number(u32),
    Text(String),
}

impl TryFrom<AsValue> for AsEntry {
    type Error = String;

    fn try_from(value: AsValue) -> Result<AsEntry, String> {
        match value {
            AsValue::Number(asn) => Ok(AsEntry(Numbers::one(asn))),
            AsValue::Text(text) => as_numbers(&text).map(AsEntry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_file<T>(text: &str, read: impl Fn(&Path) -> Result<Vec<T>, String>) -> Result<Vec<String>, String>
    where
        T: Display,
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, text).unwrap();
        let shown = |message: String| message.replace(&path.display().to_string(), "list");
        read(&path).map(|all| all.iter().map(T::to_string).collect()).map_err(shown)
    }

    fn of_prefixes(text: &str) -> Result<Vec<String>, String> {
        on_file(text, prefixes)
    }

    fn of_asns(text: &str) -> Result<Vec<String>, String> {
        on_file(text, asns)
    }

    fn list(texts: &[&str]) -> Result<Vec<String>, String> {
        Ok(texts.iter().map(|text| text.to_string()).collect())
    }

    #[test]
    fn prefixes_are_one_a_line_with_or_without_lengths() {
        let text = "# made by bgpq4\n192.0.2.0/24\n\t198.51.100.0/22 24..24 # a comment\n\n2001:db8::/32 le 48\r\n\
                    10.0.0.0/8 ge 16 le 24\n10.0.0.0/8 ge 31\n203.0.113.0/24 exact\n";
        let expected = [
            "192.0.2.0/24",
            "198.51.100.0/22 24..24",
            "2001:db8::/32 32..48",
            "10.0.0.0/8 16..24",
            "10.0.0.0/8 31..32",
            "203.0.113.0/24",
        ];
        assert_eq!(of_prefixes(text), list(&expected));
        assert_eq!(of_prefixes(""), list(&[]));
    }

    #[test]
    fn prefixes_of_bgpq4_in_json() {
        let text = r#"{ "NN": [
            { "prefix": "192.0.2.0\/24", "exact": true },
            { "prefix": "10.0.0.0\/22", "exact": false, "greater-equal": 24, "less-equal": 24 },
            { "prefix": "2001:db8::\/32", "exact": false, "less-equal": 48 }
        ] }"#;
        assert_eq!(of_prefixes(text), list(&["192.0.2.0/24", "10.0.0.0/22 24..24", "2001:db8::/32 32..48"]));
        assert_eq!(of_prefixes("{ \"NN\": [\n] }"), list(&[]));
    }

    #[test]
    fn wrong_prefixes_are_named_with_line_and_column() {
        for (text, message) in [
            ("192.0.2.0/24\n  192.0.2.0/33\n", "list:2:3: "),
            ("192.0.2.0/24 8..9\n", "list:1:14: this "),
            ("ä # x\n", "list:1:1: "),
            ("192.0.2.0/24 ge 25 le 24\n", "list:1:14: "),
            ("x\ny\nz\nu\nv\n", "and 2 more wrong entries"),
            (
                "{ \"NN\": [\n { \"prefix\": \"192.0.2.0/24\", \"exact\": true },\n { \"prefix\": \"x\" } ] }",
                "list:3:20: ",
            ),
            (
                "{ \"NN\": [\n { \"prefix\": \"1.0.0.0/8\", \"exact\": true, \"less-equal\": 9 } ] }",
                "is exact and has lengths",
            ),
            ("{ \"NN\": [", "list:1:9: EOF"),
            ("{ \"NN\": [ { \"prefx\": 1 } ] }", "unknown field `prefx`"),
        ] {
            let refused = of_prefixes(text).unwrap_err();
            assert!(refused.contains(message), "{text}: {refused}");
        }
        let path = Path::new("/nonexistent/list");
        assert!(prefixes(path).unwrap_err().starts_with("/nonexistent/list cannot be read"));
    }

    #[test]
    fn asns_are_numbers_ranges_or_json() {
        assert_eq!(
            of_asns("65001 AS65002,as65003\n# x\n64512-64520 # y\n"),
            list(&["65001", "65002", "65003", "64512-64520"])
        );
        assert_eq!(of_asns("{\"NN\": [\n  65001,70000,\"AS1\"\n]}"), list(&["65001", "70000", "1"]));
        for (text, message) in
            [("65001\n65002, AS-FOO\n", "list:2:8: this is no AS"), ("{\"NN\": [ 1,\n -2 ] }", "list:2:")]
        {
            let refused = of_asns(text).unwrap_err();
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }

    #[test]
    fn a_file_beyond_the_bound_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "10.0.0.0/8\n").unwrap();
        assert_eq!(read(&path, 11).as_deref(), Ok("10.0.0.0/8\n"));
        assert!(read(&path, 10).unwrap_err().contains("has more than 10 bytes"));
    }
}
