//! A confederation (RFC 5065): its identifier and members.

use super::check::Checker;
use super::diagnosis::key;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The confederation that this router is in; `router.asn` is its member AS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfederationConfig {
    /// The AS that peers outside know.
    pub identifier: u32,
    /// The other member ASes.
    pub members: BTreeSet<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConfederationTable {
    /// The AS of the confederation, which neighbours outside of it know us by. `router.asn` is our member AS.
    identifier: u32,
    /// The other member ASes; neighbours in them are of groups with `type = "confederation"`.
    #[serde(default)]
    members: Vec<u32>,
}

impl Checker {
    /// The confederation of a router with member AS `ours`.
    pub(super) fn confederation(&mut self, table: &ConfederationTable, ours: u32) -> ConfederationConfig {
        let ConfederationTable { identifier, members } = table;
        if *identifier == 0 {
            self.problem(
                key!["bgp", "confederation", "identifier"],
                "AS 0 is reserved (RFC 7607); write the AS that neighbours outside of the confederation know",
            );
        }
        if *identifier == ours {
            let message = format!(
                "{identifier} is router.asn, our member AS; write the AS that neighbours outside of the confederation know"
            );
            self.problem(key!["bgp", "confederation", "identifier"], message);
        }
        for (i, member) in members.iter().enumerate() {
            if [0, ours, *identifier].contains(member) {
                let message = format!(
                    "AS {member} is no other member; write the members but our own {ours}, which is router.asn, and not the \
                     identifier"
                );
                self.problem(key!["bgp", "confederation", "members", i], message);
            }
        }
        ConfederationConfig { identifier: *identifier, members: members.iter().copied().collect() }
    }
}
