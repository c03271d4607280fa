//! Reconciliation of APPL_DB: the rows that it should have, a page at a time, and which of them did
//! not change while a caller compared them.
//!
//! The truth is this machine's own tables. A row whose change is not handed over yet is left out, and
//! so is one from before the start that no client has announced again: its fields may be another
//! fpmsyncd's.

use super::{FpmOut, Fpmsyncd};
pub use crate::row::RowName;
use crate::row::{
    Change, LabelKey, LabelRouteRow, Name, NextHopGroupRow, RouteKey, RouteRow, Row, Via, VpnChange, VpnRow,
    VpnTable,
};
use std::sync::Arc;

/// A row of APPL_DB with its fields; none: there is no such row.
pub type FoundRow = (RowName, Vec<(String, String)>);

/// What fpmsyncd has of a row that another daemon found in APPL_DB, or found missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerRow {
    /// No such row, and no change that makes one.
    Absent,
    /// The same.
    Same,
    /// Another, which is or will be written.
    Other,
    /// Not known: a client may still announce it, as its replay is not over.
    Unknown,
}

/// The key of a row that fpmsyncd writes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TableKey {
    /// Of a table that carries routes.
    Row(RowName),
    /// Of a table of VPNs.
    Vpn(VpnTable, Name),
}

impl TableKey {
    /// The table.
    pub fn table(&self) -> &'static str {
        match self {
            TableKey::Row(name) => name.table(),
            TableKey::Vpn(table, _) => table.name(),
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
            TableKey::Row(name) => name.write(out),
            TableKey::Vpn(_, key) => out.push_str(key),
        }
    }
}

/// A row that APPL_DB should have.
#[derive(Clone, PartialEq, Debug)]
pub enum WantedRow {
    /// Of `ROUTE_TABLE`.
    Route(RouteRow),
    /// Of `LABEL_ROUTE_TABLE`.
    Label(LabelRouteRow),
    /// Of `NEXTHOP_GROUP_TABLE`.
    Group(NextHopGroupRow),
    /// Of a table of VPNs.
    Vpn(VpnRow),
}

impl WantedRow {
    /// Whether [`WantedRow::is`] says the same of both, of any fields. May be false of equal rows.
    pub fn compares_as(&self, other: &WantedRow) -> bool {
        match (self, other) {
            (WantedRow::Route(a), WantedRow::Route(b)) => {
                a.protocol == b.protocol && Arc::ptr_eq(&a.via, &b.via)
            }
            (WantedRow::Label(a), WantedRow::Label(b)) => {
                a.protocol == b.protocol && Arc::ptr_eq(&a.via, &b.via)
            }
            _ => false,
        }
    }

    /// Whether a row that has these fields resolves to the same next hops, in any order, and is of the
    /// same protocol. Fields that the table does not have are ignored, as orchagent does.
    pub fn is<T: AsRef<str>>(&self, fields: &[(T, T)]) -> bool {
        fn read<R: Row>(fields: &[(impl AsRef<str>, impl AsRef<str>)]) -> Option<R> {
            R::from_fields(&mut fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))).ok()
        }
        let same = |a: &Via, b: &Via| a == b || a.same_hops(b);
        !fields.is_empty()
            && match self {
                WantedRow::Route(row) => read::<RouteRow>(fields)
                    .is_some_and(|found| found.protocol == row.protocol && same(&found.via, &row.via)),
                WantedRow::Label(row) => read::<LabelRouteRow>(fields)
                    .is_some_and(|found| found.protocol == row.protocol && same(&found.via, &row.via)),
                WantedRow::Vpn(row) => {
                    let pairs = &mut fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
                    VpnRow::from_fields(row.table, pairs) == *row
                }
                WantedRow::Group(row) => {
                    read::<NextHopGroupRow>(fields).is_some_and(|found| same(&found.via, &row.via))
                }
            }
    }
}

