//! The keys of the three tables of APPL_DB that carry routes, as one type.

use super::{LabelKey, LabelRouteRow, Name, NextHopGroupRow, RouteKey, RouteRow, Row};

/// The key of a row of a table that carries routes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RowName {
    /// Of `ROUTE_TABLE`.
    Route(RouteKey),
    /// Of `LABEL_ROUTE_TABLE`.
    Label(LabelKey),
    /// Of `NEXTHOP_GROUP_TABLE`.
    Group(Name),
}

impl RowName {
    /// The tables.
    pub const TABLES: [&'static str; 3] = [RouteRow::TABLE, LabelRouteRow::TABLE, NextHopGroupRow::TABLE];

    /// The row of a key of `table`; `None` for another table, and for a key of another format.
    pub fn parse(table: &str, key: &str) -> Option<RowName> {
        match table {
            RouteRow::TABLE => RouteRow::parse_key(key).ok().map(RowName::Route),
            LabelRouteRow::TABLE => LabelRouteRow::parse_key(key).ok().map(RowName::Label),
            NextHopGroupRow::TABLE => NextHopGroupRow::parse_key(key).ok().map(RowName::Group),
            _ => None,
        }
    }

    /// The table.
    pub fn table(&self) -> &'static str {
        match self {
            RowName::Route(_) => RouteRow::TABLE,
            RowName::Label(_) => LabelRouteRow::TABLE,
            RowName::Group(_) => NextHopGroupRow::TABLE,
        }
    }

    /// The text of the key, without the table.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// Appends the text of the key, without the table.
    pub fn write(&self, out: &mut String) {
        match self {
            RowName::Route(key) => RouteRow::key_text(key, out),
            RowName::Label(key) => LabelRouteRow::key_text(key, out),
            RowName::Group(key) => NextHopGroupRow::key_text(key, out),
        }
    }
}
