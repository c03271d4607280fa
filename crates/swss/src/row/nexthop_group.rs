//! `NEXTHOP_GROUP_TABLE`: next-hop groups that routes name by index.

use super::{Db, FILLER, Field, Name, Row, RowError, Via};
use std::sync::Arc;

/// A next-hop group as APPL_DB has it. The key is its index: zebra's id in decimal when fpmsyncd wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopGroupRow {
    /// The members; for a recursive group, the indexes of other groups.
    pub via: Arc<Via>,
}

/// What a group's row names when it names everything.
const FIELDS: [Field; 6] =
    [Field::Nexthop, Field::Ifname, Field::Weight, Field::MplsNh, Field::SegSrc, Field::NexthopGroup];

impl Row for NextHopGroupRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "NEXTHOP_GROUP_TABLE";
    type Key = Name;

    fn key_text(key: &Name, out: &mut String) {
        out.push_str(key);
    }

    fn parse_key(text: &str) -> Result<Name, RowError> {
        Ok(text.into())
    }

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let mut wrote = false;
        for field in FIELDS {
            let value = self.via.get(field);
            if !value.is_empty() {
                wrote = true;
                put(field.name(), value);
            }
        }
        if !wrote {
            put(FILLER.0, FILLER.1);
        }
    }

    fn all_fields(&self, put: &mut dyn FnMut(&str, &str)) {
        for field in FIELDS {
            put(field.name(), self.via.get(field));
        }
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let mut via = Via::default();
        for (name, value) in fields {
            if let Some(field) = Field::from_name(name) {
                via.put(field, value);
            }
        }
        Ok(NextHopGroupRow { via: Arc::new(via) })
    }

    fn merge(&mut self, newer: Self) {
        self.via = Via::merged(&self.via, newer.via);
    }
}