/// A position among the rows; the default is the beginning.
#[derive(Clone, Copy, Default, Debug)]
pub struct RowCursor {
    vrf: u32,
    ipv6: bool,
    at: u32,
}

impl Fpmsyncd {
    /// Rows that APPL_DB should have from a position on, of about `count` routes, and the next
    /// position. A route that takes the place of a withdrawn one meanwhile may be left out.
    pub fn wanted_rows(
        &self,
        from: RowCursor,
        count: usize,
    ) -> (Vec<(TableKey, WantedRow)>, Option<RowCursor>) {
        let RowCursor { vrf, ipv6, at } = from;
        let mut rows = Vec::new();
        let Some(of) = self.vrfs.get(vrf as usize) else {
            // Labels, groups, contexts and SIDs are few.
            let labels = self.labels.keys().map(|key| TableKey::Row(RowName::Label(key)));
            rows.extend(labels.filter_map(|name| Some((name.clone(), self.wanted(&name)?))));
            rows.extend(self.wanted_groups());
            return (rows, None);
        };
        let mut next = at;
        for _ in 0..count {
            let Some((prefix, entry)) = of.routes.at(ipv6, next) else {
                let next = if ipv6 {
                    RowCursor { vrf: vrf + 1, ipv6: false, at: 0 }
                } else {
                    RowCursor { vrf, ipv6: true, at: 0 }
                };
                return (rows, Some(next));
            };
            next += 1;
            if !entry.stage.is_changed()
                && entry.epoch != 0
                && let Some(row) = self.row_of((vrf, prefix), entry)
            {
                rows.push(match of.name.as_deref().filter(|_| of.is_vnet) {
                    Some(vnet) => {
                        let (key, row) = Self::vnet_row(vnet, prefix, &row.via);
                        (TableKey::Vpn(row.table, key), WantedRow::Vpn(row))
                    }
                    None => {
                        let key = RouteKey::new(of.name.clone(), prefix);
                        (TableKey::Row(RowName::Route(key)), WantedRow::Route(self.route_row(row)))
                    }
                });
            }
        }
        (rows, Some(RowCursor { vrf, ipv6, at: next }))
    }

    /// Those of `NEXTHOP_GROUP_TABLE` and of the tables of VPNs, but VNETs, alone: these go through APPL_DB whatever routes do.
    pub fn wanted_groups(&self) -> impl Iterator<Item = (TableKey, WantedRow)> {
        let groups = self.objects.keys().map(|key| TableKey::Row(RowName::Group(key)));
        let others = self.vpn_rows.keys().map(|(table, key)| TableKey::Vpn(table, key));
        groups.chain(others).filter_map(|name| Some((name.clone(), self.wanted(&name)?)))
    }

    /// The row that APPL_DB should have of this key; `None` without one, or when its change is not
    /// handed over.
    pub fn wanted(&self, name: &TableKey) -> Option<WantedRow> {
        match name {
            TableKey::Row(name) => self.wanted_row(name),
            TableKey::Vpn(table @ (VpnTable::VnetRoute | VpnTable::VnetTunnel), key) => {
                self.wanted_vnet_row(*table, key, true).map(WantedRow::Vpn)
            }
            TableKey::Vpn(table, key) => self.vpn_rows.settled(*table, key).cloned().map(WantedRow::Vpn),
        }
    }

    fn wanted_row(&self, name: &RowName) -> Option<WantedRow> {
        Some(match name {
            RowName::Route(RouteKey::Route { vrf, prefix, .. }) => {
                let at = (self.find_vrf(vrf.as_deref())?, *prefix);
                let entry = self.entry(at).filter(|entry| !entry.stage.is_changed() && entry.epoch != 0)?;
                WantedRow::Route(self.route_row(self.row_of(at, entry)?))
            }
            RowName::Route(_) => return None,
            RowName::Label(LabelKey::Label(label)) => {
                let row = self.labels.settled(*label)?;
                let protocol = Some(self.config.protocols.name(row.protocol).clone());
                WantedRow::Label(LabelRouteRow { protocol, via: row.via.clone() })
            }
            RowName::Label(_) => return None,
            RowName::Group(name) => {
                WantedRow::Group(NextHopGroupRow { via: self.objects.settled(name.parse().ok()?)?.clone() })
            }
        })
    }

