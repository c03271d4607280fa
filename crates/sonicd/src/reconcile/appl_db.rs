//! The rows of APPL_DB: the truth is what fpmsyncd handed over. Rows of other programs stay.

use super::mirror::{Queue, Reader, WantedRow};
use ribtide_swss::fpmsyncd::{self, RowName};
use ribtide_swss::syncd::Difference;
use ribtide_tables::{Connection, Database};

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

    fn compares_as(&self, other: &Wanted) -> bool {
        self.0.1.compares_as(&other.0.1)
    }
}

/// Appends the key of a row of a table that carries routes.
pub(super) fn write_row_name(database: &Database, name: &RowName, out: &mut String) {
    database.write_key_prefix(name.table(), out);
    name.write(out);
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
        write_name: write_row_name,
        queue: Some(Queue { table: RowName::table, key: RowName::text }),
        scanned: None,
        why: Difference::why,
        producer: Box::new(|_| Ok(())),
    }
}
