//! The rows of APPL_DB: the truth is what fpmsyncd handed over. Rows of other programs stay.

use super::mirror::{Queue, Reader, WantedRow};
use ribtide_swss::fpmsyncd::{self, RowName};
use ribtide_swss::syncd::Difference;
use ribtide_tables::Connection;

/// A row with its key.
pub(crate) struct Wanted(pub(crate) (RowName, fpmsyncd::WantedRow));

impl WantedRow for Wanted {
    type Key = RowName;

    fn key(&self) -> &RowName {
        &self.0.0
    }

    fn is(&self, found: &[(&str, &str)]) -> bool {
        self.0.1.is(found)
    }
}

/// How the rows are read.
pub(crate) fn reader(connection: Connection) -> Reader<RowName, ()> {
    Reader {
        table: |name| match name {
            RowName::Route(_) => "APPL_DB ROUTE_TABLE",
            RowName::Label(_) => "APPL_DB LABEL_ROUTE_TABLE",
            RowName::Group(_) => "APPL_DB NEXTHOP_GROUP_TABLE",
        },
        connection,
        name: |connection, name| connection.database().key(name.table(), &name.text()),
        queue: Some(Queue { table: RowName::table, key: RowName::text }),
        scanned: None,
        why: Difference::why,
        producer: Box::new(|_| Ok(())),
    }
}
