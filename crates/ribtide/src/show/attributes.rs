//! The attributes of a path as lines of a detailed view, and as cells of a table.

use ribtide_model::{Path, ReceivedRoute, SentPath};
use std::net::Ipv4Addr;

/// The attributes that a path has in every view of it.
pub(super) struct Shown<'p> {
    pub(super) as_path: &'p str,
    origin: &'p str,
    pub(super) local_pref: Option<u32>,
    pub(super) med: Option<u32>,
    aigp: Option<u64>,
    communities: &'p [String],
    large_communities: &'p [String],
    extended_communities: &'p [String],
    aggregator: Option<&'p str>,
    originator_id: Option<Ipv4Addr>,
    cluster_list: &'p [Ipv4Addr],
    only_to_customer: Option<u32>,
    other_attributes: &'p [u8],
}

/// The views have fields of the same names.
macro_rules! shown {
    ($($view:ident),*) => {
        $(impl<'p> From<&'p $view> for Shown<'p> {
            fn from(path: &'p $view) -> Shown<'p> {
                Shown {
                    as_path: &path.as_path,
                    origin: &path.origin,
                    local_pref: path.local_pref,
                    med: path.med,
                    aigp: path.aigp,
                    communities: &path.communities,
                    large_communities: &path.large_communities,
                    extended_communities: &path.extended_communities,
                    aggregator: path.aggregator.as_deref(),
                    originator_id: path.originator_id,
                    cluster_list: &path.cluster_list,
                    only_to_customer: path.only_to_customer,
                    other_attributes: &path.other_attributes,
                }
            }
        })*
    };
}

shown!(Path, ReceivedRoute, SentPath);

impl Shown<'_> {
    /// A line for each attribute that the path has.
    pub(super) fn lines(&self) -> String {
        let number = |n: Option<u32>| n.map_or_else(String::new, |n| n.to_string());
        let list = |list: &[Ipv4Addr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let others: Vec<String> = self.other_attributes.iter().map(ToString::to_string).collect();
        let lines = [
            ("AS path", self.as_path.to_owned()),
            ("Origin", self.origin.to_owned()),
            ("LOCAL_PREF", number(self.local_pref)),
            ("MED", number(self.med)),
            ("AIGP", self.aigp.map_or_else(String::new, |metric| metric.to_string())),
            ("Communities", self.communities.join(" ")),
            ("Large communities", self.large_communities.join(" ")),
            ("Extended communities", self.extended_communities.join(" ")),
            ("Aggregator", self.aggregator.unwrap_or_default().to_owned()),
            ("Originator ID", self.originator_id.map_or_else(String::new, |id| id.to_string())),
            ("Cluster list", list(self.cluster_list)),
            ("Only to customer", number(self.only_to_customer)),
            ("Other attributes, by code", others.join(" ")),
        ];
        lines.iter().map(|(name, value)| line(name, value)).collect()
    }

    /// The AS path with the letter of the origin, as routers print it, and the AIGP metric.
    pub(super) fn path_and_origin(&self) -> String {
        let aigp = self.aigp.map_or(String::new(), |metric| format!(", AIGP {metric}"));
        format!("{} {}{aigp}", self.as_path, self.origin_letter()).trim_start().into()
    }

    /// `i`, `e` or `?`.
    pub(super) fn origin_letter(&self) -> &'static str {
        match self.origin {
            "igp" => "i",
            "egp" => "e",
            _ => "?",
        }
    }

    /// Communities of the three kinds.
    pub(super) fn all_communities(&self) -> String {
        let all = [self.communities, self.large_communities, self.extended_communities];
        all.concat().join(" ")
    }
}

/// A line of a detailed view; none without a value.
pub(super) fn line(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("      {name}: {value}\n") }
}

/// A number, or a dash.
pub(super) fn cell(number: Option<u32>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}
