//! Rows of PIC contexts, of local SIDs and of segment lists: few, so each remembers its row.
//!
//! Rows of VNETs are those of their routes ([`super::vnets`]).

use super::{FpmOut, Fpmsyncd};
use crate::row::{Name, VpnChange, VpnRow, VpnTable};
use ribtide_prefix::Map;
use std::net::Ipv6Addr;

/// A row.
#[derive(Default, Debug)]
struct Entry {
    /// As it should be.
    wanted: Option<VpnRow>,
    /// As APPL_DB has it.
    written: Option<VpnRow>,
    /// The session in which it was announced last; 0 for none since the start.
    epoch: u16,
    changed: bool,
}

/// The rows by table and key.
#[derive(Default, Debug)]
pub(super) struct VpnRows {
    rows: Map<(VpnTable, Name), Entry>,
    changed: Vec<(VpnTable, Name)>,
}

impl VpnRows {
    pub(super) fn changed_len(&self) -> usize {
        self.changed.len()
    }

    /// Wants a row, or none. Returns whether the row was announced in an earlier session (`Some(true)`), or not at all
    /// (`Some(false)`).
    pub(super) fn want(
        &mut self,
        table: VpnTable,
        key: &str,
        wanted: Option<VpnRow>,
        epoch: u16,
    ) -> Option<bool> {
        let at = (table, Name::from(key));
        let entry = self.rows.entry(at.clone()).or_default();
        let had = entry.wanted.is_some();
        let replayed = entry.epoch != epoch;
        entry.epoch = epoch;
        let news = (wanted.is_some() && (replayed || !had)).then_some(had);
        if entry.wanted != wanted {
            entry.wanted = wanted;
            if !std::mem::replace(&mut entry.changed, true) {
                self.changed.push(at);
            }
        } else if entry.wanted.is_none() && entry.written.is_none() && !entry.changed {
            self.rows.remove(&at);
        }
        news
    }

    fn stale(&self, epoch: u16, is_used: impl Fn(&Ipv6Addr) -> bool) -> Vec<(VpnTable, Name)> {
        // A segment list lasts as long as its routes.
        let is_list =
            |table, key: &Name| table == VpnTable::SidList && key.parse().is_ok_and(|sid| is_used(&sid));
        let stale = self.rows.iter().filter(|((table, key), entry)| {
            entry.epoch != epoch && entry.wanted.is_some() && !is_list(*table, key)
        });
        let mut stale: Vec<_> = stale.map(|(at, _)| at.clone()).collect();
        stale.sort_unstable();
        stale
    }

    /// The epochs start over.
    pub(super) fn forget_epochs(&mut self) {
        self.rows.values_mut().for_each(|entry| entry.epoch = 0);
    }

    /// The row of a key that was announced since the start and whose change is handed over.
    pub(super) fn settled(&self, table: VpnTable, key: &Name) -> Option<&VpnRow> {
        let entry = self.rows.get(&(table, key.clone()))?;
        entry.written.as_ref().filter(|_| !entry.changed && entry.epoch != 0)
    }

    /// The keys of all rows.
    pub(super) fn keys(&self) -> impl Iterator<Item = (VpnTable, Name)> {
        self.rows.keys().cloned()
    }
}

impl Fpmsyncd {
    /// Wants a row of a table of VPNs, or none, and takes note of the progress of the replay.
    pub(super) fn want_vpn_row(&mut self, table: VpnTable, key: &str, wanted: Option<VpnRow>) {
        if let Some(renewed) = self.vpn_rows.want(table, key, wanted, self.session.epoch) {
            self.session.progress(self.now_ms, renewed);
        }
    }

    /// Rows that no client announced again, when the replay is over. Returns how many.
    pub(super) fn delete_stale_vpn_rows(&mut self) -> usize {
        let epoch = self.session.epoch;
        let stale = self.vpn_rows.stale(epoch, |sid| self.sources.uses_segment(sid));
        for (table, key) in &stale {
            self.vpn_rows.want(*table, key, None, epoch);
        }
        stale.len()
    }

    /// Hands over the rows that changed: those that routes may name before the routes, those that are gone after them.
    pub(super) fn take_vpn_rows(&mut self, out: &mut FpmOut) {
        let epoch = self.session.epoch;
        for (sid, is_used) in self.sources.take_segments() {
            let name = sid.to_string();
            let row = is_used.then(|| VpnRow::new(VpnTable::SidList, &[&name]));
            self.vpn_rows.want(VpnTable::SidList, &name, row, epoch);
        }
        for (table, key) in std::mem::take(&mut self.vpn_rows.changed) {
            let at = (table, key.clone());
            let Some(entry) = self.vpn_rows.rows.get_mut(&at) else { continue };
            entry.changed = false;
            let old = std::mem::replace(&mut entry.written, entry.wanted.clone());
            match (old, &entry.wanted) {
                (old, Some(new)) if old.as_ref() != Some(new) => {
                    let reshaped = old.is_some_and(|old| !old.same_shape(new));
                    out.vpn_rows.push(VpnChange { table, key, row: Some(new.clone()), reshaped });
                    self.counters.written += 1;
                }
                (Some(_), None) => {
                    out.old_vpn_rows.push(VpnChange { table, key, row: None, reshaped: false });
                    self.counters.written += 1;
                }
                _ => self.counters.unchanged += 1,
            }
            if entry.wanted.is_none() {
                self.vpn_rows.rows.remove(&at);
            }
        }
    }

    /// Hands over every row of these tables, those of VNETs included.
    pub(super) fn vpn_rows_again(&mut self, out: &mut FpmOut) {
        let before = out.vpn_rows.len();
        for ((table, key), entry) in &self.vpn_rows.rows {
            out.vpn_rows.extend(entry.written.clone().map(|row| VpnChange {
                table: *table,
                key: key.clone(),
                row: Some(row),
                reshaped: true,
            }));
        }
        self.vnet_rows(&mut out.vpn_rows);
        out.vpn_rows[before..].sort_unstable_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        self.counters.written += (out.vpn_rows.len() - before) as u64;
    }

    /// Takes in a row that APPL_DB has from before; see [`Fpmsyncd::known_route`].
    pub fn known_vpn_row(&mut self, key: &Name, row: VpnRow) {
        self.session.stale(self.now_ms);
        match row.table {
            VpnTable::VnetRoute | VpnTable::VnetTunnel => self.known_vnet_row(key, &row),
            table => {
                self.vpn_rows.rows.entry((table, key.clone())).or_insert_with(|| Entry {
                    wanted: Some(row.clone()),
                    written: Some(row),
                    ..Entry::default()
                });
            }
        }
    }

    /// Whether APPL_DB shall have a row of this key.
    pub(super) fn has_vpn_row(&self, table: VpnTable, key: &Name) -> bool {
        match table {
            VpnTable::VnetRoute | VpnTable::VnetTunnel => self.wanted_vnet_row(table, key, false).is_some(),
            _ => self.vpn_rows.rows.get(&(table, key.clone())).is_some_and(|entry| entry.wanted.is_some()),
        }
    }

    /// [`Fpmsyncd::delete_surplus_route`], for one of these rows.
    pub fn delete_surplus_vpn_row(&self, table: VpnTable, key: Name, out: &mut FpmOut) {
        if !self.has_vpn_row(table, &key) {
            out.old_vpn_rows.push(VpnChange { table, key, row: None, reshaped: false });
        }
    }
}
