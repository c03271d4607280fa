//! Add-path of a neighbour (RFC 7911), and the best path for each client of a route server.

use super::check::{Both, Checker};
use super::diagnosis::{Step, key};
use ribtide_bgp::peer::{FamilySet, PathSelection, SentPaths};
use ribtide_prefix::{AfiSafi, ByFamily};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer};
use std::fmt;
use std::num::NonZeroU16;

/// What is written in place of a selection.
const EXPECTING: &str = "\"all\", \"ecmp\", \"per-as\", or a number of paths";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table: { receive = true, send = \"all\" }"
)]
pub(super) struct AddPathTable {
    /// Offer to receive several paths of a prefix, in every family of the session. The neighbour must
    /// offer to send them.
    #[schemars(extend("default" = false))]
    receive: Option<bool>,
    /// Offer to send several: `"all"`; a number of them, from the best on; `"ecmp"`: the best and those that
    /// equal it up to the tie-breaking rules; `"per-as"`: the best of each neighbouring AS. Or a table of
    /// these for single families: `{ ipv6-unicast = 2 }`. The neighbour must offer to receive them.
    #[schemars(extend("x-default" = "the best path"))]
    send: Option<SendSetting>,
}

/// The selection of every family, or of each.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum SendSetting {
    Every(Selection),
    Table(SendTable),
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SendTable {
    /// Paths of an IPv4 prefix that are sent, as for `send`.
    #[schemars(extend("x-default" = "the best path"))]
    ipv4_unicast: Option<Selection>,
    /// Paths of an IPv6 prefix that are sent, as for `send`.
    #[schemars(extend("x-default" = "the best path"))]
    ipv6_unicast: Option<Selection>,
    /// Paths of an IPv4 multicast prefix that are sent, as for `send`.
    #[schemars(extend("x-default" = "the best path"))]
    ipv4_multicast: Option<Selection>,
    /// Paths of an IPv6 multicast prefix that are sent, as for `send`.
    #[schemars(extend("x-default" = "the best path"))]
    ipv6_multicast: Option<Selection>,
}

#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Selection {
    Name(SelectionName),
    /// A number of paths, from the best on.
    Count(u16),
}

#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub(super) enum SelectionName {
    All,
    Ecmp,
    PerAs,
}

impl Selection {
    /// The selection of this name.
    fn named<E: Error>(name: &str) -> Result<Selection, E> {
        Ok(Selection::Name(match name {
            "all" => SelectionName::All,
            "ecmp" => SelectionName::Ecmp,
            "per-as" => SelectionName::PerAs,
            _ => return Err(E::custom(format!("\"{name}\" selects no paths; write {EXPECTING}"))),
        }))
    }

    /// So many paths; a number out of range is refused by the check.
    fn counted(count: i64) -> Selection {
        Selection::Count(u16::try_from(count).unwrap_or(0))
    }
}

/// Reads a selection, and a table of them if `TABLE`.
struct SendVisitor<const TABLE: bool>;

impl<'de, const TABLE: bool> Visitor<'de> for SendVisitor<TABLE> {
    type Value = SendSetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTING)?;
        f.write_str(if TABLE { ", or a table of these for each family" } else { "" })
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<SendSetting, E> {
        Selection::named(name).map(SendSetting::Every)
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<SendSetting, E> {
        Ok(SendSetting::Every(Selection::counted(count)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SendSetting, A::Error> {
        match TABLE {
            true => SendTable::deserialize(MapAccessDeserializer::new(map)).map(SendSetting::Table),
            false => Err(A::Error::custom(format!("a table cannot stand here; write {EXPECTING}"))),
        }
    }
}

impl<'de> Deserialize<'de> for SendSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SendVisitor::<true>)
    }
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(SendVisitor::<false>)? {
            SendSetting::Every(selection) => Ok(selection),
            SendSetting::Table(_) => Err(D::Error::custom(EXPECTING)),
        }
    }
}

