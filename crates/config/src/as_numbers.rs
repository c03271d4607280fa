//! AS numbers of a neighbour's sessions and paths: `local-as`, `allowas-in`, `as-override`, `remove-private-as`.

use super::check::{Both, Checker};
use super::diagnosis::key;
use super::file::GroupKind;
use super::or_table::or_table;
use ribtide_wire::bgp::role::Role;
use schemars::JsonSchema;
use serde::Deserialize;

/// What a neighbour changes in the use of AS numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsNumbers {
    /// The AS that the neighbour knows us by.
    pub local_as: Option<LocalAs>,
    /// How often each AS of ours may be in a received path.
    pub allowas_in: u8,
    /// Our AS replaces the neighbour's in sent paths.
    pub as_override: bool,
    /// Private AS numbers are removed from sent paths.
    pub remove_private_as: Option<RemovePrivateAs>,
}

/// Another AS of ours, for one neighbour (RFC 7705).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAs {
    /// Its number.
    pub asn: u32,
    /// Prepend it to received paths.
    pub prepend: bool,
    /// Sent paths have it in place of the router's AS, not before it.
    pub replace: bool,
    /// The neighbour may know us by either: the router's AS comes first, and each AS after the other was refused.
    pub dual: bool,
}

/// From which sent paths private AS numbers are removed, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemovePrivateAs {
    /// From all, not only from those without a public AS number.
    pub all: bool,
    /// Our AS takes their place.
    pub replace: bool,
}

#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum LocalAsSetting {
    Number(Asn),
    Table(LocalAsTable),
}

/// An AS number; 0 stands for numbers out of range.
#[derive(Clone, Copy, Debug, JsonSchema)]
pub(super) struct Asn(u32);

