//! `NEXTHOP_GROUP_TABLE`: next-hop groups that routes refer to by index.

use super::{Db, Field, Name, Row, RowError, Via, put_values};
use std::sync::Arc;

/// A row of `NEXTHOP_GROUP_TABLE`. The key is the index: the id of zebra in decimal when fpmsyncd
/// wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopGroupRow {
    /// The members; for a recursive group, the indexes of other groups.
    pub via: Arc<Via>,
}

/// The fields of a complete row.
const FIELDS: [Field; 6] =
    [Field::Nexthop, Field::Ifname, Field::Weight, Field::MplsNh, Field::SegSrc, Field::NexthopGroup];

impl Row for NextHopGroupRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "NEXTHOP_GROUP_TABLE";
    type Key = Name;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let said = |field| Some(self.via.get(field)).filter(|value| !value.is_empty());
        put_values(FIELDS.map(|field| (field.name(), said(field))), put);
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
