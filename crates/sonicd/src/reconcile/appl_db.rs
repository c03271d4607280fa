//! The rows of APPL_DB: the truth is what fpmsyncd handed over. Rows of other programs stay.

use super::mirror::{Queue, Reader, WantedRow};
use ribtide_swss::fpmsyncd::{self, RowName, TableKey};
use ribtide_swss::row::VpnTable;
use ribtide_swss::syncd::Difference;
use ribtide_tables::{Connection, Database};

/// A row with its key.
pub(crate) struct Wanted(pub(crate) (TableKey, fpmsyncd::WantedRow));

impl WantedRow for Wanted {
    type Key = TableKey;

    fn key(&self) -> &TableKey {
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

/// Appends the key of a row that fpmsyncd writes.
fn write_table_key(database: &Database, key: &TableKey, out: &mut String) {
    database.write_key_prefix(key.table(), out);
    key.write(out);
}

/// How the rows are read.
pub(crate) fn reader(connection: Connection) -> Reader<TableKey, ()> {
    Reader {
        table: |name| match name {
            TableKey::Row(RowName::Route(_)) => "APPL_DB ROUTE_TABLE",
            TableKey::Row(RowName::Label(_)) => "APPL_DB LABEL_ROUTE_TABLE",
            TableKey::Row(RowName::Group(_)) => "APPL_DB NEXTHOP_GROUP_TABLE",
            TableKey::Vpn(VpnTable::PicContext, _) => "APPL_DB PIC_CONTEXT_TABLE",
            TableKey::Vpn(VpnTable::MySid, _) => "APPL_DB SRV6_MY_SID_TABLE",
            TableKey::Vpn(VpnTable::SidList, _) => "APPL_DB SRV6_SID_LIST_TABLE",
            TableKey::Vpn(VpnTable::VnetRoute, _) => "APPL_DB VNET_ROUTE_TABLE",
            TableKey::Vpn(VpnTable::VnetTunnel, _) => "APPL_DB VNET_ROUTE_TUNNEL_TABLE",
        },
        connection,
        write_name: write_table_key,
        queue: Some(Queue { table: TableKey::table, key: TableKey::text }),
        scanned: None,
        why: Difference::why,
        producer: Box::new(|_| Ok(())),
    }
}
