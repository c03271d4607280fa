//! A configuration as it may be shown: without its secrets, and without comments, which may have former ones.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The file and text that a configuration was read from. Settings are compared without it, so any two are equal.
#[derive(Clone, Debug, Default)]
pub struct ShownConfig {
    /// The file; `None` for text without one.
    pub file: Option<PathBuf>,
    /// Its settings as TOML, with `"********"` in the place of each secret.
    pub text: Arc<str>,
    /// The text as it was read.
    pub(crate) whole: Whole,
}

/// The text of a configuration, which may have secrets. It is not shown.
#[derive(Clone, Default)]
pub(crate) struct Whole(pub(crate) Arc<str>);

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Whole(..)")
    }
}

impl PartialEq for ShownConfig {
    fn eq(&self, _: &ShownConfig) -> bool {
        true
    }
}

/// Keys whose values are secret, wherever they are.
pub const SECRET_KEYS: [&str; 2] = ["secret", "password"];

/// In the place of a secret, whatever its length.
pub(crate) const HIDDEN: &str = "********";

/// The settings of a text as TOML, without its secrets and comments.
///
/// # Errors
/// The text is no TOML. The sentence quotes nothing of it.
pub fn without_secrets(text: &str) -> Result<String, String> {
    let no_toml = "the configuration is no TOML; `ribtide check` says where";
    let mut table: toml::Table = text.parse().map_err(|_| no_toml.to_owned())?;
    hide_in_table(&mut table);
    toml::to_string_pretty(&table).map_err(|_| no_toml.to_owned())
}

fn hide_in_table(table: &mut toml::Table) {
    for (key, value) in table {
        match value {
            toml::Value::Table(_) | toml::Value::Array(_) => hide_in_value(value),
            // Also a value that the check refuses: it may be the secret without its quotes.
            _ if SECRET_KEYS.contains(&key.as_str()) => *value = HIDDEN.into(),
            _ => {}
        }
        // A list has the strings of a secret that was written so.
        if SECRET_KEYS.contains(&key.as_str())
            && let toml::Value::Array(values) = value
        {
            values.iter_mut().filter(|value| !value.is_table()).for_each(|value| *value = HIDDEN.into());
        }
    }
}

fn hide_in_value(value: &mut toml::Value) {
    match value {
        toml::Value::Table(table) => hide_in_table(table),
        toml::Value::Array(values) => values.iter_mut().for_each(hide_in_value),
        _ => {}
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
[bgp.group.secret]
password = "hunter2"
[[bgp.group.secret.neighbor]]
address = "192.0.2.8"
secret = ["hunter2", { password = 12345678 }]
[bgp.group."a#b"]
[[bgp.group."a#b".neighbor]]
password = true
  # hunter2
"##;
        let shown = without_secrets(text).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains("12345678"), "{shown}");
        assert_eq!(shown.matches(HIDDEN).count(), 7, "{shown}");
        // Everything else is there.
        let (shown, given): (toml::Table, toml::Table) = (shown.parse().unwrap(), text.parse().unwrap());
        let group = |table: &toml::Table, name: &str| table["bgp"]["group"][name].clone();
        assert_eq!(group(&shown, "fabric")["neigh#bors"], group(&given, "fabric")["neigh#bors"]);
        assert_eq!(
            group(&shown, "fabric")["neighbor"][0]["description"].as_str(),
            Some("# password = hunter3")
        );
        assert_eq!(group(&shown, "secret")["neighbor"][0]["address"].as_str(), Some("192.0.2.8"));
        assert_eq!(group(&shown, "fabric")["tcp-ao"]["keys"][1]["secret-file"].as_str(), Some("/etc/k"));
        assert!(!without_secrets("password = sesame").unwrap_err().contains("sesame"));
    }
}
