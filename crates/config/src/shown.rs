//! The text of a configuration as it may be shown: without its secrets and comments.

use super::diagnosis::SECRET_KEYS;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file and text that a configuration was read from. Settings are compared without it, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct ShownConfig {
    /// The file; `None` for text without one.
    pub file: Option<PathBuf>,
    /// The text without comments, with `"********"` in the place of each secret.
    pub text: Arc<str>,
}

impl PartialEq for ShownConfig {
    fn eq(&self, _: &ShownConfig) -> bool {
        true
    }
}

/// In the place of a secret, whatever its length.
const HIDDEN: &str = "\"********\"";

/// The text without secrets and without comments, which may have former secrets; nothing of a text that is no TOML.
pub(super) fn without_secrets(text: &str) -> Arc<str> {
    let Ok(table) = DeTable::parse(text) else { return Arc::default() };
    let mut parts = Vec::new();
    in_table(table.get_ref(), &mut parts);
    parts.sort_unstable_by_key(|part| part.span.start);
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for Part { span, is_secret } in parts {
        // A key of several headers has the place of the first.
        if span.start < at {
            continue;
        }
        add_between(&mut shown, text.get(at..span.start).unwrap_or_default());
        shown.push_str(if is_secret { HIDDEN } else { text.get(span.clone()).unwrap_or_default() });
        at = span.end;
    }
    add_between(&mut shown, text.get(at..).unwrap_or_default());
    shown.into()
}

/// A key, or a value without others in it.
struct Part {
    span: Range<usize>,
    is_secret: bool,
}

/// Adds the text between two parts without its comments; a line that has nothing else goes.
fn add_between(shown: &mut String, between: &str) {
    for line in between.split_inclusive('\n') {
        let Some((before, _)) = line.split_once('#') else {
            shown.push_str(line);
            continue;
        };
        let before = before.trim_end();
        let begins_line = shown.is_empty() || shown.ends_with('\n');
        if !(before.is_empty() && begins_line) {
            shown.push_str(before);
            shown.push('\n');
        }
    }
}

/// Appends the parts of a table.
fn in_table(table: &DeTable<'_>, parts: &mut Vec<Part>) {
    for (key, value) in table {
        parts.push(Part { span: key.span(), is_secret: false });
        match SECRET_KEYS.contains(&&**key.get_ref()) {
            // Also a value that the check refuses: it may be the secret without its quotes.
            true => parts.push(Part { span: value.span(), is_secret: true }),
            false => in_value(value, parts),
        }
    }
}

fn in_value(value: &Spanned<DeValue<'_>>, parts: &mut Vec<Part>) {
    match value.get_ref() {
        DeValue::Table(table) => in_table(table, parts),
        DeValue::Array(values) => values.iter().for_each(|value| in_value(value, parts)),
        _ => parts.push(Part { span: value.span(), is_secret: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        let text = r##"# the fabric, before: hunter2
[bgp.group.fabric]   # "hunter2"
password = "hunter2"   # changed in May
"neigh#bors" = [ # hunter2
    "192.0.2.1", # hunter2
]
tcp-ao = { keys = [{ secret = 'hunter2', send-id = 1 }, { secret-file = "/etc/k" }] }
[[bgp.group.fabric.neighbor]]
address = "192.0.2.9"
description = "# password = hunter3"
password = """
hunter2
hunter2"""
  # hunter2
"##;
        let shown = without_secrets(text);
        assert!(!shown.contains("hunter2"), "{shown}");
        // Everything else is as written.
        assert!(
            shown.contains("password = \"********\"\n\"neigh#bors\" = [\n    \"192.0.2.1\",\n]\n"),
            "{shown}"
        );
        assert!(
            shown.contains("[{ secret = \"********\", send-id = 1 }, { secret-file = \"/etc/k\" }]"),
            "{shown}"
        );
        assert!(
            shown.contains("description = \"# password = hunter3\"\npassword = \"********\"\n"),
            "{shown}"
        );
        assert!(shown.starts_with("[bgp.group.fabric]\n"), "{shown}");
        assert!(!shown.contains("# ") || shown.matches("# ").count() == 1, "{shown}");
        assert_eq!(&*without_secrets("password = \"x"), "");
    }
}
