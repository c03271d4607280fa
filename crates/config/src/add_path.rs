//! Add-path of a neighbour (RFC 7911).

use super::check::{Both, Checker};
use ribtide_bgp::peer::FamilySet;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table: { receive = true }")]
pub(super) struct AddPathTable {
    /// Offer to receive several paths of a prefix, in every family of the session. The neighbour must
    /// offer to send them.
    #[schemars(extend("default" = false))]
    receive: Option<bool>,
}

impl Checker {
    /// Of the families of a neighbour, those in which we receive several paths of a prefix. Its own table
    /// replaces its group's.
    pub(super) fn add_path_receive(&self, both: &Both<'_>, families: FamilySet) -> FamilySet {
        let (table, _) = both.pick("add-path", |n| &n.add_path, |g| &g.add_path);
        let receive = table.is_some_and(|table| table.receive == Some(true));
        if receive { families } else { FamilySet::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigError, parse};
    use std::path::Path;

    fn add_path(group: &str, neighbor: &str) -> Result<FamilySet, String> {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\ntype = \"internal\"\n{group}\n\
             [[bgp.group.up.neighbor]]\naddress = \"192.0.2.1\"\n{neighbor}\n"
        );
        let config =
            parse(&text).map_err(|e| ConfigError::new(Path::new("ribtide.toml"), &text, e).to_string())?;
        Ok(config.bgp.unwrap().neighbors.values().next().unwrap().settings.add_path_receive)
    }

    #[test]
    fn add_path_is_off_unless_it_is_written_and_follows_the_families() {
        let (none, both) = (FamilySet::default(), FamilySet { ipv4: true, ipv6: true });
        let receive = |group, neighbor| add_path(group, neighbor).unwrap();
        assert_eq!(receive("", ""), none);
        assert_eq!(receive("add-path = { receive = true }", ""), both);
        assert_eq!(receive("add-path = { receive = true }", "add-path = {}"), none);
        assert_eq!(receive("add-path = { receive = true }", "add-path = { receive = false }"), none);
        let ipv6 = FamilySet { ipv4: false, ipv6: true };
        assert_eq!(receive("families = [\"ipv6-unicast\"]", "add-path = { receive = true }"), ipv6);
    }

    #[test]
    fn add_path_that_does_not_exist_is_refused_with_its_place() {
        for (group, expected) in [
            ("add-path = { send = \"all\" }", "unknown field `send`"),
            ("add-path = true", "write a table: { receive = true }"),
            ("add-path = { receive = 3 }", "integer `3` cannot stand here"),
        ] {
            let message = add_path(group, "").unwrap_err();
            assert!(message.contains(expected) && message.contains("ribtide.toml:6:"), "{group}: {message}");
        }
    }
}