    /// Compares rows that were found in APPL_DB (without fields: that are missing) with those of this
    /// machine.
    pub fn compare_found(&self, found: &[FoundRow]) -> Vec<ProducerRow> {
        let compare = |(name, fields): &FoundRow| {
            let has = match name {
                RowName::Route(key) => self.has_row(key),
                RowName::Label(key) => self.has_label_row(key),
                // Others are another program's.
                RowName::Group(key) => key.parse::<u32>().is_ok() && self.has_group_row(key),
            };
            match self.wanted_row(name).filter(|_| has) {
                Some(wanted) if wanted.is(fields) => ProducerRow::Same,
                // It is written again.
                Some(_) => ProducerRow::Other,
                None if !self.is_replayed() => ProducerRow::Unknown,
                // Its change is not handed over yet.
                None if has => ProducerRow::Other,
                None => ProducerRow::Absent,
            }
        };
        found.iter().map(compare).collect()
    }

    /// Watches these rows, in place of others: a row that is handed over ends its watch.
    pub fn watch(&mut self, names: &[TableKey]) {
        self.watched = names.iter().cloned().collect();
    }

    /// Whether a row is watched, so that none of its key was handed over since.
    pub fn is_watched(&self, name: &TableKey) -> bool {
        self.watched.contains(name)
    }

    /// Ends the watch of rows that are handed over.
    pub(super) fn end_watches(&mut self, out: &FpmOut) {
        if self.watched.is_empty() {
            return;
        }
        let routes = out.routes.iter().chain(&out.queries).map(|row| RowName::Route(row.key.clone()));
        let labels = out.labels.iter().map(|row| RowName::Label(row.key));
        let groups = out.groups.iter().chain(&out.old_groups).map(|row| RowName::Group(row.key.clone()));
        for name in routes.chain(labels).chain(groups) {
            self.watched.remove(&TableKey::Row(name));
        }
        for row in out.vpn_rows.iter().chain(&out.old_vpn_rows) {
            self.watched.remove(&TableKey::Vpn(row.table, row.key.clone()));
        }
    }

    /// Emits a row again, in place of whatever APPL_DB has. `answered`: orchagent answers it.
    pub fn row_again(&mut self, name: &TableKey, answered: bool, out: &mut FpmOut) {
        let name = match (name, self.wanted(name)) {
            (TableKey::Row(name), _) => name,
            (TableKey::Vpn(table, key), Some(WantedRow::Vpn(row))) => {
                let (table, key) = (*table, key.clone());
                return out.vpn_rows.push(VpnChange { table, key, row: Some(row), reshaped: true });
            }
            _ => return,
        };
        match (name.clone(), self.wanted_row(name)) {
            (RowName::Route(key), Some(WantedRow::Route(row))) => {
                let RouteKey::Route { vrf, prefix, .. } = &key else { return };
                let Some(at) = self.find_vrf(vrf.as_deref()).map(|vrf| (vrf, *prefix)) else { return };
                if answered && self.config.suppress {
                    let entry = self.vrfs[at.0 as usize].routes.entry(at.1);
                    let next = self.owed.wrote(at, entry.stage, false);
                    entry.stage.set(next, &mut self.awaiting);
                }
                out.routes.push(Change { key, row: Some(row), reshaped: true });
            }
            (RowName::Label(key), Some(WantedRow::Label(row))) => {
                out.labels.push(Change { key, row: Some(row), reshaped: true });
            }
            (RowName::Group(key), Some(WantedRow::Group(row))) => {
                out.groups.push(Change { key, row: Some(row), reshaped: true });
            }
            _ => {}
        }
    }
}