/// Add-path of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddPathConfig {
    /// The families in which we receive several paths of a prefix.
    pub receive: FamilySet,
    /// The families in which we send several, and which.
    pub send: SentPaths,
}

impl Checker {
    /// Add-path of a neighbour with these families. Its own table replaces its group's.
    pub(super) fn add_path(&mut self, both: &Both<'_>, families: FamilySet) -> AddPathConfig {
        let (table, at) = both.pick("add-path", |n| &n.add_path, |g| &g.add_path);
        let Some(table) = table else { return AddPathConfig::default() };
        let receive = if table.receive == Some(true) { families } else { FamilySet::NONE };
        let place = [&at.key(), &key!["send"][..]].concat();
        let send = match table.send {
            None => SentPaths::default(),
            Some(SendSetting::Every(selection)) => {
                let selection = self.selection(selection, &place);
                SentPaths(ByFamily::new(|_| selection))
            }
            Some(SendSetting::Table(table)) => SentPaths(ByFamily::new(|family| {
                let selection = match family {
                    AfiSafi::Ipv4Unicast => table.ipv4_unicast,
                    AfiSafi::Ipv6Unicast => table.ipv6_unicast,
                    AfiSafi::Ipv4Multicast => table.ipv4_multicast,
                    AfiSafi::Ipv6Multicast => table.ipv6_multicast,
                };
                let place = [&place, &key![family.name()][..]].concat();
                if selection.is_some() && !families.has(family) {
                    let message =
                        format!("the session does not carry {family}; add it to `families`, or remove this");
                    self.problem(&place, message);
                }
                selection.and_then(|selection| self.selection(selection, &place))
            })),
        };
        AddPathConfig { receive, send: send.within(families) }
    }

    fn selection(&mut self, selection: Selection, place: &[Step]) -> Option<PathSelection> {
        Some(match selection {
            Selection::Name(SelectionName::All) => PathSelection::All,
            Selection::Name(SelectionName::Ecmp) => PathSelection::Ecmp,
            Selection::Name(SelectionName::PerAs) => PathSelection::PerAs,
            Selection::Count(count) => match NonZeroU16::new(count) {
                Some(count) => PathSelection::Best(count),
                None => {
                    self.problem(place, "a number of paths is 1 to 65535; write \"all\" for every path");
                    return None;
                }
            },
        })
    }

    /// Whether the neighbour gets the best of the paths that its export policy accepts.
    pub(super) fn best_path_per_client(&mut self, both: &Both<'_>, is_client: bool) -> bool {
        let (set, at) =
            both.pick("best-path-per-client", |n| &n.best_path_per_client, |g| &g.best_path_per_client);
        let set = set == Some(&true);
        if set && !is_client {
            self.problem(
                &at.key(),
                "only a client of a route server may get another path than the best (RFC 7947 section 2.3.2): other routers \
                 advertise what they forward by; write route-server-client = true, or remove this",
            );
        }
        set && is_client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigError, NeighborSettings, parse};
    use std::path::Path;