impl From<i64> for Asn {
    fn from(number: i64) -> Asn {
        Asn(u32::try_from(number).unwrap_or(0))
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LocalAsTable {
    /// The AS of our OPEN, in place of the router's.
    #[schemars(extend("x-default" = "required"))]
    asn: u32,
    /// Prepend it to received paths (RFC 7705 section 3.3 calls `false` "No Prepend Inbound").
    #[schemars(extend("default" = true))]
    prepend: Option<bool>,
    /// Sent paths have it in place of the router's AS ("Replace Old AS"); else they begin with both.
    #[schemars(extend("default" = false))]
    replace: Option<bool>,
    /// The neighbour may know us by either AS: our OPEN has the router's first, and the other one after the neighbour
    /// refused it (Bad Peer AS). While the session has the router's AS, paths are as without `local-as`.
    #[schemars(extend("default" = false))]
    dual: Option<bool>,
}

or_table!(
    LocalAsSetting,
    visit_i64,
    i64,
    Number,
    "an AS number, or a table of asn, prepend, replace and dual, such as { asn = 65010, prepend = false, replace = true }"
);

#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum RemovePrivateAsSetting {
    Switch(bool),
    Table(RemovePrivateAsTable),
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RemovePrivateAsTable {
    /// Remove them from every path; else only from paths without a public AS number.
    #[schemars(extend("default" = false))]
    all: Option<bool>,
    /// Put our AS in their place, so that the path keeps its length.
    #[schemars(extend("default" = false))]
    replace: Option<bool>,
}

or_table!(
    RemovePrivateAsSetting,
    visit_bool,
    bool,
    Switch,
    "true, false, or a table of all and replace, such as { all = true }"
);

/// What `allowas-in` may be at most.
const ALLOWAS_IN_MAX: u8 = 10;

impl Checker {
    /// The AS numbers of a neighbour of a group of this kind of a router of AS `ours`.
    pub(super) fn as_numbers(&mut self, both: &Both<'_>, kind: GroupKind, ours: u32) -> AsNumbers {
        let external = kind == GroupKind::External;
        let local_as = self.local_as(both, kind, ours);
        let (allowas_in, at) = both.pick("allowas-in", |n| &n.allowas_in, |g| &g.allowas_in);
        let allowas_in = allowas_in.copied().unwrap_or(0);
        if allowas_in > ALLOWAS_IN_MAX {
            let message = format!(
                "allowas-in is how often our AS may be in a path of the neighbour; write 0 to {ALLOWAS_IN_MAX}"
            );
            self.problem(&at.key(), message);
        }
        let (as_override, at) = both.pick("as-override", |n| &n.as_override, |g| &g.as_override);
        let as_override = as_override == Some(&true);
        if as_override && !external {
            self.problem(
                &at.key(),
                "paths to an internal neighbour stay as they are; remove as-override, or write type = \"external\"",
            );
        }
        let (remove, at) = both.pick("remove-private-as", |n| &n.remove_private_as, |g| &g.remove_private_as);
        let remove_private_as = match remove {
            None | Some(RemovePrivateAsSetting::Switch(false)) => None,
            Some(RemovePrivateAsSetting::Switch(true)) => Some(RemovePrivateAs::default()),
            Some(RemovePrivateAsSetting::Table(table)) => Some(RemovePrivateAs {
                all: table.all.unwrap_or(false),
                replace: table.replace.unwrap_or(false),
            }),
        };
        if remove_private_as.is_some() && !external {
            self.problem(
                &at.key(),
                "paths to an internal neighbour stay as they are; remove remove-private-as, or write type = \"external\"",
            );
        }
        AsNumbers { local_as, allowas_in, as_override, remove_private_as }
    }

    /// Whether the neighbour is a client of our route server, whose role and rules for paths are these.
    pub(super) fn route_server_client(
        &mut self,
        both: &Both<'_>,
        external: bool,
        role: Option<Role>,
        rules: AsNumbers,
    ) -> bool {
        let (client, at) =
            both.pick("route-server-client", |n| &n.route_server_client, |g| &g.route_server_client);
        if client != Some(&true) {
            return false;
        }
        if !external {
            self.problem(
                &at.key(),
                "a client of a route server is of another AS (RFC 7947); write type = \"external\", or remove this",
            );
        }
        if role.is_some_and(|role| role != Role::RouteServer) {
            self.problem(
                &at.key(),
                "towards a client of this route server our role is \"rs\" (RFC 9234); write that, or remove one of the two",
            );
        }
        let next_hop_self = both.pick("next-hop-self", |n| &n.next_hop_self, |g| &g.next_hop_self).0;
        for (set, name) in [
            (rules.as_override, "as-override"),
            (rules.remove_private_as.is_some(), "remove-private-as"),
            (next_hop_self == Some(&true), "next-hop-self"),
        ] {
            if set {
                let message = format!(
                    "a route server leaves path and next hop as they are (RFC 7947 section 2.2); remove {name}, or this"
                );
                self.problem(&at.key(), message);
            }
        }
        true
    }

    fn local_as(&mut self, both: &Both<'_>, kind: GroupKind, ours: u32) -> Option<LocalAs> {
        let external = kind == GroupKind::External;
        let (setting, at) = both.pick("local-as", |n| &n.local_as, |g| &g.local_as);
        let place = at.key();
        let (asn, table) = match setting? {
            LocalAsSetting::Number(asn) => (asn.0, None),
            LocalAsSetting::Table(table) => (table.asn, Some(table)),
        };
        if asn == 0 || asn == ours {
            let message = format!(
                "local-as is another AS than the router's {ours}, and not 0; write the AS that the neighbour knows us by, \
                 or remove it"
            );
            self.problem(&place, message);
        }
        let identifier = self.our_confederation.as_ref().map(|ours| ours.identifier);
        if Some(asn) == identifier && external {
            self.problem(
                &place,
                "neighbours outside of our confederation know us by its identifier anyway; remove local-as",
            );
        }
        if kind == GroupKind::Confederation {
            self.problem(
                &place,
                "neighbours inside of our confederation know us by our member AS (RFC 5065 section 4); remove local-as",
            );
        }
        let of = |value: fn(&LocalAsTable) -> Option<bool>| table.and_then(value);
        let (prepend, replace, dual) = (of(|t| t.prepend), of(|t| t.replace), of(|t| t.dual));
        for (name, value) in [("prepend", prepend), ("replace", replace), ("dual", dual)] {
            if value.is_some() && !external {
                let message = format!(
                    "paths of an internal session have no AS of ours, and it may have either AS (RFC 7705 section 4.2); \
                     write local-as = {asn} alone, or type = \"external\""
                );
                self.problem(&[&place, &key![name][..]].concat(), message);
            }
        }
        Some(LocalAs {
            asn,
            prepend: external && prepend.unwrap_or(true),
            replace: replace.unwrap_or(false),
            dual: !external || dual.unwrap_or(false),
        })
    }
}
