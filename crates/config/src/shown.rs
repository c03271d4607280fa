//! The text of a configuration as it may be shown: without its secrets.

use super::diagnosis::SECRET_KEYS;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// The file and text that a configuration was read from. Settings are compared without it, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct ShownConfig {
    /// The file; `None` for text without one.
    pub file: Option<PathBuf>,
    /// The text, with `"********"` in the place of each secret.
    pub text: Arc<str>,
}

impl PartialEq for ShownConfig {
    fn eq(&self, _: &ShownConfig) -> bool {
        true
    }
}

/// In the place of a secret, whatever its length.
const HIDDEN: &str = "\"********\"";

/// The text without secrets; nothing of a text that is no TOML.
pub(super) fn without_secrets(text: &str) -> Arc<str> {
    let Ok(table) = DeTable::parse(text) else { return Arc::default() };
    let mut secrets = Vec::new();
    in_table(table.get_ref(), &mut secrets);
    secrets.sort_unstable_by_key(|span| span.start);
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for span in secrets {
        shown.push_str(text.get(at..span.start).unwrap_or_default());
        shown.push_str(HIDDEN);
        at = span.end;
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    shown.into()
}

/// Appends the places of the secrets of a table, and of those in it.
fn in_table(table: &DeTable<'_>, secrets: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        match SECRET_KEYS.contains(&&**key.get_ref()) {
            // Also a value that the check refuses: it may be the secret without its quotes.
            true => secrets.push(value.span()),
            false => in_value(value.get_ref(), secrets),
        }
    }
}

fn in_value(value: &DeValue<'_>, secrets: &mut Vec<Range<usize>>) {
    match value {
        DeValue::Table(table) => in_table(table, secrets),
        DeValue::Array(values) => values.iter().for_each(|value| in_value(value.get_ref(), secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        let text = r#"# the fabric
[bgp.group.fabric]
password = "hunter2"   # changed in May
"neighbors" = ["192.0.2.1"]
tcp-ao = { keys = [{ secret = 'hunter2', send-id = 1 }, { secret-file = "/etc/k" }] }
[[bgp.group.fabric.neighbor]]
address = "192.0.2.9"
description = "password = hunter3"
password = """
hunter2
hunter2"""
"#;
        let shown = without_secrets(text);
        assert!(!shown.contains("hunter2"), "{shown}");
        // Everything else is as written.
        assert!(shown.contains("password = \"********\"   # changed in May\n"), "{shown}");
        assert!(
            shown.contains("[{ secret = \"********\", send-id = 1 }, { secret-file = \"/etc/k\" }]"),
            "{shown}"
        );
        assert!(shown.contains("description = \"password = hunter3\"\npassword = \"********\"\n"), "{shown}");
        assert!(shown.starts_with("# the fabric\n[bgp.group.fabric]\n"));
        assert_eq!(&*without_secrets("password = \"x"), "");
    }
}