    fn settings(kind: &str, group: &str, neighbor: &str) -> Result<NeighborSettings, String> {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\n{kind}\n{group}\n\
             [[bgp.group.up.neighbor]]\naddress = \"192.0.2.1\"\n{neighbor}\n"
        );
        let config =
            parse(&text).map_err(|e| ConfigError::new(Path::new("ribtide.toml"), &text, e).to_string())?;
        Ok(config.bgp.unwrap().neighbors.values().next().unwrap().settings.clone())
    }

    fn add_path(group: &str, neighbor: &str) -> Result<AddPathConfig, String> {
        Ok(settings("type = \"internal\"", group, neighbor)?.add_path)
    }

    #[test]
    fn add_path_is_off_unless_it_is_written_and_follows_the_families() {
        let (none, both) = (FamilySet::NONE, FamilySet::UNICAST);
        let receive = |group, neighbor| add_path(group, neighbor).unwrap().receive;
        assert_eq!(add_path("", "").unwrap(), AddPathConfig::default());
        assert_eq!(receive("add-path = { receive = true }", ""), both);
        assert_eq!(receive("add-path = { receive = true }", "add-path = {}"), none);
        assert_eq!(receive("add-path = { receive = true }", "add-path = { receive = false }"), none);
        let ipv6 = FamilySet::IPV6_UNICAST;
        assert_eq!(receive("families = [\"ipv6-unicast\"]", "add-path = { receive = true }"), ipv6);
    }

    #[test]
    fn selections_of_sent_paths_are_for_every_family_or_for_each() {
        let send = |text: &str| {
            let sent = add_path(&format!("add-path = {{ send = {text} }}"), "").unwrap().send;
            (sent.of(AfiSafi::Ipv4Unicast), sent.of(AfiSafi::Ipv6Unicast))
        };
        let of = |selection| (Some(selection), Some(selection));
        let best = |count| PathSelection::Best(NonZeroU16::new(count).unwrap());
        assert_eq!(send("\"all\""), of(PathSelection::All));
        assert_eq!(send("\"ecmp\""), of(PathSelection::Ecmp));
        assert_eq!(send("\"per-as\""), of(PathSelection::PerAs));
        assert_eq!(send("3"), of(best(3)));
        assert_eq!(send("{ ipv6-unicast = 2 }"), (None, Some(best(2))));
        let each = "{ ipv4-unicast = \"all\", ipv6-unicast = \"ecmp\" }";
        assert_eq!(send(each), (Some(PathSelection::All), Some(PathSelection::Ecmp)));
        let of_one = add_path("families = [\"ipv4-unicast\"]\nadd-path = { send = 3 }", "").unwrap();
        assert_eq!(of_one.send, SentPaths(ByFamily::only(AfiSafi::Ipv4Unicast, Some(best(3)))));
        assert_eq!(of_one.receive, FamilySet::NONE);
    }

    #[test]
    fn add_path_that_does_not_exist_is_refused_with_its_place() {
        for (group, expected) in [
            ("add-path = { sends = \"all\" }", "unknown field `sends`"),
            ("add-path = true", "write a table: { receive = true, send = \"all\" }"),
            ("add-path = { receive = 3 }", "integer `3` cannot stand here"),
            ("add-path = { send = \"some\" }", "\"some\" selects no paths; write \"all\", \"ecmp\""),
            ("add-path = { send = 0 }", "a number of paths is 1 to 65535"),
            ("add-path = { send = 65536 }", "a number of paths is 1 to 65535"),
            ("add-path = { send = { ipv4-unicast = -1 } }", "a number of paths is 1 to 65535"),
            ("add-path = { send = true }", "boolean `true` cannot stand here"),
            ("add-path = { send = { ipv4 = 2 } }", "unknown field `ipv4`"),
        ] {
            let message = add_path(group, "").unwrap_err();
            assert!(message.contains(expected) && message.contains("ribtide.toml:6:"), "{group}: {message}");
        }
        let other = "families = [\"ipv4-unicast\"]\nadd-path = { send = { ipv6-unicast = 2 } }";
        assert!(add_path(other, "").unwrap_err().contains("the session does not carry ipv6-unicast"));
    }

    #[test]
    fn best_path_per_client_is_for_clients_of_a_route_server() {
        let external = "type = \"external\"\npeer-asn = 65010";
        let client = format!("{external}\nroute-server-client = true");
        let of = |group: &str, own: &str| settings(&client, group, own).unwrap().best_path_per_client;
        let (on, off) = ("best-path-per-client = true", "best-path-per-client = false");
        assert_eq!([of("", ""), of(on, ""), of(on, off), of(off, on)], [false, true, false, true]);
        let message = settings(external, on, "").unwrap_err();
        assert!(message.contains("write route-server-client = true"), "{message}");
        assert!(settings(external, off, "").is_ok());
    }
}
