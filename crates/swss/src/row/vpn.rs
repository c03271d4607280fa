//! The tables of VPNs that fpmsyncd writes beside routes: `PIC_CONTEXT_TABLE`, `SRV6_MY_SID_TABLE`, `SRV6_SID_LIST_TABLE`,
//! `VNET_ROUTE_TABLE` and `VNET_ROUTE_TUNNEL_TABLE` (`doc/swss-schema.md` and `fpmsyncd/routesync.cpp` in sonic-swss).
//!
//! Each is a key and some texts. They go through Redis, whatever routes do, as in SONiC.

use super::{Db, Name, Row, RowError, put_values};
use std::fmt;

/// One of these tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VpnTable {
    /// `PIC_CONTEXT_TABLE`: the members of a PIC context, by its id.
    PicContext,
    /// `SRV6_MY_SID_TABLE`: local SIDs, by the lengths of their parts and the SID.
    MySid,
    /// `SRV6_SID_LIST_TABLE`: lists of segments, by the name that routes have in `segment`.
    SidList,
    /// `VNET_ROUTE_TABLE`: routes of a VNET.
    VnetRoute,
    /// `VNET_ROUTE_TUNNEL_TABLE`: routes of a VNET whose next hop is another VTEP.
    VnetTunnel,
}

impl VpnTable {
    /// All of them.
    pub const ALL: [VpnTable; 5] =
        [VpnTable::PicContext, VpnTable::MySid, VpnTable::SidList, VpnTable::VnetRoute, VpnTable::VnetTunnel];

    /// The name of the table.
    pub fn name(self) -> &'static str {
        match self {
            VpnTable::PicContext => PicContextRow::TABLE,
            VpnTable::MySid => MySidRow::TABLE,
            VpnTable::SidList => SidListRow::TABLE,
            VpnTable::VnetRoute => VnetRouteRow::TABLE,
            VpnTable::VnetTunnel => VnetTunnelRow::TABLE,
        }
    }

    /// Its fields, in the order in which SONiC's fpmsyncd writes them.
    pub fn fields(self) -> &'static [&'static str] {
        match self {
            VpnTable::PicContext => &["nexthop", "ifname", "vpn_sid", "seg_src", "weight"],
            VpnTable::MySid => &["action", "vrf", "adj"],
            VpnTable::SidList => &["path"],
            VpnTable::VnetRoute => &["nexthop", "ifname"],
            VpnTable::VnetTunnel => &["endpoint"],
        }
    }

    /// Whether a row has all fields, empty ones too.
    fn has_empty_fields(self) -> bool {
        self == VpnTable::PicContext
    }
}

/// The values of a row in the order of [`VpnTable::fields`]; an empty one is absent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VpnRow {
    /// The table.
    pub table: VpnTable,
    values: Box<[Box<str>]>,
}

impl VpnRow {
    /// A row with these values, in the order of the fields; further fields are absent.
    pub fn new(table: VpnTable, values: &[&str]) -> VpnRow {
        let value = |at: usize| Box::from(values.get(at).copied().unwrap_or_default());
        VpnRow { table, values: (0..table.fields().len()).map(value).collect() }
    }

    /// A row with these fields; others of the table are absent, and those of no table are ignored.
    pub fn from_fields<'a>(table: VpnTable, fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> VpnRow {
        let mut row = VpnRow::new(table, &[]);
        for (name, value) in fields {
            let at = table.fields().iter().position(|field| *field == name);
            if let Some(of) = at.and_then(|at| row.values.get_mut(at)) {
                *of = value.into();
            }
        }
        row
    }

    /// The value of a field; empty where it is absent.
    pub fn get(&self, field: &str) -> &str {
        let at = self.table.fields().iter().position(|name| *name == field);
        at.and_then(|at| self.values.get(at)).map_or("", |value| value)
    }

    /// Whether both have values in the same fields.
    pub fn same_shape(&self, other: &VpnRow) -> bool {
        let shape = |row: &VpnRow| row.values.iter().map(|value| value.is_empty()).collect::<Vec<_>>();
        self.table.has_empty_fields() || shape(self) == shape(other)
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.table.fields().iter().copied().zip(self.values.iter().map(|value| &**value))
    }

    fn write(&self, put: &mut dyn FnMut(&str, &str)) {
        match self.table.has_empty_fields() {
            true => self.pairs().for_each(|(field, value)| put(field, value)),
            false => put_values(
                self.pairs().map(|(field, value)| (field, Some(value).filter(|v| !v.is_empty()))),
                put,
            ),
        }
    }
}

impl fmt::Debug for VpnRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pairs()).finish()
    }
}

/// A change of a row of one of these tables.
#[derive(Clone, PartialEq, Debug)]
pub struct VpnChange {
    /// The table.
    pub table: VpnTable,
    /// The key.
    pub key: Name,
    /// The new row; `None` deletes it.
    pub row: Option<VpnRow>,
    /// The former row had other fields (see [`super::Change::reshaped`]).
    pub reshaped: bool,
}

/// The rows of each table as types of their own, for producers and consumers.
macro_rules! tables {
    ($($row:ident $table:ident $name:literal)*) => {$(
        #[doc = concat!("A row of `", $name, "`.")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $row(pub VpnRow);

        impl Row for $row {
            const DB: Db = Db::Appl;
            const TABLE: &'static str = $name;
            type Key = Name;

            fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
                self.0.write(put);
            }

            fn all_fields(&self, put: &mut dyn FnMut(&str, &str)) {
                self.0.pairs().for_each(|(field, value)| put(field, value));
            }

            fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
                Ok($row(VpnRow::from_fields(VpnTable::$table, fields)))
            }
        }
    )*};
}

tables! {
    PicContextRow PicContext "PIC_CONTEXT_TABLE"
    MySidRow MySid "SRV6_MY_SID_TABLE"
    SidListRow SidList "SRV6_SID_LIST_TABLE"
    VnetRouteRow VnetRoute "VNET_ROUTE_TABLE"
    VnetTunnelRow VnetTunnel "VNET_ROUTE_TUNNEL_TABLE"
}
