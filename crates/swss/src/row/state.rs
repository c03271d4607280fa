//! Rows of STATE_DB.

use super::route::parse_prefix;
use super::{Db, Name, Row, RowError, RowKey, put_values, value_of};
use ribtide_prefix::AnyPrefix;

/// A row of `ROUTE_TABLE` in STATE_DB: whether a default route is programmed. The key is
/// `0.0.0.0/0` or `::/0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultRouteRow {
    /// `ok` or `na`.
    pub ok: bool,
}

impl RowKey for AnyPrefix {
    fn write(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }

    fn parse(text: &str) -> Result<AnyPrefix, String> {
        parse_prefix(text).ok_or_else(|| format!("key \"{text}\" is not a prefix"))
    }
}

impl Row for DefaultRouteRow {
    const DB: Db = Db::State;
    const TABLE: &'static str = "ROUTE_TABLE";
    type Key = AnyPrefix;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("state", if self.ok { "ok" } else { "na" });
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        Ok(DefaultRouteRow { ok: value_of(fields, "state") == Some("ok") })
    }
}

/// A row of `SWITCH_CAPABILITY` in STATE_DB: limits of the chip. The key is `switch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchCapabilityRow {
    /// The maximum number of next-hop groups.
    pub max_nexthop_groups: Option<u32>,
}

impl Row for SwitchCapabilityRow {
    const DB: Db = Db::State;
    const TABLE: &'static str = "SWITCH_CAPABILITY";
    type Key = Name;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put_values([("MAX_NEXTHOP_GROUP_COUNT", self.max_nexthop_groups.map(|n| n.to_string()))], put);
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let count = value_of(fields, "MAX_NEXTHOP_GROUP_COUNT").and_then(|count| count.parse().ok());
        Ok(SwitchCapabilityRow { max_nexthop_groups: count })
    }
}
